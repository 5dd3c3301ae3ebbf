//! One node, as all decisions see it: policy, guard, budget, twin and the final writes. The host fills it in when an
//! object has changed; decisions are kept beside it in separate columns.

use crate::budget::{BudgetLimits, GrantReach, LimitPlace, NodePowerModel};
use crate::catalog::Catalog;
use crate::demand::DeviceWork;
use crate::density::{Density, Family};
use crate::hardware::ResolvedHardware;
use crate::intent::NodeCaps;
use crate::inventory::{self, HardwareFacts, Resolved};
use crate::power::estimate::NodeLoad;
use crate::power::{NoMeasurement, NodeReading, PowerMeter};
use crate::profile::Profile;
use crate::sleep::SleepCount;
use joulie_core::budget::demand::DemandReport;
use joulie_core::budget::{Grant, GrantReceipt};
use power_units::{Micros, Watts, WattsPerMinute};
use std::borrow::Cow;
use std::sync::Arc;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// The identifier of its Node object.
    pub uid: String,
    /// The boot that the kubelet runs in; empty if unknown.
    pub boot: String,
    /// `NODE_SELECTOR` matches it.
    pub selected: bool,
    /// It is reserved, so it is not planned.
    pub reserved: bool,
    /// It is cordoned.
    pub unschedulable: bool,
    /// It has the taint of a node without a confirmed cap.
    pub tainted: bool,
    /// Whether it can supply power profiles now.
    pub presence: Presence,
    /// How well its state is known.
    pub visibility: Visibility,
    /// Its labels.
    pub labels: Labels,
    /// Its place under the limits.
    pub limits: LimitPlace,
    /// Its hardware.
    pub machine: MachineFacts,
    /// Its published desired state.
    pub published: Published,
    /// How its agent has confirmed the published caps.
    pub confirmation: Confirmation,
    /// Its grant and receipt.
    pub granted: Granted,
    /// Its power.
    pub power: Power,
    /// What it counts because of its sleep.
    pub sleep: SleepCount,
    /// What its packages and GPUs will want at least, once the pods show that were bound to it a moment ago; `None` where
    /// no such pod is known.
    pub expected: Option<Watts>,
}

/// Whether a node can supply power profiles now, as Kubernetes sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Its Ready condition is true.
    Ready,
    /// It is not ready, but only for so short a time that it is expected back. After an outage of the API server all
    /// nodes are in this state and return one by one.
    Away,
    /// It is not ready and no longer expected back.
    Lost,
    /// There is no Node object, but some of Joulie's objects of it: the machine may still run with its agent.
    Gone,
}

/// How well a node's state is known. Unknown never counts as good: a node without clear visibility is never raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Its meter gives a value, or it has no meter that could fail; and all its objects can be read.
    Clear,
    /// Its meter is silent, or one of its objects cannot be read. It may be capped, and may keep its present caps.
    Blind,
    /// Its desired state exists but cannot be read: its content is unknown, so nothing is written to it.
    Unreadable,
}

/// How a node's agent has confirmed the caps of the present desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmation {
    /// It read them back.
    InForce,
    /// It has not confirmed them yet, or it failed and will try again.
    Awaited,
    /// It read back far less than was asked, and this is final: the owner's limit allows no more.
    Short,
    /// It restored the originals and does not follow the caps: it does not cap this node.
    Lifted,
    /// No cap can be in force: no agent has ever reported from the node, or the node has nothing to cap with.
    Unenforced,
}

/// A label that the operator sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Its text.
    pub text: Option<Arc<str>>,
    /// Another field manager owns it: it is not changed.
    pub theirs: bool,
}

/// The labels of a node that the planner uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The power profile.
    pub profile: Label,
    /// The draining mark.
    pub draining: Label,
    /// Its rack.
    pub rack: Option<Arc<str>>,
    /// Its cooling zone.
    pub zone: Option<Arc<str>>,
}

