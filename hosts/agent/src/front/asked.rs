//! What Prometheus says that a node draws, where a TelemetryProfile asks for it. It takes the place of what the machine itself
//! measures in what is published, and is used for nothing else: no cap is judged by it, and no loop runs on it.
//!
//! ```text
//!  a task for each query ──every 5 s──▶ what was heard last ──▶ watts with their age, or why there are none
//! ```
//!
//! A sample is of the time that the server says. Of an expression it says the time of the evaluation, so that its values are published
//! as old as they can be by the text of the query.
//!
//! What cannot be used is unknown, and never what the machine itself measures instead. The metrics of the agent do not show these
//! watts, because a query over them would find its own answer, as young as ever.

use super::pace::Power;
use crate::pool::http::Http;
use crate::route::{NodeQuery, PowerQueries};
use host_kit::clock::{HostClock, Mono};
use host_kit::prometheus::{Answer, Belongs, NodeNames, SampleAges, Series, of_node};
use joulie_api::node_hardware::ASKED;
use power_units::{Role, Watts};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often a query is asked: no server scrapes much more often.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// A sample that is older is none: a server scrapes each minute unless it is told otherwise, and one scrape may fail.
const OLDEST: Duration = Duration::from_secs(150);
/// More than any node draws; a number above it is in another unit.
const MOST: Watts = Watts::from_int(1_000_000);

/// The label by which the two halves of an answer are told apart.
const SAYS: &str = "joulie_says";
const WATTS: &str = "watts";
const TIME: &str = "time";

/// A sample of what is drawn, and how old it was when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AskedSample {
    watts: Watts,
    age: Duration,
    asked: Mono,
}

/// What was heard last; the reason if it cannot be used.
type Heard = Result<AskedSample, String>;

/// A query that is asked until this is dropped.
#[derive(Debug)]
struct AskedMeter {
    query: NodeQuery,
    /// How much older than the server says the samples of the query may be.
    beside: Duration,
    heard: watch::Receiver<Heard>,
    task: JoinHandle<()>,
    /// The trouble as it was last logged.
    said: Option<String>,
}

/// The queries of one node.
#[derive(Debug, Default)]
pub(super) struct AskedPower {
    cpu: Option<AskedMeter>,
    gpu: Option<AskedMeter>,
    troubles: u64,
}

impl AskedPower {
    /// Asks for these from now on. What was heard of others is forgotten.
    pub(super) fn follow(
        &mut self,
        node: &str,
        queries: &PowerQueries,
        http: &Arc<Http>,
        clock: &Arc<dyn HostClock>,
    ) {
        for (asking, query) in [(&mut self.cpu, &queries.cpu), (&mut self.gpu, &queries.gpu)] {
            if asking.as_ref().map(|asking| &asking.query) != query.as_ref() {
                *asking = query
                    .as_ref()
                    .map(|query| AskedMeter::begin(node, query.clone(), http.clone(), clock.clone()));
            }
        }
    }

    /// Logs what has changed since the last look. Returns, if anything is asked, whether all of it is answered, and how often it was not.
    pub(super) fn look(&mut self, node: &str, now: Mono) -> Option<(bool, u64)> {
        let mut ready = None;
        for (part, asking) in [("processors", &mut self.cpu), ("GPUs", &mut self.gpu)] {
            let Some(asking) = asking else { continue };
            if asking.heard.has_changed().unwrap_or(false) {
                let trouble = asking.heard.borrow_and_update().as_ref().err().cloned();
                self.troubles = self.troubles.saturating_add(u64::from(trouble.is_some()));
                if trouble != asking.said {
                    match &trouble {
                        Some(why) => tracing::warn!(node, "what the {part} draw is not known: {why}"),
                        None => tracing::info!(node, "Prometheus tells again what the {part} draw"),
                    }
                    asking.said = trouble;
                }
            }
            ready = Some(ready.unwrap_or(true) && asking.sample(now).is_ok());
        }
        ready.map(|ready| (ready, self.troubles))
    }

    /// What is published instead of what the machine itself measures.
    pub(super) fn instead_of(&self, own: Power, now: Mono) -> Power {
        let part = |asking: &Option<AskedMeter>, own| match asking {
            Some(asking) => asking.sample(now).ok().map(|(watts, _)| watts),
            None => own,
        };
        Power { cpu: part(&self.cpu, own.cpu), gpu: part(&self.gpu, own.gpu), ..own }
    }

