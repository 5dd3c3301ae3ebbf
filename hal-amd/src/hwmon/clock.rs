//! The clock of an Instinct GPU (MI200, MI300), limited by amdgpu's table `pp_od_clk_voltage`.
//!
//! ```text
//! GFXCLK:           or OD_SCLK:, by the kernel
//! 0: 132Mhz         the lowest clock
//! 1: 2100Mhz        the highest clock
//! ```
//!
//! A line is written as `s 0 132` or `s 1 1200`, and `c` puts what was written in force. The driver takes that only in the
//! performance levels `manual` and `perf_determinism`, so any other level is replaced by `manual`; at the return to
//! `auto` the driver resets the table itself. Lines that were written and not put in force stay in the driver, where nobody
//! can read them, so both are written each time, and a release writes the original also where it is in force: a process may
//! have ended between a line and its `c`. The lowest clock must be below the highest one.
//!
//! The table tells what is in force and not what may be: the range is what was seen since this was opened, and what the
//! journal holds from before the first write. So nothing is ever set above the owner's clock.
//!
//! # What is left alone
//!
//! A table with any other part (`OD_RANGE`, voltages, offsets, more lines) is that of OverDrive on Radeon cards. It is
//! unlocked by a parameter of the kernel, has other rules in each generation, and keeps voltages in the same table.

use hal_files::hwmon::{self, Settable};
use hal_files::{Attribute, FileError, TEXT_MAX, text};
use power_hal::{ErrorKind, Limit, Original, Span};
use power_units::{KiloHertz, Role};
use std::io::Write;
use std::path::Path;

/// The distance between two limits, MHz: half a percent of the highest clock of an MI300X.
const STEP_MHZ: u32 = 10;

/// More than any GPU runs at, MHz.
const POSSIBLE_MHZ: u32 = 10_000;

/// The performance levels of amdgpu. An original holds the place of its level here: places never change.
const LEVELS: [&str; 10] = [
    "auto",
    "low",
    "high",
    "manual",
    "profile_standard",
    "profile_min_sclk",
    "profile_min_mclk",
    "profile_peak",
    "profile_exit",
    "perf_determinism",
];
const MANUAL: usize = 3;
const DETERMINISM: usize = 9;

/// The layout of an original: the level, and the lowest and the highest clock, MHz. A cap has layout 0.
const LAYOUT: u8 = 1;

/// Longer than any command.
const COMMAND_MAX: usize = 24;

/// The clocks in force, MHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockTable {
    low: u32,
    high: u32,
}

/// All that is written to limit a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockLimits {
    /// The place in [`LEVELS`].
    level: usize,
    low: u32,
    pub(super) high: u32,
}

/// The open files of a clock that can be limited.
#[derive(Debug)]
pub(super) struct ClockFiles {
    table: Settable,
    level: Settable,
    running: Option<Attribute>,
    /// The lowest and the highest clock that were ever seen in force.
    seen: ClockTable,
    range: Limit<KiloHertz>,
}

impl ClockFiles {
    /// Opens the files of a GPU; `None` if its clock cannot be limited here. `known` is the same GPU in the last list, and
    /// whether it sleeps: then nothing is read. `kept` is the original in the journal.
    pub(super) fn open(
        folder: &Path,
        device: &Path,
        (before, sleeps): (Option<&Self>, bool),
        kept: Option<&Original>,
    ) -> Option<Self> {
        // A GPU without such a table is no trouble, and one that could not be opened is looked for again.
        let mut silent = |_: FileError| {};
        let table = Settable::open(&device.join("pp_od_clk_voltage"), &mut silent)?;
        let level = Settable::open(&device.join("power_dpm_force_performance_level"), &mut silent)?;
        let running = hwmon::open(&folder.join("freq1_input"), &mut silent);
        let now = if sleeps && before.is_some() { None } else { read_table(table.file()).ok() };
        let before = before.map(|before| before.seen);
        let kept = kept.and_then(ClockLimits::in_original);
        let kept = kept.map(|ClockLimits { low, high, .. }| ClockTable { low, high });
        let seen = [now, before, kept].into_iter().flatten().reduce(ClockTable::with)?;
        Some(Self { table, level, running, seen, range: seen.range()? })
    }

    /// The range of its limit.
    pub(super) const fn range(&self) -> &Limit<KiloHertz> {
        &self.range
    }

    /// The highest clock in force.
    pub(super) fn limit(&self) -> Result<KiloHertz, FileError> {
        read_table(self.table.file()).map(|table| kilohertz(table.high))
    }

    /// The clock at which it runs; the file has Hz.
    pub(super) fn running(&self) -> Result<KiloHertz, FileError> {
        let Some(file) = &self.running else {
            let mut error = FileError::bad_data(self.table.file().path());
            error.kind = ErrorKind::NotSupported;
            return Err(error);
        };
        let mhz = u32::try_from(file.read_whole()? / 1_000_000).ok();
        let mhz = mhz.filter(|mhz| (1..=POSSIBLE_MHZ).contains(mhz));
        mhz.map(kilohertz).ok_or_else(|| FileError::bad_data(file.path()))
    }

