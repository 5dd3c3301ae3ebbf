//! Label and field selectors.

use crate::failure::Failure;
use crate::kind::Kind;
use crate::request::Query;
use crate::store::Object;

/// Selects objects of a scope.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    labels: Vec<(String, Asks)>,
    fields: Vec<(Field, bool, String)>,
}

/// The condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asks {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Name,
    Namespace,
    /// The kind's selectable field with this index.
    Selectable(usize),
}

impl Selection {
    pub(crate) fn of(query: &Query, kind: &Kind) -> Result<Self, Failure> {
        let labels = query.get("labelSelector").map(labels).transpose()?.unwrap_or_default();
        let fields = fields(query.get("fieldSelector").unwrap_or(""), kind)?;
        Ok(Self { labels, fields })
    }

    /// Restricts the selection to the object of this name.
    pub(crate) fn only(&mut self, name: &str) {
        self.fields.push((Field::Name, true, name.to_owned()));
    }

    /// Whether the selection contains every object.
    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn holds(&self, object: &Object) -> bool {
        let label =
            |key: &str| object.labels.iter().find(|(name, _)| &**name == key).map(|(_, value)| &**value);
        let labels = self.labels.iter().all(|(key, asks)| asks.holds(label(key)));
        labels
            && self.fields.iter().all(|(field, equal, text)| {
                let value = match field {
                    Field::Name => &*object.key.name,
                    Field::Namespace => &*object.key.namespace,
                    Field::Selectable(index) => object.fields.get(*index).map_or("", |text| text),
                };
                (value == text) == *equal
            })
    }
}

impl Asks {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(texts) => value.is_some_and(|value| texts.iter().any(|text| text == value)),
            Self::NotIn(texts) => !value.is_some_and(|value| texts.iter().any(|text| text == value)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Greater(than) => number().is_some_and(|number| number > *than),
            Self::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

/// Whether labels match a `metav1.LabelSelector`, which budgets use. An empty selector matches all.
pub(crate) fn label_selector_holds(selector: &serde_json::Value, labels: &serde_json::Value) -> bool {
    let value = |key: &str| labels[key].as_str();
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let mut exact = exact.map(|(key, text)| value(key) == text.as_str());
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten().map(|expression| {
        let texts = expression["values"].as_array().into_iter().flatten();
        let texts = texts.filter_map(|text| text.as_str().map(str::to_owned)).collect();
        let asks = match expression["operator"].as_str() {
            Some("In") => Asks::In(texts),
            Some("NotIn") => Asks::NotIn(texts),
            Some("Exists") => Asks::Exists,
            Some("DoesNotExist") => Asks::Absent,
            _ => return false,
        };
        asks.holds(value(expression["key"].as_str().unwrap_or("")))
    });
    exact.all(|fits| fits) && expressions.all(|fits| fits)
}

/// Parses `a=b,c in (d,e),!f`.
fn labels(text: &str) -> Result<Vec<(String, Asks)>, Failure> {
    let wrong = || {
        let message = format!("unable to parse requirement: {text:?} is not a label selector");
        Failure::bad_request(message)
    };
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let depth_end = end_of_requirement(rest);
        let (one, after) = rest.split_at(depth_end);
        found.push(requirement(one.trim()).ok_or_else(wrong)?);
        rest = match after.strip_prefix(',') {
            Some(after) if after.trim().is_empty() => return Err(wrong()),
            Some(after) => after.trim_start(),
            None => "",
        };
    }
    Ok(found)
}

/// The position of the next comma outside parentheses.
fn end_of_requirement(text: &str) -> usize {
    let mut inside = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => return at,
            _ => {}
        }
    }
    text.len()
}

