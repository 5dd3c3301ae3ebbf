//! The numbers of one card in one scope: its meter and its limit. Nothing here allocates, except the error for a
//! function that the library lacks; that error occurs in the survey, but not in `sample` and `apply`.

use crate::error::NvmlFault;
use crate::ffi::{Card, SCOPE_GPU, SCOPE_MODULE, Session};
use crate::lock;
use crate::state;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::GpuLockedClocksSetting;
use power_hal::{Measured, MemoryUse, Meter, Slowdowns};
use power_units::{Celsius, KiloHertz, MicroJoules, MicroWatts, Micros, Percent};

/// The scope of a power limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// The GPU.
    Gpu,
    /// The module that contains the GPU and its CPU (Grace Hopper, Grace Blackwell).
    Module,
}

/// The source of a meter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `nvmlDeviceGetTotalEnergyConsumption`, or its field for a module.
    Energy,
    /// The mean power of the last second, by its field.
    Average,
    /// `nvmlDeviceGetPowerUsage`: of the last second since Ampere; instantaneous before, and on GA100.
    Usage,
    /// The instantaneous power, by its field.
    Instant,
}

impl Source {
    /// In the order of preference: energy gives the power over any span, and for a limit a mean is better than an
    /// instantaneous value, since the sensor only samples a quarter of the time.
    pub(crate) const ALL: [Self; 4] = [Self::Energy, Self::Average, Self::Usage, Self::Instant];

    pub(crate) const fn is_energy(self) -> bool {
        matches!(self, Self::Energy)
    }
}

/// The fields of nvml.h.
mod field {
    pub(super) const THROTTLED_BY_POWER: u32 = 74;
    pub(super) const AVERAGE: u32 = 185;
    pub(super) const INSTANT: u32 = 186;
    pub(super) const MIN: u32 = 187;
    pub(super) const MAX: u32 = 188;
    pub(super) const DEFAULT: u32 = 189;
    pub(super) const ENFORCED: u32 = 190;
    pub(super) const ENERGY: u32 = 191;
    pub(super) const REQUESTED: u32 = 192;
}

/// More than any card or module draws, and more than any limit: 20 kW. A larger value is not valid.
const POSSIBLE_MW: u64 = 20_000_000;

/// The range of a limit, and its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min_mw: u32,
    pub(crate) max_mw: u32,
    pub(crate) default_mw: Option<u32>,
}

/// A card in a scope.
#[derive(Debug)]
pub(crate) struct Gauge<'s> {
    session: &'s Session,
    device: Device<'s>,
    card: Card,
    scope: LimitScope,
}

impl<'s> Gauge<'s> {
    pub(crate) fn new(session: &'s Session, card: Card, scope: LimitScope) -> Result<Self, NvmlFault> {
        let device = session.device(card).ok_or(NvmlFault::UNINITIALIZED)?;
        Ok(Self { session, device, card, scope })
    }

    /// The limit that the card enforces: the lowest of the requested limit and those that were set out of band.
    pub(crate) fn enforced(&self) -> Result<u32, NvmlFault> {
        limit(match self.scope {
            LimitScope::Gpu => u64::from(self.device.enforced_power_limit()?),
            LimitScope::Module => self.field(field::ENFORCED)?,
        })
    }

    /// The limit that was last requested, by any process.
    pub(crate) fn requested(&self) -> Result<u32, NvmlFault> {
        limit(match self.scope {
            LimitScope::Gpu => u64::from(self.device.power_management_limit()?),
            LimitScope::Module => self.field(field::REQUESTED)?,
        })
    }

    pub(crate) fn range(&self) -> Result<Range, NvmlFault> {
        let (min, max, default) = match self.scope {
            LimitScope::Gpu => {
                let range = self.device.power_management_limit_constraints()?;
                let default = self.device.power_management_limit_default().map(u64::from);
                (range.min_limit.into(), range.max_limit.into(), default.map_err(NvmlFault::from))
            }
            LimitScope::Module => {
                (self.field(field::MIN)?, self.field(field::MAX)?, self.field(field::DEFAULT))
            }
        };
        let default_mw = default.and_then(limit).ok();
        Ok(Range { min_mw: milliwatts(min)?, max_mw: limit(max)?, default_mw })
    }

    pub(crate) fn set(&mut self, limit_mw: u32) -> Result<(), NvmlFault> {
        match self.scope {
            LimitScope::Gpu => Ok(self.device.set_power_management_limit(limit_mw)?),
            LimitScope::Module => self.session.set_module_limit(self.card, limit_mw),
        }
    }

    /// Whether the library has the function that sets the limit.
    pub(crate) fn settable(&self) -> bool {
        let lib = self.session.nvml().lib();
        match self.scope {
            LimitScope::Gpu => lib.nvmlDeviceSetPowerManagementLimit.is_ok(),
            LimitScope::Module => lib.nvmlDeviceSetPowerManagementLimit_v2.is_ok(),
        }
    }

