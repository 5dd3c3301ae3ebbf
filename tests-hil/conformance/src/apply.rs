//! Server-side apply: ownership of fields and its effects.

use crate::{clear, fields, owned, probe, probes, refused, version};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Applies a specification, plus the node's name, which is required.
async fn apply(
    api: &Api<DynamicObject>,
    name: &str,
    manager: &str,
    force: bool,
    spec: Value,
) -> Result<DynamicObject, kube::Error> {
    let mut parameters = PatchParams::apply(manager);
    parameters.force = force;
    api.patch(name, &parameters, &Patch::Apply(&probe(name, spec))).await
}

pub(crate) async fn a_dropped_field_goes(client: Client) {
    let api = probes(&client);
    clear(&api, "dropped").await;
    let made =
        apply(&api, "dropped", "op", false, json!({"watts": 250, "cpu": {"cap": 1}, "profile": "eco"})).await;
    let made = made.unwrap();
    let expected =
        json!({"f:spec": {"f:nodeName": {}, "f:watts": {}, "f:profile": {}, "f:cpu": {"f:cap": {}}}});
    assert_eq!(owned(&made, "op", "Apply", None), expected);
    assert_eq!(made.metadata.generation, Some(1));
    let next = apply(&api, "dropped", "op", false, json!({"profile": "eco"})).await.unwrap();
    assert_eq!(next.data["spec"]["watts"], Value::Null);
    assert_eq!(next.data["spec"]["profile"], "eco");
    assert_eq!(next.data["spec"]["weight"], 5, "what the server filled in is nobody's to drop");
    assert_eq!(next.data["spec"]["cpu"]["cap"], Value::Null);
    assert_eq!(next.metadata.generation, Some(2));
    clear(&api, "dropped").await;
}

pub(crate) async fn a_foreign_field_is_refused(client: Client) {
    let api = probes(&client);
    clear(&api, "foreign").await;
    apply(&api, "foreign", "person", false, json!({"watts": 250, "profile": "eco"})).await.unwrap();
    let status = refused(apply(&api, "foreign", "op", false, json!({"watts": 300})).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"person\": .spec.watts");
    assert_eq!(fields(&status), [".spec.watts"]);
    let cause = &status.details.as_ref().unwrap().causes[0];
    assert_eq!(
        (cause.reason.as_str(), cause.message.as_str()),
        ("FieldManagerConflict", "conflict with \"person\"")
    );

    let two =
        refused(apply(&api, "foreign", "op", false, json!({"watts": 300, "profile": "performance"})).await);
    assert_eq!(
        two.message,
        "Apply failed with 2 conflicts: conflicts with \"person\":\n- .spec.profile\n- .spec.watts"
    );
    let forced = apply(&api, "foreign", "op", true, json!({"watts": 300})).await.unwrap();
    assert_eq!(forced.data["spec"]["watts"], 300);
    assert_eq!(
        owned(&forced, "person", "Apply", None),
        json!({"f:spec": {"f:nodeName": {}, "f:profile": {}}})
    );
    // The person applies without the field, which another manager owns, so the field stays.
    let still = apply(&api, "foreign", "person", false, json!({"profile": "eco"})).await.unwrap();
    assert_eq!(still.data["spec"]["watts"], 300);
    clear(&api, "foreign").await;
}

pub(crate) async fn two_may_own_the_same(client: Client) {
    let api = probes(&client);
    clear(&api, "shared").await;
    apply(&api, "shared", "a", false, json!({"watts": 250})).await.unwrap();
    let both = apply(&api, "shared", "b", false, json!({"watts": 250})).await.unwrap();
    for manager in ["a", "b"] {
        let expected = json!({"f:spec": {"f:nodeName": {}, "f:watts": {}}});
        assert_eq!(owned(&both, manager, "Apply", None), expected);
    }
    let status = refused(apply(&api, "shared", "a", false, json!({"watts": 260})).await);
    assert_eq!(fields(&status), [".spec.watts"], "neither changes it alone");
    let one = apply(&api, "shared", "a", false, json!({})).await.unwrap();
    assert_eq!(one.data["spec"]["watts"], 250, "the other still wants it");
    let none = apply(&api, "shared", "b", false, json!({})).await.unwrap();
    assert_eq!(none.data["spec"]["watts"], Value::Null, "now nobody does");
    clear(&api, "shared").await;
}

pub(crate) async fn lists_merge_by_key(client: Client) {
    let api = probes(&client);
    clear(&api, "lists").await;
    let a = json!({"tags": ["x", "y"], "zones": [{"name": "z1", "watts": 1}], "order": ["1"]});
    apply(&api, "lists", "a", false, a).await.unwrap();
    let b = json!({"tags": ["y", "z"], "zones": [{"name": "z1", "note": "b"}, {"name": "z2", "watts": 2}]});
    let both = apply(&api, "lists", "b", false, b).await.unwrap();
    assert_eq!(both.data["spec"]["tags"], json!(["x", "y", "z"]));
    let zones = json!([{"name": "z1", "watts": 1, "note": "b"}, {"name": "z2", "watts": 2}]);
    assert_eq!(both.data["spec"]["zones"], zones);
    let expected = json!({"f:spec": {
        "f:nodeName": {}, "f:tags": {"v:\"y\"": {}, "v:\"z\"": {}},
        "f:zones": {
            "k:{\"name\":\"z1\"}": {".": {}, "f:name": {}, "f:note": {}},
            "k:{\"name\":\"z2\"}": {".": {}, "f:name": {}, "f:watts": {}},
        },
    }});
    assert_eq!(owned(&both, "b", "Apply", None), expected);
    let status = refused(apply(&api, "lists", "b", false, json!({"order": ["2"]})).await);
    assert_eq!(fields(&status), [".spec.order"], "a plain list is one value");
    let status =
        refused(apply(&api, "lists", "b", false, json!({"zones": [{"name": "z1", "watts": 5}]})).await);
    assert_eq!(fields(&status), [".spec.zones[name=\"z1\"].watts"]);
    let less = apply(&api, "lists", "b", false, json!({})).await.unwrap();
    assert_eq!(less.data["spec"]["tags"], json!(["x", "y"]));
    assert_eq!(less.data["spec"]["zones"], json!([{"name": "z1", "watts": 1}]));
    let last = apply(&api, "lists", "a", false, json!({})).await.unwrap();
    assert_eq!(last.data["spec"].get("zones"), None);
    assert_eq!(last.data["spec"].get("tags"), None);
    clear(&api, "lists").await;
}

