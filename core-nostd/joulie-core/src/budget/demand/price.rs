//! The price of every group of the tree, and the cap of each bidder at it.
//!
//! A bidder is a node under a tree of limits, or a device under the grant of its node. At the price λ it gets the demand
//! that it exceeds for the share λ of the time: at zero all that it wants, at one its floor. The price of a group is the
//! lowest at which its limit is kept; what is above a group counts for it as well. Both are found in one pass up and one
//! down, with twenty-one sums for each class and group. Within the step in which a group's own price stands, the price
//! above it moves it over the rest of the step in proportion, because that is what its sums say.
//!
//! - Classes: eco bidders pay up to one before draining ones pay anything, and these before performance.
//! - A bidder whose cap throttles it is never brought below its entitlement, nor is another one below its steady demand
//!   within its entitlement, so that steady demand moves nobody. The price divides only what no entitled bidder asks for.
//!   So when everybody wants everything, each gets its entitlement, and not a share that grows with what it has.
//! - A bidder without a report neither lends nor takes: it counts what it counts. Where more than a fifth of a group are
//!   blind, nothing is lent in it: each gets its entitlement.
//! - Where a sum is unknown, no bidder below gets another cap than its entitlement, which is made for that case: it raises
//!   nothing, and lowers nothing for lack of knowledge.
//!
//! The order of the bidders changes nothing. Here only targets are made; what may be ordered is decided by
//! [`next_moves`](super::super::next_moves).

use super::super::node::{BudgetNode, Priority};
use super::super::tree::{BudgetTree, Group, spread};
use super::super::{BudgetError, of_length, plus};
use super::ask::{DemandReport, EXCEEDED};
use power_units::{Ratio, Role, Watts};

/// The prices of one class: from nothing to everything in twenty parts.
const STEPS: usize = 21;
/// The highest price.
const HIGHEST: Ratio = Ratio::from_int(20);
/// Where the limit is not kept even at the highest price of all classes.
const OVERLOADED: Ratio = Ratio::from_int(61);
/// Where nothing is lent.
const ENTITLED: Ratio = Ratio::from_int(62);
/// A group with more blind nodes than one in this many lends nothing.
const BLIND_ONE_IN: usize = 5;

/// The sums of a class at each price.
type Column = [Watts; STEPS];

/// What is known of a bidder's demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appetite {
    /// It reports what it wants. `assumed` is what it will want for work that has been given to it and does not show yet.
    Told {
        /// The report.
        demand: DemandReport,
        /// What it will want at least.
        assumed: Watts,
    },
    /// Its demand should be known and is not. It keeps what it counts, which may be unknown too, and at least its
    /// entitlement.
    Blind(Option<Watts>),
    /// A person owns its cap. It keeps what it counts, and at least its entitlement.
    Owned(Option<Watts>),
    /// Its cap is not moved by demand: it does not answer, may not be raised now, or has no cap yet. It counts with this.
    Stands(Option<Watts>),
    /// It may not be raised, but has yielded some of its cap and wants it back up to here. It lends nothing.
    Returns(Watts),
}

/// One who draws under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// Identifies it; breaks ties where all else is equal.
    pub key: u64,
    /// The index of its group.
    pub group: usize,
    /// Who is squeezed last.
    pub priority: Priority,
    /// The lowest cap that it can be brought to.
    pub floor: Watts,
    /// The most that it may be allowed, whatever it wants.
    pub most: Watts,
    /// What it gets when everybody wants everything. The sum of these keeps every limit that can be kept. For one that
    /// does not follow orders it is what it counts.
    pub entitled: Watts,
    /// What it wants.
    pub appetite: Appetite,
}

impl Bid {
    /// The bid of a node. The entitlement is the one that [`allocate`](super::super::allocate) has found.
    #[must_use]
    pub fn of(node: &BudgetNode, entitled: Watts, appetite: Appetite) -> Self {
        let BudgetNode { key, group, priority, .. } = *node;
        // What does not answer does not follow either.
        let counted = node.count().filter(|_| !node.reachable);
        let entitled = counted.map_or(entitled, |counted| counted.max(entitled));
        Self { key, group, priority, floor: node.lowest(), most: node.wanted(), entitled, appetite }
    }

