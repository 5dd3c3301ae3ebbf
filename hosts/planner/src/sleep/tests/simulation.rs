//! A cluster in the law's hands, by seeds: controllers that lose orders, lie and are silent, leaders that forget and whose clocks differ, people who
//! change their minds, pods that arrive in the middle. Judged by the machines: none is switched off with a pod on it, all together draw no more than the
//! limit, and no pod waits for ever.

use super::*;

const NODES: usize = 8;
/// Two pods fit on a node.
const PODS_EACH: usize = 2;
const GRANT: i64 = 500;
const MOST: i64 = 800;
const STANDBY: i64 = 35;
/// Kubernetes notices after this time that a node is silent.
const SILENT_AFTER: u64 = 40;
const HOURS: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    Fine,
    Silent,
    LosesOrders,
    SaysOff,
    SaysOn,
}

struct Machine {
    name: Arc<str>,
    mark: Option<SleepMark>,
    is_on: bool,
    boots: u32,
    /// When its kubelet began to report in this boot, or will.
    up: u64,
    /// When it went off.
    down: u64,
    /// What it is on its way to, and when it gets there.
    going: Option<(bool, u64)>,
    /// When its pods end.
    pods: Vec<u64>,
    controller: Controller,
    /// Nobody has refused that it sleeps.
    may_sleep: bool,
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

impl Machine {
    fn ready(&self, now: u64) -> bool {
        if self.is_on { now >= self.up } else { now < self.down + SILENT_AFTER }
    }

    fn says(&self) -> Option<PowerState> {
        let truth = match (self.is_on, self.going) {
            (true, Some((false, _))) | (false, Some((true, _))) => PowerState::Changing,
            (true, _) => PowerState::On,
            (false, _) => PowerState::Off,
        };
        match self.controller {
            Controller::Fine | Controller::LosesOrders => Some(truth),
            Controller::Silent => None,
            Controller::SaysOff => Some(PowerState::Off),
            Controller::SaysOn => Some(PowerState::On),
        }
    }

    /// What it may draw: all until its agent has put the last grant in force.
    fn draws(&self, now: u64) -> i64 {
        match self.is_on {
            true if now >= self.up => GRANT,
            true => MOST,
            false => STANDBY,
        }
    }

    fn counts(&self, now: u64) -> i64 {
        match SleepCount::of(self.mark.as_ref(), self.says(), self.ready(now), Watts::from_int(35)) {
            SleepCount::Awake | SleepCount::Kept => GRANT,
            SleepCount::Off(_) => STANDBY,
            SleepCount::Full => MOST,
        }
    }

    fn told(&mut self, on: bool, now: u64, draw: &mut Draw) {
        let hears = !matches!(self.controller, Controller::Silent | Controller::LosesOrders);
        if hears && self.is_on != on && self.going.is_none() {
            let takes = if on { 20 + draw.below(60) } else { 5 + draw.below(60) };
            self.going = Some((on, now + if on { 1 } else { takes }));
            if on {
                self.up = now + 1 + takes;
            }
        }
    }

