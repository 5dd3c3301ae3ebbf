//! What the node yields of its grant, so that others have it without a grant and a receipt more.
//!
//! A yield is a promise: under this serial the node keeps to what is left. So it is on disk before it is told, and neither a
//! restart nor the same object, told again, takes it back. A node that keeps no grant on disk yields nothing: the list with
//! which an agent begins may be older than what was told.
//!
//! The next yield waits until the object says the one before. So while the API server is away, when nobody would hear of more
//! and nobody could raise the node again, it yields once at most.

use super::grants::Stands;
use super::rows::GrantRow;
use crate::machine::View;
use host_kit::clock::{Mono, micros};
use joulie_core::budget::demand::{YieldMemory, Yieldable};
use power_units::{Ratio, Stamp, Watts};
use tokio::sync::watch;

/// What is remembered for it.
#[derive(Debug, Default)]
pub(crate) struct Yields {
    memory: YieldMemory,
    /// What the file with the grant says; `None` where no grant is kept.
    on_disk: Option<watch::Receiver<Stands>>,
}

impl Yields {
    /// With what the file says.
    pub(crate) fn kept(on_disk: Option<watch::Receiver<Stands>>) -> Self {
        Self { on_disk, ..Self::default() }
    }

    /// What the node keeps to from now on, if that is less than before. `floor` is the least that its devices can be held to.
    pub(crate) fn left(
        &mut self,
        stands: &Stands,
        row: &GrantRow,
        view: &View,
        floor: Option<Watts>,
        now: Mono,
    ) -> Option<Watts> {
        let kept = stands.kept().filter(|kept| is_of(row, &kept.uid, kept.grant.serial))?;
        let is_known = kept.grant.watts >= row.grant.watts || is_told(row, kept.grant.watts);
        // During an event the node draws what that leaves, and not what it wants.
        let is_plain = view.desire.grant == Some(kept.grant) && view.desire.armed == Ratio::ONE;
        let grant = Yieldable {
            serial: kept.grant.serial,
            watts: kept.grant.watts,
            floor: floor.unwrap_or(kept.grant.watts),
            lends: row.lends && is_plain && is_known && self.is_on_disk(stands),
        };
        let now = Stamp::new(micros(now.since(Mono::START)));
        self.memory.left(now, grant, view.wants.report.as_ref().filter(|_| is_plain))
    }

    /// What may be told to be left: it would be known after a restart.
    pub(crate) fn told(&self, stands: &Stands, row: &GrantRow) -> Option<Watts> {
        let kept = stands.kept().filter(|kept| is_of(row, &kept.uid, kept.grant.serial))?;
        Some(kept.grant.watts).filter(|&left| left < row.grant.watts && self.is_on_disk(stands))
    }

    fn is_on_disk(&self, stands: &Stands) -> bool {
        self.on_disk.as_ref().is_some_and(|on_disk| *on_disk.borrow() == *stands)
    }
}

/// Whether the object says that so much is left. It says whole watts, rounded up.
fn is_told(row: &GrantRow, left: Watts) -> bool {
    row.yields.is_some_and(|told| told < left + Watts::from_int(1))
}

