//! The model of the machine: the relative change of frequency for a relative change of power.
//!
//! The model is an exponent, `1/n` for an elasticity n, in sixteenths: `f · (target / P)^(k/16)` needs four square
//! roots of integers and nothing else. It is measured between two operating points that are far enough apart,
//!
//! ```text
//!         (f₁ − f₂) / (f₁ + f₂)
//! 1/n  ≈  ─────────────────────        (the logarithms' first terms, good to 2 % up to a factor of 1.6)
//!         (P₁ − P₂) / (P₁ + P₂)
//! ```
//!
//! and a measurement that is physically impossible (power that rises as the frequency falls: the load has changed) is
//! dropped. A load that changed together with the frequency can still mislead the model; the next move measures again.

use super::root::square_root;
use power_units::{KiloHertz, Ratio, Watts};

/// An exponent in sixteenths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exponent(u32);

/// An operating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) watts: Watts,
    pub(super) frequency: KiloHertz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Model {
    exponent: Exponent,
    /// The exponent as it was last measured, however small, for moves up.
    local: Exponent,
    /// The point where the last move began; `None` once the model has learned from it.
    left: Option<Point>,
}

const ONE: u64 = 1 << FRACTION_BITS;
const FRACTION_BITS: u32 = 30;
/// A move by less than 1 % of the frequency (0.5 % of the sum of both) is too small for a measurement.
const APART_MIN: u64 = ONE / 200;
/// The part by which the exponent below a move down is larger than that of the move: 1/2.
const BEND_SHIFT: u32 = 1;
/// Over a move by 30 % and more (14 % of the sum) the power is less steep than at its upper end.
const APART_LONG: u64 = ONE / 7;
/// From 10 % on, the measurement replaces the exponent; below, the mean of both is taken.
const APART_FAR: u64 = ONE / 20;

impl Exponent {
    /// 7/16: an elasticity of 2.3. Below it the least of a move down: a larger elasticity is corrected in several steps.
    const MIN: u32 = 7;
    /// 3/16: an elasticity of 5.3, the least of a move up. With two kinds of cores of which one is at its ceiling, the power
    /// rises that steeply with the mean limit.
    const STEEPEST: u32 = 3;
    /// 16/16: the most of a short move up.
    const NEAR_MAX: u32 = 16;
    /// 31/16: an elasticity of 0.5, a processor for which most of the power does not follow the frequency.
    const MAX: u32 = 31;
    /// The exponent of the longest move.
    pub(super) const LEAST_SENSITIVE: Self = Self(Self::MAX);

    /// The exponent nearest to the inverse of an elasticity from 0.75 to 4.
    pub(super) fn of_elasticity(elasticity: Ratio) -> Option<Self> {
        const QUARTER: i64 = 1 << 30;
        if elasticity.to_bits() < 3 * QUARTER || elasticity > Ratio::from_int(4) {
            return None;
        }
        let bits = elasticity.to_bits() >> 16;
        let sixteenths = (16_i64 << 16).saturating_add(bits >> 1).checked_div(bits)?;
        u32::try_from(sixteenths).ok().map(|k| Self(k.clamp(Self::MIN, Self::MAX)))
    }

    /// The frequency at which a machine that draws `watts` at `frequency` would draw `target`.
    pub(super) fn frequency_for(self, frequency: KiloHertz, target: Watts, watts: Watts) -> KiloHertz {
        let factor = i64::try_from(self.raise(quotient(target, watts))).unwrap_or(i64::MAX);
        frequency.scale(Ratio::from_bits(factor << (32 - FRACTION_BITS)), power_units::Role::Limit)
    }

