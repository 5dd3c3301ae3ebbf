//! Writes the objects of the bench's nodes once, in the place of operator and agents, for the extender to read.
//!
//! Every fourth node is an eco node, and every fifth of these drains. The headroom below the cap differs between nodes, so that scores differ, and 1
//! to 7 pods of 8 of the 64 processors (43.75 W by the estimate of facts/extender.md section 6) fit.

use crate::SystemError;
use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

const WRITES_MAX: usize = 16;
/// The cap of a node.
pub(super) const CAP_WATTS: u32 = 600;

/// The class of a node, as its twin says it.
fn class(number: u32) -> &'static str {
    match number {
        _ if number.is_multiple_of(20) => "draining",
        _ if number.is_multiple_of(4) => "eco",
        _ => "performance",
    }
}

/// Whether a node takes performance pods.
pub(super) fn takes_performance(number: u32) -> bool {
    class(number) == "performance"
}

/// The power of a node without pods.
pub(super) fn measured_watts(number: u32) -> u32 {
    CAP_WATTS - (60 + number % 10 * 30)
}

/// Writes the objects of this many nodes, with the names of [`crate::field::nodes`].
pub(super) async fn describe(client: &Client, count: u32) -> Result<(), SystemError> {
    let one = |number: u32| async move {
        write(client, "NodeHardware", number, json!({}), hardware()).await?;
        let profile = if takes_performance(number) { "performance" } else { "eco" };
        write(client, "NodeTwin", number, json!({"profile": profile}), twin(number, class(number))).await
    };
    futures::stream::iter(0..count).map(one).buffer_unordered(WRITES_MAX).try_collect().await
}

async fn write(
    client: &Client,
    kind: &str,
    number: u32,
    spec: Value,
    status: Value,
) -> Result<(), SystemError> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("joulie.io", "v1alpha1", kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let name = format!("node-{number}");
    let mut spec = spec;
    spec["nodeName"] = json!(name);
    let object = json!({
        "apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}

fn hardware() -> Value {
    json!({
        "cpu": {
            "sockets": 1,
            "totalCores": 64,
            "capRange": {"type": "package", "minWattsPerSocket": 100, "maxWattsPerSocket": 500},
        },
        "gpu": {"present": false, "vendor": "none", "count": 0},
    })
}

fn twin(number: u32, class: &str) -> Value {
    let measured = measured_watts(number);
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    json!({
        "schedulableClass": class,
        "lastUpdated": now,
        "predictedPowerHeadroomScore": f64::from(CAP_WATTS - measured) / f64::from(CAP_WATTS) * 100.0,
        "predictedCoolingStressScore": 10 + number % 7,
        "predictedPsuStressScore": 10,
        "powerMeasurement": {
            "source": "agent",
            "measuredNodePowerW": measured,
            "nodeCappedPowerW": CAP_WATTS,
            "powerTrendWPerMin": 0,
            "sampledAt": now,
        },
    })
}
