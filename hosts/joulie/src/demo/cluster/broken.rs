//! What can be broken that more than one place has to agree about: the operator's file of settings, the faults of the API, and objects
//! that a person would create with kubectl.

use super::super::fault::{DemoFault, SLEEPER};
use super::super::home::NO_SETTINGS;
use super::DemoCluster;
use super::act::{SHOP, Verb, send};
use super::parts::Part;
use embedded_api::{ApiFaults, InjectedResponse, Loss, Matching, Verb as ApiVerb};
use joulie_api::sleep::SleepAnnotation;
use joulie_api::{labels, names};
use joulie_core::placement::sleep::SleepPhase;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A line of the operator's file of settings that is refused.
const MISTAKE: &str = "STATIC_HP_FRAC=most of them\n";
/// Pods leave hot nodes at once, where their controllers can be told. Whatever a machine draws is too much where the cooling fails, and
/// what it may draw under its caps is not too much elsewhere.
const EVICTS: &str = "ENABLE_ACTIVE_RESCHEDULING=true\nRESCHEDULE_INTERVAL=1s\nRESCHEDULE_STRESSED_FOR=0s\n\
     RESCHEDULE_WINDOW=1s\nRESCHEDULE_COOLDOWN=1s\nRESCHEDULE_THRESHOLD=90\nCOOLING_MODEL=table\nCOOLING_TABLE=30=100,40=5\n";
/// A node that is to wake is soon left to people.
const WAKES_SOON: &str = "SLEEP_WAKE_TAKES=1s\nSLEEP_WAKE_WITHIN=2s\n";
/// Pods of the demo run for a minute: only one that stays keeps a node for so long in a cluster, with the hour that is usual there.
const SOON_OVERDUE: &str = "DRAIN_DEADLINE=5s\n";
/// More requests than a demo sends.
const FOR_GOOD: usize = 1 << 30;
/// The DaemonSet whose pods ask for performance.
const DAEMON: &str = "collector";
/// A node that is deleted is left by all programs when nothing was written about it for so many looks.
const QUIET_LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// A minute of looks.
const LOOKS_MOST: u32 = 300;
/// The Deployment whose pods ask for nothing, so that there is room for them on every node.
const SMALL: &str = "beacon";
/// The processors of the node that was put to sleep.
const CPU_MODEL: &str = "INTEL_XEON_GOLD_6530";

/// The operator's file of settings while that is broken.
fn settings(broken: &BTreeSet<DemoFault>) -> String {
    let line = |fault: &DemoFault| match fault {
        DemoFault::Settings => MISTAKE,
        DemoFault::Evictions => EVICTS,
        DemoFault::Stays => SOON_OVERDUE,
        DemoFault::Sleeper => WAKES_SOON,
        DemoFault::Extender
        | DemoFault::Ignores
        | DemoFault::Refuses
        | DemoFault::Fails
        | DemoFault::Slow
        | DemoFault::Meddles
        | DemoFault::Guest
        | DemoFault::Prometheus
        | DemoFault::Sensors
        | DemoFault::Meters
        | DemoFault::Rights
        | DemoFault::Twins
        | DemoFault::CutOff
        | DemoFault::Certificate => "",
    };
    std::iter::once(NO_SETTINGS).chain(broken.iter().map(line)).collect()
}

impl DemoCluster {
    /// What is broken once this is as it shall be.
    fn broken_with(&self, fault: DemoFault, on: bool) -> BTreeSet<DemoFault> {
        let mut broken = self.broken.clone();
        let _was = if on { broken.insert(fault) } else { broken.remove(&fault) };
        broken
    }

