//! Starts the operator: ports, watches, election, main loop.

use crate::classify::{Classifier, ClassifyParts, ClassifyStats};
use crate::gpu_repair::{GpuRepairStats, GpuRepairs};
use crate::lead::{Lead, Parts};
use crate::queries::Queries;
use crate::reconciler::Reconciler;
use crate::routes;
use crate::settings::{Settings, UiMode};
use crate::site::{SILENCE_MAX, Watches};
use crate::sleep::SleepParts;
use crate::stats::Stats;
use host_kit::clock::HostClock;
use host_kit::config::ConfigMetrics;
use host_kit::events::{self, Events, Posts};
use host_kit::health::{CheckResult, Health, Heartbeat};
use host_kit::http_client::Carrier;
use host_kit::leader::{self, Candidate, Elections, LeaseName, elect};
use host_kit::metrics::{BuildInfo, MetricDescription, MetricsBuilder, MetricsRegistry};
use host_kit::ops::Ops;
use host_kit::program::Context;
use host_kit::prometheus::Prometheus;
use host_kit::reflect::{Reflections, Row, Rows, WatchSource, reflect};
use host_kit::server::{
    Certificates, Debug, Drain, Guard, HttpServer, Port, Scrapers, ServerLimits, ServerMetrics,
    ServerTlsError,
};
use host_kit::shutdown::{Stop, Tasks};
use joulie_api::labels::{LEADER_LEASE, PLAN_LEASE};
use kube::Client;
use page::explain::UiExplainer;
use page::hub::UiHub;
use page::observe::{UiObserver, UiSource};
use page::serve::Ui;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What was started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// Where metrics, health and debugging are served.
    pub metrics: SocketAddr,
}

/// Why the operator cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The port cannot be opened.
    Listen(std::io::Error),
    /// The certificate of the port cannot be used.
    Tls(ServerTlsError),
    /// Settings that contradict each other, or a defect of the program.
    Settings(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => write!(f, "METRICS_ADDR: {error}"),
            Self::Tls(error) => error.fmt(f),
            Self::Settings(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// The program, for metrics and `--version`.
pub const BUILD: BuildInfo = BuildInfo::of("operator", env!("CARGO_PKG_VERSION"));

/// The loop completes a round at least once per reconcile interval; this is added before it counts as hung.
const PULSE: Duration = Duration::from_secs(120);

/// A client that reads metrics while the program ends has this long to finish.
const DRAIN: Duration = Duration::from_secs(2);

/// The metrics of the program's parts.
struct Counted {
    stats: Stats,
    queries: Queries,
    classify: ClassifyStats,
    gpu_repair: GpuRepairStats,
    elections: Elections,
    reflections: Reflections,
    posts: Posts,
    servers: ServerMetrics,
    config: ConfigMetrics,
}

impl Counted {
    fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            stats: Stats::register(registry),
            queries: Queries::register(registry),
            classify: ClassifyStats::register(registry),
            gpu_repair: GpuRepairStats::register(registry),
            elections: Elections::register(registry),
            reflections: Reflections::register(registry),
            posts: Posts::register(registry),
            servers: ServerMetrics::register(registry),
            config: ConfigMetrics::register(registry),
        }
    }
}

/// All metrics of this program, for the reference.
#[must_use]
pub fn described_metrics() -> Vec<MetricDescription> {
    MetricsBuilder::descriptions(|registry| drop(Counted::register(registry)))
}

/// Starts the operator's tasks.
pub async fn start(settings: Settings, context: Context, tasks: &mut Tasks) -> Result<Started, StartError> {
    begin(settings, context, None, tasks).await
}

/// The same with a transport to management controllers that needs no sockets, for a test in virtual time.
pub async fn start_over(
    carrier: Arc<dyn Carrier>,
    settings: Settings,
    context: Context,
    tasks: &mut Tasks,
) -> Result<Started, StartError> {
    begin(settings, context, Some(carrier), tasks).await
}

