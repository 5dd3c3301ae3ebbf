use super::*;
use crate::node::actuation::ActuationLaw;
use crate::node::backend::{BackendLaw, BackendPreference, PackageFacts};
use crate::node::backoff::Backoff;
use crate::node::cap::{CapIntent, CapRange, CapReport, CapResult, Floor};
use crate::node::classic::{self, Classic};
use crate::node::drift::DriftLaw;
use crate::node::energy::Gap;
use crate::node::gpu_cap::{GpuFacts, GpuLaw};
use crate::node::lease::{LeaseLaw, OnExpiry};
use crate::node::limiter::{LimitFacts, LimitOutcome, LimiterLaw};
use crate::node::throttle::{PolicyLocation, ThrottlePercent};
use crate::node::tracking::{self, Tracking};
use power_hal::ErrorKind;
use power_units::{KiloHertz, Micros, Ratio};
use std::boxed::Box;
use std::vec::Vec as List;

fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn seconds(count: u64) -> Micros {
    Micros::new(count * 1_000_000)
}

fn mhz(count: i32) -> KiloHertz {
    KiloHertz::from_int(count * 1_000)
}

fn laws(dvfs: LoopLaw) -> EngineLaws {
    let backoff = Backoff::new(seconds(1), seconds(60)).unwrap();
    let actuation = ActuationLaw::new(seconds(2), backoff).unwrap();
    let limits = LimiterLaw { actuation, drift: DriftLaw::new(backoff, 5, seconds(600)).unwrap() };
    let cpu = BackendLaw {
        limits,
        throttle: actuation,
        settle: seconds(2),
        floor: Floor::NONE,
        preference: BackendPreference::LimitFirst,
    };
    let gpu = GpuLaw { limits, floor: Floor::NONE };
    EngineLaws { cpu, gpu, dvfs, grants: NodeParts::ALL, access: NodeAccess::Control }
}

/// Acts on the first reading beyond the cap itself.
fn eager() -> LoopLaw {
    let tuning = classic::Tuning {
        ema_alpha: power_units::Ratio::ONE,
        high_margin: Watts::ZERO,
        low_margin: Watts::ZERO,
        trip_count: 1,
        cooldown: Micros::ZERO,
        ..classic::DEFAULTS
    };
    LoopLaw::Classic(Classic::new(tuning).unwrap())
}

fn tracking() -> LoopLaw {
    LoopLaw::Tracking(Tracking::new(tracking::DEFAULTS).unwrap())
}

fn cap(watts: i32) -> DesiredCap {
    DesiredCap::Cap(CapIntent::of_watts(w(watts)))
}

const NOBODY: Desire =
    Desire { cpu: DesiredCap::Gone, gpu: DesiredCap::Gone, grant: None, armed: Ratio::ONE };

/// A node whose devices obey at once, unless a test makes them refuse.
struct Bench<const P: usize, const G: usize, const D: usize> {
    engine: Box<Engine<P, G, D>>,
    laws: EngineLaws,
    now: u64,
    power: MeterReading,
    refuses: bool,
    throttle: ThrottlePercent,
    limits: List<KiloHertz>,
    /// The policy whose processors are offline.
    offline: Option<usize>,
}

impl<const P: usize, const G: usize, const D: usize> Bench<P, G, D> {
    fn new(wiring: Wiring, dvfs: LoopLaw) -> Self {
        let engine = Box::new(Engine::start(Route::Host, wiring, None, at(0)));
        let power = MeterReading::Fresh { watts: w(200), over: seconds(1) };
        let throttle = ThrottlePercent::NONE;
        Self {
            engine,
            laws: laws(dvfs),
            now: 0,
            power,
            refuses: false,
            throttle,
            limits: List::new(),
            offline: None,
        }
    }

    fn with_policies(self, count: usize) -> Self {
        self.with_cores(&std::vec![3_000; count])
    }

