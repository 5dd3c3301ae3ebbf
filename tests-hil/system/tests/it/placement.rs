//! The operator plans, the agents cap, and the real kube-scheduler places pods with the extender.

use crate::support::wait;
use bytes::Bytes;
use host_kit::bearer::TokenFile;
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use system::field::{self, Field};
use system::objects;
use system::world::{PATIENCE, RIG, SIMULATED, SystemProcess, TestSystem};

/// The namespace of the stories' pods.
pub(crate) const NAMESPACE: &str = "stories";
const PROFILE: &str = "joulie.io/power-profile";
pub(crate) const CLASS: &str = "joulie.io/workload-class";

pub(crate) async fn all_nodes_are_planned(world: &TestSystem) {
    for part in [SystemProcess::Simulator, SystemProcess::Pool, SystemProcess::OperatorA] {
        world.run(part, &[]).unwrap();
    }
    world.run(SystemProcess::OperatorB, &[]).unwrap();
    wait("every node has its profile's label", async || profiles(world).await.len() == SIMULATED + 1).await;
    let profiles = profiles(world).await;
    assert!(profiles.values().any(|profile| profile == "eco"), "{profiles:?}");
    assert!(profiles.values().any(|profile| profile == "performance"), "{profiles:?}");
    all_enforced(world).await;
    every_twin_tells(world).await;
    caps_are_what_the_profiles_say(world).await;
    world.check().await.unwrap();
}

/// All programs but the extender start at once, as in a cluster in which Joulie is installed.
pub(crate) async fn the_nodes_beside_are_capped(world: &TestSystem) {
    world.run(SystemProcess::Agent, &[]).unwrap();
    all_nodes_are_planned(world).await;
}

/// 60 % in eco become 55 % at the machines themselves while the same operators run; a file with a mistake changes nothing.
pub(crate) async fn a_changed_file_changes_the_caps(world: &TestSystem) {
    let before = profiles(world).await;
    let eco_at = async |percent: f64| {
        let wishes = objects::list(&world.client, "NodePowerProfile").await.unwrap();
        let mut wishes = wishes.iter().filter(|wish| wish["spec"]["profile"] == "eco");
        wishes.all(|wish| {
            wish["spec"]["cpu"]["packagePowerCapPctOfMax"].as_f64().is_none_or(|cap| cap == percent)
        })
    };
    let told = async |reason: &str, times: i32| {
        let events: Api<Event> = Api::namespaced(world.client.clone(), "joulie-system");
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut of_it = events.items.iter().filter(|event| event.reason.as_deref() == Some(reason));
        of_it.any(|event| event.series.as_ref().map_or(Some(1), |series| series.count) >= Some(times))
    };
    assert!(eco_at(60.0).await);
    world.configure_operators("CPU_ECO_CAP_PCT_OF_MAX=55\n").unwrap();
    wait("the caps of eco are those of the file", async || eco_at(55.0).await).await;
    all_enforced(world).await;
    caps_are_what_the_profiles_say(world).await;
    wait("it is told", async || told("ConfigApplied", 1).await).await;
    world.configure_operators("CPU_ECO_CAP_PCT_OF_MAX=50\nSTATIC_HP_FRAC=2\n").unwrap();
    wait("the file is refused", async || told("ConfigRefused", 1).await).await;
    assert!(eco_at(55.0).await, "the last good file stays");
    let back = async || {
        world.configure_operators("").unwrap();
        wait("the caps of eco are those of before", async || eco_at(60.0).await).await;
    };
    back().await;
    world.configure_operators("CPU_ECO_CAP_PCT_OF_MAX=55\n").unwrap();
    wait("the caps of eco are those of the file again", async || eco_at(55.0).await).await;
    wait("what is told again is one Event that counts", async || told("ConfigApplied", 2).await).await;
    back().await;
    all_enforced(world).await;
    assert_eq!(profiles(world).await, before);
    assert_eq!(world.ended(), None);
}

/// Checks that each twin contains its node's profile, its headroom and the agent's report on its caps.
async fn every_twin_tells(world: &TestSystem) {
    let tells = |twin: &Value, profiles: &BTreeMap<String, String>| {
        let node = twin["spec"]["nodeName"].as_str().unwrap_or_default();
        let (spec, status) = (&twin["spec"], &twin["status"]);
        profiles
            .get(node)
            .is_some_and(|profile| spec["profile"] == *profile && status["schedulableClass"] == *profile)
            && status["predictedPowerHeadroomScore"].is_number()
            && ["cpu", "gpu"].iter().any(|part| status["controlStatus"][part]["result"].is_string())
    };
    let mut silent = Vec::new();
    let outcome = system::until("every twin", PATIENCE, async || {
        // Read it again each time: the plan changes while nodes are still being registered.
        let profiles = profiles(world).await;
        let twins = objects::list(&world.client, "NodeTwin").await.unwrap();
        silent = twins.iter().filter(|twin| !tells(twin, &profiles)).cloned().collect();
        twins.len() == SIMULATED + 1 && silent.is_empty()
    })
    .await;
    assert!(
        outcome.is_ok(),
        "{} twins do not tell, as {:#}",
        silent.len(),
        silent.first().unwrap_or(&Value::Null)
    );
}

