//! Plays the agents of all nodes in one task: it immediately reports every requested cap as in force.

use super::cluster::{JOULIE, patch};
use super::{Any, watch};
use embedded_api::EmbeddedApi;
use futures::StreamExt;
use serde_json::{Value, json};
use std::pin::pin;

/// Confirms profiles until it is dropped.
pub(crate) async fn confirm(api: EmbeddedApi) -> Result<(), Any> {
    let client = api.client_as("joulie-agent");
    let mut texts = pin!(watch(&client, &format!("{JOULIE}/nodepowerprofiles"), api.revision()).await?);
    let mut rest = String::new();
    while let Some(text) = texts.next().await {
        rest.push_str(&text);
        let whole = rest.rfind('\n').map_or(0, |end| end + 1);
        for line in rest.drain(..whole).collect::<String>().lines() {
            let event: Value = serde_json::from_str(line)?;
            if let Some((path, status)) = confirmation(&event["object"]) {
                patch(&client, &path, &status).await?;
            }
        }
    }
    Err("the watch of the profiles has ended".into())
}

/// The status in which the agent of a node confirms its profile, and its path; `None` if it is confirmed already.
fn confirmation(profile: &Value) -> Option<(String, Value)> {
    let (name, generation) = (profile["metadata"]["name"].as_str()?, &profile["metadata"]["generation"]);
    if profile["status"]["control"]["cpu"]["observedGeneration"] == *generation {
        return None;
    }
    let cpu = &profile["spec"]["cpu"];
    let percent = cpu["packagePowerCapPctOfMax"].as_f64().map(|percent| percent * 3.6);
    let cap = cpu["packagePowerCapWatts"].as_f64().or(percent).unwrap_or(360.0).clamp(100.0, 360.0);
    let status = json!({"status": {"control": {"cpu": {"backend": "rapl", "result": "applied",
        "observedGeneration": generation, "requestedWatts": cap, "capWatts": cap}}}});
    Some((format!("{JOULIE}/nodepowerprofiles/{name}/status"), status))
}
