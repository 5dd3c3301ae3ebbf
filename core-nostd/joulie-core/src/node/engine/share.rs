//! Divides the node's grant among its packages and GPUs, in every step.
//!
//! A package whose limit fails, or that has none, is held by the closed loop together with the others. While the loop
//! is in charge, a package counts with its share of the loop's cap as long as the node draws no more than that cap,
//! and otherwise with the most that it draws.

use super::facts::{Desire, EngineLaws, Wiring};
use super::{Beyond, Engine};
use crate::node::backend::Package;
use crate::node::cap::{Backend, CapReport, CapResult};
use crate::node::energy::MeterReading;
use crate::node::gpu_cap::{CappedGpu, GpuLimits};
use crate::node::grant::{Division, Holder};
use power_units::{Amount, Role, Watts};

/// What the share of a device depends on besides the device itself.
struct Sharing<'a> {
    laws: &'a EngineLaws,
    desire: Desire,
    /// Whether a throttle can hold watts here.
    throttles: bool,
    /// The share of one package in the cap that the closed loop holds.
    looped: Option<Watts>,
}

impl<const P: usize, const G: usize, const D: usize> Engine<P, G, D> {
    /// Says of each device what it may have, and tells the laws what it may have now.
    pub(super) fn share(&mut self, laws: &EngineLaws, desire: Desire, throttles: bool, power: MeterReading) {
        let Some(grant) = desire.grant else {
            self.packages.iter_mut().for_each(|package| package.grant(None, None));
            self.gpus.iter_mut().for_each(|gpu| gpu.grant(None, None));
            return;
        };
        let sharing = Sharing { laws, desire, throttles, looped: self.looped(power) };
        let all = match self.wiring {
            Wiring::EachItsOwn => (usize::MAX, 1, 1),
            Wiring::OneForAll => (1, count(&self.packages), count(&self.gpus)),
        };
        let mut division = Division::of(grant.watts);
        for package in self.packages.iter().take(all.0) {
            division.count(&Holder { count: all.1, ..sharing.package(package) });
        }
        for gpu in self.gpus.iter().take(all.0) {
            division.count(&Holder { count: all.2, ..sharing.gpu(gpu) });
        }
        division.count(&beyond(self.beyond));
        for package in self.packages.iter_mut().take(all.0) {
            let mut holder = Holder { count: all.1, ..sharing.package(package) };
            let (share, most) = division.give(&mut holder);
            package.grant(share, most);
        }
        for gpu in self.gpus.iter_mut().take(all.0) {
            let mut holder = Holder { count: all.2, ..sharing.gpu(gpu) };
            let (share, most) = division.give(&mut holder);
            gpu.grant(share, most);
        }
        if self.wiring == Wiring::OneForAll {
            self.share_alike();
        }
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
    fn package(&self, package: &Package) -> Holder {
        let facts = &package.facts;
        if !self.laws.grants.cpu || !(facts.has_limit || self.throttles) {
            return Holder::uncapped(facts.range.max());
        }
        let in_force = self.looped.or(facts.in_force);
        let holder = Holder::capped(facts.range, self.laws.cpu.floor, self.desire.cpu, in_force);
        match self.looped {
            Some(_) => holder,
            None => holder.with_orders(package.limiter()),
        }
    }

    fn gpu(&self, gpu: &CappedGpu) -> Holder {
        let facts = &gpu.facts;
        match facts.limits {
            GpuLimits::Range(range) if self.laws.grants.gpu => {
                Holder::capped(range, self.laws.gpu.floor, self.desire.gpu, facts.in_force)
                    .with_orders(gpu.limiter())
            }
            GpuLimits::Range(range) => Holder::uncapped(range.max()),
            // A die whose limit is that of its sibling has no draw of its own. The draw of a GPU without any limit is
            // unknown.
            GpuLimits::NotATarget => Holder::uncapped(Some(Watts::ZERO)),
            GpuLimits::NoLimit => Holder::uncapped(None),
        }
    }
}

/// Devices that do not fit count with the most that they draw.
fn beyond(beyond: Beyond) -> Holder {
    Holder::uncapped(Some(beyond.package_watts + beyond.gpu_watts))
}

fn count<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}
