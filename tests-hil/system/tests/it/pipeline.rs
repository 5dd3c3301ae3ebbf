//! The energy-aware pipeline on a real Prometheus: what exporters show reaches the twins, and while Prometheus is away or
//! does not answer, no node becomes better for it.

use crate::placement::all_enforced;
use crate::support::wait;
use cluster::assets::Environment;
use cluster::{ClusterError, ProcessSignal, PrometheusServer};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use system::exporter::Exporter;
use system::objects;
use system::world::{PATIENCE, RIG, SystemProcess, TestSystem};
use tokio::time::Instant;

/// What the exporters show: temperatures, racks, the building's power, and Kepler's counters of one node.
fn lines(hot: &str, rack: &str, joules: f64) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    line(&format!("zone_temperature_celsius{{zone=\"hot\"}} {hot}"));
    line("zone_temperature_celsius{zone=\"mild\"} 20");
    line(&format!("rack_power_watts{{rack=\"r1\"}} {rack}"));
    line("datacenter_ambient_temperature_celsius 20");
    line("datacenter_total_it_power_watts 10000");
    line("datacenter_cooling_power_watts 2500");
    // Kepler's own label names the node; Prometheus renames it, because the scrape has an `instance` of its own.
    line("# TYPE kepler_node_package_joules_total counter");
    for (package, mode) in [("0", "dynamic"), ("0", "idle"), ("1", "dynamic"), ("1", "idle")] {
        line(&format!(
            "kepler_node_package_joules_total{{instance=\"{RIG}\",package=\"{package}\",mode=\"{mode}\"}} {joules}"
        ));
    }
    text.push_str(AT_THE_PLUG);
    text
}

/// A pod that uses 3.9 of the 4 cores that it requests is bound by its processors, its GPU is busy, and its profile leaves with it.
async fn a_busy_pod_is_classified(world: &TestSystem, exporter: &Exporter) {
    busy_pod(world).await;
    let begun = Instant::now();
    let mut seen = None;
    let outcome = system::until("the busy pod is classified", PATIENCE, async || {
        let cores = 3.9 * begun.elapsed().as_secs_f64();
        exporter.show(&format!(
            "{}container_cpu_usage_seconds_total{{namespace=\"default\",pod=\"busy\",container=\"main\"}} {cores}\n\
             container_cpu_usage_seconds_total{{namespace=\"default\",pod=\"busy\",container=\"\"}} {cores}\n\
             container_memory_working_set_bytes{{namespace=\"default\",pod=\"busy\",container=\"main\"}} 104857600\n\
             DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",Hostname=\"{RIG}\",namespace=\"default\",pod=\"busy\",container=\"main\"}} 85\n",
            lines("20", "300", 0.0)
        ));
        tokio::time::sleep(Duration::from_millis(100)).await;
        seen = profile_of(world, "busy").await;
        seen.as_ref().is_some_and(|profile| {
            let status = &profile["status"];
            status["cpu"]["bound"] == "compute"
                && status["gpu"]["intensity"] == "high"
                && status["migratability"]["reschedulable"] == true
        })
    })
    .await;
    assert!(outcome.is_ok(), "{seen:#?}");
    the_busy_pod_ends(world).await;
}

fn pods(world: &TestSystem) -> Api<Pod> {
    Api::namespaced(world.client.clone(), "default")
}

async fn busy_pod(world: &TestSystem) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "busy", "annotations":
        {"joulie.io/reschedulable": "true"}}, "spec": {"nodeName": RIG, "containers": [{"name": "main", "image": "none",
        "resources": {"requests": {"cpu": "4"}, "limits": {"memory": "1Gi"}}}]}});
    pods(world).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The WorkloadProfile of the workload of this name.
pub(crate) async fn profile_of(world: &TestSystem, workload: &str) -> Option<Value> {
    let all = objects::list(&world.client, "WorkloadProfile").await.unwrap();
    all.into_iter().find(|object| object["spec"]["workloadRef"]["name"] == workload)
}

