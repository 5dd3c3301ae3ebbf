//! Chaos on the real control plane: leader, agent and extender are killed repeatedly, the API server is stopped, all
//! machines boot at once, and the limit is cut at full load, while the limits in force of all machines are summed up. And without
//! chaos: how much of a limit is used while pods come, go and wait.
//!
//! Two operators, an agent for all nodes, an extender and the simulated machines run as processes with their own
//! tokens. The true state of the machines is judged at each change ([`judge`]): the limits in force must not exceed
//! the limit of the site, apart from the excuses. Only a boot and a cut can occur here, because no other program
//! writes to the machines, no device refuses, and no API is restored.
#![expect(clippy::print_stdout, reason = "a bench prints what it measures")]

mod bars;
mod demand;
mod draw;
mod feed;
mod gate;
mod phases;
mod pods;
mod seen;
mod site;
mod truth;

pub use site::ChaosPrograms;

use crate::SystemError;
use crate::field::Field;
use bars::Bar;
use draw::Draw;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use pods::Churn;
use seen::Seen;
use site::{Part, Site};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use truth::Truth;

/// The phases, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChaosPhase {
    /// Leader, agent and extender are killed every eight seconds.
    Kills,
    /// The same, while power is continuously moved between nodes.
    Swaps,
    /// The API server is stopped.
    Outage,
    /// All machines boot at once, together with the programs that run on them.
    Reboot,
    /// A feed is lost, and three tenths of the limit with it: by an armed event, and by grants.
    Feed,
    /// The limit is cut by two fifths.
    Cut,
    /// Nothing is broken: power follows the demand of pods that come and go. A run of its own, with another limit and load.
    Demand,
}

impl ChaosPhase {
    /// All phases of one run.
    pub const ALL: [Self; 6] = [Self::Kills, Self::Swaps, Self::Outage, Self::Reboot, Self::Feed, Self::Cut];

    /// The phase with this name on the command line.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Demand]).find(|phase| phase.word() == word)
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Swaps => "swaps",
            Self::Outage => "outage",
            Self::Reboot => "reboot",
            Self::Feed => "feed",
            Self::Cut => "cut",
            Self::Demand => "demand",
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChaosPlan {
    /// The number of machines.
    pub nodes: u32,
    /// How long programs are killed.
    pub kills: Duration,
    /// How long the API server is stopped.
    pub outage: Duration,
    /// The phases to run.
    pub phases: Vec<ChaosPhase>,
    /// The seed of the kills and of the start order.
    pub seed: u64,
    /// The times of the election, if they differ from the shipped ones: lease, renewal, retry.
    pub election: Option<[String; 3]>,
}

impl ChaosPlan {
    /// The parameters that the issue asks for.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            nodes: 50,
            kills: Duration::from_secs(180),
            outage: Duration::from_secs(120),
            phases: ChaosPhase::ALL.to_vec(),
            seed: 1,
            election: None,
        }
    }

    /// A fifth of the machines have GPUs; the others are in equal parts of two kinds with differently capped
    /// processors.
    fn fleet(&self) -> String {
        let gpu = self.nodes / 5;
        let epyc = (self.nodes - gpu) / 2;
        let kinds = [("xeon", self.nodes - gpu - epyc), ("epyc", epyc), ("gpu", gpu)];
        let kinds = kinds.into_iter().filter(|(_, count)| *count > 0);
        kinds.map(|(kind, count)| format!("{kind}:{count}")).collect::<Vec<_>>().join(",")
    }
}

/// The time limit for the system to become steady.
const STEADY_WITHIN: Duration = Duration::from_secs(180);
/// How long no grant may change before the system counts as steady.
const QUIET: Duration = Duration::from_secs(5);
/// At the start longer than `BUDGET_RAISE_DWELL`, 30 s, after which nodes that would get more receive it from those
/// above their share. Otherwise that change would be attributed to a new leader.
const QUIET_AT_START: Duration = Duration::from_secs(45);
/// How often the receipts are checked and events are printed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The limit of the site, as a part of the most that all machines may draw, so that all of them are limited.
const LIMIT_PART: f64 = 0.9;

