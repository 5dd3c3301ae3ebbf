//! The ledger against the plant: an hour of virtual time in which everything happens that makes counting hard.

use super::*;
use crate::energy::kepler::KeplerPage;
use crate::energy::pod_resources::{Held, PodName};
use crate::energy::source::EnergySource;
use host_kit::reflect::by_hand;
use joulie_core::node::energy::{Gap, MeterReading};
use node_kit::{
    BackendKind, BackendReport, BackendState, DeviceReport, GpuGroupUse, NodeCounters, NodeReport,
};
use plant::{Load, Plant, PlantDomain, preset, wrapped};
use power_hal::{Counter, Key};
use power_units::{MicroJoules, Micros, Stamp, Watts};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Of a RAPL counter: at 300 W it wraps about every quarter of an hour.
const MODULUS: MicroJoules = MicroJoules::new(262_143_328_850);
const CORES: u64 = 64;
/// The seconds in which Kepler answers.
const KEPLER: (u64, u64) = (2_000, 2_600);

fn pod(uid: &str, namespace: &str, owner: &str) -> Value {
    let (kind, name) = owner.split_once('/').unwrap();
    json!({"metadata": {"name": uid, "namespace": namespace, "uid": uid, "ownerReferences": [
        {"kind": kind, "name": name, "controller": true},
    ]}, "status": {"phase": "Running"}})
}

/// The machine: what the plant draws, and who runs on it.
struct Machine {
    plant: Plant,
    second: u64,
    cpu: CpuTotals,
}

impl Machine {
    fn new() -> Self {
        let mut spec = preset::xeon_2s();
        spec.gpus = vec![preset::h100_sxm(); 2];
        Self { plant: Plant::new(&spec, 7).unwrap(), second: 0, cpu: CpuTotals::default() }
    }

    fn truth(&self, domain: PlantDomain) -> u64 {
        self.plant.energy(domain).unwrap().get()
    }

    fn truth_of_packages(&self) -> u64 {
        self.truth(PlantDomain::Package(0)) + self.truth(PlantDomain::Package(1))
    }

    /// A second passes. For the first minute the node is idle; then a service and a database run, each seventh second a pod of one
    /// second, and in between pods that begin and end between two readings.
    fn pass(&mut self) {
        let second = self.second;
        let idle = second < 60;
        let busy = if idle { 0.0 } else { 0.3 + 0.4 * f64::from(u32::try_from(second % 11).unwrap()) / 11.0 };
        self.plant.set_load(Load::busy(busy)).unwrap();
        self.plant.set_gpu_load(0, Load::busy(if second % 90 < 60 { 1.0 } else { 0.0 })).unwrap();
        self.plant.set_gpu_load(1, Load::busy(if idle { 0.0 } else { 0.5 })).unwrap();
        self.plant.advance(Micros::new(1_000_000));
        self.second += 1;
        self.cpu.pods.retain(|uid, _| !uid.starts_with("short-"));
        let mut of_pods = 0;
        let mut used = |uid: String, micros: u64, seen: bool| {
            of_pods += micros;
            if seen {
                *self.cpu.pods.entry(uid).or_default() += micros;
            }
        };
        used("web".to_owned(), if idle { 1_000 } else { 12_000_000 }, true);
        used("db".to_owned(), if idle { 500 } else { 5_000_000 }, true);
        if second % 7 == 3 && !idle {
            used(format!("short-{second}"), 900_000, true);
        }
        if second % 5 == 1 && !idle {
            used("unseen".to_owned(), 300_000, false);
        }
        self.cpu.all_pods += of_pods;
        self.cpu.machine += of_pods + if idle { 20_000 } else { 2_000_000 };
    }

