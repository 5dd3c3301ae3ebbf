//! What the limits above a node can grant for a pod, from the statuses of the PowerBudgets.
//!
//! Only what the operator has said of the limit that stands counts, and only while it still plans: where a status is
//! missing, is of an earlier limit, or nobody renews the plan's Lease, a node is judged by its entitlement alone. A limit
//! that is only observed bounds nothing.

use crate::snapshot::Node;
use host_kit::reflect::{CachedRow, ObjectKey, Row};
use jiff::Timestamp;
use joulie_api::extender::PodDeferral;
use joulie_api::number::Number;
use joulie_api::power_budget::{BudgetMode, ClassNumbers, LoweringCause, PowerBudget, PowerBudgetStatus};
use joulie_api::{object, word::Word};
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::filter::FilterTerms;
use joulie_core::placement::freshness::UnixTime;
use power_units::{Ratio, Role, Watts};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A PowerBudget.
#[derive(Clone, Debug)]
pub(crate) struct BudgetRow {
    parent: Option<String>,
    is_enforced: bool,
    said: Option<Grantable>,
    held: Option<HeldLimit>,
}

/// A limit under which pods that may wait do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldLimit {
    /// Why, for the events of pods: without a character that is to be escaped in JSON.
    why: Arc<str>,
    /// Until when, if that is known.
    until: Option<UnixTime>,
}

impl HeldLimit {
    /// What the operator says of it. A limit that it does not speak of any more is held until its windows are over; a pod
    /// has a deadline of its own.
    fn of(status: &PowerBudgetStatus) -> Option<Self> {
        if let Some(lowered) = &status.lowered {
            let until = lowered.until.as_deref();
            let time = until.and_then(|until| until.parse::<Timestamp>().ok());
            let why = match lowered.by.as_ref().and_then(Word::known) {
                Some(LoweringCause::Window) => format!(
                    "it is lowered until {}, now by its window {}",
                    plain(until.unwrap_or_default()),
                    plain(lowered.name.as_deref().unwrap_or_default())
                ),
                Some(LoweringCause::Signal) | None => "its signal lowers it".to_owned(),
            };
            let until = time.map(|time| UnixTime::from_micros(time.as_microsecond()));
            return Some(Self { why: why.into(), until });
        }
        let is_short = status.short_watts.is_some_and(|short| short.get() > 0.0);
        is_short.then(|| Self { why: "it cannot be kept".into(), until: None })
    }

    fn stands(&self, now: UnixTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// The letters, digits and marks of a text that need no escape in JSON.
fn plain(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || " -_.:+".contains(*c);
    text.chars().filter(is_plain).take(63).collect()
}

/// What the operator says of a limit; for performance, draining and eco nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grantable {
    /// What can be granted beside what is drawn, here and under every limit above.
    watts: [Watts; 3],
    /// What is assumed of bound pods there already.
    assumed: Watts,
    price: [Ratio; 3],
}

impl Row for BudgetRow {
    const KIND: &'static str = "powerbudgets";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let read: PowerBudget = object::parse(object).map_err(|error| error.to_string())?;
        let is_enforced = read.spec.mode.known() != Some(BudgetMode::Observe);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
        let status = read.status.unwrap_or_default();
        let of = |class: Option<ClassNumbers>| {
            let ClassNumbers { performance, draining, eco } = class?;
            Some([performance?, draining?, eco?])
        };
        let watts = |number: Number, role| Watts::parse(&number.to_string(), role).ok();
        let of_this_limit = status.observed_generation.is_some_and(|seen| seen.get() == generation)
            && status.mode.as_ref().and_then(Word::known) == read.spec.mode.known();
        let held = HeldLimit::of(&status).filter(|_| of_this_limit && is_enforced);
        let said = status.demand.filter(|_| of_this_limit && is_enforced).and_then(|demand| {
            let [performance, draining, eco] =
                of(demand.grantable_watts)?.map(|each| watts(each, Role::Limit));
            let prices = of(demand.price)?.map(|price| Ratio::parse(&price.to_string(), Role::Demand).ok());
            let [dear, dearer, dearest] = prices.map(|price| price.unwrap_or(Ratio::ONE));
            Some(Grantable {
                watts: [performance?, draining?, eco?],
                assumed: demand.assumed_watts.and_then(|assumed| watts(assumed, Role::Limit))?.or_zero(),
                price: [dear, dearer, dearest].map(|price| price.within(Ratio::ZERO, Ratio::ONE)),
            })
        });
        Ok(Self { parent: read.spec.parent, is_enforced, said, held })
    }
}

