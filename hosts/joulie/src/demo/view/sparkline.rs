//! The last values of a quantity as a sparkline, and a value as a bar.

use super::paint::{Glyphs, Ink, Row};
use power_units::{Ratio, Role, Watts};
use std::collections::VecDeque;

/// The number of kept values; no terminal shows more.
const KEPT: usize = 240;
/// The character for an unknown value.
const UNKNOWN: char = '?';

/// The last values, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sparkline {
    values: VecDeque<Option<Watts>>,
}

impl Sparkline {
    pub(crate) fn push(&mut self, value: Option<Watts>) {
        if self.values.len() == KEPT {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// Draws the last `columns` values between zero and `top`. A value above `top` has full height and is red.
    pub(crate) fn draw(&self, columns: usize, top: Watts, glyphs: Glyphs) -> Row {
        let mut row = Row::default();
        let skipped = self.values.len().saturating_sub(columns);
        row.pad(columns.saturating_sub(self.values.len()));
        for value in self.values.iter().skip(skipped) {
            match value {
                None => row.add(Ink::Dim, &UNKNOWN.to_string()),
                Some(watts) => {
                    let ink = if *watts > top { Ink::Bad } else { Ink::Good };
                    row.add(ink, &glyphs.column(part(*watts, top, 7)).to_string());
                }
            }
        }
        row
    }
}

/// A bar with this many columns, filled in the proportion of `value` to `top`.
pub(crate) fn bar(value: Option<Watts>, top: Option<Watts>, columns: usize, glyphs: Glyphs) -> String {
    let (Some(value), Some(top)) = (value, top) else { return " ".repeat(columns) };
    let eighths = part(value, top, columns * 8);
    let full = eighths / 8;
    let cell = |at: usize| match (at < full, at == full) {
        (true, _) => glyphs.bar(8),
        (false, true) if !eighths.is_multiple_of(8) && glyphs.bar(eighths % 8) != ' ' => {
            glyphs.bar(eighths % 8)
        }
        (false, _) => glyphs.rest_of_bar(),
    };
    (0..columns).map(cell).collect()
}

/// How many of `whole` parts `value` is of `top`, rounded down, at most `whole`.
fn part(value: Watts, top: Watts, whole: usize) -> usize {
    let ratio = value.or_zero().ratio_to(top, Role::Limit).unwrap_or(Ratio::ZERO).to_bits();
    let whole = i64::try_from(whole).unwrap_or(0);
    let parts = ratio.clamp(0, 1 << 32).saturating_mul(whole) >> 32;
    usize::try_from(parts).unwrap_or(0)
}

/// The ratio in whole percent, rounded up: 99.6 % of a budget is shown as 100 %.
pub(crate) fn percent(value: Watts, top: Watts) -> Option<String> {
    let ratio = value.ratio_to(top, Role::Demand)?;
    Some(format!("{:.0} %", ratio.to_percent()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn watts(value: i32) -> Option<Watts> {
        Some(Watts::from_int(value))
    }

    #[test]
    fn a_bar_is_as_full_as_its_value() {
        let drawn = |value| bar(watts(value), watts(100), 4, Glyphs::Unicode);
        assert_eq!(
            [drawn(0), drawn(25), drawn(30), drawn(100), drawn(900)],
            ["░░░░", "█░░░", "█▏░░", "████", "████"]
        );
        assert_eq!(bar(watts(50), watts(100), 4, Glyphs::Ascii), "##..");
        assert_eq!(bar(None, watts(100), 4, Glyphs::Unicode), "    ");
        assert_eq!(bar(watts(5), watts(0), 2, Glyphs::Unicode), "░░");
    }

    #[test]
    fn an_unknown_value_is_no_column() {
        let mut sparkline = Sparkline::default();
        for value in [watts(0), None, watts(100), watts(200)] {
            sparkline.push(value);
        }
        let style = super::super::Style { glyphs: Glyphs::Unicode, paint: super::super::Paint::None };
        assert_eq!(sparkline.draw(6, Watts::from_int(100), Glyphs::Unicode).write(6, style), "  ▁?██");
        assert_eq!(sparkline.draw(2, Watts::from_int(100), Glyphs::Unicode).write(6, style), "██");
    }
}
