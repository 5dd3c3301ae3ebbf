//! What the node says of itself after each step.

use super::Node;
use crate::Journal;
use crate::report::{BackendReport, DeviceReport, PolicyReport};
use crate::unit::Unit;
use crate::worker::{Worker, lock};
use power_units::Stamp;

impl Node {
    pub(super) fn publish(&mut self, now: Stamp) {
        let report = &mut self.report;
        report.at = Some(now);
        report.desire = self.desire;
        report.power = Some(self.power);
        report.cpu = self.cpu_decision;
        report.gpu = self.gpu_decision;
        report.law = self.curb.decision;
        report.lease = self.lease.map(|lease| (lease.phase(), self.lease_event));
        report.originals = self.journal.len();
        report.journal_behind = self.journal.is_behind();
        report.counts = self.counts;
        report.counts.moved += self.curb.moved;
        refill(&mut report.packages, self.package_units.iter().map(|unit| device(unit, &self.journal)));
        refill(&mut report.gpus, self.gpu_units.iter().map(|unit| device(unit, &self.journal)));
        let workers = &self.workers;
        refill(
            &mut report.policies,
            self.curb.policies.iter().map(|policy| PolicyReport {
                key: policy.key,
                min: policy.floor,
                max: policy.most,
                limit: policy.in_force(workers),
                asked: policy.asked,
                running: policy.running(workers),
            }),
        );
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

fn device(unit: &Unit, journal: &Journal) -> DeviceReport {
    DeviceReport {
        key: unit.key,
        backend: unit.backend,
        described: unit.described,
        power: unit.power,
        energy: unit.energy,
        limit: unit.in_force,
        owners: unit.owners_limit(journal),
        ours: unit.is_touched(journal),
        share: unit.share,
    }
}
