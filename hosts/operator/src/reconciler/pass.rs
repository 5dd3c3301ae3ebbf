//! One pass: decides by what is observed, and returns jobs for the nodes whose objects differ from the decision.

use super::advise::by_place;
use super::explain::Decided;
use super::jobs::{Then, lane};
use super::unchanged::Unchanged;
use super::{Reconciler, stamp};
use crate::evict::EvictionOrder;
use crate::grants::Ticket;
use crate::publish::{NodeAdvice, Standing, grant_label, status_of};
use crate::site::Observed;
use crate::sleep::SleepOrder;
use crate::stats::Shown;
use crate::writes::{How, Job, Target, Write};
use host_kit::clock::Mono;
use jiff::Timestamp;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::freshness::UnixTime;
use planner::decide::{ClusterDecision, decide};
use planner::names::Beside;
use planner::node::{DesiredState, Node};
use planner::plan::{self, NodeDecision, Release};
use planner::profile::Profile;
use planner::slicing::{self, GpuIntensities};
use power_units::Micros;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The result of a pass.
#[derive(Debug)]
pub(crate) struct Passed {
    /// Its number.
    pub(crate) number: u64,
    /// The jobs to send.
    pub(crate) jobs: Vec<Job<(u64, Then)>>,
    /// The jobs for grants to send.
    pub(crate) grants: Vec<Job<Ticket>>,
    /// The pods to evict.
    pub(crate) evictions: Vec<EvictionOrder>,
    /// The nodes to switch on or off.
    pub(crate) sleeps: Vec<SleepOrder>,
}

impl Reconciler {
    /// Observes, decides, and returns what is to be written. `wall` is the time of day.
    pub(crate) fn pass(&mut self, now: Mono, wall: Timestamp) -> Passed {
        self.passes += 1;
        self.wall = wall;
        self.forget_jobs(now);
        self.say_unread();
        self.say_past_bound(now);
        self.observe(now, wall);
        self.arm(wall);
        self.lower(now, wall);
        self.looked = Some(now);
        let ClusterDecision { plan, twins, budget, trial } =
            decide(&self.site.cluster, &self.settings.plan, &mut self.memory);
        self.stats.planned(&plan);
        let full = plan.nodes.iter().filter(|decision| decision.planned == Profile::Performance).count();
        self.moves.planned(full, now);
        self.transitions.planned(&plan, full, now);
        let counts = budget.is_ok();
        let grants = self.write_grants(budget, trial, now);
        let mut left_alone = self.left_alone(now);
        let stands_in = plan.fallback.is_some();
        let by_place = by_place(self.site.observed.len(), &plan, &twins);
        let mut advised = self.advise(&by_place);
        self.stats.reschedule.advised(advised.values());
        let evictions = self.evictions(&by_place, &plan, now);
        let mut jobs = Vec::new();
        left_alone.extend(self.hand_back(&plan, &left_alone, wall, &mut jobs));
        // Without a classifier nothing is known of how GPUs are used.
        let pods = self.site.cluster.pods.as_ref().filter(|_| self.settings.classify.is_some());
        let names = || self.site.cluster.nodes.iter().map(|node| &*node.name);
        let used: Option<Vec<GpuIntensities>> = pods
            .map(|pods| Beside::new(names(), pods.gpus()).each().map(Option::unwrap_or_default).collect());
        for (decision, &twin) in plan.nodes.iter().zip(&twins) {
            let at = decision.place;
            let (Some(node), Some(observed)) = (self.site.cluster.nodes.get(at), self.site.observed.get(at))
            else {
                continue;
            };
            let shown = Shown::of(node, decision);
            if left_alone.contains(&at) {
                self.stats.show(&decision.node, shown);
                continue;
            }
            let objects = plan::desired(node, Some(decision), &self.settings.plan);
            let changes = plan::diff(&objects, node, stands_in);
            let advice = advised.remove(&at).unwrap_or_default();
            let used = used.as_ref().and_then(|used| used.get(at).copied());
            let slicing = slicing_of(observed, node, used);
            let standing = Standing { advice, slicing, ..self.standing(observed, node, decision) };
            let (observed, lag) = (observed.clone(), node.power.lag);
            self.say_advice(&observed, &standing.advice);
            let unchanged = |unchanged: &Unchanged| {
                unchanged.is(&observed, twin, &standing, decision.desired.as_ref(), shown)
            };
            if changes.is_empty()
                && !self.is_to_be_refreshed(&observed)
                && self.unchanged.get(at).and_then(Option::as_ref).is_some_and(unchanged)
            {
                self.commit(decision);
                continue;
            }
            self.stats.show(&decision.node, shown);
            let status = status_of(&twin, &standing, observed.twin.as_deref(), (self.wall, lag));
            let published = observed.twin.as_deref().and_then(|twin| twin.status.schedulable_class.as_ref());
            let is_reclassed = published != status.schedulable_class.as_ref();
            let writes = self.writes(&observed, changes, status, &standing);
            let desired = decision.desired.clone();
            let unchanged = || Unchanged::new(observed, twin, standing, desired, shown);
            let unchanged = writes.is_empty().then(unchanged);
            if let Some(slot) = self.unchanged.get_mut(at) {
                *slot = unchanged;
            }
            let then = Then::Commit(Box::new(decision.clone()));
            self.job(decision.node.clone(), writes, is_reclassed, then, &mut jobs);
        }
        self.stats.forget_others(&plan);
        for release in &plan.releases {
            if self.may_release(release, &left_alone, now) {
                let writes = self.release_writes(release);
                let then = Then::Released(Box::new(release.clone()));
                self.job(release.node.clone(), writes, false, then, &mut jobs);
            }
        }
        self.taint_others(&left_alone, &mut jobs);
        self.label_grants(&plan, &left_alone, &mut jobs);
        let sleeps = self.sleeps(counts, &left_alone, now, &mut jobs);
        self.write_budgets(now, &mut jobs);
        self.write_events(now, &mut jobs);
        self.say_overdue(&plan);
        self.decided = Some(Decided { plan, twins, at: now });
        Passed { number: self.passes, jobs, grants, evictions, sleeps }
    }

