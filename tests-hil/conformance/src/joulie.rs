//! Joulie's own kinds: what is accepted, what is refused with which message, and how objects are shown and found.

use crate::examples::{api_of, bad, definition_of, good, kind, normal, through_the_type};
use crate::{clear, namespace, refused};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::Status;
use serde_json::{Value, json};

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The API for an object, with its namespace created and any object of its name deleted.
async fn place(client: &Client, object: &Value) -> Api<DynamicObject> {
    let space = object["metadata"]["namespace"].as_str().unwrap_or("default");
    namespace(client, space).await;
    let api = api_of(client, kind(object), space);
    clear(&api, name(object)).await;
    api
}

/// Creates an object, and writes its status in a second request, as its owner does.
async fn write(api: &Api<DynamicObject>, object: &Value) -> Result<DynamicObject, kube::Error> {
    let body: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let mut made = api.create(&PostParams::default(), &body).await?;
    assert_eq!(made.data["status"], Value::Null, "a creation says nothing about the status");
    if object["status"].is_null() {
        return Ok(made);
    }
    made.data["status"] = object["status"].clone();
    api.replace_status(name(object), &PostParams::default(), &made).await
}

pub(crate) async fn good_examples_are_kept(client: Client) {
    for (example, object) in good() {
        let api = place(&client, &object).await;
        write(&api, &object).await.unwrap_or_else(|error| panic!("{example} is refused: {error}"));
        let back = serde_json::to_value(api.get(name(&object)).await.unwrap()).unwrap();
        let (read, meant) = (through_the_type(back.clone()), through_the_type(object.clone()));
        for part in ["spec", "status"] {
            assert_eq!(normal(&read[part]), normal(&meant[part]), "{example}: {part} as the types read it");
            assert_eq!(normal(&back[part]), normal(&object[part]), "{example}: {part} as it is stored");
        }
        clear(&api, name(&object)).await;
    }
}

/// The server's error for an invalid object; `None` if it accepts the object.
async fn judged(client: &Client, old: Option<&Value>, object: &Value) -> Option<Status> {
    let api = place(client, object).await;
    let answer = match old {
        None => write(&api, object).await,
        Some(old) => {
            let mut there = write(&api, old).await.unwrap();
            there.data["spec"] = object["spec"].clone();
            api.replace(name(object), &PostParams::default(), &there).await
        }
    };
    clear(&api, name(object)).await;
    answer.err().map(crate::status)
}

pub(crate) async fn rules_refuse_in_their_words(client: Client) {
    let (mut taken, all) = (Vec::new(), bad());
    for (example, bad) in &all {
        let Some(status) = judged(&client, bad.old.as_ref(), &bad.object).await else {
            taken.push(example.as_str());
            continue;
        };
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{example}: {status:?}");
        let causes = status.details.unwrap().causes;
        let told: Vec<_> =
            causes.iter().map(|cause| (cause.field.as_str(), cause.message.as_str())).collect();
        let [(field, message)] = told[..] else { panic!("{example}: {told:?}") };
        assert_eq!(field, bad.field, "{example}: {told:?}");
        assert!(message.ends_with(&format!(": {}", bad.message)), "{example}: {told:?}");
    }
    assert!(taken.is_empty(), "{} of {} are taken: {}", taken.len(), all.len(), taken.join(", "));
}

fn object(kind: &str, spec: Value) -> Value {
    let group = definition_of(kind).spec.group;
    json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": {"name": "conf"}, "spec": spec})
}