async fn begin(
    settings: Settings,
    context: Context,
    carrier: Option<Arc<dyn Carrier>>,
    tasks: &mut Tasks,
) -> Result<Started, StartError> {
    let Context { client, clock, stop, logs, config } = context;
    let live = config.settings(settings);
    let settings = live.in_force().clone();
    if settings.policy_unknown {
        tracing::warn!("POLICY_TYPE is not a known policy; static_partition is used");
    }
    if settings.plan.budget.any() {
        tracing::warn!(
            "the limits of BUDGET_SITE_WATTS and BUDGET_RACK_WATTS are kept until the next restart; a PowerBudget is changed with kubectl"
        );
    }
    let identity = leader::identity("joulie-operator", settings.pod_name.as_deref(), clock.chance());
    let mut metrics = MetricsBuilder::of(&BUILD);
    let counted = Counted::register(metrics.registry());
    let Counted {
        stats,
        queries,
        classify: classified,
        gpu_repair: repaired,
        elections,
        reflections,
        posts,
        servers: server_metrics,
        config: config_metrics,
    } = counted;
    config.start(config_metrics, logs.clone(), &clock, (&mut *tasks, &stop));

    let files = settings.metrics_port.tls.clone();
    let tls = Certificates::start(Port::Metrics, files, &server_metrics, &clock, (&mut *tasks, &stop));
    let tls = tls.map_err(StartError::Tls)?;
    let mut watcher =
        Watcher { client: &client, reflections: &reflections, clock: &clock, stop: &stop, tasks };
    let watches = watcher.watch(&settings);
    let workload_profiles = watches.workloads.clone();
    let gpus = settings.gpu_repair_after.zip(watches.gpus.clone());
    let (recorder, posting) = events::record(
        &client,
        Events::of("joulie.io/operator", &identity),
        &posts,
        clock.clone(),
        stop.clone(),
    );
    tasks.spawn("events", posting);

    let times = settings.election;
    let candidate = Candidate::new(&identity, times.lease, times.renew, times.retry)
        .map_err(|error| StartError::Settings(error.to_string()))?;
    let lease = LeaseName { namespace: settings.namespace.clone(), name: LEADER_LEASE.to_owned() };
    let (leadership, election) = elect(&client, lease, candidate, elections, clock.clone(), stop.clone());
    tasks.spawn("election", election);

    let heartbeat = Heartbeat::started(clock.mono());
    let planned = Arc::new(AtomicBool::new(false));
    let health = health(&clock, &watches, &heartbeat, &settings, &stop);
    let leads = {
        let (leadership, clock) = (leadership.clone(), clock.clone());
        move || leadership.term(clock.mono()).is_some()
    };
    let health = health.ready("plan", {
        let planned = planned.clone();
        move |_| {
            // A standby is ready: it has read everything, and can take over at once.
            if planned.load(Ordering::Relaxed) || !leads() {
                CheckResult::Pass
            } else {
                CheckResult::Fail("this process leads and has made no pass yet".to_owned())
            }
        }
    });
    let guard = Guard::new(settings.debug_token.clone());
    let debug = Debug::new(guard.clone(), config, logs);
    let scrapers = Scrapers::new(settings.metrics_port.auth, &client, &clock, &server_metrics);
    let ops = Ops::new(metrics.page(), health, debug).for_scrapers(scrapers);
    let ui = match settings.ui {
        UiMode::Off => None,
        UiMode::Read => Some(live_page(&settings, &client, &clock, (&mut *tasks, &stop))?),
    };
    let (port, questions) = routes::Port::new(ops, guard, ui);
    let limits = ServerLimits::new(64 * 1024, 64).map_err(|error| StartError::Settings(error.to_string()))?;
    let server =
        HttpServer::bind(settings.metrics, Port::Metrics, port, limits, &server_metrics, clock.clone())
            .await
            .map_err(StartError::Listen)?;
    let server = server.with_tls(tls);
    let address = server.address().map_err(StartError::Listen)?;
    let serving = stop.clone();
    tasks.spawn("metrics", async move {
        server.run(serving, Drain::new(Duration::ZERO, DRAIN)).await;
    });

    if let (Some(classify), Some(profiles)) = (settings.classify, workload_profiles) {
        let parts = ClassifyParts {
            client: client.clone(),
            prometheus: prometheus(&settings)?,
            clock: clock.clone(),
            leadership: leadership.clone(),
            pods: watches.pods.clone(),
            nodes: watches.nodes.clone(),
            profiles,
            settings: live.clone(),
            told: classify,
            ignored: ignored(&settings),
            write_timeout: settings.write_timeout,
            writers: settings.writers.div_ceil(4),
            queries: queries.clone(),
            stats: classified,
        };
        tasks.spawn("classify", Classifier::new(parts).run(stop.clone()));
    }

    if let Some((after, gpus)) = gpus {
        let repairs = GpuRepairs {
            client: client.clone(),
            clock: clock.clone(),
            leadership: leadership.clone(),
            gpus,
            after,
            timeout: settings.write_timeout,
            events: recorder.clone(),
            stats: repaired,
        };
        tasks.spawn("gpu-repair", repairs.run(stop.clone()));
    }

    let sleep = settings.sleep.controllers.clone().map(|controllers| {
        let clients = controllers.clients(carrier.as_ref());
        let clients = clients.map_err(|why| StartError::Settings(format!("SLEEP_BMC_FILE: {why}")))?;
        Ok::<_, StartError>(SleepParts {
            client: client.clone(),
            leadership: leadership.clone(),
            clock: clock.clone(),
            controllers,
            clients,
            poll: settings.sleep.poll,
            timeout: settings.write_timeout,
        })
    });
    let sleep = sleep.transpose()?;
    let reconciler =
        Reconciler::new(settings.clone(), stats.clone(), recorder).map_err(StartError::Settings)?;
    let parts = Parts {
        client,
        clock,
        watches,
        leadership,
        identity,
        live,
        stats,
        sleep,
        queries,
        heartbeat,
        questions,
        planned,
    };
    let lead = Lead::new(parts, reconciler).map_err(|error| StartError::Settings(error.to_string()))?;
    tasks.spawn("plan", lead.run(stop));
    Ok(Started { metrics: address })
}