    /// Cores of these highest frequencies, MHz.
    fn with_cores(mut self, most: &[i32]) -> Self {
        let listed = |(core, &most)| {
            let scale = Scale::Frequency { floor: mhz(800), most: mhz(most), step: mhz(100) };
            let place = PolicyLocation { package: 0, core };
            FrequencyPolicy::listed(scale, place, FrequencyPolicyFacts::UNKNOWN)
        };
        let policies: List<FrequencyPolicy> = (0..).zip(most).map(listed).collect();
        self.limits = policies.iter().map(FrequencyPolicy::most).collect();
        self.engine.list_policies(&policies);
        self
    }

    /// Runs one period, and steps until nothing is ordered; returns the orders.
    fn period(&mut self, desire: Desire) -> List<EngineOrder> {
        self.now += 1;
        let mut ordered = List::new();
        for round in 0..8 {
            let orders = self.round(desire, if round == 0 { Occasion::Period } else { Occasion::News });
            if orders.is_empty() && round > 0 {
                break;
            }
            ordered.extend(orders);
        }
        ordered
    }

    fn round(&mut self, desire: Desire, occasion: Occasion) -> List<EngineOrder> {
        let now = at(self.now);
        let policies = self.engine.policies_mut().iter_mut().zip(&self.limits).enumerate();
        for (at, (policy, limit)) in policies {
            let answers = self.offline != Some(at);
            policy.facts.read = answers.then_some(now);
            policy.facts.limit = answers.then_some(PolicyLimit::Frequency(*limit));
        }
        let facts = EngineFacts { now, occasion, desire, power: self.power, has_meter: true, renewal: None };
        self.engine.step(&self.laws, &facts);
        let orders: List<EngineOrder> = self.engine.orders().collect();
        for order in &orders {
            self.obey(*order);
        }
        orders
    }

    fn obey(&mut self, EngineOrder { target, ticket, instruction }: EngineOrder) {
        let refused = self.refuses.then_some(ErrorKind::Locked);
        let limit = match instruction {
            Instruction::Release => LimitOutcome::Released { ticket, outcome: refused.map_or(Ok(()), Err) },
            Instruction::Power(watts) => {
                LimitOutcome::Set { ticket, read_back: refused.map_or(Ok(watts), Err) }
            }
            Instruction::Limit(_) => LimitOutcome::Unknown,
        };
        match (target, instruction) {
            (TargetId::Package(at), _) => {
                self.engine.packages_mut()[at].facts.limit.outcome = limit;
            }
            (TargetId::Gpu(at), _) => self.engine.gpus_mut()[at].facts.limit.outcome = limit,
            (TargetId::Clock(_), _) => unreachable!("no clock is listed"),
            (TargetId::Policy(at), Instruction::Limit(_)) if self.offline == Some(at) => {
                let busy = PolicyOutcome::Set { ticket, read_back: Err(ErrorKind::Busy) };
                self.engine.policies_mut()[at].facts.outcome = busy;
            }
            (TargetId::Policy(at), Instruction::Limit(limit)) => {
                let policy = &mut self.engine.policies_mut()[at];
                if !policy.facts.touched {
                    (policy.facts.touched, policy.facts.original) = (true, policy.facts.limit);
                }
                match limit {
                    PolicyLimit::Frequency(frequency) => self.limits[at] = frequency,
                    PolicyLimit::Throttle(throttle) => self.throttle = throttle,
                }
                policy.facts.outcome = PolicyOutcome::Set { ticket, read_back: Ok(limit) };
            }
            (TargetId::Policy(at), Instruction::Release | Instruction::Power(_)) => {
                let policy = &mut self.engine.policies_mut()[at];
                let original = policy.facts.original.take();
                policy.facts.touched = false;
                if let (Some(limit), Some(PolicyLimit::Frequency(original))) =
                    (self.limits.get_mut(at), original)
                {
                    *limit = original;
                }
                policy.facts.outcome = PolicyOutcome::Released { ticket, outcome: Ok(()) };
            }
        }
    }
}

