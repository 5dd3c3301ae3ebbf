//! The inventory of hardware: the engine's targets, built again when the list of a backend changes.

use super::OpenNode;
use crate::cap_target::{CapTarget, cap_targets};
use crate::clock_target::clock_targets;
use crate::policy_target::{PolicyTarget, policy_targets};
use joulie_core::node::actuation::Actuation;
use joulie_core::node::backend::Package;
use joulie_core::node::engine::Beyond;
use joulie_core::node::gpu_cap::CappedGpu;
use joulie_core::node::limiter::LimitFacts;

impl OpenNode {
    /// Builds the targets from the current lists of the backends; the state of the same hardware is kept.
    pub(super) fn take_stock(&mut self) {
        let (packages, gpus) = cap_targets(&self.workers, self.config.period);
        let journal = &self.journal;
        let known = (std::mem::take(&mut self.packages), self.engine.packages());
        let (targets, laws) = merge(packages, known, |target, before: Option<&Package>| {
            let ordered = before.and_then(|package| package.limiter().ordered());
            let facts = target.package_facts(LimitFacts::UNKNOWN, journal, ordered);
            let new =
                if target.is_touched(journal) { Package::adopted(facts) } else { Package::untouched(facts) };
            before.map_or(new, |before| new.after(before))
        });
        self.packages = targets;
        self.engine.list_packages(&laws);
        let clocks = self.gpus.iter().zip(self.engine.clocks());
        let clocks = clocks.filter_map(|(gpu, clock)| Some((gpu.key, clock.clone()?))).collect();
        let known = (std::mem::take(&mut self.gpus), self.engine.gpus());
        let (targets, laws) = merge(gpus, known, |target, before: Option<&CappedGpu>| {
            let ordered = before.and_then(|gpu| gpu.limiter().ordered());
            let facts = target.gpu_facts(LimitFacts::UNKNOWN, journal, ordered);
            let new = if target.is_touched(journal) {
                CappedGpu::adopted(facts)
            } else {
                CappedGpu::untouched(facts)
            };
            before.map_or(new, |before| new.after(before))
        });
        self.gpus = targets;
        self.engine.list_gpus(&laws);
        let (targets, clocks) = clock_targets(&self.workers, &self.gpus, clocks, journal);
        self.clocks = targets;
        self.engine.list_clocks(&clocks);
        let known = (self.policies.as_slice(), self.engine.policies());
        let floor = self.config.frequency_floor;
        let (targets, policies) = policy_targets(&self.workers, known, (journal, floor));
        self.policies = targets;
        self.engine.list_policies(&policies);
        self.engine.set_frequency_table(&PolicyTarget::frequency_table(&self.policies, &self.workers));
        self.say_what_does_not_fit();
    }

    fn say_what_does_not_fit(&mut self) {
        let beyond = Some(self.engine.beyond()).filter(|beyond| *beyond != Beyond::NOTHING);
        if let Some(more) = beyond.filter(|_| beyond != self.report.beyond) {
            log::error!(
                "{} packages, {} GPUs and {} frequency policies are more than can be controlled on one machine: they have \
                 no caps, and a grant counts them with the most that they draw",
                more.packages,
                more.gpus,
                more.policies
            );
        }
        self.report.beyond = beyond;
    }
}

/// The engine's state of a package or a GPU.
trait Memory: Copy {
    /// Whether there is no state to keep.
    fn is_free(&self) -> bool;
}

impl Memory for Package {
    fn is_free(&self) -> bool {
        self.limiter().actuation() == Actuation::Free
    }
}

impl Memory for CappedGpu {
    fn is_free(&self) -> bool {
        self.limiter().actuation() == Actuation::Free
    }
}

/// The new targets with the engine's state of them. A target that is no longer listed stays as long as its law holds
/// a cap on it: a cap must not be forgotten because its driver was removed.
fn merge<L: Memory>(
    new: Vec<CapTarget>,
    (old, memories): (Vec<CapTarget>, &[L]),
    begin: impl Fn(&CapTarget, Option<&L>) -> L,
) -> (Vec<CapTarget>, Vec<L>) {
    let mut known: Vec<(CapTarget, L)> = old.into_iter().zip(memories.iter().copied()).collect();
    let mut targets = Vec::with_capacity(new.len());
    let mut laws = Vec::with_capacity(new.len());
    for mut target in new {
        match known.iter().position(|(before, _)| before.key == target.key) {
            Some(at) => {
                let (before, law) = known.swap_remove(at);
                // A free limit has no state worth keeping, and may be ours according to the journal: before its
                // backend was listed that could not be looked up. Also, the state for the limit of one backend is not
                // valid for another backend's.
                let same = target.is_bare() || before.is_bare() || before.backend == target.backend;
                let anew = law.is_free() || !same;
                // If only the existence of a package is listed now, the earlier knowledge is kept: it stays a package
                // with a limit and a meter, which are absent.
                if target.is_bare() && !before.is_bare() {
                    target = before.gone();
                } else {
                    target.goes_on(&before);
                }
                laws.push(if anew { begin(&target, Some(&law)) } else { law });
                targets.push(target);
            }
            None => {
                laws.push(begin(&target, None));
                targets.push(target);
            }
        }
    }
    for (target, law) in known.into_iter().filter(|(_, law)| !law.is_free()) {
        log::warn!("{} no longer exists, and had a cap of ours", target.key.as_str());
        let target = target.gone();
        // For a socket whose limit is absent, its meter in another backend remains. That is the same package, and
        // counting it separately would double the node's cap.
        let same = |new: &CapTarget| !new.has_limit && new.package_number() == target.package_number();
        match targets.iter().position(|new| target.package_number().is_some() && same(new)) {
            Some(at) => {
                targets[at] = target.metered_by(&targets[at]);
                laws[at] = law;
            }
            None => {
                targets.push(target);
                laws.push(law);
            }
        }
    }
    (targets, laws)
}
