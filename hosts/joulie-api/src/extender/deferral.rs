//! Until when a pod may be kept waiting: its annotation `joulie.io/deferrable-until`, read from the pod's text without building
//! anything.

use super::members::{Members, text};
use crate::labels::pod::DEFERRABLE_UNTIL;
use jiff::Timestamp;
use joulie_core::placement::freshness::UnixTime;
use serde_json::value::RawValue;

/// What a pod says of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodDeferral {
    /// Nothing: it is placed as soon as it can be.
    #[default]
    None,
    /// It may wait until this time.
    Until(UnixTime),
    /// What is no time. It counts as nothing.
    Malformed,
}

impl PodDeferral {
    /// What a pod says.
    #[must_use]
    pub fn read(pod: &RawValue) -> Self {
        match annotation(pod.get()) {
            None => Self::None,
            Some(value) => {
                let time = text(value).and_then(|text| text.trim().parse::<Timestamp>().ok());
                time.map_or(Self::Malformed, |time| Self::Until(UnixTime::from_micros(time.as_microsecond())))
            }
        }
    }

    /// Whether the pod may still wait at this time.
    #[must_use]
    pub fn waits_at(self, now: UnixTime) -> bool {
        matches!(self, Self::Until(deadline) if now < deadline)
    }
}

fn annotation(pod: &str) -> Option<&str> {
    let metadata = Members::of(pod)?.find_value(|key| key == "metadata")?;
    let annotations = Members::of(metadata)?.find_value(|key| key == "annotations")?;
    Members::of(annotations)?.find(|(key, _)| key == DEFERRABLE_UNTIL).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(annotations: &serde_json::Value) -> PodDeferral {
        let pod = json!({"metadata": {"name": "a", "annotations": annotations}, "spec": {}});
        PodDeferral::read(&serde_json::value::to_raw_value(&pod).unwrap())
    }

    #[test]
    fn a_time_is_a_deadline_and_anything_else_is_told() {
        let until = of(&json!({"other": "x", "joulie.io/deferrable-until": "1970-01-01T01:00:10+01:00"}));
        let at = |second: i64| UnixTime::from_micros(second * 1_000_000);
        assert_eq!(until, PodDeferral::Until(at(10)));
        assert_eq!([9, 10, 11].map(|second| until.waits_at(at(second))), [true, false, false]);
        for bad in [json!(""), json!("tomorrow"), json!("2026-01-01"), json!("never"), json!(7), json!(null)]
        {
            let bad = of(&json!({"joulie.io/deferrable-until": bad}));
            assert_eq!((bad, bad.waits_at(at(0))), (PodDeferral::Malformed, false));
        }
        assert_eq!(of(&json!({"joulie.io/deferrable": "2030-01-01T00:00:00Z"})), PodDeferral::None);
        assert_eq!(of(&json!(null)), PodDeferral::None);
        for pod in ["{}", "[]", "7", r#"{"metadata": 3}"#] {
            assert_eq!(PodDeferral::read(serde_json::from_str(pod).unwrap()), PodDeferral::None, "{pod}");
        }
    }
}
