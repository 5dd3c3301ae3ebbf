//! The ratings of a node's devices, and the ratings under a cap.
//!
//! The hardware has the range that the node reports, else the catalogue's, as [`crate::inventory::resolve`] merges
//! them. If both are missing, the range is estimated here from the number of cores, for the twin only: caps are never
//! planned from an estimate. A range of zero or less is unknown. Estimates are low: a rating that is too small makes a
//! node look fuller than it is, never emptier.

use crate::hardware::{Cpu, ResolvedHardware};
use crate::intent;
use crate::share::percent_of;
use power_units::{Percent, Role, Watts};

/// A core without known power counts with 5 W.
const PER_CORE: Watts = Watts::from_int(5);

fn known(range: Option<Watts>) -> Option<Watts> {
    range.filter(|&watts| watts > Watts::ZERO)
}

/// A planned or confirmed cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapValue {
    /// None.
    Open,
    /// A percentage of the highest limit. Zero or less is no cap, as in the status of every generation.
    Percent(Percent),
    /// Watts of each package or graphics processor.
    Each(Watts),
}

impl From<Option<intent::DeviceCap>> for CapValue {
    /// A cap as in the objects: watts take precedence over the percentage, and without either there is no cap.
    fn from(cap: Option<intent::DeviceCap>) -> Self {
        match cap {
            Some(intent::DeviceCap { watts: Some(watts), .. }) => Self::Each(watts),
            Some(intent::DeviceCap { percent: Some(percent), watts: None }) => Self::Percent(percent),
            Some(intent::DeviceCap { percent: None, watts: None }) | None => Self::Open,
        }
    }
}

impl CapValue {
    /// The cap as a percentage of the rating, at most 100; `None` for a cap in watts on an unknown rating.
    #[must_use]
    pub fn percent(self, devices: Option<RatedDevices>) -> Option<Percent> {
        match self {
            Self::Open => Some(Percent::HUNDRED),
            Self::Percent(percent) if percent <= Percent::ZERO => Some(Percent::HUNDRED),
            Self::Percent(percent) => Some(percent.min(Percent::HUNDRED)),
            Self::Each(watts) if watts <= Watts::ZERO => Some(Percent::HUNDRED),
            Self::Each(watts) => match devices {
                Some(RatedDevices { count: 0, .. }) => Some(Percent::HUNDRED),
                Some(RatedDevices { each, .. }) => {
                    percent_of(watts, each, Role::Limit).map(|percent| percent.min(Percent::HUNDRED))
                }
                None => None,
            },
        }
    }
}

/// Devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatedDevices {
    each: Watts,
    count: u32,
}

impl RatedDevices {
    /// Their rating together, uncapped and capped.
    #[must_use]
    pub fn under(self, cap: CapValue) -> CappedRating {
        let rating = self.each.times(self.count);
        let capped = match cap {
            CapValue::Open => rating,
            CapValue::Percent(percent) if percent <= Percent::ZERO => rating,
            CapValue::Percent(percent) => {
                rating.scale(percent.to_ratio(Role::Limit), Role::Limit).max(SMALLEST).min(rating)
            }
            CapValue::Each(watts) if watts <= Watts::ZERO => rating,
            CapValue::Each(watts) => watts.min(self.each).times(self.count),
        };
        CappedRating { rating, capped }
    }
}

/// A cap that was rounded to zero counts as the smallest cap: 0 W of budget with 0 W of estimated power would look like
/// an empty node.
const SMALLEST: Watts = Watts::from_bits(1);

/// A rating, uncapped and capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CappedRating {
    /// Uncapped.
    pub rating: Watts,
    /// Capped.
    pub capped: Watts,
}

impl CappedRating {
    /// The sum of both; `None` on overflow.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            rating: self.rating.checked_add(other.rating)?,
            capped: self.capped.checked_add(other.capped)?,
        })
    }
}

impl CappedRating {
    /// With what is drawn beside the devices, on which there is no cap.
    #[must_use]
    pub fn with_rest(self, rest: Option<Watts>) -> Self {
        let rest = rest.map(|rest| Self { rating: rest.or_zero(), capped: rest.or_zero() });
        rest.and_then(|rest| self.checked_add(rest)).unwrap_or(self)
    }
}

/// The devices of a node, as far as their ratings are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratings {
    /// The packages.
    pub cpu: Option<RatedDevices>,
    /// The graphics processors; a node without any has a known count of zero.
    pub gpu: Option<RatedDevices>,
}

impl Ratings {
    /// The ratings of a node, as far as they are known.
    #[must_use]
    pub fn of(hardware: &ResolvedHardware) -> Self {
        let cpu = packages(&hardware.cpu);
        let gpu = match hardware.gpu.as_ref() {
            None => Some(RatedDevices { each: Watts::ZERO, count: 0 }),
            Some(gpus) => known(gpus.max).map(|each| RatedDevices { each, count: gpus.count }),
        };
        Self { cpu, gpu }
    }
}

