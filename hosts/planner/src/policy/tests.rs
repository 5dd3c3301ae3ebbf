use super::queue_aware::Knobs;
use super::*;
use power_units::Role;
use proptest::prelude::*;

fn ratio(text: &str) -> Ratio {
    Ratio::parse(text, Role::Nearest).unwrap()
}

fn performance(profiles: &[Profile]) -> Vec<usize> {
    let of = |(at, profile): (usize, &Profile)| (*profile == Profile::Performance).then_some(at);
    profiles.iter().enumerate().filter_map(of).collect()
}

/// How many of `nodes` nodes of one family run at full power, for a policy's count.
fn floored(nodes: u32, count: u32) -> usize {
    performance(&select(&vec![0; nodes as usize], count, FamilyFloor::Raise)).len()
}

fn choose(policy: PlacementPolicy, families: &[u32], pressure: Option<u32>) -> Choice {
    let facts = PlacementPolicyFacts { families, pressure, wall_clock: Micros::ZERO };
    policy.choose(FamilyFloor::Raise, &facts)
}

fn static_partition(fraction: &str) -> PlacementPolicy {
    PlacementPolicy::StaticPartition(StaticPartition::new(ratio(fraction)).unwrap())
}

fn queue_aware(base: &str, min: i64, max: i64, pods_per_node: i64) -> PlacementPolicy {
    PlacementPolicy::QueueAware(QueueAware::new(ratio(base), min, max, pods_per_node).unwrap())
}

#[test]
fn every_row_of_the_static_partition_table_holds() {
    // Table C1.
    let fractions = ["0", "0.10", "0.25", "0.35", "0.50", "0.60", "0.75", "1"];
    for (nodes, counts) in [
        (1, [1, 1, 1, 1, 1, 1, 1, 1]),
        (2, [1, 1, 1, 1, 1, 1, 2, 2]),
        (3, [1, 1, 1, 1, 2, 2, 2, 3]),
        (4, [1, 1, 1, 1, 2, 2, 3, 4]),
        (5, [1, 1, 1, 2, 3, 3, 4, 5]),
        (7, [1, 1, 2, 2, 4, 4, 5, 7]),
        (10, [1, 1, 3, 4, 5, 6, 8, 10]),
    ] {
        for (fraction, expected) in fractions.into_iter().zip(counts) {
            let choice = choose(static_partition(fraction), &vec![0; nodes], None);
            assert_eq!(performance(&choice.profiles).len(), expected, "{nodes} nodes at {fraction}");
            assert_eq!((choice.name, choice.fallback), ("static-partition-v1", None));
        }
    }
    assert_eq!(choose(static_partition("0.5"), &[], None).profiles, []);
    // Out of range the count is clamped; as settings such fractions are refused.
    assert_eq!(floored(2, share(2, ratio("-0.5"))), 1);
    assert_eq!(floored(2, share(2, ratio("1.5"))), 2);
    // Without the floor the count is the plain one, zero included (Fix list operator B19).
    assert!(performance(&select(&[0; 10], share(10, Ratio::ZERO), FamilyFloor::Off)).is_empty());
}

#[test]
fn every_row_of_the_family_table_holds() {
    // Table C2.
    let set = |policy, families: &[u32]| performance(&choose(policy, families, Some(0)).profiles);
    // h100-a, h100-b, mi300x-a, cpu-a
    assert_eq!(set(static_partition("0.25"), &[0, 0, 1, 2]), [0, 2, 3]);
    // gpu1, gpu2, cpu1, cpu2: at least one of each.
    assert_eq!(set(static_partition("0.25"), &[0, 0, 1, 1]), [0, 2]);
    // w7900-a, w7900-b, l40s-a, cpu-a: all three families although max is 2.
    assert_eq!(set(queue_aware("0.10", 0, 2, 10), &[0, 0, 1, 2]), [0, 2, 3]);
    // a, b (H), c (M), d, e (C)
    assert_eq!(set(queue_aware("0", 0, 1, 10), &[0, 0, 1, 2, 2]), [0, 2, 3]);
    assert_eq!(set(static_partition("0.8"), &[0, 0, 1, 2, 2]), [0, 1, 2, 3]);
}

