//! GPUs whose power limit does not hold them: the loop over the lock of the clock takes over, each GPU for itself.

use super::*;
use crate::node::demand::{DeviceDraw, ThrottleReading};
use crate::node::gpu_cap::GpuLimits;

const LOWEST: i32 = 345;
const HIGHEST: i32 = 1_980;

/// A card of 100 W when idle and of 700 W at its highest clock, with limits from 200 W.
#[derive(Clone, Copy)]
struct Card {
    limit: i32,
    lock: Option<i32>,
    /// How it answers an order for its limit, if it refuses.
    refuses: Option<ErrorKind>,
    /// Whether it keeps to its limit.
    obeys: bool,
    metered: bool,
}

const CARD: Card = Card { limit: 700, lock: None, refuses: None, obeys: true, metered: true };

impl Card {
    /// The highest clock that its lock allows.
    fn locked(self) -> i32 {
        self.lock.unwrap_or(HIGHEST)
    }

    /// 100 W + 600 W · (f / 1980 MHz)².
    fn watts(self) -> i32 {
        let square = i64::from(self.locked() * self.locked());
        let free = 100 + i32::try_from(600 * square / i64::from(HIGHEST * HIGHEST)).unwrap();
        if self.obeys { free.min(self.limit) } else { free }
    }

    /// The clock at which it runs: a limit holds it below its lock.
    fn running(self) -> i32 {
        let square = i64::from(self.watts() - 100) * i64::from(HIGHEST * HIGHEST) / 600;
        i32::try_from(square.isqrt()).unwrap().clamp(LOWEST, self.locked())
    }
}

type Cards = Engine<1, 2, 1, 32, 2>;

struct Shelf {
    engine: Box<Cards>,
    laws: EngineLaws,
    cards: [Card; 2],
    now: u64,
    /// Orders for limits, by second and card.
    limits: List<(u64, usize, i32)>,
}

fn lock(touched: bool) -> FrequencyPolicy {
    let scale = Scale::Frequency { floor: mhz(LOWEST), most: mhz(HIGHEST), step: mhz(15) };
    let facts = FrequencyPolicyFacts { touched, ..FrequencyPolicyFacts::UNKNOWN };
    FrequencyPolicy::listed(scale, PolicyLocation { package: 0, core: 0 }, facts)
}

fn whole(watts: Watts) -> i32 {
    i32::try_from(watts.to_bits() >> 32).unwrap()
}

impl Shelf {
    fn new(cards: [Card; 2]) -> Self {
        Self::with(cards, tracking())
    }

    fn with(cards: [Card; 2], dvfs: LoopLaw) -> Self {
        let mut engine = Box::new(Cards::start(Route::Host, Wiring::EachItsOwn, None, at(0)));
        engine.list_gpus(&[CappedGpu::untouched(GpuFacts::UNKNOWN); 2]);
        engine.list_clocks(&[Some(GpuClock::listed(lock(false))), Some(GpuClock::listed(lock(false)))]);
        Self { engine, laws: laws(dvfs), cards, now: 0, limits: List::new() }
    }

    fn run(&mut self, seconds: usize, desire: Desire) {
        for _ in 0..seconds {
            self.now += 1;
            self.round(desire, Occasion::Period);
            for _ in 0..8 {
                if !self.round(desire, Occasion::News) {
                    break;
                }
            }
        }
    }

