//! The child process: starts it, sends it commands, kills it at any moment, and waits for its end.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After this time without an answer a child counts as stuck. It is long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kills a process at a given moment.
#[derive(Clone, Debug)]
pub(crate) struct Killer(Arc<Mutex<Child>>);

impl Killer {
    pub(crate) fn kill(&self) {
        // It may have ended by itself.
        let _killed = self.child().kill();
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node's process.
pub(crate) struct Process {
    killer: Killer,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It has exited.
    Ended,
    /// It does not answer.
    Stuck,
}

pub(crate) struct Place<'a> {
    pub(crate) program: &'a Path,
    pub(crate) root: &'a Path,
    pub(crate) state: &'a Path,
    pub(crate) errors: &'a Path,
    pub(crate) free: bool,
    pub(crate) wait: Duration,
}

impl Process {
    pub(crate) fn start(place: &Place<'_>) -> std::io::Result<Self> {
        let errors = File::options().create(true).append(true).open(place.errors)?;
        let mut child = Command::new(place.program)
            .arg("node")
            .args([place.root, place.state])
            .arg(if place.free { "free" } else { "lockstep" })
            .arg(place.wait.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()?;
        let missing = || std::io::Error::other("the child has no pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { killer: Killer(Arc::new(Mutex::new(child))), stdin, answers })
    }

    pub(crate) fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Sends a line. If the child has exited, the missing answer shows it.
    pub(crate) fn say(&mut self, line: &str) {
        let _heard = writeln!(self.stdin, "{line}");
    }

    pub(crate) fn answer(&self) -> Result<String, Silence> {
        self.answer_within(PATIENCE)
    }

    pub(crate) fn answer_within(&self, wait: Duration) -> Result<String, Silence> {
        self.answers.recv_timeout(wait).map_err(|error| match error {
            RecvTimeoutError::Timeout => Silence::Stuck,
            RecvTimeoutError::Disconnected => Silence::Ended,
        })
    }

    /// Waits until the process and all its open files are gone. Returns false if that takes too long.
    pub(crate) fn bury(self) -> bool {
        drop(self.stdin);
        let mut tries = PATIENCE.as_millis();
        loop {
            match self.killer.child().try_wait() {
                Ok(Some(_)) => return true,
                Ok(None) | Err(_) if tries == 0 => return false,
                Ok(None) | Err(_) => tries -= 1,
            }
            pause(Duration::from_millis(1));
        }
    }
}

/// Lets real time pass, for the child and the kernel.
#[expect(clippy::disallowed_methods, reason = "the moments of kills lie in real time")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The file to which a new journal is written before it replaces the old one.
pub(crate) fn unfinished_journal(state: &Path) -> std::path::PathBuf {
    state.join("originals.json.new")
}
