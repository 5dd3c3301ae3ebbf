//! The table `gpu_metrics` of amdgpu, as far as it says what slows a GPU (`kgd_pp_interface.h` of the kernel).
//!
//! The table has a version in its header and another layout in each. Versions 1.6 to 1.8 (MI300) count the control
//! periods of the firmware, and those in which each limit held the GPU back. Version 1.3 (MI200, RDNA) shows which limits
//! hold it back at this instant. Of other versions nothing is known here, and so the GPU reports nothing of it.

use hal_files::{Attribute, FileError};
use power_hal::{
    Domain, Error, ErrorKind, Sample, Slowdown, Slowdowns, StateReading, Throttled, ThrottledMeter,
};

/// The bytes that are read: no field beyond them is used.
const LENGTH: usize = 128;

/// The open table of a GPU, of which it is known what it says.
#[derive(Debug)]
pub(crate) struct MetricsTable {
    file: Attribute,
    meter: ThrottledMeter,
    says_causes: bool,
}

impl MetricsTable {
    /// Looks what the table says; `before` is the same table in the last list. While the GPU sleeps the table is not read, and what
    /// is known of it stays. `None` is one that says nothing.
    pub(crate) fn open(file: Attribute, before: Option<&Self>, sleeps: bool) -> Option<Self> {
        let known = before.map(|before| (before.meter, before.says_causes));
        let told = if sleeps {
            known
        } else {
            // A table that cannot be read just now is not one without a content.
            read(&file).map_or(known, |told| told.map(|told| (told.meter(), told.slowdowns.is_some())))
        };
        told.map(|(meter, says_causes)| Self { file, meter, says_causes })
    }

    /// The domain with what the table says.
    pub(crate) const fn describe(&self, domain: Domain) -> Domain {
        let domain = domain.with_throttled(self.meter);
        if self.says_causes { domain.with_reading(StateReading::Slowdown) } else { domain }
    }

    /// Fills in what can be read.
    pub(crate) fn fill(&self, sample: &mut Sample) {
        let told = read(&self.file).map_err(|error| error.kind());
        let told = told.and_then(|told| told.ok_or(ErrorKind::BadData));
        sample.throttled = told.map(|told| told.throttled);
        sample.slowdowns = told.and_then(|told| told.slowdowns.ok_or(ErrorKind::NotSupported));
    }
}

fn read(file: &Attribute) -> Result<Option<GpuMetrics>, FileError> {
    let mut table = [0; LENGTH];
    Ok(GpuMetrics::of(file.read_beginning(&mut table)?))
}

/// What the table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GpuMetrics {
    throttled: Throttled,
    /// What slows the GPU at this instant; `None` where the table only counts.
    slowdowns: Option<Slowdowns>,
}

impl GpuMetrics {
    /// The meter that these values are of.
    const fn meter(&self) -> ThrottledMeter {
        match self.throttled {
            Throttled::Time(_) => ThrottledMeter::Time { modulus: None },
            Throttled::Periods { .. } => ThrottledMeter::Periods,
            Throttled::Instant(_) => ThrottledMeter::Instant,
        }
    }

    /// Reads a table; `None` of another version, of one that is cut off, and where the firmware says nothing.
    fn of(table: &[u8]) -> Option<Self> {
        let size = usize::from(u16::from_le_bytes(bytes(table, 0)?));
        let version: [u8; 2] = bytes(table, 2)?;
        match version {
            [1, 3] if size >= 120 => Self::of_status(u64::from_le_bytes(bytes(table, 112)?)),
            [1, 6] if size >= 56 => Self::of_counters(table, 32),
            [1, 7 | 8] if size >= 64 => Self::of_counters(table, 40),
            _ => None,
        }
    }

    /// The counters of the firmware's periods: all of them, then those of PROCHOT, then those of the power limit (PPT).
    fn of_counters(table: &[u8], at: usize) -> Option<Self> {
        let of = u32::from_le_bytes(bytes(table, at)?);
        let held = u32::from_le_bytes(bytes(table, at + 8)?);
        // All ones: the firmware does not count.
        let counts = of != u32::MAX || held != u32::MAX;
        counts.then_some(Self { throttled: Throttled::Periods { held, of }, slowdowns: None })
    }

