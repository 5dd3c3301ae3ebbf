//! The alerts and their runbooks.

use super::promql::Known;
use super::{ALL, chart};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The parts of a runbook.
const PARTS: [&str; 4] = ["## What is seen", "## Why", "## What to do", "## How to see that it helped"];

fn rules() -> Vec<Value> {
    let text = std::fs::read_to_string(chart().join("alerts/joulie.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

#[test]
fn every_alert_names_what_there_is_and_leads_to_a_dashboard() {
    let known = Known::of_programs();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        let about = &rule["annotations"];
        let (summary, link) = (about["summary"].as_str().unwrap(), about["dashboard_url"].as_str().unwrap());
        known.check(rule["expr"].as_str().unwrap(), &format!("{summary}{link}"), name);
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        let (uid, choice) = link.trim_start_matches("/d/").split_once('?').unwrap_or((&link[3..], ""));
        let dashboard = ALL.iter().find(|dashboard| dashboard.uid == uid);
        let dashboard = dashboard.unwrap_or_else(|| panic!("{name}: there is no dashboard {uid}"));
        let chosen = choice.strip_prefix("var-").and_then(|choice| choice.split_once('='));
        let has = |name: &str| dashboard.variables.iter().any(|variable| variable.name == name);
        assert!(chosen.is_none_or(|(variable, _)| has(variable)), "{name}: {link}");
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbooks");
    let mut alerts = BTreeSet::new();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        assert_eq!(rule["annotations"]["runbook_url"], format!("docs/runbooks/{name}.md"));
        let page = std::fs::read_to_string(folder.join(format!("{name}.md"))).unwrap_or_default();
        assert!(page.starts_with(&format!("# {name}\n")), "docs/runbooks/{name}.md");
        let found: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, PARTS, "docs/runbooks/{name}.md");
        assert!(alerts.insert(name.clone()), "{name} twice");
    }
    let pages = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let pages = pages.map(|name| name.into_string().unwrap().trim_end_matches(".md").to_owned());
    assert_eq!(pages.collect::<BTreeSet<_>>(), alerts);
}
