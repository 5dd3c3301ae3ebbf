//! kubectl, if it is installed: commands that a person types, and their expected output.

use conformance::{definition, definitions};
use embedded_api::{ApiOptions, EmbeddedApi};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

struct Kubectl {
    home: PathBuf,
}

impl Kubectl {
    /// Runs kubectl with these arguments.
    fn run(&self, line: &[&str]) -> Output {
        let mut command = Command::new("kubectl");
        command.args(line).current_dir(&self.home);
        command.env("KUBECONFIG", self.home.join("kubeconfig")).env("HOME", &self.home);
        command.output().unwrap()
    }

    /// Runs a command that must succeed, and checks its output.
    #[track_caller]
    fn says(&self, line: &str, expected: &[&str]) -> String {
        let output = self.run(&line.split(' ').collect::<Vec<_>>());
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {line}: {out}{error}");
        for expected in expected {
            assert!(out.contains(expected), "kubectl {line} does not say {expected:?}: {out}{error}");
        }
        out.into_owned()
    }

    /// Runs a command that must fail, and checks its error.
    #[track_caller]
    fn refuses(&self, line: &str, expected: &str) {
        let output = self.run(&line.split(' ').collect::<Vec<_>>());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success(),
            "kubectl {line} succeeds: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(error.contains(expected), "kubectl {line} does not say {expected:?}: {error}");
    }

    fn write(&self, name: &str, value: &serde_json::Value) {
        std::fs::write(self.home.join(name), value.to_string()).unwrap();
    }
}

/// A fresh home directory, so that no cache and no configuration of the machine is used.
fn home(root: &Path) -> Kubectl {
    let home = root.join("kubectl-home");
    drop(std::fs::remove_dir_all(&home));
    std::fs::create_dir_all(&home).unwrap();
    let kubectl = Kubectl { home };
    let probe = |name: &str, spec: serde_json::Value| json!({"apiVersion": "conformance.joulie.io/v1", "kind": "Probe", "metadata": {"name": name}, "spec": spec});
    kubectl.write("probe.json", &probe("p1", json!({"nodeName": "n1", "watts": 250})));
    kubectl.write("changed.json", &probe("p1", json!({"nodeName": "n1", "watts": 300})));
    kubectl.write("typo.json", &probe("p2", json!({"nodeName": "n1", "wats": 250})));
    kubectl.write("node.json", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    let container = json!({"name": "c", "image": "none"});
    kubectl.write(
        "pod.json",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod1"},
        "spec": {"containers": [container]}}),
    );
    kubectl.write(
        "lease.json",
        &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "plan"}, "spec": {"holderIdentity": "op-1"}}),
    );
    let mut late = serde_json::to_value(definition()).unwrap();
    late["metadata"]["name"] = json!("lates.conformance.joulie.io");
    late["spec"]["names"] =
        json!({"plural": "lates", "kind": "Late", "singular": "late", "listKind": "LateList"});
    late["apiVersion"] = json!("apiextensions.k8s.io/v1");
    late["kind"] = json!("CustomResourceDefinition");
    kubectl.write("late.json", &late);
    kubectl
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_on_it() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        println!("SKIP(no kubectl on this machine)");
        return;
    }
    let api = EmbeddedApi::new(&ApiOptions::with(definitions())).unwrap();
    let serving = api.serve("127.0.0.1:0".parse().unwrap(), None, None).await.unwrap();
    let kubectl = home(Path::new(env!("CARGO_TARGET_TMPDIR")));
    serving.write_kubeconfig(&kubectl.home.join("kubeconfig")).unwrap();
    tokio::task::spawn_blocking(move || {
        custom(&kubectl);
        joulies(&kubectl);
        built_in(&kubectl);
        learned(&kubectl);
    })
    .await
    .unwrap();
    serving.stop().await;
}

