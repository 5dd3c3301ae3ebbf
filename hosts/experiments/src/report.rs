//! Which experiment is run, and its table, JSON and HTML.

use crate::compat::{ARMS, CompatArm};
use crate::fair::{FAIR_ARMS, FairArm};
use crate::trace::ReadTrace;
use crate::workload::OfferedLoad;
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};

mod bands;
mod compare;
mod plot;
mod rows;
mod summary;

pub use compare::compare;

/// The experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementExperiment {
    /// Upstream's experiment under its own assumptions, see [`crate::compat`].
    Compat,
    /// The same work for all, see [`crate::fair`].
    Fair,
    /// As `Fair`, with processors that draw what was published of one model.
    Curves,
    /// Our law of `fair` without each of its parts, at loads of 50 and 80 %.
    Ablation,
    /// Caps with and without our placement, see [`crate::caps`], at a load of 50 %.
    Caps,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which experiment.
    pub experiment: PlacementExperiment,
    /// Its seeds; without any, upstream's eight.
    pub seeds: Vec<u64>,
    /// Its laws by name; without any, all. `Ablation` and `Caps` have no choice.
    pub arms: Vec<String>,
}

/// Is told how many runs of all are done.
pub type Told<'a> = &'a mut dyn FnMut(usize, usize);

/// Why nothing was run, or two results are not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// There is no such law.
    Arm(String),
    /// The text is no result of this program; where.
    Result(String),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arm(name) => {
                let compat: Vec<&str> = ARMS.iter().map(|arm| arm.name()).collect();
                let fair: Vec<&str> = FAIR_ARMS.iter().map(|arm| arm.name()).collect();
                let (compat, fair) = (compat.join(", "), fair.join(", "));
                write!(
                    f,
                    "no law {name:?}: compat has {compat}; fair, curves and replay have {fair}; the others always run all"
                )
            }
            Self::Result(place) => write!(f, "no result of joulie simulate: {place}"),
        }
    }
}

impl std::error::Error for ReportError {}

/// A row: a law under a seed, its figures by name, and its totals over time.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// `None` for a trace.
    seed: Option<u64>,
    /// What else tells it apart: the load, or the trace.
    case: String,
    arm: String,
    figures: Vec<(String, f64)>,
    series: Vec<f64>,
}

impl Row {
    fn group(&self) -> String {
        let seed = self.seed.map(|seed| format!("seed {seed}"));
        let case = Some(self.case.clone()).filter(|case| !case.is_empty());
        seed.into_iter().chain(case).collect::<Vec<_>>().join(", ")
    }

    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    }
}

/// The result of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    title: &'static str,
    /// `None` for a trace.
    experiment: Option<PlacementExperiment>,
    rows: Vec<Row>,
}

/// Runs an experiment.
///
/// # Errors
/// When a law does not exist.
pub fn simulate(options: &Options, told: Told<'_>) -> Result<Outcome, ReportError> {
    let seeds = if options.seeds.is_empty() { &crate::SEEDS[..] } else { &options.seeds };
    let all = [OfferedLoad::Low, OfferedLoad::Middle, OfferedLoad::High];
    let (title, rows) = match (options.experiment, options.arms.first()) {
        (PlacementExperiment::Compat, _) => {
            let arms = chosen(&options.arms, &ARMS, CompatArm::name)?;
            let title = "compat: 2,500 nodes, 48 h, jobs that do not fit are dropped";
            (title, rows::compat_rows(seeds, &arms, told))
        }
        (PlacementExperiment::Fair, _) => {
            let arms = chosen(&options.arms, &FAIR_ARMS, FairArm::name)?;
            let laws = rows::fair_laws(&arms);
            ("fair: the same jobs run to completion, jobs wait", rows::rows_of(seeds, &all, &laws, told))
        }
        (PlacementExperiment::Curves, _) => {
            let arms = chosen(&options.arms, &FAIR_ARMS, FairArm::name)?;
            let laws = rows::curve_laws(&arms);
            ("curves: fair, with processors on a published curve", rows::rows_of(seeds, &all, &laws, told))
        }
        (PlacementExperiment::Ablation | PlacementExperiment::Caps, Some(arm)) => {
            return Err(ReportError::Arm(arm.clone()));
        }
        (PlacementExperiment::Ablation, None) => {
            let laws = rows::ablation_laws();
            ("ablation: our law without each of its parts", rows::rows_of(seeds, &all[1..], &laws, told))
        }
        (PlacementExperiment::Caps, None) => {
            let laws = rows::caps_laws();
            ("caps: what caps save, and what they cost", rows::rows_of(seeds, &all[1..2], &laws, told))
        }
    };
    Ok(Outcome { title, experiment: Some(options.experiment), rows })
}

/// Runs the laws of `fair` over the jobs of a trace, on the same fleet.
///
/// # Errors
/// When a law does not exist.
pub fn replay(trace: &ReadTrace, arms: &[String], told: Told<'_>) -> Result<Outcome, ReportError> {
    let arms = chosen(arms, &FAIR_ARMS, FairArm::name)?;
    let mut rows = Vec::new();
    let case = (None, "trace".to_owned());
    rows::rows_over(&trace.jobs, &case, &rows::fair_laws(&arms), told, &mut rows);
    Ok(Outcome { title: "replay: the jobs of a trace run to completion, jobs wait", experiment: None, rows })
}

