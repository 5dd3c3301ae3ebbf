//! What a node's devices are rated at, and what a cap leaves of it.
//!
//! Discovered ranges come first, then the catalogue's, then a guess from the number of cores. A range of nothing or
//! less is a range that nobody knows. Whatever is guessed is guessed low: a rating that is too small makes a node look
//! fuller than it is, and never emptier.

use crate::hardware::{Cpu, Gpus, Hardware};
use crate::share::percent_of;
use power_units::{Percent, Role, Watts};

/// What the catalogue knows of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The lowest power limit of one.
    pub min: Option<Watts>,
    /// The highest power limit of one.
    pub max: Watts,
}

/// The catalogue's answer for the models of a node; the catalogue has tried both the model and the raw name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Catalogued {
    /// Its processor.
    pub cpu: Option<Range>,
    /// Its graphics processor.
    pub gpu: Option<Range>,
}

/// A core that nothing else is known of counts with 5 W.
const PER_CORE: Watts = Watts::from_int(5);

/// Fills in what the node itself did not say.
#[must_use]
pub fn enrich(hardware: &Hardware, catalogued: Catalogued) -> Hardware {
    let gpu = hardware.gpu.as_ref().map(|gpus| enrich_gpus(gpus, catalogued.gpu));
    Hardware { cpu: enrich_cpu(&hardware.cpu, catalogued.cpu), gpu }
}

fn enrich_cpu(cpu: &Cpu, catalogued: Option<Range>) -> Cpu {
    // A node without a package does not run; of how many there are one is the least.
    let sockets = cpu.sockets.filter(|&sockets| sockets > 0).unwrap_or(1);
    let (min, max) = match (known(cpu.max_per_socket), catalogued) {
        (Some(max), _) => (known(cpu.min_per_socket), Some(max)),
        (None, Some(range)) => (known(cpu.min_per_socket).or(range.min), Some(range.max)),
        (None, None) => (known(cpu.min_per_socket), by_cores(cpu.total_cores, sockets)),
    };
    Cpu {
        model: cpu.model.clone(),
        sockets: max.map(|_| sockets).or(cpu.sockets),
        total_cores: cpu.total_cores,
        min_per_socket: min,
        max_per_socket: max,
    }
}

fn by_cores(cores: Option<u32>, sockets: u32) -> Option<Watts> {
    let per_socket = cores?.checked_div(sockets)?;
    known(Some(PER_CORE.times(per_socket)))
}

fn enrich_gpus(gpus: &Gpus, catalogued: Option<Range>) -> Gpus {
    let (min, max) = match (known(gpus.max), catalogued) {
        (Some(max), _) => (known(gpus.min), Some(max)),
        (None, Some(range)) => (known(gpus.min).or(range.min), Some(range.max)),
        (None, None) => (known(gpus.min), None),
    };
    Gpus { model: gpus.model.clone(), count: gpus.count, min, max }
}

fn known(range: Option<Watts>) -> Option<Watts> {
    range.filter(|&watts| watts > Watts::ZERO)
}

/// A cap as it was planned or confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// None.
    Open,
    /// A part of the highest limit. Nothing or less is no cap, as in the status of every generation.
    Percent(Percent),
    /// So many watts for each package or graphics processor.
    Each(Watts),
}

impl Cap {
    /// The cap as a part of the rating, at most all of it; unknown for a cap in watts on an unknown rating.
    #[must_use]
    pub fn percent(self, devices: Option<Devices>) -> Option<Percent> {
        match self {
            Self::Open => Some(Percent::HUNDRED),
            Self::Percent(percent) if percent <= Percent::ZERO => Some(Percent::HUNDRED),
            Self::Percent(percent) => Some(percent.min(Percent::HUNDRED)),
            Self::Each(watts) if watts <= Watts::ZERO => Some(Percent::HUNDRED),
            Self::Each(watts) => match devices {
                Some(Devices { count: 0, .. }) => Some(Percent::HUNDRED),
                Some(Devices { each, .. }) => {
                    percent_of(watts, each, Role::Limit).map(|percent| percent.min(Percent::HUNDRED))
                }
                None => None,
            },
        }
    }
}

/// Devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Devices {
    each: Watts,
    count: u32,
}

