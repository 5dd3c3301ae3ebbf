//! What the extender costs: `cargo xtask bench extender`, or `cargo run --release -p extender --example load`.
//!
//! First the decisions alone, in this process, beside what it costs to copy or to look at the same bytes. Then the shipped
//! program as a process of its own, over loopback, with an API server of this process that changes a thousand twins a
//! second, beside a server of the same kind that sends every body back.

mod bodies;
mod inside;
mod wire;

use std::error::Error;
use std::io::Write;

pub(crate) type Any = Box<dyn Error + Send + Sync>;

/// How many nodes there are.
pub(crate) const SIZES: [usize; 4] = [100, 500, 1_000, 5_000];

fn main() -> Result<(), Any> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [echo, at] = words.as_slice()
        && echo == "--echo"
    {
        return tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(wire::serve_echo(at));
    }
    if !words.iter().any(|word| word == "--wire") {
        inside::run()?;
    }
    if !words.iter().any(|word| word == "--inside") {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(wire::run())?;
    }
    Ok(())
}

pub(crate) fn tell(line: &str) -> Result<(), Any> {
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
