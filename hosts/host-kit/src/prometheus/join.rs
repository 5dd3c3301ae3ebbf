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
