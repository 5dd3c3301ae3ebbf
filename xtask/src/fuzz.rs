//! Runs every fuzz target with libFuzzer, each for a limited time. If a tool is missing, it fails and says what to
//! install, and never skips.
//!
//! New inputs are stored below `target/fuzz`; the seeds in `fuzz/corpus` are only read. For an input that breaks a
//! target it prints the command that runs it again. Such an input belongs in `fuzz/regressions`, where the everyday
//! tests run it too.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const DEFAULT_SECONDS: u32 = 20;
/// The version that was used; a later one may work as well.
const INSTALL_CARGO_FUZZ: &str = "cargo install cargo-fuzz --version 0.13.2 --locked";
const INSTALL_NIGHTLY: &str = "rustup toolchain install nightly --profile minimal";

/// Runs all targets, and fails if any of them broke.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let seconds = seconds(arguments)?;
    let folder = root.join("fuzz");
    have(
        "rustc +nightly",
        Command::new("rustup").args(["run", "nightly", "rustc", "--version"]),
        INSTALL_NIGHTLY,
    )?;
    have("cargo-fuzz", Command::new("cargo").args(["fuzz", "--version"]), INSTALL_CARGO_FUZZ)?;
    println!("== building");
    let built = cargo_fuzz(&folder, "build").args(["--target-dir", "../target/fuzz"]).status()?;
    if !built.success() {
        bail!("the fuzz targets do not build");
    }
    let list = super::succeed(&mut cargo_fuzz(&folder, "list"))?;
    let programs = root.join("target/fuzz").join(host()?).join("release");
    let mut broken = Vec::new();
    for name in String::from_utf8(list.stdout)?.lines() {
        if let Err(error) = one(root, &programs, name, seconds) {
            println!("{error:#}");
            broken.push(name.to_owned());
        }
    }
    if broken.is_empty() { Ok(()) } else { bail!("broken: {}", broken.join(", ")) }
}

fn seconds(arguments: &[&str]) -> Result<u32> {
    match arguments {
        [] => Ok(DEFAULT_SECONDS),
        ["--seconds", number] => match number.parse() {
            // For libFuzzer zero means no time limit.
            Ok(seconds) if seconds > 0 => Ok(seconds),
            Ok(_) | Err(_) => bail!("--seconds {number}: expected a whole number of seconds above zero"),
        },
        other => bail!("{}: expected --seconds N or nothing", other.join(" ")),
    }
}

fn have(what: &str, command: &mut Command, install: &str) -> Result<()> {
    let answers = command.output().is_ok_and(|output| output.status.success());
    if answers { Ok(()) } else { bail!("{what} is not there; install it with: {install}") }
}

/// Runs cargo-fuzz in the folder of the library, with the compiler whose sanitizers it uses.
fn cargo_fuzz(folder: &Path, verb: &str) -> Command {
    let mut cargo = Command::new("rustup");
    cargo.current_dir(folder).args(["run", "nightly", "cargo", "fuzz", verb, "--fuzz-dir", "targets"]);
    // Otherwise the toolchain of this process would be inherited.
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    cargo
}

/// The target triple of this machine, which is a part of cargo-fuzz's output path.
fn host() -> Result<String> {
    let version = super::succeed(Command::new("rustc").arg("-vV"))?;
    let version = String::from_utf8(version.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn one(root: &Path, programs: &Path, name: &str, seconds: u32) -> Result<()> {
    let found = root.join("target/fuzz/corpus").join(name);
    let artifacts = root.join("target/fuzz/artifacts").join(name);
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let mut program = Command::new(programs.join(name));
    program.current_dir(root).arg(format!("-max_total_time={seconds}"));
    program.args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"]);
    program.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&found);
    let known = ["corpus", "regressions"].map(|kind| root.join("fuzz").join(kind).join(name));
    program.args(known.iter().filter(|folder| folder.is_dir()));
    let output = program.output().with_context(|| format!("starting {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}", report(name, &said, input(&said).as_deref()));
    }
    let count = |what: &str| stat(&said, what).unwrap_or(0);
    let (runs, rate) = (count("number_of_executed_units"), count("average_exec_per_sec"));
    if runs == 0 {
        bail!("{name}: libFuzzer tells no number of runs:\n{said}");
    }
    println!("{name}: {runs} inputs, {rate} a second, nothing found");
    Ok(())
}

/// A number in the lines `stat::NAME: NUMBER` at the end of libFuzzer's output.
fn stat(said: &str, name: &str) -> Option<u64> {
    let rest = said.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
    rest.trim_start_matches(':').trim().parse().ok()
}

/// The file to which libFuzzer has written the input.
fn input(said: &str) -> Option<PathBuf> {
    said.lines()
        .find_map(|line| line.split_once("Test unit written to "))
        .map(|(_, path)| PathBuf::from(path.trim()))
}

fn report(name: &str, said: &str, input: Option<&Path>) -> String {
    let panic = said.lines().skip_while(|line| !line.contains("panicked at")).take(4);
    let why: Vec<&str> = panic.take_while(|line| !line.starts_with("stack backtrace")).collect();
    let tail: Vec<&str> = said.lines().rev().take(12).collect();
    let why = if why.is_empty() { tail.into_iter().rev().collect() } else { why };
    let Some(input) = input else {
        return format!("{name}: broke without an input of its own:\n  {}", why.join("\n  "));
    };
    let (input, why) = (input.display(), why.join("\n  "));
    format!(
        "{name}: broken by {input}\n  {why}\n\
         again:\n  (cd fuzz && cargo +nightly fuzz run --fuzz-dir targets --target-dir ../target/fuzz {name} {input})\n\
         on the everyday compiler, and from then on in every test run:\n  \
         mkdir -p fuzz/regressions/{name} && cp {input} fuzz/regressions/{name}/ && cargo test -p fuzz {name}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_time_above_zero_is_a_time() {
        assert_eq!(seconds(&[]).unwrap(), DEFAULT_SECONDS);
        assert_eq!(seconds(&["--seconds", "60"]).unwrap(), 60);
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["60"]] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_missing_is_told_with_the_command_that_installs_it() {
        let error = have("a thing", &mut Command::new("/nowhere/thing"), INSTALL_NIGHTLY).unwrap_err();
        assert!(error.to_string().ends_with(INSTALL_NIGHTLY), "{error}");
    }

    #[test]
    fn a_finding_is_told_with_its_input_and_the_way_to_run_it_again() {
        let said = "INFO: seed corpus\nthread '<unnamed>' panicked at fuzz/src/key.rs:10:9:\nassertion failed\n\
                    stack backtrace:\n  0: x\nartifact_prefix='/r/'; Test unit written to /r/crash-1a\nBase64: AA==";
        let told = report("key", said, input(said).as_deref());
        assert!(told.starts_with("key: broken by /r/crash-1a\n"), "{told}");
        assert!(
            told.contains("assertion failed\nagain:") && told.contains("fuzz/regressions/key/"),
            "{told}"
        );
        assert!(told.contains("--fuzz-dir targets --target-dir ../target/fuzz key /r/crash-1a)"), "{told}");
    }

    #[test]
    fn the_counts_are_read_off_the_end() {
        let said = "Done 7\nstat::number_of_executed_units: 4711\nstat::average_exec_per_sec:     235\n";
        assert_eq!(
            (stat(said, "number_of_executed_units"), stat(said, "average_exec_per_sec")),
            (Some(4711), Some(235))
        );
        assert_eq!(stat(said, "peak_rss_mb"), None);
    }
}