pub(crate) async fn schemas_refuse(client: Client) {
    let capped = |cap: Value| json!({"nodeName": "a", "profile": "eco", "cpu": cap});
    let wrong = [
        (json!({"nodeName": "a", "profile": "turbo"}), "spec.profile", "Unsupported value: \"turbo\""),
        (json!({"nodeName": "", "profile": "eco"}), "spec.nodeName", "should be at least 1 chars long"),
        (json!({"profile": "eco"}), "spec.nodeName", "Required value"),
        (
            capped(json!({"packagePowerCapWatts": 0.5})),
            "spec.cpu.packagePowerCapWatts",
            "should be greater than or equal to 1",
        ),
        (
            capped(json!({"packagePowerCapPctOfMax": 0})),
            "spec.cpu.packagePowerCapPctOfMax",
            "should be greater than 0",
        ),
        (
            capped(json!({"packagePowerCapPctOfMax": 100.5})),
            "spec.cpu.packagePowerCapPctOfMax",
            "should be less than or equal to 100",
        ),
        (
            capped(json!({"packagePowerCapWatts": "250"})),
            "spec.cpu.packagePowerCapWatts",
            "must be of type number: \"string\"",
        ),
    ];
    for kind in ["NodeTwin", "NodePowerProfile"] {
        for (spec, field, told) in &wrong {
            let status = judged(&client, None, &object(kind, spec.clone())).await;
            let status = status.unwrap_or_else(|| panic!("{kind} {spec} is taken"));
            let causes = status.details.unwrap().causes;
            assert_eq!((status.code, causes[0].field.as_str()), (422, *field), "{kind} {spec}");
            assert!(causes[0].message.contains(told), "{kind} {spec}: {}", causes[0].message);
        }
    }
}

pub(crate) async fn nulls_and_strangers_go(client: Client) {
    let spec = json!({"nodeName": "a", "profile": "eco", "stranger": 1, "gpu": null,
        "cpu": {"packagePowerCapWatts": null, "packagePowerCapPctOfMax": 60, "stranger": {"deep": true}}});
    let twin = object("NodeTwin", spec);
    let api = place(&client, &twin).await;
    let body: DynamicObject = serde_json::from_value(twin.clone()).unwrap();
    let made = api.create(&PostParams::default(), &body).await.unwrap();
    let kept = json!({"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 60}});
    assert_eq!(made.data["spec"], kept, "a null says nothing");
    assert_eq!(normal(&through_the_type(serde_json::to_value(&made).unwrap())["spec"]), normal(&kept));
    let strict =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::default() };
    let status = refused(api.patch("conf", &strict, &Patch::Merge(&twin)).await);
    for field in ["spec.stranger", "spec.cpu.stranger"] {
        assert!(status.message.contains(&format!("unknown field \"{field}\"")), "{}", status.message);
    }
    clear(&api, "conf").await;
}

/// The table of a collection, and the names of its columns.
async fn table(client: &Client, path: &str) -> (Value, Vec<String>) {
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let columns = columns.iter().map(|column| column["name"].as_str().unwrap().to_owned()).collect();
    (table, columns)
}

pub(crate) async fn tables_have_the_columns(client: Client) {
    for definition in joulie_api::crd::all() {
        let spec = definition.spec;
        let path = format!("/apis/{}/{}/{}", spec.group, spec.versions[0].name, spec.names.plural);
        let printed = spec.versions[0].additional_printer_columns.iter().flatten();
        let expected: Vec<_> =
            std::iter::once("Name".to_owned()).chain(printed.map(|column| column.name.clone())).collect();
        assert_eq!(table(&client, &path).await.1, expected, "{path}");
    }
    let mut twin = object(
        "NodeTwin",
        json!({"nodeName": "node-t", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 62.5},
            "gpu": {"powerCap": {"scope": "perGpu", "capPctOfMax": 60}}, "scheduling": {"draining": true}}),
    );
    twin["status"] = json!({"powerMeasurement": {"measuredNodePowerW": 310.5, "nodeCappedPowerW": 438},
        "conditions": [said("TelemetryFresh", "True", "Sampled"), said("WithinBudget", "False", "BudgetShort")]});
    let expected = json!({"Name": "conf", "Node": "node-t", "Profile": "eco", "Class": null, "PowerHeadroom": null,
        "CoolingStress": null, "PSUStress": null, "Power-W": 310.5, "Cap-W": 438, "CPU-Cap": 62.5, "GPU-Cap": 60,
        "WithinBudget": "False", "Draining": true});
    assert_eq!(shown(&client, &twin, "nodetwins").await, expected);
    let mut profile = object(
        "NodePowerProfile",
        json!({"nodeName": "node-t", "profile": "eco", "cpu": {"packagePowerCapWatts": 120},
            "gpu": {"powerCap": {"scope": "perGpu", "capPctOfMax": 60}}}),
    );
    profile["status"] = json!({"control": {"cpu": {"capWatts": 150.5}, "gpu": {"capWatts": 420}},
        "conditions": [said("Overridden", "False", "Ours"), said("CapEnforced", "False", "Clamped")]});
    let mut found = shown(&client, &profile, "nodepowerprofiles").await;
    assert!(found["Age"].is_string(), "{found}");
    found["Age"] = json!(null);
    let expected = json!({"Name": "conf", "Node": "node-t", "Profile": "eco", "CPU-Watts": 120, "CPU-Pct": null,
        "GPU-Watts": null, "GPU-Pct": 60, "Enforced": "False", "Reason": "Clamped", "CPU-InForce": 150.5,
        "GPU-InForce": 420, "Age": null});
    assert_eq!(found, expected);
}

