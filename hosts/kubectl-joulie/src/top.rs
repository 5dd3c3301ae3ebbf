//! `top`: the nodes that draw most, and the budgets above them. It watches the objects, and shows what they say once a second.

use crate::api::path;
use crate::clean::clean;
use crate::object::{condition, name, number, text};
use crate::run::{PluginSession, Reply};
use crate::show::{Sheet, percent, watts};
use host_kit::clock::HostClock;
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::reflect::{HEARD_WITHIN, Reflections, Row, Rows, WatchSource, reflect};
use host_kit::shutdown;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::Duration;

const COLUMNS: [&str; 6] = ["NODE", "CLASS", "POWER", "ALLOWED", "USE", "HEADROOM"];
const AGAIN: Duration = Duration::from_secs(1);

/// What is shown of a NodeTwin.
#[derive(Clone, Debug)]
struct Drawing {
    node: String,
    class: String,
    power: Option<f64>,
    allowed: Option<f64>,
    headroom: Option<f64>,
}

impl Row for Drawing {
    const KIND: &'static str = "nodetwins";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        Ok(Self {
            node: text(object, "/spec/nodeName").to_owned(),
            class: text(object, "/status/schedulableClass").to_owned(),
            power: number(object, "/status/powerMeasurement/measuredNodePowerW"),
            allowed: number(object, "/status/powerMeasurement/nodeCappedPowerW"),
            headroom: number(object, "/status/predictedPowerHeadroomScore"),
        })
    }
}

/// What is shown of a PowerBudget: one line.
#[derive(Clone, Debug)]
struct BudgetLine(String);

impl Row for BudgetLine {
    const KIND: &'static str = "powerbudgets";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let kept =
            condition(object, "WithinBudget").map_or("-", |one| one["status"].as_str().unwrap_or_default());
        Ok(Self(format!(
            "{} ({}): {} measured, {} counted, of {}; kept: {kept}",
            name(object),
            text(object, "/spec/mode"),
            watts(number(object, "/status/measuredWatts")),
            watts(number(object, "/status/countedWatts")),
            watts(number(object, "/spec/watts")),
        )))
    }
}

fn picture(mut nodes: Vec<Drawing>, budgets: Vec<String>, most: usize) -> Sheet {
    let sum = |of: fn(&Drawing) -> Option<f64>| nodes.iter().filter_map(of).sum::<f64>();
    let measured = nodes.iter().filter(|node| node.power.is_some()).count();
    let mut sheet = Sheet::new("TopList", &COLUMNS, &[]);
    sheet.heading.push(format!(
        "{} nodes draw {} of {} that their caps allow; {} are not measured",
        nodes.len(),
        watts(Some(sum(|node| node.power))),
        watts(Some(sum(|node| node.allowed))),
        nodes.len() - measured
    ));
    sheet.heading.extend(budgets.into_iter().map(|line| format!("budget {line}")));
    // A node that is not measured comes last: what it draws is not known.
    let order = |node: &Drawing| node.power.unwrap_or(f64::NEG_INFINITY);
    nodes.sort_by(|one, other| order(other).total_cmp(&order(one)).then_with(|| one.node.cmp(&other.node)));
    for node in nodes.into_iter().take(most) {
        let share = node
            .power
            .zip(node.allowed.filter(|allowed| *allowed > 0.0))
            .map(|(power, allowed)| power / allowed * 100.0);
        let cells = vec![
            node.node.clone(),
            node.class.clone(),
            watts(node.power),
            watts(node.allowed),
            percent(share),
            percent(node.headroom),
        ];
        let document = json!({"node": node.node, "class": node.class, "measuredWatts": node.power,
            "allowedWatts": node.allowed, "usePct": share, "headroomPct": node.headroom});
        sheet.row(format!("node/{}", node.node), cells, document);
    }
    sheet
}

