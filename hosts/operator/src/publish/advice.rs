//! Recommendations as the twin's status carries them, with the hysteresis that keeps a steady cluster free of writes:
//! the stress is shown in whole points, and another figure is written only if it differs by [`MOVE`].

use joulie_api::node_twin::{NodeTwinStatus, RescheduleCause, RescheduleRecommendation, TwinWorkloadRef};
use joulie_api::number::Number;
use joulie_api::word::Word;
use planner::migration::{MigrationReason, StressKind};
use power_units::Percent;
use std::sync::Arc;

/// The most pods that are recommended to leave one node. Those that request the most of it come first: with them the
/// most load leaves.
pub(crate) const PODS_MAX: usize = 32;

/// A smaller change of the stress is not worth a write.
const MOVE: i32 = 5;

/// What is recommended for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeAdvice {
    /// The pods that would better run elsewhere.
    pub(crate) pods: Vec<PodAdvice>,
    /// The stress that the node is marked with.
    pub(crate) mark: Option<StressKind>,
}

/// What is recommended for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodAdvice {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// ShownReason it should leave.
    pub(crate) why: ShownReason,
    /// A node that could accept it.
    pub(crate) to: Option<Arc<str>>,
}

/// ShownReason pods should leave a node, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownReason {
    /// In one word.
    pub(crate) cause: RescheduleCause,
    /// The stress in percent, if that is why.
    pub(crate) stress: Option<i32>,
}

impl ShownReason {
    /// The reason as it is shown where another one may be shown already.
    pub(crate) fn of(reason: MigrationReason, shown: Option<Self>) -> Self {
        let (cause, percent) = match reason {
            MigrationReason::CoolingStress(percent) => (RescheduleCause::CoolingStress, Some(percent)),
            MigrationReason::PsuStress(percent) => (RescheduleCause::PsuStress, Some(percent)),
            MigrationReason::Draining => (RescheduleCause::Draining, None),
        };
        let stress = percent.map(points);
        let shown = shown.filter(|shown| shown.cause == cause).and_then(|shown| shown.stress);
        let stays = |shown: &i32| stress.is_some_and(|stress| (stress - shown).abs() < MOVE);
        Self { cause, stress: shown.filter(stays).or(stress) }
    }

    /// In words.
    pub(crate) fn words(self) -> String {
        match (self.cause, self.stress) {
            (RescheduleCause::Draining, _) => "its node becomes an eco node".to_owned(),
            (RescheduleCause::CoolingStress, Some(stress)) => {
                format!("the cooling of its node is {stress}% used")
            }
            (RescheduleCause::PsuStress, Some(stress)) => {
                format!("the power supply of its rack is {stress}% used")
            }
            (RescheduleCause::CoolingStress, None) => "the cooling of its node is stressed".to_owned(),
            (RescheduleCause::PsuStress, None) => "the power supply of its rack is stressed".to_owned(),
        }
    }
}

/// Whole points, the nearest.
fn points(percent: Percent) -> i32 {
    let half = 1_i64 << 31;
    i32::try_from(percent.to_bits().saturating_add(half) >> 32).unwrap_or(i32::MAX)
}

impl NodeAdvice {
    /// What a status says. Of a list that somebody else wrote only a part is read.
    pub(crate) fn published(status: &NodeTwinStatus) -> Self {
        let mark = status.reschedule_cause.as_ref().and_then(Word::known).and_then(|cause| match cause {
            RescheduleCause::CoolingStress => Some(StressKind::Cooling),
            RescheduleCause::PsuStress => Some(StressKind::Psu),
            RescheduleCause::Draining => None,
        });
        let list = status.reschedule_recommendations.iter().flatten().take(PODS_MAX);
        Self { pods: list.filter_map(PodAdvice::read).collect(), mark }
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.mark.is_none()
    }

    /// The list to publish.
    pub(crate) fn list(&self) -> Vec<RescheduleRecommendation> {
        self.pods.iter().map(PodAdvice::write).collect()
    }

    /// The mark to publish.
    pub(crate) fn cause(&self) -> Option<RescheduleCause> {
        self.mark.map(|mark| match mark {
            StressKind::Cooling => RescheduleCause::CoolingStress,
            StressKind::Psu => RescheduleCause::PsuStress,
        })
    }
}

impl PodAdvice {
    fn read(entry: &RescheduleRecommendation) -> Option<Self> {
        let pod = entry.workload_ref.as_ref()?;
        // Only what was written here matters: whole points.
        let stress = entry.stress.and_then(|stress| stress.get().to_string().parse().ok());
        Some(Self {
            namespace: pod.namespace.clone()?,
            name: pod.name.clone()?,
            why: ShownReason { cause: entry.cause.as_ref()?.known()?, stress },
            to: entry.target_node.as_deref().map(Arc::from),
        })
    }

    fn write(&self) -> RescheduleRecommendation {
        let where_to = match &self.to {
            Some(node) => format!("{node} could accept it"),
            None => "no better node is known to accept it".to_owned(),
        };
        RescheduleRecommendation {
            workload_ref: Some(TwinWorkloadRef {
                kind: Some("Pod".to_owned()),
                namespace: Some(self.namespace.clone()),
                name: Some(self.name.clone()),
            }),
            reason: Some(format!("{}; {where_to}", self.why.words())),
            cause: Some(self.why.cause.into()),
            stress: self.why.stress.map(Number::from),
            target_node: self.to.as_deref().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cooling(percent: i32) -> MigrationReason {
        MigrationReason::CoolingStress(Percent::from_int(percent))
    }

    #[test]
    fn a_figure_stays_until_it_has_moved_by_five_points() {
        let shown = Some(ShownReason::of(cooling(80), None));
        for (percent, expected) in [(76, 80), (84, 80), (85, 85), (75, 75)] {
            assert_eq!(ShownReason::of(cooling(percent), shown).stress, Some(expected));
        }
        let psu = MigrationReason::PsuStress(Percent::from_int(81));
        assert_eq!(
            ShownReason::of(psu, shown),
            ShownReason { cause: RescheduleCause::PsuStress, stress: Some(81) }
        );
        assert_eq!(ShownReason::of(MigrationReason::Draining, shown).stress, None);
        let half = Percent::parse("70.5", power_units::Role::Nearest).unwrap();
        assert_eq!(points(half), 71);
    }

    #[test]
    fn what_is_published_is_read_back_as_it_was() {
        let pod = |name: &str, reason, to: Option<&str>| PodAdvice {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
            why: ShownReason::of(reason, None),
            to: to.map(Arc::from),
        };
        let pods = vec![pod("a", cooling(83), Some("cool")), pod("b", MigrationReason::Draining, None)];
        let advice = NodeAdvice { pods, mark: Some(StressKind::Cooling) };
        let list = advice.list();
        assert_eq!(
            list[0].reason.as_deref(),
            Some("the cooling of its node is 83% used; cool could accept it")
        );
        let status = NodeTwinStatus {
            reschedule_recommendations: Some(list),
            reschedule_cause: advice.cause().map(Word::from),
            ..NodeTwinStatus::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        let status: NodeTwinStatus = serde_json::from_str(&text).unwrap();
        assert_eq!(NodeAdvice::published(&status), advice);
    }

    #[test]
    fn a_list_of_upstream_without_words_and_names_is_no_advice_of_ours() {
        let status = serde_json::json!({"rescheduleCause": "magic", "rescheduleRecommendations":
            [{"workloadRef": {"kind": "Pod", "namespace": "default", "name": "unknown"}, "reason": "hot"}, {}]});
        assert!(NodeAdvice::published(&serde_json::from_value(status).unwrap()).is_empty());
    }
}
