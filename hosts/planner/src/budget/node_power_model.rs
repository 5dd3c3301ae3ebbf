//! A node's power by kind of device, and the conversion between a grant of the node and the caps of its devices.

use crate::hardware::ResolvedHardware;
use crate::intent::{DeviceCap, NodeCaps};
use crate::power::estimate::{IDLE_CPU, IDLE_GPU};
use power_units::{Amount, Ratio, Role, Watts};

/// Devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Devices {
    /// `None` when the count is unknown.
    count: Option<u32>,
    min: Watts,
    max: Option<Watts>,
    /// Its agent can cap these devices.
    capped: bool,
}

/// The power of a node's packages and GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePowerModel {
    cpu: Devices,
    gpu: Devices,
}

/// The lowest cap that the schema allows.
const LEAST: Watts = Watts::from_int(1);

/// The lowest cap of a device without a stated one: about its idle power, in whole watts. A lower cap cannot be kept,
/// and near it a device would hardly work.
fn idle(max: Watts, share: Ratio) -> Watts {
    let half = 1_i64 << 31;
    let bits = max.scale(share, Role::Nearest).to_bits().saturating_add(half);
    Watts::from_bits(bits - bits.rem_euclid(1 << 32)).max(LEAST)
}

impl Devices {
    /// Their power together when each draws `each`; `None` when the count is unknown.
    fn all(self, each: Watts) -> Option<Watts> {
        self.count.map(|count| each.times(count))
    }

    /// Whether there may be such devices and they can be capped.
    const fn is_capped(self) -> bool {
        self.capped && !matches!(self.count, Some(0))
    }

    /// Whether their greatest power is known.
    const fn is_known(self) -> bool {
        matches!((self.count, self.max), (Some(0), _) | (Some(_), Some(_)))
    }

    /// The most that they can draw under a cap.
    fn under(self, cap: Option<DeviceCap>) -> Option<Watts> {
        if self.count == Some(0) {
            return Some(Watts::ZERO);
        }
        let max = self.max;
        let each = match cap.filter(|_| self.capped) {
            Some(DeviceCap { watts: Some(watts), .. }) => {
                max.map_or(watts, |max| watts.min(max)).max(self.min)
            }
            Some(DeviceCap { percent: Some(percent), watts: None }) => {
                let max = max?;
                max.scale(percent.to_ratio(Role::Demand), Role::Demand).min(max).max(self.min)
            }
            Some(DeviceCap { percent: None, watts: None }) | None => max?,
        };
        self.all(each)
    }

    fn lowest(self) -> Option<Watts> {
        if self.capped { self.all(self.min) } else { self.under(None) }
    }

    /// The cap of each device in whole watts, rounded down, for a total of all; never below the lowest cap.
    fn each(self, all: Watts) -> Option<DeviceCap> {
        let count = self.count.filter(|&count| count > 0)?;
        let each = all.to_bits() / i64::from(count);
        let whole = Watts::from_bits(each - each.rem_euclid(1 << 32)).max(self.min);
        Some(DeviceCap { percent: None, watts: Some(whole) })
    }
}

impl NodePowerModel {
    /// The model of a node with this hardware, whose agent can cap the packages, the GPUs, or both.
    #[must_use]
    pub fn of(hardware: &ResolvedHardware, (cpu_capped, gpu_capped): (bool, bool)) -> Self {
        let known = |watts: Option<Watts>| watts.filter(|&watts| watts > Watts::ZERO);
        let devices = |count, (min, max): (Option<Watts>, Option<Watts>), idle_share, capped| {
            let max = known(max);
            let min = known(min).or(max.map(|max| idle(max, idle_share))).unwrap_or(LEAST);
            Devices { count, min: max.map_or(min, |max| min.min(max)), max, capped }
        };
        let cpu = &hardware.cpu;
        let gpu = hardware.gpu.as_ref();
        let cpu_range = (cpu.min_per_socket, cpu.max_per_socket);
        let gpu_range = (gpu.and_then(|gpu| gpu.min), gpu.and_then(|gpu| gpu.max));
        Self {
            cpu: devices(cpu.sockets, cpu_range, IDLE_CPU, cpu_capped),
            gpu: devices(Some(gpu.map_or(0, |gpu| gpu.count)), gpu_range, IDLE_GPU, gpu_capped),
        }
    }

    /// The model of a node of which only the lowest grant and the greatest power are known.
    #[must_use]
    pub fn lump(least: Watts, most: Watts) -> Self {
        let all = Devices { count: Some(1), min: least, max: Some(most), capped: least < most };
        Self { cpu: all, gpu: Devices { count: Some(0), min: LEAST, max: None, capped: false } }
    }

    /// Whether the node's greatest power is known. Otherwise its grants cannot be told apart, so the budget does not
    /// grant it any.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.cpu.is_known() && self.gpu.is_known()
    }

    /// The most that packages and GPUs draw with these caps; `None` when unknown.
    #[must_use]
    pub fn watts(&self, caps: &NodeCaps) -> Option<Watts> {
        self.cpu.under(caps.cpu)?.checked_add(self.gpu.under(caps.gpu)?)
    }

    /// The most that they can draw.
    #[must_use]
    pub fn max(&self) -> Option<Watts> {
        self.watts(&NodeCaps::default())
    }

    /// The lowest total that they can be capped to.
    #[must_use]
    pub fn floor(&self) -> Watts {
        let part = |devices: Devices| devices.lowest().unwrap_or(Watts::ZERO);
        part(self.cpu) + part(self.gpu)
    }

    /// The caps that the node's agent derives from a grant of `watts` and these desired caps: every device gets its
    /// lowest cap, and all get the same fraction of the difference to their desired caps. Returns the desired caps if
    /// they fit.
    #[must_use]
    pub fn under_grant(&self, desired: &NodeCaps, watts: Watts) -> NodeCaps {
        let Some(wanted) = self.watts(desired) else { return *desired };
        if wanted <= watts {
            return *desired;
        }
        let floor = self.floor();
        let (given, way) = ((watts - floor).or_zero(), wanted - floor);
        let cap = |devices: Devices, cap: Option<DeviceCap>| {
            let all = devices.under(cap).filter(|_| devices.is_capped())?;
            let low = devices.all(devices.min)?;
            let part = (all - low).or_zero().part(given, way, Role::Limit).unwrap_or(Watts::ZERO);
            devices.each(low + part)
        };
        NodeCaps {
            cpu: cap(self.cpu, desired.cpu).or(desired.cpu),
            gpu: cap(self.gpu, desired.gpu).or(desired.gpu),
        }
    }

    /// Whether any of its devices can be capped.
    #[must_use]
    pub const fn is_cappable(&self) -> bool {
        self.cpu.is_capped() || self.gpu.is_capped()
    }
}
