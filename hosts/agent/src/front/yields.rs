//! What the node yields of its grant, so that others have it without a grant and a receipt more.
//!
//! A yield is a promise: under this serial the node keeps to what is left. So it is on disk before it is told, and neither a
//! restart nor the same object, told again, takes it back. A node that keeps no grant on disk yields nothing: the list with
//! which an agent begins may be older than what was told.
//!
//! The next yield waits until the object says the one before. So while the API server is away, when nobody would hear of more
//! and nobody could raise the node again, it yields once at most.
//!
//! Only an operator can raise it again, so that it yields only while one leads: the plan's Lease was renewed a moment ago, and
//! this process saw it. What it has yielded before stays so, because others may have it already. Where the node then wants
//! it back, that is told.

use super::grants::Stands;
use super::rows::GrantRow;
use crate::machine::View;
use host_kit::clock::{Mono, micros};
use joulie_core::budget::demand::{YieldMemory, Yieldable};
use joulie_core::placement::freshness::UnixTime;
use power_units::{Ratio, Stamp, Watts};
use std::time::Duration;
use tokio::sync::watch;

/// An operator leads for so long after it has renewed its plan: it does so each 30 s at most, and 15 s are for a change of the
/// leader.
pub(super) const LEADS_FOR: Duration = Duration::from_secs(45);

/// Whether an operator leads.
#[derive(Debug, Default)]
struct Leader {
    /// The last renewal, by the operator's clock. It is compared only with others.
    renewed: Option<UnixTime>,
    /// When this process saw it renew. What stood when the process began may be old.
    heard: Option<Mono>,
    /// Since when this process looks.
    since: Option<Mono>,
}

impl Leader {
    fn see(&mut self, renewed: Option<UnixTime>, now: Mono) {
        self.since.get_or_insert(now);
        let Some(renewed) = renewed.filter(|_| renewed != self.renewed) else { return };
        if self.renewed.replace(renewed).is_some() {
            self.heard = Some(now);
        }
    }

    fn leads(&self, now: Mono) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) < LEADS_FOR)
    }

    /// Nobody leads, as far as it was looked for long enough to say so.
    fn is_away(&self, now: Mono) -> bool {
        self.heard.or(self.since).is_some_and(|last| now.since(last) >= LEADS_FOR)
    }
}

/// What is remembered for it.
#[derive(Debug, Default)]
pub(crate) struct Yields {
    memory: YieldMemory,
    leader: Leader,
    /// It was told that what was yielded is missed.
    is_missed: bool,
    /// What the file with the grant says; `None` where no grant is kept.
    on_disk: Option<watch::Receiver<Stands>>,
}

impl Yields {
    /// With what the file says.
    pub(crate) fn kept(on_disk: Option<watch::Receiver<Stands>>) -> Self {
        Self { on_disk, ..Self::default() }
    }

    /// Takes in when the operator has renewed its plan.
    pub(crate) fn hear(&mut self, renewed: Option<UnixTime>, now: Mono) {
        self.leader.see(renewed, now);
    }

