//! From a node's plan to its writes, in an order in which no moment is worse than the one before: a downgrade writes the
//! label, then what the scheduler goes by, then the cap; an upgrade writes the cap, and only once that is confirmed the
//! label.

use super::Brain;
use crate::publish::{
    self, Carrier, Standing, Wanted, labels_document, no_labels_document, state_document, status_document,
};
use crate::rows::{NodeSeen, StateSeen};
use crate::site::{DesiredSource, Member};
use crate::writes::{How, Lane, Target, Write};
use joulie_api::names;
use joulie_api::node_twin::NodeTwinStatus;
use planner::plan::{Action, NodePlan, Release};
use planner::profile::Profile;
use serde_json::json;

/// What is to be done when a job went well.
#[derive(Debug)]
pub(crate) enum Then {
    /// The plan of a node was carried out.
    Commit(Box<NodePlan>),
    /// A release was carried out as far as it goes for now.
    Released(Box<Release>),
}

/// What writes are about, where the class that the scheduler goes by stays as it is or does not.
pub(super) fn lane(writes: &[Write], is_reclassed: bool) -> Lane {
    let is_placement = is_reclassed || writes.iter().any(|write| write.target == Target::Node);
    if is_placement { Lane::Placement } else { Lane::Power }
}

/// What is to be written for one node, part by part.
#[derive(Debug, Default)]
pub(super) struct Parts {
    labels: Option<Write>,
    labels_first: bool,
    state: Option<Write>,
    mirror: Option<Write>,
    twin_status: Option<Write>,
    profile_status: Option<Write>,
}

impl Parts {
    /// In their order. The status of a twin that is not there yet can only be written after it.
    pub(super) fn in_order(self, twin_is_there: bool) -> Vec<Write> {
        let Self { labels, labels_first, state, mirror, twin_status, profile_status } = self;
        let all = match (labels_first, twin_is_there) {
            (true, true) => [labels, twin_status, state, mirror, profile_status],
            (true, false) => [labels, state, mirror, twin_status, profile_status],
            (false, _) => [state, mirror, labels, twin_status, profile_status],
        };
        all.into_iter().flatten().collect()
    }
}

impl Brain {
    /// The parts of a node's plan that are not there yet. `wanted` is the desired state, unless nothing is to be published.
    pub(super) fn parts(
        &self,
        member: &Member,
        plan: &NodePlan,
        wanted: Option<Wanted>,
        (status, standing): (NodeTwinStatus, &Standing),
        stands_in: bool,
    ) -> Parts {
        let key = &self.settings.lens.profile_key;
        let mut parts = Parts::default();
        for action in &plan.actions {
            if let Action::WriteLabels { profile, draining } = action {
                parts.labels_first = *profile == Some(Profile::Eco);
                parts.labels = labels_document(&member.node, key, *profile, *draining).map(|document| {
                    self.apply(Target::Node, &member.node.name, document, member.node.former)
                });
            }
        }
        if let Some(wanted) = wanted {
            let source = self.settings.lens.source;
            let there = member.state(source);
            let stands = there.map_or_else(|| wanted.clone(), |state| wanted.clone().over(state));
            let twin = member.twin.as_deref().map(|twin| &twin.state);
            let twin_is_unread = member.unreadable.twin.is_some();
            if source == DesiredSource::Profile {
                let is_there =
                    there.is_some_and(|state| state.is_a_persons() || stands.is_in(state, false, stands_in));
                if !is_there {
                    parts.state = Some(self.state(Carrier::Profile, &member.node, &stands, there));
                }
            }
            if !twin_is_unread
                && twin.is_none_or(|state| !stands.clone().over(state).is_in(state, true, stands_in))
            {
                parts.mirror = Some(self.state(Carrier::Twin, &member.node, &stands, twin));
            }
        }
        if member.twin.is_some() || parts.mirror.is_some() {
            parts.twin_status = self.twin_status(member, status);
        }
        parts.profile_status = self.profile_status(member, standing);
        parts
    }

    fn state(&self, carrier: Carrier, node: &NodeSeen, wanted: &Wanted, there: Option<&StateSeen>) -> Write {
        let name = there.map_or_else(|| self.name_for(carrier, &node.name), |state| state.name.clone());
        let document = state_document(carrier, &name, &node.name, wanted, there);
        let target = match carrier {
            Carrier::Profile => Target::Profile,
            Carrier::Twin => Target::Twin,
        };
        let force = there.is_some_and(|state| state.owners.former);
        Write { target, name, how: How::Apply { document, force } }
    }