pub(crate) async fn status_has_owners_of_its_own(client: Client) {
    let api = probes(&client);
    clear(&api, "owners").await;
    apply(&api, "owners", "op", false, json!({"watts": 1})).await.unwrap();
    let condition = |name: &str, status: &str| {
        json!({"apiVersion": "conformance.joulie.io/v1", "kind": "Probe", "metadata": {"name": "owners"},
            "status": {"conditions": [{"type": name, "status": status}]}})
    };
    let tell = async |manager: &str, body: Value| {
        api.patch_status("owners", &PatchParams::apply(manager), &Patch::Apply(&body)).await
    };
    tell("op", condition("Planned", "True")).await.unwrap();
    let two = tell("agent", condition("Applied", "False")).await.unwrap();
    let expected = json!([{"type": "Planned", "status": "True"}, {"type": "Applied", "status": "False"}]);
    assert_eq!(two.data["status"]["conditions"], expected);
    assert_eq!(two.metadata.generation, Some(1));
    let own = json!({"f:status": {"f:conditions": {"k:{\"type\":\"Applied\"}": {".": {}, "f:type": {}, "f:status": {}}}}});
    assert_eq!(owned(&two, "agent", "Apply", Some("status")), own);
    assert_eq!(owned(&two, "op", "Apply", None), json!({"f:spec": {"f:nodeName": {}, "f:watts": {}}}));
    let status = refused(tell("agent", condition("Planned", "False")).await);
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"op\" with subresource \"status\": \
         .status.conditions[type=\"Planned\"].status"
    );
    let mut empty = condition("x", "True");
    empty["status"] = json!({});
    let one = tell("agent", empty).await.unwrap();
    assert_eq!(one.data["status"]["conditions"], json!([{"type": "Planned", "status": "True"}]));
    // An apply of the specification does not mention the status, so the status keeps its fields.
    let spec = apply(&api, "owners", "op", false, json!({"watts": 2})).await.unwrap();
    assert_eq!(spec.data["status"]["conditions"], json!([{"type": "Planned", "status": "True"}]));
    clear(&api, "owners").await;
}

pub(crate) async fn an_update_takes_ownership(client: Client) {
    let api = probes(&client);
    clear(&api, "updated").await;
    apply(&api, "updated", "op", false, json!({"watts": 250, "profile": "eco"})).await.unwrap();
    let by = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    let edit = json!({"spec": {"watts": 100}});
    let edited = api.patch("updated", &by, &Patch::Merge(&edit)).await.unwrap();
    assert_eq!(owned(&edited, "kubectl-edit", "Update", None), json!({"f:spec": {"f:watts": {}}}));
    assert_eq!(owned(&edited, "op", "Apply", None), json!({"f:spec": {"f:nodeName": {}, "f:profile": {}}}));
    let status = refused(apply(&api, "updated", "op", false, json!({"watts": 250, "profile": "eco"})).await);
    let told = "Apply failed with 1 conflict: conflict with \"kubectl-edit\" using conformance.joulie.io/v1";
    assert!(status.message.starts_with(told), "{}", status.message);
    // After an update removes the field nobody owns it.
    let gone = json!({"spec": {"watts": null}});
    let gone = api.patch("updated", &by, &Patch::Merge(&gone)).await.unwrap();
    assert_eq!(owned(&gone, "kubectl-edit", "Update", None), Value::Null);
    apply(&api, "updated", "op", false, json!({"watts": 250, "profile": "eco"})).await.unwrap();
    let mut plain = api.get("updated").await.unwrap();
    plain.metadata.managed_fields = None;
    plain.data["spec"]["profile"] = json!("performance");
    let by = PostParams { field_manager: Some("tool".to_owned()), ..PostParams::default() };
    let kept = api.replace("updated", &by, &plain).await.unwrap();
    let own = json!({"f:spec": {"f:nodeName": {}, "f:watts": {}}});
    assert_eq!(owned(&kept, "op", "Apply", None), own, "who sends no owners keeps them");
    clear(&api, "updated").await;
}

pub(crate) async fn the_same_again_writes_nothing(client: Client) {
    let api = probes(&client);
    clear(&api, "again").await;
    let first = apply(&api, "again", "op", false, json!({"watts": 250})).await.unwrap();
    let again = apply(&api, "again", "op", false, json!({"watts": 250})).await.unwrap();
    assert_eq!(version(&again), version(&first));
    let bare = probe("again", json!({}));
    let nobody = refused(api.patch("again", &PatchParams::default(), &Patch::Apply(&bare)).await);
    assert!(matches!(nobody.code, 400 | 422), "an apply needs a manager: {nobody:?}");
    let mut owned = probe("again", json!({}));
    owned.metadata.managed_fields = first.metadata.managed_fields.clone();
    let status = refused(api.patch("again", &PatchParams::apply("op"), &Patch::Apply(&owned)).await);
    assert_eq!((status.code, status.message.as_str()), (400, "metadata.managedFields must be nil"));
    clear(&api, "again").await;
}
