//! A Kubernetes API in memory: in process for `kube::Client`, and over HTTP for kubectl. The demo and the simulator
//! are built on it, and the hosts are tested against it.
//!
//! It serves the kinds that the hosts use, and the custom kinds whose definitions it is given, with the behaviour
//! that clients rely on: resource versions and conflicts, watches with bookmarks and 410, consistent pages,
//! server-side apply with ownership, status and other subresources, validation, defaulting and pruning by schema, and
//! tables.
//!
//! **What it leaves out**, so that it is tested on a real control plane instead:
//!
//! - CEL rules of custom kinds; any admission; authorisation (only an optional token, no RBAC);
//! - garbage collection by owner, propagation policies, and every controller: no scheduler, no kubelet, no status of
//!   disruption budgets (evictions are judged by the existing pods), no tokens of service accounts;
//! - custom kinds in more than one version (the stored version is served), conversion, the scale subresource;
//! - defaults and checks of built-in kinds beyond their schemas, names, and the immutable specification of a pod;
//! - canonical quantities and times: a client reads exactly what it wrote;
//! - protobuf (the generators of `kubectl create` send it: `kubectl apply -f` does not), CBOR, YAML bodies, compressed
//!   answers, HTTP/2, and OpenAPI version 2 (without which kubectl up to 1.28 does not apply; 1.30, 1.32 and 1.33 were
//!   tried, and `explain` of 1.29 lists no enums);
//! - slow deletions: the contents of a namespace are deleted with it at once;
//! - a watch of one object from a future resource version (504 here), and the reset of ownership on objects that are
//!   older than their managers;
//! - the order of a keyed list after an apply: new items are appended;
//! - the field selectors of `events.k8s.io`, which use the names of the core's events;
//! - durability: all data is lost when the process ends.
//!
//! `tests-hil/conformance` contains the cases in which this server and a real one must behave alike.
#![forbid(unsafe_code)]

mod api;
mod certificate;
mod delete;
mod discovery;
mod failure;
mod faults;
mod fields;
mod jsonpath;
mod kind;
mod managers;
mod meta;
mod openapi;
mod patch;
mod pods;
mod read;
mod request;
mod schema;
mod selector;
mod serve;
mod shown;
mod store;
mod table;
mod wakeup;
mod watch;
mod write;

pub use certificate::LoopbackKey;
pub use faults::{ApiFaults, InjectedResponse, Loss, Matching};
pub use request::Verb;
pub use serve::{Serving, Tls, Token};

use api::{Api, Body};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tower::service_fn;

/// The namespaces that exist from the start.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// How a server is set up.
#[derive(Clone)]
pub struct ApiOptions {
    /// The custom kinds to serve.
    pub definitions: Vec<CustomResourceDefinition>,
    /// How many events the log holds. A watch that falls behind further gets 410.
    pub event_horizon: usize,
    /// The interval of bookmarks on an idle watch.
    pub bookmark_every: Duration,
    /// The wall clock, for timestamps and ages.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl ApiOptions {
    /// These definitions, a log of 100,000 events, a bookmark a minute, and the clock of the machine.
    pub fn with(definitions: Vec<CustomResourceDefinition>) -> Self {
        Self {
            definitions,
            event_horizon: 100_000,
            bookmark_every: Duration::from_secs(60),
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// A custom resource definition that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadDefinition {
    /// The name of the definition.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for BadDefinition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the definition {:?} cannot be served: {}", self.name, self.why)
    }
}

impl std::error::Error for BadDefinition {}

/// All objects at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot(BTreeMap<store::Key, Arc<store::Object>>);

/// The server. Clones share it.
#[derive(Clone)]
pub struct EmbeddedApi(Arc<Api>);

impl EmbeddedApi {
    /// A server with the given definitions, which contains only the namespaces that every cluster has.
    pub fn new(options: &ApiOptions) -> Result<Self, BadDefinition> {
        let api = Self(Arc::new(Api::new(options)));
        let seed = |kind: (&str, &str, &str), name: &str, body: serde_json::Value| {
            let bad = |why: String| BadDefinition { name: name.to_owned(), why };
            let kind = api.0.registry().find(kind.0, kind.1, kind.2);
            let kind = kind.ok_or_else(|| bad("its kind is not served".to_owned()))?;
            api.0.seed(&kind, body).map_err(|failure| {
                let told = failure.json();
                bad(told["message"].as_str().unwrap_or_default().to_owned())
            })
        };
        for name in NAMESPACES {
            seed(("", "v1", "namespaces"), name, json!({"metadata": {"name": name}}))?;
        }
        for definition in &options.definitions {
            let name = definition.metadata.name.clone().unwrap_or_default();
            let body = serde_json::to_value(definition)
                .map_err(|error| BadDefinition { name: name.clone(), why: error.to_string() })?;
            seed(("apiextensions.k8s.io", "v1", "customresourcedefinitions"), &name, body)?;
        }
        Ok(api)
    }

    /// A client in this process, with the namespace `default` and no user agent.
    pub fn client(&self) -> kube::Client {
        self.client_as("")
    }

    /// A client in this process with this user agent, by which faults can select it.
    pub fn client_as(&self, agent: &str) -> kube::Client {
        let api = self.0.clone();
        let agent = HeaderValue::from_str(agent).ok().filter(|agent| !agent.is_empty());
        let service = service_fn(move |mut request: Request<kube::client::Body>| {
            let api = api.clone();
            if let Some(agent) = &agent {
                request.headers_mut().insert(header::USER_AGENT, agent.clone());
            }
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                api.answer(&head, body).await
            }
        });
        kube::Client::new(service, "default")
    }

    /// The faults of this server.
    pub fn faults(&self) -> ApiFaults {
        self.0.faults.clone()
    }

    /// Discards the log of events: a watch or a page from before gets 410, as after a compaction of etcd.
    pub fn compact(&self) {
        self.0.store().compact();
        self.0.changed.notify_all();
    }

    /// All current objects, as in a backup of etcd.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.store().objects())
    }

    /// Restores the objects of a snapshot, as `etcdutl snapshot restore --bump-revision --mark-compacted` does: the
    /// server's resource version jumps ahead, the objects have their old ones again, and watches from before get 410.
    /// The served definitions do not change.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.0.store().restore(snapshot.0.clone());
        self.0.changed.notify_all();
    }

    /// The newest resource version. It does not change while nothing is written.
    pub fn revision(&self) -> u64 {
        self.0.store().revision()
    }

    pub(crate) async fn answer(
        &self,
        head: &http::request::Parts,
        body: Bytes,
    ) -> io::Result<Response<Body>> {
        self.0.answer(head, body).await
    }
}
