//! The throttle of the node: its frequency policies as one, and the closed loop over them.
//!
//! The laws speak of a share of the policies or of a mean frequency; here that becomes one order for each policy, and
//! what was read back of all of them becomes one outcome. A policy whose CPUs are all offline answers that it is busy:
//! it draws nothing, its limit is in force again when a CPU comes back, and it does not make the others fail.

mod policy;

use self::policy::{Due, Policy};
use crate::unit::Place;
use crate::worker::Worker;
use crate::{Journal, LoopLaw};
use joulie_core::node::backend::{Regulation, ThrottleOutcome};
use joulie_core::node::energy::Reading;
use joulie_core::node::law::{self, Command, FrequencyRange, Law};
use joulie_core::node::throttle::dither::Grid;
use joulie_core::node::throttle::{self, Seat, Throttle};
use joulie_core::node::ticket::Ticket;
use joulie_core::node::{classic, tracking};
use power_hal::{DomainKind, ErrorKind};
use power_units::{KiloHertz, Stamp, Watts};

/// All frequency policies of the node that have a limit.
#[derive(Debug, Default)]
pub(crate) struct Curb {
    pub(crate) policies: Vec<Policy>,
    seats: Vec<Seat>,
    /// What is on its way, and the ticket of the law's order for it.
    flight: Option<(Ticket, Flight)>,
    running: Option<Running>,
    /// The fixed share that was last ordered, and its ticket, until something else was.
    fixed: Option<(Ticket, Throttle)>,
    /// What became of the law's last command, told once.
    landed: Option<law::Outcome>,
    /// What became of the throttle, told once.
    news: Option<ThrottleOutcome>,
    /// The law's last decision, for people.
    pub(crate) decision: Option<law::Decision>,
    /// How often another writer was seen to have raised a limit of ours.
    pub(crate) moved: u64,
    /// In so many periods in a row somebody moved what was put back.
    contested: u32,
}

/// Orders for many policies that belong together.
#[derive(Clone, Copy, Debug)]
enum Flight {
    Fixed,
    Loop(Command, Regulation),
    Release,
}

/// The memory of the law that runs.
#[derive(Debug)]
enum Running {
    Classic(classic::Mode),
    Tracking(tracking::Mode),
}

/// What a step of the loop looks at.
pub(crate) struct Sight {
    pub(crate) now: Stamp,
    pub(crate) cap: Watts,
    pub(crate) power: Reading,
    pub(crate) ticket: Ticket,
}

/// So many times in a row a limit that somebody raised is put back at once, and after that every so many periods.
const CONTEST: u32 = 5;
const TRUCE: u32 = 60;

impl Curb {
    /// The policies that the backends list now, with what was known of them before. A throttle limits none of them
    /// below `floor`.
    pub(crate) fn of(workers: &[Worker], before: &Self, floor: Option<KiloHertz>) -> Self {
        let mut policies = Vec::new();
        let mut places = Vec::new();
        for (worker, from) in workers.iter().enumerate() {
            for (domain, described) in from.view.domains.iter().enumerate() {
                let (DomainKind::Policy, Some(limit), Some(covers)) =
                    (described.key().kind(), described.frequency(), described.covers())
                else {
                    continue;
                };
                let known = before.policies.iter().find(|policy| policy.key == *described.key());
                places.push(throttle::Place { package: covers.package(), core: u32::from(covers.group()) });
                policies.push(Policy {
                    key: *described.key(),
                    backend: from.kind,
                    place: Place { worker, domain },
                    floor: floor.map_or(limit.lower(), |floor| floor.within(limit.lower(), limit.upper())),
                    ceiling: known.and_then(|known| known.ceiling),
                    most: limit.upper(),
                    step: limit.step(),
                    asked: known.and_then(|known| known.asked),
                    ticket: known.map_or(Ticket::NONE, |known| known.ticket),
                    due: Due::Nothing,
                    learned: known.and_then(|known| known.learned),
                });
            }
        }
        let mut seats = vec![Seat::EMPTY; places.len()];
        // There is a seat for each place, so it does rank.
        let _ranked = throttle::Order::new(&places, &mut seats);
        Self { policies, seats, moved: before.moved, ..Self::default() }
    }

    /// The same law goes on with another list of policies; an order that was on its way is lost.
    pub(crate) fn goes_on(&mut self, before: Self, workers: &[Worker]) {
        self.running = before.running;
        self.fixed = before.fixed;
        self.decision = before.decision;
        self.landed = before.landed;
        self.news = before.news;
        if let Some(flight) = before.flight {
            self.land(flight, Err(ErrorKind::Gone), workers);
        }
    }