    pub(super) fn set(&self, limit: KiloHertz) -> Result<(), FileError> {
        let to = ClockTable { low: self.seen.low, high: self.rounded(limit) };
        let (found, before) = (self.level_now()?, read_table(self.table.file()).ok());
        let is_replaced = !takes_limits(found);
        if is_replaced {
            self.write_level(MANUAL)?;
        }
        let written = self.write_table(to, true);
        if written.is_err() {
            // Nothing is limited: neither a line nor the level is left changed for that. The first error is the one that
            // counts.
            let _lines = before.map(|before| self.write_lines(before, false));
            let _level = if is_replaced { self.write_level(found) } else { Ok(()) };
        }
        written
    }

    /// What `set` would have to undo; `None` if the driver has a level that is not known here.
    pub(super) fn save(&self) -> Result<Option<Original>, FileError> {
        let ClockTable { low, high } = read_table(self.table.file())?;
        let level = self.level_now()?;
        let words = [u64::try_from(level).unwrap_or(u64::MAX), low.into(), high.into()];
        Ok(Original::new(LAYOUT, &words))
    }

    pub(super) fn put_back(&self, limits: ClockLimits) -> Result<(), FileError> {
        let ClockLimits { level, low, high } = limits;
        // The table must be written in a level that takes it, and in the original one if that is such a level.
        let through = if takes_limits(level) { level } else { MANUAL };
        let found = self.level_now()?;
        if found != through {
            self.write_level(through)?;
        }
        if let Err(error) = self.write_table(ClockTable { low, high }, false) {
            let _level = if found == through { Ok(()) } else { self.write_level(found) };
            return Err(error);
        }
        if level == through { Ok(()) } else { self.write_level(level) }
    }

    /// The next lower multiple of the step, within the range.
    fn rounded(&self, limit: KiloHertz) -> u32 {
        let whole = limit.to_whole(Role::Limit) / 1_000;
        if whole >= self.seen.high {
            return self.seen.high;
        }
        (whole / STEP_MHZ * STEP_MHZ).max(self.seen.floor())
    }

    fn level_now(&self) -> Result<usize, FileError> {
        let file = self.level.file();
        let mut buffer = [0; TEXT_MAX];
        let word = text::line(file.read(&mut buffer)?);
        let level = LEVELS.iter().position(|level| word == Some(*level));
        level.ok_or_else(|| FileError::bad_data(file.path()))
    }

    fn write_level(&self, level: usize) -> Result<(), FileError> {
        let word = LEVELS.get(level).ok_or_else(|| FileError::bad_data(self.level.file().path()))?;
        self.level.write_text(word.as_bytes())
    }

    /// Writes both lines, and puts them in force.
    fn write_table(&self, to: ClockTable, lowers: bool) -> Result<(), FileError> {
        self.write_lines(to, lowers)?;
        self.table.write_text(b"c\n")
    }

    /// Writes both lines in an order in which the lowest clock is never above the highest.
    fn write_lines(&self, to: ClockTable, lowers: bool) -> Result<(), FileError> {
        let lines = [(0, to.low), (1, to.high)];
        let [first, second] = if lowers { lines } else { [lines[1], lines[0]] };
        for (line, mhz) in [first, second] {
            let mut buffer = [0; COMMAND_MAX];
            let mut rest = &mut buffer[..];
            // A number of 32 bits fits.
            let _fits = writeln!(rest, "s {line} {mhz}");
            let left = rest.len();
            self.table.write_text(&buffer[..COMMAND_MAX - left])?;
        }
        Ok(())
    }
}

const fn takes_limits(level: usize) -> bool {
    matches!(level, MANUAL | DETERMINISM)
}

impl ClockTable {
    /// The range that contains both.
    fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The lowest limit: the driver refuses one that is not above the lowest clock.
    const fn floor(self) -> u32 {
        (self.low / STEP_MHZ + 1) * STEP_MHZ
    }

    fn range(self) -> Option<Limit<KiloHertz>> {
        let (floor, ceiling) = (kilohertz(self.floor()), kilohertz(self.high));
        let limit = Limit::new(Span { floor, ceiling }, kilohertz(STEP_MHZ)).ok()?;
        limit.known(Some(floor), Some(ceiling)).ok()
    }
}

impl ClockLimits {
    pub(super) fn in_original(original: &Original) -> Option<Self> {
        let &[level, low, high] = original.words() else { return None };
        let level = usize::try_from(level).ok().filter(|level| *level < LEVELS.len())?;
        let possible = |mhz: u64| u32::try_from(mhz).ok().filter(|mhz| (1..=POSSIBLE_MHZ).contains(mhz));
        let (low, high) = (possible(low)?, possible(high)?);
        (original.layout() == LAYOUT && low <= high).then_some(Self { level, low, high })
    }
}

