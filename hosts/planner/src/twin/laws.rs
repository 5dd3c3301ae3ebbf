//! Laws for all nodes and all numbers: the order of the facts does not matter, and no score ever improves because
//! a node draws more, may draw less, or is no longer measured.

use super::tests::{hardware, law, measured, node};
use super::*;
use crate::facility::Facility;
use crate::power::{Grounds, NoMeasurement};
use power_units::{Micros, Ratio, Stamp};
use proptest::prelude::*;

const HOLD: Micros = Micros::new(1);

fn twins_of(nodes: &[TwinFacts<'_>]) -> Vec<Twin> {
    let (facility, unmanaged) = (Facility::default(), BTreeMap::new());
    let now = Stamp::new(Micros::ZERO);
    twins(&law(), nodes, &SiteFacts { facility: facility.at(now, HOLD), unmanaged: &unmanaged })
}

fn twin_of(facts: TwinFacts<'_>) -> Twin {
    twins_of(&[facts]).pop().unwrap()
}

fn cooling(twin: &Twin) -> Percent {
    twin.cooling.unwrap().percent
}

fn machine() -> impl Strategy<Value = ResolvedHardware> {
    ((1_u32..=8, 1_i32..=600), prop::option::of((0_u32..=16, 1_i32..=1_200)))
        .prop_map(|(cpu, gpus)| hardware(cpu, gpus))
}

fn cap() -> impl Strategy<Value = CapValue> {
    prop_oneof![
        Just(CapValue::Open),
        (1_i64..(101 << 32)).prop_map(|bits| CapValue::Percent(Percent::from_bits(bits))),
        (1_i32..=1_300).prop_map(|watts| CapValue::Each(Watts::from_int(watts))),
    ]
}

fn reading() -> impl Strategy<Value = NodeReading> {
    prop_oneof![(0_i32..20_000).prop_map(measured), Just(NodeReading::Absent(NoMeasurement::HttpError))]
}

fn load() -> impl Strategy<Value = Option<NodeLoad>> {
    let share = || (0_i64..(3 << 31)).prop_map(Ratio::from_bits);
    prop::option::of((share(), share()).prop_map(|(cpu, gpu)| NodeLoad { cpu, gpu }))
}

/// The same cap, or a lower one.
fn lowered(cap: CapValue, by: i64) -> CapValue {
    let left = |bits: i64| (bits - bits / 8 * by).max(1);
    match cap {
        CapValue::Open if by == 0 => CapValue::Open,
        CapValue::Open => CapValue::Percent(Percent::from_bits(left(100 << 32))),
        CapValue::Percent(percent) => CapValue::Percent(Percent::from_bits(left(percent.to_bits()))),
        CapValue::Each(watts) => CapValue::Each(Watts::from_bits(left(watts.to_bits()))),
    }
}

proptest! {
    #[test]
    fn more_measured_power_never_lowers_stress_or_raises_headroom(
        machine in machine(), caps in (cap(), cap()), (watts, more) in (0_i32..1_000_000, 0_i32..1_000_000),
    ) {
        let facts = TwinFacts { cpu_cap: caps.0, gpu_cap: caps.1, rack: Some("r"), ..node(&machine) };
        let here = twin_of(TwinFacts { reading: measured(watts), ..facts });
        let there = twin_of(TwinFacts { reading: measured(watts + more), ..facts });
        prop_assert!(there.headroom.unwrap() <= here.headroom.unwrap());
        prop_assert!(cooling(&there) >= cooling(&here));
        // A rack without any power has no stress to compare.
        if let (Some(here), Some(there)) = (here.psu, there.psu) {
            prop_assert!(there.percent >= here.percent);
        }
        prop_assert!(here.headroom.unwrap() <= Percent::HUNDRED);
    }

    #[test]
    fn a_lower_cap_never_raises_headroom(
        machine in machine(), caps in (cap(), cap()), reading in reading(), load in load(), by in (0_i64..=8, 0_i64..=8),
    ) {
        let facts = TwinFacts { reading, load, cpu_cap: caps.0, gpu_cap: caps.1, ..node(&machine) };
        let (cpu_cap, gpu_cap) = (lowered(caps.0, by.0), lowered(caps.1, by.1));
        let lower = twin_of(TwinFacts { cpu_cap, gpu_cap, ..facts });
        prop_assert!(lower.headroom.unwrap() <= twin_of(facts).headroom.unwrap());
    }

    #[test]
    fn a_node_that_is_measured_no_longer_never_looks_better_than_one_at_its_cap(
        machine in machine(), caps in (cap(), cap()), absent in prop_oneof![Just(NoMeasurement::HttpError), Just(NoMeasurement::NotConfigured)],
    ) {
        // Fix list operator B7.
        let facts = TwinFacts { cpu_cap: caps.0, gpu_cap: caps.1, ..node(&machine) };
        let blind = twin_of(TwinFacts { reading: NodeReading::Absent(absent), ..facts });
        prop_assert!(blind.headroom.unwrap() <= Percent::ZERO);
        prop_assert_eq!(blind.cooling.unwrap().grounds, Grounds::WorstCase);
    }

    #[test]
    fn the_order_of_the_nodes_does_not_matter(
        fleet in prop::collection::vec((machine(), cap(), reading(), load(), 0_usize..4), 1..24),
        keys in prop::collection::vec(any::<u32>(), 24),
    ) {
        const RACKS: [Option<&str>; 4] = [None, Some("a"), Some("b"), Some("c")];
        let nodes: Vec<_> = fleet
            .iter()
            .map(|(machine, cap, reading, load, rack)| TwinFacts {
                cpu_cap: *cap,
                reading: *reading,
                load: *load,
                rack: RACKS[*rack],
                ..node(machine)
            })
            .collect();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&index| keys[index]);
        let shuffled: Vec<_> = order.iter().map(|&index| nodes[index]).collect();
        let (given, other) = (twins_of(&nodes), twins_of(&shuffled));
        for (place, &index) in order.iter().enumerate() {
            prop_assert_eq!(other[place], given[index]);
        }
    }
}