    /// The clocks to which the card can be locked, MHz, ascending. In the scope of a module there is no lock: it would not
    /// hold the processor.
    pub(crate) fn clocks(&self) -> Result<Vec<u32>, NvmlFault> {
        let lib = self.session.nvml().lib();
        if lib.nvmlDeviceSetGpuLockedClocks.is_err() || lib.nvmlDeviceResetGpuLockedClocks.is_err() {
            return Err(NvmlFault::Missing);
        }
        if self.scope != LimitScope::Gpu {
            return Err(NvmlFault::Lacking);
        }
        let memory =
            self.device.supported_memory_clocks()?.into_iter().max().ok_or(NvmlFault::Impossible(0))?;
        lock::table(self.session.graphics_clocks(self.card, memory)?).ok_or(NvmlFault::Impossible(0))
    }

    /// The clock at which it runs.
    pub(crate) fn clock(&self) -> Result<KiloHertz, NvmlFault> {
        let mhz = self.device.clock_info(Clock::Graphics)?;
        Ok(lock::kilohertz(mhz))
    }

    /// Locks its clock between these, MHz.
    pub(crate) fn lock(&mut self, min_clock_mhz: u32, max_clock_mhz: u32) -> Result<(), NvmlFault> {
        let setting = GpuLockedClocksSetting::Numeric { min_clock_mhz, max_clock_mhz };
        Ok(self.device.set_gpu_locked_clocks(setting)?)
    }

    /// Ends every lock of its clock, whoever has set it.
    pub(crate) fn unlock(&mut self) -> Result<(), NvmlFault> {
        Ok(self.device.reset_gpu_locked_clocks()?)
    }

    /// The power of a source, in milliwatts.
    pub(crate) fn power(&self, source: Source) -> Result<u32, NvmlFault> {
        milliwatts(match (source, self.scope) {
            (Source::Average, _) => self.field(field::AVERAGE)?,
            (Source::Instant, _) => self.field(field::INSTANT)?,
            (Source::Usage, LimitScope::Gpu) => u64::from(self.device.power_usage()?),
            (Source::Usage, LimitScope::Module) | (Source::Energy, _) => return Err(NvmlFault::Lacking),
        })
    }

    /// The energy since the driver was loaded, in millijoules.
    fn energy(&self) -> Result<u64, NvmlFault> {
        match self.scope {
            LimitScope::Gpu => Ok(self.device.total_energy_consumption()?),
            LimitScope::Module => self.field(field::ENERGY),
        }
    }

    pub(crate) fn measured(&self, source: Source) -> Result<Measured, NvmlFault> {
        if source.is_energy() {
            let energy = self.energy()?;
            // All ones means "not available", and this many millijoules are not plausible either.
            let energy_uj = energy.checked_mul(1_000).ok_or(NvmlFault::Impossible(energy))?;
            return Ok(Measured::Energy(MicroJoules::new(energy_uj)));
        }
        self.power(source).map(|power| Measured::Power(micro_watts(power)))
    }

    /// The temperature of the die.
    pub(crate) fn temperature(&self) -> Result<Celsius, NvmlFault> {
        state::celsius(self.device.temperature(TemperatureSensor::Gpu)?)
    }

    /// For which part of the last sampling period of the driver it computed.
    pub(crate) fn utilisation(&self) -> Result<Percent, NvmlFault> {
        state::percent(self.device.utilization_rates()?.gpu)
    }

    /// How much of its memory is in use.
    pub(crate) fn memory(&self) -> Result<MemoryUse, NvmlFault> {
        let memory = self.device.memory_info()?;
        state::memory(memory.used, memory.total)
    }

    /// What slows it at this instant.
    pub(crate) fn slowdowns(&self) -> Result<Slowdowns, NvmlFault> {
        Ok(state::causes(self.device.current_throttle_reasons()?.bits()))
    }

    /// For how long its power limit has held it back since the driver was loaded.
    pub(crate) fn throttled_time(&self) -> Result<Micros, NvmlFault> {
        state::nanoseconds(self.session.field(self.card, SCOPE_GPU, field::THROTTLED_BY_POWER)?)
    }

    fn field(&self, field: u32) -> Result<u64, NvmlFault> {
        let scope = match self.scope {
            LimitScope::Gpu => SCOPE_GPU,
            LimitScope::Module => SCOPE_MODULE,
        };
        self.session.field(self.card, scope, field)
    }
}

pub(crate) const fn micro_watts(milliwatts: u32) -> MicroWatts {
    // 32 bits times a thousand fit in 64 bits.
    MicroWatts::new(milliwatts as u64 * 1_000)
}

pub(crate) const fn meter(source: Source) -> Meter {
    match source {
        Source::Energy => Meter::Energy(power_hal::Counter::endless()),
        Source::Average | Source::Usage | Source::Instant => Meter::Power,
    }
}

fn milliwatts(value: u64) -> Result<u32, NvmlFault> {
    u32::try_from(value).ok().filter(|_| value <= POSSIBLE_MW).ok_or(NvmlFault::Impossible(value))
}

/// A limit of zero is not valid: no card enforces it.
fn limit(value: u64) -> Result<u32, NvmlFault> {
    milliwatts(value).and_then(|limit| if limit == 0 { Err(NvmlFault::Impossible(0)) } else { Ok(limit) })
}
