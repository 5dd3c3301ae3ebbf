//! `joulie node`: one machine, without a cluster.
//!
//! [`Site`] describes the node and opens it; each verb has a file of its own.

mod cap;
mod doctor;
mod hold;
mod restore;
mod show;
mod verdict;
mod view;
mod watch;
mod words;

use crate::args::{Law, Node as Command, Place, Registers, Verb};
use crate::diary;
use crate::out::Out;
use crate::signals::Interrupts;
use host_kit::shutdown::status::EndStatus;
use log::LevelFilter;
use node_kit::{Config, HardwareSources, LockError, NodeAccess, OpenError, OpenNode, Time};
use power_units::Micros;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The outcome of a command. The exit codes are in its help and in docs/REFERENCE.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The request was carried out.
    Done,
    /// It was not, or not completely; the output says why.
    NotDone,
    /// The command line is invalid.
    Usage,
    /// Another process is this node's writer.
    Held,
    /// The node cannot be opened.
    NotOpened,
    /// A person interrupted it.
    Interrupted,
}

impl Ending {
    /// All outcomes.
    pub(crate) const ALL: [Self; 6] =
        [Self::Done, Self::NotDone, Self::Usage, Self::Held, Self::NotOpened, Self::Interrupted];

    /// The exit status of the process.
    pub(crate) const fn status(self) -> EndStatus {
        let (code, meaning) = match self {
            Self::Done => (0, "done: shown, in force, restored; a demo whose time is over"),
            Self::NotDone => (1, "not done, or not wholly; the output says why"),
            Self::Usage => (2, "the command line cannot be used; nothing was opened"),
            Self::Held => (3, "another process is this node's writer; its name is said"),
            Self::NotOpened => (4, "the node cannot be opened: its journal or state folder cannot be used"),
            Self::Interrupted => (
                130,
                "interrupted before it was done; after a second interrupt of `cap` the caps are still in force",
            ),
        };
        EndStatus { code, meaning }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(ending.status().code)
    }
}

/// All statuses, for the help.
pub(crate) fn exit_codes() -> String {
    let lines = Ending::ALL.map(|ending| {
        let EndStatus { code, meaning } = ending.status();
        format!("  {code:<4} {meaning}")
    });
    format!("Exit codes:\n{}", lines.join("\n"))
}

/// Why a command could not start, for its user.
#[derive(Debug)]
pub(crate) struct Refusal {
    ending: Ending,
    text: String,
}

impl Refusal {
    fn new(ending: Ending, text: impl Into<String>) -> Self {
        Self { ending, text: text.into() }
    }
}

/// The data that every verb needs.
struct Desk {
    site: Site,
    out: Out,
    interrupts: Interrupts,
}

/// Where a node is, and how to open it.
struct Site {
    sources: HardwareSources,
    /// The name of the machine for messages.
    name: String,
    state: PathBuf,
    law: Law,
    period: Micros,
    time: Time,
}

const STATE_OF_THE_MACHINE: &str = "/var/lib/joulie";
/// Time to load a library, or for a driver to wake a GPU.
const BACKENDS_OPEN_WITHIN: Duration = Duration::from_secs(10);
/// A process that checks the lock holds it for an instant.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Runs a command.
pub(crate) fn run(command: &Command) -> Ending {
    diary::begin(level(command));
    match carry_out(command) {
        Ok(ending) => ending,
        Err(refusal) => {
            complain(&refusal.text);
            refusal.ending
        }
    }
}

fn carry_out(command: &Command) -> Result<Ending, Refusal> {
    let interrupts = Interrupts::new()
        .map_err(|error| Refusal::new(Ending::NotOpened, format!("cannot take signals over: {error}")))?;
    let site = Site::of(&command.place)?;
    let mut desk = Desk { site, out: Out::new(), interrupts };
    let ending = match &command.verb {
        Verb::Show { json } => show::show(&mut desk, *json),
        Verb::Cap(args) => cap::cap(&mut desk, args),
        Verb::Watch { lasting } => watch::watch(&mut desk, *lasting),
        Verb::Doctor => doctor::doctor(&mut desk),
        Verb::Restore => restore::restore(&mut desk),
    }?;
    match desk.out.failure() {
        None => Ok(ending),
        Some(error) => Err(Refusal::new(Ending::NotDone, format!("the output is not complete: {error}"))),
    }
}

