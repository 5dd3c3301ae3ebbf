//! Plausible numbers of power.

pub(crate) use hal_files::devices::{in_force, possible};
use power_hal::{BadLimit, Limit, Span};
use power_units::MicroWatts;

/// Nothing runs below a watt, and amdgpu takes 0 W as a request to apply the current cap once more.
const FLOOR: MicroWatts = MicroWatts::new(1_000_000);

/// The last whole watt that fits in the 32 bits of `power1_cap`; beyond them the kernel answers
/// ERANGE.
const CEILING: MicroWatts = MicroWatts::new(4_294_000_000);

/// The range of a device's cap as the device reports it, each value if it is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) min: Option<MicroWatts>,
    pub(crate) max: Option<MicroWatts>,
    pub(crate) default: Option<MicroWatts>,
}

impl Told {
    /// The limit of a device whose caps have this step.
    pub(crate) fn limit(&self, step: MicroWatts) -> Result<Limit<MicroWatts>, BadLimit> {
        let limit = Limit::new(Span { floor: FLOOR, ceiling: CEILING }, step)?.known(self.min, self.max)?;
        Ok(limit.with_default(self.default))
    }

    /// Whether the known range contains this cap.
    pub(crate) fn holds(&self, cap: MicroWatts) -> bool {
        self.max.is_some_and(|max| cap <= max) && self.min.is_none_or(|min| cap >= min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: MicroWatts = MicroWatts::new(1_000_000);

    const fn w(watts: u64) -> Option<MicroWatts> {
        Some(MicroWatts::new(watts * 1_000_000))
    }

    #[test]
    fn a_nearly_empty_range_is_a_range_and_of_a_crossed_one_the_maximum_holds() {
        let told = |min, max| Told { min, max, default: None };
        let limit = told(w(290), w(290)).limit(W).unwrap();
        assert_eq!((Some(limit.lower()), Some(limit.upper())), (w(290), w(290)));
        let ends = |told: Told| told.limit(W).map(|limit| (limit.lower(), limit.upper()));
        assert_eq!(ends(told(w(300), w(290))), Ok((FLOOR, MicroWatts::new(290_000_000))));
        assert_eq!(ends(told(w(4_295), None)), Ok((FLOOR, CEILING)));
    }

    #[test]
    fn what_the_kernel_would_refuse_as_too_large_is_never_written() {
        let unknown = Told::default().limit(W).unwrap();
        assert_eq!(unknown.clamp(MicroWatts::MAX), Some(CEILING));
        assert!(CEILING.get() <= u64::from(u32::MAX) && CEILING.get() + 1_000_000 > u64::from(u32::MAX));
        assert_eq!(unknown.clamp(MicroWatts::new(1)), Some(FLOOR));
    }

    #[test]
    fn a_cap_of_nothing_and_an_impossible_power_are_no_answers() {
        assert_eq!(in_force(MicroWatts::ZERO), None);
        assert_eq!(possible(MicroWatts::ZERO), Some(MicroWatts::ZERO));
        assert_eq!(possible(MicroWatts::MAX), None);
        assert_eq!(in_force(MicroWatts::new(20_000_000_001)), None);
    }
}
