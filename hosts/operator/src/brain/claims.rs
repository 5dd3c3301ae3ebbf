//! The budget's part of a pass: what every node claims, what it is granted, and what is said of limits that cannot be
//! kept.

use super::{Brain, stamp};
use crate::budget::{self, Claim, Grant, GroupStanding, Said, Split};
use crate::publish::Wanted;
use crate::rows;
use crate::site::{DesiredSource, Member};
use crate::writes::{Landed, Target};
use host_kit::clock::Mono;
use host_kit::events::{Note, Severity};
use joulie_api::labels::{PLAN_LEASE, node::RACK};
use joulie_core::budget::Priority;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::guard::StateName;
use planner::intent::Caps;
use planner::plan::{Action, Desired, NodePlan, Plan, PublishedRow, Release};
use planner::profile::Profile;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What became of the claims of a pass; empty without a budget.
#[derive(Debug, Default)]
pub(super) struct Granted(BTreeMap<Arc<str>, (Claim, Grant)>);

impl Granted {
    /// What a node was granted; nothing without a budget.
    pub(super) fn take(&mut self, node: &str) -> Option<(Claim, Grant)> {
        self.0.remove(node)
    }
}

impl Brain {
    /// What is published, as the policy is to see it: caps that the budget made of its own ones are its own ones. And
    /// what really is published, where that is something else.
    pub(super) fn published(
        &self,
        rows: Vec<PublishedRow>,
    ) -> (Vec<PublishedRow>, Option<Vec<PublishedRow>>) {
        let Some(ledger) = &self.ledger else { return (rows, None) };
        let shown =
            |row: &PublishedRow| PublishedRow { caps: ledger.shown(&row.node, row.caps), ..row.clone() };
        (rows.iter().map(shown).collect(), Some(rows))
    }

    /// A round of the budget.
    pub(super) fn budget(&mut self, plan: &Plan, now: Mono) -> Granted {
        let Some(mut ledger) = self.ledger.take() else { return Granted::default() };
        let claims = self.claims(plan);
        let source = self.settings.lens.source;
        for claim in &claims {
            let state = self.site.member(&claim.node).and_then(|member| member.state(source));
            ledger.observe(&claim.node, &claim.split, state, stamp(now));
        }
        let known: BTreeSet<&str> = claims.iter().map(|claim| &*claim.node).collect();
        ledger.keep_only(|node| known.contains(node));
        let grants = ledger.round(&claims, now >= self.raises_from, stamp(now));
        let granted = match grants {
            Ok(grants) => {
                claims.iter().cloned().zip(grants).map(|both| (both.0.node.clone(), both)).collect()
            }
            Err(why) => {
                // Nothing is granted by broken books, and nothing is written without a grant.
                tracing::error!("the budget cannot be computed: {why}; no cap is written");
                claims.iter().cloned().map(|claim| (claim.node.clone(), (claim, Grant::Wait))).collect()
            }
        };
        self.stats.budget(ledger.standings());
        self.ledger = Some(ledger);
        self.say_shortages();
        Granted(granted)
    }

    fn claims(&self, plan: &Plan) -> Vec<Claim> {
        let planned = plan.nodes.iter().filter_map(|node| {
            let member = self.site.member(&node.node)?;
            Some(self.claim(member, node.desired.as_ref().map(|desired| desired.caps), priority(node)))
        });
        let lifted = |release: &Release| {
            let lifts = release.actions.iter().find_map(|action| match action {
                Action::WriteDesired(desired) => Some(desired.caps),
                Action::DeleteDesired => Some(Caps::default()),
                Action::WriteLabels { .. } | Action::RemoveLabels => None,
            });
            let member = self.site.member(&release.node)?;
            Some(Claim { lifts: true, ..self.claim(member, lifts, Priority::Eco) })
        };
        let released = plan.releases.iter().filter_map(lifted);
        let mut claims: Vec<Claim> = planned.chain(released).collect();
        let seen: BTreeSet<Arc<str>> = claims.iter().map(|claim| claim.node.clone()).collect();
        // Whoever has an agent or a desired state draws power here, planned or not.
        let others = self.site.members.iter().filter(|member| {
            (member.hardware.is_some() || member.profile.is_some()) && !seen.contains(&member.node.name)
        });
        claims.extend(others.map(|member| self.claim(member, None, Priority::Eco)));
        claims
    }

    fn claim(&self, member: &Member, desired: Option<Caps>, priority: Priority) -> Claim {
        let source = self.settings.lens.source;
        let state = member.state(source);
        let stands = state.map(|state| rows::caps(&state.desired));
        let can = |control: Option<bool>| member.hardware.is_some() && control != Some(false);
        let hardware = member.hardware.as_deref();
        let can = (
            can(hardware.and_then(|hardware| hardware.cpu_control)),
            can(hardware.and_then(|hardware| hardware.gpu_control)),
        );
        let named = Caps {
            cpu: desired.and_then(|caps| caps.cpu).or(stands.and_then(|caps| caps.cpu)),
            gpu: desired.and_then(|caps| caps.gpu).or(stands.and_then(|caps| caps.gpu)),
        };
        let limits = &self.settings.budget;
        let split = Split::of(&member.resolved, &named, can, (limits.node_rest, limits.unknown_node));
        let foreign = state.is_some_and(|state| {
            let owners = &state.owners.foreign;
            owners.cpu || owners.gpu || owners.profile
        });
        Claim {
            node: member.node.name.clone(),
            rack: member.label(RACK).map(str::to_owned),
            priority,
            fixed: foreign || !split.is_cappable() || !split.is_known(),
            split,
            desired,
            lifts: false,
            stands,
            reachable: member.node.ready,
        }
    }

