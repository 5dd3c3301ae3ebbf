//! The agent's settings. The names are those of the first implementation, where it had them. Values that it silently
//! took for something else (a typo for the host's own hardware, a bad duration for a default) are refused here.

mod energy;
mod gpus;
mod meter;
mod own;
mod pool;
pub(crate) mod standalone;
mod table;
mod telemetry;
mod tuning;

pub use pool::Shards;
pub use standalone::STANDALONE_TABLE;
pub use table::TABLE;
pub use telemetry::{ControlPreference, HttpTerms, NodeEndpoint, NodeRouting};

use crate::energy::EnergySettings;
use crate::gpus::GpuSettings;
use crate::metrics::PowerDetail;
use crate::plug::PlugSettings;
use host_kit::config::{Listen, Refusals, Values};
use host_kit::program;
use host_kit::reflect::HEARD_WITHIN;
use host_kit::server::settings::{self as tls, MetricsPort};
use joulie_core::node::cap::{CapIntent, Floor};
use joulie_core::node::engine::LoopLaw;
use kube::core::Selector;
use planner::catalog::Catalog;
use power_units::KiloHertz;
use std::path::PathBuf;
use std::time::Duration;

/// For which nodes the agent works, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMode {
    /// For the node that it runs on.
    Daemonset,
    /// For many nodes, over HTTP.
    Pool,
}

/// Which kind of object carries the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredSource {
    /// NodePowerProfile.
    Profile,
    /// NodeTwin.
    Twin,
}

/// What happens to the limits when the agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExit {
    /// They stay: a rollout must not lift a rack to full power.
    Keep,
    /// The originals are restored.
    Restore,
}

/// What happens to the caps when nobody confirms the desired state any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseExpiry {
    /// They stay in force.
    Hold,
    /// The originals are restored, one node after the other.
    Relax,
    /// The safe profile takes their place.
    Safe,
}

/// Who confirms the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSource {
    /// The API server, by a watch that is alive.
    Watch,
    /// The operator, by the plan's Lease.
    Plan,
}

/// The law of the DVFS fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DvfsLaw {
    /// The law with smoothing, hysteresis, trip count, cooldown and steps.
    Classic,
    /// The law that models the machine.
    Tracking,
}

/// The shortest term of a lease that a watch renews and whose end changes caps.
const WATCH_TERM_LEAST: Duration = Duration::from_secs(120);

const _: () = assert!(
    WATCH_TERM_LEAST.as_secs() >= HEARD_WITHIN.as_secs(),
    "no lease may end while the server answers: a watch that fell silent is begun anew before"
);

/// The agent's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For which nodes it works.
    pub target: AgentTarget,
    /// What applies to every endpoint of a node.
    pub http: HttpTerms,
    /// How often machines are read.
    pub period: Duration,
    /// Whether hardware is only read.
    pub simulate_only: bool,
    /// How exactly the metrics show power.
    pub power_detail: PowerDetail,
    /// Where metrics are served.
    pub metrics: Listen,
    /// TLS there, and who may read them.
    pub metrics_port: MetricsPort,
    /// Which nodes are managed.
    pub selector: Selector,
    /// Which kind carries the desired state.
    pub desired: DesiredSource,
    /// What happens to the limits when the agent ends.
    pub on_exit: OnExit,
    /// What happens when nobody confirms the desired state.
    pub lease: LeaseSettings,
    /// The lowest caps that are ever set.
    pub floors: Floors,
    /// The closed loop.
    pub dvfs: Dvfs,
    /// How often power is published.
    pub power: PowerPublish,
    /// The known models of hardware.
    pub catalog: Catalog,
    /// The energy ledger, if there is to be one.
    pub energy: Option<EnergySettings>,
    /// The node's own meter, for the host's own hardware.
    pub plug: PlugSettings,
    /// How GPU objects are kept, if they are.
    pub gpus: Option<GpuSettings>,
    /// Who may see the pages under /debug.
    pub debug_token: Option<String>,
    /// Where Leases are.
    pub namespace: String,
    /// The folder that keeps the grants of nodes over HTTP, if they are kept.
    pub state: Option<PathBuf>,
}

/// For which nodes the agent works.
#[derive(Clone, Debug)]
pub enum AgentTarget {
    /// One node, by its own hardware.
    Host {
        /// Its name.
        node: String,
        /// Its hardware.
        machine: MachineSettings,
    },
    /// One node, over HTTP.
    Remote {
        /// Its name.
        node: String,
        /// Its endpoints.
        routing: NodeRouting,
        /// Its hardware, to which a TelemetryProfile may send the agent.
        machine: MachineSettings,
    },
    /// Many nodes, over HTTP.
    Pool {
        /// Their endpoints.
        routing: NodeRouting,
        /// Which shard of them.
        shards: Shards,
        /// The pod's name, if it is known.
        pod: Option<String>,
        /// How many requests may run at once.
        concurrency: usize,
    },
}

