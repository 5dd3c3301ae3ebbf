//! Creates the parts of the program and starts them.

use crate::bind::Binder;
use crate::cores::FreeCores;
use crate::dra::DraWatch;
use crate::evictable::EvictablesBuilder;
use crate::expected::Expected;
use crate::metrics::{Metrics, OF_NODES};
use crate::node_store::NodeStore;
use crate::request_log;
use crate::routes::{Desk, Inside, Work};
use crate::rows::EcoLabel;
use crate::settings::{GpuBind, Settings};
use crate::shortlist::{OtherScoresBuilder, ShortlistPods};
use crate::snapshot::Snapshot;
use crate::snapshot_builder::{Shown, SnapshotBuilder, Watched};
use arc_swap::ArcSwap;
use host_kit::clock::{HostClock, Mono};
use host_kit::config::ConfigMetrics;
use host_kit::health::{CheckResult, Health};
use host_kit::metrics::{self, BuildInfo, MetricDescription, MetricsRegistry};
use host_kit::ops::Ops;
use host_kit::program::Context;
use host_kit::reflect::{self, Feed, Reflections, Row, Rows, WatchSource, once_served, reflect};
use host_kit::server::{
    Certificates, Debug, Drain, Guard, HttpServer, LimitError, Port, Scrapers, ServerLimits, ServerMetrics,
    ServerTlsError,
};
use host_kit::shutdown::{Apart, Stop, Tasks};
use joulie_api::{dra, labels};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The name and version of this program.
pub const BUILD: BuildInfo = BuildInfo::of("extender", env!("CARGO_PKG_VERSION"));

/// The addresses on which it listens.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// kube-scheduler's port.
    pub work: SocketAddr,
    /// The port for metrics, health and debugging.
    pub metrics: SocketAddr,
}

/// Why the program does not start.
#[derive(Debug)]
pub enum StartError {
    /// A port cannot be opened.
    Bind(io::Error),
    /// The connection limits are invalid.
    Limits(LimitError),
    /// Certificates cannot be used.
    Tls(ServerTlsError),
    /// The thread for the watches cannot be started.
    Thread(io::Error),
    /// The log of requests cannot be opened.
    RequestLog(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => {
                write!(f, "{error}; set EXTENDER_ADDR and METRICS_ADDR to ports that are free")
            }
            Self::Limits(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::RequestLog(why) => f.write_str(why),
            Self::Thread(error) => {
                write!(
                    f,
                    "the thread of the watches cannot be started: {error}; raise the limit of processes"
                )
            }
        }
    }
}

impl std::error::Error for StartError {}

/// The metrics of its parts.
struct Counted {
    reflections: Reflections,
    servers: ServerMetrics,
    config: ConfigMetrics,
    own: Metrics,
}

impl Counted {
    fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            reflections: Reflections::register(registry),
            servers: ServerMetrics::register(registry),
            config: ConfigMetrics::register(registry),
            own: Metrics::register(registry),
        }
    }
}

/// All metrics of this program, for the reference.
#[must_use]
pub fn described_metrics() -> Vec<MetricDescription> {
    metrics::MetricsBuilder::descriptions(|registry| {
        drop(Counted::register(registry));
        registry.describe(&OF_NODES);
    })
}

/// The most connections for scrapes and people.
const INSIDE_CONNECTIONS_MAX: usize = 32;

/// Starts the watches and the servers.
pub async fn start(settings: Settings, context: Context, tasks: &mut Tasks) -> Result<Started, StartError> {
    // Objects are read and snapshots computed on another thread than those that answer requests.
    let apart = Apart::start("watches").map_err(StartError::Thread)?;
    start_on(apart, settings, context, tasks).await
}

