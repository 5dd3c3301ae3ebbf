//! The main loop: waits for events, takes them in, plans, sends jobs, renews the plan's Lease.
//!
//! ```text
//!          rows changed, a job ended, a meter spoke, the file of settings changed, time passed
//! wait ────────────────────────────────────────────────────────▶ take in ──▶ due, leading and not blind? ──▶ pass
//!  ▲                                                                │ no                                      │
//!  └────────────────────────────────────────────────────────────────┴─────────────────────────────────────────┘
//! ```
//!
//! A change is planned a moment after it arrived, so that changes that arrive together are planned together.
//! Consecutive passes are spaced by a multiple of a pass's duration, so that many events use only a part of one
//! processor.

use crate::evict::{EndedEviction, Evictions};
use crate::facility::{self, Sensed, Sensors};
use crate::grants::Ticket;
use crate::grid::{GridSignals, GridValue};
use crate::lease::{self, Renewal};
use crate::meters::poller::{Poller, Read};
use crate::queries::Queries;
use crate::reconciler::{Reconciler, Then, stamp};
use crate::routes::PlanQuestion;
use crate::settings::Settings;
use crate::site::Watches;
use crate::sleep::{PowerBoard, SleepNews, SleepParts, Sleeper};
use crate::stats::Stats;
use crate::writes::{Outcome, Trouble, Writers};
use host_kit::clock::{HostClock, Mono};
use host_kit::config::{ConfigNews, Live};
use host_kit::health::Heartbeat;
use host_kit::http_client::TrustError;
use host_kit::leader::{Leadership, Term};
use host_kit::shutdown::Stop;
use kube::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Changes that arrive within this time are planned together.
const TOGETHER: Duration = Duration::from_millis(2);
/// The pause after a pass, as a multiple of its duration.
const DISTANCE: u32 = 4;
/// The longest pause.
const DISTANCE_MAX: Duration = Duration::from_millis(500);
/// How long to wait for hardware that is not known yet.
const HARDWARE_PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait for the pods: without them no node may be lowered, so that the first plan would differ from the
/// second, and under a budget it would report limits that cannot be kept.
const PODS_PATIENCE: Duration = Duration::from_secs(5);

/// What the loop needs.
pub(crate) struct Parts {
    /// The API server.
    pub(crate) client: Client,
    /// Time.
    pub(crate) clock: Arc<dyn HostClock>,
    /// The watches.
    pub(crate) watches: Watches,
    /// Whether this process leads.
    pub(crate) leadership: Leadership,
    /// The identity of this process.
    pub(crate) identity: String,
    /// Its settings. They are taken over between passes.
    pub(crate) live: Live<Settings>,
    /// Its metrics.
    pub(crate) stats: Stats,
    /// What switches the power of nodes, if anything does.
    pub(crate) sleep: Option<SleepParts>,
    /// What it asks of Prometheus.
    pub(crate) queries: Queries,
    /// Its heartbeat.
    pub(crate) heartbeat: Heartbeat,
    /// Questions about the plan.
    pub(crate) questions: mpsc::Receiver<PlanQuestion>,
    /// Set once a pass was made, or while another process leads.
    pub(crate) planned: Arc<AtomicBool>,
}

/// The loop.
pub(crate) struct Lead {
    parts: Parts,
    /// Clones of the watches that the loop waits on: waiting for a change marks it as seen.
    waiting: Watches,
    reconciler: Reconciler,
    writers: Writers<(u64, Then)>,
    outcomes: mpsc::UnboundedReceiver<Outcome<(u64, Then)>>,
    /// Grants have writers of their own, so that no other write delays lowering the power.
    granters: Writers<Ticket>,
    granted: mpsc::UnboundedReceiver<Outcome<Ticket>>,
    evictions: Evictions,
    evicted: mpsc::UnboundedReceiver<EndedEviction>,
    sleeper: Option<(Sleeper, mpsc::UnboundedReceiver<SleepNews>)>,
    poller: Option<Poller>,
    sensors: Option<Sensors>,
    grid: Option<GridSignals>,
    /// The building's sensors have been read once, or there are none.
    has_sensed: bool,
    term: Option<Term>,
    /// When the term began.
    since: Mono,
    /// When rows changed that have not been read yet.
    stirred: Option<Mono>,
    /// When something changed that no pass has taken into account yet.
    dirty: Option<Mono>,
    last_pass: Option<(u64, Mono)>,
    not_before: Mono,
    renewed: Option<(u64, Mono)>,
    blind: Option<String>,
    generation: u64,
}

