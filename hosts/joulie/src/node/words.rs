//! Formats quantities and facts for the output.

use joulie_core::node::energy::{Gap, MeterReading, Oddity};
use node_kit::{BackendReport, BackendState, LoopCause};
use power_hal::{ErrorKind, MemoryUse, Slowdown, Slowdowns};
use power_units::{Celsius, KiloHertz, Micros, Percent, Role, Watts};

/// A value that is known, absent, or unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fact<T> {
    Is(T),
    /// This hardware does not have it.
    None,
    Unknown(String),
}

impl<T> Fact<T> {
    /// The value in words; an unknown one with its reason.
    pub(super) fn say(&self, known: impl Fn(&T) -> String) -> String {
        match self {
            Self::Is(value) => known(value),
            Self::None => "none".to_owned(),
            Self::Unknown(why) => format!("unknown ({why})"),
        }
    }
}

/// To a tenth of a watt; a zero after the point is left out.
pub(super) fn watts(watts: Watts) -> String {
    let text = format!("{watts:.1}");
    format!("{} W", text.strip_suffix(".0").unwrap_or(&text))
}

/// To a tenth of a degree; a zero after the point is left out.
pub(super) fn degrees(temperature: Celsius) -> String {
    let text = format!("{temperature:.1}");
    format!("{} °C", text.strip_suffix(".0").unwrap_or(&text))
}

pub(super) fn percent(share: Percent) -> String {
    format!("{} %", share.round())
}

/// In whole mebibytes, as the vendors' tools show it.
pub(super) fn memory(memory: MemoryUse) -> String {
    format!("{} of {} MiB", memory.used_bytes() >> 20, memory.total_bytes() >> 20)
}

/// What slows a device.
pub(super) fn causes(causes: Slowdowns) -> String {
    let all: Vec<&str> = causes.iter().map(cause).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

const fn cause(cause: Slowdown) -> &'static str {
    match cause {
        Slowdown::PowerLimit => "its power limit",
        Slowdown::Current => "current",
        Slowdown::Heat => "heat",
        Slowdown::Hardware => "a signal of the hardware",
        Slowdown::Setting => "a setting",
    }
}

/// Why a closed loop over the clock holds a GPU.
pub(super) const fn loop_cause(cause: LoopCause) -> &'static str {
    match cause {
        LoopCause::NoLimit => "it has no power limit",
        LoopCause::OutOfRange => "its power limit does not go as low as the cap",
        LoopCause::Refused => "its power limit is refused, or cannot be read back",
        LoopCause::NotKept => "its power limit is read back as it was set, and more is drawn",
    }
}

pub(super) fn frequency(frequency: KiloHertz) -> String {
    let mega = frequency.to_whole(Role::Nearest) / 1000;
    format!("{}.{:02} GHz", mega / 1000, mega % 1000 / 10)
}

/// A duration in tenths of a second.
pub(super) fn seconds(span: Micros) -> String {
    let tenths = span.get().saturating_add(50_000) / 100_000;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// The reading of a meter: the power, and the time over which it is the mean.
pub(super) fn power(reading: MeterReading) -> Fact<(Watts, Micros)> {
    match reading {
        MeterReading::Fresh { watts, over } => Fact::Is((watts, over)),
        MeterReading::Missing(Gap::NoMeter) => Fact::Unknown("nothing here measures it".to_owned()),
        MeterReading::Stale { age } => Fact::Unknown(format!("the last reading is {} old", seconds(age))),
        MeterReading::Missing(gap) => Fact::Unknown(gap_in_words(gap).to_owned()),
        MeterReading::Impossible(oddity) => Fact::Unknown(oddity_in_words(oddity).to_owned()),
    }
}

const fn gap_in_words(gap: Gap) -> &'static str {
    match gap {
        Gap::NoMeter => "nothing here measures it",
        Gap::Unread => "the meter could not be read",
        Gap::FirstSample => "there is only one sample of the counter yet",
        Gap::TooSoon => "the counter does not move that fast",
        Gap::WrapsUnknowable => "it is unknown how often the counter wrapped",
    }
}

