//! Takes off the caps of a person whose time is over. The end is in the object itself, so that it outlives every process, and
//! what follows is what follows when a person takes a cap off by hand: the next pass writes the plan's caps.

use super::{Reconciler, Then, reference};
use crate::reasons::CAP_ENDED;
use crate::rows::StateSeen;
use crate::site::Observed;
use crate::writes::{How, Job, Target, Write};
use host_kit::events::Note;
use jiff::Timestamp;
use joulie_api::labels::cap;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler {
    /// Returns the places of the nodes for which it writes; they get nothing else in this pass.
    pub(super) fn hand_back(
        &mut self,
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
            let how = How::Merge { document: without_caps(state) };
            let write = Write { target: Target::Profile, name: state.name.clone(), how };
            self.job(observed.node.name.clone(), vec![write], false, Then::Nothing, jobs);
            places.insert(at);
        }
        places
    }
}

/// Removes what the person has set, of this version of the object: a cap that was renewed meanwhile stays.
fn without_caps(state: &StateSeen) -> Value {
    let theirs = state.carried.theirs;
    let fields = [("cpu", theirs.cpu), ("gpu", theirs.gpu)];
    let spec: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, theirs)| *theirs)
        .map(|(field, _)| (field.to_owned(), Value::Null))
        .collect();
    json!({
        "metadata": {
            "uid": state.stamp.uid,
            "resourceVersion": state.stamp.version,
            "annotations": {(cap::UNTIL): null, (cap::BY): null, (cap::REASON): null},
        },
        "spec": spec,
    })
}
