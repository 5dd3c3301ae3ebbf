//! The four programs as they ship, with the settings that differ in the demo.

use super::super::fault::SLEEPER;
use super::super::host::Host;
use super::{ANY_PORT, DemoContext, NAMESPACE};
use host_kit::config::{self, FILE_VARIABLE, Invocation, LiveConfig, Refusals, SettingsTable, Values};
use host_kit::shutdown::Tasks;
use simulator::fleet::{Fleet, GpuKind, NodeKind};
use std::ffi::OsString;
use std::net::SocketAddr;

/// A program of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Simulator,
    Extender,
    Operator,
    Agent,
}

impl Part {
    /// The job of its metrics.
    pub(crate) const fn job(self) -> &'static str {
        match self {
            Self::Simulator => "joulie-simulator",
            Self::Extender => "joulie-extender",
            Self::Operator => "joulie-operator",
            Self::Agent => "joulie-agent",
        }
    }
}

/// Simulated seconds per real second: machines warm up and pods end within the demo.
const SPEED: &str = "4";
/// In real time, a pod or two a second that run for a minute: much longer than it takes until what a pod draws is measured. GPUs
/// are scarce, and performance pods sometimes wait, so that more nodes become performance nodes.
const WORKLOAD: &str = "2500ms/240s";
/// Pods of batch work that wait for watts, processors or GPUs, so that what the others leave of the limit is used.
const BACKLOG: &str = "10";

/// Reads a program's settings as if they came from its environment, and how it follows its file, if one is named.
fn read<S>(
    demo: &DemoContext,
    table: &'static SettingsTable,
    given: &[(&str, &str)],
    read: impl Fn(&Values) -> Result<S, Refusals> + Send + Sync + 'static,
) -> Result<(S, LiveConfig), String>
where
    S: Send + Sync + 'static,
{
    let environment = given.iter().map(|(name, value)| (OsString::from(*name), OsString::from(*value)));
    let Invocation::Run(sources) = Invocation::read([], environment) else {
        return Err(format!("{} was asked for help", table.program));
    };
    let values = config::load(table, &sources).map_err(|refusals| refusals.to_string())?;
    let settings = read(&values).map_err(|refusals| refusals.to_string())?;
    Ok((settings, LiveConfig::new(table, sources, values, read, demo.clock.wall())))
}

/// Each rack is a cooling zone of its own.
const ZONES: u32 = 3;
/// Each has a PowerBudget.
pub(super) const RACKS: u32 = 3;

/// Twelve nodes of three kinds.
fn fleet() -> Option<Fleet> {
    let gpus = Some(GpuKind { model: "NVIDIA_L40S".to_owned(), count: 4 });
    let gpu = NodeKind { gpus, ..NodeKind::built_in("gpu")? };
    let kinds = vec![(NodeKind::built_in("xeon")?, 5), (NodeKind::built_in("epyc")?, 4), (gpu, 3)];
    Some(Fleet { kinds, racks: RACKS, zones: ZONES, prefix: "sim".to_owned() })
}

/// The simulator: machines, kubelets and a workload. Returns its address for telemetry.
pub(super) async fn simulator(demo: &DemoContext) -> Result<(Host, SocketAddr), String> {
    let seed = demo.seed.to_string();
    let given = [
        ("SIM_ADDR", "127.0.0.1:0"),
        ("SIM_SPEED", SPEED),
        ("SIM_SEED", &seed),
        ("SIM_WORKLOAD", WORKLOAD),
        ("SIM_WORKLOAD_BACKLOG", BACKLOG),
        ("SIM_CHECKPOINT", "0"),
    ];
    let (mut settings, config) = read(demo, &simulator::TABLE, &given, simulator::Settings::read)?;
    settings.fleet = fleet().ok_or("the simulator has no such machines")?;
    if let Some(workload) = &mut settings.workload {
        workload.mix.gpus = settings.fleet.gpus();
    }
    let demo = demo.clone();
    let begin = move |stop, mut tasks: Tasks| async move {
        let context = demo.context("joulie-simulator", stop, config);
        let started = simulator::start(settings, context, &mut tasks).await;
        let started = started.map_err(|error| error.to_string())?;
        Ok((started.work, tasks))
    };
    Host::start("simulator", begin).await
}

