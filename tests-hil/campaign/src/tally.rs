//! The results of a campaign, summed up and as a table.

use crate::{CapExcuse, MachineKind, PointKind};
use std::collections::BTreeMap;
use std::fmt;

/// The counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Scenarios by machine; free ones are also counted in `free`.
    pub scenarios: BTreeMap<MachineKind, u64>,
    /// Scenarios in which node and plant ran by the clock.
    pub free: u64,
    /// Points by kind.
    pub points: BTreeMap<PointKind, u64>,
    /// Processes that were killed.
    pub kills: u64,
    /// Kills while the journal was being replaced.
    pub kills_in_journal: u64,
    /// Processes that replaced another one.
    pub restarts: u64,
    /// Observed writes to the hardware.
    pub writes: u64,
    /// How often every control was compared with its original.
    pub audits: u64,
    /// Originals that were verified at the end of a scenario.
    pub originals: u64,
    /// Hangs during which another backend was seen to work.
    pub isolated: u64,
    /// Those that lasted a minute or more.
    pub isolated_minutes: u64,
    /// Time under a cap that was judged, µs.
    pub judged_us: u64,
    /// The judged time above 105 % of the cap.
    pub above_us: u64,
    /// Time without a cap.
    pub uncapped_us: u64,
    /// Excused time by reason, and the part of it above the limit.
    pub excused_us: BTreeMap<CapExcuse, (u64, u64)>,
    /// The longest time above the limit, µs.
    pub longest_us: u64,
    /// The highest excess in judged time, as a part of the cap.
    pub worst: f64,
}

impl Tally {
    /// The number of points.
    #[must_use]
    pub fn all_points(&self) -> u64 {
        self.points.values().sum()
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.scenarios {
            *self.scenarios.entry(*kind).or_default() += count;
        }
        for (kind, count) in &other.points {
            *self.points.entry(*kind).or_default() += count;
        }
        for (excuse, (all, above)) in &other.excused_us {
            let mine = self.excused_us.entry(*excuse).or_default();
            *mine = (mine.0 + all, mine.1 + above);
        }
        self.free += other.free;
        self.kills += other.kills;
        self.kills_in_journal += other.kills_in_journal;
        self.restarts += other.restarts;
        self.writes += other.writes;
        self.audits += other.audits;
        self.originals += other.originals;
        self.isolated += other.isolated;
        self.isolated_minutes += other.isolated_minutes;
        self.judged_us += other.judged_us;
        self.above_us += other.above_us;
        self.uncapped_us += other.uncapped_us;
        self.longest_us = self.longest_us.max(other.longest_us);
        self.worst = self.worst.max(other.worst);
    }
}

fn seconds(us: u64) -> String {
    format!("{}.{} s", us / 1_000_000, us / 100_000 % 10)
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "points                        {}", self.all_points())?;
        for (kind, count) in &self.points {
            writeln!(f, "  {:<28}{count}", kind.label())?;
        }
        let all: u64 = self.scenarios.values().sum();
        writeln!(f, "scenarios                     {all}, {} of them free", self.free)?;
        for (kind, count) in &self.scenarios {
            writeln!(f, "  {:<28}{count}", kind.label())?;
        }
        writeln!(f, "kills                         {}", self.kills)?;
        writeln!(f, "  with a journal half written {}", self.kills_in_journal)?;
        writeln!(f, "restarts                      {}", self.restarts)?;
        writeln!(f, "writes watched                {}", self.writes)?;
        writeln!(f, "comparisons with originals    {}", self.audits)?;
        writeln!(f, "originals seen back at ends   {}", self.originals)?;
        writeln!(
            f,
            "hangs beside a live backend   {}, {} of a minute",
            self.isolated, self.isolated_minutes
        )?;
        writeln!(f, "time under a cap, judged      {}", seconds(self.judged_us))?;
        writeln!(f, "  above cap + 5 %             {}", seconds(self.above_us))?;
        writeln!(f, "  longest run above           {}", seconds(self.longest_us))?;
        writeln!(f, "  most above the cap          {:.1} %", (self.worst - 1.0).max(0.0) * 100.0)?;
        writeln!(f, "time without a cap            {}", seconds(self.uncapped_us))?;
        writeln!(f, "time excused (of it above)")?;
        for (excuse, (all, above)) in &self.excused_us {
            writeln!(f, "  {:<28}{} ({})", format!("{excuse:?}"), seconds(*all), seconds(*above))?;
        }
        Ok(())
    }
}
