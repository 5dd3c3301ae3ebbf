//! All scenarios on all kernels, two at a time.

use crate::args::Args;
use crate::initramfs::Initramfs;
use crate::machine::{self, Accelerator, Machine};
use crate::packages::{self, Kernel, Tools};
use crate::scenario::Scenario;
use crate::verdict::Verdict;
use crate::{cache, golden, modules};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// The outcome of a run.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

/// The number of concurrent guests, which are mostly waiting.
const AT_A_TIME: usize = 2;
/// The time limit of the full run, after downloading.
const WHOLE_S: f32 = 720.0;
/// The time limit of the short run.
const SHORT_S: f32 = 180.0;

/// A kernel with its modules and archive.
struct Ready {
    kernel: Kernel,
    initramfs: PathBuf,
}

/// The result of a scenario on one kernel.
struct Done {
    kernel: usize,
    scenario: Scenario,
    verdict: Verdict,
    seconds: f32,
}

pub(crate) fn all(args: &Args) -> Result<Outcome> {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    let scenarios = chosen(args, Scenario::all(&guest.join("scenarios"))?)?;
    if args.list {
        for scenario in &scenarios {
            println!("{}{}", scenario.name, if scenario.short { " (short)" } else { "" });
        }
        return Ok(Outcome::Passed);
    }
    let cache = cache::folder()?;
    let (tools, kernels) = match obtain(args, &cache) {
        Ok(obtained) => obtained,
        Err(why) => return Ok(Outcome::Skipped(format!("{why:#}").replace('\n', " "))),
    };
    let begun = now();
    let folder = machine::folder(&cache)?;
    let mut ready = Vec::new();
    for kernel in kernels {
        let built = modules::build(&cache, &kernel)?;
        let archive = Initramfs::of(&kernel, &tools, &built, &args.programs, &guest)?.archive()?;
        let initramfs = folder.join(format!("initramfs-{}", kernel.series));
        std::fs::write(&initramfs, archive)?;
        ready.push(Ready { kernel, initramfs });
    }
    let probe = ready.first().zip(scenarios.first()).context("there is nothing to run")?;
    let accelerator = machine::accelerator(&probe.0.kernel, &tools, &probe.0.initramfs, &folder, probe.1);
    for one in &ready {
        println!("vm: Linux {} ({}), {accelerator:?}", one.kernel.release, one.kernel.version);
    }
    let done = run(&ready, &scenarios, &tools, accelerator, &folder)?;
    let planned = ready.len() * scenarios.len();
    let outcome = report(args, &ready, planned, &done, begun.elapsed().as_secs_f32())?;
    match outcome {
        Outcome::Passed => std::fs::remove_dir_all(&folder)?,
        Outcome::Failed | Outcome::Skipped(_) => println!("vm: consoles are in {}", folder.display()),
    }
    Ok(outcome)
}

fn chosen(args: &Args, all: Vec<Scenario>) -> Result<Vec<Scenario>> {
    if let Some(unknown) = args.scenarios.iter().find(|name| !all.iter().any(|one| one.name == **name)) {
        bail!("there is no scenario {unknown}; --list names them");
    }
    let wanted = |one: &Scenario| {
        (args.scenarios.is_empty() || args.scenarios.contains(&one.name)) && (!args.short || one.short)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

fn obtain(args: &Args, cache: &Path) -> Result<(Tools, Vec<Kernel>)> {
    packages::compiler()?;
    let tools = Tools::obtain(cache)?;
    let kernels = args.kernels.iter().map(|series| Kernel::obtain(cache, series));
    Ok((tools, kernels.collect::<Result<_>>()?))
}

fn run(
    ready: &[Ready],
    scenarios: &[Scenario],
    tools: &Tools,
    accelerator: Accelerator,
    folder: &Path,
) -> Result<Vec<Done>> {
    let pairs = scenarios.iter().flat_map(|scenario| (0..ready.len()).map(move |kernel| (kernel, scenario)));
    let queue = Mutex::new(pairs);
    let done = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().map_err(|_| anyhow::anyhow!("another thread panicked"))?.next();
            let Some((kernel, scenario)) = next else { return Ok(()) };
            let Some(Ready { kernel: package, initramfs }) = ready.get(kernel) else { continue };
            let begun = now();
            let machine = Machine { kernel: package, tools, initramfs, accelerator, folder };
            let verdict = Verdict::of(&machine.run(scenario)?, scenario.boots);
            let seconds = begun.elapsed().as_secs_f32();
            let one = Done { kernel, scenario: scenario.clone(), verdict, seconds };
            say(&package.series, &one);
            done.lock().map_err(|_| anyhow::anyhow!("another thread panicked"))?.push(one);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })?;
    done.into_inner().map_err(|_| anyhow::anyhow!("a thread panicked"))
}

