//! One pass: what is known becomes a plan, twins, and jobs for the nodes that differ from it.

use super::claims::Ticket;
use super::jobs::{Then, lane};
use super::settled::Settled;
use super::{Brain, stamp};
use crate::meters::Metering;
use crate::publish::{Standing, Wanted, status_of};
use crate::rows::StateSeen;
use crate::site::Member;
use crate::stats::Shown;
use crate::writes::{Job, Write};
use host_kit::clock::Mono;
use jiff::Timestamp;
use planner::demand::Asked;
use planner::facility::Facility;
use planner::names::Beside;
use planner::plan::{self, NodePlan, Plan, Presence, Sight, Snapshot};
use planner::power::estimate::Load;
use planner::power::{Absent, Reading};
use planner::twin::{self, NodeFacts, SiteFacts, Twin};
use power_units::Micros;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pass that was made.
#[derive(Debug)]
pub(crate) struct Passed {
    /// Which.
    pub(crate) number: u64,
    /// What is to be sent.
    pub(crate) jobs: Vec<Job<(u64, Then)>>,
    /// What is to be sent of the budget.
    pub(crate) grants: Vec<Job<Ticket>>,
}

impl Brain {
    /// Plans, and says what is to be written. `wall` is what people call the time.
    pub(crate) fn pass(&mut self, now: Mono, wall: Timestamp) -> Passed {
        self.passes += 1;
        self.wall = wall;
        self.forget_gone(now);
        self.say_unread();
        let names = self.site.members.iter().map(|member| &*member.name);
        let metered = self.meters.readings(names, stamp(now));
        let plan = self.plan(now, wall, &metered);
        self.stats.planned(&plan);
        let twins = self.twins(&plan, &metered, now);
        let grants = self.budget(&plan, now);
        self.measure(&metered);
        let left_alone = self.left_alone(now);
        let mut jobs = Vec::new();
        for (node, twin) in plan.nodes.iter().zip(twins) {
            let free = Some(node.place).filter(|place| !left_alone.contains(place));
            let known = free.and_then(|at| self.site.members.get(at).cloned().zip(metered.get(at)));
            if let Some((member, metering)) = known {
                let awaited = metering.awaited && !member.brief.has_no_meter;
                let standing = self.standing(&member, node, awaited);
                let stands_in = plan.fallback.is_some();
                self.node((member, standing), node, twin, stands_in, &mut jobs);
            } else {
                self.stats.show(&node.node, Shown::of(node));
            }
        }
        self.stats.forget_others(&plan);
        for release in plan.releases {
            let place = self.site.find(&release.node);
            let free = match place.and_then(|at| self.site.members.get(at)) {
                // What it was told is not known, so it cannot be told that it is released.
                Some(member) if member.is_state_unread(self.settings.lens.source) => false,
                Some(_) => place.is_none_or(|at| !left_alone.contains(&at)),
                None => self.is_free(&release.node, now),
            };
            if free {
                let writes = self.release_writes(&release);
                self.job(release.node.clone(), (writes, false), Then::Released(Box::new(release)), &mut jobs);
            }
        }
        Passed { number: self.passes, jobs, grants }
    }

    /// One node's part of a pass.
    fn node(
        &mut self,
        (member, standing): (Arc<Member>, Standing),
        plan: &NodePlan,
        twin: Twin,
        stands_in: bool,
        jobs: &mut Vec<Job<(u64, Then)>>,
    ) {
        let wanted = plan.desired.as_ref().map(Wanted::planned);
        let shown = Shown::of(plan);
        let looks_the_same =
            |settled: &Settled| settled.is(&member, twin, (&standing, wanted.as_ref()), shown);
        if plan.actions.is_empty()
            && !self.is_to_be_refreshed(&member)
            && self.settled.get(plan.place).and_then(Option::as_ref).is_some_and(looks_the_same)
        {
            return self.commit(plan);
        }
        self.stats.show(&plan.node, shown);
        let status = status_of(&twin, &standing, member.twin.as_deref(), self.wall);
        let published = member.twin.as_deref().and_then(|twin| twin.status.schedulable_class.as_ref());
        let is_reclassed = published != status.schedulable_class.as_ref();
        let parts = self.parts(&member, plan, wanted.clone(), (status, &standing), stands_in);
        let writes = parts.in_order(member.twin.is_some());
        if let Some(slot) = self.settled.get_mut(plan.place) {
            let settled = || Settled::new(member, twin, (standing, wanted), shown);
            *slot = writes.is_empty().then(settled);
        }
        self.job(plan.node.clone(), (writes, is_reclassed), Then::Commit(Box::new(plan.clone())), jobs);
    }

