//! A PowerBudget: a limit that a person has written, and what the operator has last reported of it.

use super::response::{self, SignalSeen, WindowSeen};
use super::{Stamp, name, text, watts, whole};
use host_kit::reflect::Row;
use joulie_api::node_power_grant::ratio;
use joulie_api::power_budget::{ArmedRule, BudgetMode, PowerBudgetStatus};
use joulie_api::word::Vocabulary;
use joulie_core::budget::sustained::{SustainedError, SustainedLimit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use power_units::{Micros, Ratio, Role, Watts};
use serde::Deserialize;
use serde_json::Value;

/// What is kept of a PowerBudget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BudgetSeen {
    /// Its name.
    pub(crate) name: String,
    /// The identifier of the object.
    pub(crate) uid: String,
    /// The version of the object.
    pub(crate) version: String,
    /// The generation of its spec.
    pub(crate) generation: i64,
    /// The budget that it is a part of.
    pub(crate) parent: Option<String>,
    /// The nodes that are in it.
    pub(crate) selector: Selector,
    /// The limit.
    pub(crate) watts: Watts,
    /// What is drawn that nobody controls.
    pub(crate) base: Watts,
    /// Its mode.
    pub(crate) mode: BudgetMode,
    /// Nothing in it is raised.
    pub(crate) paused: bool,
    /// Its nodes may sleep while they are empty.
    pub(crate) sleep: bool,
    /// The mean that it keeps to over a window.
    pub(crate) sustained: Option<SustainedLimit>,
    /// What events leave of its nodes.
    pub(crate) armed: Vec<ArmedRule>,
    /// Hours of the week in which the limit is lower.
    pub(crate) windows: Vec<WindowSeen>,
    /// What lowers the limit from outside.
    pub(crate) signal: Option<SignalSeen>,
    /// Its status.
    pub(crate) status: PowerBudgetStatus,
}

impl Row for BudgetSeen {
    const KIND: &'static str = "PowerBudget";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let spec = &object["spec"];
        let limit = |field: &str, role| {
            let found = watts(&spec[field], role).filter(|&watts| watts >= Watts::ZERO);
            found.ok_or_else(|| format!("spec.{field}: expected watts, 0 or more"))
        };
        let Stamp { uid, version } = Stamp::of(object);
        let mode = spec["mode"].as_str().and_then(BudgetMode::read);
        Ok(Self {
            name: name(object).to_owned(),
            uid,
            version,
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            parent: text(&spec["parent"]),
            selector: selector(&spec["nodeSelector"])?,
            watts: limit("watts", Role::Limit)?,
            base: if spec["baseWatts"].is_null() { Watts::ZERO } else { limit("baseWatts", Role::Demand)? },
            mode: mode.ok_or("spec.mode: expected observe or enforce")?,
            paused: {
                let pause = Some(&spec["pause"]).filter(|pause| !pause.is_null());
                pause.map_or(Some(false), Value::as_bool).ok_or("spec.pause: expected true or false")?
            },
            sleep: {
                let sleep = Some(&spec["sleep"]).filter(|sleep| !sleep.is_null());
                sleep.map_or(Some(false), Value::as_bool).ok_or("spec.sleep: expected true or false")?
            },
            sustained: sustained(spec, limit("watts", Role::Limit)?)?,
            armed: armed(&spec["armed"])?,
            windows: response::windows(spec)?,
            signal: response::signal(spec)?,
            // The operator writes it; what another generation wrote there is written anew.
            status: PowerBudgetStatus::deserialize(&object["status"]).unwrap_or_default(),
        })
    }
}

/// An instant limit above this part of the sustained one needs to be acknowledged.
const WISHFUL: Ratio = Ratio::from_bits((5 << 32) / 4);

/// The second limit, if there is one. `instant` is the first.
fn sustained(spec: &Value, instant: Watts) -> Result<Option<SustainedLimit>, String> {
    let (watts_said, window_said) = (&spec["sustainedWatts"], &spec["windowSeconds"]);
    if watts_said.is_null() && window_said.is_null() {
        return Ok(None);
    }
    let sustained = watts(watts_said, Role::Limit).filter(|&watts| watts >= Watts::ZERO);
    let sustained =
        sustained.ok_or("spec.sustainedWatts: expected watts, 0 or more, with spec.windowSeconds")?;
    let window =
        whole(window_said).ok_or("spec.windowSeconds: expected seconds, with spec.sustainedWatts")?;
    if instant > sustained.scale(WISHFUL, Role::Limit) && spec["acknowledgeInstant"] != true {
        return Err(
            "spec.watts: more than 1.25 times spec.sustainedWatts needs spec.acknowledgeInstant".to_owned()
        );
    }
    let limit = SustainedLimit::new(instant, sustained, Micros::new(window.saturating_mul(1_000_000)));
    limit.map(Some).map_err(|error| match error {
        SustainedError::AboveInstant => "spec.sustainedWatts: expected no more than spec.watts".to_owned(),
        SustainedError::Window => "spec.windowSeconds: expected 60 to 3600".to_owned(),
    })
}