#[test]
fn the_floor_has_three_forms() {
    // Fix list operator B19. H, H, M, C, C with a count of two.
    let families = [0, 0, 1, 2, 2];
    let set = |count, floor| performance(&select(&families, count, floor));
    assert_eq!(set(2, FamilyFloor::Raise), [0, 2, 3]);
    assert_eq!(set(2, FamilyFloor::WithinCount), [0, 2]);
    assert_eq!(set(2, FamilyFloor::Off), [0, 1]);
    assert_eq!(set(0, FamilyFloor::Raise), [0, 2, 3]);
    assert!(set(0, FamilyFloor::WithinCount).is_empty());
    assert_eq!(set(4, FamilyFloor::WithinCount), [0, 1, 2, 3]);
    assert_eq!(set(99, FamilyFloor::Off), [0, 1, 2, 3, 4]);
}

#[test]
fn every_row_of_the_queue_aware_table_holds() {
    // Table C3.
    for (nodes, base, min, max, pods_per_node, pressure, expected) in [
        (5, "0.6", 1, 5, 10, 0, 3),
        (5, "0.6", 1, 5, 10, 40, 4),
        (5, "0.6", 1, 100, 10, 20, 3),
        (5, "0.6", 1, 100, 10, 50, 5),
        (3, "0.34", 1, 3, 2, 2, 1),
        (10, "0.6", 1, 1_000_000, 10, 60, 6),
        (10, "0.6", 1, 1_000_000, 10, 61, 7),
        (10, "0.6", 1, 4, 10, 100, 4),
        (10, "0", 0, 0, 10, 0, 1),
        (10, "0", 3, 2, 10, 0, 3),
        (10, "0.2", 5, 8, 10, 0, 5),
        (10, "0.2", -1, -1, 0, 7, 7),
        (10, "2", 1, 1_000_000, 10, 0, 10),
        // The row "2 .5 −1 −1 0 0" asserts two entries and no panic; half of two is one.
        (2, "0.5", -1, -1, 0, 0, 1),
    ] {
        let knobs = Knobs { base: ratio(base), min, max, pods_per_node };
        let counted = queue_aware::count(&knobs, nodes, pressure);
        assert_eq!(floored(nodes, counted), expected, "{nodes} nodes, {knobs:?}, P = {pressure}");
    }
    let choice = choose(queue_aware("0.6", 1, 5, 10), &[0; 5], Some(40));
    assert_eq!((performance(&choice.profiles).len(), choice.name), (4, "queue-aware-v1"));
}

#[test]
fn without_pods_queue_aware_keeps_its_base_and_says_so() {
    // Table C3, pod LIST error.
    let choice = choose(queue_aware("0.6", 1, 100, 10), &[0; 5], None);
    assert_eq!(performance(&choice.profiles), [0, 1, 2]);
    assert_eq!((choice.name, choice.fallback), ("static-partition-v1", Some(Fallback::PressureUnknown)));
    assert_eq!(choose(static_partition("0.6"), &[0; 5], None).fallback, None);
}

#[test]
fn every_row_of_the_rule_swap_table_holds() {
    // Table C4.
    let millis = |ms: u64| Micros::new(ms * 1000);
    for (nodes, interval_ms, seconds, expected) in [
        (2, 60_000, 0, &[1][..]),
        (2, 60_000, 120, &[1]),
        (2, 60_000, 180, &[0]),
        (1, 60_000, 0, &[]),
        (1, 60_000, 120, &[]),
        (1, 60_000, 180, &[0]),
        (3, 60_000, 0, &[1, 2]),
        (3, 60_000, 60, &[0, 2]),
        (3, 1_500, 1, &[0, 2]),
        (3, 500, 61, &[0, 2]),
        (3, 0, 61, &[0, 2]),
        (0, 60_000, 0, &[]),
    ] {
        let profiles = RuleSwap::new(millis(interval_ms)).profiles(nodes, millis(seconds * 1000));
        assert_eq!(performance(&profiles), expected, "{nodes} nodes, {interval_ms} ms, t = {seconds} s");
    }
    // Fix list operator B25: an interval of zero causes neither a busy loop nor a division by zero.
    let choice = choose(PlacementPolicy::RuleSwap(RuleSwap::new(Micros::ZERO)), &[0, 0], None);
    assert_eq!((choice.name, choice.fallback), ("rule-swap-v1", None));
}

