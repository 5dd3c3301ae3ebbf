//! A served kind, and the registry of all kinds.

mod builtin;
mod custom;

pub(crate) use builtin::registry;
pub(crate) use custom::custom;

use crate::jsonpath::JsonPath;
use crate::schema::{Definitions, Schema};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the server does beyond storing objects of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    Plain,
    /// A controller of pods: the server maintains `metadata.generation`.
    Workload,
    Node,
    Pod,
    Namespace,
    Lease,
    Event,
    /// `events.k8s.io`: a view of the core events.
    EventView,
    Budget,
    /// A custom resource definition: creating one serves its kind.
    Definition,
    /// A custom resource.
    Custom,
}

/// One served kind.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether there is a status subresource.
    pub(crate) status: bool,
    pub(crate) flavour: Flavour,
    /// `nodes`, `nodetwins.joulie.io`: the resource under which the store keeps the objects.
    pub(crate) resource: Arc<str>,
    pub(crate) schema: Arc<Schema>,
    /// The name of its schema in the OpenAPI document, and for a custom kind the schema itself.
    pub(crate) openapi: (String, Option<Value>),
    pub(crate) columns: Vec<Column>,
    /// The selectable fields besides name and namespace.
    pub(crate) selectable: Vec<(String, JsonPath)>,
}

/// One column of `kubectl get`.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) of: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i32,
    pub(crate) cell: Cell,
}

/// The source of a cell.
#[derive(Debug)]
pub(crate) enum Cell {
    Path(JsonPath),
    Of(fn(&Value, Timestamp) -> Value),
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `NodeTwin.joulie.io`, `Node`.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether a change of the specification increments `metadata.generation`.
    pub(crate) fn counts_generations(&self) -> bool {
        matches!(self.flavour, Flavour::Custom | Flavour::Budget | Flavour::Workload | Flavour::Definition)
    }

    /// Whether an update may leave out the resource version.
    pub(crate) fn updates_unconditionally(&self) -> bool {
        !matches!(self.flavour, Flavour::Custom | Flavour::Lease | Flavour::Budget | Flavour::Definition)
    }

    /// The subresources besides `status`.
    pub(crate) fn subresources(&self) -> &'static [&'static str] {
        if self.flavour == Flavour::Pod { &["binding", "eviction"] } else { &[] }
    }
}

/// All served kinds.
pub(crate) struct Registry {
    /// By group, version and plural.
    kinds: BTreeMap<(String, String, String), Arc<Kind>>,
    pub(crate) definitions: Definitions,
}

impl Registry {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    /// The groups and versions, the core first.
    pub(crate) fn group_versions(&self) -> Vec<(String, String)> {
        let mut found: Vec<_> = self.all().map(|kind| (kind.group.clone(), kind.version.clone())).collect();
        found.dedup();
        found
    }

    pub(crate) fn serve(&mut self, kind: Kind) {
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.kinds.insert(key, Arc::new(kind));
    }

    /// Stops serving a custom kind.
    pub(crate) fn forget(&mut self, group: &str, plural: &str) {
        self.kinds
            .retain(|(of, _, name), kind| of != group || name != plural || kind.flavour != Flavour::Custom);
    }
}
