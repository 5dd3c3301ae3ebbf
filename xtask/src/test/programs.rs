//! The test programs of the workspace: builds them with cargo, and runs two at a time.
//!
//! Many tests wait for a lease to expire, for a controller, or for a process to start, so running one program at a
//! time would leave the processors idle. Of the programs that start a control plane only one runs at a time, because
//! that of the whole system has two at once, and more of them would overload two processors.

use super::followed::{Followed, now};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The packages whose tests start a control plane.
const CONTROL_PLANES: [&str; 4] = ["system", "install", "cluster", "conformance"];

/// The jobs that begin first, by the beginning of their names: those that take longest, the longest first and of these those that wait
/// most, beside `system`. One that began late would run alone at the end.
const FIRST: [&str; 17] = [
    "system it",
    "joulie it",
    "operator",
    "agent",
    "world",
    "hardware",
    "node-kit",
    "vm --built",
    "system",
    "hal-cpufreq",
    "embedded-api",
    "cluster",
    "install",
    "hal-nvidia",
    "xtask",
    "image",
    "conformance",
];

/// Programs at a time. With a third one stories that wait for real time were late, and all of them together took as long.
const AT_ONCE: usize = 2;

/// The programs whose tests wait most of their time, for a lease, a report, an alert or a driver, and how many of their tests run
/// at a time: so many that the program takes little longer than its longest test, which of `system` is the last by its name and must not
/// wait for another one to end. Of another program's tests as many run as there are processors.
const WAITING: [(&str, &str); 5] =
    [("system it", "7"), ("operator it", "10"), ("joulie it", "5"), ("agent it", "6"), ("hardware it", "4")];

/// Of the programs that wait in real time, beside others on few processors, this many failed tests are tried once more. More that fail
/// at once are no matter of time.
const SECOND_TRIES: usize = 3;

/// For how long a program may run before it is ended, so that one that hangs does not hold the others. The longest takes ten minutes on
/// two processors, and the first on a machine builds a control plane besides.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// So many times that long where tests wait as long as in a cluster.
const LONGER: u32 = 3;

/// The variable that says how many tests of a program run at a time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// How many tests of a program run at a time, where that differs from others. What a person has set is left alone.
fn at_a_time(program: &str, is_set: bool) -> Option<&'static str> {
    let waiting = WAITING.iter().find(|(name, _)| program.starts_with(name)).filter(|_| !is_set);
    waiting.map(|(_, tests)| *tests)
}

/// A command to run.
pub(super) struct Job {
    /// Its name in the output.
    pub(super) name: String,
    command: Command,
    /// Whether it must not run at the same time as another such job.
    brings_up_a_control_plane: bool,
    /// Whether its tests wait in real time, so that one that fails is tried once more.
    is_in_real_time: bool,
    /// For how long it may run.
    limit: Duration,
}

/// The result of a job.
pub(super) struct Ended {
    /// Its name in the output.
    pub(super) name: String,
    /// Its whole output.
    pub(super) output: String,
    /// Whether its exit status was 0, if need be at the second try.
    pub(super) succeeded: bool,
    /// Whether it was ended because it ran too long.
    pub(super) hung: bool,
    /// The tests that failed, and passed at the second try.
    pub(super) unsteady: Vec<String>,
    /// How long it ran.
    pub(super) took: Duration,
}

impl Job {
    /// A job with any command.
    pub(super) fn new(name: &str, command: Command) -> Self {
        let name = name.to_owned();
        Self { name, command, brings_up_a_control_plane: false, is_in_real_time: false, limit: LIMIT }
    }

