//! The budget's part of a pass: what is observed of every node, what is to be written to its grant, and what is said of
//! limits that cannot be kept.

use super::{Brain, stamp};
use crate::budget::{self, Said};
use crate::meters::Metering;
use crate::publish::{Wanted, grant_document, grant_patch};
use crate::rows::GrantSeen;
use crate::site::Member;
use crate::writes::{How, Job, Lane, Target, Trouble, Write};
use host_kit::clock::Mono;
use host_kit::events::{Note, Severity};
use joulie_api::labels::PLAN_LEASE;
use joulie_core::budget::{Grant, Priority};
use k8s_openapi::api::core::v1::ObjectReference;
use planner::budget::{Ask, Claim, GroupStanding, SITE, Split};
use planner::guard::StateName;
use planner::plan::{NodePlan, Plan};
use planner::power::Reading;
use planner::profile::Profile;
use power_units::Watts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a job of the budget is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) u64);

/// The third failure in a row waits so long.
const TOLD_FROM: Duration = Duration::from_secs(1);
/// Watts that go up and down all the time are told of so often.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// What is deleted instead of written over.
enum Over {
    /// A node that is released has read that back.
    Released,
    /// The node is gone, and its agent has said nothing for long enough.
    Gone,
}

impl Brain {
    /// A round of the budget: the jobs that bring grants to what they are to be.
    pub(super) fn budget(&mut self, plan: &Plan, now: Mono) -> Vec<Job<Ticket>> {
        self.round = planner::budget::Round::default();
        if !self.settings.budget.any() && self.site.grants.by_node().is_empty() {
            return Vec::new();
        }
        let site = &self.site;
        let seen = |node: &str| site.grants.get(node).map(|grant| &**grant);
        self.grants.observe(seen, |node| site.find(node).is_some(), now);
        let claims = self.claims(plan);
        let raises = now >= self.raises_from;
        let round = planner::budget::round(
            &claims,
            &self.settings.budget,
            &mut self.budget_memory,
            (stamp(now), raises),
        );
        match round {
            Ok(round) => self.round = round,
            Err(why) => {
                tracing::error!("the budget cannot be computed: {why}; no grant is written");
                return Vec::new();
            }
        }
        self.stats.budget(&self.round.standings);
        self.say_shortages();
        self.say_cuts(&claims, now);
        let asks = std::mem::take(&mut self.round.asks);
        let mut jobs: Vec<Job<Ticket>> = Vec::new();
        for (claim, ask) in claims.iter().zip(asks) {
            jobs.extend(ask.and_then(|ask| self.write_grant(claim, ask, now)));
        }
        for (node, over) in self.finished(&claims, now) {
            jobs.extend(self.delete_grant(&node, &over, now));
        }
        jobs
    }

    /// Every node as the budget sees it: those that are planned first, in the order of the plan, because of nodes that are
    /// alike the first is raised first.
    fn claims(&self, plan: &Plan) -> Vec<Claim> {
        let mut claims = Vec::with_capacity(self.site.members.len());
        let mut claimed = vec![false; self.site.members.len()];
        for node in &plan.nodes {
            let (Some(member), Some(claimed)) =
                (self.site.members.get(node.place), claimed.get_mut(node.place))
            else {
                continue;
            };
            *claimed = true;
            claims.push(Claim {
                wanted: self.wanted_watts(member, node),
                ..self.claim(member, priority(node))
            });
        }
        // Whoever has an agent, a grant or a desired state draws power here, planned or not.
        for ((member, claimed), row) in self.site.members.iter().zip(claimed).zip(&self.site.nodes) {
            let draws = member.hardware.is_some() || member.profile.is_some() || member.grant.is_some();
            if claimed || !draws {
                continue;
            }
            let claim = self.claim(member, Priority::Eco);
            let (leaves, aside) = (claim.leaves || !row.is_eligible(), claim.aside || member.grant.is_none());
            claims.push(Claim { leaves, aside, ..claim });
        }
        let gone = self.site.grants.by_node().iter().filter(|(node, _)| self.site.find(node).is_none());
        claims.extend(gone.map(|(node, grant)| orphan(node, grant)));
        claims
    }

    fn claim(&self, member: &Member, priority: Priority) -> Claim {
        let seen = member.grant.as_deref();
        Claim {
            node: member.name.clone(),
            rack: member.brief.rack.clone(),
            priority,
            split: member.split(),
            wanted: None,
            leaves: !self.settings.budget.any(),
            // What stands in a grant that cannot be read is not known, so it cannot be written over.
            aside: member.unreadable.grant.is_some(),
            reachable: member.node.ready,
            grant: seen.filter(|seen| !seen.released).map(|seen| seen.grant),
            released: seen.is_some_and(|seen| seen.released),
            receipt: seen.and_then(|seen| seen.receipt(&member.node)),
            sent: self.grants.sent(&member.name),
        }
    }

