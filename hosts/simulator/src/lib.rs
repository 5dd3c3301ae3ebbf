//! Simulated nodes: plants behind an HTTP contract, and pods that load them.
//!
//! ```text
//! API server ──pods──► kubelet ──load──► machine (plant) ◄──control── HTTP ◄── agents in pool mode
//!     ▲                   │                  │                          │
//!     └──── pod status ◄──┘◄── finished ─────┘──── telemetry ──────────►┘
//! ```
//!
//! - [`fleet`]: the simulated nodes; [`hardware`]: the plant of a kind, from the hardware catalogue;
//! - [`machine`]: one machine with its limits and pods, without I/O or clock; [`work`]: the load of a pod;
//! - [`pods`]: the next step of a pod, as a kubelet decides it;
//! - [`nodes`]: Node objects and their heartbeats;
//! - [`control`], [`telemetry`], [`faults`]: the contract over HTTP, and the faults of a node;
//! - [`redfish`]: the management controllers, by which machines are switched off and on;
//! - [`workload`]: pods that are created at random times from a seed.
//!
//! It replaces machines, kubelets and workloads, and nothing else: other programs bind the pods, plan, and set
//! limits. It never writes an object of Joulie's own kinds.
#![forbid(unsafe_code)]

pub mod control;
pub mod faults;
pub mod fleet;
pub mod hardware;
mod http;
mod kubelet;
pub mod machine;
pub mod metrics;
pub mod nodes;
pub mod pods;
pub mod redfish;
mod settings;
pub mod site;
pub mod telemetry;
pub mod work;
pub mod workload;
pub mod world;

pub use fleet::{Fleet, NodeKind};
pub use settings::{Settings, TABLE, Workload};

use crate::http::Port as Routes;
use crate::kubelet::Kubelet;
use crate::metrics::SimMetrics;
use crate::pods::BoundPod;
use crate::workload::Batch;
use crate::world::SimulatedWorld;
use futures::FutureExt;
use host_kit::config::ConfigMetrics;
use host_kit::health::Health;
use host_kit::metrics::{BuildInfo, MetricDescription, MetricsBuilder, MetricsRegistry};
use host_kit::ops::Ops;
use host_kit::program::Context;
use host_kit::reflect::{Reflections, WatchSource, reflect};
use host_kit::server::{
    Certificates, Debug, Drain, Guard, HttpServer, Port, ServerLimits, ServerMetrics, ServerTlsError,
};
use host_kit::shutdown::{Stop, Tasks};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often the machines are stepped. A request also steps its machine.
const TICK: Duration = Duration::from_millis(100);
/// The `/metrics` values are updated once in this many ticks.
const SHOW_EVERY: u32 = 20;
/// A control request has some hundred bytes. This many connections are enough for the agents of a large pool and a
/// scrape.
const BODY_MAX: usize = 64 << 10;
const CONNECTIONS_MAX: usize = 4_096;
/// How long open requests may take at the end.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the API server may be silent before the simulator is not ready.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// The addresses and the machines of a started simulator.
pub struct Started {
    /// The address for telemetry and controls.
    pub work: SocketAddr,
    /// The address for metrics and health: the same port.
    pub metrics: SocketAddr,
    /// The machines, for programs that run the simulator in their own process.
    pub world: Arc<SimulatedWorld>,
}