    /// Writes the operator's file of settings.
    pub(super) fn write_settings(&self, fault: DemoFault, on: bool) -> Result<(), String> {
        let path = self.demo.settings.as_ref().ok_or("the operator has no file of settings here")?;
        let text = settings(&self.broken_with(fault, on));
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Sets the faults of the API. Nothing else sets any. Those that stay are on all the time.
    pub(super) fn break_api(&self, fault: DemoFault, on: bool) {
        let (faults, wanted) = (self.demo.api.faults(), ApiFaults::default());
        let broken = self.broken_with(fault, on);
        let profiles = Matching::any().client("joulie-extender").resource("workloadprofiles");
        if broken.contains(&DemoFault::Rights) {
            let grants =
                Matching::any().client("joulie-operator").verb(ApiVerb::Patch).resource("nodepowergrants");
            wanted.fail(grants, InjectedResponse::Forbidden, FOR_GOOD);
            wanted.fail(profiles.clone().verb(ApiVerb::Watch), InjectedResponse::Forbidden, FOR_GOOD);
        }
        if broken.contains(&DemoFault::Twins) {
            let twins = Matching::any().client("joulie-extender").resource("nodetwins");
            wanted.fail(twins, InjectedResponse::Forbidden, FOR_GOOD);
        }
        if broken.contains(&DemoFault::CutOff) {
            wanted.partition("joulie-agent", Loss::Silent);
        }
        faults.replace(&wanted);
        if broken.contains(&DemoFault::Rights) {
            faults.drop_watches(&profiles);
        }
    }

    /// Starts the extender again. One that was killed stays so.
    pub(super) async fn restart_extender(&mut self) -> Result<(), String> {
        match self.hosts.remove(&Part::Extender) {
            None => Ok(()),
            Some(host) => {
                host.stop().await;
                self.start_extender().await
            }
        }
    }

    /// Creates the pods of a DaemonSet of class performance, one on each node, or deletes them.
    pub(super) async fn stay(&self, on: bool) -> Result<(), String> {
        let resources = json!({"requests": {"cpu": "10m", "memory": "16Mi"}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": format!("{DAEMON}-"),
                "labels": {"app": DAEMON},
                "annotations": {labels::pod::WORKLOAD_CLASS: "performance"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": DAEMON, "uid": DAEMON,
                    "controller": true}],
            },
            "spec": {"containers": [{"name": DAEMON, "image": DAEMON, "resources": resources}]}});
        self.on_each_node(on, DAEMON, pod).await
    }

    /// Creates the pods of a Deployment that may be moved and fit on every node, one on each, or deletes them.
    pub(super) async fn move_away(&self, on: bool) -> Result<(), String> {
        let set = format!("{SMALL}-6c8b");
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": format!("{set}-"),
                "labels": {"app": SMALL, "pod-template-hash": "6c8b"},
                "annotations": {labels::pod::RESCHEDULABLE: labels::TRUE},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": SMALL,
                    "controller": true}],
            },
            "spec": {"containers": [{"name": SMALL, "image": SMALL}]}});
        self.on_each_node(on, SMALL, pod).await
    }

    /// Creates such a pod on each node, as a controller and a scheduler would, or deletes those of this app.
    async fn on_each_node(&self, on: bool, app: &str, mut pod: Value) -> Result<(), String> {
        let client = self.demo.client("kubectl");
        let pods = format!("/api/v1/namespaces/{SHOP}/pods");
        if !on {
            for pod in named(&client, &format!("{pods}?labelSelector=app%3D{app}")).await? {
                delete(&client, &format!("{pods}/{pod}")).await?;
            }
            return Ok(());
        }
        for node in named(&client, NODES).await? {
            pod["spec"]["nodeName"] = json!(node);
            send(&client, Verb::Create, &pods, &pod).await?;
        }
        Ok(())
    }

    /// Creates a node that has no machine, or deletes it with what is written about it, as the garbage collector and a person would.
    pub(super) async fn join(&self, node: &str, on: bool) -> Result<(), String> {
        let client = self.demo.client("kubectl");
        if on {
            let asleep = SleepAnnotation {
                phase: SleepPhase::Starting,
                since: self.demo.clock.wall(),
                boot: "before",
            };
            return send(&client, Verb::Create, NODES, &newcomer(node, &asleep)).await;
        }
        delete(&client, &format!("{NODES}/{node}")).await?;
        // What is still written after the node has gone is deleted too.
        let mut quiet = 0;
        for _ in 0..LOOKS_MOST {
            let mut wrote = false;
            for plural in ["nodehardwares", "nodepowerprofiles", "nodepowergrants", "nodetwins"] {
                let path = format!("/apis/{}/v1alpha1/{plural}/{}", labels::GROUP, names::plain(node));
                wrote |= delete(&client, &path).await?;
            }
            quiet = if wrote { 0 } else { quiet + 1 };
            if quiet == QUIET_LOOKS {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Err(format!("something still writes about node {node}, which is deleted"))
    }
}

/// A node that has no machine. Pods are kept away.
fn newcomer(name: &str, asleep: &SleepAnnotation<'_>) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {labels::node::MANAGED: labels::TRUE}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "10"}}});
    if name == SLEEPER {
        node["metadata"]["labels"][labels::node::CPU_MODEL] = json!(CPU_MODEL);
        node["metadata"]["labels"][labels::node::CPU_SOCKETS] = json!("2");
        node["metadata"]["annotations"] = json!({labels::node::SLEEP_STATE: asleep.to_string()});
        node["spec"]["taints"] = json!([{"key": labels::node::SLEEPING, "effect": "NoSchedule"}]);
        node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    }
    node
}

/// All nodes.
const NODES: &str = "/api/v1/nodes";

/// The names of what is listed there.
async fn named(client: &Client, path: &str) -> Result<Vec<String>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("GET {path}: {why}");
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| failed(&error))?;
    let list: Value = client.request(request).await.map_err(|error| failed(&error))?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// Deletes an object, and says whether it was there. One that is gone already is as it should be.
