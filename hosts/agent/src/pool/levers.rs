//! What is controlled on a remote node, and the laws that decide: the same as on a host, with another way to the device.
//!
//! One endpoint stands for all packages of a node and one for all its GPUs, so all of them have one limit; the laws see
//! as many packages as there are, because caps are per package and the closed loop compares with the sum. A throttle
//! that was set over HTTP is lifted over HTTP: nothing here ever reaches the host of the agent.

mod land;
mod share;
mod word;

use super::wire::{Action, Said, Telemetry};
use crate::machine::Drawn;
use joulie_core::node::backend::{
    BackendLaw, Decision, Facts, Mode, Package, PackageFacts, Regulation, Route, ThrottleOrder,
    ThrottleOutcome,
};
use joulie_core::node::cap::{CapRange, Desired};
use joulie_core::node::classic::{self, Classic};
use joulie_core::node::gpu_cap::{Gpu, GpuDecision, GpuFacts, GpuLaw, GpuLimits};
use joulie_core::node::law::{self, Action as Step, Command, Law, PowerReading};
use joulie_core::node::limiter::{LimitFacts, LimitOrder, LimitOutcome, Seen};
use joulie_core::node::throttle::Throttle;
use joulie_core::node::ticket::Ticket;
use land::original;
use power_hal::ErrorKind;
use power_units::{Micros, Role, Stamp, Watts};
use word::{Glance, Word};

/// The laws of all nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laws {
    pub(super) cpu: BackendLaw,
    pub(super) gpu: GpuLaw,
    pub(super) classic: Classic,
}

/// What a node has, as far as anybody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) packages: u32,
    pub(super) range: Option<CapRange>,
    pub(super) gpus: u32,
    pub(super) gpu_range: Option<CapRange>,
}

/// Which of its parts can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) meter: bool,
    pub(super) cpu: bool,
    pub(super) gpu: bool,
}

/// Whether a step begins a period, or takes in what came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    Period,
    News,
}

/// What is to be posted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// The limit of each package; `release` where it is the original.
    Cap { ticket: Ticket, watts: Watts, release: bool },
    /// The throttle.
    Throttle { ticket: Ticket, throttle: Throttle, cap: Option<Watts>, flight: Flight },
    /// The limit of each GPU.
    GpuCap { ticket: Ticket, watts: Watts, release: bool },
}

/// What a throttle is posted for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flight {
    Loop(Regulation),
    Fixed,
    Release,
}

/// The memory of one node.
pub(super) struct Levers {
    reach: Reach,
    packages: Vec<Package>,
    gpu: Option<Gpu>,
    mode: Mode,
    shape: Shape,
    original: Option<Watts>,
    gpu_original: Option<Watts>,
    running: Option<classic::Mode>,
    landed: law::Outcome,
    news: Option<ThrottleOutcome>,
    cap_news: LimitOutcome,
    gpu_news: LimitOutcome,
    /// The limits as they were last read, and when.
    seen: Seen,
    gpu_seen: Seen,
    /// What is known of a limit that was taken, and whether telemetry tells limits at all.
    word: Word,
    gpu_word: Word,
    tells: bool,
    gpu_tells: bool,
    power: PowerReading,
    /// The limits that were read back last, and those that were ordered last.
    back: [Option<Watts>; 2],
    ordered: [Option<Watts>; 2],
    /// What each package and each GPU may have of the grant, and what of it now.
    pub(super) shares: (Option<Watts>, Option<Watts>),
    most: (Option<Watts>, Option<Watts>),
    /// The throttle in force, as far as it is known.
    pub(super) throttle: Option<Throttle>,
    pub(super) law: Option<law::Decision>,
    pub(super) actions: (u64, u64),
    pub(super) cpu: Option<Decision>,
    pub(super) gpus: Option<GpuDecision>,
    pub(super) moved: u64,
}

const UNKNOWN_PACKAGE: PackageFacts =
    PackageFacts { range: CapRange::UNKNOWN, has_limit: false, limit: LimitFacts::UNKNOWN, most: None };

