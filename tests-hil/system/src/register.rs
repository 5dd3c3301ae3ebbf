//! The power limits of the node on virtual hardware: the content of its files, and a log of all writes to them.

use crate::SystemError;
use std::path::{Path, PathBuf};

/// The two packages' long-term limits.
const ZONES: [&str; 2] = ["intel-rapl:0", "intel-rapl:2"];
/// The zone of the whole node.
const PLATFORM: &str = "intel-rapl:1";
const LIMIT: &str = "constraint_0_power_limit_uw";

/// The paths of the files.
#[derive(Clone, Debug)]
pub struct RegisterFiles {
    powercap: PathBuf,
    writes: PathBuf,
}

impl RegisterFiles {
    pub(crate) fn new(hardware: &Path, writes: &Path) -> Self {
        Self { powercap: hardware.join("sys/class/powercap"), writes: writes.to_owned() }
    }

    /// Whether the hardware is mounted.
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.limits_uw().is_ok()
    }

    /// The limit of each package.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn limits_uw(&self) -> Result<[u64; 2], SystemError> {
        Ok([self.number(ZONES[0], LIMIT)?, self.number(ZONES[1], LIMIT)?])
    }

    /// The energy of the whole node, whose counter wraps after 2³² steps.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn energy_uj(&self) -> Result<u64, SystemError> {
        self.number(PLATFORM, "energy_uj")
    }

    /// The value at which the counters wrap.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn energy_range_uj(&self) -> Result<u64, SystemError> {
        self.number(PLATFORM, "max_energy_range_uj")
    }

    /// The number of writes to the limits so far: a mark for [`Self::written_since`].
    #[must_use]
    pub fn mark(&self) -> usize {
        self.writes().len()
    }

    /// The values that were written to the packages' long-term limits since a mark, in µW.
    #[must_use]
    pub fn written_since(&self, mark: usize) -> Vec<u64> {
        self.writes().into_iter().skip(mark).collect()
    }

    fn writes(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(&self.writes).unwrap_or_default();
        let mut writes = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some("write"), Some(zone), Some("0"), Some(text)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            if ZONES.contains(&zone) {
                writes.extend(text.parse::<u64>());
            }
        }
        writes
    }

    fn number(&self, zone: &str, file: &str) -> Result<u64, SystemError> {
        let path = self.powercap.join(zone).join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(text.trim().parse()?)
    }
}
