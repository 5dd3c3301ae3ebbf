//! The leader's memory and its passes: a pass turns rows into jobs, and the outcomes of the jobs are taken in.
//!
//! Everything here is synchronous and uses no network, so that a pass sees one moment. A node with a job in progress,
//! or whose job does not show in the rows yet, gets no other job. A node whose job failed is left alone for a time that
//! grows with every failure. Neither prevents passes for the other nodes.

mod absences;
mod advise;
mod armed;
mod backoffs;
mod bounded;
mod budget;
mod evictions;
mod explain;
mod forget;
mod hand_back;
mod jobs;
mod limits;
mod moves;
mod pass;
mod response;
mod sleep;
mod transitions;
mod unchanged;
mod visibility;

pub(crate) use jobs::Then;
pub(crate) use moves::{MoveCause, MoveWay};

use crate::budget::Metered;
use crate::facility::{Places, Sensed};
use crate::grants::Grants;
use crate::meters::Meters;
use crate::meters::poller::{Followed, Read};
use crate::reasons::{CONFIG_APPLIED, CONFIG_REFUSED, WRITE_OVERRIDDEN, WRITE_REFUSED};
use crate::rows::NodeSeen;
use crate::settings::{FacilitySettings, Settings};
use crate::site::{Changes, Kind, Observed, Site, Watches};
use crate::stats::{Became as Counted, Stats};
use crate::writes::{Outcome, SERVER_TIMEOUT, Target, Trouble};
use absences::Absences;
use armed::{EventMemory, Samples};
use backoffs::{Backoffs, PendingEcho};
use bounded::BoundMemory;
use budget::UnmetDemand;
use evictions::EvictionMemory;
use explain::Decided;
use host_kit::clock::{Mono, micros};
use host_kit::config::{ConfigNews, ConfigOutcome};
use host_kit::events::{Note, Recorder, about_node};
use host_kit::leader::Term;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use moves::MoveMemory;
use planner::facility::Facility;
use planner::node::Node;
use planner::plan::PlanMemory;
use planner::power::PowerSample;
use power_units::{Micros, Stamp, Watts};
use response::{GridMemory, LimitLowering};
use sleep::SleepState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use transitions::TransitionMemory;
use unchanged::Unchanged;
use visibility::RefusedReports;

/// The state of one term of leadership.
pub(crate) struct Reconciler {
    settings: Arc<Settings>,
    site: Site,
    /// The reports of the meters. They are kept across terms, because a follower takes them in, too.
    meters: Meters,
    /// The nodes that are not ready, and for how long; a follower tracks them, too.
    absences: Absences,
    memory: PlanMemory,
    /// Nodes with a job in progress: its ticket, and the number of its pass.
    busy: BTreeMap<Arc<str>, (u64, u64)>,
    /// The last ticket that was given to a job; each job of a process has its own.
    tickets: u64,
    pending_echoes: BTreeMap<Arc<str>, PendingEcho>,
    backoffs: Backoffs,
    /// The state of every node when nothing was to be written for it, by the index of the node.
    unchanged: Vec<Option<Unchanged>>,
    /// The grants that were sent. They are kept across terms, because a grant may land in the next one.
    grants: Grants,
    /// The state of the limits, as the last pass decided.
    round: planner::budget::Round,
    /// What would be granted if every limit were enforced, as the last pass decided.
    trial: Option<planner::budget::Round>,
    /// The groups as they are shown: of those that are only observed, what the trial counts.
    shown: Vec<planner::budget::GroupStanding>,
    /// The measured power of each of them, if any node there is measured.
    measured: Vec<Option<Watts>>,
    /// The same with samples that are held, and of how many nodes it is.
    metered: Vec<Metered>,
    /// Since when the meters of a group show more than is counted there.
    above: BTreeMap<String, Mono>,
    /// What is remembered of decisions that move much power.
    moves: MoveMemory,
    /// Nothing is raised before this time: grants of the previous leader may still land.
    raises_from: Mono,
    /// Groups whose limit is not kept, and the reason that was last reported.
    short: BTreeMap<String, &'static str>,
    /// Groups that throttle nodes.
    unmet: BTreeMap<String, UnmetDemand>,
    /// Whether recommendations were last reported for a node, where that differs from what is published.
    advice_told: BTreeMap<Arc<str>, bool>,
    /// What is remembered of PowerEvents, by the identifiers of their objects.
    armed: BTreeMap<String, EventMemory>,
    /// What is drawn by nodes that are armed for events that are not on, by the names of the events.
    samples: BTreeMap<String, Samples>,
    /// What signals of PowerBudgets last said, by the names of the budgets.
    grid: BTreeMap<String, GridMemory>,
    /// What lowers each PowerBudget in this pass.
    lowerings: Vec<LimitLowering>,
    /// When the last pass looked at the PowerEvents, and at what lowers limits.
    looked: Option<Mono>,
    /// The nodes whose drain was told to be overdue.
    overdue_told: BTreeSet<Arc<str>>,
    /// What is told of changes of nodes' states.
    transitions: TransitionMemory,
    /// What was told of pods past the bound on performance.
    bounded: BoundMemory,
    /// What evictions need to remember.
    evictions: EvictionMemory,
    /// What sleep needs to remember.
    sleep: SleepState,
    /// Objects that cannot be read, and the reasons that were last reported.
    unread: BTreeMap<(Kind, String), String>,
    /// The reports of demand that were refused and counted, by their nodes.
    refused: RefusedReports,
    /// What the last pass of this term decided.
    decided: Option<Decided>,
    /// The number of the present term, or of the last one.
    term: Term,
    passes: u64,
    /// The time of day of the last pass.
    wall: Timestamp,
    stats: Stats,
    recorder: Recorder,
}

