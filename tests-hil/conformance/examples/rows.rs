//! The memory that a host needs for 5,000 nodes: `cargo run --release -p conformance --example rows`, or `cargo xtask
//! bench api`.
//!
//! This process serves the objects and starts itself a second time as the host, so that the memory is the host's
//! alone. The rows are the whole typed twin and hardware, which is more than any host keeps, and of a node the fields
//! that planning uses.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that fails ends here")]
#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use conformance::definitions;
use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::SystemClock;
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::reflect::{Reflections, Row, Rows, WatchSource, reflect};
use host_kit::shutdown;
use joulie_api::node_hardware::NodeHardware;
use joulie_api::node_twin::NodeTwin;
use joulie_api::object::parse;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

const NODES: usize = 5_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let server = std::env::args().nth(1);
    runtime.block_on(async {
        match server {
            None => serve().await,
            Some(server) => hold(&server).await,
        }
    });
}

/// Runs the server, and the host as a separate process.
async fn serve() {
    let api = EmbeddedApi::new(&ApiOptions::with(definitions())).unwrap();
    let client = api.client_as("joulie-agent");
    for number in 0..NODES {
        make(&client, "nodes", &node(number)).await;
        make(&client, "nodetwins", &twin(number)).await;
        make(&client, "nodehardwares", &hardware(number)).await;
    }
    let serving = api.serve("127.0.0.1:0".parse().unwrap(), None, None).await.unwrap();
    let url = format!("http://{}", serving.address());
    let ended = tokio::task::spawn_blocking(move || {
        Command::new(std::env::current_exe().unwrap()).arg(url).status().unwrap()
    });
    assert!(ended.await.unwrap().success());
}

async fn make(client: &Client, plural: &str, object: &Value) {
    let group = if plural == "nodes" { ("", "v1") } else { ("joulie.io", "v1alpha1") };
    let resource = kube::api::ApiResource {
        group: group.0.to_owned(),
        version: group.1.to_owned(),
        api_version: object["apiVersion"].as_str().unwrap().to_owned(),
        kind: object["kind"].as_str().unwrap().to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let body: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let made = api.create(&PostParams::default(), &body).await.unwrap();
    if plural != "nodes" {
        let status = json!({"status": object["status"]});
        let name = made.metadata.name.unwrap();
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

/// The fields of a node that planning uses.
#[expect(dead_code, reason = "it is held, and that is what is measured")]
struct Node {
    labels: BTreeMap<String, String>,
    allocatable: BTreeMap<String, String>,
    unschedulable: bool,
}

fn texts(value: &Value, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten().filter(|(key, _)| wanted(key));
    all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

impl Row for Node {
    const KIND: &'static str = "nodes";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        Ok(Self {
            labels: texts(&object["metadata"]["labels"], |key| key.starts_with("joulie.io/")),
            allocatable: texts(&object["status"]["allocatable"], |_| true),
            unschedulable: object["spec"]["unschedulable"] == true,
        })
    }
}

/// A whole typed twin.
#[expect(dead_code, reason = "it is held, and that is what is measured")]
struct Twin(NodeTwin);

impl Row for Twin {
    const KIND: &'static str = "nodetwins";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let mut twin: NodeTwin = parse(object).map_err(|bad| bad.to_string())?;
        twin.metadata = Default::default();
        Ok(Self(twin))
    }
}

/// A whole typed hardware object.
#[expect(dead_code, reason = "it is held, and that is what is measured")]
struct Hardware(NodeHardware);

impl Row for Hardware {
    const KIND: &'static str = "nodehardwares";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let mut hardware: NodeHardware = parse(object).map_err(|bad| bad.to_string())?;
        hardware.metadata = Default::default();
        Ok(Self(hardware))
    }
}

/// The host: watches one kind after the other, and prints the memory that each one adds.
async fn hold(server: &str) {
    let client = Client::try_from(Config::new(server.parse().unwrap())).unwrap();
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "rows", version: "0", revision: "0" });
    let reflections = Reflections::register(metrics.registry());
    client.apiserver_version().await.unwrap();
    let before = memory("VmRSS:");
    println!("a host with a client: {before:.1} MiB resident");
    let rows = (
        follow::<Node>(&client, &reflections, "/api/v1/nodes").await,
        follow::<Twin>(&client, &reflections, "/apis/joulie.io/v1alpha1/nodetwins").await,
        follow::<Hardware>(&client, &reflections, "/apis/joulie.io/v1alpha1/nodehardwares").await,
    );
    let (now, peak) = (memory("VmRSS:"), memory("VmHWM:"));
    println!(
        "{NODES} nodes with twins and hardware: {now:.1} MiB resident, {peak:.1} MiB at most while they were listed; \
         {:.0} bytes a row",
        (now - before) * 1_048_576.0 / (3.0 * 5_000.0)
    );
    drop(rows);
}

