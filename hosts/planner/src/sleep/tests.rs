mod simulation;

use super::*;
use power_units::{Role, Stamp};

const TUNING: SleepTuning = SleepTuning {
    mode: SleepMode::On,
    idle_for: seconds(600),
    min_on: seconds(900),
    settle: seconds(30),
    off_within: seconds(300),
    wake_takes: seconds(60),
    wake_within: seconds(400),
    floor: 1,
    quantile: Ratio::ONE,
    standby: Watts::from_int(35),
    sleeps_at_once: 2,
    wakes_at_once: 2,
};

const fn seconds(count: u64) -> Micros {
    Micros::new(count * 1_000_000)
}

/// A node as a test has it.
#[derive(Clone, Debug)]
struct Seen {
    name: Arc<str>,
    mark: Option<SleepMark>,
    cordoned: bool,
    may_sleep: bool,
    ready: bool,
    boot: String,
    power: Option<PowerState>,
    pods: Option<u32>,
    cpu: u64,
    draws: Option<Watts>,
    price: WakePrice,
    paid: bool,
    busy: bool,
}

/// A node that is awake and empty.
fn awake(name: &str) -> Seen {
    Seen {
        name: name.into(),
        mark: None,
        cordoned: false,
        may_sleep: true,
        ready: true,
        boot: "b1".to_owned(),
        power: Some(PowerState::On),
        pods: Some(0),
        cpu: 8_000,
        draws: Some(Watts::from_int(835)),
        price: WakePrice::Free,
        paid: false,
        busy: false,
    }
}

/// A node in a phase since this second, as it usually is then.
fn marked(name: &str, phase: SleepPhase, since: u64) -> Seen {
    let is_on = matches!(phase, SleepPhase::Closing | SleepPhase::Stopping);
    Seen {
        mark: Some(SleepMark { phase, since: seconds(since), boot: "b1".to_owned() }),
        cordoned: true,
        ready: is_on,
        power: Some(if is_on { PowerState::On } else { PowerState::Off }),
        ..awake(name)
    }
}

/// A node under a law that knows of its pools that nothing ever comes.
struct Bench {
    law: SleepLaw,
    memory: SleepMemory,
    /// What is left of each limit.
    spares: Vec<Option<Watts>>,
    /// By so many seconds the time of day is ahead of the clock that does not jump.
    ahead: u64,
}

impl Bench {
    fn of(tuning: SleepTuning) -> Self {
        Self {
            law: SleepLaw::new(tuning).unwrap(),
            memory: SleepMemory::default(),
            spares: Vec::new(),
            ahead: 0,
        }
    }

    fn new() -> Self {
        Self::of(TUNING)
    }

    fn step(&mut self, second: u64, nodes: &[Seen], pods: &[(&str, u64)]) -> SleepDecision {
        let facts: Vec<SleepFacts<'_>> = nodes
            .iter()
            .map(|seen| SleepFacts {
                name: &seen.name,
                pool: "zone/gpu",
                may_sleep: seen.may_sleep,
                mark: seen.mark.as_ref(),
                cordoned: seen.cordoned,
                ready: seen.ready,
                boot: &seen.boot,
                power: seen.power,
                pods: seen.pods,
                room: RequestedResources { cpu_milli: seen.cpu, memory_bytes: 0, gpus: 0, pods: 10 },
                draws: seen.draws,
                max: Some(Watts::from_int(1_600)),
                price: seen.price.clone(),
                paid: seen.paid,
                busy: seen.busy,
            })
            .collect();
        let needs = |cpu_milli| RequestedResources { cpu_milli, memory_bytes: 0, gpus: 0, pods: 1 };
        let waiting: Vec<WaitingPod<'_>> =
            pods.iter().map(|(key, cpu)| WaitingPod { key, needs: needs(*cpu) }).collect();
        let now = Stamp::new(seconds(second));
        let spares = &self.spares;
        let wall = seconds(second + self.ahead);
        let round = SleepRound { now, wall, nodes: &facts, waiting: &waiting, spares };
        self.law.step(&mut self.memory, &round, |_, _| true)
    }

    /// Looks at these nodes each ten seconds until `second`.
    fn watch(&mut self, until: u64, nodes: &[Seen]) -> Vec<(usize, SleepStep)> {
        (0..=until / 10)
            .map(|at| self.step(at * 10, nodes, &[]))
            .last()
            .map(|last| last.steps)
            .unwrap_or_default()
    }

    fn one(&mut self, second: u64, node: &Seen) -> Option<SleepStep> {
        let steps = self.step(second, &[node.clone(), awake("other")], &[]).steps;
        steps.into_iter().find(|(at, _)| *at == 0).map(|(_, step)| step)
    }
}

const CLOSE: SleepStep = SleepStep::Mark(SleepPhase::Closing, SleepReason::Empty);

#[test]
fn tuning_whose_parts_do_not_go_together_is_refused() {
    let refused = |tuning| SleepLaw::new(tuning).unwrap_err();
    assert_eq!(refused(SleepTuning { wake_within: seconds(59), ..TUNING }), SleepError::WakeWithin);
    assert_eq!(refused(SleepTuning { wake_takes: seconds(0), ..TUNING }), SleepError::WakeWithin);
    assert_eq!(refused(SleepTuning { off_within: seconds(29), ..TUNING }), SleepError::OffWithin);
    assert_eq!(refused(SleepTuning { wakes_at_once: 0, ..TUNING }), SleepError::AtOnce);
    let above = Ratio::parse("1.1", Role::Nearest).unwrap();
    assert_eq!(refused(SleepTuning { quantile: above, ..TUNING }), SleepError::Quantile);
    assert_eq!(refused(SleepTuning { standby: Watts::from_int(-1), ..TUNING }), SleepError::Standby);
}