/// What events leave. A share that is none would be unknown when it is needed.
fn armed(value: &Value) -> Result<Vec<ArmedRule>, String> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    let rules = Vec::<ArmedRule>::deserialize(value).map_err(|error| format!("spec.armed: {error}"))?;
    for ArmedRule { event, shares } in &rules {
        let each = [shares.performance, shares.draining, shares.eco];
        if event.is_empty() || each.into_iter().any(|share| ratio(share).is_none()) {
            return Err(format!("spec.armed: expected events with shares from 0 to 1, found {event:?}"));
        }
    }
    Ok(rules)
}

fn selector(value: &Value) -> Result<Selector, String> {
    if value.is_null() {
        return Ok(Selector::default());
    }
    let labels = LabelSelector::deserialize(value).map_err(|error| format!("spec.nodeSelector: {error}"))?;
    Selector::try_from(labels).map_err(|error| format!("spec.nodeSelector: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::SelectorExt;
    use serde_json::json;

    fn read(spec: Value) -> Result<BudgetSeen, String> {
        let metadata = json!({"name": "r1", "uid": "u", "generation": 3});
        BudgetSeen::read(&json!({"metadata": metadata, "spec": spec}))
    }

    #[test]
    fn what_a_person_writes_is_read() {
        let seen =
            read(json!({"parent": "site", "watts": 400.5, "baseWatts": 40, "mode": "observe", "pause": true,
            "nodeSelector": {"matchLabels": {"rack": "r1"},
                "matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["spare"]}]}}))
            .unwrap();
        assert_eq!(
            (seen.parent.as_deref(), seen.mode, seen.paused),
            (Some("site"), BudgetMode::Observe, true)
        );
        assert_eq!((seen.watts.to_bits(), seen.base), (801 << 31, Watts::from_int(40)));
        let matches = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            seen.selector.matches(&labels)
        };
        assert!(matches(&[("rack", "r1")]) && !matches(&[("rack", "r2")]));
        assert!(!matches(&[("rack", "r1"), ("pool", "spare")]));
        let plain = read(json!({"watts": 0, "mode": "enforce"})).unwrap();
        assert!(
            plain.selector.matches(&[("any", "label")].map(|(k, v)| (k.to_owned(), v.to_owned())).into())
        );
        assert_eq!((plain.watts, plain.base, plain.paused), (Watts::ZERO, Watts::ZERO, false));
        assert_eq!((plain.sustained, plain.armed.len()), (None, 0));
        let two = json!({"watts": 500, "sustainedWatts": 400, "windowSeconds": 900, "mode": "enforce"});
        let two = read(two).unwrap().sustained.unwrap();
        assert_eq!((two.sustained(), two.window()), (Watts::from_int(400), Micros::new(900_000_000)));
        let far = json!({"watts": 900, "sustainedWatts": 400, "windowSeconds": 60, "acknowledgeInstant": true, "mode": "enforce"});
        assert!(read(far).unwrap().sustained.is_some());
    }

    #[test]
    fn what_is_no_limit_is_refused_with_the_field() {
        for (spec, field) in [
            (json!({"mode": "enforce"}), "spec.watts"),
            (json!({"watts": -1, "mode": "enforce"}), "spec.watts"),
            (json!({"watts": 1e300, "mode": "enforce"}), "spec.watts"),
            (json!({"watts": "400", "mode": "enforce"}), "spec.watts"),
            (json!({"watts": 400, "baseWatts": -5, "mode": "enforce"}), "spec.baseWatts"),
            (json!({"watts": 400}), "spec.mode"),
            (json!({"watts": 400, "mode": "Enforce"}), "spec.mode"),
            (json!({"watts": 400, "mode": "enforce", "pause": "yes"}), "spec.pause"),
            (json!({"watts": 400, "mode": "enforce", "sustainedWatts": 390}), "spec.windowSeconds"),
            (json!({"watts": 400, "mode": "enforce", "windowSeconds": 60}), "spec.sustainedWatts"),
            (
                json!({"watts": 400, "mode": "enforce", "sustainedWatts": -1, "windowSeconds": 60}),
                "spec.sustainedWatts",
            ),
            (
                json!({"watts": 400, "mode": "enforce", "sustainedWatts": 401, "windowSeconds": 60}),
                "spec.sustainedWatts",
            ),
            (
                json!({"watts": 400, "mode": "enforce", "sustainedWatts": 390, "windowSeconds": 59}),
                "spec.windowSeconds",
            ),
            (
                json!({"watts": 400, "mode": "enforce", "sustainedWatts": 390, "windowSeconds": 3601}),
                "spec.windowSeconds",
            ),
            (
                json!({"watts": 501, "mode": "enforce", "sustainedWatts": 400, "windowSeconds": 60}),
                "spec.watts",
            ),
            (json!({"watts": 400, "mode": "enforce", "armed": {}}), "spec.armed"),
            (
                json!({"watts": 400, "mode": "enforce", "armed": [{"event": "a", "shares": {"eco": 1}}]}),
                "spec.armed",
            ),
            (
                json!({"watts": 400, "mode": "enforce", "armed": [{"event": "a", "shares": {"performance": 1.5, "draining": 1, "eco": 1}}]}),
                "spec.armed",
            ),
            (json!({"watts": 400, "mode": "enforce", "nodeSelector": "rack=r1"}), "spec.nodeSelector"),
            (
                json!({"watts": 400, "mode": "enforce", "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
                "spec.nodeSelector",
            ),
        ] {
            let why = read(spec.clone()).unwrap_err();
            assert!(why.starts_with(field), "{spec}: {why}");
        }
    }
}
