use super::*;
use crate::placement::dice::Dice;
use std::vec::Vec;

const GIB: u64 = 1 << 30;

fn amounts(cores: u64, gib: u64, gpus: u64) -> Amounts {
    Amounts { cpu_milli: cores * 1000, memory_bytes: gib * GIB, gpus }
}

fn node(cores: u64, gib: u64) -> ScheduledNode {
    ScheduledNode::empty(amounts(cores, gib, 0), 110)
}

fn pod(cores: u64, gib: u64) -> ScheduledPod {
    ScheduledPod::EMPTY.with(Some(cores * 1000), Some(gib * GIB), 0)
}

#[test]
fn an_empty_node_is_scored_as_by_hand() {
    // 4 of 16 cores and 8 of 64 GiB: 75 and 87 (87.5) are left, 81 at the mean; the shares are 0.25 and 0.125, balance
    // is 100 − 6.25 = 93, and without the pod 100: 50 + (50 − 7) / 2 = 71.
    let (node, pod) = (node(16, 64), pod(4, 8));
    assert_eq!(SchedulerProfile::DEFAULT.fit(&node, &pod), 81);
    assert_eq!(balance_points(&node, &pod), 71);
    assert_eq!(SchedulerProfile::DEFAULT.total(&node, &pod, 0), 81 + 71 + 300);
    // 25 and 12 are used, 18 at the mean.
    assert_eq!(SchedulerProfile::PACKING.fit(&node, &pod), 18);
}

#[test]
fn a_pod_that_improves_the_balance_has_more_points_there() {
    let mut used = node(16, 64);
    // 8 of 16 cores and nothing else but 1 GiB.
    used.bind(&pod(8, 1));
    let memory = ScheduledPod::EMPTY.with(Some(0), Some(31 * GIB), 0);
    // Before: 0.5 and 1/64, balance 100 − 24.2 = 75; after: 0.5 and 0.5, 100: 50 + (50 + 25) / 2 = 87.
    assert_eq!(balance_points(&used, &memory), 87);
}

#[test]
fn a_container_without_requests_counts_where_kube_scheduler_counts_it() {
    let silent = ScheduledPod::EMPTY.with(None, None, 0).with(Some(1000), None, 0);
    assert_eq!(silent.requests, Amounts { cpu_milli: 1000, memory_bytes: 0, gpus: 0 });
    assert_eq!(silent.counted, Amounts { cpu_milli: 1100, memory_bytes: 400 << 20, gpus: 0 });
    let nothing = ScheduledPod::EMPTY.with(None, None, 0);
    let node = node(1, 1);
    // 900 of 1000 are left: 90; 824 of 1024 MiB: 80; no points for balance.
    assert_eq!(SchedulerProfile::DEFAULT.resources(&node, &nothing), 85);
    assert!(ScheduledNode { requested: node.allocatable, ..node }.fits(&nothing));
}

#[test]
fn each_resource_and_the_number_of_pods_are_limits() {
    let mut node = ScheduledNode::empty(amounts(4, 8, 2), 3);
    assert!(node.fits(&pod(4, 8)));
    assert!(!node.fits(&pod(5, 1)) && !node.fits(&pod(1, 9)));
    let gpus = |count| ScheduledPod::EMPTY.with(Some(1), Some(1), count);
    assert!(node.fits(&gpus(2)) && !node.fits(&gpus(3)));
    for _ in 0..3 {
        node.bind(&pod(1, 1));
    }
    assert!(!node.fits(&ScheduledPod::EMPTY), "no room for a fourth pod");
    node.release(&pod(1, 1));
    assert!(node.fits(&ScheduledPod::EMPTY));
    let full = ScheduledNode { requested: amounts(9, 9, 9), ..node };
    assert!(!full.fits(&pod(1, 0)) && full.fits(&ScheduledPod::EMPTY));
}

#[test]
fn gpus_count_only_with_a_weight_and_for_pods_that_ask_for_them() {
    let profile = SchedulerProfile { weights: [0, 0, 1], ..SchedulerProfile::PACKING };
    let mut node = ScheduledNode::empty(amounts(16, 64, 8), 110);
    node.bind(&ScheduledPod::EMPTY.with(Some(1000), Some(GIB), 4));
    let two = ScheduledPod::EMPTY.with(Some(1000), Some(GIB), 2);
    assert_eq!(profile.fit(&node, &two), 75);
    assert_eq!(profile.fit(&node, &pod(1, 1)), 0);
    assert_eq!(SchedulerProfile::PACKING.fit(&node, &two), SchedulerProfile::PACKING.fit(&node, &pod(1, 1)));
}

#[test]
fn taints_are_weighed_against_the_most_that_a_candidate_has() {
    let (clean, tainted) = (node(16, 64), ScheduledNode { avoided: 1, ..node(16, 64) });
    let worse = ScheduledNode { avoided: 2, ..node(16, 64) };
    let (pod, profile) = (pod(1, 4), SchedulerProfile::DEFAULT);
    let totals = [clean, tainted, worse].map(|node| profile.total(&node, &pod, 2));
    assert_eq!([totals[0] - totals[1], totals[1] - totals[2]], [150, 150]);
    let nodes = [clean, tainted, worse];
    let best = profile.best(nodes.iter(), &pod).unwrap();
    assert!(profile.may_take(&clean, &pod, best) && !profile.may_take(&tainted, &pod, best));
    assert_eq!(profile.best([worse].iter(), &pod).unwrap().avoided_most, 2);
    assert_eq!(profile.best(nodes.iter().take(0), &pod), None);
}

#[test]
fn points_are_in_their_range_and_follow_the_load() {
    let mut dice = Dice::new(7);
    for _ in 0..20_000 {
        let all = amounts(1 + dice.below(256), 1 + dice.below(2048), 0);
        let mut node = ScheduledNode::empty(all, 110);
        let some = |dice: &mut Dice| {
            let (cpu, memory) = (dice.below(all.cpu_milli * 2), dice.below(all.memory_bytes * 2));
            ScheduledPod::EMPTY.with(Some(cpu), Some(memory), 0)
        };
        let pod = some(&mut dice);
        let (default, packing) = (SchedulerProfile::DEFAULT, SchedulerProfile::PACKING);
        let before = (default.fit(&node, &pod), packing.fit(&node, &pod));
        node.bind(&some(&mut dice));
        let after = (default.fit(&node, &pod), packing.fit(&node, &pod));
        assert!(after.0 <= before.0 && after.1 >= before.1 && before.0 <= 100 && after.1 <= 100);
        assert!((50..=100).contains(&balance_points(&node, &pod)));
        let float = |requested: u64, all: u64| (requested as f64 / all as f64).min(1.0);
        let shares = |of: Amounts| {
            let apart = float(of.cpu_milli, all.cpu_milli) - float(of.memory_bytes, all.memory_bytes);
            ((1.0 - (apart / 2.0).abs()) * 100.0) as u64
        };
        assert_eq!(balance(all, node.requested), shares(node.requested));
    }
    let absurd = Amounts { cpu_milli: u64::MAX, memory_bytes: u64::MAX, gpus: u64::MAX };
    let huge = ScheduledPod { requests: absurd, counted: absurd };
    let node = ScheduledNode { requested: absurd, counted: absurd, ..ScheduledNode::empty(absurd, u32::MAX) };
    let all = [SchedulerProfile::DEFAULT, SchedulerProfile::PACKING];
    let totals: Vec<u64> = all.iter().map(|profile| profile.resources(&node, &huge)).collect();
    assert!(totals.iter().all(|total| *total <= 200), "{totals:?}");
}
