//! Which experiment is run, and its table, JSON and HTML.

use crate::compat::{self, ARMS, CompatArm};
use crate::fair::{self, FAIR_ARMS, FairArm, FairFigures, Law, bound_kwh};
use crate::workload::{CLASSES, OfferedLoad, jobs};
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};

/// The experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementExperiment {
    /// Upstream's experiment under its own assumptions, see [`compat`].
    Compat,
    /// The same work for all, see [`fair`].
    Fair,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which experiment.
    pub experiment: PlacementExperiment,
    /// Its seeds; without any, upstream's eight.
    pub seeds: Vec<u64>,
    /// Its laws by name; without any, all.
    pub arms: Vec<String>,
}

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
                write!(f, "no law {name:?}: compat has {}; fair has {}", compat.join(", "), fair.join(", "))
            }
            Self::Result(place) => write!(f, "no result of joulie simulate: {place}"),
        }
    }
}

impl std::error::Error for ReportError {}

/// A row: a law under a seed, its figures by name, and its totals over time.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    group: String,
    arm: String,
    figures: Vec<(String, f64)>,
    series: Vec<f64>,
}

/// The result of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    title: &'static str,
    rows: Vec<Row>,
}

/// Runs an experiment.
///
/// # Errors
/// When a law does not exist.
pub fn simulate(options: &Options) -> Result<Outcome, ReportError> {
    let seeds = if options.seeds.is_empty() { &crate::SEEDS[..] } else { &options.seeds };
    match options.experiment {
        PlacementExperiment::Compat => {
            let arms = chosen(&options.arms, &ARMS, CompatArm::name)?;
            let title = "compat: 2,500 nodes, 48 h, jobs that do not fit are dropped";
            Ok(Outcome { title, rows: compat_rows(seeds, &arms) })
        }
        PlacementExperiment::Fair => {
            let arms = chosen(&options.arms, &FAIR_ARMS, FairArm::name)?;
            let title = "fair: the same jobs run to completion, jobs wait";
            Ok(Outcome { title, rows: fair_rows(seeds, &arms) })
        }
    }
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

fn compat_rows(seeds: &[u64], arms: &[CompatArm]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &seed in seeds {
        let jobs = jobs(seed, 48);
        for &arm in arms {
            let figures = compat::run(arm, seed, &jobs, 48);
            let mut named: Vec<(String, f64)> = [
                ("jobs", jobs.len() as f64),
                ("it_kwh", figures.it_kwh),
                ("facility_kwh", figures.facility_kwh),
                ("mean_kw", figures.it_kwh / 48.0),
                ("peak_kw", figures.peak_kw),
                ("std_kw", figures.std_kw),
                ("ramp_p99_kw", figures.ramp_kw),
                ("drops", f64::from(figures.drops())),
                ("kwh_each", figures.kwh_each()),
                ("core_h", figures.core_h),
                ("useful_core_h", figures.useful_core_h),
                ("gpu_h", figures.gpu_h),
                ("useful_gpu_h", figures.useful_gpu_h),
                ("large_core_h", figures.large_core_h),
                ("for_work", figures.for_work()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
            for class in CLASSES {
                let part =
                    f64::from(figures.dropped[class.index()]) / f64::from(figures.jobs[class.index()].max(1));
                named.push((format!("drops_{}_pct", class.name()), 100.0 * part));
            }
            rows.push(Row {
                group: format!("seed {seed}"),
                arm: arm.name().to_owned(),
                figures: named,
                series: figures.series_kw.iter().copied().step_by(15).collect(),
            });
        }
    }
    rows
}

fn fair_rows(seeds: &[u64], arms: &[FairArm]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &seed in seeds {
        let all = jobs(seed, 48);
        for load in [OfferedLoad::Low, OfferedLoad::Middle, OfferedLoad::High] {
            let jobs = load.thin(&all);
            let bound = bound_kwh(&jobs);
            for &arm in arms {
                for sleeps in [false, true] {
                    let figures = fair::run(Law::of(arm, sleeps), seed, &jobs);
                    rows.push(Row {
                        group: format!("seed {seed}, load {}", load.name()),
                        arm: format!("{}{}", arm.name(), if sleeps { " +sleep" } else { "" }),
                        figures: named(&figures, jobs.len(), bound),
                        series: Vec::new(),
                    });
                }
            }
        }
    }
    rows
}

fn named(figures: &FairFigures, jobs: usize, bound: f64) -> Vec<(String, f64)> {
    let named = [
        ("jobs", jobs as f64),
        ("it_kwh", figures.it_kwh),
        ("over_bound", figures.it_kwh / bound),
        ("base_kwh", figures.base_kwh),
        ("waking_kwh", figures.waking_kwh),
        ("peak_kw", figures.peak_kw),
        ("makespan_h", figures.makespan_h),
        ("wakes", f64::from(figures.wakes)),
        ("on_cpu_nodes", figures.on[0]),
        ("on_gpu_nodes", figures.on[1]),
        ("gpu_hosts", figures.gpu_hosts),
        ("plain_on_gpu_nodes", figures.plain_on_gpu_nodes),
        ("wait_p95_min", figures.standard_wait[1]),
        ("wait_p99_min", figures.standard_wait[2]),
        ("perf_wait_p99_min", figures.performance_wait[2]),
        ("perf_slowdown", figures.performance_slowdown),
        ("dropped", f64::from(figures.dropped)),
    ];
    let slowed = CLASSES.map(|class| (format!("slowdown_{}", class.name()), figures.slowdown[class.index()]));
    named.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(slowed).collect()
}

impl Outcome {
    /// The table for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let mut group = "";
        for row in &self.rows {
            if row.group != group {
                group = &row.group;
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
        text
    }

    /// The result as JSON, which [`compare`] reads.
    #[must_use]
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let figures: Map<String, Value> =
                row.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            json!({"group": row.group, "arm": row.arm, "figures": figures, "series_kw": row.series})
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
        for rows in self.rows.chunk_by(|one, next| one.group == next.group) {
            page.push_str(&plot(rows));
        }
        let _ok = writeln!(page, "<pre>{}</pre></html>", self.table());
        page
    }
}

/// Energy as bars, and power over time as lines where it was kept.
fn plot(rows: &[Row]) -> String {
    const COLOURS: [&str; 6] = ["#1b6ca8", "#c8553d", "#3a7d44", "#7d4e9f", "#b8860b", "#555"];
    let Some(first) = rows.first() else { return String::new() };
    let energy =
        |row: &Row| row.figures.iter().find(|(name, _)| name == "it_kwh").map_or(0.0, |(_, kwh)| *kwh);
    let most = rows.iter().map(energy).fold(1.0, f64::max);
    let height = 30 + 22 * rows.len();
    let mut svg = format!(
        "<h2>{0}</h2><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"{height}\" role=\"img\" \
         aria-label=\"Energy of each law, {0}\" font-family=\"sans-serif\" font-size=\"12\">\
         <text x=\"0\" y=\"14\">Energy, kWh</text>",
        first.group
    );
    for (index, row) in rows.iter().enumerate() {
        let (top, colour) = (24 + 22 * index, COLOURS[index % COLOURS.len()]);
        let kwh = energy(row);
        let _ok = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{}</text><rect x=\"170\" y=\"{top}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{kwh:.0}</text>",
            top + 13,
            row.arm,
            430.0 * kwh / most,
            176.0 + 430.0 * kwh / most,
            top + 13
        );
    }
    svg.push_str("</svg>\n");
    let peak = rows.iter().flat_map(|row| &row.series).copied().fold(0.0, f64::max);
    if peak > 0.0 {
        let _ok = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"220\" role=\"img\" aria-label=\"Power over time\" \
             font-family=\"sans-serif\" font-size=\"12\"><text x=\"0\" y=\"12\">Power over 48 h, up to {peak:.0} kW</text>"
        );
        for (index, row) in rows.iter().enumerate() {
            let _ok = write!(
                svg,
                "<polyline fill=\"none\" stroke=\"{}\" points=\"",
                COLOURS[index % COLOURS.len()]
            );
            for (place, kw) in row.series.iter().enumerate() {
                let x = 720.0 * place as f64 / row.series.len() as f64;
                let _ok = write!(svg, "{x:.1},{:.1} ", 215.0 - 195.0 * kw / peak);
            }
            svg.push_str("\"/>");
        }
        svg.push_str("</svg>\n");
    }
    svg
}

fn shown(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}

/// How the second result differs from the first, in percent of it, law by law.
///
/// # Errors
/// When one of them is no result.
pub fn compare(first: &str, second: &str) -> Result<String, ReportError> {
    let (first, second) = (read(first, "first")?, read(second, "second")?);
    let mut text = String::new();
    for (group, arm, figures) in &second {
        let Some((_, _, before)) = first.iter().find(|row| row.0 == *group && row.1 == *arm) else {
            let _ok = writeln!(text, "{group} {arm}: only in the second");
            continue;
        };
        let _ok = write!(text, "{group} {arm}:");
        for (name, after) in figures {
            let Some((_, before)) = before.iter().find(|(other, _)| other == name) else { continue };
            if before == after {
                continue;
            }
            let change = 100.0 * (after - before) / before;
            let _ok = match change.is_finite() {
                true => write!(text, " {name} {change:+.2} %"),
                false => write!(text, " {name} {} -> {}", shown(*before), shown(*after)),
            };
        }
        text.push('\n');
    }
    for (group, arm, _) in
        first.iter().filter(|row| second.iter().all(|other| other.0 != row.0 || other.1 != row.1))
    {
        let _ok = writeln!(text, "{group} {arm}: only in the first");
    }
    Ok(text)
}

type ReadRow = (String, String, Vec<(String, f64)>);

fn read(text: &str, which: &str) -> Result<Vec<ReadRow>, ReportError> {
    let fault = |place: String| ReportError::Result(format!("{which} file, {place}"));
    let value: Value = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
    let rows = value["rows"].as_array().ok_or_else(|| fault("no rows".into()))?;
    let row = |(index, row): (usize, &Value)| {
        let name = |field: &str| {
            row[field].as_str().map(str::to_owned).ok_or_else(|| fault(format!("row {index}: {field}")))
        };
        let figures = row["figures"].as_object().ok_or_else(|| fault(format!("row {index}: figures")))?;
        let figures =
            figures.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
        Ok((name("group")?, name("arm")?, figures))
    };
    rows.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_compared_with_itself_does_not_differ_and_junk_is_refused_by_place() {
        let figures = vec![("it_kwh".to_owned(), 2.0)];
        let row = |kwh| Row {
            group: "seed 1".into(),
            arm: "x".into(),
            figures: vec![("it_kwh".to_owned(), kwh)],
            series: vec![1.0],
        };
        assert_eq!(row(2.0).figures, figures);
        let text = |kwh| Outcome { title: "t", rows: vec![row(kwh)] }.json().to_string();
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
        assert_eq!(simulate(&options), Err(ReportError::Arm("x".into())));
    }
}
