//! Field ownership: `metadata.managedFields`, server-side apply, and the effect of updates on ownership.

use crate::failure::{Cause, Failure};
use crate::fields::{self, FieldSet, Path, Step};
use crate::schema::Schema;
use serde_json::{Value, json};

/// The manager that writes, the subresource, and the time.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    /// Empty for the main resource.
    pub(crate) subresource: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) now: &'a str,
}

/// One entry of `managedFields`.
#[derive(Debug)]
struct Entry {
    manager: String,
    operation: Operation,
    api_version: String,
    subresource: String,
    time: String,
    fields: FieldSet,
    /// How it was read, while nothing has changed: to write the fields anew is most of the work of a write.
    as_read: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

impl Entry {
    fn read(entry: &Value) -> Option<Self> {
        let text = |name: &str| entry[name].as_str().unwrap_or("").to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        Some(Self {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            fields: fields::from_json(&entry["fieldsV1"]),
            as_read: Some(entry.clone()),
        })
    }

    /// Keeps only the fields for which `holds` is true.
    fn retain(&mut self, holds: impl FnMut(&Path) -> bool) {
        let count = self.fields.len();
        self.fields.retain(holds);
        if self.fields.len() != count {
            self.as_read = None;
        }
    }

    fn write(mut self) -> Value {
        if let Some(as_read) = self.as_read.take() {
            return as_read;
        }
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut entry = json!({
            "manager": self.manager, "operation": operation, "apiVersion": self.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": fields::to_json(&self.fields),
        });
        if !self.time.is_empty() {
            entry["time"] = json!(self.time);
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }

    fn is(&self, writer: &Writer<'_>, operation: Operation) -> bool {
        self.operation == operation
            && self.manager == writer.manager
            && self.subresource == writer.subresource
            && (operation == Operation::Apply || self.api_version == writer.api_version)
    }

    /// The manager as conflict messages show it.
    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {:?}", self.subresource);
        }
        match (self.operation, self.time.as_str()) {
            (Operation::Apply, _) => shown,
            (Operation::Update, "") => format!("{shown} using {}", self.api_version),
            (Operation::Update, time) => format!("{shown} using {} at {time}", self.api_version),
        }
    }
}

fn read(object: &Value) -> Vec<Entry> {
    object["metadata"]["managedFields"].as_array().into_iter().flatten().filter_map(Entry::read).collect()
}

fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    let written: Vec<_> = entries.into_iter().map(Entry::write).collect();
    if !written.is_empty() {
        object["metadata"]["managedFields"] = Value::Array(written);
    } else if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
}

/// Fields that the server sets, which nobody owns.
fn is_system(path: &Path) -> bool {
    const META: [&str; 11] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    match path.as_slice() {
        [Step::Field(one)] => matches!(&**one, "apiVersion" | "kind" | "metadata"),
        [Step::Field(meta), Step::Field(name), ..] => **meta == *"metadata" && META.contains(&&**name),
        _ => false,
    }
}

fn ownable(fields: FieldSet) -> FieldSet {
    fields.into_iter().filter(|path| !is_system(path)).collect()
}

/// Records an update: the writer owns the changed fields, and no other manager does any more.
pub(crate) fn track_update(old: Option<&Value>, new: &mut Value, schema: &Schema, writer: &Writer<'_>) {
    let given = &new["metadata"]["managedFields"];
    let reset = given.as_array().is_some_and(|entries| entries == &[json!({})]);
    let as_before = old.is_some_and(|old| old["metadata"]["managedFields"] == *given);
    let mut entries = if as_before { Vec::new() } else { read(new) };
    // What a client writes is brought into our own form.
    entries.iter_mut().for_each(|entry| entry.as_read = None);
    if entries.is_empty() && !reset {
        entries = old.map(read).unwrap_or_default();
    }
    let nothing = json!({});
    let (changed, removed) = fields::difference(old.unwrap_or(&nothing), new, schema);
    let changed = ownable(changed);
    for entry in &mut entries {
        let own = entry.is(writer, Operation::Update);
        entry.retain(|path| !removed.contains(path) && (own || !changed.contains(path)));
    }
    if !changed.is_empty() {
        match entries.iter_mut().find(|entry| entry.is(writer, Operation::Update)) {
            Some(own) => {
                own.fields.extend(changed);
                writer.now.clone_into(&mut own.time);
                own.as_read = None;
            }
            None => entries.push(fresh(writer, Operation::Update, changed)),
        }
    }
    write(new, entries);
}