async fn follow<R: Row>(
    client: &Client,
    reflections: &Reflections,
    path: &str,
) -> (Rows<R>, shutdown::Trigger) {
    let source = WatchSource { path: path.to_owned(), labels: None, fields: None };
    let (trigger, stop) = shutdown::pair();
    let (mut rows, following) = reflect::<R>(client, source, reflections, Arc::new(SystemClock::new()), stop);
    tokio::spawn(following);
    while !rows.is_synced() {
        assert!(rows.changed().await, "the reflector ended");
    }
    let held = rows.with(BTreeMap::len);
    assert_eq!((held, rows.malformed().len()), (NODES, 0), "{}", R::KIND);
    println!("  {} {held}: {:.1} MiB resident", R::KIND, memory("VmRSS:"));
    (rows, trigger)
}

/// A value of /proc/self/status in MiB.
fn memory(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|one| one.strip_prefix(line)).expect("a line of the kernel's");
    found.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() / 1024.0
}

/// A node as a kubelet and its plugins write it.
fn node(number: usize) -> Value {
    let features =
        (0..24).map(|at| (format!("feature.node.kubernetes.io/cpu-cpuid.feature-{at}"), json!("true")));
    let ours = [("joulie.io/managed", "true"), ("joulie.io/power-profile", "eco"), ("joulie.io/rack", "r12")];
    let labels: serde_json::Map<_, _> =
        features.chain(ours.map(|(key, value)| (key.to_owned(), json!(value)))).collect();
    let conditions: Vec<_> = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready"]
        .iter()
        .map(|name| {
            json!({"type": name, "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletHasSufficient",
                "message": "kubelet has sufficient of everything it needs"})
        })
        .collect();
    let images: Vec<_> = (0..30)
        .map(|at| json!({"names": [format!("registry.example/team/image-{at}@sha256:{at:064}")], "sizeBytes": 123_456_789}))
        .collect();
    let resources = json!({"cpu": "128", "memory": "1056444112Ki", "ephemeral-storage": "3750000000Ki", "pods": "110",
        "nvidia.com/gpu": "8", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number:05}"), "labels": labels},
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": format!("metal://{number}")},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions, "images": images,
            "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}, {"type": "Hostname", "address": "node"}]}})
}

fn twin(number: usize) -> Value {
    let name = format!("node-{number:05}");
    let power = json!({"source": "agent", "measuredNodePowerW": 1234.5, "cpuCappedPowerW": 500, "gpuCappedPowerW": 2400,
        "nodeCappedPowerW": 2900, "cpuTdpW": 720, "gpuTdpW": 3200, "nodeTdpW": 3920, "powerTrendWPerMin": -3.25,
        "sampledAt": "2026-01-01T00:00:00Z"});
    let told = json!({"backend": "rapl", "result": "applied", "message": "250 W, read back", "updatedAt": "2026-01-01T00:00:00Z"});
    json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin", "metadata": {"name": name},
        "spec": {"nodeName": name, "profile": "eco", "cpu": {"packagePowerCapWatts": 250},
            "gpu": {"powerCap": {"scope": "perGpu", "capWattsPerGpu": 300}}, "policy": {"name": "static-partition-v1"}},
        "status": {"schedulableClass": "eco", "powerMeasurement": power, "predictedPowerHeadroomScore": 57.4,
            "predictedCoolingStressScore": 31.5, "predictedPsuStressScore": 40, "effectiveCapState": {"cpuPct": 69, "gpuPct": 75},
            "hardwareDensityScore": 88, "estimatedPUE": 1.18, "controlStatus": {"cpu": told, "gpu": told},
            "planLease": "joulie-plan", "observedGeneration": 1, "lastUpdated": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "TelemetryFresh", "status": "True", "reason": "Sampled", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]}})
}

fn hardware(number: usize) -> Value {
    let name = format!("node-{number:05}");
    json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeHardware", "metadata": {"name": name},
        "spec": {"nodeName": name},
        "status": {
            "cpu": {"rawModel": "AMD EPYC 9654 96-Core Processor", "model": "epyc-9654", "vendor": "AuthenticAMD", "sockets": 2,
                "totalCores": 384, "coresPerSocket": 192, "driverFamily": "amd-pstate-epp", "controlAvailable": true,
                "capRange": {"type": "package", "minWattsPerSocket": 90, "maxWattsPerSocket": 360}},
            "gpu": {"present": true, "rawModel": "NVIDIA H100 80GB HBM3", "model": "h100-sxm", "vendor": "nvidia", "count": 8,
                "capRangePerGpu": {"minWatts": 200, "maxWatts": 700, "defaultWatts": 700}, "currentCapWatts": 700},
            "capabilities": {"cpuControl": true, "gpuControl": true, "cpuTelemetry": true, "gpuTelemetry": true},
            "inventoryResolution": {"hardwareCatalogKey": {"cpu": "epyc-9654", "gpu": "h100-sxm"},
                "exactness": {"cpu": "exact", "gpu": "exact"}},
            "quality": {"overall": "exact"}, "updatedAt": "2026-01-01T00:00:00Z"}})
}
