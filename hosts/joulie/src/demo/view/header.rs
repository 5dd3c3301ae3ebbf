//! The head of a frame: the title, power against the budget, pods and plan.

use super::paint::{Glyphs, Ink, Row};
use super::sparkline::{Sparkline, bar, percent};
use super::{Fixed, Size};
use crate::demo::events::{PLAN_SILENT, seconds};
use crate::demo::state::{Offer, Plan, State};
use power_units::Watts;
use std::time::Duration;

/// The columns of a label, such as `power  `.
const LABEL: usize = 7;

/// With fewer rows than this, the kubectl command is only in the lines that were printed first.
const ROWS_FOR_THE_WAY_IN: usize = 26;

pub(super) fn header(
    state: &State,
    fixed: &Fixed,
    power: &Sparkline,
    size: Size,
    glyphs: Glyphs,
) -> Vec<Row> {
    let Size { columns, rows } = size;
    let mut all = vec![
        first(state, fixed, columns),
        site(state, power, columns, glyphs),
        pods(state),
        plan(&state.plan),
        placed(state),
    ];
    if rows >= ROWS_FOR_THE_WAY_IN {
        all.push(way_in(fixed, columns));
    }
    if let Some(page) = &fixed.page {
        let mut row = label("page");
        row.add(Ink::Plain, page);
        all.push(row);
    }
    all
}

/// The newest placement, with its reason.
fn placed(state: &State) -> Row {
    let mut row = label("placed");
    match state.placements.last() {
        Some(newest) => row.append(newest.row()),
        None => row.add(Ink::Dim, "no pod yet"),
    }
    row
}

fn first(state: &State, fixed: &Fixed, columns: usize) -> Row {
    let mut row = Row::of(Ink::Title, "joulie demo");
    let kinds: std::collections::BTreeSet<&str> =
        state.nodes.values().map(|node| node.kind.as_str()).collect();
    row.add(Ink::Plain, &format!("  {} simulated nodes of {} kinds", state.nodes.len(), kinds.len()));
    let clock = match fixed.lasting {
        Some(lasting) => format!("{} of {}", minutes(state.at), minutes(lasting)),
        None => format!("{}, Ctrl-C ends", minutes(state.at)),
    };
    row.add(Ink::Plain, "  ");
    row.pad(columns.saturating_sub(clock.chars().count()));
    row.add(Ink::Dim, &clock);
    row
}

fn minutes(span: Duration) -> String {
    format!("{}:{:02}", span.as_secs() / 60, span.as_secs() % 60)
}

fn label(text: &str) -> Row {
    let mut row = Row::of(Ink::Dim, text);
    row.pad(LABEL);
    row
}

fn site(state: &State, power: &Sparkline, columns: usize, glyphs: Glyphs) -> Row {
    let mut row = label("power");
    let (known, unknown) = state.power_known();
    let watts = state.power();
    let text = match (watts, state.budget) {
        (Some(watts), Some(budget)) => {
            let part = percent(watts, budget).unwrap_or_default();
            format!("{watts:>6.0} W of {budget:.0} W budget, {part}")
        }
        (Some(watts), None) => format!("{watts:>6.0} W, no budget"),
        (None, Some(budget)) => {
            format!("{known:>6.0} W and {unknown} unknown, of {budget:.0} W budget")
        }
        (None, None) => format!("{known:>6.0} W and {unknown} unknown"),
    };
    let above = watts.zip(state.budget).is_some_and(|(watts, budget)| watts > budget);
    let room = columns.saturating_sub(LABEL + text.chars().count() + 2);
    let top = state.budget.unwrap_or_else(|| most(state));
    // The remaining width: a third for the bar, the rest for the sparkline.
    if room >= 12 {
        let wide = room / 3;
        row.append(power.draw(room - wide - 1, top, glyphs));
        row.add(Ink::Plain, " ");
        let ink = if above { Ink::Bad } else { Ink::Good };
        row.add(ink, &bar(watts.or(Some(known)), Some(top), wide, glyphs));
        row.add(Ink::Plain, " ");
    }
    row.add(if above { Ink::Bad } else { Ink::Plain }, &text);
    row
}

/// The most that all nodes could draw, for the case without a budget.
fn most(state: &State) -> Watts {
    Watts::checked_sum(state.nodes.values().filter_map(|node| node.most)).unwrap_or(Watts::ZERO)
}

fn pods(state: &State) -> Row {
    let pods = &state.pods;
    let mut row = label("pods");
    row.add(Ink::Plain, &format!("{} run, ", pods.running));
    let ink = if pods.waiting > 0 { Ink::Warn } else { Ink::Plain };
    row.add(ink, &format!("{} wait", pods.waiting));
    row.add(Ink::Plain, &format!(", {} ended", pods.ended));
    if pods.failed > 0 {
        row.add(Ink::Bad, &format!(", {} failed", pods.failed));
    }
    let ink = if pods.misplaced > 0 { Ink::Bad } else { Ink::Good };
    row.add(ink, &format!(", {} misplaced", pods.misplaced));
    let offers = [Offer::Performance, Offer::Eco, Offer::Draining]
        .into_iter()
        .map(|offer| (state.offering(offer), offer.word()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"));
    row.add(Ink::Plain, &format!("; nodes: {}", offers.collect::<Vec<_>>().join(", ")));
    row
}

fn plan(plan: &Plan) -> Row {
    let mut row = label("plan");
    let policy = plan.policy.as_deref().unwrap_or("no policy known yet");
    row.add(Ink::Plain, policy);
    match (&plan.leader, plan.age) {
        (Some(leader), Some(age)) if age > PLAN_SILENT => {
            row.add(Ink::Bad, &format!(", {leader} has said nothing for {}; caps hold", seconds(age)));
        }
        (Some(leader), Some(age)) => {
            row.add(Ink::Plain, &format!(", renewed {} ago by {leader}", seconds(age)))
        }
        (Some(leader), None) => row.add(Ink::Warn, &format!(", {leader} has not planned yet")),
        (None, _) => row.add(Ink::Warn, ", nobody leads yet"),
    }
    row
}

fn way_in(fixed: &Fixed, columns: usize) -> Row {
    let mut row = label("try");
    let long = format!("kubectl --kubeconfig {} get nodes,nodetwins,nodepowerprofiles", fixed.kubeconfig);
    let short = format!("kubectl --kubeconfig {} get nt", fixed.kubeconfig);
    let fits = LABEL + long.chars().count() <= columns;
    row.add(Ink::Plain, if fits { &long } else { &short });
    row
}
