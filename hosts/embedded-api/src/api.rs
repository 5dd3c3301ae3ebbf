//! The server behind the service: it parses a request and passes it to its handler.

use crate::failure::{Failure, Reason};
use crate::faults::{ApiFaults, Origin};
use crate::kind::{Flavour, Kind, Registry};
use crate::request::{Form, Place, Request, Route, Verb, route};
use crate::store::{Key, Object, Store};
use crate::wakeup::Wakeups;
use crate::{ApiOptions, discovery, openapi, shown};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// The body of every answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The state of the server, shared by all connections.
pub(crate) struct Api {
    store: Mutex<Store>,
    registry: RwLock<Registry>,
    /// Notified at each new revision of an object, by resource.
    pub(crate) changed: Wakeups,
    pub(crate) faults: ApiFaults,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub(crate) bookmark_every: Duration,
    uids: AtomicU64,
    /// The start time. It distinguishes the UIDs of this server from those of an earlier one.
    started: i64,
}

/// The answer to a request.
pub(crate) enum Reply {
    Json {
        status: StatusCode,
        bytes: Bytes,
        warnings: Vec<String>,
    },
    /// Aggregated discovery, which clients recognise by its media type.
    Discovery(Value),
    Stream(BoxStream<'static, io::Result<Bytes>>),
}

impl Reply {
    pub(crate) fn json(status: StatusCode, value: &Value) -> Self {
        Self::Json { status, bytes: value.to_string().into(), warnings: Vec::new() }
    }

    pub(crate) fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value)
    }
}

impl Api {
    pub(crate) fn new(options: &ApiOptions) -> Self {
        let store = Store::new(options.event_horizon);
        let started = (options.clock)().as_second();
        Self {
            changed: Wakeups::default(),
            store: Mutex::new(store),
            registry: RwLock::new(crate::kind::registry()),
            faults: ApiFaults::default(),
            clock: options.clock.clone(),
            bookmark_every: options.bookmark_every,
            uids: AtomicU64::new(1),
            started,
        }
    }