fn at(second: u64) -> Stamp {
    Stamp::new(seconds(second))
}

fn package(min: i32, max: i32) -> Package {
    let range = CapRange::new(Some(w(min)), Some(w(max)), None);
    Package::untouched(PackageFacts { range, has_limit: true, ..PackageFacts::UNKNOWN })
}

fn gpu(min: i32, max: i32) -> CappedGpu {
    let limits = GpuLimits::new(Some(w(min)), Some(w(max)));
    CappedGpu::untouched(GpuFacts { limits, ..GpuFacts::UNKNOWN })
}

type Small = Bench<2, 2, 8>;

#[test]
fn a_cap_is_ordered_of_each_package_and_each_gpu_and_its_outcome_is_matched_by_ticket() {
    let mut node = Small::new(Wiring::EachItsOwn, eager());
    node.engine.list_packages(&[package(50, 200); 2]);
    node.engine.list_gpus(&[gpu(100, 400); 2]);
    let desire = Desire { cpu: cap(120), gpu: cap(250), ..Desire::UNKNOWN };
    let orders = node.round(desire, Occasion::Period);
    let instructions: List<_> = orders.iter().map(|order| (order.target, order.instruction)).collect();
    assert_eq!(
        instructions,
        [
            (TargetId::Package(0), Instruction::Power(w(120))),
            (TargetId::Package(1), Instruction::Power(w(120))),
            (TargetId::Gpu(0), Instruction::Power(w(250))),
            (TargetId::Gpu(1), Instruction::Power(w(250))),
        ]
    );
    // An answer with an unknown ticket is ignored.
    let strange = LimitOutcome::Set { ticket: orders[0].ticket.next(), read_back: Ok(w(120)) };
    node.engine.packages_mut()[0].facts.limit.outcome = strange;
    assert!(node.engine.is_busy());
    node.round(desire, Occasion::News);
    assert_eq!(node.engine.cpu().unwrap().status.report, CapReport::Pending);
    let told = LimitOutcome::Set { ticket: orders[0].ticket, read_back: Ok(w(120)) };
    node.engine.packages_mut()[0].facts.limit.outcome = told;
    node.round(desire, Occasion::News);
    let applied = CapReport::Cap(CapResult::Applied { effective: w(240) });
    assert_eq!(node.engine.cpu().unwrap().status.report, applied);
    assert!(!node.engine.is_busy());
    assert_eq!(node.engine.packages()[0].limiter().ordered(), Some(w(120)));
}

#[test]
fn limits_that_are_refused_begin_the_loop_at_once_and_it_spreads_a_mean_over_the_policies() {
    for (dvfs, power) in [(eager(), 400), (tracking(), 400)] {
        let mut node = Small::new(Wiring::EachItsOwn, dvfs).with_policies(8);
        node.engine.list_packages(&[package(50, 300); 2]);
        node.refuses = true;
        node.power = MeterReading::Fresh { watts: w(power), over: seconds(1) };
        let desire = Desire { cpu: cap(150), ..Desire::UNKNOWN };
        let ordered = node.period(desire);
        let limited = ordered.iter().any(|order| matches!(order.instruction, Instruction::Limit(_)));
        assert!(limited, "in the same period: {ordered:?}");
        node.period(desire);
        node.period(desire);
        assert!(node.limits.iter().any(|limit| *limit < mhz(3_000)), "{:?}", node.limits);
        assert_eq!(node.engine.cpu().unwrap().mode, crate::node::cap::Backend::Dvfs);
        assert!(node.engine.actions().0 > 0);
        // Nothing is desired any more: the originals are restored.
        for _ in 0..4 {
            node.period(NOBODY);
        }
        assert!(node.limits.iter().all(|limit| *limit == mhz(3_000)), "{:?}", node.limits);
        assert_eq!(node.engine.law(), None);
    }
}

