//! `energy`: the joules of the ledger (ADR 28), from the metrics of the agents behind the API server's proxy. They count since
//! each agent started; for a span of time Prometheus is asked, as docs/OPERATE.md says.

use crate::args::EnergyBy;
use crate::remote::{self, ProgramPod};
use crate::run::{PluginSession, Reply};
use crate::show::Sheet;
use futures::{StreamExt, stream};
use host_kit::metrics::ScrapedSeries;
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const COLUMNS: [&str; 6] = ["WHO", "ACCOUNT", "KWH", "CPU KWH", "GPU KWH", "SHARE"];
const WIDE: [&str; 1] = ["JOULES"];
/// Agents that are asked at the same time.
const AT_ONCE: usize = 16;
/// Accounts that are kept: each node has at most some hundred.
const ACCOUNTS_MAX: usize = 100_000;
/// What all series that are read begin with.
const FAMILY: &str = "joulie_energy_";
const ACCOUNTS: &str = "joulie_energy_joules_total";
const DIVIDED: &str = "joulie_energy_divided_joules_total";
const RATIO: &str = "joulie_energy_kepler_ratio";
/// Parts and sources that are kept.
const SOURCES_MAX: usize = 64;
/// Nodes whose Kepler disagrees that are named.
const DISAGREE_MAX: usize = 5;
/// So far Kepler may be from the meter without a word.
const AGREES: RangeInclusive<f64> = 0.9..=1.1;
const KWH_JOULES: f64 = 3_600_000.0;

/// Whose energy it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Account {
    account: String,
    who: String,
}

/// What the agents tell.
#[derive(Clone, Debug, Default)]
struct Found {
    accounts: BTreeMap<Account, Joules>,
    /// Joules of each part by what they were divided by.
    sources: BTreeMap<(String, String), f64>,
    /// Where Kepler says something else than the meter.
    disagree: Vec<String>,
}

/// Joules of packages and of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Joules {
    cpu: f64,
    gpu: f64,
}

pub(crate) async fn energy(asked: &PluginSession, by: EnergyBy, most: usize) -> Result<Reply, Reply> {
    let pods = remote::programs(asked).await.map_err(|error| {
        Reply::not_done(format!("the agents in {} cannot be listed: {error}", asked.common.joulie_namespace))
    })?;
    let agents: Vec<ProgramPod> =
        pods.into_iter().filter(|pod| pod.component.starts_with("agent") && pod.ready).collect();
    let mut notes = Vec::new();
    if agents.len() > most {
        notes.push(format!(
            "{most} of {} agents are asked: ask more with --agents, or ask Prometheus",
            agents.len()
        ));
    }
    let count = agents.len().min(most);
    let pages = stream::iter(agents.iter().take(most)).map(|pod| remote::page(asked, pod, "/metrics"));
    let pages: Vec<Result<String, String>> = pages.buffer_unordered(AT_ONCE).collect().await;
    let (mut found, mut silent, mut without) = (Found::default(), Vec::new(), 0);
    for page in pages {
        match page {
            Ok(text) => without += usize::from(!take(&text, by, &mut found)),
            Err(why) => silent.push(why),
        }
    }
    if let Some(first) = silent.first() {
        notes.push(format!(
            "{} of {count} agents could not be asked, and their energy is missing: {first}",
            silent.len()
        ));
    }
    if found.accounts.is_empty() {
        let why = match (count, without) {
            (0, _) => format!("no agent is ready in {}", asked.common.joulie_namespace),
            (_, 0) => "no agent could be asked: that needs the right to get pods/proxy there".to_owned(),
            (_, _) => "the agents keep no ledger: set ENERGY_LEDGER=on (chart: agent.energyLedger.enabled)"
                .to_owned(),
        };
        return Err(Reply { notes, ..Reply::not_done("") }.with(why));
    }
    if without > 0 {
        notes.push(format!("{without} agents keep no ledger"));
    }
    notes.append(&mut found.disagree);
    let total: f64 = found.accounts.values().map(|joules| joules.cpu + joules.gpu).sum();
    let divided = [("packages", found.divided("cpu")), ("GPUs", found.divided("gpu"))];
    let mut rows: Vec<(Account, Joules)> = found.accounts.into_iter().collect();
    rows.sort_by(|(_, one), (_, other)| (other.cpu + other.gpu).total_cmp(&(one.cpu + one.gpu)));
    let mut sheet = Sheet::new("EnergyList", &COLUMNS, &WIDE);
    sheet.heading.push(format!(
        "Since each of {} agents started: {:.3} kWh",
        count - silent.len(),
        total / KWH_JOULES
    ));
    for (part, by) in divided {
        sheet.heading.extend(by.map(|by| format!("The energy of {part} was divided by: {by}")));
    }
    for (Account { account, who }, joules) in rows {
        let sum = joules.cpu + joules.gpu;
        let share = if total > 0.0 { sum / total * 100.0 } else { 0.0 };
        let kwh = |joules: f64| format!("{:.3}", joules / KWH_JOULES);
        let cells = vec![
            who.clone(),
            account.clone(),
            kwh(sum),
            kwh(joules.cpu),
            kwh(joules.gpu),
            format!("{share:.1}%"),
            format!("{sum:.0}"),
        ];
        let document = json!({"who": who, "account": account, "joules": sum, "cpuJoules": joules.cpu, "gpuJoules": joules.gpu, "sharePct": share});
        sheet.row(format!("{account}/{who}"), cells, document);
    }
    Ok(Reply { text: sheet.text(asked.format()), notes, code: 0 })
}

