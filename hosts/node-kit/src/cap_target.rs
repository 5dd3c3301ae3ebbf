//! The targets of caps, packages and GPUs, each with the locations of its limit and of its meter.
//!
//! A package may be described by two backends, with a counter in one and a limit in another (an EPYC socket). If any
//! domain of a package has a limit, those domains are its targets. If none has, the metered ones are, so that the
//! closed loop knows them. A package of which only frequency policies are known is a target with neither: caps are per
//! package.

mod state;

use crate::worker::{Order, Outcome, Worker, setting_of};
use crate::{BackendKind, Journal};
use joulie_core::node::backend::PackageFacts;
use joulie_core::node::cap::CapRange;
use joulie_core::node::demand::{DeviceDraw, ThrottleReading};
use joulie_core::node::energy::{Baseline, CounterSample, EnergyMeter, Gap, MeterReading, Oddity};
use joulie_core::node::engine::{EngineOrder, Instruction};
use joulie_core::node::gpu_cap::{GpuFacts, GpuLimits};
use joulie_core::node::limiter::{LimitFacts, LimitOutcome, LimitReading};
use power_hal::{
    Control, Counter, Domain, DomainKind, ErrorKind, Key, Measured, Meter, Setting, StateReadings,
};
use power_units::{MicroJoules, Micros, Role, Stamp, Watts};
use state::{DramTarget, StateTarget};
use std::collections::BTreeSet;

/// A domain of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The index of the backend in the list of workers.
    pub(crate) worker: usize,
    /// The index of the domain in its list.
    pub(crate) domain: usize,
}

/// A package or a GPU.
#[derive(Clone, Debug)]
pub(crate) struct CapTarget {
    /// Its key: that of its limit's domain, else that of its meter's.
    pub(crate) key: Key,
    /// The backend of that domain.
    pub(crate) backend: Option<BackendKind>,
    /// The location of its limit; `None` if it has none, or while it is gone.
    pub(crate) limit: Option<Place>,
    /// Whether it has, or had, a limit.
    pub(crate) has_limit: bool,
    pub(crate) described: Option<Domain>,
    pub(crate) meter: Option<Place>,
    gauge: Gauge,
    /// Its power as of the last period.
    pub(crate) power: MeterReading,
    /// The value of its counter in the last period.
    pub(crate) energy: Option<MicroJoules>,
    /// The last known power, and its time.
    last_fresh: Option<(Stamp, MeterReading)>,
    /// The counter of its memory, if it has one.
    pub(crate) dram: Option<DramTarget>,
    /// What it reports beside its power.
    pub(crate) state: Option<StateTarget>,
    pub(crate) in_force: Option<Watts>,
}

/// How a meter's values are converted to power.
#[derive(Clone, Copy, Debug)]
enum Gauge {
    None,
    Counter { meter: EnergyMeter, baseline: Baseline },
    Power { stale_after: Micros },
}

/// More than any package or GPU draws, if its own maximum is not known.
const POWER_MOST: Watts = Watts::from_int(4_000);

