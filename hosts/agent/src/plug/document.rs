//! Redfish's documents, as far as power is in them: the chassis of a machine, and what one of them draws.
//!
//! A BMC is not trusted: a link leads only to a path of the same server, numbers are those that a node can draw, and what is
//! ambiguous is refused with what to do about it.

use power_units::{Role, Watts};
use serde_json::Value;
use std::fmt;

/// Chassis that are looked at, at most.
pub(super) const CHASSIS_MOST: usize = 32;
/// The longest link that is followed.
const LINK_MOST: usize = 256;
/// The most of a name that is quoted.
const QUOTED: usize = 64;
/// The setting that says which document is meant.
const NAME_IT: &str = "set NODE_METER_REDFISH_URL to the document with the power of the whole node";

/// Why a document says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedfishError {
    /// It is no JSON object.
    NotJson,
    /// It has neither `PowerWatts` nor `PowerControl` with a number.
    NoPower,
    /// The number is none that a node can draw.
    Impossible(String),
    /// Several say the power, and nobody can say which is the whole node's: how many.
    Several(usize),
    /// It is no collection of chassis, or names more than are looked at.
    NoChassis,
}

impl fmt::Display for RedfishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("the answer is no JSON object"),
            Self::NoPower => f.write_str("the document has no power now (PowerWatts, PowerControl)"),
            Self::Impossible(number) => write!(f, "it says {number} W, which no node draws"),
            Self::Several(count) => write!(f, "{count} parts say a power, and none is the whole: {NAME_IT}"),
            Self::NoChassis => {
                write!(f, "it lists no chassis, or more than {CHASSIS_MOST}: {NAME_IT}")
            }
        }
    }
}

impl std::error::Error for RedfishError {}

/// One chassis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chassis {
    /// The documents that may have its power, the better one first.
    pub power: Vec<String>,
    /// The chassis that contains it.
    pub inside: Option<String>,
    /// It holds several machines, so that its power is not that of one.
    pub is_shared: bool,
}

fn object(document: &[u8]) -> Result<Value, RedfishError> {
    let value: Value = serde_json::from_slice(document).map_err(|_| RedfishError::NotJson)?;
    if value.is_object() { Ok(value) } else { Err(RedfishError::NotJson) }
}

/// A link, if it leads to a path of the same service.
fn link(value: &Value) -> Option<String> {
    let link = value["@odata.id"].as_str()?;
    let fits = link.len() <= LINK_MOST && link.starts_with("/redfish/v1/") && !link.contains("..");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~:+%".contains(&byte);
    (fits && link.bytes().all(is_plain)).then(|| link.trim_end_matches('/').to_owned())
}

/// The links of a collection of chassis.
///
/// # Errors
/// If it is none, is empty, or has too many.
pub fn members(document: &[u8]) -> Result<Vec<String>, RedfishError> {
    let value = object(document)?;
    let members = value["Members"].as_array().ok_or(RedfishError::NoChassis)?;
    if members.is_empty() || members.len() > CHASSIS_MOST {
        return Err(RedfishError::NoChassis);
    }
    members.iter().map(|member| link(member).ok_or(RedfishError::NoChassis)).collect()
}

/// A chassis.
///
/// # Errors
/// If it is no object.
pub fn chassis(document: &[u8]) -> Result<Chassis, RedfishError> {
    let value = object(document)?;
    let power = ["EnvironmentMetrics", "Power"].into_iter().filter_map(|field| link(&value[field]));
    let kind = value["ChassisType"].as_str().unwrap_or_default();
    Ok(Chassis {
        power: power.collect(),
        inside: link(&value["Links"]["ContainedBy"]),
        is_shared: ["Enclosure", "Rack", "RackGroup", "Row", "Pod", "Shelf"].contains(&kind),
    })
}

/// The power that a document says: `EnvironmentMetrics`, or the older `Power`.
///
/// # Errors
/// If it says none, one that no node draws, or several.
pub fn power(document: &[u8]) -> Result<Watts, RedfishError> {
    let value = object(document)?;
    let reading = &value["PowerWatts"]["Reading"];
    if !reading.is_null() {
        return watts(reading);
    }
    let controls = value["PowerControl"].as_array().map(Vec::as_slice).unwrap_or_default();
    let consumed = |control: &Value| !control["PowerConsumedWatts"].is_null();
    let with: Vec<&Value> = controls.iter().filter(|control| consumed(control)).collect();
    match with.as_slice() {
        [] => Err(RedfishError::NoPower),
        [one] => watts(&one["PowerConsumedWatts"]),
        several => {
            // Some list the whole and its parts; the sum would count the parts twice.
            let mut whole = several.iter().filter(|control| is_whole(control));
            match (whole.next(), whole.next()) {
                (Some(one), None) => watts(&one["PowerConsumedWatts"]),
                _ => Err(RedfishError::Several(several.len())),
            }
        }
    }
}

/// Whether a member of `PowerControl` is that of the whole machine.
fn is_whole(control: &Value) -> bool {
    let name = control["Name"].as_str().unwrap_or_default().to_ascii_lowercase();
    let context = control["PhysicalContext"].as_str().unwrap_or_default();
    let is_named =
        ["server power", "system power", "chassis power"].iter().any(|whole| name.starts_with(whole));
    is_named || context == "Chassis"
}