impl Lead {
    /// Nothing has been done yet.
    ///
    /// # Errors
    /// When what reads the power of the nodes cannot be made.
    pub(crate) fn new(mut parts: Parts, mut reconciler: Reconciler) -> Result<Self, TrustError> {
        let sleeper = parts.sleep.take().map(|sleep| {
            let board = PowerBoard::default();
            reconciler.follow_power(board.clone());
            Sleeper::new(sleep, board)
        });
        let settings = parts.live.in_force();
        let Parts { client, leadership, clock, .. } = &parts;
        let (writers, outcomes) =
            Writers::new(client, leadership, clock, settings.write_timeout, settings.writers);
        let (granters, granted) =
            Writers::new(client, leadership, clock, settings.write_timeout, settings.writers);
        let poller = Poller::new(&settings.power, &parts.queries, clock)?;
        let sensors = settings.facility.clone().map(|facility| Sensors::new(facility, &parts.queries));
        let sensors = sensors.transpose()?;
        let grid = settings
            .prometheus
            .clone()
            .map(|access| GridSignals::new(access, settings.signal_interval, &parts.queries));
        let grid = grid.transpose()?;
        let (evictions, evicted) = Evictions::new(client, leadership, clock, &parts.live);
        let now = parts.clock.mono();
        Ok(Self {
            reconciler,
            writers,
            outcomes,
            granters,
            granted,
            evictions,
            evicted,
            sleeper,
            poller,
            has_sensed: sensors.is_none(),
            sensors,
            grid,
            term: None,
            since: now,
            stirred: None,
            dirty: Some(now),
            last_pass: None,
            not_before: now,
            renewed: None,
            blind: None,
            generation: 0,
            waiting: parts.watches.clone(),
            parts,
        })
    }

