//! The DVFS controller: treats the frequency policies of a node as one, and runs the closed loop over them.
//!
//! The laws command a share of the policies or a mean frequency. The controller turns that into one order for each
//! policy, and combines what was read back into one outcome. A policy whose CPUs are all offline answers that it is
//! busy. It draws nothing, its limit is in force again when a CPU comes back, and it does not make the others fail. Then
//! it gets the command that it missed, as does a policy that was not listed.

use super::facts::EngineFacts;
use super::policy::{Due, FrequencyPolicy};
use crate::node::backend::{Regulation, ThrottleOutcome};
use crate::node::law::{self, Command, FrequencyRange, Law, LawAction, PowerReading};
use crate::node::throttle::dither::Grid;
use crate::node::throttle::{self, PolicyLocation, Seat, ThrottlePercent};
use crate::node::ticket::Ticket;
use crate::node::{classic, tracking};
use classic::Classic;
use heapless::Vec;
use power_hal::ErrorKind;
use power_units::{KiloHertz, Stamp, Watts};
use tracking::Tracking;

/// All frequency policies of a node that have a limit, at most `D`.
#[derive(Clone, Debug)]
pub struct DvfsController<const D: usize> {
    policies: Vec<FrequencyPolicy, D>,
    seats: Vec<Seat, D>,
    /// The frequencies that policies can be limited to, kHz, ascending; empty if they are the multiples of a step.
    table: Vec<u32, D>,
    /// The orders on their way, and the ticket of the backend order for them.
    flight: Option<(Ticket, Flight)>,
    running: Option<Running>,
    /// The fixed share that was last ordered, and its ticket; `None` after another order.
    fixed: Option<(Ticket, ThrottlePercent)>,
    /// The outcome of the law's last command, reported once.
    landed: law::CommandOutcome,
    /// The outcome of the throttle's order, reported once.
    news: ThrottleOutcome,
    /// The law's last decision, for display.
    decision: Option<law::Decision>,
    /// How often the law lowered and raised the power.
    actions: (u64, u64),
    /// How often another writer has raised a limit of ours.
    moved: u64,
    /// The number of periods in a row in which a restored limit had been changed again.
    contested: u32,
}

/// The law of the DVFS fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopLaw {
    /// The law of the specification.
    Classic(Classic),
    /// The law that models the machine.
    Tracking(Tracking),
}

/// Orders for several policies that belong together.
#[derive(Clone, Copy, Debug)]
enum Flight {
    Fixed,
    Loop(Command, Regulation),
    Release,
}

/// The state of the running law.
#[derive(Clone, Debug)]
enum Running {
    Classic(classic::Mode),
    Tracking(tracking::Mode),
}

/// How many times in a row a raised limit is restored at once, and after that every how many periods.
const CONTEST: u32 = 5;
const TRUCE: u32 = 60;

impl<const D: usize> DvfsController<D> {
    pub(super) const fn new() -> Self {
        Self {
            policies: Vec::new(),
            seats: Vec::new(),
            table: Vec::new(),
            flight: None,
            running: None,
            fixed: None,
            landed: law::CommandOutcome::Unknown,
            news: ThrottleOutcome::Unknown,
            decision: None,
            actions: (0, 0),
            moved: 0,
            contested: 0,
        }
    }

    /// Sets the list of policies; the law continues. An order that was on its way is lost. Returns how many do not fit.
    pub(super) fn list(&mut self, policies: &[FrequencyPolicy]) -> u32 {
        self.policies.clear();
        let mut places: Vec<PolicyLocation, D> = Vec::new();
        let mut beyond = 0_u32;
        for policy in policies {
            // `places` has the same capacity as `policies`.
            if self.policies.push(*policy).is_err() || places.push(policy.place).is_err() {
                beyond = beyond.saturating_add(1);
            }
        }
        self.seats.clear();
        for _ in &places {
            let _there_is_room = self.seats.push(Seat::EMPTY);
        }
        // There is a seat for each place, so the ranking succeeds.
        let _ranked = throttle::PolicySequence::new(&places, &mut self.seats);
        self.contested = 0;
        if let Some((ticket, flight)) = self.flight.take() {
            self.land(ticket, flight, Err(ErrorKind::Gone));
        }
        beyond
    }

