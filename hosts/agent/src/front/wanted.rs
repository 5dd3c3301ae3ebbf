//! Derives what is wanted of a machine from the objects of its node: a pure rule.
//!
//! ```text
//!  not synced, no Node object, malformed and no good one known ──▶ Unknown   everything stays as it is
//!  synced, and no object for the node ───────────────────────────▶ Nothing   the originals come back
//!  the node is not selected (any more) ──────────────────────────▶ Nothing
//!  an object that can be read ───────────────────────────────────▶ Goal
//!  an object that cannot be read, after one that could ──────────▶ the Goal of before, marked
//! ```
//!
//! An object is found by its `spec.nodeName`, never by its name. If a node has several, the first by name counts, as it
//! does for the operator, and the others are listed.

use super::inputs::Inputs;
use joulie_core::node::cap::{CapIntent, DesiredCap};
use kube::core::{Selector, SelectorExt};
use node_kit::Desire;

/// What is wanted of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It is not known what is wanted.
    Unknown(Unknown),
    /// It is known that nothing is wanted.
    Nothing(Nothing),
    /// A desired state.
    Goal(Goal),
}

/// Why it is not known what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Not everything has been read yet.
    NotSynced,
    /// There is no Node object of this name.
    NoNode,
    /// The object cannot be read, and no earlier readable version of it is known.
    Malformed {
        /// The object.
        object: Subject,
        /// The reason.
        why: String,
    },
}

/// Why nothing is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// No object carries a desired state for the node.
    NoObject,
    /// The node is not managed.
    Deselected,
}

/// The identity of an object, for reports about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
}

/// A desired state and the object that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) object: Subject,
    pub(crate) cpu: CapIntent,
    pub(crate) gpu: CapIntent,
    pub(crate) policy: Option<String>,
    /// Why the present version of the object cannot be read. The caps here are those of its last readable version.
    pub(crate) malformed: Option<String>,
    /// Other objects for the same node.
    pub(crate) rivals: Vec<String>,
}

impl Wanted {
    /// What to desire of the machine. `cpu` and `gpu` say whether the configuration allows that part to be controlled.
    pub(crate) const fn desire(&self, cpu: bool, gpu: bool) -> Desire {
        let all = match self {
            Self::Unknown(_) => Desire::UNKNOWN,
            Self::Nothing(_) => Desire::GONE,
            Self::Goal(goal) => {
                Desire { cpu: DesiredCap::Cap(goal.cpu), gpu: DesiredCap::Cap(goal.gpu), ..Desire::UNKNOWN }
            }
        };
        Desire {
            cpu: if cpu { all.cpu } else { DesiredCap::Unknown },
            gpu: if gpu { all.gpu } else { DesiredCap::Unknown },
            ..Desire::UNKNOWN
        }
    }

    pub(crate) const fn goal(&self) -> Option<&Goal> {
        match self {
            Self::Goal(goal) => Some(goal),
            Self::Unknown(_) | Self::Nothing(_) => None,
        }
    }
}

/// What is wanted by these objects; `before` is what was wanted until now.
pub(crate) fn wanted(inputs: &Inputs, selector: &Selector, before: &Wanted) -> Wanted {
    if !inputs.synced {
        return before.clone();
    }
    let Some(node) = &inputs.node else { return Wanted::Unknown(Unknown::NoNode) };
    if !selector.matches(&node.labels) {
        return Wanted::Nothing(Nothing::Deselected);
    }
    let Some((name, row)) = inputs.goals.first() else { return Wanted::Nothing(Nothing::NoObject) };
    let object = Subject { name: name.clone(), uid: row.uid().to_owned(), generation: row.generation() };
    let rivals: Vec<String> = inputs.goals.iter().skip(1).map(|(name, _)| name.clone()).collect();
    match row.desired() {
        Ok(desired) => Wanted::Goal(Goal {
            object,
            cpu: desired.cpu,
            gpu: desired.gpu,
            policy: desired.policy.clone(),
            malformed: None,
            rivals,
        }),
        Err(why) => match before.goal().filter(|goal| goal.object.uid == object.uid) {
            Some(good) => Wanted::Goal(Goal { object, malformed: Some(why.clone()), rivals, ..good.clone() }),
            None => Wanted::Unknown(Unknown::Malformed { object, why: why.clone() }),
        },
    }
}

#[cfg(test)]
mod tests;
