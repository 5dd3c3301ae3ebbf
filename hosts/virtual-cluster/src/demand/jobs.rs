//! The jobs: gangs that train with iterations and checkpoints, inference with bursts, batch on processors, and machines
//! that work now and then.

use crate::numbers::whole;
use plant::Random;

/// How busy the devices of a machine are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Busy {
    /// The part of its GPUs that work; the others are idle.
    pub(super) gpus: f64,
    /// How busy those are, from 0 to 1.
    pub(super) gpu: f64,
    /// How busy its packages are.
    pub(super) cpu: f64,
}

const IDLE: Busy = Busy { gpus: 1.0, gpu: 0.0, cpu: 0.03 };

/// What runs on a machine.
pub(super) enum Job {
    /// A place in a gang: how many seconds it lags behind the others, and how much it draws of what they do.
    Gang {
        gang: usize,
        lag: f64,
        level: f64,
    },
    Inference(Inference),
    Batch(Batch),
    Occasional(Occasional),
    /// Busy for half of the period.
    Square {
        period: f64,
        shifted: bool,
    },
    Steady(f64),
}

/// A number between two.
fn between(random: &mut Random, (least, most): (f64, f64)) -> f64 {
    least + (most - least) * random.unit()
}

/// The part of a period that has passed.
fn phase(at: f64, period: f64) -> f64 {
    let periods = at / period;
    periods - periods.floor()
}

pub(super) fn square(at: f64, period: f64, shifted: bool) -> Busy {
    let is_high = (phase(at, period) < 0.5) != shifted;
    let level = if is_high { 0.95 } else { 0.05 };
    Busy { gpus: 1.0, gpu: level, cpu: level }
}

/// How much there is to do at this time of the day, from 0.3 at night to 1 at noon.
fn hour(at: f64) -> f64 {
    let day = phase(at, 86_400.0);
    let from_noon = (day - 0.5).abs() * 2.0;
    1.0 - 0.7 * from_noon * from_noon
}

/// A sequence of jobs on some machines, with pauses.
pub(super) struct Gang {
    random: Random,
    runs: bool,
    from: f64,
    until: f64,
    iteration: f64,
    computes: f64,
    high: f64,
    low: f64,
    saves_at: f64,
    saved_at: f64,
    short: bool,
}

impl Gang {
    pub(super) fn new(random: Random, short: bool) -> Self {
        let mut gang = Self {
            random,
            runs: false,
            from: 0.0,
            until: 0.0,
            iteration: 1.5,
            computes: 0.8,
            high: 1.0,
            low: 0.3,
            saves_at: f64::INFINITY,
            saved_at: f64::INFINITY,
            short,
        };
        // Somewhere in a job or in a pause.
        if gang.random.unit() < 0.87 {
            gang.start(0.0);
            gang.until *= gang.random.unit();
        } else {
            gang.until = gang.pauses() * gang.random.unit();
        }
        gang
    }

    fn pauses(&mut self) -> f64 {
        let range = if self.short { (30.0, 120.0) } else { (20.0, 150.0) };
        between(&mut self.random, range)
    }

    fn start(&mut self, at: f64) {
        let random = &mut self.random;
        self.runs = true;
        self.from = at;
        self.until = at + between(random, if self.short { (60.0, 240.0) } else { (240.0, 1_200.0) });
        self.iteration = between(random, (1.5, 15.0));
        self.computes = between(random, (0.7, 0.95));
        self.high = between(random, (0.8, 1.0));
        self.low = between(random, (0.6, 0.8));
        self.saves(at);
    }

    fn saves(&mut self, at: f64) {
        self.saves_at = at + between(&mut self.random, (90.0, 300.0));
        self.saved_at = self.saves_at + between(&mut self.random, (8.0, 25.0));
    }

    /// Goes on to a time; whether a job starts.
    pub(super) fn advance(&mut self, at: f64) -> bool {
        if at >= self.until && self.runs {
            self.runs = false;
            self.until = at + self.pauses();
        } else if at >= self.until {
            self.start(at);
            return true;
        }
        if self.runs && at >= self.saved_at {
            self.saves(at);
        }
        false
    }

    pub(super) fn busy(&self, at: f64, lag: f64, level: f64) -> Busy {
        if !self.runs {
            return IDLE;
        }
        if (self.saves_at..self.saved_at).contains(&at) {
            return Busy { gpus: 1.0, gpu: 0.12, cpu: 0.6 };
        }
        let computes = phase(at - self.from + lag, self.iteration) < self.computes;
        let gpu = (if computes { self.high } else { self.low } * level).min(1.0);
        Busy { gpus: 1.0, gpu, cpu: if computes { 0.3 } else { 0.2 } }
    }
}

