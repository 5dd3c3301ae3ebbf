//! One object as it arrives: its name, and its row or why it has none. Reading one never fails.

use crate::events::cut;
use serde::de::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// What is kept and logged of why an object is malformed, in bytes: it quotes what somebody wrote, which may be huge.
const WHY_MAX: usize = 1024;

/// What a program keeps of an object.
pub trait Row: Sized + Send + Sync + 'static {
    /// The kind, for logs and metrics.
    const KIND: &'static str;

    /// Reads an object; why it is none, for the person on call.
    fn read(object: &Value) -> Result<Self, String>;
}

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace; empty for one that is the whole cluster's.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// An object of the whole cluster's.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// An object that arrived.
#[derive(Debug)]
pub(super) struct Object<R> {
    /// Empty where it has no name, which only a broken server sends.
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) row: Result<Arc<R>, String>,
}

impl<R> Clone for Object<R> {
    fn clone(&self) -> Self {
        let Self { key, uid, version, row } = self;
        Self { key: key.clone(), uid: uid.clone(), version: version.clone(), row: row.clone() }
    }
}

impl<R: Row> Object<R> {
    pub(super) fn of(value: &Value) -> Self {
        let field = |name: &str| value["metadata"][name].as_str().unwrap_or_default().to_owned();
        let key = Key { namespace: field("namespace"), name: field("name") };
        let row = if key.name.is_empty() {
            Err("it has no metadata.name".to_owned())
        } else {
            R::read(value).map(Arc::new).map_err(|why| cut(&why, WHY_MAX).to_owned())
        };
        Self { key, uid: field("uid"), version: field("resourceVersion"), row }
    }
}

impl<'de, R: Row> Deserialize<'de> for Object<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The whole object lives only here, one at a time.
        Value::deserialize(deserializer).map(|value| Self::of(&value))
    }
}