    /// What it wants at the price of zero, within what it may be allowed.
    #[must_use]
    pub fn wanted(&self) -> Option<Watts> {
        match self.appetite {
            Appetite::Told { demand, assumed } => Some(self.limit(demand.highest().max(assumed))),
            Appetite::Blind(_) | Appetite::Owned(_) | Appetite::Stands(_) | Appetite::Returns(_) => None,
        }
    }

    /// Whether it is throttled by a cap that a higher one would not throttle.
    #[must_use]
    pub const fn bites(&self) -> bool {
        match self.appetite {
            Appetite::Told { demand, .. } => demand.bites(),
            Appetite::Blind(_) | Appetite::Owned(_) | Appetite::Stands(_) | Appetite::Returns(_) => false,
        }
    }

    /// What it has a claim to now, whatever the price: its entitlement while its cap throttles it, because nobody knows how
    /// much it wants then; else what of it it wants nearly all the time.
    #[must_use]
    pub fn sure(&self) -> Watts {
        match self.appetite {
            Appetite::Told { demand, assumed } => {
                let claimed = if demand.bites() { self.entitled } else { demand.lowest().max(assumed) };
                self.limit(claimed.min(self.entitled))
            }
            Appetite::Blind(stands) | Appetite::Owned(stands) => {
                stands.map_or(self.entitled, |stands| stands.max(self.entitled))
            }
            Appetite::Stands(stands) => stands.unwrap_or(self.entitled),
            Appetite::Returns(watts) => self.limit(watts),
        }
    }

    fn limit(&self, watts: Watts) -> Watts {
        watts.within(self.floor, self.most)
    }

    /// Its cap at each price: it never rises with the price.
    fn curve(&self, demand: &DemandReport, assumed: Watts) -> Column {
        let sure = self.sure();
        let mut curve = interpolated(demand);
        let mut levels = curve.iter_mut().rev();
        if let Some(highest_price) = levels.next() {
            *highest_price = sure;
        }
        for level in levels {
            *level = self.limit((*level).max(assumed)).max(sure);
        }
        curve
    }

    /// Its cap where its group's price stands.
    fn at(&self, price: Ratio) -> Watts {
        if price >= ENTITLED {
            return self.entitled;
        }
        let cap = match self.appetite {
            Appetite::Told { demand, assumed } => {
                between(&self.curve(&demand, assumed), of_class(price, self.priority), Role::Limit)
            }
            Appetite::Blind(_) | Appetite::Owned(_) | Appetite::Stands(_) | Appetite::Returns(_) => {
                self.sure()
            }
        };
        if price >= OVERLOADED { cap.min(self.entitled) } else { cap }
    }
}

/// The demand at each price; at the highest it is nothing, which the claim replaces.
fn interpolated(demand: &DemandReport) -> Column {
    let mut curve = [Watts::ZERO; STEPS];
    let mut levels = curve.iter_mut();
    let ends =
        EXCEEDED.iter().copied().chain([20]).zip(demand.quantiles().iter().copied().chain([Watts::ZERO]));
    let mut last = (0_u8, demand.highest());
    for (at, watts) in ends {
        let steps = at.saturating_sub(last.0);
        let fall =
            (last.1 - watts).to_bits().checked_div(i64::from(steps)).map_or(Watts::ZERO, Watts::from_bits);
        let mut value = last.1;
        // The end of the part itself is exact.
        for step in 1..=steps {
            value = if step == steps { watts } else { value - fall };
            if let Some(level) = levels.next() {
                *level = value;
            }
        }
        if steps == 0
            && let Some(level) = levels.next()
        {
            *level = watts;
        }
        last = (at, watts);
    }
    curve
}

/// What of a group's price a class pays, from 0 to 20.
fn of_class(price: Ratio, class: Priority) -> Ratio {
    let before = match class {
        Priority::Eco => Ratio::ZERO,
        Priority::Draining => HIGHEST,
        Priority::Performance => HIGHEST + HIGHEST,
    };
    (price - before).within(Ratio::ZERO, HIGHEST)
}

/// What of a price is beyond its last whole step.
fn beyond_step(price: Ratio) -> Ratio {
    Ratio::from_bits(price.to_bits() & 0xFFFF_FFFF)
}

