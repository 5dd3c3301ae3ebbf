//! Rules about the list of domains and about reading them; nothing here writes.

use super::rule::{ContractBreach, Rule};
use super::session::{Session, Target, mix};
use super::world::{ContractWorld, RefusableOriginals};
use crate::{
    Counter, Domain, Error, ErrorKind, Measured, Meter, Originals, PowerHal, Sample, StateReading,
    ThrottledMeter, possible_temperature, possible_utilisation,
};
use power_units::{MicroJoules, MicroWatts, Micros, Role};

/// A generous bound on the draw of one domain: it only has to distinguish a reset counter from energy.
const DRAW_MAX: MicroWatts = MicroWatts::new(20_000_000_000);

/// The time between two samples: a tenth of a second, so that at the bound above less than half of the smallest
/// counter in use (65.5 kJ) passes, with a reserve for a slow test machine.
const SPAN: Micros = Micros::new(100_000);
/// Counters advance in jumps about once per millisecond, so a short span may include one jump more.
const UPDATE: Micros = Micros::new(1_000);

pub(super) fn check_list<J, H, W>(s: &mut Session<'_, H, W>) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    describe(s)?;
    s.report.domains = u32::try_from(s.count()).unwrap_or(u32::MAX);
    for at in 0..s.count() {
        let Some(target) = s.nth(at) else { continue };
        let unique = s.hal.domains().find(target.key()) == Some(target.handle);
        s.hold(ContractBreach::at(Rule::KeysUnique, target.key()), unique)?;
    }
    let (before, generation) = (digest(s.hal.domains().as_slice()), s.hal.domains().generation());
    describe(s)?;
    let same = digest(s.hal.domains().as_slice()) == before && s.hal.domains().generation() == generation;
    s.hold(ContractBreach::of(Rule::DescribeStable), same)
}

pub(super) fn describe<J, H, W>(s: &mut Session<'_, H, W>) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let error = s.hal.describe().err().map(|error| error.kind());
    s.hold(ContractBreach::of(Rule::Describes).error(error), error.is_none())
}

/// A digest of the listed domains in their order, and of the ends of their ranges.
fn digest(list: &[Domain]) -> u64 {
    list.iter().fold(0, |digest, domain| {
        let named = domain.key().as_str().bytes().fold(digest, |digest, byte| mix(digest, u64::from(byte)));
        let power = domain.power().map_or(0, |limit| mix(limit.lower().get(), limit.upper().get()));
        let frequency = domain.frequency().map_or(0, |limit| {
            mix(limit.lower().to_bits().cast_unsigned(), limit.upper().to_bits().cast_unsigned())
        });
        let throttle = domain.throttle().map_or(0, |throttle| throttle.max().to_bits().cast_unsigned());
        let group = domain.covers().map_or(0, |covers| u64::from(covers.group()).saturating_add(1));
        let throttled = match domain.throttled() {
            None => 0,
            Some(ThrottledMeter::Time { modulus }) => {
                modulus.map_or(1, |modulus| modulus.get().saturating_add(1))
            }
            Some(ThrottledMeter::Periods) => 2,
            Some(ThrottledMeter::Instant) => 3,
        };
        let dram = domain.dram().map_or(0, |dram| dram.modulus().map_or(1, MicroJoules::get));
        let readings = u64::from(domain.readings().to_bits());
        [power, frequency, throttle, group, throttled, dram, readings].into_iter().fold(named, mix)
    })
}

pub(super) fn check_sample<J, H, W>(s: &mut Session<'_, H, W>, target: &Target) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let mut before: Option<Sample> = None;
    // Only domains with a meter get more rounds; a machine has hundreds of policies without one.
    let rounds = if target.domain.meter().is_some() { 6 } else { 2 };
    for _ in 0..rounds {
        let Ok(sample) = s.sample(target.handle) else { continue };
        s.hold(ContractBreach::at(Rule::SampleComplete, target.key()), is_complete(&target.domain, &sample))?;
        s.hold(ContractBreach::at(Rule::MeterForward, target.key()), is_possible(&target.domain, &sample))?;
        let possible = is_state_possible(&target.domain, before.as_ref(), &sample);
        s.hold(ContractBreach::at(Rule::StatePossible, target.key()), possible)?;
        if let Some(before) = before {
            let elapsed = sample.at.since(before.at);
            s.hold(ContractBreach::at(Rule::SampleStamped, target.key()), elapsed.is_some())?;
            if elapsed.is_some_and(|span| span > Micros::ZERO) {
                let forward = is_forward(&target.domain, &before, &sample);
                s.hold(ContractBreach::at(Rule::MeterForward, target.key()), forward)?;
            }
        }
        before = Some(sample);
        if target.domain.meter().is_some()
            && s.world.advance(SPAN)
            && let Ok(later) = s.sample(target.handle)
        {
            let moved = later.at > sample.at;
            s.hold(ContractBreach::at(Rule::SampleStamped, target.key()), moved)?;
        }
    }
    Ok(())
}

