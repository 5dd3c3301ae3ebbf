//! Builds the node's report after each step.

use super::OpenNode;
use crate::Journal;
use crate::cap_target::CapTarget;
use crate::report::{BackendReport, ClockReport, DeviceReport, DeviceWants, NodeWants, PolicyReport};
use crate::worker::{Worker, lock};
use joulie_core::node::backend::Package;
use joulie_core::node::energy::{Gap, MeterReading};
use joulie_core::node::engine::TargetId;
use joulie_core::node::gpu_cap::CappedGpu;
use power_units::{Stamp, Watts};

impl OpenNode {
    pub(super) fn publish(&mut self, now: Stamp) {
        let report = &mut self.report;
        report.at = Some(now);
        report.desire = self.desire;
        report.power = Some(self.power);
        report.cpu = self.engine.cpu().copied();
        report.gpu = self.engine.gpu();
        report.law = self.engine.law().copied();
        report.lease = self.engine.lease().map(|phase| (phase, self.lease_event));
        report.originals = self.journal.len();
        report.journal_behind = self.journal.is_behind();
        report.counts = self.counts;
        report.counts.moved = self.engine.moved();
        // A device that does not fit into the engine has no share.
        let shares = self.engine.packages().iter().map(Package::share).chain(std::iter::repeat(None));
        let packages = self.packages.iter().zip(shares);
        let engine = &self.engine;
        refill(
            &mut report.packages,
            packages.enumerate().map(|(at, (target, share))| {
                let wants = DeviceWants::of(engine.demand_of(TargetId::Package(at)));
                device(target, (share, wants), &self.journal)
            }),
        );
        let shares = self.engine.gpus().iter().map(CappedGpu::share).chain(std::iter::repeat(None));
        let gpus = self.gpus.iter().zip(shares);
        refill(
            &mut report.gpus,
            gpus.enumerate().map(|(at, (target, share))| {
                let wants = DeviceWants::of(engine.demand_of(TargetId::Gpu(at)));
                let clock = engine.clocks().get(at).and_then(Option::as_ref).map(ClockReport::of);
                DeviceReport { clock, ..device(target, (share, wants), &self.journal) }
            }),
        );
        report.wants = NodeWants::of(engine.demand());
        let policies = self.policies.iter().zip(self.engine.policies());
        refill(
            &mut report.policies,
            policies.map(|(target, policy)| PolicyReport {
                key: target.key,
                min: policy.floor(),
                max: policy.most(),
                limit: policy.in_force(),
                asked: policy.asked(),
                running: policy.facts.running,
            }),
        );
        let workers = &self.workers;
        let stuck = |worker: &Worker| {
            let inside = worker.view.inside?;
            now.since(inside).filter(|&long| long > self.config.period).map(|_| inside)
        };
        refill(
            &mut report.backends,
            workers.iter().map(|worker| BackendReport {
                kind: worker.kind,
                standing: worker.view.standing.clone(),
                domains: worker.view.domains.len(),
                stuck_since: stuck(worker),
                complaints: worker.view.complaints.clone(),
                cards: worker.view.cards.clone(),
                uses: worker.view.uses.clone(),
                last_trouble: worker.view.last_trouble.clone(),
                troubles: worker.view.troubles,
            }),
        );
        lock(&self.published).copy(report);
    }
}

fn refill<T>(list: &mut Vec<T>, with: impl Iterator<Item = T>) {
    list.clear();
    list.extend(with);
}

fn device(
    target: &CapTarget,
    (share, wants): (Option<Watts>, DeviceWants),
    journal: &Journal,
) -> DeviceReport {
    DeviceReport {
        key: target.key,
        backend: target.backend,
        described: target.described,
        power: target.power,
        counter: target.counter(),
        energy: target.energy,
        dram: target.dram.as_ref().map_or(MeterReading::Missing(Gap::NoMeter), |dram| dram.power),
        dram_energy: target.dram.as_ref().and_then(|dram| dram.energy),
        state: target.state.as_ref().map(|state| state.reported).unwrap_or_default(),
        limit: target.in_force,
        owners: target.owners_limit(journal),
        ours: target.is_touched(journal),
        share,
        wants,
        clock: None,
    }
}