#[test]
fn watts_leave_the_account_only_while_the_controller_says_off_and_the_kubelet_is_silent() {
    let standby = Watts::from_int(35);
    for phase in SleepPhase::ALL {
        let mark = SleepMark { phase, since: Micros::ZERO, boot: String::new() };
        for power in [None, Some(PowerState::On), Some(PowerState::Off), Some(PowerState::Changing)] {
            for ready in [false, true] {
                let count = SleepCount::of(Some(&mark), power, ready, standby);
                let is_off = phase == SleepPhase::Asleep && power == Some(PowerState::Off) && !ready;
                assert_eq!(matches!(count, SleepCount::Off(_)), is_off, "{phase:?} {power:?} {ready}");
                let keeps = matches!(phase, SleepPhase::Closing | SleepPhase::Stopping);
                assert_eq!(count == SleepCount::Kept, keeps);
            }
        }
    }
    let off = Some(PowerState::Off);
    assert_eq!(SleepCount::of(None, off, false, standby), SleepCount::Awake, "no node without a mark is off");
}

#[test]
fn a_node_is_closed_once_it_was_empty_and_awake_for_long_enough() {
    let nodes = [awake("a"), awake("b")];
    // A boot costs 60 s at 1,600 W, and sleep saves 835 − 35 W: it pays after 120 s, so that the 600 s count, and then the
    // 900 s since it is awake.
    assert_eq!(Bench::new().watch(890, &nodes), []);
    assert_eq!(Bench::new().watch(900, &nodes), [(0, CLOSE)], "the other one is the floor");
    let slow = SleepTuning { wake_takes: seconds(400), idle_for: seconds(60), min_on: seconds(60), ..TUNING };
    // 400 s · 1,600 W / 800 W; and six windows of 400 s until it is known what comes.
    assert_eq!(Bench::of(slow).watch(2_390, &nodes), []);
    assert_eq!(Bench::of(slow).watch(2_400, &nodes), [(0, CLOSE)]);
    // What draws little saves little: 60 s · 1,600 / 100 is more than eight times 60 s.
    let quick = SleepTuning { idle_for: seconds(60), min_on: seconds(60), ..TUNING };
    let frugal = [Seen { draws: Some(Watts::from_int(135)), ..awake("a") }, awake("b")];
    assert_eq!(Bench::of(quick).watch(470, &frugal), [(1, CLOSE)], "the other one saves more");
    let unknown = [Seen { draws: None, ..awake("a") }, Seen { draws: None, ..awake("b") }];
    assert_eq!(Bench::of(quick).watch(470, &unknown), []);
    assert_eq!(Bench::of(quick).watch(480, &unknown), [(0, CLOSE)]);
}

#[test]
fn nobody_is_closed_who_is_not_known_to_be_empty_on_and_willing() {
    let spoiled: [fn(&mut Seen); 7] = [
        |seen| seen.pods = Some(1),
        |seen| seen.pods = None,
        |seen| seen.power = None,
        |seen| seen.power = Some(PowerState::Off),
        |seen| seen.may_sleep = false,
        |seen| seen.ready = false,
        |seen| seen.cordoned = true,
    ];
    for (number, spoil) in spoiled.into_iter().enumerate() {
        let mut node = awake("a");
        spoil(&mut node);
        let keep = Seen { may_sleep: false, ..awake("b") };
        assert_eq!(Bench::new().watch(2_000, &[node, keep.clone(), keep]), [], "{number}");
    }
    for mode in [SleepMode::Off, SleepMode::Observe] {
        let mut bench = Bench::of(SleepTuning { mode, ..TUNING });
        let nodes = [awake("a"), awake("b")];
        assert_eq!(bench.watch(2_000, &nodes), []);
        let would = bench.step(2_010, &nodes, &[]).would;
        assert_eq!(would, if mode == SleepMode::Observe { vec![0] } else { vec![] });
    }
}

#[test]
fn the_floor_and_the_bound_on_those_under_way_are_kept() {
    let five = ["a", "b", "c", "d", "e"].map(awake);
    assert_eq!(Bench::new().watch(900, &five), [(0, CLOSE), (1, CLOSE)], "two at once");
    let floor = SleepTuning { floor: 4, ..TUNING };
    assert_eq!(Bench::of(floor).watch(900, &five), [(0, CLOSE)]);
    let mut some = five.clone();
    some[4] = marked("e", SleepPhase::Stopping, 0);
    some[4].power = Some(PowerState::Changing);
    some[4].mark = some[4].mark.clone().map(|mark| SleepMark { since: seconds(890), ..mark });
    let mut bench = Bench::new();
    assert_eq!((bench.watch(890, &five), bench.step(900, &some, &[]).steps), (vec![], vec![(0, CLOSE)]));
    // Below the floor sleeping nodes are woken.
    let mut bench = Bench::of(SleepTuning { floor: 3, ..TUNING });
    let nodes = [
        awake("a"),
        marked("b", SleepPhase::Asleep, 0),
        marked("c", SleepPhase::Asleep, 0),
        marked("d", SleepPhase::Asleep, 0),
    ];
    let wake = SleepStep::Mark(SleepPhase::Waking, SleepReason::Floor);
    assert_eq!(bench.step(10, &nodes, &[]).steps, [(1, wake), (2, wake)]);
}