/// Runs the phases, prints the results, and returns whether every limit was kept. Without a control plane it reports
/// that, and returns true. The logs of a failed run are kept in a folder.
///
/// # Errors
/// If the control plane fails, or the system does not become steady after a phase.
pub async fn run(programs: &ChaosPrograms, plan: &ChaosPlan, keep: &Path) -> Result<bool, SystemError> {
    let is_demand = plan.phases == [ChaosPhase::Demand];
    if !is_demand && plan.phases.contains(&ChaosPhase::Demand) {
        return Err("demand is a run of its own".into());
    }
    let workload = is_demand.then_some(plan.seed);
    let Some(site) = Site::start(programs, plan.fleet(), plan.election.clone(), workload).await? else {
        return Ok(true);
    };
    // Pods can be created there from now on.
    Field::new(&site.client, pods::NAMESPACE).await?;
    let machines = site.machines().await?;
    let parts = || {
        machines
            .values()
            .flat_map(|shape| [(shape, judge::MachinePart::Cpu), (shape, judge::MachinePart::Gpu)])
    };
    let most: f64 = parts().map(|(shape, part)| shape.most(part)).sum();
    let least: f64 = parts().map(|(shape, part)| shape.least(part)).sum();
    let limit = whole_watts(most * if is_demand { demand::DEMAND_LIMIT_PART } else { LIMIT_PART });
    if !is_demand && f64::from(limit) * phases::CUT_TO < least {
        return Err(
            format!("these machines cannot be held to less than {least:.0} W, which the cut needs").into()
        );
    }
    println!(
        "{} machines of {most:.0} W at most, {limit} W for all of them; seed {}",
        machines.len(),
        plan.seed
    );
    let truth = Arc::new(Truth::new(machines, f64::from(limit)));
    let seen = Seen::start(&site.client, &truth);
    let mut run = Run {
        site,
        truth,
        seen,
        draw: Draw::new(plan.seed, 0),
        limit,
        range: (least, most),
        plan: plan.clone(),
        bars: Vec::new(),
        unused_pct: 0.0,
        takeovers_s: Vec::new(),
        lowered: 0,
    };
    let outcome = run.all().await;
    let is_met = run.tell();
    let is_well = is_met && outcome.is_ok();
    if !is_well {
        run.site.keep_logs(keep)?;
        println!("the logs are kept in {}", keep.display());
    }
    outcome.map(|()| is_met)
}

/// Whole watts, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a site draws some megawatts at most"
)]
const fn whole_watts(watts: f64) -> u32 {
    watts as u32
}

struct Run {
    site: Site,
    truth: Arc<Truth>,
    seen: Arc<Seen>,
    draw: Draw,
    limit: u32,
    /// The least and the most that all machines can be held to, W.
    range: (f64, f64),
    plan: ChaosPlan,
    bars: Vec<Bar>,
    /// The largest unused part of the limit in a steady state.
    unused_pct: f64,
    /// The time that each takeover took.
    takeovers_s: Vec<f64>,
    /// The number of grants that were lowered unnecessarily.
    lowered: usize,
}

impl Run {
    async fn all(&mut self) -> Result<(), SystemError> {
        self.begin().await?;
        if self.plan.phases == [ChaosPhase::Demand] {
            return self.demand().await;
        }
        let field = pods::load(&self.site.client, STEADY_WITHIN).await?;
        self.quiet("the start", QUIET_AT_START).await?;
        self.rest().await?;
        let churn = Arc::new(Churn::default());
        let churning =
            tokio::spawn(pods::churn(field.pods(), Arc::clone(&churn), Draw::new(self.plan.seed, 1)));
        for phase in self.plan.phases.clone() {
            println!("\n{} ...", phase.word());
            let outcome = match phase {
                ChaosPhase::Kills => self.kills().await,
                ChaosPhase::Swaps => self.swaps().await,
                ChaosPhase::Outage => self.outage().await,
                ChaosPhase::Reboot => self.reboot().await,
                ChaosPhase::Feed => self.feed().await,
                ChaosPhase::Cut => self.cut().await,
                ChaosPhase::Demand => Err("demand is a run of its own".into()),
            };
            println!("  {churn}");
            outcome?;
            self.rest().await?;
        }
        churning.abort();
        Ok(())
    }

