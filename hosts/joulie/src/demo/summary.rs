//! Counts the results of a whole run, for the table at its end. No I/O and no clock.
//!
//! Energy is integrated from the published power; each value counts until the next one. While a node's power is
//! unknown, the time is counted as unknown and not as zero power.

use super::events::seconds;
use super::state::{Node, Offer, Placement, Standing, State};
use power_units::Watts;
use std::collections::BTreeMap;
use std::time::Duration;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct RunSummary {
    last: Option<Duration>,
    nodes: BTreeMap<String, Counted>,
    site: Energy,
    /// The energy above the budget, and its duration.
    above: Energy,
    budget: Option<Watts>,
    used: UsedLimit,
    waits: Vec<Duration>,
    counted_placements: usize,
    placed: BTreeMap<String, u32>,
    last_pods: super::state::Pods,
    misplaced: u32,
    caps: u32,
    caps_clamped: u32,
    troubles: u32,
    changes: u32,
}

#[derive(Debug, Default)]
struct Counted {
    energy: Energy,
    kind: String,
    offer: Option<Offer>,
    changes: u32,
    /// The caps that were in force at the last look.
    caps: [Option<Watts>; 2],
}

/// Power over time.
#[derive(Clone, Copy, Debug, Default)]
struct Energy {
    joules: f64,
    known: Duration,
    unknown: Duration,
    most: Option<Watts>,
}

impl Energy {
    fn add(&mut self, power: Option<Watts>, span: Duration) {
        let Some(power) = power else {
            self.unknown += span;
            return;
        };
        self.joules += number(power) * span.as_secs_f64();
        self.known += span;
        self.most = self.most.max(Some(power));
    }

    fn mean(&self) -> Option<f64> {
        let known = self.known.as_secs_f64();
        (known > 0.0).then(|| self.joules / known)
    }
}

/// What is used of the limit while pods wait, once the first ones have been placed.
#[derive(Debug, Default)]
struct UsedLimit {
    watt_seconds: f64,
    of: f64,
    span: Duration,
}

/// The first pods are placed and started in this time.
const BEGINS: Duration = Duration::from_secs(10);

impl UsedLimit {
    fn add(&mut self, state: &State, power: Option<Watts>, span: Duration) {
        let is_due = state.at >= BEGINS && state.pods.waiting > 0;
        if let (Some(power), Some(budget), true) = (power, state.budget, is_due) {
            self.watt_seconds += number(power) * span.as_secs_f64();
            self.of += number(budget) * span.as_secs_f64();
            self.span += span;
        }
    }

    fn told(&self) -> String {
        match self.of > 0.0 {
            true => {
                format!(
                    "{:.2} of the limit while pods waited, for {}",
                    self.watt_seconds / self.of,
                    seconds(self.span)
                )
            }
            false => "no pod waited".to_owned(),
        }
    }
}

/// Watts as a float, for sums that are only shown.
fn number(watts: Watts) -> f64 {
    watts.to_string().parse().unwrap_or(0.0)
}

impl RunSummary {
    /// Adds a state, with the placements since the last one.
    pub(crate) fn take(&mut self, state: &State, placements: &[Placement]) {
        let span = self.last.map_or(Duration::ZERO, |last| state.at.saturating_sub(last));
        self.last = Some(state.at);
        self.budget = state.budget;
        let power = state.power();
        self.site.add(power, span);
        self.used.add(state, power, span);
        if let (Some(power), Some(budget)) = (power, state.budget)
            && power > budget
        {
            self.above.add(Some(power - budget), span);
        }
        for (name, node) in &state.nodes {
            self.node(name, node, span);
        }
        for placement in placements {
            self.counted_placements += 1;
            self.waits.push(placement.waited);
            *self.placed.entry(placement.node.clone()).or_default() += 1;
        }
        self.misplaced = self.misplaced.max(state.pods.misplaced);
        self.last_pods = state.pods;
    }

