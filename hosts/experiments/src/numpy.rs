//! numpy's `default_rng(seed)`: SeedSequence, PCG64 (XSL-RR), and the draws that the workload needs.
//!
//! The tables of the exponential draw are computed from its two constants. They agree with numpy's to some units in
//! the last place, so gaps agree to 10⁻¹⁴ and whole draws are equal.

const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;
const STRIPS: usize = 256;
/// Where the tail of the exponential's ziggurat begins, and the area of a strip.
const TAIL: f64 = 7.697_117_470_131_05;
const AREA: f64 = 3.949_659_822_581_557e-3;
const MANTISSA: f64 = 9_007_199_254_740_992.0;

/// The generator.
#[derive(Clone, Debug)]
pub struct NumpyGenerator {
    state: u128,
    increment: u128,
    /// The upper half of the last word, where only the lower one was asked for.
    half: Option<u32>,
    strips: Strips,
}

#[derive(Clone, Debug)]
struct Strips {
    accept: [f64; STRIPS],
    width: [f64; STRIPS],
    height: [f64; STRIPS],
}

impl NumpyGenerator {
    /// `numpy.random.default_rng(seed)`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let words = seed_words(seed);
        let wide = |high: u64, low: u64| (u128::from(high) << 64) | u128::from(low);
        let (start, sequence) = (wide(words[0], words[1]), wide(words[2], words[3]));
        let increment = (sequence << 1) | 1;
        let state = increment.wrapping_add(start).wrapping_mul(MULTIPLIER).wrapping_add(increment);
        Self { state, increment, half: None, strips: Strips::new() }
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        let (high, low) = halves(self.state);
        let turn = u32::try_from(self.state >> 122).unwrap_or(0);
        (high ^ low).rotate_right(turn)
    }

    /// The next 32 bits: the lower half of a word first, then its upper one.
    fn short(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let word = self.word();
        self.half = u32::try_from(word >> 32).ok();
        u32::try_from(word & 0xFFFF_FFFF).unwrap_or(0)
    }

    /// `random()`: in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / MANTISSA
    }

    /// `uniform(low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// `integers(0, count)`, by Lemire's method with 32 bits.
    pub fn below(&mut self, count: u32) -> u32 {
        let count = u64::from(count.max(1));
        let mut product = u64::from(self.short()).wrapping_mul(count);
        if product & 0xFFFF_FFFF < count {
            let threshold = (0x1_0000_0000 - count) % count;
            while product & 0xFFFF_FFFF < threshold {
                product = u64::from(self.short()).wrapping_mul(count);
            }
        }
        u32::try_from(product >> 32).unwrap_or(0)
    }

    /// `choice(of)`.
    pub fn choice<const N: usize>(&mut self, of: [u32; N]) -> u32 {
        let count = u32::try_from(N).unwrap_or(1);
        of.get(self.below(count) as usize).copied().unwrap_or(0)
    }

    /// `exponential(scale)`, by the ziggurat.
    pub fn exponential(&mut self, scale: f64) -> f64 {
        loop {
            let bits = self.word() >> 3;
            let strip = (bits & 0xFF) as usize;
            let place = (bits >> 8) as f64;
            let x = place * self.strips.width[strip];
            if place < self.strips.accept[strip] {
                return x * scale;
            }
            if strip == 0 {
                return (TAIL - (-self.unit()).ln_1p()) * scale;
            }
            let (above, here) = (self.strips.height[strip - 1], self.strips.height[strip]);
            if (above - here) * self.unit() + here < (-x).exp() {
                return x * scale;
            }
        }
    }
}

impl Strips {
    fn new() -> Self {
        let (mut accept, mut width, mut height) = ([0.0; STRIPS], [0.0; STRIPS], [0.0; STRIPS]);
        let floor = AREA / (-TAIL).exp();
        accept[0] = TAIL / floor * MANTISSA;
        width[0] = floor / MANTISSA;
        width[STRIPS - 1] = TAIL / MANTISSA;
        height[0] = 1.0;
        height[STRIPS - 1] = (-TAIL).exp();
        let mut edge = TAIL;
        for strip in (1..STRIPS - 1).rev() {
            let next = -(AREA / edge + (-edge).exp()).ln();
            accept[strip + 1] = next / edge * MANTISSA;
            width[strip] = next / MANTISSA;
            height[strip] = (-next).exp();
            edge = next;
        }
        Self { accept, width, height }
    }
}

fn halves(wide: u128) -> (u64, u64) {
    let high = u64::try_from(wide >> 64).unwrap_or(0);
    (high, u64::try_from(wide & u128::from(u64::MAX)).unwrap_or(0))
}

/// The first four words of `SeedSequence(seed).generate_state(4, uint64)`.
fn seed_words(seed: u64) -> [u64; 4] {
    let low = u32::try_from(seed & 0xFFFF_FFFF).unwrap_or(0);
    let high = u32::try_from(seed >> 32).unwrap_or(0);
    let mut constant = 0x43B0_D7E5_u32;
    let mut hash = |value: u32| {
        let value = value ^ constant;
        constant = constant.wrapping_mul(0x931E_8875);
        let value = value.wrapping_mul(constant);
        value ^ (value >> 16)
    };
    let mut pool = [low, high, 0, 0].map(&mut hash);
    for from in 0..4 {
        for to in 0..4 {
            if from != to {
                let mixed = pool[to]
                    .wrapping_mul(0xCA01_F9DD)
                    .wrapping_sub(hash(pool[from]).wrapping_mul(0x4973_F715));
                pool[to] = mixed ^ (mixed >> 16);
            }
        }
    }
    let mut constant = 0x8B51_F9DD_u32;
    let mut out = [0_u64; 4];
    for place in 0..8 {
        let value = pool[place % 4] ^ constant;
        constant = constant.wrapping_mul(0x58F3_8DED);
        let value = value.wrapping_mul(constant);
        out[place / 2] |= u64::from(value ^ (value >> 16)) << (32 * (place % 2));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that `numpy.random.default_rng(42)` of numpy 2.4.6 gave for the same calls.
    #[test]
    fn it_draws_what_numpy_draws() {
        let mut rng = NumpyGenerator::new(42);
        assert_eq!(rng.word(), GOLDEN_WORD);
        let mut rng = NumpyGenerator::new(42);
        assert!((rng.exponential(1.0) - GOLDEN_EXPONENTIAL).abs() < 1e-13);
        let drawn: Vec<u32> = (0..8).map(|_| rng.below(151)).collect();
        assert_eq!(drawn, GOLDEN_BELOW);
        assert_eq!(rng.unit().to_bits(), GOLDEN_UNIT.to_bits());
    }
    const GOLDEN_WORD: u64 = 14276969152011380360;
    const GOLDEN_EXPONENTIAL: f64 = 2.4042086039659947;
    const GOLDEN_BELOW: [u32; 8] = [98, 66, 65, 129, 12, 105, 30, 14];
    const GOLDEN_UNIT: f64 = 0.9756223516367559;
}