#[test]
fn as_many_empty_nodes_stay_awake_as_usually_are_taken_while_one_wakes() {
    let mut bench = Bench::of(SleepTuning { min_on: seconds(60), idle_for: seconds(60), ..TUNING });
    let mut nodes = ["a", "b", "c", "d"].map(awake);
    // In one window two nodes are taken, and they are free again after it.
    for second in 0..900 {
        let taken = (300..310).contains(&second);
        for node in &mut nodes[..2] {
            node.pods = Some(u32::from(taken));
        }
        let steps = bench.step(second, &nodes, &[]).steps;
        if second < 360 {
            assert_eq!(steps, [], "{second}: six windows say what usually comes");
        }
    }
    // Two of four stay awake and empty.
    let decision = bench.step(900, &nodes, &[]);
    assert_eq!((decision.counts.warm, decision.steps.len()), (2, 2));
    nodes[2] = marked("c", SleepPhase::Asleep, 890);
    nodes[3] = marked("d", SleepPhase::Asleep, 890);
    assert_eq!(bench.step(910, &nodes, &[]).steps, []);
    // One is taken: another one is woken in its place.
    nodes[0].pods = Some(1);
    let wake = SleepStep::Mark(SleepPhase::Waking, SleepReason::WarmPool);
    assert_eq!(bench.step(920, &nodes, &[]).steps, [(2, wake)]);
}

#[test]
fn a_closed_node_is_opened_for_a_pod_and_otherwise_stopped_after_a_while() {
    let closing = marked("a", SleepPhase::Closing, 100);
    let mut bench = Bench::new();
    assert_eq!((bench.one(100, &closing), bench.one(129, &closing)), (None, None));
    assert_eq!(bench.one(130, &closing), Some(STOPS));
    let taken = Seen { pods: Some(1), ..closing.clone() };
    assert_eq!(Bench::new().one(130, &taken), Some(SleepStep::Reopen(SleepReason::PodBound)));
    let refused = Seen { may_sleep: false, ..closing.clone() };
    assert_eq!(Bench::new().one(130, &refused), Some(SleepStep::Reopen(SleepReason::NotAskedFor)));
    let by_hand = Seen { cordoned: false, ..closing.clone() };
    assert_eq!(Bench::new().one(110, &by_hand), Some(SleepStep::Reopen(SleepReason::NotAskedFor)));
    for unseen in [
        Seen { power: None, ..closing.clone() },
        Seen { pods: None, ..closing.clone() },
        Seen { ready: false, ..closing.clone() },
    ] {
        assert_eq!(Bench::new().one(399, &unseen), None);
        assert_eq!(Bench::new().one(400, &unseen), Some(SleepStep::Reopen(SleepReason::Unseen)));
    }
}

#[test]
fn a_node_is_switched_off_only_while_it_is_empty_and_is_left_to_people_if_it_stays_on() {
    let stopping = marked("a", SleepPhase::Stopping, 100);
    let mut bench = Bench::new();
    assert_eq!(bench.one(100, &stopping), Some(SleepStep::SwitchOff));
    assert_eq!(bench.one(129, &stopping), None);
    assert_eq!(bench.one(130, &stopping), Some(SleepStep::SwitchOff), "it may have been lost");
    for pods in [Some(1), None] {
        assert_eq!(Bench::new().one(130, &Seen { pods, ..stopping.clone() }), None);
    }
    // Whom a person keeps awake is not switched off, also if a pod waits that it would then be woken for.
    let steps = |may_sleep: bool| {
        Bench::new().step(130, &[Seen { may_sleep, ..stopping.clone() }], &[("p", 1_000)]).steps
    };
    assert_eq!((steps(true), steps(false)), (vec![(0, SleepStep::SwitchOff)], Vec::new()));
    let off = Seen { power: Some(PowerState::Off), ready: false, ..stopping.clone() };
    assert_eq!(bench.one(140, &off), Some(SleepStep::Mark(SleepPhase::Asleep, SleepReason::IsOff)));
    let lie = Seen { power: Some(PowerState::Off), ..stopping.clone() };
    assert_eq!(bench.one(399, &lie), None);
    let left = |why| Some(SleepStep::Mark(SleepPhase::Left, why));
    assert_eq!(bench.one(400, &lie), left(SleepReason::Contradiction));
    assert_eq!(bench.one(400, &stopping), left(SleepReason::DidNotStop));
    assert_eq!(bench.one(400, &Seen { power: None, ..stopping.clone() }), left(SleepReason::Unseen));
    // It has run on for as long again: it is taken back.
    let stays = Seen { mark: marked("a", SleepPhase::Left, 400).mark, ..stopping };
    assert_eq!((bench.one(400, &stays), bench.one(699, &stays)), (None, None));
    assert_eq!(bench.one(700, &stays), Some(SleepStep::Reopen(SleepReason::IsAwake)));
}

const STOPS: SleepStep = SleepStep::Mark(SleepPhase::Stopping, SleepReason::Settled);
const UNWANTED: SleepStep = SleepStep::Reopen(SleepReason::NotAskedFor);

