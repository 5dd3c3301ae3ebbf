//! The shipped program under churn for minutes, twice, as in a cluster with two replicas: `cargo xtask bench soak [--seconds N]`.
//!
//! The API server, both replicas and what happens are processes of their own, on HTTP. What is judged: [`churn`].

use super::api::Api;
use super::churn::{self, Pace};
use super::inside::bar;
use super::lives::Tally;
use super::wire::{program, resident};
use super::{Any, Program, tell};
use std::time::Duration;
use tokio::time::Instant;

/// Nodes with eight cards each.
const WORKERS: usize = 500;
/// In nine of ten ticks: 108 pods and 1,008 changes of nodes a second.
const TICK: Duration = Duration::from_millis(100);
const PODS: u64 = 12;
const EVENTS: usize = 112;
/// How long a pod runs.
const LASTS: Duration = Duration::from_secs(8);

/// What happens a second, at least.
const PODS_RATE: f64 = 100.0;
const EVENTS_RATE: f64 = 1_000.0;
/// By how much the memory of a replica may grow from the third minute to the last one, in percent. In a short run it is from the
/// second third of the time on.
const GROWTH: f64 = 5.0;
const WARM: usize = 120;
const WINDOW: usize = 60;

pub(crate) async fn run(seconds: u32) -> Result<(), Any> {
    let api = Api::start(0)?;
    let client = api.client()?;
    churn::fill(&client, WORKERS).await?;
    let first = program(api.address, &churn::SETTINGS).await?;
    let second = program(api.address, &churn::SETTINGS).await?;
    let pace = Pace {
        seed: 1,
        workers: WORKERS,
        ticks: seconds.saturating_mul(10),
        every: TICK,
        pods: PODS,
        events: EVENTS,
        lasts: LASTS,
    };
    let (begun, mut memory) = (Instant::now(), Vec::new());
    let tally = tokio::select! {
        tally = churn::run(client, [first.1, second.1], pace) => tally?,
        failed = look([&first.0, &second.0], &mut memory) => return failed,
    };
    report(&tally, &memory, begun.elapsed().saturating_sub(LASTS))
}

/// Reads the memory of both replicas each second, in MiB.
async fn look([first, second]: [&Program; 2], memory: &mut Vec<[f64; 2]>) -> Result<(), Any> {
    loop {
        memory.push([resident(first)?.0, resident(second)?.0]);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn report(tally: &Tally, memory: &[[f64; 2]], took: Duration) -> Result<(), Any> {
    let [pods, events] = [tally.pods, tally.events]
        .map(|count| u32::try_from(count).map_or(f64::MAX, f64::from) / took.as_secs_f64());
    tell(&format!(
        "\n### Two replicas under churn for {} s, {WORKERS} nodes of eight cards\n",
        took.as_secs()
    ))?;
    tell(
        "| pods a second | bound | not bound, as it was to be | callers that hung up | bound all the same | changes of nodes a second | answers checked | compared |",
    )?;
    tell("|---|---|---|---|---|---|---|---|")?;
    let Tally { bound, unbound, hung_up, bound_unasked, checked, compared, .. } = tally;
    tell(&format!(
        "| {pods:.0} | {bound} | {unbound} | {hung_up} | {bound_unasked} | {events:.0} | {checked} | {compared} |"
    ))?;
    let (first, last, growth) = growth(memory);
    tell(&format!(
        "\nResident of the replicas after the beginning {:.1} and {:.1} MiB, at the end {:.1} and {:.1}\n",
        first[0], first[1], last[0], last[1]
    ))?;
    for complaint in &tally.complaints {
        tell(&format!("- {complaint}"))?;
    }
    tell("")?;
    bar("soak_growth_percent", format_args!("{growth:.1}"), GROWTH, growth <= GROWTH)?;
    for (name, count) in [
        ("soak_lost_updates", tally.lost),
        ("soak_disagreements", tally.disagreements),
        ("soak_failed_requests", tally.failed),
        ("soak_leaked_cards", tally.leaked),
        ("soak_pods_without_cards", tally.without),
    ] {
        bar(name, count, 0, count == 0)?;
    }
    // A run in which nothing happens, or nothing is looked at, shows nothing.
    for (name, value, least) in
        [("soak_pods_per_second", pods, PODS_RATE), ("soak_changes_per_second", events, EVENTS_RATE)]
    {
        bar(name, format_args!("{value:.0}"), least, value >= least)?;
    }
    for (name, count) in [
        ("soak_checked_answers", *checked),
        ("soak_compared_answers", *compared),
        ("soak_bound_though_hung_up", *bound_unasked),
    ] {
        bar(name, count, 1, count > 0)?;
    }
    Ok(())
}

/// The means at the beginning and at the end, and the larger growth in percent.
fn growth(memory: &[[f64; 2]]) -> ([f64; 2], [f64; 2], f64) {
    let warm = WARM.min(memory.len() / 3);
    let window = WINDOW.min(memory.len().saturating_sub(warm) / 3).max(1);
    let mean = |some: &[[f64; 2]]| {
        let count = u32::try_from(some.len()).map_or(1.0, f64::from).max(1.0);
        some.iter().fold([0.0; 2], |[one, other], [a, b]| [one + a / count, other + b / count])
    };
    let first = mean(memory.get(warm..warm + window).unwrap_or_default());
    let last = mean(memory.get(memory.len().saturating_sub(window)..).unwrap_or_default());
    let grown = |at: usize| (last[at] / first[at] - 1.0) * 100.0;
    (first, last, grown(0).max(grown(1)))
}
