use super::super::actuation::ActuationLaw;
use super::super::backoff::Backoff;
use super::super::drift::DriftLaw;
use super::super::limiter::{LimitOutcome, LimitReading};
use super::*;
use power_hal::ErrorKind;
use power_units::{Micros, Percent};
use std::vec::Vec;

fn at(micros: u64) -> Stamp {
    Stamp::new(Micros::new(micros))
}

fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn limits(min: i32, max: i32) -> GpuLimits {
    GpuLimits::new(Some(w(min)), Some(w(max)))
}

fn percent(percent: i32) -> CapIntent {
    CapIntent::of_percent(Percent::from_int(percent))
}

/// Requested and effective watts, or why the intent cannot be resolved.
fn resolve(intent: CapIntent, limits: GpuLimits) -> Option<Result<(Watts, Watts), Blocked>> {
    let resolved = limits.resolve(intent, Floor::NONE)?;
    Some(resolved.map(|target| (target.requested(), target.effective())))
}

#[test]
fn each_gpu_is_capped_by_its_own_limits() {
    // The table of GPU caps, at the correct values. Fix list agent S19, S16.
    let unknown = GpuLimits::new(None, None);
    let both = |watts, part| CapIntent { watts: Some(w(watts)), percent: Some(Percent::from_int(part)) };
    for (intent, limits, expected) in [
        (percent(60), limits(200, 350), Ok((210, 210))),
        (percent(50), limits(200, 350), Ok((175, 200))),
        (percent(60), limits(200, 700), Ok((420, 420))),
        (percent(60), limits(100, 300), Ok((180, 180))),
        (percent(60), limits(350, 700), Ok((420, 420))),
        (percent(120), limits(200, 350), Ok((420, 350))),
        (CapIntent::of_watts(w(150)), limits(200, 350), Ok((150, 200))),
        (CapIntent::of_watts(w(400)), limits(200, 350), Ok((400, 350))),
        (both(0, 60), limits(200, 350), Ok((210, 210))),
        (both(250, 60), limits(200, 350), Ok((250, 250))),
        (CapIntent::of_watts(w(250)), unknown, Ok((250, 250))),
        (percent(70), unknown, Err(Blocked::NoRange)),
        (CapIntent::NONE, limits(200, 350), Err(Blocked::NotPositive)),
        // A card that accepts a single value only.
        (CapIntent::of_watts(w(500)), limits(750, 750), Ok((500, 750))),
    ] {
        let expected = expected.map(|(requested, effective)| (w(requested), w(effective)));
        assert_eq!(resolve(intent, limits), Some(expected), "{intent:?} on {limits:?}");
    }
}

/// Fix list agent C18: a value that the driver does not report (`[N/A]`, `[Not Supported]`, a
/// failed query) is absent, and absent is not zero.
#[test]
fn limits_that_nobody_tells_are_unknown_and_not_zero() {
    let unknown = GpuLimits::new(None, None);
    assert_eq!(unknown, GpuLimits::Range(CapRange::UNKNOWN));
    assert_ne!(unknown, limits(0, 0));
    assert_eq!(
        resolve(CapIntent::of_watts(w(250)), unknown),
        Some(Ok((w(250), w(250)))),
        "not clamped to 0 W"
    );
    assert_eq!(resolve(percent(60), unknown), Some(Err(Blocked::NoRange)), "and not 60 % of 0 W");
    let only_max = GpuLimits::new(None, Some(w(350)));
    assert_eq!(resolve(percent(60), only_max), Some(Ok((w(210), w(210)))));
}

#[test]
fn a_die_without_a_maximum_is_no_target() {
    assert_eq!(GpuLimits::new(Some(w(0)), Some(w(0))), GpuLimits::NotATarget);
    assert_eq!(resolve(percent(60), limits(0, 0)), None);
    assert_eq!(resolve(CapIntent::of_watts(w(250)), limits(0, 0)), None);
}

