//! What a client in this process sees.

use crate::server;
use embedded_api::{ApiOptions, EmbeddedApi};
use kube::discovery::Discovery;

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
        let mut definition = serde_json::to_value(conformance::definition()).unwrap();
        change(&mut definition);
        EmbeddedApi::new(&ApiOptions::with(vec![serde_json::from_value(definition).unwrap()]))
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
