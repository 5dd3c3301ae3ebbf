//! The DVFS controller: the frequency policies of a node as one, and the closed loop over them.
//!
//! The laws speak of a share of the policies or of a mean frequency; here that becomes one order for each policy, and
//! what was read back of all of them becomes one outcome. A policy whose CPUs are all offline answers that it is busy:
//! it draws nothing, its limit is in force again when a CPU comes back, and it does not make the others fail.

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

/// All frequency policies of a node that have a limit; there is room for `D`.
#[derive(Clone, Debug)]
pub struct DvfsController<const D: usize> {
    policies: Vec<FrequencyPolicy, D>,
    seats: Vec<Seat, D>,
    /// What is on its way, and the ticket of the backend order for it.
    flight: Option<(Ticket, Flight)>,
    running: Option<Running>,
    /// The fixed share that was last ordered, and its ticket, until something else was.
    fixed: Option<(Ticket, ThrottlePercent)>,
    /// What became of the law's last command, told once.
    landed: law::CommandOutcome,
    /// What became of the throttle, told once.
    news: ThrottleOutcome,
    /// The law's last decision, for people.
    decision: Option<law::Decision>,
    /// How often the law lowered and raised the power.
    actions: (u64, u64),
    /// How often another writer was seen to have raised a limit of ours.
    moved: u64,
    /// In so many periods in a row somebody moved what was put back.
    contested: u32,
}

/// The law of the DVFS fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopLaw {
    /// That of the seeds.
    Classic(Classic),
    /// The one that models the machine.
    Tracking(Tracking),
}

/// Orders for many policies that belong together.
#[derive(Clone, Copy, Debug)]
enum Flight {
    Fixed,
    Loop(Command, Regulation),
    Release,
}

/// The memory of the law that runs.
#[derive(Clone, Debug)]
enum Running {
    Classic(classic::Mode),
    Tracking(tracking::Mode),
}

/// So many times in a row a limit that somebody raised is put back at once, and after that every so many periods.
const CONTEST: u32 = 5;
const TRUCE: u32 = 60;

