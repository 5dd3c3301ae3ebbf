//! Measurements: the cost of the core's operations compared with the limits of the design, and the tables of the
//! laws.
//!
//! Times come from a shared machine, so a row gives the best of several rounds and, if the limit is about work, a
//! count. Nothing here passes or fails by a time.

mod budget;
mod gpu;
mod hal;
mod held_out;
mod laws;
mod node;
mod packing;
mod placement;
mod planner;
mod twin;

use anyhow::{Context, Result, bail};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

/// One benchmark: its name on the command line and what it prints.
type Bench = (&'static str, fn() -> Result<()>);

const BENCHES: &[Bench] = &[
    ("core", core),
    ("planner", planner),
    ("laws", laws::run),
    ("held-out", held_out::run),
    ("hal", hal::run),
    ("budget", || budget::run(&[])),
    ("api", api),
    ("extender", || extender(&[])),
    ("soak", || soak(&[])),
    ("shortlist", shortlist),
    ("packing", packing::run),
    ("experiments", experiments),
    ("agent", agent),
    ("operator", operator),
    ("classifier", classifier),
    ("pool", pool),
    ("page", page),
    ("kubectl", kubectl),
    ("scheduler", scheduler),
    ("scheduler-pairs", scheduler_pairs),
    ("world", world),
    ("chaos", chaos),
];

/// The embedded API at 10,000 nodes, and the memory of a host's reflectors at 5,000: times, fan-out and memory, in
/// separate processes.
fn api() -> Result<()> {
    release(&["run", "--package", "embedded-api", "--example", "api_scale"])?;
    release(&["run", "--package", "conformance", "--example", "rows"])
}

/// The extender: its decisions alone, and the shipped program over loopback.
fn extender(options: &[&str]) -> Result<()> {
    release(&["build", "--package", "extender", "--bin", "joulie-extender"])?;
    release(&[&["run", "--package", "extender", "--example", "load", "--"], options].concat())
}

/// Two replicas of the extender under churn, for ten minutes or for `--seconds N`.
fn soak(options: &[&str]) -> Result<()> {
    let seconds = match options {
        [] => "600",
        ["--seconds", seconds] => *seconds,
        _ => bail!("the options of soak are --seconds N"),
    };
    extender(&["--soak", seconds])
}

/// What a shortlist costs in points of kube-scheduler's, in a model of it around the extender's own decisions.
fn shortlist() -> Result<()> {
    cargo(&["test", "--release", "--package", "extender", "--lib", "quality", "--", "--nocapture"])
}

/// The bands of `compat`, how long a run of it takes, and the bars of `fair`, on all seeds.
fn experiments() -> Result<()> {
    release(&["run", "--package", "experiments", "--example", "place", "--", "time"])?;
    release(&["run", "--package", "experiments", "--example", "place", "--", "compat"])?;
    release(&["run", "--package", "experiments", "--example", "place", "--", "fair"])
}

/// The agent on the rig: the time from a change of the profile to the register and to the status, and its cost, also with eight
/// GPUs, 100 pods and the energy ledger.
fn agent() -> Result<()> {
    // As it ships, since its own pages are most of its memory.
    cargo(&["build", "--profile", "dist", "--package", "agent", "--bin", "joulie-agent"])?;
    release(&["run", "--package", "agent", "--example", "effect"])?;
    release(&["run", "--package", "agent", "--example", "ledger"])
}

/// Pods per second through the real kube-scheduler, and the placement of a burst.
fn scheduler() -> Result<()> {
    // The bench expects the extender beside its own program.
    release(&["build", "--package", "system", "--bins"])?;
    release(&["run", "--package", "system", "--bin", "scheduler-bench"])
}

/// What an extender costs the real kube-scheduler: five rounds in turn at each size, as ratios with their bars, and where a burst
/// of performance pods goes. It takes some ten minutes.
fn scheduler_pairs() -> Result<()> {
    release(&["build", "--package", "system", "--bins"])?;
    release(&["run", "--package", "system", "--bin", "scheduler-bench", "--", "--pairs", "5"])
}

/// Two hundred hours of the whole system in virtual time, with all kinds of events.
fn world() -> Result<()> {
    cargo(&["run", "--profile", "dist", "--package", "world", "--", "--seeds", "200", "--bar", "180"])
}

/// Kills, an outage of the API server, boots, a feed that is lost and a cut of the limit on the real control plane, with the
/// limits that must hold meanwhile. And how much of a limit is used there while pods come, go and wait.
fn chaos() -> Result<()> {
    // The bench expects the other programs beside its own.
    release(&["build", "--package", "system", "--bins"])?;
    release(&["run", "--package", "system", "--bin", "system-chaos"])?;
    release(&["run", "--package", "system", "--bin", "system-chaos", "--", "--only", "demand"])
}

/// The operator at 5,000 nodes on the embedded API: the first plan, the steady state, and the time until a pod is in
/// the plan.
fn operator() -> Result<()> {
    release(&["build", "--package", "operator", "--bin", "joulie-operator"])?;
    release(&["run", "--package", "operator", "--example", "scale"])
}

/// The operator's classifier at 5,000 nodes and 20,000 workloads on the embedded API, with a made-up Prometheus: the time of its
/// rounds, and what it writes when nothing changes.
fn classifier() -> Result<()> {
    release(&["build", "--package", "operator", "--bin", "joulie-operator"])?;
    release(&["run", "--package", "operator", "--example", "scale", "--", "classifier"])
}

/// One agent in mode pool: with all of 50 and of 500 nodes, with its part of 5,000 nodes in ten, and with all 5,000. Memory, processor time,
/// and the readings that come of it.
fn pool() -> Result<()> {
    release(&["build", "--package", "agent", "--bin", "joulie-agent"])?;
    for [nodes, parts] in [["50", "1"], ["500", "1"], ["5000", "10"], ["5000", "1"]] {
        release(&["run", "--package", "simulator", "--example", "pool_scale", "--", nodes, parts])?;
        println!();
    }
    Ok(())
}

/// The live page with 5,000 nodes in a headless browser: the first picture, and the time of scripts for each update.
fn page() -> Result<()> {
    release(&["run", "--package", "page", "--example", "page_scale"])
}

/// `kubectl joulie` at 5,000 nodes on the embedded API: what `status` costs, and the share of a core of `top`.
fn kubectl() -> Result<()> {
    // The bench expects the plugin beside its own program.
    release(&["build", "--package", "kubectl-joulie", "--bin", "kubectl-joulie"])?;
    release(&["run", "--package", "kubectl-joulie", "--example", "kubectl_scale"])
}

/// The core's operations.
fn core() -> Result<()> {
    print(&node::rows());
    print(&placement::rows());
    print(&gpu::rows());
    Ok(())
}

/// The planner's passes.
fn planner() -> Result<()> {
    print(&planner::rows());
    print(&twin::rows());
    Ok(())
}

/// What a benchmark takes beside its name, and which. One that ends with `=` has a value. Those of `budget` and `soak` are
/// read there.
const FLAGS: &[(&str, &str)] = &[
    ("--inside", "extender"),
    ("--wire", "extender"),
    ("--gpus", "extender"),
    ("--memory", "extender"),
    ("--update", "laws"),
    ("--seed=", "held-out"),
    ("--plants=", "held-out"),
    ("--plant=", "held-out"),
    ("--worst", "held-out"),
    ("--bars", "held-out"),
];

/// What the words of the command line ask for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// What there is.
    List,
    /// These benchmarks; without any, all.
    Run(Vec<&'static str>),
}

/// Reads the words. One that nobody takes is refused: else a wrong word would run everything.
fn asked(words: &[&str]) -> Result<Asked> {
    if words.iter().any(|word| ["list", "--help", "-h"].contains(word)) {
        return Ok(Asked::List);
    }
    match words {
        ["budget", ..] => return Ok(Asked::Run(vec!["budget"])),
        ["soak", ..] => return Ok(Asked::Run(vec!["soak"])),
        _ => {}
    }
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().copied().partition(|word: &&str| word.starts_with('-'));
    let mut run = Vec::new();
    for name in names {
        match BENCHES.iter().find(|(known, _)| *known == name) {
            Some((known, _)) => run.push(*known),
            None => bail!("no benchmark is called {name:?}\n{}", list()),
        }
    }
    for flag in flags {
        let is_this =
            |known: &str| if known.ends_with('=') { flag.starts_with(known) } else { flag == known };
        match FLAGS.iter().find(|(known, _)| is_this(known)) {
            Some((_, of)) if run.contains(of) => {}
            Some((_, of)) => bail!("{flag} is for {of}: write `cargo xtask bench {of} {flag}`"),
            None => bail!("no benchmark takes {flag}\n{}", list()),
        }
    }
    Ok(Asked::Run(run))
}

/// What can be asked for.
fn list() -> String {
    let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
    let flags: Vec<String> = FLAGS.iter().map(|(flag, of)| format!("{of} {flag}")).collect();
    format!(
        "benchmarks: {}\nwithout a name all of them run, one after the other\nflags: {}; soak --seconds; budget --mix, --seeds, --arm, --machines, --minutes, --json",
        names.join(", "),
        flags.join(", ")
    )
}

/// Runs the named benchmarks, or all of them, in the release profile. Words that begin with `--` are for the
/// benchmarks.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    // Its words are those of this program itself.
    let alone = matches!(words, ["--node-alone", _]);
    let wanted = if alone { Asked::Run(Vec::new()) } else { asked(words)? };
    let Asked::Run(names) = wanted else {
        println!("{}", list());
        return Ok(());
    };
    if cfg!(debug_assertions) {
        let status = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--release", "--package", "xtask", "--", "bench"])
            .args(words)
            .status()?;
        return if status.success() { Ok(()) } else { bail!("the benchmark stopped with {status}") };
    }
    if let ["--node-alone", place] = words {
        return hal::node_alone(Path::new(place));
    }
    // Their options have values, which are no names of benchmarks.
    match words {
        ["budget", options @ ..] => return budget::run(options),
        ["soak", options @ ..] => return soak(options),
        ["extender", options @ ..] if options.iter().all(|option| option.starts_with("--")) => {
            return extender(options);
        }
        _ => {}
    }
    for (name, bench) in BENCHES {
        if names.is_empty() || names.contains(name) {
            println!("\n## {name}\n");
            bench()?;
        }
    }
    Ok(())
}

