//! Measures what 5,000 nodes cost the operator: `cargo xtask bench operator`, or
//! `cargo build --release -p operator && cargo run --release -p operator --example scale [NODES [PROGRAM [STEADY_SECONDS]]]`.
//!
//! It measures first without a budget, then with limits for the site and for each rack that are in effect. The operator
//! is the shipped program in a process of its own; the API server, the agents and the measurement are in this process.
//! `cargo xtask bench classifier`, or `scale classifier [NODES]`, measures the classifier instead.

mod agents;
mod classifier;
mod cluster;
mod program;

use cluster::{JOULIE, NODES_PER_RACK, PODS_PER_NODE, fill, name, running, states, twins_with_status};
use embedded_api::{ApiOptions, EmbeddedApi};
use futures::{Stream, StreamExt};
use kube::Client;
use program::Program;
use std::error::Error;
use std::io::Write;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

type Any = Box<dyn Error + Send + Sync>;

const EVENTS: usize = 20;
/// The most that a pass may take.
const PASS_MS: f64 = 20.0;
/// How long nothing changes, by default.
const STEADY: u64 = 20;
/// The time between two events: under many events passes are spaced out, but here each event must have a pass of its
/// own.
const ROOM: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Any> {
    if std::env::args().nth(1).as_deref() == Some("classifier") {
        let nodes = std::env::args().nth(2).map_or(Ok(5_000), |text| text.parse())?;
        return classifier::measure(nodes).await;
    }
    let nodes: usize = std::env::args().nth(1).map_or(Ok(5_000), |text| text.parse())?;
    let steady = std::env::args().nth(3).map_or(Ok(STEADY), |text| text.parse())?;
    let steady = Duration::from_secs(steady);
    tell("### Without a budget\n")?;
    measure("no_budget", nodes, &[], Duration::from_secs(3), steady).await?;
    // Of 720 W a node may draw 600 W where its rack is full, and 500 W where the site is.
    let (site, rack) = ((nodes * 500).to_string(), format!("*={}", NODES_PER_RACK * 600));
    tell("\n### With limits for the site and for each rack\n")?;
    // Power that one node gives up goes to another after BUDGET_RAISE_DWELL, which is 30 s, and what that one gives up again
    // after that time.
    let quiet = Duration::from_secs(75);
    let limits = [("BUDGET_SITE_WATTS", site.as_str()), ("BUDGET_RACK_WATTS", rack.as_str())];
    measure("budget", nodes, &limits, quiet, steady).await
}

async fn measure(
    word: &str,
    nodes: usize,
    settings: &[(&str, &str)],
    quiet: Duration,
    steady: Duration,
) -> Result<(), Any> {
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all()))?;
    let client = api.client_as("scale");
    fill(&client, nodes).await?;
    let serving = api.serve("127.0.0.1:0".parse()?, None, None).await?;
    let agents = tokio::spawn(agents::confirm(api.clone()));
    tell(&format!("{nodes} nodes with agents, {} pods", nodes * PODS_PER_NODE))?;

    let began = Instant::now();
    let operator = Program::start(std::env::args_os().nth(2), serving.address(), settings)?;
    while twins_with_status(&client).await? < nodes && !agents.is_finished() {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    tell(&format!("first plan applied: {:.1} s after the start", began.elapsed().as_secs_f64()))?;
    settle(&client, quiet).await?;
    let after_first = operator.resident()?;
    told("passes until then", operator.passes())?;

    let (revision, before, spent) = (api.revision(), states(&client).await?, operator.processor_ms()?);
    tokio::time::sleep(steady).await;
    let after = states(&client).await?;
    let written: Vec<&String> = after.difference(&before).collect();
    let mut kinds = std::collections::BTreeMap::new();
    for one in &written {
        *kinds.entry(one.split(' ').next()).or_insert(0) += 1;
    }
    if !kinds.is_empty() {
        tell(&format!("written while nothing changes, by kind: {kinds:?}"))?;
    }
    let objects = written.len();
    tell(&format!(
        "steady for {} s: {objects} objects written, {} renewals of the two Leases, {:.0} ms of processor time",
        steady.as_secs(),
        api.revision() - revision,
        operator.processor_ms()? - spent
    ))?;
    bar(
        &format!("operator_{word}_steady_{}_s_writes", steady.as_secs()),
        f64::from(u32::try_from(objects)?),
        0.0,
    )?;

    let (mut firsts, mut twins, mut passes, mut spent) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
    for event in 0..EVENTS {
        tokio::time::sleep(ROOM).await;
        let (_elder, before) = (operator.passes(), operator.processor_ms()?);
        if agents.is_finished() {
            return agents.await?;
        }
        let (first, twin) = drained(&api, &client, nodes, event).await?;
        tokio::time::sleep(ROOM).await;
        firsts.push(first);
        twins.push(twin);
        passes.extend(operator.passes());
        spent += operator.processor_ms()? - before;
    }
    tell(&format!("of {EVENTS} pod events, each alone:"))?;
    told("until the first write that follows", firsts)?;
    told("until the twin says so", twins)?;
    passes.sort_unstable();
    let median = passes.get(passes.len() / 2).map_or(f64::INFINITY, |pass| pass.as_secs_f64() * 1e3);
    told("passes, echoes included", passes)?;
    bar(&format!("operator_{word}_pass_of_a_pod_event_ms"), median, PASS_MS)?;
    let events = f64::from(u32::try_from(EVENTS)?);
    tell(&format!(
        "processor time of the operator, {} s of each included: {:.1} ms an event",
        ROOM.as_secs(),
        spent / events
    ))?;
    let last = operator.resident()?;
    tell(&format!(
        "resident: {:.0} MiB after the first plan, {:.0} MiB at the end, {:.0} MiB at most",
        after_first.now, last.now, last.most
    ))?;
    drop(operator);
    agents.abort();
    serving.stop().await;
    Ok(())
}

