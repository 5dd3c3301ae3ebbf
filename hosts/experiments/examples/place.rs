//! The experiments without the rest of `joulie`: `place compat|fair|curves|ablation|caps [SEED,..] [FOLDER] [LAW,..]`,
//! `place replay TRACE`, or `place time`, how long runs of `compat` take. The folder gets the plots and the JSON;
//! for `-` there is none.
use experiments::compat::{self, ARMS};
use experiments::report::{Options, PlacementExperiment, replay, simulate};
use experiments::trace::ReadTrace;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let experiment = match args.next().as_deref() {
        Some("fair") => PlacementExperiment::Fair,
        Some("curves") => PlacementExperiment::Curves,
        Some("ablation") => PlacementExperiment::Ablation,
        Some("caps") => PlacementExperiment::Caps,
        Some("time") => return Ok(std::io::stdout().write_all(times().as_bytes())?),
        Some("replay") => {
            let file = std::fs::File::open(args.next().unwrap_or_default())?;
            let trace = ReadTrace::read(BufReader::new(file), 2.0)?;
            let outcome = replay(&trace, &[], &mut |_, _| ())?;
            std::io::stdout().write_all((trace.told() + &outcome.table()).as_bytes())?;
            return Ok(());
        }
        Some(_) | None => PlacementExperiment::Compat,
    };
    let seeds = args.next().unwrap_or_default();
    let seeds = seeds.split(',').filter_map(|seed| seed.parse().ok()).collect();
    let folder = args.next().filter(|folder| folder != "-").map(PathBuf::from);
    let arms = args.next().unwrap_or_default();
    let arms = arms.split(',').filter(|arm| !arm.is_empty()).map(str::to_owned).collect();
    let outcome = simulate(&Options { experiment, seeds, arms }, &mut |_, _| ())?;
    std::io::stdout().write_all(outcome.table().as_bytes())?;
    if let Some(folder) = folder {
        for (name, svg) in outcome.plots() {
            std::fs::write(folder.join(name), svg)?;
        }
        std::fs::write(folder.join("result.json"), outcome.json().to_string())?;
    }
    Ok(())
}

/// The best of three runs of each law on one core, without the drawing of the jobs.
#[expect(clippy::disallowed_methods, reason = "a benchmark is what the clock is for")]
fn times() -> String {
    let jobs = experiments::workload::jobs(42, 48);
    let mut slowest = 0.0_f64;
    let mut text = String::from("| law | s, best of 3 |\n|---|---|\n");
    for arm in ARMS {
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let start = Instant::now();
            std::hint::black_box(compat::run(arm, 42, &jobs, 48));
            best = best.min(start.elapsed().as_secs_f64());
        }
        text += &format!("| {} | {best:.2} |\n", arm.name());
        slowest = slowest.max(best);
    }
    let verdict = if slowest <= 1.0 { "PASS" } else { "FAIL" };
    text + &format!("\nBAR compat_run_seconds {slowest:.2} 1 {verdict}\n")
}
