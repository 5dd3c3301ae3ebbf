//! The runs of each experiment, a row for each.

use super::{Row, Told};
use crate::caps::{CAP_RULES, CapRule};
use crate::compat::{self, CompatArm};
use crate::fair::{self, FairArm, FairFigures, PlacementLaw, SLEEP_RULES, SleepRule, TERMS, bound_kwh};
use crate::fleet::PowerModel;
use crate::workload::{CLASSES, OfferedJob, OfferedLoad, jobs};

pub(super) fn compat_rows(seeds: &[u64], arms: &[CompatArm], told: Told<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for &seed in seeds {
        let jobs = jobs(seed, 48);
        for &arm in arms {
            told(rows.len(), seeds.len() * arms.len());
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
                ("drops_pct", 100.0 * f64::from(figures.drops()) / jobs.len().max(1) as f64),
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
                seed: Some(seed),
                case: String::new(),
                arm: arm.name().to_owned(),
                figures: named,
                series: figures.series_kw.iter().copied().step_by(15).collect(),
            });
        }
    }
    rows
}

/// The laws of an experiment, by their names; the first is what others are compared with.
pub(super) type NamedLaws = Vec<(String, PlacementLaw)>;

pub(super) fn fair_laws(arms: &[FairArm]) -> NamedLaws {
    let each = |&arm: &FairArm| {
        // Upstream's formulas know no sleep, and keep nothing awake for their next job.
        let knows = move |rule: &SleepRule| !matches!((arm, rule), (FairArm::Upstream(_), SleepRule::Ahead));
        let of = move |rule: SleepRule| (law_name(arm, rule), PlacementLaw::of(arm, rule));
        SLEEP_RULES.into_iter().filter(knows).map(of)
    };
    arms.iter().flat_map(each).collect()
}

fn law_name(arm: FairArm, rule: SleepRule) -> String {
    format!("{}{}", arm.name(), rule.suffix())
}

/// The laws of `fair` on a measured curve.
pub(super) fn curve_laws(arms: &[FairArm]) -> NamedLaws {
    let on_curve = |(name, law)| (name, PlacementLaw { model: PowerModel::Curve, ..law });
    fair_laws(arms).into_iter().map(on_curve).collect()
}

pub(super) fn ablation_laws() -> NamedLaws {
    let whole = PlacementLaw::of(FairArm::Joulie, SleepRule::Ahead);
    let without = |term| {
        (
            format!("without {}", crate::fair::ScoreTerm::name(term)),
            PlacementLaw { without: Some(term), ..whole },
        )
    };
    let ahead = ("without ahead".to_owned(), PlacementLaw { sleep: SleepRule::Fixed, ..whole });
    let first = (law_name(whole.arm, whole.sleep), whole);
    [first].into_iter().chain(TERMS.map(without)).chain([ahead]).collect()
}

pub(super) fn caps_laws() -> NamedLaws {
    let of = |arm, rule| {
        CAP_RULES.map(|caps: CapRule| {
            let name = format!("{}, {}", law_name(arm, rule), caps.name());
            (name, PlacementLaw { caps, ..PlacementLaw::of(arm, rule) })
        })
    };
    let first = of(FairArm::KubeDefault, SleepRule::Never);
    first.into_iter().chain(of(FairArm::Joulie, SleepRule::Ahead)).collect()
}

/// The runs of laws over thinned jobs of seeds.
pub(super) fn rows_of(seeds: &[u64], loads: &[OfferedLoad], laws: &NamedLaws, told: Told<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for &seed in seeds {
        let all = jobs(seed, 48);
        for load in loads {
            let jobs = load.thin(&all);
            let case = (Some(seed), format!("load {}", load.name()));
            let count = seeds.len() * loads.len() * laws.len();
            rows_over(&jobs, &case, laws, &mut |done, _| told(done, count), &mut rows);
        }
    }
    rows
}

/// The runs of laws over some jobs.
pub(super) fn rows_over(
    jobs: &[OfferedJob],
    (seed, case): &(Option<u64>, String),
    laws: &NamedLaws,
    told: Told<'_>,
    rows: &mut Vec<Row>,
) {
    let model = laws.first().map_or(PowerModel::Linear, |(_, law)| law.model);
    let bound = bound_kwh(jobs, model);
    let mut first = None;
    for (name, law) in laws {
        told(rows.len(), laws.len());
        let figures = fair::run(*law, seed.unwrap_or(1), jobs);
        let first = *first.get_or_insert(figures.it_kwh);
        let against = ("against_first_pct".to_owned(), 100.0 * (figures.it_kwh / first - 1.0));
        let mut figures = named(&figures, jobs.len(), bound);
        figures.push(against);
        rows.push(Row { seed: *seed, case: case.clone(), arm: name.clone(), figures, series: Vec::new() });
    }
}

fn named(figures: &FairFigures, jobs: usize, bound: f64) -> Vec<(String, f64)> {
    let named = [
        ("jobs", jobs as f64),
        ("it_kwh", figures.it_kwh),
        ("over_bound", figures.it_kwh / bound),
        ("base_kwh", figures.base_kwh),
        ("waking_kwh", figures.waking_kwh),
        ("facility_kwh", figures.facility_kwh),
        ("peak_kw", figures.peak_kw),
        ("ramp_p99_kw", figures.ramp_kw),
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
    let waits =
        CLASSES.map(|class| (format!("wait_p95_{}_min", class.name()), figures.wait_p95[class.index()]));
    let named = named.map(|(name, value)| (name.to_owned(), value));
    named.into_iter().chain(slowed).chain(waits).collect()
}
