//! `energy`: the joules of the ledger (ADR 28), from the metrics of the agents behind the API server's proxy. They count since
//! each agent started; for a span of time Prometheus is asked, as docs/OPERATE.md says.

use crate::args::EnergyBy;
use crate::remote::{self, ProgramPod};
use crate::run::{PluginSession, Reply};
use crate::show::Sheet;
use futures::{StreamExt, stream};
use serde_json::json;
use std::collections::BTreeMap;

const COLUMNS: [&str; 6] = ["WHO", "ACCOUNT", "KWH", "CPU KWH", "GPU KWH", "SHARE"];
const WIDE: [&str; 1] = ["JOULES"];
/// Agents that are asked at the same time.
const AT_ONCE: usize = 16;
/// Accounts that are kept: each node has at most some hundred.
const ACCOUNTS_MAX: usize = 100_000;
const SERIES: &str = "joulie_energy_joules_total{";
const KWH_JOULES: f64 = 3_600_000.0;

/// Whose energy it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Account {
    account: String,
    who: String,
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
    let (mut all, mut silent, mut without) = (BTreeMap::new(), Vec::new(), 0);
    for page in pages {
        match page {
            Ok(text) => without += usize::from(!take(&text, by, &mut all)),
            Err(why) => silent.push(why),
        }
    }
    if let Some(first) = silent.first() {
        notes.push(format!(
            "{} of {count} agents could not be asked, and their energy is missing: {first}",
            silent.len()
        ));
    }
    if all.is_empty() {
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
    let total: f64 = all.values().map(|joules| joules.cpu + joules.gpu).sum();
    let mut rows: Vec<(Account, Joules)> = all.into_iter().collect();
    rows.sort_by(|(_, one), (_, other)| (other.cpu + other.gpu).total_cmp(&(one.cpu + one.gpu)));
    let mut sheet = Sheet::new("EnergyList", &COLUMNS, &WIDE);
    sheet.heading.push(format!(
        "Since each of {} agents started: {:.3} kWh",
        count - silent.len(),
        total / KWH_JOULES
    ));
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

/// Adds up the series of one agent; returns whether there was any.
fn take(text: &str, by: EnergyBy, all: &mut BTreeMap<Account, Joules>) -> bool {
    let mut any = false;
    for line in text.lines() {
        let Some((labels, value)) = series(line) else { continue };
        let of = |name: &str| {
            labels.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value.as_str())
        };
        let who = match (of("namespace"), of("workload"), by) {
            ("", _, _) => "-".to_owned(),
            (namespace, _, EnergyBy::Namespace) => namespace.to_owned(),
            (namespace, workload, EnergyBy::Workload) => format!("{namespace}/{workload}"),
        };
        let account = Account { account: of("account").to_owned(), who };
        if all.len() >= ACCOUNTS_MAX && !all.contains_key(&account) {
            continue;
        }
        let joules = all.entry(account).or_default();
        let part = if of("part") == "gpu" { &mut joules.gpu } else { &mut joules.cpu };
        *part += value;
        any = true;
    }
    any
}

/// The labels and the value of a line of the ledger's series.
fn series(line: &str) -> Option<(Vec<(String, String)>, f64)> {
    let rest = line.strip_prefix(SERIES)?;
    let (mut labels, mut rest) = (Vec::new(), rest);
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        rest = after.get(end..)?;
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    let value: f64 = rest.strip_prefix("} ")?.split(' ').next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((labels, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_read_and_nonsense_is_none() {
        let line = r#"joulie_energy_joules_total{node="a",account="workload",namespace="x\"y",workload="w",part="gpu"} 7.5 1.2"#;
        let (labels, value) = series(line).unwrap();
        assert_eq!((labels[2].1.as_str(), labels[4].1.as_str(), value), ("x\"y", "gpu", 7.5));
        for bad in [
            "joulie_energy_joules_total 1",
            r#"joulie_energy_joules_total{a="b"} NaN"#,
            r#"joulie_energy_joules_total{a="b"} -1"#,
            r#"joulie_energy_joules_total{a="b"#,
            r#"joulie_energy_joules_total{a="b"}"#,
            "other{a=\"b\"} 1",
        ] {
            assert_eq!(series(bad), None, "{bad}");
        }
    }

    #[test]
    fn joules_are_added_up_by_namespace_or_workload() {
        let text = "joulie_energy_joules_total{account=\"workload\",namespace=\"n\",workload=\"a\",part=\"cpu\"} 1\n\
            joulie_energy_joules_total{account=\"workload\",namespace=\"n\",workload=\"b\",part=\"gpu\"} 2\n\
            joulie_energy_joules_total{account=\"idle\",namespace=\"\",workload=\"\",part=\"cpu\"} 4\n";
        let mut by_namespace = BTreeMap::new();
        assert!(take(text, EnergyBy::Namespace, &mut by_namespace));
        let account = |account: &str, who: &str| Account { account: account.to_owned(), who: who.to_owned() };
        assert_eq!(by_namespace[&account("workload", "n")], Joules { cpu: 1.0, gpu: 2.0 });
        assert_eq!(by_namespace[&account("idle", "-")], Joules { cpu: 4.0, gpu: 0.0 });
        let mut by_workload = BTreeMap::new();
        assert!(take(text, EnergyBy::Workload, &mut by_workload) && by_workload.len() == 3);
        assert!(!take("other 1\n", EnergyBy::Workload, &mut by_workload));
    }
}
