//! The machines of a virtual site, its racks and its limits.
//!
//! All caps are for the packages and GPUs of a machine together. What a machine draws beside them is a base load of
//! its rack. A cap below the floors of the devices is kept at the floors.

use joulie_core::budget::{
    BudgetNode, BudgetTree, GrantAccount, Group, GroupShare, Priority, Range, allocate,
};
use plant::{from_watts, to_watts};
use power_units::Watts;

/// Devices of one kind in a machine; the watts are of one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceRow {
    /// How many.
    pub count: u8,
    /// What it draws without work.
    pub idle: f64,
    /// Its lowest limit.
    pub floor: f64,
    /// The most that it draws.
    pub max: f64,
}

impl DeviceRow {
    fn all(&self, watts: f64) -> f64 {
        f64::from(self.count) * watts
    }

    /// What one of them draws when it is busy for this part.
    pub(crate) fn at(&self, busy: f64) -> f64 {
        self.idle + busy * (self.max - self.idle)
    }
}

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineModel {
    /// Its name in the tables.
    pub name: &'static str,
    /// What it draws beside its packages and GPUs.
    pub rest: f64,
    /// Its packages.
    pub packages: DeviceRow,
    /// Its GPUs.
    pub gpus: DeviceRow,
}

impl MachineModel {
    /// What its devices draw without work.
    #[must_use]
    pub fn idle(&self) -> f64 {
        self.packages.all(self.packages.idle) + self.gpus.all(self.gpus.idle)
    }

    /// The lowest cap that its devices can keep.
    #[must_use]
    pub fn floor(&self) -> f64 {
        self.packages.all(self.packages.floor) + self.gpus.all(self.gpus.floor)
    }

    /// The most that its devices draw.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.packages.all(self.packages.max) + self.gpus.all(self.gpus.max)
    }

    /// The cap that the devices keep when they are given this one.
    #[must_use]
    pub fn kept(&self, cap: f64) -> f64 {
        cap.max(self.floor()).min(self.max())
    }
}

const NO_GPUS: DeviceRow = DeviceRow { count: 0, idle: 0.0, floor: 0.0, max: 0.0 };

/// Eight large GPUs: with the rest of the machine 1.04 kW idle, 2.15 at the floors, 6.6 at most.
pub const GPU8: MachineModel = MachineModel {
    name: "8 GPUs",
    rest: 300.0,
    packages: DeviceRow { count: 2, idle: 90.0, floor: 125.0, max: 350.0 },
    gpus: DeviceRow { count: 8, idle: 70.0, floor: 200.0, max: 700.0 },
};
/// Four GPUs: 0.54, 0.8 and 2.36 kW.
pub const GPU4: MachineModel = MachineModel {
    name: "4 GPUs",
    rest: 200.0,
    packages: DeviceRow { count: 2, idle: 70.0, floor: 100.0, max: 280.0 },
    gpus: DeviceRow { count: 4, idle: 50.0, floor: 100.0, max: 400.0 },
};
/// Packages only: 0.24, 0.3 and 0.84 kW.
pub const CPU: MachineModel = MachineModel {
    name: "CPUs",
    rest: 120.0,
    packages: DeviceRow { count: 2, idle: 60.0, floor: 90.0, max: 360.0 },
    gpus: NO_GPUS,
};
/// The kinds, for figures of one class of machines.
pub const KINDS: [&MachineModel; 3] = [&GPU8, &GPU4, &CPU];

/// A machine of the site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VirtualMachine {
    /// Its kind.
    pub kind: &'static MachineModel,
    /// The index of its rack.
    pub rack: usize,
    /// Who is squeezed last.
    pub class: Priority,
}

/// The limits of a moment, and what follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsNow {
    /// The site's: for the mean, where the one for every instant is another.
    pub site: f64,
    /// The site's for every instant.
    pub instant: f64,
    /// An armed event is on.
    pub armed: bool,
    /// Each rack's.
    pub racks: Vec<f64>,
    /// What each machine is entitled to: the split of the limits when everybody wants all.
    pub entitled: Vec<f64>,
}

