//! A Node object's name and labels, without reading further than them.
//!
//! What is not JSON gives no name, and never a panic.

use super::wide::{Span, Width, space};
use std::borrow::Cow;

/// How kube-scheduler begins every Node.
const GO_SHAPE: &[u8] = br#"{"metadata":{"name":""#;

/// The text of `metadata.name` and whether it has a backslash; empty where there is none.
pub(super) fn name(width: Width, body: &[u8], object: Span) -> (Span, bool) {
    let none = (Span { start: object.start, end: object.start }, false);
    let bytes = object.of(body);
    let found = if bytes.starts_with(GO_SHAPE) {
        width.string_end(bytes, GO_SHAPE.len()).map(|end| (GO_SHAPE.len(), end))
    } else {
        member(width, bytes, 0, "metadata").and_then(|at| member(width, bytes, at, "name")).and_then(|at| {
            let inside = at + 1;
            (bytes.get(at) == Some(&b'"'))
                .then(|| width.string_end(bytes, inside))
                .flatten()
                .map(|end| (inside, end))
        })
    };
    let base = object.range().start;
    let span = found.and_then(|(start, end)| Some((Span::new(base + start, base + end.quote)?, end.escaped)));
    span.unwrap_or(none)
}

/// Whether the object's label of this name has this value. Neither needs an escape.
pub(crate) fn has_label(object: &[u8], label: &str, value: &str) -> bool {
    let width = Width::widest();
    let labels = member(width, object, 0, "metadata").and_then(|at| member(width, object, at, "labels"));
    let Some(at) = labels.and_then(|at| exact_member(width, object, at, label)) else { return false };
    let Some(end) = width.string_end(object, at + 1) else { return false };
    object.get(at) == Some(&b'"') && object.get(at + 1..end.quote) == Some(value.as_bytes())
}

/// Where the value of the first member of this name begins, in any casing, in the object that begins at `at`.
fn member(width: Width, bytes: &[u8], at: usize, name: &str) -> Option<usize> {
    find(width, bytes, at, |key| key.eq_ignore_ascii_case(name))
}

fn exact_member(width: Width, bytes: &[u8], at: usize, name: &str) -> Option<usize> {
    find(width, bytes, at, |key| key == name)
}

fn find(width: Width, bytes: &[u8], at: usize, is: impl Fn(&str) -> bool) -> Option<usize> {
    let mut at = space(bytes, at);
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    loop {
        at = space(bytes, at + 1);
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let end = width.string_end(bytes, at + 1)?;
        let key = bytes.get(at..=end.quote)?;
        let key: Cow<'_, str> = match end.escaped {
            true => serde_json::from_slice::<String>(key).ok()?.into(),
            false => std::str::from_utf8(key.get(1..key.len() - 1)?).ok()?.into(),
        };
        at = space(bytes, end.quote + 1);
        if bytes.get(at) != Some(&b':') {
            return None;
        }
        at = space(bytes, at + 1);
        if is(&key) {
            return Some(at);
        }
        at = space(bytes, value_end(width, bytes, at)?);
        if bytes.get(at) != Some(&b',') {
            return None;
        }
    }
}

/// Behind the value that begins at `at`.
fn value_end(width: Width, bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => width.string_end(bytes, at + 1).map(|end| end.quote + 1),
        b'{' | b'[' => width.brackets_end(bytes, at).map(|end| end.end),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            Some(at + bytes.get(at..)?.iter().position(ends)?)
        }
    }
}