/// A loop whose cap is far away writes nothing, and an administrator may lower a limit meanwhile.
#[test]
fn a_limit_that_is_lowered_while_the_loop_waits_is_what_it_may_rise_to() {
    let mut node = Small::new(Wiring::EachItsOwn, tracking()).with_policies(8);
    node.engine.list_packages(&[package(50, 300); 2]);
    node.refuses = true;
    let step = |node: &mut Small, each: i32, lowered: usize| {
        let ghz: f64 = node.limits.iter().map(|limit| limit.to_bits() as f64 / 2_f64.powi(32) / 1e6).sum();
        let watts = Watts::from_bits(((100.0 + 10.0 * ghz) * 2_f64.powi(32)) as i64);
        node.power = MeterReading::Fresh { watts, over: seconds(1) };
        node.period(Desire { cpu: cap(each), ..Desire::UNKNOWN });
        let above: List<_> = node.limits.iter().take(lowered).filter(|limit| **limit > mhz(800)).collect();
        assert!(above.is_empty(), "{each} W: {:?}", node.limits);
    };
    (0..4).for_each(|_| step(&mut node, 290, 0));
    assert!(node.engine.law().is_some() && node.limits.iter().all(|limit| *limit == mhz(3_000)));
    node.limits[..2].fill(mhz(800));
    (0..4).for_each(|_| step(&mut node, 290, 2));
    (0..20).for_each(|_| step(&mut node, 100, 2));
    assert!(node.limits[2..].iter().any(|limit| *limit < mhz(3_000)), "{:?}", node.limits);
    (0..20).for_each(|_| step(&mut node, 130, 2));
    node.period(NOBODY);
    assert_eq!(node.limits, [[mhz(800); 2].as_slice(), &[mhz(3_000); 6]].concat());
}

/// A blind law has nothing to command any more once the policies are at their lowest.
#[test]
fn a_policy_that_is_found_or_comes_back_gets_what_a_blind_law_has_ordered() {
    for dvfs in [eager(), tracking()] {
        let mut node = Small::new(Wiring::EachItsOwn, dvfs).with_policies(5);
        node.engine.list_packages(&[package(50, 300); 2]);
        node.refuses = true;
        let desire = Desire { cpu: cap(150), ..Desire::UNKNOWN };
        let scale = Scale::Frequency { floor: mhz(800), most: mhz(3_000), step: mhz(100) };
        let all = node.engine.policies().to_vec();
        node.engine.list_policies(&all[..4]);
        node.power = MeterReading::Fresh { watts: w(290), over: seconds(1) };
        (0..3).for_each(|_| drop(node.period(desire)));
        node.power = MeterReading::Missing(Gap::Unread);
        node.offline = Some(1);
        (0..10).for_each(|_| drop(node.period(desire)));
        let rests = [800, 3_000, 800, 800, 3_000].map(mhz);
        assert_eq!(node.limits, rests, "{dvfs:?}");
        assert!(node.period(desire).is_empty());
        node.offline = None;
        node.period(desire);
        assert_eq!(node.limits[..4], [mhz(800); 4], "{dvfs:?}");
        let known = node.engine.policies().to_vec();
        let listed = |policy: &FrequencyPolicy| FrequencyPolicy::listed(scale, policy.place, policy.facts);
        let again = known.iter().map(|before| listed(before).after(before));
        node.engine.list_policies(&again.chain([listed(&all[4])]).collect::<List<_>>());
        node.period(desire);
        assert_eq!(node.limits, [mhz(800); 5], "{dvfs:?}");
        assert!(node.period(desire).is_empty());
    }
}

