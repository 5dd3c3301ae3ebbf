//! What filter and prioritize are asked, found in the body without building anything from it.
//!
//! The message itself is read strictly: its keys in any casing, each at most once, nothing behind its end, texts that
//! are UTF-8. A Node object is not judged: it goes back as the bytes that it came as, so only its end and its name
//! are looked for. Its brackets must balance and its strings must end; whether what stands between them is JSON is between
//! the caller and itself.
//!
//! [`joulie_api::extender::Args`] reads the same messages with a parser that checks every byte; a test and a fuzz target
//! hold the two against each other.

mod object;
pub(crate) use object::has_label;
pub(crate) mod wide;

use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::fmt;
use wide::{Span, Strings, Width, space};

/// The request.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) body: &'a [u8],
    /// The pod, as it is in the body. Not looked into yet.
    pub(crate) pod: Option<&'a str>,
    pub(crate) candidates: Candidates,
}

/// The nodes that are left.
#[derive(Debug, Default)]
pub(crate) enum Candidates {
    /// The request names none.
    #[default]
    None,
    /// Names.
    Names(Strings),
    /// Whole objects, which win where a request has both.
    Nodes(Nodes),
}

/// Node objects.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) items: Vec<Item>,
    /// Their names with the quotes, one behind the other. In the body they are kilobytes apart, and who looks at them a
    /// second time there waits for memory each time.
    names: Vec<u8>,
}

/// A Node object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// All of it.
    pub(crate) raw: Span,
    /// The text of its name, without quotes, in [`Message::names`]; empty where it has none.
    pub(crate) name: Span,
    /// Whether a backslash is in the name.
    pub(crate) escaped: bool,
}

/// Why a body is no request. Its text is what the caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    why: String,
}

impl Malformed {
    pub(crate) fn new(why: impl fmt::Display) -> Self {
        Self { why: why.to_string() }
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

/// The text between two quotes. All of `body` is known to be UTF-8.
pub(crate) fn text<'a>(body: &'a [u8], span: Span, escaped: bool) -> Cow<'a, str> {
    let inside = span.of(body);
    if escaped && inside.contains(&b'\\') {
        let quoted = span
            .start
            .checked_sub(1)
            .and_then(|start| Span { start, end: span.end.saturating_add(1) }.of(body).into());
        let read = quoted.and_then(|quoted| serde_json::from_slice::<String>(quoted).ok());
        return Cow::Owned(read.unwrap_or_default());
    }
    // The whole body was found to be UTF-8, and a quote is a boundary.
    Cow::Borrowed(std::str::from_utf8(inside).unwrap_or_default())
}

impl<'a> Message<'a> {
    /// Reads a body. `null` and `{}` are requests that say nothing.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        Self::read_by(Width::widest(), body)
    }

    pub(crate) fn read_by(width: Width, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { width, body, at: 0, items_high: false, ascii: (0, 0) };
        let found = reader.message()?;
        reader.at = space(body, reader.at);
        if reader.at != body.len() {
            return Err(Malformed::at("the end", reader.at));
        }
        reader.check_text()?;
        let candidates = match (found.nodes, found.names) {
            (Some(Some(nodes)), _) => Candidates::Nodes(nodes),
            (_, Some(Some(names))) => Candidates::Names(names),
            (Some(None) | None, Some(None) | None) => Candidates::None,
        };
        let pod = match found.pod.flatten() {
            None => None,
            Some(pod) => Some(std::str::from_utf8(pod.of(body)).map_err(Malformed::new)?),
        };
        let message = Self { body, pod, candidates };
        message.check_names()?;
        Ok(message)
    }

    /// Where the names of the candidates are, each between its quotes.
    pub(crate) fn names(&self) -> &[u8] {
        match &self.candidates {
            Candidates::None | Candidates::Names(_) => self.body,
            Candidates::Nodes(nodes) => &nodes.names,
        }
    }

    /// An escape that is none is found when its name is decoded.
    fn check_names(&self) -> Result<(), Malformed> {
        let Candidates::Names(names) = &self.candidates else { return Ok(()) };
        if !names.escaped {
            return Ok(());
        }
        for span in &names.spans {
            let quoted = span.range().start.saturating_sub(1)..span.range().end.saturating_add(1);
            serde_json::from_slice::<Cow<'_, str>>(self.body.get(quoted).unwrap_or_default())
                .map_err(Malformed::new)?;
        }
        Ok(())
    }
}

