//! The extender's metrics. The names that upstream's dashboards use are kept, with closed labels.
//!
//! A request increments a few atomics and does nothing else. The series of each node are computed at a scrape, from
//! the snapshot, for a pod like the last one of each class: so a removed node has no series, and nothing is written
//! per node and request.

mod latency;
mod nodes;

pub(crate) use nodes::ALL as OF_NODES;

use crate::assumed_ledger::Round;
use crate::decide::{Asked, Outcome};
use crate::expected::{BoundCounts, Forgotten};
use crate::settings::PlacementSettings;
use crate::shortlist::ListAnswer;
use crate::snapshot_builder::Shown;
use arc_swap::ArcSwapOption;
use host_kit::clock::HostClock;
use host_kit::metrics::MetricsRegistry;
use host_kit::{closed_label, label_set};
use joulie_api::extender::PodDeferral;
use joulie_api::workload_profile::{Distrust, TrustedProfiles};
use joulie_core::placement::assumed::Swept;
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::filter::Rejection;
use latency::Latency;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use std::time::Duration;

closed_label! {
    /// The two kinds of request.
    pub(crate) enum Verb {
        Filter = "filter",
        Prioritize = "prioritize",
    }
}

closed_label! {
    /// How a request to bind a pod ended, and what became of its cards.
    pub(crate) enum Bound {
        /// The pod is bound.
        Done = "bound",
        /// The body is no valid request.
        Malformed = "malformed",
        /// The node has no cards for it any more.
        NoCard = "no_card",
        /// Others were faster again and again.
        Raced = "raced",
        /// The API server refused something, or did not answer.
        Failed = "failed",
        /// Cards that were taken for it were given back.
        GivenBack = "given_back",
        /// They could not be given back, and are taken until that ends by time.
        Kept = "kept",
    }
}

closed_label! {
    /// A pod's class, or that its annotation has another value.
    pub(crate) enum ClassLabel {
        Performance = "performance",
        Standard = "standard",
        Other = "other",
    }
}

closed_label! {
    /// Why a request was not answered.
    pub(crate) enum Refusal {
        /// The body is no valid request.
        Malformed = "malformed",
        /// The extender has not read the cluster yet.
        NotSynced = "not_synced",
    }
}

closed_label! {
    /// What became of a sampled request.
    pub(crate) enum Logged {
        /// It is in the log.
        Written = "written",
        /// Too many waited to be written.
        Dropped = "dropped",
        /// It was too long.
        TooLong = "too_long",
        /// The log is as long as it may be.
        Full = "full",
        /// It could not be written.
        Failed = "failed",
    }
}

closed_label! {
    /// A kind whose objects may be unreadable. Nodes and Leases have no field that could be; an unreadable pod is
    /// counted where it is received (`joulie_reflector_malformed`).
    pub(crate) enum Kind {
        /// NodeTwin.
        Twin = "NodeTwin",
        /// NodeHardware.
        Hardware = "NodeHardware",
        /// WorkloadProfile.
        Profile = "WorkloadProfile",
        /// GPU.
        Gpu = "GPU",
        /// ResourceSlice.
        Slice = "ResourceSlice",
        /// ResourceClaim.
        Claim = "ResourceClaim",
        /// PowerBudget.
        Budget = "PowerBudget",
    }
}

closed_label! {
    /// Whether the profile of a workload is trusted, and if not, why.
    pub(crate) enum Trust {
        /// It is.
        Trusted = "trusted",
        /// It says no confidence.
        Unsaid = "unsaid",
        /// A value of it makes no sense.
        Malformed = "malformed",
        /// Its metrics are not fresh.
        Stale = "stale",
        /// Its confidence is too low.
        Doubtful = "doubtful",
        /// Another profile says something else of the same workload.
        Contradicted = "contradicted",
    }
}

