//! Nodes and pods, as the API server sees them.

use super::lab::{Lab, eventually};
use embedded_api::{InjectedResponse, Matching, Verb};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use simulator::workload::Mix;
use simulator::{Fleet, Settings, Workload};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn twelve_nodes_of_three_kinds_are_registered_ready_and_labelled() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:6,epyc:4,gpu:2").await;
    let nodes = lab.nodes().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(nodes.len(), 12);
    let label = |at: usize, name: &str| nodes[at].metadata.labels.as_ref().unwrap().get(name).cloned();
    for (at, node) in nodes.iter().enumerate() {
        let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
        assert!(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
        assert_eq!(label(at, "joulie.io/managed").as_deref(), Some("true"));
        assert!(label(at, "joulie.io/rack").is_some());
    }
    let gpu = nodes.iter().position(|node| node.metadata.name.as_deref() == Some("sim-gpu-0")).unwrap();
    let allocatable = nodes[gpu].status.as_ref().unwrap().allocatable.as_ref().unwrap();
    assert_eq!((allocatable["nvidia.com/gpu"].0.as_str(), allocatable["cpu"].0.as_str()), ("8", "256"));
    assert_eq!(label(gpu, "joulie.io/hw.gpu-model").as_deref(), Some("NVIDIA_H100_SXM"));
    simulator.stop().await;
}

#[tokio::test]
async fn a_pod_runs_for_its_duration_and_twice_as_long_under_half_the_clock() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:2").await;
    // Its duration depends fully on the clock.
    let notes = json!({
        "sim.joulie.io/duration": "100s",
        "sim.joulie.io/cpu-util-pct": "100",
        "sim.joulie.io/memory-pressure-pct": "0",
        "sim.joulie.io/io-intensity": "0",
    });
    simulator
        .json("POST", "/control/sim-xeon-1", r#"{"action":"dvfs.set_throttle_pct","throttlePct":50}"#)
        .await;
    lab.clock.advance(60 * SECOND);
    for node in ["sim-xeon-0", "sim-xeon-1"] {
        lab.pod(node, node, &notes, &json!({"cpu": "64"})).await;
        lab.until(node, "Running").await;
    }
    lab.clock.advance(101 * SECOND);
    lab.until("sim-xeon-0", "Succeeded").await;
    lab.clock.advance(97 * SECOND);
    let done =
        simulator.json("GET", "/state/sim-xeon-1", "").await["state"]["pods"][0]["done"].as_f64().unwrap();
    assert!((done - 0.99).abs() < 0.005, "198 s at half the clock are 99 % of 100 s: {done}");
    assert_eq!(lab.phase("sim-xeon-1").await, "Running");
    lab.clock.advance(4 * SECOND);
    lab.until("sim-xeon-1", "Succeeded").await;
    simulator.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_with_grace_is_let_go_and_its_load_with_it() {
    let lab = Lab::new();
    let simulator = lab.start("gpu:1").await;
    lab.pod("a", "sim-gpu-0", &json!({}), &json!({"cpu": "64", "nvidia.com/gpu": "8"})).await;
    lab.until("a", "Running").await;
    lab.clock.advance(10 * SECOND);
    let busy = simulator.telemetry("sim-gpu-0").await;
    // Eight boards at 80 % of 600 W above 100 W.
    assert!((busy["gpu"]["avgPowerWattsTotal"].as_f64().unwrap() - 4_640.0).abs() < 5.0, "{busy}");
    let grace = DeleteParams::default().grace_period(30);
    lab.pods().delete("a", &grace).await.unwrap();
    lab.until("a", "gone").await;
    lab.clock.advance(10 * SECOND);
    let idle = simulator.telemetry("sim-gpu-0").await;
    assert!((idle["gpu"]["avgPowerWattsTotal"].as_f64().unwrap() - 800.0).abs() < 1.0, "{idle}");
    assert_eq!(idle["pods"]["running"], 0);
    simulator.stop().await;
}

#[tokio::test]
async fn a_pod_of_another_node_and_one_that_is_bound_nowhere_are_left_alone() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:1").await;
    lab.pod("theirs", "node-of-somebody", &json!({}), &json!({})).await;
    lab.pod("ours", "sim-xeon-0", &json!({}), &json!({})).await;
    lab.until("ours", "Running").await;
    assert_eq!(lab.phase("theirs").await, "Pending");
    simulator.stop().await;
}