#[test]
fn an_unknown_policy_is_the_static_one_and_is_told_apart() {
    for (text, expected) in [
        ("static_partition", (PolicyType::StaticPartition, true)),
        ("", (PolicyType::StaticPartition, true)),
        (" Queue_Aware_V1 ", (PolicyType::QueueAware, true)),
        ("rule_swap_v1", (PolicyType::RuleSwap, true)),
        ("ml_policy", (PolicyType::StaticPartition, false)),
    ] {
        assert_eq!(PolicyType::read(text), expected, "{text:?}");
    }
    // Table C3, unknown policy: four nodes at one half are two performance nodes.
    assert_eq!(performance(&choose(static_partition("0.5"), &[0; 4], None).profiles), [0, 1]);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    // Fix list operator B12.
    for fraction in ["-0.5", "1.5", "-0.000000001", "1.000000001", "2147483647"] {
        let error = StaticPartition::new(ratio(fraction)).unwrap_err();
        assert!(error.to_string().starts_with("expected STATIC_HP_FRAC from 0 to 1"), "{error}");
        assert!(QueueAware::new(ratio(fraction), 1, 5, 10).is_err());
    }
    for (min, max, pods_per_node) in
        [(-1, 5, 10), (1, -1, 10), (1, 5, 0), (1, 5, -10), (3, 2, 10), (i64::MIN, 5, 10)]
    {
        assert!(
            QueueAware::new(ratio("0.6"), min, max, pods_per_node).is_err(),
            "{min} {max} {pods_per_node}"
        );
    }
    for (min, max) in [(0, 0), (5, 0), (3, 3), (0, i64::MAX)] {
        assert!(QueueAware::new(ratio("0.6"), min, max, 10).is_ok(), "{min} {max}");
    }
}

#[test]
fn a_decimal_half_is_a_half() {
    // 0.45 lies below its nearest multiple of 2⁻³²; read exactly, ten nodes would be 4.4999999995.
    for (nodes, fraction, expected) in
        [(10, "0.45", 5), (10, "0.05", 1), (1000, "0.0005", 1), (10, "0.4499", 4)]
    {
        for role in [Role::Limit, Role::Nearest, Role::Demand] {
            assert_eq!(share(nodes, Ratio::parse(fraction, role).unwrap()), expected, "{nodes} × {fraction}");
        }
    }
    assert_eq!(share(u32::MAX, Ratio::ONE), u32::MAX);
    assert_eq!(share(u32::MAX, Ratio::ZERO), 0);
}

proptest! {
    #[test]
    fn pressure_only_ever_raises_the_count_within_its_bounds(
        nodes in 0_u32..2000, base in 0_i64..=(1 << 32), min in 0_i64..50, more in 0_i64..50,
        per in 1_i64..30, pressure in 0_u32..30_000,
    ) {
        let policy = QueueAware::new(Ratio::from_bits(base), min, min + more, per).unwrap();
        let count = policy.count(nodes, pressure);
        prop_assert!(count <= policy.count(nodes, pressure + 1));
        prop_assert!(count <= nodes);
        prop_assert!(i64::from(count) >= min.min(i64::from(nodes)));
        prop_assert!(more == 0 && min == 0 || i64::from(count) <= min + more);
    }

    #[test]
    fn any_knobs_are_answered(
        nodes in any::<u32>(), base in any::<i64>(), min in any::<i64>(), max in any::<i64>(), per in any::<i64>(),
        pressure in any::<u32>(),
    ) {
        let knobs = Knobs { base: Ratio::from_bits(base), min, max, pods_per_node: per };
        prop_assert!(queue_aware::count(&knobs, nodes, pressure) <= nodes);
    }

    #[test]
    fn every_family_is_supplied_and_no_more_nodes_than_asked_for(
        families in proptest::collection::vec(0_u32..6, 0..40), count in 0_u32..50,
    ) {
        let distinct: BTreeSet<u32> = families.iter().copied().collect();
        let raised = performance(&select(&families, count, FamilyFloor::Raise));
        let supplied: BTreeSet<u32> = raised.iter().map(|&at| families[at]).collect();
        prop_assert_eq!(&supplied, &distinct);
        prop_assert_eq!(raised.len(), (count as usize).max(distinct.len()).min(families.len()));
        let within = performance(&select(&families, count, FamilyFloor::WithinCount));
        prop_assert_eq!(within.len(), (count as usize).min(families.len()));
    }
}