/// The hardware of a node, as far as its agent, its labels, its resources and the catalogue describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// Its devices.
    pub resolved: Resolved,
    /// Its compute density.
    pub density: Density,
    /// The family of interchangeable nodes.
    pub family: Family,
    /// Its power by kind of device.
    pub power_model: NodePowerModel,
    /// The logical processors that it offers to pods.
    pub processors: Option<u32>,
    /// An agent has reported from it.
    pub has_agent: bool,
    /// Its agent has found no power meter.
    pub has_no_meter: bool,
    /// The hardware figures that it reports but that are not accepted, in a sentence.
    pub implausible: Option<Arc<str>>,
}

/// The kind of object with the desired state that agents follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DesiredKind {
    /// NodePowerProfile, with a copy in the NodeTwin.
    #[default]
    Profile,
    /// NodeTwin.
    Twin,
}

/// A desired state: decided, or read from an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredState {
    /// The profile.
    pub profile: Profile,
    /// The caps.
    pub caps: NodeCaps,
    /// It is draining.
    pub draining: bool,
    /// The policy that decided, if any.
    pub policy: Option<Cow<'static, str>>,
}

/// The parts of a desired state that another field manager owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theirs {
    /// `spec.profile`
    pub profile: bool,
    /// Anything under `spec.cpu`.
    pub cpu: bool,
    /// Anything under `spec.gpu`.
    pub gpu: bool,
    /// `spec.policy`
    pub policy: bool,
    /// `spec.scheduling`
    pub scheduling: bool,
}

/// An object with a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Its content.
    pub desired: DesiredState,
    /// The parts that another field manager owns.
    pub theirs: Theirs,
    /// A person wrote all of it: no part of it may be changed or deleted.
    pub persons: bool,
}

/// The published desired state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The kind of object that its agent follows.
    pub source: DesiredKind,
    /// Its NodePowerProfile.
    pub profile: Option<Carried>,
    /// Its NodeTwin.
    pub twin: Option<Carried>,
    /// Its NodeTwin exists but cannot be read.
    pub twin_unread: bool,
}

/// A backup is assumed to be at most this many grants of one node old; at one grant a second that is a century.
const SERIALS_FORGOTTEN_MOST: u64 = 1 << 32;

/// A node's grant, and its receipt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The present grant.
    pub grant: Option<Grant>,
    /// The present grant releases the node.
    pub released: bool,
    /// The agent's receipt.
    pub signed: Option<Signed>,
    /// What the agent says that the node wants to draw; `None` while it does not know.
    pub demand: Option<DemandReport>,
    /// The grants that were sent to replace the present one and whose outcome is unknown.
    pub sent: Vec<Grant>,
    /// The version of the object.
    pub version: String,
    /// A grant exists but cannot be read.
    pub unread: bool,
}

/// An agent's receipt, and where the agent ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The receipt.
    pub receipt: GrantReceipt,
    /// Its boot.
    pub boot: String,
    /// The identifier of its Node object.
    pub node_uid: String,
}

/// The reading of a node's meter at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// The node's power.
    pub reading: NodeReading,
    /// The trend of its power.
    pub trend: Option<WattsPerMinute>,
    /// A meter is configured but nothing was ever received from it, not even a failure.
    pub awaited: bool,
    /// Another meter whose value is far from this one.
    pub apart: Option<PowerMeter>,
    /// What of it is drawn beside packages and GPUs, if the reading is that of a meter of the whole node.
    pub rest: Option<Watts>,
    /// The most that was drawn beside packages and GPUs since the host began, if it was ever measured.
    pub rest_most: Option<Watts>,
    /// The reading was passed on, and nobody knows when it was measured: what it shows raises no limit.
    pub undated: bool,
    /// How long ago at the most it was, when the reading was heard, that the node drew this.
    pub lag: Micros,
}

impl Power {
    /// No meter is configured.
    pub const UNMETERED: Self = Self {
        reading: NodeReading::Absent(NoMeasurement::NotConfigured),
        trend: None,
        awaited: false,
        apart: None,
        rest: None,
        rest_most: None,
        undated: false,
        lag: Micros::ZERO,
    };
}