#[tokio::test]
async fn a_pod_for_which_there_is_no_room_fails_and_those_before_it_run() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:1").await;
    for (name, cpus) in [("a", "100"), ("b", "28"), ("c", "1"), ("d", "0")] {
        lab.pod(name, "sim-xeon-0", &json!({}), &json!({"cpu": cpus})).await;
        lab.until(name, if name == "c" { "Failed" } else { "Running" }).await;
    }
    lab.pod("bad", "sim-xeon-0", &json!({"sim.joulie.io/duration": "soon"}), &json!({})).await;
    lab.until("bad", "Failed").await;
    let reason = async |name: &str| lab.pods().get(name).await.unwrap().status.unwrap().reason;
    assert_eq!(reason("c").await.as_deref(), Some("OutOfcpu"));
    assert_eq!(reason("bad").await.as_deref(), Some("UnreadableWork"));
    lab.pods().delete("a", &DeleteParams::default()).await.unwrap();
    lab.until("a", "gone").await;
    lab.pod("e", "sim-xeon-0", &json!({}), &json!({"cpu": "100"})).await;
    lab.until("e", "Running").await;
    simulator.stop().await;
}

#[tokio::test]
async fn a_pod_whose_containers_end_with_another_code_has_failed() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:1").await;
    let notes = json!({"sim.joulie.io/duration": "1s", "sim.joulie.io/exit-code": "3"});
    lab.pod("a", "sim-xeon-0", &notes, &json!({})).await;
    lab.until("a", "Running").await;
    lab.clock.advance(5 * SECOND);
    lab.until("a", "Failed").await;
    let status = lab.pods().get("a").await.unwrap().status.unwrap();
    let state = status.container_statuses.unwrap().remove(0).state.unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 3);
    simulator.stop().await;
}

#[tokio::test]
async fn a_restart_goes_on_where_the_pods_were_and_touches_nothing_that_is_over() {
    let lab = Lab::new();
    let settings = Settings::of(Fleet::parse("xeon:1").unwrap());
    let simulator = lab.start_with(settings.clone()).await;
    let notes = |seconds: u32| json!({"sim.joulie.io/duration": format!("{seconds}s")});
    for (name, seconds) in [("short", 10), ("long", 100), ("next", 50)] {
        lab.pod(name, "sim-xeon-0", &notes(seconds), &json!({"cpu": "1"})).await;
        lab.until(name, "Running").await;
    }
    lab.clock.advance(40 * SECOND);
    lab.until("short", "Succeeded").await;
    simulator.stop().await;
    let over = lab.pods().get("short").await.unwrap().metadata.resource_version;

    // No simulator runs, so no work is done, however much time passes.
    lab.clock.advance(1_000 * SECOND);
    lab.pod("meanwhile", "sim-xeon-0", &notes(10), &json!({"cpu": "1"})).await;
    let simulator = lab.start_with(settings).await;
    lab.until("meanwhile", "Running").await;
    lab.clock.advance(9 * SECOND);
    let state = simulator.json("GET", "/state/sim-xeon-0", "").await;
    let done: Vec<f64> =
        state["state"]["pods"].as_array().unwrap().iter().map(|pod| pod["done"].as_f64().unwrap()).collect();
    assert_eq!(done.len(), 3, "{state}");
    assert!(done.iter().any(|part| (part - 0.49).abs() < 0.01), "the long one is at 49 s of 100: {done:?}");
    assert_eq!(lab.phase("next").await, "Running", "it is at 49 s of 50");
    lab.clock.advance(2 * SECOND);
    lab.until("next", "Succeeded").await;
    lab.until("meanwhile", "Succeeded").await;
    lab.clock.advance(60 * SECOND);
    lab.until("long", "Succeeded").await;
    assert_eq!(lab.pods().get("short").await.unwrap().metadata.resource_version, over);
    simulator.stop().await;
}

#[tokio::test]
async fn after_a_crash_work_since_the_last_note_is_done_again_and_no_pod_is_lost() {
    let lab = Lab::new();
    let settings = Settings::of(Fleet::parse("xeon:1").unwrap());
    let settings = Settings { checkpoint: Some(10 * SECOND), ..settings };
    let simulator = lab.start_with(settings.clone()).await;
    lab.pod("a", "sim-xeon-0", &json!({"sim.joulie.io/duration": "100s"}), &json!({})).await;
    lab.until("a", "Running").await;
    let part = async || {
        let status = lab.pods().get("a").await.unwrap().status.unwrap();
        let conditions = status.conditions.unwrap_or_default();
        let note = conditions.into_iter().find(|one| one.type_ == "sim.joulie.io/Progress")?.message?;
        note.split(' ').next().unwrap().parse::<f64>().ok()
    };
    // Progress is first recorded ten seconds after the pod was first seen running.
    eventually("the progress is noted", async || {
        lab.clock.advance(SECOND);
        part().await.is_some()
    })
    .await;
    lab.clock.advance(5 * SECOND);
    simulator.crash();
    let noted = part().await.unwrap();
    let simulator = lab.start_with(settings).await;
    let done = || {
        let state = simulator.world.at(simulator.world.node("sim-xeon-0").unwrap());
        state.machine.pods().values().next().map(simulator::machine::Running::done)
    };
    eventually("the pod is taken up", async || done().is_some()).await;
    assert!((done().unwrap() - noted).abs() < 1e-6, "it goes on from the note: {noted}");
    lab.clock.advance(SECOND.mul_f64(98.0 - 100.0 * noted));
    assert_eq!(lab.phase("a").await, "Running", "it is at 98 s of 100");
    lab.clock.advance(5 * SECOND);
    lab.until("a", "Succeeded").await;
    simulator.stop().await;
}

