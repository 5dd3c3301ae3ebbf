//! What a person or a test has broken about a node, and how it then behaves. Nothing here touches the machine: it runs on
//! while its telemetry lies.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// What is wrong with a node's telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TelemetryFault {
    /// Nothing.
    #[default]
    Ok,
    /// It answers 500.
    Error,
    /// It answers 200 with half of a JSON text.
    Garbage,
    /// It answers 200 with JSON in which no power is said.
    Empty,
    /// It answers 200 with what it last read.
    Stuck,
}

/// What is wrong with a node's controls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlFault {
    /// Nothing.
    #[default]
    Ok,
    /// It says that it did and does nothing.
    Ignored,
    /// It says that it may not, with 200.
    Blocked,
    /// It answers 500.
    Error,
}

/// Everything that is wrong with a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NodeFaults {
    /// Of its telemetry.
    pub telemetry: TelemetryFault,
    /// Of its controls.
    pub control: ControlFault,
    /// How long every answer takes, ms.
    pub slow_ms: u32,
    /// Nobody reaches it: no answers, no heartbeats, no news of its pods. It runs on.
    pub gone: bool,
}

/// An answer that never comes is one that comes after this.
pub const SLOW_MAX_MS: u32 = 600_000;

impl NodeFaults {
    /// Reads what is to be wrong from now on; what is not mentioned is well.
    ///
    /// # Errors
    /// When the text is no such JSON; the error says what is accepted.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        const ACCEPTED: &str = "accepted: {\"telemetry\": ok|error|garbage|empty|stuck, \
             \"control\": ok|ignored|blocked|error, \"slowMs\": 0 to 600000, \"gone\": true|false}";
        let value: Value = serde_json::from_slice(body).map_err(|error| format!("{error}; {ACCEPTED}"))?;
        // A struct could be read of a list as well.
        if !value.is_object() {
            return Err(format!("it is no JSON object; {ACCEPTED}"));
        }
        let faults: Self = serde_json::from_value(value).map_err(|error| format!("{error}; {ACCEPTED}"))?;
        if faults.slow_ms > SLOW_MAX_MS {
            return Err(format!("slowMs is {}; {ACCEPTED}", faults.slow_ms));
        }
        Ok(faults)
    }

    /// How long an answer is held back.
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
