//! That the world bites: with a kind of trouble that the operator does not bear yet, it is red. Whoever mends the operator
//! makes this test red, and then takes it away and gives the kind to `Plan::EVERYDAY`.

use world::script::Kind;
use world::{Plan, run};

#[test]
fn a_node_that_is_let_go_is_above_the_budget_and_that_is_seen() {
    let outcome = run(&Plan::with(1, &[Kind::Pods, Kind::Releases]));
    let breach = outcome.breaches.first().expect("a node is let go, and its watts are given to others");
    assert!(breach.watts > 500.0, "{breach:?}");
    let story = outcome.story();
    assert!(story.contains("joulie.io/") && story.contains("the originals come back"), "{story}");
}
