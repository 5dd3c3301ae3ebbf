use super::*;
use proptest::prelude::*;

pub(super) fn law() -> MigrationLaw {
    MigrationLaw::new(THRESHOLD).unwrap()
}

pub(super) fn stress(percent: i32) -> Option<Stress> {
    Some(Stress { percent: Percent::from_int(percent), grounds: Grounds::Measured })
}

pub(super) fn node(name: &str, cooling: i32, psu: i32) -> NodeConditions<'_> {
    NodeConditions { name, class: SchedulableClass::Performance, cooling: stress(cooling), psu: stress(psu) }
}

pub(super) fn pod<'a>(name: &'a str, node: &'a str) -> RunningPod<'a> {
    RunningPod {
        namespace: "apps",
        name,
        node,
        hints: Hints::read(None, Some("true")),
        demand: DemandClass::General,
    }
}

fn names(
    law: &MigrationLaw,
    node: NodeConditions<'_>,
    pods: &[RunningPod<'_>],
) -> Vec<(String, &'static str)> {
    let all = recommend(law, &[node], pods);
    all.get(node.name).unwrap().iter().map(|entry| (entry.name.clone(), entry.reason.as_str())).collect()
}

fn count(node: NodeConditions<'_>, pods: &[RunningPod<'_>]) -> usize {
    names(&law(), node, pods).len()
}

#[test]
fn c15_only_a_stressed_or_draining_node_lets_pods_go() {
    let fixed = RunningPod { hints: Hints::read(None, None), ..pod("fixed", "n") };
    let pods = [pod("free", "n"), fixed];
    assert_eq!(count(node("n", 30, 20), &pods), 0);
    assert_eq!(count(node("n", 80, 75), &pods), 1);
    let draining = NodeConditions { class: SchedulableClass::Draining, ..node("n", 10, 10) };
    assert_eq!(names(&law(), draining, &pods), [("free".to_owned(), "draining")]);
}

#[test]
fn c15_the_threshold_itself_is_not_exceeded() {
    let psu = |percent: Percent| NodeConditions {
        psu: Some(Stress { percent, grounds: Grounds::Measured }),
        ..node("n", 10, 0)
    };
    assert_eq!(count(psu(Percent::from_int(70)), &[pod("p", "n")]), 0);
    // 35,000.5 W of 50 kW are 70.001 %.
    let more = Percent::parse("70.001", power_units::Role::Nearest).unwrap();
    assert_eq!(count(psu(more), &[pod("p", "n")]), 1);
    // 78.4 % of the cooling: that of a node of 3920 W in the linear model.
    assert_eq!(count(node("n", 78, 0), &[pod("p", "n")]), 1);
}

#[test]
fn performance_pods_are_never_asked_to_leave() {
    // Fix list operator B-R2: also not from a draining node, and not when the class is misspelt.
    let of = |class| RunningPod { hints: Hints::read(Some(class), Some("true")), ..pod("p", "n") };
    for stressed in
        [node("n", 99, 99), NodeConditions { class: SchedulableClass::Draining, ..node("n", 1, 1) }]
    {
        for class in ["performance", "Performance ", "perfomance", "best-effort"] {
            assert_eq!(count(stressed, &[of(class)]), 0, "{class}");
        }
        assert_eq!(count(stressed, &[of("standard")]), 1);
    }
    assert_eq!(of("performance").may_leave(), Err(Stays::PerformanceClass));
    assert_eq!(of("perf").may_leave(), Err(Stays::UnclearClass));
    let silent = RunningPod { hints: Hints::read(None, Some("yes")), ..pod("p", "n") };
    assert_eq!(silent.may_leave(), Err(Stays::NotReschedulable));
}

#[test]
fn a_pod_whose_constraints_exclude_eco_is_of_the_performance_class_too() {
    // The guard holds a node for it, so it must not be moved, whatever its annotations are.
    for class in [None, Some("standard")] {
        let hints = Hints::read(class, Some("true"));
        let of = |demand| RunningPod { hints, demand, ..pod("p", "n") };
        assert_eq!(of(DemandClass::PerformanceOnly).may_leave(), Err(Stays::PerformanceClass));
        assert_eq!(count(node("n", 99, 99), &[of(DemandClass::PerformanceOnly)]), 0);
        assert_eq!(count(node("n", 99, 99), &[of(DemandClass::EcoOnly), of(DemandClass::General)]), 2);
    }
}

#[test]
fn a_recommendation_names_the_pod_and_the_larger_stress() {
    // Fix list operator B-R1.
    let reason = |cooling, psu| law().reason(&node("n", cooling, psu));
    assert_eq!(reason(80, 75), Some(MigrationReason::CoolingStress(Percent::from_int(80))));
    assert_eq!(reason(75, 80), Some(MigrationReason::PsuStress(Percent::from_int(80))));
    assert_eq!(reason(80, 80), Some(MigrationReason::CoolingStress(Percent::from_int(80))));
    assert_eq!(reason(60, 71), Some(MigrationReason::PsuStress(Percent::from_int(71))));
    let all = recommend(&law(), &[node("n", 80, 0)], &[pod("web-7", "n")]);
    let expected = Recommendation {
        namespace: "apps".to_owned(),
        name: "web-7".to_owned(),
        reason: MigrationReason::CoolingStress(Percent::from_int(80)),
    };
    assert_eq!(all.get("n"), Some(&vec![expected]));
}

