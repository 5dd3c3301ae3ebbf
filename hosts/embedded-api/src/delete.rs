//! Deletes one object or many: preconditions, finalizers, and the grace period of pods.

use crate::api::{Api, Reply};
use crate::failure::{Failure, success};
use crate::kind::{Flavour, Kind};
use crate::read::{key_of, scope_of};
use crate::request::{Place, Request};
use crate::selector::Selection;
use crate::store::{Object, Scope, Store};
use crate::write::parsed;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// The options in `DeleteOptions`, from the body or the query.
#[derive(Default)]
pub(crate) struct Deletion {
    grace: Option<u64>,
    uid: Option<String>,
    version: Option<String>,
    dry_run: bool,
}

impl Deletion {
    pub(crate) fn read(request: &Request, options: &Value) -> Result<Self, Failure> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let grace = options["gracePeriodSeconds"].as_u64();
        let dry_run = options["dryRun"].as_array().is_some_and(|runs| !runs.is_empty());
        Ok(Self {
            grace: grace.or(request.query.number("gracePeriodSeconds")?),
            uid: text(&options["preconditions"]["uid"]),
            version: text(&options["preconditions"]["resourceVersion"]),
            dry_run: dry_run || request.query.get("dryRun").is_some(),
        })
    }

    fn of(request: &Request) -> Result<Self, Failure> {
        let options = if request.body.is_empty() { Value::Null } else { parsed(&request.body)? };
        Self::read(request, &options)
    }

    fn allowed(&self, kind: &Kind, object: &Object, value: &Value) -> Result<(), Failure> {
        let meta = &value["metadata"];
        for (what, wanted, field) in
            [("UID", &self.uid, "uid"), ("ResourceVersion", &self.version, "resourceVersion")]
        {
            let is = meta[field].as_str().unwrap_or("");
            if let Some(wanted) = wanted
                && wanted != is
            {
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
                );
                return Err(Failure::conflict(kind, &object.key.name, &why));
            }
        }
        Ok(())
    }
}

impl Api {
    pub(crate) fn delete(
        &self,
        request: &Request,
        kind: &Arc<Kind>,
        place: &Place,
    ) -> Result<Reply, Failure> {
        let deletion = Deletion::of(request)?;
        let mut store = self.store();
        let name = place.name.as_deref().unwrap_or("");
        let found = store.get(&key_of(kind, place)).cloned();
        let found = found.ok_or_else(|| Failure::not_found(kind, name))?;
        let held = self.remove(&mut store, kind, &found, &deletion)?;
        drop(store);
        if let Some(object) = held {
            return Ok(self.show(request, kind, (StatusCode::OK, &object), Vec::new()));
        }
        let uid = &found.parse()["metadata"]["uid"];
        let details = json!({"name": name, "group": kind.group, "kind": kind.plural, "uid": uid});
        Ok(Reply::ok(&success(&details)))
    }

    pub(crate) fn delete_collection(
        &self,
        request: &Request,
        kind: &Arc<Kind>,
        place: &Place,
    ) -> Result<Reply, Failure> {
        let deletion = Deletion::of(request)?;
        let selection = Selection::of(&request.query, kind)?;
        let mut store = self.store();
        let scope = scope_of(kind, place);
        let found: Vec<_> =
            store.list(&scope, None).filter(|object| selection.holds(object)).cloned().collect();
        for object in &found {
            self.remove(&mut store, kind, object, &deletion)?;
        }
        Ok(Reply::ok(&success(&json!({"group": kind.group, "kind": kind.plural}))))
    }

    /// Removes an object, or marks it as being deleted if something holds it, and then returns the marked object.
    pub(crate) fn remove(
        &self,
        store: &mut Store,
        kind: &Kind,
        object: &Arc<Object>,
        deletion: &Deletion,
    ) -> Result<Option<Arc<Object>>, Failure> {
        let mut value = object.parse();
        deletion.allowed(kind, object, &value)?;
        let meta = &value["metadata"];
        let held = meta["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        let grace = grace(kind, &value, deletion);
        let marked = !meta["deletionTimestamp"].is_null();
        if held || grace > 0 {
            if marked && meta["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) <= grace {
                return Ok(Some(object.clone()));
            }
            self.mark(kind, &mut value, grace);
            let marked = self.seal(store, kind, value);
            if !deletion.dry_run {
                store.put(marked.clone());
                self.announce(&marked.key);
            }
            return Ok(Some(marked));
        }
        if !deletion.dry_run {
            self.empty(store, kind, object)?;
            let last = self.seal(store, kind, value);
            store.remove(last.clone());
            self.forget(kind, &last);
            self.announce(&last.key);
        }
        Ok(None)
    }

    fn mark(&self, kind: &Kind, value: &mut Value, grace: u64) {
        let seconds = i64::try_from(grace).unwrap_or(i64::MAX);
        let now = self.now();
        let at = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now);
        let meta = &mut value["metadata"];
        meta["deletionTimestamp"] = json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        meta["deletionGracePeriodSeconds"] = json!(grace);
        if kind.counts_generations() {
            meta["generation"] = json!(meta["generation"].as_u64().unwrap_or(0) + 1);
        }
    }

    /// Deletes the contents of a namespace, or the objects of a definition's kind.
    fn empty(&self, store: &mut Store, kind: &Kind, object: &Object) -> Result<(), Failure> {
        let kinds: Vec<_> = self.registry().all().cloned().collect();
        let within = |of: &Kind| match kind.flavour {
            Flavour::Namespace => of.namespaced && of.flavour != Flavour::EventView,
            Flavour::Definition => of.resource == object.key.name,
            Flavour::Plain
            | Flavour::Workload
            | Flavour::Node
            | Flavour::Pod
            | Flavour::Lease
            | Flavour::Event
            | Flavour::EventView
            | Flavour::Budget
            | Flavour::Custom => false,
        };
        for of in kinds.iter().filter(|of| within(of)) {
            let namespace = (kind.flavour == Flavour::Namespace).then(|| object.key.name.clone());
            let scope = Scope { resource: of.resource.clone(), namespace };
            let found: Vec<_> = store.list(&scope, None).cloned().collect();
            for inner in found {
                let last = self.seal(store, of, inner.parse());
                store.remove(last.clone());
                self.announce(&last.key);
            }
        }
        Ok(())
    }
}

/// The grace period of a pod in seconds: zero unless it runs on a node.
fn grace(kind: &Kind, value: &Value, deletion: &Deletion) -> u64 {
    let placed = value["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let over = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if kind.flavour != Flavour::Pod || !placed || over {
        return 0;
    }
    deletion.grace.or(value["spec"]["terminationGracePeriodSeconds"].as_u64()).unwrap_or(30)
}
