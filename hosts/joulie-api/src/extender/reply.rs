//! Writes the answers of an extender directly into the body.

use serde_json::value::RawValue;
use std::fmt::{self, Display, Write as _};

/// How the keys of an answer are written. kube-scheduler accepts both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// `NodeNames`, as in the types of the protocol.
    Capital,
    /// `nodenames`, as older extenders of this kind wrote them.
    Small,
}

impl Keys {
    const fn of(self, capital: &'static str, small: &'static str) -> &'static str {
        match self {
            Self::Capital => capital,
            Self::Small => small,
        }
    }
}

/// The nodes that pass, in the form in which the request names them.
#[derive(Clone, Copy, Debug)]
pub enum Survivors<'a> {
    /// The request named none.
    None,
    /// Names.
    Names(&'a [&'a str]),
    /// The objects, as they came.
    Nodes(&'a [&'a RawValue]),
}

/// The answer to filter. A reason is anything that can be displayed.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a, R> {
    /// The nodes that pass.
    pub survivors: Survivors<'a>,
    /// The nodes that fail, but where evicting pods might help.
    pub failed: &'a [(&'a str, R)],
    /// The nodes that fail, and where evicting pods would not help.
    pub unresolvable: &'a [(&'a str, R)],
    /// Why nothing could be decided; empty on success.
    pub error: &'a str,
}

impl<R: Display> Filter<'_, R> {
    /// Writes the answer.
    pub fn write(&self, keys: Keys, out: &mut Vec<u8>) {
        out.push(b'{');
        match self.survivors {
            Survivors::None => {}
            Survivors::Names(names) => {
                key(out, keys.of("NodeNames", "nodenames"));
                list(out, names, string);
                out.push(b',');
            }
            Survivors::Nodes(nodes) => {
                key(out, keys.of("Nodes", "nodes"));
                out.extend_from_slice(b"{\"metadata\":{},\"items\":");
                list(out, nodes, |out, node| out.extend_from_slice(node.get().as_bytes()));
                out.extend_from_slice(b"},");
            }
        }
        key(out, keys.of("FailedNodes", "failedNodes"));
        reasons(out, self.failed);
        out.push(b',');
        key(out, keys.of("FailedAndUnresolvableNodes", "failedAndUnresolvableNodes"));
        reasons(out, self.unresolvable);
        out.push(b',');
        key(out, keys.of("Error", "error"));
        string(out, self.error);
        out.push(b'}');
    }
}

/// Writes the answer to prioritize: the nodes with their scores, in the order of the request.
pub fn write_priorities<'a>(keys: Keys, scores: impl IntoIterator<Item = (&'a str, i64)>, out: &mut Vec<u8>) {
    list(out, scores, |out, (host, score)| {
        out.push(b'{');
        key(out, keys.of("Host", "host"));
        string(out, host);
        out.push(b',');
        key(out, keys.of("Score", "score"));
        number(out, score);
        out.push(b'}');
    });
}

/// Writes a list of items with `write`.
pub(super) fn list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    out.push(b'[');
    separated(out, items, write);
    out.push(b']');
}

pub(super) fn separated<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, item);
    }
}

fn reasons<R: Display>(out: &mut Vec<u8>, reasons: &[(&str, R)]) {
    out.push(b'{');
    separated(out, reasons, |out, (name, reason)| {
        string(out, name);
        out.push(b':');
        string(out, reason);
    });
    out.push(b'}');
}

/// Writes a key that needs no escape.
pub(super) fn key(out: &mut Vec<u8>, key: &str) {
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Writes a text.
pub(super) fn string(out: &mut Vec<u8>, text: impl Display) {
    out.push(b'"');
    // Writing into memory cannot fail; if displaying a text fails, the text ends there.
    let _ = write!(Escaped(out), "{text}");
    out.push(b'"');
}

pub(super) fn number(out: &mut Vec<u8>, number: i64) {
    let _ = write!(Escaped(out), "{number}");
}

/// Escapes what a JSON string must not contain.
struct Escaped<'o>(&'o mut Vec<u8>);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let must = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
        if !text.as_bytes().iter().any(must) {
            self.0.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        for &byte in text.as_bytes() {
            if must(&byte) {
                self.0.extend_from_slice(b"\\u00");
                for nibble in [byte >> 4, byte & 15] {
                    self.0.push(nibble + if nibble < 10 { b'0' } else { b'a' - 10 });
                }
            } else {
                self.0.push(byte);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn filter(filter: &Filter<'_, &str>, keys: Keys) -> Value {
        let mut out = Vec::new();
        filter.write(keys, &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn names_are_answered_with_names() {
        let reply = Filter {
            survivors: Survivors::Names(&["a", "b"]),
            failed: &[("c", "over cap")],
            unresolvable: &[("d", "node is eco")],
            error: "",
        };
        assert_eq!(
            filter(&reply, Keys::Capital),
            json!({"NodeNames": ["a", "b"], "FailedNodes": {"c": "over cap"},
                   "FailedAndUnresolvableNodes": {"d": "node is eco"}, "Error": ""})
        );
        assert_eq!(
            filter(&reply, Keys::Small),
            json!({"nodenames": ["a", "b"], "failedNodes": {"c": "over cap"},
                   "failedAndUnresolvableNodes": {"d": "node is eco"}, "error": ""})
        );
    }

    #[test]
    fn nodes_are_answered_with_the_same_bytes() {
        // Fix list extender B2: a node comes back unchanged.
        let node = r#"{ "metadata":{"name":"a"}, "x":1e400 }"#;
        let raw: &RawValue = serde_json::from_str(node).unwrap();
        let mut out = Vec::new();
        let nodes = [raw];
        let reply = Filter {
            survivors: Survivors::Nodes(&nodes),
            failed: &[("b", "")],
            unresolvable: &[],
            error: "",
        };
        reply.write(Keys::Capital, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!(
                r#"{{"Nodes":{{"metadata":{{}},"items":[{node}]}},"FailedNodes":{{"b":""}},"FailedAndUnresolvableNodes":{{}},"Error":""}}"#
            )
        );
    }

    #[test]
    fn nobody_left_is_an_empty_list_and_no_request_is_none() {
        // Fix list extender B25.
        let reply =
            |survivors| Filter::<&str> { survivors, failed: &[], unresolvable: &[], error: "no cache" };
        assert_eq!(filter(&reply(Survivors::Names(&[])), Keys::Capital)["NodeNames"], json!([]));
        assert_eq!(filter(&reply(Survivors::Nodes(&[])), Keys::Small)["nodes"]["items"], json!([]));
        let none = filter(&reply(Survivors::None), Keys::Capital);
        assert_eq!(none, json!({"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": "no cache"}));
    }

    #[test]
    fn scores_are_whole_numbers_in_the_order_of_the_request() {
        let mut out = Vec::new();
        write_priorities(Keys::Capital, [("b", 41), ("a", -1), ("b", i64::MAX)], &mut out);
        assert_eq!(
            out,
            br#"[{"Host":"b","Score":41},{"Host":"a","Score":-1},{"Host":"b","Score":9223372036854775807}]"#
        );
        out.clear();
        write_priorities(Keys::Small, [("a", 100)], &mut out);
        assert_eq!(out, br#"[{"host":"a","score":100}]"#);
        out.clear();
        write_priorities(Keys::Small, [], &mut out);
        assert_eq!(out, b"[]");
    }

    proptest! {
        #[test]
        fn every_text_survives(text in any::<String>()) {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