fn read_table(file: &Attribute) -> Result<ClockTable, FileError> {
    let mut buffer = [0; TEXT_MAX];
    table_in(file.read(&mut buffer)?).ok_or_else(|| FileError::bad_data(file.path()))
}

/// The table of an Instinct GPU in a text; `None` for any other text.
fn table_in(text: &[u8]) -> Option<ClockTable> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines().map(str::trim_end);
    if !matches!(lines.next()?, "GFXCLK:" | "OD_SCLK:") {
        return None;
    }
    let (low, high) = (clock_line(lines.next()?, "0: ")?, clock_line(lines.next()?, "1: ")?);
    // Newer kernels show the clock of the memory below, which is left alone.
    let rest = [Some("OD_MCLK:"), Some("0: "), Some("1: ")];
    for (at, line) in lines.enumerate() {
        let expected = rest.get(at).copied().flatten()?;
        let fits = if at == 0 { line == expected } else { clock_line(line, expected).is_some() };
        if !fits {
            return None;
        }
    }
    (low <= high).then_some(ClockTable { low, high })
}

/// The clock in `1: 2100Mhz`.
fn clock_line(line: &str, prefix: &str) -> Option<u32> {
    let digits = line.strip_prefix(prefix)?;
    let digits = digits.strip_suffix("Mhz").or_else(|| digits.strip_suffix("MHz"))?;
    let mhz: Option<u32> = hwmon::number(digits.trim_start(), "");
    mhz.filter(|mhz| (1..=POSSIBLE_MHZ).contains(mhz))
}

pub(super) fn kilohertz(mhz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(mhz.saturating_mul(1_000)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_an_instinct_gpu_is_known_and_no_other() {
        let table = |low, high| Some(ClockTable { low, high });
        assert_eq!(table_in(b"GFXCLK: \n0: 500Mhz\n1: 1700Mhz\n"), table(500, 1_700), "an MI210");
        assert_eq!(table_in(b"OD_SCLK:\n0: 132Mhz\n1: 2100Mhz\n"), table(132, 2_100), "an MI300X");
        let with_memory = b"OD_SCLK:\n0: 132Mhz\n1: 2100Mhz\nOD_MCLK:\n0: 900Mhz\n1: 1300Mhz\n";
        assert_eq!(table_in(with_memory), table(132, 2_100));
        for other in [
            &b""[..],
            b"\n",
            b"unavailable\n",
            b"OD_SCLK:\n0: 132Mhz\n",
            b"OD_SCLK:\n1: 2100Mhz\n",
            b"OD_SCLK:\n0: 2100Mhz\n1: 132Mhz\n",
            b"OD_SCLK:\n0: 0Mhz\n1: 2100Mhz\n",
            b"OD_SCLK:\n0: 132Mhz\n1: 99999Mhz\n",
            b"OD_SCLK:\n0: 132Mhz\n1: -5Mhz\n",
            b"OD_SCLK:\n0: 132Mhz\n1: 2100Mhz\n2: 2200Mhz\n",
            b"\xff\xfe\n",
            // A Radeon card with OverDrive, an older one with voltages, and a new one with an offset.
            b"OD_SCLK:\n0: 500Mhz\n1: 2475Mhz\nOD_RANGE:\nSCLK:     500Mhz       3000Mhz\n",
            b"OD_SCLK:\n0:        300MHz        750mV\n1:        588MHz        765mV\n",
            b"OD_SCLK_OFFSET:\n0Mhz\n",
        ] {
            assert_eq!(table_in(other), None, "{:?}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_range_begins_above_the_lowest_clock_and_an_original_is_what_a_gpu_can_have_had() {
        let range = |low, high| ClockTable { low, high }.range().map(|it| (it.lower(), it.upper()));
        assert_eq!(range(132, 2_100), Some((kilohertz(140), kilohertz(2_100))));
        assert_eq!(range(500, 1_705), Some((kilohertz(510), kilohertz(1_705))));
        assert_eq!(range(500, 500), None, "a clock that cannot change");
        let limits = |layout, words: &[u64]| ClockLimits::in_original(&Original::new(layout, words).unwrap());
        assert_eq!(limits(1, &[0, 132, 2_100]), Some(ClockLimits { level: 0, low: 132, high: 2_100 }));
        for (layout, words) in [
            (0, &[0, 132, 2_100][..]),
            (1, &[10, 132, 2_100]),
            (1, &[0, 0, 2_100]),
            (1, &[0, 2_100, 132]),
            (1, &[0, 132, 10_001]),
            (1, &[0, 132, u64::MAX]),
            (1, &[u64::MAX, 132, 2_100]),
            (1, &[750_000_000]),
        ] {
            assert_eq!(limits(layout, words), None, "{layout} {words:?}");
        }
    }
}