async fn the_busy_pod_ends(world: &TestSystem) {
    pods(world).delete("busy", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait("the profile leaves with its pod", async || profile_of(world, "busy").await.is_none()).await;
}

/// Without a Prometheus a workload is known by its annotations alone.
async fn a_pod_is_classified_by_its_words(world: &TestSystem) {
    let variables =
        [("ENABLE_CLASSIFIER", "true"), ("CLASSIFY_INTERVAL", "1s"), ("RECLASSIFY_INTERVAL", "5s")];
    for operator in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.run(operator, &variables).unwrap();
    }
    busy_pod(world).await;
    wait("the pod has a profile", async || {
        profile_of(world, "busy").await.is_some_and(|profile| {
            let status = &profile["status"];
            status["migratability"]["reschedulable"] == true && status["confidence"].as_f64() == Some(0.3)
        })
    })
    .await;
    the_busy_pod_ends(world).await;
    for operator in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.run(operator, &[]).unwrap();
    }
    all_enforced(world).await;
}

/// Other exporters' names for the power of this node at its plug.
const AT_THE_PLUG: &str = "ipmi_dcmi_power_consumption_watts{node=\"rig-0\"} 412\n\
     redfish_chassis_power_powersupply_power_input_watts{node=\"rig-0\",psu=\"1\"} 300\n\
     redfish_chassis_power_powersupply_power_input_watts{node=\"rig-0\",psu=\"2\"} 212\n\
     kepler_platform_watts{node_name=\"rig-0\",source=\"redfish\",power_control_id=\"0\",power_control_name=\"Server\"} 430\n\
     kepler_platform_watts{node_name=\"rig-0\",source=\"redfish\",power_control_id=\"1\",power_control_name=\"CPU\"} 250\n";

/// Kepler's page since 0.10, after so many seconds: two dies of 60 W each, 20 W of memory, a card of 80 W. What is beside them is of
/// another zone, which is in the packages, or is no part of the sum.
fn later_kepler(seconds: f64) -> String {
    let counter = |zone: &str, watts: f64| {
        let path = "/sys/class/powercap/intel-rapl";
        format!(
            "kepler_node_cpu_joules_total{{node_name=\"{RIG}\",path=\"{path}\",zone=\"{zone}\"}} {}\n",
            watts * seconds
        )
    };
    let zones = [("package-0-die", 60.0), ("package-1-die", 60.0), ("dram", 20.0), ("core", 50.0)];
    let zones: String = zones.into_iter().map(|(zone, watts)| counter(zone, watts)).collect();
    format!(
        "{zones}kepler_node_cpu_watts{{node_name=\"{RIG}\",path=\"p\",zone=\"package-0-die\"}} 60\n\
         kepler_node_gpu_watts{{node_name=\"{RIG}\",gpu=\"0\",gpu_uuid=\"GPU-1\",gpu_name=\"a\",vendor=\"nvidia\"}} 80\n\
         kepler_node_gpu_idle_watts{{node_name=\"{RIG}\",gpu=\"0\",gpu_uuid=\"GPU-1\",gpu_name=\"a\",vendor=\"nvidia\"}} 30\n"
    )
}

/// The names and labels that Kepler has since 0.10 lead to the same sum.
async fn a_later_kepler_measures(world: &TestSystem, exporter: &Exporter) {
    let begun = Instant::now();
    let mut power = Value::Null;
    let outcome = system::until("a later Kepler measures the node", PATIENCE, async || {
        exporter.show(&format!("{}{AT_THE_PLUG}", later_kepler(begun.elapsed().as_secs_f64())));
        tokio::time::sleep(Duration::from_millis(100)).await;
        power = twin(world).await["powerMeasurement"].clone();
        let watts = power["measuredNodePowerW"].as_f64();
        // 60 + 60 + 20 + 80 W; a rate over five scrapes is not exact.
        power["source"] == "kepler" && watts.is_some_and(|watts| (190.0..250.0).contains(&watts))
    })
    .await;
    assert!(outcome.is_ok(), "{power:#}");
}