/// Waits until every node's agent reports that the current caps are enforced.
pub(crate) async fn all_enforced(world: &TestSystem) {
    let mut missing = Vec::new();
    let outcome = system::until("every profile is enforced", PATIENCE, async || {
        let objects = objects::list(&world.client, "NodePowerProfile").await.unwrap();
        missing = objects.iter().filter(|object| !is_enforced(object)).cloned().collect();
        objects.len() == SIMULATED + 1 && missing.is_empty()
    })
    .await;
    assert!(
        outcome.is_ok(),
        "{} are not enforced, as {:#}",
        missing.len(),
        missing.first().unwrap_or(&Value::Null)
    );
}

fn is_enforced(profile: &Value) -> bool {
    let enforced = objects::condition(profile, "CapEnforced");
    enforced["status"] == "True" && enforced["observedGeneration"] == profile["metadata"]["generation"]
}

/// Checks the machines themselves, not any report.
async fn caps_are_what_the_profiles_say(world: &TestSystem) {
    for (node, profile) in profiles(world).await {
        let wish = objects::get(&world.client, "NodePowerProfile", &node).await.unwrap();
        let Some(percent) = wish["spec"]["cpu"]["packagePowerCapPctOfMax"].as_f64() else { continue };
        let (cap, most) = if node == RIG {
            (world.registers.limits_uw().unwrap()[0] as f64 / 1e6, 250.0)
        } else {
            let cpu =
                &world.simulator.get(&format!("/state/{node}")).await.unwrap()["state"]["telemetry"]["cpu"];
            (cpu["capWatts"].as_f64().unwrap(), cpu["capMaxWatts"].as_f64().unwrap())
        };
        let wanted = most * percent / 100.0;
        assert!(
            (cap - wanted).abs() <= 1.0,
            "{node} ({profile}) at {cap} W, {percent} % of {most} W is wanted"
        );
    }
}

/// The profile of each node that has one, by its label.
pub(crate) async fn profiles(world: &TestSystem) -> BTreeMap<String, String> {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let listed = nodes.list(&ListParams::default()).await.unwrap();
    let profile = |node: Node| {
        let profile = node.metadata.labels?.remove(PROFILE)?;
        Some((node.metadata.name?, profile))
    };
    listed.into_iter().filter_map(profile).collect()
}

/// The extender is ready, and kube-scheduler is configured with it.
pub(crate) async fn kube_scheduler_asks(world: &TestSystem) {
    world.run(SystemProcess::Extender, &[]).unwrap();
    wait("the extender is ready", async || world.extender.answers("/readyz").await).await;
    let scheduler = world.scheduler().unwrap();
    tokio::task::block_in_place(|| world.control_plane.start_scheduler(&scheduler)).unwrap();
}

pub(crate) async fn classes_go_where_they_belong(world: &TestSystem) {
    kube_scheduler_asks(world).await;
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    let mut performance = field::pod("performance");
    performance["metadata"]["annotations"] = json!({CLASS: "performance"});
    // Only among equal nodes, of which five are performance nodes and three eco nodes: an idle GPU node has more
    // headroom than any other, whatever its profile.
    let mut standard = field::pod("standard");
    standard["spec"]["nodeSelector"] = json!({"joulie.io/hw.kind": "epyc"});
    let profiles = profiles(world).await;
    tell_scores(world).await;
    for (pod, count, preferred) in [(performance, 12, "performance"), (standard, 12, "eco")] {
        let prefix = pod["metadata"]["name"].as_str().unwrap().to_owned();
        field.make(&pod, count).await.unwrap();
        let nodes = all_run(&field.pods(), &prefix, count).await;
        let there =
            nodes.values().filter(|node| profiles.get(*node).is_some_and(|profile| profile == preferred));
        let there = u32::try_from(there.count()).unwrap();
        system::tell(&format!("  {there} of {count} {prefix} pods on {preferred} nodes"));
        if prefix == "performance" {
            assert_eq!(there, count, "{nodes:?}");
        } else {
            assert!(there * 3 > count * 2, "{nodes:?}");
        }
    }
}

