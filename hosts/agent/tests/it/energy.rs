//! The energy ledger in the program: what the virtual machine draws is charged, whatever is missing.

use crate::rights::{Rights, limited};
use crate::test_machine::{Agent, Cluster, TestMachine};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The value of a series.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{page}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cgroups_all_that_is_drawn_is_unknown_and_it_is_told() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = Cluster::new().await;
    cluster.node("node-a", json!({"joulie.io/managed": "true"})).await;
    let mut settings = room.settings(&cluster);
    settings.extend([
        ("ENERGY_LEDGER", "on".to_owned()),
        ("ENERGY_PRICE_PER_KWH", "0.25".to_owned()),
        ("POWER_METRICS", "exact".to_owned()),
    ]);
    let agent = Agent::start(&settings);
    agent.until_said("processor time of pods cannot be read").await;
    // Two packages under full load draw 500 W.
    let drawn = "joulie_energy_drawn_joules_total{node=\"node-a\",part=\"cpu\"}";
    let page = agent.until_page("/metrics", &format!("{drawn} ")).await;
    let mut page = page;
    let is_drawn = async {
        while value(&page, drawn) < 100.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            page = agent.page("/metrics").await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_drawn).await.unwrap();
    let account = |name: &str, of: &str| {
        format!(
            "joulie_energy_{name}_total{{node=\"node-a\",account=\"{of}\",namespace=\"\",workload=\"\",part=\"cpu\"}}"
        )
    };
    let unknown = value(&page, &account("joules", "unknown"));
    assert!((unknown - value(&page, drawn)).abs() < 0.001, "{page}");
    assert!((value(&page, &account("cost", "unknown")) - unknown / 3.6e6 * 0.25).abs() < 1e-9, "{page}");
    assert!(value(&page, "joulie_energy_cgroups_read{node=\"node-a\"}") < 0.5);
    assert!(!page.contains("joulie_energy_co2_grams_total{"), "it has no emissions");
}

/// A Kepler whose packages have drawn 500 J more at each question, of which 100 J are of the idle node.
async fn kepler() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut asked = 0_u64;
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut buffer) = (String::new(), [0; 1024]);
            while !request.contains("\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(length) if length > 0 => request.push_str(&String::from_utf8_lossy(&buffer[..length])),
                    _ => break,
                }
            }
            asked += 1;
            let body = format!(
                "kepler_node_cpu_joules_total{{node_name=\"node-a\",zone=\"package\"}} {}\n\
                 kepler_node_cpu_idle_joules_total{{node_name=\"node-a\",zone=\"package\"}} {}\n",
                500 * asked,
                100 * asked
            );
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _sent = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    format!("http://{address}/metrics")
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_divided_by_what_the_kepler_of_the_node_says() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = Cluster::new().await;
    cluster.node("node-a", json!({"joulie.io/managed": "true"})).await;
    let mut settings = room.settings(&cluster);
    settings.extend([
        ("ENERGY_LEDGER", "on".to_owned()),
        ("ENERGY_KEPLER_URL", kepler().await),
        ("POWER_METRICS", "exact".to_owned()),
    ]);
    let agent = Agent::start(&settings);
    agent.until_said("the energy of packages is divided by what Kepler says").await;
    let by = |source: &str| {
        format!("joulie_energy_divided_joules_total{{node=\"node-a\",part=\"cpu\",source=\"{source}\"}}")
    };
    let page = agent.until_page("/metrics", &by("kepler")).await;
    assert!(value(&page, "joulie_energy_kepler_live{node=\"node-a\"}") > 0.5, "{page}");
    assert!(value(&page, "joulie_energy_kepler_looks_total{outcome=\"answered\"}") > 2.5, "{page}");
    let account = |of: &str| {
        let labels = format!("node=\"node-a\",account=\"{of}\",namespace=\"\",workload=\"\",part=\"cpu\"");
        value(&page, &format!("joulie_energy_joules_total{{{labels}}}"))
    };
    // A fifth of what Kepler divided is of the idle node; of the rest nobody knows whose it is, without cgroups.
    let kepler = value(&page, &by("kepler"));
    assert!(kepler > 0.0 && (account("idle") - kepler / 5.0).abs() < 0.001, "{page}");
    let drawn = value(&page, "joulie_energy_drawn_joules_total{node=\"node-a\",part=\"cpu\"}");
    assert!((account("idle") + account("unknown") - drawn).abs() < 0.001, "{page}");
}

#[test]
fn the_ledger_is_for_the_agents_own_node_and_says_what_it_does_not_accept() {
    let settings = |more: &[(&'static str, &str)]| {
        let base = [("NODE_NAME", "node-a"), ("ENERGY_LEDGER", "on")];
        let all: Vec<_> = base.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect();
        Agent::run(&[], &all)
    };
    for (more, says) in [
        (
            &[
                ("AGENT_MODE", "pool"),
                ("TELEMETRY_CPU_SOURCE", "http"),
                ("TELEMETRY_CPU_HTTP_ENDPOINT", "http://{node}/"),
            ][..],
            "mode daemonset",
        ),
        (&[("ENERGY_PRICE_PER_KWH", "-1")][..], "ENERGY_PRICE_PER_KWH"),
        (&[("ENERGY_CO2_GRAMS_PER_KWH", "NaN")][..], "ENERGY_CO2_GRAMS_PER_KWH"),
        (&[("ENERGY_LEDGERS", "on")][..], "ENERGY_LEDGERS"),
        (&[("ENERGY_KEPLER_URL", "https://kepler:9102/metrics")][..], "without TLS"),
        (&[("ENERGY_KEPLER_URL", "http://{pod}:9102/metrics")][..], "only {node} is filled in"),
        (&[("ENERGY_LEDGER", "off"), ("ENERGY_KEPLER_URL", "http://k/metrics")][..], "for the ledger only"),
        (&[("ENERGY_LEDGER", "off"), ("ENERGY_PODS", "on")][..], "of the ledger only"),
        (&[("ENERGY_PODS", "some")][..], "ENERGY_PODS"),
    ] {
        let (code, said) = settings(more);
        assert!(code == Some(2) && said.contains(says), "{code:?} {said}");
    }
}

/// The right to the pods of the node ships with the ledger, and with nothing else of the agent's.
#[tokio::test]
async fn the_pods_are_read_by_a_right_of_their_own() {
    let cluster = Cluster::new().await;
    for (files, refused) in [
        (&["base/agent-rbac.yaml"][..], 2),
        (&["base/agent-rbac.yaml", "energy-ledger/energy-ledger.yaml"], 0),
    ] {
        let (client, forbidden) = limited(cluster.api.client(), Rights::of(files, "joulie-agent"));
        for more in ["", "&watch=true&timeoutSeconds=1"] {
            let uri = format!("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a{more}");
            let request = http::Request::get(uri).body(Vec::new()).unwrap();
            let _answer = client.request_text(request).await;
        }
        assert_eq!(forbidden.all().len(), refused, "{files:?}");
    }
}
