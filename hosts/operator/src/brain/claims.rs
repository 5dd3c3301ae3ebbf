//! The budget's part of a pass: what every node claims, what it is granted, and what is said of limits that cannot be
//! kept.

use super::{Brain, stamp};
use crate::budget::{self, Claim, Grant, GroupStanding, Said, Split};
use crate::publish::Wanted;
use crate::site::{DesiredSource, Member};
use crate::writes::{Landed, Target};
use host_kit::clock::Mono;
use host_kit::events::{Note, Severity};
use joulie_api::labels::PLAN_LEASE;
use joulie_core::budget::Priority;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::guard::StateName;
use planner::intent::Caps;
use planner::plan::{Action, Desired, NodePlan, Plan, PublishedRow};
use planner::profile::Profile;
use std::collections::BTreeMap;

/// What became of the claims of a pass; empty without a budget.
#[derive(Debug, Default)]
pub(super) struct Granted {
    claims: Vec<Claim>,
    grants: Vec<Grant>,
    /// Which of them is of the node at a place.
    at: Vec<Option<usize>>,
}

impl Granted {
    /// What the node at this place was granted; nothing without a budget.
    pub(super) fn of(&self, place: usize) -> Option<(&Claim, Grant)> {
        let at = self.at.get(place).copied().flatten()?;
        self.claims.get(at).zip(self.grants.get(at).copied())
    }
}

impl Brain {
    /// Shows the policy its own caps in the place of those that the budget made of them. Returns the caps that stand, where
    /// there is a budget.
    pub(super) fn show_own_caps(&mut self, rows: &mut [PublishedRow]) -> Option<Vec<Caps>> {
        let ledger = self.ledger.as_mut()?;
        let shown = |row: &mut PublishedRow| {
            let shown = ledger.shown(&row.node, row.caps);
            std::mem::replace(&mut row.caps, shown)
        };
        Some(rows.iter_mut().map(shown).collect())
    }

    /// A round of the budget.
    pub(super) fn budget(&mut self, plan: &Plan, now: Mono) -> Granted {
        let Some(mut ledger) = self.ledger.take() else { return Granted::default() };
        let (mut granted, places) = self.claims(plan);
        let source = self.settings.lens.source;
        // In the order of the plan: of nodes that are alike the one that was seen first is raised first.
        for (claim, place) in granted.claims.iter().zip(places) {
            let state = self.site.members.get(place).and_then(|member| member.state(source));
            ledger.observe(&claim.node, &claim.split, state, stamp(now));
        }
        match ledger.round(&granted.claims, now >= self.raises_from, stamp(now)) {
            Ok(grants) => granted.grants = grants,
            // Nothing is granted by broken books, and nothing is written without a grant.
            Err(why) => tracing::error!("the budget cannot be computed: {why}; no cap is written"),
        }
        self.stats.budget(ledger.standings());
        self.ledger = Some(ledger);
        self.say_shortages();
        granted
    }

    /// What is claimed, and nothing granted yet; and the places of the nodes that claim it.
    fn claims(&self, plan: &Plan) -> (Granted, Vec<usize>) {
        let members = &self.site.members;
        let (mut claims, mut places) = (Vec::with_capacity(members.len()), Vec::with_capacity(members.len()));
        let mut at = vec![None; members.len()];
        let mut claim = |place: usize, desired, priority, lifts| {
            if let (Some(member), Some(at)) = (members.get(place), at.get_mut(place)) {
                *at = Some(claims.len());
                claims.push(Claim { lifts, ..self.claim(member, desired, priority) });
                places.push(place);
            }
        };
        for node in &plan.nodes {
            claim(node.place, node.desired.as_ref().map(|desired| desired.caps), priority(node), false);
        }
        for release in &plan.releases {
            let lifts = release.actions.iter().find_map(|action| match action {
                Action::WriteDesired(desired) => Some(desired.caps),
                Action::DeleteDesired => Some(Caps::default()),
                Action::WriteLabels { .. } | Action::RemoveLabels => None,
            });
            if let Some(place) = self.site.find(&release.node) {
                claim(place, lifts, Priority::Eco, true);
            }
        }
        // Whoever has an agent or a desired state draws power here, planned or not.
        for (place, (member, at)) in members.iter().zip(&mut at).enumerate() {
            if at.is_none() && (member.hardware.is_some() || member.profile.is_some()) {
                *at = Some(claims.len());
                claims.push(self.claim(member, None, Priority::Eco));
                places.push(place);
            }
        }
        (Granted { grants: vec![Grant::Wait; claims.len()], claims, at }, places)
    }

    fn claim(&self, member: &Member, desired: Option<Caps>, priority: Priority) -> Claim {
        let stands = member.brief.caps;
        let named = Caps {
            cpu: desired.and_then(|caps| caps.cpu).or(stands.and_then(|caps| caps.cpu)),
            gpu: desired.and_then(|caps| caps.gpu).or(stands.and_then(|caps| caps.gpu)),
        };
        let limits = &self.settings.budget;
        let split = Split::of(
            &member.resolved,
            &named,
            member.brief.can_cap,
            (limits.node_rest, limits.unknown_node),
        );
        let foreign = member.brief.has_other_owners
            && member.state(self.settings.lens.source).is_some_and(|state| {
                let owners = &state.owners.foreign;
                owners.cpu || owners.gpu || owners.profile
            });
        Claim {
            node: member.name.clone(),
            rack: member.brief.rack.clone(),
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
        desired: Option<&Desired>,
        (claim, grant): (&Claim, Grant),
        now: Mono,
    ) -> Option<Wanted> {
        let desired = desired?;
        let caps = match grant {
            Grant::Wait if claim.stands.is_none() && claim.fixed => desired.caps,
            Grant::Wait => return None,
            Grant::Stands if claim.split.is_known() => claim.stands.unwrap_or(desired.caps),
            // No cap of the budget's: what stands, or less where the policy asks for less.
            Grant::Stands => claim.stands.map_or(desired.caps, |stands| stands.lowered_to(&desired.caps)),
            Grant::Write(caps) => {
                if let Some(ledger) = &mut self.ledger {
                    ledger.order(claim, caps, stamp(now));
                }
                caps
            }
        };
        Some(Wanted::planned(desired, caps))
    }

    /// Whether the release of a node has to wait: its caps are only lifted where there is room for that.
    pub(super) fn release_waits(&mut self, (claim, grant): (&Claim, Grant), now: Mono) -> bool {
        let Some(lifted) = claim.desired else { return false };
        let max = claim.split.watts(&lifted);
        match grant {
            // A part of the way is no release.
            Grant::Write(caps) if claim.split.watts(&caps) == max => {
                if let Some(ledger) = &mut self.ledger {
                    ledger.order(claim, lifted, stamp(now));
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
        ledger.standing_of(member.brief.rack.as_deref()).map(GroupStanding::verdict)
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