/// The Prometheus server, if there is one.
fn prometheus(settings: &Settings) -> Result<Option<Prometheus>, StartError> {
    let access = settings.prometheus.clone();
    let server = access.map(|access| Prometheus::new("joulie-operator", access)).transpose();
    server.map_err(|error| StartError::Settings(format!("PROMETHEUS_CA_FILE: {error}")))
}

/// The live page, with watches of its own.
fn live_page(
    settings: &Settings,
    client: &Client,
    clock: &Arc<dyn HostClock>,
    (tasks, stop): (&mut Tasks, &Stop),
) -> Result<Ui, StartError> {
    let hub = UiHub::new(clock.chance());
    let source = UiSource {
        title: "Joulie".to_owned(),
        client: client.clone(),
        clock: clock.clone(),
        namespace: settings.namespace.clone(),
        hold: settings.hold,
        extras: None,
    };
    let observer = UiObserver::start(source, (&mut *tasks, stop));
    tasks.spawn("page", observer.run(hub.clone(), stop.clone()));
    let asked = client.clone();
    let explainer = UiExplainer::start(move || asked, clock.clone(), settings.namespace.clone());
    let explainer = explainer.map_err(|error| StartError::Settings(format!("UI: {error}")))?;
    Ok(Ui::new(hub, explainer, None, stop.clone()))
}

/// The namespaces whose pods are no workloads: the operator's own too.
fn ignored(settings: &Settings) -> BTreeSet<String> {
    let own = std::iter::once(settings.namespace.clone());
    settings.selectors.ignored_namespaces.iter().cloned().chain(own).collect()
}

fn health(
    clock: &Arc<dyn HostClock>,
    watches: &Watches,
    heartbeat: &Heartbeat,
    settings: &Settings,
    stop: &Stop,
) -> Health {
    Health::new(clock.clone())
        .live("loop", heartbeat.check("the loop", settings.interval + PULSE))
        .ready("nodes", watches.nodes.check(SILENCE_MAX))
        .ready("pods", watches.pods.check(SILENCE_MAX))
        .ready("profiles", watches.profiles.check(SILENCE_MAX))
        .ready("twins", watches.twins.check(SILENCE_MAX))
        .ready("budgets", watches.budgets.check(SILENCE_MAX))
        .ready_until(stop.clone())
}

/// Begins reflectors.
struct Watcher<'w> {
    client: &'w Client,
    reflections: &'w Reflections,
    clock: &'w Arc<dyn HostClock>,
    stop: &'w Stop,
    tasks: &'w mut Tasks,
}

impl Watcher<'_> {
    fn watch(&mut self, settings: &Settings) -> Watches {
        let (namespace, classifies) = (&settings.namespace, settings.classify.is_some());
        let repairs = settings.gpu_repair_after.is_some();
        let joulie = "/apis/joulie.io/v1alpha1";
        let plan = WatchSource {
            path: format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            labels: None,
            fields: Some(format!("metadata.name={PLAN_LEASE}")),
        };
        Watches {
            nodes: self.all("/api/v1/nodes"),
            pods: self.all("/api/v1/pods"),
            hardware: self.all(&format!("{joulie}/nodehardwares")),
            profiles: self.all(&format!("{joulie}/nodepowerprofiles")),
            twins: self.all(&format!("{joulie}/nodetwins")),
            grants: self.all(&format!("{joulie}/nodepowergrants")),
            budgets: self.all(&format!("{joulie}/powerbudgets")),
            events: self.all(&format!("{joulie}/powerevents")),
            plan: self.rows(plan),
            workloads: classifies.then(|| self.all(&format!("{joulie}/workloadprofiles"))),
            gpus: repairs.then(|| self.all("/apis/gpu.mle.com/v1alpha1/gpus")),
        }
    }

    fn all<R: Row>(&mut self, path: &str) -> Rows<R> {
        self.rows(WatchSource { path: path.to_owned(), labels: None, fields: None })
    }

    fn rows<R: Row>(&mut self, source: WatchSource) -> Rows<R> {
        let clock = self.clock.clone();
        let (rows, follow) = reflect(self.client, source, self.reflections, clock, self.stop.clone());
        self.tasks.spawn(R::KIND, follow);
        rows
    }
}
