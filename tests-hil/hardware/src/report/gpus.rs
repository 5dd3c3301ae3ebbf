//! The NVIDIA GPUs: properties, limits, power, whether the energy counter agrees with the power, and the cost of
//! reading.

use crate::args::Args;
use crate::kits;
use crate::verdict::Verdict;
use crate::witness::pause;
use hal_nvidia::{LimitScope, Nvidia, NvidiaError, NvidiaGpuFacts};
use node_kit::Time;
use power_hal::{
    Clock, Control, Domain, Error, ErrorKind, Handle, Measured, OriginalsInMemory, PowerHal, Reading,
};
use power_units::{MicroWatts, Micros, Stamp};
use std::time::Duration;

type Hal = Nvidia<Time, OriginalsInMemory<0>>;

/// How long a counter is observed.
const WATCHED: Micros = Micros::new(2_000_000);
/// How often a reading is repeated to measure its cost, and after how long it is often enough.
const ROUNDS: usize = 200;
const COST_TAKES: Micros = Micros::new(1_000_000);

fn open(args: &Args, scope: LimitScope) -> Result<Hal, NvidiaError> {
    let sources = kits::sources(args);
    Nvidia::open(sources.nvml_library(), scope, Time::real(), OriginalsInMemory::new())
}

/// Prints the report.
pub(super) fn tell(args: &Args, verdict: &mut Verdict) {
    let mut hal = match open(args, LimitScope::Gpu) {
        Ok(hal) => hal,
        Err(error) => return verdict.tell(&format!("  nvidia        {error}")),
    };
    if let Some(absent) = hal.absent() {
        return verdict.tell(&format!("  nvidia        none: {absent}"));
    }
    let facts = hal.facts();
    let driver = facts.driver.as_deref().unwrap_or("unknown");
    verdict.tell(&format!("  nvidia        {} GPUs, driver {driver}", facts.gpus.len()));
    for complaint in hal.complaints().iter().chain(&facts.complaints) {
        verdict.fail(&format!("nvidia: {complaint}"));
    }
    let list: Vec<(Handle, Domain)> =
        Hal::domains(&hal).iter().map(|(handle, domain)| (handle, *domain)).collect();
    for ((handle, domain), gpu) in list.iter().zip(&facts.gpus) {
        card(gpu, verdict);
        limit(&mut hal, *handle, domain, verdict);
        meter(&mut hal, *handle, domain, verdict);
    }
    cost(&mut hal, verdict);
    module(args, verdict);
}

fn card(gpu: &NvidiaGpuFacts, verdict: &mut Verdict) {
    fn known<T: ToString>(fact: Option<&T>) -> String {
        fact.map_or_else(|| "unknown".to_owned(), ToString::to_string)
    }
    let mig = gpu.mig.map_or_else(|| "unknown".to_owned(), |mig| format!("{mig:?}"));
    verdict.tell(&format!("    {}", gpu.uuid));
    verdict.tell(&format!(
        "      {}, {} MiB, at {}, MIG {mig}, persistence mode {}, NVLinks up {}, island {}",
        known(gpu.model.as_ref()),
        known(gpu.vram_mib.as_ref()),
        known(gpu.pci.as_ref()),
        known(gpu.persistence.as_ref()),
        gpu.links,
        gpu.island.map_or_else(|| "none".to_owned(), |island| island.to_string())
    ));
}

fn watts(power: MicroWatts) -> String {
    let milliwatts = power.get() / 1_000;
    format!("{}.{:03} W", milliwatts / 1_000, milliwatts % 1_000)
}

fn told(power: Result<MicroWatts, ErrorKind>) -> String {
    power.map_or_else(|kind| kind.label().to_owned(), watts)
}

fn sample(hal: &mut Hal, handle: Handle) -> Result<power_hal::Sample, ErrorKind> {
    let mut batch = [Reading::new(handle)];
    hal.sample(&mut batch);
    let [Reading { outcome, .. }] = batch;
    outcome
}

