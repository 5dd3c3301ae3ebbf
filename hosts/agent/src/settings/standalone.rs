//! The settings of an agent without a cluster: the caps, and those of the agent's that are about the machine itself.

use super::{AgentTarget, DesiredSource, Floors, LeaseExpiry, LeaseSettings, LeaseSource, MachineSettings};
use super::{HttpTerms, PowerPublish, Settings, meter, own, telemetry, tuning};
use host_kit::config::{ConfigSetting, Refusals, SettingsTable, Values, Wrong, parse};
use host_kit::program;
use host_kit::server::MetricsAuth;
use host_kit::server::settings as tls;
use joulie_core::node::cap::{CapIntent, Floor};
use kube::core::Selector;
use power_units::{Role, Watts};
use std::path::PathBuf;
use std::time::Duration;

/// What an agent without a cluster is told.
#[derive(Clone, Debug)]
pub(crate) struct Standalone {
    /// The agent's settings, of which those of a cluster have no effect.
    pub(crate) settings: Settings,
    /// The name of the machine, for metrics and the status.
    pub(crate) node: String,
    /// Its hardware.
    pub(crate) machine: MachineSettings,
    /// Where the status is written.
    pub(crate) status: PathBuf,
    /// What takes effect at a start alone, as text to compare.
    pub(crate) fixed: String,
}

/// What the file asks of the machine, at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) cpu: CapIntent,
    pub(crate) gpu: CapIntent,
}

impl std::fmt::Display for Caps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = |cap: CapIntent| match cap {
            CapIntent { watts: Some(watts), .. } => format!("{watts} W"),
            CapIntent { watts: None, percent: Some(percent) } => format!("{percent} %"),
            CapIntent { watts: None, percent: None } => "none".to_owned(),
        };
        write!(f, "the cap of each package is {}, of each GPU {}", words(self.cpu), words(self.gpu))
    }
}

// Both are required: a file that was cut off, or is empty, must not read as "no caps".
const CPU_CAP: ConfigSetting<CapIntent> = ConfigSetting::required(
    "CPU_CAP",
    "say none for no cap: a file that is empty or cut off lifts none",
    cap,
    "none, watts (150W) or a percentage (80%)",
    "The cap of each package: none, watts, or a part of the most that it can be set to",
);
const GPU_CAP: ConfigSetting<CapIntent> = ConfigSetting::required(
    "GPU_CAP",
    "say none for no cap: a file that is empty or cut off lifts none",
    cap,
    "none, watts (350W) or a percentage (70%)",
    "The cap of each GPU: none, watts, or a part of the most that it can be set to; none where there is no GPU",
);
const STATUS_FILE: ConfigSetting<PathBuf> = ConfigSetting::with_default(
    "STATUS_FILE",
    "/run/joulie/agent.json",
    parse::path,
    "the path of a file",
    "Where the status is written, as JSON; each time the whole file is replaced",
);

/// All settings of an agent without a cluster.
pub static STANDALONE_TABLE: SettingsTable = SettingsTable {
    program: "joulie-agent --standalone FILE",
    about: "caps the CPUs and GPUs of this machine as FILE says, without a cluster; CPU_CAP and GPU_CAP take effect when the file \
            changes, the others at a start",
    settings: &[
        &CPU_CAP,
        &GPU_CAP,
        &STATUS_FILE,
        &own::NODE_NAME,
        &own::PERIOD,
        &own::SIMULATE_ONLY,
        &own::POWER_METRICS,
        &own::METRICS_ADDR,
        &own::ON_EXIT,
        &own::HARDWARE_CATALOG_PATH,
        &meter::ORDER,
        &meter::INTERVAL,
        &meter::REDFISH_URL,
        &meter::REDFISH_CA,
        &meter::REDFISH_TOKEN,
        &meter::REDFISH_USER,
        &meter::REDFISH_PASSWORD,
        &own::CPU_CAP_FLOOR_WATTS,
        &own::GPU_CAP_FLOOR_WATTS,
        &own::STATE_DIR,
        &own::HOST_ROOT,
        &own::REGISTERS,
        &own::NVML_PATH,
        &own::ROCM_SMI_PATH,
        &tuning::LAW,
        &tuning::EMA_ALPHA,
        &tuning::HIGH_MARGIN,
        &tuning::LOW_MARGIN,
        &tuning::STEP,
        &tuning::MIN_FREQ,
        &tuning::COOLDOWN,
        &tuning::TRIP_COUNT,
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
        &telemetry::TOKEN,
        &program::LOG_LEVEL,
        &program::LOG_FORMAT,
        &program::DEBUG_TOKEN,
        &tls::METRICS_TLS_CERT_FILE,
        &tls::METRICS_TLS_KEY_FILE,
        &tls::METRICS_AUTH,
        &program::SHUTDOWN_TIMEOUT,
    ],
    retired: &[],
    families: &["NODE_METER", "DVFS_", "TELEMETRY_", "TLS_", "METRICS_"],
};

