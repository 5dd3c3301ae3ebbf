//! What the agent can be told. The names are those of the first implementation where it had them; what it took silently
//! for something else (a typo for the host's own hardware, a bad duration for a default) is refused here.

mod pool;
mod telemetry;
mod tuning;

pub use pool::Shards;
pub use telemetry::{Endpoint, Preference, Routing};

use host_kit::config::{Listen, Refusals, Retired, Setting, Table, Values, Wrong, parse};
use host_kit::program;
use joulie_core::node::cap::{CapIntent, Floor};
use joulie_core::node::classic::Classic;
use kube::core::Selector;
use power_units::{KiloHertz, Watts};
use std::path::PathBuf;
use std::time::Duration;

/// For which nodes the agent works, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
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
    /// The originals come back.
    Restore,
}

/// What happens to the caps when nobody confirms the desired state any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseExpiry {
    /// They hold.
    Hold,
    /// The originals come back, a node after the other.
    Relax,
    /// The safe profile takes their place.
    Safe,
}

/// Who confirms the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSource {
    /// The API server, by a watch that lives.
    Watch,
    /// The operator, by the plan's Lease.
    Plan,
}

/// Which law the DVFS fallback has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DvfsLaw {
    /// That of the seeds.
    Classic,
    /// The one that models the machine.
    Tracking,
}

