//! Reads one pod of the cluster by its name, for `/debug/explain`.
//!
//! It is listed by its name, which needs no other right than the watch of pods. Nothing that kube-scheduler asks waits
//! for this.

use host_kit::config::parse::object_name;
use http::StatusCode;
use kube::Client;
use serde_json::Value;
use std::time::Duration;

/// How long the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Which pod is asked about, and on which node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PodQuestion {
    namespace: String,
    name: String,
    /// The only node that is asked about, if so.
    pub(crate) node: Option<String>,
}

/// Why there is no answer, for whoever asked.
pub(crate) type NoPod = (StatusCode, String);

impl PodQuestion {
    /// Reads the query of a URL: `pod=NAMESPACE/NAME`, and perhaps `node=NAME`.
    pub(crate) fn read(query: &str) -> Result<Self, NoPod> {
        let wrong = |why: &str| {
            let usage = "use /debug/explain?pod=NAMESPACE/NAME, and &node=NAME for one node alone";
            (StatusCode::BAD_REQUEST, format!("{why}; {usage}\n"))
        };
        let (mut pod, mut node) = (None, None);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let slot = match &*key {
                "pod" => &mut pod,
                "node" => &mut node,
                _ => return Err(wrong("only pod and node can be said")),
            };
            if slot.replace(value).is_some() {
                return Err(wrong("pod or node is said twice"));
            }
        }
        let pod = pod.ok_or_else(|| wrong("no pod is named"))?;
        let (namespace, name) = pod.split_once('/').ok_or_else(|| wrong("the pod has no namespace"))?;
        let checked = |text: &str| object_name(text).map_err(|why| wrong(&why.to_string()));
        Ok(Self {
            namespace: checked(namespace)?,
            name: checked(name)?,
            node: node.map(|node| checked(&node)).transpose()?,
        })
    }

    /// The pod of this name.
    pub(crate) fn of(namespace: &str, name: &str) -> Result<Self, NoPod> {
        let checked = |text: &str| {
            object_name(text).map_err(|why| (StatusCode::BAD_REQUEST, format!("{text}: {why}\n")))
        };
        Ok(Self { namespace: checked(namespace)?, name: checked(name)?, node: None })
    }

    /// Asks the API server for the pod.
    pub(crate) async fn fetch(&self, client: &Client) -> Result<Value, NoPod> {
        let Self { namespace, name, node: _ } = self;
        let away = |why: &dyn std::fmt::Display| {
            (StatusCode::SERVICE_UNAVAILABLE, format!("the API server does not tell of the pod: {why}\n"))
        };
        // Both names were checked, and need no escaping.
        let path =
            format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=metadata.name%3D{name}&limit=1");
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| away(&error))?;
        let asked = tokio::time::timeout(TIMEOUT, client.request::<Value>(request)).await;
        let mut list = match asked {
            Ok(answer) => answer.map_err(|error| away(&error))?,
            Err(_) => return Err(away(&"no answer in 5s")),
        };
        let pod = list.pointer_mut("/items/0").map(Value::take);
        pod.ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no pod {namespace}/{name}\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_a_pod_and_perhaps_a_node_and_nothing_else() {
        let of = |namespace: &str, name: &str, node: Option<&str>| PodQuestion {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            node: node.map(str::to_owned),
        };
        assert_eq!(PodQuestion::read("pod=default/web-0"), Ok(of("default", "web-0", None)));
        assert_eq!(PodQuestion::read("pod=a%2Fb&node=n.1"), Ok(of("a", "b", Some("n.1"))));
        let long = format!("pod=a/{}", "b".repeat(300));
        for query in [
            "",
            "pod=",
            "pod=web-0",
            "pod=a/b/c",
            "pod=a/",
            "pod=/b",
            "pod=a/b&pod=a/c",
            "pod=a/B",
            "pods=a/b",
            "pod=a/b&node=",
            "pod=a/b%26limit=9",
            "pod=a/b%3Fx",
            "pod=../b",
            &long,
        ] {
            let (status, why) = PodQuestion::read(query).unwrap_err();
            assert!(status == 400 && why.contains("use /debug/explain?pod=NAMESPACE/NAME"), "{query}: {why}");
        }
    }
}