/// The same, with the watches on a thread that the caller provides.
pub async fn start_on(
    apart: Apart,
    settings: Settings,
    context: Context,
    tasks: &mut Tasks,
) -> Result<Started, StartError> {
    let Context { client, clock, stop, logs, config } = context;
    let mut registry = metrics::MetricsBuilder::of(&BUILD);
    let Counted { reflections, servers: server_metrics, config: config_metrics, own } =
        Counted::register(registry.registry());
    config.start(config_metrics, logs.clone(), &clock, (&mut *tasks, &stop));
    let shown: Shown = Arc::new(ArcSwap::from_pointee(Snapshot::nothing()));
    let expected = Expected::new(settings.expected_max);
    let placement = settings.placement;
    let series = settings.node_series;
    own.register_nodes(registry.registry(), shown.clone(), placement, series, clock.clone());

    let mut secure = |port, files| {
        Certificates::start(port, files, &server_metrics, &clock, (&mut *tasks, &stop))
            .map_err(StartError::Tls)
    };
    let work_tls = secure(Port::Work, settings.work_tls.clone())?;
    let metrics_tls = secure(Port::Metrics, settings.metrics_port.tls.clone())?;

    let scrapers = Scrapers::new(settings.metrics_port.auth, &client, &clock, &server_metrics);
    let (parts, asking) = ((clock.clone(), stop.clone()), client.clone());
    let mut watcher =
        Watcher { client, reflections, clock: parts.0, stop: parts.1, tasks, apart: apart.clone() };
    let watched = watcher.watch(&settings);
    let health = || {
        Health::new(clock.clone())
            .ready("nodetwins", watched.node_store.twins.check(settings.staleness))
            .ready("nodehardwares", watched.node_store.hardware.check(settings.staleness))
            .ready_if("gpus", watched.node_store.gpus.as_ref().map(|gpus| gpus.check(settings.staleness)))
            .ready("snapshot", has_picture(shown.clone()))
            .ready_if("certificate", work_tls.as_ref().map(Certificates::check))
            .ready_until(stop.clone())
    };
    let log = match &settings.request_log {
        Some(rule) => {
            let opened = request_log::open(rule, settings.profile_key.clone(), own.clone()).await;
            let (log, writer) =
                opened.map_err(|error| StartError::RequestLog(request_log::refused(&rule.path, &error)))?;
            watcher.tasks.spawn("request log", writer.run(stop.clone()));
            Some(log)
        }
        None => None,
    };
    let guard = Guard::new(settings.debug_token.clone());
    let desk = Desk {
        shown: shown.clone(),
        expected: expected.clone(),
        placement,
        metrics: own.clone(),
        clock: clock.clone(),
        guard: guard.clone(),
        log,
    };
    let binder = (settings.binds == GpuBind::Here).then(|| Binder {
        client: asking.clone(),
        rule: placement.gpus,
        clock: clock.clone(),
        metrics: own.clone(),
        shown: shown.clone(),
    });
    let work = Work {
        desk: desk.clone(),
        health: health(),
        binder,
        preempts: settings.binds != GpuBind::Nowhere,
        body_max: settings.body_max,
    };
    let debug = Debug::new(guard, config, logs);
    let ops = Ops::new(registry.page(), health(), debug).for_scrapers(scrapers);
    let inside = Inside { desk, client: asking, ops };

    let limits = |connections| ServerLimits::new(settings.body_max, connections).map_err(StartError::Limits);
    let drain = Drain::new(settings.linger, settings.shutdown.saturating_sub(settings.linger));
    let work = HttpServer::bind(
        settings.work,
        Port::Work,
        work,
        limits(settings.connections_max)?,
        &server_metrics,
        clock.clone(),
    );
    let work = work.await.map_err(StartError::Bind)?.with_tls(work_tls);
    let inside = HttpServer::bind(
        settings.metrics,
        Port::Metrics,
        inside,
        limits(INSIDE_CONNECTIONS_MAX)?,
        &server_metrics,
        clock.clone(),
    );
    let inside = inside.await.map_err(StartError::Bind)?.with_tls(metrics_tls);
    let started = Started {
        work: work.address().map_err(StartError::Bind)?,
        metrics: inside.address().map_err(StartError::Bind)?,
    };
    tracing::info!(work = %started.work, metrics = %started.metrics, "the extender listens");
    let builder = SnapshotBuilder::new(watched, shown, expected, &settings, own, clock);
    tasks.spawn_on(&apart, "snapshot", builder.run(stop.clone()));
    let until = stop.clone();
    tasks.spawn("work", async move {
        work.run(until, drain).await;
    });
    tasks.spawn("metrics", async move {
        inside.run(stop, drain).await;
    });
    Ok(started)
}

/// Passes once a snapshot of the rows was computed, which happens a moment after the rows were read.
fn has_picture(shown: Shown) -> impl Fn(Mono) -> CheckResult + Send + Sync + 'static {
    move |_| match shown.load().fleet.synced {
        true => CheckResult::Pass,
        false => CheckResult::Fail("there is no picture of the nodes yet".to_owned()),
    }
}