impl Levers {
    /// A node as it is found. What is lower than it could be is taken for ours, from before a restart: nobody else sets
    /// the limits of such a node.
    pub(super) fn adopt(reach: Reach, shape: Shape, found: Option<&Telemetry>) -> Self {
        let below =
            |limit: Option<Watts>, range: Option<CapRange>| match (limit, range.and_then(CapRange::max)) {
                (Some(limit), Some(max)) => limit < max,
                // Nobody can say, so it is put back once when nothing is desired.
                (_, _) => true,
            };
        let throttle = found.and_then(|found| found.throttle).and_then(Throttle::new);
        let capped = below(found.and_then(|found| found.cap), shape.range);
        let gpu_capped = below(found.and_then(|found| found.gpu_cap), shape.gpu_range);
        let package =
            if capped { Package::adopted(UNKNOWN_PACKAGE) } else { Package::untouched(UNKNOWN_PACKAGE) };
        let facts =
            GpuFacts { limits: GpuLimits::Range(CapRange::UNKNOWN), limit: LimitFacts::UNKNOWN, most: None };
        let gpu = if gpu_capped { Gpu::adopted(facts) } else { Gpu::untouched(facts) };
        let count = usize::try_from(shape.packages.max(1)).unwrap_or(1);
        Self {
            reach,
            packages: vec![package; count],
            gpu: (shape.gpus > 0).then_some(gpu),
            mode: Mode::start(Route::Remote, reach.cpu && throttle != Some(Throttle::NONE)),
            shape,
            original: found.and_then(|found| found.cap),
            gpu_original: found.and_then(|found| found.gpu_cap),
            running: None,
            landed: law::Outcome::Unknown,
            news: None,
            cap_news: LimitOutcome::Unknown,
            gpu_news: LimitOutcome::Unknown,
            seen: Seen::Unknown,
            gpu_seen: Seen::Unknown,
            word: Word::Known,
            gpu_word: Word::Known,
            tells: false,
            gpu_tells: false,
            power: PowerReading::Missing,
            back: [None, None],
            ordered: [None, None],
            shares: (None, None),
            most: (None, None),
            throttle,
            law: None,
            actions: (0, 0),
            cpu: None,
            gpus: None,
            moved: 0,
        }
    }