fn custom(kubectl: &Kubectl) {
    kubectl.says("api-resources", &["probes", "prb", "leases"]);
    kubectl.says("apply -f probe.json", &["probe.conformance.joulie.io/p1 created"]);
    kubectl.says("apply -f probe.json", &["p1 unchanged"]);
    kubectl.refuses("apply -f typo.json", "unknown field \"spec.wats\"");
    let table = kubectl.says("get prb", &["NAME", "NODE", "WATTS", "READY", "AGE"]);
    let row: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["p1", "n1", "250"], "{table}");
    kubectl.says("get conformance", &["p1"]);
    kubectl.says("get prb p1 -o yaml", &["nodeName: n1", "generation: 1"]);
    kubectl.says("get prb --field-selector spec.nodeName=n1 -o name", &["probe.conformance.joulie.io/p1"]);
    kubectl.says("describe prb p1", &["Node Name:  n1", "Events:       <none>"]);
    kubectl
        .says("explain prb.spec", &["KIND:       Probe", "nodeName\t<string> -required-", "watts\t<number>"]);
    kubectl.refuses("get prb nope", "probes.conformance.joulie.io \"nope\" not found");
    let diff = kubectl.run(&["diff", "-f", "changed.json"]);
    assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
    assert!(String::from_utf8_lossy(&diff.stdout).contains("+  watts: 300"));
    kubectl.says("apply --server-side --field-manager=op -f probe.json", &["p1 serverside-applied"]);
    kubectl.refuses("apply --server-side --field-manager=two -f changed.json", "Apply failed with");
    kubectl.says(
        "apply --server-side --force-conflicts --field-manager=two -f changed.json",
        &["serverside-applied"],
    );
    kubectl.says("patch prb p1 --type merge -p {\"spec\":{\"watts\":100}}", &["p1 patched"]);
    kubectl.says(
        "patch prb p1 --subresource status --type merge -p {\"status\":{\"score\":9}}",
        &["p1 patched"],
    );
    kubectl.refuses("patch prb p1 -p {\"spec\":{\"watts\":1}}", "--type merge");
    kubectl.says("annotate prb p1 a=b", &["p1 annotated"]);
    watched(kubectl, "prb", "p1", |n| format!("patch prb p1 --type merge -p {{\"spec\":{{\"watts\":{n}}}}}"));
    kubectl.says("delete prb p1", &["\"p1\" deleted"]);
}

/// Joulie's own kinds, with the example objects.
fn joulies(kubectl: &Kubectl) {
    let good = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../joulie-api/examples/good");
    for (file, name) in [
        ("gpu-current", "gpu.gpu.mle.com/gpu-node-1-gpu-5c1b2f3a-0001"),
        ("nodehardware-current", "nodehardware.joulie.io/node-b"),
        ("nodepowerprofile-current", "nodepowerprofile.joulie.io/worker-3"),
        ("nodetwin-current", "nodetwin.joulie.io/node-d"),
        ("telemetryprofile-current", "telemetryprofile.joulie.io/everywhere"),
        ("workloadprofile-current", "workloadprofile.joulie.io/web"),
    ] {
        let apply = format!("apply -f {}", good.join(format!("{file}.yaml")).display());
        kubectl.says(&apply, &[&format!("{name} created")]);
        // The status in the file is not stored, so kubectl reports a change again.
        kubectl.says(&apply, &[&format!("{name} configured")]);
        kubectl.says(&format!("describe {name}"), &["API Version:", "Events:"]);
        kubectl.says(&format!("get {name} -o yaml"), &["spec:"]);
    }
    kubectl
        .says("get joulie -A", &["node-d", "worker-3", "everywhere", "web", "gpu-node-1-gpu-5c1b2f3a-0001"]);
    let told =
        "patch nt node-d --subresource status --type merge -p {\"status\":{\"schedulableClass\":\"eco\"}}";
    kubectl.says(told, &["node-d patched"]);
    let table = kubectl.says("get nt", &["NAME", "NODE", "PROFILE", "CLASS", "POWERHEADROOM", "DRAINING"]);
    let row: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["node-d", "node-d", "eco", "eco"], "{table}");
    kubectl.says("get npp --field-selector spec.nodeName=worker-3", &["CPU-PCT", "55"]);
    kubectl.says("explain nodetwin.spec.cpu", &["packagePowerCapWatts\t<number>"]);
    kubectl.says("explain npp.spec.profile", &["performance", "eco"]);
    kubectl.refuses(
        "patch npp worker-3 --type merge -p {\"spec\":{\"profile\":\"turbo\"}}",
        "Unsupported value",
    );
    watched(kubectl, "nt", "node-d", |n| {
        format!("patch nt node-d --type merge -p {{\"spec\":{{\"cpu\":{{\"packagePowerCapWatts\":{n}}}}}}}")
    });
    kubectl.says("delete nt node-d", &["\"node-d\" deleted"]);
    kubectl.says("delete npp,nhw,tp,gpus --all", &["worker-3", "node-b", "everywhere"]);
}

