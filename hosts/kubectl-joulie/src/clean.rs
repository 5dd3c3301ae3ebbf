//! Text of objects on a terminal. Names, messages and annotations are written by whoever may write objects; a terminal
//! obeys escapes in them, and characters that turn the direction of text make it read otherwise than it is.

use serde_json::{Map, Value};

/// The most characters of one text that are shown.
const SHOWN_MAX: usize = 600;

/// The text on one line without anything that a terminal obeys; what is not shown as it is, is shown as its number. A text
/// that is too long is cut.
pub(crate) fn clean(text: &str) -> String {
    let mut shown = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == SHOWN_MAX {
            shown.push('…');
            break;
        }
        match c {
            '\n' | '\r' | '\t' => shown.push(' '),
            c if is_obeyed(c) => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// The same of every text in a document, which is not cut.
pub(crate) fn clean_document(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(whole(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(clean_document).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (whole(&name), clean_document(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn whole(text: &str) -> String {
    if !text.chars().any(is_obeyed) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| if is_obeyed(c) { format!("\\u{{{:x}}}", u32::from(c)) } else { c.to_string() })
        .collect()
}

/// Controls (C0, DEL, C1), and what turns or hides text.
fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{61c}' | '\u{feff}');
    c.is_control() || turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(
            clean("a\u{1b}[2Jb\u{7f}\u{9b}31m\u{202e}c\r\nd"),
            "a\\u{1b}[2Jb\\u{7f}\\u{9b}31m\\u{202e}c  d"
        );
        assert_eq!(clean("größe ✓"), "größe ✓");
        let long = clean(&"x".repeat(5_000_000));
        assert_eq!(long.chars().count(), SHOWN_MAX + 1);
    }

    #[test]
    fn a_document_is_clean_to_its_names() {
        let dirty = json!({"a\u{1b}": ["\u{7}", {"b": 1.5, "c": null}]});
        assert_eq!(clean_document(dirty), json!({"a\\u{1b}": ["\\u{7}", {"b": 1.5, "c": null}]}));
    }
}
