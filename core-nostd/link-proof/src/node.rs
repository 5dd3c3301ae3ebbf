//! joulie-core, node: the code that the agent runs in every tick.

use joulie_core::budget::demand::DemandReport;
use joulie_core::node::backend::{self, BackendLaw};
use joulie_core::node::cap::{self, CapIntent, CapRange, DesiredCap, Floor, Resolution};
use joulie_core::node::classic::{self, Classic};
use joulie_core::node::demand::{BiteSource, DeviceDemand, DeviceDraw};
use joulie_core::node::energy::{self, Baseline, CounterSample, EnergyMeter, MeterReading};
use joulie_core::node::engine::{
    EngineEvents, EngineFacts, EngineLaws, EngineOrder, FrequencyPolicy, GpuClock, LeaseTerms, MachineEngine,
    PoolEngine, TargetId, Wiring,
};
use joulie_core::node::gpu_cap::{CappedGpu, GpuDecision, GpuLaw, GpuLimits};
use joulie_core::node::grant::Holder;
use joulie_core::node::law::{Command, Decision, Facts, Law};
use joulie_core::node::lease::{LeaseDecision, LeaseFacts, LeaseJitter, LeaseLaw, LeaseMemory};
use joulie_core::node::throttle::dither::Grid;
use joulie_core::node::throttle::{PolicyLocation, PolicySequence, Seat, ThrottlePercent};
use joulie_core::node::tracking::{self, Tracking};
use power_units::{KiloHertz, Micros, Percent, Stamp, Watts};

roots! {
    fn tick_classic(law: &Classic, mode: &mut classic::Mode, facts: &Facts) -> Decision {
        law.step(mode, facts)
    }

    fn tick_tracking(law: &Tracking, mode: &mut tracking::Mode, facts: &Facts) -> Decision {
        law.step(mode, facts)
    }

    fn laws_start(
        tuned: classic::Tuning,
        tuned_too: tracking::Tuning,
        found: Option<Command>,
    ) -> (Option<classic::Mode>, Option<tracking::Mode>) {
        (Classic::new(tuned).ok().map(|law| law.start(found)), Tracking::new(tuned_too).ok().map(|law| law.start(found)))
    }

    fn throttle_order<'a>(places: &[PolicyLocation], seats: &'a mut [Seat]) -> Option<PolicySequence<'a>> {
        PolicySequence::new(places, seats)
    }

    fn throttle_policies(order: &PolicySequence<'_>, throttle: ThrottlePercent, out: &mut [bool]) -> bool {
        out.iter_mut().zip(order.throttled(throttle)).for_each(|(slot, on)| *slot = on);
        out.is_empty()
    }

    fn throttle_spread(order: &PolicySequence<'_>, target: KiloHertz, grid: &Grid<'_>, out: &mut [KiloHertz]) -> bool {
        out.iter_mut().zip(order.spread(target, grid)).for_each(|(slot, limit)| *slot = limit);
        out.is_empty()
    }

    fn step_backend(
        law: &BackendLaw,
        mode: &mut backend::Mode,
        packages: &mut [backend::Package],
        facts: &backend::Facts,
    ) -> backend::BackendDecision {
        law.step(mode, packages, facts)
    }

    fn step_gpus(law: &GpuLaw, gpus: &mut [CappedGpu], now: Stamp, desired: DesiredCap) -> GpuDecision {
        law.step(gpus, now, desired)
    }

    fn step_engine_machine(engine: &mut MachineEngine, laws: &EngineLaws, facts: &EngineFacts) -> EngineEvents {
        engine.step(laws, facts)
    }

    fn step_engine_pool(engine: &mut PoolEngine, laws: &EngineLaws, facts: &EngineFacts) -> EngineEvents {
        engine.step(laws, facts)
    }

    fn engine_orders(engine: &MachineEngine, out: &mut [Option<EngineOrder>]) -> bool {
        out.iter_mut().zip(engine.orders()).for_each(|(slot, order)| *slot = Some(order));
        engine.is_busy()
    }

    fn engine_lists(
        engine: &mut MachineEngine, packages: &[backend::Package], gpus: &[CappedGpu], policies: &[FrequencyPolicy],
    ) -> u32 {
        engine.list_packages(packages);
        engine.list_gpus(gpus);
        engine.list_policies(policies);
        engine.beyond().policies
    }

    fn engine_clocks(engine: &mut MachineEngine, clocks: &[Option<GpuClock>], lock: FrequencyPolicy) -> bool {
        engine.list_clocks(clocks);
        engine.clocks_mut().iter_mut().flatten().for_each(|clock| clock.relist(lock));
        engine.clocks().iter().flatten().any(|clock| clock.held().is_some())
    }

    fn engine_demand(engine: &mut MachineEngine, target: TargetId, draw: DeviceDraw) -> (Option<DemandReport>, Option<BiteSource>) {
        engine.drew(target, draw);
        let bite = engine.demand_of(target).and_then(DeviceDemand::bite);
        (engine.demand().report().copied(), bite)
    }

    fn engine_start(lease: Option<LeaseTerms>, now: Stamp) -> PoolEngine {
        PoolEngine::start(backend::Route::Remote, Wiring::OneForAll, lease, now)
    }

    fn grant_holder(range: CapRange, floor: Floor, desired: DesiredCap, in_force: Option<Watts>) -> Holder {
        Holder::capped(range, floor, desired, in_force)
    }

    fn step_lease(law: &LeaseLaw, lease: &mut LeaseMemory, facts: &LeaseFacts) -> LeaseDecision {
        law.step(lease, facts)
    }

    fn tick_energy(meter: &EnergyMeter, baseline: &mut Baseline, now: Stamp, sample: Option<CounterSample>) -> MeterReading {
        meter.step(baseline, now, sample)
    }

    fn tick_energy_total(packages: &[MeterReading]) -> MeterReading {
        energy::total(packages.iter().copied())
    }

    fn cap_resolution(intent: CapIntent, range: CapRange, floor: Floor) -> Resolution {
        intent.resolve(range, floor)
    }

    fn percent_path(percent: Percent) -> ThrottlePercent {
        ThrottlePercent::leaving(percent)
    }

    fn gpu_limits(limits: GpuLimits, intent: CapIntent, floor: Floor) -> bool {
        limits.resolve(intent, floor).is_some()
    }

    fn lease_jitter(hash: u64, span: Micros) -> Micros {
        LeaseJitter::of_identity(hash).of(span)
    }
}
