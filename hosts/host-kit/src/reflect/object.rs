//! One object as it arrives: its name, and its row or the reason why it has none. Reading never fails.

use crate::events::cut;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// The most bytes that are kept and logged of the reason: it quotes what somebody wrote, which may be huge.
const WHY_MAX: usize = 1024;

/// What a program keeps of an object.
pub trait Row: Sized + Send + Sync + 'static {
    /// The kind, for logs and metrics.
    const KIND: &'static str;
    /// Whether the row uses `metadata.managedFields`. They are the largest part of many objects, so unless they are
    /// used they are not even read, and the object has none.
    const OWNERS: bool;

    /// Reads an object; on failure returns the reason, for the person on call.
    fn read(object: &Value) -> Result<Self, String>;
}

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// A cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
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
    /// Empty if the object has no name, which only a broken server sends.
    pub(super) key: ObjectKey,
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
        let key = ObjectKey { namespace: field("namespace"), name: field("name") };
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
        // The whole object exists only here, one at a time.
        let part = if R::OWNERS { Part::Rest } else { Part::Object };
        part.deserialize(deserializer).map(|value| Self::of(&value))
    }
}

/// The position in an object that is read without its owners.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
    /// Everything below is kept.
    Rest,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::Object | Self::Metadata => deserializer.deserialize_any(self),
            Self::Rest => Value::deserialize(deserializer),
        }
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let part = match (self, name.as_str()) {
                (Self::Object, "metadata") => Self::Metadata,
                (Self::Metadata, "managedFields") => {
                    let _: IgnoredAny = fields.next_value()?;
                    continue;
                }
                (Self::Object | Self::Metadata | Self::Rest, _) => Self::Rest,
            };
            kept.insert(name, fields.next_value_seed(part)?);
        }
        Ok(Value::Object(kept))
    }

    // A value that is not an object is read as it is, so that it is reported as malformed.

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Keeps everything that it is given.
    struct Shown<const OWNERS: bool>(Value);

    impl<const OWNED: bool> Row for Shown<OWNED> {
        const KIND: &'static str = "things";
        const OWNERS: bool = OWNED;

        fn read(object: &Value) -> Result<Self, String> {
            Ok(Self(object.clone()))
        }
    }

    fn shown<const OWNERS: bool>(text: &Value) -> Option<Value> {
        let object: Object<Shown<OWNERS>> = serde_json::from_str(&text.to_string()).unwrap();
        object.row.ok().map(|row| row.0.clone())
    }

    #[test]
    fn owners_are_read_where_a_row_looks_at_them_and_everything_else_always() {
        let rest = json!({"apiVersion": "v1", "metadata": {"name": "a", "labels": {"managedFields": "mine"}},
            "spec": {"managedFields": [1], "metadata": {"managedFields": {}}}, "status": [true, -1, 1.5, null]});
        let mut whole = rest.clone();
        whole["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
        assert_eq!(shown::<true>(&whole), Some(whole.clone()));
        assert_eq!(shown::<false>(&whole), Some(rest));
    }

    #[test]
    fn what_is_no_object_is_malformed_and_no_bad_line() {
        for other in
            [json!(null), json!(3), json!(-3), json!(0.5), json!(true), json!("text"), json!([{"a": 1}])]
        {
            assert_eq!(shown::<false>(&other), None, "{other}");
            assert_eq!(shown::<false>(&json!({"metadata": other})), None, "{other}");
        }
    }
}