/// What stands under the three keys; the outer option says whether the key was there.
#[derive(Default)]
struct Found {
    pod: Option<Option<Span>>,
    nodes: Option<Option<Nodes>>,
    names: Option<Option<Strings>>,
}

struct Reader<'a> {
    width: Width,
    body: &'a [u8],
    at: usize,
    /// Whether an item has bytes that are not ASCII.
    items_high: bool,
    /// A stretch that was looked at, and is ASCII but for such items.
    ascii: (usize, usize),
}

/// Room for as many elements as a body of this length is likely to have, so that a list rarely grows: a name in its
/// quotes has some 32 bytes, a Node 4 KiB or more. A body that lies about it cannot ask for more than the bound.
const NAME_BYTES: usize = 32;
const NODE_BYTES: usize = 4096;
const ROOM_MAX: usize = 8192;

impl<'a> Reader<'a> {
    fn message(&mut self) -> Result<Found, Malformed> {
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

    /// All of the text that is not known to be ASCII must be UTF-8.
    fn check_text(&self) -> Result<(), Malformed> {
        let (first, last) = self.ascii;
        let is_ascii = |part: Option<&[u8]>| part.is_none_or(<[u8]>::is_ascii);
        if self.items_high || !is_ascii(self.body.get(..first)) || !is_ascii(self.body.get(last..)) {
            std::str::from_utf8(self.body).map_err(Malformed::new)?;
        }
        Ok(())
    }

    fn next(&mut self) -> Option<u8> {
        self.at = space(self.body, self.at);
        self.body.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8, expected: &str) -> Result<(), Malformed> {
        if self.next() != Some(byte) {
            return Err(Malformed::at(expected, self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Whether `null` is next; if so, it is read.
    fn null(&mut self) -> bool {
        self.next();
        let is = self.body.get(self.at..).is_some_and(|rest| rest.starts_with(b"null"));
        self.at += if is { 4 } else { 0 };
        is
    }

    fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.null() { Ok(None) } else { read(self).map(Some) }
    }

    /// Reads an object's members; `each` reads the value of the key that it is given.
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
            let key = self.key()?;
            self.expect(b':', "a colon")?;
            each(self, &key)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) | None => return Err(Malformed::at("a comma or the end of an object", self.at)),
            }
        }
    }

    /// A text with its quotes.
    fn string(&mut self) -> Result<Span, Malformed> {
        self.expect(b'"', "a text")?;
        let start = self.at - 1;
        let end =
            wide::string_end(self.body, self.at).ok_or_else(|| Malformed::at("the end of a text", start))?;
        self.at = end.quote + 1;
        self.span(start)
    }

