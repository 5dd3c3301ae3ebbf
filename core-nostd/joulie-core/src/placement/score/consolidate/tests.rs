use super::super::{Formula, ScoreMax, TwinPower, TwinStatus, UnknownScore};
use super::*;
use crate::placement::class::WorkloadClass;
use crate::placement::demand::{GpuDemand, GpuVendor, MilliCores};
use crate::placement::dice::Dice;
use crate::placement::estimate::{Coefficients, NodeGpus};
use crate::placement::freshness::Freshness;
use proptest::prelude::*;

fn watts(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn pod(cores: u32, gpus: u32) -> ConsolidatePod {
    let gpus = (gpus > 0).then_some(GpuDemand { count: gpus, vendor: GpuVendor::Nvidia });
    let cpu = MilliCores::new(cores * 1000);
    ConsolidatePod::of(&PodDemand {
        class: WorkloadClass::Standard,
        cpu,
        memory_bytes: 0,
        gpus,
        gpu_quarters: 0,
    })
}

/// 96 cores, of which pods ask for 44; 144 W at rest.
const CPU: ConsolidateFacts = ConsolidateFacts {
    cores_milli: Some(96_000),
    requested_milli: 44_000,
    cards: Some(NodeCards { all: 0, free: 0 }),
    milli_per_gpu: 0,
    is_spare: false,
    supply: GpuSupply::Ample,
    is_used: true,
    at_rest: Some(Watts::from_int(144)),
    room: Some(Watts::from_int(300)),
    is_emptied: false,
};
/// 128 cores of which 40 are asked for, and eight GPUs of which five are taken; 940 W at rest.
const GPU: ConsolidateFacts = ConsolidateFacts {
    cores_milli: Some(128_000),
    requested_milli: 40_000,
    cards: Some(NodeCards { all: 8, free: 3 }),
    milli_per_gpu: 16_000,
    is_spare: false,
    supply: GpuSupply::Ample,
    is_used: true,
    at_rest: Some(Watts::from_int(940)),
    room: Some(Watts::from_int(3_000)),
    is_emptied: false,
};

fn empty(node: ConsolidateFacts) -> ConsolidateFacts {
    let cards = node.cards.map(|cards| NodeCards { free: cards.all, ..cards });
    ConsolidateFacts { is_used: false, requested_milli: 0, cards, ..node }
}

fn explained(node: &ConsolidateFacts, pod: &ConsolidatePod, added: i32) -> Consolidated {
    ConsolidateTerms::of(node).explain(pod, watts(added), Watts::ZERO)
}

fn score(node: &ConsolidateFacts, pod: &ConsolidatePod, added: i32) -> u8 {
    explained(node, pod, added).score
}

#[test]
fn the_parts_are_as_calculated_by_hand() {
    // Four cores: the scale is 120 W. 60 · 120² / (120² + 20²) = 58, 30 · 48 / 96 = 15, and no GPU node is broken.
    let used = explained(&CPU, &pod(4, 0), 20);
    assert_eq!((used.watts, used.fill, used.whole, used.score), (58, 15, 10, 83));
    assert_eq!(used.cost, Some(watts(20)));
    // 60 · 120² / (120² + 164²) = 20, 30 · 4 / 96 = 1.
    let first = explained(&empty(CPU), &pod(4, 0), 20);
    assert_eq!((first.watts, first.fill, first.whole, first.score), (20, 1, 10, 31));
    assert_eq!(first.cost, Some(watts(164)));
    // One GPU and eight cores: 490 W. 60 · 490² / (490² + 500²) = 29, 30 · 6 / 8 = 22.
    let used = explained(&GPU, &pod(8, 1), 500);
    assert_eq!((used.watts, used.fill, used.whole, used.score), (29, 22, 10, 61));
    // 60 · 490² / (490² + 1,440²) = 6, 30 / 8 = 3, and the whole node is broken.
    let first = explained(&empty(GPU), &pod(8, 1), 500);
    assert_eq!((first.watts, first.fill, first.whole, first.score), (6, 3, 0, 9));
    // A job for all eight breaks nothing.
    assert_eq!(explained(&empty(GPU), &pod(8, 8), 2_000).whole, 10);
}

#[test]
fn a_node_at_rest_draws_parts_of_its_most_and_an_unknown_part_is_unknown() {
    let cpu = HardwareRecord { cpu_max: Some(watts(720)), cores: Some(96), gpus: None };
    assert_eq!(cpu.at_rest(), Some(watts(144)));
    let gpus = NodeGpus { count: Some(8), max: Some(watts(700)), vendor: None, adds: None };
    let both = HardwareRecord { cpu_max: Some(watts(500)), gpus: Some(gpus), ..cpu };
    assert_eq!(both.at_rest(), Some(watts(940)));
    for unknown in [
        HardwareRecord { cpu_max: None, ..both },
        HardwareRecord { cpu_max: Some(Watts::ZERO), ..both },
        HardwareRecord { gpus: Some(NodeGpus { count: None, ..gpus }), ..both },
        HardwareRecord { gpus: Some(NodeGpus { max: None, ..gpus }), ..both },
    ] {
        assert_eq!(unknown.at_rest(), None, "{unknown:?}");
    }
    let none = HardwareRecord {
        gpus: Some(NodeGpus { count: Some(0), max: None, vendor: None, adds: None }),
        ..cpu
    };
    assert_eq!(none.at_rest(), Some(watts(144)));
}

#[test]
fn no_pod_goes_over_a_cap_or_where_it_does_not_fit() {
    let held = |node: &ConsolidateFacts, pod: &ConsolidatePod, added| {
        let why = explained(node, pod, added);
        (why.held_back, why.score)
    };
    assert_eq!(held(&CPU, &pod(4, 0), 301), (Some(HeldBack::OverCap), 0));
    assert_eq!(held(&CPU, &pod(4, 0), 300).0, None);
    let assumed = ConsolidateTerms::of(&CPU).explain(&pod(4, 0), watts(200), watts(101));
    assert_eq!((assumed.held_back, assumed.score), (Some(HeldBack::OverCap), 0));
    assert_eq!(held(&CPU, &pod(53, 0), 20), (Some(HeldBack::Full), 0));
    assert_eq!(held(&GPU, &pod(8, 4), 500), (Some(HeldBack::Full), 0));
    let over = ConsolidateFacts { room: Some(watts(-50)), ..CPU };
    assert_eq!(held(&over, &pod(4, 0), 0), (Some(HeldBack::OverCap), 0));
}

#[test]
fn a_pod_without_gpus_has_only_the_surplus_cores_of_a_gpu_node() {
    // 88 cores are free, and three free GPUs need 48 of them.
    assert_eq!(explained(&GPU, &pod(40, 0), 100).held_back, None);
    assert_eq!(explained(&GPU, &pod(41, 0), 100).held_back, Some(HeldBack::GpuCores));
    // A node whose GPUs are all taken has nothing but surplus.
    let full = ConsolidateFacts { cards: Some(NodeCards { all: 8, free: 0 }), ..GPU };
    assert_eq!(explained(&full, &pod(88, 0), 100).held_back, None);
    // On an empty GPU node it would break a whole one, and wake 940 W.
    assert!(score(&empty(GPU), &pod(4, 0), 20) < score(&empty(CPU), &pod(4, 0), 20));
}

#[test]
fn a_spare_gpu_node_gives_all_its_cores_and_may_be_broken() {
    let spare = ConsolidateFacts { is_spare: true, ..GPU };
    assert_eq!(explained(&spare, &pod(88, 0), 100).held_back, None);
    let whole = ConsolidateFacts { is_spare: true, ..empty(GPU) };
    assert_eq!(
        (explained(&whole, &pod(8, 1), 500).whole, explained(&empty(GPU), &pod(8, 1), 500).whole),
        (10, 0)
    );
    // Unknown cards are no spare ones.
    let unknown = ConsolidateFacts { is_spare: true, cards: None, ..CPU };
    assert_eq!(explained(&unknown, &pod(4, 0), 20).held_back, Some(HeldBack::GpuCores));
    // Twenty nodes of eight GPUs: a fiftieth of them are four, and one node has more. The node itself does not count, nor one that is used.
    let cards = NodeCards { all: 8, free: 8 };
    let of = |whole: u32| {
        let mut nodes = WholeNodes::default();
        let used = |number| if number < whole { GpuNodeUse::Whole } else { GpuNodeUse::Open };
        (0..20).for_each(|number| nodes.see(NodeCards { free: 0, ..cards }, used(number)));
        (nodes.spares(cards, GpuNodeUse::Whole), nodes.spares(cards, GpuNodeUse::Open))
    };
    assert_eq!((of(0), of(1), of(2)), ((false, false), (false, true), (true, true)));
    assert!(!WholeNodes::default().spares(NodeCards::default(), GpuNodeUse::Whole));
}

#[test]
fn standard_pods_with_gpus_are_spread_where_few_are_free() {
    let scarce = |node: ConsolidateFacts| ConsolidateFacts { supply: GpuSupply::Scarce, ..node };
    // Of eight GPUs three are free: with one more pod 30 · 6 / 8 = 22 points for what is taken, 30 · 2 / 8 = 7 for what is left.
    let fill = |node: &ConsolidateFacts, pod: &ConsolidatePod| explained(node, pod, 500).fill;
    assert_eq!((fill(&GPU, &pod(8, 1)), fill(&scarce(GPU), &pod(8, 1))), (22, 7));
    // A node with five free ones comes after it, and before it where they are scarce. A whole one comes last all the same.
    let emptier = ConsolidateFacts { cards: Some(NodeCards { all: 8, free: 5 }), ..GPU };
    assert!(score(&emptier, &pod(8, 1), 500) < score(&GPU, &pod(8, 1), 500));
    assert!(score(&scarce(emptier), &pod(8, 1), 500) > score(&scarce(GPU), &pod(8, 1), 500));
    assert_eq!(fill(&scarce(empty(GPU)), &pod(8, 1)), 0);
    // Performance pods, and pods without GPUs, are packed all the same.
    let performance = ConsolidatePod { is_standard: false, ..pod(8, 1) };
    assert_eq!(fill(&scarce(GPU), &performance), 22);
    assert_eq!(explained(&scarce(GPU), &pod(4, 0), 20), explained(&GPU, &pod(4, 0), 20));
}

#[test]
fn a_pod_goes_where_it_leaves_no_gpu_without_cores() {
    let cores = |node: &ConsolidateFacts, pod: &ConsolidatePod| explained(node, pod, 500).cores;
    // Three free GPUs need 48 of 88 free cores. One with 64 cores leaves 24 for two, which need 32: half of a GPU lacks them.
    assert_eq!(cores(&GPU, &pod(56, 1)), 0);
    assert_eq!(cores(&GPU, &pod(64, 1)), -6);
    // A core more is a sixteenth of a GPU and of 12 points, rounded down: 12 · 9 / 16 = 6.75.
    assert_eq!(cores(&GPU, &pod(65, 1)), -7);
    // Of seven free GPUs with 28 cores 84 of 112 are missing. After one GPU with 4 cores 72 are: 12 · 12 / 16; after one with 28 all of 96.
    let roomy = ConsolidateFacts { requested_milli: 0, cards: Some(NodeCards { all: 8, free: 7 }), ..GPU };
    let lacking = ConsolidateFacts { requested_milli: 100_000, ..roomy };
    assert_eq!((cores(&lacking, &pod(4, 1)), cores(&lacking, &pod(28, 1))), (9, -9));
    // So of two nodes with as many GPUs a pod with 4 cores goes where they lack, and one with 28 where they do not.
    assert!(score(&lacking, &pod(4, 1), 500) > score(&roomy, &pod(4, 1), 500));
    assert!(score(&lacking, &pod(28, 1), 500) < score(&roomy, &pod(28, 1), 500));
    // Pods without GPUs have a rule of their own, and without a need, or a known number of GPUs, nothing lacks.
    assert_eq!(cores(&lacking, &pod(4, 0)), 0);
    assert_eq!(cores(&ConsolidateFacts { milli_per_gpu: 0, ..lacking }, &pod(4, 1)), 0);
    assert_eq!(cores(&ConsolidateFacts { cards: None, ..lacking }, &pod(4, 1)), 0);
    assert_eq!(cores(&ConsolidateFacts { cores_milli: None, ..lacking }, &pod(0, 1)), 0);
    // A node where the pod fits keeps a point: all cores are gone, and six GPUs that need 96 are left. 12 · 96 / 16 is more than the rest.
    let all = explained(&roomy, &pod(128, 1), 500);
    assert_eq!((all.watts, all.fill, all.whole), (49, 7, 10));
    assert_eq!((all.cores, all.held_back, all.score), (-72, None, 1));
    // Numbers of any size give points in their range.
    let huge = ConsolidateFacts {
        cores_milli: Some(u32::MAX),
        cards: Some(NodeCards { all: u32::MAX, free: u32::MAX }),
        milli_per_gpu: u32::MAX,
        ..GPU
    };
    assert_eq!(cores(&huge, &pod(4, u32::MAX)), 100);
    let vast = ConsolidateFacts {
        milli_per_gpu: 1_000,
        cards: Some(NodeCards { all: 4_000_000, free: 4_000_000 }),
        ..huge
    };
    assert_eq!(cores(&vast, &pod(4_200_000, 1)), -100);
}

#[test]
fn pods_without_gpus_leave_the_cores_of_all_gpus_where_these_are_short() {
    // 120 cores are free, and one GPU is: it needs 16 of them, and all eight need 128.
    let node = |supply| {
        let cards = Some(NodeCards { all: 8, free: 1 });
        ConsolidateFacts { supply, cards, requested_milli: 8_000, ..GPU }
    };
    let held_back = |node: ConsolidateFacts| explained(&node, &pod(1, 0), 20).held_back;
    assert_eq!(held_back(node(GpuSupply::Scarce)), None);
    assert_eq!(held_back(node(GpuSupply::Short)), Some(HeldBack::GpuCores));
    // A spare one gives them, and pods with GPUs have them.
    assert_eq!(held_back(ConsolidateFacts { is_spare: true, ..node(GpuSupply::Short) }), None);
    assert_eq!(explained(&node(GpuSupply::Short), &pod(100, 1), 500).held_back, None);
}

#[test]
fn what_cannot_be_had_is_not_free_and_all_of_a_whole_node_is() {
    let mut nodes = WholeNodes::default();
    assert_eq!(nodes.supply(), GpuSupply::Ample, "nothing is known");
    let mut with = |free, used| {
        nodes.see(NodeCards { all: 8, free }, used);
        nodes.supply()
    };
    assert_eq!(with(0, GpuNodeUse::Open), GpuSupply::Short, "0 of 8");
    assert_eq!(with(1, GpuNodeUse::Open), GpuSupply::Short, "1 of 16");
    assert_eq!(with(3, GpuNodeUse::Open), GpuSupply::Scarce, "4 of 24");
    assert_eq!(with(3, GpuNodeUse::Open), GpuSupply::Ample, "7 of 32");
    assert_eq!(with(8, GpuNodeUse::Closed), GpuSupply::Scarce, "7 of 40");
    // More than there are counts as all.
    assert_eq!(with(9, GpuNodeUse::Open), GpuSupply::Ample, "15 of 48");
    assert_eq!(with(0, GpuNodeUse::Whole), GpuSupply::Ample, "23 of 56");
}

#[test]
fn an_empty_node_rests_at_what_was_measured() {
    let cpu = HardwareRecord { cpu_max: Some(watts(720)), cores: Some(96), gpus: None };
    let at_rest = |measured: Option<i32>, node: ConsolidateFacts, hardware: Option<&HardwareRecord>| {
        let power = TwinPower { measured: measured.map(watts), capped: None, trend: None };
        let twin = TwinStatus { power: Some(power), ..TwinStatus::silent(SchedulableClass::Performance) };
        let facts = NodeFacts {
            freshness: Freshness::Fresh { left: power_units::Micros::MINUTE },
            twin: Some(&twin),
            hardware,
        };
        node.of_node(&facts).unwrap().at_rest
    };
    assert_eq!(at_rest(Some(35), empty(CPU), Some(&cpu)), Some(watts(35)));
    // Of a used node it says nothing, zero is no measurement, and hardware without watts is not known.
    assert_eq!(at_rest(Some(35), CPU, Some(&cpu)), Some(watts(144)));
    assert_eq!(at_rest(Some(0), empty(CPU), Some(&cpu)), Some(watts(144)));
    assert_eq!(at_rest(None, empty(CPU), Some(&cpu)), Some(watts(144)));
    assert_eq!(at_rest(Some(35), empty(CPU), None), None);
}

#[test]
fn what_is_not_known_earns_nothing() {
    let pod = pod(4, 0);
    let hardware = ConsolidateFacts { at_rest: None, ..CPU };
    assert_eq!((explained(&hardware, &pod, 0).watts, explained(&hardware, &pod, 0).cost), (0, None));
    let size = ConsolidateFacts { cores_milli: None, ..CPU };
    assert_eq!(explained(&size, &pod, 20).held_back, Some(HeldBack::Full));
    let cards = ConsolidateFacts { cards: None, ..CPU };
    assert_eq!(explained(&cards, &pod, 20).held_back, Some(HeldBack::GpuCores));
    assert_eq!(explained(&cards, &self::pod(4, 1), 500).score, 0);
    let room = ConsolidateFacts { room: None, ..CPU };
    assert_eq!(
        (explained(&room, &pod, 20).held_back, score(&room, &pod, 20)),
        (Some(HeldBack::NoRoomKnown), 83 / 4)
    );
    let emptied = ConsolidateFacts { is_emptied: true, ..CPU };
    assert_eq!(
        (explained(&emptied, &pod, 20).held_back, score(&emptied, &pod, 20)),
        (Some(HeldBack::Emptied), 20)
    );
}

#[test]
fn a_request_is_scored_in_order_with_the_unknown_at_the_lowest() {
    let scoring = Scoring {
        formula: Formula::Consolidate,
        facility_metrics: false,
        unknown: UnknownScore::Cautious,
        max: ScoreMax::Hundred,
        coefficients: Coefficients::REFERENCE,
    };
    let terms = [CPU, empty(CPU)].map(|node| ConsolidateTerms::of(&node));
    let of = |terms| ConsolidateCandidate {
        terms,
        added: watts(20),
        assumed: Watts::ZERO,
        lost: PointsLost::NONE,
    };
    let mut out = [Points::Unknown(0); 3];
    let all = [of(Some(&terms[0])), of(None), of(Some(&terms[1]))];
    let summary = consolidate_all(&scoring, &pod(4, 0), all, &mut out);
    assert_eq!(out, [Points::Known(83), Points::Unknown(31), Points::Known(31)]);
    assert_eq!((summary.known, summary.unknown, summary.lowest), (2, 1, Some(31)));
}

fn facts(seed: u64) -> (ConsolidateFacts, ConsolidatePod, Watts, Watts) {
    let mut dice = Dice::new(seed);
    let all = dice.below(17) as u32;
    let cores = (dice.below(256_000) + 1) as u32;
    let some = |dice: &mut Dice| dice.below(8) > 0;
    let node = ConsolidateFacts {
        cores_milli: some(&mut dice).then_some(cores),
        requested_milli: dice.below(u64::from(cores)) as u32,
        cards: some(&mut dice).then_some(NodeCards { all, free: dice.below(u64::from(all) + 1) as u32 }),
        milli_per_gpu: dice.below(20_000) as u32,
        is_spare: !some(&mut dice),
        supply: match dice.below(6) {
            0 => GpuSupply::Scarce,
            1 => GpuSupply::Short,
            _ => GpuSupply::Ample,
        },
        is_used: some(&mut dice),
        at_rest: some(&mut dice).then_some(dice.watts(0, 1_000)),
        room: some(&mut dice).then_some(dice.watts(-100, 6_000)),
        is_emptied: !some(&mut dice),
    };
    let pod = pod(dice.below(65) as u32, dice.below(9) as u32);
    (node, pod, dice.watts(0, 5_000), dice.watts(0, 500))
}

proptest! {
    #[test]
    fn a_used_node_is_at_least_as_good_as_the_same_one_empty(seed: u64) {
        let (node, pod, added, assumed) = facts(seed);
        // Where GPUs are scarce, standard pods with GPUs are spread, and no pod goes where it leaves GPUs without cores.
        let (supply, milli_per_gpu) = match pod.gpus {
            0 => (node.supply, node.milli_per_gpu),
            _ => (GpuSupply::Ample, 0),
        };
        let node = ConsolidateFacts { supply, milli_per_gpu, ..node };
        let used = ConsolidateFacts { is_used: true, ..node };
        let of = |node: &ConsolidateFacts| ConsolidateTerms::of(node).score(&pod, added, assumed);
        let fits = of(&used) > 0;
        prop_assert!(!fits || of(&used) >= of(&empty(node)), "{used:?}");
        // Where the pod costs less than a node at rest draws, and both are known, it is better.
        let told = ConsolidateFacts { at_rest: Some(watts(400)), is_emptied: false, room: Some(watts(9_000)), ..node };
        let used = ConsolidateFacts { is_used: true, ..told };
        let cheap = |node: &ConsolidateFacts| ConsolidateTerms::of(node).score(&pod, watts(20), Watts::ZERO);
        prop_assert!(cheap(&used) == 0 || cheap(&used) > cheap(&empty(told)), "{told:?}");
    }

    #[test]
    fn a_score_is_in_its_range_and_more_watts_or_less_room_never_raise_it(seed: u64, more in 0_i32..3_000) {
        let (node, pod, added, assumed) = facts(seed);
        let of = |node: &ConsolidateFacts, added: Watts, assumed: Watts| {
            ConsolidateTerms::of(node).score(&pod, added, assumed)
        };
        let now = of(&node, added, assumed);
        prop_assert!(now <= 100);
        prop_assert!(of(&node, added + watts(more), assumed) <= now);
        prop_assert!(of(&node, added, assumed + watts(more)) <= now);
        if let Some(room) = node.room {
            let less = ConsolidateFacts { room: Some(room - watts(more)), ..node };
            prop_assert!(of(&less, added, assumed) <= now, "{less:?}");
            prop_assert!(added + assumed <= room || now == 0, "over its cap");
        }
        // Knowing less never makes it better.
        for less in [
            ConsolidateFacts { cores_milli: None, ..node },
            ConsolidateFacts { cards: None, ..node },
            ConsolidateFacts { at_rest: None, ..node },
            ConsolidateFacts { is_used: false, ..node },
            ConsolidateFacts { is_spare: false, ..node },
            ConsolidateFacts { is_emptied: true, ..node },
        ] {
            prop_assert!(of(&less, added, assumed) <= now, "{less:?}");
        }
        if node.room.is_some_and(|room| added + assumed <= room) {
            let less = ConsolidateFacts { room: None, ..node };
            prop_assert!(of(&less, added, assumed) <= now, "{less:?}");
        }
    }
}
