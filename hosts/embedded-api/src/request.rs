//! The content of a request: its path, its query, and the requested form of the answer.

use crate::failure::{Failure, Reason};
use bytes::Bytes;
use http::{Method, header};
use percent_encoding::percent_decode_str;

/// One request, with its body read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) form: Form,
    pub(crate) aggregated_discovery: bool,
    pub(crate) content_type: String,
    pub(crate) agent: String,
    pub(crate) body: Bytes,
}

/// The form in which objects are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    /// Metadata only.
    Metadata,
    /// Rows for kubectl.
    Table,
}

/// The verbs of the API, as RBAC names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads several objects.
    List,
    /// Follows changes.
    Watch,
    /// Creates an object, a binding or an eviction.
    Create,
    /// Replaces an object.
    Update,
    /// Patches or applies an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes the objects that match a selector.
    DeleteCollection,
}

/// What a path refers to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Version,
    Health,
    Api,
    Apis,
    Group(String),
    GroupVersion(String, String),
    OpenApiIndex,
    OpenApi(String, String),
    Objects(Place),
}

/// The location of objects in the API.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Request {
    /// Reads the head of a request.
    pub(crate) fn new(head: &http::request::Parts, body: Bytes) -> Result<Self, Failure> {
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let (form, aggregated_discovery) = accepted(text(header::ACCEPT))?;
        Ok(Self {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: Query::parse(head.uri.query().unwrap_or("")),
            form,
            aggregated_discovery,
            content_type: text(header::CONTENT_TYPE).split(';').next().unwrap_or("").trim().to_owned(),
            agent: text(header::USER_AGENT).to_owned(),
            body,
        })
    }

    /// The manager that owns the fields which this request writes.
    pub(crate) fn manager(&self) -> String {
        let agent = self.agent.split('/').next().unwrap_or("");
        let agent = if agent.is_empty() { "unknown" } else { agent };
        self.query.get("fieldManager").unwrap_or(agent).to_owned()
    }

    pub(crate) fn verb(&self, place: &Place) -> Option<Verb> {
        let one = place.name.is_some();
        Some(match (&self.method, one) {
            (&Method::GET, _) if self.query.flag("watch") => Verb::Watch,
            (&Method::GET, true) => Verb::Get,
            (&Method::GET, false) => Verb::List,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, true) => Verb::Update,
            (&Method::PATCH, true) => Verb::Patch,
            (&Method::DELETE, true) => Verb::Delete,
            (&Method::DELETE, false) => Verb::DeleteCollection,
            _ => return None,
        })
    }
}

/// The first form in the list that this server supports.
fn accepted(accept: &str) -> Result<(Form, bool), Failure> {
    if accept.is_empty() {
        return Ok((Form::Whole, false));
    }
    for wanted in accept.split(',') {
        let mut parts = wanted.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let of = |name| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        match (of("as"), of("v")) {
            (Some("Table"), Some("v1")) => return Ok((Form::Table, false)),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1")) => {
                return Ok((Form::Metadata, false));
            }
            (Some("APIGroupDiscoveryList"), Some("v2")) => return Ok((Form::Whole, true)),
            (Some(_), _) => {}
            (None, _) => return Ok((Form::Whole, false)),
        }
    }
    Err(Failure::new(Reason::NotAcceptable, "only the following media types are accepted: application/json"))
}

/// The parameters after `?`. Empty pairs are nothing, and a broken escape stays as it is.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// A parameter that is present and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        found.filter(|value| !value.is_empty())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|(key, value)| key == name && !matches!(value.as_str(), "false" | "0"))
    }

    /// A parameter that must be a whole number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let number = self.get(name).map(|text| {
            let wrong = |_| Failure::bad_request(format!("{name}: {text:?} is not a whole number"));
            text.parse::<u64>().map_err(wrong)
        });
        number.transpose()
    }
}

/// What the path leads to, if anything.
pub(crate) fn route(path: &str) -> Option<Route> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    // A broken escape stays as it is.
    let parts: Vec<_> = parts.map(|part| percent_decode_str(part).decode_utf8_lossy()).collect();
    let parts: Vec<_> = parts.iter().map(|part| &**part).collect();
    Some(match parts.as_slice() {
        ["version"] => Route::Version,
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["api"] => Route::Api,
        ["apis"] => Route::Apis,
        ["apis", group] => Route::Group((*group).to_owned()),
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", "api", version] => Route::OpenApi(String::new(), (*version).to_owned()),
        ["openapi", "v3", "apis", group, version] => {
            Route::OpenApi((*group).to_owned(), (*version).to_owned())
        }
        ["api", version] => Route::GroupVersion(String::new(), (*version).to_owned()),
        ["apis", group, version] => Route::GroupVersion((*group).to_owned(), (*version).to_owned()),
        ["api", version, rest @ ..] => Route::Objects(place("", version, rest)?),
        ["apis", group, version, rest @ ..] => Route::Objects(place(group, version, rest)?),
        _ => return None,
    })
}

fn place(group: &str, version: &str, rest: &[&str]) -> Option<Place> {
    let owned = |text: &&str| Some((*text).to_owned());
    let (namespace, rest) = match rest {
        // The namespace itself, not its contents.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (owned(namespace), rest),
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, owned(name), None),
        [plural, name, subresource] => (plural, owned(name), owned(subresource)),
        _ => return None,
    };
    Some(Place {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: (*plural).to_owned(),
        namespace,
        name,
        subresource,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_may_begin_with_an_empty_pair_and_holds_escapes() {
        let query =
            Query::parse("&force=true&fieldManager=a%2Fb+c&labelSelector=x%20in%20(a,b)&bad=%zz&empty=");
        assert!(query.flag("force"));
        assert_eq!(query.get("fieldManager"), Some("a/b c"));
        assert_eq!(query.get("labelSelector"), Some("x in (a,b)"));
        assert_eq!(query.get("bad"), Some("%zz"));
        assert_eq!(query.get("empty"), None);
        assert!(!Query::parse("watch=false").flag("watch"));
        assert!(Query::parse("limit=-1").number("limit").is_err());
    }

    #[test]
    fn a_namespace_is_an_object_and_a_place() {
        let objects = |path| match route(path) {
            Some(Route::Objects(place)) => place,
            other => panic!("{other:?}"),
        };
        let namespace = objects("/api/v1/namespaces/a");
        assert_eq!((namespace.plural.as_str(), namespace.name.as_deref()), ("namespaces", Some("a")));
        let pod = objects("/api/v1/namespaces/a/pods/p/binding");
        assert_eq!(pod.namespace.as_deref(), Some("a"));
        assert_eq!((pod.name.as_deref(), pod.subresource.as_deref()), (Some("p"), Some("binding")));
        assert_eq!(objects("/apis/joulie.io/v1alpha1/nodetwins").group, "joulie.io");
        assert_eq!(route("/api/v1/a/b/c/d"), None);
        assert_eq!(route("/"), None);
    }

    #[test]
    fn the_first_form_that_is_spoken_here_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(accepted(table).unwrap(), (Form::Table, false));
        let discovery =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(accepted(discovery).unwrap(), (Form::Whole, true));
        assert_eq!(accepted("application/vnd.kubernetes.protobuf,application/json").unwrap().0, Form::Whole);
        assert!(accepted("application/vnd.kubernetes.protobuf").is_err());
        assert_eq!(accepted("").unwrap().0, Form::Whole);
    }
}
