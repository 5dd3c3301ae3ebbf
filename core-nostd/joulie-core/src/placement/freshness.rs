//! Whether a node's twin is recent enough to be used.
//!
//! A twin that names no Lease is judged by its own `lastUpdated`: it is fresh until it is older than
//! `TWIN_STALENESS_THRESHOLD` ("stale twin fallback"). A twin that names the Lease `joulie-plan` is written only when
//! something changes, so its age is meaningless: it is fresh while the Lease is renewed and its own telemetry
//! condition holds.
//!
//! ```text
//! PlanLease:  Unseen ──observe──> Sighted ──observe, another renewal──> Renewed ─┐
//!                                  │    ^                                  ^     │ observe, another renewal
//!                                  └────┘ observe, the same renewal        └─────┘
//! ```
//!
//! A Lease that was only sighted may have expired long ago, so it is judged by the time written in it. Once a change
//! of it was seen, only our own clock counts: the time at which the last change was received. No clock is read here.

use core::fmt;
use power_units::{Micros, Stamp};

/// A time on the wall clock that the cluster's writers approximately share, in µs since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(i64);

impl UnixTime {
    /// This many microseconds after the beginning of 1970.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// So much later.
    #[must_use]
    pub fn plus(self, after: Micros) -> Self {
        Self(self.0.saturating_add(i64::try_from(after.get()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; `None` when it is before.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Micros> {
        let micros = i128::from(self.0).saturating_sub(i128::from(earlier.0));
        u64::try_from(micros).ok().map(Micros::new)
    }
}

/// The evidence of a twin's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// There is no twin, or one without a status.
    NoTwin,
    /// It names no Lease; the time of its last status update, if it contains a readable one.
    Dated(Option<UnixTime>),
    /// It names the plan's Lease.
    Leased(TelemetryFreshness),
}

/// The telemetry condition of a twin that names the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelemetryFreshness {
    /// The condition holds.
    Fresh,
    /// The condition does not hold.
    Stale,
    /// There is no condition.
    Unsaid,
}

/// The state of the plan's Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanLease {
    /// Nothing.
    Unseen,
    /// It was found with this renewal time, which has not changed since.
    Sighted(UnixTime),
    /// It was seen to be renewed.
    Renewed {
        /// The renewal time in it now.
        renewal: UnixTime,
        /// When that was received.
        received: Stamp,
    },
}

impl PlanLease {
    /// Takes in the renewal time of the Lease. Only a change is a renewal, in either direction, since the writer's
    /// clock may have been set back; the same object may be delivered again.
    pub fn observe(&mut self, renewal: UnixTime, at: Stamp) {
        *self = match *self {
            Self::Unseen => Self::Sighted(renewal),
            Self::Sighted(known) if known == renewal => Self::Sighted(known),
            Self::Renewed { renewal: known, received } if known == renewal => {
                Self::Renewed { renewal: known, received }
            }
            Self::Sighted(_) | Self::Renewed { .. } => Self::Renewed { renewal, received: at },
        };
    }
}

/// The two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock.
    pub wall: UnixTime,
    /// Our own.
    pub own: Stamp,
}

/// Whether a twin is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It is used, for this long without further updates.
    Fresh {
        /// How long.
        left: Micros,
    },
    /// It is too old or not valid.
    Stale(Staleness),
    /// There is no twin.
    Absent,
}

impl Freshness {
    /// Whether the twin is used.
    #[must_use]
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh { .. })
    }
}

/// Why a twin is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// It contains no update time.
    NoTimestamp,
    /// It was updated this long ago.
    Old(Micros),
    /// It was updated this far in the future, more than the tolerated clock difference.
    Future(Micros),
    /// It names a Lease that was not seen.
    NoLease,
    /// It names a Lease that was last renewed this long ago.
    LeaseOld(Micros),
    /// Its telemetry condition does not hold.
    Telemetry,
}

/// The rule of staleness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshnessRule {
    threshold: Micros,
}

/// How far the clock of a twin's writer may be ahead of ours. Synchronised machines differ by far less. So a clock
/// that is ahead can extend a twin's validity by at most a fifth of the usual threshold.
const SKEW: Micros = Micros::MINUTE;

