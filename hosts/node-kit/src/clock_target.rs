//! The clock of a GPU that can be locked: the location of the lock, and its facts for the engine.

use crate::Journal;
use crate::cap_target::{CapTarget, Place};
use crate::policy_target::PolicyTarget;
use crate::worker::Worker;
use joulie_core::node::engine::{
    EngineOrder, FrequencyPolicy, FrequencyPolicyFacts, GpuClock, PolicyLimit, PolicyOutcome, Scale,
};
use joulie_core::node::throttle::PolicyLocation;
use power_hal::Key;
use power_units::KiloHertz;

/// The lock of a GPU's clock.
#[derive(Clone, Debug)]
pub(crate) struct ClockTarget {
    lock: PolicyTarget,
    /// The highest clock, which is what no lock allows, where the driver does not tell the lock: then there is no other
    /// original.
    free: Option<KiloHertz>,
}

/// The clocks of the GPUs that can be locked now, in the order of the GPUs, with the state of the `known` ones.
pub(crate) fn clock_targets(
    workers: &[Worker],
    gpus: &[CapTarget],
    mut known: Vec<(Key, GpuClock)>,
    journal: &Journal,
) -> (Vec<Option<ClockTarget>>, Vec<Option<GpuClock>>) {
    let listed = gpus.iter().map(|gpu| {
        let Some((target, policy)) = ClockTarget::of(workers, gpu, journal) else { return (None, None) };
        let mut clock = match known.iter().position(|(key, _)| *key == gpu.key) {
            Some(at) => {
                let (_, mut clock) = known.swap_remove(at);
                let policy = clock.policy().map_or(policy, |before| policy.after(before));
                clock.relist(policy);
                clock
            }
            None => GpuClock::listed(policy),
        };
        clock.has_meter = gpu.is_metered();
        (Some(target), Some(clock))
    });
    listed.unzip()
}

impl ClockTarget {
    fn of(workers: &[Worker], gpu: &CapTarget, journal: &Journal) -> Option<(Self, FrequencyPolicy)> {
        let backend = gpu.backend?;
        let worker = workers.iter().position(|worker| worker.kind == backend)?;
        let listed = &workers[worker].view.domains;
        let domain = listed.iter().position(|domain| *domain.key() == gpu.key)?;
        let limit = listed[domain].frequency()?;
        let (floor, most) = (limit.lower(), limit.upper());
        let free = (!listed[domain].tells_frequency()).then_some(most);
        let target = Self { lock: PolicyTarget::at(gpu.key, backend, Place { worker, domain }), free };
        let mut facts = FrequencyPolicyFacts::UNKNOWN;
        target.tell_original(&mut facts, journal);
        let scale = Scale::Frequency { floor, most, step: limit.step() };
        Some((target, FrequencyPolicy::listed(scale, PolicyLocation { package: 0, core: 0 }, facts)))
    }

    /// Writes the reading and the outcome of the order into the facts.
    pub(crate) fn tell(&self, facts: &mut FrequencyPolicyFacts, workers: &mut [Worker]) {
        self.lock.tell(facts, workers);
    }

    /// Writes the journal's content into the facts.
    pub(crate) fn tell_original(&self, facts: &mut FrequencyPolicyFacts, journal: &Journal) {
        self.lock.tell_original(facts, journal);
        facts.original = self.free.map(PolicyLimit::Frequency).or(facts.original);
    }

    /// Passes an order on. If it cannot be passed on, because the GPU is gone, it has failed.
    pub(crate) fn obey(&self, order: EngineOrder, workers: &[Worker]) -> PolicyOutcome {
        self.lock.obey(order, workers)
    }
}
