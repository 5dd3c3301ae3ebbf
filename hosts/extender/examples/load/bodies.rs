//! Requests as kube-scheduler writes them.

use bytes::Bytes;
use serde_json::{Value, json};
use std::ops::Range;

pub(crate) fn name(number: usize) -> String {
    format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", number / 65_536, number / 256 % 256, number % 256)
}

/// The nodes in the order in which kube-scheduler finds them feasible: sixteen workers take chunks of about √n nodes
/// one after the other, and each worker appends a node when it is done with it. A fixed pseudo-random sequence says
/// which worker is next.
fn order(count: usize) -> Vec<usize> {
    let stretch = (1 + count.isqrt()).min(1 + count / WORKERS);
    let mut stretches = (0..count).step_by(stretch).map(|start| start..count.min(start + stretch));
    let mut workers: Vec<Range<usize>> = stretches.by_ref().take(WORKERS).collect();
    let (mut all, mut dice) = (Vec::with_capacity(count), 0x2545_F491_4F6C_DD1D);
    while all.len() < count {
        let drawn = usize::try_from(draw(&mut dice) % 16).unwrap_or(0) % workers.len();
        let Some(worker) = workers.get_mut(drawn) else { break };
        match worker.next() {
            Some(node) => all.push(node),
            None => *worker = stretches.next().unwrap_or(0..0),
        }
    }
    all
}

const WORKERS: usize = 16;

fn draw(dice: &mut u64) -> u64 {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    *dice
}

/// Whether a node is eco: half of the nodes are, in an order that branch prediction cannot learn.
pub(crate) fn is_eco(number: usize) -> bool {
    let mut dice = u64::try_from(number + 1).unwrap_or(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    draw(&mut dice) >> 32 & 1 == 0
}

pub(crate) fn pod(class: &str) -> Value {
    let fields: Vec<Value> = (0..6)
        .map(|n| json!({"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                        "fieldsV1": {"f:spec": {format!("f:field{n}"): {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}}}}))
        .collect();
    json!({
        "metadata": {"name": "web-6d4cf56db6-x7k2p", "generateName": "web-6d4cf56db6-", "namespace": "default",
                     "uid": "0f1c52f4-0ba1-4d0a-9b43-6c6f8f1d9f43", "resourceVersion": "123456",
                     "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
                     "annotations": {"joulie.io/workload-class": class}, "managedFields": fields},
        "spec": {"volumes": [{"name": "kube-api-access-9jx2l", "projected": {"sources": [], "defaultMode": 420}}],
                 "containers": [{"name": "main", "image": "registry.local/web:1.2.3",
                                 "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "2", "memory": "4Gi"}},
                                 "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent"}],
                 "restartPolicy": "Always", "schedulerName": "default-scheduler",
                 "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    })
}

pub(crate) fn names(class: &str, count: usize) -> Bytes {
    names_of(&pod(class), count)
}

fn names_of(pod: &Value, count: usize) -> Bytes {
    let names: Vec<String> = order(count).into_iter().map(name).collect();
    json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string().into()
}

/// A request of a pod for this many GPUs, joined by links if there are several.
pub(crate) fn gpu_names(cards: usize, count: usize) -> Bytes {
    let mut pod = pod("standard");
    pod["metadata"]["annotations"]["gpu-extender.mle.com/model"] = json!("A100");
    pod["metadata"]["annotations"]["gpu-extender.mle.com/vram-mb"] = json!("30000");
    pod["metadata"]["annotations"]["gpu-extender.mle.com/link"] = json!("required");
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(cards.to_string());
    names_of(&pod, count)
}

/// The cards of a node.
pub(crate) const CARDS: usize = 8;

/// The GPU objects of this many nodes: eight cards each, in two islands or in one; three quarters of the cards are in use.
pub(crate) fn gpus(count: usize) -> Vec<Value> {
    let mut dice = 0x9E37_79B9_7F4A_7C15;
    let mut card = |node: usize, card: usize| {
        let (name, is_used) = (name(node), draw(&mut dice) >> 32 & 3 != 0);
        let island = if node.is_multiple_of(2) { card / 4 } else { 0 };
        let status = if is_used {
            json!({"allocatedVRAMmb": 40_000, "phase": "Allocated", "health": "Healthy", "podName": "p", "podNamespace": "default",
                   "allocations": [{"podUID": format!("0f1c52f4-0ba1-4d0a-9b43-{:012x}", node * CARDS + card),
                                    "podName": "p", "podNamespace": "default", "vramMb": 40_000}]})
        } else {
            json!({"allocatedVRAMmb": 0, "phase": "Available", "health": "Healthy"})
        };
        json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU",
               "metadata": {"name": format!("{name}-{card}"), "uid": format!("{node}-{card}")},
               "spec": {"nodeName": name, "uuid": format!("GPU-{node:06}-{card}"), "model": "NVIDIA A100-SXM4-40GB",
                        "totalVRAMmb": 40_000, "vendor": "nvidia", "island": island},
               "status": status})
    };
    (0..count * CARDS).map(|number| card(number / CARDS, number % CARDS)).collect()
}

pub(crate) fn nodes(class: &str, count: usize) -> Bytes {
    let mut body = format!("{{\"Pod\":{},\"Nodes\":{{\"metadata\":{{}},\"items\":[", pod(class));
    for (at, number) in order(count).into_iter().enumerate() {
        if at > 0 {
            body.push(',');
        }
        body.push_str(&node(number));
    }
    body.push_str("]},\"NodeNames\":null}");
    body.into()
}

/// A Node of some 9 kB, with its members in the order in which Go writes them.
fn node(number: usize) -> String {
    let name = name(number);
    let list =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(",");
    let labels = list(16, &|n| format!("\"node.example.com/label-{n}\":\"value-of-label-{n}\""));
    let fields = list(40, &|n| {
        format!("\"f:feature.node.example.com/field-number-{n}\":{{\".\":{{}},\"f:value\":{{}}}}")
    });
    let conditions = list(8, &|n| {
        format!(
            "{{\"type\":\"Condition{n}\",\"status\":\"False\",\"lastHeartbeatTime\":\"2026-01-01T00:00:00Z\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\",\"reason\":\"KubeletHasNoTrouble\",\"message\":\"kubelet has \\u003cno\\u003e trouble of kind {n}\"}}"
        )
    });
    let images = list(14, &|n| {
        format!(
            "{{\"names\":[\"registry.example.com/team/image-{n}@sha256:{:064x}\",\"registry.example.com/team/image-{n}:v1.{n}.0\"],\"sizeBytes\":{}}}",
            number * 100 + n,
            10_000_000 + n
        )
    });
    format!(
        "{{\"metadata\":{{\"name\":\"{name}\",\"uid\":\"0f1c52f4-0ba1-4d0a-9b43-{number:012x}\",\"labels\":{{{labels}}},\"managedFields\":[{{\"manager\":\"kubelet\",\"operation\":\"Update\",\"fieldsV1\":{{\"f:metadata\":{{\"f:annotations\":{{{fields}}}}}}}}}]}},\"spec\":{{\"podCIDR\":\"10.0.0.0/24\",\"providerID\":\"aws:///eu-central-1a/i-{number:017x}\"}},\"status\":{{\"capacity\":{{\"cpu\":\"96\",\"memory\":\"792Gi\",\"pods\":\"250\"}},\"conditions\":[{conditions}],\"images\":[{images}]}}}}"
    )
}