fn fresh(writer: &Writer<'_>, operation: Operation, fields: FieldSet) -> Entry {
    Entry {
        manager: writer.manager.to_owned(),
        operation,
        api_version: writer.api_version.to_owned(),
        subresource: writer.subresource.to_owned(),
        time: writer.now.to_owned(),
        fields,
        as_read: None,
    }
}

/// Applies a configuration to the live object, and returns the result with its managers. It is a conflict if a field
/// changes that another manager owns, unless `force` takes it over.
pub(crate) fn apply(
    live: &Value,
    config: &Value,
    schema: &Schema,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Failure> {
    let mut entries = read(live);
    let wanted = fields::leaves(config, schema).into_keys().collect();
    let wanted = ownable(wanted);
    let place = entries.iter().position(|entry| entry.is(writer, Operation::Apply));
    let before = place.map(|place| entries.remove(place));

    let mut merged = live.clone();
    fields::merge(&mut merged, config, Some(schema));
    if let Some(before) = &before {
        drop_abandoned(&mut merged, schema, &before.fields, &wanted, &entries);
    }

    let (changed, removed) = fields::difference(live, &merged, schema);
    let conflicts: Vec<(usize, Path)> = entries
        .iter()
        .enumerate()
        .flat_map(|(at, entry)| {
            entry
                .fields
                .intersection(&changed)
                .filter(|path| wanted.contains(*path))
                .map(move |path| (at, path.clone()))
        })
        .collect();
    if !conflicts.is_empty() && !force {
        return Err(refused(&conflicts, &entries));
    }
    for entry in &mut entries {
        entry.retain(|path| !(removed.contains(path) || changed.contains(path) && wanted.contains(path)));
    }
    // Who applies the same fields again keeps the time of the first.
    let same = before.filter(|before| before.fields == wanted && before.api_version == writer.api_version);
    let own = same.unwrap_or_else(|| fresh(writer, Operation::Apply, wanted));
    let at = place.unwrap_or(entries.len()).min(entries.len());
    entries.insert(at, own);
    write(&mut merged, entries);
    Ok(merged)
}

/// Removes the fields that the manager owned and no longer applies, if nobody else owns them.
fn drop_abandoned(
    merged: &mut Value,
    schema: &Schema,
    before: &FieldSet,
    wanted: &FieldSet,
    others: &[Entry],
) {
    let mut kept: FieldSet = wanted.clone();
    kept.extend(others.iter().flat_map(|entry| entry.fields.iter().cloned()));
    for path in before.difference(wanted) {
        // A field stays if something below it is still owned.
        let held = kept.range(path.clone()..).next().is_some_and(|next| next.starts_with(path));
        if !held {
            fields::take_out(merged, path, Some(schema), &kept);
        }
    }
}

fn refused(conflicts: &[(usize, Path)], entries: &[Entry]) -> Failure {
    let owner = |at: usize| entries.get(at).map(Entry::shown).unwrap_or_default();
    let causes: Vec<_> = conflicts
        .iter()
        .map(|(at, path)| Cause {
            reason: "FieldManagerConflict",
            field: fields::show(path),
            message: format!("conflict with {}", owner(*at)),
        })
        .collect();
    if let [one] = causes.as_slice() {
        let message = format!("Apply failed with 1 conflict: {}: {}", one.message, one.field);
        return Failure::apply_conflict(message, &causes);
    }
    let mut told = Vec::new();
    for (at, _) in entries.iter().enumerate() {
        let of: Vec<_> = conflicts.iter().filter(|(by, _)| *by == at).collect();
        if !of.is_empty() {
            let paths: Vec<_> = of.iter().map(|(_, path)| format!("- {}", fields::show(path))).collect();
            told.push(format!("conflicts with {}:\n{}", owner(at), paths.join("\n")));
        }
    }
    let message = format!("Apply failed with {} conflicts: {}", causes.len(), told.join("\n"));
    Failure::apply_conflict(message, &causes)
}