/// A bench that has decided at 130 s to stop the node `a`.
fn decided() -> Bench {
    let mut bench = Bench::new();
    let closing = marked("a", SleepPhase::Closing, 100);
    assert_eq!((bench.one(100, &closing), bench.one(130, &closing)), (None, Some(STOPS)));
    bench
}

#[test]
fn a_node_that_was_told_nothing_yet_takes_pods_again_at_once() {
    let mut bench = decided();
    // The label is taken off before the mark shows.
    let stopping = Seen { may_sleep: false, ..marked("a", SleepPhase::Stopping, 130) };
    assert_eq!(bench.one(132, &stopping), Some(UNWANTED));
    // The same for a pod that came at the last moment.
    let mut bench = decided();
    let bound = Seen { pods: Some(1), ..marked("a", SleepPhase::Stopping, 130) };
    assert_eq!(bench.one(132, &bound), Some(SleepStep::Reopen(SleepReason::PodBound)));
    // A mark of another time is not the one that was decided here.
    for other in [100, 129, 132] {
        let mut bench = decided();
        let foreign = Seen { may_sleep: false, ..marked("a", SleepPhase::Stopping, other) };
        assert_eq!(bench.one(132, &foreign), None, "{other}");
    }
}

#[test]
fn a_node_that_may_have_been_told_takes_pods_again_once_it_would_be_off() {
    let stopping = marked("a", SleepPhase::Stopping, 130);
    let unwanted = Seen { may_sleep: false, ..stopping.clone() };
    // The last order was given at 160 s, and one may take 300 s.
    let mut bench = decided();
    assert_eq!(bench.one(131, &stopping), Some(SleepStep::SwitchOff));
    assert_eq!(bench.one(161, &stopping), Some(SleepStep::SwitchOff));
    assert_eq!((bench.one(460, &unwanted), bench.one(461, &unwanted)), (None, Some(UNWANTED)));
    // What has not left this process was no order.
    let mut bench = decided();
    assert_eq!(bench.one(131, &stopping), Some(SleepStep::SwitchOff));
    assert_eq!(bench.one(132, &unwanted), None);
    bench.memory.not_sent("a");
    assert_eq!(bench.one(133, &unwanted), Some(UNWANTED));
    // An order may still be carried out, also where the time of day has jumped by an hour.
    let mut bench = decided();
    assert_eq!(bench.one(131, &stopping), Some(SleepStep::SwitchOff));
    bench.ahead = 3_600;
    assert_eq!((bench.one(132, &unwanted), bench.one(430, &unwanted)), (None, None));
    assert_eq!(bench.one(431, &unwanted), Some(UNWANTED));
    // One that is on its way out just now counts from then on.
    let mut bench = Bench::new();
    assert_eq!(bench.one(200, &unwanted), None);
    assert_eq!(bench.one(220, &Seen { busy: true, ..unwanted.clone() }), None);
    assert_eq!((bench.one(519, &unwanted), bench.one(520, &unwanted)), (None, Some(UNWANTED)));
    // A new leader knows of no order: it waits as long from its first look, however old its clock says that the mark is.
    for ahead in [0, 3_600] {
        let mut bench = Bench { ahead, ..Bench::new() };
        assert_eq!((bench.one(200, &unwanted), bench.one(499, &unwanted)), (None, None));
        assert_eq!(bench.one(500, &unwanted), Some(UNWANTED));
    }
    // Who does not report is left to people as before.
    let silent = Seen { ready: false, ..unwanted.clone() };
    let mut bench = Bench::new();
    assert_eq!((bench.one(130, &silent), bench.one(429, &silent)), (None, None));
    let left = SleepStep::Mark(SleepPhase::Left, SleepReason::DidNotStop);
    assert_eq!(bench.one(430, &silent), Some(left));
    // And one that goes off after all is woken.
    let off = Seen { power: Some(PowerState::Off), ready: false, ..unwanted };
    let asleep = SleepStep::Mark(SleepPhase::Asleep, SleepReason::IsOff);
    assert_eq!(Bench::new().one(140, &off), Some(asleep));
}

#[test]
fn a_node_that_has_been_off_since_it_was_to_be_stopped_is_not_switched_off_once_more() {
    let stopping = marked("a", SleepPhase::Stopping, 130);
    let booted = Seen { boot: "b2".to_owned(), ..stopping.clone() };
    let awake = Some(SleepStep::Reopen(SleepReason::IsAwake));
    // The leader before has given the order. A new one sees that it was carried out, and that the node was switched on by hand.
    let mut bench = Bench::new();
    assert_eq!((bench.one(200, &booted), bench.one(499, &booted)), (None, None));
    assert_eq!(bench.one(500, &booted), awake, "an order of the leader before may take 300 s");
    // The same within one term, where nobody has seen it off.
    let mut bench = decided();
    assert_eq!(bench.one(131, &stopping), Some(SleepStep::SwitchOff));
    assert_eq!((bench.one(161, &booted), bench.one(430, &booted)), (None, None));
    assert_eq!(bench.one(431, &booted), awake);
    // A new leader that sees the boot of the mark does not know whether an order was given, and gives one: what a controller is
    // told is a state and no change of it.
    assert_eq!(Bench::new().one(200, &stopping), Some(SleepStep::SwitchOff));
    // A boot that is not known is no other boot.
    let unknown = Seen { boot: String::new(), ..stopping };
    assert_eq!(Bench::new().one(200, &unknown), Some(SleepStep::SwitchOff));
}

