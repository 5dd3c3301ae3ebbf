//! Executes the actions of `--chaos`: as a person with kubectl would, as a broken machine would, or as a kill does.

use super::super::act::{Act, BY_HAND_WATTS, HOT_CELSIUS};
use super::super::fault::{DemoFault, GUEST, MACHINE, SLEEPER, SLOW_MACHINE};
use super::parts::{self, ExtenderPorts, Part};
use super::{ANY_PORT, Client, DemoCluster};
use joulie_api::labels;
use joulie_api::names;
use power_units::Watts;
use serde_json::{Value, json};
use simulator::control::SET_POWER;
use simulator::work::{CPU_CLASS, CPU_UTIL};
use std::net::SocketAddr;
use std::time::Duration;

/// The field manager of the person.
const BY_HAND: &str = "kubectl";

/// How long the slow machine takes for each answer: agents wait for a part of it.
const SLOW_MS: u32 = 20_000;
/// How often another program sets the limits.
const MEDDLES_EVERY: Duration = Duration::from_secs(1);

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
            Act::See(node) => self.fault(node, &json!({"telemetry": "ok"})).await,
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
                self.restart_operator().await
            }
            Act::StartExtender => self.start_extender().await,
            Act::Break(fault) => {
                self.set(*fault, true).await?;
                self.broken.insert(*fault);
                Ok(())
            }
            Act::Mend(fault) => {
                self.set(*fault, false).await?;
                self.broken.remove(fault);
                Ok(())
            }
        }
    }

    pub(super) async fn start_extender(&mut self) -> Result<(), String> {
        // At the address that the scheduler already uses.
        let ports = ExtenderPorts { work: self.work, metrics: self.metrics_of(Part::Extender) };
        let (host, _) = parts::extender(&self.demo, ports).await?;
        self.hosts.insert(Part::Extender, host);
        Ok(())
    }

    /// Breaks or mends something.
    async fn set(&mut self, fault: DemoFault, on: bool) -> Result<(), String> {
        let or_well = |broken: &'static str| if on { broken } else { "ok" };
        match fault {
            DemoFault::Extender if on => self.kill(Part::Extender),
            DemoFault::Extender => self.start_extender().await,
            DemoFault::Ignores => self.control(or_well("ignored")).await,
            DemoFault::Refuses => self.control(or_well("blocked")).await,
            DemoFault::Fails => self.control(or_well("error")).await,
            // `meddle` does it.
            DemoFault::Meddles => Ok(()),
            DemoFault::Prometheus => self.sensors(or_well("error")).await,
            DemoFault::Sensors => self.sensors(or_well("silent")).await,
            DemoFault::Slow => {
                let slow = if on { SLOW_MS } else { 0 };
                self.fault(SLOW_MACHINE, &json!({"slowMs": slow})).await
            }
            DemoFault::Guest => self.join(GUEST, on).await,
            DemoFault::Rights | DemoFault::CutOff => {
                self.break_api(fault, on);
                Ok(())
            }
            DemoFault::Twins => {
                self.break_api(fault, on);
                self.restart_extender().await
            }
            DemoFault::Meters => {
                self.demo.second_meter = on;
                self.restart_operator().await
            }
            DemoFault::Certificate => {
                let tls = self.demo.tls.as_ref().ok_or("the extender has no certificate here")?;
                tls.issue(on)
            }
            DemoFault::Settings => self.write_settings(fault, on),
            DemoFault::Evictions => {
                self.write_settings(fault, on)?;
                self.move_away(on).await
            }
            DemoFault::Sleeper => {
                self.write_settings(fault, on)?;
                self.join(SLEEPER, on).await
            }
            DemoFault::Stays => {
                self.write_settings(fault, on)?;
                self.stay(on).await
            }
        }
    }

    /// Whether it is broken, by whomever.
    pub(crate) fn is_broken(&self, fault: DemoFault) -> bool {
        if fault == DemoFault::Extender {
            return !self.hosts.contains_key(&Part::Extender);
        }
        self.broken.contains(&fault)
    }

    /// Sets limits as another program would, once a second while that is so.
    pub(crate) async fn meddle(&mut self, now: Duration) {
        if self.is_broken(DemoFault::Meddles) && now >= self.meddled.saturating_add(MEDDLES_EVERY) {
            self.meddled = now;
            // The lowest and the highest in turn: one of them is not what the machine has from us.
            let watts = if now.as_secs().is_multiple_of(2) { 1 } else { 10_000 };
            let order = json!({"action": SET_POWER, "capWatts": watts});
            // A machine that does not answer is not meddled with.
            let _set = self.simulator.post(&format!("/control/{MACHINE}"), &order).await;
        }
    }

    /// Sets the fault of what answers about the building; it has one at a time.
    async fn sensors(&mut self, fault: &str) -> Result<(), String> {
        self.simulator.post("/site", &json!({"sensors": fault})).await?;
        for other in [DemoFault::Prometheus, DemoFault::Sensors] {
            self.broken.remove(&other);
        }
        Ok(())
    }

    /// Starts the operator again. One that was killed gets what has changed when it is started.
    async fn restart_operator(&mut self) -> Result<(), String> {
        match self.hosts.remove(&Part::Operator) {
            None => Ok(()),
            Some(host) => {
                host.stop().await;
                self.start_operator().await
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

    /// Whether the operator runs, and would not if it were started again.
    pub(crate) fn would_not_start(&self) -> bool {
        self.has_operator() && self.is_broken(DemoFault::Settings)
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

    /// Sets these faults of a node; its others stay.
    async fn fault(&self, node: &str, faults: &Value) -> Result<(), String> {
        let path = format!("/faults/{node}");
        let now = self.simulator.get(&path).await?;
        let mut all: Value = serde_json::from_str(&now).map_err(|error| format!("{path}: {error}"))?;
        for (name, fault) in faults.as_object().into_iter().flatten() {
            all[name] = fault.clone();
        }
        self.simulator.post(&path, &all).await.map(drop)
    }

    /// Sets the fault of the machine's controls; it has one at a time.
    async fn control(&mut self, fault: &str) -> Result<(), String> {
        self.fault(MACHINE, &json!({"control": fault})).await?;
        for other in [DemoFault::Ignores, DemoFault::Refuses, DemoFault::Fails] {
            self.broken.remove(&other);
        }
        Ok(())
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
pub(super) const SHOP: &str = "shop";
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