impl Node {
    /// A node that is ready and eligible, of which nothing was published yet.
    #[must_use]
    pub fn ready(name: &str, machine: MachineFacts) -> Self {
        Self {
            name: name.into(),
            uid: format!("uid of {name}"),
            boot: "boot".to_owned(),
            selected: true,
            reserved: false,
            unschedulable: false,
            tainted: false,
            presence: Presence::Ready,
            visibility: Visibility::Clear,
            labels: Labels::default(),
            limits: LimitPlace::default(),
            machine,
            published: Published::default(),
            confirmation: Confirmation::Awaited,
            granted: Granted::default(),
            power: Power::UNMETERED,
            sleep: SleepCount::Awake,
            expected: None,
        }
    }

    /// Selected, neither reserved nor unschedulable, and it has a Node object.
    #[must_use]
    pub const fn is_eligible(&self) -> bool {
        self.selected && !self.reserved && !self.unschedulable && !matches!(self.presence, Presence::Gone)
    }

    /// A limit above it is paused, so that its profile stays. A node that nothing was published for yet is at full power, and
    /// gets its first desired state all the same.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.limits.paused && self.published.obeyed().is_some()
    }

    /// The profile on its label, if it is a known one.
    #[must_use]
    pub fn labelled(&self) -> Option<Profile> {
        self.labels.profile.text.as_deref().and_then(Profile::read)
    }

    /// Its label marks it as draining. An absent label is no mark.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.labels.draining.text.as_deref() == Some("true")
    }

    /// The node's receipt, if it is from the present boot and the present Node object. A node with an unknown boot
    /// could have started without any cap. For a removed node the last known boot and identifier count; if none was
    /// ever seen here, its receipt is accepted.
    #[must_use]
    pub fn receipt(&self) -> Option<GrantReceipt> {
        let Signed { receipt, boot, node_uid } = self.granted.signed.as_ref()?;
        let is_of_now = *boot == self.boot && *node_uid == self.uid;
        let was_never_seen = self.presence == Presence::Gone && self.boot.is_empty();
        (!boot.is_empty() && (is_of_now || was_never_seen)).then_some(*receipt)
    }

    /// Whether a limit above the node is in force.
    #[must_use]
    pub fn is_bound(&self, settings: &BudgetLimits) -> bool {
        !self.limits.observed && (settings.any() || self.limits.bound)
    }

    /// Whether it is under a limit in force and has not confirmed a grant since its boot. If its agent has nothing to cap with, there is
    /// nothing to wait for.
    #[must_use]
    pub fn awaits_receipt(&self, settings: &BudgetLimits) -> bool {
        let may_be_capped = !self.machine.has_agent || self.machine.power_model.is_cappable();
        self.is_bound(settings) && may_be_capped && self.receipt().is_none()
    }

    /// Whether nothing raises it before it has confirmed a grant. There is nothing to wait for where nobody will confirm one and the
    /// node counts with its maximum whatever its profile is: without an agent nobody caps it, and an agent on hardware that nobody
    /// knows gets no grant. An agent that gets one and does not confirm it is waited for: what its node is capped at is not known.
    #[must_use]
    pub fn is_held_for_receipt(&self, settings: &BudgetLimits) -> bool {
        let MachineFacts { has_agent, power_model, .. } = &self.machine;
        // An agent that is about to report for the first time has confirmed caps before.
        let is_uncapped =
            self.confirmation == Confirmation::Unenforced || self.published.caps() == NodeCaps::default();
        let gets_none = !power_model.is_known() && self.granted.grant.is_none();
        let nobody_confirms = if *has_agent { gets_none } else { is_uncapped };
        let counts = power_model.is_known() || settings.unknown_node.is_some();
        !(nobody_confirms && counts) && self.awaits_receipt(settings)
    }

    /// What its packages and GPUs want to draw, if that is known now: its agent says so in the present boot, and nothing
    /// makes it doubtful that the agent is there.
    #[must_use]
    pub fn demand(&self) -> Option<DemandReport> {
        let is_seen = self.presence == Presence::Ready && self.visibility == Visibility::Clear;
        self.granted.demand.filter(|_| is_seen && self.receipt().is_some())
    }

    /// These caps under what the node could be granted at most; where power does not follow demand, as the agent holds them
    /// under the present grant.
    #[must_use]
    pub fn under_grant(&self, caps: NodeCaps, reach: Option<GrantReach>) -> NodeCaps {
        let grant = self.granted.stands().filter(|_| !self.granted.released);
        let watts = grant.map(|grant| reach.map_or(grant.watts, |reach| reach.most.max(reach.entitled)));
        watts.map_or(caps, |watts| self.machine.power_model.under_grant(&caps, watts))
    }

    /// Its load from the work of its pods.
    #[must_use]
    pub fn load(&self, work: DeviceWork) -> Option<NodeLoad> {
        let ResolvedHardware { cpu, gpu } = &self.machine.resolved.hardware;
        let processors = self.machine.processors.or(cpu.total_cores);
        NodeLoad::of(work, processors, gpu.as_ref().map_or(0, |gpus| gpus.count))
    }
}

