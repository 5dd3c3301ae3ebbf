//! A node in a virtual machine, with time that the test advances.

use hal_amd::Where;
use joulie_core::node::cap::{CapIntent, DesiredCap};
use node_kit::{Boot, Config, Desire, HardwareSources, NodeAccess, OpenNode, Time};
use plant::{Load, PlantDomain};
use power_units::{Micros, Watts};
use rig::machine::RigMachine;
use rig::test_machine;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const PERIOD: Duration = Duration::from_secs(1);
const ANSWERS: Duration = Duration::from_secs(20);

/// A machine, mounted, and the time of its node.
pub(crate) struct TestMachine {
    on: test_machine::TestMachine,
    pub(crate) time: Time,
}

impl Deref for TestMachine {
    type Target = test_machine::TestMachine;

    fn deref(&self) -> &Self::Target {
        &self.on
    }
}

impl TestMachine {
    /// `None`, with a message, where the kernel does not allow mounting.
    pub(crate) fn profile(name: &str) -> Option<Self> {
        Self::new(test_machine::TestMachine::machine_of(name))
    }

    pub(crate) fn new(machine: RigMachine) -> Option<Self> {
        Some(Self { on: test_machine::TestMachine::with_room(machine)?, time: Time::manual() })
    }

    /// A machine that is a plain folder, whose files the test writes.
    pub(crate) fn folder() -> Self {
        let machine = test_machine::TestMachine::machine_of("xeon-2s");
        Self { on: test_machine::TestMachine::unmounted(machine), time: Time::manual() }
    }

    /// A folder beside the machine, on a real disk.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let folder = self.folder.0.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap().trim().to_owned()
    }

    /// Writes a file as another program would.
    pub(crate) fn write(&self, path: &str, text: &str) {
        std::fs::write(self.root().join(path), text).unwrap();
    }

    /// The text of the journal.
    pub(crate) fn journal(&self) -> String {
        std::fs::read_to_string(self.state().join("originals.json")).unwrap()
    }

    pub(crate) fn busy(self) -> Self {
        self.machine.lock().plant().set_load(Load::busy(1.0)).unwrap();
        self
    }

    pub(crate) fn config(&self) -> Config {
        let period = Micros::new(1_000_000);
        // This process serves the mount, so the loader, which lets no other thread load meanwhile, must not look there.
        let elsewhere = self.folder.0.join("lib");
        let nvml = Some(elsewhere.join("libnvidia-ml.so.1"));
        let rocm = Where::At(elsewhere.join("librocm_smi64.so"));
        let sources = HardwareSources { nvml, rocm, ..HardwareSources::below(self.root()) };
        Config::standard(sources, self.state(), NodeAccess::Control, period).unwrap()
    }

    pub(crate) fn open(&self, config: Config) -> OpenNode {
        let mut node = OpenNode::open_in(config, self.time.clone(), Boot::new("boot-1").unwrap()).unwrap();
        assert!(node.wait_for_backends(ANSWERS));
        node
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.machine.lock().advance(time);
        self.time.advance(Micros::new(u64::try_from(time.as_micros()).unwrap()));
    }

    /// Runs this many control periods.
    pub(crate) fn periods(&self, node: &mut OpenNode, count: usize) {
        for _ in 0..count {
            self.pass(PERIOD);
            node.period();
            node.settle_within(ANSWERS);
        }
    }

    pub(crate) fn drawn(&self) -> f64 {
        self.machine.lock().plant().node_watts()
    }

    /// Lets the other threads run for a while.
    #[expect(clippy::disallowed_methods, reason = "a call that hangs is waited for in real time")]
    pub(crate) fn rest(&self) {
        std::thread::sleep(Duration::from_millis(50));
    }

    /// The power of the packages alone.
    pub(crate) fn packages_draw(&self) -> f64 {
        let mut machine = self.machine.lock();
        let plant = machine.plant();
        (0..plant.packages()).filter_map(|package| plant.watts(PlantDomain::Package(package))).sum()
    }
}

pub(crate) fn watts(each: i32) -> Desire {
    Desire { cpu: DesiredCap::Cap(CapIntent::of_watts(Watts::from_int(each))), ..Desire::UNKNOWN }
}

/// Every present limit of the machine: of the zones, with whether they are enabled, and of the policies.
pub(crate) fn limits(room: &TestMachine) -> Vec<String> {
    let machine = room.machine.lock();
    let zones = machine.zones().iter().map(|slot| {
        let limit = |at| (slot.zone.power_limit_uw(at), slot.zone.time_window_us(at));
        let all: Vec<_> = (0..slot.zone.constraints.len()).map(limit).collect();
        format!("{} {} {all:?}", slot.zone.name, slot.zone.enabled())
    });
    let policies = machine.policies().iter().map(|policy| policy.user_max.to_string());
    let caps = machine.caps_in_force_uw().map(|cap| format!("cap {cap}"));
    zones.chain(policies).chain(caps).collect()
}
