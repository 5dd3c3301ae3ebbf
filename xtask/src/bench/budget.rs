//! The laws that divide a power limit, on the same demand in virtual time: today's split, those of others, ours, and ours
//! with each part off (`hosts/virtual-cluster`).
//!
//! `cargo xtask bench budget [--mix A,B,…] [--seeds a..b] [--arm static,ours,…] [--machines N] [--minutes N] [--json]`,
//! both seeds included. With a mix or an arm only what was asked for runs; without them also the experiments on faults
//! and on hard demands.

mod json;
mod law;
mod options;

use anyhow::Result;
use options::Options;
use virtual_cluster::report::{Bars, text};
use virtual_cluster::trials::{Trial, TrialFault, hard, run_all};

/// Trials that run at a time.
const THREADS: usize = 2;

/// Prints the tables, the plot and the bars, or all of it as JSON.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = Options::read(words)?;
    let mut trials = Vec::new();
    for &mix in &options.mixes {
        for seed in options.seeds.clone() {
            let arms = options.arms.clone();
            trials.push(Trial { mix, fault: TrialFault::None, seed, arms, size: None });
        }
    }
    if options.is_whole {
        trials.extend(hard(*options.seeds.start()));
    }
    let tried = run_all(trials, (options.machines, options.minutes), THREADS);
    let mut bars = Bars::of(&tried);
    let law = options.is_whole.then(law::row);
    if let Some(row) = &law {
        bars.at_most("budget_tick_ms", row.nanos / 1e6, law::BAR_NANOS / 1e6);
        bars.at_most("budget_tick_allocations", row.allocations, 0.0);
    }
    if options.json {
        println!("{:#}", json::of(&options, &tried, &bars));
        return Ok(());
    }
    let Options { machines, minutes, seeds, .. } = &options;
    println!(
        "{machines} machines for {minutes} minutes, seeds {} to {}; an experiment on one seed takes the first. Orders and \
        writes are those of 5,000 machines. *use* is what is drawn of the limit while the demand is above it, *served* \
        the energy above idle, of what a clairvoyant serves who divides anew each half second.\n",
        seeds.start(),
        seeds.end()
    );
    println!("{}", text(&tried));
    print!("{}", bars.lines());
    Ok(())
}
