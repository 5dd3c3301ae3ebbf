//! The part of JSONPath that printer columns and selectable fields use: `.a.b`, `['a']`, `[0]`, `[*]` and
//! `[?(@.type=="Ready")]`.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone)]
pub(crate) struct JsonPath(Vec<Part>);

#[derive(Debug, Clone)]
enum Part {
    Field(String),
    Index(usize),
    All,
    /// Items whose field has this text.
    Where(String, String),
}

impl JsonPath {
    /// Parses a path; `None` if it uses an unsupported part of JSONPath.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let end = inner.find(']')?;
                parts.push(bracket(inner.get(..end)?)?);
                rest = inner.get(end + 1..)?;
            } else {
                let (field, after) = dotted(rest.strip_prefix('.').unwrap_or(rest));
                if field.is_empty() {
                    return None;
                }
                parts.push(Part::Field(field));
                rest = after;
            }
        }
        Some(Self(parts))
    }

    /// The first value at the path, if any.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        fn walk<'a>(value: &'a Value, parts: &[Part]) -> Option<&'a Value> {
            let Some((part, rest)) = parts.split_first() else { return Some(value) };
            match part {
                Part::Field(name) => walk(value.get(name)?, rest),
                Part::Index(index) => walk(value.get(index)?, rest),
                Part::All => value.as_array()?.iter().find_map(|item| walk(item, rest)),
                Part::Where(field, text) => {
                    let mut fitting = value.as_array()?.iter().filter(|item| item[field] == text.as_str());
                    fitting.find_map(|item| walk(item, rest))
                }
            }
        }
        walk(value, &self.0).filter(|found| !found.is_null())
    }

    /// The value at the path as text; empty if there is none.
    pub(crate) fn text(&self, value: &Value) -> String {
        self.first(value).map(as_text).unwrap_or_default()
    }
}

/// The text of a scalar, which selectors compare.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A field up to the next unescaped `.` or `[`, and what follows.
fn dotted(text: &str) -> (String, &str) {
    let mut field = String::new();
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (field, text.get(at..).unwrap_or("")),
            _ => {
                escaped = false;
                field.push(letter);
            }
        }
    }
    (field, "")
}

fn bracket(inner: &str) -> Option<Part> {
    let unquoted = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    if inner == "*" {
        return Some(Part::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        let (field, text) = filter.split_once("==")?;
        let field = field.trim().strip_prefix("@.")?;
        return Some(Part::Where(field.to_owned(), unquoted(text)));
    }
    match inner.parse() {
        Ok(index) => Some(Part::Index(index)),
        Err(_) => Some(Part::Field(unquoted(inner))),
    }
}

#[cfg(test)]
mod tests {
    use super::JsonPath;
    use serde_json::json;

    #[test]
    fn printer_columns_find_what_they_name() {
        let value = json!({
            "metadata": {"labels": {"joulie.io/rack": "r1"}},
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}], "n": 3},
        });
        let found = |path: &str| JsonPath::parse(path).map(|path| path.text(&value));
        assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status").as_deref(), Some("True"));
        assert_eq!(found(".metadata.labels.joulie\\.io/rack").as_deref(), Some("r1"));
        assert_eq!(found(".metadata.labels['joulie.io/rack']").as_deref(), Some("r1"));
        assert_eq!(found("{.status.n}").as_deref(), Some("3"));
        assert_eq!(found(".status.conditions[1].type").as_deref(), Some("Ready"));
        assert_eq!(found(".status.conditions[*].type").as_deref(), Some("A"));
        assert_eq!(found(".spec.none").as_deref(), Some(""));
        assert_eq!(found(".a[0"), None);
        assert_eq!(found(".."), None);
    }
}
