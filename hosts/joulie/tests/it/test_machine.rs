//! A mounted virtual machine, and the binary that runs on it.

use rig::machine::RigMachine;
use rig::test_machine;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Generous, for a busy machine; a successful run does not need it.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct TestMachine(test_machine::TestMachine);

impl Deref for TestMachine {
    type Target = test_machine::TestMachine;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The output and the exit code of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The output of a command that must have this exit code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self.out
    }
}

impl TestMachine {
    /// `None`, with a message, if mounting is not possible.
    pub(crate) fn profile(name: &str) -> Option<Self> {
        Self::of(name, |_| {})
    }

    /// The same, after `change` has modified the machine.
    pub(crate) fn of(name: &str, change: impl FnOnce(&mut RigMachine)) -> Option<Self> {
        let mut machine = test_machine::TestMachine::running(name);
        change(&mut machine);
        test_machine::TestMachine::with_room(machine).map(Self)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.0.join("root.joulie")
    }

    /// `joulie node` with these arguments, on this machine.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = joulie(words);
        command.arg("--root").arg(self.root());
        command
    }

    /// The same on the real paths, inside a mount namespace; `None`, with a message, if that is not possible.
    pub(crate) fn run_inside(&self, words: &[&str]) -> Option<Said> {
        // On a machine without /dev/cpu as a mount point all of /dev is covered: the command opens nothing else
        // there.
        const MOUNT: &str = r#"set -e
mount --bind "$0/sys" /sys
if [ -d /dev/cpu ]; then mount --bind "$0/dev/cpu" /dev/cpu; else mount --bind "$0/dev" /dev; fi
echo namespace-ready >&2
exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", MOUNT]).arg(self.root());
        command.arg(env!("CARGO_BIN_EXE_joulie")).arg("node").args(words).arg("--state").arg(self.state());
        let said = match command.stdin(Stdio::piped()).output() {
            Ok(output) => Said::of(output),
            Err(error) => Said { code: None, out: String::new(), err: error.to_string() },
        };
        if said.err.contains("namespace-ready") {
            return Some(said);
        }
        println!("SKIP(no mount namespace here: {})", said.err);
        None
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        Said::of(self.command(words).output().unwrap())
    }

    /// Starts the command, and returns when its output contains this text.
    pub(crate) fn start(&self, words: &[&str], until: &str) -> Running {
        self.start_command(self.command(words), until)
    }

    /// Starts a command of [`Self::command`] that the caller has changed.
    pub(crate) fn start_command(&self, mut command: Command, until: &str) -> Running {
        let log = self.folder.0.join("log");
        let file = std::fs::File::create(&log).unwrap();
        let child = command.stdout(file).stderr(Stdio::null()).spawn().unwrap();
        let running = Running { child, log };
        wait(|| running.said().contains(until), || format!("no {until:?} in {}", running.said()));
        running
    }

    pub(crate) fn file(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap()
    }

    /// The long-term limit of a package in the register.
    pub(crate) fn limit(&self, package: usize) -> String {
        let machine = self.machine.lock();
        let mut packages = machine.zones().iter().filter(|slot| slot.zone.name.starts_with("package-"));
        let zone = packages.nth(package).unwrap().zone.id.clone();
        drop(machine);
        self.file(&format!("sys/class/powercap/{zone}/constraint_0_power_limit_uw"))
    }
}

/// A command that runs on; it does not outlive its test.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Waits for its end. The code is `None` if a signal killed it.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let mut status = None;
        wait(
            || {
                status = self.child.try_wait().unwrap();
                status.is_some()
            },
            || "it does not end".to_owned(),
        );
        status.unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// `joulie node` with these arguments.
pub(crate) fn joulie(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulie"));
    command.arg("node").args(words).stdin(Stdio::null());
    command
}

/// Runs the command without virtual hardware.
pub(crate) fn bare(words: &[&str]) -> Said {
    Said::of(joulie(words).output().unwrap())
}

/// Runs `joulie` with these arguments, and nothing in front of them.
pub(crate) fn program(words: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulie"));
    Said::of(command.args(words).stdin(Stdio::null()).output().unwrap())
}

#[expect(clippy::disallowed_methods, reason = "the binary is another process, which has real time")]
#[track_caller]
pub(crate) fn wait(mut until: impl FnMut() -> bool, why: impl Fn() -> String) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < PATIENCE, "{}", why());
        std::thread::sleep(Duration::from_millis(20));
    }
}
