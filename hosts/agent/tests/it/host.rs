//! Mode daemonset: one node, by its own (virtual) hardware.

use crate::test_machine::{Agent, Cluster, TestMachine, enforced, is_enforced};
use serde_json::json;
use std::time::Duration;

const MANAGED: &str = "joulie.io/managed";

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("node-a", json!({MANAGED: "true"})).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_goes_from_the_object_to_the_register_and_the_status_says_what_was_read_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    // Fix list agent K4: the object is found by its nodeName, and its status goes to the object that was followed.
    cluster.profile("by-hand", "node-a", 120).await;
    let agent = Agent::start(&room.settings(&cluster));
    room.until_limits(&[120, 120]).await;
    let profile = cluster.until("NodePowerProfile", "by-hand", is_enforced).await;
    let cpu = &profile["status"]["control"]["cpu"];
    assert_eq!((cpu["backend"].as_str(), cpu["result"].as_str()), (Some("rapl"), Some("applied")));
    assert_eq!((cpu["requestedWatts"].as_i64(), cpu["capWatts"].as_i64()), (Some(120), Some(120)));
    assert_eq!(cpu["message"], "120 W for each of 2 packages, read back");
    assert_eq!(profile["status"]["control"]["gpu"]["result"], "none");
    let hardware = cluster.until("NodeHardware", "node-a", |it| it["status"]["power"].is_object()).await;
    assert_eq!(hardware["spec"]["nodeName"], "node-a");
    assert_eq!(hardware["status"]["cpu"]["capRange"]["maxWattsPerSocket"], 250);
    assert_eq!(hardware["status"]["cpu"]["sockets"], 2);
    let clocked = |it: &serde_json::Value| it["status"]["cpu"]["landmarks"]["minFreqMHz"].is_number();
    let hardware = cluster.until("NodeHardware", "node-a", clocked).await;
    let landmark = |name: &str| hardware["status"]["cpu"]["landmarks"][name].as_f64().unwrap();
    let (lowest, nominal) = (landmark("minFreqMHz"), landmark("nominalFreqMHz"));
    assert!(lowest < nominal && nominal < landmark("maxBoostMHz"), "{hardware}");
    // The memory is beside the packages: 12 hundredths of them in this machine, and in none of their sums.
    let measured = |it: &serde_json::Value| it["status"]["power"]["dramWatts"].is_number();
    let power = cluster.until("NodeHardware", "node-a", measured).await["status"]["power"].clone();
    let (memory, packages) = (power["dramWatts"].as_f64().unwrap(), power["cpuWatts"].as_f64().unwrap());
    assert!(0.0 < memory && memory < packages / 4.0, "{power}");
    agent.until_page("/metrics", "joulie_dram_power_watts{node=\"node-a\",zone=\"package-1\"}").await;
    let metrics = agent.page("/metrics").await;
    assert!(!metrics.contains("joulie_throttled_ratio{"), "powercap does not say it: {metrics}");
    for line in [
        "joulie_backend_mode{node=\"node-a\",mode=\"rapl\"} 1",
        "joulie_backend_mode{node=\"node-a\",mode=\"dvfs\"} 0",
        "joulie_cap_enforced{node=\"node-a\"} 1",
        "joulie_policy_cap_watts{node=\"node-a\",policy=\"none\"} 120",
    ] {
        assert!(metrics.lines().any(|one| one.starts_with(line)), "{line} is not in\n{metrics}");
    }
    assert!(metrics.contains("joulie_rapl_package_total_power_watts{node=\"node-a\"}"), "{metrics}");
    assert!(agent.page("/readyz?verbose").await.starts_with("HTTP/1.1 200"));
    assert!(agent.page("/livez").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_owner_allows_is_applied_as_far_as_it_goes_and_says_so() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    for zone in [0, 2] {
        let file = format!("sys/class/powercap/intel-rapl:{zone}/constraint_0_power_limit_uw");
        std::fs::write(room.root().join(file), "150000000").unwrap();
    }
    let spec =
        json!({"nodeName": "node-a", "profile": "performance", "cpu": {"packagePowerCapPctOfMax": 100}});
    cluster.apply("NodePowerProfile", "node-a", spec).await;
    let _agent = Agent::start(&room.settings(&cluster));
    let clamped = |profile: &serde_json::Value| enforced(profile) == ("True", "Clamped");
    let profile = cluster.until("NodePowerProfile", "node-a", clamped).await;
    // The operator relies on both figures.
    let cpu = &profile["status"]["control"]["cpu"];
    assert_eq!(cpu["result"], "applied");
    assert_eq!((cpu["requestedWatts"].as_i64(), cpu["capWatts"].as_i64()), (Some(250), Some(150)));
    let says =
        "asked for 500 W together, its owner's limit allows 300 W: 150 W for each of 2 packages, read back";
    assert_eq!(cpu["message"], says);
    assert_eq!(room.limits(), [150, 150]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_never_lets_the_cap_go_and_a_release_brings_the_original_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    let before = room.limits();
    cluster.profile("node-a", "node-a", 120).await;
    let agent = Agent::start(&room.settings(&cluster));
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    // The new process starts while the old one is still the writer: it waits, and says for which process.
    let next = Agent::start(&room.settings(&cluster));
    next.until_said("waiting: this node's limits are being written by").await;
    assert!(
        next.page("/readyz?verbose").await.contains("[-]machine failed: waiting"),
        "it is not ready meanwhile"
    );
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(room.limits(), [120, 120]);
    next.until_page("/readyz?verbose", "[+]machine ok").await;
    assert_eq!(room.limits(), [120, 120], "it adopts what it finds");
    cluster.delete("NodePowerProfile", "node-a").await;
    room.until_limits(&before).await;
    cluster.profile("node-a", "node-a", 150).await;
    room.until_limits(&[150, 150]).await;
    next.kill();
    assert_eq!(room.limits(), [150, 150]);
    // The object is deleted while no agent runs: the next process notices it, and knows the original.
    cluster.delete("NodePowerProfile", "node-a").await;
    let last = Agent::start(&room.settings(&cluster));
    room.until_limits(&before).await;
    drop(last);
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_hold_while_the_api_is_away_and_a_change_is_followed_when_it_is_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    cluster.profile("node-a", "node-a", 120).await;
    let agent = Agent::start(&room.settings(&cluster));
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    let faults = cluster.api.faults();
    let any = embedded_api::Matching::any;
    faults.fail(any(), embedded_api::InjectedResponse::ConnectionLost, 1_000_000);
    faults.drop_watches(&any());
    // Fix list agent S7 K8: somebody else changes the limit while the API is away; the loop corrects it all the same.
    let path = room.root().join("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw");
    std::fs::write(path, "250000000").unwrap();
    room.until_limits(&[120, 120]).await;
    assert!(agent.page("/livez").await.starts_with("HTTP/1.1 200"), "a restart would help nobody");
    faults.heal();
    cluster.profile("node-a", "node-a", 140).await;
    room.until_limits(&[140, 140]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_object_keeps_the_last_good_one_in_force_and_says_so() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    cluster.profile("node-a", "node-a", 120).await;
    let agent = Agent::start(&room.settings(&cluster));
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    // A number that the definition of the kind accepts, but no node can have.
    let spec = json!({"nodeName": "node-a", "profile": "eco", "cpu": {"packagePowerCapWatts": 1e300}});
    cluster.apply("NodePowerProfile", "node-a", spec).await;
    let profile = cluster
        .until("NodePowerProfile", "node-a", |profile| enforced(profile) == ("False", "Malformed"))
        .await;
    let text = profile["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(text.contains("spec.cpu.packagePowerCapWatts: expected a number that fits"), "{text}");
    assert!(text.contains("its last good state stays in force"), "{text}");
    assert_eq!(room.limits(), [120, 120]);
    assert!(agent.page("/metrics").await.contains("joulie_malformed_desired_state_total{node=\"node-a\"} 1"));
    // A process that never saw the readable version leaves everything as it is: it is not known what is wanted.
    assert_eq!(agent.terminate().await.code(), Some(0));
    let next = Agent::start(&room.settings(&cluster));
    next.until_said("cannot be read and no earlier one is known").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(room.limits(), [120, 120]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_managed_any_more_gets_its_originals_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    let before = room.limits();
    cluster.profile("node-a", "node-a", 120).await;
    let agent = Agent::start(&room.settings(&cluster));
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    cluster.label("node-a", json!({MANAGED: null})).await;
    room.until_limits(&before).await;
    let says = |it: &serde_json::Value| {
        enforced(it) == ("False", "Deselected") && it["status"]["control"]["cpu"]["result"] == "none"
    };
    cluster.until("NodePowerProfile", "node-a", says).await;
    cluster.label("node-a", json!({MANAGED: "true"})).await;
    room.until_limits(&[120, 120]).await;
    // Whoever removes the label also ends the pod at the same moment.
    let faults = cluster.api.faults();
    faults.stall_watches(embedded_api::Matching::any());
    cluster.label("node-a", json!({MANAGED: null})).await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(room.limits(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_restore_waits_for_the_writer_and_puts_the_originals_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    let before = room.limits();
    cluster.profile("node-a", "node-a", 120).await;
    let settings = room.settings(&cluster);
    let agent = Agent::start(&settings);
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    let own: Vec<_> =
        settings.iter().filter(|(name, _)| ["HOST_ROOT", "STATE_DIR"].contains(name)).cloned().collect();
    let restore = tokio::task::spawn_blocking(move || Agent::run(&["restore"], &own));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!restore.is_finished(), "it waits");
    assert_eq!(room.limits(), [120, 120]);
    assert_eq!(agent.terminate().await.code(), Some(0));
    let (code, text) = restore.await.unwrap();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("2 originals are back"), "{text}");
    assert_eq!(room.limits(), before);
    let own: Vec<_> =
        settings.iter().filter(|(name, _)| ["HOST_ROOT", "STATE_DIR"].contains(name)).cloned().collect();
    let (code, text) = Agent::run(&["restore"], &own);
    assert_eq!((code, text.contains("nothing to put back")), (Some(0), true), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_restores_where_it_is_told_to() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    let before = room.limits();
    cluster.profile("node-a", "node-a", 120).await;
    let mut settings = room.settings(&cluster);
    settings.push(("ON_EXIT", "restore".to_owned()));
    let agent = Agent::start(&settings);
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(room.limits(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn simulate_only_says_what_it_would_do_and_does_nothing() {
    // Agent table, row 28.
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    let before = room.limits();
    cluster.profile("node-a", "node-a", 120).await;
    let mut settings = room.settings(&cluster);
    settings.push(("SIMULATE_ONLY", "true".to_owned()));
    let _agent = Agent::start(&settings);
    let done = |it: &serde_json::Value| it["status"]["control"]["cpu"]["result"] == "applied";
    let profile = cluster.until("NodePowerProfile", "node-a", done).await;
    let cpu = &profile["status"]["control"]["cpu"];
    assert_eq!(cpu["backend"], "none");
    assert!(cpu["message"].as_str().unwrap().contains("simulate-only"));
    assert_eq!(enforced(&profile), ("False", "SimulateOnly"));
    assert_eq!(room.limits(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_twin_carries_the_desired_state_where_it_is_told_to_and_the_outcome_always() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    // Agent table, rows 25 and 26.
    let spec = json!({"nodeName": "node-a", "profile": "eco", "cpu": {"packagePowerCapWatts": 120}});
    cluster.apply("NodeTwin", "the-twin", spec).await;
    let mut settings = room.settings(&cluster);
    settings.push(("DESIRED_SOURCE", "twin".to_owned()));
    let agent = Agent::start(&settings);
    room.until_limits(&[120, 120]).await;
    let done = |it: &serde_json::Value| it["status"]["controlStatus"]["cpu"]["result"] == "applied";
    cluster.until("NodeTwin", "the-twin", done).await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    // When profiles carry the desired state, the twin of the same node receives the outcome, and requests nothing.
    cluster.profile("node-a", "node-a", 140).await;
    let _agent = Agent::start(&room.settings(&cluster));
    room.until_limits(&[140, 140]).await;
    let done = |it: &serde_json::Value| it["status"]["controlStatus"]["cpu"]["capWatts"] == 140;
    cluster.until("NodeTwin", "the-twin", done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steady_node_writes_nothing() {
    // Fix list agent K7.
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    cluster.profile("node-a", "node-a", 120).await;
    let agent = Agent::start(&room.settings(&cluster));
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    cluster.until("NodeHardware", "node-a", |it| it["status"]["power"].is_object()).await;
    // Its power is still settling; then nothing moves any more.
    let mut last = cluster.api.revision();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(6)).await;
        let now = cluster.api.revision();
        if now == last {
            assert_eq!(agent.terminate().await.code(), Some(0));
            let agent = Agent::start(&room.settings(&cluster));
            agent.until_page("/readyz?verbose", "[+]machine ok").await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            let outcome = cluster.get("NodePowerProfile", "node-a").await;
            assert!(is_enforced(&outcome));
            return;
        }
        last = now;
    }
    panic!("it never stops writing");
}
