//! The metrics of the grants of nodes.

use super::labels::{
    GrantIgnored, GrantSerial, GrantUnkept, GrantWatts, Node, NodeGrantIgnored, NodeGrantSerial,
    NodeGrantUnkept, NodeGrantWatts,
};
use super::{Level, as_f64, level};
use crate::front::grants::Ignored;
use crate::front::receipt::{Receipt, Unkept};
use host_kit::metrics::MetricsRegistry;
use node_kit::NodeGrant;
use power_units::Watts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::time::Duration;

/// What became of a grant.
#[derive(Debug)]
pub(crate) struct HeldGrant<'a> {
    /// What is told of it.
    pub(crate) receipt: Option<Receipt>,
    /// The most that may be held now.
    pub(crate) in_force: Option<Watts>,
    /// What the node has yielded of it and wants back while nobody leads.
    pub(crate) missed: Option<Watts>,
    /// The devices that do not keep to it.
    pub(crate) unkept: &'a Unkept,
}

/// All of them. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Grants {
    watts: Level<NodeGrantWatts>,
    serial: Family<NodeGrantSerial, Gauge>,
    age: Level<Node>,
    unkept: Family<NodeGrantUnkept, Gauge>,
    ignored: Family<NodeGrantIgnored, Counter>,
}

impl Grants {
    pub(super) fn register(&self, r: &mut MetricsRegistry) {
        r.register("joulie_grant_watts", "The watts of the grant that stands", self.watts.clone());
        r.register("joulie_grant_serial", "Which grant stands, and which is in force", self.serial.clone());
        r.register(
            "joulie_grant_age_seconds",
            "For how long this process knows the grant that stands",
            self.age.clone(),
        );
        r.register(
            "joulie_grant_devices_unkept",
            "Packages and GPUs that do not keep to the grant",
            self.unkept.clone(),
        );
        r.register("joulie_grants_ignored", "Grants that were not followed", self.ignored.clone());
    }

    /// Records the grant in force, since when, and its outcome. Without a grant, only the series of ignored grants
    /// remains.
    pub(super) fn tell(
        &self,
        node: &str,
        grant: Option<(NodeGrant, Duration)>,
        HeldGrant { receipt, in_force, missed, unkept }: &HeldGrant<'_>,
    ) {
        let receipt = receipt.as_ref().filter(|_| grant.is_some());
        for (what, watts) in [
            (GrantWatts::Granted, grant.map(|(grant, _)| grant.watts)),
            (GrantWatts::Held, receipt.and_then(|receipt| receipt.holds)),
            (GrantWatts::InForce, in_force.filter(|_| receipt.is_some())),
            (GrantWatts::Floor, receipt.and_then(|receipt| receipt.floor)),
            (GrantWatts::Missed, missed.filter(|_| grant.is_some())),
        ] {
            level(&self.watts, &NodeGrantWatts { node: node.to_owned(), what }, watts.map(as_f64));
        }
        for (what, serial) in [
            (GrantSerial::Granted, grant.map(|(grant, _)| grant.serial)),
            (GrantSerial::Held, receipt.map(|receipt| receipt.serial)),
        ] {
            let labels = NodeGrantSerial { node: node.to_owned(), what };
            match serial {
                Some(serial) => {
                    self.serial.get_or_create(&labels).set(i64::try_from(serial).unwrap_or(i64::MAX));
                }
                None => drop(self.serial.remove(&labels)),
            }
        }
        let label = Node { node: node.to_owned() };
        level(&self.age, &label, grant.map(|(_, age)| age.as_secs_f64()));
        for (what, devices) in [(GrantUnkept::Refused, &unkept.refused), (GrantUnkept::Above, &unkept.above)]
        {
            let labels = NodeGrantUnkept { node: node.to_owned(), what };
            match grant {
                Some(_) => {
                    let count = i64::try_from(devices.len()).unwrap_or(i64::MAX);
                    self.unkept.get_or_create(&labels).set(count);
                }
                None => drop(self.unkept.remove(&labels)),
            }
        }
    }

    pub(super) fn ignores(&self, node: &str, why: Ignored) {
        let reason = match why {
            Ignored::Older => GrantIgnored::Older,
            Ignored::Other => GrantIgnored::Other,
        };
        self.ignored.get_or_create(&NodeGrantIgnored { node: node.to_owned(), reason }).inc();
    }

    /// Removes the series of a node that does not belong to this agent any more.
    pub(super) fn forget(&self, node: &str) {
        let unkept = Unkept::default();
        self.tell(node, None, &HeldGrant { receipt: None, in_force: None, missed: None, unkept: &unkept });
        for reason in GrantIgnored::ALL {
            self.ignored.remove(&NodeGrantIgnored { node: node.to_owned(), reason: *reason });
        }
    }
}
