//! Every case, in process; and what a client in this process sees beside.

use crate::cases::{CASES, Case};
use crate::{cases, server};
use embedded_api::{EmbeddedApi, Options};
use kube::Client;
use kube::discovery::Discovery;

/// Runs all cases, each with a client of its own, and tells all that fail.
pub(crate) async fn run(client: impl AsyncFn() -> Client) {
    let mut failed = Vec::new();
    for (name, case) in CASES {
        let case: &Case = case;
        if let Err(panic) = tokio::spawn(case(client().await)).await {
            failed.push(format!("{name}: {panic}"));
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed:\n{}", failed.len(), CASES.len(), failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_holds_in_process() {
    // One server for all, twice: a case leaves nothing that another, or the same again, stumbles over.
    let server = server();
    run(async || server.client_as("conformance")).await;
    run(async || server.client_as("conformance")).await;
}

#[tokio::test]
async fn discovery_tells_the_kinds_and_their_subresources() {
    let discovery = Discovery::new(server().client()).run().await.unwrap();
    let group = discovery.get("conformance.joulie.io").unwrap();
    let (resource, capabilities) = group.recommended_kind("Probe").unwrap();
    assert_eq!(resource.plural, "probes");
    assert_eq!(
        capabilities.subresources.iter().map(|(sub, _)| sub.plural.as_str()).collect::<Vec<_>>(),
        ["status"]
    );
    let (pod, capabilities) = discovery.get("").unwrap().recommended_kind("Pod").unwrap();
    assert_eq!(pod.api_version, "v1");
    assert!(
        capabilities.subresources.iter().any(|(sub, _)| sub.plural == "eviction" && sub.group == "policy")
    );
    let version = server().client().apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "33"));
}

#[tokio::test]
async fn a_definition_that_cannot_be_served_is_told_by_name() {
    let with = |change: fn(&mut serde_json::Value)| {
        let mut definition = serde_json::to_value(cases::definition()).unwrap();
        change(&mut definition);
        EmbeddedApi::new(&Options::with(vec![serde_json::from_value(definition).unwrap()]))
            .err()
            .unwrap()
            .to_string()
    };
    let misnamed = with(|definition| definition["metadata"]["name"] = "wrong.io".into());
    assert!(misnamed.contains("\"wrong.io\" must be spec.names.plural"), "{misnamed}");
    let unserved = with(|definition| definition["spec"]["versions"][0]["served"] = false.into());
    assert!(unserved.contains("one must be both stored and served"), "{unserved}");
    let column = with(|definition| {
        definition["spec"]["versions"][0]["additionalPrinterColumns"][0]["jsonPath"] = "..".into();
    });
    assert!(column.contains("cannot read \"..\""), "{column}");
    let pattern = with(|definition| {
        let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["rack"]["pattern"] = "(".into();
    });
    assert!(pattern.contains("pattern"), "{pattern}");
}