/// The time from a performance pod on an eco node to the first write to that node or its objects, and to the twin that
/// reports that the node drains.
async fn drained(
    api: &EmbeddedApi,
    client: &Client,
    nodes: usize,
    event: usize,
) -> Result<(Duration, Duration), Any> {
    // Half of the nodes are eco: those of the second model.
    let node = name((nodes / 2 - event) * 2 - 1);
    let mut of_twins = pin!(watch(client, &format!("{JOULIE}/nodetwins"), api.revision()).await?);
    let mut of_nodes = pin!(watch(client, "/api/v1/nodes", api.revision()).await?);
    let (twin, label) = (format!("\"nodeName\":\"{node}\""), format!("\"name\":\"{node}\""));
    let began = Instant::now();
    let pod = format!("busy-{event}");
    let mut made = pin!(running(client, &pod, &node, "performance"));
    let (mut is_made, mut first) = (false, None);
    loop {
        tokio::select! {
            done = &mut made, if !is_made => {
                done?;
                is_made = true;
            }
            text = of_nodes.next() => {
                if text.ok_or("the watch has ended")?.contains(&label) {
                    first.get_or_insert_with(|| began.elapsed());
                }
            }
            text = of_twins.next() => {
                let text = text.ok_or("the watch has ended")?;
                if text.contains(&twin) {
                    let first = *first.get_or_insert_with(|| began.elapsed());
                    if text.contains("\"schedulableClass\":\"draining\"") {
                        return Ok((first, began.elapsed()));
                    }
                }
            }
        }
    }
}

/// The texts of a watch as they arrive.
async fn watch(client: &Client, path: &str, from: u64) -> Result<impl Stream<Item = String> + use<>, Any> {
    let request = http::Request::get(format!("{path}?watch=true&resourceVersion={from}"));
    let response = client.send(request.body(kube::client::Body::empty())?).await?;
    let body = http_body_util::BodyExt::into_data_stream(response.into_body());
    Ok(body.map(|bytes| {
        bytes.map_or_else(|error| error.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }))
}

/// Waits until nothing but Leases has been written for this long.
async fn settle(client: &Client, quiet: Duration) -> Result<(), Any> {
    let mut before = states(client).await?;
    loop {
        tokio::time::sleep(quiet).await;
        let now = states(client).await?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
}

fn told(what: &str, mut took: Vec<Duration>) -> Result<(), Any> {
    took.sort_unstable();
    let of = took.len();
    let ms = |one: Option<&Duration>| one.map_or(f64::NAN, |one| one.as_secs_f64() * 1e3);
    let at = |hundredths: usize| ms(took.get((of * hundredths / 100).min(of.saturating_sub(1))));
    let mean = ms(Some(&took.iter().sum())) / f64::from(u32::try_from(of)?);
    tell(&format!(
        "  {what}: {of}, best {:.1} ms, mean {mean:.1} ms, median {:.1} ms, p90 {:.1} ms, worst {:.1} ms",
        at(0),
        at(50),
        at(90),
        at(100)
    ))
}

/// Prints one line for comparing runs.
fn bar(name: &str, value: f64, limit: f64) -> Result<(), Any> {
    let verdict = if value <= limit { "PASS" } else { "FAIL" };
    tell(&format!("BAR {name} {value:.1} {limit:.0} {verdict}"))
}

fn tell(line: &str) -> Result<(), Any> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
