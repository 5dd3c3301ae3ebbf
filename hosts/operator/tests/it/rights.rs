//! The rights of an account as they ship: its requests are checked against the roles of `hosts/deploy`, and what they
//! do not grant is forbidden, as in a cluster. The agent's tests use this file too.

use http::{Method, Request, Response};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};

pub(crate) const ACCOUNT: &str = "joulie-operator";

/// The right that one request needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    verb: &'static str,
    namespace: String,
    group: String,
    /// With its subresource, as it is written in roles.
    resource: String,
    name: String,
    /// Whether it is a list or a watch of this one name.
    listed: bool,
}

impl Asked {
    fn of(method: &Method, path: &str, query: &str) -> Self {
        let mut parts = path.trim_matches('/').split('/');
        let mut next = || parts.next().unwrap_or_default().to_owned();
        let group = if next() == "apis" { next() } else { String::new() };
        let _version = next();
        let mut asked = Self { group, resource: next(), name: next(), ..Self::default() };
        let below = next();
        if asked.resource == "namespaces" && !below.is_empty() {
            asked = Self { namespace: asked.name, resource: below, name: next(), ..asked };
            asked.subresource(&next());
        } else {
            asked.subresource(&below);
        }
        // Listing the one object of a name needs the right to that name.
        if let Some(name) =
            query.split('&').find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"))
            && asked.name.is_empty()
        {
            name.clone_into(&mut asked.name);
            asked.listed = true;
        }
        asked.verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if query.contains("watch=") => "watch",
            _ if asked.name.is_empty() || asked.listed => "list",
            _ => "get",
        };
        asked
    }

    fn subresource(&mut self, name: &str) {
        if !name.is_empty() {
            self.resource = format!("{}/{name}", self.resource);
        }
    }

    fn is_granted_by(&self, rule: &PolicyRule) -> bool {
        let has = |all: &Option<Vec<String>>, one: &str| all.iter().flatten().any(|each| each == one);
        let names = rule.resource_names.as_ref().is_none_or(|names| names.contains(&self.name));
        names
            && has(&rule.api_groups, &self.group)
            && has(&rule.resources, &self.resource)
            && rule.verbs.iter().any(|verb| verb == self.verb)
    }
}

/// Rules, each for one namespace or for all.
#[derive(Clone)]
pub(crate) struct Rights(Arc<Vec<(Option<String>, PolicyRule)>>);

impl Rights {
    /// The rights of the operator's account.
    pub(crate) fn shipped() -> Self {
        Self::of(&["base/operator.yaml"], ACCOUNT)
    }

    /// The rights of an account, by these files of `hosts/deploy/kustomize`.
    pub(crate) fn of(files: &[&str], account: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize");
        let mut documents: Vec<Value> = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            documents.extend(
                text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap()),
            );
        }
        let namespace = |object: &Value| object["metadata"]["namespace"].as_str().map(str::to_owned);
        let is_ours = |subject: &Value| subject["kind"] == "ServiceAccount" && subject["name"] == account;
        let mut rules = Vec::new();
        for binding in &documents {
            if !binding["subjects"].as_array().into_iter().flatten().any(is_ours) {
                continue;
            }
            let role: RoleRef = serde_json::from_value(binding["roleRef"].clone()).unwrap();
            let found = documents.iter().find(|object| {
                object["kind"] == role.kind.as_str()
                    && object["metadata"]["name"] == role.name.as_str()
                    && (role.kind == "ClusterRole" || namespace(object) == namespace(binding))
            });
            let granted = &found.expect("a binding without its role")["rules"];
            let granted: Vec<PolicyRule> = serde_json::from_value(granted.clone()).unwrap();
            rules.extend(granted.into_iter().map(|rule| (namespace(binding), rule)));
        }
        Self(Arc::new(rules))
    }

    fn grant(&self, asked: &Asked) -> bool {
        let here = |namespace: &Option<String>| namespace.as_ref().is_none_or(|one| *one == asked.namespace);
        self.0.iter().any(|(namespace, rule)| here(namespace) && asked.is_granted_by(rule))
    }
}

/// The requests that were not granted.
#[derive(Clone, Default)]
pub(crate) struct Forbidden(Arc<Mutex<Vec<String>>>);

impl Forbidden {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A client that may only do what the roles grant.
pub(crate) fn limited(client: Client, rights: Rights) -> (Client, Forbidden) {
    let forbidden = Forbidden::default();
    let noted = forbidden.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, rights, noted) = (client.clone(), rights.clone(), noted.clone());
        async move {
            let uri = request.uri();
            let asked = Asked::of(request.method(), uri.path(), uri.query().unwrap_or_default());
            if rights.grant(&asked) {
                return client.send(request).await;
            }
            noted.0.lock().unwrap().push(format!("{asked:?}"));
            let message = format!("the account may not do {asked:?}");
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                "message": message, "code": 403});
            let body = Body::from(status.to_string().into_bytes());
            Ok(Response::builder().status(403).header("content-type", "application/json").body(body).unwrap())
        }
    });
    (Client::new(service, "default"), forbidden)
}

#[test]
fn what_a_request_asks_for_is_read_from_its_path() {
    let asked = |method: Method, path: &str, query: &str| {
        let Asked { verb, namespace, group, resource, name, listed: _ } = Asked::of(&method, path, query);
        format!("{verb} {namespace}|{group}|{resource}|{name}")
    };
    assert_eq!(asked(Method::GET, "/api/v1/nodes", "watch=true"), "watch ||nodes|");
    assert_eq!(asked(Method::GET, "/api/v1/namespaces/a/pods", ""), "list a||pods|");
    assert_eq!(asked(Method::GET, "/api/v1/namespaces/a", ""), "get ||namespaces|a");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/joulie-system/leases/joulie-plan";
    assert_eq!(asked(Method::PATCH, lease, ""), "patch joulie-system|coordination.k8s.io|leases|joulie-plan");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
    let query = "watch=true&fieldSelector=metadata.name%3Db";
    assert_eq!(asked(Method::GET, leases, query), "watch a|coordination.k8s.io|leases|b");
    assert_eq!(
        asked(Method::GET, leases, "fieldSelector=metadata.name%3Db"),
        "list a|coordination.k8s.io|leases|b"
    );
    let status = "/apis/joulie.io/v1alpha1/nodetwins/a/status";
    assert_eq!(asked(Method::PATCH, status, "force=true"), "patch |joulie.io|nodetwins/status|a");
}

#[test]
fn a_right_in_one_namespace_is_none_in_another() {
    let rights = Rights::shipped();
    let lease = |namespace: &str, name: &str| Asked {
        verb: "patch",
        namespace: namespace.to_owned(),
        group: "coordination.k8s.io".to_owned(),
        resource: "leases".to_owned(),
        name: name.to_owned(),
        listed: false,
    };
    assert!(rights.grant(&lease("joulie-system", "joulie-plan")));
    assert!(!rights.grant(&lease("default", "joulie-plan")));
    assert!(!rights.grant(&lease("joulie-system", "somebody-elses")));
}