/// A node whose writes are stale again and again does not just collide by chance: from the third wait in a row on, this
/// is logged as a warning.
const STALE_MAX: Duration = Duration::from_secs(2);

/// Converts a moment to the planner's time.
pub(crate) fn stamp(now: Mono) -> Stamp {
    let micros = now.since(Mono::START).as_micros();
    Stamp::new(Micros::new(u64::try_from(micros).unwrap_or(u64::MAX)))
}

/// Converts the planner's time to a moment.
const fn moment(stamp: Stamp) -> Mono {
    Mono::at(Duration::from_micros(stamp.since_start().get()))
}

impl Reconciler {
    /// Creates a reconciler without any knowledge.
    ///
    /// # Errors
    /// If the tuning of the twin is not valid, which would be a defect of the program.
    pub(crate) fn new(settings: Arc<Settings>, stats: Stats, recorder: Recorder) -> Result<Self, String> {
        let meters = Meters::new(&settings.power, settings.hold)?;
        let mut site = Site::default();
        let has_thermometer =
            |facility: &FacilitySettings| facility.ambient.is_some() || facility.zones.is_some();
        site.cluster.facility = Facility::new(settings.facility.as_ref().is_some_and(has_thermometer));
        Ok(Self {
            site,
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
            trial: None,
            shown: Vec::new(),
            measured: Vec::new(),
            metered: Vec::new(),
            above: BTreeMap::new(),
            moves: MoveMemory::default(),
            raises_from: Mono::START,
            short: BTreeMap::new(),
            unmet: BTreeMap::new(),
            advice_told: BTreeMap::new(),
            armed: BTreeMap::new(),
            samples: BTreeMap::new(),
            grid: BTreeMap::new(),
            lowerings: Vec::new(),
            looked: None,
            overdue_told: BTreeSet::new(),
            transitions: TransitionMemory::default(),
            bounded: BoundMemory::default(),
            evictions: EvictionMemory::default(),
            sleep: SleepState::default(),
            unread: BTreeMap::new(),
            refused: RefusedReports::default(),
            decided: None,
            term: Term(0),
            passes: 0,
            wall: Timestamp::UNIX_EPOCH,
            settings,
            stats,
            recorder,
        })
    }

    /// Decides by these settings from the next pass on. What is not live in them is as it was.
    pub(crate) fn configure(&mut self, settings: Arc<Settings>) {
        if settings.policy_unknown && !self.settings.policy_unknown {
            tracing::warn!("POLICY_TYPE is not a known policy; static_partition is used");
        }
        // The catalogue is read at a start alone, because nodes that nothing changes would be rated by the old one.
        let catalog = self.settings.catalog.clone();
        self.settings = Arc::new(Settings { catalog, ..Arc::unwrap_or_clone(settings) });
    }

    /// Posts what became of a changed file of settings.
    pub(crate) fn say_config(&self, news: &ConfigNews) {
        let reason = match news.outcome {
            ConfigOutcome::Applied => CONFIG_APPLIED,
            ConfigOutcome::Refused => CONFIG_REFUSED,
        };
        let mut note = Note { action: "Configure", ..self.of_the_budget(reason, news.text.clone()) };
        // Each text is a series of its own: a repeated Event shows the text of the first.
        let mut hasher = DefaultHasher::new();
        news.text.hash(&mut hasher);
        note.regarding.resource_version = Some(format!("{:x}", hasher.finish()));
        self.recorder.say(note);
    }

    /// Takes in what has changed in the rows. A follower does so too, so that it can lead at once.
    pub(crate) fn look(&mut self, watches: &mut Watches, now: Mono, wall: Timestamp) -> Changes {
        self.site.hear_profiles(watches, now);
        let changes = self.site.refresh(watches, &self.settings.selectors, &self.settings.catalog);
        self.meters.listen(&changes.nodes, stamp(now), wall);
        self.count_refused(&changes.nodes);
        self.absences.note(&changes.nodes, now, wall);
        self.absences.keep_only(self.site.observed.len(), |node| self.site.find(node).is_some());
        self.forget_nodes();
        self.forget_namespaces(&watches.pods);
        changes
    }

