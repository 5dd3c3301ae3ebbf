//! Power from a Prometheus server: by a query of the user's, or from Kepler's counters.
//!
//! A node whose series is missing, is there twice, or has no possible value has no measurement from here. Kepler's power
//! is that of packages, memory and GPUs; a node with GPUs of which Kepler says nothing would look as if they drew nothing,
//! so that it has no measurement either.
//!
//! An answer of now is made of samples from before. For a plain selector the server is asked for their times too; of anything
//! else the age that they have at the most is taken for theirs.

use super::poller::{Followed, Following, Outcomes, Read, round, timer};
use crate::queries::{Purpose, Queries};
use futures::StreamExt;
use host_kit::clock::{HostClock, Mono};
use host_kit::prometheus::{
    Answer, Belongs, NODE_LABELS, NodeNames, Prometheus, SampleAges, Series, of_node,
};
use planner::power::PowerMeter;
use power_units::{Role, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Queries for single nodes that are under way at once.
const AT_ONCE: usize = 8;
/// What stands for the name of a node in a query for each.
const NODE: &str = "{node}";

/// What is asked for.
pub(super) struct Question {
    server: Prometheus,
    queries: Queries,
    clock: Arc<dyn HostClock>,
    asks: Asks,
    ages: SampleAges,
}

enum Asks {
    /// One query for all nodes.
    All(String),
    /// A query for each node, whose name replaces `{node}`.
    Each(String),
    /// Kepler's counters.
    Kepler(Vec<(Purpose, String)>),
}

/// What a source says of each node of which it says anything; `None` where that cannot be used.
type ByNode<T> = BTreeMap<Arc<str>, Option<T>>;

impl Question {
    /// This query.
    pub(super) fn asked(
        server: Prometheus,
        query: &str,
        (queries, clock): (&Queries, Arc<dyn HostClock>),
    ) -> Self {
        let (ages, query) = (SampleAges::of(query), query.to_owned());
        let asks = if query.contains(NODE) { Asks::Each(query) } else { Asks::All(query) };
        Self { server, queries: queries.clone(), clock, asks, ages }
    }

    /// What Kepler says, over `window`.
    pub(super) fn of_kepler(
        server: Prometheus,
        window: Duration,
        (queries, clock): (&Queries, Arc<dyn HostClock>),
    ) -> Self {
        let asks = Asks::Kepler(kepler(window));
        // All that is asked for is a mean over it.
        let ages = SampleAges::Within(window);
        Self { server, queries: queries.clone(), clock, asks, ages }
    }

    /// Asks for these nodes.
    async fn ask(&self, nodes: &[Followed]) -> Vec<Read> {
        // By the time before the first question, so that an answer that comes late is older.
        let now = self.clock.mono();
        let most = self.ages.most();
        match &self.asks {
            Asks::All(query) => {
                // The times come first, so that the values are no older.
                let times = match self.times(query).await {
                    Some(answer) => by_node(&answer, nodes, Series::age).0,
                    None => ByNode::new(),
                };
                let found = self.values(Purpose::NodePower, query, nodes).await;
                let age = |node: &Followed| times.get(&node.node).copied().flatten().unwrap_or(most);
                reads(nodes, PowerMeter::Prometheus, |node| {
                    (found.get(&node.node).copied().flatten(), (now, age(node)))
                })
            }
            Asks::Each(query) => {
                let names: Vec<Arc<str>> = nodes.iter().map(|node| node.node.clone()).collect();
                let asked = futures::stream::iter(names).map(|node| async move {
                    let query = query.replace(NODE, &node);
                    let age = self.times(&query).await.and_then(|answer| only(&answer).and_then(Series::age));
                    let answer = self.queries.ask(&self.server, Purpose::NodePower, &query).await;
                    let watts = answer.ok().and_then(|answer| only(&answer).and_then(watts));
                    (node, (watts, (now, age.unwrap_or(most))))
                });
                let found: BTreeMap<Arc<str>, Drawn> = asked.buffer_unordered(AT_ONCE).collect().await;
                let nothing = (None, (now, most));
                reads(nodes, PowerMeter::Prometheus, |node| found.get(&node.node).copied().unwrap_or(nothing))
            }
            Asks::Kepler(parts) => {
                let mut found = BTreeMap::new();
                for (purpose, query) in parts {
                    found.insert(*purpose, self.values(*purpose, query, nodes).await);
                }
                let part = |purpose: Purpose, node: &Followed| found.get(&purpose)?.get(&node.node).copied();
                let sum = |node: &Followed| {
                    let mut sum = part(Purpose::KeplerPackage, node)??;
                    // A machine may have no counter of memory, and one without GPUs has none of them.
                    if let Some(dram) = part(Purpose::KeplerDram, node) {
                        sum = sum.checked_add(dram?)?;
                    }
                    match part(Purpose::KeplerGpu, node) {
                        Some(gpus) => sum.checked_add(gpus?),
                        None => (!node.has_gpus).then_some(sum),
                    }
                };
                reads(nodes, PowerMeter::Kepler, |node| (sum(node), (now, most)))
            }
        }
    }

    /// When the samples of a plain selector were taken; `None` where the server does not say it.
    async fn times(&self, query: &str) -> Option<Answer> {
        if self.ages != SampleAges::Told {
            return None;
        }
        // The query may end with a comment.
        let query = format!("timestamp({query}\n)");
        self.queries.ask(&self.server, Purpose::NodePowerTime, &query).await.ok()
    }

    /// One query's values by the nodes that they are about.
    async fn values(&self, purpose: Purpose, query: &str, nodes: &[Followed]) -> ByNode<Watts> {
        let Ok(answer) = self.queries.ask(&self.server, purpose, query).await else { return ByNode::new() };
        let (found, unused) = by_node(&answer, nodes, watts);
        self.queries.unused(purpose, unused);
        found
    }
}

/// The queries for Kepler's power: the counters of Kepler before 0.10 as rates, else what there is since. There zones are
/// labels, the packages of several dies have zones of their own, and GPUs have no counter, but a power for each card.
fn kepler(window: Duration) -> Vec<(Purpose, String)> {
    let (labels, window) = (NODE_LABELS.join(", "), window.as_millis());
    let sum = |of: &str, series: &str| format!("sum by ({labels}) ({of}({series}[{window}ms]))");
    let either = |old: &str, new: String| {
        format!("{} or {new}", sum("rate", &format!("kepler_node_{old}_joules_total")))
    };
    let zone = |zone: &str| sum("rate", &format!("kepler_node_cpu_joules_total{{zone=~\"{zone}\"}}"));
    vec![
        (Purpose::KeplerPackage, either("package", zone("package(-.*)?"))),
        (Purpose::KeplerDram, either("dram", zone("dram"))),
        (Purpose::KeplerGpu, either("gpu", sum("avg_over_time", "kepler_node_gpu_watts"))),
    ]
}

/// The values of an answer by node, and how many series are not used.
fn by_node<T>(
    answer: &Answer,
    nodes: &[Followed],
    value: impl Fn(&Series) -> Option<T>,
) -> (ByNode<T>, usize) {
    let mut names = NodeNames::default();
    for Followed { node, addresses, .. } in nodes {
        names.add(node, node);
        addresses.iter().for_each(|address| names.add(address, node));
    }
    let (mut found, mut unused) = (ByNode::new(), 0);
    for series in &answer.series {
        let Belongs::To(node) = of_node(series, &names) else {
            unused += 1;
            continue;
        };
        let value = value(series);
        unused += usize::from(value.is_none());
        found
            .entry(node)
            .and_modify(|known| {
                // Nobody can say which of two is right.
                unused += 1 + usize::from(known.is_some());
                *known = None;
            })
            .or_insert(value);
    }
    (found, unused)
}

/// What a node draws, if that is known, and the age of that: as in [`Read`].
type Drawn = (Option<Watts>, (Mono, Duration));

fn reads(nodes: &[Followed], meter: PowerMeter, drawn: impl Fn(&Followed) -> Drawn) -> Vec<Read> {
    let read = |node: &Followed| {
        let (watts, asked) = drawn(node);
        Read { node: node.node.clone(), meter, watts: watts.ok_or(meter.silent()), asked }
    };
    nodes.iter().map(read).collect()
}

/// The series of an answer that has only one.
fn only(answer: &Answer) -> Option<&Series> {
    match answer.series.as_slice() {
        [one] => Some(one),
        _ => None,
    }
}

/// A series' value as power; no node draws less than nothing.
pub(crate) fn watts(series: &Series) -> Option<Watts> {
    Watts::parse(series.number()?, Role::Demand).ok().filter(|&watts| watts >= Watts::ZERO)
}

/// Asks so often.
pub(super) async fn ask_all(question: Question, every: Duration, mut nodes: Following, queue: Outcomes) {
    let mut timer = timer(every);
    while let Some(all) = round(&mut timer, &mut nodes).await {
        if !all.is_empty() && queue.send(question.ask(&all).await).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn answer(series: &[(&str, &str)]) -> Answer {
        let one =
            |(labels, value): &(&str, &str)| format!(r#"{{"metric":{{{labels}}},"value":[1,"{value}"]}}"#);
        let all: Vec<String> = series.iter().map(one).collect();
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{}]}}}}"#,
            all.join(",")
        );
        Answer::read(body.as_bytes(), StatusCode::OK).unwrap()
    }

    fn node(name: &str, address: &str) -> Followed {
        Followed { node: name.into(), addresses: [address.into()].into(), has_gpus: false }
    }

    #[test]
    fn each_node_has_the_one_series_that_names_it() {
        let nodes =
            [node("a", "10.0.0.1"), node("b", "10.0.0.2"), node("c", "10.0.0.3"), node("d", "10.0.0.4")];
        let answer = answer(&[
            (r#""node":"a""#, "200.5"),
            (r#""instance":"10.0.0.2:9100""#, "300"),
            (r#""node":"b""#, "301"),
            (r#""node":"c""#, "NaN"),
            (r#""node":"d""#, "-3"),
            (r#""node":"elsewhere""#, "7"),
            ("", "7"),
        ]);
        let (found, unused) = by_node(&answer, &nodes, watts);
        assert_eq!(found["a"], Watts::parse("200.5", Role::Demand).ok());
        // Two series for one node, no number, and less than nothing.
        assert_eq!((found["b"], found["c"], found["d"]), (None, None, None));
        assert_eq!(unused, 6);
    }

    #[test]
    fn kepler_is_asked_by_the_names_of_both_generations() {
        let [package, dram, gpu] = <[_; 3]>::try_from(kepler(Duration::from_secs(60))).unwrap();
        for ((_, query), parts) in [
            (
                package,
                [
                    "(rate(kepler_node_package_joules_total[60000ms])) or ",
                    r#"_cpu_joules_total{zone=~"package(-.*)?"}"#,
                ],
            ),
            (
                dram,
                [
                    "(rate(kepler_node_dram_joules_total[60000ms])) or ",
                    r#"_cpu_joules_total{zone=~"dram"}[60000ms]"#,
                ],
            ),
            (
                gpu,
                [
                    "(rate(kepler_node_gpu_joules_total[60000ms])) or ",
                    "(avg_over_time(kepler_node_gpu_watts[60000ms]))",
                ],
            ),
        ] {
            assert!(parts.iter().all(|part| query.contains(part)), "{query}");
            assert!(query.matches("node_name").count() == 2, "{query}");
        }
    }

    #[test]
    fn three_series_of_one_node_are_three_that_are_not_used() {
        let series = [(r#""node":"a""#, "1"), (r#""node":"a""#, "1"), (r#""node":"a""#, "1")];
        let (found, unused) = by_node(&answer(&series), &[node("a", "x")], watts);
        assert_eq!((found["a"], unused), (None, 3));
    }
}
