//! The limits of the site and its racks, kept by `joulie_core::budget`: who may have how much, in which order caps go
//! down and up, and what is known of each node's cap from writes and read-backs.
//!
//! At every instant: Σ max(old, new) over unconfirmed nodes + Σ confirmed caps + base loads ≤ limit. A node is counted
//! by the most that it may draw as far as anybody can know; only what its agent has read back for the very spec that
//! stands makes that less. Without a configured limit nothing of this exists.

mod books;
mod ledger;
mod split;
mod steady;

pub(crate) use ledger::Ledger;
pub(crate) use split::Split;

use crate::settings::Limits;
use joulie_api::condition::Status;
use joulie_core::budget::{Group, Priority, Tree, Verdict};
use planner::intent::Caps;
use power_units::Watts;
use std::borrow::Cow;
use std::sync::Arc;

/// What a node asks of the budget in one pass.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// Its name.
    pub(crate) node: Arc<str>,
    /// Its rack, as its label says.
    pub(crate) rack: Option<Arc<str>>,
    /// Who keeps more.
    pub(crate) priority: Priority,
    /// What its watts are made of.
    pub(crate) split: Split,
    /// The caps that the policy wants; nothing leaves it as it is.
    pub(crate) desired: Option<Caps>,
    /// It is to be let go: it gets all that it wants, or nothing.
    pub(crate) lifts: bool,
    /// The caps that stand.
    pub(crate) stands: Option<Caps>,
    /// It answers.
    pub(crate) reachable: bool,
    /// Its caps are somebody else's, or nobody can set them, or nobody knows what they would be.
    pub(crate) fixed: bool,
}

/// What the budget says about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// These caps may be written now.
    Write(Caps),
    /// The caps that stand are those that it is to have.
    Stands,
    /// It has to wait: what stands stays.
    Wait,
}

/// How a group stands after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupStanding {
    /// `site`, or the rack's name.
    pub(crate) name: String,
    /// Its limit.
    pub(crate) limit: Watts,
    /// What it counts; nothing when nobody can say.
    pub(crate) load: Option<Watts>,
    /// By how much its limit cannot be kept even when everybody has done what they were told.
    pub(crate) short: Option<Watts>,
    /// Nobody can say what it draws.
    pub(crate) unknown: bool,
    /// By how much its limit is exceeded as far as is known, and has been for longer than caps take to be read back.
    pub(crate) exceeded: Option<Watts>,
}

/// The groups as the settings say, for the racks that there are: the site first, then the racks.
pub(crate) struct Groups {
    pub(crate) groups: Vec<Group>,
    /// `site`, then the racks in the order of their names.
    names: Vec<String>,
}

impl Groups {
    /// The site, and each of these racks that has a limit.
    pub(crate) fn of<'a>(limits: &'a Limits, racks: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let wrong = |error: joulie_core::budget::GroupError| error.to_string();
        // Without a limit of its own the site has one that nothing reaches.
        let site = limits.site.unwrap_or(Watts::MAX);
        let mut groups = vec![Group::new(None, site, Some(limits.site_base)).map_err(wrong)?];
        let mut names = vec![SITE.to_owned()];
        let named = limits.racks.keys().map(String::as_str).filter(|&rack| rack != OTHERS);
        let all: std::collections::BTreeSet<&str> = racks.chain(named).collect();
        for rack in all {
            let of = |map: &std::collections::BTreeMap<String, Watts>| {
                map.get(rack).or_else(|| map.get(OTHERS)).copied()
            };
            let Some(limit) = of(&limits.racks) else { continue };
            let base = of(&limits.rack_base).unwrap_or(Watts::ZERO);
            groups.push(Group::new(Some(0), limit, Some(base)).map_err(wrong)?);
            names.push(rack.to_owned());
        }
        Ok(Self { groups, names })
    }

    /// The groups of those who claim.
    pub(crate) fn places<'c>(&self, claims: &'c [Claim]) -> Vec<usize> {
        let mut last: Option<(&'c Arc<str>, usize)> = None;
        let place = |claim: &'c Claim| {
            let Claim { rack: Some(rack), .. } = claim else { return 0 };
            let known = last.filter(|(known, _)| Arc::ptr_eq(known, rack));
            let place = known.map_or_else(|| self.find(Some(rack)), |(_, place)| place);
            last = Some((rack, place));
            place
        };
        claims.iter().map(place).collect()
    }

    /// The group of a rack; the site where it has none of its own.
    pub(crate) fn find(&self, rack: Option<&str>) -> usize {
        let racks = self.names.get(1..).unwrap_or_default();
        let found = rack.and_then(|rack| racks.binary_search_by(|name| name.as_str().cmp(rack)).ok());
        found.map_or(0, |at| at + 1)
    }

    pub(crate) fn tree(&self) -> Result<Tree<'_>, String> {
        Tree::new(&self.groups).map_err(|error| error.to_string())
    }

    pub(crate) fn name(&self, group: usize) -> &str {
        self.names.get(group).map_or(SITE, String::as_str)
    }
}

const SITE: &str = "site";
/// Every rack that is not named.
const OTHERS: &str = "*";

/// Whether the limits above a node are kept, and why, for its condition.
pub(crate) type Said = (Status, &'static str, Cow<'static, str>);

/// What is said of a node of which nobody knows what it can draw, in the place of what is said of its groups.
pub(crate) fn of_unknown_hardware(is_assumed: bool) -> Said {
    let counts = if is_assumed {
        "it counts with BUDGET_UNKNOWN_NODE_WATTS"
    } else {
        "nothing beside it is raised (BUDGET_UNKNOWN_NODE_WATTS says what it counts with)"
    };
    let why = format!(
        "what the node can draw is not known, so that it has no cap of the budget and {counts}; its agent's NodeHardware or labels tell"
    );
    (Status::Unknown, "HardwareUnknown", why.into())
}

impl GroupStanding {
    /// Whether its limit is kept, and if not, why, in words that do not change with every watt.
    pub(crate) fn verdict(&self) -> Said {
        let name = &self.name;
        if self.short.is_some() {
            let why = format!(
                "the limit of {name} cannot be kept: base load, nodes that do not answer and lowest caps are above it"
            );
            (Status::False, "BudgetShort", why.into())
        } else if self.unknown {
            (
                Status::False,
                "LoadUnknown",
                format!("nobody can say what {name} draws: nothing there is raised").into(),
            )
        } else if self.exceeded.is_some() {
            let why = format!(
                "{name} counts more than its limit: caps that were asked for are not read back, or what cannot be capped draws too much"
            );
            (Status::False, "BudgetExceeded", why.into())
        } else {
            (Status::True, "Kept", "every limit above the node is kept".into())
        }
    }
}

/// Whether a group's limit can be kept, as an allocation says.
pub(crate) fn short(verdict: Verdict) -> Option<Watts> {
    match verdict {
        Verdict::Short { by } => Some(by),
        Verdict::Kept { .. } | Verdict::Unknown => None,
    }
}

#[cfg(test)]
mod tests;
