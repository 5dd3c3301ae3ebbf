//! System calls that std does not provide: a child that is killed when its parent thread ends, and signals.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The child gets SIGKILL when the thread that spawned it ends, for whatever reason; so that thread must live as long
/// as the child is needed.
pub(crate) fn die_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let before_exec = move || {
        // SAFETY: prctl with PR_SET_PDEATHSIG takes plain numbers, touches no memory and is async-signal-safe.
        let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if set != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // A parent that died before the call above sends no signal any more.
        // SAFETY: getppid takes nothing, cannot fail and is async-signal-safe.
        let now = unsafe { libc::getppid() };
        if u32::try_from(now) == Ok(parent) { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: between fork and exec the closure makes the two calls above and builds errors that own no memory: it
    // allocates nothing and takes no lock.
    unsafe { command.pre_exec(before_exec) };
}

/// The signals that a suite can send to its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessSignal {
    /// SIGTERM: stop gracefully.
    Terminate,
    /// SIGSTOP: suspend, like a machine that is out of memory.
    Stop,
    /// SIGCONT: resume.
    Continue,
}

pub(crate) fn send(process: u32, signal: ProcessSignal) -> std::io::Result<()> {
    let number = match signal {
        ProcessSignal::Terminate => libc::SIGTERM,
        ProcessSignal::Stop => libc::SIGSTOP,
        ProcessSignal::Continue => libc::SIGCONT,
    };
    let process = libc::pid_t::try_from(process).map_err(std::io::Error::other)?;
    // SAFETY: kill takes plain numbers and touches no memory of ours.
    let sent = unsafe { libc::kill(process, number) };
    if sent == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