    /// Takes in what sources of power have answered.
    pub(crate) fn heard(&mut self, reads: Vec<Read>, now: Stamp) {
        for Read { node, meter, watts, asked: (asked, age) } in reads {
            if self.site.find(&node).is_none() {
                // It was there when it was asked for.
                continue;
            }
            let waited = now.since(stamp(asked)).unwrap_or(Micros::ZERO);
            let sample = watts.and_then(|watts| PowerSample::new(meter, watts, now));
            let report = sample.map(|sample| sample.late_by(micros(age) + waited));
            self.stats.power(&node, meter, report.ok().map(PowerSample::watts));
            self.meters.record(&node, meter, now, report);
        }
    }

    /// Takes in what the building's sensors say; `wall` is the time of day. Returns whether anything was said that can be
    /// used.
    pub(crate) fn sensed(&mut self, round: &[Sensed], now: Stamp, wall: Timestamp) -> bool {
        let mut any = false;
        for sensed in round {
            // The server's clock may be ahead of this one.
            let age = Duration::try_from(wall.duration_since(sensed.at)).unwrap_or(Duration::ZERO);
            let since_start = now.since_start().get().saturating_sub(micros(age).get());
            let at = Stamp::new(Micros::new(since_start));
            match self.site.cluster.facility.record(now, at, sensed.observation()) {
                Ok(()) => any = true,
                Err(why) => {
                    tracing::warn!("{:?} of the building is not believed: {why}", sensed.observation())
                }
            }
        }
        any
    }

    /// The nodes that the plan covers, as sources of power are asked for them.
    pub(crate) fn followed(&self) -> Vec<Followed> {
        let nodes = self.site.cluster.nodes.iter().zip(&self.site.observed);
        let planned = nodes.filter(|(node, _)| node.is_eligible());
        let follow = |(node, observed): (&Node, &Arc<Observed>)| Followed {
            node: node.name.clone(),
            addresses: observed.node.addresses.clone(),
            has_gpus: node.machine.resolved.hardware.gpu.is_some(),
        };
        planned.map(follow).collect()
    }

    /// The zones and racks that nodes are in.
    pub(crate) fn places(&self) -> Places {
        let labels = || self.site.cluster.nodes.iter().map(|node| &node.labels);
        Places {
            zones: labels().filter_map(|labels| labels.zone.clone()).collect(),
            racks: labels().filter_map(|labels| labels.rack.clone()).collect(),
        }
    }

    /// What the last pass decided goes by this name: no other pass has the same while the Lease of the election is not deleted.
    fn decision(&self) -> String {
        let Term(term) = self.term;
        format!("{term}.{}", self.passes)
    }

    /// Starts a new term, or the time between two: what an earlier one remembered is void.
    pub(crate) fn begin_term(&mut self, term: Option<Term>, now: Mono) {
        self.term = term.unwrap_or(self.term);
        self.moves.begin(now);
        self.raises_from = now.plus(self.settings.election.lease).plus(SERVER_TIMEOUT);
        (self.memory, self.round, self.trial) = Default::default();
        self.busy.clear();
        self.pending_echoes.clear();
        self.backoffs = Backoffs::default();
        self.unchanged.clear();
        self.advice_told.clear();
        self.evictions = EvictionMemory::default();
        self.forget_sleep();
        self.decided = None;
        self.bounded = BoundMemory::default();
        self.overdue_told.clear();
        (self.armed, self.samples, self.looked) = Default::default();
        // The leader between has heard signals later, and has written it.
        self.grid.clear();
    }

    /// Whether every job of the passes up to this one has ended.
    pub(crate) fn is_complete(&self, pass: u64) -> bool {
        self.busy.values().all(|&(_, of)| of > pass)
    }

    /// Takes in the outcome of a job.
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
        // An occasional write by others between our read and our write is normal; one each time is not.
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

    /// Whether a node that does not exist any more may get a job at `now`.
    fn is_free(&self, node: &str, now: Mono) -> bool {
        !self.busy.contains_key(node) && self.backoffs.until(node).is_none_or(|until| now >= until)
    }

    /// The indices of the nodes that may get no job at `now`.
    fn left_alone(&self, now: Mono) -> BTreeSet<usize> {
        let names = self.busy.keys().chain(self.pending_echoes.keys()).map(|node| &**node);
        names.chain(self.backoffs.after(now)).filter_map(|node| self.site.find(node)).collect()
    }

    /// The next time at which a node that was left alone is looked at again, a node that is away is given up, or a node
    /// that does not read back its grant is no longer counted on. Times up to `seen` were handled by the pass at that
    /// moment.
    pub(crate) fn next_try(&self, seen: Mono) -> Option<Mono> {
        let pending = self.pending_echoes.values().map(|pending| pending.until);
        let again = self.round.again.map(moment);
        let budget = self.grants.untils().chain([self.raises_from]).chain(again).chain(self.sleep.again);
        let budget = budget.chain(self.next_event()).chain(self.next_lowering());
        let all = self.backoffs.untils().chain(pending).chain(self.absences.ends()).chain(budget);
        all.filter(|&until| until > seen).min()
    }
}

/// The reference to a node in Events.
pub(crate) fn reference(node: &NodeSeen) -> ObjectReference {
    about_node(node.name.as_ref())
}
