//! The leader's memory and its passes: rows go in, jobs come out, and what came of them comes back.
//!
//! Everything here is synchronous and knows no network, so that a pass is one moment. A node of which a job is under
//! way, or whose job has not shown in the rows yet, gets no other one; a node whose job failed is left alone for a while
//! that grows with every failure; neither keeps a pass from the other nodes.

mod absences;
mod backoffs;
mod budget;
mod jobs;
mod pass;
mod unchanged;
mod visibility;

pub(crate) use jobs::Then;

use crate::grants::Grants;
use crate::meters::Meters;
use crate::reasons::{WRITE_OVERRIDDEN, WRITE_REFUSED};
use crate::rows::NodeSeen;
use crate::settings::Settings;
use crate::site::{Changes, Kind, Site, Watches};
use crate::stats::{Became as Counted, Stats};
use crate::writes::{Outcome, SERVER_TIMEOUT, Target, Trouble};
use absences::Absences;
use backoffs::{Backoffs, PendingEcho};
use host_kit::clock::Mono;
use host_kit::events::{Note, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::plan::PlanMemory;
use power_units::{Micros, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use unchanged::Unchanged;

/// What one term of leading knows.
pub(crate) struct Reconciler {
    settings: Arc<Settings>,
    site: Site,
    /// What meters said; it outlives a term, because a follower listens too.
    meters: Meters,
    /// Who is not ready, and for how long: known to a follower too.
    absences: Absences,
    memory: PlanMemory,
    /// Nodes with a job under way: its ticket, and the pass that it is of.
    busy: BTreeMap<Arc<str>, (u64, u64)>,
    /// The last ticket that was given to a job; no two jobs of a process have the same.
    tickets: u64,
    pending_echoes: BTreeMap<Arc<str>, PendingEcho>,
    backoffs: Backoffs,
    /// What every node looked like when nothing was to be written for it, by the places of the nodes.
    unchanged: Vec<Option<Unchanged>>,
    /// What the budget has sent; it outlives a term, because it may land in the next.
    grants: Grants,
    /// How the limits stand, as the last pass decided.
    round: planner::budget::Round,
    /// When it was last told that many watts were taken or given.
    cuts: BTreeMap<&'static str, Mono>,
    /// Before this nothing is raised: what a leader before has sent may still land.
    raises_from: Mono,
    /// Groups whose limit is not kept, and the reason that was last said.
    short: BTreeMap<String, &'static str>,
    /// Objects that cannot be read and why, as it was last said.
    unread: BTreeMap<(Kind, String), String>,
    passes: u64,
    /// What people call the time of the last pass.
    wall: Timestamp,
    stats: Stats,
    recorder: Recorder,
}

/// Writes to a node that came late again and again are no chance: the third wait in a row is as long.
const STALE_MAX: Duration = Duration::from_secs(2);

/// A moment as the planner counts it.
pub(crate) fn stamp(now: Mono) -> Stamp {
    let micros = now.since(Mono::START).as_micros();
    Stamp::new(Micros::new(u64::try_from(micros).unwrap_or(u64::MAX)))
}

/// The moment that the planner counts so.
const fn moment(stamp: Stamp) -> Mono {
    Mono::at(Duration::from_micros(stamp.since_start().get()))
}

impl Reconciler {
    /// Knows nothing yet.
    ///
    /// # Errors
    /// When the tuning of the twin makes no sense, which would be a defect of the program.
    pub(crate) fn new(settings: Arc<Settings>, stats: Stats, recorder: Recorder) -> Result<Self, String> {
        let meters = Meters::new(&settings.power, settings.hold)?;
        Ok(Self {
            site: Site::default(),
            meters,
            absences: Absences::new(settings.not_ready_patience),
            memory: PlanMemory::default(),
            busy: BTreeMap::new(),
            tickets: 0,
            pending_echoes: BTreeMap::new(),
            backoffs: Backoffs::default(),
            unchanged: Vec::new(),
            grants: Grants::default(),
            round: planner::budget::Round::default(),
            cuts: BTreeMap::new(),
            raises_from: Mono::START,
            short: BTreeMap::new(),
            unread: BTreeMap::new(),
            passes: 0,
            wall: Timestamp::UNIX_EPOCH,
            settings,
            stats,
            recorder,
        })
    }

    /// Takes in what has changed in the rows. A follower does so too, so that it could lead at once.
    pub(crate) fn look(&mut self, watches: &mut Watches, now: Mono, wall: Timestamp) -> Changes {
        let changes = self.site.refresh(watches, &self.settings.selectors, &self.settings.catalog);
        self.meters.listen(&changes.nodes, stamp(now), wall);
        self.absences.note(&changes.nodes, now, wall);
        self.absences.keep_only(self.site.observed.len(), |node| self.site.find(node).is_some());
        changes
    }

    /// What meters say.
    pub(crate) fn meters(&mut self) -> &mut Meters {
        &mut self.meters
    }

    /// The names of the nodes that are planned for.
    pub(crate) fn planned(&self) -> Vec<Arc<str>> {
        let nodes = self.site.cluster.nodes.iter().filter(|node| node.is_eligible());
        nodes.map(|node| node.name.clone()).collect()
    }

    /// A new term begins: what an earlier one remembered is void.
    pub(crate) fn begin_term(&mut self, now: Mono) {
        self.raises_from = now.plus(self.settings.election.lease).plus(SERVER_TIMEOUT);
        (self.memory, self.round) = Default::default();
        self.busy.clear();
        self.pending_echoes.clear();
        self.backoffs = Backoffs::default();
        self.unchanged.clear();
    }

    /// Whether every job of the passes up to this one has ended.
    pub(crate) fn is_complete(&self, pass: u64) -> bool {
        self.busy.values().all(|&(_, of)| of > pass)
    }

    /// Takes in what came of a job.
    pub(crate) fn ended(&mut self, outcome: Outcome<(u64, Then)>, now: Mono) {
        let Outcome { node, landed, failed, then: (ticket, then) } = outcome;
        if self.busy.get(&node).is_none_or(|(of, _)| *of != ticket) {
            // It was sent in an earlier term.
            return;
        }
        self.busy.remove(&node);
        for one in &landed {
            self.stats.wrote(one.target, Counted::Landed);
        }
        if !landed.is_empty() {
            self.pending_echoes.insert(node.clone(), PendingEcho::new(&landed, now));
        }
        match failed {
            None => {
                self.backoffs.fine(&node);
                self.carried_out(then);
            }
            Some((target, trouble)) => self.failed(&node, target, &trouble, now),
        }
    }

    pub(super) fn count_write(&self, target: Target, failed: Option<&Trouble>) {
        self.stats.wrote(target, failed.map_or(Counted::Landed, Counted::of));
    }

    fn failed(&mut self, node: &str, target: Target, trouble: &Trouble, now: Mono) {
        let (result, why) = (Counted::of(trouble), trouble.words());
        self.stats.wrote(target, result);
        let wait = self.backoffs.trouble(node, trouble, now);
        if result == Counted::NotLeading {
            return;
        }
        let (target_word, millis) = (target.word(), wait.as_millis());
        // That somebody wrote between our look and our write is how it should be; that it happens each time is not.
        if result == Counted::Stale && wait < STALE_MAX {
            tracing::debug!(node, target = target_word, "a write came late: {why}; again in {millis}ms");
        } else {
            tracing::warn!(node, target = target_word, "a write failed: {why}; again in {millis}ms");
        }
        let told = matches!(result, Counted::Owned | Counted::Refused);
        if let Some(observed) = self.site.observed(node).filter(|_| told) {
            let reason = if result == Counted::Owned { WRITE_OVERRIDDEN } else { WRITE_REFUSED };
            self.recorder.say(Note {
                regarding: reference(&observed.node),
                severity: reason.severity,
                reason: reason.word,
                action: "Publish",
                text: format!("{} of the node could not be written: {why}", target.word()),
            });
        }
    }

    /// Forgets what is kept of nodes that are gone, and of jobs that show in the rows.
    fn forget_gone(&mut self, now: Mono) {
        let site = &self.site;
        self.pending_echoes.retain(|node, pending| match site.observed(node) {
            Some(observed) => !pending.is_over(observed, now),
            None => now < pending.until,
        });
        if self.unchanged.len() != self.site.observed.len() {
            self.unchanged.resize_with(self.site.observed.len(), || None);
        }
        if !std::mem::take(&mut self.site.other_nodes) {
            return;
        }
        // Other nodes stand at these places now.
        self.unchanged.fill_with(|| None);
        let known: BTreeSet<&str> = self.site.cluster.nodes.iter().map(|node| &*node.name).collect();
        self.meters.keep_only(&known);
        self.stats.keep_only(&known);
        self.backoffs.keep_only(&known, now);
        self.pending_echoes.retain(|node, _| known.contains(&**node));
    }

    /// Whether a node that is gone may get a job at `now`.
    fn is_free(&self, node: &str, now: Mono) -> bool {
        !self.busy.contains_key(node) && self.backoffs.until(node).is_none_or(|until| now >= until)
    }

    /// The places of the nodes that may get no job at `now`.
    fn left_alone(&self, now: Mono) -> BTreeSet<usize> {
        let names = self.busy.keys().chain(self.pending_echoes.keys()).map(|node| &**node);
        names.chain(self.backoffs.after(now)).filter_map(|node| self.site.find(node)).collect()
    }

    /// When a node that is left alone is to be looked at again, one that is away is given up, or one that does not read back its
    /// grant is not counted on any more; what was due at the pass at `seen` had its turn.
    pub(crate) fn next_try(&self, seen: Mono) -> Option<Mono> {
        let pending = self.pending_echoes.values().map(|pending| pending.until);
        let again = self.round.again.map(moment);
        let budget = self.grants.untils().chain([self.raises_from]).chain(again);
        let all = self.backoffs.untils().chain(pending).chain(self.absences.ends()).chain(budget);
        all.filter(|&until| until > seen).min()
    }
}

/// A node as Events name it.
pub(crate) fn reference(node: &NodeSeen) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.to_string()),
        // As the kubelet does: the events of a node are found by its name.
        uid: Some(node.name.to_string()),
        ..ObjectReference::default()
    }
}