const MODE: Setting<Mode> = Setting::with_default(
    "AGENT_MODE",
    "daemonset",
    |text| parse::one_of(text, &[("daemonset", Mode::Daemonset), ("pool", Mode::Pool)]),
    "daemonset or pool",
    "Whether the agent works for its own node, or over HTTP for many",
);
const NODE_NAME: Setting<Option<String>> = Setting::optional(
    "NODE_NAME",
    |text| parse::object_name(text).map(Some),
    "the name of a node",
    "The agent's node in mode daemonset; set it from spec.nodeName",
);
const PERIOD: Setting<Duration> = Setting::with_default(
    "RECONCILE_INTERVAL",
    "1s",
    |text| parse::duration(text, Duration::from_millis(100)..=Duration::from_secs(60)),
    "a duration between 100ms and 1m",
    "How often the machine is read and its closed loop steps; a change of the desired state waits for none",
);
const SIMULATE_ONLY: Setting<bool> = Setting::with_default(
    "SIMULATE_ONLY",
    "false",
    parse::boolean,
    "true or false",
    "Only looks at the hardware and says what is desired; nothing is written to it",
);
const METRICS_ADDR: Setting<Listen> = Setting::with_default(
    "METRICS_ADDR",
    ":8080",
    parse::listen,
    "HOST:PORT or :PORT",
    "Where /metrics, /livez and /readyz are served",
);
const NODE_SELECTOR: Setting<Selector> = Setting::with_default(
    "POOL_NODE_SELECTOR",
    "joulie.io/managed=true",
    parse::selector,
    "a label selector",
    "Which nodes are managed, in both modes; a node that is not selected any more gets its originals back",
)
.or_called(&["NODE_SELECTOR"]);
const DESIRED_SOURCE: Setting<DesiredSource> = Setting::with_default(
    "DESIRED_SOURCE",
    "profile",
    |text| parse::one_of(text, &[("profile", DesiredSource::Profile), ("twin", DesiredSource::Twin)]),
    "profile or twin",
    "Which kind carries the desired state: NodePowerProfile, or NodeTwin as in clusters of v0.1; one per cluster",
);
const ON_EXIT: Setting<OnExit> = Setting::with_default(
    "ON_EXIT",
    "keep",
    |text| parse::one_of(text, &[("keep", OnExit::Keep), ("restore", OnExit::Restore)]),
    "keep or restore",
    "What happens to the limits when the agent ends",
);
const LEASE_EXPIRY: Setting<LeaseExpiry> = Setting::with_default(
    "LEASE_EXPIRY",
    "hold",
    |text| {
        let words = [("hold", LeaseExpiry::Hold), ("relax", LeaseExpiry::Relax), ("safe", LeaseExpiry::Safe)];
        parse::one_of(text, &words)
    },
    "hold, relax or safe",
    "What happens to the caps when nobody has confirmed the desired state for SPEC_READ_TIMEOUT",
);
const LEASE_SOURCE: Setting<LeaseSource> = Setting::with_default(
    "LEASE_SOURCE",
    "watch",
    |text| parse::one_of(text, &[("watch", LeaseSource::Watch), ("plan", LeaseSource::Plan)]),
    "watch or plan",
    "Who confirms the desired state: a watch that lives, or the plan's Lease, which the operator renews",
);
const SPEC_READ_TIMEOUT: Setting<Duration> = Setting::with_default(
    "SPEC_READ_TIMEOUT",
    "5m",
    |text| parse::duration(text, Duration::from_secs(10)..=Duration::from_secs(86_400)),
    "a duration between 10s and 24h",
    "For how long the desired state counts as known after it was last confirmed",
);
const SAFE_CPU_CAP_PCT: Setting<Option<CapIntent>> = Setting::optional(
    "SAFE_CPU_CAP_PCT",
    |text| parse::percent(text).and_then(percent_intent).map(Some),
    "a percentage above 0, up to 100",
    "The cap of each package in the safe profile, in percent of the most that it can be set to",
);
const SAFE_GPU_CAP_PCT: Setting<Option<CapIntent>> = Setting::optional(
    "SAFE_GPU_CAP_PCT",
    |text| parse::percent(text).and_then(percent_intent).map(Some),
    "a percentage above 0, up to 100",
    "The cap of each GPU in the safe profile, in percent of the most that it can be set to",
);
const CPU_CAP_FLOOR_WATTS: Setting<Option<Floor>> = Setting::optional(
    "CPU_CAP_FLOOR_WATTS",
    |text| floor(text).map(Some),
    "watts from 0 to 10000",
    "No package is ever capped below this, whatever the API says, in both modes",
);
const GPU_CAP_FLOOR_WATTS: Setting<Option<Floor>> = Setting::optional(
    "GPU_CAP_FLOOR_WATTS",
    |text| floor(text).map(Some),
    "watts from 0 to 10000",
    "No GPU is ever capped below this, whatever the API says, in both modes",
);
const STATE_DIR: Setting<Option<PathBuf>> = Setting::optional(
    "STATE_DIR",
    |text| parse::path(text).map(Some),
    "the path of a folder on the host",
    "Where the originals are remembered and the writer's lock is; without it /var/lib/joulie, or HOST_ROOT.joulie",
);
const HOST_ROOT: Setting<Option<PathBuf>> = Setting::optional(
    "HOST_ROOT",
    |text| parse::path(text).map(Some),
    "the path of a folder that holds sys and dev",
    "Where the hardware is, for a host that is mounted elsewhere and for virtual hardware",
);
const REGISTERS: Setting<node_kit::Registers> = Setting::with_default(
    "MSR",
    "off",
    |text| {
        let (off, on, safe) =
            (node_kit::Registers::Off, node_kit::Registers::Msr, node_kit::Registers::MsrSafe);
        parse::one_of(text, &[("off", off), ("msr", on), ("msr-safe", safe)])
    },
    "off, msr or msr-safe",
    "Whether power limits may be set by registers where powercap has none; that taints the kernel",
);
const NVML_PATH: Setting<Option<PathBuf>> = Setting::optional(
    "NVML_PATH",
    |text| parse::path(text).map(Some),
    "the path of a file",
    "NVIDIA's library, where the loader does not find it",
);
const POWER_PUBLISH_INTERVAL: Setting<Duration> = Setting::with_default(
    "POWER_PUBLISH_INTERVAL",
    "5s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(3600)),
    "a duration up to 1h",
    "Measured power that has moved is published at most once in this time",
);
const POWER_PUBLISH_HEARTBEAT: Setting<Duration> = Setting::with_default(
    "POWER_PUBLISH_HEARTBEAT",
    "5m",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(86_400)),
    "a duration up to 24h; 0 is never",
    "Measured power is published at the latest after this time",
);

const WATCH_TERM_LEAST: Duration = Duration::from_secs(120);

fn percent_intent(percent: power_units::Percent) -> Result<CapIntent, Wrong> {
    if percent > power_units::Percent::ZERO {
        Ok(CapIntent::of_percent(percent))
    } else {
        Err(Wrong("it is not above 0".to_owned()))
    }
}

fn floor(text: &str) -> Result<Floor, Wrong> {
    let most = Watts::from_int(10_000);
    let watts = parse::watts(text, power_units::Role::Demand, Watts::ZERO..=most)?;
    Floor::new(watts).map_err(|error| Wrong(error.to_string()))
}

