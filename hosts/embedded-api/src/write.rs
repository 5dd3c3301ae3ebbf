//! Create, update, patch and apply: from a body to a committed object.

mod rules;

use crate::api::{Api, Reply};
use crate::failure::{Cause, Failure, Reason};
use crate::kind::{Flavour, Kind};
use crate::managers::{self, Writer};
use crate::read::key_of;
use crate::request::{Place, Request};
use crate::store::{Object, Store};
use crate::{meta, patch, pods, schema, shown};
use http::StatusCode;
use rules::{begin, is_done, keep, narrow, preconditions, specification_changed};
use serde_json::{Value, json};
use std::sync::Arc;

/// The data that all parts of one write share.
pub(crate) struct Write<'a> {
    pub(crate) kind: &'a Arc<Kind>,
    /// The kind under which the object is stored.
    pub(crate) stored: Arc<Kind>,
    pub(crate) place: &'a Place,
    manager: String,
    now: String,
    dry_run: bool,
    unknown: Unknown,
    warnings: Vec<String>,
}

/// The treatment of fields that the schema does not know (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Ignored,
    Warned,
    Refused,
}

impl<'a> Write<'a> {
    pub(crate) fn new(
        api: &Api,
        request: &Request,
        kind: &'a Arc<Kind>,
        place: &'a Place,
    ) -> Result<Self, Failure> {
        let query = &request.query;
        let unknown = match query.get("fieldValidation") {
            None | Some("Warn") => Unknown::Warned,
            Some("Ignore") => Unknown::Ignored,
            Some("Strict") => Unknown::Refused,
            Some(other) => {
                let why = "supported values: \"Ignore\", \"Strict\", \"Warn\"";
                return Err(Failure::bad_request(format!("fieldValidation: {other:?}: {why}")));
            }
        };
        let dry_run = match query.get("dryRun") {
            None => false,
            Some("All") => true,
            Some(other) => {
                return Err(Failure::bad_request(format!("dryRun: {other:?}: supported values: \"All\"")));
            }
        };
        if place.subresource.is_some() && !kind.status {
            return Err(Failure::no_path());
        }
        Ok(Self {
            kind,
            stored: api.stored_as(kind),
            place,
            manager: request.manager(),
            now: api.now_text(),
            dry_run,
            unknown,
            warnings: Vec::new(),
        })
    }

    fn is_status(&self) -> bool {
        self.place.subresource.is_some()
    }

    /// Converts a body or a patched object to the stored form, with the right kind and place and without unknown
    /// fields.
    fn accept(&mut self, mut body: Value) -> Result<Value, Failure> {
        meta::agree(self.kind, &mut body, self.place.namespace.as_deref(), self.place.name.as_deref())?;
        let mut unknown = Vec::new();
        schema::prune(&mut body, &self.kind.schema, &schema::Place::Root, &mut unknown);
        let told: Vec<_> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        match self.unknown {
            Unknown::Refused if !told.is_empty() => {
                return Err(Failure::bad_request(format!("strict decoding error: {}", told.join(", "))));
            }
            Unknown::Warned => self.warnings.extend(told),
            Unknown::Ignored | Unknown::Refused => {}
        }
        Ok(shown::stored(self.kind, body))
    }

    fn writer<'b>(&'b self, api_version: &'b str) -> Writer<'b> {
        let subresource = self.place.subresource.as_deref().unwrap_or("");
        Writer { manager: &self.manager, subresource, api_version, now: &self.now }
    }
}

/// Reads a body that must be a JSON object.
pub(crate) fn parsed(body: &[u8]) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(Failure::bad_request("the body is not a JSON object")) }
}

/// An object that replaces another must have its name.
fn named(body: Value, place: &Place) -> Result<Value, Failure> {
    if body["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty()) {
        return Ok(body);
    }
    let name = place.name.as_deref().unwrap_or("");
    Err(Failure::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )))
}