    /// The status that does not depend on the chip: power in the bits 0 to 7, current in 16 to 23, heat in 32 to 45,
    /// signals from outside in 46 and 47.
    fn of_status(bits: u64) -> Option<Self> {
        if bits == u64::MAX {
            return None;
        }
        let causes = [
            (0x0000_0000_0000_00ff, Slowdown::PowerLimit),
            (0x0000_0000_00ff_0000, Slowdown::Current),
            (0x0000_3fff_0000_0000, Slowdown::Heat),
            (0x0000_c000_0000_0000, Slowdown::Hardware),
        ];
        let set = causes.into_iter().filter(|(mask, _)| bits & mask != 0);
        let slowdowns = set.fold(Slowdowns::NONE, |all, (_, cause)| all.with(cause));
        let throttled = Throttled::Instant(slowdowns.has(Slowdown::PowerLimit));
        Some(Self { throttled, slowdowns: Some(slowdowns) })
    }
}

fn bytes<const N: usize>(table: &[u8], at: usize) -> Option<[u8; N]> {
    table.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with this size, this version, and these words at their places.
    fn table(size: u16, version: [u8; 2], words: &[(usize, &[u8])]) -> Vec<u8> {
        let mut table = vec![0; LENGTH];
        table[..2].copy_from_slice(&size.to_le_bytes());
        table[2..4].copy_from_slice(&version);
        for (at, word) in words {
            table[*at..*at + word.len()].copy_from_slice(word);
        }
        table
    }

    #[test]
    fn an_mi300_counts_the_periods_of_its_power_limit() {
        let (of, held) = (1_000_u32.to_le_bytes(), 250_u32.to_le_bytes());
        for (version, at) in [([1, 6], 32), ([1, 7], 40), ([1, 8], 40)] {
            let told = GpuMetrics::of(&table(1_664, version, &[(at, &of), (at + 8, &held)])).unwrap();
            assert_eq!(told.throttled, Throttled::Periods { held: 250, of: 1_000 }, "{version:?}");
            assert_eq!((told.meter(), told.slowdowns), (ThrottledMeter::Periods, None));
        }
        let none = u32::MAX.to_le_bytes();
        assert_eq!(GpuMetrics::of(&table(1_664, [1, 6], &[(32, &none), (40, &none)])), None);
    }

    #[test]
    fn an_mi200_says_what_holds_it_back_now() {
        let told = |bits: u64| GpuMetrics::of(&table(120, [1, 3], &[(112, &bits.to_le_bytes())]));
        let causes =
            |bits| told(bits).and_then(|told| told.slowdowns).map(|all| all.iter().collect::<Vec<_>>());
        assert_eq!(causes(0), Some(vec![]));
        assert_eq!(causes(1), Some(vec![Slowdown::PowerLimit]), "PPT0");
        assert_eq!(causes(1 << 16 | 1 << 36), Some(vec![Slowdown::Current, Slowdown::Heat]), "TDC, hot spot");
        assert_eq!(causes(1 << 47), Some(vec![Slowdown::Hardware]), "PROCHOT");
        assert_eq!(told(1).unwrap().throttled, Throttled::Instant(true));
        assert_eq!(told(1 << 36).unwrap().throttled, Throttled::Instant(false), "heat is no power limit");
        assert_eq!(told(u64::MAX), None, "not available");
    }

    #[test]
    fn a_table_of_another_version_or_one_that_is_cut_off_says_nothing() {
        for version in [[0, 0], [1, 0], [1, 2], [1, 4], [1, 5], [1, 9], [2, 3], [3, 0]] {
            assert_eq!(GpuMetrics::of(&table(1_664, version, &[])), None, "{version:?}");
        }
        assert_eq!(GpuMetrics::of(&table(119, [1, 3], &[])), None, "its own size says so");
        let whole = table(1_664, [1, 6], &[]);
        for length in 0..44 {
            assert_eq!(GpuMetrics::of(&whole[..length]), None, "{length} bytes");
        }
        assert!(GpuMetrics::of(&whole[..44]).is_some());
    }
}