/// The rows of `get -w` after which no more changes are made: the object as it is, and three changes.
const ROWS: usize = 4;

/// `get -w` shows the existing object, then its changes.
fn watched(kubectl: &Kubectl, kind: &str, name: &str, change: impl Fn(u32) -> String) {
    let mut command = Command::new("kubectl");
    command.args(["get", kind, name, "-w", "--request-timeout=30s"]).current_dir(&kubectl.home);
    command.env("KUBECONFIG", kubectl.home.join("kubeconfig")).env("HOME", &kubectl.home);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, shown) = (BufReader::new(child.stdout.take().unwrap()), Arc::new(Mutex::new(Vec::new())));
    let lines = shown.clone();
    let reader =
        std::thread::spawn(move || out.lines().for_each(|line| lines.lock().unwrap().push(line.unwrap())));
    let of =
        |word: &str| shown.lock().unwrap().iter().filter(|line: &&String| line.starts_with(word)).count();
    let row = format!("{name} ");
    // On a slow machine a change takes a while. Repeat it until the watch has seen enough, or ends.
    for number in 101.. {
        kubectl.says(&change(number), &["ed\n"]);
        if of(&row) >= ROWS || child.try_wait().unwrap().is_some() {
            break;
        }
    }
    // It may have ended by itself.
    let _ended = child.kill();
    let said = child.wait_with_output().unwrap();
    reader.join().unwrap();
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(of(&row) >= ROWS, "{:?}: {said}", shown.lock().unwrap());
    assert_eq!(of("NAME"), 1, "{:?}: {said}", shown.lock().unwrap());
}

fn built_in(kubectl: &Kubectl) {
    kubectl.says("apply -f node.json -f pod.json -f lease.json", &["node/n1 created", "pod/pod1 created"]);
    kubectl.says("get leases", &["plan", "op-1"]);
    watched(kubectl, "nodes", "n1", |n| format!("label node n1 --overwrite count={n}"));
    watched(kubectl, "pods", "pod1", |n| {
        format!("patch pod pod1 -p {{\"metadata\":{{\"labels\":{{\"n\":\"{n}\"}}}}}}")
    });
    watched(kubectl, "leases", "plan", |n| format!("label lease plan --overwrite count={n}"));
    kubectl.says("explain node.spec.taints", &["-required-"]);
    kubectl.says("explain pod.spec.containers.resources", &["limits"]);
    kubectl.says("explain lease.spec", &["holderIdentity"]);
    kubectl.says("describe lease plan", &["Holder Identity:  op-1"]);
    kubectl.says("describe pod pod1", &["Status:       Pending"]);
    kubectl.says("cordon n1", &["cordoned"]);
    kubectl.says("label node n1 joulie.io/managed=true", &["labeled"]);
    kubectl.says("taint node n1 joulie.io/draining=true:NoSchedule", &["tainted"]);
    kubectl.says("get nodes -l joulie.io/managed=true", &["SchedulingDisabled"]);
    kubectl.says("describe node n1", &["joulie.io/draining=true:NoSchedule", "Unschedulable:      true"]);
    kubectl.says("drain n1 --timeout=20s", &["drained"]);
    kubectl.says("uncordon n1", &["uncordoned"]);
    kubectl.says("patch lease plan -p {\"spec\":{\"holderIdentity\":\"op-2\"}}", &["patched"]);
    kubectl.says("get pods -A -o wide", &["pod1", "0/1", "Pending"]);
    kubectl.says("delete pod pod1", &["deleted"]);
    kubectl.says("delete node n1", &["deleted"]);
}

/// An applied definition is served.
fn learned(kubectl: &Kubectl) {
    kubectl.says("apply -f late.json", &["lates.conformance.joulie.io created"]);
    kubectl.says("get crd", &["lates.conformance.joulie.io", "probes.conformance.joulie.io"]);
    kubectl.says("get lates", &[]);
    kubectl.says("delete crd lates.conformance.joulie.io", &["deleted"]);
    kubectl.refuses("get lates", "");
}
