//! What any Kubernetes API server does, as far as the hosts rely on it. Each case takes a client and panics when the
//! server behaves otherwise; it makes what it needs under names of its own, so that it can run on a shared cluster,
//! which must serve [`definition`]. The client must not retry on its own (`Config::default_retry`), since a refused
//! eviction is to be seen. Nothing here knows the embedded API.

mod apply;
mod lists;
mod objects;
mod patches;
mod pods;
mod schemas;
mod watches;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::Status;
use kube::{Client, Error};
use serde_json::{Value, json};

/// A case, boxed so that all of them make a list.
pub(crate) type Case = fn(Client) -> BoxFuture<'static, ()>;

/// All cases by name.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("objects::life", |client| Box::pin(objects::life(client))),
    ("objects::names", |client| Box::pin(objects::names(client))),
    ("objects::conflicts", |client| Box::pin(objects::conflicts(client))),
    ("objects::status_is_apart", |client| Box::pin(objects::status_is_apart(client))),
    ("objects::finalizers_hold", |client| Box::pin(objects::finalizers_hold(client))),
    ("objects::preconditions", |client| Box::pin(objects::preconditions(client))),
    ("objects::leases", |client| Box::pin(objects::leases(client))),
    ("objects::events_in_both_groups", |client| Box::pin(objects::events_in_both_groups(client))),
    ("objects::dry_run", |client| Box::pin(objects::dry_run(client))),
    ("schemas::invalid_is_refused", |client| Box::pin(schemas::invalid_is_refused(client))),
    ("schemas::defaults_and_pruning", |client| Box::pin(schemas::defaults_and_pruning(client))),
    ("schemas::strictness", |client| Box::pin(schemas::strictness(client))),
    ("apply::a_dropped_field_goes", |client| Box::pin(apply::a_dropped_field_goes(client))),
    ("apply::a_foreign_field_is_refused", |client| Box::pin(apply::a_foreign_field_is_refused(client))),
    ("apply::two_may_own_the_same", |client| Box::pin(apply::two_may_own_the_same(client))),
    ("apply::lists_merge_by_key", |client| Box::pin(apply::lists_merge_by_key(client))),
    ("apply::status_has_owners_of_its_own", |client| Box::pin(apply::status_has_owners_of_its_own(client))),
    ("apply::an_update_takes_ownership", |client| Box::pin(apply::an_update_takes_ownership(client))),
    ("apply::the_same_again_writes_nothing", |client| Box::pin(apply::the_same_again_writes_nothing(client))),
    ("lists::selectors", |client| Box::pin(lists::selectors(client))),
    ("lists::pages_show_one_moment", |client| Box::pin(lists::pages_show_one_moment(client))),
    ("lists::collections_are_deleted", |client| Box::pin(lists::collections_are_deleted(client))),
    ("watches::changes_come_in_order", |client| Box::pin(watches::changes_come_in_order(client))),
    ("watches::a_selection_is_left", |client| Box::pin(watches::a_selection_is_left(client))),
    ("watches::a_streamed_list_ends", |client| Box::pin(watches::a_streamed_list_ends(client))),
    ("watches::a_reflector_follows", |client| Box::pin(watches::a_reflector_follows(client))),
    ("patches::of_custom_objects", |client| Box::pin(patches::of_custom_objects(client))),
    ("patches::of_nodes", |client| Box::pin(patches::of_nodes(client))),
    ("pods::are_bound_once", |client| Box::pin(pods::are_bound_once(client))),
    ("pods::budgets_hold", |client| Box::pin(pods::budgets_hold(client))),
    ("pods::stop_with_grace", |client| Box::pin(pods::stop_with_grace(client))),
];

/// The custom kind that the cases use.
pub(crate) fn definition() -> CustomResourceDefinition {
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string"}, "message": {"type": "string"},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
    }});
    let zone = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "watts": {"type": "number"}, "note": {"type": "string"},
    }});
    let spec = json!({"type": "object", "required": ["nodeName"], "properties": {
        "nodeName": {"type": "string", "minLength": 1},
        "profile": {"type": "string", "enum": ["performance", "eco"]},
        "watts": {"type": "number", "minimum": 1},
        "percent": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 100},
        "weight": {"type": "integer", "default": 5},
        "limit": {"x-kubernetes-int-or-string": true},
        "rack": {"type": "string", "pattern": "^r[0-9]+$", "maxLength": 4},
        "cpu": {"type": "object", "properties": {"cap": {"type": "integer"}, "mode": {"type": "string", "default": "auto"}}},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "order": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "zones": {"type": "array", "items": zone, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let status = json!({"type": "object", "properties": {
        "score": {"type": "number"}, "class": {"type": "string"},
        "conditions": {"type": "array", "items": condition, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"]},
    }});
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.conformance.joulie.io"},
        "spec": {
            "group": "conformance.joulie.io", "scope": "Cluster",
            "names": {"plural": "probes", "singular": "probe", "kind": "Probe", "listKind": "ProbeList",
                "shortNames": ["prb"], "categories": ["conformance"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.nodeName"}],
                "additionalPrinterColumns": [
                    {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName"},
                    {"name": "Watts", "type": "number", "jsonPath": ".spec.watts"},
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"],
                    "description": "Probe is what the cases probe.",
                    "properties": {"spec": spec, "status": status}}},
            }],
        },
    }))
    .unwrap()
}

/// The objects of that kind.
pub(crate) fn probes(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "conformance.joulie.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "conformance.joulie.io/v1".to_owned(),
        kind: "Probe".to_owned(),
        plural: "probes".to_owned(),
    };
    Api::all_with(client.clone(), &resource)
}

/// An object of that kind, with this specification beside the node's name.
pub(crate) fn probe(name: &str, spec: Value) -> DynamicObject {
    let mut object = json!({"apiVersion": "conformance.joulie.io/v1", "kind": "Probe", "metadata": {"name": name},
        "spec": {"nodeName": "n1"}});
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// A namespace of one's own; it stays, since on a real server its end takes time.
async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let body = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    match namespaces.create(&PostParams::default(), &body).await {
        Ok(_) => {}
        Err(error) => assert_eq!(status(error).reason, "AlreadyExists"),
    }
}

/// Removes what an earlier run may have left.
async fn clear(objects: &Api<DynamicObject>, name: &str) {
    drop(objects.delete(name, &DeleteParams::default()).await);
}

/// What the server said.
#[track_caller]
fn status(error: Error) -> Status {
    match error {
        Error::Api(status) => *status,
        other => panic!("the server did not answer: {other}"),
    }
}

/// What the server said against it.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> Status {
    status(answer.expect_err("the server must refuse this"))
}

/// The fields that the causes of a refusal name.
fn fields(status: &Status) -> Vec<&str> {
    let details = status.details.as_ref();
    details.iter().flat_map(|details| &details.causes).map(|cause| cause.field.as_str()).collect()
}

/// The fields that a manager owns, as `fieldsV1`.
fn owned(object: &DynamicObject, manager: &str, operation: &str, subresource: Option<&str>) -> Value {
    let entries = object.metadata.managed_fields.as_ref().unwrap();
    let entry = entries.iter().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some(operation)
            && entry.subresource.as_deref() == subresource
    });
    entry.map_or(Value::Null, |entry| entry.fields_v1.as_ref().unwrap().0.clone())
}

fn version(object: &DynamicObject) -> &str {
    object.metadata.resource_version.as_deref().unwrap()
}
