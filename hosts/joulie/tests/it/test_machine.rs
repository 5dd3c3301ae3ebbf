//! A virtual machine, mounted, and the binary that is run on it.

use rig::machine::RigMachine;
use rig::test_machine;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Generous, for a machine that is busy; nothing waits for it in a good run.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct TestMachine(test_machine::TestMachine);

impl Deref for TestMachine {
    type Target = test_machine::TestMachine;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What a command said, and how it ended.
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

    /// The output of a command that must have ended so.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self.out
    }
}

impl TestMachine {
    /// Nothing, and a word about it, where the kernel does not let us mount.
    pub(crate) fn profile(name: &str) -> Option<Self> {
        Self::of(name, |_| {})
    }

    /// The same, with what `change` makes of the machine.
    pub(crate) fn of(name: &str, change: impl FnOnce(&mut RigMachine)) -> Option<Self> {
        let mut machine = test_machine::TestMachine::running(name);
        change(&mut machine);
        test_machine::TestMachine::with_room(machine).map(Self)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.0.join("root.joulie")
    }

    /// `joulie node` with these words, on this machine.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = joulie(words);
        command.arg("--root").arg(self.root());
        command
    }

    /// The same where the machine itself is this one, in a mount namespace; nothing, and a word, where there is none.
    pub(crate) fn run_inside(&self, words: &[&str]) -> Option<Said> {
        // Where a machine has no /dev/cpu to mount on, all of /dev is covered: the command opens nothing else there.
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

    /// Starts it, and hands it over when it has said something that contains this.
    pub(crate) fn start(&self, words: &[&str], until: &str) -> Running {
        let log = self.folder.0.join("log");
        let file = std::fs::File::create(&log).unwrap();
        let child = self.command(words).stdout(file).stderr(Stdio::null()).spawn().unwrap();
        let running = Running { child, log };
        wait(|| running.said().contains(until), || format!("no {until:?} in {}", running.said()));
        running
    }

    pub(crate) fn file(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap()
    }

    /// The long-term limit of a package, as the register holds it.
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

    /// Waits for its end; the code is none if a signal killed it.
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

/// `joulie node` with these words.
pub(crate) fn joulie(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulie"));
    command.arg("node").args(words).stdin(Stdio::null());
    command
}

/// Runs it where there is no virtual hardware.
pub(crate) fn bare(words: &[&str]) -> Said {
    Said::of(joulie(words).output().unwrap())
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