fn cap(text: &str) -> Result<CapIntent, Wrong> {
    if text.trim() == "none" {
        return Ok(CapIntent::NONE);
    }
    if let Some(percent) = text.trim().strip_suffix('%') {
        return parse::percent(percent.trim()).and_then(own::percent_intent);
    }
    let watts = text.trim().strip_suffix('W').ok_or_else(|| Wrong("its unit is missing".to_owned()))?;
    let watts = parse::watts(watts.trim(), Role::Limit, Watts::ZERO..=Watts::from_int(10_000))?;
    if watts > Watts::ZERO {
        Ok(CapIntent::of_watts(watts))
    } else {
        Err(Wrong("it is not above 0".to_owned()))
    }
}

/// The caps that the file asks for.
pub(crate) fn caps(values: &Values) -> Result<Caps, Refusals> {
    Ok(Caps { cpu: values.get(&CPU_CAP)?, gpu: values.get(&GPU_CAP)? })
}

/// What takes effect at a start alone.
pub(crate) fn fixed(values: &Values) -> String {
    let caps = [CPU_CAP.name(), GPU_CAP.name()];
    let is_cap =
        |line: &&str| caps.iter().any(|cap| line.split_once('=').is_some_and(|(name, _)| name == *cap));
    // Where a value is from does not matter: a line that moves within the file changes nothing.
    let text = values.render();
    let lines = text.lines().filter(|line| !is_cap(line));
    lines.map(|line| line.rsplit_once(" (").map_or(line, |(value, _)| value)).collect::<Vec<_>>().join("\n")
}

/// Reads the settings of an agent without a cluster.
pub(crate) fn read(values: &Values) -> Result<Standalone, Refusals> {
    let telemetry::Host::Own { cpu, gpu } = telemetry::host(values)? else {
        let names =
            [telemetry::CPU_SOURCE.name(), telemetry::CPU_CONTROL.name(), telemetry::GPU_CONTROL.name()];
        return Err(values
            .conflict(&names, "without a cluster the agent works for its own hardware; use host or none"));
    };
    let machine = MachineSettings { cpu, gpu, ..super::machine(values)? };
    let metrics_port = tls::metrics_port(values)?;
    if metrics_port.auth == MetricsAuth::Token {
        return Err(values
            .conflict(&[tls::METRICS_AUTH.name()], "tokens are checked by a cluster, and there is none"));
    }
    caps(values)?;
    let node = values.get(&own::NODE_NAME)?.unwrap_or_else(|| "this-machine".to_owned());
    let settings = Settings {
        target: AgentTarget::Host { node: node.clone(), machine: machine.clone() },
        http: HttpTerms::NONE,
        catalog: super::catalog(values)?,
        period: values.get(&own::PERIOD)?,
        simulate_only: values.get(&own::SIMULATE_ONLY)?,
        power_detail: values.get(&own::POWER_METRICS)?,
        metrics: values.get(&own::METRICS_ADDR)?,
        metrics_port,
        selector: Selector::default(),
        desired: DesiredSource::Profile,
        on_exit: values.get(&own::ON_EXIT)?,
        // The file confirms what it says; when it cannot be read any more, the caps hold.
        lease: LeaseSettings {
            expiry: LeaseExpiry::Hold,
            source: LeaseSource::Watch,
            term: Duration::from_secs(300),
            safe_cpu: CapIntent::NONE,
            safe_gpu: CapIntent::NONE,
        },
        floors: Floors {
            cpu: values.get(&own::CPU_CAP_FLOOR_WATTS)?.unwrap_or(Floor::NONE),
            gpu: values.get(&own::GPU_CAP_FLOOR_WATTS)?.unwrap_or(Floor::NONE),
        },
        dvfs: tuning::read(values)?,
        power: PowerPublish { interval: Duration::ZERO, heartbeat: None },
        energy: None,
        plug: meter::read(values)?,
        gpus: None,
        debug_token: values.get(&program::DEBUG_TOKEN)?,
        namespace: String::new(),
        state: None,
    };
    Ok(Standalone { settings, node, machine, status: values.get(&STATUS_FILE)?, fixed: fixed(values) })
}
