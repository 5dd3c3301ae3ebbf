//! What hardware there is: the targets that the engine decides on, made anew when a backend lists something else.

use super::OpenNode;
use crate::cap_target::{CapTarget, cap_targets};
use crate::policy_target::policy_targets;
use joulie_core::node::actuation::Actuation;
use joulie_core::node::backend::Package;
use joulie_core::node::engine::Beyond;
use joulie_core::node::gpu_cap::CappedGpu;
use joulie_core::node::limiter::LimitFacts;

impl OpenNode {
    /// Makes the targets of what the backends list now; what was known of the same hardware goes on.
    pub(super) fn take_stock(&mut self) {
        let (packages, gpus) = cap_targets(&self.workers, self.config.period);
        let journal = &self.journal;
        let known = (std::mem::take(&mut self.packages), self.engine.packages());
        let (targets, laws) = merge(packages, known, |target, before: Option<&Package>| {
            let ordered = before.and_then(Package::ordered);
            let facts = target.package_facts(LimitFacts::UNKNOWN, journal, ordered);
            let new =
                if target.is_touched(journal) { Package::adopted(facts) } else { Package::untouched(facts) };
            before.map_or(new, |before| new.after(before))
        });
        self.packages = targets;
        self.engine.list_packages(&laws);
        let known = (std::mem::take(&mut self.gpus), self.engine.gpus());
        let (targets, laws) = merge(gpus, known, |target, before: Option<&CappedGpu>| {
            let ordered = before.and_then(CappedGpu::ordered);
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
        let known = (self.policies.as_slice(), self.engine.policies());
        let floor = self.config.frequency_floor;
        let (targets, policies) = policy_targets(&self.workers, known, (journal, floor));
        self.policies = targets;
        self.engine.list_policies(&policies);
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

/// What the engine remembers of a package or a GPU.
trait Memory: Copy {
    /// Whether there is nothing to remember.
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

/// The new targets with what the engine remembers of them. A target that is not listed any more stays as long as the law holds
/// something on it: what was capped must not be forgotten because its driver went away.
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
                // What is free has no memory worth keeping, and may be ours by what the journal says of it now: until
                // its backend was listed nobody could look that up. Nor does the law of one backend's limit hold for
                // another backend's.
                let same = target.is_bare() || before.is_bare() || before.backend == target.backend;
                let anew = law.is_free() || !same;
                // That a package is there, and no more, is less than what was known of it: it stays one with a limit
                // and a meter, which are away.
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
        log::warn!("{} is not there any more, and a cap of ours was on it", target.key.as_str());
        let target = target.gone();
        // Of a socket whose limit is away its meter in another backend is left: that is the same package, and counted
        // beside it would double the node's cap.
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
