//! Properties of the domains and samples of every HAL, and of the names in its errors.

use hal_files::FileError;
use power_hal::{
    Control, Domain, Domains, ErrorKind, Key, Measured, Meter, Reading, Sample, Setting, StateReading,
    possible_temperature, possible_utilisation,
};
use power_units::{Micros, Stamp};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

/// A clock that does not advance.
pub(crate) fn clock() -> Stamp {
    Stamp::new(Micros::new(1))
}

/// Every domain has a unique name that reads back, and a valid range.
pub(crate) fn check_domains(domains: Domains<'_>) {
    let mut keys = BTreeSet::new();
    for (_, domain) in domains.iter() {
        assert!(keys.insert(*domain.key()), "{} twice", domain.key());
        assert_eq!(Key::parse(domain.key().as_str()), Ok(*domain.key()));
        if let Some(power) = domain.power() {
            assert!(power.lower() <= power.upper() && power.lower().get() > 0, "{power:?}");
        }
        if let Some(frequency) = domain.frequency() {
            assert!(frequency.lower() <= frequency.upper(), "{frequency:?}");
            assert!(frequency.lower() > power_units::KiloHertz::ZERO);
        }
    }
}

/// Samples all domains in one batch. Exactly the values that a domain lacks must be reported as not supported.
pub(crate) fn sample<H: power_hal::PowerHal>(hal: &mut H) -> Vec<Reading> {
    let mut batch: Vec<Reading> = hal.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    hal.sample(&mut batch);
    let lacks = |said: Result<(), ErrorKind>| said == Err(ErrorKind::NotSupported);
    for reading in &batch {
        let domain = hal.domains().get(reading.domain).copied();
        let (Some(domain), Ok(sample)) = (domain, reading.outcome) else { continue };
        check_state(&domain, &sample);
        let Sample { meter, power_limit, frequency_limit, throttle, .. } = sample;
        assert_eq!(lacks(meter.map(drop)), domain.meter().is_none(), "{domain:?}: {sample:?}");
        assert_eq!(lacks(power_limit.map(drop)), !domain.has(Control::Power), "{domain:?}: {sample:?}");
        assert_eq!(
            lacks(frequency_limit.map(drop)),
            !domain.has(Control::Frequency),
            "{domain:?}: {sample:?}"
        );
        assert_eq!(lacks(throttle.map(drop)), !domain.has(Control::Throttle), "{domain:?}: {sample:?}");
        match (domain.meter(), meter) {
            (Some(Meter::Energy(_)), Ok(Measured::Power(_)))
            | (Some(Meter::Power), Ok(Measured::Energy(_))) => {
                panic!("{domain:?} measures otherwise: {sample:?}")
            }
            (Some(Meter::Energy(_) | Meter::Power) | None, _) => {}
        }
    }
    batch
}

/// What a domain reports of its state is what it lists, and possible.
fn check_state(domain: &Domain, sample: &Sample) {
    let lacks = |said: Result<(), ErrorKind>| said == Err(ErrorKind::NotSupported);
    let has = |kind| domain.readings().has(kind);
    let Sample { dram, temperature, utilisation, memory, slowdowns, throttled, .. } = *sample;
    assert_eq!(lacks(dram.map(drop)), domain.dram().is_none(), "{domain:?}: {sample:?}");
    assert_eq!(lacks(throttled.map(drop)), domain.throttled().is_none(), "{domain:?}: {sample:?}");
    for (kind, said) in [
        (StateReading::Temperature, temperature.map(drop)),
        (StateReading::Utilisation, utilisation.map(drop)),
        (StateReading::Memory, memory.map(drop)),
        (StateReading::Slowdown, slowdowns.map(drop)),
    ] {
        assert_eq!(lacks(said), !has(kind), "{kind:?} of {domain:?}: {sample:?}");
    }
    assert!(temperature.ok().is_none_or(|it| possible_temperature(it).is_some()), "{sample:?}");
    assert!(utilisation.ok().is_none_or(|it| possible_utilisation(it).is_some()), "{sample:?}");
    assert!(memory.ok().is_none_or(|it| it.used_bytes() <= it.total_bytes()), "{sample:?}");
    let shown = domain.throttled().zip(throttled.ok());
    assert!(shown.is_none_or(|(meter, value)| meter.can_show(value)), "{domain:?}: {sample:?}");
}

/// An error names a place: a path below the root, or a domain by its key.
pub(crate) fn check_names(error: &impl Display, root: &Path) {
    let said = error.to_string();
    let named = said.contains(&root.display().to_string())
        || ["package-", "cpu-", "gpu-", "socket-"].iter().any(|prefix| said.contains(prefix));
    assert!(named, "nobody knows where: {said}");
}

/// A text that cannot be parsed is bad data in this file.
pub(crate) fn check_file(error: &FileError, root: &Path) {
    assert!(error.path.starts_with(root), "{error}");
    if error.deed == hal_files::FileOperation::Parse {
        assert_eq!(error.kind, ErrorKind::BadData);
    }
}

/// The microwatts of a setting.
pub(crate) fn microwatts(setting: Setting) -> Option<u64> {
    match setting {
        Setting::Power(power) => Some(power.get()),
        Setting::Frequency(_) | Setting::Throttle(_) => None,
    }
}