fn say(series: &str, done: &Done) {
    let Done { scenario, verdict, seconds, .. } = done;
    let word = if verdict.stands() { "PASS" } else { "FAIL" };
    println!("vm {series} {}: {word}, {} checks, {seconds:.1} s", scenario.name, verdict.passed);
    for failure in &verdict.failures {
        println!("  FAIL {failure}");
    }
    if !verdict.stands() {
        for line in &verdict.evidence {
            println!("  {line}");
        }
    }
}

fn report(args: &Args, ready: &[Ready], planned: usize, done: &[Done], seconds: f32) -> Result<Outcome> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut failed = 0;
    for one in done {
        let Some(Ready { kernel, .. }) = ready.get(one.kernel) else { continue };
        let differences = if one.verdict.golden.is_empty() {
            Vec::new()
        } else {
            golden::judge(&root, kernel, &one.verdict.golden, args.update_golden)?
        };
        for difference in &differences {
            println!("vm {} golden differs: {difference}", kernel.series);
        }
        for bar in &one.verdict.bars {
            println!("{bar} (Linux {})", kernel.series);
        }
        for figure in &one.verdict.figures {
            println!("vm {} {figure}", kernel.series);
        }
        failed += usize::from(!one.verdict.stands() || !differences.is_empty());
    }
    let passed = done.len() - failed;
    println!("test result: {passed} passed; {failed} failed; 0 ignored");
    let limit = if args.short { SHORT_S } else { WHOLE_S };
    let bars = bars(failed, (done.len(), planned), (seconds, limit));
    for (bar, is_kept) in &bars {
        println!("BAR vm {bar} {}", if *is_kept { "PASS" } else { "FAIL" });
    }
    // The short run is part of the test command, in which no check depends on time.
    let judged = if args.short { &bars[..2] } else { &bars[..] };
    Ok(if judged.iter().all(|(_, is_kept)| *is_kept) { Outcome::Passed } else { Outcome::Failed })
}

/// The limits of a run, and whether each was kept. The run fails if one was not.
fn bars(failed: usize, (run, planned): (usize, usize), (seconds, limit): (f32, f32)) -> [(String, bool); 3] {
    [
        (format!("failed-scenarios {failed} 0"), failed == 0),
        (format!("scenarios-run {run} {planned}"), run == planned),
        (format!("seconds {seconds:.0} {limit:.0}"), seconds <= limit),
    ]
}

#[expect(clippy::disallowed_methods, reason = "the time of a run is what a person wants to know")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_failed_or_did_not_run_and_a_run_that_took_too_long_are_bars_that_are_missed() {
        let kept =
            |failed, run, seconds| bars(failed, (run, 48), (seconds, 720.0)).map(|(_, is_kept)| is_kept);
        assert_eq!(kept(0, 48, 720.0), [true; 3]);
        assert_eq!(kept(1, 48, 1.0), [false, true, true]);
        assert_eq!(kept(0, 47, 1.0), [true, false, true]);
        assert_eq!(kept(0, 48, 721.0), [true, true, false]);
        assert_eq!(bars(0, (48, 48), (638.2, 720.0))[2].0, "seconds 638 720");
    }
}