    /// Runs until asked to stop. Jobs in progress then end by themselves.
    pub(crate) async fn run(mut self, stop: Stop) {
        loop {
            let wait = self.next().since(self.parts.clock.mono());
            // In this order nothing starves: there are no more outcomes than jobs sent, and no more readings than nodes
            // asked. Rows may change all the time, but they would delay only the timer, and the time is checked below
            // anyway.
            tokio::select! {
                biased;
                () = stop.requested() => return,
                Some(outcome) = self.granted.recv() => self.grant_ended(outcome),
                Some(outcome) = self.outcomes.recv() => self.ended(outcome),
                Some(ended) = self.evicted.recv() => {
                    self.reconciler.evicted(ended, self.term, self.parts.clock.mono());
                }
                Some(news) = power_news(&mut self.sleeper) => {
                    self.reconciler.power_news(news);
                    self.dirty.get_or_insert(self.parts.clock.mono());
                }
                Some(reads) = read(&mut self.poller) => self.heard(reads),
                Some(round) = sense(&mut self.sensors) => self.sensed(&round),
                Some(values) = signals(&mut self.grid) => self.heard_signals(values),
                news = self.parts.live.changed() => self.configured(&news),
                alive = self.waiting.changed() => {
                    if !alive && !stop.is_requested() {
                        tracing::error!("a watch has ended although nobody asked it to");
                        return;
                    }
                    self.stirred.get_or_insert(self.parts.clock.mono());
                }
                // A page of thousands of nodes comes after what the plan needs.
                Some(question) = self.parts.questions.recv() => self.explain(question),
                // It is always ready once the election has ended, so it comes late; the term is checked below anyway.
                _ = self.parts.leadership.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
            let now = self.parts.clock.mono();
            self.parts.heartbeat.beat(now);
            self.follow_term(now);
            if now >= self.due() {
                self.pass(now);
            }
            self.renew(now).await;
        }
    }

    fn settings(&self) -> &Settings {
        self.parts.live.in_force()
    }

    /// Takes over the settings of a changed file: the next pass decides by them, with the memory of the passes before, so
    /// that the guard holds what it held.
    fn configured(&mut self, news: &ConfigNews) {
        let now = self.parts.clock.mono();
        self.reconciler.configure(self.parts.live.in_force().clone());
        if self.term.is_some() {
            self.reconciler.say_config(news);
        }
        self.dirty.get_or_insert(now);
    }

    fn explain(&self, PlanQuestion { node, answer }: PlanQuestion) {
        let now = self.parts.clock.mono();
        let said = self.reconciler.explain(node.as_deref(), &self.parts.watches, now);
        // Whoever asked may have gone.
        let _ = answer.send(said);
    }

    fn look(&mut self) {
        let now = self.parts.clock.mono();
        self.stirred = None;
        let changes = self.reconciler.look(&mut self.parts.watches, now, self.parts.clock.wall());
        if !changes.is_empty() {
            self.dirty.get_or_insert(now);
        }
    }

    fn ended(&mut self, outcome: Outcome<(u64, Then)>) {
        let now = self.parts.clock.mono();
        self.reconciler.ended(outcome, now);
        // Several jobs often end together.
        while let Ok(outcome) = self.outcomes.try_recv() {
            self.reconciler.ended(outcome, now);
        }
        self.dirty.get_or_insert(now);
    }

    fn grant_ended(&mut self, outcome: Outcome<Ticket>) {
        let now = self.parts.clock.mono();
        self.reconciler.grant_ended(outcome, now);
        while let Ok(outcome) = self.granted.try_recv() {
            self.reconciler.grant_ended(outcome, now);
        }
        self.dirty.get_or_insert(now);
    }

    fn heard(&mut self, reads: Vec<Read>) {
        let now = self.parts.clock.mono();
        self.reconciler.heard(reads, stamp(now));
        self.dirty.get_or_insert(now);
    }

    fn sensed(&mut self, round: &[Sensed]) {
        let now = self.parts.clock.mono();
        self.has_sensed = true;
        if self.reconciler.sensed(round, stamp(now), self.parts.clock.wall()) {
            self.dirty.get_or_insert(now);
        }
    }

    fn heard_signals(&mut self, values: Vec<GridValue>) {
        let now = self.parts.clock.mono();
        self.reconciler.heard_signals(values, now, self.parts.clock.wall());
        self.dirty.get_or_insert(now);
    }

    /// Notices that a term has begun or ended.
    fn follow_term(&mut self, now: Mono) {
        let term = self.parts.leadership.term(now);
        if term == self.term {
            return;
        }
        self.term = term;
        self.reconciler.begin_term(term, now);
        (self.since, self.renewed, self.last_pass) = (now, None, None);
        if let Some(poller) = &self.poller {
            poller.follow(if term.is_some() { self.reconciler.followed() } else { Vec::new() });
        }
        if let Some(grid) = self.grid.as_ref().filter(|_| term.is_none()) {
            grid.follow(Vec::new());
        }
        if term.is_some() {
            self.look();
            self.dirty = Some(now);
            self.not_before = now;
        }
        self.parts.planned.store(false, Ordering::Relaxed);
    }

    /// When the next pass is due.
    fn due(&self) -> Mono {
        let regular = self
            .last_pass
            .map_or(self.since, |(_, at)| at.plus(self.settings().interval.min(self.settings().renew_plan)));
        let retry = self.next_try().map(|at| at.plus(TOGETHER));
        let changed = self.dirty.into_iter().chain(self.stirred).map(|since| since.plus(TOGETHER));
        let first = changed.chain(retry).fold(regular, Mono::min);
        first.max(self.not_before)
    }

    fn next_try(&self) -> Option<Mono> {
        self.reconciler.next_try(self.last_pass.map_or(self.since, |(_, at)| at))
    }

    /// Whether a pass is due although no row has changed.
    fn is_due_anyway(&self, now: Mono) -> bool {
        let every = self.settings().interval.min(self.settings().renew_plan);
        let regular = self.last_pass.is_none_or(|(_, at)| now >= at.plus(every));
        self.dirty.is_some() || regular || self.next_try().is_some_and(|at| now >= at)
    }

    /// When to wake up.
    fn next(&self) -> Mono {
        match self.term {
            Some(_) => self.due(),
            // A standby reads the rows too, but less often.
            None => match self.stirred {
                Some(since) => since.plus(DISTANCE_MAX).max(self.not_before),
                None => self.parts.clock.mono().plus(self.settings().interval),
            },
        }
    }

    fn pass(&mut self, now: Mono) {
        let Some(term) = self.term else {
            if self.stirred.is_some_and(|since| now >= since.plus(DISTANCE_MAX)) {
                self.look();
            }
            return;
        };
        let has_budget = self.settings().plan.budget.any();
        let blind = self.parts.watches.blind(now, has_budget).or_else(|| {
            let (watches, waited) = (&self.parts.watches, now.since(self.since));
            let kind = if !watches.hardware.is_synced() && waited < HARDWARE_PATIENCE {
                "NodeHardwares"
            } else if !watches.pods.is_synced() && waited < PODS_PATIENCE {
                "Pods"
            } else if !self.has_sensed && waited < facility::PATIENCE {
                "the building's sensors"
            } else {
                return None;
            };
            Some(format!("{kind} are not known yet"))
        });
        if blind != self.blind {
            match &blind {
                Some(why) => tracing::warn!("no pass is made: {why}"),
                None => tracing::info!("passes are made again"),
            }
            self.blind = blind;
        }
        if self.blind.is_some() {
            self.not_before = now.plus(Duration::from_millis(100));
            return;
        }
        let due_anyway = self.is_due_anyway(now);
        self.look();
        if !due_anyway && self.dirty.is_none() {
            // What has changed in the rows does not affect the plan.
            let took = self.parts.clock.mono().since(now);
            self.not_before = self.parts.clock.mono().plus((took * DISTANCE).min(DISTANCE_MAX));
            return;
        }
        self.dirty = None;
        // The time is read after the look: otherwise, what was heard in the look would be in the future.
        let passed = self.reconciler.pass(self.parts.clock.mono(), self.parts.clock.wall());
        let took = self.parts.clock.mono().since(now);
        self.parts.stats.passed(took);
        tracing::debug!(jobs = passed.jobs.len(), "pass {} took {}us", passed.number, took.as_micros());
        if !passed.jobs.is_empty() || !passed.grants.is_empty() {
            self.generation += 1;
        }
        if let Some(poller) = &self.poller {
            poller.follow(self.reconciler.followed());
        }
        if let Some(sensors) = &self.sensors {
            sensors.follow(self.reconciler.places());
        }
        if let Some(grid) = &self.grid {
            grid.follow(self.reconciler.signals());
        }
        for job in passed.grants {
            self.granters.send(job, term);
        }
        for job in passed.jobs {
            self.writers.send(job, term);
        }
        let cooldown = self.settings().rescheduling.cooldown;
        for order in passed.evictions {
            self.evictions.send(order, term, cooldown);
        }
        if let Some((sleeper, _)) = &self.sleeper {
            passed.sleeps.into_iter().for_each(|order| sleeper.send(order, term));
        }
        self.last_pass = Some((passed.number, now));
        self.not_before = self.parts.clock.mono().plus((took * DISTANCE).min(DISTANCE_MAX));
        self.parts.planned.store(true, Ordering::Relaxed);
    }

    /// Renews the plan's Lease after a complete pass.
    async fn renew(&mut self, now: Mono) {
        let (Some(_), Some((pass, _))) = (self.term, self.last_pass) else { return };
        let due =
            self.renewed.is_none_or(|(of, at)| of < pass && now.since(at) >= self.settings().renew_plan);
        if !due || self.blind.is_some() || !self.reconciler.is_complete(pass) {
            return;
        }
        let Parts { client, live, identity, clock, .. } = &self.parts;
        let settings = live.in_force();
        // At once tried again it would hold up the loop while the server is away.
        self.renewed = Some((pass, now));
        let timeout = settings.write_timeout.min(Duration::from_secs(2));
        let renewal = Renewal {
            namespace: &settings.namespace,
            holder: identity,
            generation: self.generation,
            classifies: settings.classify.is_some(),
        };
        if let Err(why) = lease::renew(client, renewal, clock.wall(), timeout).await {
            let why = match &why {
                Trouble::Gone => format!("the namespace {} does not exist", settings.namespace),
                Trouble::Owned(_)
                | Trouble::Stale(_)
                | Trouble::Refused(_)
                | Trouble::Away(..)
                | Trouble::NotLeading => why.words().to_owned(),
            };
            tracing::warn!("the Lease {} is not renewed: {why}", joulie_api::labels::PLAN_LEASE);
        }
    }
}

/// The next values of the building's sensors; waits forever if there are none.
async fn sense(sensors: &mut Option<Sensors>) -> Option<Vec<Sensed>> {
    match sensors {
        Some(sensors) => sensors.next().await,
        None => std::future::pending().await,
    }
}

/// The next values of signals; waits forever if nobody is asked.
async fn signals(grid: &mut Option<GridSignals>) -> Option<Vec<GridValue>> {
    match grid {
        Some(grid) => grid.next().await,
        None => std::future::pending().await,
    }
}

/// What the controllers of nodes say next; waits forever if there are none.
async fn power_news(
    sleeper: &mut Option<(Sleeper, mpsc::UnboundedReceiver<SleepNews>)>,
) -> Option<SleepNews> {
    match sleeper {
        Some((_, news)) => news.recv().await,
        None => std::future::pending().await,
    }
}

/// The next readings of the poller; waits forever if there is none.
async fn read(poller: &mut Option<Poller>) -> Option<Vec<Read>> {
    match poller {
        Some(poller) => poller.next().await,
        None => std::future::pending().await,
    }
}