impl Api {
    pub(crate) fn create(
        &self,
        request: &Request,
        kind: &Arc<Kind>,
        place: &Place,
    ) -> Result<Reply, Failure> {
        if !matches!(request.content_type.as_str(), "" | "application/json") {
            return Err(unsupported(&request.content_type, "application/json"));
        }
        let mut write = Write::new(self, request, kind, place)?;
        let body = write.accept(parsed(&request.body)?)?;
        let object = self.insert(&mut self.store(), &write, body, Tracking::Update)?;
        Ok(self.show(request, kind, (StatusCode::CREATED, &object), write.warnings))
    }

    /// Creates an object that the server contains from the start.
    pub(crate) fn seed(&self, kind: &Arc<Kind>, body: Value) -> Result<(), Failure> {
        let mut write = Write {
            kind,
            stored: kind.clone(),
            place: &Place::default(),
            manager: "kube-apiserver".to_owned(),
            now: self.now_text(),
            dry_run: false,
            unknown: Unknown::Ignored,
            warnings: Vec::new(),
        };
        let body = write.accept(body)?;
        self.insert(&mut self.store(), &write, body, Tracking::Update).map(|_| ())
    }

    /// Creates an object from an accepted body.
    fn insert(
        &self,
        store: &mut Store,
        write: &Write<'_>,
        mut body: Value,
        tracking: Tracking,
    ) -> Result<Arc<Object>, Failure> {
        let kind = &write.stored;
        let uid = self.uid();
        let meta = &mut body["metadata"];
        if !meta["resourceVersion"].as_str().unwrap_or("").is_empty() {
            return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if let (None, Some(prefix)) = (meta["name"].as_str(), meta["generateName"].as_str()) {
            let tail = uid.get(uid.len() - 5..).unwrap_or("0");
            meta["name"] = json!(format!("{prefix}{tail}"));
        }
        meta["uid"] = json!(uid);
        meta["creationTimestamp"] = json!(write.now);
        if let Some(fields) = meta.as_object_mut() {
            fields.remove("deletionTimestamp");
            fields.remove("deletionGracePeriodSeconds");
            fields.remove("generation");
        }
        if kind.counts_generations() {
            body["metadata"]["generation"] = json!(1);
        }
        begin(kind, &mut body);
        schema::fill(&mut body, &kind.schema);
        self.validate(write, None, &body)?;
        if tracking == Tracking::Update {
            let api_version = kind.api_version();
            managers::track_update(None, &mut body, &kind.schema, &write.writer(&api_version));
        }
        let name = body["metadata"]["name"].as_str().unwrap_or("").to_owned();
        self.namespace_exists(store, write)?;
        let mut key = key_of(kind, write.place);
        key.name = name.as_str().into();
        if store.get(&key).is_some() {
            return Err(Failure::already_exists(write.kind, &name));
        }
        let object = self.seal(store, kind, body);
        if !write.dry_run {
            self.learn(kind, &object)?;
            store.put(object.clone());
            self.announce(&object.key);
        }
        Ok(object)
    }

    fn namespace_exists(&self, store: &Store, write: &Write<'_>) -> Result<(), Failure> {
        let Some(namespace) = write.place.namespace.as_deref() else { return Ok(()) };
        let kind = self.registry().find("", "v1", "namespaces").ok_or_else(Failure::no_path)?;
        let place = Place { name: Some(namespace.to_owned()), ..Place::default() };
        let found = store.get(&key_of(&kind, &place));
        found.map(|_| ()).ok_or_else(|| Failure::not_found(&kind, namespace))
    }

    /// Serves the kind of a created or changed definition.
    fn learn(&self, kind: &Kind, object: &Object) -> Result<(), Failure> {
        if kind.flavour != Flavour::Definition {
            return Ok(());
        }
        let refused = |why: String| {
            let cause = Cause { reason: "FieldValueInvalid", field: "spec".to_owned(), message: why };
            Failure::invalid(kind, &object.key.name, &[cause])
        };
        let definition = serde_json::from_slice(&object.bytes).map_err(|error| refused(error.to_string()))?;
        let mut registry = self.registry_mut();
        let learned = crate::kind::custom(&definition, &mut registry).map_err(refused)?;
        registry.serve(learned);
        Ok(())
    }

    pub(crate) fn update(
        &self,
        request: &Request,
        kind: &Arc<Kind>,
        place: &Place,
    ) -> Result<Reply, Failure> {
        let mut write = Write::new(self, request, kind, place)?;
        let body = write.accept(named(parsed(&request.body)?, place)?)?;
        let mut store = self.store();
        let old = store.get(&key_of(kind, place)).cloned();
        let name = place.name.as_deref().unwrap_or("");
        let Some(old) = old else {
            let object = self.make_by_update(&mut store, &write, body)?;
            return Ok(self.show(request, kind, (StatusCode::CREATED, &object), write.warnings));
        };
        let given = body["metadata"]["resourceVersion"].as_str().unwrap_or("");
        if given.is_empty() && !kind.updates_unconditionally() {
            let cause =
                Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(Failure::invalid(kind, name, &[cause]));
        }
        let before = old.parse();
        let object = self.replace(&mut store, &write, (&old, &before), body, Tracking::Update)?;
        Ok(self.show(request, kind, (StatusCode::OK, &object), write.warnings))
    }

    /// An update of a missing lease or event creates it, unless the request has the UID of an earlier object. So a
    /// leader election continues after its lease was deleted.
    fn make_by_update(
        &self,
        store: &mut Store,
        write: &Write<'_>,
        mut body: Value,
    ) -> Result<Arc<Object>, Failure> {
        let (kind, name) = (write.kind, write.place.name.as_deref().unwrap_or(""));
        if !matches!(kind.flavour, Flavour::Lease | Flavour::Event | Flavour::EventView) {
            return Err(Failure::not_found(kind, name));
        }
        if let Some(uid) = body["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
            return Err(Failure::conflict(kind, name, &why));
        }
        if let Some(meta) = body["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        self.insert(store, write, body, Tracking::Update)
    }

    pub(crate) fn patch(&self, request: &Request, kind: &Arc<Kind>, place: &Place) -> Result<Reply, Failure> {
        if request.content_type == "application/apply-patch+yaml" {
            return self.apply(request, kind, place);
        }
        let mut write = Write::new(self, request, kind, place)?;
        let mut store = self.store();
        let old = store.get(&key_of(kind, place)).cloned();
        let old = old.ok_or_else(|| Failure::not_found(kind, place.name.as_deref().unwrap_or("")))?;
        let before = old.parse();
        let base = shown::value(kind, before.clone());
        let patched = patch::patched(kind, &request.content_type, base, &request.body)?;
        let body = write.accept(named(patched, place)?)?;
        let object = self.replace(&mut store, &write, (&old, &before), body, Tracking::Update)?;
        Ok(self.show(request, kind, (StatusCode::OK, &object), write.warnings))
    }

    /// Server-side apply. A missing object is created.
    fn apply(&self, request: &Request, kind: &Arc<Kind>, place: &Place) -> Result<Reply, Failure> {
        let mut write = Write::new(self, request, kind, place)?;
        if request.query.get("fieldManager").is_none() {
            let why = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply \
                       patch";
            return Err(Failure::new(Reason::Invalid, why));
        }
        let mut config = parsed(&request.body)?;
        if config["apiVersion"].is_null() || config["kind"].is_null() {
            return Err(Failure::bad_request("apiVersion and kind must be set in an apply patch"));
        }
        if config["metadata"]["managedFields"].as_array().is_some_and(|entries| !entries.is_empty()) {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        config = write.accept(config)?;
        narrow(&write, &mut config);
        let api_version = kind.api_version();
        let writer = Writer { now: &write.now.clone(), ..write.writer(&api_version) };
        let force = request.query.flag("force");
        let mut store = self.store();
        let Some(old) = store.get(&key_of(&write.stored, place)).cloned() else {
            if write.is_status() {
                return Err(Failure::not_found(kind, place.name.as_deref().unwrap_or("")));
            }
            if !config["metadata"]["uid"].is_null() {
                let why =
                    "uid mismatch: the provided object specified a uid, and no existing object was found";
                return Err(Failure::conflict(kind, place.name.as_deref().unwrap_or(""), why));
            }
            let applied = managers::apply(&json!({}), &config, &write.stored.schema, &writer, force)?;
            let object = self.insert(&mut store, &write, applied, Tracking::Apply)?;
            return Ok(self.show(request, kind, (StatusCode::CREATED, &object), write.warnings));
        };
        let given = config["metadata"].get("resourceVersion").cloned();
        let before = old.parse();
        let mut applied = managers::apply(&before, &config, &write.stored.schema, &writer, force)?;
        if let Some(meta) = applied["metadata"].as_object_mut() {
            // The live object's resource version is not a precondition; one in the configuration is.
            meta.remove("resourceVersion");
            meta.extend(given.map(|given| ("resourceVersion".to_owned(), given)));
        }
        let object = self.replace(&mut store, &write, (&old, &before), applied, Tracking::Apply)?;
        Ok(self.show(request, kind, (StatusCode::OK, &object), write.warnings))
    }

    /// Replaces an object, given with its parsed form, by an accepted one, and keeps what the request may not change. If
    /// nothing differs, nothing is written.
    fn replace(
        &self,
        store: &mut Store,
        write: &Write<'_>,
        (old, before): (&Arc<Object>, &Value),
        mut new: Value,
        tracking: Tracking,
    ) -> Result<Arc<Object>, Failure> {
        let kind = &write.stored;
        preconditions(write.kind, old, before, &new)?;
        keep(write, before, &mut new);
        schema::fill(&mut new, &kind.schema);
        if kind.counts_generations() && !write.is_status() && specification_changed(before, &new) {
            let generation = before["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = json!(generation);
        }
        self.validate(write, Some(before), &new)?;
        if tracking == Tracking::Update {
            let api_version = kind.api_version();
            managers::track_update(Some(before), &mut new, &kind.schema, &write.writer(&api_version));
        }
        new["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        if new == *before {
            return Ok(old.clone());
        }
        let done = is_done(&new);
        let object = self.seal(store, kind, new);
        if write.dry_run {
            return Ok(object);
        }
        self.learn(kind, &object)?;
        if done {
            store.remove(object.clone());
            self.forget(kind, &object);
        } else {
            store.put(object.clone());
        }
        self.announce(&object.key);
        Ok(object)
    }

    /// Stops serving the kind of a deleted definition.
    pub(crate) fn forget(&self, kind: &Kind, object: &Object) {
        if kind.flavour == Flavour::Definition
            && let Some((plural, group)) = object.key.name.split_once('.')
        {
            self.registry_mut().forget(group, plural);
        }
    }

    fn validate(&self, write: &Write<'_>, old: Option<&Value>, new: &Value) -> Result<(), Failure> {
        let kind = &write.stored;
        let mut causes = Vec::new();
        meta::check(kind, new, &mut causes);
        if let Some(old) = old {
            meta::check_change(old, new, &mut causes);
            if kind.flavour == Flavour::Pod && !write.is_status() {
                pods::check_change(old, new, &mut causes);
            }
        }
        schema::check(new, &kind.schema, &schema::Place::Root, &mut causes);
        if causes.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid(write.kind, new["metadata"]["name"].as_str().unwrap_or(""), &causes))
    }
}

/// Whether field ownership must still be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tracking {
    Update,
    /// It was computed by the apply.
    Apply,
}

pub(crate) fn unsupported(given: &str, accepted: &str) -> Failure {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}; got {given:?}"
    );
    Failure::new(Reason::UnsupportedMediaType, message)
}
