//! A machine that is switched off and on: how long that takes, what it draws meanwhile, and what is lost.
//!
//! ```text
//!        shut down                 off in time               switched on            booted in time
//!  On ──────────────▶ Stopping ──────────────────▶ Off ──────────────────▶ Booting ───────────────▶ On
//!   └───────────────────── cut off: at once ────────▶ ◀──── cut off: at once ─┘
//! ```
//!
//! A machine that boots begins anew: its limits are the highest, its boot id is another one, and nothing of its pods is left. While
//! it boots its processors are taken for fully busy, because nobody has measured boots of these models: a sleep then saves less
//! here than it would, never more.

use super::{Running, SimulatedMachine};
use plant::{Load, PlantDomain};
use power_units::Micros;

/// What a machine draws while it boots, beside its GPUs, which are idle.
pub(super) const BOOT_LOAD: Load = Load::busy(1.0);

/// How a machine is switched, in simulated time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchTimes {
    /// How long its system takes to end by itself.
    pub stops_in: Micros,
    /// How long it takes from the order until its node is there.
    pub boots_in: Micros,
    /// What it draws while it is off: its management controller, W.
    pub standby_watts: f64,
}

impl SwitchTimes {
    /// Some times of servers: 15 s to end, 90 s to boot, and 12 W while they are off.
    pub const USUAL: Self =
        Self { stops_in: Micros::new(15_000_000), boots_in: Micros::new(90_000_000), standby_watts: 12.0 };
}

/// Whether a machine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachinePower {
    /// It is.
    On,
    /// Its system ends.
    Stopping {
        /// When it is off.
        until: Micros,
    },
    /// It is off.
    Off,
    /// Its system starts.
    Booting {
        /// When its node is there.
        until: Micros,
    },
}

impl MachinePower {
    /// A word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Stopping { .. } => "stopping",
            Self::Off => "off",
            Self::Booting { .. } => "booting",
        }
    }

    /// When it changes by itself.
    const fn turns_at(self) -> Option<Micros> {
        match self {
            Self::Stopping { until } | Self::Booting { until } => Some(until),
            Self::On | Self::Off => None,
        }
    }
}

/// What a machine is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOrder {
    /// To start.
    Start,
    /// To end by itself, and to be off then.
    ShutDown,
    /// To be off at once.
    CutOff,
}

/// Time and energy that a machine has spent in one state of its power.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PowerSpent {
    /// How long.
    pub seconds: f64,
    /// The energy of the whole node, J.
    pub joules: f64,
}

impl PowerSpent {
    fn add(&mut self, micros: u64, joules: f64) {
        self.seconds += micros as f64 / 1e6;
        self.joules += joules;
    }
}

/// What outlives a boot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MachineSwitch {
    times: SwitchTimes,
    power: MachinePower,
    /// The boot id of its first boot, and how many have followed.
    first_boot: String,
    boots: u32,
    /// Time and energy before the present boot.
    before_us: u64,
    before_joules: f64,
    off: PowerSpent,
    booting: PowerSpent,
    lost: u64,
}

impl MachineSwitch {
    pub(super) const fn on() -> Self {
        const NOTHING: PowerSpent = PowerSpent { seconds: 0.0, joules: 0.0 };
        Self {
            times: SwitchTimes::USUAL,
            power: MachinePower::On,
            first_boot: String::new(),
            boots: 0,
            before_us: 0,
            before_joules: 0.0,
            off: NOTHING,
            booting: NOTHING,
            lost: 0,
        }
    }
}

impl SimulatedMachine {
    /// The machine with this boot id.
    #[must_use]
    pub(crate) fn booted(mut self, boot: &str) -> Self {
        boot.clone_into(&mut self.boot);
        boot.clone_into(&mut self.switch.first_boot);
        self
    }

    /// The machine with these times.
    #[must_use]
    pub(crate) fn switched_in(mut self, times: SwitchTimes) -> Self {
        self.switch.times = times;
        self
    }

    /// Whether it is on.
    #[must_use]
    pub const fn power(&self) -> MachinePower {
        self.switch.power
    }

    /// Whether its system answers: telemetry, controls and kubelet.
    #[must_use]
    pub const fn answers(&self) -> bool {
        matches!(self.switch.power, MachinePower::On | MachinePower::Stopping { .. })
    }

