//! Starts the agent's tasks in order, and ends them.

use crate::claim::{Claim, candidate};
use crate::front::grants::Stands;
use crate::front::inputs::{Inputs, Watched};
use crate::front::node::{Front, Shared};
use crate::front::outcome::Terms;
use crate::front::pace::Pace;
use crate::front::publish::Writer;
use crate::front::rows::NodeRow;
use crate::front::watches::{self, Confirmed, Watches};
use crate::host::{self, Ending, Host, Standing};
use crate::machine::{Control, View};
use crate::metrics::Metrics;
use crate::pool::{Pool, PoolError, PoolNodes};
use crate::settings::{AgentTarget, LeaseExpiry, MachineSettings, OnExit, Settings, Shards};
use host_kit::clock::HostClock;
use host_kit::health::{CheckResult, Health};
use host_kit::http_client::Carrier;
use host_kit::leader::{self, CandidateError, Elections, LeaseName, elect};
use host_kit::metrics::{BuildInfo, MetricDescription, MetricsBuilder as Page, MetricsRegistry};
use host_kit::ops::Ops;
use host_kit::program::Context;
use host_kit::reflect::{Reflections, Row};
use host_kit::server::{
    Certificates, Debug, Drain, Guard, HttpServer, LimitError, Port, Scrapers, ServerLimits, ServerMetrics,
    ServerTlsError,
};
use host_kit::shutdown::{self, Stop, Tasks, Trigger};
use k8s_openapi::api::core::v1::Node;
use kube::core::{Selector, SelectorExt};
use kube::{Api, Client};
use planner::catalog::{Catalog, CatalogError};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The build information of this program.
pub const BUILD: BuildInfo = BuildInfo::of("agent", env!("CARGO_PKG_VERSION"));

/// What was started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// The address at which metrics and health are served.
    pub metrics: SocketAddr,
}

/// Why the agent could not start. Nothing was written to any hardware.
#[derive(Debug)]
pub enum StartError {
    /// The port of the metrics cannot be opened.
    Listen(std::io::Error),
    /// The limits of that port are not valid.
    Limits(LimitError),
    /// The certificate of that port cannot be used.
    Tls(ServerTlsError),
    /// The control loop cannot be started.
    Machine(host::StartError),
    /// The pool of nodes over HTTP cannot be created.
    Pool(PoolError),
    /// The candidate for the election among the agents of a shard is not valid.
    Claim(CandidateError),
    /// The built-in catalogue is not valid.
    Catalog(CatalogError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => write!(f, "METRICS_ADDR: {error}"),
            Self::Limits(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Machine(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Claim(error) => write!(f, "POD_NAME: {error}"),
            Self::Catalog(error) => write!(f, "the built-in catalogue is not valid: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The metrics of the agent's parts.
struct Counted {
    metrics: Metrics,
    reflections: Reflections,
    servers: ServerMetrics,
}

impl Counted {
    fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            metrics: Metrics::register(registry),
            reflections: Reflections::register(registry),
            servers: ServerMetrics::register(registry),
        }
    }
}

/// All metrics of this program, for the reference.
#[must_use]
pub fn described_metrics() -> Vec<MetricDescription> {
    Page::descriptions(|registry| {
        drop(Counted::register(registry));
        // The metrics of mode pool, where the agents of a shard elect the one that works.
        drop(Elections::register(registry));
    })
}

/// Starts the agent's tasks.
pub async fn start(settings: Settings, context: Context, tasks: &mut Tasks) -> Result<Started, StartError> {
    begin(settings, context, None, tasks).await
}

/// Starts them for nodes that are not reached over sockets.
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
    if let Some(note) = &settings.dvfs.note {
        tracing::warn!("configuration: {note}");
    }
    let mut page = Page::of(&BUILD);
    let Counted { metrics, reflections, servers } = Counted::register(page.registry());
    let shared = Arc::new(shared(&settings, &context, metrics)?);
    let health = Health::new(context.clock.clone()).ready_until(context.stop.clone());
    let base = Base { settings: &settings, context: &context, shared: &shared, reflections: &reflections };
    let health = match &settings.target {
        AgentTarget::Host { node, machine } => {
            let began = host::start(&settings, node, machine, context.clock.clone());
            let began = began.map_err(StartError::Machine)?;
            let watches = base.watch(Some(node), tasks);
            let health = health
                .live("loop", began.beat.check("the control loop", loop_most(settings.period)))
                .ready("machine", machine_check(began.host.clone()))
                .ready("watches", watches.watched.check());
            base.own_node(node, began, watches, tasks);
            health
        }
        AgentTarget::Remote { node, routing } => {
            let nodes = PoolNodes { routing, shards: Shards::WHOLE, concurrency: 8, carrier };
            let begun = base.over_http(Some(node), nodes, tasks)?;
            let health = begun.health(health);
            tasks.spawn("pool", begun.pool.run(begun.watched, context.stop.clone()));
            health
        }
        AgentTarget::Pool { routing, shards, concurrency, pod } => {
            let nodes = PoolNodes { routing, shards: *shards, concurrency: *concurrency, carrier };
            let begun = base.over_http(None, nodes, tasks)?;
            let elections = Elections::register(page.registry());
            let lease = LeaseName { namespace: settings.namespace.clone(), name: shards.lease_name() };
            let (claim, ended) = claim(lease, pod.as_deref(), elections, &context, tasks)?;
            let health = begun.health(health).ready("shard", claim.check());
            tasks.spawn("pool", part(claim, begun, context.stop.clone(), ended));
            health
        }
    };
    let limits = ServerLimits::new(64 * 1024, 64).map_err(StartError::Limits)?;
    let files = settings.metrics_port.tls.clone();
    let tls =
        Certificates::start(Port::Metrics, files, &servers, &context.clock, (&mut *tasks, &context.stop));
    let tls = tls.map_err(StartError::Tls)?;
    let debug =
        Debug::new(Guard::new(settings.debug_token.clone()), context.shown.clone(), context.logs.clone());
    let scrapers = Scrapers::new(settings.metrics_port.auth, &context.client, &context.clock, &servers);
    let ops = Ops::new(page.page(), health, debug).for_scrapers(scrapers);
    let clock = context.clock.clone();
    let server = HttpServer::bind(settings.metrics, Port::Metrics, ops, limits, &servers, clock);
    let server = server.await.map_err(StartError::Listen)?.with_tls(tls);
    let metrics = server.address().map_err(StartError::Listen)?;
    tracing::info!("metrics and health are served on {metrics}");
    let stop = context.stop.clone();
    let drain = Drain::new(Duration::ZERO, Duration::from_secs(2));
    tasks.spawn("metrics", async move {
        let cut_off = server.run(stop, drain).await;
        if cut_off > 0 {
            tracing::debug!("{cut_off} connections were cut off");
        }
    });
    Ok(Started { metrics })
}

/// What the tasks of every target begin with.
struct Base<'a> {
    settings: &'a Settings,
    context: &'a Context,
    shared: &'a Arc<Shared>,
    reflections: &'a Reflections,
}

impl Base<'_> {
    /// The watches of one node, or of all.
    fn watch(&self, node: Option<&str>, tasks: &mut Tasks) -> Watches {
        watches::begin(self.settings, node, self.context, self.reflections, tasks)
    }