    /// The name of an object that does not exist yet: another node's may have the plain one.
    fn name_for(&self, carrier: Carrier, node: &str) -> String {
        let kind = match carrier {
            Carrier::Profile => DesiredSource::Profile,
            Carrier::Twin => DesiredSource::Twin,
        };
        // Two nodes may come out alike before either has an object: the one that is called so has the name.
        let plain = names::plain(node);
        if plain != node && self.site.find(&plain).is_some() {
            return names::hashed(node);
        }
        names::name_for(node, |name| self.site.holder(kind, name))
    }

    /// Whether a twin is to be written again for its age alone.
    pub(super) fn is_to_be_refreshed(&self, member: &Member) -> bool {
        let updated = || member.twin.as_deref()?.status.last_updated.as_deref();
        self.settings.twin_refresh.is_some_and(|every| publish::is_older(updated(), every, self.wall))
    }

    fn twin_status(&self, member: &Member, status: NodeTwinStatus) -> Option<Write> {
        let (name, uid) = match member.twin.as_deref() {
            Some(twin) if !publish::differs(&status, &twin.status) && !self.is_to_be_refreshed(member) => {
                return None;
            }
            Some(twin) => (twin.state.name.clone(), Some(twin.state.stamp.uid.as_str())),
            None => (self.name_for(Carrier::Twin, &member.node.name), None),
        };
        let document = status_document(Carrier::Twin, &name, uid, &json!(status));
        Some(self.apply(Target::TwinStatus, &name, document, false))
    }

    fn profile_status(&self, member: &Member, standing: &Standing) -> Option<Write> {
        let profile =
            member.profile.as_deref().filter(|_| self.settings.lens.source == DesiredSource::Profile)?;
        let conditions = publish::overridden(&profile.conditions, standing, self.wall)?;
        let state = &profile.state;
        let document = status_document(
            Carrier::Profile,
            &state.name,
            Some(&state.stamp.uid),
            &json!({"conditions": conditions}),
        );
        Some(self.apply(Target::ProfileStatus, &state.name, document, false))
    }

    fn apply(&self, target: Target, name: &str, document: serde_json::Value, force: bool) -> Write {
        Write { target, name: name.to_owned(), how: How::Apply { document, force } }
    }

    /// The writes of a release.
    pub(super) fn release_writes(&self, release: &Release) -> Vec<Write> {
        let source = self.settings.lens.source;
        let profile = self.site.profiles.get(&release.node);
        let twin = self.site.twins.get(&release.node);
        let member = self.site.member(&release.node);
        let mut writes = Vec::new();
        for action in &release.actions {
            match action {
                Action::WriteDesired(desired) => {
                    let Some(member) = member else { continue };
                    let wanted = Wanted::planned(desired);
                    let there = member.state(source);
                    let stands = there.map_or_else(|| wanted.clone(), |state| wanted.clone().over(state));
                    if source == DesiredSource::Profile
                        && there.is_none_or(|state| !stands.is_in(state, false, true))
                    {
                        writes.push(self.state(Carrier::Profile, &member.node, &stands, there));
                    }
                    let mirror = twin.map(|twin| &twin.state);
                    if mirror.is_some_and(|state| !stands.clone().over(state).is_in(state, true, true)) {
                        writes.push(self.state(Carrier::Twin, &member.node, &stands, mirror));
                    }
                }
                Action::RemoveLabels => {
                    let node = member.map(|member| &member.node);
                    writes.extend(
                        node.map(|node| {
                            self.apply(Target::Node, &node.name, no_labels_document(node), false)
                        }),
                    );
                }
                Action::DeleteDesired => {
                    let profile = profile.filter(|seen| !seen.state.is_a_persons());
                    let profile = profile.map(|seen| (Target::Profile, &seen.state));
                    let twin = twin
                        .filter(|seen| !seen.state.is_a_persons())
                        .map(|seen| (Target::Twin, &seen.state));
                    let delete = |(target, state): (Target, &StateSeen)| Write {
                        target,
                        name: state.name.clone(),
                        how: How::Delete { uid: state.stamp.uid.clone() },
                    };
                    writes.extend(profile.into_iter().chain(twin).map(delete));
                }
                Action::WriteLabels { .. } => {}
            }
        }
        writes
    }

    /// A node's plan was carried out.
    pub(super) fn commit(&mut self, plan: &NodePlan) {
        let changes = plan.guard.applied.is_some() || plan.guard.deferred.is_some();
        // A job may end after its node is gone.
        if changes && self.site.find(&plan.node).is_some() {
            self.stats.transition(&plan.node, &plan.guard);
        }
        self.memory.commit(plan);
    }

    /// A job went well: what it was for is so from now on.
    pub(super) fn carried_out(&mut self, then: Then) {
        match then {
            Then::Commit(plan) => self.commit(&plan),
            Then::Released(release) => self.memory.commit_release(&release),
        }
    }
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