    fn moves(&mut self, now: u64, seed: u64) {
        self.pods.retain(|until| now < *until);
        if let Some((on, _)) = self.going.filter(|(_, at)| now >= *at) {
            self.going = None;
            self.is_on = on;
            if on {
                self.boots += 1;
            } else {
                assert!(self.pods.is_empty(), "seed {seed}: {} is off with a pod on it at {now}", self.name);
                self.down = now;
            }
        }
    }
}

fn tuning() -> SleepTuning {
    SleepTuning {
        idle_for: seconds(120),
        min_on: seconds(180),
        settle: seconds(30),
        off_within: seconds(300),
        wake_takes: seconds(60),
        wake_within: seconds(400),
        quantile: Ratio::parse("0.5", Role::Nearest).unwrap(),
        sleeps_at_once: 3,
        wakes_at_once: 4,
        ..TUNING
    }
}

/// Plays some hours; returns the node seconds that were slept, the pods that were done, and the longest wait.
fn play(seed: u64) -> (u64, u64, u64) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bench = Bench::of(tuning());
    let machine = |at: usize| Machine {
        name: format!("n{at}").as_str().into(),
        mark: None,
        is_on: true,
        boots: 1,
        up: 0,
        down: 0,
        going: None,
        pods: Vec::new(),
        controller: Controller::Fine,
        may_sleep: true,
    };
    let mut machines: Vec<Machine> = (0..NODES).map(machine).collect();
    // All at their grants, and one that boots.
    let limit = i64::try_from(NODES).unwrap() * GRANT + (MOST - GRANT);
    let mut waiting: Vec<(u64, u64)> = Vec::new();
    let mut binding: Vec<(u64, usize, u64)> = Vec::new();
    let (mut slept, mut done, mut longest) = (0, 0, 0);
    let end = HOURS * 3_600;
    let healed = end - 5_400;
    let mut stale: Vec<u32> = vec![0; NODES];
    for now in 0..end {
        for machine in &mut machines {
            machine.moves(now, seed);
            slept += u64::from(!machine.is_on);
        }
        if now < healed && draw.below(400) == 0 {
            let all = [
                Controller::Fine,
                Controller::Silent,
                Controller::LosesOrders,
                Controller::SaysOff,
                Controller::SaysOn,
            ];
            let at = usize::try_from(draw.below(u64::try_from(NODES).unwrap())).unwrap();
            machines[at].controller = all[usize::try_from(draw.below(5)).unwrap()];
        }
        if now < healed && draw.below(40) == 0 {
            let at = usize::try_from(draw.below(u64::try_from(NODES).unwrap())).unwrap();
            machines[at].may_sleep = draw.below(8) > 0;
        }
        if now == healed {
            for machine in &mut machines {
                (machine.controller, machine.may_sleep) = (Controller::Fine, true);
            }
        }
        if now > healed && now % 10 == 0 {
            switched_on_by_people(&mut machines, (now, limit), &mut draw);
        }
        // Demand comes in waves.
        let often = if (now / 2_000) % 2 == 0 { 60 } else { 900 };
        if now + 3_000 < end && draw.below(often) == 0 && waiting.len() < 6 {
            waiting.push((now, 30 + draw.below(300)));
        }
        // The scheduler decides, and the binding comes up to ten seconds later, whatever was cordoned meanwhile.
        waiting.retain(|&(since, lasts)| {
            let takes = |(at, machine): (usize, &Machine)| {
                let coming = binding.iter().filter(|(_, to, _)| *to == at).count();
                let is_open = machine.mark.is_none() && machine.ready(now);
                (is_open && machine.pods.len() + coming < PODS_EACH).then_some(at)
            };
            let open: Vec<usize> = machines.iter().enumerate().filter_map(takes).collect();
            let Some(at) =
                open.get(usize::try_from(draw.below(u64::try_from(open.len().max(1)).unwrap())).unwrap())
            else {
                return true;
            };
            let at = *at;
            binding.push((now + draw.below(10), at, lasts));
            longest = longest.max(now - since);
            done += 1;
            false
        });
        binding.retain(|&(at, to, lasts)| {
            if now >= at {
                machines[to].pods.push(now + lasts);
            }
            now < at
        });
        let drawn: i64 = machines.iter().map(|machine| machine.draws(now)).sum();
        assert!(drawn <= limit, "seed {seed}: {drawn} W of {limit} W at {now}");
        // Another leader remembers nothing, and its clock may be ahead. Some are told that nothing is to sleep any more, and just then a pod comes.
        let often = if machines.iter().any(|machine| machine.going.is_some()) { 60 } else { 1_500 };
        if now < healed && draw.below(often) == 0 {
            bench.memory = SleepMemory::default();
            bench.ahead = 700 * draw.below(2);
            if draw.below(2) == 0 && waiting.len() < 6 {
                machines.iter_mut().for_each(|machine| machine.may_sleep = false);
                waiting.push((now, 60));
            }
        }
        if now % 5 == 0 {
            pass(&mut bench, &mut machines, (now, limit), (&waiting, &stale), &mut draw);
        }
        if now % 3 == 0 {
            stale = machines.iter().map(|machine| u32::try_from(machine.pods.len()).unwrap()).collect();
        }
    }
    assert!(waiting.is_empty(), "seed {seed}: {} pods still wait", waiting.len());
    (slept, done, longest)
}

