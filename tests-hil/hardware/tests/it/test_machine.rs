//! A mounted virtual machine with a state folder, and the program that runs on it.

use rig::gpu_clock::HwmonClock;
use rig::machine::HwmonSlot;
use rig::test_machine;
use std::ops::Deref;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The longest time for an event on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A machine, mounted.
pub(crate) struct TestMachine(test_machine::TestMachine);

impl Deref for TestMachine {
    type Target = test_machine::TestMachine;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// How many policies and how many NVIDIA cards of a profile take part: a run looks at each of them from each of the
/// others, and every reading of a card is hundreds of requests to the mounted files.
const SHOWN: usize = 4;
const CARDS_SHOWN: usize = 2;

impl TestMachine {
    /// `None`, with a message, if mounting is not possible.
    pub(crate) fn profile(name: &str) -> Option<Self> {
        let mut machine = test_machine::TestMachine::running(name);
        machine.change(|_, policies, _| {
            for (at, policy) in policies.iter_mut().enumerate() {
                policy.present = at < SHOWN;
            }
        });
        for at in CARDS_SHOWN..machine.nvidia().len() {
            machine.change_nvidia(at, |card| card.present = false);
        }
        test_machine::TestMachine::with_room(machine).map(Self)
    }

    /// A folder without a machine in it.
    pub(crate) fn empty() -> Self {
        Self(test_machine::TestMachine::unmounted(test_machine::TestMachine::machine_of("xeon-2s")))
    }

    /// The program, on this machine's root and state.
    pub(crate) fn hil(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hil"));
        command.arg("--root").arg(self.root()).arg("--state").arg(self.state()).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// All settings of the machine as they are in the registers.
    pub(crate) fn registers(&self) -> String {
        let machine = self.machine.lock();
        let zones: Vec<_> = machine.zones().iter().map(|slot| format!("{:?}", slot.zone)).collect();
        let policies: Vec<_> =
            machine.policies().iter().map(|policy| (policy.user_min, policy.user_max)).collect();
        drop(machine);
        let mut caps = Vec::new();
        self.machine.lock().change(|_, _, hwmons| {
            let clock = |slot: &HwmonSlot| slot.hwmon.clock.as_ref().map(HwmonClock::registers);
            caps = hwmons.iter().map(|slot| (slot.hwmon.cap_uw, clock(slot))).collect();
        });
        format!("{zones:?} {policies:?} {caps:?}")
    }

    /// The number of originals in the journal on the disk.
    pub(crate) fn journal(&self) -> usize {
        let text = std::fs::read_to_string(self.state().join("originals.json")).unwrap_or_default();
        text.matches("\"backend\"").count()
    }
}

/// What a run said.
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) code: Option<i32>,
}

impl Said {
    pub(crate) fn of(command: &mut Command) -> Self {
        command.output().unwrap().into()
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.text.lines().any(|said| said.starts_with(line))
    }

    pub(crate) fn count(&self, word: &str) -> usize {
        self.text.lines().filter(|line| line.starts_with(word)).count()
    }

    /// Checks that it succeeded, and that its last line counts its output correctly.
    pub(crate) fn is_fine(&self) {
        assert_eq!(self.code, Some(0), "{}", self.text);
        let (passed, skipped) = (self.count("PASS "), self.count("SKIP("));
        let closing = format!("hil: {passed} passed, 0 failed, {skipped} skipped");
        assert_eq!(self.text.lines().last(), Some(closing.as_str()), "{}", self.text);
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = [output.stdout, output.stderr].concat();
        Self { text: String::from_utf8(text).unwrap(), code: output.status.code() }
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let step = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while !holds() {
        assert!(waited < PATIENCE, "it never came to be that {what}");
        pause(step);
        waited += step;
    }
}

#[expect(clippy::disallowed_methods, reason = "the other process gives no sign but what it changes")]
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// The children of a process.
pub(crate) fn children(of: &Child) -> Vec<u32> {
    let id = of.id();
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Kills a process that is not a child of this one.
pub(crate) fn kill(process: u32) {
    signal("KILL", process);
}

/// Sends a signal with the shell's built-in command, which needs no package.
pub(crate) fn signal(name: &str, process: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().unwrap();
    assert!(sent.success());
}