    /// Starts everything, and puts load on every machine.
    async fn begin(&mut self) -> Result<(), SystemError> {
        self.site.open_gate(&self.truth)?;
        self.booted().await?;
        tokio::spawn(attend(Arc::clone(&self.truth), Arc::clone(&self.seen)));
        self.site.limit(self.limit);
        // Machines that join after the limit was divided are above it until the others have made room.
        let nodes: Api<Node> = Api::all(self.site.client.clone());
        let count = self.truth.names().len();
        crate::until("every machine has its node", STEADY_WITHIN, async || {
            let listed = nodes.list_metadata(&ListParams::default()).await;
            listed.is_ok_and(|listed| listed.items.len() == count)
        })
        .await?;
        for part in [Part::Agent, Part::OperatorA, Part::OperatorB, Part::Extender] {
            self.site.run(part)?;
        }
        self.site.schedule()
    }

    /// Reads the boot id of each machine.
    async fn booted(&self) -> Result<(), SystemError> {
        let told = self.site.telemetry().await?;
        let boot = |told: &serde_json::Value| told["bootID"].as_str().unwrap_or_default().to_owned();
        self.seen.booted(told.iter().map(|(name, told)| (name.clone(), boot(told))).collect());
        Ok(())
    }

    /// How long the limits were above the site's without an excuse.
    fn above(&self) -> Duration {
        self.truth.look().unexcused.time
    }

    /// Waits until a leader has made a new plan, every grant is read back, and no grant changes any more.
    async fn steady(&self, after: &str) -> Result<(), SystemError> {
        self.quiet(after, QUIET).await
    }

    async fn quiet(&self, after: &str, quiet: Duration) -> Result<(), SystemError> {
        let begun = Instant::now();
        let mut why = String::new();
        let outcome = crate::until("", STEADY_WITHIN, async || {
            why = self.unsteady(begun, quiet).await.unwrap_or_default();
            why.is_empty()
        })
        .await;
        if outcome.is_err() {
            return Err(format!(
                "after {after} the system does not come to rest for {STEADY_WITHIN:?}: {why}"
            )
            .into());
        }
        let look = self.truth.look();
        println!(
            "  at rest {:.1} s after {after}: {:.0} of {:.0} W are in force",
            begun.elapsed().as_secs_f64(),
            look.sum,
            look.limit
        );
        Ok(())
    }

    async fn unsteady(&self, since: Instant, quiet: Duration) -> Option<String> {
        let missing = self.seen.missing();
        if let Some((first, grant)) = missing.first() {
            return Some(format!(
                "{} grants are not read back, as that of {first}: {grant:?}",
                missing.len()
            ));
        }
        let look = self.truth.look();
        if look.sum > look.limit + 0.5 {
            return Some(format!("{:.0} of {:.0} W are in force", look.sum, look.limit));
        }
        if self.seen.quiet() < quiet {
            return Some("grants change".to_owned());
        }
        if !self.seen.has_planned_since(since) {
            return Some("nobody has planned".to_owned());
        }
        let leader = self.site.leader().await.map(|(_, holder)| holder);
        let last = self.seen.reigns().pop();
        let acts =
            last.is_some_and(|last| leader.as_ref() == Some(&last.holder) && last.planner == last.holder);
        (!acts).then(|| format!("nobody leads and plans: {leader:?}"))
    }

