//! The limits of a write: pure functions over the old object and the new one.

use super::Write;
use crate::failure::Failure;
use crate::kind::{Flavour, Kind};
use crate::pods;
use crate::store::Object;
use serde_json::{Value, json};

/// Sets the initial fields of a kind, whatever its creator wrote.
pub(super) fn begin(kind: &Kind, body: &mut Value) {
    let status = match kind.flavour {
        Flavour::Pod => json!({"phase": "Pending", "qosClass": pods::quality(&body["spec"])}),
        Flavour::Namespace => json!({"phase": "Active"}),
        // A node keeps the status that its creator wrote.
        Flavour::Node | Flavour::Plain | Flavour::Lease | Flavour::Event | Flavour::EventView => return,
        Flavour::Definition => json!({"conditions": [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "served"},
        ]}),
        Flavour::Workload | Flavour::Budget | Flavour::Custom => Value::Null,
    };
    if status.is_null() {
        if kind.status
            && let Some(fields) = body.as_object_mut()
        {
            fields.remove("status");
        }
    } else {
        body["status"] = status;
    }
}

/// Checks the resource version and the UID that the caller gave.
pub(super) fn preconditions(kind: &Kind, old: &Object, before: &Value, new: &Value) -> Result<(), Failure> {
    let given = |name: &str| new["metadata"][name].as_str().unwrap_or("");
    let name = &old.key.name;
    let (version, uid) = (given("resourceVersion"), given("uid"));
    let is = before["metadata"]["uid"].as_str().unwrap_or("");
    if !uid.is_empty() && uid != is {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {is}");
        return Err(Failure::conflict(kind, name, &why));
    }
    if !version.is_empty() && version != old.revision.to_string() {
        return Err(Failure::modified(kind, name));
    }
    Ok(())
}

/// Restores the fields that this request may not change.
pub(super) fn keep(write: &Write<'_>, before: &Value, new: &mut Value) {
    const SERVERS: [&str; 7] = [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generateName",
    ];
    let put = |new: &mut Value, name: &str, old: &Value| {
        if !old.is_null() {
            new[name] = old.clone();
        } else if let Some(fields) = new.as_object_mut() {
            fields.remove(name);
        }
    };
    if write.is_status() {
        let status = new["status"].take();
        let mut meta = new["metadata"].take();
        if write.stored.flavour == Flavour::Custom {
            // A write to the status of a custom resource changes nothing else; ownership is recorded.
            let managed = meta["managedFields"].take();
            meta = without(&before["metadata"], &["managedFields"]);
            if !managed.is_null() {
                meta["managedFields"] = managed;
            }
        }
        *new = without(before, &["metadata", "status"]);
        new["metadata"] = meta;
        if !status.is_null() {
            new["status"] = status;
        }
    } else if write.stored.status {
        put(new, "status", &before["status"]);
    }
    for name in SERVERS {
        put(&mut new["metadata"], name, &before["metadata"][name]);
    }
}

/// A copy of an object without some of its fields, which may be its largest part.
fn without(object: &Value, left_out: &[&str]) -> Value {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| !left_out.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Whether anything besides metadata and status differs.
pub(super) fn specification_changed(old: &Value, new: &Value) -> bool {
    let own = |object: &Value| without(object, &["metadata", "status"]);
    own(old) != own(new)
}

/// Whether nothing holds an object any more that is being deleted.
pub(super) fn is_done(object: &Value) -> bool {
    let meta = &object["metadata"];
    let held = meta["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    let grace = meta["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
    !meta["deletionTimestamp"].is_null() && !held && grace == 0
}

/// Reduces an applied configuration to the fields that its subresource may own.
pub(super) fn narrow(write: &Write<'_>, config: &mut Value) {
    let Some(fields) = config.as_object_mut() else { return };
    if write.is_status() {
        fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
        if let Some(meta) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.retain(|name, _| matches!(name.as_str(), "name" | "namespace" | "uid" | "resourceVersion"));
        }
    } else if write.stored.status {
        fields.remove("status");
    }
}
