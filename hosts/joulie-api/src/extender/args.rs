//! What filter and prioritize are asked: a pod and the nodes that are left, as names or as whole objects.
//!
//! One pass over the body finds where everything is. A Node object stays its bytes, and only its name is looked for, so
//! that a request with thousands of nodes costs a few allocations. The whole body is checked to be JSON on the way.

use super::BadBody;
use super::members::{Members, text};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

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
        let seed = OrNull(ArgsVisitor { bytes: body.len() });
        let args = seed.deserialize(&mut deserializer).map_err(BadBody::new)?;
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

/// Room for as many elements as a body of this length is likely to have, so that a list rarely grows: a name in its
/// quotes has some 32 bytes, a Node some 8 KiB. A body that lies about it cannot ask for more than the bound.
const fn room(bytes: usize, each: usize) -> usize {
    let elements = bytes / each + 1;
    if elements < ROOM_MAX { elements } else { ROOM_MAX }
}

const NAME_BYTES: usize = 32;
const NODE_BYTES: usize = 8192;
const ROOM_MAX: usize = 8192;

/// What a seed reads, or nothing where there is `null`.
struct OrNull<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// A list with room for so many elements from the start.
struct List<T> {
    room: usize,
    of: PhantomData<T>,
}

impl<T> List<T> {
    const fn new(room: usize) -> OrNull<Self> {
        OrNull(Self { room, of: PhantomData })
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for List<T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::with_capacity(self.room);
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(list)
    }
}

struct ArgsVisitor {
    bytes: usize,
}

impl<'de> DeserializeSeed<'de> for ArgsVisitor {
    type Value = Args<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ArgsVisitor {
    type Value = Args<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with Pod, Nodes, NodeNames")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pod: Option<Option<&RawValue>> = None;
        let mut nodes: Option<Option<Vec<Item<'de>>>> = None;
        let mut names: Option<Option<Vec<Name<'de>>>> = None;
        while let Some(key) = map.next_key::<Name<'de>>()? {
            let is = |name: &str| key.as_str().eq_ignore_ascii_case(name);
            if is("Pod") {
                once("Pod", PhantomData, &mut pod, &mut map)?;
            } else if is("Nodes") {
                once("Nodes", OrNull(NodeList { bytes: self.bytes }), &mut nodes, &mut map)?;
            } else if is("NodeNames") {
                once("NodeNames", List::new(room(self.bytes, NAME_BYTES)), &mut names, &mut map)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let candidates = match (nodes.flatten(), names.flatten()) {
            (Some(nodes), _) => Candidates::Nodes(nodes),
            (None, Some(names)) => Candidates::Names(names),
            (None, None) => Candidates::None,
        };
        Ok(Args { pod: pod.flatten(), candidates })
    }
}

/// Reads the value of a key that must not come again.
fn once<'de, S, A>(
    key: &'static str,
    seed: S,
    slot: &mut Option<S::Value>,
    map: &mut A,
) -> Result<(), A::Error>
where
    S: DeserializeSeed<'de>,
    A: MapAccess<'de>,
{
    if slot.is_some() {
        return Err(A::Error::duplicate_field(key));
    }
    *slot = Some(map.next_value_seed(seed)?);
    Ok(())
}

/// Reads the items of a NodeList.
struct NodeList {
    bytes: usize,
}

impl<'de> DeserializeSeed<'de> for NodeList {
    type Value = Vec<Item<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NodeList {
    type Value = Vec<Item<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a NodeList")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut items: Option<Option<Vec<Item<'de>>>> = None;
        while let Some(key) = map.next_key::<Name<'de>>()? {
            if key.as_str().eq_ignore_ascii_case("items") {
                once("items", List::new(room(self.bytes, NODE_BYTES)), &mut items, &mut map)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(items.flatten().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