    /// Nodes over HTTP: one, or all.
    fn over_http(
        &self,
        node: Option<&str>,
        nodes: PoolNodes<'_>,
        tasks: &mut Tasks,
    ) -> Result<OverHttp, StartError> {
        let Watches { watched, confirmed } = self.watch(node, tasks);
        let catalog = Catalog::embedded().map_err(StartError::Catalog)?;
        let clock = self.context.clock.clone();
        let pool = Pool::new(self.settings, nodes, self.shared.clone(), catalog, confirmed, clock);
        Ok(OverHttp { pool: pool.map_err(StartError::Pool)?, watched })
    }

    /// The tasks for the node that the agent runs on.
    fn own_node(&self, node: &str, began: host::Started, watches: Watches, tasks: &mut Tasks) {
        let (sender, inputs) = watch::channel(Inputs::default());
        let Watches { watched, confirmed } = watches;
        let stop = self.context.stop.clone();
        let (name, until) = (node.to_owned(), stop.clone());
        tasks.spawn("inputs", async move {
            tokio::select! { () = route(watched, name, sender) => {}, () = until.requested() => {} }
        });
        let (host, clock) = (began.host.clone(), self.context.clock.clone());
        tasks.spawn("lease", renew(confirmed, Arc::new(host), clock, stop.clone()));
        let kept = self.settings.kept_grant(node);
        let front = Front {
            node: node.to_owned(),
            shared: self.shared.clone(),
            control: Arc::new(began.host.clone()),
            inputs,
            views: began.views.clone(),
            stands: kept.as_deref().map_or(Stands::Nothing, Stands::of_file),
            kept,
        };
        let until = stop.clone();
        tasks.spawn("front", async move {
            tokio::select! { () = front.run() => {}, () = until.requested() => {} }
        });
        let exit = Exit {
            on_exit: self.settings.on_exit,
            client: self.context.client.clone(),
            node: node.to_owned(),
            selector: self.settings.selector.clone(),
        };
        tasks.spawn("machine", exit.supervise(began.host, began.views, stop));
    }
}

/// Nodes over HTTP, with what is watched of them.
struct OverHttp {
    pool: Pool,
    watched: Watched,
}

impl OverHttp {
    fn health(&self, health: Health) -> Health {
        health
            .live("loop", self.pool.beat().check("the pool", Duration::from_secs(30)))
            .ready("watches", self.watched.check())
    }
}

