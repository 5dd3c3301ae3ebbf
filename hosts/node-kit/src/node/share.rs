//! How the packages and GPUs of the node share its grant, in every step.
//!
//! A package whose limit fails, or that has none, is held by the closed loop together with the others. While the loop is
//! in charge a package counts with its part of the loop's cap as long as no more than that is drawn, and else with all
//! that it draws at most.

use super::{Desire, Node};
use crate::unit::Unit;
use joulie_core::node::backend::PackageFacts;
use joulie_core::node::cap::{Backend, CapResult, Report};
use joulie_core::node::energy::Reading;
use joulie_core::node::gpu_cap::{GpuFacts, GpuLimits};
use joulie_core::node::grant::{Holder, divide, pace};
use power_units::{Amount, Role, Watts};

impl Node {
    /// Says of each device what it may have, and tells the laws what it may have now.
    pub(super) fn share(&mut self, desired: Desire, metered: bool) {
        let units = || self.package_units.iter().chain(&self.gpu_units);
        let Some(grant) = desired.grant else {
            if units().any(|unit| unit.share.is_some()) {
                let all = self.package_units.iter_mut().chain(&mut self.gpu_units);
                all.for_each(|unit| unit.share = None);
            }
            return;
        };
        let looped = self.looped();
        let throttles = metered && self.curb.exists();
        self.holders.clear();
        for (package, unit) in self.packages.iter().zip(&self.package_units) {
            let held = self.package(&package.facts, unit, desired, (throttles, looped));
            self.holders.push(held);
        }
        for (gpu, unit) in self.gpus.iter().zip(&self.gpu_units) {
            let held = self.board(&gpu.facts, unit, desired);
            self.holders.push(held);
        }
        divide(grant.watts, &mut self.holders);
        pace(grant.watts, &mut self.holders);
        let mut holders = self.holders.iter();
        let of = |holder: Option<&Holder>| {
            let holder = holder.filter(|holder| holder.capped);
            (holder.map(|holder| holder.share), holder.map(|holder| holder.may))
        };
        for (package, unit) in self.packages.iter_mut().zip(&mut self.package_units) {
            (unit.share, package.facts.most) = of(holders.next());
        }
        for (gpu, unit) in self.gpus.iter_mut().zip(&mut self.gpu_units) {
            (unit.share, gpu.facts.most) = of(holders.next());
        }
    }

    fn package(
        &self,
        facts: &PackageFacts,
        unit: &Unit,
        desired: Desire,
        (throttles, looped): (bool, Option<Watts>),
    ) -> Holder {
        if !self.config.grants.cpu || !(unit.has_limit || throttles) {
            return Holder::uncapped(facts.range.max());
        }
        let in_force = looped.or(unit.in_force);
        let holder = Holder::capped(facts.range, self.config.cpu.floor, desired.cpu, in_force);
        Holder { ordered: unit.ordered.filter(|_| looped.is_none()), ..holder }
    }

    fn board(&self, facts: &GpuFacts, unit: &Unit, desired: Desire) -> Holder {
        match facts.limits {
            GpuLimits::Range(range) if self.config.grants.gpu => {
                let holder = Holder::capped(range, self.config.gpu.floor, desired.gpu, unit.in_force);
                Holder { ordered: unit.ordered, ..holder }
            }
            GpuLimits::Range(range) => Holder::uncapped(range.max()),
            // A die whose limit is its sibling's draws none of its own; of one without any limit nothing is known.
            GpuLimits::NotATarget if unit.has_limit => Holder::uncapped(Some(Watts::ZERO)),
            GpuLimits::NotATarget => Holder::uncapped(None),
        }
    }

    /// The part of a package in the cap that the closed loop holds, as of the last step.
    fn looped(&self) -> Option<Watts> {
        let status = self.cpu_decision?.status;
        let (Backend::Dvfs, Report::Cap(CapResult::Applied { effective })) = (status.backend, status.report)
        else {
            return None;
        };
        let within = matches!(self.power, Reading::Fresh { watts, .. } if watts <= effective);
        let count = u64::try_from(self.package_units.len()).unwrap_or(1);
        effective.part(1, count, Role::Demand).filter(|_| within)
    }
}
