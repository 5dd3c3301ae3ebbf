//! What the node yields of its grant, so that others have it without a grant and a receipt more.
//!
//! A yield is a promise: under this serial the node keeps to what is left. So it is on disk before it is told, and neither a
//! restart nor the same object, told again, takes it back. A node that keeps no grant on disk yields nothing: the list with
//! which an agent begins may be older than what was told.
//!
//! The next yield waits until the object says the one before. So while the API server is away, when nobody would hear of more
//! and nobody could raise the node again, it yields once at most.
//!
//! Only an operator can raise it again, so that it yields only while one leads: it has written a grant of the node a moment ago, or
//! two readings of the plan's Lease show that it was renewed between them. The Lease is asked for only while the node would yield,
//! or misses what it has yielded. That stays yielded, because others may have it already; where the node wants it back and
//! nobody leads, that is told.

use super::grants::Stands;
use super::plan::PlanSeen;
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
    /// The last renewal that was seen, by the operator's clock, and a moment at which it stood so.
    last: Option<(UnixTime, Mono)>,
    /// The last grant that was seen: its object and its serial.
    grant: Option<(String, u64)>,
    /// An operator led at this moment or later, as this process saw it. What stood when the process began may be old.
    heard: Option<Mono>,
    /// Since when it is asked whether somebody leads.
    since: Option<Mono>,
}

impl Leader {
    fn see(&mut self, seen: Option<PlanSeen>, row: Option<&GrantRow>, now: Mono) {
        if let Some(PlanSeen { renewed, at }) = seen {
            let at = at.unwrap_or(now);
            if let Some((_, stood)) = self.last.filter(|(before, _)| *before != renewed) {
                self.heard = self.heard.max(Some(stood));
            }
            self.last = Some((renewed, at));
        }
        let Some(row) = row else { return };
        let serial = row.grant.serial;
        match &mut self.grant {
            Some((uid, last)) if *uid == row.uid => {
                if *last < serial {
                    *last = serial;
                    self.heard = Some(now);
                }
            }
            Some(_) | None => self.grant = Some((row.uid.clone(), serial)),
        }
    }

    fn leads(&self, now: Mono) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) < LEADS_FOR)
    }

    /// Whether nobody leads, as far as it was asked for long enough to say so.
    fn is_away(&mut self, asks: bool, now: Mono) -> bool {
        if !asks {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.since(since) >= LEADS_FOR && !self.leads(now)
    }
}

/// What is remembered for it.
#[derive(Debug, Default)]
pub(crate) struct Yields {
    memory: YieldMemory,
    leader: Leader,
    /// It was told that what was yielded is missed.
    is_missed: bool,
    /// It would help to know whether an operator leads.
    asks: bool,
    /// What the file with the grant says; `None` where no grant is kept.
    on_disk: Option<watch::Receiver<Stands>>,
}

impl Yields {
    /// With what the file says.
    pub(crate) fn kept(on_disk: Option<watch::Receiver<Stands>>) -> Self {
        Self { on_disk, ..Self::default() }
    }

    /// Takes in what shows that an operator leads: its plan, and the grant of the node.
    pub(crate) fn hear(&mut self, plan: Option<PlanSeen>, row: Option<&GrantRow>, now: Mono) {
        self.leader.see(plan, row, now);
        self.asks = false;
    }