fn packages(cpu: &Cpu) -> Option<RatedDevices> {
    // A running node has at least one package.
    let count = cpu.sockets.filter(|&sockets| sockets > 0).unwrap_or(1);
    let each = known(cpu.max_per_socket).or_else(|| by_cores(cpu.total_cores, count))?;
    Some(RatedDevices { each, count })
}

fn by_cores(cores: Option<u32>, sockets: u32) -> Option<Watts> {
    let per_socket = cores?.checked_div(sockets)?;
    known(Some(PER_CORE.times(per_socket)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::hardware::GpuInventory;
    use crate::inventory::{HardwareFacts, Reported, resolve};
    use proptest::prelude::*;

    fn watts(value: i32) -> Watts {
        Watts::from_int(value)
    }

    /// The twin's input for a node that reports this.
    fn hardware(reported: Reported) -> ResolvedHardware {
        let facts = HardwareFacts { reported: Some(reported), ..HardwareFacts::default() };
        resolve(&facts, None, false, &Catalog::embedded().unwrap()).hardware
    }

    fn cpu(model: &str, sockets: Option<u32>, cores: Option<u32>, max: Option<i32>) -> ResolvedHardware {
        let (cpu_raw_model, cpu_max) = (Some(model.into()), max.map(watts));
        hardware(Reported { cpu_raw_model, sockets, total_cores: cores, cpu_max, ..Reported::default() })
    }

    fn gpus(model: &str, max: Option<i32>) -> ResolvedHardware {
        let (gpu_raw_model, gpu_max) = (Some(model.into()), max.map(watts));
        hardware(Reported { gpu_raw_model, gpu_count: Some(8), gpu_max, ..Reported::default() })
    }

    const EPYC: &str = "AMD EPYC 9654 96-Core Processor";

    fn rating(hardware: &ResolvedHardware) -> Option<Watts> {
        Ratings::of(hardware).cpu.map(|devices| devices.under(CapValue::Open).rating)
    }

    fn gpu_rating(hardware: &ResolvedHardware) -> Option<Watts> {
        Ratings::of(hardware).gpu.map(|devices| devices.under(CapValue::Open).rating)
    }

    #[test]
    fn c10_the_catalogue_gives_what_the_node_did_not_say() {
        // Table C10, enrichment: model 9654 is 320 W at least. Its 360 W are the default; firmware may have set 400 W,
        // the upper end of its configurable design power (ADR 5).
        let enriched = cpu(EPYC, Some(2), Some(192), None);
        assert_eq!((enriched.cpu.min_per_socket, rating(&enriched)), (Some(watts(320)), Some(watts(800))));
        // A discovered range is kept.
        assert_eq!(rating(&cpu(EPYC, Some(2), None, Some(360))), Some(watts(720)));
        // Fix list operator B28: the raw model is used when the model is unknown.
        let cpu_model = Some("weird".into());
        let reported = Reported { cpu_raw_model: Some(EPYC.into()), cpu_model, ..Reported::default() };
        assert_eq!(rating(&hardware(Reported { sockets: Some(2), ..reported })), Some(watts(800)));
    }

    #[test]
    fn c10_a_catalogue_hit_without_a_number_of_sockets_is_one_package_and_not_none() {
        // Fix list operator B28: 0 sockets made a rating of 0 W and a headroom of 100.
        for sockets in [None, Some(0)] {
            assert_eq!(rating(&cpu(EPYC, sockets, Some(96), None)), Some(watts(400)));
        }
    }

    #[test]
    fn c10_what_no_catalogue_knows_is_guessed_from_its_cores() {
        // Table C10, enrichment: 5 W a core.
        let guess = |sockets, cores| rating(&cpu("weird", sockets, cores, None));
        assert_eq!(guess(Some(0), Some(8)), Some(watts(40)));
        assert_eq!(guess(Some(3), Some(8)), Some(watts(30)));
        assert_eq!(guess(Some(2), Some(192)), Some(watts(960)));
        assert_eq!(guess(Some(2), None), None);
        assert_eq!(guess(Some(2), Some(0)), None);
        assert_eq!(guess(Some(2), Some(1)), None);
        // The estimate is for the twin only: no cap is planned from it.
        assert_eq!(cpu("weird", Some(2), Some(192), None).cpu.max_per_socket, None);
    }

    #[test]
    fn a_range_of_nothing_is_a_range_that_nobody_knows() {
        for max in [0, -5, i32::MIN] {
            assert_eq!(rating(&cpu(EPYC, Some(2), Some(192), Some(max))), Some(watts(800)));
            let unknown = Cpu { sockets: Some(2), max_per_socket: Some(watts(max)), ..Cpu::default() };
            let gpu = Some(GpuInventory { model: None, count: 8, min: None, max: Some(watts(max)) });
            assert_eq!(
                Ratings::of(&ResolvedHardware { cpu: unknown, gpu }),
                Ratings { cpu: None, gpu: None }
            );
        }
    }

    #[test]
    fn c10_graphics_processors_count_with_the_range_that_is_known() {
        // Table C10, enrichment: H100 NVL × 8, 400/200 W, 3200 W.
        let nvl = gpus("NVIDIA H100 NVL", None);
        assert_eq!(gpu_rating(&nvl), Some(watts(3_200)));
        assert_eq!(nvl.gpu.unwrap().min, Some(watts(200)));
        assert_eq!(gpu_rating(&gpus("NVIDIA H100 NVL", Some(300))), Some(watts(2_400)));
        assert_eq!(gpu_rating(&gpus("weird", None)), None);
        assert_eq!(gpu_rating(&cpu(EPYC, Some(2), None, None)), Some(Watts::ZERO));
        // Fix list operator B28: a known range is not dropped when the node denies having a GPU.
        let (gpu_present, gpu_max) = (Some(false), Some(watts(300)));
        let denied = hardware(Reported { gpu_present, gpu_max, ..Reported::default() });
        assert_eq!(gpu_rating(&denied), Some(watts(300)));
    }

    #[test]
    fn a_cap_of_the_objects_is_the_twins_with_watts_before_the_percentage() {
        let (percent, watts) = (Some(Percent::from_int(60)), Some(watts(216)));
        let of = |percent, watts| CapValue::from(Some(intent::DeviceCap { percent, watts }));
        assert_eq!(of(percent, watts), CapValue::Each(Watts::from_int(216)));
        assert_eq!(of(None, watts), CapValue::Each(Watts::from_int(216)));
        assert_eq!(of(percent, None), CapValue::Percent(Percent::from_int(60)));
        assert_eq!((of(None, None), CapValue::from(None)), (CapValue::Open, CapValue::Open));
        assert_eq!(CapValue::from(Some(intent::DeviceCap::LIFTED)).percent(None), Some(Percent::HUNDRED));
    }

    #[test]
    fn a_cap_in_watts_is_a_part_of_the_rating_too() {
        // Fix list operator B29: 2 × 360 W at 216 W each are 60 %.
        let devices = RatedDevices { each: watts(360), count: 2 };
        let cap = CapValue::Each(watts(216));
        assert_eq!(cap.percent(Some(devices)), Some(Percent::from_int(60)));
        assert_eq!(devices.under(cap), CappedRating { rating: watts(720), capped: watts(432) });
        // A cap above the rating leaves all of it; without devices there is nothing to cap.
        assert_eq!(CapValue::Each(watts(5_000)).percent(Some(devices)), Some(Percent::HUNDRED));
        assert_eq!(devices.under(CapValue::Each(watts(5_000))).capped, watts(720));
        let none = RatedDevices { each: Watts::ZERO, count: 0 };
        assert_eq!(cap.percent(Some(none)), Some(Percent::HUNDRED));
        assert_eq!(none.under(cap).capped, Watts::ZERO);
        assert_eq!(cap.percent(None), None);
    }

    #[test]
    fn a_cap_of_nothing_or_less_is_no_cap_and_more_than_all_is_all() {
        // Table C10: pct 0 or negative → 100.
        let devices = RatedDevices { each: watts(360), count: 2 };
        for cap in [
            CapValue::Open,
            CapValue::Percent(Percent::ZERO),
            CapValue::Percent(Percent::from_int(-3)),
            CapValue::Percent(Percent::from_int(250)),
            CapValue::Percent(Percent::MAX),
            CapValue::Each(Watts::ZERO),
            CapValue::Each(Watts::MIN),
        ] {
            assert_eq!(cap.percent(Some(devices)), Some(Percent::HUNDRED), "{cap:?}");
            assert_eq!(devices.under(cap).capped, watts(720), "{cap:?}");
        }
    }

    #[test]
    fn the_smallest_cap_still_leaves_something_to_exceed() {
        let devices = RatedDevices { each: watts(1), count: 1 };
        assert_eq!(devices.under(CapValue::Percent(Percent::from_bits(1))).capped, Watts::from_bits(1));
    }

    proptest! {
        #[test]
        fn a_lower_cap_never_leaves_more(
            (each, count) in (1_i32..2_000, 0_u32..64),
            (low, more) in (1_i64..(100 << 32), 0_i64..(100 << 32)),
        ) {
            let devices = RatedDevices { each: watts(each), count };
            let percent = |bits| devices.under(CapValue::Percent(Percent::from_bits(bits)));
            prop_assert!(percent(low).capped <= percent(low + more).capped);
            prop_assert!(percent(low).capped <= percent(low).rating);
            let of_each = |bits| devices.under(CapValue::Each(Watts::from_bits(bits)));
            prop_assert!(of_each(low).capped <= of_each(low + more).capped);
        }
    }
}
