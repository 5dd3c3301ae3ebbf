//! The worker: runs the contract and writes limits. It sends its lines to the guardian. If the guardian is gone, it
//! becomes the restorer at once, whatever it was doing.
//!
//! Its standard output is a socket that closes when the guardian ends; its standard input is the node's lock.

use crate::args::{Args, Role};
use crate::examine::Examine;
use crate::kits;
use crate::verdict::Verdict;
use node_kit::{Boot, Journal, JournalError, Time};
use power_hal::Clock;
use power_units::Micros;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// How often the worker tells the guardian that it is alive.
const PULSE: Micros = Micros::new(500_000);

/// Runs the worker.
pub(crate) fn run(args: &Args) -> ExitCode {
    let Ok((lines, pulse, watched)) = sockets() else { return ExitCode::from(2) };
    let mut verdict = Verdict::new(lines);
    if let Err(error) = watch(args, watched) {
        verdict.fail(&format!("worker: cannot watch the guardian, so nothing is written: {error}"));
        return ExitCode::FAILURE;
    }
    match journal(args) {
        Ok(journal) => {
            let mut examine = Examine::writing(args, &mut verdict, journal, beat(pulse));
            kits::each(args, &mut examine);
            examine.end();
        }
        Err(error) => verdict.fail(&format!("worker: {error}")),
    }
    if verdict.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn sockets() -> io::Result<(UnixStream, UnixStream, UnixStream)> {
    let lines = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    Ok((lines.try_clone()?, lines.try_clone()?, lines))
}

/// The node's journal on the disk.
pub(crate) fn journal(args: &Args) -> Result<Journal, JournalError> {
    Journal::open(&args.state, Boot::of_the_kernel()?)
}

/// Sends an empty line at intervals.
fn beat(mut guardian: UnixStream) -> impl FnMut() {
    let time = Time::real();
    let mut last = time.now();
    move || {
        let now = time.now();
        if now.since(last).is_some_and(|span| span >= PULSE) {
            last = now;
            // The watching thread notices that the guardian is gone.
            let _gone = guardian.write_all(b"\n");
        }
    }
}

fn watch(args: &Args, mut guardian: UnixStream) -> io::Result<()> {
    let args = args.clone();
    let thread = std::thread::Builder::new().name("guardian".to_owned());
    let watching = move || {
        let mut nothing = [0; 1];
        // The guardian never sends anything, so any result of the read means that it is gone.
        while matches!(guardian.read(&mut nothing), Err(error) if error.kind() == io::ErrorKind::Interrupted)
        {
        }
        // The kernel ends the other threads first, so from then on only the restorer writes.
        let failed = as_role(&args, Role::Heir).stdout(Stdio::null()).exec();
        let _no_reader = writeln!(io::stderr(), "hil: cannot start the restorer: {failed}");
    };
    thread.spawn(watching).map(|_| ())
}

/// This program in another role. It is not looked up by name, because the file may have been replaced.
pub(crate) fn as_role(args: &Args, role: Role) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--write").arg("--state").arg(&args.state);
    command.arg("--patience").arg(args.patience.to_string());
    for hardware in &args.require {
        command.arg("--require").arg(hardware);
    }
    for (flag, path) in [("--root", &args.root), ("--nvml", &args.nvml)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    command.arg("--role").arg(match role {
        Role::Worker => "worker",
        Role::Restorer => "restorer",
        Role::Heir => "heir",
    });
    command
}