    /// Sets the frequencies that all policies can be limited to, kHz, ascending; none of them if there are more than `D`.
    /// An engine of a single policy, which cannot dither, needs no room for them.
    pub(super) fn set_table(&mut self, table: &[u32]) {
        self.table = Vec::from_slice(table).unwrap_or_default();
    }

    pub(super) fn policies(&self) -> &[FrequencyPolicy] {
        &self.policies
    }

    pub(super) fn policies_mut(&mut self) -> &mut [FrequencyPolicy] {
        &mut self.policies
    }

    pub(super) fn exists(&self) -> bool {
        !self.policies.is_empty()
    }

    /// Whether orders are on their way.
    pub(super) const fn is_busy(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether the closed loop runs.
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(super) const fn decision(&self) -> Option<&law::Decision> {
        self.decision.as_ref()
    }

    pub(super) const fn actions(&self) -> (u64, u64) {
        self.actions
    }

    pub(super) const fn moved(&self) -> u64 {
        self.moved
    }

    pub(super) fn forget_orders(&mut self) {
        self.policies.iter_mut().for_each(FrequencyPolicy::forget_order);
    }

    /// Takes in the outcomes, and returns the outcome of the throttle's order, once.
    pub(super) fn learn(&mut self, now: Stamp) -> ThrottleOutcome {
        let mut waiting = false;
        for policy in &mut self.policies {
            policy.learn(now);
            waiting |= policy.due == Due::Waiting;
        }
        if !waiting && let Some((ticket, flight)) = self.flight.take() {
            let outcome = self.verdict();
            self.land(ticket, flight, outcome);
        }
        core::mem::replace(&mut self.news, ThrottleOutcome::Unknown)
    }

    /// The worst of the outcomes, without policies whose CPUs are offline.
    fn verdict(&self) -> Result<(), ErrorKind> {
        let failures = self.policies.iter().filter_map(|policy| match policy.due {
            Due::Done(Err(kind)) if kind != ErrorKind::Busy => Some(kind),
            Due::Done(_) | Due::New | Due::Nothing | Due::Waiting => None,
        });
        failures.max().map_or(Ok(()), Err)
    }

    fn land(&mut self, ticket: Ticket, flight: Flight, outcome: Result<(), ErrorKind>) {
        self.news = match flight {
            Flight::Fixed => ThrottleOutcome::Fixed { ticket, outcome },
            Flight::Release => ThrottleOutcome::Released { ticket, outcome },
            Flight::Loop(asked, regulation) => {
                self.landed = self.landing(asked, outcome);
                ThrottleOutcome::Loop { ticket, outcome: outcome.map(|()| regulation) }
            }
        };
    }

    /// The outcome of a law's command. For a mean frequency it is the mean in force, also where some policies refused.
    fn landing(&self, asked: Command, outcome: Result<(), ErrorKind>) -> law::CommandOutcome {
        match (asked, outcome) {
            (Command::MeanFrequency(_), _) => match self.mean_in_force() {
                Some(mean) => law::CommandOutcome::Applied { asked, in_effect: Command::MeanFrequency(mean) },
                None => law::CommandOutcome::Refused { asked },
            },
            (Command::Throttle(_), Ok(())) => law::CommandOutcome::Applied { asked, in_effect: asked },
            (Command::Throttle(_), Err(_)) => law::CommandOutcome::Refused { asked },
        }
    }

    /// The mean of what was read back, and for a policy that refused, of what it reads. A law that took its command for
    /// obeyed would wait for a frequency that does not come down. A policy that cannot be read is left out, as it is in
    /// the frequency that the law gets.
    fn mean_in_force(&self) -> Option<KiloHertz> {
        let any = self.policies.iter().any(|policy| matches!(policy.due, Due::Done(Ok(_))));
        let stands = self.policies.iter().filter_map(|policy| match policy.due {
            Due::Done(Ok(Some(found))) => Some(found),
            Due::Done(Err(_)) => policy.stands_at(),
            Due::Done(Ok(None)) | Due::New | Due::Nothing | Due::Waiting => {
                Some(policy.asked.or(policy.ceiling).unwrap_or(policy.most()))
            }
        });
        if any { mean(stands) } else { None }
    }

    /// Takes one step of the closed loop. A loop that was not running starts from what it finds.
    pub(super) fn step(&mut self, law: &LoopLaw, node: &EngineFacts, cap: Watts, ticket: Ticket) {
        self.fixed = None;
        if self.running.is_none() {
            // Between two runs of a loop the originals are restored, and an administrator may have set other limits.
            self.policies.iter_mut().for_each(FrequencyPolicy::begin);
        }
        self.policies.iter_mut().for_each(FrequencyPolicy::find_ceiling);
        let power = PowerReading::from(node.power);
        let facts = law::Facts {
            now: node.now,
            cap: Some(cap),
            power,
            effective: mean(self.policies.iter().filter_map(|policy| policy.facts.running)),
            range: self.mean_range(),
            outcome: core::mem::replace(&mut self.landed, law::CommandOutcome::Unknown),
        };
        let decision = self.decide(law, &facts);
        match decision.action {
            LawAction::ThrottleUp | LawAction::FailSafe => self.actions.0 = self.actions.0.saturating_add(1),
            LawAction::ThrottleDown => self.actions.1 = self.actions.1.saturating_add(1),
            LawAction::Hold(_) => {}
        }
        let regulation = Regulation::of(power, &decision);
        self.decision = Some(decision);
        match decision.command.or_else(|| decision.in_effect.filter(|_| self.owes())) {
            Some(command) => {
                match command {
                    Command::Throttle(throttle) => self.limit_share(throttle),
                    Command::MeanFrequency(mean) => self.spread(mean),
                }
                self.flight = Some((ticket, Flight::Loop(command, regulation)));
            }
            // While orders are on their way, the outcome of the loop is not known.
            None if self.flight.is_none() => {
                self.news = ThrottleOutcome::Loop { ticket, outcome: Ok(regulation) };
            }
            None => {}
        }
    }

    /// Whether a policy has missed the command in effect. A law that is blind gives no other one.
    fn owes(&self) -> bool {
        let is_limited = self.policies.iter().any(FrequencyPolicy::is_ours);
        is_limited && self.flight.is_none() && self.policies.iter().any(FrequencyPolicy::is_owed)
    }

    /// Steps the law with its state, or with a new state if the law has changed.
    fn decide(&mut self, law: &LoopLaw, facts: &law::Facts) -> law::Decision {
        let fits = matches!(
            (law, &self.running),
            (LoopLaw::Classic(_), Some(Running::Classic(_)))
                | (LoopLaw::Tracking(_), Some(Running::Tracking(_)))
        );
        if !fits {
            let running = self.begin(law);
            self.running = Some(running);
        }
        match (law, &mut self.running) {
            (LoopLaw::Classic(law), Some(Running::Classic(mode))) => law.step(mode, facts),
            (LoopLaw::Tracking(law), Some(Running::Tracking(mode))) => law.step(mode, facts),
            // The state was created above.
            (LoopLaw::Classic(_) | LoopLaw::Tracking(_), _) => NOTHING,
        }
    }

    /// Throttles by a fixed share; the closed loop ends.
    pub(super) fn set(&mut self, fixed: (Ticket, ThrottlePercent)) {
        self.running = None;
        self.decision = None;
        self.fixed = Some(fixed);
        let (ticket, throttle) = fixed;
        self.limit_share(throttle);
        self.flight = Some((ticket, Flight::Fixed));
    }

    /// Restores the original frequencies; the closed loop ends.
    pub(super) fn release(&mut self, ticket: Ticket) {
        self.running = None;
        self.fixed = None;
        self.decision = None;
        self.policies.iter_mut().for_each(FrequencyPolicy::free);
        self.flight = Some((ticket, Flight::Release));
    }

    /// Restores policies that a release could not reach: their CPUs were offline at that time, or they were not listed.
    pub(super) fn free_the_rest(&mut self) {
        if self.flight.is_some() {
            return;
        }
        for policy in &mut self.policies {
            let answers = policy.due != Due::Waiting && policy.in_force().is_some();
            if answers && policy.facts.touched {
                policy.free();
            }
        }
    }

    fn limit_share(&mut self, throttle: ThrottlePercent) {
        let order = throttle::PolicySequence::of_seats(&self.seats);
        for (policy, limited) in self.policies.iter_mut().zip(order.throttled(throttle)) {
            policy.throttle(throttle, limited);
        }
    }

    fn spread(&mut self, mean: KiloHertz) {
        let Some(range) = self.range() else { return };
        let rest = self.level_for(mean).within(range.min(), range.max());
        let grid = match self.table.as_slice() {
            [] => Grid::new(range, self.step_size()),
            table => Some(Grid::of_table(range, table)),
        };
        let Some(grid) = grid else { return };
        let (_, high) = grid.around(rest);
        for (seat, policy) in self.seats.iter_mut().zip(&self.policies) {
            seat.rises = !matches!(policy.due, Due::Done(Err(_)))
                && policy.ceiling.is_none_or(|ceiling| ceiling >= high);
        }
        let order = throttle::PolicySequence::of_seats(&self.seats);
        for (policy, limit) in self.policies.iter_mut().zip(order.spread(rest, &grid)) {
            let floor = policy.floor();
            let ceiling = policy.ceiling.unwrap_or(floor);
            policy.limit(if ceiling < rest { ceiling } else { limit.within(floor, ceiling) });
        }
    }

    /// The limit for the policies that can be set to it, so that the mean of all is `mean`. A policy that refused its last
    /// order keeps its present frequency; without this correction the loop would settle above the cap. Such a policy
    /// gets an order all the same. A policy whose ceiling is below that limit (cores of another kind) stays there.
    fn level_for(&self, mean: KiloHertz) -> KiloHertz {
        if self.mean_range().is_some_and(|range| mean >= range.max()) {
            return self.range().map_or(mean, |range| range.max());
        }
        let mut level = self.level_beside(mean, KiloHertz::ZERO);
        for _ in 0..LEVELS {
            let next = self.level_beside(mean, level);
            if next <= level {
                break;
            }
            level = next;
        }
        level
    }

    /// The same, if the policies with a ceiling below `under` stay there.
    fn level_beside(&self, mean: KiloHertz, under: KiloHertz) -> KiloHertz {
        let stays = |policy: &FrequencyPolicy| match policy.due {
            Due::Done(Err(_)) => policy.stands_at(),
            Due::New | Due::Nothing | Due::Waiting | Due::Done(Ok(_)) => {
                policy.ceiling.filter(|&ceiling| ceiling < under)
            }
        };
        let (mut left, mut count) = (0_i128, 0_i128);
        for policy in &self.policies {
            left = left.saturating_add(i128::from(mean.to_bits()));
            match stays(policy) {
                Some(at) => left = left.saturating_sub(i128::from(at.to_bits())),
                None => count = count.saturating_add(1),
            }
        }
        let rest = left.checked_div(count).and_then(|rest| i64::try_from(rest.max(0)).ok());
        rest.map_or(mean, KiloHertz::from_bits)
    }

    /// Responds to another writer who raised frequencies. A loop starts anew from the limits in force, since it must
    /// not take the power under somebody else's limit for the power under its own. A fixed share is restored, at first
    /// at once and later at intervals. Returns the number of raised policies when a loop first sees it.
    pub(super) fn answer_others(&mut self) -> u32 {
        if self.flight.is_some() {
            return 0;
        }
        if let Some(fixed) = self.fixed {
            self.hold_share(fixed);
            return 0;
        }
        let mut raised = 0_u32;
        for policy in self.policies.iter_mut().filter(|policy| policy.was_raised()) {
            policy.asked = None;
            raised = raised.saturating_add(1);
        }
        if raised == 0 {
            self.contested = 0;
            return 0;
        }
        self.running = None;
        self.contest(raised);
        if self.contested == 1 { raised } else { 0 }
    }

    /// Restores the limits of a fixed share that are not in force: somebody else raised them, the processors were
    /// offline at that time, or the policy was not listed. Restores at once for a number of periods, then at intervals.
    fn hold_share(&mut self, fixed: (Ticket, ThrottlePercent)) {
        let order = throttle::PolicySequence::of_seats(&self.seats);
        let limited = self.policies.iter().zip(order.throttled(fixed.1));
        let mut slipped = 0_u32;
        for (policy, limited) in limited {
            slipped = slipped.saturating_add(u32::from(limited && policy.slips()));
        }
        if slipped == 0 {
            self.contested = 0;
            return;
        }
        self.contest(slipped);
        if self.contested <= CONTEST || self.contested.is_multiple_of(TRUCE) {
            self.set(fixed);
        }
    }

    fn contest(&mut self, policies: u32) {
        self.moved = self.moved.saturating_add(u64::from(policies));
        self.contested = self.contested.saturating_add(1);
    }

    fn begin(&self, law: &LoopLaw) -> Running {
        match law {
            LoopLaw::Classic(law) => Running::Classic(law.start(Some(Command::Throttle(self.found_share())))),
            LoopLaw::Tracking(law) => {
                let is_known = self.policies.iter().all(|policy| policy.in_force().is_some());
                let found =
                    mean(self.policies.iter().filter_map(FrequencyPolicy::in_force)).filter(|_| is_known);
                Running::Tracking(law.start(found.map(Command::MeanFrequency)))
            }
        }
    }

    /// The largest throttle that limits no more policies than are already at their lowest frequency.
    fn found_share(&self) -> ThrottlePercent {
        if let [only] = self.policies.as_slice()
            && let Some(throttle) = only.share()
        {
            return throttle;
        }
        let at_floor =
            |policy: &&FrequencyPolicy| policy.in_force().is_some_and(|limit| limit <= policy.floor());
        let found = count(self.policies.iter().filter(at_floor));
        let order = throttle::PolicySequence::of_seats(&self.seats);
        let shares = (0..=100).rev().filter_map(ThrottlePercent::new);
        let fits =
            |share: &ThrottlePercent| count(order.throttled(*share).filter(|limited| *limited)) <= found;
        shares.into_iter().find(fits).unwrap_or(ThrottlePercent::NONE)
    }

    /// The range of the mean of all limits.
    fn mean_range(&self) -> Option<FrequencyRange> {
        let min = mean(self.policies.iter().map(FrequencyPolicy::floor))?;
        let max = mean(self.policies.iter().filter_map(|policy| policy.ceiling)).unwrap_or(min);
        FrequencyRange::new(min, max)
    }

    /// The range of the limits.
    fn range(&self) -> Option<FrequencyRange> {
        let min = self.policies.iter().map(FrequencyPolicy::floor).min()?;
        let max = self.policies.iter().filter_map(|policy| policy.ceiling).max().unwrap_or(min);
        FrequencyRange::new(min, max)
    }

    fn step_size(&self) -> KiloHertz {
        let coarsest = self.policies.iter().map(FrequencyPolicy::step).max();
        coarsest.unwrap_or(KiloHertz::ZERO).max(KiloHertz::from_int(1))
    }
}

/// How many kinds of cores can share a mean exactly; with more of them the loop finds it in several steps.
const LEVELS: u32 = 4;

/// The decision when no law runs.
const NOTHING: law::Decision = law::Decision {
    action: LawAction::Hold(law::Hold::NoRange),
    command: None,
    in_effect: None,
    observed: None,
    smoothed: None,
    counts: None,
    reach: law::Reach::Unknown,
};

/// The number of items. The standard library's `count` can overflow and then panics.
fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    all.fold(0, |count: u32, _| count.saturating_add(1))
}

/// The mean, rounded down; `None` for an empty iterator.
fn mean(all: impl Iterator<Item = KiloHertz>) -> Option<KiloHertz> {
    let (mut sum, mut count) = (0_i128, 0_i128);
    for frequency in all {
        sum = sum.saturating_add(i128::from(frequency.to_bits()));
        count = count.saturating_add(1);
    }
    let mean = sum.checked_div(count)?;
    i64::try_from(mean).ok().map(KiloHertz::from_bits)
}