/// Commands that only read print everything that the libraries would warn of.
const fn level(command: &Command) -> LevelFilter {
    match (&command.verb, command.place.verbose) {
        (_, true) => LevelFilter::Info,
        (Verb::Show { .. } | Verb::Watch { .. } | Verb::Doctor, false) => LevelFilter::Error,
        (Verb::Cap(_) | Verb::Restore, false) => LevelFilter::Warn,
    }
}

/// Prints a message on standard error.
fn complain(text: &str) {
    // If standard error is closed, the message is lost.
    let _written = writeln!(std::io::stderr(), "joulie: {text}");
}

impl Site {
    fn of(place: &Place) -> Result<Self, Refusal> {
        let Place { root, state, nvml, rocm, registers, law, period, verbose: _ } = place;
        let root = root.as_deref().map(real).transpose()?.filter(|root| root != Path::new("/"));
        let mut sources = root.as_deref().map_or_else(HardwareSources::machine, HardwareSources::below);
        sources.registers = match registers {
            Registers::Off => node_kit::RegisterAccess::Off,
            Registers::Msr => node_kit::RegisterAccess::Msr,
            Registers::MsrSafe => node_kit::RegisterAccess::MsrSafe,
            Registers::Msru => node_kit::RegisterAccess::Msru,
        };
        let sources = sources.with_libraries(nvml.clone(), rocm.clone());
        let state = match (state, &root) {
            (Some(state), _) => state.clone(),
            (None, None) => PathBuf::from(STATE_OF_THE_MACHINE),
            (None, Some(root)) => beside(root),
        };
        let name =
            root.map_or("this machine".to_owned(), |root| format!("the machine below {}", root.display()));
        Ok(Self { sources, name, state, law: *law, period: period.micros(), time: Time::real() })
    }

    fn open(&self, access: NodeAccess, interrupts: &Interrupts) -> Result<OpenNode, Refusal> {
        let config = Config::standard(self.sources.clone(), self.state.clone(), access, self.period);
        let mut config = config.map_err(|error| Refusal::new(Ending::Usage, error.to_string()))?;
        if self.law == Law::Classic {
            config.law = Config::classic();
        }
        let mut tries = 1;
        loop {
            match OpenNode::open(config.clone(), self.time.clone()) {
                Ok(mut node) => {
                    // A backend that has not opened by then is shown as opening.
                    let _all = node.wait_for_backends(BACKENDS_OPEN_WITHIN);
                    return Ok(node);
                }
                Err(OpenError::Lock(LockError::Held { .. })) if tries < LOCK_TRIES => tries += 1,
                Err(error) => return Err(Refusal::new(ending_of(&error), error.to_string())),
            }
            if interrupts.within(LOCK_PAUSE) {
                return Err(Refusal::new(Ending::Interrupted, "interrupted"));
            }
        }
    }

    /// The flags that select this machine, for a command in a hint that the user can type.
    fn flags(&self) -> String {
        match self.name.strip_prefix("the machine below ") {
            Some(root) => format!(" --root {root}"),
            None => String::new(),
        }
    }
}

const fn ending_of(error: &OpenError) -> Ending {
    match error {
        OpenError::Lock(LockError::Held { .. }) => Ending::Held,
        OpenError::Lock(LockError::File { .. }) | OpenError::Journal(_) | OpenError::Thread(_) => {
            Ending::NotOpened
        }
    }
}

fn real(root: &Path) -> Result<PathBuf, Refusal> {
    let refused = |why: String| {
        let text = format!("--root {}: {why}; expected a folder that holds sys and dev", root.display());
        Refusal::new(Ending::Usage, text)
    };
    let real = root.canonicalize().map_err(|error| refused(error.to_string()))?;
    if real.join("sys").is_dir() { Ok(real) } else { Err(refused("it has no folder sys".to_owned())) }
}

/// The state folder of virtual hardware is beside its root, so that every command on the same root uses the same one.
fn beside(root: &Path) -> PathBuf {
    let mut name = root.as_os_str().to_owned();
    name.push(".joulie");
    PathBuf::from(name)
}
