//! The table of the nodes. On a narrow terminal the least important columns are left out.

use super::paint::{Glyphs, Ink, Row};
use super::sparkline::bar;
use crate::demo::state::{Device, Node, Offer, Standing, State, Telemetry};

/// A column of the table.
struct Column {
    title: &'static str,
    width: usize,
    /// Columns with a higher importance are left out later.
    importance: u8,
    cell: fn(&Cell<'_>) -> Row,
}

/// The node and the width of a cell.
struct Cell<'s> {
    name: &'s str,
    node: &'s Node,
    glyphs: Glyphs,
    width: usize,
}

/// From left to right. The first column is as wide as the longest name, and the bars use the remaining width.
const COLUMNS: [Column; 11] = [
    Column { title: "NODE", width: NAME_LEAST, importance: 10, cell: |cell| Row::of(Ink::Plain, &cut(cell)) },
    Column { title: "OFFERS", width: 11, importance: 9, cell: |cell| offers(cell.node) },
    Column { title: "  POWER", width: 7, importance: 8, cell: |cell| power(cell.node) },
    Column { title: BAR, width: BAR_LEAST, importance: 2, cell: part },
    Column { title: "     CAP", width: 8, importance: 7, cell: |cell| cap(cell.node, cell.glyphs) },
    Column { title: "READ BACK", width: 9, importance: 6, cell: |cell| read_back(cell.node, cell.glyphs) },
    Column { title: " TEMP", width: 6, importance: 4, cell: |cell| temperature(cell.node, cell.glyphs) },
    Column { title: "SCORE", width: 5, importance: 5, cell: |cell| score(cell.node) },
    Column { title: "PODS", width: 7, importance: 3, cell: |cell| pods(cell.node) },
    Column { title: "MADE OF", width: 26, importance: 1, cell: |cell| Row::of(Ink::Dim, &cell.node.kind) },
    Column { title: "NOTE", width: 9, importance: 0, cell: |cell| note(cell.node) },
];
/// The columns between two columns of the table.
const GAP: usize = 1;
const NAME_LEAST: usize = 4;
const NAME_MOST: usize = 20;
/// The column with the power of a node relative to its maximum.
const BAR: &str = "OF MOST";
const BAR_LEAST: usize = 7;
const BAR_MOST: usize = 24;

/// The title and a row for each node.
pub(super) fn table(state: &State, columns: usize, glyphs: Glyphs) -> Vec<Row> {
    let longest = state.nodes.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let shown = fitting(columns, longest.clamp(NAME_LEAST, NAME_MOST));
    let mut title = Row::default();
    let mut end = 0;
    for (column, width) in &shown {
        title.pad(end);
        title.add(Ink::Title, column.title);
        end += width + GAP;
    }
    let mut rows = vec![title];
    for (name, node) in &state.nodes {
        let (mut row, mut end) = (Row::default(), 0);
        for (column, width) in &shown {
            row.pad(end);
            row.append((column.cell)(&Cell { name, node, glyphs, width: *width }));
            end += width + GAP;
        }
        rows.push(row);
    }
    rows
}

/// The columns that fit, with their widths.
fn fitting(columns: usize, name: usize) -> Vec<(&'static Column, usize)> {
    let mut shown: Vec<(&Column, usize)> = COLUMNS.iter().map(|column| (column, column.width)).collect();
    shown[0].1 = name;
    let width = |shown: &[(&Column, usize)]| {
        let widths: usize = shown.iter().map(|(_, width)| width).sum();
        widths + GAP * shown.len().saturating_sub(1)
    };
    while width(&shown) > columns && shown.len() > 1 {
        let Some(least) = shown.iter().map(|(column, _)| column.importance).min() else { break };
        shown.retain(|(column, _)| column.importance > least);
    }
    let left = columns.saturating_sub(width(&shown));
    if let Some((_, bar)) = shown.iter_mut().find(|(column, _)| column.title == BAR) {
        *bar = (*bar + left).min(BAR_MOST);
    }
    shown
}

