//! The lock of a card's clock: the table of clocks, and what is known of a lock that the driver takes and tells nobody.
//!
//! ```text
//!              set, and accepted                    the session ends, or a call whose outcome is not known
//!   Free ────────────────────────▶ At(clock) ─────────────────────────────────────────────────▶ Unknown
//!    ▲                                │                                                           │
//!    └────────────── reset ───────────┴───────────────────────────── reset ───────────────────────┘
//!   Unknown is also the state after a restart, where the journal says that there was a lock
//! ```

use power_hal::{Key, Original};
use power_units::{KiloHertz, Micros, Role, Stamp};

/// A lock as this HAL knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// None of ours.
    Free,
    /// The driver has accepted this highest clock, MHz, at that time.
    At { mhz: u32, since: Stamp },
    /// There may be one.
    Unknown,
}

/// The locks of all cards that ever had one, or whose original was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Vec<(Key, Lock)>);

/// The layout of an original: one word, 0 for no lock. The only original that can be restored is no lock.
pub(crate) const LAYOUT: u8 = 0;
const NO_LOCK: u64 = 0;
const MAYBE: u64 = u64::MAX;

/// For how long after a lock was set a card may still run at a higher clock.
const ACTS_WITHIN: Micros = Micros::new(2_000_000);

/// More than any card runs at, MHz.
const POSSIBLE_MHZ: u32 = 10_000;

impl Locks {
    /// `touched` says whether the journal holds the original of this card.
    pub(crate) fn of(&self, key: &Key, touched: bool) -> Lock {
        let known = self.0.iter().find(|(of, _)| of == key).map(|&(_, lock)| lock);
        known.unwrap_or(if touched { Lock::Unknown } else { Lock::Free })
    }

    pub(crate) fn note(&mut self, key: &Key, lock: Lock) {
        match self.0.iter_mut().find(|(of, _)| of == key) {
            Some((_, known)) => *known = lock,
            None => self.0.push((*key, lock)),
        }
    }

    /// A new session: the driver may have been loaded again, and then there is no lock any more.
    pub(crate) fn doubt(&mut self) {
        for (_, lock) in &mut self.0 {
            if matches!(lock, Lock::At { .. }) {
                *lock = Lock::Unknown;
            }
        }
    }
}

impl Lock {
    /// The highest clock that counts as allowed. A card that runs above its lock has none: somebody has reset it, or the
    /// firmware ignores it. One that may have a lock counts as free.
    pub(crate) fn allows(
        self,
        clock: Option<KiloHertz>,
        most: KiloHertz,
        step: KiloHertz,
        now: Stamp,
    ) -> KiloHertz {
        match self {
            Self::Free | Self::Unknown => most,
            Self::At { mhz, since } => {
                let limit = kilohertz(mhz);
                let has_acted = now.since(since).is_some_and(|age| age >= ACTS_WITHIN);
                let is_above = clock.is_some_and(|clock| clock > limit + step);
                if has_acted && is_above { most } else { limit }
            }
        }
    }

    /// What the port compares: a lock that may be there is not the original.
    pub(crate) fn saved(self) -> Option<Original> {
        let word = match self {
            Self::Free => NO_LOCK,
            Self::At { mhz, .. } => u64::from(mhz),
            Self::Unknown => MAYBE,
        };
        Original::new(LAYOUT, &[word])
    }

    pub(crate) fn is_original(original: &Original) -> bool {
        original.layout() == LAYOUT && original.words() == [NO_LOCK]
    }
}

/// The clocks of a card, MHz, ascending, each once; `None` if there is no possible one.
pub(crate) fn table(mut clocks: Vec<u32>) -> Option<Vec<u32>> {
    clocks.retain(|clock| (1..=POSSIBLE_MHZ).contains(clock));
    clocks.sort_unstable();
    clocks.dedup();
    if clocks.is_empty() { None } else { Some(clocks) }
}

/// The highest clock of a table that is not above the wish, else its lowest one.
pub(crate) fn rounded(table: &[u32], wish: KiloHertz) -> Option<u32> {
    let whole = wish.to_whole(Role::Limit) / 1_000;
    table.iter().copied().take_while(|&clock| clock <= whole).last().or(table.first().copied())
}

/// The widest distance between two clocks of a table.
pub(crate) fn step(table: &[u32]) -> KiloHertz {
    let widest = table.windows(2).map(|pair| pair[1] - pair[0]).max();
    kilohertz(widest.unwrap_or(0))
}

pub(crate) fn kilohertz(mhz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(mhz.saturating_mul(1_000)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Stamp {
        Stamp::new(Micros::new(second * 1_000_000))
    }

    #[test]
    fn a_table_is_sorted_and_without_what_no_card_runs_at() {
        assert_eq!(table(vec![1_980, 0, 345, 360, 345, u32::MAX]), Some(vec![345, 360, 1_980]));
        assert_eq!(table(vec![0; 128]), None, "what the wrapper returns for a list that is too long");
        let clocks = [345, 360, 1_980];
        let round = |mhz| rounded(&clocks, kilohertz(mhz));
        assert_eq!(
            [round(100), round(345), round(374), round(5_000)],
            [Some(345), Some(345), Some(360), Some(1_980)]
        );
        assert_eq!((step(&clocks), step(&[345])), (kilohertz(1_620), kilohertz(0)));
    }

    #[test]
    fn a_clock_above_the_lock_says_that_there_is_none_once_it_had_its_time() {
        let (most, step) = (kilohertz(1_980), kilohertz(15));
        let lock = Lock::At { mhz: 990, since: at(10) };
        let allows = |clock, now| lock.allows(Some(kilohertz(clock)), most, step, at(now));
        assert_eq!(allows(1_980, 11), kilohertz(990), "it may still be falling");
        assert_eq!(allows(1_980, 12), most);
        assert_eq!(allows(1_005, 60), kilohertz(990), "one step is within");
        assert_eq!(allows(345, 60), kilohertz(990));
        assert_eq!(lock.allows(None, most, step, at(60)), kilohertz(990));
        assert_eq!(Lock::Unknown.allows(Some(kilohertz(345)), most, step, at(60)), most);
    }

    #[test]
    fn what_may_be_locked_is_no_original_and_a_new_session_doubts_every_lock() {
        let key = Key::gpu("GPU-11111111-0b1c-4d7e-9a55-0123456789ab").unwrap();
        let mut locks = Locks::default();
        assert_eq!((locks.of(&key, false), locks.of(&key, true)), (Lock::Free, Lock::Unknown));
        locks.note(&key, Lock::At { mhz: 990, since: at(1) });
        locks.doubt();
        assert_eq!(locks.of(&key, true), Lock::Unknown);
        let saved = |lock: Lock| lock.saved().unwrap();
        assert!(Lock::is_original(&saved(Lock::Free)));
        assert!(!Lock::is_original(&saved(Lock::Unknown)));
        assert!(!Lock::is_original(&saved(Lock::At { mhz: 990, since: at(1) })));
        locks.note(&key, Lock::Free);
        locks.doubt();
        assert_eq!(locks.of(&key, true), Lock::Free);
    }
}