fn is_of(row: &GrantRow, uid: &str, serial: u64) -> bool {
    row.uid == uid && row.grant.serial == serial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::receipt::tests::{draws, packages, view};
    use joulie_core::budget::demand::DemandReport;
    use node_kit::{Kept, NodeGrant, NodeWants};
    use std::sync::Arc;
    use std::time::Duration;

    fn w(watts: i32) -> Watts {
        Watts::from_int(watts)
    }

    fn stands(watts: i32) -> Stands {
        Stands::Grant(Kept { uid: "u".to_owned(), grant: NodeGrant { serial: 3, watts: w(watts) } })
    }

    fn row(lends: bool) -> GrantRow {
        GrantRow {
            node: "a".to_owned(),
            uid: "u".to_owned(),
            grant: NodeGrant { serial: 3, watts: w(500) },
            is_highest: true,
            lends,
            yields: None,
            released: false,
            armed: Vec::new(),
            seen: Arc::default(),
        }
    }

    /// A node that follows 500 W and wants so much.
    fn wants(watts: i32, bites: bool) -> View {
        let report = DemandReport::new(&[w(watts)], bites).ok();
        View {
            wants: NodeWants { report, ..NodeWants::default() },
            ..view(3, packages(&[(Some(250), 250, draws(100)), (Some(250), 250, draws(100))]))
        }
    }

    /// With the grant of 500 W on disk.
    fn kept() -> Yields {
        Yields::kept(Some(watch::channel(stands(500)).1))
    }

    fn left(it: &mut Yields, row: &GrantRow, view: &View, second: u64) -> Option<Watts> {
        it.left(&stands(500), row, view, Some(w(100)), Mono::at(Duration::from_secs(second)))
    }

    #[test]
    fn a_node_yields_what_it_has_used_and_does_not_want_any_more() {
        let mut it = kept();
        assert_eq!(left(&mut it, &row(true), &wants(480, true), 0), None, "it is throttled");
        assert_eq!(left(&mut it, &row(true), &wants(200, false), 3), None, "too soon after its grant");
        assert_eq!(left(&mut it, &row(true), &wants(200, false), 30), Some(w(200)));
        assert_eq!(left(&mut it, &row(true), &wants(60, false), 31), Some(w(100)), "the floor");
        assert_eq!(left(&mut it, &row(true), &wants(420, false), 32), None, "so little is not worth a write");
        assert_eq!(left(&mut it, &row(false), &wants(200, false), 33), None, "nobody is short of watts");
        let blind = View { wants: NodeWants::default(), ..wants(200, false) };
        assert_eq!(left(&mut it, &row(true), &blind, 34), None, "nobody knows what it wants");
        // Nor does one whose floor is not known, or that an event holds.
        let now = Mono::at(Duration::from_secs(35));
        assert_eq!(it.left(&stands(500), &row(true), &wants(200, false), None, now), None);
        let mut held = wants(200, false);
        held.desire.armed = Ratio::ZERO;
        assert_eq!(left(&mut it, &row(true), &held, 36), None);
    }

    #[test]
    fn what_was_given_for_work_that_has_not_begun_is_kept_for_two_minutes() {
        let mut it = kept();
        assert_eq!(left(&mut it, &row(true), &wants(120, false), 0), None);
        assert_eq!(left(&mut it, &row(true), &wants(120, false), 119), None);
        assert_eq!(left(&mut it, &row(true), &wants(120, false), 120), Some(w(120)));
    }

    #[test]
    fn a_yield_is_told_once_it_is_on_disk() {
        let (disk, on_disk) = watch::channel(stands(500));
        let it = Yields::kept(Some(on_disk));
        assert_eq!(it.told(&stands(200), &row(true)), None);
        disk.send(stands(200)).unwrap();
        assert_eq!(it.told(&stands(200), &row(true)), Some(w(200)));
        assert_eq!(it.told(&stands(500), &row(true)), None, "nothing was yielded");
        let later = GrantRow { grant: NodeGrant { serial: 4, watts: w(500) }, ..row(true) };
        assert_eq!(it.told(&stands(200), &later), None, "of another grant");
    }

    #[test]
    fn a_grant_that_is_not_on_disk_is_kept_whole() {
        for mut it in [Yields::default(), Yields::kept(Some(watch::channel(Stands::Nothing).1))] {
            assert_eq!(left(&mut it, &row(true), &wants(480, false), 0), None);
            assert_eq!(left(&mut it, &row(true), &wants(200, false), 200), None);
            assert_eq!(it.told(&stands(200), &row(true)), None);
        }
    }

    #[test]
    fn the_next_yield_waits_until_the_object_says_the_one_before() {
        let mut it = Yields::kept(Some(watch::channel(stands(400)).1));
        let mut view = wants(200, false);
        view.desire.grant = stands(400).grant();
        let mut left = |yields: Option<i32>, second| {
            let row = GrantRow { yields: yields.map(w), ..row(true) };
            it.left(&stands(400), &row, &view, Some(w(100)), Mono::at(Duration::from_secs(second)))
        };
        assert_eq!(left(None, 0), None);
        assert_eq!(left(None, 200), None, "nobody knows of it");
        assert_eq!(left(Some(450), 210), None, "nor of this one");
        assert_eq!(left(Some(400), 220), Some(w(200)));
    }
}
