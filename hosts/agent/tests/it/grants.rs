//! Grants: what the packages and GPUs of a node may draw together, whatever else is desired of it.

use crate::nodes::{Node, Nodes, cluster, pool};
use crate::test_machine::{Agent, Cluster, TestMachine};
use serde_json::{Value, json};
use std::time::Duration;

const MANAGED: &str = "joulie.io/managed";

/// Two packages from 80 to 250 W and four GPUs from 200 to 400 W: 960 W at least, and ranges of 340 and 800 W.
async fn site() -> (Nodes, Cluster, std::net::SocketAddr) {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node { gpus: 4, boot: Some("boot-by-node"), ..Node::new() });
    let at = nodes.serve().await;
    (nodes, cluster, at)
}

async fn policy(cluster: &Cluster, cpu: i32, gpu: i32) {
    let spec = json!({
        "nodeName": "sim-1", "profile": "performance", "cpu": {"packagePowerCapWatts": cpu},
        "gpu": {"powerCap": {"scope": "perGpu", "capWattsPerGpu": gpu}},
    });
    cluster.apply("NodePowerProfile", "sim-1", spec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_kept_to_under_a_policy_of_all_that_there_is_and_never_exceeded_on_the_way() {
    let (nodes, cluster, at) = site().await;
    policy(&cluster, 250, 400).await;
    cluster.grant("sim-1", 1, 1550).await;
    let agent = Agent::start(&pool(&cluster, at));
    // The packages draw all that they may, 250 W, and each GPU draws 200 W. What the packages leave is for the GPUs: 1050 W.
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (250.0, 262.0)).await;
    let receipt = cluster.receipt("sim-1", 1).await;
    let uid = cluster.get("Node", "sim-1").await["metadata"]["uid"].clone();
    assert_eq!((&receipt["bootID"], &receipt["nodeUID"]), (&json!("boot-by-node"), &uid));
    assert_eq!(receipt["holds"], 1548, "{receipt}");
    agent.until_page("/metrics", "joulie_grant_watts{node=\"sim-1\",what=\"held\"} 1548").await;
    let metrics = agent.page("/metrics").await;
    for line in [
        "joulie_grant_watts{node=\"sim-1\",what=\"granted\"} 1550",
        "joulie_grant_watts{node=\"sim-1\",what=\"in_force\"} 1550",
        "joulie_grant_watts{node=\"sim-1\",what=\"floor\"} 960",
        "joulie_grant_serial{node=\"sim-1\",what=\"granted\"} 1",
        "joulie_grant_serial{node=\"sim-1\",what=\"held\"} 1",
        "joulie_grant_devices_unkept{node=\"sim-1\",what=\"refused\"} 0",
        "joulie_grant_devices_unkept{node=\"sim-1\",what=\"above\"} 0",
        "joulie_grant_age_seconds{node=\"sim-1\"} ",
        "joulie_grant_share_watts{node=\"sim-1\",device=\"package-1\"} 250",
        "joulie_grant_share_watts{node=\"sim-1\",device=\"gpu-3\"} 262",
        "joulie_demand_biting{node=\"sim-1\",by=\"drawn\"} 0",
        "joulie_demand_throttles_disbelieved{node=\"sim-1\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(agent.log().contains("STATE_DIR is not set"), "{}", agent.log());
    // From here on the limits together never exceed 1550 W, while the policy swaps the shares.
    nodes.change("sim-1", |node| node.peak = 0.0);
    policy(&cluster, 90, 400).await;
    // The packages get all of the 90 W, and the GPUs 1370 W.
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (90.0, 342.0)).await;
    policy(&cluster, 250, 210).await;
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (250.0, 210.0)).await;
    assert!(nodes.get("sim-1").peak <= 1550.0, "{}", nodes.get("sim-1").peak);
    // A person can only lower.
    policy(&cluster, 100, 400).await;
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (100.0, 337.0)).await;
    assert!(nodes.get("sim-1").peak <= 1550.0, "{}", nodes.get("sim-1").peak);
    assert_eq!(agent.terminate().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_lowers_a_node_to_its_share_and_its_end_brings_back_the_grant_that_always_stood() {
    let (nodes, cluster, at) = site().await;
    policy(&cluster, 250, 400).await;
    let armed = json!([{"event": "feed-b", "share": 0}, {"event": "grid", "share": 1}]);
    let spec = json!({"nodeName": "sim-1", "serial": 1, "watts": 2100, "ceiling": 100_000, "armed": armed});
    cluster.apply("NodePowerGrant", "sim-1", spec).await;
    let agent = Agent::start(&pool(&cluster, at));
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (250.0, 400.0)).await;
    cluster.receipt("sim-1", 1).await;
    // The floors are 2 · 80 W and 4 · 200 W.
    cluster.apply("PowerEvent", "lost", json!({"event": "feed-b"})).await;
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (80.0, 200.0)).await;
    let obeys =
        |grant: &Value| grant["status"]["armed"] == json!(["feed-b"]) && grant["status"]["holds"] == 960;
    let told = cluster.until("NodePowerGrant", "sim-1", obeys).await;
    assert_eq!((&told["status"]["serial"], &told["spec"]["watts"]), (&json!(1), &json!(2100)));
    assert!(agent.log().contains("the event feed-b is on"), "{}", agent.log());
    cluster.apply("PowerEvent", "lost", json!({"event": "feed-b", "active": false})).await;
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (250.0, 400.0)).await;
    let free = |grant: &Value| grant["status"]["armed"].is_null() && grant["status"]["holds"] == 2100;
    cluster.until("NodePowerGrant", "sim-1", free).await;
    // One that says nothing of this node, and one that cannot be read.
    cluster.apply("PowerEvent", "other", json!({"event": "flood"})).await;
    cluster.apply("PowerEvent", "grid", json!({"event": "grid"})).await;
    cluster.until("NodePowerGrant", "sim-1", |grant| grant["status"]["armed"] == json!(["grid"])).await;
    assert_eq!((nodes.get("sim-1").cap, nodes.get("sim-1").gpu_cap), (250.0, 400.0));
    assert_eq!(agent.terminate().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_of_one_value_are_told_apart_by_their_serial() {
    let (nodes, cluster, at) = site().await;
    let _agent = Agent::start(&pool(&cluster, at));
    // Packages that draw 250 W each, and GPUs that want 216 W. Of 1130 W the packages have what the GPUs leave.
    for (serial, watts, cap) in [(1, 1130, 133.0), (2, 1530, 250.0), (3, 1130, 133.0)] {
        cluster.grant("sim-1", serial, watts).await;
        let receipt = cluster.receipt("sim-1", serial).await;
        assert_eq!(nodes.get("sim-1").cap, cap, "{receipt}");
        assert!(receipt["holds"].as_i64().unwrap() <= i64::from(watts), "{receipt}");
    }
    // An old grant that is written again by an authorised writer changes nothing: a lower serial is no grant.
    let posts = nodes.get("sim-1").posts.len();
    let status = cluster.get("NodePowerGrant", "sim-1").await["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(nodes.get("sim-1").posts.len(), posts, "a steady node is told nothing");
    assert_eq!(cluster.get("NodePowerGrant", "sim-1").await["metadata"]["resourceVersion"], status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_what_it_wants_to_draw_and_at_once_that_its_grant_holds_it_back() {
    let (nodes, cluster, at) = site().await;
    let agent = Agent::start(&pool(&cluster, at));
    cluster.grant("sim-1", 1, 1550).await;
    cluster.receipt("sim-1", 1).await;
    let demand = |grant: &Value| grant["status"]["demand"].clone();
    // 500 W and 800 W are drawn; the demand is that with 3 % and 10 W. It stands, so it is told once.
    let told = |grant: &Value| demand(grant) == json!({"quantilesWatts": [1349], "biting": false});
    let grant = cluster.until("NodePowerGrant", "sim-1", told).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = cluster.get("NodePowerGrant", "sim-1").await;
    assert_eq!(later["metadata"]["resourceVersion"], grant["metadata"]["resourceVersion"], "{later:#}");
    // The packages draw all of the 133 W that they have now, and could use 250 W; each GPU asks for 216 W.
    cluster.grant("sim-1", 2, 1130).await;
    let bites = |grant: &Value| {
        let demand = demand(grant);
        (&demand["biting"], &demand["throttledBy"]) == (&json!(true), &json!("drawn"))
            && demand["quantilesWatts"][0] == 1364
    };
    cluster.until("NodePowerGrant", "sim-1", bites).await;
    agent.until_page("/metrics", "joulie_demand_biting{node=\"sim-1\",by=\"drawn\"} 1").await;
    agent.until_page("/metrics", "joulie_demand_biting_devices{node=\"sim-1\",by=\"drawn\"} 2").await;
    // A node that is not measured any more has no demand.
    nodes.change("sim-1", |node| node.silent = true);
    cluster.until("NodePowerGrant", "sim-1", |grant| demand(grant) == Value::Null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_label_nor_a_deletion_nor_a_restart_ends_a_grant_and_a_release_does() {
    let (nodes, cluster, at) = site().await;
    let folder = rig::test_machine::Folder::new();
    let mut settings = pool(&cluster, at);
    settings.push(("STATE_DIR", folder.0.display().to_string()));
    policy(&cluster, 250, 400).await;
    cluster.grant("sim-1", 1, 1550).await;
    let agent = Agent::start(&settings);
    cluster.receipt("sim-1", 1).await;
    nodes.change("sim-1", |node| node.peak = 0.0);
    let held = |node: &Node| (node.cap, node.gpu_cap) == (250.0, 262.0);
    cluster.label("sim-1", json!({MANAGED: null})).await;
    agent.until_said("nothing is desired (Deselected)").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(held(&nodes.get("sim-1")));
    cluster.label("sim-1", json!({MANAGED: "true"})).await;
    cluster.delete("NodePowerProfile", "sim-1").await;
    cluster.delete("NodePowerGrant", "sim-1").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(held(&nodes.get("sim-1")), "{:?}", nodes.get("sim-1").posts);
    assert_eq!(agent.terminate().await.code(), Some(0));
    // The next process finds no object at all, and still knows the grant.
    let agent = Agent::start(&settings);
    agent.until_said("from before the start: grant 1").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(held(&nodes.get("sim-1")), "{:?}", nodes.get("sim-1").posts);
    assert!(nodes.get("sim-1").peak <= 1550.0);
    let mut spec = json!({"nodeName": "sim-1", "serial": 1, "watts": 1550, "ceiling": 1550});
    cluster.apply("NodePowerGrant", "sim-1", spec.clone()).await;
    cluster.receipt("sim-1", 1).await;
    spec["serial"] = json!(2);
    spec["released"] = json!(true);
    cluster.apply("NodePowerGrant", "sim-1", spec).await;
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (250.0, 400.0)).await;
    assert_eq!(cluster.receipt("sim-1", 2).await["serial"], 2);
    let metrics = agent.page("/metrics").await;
    assert!(!metrics.contains("joulie_grant_watts{"), "no grant stands\n{metrics}");
    assert!(!agent.log().contains("STATE_DIR is not set"), "{}", agent.log());
    // The receipt does not wait for the disk.
    let kept = folder.0.join("grants/sim-1.json");
    let gone = async {
        while kept.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    drop(agent);
    let next = Agent::start(&settings);
    next.until_said("grant 2 lets the node go").await;
    assert!(!next.log().contains("from before the start"), "{}", next.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_starts_without_the_api_or_without_the_node_object_holds_what_was_granted() {
    let (nodes, cluster, at) = site().await;
    let folder = rig::test_machine::Folder::new();
    let without_disk = pool(&cluster, at);
    let mut settings = without_disk.clone();
    settings.push(("STATE_DIR", folder.0.display().to_string()));
    cluster.grant("sim-1", 1, 1550).await;
    let agent = Agent::start(&settings);
    cluster.receipt("sim-1", 1).await;
    // The receipt does not wait for the disk.
    let kept = folder.0.join("grants/sim-1.json");
    let there = async {
        while !kept.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), there).await.unwrap();
    agent.kill();
    // Each agent finds a machine that has just booted, and nothing else holds its limits down.
    let booted = || nodes.change("sim-1", |node| (node.cap, node.gpu_cap) = (250.0, 400.0));
    let is_held = |node: &Node| 2.0 * node.cap + 4.0 * node.gpu_cap <= 1550.0;
    cluster.delete("Node", "sim-1").await;
    booted();
    cluster.api.faults().fail(
        embedded_api::Matching::any(),
        embedded_api::InjectedResponse::ConnectionLost,
        1_000_000,
    );
    let agent = Agent::start(&settings);
    nodes.until("sim-1", is_held).await;
    agent.kill();
    cluster.api.faults().heal();
    booted();
    let agent = Agent::start(&without_disk);
    nodes.until("sim-1", is_held).await;
    assert!(!agent.log().contains("leaves the pool"), "{}", agent.log());
    // A Node is registered again, and the receipt names the new one.
    cluster.node("sim-1", json!({MANAGED: "true"})).await;
    let uid = cluster.get("Node", "sim-1").await["metadata"]["uid"].clone();
    cluster.until("NodePowerGrant", "sim-1", |grant| grant["status"]["nodeUID"] == uid).await;
    // A node that no object names any more leaves when its grant ends.
    let spec = json!({"nodeName": "sim-1", "serial": 2, "watts": 1550, "ceiling": 1550, "released": true});
    cluster.apply("NodePowerGrant", "sim-1", spec).await;
    agent.until_said("grant 2 lets the node go").await;
    cluster.delete("Node", "sim-1").await;
    agent.until_said("the node leaves the pool").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_managed_is_held_to_its_grant_from_the_start() {
    let (nodes, cluster, at) = site().await;
    cluster.label("sim-1", json!({MANAGED: null})).await;
    cluster.grant("sim-1", 7, 1550).await;
    let _agent = Agent::start(&pool(&cluster, at));
    nodes.until("sim-1", |node| (node.cap, node.gpu_cap) == (250.0, 262.0)).await;
    cluster.receipt("sim-1", 7).await;
}

/// The nodes of a DaemonSet have grants too, and two agents that speak for one node would undo each other's reports.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_node_of_another_agent_a_pool_says_nothing() {
    let (_nodes, cluster, at) = site().await;
    cluster.node("of-another", json!({"joulie.io/pool": "no"})).await;
    cluster.grant("of-another", 1, 500).await;
    cluster.grant("sim-1", 1, 1550).await;
    let folder = rig::test_machine::Folder::new();
    let mut settings = pool(&cluster, at);
    settings.push(("STATE_DIR", folder.0.display().to_string()));
    // Nor after a restart, for which the grants of its own nodes are kept on disk.
    for start in ["first", "second"] {
        let agent = Agent::start(&settings);
        cluster.receipt("sim-1", 1).await;
        agent.until_said("/telemetry/of-another").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(cluster.get("NodePowerGrant", "of-another").await["status"], Value::Null, "{start} start");
        agent.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_booted_anew_is_confirmed_anew() {
    // Read-backs survived a reboot.
    let (nodes, cluster, at) = site().await;
    cluster.grant("sim-1", 1, 1550).await;
    let _agent = Agent::start(&pool(&cluster, at));
    cluster.receipt("sim-1", 1).await;
    nodes.change("sim-1", |node| {
        (node.boot, node.cap, node.gpu_cap) = (Some("boot-2"), 250.0, 400.0);
    });
    let anew = |grant: &Value| grant["status"]["bootID"] == "boot-2";
    let grant = cluster.until("NodePowerGrant", "sim-1", anew).await;
    assert_eq!(grant["status"]["holds"], 1548);
    let node = nodes.get("sim-1");
    assert_eq!((node.cap, node.gpu_cap), (250.0, 262.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_is_counted_with_what_it_may_draw() {
    let (nodes, cluster, at) = site().await;
    nodes.change("sim-1", |node| node.refuses = Some("blocked"));
    cluster.grant("sim-1", 1, 1550).await;
    let agent = Agent::start(&pool(&cluster, at));
    let receipt = cluster.receipt("sim-1", 1).await;
    assert_eq!(receipt["holds"], 2100, "{receipt}");
    let refused = "joulie_grant_devices_unkept{node=\"sim-1\",what=\"refused\"} 4";
    agent.until_page("/metrics", refused).await;
    // A second object for the node is not followed.
    let spec = json!({"nodeName": "sim-1", "serial": 9, "watts": 2000, "ceiling": 2000});
    cluster.apply("NodePowerGrant", "sim-1-too", spec).await;
    agent.until_page("/metrics", "joulie_grants_ignored_total{node=\"sim-1\",reason=\"other\"} 1").await;
    cluster.delete("NodePowerGrant", "sim-1-too").await;
    // The series of a node that leaves are removed.
    let spec = json!({"nodeName": "sim-1", "serial": 2, "watts": 1550, "ceiling": 1550, "released": true});
    cluster.apply("NodePowerGrant", "sim-1", spec).await;
    agent.until_said("grant 2 lets the node go").await;
    cluster.delete("Node", "sim-1").await;
    agent.until_said("the node leaves the pool").await;
    assert!(!agent.page("/metrics").await.contains("sim-1"));
}

async fn host() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("node-a", json!({MANAGED: "true"})).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_a_host_is_in_force_before_the_api_answers_and_survives_all_but_a_release() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = host().await;
    let before = room.limits();
    let spec =
        json!({"nodeName": "node-a", "profile": "performance", "cpu": {"packagePowerCapPctOfMax": 100}});
    cluster.apply("NodePowerProfile", "node-a", spec).await;
    cluster.grant("node-a", 4, 300).await;
    let mut settings = room.settings(&cluster);
    settings.push(("ON_EXIT", "restore".to_owned()));
    let agent = Agent::start(&settings);
    room.until_limits(&[150, 150]).await;
    let receipt = cluster.receipt("node-a", 4).await;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let uid = cluster.get("Node", "node-a").await["metadata"]["uid"].clone();
    assert_eq!((&receipt["bootID"], &receipt["nodeUID"]), (&json!(boot.trim()), &uid));
    assert_eq!(receipt["holds"], 300);
    cluster.delete("NodePowerGrant", "node-a").await;
    cluster.delete("NodePowerProfile", "node-a").await;
    cluster.label("node-a", json!({MANAGED: null})).await;
    agent.until_said("nothing is desired (Deselected)").await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(room.limits(), [150, 150], "ON_EXIT=restore ends no grant");
    // As after a reboot: the limits are the firmware's own, the API does not answer, and the grant is known.
    for zone in [0, 2] {
        let file = format!("sys/class/powercap/intel-rapl:{zone}/constraint_0_power_limit_uw");
        std::fs::write(room.root().join(file), "250000000").unwrap();
    }
    let any = embedded_api::Matching::any;
    cluster.api.faults().fail(any(), embedded_api::InjectedResponse::ConnectionLost, 1_000_000);
    let agent = Agent::start(&settings);
    room.until_limits(&[150, 150]).await;
    cluster.api.faults().heal();
    agent.until_said("nothing is desired (Deselected)").await;
    assert_eq!(room.limits(), [150, 150]);
    let spec = json!({"nodeName": "node-a", "serial": 1, "watts": 300, "ceiling": 300, "released": true});
    cluster.apply("NodePowerGrant", "node-a", spec).await;
    room.until_limits(&before).await;
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_cannot_be_read_holds_what_is_found_and_restore_ends_it() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = host().await;
    let before = room.limits();
    cluster.grant("node-a", 1, 300).await;
    let settings = room.settings(&cluster);
    let agent = Agent::start(&settings);
    cluster.receipt("node-a", 1).await;
    agent.kill();
    cluster.delete("NodePowerGrant", "node-a").await;
    std::fs::write(room.state().join("grant.json"), "{\"format\": \"joulie grant\", \"ver").unwrap();
    let agent = Agent::start(&settings);
    agent.until_said("every limit stays as it is found").await;
    agent.until_said("nothing is desired").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(room.limits(), [150, 150]);
    assert_eq!(agent.terminate().await.code(), Some(0));
    let (code, said) = Agent::run(&["restore"], &settings);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(room.limits(), before);
    assert!(!room.state().join("grant.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dies_of_a_package_have_its_grant_once() {
    // Each die was capped with the watts of its package, and counted once.
    let Some(room) = TestMachine::profile("xeon-multi-die") else { return };
    let cluster = host().await;
    cluster.grant("node-a", 1, 400).await;
    let _agent = Agent::start(&room.settings(&cluster));
    let receipt = cluster.receipt("node-a", 1).await;
    let limits = room.limits();
    assert!(limits.len() == 4 && limits.iter().sum::<u64>() <= 400, "{limits:?}");
    assert_eq!(receipt["holds"].as_u64(), Some(limits.iter().sum()), "{limits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_of_the_lease_brings_no_originals_back_while_a_grant_stands() {
    let (nodes, cluster, at) = site().await;
    cluster.namespace("joulie-system").await;
    policy(&cluster, 150, 400).await;
    cluster.grant("sim-1", 1, 1550).await;
    let mut settings = pool(&cluster, at);
    for (name, value) in [("LEASE_SOURCE", "plan"), ("SPEC_READ_TIMEOUT", "10s"), ("LEASE_EXPIRY", "relax")] {
        settings.push((name, value.to_owned()));
    }
    let agent = Agent::start(&settings);
    cluster.receipt("sim-1", 1).await;
    nodes.until("sim-1", |node| node.cap <= 150.0).await;
    let before = nodes.get("sim-1");
    agent.until_said("Relaxed").await;
    let says =
        |profile: &Value| profile.to_string().contains("LEASE_EXPIRY=relax is refused while a grant stands");
    cluster.until("NodePowerProfile", "sim-1", says).await;
    let after = nodes.get("sim-1");
    assert_eq!((after.cap, after.gpu_cap), (before.cap, before.gpu_cap));
}
