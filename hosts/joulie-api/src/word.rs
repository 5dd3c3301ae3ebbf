//! Words in objects: the schema has a closed list, but an object with an unknown word can still be read.
//!
//! The API server refuses a word outside the list. An object that was stored under the schema of another generation may
//! still contain one. It is kept unchanged, and code that needs its meaning gets an error that names the field.

use crate::field::FieldError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A closed list of words.
pub trait Vocabulary: Copy + Eq + fmt::Debug + 'static {
    /// All words, in the order of the schema.
    const ALL: &'static [Self];

    /// The word as it is written.
    fn as_str(self) -> &'static str;

    /// Reads a word exactly as it is written.
    #[must_use]
    fn read(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|word| word.as_str() == text)
    }
}

/// A word in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word<V> {
    /// One of the list.
    Known(V),
    /// Another one.
    Other(String),
}

impl<V: Vocabulary> Word<V> {
    /// The word as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Other(text) => text,
        }
    }

    /// The word, if it is one of the list.
    #[must_use]
    pub fn known(&self) -> Option<V> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Other(_) => None,
        }
    }

    /// The word, or an error that names the field.
    ///
    /// # Errors
    /// If the word is not in the list.
    pub fn expect(&self, field: &str) -> Result<V, FieldError> {
        match self {
            Self::Known(word) => Ok(*word),
            Self::Other(text) => Err(FieldError::new(field, Some(text.clone()), list_of::<V>())),
        }
    }
}

/// Formats the list as `a, b or c`.
fn list_of<V: Vocabulary>() -> String {
    let words: Vec<&str> = V::ALL.iter().map(|word| word.as_str()).collect();
    match words.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

impl<V> From<V> for Word<V> {
    fn from(word: V) -> Self {
        Self::Known(word)
    }
}

impl<V: Vocabulary> Serialize for Word<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, V: Vocabulary> Deserialize<'de> for Word<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(V::read(&text).map_or(Self::Other(text), Self::Known))
    }
}

impl<V: Vocabulary> JsonSchema for Word<V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn schema_id() -> Cow<'static, str> {
        std::any::type_name::<Self>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = V::ALL.iter().map(|word| word.as_str()).collect();
        json_schema!({"type": "string", "enum": words})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::ProfileName;

    #[test]
    fn a_word_outside_the_list_is_kept_and_named_when_it_is_needed() {
        let read: Word<ProfileName> = serde_json::from_str("\"turbo\"").unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), "\"turbo\"");
        assert_eq!(read.known(), None);
        assert_eq!(
            read.expect("spec.profile").unwrap_err().to_string(),
            "spec.profile: expected performance or eco, found turbo"
        );
        let read: Word<ProfileName> = serde_json::from_str("\"eco\"").unwrap();
        assert_eq!(read, ProfileName::Eco.into());
    }

    #[test]
    fn a_number_is_no_word() {
        assert!(serde_json::from_str::<Word<ProfileName>>("3").is_err());
    }
}