    /// Locks the store for one writer at a time. After a panic under the lock all objects are intact, because each
    /// object is inserted whole.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn registry_mut(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The time in the format of `metav1.Time`: whole seconds.
    pub(crate) fn now_text(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// A new identifier in the form of a UUID.
    pub(crate) fn uid(&self) -> String {
        let count = self.uids.fetch_add(1, Ordering::Relaxed);
        let started = self.started.unsigned_abs() & 0xffff_ffff;
        format!("{started:08x}-0000-4000-8000-{count:012x}")
    }

    /// Serialises an object for the next revision. Call it under the lock that inserts the object.
    pub(crate) fn seal(&self, store: &Store, kind: &Kind, mut value: Value) -> Arc<Object> {
        let revision = store.revision() + 1;
        value["metadata"]["resourceVersion"] = Value::from(revision.to_string());
        let meta = &value["metadata"];
        let text = |name: &str| meta[name].as_str().unwrap_or("");
        let labels = meta["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or("").into()));
        let fields = kind.selectable.iter().map(|(label, path)| match (label.as_str(), path.text(&value)) {
            // A node without the field is schedulable.
            ("spec.unschedulable", text) if text.is_empty() => "false".into(),
            ("reportingComponent", text) if text.is_empty() => {
                value["source"]["component"].as_str().unwrap_or("").into()
            }
            (_, text) => text.into(),
        });
        Arc::new(Object {
            key: Key {
                resource: kind.resource.clone(),
                namespace: text("namespace").into(),
                name: text("name").into(),
            },
            revision,
            labels: labels.collect(),
            fields: fields.collect(),
            bytes: value.to_string().into(),
        })
    }

    /// Notifies the watches of a new revision of an object.
    pub(crate) fn announce(&self, key: &Key) {
        self.changed.notify(&key.resource);
    }

    /// The kind that a place refers to.
    fn kind_of(&self, place: &Place) -> Result<Arc<Kind>, Failure> {
        let kind = self.registry().find(&place.group, &place.version, &place.plural);
        kind.ok_or_else(Failure::no_path)
    }

    /// The kind under which the objects of a kind are stored.
    pub(crate) fn stored_as(&self, kind: &Arc<Kind>) -> Arc<Kind> {
        match kind.flavour {
            Flavour::EventView => self.registry().find("", "v1", "events").unwrap_or_else(|| kind.clone()),
            Flavour::Plain
            | Flavour::Workload
            | Flavour::Node
            | Flavour::Pod
            | Flavour::Namespace
            | Flavour::Lease
            | Flavour::Event
            | Flavour::Budget
            | Flavour::Definition
            | Flavour::Custom => kind.clone(),
        }
    }

    /// Answers a request. An error means that the connection is dropped.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        head: &http::request::Parts,
        body: Bytes,
    ) -> io::Result<Response<Body>> {
        let request = match Request::new(head, body) {
            Ok(request) => request,
            Err(failure) => return Ok(refuse(&failure)),
        };
        let Some(route) = route(&request.path) else { return Ok(refuse(&Failure::no_path())) };
        let origin = origin(&request, &route);
        let lost = match self.faults.before(&origin).await? {
            None => false,
            Some(crate::faults::Injected::Lost) => true,
            Some(crate::faults::Injected::Answer(failure)) => return Ok(refuse(&failure)),
        };
        let reply = self.dispatch(&request, route, origin);
        if lost {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the answer was lost"));
        }
        Ok(match reply {
            Ok(reply) => respond(reply),
            Err(failure) => refuse(&failure),
        })
    }

    fn dispatch(self: &Arc<Self>, request: &Request, route: Route, origin: Origin) -> Result<Reply, Failure> {
        if let Route::Objects(place) = route {
            let kind = self.kind_of(&place)?;
            return self.objects(request, &kind, &place, origin);
        }
        if request.method != Method::GET {
            return Err(Failure::method_not_allowed());
        }
        let registry = self.registry();
        let value = match route {
            Route::Version => discovery::version(),
            Route::Health => {
                let bytes = Bytes::from_static(b"ok");
                return Ok(Reply::Json { status: StatusCode::OK, bytes, warnings: Vec::new() });
            }
            Route::Api | Route::Apis if request.aggregated_discovery => {
                return Ok(Reply::Discovery(discovery::aggregated(&registry, route == Route::Api)));
            }
            Route::Api => discovery::core_versions(),
            Route::Apis => discovery::groups(&registry),
            Route::Group(group) => discovery::group(&registry, &group).ok_or_else(Failure::no_path)?,
            Route::GroupVersion(group, version) => {
                discovery::resources(&registry, &group, &version).ok_or_else(Failure::no_path)?
            }
            Route::OpenApiIndex => openapi::index(&registry),
            Route::OpenApi(group, version) => {
                openapi::document(&registry, &group, &version).ok_or_else(Failure::no_path)?
            }
            Route::Objects(_) => return Err(Failure::no_path()),
        };
        Ok(Reply::ok(&value))
    }

    fn objects(
        self: &Arc<Self>,
        request: &Request,
        kind: &Arc<Kind>,
        place: &Place,
        origin: Origin,
    ) -> Result<Reply, Failure> {
        if !kind.namespaced && place.namespace.is_some() {
            return Err(Failure::no_path());
        }
        let verb = request.verb(place).ok_or_else(Failure::method_not_allowed)?;
        let names_one = place.name.is_some() && kind.namespaced && place.namespace.is_none();
        if names_one || verb == Verb::Create && kind.namespaced && place.namespace.is_none() {
            return Err(Failure::method_not_allowed());
        }
        match (place.subresource.as_deref(), verb) {
            (None, Verb::Get) => self.get(request, kind, place),
            (None, Verb::List) => self.list(request, kind, place),
            (None, Verb::Watch) => self.watch(request, kind, place, origin),
            (None, Verb::Create) if place.name.is_none() => self.create(request, kind, place),
            (None, Verb::Delete) => self.delete(request, kind, place),
            (None, Verb::DeleteCollection) => self.delete_collection(request, kind, place),
            (None | Some("status"), Verb::Update) => self.update(request, kind, place),
            (None | Some("status"), Verb::Patch) => self.patch(request, kind, place),
            (Some("status"), Verb::Get) if kind.status => self.get(request, kind, place),
            (Some("binding"), Verb::Create) if kind.flavour == Flavour::Pod => {
                self.bind(request, kind, place)
            }
            (Some("eviction"), Verb::Create) if kind.flavour == Flavour::Pod => {
                self.evict(request, kind, place)
            }
            (Some(_), _) => Err(Failure::no_path()),
            (None, _) => Err(Failure::method_not_allowed()),
        }
    }

    /// One object in the form that the request asks for.
    pub(crate) fn show(
        &self,
        request: &Request,
        kind: &Kind,
        (status, object): (StatusCode, &Object),
        warnings: Vec<String>,
    ) -> Reply {
        let bytes = match request.form {
            Form::Table => {
                let rows = crate::table::table(kind, [object].into_iter(), &request.query, self.now(), true);
                rows.to_string().into()
            }
            form @ (Form::Whole | Form::Metadata) => shown::bytes(kind, object, form),
        };
        Reply::Json { status, bytes, warnings }
    }
}

/// The client and the target of a request, which faults are matched against.
fn origin(request: &Request, route: &Route) -> Origin {
    let client = request.agent.clone();
    let manager = request.query.get("fieldManager").map(str::to_owned);
    match route {
        Route::Objects(place) => {
            Origin { client, manager, verb: request.verb(place), resource: place.plural.clone() }
        }
        Route::Version
        | Route::Health
        | Route::Api
        | Route::Apis
        | Route::Group(_)
        | Route::GroupVersion(..)
        | Route::OpenApiIndex
        | Route::OpenApi(..) => Origin { client, manager, verb: None, resource: String::new() },
    }
}

fn respond(reply: Reply) -> Response<Body> {
    match reply {
        Reply::Json { status, bytes, warnings } => {
            let mut response = plain(status, bytes);
            for warning in warnings {
                if let Ok(value) = HeaderValue::try_from(format!("299 - {warning:?}")) {
                    response.headers_mut().append(header::WARNING, value);
                }
            }
            response
        }
        Reply::Discovery(value) => {
            let mut response = plain(StatusCode::OK, value.to_string().into());
            let media = HeaderValue::from_static(
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            );
            response.headers_mut().insert(header::CONTENT_TYPE, media);
            response
        }
        Reply::Stream(stream) => {
            let body = StreamBody::new(stream.map_ok(Frame::data).boxed());
            let mut response = Response::new(BodyExt::boxed_unsync(body));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    }
}

fn plain(status: StatusCode, bytes: Bytes) -> Response<Body> {
    let body = Full::new(bytes).map_err(|never| match never {});
    let mut response = Response::new(BodyExt::boxed_unsync(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A failure as an answer.
pub(crate) fn refuse(failure: &Failure) -> Response<Body> {
    let mut response = plain(failure.status(), failure.json().to_string().into());
    if let Some(seconds) = failure.seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The answer to a request without a valid token.
pub(crate) fn unauthorized() -> Response<Body> {
    refuse(&Failure::new(Reason::Unauthorized, "Unauthorized"))
}