    /// Takes in what is valid for this moment only: the time, the meters' readings, the nodes that are waited for, and
    /// the grants that were sent.
    fn observe(&mut self, now: Mono, wall: Timestamp) {
        let site = &self.site;
        self.absences.pass(&site.cluster.nodes, &site.observed, now);
        let seen = |node: &str| site.grants.get(node).map(|grant| &**grant);
        self.grants.observe(seen, |node| site.find(node).is_some(), now);
        let mut cluster = std::mem::take(&mut self.site.cluster.nodes);
        let powers = self.meters.readings(cluster.iter().map(|node| &*node.name), stamp(now));
        for ((node, observed), power) in cluster.iter_mut().zip(&self.site.observed).zip(powers) {
            node.visibility = self.visibility(observed, &node.machine, &power);
            node.presence = self.absences.presence(observed);
            node.granted.sent = self.grants.sent(&node.name);
            node.sleep = self.sleep_count(observed, now, wall);
            node.power = power;
        }
        for node in &mut self.site.cluster.gone {
            node.granted.sent = self.grants.sent(&node.name);
        }
        self.site.cluster.facility.expire(stamp(now));
        self.stats.facility(&self.site.cluster.facility.at(stamp(now), self.settings.plan.facility_hold));
        self.stats.apart(self.meters.apart());
        let since_1970 = u64::try_from(wall.as_microsecond()).unwrap_or(0);
        let known = &mut self.site.cluster;
        known.nodes = cluster;
        known.now = stamp(now);
        known.wall_clock = Micros::new(since_1970);
        // A limit that cannot be read may have been cut.
        let since_1970 = UnixTime::from_micros(wall.as_microsecond());
        self.site.expect_pods(since_1970);
        let known = &mut self.site.cluster;
        known.raises = now >= self.raises_from && (!self.site.budgets.unread || self.site.releases_all);
    }

    /// Sets or removes the taint of nodes for which nothing else is written in this pass.
    fn taint_others(&mut self, left_alone: &BTreeSet<usize>, jobs: &mut Vec<Job<(u64, Then)>>) {
        let mut others = Vec::new();
        for (at, (node, observed)) in self.site.cluster.nodes.iter().zip(&self.site.observed).enumerate() {
            let objects = plan::desired(node, None, &self.settings.plan);
            // Most nodes already have the right taint.
            if objects.taint == Some(node.tainted)
                || left_alone.contains(&at)
                || self.busy.contains_key(&node.name)
            {
                continue;
            }
            let mut writes = Vec::new();
            for change in plan::diff(&objects, node, false) {
                self.write(node, Some(observed), change, &mut writes);
            }
            others.push((node.name.clone(), writes));
        }
        for (node, writes) in others {
            self.job(node, writes, false, Then::Nothing, jobs);
        }
    }