/// Half of the cores are slower, so that the others need more for the mean that the law asks for.
#[test]
fn cores_of_two_kinds_share_a_mean() {
    let mut node = Small::new(Wiring::EachItsOwn, tracking())
        .with_cores(&[3_000, 3_000, 3_000, 3_000, 2_000, 2_000, 2_000, 2_000]);
    node.engine.list_packages(&[package(50, 300); 2]);
    node.refuses = true;
    let draws = |node: &Small| {
        let ghz: f64 = node.limits.iter().map(|limit| limit.to_bits() as f64 / 2_f64.powi(32) / 1e6).sum();
        // 300 W at 20 GHz, all cores' highest.
        100.0 + 10.0 * ghz
    };
    for (each, large, small) in [(120, 1_700..=1_800, 1_700..=1_800), (145, 2_600..=2_800, 2_000..=2_000)] {
        for _ in 0..30 {
            let watts = Watts::from_bits((draws(&node) * 2_f64.powi(32)) as i64);
            node.power = MeterReading::Fresh { watts, over: seconds(1) };
            node.period(Desire { cpu: cap(each), ..Desire::UNKNOWN });
        }
        let drawn = draws(&node);
        let whole = f64::from(2 * each);
        assert!((0.98 * whole..=whole).contains(&drawn), "{drawn} W of {whole}: {:?}", node.limits);
        for (at, limit) in node.limits.iter().enumerate() {
            let range = if at < 4 { &large } else { &small };
            let is_there = mhz(*range.start()) <= *limit && *limit <= mhz(*range.end());
            assert!(is_there, "{each} W: core {at} at {limit}");
        }
    }
}

#[test]
fn a_share_takes_the_throttle_of_either_law() {
    for dvfs in [eager(), tracking()] {
        let mut node = Bench::<1, 1, 1>::new(Wiring::OneForAll, dvfs);
        let facts = PackageFacts { has_limit: false, ..package(50, 300).facts };
        node.engine.list_packages(&[Package::untouched(facts)]);
        let place = PolicyLocation { package: 0, core: 0 };
        let full = Some(PolicyLimit::Throttle(ThrottlePercent::NONE));
        let facts = FrequencyPolicyFacts { limit: full, original: full, ..FrequencyPolicyFacts::UNKNOWN };
        node.engine.list_policies(&[FrequencyPolicy::listed(Scale::Share, place, facts)]);
        let mut throttles = List::new();
        for _ in 0..40 {
            // Full throttle halves the power.
            let drawn = 400 - 2 * i32::from(node.throttle.get());
            node.power = MeterReading::Fresh { watts: w(drawn), over: seconds(1) };
            node.engine.policies_mut()[0].facts.limit = Some(PolicyLimit::Throttle(node.throttle));
            node.period(Desire { cpu: cap(300), ..Desire::UNKNOWN });
            throttles.push(node.throttle.get());
        }
        let last = throttles[39];
        assert!((45..=60).contains(&last), "{throttles:?}");
        for _ in 0..3 {
            node.engine.policies_mut()[0].facts.touched = true;
            let ordered = node.period(NOBODY);
            for order in ordered {
                assert_eq!(order.instruction, Instruction::Release);
            }
        }
        assert_eq!(node.engine.cpu().unwrap().status.report, CapReport::NoIntent);
    }
}

#[test]
fn what_does_not_fit_is_counted_and_takes_its_maximum_from_the_grant() {
    let mut node = Small::new(Wiring::EachItsOwn, eager());
    node.engine.list_packages(&[package(50, 200); 3]);
    node.engine.list_gpus(&[gpu(100, 400); 4]);
    let beyond = node.engine.beyond();
    assert_eq!((beyond.packages, beyond.package_watts), (1, w(200)));
    assert_eq!((beyond.gpus, beyond.gpu_watts), (2, w(800)));
    let grant = Some(NodeGrant { serial: 1, watts: w(1_600) });
    node.period(Desire { grant, ..Desire::UNKNOWN });
    let packages = node.engine.packages().iter().map(|package| package.share().unwrap());
    let gpus = node.engine.gpus().iter().map(|gpu| gpu.share().unwrap());
    let shared = packages.chain(gpus).fold(w(0), |sum, share| sum + share);
    assert!(shared <= w(600) && shared > w(590), "{shared}");
    // The cap of the loop is for all packages: 120 W for each of two, and 200 W for the third.
    node.period(Desire { cpu: cap(120), ..Desire::UNKNOWN });
    assert_eq!(node.engine.cpu().unwrap().node_cap, Some(w(440)));
}