    /// The most that the policy and persons let a node draw.
    fn wanted_watts(&self, member: &Member, plan: &NodePlan) -> Option<Watts> {
        let desired = plan.desired.as_ref()?;
        let wanted = Wanted::planned(desired);
        let stands = match member.state(self.settings.lens.source) {
            Some(state) if member.brief.has_other_owners => wanted.over(state),
            Some(_) | None => wanted,
        };
        member.split().watts(&stands.caps)
    }

    fn write_grant(&mut self, claim: &Claim, ask: Ask, now: Mono) -> Option<Job<Ticket>> {
        if !self.grants.is_free(&claim.node, now) {
            return None;
        }
        let seen = self.site.grants.get(&claim.node).cloned();
        let serial = seen.as_ref().map_or(0, |seen| seen.grant.serial).saturating_add(1);
        let grant = Grant { serial, watts: ask.watts, ceiling: ask.ceiling };
        let ticket = self.grants.send(&claim.node, seen.as_deref(), grant);
        let (name, how) = match &seen {
            Some(seen) => (seen.name.clone(), How::Replace { patch: grant_patch(seen, grant, ask.released) }),
            None => {
                let name = self.site.grant_name(&claim.node);
                let document = grant_document(&name, &claim.node, grant);
                (name, How::Create { document })
            }
        };
        Some(job(&claim.node, Write { target: Target::Grant, name, how }, ticket))
    }

    /// Grants that are to go: of nodes that are released and know it, and of nodes that are gone.
    fn finished(&mut self, claims: &[Claim], now: Mono) -> Vec<(Arc<str>, Over)> {
        let hold = self.settings.gone_hold;
        let before = std::mem::take(&mut self.gone);
        let mut finished = Vec::new();
        for claim in claims {
            let Some(seen) = self.site.grants.get(&claim.node) else { continue };
            if self.site.find(&claim.node).is_none() {
                let version = seen.stamp.version.clone();
                // Whatever its agent says makes the wait begin anew.
                let since =
                    before.get(&claim.node).filter(|(of, _)| *of == version).map_or(now, |(_, since)| *since);
                if now.since(since) >= hold {
                    finished.push((claim.node.clone(), Over::Gone));
                } else {
                    self.gone.insert(claim.node.clone(), (version, since));
                }
            } else if claim.leaves && seen.released && seen.is_read_back() {
                finished.push((claim.node.clone(), Over::Released));
            }
        }
        finished
    }

    fn delete_grant(&mut self, node: &Arc<str>, over: &Over, now: Mono) -> Option<Job<Ticket>> {
        if !self.grants.is_free(node, now) {
            return None;
        }
        let seen = self.site.grants.get(node)?.clone();
        if matches!(over, Over::Gone) {
            let minutes = self.settings.gone_hold.as_secs() / 60;
            let text = format!(
                "the node {node} is gone and its agent has said nothing for {minutes} minutes: its grant of {} W goes, and counts no more",
                seen.grant.watts
            );
            tracing::warn!("{text}");
            self.recorder.say(self.of_the_budget(Severity::Warning, "GrantDropped", text));
        }
        let ticket = self.grants.delete(node);
        let how = How::Delete { uid: seen.stamp.uid.clone() };
        Some(job(node, Write { target: Target::Grant, name: seen.name.clone(), how }, ticket))
    }

    /// Takes in what came of a grant.
    pub(crate) fn grant_ended(
        &mut self,
        node: &str,
        Ticket(ticket): Ticket,
        failed: Option<&Trouble>,
        now: Mono,
    ) {
        let wait = self.grants.ended((node, ticket), failed, now);
        self.count_write(Target::Grant, failed);
        if let (Some(trouble), Some(wait)) = (failed, wait) {
            let (why, millis) = (trouble.words(), wait.as_millis());
            // That somebody wrote between our look and our write is how it should be; that it happens each time is not.
            if *trouble == Trouble::NotLeading || wait < TOLD_FROM {
                tracing::debug!(node, "a grant was not written: {why}; again in {millis}ms");
            } else {
                tracing::warn!(node, "a grant could not be written: {why}; again in {millis}ms");
            }
        }
    }

