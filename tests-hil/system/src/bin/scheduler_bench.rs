//! The program of `cargo xtask bench scheduler`. It is also the echo server that it measures: `scheduler-bench echo
//! ADDRESS`.
#![expect(clippy::print_stdout, reason = "it talks to the person who started it")]

use std::process::ExitCode;
use system::SystemError;
use system::bench::{self, BenchPrograms, SIZES, Size};
use system::echo::{self, Scores};

const USAGE: &str = "usage: scheduler-bench [--burst] [--nodes N...] [--pairs ROUNDS [N...]]   or   scheduler-bench echo ADDRESS [--empty | --few]";

fn main() -> ExitCode {
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            println!("scheduler-bench: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<(), SystemError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["echo", at] => serve(at, Scores::Constant),
        ["echo", at, "--empty"] => serve(at, Scores::Empty),
        ["echo", at, "--few"] => serve(at, Scores::Few),
        ["--burst"] => run(&[Size { rounds: 0, ..SIZES[0] }]),
        ["--nodes", numbers @ ..] => run(&known(&parsed(numbers)?)?),
        ["--pairs", pairs, numbers @ ..] => {
            let pairs: u32 = pairs.parse()?;
            let numbers = if numbers.is_empty() { all() } else { parsed(numbers)? };
            let alone = |size: Size| Size { rounds: 0, pairs, ..size };
            run(&known(&numbers)?.into_iter().map(alone).collect::<Vec<_>>())
        }
        [] => run(&known(&all())?),
        _ => Err(USAGE.into()),
    }
}

fn serve(at: &str, scores: Scores) -> Result<(), SystemError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { Ok(echo::serve(tokio::net::TcpListener::bind(at).await?, scores).await?) })
}

fn all() -> Vec<u32> {
    SIZES.iter().map(|size| size.nodes).collect()
}

fn parsed(numbers: &[&str]) -> Result<Vec<u32>, SystemError> {
    numbers.iter().map(|number| Ok(number.parse()?)).collect()
}

/// The sizes with these numbers of nodes.
fn known(nodes: &[u32]) -> Result<Vec<Size>, SystemError> {
    let known: Vec<_> = SIZES.into_iter().filter(|size| nodes.contains(&size.nodes)).collect();
    if known.len() < nodes.len() {
        return Err(format!("{USAGE}; N is one of {:?}", SIZES.map(|size| size.nodes)).into());
    }
    Ok(known)
}

fn run(sizes: &[Size]) -> Result<(), SystemError> {
    let this = std::env::current_exe()?;
    let extender = this.with_file_name("system-extender");
    if !extender.exists() {
        return Err(
            format!("{} is not built; `cargo xtask bench scheduler` builds it", extender.display()).into()
        );
    }
    let programs = BenchPrograms { echo: this, extender };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(bench::run(&programs, sizes))
}