    fn job(
        &mut self,
        node: Arc<str>,
        (writes, is_reclassed): (Vec<Write>, bool),
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

    fn plan(&mut self, now: Mono, wall: Timestamp, metered: &[Metering]) -> Plan {
        let since_1970 = u64::try_from(wall.as_microsecond()).unwrap_or(0);
        // The rows are lent to the planner and taken back: copying tens of thousands of pods costs as much as planning.
        let mut nodes = std::mem::take(&mut self.site.nodes);
        self.absences.pass(&nodes, &self.site.members, self.settings.lens.source, now);
        for ((row, member), metering) in nodes.iter_mut().zip(&self.site.members).zip(metered) {
            row.sight = self.sight(member, metering);
            row.presence = self.absences.presence(member);
        }
        let published = self.site.lend_published(self.settings.lens.source);
        let snapshot = Snapshot {
            nodes,
            pods: self.site.pods.counts.take(),
            published,
            now: stamp(now),
            wall_clock: Micros::new(since_1970),
        };
        let plan = plan::plan(&snapshot, &self.settings.plan, &self.memory);
        self.site.take_published(snapshot.published);
        self.site.nodes = snapshot.nodes;
        // How well a node was seen and who is waited for are matters of this moment, and no part of what is kept of it.
        for row in &mut self.site.nodes {
            row.sight = Sight::Clear;
            if row.presence == Presence::Away {
                row.presence = Presence::Lost;
            }
        }
        self.site.pods.counts = snapshot.pods;
        plan
    }

    /// The twins of the planned nodes, in the order of the plan.
    fn twins(&self, plan: &Plan, metered: &[Metering], now: Mono) -> Vec<Twin> {
        let none = rows_of_nothing();
        let facility = Facility::default();
        let hold = crate::settings::micros(self.settings.hold);
        let members = &self.site.members;
        // What pods ask of each node, where pods are known.
        let asked = self.site.pods.counts.as_ref();
        let asked = asked.map(|pods| Beside::new(members.iter().map(|member| &*member.name), pods.asked()));
        let facts = |node: &NodePlan| {
            let known = members.get(node.place).map(|member| &**member).zip(metered.get(node.place));
            let asked = asked.as_ref().map(|asked| asked.at(node.place).unwrap_or_default());
            facts(node, known, asked, &none)
        };
        let facts: Vec<NodeFacts<'_>> = plan.nodes.iter().map(facts).collect();
        let site = SiteFacts { facility: facility.at(stamp(now), hold), unmanaged: &BTreeMap::new() };
        twin::twins(&self.law, &facts, &site)
    }

    /// What is said of a node beside its twin.
    fn standing(&self, member: &Member, plan: &NodePlan, awaits_meter: bool) -> Standing {
        let overridden = if member.brief.has_other_owners { self.overridden(member, plan) } else { None };
        let unreadable = member.unreadable.said();
        let implausible = member.brief.implausible.clone();
        Standing { awaits_meter, unreadable, implausible, overridden, budget: self.budget_said(member) }
    }

    /// What is somebody else's, in a sentence.
    fn overridden(&self, member: &Member, plan: &NodePlan) -> Option<String> {
        let mut theirs = Vec::new();
        let source = self.settings.lens.source;
        let planned = plan.desired.as_ref().map(Wanted::planned);
        // Who owns a field beside us, with the value that is planned, overrides nothing.
        let differs = |state: &StateSeen| {
            planned.clone().is_none_or(|wanted| wanted.clone().over(state) != wanted) || state.is_a_persons()
        };
        let foreign = |state: &&StateSeen| state.owners.foreign.any() && differs(state);
        if let Some(state) = member.state(source).filter(foreign) {
            let who = state.owners.foreign.who.as_deref().unwrap_or("somebody");
            theirs.push(format!("fields of {} {} belong to {who}", state.kind(source), state.name));
        }
        let key = &self.settings.lens.profile_key;
        let planned = plan.guard.publish.and_then(|publish| publish.label);
        if let Some(who) = member.node.owner_of(key)
            && planned.is_some_and(|label| Some(label.as_str()) != member.node.label(key))
        {
            theirs.push(format!("the label {key} of the node belongs to {who}"));
        }
        (!theirs.is_empty()).then(|| format!("{}; what they say stands", theirs.join(", ")))
    }
}

fn facts<'a>(
    plan: &NodePlan,
    known: Option<(&'a Member, &Metering)>,
    asked: Option<Asked>,
    none: &'a planner::hardware::Hardware,
) -> NodeFacts<'a> {
    let (member, metering) = known.unzip();
    let brief = member.map(|member| &member.brief);
    // The caps that stand; those of the plan where none stand yet.
    let stands = brief.and_then(|brief| brief.caps);
    let load = asked.zip(member).and_then(|(asked, member)| {
        let hardware = &member.resolved;
        let processors = member.node.capacity_cpus.or(hardware.cpu.total_cores);
        Load::asked(asked, processors, hardware.gpu.as_ref().map_or(0, |gpus| gpus.count))
    });
    let caps = stands.or(plan.desired.as_ref().map(|desired| desired.caps)).unwrap_or_default();
    let caps = member.map_or(caps, |member| member.under_grant(caps));
    NodeFacts {
        hardware: member.map_or(none, |member| &member.resolved),
        class: plan.guard.state.class(),
        cpu_cap: caps.cpu.into(),
        gpu_cap: caps.gpu.into(),
        reading: metering.map_or(Reading::Absent(Absent::NotConfigured), |metering| metering.reading),
        trend: metering.and_then(|metering| metering.trend),
        load,
        rack: brief.and_then(|brief| brief.rack.as_deref()),
        zone: brief.and_then(|brief| brief.zone.as_deref()),
    }
}

const fn rows_of_nothing() -> planner::hardware::Hardware {
    planner::hardware::Hardware {
        cpu: planner::hardware::Cpu {
            model: None,
            sockets: None,
            total_cores: None,
            min_per_socket: None,
            max_per_socket: None,
        },
        gpu: None,
    }
}
