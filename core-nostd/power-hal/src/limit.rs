//! The range of a limit: the range that the hardware reports, which may be unknown, and the range of its register,
//! which is always known. Clamping is done here, before a HAL writes, because kernels do not clamp: a powercap limit of
//! 4096 W is accepted and becomes 0 W.

use core::fmt;
use power_units::{KiloHertz, MicroWatts, Percent, Role};

mod sealed {
    pub trait Sealed {}
    impl Sealed for power_units::MicroWatts {}
    impl Sealed for power_units::KiloHertz {}
}

/// A quantity that can be limited.
pub trait LimitQuantity: sealed::Sealed + Copy + Ord + fmt::Debug {
    /// Zero, which is never a limit.
    const ZERO: Self;
    /// The smallest limit above zero that a device accepts.
    const UNIT: Self;

    /// Rounded down to a value that a device accepts.
    #[must_use]
    fn whole(self) -> Self;

    /// How much more this is than `other`, saturated.
    #[must_use]
    fn above(self, other: Self) -> Self;
}

impl LimitQuantity for MicroWatts {
    const ZERO: Self = Self::ZERO;
    const UNIT: Self = Self::new(1);

    fn whole(self) -> Self {
        self
    }

    fn above(self, other: Self) -> Self {
        self - other
    }
}

impl LimitQuantity for KiloHertz {
    const ZERO: Self = Self::ZERO;
    const UNIT: Self = Self::from_int(1);

    fn whole(self) -> Self {
        Self::from_int(i32::try_from(self.to_whole(Role::Limit)).unwrap_or(i32::MAX))
    }

    fn above(self, other: Self) -> Self {
        self - other
    }
}

/// The values that a register can hold, whatever the hardware does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<Q> {
    /// The smallest limit that is still reasonable to write; above zero.
    pub floor: Q,
    /// The largest limit that the register can hold.
    pub ceiling: Q,
}

/// A limit that a domain has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<Q> {
    writable: Span<Q>,
    step: Q,
    min: Option<Q>,
    max: Option<Q>,
    default: Option<Q>,
}

/// Why a range is refused: such a domain has no limit to set, and is described without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLimit {
    /// The floor of what can be written is not above zero, or a step down from it would be zero.
    NotPositive,
    /// The lower end is above the upper one.
    Crossed,
}

impl fmt::Display for BadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPositive => "expected a floor above zero and no smaller than the step",
            Self::Crossed => "expected a lower end that is not above the upper end",
        })
    }
}

impl core::error::Error for BadLimit {}

impl<Q: LimitQuantity> Limit<Q> {
    /// A limit of which only the register is known. The device rounds a written value down to a multiple of `step`;
    /// zero stands for a device that accepts every value, and for uneven steps.
    ///
    /// # Errors
    /// When the span is empty or reaches down to a value that the device would round to zero.
    pub fn new(writable: Span<Q>, step: Q) -> Result<Self, BadLimit> {
        if writable.floor < Q::UNIT || writable.floor < step {
            return Err(BadLimit::NotPositive);
        }
        if writable.floor > writable.ceiling {
            return Err(BadLimit::Crossed);
        }
        Ok(Self { writable, step, min: None, max: None, default: None })
    }

    /// With the range that the hardware reports. An impossible bound counts as unknown, so that the domain keeps its
    /// limit: a bound of zero, a maximum below the smallest written value, and a minimum above the maximum or the
    /// register's end.
    ///
    /// A maximum below the limit that is in force when the domain is described is also not valid (a real firmware had
    /// 35 W in force and a maximum of 28 W). Only the HAL reads both, so it passes `None` for such a maximum.
    ///
    /// # Errors
    /// None: every input gives a range. It returns a `Result` so that it can be chained with [`Limit::new`].
    pub fn known(self, min: Option<Q>, max: Option<Q>) -> Result<Self, BadLimit> {
        let max = max.filter(|&max| max >= self.writable.floor);
        let limit = Self { min: None, max, ..self };
        let min = min.filter(|&min| min > Q::ZERO && min <= limit.upper());
        Ok(Self { min, ..limit })
    }

    /// With the default value of the device.
    #[must_use]
    pub fn with_default(self, default: Option<Q>) -> Self {
        Self { default: default.filter(|&q| q > Q::ZERO), ..self }
    }

    /// The smallest limit in the hardware's reported range, if it reports one.
    #[must_use]
    pub const fn min(&self) -> Option<Q> {
        self.min
    }

    /// The largest limit in the hardware's reported range, if it reports one: a percentage refers to it.
    #[must_use]
    pub const fn max(&self) -> Option<Q> {
        self.max
    }

    /// The default value of the device, if it reports one.
    #[must_use]
    pub const fn default(&self) -> Option<Q> {
        self.default
    }

    /// The step between two limits of the device.
    #[must_use]
    pub const fn step(&self) -> Q {
        self.step
    }

    /// The values that the register can hold, whatever range the hardware reports.
    #[must_use]
    pub const fn writable(&self) -> Span<Q> {
        Span { floor: self.writable.floor, ceiling: self.writable.ceiling }
    }