    /// Writes into the grants which PowerBudget their nodes are in and what events leave of them, of nodes for which nothing else is
    /// written in this pass.
    fn label_grants(
        &mut self,
        plan: &plan::Plan,
        left_alone: &BTreeSet<usize>,
        jobs: &mut Vec<Job<(u64, Then)>>,
    ) {
        let mut classes = vec![SchedulableClass::Unknown; self.site.cluster.nodes.len()];
        for decision in &plan.nodes {
            if let Some(class) = classes.get_mut(decision.place) {
                *class = decision.guard.state.class();
            }
        }
        let mut others = Vec::new();
        for (at, (node, observed)) in self.site.cluster.nodes.iter().zip(&self.site.observed).enumerate() {
            let Some(grant) = observed.grant.as_deref() else { continue };
            let class = classes.get(at).copied().unwrap_or(SchedulableClass::Unknown);
            let shares = self.shares(node, class);
            let budget = self.site.budgets.name_of(&node.limits);
            let Some(document) = grant_label(grant, budget, &shares) else { continue };
            let is_free = !left_alone.contains(&at) && !self.busy.contains_key(&node.name);
            if is_free && observed.unreadable.grant.is_none() {
                let (name, how) = (grant.name.clone(), How::Merge { document });
                others.push((node.name.clone(), Write { target: Target::GrantLabel, name, how }));
            }
        }
        for (node, write) in others {
            self.job(node, vec![write], false, Then::Nothing, jobs);
        }
    }

    /// Whether a release may be written now.
    fn may_release(&self, release: &Release, left_alone: &BTreeSet<usize>, now: Mono) -> bool {
        let Some(at) = self.site.find(&release.node) else { return self.is_free(&release.node, now) };
        let is_paused = self.site.cluster.nodes.get(at).is_some_and(|node| node.limits.paused);
        // Its present desired state cannot be read, so it cannot be released.
        let source = self.settings.selectors.source;
        let is_unread = self.site.observed.get(at).is_some_and(|observed| observed.is_state_unread(source));
        !is_unread && !is_paused && !left_alone.contains(&at)
    }

    pub(super) fn job(
        &mut self,
        node: Arc<str>,
        writes: Vec<Write>,
        is_reclassed: bool,
        then: Then,
        jobs: &mut Vec<Job<(u64, Then)>>,
    ) {
        if writes.is_empty() {
            self.carried_out(then);
        } else {
            self.tickets += 1;
            self.busy.insert(node.clone(), (self.tickets, self.passes));
            jobs.push(Job { node, lane: lane(&writes, is_reclassed), writes, then: (self.tickets, then) });
        }
    }

    /// What is reported about a node beside its twin.
    fn standing(&self, observed: &Observed, node: &Node, decision: &NodeDecision) -> Standing {
        Standing {
            awaits_meter: node.power.awaited && !node.machine.has_no_meter,
            apart: node.power.apart,
            unreadable: observed.unreadable.said(),
            implausible: node.machine.implausible.clone(),
            overridden: self.overridden(observed, node, decision),
            budget: self.budget_said(node),
            overdue: decision.overdue,
            advice: NodeAdvice::default(),
            slicing: None,
            limit: self.site.budgets.limit_of(&node.limits).filter(|_| node.limits.is_enforced()),
        }
    }

    /// What somebody else owns, in a sentence.
    fn overridden(&self, observed: &Observed, node: &Node, decision: &NodeDecision) -> Option<String> {
        let mut theirs = Vec::new();
        let source = self.settings.selectors.source;
        if let Some(state) = observed.overridden_state(source) {
            // Another owner of a field that has the planned value overrides nothing.
            let differs = |wanted: &DesiredState| wanted.over(&state.carried) != *wanted;
            if decision.desired.as_ref().is_none_or(differs) || state.carried.persons {
                let who = state.who.as_deref().unwrap_or("somebody");
                theirs.push(format!("fields of {} {} belong to {who}", state.kind(source), state.name));
            }
        }
        let label = &node.labels.profile;
        if label.theirs {
            let key = &self.settings.selectors.profile_key;
            let planned = decision.guard.publish.and_then(|publish| publish.label);
            if planned.is_some_and(|planned| Some(planned.as_str()) != label.text.as_deref()) {
                let who = observed.node.owner_of(key).unwrap_or("somebody");
                theirs.push(format!("the label {key} of the node belongs to {who}"));
            }
        }
        (!theirs.is_empty()).then(|| format!("{}; what they say stands", theirs.join(", ")))
    }
}

/// How a node's GPUs would better be divided, by what it reports of them and by how its pods use them. Without a report,
/// and where somebody else says it, there is no advice.
fn slicing_of(observed: &Observed, node: &Node, used: Option<GpuIntensities>) -> Option<slicing::Advice> {
    let hardware = observed.gpu_hardware()?;
    let is_theirs = observed.twin.as_deref().is_some_and(|twin| twin.slicing_theirs);
    let gpus = node.machine.resolved.hardware.gpu.as_ref().filter(|_| !is_theirs)?;
    slicing::advise(gpus, hardware.gpu_slicing, used?)
}
