//! The table of `compat` over all seeds, and the bands in which a port of upstream's experiment is to be.

use super::Row;
use super::summary::{OfLaw, Spread, laws};
use std::fmt::Write;

/// The law with which the others of a seed are compared.
const FIRST: &str = "baseline";

/// A band, and the last digit to which its ends are known.
type Band = ([f64; 2], f64);

/// Bands of the laws, in percent of the baseline of the same seed: energy, and jobs that were dropped.
const LAWS: [(&str, Band, Band); 5] = [
    ("legacy", ([-5.0, -4.6], 0.1), ([-14.9, -13.8], 0.1)),
    ("trend-10", ([-6.5, -6.0], 0.1), ([-14.1, -13.0], 0.1)),
    ("t25-adap", ([-6.35, -5.95], 0.01), ([-15.0, -14.0], 0.1)),
    ("least-allocated", ([-8.2, -7.9], 0.1), ([-15.9, -14.8], 0.1)),
    ("random", ([-1.9, -1.5], 0.1), ([-14.9, -14.0], 0.1)),
];

/// Bands of the baseline itself.
const BASELINE: [(&str, Band); 6] = [
    ("jobs", ([1_800_000.0, 1_880_000.0], 10_000.0)),
    ("mean_kw", ([2_646.0, 2_657.0], 1.0)),
    ("peak_kw", ([2_704.0, 2_716.0], 1.0)),
    ("drops_pct", ([50.0, 51.0], 0.1)),
    ("gpu_h", ([185_900.0, 186_700.0], 100.0)),
    ("core_h", ([11_840_000.0, 11_890_000.0], 10_000.0)),
];

/// Figures of a law in percent of the first law of the same seed.
fn against(law: &OfLaw<'_>, rows: &[Row], name: &str) -> Spread {
    let change = |row: &&Row| {
        let first = rows.iter().find(|first| first.seed == row.seed && first.arm == FIRST)?;
        Some(100.0 * (row.figure(name)? / first.figure(name)? - 1.0))
    };
    Spread::of(&law.rows.iter().filter_map(change).collect::<Vec<f64>>())
}

/// The table in Markdown: each law against the baseline of the same seed. Empty where the baseline was not run.
pub(super) fn table(rows: &[Row]) -> String {
    if rows.iter().all(|row| row.arm != FIRST) {
        return String::new();
    }
    let mut text = String::from(
        "| law | IT energy % [min, max] | peak % | drops % [min, max] | core-hours % | useful core-hours % | GPU-hours % | useful GPU-hours % | \
         large jobs' core-hours % | energy for the work % | dropped % small / medium / training / inference / large |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for law in laws(rows) {
        let of = |name: &str| against(&law, rows, name);
        let (energy, drops) = (of("it_kwh"), of("drops"));
        let by_class = crate::workload::CLASSES
            .map(|class| format!("{:.1}", law.spread(&format!("drops_{}_pct", class.name())).mean));
        let _ok = writeln!(
            text,
            "| {} | {:+.2} [{:+.2}, {:+.2}] | {:+.2} | {:+.1} [{:+.1}, {:+.1}] | {:+.1} | {:+.1} | {:+.2} | {:+.2} | {:+.1} | {:+.2} | {} |",
            law.arm,
            energy.mean,
            energy.least,
            energy.most,
            of("peak_kw").mean,
            drops.mean,
            drops.least,
            drops.most,
            of("core_h").mean,
            of("useful_core_h").mean,
            of("gpu_h").mean,
            of("useful_gpu_h").mean,
            of("large_core_h").mean,
            of("for_work").mean,
            by_class.join(" / "),
        );
    }
    text
}

/// A row for each end of a band: the seed that is nearest to it or beyond it. It is within the band if it is so rounded to the
/// digits of the band.
pub(super) fn bars(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut band = |name: &str, spread: Spread, ([least, most], digit): Band| {
        let mut bar = |end: &str, value: f64, limit: f64, above: f64| {
            let holds = ((above / digit).round()) >= 0.0;
            let verdict = if holds { "PASS" } else { "FAIL" };
            let _ok = writeln!(text, "BAR compat_{name}_{end} {value:.2} {limit} {verdict}");
        };
        // What rounds to the end itself is within.
        bar("least", spread.least, least, spread.least - least);
        bar("most", spread.most, most, most - spread.most);
    };
    let named = |name: &str| name.replace('-', "_");
    let laws = laws(rows);
    for law in laws.iter().filter(|law| law.arm == FIRST) {
        for (name, limits) in BASELINE {
            band(&format!("baseline_{name}"), law.spread(name), limits);
        }
    }
    let has_first = laws.iter().any(|law| law.arm == FIRST);
    for law in laws.iter().filter(|_| has_first) {
        let Some((name, energy, drops)) = LAWS.iter().find(|(name, ..)| *name == law.arm) else { continue };
        band(&format!("{}_energy_percent", named(name)), against(law, rows, "it_kwh"), *energy);
        band(&format!("{}_drops_percent", named(name)), against(law, rows, "drops"), *drops);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_compared_with_the_baseline_of_its_own_seed_and_held_against_its_band() {
        let row = |seed: u64, arm: &str, kwh: f64| Row {
            seed: Some(seed),
            case: String::new(),
            arm: arm.to_owned(),
            figures: vec![("it_kwh".to_owned(), kwh), ("drops".to_owned(), 10.0)],
            series: Vec::new(),
        };
        // 95.20 of 100 and 190.0 of 200: -4.80 and -5.00 %, both in the band of the first formula; 189.9 is not.
        let mut rows = vec![row(1, "baseline", 100.0), row(1, "legacy", 95.2), row(2, "baseline", 200.0)];
        rows.push(row(2, "legacy", 190.0));
        assert!(table(&rows).contains("| legacy | -4.90 [-5.00, -4.80] |"), "{}", table(&rows));
        assert!(bars(&rows).contains("BAR compat_legacy_energy_percent_least -5.00 -5 PASS"));
        // As many were dropped as by the baseline, and what the baseline's rows do not say holds no band.
        assert!(bars(&rows).contains("BAR compat_legacy_drops_percent_most 0.00 -13.8 FAIL"));
        assert!(bars(&rows).contains("BAR compat_baseline_jobs_least 0.00 1800000 FAIL"));
        // -5.05 is not -5.0 any more, and -5.04 is.
        rows[3] = row(2, "legacy", 189.88);
        assert!(
            bars(&rows).contains("BAR compat_legacy_energy_percent_least -5.06 -5 FAIL"),
            "{}",
            bars(&rows)
        );
        rows[3] = row(2, "legacy", 189.92);
        assert!(
            bars(&rows).contains("BAR compat_legacy_energy_percent_least -5.04 -5 PASS"),
            "{}",
            bars(&rows)
        );
        // Without a baseline there is nothing to compare with.
        rows.retain(|row| row.arm != FIRST);
        assert_eq!((table(&rows), bars(&rows)), (String::new(), String::new()));
    }
}
