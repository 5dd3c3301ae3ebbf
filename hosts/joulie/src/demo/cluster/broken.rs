//! What can be broken that more than one place has to agree about: the operator's file of settings, the faults of the API, and objects
//! that a person would create with kubectl.

use super::super::fault::{DemoFault, GUEST};
use super::super::home::NO_SETTINGS;
use super::DemoCluster;
use super::act::{SHOP, Verb, send};
use super::parts::Part;
use embedded_api::{ApiFaults, InjectedResponse, Loss, Matching, Verb as ApiVerb};
use joulie_api::{labels, names};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A line of the operator's file of settings that is refused.
const MISTAKE: &str = "STATIC_HP_FRAC=most of them\n";
/// Pods leave hot nodes at once, where their controllers can be told.
const EVICTS: &str = "ENABLE_ACTIVE_RESCHEDULING=true\nRESCHEDULE_INTERVAL=1s\nRESCHEDULE_STRESSED_FOR=0s\n\
     RESCHEDULE_WINDOW=1s\nRESCHEDULE_COOLDOWN=1s\n";
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

/// The operator's file of settings while that is broken.
fn settings(broken: &BTreeSet<DemoFault>) -> String {
    let line = |fault: &DemoFault| match fault {
        DemoFault::Settings => MISTAKE,
        DemoFault::Evictions => EVICTS,
        DemoFault::Stays => SOON_OVERDUE,
        DemoFault::Extender
        | DemoFault::Ignores
        | DemoFault::Refuses
        | DemoFault::Fails
        | DemoFault::Slow
        | DemoFault::Meddles
        | DemoFault::Guest
        | DemoFault::Prometheus
        | DemoFault::Sensors
        | DemoFault::Rights
        | DemoFault::Twins
        | DemoFault::CutOff => "",
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

    /// Creates the pods of a DaemonSet of class performance, one on each node, as its controller would, or deletes them.
    pub(super) async fn stay(&self, on: bool) -> Result<(), String> {
        let client = self.demo.client("kubectl");
        let pods = format!("/api/v1/namespaces/{SHOP}/pods");
        if !on {
            for pod in named(&client, &format!("{pods}?labelSelector=app%3D{DAEMON}")).await? {
                delete(&client, &format!("{pods}/{pod}")).await?;
            }
            return Ok(());
        }
        let resources = json!({"cpu": "10m", "memory": "16Mi"});
        for node in named(&client, NODES).await? {
            let pod = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "generateName": format!("{DAEMON}-"),
                    "labels": {"app": DAEMON},
                    "annotations": {labels::pod::WORKLOAD_CLASS: "performance"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": DAEMON, "uid": DAEMON,
                        "controller": true}],
                },
                "spec": {"nodeName": node,
                    "containers": [{"name": DAEMON, "image": DAEMON, "resources": {"requests": resources}}]}});
            send(&client, Verb::Create, &pods, &pod).await?;
        }
        Ok(())
    }

    /// Creates a node that has no machine, or deletes it with what the agent wrote about it, as the garbage collector would.
    pub(super) async fn guest(&self, on: bool) -> Result<(), String> {
        let client = self.demo.client("kubectl");
        if on {
            let node = json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": GUEST, "labels": {labels::node::MANAGED: labels::TRUE}},
                "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "10"}}});
            return send(&client, Verb::Create, NODES, &node).await;
        }
        delete(&client, &format!("{NODES}/{GUEST}")).await?;
        // What is still written after the node has gone is deleted too.
        let mut quiet = 0;
        for _ in 0..LOOKS_MOST {
            let mut wrote = false;
            for plural in ["nodehardwares", "nodepowerprofiles", "nodetwins"] {
                let path = format!("/apis/{}/v1alpha1/{plural}/{}", labels::GROUP, names::plain(GUEST));
                wrote |= delete(&client, &path).await?;
            }
            quiet = if wrote { 0 } else { quiet + 1 };
            if quiet == QUIET_LOOKS {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Err(format!("something still writes about node {GUEST}, which is deleted"))
    }
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
        assert!(both.lines().filter(|line| !line.starts_with('#')).all(takes), "{both}");
        assert!(!takes(MISTAKE.trim()));
    }
}