#[test]
fn a_new_leader_whose_clock_is_ahead_stops_and_opens_nobody_sooner() {
    let hour_ahead = || Bench { ahead: 3_600, ..Bench::new() };
    // A pod that was bound before it was closed may come until 30 s later.
    let mut bench = hour_ahead();
    let closing = marked("a", SleepPhase::Closing, 100);
    assert_eq!((bench.one(101, &closing), bench.one(130, &closing)), (None, None));
    assert_eq!(bench.one(131, &closing), Some(STOPS));
    // An order to switch off may still be carried out for 300 s.
    for phase in [SleepPhase::Asleep, SleepPhase::Starting, SleepPhase::Left] {
        let runs = Seen { ready: true, power: Some(PowerState::On), ..marked("a", phase, 100) };
        let mut bench = hour_ahead();
        assert_eq!((bench.one(101, &runs), bench.one(400, &runs)), (None, None), "{phase:?}");
        assert_eq!(bench.one(401, &runs), Some(SleepStep::Reopen(SleepReason::IsAwake)), "{phase:?}");
        // Another boot says that it is over.
        let booted = Seen { boot: "b2".to_owned(), ..runs };
        let opens = hour_ahead().one(101, &booted);
        assert_eq!(opens, Some(SleepStep::Reopen(SleepReason::IsAwake)), "{phase:?}");
    }
}

#[test]
fn a_clock_that_is_ahead_or_behind_leaves_nobody_to_people_sooner_or_later() {
    let boots = |since| Seen { power: Some(PowerState::On), ..marked("a", SleepPhase::Starting, since) };
    let stops =
        |since| Seen { power: Some(PowerState::Changing), ..marked("a", SleepPhase::Stopping, since) };
    // By its mark it may be of this second, of an hour before, or of an hour later.
    for (since, ahead) in [(101, 0), (101, 3_600), (3_701, 0)] {
        // Waking may take 400 s, and switching off 300 s.
        for (node, takes, why) in
            [(boots(since), 400, SleepReason::DidNotWake), (stops(since), 300, SleepReason::DidNotStop)]
        {
            let mut bench = Bench { ahead, ..Bench::new() };
            assert_eq!((bench.one(101, &node), bench.one(100 + takes, &node)), (None, None), "{why:?}");
            let left = SleepStep::Mark(SleepPhase::Left, why);
            assert_eq!(bench.one(101 + takes, &node), Some(left), "{why:?}, {since}, {ahead}");
        }
    }
}

#[test]
fn a_boot_that_is_not_known_is_no_other_boot() {
    for phase in [SleepPhase::Asleep, SleepPhase::Starting, SleepPhase::Left] {
        let runs = Seen { ready: true, power: Some(PowerState::On), ..marked("a", phase, 100) };
        let mut unnamed = runs.clone();
        unnamed.mark.as_mut().unwrap().boot.clear();
        let unreported = Seen { boot: String::new(), ..runs };
        for node in [unnamed, unreported] {
            let mut bench = Bench::new();
            assert_eq!((bench.one(101, &node), bench.one(400, &node)), (None, None), "{phase:?}");
            assert_eq!(bench.one(401, &node), Some(SleepStep::Reopen(SleepReason::IsAwake)), "{phase:?}");
        }
    }
}

/// A node under the first limit that sleeps, or is to be woken, and draws 1,600 W at most: 1,565 W more than asleep.
fn priced(name: &str, phase: SleepPhase, since: u64) -> Seen {
    let price = WakePrice::Watts { full: Watts::from_int(1_600), under: vec![0] };
    Seen { price, ..marked(name, phase, since) }
}

#[test]
fn as_many_nodes_are_to_be_woken_as_the_limits_can_pay_for_and_the_others_sleep_on() {
    let names = ["a", "b", "c", "d", "e"];
    let mut nodes: Vec<Seen> = names.map(|name| priced(name, SleepPhase::Asleep, 0)).to_vec();
    nodes.push(Seen { may_sleep: false, pods: Some(1), ..awake("full") });
    let mut bench = Bench::of(SleepTuning { wakes_at_once: 10, ..TUNING });
    let pods = [("p", 8_000), ("q", 8_000), ("r", 8_000)];
    let wake = SleepStep::Mark(SleepPhase::Waking, SleepReason::PodWaits);
    // Two of three: 2 · 1,565 W = 3,130 W.
    bench.spares = vec![Some(Watts::from_int(4_694))];
    let decision = bench.step(10, &nodes, &pods);
    assert_eq!(decision.steps, [(0, wake), (1, wake)]);
    assert_eq!(decision.unpaid, [(2, SleepReason::PodWaits)]);
    assert_eq!((decision.counts.unpaid, decision.counts.unhelped), (1, 1));
    bench.spares = vec![Some(Watts::from_int(4_695))];
    assert_eq!(bench.step(11, &nodes, &pods).steps, [(0, wake), (1, wake), (2, wake)]);
    // What is not known pays for nothing, and nobody waits for it in the phase before its boot.
    for spares in [vec![None], vec![Some(Watts::from_int(1_564))], Vec::new()] {
        bench.spares = spares;
        let decision = bench.step(12, &nodes, &pods);
        assert_eq!((decision.steps, decision.unpaid.len(), decision.counts.unhelped), (vec![], 1, 3));
    }
    // A pod takes the node that can be paid for, although another one comes first.
    bench.spares = vec![Some(Watts::ZERO), Some(Watts::from_int(1_565))];
    nodes[3].price = WakePrice::Watts { full: Watts::from_int(1_600), under: vec![1] };
    nodes[4].price = WakePrice::Watts { full: Watts::from_int(1_600), under: vec![1, 0] };
    assert_eq!(bench.step(13, &nodes, &pods).steps, [(3, wake)]);
    // Where nothing may be raised nobody is woken, but who is not off yet is opened.
    nodes.iter_mut().for_each(|node| node.price = WakePrice::Shut);
    assert_eq!(bench.step(14, &nodes, &pods).steps, []);
    nodes[2] = Seen { price: WakePrice::Shut, ..marked("c", SleepPhase::Closing, 10) };
    assert_eq!(bench.step(15, &nodes, &pods[..1]).steps, [(2, SleepStep::Reopen(SleepReason::PodWaits))]);
}

