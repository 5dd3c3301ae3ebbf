//! Nodes that sleep, with a Redfish service that others wrote: the emulator of sushy-tools, over TLS and with a login.

use super::rig::Cluster;
use super::sleep::{QUICK, phase, sleepy, turned, waits};
use bytes::Bytes;
use cluster::assets::Environment;
use cluster::{ClusterError, SushyEmulator};
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use host_kit::login::Login;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The emulator; `None` after a SKIP, if it cannot be had.
fn or_skip(systems: &[&str]) -> Option<SushyEmulator> {
    match SushyEmulator::start(&Environment::of_this_process(), systems) {
        Ok(emulator) => Some(emulator),
        Err(ClusterError::Absent(why)) => {
            println!("SKIP(no Redfish service of sushy-tools: {why})");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// Reads the power of systems, with a client that is not the operator's code for it.
struct Power {
    client: HttpClient,
    login: http::HeaderValue,
}

impl Power {
    fn of(bmc: &SushyEmulator) -> Self {
        let limits = ClientLimits { timeout: Duration::from_secs(5), bytes_max: 1 << 20, idle_max: 0 };
        let authority = bmc.authority();
        let client = HttpClient::new("test", limits, Trust::File(&authority)).unwrap();
        let login = Login::Basic { user: SushyEmulator::USER.to_owned(), password: bmc.password() };
        Self { client, login: login.basic().unwrap().unwrap() }
    }

    async fn read(&self, url: &str) -> Option<String> {
        let request = http::Request::get(url).header(http::header::AUTHORIZATION, self.login.clone());
        let body = self.client.ask(request.body(Bytes::new()).unwrap()).await.ok()?;
        let system: Value = serde_json::from_slice(&body).ok()?;
        system["PowerState"].as_str().map(str::to_owned)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_sleeps_and_wakes_by_the_emulator_of_sushy_tools() {
    let nodes = ["n1", "n2"];
    let Some(bmc) = or_skip(&nodes) else { return };
    let power = Arc::new(Power::of(&bmc));
    let cluster = Arc::new(Cluster::new().await);
    cluster.until("it answers", async || power.read(&bmc.system("n1")).await.as_deref() == Some("On")).await;
    sleepy(&cluster, &nodes).await;
    let agents = cluster.agents();
    let kubelets = {
        let (cluster, power, urls) = (cluster.clone(), power.clone(), nodes.map(|node| bmc.system(node)));
        tokio::spawn(async move {
            let (mut boots, mut was) = (1, ["On", "On"].map(str::to_owned));
            loop {
                for ((node, url), was) in nodes.iter().zip(&urls).zip(&mut was) {
                    if let Some(now) = power.read(url).await.filter(|now| now != was) {
                        turned(&cluster, node, now == "On", &mut boots).await;
                        *was = now;
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    };
    let entry = |node: &str| format!("  {node}: {{redfish: '{}'}}\n", bmc.system(node));
    let file = bmc.password().with_file_name("controllers.yaml");
    let access = format!(
        "defaults: {{user: {}, passwordFile: {}, caFile: {}}}\n",
        SushyEmulator::USER,
        bmc.password().display(),
        bmc.authority().display()
    );
    std::fs::write(&file, format!("{access}nodes:\n{}", nodes.map(entry).concat())).unwrap();
    let file = file.display().to_string();
    let variables: Vec<(&str, &str)> = QUICK.into_iter().chain([("SLEEP_BMC_FILE", file.as_str())]).collect();
    let operator = cluster.operator(&variables).await;
    cluster.until("one node sleeps", async || phase(&cluster, "n1").await == "asleep").await;
    assert_eq!(power.read(&bmc.system("n1")).await.as_deref(), Some("Off"), "{}", bmc.log());
    assert_eq!(power.read(&bmc.system("n2")).await.as_deref(), Some("On"), "the floor keeps it");
    waits(&cluster, "p", "n2").await;
    cluster.until("it is awake again", async || phase(&cluster, "n1").await == "awake").await;
    assert_eq!(power.read(&bmc.system("n1")).await.as_deref(), Some("On"), "{}", bmc.log());
    operator.stop().await;
    assert!(!kubelets.is_finished());
    kubelets.abort();
    agents.abort();
}