impl MachineFacts {
    /// The facts of a node. `was` are its former facts; `gpu_cap` says that a cap for a GPU is published; `can_cap`
    /// says whether its agent can cap the packages and the GPUs.
    #[must_use]
    pub fn of(
        facts: &HardwareFacts,
        was: Option<&Self>,
        gpu_cap: bool,
        can_cap: (bool, bool),
        catalog: &Catalog,
    ) -> Self {
        let remembered = was.and_then(|was| was.resolved.hardware.gpu.as_ref());
        let resolved = inventory::resolve(facts, remembered, gpu_cap, catalog);
        Self {
            density: Density::of(&resolved),
            family: Family::of(&resolved.hardware),
            power_model: NodePowerModel::of(&resolved.hardware, can_cap),
            resolved,
            processors: facts.capacity_cpus,
            has_agent: facts.reported.is_some(),
            has_no_meter: false,
            implausible: None,
        }
    }

    /// The facts of a node of which only the grant and the receipt are known: the machine still runs.
    #[must_use]
    pub fn lump(granted: &Granted, catalog: &Catalog) -> Self {
        Self::lump_of(granted, Watts::ZERO, catalog)
    }

    /// The same for a node that may draw up to `may_draw` whatever its grant: no receipt says that it holds it.
    #[must_use]
    pub fn lump_of(granted: &Granted, may_draw: Watts, catalog: &Catalog) -> Self {
        let unknown = Self::of(&HardwareFacts::default(), None, false, (false, false), catalog);
        Self { power_model: NodePowerModel::lump(granted.least(), granted.most().max(may_draw)), ..unknown }
    }
}

impl DesiredState {
    /// The content that an object will have after a write, where another field manager owns parts of it.
    #[must_use]
    pub fn over(&self, there: &Carried) -> Self {
        let Carried { desired, theirs, persons } = there;
        let Theirs { profile, cpu, gpu, policy, scheduling } = *theirs;
        let keeps = |theirs: bool| if theirs { desired } else { self };
        if *persons {
            return Self { draining: self.draining, ..desired.clone() };
        }
        Self {
            profile: keeps(profile).profile,
            caps: NodeCaps { cpu: keeps(cpu).caps.cpu, gpu: keeps(gpu).caps.gpu },
            draining: keeps(scheduling).draining,
            policy: keeps(policy).policy.clone(),
        }
    }

    /// Whether another one is the same, apart from differences too small to write. While a fallback policy replaces
    /// the configured one, a different policy name alone is not written.
    fn is_in(&self, there: &Self, with_draining: bool, stands_in: bool) -> bool {
        let Self { profile, caps, draining, policy } = self;
        *profile == there.profile
            && caps.same_as(&there.caps)
            && (!with_draining || *draining == there.draining)
            && (stands_in || *policy == there.policy)
    }
}

impl Theirs {
    /// Another field manager owns any part that a plan would write.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.profile || self.cpu || self.gpu || self.scheduling
    }
}

