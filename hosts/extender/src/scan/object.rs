//! Reads a Node object's name and labels, and nothing behind them.
//!
//! The object is known to be JSON. If it has another shape, there is no name, and never a panic.

use joulie_api::extender::members::Members;

/// How kube-scheduler begins every Node.
const GO_SHAPE: &str = r#"{"metadata":{"name":"#;

/// `metadata.name` as it is written, without quotes.
pub(super) fn name(node: &str) -> Option<&str> {
    let name = match node.strip_prefix(GO_SHAPE) {
        Some(name) => Some(name),
        None => member(node, "metadata").and_then(|metadata| member(metadata, "name")),
    };
    name.and_then(leading_text)
}

/// Whether the object's label of this name has this value. Neither needs an escape.
pub(crate) fn has_label(node: &[u8], label: &str, value: &str) -> bool {
    let node = std::str::from_utf8(node).unwrap_or_default();
    let labels = member(node, "metadata").and_then(|metadata| member(metadata, "labels"));
    let label = labels.and_then(Members::of).and_then(|labels| labels.find_value(|key| key == label));
    label.and_then(leading_text) == Some(value)
}

/// The value of the first member of this name, in any casing, and what follows it.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    Members::of(object)?.find_value(|key| key.eq_ignore_ascii_case(name))
}

/// The string at the start of this JSON text, as it is written between its quotes.
fn leading_text(json: &str) -> Option<&str> {
    let inside = json.strip_prefix('"')?;
    let (mut at, bytes) = (0, inside.as_bytes());
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return inside.get(..at);
        }
        at += 2;
    }
}