/// Answers requests with some of the GPUs; bursts come at any time.
pub(super) struct Inference {
    random: Random,
    base: f64,
    active: f64,
    changes_at: f64,
    burst: f64,
    bursts_at: f64,
    burst_until: f64,
    /// Takes part in the crowds, after so many seconds.
    crowds: Option<f64>,
    by_day: bool,
}

/// When everybody asks at once, and for how long.
const CROWDS: [f64; 2] = [600.0, 1_100.0];
const CROWD_S: f64 = 120.0;

impl Inference {
    pub(super) fn new(mut random: Random, crowds: bool, by_day: bool) -> Self {
        let crowds = crowds.then(|| 2.0 * random.unit());
        let mut job = Self {
            random,
            base: 0.3,
            active: 1.0,
            changes_at: 0.0,
            burst: 0.0,
            bursts_at: 0.0,
            burst_until: 0.0,
            crowds,
            by_day,
        };
        job.change(0.0);
        job.changes_at *= job.random.unit();
        job.bursts_at = 60.0 * job.random.unit();
        job
    }

    fn change(&mut self, at: f64) {
        self.changes_at = at + between(&mut self.random, (60.0, 300.0));
        self.base = between(&mut self.random, (0.0, 0.5));
        // Quarters of its GPUs, mostly all.
        let quarters = whole(0.5 + 5.0 * self.random.unit()).clamp(1, 4);
        self.active = quarters as f64 / 4.0;
    }

    /// Goes on to a time.
    pub(super) fn advance(&mut self, at: f64) {
        if at >= self.burst_until && at >= self.bursts_at {
            self.burst = between(&mut self.random, (0.7, 1.0));
            let from = self.bursts_at;
            self.burst_until = at + between(&mut self.random, (3.0, 25.0));
            let quiet = between(&mut self.random, (5.0, 60.0));
            let quiet = if self.by_day { quiet / hour(from) } else { quiet };
            self.bursts_at = self.burst_until + quiet;
        }
        if at >= self.changes_at {
            self.change(at);
        }
    }

    pub(super) fn busy(&self, at: f64) -> Busy {
        let is_crowd = |lag: f64| CROWDS.iter().any(|&from| (from + lag..from + lag + CROWD_S).contains(&at));
        if self.crowds.is_some_and(is_crowd) {
            return Busy { gpus: 1.0, gpu: 1.0, cpu: 0.5 };
        }
        let scale = if self.by_day { hour(at) } else { 1.0 };
        let gpu = if at < self.burst_until { self.burst } else { self.base * scale };
        Busy { gpus: self.active, gpu, cpu: 0.1 + 0.3 * gpu }
    }
}

/// Work that comes, lasts, and pauses.
struct Spells {
    random: Random,
    level: f64,
    until: f64,
    /// For how long it lasts, and for how long it pauses, in seconds.
    lasts: (f64, f64),
    pauses: (f64, f64),
    by_day: bool,
}

impl Spells {
    fn advance(&mut self, at: f64) -> bool {
        if at < self.until {
            return false;
        }
        let starts = self.level == 0.0;
        if starts {
            self.level = between(&mut self.random, (0.5, 1.0));
            self.until = at + between(&mut self.random, self.lasts);
        } else {
            self.level = 0.0;
            let pause = between(&mut self.random, self.pauses);
            self.until = at + if self.by_day { pause / hour(at) } else { pause };
        }
        starts
    }
}

/// Jobs on processors, one after the other.
pub(super) struct Batch(Spells);

impl Batch {
    pub(super) fn new(mut random: Random) -> Self {
        let level = between(&mut random, (0.5, 1.0));
        let until = 400.0 * random.unit();
        Self(Spells { random, level, until, lasts: (30.0, 400.0), pauses: (20.0, 400.0), by_day: false })
    }

    pub(super) fn follow_the_hours(&mut self) {
        self.0.by_day = true;
    }

    pub(super) fn advance(&mut self, at: f64) -> bool {
        self.0.advance(at)
    }

    pub(super) fn busy(&self) -> Busy {
        Busy { gpus: 1.0, gpu: 0.0, cpu: self.0.level.max(0.03) }
    }
}

/// Mostly idle; a job of a few minutes now and then.
pub(super) struct Occasional(Spells);

impl Occasional {
    pub(super) fn new(mut random: Random) -> Self {
        let until = 600.0 * random.unit();
        Self(Spells {
            random,
            level: 0.0,
            until,
            lasts: (60.0, 200.0),
            pauses: (200.0, 600.0),
            by_day: false,
        })
    }

    pub(super) fn advance(&mut self, at: f64) -> bool {
        self.0.advance(at)
    }

    pub(super) fn busy(&self) -> Busy {
        if self.0.level > 0.0 { Busy { gpus: 1.0, gpu: self.0.level, cpu: 0.3 } } else { IDLE }
    }
}
