//! The reasons of the operator's conditions and Events, each with its meaning and what a person should do: the programs
//! write them, and the reference lists them.

use host_kit::events::{EventReason, Severity};
use joulie_api::condition::{ConditionReason, ConditionStatus, ConditionType};
use joulie_api::workload_profile;

macro_rules! reasons {
    ($($list:ident: [$type:ty; $count:literal] = { $($name:ident: $reason:expr;)+ })+) => {$(
        $(pub(crate) const $name: $type = $reason;)+

        /// All of them.
        pub const $list: [$type; $count] = [$($name),+];
    )+};
}

const fn of(
    about: ConditionType,
    status: ConditionStatus,
    word: &'static str,
    meaning: &'static str,
) -> ConditionReason {
    ConditionReason { about, status, word, meaning }
}

const fn event(
    severity: Severity,
    word: &'static str,
    about: &'static str,
    meaning: &'static str,
) -> EventReason {
    EventReason { word, severity, about, meaning }
}

use ConditionType::{
    Accepted, DrainOverdue, HardwareImplausible, MetersDisagree, Overridden, SignalFresh, TelemetryFresh,
    Unreadable, WithinBudget,
};
use Severity::{Normal, Warning};

reasons! {
    CONDITION_REASONS: [ConditionReason; 33] = {
        SAMPLED: of(TelemetryFresh, ConditionStatus::True, "Sampled", "the power is measured");
        NO_METER: of(TelemetryFresh, ConditionStatus::True, "NoMeter",
            "no meter is configured: the power is estimated, and that is all that was asked for");
        METER_SILENT: of(TelemetryFresh, ConditionStatus::False, "MeterSilent",
            "no sample for POWER_HOLD, or the last attempt failed: the node is not raised to full power; look at its agent");
        NOT_HEARD_YET: of(TelemetryFresh, ConditionStatus::Unknown, "NotHeardYet",
            "nothing was heard of the meter since the operator began: the agent has not started, or has not measured yet");
        FAR_APART: of(MetersDisagree, ConditionStatus::True, "FarApart",
            "two sources of the node's power are further apart than OPERATOR_NODE_POWER_DISAGREE_PCT; the first in OPERATOR_NODE_POWER_SOURCE counts: find out which one is wrong, or what it leaves out");
        MEASURED_ABOVE: of(MetersDisagree, ConditionStatus::True, "MeasuredAbove",
            "of a PowerBudget: the meters of its nodes show more than is counted of them, by more than BUDGET_DRIFT_PCT: what draws power there is not counted, such as what nodes draw beside packages and GPUs; raise BUDGET_NODE_REST_WATTS, or set BUDGET_NODE_REST_MEASURED");
        MEASURED_WITHIN: of(MetersDisagree, ConditionStatus::False, "MeasuredWithin",
            "of a PowerBudget: the meters of its nodes show no more than is counted of them");
        COUNTED_FAR_ABOVE: of(MetersDisagree, ConditionStatus::False, "CountedFarAbove",
            "of a PowerBudget: its nodes draw less than half of what is counted, which is the most that they may draw: they have little to do, or their grants are larger than their devices need");
        NOT_MEASURED: of(MetersDisagree, ConditionStatus::Unknown, "NotMeasured",
            "of a PowerBudget: not every node there has a measurement now, or what is counted is not known, so that the two cannot be compared");
        GROUP_METERED: of(TelemetryFresh, ConditionStatus::True, "GroupMetered",
            "of a PowerBudget with two limits: its nodes are measured often enough for the limit of the mean");
        GROUP_METER_LATE: of(TelemetryFresh, ConditionStatus::False, "GroupMeterLate",
            "of a PowerBudget with two limits: more than one of twenty nodes has no measurement that is younger than a twentieth of the window and 3 s, or what is counted is not known, so that sustainedWatts holds at every instant; measure more often (agent or http first in OPERATOR_NODE_POWER_SOURCE: of what Prometheus says nobody knows the age), or take a longer window");
        SIGNAL_HEARD: of(SignalFresh, ConditionStatus::True, "SignalHeard",
            "of a PowerBudget with a signal: its last value is not older than holdSeconds");
        SIGNAL_SILENT: of(SignalFresh, ConditionStatus::False, "SignalSilent",
            "of a PowerBudget with a signal: no value that can be used for holdSeconds, so that the lowest limit of the signal holds; PROMETHEUS_ADDRESS must be set, and the query must yield one series with a number of 0 or more");
        MEASURED: of(TelemetryFresh, ConditionStatus::True, "Measured",
            "of a WorkloadProfile: it rests on metrics of its pods, not older than RECLASSIFY_INTERVAL and a fifth");
        SIMULATED: of(TelemetryFresh, ConditionStatus::True, "Simulated",
            "of a WorkloadProfile: it rests on the annotations sim.joulie.io of its pods, as CLASSIFY_SIM_ANNOTATION_FALLBACK says");
        PROMETHEUS_SILENT: of(TelemetryFresh, ConditionStatus::False, "PrometheusSilent",
            "of a WorkloadProfile: Prometheus gives no answer that can be used, and the message says why; the classes stay, and their confidence fades");
        NO_SERIES: of(TelemetryFresh, ConditionStatus::False, "NoSeries",
            "of a WorkloadProfile: Prometheus answers, and has no series of its pods: look at what it scrapes, and at joulie_operator_classifier_series");
        NO_PROMETHEUS: of(TelemetryFresh, ConditionStatus::False, workload_profile::NO_PROMETHEUS,
            "of a WorkloadProfile: PROMETHEUS_ADDRESS is not set, so that only annotations are known");
        PODS_STAY: of(DrainOverdue, ConditionStatus::True, "PodsStay",
            "the node is to become an eco node, and performance pods have stayed on it for DRAIN_DEADLINE: move them, or take the class from them; DRAIN_OVERDUE says what becomes of its caps");
        KEPT: of(WithinBudget, ConditionStatus::True, "Kept", "every limit above the node is kept");
        BUDGET_SHORT: of(WithinBudget, ConditionStatus::False, "BudgetShort",
            "a limit cannot be kept even at the lowest caps: raise the limit, or take load or nodes away");
        LOAD_UNKNOWN: of(WithinBudget, ConditionStatus::False, "LoadUnknown",
            "nobody can say what a group draws, and nothing in it is raised: look for nodes with HardwareUnknown");
        BUDGET_EXCEEDED: of(WithinBudget, ConditionStatus::False, "BudgetExceeded",
            "more was counted than a limit allows for half a minute; the Event BudgetExceeded names the nodes");
        HARDWARE_UNKNOWN: of(WithinBudget, ConditionStatus::Unknown, "HardwareUnknown",
            "nobody knows what the node can draw, so it has no grant: start its agent, or label it");
        OBSERVED: of(WithinBudget, ConditionStatus::Unknown, "Observed",
            "the limit is only observed: the status says how many nodes would be lowered, and by how much");
        ACCEPTED: of(Accepted, ConditionStatus::True, "Accepted", "the budget is used as it is written");
        PARENT_MISSING: of(Accepted, ConditionStatus::False, "ParentMissing",
            "there is no PowerBudget of the parent's name: the limit is kept, and counts in no other; create the parent or name another");
        PARENT_CYCLE: of(Accepted, ConditionStatus::False, "ParentCycle",
            "the budget is a part of itself: its limit is kept, and counts in no other; take one parent of the cycle away");
        OVERLAP: of(Accepted, ConditionStatus::False, "Overlap",
            "a node is selected here and is in another budget that is not a part of this one, so that nobody can say what is drawn here, and nothing is raised: change a selector or a parent");
        PLACE_UNKNOWN: of(Accepted, ConditionStatus::False, "PlaceUnknown",
            "a machine without a Node may be here: its grant names no budget, so that nothing is raised until the grant is dropped");
        MALFORMED: of(Unreadable, ConditionStatus::True, "Malformed",
            "an object of the node cannot be read, and the message names it: mend or delete the object");
        NOT_BELIEVED: of(HardwareImplausible, ConditionStatus::True, "NotBelieved",
            "the node says of its hardware what its model cannot be; the message has each figure and what counts instead");
        OWNED_BY_OTHERS: of(Overridden, ConditionStatus::True, "OwnedByOthers",
            "somebody else owns a field that the operator would write: what they say stands; remove the field to hand it back");
    }
    EVENT_REASONS: [EventReason; 34] = {
        WRITE_OVERRIDDEN: event(Warning, "Overridden", "Node",
            "a write met a field that somebody else owns; it is left to them");
        WRITE_REFUSED: event(Warning, "WriteRefused", "Node",
            "the API server refuses a write: definitions older than the operator, or a right is missing");
        OBJECT_UNREADABLE: event(Warning, "Unreadable", "the object",
            "an object is there and cannot be read; nothing is written over it, and what depends on it is not raised");
        AT_FULL_POWER: event(Normal, "ActivePerformance", "Node",
            "the node runs at full power now; the text says by which plan");
        BEGAN_DRAINING: event(Normal, "DrainingPerformance", "Node",
            "the node is to run as an eco node, and performance pods are on it: it takes no more of them; the text says by which plan");
        BECAME_ECO: event(Normal, "ActiveEco", "Node",
            "the node runs with the caps of eco now; the text says why");
        LIMIT_CHANGED: event(Normal, "LimitChanged", "PowerBudget",
            "the operator has taken in another limit or mode; the text has the old one and the new one");
        LIMIT_SHORT: event(Warning, "BudgetShort", "PowerBudget or Lease joulie-plan",
            "a limit cannot be kept even at the lowest caps");
        LIMIT_EXCEEDED: event(Warning, "BudgetExceeded", "PowerBudget or Lease joulie-plan",
            "more was counted than a limit allows for half a minute; the text names the nodes that hold most of it");
        LIMIT_KEPT: event(Normal, "BudgetKept", "PowerBudget or Lease joulie-plan", "a limit is kept again");
        DEMAND_UNMET: event(Normal, "DemandUnmet", "PowerBudget or Lease joulie-plan",
            "for a minute nodes were throttled that would draw more than a limit leaves them, or pods waited that it lacks watts for: no node of a lower class has watts that it does not want");
        BUDGET_LOWERS: event(Normal, "BudgetLowers", "PowerBudget or Lease joulie-plan",
            "one decision lowered grants by a twentieth of the limit or more; the text has its name, which is in spec.decision of the grants too, and why");
        BUDGET_RAISES: event(Normal, "BudgetRaises", "PowerBudget or Lease joulie-plan",
            "one decision raised grants by a twentieth of the limit or more; the text has its name, which is in spec.decision of the grants too, and why");
        RESCHEDULE_ADVISED: event(Normal, "RescheduleAdvised", "Node",
            "pods of the node would better run elsewhere; status.rescheduleRecommendations of its NodeTwin names them");
        RESCHEDULE_OVER: event(Normal, "RescheduleOver", "Node",
            "no pod of the node is recommended to leave any more");
        PERFORMANCE_NOT_ALLOWED: event(Warning, "PerformanceNotAllowed", "Pod",
            "the pod asks for performance from a namespace that is not in PERFORMANCE_NAMESPACES, and counts as standard: no node is raised or kept at full power for it");
        PERFORMANCE_BOUND: event(Warning, "PerformanceBound", "Pod",
            "the pods of its namespace hold as many nodes as PERFORMANCE_NODES_MAX says, and the pod counts as standard: no node is raised or kept at full power for it");
        DRAIN_LATE: event(Warning, "DrainOverdue", "Node",
            "performance pods have kept the node from becoming an eco node for DRAIN_DEADLINE");
        POD_EVICTED: event(Normal, "Evicted", "Pod",
            "the pod was evicted from a stressed node, because it says joulie.io/reschedulable and ENABLE_ACTIVE_RESCHEDULING is on");
        EVICTION_DENIED: event(Normal, "EvictionDenied", "Pod",
            "the pod should leave a stressed node and may not; the text has the words of the disruption budget");
        CONFIG_APPLIED: event(Normal, "ConfigApplied", "Lease joulie-plan",
            "the file of settings has changed; the text says what is other now, and what waits for a restart");
        CONFIG_REFUSED: event(Warning, "ConfigRefused", "Lease joulie-plan",
            "the file of settings is refused as a whole, and what was in force stays; the text has every mistake, and a restart would refuse it too");
        CAP_ENDED: event(Normal, "CapEnded", "Node",
            "the time of a person's caps is over, and the plan's caps follow");
        GRANT_DROPPED: event(Warning, "GrantDropped", "Lease joulie-plan",
            "the grant of a deleted Node counts no more: its agent was silent for BUDGET_GONE_HOLD");
        NODE_SLEEPS: event(Normal, "NodeSleeps", "Node",
            "the node has been empty for long enough: it is cordoned and tainted, and will be switched off");
        NODE_WAKES: event(Normal, "NodeWakes", "Node",
            "the node sleeps and is to be woken; the text says for what. It is switched on once its budgets have room for its largest draw");
        NODE_AWAKE: event(Normal, "NodeAwake", "Node",
            "the node takes pods again: cordon and taint of its sleep are taken off");
        WAKE_UNPAID: event(Warning, "WakeHasNoRoom", "Node",
            "the node should wake and sleeps on, because a budget above it has no room for its largest draw once all others are brought to the least that they can be, or is paused, or is armed for an event that is on; it is woken when there is room: raise the limit, or let fewer nodes sleep");
        NODE_LEFT: event(Warning, "NodeLeftToPeople", "Node",
            "the node did not go off or did not wake in time, or its management controller contradicts its kubelet: it stays cordoned and counts its largest draw, and another one is woken if one is needed; look at the machine and its controller. It takes pods again once its kubelet reports another boot");
        EVENT_BEGAN: event(Normal, "EventBegan", "PowerEvent",
            "the event is on: nodes below PowerBudgets that are armed for it are held to their shares, and none of them is raised");
        EVENT_OVER: event(Normal, "EventOver", "PowerEvent",
            "the event is over, and nodes have their grants again; the status says what was delivered");
        EVENT_BEHIND: event(Warning, "EventNotFollowed", "PowerEvent",
            "agents do not say that the caps of the event are in force; the text names nodes: look at their agents, and at the clocks of these nodes");
        GPU_FREED: event(Normal, "GpuFreed", "GPU",
            "the extender took the card for a pod that never got it, and nobody wrote that off in GPU_REPAIR_AFTER; the card is free of the pod now: see why the node's agent does not");
        GPU_UNCONFIRMED: event(Warning, "GpuUnconfirmed", "GPU",
            "the pod that the card was taken for is on the node, and for GPU_REPAIR_AFTER no kubelet said which card it has: the card stays taken; look at the node's agent and its mount of the kubelet's pod-resources");
    }
}
