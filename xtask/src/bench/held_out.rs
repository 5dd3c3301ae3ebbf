//! The laws on random machines on which nobody tuned them: settling, energy above the cap, use of it, raises, and lost
//! readings, beside an oracle that knows the machine.
//!
//! `cargo xtask bench held-out --seed=N --plants=N [--worst] [--bars] [--plant=N]`. A seed gives the same machines for every law.
//! With `--bars` only `tracking` at 1 s runs, which the bars are of.

mod machine;

use anyhow::{Context, Result};
use joulie_core::node::engine::LoopLaw;
use machine::{Cell, FREE_WATTS, GRID_S, Machine, Spec, Weather};
use node_kit::Config;
use plant::Random;
use power_units::Micros;

/// The first cap, W, unless the machine cannot go so low.
const CAP_WATTS: f64 = 300.0;
/// The cap of the raise, W.
const RAISED_WATTS: f64 = 380.0;
/// How much above its least a machine must be able to draw under the first cap.
const ABOVE_LEAST: f64 = 1.08;

/// The figures of one plant.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Periods until the last mean of a second above the cap by 2 %; infinite if that never ends.
    settled: f64,
    /// Energy above the first cap, kJ.
    above_kj: f64,
    /// What is drawn at the end, of what the oracle draws.
    drawn: f64,
    /// The work at the end, of the oracle's.
    work: f64,
    /// Periods until within 2 % of the oracle's power after a raise.
    raise: f64,
    /// Periods until within 2 % after readings were lost, and the highest mean of a second above the cap since.
    found: f64,
    found_over: Over,
    /// The same after a meter that stood still while the cap was changed.
    moved: f64,
    moved_over: Over,
    /// The highest mean of ten seconds above the cap, under a restless load and caps that move.
    over: f64,
    /// Moves in a minute at rest.
    moves: f64,
}

/// How much higher above the cap the highest mean of a second is, without readings and for a minute after that, than in the
/// half minute before, as a part of the cap: under the law; under the law with all readings, which is the load's part; and
/// under who knows the machine, takes it to its lowest clock while there is no reading, and knows the load of each period at
/// its end.
#[derive(Clone, Copy, Debug, Default)]
struct Over {
    law: f64,
    seeing: f64,
    knowing: f64,
}

impl Over {
    /// What is left above the least that is possible.
    fn rest(&self) -> f64 {
        (self.law - self.knowing.max(self.seeing)).max(0.0)
    }
}

/// Seconds in the unit of time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hours at most, never negative")]
fn micros(seconds: f64) -> Micros {
    Micros::new((seconds * 1e6).round() as u64)
}

fn cells(seconds: f64) -> usize {
    usize::try_from(micros(seconds).get() / 10_000).unwrap_or(usize::MAX)
}

/// A trial: the machine, its period, and the record.
#[derive(Clone)]
struct Trial {
    machine: Machine,
    every: usize,
    at: usize,
    record: Vec<Cell>,
}

impl Trial {
    fn new(seed: u64, plant: u64, weather: Weather, law: LoopLaw, period_s: f64) -> Result<Self> {
        let mut random = Random::stream(seed, plant);
        let spec = Spec::random(&mut random, weather);
        let machine = Machine::new(spec, law, random, micros(period_s))?;
        Ok(Self { machine, every: cells(period_s), at: 0, record: Vec::new() })
    }

    /// Runs for some seconds under a cap, and returns the record of them.
    fn run(&mut self, seconds: f64, cap: Option<f64>) -> Result<&[Cell]> {
        let from = self.record.len();
        for _ in 0..cells(seconds) {
            if self.at.is_multiple_of(self.every) {
                self.machine.period(cap)?;
            }
            self.at += 1;
            let cell = self.machine.pass();
            self.record.push(cell);
        }
        Ok(&self.record[from..])
    }
}

fn mean(cells: &[Cell]) -> f64 {
    cells.iter().map(|cell| cell.watts).sum::<f64>() / cells.len() as f64
}

/// The first second from which on all means of a second are within `part` of what the oracle draws, in periods.
fn within(cells_of: &[Cell], spec: &Spec, cap: f64, part: f64, period_s: f64) -> f64 {
    let second = cells(1.0);
    let goal = |window: &[Cell]| {
        let load = window.iter().map(|cell| cell.load).sum::<f64>() / window.len() as f64;
        spec.oracle(load, cap).0
    };
    let is_near = |window: &[Cell]| (mean(window) / goal(window) - 1.0).abs() <= part;
    // Five seconds of it count as found.
    let mut run = 0;
    for (at, window) in cells_of.windows(second).step_by(10).enumerate() {
        run = if is_near(window) { run + 1 } else { 0 };
        if run == 50 {
            return ((at + 1 - run) as f64 * 10.0 * GRID_S + 1.0) / period_s;
        }
    }
    f64::INFINITY
}