/// The targets of packages and of GPUs, from the current lists of all backends.
pub(crate) fn cap_targets(workers: &[Worker], period: Micros) -> (Vec<CapTarget>, Vec<CapTarget>) {
    let all: Vec<(Place, &Domain, BackendKind)> = workers
        .iter()
        .enumerate()
        .flat_map(|(worker, from)| {
            let list = from.view.domains.iter().enumerate();
            list.map(move |(domain, described)| (Place { worker, domain }, described, from.kind))
        })
        .collect();
    let is_package = |domain: &Domain| match domain.key().kind() {
        DomainKind::Package | DomainKind::Socket => true,
        DomainKind::Policy | DomainKind::Gpu => false,
    };
    let mut packages = Vec::new();
    let mut numbers = BTreeSet::new();
    for (_, domain, _) in &all {
        numbers.extend(domain.package_number());
    }
    for number in numbers {
        let of_it: Vec<_> = all
            .iter()
            .filter(|(_, domain, _)| domain.package_number() == Some(number) && is_package(domain))
            .collect();
        let limited: Vec<_> = of_it.iter().filter(|(_, domain, _)| domain.power().is_some()).collect();
        let mut metered: Vec<_> = of_it.iter().filter(|(_, domain, _)| domain.meter().is_some()).collect();
        // A counter of energy is exact over any span, and is refreshed each millisecond: where those of a package answer,
        // all of them, they go before its power meters.
        let counter = |domain: &Domain| match domain.meter() {
            Some(Meter::Energy(counter)) => Some(counter),
            Some(Meter::Power) | None => None,
        };
        let answers = |(place, domain, _): &&&&(Place, &Domain, BackendKind)| {
            let reading = &workers[place.worker].view.readings[place.domain];
            counter(domain).is_some_and(|counter| counter.modulus().is_some())
                && matches!(reading, Ok(power_hal::Sample { meter: Ok(Measured::Energy(_)), .. }))
        };
        let counters = metered.iter().filter(|(_, domain, _)| counter(domain).is_some());
        if counters.clone().count() > 0 && counters.clone().all(|one| answers(&one)) {
            metered.retain(|(_, domain, _)| counter(domain).is_some());
        }
        let chosen = if limited.is_empty() { &metered } else { &limited };
        for &&&(place, domain, backend) in chosen {
            let own = domain.meter().is_some().then_some((place, domain));
            // The limit uses the meter of its package, if the package has no other limit.
            let sole = match (metered.as_slice(), chosen.len()) {
                (&[&&(meter, of, _)], 1) => Some((meter, of)),
                _ => None,
            };
            let mut target = CapTarget::new(place, domain, backend, sole.or(own), period);
            // As for its meter: what another backend reports of the package is of this one, if it is the only one.
            for &&(other, of, _) in of_it.iter().filter(|_| chosen.len() == 1) {
                target.report_from(other, of, period);
            }
            packages.push(target);
        }
        if chosen.is_empty() {
            packages.push(CapTarget::bare(Key::package(number, None)));
        }
    }
    let gpus = all.iter().filter(|(_, domain, _)| domain.key().kind() == DomainKind::Gpu);
    let gpus = gpus.map(|&(place, domain, backend)| {
        let own = domain.meter().is_some().then_some((place, domain));
        CapTarget::new(place, domain, backend, own, period)
    });
    (packages, gpus.collect())
}

impl CapTarget {
    fn new(
        place: Place,
        domain: &Domain,
        backend: BackendKind,
        meter: Option<(Place, &Domain)>,
        period: Micros,
    ) -> Self {
        let has_limit = domain.power().is_some();
        let stale_after = stale_after(period);
        let gauge = match meter.and_then(|(_, of)| of.meter()) {
            None => Gauge::None,
            Some(Meter::Power) => Gauge::Power { stale_after },
            Some(Meter::Energy(counter)) => Gauge::of_counter(counter, most(domain), period, stale_after),
        };
        let mut target = Self {
            backend: Some(backend),
            limit: has_limit.then_some(place),
            has_limit,
            described: Some(*domain),
            meter: meter.map(|(place, _)| place),
            gauge,
            ..Self::bare(*domain.key())
        };
        target.report_from(place, domain, period);
        target
    }

    /// Takes what a domain reports beside its power, unless another one reports it already.
    fn report_from(&mut self, place: Place, domain: &Domain, period: Micros) {
        if self.dram.is_none() {
            self.dram = DramTarget::new(place, domain, period, stale_after(period));
        }
        let reports = domain.throttled().is_some() || domain.readings() != StateReadings::NONE;
        if self.state.is_none() && reports {
            self.state = Some(StateTarget::new(place, domain, stale_after(period)));
        }
    }