/// Starts watches.
struct Watcher<'t> {
    client: kube::Client,
    reflections: Reflections,
    clock: Arc<dyn HostClock>,
    stop: Stop,
    tasks: &'t mut Tasks,
    apart: Apart,
}

impl Watcher<'_> {
    fn watch(&mut self, settings: &Settings) -> Watched {
        let Settings { namespace, profile_key, trust, placement, .. } = settings;
        let plain = |path: &str| WatchSource { path: path.to_owned(), labels: None, fields: None };
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let eco = WatchSource { labels: Some(EcoLabel::selector(profile_key)), ..plain("/api/v1/nodes") };
        let shortlist = settings.placement.shortlist;
        let nodes = shortlist.is_on().then(|| self.follow("sites", plain("/api/v1/nodes")));
        let is_safe = shortlist.pods == ShortlistPods::Safe;
        let services = is_safe.then(|| self.follow("services", plain("/api/v1/services")));
        let other_scores = OtherScoresBuilder::new(nodes, services);
        Watched {
            node_store: NodeStore::new(
                self.follow("nodetwins", plain("/apis/joulie.io/v1alpha1/nodetwins")),
                self.follow("nodehardwares", plain("/apis/joulie.io/v1alpha1/nodehardwares")),
                self.follow("nodes", eco),
            )
            .with_budgets(self.follow("powerbudgets", plain("/apis/joulie.io/v1alpha1/powerbudgets")))
            .with_gpus(
                placement.gpus.is_on().then(|| self.follow("gpus", plain("/apis/gpu.mle.com/v1alpha1/gpus"))),
            ),
            lease: self.follow(
                "leases",
                WatchSource {
                    fields: Some(format!("metadata.name={}", labels::PLAN_LEASE)),
                    ..plain(&leases)
                },
            ),
            profiles: trust
                .is_some()
                .then(|| self.follow("workloadprofiles", plain("/apis/joulie.io/v1alpha1/workloadprofiles"))),
            pods: self.feed(
                "pods",
                WatchSource {
                    fields: Some("status.phase!=Succeeded,status.phase!=Failed".to_owned()),
                    ..plain("/api/v1/pods")
                },
            ),
            other_scores,
            cores: FreeCores::new(
                placement.counts_cores().then(|| self.follow("cores", plain("/api/v1/nodes"))),
            ),
            dra: placement.gpus.reads_claims.then(|| self.dra()),
            evictables: EvictablesBuilder::new(
                (settings.binds != GpuBind::Nowhere)
                    .then(|| self.follow("budgets", plain("/apis/policy/v1/poddisruptionbudgets"))),
            ),
        }
    }

    /// Follows ResourceSlices and ResourceClaims, where the API server has them.
    fn dra(&mut self) -> DraWatch {
        let source = |path: &str| WatchSource { path: path.to_owned(), labels: None, fields: None };
        let (client, clock, stop) = (&self.client, &self.clock, &self.stop);
        let (slices, follow_slices) =
            reflect(client, source(dra::SLICES), &self.reflections, clock.clone(), stop.clone());
        let (claims, follow_claims) =
            reflect(client, source(dra::CLAIMS), &self.reflections, clock.clone(), stop.clone());
        let both = async {
            tokio::join!(follow_slices, follow_claims);
        };
        let (served, follow) = once_served(client, dra::VERSION, clock.clone(), stop.clone(), both);
        self.tasks.spawn_on(&self.apart, "claims", follow);
        DraWatch::new(slices, claims, served)
    }

    fn feed<R: Row>(&mut self, name: &'static str, source: WatchSource) -> Feed<R> {
        let clock = self.clock.clone();
        let (feed, follow) =
            reflect::follow(&self.client, source, &self.reflections, clock, self.stop.clone());
        self.tasks.spawn_on(&self.apart, name, follow);
        feed
    }

    fn follow<R: Row>(&mut self, name: &'static str, source: WatchSource) -> Rows<R> {
        let clock = self.clock.clone();
        let (rows, follow) = reflect(&self.client, source, &self.reflections, clock, self.stop.clone());
        self.tasks.spawn_on(&self.apart, name, follow);
        rows
    }
}