#[tokio::test]
async fn a_node_that_is_there_keeps_what_others_wrote_on_it() {
    let lab = Lab::new();
    lab.start("xeon:1").await.stop().await;
    let theirs = json!({
        "metadata": {"labels": {"joulie.io/power-profile": "eco", "joulie.io/rack": "moved"}},
        "spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]},
    });
    lab.nodes().patch("sim-xeon-0", &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
    let simulator = lab.start("xeon:1").await;
    let node = lab.nodes().get("sim-xeon-0").await.unwrap();
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels["joulie.io/power-profile"], "eco");
    assert_eq!(labels["joulie.io/rack"], "rack-0", "what the fleet says of a node is the fleet's");
    assert_eq!(node.spec.unwrap().taints.unwrap()[0].key, "maintenance");
    simulator.stop().await;
}

#[tokio::test]
async fn heartbeats_renew_the_lease_until_the_node_is_gone() {
    let lab = Lab::new();
    let settings = Settings::of(Fleet::parse("xeon:2").unwrap());
    let simulator = lab.start_with(Settings { heartbeat: Duration::from_millis(100), ..settings }).await;
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), "kube-node-lease");
    let renewed = async |node: &str| leases.get(node).await.unwrap().spec.unwrap().renew_time.unwrap().0;
    simulator.json("POST", "/faults/sim-xeon-1", r#"{"gone": true}"#).await;
    let before = (renewed("sim-xeon-0").await, renewed("sim-xeon-1").await);
    lab.clock.advance(60 * SECOND);
    eventually("the lease is renewed", async || renewed("sim-xeon-0").await != before.0).await;
    // Both heartbeats would have been written in the same round.
    assert_eq!(renewed("sim-xeon-1").await, before.1);
    simulator.stop().await;
}

#[tokio::test]
async fn pods_of_a_node_that_is_gone_are_let_go_when_it_is_back() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:2").await;
    lab.pod("a", "sim-xeon-0", &json!({"sim.joulie.io/duration": "10s"}), &json!({})).await;
    lab.pod("b", "sim-xeon-0", &json!({}), &json!({})).await;
    lab.until("a", "Running").await;
    lab.until("b", "Running").await;
    simulator.json("POST", "/faults/sim-xeon-0", r#"{"gone": true}"#).await;
    lab.clock.advance(60 * SECOND);
    lab.pods().delete("b", &DeleteParams::default()).await.unwrap();
    // The other node is reachable meanwhile, so passes are made.
    lab.pod("c", "sim-xeon-1", &json!({}), &json!({})).await;
    lab.until("c", "Running").await;
    assert_eq!((lab.phase("a").await.as_str(), lab.phase("b").await.as_str()), ("Running", "Running"));
    simulator.ask("DELETE", "/faults/sim-xeon-0", "").await;
    lab.until("b", "gone").await;
    lab.until("a", "Succeeded").await;
    simulator.stop().await;
}

#[tokio::test]
async fn an_api_server_that_fails_loses_no_pod() {
    let lab = Lab::new();
    let simulator = lab.start("epyc:2").await;
    lab.api.faults().fail(
        Matching::any().resource("pods").verb(Verb::Patch),
        InjectedResponse::InternalError,
        25,
    );
    for number in 0..20 {
        let node = format!("sim-epyc-{}", number % 2);
        lab.pod(&format!("p{number}"), &node, &json!({"sim.joulie.io/duration": "5s"}), &json!({})).await;
    }
    for number in 0..20 {
        // A failed write is repeated after half a second of the clock.
        let name = format!("p{number}");
        eventually("every pod begins", async || {
            lab.clock.advance(SECOND / 10);
            lab.phase(&name).await != "Pending"
        })
        .await;
    }
    lab.clock.advance(20 * SECOND);
    for number in 0..20 {
        lab.until(&format!("p{number}"), "Succeeded").await;
    }
    simulator.stop().await;
}