/// Whether the sample has a value, or an error other than `NotSupported`, for exactly what the domain has.
fn is_complete(domain: &Domain, sample: &Sample) -> bool {
    let answers = |has: bool, error: Option<ErrorKind>| has != (error == Some(ErrorKind::NotSupported));
    let same_kind = match (domain.meter(), sample.meter) {
        (Some(Meter::Energy(_)), Ok(Measured::Power(_))) | (Some(Meter::Power), Ok(Measured::Energy(_))) => {
            false
        }
        (Some(Meter::Energy(_) | Meter::Power) | None, _) => true,
    };
    same_kind
        && answers(domain.meter().is_some(), sample.meter.err())
        && answers(domain.power().is_some(), sample.power_limit.err())
        && answers(domain.frequency().is_some(), sample.frequency_limit.err())
        && answers(domain.throttle().is_some(), sample.throttle.err())
        && answers(domain.dram().is_some(), sample.dram.err())
        && answers(domain.throttled().is_some(), sample.throttled.err())
        && answers(domain.readings().has(StateReading::Temperature), sample.temperature.err())
        && answers(domain.readings().has(StateReading::Utilisation), sample.utilisation.err())
        && answers(domain.readings().has(StateReading::Memory), sample.memory.err())
        && answers(domain.readings().has(StateReading::Slowdown), sample.slowdowns.err())
}

fn is_possible(domain: &Domain, sample: &Sample) -> bool {
    let dram = domain.dram().zip(sample.dram.ok()).is_none_or(|(counter, energy)| counter.can_show(energy));
    dram && match (domain.meter(), sample.meter) {
        (Some(Meter::Energy(counter)), Ok(Measured::Energy(energy))) => counter.can_show(energy),
        (_, Ok(Measured::Power(power))) => power <= DRAW_MAX,
        (_, Ok(Measured::Energy(_)) | Err(_)) => true,
    }
}

fn is_forward(domain: &Domain, before: &Sample, sample: &Sample) -> bool {
    let Some(span) = sample.at.since(before.at) else { return false };
    let dram = match (domain.dram(), before.dram, sample.dram) {
        (Some(counter), Ok(earlier), Ok(later)) => has_grown(counter, (earlier, later), span),
        (_, Ok(_) | Err(_), Ok(_) | Err(_)) => true,
    };
    dram && match (domain.meter(), before.meter, sample.meter) {
        (Some(Meter::Energy(counter)), Ok(Measured::Energy(earlier)), Ok(Measured::Energy(later))) => {
            has_grown(counter, (earlier, later), span)
        }
        (_, Ok(_) | Err(_), Ok(_) | Err(_)) => true,
    }
}

/// Whether a counter has advanced by what a domain can draw in a span. A wait so long that a wrap may be hidden in it
/// proves nothing, in either direction.
fn has_grown(counter: Counter, (earlier, later): (MicroJoules, MicroJoules), span: Micros) -> bool {
    let most = DRAW_MAX.to_watts(Role::Demand).during(span + UPDATE);
    span > SPAN + SPAN + SPAN || counter.between(earlier, later).is_ok_and(|energy| energy <= most)
}

fn is_state_possible(domain: &Domain, before: Option<&Sample>, sample: &Sample) -> bool {
    let meter = domain.throttled().zip(sample.throttled.ok());
    let throttled = meter.is_none_or(|(meter, now)| {
        let earlier = before.and_then(|before| Some((before.at, before.throttled.ok()?)));
        let goes_on = |(at, earlier)| {
            let share = meter.share((at, earlier), (sample.at, now));
            earlier == now || sample.at <= at || share.is_some()
        };
        meter.can_show(now) && earlier.is_none_or(goes_on)
    });
    throttled
        && sample.temperature.ok().is_none_or(|it| possible_temperature(it).is_some())
        && sample.utilisation.ok().is_none_or(|it| possible_utilisation(it).is_some())
}
