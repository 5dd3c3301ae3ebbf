//! GPUs and EPYC sockets of the agent's own node, from the object to the device and back.

use crate::test_machine::{Agent, Cluster, TestMachine, enforced, is_enforced};
use serde_json::{Value, json};

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("node-a", json!({"joulie.io/managed": "true"})).await;
    cluster
}

async fn gpu_cap(cluster: &Cluster, cap: Value) {
    let mut gpu = json!({"scope": "perGpu"});
    gpu.as_object_mut().unwrap().extend(cap.as_object().unwrap().clone());
    let spec = json!({"nodeName": "node-a", "profile": "eco", "gpu": {"powerCap": gpu}});
    cluster.apply("NodePowerProfile", "node-a", spec).await;
}

/// Whether the status says that each GPU is held at this many watts, for the present generation.
fn held(watts: i64) -> impl Fn(&Value) -> bool {
    move |profile| {
        let gpu = &profile["status"]["control"]["gpu"];
        gpu["observedGeneration"] == profile["metadata"]["generation"] && gpu["capWatts"] == watts
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_are_capped_by_the_profile_through_a_crash_and_get_their_own_limits_back() {
    let Some(room) = TestMachine::profile("gpu-2s8") else { return };
    let cluster = cluster().await;
    // 60 % of 700 W.
    gpu_cap(&cluster, json!({"capPctOfMax": 60})).await;
    let agent = Agent::start(&room.settings(&cluster));
    room.until(TestMachine::gpus, &[420; 8]).await;
    let enforced_at = |watts| move |it: &Value| held(watts)(it) && enforced(it) == ("True", "Enforced");
    let profile = cluster.until("NodePowerProfile", "node-a", enforced_at(420)).await;
    let control = &profile["status"]["control"];
    let gpu = &control["gpu"];
    assert_eq!((gpu["backend"].as_str(), gpu["result"].as_str()), (Some("host-nvidia"), Some("applied")));
    assert_eq!((gpu["requestedWatts"].as_i64(), gpu["capWatts"].as_i64()), (Some(420), Some(420)));
    assert_eq!(gpu["message"], "applied gpu cap: 420 W for each of 8 GPUs, read back");
    assert_eq!(control["cpu"]["result"], "none");
    let described = |it: &Value| {
        let gpu = &it["status"]["gpu"];
        gpu["count"] == 8 && gpu["slicing"].is_object()
    };
    let hardware = cluster.until("NodeHardware", "node-a", described).await;
    let found = &hardware["status"]["gpu"];
    assert_eq!((found["vendor"].as_str(), found["controlAvailable"].as_bool()), (Some("nvidia"), Some(true)));
    assert_eq!(found["capRangePerGpu"], json!({"minWatts": 200, "maxWatts": 700, "defaultWatts": 700}));
    assert_eq!(found["slicing"], json!({"supported": true, "modes": ["mig", "dra-timeslice"]}));
    // What each GPU reports is in metrics, and it changes no object.
    let gpu = "{node=\"node-a\",gpu=\"gpu-00000003-0b1c-4d7e-9a55-0123456789ab\"";
    let all = format!("joulie_gpu_power_watts{gpu}}}");
    let metrics = agent.until_page("/metrics", &all).await;
    for series in [
        format!("joulie_gpu_temperature_celsius{gpu}}} "),
        format!("joulie_gpu_utilization_ratio{gpu}}} "),
        format!("joulie_gpu_memory_total_bytes{gpu}}} 85520809984"),
        format!("joulie_gpu_slowed{gpu},cause=\"heat\"}} 0"),
    ] {
        assert!(metrics.contains(&series), "{series} is not in\n{metrics}");
    }
    let throttled =
        "joulie_throttled_ratio{node=\"node-a\",device=\"gpu-00000003-0b1c-4d7e-9a55-0123456789ab\"}";
    agent.until_page("/metrics", throttled).await;
    agent.kill();
    assert_eq!(room.gpus(), [420; 8]);
    // 100 W are less than a card accepts: the limit is the least one, the loop over the clock does the rest, and a card
    // that draws 104 W at its lowest clock is no success.
    gpu_cap(&cluster, json!({"capWattsPerGpu": 100})).await;
    let next = Agent::start(&room.settings(&cluster));
    room.until(TestMachine::gpus, &[200; 8]).await;
    let clamped = |it: &Value| enforced(it) == ("False", "Clamped");
    let profile = cluster.until("NodePowerProfile", "node-a", clamped).await;
    assert_eq!(profile["status"]["control"]["gpu"]["requestedWatts"], 100);
    room.until(TestMachine::locks, &[345; 8]).await;
    assert_eq!(next.terminate().await.code(), Some(0));
    assert_eq!(room.gpus(), [200; 8], "a rollout lets no cap go");
    // A process that holds the locks and is killed leaves them to the next one.
    let killed = Agent::start(&room.settings(&cluster));
    killed.until_page("/metrics", "joulie_gpu_clock_limit_hertz{node=\"node-a\",gpu=").await;
    killed.kill();
    assert_eq!((room.gpus(), room.locks()), (vec![200; 8], vec![345; 8]));
    // The cap that was adopted is not taken for the original.
    cluster.delete("NodePowerProfile", "node-a").await;
    let _last = Agent::start(&room.settings(&cluster));
    room.until(TestMachine::gpus, &[700; 8]).await;
    room.until(TestMachine::locks, &[0; 8]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_whose_driver_goes_away_are_told_to_be_gone_and_capped_again_when_it_is_back() {
    let Some(room) = TestMachine::profile("gpu-2s8") else { return };
    let cluster = cluster().await;
    gpu_cap(&cluster, json!({"capWattsPerGpu": 300})).await;
    let _agent = Agent::start(&room.settings(&cluster));
    room.until(TestMachine::gpus, &[300; 8]).await;
    cluster.until("NodePowerProfile", "node-a", |it| enforced(it) == ("True", "Enforced")).await;
    room.machine.lock().load_nvidia(false);
    let lost =
        |it: &Value| enforced(it).0 == "False" && it["status"]["control"]["gpu"]["result"] != "applied";
    cluster.until("NodePowerProfile", "node-a", lost).await;
    // The driver loses its limits when it is loaded again.
    room.machine.lock().load_nvidia(true);
    room.until(TestMachine::gpus, &[300; 8]).await;
    cluster.until("NodePowerProfile", "node-a", |it| enforced(it) == ("True", "Enforced")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_its_gpus_back_by_the_command_restore() {
    let Some(room) = TestMachine::profile("gpu-2s8") else { return };
    let cluster = cluster().await;
    gpu_cap(&cluster, json!({"capWattsPerGpu": 300})).await;
    let settings = room.settings(&cluster);
    let agent = Agent::start(&settings);
    room.until(TestMachine::gpus, &[300; 8]).await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    let own: Vec<_> =
        settings.into_iter().filter(|(name, _)| ["HOST_ROOT", "STATE_DIR"].contains(name)).collect();
    let restore = tokio::task::spawn_blocking(move || Agent::run(&["restore"], &own));
    let (code, text) = restore.await.unwrap();
    assert_eq!((code, text.contains("8 originals are back")), (Some(0), true), "{text}");
    assert_eq!(room.gpus(), [700; 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_capped_through_a_rollout_and_get_their_own_limits_back() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    let cluster = cluster().await;
    let before = room.sockets();
    cluster.profile("node-a", "node-a", 200).await;
    let agent = Agent::start(&room.settings(&cluster));
    room.until(TestMachine::sockets, &[200; 2]).await;
    let profile = cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    let cpu = &profile["status"]["control"]["cpu"];
    assert_eq!((cpu["result"].as_str(), cpu["capWatts"].as_i64()), (Some("applied"), Some(200)));
    assert_eq!(cpu["message"], "200 W for each of 2 packages, read back");
    let hardware = cluster.until("NodeHardware", "node-a", |it| it["status"]["power"].is_object()).await;
    assert_eq!(hardware["status"]["cpu"]["capRange"]["maxWattsPerSocket"], 400);
    assert_eq!(hardware["status"]["cpu"]["sockets"], 2);
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(room.sockets(), [200; 2]);
    let next = Agent::start(&room.settings(&cluster));
    next.until_page("/readyz?verbose", "[+]machine ok").await;
    assert_eq!(room.sockets(), [200; 2], "it adopts what it finds");
    cluster.delete("NodePowerProfile", "node-a").await;
    room.until(TestMachine::sockets, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_whose_driver_goes_away_are_not_told_to_be_capped_and_are_again_when_it_is_back() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    let cluster = cluster().await;
    cluster.profile("node-a", "node-a", 200).await;
    let _agent = Agent::start(&room.settings(&cluster));
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    let present = |present| {
        let change = move |socket: &mut rig::machine::HwmonSlot| {
            socket.present = present;
            socket.hwmon.cap_uw = socket.hwmon.max_uw;
        };
        room.machine.lock().change(|_, _, sockets| sockets.iter_mut().for_each(change));
    };
    present(false);
    let gone = |it: &Value| {
        let cpu = &it["status"]["control"]["cpu"];
        cpu.get("capWatts").is_none() && cpu["backend"] != "rapl"
    };
    cluster.until("NodePowerProfile", "node-a", gone).await;
    present(true);
    room.until(TestMachine::sockets, &[200; 2]).await;
    let back = |it: &Value| is_enforced(it) && it["status"]["control"]["cpu"]["capWatts"] == 200;
    cluster.until("NodePowerProfile", "node-a", back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_of_intel_are_told_as_such_capped_and_get_their_own_limits_back() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let cluster = cluster().await;
    gpu_cap(&cluster, json!({"capWattsPerGpu": 400})).await;
    let _agent = Agent::start(&room.settings(&cluster));
    room.until(TestMachine::sockets, &[400; 3]).await;
    let profile = cluster.until("NodePowerProfile", "node-a", held(400)).await;
    let gpu = &profile["status"]["control"]["gpu"];
    assert_eq!((gpu["backend"].as_str(), gpu["result"].as_str()), (Some("host-intel"), Some("applied")));
    let described = |it: &Value| it["status"]["gpu"]["count"] == 3;
    let hardware = cluster.until("NodeHardware", "node-a", described).await;
    let found = &hardware["status"]["gpu"];
    assert_eq!((found["vendor"].as_str(), found["controlAvailable"].as_bool()), (Some("intel"), Some(true)));
    assert_eq!(found["capRangePerGpu"]["maxWatts"], 600);
    cluster.delete("NodePowerProfile", "node-a").await;
    room.until(TestMachine::sockets, &[600; 3]).await;
}
