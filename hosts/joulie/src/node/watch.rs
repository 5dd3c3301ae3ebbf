//! `joulie node watch`: shows the current power with a small plot. It writes nothing to the hardware.

use super::hold::{Hold, TICK};
use super::words::{self, Fact};
use super::{Desk, Ending, Refusal};
use crate::value::Span;
use joulie_core::node::energy::{Gap, MeterReading};
use node_kit::{DeviceReport, NodeAccess, NodeLock, NodeReport};
use power_hal::Clock;
use power_units::{Micros, Ratio, Role, Watts};
use std::collections::VecDeque;

/// The number of values in a plot.
const COLUMNS: usize = 60;
const REFRESH: Micros = Micros::new(1_000_000);
const SECOND_SAMPLE: Micros = Micros::new(300_000);
/// The lowest bar is not empty: a value below an eighth is still more than zero.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const NOTHING_KNOWN: char = '?';
/// A limit controls the mean over its own window; above this tolerance it is not held.
const TOLERANCE: Ratio = Ratio::from_bits((1 << 32) + (1 << 32) / 33);

/// The values of one row.
struct Row {
    name: String,
    values: VecDeque<Option<Watts>>,
    limit: Option<Watts>,
    text: String,
}

pub(super) fn watch(desk: &mut Desk, lasting: Option<Span>) -> Result<Ending, Refusal> {
    let hold = Hold::begin(desk, NodeAccess::Look)?;
    let (begun, mut rows, mut drawn) = (hold.time.now(), Vec::new(), 0);
    // A counter has no power before its second sample, which follows one period after the first.
    let mut due = begun + desk.site.period + SECOND_SAMPLE;
    loop {
        let now = hold.time.now();
        if now >= due {
            due = now + REFRESH;
            let report = hold.handle.report();
            follow(&mut rows, &report);
            let passed = now.since(begun).unwrap_or(Micros::new(0));
            let writer = writer(desk);
            if desk.out.is_terminal() {
                drawn = draw(desk, &rows, &writer, drawn);
            } else {
                desk.out.line(plain(passed, &rows));
            }
        }
        let over = lasting.is_some_and(|span| now.since(begun).is_some_and(|passed| passed >= span.micros()));
        if over || !desk.out.is_open() || desk.interrupts.within(TICK) {
            let _closed = hold.end();
            return Ok(Ending::Done);
        }
        if hold.has_failed() {
            return Err(Refusal::new(
                Ending::NotDone,
                "the loop that reads the hardware has ended unexpectedly",
            ));
        }
    }
}

fn writer(desk: &Desk) -> String {
    match NodeLock::holder(&desk.site.state) {
        Ok(Some(holder)) => format!("writer: {holder}"),
        Ok(None) => "writer: nobody".to_owned(),
        Err(error) => format!("writer: unknown ({error})"),
    }
}

/// Adds the newest values. A new device gets a row; a removed one gets unknown values.
fn follow(rows: &mut Vec<Row>, report: &NodeReport) {
    let mut seen = Vec::new();
    for device in report.packages.iter().chain(&report.gpus) {
        let name = device.key.as_str().to_owned();
        push(rows, &name, device.power, device.limit, whose(device));
        seen.push(name);
    }
    if report.packages.len() != 1 {
        let limits = report.packages.iter().map(|device| device.limit).collect::<Option<Vec<_>>>();
        let limit = limits.filter(|all| !all.is_empty()).and_then(Watts::checked_sum);
        let power = report.power.unwrap_or(MeterReading::Missing(Gap::FirstSample));
        push(rows, "all packages", power, limit, "");
        seen.push("all packages".to_owned());
    }
    for row in rows.iter_mut().filter(|row| !seen.contains(&row.name)) {
        row.add(None);
        row.text = "unknown (not there any more)".to_owned();
    }
}

const fn whose(device: &DeviceReport) -> &'static str {
    if device.ours { ", ours" } else { "" }
}

fn push(rows: &mut Vec<Row>, name: &str, power: MeterReading, limit: Option<Watts>, whose: &str) {
    let at = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
        rows.push(Row { name: name.to_owned(), values: VecDeque::new(), limit, text: String::new() });
        rows.len() - 1
    });
    let row = &mut rows[at];
    let power = words::power(power);
    let of = match limit {
        Some(limit) => format!(" of {}{whose}", words::watts(limit)),
        None => String::new(),
    };
    let known = match &power {
        Fact::Is((watts, _)) => Some(*watts),
        Fact::None | Fact::Unknown(_) => None,
    };
    let beyond = known.zip(limit).is_some_and(|(watts, limit)| watts > limit.scale(TOLERANCE, Role::Limit));
    let enforced = if beyond { ", ABOVE THE LIMIT" } else { "" };
    row.limit = limit;
    row.text = format!("{}{of}{enforced}", power.say(|&(watts, _)| words::watts(watts)));
    row.add(known);
}

impl Row {
    fn add(&mut self, value: Option<Watts>) {
        if self.values.len() == COLUMNS {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// The values as bars between zero and the highest value or limit.
    fn bars(&self) -> String {
        let seen = self.values.iter().flatten().max().copied();
        let top = seen.max(self.limit).unwrap_or(Watts::ZERO);
        self.values.iter().map(|value| value.map_or(NOTHING_KNOWN, |watts| bar(watts, top))).collect()
    }
}

fn bar(watts: Watts, top: Watts) -> char {
    let part = watts.or_zero().ratio_to(top, Role::Nearest).unwrap_or(Ratio::ZERO);
    // Rounded down, so that only the highest value gets a full bar.
    let eighth = usize::try_from((part.to_bits() * 7) >> 32).unwrap_or(0);
    BARS.get(eighth).copied().unwrap_or('█')
}

/// Draws over the previous output, and returns the number of lines.
fn draw(desk: &mut Desk, rows: &[Row], writer: &str, before: usize) -> usize {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let (bars, name) = (row.bars(), row.name.clone());
            vec![name, format!("{bars:>COLUMNS$}"), row.text.clone()]
        })
        .collect();
    let mut lines = words::table(&cells);
    lines.push(format!("  {writer}; Ctrl-C ends"));
    // Moves up and clears each line to its end, then clears everything below.
    let mut text = if before > 0 { format!("\x1b[{before}A") } else { String::new() };
    for line in &lines {
        text.push_str(line);
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    desk.out.text(&text);
    lines.len()
}

fn plain(passed: Micros, rows: &[Row]) -> String {
    let all: Vec<String> = rows.iter().map(|row| format!("{} {}", row.name, row.text)).collect();
    let all = if all.is_empty() { "nothing that draws power was found".to_owned() } else { all.join("; ") };
    format!("{:>8}  {all}", words::seconds(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_go_from_nothing_to_the_top() {
        let at = |watts| bar(Watts::from_int(watts), Watts::from_int(200));
        assert_eq!([at(0), at(100), at(200), at(400)], ['▁', '▄', '█', '█']);
        assert_eq!(bar(Watts::from_int(5), Watts::ZERO), '▁');
    }

    #[test]
    fn a_value_that_is_not_known_is_no_bar() {
        let mut rows = Vec::new();
        for power in [
            MeterReading::Missing(Gap::Unread),
            MeterReading::Fresh { watts: Watts::from_int(9), over: REFRESH },
        ] {
            push(&mut rows, "package-0", power, None, "");
        }
        assert_eq!(rows[0].bars(), "?█");
    }
}
