//! Property: of any GPU objects, slices, claims and pods a node passes only if at least as many of its objects say that they
//! are free, healthy and whole; and preempt names nobody but whom kube-scheduler named and pods of the node with a lower
//! priority.

use bytes::Bytes;
use extender::probe::Picture;
use extender::settings::{PlacementSettings, Settings, TABLE};
use host_kit::config::{self, Invocation};
use serde_json::{Value, json};
use std::sync::OnceLock;

const NODE: &str = "n";
/// More than a node has are not looked at here: it is no other code.
const MOST: usize = 20;

fn placement() -> PlacementSettings {
    static PLACEMENT: OnceLock<PlacementSettings> = OnceLock::new();
    *PLACEMENT.get_or_init(|| {
        let given = [("GPU_PLACEMENT", "all"), ("GPU_BIND", "true"), ("GPU_DRA", "read")];
        let given = given.map(|(name, value)| (name.into(), value.into()));
        let Invocation::Run(sources) = Invocation::read([], given) else { panic!("a run") };
        let values = config::load(&TABLE, &sources).expect("valid settings");
        Settings::read(&values).expect("valid settings").placement
    })
}

fn list<'v>(whole: &'v Value, field: &str) -> &'v [Value] {
    let all = whole[field].as_array().map(Vec::as_slice).unwrap_or_default();
    all.get(..MOST).unwrap_or(all)
}

/// Whether an object says that its card can take a pod, by a second implementation of the rule.
fn says_free(gpu: &Value) -> bool {
    let (spec, status) = (&gpu["spec"], &gpu["status"]);
    let number = |value: &Value, least: f64| value.as_f64().is_some_and(|number| number >= least);
    spec["nodeName"] == NODE
        && spec["sliced"] != true
        && status["phase"] == "Available"
        && (status["health"].is_null() || status["health"] == "Healthy")
        && number(&spec["totalVRAMmb"], 0.0)
        && number(&status["allocatedVRAMmb"], 0.0)
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(whole) = serde_json::from_slice::<Value>(bytes) else { return };
    let [gpus, slices, claims, pods] = ["gpus", "slices", "claims", "pods"].map(|field| list(&whole, field));
    let picture = Picture::of_names(&[NODE], placement());
    let picture = picture.with_claimed_gpus(gpus, slices, claims).with_card_pods(pods);
    let ask = |pod: &Value| {
        let body = Bytes::from(json!({"Pod": pod, "NodeNames": [NODE]}).to_string());
        let answer = picture.filter(&body).ok()?.whole();
        let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
        Some(answer["nodenames"] == json!([NODE]))
    };
    for count in 1..=4_usize {
        let limits = json!({"nvidia.com/gpu": count.to_string()});
        let pod = json!({"metadata": {"name": "p", "uid": "asks"}, "spec": {"containers": [{"resources": {"limits": limits}}]}});
        let passes = ask(&pod).expect("a valid request");
        let free = gpus.iter().filter(|gpu| says_free(gpu)).count();
        assert!(!passes || free >= count, "{count} of {free}");
    }
    // Whatever the pod is, an answer is one.
    let _answer = ask(&whole["pod"]);
    preempts(&picture, &whole, pods);
}

fn preempts(picture: &Picture, whole: &Value, pods: &[Value]) {
    let proposed = &whole["victims"];
    let body = json!({"Pod": whole["pod"], "NodeNameToMetaVictims": proposed}).to_string();
    let Ok(answer) = picture.preempt(body.as_bytes()) else { return };
    let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    let priority = |pod: &Value| pod["spec"]["priority"].as_i64().unwrap_or(0);
    for (node, victims) in answer["NodeNameToMetaVictims"].as_object().expect("nodes") {
        let named: Vec<&str> =
            uids(proposed.as_object().into_iter().flatten().filter(|(name, _)| *name == node));
        for victim in uids(std::iter::once((node, victims))) {
            let is_lower = |pod: &&Value| {
                pod["metadata"]["uid"] == victim
                    && pod["spec"]["nodeName"] == *node
                    && priority(pod) < priority(&whole["pod"])
            };
            assert!(named.contains(&victim) || pods.iter().any(|pod| is_lower(&pod)), "{victim} on {node}");
        }
    }
}

/// The UIDs of victims, in any letter case of the fields.
fn uids<'v>(nodes: impl Iterator<Item = (&'v String, &'v Value)>) -> Vec<&'v str> {
    let field = |value: &'v Value, name: &str| -> Vec<&'v Value> {
        let all = value.as_object().into_iter().flatten();
        all.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    };
    let pods = nodes.flat_map(|(_, victims)| field(victims, "Pods")).filter_map(Value::as_array).flatten();
    pods.flat_map(|pod| field(pod, "UID")).filter_map(Value::as_str).collect()
}
