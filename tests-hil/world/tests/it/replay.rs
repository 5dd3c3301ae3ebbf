//! One seed is one story.

use std::time::Duration;
use world::{Plan, run};

#[test]
fn a_seed_plays_again_bit_for_bit() {
    let plan = Plan { hour: Duration::from_secs(1200), ..Plan::with(1, Plan::EVERYDAY) };
    let (one, other) = (run(&plan), run(&plan));
    assert_eq!(one.counts, other.counts);
    assert_eq!(one.hash, other.hash);
    assert_ne!(one.hash, run(&Plan { seed: 2, ..plan }).hash, "another seed is another story");
}
