//! The node's own meter in the program: from the board, or from a controller over HTTP, to the metrics and the status.

use crate::test_machine::{Agent, Cluster, TestMachine, settings};
use rig::test_machine::Folder;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("node-a", json!({"joulie.io/managed": "true"})).await;
    cluster
}

/// A management controller whose one document says this power.
async fn controller(watts: i32) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).await.unwrap_or(0);
            let asked = String::from_utf8_lossy(&request[..length]).into_owned();
            let body = if asked.starts_with("GET /redfish/v1/Chassis/1/Power ") {
                json!({"PowerControl": [{"Name": "System Power Control", "PowerConsumedWatts": watts}]})
                    .to_string()
            } else {
                String::new()
            };
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _sent = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    format!("http://{address}/redfish/v1/Chassis/1/Power")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_power_at_the_plug_is_the_nodes_and_what_its_devices_do_not_draw_is_the_rest() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster().await;
    let mut settings = room.settings(&cluster);
    settings.extend([
        ("NODE_METER", "dcmi,redfish".to_owned()),
        ("NODE_METER_INTERVAL", "1s".to_owned()),
        ("NODE_METER_REDFISH_URL", controller(900).await),
    ]);
    let agent = Agent::start(&settings);
    let has_rest = |it: &serde_json::Value| it["status"]["power"]["restWatts"].is_number();
    let hardware = cluster.until("NodeHardware", "node-a", has_rest).await;
    let power = &hardware["status"]["power"];
    assert_eq!((&power["nodeWatts"], &power["nodeSource"]), (&json!(900), &json!("redfish")), "{power}");
    assert!(power["nodeSampledAt"].is_string(), "{power}");
    // The packages draw between nothing and 500 W, which are in the 900 W.
    let rest = power["restWatts"].as_f64().unwrap();
    assert!((400.0..=900.0).contains(&rest), "{power}");
    let page = agent.until_page("/metrics", "joulie_node_rest_power_watts{node=\"node-a\"}").await;
    for line in [
        "joulie_node_plug_power_watts{node=\"node-a\",source=\"redfish\"} 900",
        "joulie_node_meter_reads_total{source=\"dcmi\",outcome=\"absent\"} 1",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_with_an_acpi_meter_needs_no_setting() {
    let folder = Folder::new();
    folder.put("sys/class/hwmon/hwmon1/name", "power_meter\n");
    folder.put("sys/class/hwmon/hwmon1/power1_average", "344000000\n");
    let cluster = cluster().await;
    let mut settings = settings(&cluster);
    settings.extend([
        ("NODE_NAME", "node-a".to_owned()),
        ("HOST_ROOT", folder.0.display().to_string()),
        ("STATE_DIR", folder.0.join("state").display().to_string()),
    ]);
    let _agent = Agent::start(&settings);
    let is_metered = |it: &serde_json::Value| it["status"]["power"]["nodeWatts"] == json!(344);
    let hardware = cluster.until("NodeHardware", "node-a", is_metered).await;
    assert_eq!(hardware["status"]["power"]["nodeSource"], "acpi");
}

#[test]
fn a_meter_that_cannot_be_as_it_is_written_is_refused() {
    for (more, says) in [
        (&[("NODE_METER", "acpi,acpi")][..], "there twice"),
        (&[("NODE_METER", "ipmi")], "NODE_METER"),
        (&[("NODE_METER", "redfish")], "set its URL"),
        (&[("NODE_METER_REDFISH_URL", "https://bmc")], "name redfish in NODE_METER"),
        (
            &[("NODE_METER", "redfish"), ("NODE_METER_REDFISH_URL", "https://me:secret@bmc")],
            "settings of their own",
        ),
        (&[("NODE_METER", "redfish"), ("NODE_METER_REDFISH_URL", "https://bmc/other")], "none of Redfish"),
        (
            &[
                ("NODE_METER", "redfish"),
                ("NODE_METER_REDFISH_URL", "https://bmc"),
                ("NODE_METER_REDFISH_USER", "me"),
            ],
            "go together",
        ),
        (&[("NODE_METER_INTERVAL", "10ms")], "NODE_METER_INTERVAL"),
        (&[("NODE_METERS", "acpi")], "NODE_METERS"),
    ] {
        let all =
            [("NODE_NAME", "node-a")].iter().chain(more).map(|(name, value)| (*name, (*value).to_owned()));
        let (code, said) = Agent::run(&[], &all.collect::<Vec<_>>());
        assert!(code == Some(2) && said.contains(says), "{more:?}: {code:?} {said}");
    }
}
