//! `metadata`: the fields that a client may set, and those that only the server sets.

use crate::failure::{Cause, Failure};
use crate::kind::{Flavour, Kind};
use serde_json::{Value, json};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// The maximum total size of all keys and values of the annotations.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Checks the identity in the body against the place that the request names, and fills in missing fields.
pub(crate) fn agree(
    kind: &Kind,
    body: &mut Value,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Result<(), Failure> {
    if !body.is_object() {
        return Err(Failure::bad_request("the body is not an object"));
    }
    let expected = kind.api_version();
    match body["apiVersion"].as_str() {
        Some(given) if given != expected => {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        Some(_) => {}
        None => body["apiVersion"] = json!(expected),
    }
    match body["kind"].as_str() {
        Some(given) if given != kind.kind => {
            return Err(Failure::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: the kind of the data is {given:?}",
                kind.kind, kind.version, kind.kind
            )));
        }
        Some(_) => {}
        None => body["kind"] = json!(kind.kind),
    }
    if body.get("metadata").is_none_or(Value::is_null) {
        body["metadata"] = json!({});
    }
    if !body["metadata"].is_object() {
        return Err(Failure::bad_request("metadata is not an object"));
    }
    let meta = &mut body["metadata"];
    if let Some(namespace) = namespace {
        let given = meta["namespace"].as_str().unwrap_or("");
        if !given.is_empty() && given != namespace {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Failure::bad_request(message));
        }
        meta["namespace"] = json!(namespace);
    } else if !meta["namespace"].is_null() {
        let fields = meta.as_object_mut();
        fields.and_then(|fields| fields.remove("namespace"));
    }
    if let Some(name) = name {
        let given = meta["name"].as_str().unwrap_or("");
        if !given.is_empty() && given != name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        meta["name"] = json!(name);
    }
    Ok(())
}

/// Appends the errors in the names, labels, annotations and finalizers of an object.
pub(crate) fn check(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or("");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let label = kind.flavour == Flavour::Namespace;
        let (fits, why) = if label { (is_label(name), LABEL) } else { (is_subdomain(name), SUBDOMAIN) };
        if !fits {
            causes.push(Cause::invalid("metadata.name", &meta["name"], why));
        }
    }
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        qualified("metadata.labels", key, causes);
        if !value.as_str().is_some_and(is_label_value) {
            let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                       must start and end with an alphanumeric character, and be no more than 63 characters";
            causes.push(Cause::invalid("metadata.labels", value, why));
        }
    }
    let mut size = 0;
    for (key, value) in meta["annotations"].as_object().into_iter().flatten() {
        qualified("metadata.annotations", &key.to_lowercase(), causes);
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        let message = format!("Too long: may not be more than {ANNOTATIONS_MAX} bytes");
        causes.push(Cause { reason: "FieldValueTooLong", field: "metadata.annotations".to_owned(), message });
    }
    for finalizer in meta["finalizers"].as_array().into_iter().flatten() {
        qualified("metadata.finalizers", finalizer.as_str().unwrap_or(""), causes);
    }
}

/// Checks the fields that must not change from one version of an object to the next.
pub(crate) fn check_change(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        let (old, new) = (&old["metadata"][field], &new["metadata"][field]);
        if old != new {
            causes.push(Cause::invalid(&format!("metadata.{field}"), new, "field is immutable"));
        }
    }
    let added = |object: &Value| object["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
    if !old["metadata"]["deletionTimestamp"].is_null() && added(new) > added(old) {
        let why = "no new finalizers can be added if the object is being deleted";
        causes.push(Cause::forbidden("metadata.finalizers", why));
    }
}

fn qualified(field: &str, key: &str, causes: &mut Vec<Cause>) {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) || name.is_empty() || !is_label_value(name) {
        let why = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                   with an alphanumeric character, with an optional DNS subdomain prefix and '/'";
        causes.push(Cause::invalid(field, &json!(key), why));
    }
}

fn is_label(text: &str) -> bool {
    let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
    ends && text.len() <= 63 && text.bytes().all(|letter| plain(letter) || letter == b'-')
}

/// The parts of a subdomain have no length limit of their own here, as on the API server.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
            let ends = part.bytes().next().is_some_and(plain) && part.bytes().last().is_some_and(plain);
            ends && part.bytes().all(|letter| plain(letter) || letter == b'-')
        })
}

fn is_label_value(text: &str) -> bool {
    let ends = |letter: Option<u8>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let inside = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_' | b'.');
    text.is_empty()
        || text.len() <= 63
            && ends(text.bytes().next())
            && ends(text.bytes().last())
            && text.bytes().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names() {
        for name in ["a", "a.b", "node-1.rack.dc", "0"] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a/b", &"a".repeat(254)] {
            assert!(!is_subdomain(name), "{name}");
        }
        assert!(!is_label("a.b"));
        assert!(!is_label(&"a".repeat(64)));
        for (value, fits) in [("", true), ("Rack_1.b", true), ("-a", false), ("a b", false)] {
            assert_eq!(is_label_value(value), fits, "{value}");
        }
    }
}
