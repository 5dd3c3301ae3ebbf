//! Fix list operator B-R5: every condition of an eviction, one at a time, and the state between steps.

use super::super::Stress;
use super::super::tests::{law as migration_law, node, pod, stress};
use super::*;
use crate::classify::Hints;
use crate::demand::DemandClass;
use crate::power::Grounds;
use power_units::Percent;
use proptest::prelude::*;

const MINUTE: u64 = 60_000_000;

fn minutes(count: u64) -> Micros {
    Micros::new(count * MINUTE)
}

fn tuning() -> Tuning {
    Tuning {
        stressed_for: minutes(5),
        cooldown: minutes(30),
        retry: minutes(5),
        window: minutes(1),
        per_node: 1,
        per_namespace: 2,
        per_cluster: 2,
        relief: Percent::from_int(10),
        least: Grounds::Modelled,
        dry_run: false,
    }
}

fn law(tuning: Tuning) -> EvictionLaw {
    EvictionLaw::new(migration_law(), tuning).unwrap()
}

const FREE: RequestedResources =
    RequestedResources { cpu_milli: 64_000, memory_bytes: 1 << 38, gpus: 8, pods: 100 };
const NEEDS: RequestedResources =
    RequestedResources { cpu_milli: 2_000, memory_bytes: 1 << 30, gpus: 0, pods: 1 };

fn site(node: NodeConditions<'_>) -> Site<'_> {
    Site { node, open: true, free: FREE }
}

fn candidate<'a>(name: &'a str, on: &'a str) -> EvictionCandidate<'a> {
    let owner = Owner::Controller { key: name, evicted_ago: None };
    EvictionCandidate {
        pod: pod(name, on),
        owner,
        needs: NEEDS,
        others: 1,
        leaving: false,
        ends_drain: false,
    }
}

/// One stressed and one unstressed node.
fn sites() -> Vec<Site<'static>> {
    vec![site(node("hot", 90, 10)), site(node("cool", 20, 10))]
}

struct Run {
    law: EvictionLaw,
    evictor: Evictor,
    outcomes: Vec<(&'static str, EvictionOutcome)>,
}

impl Run {
    fn new(tuning: Tuning) -> Self {
        Self { law: law(tuning), evictor: Evictor::default(), outcomes: Vec::new() }
    }

