//! PowerBudget: a limit on the power of a part of the site, written by a person; the operator writes what it counts.
//!
//! Budgets form a tree: a budget may name another one as its parent. A node is in the deepest budget of those that select it (of
//! several, one under an enforced limit comes first), and counts in all budgets above that one, whatever they select.

mod response;

pub use response::{
    BudgetDay, BudgetLowering, BudgetSignal, BudgetWindow, LoweringCause, SignalLevel, SignalStatus,
    SignalUnit,
};

use crate::condition::Condition;
use crate::macros::{part, vocabulary};
use crate::number::{Number, Whole};
use crate::word::Word;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

vocabulary! {
    /// What is done about a limit.
    pub enum BudgetMode {
        /// It is only computed what would be granted: nothing is written to a node because of this limit.
        Observe = "observe",
        /// Nodes are granted power so that the limit is kept.
        Enforce = "enforce",
    }
}

/// The limit of a part of the site.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "PowerBudget",
    doc = "A limit on the power of a part of the site, and what is counted there.",
    status = "PowerBudgetStatus",
    derive = "PartialEq",
    shortname = "pwb",
    category = "joulie",
    printcolumn(name = "Watts", type_ = "number", json_path = ".spec.watts"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.pause"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Counted", type_ = "number", json_path = ".status.countedWatts"),
    printcolumn(name = "Measured", type_ = "number", json_path = ".status.measuredWatts"),
    printcolumn(
        name = "Kept",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"WithinBudget\")].status"
    ),
    printcolumn(name = "Sustained", type_ = "number", json_path = ".spec.sustainedWatts", priority = 1),
    printcolumn(name = "Lowered-By", type_ = "string", json_path = ".status.lowered.by", priority = 1),
    printcolumn(name = "In-Use", type_ = "number", json_path = ".status.effectiveWatts", priority = 1),
    printcolumn(name = "Room", type_ = "number", json_path = ".status.roomWatts", priority = 1),
    printcolumn(name = "Biting", type_ = "number", json_path = ".status.demand.bitingWatts", priority = 1),
    printcolumn(name = "Short", type_ = "number", json_path = ".status.shortWatts", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.sustainedWatts) == has(self.windowSeconds)").message("windowSeconds: sustainedWatts and windowSeconds go together"))]
#[x_kube(validation = kube::core::Rule::new("!has(self.sustainedWatts) || self.sustainedWatts <= self.watts").message("sustainedWatts: it is not above watts"))]
#[x_kube(validation = kube::core::Rule::new("!has(self.sustainedWatts) || double(self.watts) <= double(self.sustainedWatts) * 1.25 || (has(self.acknowledgeInstant) && self.acknowledgeInstant)").message("watts: more than 1.25 times sustainedWatts needs acknowledgeInstant"))]
pub struct PowerBudgetSpec {
    /// The PowerBudget that this one is a part of; without one it is at the top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub parent: Option<String>,
    /// Which nodes are in it; without a selector every node is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BudgetSelector>,
    /// The most that everything in it may draw together at any instant: grants never sum above it.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub watts: Number,
    /// The most that the mean of what is measured in it may be over `windowSeconds`. Without it only `watts` holds. While nobody
    /// measures, it holds at every instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub sustained_watts: Option<Number>,
    /// The window of `sustainedWatts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 3600))]
    pub window_seconds: Option<Whole>,
    /// `watts` may be more than 1.25 times `sustainedWatts`: whoever sets this has seen what the protective device bears, and
    /// for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge_instant: Option<bool>,
    /// What is drawn in it that nobody controls (switches, storage, nodes without an agent), beside the base loads of the budgets
    /// below it. State an upper bound; it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub base_watts: Option<Number>,
    /// `enforce` grants power so that the limit is kept; `observe` only computes and reports it.
    pub mode: Word<BudgetMode>,
    /// While it is true, no node in it is raised, released or given another profile. Nodes are still lowered where a limit needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
    /// While it is true, the nodes that it selects may be switched off while they are empty, where the operator's `SLEEP` is on; the
    /// label `joulie.io/sleep` of a node says otherwise for that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<bool>,
    /// What is left of each node in it while an event is on, as far as its PowerEvent says so. Each node's agent holds it
    /// beforehand, so that an event needs no operator. Of an event that is listed twice the least counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub armed: Option<Vec<ArmedRule>>,
    /// Hours of the week in which the limit is lower. Of several that are on the lowest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub windows: Option<Vec<BudgetWindow>>,
    /// A signal that lowers the limit. Beside windows that are on, the lowest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<BudgetSignal>,
}

/// What an event leaves of the nodes of a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArmedRule {
    /// The name of the event: `spec.event` of PowerEvents.
    #[schemars(length(min = 1, max = 63))]
    pub event: String,
    /// What is left, by the class of a node.
    pub shares: ClassShares,
}

