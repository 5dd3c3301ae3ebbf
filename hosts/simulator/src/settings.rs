//! The simulator's settings.

use crate::fleet::Fleet;
use crate::machine::SwitchTimes;
use crate::workload::Mix;
use host_kit::bearer::TokenFile;
use host_kit::clock::micros;
use host_kit::config::{ConfigSetting, Listen, Refusals, Retired, SettingsTable, Values, Wrong, parse};
use host_kit::program::{DEBUG_TOKEN, KUBECONFIG, LOG_FORMAT, LOG_LEVEL, SHUTDOWN_TIMEOUT};
use host_kit::server::{TlsFiles, settings as tls};
use std::path::PathBuf;
use std::time::Duration;

const FLEET: ConfigSetting<Fleet> = ConfigSetting::with_default(
    "SIM_FLEET",
    "xeon:6,epyc:4,gpu:2",
    |text| Fleet::parse(text).map_err(|error| Wrong(error.to_string())),
    "KIND:COUNT, separated by commas; kinds are xeon, epyc, gpu and amd-gpu",
    "Which nodes there are",
);

const FLEET_FILE: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "SIM_FLEET_FILE",
    |text| parse::path(text).map(Some),
    "the path of a file",
    "Which nodes there are, as JSON with kinds of one's own; then SIM_FLEET does not count",
);

const RACKS: ConfigSetting<u32> = ConfigSetting::with_default(
    "SIM_RACKS",
    "3",
    |text| parse::whole(text, 1..=1_000),
    "a whole number from 1 to 1000",
    "Over how many racks the nodes of SIM_FLEET are spread (label joulie.io/rack)",
);

const ZONES: ConfigSetting<u32> = ConfigSetting::with_default(
    "SIM_ZONES",
    "1",
    |text| parse::whole(text, 1..=1_000),
    "a whole number from 1 to 1000",
    "Over how many cooling zones the racks of SIM_FLEET are spread (label joulie.io/cooling-zone)",
);

const ADDR: ConfigSetting<Listen> = ConfigSetting::with_default(
    "SIM_ADDR",
    ":18080",
    parse::listen,
    "an address to listen on, as in :18080 or 127.0.0.1:18080",
    "Where telemetry, controls, faults, metrics and health are served",
);

const TOKEN: ConfigSetting<Option<TokenFile>> = ConfigSetting::optional(
    "SIM_TOKEN_FILE",
    TokenFile::parse,
    "the path of a file with a token",
    "The bearer token that whoever asks for a node must show; without it everybody may. It is read for each request",
);

const SPEED: ConfigSetting<f64> = ConfigSetting::with_default(
    "SIM_SPEED",
    "1",
    |text| parse::real(text, 0.01..=1_000.0),
    "a number from 0.01 to 1000",
    "Simulated seconds in a second",
);

const SEED: ConfigSetting<u64> = ConfigSetting::with_default(
    "SIM_SEED",
    "1",
    |text| parse::whole(text, 0..=u64::MAX),
    "a whole number",
    "What chance begins with; the same seed gives the same machines and workload",
);

const HEARTBEAT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "SIM_HEARTBEAT",
    "10s",
    |text| parse::duration(text, Duration::from_millis(100)..=Duration::from_secs(30)),
    "a duration from 100ms to 30s",
    "How often each node renews its Lease; the control plane calls a node dead after 40s",
);

const CHECKPOINT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "SIM_CHECKPOINT",
    "1m",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(86_400)),
    "a duration up to 24h; 0 for never",
    "How often a running pod's progress is written into its status, for a restart after a crash",
);

const STOP_TAKES: ConfigSetting<Duration> = ConfigSetting::with_default(
    "SIM_STOP_TAKES",
    "15s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(3_600)),
    "a duration up to 1h",
    "How long a machine that is told to shut down takes until it is off, in simulated time",
);

const BOOT_TAKES: ConfigSetting<Duration> = ConfigSetting::with_default(
    "SIM_BOOT_TAKES",
    "90s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(3_600)),
    "a duration up to 1h",
    "How long a machine that is switched on takes until its node is there, in simulated time; its processors are busy for so long",
);

