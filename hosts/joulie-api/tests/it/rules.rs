//! The validation rules, run: they take every good example, and each bad one is refused by its own rule alone.
//!
//! This is not the API server's evaluation, which also weighs what a rule may cost; the suite against the real one uses
//! the same examples.

use crate::examples::{bad, good, kind, schemas};
use kube_cel::Validator;
use serde_json::Value;

/// What is refused, as field and message.
fn refused(object: &Value, old: Option<&Value>) -> Vec<(String, String)> {
    let schema = &schemas()[kind(object)];
    match Validator::new().validate(schema, object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors
            .into_vec()
            .into_iter()
            // A rule of the whole object has an empty path before the dot.
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