    fn node(&mut self, name: &str, node: &Node, span: Duration) {
        let counted = self.nodes.entry(name.to_owned()).or_default();
        counted.kind.clone_from(&node.kind);
        counted.energy.add(node.power, span);
        if node.offer != Offer::Unknown {
            if counted.offer.is_some_and(|before| before != node.offer) {
                counted.changes += 1;
                self.changes += 1;
            }
            counted.offer = Some(node.offer);
        }
        for ((_, device), before) in node.devices().zip(&mut counted.caps) {
            let is = match device.standing {
                Standing::InForce | Standing::Clamped | Standing::Granted => device.in_force,
                Standing::Free | Standing::Asked | Standing::Refused(_) => None,
            };
            if is.is_some() && is != *before {
                self.caps += 1;
                self.caps_clamped += u32::from(device.standing == Standing::Clamped);
            }
            *before = is.or(*before);
        }
    }

    /// Counts an event that was a problem.
    pub(crate) fn trouble(&mut self) {
        self.troubles += 1;
    }

    /// The table of the whole run.
    pub(crate) fn table(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{} nodes for {}", self.nodes.len(), seconds(self.last.unwrap_or_default())),
            String::new(),
        ];
        lines.extend(self.totals());
        lines.push(String::new());
        lines.extend(self.by_node());
        lines
    }

    fn totals(&self) -> Vec<String> {
        let mean = self.site.mean().map_or_else(|| "unknown".to_owned(), |mean| format!("{mean:.0} W"));
        let most = self.site.most.map_or_else(|| "unknown".to_owned(), |most| format!("{most:.0} W"));
        let unknown = match self.site.unknown {
            Duration::ZERO => String::new(),
            span => format!("; unknown for {}", seconds(span)),
        };
        let budget = match self.budget {
            None => "none".to_owned(),
            Some(budget) if self.site.known.is_zero() => {
                format!("{budget:.0} W; the power of all nodes was never known")
            }
            Some(budget) if self.above.joules > 0.0 => {
                let (joules, span) = (self.above.joules, seconds(self.above.known));
                format!("{budget:.0} W; measured above it for {span}, {joules:.0} watt-seconds")
            }
            Some(budget) => format!("{budget:.0} W; never measured above it"),
        };
        let pods = self.last_pods;
        let row = |name: &str, text: String| format!("  {name:<12}{text}");
        vec![
            row("power", format!("{mean} on average, {most} at most{unknown}")),
            row("energy", format!("{:.1} kJ, {:.4} kWh", self.site.joules / 1e3, self.site.joules / 3.6e6)),
            row("budget", budget),
            row("used", self.used.told()),
            row(
                "pods",
                format!(
                    "{} placed; {} ended, {} failed, {} still run, {} still wait",
                    self.counted_placements, pods.ended, pods.failed, pods.running, pods.waiting
                ),
            ),
            row("waiting", self.waiting()),
            row("misplaced", format!("{} performance pods placed on eco nodes", self.misplaced)),
            row(
                "caps",
                format!(
                    "{} read back from the hardware, {} of them at another value than was asked",
                    self.caps, self.caps_clamped
                ),
            ),
            row("profiles", format!("{} changes; {} warnings", self.changes, self.troubles)),
        ]
    }

    fn waiting(&self) -> String {
        let mut waits = self.waits.clone();
        waits.sort();
        // The nearest rank, rounded up: of one pod both percentiles are that pod.
        let at = |percent: usize| {
            let rank = (waits.len() * percent).div_ceil(100).max(1);
            waits.get(rank - 1).map_or_else(|| "?".to_owned(), |wait| seconds(*wait))
        };
        match waits.len() {
            0 => "no pod was placed".to_owned(),
            _ => format!("half of the pods {} or less, 99 of 100 {} or less", at(50), at(99)),
        }
    }

    fn by_node(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "  {:<12}{:>9}{:>9}{:>9}{:>9}{:>6}  {:<12}made of",
            "node", "energy", "mean", "most", "changes", "pods", "at the end"
        )];
        for (name, node) in &self.nodes {
            let mean = node.energy.mean().map_or_else(|| "?".to_owned(), |mean| format!("{mean:.0} W"));
            let most = node.energy.most.map_or_else(|| "?".to_owned(), |most| format!("{most:.0} W"));
            let energy = format!("{:.1} kJ", node.energy.joules / 1e3);
            let pods = self.placed.get(name).copied().unwrap_or(0);
            let offer = node.offer.unwrap_or_default().word();
            lines.push(format!(
                "  {name:<12}{energy:>9}{mean:>9}{most:>9}{:>9}{pods:>6}  {offer:<12}{}",
                node.changes, node.kind
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests;