    /// What the node has yielded and is throttled without, where nobody leads who could give it back.
    /// Once told, that stays until somebody leads or the grant is another.
    pub(crate) fn missed(
        &mut self,
        stands: &Stands,
        row: &GrantRow,
        view: &View,
        now: Mono,
    ) -> Option<Watts> {
        let kept = stands.kept().filter(|kept| is_of(row, &kept.uid, kept.grant.serial));
        let bites = view.wants.report.is_some_and(|report| report.bites());
        let is_missed = (bites || self.is_missed) && self.leader.is_away(now);
        let yielded = kept.map(|kept| row.grant.watts - kept.grant.watts);
        let missed = yielded.filter(|&yielded| yielded > Watts::ZERO && is_missed);
        self.is_missed = missed.is_some();
        missed
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
            lends: row.lends && is_plain && is_known && self.is_on_disk(stands) && self.leader.leads(now),
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

    /// With the grant of so much on disk, and an operator that has begun to lead.
    fn with_disk(watts: i32) -> Yields {
        let mut it = Yields::kept(Some(watch::channel(stands(watts)).1));
        it.hear(Some(UnixTime::from_micros(-1)), at(0));
        it
    }

    fn kept() -> Yields {
        with_disk(500)
    }

    fn at(second: u64) -> Mono {
        Mono::at(Duration::from_secs(second))
    }

    /// The operator renews its plan in each second.
    fn left(it: &mut Yields, row: &GrantRow, view: &View, second: u64) -> Option<Watts> {
        it.hear(Some(UnixTime::from_micros(i64::try_from(second).unwrap())), at(second));
        it.left(&stands(500), row, view, Some(w(100)), at(second))
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
        let nothing = Yields { on_disk: Some(watch::channel(Stands::Nothing).1), ..kept() };
        for mut it in [Yields { on_disk: None, ..kept() }, nothing] {
            assert_eq!(left(&mut it, &row(true), &wants(480, false), 0), None);
            assert_eq!(left(&mut it, &row(true), &wants(200, false), 200), None);
            assert_eq!(it.told(&stands(200), &row(true)), None);
        }
    }

    #[test]
    fn the_next_yield_waits_until_the_object_says_the_one_before() {
        let mut it = with_disk(400);
        let mut view = wants(200, false);
        view.desire.grant = stands(400).grant();
        let mut left = |yields: Option<i32>, second: u64| {
            it.hear(Some(UnixTime::from_micros(i64::try_from(second).unwrap())), at(second));
            let row = GrantRow { yields: yields.map(w), ..row(true) };
            it.left(&stands(400), &row, &view, Some(w(100)), at(second))
        };
        assert_eq!(left(None, 0), None);
        assert_eq!(left(None, 200), None, "nobody knows of it");
        assert_eq!(left(Some(450), 210), None, "nor of this one");
        assert_eq!(left(Some(400), 220), Some(w(200)));
    }
    #[test]
    fn nothing_is_yielded_while_nobody_leads_who_could_give_it_back() {
        let mut it = Yields::kept(Some(watch::channel(stands(500)).1));
        let mut left = |renewed: Option<i64>, second| {
            it.hear(renewed.map(UnixTime::from_micros), at(second));
            it.left(&stands(500), &row(true), &wants(200, false), Some(w(100)), at(second))
        };
        assert_eq!(left(None, 0), None);
        assert_eq!(left(None, 200), None, "no Lease was seen");
        assert_eq!(left(Some(7), 210), None, "the one that is there may be old");
        assert_eq!(left(Some(7), 220), None);
        assert_eq!(left(Some(8), 230), Some(w(200)), "it is renewed");
        assert_eq!(left(Some(8), 274), Some(w(200)));
        assert_eq!(left(Some(8), 275), None, "45 s without a renewal");
        assert_eq!(left(None, 276), None, "the Lease is gone");
        assert_eq!(left(Some(9), 277), Some(w(200)), "another leader");
    }

    #[test]
    fn what_was_yielded_is_missed_where_the_node_wants_it_back_and_nobody_leads() {
        let mut it = with_disk(200);
        let missed = |it: &mut Yields, watts: i32, bites, second| {
            it.missed(&stands(watts), &row(true), &wants(300, bites), at(second))
        };
        assert_eq!(missed(&mut it, 200, true, 44), None, "this process has begun a moment ago");
        assert_eq!(missed(&mut it, 200, false, 45), None, "it does not want it");
        assert_eq!(missed(&mut it, 200, true, 46), Some(w(300)));
        assert_eq!(missed(&mut it, 200, false, 47), Some(w(300)), "it is told once");
        assert_eq!(missed(&mut it, 500, true, 48), None, "it has yielded nothing");
        it.hear(Some(UnixTime::from_micros(1)), at(50));
        assert_eq!(missed(&mut it, 200, true, 94), None, "an operator leads");
        assert_eq!(missed(&mut it, 200, true, 95), Some(w(300)));
    }
}
