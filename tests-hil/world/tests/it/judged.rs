//! A test that the judge detects a breach, by giving the operators a limit that is too high.

use world::script::EventKind;
use world::{WorldPlan, run};

#[test]
fn operators_that_are_told_too_much_are_found_out() {
    let outcome = run(&WorldPlan { told: 1.1, ..WorldPlan::with(1, &[EventKind::Pods, EventKind::Budgets]) });
    let breach =
        outcome.breaches.first().expect("the limits in force are a tenth above what the site may draw");
    assert!(breach.watts > 500.0, "{breach:?}");
    assert!(outcome.story().contains("InForce"), "{}", outcome.story());
}
