//! A NodePowerGrant: what the budget allows a node to draw, and what its agent reports that it holds.

use super::{Stamp, name, text, watts};
use host_kit::reflect::Row;
use joulie_api::labels::object::POWER_BUDGET;
use joulie_api::node_power_grant::{ArmedShare, GrantDemand};
use joulie_core::budget::demand::DemandReport;
use joulie_core::budget::{Grant, GrantReceipt};
use planner::node::{Granted, Signed};
use power_units::{Role, Watts};
use serde::Deserialize;
use serde_json::Value;

/// What is kept of a NodePowerGrant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GrantSeen {
    /// Its name.
    pub(crate) name: String,
    /// The node.
    pub(crate) node: String,
    /// The identifier of the object.
    pub(crate) uid: String,
    /// The serial of the grant in force.
    pub(crate) serial: u64,
    /// The PowerBudget that the node was in when the grant was written.
    pub(crate) budget: Option<String>,
    /// What events leave of the node, as it is written there.
    pub(crate) armed: Vec<ArmedShare>,
    /// The events that are in force in full, as its agent says.
    pub(crate) obeys: Vec<String>,
    /// The grant and its receipt.
    pub(crate) granted: Granted,
}

fn serial(value: &Value) -> Option<u64> {
    value.as_number()?.as_u64()
}

impl Row for GrantSeen {
    const KIND: &'static str = "NodePowerGrant";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let spec = &object["spec"];
        let serial = serial(&spec["serial"]).ok_or("spec.serial: expected a whole number")?;
        let grant = Grant {
            serial,
            watts: watts(&spec["watts"], Role::Demand).ok_or("spec.watts: expected watts")?,
            ceiling: watts(&spec["ceiling"], Role::Demand).ok_or("spec.ceiling: expected watts")?,
        };
        let Stamp { uid, version } = Stamp::of(object);
        let granted = Granted {
            grant: Some(grant),
            released: spec["released"].as_bool() == Some(true),
            signed: signed(&object["status"]),
            demand: demand(&object["status"]["demand"]),
            version,
            ..Granted::default()
        };
        Ok(Self {
            name: name(object).to_owned(),
            node: text(&spec["nodeName"]).ok_or("spec.nodeName: expected the name of a node")?,
            uid,
            serial,
            budget: text(&object["metadata"]["labels"][POWER_BUDGET]),
            // What cannot be read is written anew.
            armed: Vec::deserialize(&spec["armed"]).unwrap_or_default(),
            obeys: Vec::deserialize(&object["status"]["armed"]).unwrap_or_default(),
            granted,
        })
    }
}

/// What the node wants to draw. A report that cannot be read counts as none: the node is blind.
fn demand(said: &Value) -> Option<DemandReport> {
    if said.is_null() {
        return None;
    }
    let demand = GrantDemand::deserialize(said).map_err(|error| error.to_string());
    let report = demand.and_then(|demand| demand.read().map_err(|error| error.to_string()));
    report.inspect_err(|why| tracing::warn!("a demand that cannot be read counts as unknown: {why}")).ok()
}

/// A receipt with a missing or unreadable part does not count.
fn signed(status: &Value) -> Option<Signed> {
    let holds = watts(&status["holds"], Role::Demand).filter(|&holds| holds >= Watts::ZERO)?;
    let floor = watts(&status["floor"], Role::Demand).unwrap_or(Watts::ZERO);
    Some(Signed {
        receipt: GrantReceipt { serial: serial(&status["serial"])?, holds, floor },
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

    #[test]
    fn what_an_agent_signs_is_read() {
        let said =
            read(json!({"serial": 7, "bootID": "b1", "nodeUID": "u1", "holds": 290, "floor": 200})).granted;
        let receipt = GrantReceipt { serial: 7, holds: Watts::from_int(290), floor: Watts::from_int(200) };
        let signed = Signed { receipt, boot: "b1".to_owned(), node_uid: "u1".to_owned() };
        assert_eq!(said.signed, Some(signed));
        assert!(said.is_read_back());
        assert_eq!(said.most(), Watts::from_int(300), "it was read back");
        // Of the grant before: 450.5 W, the ceiling.
        let before = read(json!({"serial": 6, "bootID": "b1", "nodeUID": "u1", "holds": 290})).granted;
        assert_eq!(before.most(), Watts::from_bits((450 << 32) + (1 << 31)));
    }

    #[test]
    fn a_demand_that_makes_no_sense_is_unknown_and_spoils_no_receipt() {
        let said = |demand: Value| {
            let status =
                json!({"serial": 7, "bootID": "b1", "nodeUID": "u1", "holds": 290, "demand": demand});
            read(status).granted
        };
        let told = said(json!({"quantilesWatts": [400, 300.5], "biting": true})).demand.unwrap();
        assert!(told.bites() && told.highest() == Watts::from_int(400));
        assert_eq!(told.lowest(), Watts::from_bits((300 << 32) + (1 << 31)));
        for demand in [
            json!(null),
            json!([]),
            json!({"biting": true}),
            json!({"quantilesWatts": [], "biting": true}),
            json!({"quantilesWatts": [300, 400], "biting": true}),
            json!({"quantilesWatts": [-1], "biting": false}),
            json!({"quantilesWatts": [1e300], "biting": false}),
            json!({"quantilesWatts": [1, 1, 1, 1, 1, 1, 1, 1, 1], "biting": false}),
            json!({"quantilesWatts": [400], "biting": "yes"}),
        ] {
            let granted = said(demand.clone());
            assert!(granted.demand.is_none() && granted.signed.is_some(), "{demand}");
        }
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
            assert_eq!(read(status.clone()).granted.signed, None, "{status}");
        }
        for spec in [json!({}), json!({"nodeName": "a", "serial": 1, "watts": -1, "ceiling": "x"})] {
            assert!(GrantSeen::read(&json!({"metadata": {"name": "a"}, "spec": spec})).is_err());
        }
    }
}