    /// `base` to this power. The base is between 1/8 and 4. Roots are taken on 32 bits, to 1/2¹⁵: a control tick has
    /// no time for more, and no frequency is set finer.
    fn raise(self, base: u32) -> u64 {
        let mut power = if self.0 >= 16 { u64::from(base) } else { ONE };
        let mut root = base;
        for bit in [8_u32, 4, 2, 1] {
            // Below the lowest bit that is set there is nothing left to multiply.
            if self.0 & bit.wrapping_mul(2).wrapping_sub(1) == 0 {
                break;
            }
            let halves = square_root(root);
            if self.0 & bit != 0 {
                power = power.wrapping_mul(u64::from(halves)) >> (FRACTION_BITS / 2);
            }
            root = halves.wrapping_shl(FRACTION_BITS / 2);
        }
        power
    }
}

/// `target / watts`, clamped to the range from 1/8 to just below 4: a single reading justifies no larger step.
fn quotient(target: Watts, watts: Watts) -> u32 {
    let positive = |w: Watts| u64::try_from(w.to_bits()).unwrap_or(0).max(1);
    let (target, watts) = (positive(target), positive(watts));
    // Both lose the same low bits, so that the larger has 32 left, and the quotient's fraction fits above it.
    let excess = 32_u32.saturating_sub(target.max(watts).leading_zeros());
    let (target, watts) = (target.wrapping_shr(excess), watts.wrapping_shr(excess));
    let quotient = target.wrapping_shl(FRACTION_BITS).checked_div(watts).unwrap_or(u64::MAX);
    u32::try_from(quotient.max(ONE / 8)).unwrap_or(u32::MAX)
}

/// `part / whole`, clamped to the range from 1/8 to just below 4, to a part in 2³⁰.
pub(super) fn part_of(part: Watts, whole: Watts) -> Ratio {
    Ratio::from_bits(i64::from(quotient(part, whole)) << (32 - FRACTION_BITS))
}

impl Model {
    pub(super) const fn new(prior: Exponent) -> Self {
        Self { exponent: prior, local: prior, left: None }
    }

    /// The exponent for a move down: the full one.
    pub(super) const fn down(&self) -> Exponent {
        self.exponent
    }

    /// The exponent for a move up: half of it, and never more than half of 13/16, since an apparently insensitive
    /// machine may have a load that fell while the frequency rose. It is not more than was measured last, either.
    pub(super) fn up(&self) -> Exponent {
        Exponent(self.exponent.0.min(13).div_ceil(2).min(self.local.0))
    }

    /// The exponent for a short move up.
    pub(super) fn near(&self) -> Exponent {
        Exponent(self.exponent.0.min(Exponent::NEAR_MAX).min(self.local.0))
    }

    /// The exponent for a move up to the next frequency that the hardware has.
    pub(super) fn whole(&self) -> Exponent {
        Exponent(self.exponent.0.min(self.local.0))
    }

    /// A move starts at this point. An earlier point that has not been learned from stays.
    pub(super) fn leave(&mut self, point: Point) {
        self.left = self.left.or(Some(point));
    }

    pub(super) fn forget_point(&mut self) {
        self.left = None;
    }

    /// The machine has settled at this point; the readings have this much noise.
    pub(super) fn learn(&mut self, now: Point, noise: Watts) {
        let Some(left) = self.left.take() else { return };
        if let Some((measured, moved)) = measure(&left, &now, noise) {
            self.local =
                Exponent(if moved >= APART_LONG { self.local.0.min(measured.0) } else { measured.0 });
            // Below the end of a move down the same change of power takes more: less of it follows the frequency there.
            let least = measured.0.max(Exponent::MIN);
            let further = if left.frequency > now.frequency { least >> BEND_SHIFT } else { 0 };
            let measured = Exponent(least.saturating_add(further).min(Exponent::MAX));
            self.exponent = if moved >= APART_FAR {
                measured
            } else {
                Exponent(self.exponent.0.saturating_add(measured.0).div_ceil(2))
            };
        } else if self
            .expected(&left, &now)
            .is_some_and(|expected| is_without_effect(&left, &now, expected, noise))
        {
            self.exponent = Exponent(self.exponent.0.saturating_mul(2).min(Exponent::MAX));
        }
    }

