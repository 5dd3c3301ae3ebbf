//! Fields of objects, read without trust: what is missing or of another type is not there.

use jiff::Timestamp;
use serde_json::Value;

/// A text at a JSON pointer; empty if there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number at a JSON pointer. JSON has no NaN, and what is too large to be a power is none.
#[must_use]
pub fn number(object: &Value, pointer: &str) -> Option<f64> {
    object.pointer(pointer).and_then(Value::as_f64).filter(|number| number.abs() < 1e12)
}

/// The limit of a PowerBudget that is in use: what is written, or less while a window or the signal lowers it.
#[must_use]
pub fn limit_watts(budget: &Value) -> Option<f64> {
    let all = ["/spec/watts", "/status/lowered/watts"];
    all.into_iter().filter_map(|pointer| number(budget, pointer)).reduce(f64::min)
}

/// The items of a list at a JSON pointer.
#[must_use]
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The annotation of this key.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// The label of this key.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// A condition of this type.
#[must_use]
pub fn condition<'a>(object: &'a Value, about: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|one| one["type"] == about)
}

/// A condition in words: its status, since when, why.
#[must_use]
pub fn condition_words(condition: &Value) -> String {
    let of = |field: &str| condition[field].as_str().unwrap_or_default();
    let since = match of("lastTransitionTime") {
        "" => String::new(),
        since => format!(" since {since}"),
    };
    let said = format!("{}={}{since}: {}: {}", of("type"), of("status"), of("reason"), of("message"));
    said.trim_end_matches(": ").to_owned()
}

/// A time at a JSON pointer.
pub(crate) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).trim().parse().ok()
}

/// How many seconds before `now` something was; one slightly ahead of this clock was just now.
pub(crate) fn age_seconds(of: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(of).as_secs().max(0)
}

/// An age in the unit that says most: `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(of: Timestamp, now: Timestamp) -> String {
    match age_seconds(of, now) {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ ..7_200 => format!("{}m", seconds / 60),
        seconds @ ..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Who owns a field of the spec, and since when their entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldOwner {
    pub(crate) who: String,
    pub(crate) time: String,
}

/// The field managers of the main resource that own something below `spec.FIELD`.
pub(crate) fn owners(object: &Value, field: &str) -> Vec<FieldOwner> {
    let key = format!("f:{field}");
    let entries = items(object, "/metadata/managedFields").iter();
    entries
        .filter(|entry| {
            text(entry, "/subresource").is_empty() && !entry["fieldsV1"]["f:spec"][&key].is_null()
        })
        .map(|entry| FieldOwner {
            who: text(entry, "/manager").to_owned(),
            time: text(entry, "/time").to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_age_has_one_unit() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let of = |seconds: i64| age(at(1_000_000), at(1_000_000 + seconds));
        assert_eq!([of(-5), of(0), of(119), of(120)], ["0s", "0s", "119s", "2m"]);
        assert_eq!([of(7_199), of(7_200), of(172_800)], ["119m", "2h", "2d"]);
    }

    #[test]
    fn what_is_of_another_type_or_beyond_all_power_is_not_there() {
        let object = json!({"a": "x", "b": 1e300, "c": 7, "d": {"e": []}});
        assert_eq!(
            (number(&object, "/a"), number(&object, "/b"), number(&object, "/c")),
            (None, None, Some(7.0))
        );
        assert_eq!((text(&object, "/c"), items(&object, "/d").len()), ("", 0));
    }

    #[test]
    fn the_owner_of_a_field_is_the_one_of_the_main_resource() {
        let entry = |who: &str, sub: &str, field: &str| json!({"manager": who, "subresource": sub, "time": "T", "fieldsV1": {"f:spec": {field: {}}}});
        let object = json!({"metadata": {"managedFields":
            [entry("joulie-operator", "", "f:profile"), entry("anna", "", "f:cpu"), entry("x", "status", "f:cpu")]}});
        assert_eq!(owners(&object, "cpu"), [FieldOwner { who: "anna".to_owned(), time: "T".to_owned() }]);
    }
}
