//! The cost of a control tick, and of a step of the engine.

use super::{Row, measure};
use joulie_core::node::backend::{Package, PackageFacts, Route};
use joulie_core::node::cap::{CapIntent, CapRange, DesiredCap};
use joulie_core::node::classic::{self, Classic};
use joulie_core::node::energy::MeterReading;
use joulie_core::node::engine::{
    Desire, Engine, EngineFacts, EngineLaws, FrequencyPolicy, FrequencyPolicyFacts, Instruction, LoopLaw,
    NodeGrant, NodeParts, Occasion, PolicyLimit, PolicyOutcome, Scale, TargetId, Wiring,
};
use joulie_core::node::gpu_cap::{CappedGpu, GpuFacts, GpuLimits};
use joulie_core::node::law::{CommandOutcome, Decision, Facts, FrequencyRange, Law, PowerReading};
use joulie_core::node::limiter::{LimitFacts, LimitOutcome, LimitReading};
use joulie_core::node::throttle::PolicyLocation;
use joulie_core::node::tracking::{self, Tracking};
use node_kit::{Config, HardwareSources, NodeAccess};
use power_units::{KiloHertz, Micros, Stamp, Watts};
use std::path::PathBuf;

/// The most that a tick may cost, ns.
const BAR: f64 = 100.0;
/// The most that a step of an engine of 2 packages, 64 policies and 8 GPUs may cost, ns.
const ENGINE_BAR: f64 = 5_000.0;
/// This many ticks are measured together, of a node that is quiet, changes, and is quiet again.
const TICKS: u32 = 64;

/// The rows about one node's control.
pub(crate) fn rows() -> Vec<Row> {
    let (Ok(classic), Ok(tracking)) = (Classic::new(classic::DEFAULTS), Tracking::new(tracking::DEFAULTS))
    else {
        return Vec::new();
    };
    let mut rows = vec![
        ticks("control tick, classic", &classic, quiet),
        ticks("control tick, classic, power that moves", &classic, moving),
        ticks("control tick, tracking", &tracking, quiet),
        ticks("control tick, tracking, power that moves", &tracking, moving),
    ];
    for (what, law, limits) in [
        ("engine step, limits under a grant", LoopLaw::Classic(classic), true),
        ("engine step, classic over 64 policies", LoopLaw::Classic(classic), false),
        ("engine step, tracking over 64 policies", LoopLaw::Tracking(tracking), false),
    ] {
        rows.extend(engine(what, law, limits));
    }
    rows
}

