//! The downgrade guard: a node must not drop to eco while it runs workloads that require performance supply, and must
//! not offer performance before its caps are lifted.
//!
//! ```text
//! [*] --> ActivePerformance
//! ActivePerformance --> DrainingPerformance: defer
//! ActivePerformance --> ActiveEco: allow
//! DrainingPerformance --> DrainingPerformance: still blocked
//! DrainingPerformance --> ActiveEco: unblocked
//! DrainingPerformance --> ActivePerformance: re-plan perf
//! ActiveEco --> ActivePerformance: plan perf
//! ActiveEco --> DrainingPerformance: a performance pod appears
//! Unknown --> any of them: the first plan for a node without a known label
//! ```
//!
//! - *defer*: policy plans eco and the node still has performance-constrained pods (count > 0): desired
//!   profile eco, draining. *Allow* and *unblocked*: it has none (count == 0).
//! - *plan perf*, *re-plan perf*: the caps of performance are written first; the state follows when they are confirmed.
//!
//! When the pods are unknown, nothing that depends on them changes: the previous state is kept. The soft guard
//! publishes eco with its caps and the draining mark at once. The hard guard keeps the caps of performance until the
//! node has drained and its eco label has been seen, so that no performance pod can still be bound to it; but it never
//! lifts caps that are already those of eco.
//!
//! A node without clear visibility is never raised: while performance is planned for it, it is treated as planned for
//! eco. If it has the caps of performance it keeps them, because removing them would have no better reason.

use crate::node::Visibility;
use crate::profile::Profile;
use joulie_core::placement::class::SchedulableClass;

/// A node's state between its profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionState {
    /// Full power; accepts performance pods.
    ActivePerformance,
    /// Planned as eco while performance pods still run there.
    DrainingPerformance {
        /// How many of them there were at the last count.
        blocking: u32,
        /// Whose caps the node has in this state.
        caps: CapsOf,
    },
    /// Capped.
    ActiveEco,
    /// The node has no known profile.
    Unknown {
        /// Whose caps the node has in this state.
        caps: CapsOf,
    },
}

/// Whose caps a desired state carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsOf {
    /// Those of a profile, as configured now.
    Profile(Profile),
    /// The published caps, because they match neither profile: they were made from another configuration.
    Published,
}

impl CapsOf {
    const PERFORMANCE: Self = Self::Profile(Profile::Performance);
    const ECO: Self = Self::Profile(Profile::Eco);
}

/// The name of a state in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateName {
    /// Full power.
    ActivePerformance,
    /// Changing to eco.
    DrainingPerformance,
    /// Capped.
    ActiveEco,
    /// No known profile.
    Unknown,
}

impl StateName {
    /// The text in metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ActivePerformance => "ActivePerformance",
            Self::DrainingPerformance => "DrainingPerformance",
            Self::ActiveEco => "ActiveEco",
            Self::Unknown => "Unknown",
        }
    }
}

impl TransitionState {
    /// The state that follows from a node's label and draining mark; `caps` are those of its desired state. Under the
    /// hard guard an eco label without the caps of eco is a started downgrade whose pods were not counted yet.
    #[must_use]
    pub const fn observed(profile: Option<Profile>, draining: bool, caps: CapsOf, mode: GuardMode) -> Self {
        match (profile, draining, caps, mode) {
            (_, true, _, _)
            | (
                Some(Profile::Eco),
                false,
                CapsOf::Profile(Profile::Performance) | CapsOf::Published,
                GuardMode::Hard,
            ) => Self::DrainingPerformance { blocking: 0, caps },
            (Some(Profile::Performance), false, _, _) => Self::ActivePerformance,
            (Some(Profile::Eco), false, CapsOf::Profile(Profile::Eco), GuardMode::Hard)
            | (Some(Profile::Eco), false, _, GuardMode::Soft) => Self::ActiveEco,
            (None, false, _, _) => Self::Unknown { caps },
        }
    }

    /// The state without its data.
    #[must_use]
    pub const fn name(self) -> StateName {
        match self {
            Self::ActivePerformance => StateName::ActivePerformance,
            Self::DrainingPerformance { .. } => StateName::DrainingPerformance,
            Self::ActiveEco => StateName::ActiveEco,
            Self::Unknown { .. } => StateName::Unknown,
        }
    }

