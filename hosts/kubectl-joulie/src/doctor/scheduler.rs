//! kube-scheduler's configuration of the extender: from a file, or from a ConfigMap that holds one. kube-scheduler's own
//! file is on its machine, and no API tells it.

use super::{Check, Findings};
use crate::api::ApiError;
use crate::object::{items, name, text};
use crate::run::PluginSession;
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// A configuration is small.
const CONFIG_MAX: u64 = 1 << 20;
/// Default plugins of kube-scheduler can give this much together (weights 3+2+2+2+1+1+1, each up to 100).
const PLUGINS_MOST: i64 = 1_200;
/// The extender answers up to this (`EXTENDER_SCORE_MAX`), and kube-scheduler multiplies by ten times the weight.
const SCORE_MOST: i64 = 100;
/// kube-scheduler waits so long for each pod where nothing is said.
const TIMEOUT_DEFAULT: f64 = 5.0;
const TIMEOUT_MOST: f64 = 2.0;

pub(super) async fn check(asked: &PluginSession, file: Option<&Path>, found: &mut Findings) {
    let configs = match file {
        Some(file) => match read(file) {
            Ok(text) => vec![(file.display().to_string(), text)],
            Err(error) => {
                return found
                    .skipped
                    .push(format!("kube-scheduler's configuration: {}: {error}", file.display()));
            }
        },
        None => match in_cluster(asked).await {
            Ok(configs) => configs,
            Err(error) => return found.skipped.push(format!("kube-scheduler's configuration: {error}")),
        },
    };
    if configs.is_empty() {
        let hint =
            "kube-scheduler's configuration: no ConfigMap has one; give its file with --scheduler-config";
        return found.skipped.push(hint.to_owned());
    }
    found.made(Check::Scheduler);
    let (mut any, mut parsed) = (false, 0);
    for (place, text) in &configs {
        match serde_saphyr::from_str::<Value>(text) {
            Ok(config) => {
                parsed += 1;
                for extender in items(&config, "/extenders")
                    .iter()
                    .filter(|one| is_ours(one, items(&config, "/extenders").len()))
                {
                    any |= !is_for_binding(extender);
                    stanza(place, extender, found);
                }
            }
            Err(error) => found.add(
                Check::Scheduler,
                format!("{place}: it is no YAML: {error}"),
                "kube-scheduler does not start with it",
                "mend it; docs/INSTALL.md, \"The extender\"",
            ),
        }
    }
    if parsed > 0 && !any {
        found.add(
            Check::Scheduler,
            format!("{}: no extender of Joulie's is configured", configs[0].0),
            "pods are placed without regard to power, and performance pods go to eco nodes",
            "add the stanza of docs/INSTALL.md, \"The extender\"",
        );
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(CONFIG_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// ConfigMaps with a configuration of kube-scheduler, where Joulie is and where the control plane is.
async fn in_cluster(asked: &PluginSession) -> Result<Vec<(String, String)>, ApiError> {
    let mut all = Vec::new();
    for space in [asked.common.joulie_namespace.as_str(), "kube-system"] {
        let take = |object: Value| {
            let texts = object["data"].as_object()?.values().filter_map(Value::as_str);
            let found = texts
                .filter(|text| text.contains("KubeSchedulerConfiguration"))
                .max_by_key(|text| text.len())?;
            Some((format!("ConfigMap {space}/{}", name(&object)), found.to_owned()))
        };
        match asked.api.list(&format!("/api/v1/namespaces/{space}/configmaps"), &[], take).await {
            Ok(found) => all.extend(found),
            Err(ApiError::Absent) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// An extender that filters and prioritizes as ours does; the only one is meant whatever its name.
fn is_ours(extender: &Value, of: usize) -> bool {
    let url = text(extender, "/urlPrefix");
    of == 1 || url.contains("joulie") || url.contains(":9876")
}

/// An entry for bind or preempt alone, as the chart writes it with `gpuPlacement.bind`.
fn is_for_binding(extender: &Value) -> bool {
    let named = |verb: &str| !text(extender, verb).is_empty();
    (named("/bindVerb") || named("/preemptVerb")) && !named("/filterVerb") && !named("/prioritizeVerb")
}

fn stanza(place: &str, extender: &Value, found: &mut Findings) {
    let url = text(extender, "/urlPrefix");
    let of = format!("{place}, extender {url}");
    let mut wrong = |seen: String, why, act| found.add(Check::Scheduler, format!("{of}: {seen}"), why, act);
    let scores = !is_for_binding(extender);
    let weight = extender["weight"].as_i64().unwrap_or_default();
    if scores
        && (text(extender, "/prioritizeVerb") != "prioritize" || text(extender, "/filterVerb") != "filter")
    {
        wrong(
            "filterVerb is not filter, or prioritizeVerb is not prioritize".to_owned(),
            "what is not named is not asked: performance pods go to eco nodes, or scores do not count",
            "set filterVerb: filter and prioritizeVerb: prioritize",
        );
    }
    if scores && weight != 1 {
        let most = weight.saturating_mul(10).saturating_mul(SCORE_MOST);
        wrong(
            format!(
                "weight {weight}: its scores count up to {most} beside the {PLUGINS_MOST} of all default plugins"
            ),
            "kube-scheduler multiplies by ten times the weight: above 1 it overrides taints, spreading and affinity; 0 is refused",
            "set weight: 1",
        );
    }
    if extender["nodeCacheCapable"] != true {
        wrong(
            "nodeCacheCapable is not true".to_owned(),
            "kube-scheduler then rebuilds its nodes from the answer, and its own plugins see empty nodes",
            "set nodeCacheCapable: true",
        );
    }
    let tls = &extender["tlsConfig"];
    let has_authority = !text(tls, "/caFile").is_empty() || !text(tls, "/caData").is_empty();
    let https = extender["enableHTTPS"] == true;
    if tls["insecure"] == true || https && !has_authority {
        wrong(
            "HTTPS without an authority: the certificate is not verified".to_owned(),
            "without caFile kube-scheduler switches verification off and does not say so: anybody in between places pods",
            "set tlsConfig.caFile",
        );
    }
    if https != url.starts_with("https://") {
        wrong(
            "enableHTTPS and the scheme of urlPrefix differ".to_owned(),
            "kube-scheduler speaks by the scheme, and the certificates are used by enableHTTPS",
            "set both, or neither",
        );
    }
    let timeout = seconds(&extender["httpTimeout"]);
    // A binding writes to the API server, so it may take longer.
    if scores && timeout.is_none_or(|timeout| timeout <= 0.0 || timeout > TIMEOUT_MOST) {
        wrong(
            format!(
                "httpTimeout is {} s",
                timeout.filter(|timeout| *timeout > 0.0).unwrap_or(TIMEOUT_DEFAULT)
            ),
            "an extender that hangs costs each pod that long, one after the other",
            "set httpTimeout: 1s",
        );
    }
    if scores && extender["ignorable"] != true {
        wrong(
            "ignorable is not true".to_owned(),
            "while no extender answers nothing is scheduled at all, the extender's own pods included",
            "set ignorable: true, unless that is what you want",
        );
    }
}

/// A duration as Go writes it, in whole units, or a number of nanoseconds.
fn seconds(value: &Value) -> Option<f64> {
    if let Some(nanos) = value.as_f64() {
        return Some(nanos / 1e9);
    }
    let most = std::time::Duration::from_secs(86_400);
    let read = host_kit::config::parse::duration(value.as_str()?, std::time::Duration::ZERO..=most).ok()?;
    Some(read.as_secs_f64())
}