/// The ports of the extender.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtenderPorts {
    /// The address for the scheduler.
    pub(super) work: SocketAddr,
    pub(super) metrics: SocketAddr,
}

/// The extender.
pub(super) async fn extender(
    demo: &DemoContext,
    ports: ExtenderPorts,
) -> Result<(Host, ExtenderPorts), String> {
    let (work, metrics) = (ports.work.to_string(), ports.metrics.to_string());
    let mut given = vec![
        ("EXTENDER_ADDR", work.as_str()),
        ("METRICS_ADDR", metrics.as_str()),
        ("JOULIE_NAMESPACE", NAMESPACE),
        ("TWIN_STALENESS_THRESHOLD", "30s"),
        // In the demo, measurements are published every second or two.
        ("ASSUMED_SETTLE", "3s"),
        ("ASSUMED_MAX_AGE", "30s"),
        // Pods wait where the limits cannot grant what they would draw.
        ("POWER_FIT", "filter"),
        // A node without fresh data must not score better than measured ones.
        ("UNKNOWN_SCORE", "cautious"),
        ("DRAIN_LINGER", "0s"),
    ];
    let files =
        demo.tls.as_ref().map(|tls| [&tls.certificate, &tls.key_file].map(|file| file.display().to_string()));
    if let Some([certificate, key]) = &files {
        given.extend([("TLS_CERT_FILE", certificate.as_str()), ("TLS_KEY_FILE", key.as_str())]);
    }
    let (settings, config) =
        read(demo, &extender::settings::TABLE, &given, extender::settings::Settings::read)?;
    let demo = demo.clone();
    let begin = move |stop, mut tasks: Tasks| async move {
        let context = demo.context("joulie-extender", stop, config);
        let started = extender::start(settings, context, &mut tasks).await;
        let started = started.map_err(|error| error.to_string())?;
        Ok((ExtenderPorts { work: started.work, metrics: started.metrics }, tasks))
    };
    Host::start("extender", begin).await
}

/// The file that says how the power of nodes is switched. The only node in it is one that joins asleep.
pub(super) const CONTROLLERS: &str = "controllers.yaml";
/// What the operator is told of a second meter: that it yields watts. It is a thermometer.
const SECOND_METER: [(&str, &str); 3] = [
    ("OPERATOR_NODE_POWER_SOURCE", "agent,prometheus"),
    (
        "OPERATOR_NODE_POWER_PROMETHEUS_QUERY",
        r#"label_replace(datacenter_ambient_temperature_celsius, "node", "{node}", "", "")"#,
    ),
    ("POWER_POLL_INTERVAL", "2s"),
];

/// Writes the file of controllers. Their service is that of the simulator, which knows no such machine.
fn controllers(demo: &DemoContext, site: &str) -> Result<Option<String>, String> {
    let Some(file) = demo.folder.as_ref().map(|folder| folder.join(CONTROLLERS)) else { return Ok(None) };
    let text = format!("nodes:\n  {SLEEPER}: {{redfish: '{site}/redfish/v1/Systems/{SLEEPER}'}}\n");
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Some(file.display().to_string()))
}