impl Reply {
    /// One more note, in the place of empty ones.
    fn with(mut self, note: String) -> Self {
        self.notes.retain(|note| !note.is_empty());
        self.notes.push(note);
        self
    }
}

/// Adds up the series of one agent; returns whether there was any account.
fn take(text: &str, by: EnergyBy, found: &mut Found) -> bool {
    let mut any = false;
    for series in text.lines().filter(|line| line.starts_with(FAMILY)).filter_map(ScrapedSeries::read) {
        let Some(value) = series.count() else { continue };
        match series.name {
            ACCOUNTS => any |= found.account(&series, value, by),
            DIVIDED => {
                let of = (series.label("part").to_owned(), series.label("source").to_owned());
                if found.sources.len() < SOURCES_MAX || found.sources.contains_key(&of) {
                    *found.sources.entry(of).or_default() += value;
                }
            }
            RATIO if !AGREES.contains(&value) && found.disagree.len() < DISAGREE_MAX => {
                found.disagree.push(format!(
                    "on node {} Kepler says {value:.2} times what the meter of its packages says",
                    series.label("node")
                ));
            }
            _ => {}
        }
    }
    any
}

impl Found {
    fn account(&mut self, series: &ScrapedSeries<'_>, value: f64, by: EnergyBy) -> bool {
        let who = match (series.label("namespace"), series.label("workload"), by) {
            ("", _, _) => "-".to_owned(),
            (namespace, _, EnergyBy::Namespace) => namespace.to_owned(),
            (namespace, workload, EnergyBy::Workload) => format!("{namespace}/{workload}"),
        };
        let account = Account { account: series.label("account").to_owned(), who };
        if self.accounts.len() >= ACCOUNTS_MAX && !self.accounts.contains_key(&account) {
            return false;
        }
        let joules = self.accounts.entry(account).or_default();
        let part = if series.label("part") == "gpu" { &mut joules.gpu } else { &mut joules.cpu };
        *part += value;
        true
    }

    /// By what the energy of a part was divided, the most first.
    fn divided(&self, part: &str) -> Option<String> {
        let of_part = self.sources.iter().filter(|((of, _), joules)| of == part && **joules > 0.0);
        let mut all: Vec<(&str, f64)> =
            of_part.map(|((_, source), joules)| (source.as_str(), *joules)).collect();
        all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let sum: f64 = all.iter().map(|(_, joules)| joules).sum();
        let shares = all.iter().map(|(source, joules)| format!("{source} {:.1}%", joules / sum * 100.0));
        let shares: Vec<String> = shares.collect();
        (!shares.is_empty()).then(|| shares.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joules_are_added_up_by_namespace_or_workload() {
        let text = "joulie_energy_joules_total{account=\"workload\",namespace=\"n\",workload=\"a\",part=\"cpu\"} 1\n\
            joulie_energy_joules_total{account=\"workload\",namespace=\"n\",workload=\"b\",part=\"gpu\"} 2\n\
            joulie_energy_joules_total{account=\"idle\",namespace=\"\",workload=\"\",part=\"cpu\"} 4\n";
        let mut by_namespace = Found::default();
        assert!(take(text, EnergyBy::Namespace, &mut by_namespace));
        let account = |account: &str, who: &str| Account { account: account.to_owned(), who: who.to_owned() };
        assert_eq!(by_namespace.accounts[&account("workload", "n")], Joules { cpu: 1.0, gpu: 2.0 });
        assert_eq!(by_namespace.accounts[&account("idle", "-")], Joules { cpu: 4.0, gpu: 0.0 });
        let mut by_workload = Found::default();
        assert!(take(text, EnergyBy::Workload, &mut by_workload) && by_workload.accounts.len() == 3);
        assert!(!take("other 1\n", EnergyBy::Workload, &mut by_workload));
        let nonsense =
            "joulie_energy_joules_total{account=\"idle\",part=\"cpu\"} NaN\njoulie_energy_joules_total{\n";
        assert!(!take(nonsense, EnergyBy::Workload, &mut by_workload));
    }

    #[test]
    fn by_what_energy_was_divided_is_told_and_where_kepler_disagrees() {
        let text = "joulie_energy_divided_joules_total{node=\"a\",part=\"cpu\",source=\"cgroups\"} 1\n\
            joulie_energy_divided_joules_total{node=\"b\",part=\"cpu\",source=\"kepler\"} 3\n\
            joulie_energy_divided_joules_total{node=\"b\",part=\"cpu\",source=\"none\"} 0\n\
            joulie_energy_kepler_ratio{node=\"b\"} 1.31\njoulie_energy_kepler_ratio{node=\"c\"} 0.95\n";
        let mut found = Found::default();
        assert!(!take(text, EnergyBy::Namespace, &mut found), "these are no accounts");
        assert_eq!(found.divided("cpu").as_deref(), Some("kepler 75.0%, cgroups 25.0%"));
        assert_eq!(found.divided("gpu"), None);
        assert_eq!(found.disagree, ["on node b Kepler says 1.31 times what the meter of its packages says"]);
    }
}