fn said(about: &str, status: &str, reason: &str) -> Value {
    json!({"type": about, "status": status, "reason": reason})
}

/// The columns that `kubectl get` shows of an object.
async fn shown(client: &Client, object: &Value, plural: &str) -> Value {
    let api = place(client, object).await;
    write(&api, object).await.unwrap();
    let path = format!("/apis/joulie.io/v1alpha1/{plural}?fieldSelector=metadata.name%3D{}", name(object));
    let (table, columns) = table(client, &path).await;
    clear(&api, name(object)).await;
    let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    columns.into_iter().zip(cells).collect::<serde_json::Map<_, _>>().into()
}

pub(crate) async fn objects_are_found_by_node(client: Client) {
    let mut asked = 0;
    for (example, object) in good() {
        let spec = definition_of(kind(&object)).spec;
        // A PowerBudget is of no node.
        let Some(fields) = spec.versions[0].selectable_fields.clone() else { continue };
        // Other fields than the name of a node are the same in objects of other tests.
        let of_nodes = fields.iter().map(|field| field.json_path.trim_start_matches('.'));
        for field in of_nodes.filter(|field| field.ends_with("odeName")) {
            let pointer = format!("/{}", field.replace('.', "/"));
            let Some(node) = object.pointer(&pointer).and_then(Value::as_str) else { continue };
            let api = place(&client, &object).await;
            write(&api, &object).await.unwrap();
            let found = |node: &str| ListParams::default().fields(&format!("{field}={node}"));
            let there = api.list(&found(node)).await.unwrap().items;
            assert_eq!(there.len(), 1, "{example} by {field}");
            assert_eq!(api.list(&found("elsewhere")).await.unwrap().items.len(), 0, "{example} by {field}");
            clear(&api, name(&object)).await;
            asked += 1;
        }
    }
    assert!(asked >= 6, "only {asked} objects were asked for");
}

pub(crate) async fn discovery_tells_short_names(client: Client) {
    for definition in joulie_api::crd::all() {
        let (spec, group) = (&definition.spec, &definition.spec.group);
        let told = client.list_api_group_resources(&format!("{group}/v1alpha1")).await.unwrap().resources;
        let named = |name: &str| told.iter().find(|resource| resource.name == name);
        let kind = named(&spec.names.plural).unwrap();
        assert_eq!(kind.short_names, spec.names.short_names, "{}", kind.kind);
        assert_eq!(kind.categories, spec.names.categories, "{}", kind.kind);
        assert_eq!(kind.namespaced, spec.scope == "Namespaced", "{}", kind.kind);
        assert!(named(&format!("{}/status", spec.names.plural)).is_some(), "{} has a status", kind.kind);
    }
}