impl Trust {
    const fn of(why: Distrust) -> Self {
        match why {
            Distrust::Unsaid => Self::Unsaid,
            Distrust::Malformed => Self::Malformed,
            Distrust::Stale => Self::Stale,
            Distrust::Doubtful => Self::Doubtful,
            Distrust::Contradicted => Self::Contradicted,
        }
    }
}

closed_label! {
    /// How the expectation of a pod on a node ended.
    pub(crate) enum Fate {
        /// The pod was seen bound to that node.
        Met = "met",
        /// The pod was seen bound to another node, or is gone.
        Elsewhere = "elsewhere",
        /// No binding was seen in time.
        Expired = "expired",
        /// It was dropped because the list was full.
        Displaced = "displaced",
        /// No pod of that UID was seen to wait for a node, so it never counted.
        Unknown = "unknown",
    }
}

impl ClassLabel {
    pub(crate) fn of(asked: &Asked) -> Self {
        match (asked.recognised, asked.class) {
            (false, _) => Self::Other,
            (true, WorkloadClass::Performance) => Self::Performance,
            (true, WorkloadClass::Standard) => Self::Standard,
        }
    }

    fn place(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }
}

label_set! {
    pub(crate) struct ByClass {
        pub(crate) workload_class: ClassLabel,
    }

    struct ByKind {
        kind: Kind,
    }

    struct ByTrust {
        trust: Trust,
    }

    struct ByReason {
        reason: &'static str,
    }

    struct ByBound {
        outcome: Bound,
    }

    struct ByFate {
        fate: Fate,
    }

    struct ByLogged {
        logged: Logged,
    }

    struct ByList {
        list: ListAnswer,
    }

    struct ByRefusal {
        verb: Verb,
        reason: Refusal,
    }
}

/// The extender's counters. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<All>);

struct All {
    /// By verb and class. These are handles, so that a request looks up no series.
    requests: [[Counter; 3]; 2],
    latency: [[Latency; 3]; 2],
    rejected: [Counter; Rejection::KINDS.len()],
    refused: [[Counter; 2]; 2],
    unknown: Counter,
    rebuilds: Counter,
    assumed: Counter,
    dropped: Counter,
    shown: Counter,
    never_ran: Counter,
    unreadable: [Gauge; 7],
    profiles: Family<ByTrust, Gauge>,
    binds: Family<ByBound, Counter>,
    /// In the order of [`Fate::ALL`].
    fates: [Counter; 5],
    logged: Family<ByLogged, Counter>,
    /// In the order of [`ListAnswer::ALL`].
    lists: Box<[Counter]>,
    /// Of pods whose deadline is no time.
    bad_deadlines: Counter,
    /// A pod like the last one of each class.
    last: [ArcSwapOption<Asked>; 3],
}