const fn oddity_in_words(oddity: Oddity) -> &'static str {
    match oddity {
        Oddity::AboveMaximum => "the counter rose by more than this hardware can draw",
        Oddity::AboveRange => "the counter shows a value that it cannot have",
        Oddity::RanBackwards => "the counter ran backwards",
        Oddity::ClockBackwards => "the samples came in the wrong order",
        Oddity::FromTheFuture => "the sample is from the future",
        Oddity::TwoAtOnce => "the counter shows two values at once",
    }
}

/// The state of a backend in words.
pub(super) fn standing(backend: &BackendReport) -> String {
    match &backend.standing {
        BackendState::Opening => "does not answer yet".to_owned(),
        BackendState::Failed(trouble) if trouble.kind == ErrorKind::PermissionDenied => {
            format!("failed: {trouble}; it needs {}", backend.kind.facts().access)
        }
        BackendState::Failed(trouble) => format!("failed: {trouble}"),
        BackendState::Ready if backend.stuck_since.is_some() => "stuck in a call to its driver".to_owned(),
        BackendState::Ready if backend.domains == 0 => "absent".to_owned(),
        BackendState::Ready => match backend.domains {
            1 => "ready, 1 domain".to_owned(),
            many => format!("ready, {many} domains"),
        },
    }
}

/// Aligns columns to their widest cell, two spaces apart.
pub(super) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_kit::{BackendKind, DriverError};

    #[test]
    fn quantities_have_their_units() {
        assert_eq!(watts(Watts::from_int(250)), "250 W");
        assert_eq!(watts(Watts::parse("119.96", Role::Nearest).unwrap()), "120 W");
        assert_eq!(watts(Watts::parse("0.26", Role::Nearest).unwrap()), "0.3 W");
        assert_eq!(frequency(KiloHertz::from_int(2_419_000)), "2.41 GHz");
        assert_eq!(degrees(Celsius::from_int(71)), "71 °C");
        assert_eq!(memory(MemoryUse::new(1 << 30, 2 << 30).unwrap()), "1024 of 2048 MiB");
        assert_eq!(causes(Slowdowns::NONE), "nothing");
        assert_eq!(
            causes(Slowdowns::NONE.with(Slowdown::Heat).with(Slowdown::PowerLimit)),
            "its power limit, heat"
        );
        assert_eq!(seconds(Micros::new(1_049_999)), "1.0 s");
    }

    #[test]
    fn what_is_unknown_says_why_and_is_never_a_number() {
        let all = [
            MeterReading::Stale { age: Micros::new(3_000_000) },
            MeterReading::Missing(Gap::NoMeter),
            MeterReading::Missing(Gap::Unread),
            MeterReading::Missing(Gap::FirstSample),
            MeterReading::Missing(Gap::TooSoon),
            MeterReading::Missing(Gap::WrapsUnknowable),
            MeterReading::Impossible(Oddity::AboveMaximum),
            MeterReading::Impossible(Oddity::RanBackwards),
        ];
        for reading in all {
            let said = power(reading).say(|_| "a number".to_owned());
            assert!(said.starts_with("unknown (") && said.len() > 12, "{said}");
        }
    }

    #[test]
    fn a_backend_that_is_not_permitted_says_what_it_needs() {
        let failed = |kind| {
            let trouble = DriverError { kind, text: "opening /dev/hsmp".to_owned() };
            standing(&BackendReport {
                kind: BackendKind::Hsmp,
                standing: BackendState::Failed(trouble),
                domains: 0,
                stuck_since: None,
                complaints: Vec::new().into(),
                cards: None,
                uses: None,
                last_trouble: None,
                troubles: 1,
            })
        };
        assert_eq!(
            failed(ErrorKind::PermissionDenied),
            "failed: opening /dev/hsmp; it needs root; `/dev/hsmp`"
        );
        assert_eq!(failed(ErrorKind::Io), "failed: opening /dev/hsmp");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["a", "b"]), row(["µµµ", "c"])]), ["  a    b", "  µµµ  c"]);
    }
}
