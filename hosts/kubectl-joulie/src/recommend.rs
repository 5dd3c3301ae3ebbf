//! `recommend`: what the operator advises in the twins. It is advice: nothing here is done by this command.

use crate::api::path;
use crate::object::{items, number, text};
use crate::run::{PluginSession, Reply};
use crate::show::{Sheet, percent};
use serde_json::{Value, json};

const COLUMNS: [&str; 5] = ["NODE", "WHAT", "ADVICE", "TO", "WHY"];
const WIDE: [&str; 1] = ["STRESS"];

pub(crate) async fn recommend(asked: &PluginSession) -> Result<Reply, Reply> {
    let twins = asked.api.list(path::TWINS, &[], Some).await?;
    let mut sheet = Sheet::new("RecommendationList", &COLUMNS, &WIDE);
    for twin in &twins {
        let node = text(twin, "/spec/nodeName");
        for one in items(twin, "/status/rescheduleRecommendations") {
            let of = |field: &str| text(one, field).to_owned();
            let kind = of("/workloadRef/kind").to_lowercase();
            let what = format!("{kind} {}/{}", of("/workloadRef/namespace"), of("/workloadRef/name"));
            let target = match of("/targetNode") {
                target if target.is_empty() => "no node is known".to_owned(),
                target => target,
            };
            let cells = vec![
                node.to_owned(),
                what,
                "run elsewhere".to_owned(),
                target,
                of("/reason"),
                percent(number(one, "/stress")),
            ];
            sheet.row(
                format!("{kind}/{}", of("/workloadRef/name")),
                cells,
                json!({"node": node, "reschedule": one}),
            );
        }
        let slicing = &twin["status"]["gpuSlicingRecommendation"];
        let mode = text(slicing, "/mode");
        if !mode.is_empty() && mode != "none" {
            let slices = slicing["slicesPerGPU"].as_i64().unwrap_or_default();
            let cells = vec![
                node.to_owned(),
                "GPUs".to_owned(),
                format!("divide by {mode} into {slices} {}", text(slicing, "/sliceType")),
                "-".to_owned(),
                text(slicing, "/reason").to_owned(),
                "-".to_owned(),
            ];
            let row =
                json!({"node": node, "gpuSlicing": slicing, "deviceAttributes": device_attributes(slicing)});
            sheet.row(format!("node/{node}"), cells, row);
        }
    }
    if sheet.rows.is_empty() {
        sheet.heading.push(format!("Nothing is recommended for {} nodes", twins.len()));
    }
    Ok(Reply::done(sheet.text(asked.format())))
}

/// How GPUs would better be divided, as attributes of devices of `resource.k8s.io`: a driver of dynamic resource allocation may
/// carry them in its ResourceSlices, and classes of devices may select by them. They change nothing that runs.
fn device_attributes(slicing: &Value) -> Value {
    let mut attributes = json!({"joulie.io/slicingMode": {"string": text(slicing, "/mode")}});
    if let Some(slices) = slicing["slicesPerGPU"].as_i64() {
        attributes["joulie.io/slicesPerDevice"] = json!({"int": slices});
    }
    let profile = text(slicing, "/sliceType");
    if !profile.is_empty() {
        attributes["joulie.io/sliceProfile"] = json!({"string": profile});
    }
    attributes
}
