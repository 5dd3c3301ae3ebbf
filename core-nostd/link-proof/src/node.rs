//! joulie-core, node: what the agent runs in every tick.

use joulie_core::node::backend::{self, BackendLaw};
use joulie_core::node::cap::{self, CapIntent, CapRange, Desired, Floor, Resolution};
use joulie_core::node::energy::{self, Baseline, Meter, Reading, Sample};
use joulie_core::node::gpu_cap::{Gpu, GpuDecision, GpuLaw, GpuLimits};
use joulie_core::node::lease::{Jitter, Lease, LeaseDecision, LeaseFacts, LeaseLaw};
use power_units::{Micros, Percent, Stamp};

roots! {
    fn step_backend(
        law: &BackendLaw,
        mode: &mut backend::Mode,
        packages: &mut [backend::Package],
        facts: &backend::Facts,
    ) -> backend::Decision {
        law.step(mode, packages, facts)
    }

    fn step_gpus(law: &GpuLaw, gpus: &mut [Gpu], now: Stamp, desired: Desired) -> GpuDecision {
        law.step(gpus, now, desired)
    }

    fn step_lease(law: &LeaseLaw, lease: &mut Lease, facts: &LeaseFacts) -> LeaseDecision {
        law.step(lease, facts)
    }

    fn tick_energy(meter: &Meter, baseline: &mut Baseline, now: Stamp, sample: Option<Sample>) -> Reading {
        meter.step(baseline, now, sample)
    }

    fn tick_energy_total(packages: &[Reading]) -> Reading {
        energy::total(packages.iter().copied())
    }

    fn cap_resolution(intent: CapIntent, range: CapRange, floor: Floor) -> Resolution {
        intent.resolve(range, floor)
    }

    fn percent_path(percent: Percent) -> Percent {
        cap::throttle_leaving(percent)
    }

    fn gpu_limits(limits: GpuLimits, intent: CapIntent, floor: Floor) -> bool {
        limits.resolve(intent, floor).is_some()
    }

    fn lease_jitter(hash: u64, span: Micros) -> Micros {
        Jitter::of_identity(hash).of(span)
    }
}