/// Ten nodes that sleep, ten pods that need one each, and 3,500 W: one that is awake can be brought to 300 W, one that boots counts
/// 800 W for a minute. Returns after how many seconds each was awake.
fn burst(price: &WakePrice) -> Vec<u64> {
    const LIMIT: i32 = 3_500;
    let tuning = SleepTuning { wakes_at_once: 10, sleeps_at_once: 1, floor: 0, ..TUNING };
    let mut bench = Bench::of(tuning);
    let mut nodes: Vec<Seen> = (0..10)
        .map(|at| Seen { price: price.clone(), ..marked(&format!("n{at}"), SleepPhase::Asleep, 0) })
        .collect();
    let mut boots: Vec<Option<u64>> = vec![None; nodes.len()];
    let mut awake = Vec::new();
    for second in 0..3_600 {
        for (node, boots) in nodes.iter_mut().zip(&boots) {
            if boots.is_some_and(|at| second >= at + 60) {
                (node.ready, node.power, node.boot) = (true, Some(PowerState::On), "b2".to_owned());
            }
        }
        let counts = |node: &Seen| match SleepCount::of(
            node.mark.as_ref(),
            node.power,
            node.ready,
            Watts::from_int(35),
        ) {
            SleepCount::Awake | SleepCount::Kept => Watts::from_int(300),
            SleepCount::Off(standby) => standby,
            SleepCount::Full => Watts::from_int(800),
        };
        let counted = nodes.iter().map(counts).fold(Watts::ZERO, |sum, watts| sum + watts);
        bench.spares = vec![Some(Watts::from_int(LIMIT) - counted)];
        nodes.iter_mut().for_each(|node| node.paid = counted <= Watts::from_int(LIMIT));
        let keys: Vec<String> = (awake.len()..10).map(|pod| format!("p{pod}")).collect();
        let pods: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 8_000)).collect();
        for (at, step) in bench.step(second, &nodes, &pods).steps {
            let node = &mut nodes[at];
            match step {
                SleepStep::Mark(phase, _) => node.mark = marked("", phase, second).mark,
                SleepStep::SwitchOn => (boots[at], node.power) = (Some(second), Some(PowerState::On)),
                SleepStep::Reopen(_) => {
                    (node.mark, node.cordoned, node.pods) = (None, false, Some(1));
                    awake.push(second);
                }
                SleepStep::SwitchOff => panic!("nobody is to sleep"),
            }
        }
    }
    awake
}

#[test]
fn a_burst_under_a_tight_limit_wakes_as_many_as_it_pays_for_and_then_the_next() {
    let awake = burst(&WakePrice::Watts { full: Watts::from_int(800), under: vec![0] });
    // Of 3,500 W ten that sleep leave 3,150 W: four boot at once, with 765 W more each. When they are there 3,500 − 4 · 300 − 6 · 35 =
    // 2,090 W are left for two, then 1,560 W for two, 1,030 W for one and 765 W for the last: five boots one after the other.
    assert_eq!(awake.len(), 10, "{awake:?}");
    let rounds: Vec<usize> =
        (0..6).map(|round| awake.iter().filter(|at| **at / 65 == round).count()).collect();
    assert_eq!(rounds, [4, 2, 2, 1, 1, 0], "{awake:?}");
    // Without the price all are marked at once, none is ever paid for, and all give up and begin again together.
    assert_eq!(burst(&WakePrice::Free), [0_u64; 0]);
}

#[test]
fn what_no_pod_needs_is_paid_for_last_and_one_of_each_pool_is_named() {
    let names = ["a", "b", "c", "d"];
    let mut nodes: Vec<Seen> = names.map(|name| priced(name, SleepPhase::Asleep, 0)).to_vec();
    nodes[0].cpu = 1_000;
    let mut bench = Bench::of(SleepTuning { floor: 3, wakes_at_once: 10, ..TUNING });
    bench.spares = vec![Some(Watts::from_int(1_565))];
    let decision = bench.step(10, &nodes, &[("p", 8_000)]);
    assert_eq!(decision.steps, [(1, SleepStep::Mark(SleepPhase::Waking, SleepReason::PodWaits))]);
    assert_eq!(decision.unpaid, [(0, SleepReason::Floor)]);
    // All are to be awake: as many as can be paid for, and it is said of the others.
    let mut bench = Bench::of(SleepTuning { mode: SleepMode::Off, wakes_at_once: 10, floor: 0, ..TUNING });
    bench.spares = vec![Some(Watts::from_int(3_130))];
    let decision = bench.step(10, &nodes, &[]);
    let wake = SleepStep::Mark(SleepPhase::Waking, SleepReason::NotAskedFor);
    assert_eq!(decision.steps, [(0, wake), (1, wake)]);
    assert_eq!(decision.unpaid, [(2, SleepReason::NotAskedFor), (3, SleepReason::NotAskedFor)]);
    // What was decided and does not show yet is counted as if it did.
    nodes[0].busy = true;
    assert_eq!(bench.step(11, &nodes, &[]).steps, [(1, wake)]);
}

