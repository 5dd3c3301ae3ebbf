//! The live view: draws a frame of text from a state. Pure: the same state, size and style give the same text.
//!
//! No line of a frame is wider than the terminal, and a frame has no more lines than the terminal has rows. What does
//! not fit is left out by importance; the nodes are more important than the events.

mod header;
mod nodes;
mod paint;
mod picture;
mod sparkline;

pub(crate) use paint::{Glyphs, Ink, Paint, Row};
pub(crate) use picture::svg;
pub(crate) use sparkline::Sparkline;

use super::events::{Line, Tone, seconds};
use super::state::{Placement, State};
use std::time::Duration;

/// The terminal's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The characters and colours of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) glyphs: Glyphs,
    pub(crate) paint: Paint,
}

/// Values that do not change while the demo runs.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    /// How long it runs; `None` for until it is interrupted.
    pub(crate) lasting: Option<Duration>,
    /// The path of the kubeconfig.
    pub(crate) kubeconfig: String,
    /// Where the page is, if there is one.
    pub(crate) page: Option<String>,
}

/// A frame is drawn at least this wide.
const COLUMNS_LEAST: usize = 20;

/// The lines of a frame, as text with escape sequences.
pub(crate) fn frame(
    state: &State,
    fixed: &Fixed,
    told: &[Line],
    power: &Sparkline,
    (size, style): (Size, Style),
) -> Vec<String> {
    let size = Size { columns: size.columns.max(COLUMNS_LEAST), rows: size.rows.max(1) };
    let rows = rows(state, fixed, told, power, (size, style.glyphs));
    rows.iter().map(|row| row.write(size.columns, style)).collect()
}

/// The rows of a frame.
pub(crate) fn rows(
    state: &State,
    fixed: &Fixed,
    told: &[Line],
    power: &Sparkline,
    (size, glyphs): (Size, Glyphs),
) -> Vec<Row> {
    let mut rows = header::header(state, fixed, power, size, glyphs);
    rows.push(Row::default());
    rows.extend(nodes::table(state, size.columns, glyphs));
    rows.extend(below(state, told, size.rows.saturating_sub(rows.len())));
    rows.truncate(size.rows);
    rows
}

/// The part under the table. The events get most of the space. The head already shows the newest placement, so more
/// placements are shown only if there is much space.
fn below(state: &State, told: &[Line], left: usize) -> Vec<Row> {
    // The blank line and the title.
    if left < 3 {
        return Vec::new();
    }
    let mut rows = vec![Row::default()];
    let placed = if left >= ROOM_FOR_PLACEMENTS { (left / 3).min(state.placements.len()) } else { 0 };
    if placed > 0 {
        rows.push(Row::of(Ink::Title, "LAST PLACEMENTS"));
        rows.extend(state.placements.iter().rev().take(placed).map(placement));
        rows.push(Row::default());
    }
    rows.push(Row::of(Ink::Title, "WHAT HAPPENED, the newest first"));
    let room = left.saturating_sub(rows.len());
    rows.extend(told.iter().rev().take(room).map(event));
    rows
}

const ROOM_FOR_PLACEMENTS: usize = 11;

impl Placement {
    /// The placement in one line, with its reason.
    fn row(&self) -> Row {
        let mut row = Row::of(if self.performance { Ink::Performance } else { Ink::Plain }, &self.pod);
        row.add(Ink::Plain, &format!(" on {}: {}", self.node, self.why));
        row
    }
}

fn placement(placement: &Placement) -> Row {
    let mut row = Row::of(Ink::Dim, &format!("{:>8}  ", seconds(placement.at)));
    row.append(placement.row());
    row
}

/// An event.
fn event(line: &Line) -> Row {
    let mut row = Row::of(Ink::Dim, &format!("{:>8}  ", seconds(line.at)));
    row.add(
        match line.tone {
            Tone::Good => Ink::Good,
            Tone::Plain => Ink::Plain,
            Tone::Warn => Ink::Warn,
            Tone::Bad => Ink::Bad,
            Tone::Chaos => Ink::Chaos,
        },
        &line.text,
    );
    row
}

#[cfg(test)]
mod tests;
