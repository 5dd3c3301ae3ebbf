//! The program of `cargo xtask bench scheduler`. It is also the echo server that it measures: `scheduler-bench echo
//! ADDRESS`.
#![expect(clippy::print_stdout, reason = "it talks to the person who started it")]

use std::process::ExitCode;
use system::SystemError;
use system::bench::{self, BenchPrograms, SIZES, Size};
use system::echo::{self, Scores};

const USAGE: &str =
    "usage: scheduler-bench [--burst] [--nodes N...]   or   scheduler-bench echo ADDRESS [--empty]";

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
        ["--burst"] => run(&[Size { rounds: 0, ..SIZES[0] }]),
        ["--nodes", numbers @ ..] => {
            let numbers = numbers
                .iter()
                .map(|number| Ok(number.parse()?))
                .collect::<Result<Vec<u32>, SystemError>>()?;
            measure(&numbers)
        }
        [] => measure(&SIZES.map(|size| size.nodes)),
        _ => Err(USAGE.into()),
    }
}

fn serve(at: &str, scores: Scores) -> Result<(), SystemError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { Ok(echo::serve(tokio::net::TcpListener::bind(at).await?, scores).await?) })
}

fn measure(nodes: &[u32]) -> Result<(), SystemError> {
    let known: Vec<_> = SIZES.into_iter().filter(|size| nodes.contains(&size.nodes)).collect();
    if known.len() < nodes.len() {
        return Err(format!("{USAGE}; N is one of {:?}", SIZES.map(|size| size.nodes)).into());
    }
    run(&known)
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