    /// How old the oldest of those samples is at the most.
    pub(super) fn age(&self, now: Mono) -> Duration {
        let all = [&self.cpu, &self.gpu].into_iter().flatten();
        let age = |asking: &AskedMeter| Some(asking.sample(now).ok()?.1.saturating_add(asking.beside));
        all.filter_map(age).max().unwrap_or_default()
    }

    /// The source of what is published, where any of it is not what the machine itself measures.
    pub(super) fn source(&self, published: Power) -> Option<&'static str> {
        (self.cpu.is_some() || (self.gpu.is_some() && published.gpu.is_some())).then_some(ASKED)
    }

    /// Whether the processors and the GPUs are asked for.
    pub(super) const fn parts(&self) -> (bool, bool) {
        (self.cpu.is_some(), self.gpu.is_some())
    }

    /// Whether the power of the processors is known; `None` if it is not asked for.
    pub(super) fn cpu(&self, now: Mono) -> Option<Result<(), String>> {
        self.cpu.as_ref().map(|asking| asking.sample(now).map(drop))
    }
}

impl AskedMeter {
    fn begin(node: &str, query: NodeQuery, http: Arc<Http>, clock: Arc<dyn HostClock>) -> Self {
        let (sender, heard) = watch::channel(Err("it was not asked yet".to_owned()));
        let (node, asked) = (node.to_owned(), query.clone());
        let task = tokio::spawn(async move {
            loop {
                let now = clock.mono();
                let question = question(&asked.text, &node);
                let answer = http.query(&asked, (&node, &question), OLDEST).await;
                let heard = answer.and_then(|answer| sample(&answer, &node, asked.text.contains(NODE)));
                let heard = heard.map(|(watts, age)| AskedSample { watts, age, asked: now });
                // Nobody follows this query any more.
                if sender.send(heard).is_err() {
                    return;
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        });
        let beside = match SampleAges::of(&query.text) {
            SampleAges::Told => Duration::ZERO,
            SampleAges::Within(age) => age,
        };
        Self { query, beside, heard, task, said: None }
    }

    /// The watts and their age now, or why they are not known.
    fn sample(&self, now: Mono) -> Result<(Watts, Duration), String> {
        let AskedSample { watts, age, asked } = self.heard.borrow().clone()?;
        let age = age.saturating_add(now.since(asked));
        if age > OLDEST { Err(too_old()) } else { Ok((watts, age)) }
    }
}

impl Drop for AskedMeter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What stands for the name of the node in a query.
const NODE: &str = "{node}";

/// Asks for the value and for the time of its sample at once, so that both are of the same sample.
fn question(query: &str, node: &str) -> String {
    let query = query.replace(NODE, node);
    let tagged = |what: &str, says: &str| format!(r#"label_replace({what}, "{SAYS}", "{says}", "", "")"#);
    // The query may end with a comment.
    let (value, time) = (format!("{query}\n"), format!("timestamp({query}\n)"));
    format!("{} or {}", tagged(&value, WATTS), tagged(&time, TIME))
}

/// The one value of this node and its age. Of a query with the name of the node in it every series is the node's; of another one
/// those are that name it in a label.
fn sample(answer: &Answer, node: &str, has_name: bool) -> Result<(Watts, Duration), String> {
    let mut names = NodeNames::default();
    let name: Arc<str> = node.into();
    names.add(node, &name);
    let is_ours = |series: &&Series| has_name || of_node(series, &names) != Belongs::ToNobody;
    let all = |says: &str| -> Vec<&Series> {
        answer.series.iter().filter(is_ours).filter(|series| series.label(SAYS) == Some(says)).collect()
    };
    let value = match all(WATTS).as_slice() {
        [one] => *one,
        [] if answer.series.is_empty() => {
            return Err("the answer has no series, so nothing was scraped lately".to_owned());
        }
        [] => return Err("no series of the answer names the node".to_owned()),
        many => return Err(format!("{} series of the answer are of the node; ask for one", many.len())),
    };
    let text = value.number().ok_or("the value is no number")?;
    let watts = Watts::parse(text, Role::Demand).ok().filter(|watts| (Watts::ZERO..=MOST).contains(watts));
    let watts = watts.ok_or_else(|| format!("{} is no power in watts", text.get(..40).unwrap_or(text)))?;
    let age = match all(TIME).as_slice() {
        [one] => one.age(),
        _ => None,
    };
    let age = age.ok_or("the server does not say when it was sampled")?;
    if age > OLDEST { Err(too_old()) } else { Ok((watts, age)) }
}

fn too_old() -> String {
    format!("the last sample is older than {} s", OLDEST.as_secs())
}

#[cfg(test)]
mod tests;
