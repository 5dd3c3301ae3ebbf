//! Parses the requests of filter and prioritize in the body, without a copy.
//!
//! Everything is read strictly: keys in any letter case, each at most once, nothing after the end, UTF-8 text. A Node
//! object is returned as the bytes that were received: `serde_json` checks that it is JSON, and only its name is
//! read. A list of names, which a scheduler sends that caches nodes, is scanned for quotes (docs/adr/0010).

mod object;
pub(crate) use object::has_label;
mod span;
pub(crate) use span::Span;

use joulie_api::extender::Name;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Error};
use std::borrow::Cow;
use std::fmt;

/// The request.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) body: &'a [u8],
    /// The pod as it is in the body, not parsed yet.
    pub(crate) pod: Option<&'a RawValue>,
    pub(crate) candidates: Candidates,
}

/// The candidate nodes.
#[derive(Debug, Default)]
pub(crate) enum Candidates {
    /// The request names none.
    #[default]
    None,
    /// Names.
    Names(Names),
    /// Whole objects. They take precedence if a request has both.
    Nodes(Vec<Item>),
}

/// A list of names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Each name, without its quotes.
    pub(crate) spans: Vec<Span>,
    /// Whether any name has a backslash.
    pub(crate) escaped: bool,
}

/// A Node object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// The whole object.
    pub(crate) raw: Span,
    /// Its name, without quotes; empty if it has none.
    pub(crate) name: Span,
    /// Whether the name has a backslash.
    pub(crate) escaped: bool,
}

/// Why a body is no valid request. The text is sent to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    why: String,
}

impl Malformed {
    pub(crate) fn new(why: impl fmt::Display) -> Self {
        Self { why: why.to_string() }
    }

    /// A body of another message, which says so itself.
    pub(crate) fn of(bad: &joulie_api::extender::BadBody) -> Self {
        let why = bad.to_string();
        Self { why: why.strip_prefix("malformed body: ").map_or_else(|| why.clone(), str::to_owned) }
    }

    fn at(expected: &str, at: usize) -> Self {
        Self::new(format_args!("expected {expected} at byte {at}"))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed body: {}", self.why)
    }
}

/// The text between two quotes of a parsed body.
pub(crate) fn text(body: &[u8], span: Span, escaped: bool) -> Cow<'_, str> {
    let inside = span.of(body);
    if escaped && inside.contains(&b'\\') {
        let read = span.quoted(body).and_then(|quoted| serde_json::from_slice(quoted).ok());
        return Cow::Owned(read.unwrap_or_default());
    }
    Cow::Borrowed(std::str::from_utf8(inside).unwrap_or_default())
}

impl<'a> Message<'a> {
    /// Reads a body. `null` and `{}` are valid requests without content.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { body, at: 0 };
        let found = reader.message()?;
        if reader.next().is_some() {
            return Err(Malformed::at("the end", reader.at));
        }
        let candidates = match (found.nodes.flatten(), found.names.flatten()) {
            (Some(nodes), _) => Candidates::Nodes(nodes),
            (None, Some(names)) => Candidates::Names(names),
            (None, None) => Candidates::None,
        };
        Ok(Self { body, pod: found.pod.flatten(), candidates })
    }
}

/// The values of the three keys. The outer option says whether the key was present.
#[derive(Default)]
struct Found<'a> {
    pod: Option<Option<&'a RawValue>>,
    nodes: Option<Option<Vec<Item>>>,
    names: Option<Option<Names>>,
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

/// Memory is reserved for as many elements as a body of this length is likely to have, so that a list rarely grows: a
/// name in quotes has some 32 bytes, a Node 4 KiB or more. `ROOM_MAX` bounds the reservation, whatever the body says.
const NAME_BYTES: usize = 32;
const NODE_BYTES: usize = 4096;
const ROOM_MAX: usize = 8192;