    /// The smallest limit that is ever written.
    #[must_use]
    pub fn lower(&self) -> Q {
        self.min.map_or(self.writable.floor, |min| min.max(self.writable.floor))
    }

    /// The largest limit that is ever written.
    #[must_use]
    pub fn upper(&self) -> Q {
        self.max.map_or(self.writable.ceiling, |max| max.min(self.writable.ceiling))
    }

    /// The limit to write for a wish; `None` when the wish is zero or below.
    #[must_use]
    pub fn clamp(&self, wish: Q) -> Option<Q> {
        let whole = wish.whole();
        (whole > Q::ZERO).then(|| whole.max(self.lower()).min(self.upper()))
    }

    /// Whether what is in force matches the wish, apart from the device's rounding down.
    #[must_use]
    pub fn grants(&self, wish: Q, effective: Q) -> bool {
        effective <= wish && wish.above(effective) < self.step.max(Q::UNIT)
    }
}

/// A throttle: by how much the speed of a domain is reduced, from zero to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    max: Percent,
    step: Percent,
}

impl Throttle {
    /// A throttle up to `max`, in steps of `step`, rounded up by the device; zero stands for a device without steps.
    ///
    /// # Errors
    /// When the largest throttle is not above zero, or is above 100 %.
    pub fn new(max: Percent, step: Percent) -> Result<Self, BadLimit> {
        if max <= Percent::ZERO || step < Percent::ZERO {
            return Err(BadLimit::NotPositive);
        }
        if max > Percent::HUNDRED || step > max {
            return Err(BadLimit::Crossed);
        }
        Ok(Self { max, step })
    }

    /// The largest throttle.
    #[must_use]
    pub const fn max(&self) -> Percent {
        self.max
    }

    /// The throttle to write for a wish; `None` when it is negative.
    #[must_use]
    pub fn clamp(&self, wish: Percent) -> Option<Percent> {
        (wish >= Percent::ZERO).then(|| wish.min(self.max))
    }

    /// Whether what is in force matches the wish, apart from the device's rounding up.
    #[must_use]
    pub fn grants(&self, wish: Percent, effective: Percent) -> bool {
        effective == wish || (effective > wish && effective - wish < self.step)
    }
}

