//! Divides the node's grant among its packages and GPUs, in every step.
//!
//! The shares stay as they are while nothing has changed that they were made of, and nobody is held back who could have
//! more. So a steady node orders nothing, and a device that has become idle keeps its watts until another one needs
//! them.
//!
//! A package whose limit fails, or that has none, is held by the closed loop together with the others. While the loop
//! is in charge, a package counts with its share of the loop's cap as long as the node draws no more than that cap,
//! and otherwise with the most that it draws. It then has no demand of its own: the loop cannot tell packages apart. A GPU
//! that the loop over its own clock holds counts in the same way with the cap of that loop.

use super::Engine;
use super::clocks::GpuClock;
use super::facts::{Desire, EngineFacts, EngineLaws, NodeGrant, Occasion, TargetId, Wiring};
use crate::budget::armed::armed_watts;
use crate::node::backend::Package;
use crate::node::cap::{Backend, CapReport, CapResult};
use crate::node::demand::DeviceDemand;
use crate::node::energy::MeterReading;
use crate::node::gpu_cap::{CappedGpu, GpuLimits};
use crate::node::grant::{Division, Holder, Need, Split};
use power_units::{Amount, Micros, Ratio, Role, Stamp, Watts};

/// What the share of a device depends on besides the device itself.
pub(super) struct Sharing<'a> {
    laws: &'a EngineLaws,
    desire: Desire,
    /// Whether a throttle can hold watts here.
    throttles: bool,
    /// The share of one package in the cap that the closed loop holds.
    looped: Option<Watts>,
    /// What the devices that do not fit draw at most.
    beyond: Watts,
}

/// What the shares that stand were made of, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divided {
    desire: Desire,
    basis: (i128, i128),
    at: Stamp,
}

/// The shares are made anew for the demand no more often than this, unless somebody lacks what it is entitled to.
const DWELL: Micros = Micros::new(2_000_000);

impl<const P: usize, const G: usize, const D: usize, const A: usize, const L: usize> Engine<P, G, D, A, L> {
    /// Says of each device what it may have, and tells the laws what it may have now. Returns how many throttles are
    /// not believed any more.
    #[inline(never)]
    pub(super) fn share(&mut self, laws: &EngineLaws, desire: Desire, facts: &EngineFacts) -> u32 {
        let throttles = facts.has_meter && self.dvfs.exists();
        let beyond = self.beyond.package_watts + self.beyond.gpu_watts;
        let sharing = Sharing { laws, desire, throttles, looped: self.looped(facts.power), beyond };
        let unbelieved = self.learn_demand(&sharing, facts);
        match desire.grant {
            Some(grant) => self.divide(&sharing, grant, facts),
            None => {
                self.divided = None;
                self.packages.iter_mut().for_each(|package| package.grant(None, None));
                self.gpus.iter_mut().for_each(|gpu| gpu.grant(None, None));
            }
        }
        self.sum_demand(&sharing, facts, &desire);
        unbelieved
    }

    #[inline(never)]
    fn divide(&mut self, sharing: &Sharing<'_>, grant: NodeGrant, facts: &EngineFacts) {
        let mut division = Division::of(self.allowed(sharing, grant));
        for at in self.all() {
            if let Some((_, holder, _)) = self.holder(sharing, at) {
                division.count(&holder);
            }
        }
        division.count(&sharing.beyond());
        let split = self.split(sharing, &division, facts);
        for at in self.all() {
            let Some((target, mut holder, standing)) = self.holder(sharing, at) else { continue };
            let share = division.share(&holder, &self.need(sharing, target, standing), &split);
            let (share, most) = division.give(&mut holder, share);
            match target {
                TargetId::Package(at) => {
                    if let Some(package) = self.packages.get_mut(at) {
                        package.grant(share, most);
                    }
                }
                TargetId::Gpu(at) => {
                    if let Some(gpu) = self.gpus.get_mut(at) {
                        gpu.grant(share, most);
                    }
                }
                TargetId::Policy(_) | TargetId::Clock(_) => {}
            }
        }
        if self.wiring == Wiring::OneForAll {
            self.share_alike();
        }
    }

    /// The grant, or what armed events leave of the range of all devices if that is less. A device whose most is not
    /// known has nothing above its floor then.
    #[inline(never)]
    fn allowed(&self, sharing: &Sharing<'_>, grant: NodeGrant) -> Watts {
        let share = sharing.desire.armed;
        if share >= Ratio::ONE {
            return grant.watts;
        }
        let (mut floors, mut most) = (0_i128, 0_i128);
        let devices = self.all().filter_map(|at| self.holder(sharing, at));
        for holder in devices.map(|(_, holder, _)| holder).chain(core::iter::once(sharing.beyond())) {
            let (floor, max) = holder.bounds();
            floors = floors.saturating_add(floor);
            most = most.saturating_add(max);
        }
        grant.watts.min(armed_watts(Watts::from_wide(floors), Watts::from_wide(most), share))
    }

    /// How the grant is divided now. If the shares are made anew, that is noted.
    fn split(&mut self, sharing: &Sharing<'_>, division: &Division, facts: &EngineFacts) -> Split {
        let (basis, now) = (division.basis(), facts.now);
        let is_same = |divided: &Divided| divided.basis == basis && divided.desire == sharing.desire;
        let stands = self.divided.filter(|divided| is_same(divided) && self.can_stand(sharing, division));
        if let Some(divided) = stands {
            let has_rested = now.since(divided.at).is_none_or(|rested| rested >= DWELL);
            let (is_short, is_deprived) = self.is_short(sharing, division);
            if facts.occasion == Occasion::News || !is_short || !(has_rested || is_deprived) {
                return Split::Standing;
            }
        }
        let split = division.split(|| self.needs(sharing));
        let gains = || {
            let mut all = self.needs(sharing);
            all.any(|(holder, need)| division.gains(&holder, &need, &split))
        };
        if stands.is_some() && !gains() {
            return Split::Standing;
        }
        self.divided = Some(Divided { desire: sharing.desire, basis, at: now });
        split
    }

