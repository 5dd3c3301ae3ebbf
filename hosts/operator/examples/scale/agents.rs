//! Plays the agents of all nodes: they immediately report every requested cap and every grant as in force.

use super::cluster::{JOULIE, get, patch};
use super::{Any, watch};
use embedded_api::EmbeddedApi;
use futures::StreamExt;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;

/// The boot and the UID of each node.
type Machines = BTreeMap<String, (Value, Value)>;

/// Confirms profiles and grants until it is dropped.
pub(crate) async fn confirm(api: EmbeddedApi) -> Result<(), Any> {
    let client = api.client_as("joulie-agent");
    let from = api.revision();
    let nodes = get(&client, "/api/v1/nodes").await?;
    let machine = |node: &Value| {
        let (boot, uid) = (node["status"]["nodeInfo"]["bootID"].clone(), node["metadata"]["uid"].clone());
        Some((node["metadata"]["name"].as_str()?.to_owned(), (boot, uid)))
    };
    let machines: Machines = nodes["items"].as_array().into_iter().flatten().filter_map(machine).collect();
    let profiles = follow(&client, "nodepowerprofiles", from, of_profile);
    let grants = follow(&client, "nodepowergrants", from, |grant| of_grant(grant, &machines));
    futures::future::try_join(profiles, grants).await?;
    Ok(())
}

/// Writes the status that `report` gives for each change of an object of this kind, if it gives one.
async fn follow(
    client: &Client,
    kind: &str,
    from: u64,
    report: impl Fn(&Value) -> Option<Value>,
) -> Result<(), Any> {
    let mut texts = pin!(watch(client, &format!("{JOULIE}/{kind}"), from).await?);
    let mut rest = String::new();
    while let Some(text) = texts.next().await {
        rest.push_str(&text);
        let whole = rest.rfind('\n').map_or(0, |end| end + 1);
        for line in rest.drain(..whole).collect::<String>().lines() {
            let event: Value = serde_json::from_str(line)?;
            let object = &event["object"];
            let reported = report(object).filter(|_| event["type"] != "DELETED");
            if let (Some(status), Some(name)) = (reported, object["metadata"]["name"].as_str()) {
                patch(client, &format!("{JOULIE}/{kind}/{name}/status"), &json!({"status": status})).await?;
            }
        }
    }
    Err(format!("the watch of the {kind} has ended").into())
}

/// The status in which the agent of a node confirms its profile; `None` if it is confirmed already.
fn of_profile(profile: &Value) -> Option<Value> {
    let generation = &profile["metadata"]["generation"];
    if profile["status"]["control"]["cpu"]["observedGeneration"] == *generation {
        return None;
    }
    let cpu = &profile["spec"]["cpu"];
    let percent = cpu["packagePowerCapPctOfMax"].as_f64().map(|percent| percent * 3.6);
    let cap = cpu["packagePowerCapWatts"].as_f64().or(percent).unwrap_or(360.0).clamp(100.0, 360.0);
    Some(json!({"control": {"cpu": {"backend": "rapl", "result": "applied",
        "observedGeneration": generation, "requestedWatts": cap, "capWatts": cap}}}))
}

/// The receipt for a grant; `None` if it is there already.
fn of_grant(grant: &Value, machines: &Machines) -> Option<Value> {
    let (spec, status) = (&grant["spec"], &grant["status"]);
    if status["serial"] == spec["serial"] {
        return None;
    }
    let (boot, uid) = machines.get(spec["nodeName"].as_str()?)?;
    let holds = spec["watts"].as_f64()?.clamp(200.0, 720.0);
    Some(json!({"serial": spec["serial"], "bootID": boot, "nodeUID": uid, "holds": holds}))
}