    /// Sets a variable of its environment.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.command.env(name, value);
    }

    /// Its tests wait as long as in a cluster.
    pub(super) fn takes_longer(&mut self) {
        self.limit = LIMIT * LONGER;
    }

    fn run(mut self) -> Ended {
        let began = now();
        let Followed { mut succeeded, mut hung, mut output } = self.followed();
        let failed = if self.is_in_real_time && !hung { failed_tests(&output) } else { Vec::new() };
        let mut unsteady = Vec::new();
        if !succeeded && (1..=SECOND_TRIES).contains(&failed.len()) {
            self.command.arg("--exact").args(&failed);
            let second = self.followed();
            hung = second.hung;
            let passed = second.succeeded && all_passed(&second.output, failed.len(), &output);
            output.push_str("\n-- the failed tests once more\n");
            output.push_str(&second.output);
            if passed {
                (succeeded, unsteady) = (true, failed);
            }
        }
        Ended { name: self.name, output, succeeded, hung, unsteady, took: began.elapsed() }
    }

    fn followed(&mut self) -> Followed {
        self.follow().unwrap_or_else(|error| Followed::failed(format!("{error:#}\n")))
    }

    /// Standard output and standard error, in the order in which they were written.
    fn follow(&mut self) -> Result<Followed> {
        let (reader, writer) = std::io::pipe()?;
        self.command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = self.command.spawn().with_context(|| format!("starting {}", self.name))?;
        // The command holds the write end of the pipe, which must be closed so that the output ends.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Followed::of(child, reader, self.limit))
    }
}

/// Builds every test program, and returns them as jobs; `None` if the build failed, whose errors cargo has printed.
pub(super) fn build(root: &Path) -> Result<Option<Vec<Job>>> {
    let built = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo test --no-run")?;
    if !built.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8(built.stdout).context("the output of cargo")?;
    let jobs = text.lines().filter_map(|line| job(line).transpose()).collect::<Result<Vec<_>>>()?;
    ensure!(!jobs.is_empty(), "cargo built no test program");
    Ok(Some(jobs))
}

/// The test program in a line of cargo's output.
fn job(line: &str) -> Result<Option<Job>> {
    let message: Value = serde_json::from_str(line).with_context(|| format!("reading {line}"))?;
    let Some(executable) = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)
    else {
        return Ok(None);
    };
    let manifest =
        PathBuf::from(message["manifest_path"].as_str().context("an artifact without a manifest")?);
    let folder = manifest.parent().context("a manifest lies in a folder")?;
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let target = message["target"]["name"].as_str().unwrap_or_default();
    let mut command = Command::new(executable);
    // The same environment as with cargo.
    command
        .arg("--show-output")
        .current_dir(folder)
        .env("CARGO_MANIFEST_DIR", folder)
        .env("CARGO", env!("CARGO"));
    let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
    let name = format!("{package} {target} ({kind})");
    #[expect(clippy::disallowed_methods, reason = "the variable is of Rust's own test programs")]
    let set = std::env::var_os(TEST_THREADS);
    if let Some(tests) = at_a_time(&name, set.is_some()) {
        command.env(TEST_THREADS, tests);
    }
    let brings_up_a_control_plane = kind == "test" && CONTROL_PLANES.contains(&package.as_ref());
    let is_in_real_time =
        brings_up_a_control_plane || WAITING.iter().any(|(program, _)| name.starts_with(program));
    Ok(Some(Job { brings_up_a_control_plane, is_in_real_time, ..Job::new(&name, command) }))
}

/// The names in the last list of failed tests of a test program's output.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// Whether a second try ran and passed that many tests. A program that finds none of the names ends well too, and so does a test that
/// looked at the first try and could not at the second.
fn all_passed(second: &str, tests: usize, first: &str) -> bool {
    let result = format!("test result: ok. {tests} passed;");
    let skipped = |output: &str| output.lines().filter(|line| line.starts_with("SKIP(")).count();
    second.lines().any(|line| line.contains(&result)) && skipped(second) <= skipped(first)
}

/// The place of a job in the order.
fn place(job: &Job) -> usize {
    FIRST.iter().position(|first| job.name.starts_with(first)).unwrap_or(FIRST.len())
}