    /// The class that the node offers to pods.
    #[must_use]
    pub const fn class(self) -> SchedulableClass {
        match self {
            Self::ActivePerformance => SchedulableClass::Performance,
            Self::DrainingPerformance { .. } => SchedulableClass::Draining,
            Self::ActiveEco => SchedulableClass::Eco,
            Self::Unknown { .. } => SchedulableClass::Unknown,
        }
    }
}

/// How strictly a downgrade is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    /// Eco label, eco caps and draining mark at once.
    Soft,
    /// Eco label and draining mark at once, eco caps when drained.
    Hard,
}

/// The guard's input for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardFacts {
    /// The profile that the policy plans.
    pub planned: Profile,
    /// Performance pods on the node that have neither ended nor are being deleted; `None` when the pods are unknown.
    pub blocking: Option<u32>,
    /// The caps of performance are confirmed, or no agent exists that could have capped anything; and under limits, what
    /// the node is entitled to as a performance node is kept by all of them, whatever it holds now.
    pub performance_caps_in_force: bool,
    /// The profile on the node's label.
    pub label: Option<Profile>,
    /// How well the node's state is known.
    pub visibility: Visibility,
}

/// The guard's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardDecision {
    /// The new state.
    pub state: TransitionState,
    /// What to publish; `None` when too little is known to publish anything.
    pub publish: Option<Publication>,
    /// Why the plan is not carried out yet, if so.
    pub held: Option<HoldReason>,
    /// The change of state, if both states are known.
    pub applied: Option<(StateName, StateName)>,
    /// The change that starts to be deferred.
    pub deferred: Option<(StateName, StateName)>,
}

/// The content for labels and objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The desired profile.
    pub profile: Profile,
    /// Whose caps the desired state carries.
    pub caps: CapsOf,
    /// The profile label; `None` leaves it unchanged.
    pub label: Option<Profile>,
    /// The draining mark.
    pub draining: bool,
}

/// Why a plan is not carried out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// The pods are unknown, so performance pods cannot be excluded.
    PodsUnknown,
    /// Performance pods still run on the node, or could still be bound to it.
    Draining,
    /// The caps of performance are not confirmed.
    CapsUnconfirmed,
    /// The node became a performance node too recently.
    Dwell,
    /// The node's state is not known well enough to raise it.
    Blind,
    /// A limit is above the node, and its agent has not confirmed a grant since the node has booted.
    NoReceipt,
    /// The node's desired state cannot be read.
    Unreadable,
    /// A limit above the node is paused.
    Paused,
}

/// Whether full power would be more than the node has now.
const fn is_raise(state: TransitionState) -> bool {
    match state {
        TransitionState::ActivePerformance | TransitionState::Unknown { caps: CapsOf::PERFORMANCE } => false,
        TransitionState::DrainingPerformance { .. }
        | TransitionState::ActiveEco
        | TransitionState::Unknown { caps: CapsOf::ECO | CapsOf::Published } => true,
    }
}

/// The decision for a node whose desired state cannot be read: nothing is published, and no profile is claimed for it.
#[must_use]
pub const fn unreadable() -> GuardDecision {
    GuardDecision {
        state: TransitionState::Unknown { caps: CapsOf::Published },
        publish: None,
        held: Some(HoldReason::Unreadable),
        applied: None,
        deferred: None,
    }
}

/// The decision for a node under a paused limit: its state and all that was published for it stay as they are.
#[must_use]
pub const fn paused(state: TransitionState) -> GuardDecision {
    GuardDecision { state, publish: None, held: Some(HoldReason::Paused), applied: None, deferred: None }
}

/// Advances the state of a node.
#[must_use]
pub fn step(state: TransitionState, mode: GuardMode, facts: &GuardFacts) -> GuardDecision {
    let may_rise = match facts.visibility {
        Visibility::Clear => true,
        Visibility::Blind => false,
        Visibility::Unreadable => return unreadable(),
    };
    if may_rise || facts.planned == Profile::Eco || !is_raise(state) {
        return follow(state, mode, facts);
    }
    let capped = follow(state, mode, &GuardFacts { planned: Profile::Eco, ..*facts });
    GuardDecision { held: capped.held.or(Some(HoldReason::Blind)), ..capped }
}