#[test]
fn one_limit_for_all_is_one_order_and_one_share() {
    let mut node = Small::new(Wiring::OneForAll, eager());
    node.engine.list_packages(&[package(50, 200); 2]);
    node.engine.list_gpus(&[gpu(100, 400); 2]);
    let grant = Some(NodeGrant { serial: 1, watts: w(711) });
    let orders = node.round(Desire { cpu: cap(150), gpu: cap(300), grant, ..NOBODY }, Occasion::Period);
    let targets: List<_> = orders.iter().map(|order| order.target).collect();
    assert_eq!(targets, [TargetId::Package(0), TargetId::Gpu(0)]);
    let shares = node.engine.packages().iter().map(Package::share).collect::<List<_>>();
    assert_eq!(shares[0], shares[1]);
    let sum = shares[0].unwrap().times(2) + node.engine.gpus()[0].share().unwrap().times(2);
    assert!(sum <= w(711), "{sum}");
}

#[test]
fn an_armed_event_leaves_its_share_of_the_range_of_all_devices_and_never_more_than_the_grant() {
    let mut node = Small::new(Wiring::EachItsOwn, eager());
    node.engine.list_packages(&[package(50, 200); 2]);
    node.engine.list_gpus(&[gpu(100, 400); 2]);
    let mut granted = |watts, armed| {
        let grant = Some(NodeGrant { serial: 1, watts: w(watts) });
        node.period(Desire { grant, armed, ..NOBODY });
        let packages = node.engine.packages().iter().map(|package| package.share().unwrap());
        let gpus = node.engine.gpus().iter().map(|gpu| gpu.share().unwrap());
        packages.chain(gpus).fold(w(0), |sum, share| sum + share)
    };
    let half = Ratio::from_bits(1 << 31);
    // The floors are 2 · 50 + 2 · 100 = 300 W, the most is 2 · 200 + 2 · 400 = 1200 W, half of the way 750 W.
    let sum = granted(1_100, half);
    assert!(sum <= w(750) && sum > w(745), "{sum}");
    let sum = granted(500, half);
    assert!(sum <= w(500) && sum > w(495), "the grant is less: {sum}");
    assert_eq!(granted(1_100, Ratio::ZERO), w(300));
    let sum = granted(1_100, Ratio::ONE);
    assert!(sum <= w(1_100) && sum > w(1_095), "{sum}");
}

#[test]
fn a_policy_that_another_writer_raised_makes_the_loop_start_anew() {
    let mut node = Small::new(Wiring::EachItsOwn, tracking()).with_policies(4);
    let facts = PackageFacts { has_limit: false, ..package(50, 300).facts };
    node.engine.list_packages(&[Package::untouched(facts)]);
    node.power = MeterReading::Fresh { watts: w(300), over: seconds(1) };
    let desire = Desire { cpu: cap(150), ..Desire::UNKNOWN };
    for _ in 0..4 {
        node.period(desire);
    }
    assert!(node.limits.iter().all(|limit| *limit < mhz(2_900)), "{:?}", node.limits);
    node.limits[1] = mhz(3_000);
    let before = node.engine.moved();
    node.period(desire);
    assert_eq!(node.engine.moved(), before + 1);
    node.period(desire);
    assert!(node.limits[1] < mhz(2_900), "{:?}", node.limits);
}

