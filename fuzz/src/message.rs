//! Property: for any body the extender gives the same result as `serde_json`, read member by member; and the parts
//! that it finds are in the body, in order.

use extender::probe::{Scanned, ScannedNode, scan};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// The members of an object in order, including repeated ones.
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

/// Parses text; `None` for `null`.
fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Option<T>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl<'a> Members<'a> {
    /// The value of the only member of this name, in any letter case.
    fn only(&self, name: &str) -> Result<Option<&'a str>, String> {
        let mut named = self.0.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let first = named.next().map(|(_, value)| value.get());
        if named.next().is_some() { Err(format!("{name} comes twice")) } else { Ok(first) }
    }

    /// The value of the first member of this name, in any letter case.
    fn first(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.get())
    }
}

/// `metadata.name` of an object; empty if there is none. It may also fail because of a later key that is not text,
/// which the extender does not see because it stops at the name.
fn name(node: &str) -> Result<String, String> {
    let Some(metadata) = read::<Members<'_>>(node)?.and_then(|node| node.first("metadata")) else {
        return Ok(String::new());
    };
    let metadata = if metadata.starts_with('{') { read::<Members<'_>>(metadata)? } else { None };
    let name = metadata.and_then(|metadata| metadata.first("name"));
    Ok(name.and_then(|name| read::<String>(name).ok().flatten()).unwrap_or_default())
}

/// The result of `serde_json`. It does not give the position of a name in a list.
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

/// Stands for a name whose position is unknown.
const UNKNOWN: &str = "unknown";

/// The position of a part in the body.
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