#[test]
fn a_node_that_has_cooled_down_has_an_empty_list_and_not_none() {
    // Fix list operator B-R6.
    let all = recommend(&law(), &[node("cool", 10, 10)], &[pod("p", "cool"), pod("q", "elsewhere")]);
    assert_eq!(all, BTreeMap::from([("cool".to_owned(), Vec::new())]));
}

#[test]
fn a_stress_that_nobody_saw_is_no_reason_to_move() {
    // A node without a meter counts with all that its caps allow: 100 % of its cooling, but unmeasured.
    let by = |grounds| NodeConditions {
        cooling: Some(Stress { percent: Percent::HUNDRED, grounds }),
        psu: None,
        ..node("n", 0, 0)
    };
    assert_eq!(count(by(Grounds::WorstCase), &[pod("p", "n")]), 0);
    assert_eq!(count(by(Grounds::Modelled), &[pod("p", "n")]), 1);
    let blind = NodeConditions { cooling: None, psu: None, ..node("n", 0, 0) };
    assert_eq!(count(blind, &[pod("p", "n")]), 0);
}

#[test]
fn a_marked_node_has_its_reason_until_the_stress_has_eased() {
    let held = |cooling, psu, mark| {
        law().reason_of_marked(&node("n", cooling, psu), mark).and_then(MigrationReason::stress)
    };
    let (cooling, psu) = (Some(StressKind::Cooling), Some(StressKind::Psu));
    assert_eq!(held(65, 10, None), None);
    assert_eq!(held(65, 10, cooling), cooling);
    assert_eq!(held(64, 10, cooling), None);
    // The other stress takes its place only if it is clearly larger, or the marked one has eased.
    assert_eq!((held(80, 85, cooling), held(80, 86, cooling)), (cooling, psu));
    assert_eq!((held(85, 80, psu), held(86, 80, psu)), (psu, cooling));
    assert_eq!(held(10, 66, cooling), psu);
    let draining = NodeConditions { class: SchedulableClass::Draining, ..node("n", 10, 10) };
    assert_eq!(law().reason_of_marked(&draining, cooling), Some(MigrationReason::Draining));
}

#[test]
fn a_mark_begins_with_a_recommendation_and_ends_when_the_stress_is_seen_to_have_eased() {
    let (cooling, hot) = (Some(StressKind::Cooling), node("n", 80, 10));
    assert_eq!(law().mark(&hot, None, false), None);
    assert_eq!(law().mark(&hot, None, true), cooling);
    // Its last pod may have left.
    assert_eq!(law().mark(&hot, cooling, false), cooling);
    assert_eq!(law().mark(&node("n", 65, 10), cooling, false), cooling);
    assert_eq!(law().mark(&node("n", 64, 10), cooling, false), None);
    let draining = NodeConditions { class: SchedulableClass::Draining, ..node("n", 10, 10) };
    assert_eq!(law().mark(&draining, None, true), None);
    // Nobody has seen that it is cool.
    for stress in [None, Some(Stress { percent: Percent::ZERO, grounds: Grounds::WorstCase })] {
        let blind = NodeConditions { cooling: stress, ..node("n", 0, 10) };
        assert_eq!(law().reason_of_marked(&blind, cooling), None);
        assert_eq!((law().mark(&blind, cooling, false), law().mark(&blind, None, false)), (cooling, None));
    }
}

#[test]
fn a_threshold_is_a_percentage() {
    for percent in [-1, 101] {
        assert_eq!(MigrationLaw::new(Percent::from_int(percent)), Err(ThresholdOutOfRange));
    }
    assert!(MigrationLaw::new(Percent::ZERO).is_ok() && MigrationLaw::new(Percent::HUNDRED).is_ok());
}

proptest! {
    #[test]
    fn the_order_of_nodes_and_pods_does_not_matter(
        stresses in prop::collection::vec((0_i32..=100, 0_i32..=100), 4),
        homes in prop::collection::vec((0_usize..4, any::<bool>()), 0..20),
        keys in prop::collection::vec(any::<u32>(), 24),
    ) {
        const NODES: [&str; 4] = ["a", "b", "c", "d"];
        let nodes: Vec<_> = NODES.iter().zip(&stresses).map(|(name, &(c, p))| node(name, c, p)).collect();
        let names: Vec<_> = (0..homes.len()).map(|i| format!("p{i}")).collect();
        let pods: Vec<_> = homes.iter().zip(&names).map(|(&(home, free), name)| RunningPod {
            hints: Hints::read(None, free.then_some("true")),
            ..pod(name, NODES[home])
        }).collect();
        let shuffled = |len: usize| {
            let mut order: Vec<usize> = (0..len).collect();
            order.sort_by_key(|&i| keys[i]);
            order
        };
        let other_nodes: Vec<_> = shuffled(nodes.len()).into_iter().map(|i| nodes[i]).collect();
        let other_pods: Vec<_> = shuffled(pods.len()).into_iter().map(|i| pods[i]).collect();
        prop_assert_eq!(recommend(&law(), &nodes, &pods), recommend(&law(), &other_nodes, &other_pods));
    }
}
