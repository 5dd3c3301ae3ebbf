//! Judges a pod on nodes by the extender's own code: the extender runs in this process for a moment, reads what it reads in
//! a cluster, and is asked on loopback what it would answer to kube-scheduler. It writes nothing.

use crate::object::{items, number, text};
use crate::run::PluginSession;
use crate::show::watts;
use bytes::Bytes;
use extender::settings::{Settings, TABLE};
use host_kit::config::{self, Invocation, LiveConfig};
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use host_kit::program::Context;
use host_kit::shutdown::{self, Tasks};
use http::Request;
use serde_json::{Value, json};
use std::time::Duration;

/// For the lists of a large cluster.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// The nodes that are shown.
const SHOWN: usize = 5;

/// The page of the extender about this pod on these nodes, the best first.
pub(crate) async fn judged(asked: &PluginSession, pod: &Value, names: Vec<String>) -> Result<Value, String> {
    let namespace = &asked.common.joulie_namespace;
    let given = [
        ("EXTENDER_ADDR", "127.0.0.1:0"),
        ("METRICS_ADDR", "127.0.0.1:0"),
        ("DRAIN_LINGER", "0s"),
        ("JOULIE_NAMESPACE", namespace.as_str()),
    ];
    let given = given.map(|(name, value)| (name.into(), value.into()));
    let Invocation::Run(sources) = Invocation::read([], given) else {
        return Err("the extender's settings are no settings".to_owned());
    };
    let values = config::load(&TABLE, &sources).map_err(|refusals| refusals.to_string())?;
    let settings = Settings::read(&values).map_err(|refusals| refusals.to_string())?;
    let (trigger, stop) = shutdown::pair();
    let mut tasks = Tasks::new();
    let context = Context {
        client: asked.api.client(),
        clock: asked.clock.clone(),
        stop,
        logs: None,
        config: LiveConfig::fixed(String::new()),
    };
    let started = extender::start(settings, context, &mut tasks).await.map_err(|error| error.to_string())?;
    let limits = ClientLimits { timeout: PATIENCE, bytes_max: 256 << 20, idle_max: 1 };
    let client =
        HttpClient::new("kubectl-joulie", limits, Trust::Nobody).map_err(|error| error.to_string())?;
    let page = ask(&client, &format!("http://{}", started.work), pod, &names).await;
    trigger.request("the pod is judged");
    let mut page = page?;
    if let Some(nodes) = page["nodes"].as_array_mut() {
        nodes.sort_by_key(|node| {
            (std::cmp::Reverse(node["answer"].as_i64()), text(node, "/nodeName").to_owned())
        });
    }
    Ok(page)
}

async fn ask(client: &HttpClient, base: &str, pod: &Value, names: &[String]) -> Result<Value, String> {
    let ready = async {
        loop {
            let request = Request::get(format!("{base}/readyz")).body(Bytes::new());
            let request = request.map_err(|error| error.to_string())?;
            if client.ask(request).await.is_ok() {
                return Ok::<(), String>(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, ready).await;
    in_time.map_err(|_| "the objects could not be read in a minute: may you list and watch nodetwins, nodehardwares, powerbudgets, pods and nodes?".to_owned())??;
    let body = json!({"Pod": pod, "NodeNames": names}).to_string();
    // The Lease and the pods are watched beside the twins, and may come a moment later.
    let mut last = None;
    for _ in 0..25 {
        let request = Request::post(format!("{base}/debug/scoring")).body(Bytes::from(body.clone()));
        let answer = client.ask(request.map_err(|error| error.to_string())?).await;
        let answer = answer.map_err(|why| format!("the pod cannot be judged: {why:?}"))?;
        let page: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let knows = items(&page, "/nodes").iter().any(|node| number(node, "/scoring/terms/score").is_some());
        if knows {
            return Ok(page);
        }
        last = Some(page);
        tokio::time::sleep(PAUSE).await;
    }
    last.ok_or_else(|| "the pod was not judged".to_owned())
}

/// The best nodes, and `also`, each with its terms.
pub(crate) fn lines(page: &Value, also: &str) -> Vec<String> {
    let nodes = items(page, "/nodes");
    let mut said = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        if at < SHOWN || text(node, "/nodeName") == also {
            said.push(line(node));
        }
    }
    if nodes.len() > said.len() {
        said.push(format!("and {} more nodes", nodes.len() - said.len()));
    }
    said
}

/// One node with every term of its score.
pub(crate) fn line(node: &Value) -> String {
    let term = |name: &str| number(node, &format!("/scoring/terms/{name}"));
    let points = node["answer"].as_i64().unwrap_or_default();
    let filter = text(node, "/filter");
    let head = format!("{}: {points} points, filter: {filter}", text(node, "/nodeName"));
    if let Some(cost) = term("watts") {
        let held_back = text(node, "/scoring/terms/heldBack");
        let held_back =
            if held_back.is_empty() { String::new() } else { format!(", held back: {held_back}") };
        return format!(
            "{head}; it would cost {} there, which earns {cost:.0}; fill {:.0}, whole GPU nodes {:.0}, cores of free GPUs {:.0}{held_back}",
            watts(term("costW")),
            term("fill").unwrap_or_default(),
            term("whole").unwrap_or_default(),
            term("cores").unwrap_or_default(),
        );
    }
    if term("score").is_none() {
        let why = text(node, "/scoring/terms/unknown");
        let why = if why.is_empty() { text(node, "/scoring/unknown") } else { why };
        return format!("{head}; nothing is known of it: {why}");
    }
    let of = |name: &str| term(name).map_or("-".to_owned(), |value| format!("{:.1}", value + 0.0));
    format!(
        "{head}; it would add {} (CPU) and {} (GPU) to {} of {}; headroom {}, cooling {}, PSU {}, trend {}, profile {}, relief {}, cap sensitivity {}",
        watts(number(node, "/scoring/marginalCpuW")),
        watts(number(node, "/scoring/marginalGpuW")),
        watts(number(node, "/scoring/terms/budget/measuredPowerW")),
        watts(number(node, "/scoring/terms/budget/cappedPowerW")),
        of("headroomScore"),
        of("cooling"),
        of("psu"),
        of("trendBonus"),
        of("profileBonus"),
        of("pressureRelief"),
        of("capSensitivity"),
    ) + &lacks(node).unwrap_or_default()
}

/// The PowerBudget that lacks watts for the pod on this node, and how many, whatever `POWER_FIT` says.
fn lacks(node: &Value) -> Option<String> {
    let of = |name: &str| number(node, &format!("/scoring/{name}"));
    let missing = of("marginalCpuW")? + of("marginalGpuW")? - of("powerLeftW")?;
    let budget = node.pointer("/scoring/leftBy")?.as_str().filter(|_| missing > 0.0)?;
    Some(format!("; PowerBudget {budget} lacks {} for it", watts(Some(missing))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_lacks_watts_for_a_pod_is_named_with_them() {
        let node = |left: f64, by: Value| json!({"scoring": {"marginalCpuW": 100.0, "marginalGpuW": 350.0, "powerLeftW": left, "leftBy": by}});
        let said = lacks(&node(138.0, json!("rack-0"))).unwrap();
        assert!(said.contains("PowerBudget rack-0 lacks 312"), "{said}");
        assert_eq!(lacks(&node(450.0, json!("rack-0"))), None, "it fits");
        assert_eq!(lacks(&node(138.0, Value::Null)), None, "the node's own cap bounds it");
        assert_eq!(lacks(&json!({"scoring": {"marginalCpuW": 1}})), None);
    }
}