    /// Returns whether anything was ordered.
    fn round(&mut self, desire: Desire, occasion: Occasion) -> bool {
        let now = at(self.now);
        for (number, card) in self.cards.into_iter().enumerate() {
            let gpu = &mut self.engine.gpus_mut()[number].facts;
            gpu.limits = GpuLimits::new(Some(w(200)), Some(w(700)));
            gpu.in_force = Some(w(card.limit));
            gpu.limit.seen = LimitReading::At { limit: w(card.limit), read: now };
            let watts = w(card.watts());
            let clock = self.engine.clocks_mut()[number].as_mut().unwrap();
            clock.has_meter = card.metered;
            clock.power = match card.metered {
                true => MeterReading::Fresh { watts, over: seconds(1) },
                false => MeterReading::Missing(Gap::NoMeter),
            };
            let facts = &mut clock.policy_mut().unwrap().facts;
            (facts.read, facts.limit) = (Some(now), Some(PolicyLimit::Frequency(mhz(card.locked()))));
            facts.running = Some(mhz(card.running()));
            facts.original = Some(PolicyLimit::Frequency(mhz(HIGHEST)));
            if occasion == Occasion::Period {
                let draw = DeviceDraw { watts: Some(watts), throttled: ThrottleReading::Instant(false) };
                self.engine.drew(TargetId::Gpu(number), draw);
            }
        }
        let power = MeterReading::Missing(Gap::NoMeter);
        let facts = EngineFacts { now, occasion, desire, power, has_meter: false, renewal: None };
        self.engine.step(&self.laws, &facts);
        let orders: List<EngineOrder> = self.engine.orders().collect();
        orders.iter().for_each(|order| self.obey(*order));
        !orders.is_empty()
    }

    fn obey(&mut self, EngineOrder { target, ticket, instruction }: EngineOrder) {
        match (target, instruction) {
            (TargetId::Gpu(at), Instruction::Power(watts)) => {
                let card = &mut self.cards[at];
                self.limits.push((self.now, at, whole(watts)));
                // As the port does: a wish below the range is clamped.
                let read_back = card.refuses.map_or(Ok(whole(watts).max(200)), Err);
                card.limit = read_back.unwrap_or(card.limit);
                let outcome = LimitOutcome::Set { ticket, read_back: read_back.map(w) };
                self.engine.gpus_mut()[at].facts.limit.outcome = outcome;
            }
            (TargetId::Gpu(at), _) => {
                self.cards[at].limit = 700;
                let outcome = LimitOutcome::Released { ticket, outcome: Ok(()) };
                self.engine.gpus_mut()[at].facts.limit.outcome = outcome;
            }
            (TargetId::Clock(at), instruction) => {
                let facts = &mut self.engine.clocks_mut()[at].as_mut().unwrap().policy_mut().unwrap().facts;
                if let Instruction::Limit(PolicyLimit::Frequency(frequency)) = instruction {
                    let khz = frequency.to_whole(power_units::Role::Limit);
                    self.cards[at].lock = Some(i32::try_from(khz / 1_000).unwrap());
                    facts.touched = true;
                    facts.outcome =
                        PolicyOutcome::Set { ticket, read_back: Ok(PolicyLimit::Frequency(frequency)) };
                } else {
                    self.cards[at].lock = None;
                    facts.touched = false;
                    facts.outcome = PolicyOutcome::Released { ticket, outcome: Ok(()) };
                }
            }
            (TargetId::Package(_) | TargetId::Policy(_), _) => unreachable!("there are none"),
        }
    }

    fn report(&self) -> CapReport {
        self.engine.gpu().unwrap().report
    }

    fn causes(&self) -> [Option<LoopCause>; 2] {
        [0, 1].map(|at| self.engine.clocks()[at].as_ref().unwrap().cause())
    }

    fn watts(&self) -> [i32; 2] {
        self.cards.map(Card::watts)
    }
}

fn gpus(watts: i32) -> Desire {
    Desire { gpu: cap(watts), ..NOBODY }
}

fn applied(watts: i32) -> CapReport {
    CapReport::Cap(CapResult::Applied { effective: w(watts) })
}

fn refusing(kind: ErrorKind) -> Card {
    Card { refuses: Some(kind), ..CARD }
}

