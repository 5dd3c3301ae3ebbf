//! Which node a series is about.
//!
//! Exporters name their node in different labels, and scrape configurations rename them. The first of
//! [`NODE_LABELS`] decides whose value is the name of a known node, the name or an address by which it is known, with or
//! without a port behind it. A series that names no known node belongs to nobody, and is never shared out.

use super::Series;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The labels that may name a node, in this order.
pub const NODE_LABELS: [&str; 8] = [
    "node",
    "node_name",
    "nodename",
    "kubernetes_node",
    // NVIDIA's DCGM exporter, then AMD's.
    "Hostname",
    "hostname",
    // What an exporter said itself, where the scrape has an `instance` of its own.
    "exported_instance",
    "instance",
];

/// The names by which nodes are known: their own, and their addresses.
#[derive(Clone, Debug, Default)]
pub struct NodeNames(BTreeMap<Box<str>, Option<Arc<str>>>);

impl NodeNames {
    /// Adds a name or an address of a node. One that two nodes share belongs to neither.
    pub fn add(&mut self, name: &str, node: &Arc<str>) {
        self.0
            .entry(name.into())
            .and_modify(|known| *known = known.take().filter(|known| known == node))
            .or_insert_with(|| Some(node.clone()));
    }

    fn find(&self, text: &str) -> Option<&Arc<str>> {
        self.0.get(text).and_then(Option::as_ref)
    }
}

/// Whom a series is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// This node.
    To(Arc<str>),
    /// No node that is known.
    ToNobody,
}

/// The node that a series is about.
#[must_use]
pub fn of_node(series: &Series, names: &NodeNames) -> Belongs {
    let labels = NODE_LABELS.iter().filter_map(|label| series.label(label));
    let found = labels.filter_map(|text| names.find(text).or_else(|| names.find(without_port(text)))).next();
    found.map_or(Belongs::ToNobody, |node| Belongs::To(node.clone()))
}

/// `10.0.0.7:9100` and `[fd00::7]:9100` without their port.
fn without_port(text: &str) -> &str {
    if text.parse::<IpAddr>().is_ok() {
        return text;
    }
    let Some((host, port)) = text.rsplit_once(':') else { return text };
    if port.parse::<u16>().is_err() {
        return text;
    }
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::super::Answer;
    use super::*;
    use http::StatusCode;

    fn belongs(labels: &str, names: &[(&str, &str)]) -> Option<String> {
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{labels},"value":[1,"1"]}}]}}}}"#
        );
        let answer = Answer::read(body.as_bytes(), StatusCode::OK).unwrap();
        let mut known = NodeNames::default();
        for (name, node) in names {
            known.add(name, &Arc::from(*node));
        }
        match of_node(&answer.series[0], &known) {
            Belongs::To(node) => Some(node.to_string()),
            Belongs::ToNobody => None,
        }
    }

    const NAMES: [(&str, &str); 5] =
        [("a", "a"), ("b", "b"), ("10.0.0.1", "a"), ("fd00::2", "b"), ("b.example.com", "b")];

    #[test]
    fn a_series_belongs_to_the_node_that_its_first_fitting_label_names() {
        let of = |labels: &str| belongs(labels, &NAMES);
        let is = |node: &str| Some(node.to_owned());
        assert_eq!(of(r#"{"node":"a","instance":"b:9100"}"#), is("a"));
        assert_eq!(of(r#"{"instance":"b:9100"}"#), is("b"));
        assert_eq!(of(r#"{"instance":"10.0.0.1:9100"}"#), is("a"));
        assert_eq!(of(r#"{"instance":"[fd00::2]:9100"}"#), is("b"));
        assert_eq!(of(r#"{"instance":"fd00::2"}"#), is("b"));
        assert_eq!(of(r#"{"Hostname":"b.example.com","instance":"10.0.0.1:9400"}"#), is("b"));
        // A label that names something else does not hide the one that names the node.
        assert_eq!(of(r#"{"node":"rack 7","exported_instance":"a"}"#), is("a"));
        for nobody in
            [r#"{}"#, r#"{"node":""}"#, r#"{"instance":"c:1"}"#, r#"{"pod":"a"}"#, r#"{"instance":"a:port"}"#]
        {
            assert_eq!(of(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn a_name_that_two_nodes_have_belongs_to_neither() {
        let names = [("a", "a"), ("b", "b"), ("10.0.0.1", "a"), ("10.0.0.1", "b"), ("10.0.0.1", "a")];
        assert_eq!(belongs(r#"{"instance":"10.0.0.1:1"}"#, &names), None);
        assert_eq!(belongs(r#"{"node":"a"}"#, &names), Some("a".to_owned()));
        // Said twice by one node, it is still the node's.
        assert_eq!(belongs(r#"{"node":"a"}"#, &[("a", "a"), ("a", "a")]), Some("a".to_owned()));
    }
}
