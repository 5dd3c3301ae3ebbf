//! Up to which versions of objects a snapshot has them: what was written before is in every answer from it, and what was
//! written later is in none.
//!
//! Answers tell it in the header `joulie-seen`, and `/debug/scoring` shows it: so it can be told whether an answer knew of a
//! write, and two replicas that name the same versions decide alike.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::fmt::Write;

/// The header of answers.
pub(crate) const SEEN: HeaderName = HeaderName::from_static("joulie-seen");

/// The versions by kind; a kind that was not read, or whose versions are no numbers, has none.
#[derive(Clone, Debug)]
pub(crate) struct SeenVersions {
    kinds: Vec<(&'static str, Option<u64>)>,
    header: HeaderValue,
}

impl Default for SeenVersions {
    fn default() -> Self {
        Self::of([])
    }
}

impl SeenVersions {
    pub(crate) fn of(kinds: impl IntoIterator<Item = (&'static str, Option<u64>)>) -> Self {
        let kinds: Vec<_> = kinds.into_iter().collect();
        let mut text = String::new();
        for (kind, version) in kinds.iter().filter_map(|(kind, version)| Some((kind, (*version)?))) {
            let between = if text.is_empty() { "" } else { ", " };
            // Writing into memory does not fail.
            let _ = write!(text, "{between}{kind}={version}");
        }
        // Kinds and numbers are text of a header.
        let header = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
        Self { kinds, header }
    }

    /// The same as a header, such as `nodetwins=120, gpus=97`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// The same for the debug page.
    pub(crate) fn page(&self) -> Value {
        let kinds = self.kinds.iter().map(|(kind, version)| ((*kind).to_owned(), Value::from(*version)));
        Value::Object(kinds.collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_known_is_not_in_the_header() {
        let seen = SeenVersions::of([("nodetwins", Some(120)), ("gpus", None), ("pods", Some(u64::MAX))]);
        assert_eq!(seen.header(), "nodetwins=120, pods=18446744073709551615");
        assert_eq!(seen.page(), json!({"nodetwins": 120, "gpus": null, "pods": u64::MAX}));
        assert_eq!(
            (SeenVersions::default().header(), SeenVersions::default().page()),
            (HeaderValue::from_static(""), json!({}))
        );
    }
}
