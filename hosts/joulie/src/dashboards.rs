//! Generates the dashboards of the chart from tables of panels, and holds dashboards, alerts and runbooks against what the
//! programs define. This test compares the files; `cargo xtask codegen` writes them.
//!
//! Whether every query has an answer is seen by the integration tests, on a real Prometheus that scrapes the demo.

mod alerts;
mod facility;
mod grafana;
mod on_call;
mod overview;
mod promql;
mod tenant;

use grafana::Dashboard;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// If it is set, which `cargo xtask codegen` does, the files are written instead of compared.
const WRITE: &str = "JOULIE_WRITE_DASHBOARDS";

const ALL: [&Dashboard; 4] =
    [&overview::DASHBOARD, &on_call::DASHBOARD, &facility::DASHBOARD, &tenant::DASHBOARD];

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the one switch between writing and comparing")]
fn the_dashboards_are_those_of_the_tables() {
    let folder = chart().join("dashboards");
    let mut names = BTreeSet::new();
    for dashboard in ALL {
        let path = folder.join(format!("{}.json", dashboard.uid));
        let text = format!("{:#}\n", dashboard.json());
        if std::env::var_os(WRITE).is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} is old: run `cargo xtask codegen`", path.display());
        names.insert(path);
    }
    let there: BTreeSet<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(there, names, "a file that no table makes");
}

#[test]
fn every_panel_says_what_it_shows_and_asks_for_what_there_is() {
    let known = promql::Known::of_programs();
    for dashboard in ALL {
        let mut titles = BTreeSet::new();
        for panel in dashboard.panels() {
            let of = format!("{}: {}", dashboard.uid, panel.title);
            assert!(titles.insert(panel.title), "{of}: twice");
            assert!(panel.about.len() > 20 && panel.about.ends_with('.'), "{of}: a sentence says what it is");
            assert!(!panel.unit.is_empty() && !panel.queries.is_empty(), "{of}");
            for (query, legend) in panel.queries {
                known.check(&dashboard.plain(query), legend, &of);
            }
        }
        for variable in dashboard.variables {
            known.check(variable.query, "", variable.name);
        }
    }
}
