//! Structural schemas: validation, defaults and pruning.

use crate::{clear, fields, probe, probes, refused};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams, ValidationDirective};
use serde_json::{Value, json};

pub(crate) async fn invalid_is_refused(client: Client) {
    let api = probes(&client);
    let wrong = [
        (json!({"profile": "turbo"}), "spec.profile", "Unsupported value: \"turbo\": supported values: "),
        (json!({"watts": 0}), "spec.watts", "should be greater than or equal to 1"),
        (json!({"watts": "many"}), "spec.watts", "must be of type number: \"string\""),
        (json!({"percent": 0}), "spec.percent", "should be greater than 0"),
        (json!({"percent": 100.5}), "spec.percent", "should be less than or equal to 100"),
        (json!({"weight": 1.5}), "spec.weight", "must be of type integer: \"number\""),
        (json!({"rack": "x1"}), "spec.rack", "should match '^r[0-9]+$'"),
        (json!({"rack": "r12345"}), "spec.rack", "Too long"),
        (json!({"order": ["a", "b", "c", "d"]}), "spec.order", "must have at most 3 items"),
        (json!({"tags": ["a", "a"]}), "spec.tags[1]", "Duplicate value: \"a\""),
        (json!({"zones": [{"name": "z"}, {"name": "z"}]}), "spec.zones[1]", "Duplicate value"),
        (json!({"zones": [{"watts": 1}]}), "spec.zones[0].name", "Required value"),
        (json!({"nodeName": ""}), "spec.nodeName", "should be at least 1 chars long"),
        (json!({"cpu": []}), "spec.cpu", "must be of type object: \"array\""),
    ];
    for (spec, field, told) in wrong {
        let status = refused(api.create(&PostParams::default(), &probe("invalid", spec.clone())).await);
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{spec}");
        // For a fraction in place of an integer a real server adds a cause without a field.
        let named: Vec<_> = fields(&status).into_iter().filter(|field| *field != "<nil>").collect();
        assert_eq!(named, [field], "{spec}: {status:?}");
        assert!(status.message.contains(told), "{spec}: {}", status.message);
        assert!(
            status.message.starts_with("Probe.conformance.joulie.io \"invalid\" is invalid: "),
            "{status:?}"
        );
    }
    let mut bare = probe("invalid", json!({}));
    bare.data["spec"] = json!({});
    let status = refused(api.create(&PostParams::default(), &bare).await);
    assert_eq!(fields(&status), ["spec.nodeName"]);
    assert_eq!(
        status.message,
        "Probe.conformance.joulie.io \"invalid\" is invalid: spec.nodeName: Required value"
    );
}

pub(crate) async fn defaults_and_pruning(client: Client) {
    let api = probes(&client);
    clear(&api, "pruned").await;
    let spec = json!({
        "unknown": 1, "cpu": {"cap": 3, "unknown": 2}, "free": {"anything": {"goes": 1}}, "limit": "50%",
        "zones": [{"name": "z", "unknown": 3}], "percent": 33.5,
    });
    let made = api.create(&PostParams::default(), &probe("pruned", spec)).await.unwrap();
    let expected = json!({
        "nodeName": "n1", "weight": 5, "cpu": {"cap": 3, "mode": "auto"}, "free": {"anything": {"goes": 1}},
        "limit": "50%", "zones": [{"name": "z"}], "percent": 33.5,
    });
    assert_eq!(made.data["spec"], expected);
    let merge = json!({"spec": {"limit": 3, "weight": null, "cpu": null}});
    let merged = api.patch("pruned", &PatchParams::default(), &Patch::Merge(&merge)).await.unwrap();
    assert_eq!(merged.data["spec"]["limit"], 3);
    assert_eq!(merged.data["spec"]["weight"], 5, "what is taken away is filled in again");
    assert_eq!(merged.data["spec"]["cpu"], Value::Null, "a default does not make the object around it");
    clear(&api, "pruned").await;
}

pub(crate) async fn strictness(client: Client) {
    let api = probes(&client);
    clear(&api, "strict").await;
    api.create(&PostParams::default(), &probe("strict", json!({}))).await.unwrap();
    let strict =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::default() };
    let merge = json!({"spec": {"wats": 3}});
    let status = refused(api.patch("strict", &strict, &Patch::Merge(&merge)).await);
    assert!(status.message.contains("unknown field \"spec.wats\""), "{status:?}");
    let lax = PatchParams { field_validation: Some(ValidationDirective::Ignore), ..PatchParams::default() };
    api.patch("strict", &lax, &Patch::Merge(&merge)).await.unwrap();
    clear(&api, "strict").await;
}
