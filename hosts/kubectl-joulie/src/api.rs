//! Requests to the API server. Lists come in pages, of which only what is needed is kept: 50,000 pods as they are would be
//! half a gigabyte.

use http::{Method, Request, header};
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The objects of a page.
const PAGE: &str = "500";
/// More objects of a kind than any cluster has: a server that sends more, or pages without end, is broken.
const OBJECTS_MAX: usize = 500_000;
const PAGES_MAX: usize = 10_000;
/// For one answer. A page of pods of a large cluster takes a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// There is no such object, or the server has no such kind.
    Absent,
    /// The person may not do that.
    Forbidden(String),
    /// The object has changed since it was read, or somebody else owns the field.
    Conflict(String),
    /// Everything else: the server is away, busy, or refuses.
    Failed(String),
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("it is not there"),
            Self::Forbidden(why) | Self::Conflict(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ApiError {}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Failed(host_kit::connect::chain(&error));
        };
        match status.code {
            404 => Self::Absent,
            401 | 403 => Self::Forbidden(status.message.clone()),
            409 => Self::Conflict(status.message.clone()),
            code => Self::Failed(format!("{code} {}", status.message)),
        }
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct ListPage<R> {
    /// Go writes an empty list as null.
    items: Option<Vec<R>>,
    metadata: Option<PageMetadata>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// The API server, as a person may use it.
#[derive(Clone)]
pub(crate) struct ClusterApi {
    client: Client,
}

impl ClusterApi {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// One object.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.send(Method::GET, path, "", &Value::Null).await
    }

    /// The same; `None` if it is not there.
    pub(crate) async fn find(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.get(path).await {
            Ok(object) => Ok(Some(object)),
            Err(ApiError::Absent) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What `take` makes of each object of a list, in the server's order, which is that of the names.
    pub(crate) async fn list<T>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        take: impl FnMut(Value) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        self.list_of(path, query, take).await
    }

    /// The same of objects of which only the fields of a type are read: of a large cluster's nodes and pods the rest is most.
    pub(crate) async fn list_of<R: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        mut take: impl FnMut(R) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let (mut all, mut next, mut seen) = (Vec::new(), String::new(), 0);
        for _ in 0..PAGES_MAX {
            let mut asked = form_urlencoded::Serializer::new(String::new());
            asked.append_pair("limit", PAGE).extend_pairs(query);
            if !next.is_empty() {
                asked.append_pair("continue", &next);
            }
            let of = format!("{path}?{}", asked.finish());
            let page: ListPage<R> = self.send(Method::GET, &of, "", &Value::Null).await?;
            let items = page.items.unwrap_or_default();
            seen += items.len();
            all.extend(items.into_iter().filter_map(&mut take));
            next = page.metadata.and_then(|metadata| metadata.next).unwrap_or_default();
            if next.is_empty() {
                return Ok(all);
            }
            if seen > OBJECTS_MAX {
                break;
            }
        }
        Err(ApiError::Failed(format!("{path}: the server sends pages without an end")))
    }

    /// Creates something, or asks a review.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.send(Method::POST, path, "application/json", body).await
    }

    /// A merge patch, as the field manager of this program.
    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let path = format!("{path}?fieldManager={}", joulie_api::labels::manager::KUBECTL);
        self.send(Method::PATCH, &path, "application/merge-patch+json", body).await
    }

    /// A text behind the API server's proxy, with one more header.
    pub(crate) async fn proxied(&self, path: &str, extra: Option<(&str, &str)>) -> Result<String, ApiError> {
        let mut request = Request::get(path);
        if let Some((name, value)) = extra {
            request = request.header(name, value);
        }
        let request = request.body(Vec::new()).map_err(|error| ApiError::Failed(error.to_string()))?;
        answer(request, async |request| self.client.request_text(request).await).await
    }

    async fn send<R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<R, ApiError> {
        let mut request = Request::builder().method(method).uri(path);
        if !kind.is_empty() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.body(bytes).map_err(|error| ApiError::Failed(error.to_string()))?;
        answer(request, async |request| self.client.request::<R>(request).await).await
    }
}

/// The answer to a request. A read whose connection fails is sent once more, over another one: a server may end a connection that it
/// holds for idle at the moment at which a request is sent. Of a write nobody knows whether it was carried out.
async fn answer<T>(
    request: Request<Vec<u8>>,
    ask: impl AsyncFn(Request<Vec<u8>>) -> kube::Result<T>,
) -> Result<T, ApiError> {
    let again = (request.method() == Method::GET).then(|| request.clone());
    let answer = tokio::time::timeout(PATIENCE, async {
        match (ask(request).await, again) {
            (Err(kube::Error::Service(_) | kube::Error::HyperError(_)), Some(again)) => ask(again).await,
            (answer, _) => answer,
        }
    });
    Ok(answer.await.map_err(|_| late())??)
}

fn late() -> ApiError {
    ApiError::Failed(format!("the API server has not answered for {} s", PATIENCE.as_secs()))
}

/// The paths of what is read and written.
pub(crate) mod path {
    pub(crate) const NODES: &str = "/api/v1/nodes";
    pub(crate) const PODS: &str = "/api/v1/pods";
    pub(crate) const TWINS: &str = "/apis/joulie.io/v1alpha1/nodetwins";
    pub(crate) const PROFILES: &str = "/apis/joulie.io/v1alpha1/nodepowerprofiles";
    pub(crate) const HARDWARE: &str = "/apis/joulie.io/v1alpha1/nodehardwares";
    pub(crate) const GRANTS: &str = "/apis/joulie.io/v1alpha1/nodepowergrants";
    pub(crate) const BUDGETS: &str = "/apis/joulie.io/v1alpha1/powerbudgets";
    pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    /// Objects of a namespace. A name comes from a person: what is no name of an object does not get into a path.
    pub(crate) fn pods_of(namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/pods")
    }

    /// A Lease.
    pub(crate) fn lease(namespace: &str, name: &str) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    }

    /// The events of a namespace.
    pub(crate) fn events_of(namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/events")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::service_fn;

    /// An API server whose connection ends before each of the first `failing` answers, and how often it was asked.
    fn server(failing: usize) -> (ClusterApi, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let service = service_fn(move |_: http::Request<Body>| {
            let fails = count.fetch_add(1, Ordering::SeqCst) < failing;
            async move {
                if fails {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
                }
                Ok(Response::new(Body::from(b"{}".to_vec())))
            }
        });
        (ClusterApi::new(Client::new(service, "default")), asked)
    }

    #[tokio::test]
    async fn a_read_whose_connection_ends_is_sent_once_more() {
        let (api, asked) = server(1);
        assert_eq!(api.get(path::NODES).await, Ok(Value::Object(serde_json::Map::new())));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let (api, asked) = server(1);
        assert_eq!(api.proxied(path::NODES, None).await.as_deref(), Ok("{}"));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let (api, asked) = server(usize::MAX);
        assert!(matches!(api.get(path::NODES).await, Err(ApiError::Failed(why)) if why.contains("reset")));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_write_whose_connection_ends_is_not_sent_again() {
        let (api, asked) = server(1);
        assert!(matches!(api.merge(path::NODES, &Value::Null).await, Err(ApiError::Failed(_))));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
