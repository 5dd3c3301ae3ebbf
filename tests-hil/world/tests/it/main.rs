//! Everyday seeds, proof that a seed is one story, and proof that the judge sees what it is there for.

mod judged;
mod machine;
mod replay;
mod seeds;

/// A number from the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "what a person asks of this test, as of every other by RUST_ variables"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}