impl<'a> Reader<'a> {
    fn message(&mut self) -> Result<Found<'a>, Malformed> {
        let mut found = Found::default();
        if self.null() {
            return Ok(found);
        }
        self.members(|reader, key| {
            let is = |name: &str| key.eq_ignore_ascii_case(name);
            if is("Pod") {
                once("Pod", &mut found.pod, || reader.optional(Self::object))
            } else if is("Nodes") {
                once("Nodes", &mut found.nodes, || reader.optional(Self::node_list))
            } else if is("NodeNames") {
                once("NodeNames", &mut found.names, || reader.optional(Self::names))
            } else {
                reader.anything()
            }
        })?;
        Ok(found)
    }

    /// The remaining body, from the next token on.
    fn rest(&mut self) -> &'a [u8] {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let space = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.at += space;
        rest.get(space..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn expect(&mut self, byte: u8, expected: &str) -> Result<(), Malformed> {
        if self.next() != Some(byte) {
            return Err(Malformed::at(expected, self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads `null` if it is next, and returns whether it was.
    fn null(&mut self) -> bool {
        let is = self.rest().starts_with(b"null");
        self.at += if is { 4 } else { 0 };
        is
    }

    fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.null() { Ok(None) } else { read(self).map(Some) }
    }

    /// Whether another element follows the one that was read; false at the end.
    fn goes_on(&mut self, end: u8, expected: &str) -> Result<bool, Malformed> {
        let next = self.next();
        if next != Some(b',') && next != Some(end) {
            return Err(Malformed::at(expected, self.at));
        }
        self.at += 1;
        Ok(next == Some(b','))
    }

    /// Reads an object's members; `each` reads the value of the given key.
    fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, &str) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.expect(b'{', "an object")?;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key: Name<'_> = self.value()?;
            self.expect(b':', "a colon")?;
            each(self, key.as_str())?;
            if !self.goes_on(b'}', "a comma or the end of an object")? {
                return Ok(());
            }
        }
    }

    /// A value of any kind, as `serde_json` reads it.
    fn value<T: Deserialize<'a>>(&mut self) -> Result<T, Malformed> {
        let mut values = Deserializer::from_slice(self.rest()).into_iter();
        let value = values.next().ok_or_else(|| Malformed::at("a value", self.at))?;
        let value = value.map_err(|error| self.refused(&error))?;
        self.at += values.byte_offset();
        Ok(value)
    }

    /// Converts an error of `serde_json` for the value that begins here; it counts lines and columns from there.
    fn refused(&self, error: &Error) -> Malformed {
        Malformed::new(format_args!("in the value that begins at byte {}: {error}", self.at))
    }

    /// An object, not parsed further.
    fn object(&mut self) -> Result<&'a RawValue, Malformed> {
        if self.next() != Some(b'{') {
            return Err(Malformed::at("an object", self.at));
        }
        self.value()
    }

    /// Checks a value of any kind and discards it.
    fn anything(&mut self) -> Result<(), Malformed> {
        // As raw text, so that UTF-8 is checked too.
        self.value::<&RawValue>().map(drop)
    }

    fn names(&mut self) -> Result<Names, Malformed> {
        self.expect(b'[', "a list of names")?;
        let (begins, mut names) = (self.at, Names::default());
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(names);
        }
        names.spans.reserve(self.room(NAME_BYTES));
        loop {
            names.spans.push(self.name(&mut names.escaped)?);
            if !self.goes_on(b']', "a list of names that goes on or ends")? {
                break;
            }
        }
        let list = self.body.get(begins..self.at).unwrap_or_default();
        let controls = list.iter().fold(false, |found, byte| found | (*byte < b' '));
        if names.escaped || controls {
            for quoted in names.spans.iter().filter_map(|span| span.quoted(self.body)) {
                serde_json::from_slice::<Name<'_>>(quoted).map_err(Malformed::new)?;
            }
        }
        std::str::from_utf8(list).map_err(Malformed::new)?;
        Ok(names)
    }

    /// A name. Only its quotes are searched for.
    fn name(&mut self, escaped: &mut bool) -> Result<Span, Malformed> {
        if self.next() != Some(b'"') {
            return Err(Malformed::at("a name", self.at));
        }
        let start = self.at + 1;
        self.at = start;
        loop {
            let rest = self.body.get(self.at..).unwrap_or_default();
            let found = memchr::memchr2(b'"', b'\\', rest);
            let found = found.ok_or_else(|| Malformed::at("the end of the name that begins", start))?;
            self.at += found + 1;
            if rest.get(found) == Some(&b'"') {
                return span(start, self.at - 1);
            }
            // The escaped byte does not end the name.
            *escaped = true;
            self.at += 1;
        }
    }

    fn room(&self, each: usize) -> usize {
        (self.body.len() / each + 1).min(ROOM_MAX)
    }

    fn node_list(&mut self) -> Result<Vec<Item>, Malformed> {
        let mut nodes: Option<Option<Vec<Item>>> = None;
        self.members(|reader, key| {
            if key.eq_ignore_ascii_case("items") {
                once("items", &mut nodes, || reader.optional(Self::items))
            } else {
                reader.anything()
            }
        })?;
        Ok(nodes.flatten().unwrap_or_default())
    }

    fn items(&mut self) -> Result<Vec<Item>, Malformed> {
        let items = Items { body: self.body, room: self.room(NODE_BYTES) };
        let mut deserializer = Deserializer::from_slice(self.rest());
        let items = items.deserialize(&mut deserializer).map_err(|error| self.refused(&error))?;
        self.at += deserializer.into_iter::<IgnoredAny>().byte_offset();
        Ok(items)
    }
}

fn span(start: usize, end: usize) -> Result<Span, Malformed> {
    Span::new(start, end).ok_or_else(|| Malformed::new(TOO_LONG))
}

/// Reads the Node objects of a list in a body.
struct Items<'a> {
    body: &'a [u8],
    room: usize,
}

impl<'de> DeserializeSeed<'de> for Items<'de> {
    type Value = Vec<Item>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items<'de> {
    type Value = Vec<Item>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::with_capacity(self.room);
        while let Some(node) = nodes.next_element::<&RawValue>()? {
            items.push(self.item(node.get()).map_err(A::Error::custom)?);
        }
        Ok(items)
    }
}

impl Items<'_> {
    /// A Node, which is a part of the body.
    fn item(&self, node: &str) -> Result<Item, &'static str> {
        if !node.starts_with('{') && node != "null" {
            return Err("a node is an object");
        }
        let place = |text: &str| {
            let start = text.as_ptr().addr().checked_sub(self.body.as_ptr().addr())?;
            Span::new(start, start.checked_add(text.len())?)
        };
        let raw = place(node).ok_or(TOO_LONG)?;
        let Some(name) = object::name(node) else {
            return Ok(Item { raw, name: Span { start: raw.start, end: raw.start }, escaped: false });
        };
        Ok(Item { raw, name: place(name).ok_or(TOO_LONG)?, escaped: name.contains('\\') })
    }
}

const TOO_LONG: &str = "it is too long";

/// Reads the value of a key that may occur only once.
fn once<T>(
    key: &str,
    slot: &mut Option<T>,
    read: impl FnOnce() -> Result<T, Malformed>,
) -> Result<(), Malformed> {
    if slot.is_some() {
        return Err(Malformed::new(format_args!("duplicate field `{key}`")));
    }
    *slot = Some(read()?);
    Ok(())
}

#[cfg(test)]
mod tests;
