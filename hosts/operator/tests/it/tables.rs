//! The rows of the conformance tables C14 and C15 through the whole operator; their other rows are where the laws are.
//! Readings that differ from a row are in docs/adr/0004 and 0005.

use super::prometheus::{FakePrometheus, Mood};
use super::rig::{Cluster, JOULIE};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const PROFILES: &str = "/apis/joulie.io/v1alpha1/namespaces/default/workloadprofiles";

impl Cluster {
    /// A running pod of nobody, which asks for 4 cores and at most 4 GiB.
    async fn runs(&self, name: &str, node: &str, gpus: u32, annotations: Value) {
        let mut bounds = json!({"requests": {"cpu": "4"}, "limits": {"memory": "4Gi"}});
        if gpus > 0 {
            bounds["limits"]["nvidia.com/gpu"] = json!(gpus.to_string());
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none", "resources": bounds}]}});
        self.create(PODS, &pod).await;
        self.patch(&format!("{PODS}/{name}/status"), &json!({"status": {"phase": "Running"}})).await;
    }

    /// The status of the profile of such a pod.
    async fn said_of(&self, name: &str) -> Value {
        let profile = self.get(&format!("{PROFILES}/pod-{name}")).await.unwrap_or_default();
        profile["status"].clone()
    }

    /// A node with two packages of 360 W and so many GPUs of a model.
    async fn with_gpus(&self, name: &str, count: u32, (model, watts): (&str, u32)) {
        self.node(name).await;
        self.hardware(name, 300.0).await;
        let gpu = json!({"present": true, "count": count, "model": model, "vendor": "nvidia",
            "controlAvailable": true, "telemetryAvailable": true,
            "capRangePerGpu": {"minWatts": 200, "maxWatts": watts}, "slicing": {"supported": true}});
        let status = json!({"status": {"gpu": gpu, "power": {"gpuWatts": 800}}});
        self.patch(&format!("{JOULIE}/nodehardwares/{name}/status"), &status).await;
    }
}

/// The three words of a device.
fn words(device: &Value) -> [String; 3] {
    ["intensity", "bound", "capSensitivity"].map(|word| device[word].as_str().unwrap_or("?").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_two_bare_nodes_under_rule_swap_have_a_twin_each_one_label_of_each_kind_and_no_mark() {
    let cluster = Cluster::new().await;
    for node in ["a", "b"] {
        cluster.node(node).await;
    }
    // The phase of the rule is the interval: it does not change while the test looks.
    let operator = cluster
        .operator(&[
            ("POLICY_TYPE", "rule_swap_v1"),
            ("RECONCILE_INTERVAL", "24h"),
            ("DRAINING_LABEL_MODE", "while-draining"),
        ])
        .await;
    let labels = async || {
        let mut both =
            [cluster.label("a").await.unwrap_or_default(), cluster.label("b").await.unwrap_or_default()];
        both.sort();
        both
    };
    cluster.until("one of each", async || labels().await == ["eco", "performance"]).await;
    cluster.until("two twins", async || cluster.list(&format!("{JOULIE}/nodetwins")).await.len() == 2).await;
    cluster.quiet(std::time::Duration::from_millis(400)).await;
    assert_eq!(labels().await, ["eco", "performance"]);
    for node in cluster.list("/api/v1/nodes").await {
        assert_eq!(node["metadata"]["labels"]["joulie.io/draining"], Value::Null);
    }
    operator.stop().await;
}

/// A pod, what it uses (percent of its cores, of its GPU, of its memory), and what follows.
type Row = (&'static str, [&'static str; 3], [&'static str; 3], [&'static str; 3]);

const NO_GPU: [&str; 3] = ["none", "none", "none"];

/// Cores of 4 and MiB of 4 GiB: 75 % are 3 cores, 50 % are 2048 MiB.
const ROWS: [Row; 20] = [
    ("idle", ["0.4", "", "819"], ["low", "io", "low"], NO_GPU),
    ("half", ["2", "", ""], ["medium", "mixed", "medium"], NO_GPU),
    ("busy", ["3.4", "", ""], ["high", "compute", "high"], NO_GPU),
    ("memory", ["2.2", "", "2458"], ["medium", "memory", "low"], NO_GPU),
    ("dominant", ["2", "90", ""], ["medium", "mixed", "low"], ["high", "compute", "high"]),
    ("training", ["1.6", "85", ""], ["medium", "mixed", "low"], ["high", "compute", "high"]),
    ("large", ["1.4", "50", "2868"], ["medium", "mixed", "low"], ["medium", "memory", "medium"]),
    ("light", ["1.4", "15", ""], ["medium", "mixed", "medium"], ["low", "mixed", "low"]),
    ("some", ["1.6", "40", ""], ["medium", "mixed", "medium"], ["medium", "mixed", "medium"]),
    ("c749", ["2.996", "", ""], ["medium", "compute", "high"], NO_GPU),
    ("c750", ["3", "", ""], ["high", "compute", "high"], NO_GPU),
    ("c299", ["1.196", "", ""], ["low", "mixed", "medium"], NO_GPU),
    ("c301", ["1.204", "", ""], ["medium", "mixed", "medium"], NO_GPU),
    ("c199", ["0.796", "", ""], ["low", "io", "low"], NO_GPU),
    ("c201", ["0.804", "", ""], ["low", "mixed", "medium"], NO_GPU),
    ("c649", ["2.596", "", ""], ["medium", "mixed", "medium"], NO_GPU),
    ("c651", ["2.604", "", ""], ["medium", "compute", "medium"], NO_GPU),
    ("c701", ["2.804", "", ""], ["medium", "compute", "high"], NO_GPU),
    // 70.1 % of the processors and exactly half of the memory.
    ("both", ["2.804", "", "2048"], ["medium", "mixed", "medium"], NO_GPU),
    ("more", ["2.396", "", "2056"], ["medium", "memory", "low"], NO_GPU),
];

#[tokio::test(flavor = "multi_thread")]
async fn c15_what_prometheus_says_of_pods_is_what_their_profiles_say() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.node("a").await;
    let (mut cores, mut gpus, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let of = |pod: &str| json!({"namespace": "default", "pod": pod});
    let bytes: Vec<String> = ROWS
        .iter()
        .map(|&(_, [.., mib], ..)| mib.parse::<u64>().map(|mib| (mib << 20).to_string()).unwrap_or_default())
        .collect();
    for (&(name, [core, gpu, _], ..), bytes) in ROWS.iter().zip(&bytes) {
        cluster.runs(name, "a", u32::from(!gpu.is_empty()), json!({})).await;
        cores.push((of(name), core));
        gpus.extend((!gpu.is_empty()).then(|| (of(name), gpu)));
        memory.extend((!bytes.is_empty()).then(|| (of(name), bytes.as_str())));
    }
    // By Kepler: four fifths of the energy is the package's; half of it is the memory's.
    for (name, annotations) in [
        ("kepler", json!({})),
        ("waits", json!({})),
        ("named", json!({"joulie.io/workload-class": "performance"})),
    ] {
        cluster.runs(name, "a", 0, annotations).await;
    }
    cores.extend([(of("kepler"), "2"), (of("waits"), "3.2"), (of("named"), "2.8")]);
    memory.push((of("kepler"), "2577000000"));
    let energy = |part: &str, watts: [&str; 3]| {
        let series: Vec<_> = ["kepler", "waits", "named"].into_iter().map(of).zip(watts).collect();
        prometheus.says(&format!("kepler_container_{part}_joules_total"), &series);
    };
    energy("package", ["80", "50", "90"]);
    energy("dram", ["20", "50", "5"]);
    prometheus.says("container_cpu_usage_seconds_total", &cores);
    prometheus.says("DCGM_FI_DEV_GPU_UTIL", &gpus);
    prometheus.says("container_memory_working_set_bytes", &memory);

    let url = prometheus.url();
    let operator = cluster
        .operator(&[
            ("PROMETHEUS_ADDRESS", &url),
            ("CLASSIFY_INTERVAL", "100ms"),
            ("RECLASSIFY_INTERVAL", "10m"),
        ])
        .await;
    let all = ROWS.len() + 3;
    cluster
        .until("every pod has a status", async || {
            let profiles = cluster.list(PROFILES).await;
            profiles.len() == all && profiles.iter().all(|profile| profile["status"]["cpu"].is_object())
        })
        .await;
    for (name, used, cpu, gpu) in ROWS {
        let said = cluster.said_of(name).await;
        assert_eq!(words(&said["cpu"]), cpu, "{name} {used:?}: {said}");
        assert_eq!(words(&said["gpu"]), gpu, "{name} {used:?}: {said}");
        assert_eq!(said["confidence"], 0.5, "{name}: {said}");
    }
    let kepler = cluster.said_of("kepler").await;
    assert_eq!(words(&kepler["cpu"]), ["medium", "compute", "high"], "{kepler}");
    assert!(kepler["classificationReason"].as_str().unwrap().contains("kepler override"), "{kepler}");
    assert_eq!(words(&cluster.said_of("waits").await["cpu"]), ["high", "memory", "low"]);
    let confidence = |said: Value| said["confidence"].as_f64();
    assert_eq!(confidence(kepler), Some(0.7));
    assert_eq!(confidence(cluster.said_of("named").await), Some(0.9));
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_with_prometheus_away_the_annotations_of_simulated_pods_count_if_that_is_asked_for() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    prometheus.is(Mood::Away);
    cluster.node("a").await;
    for (name, cpu, gpu, memory) in
        [("p1", "85", "0", "15"), ("p2", "15", "0", "10"), ("p3", "30", "85", "20")]
    {
        let said = json!({"sim.joulie.io/cpu-util-pct": cpu, "sim.joulie.io/gpu-util-pct": gpu,
            "sim.joulie.io/memory-pressure-pct": memory});
        cluster.runs(name, "a", 0, said).await;
    }
    let url = prometheus.url();
    let operator = cluster
        .operator(&[
            ("PROMETHEUS_ADDRESS", &url),
            ("PROMETHEUS_TIMEOUT", "300ms"),
            ("CLASSIFY_INTERVAL", "100ms"),
            ("RECLASSIFY_INTERVAL", "1s"),
            ("CLASSIFY_SIM_ANNOTATION_FALLBACK", "true"),
        ])
        .await;
    let class = async |name: &str| cluster.said_of(name).await["criticality"]["class"].clone();
    cluster
        .until("the classes follow", async || {
            (class("p1").await, class("p2").await, class("p3").await)
                == (json!("performance"), json!("standard"), json!("performance"))
        })
        .await;
    assert_eq!(cluster.said_of("p1").await["cpu"]["intensity"], "high");
    assert_eq!(cluster.said_of("p3").await["gpu"]["intensity"], "high");
    operator.stop().await;
}

/// A node and its GPUs, its pods of low, medium and high intensity, and the advice: mode, profile, slices of a GPU and of all.
type SlicingRow = (&'static str, u32, [usize; 3], &'static str, Value, u32, u32);

#[tokio::test(flavor = "multi_thread")]
async fn c15_the_advice_on_dividing_gpus_follows_the_plurality_of_their_pods() {
    let cluster = Cluster::new().await;
    let (small, half) = (json!("1g.10gb"), json!("3g.40gb"));
    let rows: [SlicingRow; 8] = [
        ("s0", 1, [0, 0, 0], "time-slicing", Value::Null, 4, 4),
        ("s1", 1, [1, 0, 0], "mig", small.clone(), 7, 7),
        ("s2", 8, [2, 1, 0], "mig", small, 7, 56),
        ("s3", 1, [2, 2, 0], "mig", half.clone(), 2, 2),
        ("s4", 1, [2, 0, 2], "none", Value::Null, 1, 1),
        ("s5", 1, [1, 1, 1], "mig", half.clone(), 2, 2),
        ("s6", 1, [0, 2, 2], "mig", half, 2, 2),
        ("s7", 4, [0, 1, 2], "none", Value::Null, 1, 4),
    ];
    for (node, count, pods, ..) in &rows {
        cluster.with_gpus(node, *count, ("NVIDIA_H100_SXM", 700)).await;
        for (level, many) in ["low", "medium", "high"].into_iter().zip(pods) {
            for at in 0..*many {
                let name = format!("{node}-{level}-{at}");
                cluster.runs(&name, node, 1, json!({})).await;
                let profile = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "WorkloadProfile",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"workloadRef": {"kind": "Pod", "name": name}}});
                cluster.create(PROFILES, &profile).await;
                let said =
                    json!({"confidence": 0.9, "cpu": {"intensity": "low"}, "gpu": {"intensity": level}});
                let path = format!("{PROFILES}/{name}/status?fieldManager=kubectl");
                cluster.patch(&path, &json!({"status": said})).await;
            }
        }
    }
    let operator = cluster.operator(&[("ENABLE_CLASSIFIER", "true")]).await;
    for (node, _, pods, mode, slice, each, total) in rows {
        let advice = async || {
            let twin = cluster.twin(node).await.unwrap_or_default();
            twin["status"]["gpuSlicingRecommendation"].clone()
        };
        cluster.until(&format!("{node} {pods:?}"), async || advice().await["mode"] == mode).await;
        let said = advice().await;
        assert_eq!(
            (&said["sliceType"], &said["slicesPerGPU"], &said["totalSlices"]),
            (&slice, &json!(each), &json!(total)),
            "{node} {pods:?}: {said}"
        );
        // 0.3 without any, else a tenth for each pod.
        let workloads: usize = pods.iter().sum();
        let tenths = if workloads == 0 { 3.0 } else { f64::from(u32::try_from(workloads).unwrap()) };
        assert_eq!(said["confidence"].as_f64(), Some(tenths / 10.0), "{node} {pods:?}: {said}");
    }
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_the_linear_model_and_the_threshold_of_recommendations() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    for node in ["a", "b"] {
        cluster.with_gpus(node, 8, ("NVIDIA_H100_NVL", 400)).await;
    }
    let replicas = json!({"joulie.io/reschedulable": "true"});
    cluster.runs("moves", "b", 0, replicas).await;
    let says = |metric: &str, value: &str| prometheus.says(metric, &[(json!({}), value)]);
    let (ambient, load) = ("datacenter_ambient_temperature_celsius", "datacenter_total_it_power_watts");
    says(ambient, "0");
    says(load, "35000");
    let url = prometheus.url();
    let operator = cluster
        .operator(&[
            ("PROMETHEUS_ADDRESS", &url),
            ("ENABLE_FACILITY_METRICS", "true"),
            ("FACILITY_POLL_INTERVAL", "200ms"),
            ("COOLING_MODEL", "linear"),
            ("GPU_NODE_CPU_CAPS", "true"),
            ("STATIC_HP_FRAC", "0.5"),
        ])
        .await;
    let twin = async |node: &str| {
        let (status, page) = operator.page(&format!("/debug/plan?node={node}")).await;
        let page: Value = serde_json::from_str(&page).unwrap_or_default();
        if status == 200 { page["nodes"][0]["twin"].clone() } else { Value::Null }
    };
    let is = async |node: &str, score: &str, wanted: f64| {
        twin(node).await[score].as_f64().is_some_and(|found| (found - wanted).abs() < 0.001)
    };
    // Of 3920 W at full power, and of 2352 W at 60 %, against 4000 W: 78.4 and 47.04; half a point for each degree above 20.
    cluster.until("a is at full power", async || is("a", "coolingStress", 78.4).await).await;
    for (degrees, wanted) in [("0", 47.04), ("25", 49.54), ("40", 57.04)] {
        says(ambient, degrees);
        cluster.until(&format!("b at {degrees} °C"), async || is("b", "coolingStress", wanted).await).await;
    }
    // 35,000 W of 50 kW are 70 %, which is the threshold and not above it.
    let named = async || {
        let twin = cluster.twin("b").await.unwrap_or_default();
        twin["status"]["rescheduleRecommendations"].as_array().cloned().unwrap_or_default()
    };
    assert!(is("b", "psuStress", 70.0).await, "{}", twin("b").await);
    cluster.quiet(std::time::Duration::from_millis(500)).await;
    assert_eq!(named().await, Vec::<Value>::new());
    says(load, "35000.5");
    cluster.until("the pod is named", async || named().await.len() == 1).await;
    assert_eq!(
        (&named().await[0]["cause"], &named().await[0]["workloadRef"]["name"]),
        (&json!("psu_stress"), &json!("moves"))
    );
    operator.stop().await;
}
