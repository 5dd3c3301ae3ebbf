//! With which status a process ends, and what that says to whoever started it.

/// A status, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndStatus {
    /// What the process returns.
    pub code: u8,
    /// For people.
    pub meaning: &'static str,
}

/// It ended as it was asked to.
pub const CLEAN: EndStatus = EndStatus {
    code: 0,
    meaning: "it ended as it was asked to, by a signal; or it printed its help or version",
};
/// It could not start, or did not end well.
pub const FAILED: EndStatus = EndStatus {
    code: 1,
    meaning: "it could not start, a part of it ended although nobody asked it to, or the end took longer than \
              SHUTDOWN_TIMEOUT; the last lines of the log say which",
};
/// Its configuration is refused.
pub const REFUSED: EndStatus = EndStatus {
    code: 2,
    meaning: "the configuration is refused and nothing was started; standard error lists every mistake",
};
/// A second SIGINT.
pub const INTERRUPTED: EndStatus =
    EndStatus { code: 130, meaning: "a second signal ended it at once, and that was SIGINT" };
/// A second SIGTERM.
pub const TERMINATED: EndStatus =
    EndStatus { code: 143, meaning: "a second signal ended it at once, and that was SIGTERM" };

/// All with which [`program::run`](crate::program::run) ends.
pub const OF_PROGRAMS: [EndStatus; 5] = [CLEAN, FAILED, REFUSED, INTERRUPTED, TERMINATED];
