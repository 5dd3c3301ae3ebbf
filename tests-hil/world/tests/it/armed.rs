//! Hours of PowerEvents: nothing above the limit, and every agent that has heard of an event keeps to what it leaves, while
//! operators and agents are killed and cut off.

use crate::number;
use world::{WorldPlan, run};

const EVERYDAY: u64 = 4;

#[test]
fn whoever_has_heard_of_an_event_keeps_to_what_it_leaves() {
    let seeds = match number("WORLD_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("WORLD_SEEDS").unwrap_or(EVERYDAY),
    };
    let (mut bad, mut events, mut seen) = (Vec::new(), 0, 0);
    for seed in seeds {
        let hour = run(&WorldPlan::armed(seed));
        let count = |what: &str| hour.counts.get(what).copied().unwrap_or(0);
        (events, seen) = (events + count("power events"), seen + count("nodes seen in events"));
        if !hour.is_good() {
            println!("{}\nseed {seed}: {:?} {:?} {}", hour.story(), hour.breaches, hour.failures, hour.used);
            bad.push(seed);
        }
    }
    println!("{events} events, {seen} seconds of nodes");
    assert!(bad.is_empty(), "WORLD_SEED=n cargo test -p world tells the story of one of {bad:?}");
    assert!(events > 0 && seen > 1_000, "{events} events, {seen} seconds of nodes");
}