    const fn bare(key: Key) -> Self {
        Self {
            key,
            backend: None,
            limit: None,
            has_limit: false,
            described: None,
            meter: None,
            gauge: Gauge::None,
            power: MeterReading::Missing(Gap::NoMeter),
            energy: None,
            last_fresh: None,
            dram: None,
            state: None,
            in_force: None,
        }
    }

    /// Whether only its existence is known.
    pub(crate) const fn is_bare(&self) -> bool {
        self.backend.is_none()
    }

    /// Takes over the state of the same target from before the hardware was listed again.
    pub(crate) fn goes_on(&mut self, before: &Self) {
        self.gauge.goes_on(&before.gauge);
        if let (Some(mine), Some(theirs)) = (&mut self.dram, &before.dram) {
            mine.goes_on(theirs);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.state, &before.state) {
            mine.goes_on(theirs);
        }
        self.power = before.power;
        self.last_fresh = before.last_fresh;
        self.in_force = before.in_force;
    }

    /// The target when the hardware no longer lists it.
    pub(crate) fn gone(mut self) -> Self {
        self.limit = None;
        self.meter = None;
        // What is no longer there reports nothing.
        self.dram = None;
        self.state = None;
        self
    }

    /// The number of its package.
    pub(crate) fn package_number(&self) -> Option<u16> {
        self.described.as_ref().and_then(Domain::package_number)
    }

    /// The target with the meter of another one: a package whose limit is absent still counts once.
    pub(crate) fn metered_by(mut self, other: &Self) -> Self {
        (self.meter, self.gauge) = (other.meter, other.gauge);
        (self.power, self.last_fresh) = (other.power, other.last_fresh);
        (self.dram, self.state) = (other.dram.clone(), other.state.clone());
        self
    }

    pub(crate) const fn is_metered(&self) -> bool {
        !matches!(self.gauge, Gauge::None)
    }

    /// Whether the journal holds its original.
    pub(crate) fn is_touched(&self, journal: &Journal) -> bool {
        self.backend.is_some_and(|backend| journal.holds(backend, &self.key, Control::Power))
    }

    /// The limit that its owner has set: the original, or the limit in force if nothing was written. A cap is never
    /// above it.
    pub(crate) fn owners_limit(&self, journal: &Journal) -> Option<Watts> {
        if self.is_touched(journal) {
            journal.was(self.backend?, &self.key, Control::Power).and_then(watts_of)
        } else {
            self.in_force
        }
    }

    /// The limit in force, if its owner's limit was not readable before the first write, else `None`. While the limit
    /// cannot be read, the last ordered one. Until the original is restored no cap is above it.
    pub(crate) fn stands_unknown(&self, journal: &Journal, ordered: Option<Watts>) -> Option<Watts> {
        let is_unknown = self.is_touched(journal) && self.owners_limit(journal).is_none();
        is_unknown.then(|| self.in_force.or(ordered)).flatten()
    }

    /// The facts about it as a package, with the last order `ordered`.
    pub(crate) fn package_facts(
        &self,
        limit: LimitFacts,
        journal: &Journal,
        ordered: Option<Watts>,
    ) -> PackageFacts {
        let (min, max) = self.span();
        let range = CapRange::new(min, max, None).below(self.owners_limit(journal));
        let range = range.no_more_than(self.stands_unknown(journal, ordered));
        PackageFacts { range, has_limit: self.has_limit, limit, in_force: self.in_force }
    }

    /// The facts about it as a GPU, with the last order `ordered`.
    pub(crate) fn gpu_facts(&self, limit: LimitFacts, journal: &Journal, ordered: Option<Watts>) -> GpuFacts {
        let limits = if self.has_limit {
            let (min, max) = self.span();
            let limits = GpuLimits::new(min, max).below(self.owners_limit(journal));
            limits.no_more_than(self.stands_unknown(journal, ordered))
        } else {
            GpuLimits::NoLimit
        };
        GpuFacts { limits, limit, in_force: self.in_force }
    }