/// What is to be seen now.
pub(crate) async fn once(asked: &PluginSession, most: usize) -> Result<Reply, Reply> {
    let read = |object: Value| Drawing::read(&object).ok();
    let line = |object: Value| BudgetLine::read(&object).ok();
    let (nodes, budgets) =
        tokio::join!(asked.api.list(path::TWINS, &[], read), asked.api.list(path::BUDGETS, &[], line));
    let budgets = budgets.unwrap_or_default().into_iter().map(|BudgetLine(line)| line).collect();
    Ok(Reply::done(picture(nodes?, budgets, most).text(asked.format())))
}

/// Shows it once a second until interrupted, or for a time. Nothing is drawn while nothing has changed.
pub(crate) async fn live(asked: &PluginSession, most: usize, lasting: Option<Duration>) -> Result<(), Reply> {
    // A watch that cannot begin would only wait: ask once, to say why.
    once(asked, 1).await?;
    let (trigger, stop) = shutdown::pair();
    let mut metrics = MetricsBuilder::of(&BuildInfo::of("kubectl-joulie", env!("CARGO_PKG_VERSION")));
    let counted = Reflections::register(metrics.registry());
    let source = |path: &str| WatchSource { path: path.to_owned(), labels: None, fields: None };
    let client = asked.api.client();
    let (nodes, following) =
        reflect::<Drawing>(&client, source(path::TWINS), &counted, asked.clock.clone(), stop.clone());
    tokio::spawn(following);
    let (budgets, following) =
        reflect::<BudgetLine>(&client, source(path::BUDGETS), &counted, asked.clock.clone(), stop.clone());
    tokio::spawn(following);
    let all = draw(nodes, budgets, &*asked.clock, most);
    let interrupted = tokio::signal::ctrl_c();
    let ended = async {
        match lasting {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = all => done.map_err(|error| Reply::not_done(error.to_string()))?,
        _ = interrupted => {}
        () = ended => {}
    }
    trigger.request("a person has seen enough");
    Ok(())
}

async fn draw(
    mut nodes: Rows<Drawing>,
    mut budgets: Rows<BudgetLine>,
    clock: &dyn HostClock,
    most: usize,
) -> io::Result<()> {
    let mut shown_silent = false;
    loop {
        let silent = nodes.silence(clock.mono()).is_some_and(|silence| silence > HEARD_WITHIN);
        let changed =
            nodes.news(|_| ()).is_some() | budgets.news(|_| ()).is_some() | (silent != shown_silent);
        if changed && nodes.is_synced() {
            shown_silent = silent;
            let rows = nodes.with(|rows| rows.values().map(|held| (*held.row).clone()).collect());
            let mut lines: Vec<String> =
                budgets.with(|rows| rows.values().map(|held| clean(&held.row.0)).collect());
            if silent {
                lines.push(
                    "- THE API SERVER HAS SAID NOTHING FOR TWO MINUTES: what is below is old".to_owned(),
                );
            }
            let text = picture(rows, lines, most).text(None);
            let mut out = io::stdout();
            // To the corner, each line to its end, and what is left below away.
            let shown = text.replace('\n', "\u{1b}[K\r\n");
            match write!(out, "\u{1b}[H{shown}\u{1b}[J").and_then(|()| out.flush()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_that_draws_most_is_first_and_one_that_nobody_measures_last() {
        let of = |node: &str, power: Option<f64>| Drawing {
            node: node.to_owned(),
            class: "eco".to_owned(),
            power,
            allowed: Some(400.0),
            headroom: None,
        };
        let nodes = vec![of("a", None), of("b", Some(100.0)), of("c", Some(300.0)), of("d", Some(300.0))];
        let text = picture(nodes, vec!["site".to_owned()], 3).text(None);
        // 100 + 300 + 300 of 4 · 400; 300 of 400 is 75 %.
        let expected = "4 nodes draw 700 W of 1600 W that their caps allow; 1 are not measured\nbudget site\n\n\
            NODE  CLASS  POWER  ALLOWED  USE  HEADROOM\n\
            c     eco    300 W  400 W    75%  -\n\
            d     eco    300 W  400 W    75%  -\n\
            b     eco    100 W  400 W    25%  -\n";
        assert_eq!(text, expected);
    }
}
