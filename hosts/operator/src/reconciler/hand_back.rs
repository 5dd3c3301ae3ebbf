//! Takes off the caps of a person whose time is over. The end is in the object itself, so that it outlives every process.
//!
//! The plan's caps are in the same write, so that a node without a grant is at no moment without a cap. While the plan has none
//! for the node, because it is away or paused, the person's stay.

use super::{Reconciler, Then, reference};
use crate::reasons::CAP_ENDED;
use crate::rows::StateSeen;
use crate::site::Observed;
use crate::writes::{How, Job, Target, Write};
use host_kit::events::Note;
use jiff::Timestamp;
use joulie_api::caps::GpuScope;
use joulie_api::labels::cap;
use joulie_api::number::Number;
use joulie_api::word::Vocabulary;
use planner::intent::{DeviceCap, NodeCaps};
use planner::node::Node;
use planner::plan::Plan;
use power_units::{Percent, Watts};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler {
    /// Returns the places of the nodes for which it writes; they get nothing else in this pass.
    pub(super) fn hand_back(
        &mut self,
        plan: &Plan,
        left_alone: &BTreeSet<usize>,
        wall: Timestamp,
        jobs: &mut Vec<Job<(u64, Then)>>,
    ) -> BTreeSet<usize> {
        let is_over = |observed: &Observed| {
            observed
                .profile
                .as_deref()
                .is_some_and(|profile| profile.state.until.is_some_and(|until| until <= wall))
        };
        let over: Vec<(usize, Arc<Observed>)> = self
            .site
            .observed
            .iter()
            .enumerate()
            .filter(|(at, observed)| !left_alone.contains(at) && is_over(observed))
            .map(|(at, observed)| (at, observed.clone()))
            .collect();
        let mut places = BTreeSet::new();
        for (at, observed) in over {
            let Some(profile) = observed.profile.as_deref() else { continue };
            let state = &profile.state;
            let Some(caps) = self.caps_after(plan, at) else { continue };
            let text = format!(
                "the caps that kubectl joulie had set on {} are over, and the plan's follow",
                state.name
            );
            tracing::info!(node = %observed.node.name, "{text}");
            self.recorder.say(Note {
                regarding: reference(&observed.node),
                severity: CAP_ENDED.severity,
                reason: CAP_ENDED.word,
                action: "HandBack",
                text,
            });
            let how = How::Merge { document: with_the_plans_caps(state, &caps) };
            let write = Write { target: Target::Profile, name: state.name.clone(), how };
            self.job(observed.node.name.clone(), vec![write], false, Then::Nothing, jobs);
            places.insert(at);
        }
        places
    }

    /// The caps of a node after those of a person: none, if nothing is planned for the node; `None` while the plan does not say
    /// them.
    fn caps_after(&self, plan: &Plan, at: usize) -> Option<NodeCaps> {
        let is_eligible = self.site.cluster.nodes.get(at).is_some_and(Node::is_eligible);
        match plan.nodes.iter().find(|decision| decision.place == at) {
            Some(decision) => Some(decision.desired.as_ref()?.caps),
            None => (!is_eligible).then(NodeCaps::default),
        }
    }
}

/// Replaces what the person has set, of this version of the object: a cap that was renewed meanwhile stays.
fn with_the_plans_caps(state: &StateSeen, caps: &NodeCaps) -> Value {
    let (theirs, theirs_caps) = (state.carried.theirs, state.carried.desired.caps);
    let mut spec = Map::new();
    if theirs.cpu {
        let cap = caps.cpu.map(|cap| otherwise(cap, theirs_caps.cpu));
        let cap = cap.filter(|cap| *cap != DeviceCap::default()).map(|DeviceCap { watts, percent }| {
            json!({"packagePowerCapWatts": watts.map(Number::from), "packagePowerCapPctOfMax": percent.map(Number::from)})
        });
        spec.insert("cpu".to_owned(), json!(cap));
    }
    if theirs.gpu {
        let cap = caps.gpu.map(|cap| otherwise(cap, theirs_caps.gpu));
        let cap = cap.filter(|cap| *cap != DeviceCap::default()).map(|DeviceCap { watts, percent }| {
            json!({"powerCap": {"scope": GpuScope::PerGpu.as_str(), "capWattsPerGpu": watts.map(Number::from),
                "capPctOfMax": percent.map(Number::from)}})
        });
        spec.insert("gpu".to_owned(), json!(cap));
    }
    json!({
        "metadata": {
            "uid": state.stamp.uid,
            "resourceVersion": state.stamp.version,
            "annotations": {(cap::UNTIL): null, (cap::BY): null, (cap::REASON): null},
        },
        "spec": spec,
    })
}

/// A cap that differs from the person's in each value that it has, and is nowhere higher: a field belongs to whoever has changed
/// it last, so one that stayed the same would stay the person's, without an end. The next pass writes the plan's.
fn otherwise(cap: DeviceCap, theirs: Option<DeviceCap>) -> DeviceCap {
    let theirs = theirs.unwrap_or_default();
    let watts = |watts: Watts| Some(watts - Watts::from_int(1)).filter(|less| *less >= Watts::from_int(1));
    let percent =
        |percent: Percent| Some(percent - Percent::from_int(1)).filter(|less| *less > Percent::ZERO);
    DeviceCap {
        watts: cap.watts.and_then(|cap| if Some(cap) == theirs.watts { watts(cap) } else { Some(cap) }),
        percent: cap
            .percent
            .and_then(|cap| if Some(cap) == theirs.percent { percent(cap) } else { Some(cap) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_cap_is_written_a_little_lower_and_any_other_as_it_is_planned() {
        let cap = |watts: Option<i32>, percent: Option<i32>| DeviceCap {
            watts: watts.map(Watts::from_int),
            percent: percent.map(Percent::from_int),
        };
        let plan = cap(None, Some(60));
        assert_eq!(otherwise(plan, Some(cap(Some(200), None))), plan);
        assert_eq!(otherwise(plan, None), plan);
        assert_eq!(otherwise(plan, Some(plan)), cap(None, Some(59)));
        assert_eq!(otherwise(cap(Some(200), None), Some(cap(Some(200), Some(60)))), cap(Some(199), None));
        // What would be no cap is left out.
        assert_eq!(otherwise(cap(None, Some(1)), Some(cap(None, Some(1)))), DeviceCap::default());
    }
}
