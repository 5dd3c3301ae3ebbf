//! The twins of 5,000 nodes: the cost per node in a pass over all of them.

use super::{Row, measure};
use joulie_core::placement::class::SchedulableClass;
use planner::classify::Hints;
use planner::demand::DemandClass;
use planner::facility::{Facility, Observation};
use planner::hardware::{Cpu, GpuInventory, ResolvedHardware};
use planner::migration::{MigrationLaw, NodeConditions, RunningPod, THRESHOLD, recommend};
use planner::power::estimate::{IDLE_CPU, IDLE_GPU, NodeLoad, UtilizationModel};
use planner::power::history::{HOLD, Histories, HistoryLaw, WINDOW};
use planner::power::{MeterResult, NoMeasurement, NodeReading, PowerMeter, PowerSample};
use planner::twin::cooling::MeasuredPower;
use planner::twin::psu::{PsuLimits, RACK_LIMIT};
use planner::twin::ratings::CapValue;
use planner::twin::{SiteFacts, Twin, TwinFacts, TwinLaw, twins};
use power_units::{Celsius, Micros, Percent, Ratio, Stamp, Watts};
use std::collections::BTreeMap;

const NODES: u32 = 5_000;
const RACKS: u32 = 250;
const NOW: Stamp = Stamp::new(Micros::new(3_600_000_000));

pub(crate) fn rows() -> Vec<Row> {
    vec![
        of_twins(),
        of_samples("record a sample and renew its trend, 15 samples kept", 20),
        of_recommendations(),
    ]
}

/// Every tenth node has no measurement; half are eco, half have GPUs.
fn of_twins() -> Row {
    let fleet = Fleet::new();
    let (law, unmanaged) = (law(), BTreeMap::new());
    let site = SiteFacts { facility: fleet.facility.at(NOW, HOLD), unmanaged: &unmanaged };
    let nodes = fleet.nodes();
    measure("twin of a node, of 5,000 in 250 racks", None, (NODES, 4), || twins(&law, &nodes, &site))
}

fn law() -> TwinLaw<MeasuredPower> {
    TwinLaw {
        cooling: MeasuredPower,
        psu: PsuLimits::new(RACK_LIMIT, BTreeMap::new()).expect("the default limit is one"),
        utilization: UtilizationModel::new(IDLE_CPU, IDLE_GPU).expect("the default shares are shares"),
    }
}

struct Fleet {
    hardware: [ResolvedHardware; 2],
    racks: Vec<String>,
    facility: Facility,
}

impl Fleet {
    fn new() -> Self {
        let cpu = Cpu {
            sockets: Some(2),
            total_cores: Some(192),
            max_per_socket: Some(Watts::from_int(360)),
            ..Cpu::default()
        };
        let gpu = GpuInventory { model: None, count: 8, min: None, max: Some(Watts::from_int(700)) };
        let mut facility = Facility::default();
        for observation in [
            Observation::Ambient(Celsius::from_int(27)),
            Observation::ItPower(Watts::from_int(9_000_000)),
            Observation::CoolingPower(Watts::from_int(2_000_000)),
        ] {
            facility.record(NOW, NOW, observation).expect("a sensor may say so");
        }
        Self {
            hardware: [
                ResolvedHardware { cpu: cpu.clone(), gpu: None },
                ResolvedHardware { cpu, gpu: Some(gpu) },
            ],
            racks: (0..RACKS).map(|rack| format!("rack-{rack:04}")).collect(),
            facility,
        }
    }

    fn nodes(&self) -> Vec<TwinFacts<'_>> {
        let watts = |node: u32| Watts::from_int(i32::try_from(100 + node % 500).unwrap_or(100));
        let eco = CapValue::Percent(Percent::from_int(60));
        (0..NODES)
            .zip(self.racks.iter().cycle())
            .zip(self.hardware.iter().cycle())
            .map(|((node, rack), hardware)| TwinFacts {
                hardware,
                class: if node % 4 < 2 { SchedulableClass::Eco } else { SchedulableClass::Performance },
                cpu_cap: if node % 4 < 2 { eco } else { CapValue::Open },
                gpu_cap: if node % 4 < 2 { CapValue::Each(Watts::from_int(420)) } else { CapValue::Open },
                entitled: Some((eco, CapValue::Each(Watts::from_int(300)))),
                reading: match node % 10 {
                    0 => NodeReading::Absent(NoMeasurement::HttpError),
                    _ => NodeReading::Measured {
                        meter: PowerMeter::Agent,
                        watts: watts(node),
                        age: Micros::ZERO,
                    },
                },
                trend: None,
                rest: None,
                load: Some(NodeLoad { cpu: Ratio::from_bits(1 << 31), gpu: Ratio::from_bits(1 << 30) }),
                rack: Some(rack),
                zone: None,
            })
            .collect()
    }
}

/// Every node's meter is read once every `period` seconds; the histories are full before the measurement starts.
fn of_samples(what: &str, period: u64) -> Row {
    let names: Vec<_> = (0..NODES).map(|node| format!("node-{node:05}")).collect();
    let law = HistoryLaw::new(WINDOW, HOLD).expect("the default spans are spans");
    let (mut histories, mut second) = (Histories::default(), 0_u64);
    let mut pass = move || {
        second += period;
        let now = Stamp::new(Micros::new(second * 1_000_000));
        for (index, name) in (0_i32..).zip(&names) {
            let watts =
                Watts::from_int(300 + (index * 7 + i32::try_from(second % 97).unwrap_or(0) * 13) % 400);
            let report: MeterResult = PowerSample::new(PowerMeter::Agent, watts, now);
            histories.record(&law, name, now, report);
        }
    };
    for _ in 0..32 {
        pass();
    }
    measure(what, None, (NODES, 1), pass)
}

/// Three pods on every node, all of which may be restarted; the nodes with the highest power are stressed.
fn of_recommendations() -> Row {
    let fleet = Fleet::new();
    let (law, unmanaged) = (law(), BTreeMap::new());
    let site = SiteFacts { facility: fleet.facility.at(NOW, HOLD), unmanaged: &unmanaged };
    let all: Vec<Twin> = twins(&law, &fleet.nodes(), &site);
    let names: Vec<_> = (0..NODES).map(|node| format!("node-{node:05}")).collect();
    let nodes: Vec<_> = names.iter().zip(&all).map(|(name, twin)| NodeConditions::of(name, twin)).collect();
    let hints = Hints::read(None, Some("true"));
    let pod = |name, node| RunningPod { namespace: "apps", name, node, hints, demand: DemandClass::General };
    let pods: Vec<_> = names.iter().flat_map(|node| ["a", "b", "c"].map(|name| pod(name, node))).collect();
    let migration = MigrationLaw::new(THRESHOLD).expect("the default threshold is one");
    measure("recommendations of a node with three pods", None, (NODES, 4), || {
        recommend(&migration, &nodes, &pods)
    })
}