    /// What it has spent while it was off.
    #[must_use]
    pub const fn off(&self) -> PowerSpent {
        self.switch.off
    }

    /// What it has spent on boots.
    #[must_use]
    pub const fn booting(&self) -> PowerSpent {
        self.switch.booting
    }

    /// How many pods were on it at moments at which it went off.
    #[must_use]
    pub const fn lost_pods(&self) -> u64 {
        self.switch.lost
    }

    /// What it draws while it is off, W; `None` while it is not.
    pub(super) fn standby(&self) -> Option<f64> {
        (self.switch.power == MachinePower::Off).then_some(self.switch.times.standby_watts)
    }

    /// Carries an order out. One that its present state does not allow changes nothing.
    pub fn switch(&mut self, order: PowerOrder) {
        let now = self.now().get();
        let after = |time: Micros| Micros::new(now.saturating_add(time.get()));
        match (order, self.switch.power) {
            (PowerOrder::Start, MachinePower::Off) => {
                self.switch.boots = self.switch.boots.saturating_add(1);
                self.boot = format!("{}-{}", self.switch.first_boot, self.switch.boots);
                self.switch.power = MachinePower::Booting { until: after(self.switch.times.boots_in) };
                self.load();
            }
            (PowerOrder::ShutDown, MachinePower::On) => {
                self.switch.power = MachinePower::Stopping { until: after(self.switch.times.stops_in) };
            }
            (
                PowerOrder::CutOff,
                MachinePower::On | MachinePower::Stopping { .. } | MachinePower::Booting { .. },
            ) => {
                self.go_off();
            }
            (PowerOrder::Start, _) | (PowerOrder::ShutDown, _) | (PowerOrder::CutOff, MachinePower::Off) => {}
        }
    }

    /// Advances the simulated time to this moment. A moment in the past has no effect.
    pub fn advance(&mut self, until: Micros) {
        while let Some(turn) = self.switch.power.turns_at().filter(|turn| *turn <= until) {
            self.pass_time(turn);
            match self.switch.power {
                MachinePower::Stopping { .. } => self.go_off(),
                MachinePower::Booting { .. } => {
                    self.switch.power = MachinePower::On;
                    self.load();
                }
                MachinePower::On | MachinePower::Off => return,
            }
        }
        self.pass_time(until);
    }

    /// Advances the time within one state of its power.
    fn pass_time(&mut self, until: Micros) {
        let micros = until.get().saturating_sub(self.now().get());
        let before = self.joules();
        if let Some(watts) = self.standby() {
            self.switch.before_us = self.switch.before_us.saturating_add(micros);
            self.switch.before_joules += watts * micros as f64 / 1e6;
        } else {
            self.run(Micros::new(until.get().saturating_sub(self.switch.before_us)));
        }
        let joules = self.joules() - before;
        match self.switch.power {
            MachinePower::Off => self.switch.off.add(micros, joules),
            MachinePower::Booting { .. } => self.switch.booting.add(micros, joules),
            MachinePower::On | MachinePower::Stopping { .. } => {}
        }
    }

    /// All that a machine loses that goes off is gone at this moment.
    fn go_off(&mut self) {
        let lost = self.pods().values().filter(|pod| !Running::is_finished(pod)).count();
        self.switch.lost = self.switch.lost.saturating_add(u64::try_from(lost).unwrap_or(u64::MAX));
        self.switch.before_joules = self.joules();
        self.switch.before_us = self.now().get();
        self.switch.power = MachinePower::Off;
        let cold = Self::of(&self.name, &self.hardware, self.seed);
        debug_assert!(cold.is_ok(), "the hardware was accepted before");
        if let Ok(cold) = cold {
            let (switch, boot) = (self.switch.clone(), std::mem::take(&mut self.boot));
            *self = Self { switch, boot, ..cold };
        }
    }

    /// The simulated time since the start.
    #[must_use]
    pub fn now(&self) -> Micros {
        Micros::new(self.switch.before_us.saturating_add(self.plant.now().get()))
    }

    /// The energy of the whole node since the start, J.
    #[must_use]
    pub fn joules(&self) -> f64 {
        let present = self.plant.energy(PlantDomain::Node).map_or(0.0, |energy| energy.get() as f64 / 1e6);
        self.switch.before_joules + present
    }
}
