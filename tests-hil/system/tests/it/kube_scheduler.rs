//! The core's model of kube-scheduler against the real one: 200 pods, one after the other, on 20 nodes without load.
//!
//! kube-scheduler draws among nodes with equal totals, so a placement agrees if its node is one of the model's best. Bare
//! pods without owners on nodes without images and taints have the same points from all plugins that the model leaves out.

use crate::ONE_BESIDE;
use cluster::life::{self, FakeNode};
use cluster::{ControlPlaneOptions, start_or_skip};
use joulie_core::placement::kube_scheduler::{Amounts, ScheduledNode, ScheduledPod, SchedulerProfile};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;
use std::cell::RefCell;
use std::time::Duration;
use system::field::{self, Field};
use system::until;

/// Cores, GiB and GPUs.
type Size = (u64, u64, u64);

const SIZES: [Size; 5] = [(16, 64, 0), (32, 256, 0), (64, 128, 0), (96, 768, 0), (128, 512, 8)];
const NODES: usize = 20;
/// Thousandths of a core, MiB and GPUs; zero of a resource is no request.
const SHAPES: [Size; 8] = [
    (500, 700, 0),
    (1_300, 1_024, 0),
    (2_000, 9_000, 0),
    (4_100, 3_000, 0),
    (250, 12_345, 0),
    (0, 0, 0),
    (3_700, 0, 0),
    (6_000, 20_000, 1),
];
const PODS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the placements, in percent. Where balance is a whole number in theory, floating point may give one point less.
const AGREE: usize = 95;

fn name(node: usize) -> String {
    format!("model-{node:02}")
}

fn size(node: usize) -> Size {
    SIZES.get(node % SIZES.len()).copied().unwrap()
}

fn machine(node: usize) -> FakeNode {
    let (cores, gib, gpus) = size(node);
    let machine =
        FakeNode::named(&name(node)).has("cpu", &cores.to_string()).has("memory", &format!("{gib}Gi"));
    if gpus > 0 { machine.has("nvidia.com/gpu", &gpus.to_string()) } else { machine }
}

fn counted(node: usize) -> ScheduledNode {
    let (cores, gib, gpus) = size(node);
    ScheduledNode::empty(Amounts { cpu_milli: cores * 1_000, memory_bytes: gib << 30, gpus }, 110)
}

/// A pod of this number, for the API and for the model.
fn pod(number: usize) -> (Pod, ScheduledPod) {
    // Seven is prime to the number of shapes, so like pods do not follow each other.
    let (milli, mib, gpus) = SHAPES.get(number * 7 % SHAPES.len()).copied().unwrap();
    let mut made = field::pod(&format!("pod-{number}"));
    let mut requests = serde_json::Map::new();
    if milli > 0 {
        requests.insert("cpu".to_owned(), json!(format!("{milli}m")));
    }
    if mib > 0 {
        requests.insert("memory".to_owned(), json!(format!("{mib}Mi")));
    }
    let resources = &mut made["spec"]["containers"][0]["resources"];
    resources["requests"] = requests.into();
    if gpus > 0 {
        resources["limits"] = json!({"nvidia.com/gpu": gpus.to_string()});
    }
    let said = |amount: u64, unit: u64| (amount > 0).then_some(amount * unit);
    (
        serde_json::from_value(made).unwrap(),
        ScheduledPod::EMPTY.with(said(milli, 1), said(mib, 1 << 20), gpus),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_says_where_kube_scheduler_puts_pods() {
    let _alone = ONE_BESIDE.lock().await;
    let options = ControlPlaneOptions { controller_manager: false, ..ControlPlaneOptions::whole() };
    let Some(control_plane) = start_or_skip(&options) else { return };
    let client = control_plane.client().await.unwrap();
    let machines: Vec<FakeNode> = (0..NODES).map(machine).collect();
    life::register(&client, &machines).await.unwrap();
    let pods = Field::new(&client, "model").await.unwrap().pods();
    let mut nodes: Vec<ScheduledNode> = (0..NODES).map(counted).collect();
    let (mut agreed, mut others) = (0, Vec::new());
    for number in 0..PODS {
        let (made, asks) = pod(number);
        pods.create(&PostParams::default(), &made).await.unwrap();
        let pod_name = format!("pod-{number}");
        let bound = RefCell::new(None);
        let is_bound = async || {
            let seen = pods.get(&pod_name).await.unwrap();
            *bound.borrow_mut() = seen.spec.and_then(|spec| spec.node_name);
            bound.borrow().is_some()
        };
        until("the pod has a node", PATIENCE, is_bound).await.unwrap();
        let chosen = bound.into_inner().unwrap();
        let at = (0..NODES).find(|node| name(*node) == chosen).unwrap();
        let best = SchedulerProfile::DEFAULT.best(nodes.iter(), &asks).unwrap();
        let node = nodes.get_mut(at).unwrap();
        assert!(node.fits(&asks), "{pod_name} is on {chosen}, where the model says that it does not fit");
        if SchedulerProfile::DEFAULT.may_take(node, &asks, best) {
            agreed += 1;
        } else {
            let total = SchedulerProfile::DEFAULT.total(node, &asks, best.avoided_most);
            others.push(format!("{pod_name} is on {chosen} with {total}, the best has {}", best.total));
        }
        node.bind(&asks);
    }
    system::tell(&format!("the model agrees with {agreed} of {PODS} placements; {}", others.join("; ")));
    assert!(agreed * 100 >= PODS * AGREE, "{agreed} of {PODS}: {}", others.join("\n"));
}