fn highest(cells_of: &[Cell], seconds: f64, cap: f64) -> f64 {
    cells_of.windows(cells(seconds)).step_by(10).map(|window| mean(window) / cap - 1.0).fold(-1.0, f64::max)
}

fn calm(seed: u64, plant: u64, law: LoopLaw, period_s: f64) -> Result<Figures> {
    let mut trial = Trial::new(seed, plant, Weather::Calm, law, period_s)?;
    let spec = trial.machine.spec.clone();
    let cap = CAP_WATTS.max(spec.least(1.0) * ABOVE_LEAST);
    trial.run(20.0, None)?;
    let first = trial.run(90.0, Some(cap))?;
    let second = cells(1.0);
    let above_kj = first.iter().map(|cell| (cell.watts - cap).max(0.0)).sum::<f64>() * GRID_S / 1e3;
    let last = first.windows(second).rposition(|window| mean(window) > 1.02 * cap);
    let settled = match last {
        None => 0.0,
        Some(at) if at + 1 + second >= first.len() => f64::INFINITY,
        Some(at) => (at + 1) as f64 * GRID_S / period_s,
    };
    let end = first.len() - cells(30.0);
    let (mut best, mut best_work) = (0.0, 0.0);
    for cell in &first[end..] {
        let (watts, work) = spec.oracle(cell.load, cap);
        (best, best_work) = (best + watts, best_work + work * cell.load);
    }
    let drawn = first[end..].iter().map(|cell| cell.watts).sum::<f64>() / best;
    let work = first[end..].iter().map(|cell| cell.work).sum::<f64>() / best_work;
    let before = highest(&first[end..], 1.0, cap);
    let moves = trial.machine.moves;
    trial.run(60.0, Some(cap))?;
    let moves = f64::from(trial.machine.moves - moves);
    // The readings are lost for a time.
    trial.machine.counts_energy = plant % 4 < 2;
    let lost = Outage { seconds: 2.0 + (plant % 24) as f64, cap, is_stuck: false, before };
    let (back, found_over) = lost.run(&mut trial)?;
    let found = within(&back, &spec, cap, 0.02, period_s);
    let raised = RAISED_WATTS.max(cap * 1.15).min(FREE_WATTS);
    let after = trial.run(60.0, Some(raised))?;
    let raise = within(after, &spec, raised, 0.02, period_s);
    let before = highest(&after[after.len() - cells(30.0)..], 1.0, raised);
    // The meter stands still, and the cap is changed, up or down.
    let other = if plant.is_multiple_of(2) { raised * 1.1 } else { (raised * 0.85).max(cap) };
    let stuck = Outage { seconds: 3.0 + (plant % 24) as f64, cap: other, is_stuck: true, before };
    let (back, moved_over) = stuck.run(&mut trial)?;
    let moved = within(&back, &spec, other, 0.02, period_s);
    let over = 0.0;
    Ok(Figures { settled, above_kj, drawn, work, raise, found, found_over, moved, moved_over, over, moves })
}

/// A time without readings under this cap: none come, or the meter stands still.
struct Outage {
    seconds: f64,
    cap: f64,
    is_stuck: bool,
    /// The highest mean of a second before it, above the cap of that time.
    before: f64,
}

impl Outage {
    /// Runs it and a minute after it, and returns the record of that minute.
    fn run(&self, trial: &mut Trial) -> Result<(Vec<Cell>, Over)> {
        let mut seeing = trial.clone();
        let mut knowing = trial.clone();
        knowing.machine.is_known = true;
        let (back, law) = self.of(trial, false)?;
        let (_, seeing) = self.of(&mut seeing, true)?;
        let (_, knowing) = self.of(&mut knowing, false)?;
        Ok((back, Over { law, seeing, knowing }))
    }

