//! The parts of a cluster other than Joulie: nodes that their kubelets register, pods, and people with kubectl. Their
//! requests always arrive.

use embedded_api::EmbeddedApi;
use http::Request;
use serde_json::{Value, json};
use simulator::fleet::Member;

/// The API path of Joulie's objects.
const JOULIE: &str = "/apis/joulie.io/v1alpha1";

/// See the module documentation.
pub(crate) struct Cluster {
    client: kube::Client,
}

impl Cluster {
    pub(crate) fn new(api: &EmbeddedApi) -> Self {
        Self { client: api.client_as("kubectl") }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, String> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
        let request = request.map_err(|error| error.to_string())?;
        self.client.request(request).await.map_err(|error| format!("{method} {path}: {error}"))
    }

    async fn create(&self, path: &str, body: &Value) -> Result<(), String> {
        self.send("POST", path, "application/json", body).await.map(drop)
    }

    async fn merge(&self, path: &str, body: &Value) -> Result<(), String> {
        self.send("PATCH", path, "application/merge-patch+json", body).await.map(drop)
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<(), String> {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await
    }

    /// Registers a node, as its kubelet does.
    pub(crate) async fn node(&self, member: &Member, boot_id: &str) -> Result<(), String> {
        let node = json!({"metadata": {"name": member.name, "labels": member.labels}});
        self.create("/api/v1/nodes", &node).await?;
        let status = json!({"status": {"capacity": member.capacity, "allocatable": member.capacity}});
        self.merge(&format!("/api/v1/nodes/{}/status", member.name), &status).await?;
        self.booted(&member.name, boot_id).await
    }

    async fn get_node(&self, node: &str) -> Result<Value, String> {
        self.send("GET", &format!("/api/v1/nodes/{node}"), "application/json", &Value::Null).await
    }

    pub(crate) async fn has_node(&self, node: &str) -> bool {
        self.get_node(node).await.is_ok()
    }

    /// Whether the Node exists and no person has excluded it from the budget.
    pub(crate) async fn is_in_the_budget(&self, node: &str) -> bool {
        let Ok(object) = self.get_node(node).await else { return false };
        let label = |key: &str| object["metadata"]["labels"][key].as_str() == Some("true");
        label("joulie.io/managed") && !label("joulie.io/reserved")
    }

    pub(crate) async fn delete_node(&self, node: &str) -> Result<(), String> {
        self.send("DELETE", &format!("/api/v1/nodes/{node}"), "application/json", &Value::Null)
            .await
            .map(drop)
    }

    /// Updates a Node after a boot, as the kubelet does.
    pub(crate) async fn booted(&self, node: &str, boot_id: &str) -> Result<(), String> {
        let status = json!({"status": {"nodeInfo": {
            "bootID": boot_id, "machineID": node, "systemUUID": node, "architecture": "amd64",
            "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
            "operatingSystem": "linux", "osImage": ""}}});
        self.merge(&format!("/api/v1/nodes/{node}/status"), &status).await?;
        self.ready(node, "True", boot_id).await
    }

    /// Sets the Ready condition of a node, as the node controller and the kubelet do.
    pub(crate) async fn ready(&self, node: &str, status: &str, since: &str) -> Result<(), String> {
        let ready = json!({"type": "Ready", "status": status, "reason": since});
        let path = format!("/api/v1/nodes/{node}/status");
        self.merge(&path, &json!({"status": {"conditions": [ready]}})).await
    }

    /// Sets a label of a node; null removes it.
    pub(crate) async fn label(&self, node: &str, key: &str, value: &Value) -> Result<(), String> {
        self.merge(&format!("/api/v1/nodes/{node}"), &json!({"metadata": {"labels": {key: value}}})).await
    }

    /// Creates a running pod that is bound to a node.
    pub(crate) async fn pod(&self, name: &str, node: &str, class: &str) -> Result<(), String> {
        let pod = json!({"metadata": {"name": name, "annotations": {"joulie.io/workload-class": class}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none",
                "resources": {"requests": {"cpu": "8"}}}]}});
        self.create("/api/v1/namespaces/default/pods", &pod).await?;
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        self.merge(&path, &json!({"status": {"phase": "Running"}})).await
    }

    pub(crate) async fn end_pod(&self, name: &str) -> Result<(), String> {
        let path = format!("/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0");
        self.send("DELETE", &path, "application/json", &Value::Null).await.map(drop)
    }

    /// Creates a pod that the scheduler has found no node for.
    pub(crate) async fn waiting_pod(&self, name: &str) -> Result<(), String> {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none",
            "resources": {"requests": {"cpu": "8"}}}]}});
        self.create("/api/v1/namespaces/default/pods", &pod).await?;
        let refused = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        self.merge(&path, &json!({"status": {"phase": "Pending", "conditions": [refused]}})).await
    }

    /// Binds a pod to a node, and runs it there.
    pub(crate) async fn bind(&self, name: &str, node: &str) -> Result<(), String> {
        let pod = format!("/api/v1/namespaces/default/pods/{name}");
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": node}});
        self.create(&format!("{pod}/binding"), &binding).await?;
        self.merge(&format!("{pod}/status"), &json!({"status": {"phase": "Running"}})).await
    }

    /// Creates the PowerBudget that is armed.
    pub(crate) async fn power_budget(&self, budget: &Value) -> Result<(), String> {
        self.create(&format!("{JOULIE}/powerbudgets"), budget).await
    }

    /// Creates a PowerEvent.
    pub(crate) async fn power_event(&self, name: &str, spec: &Value) -> Result<(), String> {
        let event = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerEvent",
            "metadata": {"name": name}, "spec": spec});
        self.create(&format!("{JOULIE}/powerevents"), &event).await
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let list = self.send("GET", path, "application/json", &Value::Null).await.unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The pods on a node.
    pub(crate) async fn pods_on(&self, node: &str) -> Vec<String> {
        let pods = self.list("/api/v1/namespaces/default/pods").await;
        let there = pods.iter().filter(|pod| pod["spec"]["nodeName"].as_str() == Some(node));
        there.map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The nodes that the scheduler puts pods on.
    pub(crate) async fn open_nodes(&self) -> Vec<String> {
        let is_ready = |node: &&Value| {
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let is_open = |node: &&Value| {
            let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
            node["spec"]["unschedulable"] != true && taints.all(|taint| taint["effect"] != "NoSchedule")
        };
        let nodes = self.list("/api/v1/nodes").await;
        let open = nodes.iter().filter(is_ready).filter(is_open);
        open.map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The nodes whose sleep is left to people.
    pub(crate) async fn left_nodes(&self) -> Vec<String> {
        let is_left = |node: &&Value| {
            let state = node["metadata"]["annotations"]["joulie.io/sleep-state"].as_str();
            state.is_some_and(|state| state.starts_with("left"))
        };
        let nodes = self.list("/api/v1/nodes").await;
        let left = nodes.iter().filter(is_left);
        left.map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Applies a person's cap; null hands it back.
    pub(crate) async fn cap(&self, node: &str, spec: &Value) -> Result<(), String> {
        let mut body = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile",
            "metadata": {"name": node}, "spec": {"nodeName": node}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            body["spec"][field] = value.clone();
        }
        let path = format!("{JOULIE}/nodepowerprofiles/{node}?fieldManager=kubectl&force=true");
        self.send("PATCH", &path, "application/apply-patch+yaml", &body).await.map(drop)
    }

    /// Deletes the object of this name.
    pub(crate) async fn forget(&self, plural: &str, node: &str) -> Result<(), String> {
        self.send("DELETE", &format!("{JOULIE}/{plural}/{node}"), "application/json", &Value::Null)
            .await
            .map(drop)
    }
}