#[test]
fn the_nodes_own_floor_holds_for_gpus_too() {
    let floor = Floor::new(w(300)).unwrap();
    let on = |limits: GpuLimits| limits.resolve(percent(50), floor).unwrap().map(ResolvedCap::effective);
    assert_eq!(on(limits(200, 350)), Ok(w(300)));
    assert_eq!(on(limits(100, 250)), Err(Blocked::FloorAboveMax));
}

fn law() -> GpuLaw {
    let backoff = Backoff::new(Micros::new(10), Micros::new(40)).unwrap();
    let limits = LimiterLaw {
        actuation: ActuationLaw::new(Micros::new(5), backoff).unwrap(),
        drift: DriftLaw::new(backoff, 3, Micros::new(1_000)).unwrap(),
    };
    GpuLaw { limits, floor: Floor::NONE }
}

fn gpu(limits: GpuLimits) -> CappedGpu {
    CappedGpu::untouched(GpuFacts { limits, ..GpuFacts::UNKNOWN })
}

/// Answers the last order of a GPU: its limit is read back as it was set, or it refuses.
fn answer(gpu: &mut CappedGpu, refuses: Option<ErrorKind>) {
    let ticket = gpu.limiter().ticket();
    let outcome = match gpu.order() {
        LimitOrder::Leave => LimitOutcome::Unknown,
        LimitOrder::Set(asked) => LimitOutcome::Set { ticket, read_back: refuses.map_or(Ok(asked), Err) },
        LimitOrder::Release => LimitOutcome::Released { ticket, outcome: refuses.map_or(Ok(()), Err) },
    };
    gpu.facts.limit = LimitFacts { outcome, seen: LimitReading::Unknown };
}

#[test]
fn a_node_of_unlike_gpus_gets_unlike_caps_and_one_verdict() {
    let mut gpus = [gpu(limits(200, 350)), gpu(limits(350, 700)), gpu(limits(0, 0))];
    let desired = DesiredCap::Cap(percent(60));
    assert_eq!(law().step(&mut gpus, at(1), desired), GpuDecision { report: CapReport::Pending, moved: 0 });
    let orders: Vec<_> = gpus.iter().map(CappedGpu::order).collect();
    assert_eq!(orders, [LimitOrder::Set(w(210)), LimitOrder::Set(w(420)), LimitOrder::Leave]);
    gpus.iter_mut().for_each(|gpu| answer(gpu, None));
    let decision = law().step(&mut gpus, at(2), desired);
    assert_eq!(decision.report, CapReport::Cap(CapResult::Applied { effective: w(630) }));
}

#[test]
fn a_gpu_that_refuses_undoes_no_other_and_is_tried_again() {
    // Fix list agent S18.
    let mut gpus = [gpu(limits(200, 350)), gpu(limits(200, 350))];
    let desired = DesiredCap::Cap(percent(60));
    law().step(&mut gpus, at(1), desired);
    answer(&mut gpus[0], None);
    answer(&mut gpus[1], Some(ErrorKind::PermissionDenied));
    let decision = law().step(&mut gpus, at(2), desired);
    assert_eq!(decision.report, CapReport::Cap(CapResult::Failed(ErrorKind::PermissionDenied)));
    assert_eq!([gpus[0].order(), gpus[1].order()], [LimitOrder::Leave; 2]);
    gpus.iter_mut().for_each(|gpu| answer(gpu, None));
    law().step(&mut gpus, at(12), desired);
    assert_eq!([gpus[0].order(), gpus[1].order()], [LimitOrder::Leave, LimitOrder::Set(w(210))]);
    gpus.iter_mut().for_each(|gpu| answer(gpu, None));
    let decision = law().step(&mut gpus, at(13), desired);
    assert_eq!(decision.report, CapReport::Cap(CapResult::Applied { effective: w(420) }));
}