/// Asks what docs/OPERATE.md names for other meters.
async fn other_meters_answer(world: &TestSystem, server: &PrometheusServer) {
    let address = format!("http://{}", server.address());
    let asks = "sum by (node) (redfish_chassis_power_powersupply_power_input_watts)";
    let platform = "kepler_platform_watts{power_control_id=\"0\"}";
    for (query, watts) in [("ipmi_dcmi_power_consumption_watts", 412.0), (asks, 512.0), (platform, 430.0)] {
        let variables = [
            ("PROMETHEUS_ADDRESS", address.as_str()),
            ("OPERATOR_NODE_POWER_SOURCE", "prometheus,agent"),
            ("OPERATOR_NODE_POWER_PROMETHEUS_QUERY", query),
            ("POWER_POLL_INTERVAL", "1s"),
        ];
        for operator in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
            world.run(operator, &variables).unwrap();
        }
        let mut power = Value::Null;
        let outcome = system::until(query, PATIENCE, async || {
            power = twin(world).await["powerMeasurement"].clone();
            power["source"] == "prometheus" && power["measuredNodePowerW"].as_f64() == Some(watts)
        })
        .await;
        assert!(outcome.is_ok(), "{query}: {power:#}");
    }
}

async fn twin(world: &TestSystem) -> Value {
    objects::get(&world.client, "NodeTwin", RIG).await.map_or(Value::Null, |twin| twin["status"].clone())
}

async fn label(world: &TestSystem, labels: Value) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    nodes.patch(RIG, &PatchParams::default(), &patch).await.unwrap();
}

const COOLING: &str = "predictedCoolingStressScore";

/// What is desired of the node.
async fn caps(world: &TestSystem) -> Value {
    let profile = objects::get(&world.client, "NodePowerProfile", RIG).await;
    profile.map_or(Value::Null, |profile| profile["spec"].clone())
}

/// How often the twin is looked at while Prometheus is silent, twice a second: for 5 s, or for the ten minutes of
/// `cargo xtask test --long`.
#[expect(clippy::disallowed_methods, reason = "the one switch between a short outage and a long one")]
fn looks() -> u32 {
    if std::env::var_os("JOULIE_LONG").is_some() { 1_200 } else { 10 }
}

/// The cooling stress, waited for.
async fn cooling(world: &TestSystem, what: &str, is: impl Fn(f64) -> bool) -> f64 {
    let mut found = None;
    let outcome = system::until(what, PATIENCE, async || {
        found = twin(world).await[COOLING].as_f64();
        found.is_some_and(&is)
    })
    .await;
    let log = world.control_plane.program_log(SystemProcess::OperatorA.name());
    assert!(outcome.is_ok(), "{what}: {found:?}\n{log}");
    found.unwrap()
}

