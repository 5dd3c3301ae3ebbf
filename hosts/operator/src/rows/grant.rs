//! A NodePowerGrant: what the budget allows a node to draw, and what its agent reports that it holds.

use super::{Stamp, name, text, watts};
use host_kit::closed_label;
use host_kit::reflect::Row;
use joulie_api::labels::object::POWER_BUDGET;
use joulie_api::node_power_grant::{ArmedShare, GrantDemand};
use joulie_core::budget::demand::{DemandReport, QUANTILES};
use joulie_core::budget::{Grant, GrantReceipt};
use planner::node::{Granted, Signed};
use power_units::{Role, Watts};
use serde::Deserialize;
use serde_json::Value;
use std::hash::{DefaultHasher, Hasher};

closed_label! {
    /// Why a report of what a node wants to draw counts as none.
    pub(crate) enum DemandFault {
        /// It has not the form of a report.
        Form = "form",
        /// It has no numbers, or more than are agreed on.
        Count = "count",
        /// A number is no watts, below zero, or above the one before.
        Number = "number",
    }
}

/// A report of demand that counts as none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedDemand {
    /// Why.
    pub(crate) fault: DemandFault,
    /// Tells the report from another one, so that one that only stands on is not counted again.
    pub(crate) print: u64,
}

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
    /// It says that watts are short.
    pub(crate) lends: bool,
    /// What events leave of the node, as it is written there.
    pub(crate) armed: Vec<ArmedShare>,
    /// The events that are in force in full, as its agent says.
    pub(crate) obeys: Vec<String>,
    /// The report of its agent's demand that counts as unknown, where there is one.
    pub(crate) refused: Option<RefusedDemand>,
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
        let demand = demand(&object["status"]["demand"]);
        let granted = Granted {
            grant: Some(grant),
            released: spec["released"].as_bool() == Some(true),
            signed: signed(&object["status"]),
            demand: demand.unwrap_or_default(),
            version,
            ..Granted::default()
        };
        Ok(Self {
            name: name(object).to_owned(),
            node: text(&spec["nodeName"]).ok_or("spec.nodeName: expected the name of a node")?,
            uid,
            serial,
            budget: text(&object["metadata"]["labels"][POWER_BUDGET]),
            lends: spec["lends"].as_bool() == Some(true),
            // What cannot be read is written anew.
            armed: Vec::deserialize(&spec["armed"]).unwrap_or_default(),
            obeys: Vec::deserialize(&object["status"]["armed"]).unwrap_or_default(),
            refused: demand.err(),
            granted,
        })
    }
}

/// What the node wants to draw. A report that cannot be read counts as none: the node is blind.
fn demand(said: &Value) -> Result<Option<DemandReport>, RefusedDemand> {
    if said.is_null() {
        return Ok(None);
    }
    let refused = |fault, why: &dyn std::fmt::Display| {
        tracing::warn!("a demand that cannot be read counts as unknown: {why}");
        let mut print = DefaultHasher::new();
        print.write(said.to_string().as_bytes());
        RefusedDemand { fault, print: print.finish() }
    };
    let demand = GrantDemand::deserialize(said).map_err(|error| refused(DemandFault::Form, &error))?;
    let is_counted = (1..=QUANTILES).contains(&demand.quantiles_watts.len());
    let fault = if is_counted { DemandFault::Number } else { DemandFault::Count };
    demand.read().map(Some).map_err(|error| refused(fault, &error))
}

