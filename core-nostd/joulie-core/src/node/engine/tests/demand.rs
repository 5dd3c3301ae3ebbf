//! The division of a grant by demand, in virtual time, on devices that draw what they want up to their limit.

use super::*;
use crate::node::demand::{BiteSource, DeviceDraw, ThrottleReading};

/// Two packages and eight GPUs at most, which obey at once.
struct Board {
    engine: Box<Engine<2, 8, 1>>,
    laws: EngineLaws,
    desire: Desire,
    second: u64,
    /// What each device wants to draw; `None` where nobody can measure it.
    wants: List<Option<i32>>,
    limits: List<Watts>,
    /// A GPU whose counter says that it is always throttled.
    liar: Option<usize>,
    unbelieved: u32,
    packages: usize,
}

impl Board {
    /// Packages from 50 to 250 W, and GPUs from 100 to 700 W. Their policy asks for no cap.
    fn new(grant: i32, packages: &[i32], gpus: &[Option<i32>]) -> Self {
        let mut engine: Box<Engine<2, 8, 1>> =
            Box::new(Engine::start(Route::Host, Wiring::EachItsOwn, None, at(0)));
        engine.list_packages(&std::vec![package(50, 250); packages.len()]);
        engine.list_gpus(&std::vec![gpu(100, 700); gpus.len()]);
        let limits = [std::vec![w(250); packages.len()], std::vec![w(700); gpus.len()]].concat();
        let wants = packages.iter().map(|&watts| Some(watts)).chain(gpus.iter().copied()).collect();
        let grant = Some(NodeGrant { serial: 1, watts: w(grant) });
        Self {
            engine,
            laws: laws(eager()),
            desire: Desire { grant, ..NOBODY },
            second: 0,
            wants,
            limits,
            liar: None,
            unbelieved: 0,
            packages: packages.len(),
        }
    }

    fn target(&self, device: usize) -> TargetId {
        match device.checked_sub(self.packages) {
            Some(gpu) => TargetId::Gpu(gpu),
            None => TargetId::Package(device),
        }
    }

    /// Passes the limit of a device to the engine, and the outcome of its order, if it had one.
    fn tell(&mut self, device: usize, outcome: LimitOutcome) {
        let (limit, read) = (self.limits[device], at(self.second));
        let facts = LimitFacts { outcome, seen: LimitReading::At { limit, read } };
        match self.target(device) {
            TargetId::Gpu(gpu) => {
                let it = &mut self.engine.gpus_mut()[gpu].facts;
                (it.limit, it.in_force) = (facts, Some(limit));
            }
            TargetId::Package(package) => {
                let it = &mut self.engine.packages_mut()[package].facts;
                (it.limit, it.in_force) = (facts, Some(limit));
            }
            TargetId::Policy(_) | TargetId::Clock(_) => unreachable!("there are none"),
        }
    }

    /// One second: what was drawn is read, and orders are carried out until there are none. Returns how many there were.
    fn second(&mut self) -> usize {
        self.second += 1;
        let before = self.limits.iter().fold(w(0), |sum, limit| sum + *limit);
        for device in 0..self.limits.len() {
            self.tell(device, LimitOutcome::Unknown);
            let watts = self.wants[device].map(|wants| w(wants).min(self.limits[device]));
            let is_liar = self.liar == Some(device);
            let throttled = if is_liar {
                ThrottleReading::Counted(power_units::Percent::HUNDRED)
            } else {
                ThrottleReading::Lacking
            };
            self.engine.drew(self.target(device), DeviceDraw { watts, throttled });
        }
        let grant = self.desire.grant.unwrap().watts;
        let mut carried_out = 0;
        for round in 0..8 {
            let facts = EngineFacts {
                now: at(self.second),
                occasion: if round == 0 { Occasion::Period } else { Occasion::News },
                desire: self.desire,
                power: MeterReading::Fresh { watts: w(200), over: seconds(1) },
                has_meter: true,
                renewal: None,
            };
            self.unbelieved += self.engine.step(&self.laws, &facts).unbelieved;
            let orders: List<EngineOrder> = self.engine.orders().collect();
            if orders.is_empty() {
                break;
            }
            for EngineOrder { target, ticket, instruction } in orders {
                let Instruction::Power(watts) = instruction else { panic!("{instruction:?}") };
                let device = match target {
                    TargetId::Package(at) => at,
                    TargetId::Gpu(at) => self.packages + at,
                    TargetId::Policy(_) | TargetId::Clock(_) => unreachable!("there are none"),
                };
                self.limits[device] = watts;
                self.tell(device, LimitOutcome::Set { ticket, read_back: Ok(watts) });
                let sum = self.limits.iter().fold(w(0), |sum, limit| sum + *limit);
                assert!(sum <= grant.max(before), "{sum} in force at {} s: {:?}", self.second, self.limits);
                carried_out += 1;
            }
        }
        carried_out
    }