/// The order in which to change several limits of one domain, so that no instant is above both the old and the new
/// limits: first the indices of those that fall, then of those that rise. Unchanged limits are not written.
///
/// ```
/// use power_hal::lower_first;
/// // Long-term 200 W → 220 W, short-term 400 W → 275 W: the short-term limit goes first.
/// let order: Vec<usize> = lower_first(&[(200, 220), (400, 275)]).collect();
/// assert_eq!(order, [1, 0]);
/// ```
pub fn lower_first<Q: Ord>(old_and_new: &[(Q, Q)]) -> impl Iterator<Item = usize> {
    let falling = (0..usize::MAX).zip(old_and_new).filter(|(_, (old, new))| new < old);
    let rising = (0..usize::MAX).zip(old_and_new).filter(|(_, (old, new))| new > old);
    falling.chain(rising).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const fn w(watts: u64) -> MicroWatts {
        MicroWatts::new(watts * 1_000_000)
    }

    const STEP: MicroWatts = MicroWatts::new(125_000);

    fn rapl() -> Limit<MicroWatts> {
        Limit::new(Span { floor: w(1), ceiling: MicroWatts::new(4_095_875_000) }, STEP).unwrap()
    }

    /// Fix list agent S16: 5000 W written without clamping wrap to 904 W, and 4096 W to 0.
    #[test]
    fn a_wish_above_the_range_is_the_upper_end_and_never_wraps() {
        let unknown = rapl();
        let known = unknown.known(Some(w(75)), Some(w(270))).unwrap();
        for huge in [w(4_096), w(5_000), MicroWatts::MAX] {
            assert_eq!(unknown.clamp(huge), Some(MicroWatts::new(4_095_875_000)));
            assert_eq!(known.clamp(huge), Some(w(270)));
        }
    }

    /// Fix list agent S19: each device has a range of its own.
    #[test]
    fn a_wish_below_the_range_is_the_lower_end_and_zero_is_no_limit() {
        let known = rapl().known(Some(w(75)), None).unwrap();
        assert_eq!(known.clamp(w(10)), Some(w(75)));
        assert_eq!(rapl().clamp(MicroWatts::new(1)), Some(w(1)), "1 µW would read back as 0");
        assert_eq!(known.clamp(MicroWatts::ZERO), None);
    }

    #[test]
    fn a_bound_of_zero_is_unknown() {
        let limit = rapl().known(Some(w(0)), Some(w(0))).unwrap();
        assert_eq!((limit.min(), limit.max()), (None, None));
        assert_eq!(limit.with_default(Some(w(0))).default(), None);
        assert_eq!(limit.with_default(Some(w(205))).default(), Some(w(205)));
    }

    #[test]
    fn a_bound_that_cannot_be_true_is_unknown_and_takes_no_limit_away() {
        let known = |min, max| rapl().known(min, max).map(|limit| (limit.min(), limit.max()));
        assert_eq!(
            known(Some(w(300)), Some(w(299))),
            Ok((None, Some(w(299)))),
            "a minimum above the maximum"
        );
        assert_eq!(known(Some(w(5_000)), None), Ok((None, None)), "a minimum that the register cannot hold");
        assert_eq!(known(None, Some(MicroWatts::new(999_999))), Ok((None, None)), "a maximum below a watt");
        assert_eq!(known(Some(w(75)), Some(w(5_000))), Ok((Some(w(75)), Some(w(5_000)))));
        assert_eq!(
            known(Some(w(290)), Some(w(290))),
            Ok((Some(w(290)), Some(w(290)))),
            "one value is a range"
        );
    }

    #[test]
    fn a_register_with_nothing_in_it_is_no_limit() {
        assert_eq!(Limit::new(Span { floor: w(0), ceiling: w(9) }, w(0)), Err(BadLimit::NotPositive));
        assert_eq!(Limit::new(Span { floor: w(1), ceiling: w(9) }, w(2)), Err(BadLimit::NotPositive));
        assert_eq!(Limit::new(Span { floor: w(9), ceiling: w(8) }, w(1)), Err(BadLimit::Crossed));
    }

    #[test]
    fn a_frequency_is_told_in_whole_kilohertz_rounded_down() {
        let khz = KiloHertz::from_int;
        let limit = Limit::new(Span { floor: khz(1_200_000), ceiling: khz(3_200_000) }, khz(0)).unwrap();
        let wish = KiloHertz::parse("2399999.9", Role::Limit).unwrap();
        assert_eq!(limit.clamp(wish), Some(khz(2_399_999)));
        assert_eq!(limit.clamp(KiloHertz::parse("0.9", Role::Limit).unwrap()), None);
        assert_eq!(limit.clamp(khz(-1)), None);
        assert_eq!(limit.clamp(KiloHertz::MIN), None);
        assert_eq!(limit.clamp(KiloHertz::MAX), Some(khz(3_200_000)));
    }

    #[test]
    fn what_the_device_rounds_away_is_granted_and_a_step_less_is_not() {
        // From the real driver: 100.123456 W reads back as 100 W, 99.999999 W as 99.875 W.
        assert!(rapl().grants(MicroWatts::new(100_123_456), w(100)));
        assert!(rapl().grants(MicroWatts::new(99_999_999), MicroWatts::new(99_875_000)));
        assert!(!rapl().grants(w(100), MicroWatts::new(99_875_000)));
        assert!(!rapl().grants(w(100), MicroWatts::new(100_000_001)));
        assert!(!rapl().grants(w(4_096), w(0)));
    }

    #[test]
    fn a_throttle_may_be_nothing_and_rounds_up() {
        let p = Percent::from_int;
        let throttle = Throttle::new(p(80), p(10)).unwrap();
        assert_eq!(throttle.clamp(p(0)), Some(p(0)));
        assert_eq!(throttle.clamp(p(-1)), None);
        assert_eq!(throttle.clamp(p(100)), Some(p(80)));
        assert!(
            throttle.grants(p(41), p(50)) && !throttle.grants(p(41), p(40)) && !throttle.grants(p(40), p(50))
        );
        assert_eq!(Throttle::new(p(0), p(0)), Err(BadLimit::NotPositive));
        assert_eq!(Throttle::new(p(101), p(1)), Err(BadLimit::Crossed));
        assert_eq!(Throttle::new(p(50), p(60)), Err(BadLimit::Crossed));
    }

    proptest! {
        #[test]
        fn a_clamped_wish_lies_in_the_range_and_never_above_the_wish_without_need(
            wish in any::<u64>(), min in 0_u64..5_000, max in 0_u64..5_000,
        ) {
            let limit = rapl().known(Some(w(min)), Some(w(max))).unwrap();
            let wish = MicroWatts::new(wish);
            match limit.clamp(wish) {
                None => prop_assert_eq!(wish, MicroWatts::ZERO),
                Some(limited) => {
                    prop_assert!(limit.lower() <= limited && limited <= limit.upper());
                    prop_assert!(limited <= wish || limited == limit.lower());
                    prop_assert_eq!(limit.clamp(limited), Some(limited));
                }
            }
        }

        #[test]
        fn no_instant_is_above_both_the_old_and_the_new_limits(
            changes in prop::collection::vec((0_u8..6, 0_u8..6), 0..5),
        ) {
            let (old, new): (Vec<u8>, Vec<u8>) = changes.iter().copied().unzip();
            let mut now = old.clone();
            for at in lower_first(&changes) {
                now[at] = new[at];
                let below = |bound: &[u8]| now.iter().zip(bound).all(|(limit, bound)| limit <= bound);
                prop_assert!(below(&old) || below(&new), "{:?} between {:?} and {:?}", now, old, new);
            }
            prop_assert_eq!(now, new);
        }
    }
}