/// Cut a name that is too long, because it would shift the whole row.
fn cut(cell: &Cell<'_>) -> String {
    if cell.name.chars().count() <= cell.width {
        return cell.name.to_owned();
    }
    let mut short: String = cell.name.chars().take(cell.width.saturating_sub(1)).collect();
    short.push('~');
    short
}

fn offers(node: &Node) -> Row {
    let ink = match node.offer {
        Offer::Performance => Ink::Performance,
        Offer::Eco => Ink::Eco,
        Offer::Draining => Ink::Warn,
        Offer::Unknown => Ink::Dim,
    };
    if node.reserved { Row::of(Ink::Chaos, "reserved") } else { Row::of(ink, node.offer.word()) }
}

fn power(node: &Node) -> Row {
    match node.power {
        Some(watts) => Row::of(Ink::Plain, &format!("{watts:>5.0} W")),
        None => Row::of(Ink::Warn, "    ? W"),
    }
}

fn part(cell: &Cell<'_>) -> Row {
    let ink = match cell.node.offer {
        Offer::Performance => Ink::Performance,
        Offer::Eco | Offer::Draining => Ink::Eco,
        Offer::Unknown => Ink::Dim,
    };
    Row::of(ink, &bar(cell.node.power, cell.node.most, cell.width, cell.glyphs))
}

/// The device whose cap is shown: the capped one, or the GPUs if both are capped.
fn shown(node: &Node) -> Option<(&'static str, &Device)> {
    let capped = |device: &Device| device.asked.is_some() || device.standing != Standing::Free;
    node.devices().filter(|(_, device)| capped(device)).last()
}

fn cap(node: &Node, glyphs: Glyphs) -> Row {
    match shown(node) {
        None => Row::of(Ink::Dim, "    none"),
        Some((one, Device { asked: Some(asked), .. })) => {
            Row::of(Ink::Plain, &format!("{}{asked:>5.0} W", if one == "GPU" { "g" } else { " " }))
        }
        Some((_, Device { asked: None, .. })) => Row::of(Ink::Dim, &format!("{:>8}", glyphs.soon())),
    }
}

fn read_back(node: &Node, glyphs: Glyphs) -> Row {
    let Some((_, device)) = shown(node) else { return Row::of(Ink::Dim, "own limit") };
    let watts = device.in_force.map_or_else(|| "    ?".to_owned(), |watts| format!("{watts:>5.0}"));
    match &device.standing {
        Standing::InForce => Row::of(Ink::Good, &format!("{watts} W {}", glyphs.yes())),
        // The budget holds it, as it should.
        Standing::Granted => Row::of(Ink::Good, &format!("{watts} W")),
        Standing::Clamped => Row::of(Ink::Warn, &format!("{watts} W")),
        Standing::Asked => Row::of(Ink::Warn, &format!("{watts} W {}", glyphs.soon())),
        Standing::Refused(_) => Row::of(Ink::Bad, &format!("{watts} W {}", glyphs.no())),
        Standing::Free => Row::of(Ink::Dim, "own limit"),
    }
}

fn temperature(node: &Node, glyphs: Glyphs) -> Row {
    match node.temperature {
        Some(degrees) => Row::of(Ink::Plain, &format!("{degrees:>3.0} {}", glyphs.degrees())),
        None => Row::of(Ink::Warn, "  ?"),
    }
}

fn score(node: &Node) -> Row {
    match node.score {
        Some(score) => Row::of(Ink::Plain, &format!("{score:>5}")),
        None => Row::of(Ink::Dim, "    ?"),
    }
}

fn pods(node: &Node) -> Row {
    let mut row = Row::of(Ink::Plain, &format!("{:>2}", node.running));
    if node.performance > 0 {
        row.add(Ink::Performance, &format!(" ({}p)", node.performance));
    }
    row
}

fn note(node: &Node) -> Row {
    match &node.telemetry {
        Telemetry::Stale(_) => Row::of(Ink::Bad, "blind"),
        Telemetry::Fresh | Telemetry::Unknown if !node.ready => Row::of(Ink::Bad, "not ready"),
        Telemetry::Fresh | Telemetry::Unknown if node.by_hand => Row::of(Ink::Chaos, "by hand"),
        Telemetry::Fresh | Telemetry::Unknown => Row::default(),
    }
}
