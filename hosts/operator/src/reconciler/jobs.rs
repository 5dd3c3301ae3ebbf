//! Turns differences into writes, in an order in which no intermediate state is worse than the one before. A downgrade
//! writes the label, then the status that the scheduler goes by, then the cap. An upgrade writes the cap, and the label
//! only once the cap is confirmed.

use super::Reconciler;
use super::sleep::SleepTold;
use crate::publish::{self, Carrier, Standing};
use crate::publish::{labels_document, state_document, status_document, taints_document};
use crate::rows::StateSeen;
use crate::site::Observed;
use crate::writes::{How, Lane, Target, Write};
use joulie_api::names;
use joulie_api::node_twin::NodeTwinStatus;
use planner::node::{DesiredKind, DesiredState, Node, Publish};
use planner::plan::{self, NodeDecision, ObjectChange, Release};
use serde_json::json;

/// What to do after a job succeeded.
#[derive(Debug)]
pub(crate) enum Then {
    /// Record that the plan of a node was carried out.
    Commit(Box<NodeDecision>),
    /// Record that a release was carried out as far as it goes for now.
    Released(Box<Release>),
    /// Tell that a node sleeps or wakes.
    Slept(SleepTold),
    /// Nothing.
    Nothing,
}

/// The lane of these writes. `is_reclassed` tells whether the class that the scheduler goes by changes.
pub(super) fn lane(writes: &[Write], is_reclassed: bool) -> Lane {
    let is_placement = is_reclassed
        || writes.iter().any(|write| matches!(write.target, Target::Node | Target::Taint | Target::Sleep));
    if is_placement { Lane::Placement } else { Lane::Power }
}

impl Reconciler {
    /// The writes for these changes, and for the statuses that differ. For a node that is lowered, the status that the
    /// scheduler goes by comes before the cap; but the status of a twin that does not exist yet can only be written
    /// after the twin.
    pub(super) fn writes(
        &self,
        observed: &Observed,
        changes: Vec<ObjectChange>,
        status: NodeTwinStatus,
        standing: &Standing,
    ) -> Vec<Write> {
        let mirrors =
            |change: &ObjectChange| matches!(change, ObjectChange::State(Publish { twin: true, .. }));
        let has_twin = observed.twin.is_some() || changes.iter().any(mirrors);
        let first = changes.iter().position(|change| !matches!(change, ObjectChange::Taint(_)));
        let lowers = first.filter(|&at| matches!(changes.get(at), Some(ObjectChange::Labels { .. })));
        let mut writes: Vec<Write> = Vec::new();
        let Some(node) = self.site.node(&observed.node.name) else { return writes };
        for change in changes {
            self.write(node, Some(observed), change, &mut writes);
        }
        if has_twin && let Some(status) = self.twin_status(observed, status) {
            let behind_labels = lowers.filter(|_| observed.twin.is_some()).map(|at| at + 1);
            writes.insert(behind_labels.unwrap_or(writes.len()), status);
        }
        writes.extend(self.profile_status(observed, standing));
        writes
    }

    /// The writes for one change; `observed` is `None` for a node that does not exist any more.
    pub(super) fn write(
        &self,
        node: &Node,
        observed: Option<&Observed>,
        change: ObjectChange,
        writes: &mut Vec<Write>,
    ) {
        let profile = self.site.profiles.get(&node.name).map(|profile| &profile.state);
        let twin = self.site.twins.get(&node.name).map(|twin| &twin.state);
        match change {
            ObjectChange::Taint(tainted) => writes.extend(observed.map(|observed| Write {
                target: Target::Taint,
                name: node.name.to_string(),
                how: How::Merge { document: taints_document(&observed.node, tainted) },
            })),
            ObjectChange::Labels { profile, draining } => {
                let key = &self.settings.selectors.profile_key;
                let document = labels_document(node, key, profile, draining);
                let force = observed.is_some_and(|observed| observed.node.former);
                writes.push(apply(Target::Node, &node.name, document, force));
            }
            ObjectChange::NoLabels => {
                writes.push(apply(Target::Node, &node.name, publish::no_labels_document(node), false));
            }
            ObjectChange::State(Publish { desired, profile: to_profile, twin: to_twin }) => {
                if to_profile {
                    writes.push(self.state(Carrier::Profile, &node.name, &desired, profile));
                }
                if to_twin {
                    writes.push(self.state(Carrier::Twin, &node.name, &desired, twin));
                }
            }
            ObjectChange::NoState => {
                let both = [(Target::Profile, profile), (Target::Twin, twin)];
                let ours = both.into_iter().filter_map(|(target, state)| Some((target, state?)));
                let ours = ours.filter(|(_, state)| !state.carried.persons);
                writes.extend(ours.map(|(target, state)| Write {
                    target,
                    name: state.name.clone(),
                    how: How::Delete { uid: state.stamp.uid.clone() },
                }));
            }
        }
    }