    /// The change of power that a move between these frequencies should bring.
    fn expected(&self, left: &Point, now: &Point) -> Option<Watts> {
        let moved = apart(left.frequency.to_bits(), now.frequency.to_bits())?;
        // Twice the difference over the sum, times the elasticity.
        let part = moved.saturating_mul(32).checked_div(u64::from(self.exponent.0))?;
        let part = i64::try_from(part.min(ONE)).ok()? << (32 - FRACTION_BITS);
        Some(left.watts.scale(Ratio::from_bits(part), power_units::Role::Nearest))
    }

    /// The machine passes this point during a move. If the measurement requires a larger move than expected, it is
    /// used at once; the rest is learned after the move.
    pub(super) fn glimpse(&mut self, now: Point, noise: Watts) {
        if let Some((measured, _)) = self.left.and_then(|left| measure(&left, &now, noise)) {
            self.exponent = Exponent(self.exponent.0.max(measured.0));
        }
    }
}

/// The exponent from two points, and how far apart they are; `None` if the points do not allow a measurement. A power
/// that changed by less than four times the noise is not a measurement. (Inlined, because the stack of a control tick
/// is bounded.)
#[inline]
fn measure(left: &Point, now: &Point, noise: Watts) -> Option<(Exponent, u64)> {
    if (left.watts - now.watts).abs() < noise + noise + noise + noise {
        return None;
    }
    let moved = apart(left.frequency.to_bits(), now.frequency.to_bits())?;
    let drawn = apart(left.watts.to_bits(), now.watts.to_bits())?;
    let same_way = (left.frequency > now.frequency) == (left.watts > now.watts);
    if moved < APART_MIN || !same_way {
        return None;
    }
    let sixteenths = moved.saturating_mul(16).saturating_add(drawn >> 1).checked_div(drawn)?;
    let sixteenths = u32::try_from(sixteenths).unwrap_or(u32::MAX);
    Some((Exponent(sixteenths.clamp(Exponent::STEEPEST, Exponent::MAX)), moved))
}

/// Whether less than a quarter of the change that was expected of a move down has come, although it would stand out from the
/// noise: the machine runs below the limit by itself.
fn is_without_effect(left: &Point, now: &Point, expected: Watts, noise: Watts) -> bool {
    left.frequency > now.frequency
        && expected > noise + noise + noise + noise
        && left.watts - now.watts < Watts::from_bits(expected.to_bits() >> 2)
        // Power that rose is a load that rose.
        && now.watts <= left.watts + noise + noise
}

