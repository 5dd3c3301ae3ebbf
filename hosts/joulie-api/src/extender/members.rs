//! Iterates over the members of a JSON object without building anything from them.
//!
//! Only for text that a parser has accepted as JSON: nothing is checked here. For other text the result is meaningless,
//! but there is never a panic.

use std::borrow::Cow;

/// The rest of an object.
pub struct Members<'a> {
    rest: &'a str,
}

impl<'a> Members<'a> {
    /// The members of an object; `None` if the text is not an object.
    #[must_use]
    pub fn of(json: &'a str) -> Option<Self> {
        Some(Self { rest: json.trim_start().strip_prefix('{')? })
    }

    /// The first member of this name, in any casing.
    pub(crate) fn find_named(self, name: &str) -> Option<&'a str> {
        let value = self.find_value(|key| key.eq_ignore_ascii_case(name))?;
        value.get(..value_end(value))
    }

    /// The value of the first member with a matching name, together with all text after it: a large value is not
    /// scanned.
    #[must_use]
    pub fn find_value(mut self, is: impl Fn(&str) -> bool) -> Option<&'a str> {
        loop {
            let (key, value) = self.key()?;
            if is(&key) {
                return Some(value);
            }
            self.rest = value.get(value_end(value)..)?;
        }
    }

    /// The next name, and the text that starts with its value.
    fn key(&self) -> Option<(Cow<'a, str>, &'a str)> {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        let (key, rest) = rest.split_at_checked(value_end(rest))?;
        Some((text(key)?, rest.trim_start().strip_prefix(':')?.trim_start()))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.key()?;
        let (value, rest) = value.split_at_checked(value_end(value))?;
        self.rest = rest;
        Some((key, value))
    }
}

/// The elements of a JSON array; none if the text is not an array.
pub(crate) fn elements(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json.trim_start().strip_prefix('[').unwrap_or_default();
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        let (value, after) = rest.split_at_checked(value_end(rest))?;
        rest = after;
        (!value.is_empty()).then_some(value)
    })
}

/// The text of a JSON string, borrowed if it contains no escapes.
pub(crate) fn text(json: &str) -> Option<Cow<'_, str>> {
    let inside = json.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') { serde_json::from_str(json).ok().map(Cow::Owned) } else { Some(inside.into()) }
}

/// The end of the value with which a text begins.
fn value_end(json: &str) -> usize {
    let bytes = json.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b'}' | b']' => return at,
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return at,
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return at.min(bytes.len());
        }
    }
    at.min(bytes.len())
}

/// The position after the closing quote of the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn members(json: &str) -> Vec<(String, String)> {
        Members::of(json).unwrap().map(|(key, value)| (key.into_owned(), value.to_owned())).collect()
    }

    #[test]
    fn members_are_found_whatever_is_in_them() {
        let json = r#" { "a" : 1 , "b\u0021":"x\"}\\", "c":[1,{"d":"]"}], "e":{}, "f":null , "g": true } "#;
        let found = members(json);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            found,
            [
                ("a", "1"),
                ("b!", r#""x\"}\\""#),
                ("c", r#"[1,{"d":"]"}]"#),
                ("e", "{}"),
                ("f", "null"),
                ("g", "true")
            ]
        );
        assert_eq!(members("{}"), []);
        assert!(Members::of("[1]").is_none());
        assert_eq!(elements(r#"[ 1, "a,b" ,[2],{} ]"#).collect::<Vec<_>>(), ["1", r#""a,b""#, "[2]", "{}"]);
        assert_eq!(elements("[]").count(), 0);
        assert_eq!(elements("{}").count(), 0);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            r#"[a-z"\\{}\[\],: é\n]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((r#"[a-c"\\{}]{0,4}"#, inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Compared with the parser of serde_json, for compact text and text with white space.
        #[test]
        fn the_members_are_those_of_a_parser(value in json()) {
            for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                match &value {
                    Value::Object(object) => {
                        let found = members(&text);
                        prop_assert_eq!(found.len(), object.len());
                        for (key, found) in found {
                            let found: Value = serde_json::from_str(&found).unwrap();
                            prop_assert_eq!(Some(&found), object.get(&key));
                        }
                    }
                    Value::Array(array) => {
                        let found: Vec<Value> =
                            elements(&text).map(|element| serde_json::from_str(element).unwrap()).collect();
                        prop_assert_eq!(&found, array);
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                        prop_assert!(Members::of(&text).is_none());
                    }
                }
            }
        }

        #[test]
        fn no_text_is_a_panic(text in r#"[a\{\}\[\]",:\\ é]{0,40}"#) {
            let _ = Members::of(&text).map(Iterator::count);
            let _ = elements(&text).count();
        }
    }
}
