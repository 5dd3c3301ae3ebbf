//! The project's own commands. `cargo xtask` lists them.
#![expect(clippy::print_stdout, reason = "a command talks to the person who called it")]

mod bench;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["bench", names @ ..] => bench::run(names),
        _ => bail!("usage: cargo xtask bench [NAME ...]"),
    }
}
