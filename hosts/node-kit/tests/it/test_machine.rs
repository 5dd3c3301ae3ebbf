//! A node in a virtual machine, with time that the test advances.

use hal_amd::Where;
use joulie_core::node::cap::{CapIntent, DesiredCap};
use node_kit::{Boot, Config, Desire, HardwareSources, NodeAccess, OpenNode, Time};
use plant::{Load, PlantDomain};
use power_units::{Micros, Watts};
use rig::fuse::Mounted;
use rig::machine::{RigMachine, RigTime, Shared};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const PERIOD: Duration = Duration::from_secs(1);
const ANSWERS: Duration = Duration::from_secs(20);

/// A machine, mounted, and a folder for the state of its node.
pub(crate) struct TestMachine {
    pub(crate) machine: Shared,
    pub(crate) time: Time,
    mounted: Option<Mounted>,
    folder: PathBuf,
}

impl TestMachine {
    /// `None`, with a message, where the kernel does not allow mounting.
    pub(crate) fn profile(name: &str) -> Option<Self> {
        Self::new(rig::profile::find(name).unwrap()(RigTime::Manual).unwrap())
    }

    pub(crate) fn new(machine: RigMachine) -> Option<Self> {
        let (machine, folder) = (Shared::new(machine), Self::place());
        match rig::fuse::mount(machine.clone(), &folder.join("root")) {
            Ok(mounted) => Some(Self { machine, time: Time::manual(), mounted: Some(mounted), folder }),
            Err(error) => {
                println!("SKIP(no virtual hardware: {error})");
                None
            }
        }
    }

    /// A machine that is a plain folder, whose files the test writes.
    pub(crate) fn folder() -> Self {
        let machine = Shared::new(rig::profile::find("xeon-2s").unwrap()(RigTime::Manual).unwrap());
        let folder = Self::place();
        Self { machine, time: Time::manual(), mounted: None, folder }
    }

    fn place() -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("node-kit-it-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join("root")).unwrap();
        folder
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// A folder beside the machine, on a real disk.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
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

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
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
        // This process serves the mount, and the loader blocks other threads' loads, so the loader must not search
        // there.
        let elsewhere = self.folder.join("lib");
        let nvml = Some(elsewhere.join("libnvidia-ml.so.1"));
        let rocm = Where::At(elsewhere.join("librocm_smi64.so"));
        let sources = HardwareSources { nvml, rocm, ..HardwareSources::below(&self.root()) };
        Config::standard(sources, self.state(), NodeAccess::Control, period).unwrap()
    }

    pub(crate) fn tracking(&self) -> Config {
        Config { law: Config::tracking(), ..self.config() }
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

impl Drop for TestMachine {
    fn drop(&mut self) {
        drop(self.mounted.take());
        let _left = std::fs::remove_dir_all(&self.folder);
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