    /// The range of its limit.
    fn span(&self) -> (Option<Watts>, Option<Watts>) {
        let limit = self.described.as_ref().and_then(Domain::power);
        // The lowest limit rounds up and the highest down, so that both are inside the range.
        let min = limit.and_then(|limit| limit.min()).map(|min| min.to_watts(Role::Demand));
        let max = limit.and_then(|limit| limit.max()).map(|max| max.to_watts(Role::Limit));
        (min, max)
    }

    /// Whether its power is the mean since the last reading, however short that span is.
    pub(crate) const fn is_counted(&self) -> bool {
        matches!(self.gauge, Gauge::Counter { .. })
    }

    /// The counter that its power is taken from.
    pub(crate) const fn counter(&self) -> Option<Counter> {
        match &self.gauge {
            Gauge::Counter { meter, .. } => Some(meter.counter()),
            Gauge::None | Gauge::Power { .. } => None,
        }
    }

    /// Reads its meter, once in a period.
    pub(crate) fn measure(&mut self, workers: &[Worker], now: Stamp) {
        let found = self.meter.map(|place| &workers[place.worker].view.readings[place.domain]);
        self.energy = match found {
            Some(Ok(power_hal::Sample { meter: Ok(Measured::Energy(energy)), .. })) => Some(*energy),
            Some(Ok(_) | Err(_)) | None => None,
        };
        self.power = match (&mut self.gauge, found) {
            (Gauge::None, _) => MeterReading::Missing(Gap::NoMeter),
            (Gauge::Counter { .. } | Gauge::Power { .. }, None | Some(Err(_))) => {
                MeterReading::Missing(Gap::Unread)
            }
            (Gauge::Counter { meter, baseline }, Some(Ok(sample))) => match sample.meter {
                Ok(Measured::Energy(energy)) => {
                    meter.step(baseline, now, Some(CounterSample { energy, at: sample.at }))
                }
                Ok(Measured::Power(_)) | Err(_) => MeterReading::Missing(Gap::Unread),
            },
            (Gauge::Power { stale_after }, Some(Ok(sample))) => match (sample.meter, now.since(sample.at)) {
                (Ok(Measured::Power(_)), None) => MeterReading::Impossible(Oddity::FromTheFuture),
                (Ok(Measured::Power(_)), Some(age)) if age > *stale_after => MeterReading::Stale { age },
                (Ok(Measured::Power(power)), Some(_)) => {
                    MeterReading::Fresh { watts: power.to_watts(Role::Demand), over: Micros::ZERO }
                }
                (Ok(Measured::Energy(_)) | Err(_), _) => MeterReading::Missing(Gap::Unread),
            },
        };
        self.power = bridged(self.power, &mut self.last_fresh, now);
        if let Some(dram) = &mut self.dram {
            dram.measure(workers, now);
        }
        if let Some(state) = &mut self.state {
            state.measure(workers, now);
        }
    }

    /// What the period has shown of its demand.
    pub(crate) fn draw(&self) -> DeviceDraw {
        let watts = match self.power {
            MeterReading::Fresh { watts, .. } => Some(watts),
            MeterReading::Stale { .. } | MeterReading::Missing(_) | MeterReading::Impossible(_) => None,
        };
        let throttled = self.state.as_ref().map_or(ThrottleReading::Lacking, StateTarget::throttle);
        DeviceDraw { watts, throttled }
    }