fn limit(hal: &mut Hal, handle: Handle, domain: &Domain, verdict: &mut Verdict) {
    let key = domain.key();
    let Some(range) = domain.power() else {
        return verdict.skip(&format!("nvidia: {key} has no power limit that can be set"));
    };
    let shown = |limit: Option<MicroWatts>| limit.map_or_else(|| "unknown".to_owned(), watts);
    // Saving an original writes nothing.
    let original = hal.save(handle, Control::Power).map_err(|error| error.kind());
    let asked = original.and_then(|original| original.words().first().copied().ok_or(ErrorKind::BadData));
    let asked = asked.map(|milliwatts| MicroWatts::new(milliwatts.saturating_mul(1_000)));
    let enforced = sample(hal, handle).and_then(|sample| sample.power_limit);
    verdict.tell(&format!(
        "      range {} to {}, default {}; limit {} asked, {} enforced",
        shown(range.min()),
        shown(range.max()),
        shown(range.default()),
        told(asked),
        told(enforced)
    ));
    if let (Ok(asked), Ok(enforced)) = (asked, enforced) {
        verdict.hold(enforced <= asked, &format!("nvidia: {key} enforces no more than what was asked"));
        let inside = range.lower() <= asked && asked <= range.upper();
        verdict.hold(inside, &format!("nvidia: what was asked of {key} lies in its range"));
    } else {
        verdict.fail(&format!("nvidia: the limits of {key} cannot be read"));
    }
}

/// Observes the counter for a while: how often it changes, and whether it agrees with the power.
fn meter(hal: &mut Hal, handle: Handle, domain: &Domain, verdict: &mut Verdict) {
    let key = domain.key();
    let draw = match hal.draw(handle) {
        Ok(draw) => draw,
        Err(error) => return verdict.fail(&format!("nvidia: {error}")),
    };
    let [instant, average, usage] = [draw.instant, draw.average, draw.usage].map(told);
    verdict.tell(&format!(
        "      draws {instant} now, {average} over the last second, {usage} by GetPowerUsage"
    ));
    let mut moves: Vec<(Stamp, u64)> = Vec::new();
    let time = Time::real();
    let began = time.now();
    while time.now().since(began).is_some_and(|span| span < WATCHED) {
        let Ok(sample) = sample(hal, handle) else { break };
        let Ok(Measured::Energy(energy)) = sample.meter else { break };
        if moves.last().is_none_or(|(_, last)| *last != energy.get()) {
            moves.push((sample.at, energy.get()));
        }
        pause(Duration::from_millis(2));
    }
    // Skip the first value, because its time of change is unknown.
    let (Some((from, first)), Some((to, last))) = (moves.get(1), moves.last()) else {
        return verdict.skip(&format!(
            "nvidia: {key} has no counter of energy that moves in {} s",
            WATCHED.get() / 1_000_000
        ));
    };
    let Some(span) = to.since(*from).map(|span| span.get()).filter(|&span| span > 0) else { return };
    let steps = u64::try_from(moves.len().saturating_sub(2)).unwrap_or(1).max(1);
    let mean_mw = last.saturating_sub(*first).saturating_mul(1_000) / span;
    verdict
        .tell(&format!("      energy {last} µJ, a step each {} µs, {mean_mw} mW on the way", span / steps));
    if let Ok(usage) = draw.usage {
        let near = mean_mw.abs_diff(usage.get() / 1_000) <= usage.get() / 4_000;
        verdict.hold(near, &format!("nvidia: the counter of {key} agrees with its power within a quarter"));
    }
}

fn cost(hal: &mut Hal, verdict: &mut Verdict) {
    let time = Time::real();
    let mut batch: Vec<Reading> = Hal::domains(hal).iter().map(|(handle, _)| Reading::new(handle)).collect();
    let mut spans = Vec::with_capacity(ROUNDS);
    let first = time.now();
    while spans.len() < ROUNDS && time.now().since(first).is_some_and(|span| span < COST_TAKES) {
        let began = time.now();
        hal.sample(&mut batch);
        spans.push(time.now().since(began).map_or(0, |span| span.get()));
    }
    spans.sort_unstable();
    let at = |percent: usize| spans.get(spans.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
    verdict.tell(&format!(
        "    sampling {} GPUs: {} µs at best, {} median, {} at 99 % of {}",
        batch.len(),
        at(0),
        at(50),
        at(99),
        spans.len()
    ));
}

fn module(args: &Args, verdict: &mut Verdict) {
    let hal = match open(args, LimitScope::Module) {
        Ok(hal) => hal,
        Err(error) => return verdict.fail(&format!("nvidia: the module's scope: {error}")),
    };
    for domain in Hal::domains(&hal).as_slice() {
        if let Some(range) = domain.power() {
            let (lower, upper) = (watts(range.lower()), watts(range.upper()));
            verdict.tell(&format!("    module of {}: {lower} to {upper}", domain.key()));
        }
    }
}