#[test]
fn one_gpu_that_cannot_resolve_blocks_the_verdict_and_not_the_others() {
    let mut gpus = [gpu(limits(200, 350)), gpu(GpuLimits::new(None, None))];
    law().step(&mut gpus, at(1), DesiredCap::Cap(percent(60)));
    assert_eq!([gpus[0].order(), gpus[1].order()], [LimitOrder::Set(w(210)), LimitOrder::Leave]);
    gpus.iter_mut().for_each(|gpu| answer(gpu, None));
    let decision = law().step(&mut gpus, at(2), DesiredCap::Cap(percent(60)));
    assert_eq!(decision.report, CapReport::Cap(CapResult::Blocked(Blocked::NoRange)));
}

#[test]
fn a_node_without_gpus_is_blocked_when_a_cap_is_asked_and_silent_when_not() {
    let mut gpus = [gpu(limits(0, 0))];
    let blocked = CapReport::Cap(CapResult::Blocked(Blocked::NoGpus));
    assert_eq!(law().step(&mut [], at(1), DesiredCap::Cap(percent(60))).report, blocked);
    assert_eq!(law().step(&mut gpus, at(1), DesiredCap::Cap(percent(60))).report, blocked);
    for nothing in [DesiredCap::Gone, DesiredCap::Cap(CapIntent::NONE)] {
        assert_eq!(law().step(&mut [], at(1), nothing).report, CapReport::NoIntent);
    }
}

#[test]
fn a_restart_keeps_what_it_finds_until_it_knows_what_is_desired() {
    let facts = GpuFacts { limits: limits(200, 350), ..GpuFacts::UNKNOWN };
    let mut gpus = [CappedGpu::adopted(facts)];
    assert_eq!(law().step(&mut gpus, at(1), DesiredCap::Unknown).report, CapReport::Pending);
    assert_eq!(gpus[0].order(), LimitOrder::Leave);
    // Fix list agent S6: and restores the original when nothing is desired.
    assert_eq!(law().step(&mut gpus, at(2), DesiredCap::Gone).report, CapReport::Pending);
    assert_eq!(gpus[0].order(), LimitOrder::Release);
    answer(&mut gpus[0], Some(ErrorKind::Gone));
    let report = law().step(&mut gpus, at(3), DesiredCap::Gone).report;
    assert_eq!(
        report,
        CapReport::Cap(CapResult::Failed(ErrorKind::Gone)),
        "an original that is not back is said"
    );
    answer(&mut gpus[0], None);
    law().step(&mut gpus, at(13), DesiredCap::Gone);
    assert_eq!(gpus[0].order(), LimitOrder::Release);
    answer(&mut gpus[0], None);
    assert_eq!(law().step(&mut gpus, at(14), DesiredCap::Gone).report, CapReport::NoIntent);
}

#[test]
fn a_grant_holds_every_gpu_whatever_is_desired() {
    let granted = |most: i32| {
        let mut gpu = gpu(limits(200, 350));
        gpu.grant(None, Some(w(most)));
        gpu
    };
    for (desired, orders) in [
        (DesiredCap::Cap(percent(100)), [250, 200]),
        (DesiredCap::Cap(CapIntent::of_watts(w(210))), [210, 200]),
        (DesiredCap::Gone, [250, 200]),
        (DesiredCap::Cap(CapIntent::NONE), [250, 200]),
        (DesiredCap::Unknown, [250, 200]),
    ] {
        let mut gpus = [granted(250), granted(100)];
        assert_eq!(law().step(&mut gpus, at(1), desired).report, CapReport::Pending);
        let ordered: Vec<_> = gpus.iter().map(CappedGpu::order).collect();
        assert_eq!(ordered, orders.map(|order| LimitOrder::Set(w(order))), "{desired:?}");
        gpus.iter_mut().for_each(|gpu| answer(gpu, None));
        assert!(matches!(law().step(&mut gpus, at(2), desired).report, CapReport::Cap(_)), "{desired:?}");
    }
    let mut blind = gpu(GpuLimits::new(None, None));
    blind.grant(None, Some(w(250)));
    law().step(core::slice::from_mut(&mut blind), at(1), DesiredCap::Cap(percent(60)));
    assert_eq!(blind.order(), LimitOrder::Set(w(250)), "a percentage of nobody knows what");
}
