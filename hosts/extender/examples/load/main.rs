//! What the extender costs: `cargo xtask bench extender`, or `cargo run --release -p extender --example load`.
//!
//! First it measures the decisions alone in this process, compares them with the cost of copying the same bytes, and
//! checks them against their limits. Then it measures the shipped program over loopback, with an API server that
//! changes a thousand twins a second, and compares it with a server of the same kind that returns every body. Each of
//! the three is a process of its own.
//!
//! `--inside` and `--wire` do one half, `--gpus` does what is about pods with GPUs, `--memory` only says how much memory the program
//! has in clusters of several sizes, and `--soak SECONDS` is `cargo xtask bench soak`.

mod api;
mod bodies;
mod churn;
mod inside;
mod lives;
mod soak;
mod wire;

use std::error::Error;
use std::io::Write;
use std::process::Child;

pub(crate) type Any = Box<dyn Error + Send + Sync>;

/// The cluster sizes in nodes.
pub(crate) const SIZES: [usize; 4] = [100, 500, 1_000, 5_000];

fn main() -> Result<(), Any> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--echo", at] => return runtime()?.block_on(wire::serve_echo(at)),
        ["--soak", seconds] => return runtime()?.block_on(soak::run(seconds.parse()?)),
        ["--memory"] => return runtime()?.block_on(wire::memory()),
        ["--gpus"] => {
            inside::gpus()?;
            return runtime()?.block_on(wire::gpus());
        }
        ["--api", nodes, words @ ..] => return runtime()?.block_on(api::serve(nodes, words)),
        _ => {}
    }
    if !words.contains(&"--wire") {
        inside::run()?;
    }
    if !words.contains(&"--inside") {
        runtime()?.block_on(wire::run())?;
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// A process, which is stopped when this is dropped.
pub(crate) struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

pub(crate) fn tell(line: &str) -> Result<(), Any> {
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