#[test]
fn a_limit_that_is_cut_sends_back_those_that_wait_and_no_more_of_them_than_it_must() {
    let mut nodes: Vec<Seen> =
        ["a", "b", "c"].map(|name| priced(name, SleepPhase::Waking, 0)).into_iter().collect();
    nodes[0].cpu = 1_000;
    let mut bench = Bench::of(SleepTuning { wakes_at_once: 10, floor: 0, ..TUNING });
    let back = SleepStep::Mark(SleepPhase::Asleep, SleepReason::NoRoom);
    bench.spares = vec![Some(Watts::ZERO)];
    assert_eq!(bench.step(10, &nodes, &[("p", 8_000)]).steps, []);
    // The pod is to have b. Of the others the last goes first.
    bench.spares = vec![Some(Watts::from_int(-1))];
    assert_eq!(bench.step(11, &nodes, &[("p", 8_000)]).steps, [(2, back)]);
    bench.spares = vec![Some(Watts::from_int(-1_566))];
    assert_eq!(bench.step(12, &nodes, &[("p", 8_000)]).steps, [(0, back), (2, back)]);
    bench.spares = vec![Some(Watts::from_int(-9_000))];
    assert_eq!(bench.step(13, &nodes, &[("p", 8_000)]).steps, [(0, back), (1, back), (2, back)]);
    // Whoever is being switched on, may be, or is not known to be off, is not sent back for it.
    for keeps in [
        Seen { paid: true, ..nodes[1].clone() },
        Seen { power: None, ..nodes[1].clone() },
        Seen { mark: marked("b", SleepPhase::Starting, 0).mark, ..nodes[1].clone() },
    ] {
        let steps = bench.step(14, &[keeps, awake("other")], &[]).steps;
        assert!(steps.iter().all(|(_, step)| *step != back), "{steps:?}");
    }
}

/// Ten minutes under a limit that has room for one boot and a watt less by turns; pods need two nodes. Returns how often nodes were
/// marked as waking, and as sleeping on.
fn hovers(pods_on_it: u32) -> (usize, usize) {
    let tuning = SleepTuning { wakes_at_once: 10, floor: 0, ..TUNING };
    let mut bench = Bench::of(tuning);
    let mut nodes = ["a", "b", "c"].map(|name| priced(name, SleepPhase::Asleep, 0));
    nodes[2].pods = Some(pods_on_it);
    let (mut woken, mut returned) = (0, 0);
    for second in 0..600 {
        let phases = nodes.iter().filter_map(|node| node.mark.as_ref().map(|mark| mark.phase));
        let waking = phases.filter(|phase| *phase == SleepPhase::Waking).count();
        let counted = i32::try_from(waking).unwrap() * 1_565;
        bench.spares = vec![Some(Watts::from_int(1_565 - second % 2 - counted))];
        let at = u64::try_from(second).unwrap();
        for (place, step) in bench.step(at, &nodes, &[("p", 8_000), ("q", 8_000)]).steps {
            let SleepStep::Mark(phase, _) = step else { panic!("{step:?}") };
            nodes[place].mark = marked("", phase, at).mark;
            woken += usize::from(phase == SleepPhase::Waking);
            returned += usize::from(phase == SleepPhase::Asleep);
        }
    }
    (woken, returned)
}

#[test]
fn a_limit_that_hovers_marks_nodes_once_in_the_time_of_a_wake_and_not_each_second() {
    // Woken at 0 s and sent back at 1 s; until 61 s nobody is woken, and at 61 s there is no room: 62 s a round, and the tenth
    // begins at 558 s.
    assert_eq!(hovers(0), (10, 10));
    // The one that has a pod on it is woken first, and is not sent back. It gives up after 400 s, and is marked again at once.
    assert_eq!(hovers(1), (2, 1));
}

