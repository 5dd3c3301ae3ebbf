//! Time and random numbers for the hosts, passed in so that a test controls both.
//!
//! Two clocks that must not be mixed. [`Mono`] only goes forward, and tells how long ago something was heard. The wall
//! clock is for people and for timestamps in objects. Nothing here compares the wall clocks of two machines.

use jiff::Timestamp;
use power_units::Micros;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A source of time.
pub trait HostClock: Send + Sync + 'static {
    /// Time since this clock was created; never goes back.
    fn mono(&self) -> Mono;
    /// The time of day; it may jump.
    fn wall(&self) -> Timestamp;
    /// When this clock was created, by the clock that all processes of a machine share until its next boot; `None` where nobody
    /// knows it.
    fn begun(&self) -> Option<SinceBoot> {
        None
    }
    /// A random number, which keeps names and waits of several processes apart. It comes with the clock because a test
    /// that controls only one of the two cannot be replayed.
    fn chance(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}

/// A moment by the clock of a machine that begins anew with each boot and does not jump. Moments of one boot can be compared,
/// also by different processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinceBoot {
    /// The identifier of the boot.
    pub boot: String,
    /// The time since it.
    pub uptime: Duration,
}

impl SinceBoot {
    /// As the kernel of this machine says it now.
    fn now() -> Option<Self> {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self::parse(&read("/proc/sys/kernel/random/boot_id")?, &read("/proc/uptime")?)
    }

    fn parse(boot: &str, uptime: &str) -> Option<Self> {
        let boot = boot.trim();
        let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        let uptime = Duration::try_from_secs_f64(seconds).ok()?;
        (!boot.is_empty()).then(|| Self { boot: boot.to_owned(), uptime })
    }
}

/// A moment of one process's monotonic clock. Moments of different processes cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(Duration);

impl Mono {
    /// The moment at which the clock was created.
    pub const START: Self = Self(Duration::ZERO);

    /// The moment `since_start` after the clock was created.
    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `after` later.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after))
    }

    /// Whole milliseconds since the clock was created, for an atomic.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment that [`Mono::as_millis`] names.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

/// A duration as the laws count it; what is below a microsecond is cut off.
pub fn micros(duration: Duration) -> Micros {
    Micros::new(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now. Use one per process: moments of two such clocks cannot be compared.
    #[expect(clippy::new_without_default, reason = "a clock that appears by default is a second time zero")]
    pub fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
        let start = Instant::now();
        Self { start }
    }
}

impl HostClock for SystemClock {
    fn mono(&self) -> Mono {
        Mono(self.start.elapsed())
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn begun(&self) -> Option<SinceBoot> {
        let SinceBoot { boot, uptime } = SinceBoot::now()?;
        Some(SinceBoot { boot, uptime: uptime.checked_sub(self.start.elapsed())? })
    }
}

/// A clock that a test sets by hand. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    hands: Arc<Mutex<(Mono, Timestamp)>>,
}

impl ManualClock {
    /// Starts at [`Mono::START`] and at `wall`.
    pub fn at(wall: Timestamp) -> Self {
        Self { hands: Arc::new(Mutex::new((Mono::START, wall))) }
    }

    /// Moves both clocks forward by `by`.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands.lock().unwrap_or_else(PoisonError::into_inner);
        hands.0 = hands.0.plus(by);
        hands.1 = hands.1.saturating_add(by).unwrap_or(Timestamp::MAX);
    }

    /// Sets the wall clock alone, as a step of NTP does.
    pub fn step_wall(&self, to: Timestamp) {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner).1 = to;
    }
}

impl HostClock for ManualClock {
    fn mono(&self) -> Mono {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn wall(&self) -> Timestamp {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// When another process's sign of life last changed, by this process's clock. The content of a sign is only compared
/// with the previous one, so that clocks of two machines are never compared.
#[derive(Clone, Debug)]
pub struct ObservedRenewal {
    last: Option<(String, Mono)>,
}

impl ObservedRenewal {
    /// Nothing has been heard.
    pub const NOTHING: Self = Self { last: None };

    /// Records that `sign` was seen at `now`. The same sign again proves nothing.
    pub fn hear(&mut self, sign: &str, now: Mono) {
        if self.last.as_ref().is_none_or(|(seen, _)| seen != sign) {
            self.last = Some((sign.to_owned(), now));
        }
    }

    /// How long ago the sign last changed; `None` if there never was one.
    pub fn age(&self, now: Mono) -> Option<Duration> {
        self.last.as_ref().map(|(_, heard)| now.since(*heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_a_negative_time_after_another() {
        let early = Mono::at(Duration::from_secs(1));
        let late = early.plus(Duration::from_secs(2));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(Mono::from_millis(late.as_millis()), late);
    }

    #[test]
    fn a_step_of_the_wall_clock_does_not_touch_the_monotonic_one() {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        clock.advance(Duration::from_secs(5));
        clock.step_wall(Timestamp::MIN);
        assert_eq!((clock.mono(), clock.wall()), (Mono::at(Duration::from_secs(5)), Timestamp::MIN));
    }

    #[test]
    fn the_time_since_the_boot_is_that_of_the_kernel_or_not_known() {
        let read = |boot: &str, uptime: &str| SinceBoot::parse(boot, uptime);
        let uptime = Duration::from_millis(12_250);
        assert_eq!(read("b-1\n", "12.25 40.00\n"), Some(SinceBoot { boot: "b-1".to_owned(), uptime }));
        for (boot, uptime) in
            [("", "1 1"), ("b", ""), ("b", "soon"), ("b", "-1"), ("b", "NaN"), ("b", "1e300")]
        {
            assert_eq!(read(boot, uptime), None, "{boot:?} {uptime:?}");
        }
    }

    #[test]
    fn the_same_sign_again_is_no_sign_of_life() {
        let mut receipt = ObservedRenewal::NOTHING;
        let at = |s| Mono::at(Duration::from_secs(s));
        assert_eq!(receipt.age(at(1)), None);
        receipt.hear("12:00", at(1));
        receipt.hear("12:00", at(9));
        assert_eq!(receipt.age(at(10)), Some(Duration::from_secs(9)));
        receipt.hear("11:00", at(10));
        assert_eq!(receipt.age(at(10)), Some(Duration::ZERO), "a clock that stepped back still lives");
    }
}
