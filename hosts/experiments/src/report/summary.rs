//! One table over all seeds, and the bars.

use super::Row;
use crate::workload::CLASSES;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The two-sided 95 % quantiles of Student's t for 1 to 15 degrees of freedom. For more the last is a little wide.
const STUDENT: [f64; 15] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
];

/// A figure over the seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// Half of the 95 % confidence interval of the mean; zero for one seed.
    pub(super) half: f64,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let t = values.len().checked_sub(2).and_then(|at| STUDENT.get(at).or(STUDENT.last()));
        let half = t.map_or(0.0, |t| t * (squares / (count - 1.0) / count).sqrt());
        let (least, most) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| {
                (least.min(value), most.max(value))
            });
        if values.is_empty() { Self::default() } else { Self { mean, least, most, half } }
    }
}

/// The rows of one law over all seeds.
pub(super) struct OfLaw<'a> {
    pub(super) case: &'a str,
    pub(super) arm: &'a str,
    pub(super) rows: Vec<&'a Row>,
}

impl OfLaw<'_> {
    pub(super) fn spread(&self, name: &str) -> Spread {
        let values: Vec<f64> = self.rows.iter().filter_map(|row| row.figure(name)).collect();
        Spread::of(&values)
    }
}

/// All laws, by case and in the order of the rows.
pub(super) fn laws(rows: &[Row]) -> Vec<OfLaw<'_>> {
    let mut laws: Vec<OfLaw<'_>> = Vec::new();
    for row in rows {
        match laws.iter_mut().find(|law| law.case == row.case && law.arm == row.arm) {
            Some(law) => law.rows.push(row),
            None => laws.push(OfLaw { case: &row.case, arm: &row.arm, rows: vec![row] }),
        }
    }
    // The cases in their order, and the laws of each together.
    let mut order: BTreeMap<&str, usize> = BTreeMap::new();
    for law in &laws {
        let next = order.len();
        order.entry(law.case).or_insert(next);
    }
    laws.sort_by_key(|law| order.get(law.case).copied());
    laws
}

/// The table in Markdown.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| case | law | IT MWh | against the first % [min, max] | of the bound \u{b1} 95 % [min, max] | standard wait p95, min (most) | \
         performance slowdown % (most) | slowdown % small / medium / training / inference / large | nodes on, without / with GPUs | \
         plain work on GPU nodes % | wakes | dropped |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for law in laws(rows) {
        let (energy, bound, first) =
            (law.spread("it_kwh"), law.spread("over_bound"), law.spread("against_first_pct"));
        let (wait, slow) = (law.spread("wait_p95_min"), law.spread("perf_slowdown"));
        let by_class: Vec<String> = CLASSES
            .iter()
            .map(|class| format!("{:.2}", 100.0 * law.spread(&format!("slowdown_{}", class.name())).mean))
            .collect();
        let _ok = writeln!(
            text,
            "| {} | {} | {:.2} | {:+.1} [{:+.1}, {:+.1}] | {:.3} \u{b1} {:.3} [{:.3}, {:.3}] | {:.0} ({:.0}) | {:.2} ({:.3}) | {} | \
             {:.0} / {:.0} | {:.0} | {:.0} | {:.0} |",
            law.case,
            law.arm,
            energy.mean / 1000.0,
            first.mean,
            first.least,
            first.most,
            bound.mean,
            bound.half,
            bound.least,
            bound.most,
            wait.mean,
            wait.most,
            100.0 * slow.mean,
            100.0 * slow.most,
            by_class.join(" / "),
            law.spread("on_cpu_nodes").mean,
            law.spread("on_gpu_nodes").mean,
            100.0 * law.spread("plain_on_gpu_nodes").mean,
            law.spread("wakes").mean,
            law.spread("dropped").most
        );
    }
    text
}