    /// What the driver says of the second GPU: of the first it cannot tell. Its holders use it for 60 % and 20 % of the time.
    fn uses(&self) -> BackendReport {
        let of_pod = |uid: &str, used| {
            (Some(Arc::from(format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-c.scope"))), used)
        };
        let busy = [of_pod("infer-a", 60), of_pod("infer-b", 20)];
        let groups = if self.second <= 60 { BTreeMap::new() } else { BTreeMap::from(busy) };
        BackendReport {
            kind: BackendKind::Nvidia,
            standing: BackendState::Ready,
            domains: 2,
            stuck_since: None,
            complaints: Arc::from([]),
            cards: None,
            uses: Some(Arc::from([GpuGroupUse { key: gpu(1), groups }])),
            last_trouble: None,
            troubles: 0,
        }
    }

    /// What Kepler shows: for ten minutes, every five seconds. It says that web has used 48 % of all that the packages have
    /// drawn, and db 20 %; 15 % are of the idle node.
    fn kepler(&self) -> Option<KeplerPage> {
        if !(KEPLER.0..=KEPLER.1).contains(&self.second) || !self.second.is_multiple_of(5) {
            return None;
        }
        let all = self.truth_of_packages();
        let joules = |percent: u64| {
            let micro = all * percent / 100;
            format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)
        };
        let [node, idle, web, db] = [100, 15, 48, 20].map(joules);
        let text = format!(
            "kepler_node_cpu_joules_total{{zone=\"package\",node_name=\"n1\"}} {node}\n\
             kepler_node_cpu_idle_joules_total{{zone=\"package\",node_name=\"n1\"}} {idle}\n\
             kepler_pod_cpu_joules_total{{zone=\"package\",pod_id=\"web\",pod_namespace=\"shop\",pod_name=\"web\"}} {web}\n\
             kepler_pod_cpu_joules_total{{zone=\"package\",pod_id=\"db\",pod_namespace=\"shop\",pod_name=\"db\"}} {db}\n"
        );
        Some(KeplerPage::read(text.as_bytes(), "n1").unwrap())
    }

    /// What the control loop reports; for 20 seconds no meter answers.
    fn report(&self) -> NodeReport {
        let silent = (600..620).contains(&self.second);
        let device = |key: Key, counter: Option<Counter>, energy: Option<u64>, power| DeviceReport {
            key,
            backend: None,
            described: None,
            power,
            counter,
            energy: energy.filter(|_| !silent).map(MicroJoules::new),
            dram: MeterReading::Missing(Gap::NoMeter),
            dram_energy: None,
            state: node_kit::DeviceState::default(),
            limit: None,
            owners: None,
            ours: false,
            share: None,
            wants: node_kit::DeviceWants::default(),
            clock: None,
        };
        let none = MeterReading::Missing(Gap::Unread);
        let package = |number: u16| {
            let energy = self.truth(PlantDomain::Package(usize::from(number)));
            let shown = wrapped(MicroJoules::new(energy), MODULUS).unwrap().get();
            device(Key::package(number, None), Some(Counter::new(MODULUS)), Some(shown), none)
        };
        // The first GPU has an energy counter, the second a power meter.
        let counted = Some(self.truth(PlantDomain::Gpu(0)));
        let watts = plant::to_watts(self.plant.watts(PlantDomain::Gpu(1)).unwrap()).unwrap();
        let metered = if silent { none } else { MeterReading::Fresh { watts, over: Micros::ZERO } };
        NodeReport {
            at: Some(Stamp::new(Micros::new(self.second * 1_000_000))),
            packages: vec![package(0), package(1)],
            gpus: vec![
                device(gpu(0), Some(Counter::endless()), counted, none),
                device(gpu(1), None, None, metered),
            ],
            backends: vec![self.uses()],
            counts: NodeCounters { periods: self.second + 1, ..NodeCounters::default() },
            ..NodeReport::default()
        }
    }
}

fn gpu(number: u8) -> Key {
    Key::gpu(&format!("GPU-8f1e2b30-0000-4000-8000-00000000000{number}")).unwrap()
}

fn held() -> Held {
    let name = |name: &str| PodName { namespace: "ml".to_owned(), name: name.to_owned() };
    let of = [
        (gpu(0), BTreeSet::from([name("train")])),
        (gpu(1), BTreeSet::from([name("infer-a"), name("infer-b")])),
    ];
    Held { of: BTreeMap::from(of), ..Held::default() }
}

/// A process of the agent, from its start to its end.
struct Process {
    meters: Meters,
    state: State,
    ledger: Ledger,
}

impl Process {
    fn start() -> Self {
        let bounds = Bounds { kept: Duration::from_secs(7_200), ..Bounds::STANDARD };
        let meters = Meters::new(Micros::new(1_000_000));
        Self { meters, state: State::default(), ledger: Ledger::new(bounds) }
    }

    fn second(&mut self, machine: &Machine, pods: &Pods) {
        self.meters.take(&machine.report());
        let held = held();
        // For a minute the kubelet has not answered for too long.
        let answer = Some(&held).filter(|_| !(1_000..1_060).contains(&machine.second));
        let now = Mono::at(Duration::from_secs(machine.second));
        let (totals, cpu) = (self.meters.totals(), Some(machine.cpu.clone()));
        let seen = Seen { totals, cpu, processors: Some(CORES), kepler: machine.kepler() };
        let interval = self.state.interval(now, seen, pods, answer);
        self.ledger.take(&interval.unwrap());
        assert_eq!(self.ledger.sum(), self.ledger.drawn, "second {}", machine.second);
    }

    fn of(&self, namespace: &str, name: &str) -> ledger::Energy {
        let is = |workload: &pods::Workload| &*workload.namespace == namespace && &*workload.name == name;
        self.ledger
            .workloads()
            .find(|(workload, _)| is(workload))
            .map(|(_, energy)| energy)
            .unwrap_or_default()
    }
}

#[test]
fn an_hour_of_a_node_is_charged_to_the_microjoule() {
    let mut machine = Machine::new();
    let (mut api, rows) = by_hand::<PodOwner>();
    let lasting = [
        pod("web", "shop", "StatefulSet/web"),
        pod("db", "shop", "StatefulSet/db"),
        pod("train", "ml", "Job/train"),
        pod("infer-a", "ml", "StatefulSet/infer"),
        pod("infer-b", "ml", "StatefulSet/chat"),
    ];
    api.list(&lasting);
    let mut pods = Pods::default();
    let mut ended = Vec::new();
    let mut process = Process::start();
    process.second(&machine, &pods);
    // What the packages had drawn when the process began, and at its last reading.
    let mut begun = machine.truth_of_packages();
    let mut read = begun;
    let (mut told, mut truth) = (0, 0);
    // What the packages had drawn, and what web was charged, where Kepler begins to count and where it ends.
    let mut by_kepler = Vec::new();
    while machine.second < 3_600 {
        machine.pass();
        let short = machine.cpu.pods.keys().find(|uid| uid.starts_with("short-")).cloned();
        if let Some(uid) = &short {
            api.apply(&pod(uid, "batch", "Job/short"));
        }
        pods.take(&rows, Mono::at(Duration::from_secs(machine.second)));
        match machine.second {
            // The agent ends here, and is away for three seconds.
            1_800 => {
                told += process.ledger.drawn.cpu;
                truth += read - begun;
                ended.push(std::mem::replace(&mut process, Process::start()));
            }
            1_801..1_803 => {}
            1_803 => {
                process.second(&machine, &pods);
                begun = machine.truth_of_packages();
            }
            _ => process.second(&machine, &pods),
        }
        read = machine.truth_of_packages();
        // Its second page tells that it counts.
        if [KEPLER.0 + 5, KEPLER.1].contains(&machine.second) {
            by_kepler.push((read, process.of("shop", "StatefulSet/web").cpu));
        }
        if let Some(uid) = short {
            api.delete(&pod(&uid, "batch", "Job/short"));
        }
    }
    told += process.ledger.drawn.cpu;
    truth += read - begun;
    assert_eq!(told, truth, "of packages, while an agent ran");
    let all = machine.plant.energy(PlantDomain::Node).unwrap().get();
    let sum = |energy: ledger::Energy| energy.cpu + energy.gpu;
    let charged = sum(ended[0].ledger.sum()) + sum(process.ledger.sum());
    assert!(charged.abs_diff(all) * 100 < all, "{charged} of {all}");

    let first = &ended[0].ledger;
    // 20 seconds without meters: 599 s to 620 s are a gap, of two packages and two GPUs.
    assert_eq!((first.gap_micros.cpu, first.gap_micros.gpu), (2 * 21_000_000, 2 * 21_000_000));
    assert_eq!(process.ledger.gap_micros, ledger::Energy::default());
    // The idle floor was measured in the first minute: 120 W.
    let floor = ended[0].state.floor.watts().unwrap();
    assert!((Watts::from_int(119)..Watts::from_int(122)).contains(&floor), "{floor:?}");
    assert_eq!(process.state.floor.watts(), None, "this one has never seen the node idle");
    for process in [&ended[0], &process] {
        let (web, db) = (process.of("shop", "StatefulSet/web").cpu, process.of("shop", "StatefulSet/db").cpu);
        // 12 s and 5 s of processor time each second, and hardly anything in the first minute.
        assert!((web * 5).abs_diff(db * 12) < web / 100, "{web} {db}");
        assert!(process.of("batch", "Job/short").cpu > 0, "pods of one second are charged");
        let (infer, chat) =
            (process.of("ml", "StatefulSet/infer").gpu, process.of("ml", "StatefulSet/chat").gpu);
        assert!(chat > 0 && infer.abs_diff(3 * chat) < infer / 1_000, "60 % and 20 %: {infer} {chat}");
        assert!(process.of("ml", "Job/train").gpu > 0);
        let divided = &process.ledger.divided;
        assert!(divided[&EnergySource::Processes].gpu > 0 && divided[&EnergySource::Holders].gpu > 0);
    }
    // The minute without the kubelet: at least 50 s of the first GPU at full load are 30 kJ. Of the second its driver says who uses it.
    assert!(first.unknown.gpu > 30_000_000_000 && process.ledger.unknown.gpu == 0);
    // The idle part of the second GPU is told apart in all of the 1,779 s with meters.
    let floor = ended[0].state.card_floors[&gpu(1)].watts().unwrap();
    let idle = MicroJoules::new(first.idle.gpu);
    let seconds = |count: u64| floor.during(Micros::new(count * 1_000_000));
    assert!((seconds(1_700)..seconds(1_850)).contains(&idle), "{idle:?} at {floor:?}");
    assert_eq!(process.state.card_floors[&gpu(1)].watts(), None, "this one has never seen it idle");
    // Kepler divides what the packages drew between its second page and its last, to the microjoule.
    let [(from, web_from), (to, web_to)] = by_kepler[..] else { panic!("{by_kepler:?}") };
    assert_eq!(process.ledger.divided[&EnergySource::Kepler].cpu, to - from);
    let (web, expected) = (web_to - web_from, (to - from) * 48 / 100);
    assert!(web.abs_diff(expected) < expected / 1_000, "{web} of {expected}");
}
