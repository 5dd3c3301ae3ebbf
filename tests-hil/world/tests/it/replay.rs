//! Two runs with the same seed are identical.

use std::time::Duration;
use world::{WorldPlan, run};

#[test]
fn a_seed_plays_again_bit_for_bit() {
    let plan = WorldPlan { hour: Duration::from_secs(1200), ..WorldPlan::with(1, WorldPlan::EVERYDAY) };
    let (one, other) = (run(&plan), run(&plan));
    assert_eq!(one.counts, other.counts);
    assert_eq!(one.hash, other.hash);
    assert_ne!(one.hash, run(&WorldPlan { seed: 2, ..plan }).hash, "another seed is another story");
}
