//! Executes the actions of `--chaos`: as a person with kubectl would, as a broken machine would, or as a kill does.

use super::super::act::{Act, BY_HAND_WATTS, HOT_CELSIUS};
use super::parts::{self, ExtenderPorts, Part};
use super::{ANY_PORT, Client, DemoCluster};
use joulie_api::labels;
use joulie_api::names;
use power_units::Watts;
use serde_json::{Value, json};
use simulator::work::{CPU_CLASS, CPU_UTIL};
use std::net::SocketAddr;

/// The field manager of the person.
const BY_HAND: &str = "kubectl";

/// The kind of write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Create,
    /// A JSON merge patch.
    Merge,
    /// Server-side apply.
    Apply,
}

impl DemoCluster {
    /// Executes an action.
    pub(crate) async fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Blind(node) => self.fault(node, &json!({"telemetry": "error"})).await,
            Act::See(node) => self.fault(node, &json!({})).await,
            Act::Reserve(node) => self.reserve(node, json!(labels::TRUE)).await,
            Act::Return(node) => self.reserve(node, Value::Null).await,
            Act::CapByHand(node) => {
                self.cap(node, json!({"cpu": {"packagePowerCapWatts": BY_HAND_WATTS}})).await
            }
            Act::HandBack(node) => self.cap(node, json!({})).await,
            Act::Heat(zone) => {
                let hot = json!({"ambientCelsius": HOT_CELSIUS});
                self.simulator.post(&format!("/site/{zone}"), &hot).await.map(drop)
            }
            Act::Cool(zone) => {
                let mild = json!({"ambientCelsius": simulator::site::MILD_C});
                self.simulator.post(&format!("/site/{zone}"), &mild).await.map(drop)
            }
            Act::KillOperator => self.kill(Part::Operator),
            Act::KillExtender => self.kill(Part::Extender),
            Act::StartOperator => self.start_operator().await,
            Act::Budget(watts) => {
                let body = json!({"spec": {"watts": number(*watts)}});
                send(&self.demo.client(BY_HAND), Verb::Merge, &format!("{BUDGETS}/{SITE_BUDGET}"), &body)
                    .await
            }
            Act::Policy(name) => {
                self.demo.policy = name;
                match self.hosts.remove(&Part::Operator) {
                    // One that was killed gets it when it is started.
                    None => Ok(()),
                    Some(host) => {
                        host.stop().await;
                        self.start_operator().await
                    }
                }
            }
            Act::StartExtender => {
                // At the address that the scheduler already uses.
                let ports = ExtenderPorts { work: self.work, metrics: self.metrics_of(Part::Extender) };
                let (host, _) = parts::extender(&self.demo, ports).await?;
                self.hosts.insert(Part::Extender, host);
                Ok(())
            }
        }
    }

    async fn start_operator(&mut self) -> Result<(), String> {
        // At the address where its metrics were before.
        let site = self.metrics_of(Part::Simulator);
        let (host, _) = parts::operator(&self.demo, site, self.metrics_of(Part::Operator)).await?;
        self.hosts.insert(Part::Operator, host);
        Ok(())
    }

    /// Whether the operator runs.
    pub(crate) fn has_operator(&self) -> bool {
        self.hosts.contains_key(&Part::Operator)
    }

    /// The policy of the operator.
    pub(crate) const fn policy(&self) -> &'static str {
        self.demo.policy
    }

    fn metrics_of(&self, part: Part) -> SocketAddr {
        self.metrics.get(&part).copied().unwrap_or(ANY_PORT)
    }

    fn kill(&mut self, part: Part) -> Result<(), String> {
        let host = self.hosts.remove(&part).ok_or_else(|| format!("there is no {part:?} to kill"))?;
        host.kill();
        Ok(())
    }

    async fn fault(&self, node: &str, faults: &Value) -> Result<(), String> {
        self.simulator.post(&format!("/faults/{node}"), faults).await.map(drop)
    }

    async fn reserve(&self, node: &str, value: Value) -> Result<(), String> {
        let body = json!({"metadata": {"labels": {labels::node::RESERVED: value}}});
        send(&self.demo.client(BY_HAND), Verb::Merge, &format!("/api/v1/nodes/{node}"), &body).await
    }

    /// `kubectl apply --server-side --force-conflicts` of these fields of the node's profile. Fields of an earlier
    /// apply that are missing now are released.
    async fn cap(&self, node: &str, mut spec: Value) -> Result<(), String> {
        let name = names::plain(node);
        spec["nodeName"] = json!(node);
        let (version, kind) = ("joulie.io/v1alpha1", "NodePowerProfile");
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let path = format!("/apis/{version}/nodepowerprofiles/{name}?fieldManager={BY_HAND}&force=true");
        send(&self.demo.client(BY_HAND), Verb::Apply, &path, &body).await
    }
}

