//! Rules about the list of domains and about reading them; nothing here writes.

use super::rule::{ContractBreach, Rule};
use super::session::{Session, Target, mix};
use super::world::{ContractWorld, RefusableOriginals};
use crate::{Domain, Error, ErrorKind, Measured, Meter, Originals, PowerHal, Sample};
use power_units::{MicroWatts, Micros, Role};

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
        [power, frequency, throttle, group].into_iter().fold(named, mix)
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
}

fn is_possible(domain: &Domain, sample: &Sample) -> bool {
    match (domain.meter(), sample.meter) {
        (Some(Meter::Energy(counter)), Ok(Measured::Energy(energy))) => counter.can_show(energy),
        (_, Ok(Measured::Power(power))) => power <= DRAW_MAX,
        (_, Ok(Measured::Energy(_)) | Err(_)) => true,
    }
}

fn is_forward(domain: &Domain, before: &Sample, sample: &Sample) -> bool {
    match (domain.meter(), before.meter, sample.meter) {
        (Some(Meter::Energy(counter)), Ok(Measured::Energy(earlier)), Ok(Measured::Energy(later))) => {
            // A wait so long that a wrap may be hidden in it proves nothing, in either direction.
            let Some(span) = sample.at.since(before.at) else { return false };
            let most = DRAW_MAX.to_watts(Role::Demand).during(span + UPDATE);
            span > SPAN + SPAN + SPAN || counter.between(earlier, later).is_ok_and(|energy| energy <= most)
        }
        (_, Ok(_) | Err(_), Ok(_) | Err(_)) => true,
    }
}
