//! What a node's watts are made of, and the way between a cap of the node and the caps of its devices.

use planner::hardware::Hardware;
use planner::intent::{Cap, Caps};
use power_units::{Amount, Role, Watts};

/// Devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Devices {
    count: u32,
    min: Watts,
    max: Option<Watts>,
    /// The caps of these devices are the operator's to write.
    capped: bool,
}

/// What a node's watts are made of: its packages, its GPUs, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    cpu: Devices,
    gpu: Devices,
    rest: Watts,
}

/// The schema's least cap; what a device that does not name its lowest limit really takes shows when it is asked.
const LEAST: Watts = Watts::from_int(1);

impl Devices {
    fn all(self, each: Watts) -> Watts {
        each.times(self.count)
    }

    /// The most that they draw under a cap.
    fn under(self, cap: Option<Cap>) -> Option<Watts> {
        if self.count == 0 {
            return Some(Watts::ZERO);
        }
        let max = self.max;
        let each = match cap.filter(|_| self.capped) {
            Some(Cap { watts: Some(watts), .. }) => max.map_or(watts, |max| watts.min(max)).max(self.min),
            Some(Cap { percent: Some(percent), watts: None }) => {
                let max = max?;
                max.scale(percent.to_ratio(Role::Demand), Role::Demand).min(max).max(self.min)
            }
            Some(Cap { percent: None, watts: None }) | None => max?,
        };
        Some(self.all(each))
    }

    fn lowest(self) -> Option<Watts> {
        if self.capped { Some(self.all(self.min)) } else { self.under(None) }
    }
}

impl Split {
    /// Of a node with this hardware, of which those devices are capped that `caps` names.
    pub(crate) fn of(hardware: &Hardware, caps: &Caps, can: (bool, bool), rest: Watts) -> Self {
        let known = |watts: Option<Watts>| watts.filter(|&watts| watts > Watts::ZERO);
        let devices = |count: u32, min: Option<Watts>, max: Option<Watts>, capped: bool| {
            let max = known(max);
            let min = known(min).unwrap_or(LEAST);
            Devices { count, min: max.map_or(min, |max| min.min(max)), max, capped }
        };
        let cpu = &hardware.cpu;
        let sockets = cpu.sockets.unwrap_or(1);
        let gpu = hardware.gpu.as_ref();
        Self {
            cpu: devices(sockets, cpu.min_per_socket, cpu.max_per_socket, can.0 && caps.cpu.is_some()),
            gpu: devices(
                gpu.map_or(0, |gpu| gpu.count),
                gpu.and_then(|gpu| gpu.min),
                gpu.and_then(|gpu| gpu.max),
                can.1 && caps.gpu.is_some(),
            ),
            rest,
        }
    }

    /// The most that the node draws with these caps; nothing when nobody can say.
    pub(crate) fn watts(&self, caps: &Caps) -> Option<Watts> {
        let devices = self.cpu.under(caps.cpu)?.checked_add(self.gpu.under(caps.gpu)?)?;
        devices.checked_add(self.rest)
    }

    /// The most that it can draw.
    pub(crate) fn max(&self) -> Option<Watts> {
        self.watts(&Caps::default())
    }

    /// The lowest that it can be capped to.
    pub(crate) fn floor(&self) -> Watts {
        let part = |devices: Devices| devices.lowest().unwrap_or(Watts::ZERO);
        let floor = part(self.cpu) + part(self.gpu) + self.rest;
        self.max().map_or(floor, |max| floor.min(max))
    }

    /// Caps under which the node draws at most `target`, on the way from its lowest caps to the desired ones; these
    /// themselves where they fit. Whole watts a device, rounded down, so that a person can read them.
    pub(crate) fn caps(&self, desired: &Caps, target: Watts) -> Caps {
        let Some(wanted) = self.watts(desired) else { return self.lowest(desired) };
        if wanted <= target {
            return self.absolute(desired);
        }
        let floor = self.floor();
        let (given, way) = ((target - floor).or_zero(), wanted - floor);
        let cap = |devices: Devices, cap: Option<Cap>| {
            let all = devices.under(cap).filter(|_| devices.capped && devices.count > 0)?;
            let low = devices.all(devices.min);
            let part = (all - low).or_zero().part(given, way, Role::Limit).unwrap_or(Watts::ZERO);
            let each = (low + part).to_bits() / i64::from(devices.count);
            let whole = Watts::from_bits(each - each.rem_euclid(1 << 32)).max(devices.min);
            Some(Cap { percent: None, watts: Some(whole) })
        };
        Caps { cpu: cap(self.cpu, desired.cpu), gpu: cap(self.gpu, desired.gpu) }
    }

    /// The same caps in watts, which an agent reads back as they are.
    fn absolute(&self, caps: &Caps) -> Caps {
        let cap = |devices: Devices, cap: Option<Cap>| {
            let all = devices.under(cap).filter(|_| devices.capped && devices.count > 0)?;
            let each = all.to_bits() / i64::from(devices.count);
            Some(Cap {
                percent: None,
                watts: Some(Watts::from_bits(each - each.rem_euclid(1 << 32)).max(devices.min)),
            })
        };
        Caps { cpu: cap(self.cpu, caps.cpu), gpu: cap(self.gpu, caps.gpu) }
    }

    fn lowest(&self, desired: &Caps) -> Caps {
        let cap = |devices: Devices, cap: Option<Cap>| {
            cap.filter(|_| devices.capped).map(|_| Cap { percent: None, watts: Some(devices.min) })
        };
        Caps { cpu: cap(self.cpu, desired.cpu), gpu: cap(self.gpu, desired.gpu) }
    }

    /// What was read back, of the whole node: a device without a cap in force draws what it can.
    pub(crate) fn read_back(&self, cpu: Option<Watts>, gpu: Option<Watts>) -> Option<Watts> {
        let part = |devices: Devices, cap: Option<Watts>| match cap.filter(|_| devices.capped) {
            Some(cap) => Some(devices.all(cap)),
            None => devices.under(None),
        };
        part(self.cpu, cpu)?.checked_add(part(self.gpu, gpu)?)?.checked_add(self.rest)
    }

    /// Whether anything of it can be capped.
    pub(crate) const fn is_cappable(&self) -> bool {
        (self.cpu.capped && self.cpu.count > 0) || (self.gpu.capped && self.gpu.count > 0)
    }

    /// Whether a read-back of these kinds of devices is waited for.
    pub(crate) const fn awaits(&self) -> (bool, bool) {
        (self.cpu.capped && self.cpu.count > 0, self.gpu.capped && self.gpu.count > 0)
    }
}