const STANDBY_WATTS: ConfigSetting<f64> = ConfigSetting::with_default(
    "SIM_STANDBY_WATTS",
    "12",
    |text| parse::real(text, 0.0..=1_000.0),
    "watts from 0 to 1000",
    "What a machine draws that is off: its management controller",
);

const WORKLOAD: ConfigSetting<Option<Mix>> = ConfigSetting::with_default(
    "SIM_WORKLOAD",
    "none",
    |text| Mix::parse(text).map_err(Wrong),
    "none, or MEAN-GAP/MEAN-DURATION as in 2s/60s, in simulated time",
    "A workload that comes and goes: how far apart pods are created, and how long they run, on average",
);

const WORKLOAD_NAMESPACE: ConfigSetting<String> = ConfigSetting::with_default(
    "SIM_WORKLOAD_NAMESPACE",
    "default",
    parse::object_name,
    "the name of a namespace",
    "Where the pods of SIM_WORKLOAD are created",
);

const WORKLOAD_PENDING_MAX: ConfigSetting<u32> = ConfigSetting::with_default(
    "SIM_WORKLOAD_PENDING_MAX",
    "20",
    |text| parse::whole(text, 1..=10_000),
    "a whole number from 1 to 10000",
    "No pod is created while so many of them wait for a node; those of SIM_WORKLOAD_BACKLOG do not count",
);

const WORKLOAD_BACKLOG: ConfigSetting<u32> = ConfigSetting::with_default(
    "SIM_WORKLOAD_BACKLOG",
    "0",
    |text| parse::whole(text, 0..=1_000),
    "a whole number up to 1000",
    "So many more pods of SIM_WORKLOAD wait at any time, of batch work on processors, and as many on GPUs if there are any: \
     each that is placed is replaced",
);

/// All settings.
pub const TABLE: SettingsTable = SettingsTable {
    program: "joulie-simulator",
    about: "Simulated nodes: plants behind an HTTP contract, and pods that load them.",
    settings: &[
        &FLEET,
        &FLEET_FILE,
        &RACKS,
        &ZONES,
        &ADDR,
        &TOKEN,
        &SPEED,
        &SEED,
        &HEARTBEAT,
        &CHECKPOINT,
        &STOP_TAKES,
        &BOOT_TAKES,
        &STANDBY_WATTS,
        &WORKLOAD,
        &WORKLOAD_NAMESPACE,
        &WORKLOAD_PENDING_MAX,
        &WORKLOAD_BACKLOG,
        &KUBECONFIG,
        &LOG_LEVEL,
        &LOG_FORMAT,
        &DEBUG_TOKEN,
        &tls::TLS_CERT_FILE,
        &tls::TLS_KEY_FILE,
        &tls::TLS_CLIENT_CA_FILE,
        &SHUTDOWN_TIMEOUT,
    ],
    retired: UPSTREAMS,
    families: &["SIM_", "TLS_", "METRICS_TLS_"],
};

/// The settings of upstream's simulator. Its values files also start this simulator, which uses a different model of
/// a node.
const UPSTREAMS: &[Retired] = &[
    Retired { name: "SIM_K8S_POD_WATCH", note: "pods are always watched" },
    Retired { name: "SIM_POLL_INTERVAL", note: "pods are watched" },
    Retired {
        name: "SIM_NODE_SELECTOR",
        note: "the nodes are those of SIM_FLEET, and no others are simulated",
    },
    Retired { name: "SIM_NODE_CLASS_CONFIG", note: "SIM_FLEET_FILE describes kinds of nodes" },
    Retired { name: "SIM_HARDWARE_CATALOG_PATH", note: "the catalogue is built in" },
    Retired {
        name: "SIM_WORKLOAD_TRACE_PATH",
        note: "`joulie replay` runs traces in virtual time; here SIM_WORKLOAD makes a workload",
    },
    Retired {
        name: "SIM_FACILITY_*",
        note: "SIM_ZONES has the cooling zones; no other part of a facility is simulated",
    },
    Retired {
        name: "SIM_STANDALONE*",
        note: "there is no mode without an API server; `joulie demo` brings one",
    },
    Retired { name: "SIM_SA_*", note: "there is no mode without an API server; `joulie demo` brings one" },
    Retired {
        name: "SIM_*",
        note: "this simulator has no such setting; `joulie-simulator --help` lists what there is",
    },
];