    /// The name of a member; borrowed where nothing in it is escaped.
    fn key(&mut self) -> Result<Cow<'a, str>, Malformed> {
        let quoted = self.string()?.of(self.body);
        let inside = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        if inside.contains(&b'\\') {
            return serde_json::from_slice(quoted).map(Cow::Owned).map_err(Malformed::new);
        }
        std::str::from_utf8(inside).map(Cow::Borrowed).map_err(Malformed::new)
    }

    /// From `start` to here.
    fn span(&self, start: usize) -> Result<Span, Malformed> {
        Span::new(start, self.at).ok_or_else(|| Malformed::new("it is too long"))
    }

    /// An object that is not looked into.
    fn object(&mut self) -> Result<Span, Malformed> {
        self.next();
        let start = self.at;
        self.brackets(b'{', "an object")?;
        self.span(start)
    }

    fn brackets(&mut self, open: u8, expected: &str) -> Result<bool, Malformed> {
        let start = self.at;
        if self.body.get(start) != Some(&open) {
            return Err(Malformed::at(expected, start));
        }
        let end = self.width.brackets_end(self.body, start);
        let end = end.ok_or_else(|| Malformed::at("an end of what begins", start))?;
        // The bracket that closes differs from the one that opens by two.
        if self.body.get(end.end - 1) != Some(&(open + 2)) {
            return Err(Malformed::at("the same kind of bracket", end.end - 1));
        }
        self.at = end.end;
        Ok(end.high)
    }

    /// A value of any kind, which is checked and forgotten.
    fn anything(&mut self) -> Result<(), Malformed> {
        let first = self.next();
        let start = self.at;
        match first {
            Some(open @ (b'{' | b'[')) => drop(self.brackets(open, "a value")?),
            Some(b'"') => drop(self.string()?),
            Some(_) | None => {
                let rest = self.body.get(start..).unwrap_or_default();
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        let value = self.body.get(start..self.at).unwrap_or_default();
        serde_json::from_slice::<IgnoredAny>(value).map_err(Malformed::new)?;
        Ok(())
    }

    fn names(&mut self) -> Result<Strings, Malformed> {
        self.expect(b'[', "a list of names")?;
        let mut names = Strings { spans: Vec::with_capacity(self.room(NAME_BYTES)), ..Strings::default() };
        let end = self.width.strings(self.body, self.at, &mut names);
        self.at = end.ok_or_else(|| {
            let last = names.spans.last().map_or(self.at, |span| span.range().end);
            Malformed::at("a list of names that goes on or ends", last)
        })?;
        self.ascii = names.ascii;
        Ok(names)
    }

    fn room(&self, each: usize) -> usize {
        (self.body.len() / each + 1).min(ROOM_MAX)
    }

    fn node_list(&mut self) -> Result<Nodes, Malformed> {
        let mut nodes: Option<Option<Nodes>> = None;
        self.members(|reader, key| {
            if key.eq_ignore_ascii_case("items") {
                once("items", &mut nodes, || reader.optional(Self::items))
            } else {
                reader.anything()
            }
        })?;
        Ok(nodes.flatten().unwrap_or_default())
    }

    fn items(&mut self) -> Result<Nodes, Malformed> {
        self.expect(b'[', "a list of nodes")?;
        let room = self.room(NODE_BYTES);
        // Twice as much for the names, as for a list that must not grow.
        let mut nodes =
            Nodes { items: Vec::with_capacity(room), names: Vec::with_capacity(room * 2 * NAME_BYTES) };
        let begins = self.at;
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(nodes);
        }
        loop {
            self.item(&mut nodes)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.ascii = (begins, self.at);
                    self.at += 1;
                    return Ok(nodes);
                }
                Some(_) | None => return Err(Malformed::at("a comma or the end of a list", self.at)),
            }
        }
    }

    fn item(&mut self, nodes: &mut Nodes) -> Result<(), Malformed> {
        self.next();
        let start = self.at;
        if !self.null() {
            self.items_high |= self.brackets(b'{', "a node")?;
        }
        let raw = self.span(start)?;
        let (there, escaped) = object::name(self.width, self.body, raw);
        let begins = nodes.names.len() + 1;
        if let Some(quoted) = there.quoted(self.body) {
            nodes.names.extend_from_slice(quoted);
        }
        let ends = begins + there.range().len();
        let name = Span::new(begins, ends).ok_or_else(|| Malformed::new("it is too long"))?;
        nodes.items.push(Item { raw, name, escaped });
        Ok(())
    }
}

/// Reads the value of a key that must not come again.
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
