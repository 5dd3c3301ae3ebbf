//! The exit statuses of a process, and what each one means.

/// An exit status and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndStatus {
    /// The code that the process returns.
    pub code: u8,
    /// The meaning, for people.
    pub meaning: &'static str,
}

/// The process ended as it was asked to.
pub const CLEAN: EndStatus = EndStatus {
    code: 0,
    meaning: "it ended as it was asked to, by a signal; or it printed its help or version",
};
/// The process could not start, or did not end cleanly.
pub const FAILED: EndStatus = EndStatus {
    code: 1,
    meaning: "it could not start, a part of it ended although nobody asked it to, or the end took longer than \
              SHUTDOWN_TIMEOUT; the last lines of the log say which",
};
/// The configuration is refused.
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

/// All statuses that [`program::run`](crate::program::run) returns.
pub const OF_PROGRAMS: [EndStatus; 5] = [CLEAN, FAILED, REFUSED, INTERRUPTED, TERMINATED];