    /// Whether the plan's Lease should be read.
    pub(crate) const fn asks(&self) -> bool {
        self.asks
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
        let yielded = kept.map(|kept| row.grant.watts - kept.grant.watts);
        let wanted = yielded.filter(|&yielded| yielded > Watts::ZERO && (bites || self.is_missed));
        self.asks |= wanted.is_some();
        let is_away = self.leader.is_away(wanted.is_some(), now);
        let missed = wanted.filter(|_| is_away);
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
            lends: row.lends && is_plain && is_known && self.is_on_disk(stands),
        };
        let (at, wants) = (Stamp::new(micros(now.since(Mono::START))), view.wants.report.as_ref());
        let wants = wants.filter(|_| is_plain);
        if self.leader.leads(now) {
            return self.memory.left(at, grant, wants);
        }
        // A copy says what the node would yield: nothing is yielded before it is known that somebody leads.
        let mut would = self.memory;
        self.asks |= would.left(at, grant, wants).is_some();
        self.memory.left(at, Yieldable { lends: false, ..grant }, wants)
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
        it.hear(plan(-1), None, at(0));
        it
    }

    /// A Lease that is watched, with its last renewal.
    fn plan(renewal: i64) -> Option<PlanSeen> {
        Some(PlanSeen { renewed: UnixTime::from_micros(renewal), at: None })
    }

    /// As it was read at a moment.
    fn read(renewal: i64, at: Mono) -> Option<PlanSeen> {
        plan(renewal).map(|seen| PlanSeen { at: Some(at), ..seen })
    }

    fn kept() -> Yields {
        with_disk(500)
    }

    fn at(second: u64) -> Mono {
        Mono::at(Duration::from_secs(second))
    }

    /// The operator renews its plan in each second.
    fn left(it: &mut Yields, row: &GrantRow, view: &View, second: u64) -> Option<Watts> {
        it.hear(plan(i64::try_from(second).unwrap()), None, at(second));
        // It was renewed since.
        it.hear(plan(i64::try_from(second).unwrap() + 1), None, at(second));
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
            let renewed = i64::try_from(second).unwrap();
            it.hear(plan(renewed), None, at(second));
            it.hear(plan(renewed + 1), None, at(second));
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
        let mut left = |seen: Option<PlanSeen>, watts: i32, second| {
            it.hear(seen, Some(&row(true)), at(second));
            let left = it.left(&stands(500), &row(true), &wants(watts, false), Some(w(100)), at(second));
            (left, it.asks())
        };
        let (none, asks, yields) = ((None, false), (None, true), (Some(w(200)), false));
        assert_eq!(left(None, 480, 0), none, "it has nothing to yield, so that it asks for nothing");
        assert_eq!(left(None, 200, 200), asks, "no Lease was seen");
        assert_eq!(left(read(7, at(201)), 200, 202), asks, "the one that is there may be old");
        assert_eq!(left(read(7, at(205)), 200, 206), asks);
        assert_eq!(left(read(8, at(215)), 200, 216), yields, "it was renewed after 205 s");
        assert_eq!(left(read(8, at(215)), 200, 249), yields);
        assert_eq!(left(read(8, at(215)), 200, 250), asks, "45 s later nobody knows");
        assert_eq!(left(read(8, at(215)), 480, 251), none, "nor needs to");
        assert_eq!(
            left(read(9, at(300)), 200, 301),
            asks,
            "renewed after 215 s, and perhaps long before 301 s"
        );
        assert_eq!(left(None, 200, 302), asks, "the Lease is gone");
        assert_eq!(left(read(10, at(304)), 200, 305), yields, "another leader");
    }

    #[test]
    fn who_was_given_another_grant_a_moment_ago_knows_that_an_operator_leads() {
        let mut it = Yields::kept(Some(watch::channel(stands(500)).1));
        let serial = |serial| GrantRow { grant: NodeGrant { serial, watts: w(500) }, ..row(true) };
        let other = GrantRow { uid: "v".to_owned(), ..serial(9) };
        let mut leads = |row: &GrantRow, second| {
            it.hear(None, Some(row), at(second));
            it.leader.leads(at(second))
        };
        assert!(!leads(&serial(3), 0), "it may be old");
        assert!(!leads(&serial(3), 10));
        assert!(leads(&serial(4), 20) && leads(&serial(4), 64));
        assert!(!leads(&serial(4), 65));
        assert!(!leads(&serial(3), 70), "an old one that is told again");
        assert!(!leads(&serial(4), 75), "and the last one, told after it");
        assert!(!leads(&other, 80), "another object may be old");
    }

    #[test]
    fn what_was_yielded_is_missed_where_the_node_wants_it_back_and_nobody_leads() {
        let mut it = with_disk(200);
        let missed = |it: &mut Yields, watts: i32, bites, second| {
            it.hear(None, None, at(second));
            let missed = it.missed(&stands(watts), &row(true), &wants(300, bites), at(second));
            (missed, it.asks())
        };
        assert_eq!(missed(&mut it, 200, false, 100), (None, false), "it does not want it");
        assert_eq!(missed(&mut it, 200, true, 110), (None, true), "it asks");
        assert_eq!(missed(&mut it, 200, true, 154), (None, true));
        assert_eq!(missed(&mut it, 200, true, 155), (Some(w(300)), true), "for long enough");
        assert_eq!(missed(&mut it, 200, false, 156), (Some(w(300)), true), "it is told once");
        assert_eq!(missed(&mut it, 500, true, 157), (None, false), "it has yielded nothing");
        assert_eq!(missed(&mut it, 200, true, 160), (None, true), "it asks anew");
        it.hear(read(1, at(186)), None, at(187));
        it.hear(read(2, at(190)), None, at(191));
        assert_eq!(missed(&mut it, 200, true, 230), (None, true), "an operator led after 186 s");
        assert_eq!(missed(&mut it, 200, true, 231), (Some(w(300)), true));
    }
}