#[test]
fn a_gpu_whose_limit_is_refused_is_held_by_its_clock_and_the_other_one_by_its_limit() {
    for (kind, cause) in [
        (ErrorKind::PermissionDenied, LoopCause::Refused),
        (ErrorKind::Locked, LoopCause::Refused),
        (ErrorKind::OutOfRange, LoopCause::OutOfRange),
    ] {
        for dvfs in [tracking(), eager()] {
            let mut shelf = Shelf::with([refusing(kind), CARD], dvfs);
            shelf.run(10, gpus(300));
            let [looped, limited] = shelf.watts();
            assert!((285..=300).contains(&looped), "{kind:?}: {looped} W");
            assert_eq!((limited, shelf.cards[1].limit, shelf.cards[1].lock), (300, 300, None));
            assert_eq!((shelf.causes(), shelf.report()), ([Some(cause), None], applied(600)));
            // Nothing is desired any more.
            shelf.run(5, NOBODY);
            assert_eq!(shelf.cards.map(|card| (card.lock, card.limit)), [(None, 700); 2]);
            assert_eq!((shelf.causes(), shelf.report()), ([None, None], CapReport::NoIntent));
        }
    }
}

#[test]
fn a_limit_that_works_again_gets_the_gpu_back_and_only_then_the_lock_is_ended() {
    let mut shelf = Shelf::new([refusing(ErrorKind::Locked), CARD]);
    shelf.run(10, gpus(300));
    shelf.cards[0].refuses = None;
    for _ in 0..120 {
        shelf.run(1, gpus(300));
        let card = shelf.cards[0];
        assert!(card.lock.is_some() || card.limit == 300, "nothing holds it");
        assert!(card.watts() <= 303, "{} W", card.watts());
    }
    assert_eq!((shelf.cards[0].lock, shelf.causes()), (None, [None, None]));
    assert_eq!(shelf.report(), applied(600));
}

/// 345 MHz are 118 W: less than the least limit.
#[test]
fn a_cap_below_the_range_of_the_limit_is_held_by_the_clock() {
    let mut shelf = Shelf::new([CARD; 2]);
    shelf.run(20, gpus(150));
    assert!(shelf.watts().iter().all(|watts| (140..=150).contains(watts)), "{:?}", shelf.watts());
    assert_eq!(shelf.cards.map(|card| card.limit), [200; 2], "the limit is as low as it goes");
    assert_eq!(shelf.causes(), [Some(LoopCause::OutOfRange); 2]);
    assert_eq!(shelf.report(), applied(300));
    // Within the range again, the limits hold them.
    shelf.run(20, gpus(250));
    assert_eq!(shelf.cards.map(|card| (card.limit, card.lock)), [(250, None); 2]);
    // Below what the lowest clock draws: said, and not claimed.
    shelf.run(20, gpus(110));
    let (requested, effective) = (w(220), w(2 * 118));
    assert_eq!(shelf.report(), CapReport::Cap(CapResult::Clamped { requested, effective }));
    assert_eq!(shelf.cards[0].lock, Some(LOWEST));
}

#[test]
fn a_limit_that_reads_back_and_is_not_kept_is_replaced_after_three_minutes_and_tried_again() {
    let mut shelf = Shelf::new([Card { obeys: false, ..CARD }, CARD]);
    shelf.run(180, gpus(300));
    assert_eq!((shelf.watts(), shelf.causes()), ([700, 300], [None, None]));
    shelf.run(15, gpus(300));
    assert_eq!(shelf.causes(), [Some(LoopCause::NotKept), None]);
    assert!((280..=300).contains(&shelf.watts()[0]), "{:?}", shelf.watts());
    assert_eq!((shelf.cards[0].limit, shelf.report()), (300, applied(600)), "the limit stays in place");
    for _ in 0..400 {
        shelf.run(1, gpus(300));
        assert!(shelf.cards[0].limit <= 300 && shelf.watts()[0] <= 303, "a trial raises nothing");
    }
    assert_eq!(shelf.causes()[0], Some(LoopCause::NotKept));
    // Mended: the power follows the next trial.
    shelf.cards[0].obeys = true;
    shelf.run(600, gpus(300));
    assert_eq!((shelf.cards[0].lock, shelf.cards[0].limit, shelf.causes()[0]), (None, 300, None));
}