/// A part of the way from the floors of all packages and GPUs of a node, 0, to the most that they draw, 1, for each class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassShares {
    /// Of performance nodes.
    #[schemars(range(min = 0, max = 1))]
    pub performance: Number,
    /// Of nodes that are to become eco nodes.
    #[schemars(range(min = 0, max = 1))]
    pub draining: Number,
    /// Of eco nodes.
    #[schemars(range(min = 0, max = 1))]
    pub eco: Number,
}

part! {
    /// A label selector, as Kubernetes has it.
    pub struct BudgetSelector {
        /// Labels that a node must have.
        #[schemars(extend("maxProperties" = 64))]
        match_labels: BTreeMap<String, String>,
        /// Further conditions on the labels of a node.
        #[schemars(length(max = 64))]
        match_expressions: Vec<BudgetSelectorExpression>,
    }
}

vocabulary! {
    /// How a label is compared.
    pub enum SelectorOperator {
        /// Its value is one of these.
        In = "In",
        /// It has another value, or is not there.
        NotIn = "NotIn",
        /// It is there.
        Exists = "Exists",
        /// It is not there.
        DoesNotExist = "DoesNotExist",
    }
}

/// A condition on a label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0").message("values: In and NotIn need some, Exists and DoesNotExist take none"))]
pub struct BudgetSelectorExpression {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How it is compared.
    pub operator: Word<SelectorOperator>,
    /// With what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub values: Option<Vec<String>>,
}

part! {
    /// What follows demand in a budget.
    pub struct BudgetDemand {
        /// What of the limit is meant to be kept free, so that a node can be raised at once.
        reserve_watts: Number,
        /// What the budget will count less once the receipts of lowered nodes have come.
        in_flight_watts: Number,
        /// By how much more nodes would draw that their grants throttle.
        biting_watts: Number,
        /// How many nodes that are.
        biting_nodes: Whole,
        /// What of it has no room under this limit.
        missing_watts: Number,
        /// How many nodes do not report what they want: they keep what they have, and at least their entitlement.
        blind_nodes: Whole,
        /// What nodes hold and do not want, by the class of a pod that could have it: from nodes of its own class and of those behind
        /// it.
        reclaimable_watts: ClassNumbers,
        /// What a node here could be granted beside what is drawn, by its class: the room without the reserve and what is reclaimable,
        /// here and under every limit above.
        grantable_watts: ClassNumbers,
        /// What pods will draw that are bound to nodes here and do not show yet. It is taken off what is reclaimable already.
        assumed_watts: Number,
        /// How many pods wait for a node because this limit lacks watts for them.
        waiting_pods: Whole,
        /// What it lacks for them together.
        waiting_watts: Number,
        /// The share of the time, from 0 to 1, for which the demand of nodes may be above their grants.
        price: ClassNumbers,
    }
}

part! {
    /// A number for each class of nodes.
    pub struct ClassNumbers {
        /// Of performance nodes.
        performance: Number,
        /// Of nodes that are to become eco nodes.
        draining: Number,
        /// Of eco nodes.
        eco: Number,
    }
}

part! {
    /// What the operator counts in a budget.
    pub struct PowerBudgetStatus {
        /// The generation of the spec that was taken in.
        observed_generation: Whole,
        /// The limit that is in use: `watts`, or less where a window or the signal lowers it.
        limit_watts: Number,
        /// What lowers the limit now. Missing where nothing does.
        lowered: BudgetLowering,
        /// What was last heard of the signal. Missing without one, and until it is first heard.
        signal: SignalStatus,
        /// What grants may sum up to now, from `sustainedWatts` to `watts`. Only with two limits.
        effective_watts: Number,
        /// The mean of what was measured over the last window. Missing until a whole window is known.
        window_mean_watts: Number,
        /// For how many seconds of the last window more was measured than `sustainedWatts`.
        between_seconds: Whole,
        /// The mode that is in use.
        mode: Word<BudgetMode>,
        /// How many nodes are in it, those of the budgets below it included.
        nodes: Whole,
        /// The most that can be drawn in it, by the grants and what nodes have read back. Missing while nobody can say.
        counted_watts: Number,
        /// What the meters of its nodes show together. Nodes without a measurement are left out.
        measured_watts: Number,
        /// The limit less what is counted.
        room_watts: Number,
        /// What follows demand in it. Missing where power does not.
        demand: BudgetDemand,
        /// By how much the limit cannot be kept even at the lowest caps.
        short_watts: Number,
        /// How many nodes would be lowered if the limit were enforced. Only in mode `observe`.
        would_lower_nodes: Whole,
        /// By how much they would be lowered together.
        would_lower_watts: Number,
        /// What else is to be known about it.
        #[schemars(length(max = 16))]
        conditions: Vec<Condition>,
        /// When this was last written.
        updated_at: String,
    }
}