fn chosen<A: Copy>(names: &[String], all: &[A], name: fn(A) -> &'static str) -> Result<Vec<A>, ReportError> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |wanted: &String| {
        all.iter().copied().find(|&arm| name(arm) == wanted).ok_or(ReportError::Arm(wanted.clone()))
    };
    names.iter().map(find).collect()
}

impl Outcome {
    /// The table for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let mut group = String::new();
        for row in &self.rows {
            if row.group() != group {
                group = row.group();
                let _ok = write!(text, "\n{group}\n{:<22}", "");
                for (name, _) in &row.figures {
                    let _ok = write!(text, " {name:>width$}", width = name.len().max(9));
                }
                text.push('\n');
            }
            let _ok = write!(text, "{:<22}", row.arm);
            for (name, value) in &row.figures {
                let _ok = write!(text, " {:>width$}", shown(*value), width = name.len().max(9));
            }
            text.push('\n');
        }
        if let Some(summary) = self.summary() {
            let _ok = write!(text, "\n{summary}");
        }
        text
    }

    /// One table over all seeds, in Markdown, and the bars.
    fn summary(&self) -> Option<String> {
        let rows = &self.rows;
        match self.experiment? {
            PlacementExperiment::Compat => Some(bands::table(rows) + &bands::bars(rows)),
            experiment @ (PlacementExperiment::Fair | PlacementExperiment::Curves) => {
                Some(summary::table(rows) + &summary::bars(rows, experiment))
            }
            PlacementExperiment::Ablation | PlacementExperiment::Caps => Some(summary::table(rows)),
        }
    }

    /// A plot of each case over all seeds, with a name for its file.
    #[must_use]
    pub fn plots(&self) -> Vec<(String, String)> {
        let laws = summary::laws(&self.rows);
        let plot = |laws: &[summary::OfLaw<'_>]| {
            let case = laws.first().map_or("", |law| law.case);
            let digits: String = case.chars().filter(char::is_ascii_digit).collect();
            let named = |name: &str| {
                laws.iter().map(|law| (law.arm.to_owned(), law.spread(name))).collect::<Vec<_>>()
            };
            match self.experiment {
                Some(PlacementExperiment::Compat) => {
                    ("energy.svg".to_owned(), plot::bars("IT energy, kWh", &named("it_kwh")))
                }
                _ => (
                    format!("energy-{digits}.svg"),
                    plot::bars(&format!("Energy over the bound, {case}"), &named("over_bound")),
                ),
            }
        };
        laws.chunk_by(|one, next| one.case == next.case).map(plot).collect()
    }

    /// The result as JSON, which [`compare`] reads.
    #[must_use]
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let figures: Map<String, Value> =
                row.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            json!({"group": row.group(), "arm": row.arm, "figures": figures, "series_kw": row.series})
        };
        json!({"title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>()})
    }

    /// The table and the plots of power over time in one file that loads nothing.
    #[must_use]
    pub fn html(&self) -> String {
        let title = self.title;
        let mut page = format!(
            "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>\
             <style>body{{font:14px sans-serif;margin:2em}}pre{{overflow:auto}}</style><h1>{title}</h1>\n"
        );
        if self.summary().is_some() {
            for (_, svg) in self.plots() {
                page.push_str(&svg);
            }
        }
        for rows in self.rows.chunk_by(|one, next| one.group() == next.group()) {
            page.push_str(&plot::plot(rows));
        }
        let _ok = writeln!(page, "<pre>{}</pre></html>", plot::escaped(&self.table()));
        page
    }
}

fn shown(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_compared_with_itself_does_not_differ_and_junk_is_refused_by_place() {
        let figures = vec![("it_kwh".to_owned(), 2.0)];
        let row = |kwh| Row {
            seed: Some(1),
            case: String::new(),
            arm: "x".into(),
            figures: vec![("it_kwh".to_owned(), kwh)],
            series: vec![1.0],
        };
        assert_eq!(row(2.0).figures, figures);
        let text = |kwh| Outcome { title: "t", experiment: None, rows: vec![row(kwh)] }.json().to_string();
        assert_eq!(compare(&text(2.0), &text(2.0)).unwrap(), "seed 1 x:\n");
        assert_eq!(compare(&text(2.0), &text(1.0)).unwrap(), "seed 1 x: it_kwh -50.00 %\n");
        let none = "{\"rows\":[]}";
        assert_eq!(compare(&text(2.0), none).unwrap(), "seed 1 x: only in the first\n");
        assert_eq!(compare(none, &text(2.0)).unwrap(), "seed 1 x: only in the second\n");
        for junk in ["", "[]", "{}", "{\"rows\":[1]}", "{\"rows\":[{\"group\":\"g\",\"figures\":{}}]}"] {
            assert!(compare(junk, &text(1.0)).is_err(), "{junk}");
        }
        let options =
            Options { experiment: PlacementExperiment::Fair, seeds: vec![1], arms: vec!["x".into()] };
        assert_eq!(simulate(&options, &mut |_, _| ()), Err(ReportError::Arm("x".into())));
    }
}
