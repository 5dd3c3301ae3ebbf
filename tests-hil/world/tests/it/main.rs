//! The daily seeds, those in which a part is of the version before, a test that a run can be repeated exactly, and a test that the judge
//! detects breaches.

mod armed;
mod judged;
mod machine;
mod older;
mod replay;
mod seeds;
mod sleep;

/// A number from the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "what a person asks of this test, as of every other by RUST_ variables"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}