/// The bars of `fair`, of the worst seed, for the loads and laws that were run.
pub(super) fn bars_of_fair(rows: &[Row]) -> String {
    const OURS: &str = "joulie +sleep";
    const AWAKE: &str = "joulie";
    let mut text = String::new();
    let mut bar = |name: String, value: f64, limit: f64| {
        let verdict = if value <= limit { "PASS" } else { "FAIL" };
        let _ok = writeln!(text, "BAR {name} {value:.4} {limit} {verdict}");
    };
    let mut worst: BTreeMap<(usize, &str), f64> = BTreeMap::new();
    let mut note = |order: usize, name: &'static str, value: f64| {
        let held = worst.entry((order, name)).or_insert(value);
        // What is missing for one seed is not made good by another.
        *held = if value.is_nan() || held.is_nan() { f64::NAN } else { held.max(value) };
    };
    for ours in rows.iter().filter(|row| row.arm == OURS) {
        let figure = |row: &Row, name: &str| row.figure(name).unwrap_or(f64::NAN);
        let others = || rows.iter().filter(|row| row.case == ours.case && row.seed == ours.seed);
        let least = others()
            .filter(|row| row.arm != OURS && row.arm != AWAKE)
            .map(|row| figure(row, "it_kwh"))
            .fold(f64::INFINITY, f64::min);
        let kube = others().find(|row| row.arm == "kube-default").map(|row| figure(row, "wait_p95_min"));
        let wait = figure(ours, "wait_p95_min");
        let ratio = kube.map(|kube| if wait == kube { 1.0 } else { wait / kube });
        let slow = 100.0 * figure(ours, "perf_slowdown");
        match ours.case.as_str() {
            "load 20 %" => {
                note(0, "fair_20_of_the_bound", figure(ours, "over_bound"));
                note(1, "fair_20_performance_slowdown_percent", slow);
                ratio.into_iter().for_each(|ratio| note(2, "fair_20_wait_p95_of_kube_default", ratio));
            }
            "load 50 %" => {
                if least.is_finite() {
                    note(3, "fair_50_of_the_best_other_law", figure(ours, "it_kwh") / least);
                }
                note(4, "fair_50_performance_slowdown_percent", slow);
                ratio.into_iter().for_each(|ratio| note(5, "fair_50_wait_p95_of_kube_default", ratio));
            }
            _ => ratio.into_iter().for_each(|ratio| note(6, "fair_80_wait_p95_of_kube_default", ratio)),
        }
        note(7, "fair_dropped", figure(ours, "dropped"));
    }
    for ((_, name), value) in worst {
        let limit = match name {
            "fair_20_of_the_bound" => 1.03,
            "fair_50_of_the_best_other_law" => 1.0,
            "fair_20_performance_slowdown_percent" | "fair_50_performance_slowdown_percent" => 0.005,
            "fair_dropped" => 0.0,
            _ => 1.1,
        };
        bar(name.to_owned(), value, limit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1, 2, 3: the deviation is 1, and 4.303 · 1 / √3 = 2.484.
    #[test]
    fn the_confidence_is_student_s() {
        let spread = Spread::of(&[1.0, 2.0, 3.0]);
        assert_eq!((spread.mean, spread.least, spread.most), (2.0, 1.0, 3.0));
        assert!((spread.half - 2.484).abs() < 1e-3);
        assert_eq!(Spread::of(&[5.0]).half, 0.0);
        let many: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(Spread::of(&many).half > 2.0 * (35.0_f64 / 20.0).sqrt());
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn our_law_is_compared_with_others_and_not_with_itself() {
        let row = |arm: &str, kwh| Row {
            seed: Some(1),
            case: "load 50 %".to_owned(),
            arm: arm.to_owned(),
            figures: vec![("it_kwh".to_owned(), kwh)],
            series: Vec::new(),
        };
        let mut rows = vec![row("joulie", 10.0), row("joulie +sleep", 9.0)];
        assert!(!bars_of_fair(&rows).contains("best_other_law"));
        rows.push(row("packing +sleep", 8.0));
        assert!(bars_of_fair(&rows).contains("BAR fair_50_of_the_best_other_law 1.1250 1 FAIL"));
        // What no run has measured is no PASS.
        assert!(bars_of_fair(&rows).contains("BAR fair_50_performance_slowdown_percent NaN 0.005 FAIL"));
    }
}
