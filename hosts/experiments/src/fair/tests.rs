use super::*;
use crate::workload::{OfferedLoad, jobs};

#[test]
fn all_laws_do_all_the_work_and_none_uses_less_than_the_bound() {
    let jobs = OfferedLoad::Low.thin(&jobs(42, 2));
    for (model, arm) in [PowerModel::Linear, PowerModel::Curve]
        .into_iter()
        .flat_map(|model| FAIR_ARMS.map(|arm| (model, arm)))
    {
        let bound = bound_kwh(&jobs, model);
        for sleep in SLEEP_RULES {
            let law = PlacementLaw { model, ..PlacementLaw::of(arm, sleep) };
            let figures = run(law, 42, &jobs);
            assert_eq!(figures, run(law, 42, &jobs));
            assert_eq!(figures.dropped, 0, "{}", arm.name());
            assert!(figures.it_kwh > bound, "{} {sleep:?}", arm.name());
        }
    }
}

/// An empty fleet without sleep draws its floor; one job of a minute on a node that is awake costs that node's base and its own watts.
#[test]
fn a_single_job_costs_what_is_calculated_by_hand() {
    let job = OfferedJob {
        arrives: 0,
        lasts: 1,
        cores: 96,
        gpus: 0,
        performance: true,
        class: crate::workload::JobClass::Large,
        busy_cores: crate::numbers::parts(48.0),
        busy_gpus: 0,
    };
    let figures = run(PlacementLaw::of(FairArm::MostAllocated, SleepRule::Fixed), 1, &[job]);
    // Two steps are counted, that of the job and that in which it has ended. Six nodes of 35 W and six of 105 W are awake in both;
    // the job's node draws 70 W and 0.7 * 700 W / 2 in the first.
    let watts = 2.0 * 6.0 * (35.0 + 105.0) + 35.0 + 245.0;
    assert!((figures.it_kwh - watts / 60_000.0).abs() < 1e-9, "{}", figures.it_kwh * 60_000.0);
    assert_eq!((figures.wakes, figures.performance_slowdown, figures.dropped), (0, 0.0, 0));
}

#[test]
fn jobs_that_fit_no_node_are_told_and_do_not_run_for_ever() {
    let jobs = OfferedLoad::Low.thin(&jobs(42, 1));
    let mut large = jobs[0];
    large.cores = 200;
    large.arrives = 0;
    let mut all = vec![large];
    all.extend(jobs);
    assert_eq!(run(PlacementLaw::of(FairArm::Joulie, SleepRule::Ahead), 42, &all).dropped, 1);
}
