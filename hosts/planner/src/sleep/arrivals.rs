//! How often empty nodes are taken: from that follows how many of them stay awake.
//!
//! Time is divided into windows, each as long as a node takes to wake. In a share of the windows that the settings say no
//! more empty nodes were taken than are kept awake.

use power_units::{Micros, Ratio, Stamp};
use std::collections::VecDeque;

/// Windows that are remembered: a day of windows of five minutes.
const WINDOWS_MAX: usize = 288;
/// Fewer windows say nothing yet.
const WINDOWS_LEAST: usize = 6;

/// The counts of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    past: VecDeque<u32>,
    begun: Option<Stamp>,
    count: u32,
}

impl Arrivals {
    /// Closes the windows that are over. After a silence of many windows nothing is known of them.
    pub(super) fn advance(&mut self, now: Stamp, window: Micros) {
        let mut begun = *self.begun.get_or_insert(now);
        let mut closed = 0;
        while now.since(begun).is_some_and(|so_far| so_far >= window) && closed <= WINDOWS_MAX {
            self.past.push_back(std::mem::take(&mut self.count));
            if self.past.len() > WINDOWS_MAX {
                self.past.pop_front();
            }
            begun = begun + window;
            closed += 1;
        }
        self.begun = Some(begun);
    }

    /// An empty node was taken.
    pub(super) const fn arrived(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// How many empty nodes are to be awake; `None` while too little is known, so that none may sleep.
    pub(super) fn warm(&self, quantile: Ratio) -> Option<u32> {
        if self.past.len() < WINDOWS_LEAST {
            return None;
        }
        // What has come in the present window is known too.
        let mut counts: Vec<u32> = self.past.iter().copied().chain([self.count]).collect();
        counts.sort_unstable();
        // The first count below which the share lies: rank ⌈q·n⌉.
        let whole = u128::try_from(counts.len()).unwrap_or(u128::MAX);
        let part = u128::try_from(quantile.to_bits()).unwrap_or(0).saturating_mul(whole);
        let rank = part.div_ceil(u128::try_from(Ratio::ONE.to_bits()).unwrap_or(1));
        let at = usize::try_from(rank.saturating_sub(1)).unwrap_or(usize::MAX).min(counts.len() - 1);
        counts.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Role;

    fn at(seconds: u64) -> Stamp {
        Stamp::new(Micros::new(seconds * 1_000_000))
    }

    #[test]
    fn the_quantile_of_the_windows_says_how_many_stay_awake() {
        let window = Micros::new(60_000_000);
        let mut arrivals = Arrivals::default();
        let quantile = |text: &str| Ratio::parse(text, Role::Nearest).unwrap();
        // Ten windows with 0, 1, …, 9 arrivals.
        for minute in 0..10 {
            arrivals.advance(at(minute * 60), window);
            assert_eq!(arrivals.warm(Ratio::ONE).is_some(), minute >= 6, "six windows are the least");
            (0..minute).for_each(|_| arrivals.arrived());
        }
        arrivals.advance(at(600), window);
        // Eleven counts with the present window: 0, 0, 1, …, 9. Rank ⌈0.5·11⌉ = 6 is 4; ⌈0.95·11⌉ = 11 is 9.
        assert_eq!(arrivals.warm(quantile("0.5")), Some(4));
        assert_eq!(arrivals.warm(quantile("0.95")), Some(9));
        assert_eq!((arrivals.warm(Ratio::ZERO), arrivals.warm(Ratio::ONE)), (Some(0), Some(9)));
        // A day later all is forgotten, and a clock that goes back changes nothing.
        arrivals.advance(at(600 + 289 * 60), window);
        assert_eq!(arrivals.warm(Ratio::ONE), Some(0));
        let before = arrivals.clone();
        arrivals.advance(at(0), window);
        assert_eq!(arrivals, before);
    }
}
