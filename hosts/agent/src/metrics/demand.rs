//! The metrics of what a node wants to draw. While that is not known there is no series, because zero would be a value.

use super::labels::{BiteBy, DemandLevel, Node, NodeBite, NodeDemandLevel};
use super::{Level, as_f64, level};
use crate::machine::View;
use host_kit::metrics::MetricsRegistry;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// All of them. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Demand {
    watts: Level<NodeDemandLevel>,
    biting: Family<NodeBite, Gauge>,
    devices: Family<NodeBite, Gauge>,
    disbelieved: Family<Node, Gauge>,
}

impl Demand {
    pub(super) fn register(&self, r: &mut MetricsRegistry) {
        r.register(
            "joulie_demand_watts",
            "What packages and GPUs want to draw together, by how often it is exceeded",
            self.watts.clone(),
        );
        r.register(
            "joulie_demand_biting",
            "1 where the grant of a node holds a device back that has all of its share",
            self.biting.clone(),
        );
        r.register(
            "joulie_demand_biting_devices",
            "Packages and GPUs that their power limit holds back although they could have more",
            self.devices.clone(),
        );
        r.register(
            "joulie_demand_throttles_disbelieved",
            "Packages and GPUs that say their power limit holds them back while they draw less than half of it",
            self.disbelieved.clone(),
        );
    }

    pub(super) fn see(&self, node: &str, view: &View) {
        let wants = &view.wants;
        let levels = wants.report.map(|report| {
            let [highest, _, _, _, _, median, _, lowest] = *report.quantiles();
            [highest, median, lowest]
        });
        for (at, exceeded) in
            [DemandLevel::Highest, DemandLevel::Median, DemandLevel::Lowest].into_iter().enumerate()
        {
            let watts = levels.and_then(|levels| levels.get(at).copied());
            level(&self.watts, &NodeDemandLevel { node: node.to_owned(), exceeded }, watts.map(as_f64));
        }
        let devices = || view.cpu.devices.iter().chain(&view.gpu.devices);
        for by in BiteBy::ALL.iter().copied() {
            let labels = NodeBite { node: node.to_owned(), by };
            let bites = |bite: Option<_>| bite == Some(by.source());
            let count = devices().filter(|device| bites(device.beside.wants.bite)).count();
            match wants.report {
                Some(_) => {
                    self.biting.get_or_create(&labels).set(i64::from(bites(wants.bite)));
                    self.devices.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
                }
                None => {
                    self.biting.remove(&labels);
                    self.devices.remove(&labels);
                }
            }
        }
        self.disbelieved.get_or_create(&Node { node: node.to_owned() }).set(i64::from(wants.doubted));
    }

    /// Removes the series of a node that does not belong to this agent any more.
    pub(super) fn forget(&self, node: &str) {
        for exceeded in DemandLevel::ALL.iter().copied() {
            self.watts.remove(&NodeDemandLevel { node: node.to_owned(), exceeded });
        }
        for by in BiteBy::ALL.iter().copied() {
            let labels = NodeBite { node: node.to_owned(), by };
            self.biting.remove(&labels);
            self.devices.remove(&labels);
        }
        self.disbelieved.remove(&Node { node: node.to_owned() });
    }
}
