use super::*;
use crate::classify::Intensity;
use DemandClass::{EcoOnly, General, PerformanceOnly};
use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
use proptest::prelude::*;

fn expression(operator: Operator, values: &[&str]) -> Expression {
    Expression { operator, values: values.iter().map(|&value| value.to_owned()).collect() }
}

/// Terms, of which one must hold, each a list of expressions, which must all hold.
fn affinity(terms: &[&[(Operator, &[&str])]]) -> PodConstraints {
    let term = |term: &&[(Operator, &[&str])]| AffinityTerm {
        expressions: term.iter().map(|&(operator, values)| expression(operator, values)).collect(),
    };
    PodConstraints { affinity: Some(terms.iter().map(term).collect()), ..PodConstraints::default() }
}

fn selector(value: &str) -> PodConstraints {
    PodConstraints { node_selector: Some(value.to_owned()), ..PodConstraints::default() }
}

fn annotation(text: &str) -> PodConstraints {
    PodConstraints { workload_class: Some(text.to_owned()), ..PodConstraints::default() }
}

/// A running pod; without a node if `node` is blank.
fn pod(node: &str, asks: PodConstraints) -> PodRow<'_> {
    PodRow {
        namespace: "default",
        node: Some(node).filter(|node| !node.is_empty()),
        phase: PodPhase::Running,
        terminating: false,
        asks,
        asked: Asked { cpu_milli: 250, gpus: 1, memory_bytes: 64, pods: 1 },
    }
}

#[test]
fn every_row_of_the_classification_table_holds() {
    // Table C6.
    let both: &[&str] = &["eco", "performance"];
    for (asks, class) in [
        (PodConstraints::default(), General),
        (selector("performance"), PerformanceOnly),
        (selector("eco"), EcoOnly),
        (selector("ultra"), General),
        (affinity(&[&[(In, &["performance"])]]), PerformanceOnly),
        (affinity(&[&[(In, &["eco"])]]), EcoOnly),
        (affinity(&[&[(In, both)]]), General),
        (affinity(&[&[(NotIn, &["eco"])]]), PerformanceOnly),
        (affinity(&[&[(NotIn, both)]]), PerformanceOnly),
        (affinity(&[&[(In, &["eco"]), (NotIn, &["eco"])]]), PerformanceOnly),
        (affinity(&[&[(DoesNotExist, &[])]]), General),
        (affinity(&[&[(Gt, &["1"])]]), General),
        (affinity(&[&[(Lt, &["1"])]]), General),
        (affinity(&[&[(Exists, &[])]]), General),
        (affinity(&[&[(In, &[])]]), General),
        (
            PodConstraints {
                node_selector: Some("performance".to_owned()),
                ..affinity(&[&[(In, &["eco"])]])
            },
            PerformanceOnly,
        ),
        (affinity(&[&[(In, &[" eco "])]]), EcoOnly),
        (affinity(&[&[(In, &["eco", "ultra"])]]), EcoOnly),
        (annotation("performance"), PerformanceOnly),
        (annotation(" performance "), PerformanceOnly),
        (annotation("standard"), General),
        (annotation("eco"), General),
        (annotation("best-effort"), General),
        (
            PodConstraints { node_selector: Some("eco".to_owned()), ..annotation("performance") },
            PerformanceOnly,
        ),
        // "performance-only: pod excludes eco in required scheduling constraints": an annotation does not lift them.
        (
            PodConstraints { node_selector: Some("performance".to_owned()), ..annotation("standard") },
            PerformanceOnly,
        ),
    ] {
        assert_eq!(asks.class(), class, "{asks:?}");
    }
}

#[test]
fn a_class_is_what_the_profiles_can_satisfy_and_not_which_words_occur() {
    // Fix list operator B21: rows of table C6 where upstream looks for words. Each value is what a node with the label would do.
    let both: &[&str] = &["eco", "performance"];
    for (asks, class) in [
        // Any one term suffices, so the pod can run on eco.
        (affinity(&[&[(In, &["performance"])], &[(In, &["eco"])]]), General),
        (affinity(&[&[(In, both)], &[(NotIn, &["eco"])]]), General),
        (affinity(&[&[(In, &["eco"])], &[(Exists, &[])]]), General),
        // "eco-only: pod can run only on eco".
        (affinity(&[&[(NotIn, &["performance"])]]), EcoOnly),
        // Neither profile satisfies these.
        (affinity(&[&[(In, &["ultra"])]]), General),
        (affinity(&[]), General),
        // A term about other labels only holds for both.
        (affinity(&[&[(In, &["performance"])], &[]]), General),
    ] {
        assert_eq!(asks.class(), class, "{asks:?}");
    }
}

