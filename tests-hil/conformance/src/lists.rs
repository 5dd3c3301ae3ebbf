//! Lists: selectors, pages, and deleting by selection.

use crate::{probe, probes, refused};
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

const OWN: &str = "conformance=lists";

/// Objects with a label for this case and one label each of their own.
async fn make(client: &Client, names: &[&str], case: &str) {
    let api = probes(client);
    for (index, name) in names.iter().enumerate() {
        let mut body = probe(name, json!({"nodeName": format!("node-{index}")}));
        let labels = [("conformance", case), ("name", *name)];
        body.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        api.create(&PostParams::default(), &body).await.unwrap();
    }
}

pub(crate) async fn selectors(client: Client) {
    let api = probes(&client);
    drop(api.delete_collection(&DeleteParams::default(), &ListParams::default().labels(OWN)).await);
    make(&client, &["sel-a", "sel-b", "sel-c"], "lists").await;
    let named = async |labels: &str, fields: &str| {
        let own = if labels.is_empty() { OWN.to_owned() } else { format!("{OWN},{labels}") };
        let mut parameters = ListParams::default().labels(&own);
        if !fields.is_empty() {
            parameters = parameters.fields(fields);
        }
        let found = api.list(&parameters).await.unwrap();
        found.items.into_iter().map(|object| object.metadata.name.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(named("", "").await, ["sel-a", "sel-b", "sel-c"]);
    assert_eq!(named("name=sel-a", "").await, ["sel-a"]);
    assert_eq!(named("name!=sel-a", "").await, ["sel-b", "sel-c"]);
    assert_eq!(named("name in (sel-a,sel-c)", "").await, ["sel-a", "sel-c"]);
    assert_eq!(named("name notin (sel-a,sel-c)", "").await, ["sel-b"]);
    assert_eq!(named("!name", "").await, [""; 0]);
    assert_eq!(named("other notin (x)", "").await, ["sel-a", "sel-b", "sel-c"]);
    assert_eq!(named("", "metadata.name=sel-b").await, ["sel-b"]);
    assert_eq!(named("", "spec.nodeName=node-2").await, ["sel-c"]);
    assert_eq!(named("", "spec.nodeName!=node-2").await, ["sel-a", "sel-b"]);
    let unknown = refused(api.list(&ListParams::default().fields("spec.watts=1")).await);
    assert_eq!(unknown.code, 400);
    assert!(unknown.message.contains("field label not supported: spec.watts"), "{unknown:?}");
    assert_eq!(refused(api.list(&ListParams::default().labels("a in b")).await).code, 400);
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels(OWN)).await.unwrap();
}

pub(crate) async fn pages_show_one_moment(client: Client) {
    let api = probes(&client);
    let own = ListParams::default().labels("conformance=pages");
    drop(api.delete_collection(&DeleteParams::default(), &own).await);
    make(&client, &["page-a", "page-b", "page-c", "page-d"], "pages").await;
    let names = |list: &kube::core::ObjectList<kube::api::DynamicObject>| {
        list.items.iter().map(|object| object.metadata.name.clone().unwrap()).collect::<Vec<_>>()
    };
    let first = api.list(&own.clone().limit(2)).await.unwrap();
    assert_eq!(names(&first), ["page-a", "page-b"]);
    // Changes between two pages must not appear in the list.
    api.delete("page-c", &DeleteParams::default()).await.unwrap();
    make(&client, &["page-cc"], "pages").await;
    let token = first.metadata.continue_.clone().unwrap();
    let second = api.list(&own.clone().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!(names(&second), ["page-c", "page-d"]);
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(second.metadata.continue_.unwrap_or_default(), "");
    assert_eq!(names(&api.list(&own).await.unwrap()), ["page-a", "page-b", "page-cc", "page-d"]);
    let broken = own.clone().limit(2).continue_token("nonsense");
    assert_eq!(refused(api.list(&broken).await).code, 400);
    api.delete_collection(&DeleteParams::default(), &own).await.unwrap();
}

pub(crate) async fn collections_are_deleted(client: Client) {
    let api = probes(&client);
    make(&client, &["coll-a", "coll-b"], "coll").await;
    let one = ListParams::default().labels("conformance=coll,name=coll-a");
    api.delete_collection(&DeleteParams::default(), &one).await.unwrap();
    assert_eq!(refused(api.get("coll-a").await).code, 404);
    api.get("coll-b").await.unwrap();
    api.delete("coll-b", &DeleteParams::default()).await.unwrap();
}
