//! The experiments without the rest of `joulie`: `place compat|fair [SEED,..] [HTML]`.
use experiments::report::{Options, PlacementExperiment, simulate};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let experiment = match args.next().as_deref() {
        Some("fair") => PlacementExperiment::Fair,
        Some(_) | None => PlacementExperiment::Compat,
    };
    let seeds = args.next().unwrap_or_default();
    let seeds = seeds.split(',').filter_map(|seed| seed.parse().ok()).collect();
    let arms = std::env::var("ARMS").unwrap_or_default();
    let arms = arms.split(',').filter(|arm| !arm.is_empty()).map(str::to_owned).collect();
    let outcome = simulate(&Options { experiment, seeds, arms })?;
    std::io::stdout().write_all(outcome.table().as_bytes())?;
    if let Some(file) = args.next() {
        std::fs::write(file, outcome.html())?;
    }
    Ok(())
}
