//! Keeps the snapshot current: waits for changes from the watches, computes a new snapshot, and publishes it to
//! requests.
//!
//! It is the only writer. While the API server is away and no changes arrive, the last snapshot stays in use, and its
//! twins become stale by the clock as usual.

use crate::assumed_ledger::{AssumedLedger, Round, Scales};
use crate::budgets::BudgetRow;
use crate::cores::FreeCores;
use crate::dates::SampleDates;
use crate::dra::DraWatch;
use crate::evictable::EvictablesBuilder;
use crate::expected::Expected;
use crate::gpus::{GpuRow, Gpus};
use crate::index::{Index, Registry};
use crate::metrics::{Kind, Metrics};
use crate::node_store::NodeStore;
use crate::rows::{EcoLabel, HardwareRow, LeaseRow, PodRow, ProfileRow, TwinRow};
use crate::seen::SeenVersions;
use crate::settings::Settings;
use crate::shortlist::{OtherScoresBuilder, Remembered};
use crate::snapshot::{Fleet, Node, Rules, Snapshot};
use arc_swap::ArcSwap;
use host_kit::clock::{HostClock, Mono, micros};
use host_kit::reflect::{CachedRow, Feed, HEARD_WITHIN, ObjectKey, ReflectEvent, Row, Rows};
use host_kit::shutdown::Stop;
use joulie_api::workload_profile::{TrustRule, TrustedProfiles};
use joulie_core::placement::assumed::NodeKey;
use joulie_core::placement::freshness::{Now, PlanLease, UnixTime};
use joulie_core::placement::score::Formula;
use power_units::{Stamp, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Twins and hardware are applied at most this often: 5,000 nodes take some milliseconds. Bindings are applied at
/// once.
const FLEET_EVERY: Duration = Duration::from_millis(50);
/// The longest time between two rounds, which drop pods that a sample includes and mark old twins as stale.
const ROUND_EVERY: Duration = Duration::from_secs(1);

/// How long the watch of the profiles of workloads may be silent before none of them counts. A server that answers is
/// heard sooner.
const PROFILES_SILENT: Duration = Duration::from_secs(150);
const _: () = assert!(PROFILES_SILENT.as_secs() > HEARD_WITHIN.as_secs());

/// How often it is looked whether a card that a bind took is free again by time.
const TAKEN_EVERY: Duration = Duration::from_secs(10);

/// The watched objects.
pub(crate) struct Watched {
    pub(crate) node_store: NodeStore,
    pub(crate) lease: Rows<LeaseRow>,
    /// WorkloadProfiles, if they are used.
    pub(crate) profiles: Option<Rows<ProfileRow>>,
    pub(crate) pods: Feed<PodRow>,
    /// What the shortlist looks at.
    pub(crate) other_scores: OtherScoresBuilder,
    /// The cores that free GPUs need.
    pub(crate) cores: FreeCores,
    /// ResourceSlices and ResourceClaims, if they are read.
    pub(crate) dra: Option<DraWatch>,
    /// Pods with GPUs, and the budgets of disruptions.
    pub(crate) evictables: EvictablesBuilder,
}

impl Watched {
    /// Up to which versions objects were taken in.
    fn seen(&self) -> SeenVersions {
        let NodeStore { twins, hardware, labels, gpus, budgets, .. } = &self.node_store;
        SeenVersions::of([
            (TwinRow::KIND, twins.version()),
            (HardwareRow::KIND, hardware.version()),
            (EcoLabel::KIND, labels.version()),
            (GpuRow::KIND, gpus.as_ref().and_then(Rows::version)),
            (BudgetRow::KIND, budgets.as_ref().and_then(Rows::version)),
            (ProfileRow::KIND, self.profiles.as_ref().and_then(Rows::version)),
            (PodRow::KIND, self.pods.version()),
        ])
    }
}

/// The published snapshot.
pub(crate) type Shown = Arc<ArcSwap<Snapshot>>;

/// The task that builds the snapshot.
pub(crate) struct SnapshotBuilder {
    watched: Watched,
    shown: Shown,
    expected: Expected,
    settings: Settings,
    metrics: Metrics,
    clock: Arc<dyn HostClock>,
    registry: Registry,
    index: (u64, Arc<Index>),
    ledger: AssumedLedger,
    lease: PlanLease,
    dates: SampleDates,
    fleet: Arc<Fleet>,
    workloads: Arc<TrustedProfiles>,
    /// Why no profile of a workload counts; `None` while they count.
    unprofiled: Option<Unprofiled>,
    remembered: Arc<Remembered>,
    /// The GPUs, the revision of the registry by whose numbers they are listed, and when that was.
    gpus: (Arc<Gpus>, u64, Mono),
}

/// Why the builder woke up.
#[derive(Debug)]
enum Word {
    Fleet,
    Pod(ReflectEvent<PodRow>),
    Time,
    Stop,
}

/// The most pod events that are applied before a new snapshot is published.
const PODS_AT_ONCE: usize = 256;

impl SnapshotBuilder {
    pub(crate) fn new(
        watched: Watched,
        shown: Shown,
        expected: Expected,
        settings: &Settings,
        metrics: Metrics,
        clock: Arc<dyn HostClock>,
    ) -> Self {
        let coefficients = settings.placement.scoring.coefficients;
        Self {
            watched,
            shown,
            expected,
            settings: settings.clone(),
            metrics,
            clock,
            registry: Registry::default(),
            index: (0, Arc::new(Index::default())),
            ledger: AssumedLedger::new(settings.assumed, settings.assumed_pods_max, coefficients),
            lease: PlanLease::Unseen,
            dates: SampleDates::default(),
            fleet: Arc::new(Fleet::default()),
            workloads: Arc::default(),
            unprofiled: Some(Unprofiled::Unread),
            remembered: Arc::new(match settings.placement.shortlist.is_on() {
                true => Remembered::new(),
                false => Remembered::default(),
            }),
            gpus: (Arc::default(), 0, Mono::START),
        }
    }

    /// Runs until a stop is requested.
    pub(crate) async fn run(mut self, stop: Stop) {
        let mut fleet_at = self.clock.mono();
        self.renew_fleet();
        let mut is_due = false;
        loop {
            let now = self.clock.mono();
            let rest = FLEET_EVERY.saturating_sub(now.since(fleet_at));
            if is_due && rest.is_zero() {
                (is_due, fleet_at) = (false, now);
                self.renew_fleet();
            }
            let pause = if is_due { rest } else { ROUND_EVERY.saturating_sub(now.since(fleet_at)) };
            match self.wait(pause, !is_due, &stop).await {
                Word::Stop => return,
                Word::Fleet | Word::Time => is_due = true,
                Word::Pod(event) => self.follow_pods(event),
            }
        }
    }

    async fn wait(&mut self, pause: Duration, listen: bool, stop: &Stop) -> Word {
        // Pods are weighed by their nodes' hardware, so pod events wait until the nodes were read.
        let weighs = self.fleet.synced;
        let Watched {
            node_store: NodeStore { twins, hardware, labels, gpus, budgets, .. },
            lease,
            profiles,
            pods,
            dra,
            ..
        } = &mut self.watched;
        // The order matters. After a change of the nodes, further node events are ignored until it was applied, so
        // that pods get their turn. Pods may arrive without a pause, so all other events take precedence over them.
        tokio::select! {
            biased;
            () = stop.requested() => Word::Stop,
            true = twins.changed(), if listen => Word::Fleet,
            true = hardware.changed(), if listen => Word::Fleet,
            true = labels.changed(), if listen => Word::Fleet,
            true = lease.changed(), if listen => Word::Fleet,
            true = changed(profiles), if listen => Word::Fleet,
            true = changed(gpus), if listen => Word::Fleet,
            true = claims_changed(dra), if listen => Word::Fleet,
            true = changed(budgets), if listen => Word::Fleet,
            () = tokio::time::sleep(pause) => Word::Time,
            Some(event) = pods.next(), if weighs => Word::Pod(event),
        }
    }

    fn now(&self) -> Now {
        let own = Stamp::new(micros(self.clock.mono().since(host_kit::clock::Mono::START)));
        Now { wall: UnixTime::from_micros(self.clock.wall().as_microsecond()), own }
    }

    fn renew_fleet(&mut self) {
        let now = self.now();
        let renewed = self.watched.lease.with(|rows| rows.values().find_map(|held| held.row.renewed));
        if let Some(renewed) = renewed {
            self.lease.observe(renewed, now.own);
        }
        self.read_profiles();
        let synced =
            self.watched.node_store.is_synced() && self.watched.dra.as_ref().is_none_or(DraWatch::is_synced);
        let (mut nodes, mut gpus) = (self.nodes(), self.gpus(now.wall));
        // GPUs of a node without a number, such as the first ones of a node of which nothing else is known: it gets one now,
        // because answers will say that they know of these GPUs.
        if gpus.has_strangers {
            (nodes, gpus) = (self.nodes(), self.gpus(now.wall));
        }
        if self.index.0 != self.registry.revision() {
            self.index = (self.registry.revision(), Arc::new(Index::of(&self.registry)));
        }
        self.watched.other_scores.renew(&self.registry);
        self.watched.evictables.renew();
        self.dates.bound(&mut nodes, now.wall);
        let scoring = &self.settings.placement.scoring;
        let (profile_key, freshness) = (&self.settings.profile_key, self.settings.freshness);
        let rules = Rules { scoring, profile_key, freshness, lease: self.lease, now };
        let budgets = self.watched.node_store.grantable(rules.plans());
        let fleet = Fleet::with((budgets, gpus), nodes, self.index.1.clone(), &rules, synced);
        self.watched.cores.renew(&self.registry, &fleet.gpus);
        self.fleet = Arc::new(fleet);
        self.metrics.unreadable(Kind::Twin, self.watched.node_store.twins.malformed().len());
        self.metrics.unreadable(Kind::Hardware, self.watched.node_store.hardware.malformed().len());
        if let Some(budgets) = &self.watched.node_store.budgets {
            self.metrics.unreadable(Kind::Budget, budgets.malformed().len());
        }
        let scales = Scales { registry: &self.registry, fleet: &self.fleet, now: now.wall };
        let mut round = Round::default();
        self.ledger.weigh(scales, &mut round);
        let swept = self.ledger.sweep(&self.fleet, now.wall);
        self.metrics.swept(swept);
        self.metrics.rebuilt();
        self.show(&round);
        self.metrics.expired(self.expected.sweep(self.clock.mono()));
    }

    /// The GPUs as they are now.
    fn gpus(&mut self, now: UnixTime) -> Arc<Gpus> {
        let Self { watched, registry, gpus: (gpus, revision, at), clock, metrics, .. } = self;
        let Some(rows) = &mut watched.node_store.gpus else { return gpus.clone() };
        let claimed = watched.dra.as_mut().and_then(DraWatch::news).map(Arc::new);
        if let Some(dra) = &watched.dra {
            let [slices, claims] = dra.malformed();
            metrics.unreadable(Kind::Slice, slices);
            metrics.unreadable(Kind::Claim, claims);
        }
        let changed = rows.news(|_| ()).is_some() || claimed.is_some();
        // What a bind took ends by time.
        let is_old = gpus.has_taken && clock.mono().since(*at) >= TAKEN_EVERY;
        if changed || is_old || *revision != registry.revision() {
            let claimed = claimed.unwrap_or_else(|| gpus.claimed().clone());
            *gpus = Arc::new(rows.catch_up(|rows| Gpus::of(rows.values(), registry, claimed, now)));
            (*revision, *at) = (registry.revision(), clock.mono());
            metrics.unreadable(Kind::Gpu, rows.malformed().len());
            if gpus.has_strangers {
                watched.node_store.forget();
            }
        }
        gpus.clone()
    }

    /// Takes in changed profiles of workloads. Of these, one half of what is known is better than none.
    fn read_profiles(&mut self) {
        let (Some(rule), Some(rows)) = (self.settings.trust, &mut self.watched.profiles) else { return };
        let silence = rows.silence(self.clock.mono());
        let is_off = self.watched.lease.with(|rows| rows.values().any(|held| held.row.no_classifier));
        let why = match silence {
            Some(silence) if silence > PROFILES_SILENT => Some(Unprofiled::Silent),
            Some(_) | None => is_off.then_some(Unprofiled::Off),
        };
        let was = std::mem::replace(&mut self.unprofiled, why);
        let read = match (was, why) {
            (_, Some(why)) if was != Some(why) => {
                tracing::info!("no WorkloadProfile counts: {}", why.words());
                Some(TrustedProfiles::default())
            }
            (_, Some(_)) => None,
            (Some(_), None) => Some(rows.catch_up(|rows| trusted(rows, rule))),
            (None, None) => rows.news(|news| trusted(news.rows, rule)),
        };
        if let Some(read) = read {
            self.metrics.profiles(&read);
            self.workloads = Arc::new(read);
        }
        self.metrics.unreadable(Kind::Profile, rows.malformed().len());
    }

    /// All data of every node, by number.
    fn nodes(&mut self) -> Box<[Node]> {
        let Self { watched, registry, ledger, expected, fleet, .. } = self;
        if let Some(nodes) = watched.node_store.amended(registry, &fleet.nodes) {
            return nodes;
        }
        let sums = ledger.sums(registry.len());
        let is_assumed = |NodeKey(number)| {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            sums.get(at).is_some_and(|watts| *watts != Watts::ZERO)
        };
        let (nodes, gone) = watched.node_store.read(registry, is_assumed);
        gone.iter().for_each(|number| ledger.node_gone(*number));
        expected.nodes_gone(&gone);
        nodes
    }

    /// Applies a pod event and those that are ready already.
    fn follow_pods(&mut self, first: ReflectEvent<PodRow>) {
        let now = self.now().wall;
        let Self { watched, registry, ledger, fleet, .. } = self;
        let scales = Scales { registry, fleet, now };
        let (mut round, mut next) = (Round::default(), Some(first));
        for _ in 0..PODS_AT_ONCE {
            let Some(event) = next else { break };
            watched.other_scores.follow(&event);
            watched.cores.follow(&event);
            watched.evictables.follow(&event);
            ledger.follow(event, scales, &mut round);
            next = watched.pods.ready();
        }
        if let Some(event) = next {
            watched.other_scores.follow(&event);
            watched.cores.follow(&event);
            watched.evictables.follow(&event);
            ledger.follow(event, scales, &mut round);
        }
        self.show(&round);
    }

    /// Publishes the current state.
    fn show(&mut self, round: &Round) {
        let numbers = self.registry.len();
        let assumed = self.ledger.sums(numbers);
        let left = self.fleet.left(&assumed);
        let (cores, placement) = (&self.watched.cores, &self.settings.placement);
        let snapshot = Arc::new(Snapshot {
            fleet: self.fleet.clone(),
            gpu_room: cores.room(numbers),
            loads: if placement.counts_loads() { cores.loads(numbers) } else { Box::default() },
            consolidated: match placement.scoring.formula {
                Formula::Consolidate => cores.consolidated(&self.fleet, &left, &assumed),
                Formula::Headroom | Formula::Facility => Box::default(),
            },
            left,
            assumed,
            assumed_pods: self.ledger.pods(),
            waiting_pods: self.ledger.waiting(),
            queue: self.ledger.queue(),
            workloads: self.workloads.clone(),
            other_scores: self.watched.other_scores.shown(),
            remembered: self.remembered.clone(),
            evictables: self.watched.evictables.shown(),
            seen: self.watched.seen(),
            at: self.clock.mono(),
        });
        self.shown.store(snapshot.clone());
        round.bound.keys().for_each(|pod| self.remembered.forget(*pod));
        self.metrics.assumed(round);
        // After the snapshot is published: an answer that is given in between is found by the next round at the
        // latest.
        self.metrics.displaced(self.expected.tell(|pod, node| snapshot.adds(pod, node)));
        // After the snapshot is published: a bound pod counts in the new snapshot, and must be counted somewhere
        // until then.
        self.metrics.settled(self.expected.settle(&round.bound));
    }
}

/// Why no profile of a workload counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unprofiled {
    /// They were not looked at yet.
    Unread,
    /// Their watch has said nothing for too long.
    Silent,
    /// The operator does not classify workloads, so that nobody maintains them.
    Off,
}

impl Unprofiled {
    const fn words(self) -> &'static str {
        match self {
            Self::Unread => "they were not read yet",
            Self::Silent => "their watch is silent",
            Self::Off => "the operator does not classify workloads",
        }
    }
}

/// What the profiles that are trusted say.
pub(crate) fn trusted(rows: &BTreeMap<ObjectKey, CachedRow<ProfileRow>>, rule: TrustRule) -> TrustedProfiles {
    TrustedProfiles::of(rows.values().filter_map(|held| {
        let workload = held.row.workload.as_ref()?.each_ref().map(String::as_str);
        Some((workload, rule.read(&held.row.status)))
    }))
}

/// Waits until a slice or a claim has changed; forever where they are not read.
async fn claims_changed(dra: &mut Option<DraWatch>) -> bool {
    match dra {
        Some(dra) => dra.changed().await,
        None => std::future::pending().await,
    }
}

/// Waits until a row has changed; forever where there are none.
async fn changed<R: Row>(rows: &mut Option<Rows<R>>) -> bool {
    match rows {
        Some(rows) => rows.changed().await,
        None => std::future::pending().await,
    }
}
