//! Starts the agent's tasks in order, and ends them.

use crate::claim::{Claim, candidate};
use crate::energy::{self, KUBELET_TIMEOUT, Kubelet, NodeLedger, PodOwner};
use crate::front::inputs::Watched;
use crate::front::node::Shared;
use crate::front::outcome::Terms;
use crate::front::pace::Pace;
use crate::front::plan::PlanAsk;
use crate::front::publish::Writer;
use crate::front::watches::{self, Watches};
use crate::gpus::{self, GpuCounts, GpuObjects, OwnGpu, OwnSlice};
use crate::host::{self, Taps};
use crate::metrics::Metrics;
use crate::own::{MachineError, OwnNode, Present};
use crate::plug::{self, PlugParts, PlugStartError};
use crate::pool::http::Http;
use crate::pool::{Pool, PoolError, PoolNodes, Routes};
use crate::route::{Base as RouteBase, Place, Reached};
use crate::settings::{AgentTarget, LeaseExpiry, MachineSettings, Settings, Shards};
use host_kit::config::ConfigMetrics;
use host_kit::events::{self, Events, Posts, Recorder};
use host_kit::health::{Health, Heartbeat};
use host_kit::http_client::Carrier;
use host_kit::leader::{self, CandidateError, Elections, LeaseName, elect};
use host_kit::metrics::{BuildInfo, MetricDescription, MetricsBuilder as Page, MetricsRegistry};
use host_kit::ops::Ops;
use host_kit::program::{Context, LocalContext};
use host_kit::reflect::{Reflections, Row, Rows, WatchSource, once_served, reflect};
use host_kit::server::{
    Certificates, Debug, Drain, Guard, HttpServer, LimitError, Port, Scrapers, ServerLimits, ServerMetrics,
    ServerTlsError,
};
use host_kit::shutdown::{self, Stop, Tasks, Trigger};
use joulie_api::dra;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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
    /// The node's own meter cannot be followed.
    Plug(PlugStartError),
    /// The pool of nodes over HTTP cannot be created.
    Pool(PoolError),
    /// The candidate for the election among the agents of a shard is not valid.
    Claim(CandidateError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => write!(f, "METRICS_ADDR: {error}"),
            Self::Limits(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Machine(error) => error.fmt(f),
            Self::Plug(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Claim(error) => write!(f, "POD_NAME: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The metrics of the agent's parts.
struct Counted {
    metrics: Metrics,
    reflections: Reflections,
    posts: Posts,
    servers: ServerMetrics,
    config: ConfigMetrics,
}

impl Counted {
    fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            metrics: Metrics::register(registry),
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
    Page::descriptions(|registry| {
        drop(Counted::register(registry));
        energy::describe_metrics(registry);
        plug::describe_metrics(registry);
        drop(GpuCounts::register(registry));
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
    let Counted { metrics, reflections, posts, servers, config } = Counted::register(page.registry());
    context.config.start(config, context.logs.clone(), &context.clock, (&mut *tasks, &context.stop));
    let instance = Events::of("joulie.io/agent", settings.instance());
    let (events, posting) =
        events::record(&context.client, instance, &posts, context.clock.clone(), context.stop.clone());
    tasks.spawn("events", posting);
    let shared = Arc::new(shared(&settings, &context, metrics, events)?);
    let health = Health::new(context.clock.clone()).ready_until(context.stop.clone());
    let base = Base { settings: &settings, context: &context, shared: &shared, reflections: &reflections };
    let health = match &settings.target {
        AgentTarget::Host { node, machine } => {
            let reached = Reached::Host { cpu: machine.cpu, gpu: machine.gpu };
            let plug = PlugParts {
                settings: &settings.plug,
                node,
                root: machine.root.as_deref(),
                detail: settings.power_detail,
                clock: context.clock.clone(),
                stop: context.stop.clone(),
            };
            let plug = plug.start(page.registry(), tasks).map_err(StartError::Plug)?;
            let taps = Taps { plug, ..base.taps((node, machine), &mut page, tasks) };
            base.own_node((node, machine, taps), reached, carrier, tasks)?.health(health)
        }
        AgentTarget::Remote { node, routing, machine } => base
            .own_node((node, machine, Taps::default()), Reached::Http(routing.clone()), carrier, tasks)?
            .health(health),
        AgentTarget::Pool { routing, shards, concurrency, pod } => {
            let routes = base.routes(Place::Elsewhere, Reached::Http(routing.clone()));
            let begun = base.pool(routes, *shards, (*concurrency, carrier), tasks)?;
            let elections = Elections::register(page.registry());
            let lease = LeaseName { namespace: settings.namespace.clone(), name: shards.lease_name() };
            let (claim, ended) = claim(lease, pod.as_deref(), elections, &context, tasks)?;
            let health = begun.health(health).ready("shard", claim.check());
            tasks.spawn("pool", part(claim, begun, context.stop.clone(), ended));
            health
        }
    };
    let scrapers = Scrapers::new(settings.metrics_port.auth, &context.client, &context.clock, &servers);
    let port = OpsPort { settings: &settings, page, health, servers, scrapers };
    Ok(Started { metrics: port.open(&context.local(), tasks).await? })
}

/// The port of metrics and health, before it is opened.
pub(crate) struct OpsPort<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) page: Page,
    pub(crate) health: Health,
    pub(crate) servers: ServerMetrics,
    pub(crate) scrapers: Scrapers,
}

impl OpsPort<'_> {
    /// Opens it, and serves it until the program ends.
    pub(crate) async fn open(
        self,
        context: &LocalContext,
        tasks: &mut Tasks,
    ) -> Result<SocketAddr, StartError> {
        let Self { settings, page, health, servers, scrapers } = self;
        let limits = ServerLimits::new(64 * 1024, 64).map_err(StartError::Limits)?;
        let files = settings.metrics_port.tls.clone();
        let stop = &context.stop;
        let tls = Certificates::start(Port::Metrics, files, &servers, &context.clock, (&mut *tasks, stop));
        let tls = tls.map_err(StartError::Tls)?;
        let guard = Guard::new(settings.debug_token.clone());
        let debug = Debug::new(guard, context.config.clone(), context.logs.clone());
        let ops = Ops::new(page.page(), health, debug).for_scrapers(scrapers);
        let clock = context.clock.clone();
        let server = HttpServer::bind(settings.metrics, Port::Metrics, ops, limits, &servers, clock);
        let server = server.await.map_err(StartError::Listen)?.with_tls(tls);
        let address = server.address().map_err(StartError::Listen)?;
        tracing::info!("metrics and health are served on {address}");
        let stop = stop.clone();
        let drain = Drain::new(Duration::ZERO, Duration::from_secs(2));
        tasks.spawn("metrics", async move {
            let cut_off = server.run(stop, drain).await;
            if cut_off > 0 {
                tracing::debug!("{cut_off} connections were cut off");
            }
        });
        Ok(address)
    }
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
        let ask = self.shared.plan.clone();
        watches::begin(self.settings, node, self.context, ask, self.reflections, tasks)
    }

    /// What the settings say of how nodes are reached.
    fn routes(&self, place: Place, reached: Reached) -> RouteBase {
        if let Reached::Http(routing) = &reached {
            for endpoint in routing.endpoints().filter(|at| at.shows_token && !at.url.has_tls()) {
                tracing::warn!(
                    "TELEMETRY_HTTP_TOKEN_FILE: {} has no TLS, so the token is sent to it in the clear",
                    endpoint.url
                );
            }
        }
        RouteBase { place, reached, http: self.settings.http.clone() }
    }

    /// The client of all endpoints.
    fn http(
        &self,
        reached: &Reached,
        (concurrency, carrier): (usize, Option<Arc<dyn Carrier>>),
    ) -> Result<Arc<Http>, StartError> {
        let has_tls = match reached {
            Reached::Http(routing) => routing.endpoints().any(|endpoint| endpoint.url.has_tls()),
            Reached::Host { .. } => false,
        };
        let http = Http::new(concurrency, &self.settings.http, has_tls, carrier);
        Ok(Arc::new(http.map_err(|error| StartError::Pool(PoolError::Tls(error)))?))
    }

    /// The nodes of a shard, over HTTP.
    fn pool(
        &self,
        routes: RouteBase,
        shards: Shards,
        how: (usize, Option<Arc<dyn Carrier>>),
        tasks: &mut Tasks,
    ) -> Result<OverHttp, StartError> {
        let http = self.http(&routes.reached, how)?;
        let Watches { watched, confirmed } = self.watch(None, tasks);
        let catalog = self.settings.catalog.clone();
        let beat = Heartbeat::started(self.context.clock.mono());
        let nodes = PoolNodes { routes: Routes::Each(Box::new(routes)), shards, http };
        let pool = Pool::new(self.settings, nodes, self.shared.clone(), catalog, confirmed, beat);
        Ok(OverHttp { pool: pool.map_err(StartError::Pool)?, watched })
    }

    /// Starts the energy ledger and the GPU objects of the node that the agent runs on, if they are to be.
    fn taps(&self, (node, machine): (&str, &MachineSettings), page: &mut Page, tasks: &mut Tasks) -> Taps {
        let Settings { energy, gpus, power_detail, .. } = self.settings;
        let mut taps = Taps { meters: energy::meters(self.settings), ..Taps::default() };
        if energy.is_none() && gpus.is_none() {
            return taps;
        }
        let Context { client, clock, stop, .. } = self.context;
        let pods = self.pods(node, tasks);
        let root = energy::root(machine.root.as_deref());
        if let Some((settings, meters)) = energy.clone().zip(taps.meters.clone()) {
            let (node, detail) = (node.to_owned(), *power_detail);
            let (root, pods, clock) = (root.clone(), pods.clone(), clock.clone());
            let ledger = NodeLedger { node, settings, detail, root, meters, pods, clock };
            ledger.start(page.registry(), tasks, stop);
        }
        if let Some(settings) = gpus {
            let (tap, cards) = gpus::tap();
            taps.cards = Some(tap);
            let source = |path: &str, fields: String| WatchSource {
                path: path.to_owned(),
                labels: None,
                fields: Some(fields),
            };
            let nodes =
                self.rows("gpu-node", source("/api/v1/nodes", format!("metadata.name={node}")), tasks);
            let of_node = format!("spec.nodeName={node}");
            let rows = self.rows::<OwnGpu>("gpus", source("/apis/gpu.mle.com/v1alpha1/gpus", of_node), tasks);
            let slices = settings.reads_slices.then(|| self.slices(node, tasks));
            let objects = GpuObjects {
                node: node.to_owned(),
                root,
                kubelet: Kubelet::at(settings.socket.clone(), KUBELET_TIMEOUT),
                cards,
                nodes,
                rows,
                pods,
                slices,
                client: client.clone(),
                clock: clock.clone(),
                counts: GpuCounts::register(page.registry()),
                events: self.shared.events.clone(),
            };
            tasks.spawn("gpu-objects", objects.run(stop.clone()));
        }
        taps
    }

    fn rows<R: Row>(&self, task: &'static str, source: WatchSource, tasks: &mut Tasks) -> Rows<R> {
        let Context { client, clock, stop, .. } = self.context;
        let (rows, follow) = reflect(client, source, self.reflections, clock.clone(), stop.clone());
        tasks.spawn(task, follow);
        rows
    }

    /// The ResourceSlices of a node, where the API server has any.
    fn slices(&self, node: &str, tasks: &mut Tasks) -> Rows<OwnSlice> {
        let Context { client, clock, stop, .. } = self.context;
        let source = WatchSource {
            path: dra::SLICES.to_owned(),
            labels: None,
            fields: Some(format!("spec.nodeName={node}")),
        };
        let (rows, follow) = reflect(client, source, self.reflections, clock.clone(), stop.clone());
        let (_, follow) = once_served(client, dra::VERSION, clock.clone(), stop.clone(), follow);
        tasks.spawn("resourceslices", follow);
        rows
    }

    /// The pods of a node.
    fn pods(&self, node: &str, tasks: &mut Tasks) -> Rows<PodOwner> {
        let source = WatchSource {
            path: "/api/v1/pods".to_owned(),
            labels: None,
            fields: Some(format!("spec.nodeName={node}")),
        };
        self.rows("pods", source, tasks)
    }

    /// The node that the agent runs on.
    fn own_node(
        &self,
        (node, machine, taps): (&str, &MachineSettings, Taps),
        reached: Reached,
        carrier: Option<Arc<dyn Carrier>>,
        tasks: &mut Tasks,
    ) -> Result<Own, StartError> {
        let base = self.routes(Place::OnNode, reached);
        let own = OwnNode {
            settings: self.settings.clone(),
            taps,
            node: node.to_owned(),
            machine: machine.clone(),
            http: self.http(&base.reached, (OWN_CONCURRENCY, carrier))?,
            base,
            shared: self.shared.clone(),
            catalog: self.settings.catalog.clone(),
            client: self.context.client.clone(),
            beat: Heartbeat::started(self.context.clock.mono()),
            stop: self.context.stop.clone(),
            now: Present::default(),
        };
        let watches = self.watch(Some(node), tasks);
        let (sender, routes) = own.route();
        let machine = own.start(&routes, &watches.confirmed).map_err(|error| match error {
            MachineError::Host(error) => StartError::Machine(error),
            MachineError::Http(error) => StartError::Pool(error),
        })?;
        let began = Own {
            beat: own.beat.clone(),
            now: own.now.clone(),
            watched: watches.watched.clone(),
            most: loop_most(self.settings.period),
        };
        tasks.spawn("machine", own.run(machine, watches, (sender, routes)));
        Ok(began)
    }
}

/// How many requests to the agent's own node run at once.
const OWN_CONCURRENCY: usize = 8;

/// The agent's own node, with what is watched of it.
struct Own {
    beat: Heartbeat,
    now: Present,
    watched: Watched,
    most: Duration,
}

impl Own {
    fn health(&self, health: Health) -> Health {
        health
            .live("loop", self.beat.check("the control loop", self.most))
            .ready("machine", self.now.check())
            .ready("watches", self.watched.check())
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
async fn part(claim: Claim, mut begun: OverHttp, stop: Stop, _ended: Trigger) {
    let beat = begun.pool.beat();
    if claim.wait(&beat, &stop).await {
        tokio::select! {
            () = begun.pool.run(begun.watched, stop) => {}
            () = claim.lost() => {}
        }
    }
}

/// The control loop completes a round at least this often unless it is dead: a driver that hangs does not block it.
pub(crate) fn loop_most(period: Duration) -> Duration {
    period.saturating_mul(5).max(Duration::from_secs(30))
}

/// What does not change while the agent runs, if these parts are controlled.
pub(crate) fn terms(settings: &Settings, (cpu, gpu): (bool, bool)) -> Terms {
    // The third period after a cap was written may be the first full one under it.
    let patience = settings.period.saturating_mul(3).max(Duration::from_secs(5));
    let relax = settings.lease.expiry == LeaseExpiry::Relax;
    Terms { cpu, gpu, simulate_only: settings.simulate_only, patience, relax }
}

fn shared(
    settings: &Settings,
    context: &Context,
    metrics: Metrics,
    events: Recorder,
) -> Result<Shared, StartError> {
    Ok(Shared {
        clock: context.clock.clone(),
        selector: settings.selector.clone(),
        // The route of a node says which of its parts are controlled.
        terms: terms(settings, (true, true)),
        pace: Pace { interval: settings.power.interval, heartbeat: settings.power.heartbeat },
        catalog: settings.catalog.clone(),
        writer: Writer::new(context.client.clone(), metrics.clone()),
        metrics,
        events,
        plan: PlanAsk::default(),
        power_detail: settings.power_detail,
    })
}
