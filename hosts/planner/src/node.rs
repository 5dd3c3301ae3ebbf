//! One node, as everything that decides sees it: policy, guard, budget, twin and what is written in the end. Whoever watches
//! the objects fills it once, where an object has changed; what is decided stands beside it, in columns of its own.

use crate::budget::NodePowerModel;
use crate::catalog::Catalog;
use crate::demand::Asked;
use crate::density::{Density, Family};
use crate::hardware::ResolvedHardware;
use crate::intent::NodeCaps;
use crate::inventory::{self, HardwareFacts, Resolved};
use crate::power::estimate::NodeLoad;
use crate::power::{NoMeasurement, NodeReading};
use crate::profile::Profile;
use joulie_core::budget::{Grant, GrantReceipt};
use power_units::{Watts, WattsPerMinute};
use std::borrow::Cow;
use std::sync::Arc;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// The identifier of its Node object.
    pub uid: String,
    /// The boot that the kubelet runs in; empty where it does not say.
    pub boot: String,
    /// `NODE_SELECTOR` matches it.
    pub selected: bool,
    /// It is reserved, so not ours to plan.
    pub reserved: bool,
    /// It is cordoned.
    pub unschedulable: bool,
    /// It carries the taint of a node that nobody is known to cap.
    pub tainted: bool,
    /// Whether it can supply anything now.
    pub presence: Presence,
    /// How well it is seen.
    pub visibility: Visibility,
    /// What it is labelled with.
    pub labels: Labels,
    /// What it is made of.
    pub machine: MachineFacts,
    /// Its desired state as it is published.
    pub published: Published,
    /// What its agent says about the caps that are published, as they stand.
    pub confirmation: Confirmation,
    /// What the budget has told it.
    pub granted: Granted,
    /// What it draws.
    pub power: Power,
}

/// Whether a node can supply anything now, as Kubernetes sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Its Ready condition is true.
    Ready,
    /// It is not ready, and has not been for so short a time that it is expected back. After an outage of the API server
    /// all nodes are so, and come back one by one.
    Away,
    /// It is not ready, and nobody waits for it any more.
    Lost,
    /// There is no Node object, and some of Joulie's that are of it: the machine may run on under its agent.
    Gone,
}

/// How well a node is seen. Unknown is never good news: a node that is not seen clearly is never raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Its meter says what it draws, or it has none that could fail; and everything that is said of it can be read.
    Clear,
    /// Its meter is silent, or something that is said of it cannot be read. It may be capped, and it may keep what it has.
    Blind,
    /// Its desired state is there and cannot be read: nobody knows what it was told, so nothing is told to it.
    Unreadable,
}

/// What a node's agent says about the caps in its published desired state, as that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmation {
    /// It read them back.
    InForce,
    /// It has not said so yet, or it failed and will try again.
    Awaited,
    /// It read back far less than was asked, and that is all there will be: its owner's limit allows no more.
    Short,
    /// It put the originals back and follows none of this: the node is not one of those that it caps.
    Lifted,
    /// No cap can be in force: no agent has ever reported from the node, or it has nothing to cap with.
    Unenforced,
}

/// A label that the operator sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Its text.
    pub text: Option<Arc<str>>,
    /// Somebody else owns it: it stays as it is.
    pub theirs: bool,
}

/// The labels of a node that matter here.
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

/// What a node is made of, as far as its agent, its labels, its resources and the catalogue tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// Its devices.
    pub resolved: Resolved,
    /// What it holds of compute.
    pub density: Density,
    /// What it is exchangeable with.
    pub family: Family,
    /// What its watts are made of.
    pub power_model: NodePowerModel,
    /// Logical processors that it offers to pods.
    pub processors: Option<u32>,
    /// An agent has reported from it.
    pub has_agent: bool,
    /// Its agent has found nothing that meters it.
    pub has_no_meter: bool,
    /// What it says of its hardware and is not believed, in a sentence.
    pub implausible: Option<Arc<str>>,
}

/// Which kind carries the desired state that agents obey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DesiredKind {
    /// NodePowerProfile, with a mirror of it in the NodeTwin.
    #[default]
    Profile,
    /// NodeTwin.
    Twin,
}

