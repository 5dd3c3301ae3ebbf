//! The kinds of points.

use crate::random::Draw;

/// The event at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PointKind {
    /// The desired cap changes.
    Cap,
    /// Nothing is desired any more.
    Gone,
    /// The load changes.
    Load,
    /// Reads fail for a while.
    ReadErrors,
    /// Writes fail for a while.
    WriteErrors,
    /// Reads return nonsense for a while.
    Garbage,
    /// Files are slow.
    Slow,
    /// A file hangs, which blocks its backend.
    Hang,
    /// A package's zone disappears and comes back, disabled, with other limits.
    ZoneAway,
    /// The firmware locks the limits of a package for a while, after the driver was loaded.
    LateLock,
    /// The powercap driver is unloaded and loaded again.
    PowercapReload,
    /// The cpufreq driver is reloaded: limits are lost.
    CpufreqReload,
    /// Processors go offline or come back.
    Hotplug,
    /// Another program writes to a limit.
    Rival,
    /// The journal cannot be written for a while.
    NoJournal,
    /// SIGKILL between two periods.
    KillIdle,
    /// SIGKILL during a write to the hardware.
    KillInWrite,
    /// SIGKILL at a random moment of a period.
    KillInPeriod,
    /// SIGKILL while the journal is being replaced.
    KillInJournal,
    /// SIGKILL right after the start, up to three times.
    KillAtStart,
    /// SIGKILL right after a change of the cap.
    KillAfterCap,
    /// The node is stopped and started again.
    Stop,
}

impl PointKind {
    /// The relative frequency of each kind.
    const WEIGHTS: [(Self, usize); 22] = [
        (Self::Cap, 14),
        (Self::Gone, 4),
        (Self::Load, 12),
        (Self::ReadErrors, 7),
        (Self::WriteErrors, 7),
        (Self::Garbage, 4),
        (Self::Slow, 3),
        (Self::Hang, 3),
        (Self::ZoneAway, 3),
        (Self::LateLock, 3),
        (Self::PowercapReload, 2),
        (Self::CpufreqReload, 3),
        (Self::Hotplug, 4),
        (Self::Rival, 5),
        (Self::NoJournal, 3),
        (Self::KillIdle, 4),
        (Self::KillInWrite, 8),
        (Self::KillInPeriod, 6),
        (Self::KillInJournal, 4),
        (Self::KillAtStart, 3),
        (Self::KillAfterCap, 4),
        (Self::Stop, 3),
    ];

    /// Its name in the table.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cap => "cap changed",
            Self::Gone => "nothing desired",
            Self::Load => "load step",
            Self::ReadErrors => "read errors",
            Self::WriteErrors => "write errors",
            Self::Garbage => "garbage read",
            Self::Slow => "slow files",
            Self::Hang => "hanging file",
            Self::ZoneAway => "zone away, back disabled",
            Self::LateLock => "limits locked for a while",
            Self::PowercapReload => "powercap reloaded",
            Self::CpufreqReload => "cpufreq reloaded",
            Self::Hotplug => "CPUs offline, online",
            Self::Rival => "another writer",
            Self::NoJournal => "journal not writable",
            Self::KillIdle => "SIGKILL, idle",
            Self::KillInWrite => "SIGKILL in a write",
            Self::KillInPeriod => "SIGKILL in a period",
            Self::KillInJournal => "SIGKILL in the journal",
            Self::KillAtStart => "SIGKILL at start",
            Self::KillAfterCap => "SIGKILL after a cap",
            Self::Stop => "clean stop",
        }
    }

    pub(crate) fn draw(draw: &mut Draw) -> Self {
        let all: usize = Self::WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut at = draw.below(all);
        for (kind, weight) in Self::WEIGHTS {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        Self::Cap
    }
}