    /// The facts about its limit, with the outcome that was not reported yet.
    pub(crate) fn limit_facts(&mut self, workers: &mut [Worker]) -> LimitFacts {
        let Some(place) = self.limit else {
            self.in_force = None;
            let seen = if self.has_limit { LimitReading::Gone } else { LimitReading::Unknown };
            return LimitFacts { outcome: LimitOutcome::Unknown, seen };
        };
        let view = &mut workers[place.worker].view;
        let outcome = view.take_outcome(place.domain, Control::Power);
        let reading = &view.readings[place.domain];
        self.in_force = setting_of(reading, Control::Power).and_then(watts_of);
        let seen = match (self.in_force, reading) {
            (Some(limit), Ok(sample)) => LimitReading::At { limit, read: sample.at },
            (None, Ok(sample)) => {
                LimitReading::Unread(sample.power_limit.err().unwrap_or(ErrorKind::BadData))
            }
            (_, Err(kind)) => LimitReading::Unread(*kind),
        };
        LimitFacts { outcome: outcome.map_or(LimitOutcome::Unknown, told), seen }
    }

    /// Passes an order on. If it cannot be passed on, because the domain is gone, the law times out.
    pub(crate) fn obey(&self, order: EngineOrder, workers: &[Worker]) -> bool {
        let wanted = match order.instruction {
            Instruction::Power(watts) => Order::Set(Setting::Power(watts.to_micro_watts(Role::Limit))),
            Instruction::Limit(_) | Instruction::Release => Order::Release(Control::Power),
        };
        self.limit.is_some_and(|place| workers[place.worker].order(place.domain, order.ticket, wanted))
    }
}

/// The outcome in the form of the law.
fn told(outcome: Outcome) -> LimitOutcome {
    match outcome {
        Outcome::Released { ticket, outcome } => LimitOutcome::Released { ticket, outcome },
        Outcome::Set { ticket, read_back } => {
            let read_back = read_back.and_then(|found| watts_of(found).ok_or(ErrorKind::BadData));
            LimitOutcome::Set { ticket, read_back }
        }
    }
}

/// A limit in watts. It rounds down, as limits do, so that the read-back is never above the order.
fn watts_of(setting: Setting) -> Option<Watts> {
    match setting {
        Setting::Power(power) => Some(power.to_watts(Role::Limit)),
        Setting::Frequency(_) | Setting::Throttle(_) => None,
    }
}

/// Two readings in quick succession, as after a change of the cap, use the same value of the counter: the power of the
/// first still holds.
fn bridged(power: MeterReading, last_fresh: &mut Option<(Stamp, MeterReading)>, now: Stamp) -> MeterReading {
    match power {
        MeterReading::Fresh { .. } => {
            *last_fresh = Some((now, power));
            power
        }
        MeterReading::Missing(Gap::TooSoon) => {
            let recent = |(at, _): &(Stamp, MeterReading)| {
                now.since(*at).is_some_and(|age| age < Micros::new(1_000_000))
            };
            last_fresh.filter(recent).map_or(power, |(_, power)| power)
        }
        MeterReading::Stale { .. } | MeterReading::Missing(_) | MeterReading::Impossible(_) => power,
    }
}

/// How old a reading may be: three periods, at least of half a second.
fn stale_after(period: Micros) -> Micros {
    let each = period.max(Micros::new(500_000));
    each + each + each
}

/// Short bursts are far above the rated power of a part; a reading above twice that belongs to another counter.
fn most(domain: &Domain) -> Watts {
    let rated = domain.power().and_then(|limit| limit.max()).map(|max| max.to_watts(Role::Demand));
    rated.map_or(POWER_MOST, |rated| (rated + rated).max(Watts::from_int(500)))
}

impl Gauge {
    /// Takes over the state of the same meter from before the hardware was listed again.
    fn goes_on(&mut self, before: &Self) {
        if let (Self::Counter { baseline, .. }, Self::Counter { baseline: theirs, .. }) = (self, before) {
            *baseline = *theirs;
        }
    }

    fn of_counter(counter: Counter, most: Watts, period: Micros, stale_after: Micros) -> Self {
        let span_min = Micros::new(50_000).min(Micros::new(period.get() / 4));
        match EnergyMeter::new(counter, most, span_min, stale_after) {
            Ok(meter) => Self::Counter { meter, baseline: Baseline::Nothing },
            Err(_) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests;
