//! `doctor`: looks for what is wrong. Each finding says what is seen, why it matters, and what to do. Where nothing is wrong
//! it says so in one line; what could not be looked at is a finding or is said, and never counts as good.

mod install;
mod nodes;
mod rights;
mod scheduler;

use crate::api::{ApiError, path};
use crate::args::DoctorOrder;
use crate::clean::clean;
use crate::fleet::{self, ByNode};
use crate::remote::{self, ProgramPod};
use crate::run::{PluginSession, Reply};
use crate::show::{document, lines};
use jiff::Timestamp;
use joulie_api::labels;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Findings of one check that are shown; the others are counted.
const SHOWN_MAX: usize = 20;

macro_rules! checks {
    ($($(#[$meta:meta])* $name:ident = $word:literal,)+) => {
        /// What is looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Check { $($(#[$meta])* $name,)+ }

        impl Check {
            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

checks! {
    /// The person may list what is looked at.
    Rights = "rights",
    /// The programs' accounts have the rights that they need.
    ProgramRights = "program-rights",
    /// The kinds are there, with every field that the programs know.
    Definitions = "definitions",
    /// All programs, and this one, are of one version.
    Versions = "versions",
    /// The programs' pods are ready.
    Programs = "programs",
    /// An operator leads, and renews the plan.
    Plan = "plan",
    /// Every managed node has an agent that reports.
    Reports = "reports",
    /// Twins are fresh.
    Twins = "twins",
    /// Caps are in force.
    Caps = "caps",
    /// Agents have read back their grants.
    Grants = "grants",
    /// PowerBudgets are accepted and kept.
    Budgets = "budgets",
    /// One agent for each machine.
    OneAgent = "one-agent",
    /// Nobody else writes what the programs write.
    Writers = "writers",
    /// The caps of persons have an end that can be read, and end.
    PersonsCaps = "persons-caps",
    /// No owner's limit is below full power.
    OwnersLimits = "owners-limits",
    /// kube-scheduler's configuration of the extender.
    Scheduler = "scheduler",
    /// Somebody scrapes the metrics.
    Scraped = "scraped",
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) check: Check,
    /// What is seen.
    pub(crate) seen: String,
    /// Why it matters.
    pub(crate) why: &'static str,
    /// What to do.
    pub(crate) act: &'static str,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) wrong: Vec<Finding>,
    /// The checks that were made.
    pub(crate) made: Vec<Check>,
    /// What was not looked at, and why.
    pub(crate) skipped: Vec<String>,
}

impl Findings {
    pub(crate) fn made(&mut self, check: Check) {
        self.made.push(check);
    }

    pub(crate) fn add(
        &mut self,
        check: Check,
        seen: impl Into<String>,
        why: &'static str,
        act: &'static str,
    ) {
        self.wrong.push(Finding { check, seen: seen.into(), why, act });
    }

    /// Something that had to be looked at and cannot be.
    pub(crate) fn blind(&mut self, what: &str, error: &ApiError) {
        self.add(
            Check::Rights,
            format!("{what} cannot be listed: {error}"),
            "what is wrong there is not seen, here and by you",
            "ask for the right to list and watch it, or run this as somebody who has it",
        );
    }
}

/// The objects that are looked at.
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) nodes: BTreeMap<String, Value>,
    pub(crate) hardware: ByNode,
    pub(crate) profiles: ByNode,
    pub(crate) twins: ByNode,
    pub(crate) grants: ByNode,
    pub(crate) budgets: Vec<Value>,
    pub(crate) programs: Vec<ProgramPod>,
    pub(crate) events: Vec<Value>,
    pub(crate) plan_lease: Option<Value>,
    pub(crate) leader_lease: Option<Value>,
}

pub(crate) async fn doctor(asked: &PluginSession, order: &DoctorOrder) -> Result<Reply, Reply> {
    let mut found = Findings::default();
    let seen = look(asked, order, &mut found).await;
    found.made(Check::Rights);
    install::definitions(asked, &mut found).await;
    install::versions(&seen, &mut found);
    rights::of_programs(asked, &seen, &mut found).await;
    install::plan(&seen, &mut found);
    install::budgets(&seen, &mut found);
    install::scraped(asked, &mut found).await;
    nodes::all(&seen, &mut found);
    scheduler::check(asked, order.scheduler_config.as_deref(), &mut found).await;
    Ok(reply(asked, found))
}

async fn look(asked: &PluginSession, order: &DoctorOrder, found: &mut Findings) -> Seen {
    let api = &asked.api;
    let selector = [("labelSelector", order.node_selector.as_str())];
    let space = &asked.common.joulie_namespace;
    let (plan, leader) = (path::lease(space, labels::PLAN_LEASE), path::lease(space, labels::LEADER_LEASE));
    let other_writers = [("fieldSelector", "reason=OtherWriter")];
    let (nodes, hardware, profiles, twins, grants, budgets, programs, events, plan_lease, leader_lease) = tokio::join!(
        fleet::nodes(api, &selector),
        fleet::by_node(api, path::HARDWARE),
        fleet::by_node(api, path::PROFILES),
        fleet::by_node(api, path::TWINS),
        fleet::by_node(api, path::GRANTS),
        api.list(path::BUDGETS, &[], Some),
        remote::programs(asked),
        api.list("/api/v1/events", &other_writers, Some),
        api.find(&plan),
        api.find(&leader),
    );
    fn or_blind<T: Default>(found: &mut Findings, what: &str, answer: Result<T, ApiError>) -> T {
        answer.unwrap_or_else(|error| {
            // That a kind is not there is told by the check of the definitions.
            if error != ApiError::Absent {
                found.blind(what, &error);
            }
            T::default()
        })
    }
    Seen {
        now: asked.clock.wall(),
        nodes: or_blind(found, "nodes", nodes),
        hardware: or_blind(found, "NodeHardwares", hardware),
        profiles: or_blind(found, "NodePowerProfiles", profiles),
        twins: or_blind(found, "NodeTwins", twins),
        grants: or_blind(found, "NodePowerGrants", grants),
        budgets: or_blind(found, "PowerBudgets", budgets),
        programs: or_blind(found, "pods of the installation", programs),
        events: or_blind(found, "events", events),
        plan_lease: or_blind(found, "the plan's Lease", plan_lease),
        leader_lease: or_blind(found, "the operators' Lease", leader_lease),
    }
}

fn reply(asked: &PluginSession, mut found: Findings) -> Reply {
    found.wrong.sort();
    found.wrong.dedup();
    let code = u8::from(!found.wrong.is_empty());
    if let Some(format) = asked.format() {
        let finding = |one: &Finding| json!({"check": one.check.word(), "seen": one.seen, "why": one.why, "do": one.act});
        let made: Vec<&str> = found.made.iter().map(|check| check.word()).collect();
        let findings: Vec<Value> = found.wrong.iter().map(finding).collect();
        let whole =
            json!({"kind": "Findings", "checks": made, "findings": findings, "notLookedAt": found.skipped});
        return Reply { text: document(Some(format), whole), notes: Vec::new(), code };
    }
    let mut said = Vec::new();
    let mut shown: BTreeMap<(Check, &str), usize> = BTreeMap::new();
    for one in &found.wrong {
        let count = shown.entry((one.check, one.act)).or_default();
        *count += 1;
        if *count > SHOWN_MAX {
            continue;
        }
        said.push(format!("{}: {}", one.check.word(), one.seen));
        if *count == 1 {
            said.push(format!("  why: {}", one.why));
            said.push(format!("  do:  {}", one.act));
        }
    }
    for ((check, _), count) in shown.iter().filter(|(_, count)| **count > SHOWN_MAX) {
        said.push(format!("{}: and {} more like these", check.word(), count - SHOWN_MAX));
    }
    said.push(match found.wrong.len() {
        0 => format!("nothing wrong, {} checks", found.made.len()),
        wrong => format!("{wrong} findings, {} checks", found.made.len()),
    });
    said.extend(found.skipped.iter().map(|what| format!("not looked at: {what}")));
    Reply { text: lines(&said.iter().map(|line| clean(line)).collect::<Vec<_>>()), notes: Vec::new(), code }
}
