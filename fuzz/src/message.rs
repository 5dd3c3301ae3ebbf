//! Property: of any body the extender says what `serde_json` says, read member by member; and what it finds lies in the
//! body, one behind the other.

use extender::probe::{Scanned, ScannedNode, scan};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// The members of an object, in order, those that come twice among them.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Reads text, or nothing of `null`.
fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Option<T>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl<'a> Members<'a> {
    /// The value of the one member of this name, in any casing.
    fn only(&self, name: &str) -> Result<Option<&'a str>, String> {
        let mut named = self.0.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let first = named.next().map(|(_, value)| value.get());
        if named.next().is_some() { Err(format!("{name} comes twice")) } else { Ok(first) }
    }

    /// The value of the first member of this name, in any casing.
    fn first(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.get())
    }
}

/// `metadata.name` of an object; empty where there is none. An error where a key behind it may be no text: whoever stops at the name
/// does not see that.
fn name(node: &str) -> Result<String, String> {
    let Some(metadata) = read::<Members<'_>>(node)?.and_then(|node| node.first("metadata")) else {
        return Ok(String::new());
    };
    let metadata = if metadata.starts_with('{') { read::<Members<'_>>(metadata)? } else { None };
    let name = metadata.and_then(|metadata| metadata.first("name"));
    Ok(name.and_then(|name| read::<String>(name).ok().flatten()).unwrap_or_default())
}

/// What `serde_json` says. It does not tell where a name of a list is.
fn careful(body: &str) -> Result<Scanned, String> {
    let Members(message) = read(body)?.unwrap_or(Members(Vec::new()));
    let message = Members(message);
    let (pod, nodes, names) = (message.only("Pod")?, message.only("Nodes")?, message.only("NodeNames")?);
    let pod = pod.filter(|pod| *pod != "null").map(str::to_owned);
    if pod.as_ref().is_some_and(|pod| !pod.starts_with('{')) {
        return Err("a pod is an object".to_owned());
    }
    let names: Option<Vec<String>> = read(names.unwrap_or("null"))?;
    let listed = names.unwrap_or_default().into_iter().map(|name| ScannedNode { name, raw: 0..0 }).collect();
    let Some(nodes) = read::<Members<'_>>(nodes.unwrap_or("null"))? else {
        return Ok(Scanned { pod, candidates: listed });
    };
    let items: Option<Vec<&RawValue>> = read(nodes.only("items")?.unwrap_or("null"))?;
    let mut candidates = Vec::new();
    for item in items.unwrap_or_default() {
        let node = item.get();
        if !node.starts_with('{') && node != "null" {
            return Err("a node is an object".to_owned());
        }
        candidates
            .push(ScannedNode { name: name(node).unwrap_or(UNKNOWN.to_owned()), raw: place(body, node) });
    }
    Ok(Scanned { pod, candidates })
}

/// In place of a name that cannot be told.
const UNKNOWN: &str = "unknown";

/// Where a part of the body is in it.
fn place(body: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(body.as_ptr().addr());
    start..start + part.len()
}

pub(crate) fn run(body: &[u8]) {
    let found = scan(body);
    let careful = std::str::from_utf8(body).map_err(|error| error.to_string()).and_then(careful);
    match (found, careful) {
        (Ok(mut found), Ok(careful)) => {
            let mut last = 0;
            for candidate in &found.candidates {
                assert!(candidate.raw.start >= last && candidate.raw.end <= body.len(), "{candidate:?}");
                last = candidate.raw.end;
            }
            for (found, careful) in found.candidates.iter_mut().zip(&careful.candidates) {
                if careful.raw == (0..0) {
                    found.raw = 0..0;
                }
                if careful.name == UNKNOWN {
                    found.name = UNKNOWN.to_owned();
                }
            }
            assert_eq!(found, careful);
        }
        (Err(_), Err(_)) => {}
        (Ok(_), Err(why)) => panic!("the extender takes what is refused: {why}"),
        (Err(why), Ok(_)) => panic!("the extender refuses a request: {why}"),
    }
}