    fn of(&self, trial: &mut Trial, sees: bool) -> Result<(Vec<Cell>, f64)> {
        (trial.machine.is_blind, trial.machine.is_stuck) = (!sees && !self.is_stuck, !sees && self.is_stuck);
        // Two seconds are for a cap that is lowered at the beginning.
        let out = trial.run(self.seconds, Some(self.cap))?;
        let from = if self.is_stuck { cells(2.0) } else { 0 };
        let over = highest(&out[from..], 1.0, self.cap);
        (trial.machine.is_blind, trial.machine.is_stuck) = (false, false);
        let back = trial.run(60.0, Some(self.cap))?.to_vec();
        let over = highest(&back, 1.0, self.cap).max(over);
        // What stays below the cap is not above it.
        let before = self.before.max(0.0);
        Ok((back, over.max(before) - before))
    }
}

/// The highest mean of ten seconds above the cap, of windows that begin three seconds after a change of it.
fn moving(seed: u64, plant: u64, law: LoopLaw, period_s: f64) -> Result<f64> {
    let mut trial = Trial::new(seed, plant, Weather::Bursty, law, period_s)?;
    let spec = trial.machine.spec.clone();
    let mut caps = Random::stream(seed, plant ^ 0xCA95);
    let least = spec.least(1.0) * ABOVE_LEAST;
    let mut over = -1.0_f64;
    trial.run(10.0, None)?;
    for _ in 0..8 {
        let cap = least + (FREE_WATTS - least).max(0.0) * caps.unit() * 0.8;
        let lasts = 20.0 + 30.0 * caps.unit();
        let stretch = trial.run(lasts, Some(cap))?;
        over = over.max(highest(&stretch[cells(3.0)..], 10.0, cap));
    }
    Ok(over)
}

fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = (last as f64 * at).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}

fn number(name: &str, or: u64) -> Result<u64> {
    let prefix = format!("--{name}=");
    let given = std::env::args().find_map(|word| word.strip_prefix(&prefix).map(str::to_owned));
    given.map_or(Ok(or), |text| text.parse().with_context(|| format!("--{name} is a whole number")))
}

/// Prints each second of a machine under its first cap, without readings, after a raise, and with a meter that stands still.
fn trace(seed: u64, plant: u64) -> Result<()> {
    let mut trial = Trial::new(seed, plant, Weather::Calm, Config::tracking(), 1.0)?;
    let spec = trial.machine.spec.clone();
    let cap = CAP_WATTS.max(spec.least(1.0) * ABOVE_LEAST);
    let raised = RAISED_WATTS.max(cap * 1.15).min(FREE_WATTS);
    let other = if plant.is_multiple_of(2) { raised * 1.1 } else { (raised * 0.85).max(cap) };
    println!("{spec:?}");
    trial.run(20.0, None)?;
    trial.machine.counts_energy = plant % 4 < 2;
    let lost = plant % 24 + 2;
    for (what, cap, seconds) in [
        ("cap", cap, 150),
        ("lost", cap, lost),
        ("back", cap, 60),
        ("raise", raised, 60),
        ("stuck", other, lost + 1),
        ("back", other, 60),
    ] {
        (trial.machine.is_blind, trial.machine.is_stuck) = (what == "lost", what == "stuck");
        for second in 0..seconds {
            let window = trial.run(1.0, Some(cap))?;
            let load = window.iter().map(|cell| cell.load).sum::<f64>() / window.len() as f64;
            let (drawn, oracle) = (mean(window), spec.oracle(load, cap).0);
            let (clock, moves) = (trial.machine.clock(), trial.machine.moves);
            println!(
                "{what} {second:3} cap {cap:.1} drawn {drawn:.1} oracle {oracle:.1} load {load:.3} {clock} moves {moves}"
            );
        }
    }
    Ok(())
}

/// Prints the figures of each law, and the bars of `tracking`; with `--plant=N` the trace of one machine.
pub(crate) fn run() -> Result<()> {
    let (seed, plants) = (number("seed", 1)?, number("plants", 240)?);
    let one = number("plant", u64::MAX)?;
    if one != u64::MAX {
        return trace(seed, one);
    }
    println!("seed {seed}, {plants} machines; quantiles 5, 50, 95 and the worst\n");
    for (name, law, period_s) in [
        ("tracking", Config::tracking(), 1.0),
        ("tracking", Config::tracking(), 0.5),
        ("classic", Config::classic(), 1.0),
    ] {
        if std::env::args().any(|word| word == "--bars") && !(name == "tracking" && period_s == 1.0) {
            continue;
        }
        let mut all = Vec::new();
        for plant in 0..plants {
            let over = moving(seed, plant, law, period_s)?;
            all.push(Figures { over, ..calm(seed, plant, law, period_s)? });
        }
        println!("{name}, period {period_s} s");
        if std::env::args().any(|word| word == "--worst") {
            for (plant, one) in all.iter().enumerate().filter(|(_, one)| {
                one.settled > 3.0
                    || one.drawn < 0.97
                    || one.work < 0.95
                    || one.raise > 60.0
                    || one.found > 60.0
                    || one.moves > 2.0
                    || one.found_over.law > 0.005
                    || one.moved_over.law > 0.005
            }) {
                let mut random = Random::stream(seed, plant as u64);
                println!("{plant}: {one:.3?} {:?}", Spec::random(&mut random, Weather::Calm));
            }
        }
        report(&all, name == "tracking" && period_s == 1.0);
    }
    Ok(())
}

