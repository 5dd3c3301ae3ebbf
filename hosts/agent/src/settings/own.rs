//! The agent's own settings: their names, defaults, and what they accept. Those of the pool, of telemetry and of the
//! tuning have files of their own.

use super::{AgentMode, DesiredSource, LeaseExpiry, LeaseSource, OnExit};
use crate::metrics::PowerDetail;
use host_kit::config::{ConfigSetting, Listen, Wrong, parse};
use joulie_core::node::cap::{CapIntent, Floor};
use kube::core::Selector;
use power_units::Watts;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const MODE: ConfigSetting<AgentMode> = ConfigSetting::with_default(
    "AGENT_MODE",
    "daemonset",
    |text| parse::one_of(text, &[("daemonset", AgentMode::Daemonset), ("pool", AgentMode::Pool)]),
    "daemonset or pool",
    "Whether the agent works for its own node, or over HTTP for many",
);
pub(super) const NODE_NAME: ConfigSetting<Option<String>> = ConfigSetting::optional(
    "NODE_NAME",
    |text| parse::object_name(text).map(Some),
    "the name of a node",
    "The agent's node in mode daemonset; set it from spec.nodeName",
);
pub(super) const PERIOD: ConfigSetting<Duration> = ConfigSetting::with_default(
    "RECONCILE_INTERVAL",
    "1s",
    |text| parse::duration(text, Duration::from_millis(100)..=Duration::from_secs(60)),
    "a duration between 100ms and 1m",
    "How often the machine is read and its closed loop steps; a change of the desired state waits for none",
);
pub(super) const SIMULATE_ONLY: ConfigSetting<bool> = ConfigSetting::with_default(
    "SIMULATE_ONLY",
    "false",
    parse::boolean,
    "true or false",
    "Only looks at the hardware and says what is desired; nothing is written to it",
);
pub(super) const POWER_METRICS: ConfigSetting<PowerDetail> = ConfigSetting::with_default(
    "POWER_METRICS",
    "averaged",
    |text| parse::one_of(text, &[("averaged", PowerDetail::Averaged), ("exact", PowerDetail::Exact)]),
    "averaged or exact",
    "averaged: /metrics shows the mean power of at least a second, in whole watts and joules; exact shows each reading, which can tell what runs on a processor",
);
pub(super) const METRICS_ADDR: ConfigSetting<Listen> = ConfigSetting::with_default(
    "METRICS_ADDR",
    ":8080",
    parse::listen,
    "HOST:PORT or :PORT",
    "Where /metrics, /livez and /readyz are served",
);
pub(super) const NODE_SELECTOR: ConfigSetting<Selector> = ConfigSetting::with_default(
    "POOL_NODE_SELECTOR",
    "joulie.io/managed=true",
    parse::selector,
    "a label selector",
    "Which nodes are managed, in both modes; a node that is not selected any more gets its originals back",
)
.or_called(&["NODE_SELECTOR"]);
pub(super) const DESIRED_SOURCE: ConfigSetting<DesiredSource> = ConfigSetting::with_default(
    "DESIRED_SOURCE",
    "profile",
    |text| parse::one_of(text, &[("profile", DesiredSource::Profile), ("twin", DesiredSource::Twin)]),
    "profile or twin",
    "Which kind carries the desired state: NodePowerProfile, or NodeTwin as in clusters of v0.1; one per cluster",
);
pub(super) const ON_EXIT: ConfigSetting<OnExit> = ConfigSetting::with_default(
    "ON_EXIT",
    "keep",
    |text| parse::one_of(text, &[("keep", OnExit::Keep), ("restore", OnExit::Restore)]),
    "keep or restore",
    "What happens to the limits when the agent ends: they stay, or the originals come back (not while a grant stands)",
);
pub(super) const LEASE_EXPIRY: ConfigSetting<LeaseExpiry> = ConfigSetting::with_default(
    "LEASE_EXPIRY",
    "hold",
    |text| {
        let words = [("hold", LeaseExpiry::Hold), ("relax", LeaseExpiry::Relax), ("safe", LeaseExpiry::Safe)];
        parse::one_of(text, &words)
    },
    "hold, relax or safe",
    "What happens to the caps when nobody has confirmed the desired state for SPEC_READ_TIMEOUT: they hold; they go back to \
     the originals, one node after the other (relax); or the safe profile counts. Under a grant nothing is released",
);
pub(super) const LEASE_SOURCE: ConfigSetting<LeaseSource> = ConfigSetting::with_default(
    "LEASE_SOURCE",
    "watch",
    |text| parse::one_of(text, &[("watch", LeaseSource::Watch), ("plan", LeaseSource::Plan)]),
    "watch or plan",
    "Who confirms the desired state: a watch that lives, or the plan's Lease, which the operator renews",
);
pub(super) const SPEC_READ_TIMEOUT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "SPEC_READ_TIMEOUT",
    "5m",
    |text| parse::duration(text, Duration::from_secs(10)..=Duration::from_secs(86_400)),
    "a duration between 10s and 24h",
    "For how long the desired state counts as known after it was last confirmed; at least 2m with LEASE_SOURCE=watch and \
     another LEASE_EXPIRY than hold",
);
pub(super) const SAFE_CPU_CAP_PCT: ConfigSetting<Option<CapIntent>> = ConfigSetting::optional(
    "SAFE_CPU_CAP_PCT",
    |text| parse::percent(text).and_then(percent_intent).map(Some),
    "a percentage above 0, up to 100",
    "The cap of each package in the safe profile, in percent of the most that it can be set to",
);
pub(super) const SAFE_GPU_CAP_PCT: ConfigSetting<Option<CapIntent>> = ConfigSetting::optional(
    "SAFE_GPU_CAP_PCT",
    |text| parse::percent(text).and_then(percent_intent).map(Some),
    "a percentage above 0, up to 100",
    "The cap of each GPU in the safe profile, in percent of the most that it can be set to",
);
pub(super) const CPU_CAP_FLOOR_WATTS: ConfigSetting<Option<Floor>> = ConfigSetting::optional(
    "CPU_CAP_FLOOR_WATTS",
    |text| floor(text).map(Some),
    "watts from 0 to 10000",
    "No package is ever capped below this, whatever the API says, in both modes; a node over HTTP that tells no lowest limit \
     has that of its model in the catalogue",
);
pub(super) const GPU_CAP_FLOOR_WATTS: ConfigSetting<Option<Floor>> = ConfigSetting::optional(
    "GPU_CAP_FLOOR_WATTS",
    |text| floor(text).map(Some),
    "watts from 0 to 10000",
    "No GPU is ever capped below this, whatever the API says, in both modes",
);
pub(super) const STATE_DIR: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "STATE_DIR",
    |text| parse::path(text).map(Some),
    "the path of a folder on the host",
    "Where the originals, the writer's lock and the last grant are; it must be the host's and outlive the pod. Without it \
     /var/lib/joulie, or HOST_ROOT.joulie; in mode pool it keeps the grants alone, a file for each node, and without it \
     they are not kept",
);
pub(super) const HOST_ROOT: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "HOST_ROOT",
    |text| parse::path(text).map(Some),
    "the path of a folder that holds sys, dev and proc",
    "Where the hardware is, for a host that is mounted elsewhere and for virtual hardware; its proc names the processors, the \
     memory and the GPUs. Libraries of GPUs are then looked for in its folder lib alone, unless NVML_PATH and \
     ROCM_SMI_PATH name them",
);
pub(super) const REGISTERS: ConfigSetting<node_kit::RegisterAccess> = ConfigSetting::with_default(
    "MSR",
    "off",
    |text| {
        let ways = [
            ("off", node_kit::RegisterAccess::Off),
            ("msr", node_kit::RegisterAccess::Msr),
            ("msr-safe", node_kit::RegisterAccess::MsrSafe),
            ("msru", node_kit::RegisterAccess::Msru),
        ];
        parse::one_of(text, &ways)
    },
    "off, msr, msr-safe or msru",
    "Whether power limits may be set by registers where powercap has none; that taints the kernel",
);
pub(super) const NVML_PATH: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "NVML_PATH",
    |text| parse::path(text).map(Some),
    "the path of a file",
    "NVIDIA's library libnvidia-ml, where the loader does not find it, or where HOST_ROOT is set",
);
pub(super) const ROCM_SMI_PATH: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "ROCM_SMI_PATH",
    |text| parse::path(text).map(Some),
    "the path of a file",
    "AMD's library librocm_smi64, where the loader does not find it, or where HOST_ROOT is set",
);
pub(super) const HARDWARE_CATALOG_PATH: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "HARDWARE_CATALOG_PATH",
    |text| parse::path(text).map(Some),
    "the path of a hardware catalogue (YAML)",
    "Models that are added to the built-in catalogue, or take the place of one of it; read once at start, and refused as a whole if one figure is",
);
pub(super) const POWER_PUBLISH_INTERVAL: ConfigSetting<Duration> = ConfigSetting::with_default(
    "POWER_PUBLISH_INTERVAL",
    "5s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(3600)),
    "a duration up to 1h",
    "Measured power that has moved is published at most once in this time",
);
pub(super) const POWER_PUBLISH_HEARTBEAT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "POWER_PUBLISH_HEARTBEAT",
    "5m",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(86_400)),
    "a duration up to 24h; 0 is never",
    "Measured power is published at the latest after this time",
);

pub(super) fn percent_intent(percent: power_units::Percent) -> Result<CapIntent, Wrong> {
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
