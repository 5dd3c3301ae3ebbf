//! The behaviour of a Kubernetes API server that the hosts rely on: one suite that runs against the embedded API and
//! against a real server.
//!
//! A [`Case`] takes a [`TestServer`] and panics if the server behaves differently. It creates objects with names of
//! its own, so that it can be repeated and can run beside other cases on a shared cluster, which must serve
//! [`definitions`]. No case knows which server it tests. Where the two servers must differ, an entry of
//! [`DIFFERENCES`] gives the reason.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "all of it is tests: what is not expected fails them"
)]

mod apply;
mod differences;
mod examples;
mod history;
mod joulie;
mod lists;
mod objects;
mod ownership;
mod patches;
mod pods;
mod run;
mod schemas;
mod watches;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::Status;
use kube::{Client, Error};
use serde_json::{Value, json};
use std::sync::Arc;

pub use differences::{DIFFERENCES, Difference, ServerKind};
pub use run::{ConformanceReport, run};

/// A server under test.
#[derive(Clone)]
pub struct TestServer {
    /// A client without automatic retries (`Config::default_retry`), so that a case sees a refused eviction.
    pub client: Client,
    /// Makes the server discard all events so far.
    pub compact: Compact,
}

/// Discards events.
pub type Compact = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A case, boxed so that all cases have the same type.
pub type Case = fn(TestServer) -> BoxFuture<'static, ()>;

/// All cases by name.
pub const CASES: &[(&str, Case)] = &[
    ("objects::life", |on| Box::pin(objects::life(on.client))),
    ("objects::names", |on| Box::pin(objects::names(on.client))),
    ("objects::conflicts", |on| Box::pin(objects::conflicts(on.client))),
    ("objects::status_is_apart", |on| Box::pin(objects::status_is_apart(on.client))),
    ("objects::finalizers_hold", |on| Box::pin(objects::finalizers_hold(on.client))),
    ("objects::preconditions", |on| Box::pin(objects::preconditions(on.client))),
    ("objects::leases", |on| Box::pin(objects::leases(on.client))),
    ("objects::an_update_makes_a_lease", |on| Box::pin(objects::an_update_makes_a_lease(on.client))),
    ("objects::events_in_both_groups", |on| Box::pin(objects::events_in_both_groups(on.client))),
    ("objects::dry_run", |on| Box::pin(objects::dry_run(on.client))),
    ("schemas::invalid_is_refused", |on| Box::pin(schemas::invalid_is_refused(on.client))),
    ("schemas::defaults_and_pruning", |on| Box::pin(schemas::defaults_and_pruning(on.client))),
    ("schemas::strictness", |on| Box::pin(schemas::strictness(on.client))),
    ("apply::a_dropped_field_goes", |on| Box::pin(apply::a_dropped_field_goes(on.client))),
    ("apply::a_foreign_field_is_refused", |on| Box::pin(apply::a_foreign_field_is_refused(on.client))),
    ("apply::two_may_own_the_same", |on| Box::pin(apply::two_may_own_the_same(on.client))),
    ("apply::lists_merge_by_key", |on| Box::pin(apply::lists_merge_by_key(on.client))),
    ("apply::status_has_owners_of_its_own", |on| Box::pin(apply::status_has_owners_of_its_own(on.client))),
    ("apply::an_update_takes_ownership", |on| Box::pin(apply::an_update_takes_ownership(on.client))),
    ("apply::the_same_again_writes_nothing", |on| Box::pin(apply::the_same_again_writes_nothing(on.client))),
    ("lists::selectors", |on| Box::pin(lists::selectors(on.client))),
    ("lists::pages_show_one_moment", |on| Box::pin(lists::pages_show_one_moment(on.client))),
    ("lists::collections_are_deleted", |on| Box::pin(lists::collections_are_deleted(on.client))),
    ("watches::changes_come_in_order", |on| Box::pin(watches::changes_come_in_order(on.client))),
    ("watches::a_selection_is_left", |on| Box::pin(watches::a_selection_is_left(on.client))),
    ("watches::a_streamed_list_ends", |on| Box::pin(watches::a_streamed_list_ends(on.client))),
    ("watches::a_reflector_follows", |on| Box::pin(watches::a_reflector_follows(on.client))),
    ("patches::of_custom_objects", |on| Box::pin(patches::of_custom_objects(on.client))),
    ("patches::of_nodes", |on| Box::pin(patches::of_nodes(on.client))),
    ("pods::are_bound_once", |on| Box::pin(pods::are_bound_once(on.client))),
    ("pods::budgets_hold", |on| Box::pin(pods::budgets_hold(on.client))),
    ("pods::stop_with_grace", |on| Box::pin(pods::stop_with_grace(on.client))),
    ("history::a_compacted_watch_is_told", |on| Box::pin(history::a_compacted_watch_is_told(on))),
    ("history::a_compacted_page_is_told", |on| Box::pin(history::a_compacted_page_is_told(on))),
    ("ownership::of_spec_and_status", |on| Box::pin(ownership::of_spec_and_status(on.client))),
    ("ownership::a_person_keeps_a_field", |on| Box::pin(ownership::a_person_keeps_a_field(on.client))),
    ("joulie::good_examples_are_kept", |on| Box::pin(joulie::good_examples_are_kept(on.client))),
    ("joulie::rules_refuse_in_their_words", |on| Box::pin(joulie::rules_refuse_in_their_words(on.client))),
    ("joulie::schemas_refuse", |on| Box::pin(joulie::schemas_refuse(on.client))),
    ("joulie::nulls_and_strangers_go", |on| Box::pin(joulie::nulls_and_strangers_go(on.client))),
    ("joulie::tables_have_the_columns", |on| Box::pin(joulie::tables_have_the_columns(on.client))),
    ("joulie::objects_are_found_by_node", |on| Box::pin(joulie::objects_are_found_by_node(on.client))),
    ("joulie::discovery_tells_short_names", |on| Box::pin(joulie::discovery_tells_short_names(on.client))),
];

/// The custom kind that the cases use.
pub fn definition() -> CustomResourceDefinition {
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

/// All definitions that the cases need: this one and those of Joulie.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut all = joulie_api::crd::all();
    all.push(definition());
    all
}

/// The API for the objects of that kind.
pub fn probes(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "conformance.joulie.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "conformance.joulie.io/v1".to_owned(),
        kind: "Probe".to_owned(),
        plural: "probes".to_owned(),
    };
    Api::all_with(client.clone(), &resource)
}

/// An object of that kind with the node's name and this specification.
pub fn probe(name: &str, spec: Value) -> DynamicObject {
    let mut object = json!({"apiVersion": "conformance.joulie.io/v1", "kind": "Probe", "metadata": {"name": name},
        "spec": {"nodeName": "n1"}});
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// Creates a namespace for one case. It is not deleted, because on a real server that takes time.
async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let body = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    match namespaces.create(&PostParams::default(), &body).await {
        Ok(_) => {}
        Err(error) => assert_eq!(status(error).reason, "AlreadyExists"),
    }
}

/// Deletes an object that an earlier run may have left.
async fn clear(objects: &Api<DynamicObject>, name: &str) {
    drop(objects.delete(name, &DeleteParams::default()).await);
}

/// The status in an error of the API.
#[track_caller]
fn status(error: Error) -> Status {
    match error {
        Error::Api(status) => *status,
        other => panic!("the server did not answer: {other}"),
    }
}

/// The status with which the server refused a request.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> Status {
    status(answer.expect_err("the server must refuse this"))
}

/// The fields that the causes of an error name.
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