/// A site.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualSite {
    /// Its machines.
    pub machines: Vec<VirtualMachine>,
    /// What is drawn in each rack that nobody controls.
    pub base: Vec<f64>,
}

/// Machines in a rack.
pub const RACK: usize = 20;
/// A rack's limit, of its share of the site's.
const RACK_PART: f64 = 1.25;

impl VirtualSite {
    /// So many machines: of each ten, four have eight GPUs, three have four, three have none.
    #[must_use]
    pub fn of(machines: usize) -> Self {
        let kind = |at: usize| match at % 10 {
            0 | 3 | 5 | 8 => &GPU8,
            1 | 4 | 7 => &GPU4,
            _ => &CPU,
        };
        let class = Priority::Performance;
        let machines: Vec<_> =
            (0..machines).map(|at| VirtualMachine { kind: kind(at), rack: at / RACK, class }).collect();
        let mut base = vec![0.0; machines.len().div_ceil(RACK)];
        for machine in &machines {
            base[machine.rack] += machine.kind.rest;
        }
        Self { machines, base }
    }

    /// The same machines in classes: of each six, two are eco and one is draining.
    #[must_use]
    pub fn in_classes(mut self) -> Self {
        for (at, machine) in self.machines.iter_mut().enumerate() {
            machine.class = match at % 6 {
                0 | 3 => Priority::Eco,
                1 => Priority::Draining,
                _ => Priority::Performance,
            };
        }
        self
    }

    /// The part of the way from their floors to their most that all machines may have so that the site stays within a limit.
    #[must_use]
    pub fn share(&self, limit: f64) -> f64 {
        let sum =
            |what: fn(&MachineModel) -> f64| self.machines.iter().map(|one| what(one.kind)).sum::<f64>();
        let (floor, max) = (sum(MachineModel::floor), sum(MachineModel::max));
        ((limit - self.whole_base() - floor) / (max - floor)).clamp(0.0, 1.0)
    }

    /// What is drawn that nobody controls.
    #[must_use]
    pub fn whole_base(&self) -> f64 {
        self.base.iter().sum()
    }

    /// The limits when the site's is this one.
    ///
    /// # Panics
    /// When the limits are negative or not numbers.
    #[must_use]
    pub fn limits(&self, site: f64) -> LimitsNow {
        let site = site.floor();
        let racks = vec![(site * RACK_PART / self.base.len() as f64).floor(); self.base.len()];
        let watts = |watts: f64| to_watts(watts).expect("a number");
        let mut groups = vec![Group::new(None, watts(site), Some(Watts::ZERO)).expect("not negative")];
        for (&limit, &base) in racks.iter().zip(&self.base) {
            groups.push(Group::new(Some(0), watts(limit), Some(watts(base))).expect("not negative"));
        }
        let nodes: Vec<BudgetNode> = (0_u64..)
            .zip(&self.machines)
            .map(|(key, machine)| BudgetNode {
                key,
                group: 1 + machine.rack,
                priority: machine.class,
                range: Range::new(watts(machine.kind.floor()), Some(watts(machine.kind.max())))
                    .expect("in order"),
                desired: watts(machine.kind.max()),
                reachable: true,
                account: GrantAccount::NONE,
            })
            .collect();
        let tree = BudgetTree::new(&groups).expect("parents first");
        let (mut shares, mut targets) =
            (vec![GroupShare::EMPTY; groups.len()], vec![Watts::ZERO; nodes.len()]);
        allocate(tree, &nodes, &mut shares, &mut targets).expect("the slices fit");
        let entitled = targets.into_iter().map(from_watts).collect();
        LimitsNow { site, instant: site, armed: false, racks, entitled }
    }
}