    pub(crate) fn exists(&self) -> bool {
        !self.policies.is_empty()
    }

    /// Whether the journal holds the original of any policy.
    pub(crate) fn is_touched(&self, journal: &Journal) -> bool {
        self.policies.iter().any(|policy| policy.is_touched(journal))
    }

    /// Whether orders are on their way.
    pub(crate) const fn is_busy(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether the closed loop runs.
    pub(crate) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Takes in what came back, and says what became of the throttle, once.
    pub(crate) fn learn(&mut self, workers: &mut [Worker], now: Stamp) -> ThrottleOutcome {
        for policy in &mut self.policies {
            policy.learn(workers, now);
        }
        if let Some(flight) = self.flight
            && self.policies.iter().all(|policy| policy.due != Due::Waiting)
        {
            self.flight = None;
            let outcome = self.verdict();
            self.land(flight, outcome, workers);
        }
        self.news.take().unwrap_or(ThrottleOutcome::Unknown)
    }

    /// The worst that came back, but for policies whose CPUs are offline.
    fn verdict(&self) -> Result<(), ErrorKind> {
        let failures = self.policies.iter().filter_map(|policy| match policy.due {
            Due::Done(Err(kind)) if kind != ErrorKind::Busy => Some(kind),
            Due::Done(_) | Due::Nothing | Due::Waiting => None,
        });
        failures.max().map_or(Ok(()), Err)
    }

    fn land(
        &mut self,
        (ticket, flight): (Ticket, Flight),
        outcome: Result<(), ErrorKind>,
        workers: &[Worker],
    ) {
        self.news = Some(match flight {
            Flight::Fixed => ThrottleOutcome::Fixed { ticket, outcome },
            Flight::Release => ThrottleOutcome::Released { ticket, outcome },
            Flight::Loop(asked, regulation) => {
                self.landed = Some(self.landing(asked, outcome, workers));
                ThrottleOutcome::Loop { ticket, outcome: outcome.map(|()| regulation) }
            }
        });
    }

    /// What a law is told of its command. Of a mean frequency it is told what stands, also where some policies refused.
    fn landing(&self, asked: Command, outcome: Result<(), ErrorKind>, workers: &[Worker]) -> law::Outcome {
        match (asked, outcome) {
            (Command::MeanFrequency(_), _) => match self.mean_in_force(workers) {
                Some(mean) => law::Outcome::Applied { asked, in_effect: Command::MeanFrequency(mean) },
                None => law::Outcome::Refused { asked },
            },
            (Command::Throttle(_), Ok(())) => law::Outcome::Applied { asked, in_effect: asked },
            (Command::Throttle(_), Err(_)) => law::Outcome::Refused { asked },
        }
    }

    /// The mean of what was read back; of a policy that refused, what it reads: a law that took its order for obeyed
    /// would wait for a frequency that does not come down. One that answers nothing has no part in it, as it has none in
    /// the frequency that the law is told.
    fn mean_in_force(&self, workers: &[Worker]) -> Option<KiloHertz> {
        let any = self.policies.iter().any(|policy| matches!(policy.due, Due::Done(Ok(_))));
        let stands = self.policies.iter().filter_map(|policy| match policy.due {
            Due::Done(Ok(Some(found))) => Some(found),
            Due::Done(Err(_)) => policy.stands_at(workers),
            Due::Done(Ok(None)) | Due::Nothing | Due::Waiting => {
                Some(policy.asked.or(policy.ceiling).unwrap_or(policy.most))
            }
        });
        if any { mean(stands) } else { None }
    }

    /// Takes one step of the closed loop. A loop that was not running starts from what it finds.
    pub(crate) fn step(&mut self, law: &LoopLaw, sight: &Sight, workers: &[Worker], journal: &Journal) {
        self.fixed = None;
        if self.running.is_none() {
            // Between two runs of a loop the originals are back, and an administrator may have set other limits.
            self.policies.iter_mut().for_each(|policy| policy.ceiling = None);
        }
        self.find_ceilings(workers, journal);
        let running = self.running.take().unwrap_or_else(|| self.start(law, workers));
        let facts = law::Facts {
            now: sight.now,
            cap: Some(sight.cap),
            power: sight.power.into(),
            effective: self.effective(workers),
            range: self.range(),
            outcome: self.landed.take().unwrap_or(law::Outcome::Unknown),
        };
        let (running, decision) = match (law, running) {
            (LoopLaw::Classic(law), Running::Classic(mut mode)) => {
                let decision = law.step(&mut mode, &facts);
                (Running::Classic(mode), decision)
            }
            (LoopLaw::Tracking(law), Running::Tracking(mut mode)) => {
                let decision = law.step(&mut mode, &facts);
                (Running::Tracking(mode), decision)
            }
            // The law of a node does not change while it runs.
            (LoopLaw::Classic(_), Running::Tracking(_)) | (LoopLaw::Tracking(_), Running::Classic(_)) => {
                return;
            }
        };
        self.running = Some(running);
        self.decision = Some(decision);
        let regulation = Regulation::of(facts.power, &decision);
        match decision.command {
            Some(command) => {
                self.carry_out(command, workers, journal);
                self.flight = Some((sight.ticket, Flight::Loop(command, regulation)));
            }
            // While orders are on their way, nobody knows what became of the loop.
            None if self.flight.is_none() => {
                self.news = Some(ThrottleOutcome::Loop { ticket: sight.ticket, outcome: Ok(regulation) });
            }
            None => {}
        }
    }

    fn carry_out(&mut self, command: Command, workers: &[Worker], journal: &Journal) {
        match command {
            Command::Throttle(throttle) => self.limit_share(throttle, workers, journal),
            Command::MeanFrequency(mean) => self.spread(mean, workers),
        }
    }

    /// Throttles by a fixed share; the closed loop ends.
    pub(crate) fn set(&mut self, fixed: (Ticket, Throttle), workers: &[Worker], journal: &Journal) {
        self.running = None;
        self.decision = None;
        self.fixed = Some(fixed);
        let (ticket, throttle) = fixed;
        self.limit_share(throttle, workers, journal);
        self.flight = Some((ticket, Flight::Fixed));
    }

    /// Puts the original frequencies back; the closed loop ends.
    pub(crate) fn release(&mut self, ticket: Ticket, workers: &[Worker], journal: &Journal) {
        self.running = None;
        self.fixed = None;
        self.decision = None;
        for policy in &mut self.policies {
            policy.free(workers, journal);
        }
        self.flight = Some((ticket, Flight::Release));
    }

    /// Puts back what a release could not reach: policies whose CPUs were offline then, or that were not listed.
    pub(crate) fn free_the_rest(&mut self, workers: &[Worker], journal: &Journal) {
        if self.flight.is_some() {
            return;
        }
        for policy in &mut self.policies {
            let answers = policy.due != Due::Waiting && policy.in_force(workers).is_some();
            if answers && policy.is_touched(journal) {
                policy.free(workers, journal);
            }
        }
    }

    fn limit_share(&mut self, throttle: Throttle, workers: &[Worker], journal: &Journal) {
        let order = throttle::Order::of_seats(&self.seats);
        for (policy, limited) in self.policies.iter_mut().zip(order.throttled(throttle)) {
            if limited { policy.limit(policy.floor, workers) } else { policy.free(workers, journal) }
        }
    }

    fn spread(&mut self, mean: KiloHertz, workers: &[Worker]) {
        let grid = self.range().and_then(|range| Grid::new(range, self.step_size()));
        let Some(grid) = grid else { return };
        let rest = self.mean_of_the_rest(mean, workers);
        let order = throttle::Order::of_seats(&self.seats);
        for (policy, limit) in self.policies.iter_mut().zip(order.spread(rest, &grid)) {
            policy.limit(limit.within(policy.floor, policy.ceiling.unwrap_or(policy.floor)), workers);
        }
    }

    /// What those policies are to have that obey, so that the mean of all is `mean`: what refused its last order and can be
    /// read stands where it is. Without this the loop would come to rest above the cap. It is asked again all the same.
    fn mean_of_the_rest(&self, mean: KiloHertz, workers: &[Worker]) -> KiloHertz {
        let stuck = self.policies.iter().filter(|policy| matches!(policy.due, Due::Done(Err(_))));
        let (mut left, mut count) = (0_i128, 0_i128);
        self.policies.iter().for_each(|_| {
            left += i128::from(mean.to_bits());
            count += 1;
        });
        for found in stuck.filter_map(|policy| policy.stands_at(workers)) {
            left -= i128::from(found.to_bits());
            count -= 1;
        }
        let rest = left.checked_div(count).and_then(|rest| i64::try_from(rest.max(0)).ok());
        rest.map_or(mean, KiloHertz::from_bits)
    }

    /// Answers another writer who raised frequencies: a loop starts anew from what it finds, since it must not take the
    /// power of somebody else's limit for that of its own; a fixed share is put back, for a while at once and then now
    /// and then.
    pub(crate) fn answer_others(&mut self, workers: &[Worker], journal: &Journal) {
        if self.flight.is_some() {
            return;
        }
        if let Some(fixed) = self.fixed {
            return self.hold_share(fixed, workers, journal);
        }
        let raised = self.policies.iter().filter(|policy| policy.was_raised(workers)).count();
        if raised == 0 {
            self.contested = 0;
            return;
        }
        self.moved += u64::try_from(raised).unwrap_or(u64::MAX);
        self.contested += 1;
        if self.contested == 1 {
            log::warn!("somebody else has raised the frequency limit of {raised} policies");
        }
        self.running = None;
        self.policies
            .iter_mut()
            .filter(|policy| policy.was_raised(workers))
            .for_each(|policy| policy.asked = None);
    }

    /// Limits again what a fixed share should hold and does not: somebody else raised it, its processors were offline
    /// then, or it was not listed. For a while at once, and then now and then.
    fn hold_share(&mut self, fixed: (Ticket, Throttle), workers: &[Worker], journal: &Journal) {
        let order = throttle::Order::of_seats(&self.seats);
        let slips = |(policy, limited): (&Policy, bool)| limited && policy.slips(workers);
        let slipped =
            self.policies.iter().zip(order.throttled(fixed.1)).map(slips).filter(|slips| *slips).count();
        if slipped == 0 {
            self.contested = 0;
            return;
        }
        self.moved += u64::try_from(slipped).unwrap_or(u64::MAX);
        self.contested += 1;
        if self.contested <= CONTEST || self.contested.is_multiple_of(TRUCE) {
            self.set(fixed, workers, journal);
        }
    }

    fn start(&self, law: &LoopLaw, workers: &[Worker]) -> Running {
        match law {
            LoopLaw::Classic(law) => {
                let found = self.found_share(workers);
                Running::Classic(law.start(Some(Command::Throttle(found))))
            }
            LoopLaw::Tracking(law) => {
                let in_force = self.policies.iter().map(|policy| policy.in_force(workers));
                let found = in_force.collect::<Option<Vec<_>>>().and_then(|all| mean(all.into_iter()));
                Running::Tracking(law.start(found.map(Command::MeanFrequency)))
            }
        }
    }

    /// The largest throttle that limits no more policies than are found at their lowest frequency.
    fn found_share(&self, workers: &[Worker]) -> Throttle {
        let at_floor = |policy: &&Policy| policy.in_force(workers).is_some_and(|limit| limit <= policy.floor);
        let found = self.policies.iter().filter(at_floor).count();
        let order = throttle::Order::of_seats(&self.seats);
        let shares = (0..=100).rev().filter_map(Throttle::new);
        let fits = |share: &Throttle| order.throttled(*share).filter(|limited| *limited).count() <= found;
        shares.into_iter().find(fits).unwrap_or(Throttle::NONE)
    }

    /// What is in force before the first write is what a policy may rise to: an administrator may have set less than the
    /// hardware can do. Where neither the journal nor a reading tells, it rises to nothing until one does. What could not
    /// be written is looked at again: until it can be, an administrator may still change it.
    fn find_ceilings(&mut self, workers: &[Worker], journal: &Journal) {
        for policy in self.policies.iter_mut().filter(|policy| !policy.is_settled()) {
            let before = policy.original(journal);
            let found = before.or_else(|| policy.in_force(workers));
            policy.ceiling = found.map(|found| found.within(policy.floor, policy.most)).or(policy.ceiling);
        }
    }

    fn range(&self) -> Option<FrequencyRange> {
        let min = self.policies.iter().map(|policy| policy.floor).min()?;
        let max = self.policies.iter().filter_map(|policy| policy.ceiling).max().unwrap_or(min);
        FrequencyRange::new(min, max)
    }

    fn step_size(&self) -> KiloHertz {
        let coarsest = self.policies.iter().map(|policy| policy.step).max();
        coarsest.unwrap_or(KiloHertz::ZERO).max(KiloHertz::from_int(1))
    }

    fn effective(&self, workers: &[Worker]) -> Option<KiloHertz> {
        mean(self.policies.iter().filter_map(|policy| policy.reading(workers)?.frequency.ok()))
    }
}

/// The mean, rounded down; nothing of nothing.
fn mean(all: impl Iterator<Item = KiloHertz>) -> Option<KiloHertz> {
    let (mut sum, mut count) = (0_i128, 0_i128);
    for frequency in all {
        sum += i128::from(frequency.to_bits());
        count += 1;
    }
    let mean = sum.checked_div(count)?;
    i64::try_from(mean).ok().map(KiloHertz::from_bits)
}