async fn delete(client: &Client, path: &str) -> Result<bool, String> {
    let failed = |why: &dyn std::fmt::Display| format!("DELETE {path}: {why}");
    let request = http::Request::delete(path).body(Vec::new()).map_err(|error| failed(&error))?;
    match client.request_text(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mended_leaves_the_other_lines_of_the_file_of_settings() {
        let text = |broken: &[DemoFault]| settings(&broken.iter().copied().collect());
        assert_eq!(text(&[]), NO_SETTINGS);
        assert_eq!(text(&[DemoFault::Rights, DemoFault::Guest]), NO_SETTINGS);
        assert_eq!(text(&[DemoFault::Settings]), format!("{NO_SETTINGS}{MISTAKE}"));
        let both = text(&[DemoFault::Evictions, DemoFault::Stays]);
        assert!(
            both.starts_with(NO_SETTINGS) && both.contains(EVICTS) && both.contains(SOON_OVERDUE),
            "{both}"
        );
        assert_eq!(text(&[DemoFault::Stays]), format!("{NO_SETTINGS}{SOON_OVERDUE}"));
        let takes = |line: &str| {
            let (name, value) = line.split_once('=').unwrap();
            let setting =
                operator::settings::TABLE.settings.iter().find(|setting| setting.name() == name).unwrap();
            assert!(setting.live(), "{line}");
            setting.parse(value).is_ok()
        };
        let all = text(&[DemoFault::Evictions, DemoFault::Stays, DemoFault::Sleeper]);
        assert!(
            all.contains(WAKES_SOON) && all.lines().filter(|line| !line.starts_with('#')).all(takes),
            "{all}"
        );
        assert!(!takes(MISTAKE.trim()));
    }

    #[test]
    fn a_node_that_joins_is_asleep_only_where_it_is_to_wake() {
        let asleep = SleepAnnotation::read("starting 2026-01-01T00:00:00Z before").unwrap();
        let sleeper = newcomer(SLEEPER, &asleep);
        assert_eq!(SleepAnnotation::text(&sleeper).and_then(SleepAnnotation::read), Some(asleep));
        assert_eq!(sleeper["spec"]["taints"][0]["key"], "joulie.io/sleeping");
        let guest = newcomer("guest", &asleep);
        assert!(SleepAnnotation::text(&guest).is_none() && guest["spec"]["taints"].is_null());
        assert_eq!(guest["metadata"]["labels"], json!({labels::node::MANAGED: labels::TRUE}));
    }
}