/// The PowerBudgets.
const BUDGETS: &str = "/apis/joulie.io/v1alpha1/powerbudgets";
/// The one of the whole site.
pub(in crate::demo) const SITE_BUDGET: &str = "site";
/// What a rack may draw, as a part of the site: together they could draw more than the site may, as it is where racks are fed.
const RACK_PART: f64 = 0.6;

/// Watts as a number of JSON.
fn number(watts: Watts) -> f64 {
    watts.to_string().parse().unwrap_or_default()
}

/// Limits the site, and each rack.
pub(super) async fn limit(client: &Client, site: Watts, racks: u32) -> Result<(), String> {
    let budget = |name: &str, spec: Value| json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": name}, "spec": spec});
    let whole = budget(SITE_BUDGET, json!({"watts": number(site), "mode": "enforce"}));
    send(client, Verb::Create, BUDGETS, &whole).await?;
    for rack in (0..racks).map(|rack| format!("rack-{rack}")) {
        let part = (number(site) * RACK_PART).floor();
        let spec = json!({"parent": SITE_BUDGET, "watts": part, "mode": "enforce",
            "nodeSelector": {"matchLabels": {labels::node::RACK: rack}}});
        send(client, Verb::Create, BUDGETS, &budget(&rack, spec)).await?;
    }
    Ok(())
}

/// The namespace of the workload that a person deployed.
const SHOP: &str = "shop";
/// Enough pods that some are in every zone.
const REPLICAS: usize = 6;

/// Creates the pods of a Deployment, as its controllers would: they run until the demo ends, and may be moved.
pub(super) async fn shop(client: &Client) -> Result<(), String> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}});
    send(client, Verb::Create, "/api/v1/namespaces", &namespace).await?;
    let resources = json!({"cpu": "16", "memory": "16Gi"});
    for _ in 0..REPLICAS {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": "web-5d4f-",
                "labels": {"app": "web", "pod-template-hash": "5d4f"},
                "annotations": {labels::pod::RESCHEDULABLE: labels::TRUE, CPU_CLASS: "compute_bound", CPU_UTIL: "95"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f", "uid": "web",
                    "controller": true}],
            },
            "spec": {"containers": [{"name": "web", "image": "web", "resources": {"requests": resources}}]}});
        send(client, Verb::Create, &format!("/api/v1/namespaces/{SHOP}/pods"), &pod).await?;
    }
    Ok(())
}

/// Sends a request with a body.
pub(super) async fn send(client: &Client, verb: Verb, path: &str, body: &Value) -> Result<(), String> {
    let (method, kind) = match verb {
        Verb::Create => ("POST", "application/json"),
        Verb::Merge => ("PATCH", "application/merge-patch+json"),
        Verb::Apply => ("PATCH", "application/apply-patch+yaml"),
    };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes()).map_err(|error| error.to_string())?;
    client.request_text(request).await.map(drop).map_err(|error| format!("{method} {path}: {error}"))
}
