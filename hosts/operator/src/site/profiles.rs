//! What trusted WorkloadProfiles say, by workload.

use super::SILENCE_MAX;
use crate::rows::WorkloadProfileSeen;
use host_kit::reflect::{CachedRow, ObjectKey, Rows};
use joulie_api::workload_profile::{CpuLevel, GpuLevel, TrustRule, TrustedProfile, TrustedProfiles};
use planner::classify::Intensity;
use planner::demand::Intensities;
use std::collections::BTreeMap;
use std::time::Duration;

/// How profiles are read, from look to look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProfileReader {
    /// Their watch has been silent for longer than [`SILENCE_MAX`](super::SILENCE_MAX): nothing is known of any workload.
    silent: bool,
    /// The rule by which they were read; `None` before that, and after a silence.
    by: Option<TrustRule>,
}

impl ProfileReader {
    /// Takes in how long the watch has been silent.
    pub(super) fn hear(&mut self, silence: Option<Duration>) {
        let silent = silence.is_some_and(|silence| silence > SILENCE_MAX);
        if silent != self.silent {
            match silent {
                true => tracing::warn!(
                    "the watch of WorkloadProfiles is silent: no profile counts until it is heard"
                ),
                false => tracing::info!("the watch of WorkloadProfiles is heard again"),
            }
        }
        self.silent = silent;
    }

    /// Takes in changed profiles; returns whether any pod may count otherwise now. While the profiles are not known,
    /// nothing is known of any workload.
    pub(super) fn read(
        &mut self,
        known: &mut TrustedProfiles,
        rows: Option<&mut Rows<WorkloadProfileSeen>>,
        rule: TrustRule,
    ) -> bool {
        let Some(rows) = rows else { return false };
        let now = if self.silent {
            self.by = None;
            Some(TrustedProfiles::default())
        } else if self.by == Some(rule) {
            rows.news(|news| trusted(news.rows, rule))
        } else {
            self.by = Some(rule);
            Some(rows.catch_up(|rows| trusted(rows, rule)))
        };
        let Some(now) = now.filter(|now| now != known) else { return false };
        *known = now;
        true
    }
}

fn trusted(rows: &BTreeMap<ObjectKey, CachedRow<WorkloadProfileSeen>>, rule: TrustRule) -> TrustedProfiles {
    TrustedProfiles::of(rows.iter().filter_map(|(key, held)| {
        let (kind, name) = held.row.workload.as_ref()?;
        Some(([key.namespace.as_str(), kind, name], rule.read(&held.row.status)))
    }))
}

/// How hard the workload works, in the planner's words.
pub(super) fn intensities(said: TrustedProfile) -> Intensities {
    let cpu = said.cpu_intensity.map(|level| match level {
        CpuLevel::High => Intensity::High,
        CpuLevel::Medium => Intensity::Medium,
        CpuLevel::Low => Intensity::Low,
    });
    let gpu = said.gpu_intensity.and_then(|level| match level {
        GpuLevel::High => Some(Intensity::High),
        GpuLevel::Medium => Some(Intensity::Medium),
        GpuLevel::Low => Some(Intensity::Low),
        // It may only be that nobody measures the GPUs.
        GpuLevel::None => None,
    });
    Intensities { cpu, gpu }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::by_hand;
    use power_units::{Ratio, Role};
    use serde_json::json;

    #[test]
    fn profiles_count_while_their_watch_is_heard_and_by_the_rule_of_now() {
        let (mut feed, mut rows) = by_hand::<WorkloadProfileSeen>();
        feed.list(&[
            json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
            "spec": {"workloadRef": {"kind": "Deployment", "name": "web"}},
            "status": {"confidence": 0.6, "cpu": {"intensity": "high"}}}),
        ]);
        let rule = |least: &str| TrustRule::new(Ratio::parse(least, Role::Nearest).unwrap());
        let (mut reader, mut known) = (ProfileReader::default(), TrustedProfiles::default());
        let mut look = |silence: u64, least: &str| {
            reader.hear(Some(Duration::from_secs(silence)));
            (reader.read(&mut known, Some(&mut rows), rule(least)), known.len())
        };
        assert_eq!(look(0, "0.5"), (true, 1));
        assert_eq!(look(150, "0.5"), (false, 1));
        assert_eq!(look(151, "0.5"), (true, 0), "silent");
        assert_eq!(look(900, "0.5"), (false, 0));
        assert_eq!(look(1, "0.5"), (true, 1), "heard again, and nothing has changed meanwhile");
        assert_eq!(look(1, "0.7"), (true, 0), "the rule was changed");
        assert_eq!(look(1, "0.6"), (true, 1));
    }
}