/// The index of a budget.
pub(crate) type BudgetIndex = u16;
/// No budget: the node's own cap.
pub(crate) const NONE: BudgetIndex = BudgetIndex::MAX;
/// A limit that nobody names: it has no PowerBudget, or its PowerBudget does not say what it can grant.
const UNNAMED: BudgetIndex = BudgetIndex::MAX - 1;

/// The PowerBudgets.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    all: Vec<Budget>,
    by_name: BTreeMap<Arc<str>, BudgetIndex>,
    /// The time at which they are looked at.
    now: Option<UnixTime>,
}

#[derive(Debug)]
struct Budget {
    name: Arc<str>,
    parent: Option<usize>,
    is_enforced: bool,
    said: Option<Grantable>,
    held: Option<HeldLimit>,
}

/// What is left for pods on each node, by its number.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// [`Watts::MAX`] where it cannot be judged.
    watts: Box<[Watts]>,
    /// The budget that bounds it.
    by: Box<[BudgetIndex]>,
}

impl Left {
    /// How far a pod of these watts would be over what is left. Zero or less where it fits or cannot be judged.
    #[inline]
    pub(crate) fn over(&self, number: usize, added: Watts) -> Watts {
        self.watts.get(number).map_or(Watts::ZERO, |left| added - *left)
    }

    /// The budget that bounds what is left on a node.
    pub(crate) fn by(&self, number: usize) -> BudgetIndex {
        self.by.get(number).copied().unwrap_or(NONE)
    }

    /// What is left on a node, if that can be judged.
    pub(crate) fn of(&self, number: usize) -> Option<Watts> {
        self.watts.get(number).copied().filter(|left| *left < Watts::MAX)
    }
}

/// The least that can be granted on the way up from a budget, and the budget that bounds it.
type Least = Option<(Watts, BudgetIndex)>;

impl Budgets {
    /// The budgets of these rows. `plans`: somebody renews the plan's Lease, so that what was said last still stands.
    pub(crate) fn of(rows: &BTreeMap<ObjectKey, CachedRow<BudgetRow>>, plans: bool) -> Self {
        let names =
            rows.keys().take(usize::from(UNNAMED)).map(|key| -> Arc<str> { key.name.as_str().into() });
        let by_name: BTreeMap<Arc<str>, BudgetIndex> = names.zip(0..).collect();
        let all = rows.iter().take(by_name.len()).map(|(key, held)| Budget {
            name: key.name.as_str().into(),
            parent: held
                .row
                .parent
                .as_deref()
                .and_then(|parent| by_name.get(parent))
                .map(|at| usize::from(*at)),
            is_enforced: held.row.is_enforced,
            // What cannot be read now may be another limit.
            said: held.row.said.filter(|_| plans && held.stale_since.is_none()),
            held: held.row.held.clone(),
        });
        Self { all: all.collect(), by_name, now: None }
    }

    /// The same at this time.
    pub(crate) fn at(self, now: UnixTime) -> Self {
        Self { now: Some(now), ..self }
    }

    /// The name of a budget.
    pub(crate) fn name(&self, at: BudgetIndex) -> Option<&str> {
        self.all.get(usize::from(at)).map(|budget| &*budget.name)
    }

    /// Each node's budget, by number.
    pub(crate) fn places(&self, nodes: &[Node]) -> Box<[BudgetIndex]> {
        let of = |node: &Node| self.by_name.get(node.budget.as_ref()?).copied();
        nodes.iter().map(|node| of(node).unwrap_or(NONE)).collect()
    }

