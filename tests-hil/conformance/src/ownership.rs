//! A twin and its three owners: the operator, the agent, and a person.

use crate::examples::api_of;
use crate::{clear, fields, owned, refused};
use joulie_api::labels::manager::{AGENT, OPERATOR};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

const KIND: &str = "NodeTwin";

fn twin(name: &str, part: &str, value: Value) -> Value {
    let mut twin = json!({"apiVersion": "joulie.io/v1alpha1", "kind": KIND, "metadata": {"name": name}});
    twin[part] = value;
    twin
}

fn spec(cap: Option<u32>) -> Value {
    let mut spec = json!({"nodeName": "node-a", "profile": "eco"});
    if let Some(cap) = cap {
        spec["cpu"] = json!({"packagePowerCapPctOfMax": cap});
    }
    spec
}

async fn apply(
    api: &Api<DynamicObject>,
    manager: &str,
    force: bool,
    twin: &Value,
) -> Result<DynamicObject, kube::Error> {
    let mut parameters = PatchParams::apply(manager);
    parameters.force = force;
    let name = twin["metadata"]["name"].as_str().unwrap();
    api.patch(name, &parameters, &Patch::Apply(twin)).await
}

pub(crate) async fn of_spec_and_status(client: Client) {
    let api = api_of(&client, KIND, "");
    clear(&api, "owned").await;
    apply(&api, OPERATOR, false, &twin("owned", "spec", spec(Some(60)))).await.unwrap();
    let status = twin("owned", "status", json!({"schedulableClass": "eco"}));
    let told = api.patch_status("owned", &PatchParams::apply(AGENT), &Patch::Apply(&status)).await.unwrap();
    assert_eq!(told.data["status"]["schedulableClass"], "eco");
    let all =
        json!({"f:spec": {"f:nodeName": {}, "f:profile": {}, "f:cpu": {"f:packagePowerCapPctOfMax": {}}}});
    assert_eq!(owned(&told, OPERATOR, "Apply", None), all);
    let own = json!({"f:status": {"f:schedulableClass": {}}});
    assert_eq!(owned(&told, AGENT, "Apply", Some("status")), own);

    let cap = twin("owned", "spec", spec(Some(80)));
    let status = refused(apply(&api, AGENT, false, &cap).await);
    assert_eq!((status.code, fields(&status)), (409, vec![".spec.cpu.packagePowerCapPctOfMax"]));
    assert!(status.message.contains("conflict with \"joulie-operator\""), "{}", status.message);
    let forced = apply(&api, AGENT, true, &cap).await.unwrap();
    assert_eq!(forced.data["spec"]["cpu"]["packagePowerCapPctOfMax"], 80);
    // A field that was taken by force is not taken back without force.
    let back = refused(apply(&api, OPERATOR, false, &twin("owned", "spec", spec(Some(60)))).await);
    assert!(back.message.contains("conflict with \"joulie-agent\""), "{}", back.message);
    clear(&api, "owned").await;
}

pub(crate) async fn a_person_keeps_a_field(client: Client) {
    let api = api_of(&client, KIND, "");
    clear(&api, "kept").await;
    apply(&api, OPERATOR, false, &twin("kept", "spec", spec(None))).await.unwrap();
    let edit = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    let by_hand = json!({"spec": {"cpu": {"packagePowerCapPctOfMax": 50}}});
    api.patch("kept", &edit, &Patch::Merge(&by_hand)).await.unwrap();

    let status = refused(apply(&api, OPERATOR, false, &twin("kept", "spec", spec(Some(60)))).await);
    assert_eq!((status.code, fields(&status)), (409, vec![".spec.cpu.packagePowerCapPctOfMax"]));
    assert!(status.message.contains("conflict with \"kubectl-edit\""), "{}", status.message);
    let still = apply(&api, OPERATOR, false, &twin("kept", "spec", spec(None))).await.unwrap();
    assert_eq!(
        still.data["spec"]["cpu"]["packagePowerCapPctOfMax"], 50,
        "what nobody applies stays the person's"
    );
    clear(&api, "kept").await;
}