#[test]
fn an_order_that_nobody_answers_times_out_and_is_given_again() {
    let mut node = Small::new(Wiring::EachItsOwn, eager()).with_policies(2);
    let desire =
        Desire { cpu: DesiredCap::Cap(CapIntent::of_percent(power_units::Percent::from_int(60))), ..NOBODY };
    let mut given = 0;
    for second in 1..12 {
        let facts = EngineFacts {
            now: at(second),
            occasion: Occasion::Period,
            desire,
            power: MeterReading::Missing(Gap::Unread),
            has_meter: false,
            renewal: None,
        };
        node.engine.step(&node.laws, &facts);
        given += usize::from(node.engine.orders().next().is_some());
    }
    assert!((2..=5).contains(&given), "given {given} times in eleven seconds");
}

#[test]
fn a_list_that_changes_keeps_what_was_known_and_loses_the_order_on_its_way() {
    let mut node = Small::new(Wiring::EachItsOwn, eager()).with_policies(2);
    node.engine.list_packages(&[package(50, 200)]);
    node.period(Desire { cpu: cap(120), ..Desire::UNKNOWN });
    let known = node.engine.packages().to_vec();
    node.engine.list_packages(&[known[0], package(50, 200)]);
    assert_eq!(node.engine.packages()[0], known[0]);
    let policies = node.engine.policies().to_vec();
    let scale = Scale::Frequency { floor: mhz(800), most: mhz(3_000), step: mhz(100) };
    let again = FrequencyPolicy::listed(scale, policies[0].place, FrequencyPolicyFacts::UNKNOWN);
    node.engine.list_policies(&[again.after(&policies[0])]);
    assert_eq!(node.engine.policies().len(), 1);
    assert_eq!(node.engine.beyond(), Beyond::NOTHING);
}

#[test]
fn a_node_that_is_only_looked_at_is_ordered_nothing_whatever_its_lease_says() {
    let terms = LeaseTerms {
        law: LeaseLaw::new(seconds(5), OnExpiry::Safe).unwrap(),
        safe_cpu: CapIntent::of_watts(w(80)),
        safe_gpu: CapIntent::of_watts(w(150)),
    };
    let mut ordered = [0; 2];
    for (access, count) in [NodeAccess::Look, NodeAccess::Control].into_iter().zip(&mut ordered) {
        let mut engine: Engine<1, 1, 1> = Engine::start(Route::Host, Wiring::EachItsOwn, Some(terms), at(0));
        engine.list_packages(&[package(50, 200)]);
        engine.list_gpus(&[gpu(100, 400)]);
        let laws = EngineLaws { access, ..laws(eager()) };
        for second in 1..10 {
            let facts = EngineFacts {
                now: at(second),
                occasion: Occasion::Period,
                desire: Desire::UNKNOWN,
                power: MeterReading::Missing(Gap::Unread),
                has_meter: true,
                renewal: None,
            };
            let events = engine.step(&laws, &facts);
            assert_eq!(events.lease.is_some(), second == 6, "at {second}");
            *count += engine.orders().count();
        }
        assert_eq!(engine.lease(), Some(LeasePhase::Safe));
    }
    assert_eq!(ordered[0], 0);
    assert!(ordered[1] >= 2, "the safe profile: {ordered:?}");
}

#[test]
fn a_limit_that_was_seen_is_what_a_grant_counts() {
    let mut node = Small::new(Wiring::EachItsOwn, eager());
    node.engine.list_packages(&[package(50, 300); 2]);
    for package in node.engine.packages_mut() {
        package.facts.in_force = Some(w(200));
        package.facts.limit =
            LimitFacts { seen: LimitReading::At { limit: w(200), read: at(1) }, ..LimitFacts::UNKNOWN };
    }
    node.engine.packages_mut()[1].facts.in_force = None;
    let grant = Some(NodeGrant { serial: 1, watts: w(400) });
    let orders =
        node.round(Desire { cpu: cap(250), gpu: DesiredCap::Gone, grant, ..NOBODY }, Occasion::Period);
    for order in &orders {
        assert!(matches!(order.instruction, Instruction::Power(watts) if watts <= w(200)), "{orders:?}");
    }
}

mod clocks;
mod demand;