pub(crate) async fn sensors_reach_the_twins(world: &TestSystem) {
    a_pod_is_classified_by_its_words(world).await;
    let exporter = Exporter::start().await.unwrap();
    let targets = [("building", exporter.address())];
    let server = match PrometheusServer::new(&Environment::of_this_process(), &world.control_plane, &targets)
    {
        Ok(server) => server,
        Err(ClusterError::Absent(why)) => return system::skip(&format!("no Prometheus: {why}")),
        Err(why) => panic!("{why}"),
    };
    exporter.show(&lines("NaN", "900", 0.0));
    server.start(&world.control_plane).unwrap();
    label(world, json!({"joulie.io/cooling-zone": "hot", "joulie.io/rack": "r1"})).await;
    let address = format!("http://{}", server.address());
    let settings = [
        ("PROMETHEUS_ADDRESS", address.as_str()),
        ("PROMETHEUS_TIMEOUT", "1s"),
        ("ENABLE_FACILITY_METRICS", "true"),
        ("FACILITY_POLL_INTERVAL", "500ms"),
        ("FACILITY_HOLD", "3s"),
        ("FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", "zone_temperature_celsius"),
        ("FACILITY_RACK_POWER_METRIC_TEMPLATE", "max by (rack) (rack_power_watts)"),
        ("RACK_CAPACITY_WATTS", "r1=1000"),
        ("OPERATOR_NODE_POWER_SOURCE", "kepler,agent"),
        ("OPERATOR_NODE_POWER_KEPLER_WINDOW", "5s"),
        ("POWER_POLL_INTERVAL", "1s"),
        ("CLASSIFY_INTERVAL", "1s"),
        ("RECLASSIFY_INTERVAL", "5s"),
        ("CLASSIFY_METRICS_WINDOW", "30s"),
    ];
    for operator in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.run(operator, &settings).unwrap();
    }
    // A zone whose thermometer says NaN has the building's temperature.
    let mild = cooling(world, "a thermometer without a number is none", |stress| stress > 0.0).await;
    assert!(twin(world).await["predictedPsuStressScore"].as_f64().is_some());
    exporter.show(&lines("40", "900", 0.0));
    let hot = cooling(world, "the zone is hot", |stress| stress > (mild * 1.3).min(99.0)).await;
    wait("the rack is measured, and the PUE is real", async || {
        let status = twin(world).await;
        status["predictedPsuStressScore"].as_f64() == Some(90.0)
            && status["estimatedPUE"].as_f64() == Some(1.25)
    })
    .await;

    // Kepler's counters stand still, which is no 0 W.
    assert_eq!(twin(world).await["powerMeasurement"]["source"], "agent");

    // Prometheus is away, then does not answer, for longer than values are fresh.
    for (what, stopped) in [("away", false), ("mute", true)] {
        if stopped {
            world.control_plane.signal_program(PrometheusServer::NAME, ProcessSignal::Stop).unwrap();
        } else {
            world.control_plane.kill_program(PrometheusServer::NAME);
        }
        let caps = caps(world).await;
        for _ in 0..looks() {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(self::caps(world).await, caps, "{what}: no cap moves");
            let stress = twin(world).await[COOLING].as_f64();
            assert!(stress.is_some_and(|stress| stress > hot * 0.9), "{what}: {stress:?} of {hot}");
        }
        let log = [SystemProcess::OperatorA, SystemProcess::OperatorB]
            .map(|part| std::fs::read_to_string(world.control_plane.program_log_file(part.name())).unwrap());
        assert!(log.concat().contains("zone-ambient: "), "it is said");
        if stopped {
            world.control_plane.signal_program(PrometheusServer::NAME, ProcessSignal::Continue).unwrap();
        } else {
            server.start(&world.control_plane).unwrap();
        }
    }
    exporter.show(&lines("20", "300", 0.0));
    cooling(world, "the zone is mild again", |stress| stress < mild * 1.1).await;

    a_busy_pod_is_classified(world, &exporter).await;

    // Kepler's counters go up by 4 x 50 J each second: 200 W.
    let begun = Instant::now();
    let mut source = Value::Null;
    let outcome = system::until("Kepler measures the node", PATIENCE, async || {
        exporter.show(&lines("20", "300", 50.0 * begun.elapsed().as_secs_f64()));
        tokio::time::sleep(Duration::from_millis(100)).await;
        source = twin(world).await["powerMeasurement"].clone();
        source["source"] == "kepler"
            && source["measuredNodePowerW"].as_f64().is_some_and(|watts| (100.0..300.0).contains(&watts))
    })
    .await;
    assert!(outcome.is_ok(), "{source:#}");

    // The series of the earlier one have ended.
    exporter.show(AT_THE_PLUG);
    wait("Kepler is away", async || twin(world).await["powerMeasurement"]["source"] == "agent").await;
    a_later_kepler_measures(world, &exporter).await;

    other_meters_answer(world, &server).await;

    // The stories that follow have the settings of the chart.
    label(world, json!({"joulie.io/cooling-zone": null, "joulie.io/rack": null})).await;
    for operator in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.run(operator, &[]).unwrap();
    }
    world.control_plane.kill_program(PrometheusServer::NAME);
    wait("the agents measure again", async || twin(world).await["powerMeasurement"]["source"] == "agent")
        .await;
    all_enforced(world).await;
}
