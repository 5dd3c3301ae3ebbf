//! Joulie's objects as kubectl shows them.

use crate::SystemError;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// The field manager of a person.
const PERSON: &str = "kubectl";

/// A kind of the group joulie.io.
fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("joulie.io", "v1alpha1", kind)),
    )
}

/// An object, or null.
///
/// # Errors
/// If the API does not answer.
pub async fn get(client: &Client, kind: &str, name: &str) -> Result<Value, SystemError> {
    Ok(match api(client, kind).get_opt(name).await? {
        Some(object) => serde_json::to_value(object)?,
        None => Value::Null,
    })
}

/// Every object of a kind.
///
/// # Errors
/// If the API does not answer.
pub async fn list(client: &Client, kind: &str) -> Result<Vec<Value>, SystemError> {
    let listed = api(client, kind).list(&ListParams::default()).await?;
    Ok(listed.items.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
}

/// Writes a person's cap on a node's packages, and returns the generation of the profile.
///
/// # Errors
/// If the API refuses.
pub async fn want(client: &Client, node: &str, watts: u32) -> Result<i64, SystemError> {
    let spec = json!({"nodeName": node, "profile": "eco", "cpu": {"packagePowerCapWatts": watts}});
    write(client, "NodePowerProfile", node, spec).await
}

/// Writes an object as a person does, and returns its generation.
///
/// # Errors
/// If the API refuses.
pub async fn write(client: &Client, kind: &str, name: &str, spec: Value) -> Result<i64, SystemError> {
    let object = json!({
        "apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    let how = PatchParams::apply(PERSON).force();
    let written = api(client, kind).patch(name, &how, &Patch::Apply(&object)).await?;
    Ok(written.metadata.generation.unwrap_or_default())
}

/// Deletes an object.
///
/// # Errors
/// If the API refuses.
pub async fn delete(client: &Client, kind: &str, name: &str) -> Result<(), SystemError> {
    Ok(api(client, kind).delete(name, &DeleteParams::default()).await.map(drop)?)
}

/// Deletes a person's cap.
///
/// # Errors
/// If the API refuses.
pub async fn release(client: &Client, node: &str) -> Result<(), SystemError> {
    delete(client, "NodePowerProfile", node).await
}

/// The status of a condition; null if it does not exist.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&Value::Null)
}