/// A desired state: what is decided, and what an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredState {
    /// The profile.
    pub profile: Profile,
    /// The caps.
    pub caps: NodeCaps,
    /// It drains.
    pub draining: bool,
    /// The policy that decided, if one did.
    pub policy: Option<Cow<'static, str>>,
}

/// Which parts of a desired state are somebody else's.
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

/// An object that carries a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// What it says.
    pub desired: DesiredState,
    /// Which parts are somebody else's.
    pub theirs: Theirs,
    /// A person wrote all of it: nothing in it is ours to change or to take back.
    pub persons: bool,
}

/// What is published of a node's desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Which of both its agent obeys.
    pub source: DesiredKind,
    /// Its NodePowerProfile.
    pub profile: Option<Carried>,
    /// Its NodeTwin.
    pub twin: Option<Carried>,
    /// Its NodeTwin is there and cannot be read.
    pub twin_unread: bool,
}

/// A backup is not older than this many grants of one node, which are a century of one a second.
const SERIALS_FORGOTTEN_MOST: u64 = 1 << 32;

/// What the budget has told a node, and what it has read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The grant that stands.
    pub grant: Option<Grant>,
    /// That grant says that the node is released.
    pub released: bool,
    /// What its agent says of it.
    pub signed: Option<Signed>,
    /// The grants that were sent over the one that stands, of which nobody knows what became of them.
    pub sent: Vec<Grant>,
    /// Which state of the object that is.
    pub version: String,
    /// There is one that cannot be read.
    pub unread: bool,
}

/// What an agent has read back, and where it ran when it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// What it read back.
    pub receipt: GrantReceipt,
    /// Its boot.
    pub boot: String,
    /// The identifier of its Node object.
    pub node_uid: String,
}

/// What a node's meter says at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// What the node draws.
    pub reading: NodeReading,
    /// Where that is going.
    pub trend: Option<WattsPerMinute>,
    /// A meter is to say what the node draws and nothing was ever heard of it, not even that it fails.
    pub awaited: bool,
}

impl Power {
    /// Nobody asked for a meter.
    pub const UNMETERED: Self =
        Self { reading: NodeReading::Absent(NoMeasurement::NotConfigured), trend: None, awaited: false };
}

impl Node {
    /// Selected, neither reserved nor unschedulable, and there.
    #[must_use]
    pub const fn is_eligible(&self) -> bool {
        self.selected && !self.reserved && !self.unschedulable && !matches!(self.presence, Presence::Gone)
    }

    /// The profile on its label, if it is one.
    #[must_use]
    pub fn labelled(&self) -> Option<Profile> {
        self.labels.profile.text.as_deref().and_then(Profile::read)
    }

    /// Its label says that it drains. An absent mark is no mark.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.labels.draining.text.as_deref() == Some("true")
    }

    /// What the node read back of its grant, where it did so in the boot and for the Node object that are there now. A node
    /// that does not say in which boot it is could have come up without any cap. Of one that is gone the boot and the
    /// identifier are those that it had last; where nobody here ever saw them, nobody else says anything.
    #[must_use]
    pub fn receipt(&self) -> Option<GrantReceipt> {
        let Signed { receipt, boot, node_uid } = self.granted.signed.as_ref()?;
        let is_of_now = *boot == self.boot && *node_uid == self.uid;
        let was_never_seen = self.presence == Presence::Gone && self.boot.is_empty();
        (!boot.is_empty() && (is_of_now || was_never_seen)).then_some(*receipt)
    }

    /// These caps as the agent holds them under the grant that stands.
    #[must_use]
    pub fn under_grant(&self, caps: NodeCaps) -> NodeCaps {
        let grant = self.granted.grant.filter(|_| !self.granted.released);
        grant.map_or(caps, |grant| self.machine.power_model.under_grant(&caps, grant.watts))
    }

    /// How busy it is while pods ask for so much of it.
    #[must_use]
    pub fn load(&self, asked: Asked) -> Option<NodeLoad> {
        let ResolvedHardware { cpu, gpu } = &self.machine.resolved.hardware;
        let processors = self.machine.processors.or(cpu.total_cores);
        NodeLoad::asked(asked, processors, gpu.as_ref().map_or(0, |gpus| gpus.count))
    }
}