/// The host's own hardware.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// The root of its files; `None`: this machine.
    pub root: Option<PathBuf>,
    /// Where the originals are kept.
    pub state: PathBuf,
    /// Whether registers may be used.
    pub registers: node_kit::RegisterAccess,
    /// NVIDIA's library.
    pub nvml: Option<PathBuf>,
    /// AMD's library.
    pub rocm: Option<PathBuf>,
    /// Whether the processors are controlled.
    pub cpu: bool,
    /// Whether the GPUs are controlled.
    pub gpu: bool,
}

/// The lowest caps that are ever set, whatever the API says.
#[derive(Clone, Copy, Debug)]
pub struct Floors {
    /// The least cap of a package.
    pub cpu: Floor,
    /// The least cap of a GPU.
    pub gpu: Floor,
}

/// The lease on the desired state.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSettings {
    /// What happens at its end.
    pub expiry: LeaseExpiry,
    /// Who renews it.
    pub source: LeaseSource,
    /// For how long it holds.
    pub term: Duration,
    /// The safe profile of the packages.
    pub safe_cpu: CapIntent,
    /// The safe profile of the GPUs.
    pub safe_gpu: CapIntent,
}

/// The closed loop.
#[derive(Clone, Debug)]
pub struct Dvfs {
    /// Its law, with the law's tuning.
    pub law: LoopLaw,
    /// The lowest limit that a throttle sets.
    pub floor: Option<KiloHertz>,
    /// What the log says of it at start: which law was chosen for what reason, or what has no effect.
    pub note: Option<String>,
}

/// How often power is published.
#[derive(Clone, Copy, Debug)]
pub struct PowerPublish {
    /// At most once in this time.
    pub interval: Duration,
    /// At the latest after this time.
    pub heartbeat: Option<Duration>,
}

impl Settings {
    /// Interprets the values of [`TABLE`].
    pub fn read(values: &Values) -> Result<Self, Refusals> {
        let heartbeat = values.get(&own::POWER_PUBLISH_HEARTBEAT)?;
        let (target, energy) = (target(values)?, energy::read(values)?);
        if energy.is_some() && !matches!(target, AgentTarget::Host { .. }) {
            return Err(values.conflict(
                &[energy::LEDGER.name(), own::MODE.name()],
                "processor time of pods is read from the machine itself: the ledger is for mode daemonset and the host's own hardware",
            ));
        }
        let plug = meter::read(values)?;
        if plug.redfish.is_some() && !matches!(target, AgentTarget::Host { .. }) {
            return Err(values.conflict(
                &[meter::ORDER.name(), own::MODE.name()],
                "the meter of the whole node is read for mode daemonset and the host's own hardware",
            ));
        }
        let gpus = gpus::read(values)?;
        if gpus.is_some() && !matches!(target, AgentTarget::Host { .. }) {
            return Err(values.conflict(
                &[gpus::OBJECTS.name(), own::MODE.name()],
                "cards are listed by the machine's own drivers: GPU objects are for mode daemonset and the host's own hardware",
            ));
        }
        Ok(Self {
            target,
            gpus,
            http: HttpTerms::read(values)?,
            energy,
            plug,
            period: values.get(&own::PERIOD)?,
            simulate_only: values.get(&own::SIMULATE_ONLY)?,
            power_detail: values.get(&own::POWER_METRICS)?,
            metrics: values.get(&own::METRICS_ADDR)?,
            metrics_port: tls::metrics_port(values)?,
            selector: values.get(&own::NODE_SELECTOR)?,
            desired: values.get(&own::DESIRED_SOURCE)?,
            on_exit: values.get(&own::ON_EXIT)?,
            lease: lease(values)?,
            floors: Floors {
                cpu: values.get(&own::CPU_CAP_FLOOR_WATTS)?.unwrap_or(Floor::NONE),
                gpu: values.get(&own::GPU_CAP_FLOOR_WATTS)?.unwrap_or(Floor::NONE),
            },
            dvfs: tuning::read(values)?,
            power: PowerPublish {
                interval: values.get(&own::POWER_PUBLISH_INTERVAL)?,
                heartbeat: Some(heartbeat).filter(|heartbeat| *heartbeat > Duration::ZERO),
            },
            catalog: catalog(values)?,
            debug_token: values.get(&program::DEBUG_TOKEN)?,
            namespace: values.get(&program::NAMESPACE)?,
            state: values.get(&own::STATE_DIR)?,
        })
    }