/// Stands for election to the pool's part of the nodes, until the pool has ended: whoever is next begins when nothing is under way any
/// more.
fn claim(
    lease: LeaseName,
    pod: Option<&str>,
    elections: Elections,
    context: &Context,
    tasks: &mut Tasks,
) -> Result<(Claim, Trigger), StartError> {
    let clock = context.clock.clone();
    // No two running pods have the same name, and the next process of a pod takes over from the previous one at once.
    let identity = pod.map_or_else(|| leader::identity("joulie-agent", None, clock.chance()), str::to_owned);
    let candidate = candidate(&identity).map_err(StartError::Claim)?;
    let (ended, stop) = shutdown::pair();
    let (leadership, election) =
        elect(&context.client, lease.clone(), candidate, elections, clock.clone(), stop);
    tasks.spawn("election", election);
    Ok((Claim::new(lease.name, leadership, clock), ended))
}

/// Works for a shard as long as no other agent does. If another one takes over, the process ends; when it is restarted,
/// it waits. Dropping the trigger ends the election.
async fn part(claim: Claim, begun: OverHttp, stop: Stop, _ended: Trigger) {
    let beat = begun.pool.beat();
    if claim.wait(&beat, &stop).await {
        tokio::select! {
            () = begun.pool.run(begun.watched, stop) => {}
            () = claim.lost() => {}
        }
    }
}

/// The control loop completes a round at least this often unless it is dead: a driver that hangs does not block it.
fn loop_most(period: Duration) -> Duration {
    period.saturating_mul(5).max(Duration::from_secs(30))
}

fn shared(settings: &Settings, context: &Context, metrics: Metrics) -> Result<Shared, StartError> {
    let (cpu, gpu) = match &settings.target {
        AgentTarget::Host { machine: MachineSettings { cpu, gpu, .. }, .. } => (*cpu, *gpu),
        AgentTarget::Remote { routing, .. } | AgentTarget::Pool { routing, .. } => {
            (routing.cpu.is_some(), routing.gpu.is_some())
        }
    };
    // The third period after a cap was written may be the first full one under it.
    let patience = settings.period.saturating_mul(3).max(Duration::from_secs(5));
    Ok(Shared {
        clock: context.clock.clone(),
        selector: settings.selector.clone(),
        terms: Terms {
            cpu,
            gpu,
            simulate_only: settings.simulate_only,
            patience,
            relax: settings.lease.expiry == LeaseExpiry::Relax,
        },
        pace: Pace { interval: settings.power.interval, heartbeat: settings.power.heartbeat },
        catalog: Catalog::embedded().map_err(StartError::Catalog)?,
        writer: Writer::new(context.client.clone(), metrics.clone()),
        metrics,
        power_detail: settings.power_detail,
    })
}

fn machine_check(host: Host) -> impl Fn(host_kit::clock::Mono) -> CheckResult + Send + Sync + 'static {
    move |_| match host.standing() {
        Standing::Running => CheckResult::Pass,
        Standing::Waiting(why) => CheckResult::Fail(why),
        Standing::Ended => CheckResult::Fail("the control loop has ended".to_owned()),
    }
}

/// What the watches say of the node goes to its front, as long as anybody watches.
async fn route(mut watched: Watched, node: String, sender: watch::Sender<Inputs>) {
    loop {
        let inputs = watched.by_node().of(&node);
        sender.send_if_modified(|last| {
            let changed = *last != inputs;
            *last = inputs;
            changed
        });
        if !watched.changed().await {
            return;
        }
    }
}

/// How often the lease is checked.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// Tells the machine when the desired state was last confirmed.
async fn renew(confirmed: Confirmed, control: Arc<dyn Control>, clock: Arc<dyn HostClock>, stop: Stop) {
    while !stop.requested_within(RENEW_EVERY).await {
        if let Some(mark) = confirmed.mark(clock.mono()) {
            control.renewed(mark);
        }
    }
}

/// What ends the machine's thread.
struct Exit {
    on_exit: OnExit,
    client: Client,
    node: String,
    selector: Selector,
}

const LAST_LOOK: Duration = Duration::from_secs(2);

impl Exit {
    /// Returns when the thread has ended: after it was asked to, or by itself, and then the program ends too.
    async fn supervise(self, host: Host, mut views: watch::Receiver<Option<View>>, stop: Stop) {
        let ended = async { while views.changed().await.is_ok() {} };
        tokio::select! {
            () = ended => return,
            () = stop.requested() => {}
        }
        let ending = match self.on_exit {
            OnExit::Restore => Ending::Restore,
            OnExit::Keep if self.is_deselected().await => {
                tracing::info!(
                    node = self.node,
                    "the node is not managed any more, so its originals come back"
                );
                Ending::Restore
            }
            OnExit::Keep => Ending::Keep,
        };
        host.end(ending);
        while views.changed().await.is_ok() {}
    }

    /// Whoever removes the label of a node also ends its pod at the same moment, and the watch may not have shown it
    /// yet.
    async fn is_deselected(&self) -> bool {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let look = tokio::time::timeout(LAST_LOOK, nodes.get(&self.node)).await;
        let node = look.ok().and_then(Result::ok).and_then(|node| serde_json::to_value(node).ok());
        let row = node.and_then(|node| NodeRow::read(&node).ok());
        row.is_some_and(|row| !self.selector.matches(&row.labels))
    }
}