impl MachineFacts {
    /// Of a node of which this is said. `was` is what it was before, and `gpu_cap` tells that a cap for a GPU is published;
    /// its agent can cap the packages, the GPUs, or both, as far as it says.
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

    /// Of a node of which nobody knows more than what it was granted and what its agent says of that: the machine runs on.
    #[must_use]
    pub fn lump(granted: &Granted, catalog: &Catalog) -> Self {
        Self::lump_of(granted, Watts::ZERO, catalog)
    }

    /// The same of one that may draw so much whatever it was granted, because it has come up anew.
    #[must_use]
    pub fn lump_of(granted: &Granted, may_draw: Watts, catalog: &Catalog) -> Self {
        let unknown = Self::of(&HardwareFacts::default(), None, false, (false, false), catalog);
        Self { power_model: NodePowerModel::lump(granted.least(), granted.most().max(may_draw)), ..unknown }
    }
}

impl DesiredState {
    /// What will stand in an object of which parts are somebody else's.
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

    /// Whether another one says the same, apart from differences that are worth no write. While another policy stands in
    /// for the configured one its name alone is worth none.
    fn is_in(&self, there: &Self, with_draining: bool, stands_in: bool) -> bool {
        let Self { profile, caps, draining, policy } = self;
        *profile == there.profile
            && caps.same_as(&there.caps)
            && (!with_draining || *draining == there.draining)
            && (stands_in || *policy == there.policy)
    }
}

impl Theirs {
    /// Anything that a plan would write is somebody else's.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.profile || self.cpu || self.gpu || self.scheduling
    }
}

impl Published {
    /// What its agent obeys.
    #[must_use]
    pub const fn obeyed(&self) -> Option<&Carried> {
        match self.source {
            DesiredKind::Profile => self.profile.as_ref(),
            DesiredKind::Twin => self.twin.as_ref(),
        }
    }

    /// The caps that stand; none where nothing is published.
    #[must_use]
    pub fn caps(&self) -> NodeCaps {
        self.obeyed().map_or_else(NodeCaps::default, |there| there.desired.caps)
    }

    /// Its twin says that it drains.
    #[must_use]
    pub fn drains(&self) -> bool {
        self.twin.as_ref().is_some_and(|twin| twin.desired.draining)
    }

    /// Which objects are to be written so that this stands, as far as it is ours to say; nothing where it stands.
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

/// A desired state that is to be written, and to which objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// What is to stand there.
    pub desired: DesiredState,
    /// To the NodePowerProfile.
    pub profile: bool,
    /// To the NodeTwin.
    pub twin: bool,
}

impl Granted {
    /// What a node of which nobody knows more than this may draw: the machine runs on under its agent.
    #[must_use]
    pub fn most(&self) -> Watts {
        let holds = self.signed.as_ref().map(|signed| signed.receipt.holds);
        let told = self.grant.map_or(Watts::ZERO, |grant| grant.ceiling.max(grant.watts));
        told.max(holds.unwrap_or(Watts::ZERO))
    }

    /// The least that it can be held to, by its agent's word; where that says nothing, there is no less than the most.
    fn least(&self) -> Watts {
        let floor = self.signed.as_ref().map(|signed| signed.receipt.floor);
        floor.filter(|&floor| floor > Watts::ZERO).map_or(self.most(), |floor| floor.min(self.most()))
    }

    /// The serial of the next grant. A node may have followed a later one than stands, where the API server was brought back
    /// to an older state, and follows none that is not later still. What is out of all proportion is not believed.
    #[must_use]
    pub fn next_serial(&self) -> u64 {
        let stands = self.grant.map_or(0, |grant| grant.serial);
        let followed = self.signed.as_ref().map_or(0, |signed| signed.receipt.serial);
        let is_near = followed.saturating_sub(stands) <= SERIALS_FORGOTTEN_MOST;
        stands.max(if is_near { followed } else { 0 }).saturating_add(1)
    }

    /// Whether the agent has read back the grant that stands.
    #[must_use]
    pub fn is_read_back(&self) -> bool {
        self.grant
            .zip(self.signed.as_ref())
            .is_some_and(|(grant, signed)| signed.receipt.serial == grant.serial)
    }
}

#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod tests;
