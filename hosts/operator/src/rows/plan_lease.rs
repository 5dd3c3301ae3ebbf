//! The plan's Lease: the release that a person or an uninstall requests on it.

use host_kit::reflect::Row;
use joulie_api::labels::{RELEASE, RELEASE_ALL};
use serde_json::Value;

/// What is kept of the plan's Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanLeaseSeen {
    /// Whether every node is to be released, and none planned for.
    pub(crate) releases_all: bool,
}

impl Row for PlanLeaseSeen {
    const KIND: &'static str = "Lease";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        match object["metadata"]["annotations"].get(RELEASE).map(|text| text.as_str().unwrap_or_default()) {
            None => Ok(Self { releases_all: false }),
            Some(RELEASE_ALL) => Ok(Self { releases_all: true }),
            Some(text) => {
                Err(format!("the annotation {RELEASE} is {text:?}; it can say {RELEASE_ALL:?} only"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_one_word_asks_for_the_release_of_all() {
        let read =
            |annotations: Value| PlanLeaseSeen::read(&json!({"metadata": {"annotations": annotations}}));
        assert_eq!(read(Value::Null), Ok(PlanLeaseSeen { releases_all: false }));
        assert_eq!(
            read(json!({"joulie.io/plan-generation": "4"})),
            Ok(PlanLeaseSeen { releases_all: false })
        );
        assert_eq!(read(json!({"joulie.io/release": "all"})), Ok(PlanLeaseSeen { releases_all: true }));
        for wrong in [json!("All"), json!("true"), json!(""), json!(true)] {
            let why = read(json!({"joulie.io/release": wrong})).unwrap_err();
            assert!(why.contains("it can say \"all\" only"), "{why}");
        }
    }
}