    /// The checks in a steady state: the recorded limits against the machines, programs that ended unexpectedly, and
    /// how much of the limit is used.
    async fn rest(&mut self) -> Result<(), SystemError> {
        if let Some(ended) = self.site.ended() {
            return Err(ended.into());
        }
        let mut differs = None;
        // A control that is in progress may be missing in one of the two.
        for _ in 0..5 {
            differs = self.truth.differs(&self.site.limits().await?);
            if differs.is_none() {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if let Some(differs) = differs {
            return Err(format!("the record is wrong: {differs}").into());
        }
        let look = self.truth.look();
        self.unused_pct = self.unused_pct.max((look.limit - look.sum) / look.limit * 100.0);
        Ok(())
    }

    /// Counts the grants that were lowered since then although the limit was kept.
    fn lowered(&mut self, since: Instant) {
        let lowered = self.seen.lowered_since(since);
        for one in &lowered {
            println!(
                "  lowered {:.1} s after the phase began: {} {:.0} → {:.0} W while {:.0} of {:.0} W were in force",
                (one.at - since).as_secs_f64(),
                one.node,
                one.from,
                one.to,
                one.sum,
                one.limit
            );
        }
        self.lowered += lowered.len();
    }

    /// Prints the results and the excuses. Returns whether all limits were kept.
    fn tell(&mut self) -> bool {
        let look = self.truth.look();
        println!();
        for (excuse, excess) in look.excused.iter().filter(|(_, excess)| !excess.time.is_zero()) {
            println!(
                "excused, {}: {:.1} s, {:.0} Ws, {:.1} s the longest",
                excuse.word(),
                excess.time.as_secs_f64(),
                excess.watt_seconds,
                excess.longest.as_secs_f64()
            );
        }
        for breach in &look.breaches {
            println!(
                "above without an excuse from {:.3} to {:.3} s, {:.1} W at most",
                breach.from.as_secs_f64(),
                breach.to.as_secs_f64(),
                breach.watts
            );
        }
        let has = |phase| self.plan.phases.contains(&phase);
        if has(ChaosPhase::Kills) || has(ChaosPhase::Swaps) {
            // Without a kill the check would be meaningless.
            let longest = self.takeovers_s.iter().copied().reduce(f64::max).unwrap_or(f64::INFINITY);
            println!("{} leaders were killed", self.takeovers_s.len());
            self.bars.push(Bar::new("chaos_takeover_s_max", longest, phases::TAKEOVER_S));
        }
        if has(ChaosPhase::Kills) || has(ChaosPhase::Outage) {
            let lowered = u32::try_from(self.lowered).unwrap_or(u32::MAX);
            self.bars.push(Bar::new("chaos_new_leader_lowers", f64::from(lowered), 0.0));
        }
        // An operator that lowers all nodes would keep every limit, so the used part is checked too.
        self.bars.push(Bar::new("chaos_limit_unused_pct_max", self.unused_pct, 50.0));
        for bar in &self.bars {
            println!("{bar}");
        }
        self.bars.iter().all(Bar::is_met)
    }
}

/// Prints each excess as soon as it occurs.
async fn attend(truth: Arc<Truth>, seen: Arc<Seen>) {
    let mut told = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let look = truth.look();
        for breach in look.breaches.iter().skip(told) {
            println!(
                "ABOVE by {:.1} W at {:.3} s: {:.1} of {:.1} W are in force; before it:",
                breach.watts,
                breach.from.as_secs_f64(),
                look.sum,
                look.limit
            );
            for line in truth.last_notes(6).iter().rev().chain(&truth.lines_of(breach)) {
                println!("    {line}");
            }
            let grants = seen.grants();
            let mut above: Vec<(f64, String)> = truth
                .held()
                .into_iter()
                .filter_map(|(node, held)| Some((held - grants.get(&node)?.watts, node)))
                .collect();
            above.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (watts, node) in above.iter().take(5).filter(|(watts, _)| *watts > 0.5) {
                println!("    {node} holds {watts:.1} W more than its grant {:?}", grants.get(node));
            }
        }
        told = look.breaches.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_has_every_kind_and_no_more_nodes_than_asked_for() {
        let fleet = |nodes| ChaosPlan { nodes, ..ChaosPlan::whole() }.fleet();
        assert_eq!(fleet(50), "xeon:20,epyc:20,gpu:10");
        assert_eq!(fleet(6), "xeon:3,epyc:2,gpu:1");
        assert_eq!(fleet(1), "xeon:1");
    }
}