/// The price of a part that stands at `own` by its own limit, where the group above it stands at `above`. The sums of the
/// group above count the part as if it stood at `own` from the whole step before it, and from there on a straight line to
/// the next whole step. So the part goes from `own` to that step while `above` goes over the whole of it: with the higher
/// of the two prices it would count more than that line, and the limit above would be exceeded.
fn joined(own: Ratio, above: Ratio) -> Ratio {
    let gone = beyond_step(own);
    let before = own - gone;
    if own >= OVERLOADED || above >= before + Ratio::ONE {
        return own.max(above);
    }
    let over = (above - before).or_zero();
    own + over.scale(Ratio::ONE - gone, Role::Demand)
}

/// The value of a column at a price between two of its steps. `role` says how it is rounded.
fn between(column: &Column, price: Ratio, role: Role) -> Watts {
    let part = beyond_step(price);
    let at = usize::try_from(price.to_bits() >> 32).unwrap_or(0);
    let above = column.get(at).copied().unwrap_or(Watts::ZERO);
    if part == Ratio::ZERO {
        return above;
    }
    let below = column.get(at.saturating_add(1)).copied().unwrap_or(Watts::ZERO);
    below + (above - below).scale(Ratio::ONE - part, role)
}

/// Working memory for one group, and afterwards the group's price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPrice {
    performance: Column,
    draining: Column,
    eco: Column,
    /// The base load, and what counts the same at any price.
    fixed: Option<Watts>,
    /// What is counted where no class is left to squeeze.
    overloaded: Option<Watts>,
    /// What is counted where nothing is lent.
    entitled: Option<Watts>,
    bidders: usize,
    blind: usize,
    /// Where between nothing and everything the price stands, with all classes one after the other.
    at: Ratio,
}

impl GroupPrice {
    /// Before the first use.
    pub const EMPTY: Self = Self {
        performance: [Watts::ZERO; STEPS],
        draining: [Watts::ZERO; STEPS],
        eco: [Watts::ZERO; STEPS],
        fixed: None,
        overloaded: None,
        entitled: None,
        bidders: 0,
        blind: 0,
        at: ENTITLED,
    };

    /// The price that a class pays, from zero to one.
    #[must_use]
    pub fn of(&self, class: Priority) -> Ratio {
        let price = of_class(self.at, class);
        price.ratio_to(HIGHEST, Role::Nearest).unwrap_or(Ratio::ZERO)
    }

