//! Reads over HTTP what no API object contains: the extender's score of each node, and the temperatures of the
//! simulated machines. If an answer is missing, the value becomes unknown; the old one is not kept.

use super::observe::{Machine, Probed};
use super::scheduler::Extender;
use super::web::Web;
use host_kit::reflect::Rows;
use host_kit::shutdown::Stop;
use power_units::{Celsius, Role};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Polls until a stop is requested.
pub(super) async fn probe(
    (extender, simulator): (Extender, Web),
    machines: Rows<Machine>,
    found: Arc<Mutex<Probed>>,
    stop: Stop,
) {
    while !stop.requested_within(EVERY).await {
        let names: Vec<String> = machines.with(|rows| rows.keys().map(|key| key.name.clone()).collect());
        let fresh = tokio::select! {
            fresh = ask(&extender, &simulator, &names) => fresh,
            () = stop.requested() => return,
        };
        *found.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}

async fn ask(extender: &Extender, simulator: &Web, names: &[String]) -> Probed {
    let mut temperatures = BTreeMap::new();
    for name in names {
        let told = simulator.get(&format!("/telemetry/{name}")).await;
        if let Some(degrees) = told.ok().as_deref().and_then(temperature) {
            temperatures.insert(name.clone(), degrees);
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match extender.prioritize(&sample(), &names).await {
        Ok(scores) => Probed { scores, temperatures, extender_silent: None },
        Err(why) => Probed { scores: BTreeMap::new(), temperatures, extender_silent: Some(why) },
    }
}

fn temperature(telemetry: &str) -> Option<Celsius> {
    let telemetry: Value = serde_json::from_str(telemetry).ok()?;
    Celsius::parse(&telemetry["cpu"]["temperatureC"].as_f64()?.to_string(), Role::Nearest).ok()
}

/// The pod for which the view shows scores: a standard one of four processors.
fn sample() -> Value {
    json!({
        "metadata": {"name": "a-standard-pod", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "4", "memory": "4Gi"}}}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_telemetry_without_a_temperature_has_none() {
        assert_eq!(
            temperature(r#"{"cpu": {"temperatureC": 61.5}}"#),
            Celsius::parse("61.5", Role::Nearest).ok()
        );
        for text in
            ["", "{", "{}", r#"{"cpu": {"temperatureC": "61"}}"#, r#"{"cpu": {"temperatureC": 1e300}}"#]
        {
            assert_eq!(temperature(text), None, "{text}");
        }
    }
}
