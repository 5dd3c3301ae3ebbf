//! Runs the validation rules: they accept every good example, and each bad one is refused by its own rule alone.
//!
//! The API server's evaluation also limits the cost of a rule; the suite against the real server uses the same
//! examples.

use crate::examples::{bad, good, kind, schemas};
use kube_cel::Validator;
use serde_json::Value;

/// The refusals, as field and message.
fn refused(object: &Value, old: Option<&Value>) -> Vec<(String, String)> {
    let schema = &schemas()[kind(object)];
    match Validator::new().validate(schema, object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors
            .into_vec()
            .into_iter()
            // For a rule of the whole object, the path before the dot is empty.
            .map(|error| (error.field_path.trim_start_matches('.').to_owned(), error.message))
            .collect(),
    }
}

#[test]
fn every_generation_keeps_the_rules() {
    for (name, object) in good() {
        assert_eq!(refused(&object, None), [], "{name}");
        assert_eq!(refused(&object, Some(&object)), [], "{name}, unchanged");
    }
}

#[test]
fn each_bad_object_is_refused_by_its_rule_in_its_words() {
    for (name, bad) in bad() {
        assert_eq!(refused(&bad.object, bad.old.as_ref()), [(bad.field, bad.message)], "{name}");
        if let Some(old) = &bad.old {
            assert_eq!(refused(old, None), [], "{name}, before the change");
        }
    }
}
