//! Folders, virtual machines and the HAL on them.

use hal_cpufreq::Cpufreq;
use hal_files::Root;
use plant::{Load, Plant, PolicyLayout, preset};
use power_hal::contract::RefusableOriginals;
use power_hal::{Applied, Handle, Key, OriginalsInMemory, PowerHal, Reading, Sample, Setting};
use power_hal::{Error, ErrorKind};
use power_units::{KiloHertz, Role};
use rig::cpufreq::VirtualPolicy;
use rig::machine::{self, CpuLocation, MachineParts, RigMachine};
use rig::test_machine;
pub(crate) use rig::test_machine::Ticks;
use std::ops::Deref;
use std::path::{Path, PathBuf};

const CPU: &str = "sys/devices/system/cpu";

pub(crate) type Hal = Cpufreq<Ticks, RefusableOriginals<OriginalsInMemory<256>>>;

pub(crate) fn open(folder: &Path) -> Hal {
    Cpufreq::open(Root::at(folder), Ticks::default(), RefusableOriginals::new(OriginalsInMemory::new()))
        .unwrap()
}

/// A folder that is deleted with the test; its files are named relative to the processors' folder.
pub(crate) struct Folder(pub(crate) PathBuf, test_machine::Folder);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = test_machine::Folder::new();
        Self(folder.0.clone(), folder)
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        self.1.put(&format!("{CPU}/{path}"), content);
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.1.get(&format!("{CPU}/{path}"))
    }

    pub(crate) fn remove(&self, path: &str) {
        self.1.remove(&format!("{CPU}/{path}"));
    }

    /// A policy of these CPUs, 1.2 to 3.2 GHz, with a limit of 3 GHz in force.
    pub(crate) fn policy(&self, number: u16, cpus: &str) {
        for (name, text) in [
            ("related_cpus", cpus),
            ("affected_cpus", cpus),
            ("cpuinfo_min_freq", "1200000"),
            ("cpuinfo_max_freq", "3200000"),
            ("scaling_driver", "intel_cpufreq"),
            ("scaling_min_freq", "1200000"),
            ("scaling_max_freq", "3000000"),
            ("scaling_cur_freq", "2900000"),
        ] {
            self.put(&format!("cpufreq/policy{number}/{name}"), format!("{text}\n"));
        }
    }

    /// The location of a CPU.
    pub(crate) fn cpu(&self, cpu: u16, package: u16, siblings: &str) {
        self.put(&format!("cpu{cpu}/topology/physical_package_id"), format!("{package}\n"));
        self.put(&format!("cpu{cpu}/topology/thread_siblings_list"), format!("{siblings}\n"));
    }

    /// Two cores with two threads each, and a policy for each thread.
    pub(crate) fn two_cores() -> Self {
        let folder = Self::new();
        for cpu in 0..4_u16 {
            folder.policy(cpu, &cpu.to_string());
            folder.cpu(cpu, 0, &format!("{},{}", cpu % 2, cpu % 2 + 2));
        }
        folder
    }
}

/// A virtual machine, mounted.
pub(crate) struct TestMachine(test_machine::TestMachine);

impl Deref for TestMachine {
    type Target = test_machine::TestMachine;

    fn deref(&self) -> &test_machine::TestMachine {
        &self.0
    }
}

impl TestMachine {
    pub(crate) fn new(machine: RigMachine) -> Option<Self> {
        test_machine::TestMachine::new(machine).map(Self)
    }

    pub(crate) fn profile(name: &str) -> Option<Self> {
        test_machine::TestMachine::profile(name).map(Self)
    }

    /// Two packages of four CPUs, a policy for each package, with the table of the machine on which the
    /// facts were measured.
    pub(crate) fn table() -> Option<Self> {
        Self::new(table_machine())
    }

    /// Changes or reads a policy without the driver.
    pub(crate) fn policy<R>(&self, at: usize, by: impl FnOnce(&mut VirtualPolicy) -> R) -> R {
        let mut result = None;
        self.machine.lock().change(|_, policies, _| result = Some(by(&mut policies[at])));
        result.unwrap()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.0.join(CPU).join(path)
    }
}

pub(crate) fn table_machine() -> RigMachine {
    let mut spec = preset::xeon_2s();
    spec.layout = PolicyLayout::PerPackage;
    for package in &mut spec.packages {
        (package.cores, package.min_khz) = (4, 1_200_000);
    }
    let mut plant = Plant::new(&spec, 1).unwrap();
    plant.set_load(Load::busy(1.0)).unwrap();
    let policy = |package: usize| VirtualPolicy {
        cpus: (package * 4..package * 4 + 4).collect(),
        driver: "acpi-cpufreq",
        table: (3..=8).map(|step| step * 400_000).collect(),
        hardware: 1_200_000..=3_200_000,
        user_max: 3_200_000,
        user_min: 1_200_000,
        others_max: u32::MAX,
        inactive: false,
        present: true,
        base: None,
        turbo_off: false,
        averages: false,
        late_reads: 0,
        coming: None,
    };
    let cpus = (0..8).map(|cpu| CpuLocation { package: cpu / 4, die: 0, core: cpu % 4 }).collect();
    let parts = MachineParts {
        plant,
        zones: vec![],
        policies: vec![policy(0), policy(1)],
        hwmons: vec![],
        cpus,
        msr: None,
    };
    RigMachine::new(parts, machine::RigTime::Manual)
}

pub(crate) fn khz(khz: i32) -> KiloHertz {
    KiloHertz::from_int(khz)
}

pub(crate) fn limit(khz: i32) -> Setting {
    Setting::Frequency(KiloHertz::from_int(khz))
}

pub(crate) fn find(hal: &Hal, cpu: u16) -> Handle {
    hal.domains().find(&Key::policy(cpu)).unwrap()
}

pub(crate) fn sample(hal: &mut Hal, handle: Handle) -> Result<Sample, ErrorKind> {
    let mut batch = [Reading::new(handle)];
    hal.sample(&mut batch);
    batch[0].outcome
}

/// The limit in force according to a sample, in kHz.
pub(crate) fn in_force(hal: &mut Hal, cpu: u16) -> u32 {
    let handle = find(hal, cpu);
    sample(hal, handle).unwrap().frequency_limit.unwrap().to_whole(Role::Limit)
}

pub(crate) fn apply(hal: &mut Hal, cpu: u16, khz: i32) -> Result<Applied, ErrorKind> {
    let handle = find(hal, cpu);
    hal.apply(handle, limit(khz)).map_err(|failure| failure.kind())
}

pub(crate) fn release(hal: &mut Hal, cpu: u16) -> Result<power_hal::Released, ErrorKind> {
    let handle = find(hal, cpu);
    hal.release(handle).map_err(|failure| failure.kind())
}