    /// What is said of the limits above a node; nothing without a budget.
    pub(super) fn budget_said(&self, member: &Member) -> Option<Said> {
        let limits = &self.settings.budget;
        if !limits.any() {
            return None;
        }
        if !member.split().is_known() {
            return Some(budget::of_unknown_hardware(limits.unknown_node.is_some()));
        }
        self.round.standing_of(member.brief.rack.as_deref()).map(budget::verdict)
    }

    /// Shows what the meters of each group's nodes say together.
    pub(super) fn measure(&self, metered: &[Metering]) {
        if self.round.standings.is_empty() {
            return;
        }
        let mut sums: BTreeMap<&str, Watts> = BTreeMap::new();
        for (member, metering) in self.site.members.iter().zip(metered) {
            let Reading::Measured { watts, .. } = metering.reading else { continue };
            *sums.entry(SITE).or_insert(Watts::ZERO) += watts;
            if let Some(rack) = member.brief.rack.as_deref() {
                *sums.entry(rack).or_insert(Watts::ZERO) += watts;
            }
        }
        for group in &self.round.standings {
            self.stats.measured(&group.name, sums.get(group.name.as_str()).copied().unwrap_or(Watts::ZERO));
        }
    }

    /// Says once what is not kept, and once that it is again.
    fn say_shortages(&mut self) {
        let mut said = BTreeMap::new();
        for group in &self.round.standings {
            let GroupStanding { name, short, exceeded, holders, .. } = group;
            let told = match (short, exceeded) {
                (Some(by), _) => (
                    "BudgetShort",
                    format!(
                        "the limit of {name} cannot be kept: the lowest caps, what does not answer and the base load are {by:.1} W above it"
                    ),
                ),
                (None, Some(by)) => (
                    "BudgetExceeded",
                    format!(
                        "{name} counts {by:.1} W more than its limit, for longer than a grant takes to be read back; most of it is held by {}: look at the status of their NodePowerGrants, and at their agents",
                        holders.join(", ")
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

    /// Says that many watts are taken or given in one pass: at least a twentieth of the site's limit.
    fn say_cuts(&mut self, claims: &[Claim], now: Mono) {
        let Some(limit) = self.settings.budget.site else { return };
        let (mut down, mut up) = ((Watts::ZERO, 0_usize), (Watts::ZERO, 0_usize));
        for (claim, ask) in claims.iter().zip(&self.round.asks) {
            let Some(ask) = ask.filter(|_| claim.sent.is_empty()) else { continue };
            let stands = claim.grant.map(|grant| grant.watts).or(claim.split.max()).unwrap_or(ask.watts);
            let sum = if ask.watts < stands { &mut down } else { &mut up };
            *sum = (sum.0 + (stands - ask.watts).abs(), sum.1 + 1);
        }
        for ((watts, nodes), reason, word) in
            [(down, "BudgetLowers", "lowered"), (up, "BudgetRaises", "raised")]
        {
            let told = self.cuts.get(reason).is_some_and(|&at| now < at.plus(TELL_AGAIN));
            if watts.times(20) < limit || nodes == 0 || told {
                continue;
            }
            self.cuts.insert(reason, now);
            let site = self.round.standings.first();
            let load = site
                .and_then(|site| site.load)
                .map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}"));
            let text = format!(
                "{nodes} nodes are {word} by {watts:.1} W together; the site counts {load} W of {limit:.1} W"
            );
            tracing::info!("{text}");
            self.recorder.say(self.of_the_budget(Severity::Normal, reason, text));
        }
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

fn job(node: &Arc<str>, write: Write, ticket: u64) -> Job<Ticket> {
    Job { node: node.clone(), lane: Lane::Power, writes: vec![write], then: Ticket(ticket) }
}

/// A grant whose node is gone: the machine may run on under its agent, and draws no more than that.
fn orphan(node: &str, grant: &GrantSeen) -> Claim {
    Claim {
        node: node.into(),
        rack: None,
        priority: Priority::Eco,
        split: Split::lump(grant.most()),
        wanted: None,
        leaves: false,
        aside: true,
        reachable: false,
        grant: None,
        released: false,
        receipt: None,
        sent: Vec::new(),
    }
}

fn priority(plan: &NodePlan) -> Priority {
    match (plan.guard.state.name(), plan.planned) {
        (StateName::ActivePerformance, _) | (_, Profile::Performance) => Priority::Performance,
        (StateName::DrainingPerformance, Profile::Eco) => Priority::Draining,
        (StateName::ActiveEco | StateName::Unknown, Profile::Eco) => Priority::Eco,
    }
}