/// All that the agent reads.
pub static TABLE: Table = Table {
    program: "joulie-agent",
    about: "caps CPUs and GPUs as the desired state says, and reports what really happened; `joulie-agent restore` puts \
            the originals back and ends",
    settings: &[
        &MODE,
        &NODE_NAME,
        &PERIOD,
        &SIMULATE_ONLY,
        &METRICS_ADDR,
        &NODE_SELECTOR,
        &DESIRED_SOURCE,
        &ON_EXIT,
        &LEASE_EXPIRY,
        &LEASE_SOURCE,
        &SPEC_READ_TIMEOUT,
        &SAFE_CPU_CAP_PCT,
        &SAFE_GPU_CAP_PCT,
        &CPU_CAP_FLOOR_WATTS,
        &GPU_CAP_FLOOR_WATTS,
        &STATE_DIR,
        &HOST_ROOT,
        &REGISTERS,
        &NVML_PATH,
        &POWER_PUBLISH_INTERVAL,
        &POWER_PUBLISH_HEARTBEAT,
        &tuning::LAW,
        &tuning::EMA_ALPHA,
        &tuning::HIGH_MARGIN,
        &tuning::LOW_MARGIN,
        &tuning::STEP,
        &tuning::MIN_FREQ,
        &tuning::COOLDOWN,
        &tuning::TRIP_COUNT,
        &pool::SHARDS,
        &pool::SHARD_ID,
        &pool::POD_NAME,
        &pool::CONCURRENCY,
        &telemetry::CPU_SOURCE,
        &telemetry::CPU_SOURCE_ENDPOINT,
        &telemetry::CPU_CONTROL,
        &telemetry::CPU_CONTROL_ENDPOINT,
        &telemetry::CPU_CONTROL_MODE,
        &telemetry::GPU_CONTROL,
        &telemetry::GPU_CONTROL_ENDPOINT,
        &telemetry::GPU_CONTROL_MODE,
        &telemetry::TIMEOUT_SECONDS,
        &telemetry::AUTHORITIES,
        &program::KUBECONFIG,
        &program::LOG_LEVEL,
        &program::LOG_FORMAT,
        &program::DEBUG_TOKEN,
        &program::NAMESPACE,
        &program::SHUTDOWN_TIMEOUT,
    ],
    retired: &[
        Retired { name: "KUBE_CLIENT_QPS", note: "the agent watches, and writes only what has changed" },
        Retired { name: "KUBE_CLIENT_BURST", note: "the agent watches, and writes only what has changed" },
        Retired {
            name: "HARDWARE_CATALOG_PATH",
            note: "the catalogue is the one that the agent is built with",
        },
    ],
    families: &["DVFS_", "TELEMETRY_", "POOL_", "LEASE_", "SAFE_", "POWER_PUBLISH_"],
};

/// What the agent was told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For which nodes it works.
    pub target: Target,
    /// How often machines are read.
    pub period: Duration,
    /// Whether hardware is only looked at.
    pub simulate_only: bool,
    /// Where metrics are served.
    pub metrics: Listen,
    /// Which nodes are managed.
    pub selector: Selector,
    /// Which kind carries the desired state.
    pub desired: DesiredSource,
    /// What happens to the limits at the end.
    pub on_exit: OnExit,
    /// What happens when nobody confirms the desired state.
    pub lease: Lease,
    /// Below what nothing is ever capped.
    pub floors: Floors,
    /// The tuning of the closed loop.
    pub dvfs: Dvfs,
    /// How often power is published.
    pub power: PowerPublish,
    /// Who may see the pages under /debug.
    pub debug_token: Option<String>,
    /// Where Leases are.
    pub namespace: String,
}

/// For which nodes the agent works.
#[derive(Clone, Debug)]
pub enum Target {
    /// For one, by its own hardware.
    Host {
        /// Its name.
        node: String,
        /// Its hardware.
        machine: Machine,
    },
    /// For one, over HTTP.
    Remote {
        /// Its name.
        node: String,
        /// Where.
        routing: Routing,
    },
    /// For many, over HTTP.
    Pool {
        /// Where.
        routing: Routing,
        /// Which part of them.
        shards: Shards,
        /// So many requests at once.
        concurrency: usize,
    },
}

/// The host's own hardware.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where it is; none: this machine.
    pub root: Option<PathBuf>,
    /// Where the originals are remembered.
    pub state: PathBuf,
    /// Whether registers may be used.
    pub registers: node_kit::Registers,
    /// NVIDIA's library.
    pub nvml: Option<PathBuf>,
    /// Whether the processors are controlled.
    pub cpu: bool,
    /// Whether the GPUs are controlled.
    pub gpu: bool,
}

/// Below what nothing is ever capped, whatever the API says.
#[derive(Clone, Copy, Debug)]
pub struct Floors {
    /// The least cap of a package.
    pub cpu: Floor,
    /// The least cap of a GPU.
    pub gpu: Floor,
}

/// The lease on the desired state.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
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

