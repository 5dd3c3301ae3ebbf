//! The life of objects: create, get, update, delete, and refused requests.

use crate::{clear, fields, namespace, probe, probes, refused, version};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

pub(crate) async fn life(client: Client) {
    let api = probes(&client);
    clear(&api, "life").await;
    let made = api.create(&PostParams::default(), &probe("life", json!({"watts": 250}))).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    let twice = refused(api.create(&PostParams::default(), &probe("life", json!({}))).await);
    assert_eq!((twice.code, twice.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(twice.message, "probes.conformance.joulie.io \"life\" already exists");
    assert_eq!(api.get("life").await.unwrap(), made);

    let mut changed = made.clone();
    changed.data["spec"]["watts"] = json!(300);
    let changed = api.replace("life", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(changed.metadata.generation, Some(2));
    assert_ne!(version(&changed), version(&made));
    let same = api.replace("life", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(version(&same), version(&changed), "without a difference nothing is written");
    let mut labelled = changed.clone();
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let labelled = api.replace("life", &PostParams::default(), &labelled).await.unwrap();
    assert_eq!(labelled.metadata.generation, Some(2), "a label is no specification");

    let gone = api.delete("life", &DeleteParams::default()).await.unwrap().right().unwrap();
    let details = gone.details.unwrap();
    assert_eq!((details.name.as_str(), details.kind.as_str()), ("life", "probes"));
    assert_eq!(Some(details.uid), made.metadata.uid);
    let absent = refused(api.get("life").await);
    assert_eq!((absent.code, absent.reason.as_str()), (404, "NotFound"));
    assert_eq!(absent.message, "probes.conformance.joulie.io \"life\" not found");
    assert_eq!(refused(api.delete("life", &DeleteParams::default()).await).code, 404);
}

pub(crate) async fn names(client: Client) {
    let api = probes(&client);
    for wrong in ["Upper", "under_score", "-a", "a..b"] {
        let status = refused(api.create(&PostParams::default(), &probe(wrong, json!({}))).await);
        assert_eq!((status.code, fields(&status)), (422, vec!["metadata.name"]), "{wrong}");
    }
    let mut nameless = probe("x", json!({}));
    nameless.metadata.name = None;
    let status = refused(api.create(&PostParams::default(), &nameless).await);
    assert_eq!((status.code, fields(&status)), (422, vec!["metadata.name"]));
    nameless.metadata.generate_name = Some("gen-".to_owned());
    let named = api.create(&PostParams::default(), &nameless).await.unwrap();
    let name = named.metadata.name.unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let other = probe("other", json!({}));
    assert_eq!(refused(api.replace(&name, &PostParams::default(), &other).await).code, 400);
    api.delete(&name, &DeleteParams::default()).await.unwrap();

    let mut wrong = probe("labels", json!({}));
    wrong.metadata.labels = Some([("ok".to_owned(), "not ok".to_owned())].into());
    assert_eq!(fields(&refused(api.create(&PostParams::default(), &wrong).await)), ["metadata.labels"]);
    let leases: Api<Lease> = Api::namespaced(client, "no-such-namespace");
    let lease = serde_json::from_value(json!({"metadata": {"name": "l"}})).unwrap();
    assert_eq!(refused(leases.create(&PostParams::default(), &lease).await).code, 404);
}

pub(crate) async fn conflicts(client: Client) {
    let api = probes(&client);
    clear(&api, "conflicts").await;
    let made = api.create(&PostParams::default(), &probe("conflicts", json!({"watts": 1}))).await.unwrap();
    let mut mine = made.clone();
    mine.data["spec"]["watts"] = json!(2);
    let mut theirs = made.clone();
    theirs.data["spec"]["watts"] = json!(3);
    api.replace("conflicts", &PostParams::default(), &theirs).await.unwrap();
    let late = refused(api.replace("conflicts", &PostParams::default(), &mine).await);
    assert_eq!((late.code, late.reason.as_str()), (409, "Conflict"));
    assert!(
        late.message.contains("please apply your changes to the latest version and try again"),
        "{late:?}"
    );
    assert_eq!(api.get("conflicts").await.unwrap().data["spec"]["watts"], 3);

    mine.metadata.resource_version = None;
    let blind = refused(api.replace("conflicts", &PostParams::default(), &mine).await);
    assert_eq!((blind.code, fields(&blind)), (422, vec!["metadata.resourceVersion"]));
    mine.metadata.uid = Some("00000000-0000-0000-0000-00000000dead".to_owned());
    mine.metadata.resource_version = Some(version(&api.get("conflicts").await.unwrap()).to_owned());
    assert_eq!(refused(api.replace("conflicts", &PostParams::default(), &mine).await).code, 409);
    let stale = json!({"metadata": {"resourceVersion": version(&made)}, "spec": {"watts": 9}});
    let merge = Patch::Merge(&stale);
    assert_eq!(refused(api.patch("conflicts", &PatchParams::default(), &merge).await).code, 409);
    clear(&api, "conflicts").await;
}

pub(crate) async fn status_is_apart(client: Client) {
    let api = probes(&client);
    clear(&api, "apart").await;
    let mut body = probe("apart", json!({"watts": 1}));
    body.data["status"] = json!({"score": 1});
    let made = api.create(&PostParams::default(), &body).await.unwrap();
    assert_eq!(made.data["status"], Value::Null, "a creation says nothing about the status");

    let both = json!({"spec": {"watts": 7}, "status": {"score": 50}});
    let told = api.patch_status("apart", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
    assert_eq!((&told.data["spec"]["watts"], &told.data["status"]["score"]), (&json!(1), &json!(50)));
    assert_eq!(told.metadata.generation, Some(1), "a status is no specification");
    let labels = json!({"metadata": {"labels": {"a": "b"}}, "status": {"score": 51}});
    let told = api.patch_status("apart", &PatchParams::default(), &Patch::Merge(&labels)).await.unwrap();
    assert_eq!(told.metadata.labels, None, "through the status of a custom object nothing else changes");

    let both = json!({"spec": {"watts": 8}, "status": {"score": 99}});
    let told = api.patch("apart", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
    assert_eq!((&told.data["spec"]["watts"], &told.data["status"]["score"]), (&json!(8), &json!(51)));
    assert_eq!(told.metadata.generation, Some(2));
    clear(&api, "apart").await;
}

pub(crate) async fn finalizers_hold(client: Client) {
    let api = probes(&client);
    let mut body = probe("held", json!({}));
    body.metadata.finalizers = Some(vec!["joulie.io/release".to_owned()]);
    api.create(&PostParams::default(), &body).await.unwrap();
    let marked = api.delete("held", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert!(api.get("held").await.is_ok(), "it is there until the finalizer goes");
    let more = json!({"metadata": {"finalizers": ["joulie.io/release", "joulie.io/late"]}});
    let late = refused(api.patch("held", &PatchParams::default(), &Patch::Merge(&more)).await);
    assert_eq!(late.code, 422);
    // A real server reports it twice for a custom object.
    assert!(!fields(&late).is_empty() && fields(&late).iter().all(|field| *field == "metadata.finalizers"));
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("held", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert_eq!(refused(api.get("held").await).code, 404);
}

pub(crate) async fn preconditions(client: Client) {
    let api = probes(&client);
    clear(&api, "pre").await;
    let made = api.create(&PostParams::default(), &probe("pre", json!({}))).await.unwrap();
    let with = |uid: Option<String>, resource_version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version }),
        ..DeleteParams::default()
    };
    assert_eq!(refused(api.delete("pre", &with(Some("another".to_owned()), None)).await).code, 409);
    assert_eq!(refused(api.delete("pre", &with(None, Some("1".to_owned()))).await).code, 409);
    api.delete("pre", &with(made.metadata.uid, made.metadata.resource_version)).await.unwrap();
}

pub(crate) async fn leases(client: Client) {
    namespace(&client, "conf-leases").await;
    let api: Api<Lease> = Api::namespaced(client, "conf-leases");
    drop(api.delete("plan", &DeleteParams::default()).await);
    let body = json!({"metadata": {"name": "plan"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 30,
        "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let made = api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let mut mine = made.clone();
    mine.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
    api.replace("plan", &PostParams::default(), &mine).await.unwrap();
    let mut late = made;
    late.spec.as_mut().unwrap().holder_identity = Some("c".to_owned());
    assert_eq!(refused(api.replace("plan", &PostParams::default(), &late).await).code, 409);
    let holder = api.get("plan").await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some("b"), "one of two wins a lease");
}

pub(crate) async fn an_update_makes_a_lease(client: Client) {
    namespace(&client, "conf-leases").await;
    let api: Api<Lease> = Api::namespaced(client.clone(), "conf-leases");
    drop(api.delete("renewed", &DeleteParams::default()).await);
    let body = json!({"metadata": {"name": "renewed"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 30,
        "leaseTransitions": 7}});
    let lease: Lease = serde_json::from_value(body).unwrap();
    let made = api.create(&PostParams::default(), &lease).await.unwrap();
    api.delete("renewed", &DeleteParams::default()).await.unwrap();
    // A request with the UID of the deleted object is refused; one with only its version creates a new object.
    let gone = refused(api.replace("renewed", &PostParams::default(), &made).await);
    assert_eq!((gone.code, gone.reason.as_str()), (409, "Conflict"), "{gone:?}");
    let mut renewal = lease.clone();
    renewal.metadata.resource_version = made.metadata.resource_version.clone();
    let again = api.replace("renewed", &PostParams::default(), &renewal).await.unwrap();
    assert_ne!(again.metadata.uid, made.metadata.uid);
    assert_eq!(again.spec.unwrap().lease_transitions, Some(7));
    api.delete("renewed", &DeleteParams::default()).await.unwrap();
    let again = api.replace("renewed", &PostParams::default(), &lease).await.unwrap();
    assert_eq!(again.metadata.name.as_deref(), Some("renewed"));
    // For other kinds an update does not create an object.
    let nodes: Api<Node> = Api::all(client);
    let node = serde_json::from_value(json!({"metadata": {"name": "no-such-node"}})).unwrap();
    assert_eq!(refused(nodes.replace("no-such-node", &PostParams::default(), &node).await).code, 404);
    api.delete("renewed", &DeleteParams::default()).await.unwrap();
}

pub(crate) async fn events_in_both_groups(client: Client) {
    use k8s_openapi::api::events::v1::Event as NewEvent;
    namespace(&client, "conf-events").await;
    let new: Api<NewEvent> = Api::namespaced(client.clone(), "conf-events");
    let old: Api<Event> = Api::namespaced(client, "conf-events");
    drop(old.delete("e1", &DeleteParams::default()).await);
    let body = json!({"metadata": {"name": "e1", "namespace": "conf-events"}, "action": "Capping", "reason": "Capped",
        "type": "Normal", "note": "capped at 250 W", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "joulie.io/operator", "reportingInstance": "op-1",
        "regarding": {"kind": "ConfigMap", "name": "n1", "namespace": "conf-events", "apiVersion": "v1"}});
    let body = serde_json::from_value(body).unwrap();
    let made = new.create(&PostParams::default(), &body).await.unwrap();
    assert_eq!(made.note.as_deref(), Some("capped at 250 W"));
    let seen = old.get("e1").await.unwrap();
    assert_eq!(seen.message.as_deref(), Some("capped at 250 W"));
    assert_eq!(seen.involved_object.name.as_deref(), Some("n1"));
    let about =
        kube::api::ListParams::default().fields("involvedObject.name=n1,involvedObject.kind=ConfigMap");
    assert_eq!(old.list(&about).await.unwrap().items.len(), 1);
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
    let again = new.patch("e1", &PatchParams::default(), &Patch::Merge(&series)).await.unwrap();
    assert_eq!(again.series.unwrap().count, 2);
    assert_eq!(again.regarding.unwrap().name.as_deref(), Some("n1"));
}

pub(crate) async fn dry_run(client: Client) {
    let api = probes(&client);
    clear(&api, "dry").await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry, &probe("dry", json!({}))).await.unwrap();
    assert_eq!(refused(api.get("dry").await).code, 404);
    let nodes: Api<Node> = Api::all(client);
    let absent = DeleteParams { dry_run: true, ..DeleteParams::default() };
    assert_eq!(refused(nodes.delete("no-such-node", &absent).await).code, 404);
}
