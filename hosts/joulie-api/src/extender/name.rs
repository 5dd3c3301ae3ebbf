//! A text of a message.

use serde::Deserialize;
use std::borrow::Cow;

/// A text of the body, borrowed if it contains no escapes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Name<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> From<Cow<'a, str>> for Name<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self(text)
    }
}
