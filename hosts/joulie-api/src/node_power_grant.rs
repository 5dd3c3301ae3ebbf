//! NodePowerGrant: the most that the packages and GPUs of one node may be allowed together, set by the budget, and what
//! the node's agent holds them to.
//!
//! Only the operator writes the spec, and only that node's agent writes the status. The serial grows with every write,
//! so that a late write with an old serial changes nothing. A status says which serial it refers to.

use crate::field::{self, FieldError};
use crate::macros::{part, vocabulary};
use crate::number::{Number, Whole};
use crate::word::Word;
use joulie_core::budget::demand::{DemandReport, QUANTILES};
use kube::CustomResource;
use power_units::{Ratio, Role, Watts};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a node may be allowed.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "NodePowerGrant",
    doc = "The most that the packages and GPUs of one node may be allowed together, and what its agent holds them to.",
    status = "NodePowerGrantStatus",
    derive = "PartialEq",
    shortname = "npg",
    category = "joulie",
    selectable = ".spec.nodeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Watts", type_ = "number", json_path = ".spec.watts"),
    printcolumn(name = "Holds", type_ = "number", json_path = ".status.holds"),
    printcolumn(name = "Serial", type_ = "integer", json_path = ".spec.serial"),
    printcolumn(name = "Read-Back", type_ = "integer", json_path = ".status.serial"),
    printcolumn(name = "Ceiling", type_ = "number", json_path = ".spec.ceiling", priority = 1),
    printcolumn(name = "Released", type_ = "boolean", json_path = ".spec.released"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.watts <= self.ceiling").message("ceiling: the grant itself is one of those that it covers"))]
#[x_kube(validation = kube::core::Rule::new("self.serial >= oldSelf.serial").message("serial: it only grows"))]
#[x_kube(validation = kube::core::Rule::new("self.watts == oldSelf.watts || self.serial > oldSelf.serial").message("serial: another grant has a higher one"))]
pub struct NodePowerGrantSpec {
    /// The name of the node, which is what identifies this object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("nodeName is immutable: an object stays with its node"))]
    pub node_name: String,
    /// Which grant this is; it grows with every change.
    #[schemars(range(min = 1))]
    pub serial: Whole,
    /// The most that all packages and GPUs of the node may be allowed together.
    #[schemars(range(min = 0))]
    pub watts: Number,
    /// The most that any grant may allow that the node may still hold: those that are not read back yet, this one included. The node's
    /// largest draw, while it has not read back any in this boot.
    #[schemars(range(min = 0))]
    pub ceiling: Number,
    /// The node is released from the budget: the agent forgets every grant of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<bool>,
    /// Watts are short: the node may give back by itself what it has used and does not want any more, by `status.yields`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<bool>,
    /// What is left of the node while an event is on, by the PowerBudgets above it and its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub armed: Option<Vec<ArmedShare>>,
    /// The decision of the operator that wrote this grant: the number of its term and that of its pass. The operator's log and Events
    /// name it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub decision: Option<String>,
}

/// What an event leaves of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArmedShare {
    /// The name of the event: `spec.event` of PowerEvents.
    #[schemars(length(min = 1, max = 63))]
    pub event: String,
    /// The part of the way from the floors of all its packages and GPUs to the most that they draw.
    #[schemars(range(min = 0, max = 1))]
    pub share: Number,
}

impl ArmedShare {
    /// The share; `None` if it is no number from 0 to 1.
    #[must_use]
    pub fn ratio(&self) -> Option<Ratio> {
        ratio(self.share)
    }
}

/// A part of a whole; `None` if it is no number from 0 to 1.
#[must_use]
pub fn ratio(number: Number) -> Option<Ratio> {
    let ratio = Ratio::parse(&number.to_string(), Role::Limit).ok()?;
    (ratio >= Ratio::ZERO && ratio <= Ratio::ONE).then_some(ratio)
}

part! {
    /// What the node's agent holds its packages and GPUs to. Before the node holds its first grant it says nothing.
    pub struct NodePowerGrantStatus {
        /// The last grant that is in force, read back from every device.
        serial: Whole,
        /// The boot of the machine in which it was put in force.
        #[serde(rename = "bootID")]
        boot_id: String,
        /// The Node object of the machine.
        #[serde(rename = "nodeUID")]
        node_uid: String,
        /// The most that the packages and GPUs draw together by the limits that were read back; a device that keeps to none
        /// counts with the most that it can draw.
        holds: Number,
        /// The least that the packages and GPUs can be held to together, as far as the agent knows: their ranges, its own
        /// configuration, and what they held when they were asked for less.
        floor: Number,
        /// What the node keeps to of the grant of this serial until it follows a later one: the rest of that grant may be given to
        /// others. Without it, it keeps the whole grant.
        yields: Number,
        /// The armed events that are in force in full.
        #[schemars(length(max = 64))]
        armed: Vec<String>,
        /// What the node wants to draw. It is missing while that is not known.
        demand: GrantDemand,
        /// When this was last said.
        updated_at: String,
    }
}

/// The watts that are left of a grant after what its node has yielded, by the object; `None` where it grants nothing.
#[must_use]
pub fn left_watts(grant: &Value) -> Option<f64> {
    let watts = grant["spec"]["watts"].as_f64()?;
    let left = grant["status"]["yields"].as_f64().filter(|&left| is_of_its_serial(grant) && left >= 0.0);
    Some(left.map_or(watts, |left| left.min(watts)))
}