/// A line of a result table: what was measured, its cost, and its limit.
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// Nanoseconds per item in the best round.
    pub(crate) nanos: f64,
    /// Heap allocations per item.
    pub(crate) allocations: f64,
    /// The most nanoseconds that the design allows, if it sets a limit.
    pub(crate) bar: Option<f64>,
}

const ROUNDS: u32 = 15;

/// Measures `operation`, which processes `items` items and runs `batch` times per round.
#[expect(clippy::disallowed_methods, reason = "a benchmark is what the clock is for")]
pub(crate) fn measure<T>(
    what: &str,
    bar: Option<f64>,
    (items, batch): (u32, u32),
    mut operation: impl FnMut() -> T,
) -> Row {
    black_box(operation());
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = std::time::Instant::now();
        for _ in 0..batch {
            black_box(operation());
        }
        let nanos = start.elapsed().as_secs_f64() * 1e9;
        best = best.min(nanos / (f64::from(batch) * f64::from(items)));
    }
    let counted = allocation_counter::measure(|| {
        black_box(operation());
    });
    let allocations = f64::from(u32::try_from(counted.count_total).unwrap_or(u32::MAX)) / f64::from(items);
    Row { what: what.to_owned(), nanos: best, allocations, bar }
}

/// Prints rows as a Markdown table, and a line for each limit.
pub(crate) fn print(rows: &[Row]) {
    println!("| what | ns, best of {ROUNDS} | bar | of the bar | allocations |");
    println!("|---|---|---|---|---|");
    for Row { what, nanos, allocations, bar } in rows {
        let (bar, part) = match bar {
            Some(bar) => (format!("{bar}"), format!("{:.0} %", nanos / bar * 100.0)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        println!("| {what} | {nanos:.1} | {bar} | {part} | {allocations} |");
    }
    println!();
    for Row { what, nanos, bar, .. } in rows {
        let Some(bar) = bar else { continue };
        let verdict = if nanos <= bar { "PASS" } else { "FAIL" };
        println!("BAR {} {nanos:.1} {bar} {verdict}", name(what));
    }
}

/// A row's name without spaces.
fn name(what: &str) -> String {
    let words = what.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = words.map(str::to_lowercase).collect::<Vec<_>>().join("_");
    name.push_str("_ns");
    name
}

/// A measurement that runs as a separate process.
fn release(words: &[&str]) -> Result<()> {
    let (verb, rest) = words.split_first().context("cargo is told what to do")?;
    cargo(&[&[*verb, "--release"], rest].concat())
}

fn cargo(words: &[&str]) -> Result<()> {
    let (verb, rest) = words.split_first().context("cargo is told what to do")?;
    let status = Command::new(env!("CARGO")).args([verb, "--quiet"]).args(rest).status()?;
    if status.success() { Ok(()) } else { bail!("cargo {} stopped with {status}", words.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_nobody_takes_runs_nothing_and_is_answered_with_what_there_is() {
        let names = |words: &[&str]| match asked(words).unwrap() {
            Asked::List => panic!("{words:?} runs nothing"),
            Asked::Run(names) => names,
        };
        assert_eq!(names(&[]), [""; 0]);
        assert_eq!(names(&["page", "core", "pool"]), ["page", "core", "pool"]);
        assert_eq!(names(&["laws", "--update"]), ["laws"]);
        assert_eq!(names(&["held-out", "--seed=7", "--worst", "--bars"]), ["held-out"]);
        assert_eq!(names(&["budget", "--mix", "A"]), ["budget"]);
        assert_eq!(names(&["soak", "--seconds", "60"]), ["soak"]);
        assert_eq!(names(&["extender", "--gpus"]), ["extender"]);
        for words in [&["list"][..], &["--help"], &["-h"], &["page", "--help"], &["budget", "--help"]] {
            assert_eq!(asked(words).unwrap(), Asked::List, "{words:?}");
        }
        let refused: [(&[&str], &str); 7] = [
            (&["pages"], "no benchmark is called \"pages\""),
            (&["page", "--fast"], "no benchmark takes --fast"),
            (&["--update"], "--update is for laws"),
            (&["page", "--seed=7"], "--seed=7 is for held-out"),
            (&["held-out", "--seed"], "no benchmark takes --seed"),
            (&["-v"], "no benchmark takes -v"),
            (&[""], "no benchmark is called \"\""),
        ];
        for (words, why) in refused {
            let said = asked(words).unwrap_err().to_string();
            assert!(said.starts_with(why), "{words:?}: {said}");
        }
        assert!(list().contains("planner, laws"));
    }

    #[test]
    fn the_document_names_every_benchmark_once_and_in_its_order() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = std::fs::read_to_string(root.join("docs/BENCHMARKS.md")).unwrap();
        let named: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("`cargo xtask bench [")?.split(']').next())
            .collect();
        let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, [names.join(" | ")]);
    }
}