fn watts(value: &Value) -> Result<Watts, RedfishError> {
    let quoted = || {
        let text: String = value.to_string().chars().take(QUOTED).collect();
        RedfishError::Impossible(text)
    };
    // A number only: a text is what some firmware writes for "not available".
    let Value::Number(number) = value else { return Err(quoted()) };
    let watts = Watts::parse(&number.to_string(), Role::Demand).map_err(|_| quoted())?;
    // The meter itself refuses what is too large.
    if watts > Watts::ZERO { Ok(watts) } else { Err(quoted()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(document: Value) -> Result<Watts, RedfishError> {
        power(document.to_string().as_bytes())
    }

    #[test]
    fn both_generations_of_documents_are_read() {
        let power = json!({
            "@odata.type": "#Power.v1_7_1.Power", "Id": "Power",
            "PowerControl": [{
                "MemberId": "0", "Name": "System Power Control", "PowerConsumedWatts": 344, "PowerCapacityWatts": 1600,
                "PowerMetrics": {"IntervalInMin": 1, "MinConsumedWatts": 271, "MaxConsumedWatts": 489},
                "PowerLimit": {"LimitInWatts": null, "LimitException": "HardPowerOff"},
            }],
        });
        assert_eq!(of(power), Ok(Watts::from_int(344)));
        let environment = json!({
            "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
            "PowerWatts": {"DataSourceUri": "/redfish/v1/Chassis/1/Sensors/TotalPower", "Reading": 812.5},
            "EnergykWh": {"Reading": 3400.1},
        });
        assert_eq!(of(environment), Ok(Watts::from_bits((812 << 32) + (1 << 31))));
    }

    #[test]
    fn parts_are_not_added_to_the_whole() {
        let control = |name: &str, watts: i32| json!({"Name": name, "PowerConsumedWatts": watts});
        let whole_and_parts = json!({"PowerControl": [
            control("Server Power Control", 500), control("CPU Sub-system Power", 300), control("Memory Sub-system Power", 40),
        ]});
        assert_eq!(of(whole_and_parts), Ok(Watts::from_int(500)));
        let by_context = json!({"PowerControl": [
            {"PowerConsumedWatts": 500, "PhysicalContext": "Chassis"}, {"PowerConsumedWatts": 300, "PhysicalContext": "CPU"},
        ]});
        assert_eq!(of(by_context), Ok(Watts::from_int(500)));
        for names in [["Feed A", "Feed B"], ["System Power Control 1", "System Power Control 2"]] {
            let two = json!({"PowerControl": names.map(|name| control(name, 250))});
            assert_eq!(of(two), Err(RedfishError::Several(2)), "{names:?}");
        }
    }

    #[test]
    fn what_is_missing_is_missing_and_what_no_node_draws_is_refused() {
        for none in [
            json!({}),
            json!({"PowerWatts": null}),
            json!({"PowerWatts": {"Reading": null}}),
            json!({"PowerControl": []}),
            json!({"PowerControl": [{"Name": "System Power Control", "PowerConsumedWatts": null}]}),
            json!({"PowerControl": "none"}),
            json!({"PowerWatts": 7}),
        ] {
            assert_eq!(of(none.clone()), Err(RedfishError::NoPower), "{none}");
        }
        for reading in
            [json!(0), json!(-5), json!("344"), json!(1e300), json!(true), json!([344]), json!({"a": 1})]
        {
            let refused = of(json!({"PowerWatts": {"Reading": reading}}));
            assert!(matches!(refused, Err(RedfishError::Impossible(_))), "{reading} {refused:?}");
        }
        for text in ["", "null", "[]", "344", "{", "<html>"] {
            assert_eq!(power(text.as_bytes()), Err(RedfishError::NotJson), "{text}");
        }
        let long = json!({"PowerWatts": {"Reading": "9".repeat(10_000)}});
        assert!(of(long).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn a_link_leads_to_the_same_server_only() {
        let of = |link: &str| members(json!({"Members": [{"@odata.id": link}]}).to_string().as_bytes());
        assert_eq!(of("/redfish/v1/Chassis/1/"), Ok(vec!["/redfish/v1/Chassis/1".to_owned()]));
        for bad in [
            "http://attacker/redfish/v1/Chassis/1",
            "//attacker/redfish/v1/",
            "/redfish/v1/../../etc",
            "/redfish/v1/Chassis/1?x=y",
            "/redfish/v1/a b",
            "/redfish/v1/a\r\nHost: b",
            "/other",
            "",
        ] {
            assert_eq!(of(bad), Err(RedfishError::NoChassis), "{bad}");
        }
        assert_eq!(of(&format!("/redfish/v1/{}", "a".repeat(300))), Err(RedfishError::NoChassis));
        let many = json!({"Members": vec![json!({"@odata.id": "/redfish/v1/Chassis/1"}); CHASSIS_MOST + 1]});
        assert_eq!(members(many.to_string().as_bytes()), Err(RedfishError::NoChassis));
    }

    #[test]
    fn a_chassis_names_its_documents_and_what_it_is_in() {
        let document = json!({
            "ChassisType": "Blade",
            "Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"},
            "EnvironmentMetrics": {"@odata.id": "/redfish/v1/Chassis/1/EnvironmentMetrics"},
            "Links": {"ContainedBy": {"@odata.id": "/redfish/v1/Chassis/Enclosure"}},
        });
        let found = chassis(document.to_string().as_bytes()).unwrap();
        let path = |end: &str| format!("/redfish/v1/Chassis/{end}");
        assert_eq!(
            found,
            Chassis {
                power: vec![path("1/EnvironmentMetrics"), path("1/Power")],
                inside: Some(path("Enclosure")),
                is_shared: false,
            }
        );
        assert!(chassis(br#"{"ChassisType": "Enclosure"}"#).unwrap().is_shared);
    }
}
