//! What a card reports of its state beside its power: temperature, utilisation, memory, what slows it, and for how long
//! its power limit has held it back. All of it is of the GPU, also where the limit is that of its module.

use crate::error::NvmlFault;
use crate::gauge::Gauge;
use power_hal::{
    Domain, ErrorKind, LastMemory, MemoryUse, Sample, Slowdown, Slowdowns, StateReading, Throttled,
    ThrottledMeter, possible_temperature, possible_utilisation,
};
use power_units::{Celsius, Micros, Percent};

/// `nvmlClocksEventReason…` of nvml.h: the bits that mean that a card runs below what it could. That it idles (1) means
/// no such thing; a bit that is not known here means nothing.
const REASONS: [(u64, Slowdown); 8] = [
    (0x002, Slowdown::Setting),
    (0x004, Slowdown::PowerLimit),
    (0x008, Slowdown::Hardware),
    (0x010, Slowdown::Setting),
    (0x020, Slowdown::Heat),
    (0x040, Slowdown::Heat),
    (0x080, Slowdown::Hardware),
    (0x100, Slowdown::Setting),
];

/// The domain with what the card reports. Whether a card has a reading that fails temporarily is known from before: `known`
/// is the same card in the last list; a new card has it.
///
/// # Errors
/// A fault that ends the session.
pub(crate) fn described(
    gauge: &Gauge<'_>,
    mut domain: Domain,
    known: Option<&Domain>,
) -> Result<Domain, NvmlFault> {
    let had = |kind| known.is_none_or(|known| known.readings().has(kind));
    for (kind, there) in [
        (StateReading::Temperature, is_there(gauge.temperature(), had(StateReading::Temperature))?),
        (StateReading::Utilisation, is_there(gauge.utilisation(), had(StateReading::Utilisation))?),
        (StateReading::Memory, is_there(gauge.memory(), had(StateReading::Memory))?),
        (StateReading::Slowdown, is_there(gauge.slowdowns(), had(StateReading::Slowdown))?),
    ] {
        if there {
            domain = domain.with_reading(kind);
        }
    }
    let counted = known.is_none_or(|known| matches!(known.throttled(), Some(ThrottledMeter::Time { .. })));
    if is_there(gauge.throttled_time(), counted)? {
        domain = domain.with_throttled(ThrottledMeter::Time { modulus: None });
    } else if domain.readings().has(StateReading::Slowdown) {
        domain = domain.with_throttled(ThrottledMeter::Instant);
    }
    Ok(domain)
}

fn is_there<T>(answer: Result<T, NvmlFault>, before: bool) -> Result<bool, NvmlFault> {
    match answer {
        Err(fault) if fault.ends_session() => Err(fault),
        Err(fault) => Ok(!fault.is_lack() && before),
        Ok(_) => Ok(true),
    }
}

/// Fills in what the domain has.
pub(crate) fn fill(
    gauge: &Gauge<'_>,
    domain: &Domain,
    memory: &mut LastMemory,
    why: impl Fn(NvmlFault) -> ErrorKind,
    sample: &mut Sample,
) {
    let has = |kind| domain.readings().has(kind);
    if has(StateReading::Temperature) {
        sample.temperature = gauge.temperature().map_err(&why);
    }
    if has(StateReading::Utilisation) {
        sample.utilisation = gauge.utilisation().map_err(&why);
    }
    if has(StateReading::Memory) {
        sample.memory = memory.read(sample.at, || gauge.memory()).map_err(&why);
    }
    if has(StateReading::Slowdown) {
        sample.slowdowns = gauge.slowdowns().map_err(&why);
    }
    sample.throttled = match domain.throttled() {
        Some(ThrottledMeter::Time { .. }) => gauge.throttled_time().map(Throttled::Time).map_err(&why),
        Some(ThrottledMeter::Instant) => {
            sample.slowdowns.map(|causes| Throttled::Instant(causes.has(Slowdown::PowerLimit)))
        }
        Some(ThrottledMeter::Periods) | None => Err(ErrorKind::NotSupported),
    };
}

/// A temperature in whole degrees.
pub(crate) fn celsius(degrees: u32) -> Result<Celsius, NvmlFault> {
    let possible = i32::try_from(degrees).ok().map(Celsius::from_int).and_then(possible_temperature);
    possible.ok_or(NvmlFault::Impossible(degrees.into()))
}

/// A utilisation in whole percent.
pub(crate) fn percent(whole: u32) -> Result<Percent, NvmlFault> {
    let possible = i32::try_from(whole).ok().map(Percent::from_int).and_then(possible_utilisation);
    possible.ok_or(NvmlFault::Impossible(whole.into()))
}

/// Memory in bytes.
pub(crate) fn memory(used: u64, total: u64) -> Result<MemoryUse, NvmlFault> {
    MemoryUse::new(used, total).ok_or(NvmlFault::Impossible(used))
}

/// A counter of nanoseconds; all ones means "not available".
pub(crate) const fn nanoseconds(time: u64) -> Result<Micros, NvmlFault> {
    if time > u64::MAX / 2 { Err(NvmlFault::Impossible(time)) } else { Ok(Micros::new(time / 1_000)) }
}

/// The causes by their bits.
pub(crate) fn causes(bits: u64) -> Slowdowns {
    let set = REASONS.into_iter().filter(|(bit, _)| bits & bit != 0);
    set.fold(Slowdowns::NONE, |causes, (_, cause)| causes.with(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_idles_is_slowed_by_nothing_and_each_bit_has_its_cause() {
        assert_eq!(causes(0), Slowdowns::NONE);
        assert_eq!(causes(1), Slowdowns::NONE, "it idles");
        assert_eq!(causes(1 << 40), Slowdowns::NONE, "a bit of a later driver");
        assert_eq!(causes(0x4), Slowdowns::NONE.with(Slowdown::PowerLimit));
        assert_eq!(causes(0x48), Slowdowns::NONE.with(Slowdown::Heat).with(Slowdown::Hardware));
        assert!(causes(0x1fe).iter().eq([
            Slowdown::PowerLimit,
            Slowdown::Heat,
            Slowdown::Hardware,
            Slowdown::Setting
        ]));
    }

    #[test]
    fn what_no_card_can_say_is_impossible() {
        assert_eq!(celsius(71), Ok(Celsius::from_int(71)));
        assert_eq!(celsius(u32::MAX), Err(NvmlFault::Impossible(u32::MAX.into())));
        assert_eq!(percent(101), Err(NvmlFault::Impossible(101)));
        assert_eq!(memory(9, 8), Err(NvmlFault::Impossible(9)));
        assert_eq!(nanoseconds(u64::MAX), Err(NvmlFault::Impossible(u64::MAX)));
        assert_eq!(nanoseconds(1_999), Ok(Micros::new(1)));
    }
}