/// Runs all jobs, [`AT_ONCE`] at a time, and passes each to `ended` when it has ended.
pub(super) fn run(mut jobs: Vec<Job>, ended: impl FnMut(&Ended) + Send) {
    jobs.sort_by_key(place);
    let queue = Mutex::new(Queue { waiting: jobs.into(), control_plane_runs: false });
    let ended = Mutex::new(ended);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| work(&queue, &ended));
        }
    });
}

fn work(queue: &Mutex<Queue>, ended: &Mutex<impl FnMut(&Ended)>) {
    loop {
        let Some(job) = queue.lock().unwrap_or_else(PoisonError::into_inner).next() else { return };
        let held = job.brings_up_a_control_plane;
        let outcome = job.run();
        if held {
            queue.lock().unwrap_or_else(PoisonError::into_inner).control_plane_runs = false;
        }
        (ended.lock().unwrap_or_else(PoisonError::into_inner))(&outcome);
    }
}

struct Queue {
    waiting: VecDeque<Job>,
    control_plane_runs: bool,
}

impl Queue {
    /// The first job that may run now. A blocked job is left for the worker that runs the blocking one, which takes
    /// it next.
    fn next(&mut self) -> Option<Job> {
        let may_run = |job: &Job| !(job.brings_up_a_control_plane && self.control_plane_runs);
        let at = self.waiting.iter().position(may_run)?;
        let job = self.waiting.remove(at)?;
        self.control_plane_runs |= job.brings_up_a_control_plane;
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job_of(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { brings_up_a_control_plane: name.starts_with("plane"), ..Job::new(name, command) }
    }

    #[test]
    fn a_job_is_told_with_its_output_and_its_status() {
        let mut told = Vec::new();
        let jobs = vec![job_of("good", "echo a; echo b >&2"), job_of("bad", "echo c; exit 3")];
        run(jobs, |ended| told.push((ended.name.clone(), ended.output.clone(), ended.succeeded)));
        told.sort();
        let expected = [("bad", "c\n", false), ("good", "a\nb\n", true)];
        assert_eq!(told, expected.map(|(name, output, good)| (name.into(), output.into(), good)));
    }

    /// A program whose tests `m::a` and `m::b` fail at the first try; the second ends so.
    fn unsteady(second: &str, is_in_real_time: bool) -> Ended {
        let script = format!(
            "case \"$*\" in *--exact*) echo \"$*\"; {second};; esac
             printf 'failures:\n\nwhy\n\nfailures:\n    m::a\n    m::b\n\ntest result: FAILED\n'; exit 101"
        );
        let mut job = job_of("unsteady", &script);
        job.command.arg("program");
        Job { is_in_real_time, ..job }.run()
    }

    const GOOD: &str = "echo 'test result: ok. 2 passed; 0 failed'; exit 0";

    #[test]
    fn a_failed_test_in_real_time_is_tried_once_more_and_told() {
        let ended = unsteady(GOOD, true);
        assert!(ended.succeeded);
        assert_eq!(ended.unsteady, ["m::a", "m::b"]);
        assert!(ended.output.contains("why"), "the reason of the first try is kept: {}", ended.output);
        assert!(ended.output.contains("\n--exact m::a m::b\n"), "{}", ended.output);
    }

    #[test]
    fn a_test_that_fails_twice_has_failed_and_so_has_one_of_another_program() {
        for ended in [unsteady("exit 101", true), unsteady(GOOD, false)] {
            assert!(!ended.succeeded && ended.unsteady.is_empty(), "{}", ended.output);
        }
    }

    #[test]
    fn a_second_try_in_which_not_all_tests_ran_is_no_pass() {
        let none = "echo 'test result: ok. 0 passed; 0 failed'; exit 0";
        let skipped = format!("echo 'SKIP(no helm)'; {GOOD}");
        for second in ["exit 0", none, &skipped] {
            let ended = unsteady(second, true);
            assert!(!ended.succeeded && ended.unsteady.is_empty(), "{}", ended.output);
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_told_and_the_next_one_runs() {
        let hangs = |name: &str, script: &str| Job { limit: Duration::from_secs(2), ..job_of(name, script) };
        let failures = "printf 'failures:\n\nwhy\n\nfailures:\n    m::a\n\n'; sleep 1000";
        let listed = Job { is_in_real_time: true, ..hangs("plane 1", failures) };
        let mut told = Vec::new();
        run(vec![listed, job_of("plane 2", "echo well")], |ended| {
            told.push((ended.name.clone(), ended.succeeded, ended.hung, ended.output.clone()));
        });
        let [(first, false, true, output), (second, true, false, well)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((first.as_str(), second.as_str(), well.as_str()), ("plane 1", "plane 2", "well\n"));
        assert!(output.starts_with("failures:"), "{output}");
        assert!(output.contains("\nended after 2 s: it ran too long\n"), "{output}");
        assert!(!output.contains("once more"), "what hangs is not tried again: {output}");
    }

    #[test]
    fn a_program_that_cannot_be_started_has_failed() {
        let mut told = Vec::new();
        let jobs = vec![Job::new("gone", Command::new("/nonexistent/program"))];
        run(jobs, |ended| told.push((ended.succeeded, ended.output.contains("starting gone"))));
        assert_eq!(told, [(false, true)]);
    }

    #[test]
    fn a_program_whose_tests_wait_runs_more_of_them_at_a_time_unless_a_person_has_said_how_many() {
        let names = ["operator it (test)", "operator operator (lib)", "world it (test)"];
        assert_eq!(names.map(|name| at_a_time(name, false)), [Some("10"), None, None]);
        assert_eq!(names.map(|name| at_a_time(name, true)), [None; 3]);
        for (package, target, kind) in [("operator", "it", "test"), ("world", "it", "test")] {
            let message = serde_json::json!({
                "executable": "/target/debug/deps/program", "profile": {"test": true},
                "manifest_path": format!("/hosts/{package}/Cargo.toml"), "target": {"name": target, "kind": [kind]},
            });
            let job = job(&message.to_string()).unwrap().unwrap();
            let threads = job.command.get_envs().find(|(name, _)| *name == TEST_THREADS);
            let threads = threads.and_then(|(_, number)| number?.to_str());
            // Whoever runs this test may have set it.
            let is_set = std::env::vars_os().any(|(name, _)| name == TEST_THREADS);
            assert_eq!(threads, at_a_time(&job.name, is_set), "{}", job.name);
        }
    }

    #[test]
    fn the_longest_begin_first_whoever_made_the_job() {
        let mut jobs = [
            "judge judge (lib)",
            "vm vm (bin)",
            "vm --built --short",
            "joulie it (test)",
            "system it (test)",
        ]
        .map(|name| job_of(name, "true"));
        jobs.sort_by_key(place);
        assert_eq!(
            jobs.map(|job| job.name),
            [
                "system it (test)",
                "joulie it (test)",
                "vm --built --short",
                "judge judge (lib)",
                "vm vm (bin)"
            ]
        );
    }

    #[test]
    fn two_control_planes_are_not_up_at_once_and_nothing_else_waits_for_one() {
        let mut queue = Queue {
            waiting: ["plane 1", "plane 2", "other"].map(|name| job_of(name, "true")).into_iter().collect(),
            control_plane_runs: false,
        };
        let mut next = || queue.next().map(|job| job.name);
        assert_eq!(next().as_deref(), Some("plane 1"));
        assert_eq!(next().as_deref(), Some("other"));
        assert_eq!(next(), None);
        queue.control_plane_runs = false;
        assert_eq!(queue.next().map(|job| job.name).as_deref(), Some("plane 2"));
    }
}
