//! The guardian: ensures that no other process writes, starts the worker, and has everything put back, however the
//! worker ends.

use crate::args::{Args, Role};
use crate::limits::Limits;
use crate::verdict::Verdict;
use crate::witness::pause;
use crate::worker::{as_role, journal};
use node_kit::{BackendKind, NodeLock};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

/// The interval of checking whether a process has ended.
const STEP: Duration = Duration::from_millis(20);
/// After its last line a process ends within this many checks.
const ENDS_BY_ITSELF: u32 = 50;
/// A killed process ends within this many checks, unless it is in a driver call.
const DIES: u32 = 50;

/// Runs the guardian.
pub(crate) fn run(args: &Args, verdict: &mut Verdict) {
    let lock = match NodeLock::take(&args.state) {
        Ok(lock) => lock,
        Err(error) => return verdict.fail(&format!("guardian: {error}")),
    };
    if let Err(refused) = clear(args, &lock, verdict) {
        return verdict.fail(&format!("guardian: {refused}"));
    }
    announce(args, verdict);
    let before = Limits::of(args);
    if let Err(error) = Mark::of(args).put() {
        return verdict
            .fail(&format!("guardian: cannot note in {} that it writes: {error}", args.state.display()));
    }
    match Watched::start(args, Role::Worker, &lock) {
        Ok(worker) => worker.hear(args, verdict),
        Err(error) => verdict.fail(&format!("guardian: cannot start the worker: {error}")),
    }
    restore(args, &lock, verdict);
    before.hold(&Limits::of(args), verdict);
}

/// Checks that the journal is empty. Originals that a killed run has left are put back. Originals of an agent are
/// left alone, and the run is refused.
fn clear(args: &Args, lock: &NodeLock, verdict: &mut Verdict) -> Result<(), String> {
    let held = journal(args).map_err(|error| error.to_string())?.len();
    let mark = Mark::of(args);
    let last = lock.last_holder().unwrap_or("nobody");
    let ours = mark.is_there() && last.starts_with("hil ");
    if held == 0 || !ours {
        mark.remove();
    }
    if held > 0 && !ours {
        return Err(format!(
            "{held} originals are in the journal in {}, so this node is capped (last writer: {last}); put them back \
             first, with `joulie node restore`",
            args.state.display()
        ));
    }
    if held > 0 {
        verdict.tell(&format!(
            "A run before this one was killed; it left {held} originals, which are put back first"
        ));
        restore(args, lock, verdict);
    }
    match journal(args).map_err(|error| error.to_string())?.len() {
        0 => Ok(()),
        left => Err(format!("{left} originals of a run before this one could not be put back")),
    }
}

fn announce(args: &Args, verdict: &mut Verdict) {
    verdict.tell("");
    verdict.tell("Contract, writing: each limit is lowered, down to the lowest that its range has, for moments, one after");
    verdict.tell(
        "the other, and put back. Nothing is raised above what is in force. Work on this machine is slowed.",
    );
    let ways = BackendKind::ALL.map(BackendKind::label).join(", ");
    verdict.tell(&format!("Ways: {ways}. Journal and lock: {}", args.state.display()));
}

/// Puts back the originals in the journal, if there are any.
fn restore(args: &Args, lock: &NodeLock, verdict: &mut Verdict) {
    match journal(args) {
        Ok(journal) if journal.is_empty() => return Mark::of(args).remove(),
        Ok(journal) => {
            verdict.tell(&format!("     guardian: {} originals are to be put back", journal.len()))
        }
        Err(error) => return verdict.fail(&format!("guardian: {error}")),
    }
    match Watched::start(args, Role::Restorer, lock) {
        Ok(restorer) => restorer.hear(args, verdict),
        Err(error) => verdict.fail(&format!("guardian: cannot start the restorer: {error}")),
    }
}

/// A child process and its output.
struct Watched {
    role: Role,
    child: Child,
    lines: BufReader<UnixStream>,
}

impl Watched {
    fn start(args: &Args, role: Role, lock: &NodeLock) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        ours.set_read_timeout(Some(args.patience()))?;
        let held: File = lock.share()?;
        let mut command = as_role(args, role);
        // In a process group of its own it survives signals from the terminal to the guardian, and can put everything
        // back.
        command.stdin(Stdio::from(held)).stdout(Stdio::from(OwnedFd::from(its))).process_group(0);
        let child = command.spawn()?;
        Ok(Self { role, child, lines: BufReader::new(ours) })
    }

    /// Forwards its lines until it ends, or is silent for too long.
    fn hear(mut self, args: &Args, verdict: &mut Verdict) {
        let name = match self.role {
            Role::Worker => "worker",
            Role::Restorer | Role::Heir => "restorer",
        };
        let failed = verdict.failed();
        let mut line = Vec::new();
        loop {
            match self.lines.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line);
                    if !text.trim_end().is_empty() {
                        verdict.line(text.trim_end());
                    }
                    line.clear();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    let silence = format!("{name}: nothing came back for {} s", args.patience);
                    match self.role {
                        // It is best to let it continue.
                        Role::Restorer | Role::Heir => verdict.tell(&format!("     {silence}")),
                        Role::Worker => {
                            verdict.fail(&format!("{silence}; it is ended"));
                            break;
                        }
                    }
                }
                Err(error) => {
                    verdict.fail(&format!("{name}: cannot hear it: {error}"));
                    break;
                }
            }
        }
        match self.end(name, verdict) {
            Ok(status) if status.success() => {}
            // It has reported what failed.
            Ok(status) if status.code() == Some(1) && verdict.failed() > failed => {}
            Ok(status) => verdict.fail(&format!("{name}: it ended by {status}")),
            Err(error) => verdict.fail(&format!("{name}: {error}")),
        }
    }

    /// Waits for the process to end and returns its status; a process that continues is killed. If it is in a driver
    /// call, it ends only after the call. Until then its write may still take effect, so nothing can be put back.
    fn end(&mut self, name: &str, verdict: &mut Verdict) -> io::Result<ExitStatus> {
        for _ in 0..ENDS_BY_ITSELF {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            pause(STEP);
        }
        self.child.kill()?;
        for _ in 0..DIES {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            pause(STEP);
        }
        verdict.tell(&format!(
            "     {name}: process {} was killed and is still inside a driver; originals are put back when it is out",
            self.child.id()
        ));
        self.child.wait()
    }
}

/// A file in the state folder. It says that the originals in the journal belong to a run of this program.
pub(crate) struct Mark(PathBuf);

impl Mark {
    /// The file in the state folder.
    pub(crate) fn of(args: &Args) -> Self {
        Self(args.state.join("hil-writes"))
    }

    fn is_there(&self) -> bool {
        self.0.exists()
    }

    fn put(&self) -> io::Result<()> {
        File::create(&self.0)?.sync_all()?;
        self.0.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    /// A file that remains does no harm: it has no meaning without originals in the journal.
    pub(crate) fn remove(&self) {
        let _left = std::fs::remove_file(&self.0);
    }
}
