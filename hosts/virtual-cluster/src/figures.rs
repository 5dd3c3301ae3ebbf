//! What was measured of an arm in an experiment.

use crate::cluster::LimitCut;
use crate::demand::{DemandTrace, MachineDemand};
use crate::numbers::quantile;
use crate::site::{KINDS, LimitsNow, VirtualMachine, VirtualSite};
use crate::{STEP_S, STEPS_A_SECOND};
use joulie_core::budget::Priority;

/// The first minute is not measured: everybody begins with what he is entitled to.
pub const WARM_UP: usize = 60 * STEPS_A_SECOND;
/// A cap is below an entitlement when it is below this part of it.
const BELOW: f64 = 0.99;
/// What of the demand's limit a machine must need to be active, in watts above its floors.
const ACTIVE_W: f64 = 1.0;
/// Sums of so many numbers are not exact to the last bit.
const ROUNDING_W: f64 = 0.5;
/// A machine that was active for less than this part of the time says little about fairness.
const ACTIVE_LEAST: f64 = 0.05;
/// The steps of one point of a plot.
const PLOT: usize = 10 * STEPS_A_SECOND;

/// A machine in a step.
#[derive(Clone, Copy, Debug)]
struct Moment {
    demand: f64,
    needed: f64,
    drawn: f64,
    is_bitten: bool,
    cap: f64,
    count: f64,
}

/// A step, before it is added to the figures.
#[derive(Debug)]
pub(crate) struct StepState {
    step: usize,
    machines: Vec<Moment>,
    pub(crate) orders: u64,
    pub(crate) receipts: u64,
    pub(crate) reports: u64,
}

impl StepState {
    pub(crate) fn new(step: usize, machines: usize) -> Self {
        Self { step, machines: Vec::with_capacity(machines), orders: 0, receipts: 0, reports: 0 }
    }

    pub(crate) fn machine(
        &mut self,
        MachineDemand { drawn: demand, needed, .. }: MachineDemand,
        (drawn, is_bitten): (f64, bool),
        (cap, count): (f64, f64),
    ) {
        self.machines.push(Moment { demand, needed, drawn, is_bitten, cap, count });
    }
}

/// How long a machine has been in a state, and how long it was before.
#[derive(Clone, Debug, Default)]
struct Stretches {
    lasting: Vec<u32>,
    ended: Vec<u32>,
}

impl Stretches {
    fn of(machines: usize) -> Self {
        Self { lasting: vec![0; machines], ended: Vec::new() }
    }

    fn step(&mut self, machine: usize, is_on: bool) {
        let Some(lasting) = self.lasting.get_mut(machine) else { return };
        if is_on {
            *lasting += 1;
        } else if *lasting > 0 {
            self.ended.push(std::mem::take(lasting));
        }
    }

    fn end(&mut self) {
        self.ended.extend(self.lasting.iter().copied().filter(|&lasting| lasting > 0));
        self.ended.sort_unstable();
    }

    fn seconds(&self, part: f64) -> f64 {
        let all: Vec<f64> = self.ended.iter().map(|&steps| f64::from(steps) * STEP_S).collect();
        quantile(&all, part)
    }
}

/// Where a site's limit is while a cap limits somebody: together they are all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitParts {
    /// It is drawn.
    pub drawn: f64,
    /// Devices without work keep their floors, and draw less.
    pub floors: f64,
    /// It is in force for machines that do not need it in this moment.
    pub unneeded: f64,
    /// A lowering is not in force, or not read back.
    pub on_its_way: f64,
    /// Nobody may have it.
    pub room: f64,
    /// What caps keep machines from drawing. It is no part of the limit.
    pub missing: f64,
}

impl LimitParts {
    const ALL: [fn(&mut Self) -> &mut f64; 6] = [
        |parts| &mut parts.drawn,
        |parts| &mut parts.floors,
        |parts| &mut parts.unneeded,
        |parts| &mut parts.on_its_way,
        |parts| &mut parts.room,
        |parts| &mut parts.missing,
    ];

    fn of(limit: f64, base: f64, machines: &[Moment]) -> Self {
        let sum = |what: fn(&Moment) -> f64| machines.iter().map(what).sum::<f64>();
        Self {
            drawn: base + sum(|one| one.drawn),
            // Of one that its cap limits, the devices without work draw as much less than they keep.
            floors: sum(|one| one.needed - one.demand),
            unneeded: sum(|one| (one.cap - one.needed).max(0.0)),
            on_its_way: sum(|one| one.count - one.cap),
            room: limit - base - sum(|one| one.count),
            missing: sum(|one| (one.needed - one.cap).max(0.0)),
        }
    }

