//! Random numbers from a seed: `SplitMix64`.

/// A stream of draws.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// The stream with this number of a seed.
    pub(super) const fn new(seed: u64, stream: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A whole number below `end`; zero if `end` is zero.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        match (self.bits() >> 16).checked_rem(end) {
            Some(number) => number,
            None => 0,
        }
    }

    /// Returns the elements in random order.
    pub(super) fn shuffled<T: Copy, const N: usize>(&mut self, all: [T; N]) -> Vec<T> {
        let mut drawn: Vec<(u64, T)> = all.into_iter().map(|one| (self.bits(), one)).collect();
        drawn.sort_by_key(|(bits, _)| *bits);
        drawn.into_iter().map(|(_, one)| one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_stays_in_its_bounds() {
        let draws = |seed| {
            let mut draw = Draw::new(seed, 1);
            (0..100).map(|_| draw.below(8)).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert!((0..8).all(|number| draws(7).contains(&number)), "{:?}", draws(7));
        assert_eq!(Draw::new(1, 1).below(0), 0);
        let mut all = Draw::new(1, 1).shuffled([1, 2, 3, 4]);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4]);
    }
}