/// `|a − b| / (a + b)` of two positive numbers.
fn apart(a: i64, b: i64) -> Option<u64> {
    let positive = |x: i64| u64::try_from(x).ok().filter(|&x| x > 0);
    let (a, b) = (positive(a)?, positive(b)?);
    let sum = a.saturating_add(b);
    // Both lose the same low bits, so that the difference can be shifted up by the fraction's.
    let excess = 33_u32.saturating_sub(sum.leading_zeros());
    a.abs_diff(b).wrapping_shr(excess).wrapping_shl(FRACTION_BITS).checked_div(sum.wrapping_shr(excess))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn watts(watts: f64) -> Watts {
        Watts::from_bits((watts * 2_f64.powi(32)) as i64)
    }

    fn point(watts_: f64, ghz: f64) -> Point {
        Point { watts: watts(watts_), frequency: KiloHertz::from_int((ghz * 1e6) as i32) }
    }

    fn exponent(elasticity: &str) -> Option<u32> {
        let elasticity = Ratio::parse(elasticity, power_units::Role::Nearest).unwrap();
        Exponent::of_elasticity(elasticity).map(|exponent| exponent.0)
    }

    #[test]
    fn an_elasticity_becomes_its_inverse_in_sixteenths() {
        // 16/1.4 = 11.4, 16/1.9 = 8.4, 16/0.75 = 21.3; 16/2.5 = 6.4 and 16/4 are below the least, 7.
        let all = ["0.75", "1", "1.4", "1.9", "2", "2.5", "4"].map(exponent);
        assert_eq!(all, [Some(21), Some(16), Some(11), Some(8), Some(8), Some(7), Some(7)]);
        assert_eq!(["0", "-1", "0.74", "4.01", "2147483647"].map(exponent), [None; 5]);
    }

    #[test]
    fn half_the_power_at_an_elasticity_of_two_needs_the_root_of_half_the_frequency() {
        // 2 GHz · √½ = 1,414,213.56 kHz; the root is cut to 23,170/2¹⁵.
        let next = Exponent(8).frequency_for(KiloHertz::from_int(2_000_000), watts(150.0), watts(300.0));
        assert_eq!(next.to_whole(power_units::Role::Limit), 1_414_184);
    }

    #[test]
    fn a_large_move_is_the_machines_own_word() {
        let mut model = Model::new(Exponent(8));
        // P ∝ f: 400 W at 3.2 GHz, 300 W at 2.4 GHz.
        model.leave(point(400.0, 3.2));
        model.learn(point(300.0, 2.4), Watts::ZERO);
        // 16, and half of it more for what lies below.
        assert_eq!(model.exponent, Exponent(24));
        // A move of 5 % at P ∝ f² (5.26 % and 10.5 % of the sums): half way from 24 to 8 + 4.
        model.leave(point(400.0, 2.0));
        model.learn(point(361.0, 1.9), Watts::ZERO);
        assert_eq!(model.exponent, Exponent(18));
        // A move up is taken as it is.
        model.leave(point(300.0, 2.4));
        model.learn(point(400.0, 3.2), Watts::ZERO);
        assert_eq!(model.exponent, Exponent(16));
    }

    #[test]
    fn a_steep_measurement_shortens_moves_up_and_not_moves_down() {
        let mut model = Model::new(Exponent(11));
        // Half of 11, rounded up.
        assert_eq!((model.up(), model.near(), model.whole()), (Exponent(6), Exponent(11), Exponent(11)));
        // P ∝ f⁴ from 2.5 to 2.6 GHz: 300 W to 350.96 W.
        model.leave(point(300.0, 2.5));
        model.learn(point(350.96, 2.6), Watts::ZERO);
        assert_eq!(model.exponent, Exponent(9));
        assert_eq!((model.up(), model.near(), model.whole()), (Exponent(4), Exponent(4), Exponent(4)));
        // Over a long way the mean is less steep than the end: it does not replace what was measured there.
        model.leave(point(150.0, 1.2));
        model.learn(point(300.0, 2.5), Watts::ZERO);
        assert_eq!(model.local, Exponent(4));
    }

    #[test]
    fn what_no_processor_could_give_is_not_learned() {
        for now in [
            point(450.0, 2.4),
            point(300.0, 3.2),
            point(399.0, 3.17),
            point(381.0, 3.0),
            point(-5.0, 2.4),
            point(0.0, 0.0),
        ] {
            let mut model = Model::new(Exponent(8));
            model.leave(point(400.0, 3.2));
            model.learn(now, watts(5.0));
            assert_eq!(model, Model::new(Exponent(8)), "{now:?}");
        }
    }

    #[test]
    fn on_the_way_only_a_longer_way_is_learned_and_the_rest_on_arrival() {
        let mut model = Model::new(Exponent(8));
        model.leave(point(500.0, 3.2));
        // P ∝ f⁴ would need a smaller move, P ∝ f a larger one.
        model.glimpse(point(328.05, 2.88), Watts::ZERO);
        assert_eq!(model.exponent, Exponent(8));
        model.glimpse(point(450.0, 2.88), Watts::ZERO);
        assert_eq!(model.exponent, Exponent(16));
        model.learn(point(281.25, 2.4), Watts::ZERO);
        assert_eq!(model.exponent, Exponent(12));
    }

    #[test]
    fn a_move_down_without_effect_asks_for_twice_as_much_next() {
        // From 3.2 to 3.0 GHz, 3.23 % of the sum: at an elasticity of 2, 12.9 % of 400 W are expected, 52 W.
        for (found, noise, exponent) in
            [(399.0, 1.0, 16), (402.0, 1.0, 16), (403.0, 1.0, 8), (399.0, 13.0, 8)]
        {
            let mut model = Model::new(Exponent(8));
            model.leave(point(400.0, 3.2));
            model.learn(point(found, 3.0), watts(noise));
            assert_eq!(model.exponent, Exponent(exponent), "{found} W, noise {noise} W");
        }
        // Power that fell by more than a quarter of that is measured.
        let mut model = Model::new(Exponent(8));
        model.leave(point(400.0, 3.2));
        model.learn(point(370.0, 3.0), watts(1.0));
        assert!(model.exponent.0 < 16);
    }

    #[test]
    fn the_first_point_that_was_left_stays_until_it_has_been_learned_from() {
        let mut model = Model::new(Exponent(8));
        model.leave(point(400.0, 3.2));
        model.leave(point(350.0, 2.9));
        assert_eq!(model.left, Some(point(400.0, 3.2)));
        model.learn(point(300.0, 2.4), Watts::ZERO);
        assert_eq!(model.left, None);
    }

    proptest! {
        #[test]
        fn a_power_of_a_ratio_is_what_the_platforms_library_gives(base in 0.125_f64..4.0, sixteenths in 2_u32..=31) {
            let power = Exponent(sixteenths).raise((base * ONE as f64) as u32) as f64 / ONE as f64;
            let exact = base.powf(f64::from(sixteenths) / 16.0);
            // Four roots, each cut to 1/2¹⁵ of a value that is above 1/3.
            prop_assert!((power / exact - 1.0).abs() <= 3.7e-4, "{power} {exact}");
        }

        #[test]
        fn a_step_goes_the_right_way_and_no_farther_than_the_bounds(
            khz in 1_i32..6_000_000, target in 1_i64.., watts in 1_i64.., sixteenths in 2_u32..=31,
        ) {
            let (target, watts) = (Watts::from_bits(target), Watts::from_bits(watts));
            let from = KiloHertz::from_int(khz);
            let next = Exponent(sixteenths).frequency_for(from, target, watts);
            prop_assert!(next > KiloHertz::ZERO);
            if watts >= target { prop_assert!(next <= from) }
            // Rounding down loses less than a part in 10⁸.
            if watts <= target { prop_assert!(next >= from - KiloHertz::from_bits(from.to_bits() / 100_000_000 + 8)) }
        }

        #[test]
        fn from_a_quarter_more_on_a_step_up_is_the_longer_one_whatever_the_exponent(
            khz in 1_000_i32..6_000_000, watts in 1_i64..(1 << 44), quarters in 5_i64..40, sixteenths in 7_u32..=31,
        ) {
            let model = Model::new(Exponent(sixteenths));
            let (from, target) = (KiloHertz::from_int(khz), Watts::from_bits(watts + ((watts * (quarters - 4) + 3) >> 2)));
            let watts = Watts::from_bits(watts);
            let edge = watts + Watts::from_bits(watts.to_bits() >> 5);
            prop_assert!(model.up().frequency_for(from, target, watts) >= model.down().frequency_for(from, edge, watts));
        }

        #[test]
        fn any_two_points_are_answered(a in any::<i64>(), b in any::<i64>(), c in any::<i64>(), d in any::<i64>()) {
            let mut model = Model::new(Exponent(8));
            model.leave(Point { watts: Watts::from_bits(a), frequency: KiloHertz::from_bits(b) });
            model.learn(Point { watts: Watts::from_bits(c), frequency: KiloHertz::from_bits(d) }, Watts::ZERO);
            prop_assert!((Exponent::MIN..=Exponent::MAX).contains(&model.exponent.0));
        }
    }
}
