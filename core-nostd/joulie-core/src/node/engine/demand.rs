//! What the devices want to draw, learned once a period, and what the node wants, once its grant is divided.

use super::facts::{Desire, Occasion, TargetId, Wiring};
use super::share::Sharing;
use super::{Engine, EngineFacts};
use crate::node::backend::Package;
use crate::node::demand::{DemandSum, DeviceDemand, DeviceDraw, NodeDemand};
use crate::node::gpu_cap::CappedGpu;
use crate::node::grant::Holder;
use power_units::Watts;

impl<const P: usize, const G: usize, const D: usize, const A: usize, const L: usize> Engine<P, G, D, A, L> {
    /// Takes in what a package or a GPU drew in the period that now ends, before the step of that period. Where one
    /// limit serves all devices of a kind, the first of them stands for all. What cannot be told apart here is unknown.
    pub fn drew(&mut self, target: TargetId, draw: DeviceDraw) {
        let mut draw = draw;
        match (self.wiring, target) {
            (Wiring::EachItsOwn, TargetId::Package(at)) => {
                if let Some(package) = self.packages.get_mut(at) {
                    package.draws(draw);
                }
            }
            (Wiring::OneForAll, TargetId::Package(_)) => {
                self.packages.iter_mut().for_each(|package| package.draws(draw));
            }
            (_, TargetId::Gpu(at)) => {
                if let Some(Some(clock)) = self.clocks.get_mut(at) {
                    draw = clock.draws(draw);
                }
            }
            (_, TargetId::Policy(_) | TargetId::Clock(_)) => {}
        }
        let place = self.place(target);
        if let Some(demand) = place.and_then(|place| self.demands.get_mut(place)) {
            demand.draws(draw);
        }
    }

    /// What a package or a GPU wants to draw.
    #[must_use]
    pub fn demand_of(&self, target: TargetId) -> Option<&DeviceDemand> {
        self.demands.get(self.place(target)?)
    }

    /// What the node wants to draw.
    #[must_use]
    pub const fn demand(&self) -> &NodeDemand {
        &self.demand
    }

    /// Where the demand of a limit is kept: those of the packages come first.
    const fn place(&self, target: TargetId) -> Option<usize> {
        match (self.wiring, target) {
            (Wiring::EachItsOwn, TargetId::Package(at)) if at < P => Some(at),
            (Wiring::EachItsOwn, TargetId::Gpu(at)) => P.checked_add(at),
            (Wiring::OneForAll, TargetId::Package(_)) => Some(0),
            (Wiring::OneForAll, TargetId::Gpu(_)) => Some(1),
            (Wiring::EachItsOwn, TargetId::Package(_)) | (_, TargetId::Policy(_) | TargetId::Clock(_)) => {
                None
            }
        }
    }

    /// The devices are other ones, or in another order.
    pub(super) fn forget_demand(&mut self) {
        self.demands.fill(DeviceDemand::UNKNOWN);
        self.divided = None;
    }

    /// Learns what the devices want to draw. Returns how many throttles are not believed any more.
    #[inline(never)]
    pub(super) fn learn_demand(&mut self, sharing: &Sharing<'_>, facts: &EngineFacts) -> u32 {
        if facts.occasion != Occasion::Period {
            return 0;
        }
        let mut unbelieved = 0_u32;
        for at in self.all() {
            let Some((target, holder, _)) = self.holder(sharing, at) else { continue };
            let Some(demand) = self.place(target).and_then(|place| self.demands.get_mut(place)) else {
                continue;
            };
            unbelieved = unbelieved.saturating_add(u32::from(demand.learn(facts.now, &holder)));
        }
        unbelieved
    }

    /// Learns what the node wants to draw.
    #[inline(never)]
    pub(super) fn sum_demand(&mut self, sharing: &Sharing<'_>, facts: &EngineFacts, desire: &Desire) {
        if facts.occasion != Occasion::Period {
            return;
        }
        let mut sum = DemandSum::NOTHING;
        for at in self.all() {
            let Some((target, holder, share)) = self.holder(sharing, at) else { continue };
            sum.add(&holder, self.demand_of(target), share);
        }
        sum.add(&sharing.beyond(), None, None);
        self.demand.learn(facts.now, &sum, desire.grant.map(|grant| grant.watts));
    }

    /// The packages and then the GPUs, each with its share; where one limit serves all of a kind, the first of them.
    pub(super) fn holder(
        &self,
        sharing: &Sharing<'_>,
        at: usize,
    ) -> Option<(TargetId, Holder, Option<Watts>)> {
        let [packages, gpus] = self.alike();
        if let Some(package) = self.packages.get(at) {
            let is_one = self.wiring == Wiring::EachItsOwn || at == 0;
            let holder = Holder { count: packages, ..sharing.package(package) };
            return is_one.then(|| (TargetId::Package(at), holder, Package::share(package)));
        }
        let at = at.checked_sub(self.packages.len())?;
        let gpu = self.gpus.get(at)?;
        let is_one = self.wiring == Wiring::EachItsOwn || at == 0;
        let holder = Holder { count: gpus, ..sharing.gpu(gpu, self.clock(at)) };
        is_one.then(|| (TargetId::Gpu(at), holder, CappedGpu::share(gpu)))
    }

    /// How many packages, and how many GPUs, have the limit of one.
    fn alike(&self) -> [u32; 2] {
        match self.wiring {
            Wiring::EachItsOwn => [1, 1],
            Wiring::OneForAll => [super::share::count(&self.packages), super::share::count(&self.gpus)],
        }
    }
}