    fn until(&mut self, second: u64) -> usize {
        (self.second..second).map(|_| self.second()).sum()
    }
}

#[test]
fn one_busy_gpu_of_eight_gets_its_maximum_and_a_steady_node_is_told_nothing() {
    let mut board = Board::new(2_400, &[], &[Some(80); 8]);
    // The last one cannot be measured.
    board.wants[7] = None;
    board.until(3);
    assert_eq!(board.limits, [w(300); 8], "the even division is enough for everybody");
    assert_eq!(board.until(60), 0);
    board.wants[3] = Some(650);
    // In the second that follows its first throttled one: 700 W, and a sixth of 1400 W for each that is known.
    board.until(61);
    assert_eq!(board.limits[3], w(700));
    let shared = [233, 233, 233, 700, 233, 233, 233, 300].map(w);
    assert_eq!(board.limits, shared);
    assert_eq!(board.until(120), 0);
    assert_eq!(board.engine.demand().bite(), None);
    // It becomes idle, and nobody needs what it has.
    board.wants[3] = Some(80);
    assert_eq!(board.until(180), 0);
    board.wants[5] = Some(650);
    board.until(181);
    assert_eq!(board.limits, [233, 233, 233, 233, 233, 700, 233, 300].map(w));
    assert_eq!(board.until(300), 0);
}

#[test]
fn idle_packages_of_a_gpu_node_lend_to_its_gpus_although_no_policy_caps_them() {
    // Even shares are 126 and 330 W. The packages ask for 72 W each, and the GPUs share 2756 W.
    let mut board = Board::new(2_900, &[60, 60], &[Some(700); 8]);
    board.until(2);
    assert_eq!(board.limits, [[w(72); 2].as_slice(), &[w(344); 8]].concat());
    assert_eq!(board.until(100), 0);
    // The node bites: none of its devices has anything to lend. Its demand is in the watts of its grant.
    assert_eq!(board.engine.demand().bite(), Some(BiteSource::Drawn));
    let report = board.engine.demand().report().unwrap();
    assert!(report.bites() && report.highest() > w(5_000), "2 times 72 W and 8 times some 640 W: {report:?}");
    // A package that is used again has its even share within two seconds.
    board.wants[0] = Some(200);
    board.until(102);
    assert!(board.limits[0] >= w(126), "{:?}", board.limits);
}

#[test]
fn a_throttle_that_cannot_be_true_is_not_believed_and_told_once() {
    let mut board = Board::new(600, &[], &[Some(700), Some(100)]);
    board.liar = Some(1);
    board.until(40);
    assert_eq!(board.unbelieved, 1);
    assert!(board.engine.demand_of(TargetId::Gpu(1)).unwrap().is_doubted());
    // It draws 100 W, which is asked for with 3 % and 10 W.
    assert_eq!(board.limits, [487, 113].map(w));
    assert_eq!(board.until(100), 0);
    // It says the opposite once, and is believed again.
    board.liar = None;
    board.until(102);
    assert!(!board.engine.demand_of(TargetId::Gpu(1)).unwrap().is_doubted());
}

#[test]
fn a_node_that_cannot_be_measured_is_divided_evenly_and_has_no_demand() {
    let mut board = Board::new(1_200, &[], &[None; 4]);
    board.until(20);
    assert_eq!(board.limits, [w(300); 4]);
    assert_eq!(board.engine.demand().report(), None);
}
