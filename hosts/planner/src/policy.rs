//! Policies: how many nodes run at full power, and which.
//!
//! A policy decides the *count* of performance nodes ("HP count"). The nodes are then chosen by the given density-aware
//! order: first one node of each hardware family, then by density. The remaining nodes are eco. The policies do not
//! know the nodes' present state; holding a node back is the guard's task.

mod queue_aware;
mod rule_swap;
mod static_partition;

pub use queue_aware::QueueAware;
pub use rule_swap::RuleSwap;
pub use static_partition::StaticPartition;

use crate::profile::Profile;
use power_units::{Micros, Ratio};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// The cluster's policy and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementPolicy {
    /// A fixed split.
    StaticPartition(StaticPartition),
    /// A split that follows the queue pressure.
    QueueAware(QueueAware),
    /// A split that changes with the clock, for debugging.
    RuleSwap(RuleSwap),
}

/// The policy that a configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyType {
    /// `static_partition`, the default.
    StaticPartition,
    /// `queue_aware_v1`
    QueueAware,
    /// `rule_swap_v1`
    RuleSwap,
}

impl PolicyType {
    /// Reads `POLICY_TYPE`, and returns whether the text was known: an unknown policy becomes the default and must be
    /// reported.
    #[must_use]
    pub fn read(text: &str) -> (Self, bool) {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "static_partition" => (Self::StaticPartition, true),
            "queue_aware_v1" => (Self::QueueAware, true),
            "rule_swap_v1" => (Self::RuleSwap, true),
            _ => (Self::StaticPartition, false),
        }
    }
}

/// The name of a policy. Those that exist are one text for all nodes, so that comparing them reads nothing of a node.
#[must_use]
pub fn policy_name(name: String) -> Cow<'static, str> {
    let known = [StaticPartition::NAME, QueueAware::NAME, RuleSwap::NAME];
    known.into_iter().find(|known| *known == name).map_or(Cow::Owned(name), Cow::Borrowed)
}

/// Whether each hardware family keeps performance supply. The specification states this in two ways; the default is the
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyFloor {
    /// "Reserve at least one performance node per hardware family": the count is raised to the number of families, even
    /// above a fraction of zero or above `QUEUE_HP_MAX`.
    Raise,
    /// "Preserve at least one performance-capable node per discovered hardware family whenever the requested HP count
    /// allows it": the count is unchanged, and families get their node from it, the densest first.
    WithinCount,
    /// Families are ignored: the densest nodes are the performance nodes, and there may be none.
    Off,
}

/// The input of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PlacementPolicyFacts<'a> {
    /// The family of every eligible node as a number, densest node first.
    pub families: &'a [u32],
    /// P, the queue pressure; `None` when the pods are unknown.
    pub pressure: Option<u32>,
    /// The wall clock, since 1970.
    pub wall_clock: Micros,
}

/// The decision of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The profile of every node, in the order of the facts.
    pub profiles: Vec<Profile>,
    /// The name for the desired state: of the policy that really decided.
    pub name: &'static str,
    /// Why another policy than the configured one decided, if so.
    pub fallback: Option<Fallback>,
}

/// Why another policy than the configured one decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The pods are unknown, so there is no pressure to follow; the base fraction is used.
    PressureUnknown,
}

impl PlacementPolicy {
    /// Assigns a profile to every node.
    #[must_use]
    pub fn choose(&self, floor: FamilyFloor, facts: &PlacementPolicyFacts<'_>) -> Choice {
        let nodes = count_of(facts.families.len());
        let split = |count| select(facts.families, count, floor);
        let (profiles, name, fallback) = match (self, facts.pressure) {
            (Self::StaticPartition(policy), _) => (split(policy.count(nodes)), StaticPartition::NAME, None),
            (Self::QueueAware(policy), Some(pressure)) => {
                (split(policy.count(nodes, pressure)), QueueAware::NAME, None)
            }
            (Self::QueueAware(policy), None) => {
                (split(policy.base(nodes)), StaticPartition::NAME, Some(Fallback::PressureUnknown))
            }
            (Self::RuleSwap(policy), _) => {
                (policy.profiles(facts.families.len(), facts.wall_clock), RuleSwap::NAME, None)
            }
        };
        Choice { profiles, name, fallback }
    }
}

/// Gives `count` nodes of the list full power: the first of each family as far as the floor requires, then the others
/// in list order.
fn select(families: &[u32], count: u32, floor: FamilyFloor) -> Vec<Profile> {
    let mut seen = BTreeSet::new();
    let firsts: Vec<bool> = families.iter().map(|&family| seen.insert(family)).collect();
    let (count, reserve) = match floor {
        FamilyFloor::Raise => (count.max(count_of(seen.len())), true),
        FamilyFloor::WithinCount => (count, true),
        FamilyFloor::Off => (count, false),
    };
    let mut left = count;
    let mut take = |wanted: bool| {
        let taken = wanted && left > 0;
        left = left.saturating_sub(u32::from(taken));
        taken
    };
    let reserved: Vec<bool> = firsts.iter().map(|&first| take(reserve && first)).collect();
    let profile = |&reserved: &bool| {
        if reserved || take(true) { Profile::Performance } else { Profile::Eco }
    };
    reserved.iter().map(profile).collect()
}

/// `nodes × fraction`, to the nearest whole node, halves up, clamped to `[0, nodes]`.
fn share(nodes: u32, fraction: Ratio) -> u32 {
    let bits = i128::from(fraction.within(Ratio::ZERO, Ratio::ONE).to_bits());
    // A decimal fraction such as 0.45 is only exact to its last bit. A half within that bit counts as a half, so that
    // ten nodes at 0.45 give five nodes, not four.
    let slack = i128::from(bits > 0);
    let halves = (i128::from(nodes) * (bits + slack) + (1 << 31)) >> 32;
    u32::try_from(halves).unwrap_or(u32::MAX).min(nodes)
}

fn count_of(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Why settings of a policy are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// A fraction lies outside 0 to 1.
    Fraction {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: Ratio,
    },
    /// A count is below its minimum.
    TooSmall {
        /// The setting.
        setting: &'static str,
        /// The minimum.
        least: i64,
        /// Its value.
        found: i64,
    },
    /// The minimum count is above the maximum.
    Crossed {
        /// `QUEUE_HP_MIN`
        min: i64,
        /// `QUEUE_HP_MAX`
        max: i64,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction { setting, found } => write!(f, "expected {setting} from 0 to 1, found {found}"),
            Self::TooSmall { setting, least, found } => {
                write!(f, "expected {setting} of at least {least}, found {found}")
            }
            Self::Crossed { min, max } => {
                write!(f, "expected QUEUE_HP_MIN not above QUEUE_HP_MAX, found {min} and {max}")
            }
        }
    }
}

impl std::error::Error for PolicyError {}

/// Checks a setting that is a fraction.
fn fraction(setting: &'static str, found: Ratio) -> Result<Ratio, PolicyError> {
    if found >= Ratio::ZERO && found <= Ratio::ONE {
        Ok(found)
    } else {
        Err(PolicyError::Fraction { setting, found })
    }
}

#[cfg(test)]
mod tests;