/// A receipt with a missing or unreadable part does not count.
fn signed(status: &Value) -> Option<Signed> {
    let holds = watts(&status["holds"], Role::Demand).filter(|&holds| holds >= Watts::ZERO)?;
    let floor = watts(&status["floor"], Role::Demand).unwrap_or(Watts::ZERO);
    // Without a readable number the whole grant counts.
    let yields = watts(&status["yields"], Role::Demand).filter(|&left| left >= Watts::ZERO);
    Some(Signed {
        receipt: GrantReceipt { serial: serial(&status["serial"])?, holds, floor, yields },
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
        let receipt = GrantReceipt {
            serial: 7,
            holds: Watts::from_int(290),
            floor: Watts::from_int(200),
            yields: None,
        };
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
            read(status)
        };
        let told = said(json!({"quantilesWatts": [400, 300.5], "biting": true})).granted.demand.unwrap();
        assert!(told.bites() && told.highest() == Watts::from_int(400));
        assert_eq!(told.lowest(), Watts::from_bits((300 << 32) + (1 << 31)));
        let (form, count, number) =
            (Some(DemandFault::Form), Some(DemandFault::Count), Some(DemandFault::Number));
        for (demand, fault) in [
            (json!(null), None),
            (json!([]), form),
            (json!({"biting": true}), form),
            (json!({"quantilesWatts": [], "biting": true}), count),
            (json!({"quantilesWatts": [300, 400], "biting": true}), number),
            (json!({"quantilesWatts": [-1], "biting": false}), number),
            (json!({"quantilesWatts": [1e300], "biting": false}), number),
            (json!({"quantilesWatts": [1, 1, 1, 1, 1, 1, 1, 1, 1], "biting": false}), count),
            (json!({"quantilesWatts": [400], "biting": "yes"}), form),
        ] {
            let seen = said(demand.clone());
            assert!(seen.granted.demand.is_none() && seen.granted.signed.is_some(), "{demand}");
            assert_eq!(seen.refused.map(|refused| refused.fault), fault, "{demand}");
        }
        let print = |demand: Value| said(demand).refused.unwrap().print;
        assert_eq!(print(json!([])), print(json!([])), "the object was written for another reason");
        assert_ne!(print(json!([])), print(json!({})), "another report for the same reason");
    }

    #[test]
    fn agents_of_other_versions_count_for_what_they_sign_and_never_for_less() {
        let (w, signed) =
            (Watts::from_int, json!({"serial": 7, "bootID": "b1", "nodeUID": "u1", "holds": 290}));
        let with = |more: Value| {
            let mut status = signed.clone();
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(status)
        };
        // The first ones knew no floor, no demand, no events and no yields: the whole grant counts, and the node is blind.
        let first = with(json!({}));
        assert_eq!((first.granted.most(), first.granted.demand, first.obeys.len()), (w(300), None, 0));
        assert_eq!(first.granted.signed.unwrap().receipt.floor, Watts::ZERO);
        let demand = json!({"quantilesWatts": [200], "biting": false});
        let next = with(json!({"floor": 120, "demand": demand}));
        assert_eq!(next.granted.most(), w(300), "it keeps all of its grant");
        // A later one may say more, which is passed over.
        let later =
            with(json!({"yields": 200, "holds": 180, "demand": demand, "spares": [1, 2], "armed": []}));
        assert_eq!(later.granted.most(), w(200));
        // Over one that has yielded an earlier one signs anew, and takes the yield away with that.
        assert_eq!(with(json!({"floor": 120})).granted.most(), w(300));
        // What it holds counts also where its grant allows less.
        assert_eq!(with(json!({"holds": 410})).granted.most(), w(410));
    }

    #[test]
    fn what_a_node_yields_is_left_of_the_grant_of_its_serial_only() {
        let left = |serial: u64, yields: Value| {
            let status =
                json!({"serial": serial, "bootID": "b1", "nodeUID": "u1", "holds": 140, "yields": yields});
            read(status).granted.stands().unwrap().watts
        };
        let w = Watts::from_int;
        assert_eq!((left(7, json!(150)), left(7, json!(301))), (w(150), w(300)));
        assert_eq!(left(6, json!(150)), w(300), "of the grant before");
        for yields in [json!(null), json!("150"), json!(-1), json!(1e300), json!([150])] {
            assert_eq!(left(7, yields.clone()), w(300), "{yields}");
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