/// What the devices of a node hold, by the object; `None` where that is not known: the receipt of a raise may wait, and until it
/// comes that of the grant before says nothing of what was raised.
#[must_use]
pub fn held_watts(grant: &Value) -> Option<f64> {
    let holds = grant["status"]["holds"].as_f64().filter(|&holds| holds >= 0.0)?;
    let is_lowered = || left_watts(grant).is_some_and(|left| left <= holds);
    (is_of_its_serial(grant) || is_lowered()).then_some(holds)
}

fn is_of_its_serial(grant: &Value) -> bool {
    let (spec, status) = (&grant["spec"], &grant["status"]);
    status["serial"].as_u64().is_some() && status["serial"] == spec["serial"]
}

vocabulary! {
    /// How the agent knows that a limit throttles the node.
    pub enum ThrottleEvidence {
        /// A counter of the device.
        Counter = "counter",
        /// What the device says of the instant in which it is asked.
        Instant = "instant",
        /// The devices draw nearly all that they are allowed: there is no better sign.
        Drawn = "drawn",
    }
}

/// What a node wants to draw, all its packages and GPUs together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantDemand {
    /// The demand that is exceeded for 0, 5, 10, 20, 30, 50, 75 and 95 % of the time; none is above the one before. Where there are
    /// fewer numbers, the last one counts for the others.
    #[schemars(length(min = 1, max = 8), inner(range(min = 0)))]
    pub quantiles_watts: Vec<Number>,
    /// The grant throttles the node, and a higher one would not.
    pub biting: bool,
    /// How that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_by: Option<Word<ThrottleEvidence>>,
}

const QUANTILES_FIELD: &str = "status.demand.quantilesWatts";

impl GrantDemand {
    /// What is written for a report. The last number is not repeated.
    #[must_use]
    pub fn of(report: &DemandReport, throttled_by: Option<ThrottleEvidence>) -> Self {
        let mut watts = report.quantiles().to_vec();
        watts.dedup_by(|next, last| next == last && *next == report.lowest());
        Self {
            quantiles_watts: watts.into_iter().map(Number::from).collect(),
            biting: report.bites(),
            throttled_by: throttled_by.map(Into::into),
        }
    }

    /// The report that it is.
    ///
    /// # Errors
    /// When there are no numbers or too many, one is no watts or below zero, or one is above the one before.
    pub fn read(&self) -> Result<DemandReport, FieldError> {
        let numbers = self.quantiles_watts.iter().take(QUANTILES + 1);
        let watts = numbers.map(|number| {
            let watts = field::quantity(QUANTILES_FIELD, Some(*number), Role::Demand, Watts::parse)?;
            watts.ok_or_else(|| FieldError::missing(QUANTILES_FIELD, "watts"))
        });
        let watts = watts.collect::<Result<Vec<Watts>, FieldError>>()?;
        DemandReport::new(&watts, self.biting).map_err(|error| {
            let found = format!("{watts:?} ({error})");
            FieldError::new(QUANTILES_FIELD, Some(found), "1 to 8 numbers of watts that do not rise")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn demand(watts: &[i32]) -> GrantDemand {
        let quantiles_watts = watts.iter().map(|&watts| Number::from(watts)).collect();
        GrantDemand { quantiles_watts, biting: true, throttled_by: None }
    }

    #[test]
    fn what_is_left_of_a_grant_is_by_its_own_receipt() {
        let left = |serial: i64, yields: Value| {
            left_watts(
                &json!({"spec": {"serial": 7, "watts": 300}, "status": {"serial": serial, "yields": yields}}),
            )
        };
        assert_eq!((left(7, json!(120.5)), left(7, json!(400))), (Some(120.5), Some(300.0)));
        assert_eq!(
            (left(6, json!(120)), left(7, json!(-1)), left(7, Value::Null)),
            (Some(300.0), Some(300.0), Some(300.0))
        );
        assert_eq!(left_watts(&json!({"spec": {"serial": 1}})), None);
    }

    #[test]
    fn what_is_held_is_not_known_by_the_receipt_of_before_a_raise() {
        let held = |serial: i64, holds: Value| {
            held_watts(
                &json!({"spec": {"serial": 7, "watts": 300}, "status": {"serial": serial, "holds": holds}}),
            )
        };
        assert_eq!(
            (held(7, json!(290.5)), held(6, json!(200))),
            (Some(290.5), None),
            "raised from 200 to 300"
        );
        assert_eq!(held(6, json!(400)), Some(400.0), "not lowered yet");
        assert_eq!((held(7, json!(-1)), held(7, Value::Null)), (None, None));
    }

    #[test]
    fn a_report_survives_the_way_through_an_object() {
        for watts in [&[400][..], &[400, 300], &[400, 400, 300, 200, 200, 100, 50, 0]] {
            let report = demand(watts).read().unwrap();
            assert_eq!(GrantDemand::of(&report, None).quantiles_watts, demand(watts).quantiles_watts);
            assert_eq!(GrantDemand::of(&report, None).read(), Ok(report));
        }
    }

    #[test]
    fn a_demand_that_makes_no_sense_is_refused_with_what_is_accepted() {
        for watts in [&[][..], &[-1], &[100, 101], &[9; 9], &[5, 4, -3]] {
            let told = demand(watts).read().unwrap_err().to_string();
            assert!(told.starts_with("status.demand.quantilesWatts: expected 1 to 8"), "{told}");
        }
    }
}