    fn add(&mut self, mut other: Self, part: f64) {
        for of in Self::ALL {
            *of(self) += *of(&mut other) * part;
        }
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Figures {
    kinds: Vec<VirtualMachine>,
    base: Vec<f64>,
    cut: Option<LimitCut>,
    steps: usize,
    use_of_limit: Vec<f64>,
    /// The sum over all steps in which a cap limits somebody, of the limit, and how many those are.
    parts: (LimitParts, f64),
    served: f64,
    throttled: Vec<u32>,
    active: Vec<u32>,
    below_entitled: u64,
    stretches: Stretches,
    bites: Stretches,
    orders: u64,
    orders_at_end: u64,
    writes_at_end: u64,
    receipts: u64,
    reports: u64,
    above: u64,
    excess: f64,
    within_after: Option<f64>,
    others_got: f64,
    others_entitled: f64,
    drawn: Vec<f64>,
    /// After how many seconds each machine's armed cap was in force.
    armed_after: Vec<f64>,
    /// And all of them together were within what the event leaves.
    armed_within: Option<f64>,
    /// For how long more was drawn since than the event leaves, once that was so.
    armed_above: u64,
}

impl Figures {
    pub(crate) fn new(site: &VirtualSite, steps: usize, cut: Option<LimitCut>) -> Self {
        let machines = site.machines.len();
        Self {
            kinds: site.machines.clone(),
            base: site.base.clone(),
            cut,
            steps,
            use_of_limit: Vec::new(),
            parts: (LimitParts::default(), 0.0),
            served: 0.0,
            throttled: vec![0; machines],
            active: vec![0; machines],
            below_entitled: 0,
            stretches: Stretches::of(machines),
            bites: Stretches::of(machines),
            orders: 0,
            orders_at_end: 0,
            writes_at_end: 0,
            receipts: 0,
            reports: 0,
            above: 0,
            excess: 0.0,
            within_after: None,
            others_got: 0.0,
            others_entitled: 0.0,
            drawn: Vec::with_capacity(steps),
            armed_after: Vec::new(),
            armed_within: None,
            armed_above: 0,
        }
    }

    pub(crate) fn add(&mut self, limits: &LimitsNow, trace: &DemandTrace, state: &StepState) {
        let (drawn, counted) = (self.groups(state, |one| one.drawn), self.groups(state, |one| one.count));
        let part = |sums: &[f64], limits: &LimitsNow| {
            let racks = sums.iter().zip(&limits.racks).map(|(sum, limit)| sum / limit - 1.0);
            racks.fold(sums.iter().sum::<f64>() / limits.instant - 1.0, f64::max)
        };
        let site_drawn: f64 = drawn.iter().sum();
        self.drawn.push(site_drawn / limits.site);
        self.see_counts(state.step, is_above(&counted, limits));
        if state.step < WARM_UP {
            return;
        }
        self.excess = self.excess.max(part(&drawn, limits));
        let demand: f64 =
            state.machines.iter().map(|one| one.demand).sum::<f64>() + self.base.iter().sum::<f64>();
        if state.machines.iter().any(|one| one.is_bitten) {
            let parts = LimitParts::of(limits.site, self.base.iter().sum(), &state.machines);
            self.parts.0.add(parts, 1.0 / limits.site);
            self.parts.1 += 1.0;
        }
        if demand > limits.site {
            self.use_of_limit.push(site_drawn / limits.site);
        }
        self.orders += state.orders;
        self.receipts += state.receipts;
        self.reports += state.reports;
        if state.step >= self.steps / 2 {
            self.orders_at_end += state.orders;
            self.writes_at_end += state.orders + state.receipts + state.reports;
        }
        for (at, (one, &entitled)) in state.machines.iter().zip(&limits.entitled).enumerate() {
            self.see_machine(at, one, entitled);
            if !trace.is_greedy(at) {
                let due = one.demand - (one.needed - entitled).max(0.0);
                self.others_entitled += due;
                self.others_got += one.drawn.min(due);
            }
        }
    }

    fn see_machine(&mut self, at: usize, one: &Moment, entitled: f64) {
        let Some(kind) = self.kinds.get(at).map(|machine| machine.kind) else { return };
        self.served += one.drawn - kind.idle();
        if one.needed > kind.floor() + ACTIVE_W
            && let Some(active) = self.active.get_mut(at)
        {
            *active += 1;
        }
        if one.is_bitten
            && let Some(throttled) = self.throttled.get_mut(at)
        {
            *throttled += 1;
        }
        let is_below = one.is_bitten && one.cap < entitled * BELOW;
        self.below_entitled += u64::from(is_below);
        self.stretches.step(at, is_below);
        self.bites.step(at, one.is_bitten);
    }

    /// The sum of each rack.
    fn groups(&self, state: &StepState, what: impl Fn(&Moment) -> f64) -> Vec<f64> {
        let mut sums = self.base.clone();
        for (machine, one) in self.kinds.iter().zip(&state.machines) {
            if let Some(sum) = sums.get_mut(machine.rack) {
                *sum += what(one);
            }
        }
        sums
    }

    /// After a cut the counts are above the limits until the caps have come down, which is measured apart.
    fn see_counts(&mut self, step: usize, is_above: bool) {
        let at = step as f64 * STEP_S;
        match (self.cut, self.within_after) {
            (Some(cut), None) if at >= cut.at_s => {
                if !is_above {
                    self.within_after = Some(at - cut.at_s);
                }
            }
            _ => self.above += u64::from(is_above),
        }
    }

    /// An armed cap is in force after so many seconds.
    pub(crate) fn arms(&mut self, after: f64) {
        self.armed_after.push(after);
    }

    /// Sees whether the caps in force are within what an armed event leaves.
    pub(crate) fn see_armed(&mut self, since: f64, limit: f64, state: &StepState) {
        let is_within = self.groups(state, |one| one.cap).iter().sum::<f64>() <= limit + ROUNDING_W;
        match self.armed_within {
            None if is_within => self.armed_within = Some(since),
            None => {}
            Some(_) => self.armed_above += u64::from(!is_within),
        }
    }

    pub(crate) fn end(&mut self) {
        self.armed_after.sort_by(f64::total_cmp);
        self.use_of_limit.sort_by(f64::total_cmp);
        self.stretches.end();
        self.bites.end();
    }

    /// How many machines there are.
    #[must_use]
    pub fn machines(&self) -> usize {
        self.kinds.len()
    }

    fn minutes(&self) -> f64 {
        self.steps.saturating_sub(WARM_UP) as f64 * STEP_S / 60.0
    }

    fn node_steps(&self) -> f64 {
        (self.steps.saturating_sub(WARM_UP) * self.kinds.len()) as f64
    }

    /// A count of all machines in a minute, as it would be with 5,000 of them.
    fn a_minute(&self, count: u64, minutes: f64) -> f64 {
        count as f64 / minutes * 5_000.0 / self.kinds.len().max(1) as f64
    }

    /// The mean use of the site's limit while the demand exceeds it; `None` where it never does.
    #[must_use]
    pub fn mean_use(&self) -> Option<f64> {
        let count = self.use_of_limit.len();
        (count > 0).then(|| self.use_of_limit.iter().sum::<f64>() / count as f64)
    }

    /// The use of which 95 % of these steps have more.
    #[must_use]
    pub fn use_p5(&self) -> Option<f64> {
        (!self.use_of_limit.is_empty()).then(|| quantile(&self.use_of_limit, 0.05))
    }

    /// The energy above idle, in watts times steps.
    #[must_use]
    pub fn served(&self) -> f64 {
        self.served
    }

    /// The part of the active time of all machines in which their caps limit them.
    #[must_use]
    pub fn throttled(&self) -> f64 {
        self.throttled_of(|_| true)
    }

    /// The same of the machines of one class; zero without any.
    #[must_use]
    pub fn throttled_in(&self, class: Priority) -> f64 {
        self.throttled_of(|machine| machine.class == class)
    }

    fn throttled_of(&self, is_meant: impl Fn(&VirtualMachine) -> bool) -> f64 {
        let all = self.kinds.iter().zip(self.throttled.iter().zip(&self.active));
        let meant = all.filter(|(machine, _)| is_meant(machine));
        let (throttled, active) = meant.fold((0.0, 0.0), |(throttled, active), (_, (&steps, &of))| {
            (throttled + f64::from(steps), active + f64::from(of))
        });
        // A machine that needs less than a watt above its floors can be throttled, and is not active.
        (throttled / f64::max(active, 1.0)).min(1.0)
    }

    /// Where the site's limit is while a cap limits somebody, as parts of it; all zero where no cap ever does.
    #[must_use]
    pub fn limit_parts(&self) -> LimitParts {
        let (sums, steps) = self.parts;
        let mut parts = LimitParts::default();
        parts.add(sums, 1.0 / steps.max(1.0));
        parts
    }

    /// The part of the time of all machines in which their caps limit them below what they are entitled to.
    #[must_use]
    pub fn below_entitled(&self) -> f64 {
        self.below_entitled as f64 / self.node_steps().max(1.0)
    }

    /// How long that lasts, in seconds, at this quantile of all times that it happens.
    #[must_use]
    pub fn below_entitled_for(&self, part: f64) -> f64 {
        self.stretches.seconds(part)
    }

    /// How long a cap limits a machine at a stretch, in seconds, at this quantile.
    #[must_use]
    pub fn bitten_for(&self, part: f64) -> f64 {
        self.bites.seconds(part)
    }

    /// Jain's index over the throttled parts of the machines of each kind, the mean of the kinds; 1 is fair.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let least = (self.node_steps() / self.kinds.len().max(1) as f64 * ACTIVE_LEAST).max(1.0);
        let mut indices = Vec::new();
        for kind in KINDS {
            let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
            for ((machine, &throttled), &active) in self.kinds.iter().zip(&self.throttled).zip(&self.active) {
                if machine.kind != kind || f64::from(active) < least {
                    continue;
                }
                let part = f64::from(throttled) / f64::from(active);
                (sum, squares, count) = (sum + part, squares + part * part, count + 1.0);
            }
            if squares > 0.0 {
                indices.push(sum * sum / (count * squares));
            }
        }
        if indices.is_empty() { 1.0 } else { indices.iter().sum::<f64>() / indices.len() as f64 }
    }

    /// Caps written a minute, as it would be with 5,000 machines.
    #[must_use]
    pub fn orders(&self) -> f64 {
        self.a_minute(self.orders, self.minutes())
    }

    /// Caps, receipts and reports written a minute, as it would be with 5,000 machines.
    #[must_use]
    pub fn writes(&self) -> f64 {
        self.a_minute(self.orders + self.receipts + self.reports, self.minutes())
    }

    /// Caps, and all writes, in the second half.
    #[must_use]
    pub const fn at_end(&self) -> (u64, u64) {
        (self.orders_at_end, self.writes_at_end)
    }

    /// For how long the counts of a group were above its limit, in seconds, the first minute included; not what follows a cut
    /// until the caps have come down.
    #[must_use]
    pub fn above_s(&self) -> f64 {
        self.above as f64 * STEP_S
    }

    /// How far the power drawn in a group was above its limit at most, as a part of it; negative when it never was.
    #[must_use]
    pub fn excess(&self) -> f64 {
        self.excess
    }

    /// How long after a cut all counts were within the new limits, in seconds; `None` when they never were.
    #[must_use]
    pub const fn within_after(&self) -> Option<f64> {
        self.within_after
    }

    /// After how many seconds an armed cap was in force, at this quantile of the machines; `None` without an armed event.
    #[must_use]
    pub fn armed_after(&self, part: f64) -> Option<f64> {
        (!self.armed_after.is_empty()).then(|| quantile(&self.armed_after, part))
    }

    /// After how many seconds all caps in force were within what an armed event leaves, and for how many seconds they were not
    /// after that.
    #[must_use]
    pub fn armed_within(&self) -> Option<(f64, f64)> {
        Some((self.armed_within?, self.armed_above as f64 * STEP_S))
    }

    /// How far the mean of what was drawn over so many seconds was above the site's limit at most, as a part of it. Negative
    /// when it never was.
    #[must_use]
    pub fn window_excess(&self, seconds: usize) -> f64 {
        let steps = seconds * STEPS_A_SECOND;
        let windows = self.drawn.windows(steps);
        windows
            .map(|window| window.iter().sum::<f64>() / steps as f64 - 1.0)
            .fold(f64::NEG_INFINITY, f64::max)
    }

    /// What the machines of all but the greedy tenant drew, of what they would have drawn with caps at their
    /// entitlements; what they draw beyond that counts nothing.
    #[must_use]
    pub fn others_served(&self) -> f64 {
        self.others_got / self.others_entitled.max(1.0)
    }

    /// The use of the site's limit in stretches of ten seconds, from the start.
    #[must_use]
    pub fn course(&self) -> Vec<f64> {
        self.drawn.chunks(PLOT).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
    }
}

/// Whether the counts of a rack or of the site are above a limit.
fn is_above(counted: &[f64], limits: &LimitsNow) -> bool {
    counted.iter().sum::<f64>() > limits.instant + ROUNDING_W
        || counted.iter().zip(&limits.racks).any(|(sum, limit)| *sum > limit + ROUNDING_W)
}