impl<const D: usize> DvfsController<D> {
    pub(super) const fn new() -> Self {
        Self {
            policies: Vec::new(),
            seats: Vec::new(),
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

    /// The same law goes on with another list of policies; an order that was on its way is lost. How many do not fit.
    pub(super) fn list(&mut self, policies: &[FrequencyPolicy]) -> u32 {
        self.policies.clear();
        let mut places: Vec<PolicyLocation, D> = Vec::new();
        let mut beyond = 0_u32;
        for policy in policies {
            // There is as much room for places as for policies.
            if self.policies.push(*policy).is_err() || places.push(policy.place).is_err() {
                beyond = beyond.saturating_add(1);
            }
        }
        self.seats.clear();
        for _ in &places {
            let _there_is_room = self.seats.push(Seat::EMPTY);
        }
        // There is a seat for each place, so it does rank.
        let _ranked = throttle::PolicySequence::new(&places, &mut self.seats);
        self.contested = 0;
        if let Some((ticket, flight)) = self.flight.take() {
            self.land(ticket, flight, Err(ErrorKind::Gone));
        }
        beyond
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

    /// Takes in what came back, and says what became of the throttle, once.
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

    /// The worst that came back, but for policies whose CPUs are offline.
    fn verdict(&self) -> Result<(), ErrorKind> {
        let failures = self.policies.iter().filter_map(|policy| match policy.due {
            Due::Done(Err(kind)) if kind != ErrorKind::Busy => Some(kind),
            Due::Done(_) | Due::Nothing | Due::Waiting => None,
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

    /// What a law is told of its command. Of a mean frequency it is told what stands, also where some policies refused.
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

    /// The mean of what was read back; of a policy that refused, what it reads: a law that took its order for obeyed
    /// would wait for a frequency that does not come down. One that answers nothing has no part in it, as it has none in
    /// the frequency that the law is told.
    fn mean_in_force(&self) -> Option<KiloHertz> {
        let any = self.policies.iter().any(|policy| matches!(policy.due, Due::Done(Ok(_))));
        let stands = self.policies.iter().filter_map(|policy| match policy.due {
            Due::Done(Ok(Some(found))) => Some(found),
            Due::Done(Err(_)) => policy.stands_at(),
            Due::Done(Ok(None)) | Due::Nothing | Due::Waiting => {
                Some(policy.asked.or(policy.ceiling).unwrap_or(policy.most()))
            }
        });
        if any { mean(stands) } else { None }
    }

    /// Takes one step of the closed loop. A loop that was not running starts from what it finds.
    pub(super) fn step(&mut self, law: &LoopLaw, node: &EngineFacts, cap: Watts, ticket: Ticket) {
        self.fixed = None;
        if self.running.is_none() {
            // Between two runs of a loop the originals are back, and an administrator may have set other limits.
            self.policies.iter_mut().for_each(|policy| policy.ceiling = None);
        }
        self.policies.iter_mut().for_each(FrequencyPolicy::find_ceiling);
        let power = PowerReading::from(node.power);
        let facts = law::Facts {
            now: node.now,
            cap: Some(cap),
            power,
            effective: mean(self.policies.iter().filter_map(|policy| policy.facts.running)),
            range: self.range(),
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
        match decision.command {
            Some(command) => {
                match command {
                    Command::Throttle(throttle) => self.limit_share(throttle),
                    Command::MeanFrequency(mean) => self.spread(mean),
                }
                self.flight = Some((ticket, Flight::Loop(command, regulation)));
            }
            // While orders are on their way, nobody knows what became of the loop.
            None if self.flight.is_none() => {
                self.news = ThrottleOutcome::Loop { ticket, outcome: Ok(regulation) };
            }
            None => {}
        }
    }

    /// Steps the law in the memory that it has, or in a new one.
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
            // It was begun above.
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

    /// Puts the original frequencies back; the closed loop ends.
    pub(super) fn release(&mut self, ticket: Ticket) {
        self.running = None;
        self.fixed = None;
        self.decision = None;
        self.policies.iter_mut().for_each(FrequencyPolicy::free);
        self.flight = Some((ticket, Flight::Release));
    }

    /// Puts back what a release could not reach: policies whose CPUs were offline then, or that were not listed.
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
        let grid = self.range().and_then(|range| Grid::new(range, self.step_size()));
        let Some(grid) = grid else { return };
        let rest = self.mean_of_the_rest(mean);
        let order = throttle::PolicySequence::of_seats(&self.seats);
        for (policy, limit) in self.policies.iter_mut().zip(order.spread(rest, &grid)) {
            let floor = policy.floor();
            policy.limit(limit.within(floor, policy.ceiling.unwrap_or(floor)));
        }
    }

    /// What those policies are to have that obey, so that the mean of all is `mean`: what refused its last order and can be
    /// read stands where it is. Without this the loop would come to rest above the cap. It is asked again all the same.
    fn mean_of_the_rest(&self, mean: KiloHertz) -> KiloHertz {
        let stuck = self.policies.iter().filter(|policy| matches!(policy.due, Due::Done(Err(_))));
        let (mut left, mut count) = (0_i128, 0_i128);
        self.policies.iter().for_each(|_| {
            left = left.saturating_add(i128::from(mean.to_bits()));
            count = count.saturating_add(1);
        });
        for found in stuck.filter_map(FrequencyPolicy::stands_at) {
            left = left.saturating_sub(i128::from(found.to_bits()));
            count = count.saturating_sub(1);
        }
        let rest = left.checked_div(count).and_then(|rest| i64::try_from(rest.max(0)).ok());
        rest.map_or(mean, KiloHertz::from_bits)
    }

    /// Answers another writer who raised frequencies: a loop starts anew from what it finds, since it must not take the
    /// power of somebody else's limit for that of its own; a fixed share is put back, for a while at once and then now
    /// and then. On how many policies a loop saw it begin.
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

    /// Limits again what a fixed share should hold and does not: somebody else raised it, its processors were offline
    /// then, or it was not listed. For a while at once, and then now and then.
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

    /// The largest throttle that limits no more policies than are found at their lowest frequency.
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

/// What a law that is not there decides.
const NOTHING: law::Decision = law::Decision {
    action: LawAction::Hold(law::Hold::NoRange),
    command: None,
    in_effect: None,
    observed: None,
    smoothed: None,
    counts: None,
    reach: law::Reach::Unknown,
};

/// How many there are. That of the standard library can overflow, and then it panics.
fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    all.fold(0, |count: u32, _| count.saturating_add(1))
}

/// The mean, rounded down; nothing of nothing.
fn mean(all: impl Iterator<Item = KiloHertz>) -> Option<KiloHertz> {
    let (mut sum, mut count) = (0_i128, 0_i128);
    for frequency in all {
        sum = sum.saturating_add(i128::from(frequency.to_bits()));
        count = count.saturating_add(1);
    }
    let mean = sum.checked_div(count)?;
    i64::try_from(mean).ok().map(KiloHertz::from_bits)
}
