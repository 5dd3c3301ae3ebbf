//! `joulie-agent restore`: restores the originals of this node, reports those that it could not restore, and ends.
//!
//! It takes the writer's lock, so it waits for an agent that still runs. An uninstall runs it when the agents are gone.

use crate::settings;
use host_kit::config::{self, Invocation};
use host_kit::shutdown::status::EndStatus;
use node_kit::{Config, JournalEntry, Kept, LockError, NodeAccess, OpenError, OpenNode};
use power_units::Micros;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

/// An agent that was asked to end has this long. A process that only reads holds the lock for an instant.
const LOCK_WITHIN: Duration = Duration::from_secs(60);
const LOCK_AGAIN: Duration = Duration::from_millis(200);
/// How long to retry if hardware refuses.
const RESTORE_WITHIN: Duration = Duration::from_secs(30);

const BACK: EndStatus =
    EndStatus { code: 0, meaning: "every original is back, or nothing on this machine was ours" };
const LEFT: EndStatus =
    EndStatus { code: 1, meaning: "something could not be put back; standard error lists it, run it again" };
const REFUSED: EndStatus =
    EndStatus { code: 2, meaning: "the configuration is refused, and nothing was opened" };
const HELD: EndStatus = EndStatus {
    code: 3,
    meaning: "another process is this node's writer and did not end within a minute; its name is said",
};
const NOT_OPENED: EndStatus = EndStatus {
    code: 4,
    meaning: "the machine cannot be opened: its journal or state folder (STATE_DIR) cannot be used",
};

/// The exit statuses of `joulie-agent restore`.
pub const RESTORE_STATUSES: [EndStatus; 5] = [BACK, LEFT, REFUSED, HELD, NOT_OPENED];

/// Runs the command; returns one of [`RESTORE_STATUSES`].
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let sources = match Invocation::read(arguments, std::env::vars_os()) {
        Invocation::Run(sources) => sources,
        Invocation::Help | Invocation::Version => {
            return say(
                BACK,
                "joulie-agent restore: puts the originals of this node back and ends; settings as for the agent",
            );
        }
    };
    let machine = config::load(&settings::TABLE, &sources).and_then(|values| settings::machine(&values));
    let machine = match machine {
        Ok(machine) => machine,
        Err(refusals) => return say(REFUSED, &refusals.to_string()),
    };
    let config = Config::standard(
        super::sources(&machine),
        machine.state.clone(),
        NodeAccess::Control,
        Micros::new(1_000_000),
    );
    let config = match config {
        Ok(config) => config,
        Err(error) => return say(REFUSED, &error.to_string()),
    };
    let boot = super::identity::Identity::read(machine.root.as_deref()).boot;
    let mut node = match open(boot.as_deref(), &config) {
        Ok(node) => node,
        Err(error @ OpenError::Lock(LockError::Held { .. })) => return say(HELD, &error.to_string()),
        Err(error) => return say(NOT_OPENED, &error.to_string()),
    };
    // A person who asks for the originals also ends the grant. An agent that starts again finds the grant in the API,
    // if it still exists there.
    let kept = Kept::file(&machine.state);
    if let Err(error) = Kept::forget(&kept) {
        tell(&format!("the grant in {} cannot be deleted: {error}", kept.display()));
    }
    let before = node.journal().entries();
    if before.is_empty() {
        return say(BACK, "nothing to put back: no limit on this machine is ours");
    }
    match node.restore(RESTORE_WITHIN) {
        Ok(()) => say(BACK, &format!("{} originals are back", before.len())),
        Err(left) => {
            let mut text = format!(
                "{} of {} originals are back; not put back:",
                before.len().saturating_sub(left.entries.len()),
                before.len()
            );
            for entry in &left.entries {
                text.push_str(&format!("\n  {}", describe(entry)));
            }
            for trouble in node.report().backends.iter().filter_map(|backend| backend.last_trouble.as_ref()) {
                text.push_str(&format!("\n  {trouble}"));
            }
            say(LEFT, &text)
        }
    }
}

/// Opens the machine, and waits for the lock for a limited time.
fn open(boot: Option<&str>, config: &Config) -> Result<OpenNode, OpenError> {
    let (_nobody, silence) = mpsc::channel::<()>();
    let mut waited = Duration::ZERO;
    loop {
        match super::open_node(boot, config) {
            Err(OpenError::Lock(LockError::Held { holder, path })) if waited < LOCK_WITHIN => {
                if waited.is_zero() {
                    tell(&format!("waiting for {holder} (lock {})", path.display()));
                }
                // Nobody sends: the timeout is the wait, because clippy.toml forbids `thread::sleep`.
                let _silence = silence.recv_timeout(LOCK_AGAIN);
                waited = waited.saturating_add(LOCK_AGAIN);
            }
            other => return other,
        }
    }
}

/// Describes an original.
pub(crate) fn describe(entry: &JournalEntry) -> String {
    let was = entry.was.map_or("an original of several values".to_owned(), |was| format!("{was:?}"));
    format!("{} ({}): {was}", entry.domain.as_str(), entry.backend.label())
}

fn say(status: EndStatus, text: &str) -> ExitCode {
    tell(text);
    ExitCode::from(status.code)
}

fn tell(text: &str) {
    // If standard error is closed, nobody can be told; the exit status still reports the result.
    let _written = writeln!(std::io::stderr(), "joulie-agent: {text}");
}
