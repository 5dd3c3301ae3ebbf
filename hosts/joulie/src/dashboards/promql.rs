//! The names in a query, held against the metrics that the programs define. Whether a query is one, promtool says.

use crate::reference::programs;
use host_kit::metrics::{MetricDescription, MetricKind};
use std::collections::{BTreeMap, BTreeSet};

/// What Prometheus adds to every series.
const OF_THE_SCRAPE: [&str; 2] = ["instance", "job"];
/// The words before labels in parentheses.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// Every series of every program.
pub(super) struct Known(BTreeMap<String, Vec<MetricDescription>>);

impl Known {
    pub(super) fn of_programs() -> Self {
        let mut all: BTreeMap<String, Vec<MetricDescription>> = BTreeMap::new();
        for metric in programs().into_iter().flat_map(|program| program.metrics) {
            let suffixes: &[&str] =
                if metric.kind == MetricKind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            for suffix in suffixes {
                all.entry(format!("{}{suffix}", metric.series())).or_default().push(metric);
            }
        }
        Self(all)
    }

    /// Fails where a query or a text with labels names what there is not.
    #[track_caller]
    pub(super) fn check(&self, query: &str, text: &str, of: &str) {
        let names = Names::of(query);
        assert!(!names.metrics.is_empty(), "{of}: {query} asks for no metric");
        let mut labels: BTreeSet<&str> = OF_THE_SCRAPE.into();
        for metric in names.metrics.iter().filter(|metric| metric.name != "ALERTS") {
            let described = self.0.get(&metric.name);
            let described = described.unwrap_or_else(|| panic!("{of}: no program has {}", metric.name));
            let own: BTreeSet<&str> =
                described.iter().flat_map(|one| one.labels).map(|label| label.name).collect();
            labels.extend(&own);
            if metric.name.ends_with("_bucket") {
                labels.insert("le");
            }
            for (label, value) in &metric.matchers {
                assert!(own.contains(label.as_str()), "{of}: {} has no label {label}", metric.name);
                let is_a_word = |one: &MetricDescription| {
                    let of_it = one.labels.iter().filter(|own| own.name == label);
                    let mut words = of_it.flat_map(|own| own.values).map(|word| word.word).peekable();
                    words.peek().is_none() || words.any(|word| word == value)
                };
                let is_plain = value.chars().all(|char| char.is_alphanumeric() || "_-".contains(char));
                assert!(
                    !is_plain || described.iter().any(is_a_word),
                    "{of}: {label} of {} is never {value}",
                    metric.name
                );
            }
        }
        if names.metrics.iter().any(|metric| metric.name == "ALERTS") {
            labels.extend(["alertname", "severity"]);
        }
        for label in names.labels.iter().chain(&labels_in(text)) {
            assert!(labels.contains(label.as_str()), "{of}: nothing in {query} has the label {label}");
        }
    }
}

/// The labels in a legend (`{{node}}`) or in a text of an alert (`{{ $labels.node }}`).
fn labels_in(text: &str) -> BTreeSet<String> {
    let parts = text.split("{{").skip(1).filter_map(|part| part.split_once("}}")).map(|(inside, _)| inside);
    let words = parts.map(|inside| inside.split_whitespace().next().unwrap_or_default());
    let words = words.filter(|word| *word != "$value");
    words.map(|word| word.trim_start_matches("$labels.").to_owned()).collect()
}

/// What a query names.
#[derive(Debug, Default, PartialEq)]
struct Names {
    metrics: Vec<Selector>,
    /// Of groupings and joins.
    labels: BTreeSet<String>,
}

#[derive(Debug, PartialEq)]
struct Selector {
    name: String,
    matchers: Vec<(String, String)>,
}

impl Names {
    fn of(query: &str) -> Self {
        let mut names = Self::default();
        let mut rest = query;
        while let Some(first) = rest.chars().next() {
            if first == '"' {
                rest = rest[1..].split_once('"').map_or("", |(_, rest)| rest);
            } else if first.is_ascii_alphabetic() {
                let end = rest
                    .find(|char: char| !char.is_ascii_alphanumeric() && char != '_')
                    .unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                rest = after.trim_start();
                if word.starts_with("joulie_") || word.starts_with("process_") || word == "ALERTS" {
                    rest = names.selector(word, rest);
                } else if BEFORE_LABELS.contains(&word)
                    && let Some((labels, after)) =
                        rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
                {
                    let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
                    names.labels.extend(labels.map(str::to_owned));
                    rest = after;
                }
            } else {
                // A number with its unit is no name.
                let end =
                    rest.find(|char: char| !char.is_ascii_alphanumeric()).filter(|_| first.is_ascii_digit());
                rest = &rest[end.unwrap_or(first.len_utf8()).max(1)..];
            }
        }
        names
    }

    /// Takes the matchers after a name in; returns what follows.
    fn selector<'q>(&mut self, name: &str, rest: &'q str) -> &'q str {
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let (inside, rest) = inside.unwrap_or(("", rest));
        let mut matchers = Vec::new();
        for (label, value) in inside.split("\",").filter_map(|one| one.split_once('"')) {
            let label = label.trim().trim_end_matches(['=', '~', '!']).to_owned();
            let alternatives = value.trim_end_matches('"').split('|');
            matchers.extend(alternatives.map(|value| (label.clone(), value.to_owned())));
        }
        self.metrics.push(Selector { name: name.to_owned(), matchers });
        rest
    }
}

#[test]
fn the_names_in_a_query_are_found() {
    let names = Names::of(
        "sum by (node, what) (rate(joulie_a{x=\"1\",y=~\"a|b\"}[5m])) / on (node) group_left joulie_b > 3 * 86400",
    );
    let selector = |name: &str, matchers: &[(&str, &str)]| Selector {
        name: name.to_owned(),
        matchers: matchers.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect(),
    };
    let a = selector("joulie_a", &[("x", "1"), ("y", "a"), ("y", "b")]);
    assert_eq!(names.metrics, [a, selector("joulie_b", &[])]);
    assert_eq!(names.labels.into_iter().collect::<Vec<_>>(), ["node", "what"]);
    let labels = labels_in("{{node}} at {{ $labels.group | urlquery }}: {{ $value }}");
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), ["group", "node"]);
}
