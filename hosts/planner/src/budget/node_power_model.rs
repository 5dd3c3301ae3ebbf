//! What a node's watts are made of, and the way between a grant of the node and the caps of its devices.

use crate::hardware::ResolvedHardware;
use crate::intent::{DeviceCap, NodeCaps};
use crate::power::estimate::{IDLE_CPU, IDLE_GPU};
use power_units::{Amount, Ratio, Role, Watts};

/// Devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Devices {
    /// Nothing when nobody can say how many there are.
    count: Option<u32>,
    min: Watts,
    max: Option<Watts>,
    /// Its agent can cap these devices.
    capped: bool,
}

/// What the watts of a node's packages and GPUs are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePowerModel {
    cpu: Devices,
    gpu: Devices,
}

/// The schema's least cap.
const LEAST: Watts = Watts::from_int(1);

/// The lowest cap of a device that names none: about what it draws when it does nothing, in whole watts. A lower one
/// cannot be kept, and a device that came near it would do next to nothing.
fn idle(max: Watts, share: Ratio) -> Watts {
    let half = 1_i64 << 31;
    let bits = max.scale(share, Role::Nearest).to_bits().saturating_add(half);
    Watts::from_bits(bits - bits.rem_euclid(1 << 32)).max(LEAST)
}

impl Devices {
    /// What they draw together when each draws as much; nothing when nobody can say how many there are.
    fn all(self, each: Watts) -> Option<Watts> {
        self.count.map(|count| each.times(count))
    }

    /// Whether there may be any, and they can be capped.
    const fn is_capped(self) -> bool {
        self.capped && !matches!(self.count, Some(0))
    }

    /// Whether it is known what they can draw.
    const fn is_known(self) -> bool {
        matches!((self.count, self.max), (Some(0), _) | (Some(_), Some(_)))
    }

    /// The most that they draw under a cap.
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

    /// Whole watts of each device, rounded down, of what they may draw together; never below the lowest cap.
    fn each(self, all: Watts) -> Option<DeviceCap> {
        let count = self.count.filter(|&count| count > 0)?;
        let each = all.to_bits() / i64::from(count);
        let whole = Watts::from_bits(each - each.rem_euclid(1 << 32)).max(self.min);
        Some(DeviceCap { percent: None, watts: Some(whole) })
    }
}

impl NodePowerModel {
    /// Of a node with this hardware, of which its agent can cap the packages, the GPUs, or both.
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

    /// Of a node of which nobody knows more than the least that it can be held to and the most that it may draw.
    #[must_use]
    pub fn lump(least: Watts, most: Watts) -> Self {
        let all = Devices { count: Some(1), min: least, max: Some(most), capped: least < most };
        Self { cpu: all, gpu: Devices { count: Some(0), min: LEAST, max: None, capped: false } }
    }

    /// Whether it is known what the node can draw. Of one of which it is not no grant can be told from another, so that
    /// the budget asks none of it.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.cpu.is_known() && self.gpu.is_known()
    }

    /// The most that packages and GPUs draw with these caps; nothing when nobody can say.
    #[must_use]
    pub fn watts(&self, caps: &NodeCaps) -> Option<Watts> {
        self.cpu.under(caps.cpu)?.checked_add(self.gpu.under(caps.gpu)?)
    }

    /// The most that they can draw.
    #[must_use]
    pub fn max(&self) -> Option<Watts> {
        self.watts(&NodeCaps::default())
    }

    /// The lowest that they can be capped to together.
    #[must_use]
    pub fn floor(&self) -> Watts {
        let part = |devices: Devices| devices.lowest().unwrap_or(Watts::ZERO);
        part(self.cpu) + part(self.gpu)
    }

    /// The caps that the node's agent makes of a grant of so many watts where these are desired: every device has its lowest
    /// cap, and of the rest the same part of the way from there to what is desired of it. What is desired, where that fits.
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

    /// Whether anything of it can be capped.
    #[must_use]
    pub const fn is_cappable(&self) -> bool {
        self.cpu.is_capped() || self.gpu.is_capped()
    }
}
