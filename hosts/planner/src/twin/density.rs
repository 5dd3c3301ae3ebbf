//! Hardware density: cores and graphics processors, relative to a node of 192 cores and 8 graphics processors.

use crate::hardware::ResolvedHardware;
use crate::share::percent_of_count;
use power_units::Percent;

const CORES: u32 = 192;
const GPUS: u32 = 8;

/// The mean of both if there are graphics processors, else that of the cores alone, 0 to 100; `None` when the
/// cores are unknown.
pub(super) fn of(hardware: &ResolvedHardware) -> Option<Percent> {
    let cpu = percent_of_count(hardware.cpu.total_cores?, CORES)?;
    let mean = match hardware.gpu.as_ref() {
        Some(gpus) => Percent::from_bits((cpu + percent_of_count(gpus.count, GPUS)?).to_bits() / 2),
        None => cpu,
    };
    Some(mean.within(Percent::ZERO, Percent::HUNDRED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Cpu, GpuInventory};

    fn density(cores: Option<u32>, gpus: Option<u32>) -> Option<Percent> {
        let cpu = Cpu { total_cores: cores, ..Cpu::default() };
        let gpu = gpus.map(|count| GpuInventory { model: None, count, min: None, max: None });
        of(&ResolvedHardware { cpu, gpu })
    }

    #[test]
    fn density_is_the_mean_of_both_kinds() {
        assert_eq!(density(Some(192), Some(8)), Some(Percent::HUNDRED));
        assert_eq!(density(Some(96), None), Some(Percent::from_int(50)));
        assert_eq!(density(Some(96), Some(8)), Some(Percent::from_int(75)));
        // More than the reference of one kind compensates for the other before the sum is cut at 100.
        assert_eq!(density(Some(384), Some(4)), Some(Percent::HUNDRED));
        assert_eq!(density(Some(384), Some(0)), Some(Percent::HUNDRED));
        assert_eq!(density(Some(u32::MAX), Some(u32::MAX)), Some(Percent::HUNDRED));
    }

    #[test]
    fn cores_that_nobody_knows_are_not_no_cores() {
        assert_eq!(density(None, Some(8)), None);
        assert_eq!(density(None, None), None);
        assert_eq!(density(Some(0), None), Some(Percent::ZERO));
    }
}
