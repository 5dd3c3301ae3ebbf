//! `world --seeds N` runs N hours and prints the results; `world --seed S` prints the story of one hour.

use clap::Parser;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use world::script::EventKind;
use world::{Excess, Excuse, WorldPlan, WorldReport, run};

/// Runs hours of the whole system in virtual time, and judges the limits in force of its machines.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run only this seed, and print its story around the first breach.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the whole story.
    #[arg(long)]
    whole: bool,
    /// Length of an hour in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Kinds of events; all of them by default.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Kinds of events to leave out.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Limit of the processor time of all seeds, in seconds.
    #[arg(long)]
    bar: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let named = |words: &[String], kind: EventKind| words.iter().any(|word| word == kind.word());
    let kinds: Vec<EventKind> = EventKind::ALL
        .into_iter()
        .chain([EventKind::Sleeps, EventKind::Armed])
        .filter(|kind| match arguments.only.is_empty() {
            true => EventKind::ALL.contains(kind),
            false => named(&arguments.only, *kind),
        })
        .filter(|kind| !named(&arguments.without, *kind))
        .collect();
    let hour = Duration::from_secs(arguments.minutes * 60);
    if let Some(seed) = arguments.seed {
        let outcome = run(&WorldPlan { whole: arguments.whole, hour, ..WorldPlan::with(seed, &kinds) });
        say(&format!("{}{}", outcome.story(), line(&outcome)));
        return code(outcome.is_good());
    }
    let mut total = Total::default();
    for seed in arguments.first..arguments.first + arguments.seeds {
        let outcome = run(&WorldPlan { hour, ..WorldPlan::with(seed, &kinds) });
        say(&line(&outcome));
        total.add(&outcome);
    }
    say(&total.show());
    let cpu = cpu_seconds();
    let Some(bar) = arguments.bar else { return code(total.bad.is_empty()) };
    let is_fast = cpu <= bar;
    let verdict = if is_fast { "PASS" } else { "FAIL" };
    say(&format!("BAR world_{}_seeds_cpu_s {cpu} {bar} {verdict}\n", arguments.seeds));
    code(total.bad.is_empty() && is_fast)
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(outcome: &WorldReport) -> String {
    let WorldReport { seed, unexcused, breaches, failures, used, hash, .. } = outcome;
    let verdict = if outcome.is_good() { "ok " } else { "BAD" };
    let first = breaches.first().map_or(String::new(), |breach| {
        format!(
            ", first at {:.1?} for {:.1?}, {:.0} W",
            breach.from,
            breach.to.saturating_sub(breach.from),
            breach.watts
        )
    });
    let failures = if failures.is_empty() { String::new() } else { format!(" {failures:?}") };
    format!(
        "{verdict} seed {seed}: {:.0} Ws above without an excuse in {} breaches{first}; at the end {:.0} % of the limit \
         is used; story {hash:016x}{failures}\n",
        unexcused.watt_seconds,
        breaches.len(),
        used * 100.0,
    )
}

#[derive(Default)]
struct Total {
    bad: Vec<u64>,
    unexcused: f64,
    excused: BTreeMap<Excuse, Excess>,
    counts: BTreeMap<&'static str, u64>,
}

impl Total {
    fn add(&mut self, outcome: &WorldReport) {
        if !outcome.is_good() {
            self.bad.push(outcome.seed);
        }
        self.unexcused += outcome.unexcused.watt_seconds;
        for (excuse, excess) in &outcome.excused {
            let all = self.excused.entry(*excuse).or_default();
            all.watt_seconds += excess.watt_seconds;
            all.time += excess.time;
            all.longest = all.longest.max(excess.longest);
        }
        for (what, count) in &outcome.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    fn show(&self) -> String {
        let mut text =
            format!("\n{:.0} Ws above without an excuse; bad seeds: {:?}\n", self.unexcused, self.bad);
        for (excuse, Excess { watt_seconds, time, longest, .. }) in &self.excused {
            // Writing into a String does not fail.
            let _ = writeln!(
                text,
                "  {:32} {watt_seconds:>10.0} Ws in {time:.0?}, longest {longest:.1?}",
                excuse.word()
            );
        }
        for (what, count) in &self.counts {
            let _ = writeln!(text, "  {what:32} {count:>10}");
        }
        text
    }
}

/// The processor time of this process, user and system, in the kernel's clock ticks.
fn cpu_seconds() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Fields 14 and 15 of proc_pid_stat(5), counted after the name; a tick is 10 ms on every Linux.
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10).as_secs()
}

fn say(text: &str) {
    // If standard output is closed, the exit status still shows the result.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