/// Why the simulator could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The fleet is invalid.
    Fleet(fleet::FleetError),
    /// A machine cannot be built.
    Machine(machine::MachineError),
    /// The port cannot be opened.
    Port(std::io::Error),
    /// The certificate of the port cannot be used.
    Tls(ServerTlsError),
    /// The nodes could not be registered.
    Register(kube::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet(error) => write!(f, "the fleet: {error}"),
            Self::Machine(error) => write!(f, "a machine: {error}"),
            Self::Port(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Register(error) => write!(f, "the nodes could not be registered: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The name and version of this program.
pub const BUILD: BuildInfo = BuildInfo::of("simulator", env!("CARGO_PKG_VERSION"));

/// The metrics of its parts.
struct Counted {
    reflections: Reflections,
    servers: ServerMetrics,
    config: ConfigMetrics,
    figures: SimMetrics,
}

impl Counted {
    fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            reflections: Reflections::register(registry),
            servers: ServerMetrics::register(registry),
            config: ConfigMetrics::register(registry),
            figures: SimMetrics::register(registry),
        }
    }
}

/// All metrics of this program, for the reference.
#[must_use]
pub fn described_metrics() -> Vec<MetricDescription> {
    MetricsBuilder::descriptions(|registry| drop(Counted::register(registry)))
}

/// Starts the machines and their port, registers their nodes, and continues the pods that are bound to them.
///
/// # Errors
/// If a setting is invalid, the port is taken, or the API server refuses a node.
pub async fn start(settings: Settings, context: Context, tasks: &mut Tasks) -> Result<Started, StartError> {
    let Settings {
        fleet,
        listen,
        speed,
        seed,
        heartbeat,
        checkpoint,
        switching,
        workload,
        debug_token,
        tls,
        token,
    } = settings;
    let Context { client, clock, stop, logs, config } = context;
    let members = fleet.members().map_err(StartError::Fleet)?;
    let world =
        SimulatedWorld::new(members, seed, (speed, switching), clock.clone()).map_err(StartError::Machine)?;
    let world = Arc::new(world);

    let mut metrics = MetricsBuilder::of(&BUILD);
    let Counted { reflections, servers, config: config_metrics, figures } =
        Counted::register(metrics.registry());
    config.start(config_metrics, logs.clone(), &clock, (&mut *tasks, &stop));

    // All bound pods; pods of other nodes are dropped when they arrive.
    let source = WatchSource {
        path: "/api/v1/pods".to_owned(),
        labels: None,
        fields: Some("spec.nodeName!=".to_owned()),
    };
    let (rows, follow) = reflect::<BoundPod>(&client, source, &reflections, clock.clone(), stop.clone());
    let health = Health::new(clock.clone()).ready("pods", rows.check(SILENCE_MAX)).ready_until(stop.clone());

    let tls = Certificates::start(Port::Work, tls, &servers, &clock, (&mut *tasks, &stop));
    let tls = tls.map_err(StartError::Tls)?;
    let health = health.ready_if("certificate", tls.as_ref().map(Certificates::check));
    let ops = Ops::new(metrics.page(), health, Debug::new(Guard::new(debug_token), config, logs));
    let limits = ServerLimits::new(BODY_MAX, CONNECTIONS_MAX);
    let limits = limits.map_err(|error| StartError::Port(std::io::Error::other(error)))?;
    let routes = Routes::new((world.clone(), rows.clone()), figures.clone(), ops, token);
    let server = HttpServer::bind(listen, Port::Work, routes, limits, &servers, clock.clone());
    let server = server.await.map_err(StartError::Port)?.with_tls(tls);
    let work = server.address().map_err(StartError::Port)?;
    let drain = Drain::new(Duration::ZERO, DRAIN);
    let serve = server.run(stop.clone(), drain);
    // The server itself logs connections that had to be closed.
    tasks.spawn("serve", serve.map(|_cut_off| ()));

    nodes::register(&client, &world).await.map_err(StartError::Register)?;
    tracing::info!(nodes = world.nodes().len(), %work, speed, "the simulated nodes are registered");

    let (finished, switched) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    tasks.spawn("watch pods", follow);
    tasks.spawn("heartbeats", nodes::beat(client.clone(), world.clone(), heartbeat, stop.clone()));
    let follow_power = nodes::follow_power(client.clone(), world.clone(), switched.clone(), stop.clone());
    tasks.spawn("power", follow_power);
    let news = (finished.clone(), switched);
    tasks.spawn("machines", run(world.clone(), figures.clone(), news, stop.clone()));
    let kubelet = Kubelet::new(client.clone(), world.clone(), rows, figures, checkpoint);
    tasks.spawn("pods", kubelet.run(finished, stop.clone()));
    if let Some(workload) = workload {
        let (pods, follow) = workload::watch(&client, &workload.namespace, &reflections, clock, stop.clone());
        for (name, batch) in [("backlog", Batch::Cpus), ("backlog on GPUs", Batch::Gpu)] {
            if workload.backlog > 0 {
                let (client, workload, pods) = (client.clone(), workload.clone(), pods.clone());
                let keep = workload::keep_waiting(client, workload, (seed, batch), pods, stop.clone());
                tasks.spawn(name, keep);
            }
        }
        let create = workload::create(client, workload, seed, speed, pods, stop);
        tasks.spawn("workload", futures::future::join(follow, create).map(drop));
    }
    Ok(Started { work, metrics: work, world })
}

/// Steps the machines, and notifies when a pod has finished, and when a kubelet has something to say of a machine that was switched.
async fn run(
    world: Arc<SimulatedWorld>,
    figures: SimMetrics,
    (finished, switched): (Arc<Notify>, Arc<Notify>),
    stop: Stop,
) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for tick in 0_u32.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.requested() => return,
        }
        let (mut over, mut untold) = (false, false);
        for (name, node) in world.nodes() {
            {
                let mut state = world.at(node);
                over |= state.machine.pods().values().any(machine::Running::is_finished);
                untold |= state.is_untold();
                if tick.is_multiple_of(SHOW_EVERY) {
                    let reading = state.machine.read();
                    figures.show(name, state.machine.package_cap(), state.machine.throttle_pct(), &reading);
                    figures.show_power(name, &state.machine);
                }
            }
            // Stepping a thousand machines at a high speed takes a while: let other tasks run in between.
            tokio::task::yield_now().await;
        }
        if over {
            finished.notify_one();
        }
        if untold {
            switched.notify_one();
        }
    }
}