impl Published {
    /// The object that its agent follows.
    #[must_use]
    pub const fn obeyed(&self) -> Option<&Carried> {
        match self.source {
            DesiredKind::Profile => self.profile.as_ref(),
            DesiredKind::Twin => self.twin.as_ref(),
        }
    }

    /// The present caps; none if nothing is published.
    #[must_use]
    pub fn caps(&self) -> NodeCaps {
        self.obeyed().map_or_else(NodeCaps::default, |there| there.desired.caps)
    }

    /// Its twin says that it is draining.
    #[must_use]
    pub fn drains(&self) -> bool {
        self.twin.as_ref().is_some_and(|twin| twin.desired.draining)
    }

    /// The objects to write so that the desired state holds, as far as they may be changed; `None` if nothing differs.
    pub(crate) fn differs(&self, desired: &DesiredState, stands_in: bool) -> Option<Publish> {
        let obeyed = self.obeyed();
        let stands = obeyed.map_or_else(|| desired.clone(), |there| desired.over(there));
        let is_there = |there: &Carried| there.persons || stands.is_in(&there.desired, false, stands_in);
        let profile = self.source == DesiredKind::Profile && !obeyed.is_some_and(is_there);
        let mirrors = |there: &Carried| stands.over(there).is_in(&there.desired, true, stands_in);
        let twin = !self.twin_unread && !self.twin.as_ref().is_some_and(mirrors);
        (profile || twin).then_some(Publish { desired: stands, profile, twin })
    }
}

/// A desired state to write, and the objects to write it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The content to write.
    pub desired: DesiredState,
    /// To the NodePowerProfile.
    pub profile: bool,
    /// To the NodeTwin.
    pub twin: bool,
}

impl Granted {
    /// The present grant, less what the node has yielded of it, as far as that is known.
    #[must_use]
    pub fn stands(&self) -> Option<Grant> {
        let grant = self.grant?;
        Some(self.signed.as_ref().map_or(grant, |signed| left(grant, signed.receipt)))
    }

    /// The most that a node may draw of which only this is known: the machine still runs with its agent.
    #[must_use]
    pub fn most(&self) -> Watts {
        let receipt = self.signed.as_ref().map(|signed| signed.receipt);
        // The ceiling bounds what is not read back.
        let granted = self.grant.map_or(Watts::ZERO, |grant| match receipt {
            Some(receipt) if receipt.serial == grant.serial => left(grant, receipt).watts,
            Some(_) | None => grant.ceiling.max(grant.watts),
        });
        granted.max(receipt.map_or(Watts::ZERO, |receipt| receipt.holds))
    }

    /// The lowest grant that it can keep, by its receipt; without that it equals the most.
    fn least(&self) -> Watts {
        let floor = self.signed.as_ref().map(|signed| signed.receipt.floor);
        floor.filter(|&floor| floor > Watts::ZERO).map_or(self.most(), |floor| floor.min(self.most()))
    }

    /// The serial of the next grant. If the API server was restored to an older state, the node may have followed a
    /// later grant than the present one, and follows only later serials. A serial out of all proportion is ignored.
    #[must_use]
    pub fn next_serial(&self) -> u64 {
        let stands = self.grant.map_or(0, |grant| grant.serial);
        let followed = self.signed.as_ref().map_or(0, |signed| signed.receipt.serial);
        let is_near = followed.saturating_sub(stands) <= SERIALS_FORGOTTEN_MOST;
        stands.max(if is_near { followed } else { 0 }).saturating_add(1)
    }

    /// Whether the agent has confirmed the present grant.
    #[must_use]
    pub fn is_read_back(&self) -> bool {
        self.grant
            .zip(self.signed.as_ref())
            .is_some_and(|(grant, signed)| signed.receipt.serial == grant.serial)
    }
}

/// What is left of a grant after its receipt.
fn left(grant: Grant, receipt: GrantReceipt) -> Grant {
    let yields = receipt.yields.filter(|&left| receipt.serial == grant.serial && left >= Watts::ZERO);
    Grant { watts: yields.map_or(grant.watts, |left| left.min(grant.watts)), ..grant }
}

#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod tests;