/// The one that refuses counts with its maximum until the loop holds it.
#[test]
fn under_a_grant_nobody_gets_what_a_gpu_without_a_limit_may_still_draw() {
    let grant = Some(NodeGrant { serial: 1, watts: w(1_000) });
    let desire = Desire { cpu: DesiredCap::Gone, gpu: DesiredCap::Unknown, grant, ..NOBODY };
    let mut shelf = Shelf::new([refusing(ErrorKind::PermissionDenied), CARD]);
    let mut held = false;
    for _ in 0..60 {
        shelf.run(1, desire);
        let clock = shelf.engine.clocks()[0].as_ref().unwrap();
        held |= clock.held().is_some();
        let most = if held { 1_000 - shelf.watts()[0] } else { 300 };
        let limit = shelf.cards[1].limit;
        assert!(limit <= most, "{limit} W beside {} W, held: {held}", shelf.watts()[0]);
    }
    assert!(held);
    let [looped, _] = shelf.watts();
    assert!(looped <= 500 && shelf.cards[1].limit == 500, "{looped} W and {} W", shelf.cards[1].limit);
    // The grant is lowered: the loop follows, and so does the limit.
    let less = Desire { grant: Some(NodeGrant { serial: 2, watts: w(700) }), ..desire };
    shelf.run(20, less);
    assert!(shelf.watts()[0] <= 350 && shelf.cards[1].limit <= 350, "{:?}", shelf.watts());
}

#[test]
fn a_lock_from_before_a_restart_is_ended_when_nothing_is_desired() {
    let mut shelf = Shelf::new([Card { lock: Some(600), ..CARD }, CARD]);
    shelf.engine.list_clocks(&[Some(GpuClock::listed(lock(true))), Some(GpuClock::listed(lock(false)))]);
    shelf.run(3, Desire::UNKNOWN);
    assert_eq!(shelf.cards[0].lock, Some(600), "nothing is known yet");
    shelf.run(3, NOBODY);
    assert_eq!((shelf.cards[0].lock, shelf.report()), (None, CapReport::NoIntent));
}

/// With another cap the lock is adopted: the limit holds the GPU, and then the lock is ended.
#[test]
fn a_lock_from_before_a_restart_stays_until_the_limit_holds() {
    let mut shelf = Shelf::new([Card { lock: Some(600), ..CARD }, CARD]);
    shelf.engine.list_clocks(&[Some(GpuClock::listed(lock(true))), Some(GpuClock::listed(lock(false)))]);
    for _ in 0..10 {
        shelf.run(1, gpus(300));
        assert!(shelf.cards[0].lock.is_some() || shelf.cards[0].limit == 300);
    }
    assert_eq!((shelf.cards[0].lock, shelf.cards[0].limit), (None, 300));
}

#[test]
fn without_a_meter_or_a_maximum_nothing_is_locked() {
    let unmetered = Card { metered: false, ..refusing(ErrorKind::PermissionDenied) };
    let mut shelf = Shelf::new([unmetered, CARD]);
    shelf.run(10, gpus(300));
    assert_eq!(shelf.cards.map(|card| card.lock), [None; 2]);
    assert_eq!(shelf.report(), CapReport::Cap(CapResult::Failed(ErrorKind::PermissionDenied)));
    // A meter that is lost while the loop runs: the lowest clock, and no claim.
    let mut shelf = Shelf::new([refusing(ErrorKind::PermissionDenied), CARD]);
    shelf.run(10, gpus(300));
    shelf.cards[0].metered = false;
    shelf.run(10, gpus(300));
    assert_eq!(shelf.cards[0].lock, Some(LOWEST));
    assert!(matches!(shelf.report(), CapReport::Cap(CapResult::Failed(_))), "{:?}", shelf.report());
}

#[test]
fn somebody_who_ends_the_lock_is_answered_in_the_next_period() {
    let mut shelf = Shelf::new([refusing(ErrorKind::PermissionDenied), CARD]);
    shelf.run(20, gpus(300));
    let moved = shelf.engine.moved();
    shelf.cards[0].lock = None;
    shelf.run(8, gpus(300));
    assert!(shelf.watts()[0] <= 303 && shelf.engine.moved() > moved, "{:?}", shelf.watts());
}