/// The simulator's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The simulated nodes.
    pub fleet: Fleet,
    /// The address for telemetry and controls.
    pub listen: Listen,
    /// Simulated seconds per real second.
    pub speed: f64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// How often each node renews its Lease.
    pub heartbeat: Duration,
    /// How often progress is recorded; `None` for never.
    pub checkpoint: Option<Duration>,
    /// How machines are switched off and on.
    pub switching: SwitchTimes,
    /// The generated workload, if any.
    pub workload: Option<Workload>,
    /// The token that allows access to the pages under /debug from other addresses.
    pub debug_token: Option<String>,
    /// TLS of the port.
    pub tls: Option<TlsFiles>,
    /// What whoever asks for a node must show.
    pub token: Option<TokenFile>,
}

/// A generated workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The mix of its pods.
    pub mix: Mix,
    /// The namespace of its pods.
    pub namespace: String,
    /// No pod is created while this many wait for a node.
    pub pending_max: u32,
    /// So many pods of batch work wait at any time.
    pub backlog: u32,
}

impl Settings {
    /// This fleet on a free local port, at real-time speed, without a workload.
    #[must_use]
    pub fn of(fleet: Fleet) -> Self {
        Self {
            fleet,
            listen: Listen::At(([127, 0, 0, 1], 0).into()),
            speed: 1.0,
            seed: 1,
            heartbeat: Duration::from_secs(10),
            checkpoint: Some(Duration::from_secs(60)),
            switching: SwitchTimes::USUAL,
            workload: None,
            debug_token: None,
            tls: None,
            token: None,
        }
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// If the named file cannot be read or contains no valid fleet.
    pub fn read(values: &Values) -> Result<Self, Refusals> {
        let fleet = match values.get(&FLEET_FILE)? {
            None => Fleet { racks: values.get(&RACKS)?, zones: values.get(&ZONES)?, ..values.get(&FLEET)? },
            Some(path) => {
                let text = std::fs::read_to_string(&path);
                let text = text.map_err(|error| format!("the file cannot be read: {error}"));
                let fleet = text.and_then(|text| Fleet::from_json(&text).map_err(|error| error.to_string()));
                fleet.map_err(|why| values.conflict(&[FLEET_FILE.name()], &why))?
            }
        };
        let (namespace, pending_max) = (values.get(&WORKLOAD_NAMESPACE)?, values.get(&WORKLOAD_PENDING_MAX)?);
        let backlog = values.get(&WORKLOAD_BACKLOG)?;
        let workload = values.get(&WORKLOAD)?.map(|mix| Workload {
            mix: Mix { gpus: fleet.gpus(), ..mix },
            namespace,
            pending_max,
            backlog,
        });
        Ok(Self {
            fleet,
            listen: values.get(&ADDR)?,
            speed: values.get(&SPEED)?,
            seed: values.get(&SEED)?,
            heartbeat: values.get(&HEARTBEAT)?,
            checkpoint: Some(values.get(&CHECKPOINT)?).filter(|every| !every.is_zero()),
            switching: SwitchTimes {
                stops_in: micros(values.get(&STOP_TAKES)?),
                boots_in: micros(values.get(&BOOT_TAKES)?),
                standby_watts: values.get(&STANDBY_WATTS)?,
            },
            workload,
            debug_token: values.get(&DEBUG_TOKEN)?,
            tls: tls::work_tls(values)?,
            token: values.get(&TOKEN)?,
        })
    }
}

#[cfg(test)]
mod tests;