    /// The desired state with the caps that a node was granted; nothing while it has to wait.
    pub(super) fn granted(
        &mut self,
        member: &Member,
        desired: Option<&Desired>,
        (claim, grant): (Claim, Grant),
        now: Mono,
    ) -> Option<Wanted> {
        let desired = desired?;
        let state = member.state(self.settings.lens.source);
        let caps = match grant {
            Grant::Wait if state.is_none() && claim.fixed => desired.caps,
            Grant::Wait => return None,
            Grant::Stands if claim.split.is_known() => {
                state.map_or(desired.caps, |state| rows::caps(&state.desired))
            }
            // No cap of the budget's: what stands, or less where the policy asks for less.
            Grant::Stands => {
                state.map_or(desired.caps, |state| rows::caps(&state.desired).lowered_to(&desired.caps))
            }
            Grant::Write(caps) => {
                if let Some(ledger) = &mut self.ledger {
                    ledger.order(&claim, caps, stamp(now));
                }
                caps
            }
        };
        Some(Wanted::planned(desired, caps))
    }

    /// Whether the release of a node has to wait: its caps are only lifted where there is room for that.
    pub(super) fn release_waits(&mut self, (claim, grant): (Claim, Grant), now: Mono) -> bool {
        let Some(lifted) = claim.desired else { return false };
        let max = claim.split.watts(&lifted);
        match grant {
            // A part of the way is no release.
            Grant::Write(caps) if claim.split.watts(&caps) == max => {
                if let Some(ledger) = &mut self.ledger {
                    ledger.order(&claim, lifted, stamp(now));
                }
                false
            }
            Grant::Stands => false,
            Grant::Write(_) | Grant::Wait => true,
        }
    }

    /// Tells the books what has landed.
    pub(super) fn tell_ledger(&mut self, node: &str, landed: &[Landed]) {
        let carrier = match self.settings.lens.source {
            DesiredSource::Profile => Target::Profile,
            DesiredSource::Twin => Target::Twin,
        };
        if let Some(ledger) = &mut self.ledger {
            for one in landed.iter().filter(|one| one.target == carrier) {
                ledger.landed(node, one.generation);
            }
        }
    }

    /// What is said of the limits above a node; nothing without a budget.
    pub(super) fn budget_said(&self, member: &Member) -> Option<Said> {
        let ledger = self.ledger.as_ref()?;
        let limits = &self.settings.budget;
        if !Split::knows(&member.resolved) {
            return Some(budget::of_unknown_hardware(limits.unknown_node.is_some()));
        }
        ledger.standing_of(member.label(RACK)).map(GroupStanding::verdict)
    }

    /// Says once what is not kept, and once that it is again.
    fn say_shortages(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        let mut said = BTreeMap::new();
        for group in ledger.standings() {
            let GroupStanding { name, short, exceeded, .. } = group;
            let told = match (short, exceeded) {
                (Some(by), _) => (
                    "BudgetShort",
                    format!(
                        "the limit of {name} cannot be kept: the lowest caps, what does not answer and the base load are {by} W above it"
                    ),
                ),
                (None, Some(by)) => (
                    "BudgetExceeded",
                    format!(
                        "{name} counts {by} W more than its limit, for longer than caps take to be read back: look for nodes whose CapEnforced is not True"
                    ),
                ),
                (None, None) => continue,
            };
            said.insert(name.clone(), told);
        }
        for (reason, text) in said
            .iter()
            .filter(|(name, (reason, _))| self.short.get(*name) != Some(reason))
            .map(|(_, told)| told)
        {
            tracing::warn!("{text}");
            self.recorder.say(self.of_the_budget(Severity::Warning, reason, text.clone()));
        }
        for group in self.short.keys().filter(|group| !said.contains_key(*group)) {
            let text = format!("the limit of {group} is kept again");
            tracing::info!("{text}");
            self.recorder.say(self.of_the_budget(Severity::Normal, "BudgetKept", text));
        }
        self.short = said.into_iter().map(|(group, (reason, _))| (group, reason)).collect();
    }

    fn of_the_budget(&self, severity: Severity, reason: &'static str, text: String) -> Note {
        Note {
            regarding: ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                namespace: Some(self.settings.namespace.clone()),
                name: Some(PLAN_LEASE.to_owned()),
                ..ObjectReference::default()
            },
            severity,
            reason,
            action: "Allocate",
            text,
        }
    }
}

fn priority(plan: &NodePlan) -> Priority {
    match (plan.guard.state.name(), plan.planned) {
        (StateName::ActivePerformance, _) | (_, Profile::Performance) => Priority::Performance,
        (StateName::DrainingPerformance, Profile::Eco) => Priority::Draining,
        (StateName::ActiveEco | StateName::Unknown, Profile::Eco) => Priority::Eco,
    }
}