#[test]
fn a_wake_is_paid_for_before_it_is_sent() {
    let waking = marked("a", SleepPhase::Waking, 100);
    assert_eq!(Bench::new().one(110, &waking), None);
    let paid = Seen { paid: true, ..waking.clone() };
    let start = SleepStep::Mark(SleepPhase::Starting, SleepReason::Paid);
    assert_eq!(Bench::new().one(110, &paid), Some(start));
    // Nobody has room for it: it sleeps on, and rests.
    let mut bench = Bench::new();
    let back = SleepStep::Mark(SleepPhase::Asleep, SleepReason::NoRoom);
    assert_eq!(bench.one(500, &waking), Some(back));
    let asleep = marked("a", SleepPhase::Asleep, 500);
    let unwilling = Seen { may_sleep: false, ..asleep };
    assert_eq!(bench.one(559, &unwilling), None);
    let again = SleepStep::Mark(SleepPhase::Waking, SleepReason::NotAskedFor);
    assert_eq!(bench.one(560, &unwilling), Some(again));

    let starting = marked("a", SleepPhase::Starting, 600);
    assert_eq!(Bench::new().one(600, &starting), None, "a limit was cut meanwhile");
    let mut bench = Bench::new();
    let paid = Seen { paid: true, ..starting.clone() };
    assert_eq!(bench.one(600, &paid), Some(SleepStep::SwitchOn));
    assert_eq!(bench.one(629, &paid), None);
    assert_eq!(bench.one(630, &paid), Some(SleepStep::SwitchOn));
    let on = Seen { power: Some(PowerState::On), ..paid.clone() };
    assert_eq!(bench.one(700, &on), None, "it boots");
    let old = Seen { ready: true, ..on.clone() };
    assert_eq!(bench.one(700, &old), None, "its kubelet has not reported the new boot");
    let there = Seen { boot: "b2".to_owned(), ..old };
    assert_eq!(bench.one(700, &there), Some(SleepStep::Reopen(SleepReason::IsAwake)));
    let dead = SleepStep::Mark(SleepPhase::Left, SleepReason::DidNotWake);
    assert_eq!(bench.one(1_000, &paid), Some(dead));
}

#[test]
fn a_pod_that_waits_has_one_node_woken_that_has_room_for_it() {
    let nodes = [
        Seen { cpu: 2_000, ..marked("a", SleepPhase::Asleep, 0) },
        marked("b", SleepPhase::Asleep, 0),
        marked("c", SleepPhase::Asleep, 0),
        Seen { pods: Some(3), ..awake("d") },
    ];
    let wake = SleepStep::Mark(SleepPhase::Waking, SleepReason::PodWaits);
    let mut bench = Bench::new();
    assert_eq!(bench.step(10, &nodes, &[("p", 4_000)]).steps, [(1, wake)]);
    assert_eq!(bench.step(20, &nodes, &[("p", 4_000), ("q", 4_000)]).steps, [(1, wake)], "both fit there");
    assert_eq!(bench.step(30, &nodes, &[("p", 5_000), ("q", 5_000)]).steps, [(1, wake), (2, wake)]);
    let none = bench.step(40, &nodes, &[("r", 9_000)]);
    assert_eq!((none.steps, none.counts.unhelped), (vec![], 1), "nobody has so much room");
    // What is on its way takes it.
    let mut coming = nodes.clone();
    coming[1] = marked("b", SleepPhase::Waking, 40);
    assert_eq!(bench.step(50, &coming, &[("p", 4_000)]).steps, []);
    // One that does not wake is no help any more.
    coming[1] = marked("b", SleepPhase::Left, 50);
    assert_eq!(bench.step(60, &coming, &[("p", 4_000)]).steps, [(2, wake)]);
    // One that is not off yet is opened again.
    coming[0] = marked("a", SleepPhase::Closing, 60);
    assert_eq!(
        bench.step(70, &coming, &[("p", 4_000)]).steps,
        [(0, SleepStep::Reopen(SleepReason::PodWaits))]
    );
    // A pod that is bound to a node that is off has it woken.
    let bound = [Seen { pods: Some(1), ..marked("a", SleepPhase::Asleep, 0) }, awake("d")];
    let woken = SleepStep::Mark(SleepPhase::Waking, SleepReason::PodBound);
    assert_eq!(Bench::new().step(10, &bound, &[]).steps, [(0, woken)]);
}

#[test]
fn a_pod_that_no_woken_node_takes_has_three_woken_in_an_hour() {
    let mut bench = Bench::of(SleepTuning { wakes_at_once: 10, ..TUNING });
    let mut nodes: Vec<Seen> = (0..8).map(|at| marked(&format!("n{at}"), SleepPhase::Asleep, 0)).collect();
    nodes.push(Seen { may_sleep: false, pods: Some(1), ..awake("full") });
    let mut woken = Vec::new();
    for second in 0..3_600 {
        let steps = bench.step(second, &nodes, &[("odd", 1_000)]).steps;
        for (at, step) in steps {
            if step == SleepStep::Mark(SleepPhase::Waking, SleepReason::PodWaits) {
                // It is awake at once, and the scheduler does not use it.
                woken.push(second);
                nodes[at] = awake(&format!("n{at}"));
            } else {
                nodes[at] = marked(&format!("n{at}"), SleepPhase::Asleep, second);
            }
        }
    }
    assert_eq!(woken.len(), 3, "{woken:?}");
    // Each of them has two minutes to take it.
    assert_eq!((woken[1] - woken[0], woken[2] - woken[1]), (121, 121), "{woken:?}");
    assert!(!bench.step(3_601, &nodes, &[("odd", 1_000)]).steps.is_empty(), "an hour after the first");
}

#[test]
fn what_is_switched_off_by_a_person_or_on_by_one_is_seen() {
    let mut bench = Bench::new();
    let asleep = marked("a", SleepPhase::Asleep, 0);
    assert_eq!(bench.one(10, &asleep), None);
    let on = Seen { power: Some(PowerState::On), ready: true, boot: "b2".to_owned(), ..asleep.clone() };
    assert_eq!(bench.one(20, &on), Some(SleepStep::Reopen(SleepReason::IsAwake)));
    let uncordoned = Seen { cordoned: false, ..asleep };
    let wake = SleepStep::Mark(SleepPhase::Waking, SleepReason::NotAskedFor);
    assert_eq!(bench.one(30, &uncordoned), Some(wake));
}
