//! The test command: what a change must pass before it lands, step by step, and a closing line that counts.

mod followed;
mod programs;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What random numbers the properties draw.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// What the test runner counted.
#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// The tests that failed, and passed at the second try.
    unsteady: Vec<String>,
    /// Why, as the tests say it.
    reasons: Vec<String>,
}

/// How long tests wait for what takes long in a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// As short as shows it.
    Short,
    /// As long as in a cluster.
    Real,
}

/// The variable by which the tests know that they are to wait as long as in a cluster.
const LONG: &str = "JOULIE_LONG";

/// Formatting, lints, tests and proofs; everything runs, and anything that failed is named at the end.
pub(crate) fn run(root: &Path, waits: Waits) -> Result<()> {
    let mut failures = Vec::new();
    for (name, arguments) in [
        ("format", &["fmt", "--all", "--check"][..]),
        ("lints", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"][..]),
    ] {
        println!("\n== {name}: cargo {}", arguments.join(" "));
        if !cargo(root, arguments).status().with_context(|| format!("starting cargo {name}"))?.success() {
            failures.push(name.to_owned());
        }
    }
    println!("\n== tests: cargo test --workspace --locked, two programs at a time");
    // The same commit gives the same verdict, wherever it runs.
    #[expect(clippy::disallowed_methods, reason = "the variable is proptest's own")]
    let seed = std::env::var(PROPERTY_SEED).unwrap_or_else(|_| "1".to_owned());
    println!("properties: {PROPERTY_SEED}={seed}; another number tries other cases");
    let mut count = Count::default();
    match programs::build(root)? {
        None => failures.push("the build of the tests".to_owned()),
        Some(mut jobs) => {
            let doc = cargo(root, &["test", "--workspace", "--locked", "--doc", "--no-fail-fast"]);
            jobs.extend([programs::Job::new("examples in documentation", doc), again(root, &["proofs"])?]);
            jobs.push(again(root, &["vm", "--built", "--short"])?);
            // Tests run each of the programs, so that their build has made all of them.
            let programs = here()?;
            let programs = programs.to_str().context("the folder of the programs has an odd name")?;
            jobs.push(again(root, &["image", "--programs", programs, "--check"])?);
            for job in &mut jobs {
                job.set(PROPERTY_SEED, &seed);
                // The place of a panic is in its message; frames would bury it.
                job.set("RUST_BACKTRACE", "0");
                if waits == Waits::Real {
                    job.set(LONG, "1");
                    job.takes_longer();
                }
            }
            let (mut outputs, mut panics) = (Vec::new(), Vec::new());
            programs::run(jobs, |ended| {
                println!("\n-- {}: {} s", ended.name, ended.took.as_secs());
                ended.output.lines().for_each(|line| count.add(line));
                ended.output.lines().filter(|line| is_result(line)).for_each(|line| println!("{line}"));
                count.passed_again(&ended.unsteady);
                if ended.hung {
                    // At once, since whoever waits for the run may end it before its last line.
                    println!("it ran too long and was ended; the last lines of its output:");
                    last_lines(&ended.output).for_each(|line| println!("    {line}"));
                    count.failed += 1;
                }
                if !ended.succeeded {
                    println!("failed; its output is at the end");
                    outputs.push(format!("\n-- {}\n{}", ended.name, ended.output.trim_end()));
                    failures.push(ended.name.clone());
                }
                if !ended.succeeded || !ended.unsteady.is_empty() {
                    let messages = messages(&ended.output).join("\n");
                    panics.push(format!("\n-- {}, its panics:\n{messages}", ended.name));
                }
            });
            // Last, so that whoever sees only the end of a log sees why.
            outputs.iter().chain(&panics).for_each(|output| println!("{output}"));
        }
    }
    for reason in &count.reasons {
        println!("{reason}");
    }
    for test in &count.unsteady {
        println!("UNSTEADY {test}: it failed, and passed at the second try");
    }
    println!("\ntotal: {} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    if count.passed == 0 {
        failures.push("no test ran".to_owned());
    }
    if failures.is_empty() { Ok(()) } else { bail!("failed: {}", failures.join("; ")) }
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(arguments);
    cargo
}

/// Where this program lies: cargo puts the others there too.
fn here() -> Result<PathBuf> {
    let this = std::env::current_exe().context("the path of this program")?;
    Ok(this.parent().context("a program lies in a folder")?.to_owned())
}

/// Another command of this very program.
fn again(root: &Path, words: &[&str]) -> Result<programs::Job> {
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.current_dir(root).args(words);
    Ok(programs::Job::new(&words.join(" "), command))
}

/// The end of an output.
fn last_lines(output: &str) -> impl Iterator<Item = &str> {
    const LINES: usize = 20;
    let lines: Vec<&str> = output.lines().collect();
    let first = lines.len().saturating_sub(LINES);
    lines.into_iter().skip(first)
}

/// Whether a line of a test program's output says how it went.
fn is_result(line: &str) -> bool {
    line.contains("test result: ") || ["SKIP(", "BAR ", "proof: "].iter().any(|word| line.starts_with(word))
}

/// The messages of panics in a test program's output, without what its programs logged around them.
fn messages(output: &str) -> Vec<&str> {
    const LONGEST: usize = 60;
    let mut messages = Vec::new();
    let mut lines = output.lines();
    while let Some(line) = lines.find(|line| line.contains("panicked at ")) {
        messages.push(line);
        let ends = |line: &&str| {
            !line.is_empty() && !line.starts_with("note: ") && !line.starts_with("stack backtrace")
        };
        messages.extend(lines.by_ref().take_while(ends).take(LONGEST));
    }
    messages
}

impl Count {
    /// Tests that were counted as failed at the first try, and as passed at the second.
    fn passed_again(&mut self, tests: &[String]) {
        self.failed = self.failed.saturating_sub(tests.len().try_into().unwrap_or(u64::MAX));
        self.unsteady.extend_from_slice(tests);
    }

    /// Reads `test result: ok. 27 passed; 0 failed; 0 ignored; ...`, and `SKIP(reason)` where a test could not look.
    fn add(&mut self, line: &str) {
        if line.starts_with("SKIP(") {
            self.skipped += 1;
            self.reasons.push(line.to_owned());
        }
        let Some((_, result)) = line.split_once("test result: ") else { return };
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_panic_is_found_between_what_programs_log() {
        let output = "WARN a\n\nthread 'x' (7) panicked at tests/it/a.rs:1:2:\nnot in a minute: it goes\n2 rights\n\
                      note: run with `RUST_BACKTRACE=1`\nWARN b\ntest x ... FAILED\n";
        assert_eq!(
            messages(output),
            ["thread 'x' (7) panicked at tests/it/a.rs:1:2:", "not in a minute: it goes", "2 rights"]
        );
        assert!(messages("test x ... ok\n").is_empty());
    }

    #[test]
    fn of_a_long_output_the_end_is_shown() {
        let long: String = (0..50).map(|line| format!("{line}\n")).collect();
        assert!(last_lines(&long).eq((30..50).map(|line| line.to_string())));
        assert!(last_lines("a\nb").eq(["a", "b"]));
    }

    #[test]
    fn what_the_runner_reports_is_counted() {
        let mut count = Count::default();
        count.add(
            "test result: ok. 27 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        count.add("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        count.add("test a::b ... ok");
        count.add("SKIP(no /dev/fuse)");
        assert_eq!((count.passed, count.failed, count.skipped), (29, 3, 2));
        assert_eq!(count.reasons, ["SKIP(no /dev/fuse)"]);
        count.passed_again(&["a::c".to_owned()]);
        assert_eq!((count.failed, count.unsteady), (2, vec!["a::c".to_owned()]));
    }
}