    fn state(
        &self,
        carrier: Carrier,
        node: &str,
        desired: &DesiredState,
        there: Option<&StateSeen>,
    ) -> Write {
        let name = there.map_or_else(|| self.name_for(carrier, node), |state| state.name.clone());
        let document = state_document(carrier, &name, node, desired, there);
        let target = match carrier {
            Carrier::Profile => Target::Profile,
            Carrier::Twin => Target::Twin,
        };
        apply(target, &name, document, there.is_some_and(|state| state.former))
    }

    /// The name for an object that does not exist yet: another node's object may have the plain one.
    fn name_for(&self, carrier: Carrier, node: &str) -> String {
        // Two nodes may map to one name before either has an object: the node with exactly that name gets it.
        let plain = names::plain(node);
        if plain != node && self.site.find(&plain).is_some() {
            return names::hashed(node);
        }
        names::name_for(node, |name| self.site.holder(carrier, name))
    }

    /// Whether a twin must be written again only because of its age.
    pub(super) fn is_to_be_refreshed(&self, observed: &Observed) -> bool {
        let updated = || observed.twin.as_deref()?.status.last_updated.as_deref();
        self.settings.twin_refresh.is_some_and(|every| publish::is_older(updated(), every, self.wall))
    }

    fn twin_status(&self, observed: &Observed, status: NodeTwinStatus) -> Option<Write> {
        let (name, uid) = match observed.twin.as_deref() {
            Some(twin) if !publish::differs(&status, &twin.status) && !self.is_to_be_refreshed(observed) => {
                return None;
            }
            Some(twin) => (twin.state.name.clone(), Some(twin.state.stamp.uid.as_str())),
            None => (self.name_for(Carrier::Twin, &observed.node.name), None),
        };
        let document = status_document(Carrier::Twin, &name, uid, &json!(status));
        Some(apply(Target::TwinStatus, &name, document, false))
    }

    fn profile_status(&self, observed: &Observed, standing: &Standing) -> Option<Write> {
        let profile =
            observed.profile.as_deref().filter(|_| self.settings.selectors.source == DesiredKind::Profile)?;
        let conditions = publish::overridden(&profile.conditions, standing, self.wall)?;
        let state = &profile.state;
        let document = status_document(
            Carrier::Profile,
            &state.name,
            Some(&state.stamp.uid),
            &json!({"conditions": conditions}),
        );
        Some(apply(Target::ProfileStatus, &state.name, document, false))
    }

    /// The writes for a release.
    pub(super) fn release_writes(&self, release: &Release) -> Vec<Write> {
        let mut writes = Vec::new();
        let Some(node) = self.site.node(&release.node) else { return writes };
        let observed = self.site.observed(&release.node).map(|observed| &**observed);
        for change in plan::diff(&release.objects, node, true) {
            self.write(node, observed, change, &mut writes);
        }
        writes
    }

    /// Records that a node's plan was carried out.
    pub(super) fn commit(&mut self, decision: &NodeDecision) {
        let changes = decision.guard.applied.is_some() || decision.guard.deferred.is_some();
        // A job may end after its node was deleted.
        if changes && self.site.find(&decision.node).is_some() {
            self.stats.transition(&decision.node, &decision.guard);
            self.say_transition(decision);
        }
        self.memory.commit(decision);
    }

    /// Records what a successful job was for.
    pub(super) fn carried_out(&mut self, then: Then) {
        match then {
            Then::Commit(decision) => self.commit(&decision),
            Then::Released(release) => self.memory.commit_release(&release),
            Then::Slept(told) => self.slept(&told),
            Then::Nothing => {}
        }
    }
}

fn apply(target: Target, name: &str, document: serde_json::Value, force: bool) -> Write {
    Write { target, name: name.to_owned(), how: How::Apply { document, force } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_a_class_that_changes_say_where_pods_may_go_and_caps_do_not() {
        let to = |targets: &[Target]| -> Vec<Write> {
            let how = || How::Delete { uid: String::new() };
            targets.iter().map(|&target| Write { target, name: String::new(), how: how() }).collect()
        };
        let caps = [Target::Profile, Target::Twin, Target::TwinStatus];
        assert_eq!(lane(&to(&caps), false), Lane::Power);
        assert_eq!(lane(&to(&caps), true), Lane::Placement);
        assert_eq!(lane(&to(&[Target::Profile, Target::Node]), false), Lane::Placement);
    }
}