const SHORT: ClientLimits = ClientLimits { timeout: Duration::from_secs(5), bytes_max: 1 << 20, idle_max: 1 };

/// A client without a certificate is refused. The server's certificate is replaced while pods are placed, and no request of
/// kube-scheduler fails.
pub(crate) async fn a_certificate_is_renewed_under_load(world: &TestSystem) {
    let work = world.work();
    assert!(!system::http::at(work).unwrap().answers("/readyz").await, "without TLS");
    let inside = world.extender.address();
    let nobody = system::http::over_tls(inside, &world.tls.ca, None).unwrap();
    assert!(nobody.answers("/readyz").await, "a probe");
    assert!(nobody.text("/metrics").await.unwrap_err().to_string().contains("401"), "without a token");
    let stranger = world.control_plane.folder().join("stranger.token");
    let token = world.control_plane.service_account_token("default", "default").await.unwrap();
    std::fs::write(&stranger, token).unwrap();
    let stranger = TokenFile::new(&stranger).unwrap();
    let stranger = system::http::over_tls(inside, &world.tls.ca, Some(stranger)).unwrap();
    assert!(stranger.text("/metrics").await.unwrap_err().to_string().contains("403"), "without the right");
    let trusts = HttpClient::new("stranger", SHORT, Trust::File(&world.tls.ca)).unwrap();
    let request = http::Request::get(format!("https://{work}/readyz")).body(Bytes::new()).unwrap();
    assert!(trusts.ask(request).await.is_err(), "without a certificate");
    let page = async || world.extender.text("/metrics").await.unwrap();
    assert!(
        page().await.contains("joulie_http_refused_total{port=\"work\",reason=\"no_client_certificate\"} 1")
    );

    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    let pods = async |round: u32| {
        let mut pod = field::pod(&format!("renewed-{round}"));
        pod["spec"]["nodeSelector"] = json!({"joulie.io/hw.kind": "epyc"});
        // They draw nothing: what a twin says of a draw has a dead-band, and the next story compares equal nodes.
        pod["metadata"]["annotations"] = json!({"sim.joulie.io/cpu-util-pct": "0"});
        field.make(&pod, 2).await.unwrap();
    };
    let before = refusals(world).await;
    world.tls.renew().unwrap();
    let mut rounds = 0;
    let renewed = async || {
        pods(rounds).await;
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
        page().await.contains("joulie_tls_reloads_total{port=\"work\",outcome=\"applied\"} 1")
    };
    system::until("the certificate is renewed", PATIENCE, renewed).await.unwrap();
    pods(rounds).await;
    let made = 2 * (rounds + 1);
    all_run(&field.pods(), "renewed", made).await;
    assert_eq!(refusals(world).await, before);
    system::tell(&format!("  {made} pods were placed meanwhile"));
    field.clear().await.unwrap();
}

/// How often kube-scheduler has told that a request to the extender failed.
pub(crate) async fn refusals(world: &TestSystem) -> usize {
    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    let all = events.list(&ListParams::default().fields("reason=FailedScheduling")).await.unwrap();
    all.items.iter().filter(|event| event.message.as_deref().unwrap_or_default().contains("https://")).count()
}

/// Prints the extender's score of each node before there are pods, for the analysis of a failure.
async fn tell_scores(world: &TestSystem) {
    let page = world.extender.get("/debug/scoring").await.unwrap();
    for node in page["nodes"].as_array().unwrap() {
        system::tell(&format!(
            "  {} {}: standard {}, performance {}",
            node["nodeName"], node["schedulableClass"], node["baseScore"], node["baseScorePerformance"]
        ));
    }
}

/// Waits until this many pods with a prefix run, and returns their nodes.
pub(crate) async fn all_run(pods: &Api<Pod>, prefix: &str, count: u32) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let outcome = system::until("pods run", PATIENCE * 2, async || {
        seen = running(pods, prefix).await;
        u32::try_from(seen.len()).unwrap() == count
    })
    .await;
    assert!(outcome.is_ok(), "{} of {count} {prefix} pods run", seen.len());
    seen
}

async fn running(pods: &Api<Pod>, prefix: &str) -> BTreeMap<String, String> {
    let runs = |pod: Pod| {
        let phase = pod.status?.phase?;
        let (name, node) = (pod.metadata.name?, pod.spec?.node_name?);
        (phase == "Running" && name.starts_with(&format!("{prefix}-"))).then_some((name, node))
    };
    pods.list(&ListParams::default()).await.unwrap().into_iter().filter_map(runs).collect()
}
