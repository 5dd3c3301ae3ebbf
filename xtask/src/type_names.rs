//! A public type name has one meaning in the whole workspace (docs/GLOSSARY.md): each is defined once, except for the
//! roles below, which mean the same everywhere.

use std::collections::BTreeMap;

/// Names for the same role in many modules: the input, the memory and the tuning of a law, the settings of a program,
/// and the result of its start.
const ROLES: [&str; 7] = ["Facts", "Mode", "Tuning", "TuningError", "Settings", "Started", "StartError"];
/// The keywords that begin the definition of a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Where each public type name is defined.
#[derive(Debug, Default)]
pub(crate) struct TypeNames(BTreeMap<String, Vec<String>>);

impl TypeNames {
    /// Reads the definitions in a source.
    pub(crate) fn read(&mut self, name: &str, text: &str) {
        for (number, line) in text.lines().enumerate() {
            if let Some(defined) = defined(line) {
                self.0.entry(defined.to_owned()).or_default().push(format!("{name}:{}", number + 1));
            }
        }
    }

    /// The names that are defined more than once and are not roles.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let twice =
            self.0.iter().filter(|(name, places)| places.len() > 1 && !ROLES.contains(&name.as_str()));
        twice
            .map(|(name, places)| {
                let places = places.join(" and ");
                format!(
                    "{places}: both define a public type {name}; docs/GLOSSARY.md says how names are chosen"
                )
            })
            .collect()
    }
}

/// The public type that a line defines, if any.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("pub ")?;
    let (keyword, rest) = line.strip_prefix("unsafe ").unwrap_or(line).split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    rest.get(..end).filter(|name| KEYWORDS.contains(&keyword) && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(sources: &[(&str, &str)]) -> Vec<String> {
        let mut names = TypeNames::default();
        sources.iter().for_each(|(name, text)| names.read(name, text));
        names.complaints()
    }

    #[test]
    fn a_name_that_two_files_define_is_told_with_both_places() {
        let told = complaints(&[
            ("a.rs", "//! A.\npub struct Node {\n}\n"),
            ("b.rs", "//! B.\n\npub enum Node {\n}\npub enum Other {}\n"),
        ]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("a.rs:2 and b.rs:3: both define a public type Node"), "{told:?}");
    }

    #[test]
    fn every_kind_of_type_is_looked_at() {
        for definition in
            ["struct Twice;", "enum Twice {}", "trait Twice {}", "unsafe trait Twice {}", "type Twice = u8;"]
        {
            let text = format!("    pub {definition}\n");
            assert_eq!(
                complaints(&[("a.rs", &text), ("b.rs", "pub union Twice<T> {}\n")]).len(),
                1,
                "{definition}"
            );
        }
    }

    #[test]
    fn a_role_a_name_within_a_crate_and_what_is_no_type_are_not_told() {
        for line in
            ["pub struct Facts {}", "pub(crate) struct A;", "struct A;", "pub use a::A;", "pub fn A() {}"]
        {
            assert_eq!(complaints(&[("a.rs", line), ("b.rs", line)]), [""; 0], "{line}");
        }
    }
}
