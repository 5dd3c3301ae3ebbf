//! A NodePowerGrant: what the budget lets a node draw, and what its agent says it holds.

use super::{NodeSeen, Stamp, name, text, watts};
use host_kit::reflect::Row;
use joulie_core::budget::{Grant, Receipt};
use power_units::{Role, Watts};
use serde_json::Value;

/// What is kept of a NodePowerGrant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantSeen {
    /// Its name.
    pub(crate) name: String,
    /// The node.
    pub(crate) node: String,
    /// Which object, and which state of it.
    pub(crate) stamp: Stamp,
    /// What the node is granted.
    pub(crate) grant: Grant,
    /// The node is released.
    pub(crate) released: bool,
    status: Option<Status>,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Status {
    receipt: Receipt,
    boot: String,
    node_uid: String,
}

impl GrantSeen {
    /// What the node read back, where it did so in the boot and for the Node object that are there now. A node that does not
    /// say in which boot it is could have come up without any cap.
    pub(crate) fn receipt(&self, node: &NodeSeen) -> Option<Receipt> {
        let fits = |status: &&Status| {
            !node.boot.is_empty() && status.boot == node.boot && status.node_uid == node.stamp.uid
        };
        self.status.as_ref().filter(fits).map(|status| status.receipt)
    }

    /// What a node of which nobody knows more than this may draw: the machine runs on under its agent.
    pub(crate) fn most(&self) -> Watts {
        let holds = self.status.as_ref().map(|status| status.receipt.holds);
        self.grant.ceiling.max(self.grant.watts).max(holds.unwrap_or(Watts::ZERO))
    }

    /// Whether the agent has read back the grant that stands.
    pub(crate) fn is_read_back(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.receipt.serial == self.grant.serial)
    }
}

fn serial(value: &Value) -> Option<u64> {
    value.as_number()?.as_u64()
}

impl Row for GrantSeen {
    const KIND: &'static str = "NodePowerGrant";

    fn read(object: &Value) -> Result<Self, String> {
        let spec = &object["spec"];
        let grant = Grant {
            serial: serial(&spec["serial"]).ok_or("spec.serial: expected a whole number")?,
            watts: watts(&spec["watts"], Role::Demand).ok_or("spec.watts: expected watts")?,
            ceiling: watts(&spec["ceiling"], Role::Demand).ok_or("spec.ceiling: expected watts")?,
        };
        Ok(Self {
            name: name(object).to_owned(),
            node: text(&spec["nodeName"]).ok_or("spec.nodeName: expected the name of a node")?,
            stamp: Stamp::of(object),
            grant,
            released: spec["released"].as_bool() == Some(true),
            status: status(&object["status"]),
        })
    }
}

/// What is missing or cannot be read is no receipt.
fn status(status: &Value) -> Option<Status> {
    let holds = watts(&status["holds"], Role::Demand).filter(|&holds| holds >= Watts::ZERO)?;
    let floor = watts(&status["floor"], Role::Demand).unwrap_or(Watts::ZERO);
    Some(Status {
        receipt: Receipt { serial: serial(&status["serial"])?, holds, floor },
        boot: text(&status["bootID"])?,
        node_uid: text(&status["nodeUID"])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: Value) -> GrantSeen {
        let spec = json!({"nodeName": "a", "serial": 7, "watts": 300, "ceiling": 450.5});
        GrantSeen::read(&json!({"metadata": {"name": "a", "uid": "g"}, "spec": spec, "status": status}))
            .unwrap()
    }

    fn node(boot: Value, uid: &str) -> NodeSeen {
        let status = json!({"nodeInfo": {"bootID": boot}});
        NodeSeen::read(&json!({"metadata": {"name": "a", "uid": uid}, "status": status})).unwrap()
    }

    #[test]
    fn a_receipt_of_another_boot_or_another_node_is_none() {
        let said = read(json!({"serial": 7, "bootID": "b1", "nodeUID": "u1", "holds": 290, "floor": 200}));
        let receipt = Receipt { serial: 7, holds: Watts::from_int(290), floor: Watts::from_int(200) };
        assert_eq!(said.receipt(&node(json!("b1"), "u1")), Some(receipt));
        assert_eq!(said.receipt(&node(json!("b2"), "u1")), None, "it has rebooted");
        assert_eq!(said.receipt(&node(json!("b1"), "u2")), None, "another machine under the same name");
        assert_eq!(said.receipt(&node(json!(null), "u1")), None, "nobody says in which boot it is");
        assert!(said.is_read_back());
        // 450.5 W is the ceiling.
        assert_eq!(said.most(), Watts::from_bits((450 << 32) + (1 << 31)));
    }

    #[test]
    fn what_is_missing_or_absurd_is_no_receipt() {
        for status in [
            json!(null),
            json!({}),
            json!({"serial": 7, "bootID": "b1", "nodeUID": "u1"}),
            json!({"serial": 7, "bootID": "b1", "nodeUID": "u1", "holds": -1}),
            json!({"serial": 7, "bootID": "b1", "nodeUID": "u1", "holds": 1e300}),
            json!({"serial": 7, "bootID": "", "nodeUID": "u1", "holds": 100}),
            json!({"serial": -7, "bootID": "b1", "nodeUID": "u1", "holds": 100}),
            json!({"serial": "7", "bootID": "b1", "nodeUID": "u1", "holds": 100}),
        ] {
            assert_eq!(read(status.clone()).receipt(&node(json!("b1"), "u1")), None, "{status}");
        }
        for spec in [json!({}), json!({"nodeName": "a", "serial": 1, "watts": -1, "ceiling": "x"})] {
            assert!(GrantSeen::read(&json!({"metadata": {"name": "a"}, "spec": spec})).is_err());
        }
    }
}