/// Steps of an engine. Before each step the facts of every device are written, and after it its orders are answered.
/// If its packages have no limits, the closed loop runs.
fn engine(what: &str, dvfs: LoopLaw, limits: bool) -> Option<Row> {
    let period = Micros::new(500_000);
    let config =
        Config::standard(HardwareSources::machine(), PathBuf::new(), NodeAccess::Control, period).ok()?;
    let laws = EngineLaws {
        cpu: config.cpu,
        gpu: config.gpu,
        dvfs,
        grants: NodeParts::ALL,
        access: NodeAccess::Control,
    };
    let range = CapRange::new(Some(Watts::from_int(50)), Some(Watts::from_int(250)), None);
    let package = PackageFacts { range, has_limit: limits, ..PackageFacts::UNKNOWN };
    let board = GpuLimits::new(Some(Watts::from_int(100)), Some(Watts::from_int(400)));
    let board = GpuFacts { limits: board, ..GpuFacts::UNKNOWN };
    let mut engine =
        Engine::<2, 8, 64, 32>::start(Route::Host, Wiring::EachItsOwn, None, Stamp::new(Micros::ZERO));
    engine.list_packages(&[Package::untouched(package); 2]);
    engine.list_gpus(&[CappedGpu::untouched(board); 8]);
    let (floor, most) = (KiloHertz::from_int(800_000), KiloHertz::from_int(3_200_000));
    let scale = Scale::Frequency { floor, most, step: KiloHertz::from_int(100_000) };
    let place = |core: u32| PolicyLocation { package: u16::try_from(core / 32).unwrap_or(0), core };
    let policies: Vec<FrequencyPolicy> = (0..64)
        .map(|core| FrequencyPolicy::listed(scale, place(core), FrequencyPolicyFacts::UNKNOWN))
        .collect();
    engine.list_policies(&policies);
    let cap = |watts| DesiredCap::Cap(CapIntent::of_watts(Watts::from_int(watts)));
    let grant = Some(NodeGrant { serial: 1, watts: Watts::from_int(2_500) });
    let desire = Desire { cpu: cap(150), gpu: cap(300), grant, ..Desire::UNKNOWN };
    let mut now = Stamp::new(Micros::ZERO);
    let mut limited = [most; 64];
    let mut orders = Vec::with_capacity(74);
    let mut capped = [Watts::from_int(400); 10];
    Some(measure(what, Some(ENGINE_BAR), (TICKS, 200), || {
        for tick in 0..TICKS {
            now = now + period;
            for (package, limit) in engine.packages_mut().iter_mut().zip(capped) {
                package.facts.in_force = Some(limit);
                package.facts.limit =
                    LimitFacts { seen: LimitReading::At { limit, read: now }, ..package.facts.limit };
            }
            for (gpu, limit) in engine.gpus_mut().iter_mut().zip(&capped[2..]) {
                gpu.facts.in_force = Some(*limit);
                gpu.facts.limit =
                    LimitFacts { seen: LimitReading::At { limit: *limit, read: now }, ..gpu.facts.limit };
            }
            for (policy, limit) in engine.policies_mut().iter_mut().zip(limited) {
                let limit = Some(PolicyLimit::Frequency(limit));
                let outcome = policy.facts.outcome;
                policy.facts =
                    FrequencyPolicyFacts { read: Some(now), limit, outcome, ..FrequencyPolicyFacts::UNKNOWN };
                policy.facts.running = Some(KiloHertz::from_int(2_400_000));
            }
            let power = MeterReading::Fresh { watts: Watts::from_int(moving(tick)), over: period };
            let facts = EngineFacts {
                now,
                occasion: Occasion::Period,
                desire,
                power,
                has_meter: true,
                renewal: None,
            };
            engine.step(&laws, &facts);
            orders.clear();
            orders.extend(engine.orders());
            for order in orders.drain(..) {
                let ticket = order.ticket;
                match (order.target, order.instruction) {
                    (TargetId::Package(at), Instruction::Power(watts)) => {
                        capped[at] = watts;
                        engine.packages_mut()[at].facts.limit.outcome =
                            LimitOutcome::Set { ticket, read_back: Ok(watts) };
                    }
                    (TargetId::Gpu(at), Instruction::Power(watts)) => {
                        capped[at + 2] = watts;
                        engine.gpus_mut()[at].facts.limit.outcome =
                            LimitOutcome::Set { ticket, read_back: Ok(watts) };
                    }
                    (TargetId::Policy(at), Instruction::Limit(limit)) => {
                        if let PolicyLimit::Frequency(frequency) = limit {
                            limited[at] = frequency;
                        }
                        engine.policies_mut()[at].facts.outcome =
                            PolicyOutcome::Set { ticket, read_back: Ok(limit) };
                    }
                    (TargetId::Policy(at), _) => {
                        limited[at] = most;
                        engine.policies_mut()[at].facts.outcome =
                            PolicyOutcome::Released { ticket, outcome: Ok(()) };
                    }
                    (TargetId::Package(_) | TargetId::Gpu(_) | TargetId::Clock(_), _) => {}
                }
            }
        }
        engine.actions()
    }))
}

fn quiet(tick: u32) -> i32 {
    298 + i32::from(tick.is_multiple_of(2))
}

/// Readings that differ enough for the law to act on each.
fn moving(tick: u32) -> i32 {
    if tick.is_multiple_of(2) { 420 } else { 230 }
}

fn ticks<L: Law>(what: &str, law: &L, watts: fn(u32) -> i32) -> Row {
    let mut mode = law.start(None);
    let mut facts = Facts {
        now: Stamp::new(Micros::ZERO),
        cap: Some(Watts::from_int(300)),
        power: PowerReading::Missing,
        effective: Some(KiloHertz::from_int(2_400_000)),
        range: FrequencyRange::new(KiloHertz::from_int(800_000), KiloHertz::from_int(3_200_000)),
        outcome: CommandOutcome::Unknown,
    };
    measure(what, Some(BAR), (TICKS, 2_000), || {
        let mut last: Option<Decision> = None;
        for tick in 0..TICKS {
            facts.now = facts.now + Micros::new(500_000);
            facts.power =
                PowerReading::Fresh { watts: Watts::from_int(watts(tick)), over: Micros::new(500_000) };
            let decision = law.step(&mut mode, &facts);
            facts.outcome = match decision.command {
                Some(asked) => CommandOutcome::Applied { asked, in_effect: asked },
                None => CommandOutcome::Unknown,
            };
            last = Some(decision);
        }
        last
    })
}
