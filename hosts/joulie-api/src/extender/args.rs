//! What filter and prioritize are asked: a pod and the nodes that are left, as names or as whole objects.
//!
//! One pass over the body finds where everything is. A Node object stays its bytes, and only its name is looked for, so
//! that a request with thousands of nodes costs a few allocations. The whole body is checked to be JSON on the way.

use super::BadBody;
use super::members::{Members, text};
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The request.
#[derive(Clone, Debug, Default)]
pub struct Args<'a> {
    /// The pod, as it is in the body.
    pub pod: Option<&'a RawValue>,
    /// The nodes that are left.
    pub candidates: Candidates<'a>,
}

/// The nodes that are left.
#[derive(Clone, Debug, Default)]
pub enum Candidates<'a> {
    /// The request names none.
    #[default]
    None,
    /// Names, as kube-scheduler sends them to an extender with `nodeCacheCapable: true`.
    Names(Vec<Name<'a>>),
    /// Whole objects. They win where a request has both.
    Nodes(Vec<Item<'a>>),
}

/// A text of the body, borrowed where nothing in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name<'a>(Cow<'a, str>);

/// A Node object.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    /// Its name; an object without one cannot be judged, but the others can.
    pub name: Option<Name<'a>>,
    /// The object, as it is in the body.
    pub raw: &'a RawValue,
}

impl<'a> Args<'a> {
    /// Reads a request. `null` and `{}` are requests that say nothing.
    ///
    /// # Errors
    /// When the body is not JSON, has something behind it, has a key twice, or a value of another type.
    pub fn parse(body: &'a [u8]) -> Result<Self, BadBody> {
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        let args = Option::<Self>::deserialize(&mut deserializer).map_err(BadBody::new)?;
        deserializer.end().map_err(BadBody::new)?;
        Ok(args.unwrap_or_default())
    }
}

impl Name<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> From<Cow<'a, str>> for Name<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self(text)
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Owned(text.to_owned())))
    }
}

impl<'de> Deserialize<'de> for Item<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self { name: name_of(raw), raw })
    }
}

/// `metadata.name`, without reading further than that.
fn name_of(object: &RawValue) -> Option<Name<'_>> {
    let metadata = Members::of(object.get())?.find_named("metadata")?;
    let name = text(Members::of(metadata)?.find_named("name")?)?;
    (!name.is_empty()).then_some(Name(name))
}

impl<'de> Deserialize<'de> for Args<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ArgsVisitor)
    }
}

struct ArgsVisitor;

impl<'de> Visitor<'de> for ArgsVisitor {
    type Value = Args<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with Pod, Nodes, NodeNames")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pod: Option<Option<&RawValue>> = None;
        let mut nodes: Option<Option<NodeList<'de>>> = None;
        let mut names: Option<Option<Vec<Name<'de>>>> = None;
        while let Some(key) = map.next_key::<Name<'de>>()? {
            let is = |name: &str| key.as_str().eq_ignore_ascii_case(name);
            if is("Pod") {
                once("Pod", &mut pod, &mut map)?;
            } else if is("Nodes") {
                once("Nodes", &mut nodes, &mut map)?;
            } else if is("NodeNames") {
                once("NodeNames", &mut names, &mut map)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let candidates = match (nodes.flatten(), names.flatten()) {
            (Some(nodes), _) => Candidates::Nodes(nodes.0),
            (None, Some(names)) => Candidates::Names(names),
            (None, None) => Candidates::None,
        };
        Ok(Args { pod: pod.flatten(), candidates })
    }
}

/// Reads the value of a key that must not come again.
fn once<'de, T, A>(key: &'static str, slot: &mut Option<T>, map: &mut A) -> Result<(), A::Error>
where
    T: Deserialize<'de>,
    A: MapAccess<'de>,
{
    if slot.is_some() {
        return Err(A::Error::duplicate_field(key));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

/// The items of a NodeList.
struct NodeList<'a>(Vec<Item<'a>>);

impl<'de> Deserialize<'de> for NodeList<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NodeListVisitor)
    }
}

struct NodeListVisitor;

impl<'de> Visitor<'de> for NodeListVisitor {
    type Value = NodeList<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a NodeList")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut items: Option<Option<Vec<Item<'de>>>> = None;
        while let Some(key) = map.next_key::<Name<'de>>()? {
            if key.as_str().eq_ignore_ascii_case("items") {
                once("items", &mut items, &mut map)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(NodeList(items.flatten().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests;