/// People switch on what is left to them, one after the other and as the limit allows: here nobody is lowered for it.
fn switched_on_by_people(machines: &mut [Machine], (now, limit): (u64, i64), draw: &mut Draw) {
    let is_theirs = |machine: &Machine| {
        let is_left = machine.mark.as_ref().is_some_and(|mark| mark.phase == SleepPhase::Left);
        is_left && !machine.is_on && machine.going.is_none()
    };
    let counts = |machine: &Machine| if is_theirs(machine) { STANDBY } else { machine.counts(now) };
    let counted: i64 = machines.iter().map(counts).sum();
    if counted - STANDBY + MOST <= limit
        && let Some(one) = machines.iter_mut().find(|machine| is_theirs(machine))
    {
        one.told(true, now, draw);
    }
}

fn pass(
    bench: &mut Bench,
    machines: &mut [Machine],
    (now, limit): (u64, i64),
    (waiting, stale): (&[(u64, u64)], &[u32]),
    draw: &mut Draw,
) {
    let counted: i64 = machines.iter().map(|machine| machine.counts(now)).sum();
    // Nobody can be brought to less than its grant.
    bench.spares = vec![Some(Watts::from_int(i32::try_from(limit - counted).unwrap()))];
    let seen: Vec<Seen> = machines
        .iter()
        .zip(stale)
        .map(|(machine, pods)| Seen {
            name: machine.name.clone(),
            mark: machine.mark.clone(),
            cordoned: machine.mark.is_some(),
            ready: machine.ready(now),
            boot: format!("boot-{}", machine.boots),
            power: machine.says(),
            pods: Some(*pods),
            may_sleep: machine.may_sleep,
            price: WakePrice::Watts { full: Watts::from_int(i32::try_from(MOST).unwrap()), under: vec![0] },
            paid: counted <= limit && machine.counts(now) == MOST,
            ..awake("")
        })
        .collect();
    let keys: Vec<String> = waiting.iter().map(|(since, lasts)| format!("{since}-{lasts}")).collect();
    let pods: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 4_000)).collect();
    let decision = bench.step(now, &seen, &pods);
    for (at, step) in decision.steps {
        let machine = &mut machines[at];
        // Some writes and orders are lost.
        if draw.below(10) == 0 {
            continue;
        }
        match step {
            SleepStep::Mark(phase, _) => {
                let boot = machine.mark.take().map_or(format!("boot-{}", machine.boots), |mark| mark.boot);
                machine.mark = Some(SleepMark { phase, since: seconds(now + bench.ahead), boot });
            }
            SleepStep::Reopen(_) => machine.mark = None,
            // Who carries it out looks at the pods as they are.
            SleepStep::SwitchOff if !machine.pods.is_empty() => bench.memory.not_sent(&machine.name),
            SleepStep::SwitchOff => machine.told(false, now, draw),
            SleepStep::SwitchOn => machine.told(true, now, draw),
        }
    }
}

#[test]
fn no_pod_waits_for_ever_nothing_is_above_the_limit_and_no_node_is_off_with_a_pod() {
    let (mut slept, mut done, mut longest) = (0, 0, 0);
    let seeds = 60;
    for seed in 1..=seeds {
        let (seconds, pods, wait) = play(seed);
        assert!(pods > 50, "seed {seed}: {pods} pods");
        (slept, done, longest) = (slept + seconds, done + pods, longest.max(wait));
    }
    // A tenth of all node seconds at least, or nothing was tried.
    let all = seeds * HOURS * 3_600 * u64::try_from(NODES).unwrap();
    println!("slept {slept} of {all} node seconds, {done} pods, the longest wait {longest} s");
    assert!(slept > all / 10, "{slept} of {all}");
    assert!(longest < 5_400, "{longest} s");
}
