//! The faults that a person or a test has set on a node, and their effects. They do not affect the machine itself: it
//! runs on while its telemetry is wrong.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A fault of a node's telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TelemetryFault {
    /// None.
    #[default]
    Ok,
    /// It answers 500.
    Error,
    /// It answers 200 with half of a JSON text.
    Garbage,
    /// It answers 200 with JSON that contains no power.
    Empty,
    /// It answers 200 with the last reading before the fault.
    Stuck,
}

/// A fault of a node's controls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlFault {
    /// None.
    #[default]
    Ok,
    /// It reports success and does nothing.
    Ignored,
    /// It reports with 200 that the request is blocked.
    Blocked,
    /// It answers 500.
    Error,
}

/// All faults of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NodeFaults {
    /// The fault of its telemetry.
    pub telemetry: TelemetryFault,
    /// The fault of its controls.
    pub control: ControlFault,
    /// The delay of every answer, ms.
    pub slow_ms: u32,
    /// The node is unreachable: no answers, no heartbeats, no status of its pods. The machine runs on.
    pub gone: bool,
}

/// The longest delay. It stands for an answer that never comes.
pub const SLOW_MAX_MS: u32 = 600_000;

impl NodeFaults {
    /// Reads the faults that apply from now on. What is not mentioned has no fault.
    ///
    /// # Errors
    /// If the text is not such JSON; the error lists what is accepted.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        const ACCEPTED: &str = "accepted: {\"telemetry\": ok|error|garbage|empty|stuck, \
             \"control\": ok|ignored|blocked|error, \"slowMs\": 0 to 600000, \"gone\": true|false}";
        let value: Value = serde_json::from_slice(body).map_err(|error| format!("{error}; {ACCEPTED}"))?;
        // serde could read a struct from a list as well.
        if !value.is_object() {
            return Err(format!("it is not a JSON object; {ACCEPTED}"));
        }
        let faults: Self = serde_json::from_value(value).map_err(|error| format!("{error}; {ACCEPTED}"))?;
        if faults.slow_ms > SLOW_MAX_MS {
            return Err(format!("slowMs is {}; {ACCEPTED}", faults.slow_ms));
        }
        Ok(faults)
    }

    /// How long an answer is delayed.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        Duration::from_millis(self.slow_ms as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mentioned_is_well() {
        assert_eq!(NodeFaults::from_json(b"{}"), Ok(NodeFaults::default()));
        let broken = NodeFaults::from_json(br#"{"telemetry":"garbage","slowMs":1500}"#).unwrap();
        let wanted =
            NodeFaults { telemetry: TelemetryFault::Garbage, slow_ms: 1_500, ..NodeFaults::default() };
        assert_eq!(broken, wanted);
        assert_eq!(broken.delay(), Duration::from_millis(1_500));
    }

    #[test]
    fn a_fault_that_nobody_knows_is_refused_with_what_is_accepted() {
        for body in ["", "null", "[]", r#"{"telemetry":"bad"}"#, r#"{"typo":1}"#, r#"{"slowMs":-1}"#] {
            let why = NodeFaults::from_json(body.as_bytes()).unwrap_err();
            assert!(why.contains("accepted: "), "{body:?}: {why}");
        }
        assert!(
            NodeFaults::from_json(br#"{"slowMs":600001}"#).unwrap_err().starts_with("slowMs is 600001; ")
        );
    }
}
