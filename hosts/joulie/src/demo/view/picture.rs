//! Draws a frame as SVG with selectable text. Columns are aligned in any font.

use super::{Glyphs, Ink, Row};
use std::fmt::Write;

/// The size of a cell in SVG units, and the margin around all cells.
const CELL: (usize, usize) = (8, 18);
const MARGIN: usize = 14;

/// The part that does not depend on the frame: a dark terminal.
const STYLE: &str = "\
<style>\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}\
.dim{fill:#8b949e}.title{font-weight:bold}.good,.eco{fill:#3fb950}.warn{fill:#d29922}\
.bad{fill:#f85149;font-weight:bold}.performance{fill:#39c5cf}.chaos{fill:#d2a8ff;font-weight:bold}\
</style>";

const fn class(ink: Ink) -> &'static str {
    match ink {
        Ink::Plain => "plain",
        Ink::Dim => "dim",
        Ink::Title => "title",
        Ink::Good => "good",
        Ink::Warn => "warn",
        Ink::Bad => "bad",
        Ink::Performance => "performance",
        Ink::Eco => "eco",
        Ink::Chaos => "chaos",
    }
}

/// Draws these rows with this many columns.
pub(crate) fn svg(rows: &[Row], columns: usize) -> String {
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows.len() * CELL.1 + 2 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         {STYLE}\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (number, row) in rows.iter().enumerate() {
        let y = MARGIN + number * CELL.1 + CELL.1 * 3 / 4;
        let mut column = 0;
        for (ink, piece) in row.within(columns, Glyphs::Unicode) {
            let long = piece.chars().count();
            let blank = piece.len() - piece.trim_start_matches(' ').len();
            let shown = piece.trim_matches(' ');
            if !shown.is_empty() {
                let (x, wide) = (MARGIN + (column + blank) * CELL.0, shown.chars().count() * CELL.0);
                let (class, shown) = (class(ink), escaped(shown));
                // Writing to a String cannot fail.
                let _written = writeln!(
                    text,
                    "<text x=\"{x}\" y=\"{y}\" textLength=\"{wide}\" lengthAdjust=\"spacingAndGlyphs\" class=\"{class}\">{shown}</text>"
                );
            }
            column += long;
        }
    }
    text.push_str("</svg>\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_stands_in_its_column_and_its_text_is_no_markup() {
        let mut row = Row::of(Ink::Dim, "    5 s  ");
        row.add(Ink::Bad, "a <b> & c");
        row.add(Ink::Plain, &"x".repeat(40));
        let text = svg(&[Row::default(), row], 30);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
        // The second row, the fifth column: 14 + 4·8, 14 + 18 + 13; three characters of 8.
        assert!(text.contains("<text x=\"46\" y=\"45\" textLength=\"24\""), "{text}");
        assert!(text.contains("class=\"bad\">a &lt;b&gt; &amp; c</text>"), "{text}");
        assert!(text.contains(">xxxxxxxxxxx</text>") && text.contains(">…</text>"), "{text}");
        assert!(text.contains("viewBox=\"0 0 268 64\""), "{text}");
    }
}
