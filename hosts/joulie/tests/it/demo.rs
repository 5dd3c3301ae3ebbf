//! The whole demo as a separate process, tested through its API and its output.

use kube::api::{Api, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, Config};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// A running demo.
pub(super) struct Demo {
    pub(super) child: Child,
    pub(super) kubeconfig: PathBuf,
    /// What it says, where nobody else reads it.
    says: Option<JoinHandle<Vec<u8>>>,
}

/// A unique file.
pub(super) fn fresh(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", std::process::id()));
    let _old = std::fs::remove_file(&path);
    path
}

pub(super) fn joulie() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulie"));
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

impl Demo {
    pub(super) fn start(words: &[&str]) -> Self {
        let mut demo = Self::piped(words);
        let mut out = demo.child.stdout.take().unwrap();
        // A pipe that nobody reads would stop the demo.
        demo.says = Some(std::thread::spawn(move || {
            let mut all = Vec::new();
            out.read_to_end(&mut all).unwrap();
            all
        }));
        demo
    }

    /// A demo whose output its caller reads.
    pub(super) fn piped(words: &[&str]) -> Self {
        let kubeconfig = fresh("kubeconfig");
        let mut command = joulie();
        command.args(words).arg("--kubeconfig").arg(&kubeconfig);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, kubeconfig, says: None }
    }

    /// A client like kubectl's.
    pub(super) async fn client(&self) -> Client {
        for _ in 0..200 {
            // The file exists, empty, before the API listens.
            if let Ok(file) = Kubeconfig::read_from(&self.kubeconfig)
                && let Ok(config) = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
            {
                return Client::try_from(config).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the demo has not written its kubeconfig within 10 s");
    }

    fn end(self) -> String {
        let mut output = self.child.wait_with_output().unwrap();
        output.stdout = self.says.map(|says| says.join().unwrap()).unwrap_or_default();
        said(&output)
    }
}

#[track_caller]
fn said(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{:?}\n{err}\n{out}", output.status);
    out
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

async fn all(client: &Client, resource: &ApiResource) -> Vec<Value> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let Ok(list) = api.list(&ListParams::default()).await else { return Vec::new() };
    list.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What a kubectl user sees while a demo runs.
#[derive(Default)]
struct Seen {
    performance_pods: BTreeSet<String>,
    ended: BTreeSet<String>,
    /// The phase of each pod at the last look.
    phases: BTreeMap<String, String>,
    /// Pods that failed, or were removed before they had ended.
    lost: BTreeSet<String>,
    misplaced: Vec<String>,
    capped: BTreeSet<String>,
    watts: BTreeMap<String, f64>,
}

impl Seen {
    /// Polls until the API is gone.
    async fn look(client: &Client) -> Self {
        let (mut seen, mut eco_since) = (Self::default(), BTreeMap::new());
        let mut bound = BTreeSet::new();
        #[expect(clippy::disallowed_methods, reason = "an onlooker's own clock")]
        let now = SystemTime::now;
        loop {
            let nodes = all(client, &kind("", "v1", "Node", "nodes")).await;
            for node in &nodes {
                let name = text(&node["metadata"]["name"]);
                if node["metadata"]["labels"]["joulie.io/power-profile"] == "eco" {
                    eco_since.entry(name).or_insert_with(now);
                } else {
                    eco_since.remove(&name);
                }
            }
            let pods = all(client, &kind("", "v1", "Pod", "pods")).await;
            seen.stand(&pods);
            for pod in pods {
                seen.pod(&pod, &mut bound, |node| {
                    // Lists are not taken at one instant: the label may have changed after the binding.
                    eco_since.get(node).is_some_and(|since| since.elapsed().unwrap() > Duration::from_secs(2))
                });
            }
            let profiles = kind("joulie.io", "v1alpha1", "NodePowerProfile", "nodepowerprofiles");
            for profile in all(client, &profiles).await {
                let control = &profile["status"]["control"];
                let caps = [&control["cpu"]["capWatts"], &control["gpu"]["capWatts"]];
                let watts: f64 = caps.iter().filter_map(|cap| cap.as_f64()).sum();
                if watts > 0.0 {
                    seen.capped.insert(text(&profile["spec"]["nodeName"]));
                    seen.watts.insert(text(&profile["spec"]["nodeName"]), watts);
                }
            }
            if nodes.is_empty() && !bound.is_empty() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Finds the pods that failed or were removed since the last look. An API that is gone lists no pods.
    fn stand(&mut self, pods: &[Value]) {
        if pods.is_empty() {
            return;
        }
        let phase = |pod: &Value| (text(&pod["metadata"]["uid"]), text(&pod["status"]["phase"]));
        let now: BTreeMap<String, String> = pods.iter().map(phase).collect();
        let gone = self.phases.iter().filter(|(uid, phase)| !now.contains_key(*uid) && *phase != "Succeeded");
        self.lost.extend(gone.map(|(uid, phase)| format!("{uid} was {phase}, and is gone")));
        let failed = now.iter().filter(|(_, phase)| *phase == "Failed" || *phase == "Unknown");
        self.lost.extend(failed.map(|(uid, phase)| format!("{uid} is {phase}")));
        self.phases = now;
    }

    fn pod(&mut self, pod: &Value, bound: &mut BTreeSet<String>, is_eco: impl Fn(&str) -> bool) {
        let (uid, node) = (text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"]));
        let performance = pod["metadata"]["annotations"]["joulie.io/workload-class"] == "performance";
        if performance {
            self.performance_pods.insert(uid.clone());
        }
        if pod["status"]["phase"] == "Succeeded" {
            self.ended.insert(uid.clone());
        }
        if !node.is_empty() && bound.insert(uid) && performance && is_eco(&node) {
            self.misplaced.push(format!("{} on {node}", text(&pod["metadata"]["name"])));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_places_every_performance_pod_well_and_caps_every_node() {
    let demo = Demo::start(&["demo", "--for", "25s"]);
    let client = demo.client().await;
    let seen = tokio::time::timeout(Duration::from_secs(120), Seen::look(&client)).await.unwrap();
    let kubeconfig = demo.kubeconfig.clone();
    let out = demo.end();
    assert!(seen.misplaced.is_empty(), "{:?}\n{out}", seen.misplaced);
    assert!(seen.lost.is_empty(), "{:?}\n{out}", seen.lost);
    assert!(!seen.performance_pods.is_empty() && !seen.ended.is_empty(), "{out}");
    assert_eq!(seen.capped.len(), 12, "{:?}\n{out}", seen.capped);
    assert!(out.contains("0 performance pods placed on eco nodes"), "{out}");
    assert!(out.contains(" 0 failed"), "{out}");
    assert!(out.contains("became eco: ") && out.contains(" W read back"), "{out}");
    assert!(out.contains("never measured above it"), "{out}");
    assert!(!out.contains('\x1b'), "{out}");
    assert!(!kubeconfig.exists(), "the kubeconfig names a server that is gone");
}

/// A pod that requests more than any node has waits, and its status says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_is_told_so_in_its_status() {
    let demo = Demo::start(&["demo", "--for", "20s"]);
    let client = demo.client().await;
    let pods: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &kind("", "v1", "Pod", "pods"));
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "giant"},
        "spec": {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "100000"}}}]},
    });
    let pod: DynamicObject = serde_json::from_value(pod).unwrap();
    while pods.create(&Default::default(), &pod).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let told = async {
        loop {
            let pod =
                pods.get("giant").await.map(|pod| serde_json::to_value(pod).unwrap()).unwrap_or_default();
            let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if let Some(one) = all.into_iter().find(|one| one["type"] == "PodScheduled") {
                return one;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(18), told).await.unwrap();
    assert_eq!((text(&told["status"]).as_str(), text(&told["reason"]).as_str()), ("False", "Unschedulable"));
    assert_eq!(told["message"], "no node has room");
    demo.end();
}

#[test]
fn what_chaos_breaks_is_noticed_and_what_it_mends_is_too() {
    let demo = Demo::start(&["demo", "--for", "60s", "--chaos"]);
    let out = demo.end();
    for part in [
        " cannot be measured: ",
        " is measured again",
        " is reserved by a person",
        " is in the plan again",
        " is capped by a person's hand",
        " is the operator's to cap again",
        "nobody has planned for ",
        "somebody plans again",
        "the extender does not answer, pods wait",
        "the extender answers again",
        "the cooling of zone-",
        " % of its cooling is used; web-5d4f-",
        "Deployment shop/web is classified: it works processors with high intensity",
        "0 performance pods placed on eco nodes",
        " 0 failed",
    ] {
        assert!(out.contains(part), "there is no {part:?} in\n{out}");
    }
    assert!(!out.contains("could not be done"), "{out}");
}

#[test]
fn an_interrupt_ends_it_with_the_table_and_nothing_left_behind() {
    let demo = Demo::start(&[]);
    while !std::fs::read_to_string(&demo.kubeconfig).is_ok_and(|text| text.contains("https://")) {
        std::thread::yield_now();
    }
    let kubeconfig = demo.kubeconfig.clone();
    let done = Command::new("kill").args(["-INT", &demo.child.id().to_string()]).status().unwrap();
    assert!(done.success());
    let out = demo.end();
    assert!(out.contains("joulie demo: the whole system on 12 simulated nodes"), "{out}");
    assert!(!kubeconfig.exists());
}

#[test]
fn a_demo_that_cannot_be_is_refused_with_what_is_accepted() {
    let there = fresh("somebodys-kubeconfig");
    std::fs::write(&there, "mine").unwrap();
    let table: [(&[&str], &str); 10] = [
        (&["demo", "--for", "20"], "expected a time with its unit"),
        (&["--for", "-1s"], "expected a time with its unit"),
        (&["demo", "--budget", "9"], "9kW or 9000W"),
        (&["demo", "--budget", "1W"], "from 100W to 1000kW"),
        (&["demo", "--page", "0.0.0.0:80"], "only this machine reaches"),
        (&["demo", "--page", "8080"], "only this machine reaches"),
        (&["demo", "--chaso"], "--chaos"),
        (&["demo", "--kubeconfig", there.to_str().unwrap()], "writes over nobody's"),
        (&["demo", "--log", "/no/such/folder/log"], "cannot be written"),
        (&["dmeo"], "demo"),
    ];
    for (words, accepted) in table {
        let output = joulie().args(words).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains(accepted), "{words:?}: {err}");
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
}

#[test]
fn a_terminal_gets_the_live_view_and_is_left_as_it_was() {
    let kubeconfig = fresh("kubeconfig");
    let line = format!(
        "stty cols 100 rows 30; exec {} demo --for 8s --kubeconfig {}",
        env!("CARGO_BIN_EXE_joulie"),
        kubeconfig.display()
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color").stdin(Stdio::null());
    let Ok(output) = command.output() else {
        println!("SKIP(there is no `script` to make a terminal with)");
        return;
    };
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}");
    let (enter, leave) = (out.find("\x1b[?1049h").unwrap(), out.rfind("\x1b[?1049l").unwrap());
    let view = &out[enter..leave];
    for part in ["joulie demo", "sim-epyc-0", "READ BACK", "WHAT HAPPENED", "budget"] {
        assert!(view.contains(part), "the view has no {part:?}");
    }
    assert!(out[..leave].contains("\x1b[?25h"), "the cursor is not back");
    assert!(
        out[leave..].contains("12 nodes for ") && !out[leave + 8..].contains('\x1b'),
        "{}",
        &out[leave..]
    );
}

#[test]
fn a_newcomer_gets_from_the_first_command_to_a_cap_by_hand() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        println!("SKIP(there is no kubectl on PATH)");
        return;
    }
    let walk = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/newcomer.sh");
    let output = Command::new("sh").arg(walk).env("JOULIE", env!("CARGO_BIN_EXE_joulie")).output().unwrap();
    let out = said_of(&output);
    assert!(out.ends_with("walk: done\n"), "{out}");
}

#[track_caller]
fn said_of(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{out}", String::from_utf8_lossy(&output.stderr));
    out
}
