//! Decides when a measurement of power is published: when it has changed enough, not too often, and at least once in a
//! while.

use host_kit::clock::Mono;
use power_units::{Percent, Role, Watts};
use std::time::Duration;

/// How often power is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// At most once in this time.
    pub(crate) interval: Duration,
    /// At the latest after this time; `None`: only when it changes.
    pub(crate) heartbeat: Option<Duration>,
}

/// What a machine draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Power {
    pub(crate) cpu: Option<Watts>,
    pub(crate) gpu: Option<Watts>,
    pub(crate) node: Option<Watts>,
    /// The memory of all packages, which `cpu` does not contain.
    pub(crate) dram: Option<Watts>,
    /// What the node draws beside packages and GPUs.
    pub(crate) rest: Option<Watts>,
}

/// What was last published, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    last: Option<(Power, Mono)>,
}

/// A change must be larger than this share and than this many watts.
const SHARE: Percent = Percent::from_int(5);
const LEAST: Watts = Watts::from_int(5);

impl Pacer {
    /// Whether this measurement is to be published now. If so, it is recorded as published.
    pub(crate) fn is_due(&mut self, power: Power, now: Mono, pace: Pace) -> bool {
        let due = match self.last {
            None => power != Power::default(),
            Some((last, at)) => {
                let age = now.since(at);
                let late = pace.heartbeat.is_some_and(|heartbeat| age >= heartbeat);
                late || (age >= pace.interval && moved(last, power))
            }
        };
        if due {
            self.last = Some((power, now));
        }
        due
    }

    /// How long until this measurement is due, if it stays the same; `None` if only a change makes it due.
    pub(crate) fn wait(&self, power: Power, now: Mono, pace: Pace) -> Option<Duration> {
        let (last, at) = self.last?;
        let after = if moved(last, power) { Some(pace.interval) } else { pace.heartbeat };
        after.map(|after| at.plus(after).since(now))
    }
}

fn moved(from: Power, to: Power) -> bool {
    let far = |from: Option<Watts>, to: Option<Watts>| match (from, to) {
        (Some(from), Some(to)) => {
            (to - from).abs() > LEAST.max(from.scale(SHARE.to_ratio(Role::Nearest), Role::Nearest))
        }
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    };
    let pairs = [
        (from.cpu, to.cpu),
        (from.gpu, to.gpu),
        (from.node, to.node),
        (from.dram, to.dram),
        (from.rest, to.rest),
    ];
    pairs.into_iter().any(|(from, to)| far(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_written_when_it_moves_and_now_and_then() {
        let pace = Pace { interval: Duration::from_secs(5), heartbeat: Some(Duration::from_secs(300)) };
        let mut pacer = Pacer::default();
        let mut due = |second, watts: Option<i32>| {
            let power = Power { cpu: watts.map(Watts::from_int), ..Power::default() };
            pacer.is_due(power, Mono::at(Duration::from_secs(second)), pace)
        };
        assert!(!due(0, None), "nothing is known yet");
        assert!(due(1, Some(200)));
        assert!(!due(4, Some(300)), "too soon");
        assert!(due(6, Some(300)));
        assert!(!due(60, Some(315)), "5 % of 300 W is 15 W, and that is not beyond it");
        assert!(due(61, Some(316)));
        assert!(due(70, None), "that it is not known any more is news");
        assert!(!due(80, None));
        assert!(due(370, None), "five minutes");
    }

    #[test]
    fn the_memory_of_the_packages_moves_by_the_same_band() {
        let pace = Pace { interval: Duration::ZERO, heartbeat: None };
        let mut pacer = Pacer::default();
        let mut due = |second, dram: Option<i32>| {
            let power = Power {
                cpu: Some(Watts::from_int(200)),
                dram: dram.map(Watts::from_int),
                ..Power::default()
            };
            pacer.is_due(power, Mono::at(Duration::from_secs(second)), pace)
        };
        assert!(due(0, Some(30)));
        assert!(!due(1, Some(35)), "5 W are not beyond the band");
        assert!(due(2, Some(36)));
        assert!(due(3, None), "that it is not measured any more is news");
        assert!(!due(4, None));
    }

    #[test]
    fn what_is_known_again_is_published_within_the_interval() {
        let pace = Pace { interval: Duration::from_secs(5), heartbeat: None };
        let at = |second| Mono::at(Duration::from_secs(second));
        let draws = |watts: Option<i32>| Power { cpu: watts.map(Watts::from_int), ..Power::default() };
        let mut pacer = Pacer::default();
        assert_eq!(pacer.wait(draws(Some(200)), at(0), pace), None, "there was nothing to wait for");
        assert!(pacer.is_due(draws(Some(200)), at(0), pace));
        assert_eq!(pacer.wait(draws(Some(201)), at(1), pace), None, "that is no move");
        assert!(pacer.is_due(draws(None), at(10), pace), "blind");
        // The first valid sample comes two seconds later, and nothing changes after it.
        assert!(!pacer.is_due(draws(Some(200)), at(12), pace));
        assert_eq!(pacer.wait(draws(Some(200)), at(12), pace), Some(Duration::from_secs(3)));
        assert!(pacer.is_due(draws(Some(200)), at(15), pace));
        let beating = Pace { heartbeat: Some(Duration::from_secs(60)), ..pace };
        assert_eq!(pacer.wait(draws(Some(200)), at(20), beating), Some(Duration::from_secs(55)));
    }

    #[test]
    fn small_machines_have_a_band_in_watts_and_no_heartbeat_means_none() {
        let pace = Pace { interval: Duration::ZERO, heartbeat: None };
        let mut pacer = Pacer::default();
        let mut due = |second, watts| {
            let power = Power { gpu: Some(Watts::from_int(watts)), ..Power::default() };
            pacer.is_due(power, Mono::at(Duration::from_secs(second)), pace)
        };
        assert!(due(0, 20));
        assert!(!due(1, 25));
        assert!(due(2, 26));
        assert!(!due(1_000_000, 26));
    }
}