impl Metrics {
    /// Registers the counters.
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let requests = [
            by_class(registry, "joulie_scheduler_filter_requests", "Filter requests answered"),
            by_class(registry, "joulie_scheduler_prioritize_requests", "Prioritize requests answered"),
        ];
        let rejected = Family::<ByReason, Counter>::default();
        registry.register("joulie_scheduler_rejections", "Candidates rejected", rejected.clone());
        let refused = Family::<ByRefusal, Counter>::default();
        registry.register("joulie_scheduler_refused", "Requests not answered", refused.clone());
        let unreadable = Family::<ByKind, Gauge>::default();
        registry.register(
            "joulie_scheduler_unreadable_objects",
            "Objects that are there and cannot be read",
            unreadable.clone(),
        );
        let profiles = Family::<ByTrust, Gauge>::default();
        registry.register(
            "joulie_scheduler_workload_profiles",
            "Workloads that have a WorkloadProfile, by whether it is trusted",
            profiles.clone(),
        );
        let binds = Family::<ByBound, Counter>::default();
        registry.register(
            "joulie_scheduler_binds",
            "Requests to bind a pod, and what became of its cards",
            binds.clone(),
        );
        let fates = Family::<ByFate, Counter>::default();
        registry.register(
            "joulie_scheduler_expectations",
            "Pods that were expected where they scored best",
            fates.clone(),
        );
        let logged = Family::<ByLogged, Counter>::default();
        registry.register(
            "joulie_scheduler_logged_requests",
            "Requests that were sampled for REQUEST_LOG",
            logged.clone(),
        );
        let lists = Family::<ByList, Counter>::default();
        registry.register(
            "joulie_scheduler_shortlists",
            "Filter requests with more candidates than a shortlist has",
            lists.clone(),
        );
        let counter = |registry: &mut MetricsRegistry, name: &'static str, help: &'static str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let all = Arc::new(All {
            requests,
            latency: Default::default(),
            rejected: Rejection::KINDS.map(|reason| rejected.get_or_create(&ByReason { reason }).clone()),
            refused: [Verb::Filter, Verb::Prioritize].map(|verb| {
                [Refusal::Malformed, Refusal::NotSynced]
                    .map(|reason| refused.get_or_create(&ByRefusal { verb, reason }).clone())
            }),
            unknown: counter(registry, "joulie_scheduler_unknown_candidates", "Candidates scored as unknown"),
            rebuilds: counter(registry, "joulie_scheduler_snapshots", "Pictures of all nodes worked out"),
            assumed: counter(registry, "joulie_scheduler_assumed_pods", "Pods whose watts were assumed"),
            dropped: counter(
                registry,
                "joulie_scheduler_assumed_dropped",
                "Pods that did not count for want of room",
            ),
            shown: counter(registry, "joulie_scheduler_assumed_shown", "Assumed pods that a sample showed"),
            never_ran: counter(
                registry,
                "joulie_scheduler_assumed_never_ran",
                "Assumed pods that did not run in time",
            ),
            unreadable: [
                Kind::Twin,
                Kind::Hardware,
                Kind::Profile,
                Kind::Gpu,
                Kind::Slice,
                Kind::Claim,
                Kind::Budget,
            ]
            .map(|kind| unreadable.get_or_create(&ByKind { kind }).clone()),
            profiles,
            binds,
            fates: [Fate::Met, Fate::Elsewhere, Fate::Expired, Fate::Displaced, Fate::Unknown]
                .map(|fate| fates.get_or_create(&ByFate { fate }).clone()),
            logged,
            bad_deadlines: counter(
                registry,
                "joulie_scheduler_malformed_deadlines",
                "Filter requests for pods whose joulie.io/deferrable-until is no time, which counts as none",
            ),
            lists: ListAnswer::ALL
                .iter()
                .map(|&list| lists.get_or_create(&ByList { list }).clone())
                .collect(),
            last: Default::default(),
        });
        Self(all)
    }

    /// Registers what is computed at a scrape.
    pub(crate) fn register_nodes(
        &self,
        registry: &mut MetricsRegistry,
        shown: Shown,
        placement: PlacementSettings,
        node_series: bool,
        clock: Arc<dyn HostClock>,
    ) {
        let scrape = nodes::Scrape { metrics: self.clone(), shown, placement, node_series, clock };
        registry.register_collector(Box::new(scrape), &nodes::ALL);
    }

    /// Counts a request that was answered.
    pub(crate) fn answered(&self, verb: Verb, outcome: &Outcome, took: Duration) {
        let (verb_at, class) = (place(verb), ClassLabel::of(&outcome.asked).place());
        if let Some(counter) = self.0.requests.get(verb_at).and_then(|all| all.get(class)) {
            counter.inc();
        }
        if let Some(latency) = self.0.latency.get(verb_at).and_then(|all| all.get(class)) {
            latency.observe(took);
        }
        for (counter, &count) in self.0.rejected.iter().zip(&outcome.rejected) {
            counter.inc_by(u64::from(count));
        }
        let list = outcome.list.and_then(|list| ListAnswer::ALL.iter().position(|one| *one == list));
        if let Some(counter) = list.and_then(|at| self.0.lists.get(at)) {
            counter.inc();
        }
        self.0.unknown.inc_by(u64::from(outcome.unknown));
        let is_bad = verb == Verb::Filter && outcome.asked.deferral == PodDeferral::Malformed;
        self.0.bad_deadlines.inc_by(u64::from(is_bad));
        if let Some(last) = self.0.last.get(class).filter(|_| verb == Verb::Prioritize) {
            // A burst of equal pods writes once.
            let same = last.load().as_deref().is_some_and(|last| *last == outcome.asked);
            if !same {
                last.store(Some(Arc::new(outcome.asked)));
            }
        }
    }

    /// Counts how a bind ended.
    pub(crate) fn bound(&self, outcome: Bound) {
        self.0.binds.get_or_create(&ByBound { outcome }).inc();
    }

    /// Counts expectations that were dropped for new ones.
    pub(crate) fn displaced(&self, forgotten: Forgotten) {
        self.ended(Fate::Displaced, forgotten.known);
        self.ended(Fate::Unknown, forgotten.unknown);
    }

    /// Counts pods that were seen bound.
    pub(crate) fn settled(&self, settled: BoundCounts) {
        self.ended(Fate::Met, settled.met);
        self.ended(Fate::Elsewhere, settled.elsewhere);
    }

    /// Counts expectations that expired.
    pub(crate) fn expired(&self, forgotten: Forgotten) {
        self.ended(Fate::Expired, forgotten.known);
        self.ended(Fate::Unknown, forgotten.unknown);
    }

    fn ended(&self, fate: Fate, pods: u64) {
        let at = Fate::ALL.iter().position(|one| *one == fate);
        if let Some(counter) = at.and_then(|at| self.0.fates.get(at)) {
            counter.inc_by(pods);
        }
    }

    /// Counts a request that was not answered.
    pub(crate) fn refused(&self, verb: Verb, reason: Refusal) {
        let at = usize::from(reason == Refusal::NotSynced);
        if let Some(counter) = self.0.refused.get(place(verb)).and_then(|all| all.get(at)) {
            counter.inc();
        }
    }

    /// Sets how many objects of a kind exist and cannot be read. The log names them.
    pub(crate) fn unreadable(&self, kind: Kind, count: usize) {
        let at = Kind::ALL.iter().position(|one| *one == kind);
        if let Some(gauge) = at.and_then(|at| self.0.unreadable.get(at)) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Sets how many workloads have a profile that is trusted, or is not.
    pub(crate) fn profiles(&self, read: &TrustedProfiles) {
        let untrusted = Distrust::ALL.map(|why| (Trust::of(why), read.distrusted(why)));
        for (trust, count) in untrusted.into_iter().chain([(Trust::Trusted, read.len())]) {
            let gauge = self.0.profiles.get_or_create(&ByTrust { trust });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts a request that was sampled for the log.
    pub(crate) fn logged(&self, logged: Logged) {
        self.0.logged.get_or_create(&ByLogged { logged }).inc();
    }

    pub(crate) fn rebuilt(&self) {
        self.0.rebuilds.inc();
    }

    pub(crate) fn assumed(&self, round: &Round) {
        self.0.assumed.inc_by(round.counted);
        self.0.dropped.inc_by(round.dropped);
    }

    pub(crate) fn swept(&self, swept: Swept) {
        self.0.shown.inc_by(u64::from(swept.shown));
        self.0.never_ran.inc_by(u64::from(swept.never_ran));
    }
}

fn place(verb: Verb) -> usize {
    usize::from(verb == Verb::Prioritize)
}

fn by_class(registry: &mut MetricsRegistry, name: &'static str, help: &'static str) -> [Counter; 3] {
    let family = Family::<ByClass, Counter>::default();
    registry.register(name, help, family.clone());
    [ClassLabel::Performance, ClassLabel::Standard, ClassLabel::Other]
        .map(|workload_class| family.get_or_create(&ByClass { workload_class }).clone())
}