impl Devices {
    /// What they are rated at together, and what is left of it under a cap.
    #[must_use]
    pub fn under(self, cap: Cap) -> Budget {
        let rating = self.each.times(self.count);
        let capped = match cap {
            Cap::Open => rating,
            Cap::Percent(percent) if percent <= Percent::ZERO => rating,
            Cap::Percent(percent) => {
                rating.scale(percent.to_ratio(Role::Limit), Role::Limit).max(SMALLEST).min(rating)
            }
            Cap::Each(watts) if watts <= Watts::ZERO => rating,
            Cap::Each(watts) => watts.min(self.each).times(self.count),
        };
        Budget { rating, capped }
    }
}

/// A cap that rounding has brought to nothing is the smallest there is: 0 W of budget with 0 W of estimated draw would
/// be an empty node.
const SMALLEST: Watts = Watts::from_bits(1);

/// A rating and what the cap leaves of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Uncapped.
    pub rating: Watts,
    /// Capped.
    pub capped: Watts,
}

impl Budget {
    /// Both budgets together, if that can be told.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            rating: self.rating.checked_add(other.rating)?,
            capped: self.capped.checked_add(other.capped)?,
        })
    }
}

/// The devices of a node, as far as their ratings are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratings {
    /// The packages.
    pub cpu: Option<Devices>,
    /// The graphics processors; none at all are a known number of them.
    pub gpu: Option<Devices>,
}