/// The operator. The simulator at `site` answers it as a Prometheus would: temperatures of the zones, and what pods use.
/// Returns its address for metrics.
pub(super) async fn operator(
    demo: &DemoContext,
    site: SocketAddr,
    metrics: SocketAddr,
) -> Result<(Host, SocketAddr), String> {
    let site = format!("http://{site}");
    let metrics = metrics.to_string();
    let mut given = vec![
        ("METRICS_ADDR", metrics.as_str()),
        ("JOULIE_NAMESPACE", NAMESPACE),
        ("RECONCILE_INTERVAL", "2s"),
        ("PLAN_RENEW_INTERVAL", "1s"),
        // The view shows this name and a part of the random suffix.
        ("POD_NAME", "joulie-operator"),
        // More nodes offer performance as more performance pods wait or run.
        ("POLICY_TYPE", demo.policy),
        ("QUEUE_HP_BASE_FRAC", "0.25"),
        ("QUEUE_HP_MIN", "3"),
        ("QUEUE_HP_MAX", "8"),
        ("QUEUE_PERF_PER_HP_NODE", "3"),
        ("POWER_HOLD", "6s"),
        // For this time after a start no cap is raised: writes of an earlier operator may still arrive.
        ("WRITE_TIMEOUT", "2s"),
        ("PROMETHEUS_ADDRESS", &site),
        ("KEPLER_AVAILABLE", "false"),
        ("CLASSIFY_INTERVAL", "1s"),
        ("CLASSIFY_METRICS_WINDOW", "30s"),
        ("RECLASSIFY_INTERVAL", "10s"),
        ("ENABLE_FACILITY_METRICS", "true"),
        ("FACILITY_COOLING_POWER_METRIC", "none"),
        ("FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", "datacenter_zone_ambient_temperature_celsius"),
        ("FACILITY_POLL_INTERVAL", "1s"),
        ("FACILITY_HOLD", "6s"),
        // Long enough that the restart of a killed operator is visible.
        ("LEADER_LEASE_DURATION", "4s"),
        ("LEADER_RENEW_DEADLINE", "3s"),
        ("LEADER_RETRY_PERIOD", "500ms"),
    ];
    let file = demo.settings.as_ref().map(|path| path.display().to_string());
    given.extend(file.as_deref().map(|file| (FILE_VARIABLE, file)));
    let controllers = controllers(demo, &site)?;
    given.extend(controllers.as_deref().map(|file| ("SLEEP_BMC_FILE", file)));
    given.extend(SECOND_METER.into_iter().filter(|_| demo.second_meter));
    let (settings, config) =
        read(demo, &operator::settings::TABLE, &given, operator::settings::Settings::read)?;
    let demo = demo.clone();
    let begin = move |stop, mut tasks: Tasks| async move {
        let context = demo.context("joulie-operator", stop, config);
        let started = operator::start(settings, context, &mut tasks).await;
        let started = started.map_err(|error| error.to_string())?;
        Ok((started.metrics, tasks))
    };
    Host::start("operator", begin).await
}

/// The agent of all nodes, in mode pool: it reads and caps them through the simulator's HTTP port. Returns its address
/// for metrics.
pub(super) async fn agent(demo: &DemoContext, telemetry: SocketAddr) -> Result<(Host, SocketAddr), String> {
    let source = format!("http://{telemetry}/telemetry/{{node}}");
    let control = format!("http://{telemetry}/control/{{node}}");
    let metrics = ANY_PORT.to_string();
    let given = [
        ("AGENT_MODE", "pool"),
        ("POD_NAME", "joulie-agent-pool-0"),
        ("METRICS_ADDR", metrics.as_str()),
        ("JOULIE_NAMESPACE", NAMESPACE),
        ("RECONCILE_INTERVAL", "500ms"),
        // The API here says every few seconds that it is there.
        ("SPEC_READ_TIMEOUT", "15s"),
        ("TELEMETRY_CPU_SOURCE", "http"),
        ("TELEMETRY_CPU_HTTP_ENDPOINT", &source),
        ("TELEMETRY_CPU_CONTROL", "http"),
        ("TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT", &control),
        ("TELEMETRY_GPU_CONTROL", "http"),
        ("TELEMETRY_GPU_CONTROL_HTTP_ENDPOINT", &control),
        ("POWER_PUBLISH_INTERVAL", "1s"),
        ("POWER_PUBLISH_HEARTBEAT", "2s"),
    ];
    let (settings, config) = read(demo, &agent::settings::TABLE, &given, agent::settings::Settings::read)?;
    let demo = demo.clone();
    let begin = move |stop, mut tasks: Tasks| async move {
        let context = demo.context("joulie-agent", stop, config);
        let started = agent::start(settings, context, &mut tasks).await.map_err(|error| error.to_string())?;
        Ok((started.metrics, tasks))
    };
    Host::start("agent", begin).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_is_twelve_nodes_of_three_kinds() {
        let fleet = fleet().unwrap();
        assert_eq!((fleet.members().unwrap().len(), fleet.kinds.len()), (12, 3));
    }
}