    /// Whether what is counted here and above is known.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.fixed.is_some()
    }

    /// Whether watts are lent here: enough of the bidders report what they want.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.is_known() && self.at < ENTITLED
    }

    /// Whether somebody is squeezed here or above, so that each watt that is given back is of use.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.lends() && self.at > Ratio::ZERO
    }

    /// Whether the limit is not kept even at the highest price, so that each is held to its entitlement.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.at == OVERLOADED
    }

    /// How many bidders there are, and how many of them are blind.
    #[must_use]
    pub const fn blind(&self) -> (usize, usize) {
        (self.blind, self.bidders)
    }

    fn of_group(group: &Group) -> Self {
        let base = group.base();
        Self { fixed: base, overloaded: base, entitled: base, at: Ratio::ZERO, ..Self::EMPTY }
    }

    fn column(&mut self, class: Priority) -> &mut Column {
        match class {
            Priority::Performance => &mut self.performance,
            Priority::Draining => &mut self.draining,
            Priority::Eco => &mut self.eco,
        }
    }

    fn add(&mut self, bid: &Bid) {
        self.bidders = self.bidders.saturating_add(1);
        self.entitled = plus(self.entitled, Some(bid.entitled));
        let stands = match bid.appetite {
            Appetite::Told { demand, assumed } => {
                let curve = bid.curve(&demand, assumed);
                self.add_column(bid.priority, &curve);
                self.overloaded = plus(self.overloaded, Some(bid.sure().min(bid.entitled)));
                return;
            }
            Appetite::Blind(stands) => {
                self.blind = self.blind.saturating_add(1);
                stands
            }
            Appetite::Owned(stands) | Appetite::Stands(stands) => stands,
            Appetite::Returns(watts) => Some(watts),
        };
        let counts = stands.map(|_| bid.sure());
        self.fixed = plus(self.fixed, counts);
        self.overloaded = plus(self.overloaded, counts.map(|counts| counts.min(bid.entitled)));
    }

    fn add_column(&mut self, class: Priority, part: &Column) {
        let mut overflows = false;
        for (sum, &part) in self.column(class).iter_mut().zip(part) {
            match sum.checked_add(part) {
                Some(more) => *sum = more,
                None => overflows = true,
            }
        }
        if overflows {
            self.fixed = None;
        }
    }

    /// Finds the lowest price at which `allowed` is kept.
    fn solve(&mut self, allowed: Watts) {
        if self.blind.saturating_mul(BLIND_ONE_IN) > self.bidders {
            self.at = ENTITLED;
            return;
        }
        let free = [&self.performance, &self.draining, &self.eco].map(|column| column.first().copied());
        let Some(mut total) = free.into_iter().fold(self.fixed, plus) else {
            (self.fixed, self.at) = (None, ENTITLED);
            return;
        };
        let mut before = Ratio::ZERO;
        for class in [Priority::Eco, Priority::Draining, Priority::Performance] {
            if total <= allowed {
                self.at = before;
                return;
            }
            let column = *self.column(class);
            let [free, .., all] = column;
            let others = total - free;
            let mut steps = column.iter().zip(column.iter().skip(1)).zip(1..=20_i32);
            let found = steps.find(|((_, below), _)| others + **below <= allowed);
            if let Some(((&above, &below), step)) = found {
                let spare = allowed - others - below;
                let back = spare.ratio_to(above - below, Role::Limit).unwrap_or(Ratio::ZERO);
                self.at = before + Ratio::from_int(step) - back;
                return;
            }
            total = others + all;
            before += HIGHEST;
        }
        self.at = if total <= allowed { before } else { OVERLOADED };
    }

    /// Adds a part of this group, which keeps its own limit at every price.
    fn join(&mut self, mut part: Self) {
        self.bidders = self.bidders.saturating_add(part.bidders);
        self.blind = self.blind.saturating_add(part.blind);
        self.entitled = plus(self.entitled, part.entitled);
        self.overloaded = plus(self.overloaded, part.overloaded);
        if part.at >= OVERLOADED {
            let counts = if part.at >= ENTITLED { part.entitled } else { part.overloaded };
            self.fixed = plus(self.fixed, counts.filter(|_| part.is_known()));
            return;
        }
        self.fixed = plus(self.fixed, part.fixed);
        for class in Priority::ALL {
            let price = of_class(part.at, class);
            let column = part.column(class);
            // Rounded up: the caps of the part, each rounded down, are never more.
            let value = between(column, price, Role::Demand);
            for (level, step) in column.iter_mut().zip(0..=20_i32) {
                if Ratio::from_int(step) < price {
                    *level = value;
                }
            }
            let column = *column;
            self.add_column(class, &column);
        }
    }
}

/// Finds the price of every group so that all limits are kept with `reserve` of each to spare, and the cap of each bidder.
/// `targets[i]` is for `bids[i]`; afterwards `prices[g]` holds the price of group `g`.
///
/// # Errors
/// When a slice has the wrong length or a bidder's group does not exist; the targets are then not valid.
pub fn price(
    tree: BudgetTree<'_>,
    bids: &[Bid],
    reserve: Ratio,
    prices: &mut [GroupPrice],
    targets: &mut [Watts],
) -> Result<(), BudgetError> {
    of_length("prices", prices, tree.groups().len())?;
    of_length("targets", targets, bids.len())?;
    for (price, group) in prices.iter_mut().zip(tree.groups()) {
        *price = GroupPrice::of_group(group);
    }
    for bid in bids {
        let price = prices.get_mut(bid.group).ok_or(BudgetError::NoSuchGroup { node: bid.key })?;
        price.add(bid);
    }
    // Parents come before their parts.
    for (at, group) in tree.groups().iter().enumerate().rev() {
        let Some(price) = prices.get_mut(at) else { continue };
        price.solve(group.limit() - reserved(group, reserve));
        let price = *price;
        if let Some(parent) = group.parent().and_then(|parent| prices.get_mut(parent)) {
            parent.join(price);
        }
    }
    spread(tree, prices, |price, parent| {
        let Some(parent) = parent else { return };
        price.at = joined(price.at, parent.at);
        price.fixed = price.fixed.filter(|_| parent.is_known());
    });
    for (bid, target) in bids.iter().zip(targets) {
        let price = prices.get(bid.group).filter(|price| price.is_known());
        *target = price.map_or(bid.entitled, |price| bid.at(price.at));
    }
    Ok(())
}

/// What of a group's limit is kept free, so that a raise need not wait for a lowering.
#[must_use]
pub fn reserved(group: &Group, reserve: Ratio) -> Watts {
    group.limit().scale(reserve, Role::Limit)
}
