//! The experiments without the rest of `joulie`: `place compat|fair|ablation|caps [SEED,..] [FOLDER]`, or
//! `place replay TRACE`. The folder gets the plots and the JSON.
use experiments::report::{Options, PlacementExperiment, replay, simulate};
use experiments::trace::ReadTrace;
use std::io::{BufReader, Write};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let experiment = match args.next().as_deref() {
        Some("fair") => PlacementExperiment::Fair,
        Some("ablation") => PlacementExperiment::Ablation,
        Some("caps") => PlacementExperiment::Caps,
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
    let outcome = simulate(&Options { experiment, seeds, arms: Vec::new() }, &mut |_, _| ())?;
    std::io::stdout().write_all(outcome.table().as_bytes())?;
    if let Some(folder) = args.next().map(PathBuf::from) {
        for (name, svg) in outcome.plots() {
            std::fs::write(folder.join(name), svg)?;
        }
        std::fs::write(folder.join("result.json"), outcome.json().to_string())?;
    }
    Ok(())
}
