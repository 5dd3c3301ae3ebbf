//! Styled text: how a row is coloured if colours are used, and how it is cut if it is too wide.

use super::Style;

/// The meaning of a piece of text, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Dim,
    Title,
    Good,
    Warn,
    Bad,
    Performance,
    Eco,
    Chaos,
}

/// Whether colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Colours,
    None,
}

/// The set of characters: not every terminal has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Glyphs {
    Unicode,
    Ascii,
}

/// A line of styled pieces. Every character is one column wide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pieces: Vec<(Ink, String)>,
}

impl Ink {
    /// The parameters of SGR. They are colours of the terminal's own palette, so that they are readable on any
    /// background.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Dim => Some("2"),
            Self::Title => Some("1"),
            Self::Good => Some("32"),
            Self::Warn => Some("33"),
            Self::Bad => Some("1;31"),
            Self::Performance => Some("36"),
            Self::Eco => Some("32"),
            Self::Chaos => Some("1;35"),
        }
    }
}

impl Glyphs {
    /// A character that fills this many eighths of a cell.
    pub(crate) const fn bar(self, eighths: usize) -> char {
        const LYING: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
        match (self, eighths) {
            (_, 0) => ' ',
            (Self::Unicode, part) => LYING[if part < 8 { part - 1 } else { 7 }],
            (Self::Ascii, part) => {
                if part >= 4 {
                    '#'
                } else {
                    ' '
                }
            }
        }
    }

    /// A column of this height, from 0 to 7.
    pub(crate) const fn column(self, height: usize) -> char {
        const UPRIGHT: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const PLAIN: [char; 8] = ['_', '_', '.', '.', '-', '-', '=', '='];
        let height = if height < 8 { height } else { 7 };
        match self {
            Self::Unicode => UPRIGHT[height],
            Self::Ascii => PLAIN[height],
        }
    }

    pub(crate) const fn rest_of_bar(self) -> char {
        match self {
            Self::Unicode => '░',
            Self::Ascii => '.',
        }
    }

    pub(crate) const fn yes(self) -> &'static str {
        match self {
            Self::Unicode => "✓",
            Self::Ascii => "ok",
        }
    }

    pub(crate) const fn no(self) -> &'static str {
        match self {
            Self::Unicode => "✗",
            Self::Ascii => "NO",
        }
    }

    pub(crate) const fn soon(self) -> &'static str {
        match self {
            Self::Unicode => "…",
            Self::Ascii => "..",
        }
    }

    const fn cut(self) -> char {
        match self {
            Self::Unicode => '…',
            Self::Ascii => '~',
        }
    }

    pub(crate) const fn degrees(self) -> &'static str {
        match self {
            Self::Unicode => "°C",
            Self::Ascii => "C",
        }
    }
}

impl Row {
    pub(crate) fn of(ink: Ink, text: &str) -> Self {
        Self { pieces: vec![(ink, text.to_owned())] }
    }

    pub(crate) fn add(&mut self, ink: Ink, text: &str) {
        self.pieces.push((ink, text.to_owned()));
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
    }

    pub(crate) fn width(&self) -> usize {
        self.pieces.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Pads with spaces up to `width`.
    pub(crate) fn pad(&mut self, width: usize) {
        let missing = width.saturating_sub(self.width());
        if missing > 0 {
            self.add(Ink::Plain, &" ".repeat(missing));
        }
    }

    /// The row as text of at most `columns` columns.
    pub(crate) fn write(&self, columns: usize, style: Style) -> String {
        let mut out = String::new();
        for (ink, text) in self.within(columns, style.glyphs) {
            match ink.code().filter(|_| style.paint == Paint::Colours && !text.trim().is_empty()) {
                Some(code) => out.push_str(&format!("\x1b[{code}m{text}\x1b[0m")),
                None => out.push_str(&text),
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out
    }

    /// The pieces within this many columns. If something is cut off, the last column indicates it.
    pub(crate) fn within(&self, columns: usize, glyphs: Glyphs) -> Vec<(Ink, String)> {
        let too_wide = self.width() > columns;
        let mut left = if too_wide { columns.saturating_sub(1) } else { columns };
        let mut pieces = Vec::with_capacity(self.pieces.len());
        for (ink, text) in &self.pieces {
            let text: String = text.chars().take(left).collect();
            left -= text.chars().count();
            pieces.push((*ink, text));
        }
        if too_wide && columns > 0 {
            pieces.push((Ink::Plain, glyphs.cut().to_string()));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn style(paint: Paint) -> Style {
        Style { glyphs: Glyphs::Unicode, paint }
    }

    #[test]
    fn a_row_is_cut_by_columns_and_not_by_bytes_or_codes() {
        let mut row = Row::of(Ink::Good, "▇▇▇");
        row.add(Ink::Plain, "abc");
        assert_eq!(row.write(6, style(Paint::None)), "▇▇▇abc");
        assert_eq!(row.write(5, style(Paint::None)), "▇▇▇a…");
        assert_eq!(row.write(5, style(Paint::Colours)), "\x1b[32m▇▇▇\x1b[0ma…");
        assert_eq!(row.write(2, style(Paint::Colours)), "\x1b[32m▇\x1b[0m…");
        assert_eq!(row.write(0, style(Paint::Colours)), "");
    }

    #[test]
    fn a_bar_grows_by_eighths() {
        let bars: String = (0..=9).map(|part| Glyphs::Unicode.bar(part)).collect();
        assert_eq!(bars, " ▏▎▍▌▋▊▉██");
        let columns: String = (0..9).map(|height| Glyphs::Unicode.column(height)).collect();
        assert_eq!(columns, "▁▂▃▄▅▆▇██");
    }
}
