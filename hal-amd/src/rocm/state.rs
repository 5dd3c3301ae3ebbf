//! What the library reports of a GPU beside its power.

use super::RsmiStatus;
use crate::ffi::RocmSmi;
use power_hal::{
    Domain, ErrorKind, MemoryUse, Sample, StateReading, possible_temperature, possible_utilisation,
};
use power_units::{Celsius, Percent};

/// `RSMI_TEMP_TYPE_JUNCTION`, the hottest point of the die, and `RSMI_TEMP_TYPE_EDGE`, which older GPUs have alone.
const SENSORS: [u32; 2] = [1, 0];

/// The domain with what the GPU reports. A reading that fails temporarily is not lacking.
pub(super) fn described(library: &RocmSmi, gpu: u32, mut domain: Domain) -> Domain {
    let has = |error: Option<ErrorKind>| error != Some(ErrorKind::NotSupported);
    for (kind, there) in [
        (StateReading::Temperature, has(temperature(library, gpu).err())),
        (StateReading::Utilisation, has(utilisation(library, gpu).err())),
        (StateReading::Memory, has(memory(library, gpu).err())),
    ] {
        if there {
            domain = domain.with_reading(kind);
        }
    }
    domain
}

/// Fills in what can be read, except memory in use.
pub(super) fn fill(library: &RocmSmi, gpu: u32, sample: &mut Sample) {
    sample.temperature = temperature(library, gpu);
    sample.utilisation = utilisation(library, gpu);
}

fn temperature(library: &RocmSmi, gpu: u32) -> Result<Celsius, ErrorKind> {
    let mut answers = SENSORS.into_iter().map(|sensor| library.temperature(gpu, sensor));
    let lacks = |answer: &Result<i64, RsmiStatus>| {
        answer.is_err_and(|status| lacking(status) == ErrorKind::NotSupported)
    };
    let found = answers.find(|answer| !lacks(answer)).ok_or(ErrorKind::NotSupported)?;
    let thousandths = found.map_err(lacking)?;
    let bits = thousandths.checked_mul(1 << 32).map(|bits| bits / 1_000);
    bits.map(Celsius::from_bits).and_then(possible_temperature).ok_or(ErrorKind::BadData)
}

fn utilisation(library: &RocmSmi, gpu: u32) -> Result<Percent, ErrorKind> {
    let whole = library.busy(gpu).map_err(lacking)?;
    let percent = i32::try_from(whole).ok().map(Percent::from_int).and_then(possible_utilisation);
    percent.ok_or(ErrorKind::BadData)
}

pub(super) fn memory(library: &RocmSmi, gpu: u32) -> Result<MemoryUse, ErrorKind> {
    let (used, total) = library.memory(gpu).map_err(lacking)?;
    MemoryUse::new(used, total).ok_or(ErrorKind::BadData)
}

/// A sensor that a GPU does not have is an invalid argument for some releases.
const fn lacking(status: RsmiStatus) -> ErrorKind {
    let kind = status.kind();
    if matches!(kind, ErrorKind::OutOfRange) { ErrorKind::NotSupported } else { kind }
}