    /// The limit above this place for which a pod that may wait does, and why: the nearest.
    pub(crate) fn keep_waiting(&self, place: BudgetIndex, pod: PodDeferral) -> Option<(&str, &str)> {
        let now = self.now.filter(|now| pod.waits_at(*now))?;
        let stands = |at: usize| {
            let budget = self.all.get(at)?;
            let held = budget.held.as_ref().filter(|held| held.stands(now))?;
            Some((&*budget.name, &*held.why))
        };
        self.path(place).find_map(stands)
    }

    /// Writes the price of watts into the nodes' twins. An unknown price is none.
    pub(crate) fn price(&self, nodes: &mut [Node], places: &[BudgetIndex]) {
        for (node, &place) in nodes.iter_mut().zip(places) {
            if let Some(twin) = &mut node.twin {
                let prices = self.path(place).filter_map(|at| self.all.get(at)?.said);
                let class = class(twin.class);
                let highest = prices.filter_map(|said| said.price.get(class).copied()).max();
                twin.price = highest.unwrap_or(Ratio::ZERO);
            }
        }
    }

    /// A budget, and those above it. A cycle ends.
    fn path(&self, from: BudgetIndex) -> impl Iterator<Item = usize> {
        let first = Some(usize::from(from)).filter(|&at| at < self.all.len());
        let above = |at: &usize| self.all.get(*at).and_then(|budget| budget.parent);
        std::iter::successors(first, above).take(self.all.len())
    }

    /// What is left for pods on each node, when these watts are assumed there.
    pub(crate) fn left(
        &self,
        places: &[BudgetIndex],
        classes: &[SchedulableClass],
        filters: &[FilterTerms],
        assumed: &[Watts],
    ) -> Left {
        let mut below = vec![Watts::ZERO; self.all.len()];
        for (&place, &watts) in places.iter().zip(assumed).filter(|(_, watts)| **watts > Watts::ZERO) {
            for at in self.path(place) {
                if let Some(sum) = below.get_mut(at) {
                    *sum += watts;
                }
            }
        }
        let least: Vec<[Least; 3]> =
            (0..self.all.len()).map(|at| [0, 1, 2].map(|class| self.least(at, class, &below))).collect();
        let each = filters.iter().enumerate().map(|(number, filter)| {
            let place = places.get(number).map_or(usize::MAX, |place| usize::from(*place));
            let class = class(classes.get(number).copied().unwrap_or(SchedulableClass::Unknown));
            let least = least.get(place).and_then(|least| least.get(class)).copied().flatten();
            let assumed = assumed.get(number).copied().unwrap_or(Watts::ZERO);
            match filter.left(assumed, least.map(|(watts, _)| watts)) {
                None => (Watts::MAX, NONE),
                Some(left) if left.by_limits => (left.watts, least.map_or(UNNAMED, |(_, by)| by)),
                Some(left) => (left.watts, NONE),
            }
        });
        let (watts, by): (Vec<Watts>, Vec<BudgetIndex>) = each.unzip();
        Left { watts: watts.into(), by: by.into() }
    }

    /// The least that a node of this class can be granted on the way up, the highest budget of equals; `None` where one of
    /// them says nothing.
    fn least(&self, from: usize, class: usize, below: &[Watts]) -> Least {
        let mut least: Least = None;
        for at in self.path(BudgetIndex::try_from(from).unwrap_or(NONE)) {
            let budget = self.all.get(at).filter(|budget| budget.is_enforced);
            let Some(budget) = budget else { continue };
            let said = budget.said?;
            // What the operator has assumed it has taken off already.
            let more = (below.get(at).copied()? - said.assumed).or_zero();
            let watts = said.watts.get(class).copied()? - more;
            if least.is_none_or(|(least, _)| watts <= least) {
                least = Some((watts, BudgetIndex::try_from(at).unwrap_or(NONE)));
            }
        }
        least
    }
}

/// The place of a class among the numbers of a budget. What is not known counts as the class that is served last.
const fn class(class: SchedulableClass) -> usize {
    match class {
        SchedulableClass::Performance => 0,
        SchedulableClass::Draining => 1,
        SchedulableClass::Eco | SchedulableClass::Unknown => 2,
    }
}

#[cfg(test)]
mod tests;
