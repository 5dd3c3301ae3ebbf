//! What a node's watts are made of, and the way between a cap of the node and the caps of its devices.

use planner::hardware::Hardware;
use planner::intent::{Cap, Caps};
use planner::power::estimate::{IDLE_CPU, IDLE_GPU};
use power_units::{Amount, Ratio, Role, Watts};

/// Devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Devices {
    /// Nothing when nobody can say how many there are.
    count: Option<u32>,
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
    /// What it counts with while nobody can say what it can draw, where somebody has said that.
    assumed: Option<Watts>,
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

    /// Whether there may be any, and their caps are ours to write.
    const fn is_capped(self) -> bool {
        self.capped && !matches!(self.count, Some(0))
    }

    /// Whether it is known what they can draw.
    const fn is_known(self) -> bool {
        matches!((self.count, self.max), (Some(0), _) | (Some(_), Some(_)))
    }

    /// The most that they draw under a cap.
    fn under(self, cap: Option<Cap>) -> Option<Watts> {
        if self.count == Some(0) {
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
        self.all(each)
    }

    fn lowest(self) -> Option<Watts> {
        if self.capped { self.all(self.min) } else { self.under(None) }
    }

    /// Whole watts of each device, rounded down, of what they may draw together; never below the lowest cap.
    fn each(self, all: Watts) -> Option<Cap> {
        let count = self.count.filter(|&count| count > 0)?;
        let each = all.to_bits() / i64::from(count);
        let whole = Watts::from_bits(each - each.rem_euclid(1 << 32)).max(self.min);
        Some(Cap { percent: None, watts: Some(whole) })
    }
}

impl Split {
    /// Of a node with this hardware, of which those devices are capped that `caps` names. While nobody can say what it
    /// can draw it counts with `assumed`, or with nothing that anybody could add up.
    pub(crate) fn of(
        hardware: &Hardware,
        caps: &Caps,
        can: (bool, bool),
        (rest, assumed): (Watts, Option<Watts>),
    ) -> Self {
        let known = |watts: Option<Watts>| watts.filter(|&watts| watts > Watts::ZERO);
        let devices = |count, (min, max): (Option<Watts>, Option<Watts>), idle_share, capped| {
            let max = known(max);
            let min = known(min).or(max.map(|max| idle(max, idle_share))).unwrap_or(LEAST);
            Devices { count, min: max.map_or(min, |max| min.min(max)), max, capped }
        };
        let cpu = &hardware.cpu;
        let gpu = hardware.gpu.as_ref();
        Self {
            cpu: devices(
                cpu.sockets,
                (cpu.min_per_socket, cpu.max_per_socket),
                IDLE_CPU,
                can.0 && caps.cpu.is_some(),
            ),
            gpu: devices(
                Some(gpu.map_or(0, |gpu| gpu.count)),
                (gpu.and_then(|gpu| gpu.min), gpu.and_then(|gpu| gpu.max)),
                IDLE_GPU,
                can.1 && caps.gpu.is_some(),
            ),
            rest,
            assumed,
        }
    }

    /// Whether it is known what a node with this hardware can draw.
    pub(crate) fn knows(hardware: &Hardware) -> bool {
        Self::of(hardware, &Caps::default(), (false, false), (Watts::ZERO, None)).is_known()
    }

    /// Whether it is known what the node can draw. Of one of which it is not no cap can be told from another, so that
    /// the budget asks none of it.
    pub(crate) const fn is_known(&self) -> bool {
        self.cpu.is_known() && self.gpu.is_known()
    }

    /// The most that the node draws with these caps; nothing when nobody can say.
    pub(crate) fn watts(&self, caps: &Caps) -> Option<Watts> {
        let devices = self.cpu.under(caps.cpu)?.checked_add(self.gpu.under(caps.gpu)?)?;
        devices.checked_add(self.rest)
    }

    /// The most that it can draw, or is taken to.
    pub(crate) fn max(&self) -> Option<Watts> {
        self.watts(&Caps::default()).or(self.assumed)
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
            let all = devices.under(cap).filter(|_| devices.is_capped())?;
            let low = devices.all(devices.min)?;
            let part = (all - low).or_zero().part(given, way, Role::Limit).unwrap_or(Watts::ZERO);
            devices.each(low + part)
        };
        Caps { cpu: cap(self.cpu, desired.cpu), gpu: cap(self.gpu, desired.gpu) }
    }

    /// The same caps in watts, which an agent reads back as they are.
    fn absolute(&self, caps: &Caps) -> Caps {
        let cap = |devices: Devices, cap: Option<Cap>| {
            devices.each(devices.under(cap).filter(|_| devices.is_capped())?)
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
            Some(cap) => devices.all(cap),
            None => devices.under(None),
        };
        part(self.cpu, cpu)?.checked_add(part(self.gpu, gpu)?)?.checked_add(self.rest)
    }

    /// Whether anything of it can be capped.
    pub(crate) const fn is_cappable(&self) -> bool {
        self.cpu.is_capped() || self.gpu.is_capped()
    }

    /// Whether a read-back of these kinds of devices is waited for.
    pub(crate) const fn awaits(&self) -> (bool, bool) {
        (self.cpu.is_capped(), self.gpu.is_capped())
    }
}