    fn step(
        &mut self,
        minute: u64,
        sites: &[Site<'_>],
        candidates: &[EvictionCandidate<'_>],
    ) -> Vec<EvictionVerdict> {
        let now = Stamp::new(minutes(minute));
        let outcomes = std::mem::take(&mut self.outcomes);
        let facts = Facts { now, sites, candidates, outcomes: &outcomes };
        self.evictor
            .step(&self.law, &facts, |_, _| true)
            .into_iter()
            .map(|decision| decision.verdict)
            .collect()
    }

    /// After enough stress, in minute 10.
    fn settled(
        tuning: Tuning,
        sites: &[Site<'_>],
        candidates: &[EvictionCandidate<'_>],
    ) -> Vec<EvictionVerdict> {
        let mut run = Self::new(tuning);
        run.step(0, sites, &[]);
        run.step(10, sites, candidates)
    }
}

fn evicts(verdict: &EvictionVerdict) -> bool {
    matches!(verdict, EvictionVerdict::Evict { .. })
}

fn only(verdicts: &[EvictionVerdict]) -> EvictionVerdict {
    let [verdict] = verdicts else { panic!("{verdicts:?}") };
    verdict.clone()
}

#[test]
fn a_pod_of_a_node_that_stays_hot_is_evicted_with_its_context() {
    let verdict = only(&Run::settled(tuning(), &sites(), &[candidate("web", "hot")]));
    let expected = EvictionVerdict::Evict {
        owner: "web".to_owned(),
        from_class: SchedulableClass::Performance,
        reason: MigrationReason::CoolingStress(Percent::from_int(90)),
        to: "cool".to_owned(),
        dry_run: false,
    };
    assert_eq!(verdict, expected);
}

#[test]
fn every_gate_has_its_own_reason() {
    let web = candidate("web", "hot");
    let skip = |sites: &[Site<'_>], candidate| only(&Run::settled(tuning(), sites, &[candidate]));
    let of = |class, free| RunningPod { hints: Hints::read(Some(class), free), ..web.pod };
    let as_pod = |pod| EvictionCandidate { pod, ..web };
    let cases = [
        (as_pod(of("standard", None)), Skip::NotReschedulable),
        (as_pod(of("performance", Some("true"))), Skip::PerformanceClass),
        (as_pod(RunningPod { demand: DemandClass::PerformanceOnly, ..web.pod }), Skip::PerformanceClass),
        (as_pod(of("perfomance", Some("true"))), Skip::UnclearClass),
        (EvictionCandidate { leaving: true, ..web }, Skip::AlreadyLeaving),
        (EvictionCandidate { owner: Owner::Nobody, ..web }, Skip::NoController),
        (EvictionCandidate { owner: Owner::Pinned, ..web }, Skip::Pinned),
        (EvictionCandidate { owner: Owner::Other, ..web }, Skip::OtherController),
        (EvictionCandidate { others: 0, ..web }, Skip::LastReplica),
    ];
    for (candidate, expected) in cases {
        assert_eq!(skip(&sites(), candidate), EvictionVerdict::Skip(expected));
    }
    let recently = Owner::Controller { key: "web", evicted_ago: Some(minutes(29)) };
    assert_eq!(
        skip(&sites(), EvictionCandidate { owner: recently, ..web }),
        EvictionVerdict::Skip(Skip::OwnerCoolingDown)
    );
    let long_ago = Owner::Controller { key: "web", evicted_ago: Some(minutes(30)) };
    assert!(evicts(&skip(&sites(), EvictionCandidate { owner: long_ago, ..web })));
    let draining = NodeConditions { class: SchedulableClass::Draining, ..node("hot", 20, 20) };
    let drained = [site(draining), site(node("cool", 20, 10))];
    assert_eq!(skip(&drained, web), EvictionVerdict::Skip(Skip::NoStress));
}

#[test]
fn a_pod_that_keeps_a_drain_past_its_deadline_leaves_for_a_node_at_full_power() {
    let draining = NodeConditions { class: SchedulableClass::Draining, ..node("late", 20, 20) };
    let eco = NodeConditions { class: SchedulableClass::Eco, ..node("eco", 5, 5) };
    let sites = [site(draining), site(eco), site(node("full", 20, 10))];
    let web = candidate("web", "late");
    let hints = Hints::read(Some("performance"), Some("true"));
    let pod = RunningPod { hints, demand: DemandClass::PerformanceOnly, ..web.pod };
    let late = EvictionCandidate { pod, ends_drain: true, ..web };
    // The first round is enough: the deadline was the wait.
    let first = |sites: &[Site<'_>], late| only(&Run::new(tuning()).step(0, sites, &[late]));
    let expected = EvictionVerdict::Evict {
        owner: "web".to_owned(),
        from_class: SchedulableClass::Draining,
        reason: MigrationReason::Draining,
        to: "full".to_owned(),
        dry_run: false,
    };
    assert_eq!(first(&sites, late), expected);
    let skip = |late| first(&sites, late);
    let stays = |skip| EvictionVerdict::Skip(skip);
    let asked = |class, free| EvictionCandidate {
        pod: RunningPod { hints: Hints::read(Some(class), free), ..pod },
        ..late
    };
    assert_eq!(skip(EvictionCandidate { ends_drain: false, ..late }), stays(Skip::PerformanceClass));
    assert_eq!(skip(asked("performance", None)), stays(Skip::NotReschedulable));
    assert_eq!(skip(asked("perfomance", Some("true"))), stays(Skip::UnclearClass));
    assert_eq!(skip(EvictionCandidate { others: 0, ..late }), stays(Skip::LastReplica));
    assert_eq!(first(&sites[..2], late), stays(Skip::NoDestination));
    // Blind: the node's stress is unknown, or a worst case.
    let blind = NodeConditions { cooling: None, ..draining };
    assert_eq!(first(&[site(blind), sites[2]], late), stays(Skip::FacilityStale));
    let worst = stress(20).map(|stress| Stress { grounds: Grounds::WorstCase, ..stress });
    let worst = NodeConditions { cooling: worst, ..draining };
    assert_eq!(first(&[site(worst), sites[2]], late), stays(Skip::FacilityStale));
    // The budgets are the same ones.
    let other = EvictionCandidate { pod: RunningPod { name: "data", ..pod }, ..late };
    let other = EvictionCandidate { owner: Owner::Controller { key: "data", evicted_ago: None }, ..other };
    let both = Run::new(tuning()).step(0, &sites, &[late, other]);
    assert_eq!(both.iter().filter(|verdict| evicts(verdict)).count(), 1);
    assert!(both.contains(&stays(Skip::NodeBudgetSpent)));
}

#[test]
fn normal_operation_decides_nothing() {
    let calm = [site(node("hot", 70, 70)), site(node("cool", 20, 10))];
    assert_eq!(Run::settled(tuning(), &calm, &[candidate("web", "hot")]), []);
    let worst = NodeConditions {
        cooling: stress(100).map(|s| Stress { grounds: Grounds::WorstCase, ..s }),
        ..node("hot", 0, 0)
    };
    assert_eq!(Run::settled(tuning(), &[site(worst)], &[candidate("web", "hot")]), []);
}

#[test]
fn stress_must_last_without_a_break() {
    let web = [candidate("web", "hot")];
    let calm = [site(node("hot", 60, 10)), site(node("cool", 20, 10))];
    let mut run = Run::new(tuning());
    assert_eq!(only(&run.step(0, &sites(), &web)), EvictionVerdict::Skip(Skip::StressTooShort));
    assert_eq!(only(&run.step(4, &sites(), &web)), EvictionVerdict::Skip(Skip::StressTooShort));
    assert_eq!(run.step(5, &calm, &web), []);
    assert_eq!(only(&run.step(6, &sites(), &web)), EvictionVerdict::Skip(Skip::StressTooShort));
    assert_eq!(only(&run.step(10, &sites(), &web)), EvictionVerdict::Skip(Skip::StressTooShort));
    assert!(evicts(&only(&run.step(11, &sites(), &web))));
}

#[test]
fn a_clock_that_was_set_back_starts_the_wait_again() {
    let web = [candidate("web", "hot")];
    let mut run = Run::new(tuning());
    run.step(100, &sites(), &web);
    assert_eq!(only(&run.step(3, &sites(), &web)), EvictionVerdict::Skip(Skip::StressTooShort));
    assert!(evicts(&only(&run.step(8, &sites(), &web))));
}

#[test]
fn an_owner_is_asked_once_in_a_cooldown() {
    let (first, second) = (candidate("web-1", "hot"), candidate("web-2", "hot"));
    let owner = Owner::Controller { key: "web", evicted_ago: None };
    let pods = [EvictionCandidate { owner, ..first }, EvictionCandidate { owner, ..second }];
    let mut run = Run::new(Tuning { per_node: 2, ..tuning() });
    run.step(0, &sites(), &pods);
    let verdicts = run.step(10, &sites(), &pods);
    assert!(evicts(&verdicts[0]));
    assert_eq!(verdicts[1], EvictionVerdict::Skip(Skip::OwnerCoolingDown));
    run.outcomes = vec![("web", EvictionOutcome::Evicted)];
    assert_eq!(only(&run.step(39, &sites(), &pods[1..])), EvictionVerdict::Skip(Skip::OwnerCoolingDown));
    assert!(evicts(&only(&run.step(40, &sites(), &pods[1..]))));
}

#[test]
fn a_denied_eviction_may_be_tried_again_and_a_silent_one_counts() {
    let web = [candidate("web", "hot")];
    let mut run = Run::new(tuning());
    run.step(0, &sites(), &web);
    assert!(evicts(&only(&run.step(10, &sites(), &web))));
    run.outcomes = vec![("web", EvictionOutcome::Denied), ("nobody", EvictionOutcome::Evicted)];
    assert_eq!(only(&run.step(11, &sites(), &web)), EvictionVerdict::Skip(Skip::OwnerCoolingDown));
    // A second report of the same denial does not make the wait longer.
    run.outcomes = vec![("web", EvictionOutcome::Denied)];
    assert_eq!(only(&run.step(15, &sites(), &web)), EvictionVerdict::Skip(Skip::OwnerCoolingDown));
    assert!(evicts(&only(&run.step(16, &sites(), &web))));
    // No outcome, as after a lost response.
    assert_eq!(only(&run.step(17, &sites(), &web)), EvictionVerdict::Skip(Skip::OwnerCoolingDown));
    assert!(evicts(&only(&run.step(46, &sites(), &web))));
    // A denial that comes after the eviction was confirmed changes nothing.
    run.outcomes = vec![("web", EvictionOutcome::Evicted), ("web", EvictionOutcome::Denied)];
    assert_eq!(only(&run.step(52, &sites(), &web)), EvictionVerdict::Skip(Skip::OwnerCoolingDown));
    assert!(evicts(&only(&run.step(76, &sites(), &web))));
    // Of a denial and a late eviction, the eviction counts.
    run.outcomes = vec![("web", EvictionOutcome::Denied), ("web", EvictionOutcome::Evicted)];
    assert_eq!(only(&run.step(90, &sites(), &web)), EvictionVerdict::Skip(Skip::OwnerCoolingDown));
}

#[test]
fn a_pod_that_may_not_leave_does_not_keep_the_others_on_the_node() {
    let pods = [candidate("a", "hot"), candidate("b", "hot")];
    let mut run = Run::new(Tuning { window: minutes(5), ..tuning() });
    run.step(0, &sites(), &pods);
    let first = run.step(10, &sites(), &pods);
    assert!(evicts(&first[0]));
    assert_eq!(first[1], EvictionVerdict::Skip(Skip::NodeBudgetSpent));
    // A disruption budget denies it: the node's budget is free for another pod, in the same window.
    run.outcomes = vec![("a", EvictionOutcome::Denied)];
    let second = run.step(11, &sites(), &pods);
    assert_eq!(second[0], EvictionVerdict::Skip(Skip::OwnerCoolingDown));
    assert!(evicts(&second[1]));
    // A pod that no longer existed has left too.
    run.outcomes = vec![("b", EvictionOutcome::Gone)];
    let third = run.step(12, &sites(), &pods);
    assert_eq!(third[1], EvictionVerdict::Skip(Skip::NodeBudgetSpent));
}

#[test]
fn nodes_and_cluster_have_budgets_for_a_window() {
    let hot = |name| site(node(name, 90, 10));
    let sites = [hot("h1"), hot("h2"), hot("h3"), site(node("cool", 20, 10))];
    let pods = [candidate("a", "h1"), candidate("b", "h1"), candidate("c", "h2"), candidate("d", "h3")];
    let mut run = Run::new(tuning());
    run.step(0, &sites, &[]);
    let verdicts = run.step(10, &sites, &pods);
    assert!(evicts(&verdicts[0]) && evicts(&verdicts[2]));
    assert_eq!(verdicts[1], EvictionVerdict::Skip(Skip::NodeBudgetSpent));
    assert_eq!(verdicts[3], EvictionVerdict::Skip(Skip::ClusterBudgetSpent));
    // Repeated calls in one window change nothing.
    let again = run.step(10, &sites, &pods[1..2]);
    assert_eq!(only(&again), EvictionVerdict::Skip(Skip::NodeBudgetSpent));
    assert!(evicts(&only(&run.step(11, &sites, &pods[3..]))));
}

#[test]
fn a_namespace_has_a_budget_of_its_own() {
    let hot = |name| site(node(name, 90, 10));
    let sites = [hot("h1"), hot("h2"), hot("h3"), site(node("cool", 20, 10))];
    let other = candidate("d", "h3");
    let other = EvictionCandidate { pod: RunningPod { namespace: "other", ..other.pod }, ..other };
    let pods = [candidate("a", "h1"), candidate("b", "h2"), other];
    let verdicts = Run::settled(Tuning { per_namespace: 1, per_cluster: 3, ..tuning() }, &sites, &pods);
    assert!(evicts(&verdicts[0]) && evicts(&verdicts[2]));
    assert_eq!(verdicts[1], EvictionVerdict::Skip(Skip::NamespaceBudgetSpent));
}

#[test]
fn a_stress_without_the_data_of_the_facility_moves_nobody_where_these_are_expected() {
    let modelled = NodeConditions {
        cooling: stress(90).map(|stress| Stress { grounds: Grounds::Modelled, ..stress }),
        ..node("hot", 0, 10)
    };
    let sites = [site(modelled), site(node("cool", 20, 10))];
    let web = [candidate("web", "hot")];
    let least = |least| only(&Run::settled(Tuning { least, ..tuning() }, &sites, &web));
    assert_eq!(least(Grounds::Measured), EvictionVerdict::Skip(Skip::FacilityStale));
    assert!(evicts(&least(Grounds::Modelled)));
    // A node whose low stress is only modelled is no destination either.
    let cool = NodeConditions {
        cooling: stress(20).map(|s| Stress { grounds: Grounds::Modelled, ..s }),
        ..node("cool", 0, 10)
    };
    let tuned = Tuning { least: Grounds::Measured, ..tuning() };
    assert_eq!(
        only(&Run::settled(tuned, &[site(node("hot", 90, 10)), site(cool)], &web)),
        EvictionVerdict::Skip(Skip::NoDestination)
    );
    // Once the data are back, the stress must last again.
    let mut run = Run::new(Tuning { least: Grounds::Measured, ..tuning() });
    let measured = [site(node("hot", 90, 10)), sites[1]];
    run.step(0, &measured, &web);
    run.step(4, &sites, &web);
    assert_eq!(only(&run.step(6, &measured, &web)), EvictionVerdict::Skip(Skip::StressTooShort));
    assert!(evicts(&only(&run.step(11, &measured, &web))));
}

#[test]
fn a_break_of_the_stress_between_two_rounds_is_noticed() {
    let web = [candidate("web", "hot")];
    let mut run = Run::new(tuning());
    run.step(0, &sites(), &web);
    run.evictor.watch(&run.law, Stamp::new(minutes(3)), &[node("hot", 60, 10)]);
    assert_eq!(only(&run.step(6, &sites(), &web)), EvictionVerdict::Skip(Skip::StressTooShort));
}

#[test]
fn every_reason_to_stay_has_a_word_of_its_own() {
    let words: std::collections::BTreeSet<_> = Skip::ALL.iter().map(|skip| skip.as_str()).collect();
    assert_eq!(words.len(), Skip::ALL.len());
}

#[test]
fn a_dry_run_spends_the_same_budgets() {
    let pods = [candidate("a", "hot"), candidate("b", "hot")];
    let dry = Tuning { dry_run: true, ..tuning() };
    let (dry, wet) = (Run::settled(dry, &sites(), &pods), Run::settled(tuning(), &sites(), &pods));
    assert!(matches!(dry[0], EvictionVerdict::Evict { dry_run: true, .. }));
    assert!(matches!(wet[0], EvictionVerdict::Evict { dry_run: false, .. }));
    assert_eq!(dry[1], wet[1]);
    let mut run = Run::new(Tuning { dry_run: true, ..tuning() });
    run.step(0, &sites(), &pods);
    run.step(10, &sites(), &pods[..1]);
    // No eviction was requested, so none can have been denied.
    run.outcomes = vec![("a", EvictionOutcome::Denied)];
    assert_eq!(only(&run.step(20, &sites(), &pods[..1])), EvictionVerdict::Skip(Skip::OwnerCoolingDown));
}

#[test]
fn somewhere_must_be_better() {
    let go = |other: Site<'_>| {
        let sites = [site(node("hot", 90, 10)), other];
        only(&Run::settled(tuning(), &sites, &[candidate("web", "hot")]))
    };
    let cool = site(node("cool", 60, 60));
    assert!(evicts(&go(cool)));
    let none = EvictionVerdict::Skip(Skip::NoDestination);
    assert_eq!(go(site(node("cool", 61, 10))), none);
    assert_eq!(go(site(node("cool", 10, 61))), none);
    assert_eq!(go(Site { open: false, ..cool }), none);
    let draining = NodeConditions { class: SchedulableClass::Draining, ..cool.node };
    assert_eq!(go(Site { node: draining, ..cool }), none);
    for free in [
        RequestedResources { cpu_milli: 1_999, ..FREE },
        RequestedResources { memory_bytes: (1 << 30) - 1, ..FREE },
        RequestedResources { pods: 0, ..FREE },
    ] {
        assert_eq!(go(Site { free, ..cool }), none);
    }
    // The stress that the pod leaves must be known to be lower; the other may be unknown.
    assert_eq!(go(site(NodeConditions { cooling: None, ..cool.node })), none);
    assert!(evicts(&go(site(NodeConditions { psu: None, ..cool.node }))));
}

#[test]
fn a_stress_that_is_the_same_everywhere_moves_nobody() {
    // PSU stress of the whole cluster, because there are no racks.
    let sites = [site(node("a", 20, 90)), site(node("b", 20, 90))];
    let verdict = only(&Run::settled(tuning(), &sites, &[candidate("web", "a")]));
    assert_eq!(verdict, EvictionVerdict::Skip(Skip::NoDestination));
}

#[test]
fn room_is_given_away_once() {
    let tight = Site { free: NEEDS, ..site(node("cool", 20, 10)) };
    let sites = [site(node("hot", 90, 10)), tight];
    let pods = [candidate("a", "hot"), candidate("b", "hot")];
    let verdicts = Run::settled(Tuning { per_node: 2, ..tuning() }, &sites, &pods);
    assert!(evicts(&verdicts[0]));
    assert_eq!(verdicts[1], EvictionVerdict::Skip(Skip::NoDestination));
}

#[test]
fn where_the_scheduler_would_not_put_it_is_no_destination() {
    let mut run = Run::new(tuning());
    run.step(0, &sites(), &[]);
    let web = [candidate("web", "hot")];
    let facts = Facts { now: Stamp::new(minutes(10)), sites: &sites(), candidates: &web, outcomes: &[] };
    let decisions = run.evictor.step(&run.law, &facts, |_, site| site.node.name != "cool");
    assert_eq!(decisions[0].verdict, EvictionVerdict::Skip(Skip::NoDestination));
}

#[test]
fn the_hottest_node_goes_first() {
    let sites = [site(node("a-warm", 75, 10)), site(node("b-hot", 99, 10)), site(node("cool", 20, 10))];
    let pods = [candidate("x", "a-warm"), candidate("y", "b-hot")];
    let mut run = Run::new(Tuning { per_cluster: 1, ..tuning() });
    run.step(0, &sites, &[]);
    let facts = Facts { now: Stamp::new(minutes(10)), sites: &sites, candidates: &pods, outcomes: &[] };
    let decisions = run.evictor.step(&run.law, &facts, |_, _| true);
    assert_eq!(decisions[0].node, "b-hot");
    assert!(evicts(&decisions[0].verdict));
    assert_eq!(decisions[1].verdict, EvictionVerdict::Skip(Skip::ClusterBudgetSpent));
}

#[test]
fn what_is_over_is_forgotten() {
    let mut run = Run::new(tuning());
    run.step(0, &sites(), &[]);
    run.step(10, &sites(), &[candidate("web", "hot")]);
    run.step(500, &[], &[]);
    assert!(run.evictor.owners.is_empty() && run.evictor.recent.is_empty());
    assert!(run.evictor.stressed_since.is_empty());
}

#[test]
fn tuning_that_contradicts_itself_is_refused() {
    let refused = |tuning| EvictionLaw::new(migration_law(), tuning).unwrap_err();
    let good = tuning();
    assert_eq!(refused(Tuning { window: Micros::ZERO, ..good }), TuningError::Window);
    assert_eq!(refused(Tuning { window: Micros::MAX, ..good }), TuningError::Window);
    assert_eq!(refused(Tuning { cooldown: Micros::MAX, ..good }), TuningError::Span);
    assert_eq!(refused(Tuning { stressed_for: Micros::MAX, ..good }), TuningError::Span);
    assert_eq!(refused(Tuning { retry: minutes(31), ..good }), TuningError::Retry);
    assert_eq!(refused(Tuning { retry: Micros::new(MINUTE - 1), ..good }), TuningError::Retry);
    assert_eq!(refused(Tuning { per_node: 0, ..good }), TuningError::Budget);
    assert_eq!(refused(Tuning { per_node: 3, ..good }), TuningError::Budget);
    assert_eq!(refused(Tuning { per_namespace: 0, ..good }), TuningError::Budget);
    assert_eq!(refused(Tuning { relief: Percent::from_int(-1), ..good }), TuningError::Relief);
    assert_eq!(refused(Tuning { relief: Percent::from_int(71), ..good }), TuningError::Relief);
}

proptest! {
    #[test]
    fn no_order_of_the_facts_and_no_numbers_break_a_budget_or_move_a_performance_pod(
        heats in prop::collection::vec((0_i32..=100, 0_i32..=100), 5),
        pods in prop::collection::vec((0_usize..5, 0_usize..3, any::<bool>(), 0_usize..4), 0..30),
        keys in prop::collection::vec(any::<u32>(), 30),
    ) {
        const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];
        const CLASSES: [&str; 3] = ["standard", "performance", "perf"];
        const OWNERS: [&str; 4] = ["w", "x", "y", "z"];
        let names: Vec<_> = (0..pods.len()).map(|i| format!("p{i:02}")).collect();
        let sites: Vec<_> = NODES.iter().zip(&heats).map(|(name, &(c, p))| site(node(name, c, p))).collect();
        let candidates: Vec<_> = pods.iter().zip(&names).map(|(&(home, class, free, owner), name)| EvictionCandidate {
            pod: RunningPod { hints: Hints::read(Some(CLASSES[class]), free.then_some("true")), ..pod(name, NODES[home]) },
            owner: Owner::Controller { key: OWNERS[owner], evicted_ago: None },
            ..candidate(name, NODES[home])
        }).collect();
        let decide = |sites: &[Site<'_>], candidates: &[EvictionCandidate<'_>]| {
            let mut evictor = Evictor::default();
            let law = law(tuning());
            let facts = |minute| Facts { now: Stamp::new(minutes(minute)), sites, candidates, outcomes: &[] };
            evictor.step(&law, &facts(0), |_, _| true);
            evictor.step(&law, &facts(10), |_, _| true)
        };
        let decisions = decide(&sites, &candidates);
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let mut turned = sites.clone();
        turned.reverse();
        let shuffled: Vec<_> = order.iter().map(|&i| candidates[i]).collect();
        prop_assert_eq!(&decisions, &decide(&turned, &shuffled));
        let evicted: Vec<_> = decisions.iter().filter(|decision| evicts(&decision.verdict)).collect();
        prop_assert!(evicted.len() <= 2);
        for decision in &evicted {
            let pod = candidates.iter().find(|c| c.pod.name == decision.name).unwrap().pod;
            prop_assert_eq!(pod.may_leave(), Ok(()));
            prop_assert_eq!(evicted.iter().filter(|other| other.node == decision.node).count(), 1);
        }
    }
}