    /// The node turns out to be made otherwise than was known: what is remembered of one package holds for all of them.
    pub(super) fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        let count = usize::try_from(shape.packages.max(1)).unwrap_or(1);
        if let Some(package) = self.packages.first().copied() {
            self.packages.resize(count, package);
        }
        if shape.gpus > 0 && self.gpu.is_none() {
            let facts = GpuFacts {
                limits: GpuLimits::Range(CapRange::UNKNOWN),
                limit: LimitFacts::UNKNOWN,
                most: None,
            };
            self.gpu = Some(Gpu::adopted(facts));
        }
    }

    /// Takes in what telemetry says at the beginning of a period: nothing where nobody is to be asked, and why where it
    /// was asked for and did not come, because then no limit is known to be in force any more.
    pub(super) fn sense(&mut self, told: Result<Option<&Telemetry>, ErrorKind>, now: Stamp) {
        let at = |limit: fn(&Telemetry) -> Option<Watts>| match told.map(|it| it.and_then(limit)) {
            Ok(Some(limit)) => Seen::At { limit, read: now },
            Ok(None) => Seen::Unknown,
            Err(kind) => Seen::Unread(kind),
        };
        (self.seen, self.gpu_seen) = (at(|it| it.cap), at(|it| it.gpu_cap));
        let telemetry = told.ok().flatten();
        let [back, gpu_back] = &mut self.back;
        *back = telemetry.and_then(|it| it.cap).or(*back);
        *gpu_back = telemetry.and_then(|it| it.gpu_cap).or(*gpu_back);
        self.power = match telemetry.map(|it| it.cpu) {
            Some(Said::Watts(watts)) => PowerReading::Fresh { watts, over: Micros::ZERO },
            Some(Said::Impossible) => PowerReading::Impossible,
            Some(Said::Nothing) | None => PowerReading::Missing,
        };
        self.judge(told, now);
    }

    /// Takes in what telemetry says of limits that a control took without a word.
    fn judge(&mut self, told: Result<Option<&Telemetry>, ErrorKind>, now: Stamp) {
        let telemetry = told.ok().flatten();
        if let Ok(told) = told {
            self.tells = told.is_some_and(|it| it.cap.is_some());
            self.gpu_tells = told.is_some_and(|it| it.gpu_cap.is_some());
        }
        let drawn = |said: Option<Said>| match said.and_then(Said::watts) {
            Some(watts) => Drawn::Is(watts),
            None if self.reach.meter => Drawn::Unknown,
            None => Drawn::Unmetered,
        };
        let cpu = Glance {
            told: telemetry.and_then(|it| it.cap),
            drawn: drawn(telemetry.map(|it| it.cpu)),
            count: self.shape.packages,
            throttled: self.is_throttled(),
            now,
        };
        let gpus = Glance {
            told: telemetry.and_then(|it| it.gpu_cap),
            drawn: drawn(telemetry.map(|it| it.gpu)),
            count: self.shape.gpus,
            throttled: false,
            now,
        };
        if let Some(news) = self.word.look(&cpu) {
            self.cap_news = news;
        }
        let awaited = matches!(self.gpu_word, Word::Awaited { .. });
        // Nothing else could hold the GPUs, so a limit that does not show stays set, and is only not called in force.
        if let Some(news) = self.gpu_word.look(&gpus).filter(|_| awaited) {
            self.gpu_news = news;
        }
    }

    /// Whether a throttle of ours is known to be in force.
    fn is_throttled(&self) -> bool {
        self.throttle.is_some_and(|throttle| throttle != Throttle::NONE)
    }

    /// One step of all laws; what is to be posted, the safest first: what lowers, before what lets go.
    pub(super) fn step(
        &mut self,
        laws: &Laws,
        (now, occasion): (Stamp, Occasion),
        (cpu, gpu): (Desired, Desired),
    ) -> Vec<Order> {
        let limit = LimitFacts {
            outcome: std::mem::replace(&mut self.cap_news, LimitOutcome::Unknown),
            seen: self.seen,
        };
        let range = self.shape.range.unwrap_or(CapRange::UNKNOWN);
        for package in &mut self.packages {
            package.facts = PackageFacts { range, has_limit: self.reach.cpu, limit, most: self.most.0 };
        }
        let throttle = self.reach.cpu.then(|| self.news.take().unwrap_or(ThrottleOutcome::Unknown));
        let facts = Facts { now, desired: cpu, throttle, has_meter: self.reach.meter };
        let decision = laws.cpu.step(&mut self.mode, &mut self.packages, &facts);
        self.moved += u64::from(decision.moved.min(1));
        self.cpu = Some(decision);
        let mut orders: Vec<Order> = self.cap_order().into_iter().collect();
        orders.extend(self.throttle_order(laws, (now, occasion), &decision));
        orders.extend(self.gpu_step(laws, now, gpu));
        for order in &orders {
            match order {
                Order::Cap { watts, .. } => self.ordered[0] = Some(*watts),
                Order::GpuCap { watts, .. } => self.ordered[1] = Some(*watts),
                Order::Throttle { .. } => {}
            }
        }
        orders
    }

    /// All packages have the same limit and the same facts, so they have the same order.
    fn cap_order(&self) -> Option<Order> {
        let package = self.packages.first()?;
        let ticket = package.limiter().ticket();
        match package.order() {
            LimitOrder::Leave => None,
            LimitOrder::Set(watts) => Some(Order::Cap { ticket, watts, release: false }),
            LimitOrder::Release => {
                let watts = original(self.shape.range, self.original)?;
                Some(Order::Cap { ticket, watts, release: true })
            }
        }
    }

    fn throttle_order(
        &mut self,
        laws: &Laws,
        (now, occasion): (Stamp, Occasion),
        decision: &Decision,
    ) -> Option<Order> {
        let ticket = decision.ticket;
        match decision.throttle {
            ThrottleOrder::Leave => None,
            ThrottleOrder::RunLoop { cap } if occasion == Occasion::Period => {
                self.loop_step(&laws.classic, (now, ticket), cap)
            }
            ThrottleOrder::RunLoop { .. } => None,
            ThrottleOrder::Set(throttle) => {
                (self.running, self.law) = (None, None);
                let kept = Throttle::ALL.get().saturating_sub(throttle.get());
                let cap = match self.power {
                    // For whoever reads it only: what is kept of what is drawn now.
                    PowerReading::Fresh { watts, .. } => watts.part_of_hundred(kept),
                    PowerReading::Missing | PowerReading::Stale | PowerReading::Impossible => None,
                };
                Some(Order::Throttle { ticket, throttle, cap, flight: Flight::Fixed })
            }
            ThrottleOrder::Release => {
                (self.running, self.law) = (None, None);
                let (throttle, cap) = (Throttle::NONE, None);
                Some(Order::Throttle { ticket, throttle, cap, flight: Flight::Release })
            }
        }
    }

    fn loop_step(&mut self, law: &Classic, (now, ticket): (Stamp, Ticket), cap: Watts) -> Option<Order> {
        let found = Command::Throttle(self.throttle.unwrap_or(Throttle::NONE));
        let mut mode = self.running.take().unwrap_or_else(|| law.start(Some(found)));
        let facts = law::Facts {
            now,
            cap: Some(cap),
            power: self.power,
            effective: None,
            range: None,
            outcome: std::mem::replace(&mut self.landed, law::Outcome::Unknown),
        };
        let decision = law.step(&mut mode, &facts);
        (self.running, self.law) = (Some(mode), Some(decision));
        match decision.action {
            Step::ThrottleUp | Step::FailSafe => self.actions.0 += 1,
            Step::ThrottleDown => self.actions.1 += 1,
            Step::Hold(_) => {}
        }
        let regulation = Regulation::of(self.power, &decision);
        match decision.command {
            Some(Command::Throttle(throttle)) => {
                let (cap, flight) = (Some(cap), Flight::Loop(regulation));
                Some(Order::Throttle { ticket, throttle, cap, flight })
            }
            Some(Command::MeanFrequency(_)) | None => {
                self.news = Some(ThrottleOutcome::Loop { ticket, outcome: Ok(regulation) });
                None
            }
        }
    }

    fn gpu_step(&mut self, laws: &Laws, now: Stamp, desired: Desired) -> Option<Order> {
        let outcome = std::mem::replace(&mut self.gpu_news, LimitOutcome::Unknown);
        let range = self.shape.gpu_range.unwrap_or(CapRange::UNKNOWN);
        let facts = GpuFacts {
            limits: GpuLimits::Range(range),
            limit: LimitFacts { outcome, seen: self.gpu_seen },
            most: self.most.1,
        };
        if let Some(gpu) = &mut self.gpu {
            gpu.facts = facts;
        }
        let decision = laws.gpu.step(self.gpu.as_mut_slice(), now, desired);
        self.moved += u64::from(decision.moved);
        self.gpus = Some(decision);
        let gpu = self.gpu?;
        let ticket = gpu.limiter().ticket();
        match gpu.order() {
            LimitOrder::Leave => None,
            LimitOrder::Set(watts) => Some(Order::GpuCap { ticket, watts, release: false }),
            LimitOrder::Release => {
                let watts = original(self.shape.gpu_range, self.gpu_original)?;
                Some(Order::GpuCap { ticket, watts, release: true })
            }
        }
    }
}

impl Order {
    /// What is posted.
    pub(super) const fn action(self) -> Action {
        match self {
            Self::Cap { watts, .. } => Action::Cap(watts),
            Self::Throttle { throttle, cap, .. } => Action::Throttle { percent: throttle.get(), cap },
            Self::GpuCap { watts, .. } => Action::GpuCap(watts),
        }
    }
}

/// A share of a quantity, for people.
trait Share: Sized {
    fn part_of_hundred(self, percent: u8) -> Option<Self>;
}

impl Share for Watts {
    fn part_of_hundred(self, percent: u8) -> Option<Self> {
        let percent = power_units::Percent::from_int(i32::from(percent));
        Some(self.scale(percent.to_ratio(Role::Nearest), Role::Nearest))
    }
}

#[cfg(test)]
mod tests;