/// A figure of a machine.
type Column<'a> = &'a dyn Fn(&Figures) -> f64;

fn report(all: &[Figures], has_bars: bool) {
    let share = |is: &dyn Fn(&Figures) -> bool| {
        all.iter().filter(|one| is(one)).count() as f64 / all.len() as f64 * 100.0
    };
    let of = |value: &dyn Fn(&Figures) -> f64, at: f64| {
        quantile(&mut all.iter().map(value).collect::<Vec<_>>(), at)
    };
    let columns: [(&str, Column<'_>); 17] = [
        ("settled, periods", &|one| one.settled),
        ("above, kJ", &|one| one.above_kj),
        ("drawn of the oracle's", &|one| one.drawn),
        ("work of the oracle's", &|one| one.work),
        ("raise, periods", &|one| one.raise),
        ("found again, periods", &|one| one.found),
        ("over then", &|one| one.found_over.law),
        ("  with all readings", &|one| one.found_over.seeing),
        ("  who knows the machine", &|one| one.found_over.knowing),
        ("  above the larger", &|one| one.found_over.rest()),
        ("after a stuck meter, p.", &|one| one.moved),
        ("over with and after it", &|one| one.moved_over.law),
        ("  with all readings", &|one| one.moved_over.seeing),
        ("  who knows the machine", &|one| one.moved_over.knowing),
        ("  above the larger", &|one| one.moved_over.rest()),
        ("moving: over, 10 s", &|one| one.over),
        ("moves a minute at rest", &|one| one.moves),
    ];
    for (what, value) in columns {
        let quantiles = [0.0, 0.05, 0.5, 0.95, 1.0].map(|at| format!("{:8.3}", of(value, at)));
        println!("  {what:24} {}", quantiles.join(" "));
    }
    if !has_bars {
        return;
    }
    let least = |name: &str, value: f64, limit: f64| bar(name, value, limit, value >= limit);
    let most = |name: &str, value: f64, limit: f64| bar(name, value, limit, value <= limit);
    least("held_out_settled_in_3_periods_pct", share(&|one| one.settled <= 3.0), 95.0);
    least("held_out_at_most_0.25_kj_above_pct", share(&|one| one.above_kj <= 0.25), 90.0);
    least("held_out_use_of_the_cap_p5", of(&|one| one.drawn, 0.05), 0.97);
    least("held_out_work_p5", of(&|one| one.work, 0.05), 0.95);
    most("held_out_moving_5_pct_over_10_s_pct", share(&|one| one.over > 0.05), 2.0);
    most("held_out_moving_worst_over_pct", of(&|one| one.over, 1.0) * 100.0, 12.0);
    most("held_out_raise_p50_periods", of(&|one| one.raise, 0.5), 8.0);
    most("held_out_found_again_p50_periods", of(&|one| one.found, 0.5), 15.0);
    most("held_out_after_a_stuck_meter_p50_periods", of(&|one| one.moved, 0.5), 15.0);
    // No more than before the outage, on any machine.
    let over: [(&str, Column<'_>); 2] =
        [("lost_readings", &|one| one.found_over.law), ("a_stuck_meter", &|one| one.moved_over.law)];
    for (what, value) in over {
        most(&format!("held_out_over_after_{what}_p95_pct"), of(value, 0.95) * 100.0, 0.0);
        most(&format!("held_out_over_after_{what}_most_pct"), of(value, 1.0) * 100.0, 0.0);
    }
    most("held_out_moves_a_minute_p50", of(&|one| one.moves, 0.5), 2.0);
}

fn bar(name: &str, value: f64, limit: f64, passed: bool) {
    println!("BAR {name} {value:.3} {limit} {}", if passed { "PASS" } else { "FAIL" });
}