fn requirement(text: &str) -> Option<(String, Asks)> {
    let is_key = |key: &str| {
        !key.is_empty()
            && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
    };
    let is_value = |value: &str| value.is_empty() || is_key(value) && !value.contains('/');
    let pair = |(key, value): (&str, &str)| {
        let (key, value) = (key.trim(), value.trim());
        (is_key(key) && is_value(value)).then(|| (key.to_owned(), value.to_owned()))
    };
    if let Some(key) = text.strip_prefix('!') {
        return is_key(key.trim()).then(|| (key.trim().to_owned(), Asks::Absent));
    }
    if let Some(list) = text.strip_suffix(')') {
        let (head, list) = list.split_once('(')?;
        let mut head = head.split_whitespace();
        let (key, operator) = (head.next()?, head.next()?);
        let texts: Vec<_> = list.split(',').map(|text| text.trim().to_owned()).collect();
        if head.next().is_some() || !is_key(key) || !texts.iter().all(|text| is_value(text)) {
            return None;
        }
        return match operator {
            "in" => Some((key.to_owned(), Asks::In(texts))),
            "notin" => Some((key.to_owned(), Asks::NotIn(texts))),
            _ => None,
        };
    }
    if let Some(parts) = text.split_once("!=") {
        return pair(parts).map(|(key, value)| (key, Asks::NotIn(vec![value])));
    }
    if let Some(parts) = text.split_once("==").or_else(|| text.split_once('=')) {
        return pair(parts).map(|(key, value)| (key, Asks::In(vec![value])));
    }
    if let Some((key, number)) = text.split_once('>').and_then(pair) {
        return Some((key, Asks::Greater(number.parse().ok()?)));
    }
    if let Some((key, number)) = text.split_once('<').and_then(pair) {
        return Some((key, Asks::Less(number.parse().ok()?)));
    }
    is_key(text).then(|| (text.to_owned(), Asks::Exists))
}

fn fields(text: &str, kind: &Kind) -> Result<Vec<(Field, bool, String)>, Failure> {
    let mut found = Vec::new();
    for one in text.split(',').filter(|one| !one.trim().is_empty()) {
        let parsed = match one.split_once("!=") {
            Some((name, value)) => Some((name, false, value)),
            None => {
                one.split_once("==").or_else(|| one.split_once('=')).map(|(name, value)| (name, true, value))
            }
        };
        let wrong = || Failure::bad_request(format!("invalid selector: {text:?}; can't understand {one:?}"));
        let (name, equal, value) = parsed.ok_or_else(wrong)?;
        let field = match name.trim() {
            "metadata.name" => Field::Name,
            "metadata.namespace" => Field::Namespace,
            other => {
                let index = kind.selectable.iter().position(|(label, _)| label == other);
                let unknown = || Failure::bad_request(format!("field label not supported: {other}"));
                Field::Selectable(index.ok_or_else(unknown)?)
            }
        };
        found.push((field, equal, value.trim().to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_whole_grammar_of_label_selectors_is_read() {
        let parsed = labels("a=b, c==d,e != f,g in (h, i),j notin (k),l,!m,n>3,o<4,p=").unwrap();
        let text = |text: &str| vec![text.to_owned()];
        let expected = [
            ("a", Asks::In(text("b"))),
            ("c", Asks::In(text("d"))),
            ("e", Asks::NotIn(text("f"))),
            ("g", Asks::In(vec!["h".to_owned(), "i".to_owned()])),
            ("j", Asks::NotIn(text("k"))),
            ("l", Asks::Exists),
            ("m", Asks::Absent),
            ("n", Asks::Greater(3)),
            ("o", Asks::Less(4)),
            ("p", Asks::In(text(""))),
        ];
        assert_eq!(parsed, expected.map(|(key, asks)| (key.to_owned(), asks)));
        for wrong in ["a in b", "a in (b", "=b", "a=b,", "a b", "!", "a>b", "a=b/c", "a within (b)"] {
            assert!(labels(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_absent_label_is_not_equal_and_not_in() {
        assert!(Asks::NotIn(vec!["x".to_owned()]).holds(None));
        assert!(!Asks::In(vec![String::new()]).holds(None));
        assert!(!Asks::Greater(1).holds(None));
        assert!(Asks::Greater(1).holds(Some("2")));
    }

    #[test]
    fn a_budget_selects_by_labels_and_expressions() {
        let labels = json!({"app": "a", "tier": "x"});
        assert!(label_selector_holds(&json!({}), &labels));
        assert!(label_selector_holds(&json!({"matchLabels": {"app": "a"}}), &labels));
        assert!(!label_selector_holds(&json!({"matchLabels": {"app": "b"}}), &labels));
        let none = json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]});
        assert!(!label_selector_holds(&none, &labels));
        assert!(!label_selector_holds(
            &json!({"matchExpressions": [{"key": "a", "operator": "?"}]}),
            &labels
        ));
    }
}