#[tokio::test]
async fn a_burst_on_one_node_is_admitted_once_each_and_works_while_the_writes_wait() {
    let lab = Lab::new();
    let simulator = lab.start("epyc:1").await;
    lab.api.faults().fail(
        Matching::any().resource("pods").verb(Verb::Patch),
        InjectedResponse::InternalError,
        10_000,
    );
    // Far more than the limit of concurrent writes; the node has room for 96 of them, and for 110 pods.
    let notes = json!({"sim.joulie.io/duration": "1h"});
    for number in 0..100 {
        lab.pod(&format!("p{number:02}"), "sim-epyc-0", &notes, &json!({"cpu": "4"})).await;
    }
    let held = || simulator.world.at(simulator.world.node("sim-epyc-0").unwrap());
    eventually("all are admitted for which there is room", async || held().machine.pods().len() == 96).await;
    lab.clock.advance(60 * SECOND);
    lab.pod("late", "sim-epyc-0", &notes, &json!({"cpu": "4"})).await;
    lab.api.faults().heal();
    for number in 0..100 {
        let name = format!("p{number:02}");
        eventually("the pod is decided on", async || {
            lab.clock.advance(SECOND / 10);
            lab.phase(&name).await != "Pending"
        })
        .await;
    }
    let pods = lab.pods().list(&ListParams::default()).await.unwrap().items;
    let phase = |wanted: &str| {
        let phases = pods.iter().filter_map(|pod| pod.status.as_ref()?.phase.as_deref());
        phases.filter(|phase| *phase == wanted).count()
    };
    assert_eq!(phase("Running"), 96);
    assert!(
        held().machine.pods().values().all(|pod| pod.done() > 60.0 / 3_600.0),
        "each worked all the while"
    );
    simulator.stop().await;
}

#[tokio::test]
async fn a_workload_comes_up_to_its_bound_of_waiting_pods() {
    let lab = Lab::new();
    // No node has GPUs.
    let mix = Mix { gpus: None, ..Mix::parse("10ms/60s").unwrap().unwrap() };
    let workload = Workload { mix, namespace: "batch".to_owned(), pending_max: 5, backlog: 3 };
    let settings = Settings::of(Fleet::parse("xeon:1").unwrap());
    let simulator = lab.start_with(Settings { workload: Some(workload), ..settings }).await;
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), "batch");
    let count = async || pods.list(&ListParams::default()).await.unwrap().items.len();
    // Pods of batch work wait beside them.
    eventually("eight pods wait", async || count().await >= 8).await;
    // Many intervals later there are no more pods, except one whose watch event had not arrived.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(count().await <= 9, "{}", count().await);
    simulator.stop().await;
}

#[tokio::test]
async fn a_node_is_switched_off_and_on_by_redfish_and_says_so() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:2").await;
    let node = "/redfish/v1/Systems/sim-xeon-0";
    let reset = format!("{node}/Actions/ComputerSystem.Reset");
    let ready = async || {
        let status = lab.nodes().get("sim-xeon-0").await.unwrap().status.unwrap();
        let ready = status.conditions.unwrap().into_iter().find(|one| one.type_ == "Ready").unwrap();
        (ready.status, status.node_info.unwrap().boot_id)
    };
    let power = async || simulator.json("GET", node, "").await["PowerState"].as_str().unwrap().to_owned();
    lab.pod("a", "sim-xeon-0", &json!({"sim.joulie.io/duration": "200s"}), &json!({})).await;
    lab.until("a", "Running").await;
    let (_, first) = ready().await;
    assert_eq!(power().await, "On");
    assert_eq!(simulator.ask("POST", &reset, r#"{"ResetType": "GracefulShutdown"}"#).await.0, 204);
    assert_eq!(power().await, "PoweringOff");
    eventually("it says that it shuts down", async || ready().await.0 == "False").await;
    lab.pod("late", "sim-xeon-0", &json!({}), &json!({})).await;
    lab.clock.advance(20 * SECOND);
    assert_eq!(power().await, "Off");
    assert_eq!(simulator.ask("GET", "/telemetry/sim-xeon-0", "").await.0, 504);
    let truth = simulator.json("GET", "/state/sim-xeon-0", "").await;
    assert_eq!((&truth["state"]["power"], &truth["state"]["lostPods"]), (&json!("off"), &json!(1)));
    assert_eq!(simulator.ask("POST", &reset, r#"{"ResetType": "On"}"#).await.0, 204);
    // The board has power at once; the node is there when its system is.
    assert_eq!(power().await, "On");
    assert_eq!(ready().await.0, "False");
    lab.clock.advance(91 * SECOND);
    eventually("it is there again", async || ready().await.0 == "True").await;
    assert_ne!(ready().await.1, first, "another boot");
    // What is bound to it begins again, and what came while it shut down too.
    lab.until("late", "Running").await;
    lab.clock.advance(150 * SECOND);
    assert_eq!(lab.phase("a").await, "Running");
    lab.clock.advance(100 * SECOND);
    lab.until("a", "Succeeded").await;
    simulator.stop().await;
}