/// Advances the state of a node towards its planned profile.
fn follow(state: TransitionState, mode: GuardMode, facts: &GuardFacts) -> GuardDecision {
    let next = match (state, facts.planned) {
        (TransitionState::ActivePerformance, Profile::Performance) => TransitionState::ActivePerformance,
        (
            TransitionState::DrainingPerformance { .. }
            | TransitionState::ActiveEco
            | TransitionState::Unknown { .. },
            Profile::Performance,
        ) => {
            if facts.performance_caps_in_force {
                TransitionState::ActivePerformance
            } else {
                state
            }
        }
        (
            TransitionState::ActivePerformance
            | TransitionState::DrainingPerformance { .. }
            | TransitionState::ActiveEco
            | TransitionState::Unknown { .. },
            Profile::Eco,
        ) => match facts.blocking {
            None => state,
            Some(0) if may_cap(state, mode, facts.label) => TransitionState::ActiveEco,
            Some(blocking) => {
                TransitionState::DrainingPerformance { blocking, caps: draining_caps(state, mode) }
            }
        },
    };
    let (from, to) = (state.name(), next.name());
    let known = |name| name != StateName::Unknown;
    let begins =
        to == StateName::DrainingPerformance && from != to && facts.blocking.is_some_and(|pods| pods > 0);
    GuardDecision {
        state: next,
        publish: publication(next, facts.planned),
        held: held(next, facts),
        applied: (from != to && known(from) && known(to)).then_some((from, to)),
        deferred: (begins && from == StateName::ActivePerformance).then_some((from, StateName::ActiveEco)),
    }
}

/// Whether a node without performance pods may get the caps of eco now.
fn may_cap(state: TransitionState, mode: GuardMode, label: Option<Profile>) -> bool {
    match (mode, state) {
        (GuardMode::Soft, _) | (GuardMode::Hard, TransitionState::ActiveEco) => true,
        (
            GuardMode::Hard,
            TransitionState::ActivePerformance
            | TransitionState::DrainingPerformance { .. }
            | TransitionState::Unknown { .. },
        ) => label == Some(Profile::Eco),
    }
}

/// Whose caps a node keeps while it drains.
fn draining_caps(state: TransitionState, mode: GuardMode) -> CapsOf {
    match (mode, state) {
        (GuardMode::Soft, _) | (GuardMode::Hard, TransitionState::ActiveEco) => CapsOf::ECO,
        (
            GuardMode::Hard,
            TransitionState::DrainingPerformance { caps, .. } | TransitionState::Unknown { caps },
        ) => caps,
        (GuardMode::Hard, TransitionState::ActivePerformance) => CapsOf::PERFORMANCE,
    }
}

fn publication(state: TransitionState, planned: Profile) -> Option<Publication> {
    let (label, draining, caps) = match state {
        TransitionState::ActivePerformance => (Some(Profile::Performance), false, CapsOf::PERFORMANCE),
        TransitionState::DrainingPerformance { caps, .. } => (Some(Profile::Eco), true, caps),
        TransitionState::ActiveEco => (Some(Profile::Eco), false, CapsOf::ECO),
        TransitionState::Unknown { caps } => (None, false, caps),
    };
    match (planned, state) {
        // Caps first, then the label: until the node is in performance it keeps its label and its mark.
        (Profile::Performance, _) => {
            Some(Publication { profile: Profile::Performance, caps: CapsOf::PERFORMANCE, label, draining })
        }
        (Profile::Eco, TransitionState::ActivePerformance) => {
            Some(Publication { profile: Profile::Performance, caps, label, draining })
        }
        (Profile::Eco, TransitionState::DrainingPerformance { .. } | TransitionState::ActiveEco) => {
            Some(Publication { profile: Profile::Eco, caps, label, draining })
        }
        (Profile::Eco, TransitionState::Unknown { .. }) => None,
    }
}

fn held(state: TransitionState, facts: &GuardFacts) -> Option<HoldReason> {
    match (facts.planned, state) {
        (Profile::Performance, TransitionState::ActivePerformance) => None,
        (
            Profile::Performance,
            TransitionState::DrainingPerformance { .. }
            | TransitionState::ActiveEco
            | TransitionState::Unknown { .. },
        ) => Some(HoldReason::CapsUnconfirmed),
        (Profile::Eco, _) if facts.blocking.is_none() => Some(HoldReason::PodsUnknown),
        (Profile::Eco, TransitionState::DrainingPerformance { .. }) => Some(HoldReason::Draining),
        (
            Profile::Eco,
            TransitionState::ActivePerformance | TransitionState::ActiveEco | TransitionState::Unknown { .. },
        ) => None,
    }
}

#[cfg(test)]
mod tests;