#[test]
fn a_slip_of_the_pen_in_the_annotation_is_still_performance_and_nonsense_is_counted() {
    // Fix list extender B16: the annotation's case does not matter.
    assert_eq!(annotation("Performance").class(), PerformanceOnly);
    assert!(!annotation("Performance").is_unrecognised());
    assert!(annotation("best-effort").is_unrecognised());
    assert!(!PodConstraints::default().is_unrecognised());
    let pods =
        [annotation("best-effort"), annotation("Performance"), selector("eco")].map(|asks| pod("", asks));
    let expected = ProfileDemand { performance_only: 1, eco_only: 1, general: 1, unrecognised: 1, hard: 0 };
    let ignored = BTreeSet::new();
    let counted = pods.iter().filter_map(|pod| pod.counted(&ignored));
    assert_eq!(PodCounts::of(counted).waiting(), expected);
}

#[test]
fn every_pair_of_constraints_agrees_with_a_node_that_carries_the_label() {
    // The scheduler's rule, written out independently: a node carries the label; selector and one term must match it.
    let values: [&[&str]; 4] = [&[], &["eco"], &["performance"], &["eco", "performance"]];
    let operators = [In, NotIn, Exists, DoesNotExist, Gt, Lt];
    let matches = |label: &str, operator: Operator, values: &[&str]| match operator {
        In => values.contains(&label),
        NotIn => !values.contains(&label),
        Exists => true,
        DoesNotExist => false,
        Gt => label.parse::<i64>().is_ok_and(|label| label > 1),
        Lt => label.parse::<i64>().is_ok_and(|label| label < 1),
    };
    let excludes_eco =
        |&(operator, values): &(Operator, &[&str])| operator == NotIn && values.contains(&"eco");
    for first in operators {
        for first_values in values {
            for second in operators {
                for second_values in values {
                    for or in [false, true] {
                        let runs_on = |label: &str| {
                            let (a, b) =
                                (matches(label, first, first_values), matches(label, second, second_values));
                            if or { a || b } else { a && b }
                        };
                        let (a, b) = ((first, first_values), (second, second_values));
                        let asks = if or { affinity(&[&[a], &[b]]) } else { affinity(&[&[a, b]]) };
                        let class = match (runs_on("performance"), runs_on("eco")) {
                            (true, false) => PerformanceOnly,
                            (false, true) => EcoOnly,
                            (false, false) if [a, b].iter().any(excludes_eco) => PerformanceOnly,
                            (true, true) | (false, false) => General,
                        };
                        assert_eq!(asks.class(), class, "{asks:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_label_key_is_the_clusters_choice() {
    // Fix list operator B20.
    let performance = || vec!["performance".to_owned()];
    let trim = |key| {
        let of_key = RawTerm {
            expressions: vec![("acme.io/power", In, performance()), ("zone", In, vec!["a".to_owned()])],
            has_fields: false,
        };
        PodConstraints::trim(key, None, [("zone", "a")], Some(vec![of_key]))
    };
    assert_eq!(trim("acme.io/power").class(), PerformanceOnly);
    assert_eq!(trim(POWER_PROFILE_LABEL).class(), General);
    let by_selector = |key| PodConstraints::trim(key, None, [("zone", "a"), ("acme.io/power", "eco")], None);
    assert_eq!(by_selector("acme.io/power").class(), EcoOnly);
    assert_eq!(by_selector(POWER_PROFILE_LABEL), PodConstraints::default());
}

#[test]
fn an_empty_term_matches_no_node_but_one_with_fields_may() {
    // Fix list operator B21: match fields.
    let on_performance = RawTerm {
        expressions: vec![(POWER_PROFILE_LABEL, In, vec!["performance".to_owned()])],
        has_fields: false,
    };
    let class = |terms| PodConstraints::trim(POWER_PROFILE_LABEL, None, [], Some(terms)).class();
    assert_eq!(class(vec![on_performance.clone(), RawTerm::default()]), PerformanceOnly);
    assert_eq!(class(vec![on_performance, RawTerm { expressions: vec![], has_fields: true }]), General);
}

#[test]
fn pods_that_are_done_or_leaving_are_not_active() {
    // Table C6, counting; a pending pod is demand (Fix list operator B8).
    let active = |phase: &str, terminating| {
        let phase = PodPhase::read(phase);
        PodRow {
            namespace: "",
            node: None,
            phase,
            terminating,
            asks: PodConstraints::default(),
            asked: Asked::default(),
        }
        .is_active()
    };
    for phase in ["Running", "Unknown", "", "Pending", "Suspended"] {
        assert!(active(phase, false), "{phase}");
        assert!(!active(phase, true), "{phase}");
    }
    for phase in ["Succeeded", "Failed"] {
        assert!(!active(phase, false), "{phase}");
    }
    for text in ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] {
        assert!(Operator::read(text).is_some_and(|read| format!("{read:?}") == text));
    }
    assert_eq!(Operator::read("in"), None);
}

#[test]
fn a_pod_in_an_ignored_namespace_does_not_count() {
    let ignored = BTreeSet::from(["kube-system".to_owned()]);
    let here = pod("a", annotation("performance"));
    let there = PodRow { namespace: "kube-system", ..here.clone() };
    let asked = Asked { cpu_milli: 250, gpus: 1, memory_bytes: 64, pods: 1 };
    let one = Counted {
        node: Some("a"),
        class: Some(PerformanceOnly),
        unrecognised: false,
        asked,
        intensities: Intensities::default(),
    };
    assert_eq!(here.counted(&ignored), Some(one));
    // It still loads its node; a waiting one does not count at all.
    assert_eq!(there.counted(&ignored), Some(Counted { class: None, ..one }));
    assert_eq!(PodRow { node: None, ..there.clone() }.counted(&ignored), None);
    let counts = PodCounts::of([&here, &there].into_iter().filter_map(|pod| pod.counted(&ignored)));
    assert_eq!(counts.bound().map(|(_, demand)| demand.performance_only).collect::<Vec<_>>(), [1]);
    assert_eq!(
        counts.asked().collect::<Vec<_>>(),
        [("a", Asked { cpu_milli: 500, gpus: 2, memory_bytes: 128, pods: 2 })]
    );
}

#[test]
fn a_hard_worker_counts_more_than_an_idle_one() {
    let ignored = BTreeSet::new();
    let asked = Asked { cpu_milli: 1_001, gpus: 2, memory_bytes: 0, pods: 1 };
    let row = PodRow { asked, ..pod("a", annotation("performance")) };
    let counted = |cpu, gpu| {
        let mut counts = PodCounts::default();
        counts.count(&row.counted(&ignored).unwrap().working(Intensities { cpu, gpu }));
        let demand = counts.bound().next().unwrap().1;
        (counts.work().next().unwrap().1, demand.pressure(), demand.performance_only)
    };
    let work = |cpu_milli, gpu_milli| DeviceWork { cpu_milli, gpu_milli };
    // The upper ends of the classes, rounded up: 1001 · 0.30 = 300.3, 1001 · 0.75 = 750.75, 2000 · 0.25 and 2000 · 0.70.
    assert_eq!(counted(Some(Intensity::Low), Some(Intensity::Low)), (work(301, 500), 1, 1));
    assert_eq!(counted(Some(Intensity::Medium), Some(Intensity::Medium)), (work(751, 1_400), 1, 1));
    assert_eq!(counted(Some(Intensity::High), Some(Intensity::None)), (work(1_001, 0), 2, 1));
    assert_eq!(counted(Some(Intensity::Low), Some(Intensity::High)), (work(301, 2_000), 2, 1));
    // What nothing is known of loads its node in full, and is no more demand than before.
    assert_eq!(counted(None, None), (work(1_001, 2_000), 1, 1));
    // A standard pod is no pressure, however hard it works.
    let standard = pod("a", PodConstraints::default());
    let hard = Intensities { cpu: Some(Intensity::High), gpu: None };
    let mut counts = PodCounts::default();
    counts.count(&standard.counted(&ignored).unwrap().working(hard));
    assert_eq!(counts.bound().next().unwrap().1.pressure(), 0);
}

proptest! {
    #[test]
    fn what_was_counted_and_taken_back_leaves_the_counts_of_the_others(
        pods in prop::collection::vec((0_usize..4, 0_usize..4, 0_usize..5, any::<bool>()), 0..40)
    ) {
        let ignored = BTreeSet::new();
        let pods: Vec<(PodRow<'_>, Intensities, bool)> = pods
            .into_iter()
            .map(|(node, class, works, goes)| {
                let asks = [annotation("performance"), selector("eco"), annotation("sloppy"), PodConstraints::default()];
                let levels = [None, Some(Intensity::None), Some(Intensity::Low), Some(Intensity::Medium), Some(Intensity::High)];
                let works = Intensities { cpu: levels[works], gpu: levels[4 - works] };
                (pod(["", "a", "a-node-with-a-long-name-1", "a-node-with-a-long-name-2"][node], asks[class].clone()), works, goes)
            })
            .collect();
        let counts_of = |stays: &dyn Fn(bool) -> bool| {
            let mut counts = PodCounts::default();
            for (pod, works, _) in pods.iter().filter(|(.., goes)| stays(*goes)) {
                counts.count(&pod.counted(&ignored).unwrap().working(*works));
            }
            counts
        };
        let mut counts = counts_of(&|_| true);
        let at_once = pods.iter().map(|(pod, works, _)| pod.counted(&ignored).unwrap().working(*works));
        prop_assert_eq!(&PodCounts::of(at_once), &counts);
        for (pod, works, _) in pods.iter().filter(|(.., goes)| *goes) {
            counts.take_back(&pod.counted(&ignored).unwrap().working(*works));
        }
        prop_assert_eq!(counts, counts_of(&|goes| !goes));
    }
}
