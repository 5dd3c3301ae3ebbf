//! The downgrade guard: a node must not drop to eco while it still runs workloads that require performance supply, and
//! must not offer performance before its caps are lifted.
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
//! Unknown --> any of them: the first plan for a node whose label says nothing
//! ```
//!
//! - *defer*: policy plans eco and the node still has performance-constrained pods (count > 0): desired
//!   profile eco, draining. *Allow* and *unblocked*: it has none (count == 0).
//! - *plan perf*, *re-plan perf*: the caps of performance are written first; the state follows when they are confirmed.
//!
//! When the pods are not known nothing that depends on them changes: the previous state is kept. The soft guard
//! publishes eco with its caps at once and draining beside it. The hard guard keeps the caps of performance until the
//! node has drained, and until its eco label has been seen, so that no performance pod can still be on its way; but it
//! never lifts caps that are already those of eco.
//!
//! A node that is not seen clearly is never raised: while performance is planned for it, it is treated as one that is
//! planned as eco. One that has the caps of performance keeps them, for taking them away would be no better founded.

use crate::node::Visibility;
use crate::profile::Profile;
use joulie_core::placement::class::SchedulableClass;

/// Where a node is between its profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionState {
    /// Full power, and performance pods are welcome.
    ActivePerformance,
    /// Planned as eco while performance pods still run there.
    DrainingPerformance {
        /// How many of them, when last counted.
        blocking: u32,
        /// Whose caps the node has meanwhile.
        caps: CapsOf,
    },
    /// Capped.
    ActiveEco,
    /// The node carries no profile that we know.
    Unknown {
        /// Whose caps it has meanwhile.
        caps: CapsOf,
    },
}

/// Whose caps a desired state carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsOf {
    /// Those of a profile, as they are configured now.
    Profile(Profile),
    /// Those that are published, because they are neither profile's: the configuration was another one then.
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
    /// On its way to eco.
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
    /// The state that a node's label and draining mark tell of; `caps` are those that its desired state carries. Under
    /// the hard guard an eco label without the caps of eco is a downgrade that was begun: its pods were not counted yet.
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

    /// What the node offers to pods.
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
    /// Eco label, eco caps and draining at once.
    Soft,
    /// Eco label and draining at once, eco caps when drained.
    Hard,
}

/// All that the guard may know about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardFacts {
    /// What policy plans.
    pub planned: Profile,
    /// Performance pods on the node that are neither done nor leaving, unless the pods are not known.
    pub blocking: Option<u32>,
    /// The caps of performance are confirmed, or there is nobody who could have capped anything.
    pub performance_caps_in_force: bool,
    /// The profile on the node's label.
    pub label: Option<Profile>,
    /// How well the node is seen.
    pub visibility: Visibility,
}

/// What the guard decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardDecision {
    /// The state from here on.
    pub state: TransitionState,
    /// What is to be published, unless nothing is known well enough to publish anything.
    pub publish: Option<Publication>,
    /// Why the plan is not carried out yet, if it is not.
    pub held: Option<HoldReason>,
    /// The change of state, where both states are known ones.
    pub applied: Option<(StateName, StateName)>,
    /// The change that begins to be deferred.
    pub deferred: Option<(StateName, StateName)>,
}

/// What labels and objects are to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The desired profile.
    pub profile: Profile,
    /// Whose caps the desired state carries.
    pub caps: CapsOf,
    /// The profile label; nothing leaves it as it is.
    pub label: Option<Profile>,
    /// The draining mark.
    pub draining: bool,
}

/// Why a plan is not carried out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// The pods are not known, so that none can be excluded.
    PodsUnknown,
    /// Performance pods still run on the node, or could still be on their way.
    Draining,
    /// The caps of performance are not confirmed.
    CapsUnconfirmed,
    /// The node became a performance node too short a time ago.
    Dwell,
    /// The node is not seen clearly enough to be raised.
    Blind,
    /// What the node was told cannot be read.
    Unreadable,
}

/// Whether full power would be more than the node has.
const fn is_raise(state: TransitionState) -> bool {
    match state {
        TransitionState::ActivePerformance | TransitionState::Unknown { caps: CapsOf::PERFORMANCE } => false,
        TransitionState::DrainingPerformance { .. }
        | TransitionState::ActiveEco
        | TransitionState::Unknown { caps: CapsOf::ECO | CapsOf::Published } => true,
    }
}

/// A node whose desired state cannot be read: nothing is published, and nothing is said of it that it does not say.
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

/// Moves a node on.
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

/// Moves a node on towards what is planned.
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

/// Whether a node without performance pods may have the caps of eco now.
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
        // Caps first, then the label: what is not performance yet keeps its label and its mark.
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
