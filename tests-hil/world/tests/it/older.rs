//! Hours in which a part is of the version before, as far as fields go: what one side does not know raises nobody. An older program is
//! not run here; docs/RELEASE.md says how one is.

use crate::number;
use world::{OlderPart, WorldPlan, run};

const EVERYDAY: u64 = 2;

#[test]
fn a_field_that_one_side_does_not_know_raises_nobody() {
    let seeds = match number("WORLD_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("WORLD_SEEDS").unwrap_or(EVERYDAY),
    };
    let mut bad = Vec::new();
    for (older, what) in [
        (OlderPart::Definitions, "writes with fields that are not stored"),
        (OlderPart::Agents, "messages with unknown fields"),
    ] {
        let mut dropped = 0;
        for seed in seeds.clone() {
            let hour = run(&WorldPlan::skewed(seed, older));
            dropped += hour.counts.get(what).copied().unwrap_or(0);
            if !hour.is_good() {
                println!(
                    "{}\n{older:?}, seed {seed}: {:?} {:?} {}",
                    hour.story(),
                    hour.breaches,
                    hour.failures,
                    hour.used
                );
                bad.push((older, seed));
            }
        }
        assert!(dropped > 20, "{older:?}: {dropped} {what}");
    }
    assert!(bad.is_empty(), "WORLD_SEED=n cargo test -p world tells the story of one of {bad:?}");
}