/// The staleness threshold must be above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdIsZero;

impl fmt::Display for ThresholdIsZero {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TWIN_STALENESS_THRESHOLD: expected a duration above 0, such as 5m")
    }
}

impl core::error::Error for ThresholdIsZero {}

impl FreshnessRule {
    /// Twins older than `threshold` are stale.
    ///
    /// # Errors
    /// When the threshold is zero.
    pub fn new(threshold: Micros) -> Result<Self, ThresholdIsZero> {
        if threshold == Micros::ZERO { Err(ThresholdIsZero) } else { Ok(Self { threshold }) }
    }

    /// Judges one twin.
    #[must_use]
    pub fn judge(&self, evidence: Evidence, lease: PlanLease, now: Now) -> Freshness {
        match evidence {
            Evidence::NoTwin => Freshness::Absent,
            Evidence::Dated(None) => Freshness::Stale(Staleness::NoTimestamp),
            Evidence::Dated(Some(updated)) => self.by_wall(updated, now, Staleness::Old),
            Evidence::Leased(TelemetryFreshness::Stale | TelemetryFreshness::Unsaid) => {
                Freshness::Stale(Staleness::Telemetry)
            }
            Evidence::Leased(TelemetryFreshness::Fresh) => self.by_lease(lease, now),
        }
    }

    fn by_lease(&self, lease: PlanLease, now: Now) -> Freshness {
        match lease {
            PlanLease::Unseen => Freshness::Stale(Staleness::NoLease),
            PlanLease::Sighted(renewal) => self.by_wall(renewal, now, Staleness::LeaseOld),
            // A renewal that arrived after the clock was read has age zero.
            PlanLease::Renewed { received, .. } => {
                let ahead = received.since(now.own).filter(|&ahead| ahead > SKEW);
                ahead.map_or_else(
                    || self.by_age(now.own.since(received).unwrap_or(Micros::ZERO), Staleness::LeaseOld),
                    |ahead| Freshness::Stale(Staleness::Future(ahead)),
                )
            }
        }
    }

    fn by_wall(&self, written: UnixTime, now: Now, old: fn(Micros) -> Staleness) -> Freshness {
        match now.wall.since(written) {
            Some(age) => self.by_age(age, old),
            None => match written.since(now.wall) {
                Some(ahead) if ahead > SKEW => Freshness::Stale(Staleness::Future(ahead)),
                Some(_) | None => Freshness::Fresh { left: self.threshold },
            },
        }
    }