    /// Which agent this is, for people: its node, or the pod of a pool.
    #[must_use]
    pub fn instance(&self) -> &str {
        match &self.target {
            AgentTarget::Host { node, .. } | AgentTarget::Remote { node, .. } => node,
            AgentTarget::Pool { pod, .. } => pod.as_deref().unwrap_or("joulie-agent-pool"),
        }
    }

    /// The file in which the last grant of a node is kept.
    #[must_use]
    pub fn kept_grant(&self, node: &str) -> Option<PathBuf> {
        match &self.target {
            AgentTarget::Host { machine, .. } => Some(node_kit::Kept::file(&machine.state)),
            // The name of a Node also serves as the name of the file.
            AgentTarget::Remote { .. } | AgentTarget::Pool { .. } => {
                let folder = self.kept_grants()?;
                (!node.contains('/')).then(|| folder.join(format!("{node}.json")))
            }
        }
    }

    /// The folder with the last grant of each node that is reached over HTTP.
    #[must_use]
    pub fn kept_grants(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|state| state.join("grants"))
    }
}

fn target(values: &Values) -> Result<AgentTarget, Refusals> {
    match values.get(&own::MODE)? {
        AgentMode::Pool => Ok(AgentTarget::Pool {
            routing: telemetry::remote(values)?,
            shards: pool::read(values)?,
            pod: values.get(&pool::POD_NAME)?,
            concurrency: values.get(&pool::CONCURRENCY)?,
        }),
        AgentMode::Daemonset => {
            let node = values.get(&own::NODE_NAME)?.ok_or_else(|| {
                values.conflict(
                    &[own::NODE_NAME.name(), own::MODE.name()],
                    "mode daemonset needs the name of its node; set it from spec.nodeName",
                )
            })?;
            match telemetry::host(values)? {
                telemetry::Host::Own { cpu, gpu } => {
                    Ok(AgentTarget::Host { node, machine: MachineSettings { cpu, gpu, ..machine(values)? } })
                }
                telemetry::Host::Remote(routing) => {
                    Ok(AgentTarget::Remote { node, routing, machine: machine(values)? })
                }
            }
        }
    }
}

fn catalog(values: &Values) -> Result<Catalog, Refusals> {
    let file = values.get(&own::HARDWARE_CATALOG_PATH)?;
    let catalog = catalog_file::load(file.as_deref());
    catalog.map_err(|error| values.conflict(&[own::HARDWARE_CATALOG_PATH.name()], &error.to_string()))
}

/// The host's own hardware, as `restore` needs it too.
pub fn machine(values: &Values) -> Result<MachineSettings, Refusals> {
    let root = values.get(&own::HOST_ROOT)?.filter(|root| root != std::path::Path::new("/"));
    let state = values.get(&own::STATE_DIR)?.unwrap_or_else(|| match &root {
        None => PathBuf::from("/var/lib/joulie"),
        Some(root) => {
            let mut beside = root.as_os_str().to_owned();
            beside.push(".joulie");
            PathBuf::from(beside)
        }
    });
    Ok(MachineSettings {
        root,
        state,
        registers: values.get(&own::REGISTERS)?,
        nvml: values.get(&own::NVML_PATH)?,
        rocm: values.get(&own::ROCM_SMI_PATH)?,
        cpu: true,
        gpu: true,
    })
}

fn lease(values: &Values) -> Result<LeaseSettings, Refusals> {
    let expiry = values.get(&own::LEASE_EXPIRY)?;
    let (cpu, gpu) = (values.get(&own::SAFE_CPU_CAP_PCT)?, values.get(&own::SAFE_GPU_CAP_PCT)?);
    if expiry == LeaseExpiry::Safe && cpu.is_none() && gpu.is_none() {
        return Err(values.conflict(
            &[own::LEASE_EXPIRY.name(), own::SAFE_CPU_CAP_PCT.name(), own::SAFE_GPU_CAP_PCT.name()],
            "LEASE_EXPIRY=safe needs a safe profile: set SAFE_CPU_CAP_PCT, SAFE_GPU_CAP_PCT, or both",
        ));
    }
    let (source, term) = (values.get(&own::LEASE_SOURCE)?, values.get(&own::SPEC_READ_TIMEOUT)?);
    if source == LeaseSource::Watch && expiry != LeaseExpiry::Hold && term < WATCH_TERM_LEAST {
        return Err(values.conflict(
            &[own::LEASE_EXPIRY.name(), own::SPEC_READ_TIMEOUT.name()],
            "where nothing changes the API server gives a sign of life each minute or so; use 2m or more",
        ));
    }
    Ok(LeaseSettings {
        expiry,
        source,
        term,
        safe_cpu: cpu.unwrap_or(CapIntent::NONE),
        safe_gpu: gpu.unwrap_or(CapIntent::NONE),
    })
}

#[cfg(test)]
mod tests;