    /// Whether all shares are within their bounds, and together within the grant.
    fn can_stand(&self, sharing: &Sharing<'_>, division: &Division) -> bool {
        let mut taken = 0_i128;
        for (holder, need) in self.needs(sharing) {
            if !division.can_stand(&holder, &need) {
                return false;
            }
            let standing = need.standing.unwrap_or(Watts::ZERO);
            taken = taken.saturating_add(Division::taken(&holder, standing));
        }
        taken <= division.room()
    }

    /// Whether anybody asks for more than its share, and whether anybody lacks what it is entitled to.
    fn is_short(&self, sharing: &Sharing<'_>, division: &Division) -> (bool, bool) {
        self.needs(sharing).fold((false, false), |(short, deprived), (holder, need)| {
            let (is_short, is_deprived) = division.is_short(&holder, &need);
            (short || is_short, deprived || is_short && is_deprived)
        })
    }

    /// The holders that can be capped, each with its demand.
    fn needs<'a>(&'a self, sharing: &'a Sharing<'_>) -> impl Iterator<Item = (Holder, Need<'a>)> + 'a {
        let holders = self.all().filter_map(move |at| self.holder(sharing, at));
        holders.filter(|(_, holder, _)| holder.capped).map(move |(target, holder, standing)| {
            let need = self.need(sharing, target, standing);
            (holder, need)
        })
    }

    fn need(&self, sharing: &Sharing<'_>, target: TargetId, standing: Option<Watts>) -> Need<'_> {
        let is_looped = match target {
            TargetId::Package(at) => {
                sharing.looped.is_some()
                    || self.packages.get(at).is_none_or(|package| !package.facts.has_limit)
            }
            TargetId::Gpu(at) => self.clock(at).is_some_and(|clock| clock.cause().is_some()),
            TargetId::Policy(_) | TargetId::Clock(_) => false,
        };
        let demand = self.demand_of(target).filter(|_| !is_looped);
        Need { report: demand.and_then(DeviceDemand::report), standing }
    }

    /// The indices of [`holder`](Self::holder).
    pub(super) fn all(&self) -> core::ops::Range<usize> {
        0..self.packages.len().saturating_add(self.gpus.len())
    }

    /// Copies the share of the first device to all others.
    fn share_alike(&mut self) {
        if let Some((first, others)) = self.packages.split_first_mut() {
            others.iter_mut().for_each(|package| package.grant(first.share(), first.most()));
        }
        if let Some((first, others)) = self.gpus.split_first_mut() {
            others.iter_mut().for_each(|gpu| gpu.grant(first.share(), first.most()));
        }
    }

    /// The share of one package in the cap that the closed loop holds, as of the last step.
    fn looped(&self, power: MeterReading) -> Option<Watts> {
        let status = self.cpu.as_ref()?.status;
        let (Backend::Dvfs, CapReport::Cap(CapResult::Applied { effective })) =
            (status.backend, status.report)
        else {
            return None;
        };
        let within = matches!(power, MeterReading::Fresh { watts, .. } if watts <= effective);
        let count = u64::from(count(&self.packages));
        effective.part(1, count, Role::Demand).filter(|_| within)
    }
}

impl Sharing<'_> {
    pub(super) fn package(&self, package: &Package) -> Holder {
        let facts = &package.facts;
        if !self.laws.grants.cpu || !(facts.has_limit || self.throttles) {
            return Holder::uncapped(facts.range.max());
        }
        // A limit that is not kept limits nothing.
        let in_force = self.looped.or(facts.in_force.filter(|_| !package.disobeys()));
        let holder = Holder::capped(facts.range, self.laws.cpu.floor, self.desire.cpu, in_force);
        match self.looped {
            Some(_) => holder,
            None => holder.with_orders(package.limiter(), facts.limit.outcome, self.laws.cpu.floor),
        }
    }

    /// A GPU that the loop over its clock holds counts with the cap of that loop, and one that does not keep to its limit
    /// with the most that it draws.
    pub(super) fn gpu(&self, gpu: &CappedGpu, clock: Option<&GpuClock>) -> Holder {
        let facts = &gpu.facts;
        let looped = clock.and_then(GpuClock::held);
        let in_force = facts.in_force.filter(|_| !clock.is_some_and(GpuClock::disobeys));
        match facts.limits {
            GpuLimits::Range(range) if self.laws.grants.gpu => {
                let floor = self.laws.gpu.floor;
                let holder = Holder::capped(range, floor, self.desire.gpu, looped.or(in_force));
                match looped {
                    Some(_) => holder,
                    None => holder.with_orders(gpu.limiter(), facts.limit.outcome, floor),
                }
            }
            GpuLimits::Range(range) => Holder::uncapped(range.max()),
            // A die whose limit is that of its sibling has no draw of its own. The draw of a GPU without any limit is
            // unknown.
            GpuLimits::NotATarget => Holder::uncapped(Some(Watts::ZERO)),
            GpuLimits::NoLimit => Holder::uncapped(None),
        }
    }

    /// Devices that do not fit count with the most that they draw.
    pub(super) const fn beyond(&self) -> Holder {
        Holder::uncapped(Some(self.beyond))
    }
}

pub(super) fn count<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}