    fn by_age(&self, age: Micros, old: fn(Micros) -> Staleness) -> Freshness {
        match self.threshold.checked_sub(age) {
            Some(left) => Freshness::Fresh { left },
            None => Freshness::Stale(old(age)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const SECOND: u64 = 1_000_000;
    const FIVE_MINUTES: Micros = Micros::new(300 * SECOND);

    fn rule() -> FreshnessRule {
        FreshnessRule::new(FIVE_MINUTES).unwrap()
    }

    /// Noon by the wall, an hour by our own clock.
    fn now() -> Now {
        Now {
            wall: UnixTime::from_micros(1_700_000_000_000_000),
            own: Stamp::new(Micros::new(3600 * SECOND)),
        }
    }

    fn ago(micros: i64) -> UnixTime {
        UnixTime::from_micros(now().wall.0 - micros)
    }

    fn dated(micros_ago: i64) -> Freshness {
        rule().judge(Evidence::Dated(Some(ago(micros_ago))), PlanLease::Unseen, now())
    }

    #[test]
    fn a_twin_is_fresh_until_it_is_older_than_the_threshold() {
        let second = 1_000_000;
        assert_eq!(dated(60 * second), Freshness::Fresh { left: Micros::new(240 * SECOND) });
        assert_eq!(dated(300 * second), Freshness::Fresh { left: Micros::ZERO });
        assert_eq!(dated(300 * second + 1), Freshness::Stale(Staleness::Old(Micros::new(300 * SECOND + 1))));
        assert_eq!(dated(600 * second), Freshness::Stale(Staleness::Old(Micros::new(600 * SECOND))));
    }

    #[test]
    fn a_twin_without_a_time_is_stale_and_no_twin_is_absent() {
        let judge = |evidence| rule().judge(evidence, PlanLease::Unseen, now());
        assert_eq!(judge(Evidence::Dated(None)), Freshness::Stale(Staleness::NoTimestamp));
        assert_eq!(judge(Evidence::NoTwin), Freshness::Absent);
    }

    #[test]
    fn a_time_in_the_future_is_not_fresh_for_ever() {
        assert_eq!(dated(-60_000_000), Freshness::Fresh { left: FIVE_MINUTES });
        assert_eq!(dated(-60_000_001), Freshness::Stale(Staleness::Future(Micros::new(60_000_001))));
        let judge =
            |at| rule().judge(Evidence::Dated(Some(UnixTime::from_micros(at))), PlanLease::Unseen, now());
        assert!(!judge(i64::MAX).is_fresh());
        assert!(!judge(i64::MIN).is_fresh());
    }

    #[test]
    fn a_twin_that_names_the_lease_is_as_fresh_as_the_lease_and_its_telemetry() {
        let received = Stamp::new(Micros::new(3500 * SECOND));
        let renewed = PlanLease::Renewed { renewal: ago(0), received };
        let judge = |telemetry, lease| rule().judge(Evidence::Leased(telemetry), lease, now());
        assert_eq!(
            judge(TelemetryFreshness::Fresh, renewed),
            Freshness::Fresh { left: Micros::new(200 * SECOND) }
        );
        for telemetry in [TelemetryFreshness::Stale, TelemetryFreshness::Unsaid] {
            assert_eq!(judge(telemetry, renewed), Freshness::Stale(Staleness::Telemetry));
        }
        assert_eq!(judge(TelemetryFreshness::Fresh, PlanLease::Unseen), Freshness::Stale(Staleness::NoLease));
        let dead = PlanLease::Renewed { renewal: ago(0), received: Stamp::new(Micros::ZERO) };
        let age = Micros::new(3600 * SECOND);
        assert_eq!(judge(TelemetryFreshness::Fresh, dead), Freshness::Stale(Staleness::LeaseOld(age)));
    }

    #[test]
    fn a_lease_that_was_only_sighted_is_judged_by_the_time_in_it() {
        let judge = |lease| rule().judge(Evidence::Leased(TelemetryFreshness::Fresh), lease, now());
        assert!(judge(PlanLease::Sighted(ago(1_000_000))).is_fresh());
        assert!(!judge(PlanLease::Sighted(ago(301_000_000))).is_fresh());
        assert!(!judge(PlanLease::Sighted(ago(-61_000_000))).is_fresh());
    }

    #[test]
    fn only_a_change_renews_a_lease() {
        let at = |seconds: u64| Stamp::new(Micros::new(seconds * SECOND));
        let mut lease = PlanLease::Unseen;
        lease.observe(ago(500_000_000), at(1));
        lease.observe(ago(500_000_000), at(900));
        assert_eq!(lease, PlanLease::Sighted(ago(500_000_000)));
        // A leader whose clock was set back renews, too.
        lease.observe(ago(600_000_000), at(1000));
        lease.observe(ago(600_000_000), at(3600));
        assert_eq!(lease, PlanLease::Renewed { renewal: ago(600_000_000), received: at(1000) });
    }

    #[test]
    fn what_arrives_while_we_look_has_no_age_but_a_stamp_far_ahead_is_not_believed() {
        let judge = |seconds: u64| {
            let received = Stamp::new(Micros::new(seconds * SECOND));
            let lease = PlanLease::Renewed { renewal: ago(0), received };
            rule().judge(Evidence::Leased(TelemetryFreshness::Fresh), lease, now())
        };
        assert_eq!(judge(3601), Freshness::Fresh { left: FIVE_MINUTES });
        assert_eq!(judge(7200), Freshness::Stale(Staleness::Future(Micros::new(3600 * SECOND))));
    }

    #[test]
    fn a_threshold_of_nothing_is_refused_by_name() {
        let error = FreshnessRule::new(Micros::ZERO).unwrap_err();
        assert!(error.to_string().starts_with("TWIN_STALENESS_THRESHOLD"));
    }
}