/// The tuning of the closed loop.
#[derive(Clone, Copy, Debug)]
pub struct Dvfs {
    /// Which law.
    pub law: DvfsLaw,
    /// Its tuning, where it is that of the seeds.
    pub classic: Classic,
    /// The lowest limit that a throttle sets.
    pub floor: Option<KiloHertz>,
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
    /// What the values of [`TABLE`] mean.
    pub fn read(values: &Values) -> Result<Self, Refusals> {
        let heartbeat = values.get(&POWER_PUBLISH_HEARTBEAT)?;
        Ok(Self {
            target: target(values)?,
            period: values.get(&PERIOD)?,
            simulate_only: values.get(&SIMULATE_ONLY)?,
            metrics: values.get(&METRICS_ADDR)?,
            selector: values.get(&NODE_SELECTOR)?,
            desired: values.get(&DESIRED_SOURCE)?,
            on_exit: values.get(&ON_EXIT)?,
            lease: lease(values)?,
            floors: Floors {
                cpu: values.get(&CPU_CAP_FLOOR_WATTS)?.unwrap_or(Floor::NONE),
                gpu: values.get(&GPU_CAP_FLOOR_WATTS)?.unwrap_or(Floor::NONE),
            },
            dvfs: tuning::read(values)?,
            power: PowerPublish {
                interval: values.get(&POWER_PUBLISH_INTERVAL)?,
                heartbeat: Some(heartbeat).filter(|heartbeat| *heartbeat > Duration::ZERO),
            },
            debug_token: values.get(&program::DEBUG_TOKEN)?,
            namespace: values.get(&program::NAMESPACE)?,
        })
    }
}

fn target(values: &Values) -> Result<Target, Refusals> {
    match values.get(&MODE)? {
        Mode::Pool => Ok(Target::Pool {
            routing: telemetry::remote(values)?,
            shards: pool::read(values)?,
            concurrency: values.get(&pool::CONCURRENCY)?,
        }),
        Mode::Daemonset => {
            let node = values.get(&NODE_NAME)?.ok_or_else(|| {
                values.conflict(
                    &[NODE_NAME.name(), MODE.name()],
                    "mode daemonset needs the name of its node; set it from spec.nodeName",
                )
            })?;
            match telemetry::host(values)? {
                telemetry::Host::Own { cpu, gpu } => {
                    Ok(Target::Host { node, machine: Machine { cpu, gpu, ..machine(values)? } })
                }
                telemetry::Host::Remote(routing) => Ok(Target::Remote { node, routing }),
            }
        }
    }
}

/// The host's own hardware, as `restore` needs it too.
pub fn machine(values: &Values) -> Result<Machine, Refusals> {
    let root = values.get(&HOST_ROOT)?.filter(|root| root != std::path::Path::new("/"));
    let state = values.get(&STATE_DIR)?.unwrap_or_else(|| match &root {
        None => PathBuf::from("/var/lib/joulie"),
        Some(root) => {
            let mut beside = root.as_os_str().to_owned();
            beside.push(".joulie");
            PathBuf::from(beside)
        }
    });
    Ok(Machine {
        root,
        state,
        registers: values.get(&REGISTERS)?,
        nvml: values.get(&NVML_PATH)?,
        cpu: true,
        gpu: true,
    })
}

fn lease(values: &Values) -> Result<Lease, Refusals> {
    let expiry = values.get(&LEASE_EXPIRY)?;
    let (cpu, gpu) = (values.get(&SAFE_CPU_CAP_PCT)?, values.get(&SAFE_GPU_CAP_PCT)?);
    if expiry == LeaseExpiry::Safe && cpu.is_none() && gpu.is_none() {
        return Err(values.conflict(
            &[LEASE_EXPIRY.name(), SAFE_CPU_CAP_PCT.name(), SAFE_GPU_CAP_PCT.name()],
            "LEASE_EXPIRY=safe needs a safe profile: set SAFE_CPU_CAP_PCT, SAFE_GPU_CAP_PCT, or both",
        ));
    }
    let (source, term) = (values.get(&LEASE_SOURCE)?, values.get(&SPEC_READ_TIMEOUT)?);
    if source == LeaseSource::Watch && expiry != LeaseExpiry::Hold && term < WATCH_TERM_LEAST {
        return Err(values.conflict(
            &[LEASE_EXPIRY.name(), SPEC_READ_TIMEOUT.name()],
            "where nothing changes the API server gives a sign of life each minute or so; use 2m or more",
        ));
    }
    Ok(Lease {
        expiry,
        source,
        term,
        safe_cpu: cpu.unwrap_or(CapIntent::NONE),
        safe_gpu: gpu.unwrap_or(CapIntent::NONE),
    })
}

#[cfg(test)]
mod tests;