impl Ratings {
    /// Of a node whose hardware has been enriched.
    #[must_use]
    pub fn of(hardware: &Hardware) -> Self {
        let cpu = known(hardware.cpu.max_per_socket)
            .zip(hardware.cpu.sockets.filter(|&sockets| sockets > 0))
            .map(|(each, count)| Devices { each, count });
        let gpu = match hardware.gpu.as_ref() {
            None => Some(Devices { each: Watts::ZERO, count: 0 }),
            Some(gpus) => known(gpus.max).map(|each| Devices { each, count: gpus.count }),
        };
        Self { cpu, gpu }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn watts(value: i32) -> Watts {
        Watts::from_int(value)
    }

    fn cpu(sockets: Option<u32>, cores: Option<u32>, max: Option<i32>) -> Hardware {
        let max_per_socket = max.map(watts);
        let cpu = Cpu { sockets, total_cores: cores, max_per_socket, ..Cpu::default() };
        Hardware { cpu, gpu: None }
    }

    fn with_gpus(count: u32, max: Option<i32>) -> Hardware {
        let gpu = Some(Gpus { model: None, count, min: None, max: max.map(watts) });
        Hardware { gpu, ..cpu(Some(1), None, Some(200)) }
    }

    fn epyc_9654() -> Catalogued {
        Catalogued { cpu: Some(Range { min: Some(watts(320)), max: watts(360) }), gpu: None }
    }

    fn rating(hardware: &Hardware) -> Option<Watts> {
        Ratings::of(hardware).cpu.map(|devices| devices.under(Cap::Open).rating)
    }

    #[test]
    fn the_catalogue_gives_what_the_node_did_not_say() {
        // Table C10, enrichment: model 9654, 2 sockets.
        let enriched = enrich(&cpu(Some(2), Some(192), None), epyc_9654());
        assert_eq!(enriched.cpu.max_per_socket, Some(watts(360)));
        assert_eq!(enriched.cpu.min_per_socket, Some(watts(320)));
        assert_eq!(rating(&enriched), Some(watts(720)));
        // What was discovered is kept.
        let discovered = enrich(&cpu(Some(2), None, Some(400)), epyc_9654());
        assert_eq!((discovered.cpu.max_per_socket, discovered.cpu.min_per_socket), (Some(watts(400)), None));
    }

    #[test]
    fn a_catalogue_hit_without_a_number_of_sockets_is_one_package_and_not_none() {
        // Fix list B28: 0 sockets made a rating of 0 W and a headroom of 100.
        for sockets in [None, Some(0)] {
            assert_eq!(rating(&enrich(&cpu(sockets, Some(96), None), epyc_9654())), Some(watts(360)));
        }
    }

    #[test]
    fn what_no_catalogue_knows_is_guessed_from_its_cores() {
        // Table C10, enrichment: 5 W a core.
        let guess = |sockets, cores| enrich(&cpu(sockets, cores, None), Catalogued::default());
        let (one, three) = (guess(Some(0), Some(8)), guess(Some(3), Some(8)));
        assert_eq!((one.cpu.sockets, rating(&one)), (Some(1), Some(watts(40))));
        assert_eq!((three.cpu.max_per_socket, rating(&three)), (Some(watts(10)), Some(watts(30))));
        assert_eq!(guess(Some(2), Some(192)).cpu.max_per_socket, Some(watts(480)));
        assert_eq!(rating(&guess(Some(2), None)), None);
        assert_eq!(rating(&guess(Some(2), Some(0))), None);
        assert_eq!(rating(&guess(Some(2), Some(1))), None);
    }

    #[test]
    fn a_range_of_nothing_is_a_range_that_nobody_knows() {
        for max in [0, -5, i32::MIN] {
            assert_eq!(rating(&enrich(&cpu(Some(2), Some(192), Some(max)), epyc_9654())), Some(watts(720)));
            assert_eq!(rating(&cpu(Some(2), None, Some(max))), None);
            assert_eq!(Ratings::of(&with_gpus(8, Some(max))).gpu, None);
        }
    }

    #[test]
    fn graphics_processors_count_with_the_range_that_is_known() {
        // Table C10, enrichment: H100 NVL × 8, 400/200 W; fix list B28: a known range is not thrown away.
        let nvl = Catalogued { cpu: None, gpu: Some(Range { min: Some(watts(200)), max: watts(400) }) };
        let gpu = |hardware: &Hardware| Ratings::of(hardware).gpu.map(|gpu| gpu.under(Cap::Open).rating);
        let enriched = enrich(&with_gpus(8, None), nvl);
        assert_eq!(gpu(&enriched), Some(watts(3_200)));
        assert_eq!(enriched.gpu.unwrap().min, Some(watts(200)));
        assert_eq!(gpu(&enrich(&with_gpus(8, Some(300)), nvl)), Some(watts(2_400)));
        assert_eq!(gpu(&enrich(&with_gpus(8, None), Catalogued::default())), None);
        assert_eq!(gpu(&cpu(Some(2), None, Some(360))), Some(Watts::ZERO));
    }

    #[test]
    fn a_cap_in_watts_is_a_part_of_the_rating_too() {
        // Fix list B29: 2 × 360 W at 216 W each are 60 %.
        let devices = Devices { each: watts(360), count: 2 };
        let cap = Cap::Each(watts(216));
        assert_eq!(cap.percent(Some(devices)), Some(Percent::from_int(60)));
        assert_eq!(devices.under(cap), Budget { rating: watts(720), capped: watts(432) });
        // A cap above the rating leaves all of it, a cap on nothing leaves nothing to cap.
        assert_eq!(Cap::Each(watts(5_000)).percent(Some(devices)), Some(Percent::HUNDRED));
        assert_eq!(devices.under(Cap::Each(watts(5_000))).capped, watts(720));
        let none = Devices { each: Watts::ZERO, count: 0 };
        assert_eq!(cap.percent(Some(none)), Some(Percent::HUNDRED));
        assert_eq!(none.under(cap).capped, Watts::ZERO);
        assert_eq!(cap.percent(None), None);
    }

    #[test]
    fn a_cap_of_nothing_or_less_is_no_cap_and_more_than_all_is_all() {
        // Table C10: pct 0 or negative → 100.
        let devices = Devices { each: watts(360), count: 2 };
        for cap in [
            Cap::Open,
            Cap::Percent(Percent::ZERO),
            Cap::Percent(Percent::from_int(-3)),
            Cap::Percent(Percent::from_int(250)),
            Cap::Percent(Percent::MAX),
            Cap::Each(Watts::ZERO),
            Cap::Each(Watts::MIN),
        ] {
            assert_eq!(cap.percent(Some(devices)), Some(Percent::HUNDRED), "{cap:?}");
            assert_eq!(devices.under(cap).capped, watts(720), "{cap:?}");
        }
    }

    #[test]
    fn the_smallest_cap_still_leaves_something_to_exceed() {
        let devices = Devices { each: watts(1), count: 1 };
        assert_eq!(devices.under(Cap::Percent(Percent::from_bits(1))).capped, Watts::from_bits(1));
    }

    proptest! {
        #[test]
        fn a_lower_cap_never_leaves_more(
            (each, count) in (1_i32..2_000, 0_u32..64),
            (low, more) in (1_i64..(100 << 32), 0_i64..(100 << 32)),
        ) {
            let devices = Devices { each: watts(each), count };
            let percent = |bits| devices.under(Cap::Percent(Percent::from_bits(bits)));
            prop_assert!(percent(low).capped <= percent(low + more).capped);
            prop_assert!(percent(low).capped <= percent(low).rating);
            let of_each = |bits| devices.under(Cap::Each(Watts::from_bits(bits)));
            prop_assert!(of_each(low).capped <= of_each(low + more).capped);
        }
    }
}
