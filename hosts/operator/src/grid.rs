//! The signals of PowerBudgets, asked of Prometheus again and again. What cannot be used is no value: the last one stays, and
//! grows old.
//!
//! Prometheus answers with the last sample of its look-back, so that an answer of now may be minutes old. It is asked to look
//! back no further than a value stands, and a value counts from the time of its sample. Of an expression over several samples
//! the server says the time of the answer, so that such a value may be older by the look-back.

use crate::meters::poller::timer;
use crate::queries::{Purpose, Queries};
use futures::StreamExt;
use host_kit::http_client::TrustError;
use host_kit::prometheus::{Prometheus, PrometheusAccess, QueryError};
use planner::budget::SignalLaw;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Signals that are asked for at most; more are silent.
const SIGNALS_MAX: usize = 64;
/// Queries that are under way at once.
const AT_ONCE: usize = 8;

/// A signal to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GridQuery {
    /// The name of its PowerBudget.
    pub(crate) budget: String,
    /// The query.
    pub(crate) query: String,
    /// Older samples are none.
    pub(crate) look_back: Duration,
}

/// A value of a signal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GridValue {
    /// What was asked.
    pub(crate) of: GridQuery,
    /// The value.
    pub(crate) value: f64,
    /// How old it was when it was asked for.
    pub(crate) age: Duration,
}

/// Asks.
#[derive(Debug)]
pub(crate) struct GridSignals {
    asked: watch::Sender<Vec<GridQuery>>,
    rounds: mpsc::Receiver<Vec<GridValue>>,
    task: JoinHandle<()>,
}

impl GridSignals {
    /// Begins to ask so often.
    ///
    /// # Errors
    /// If the authorities cannot be used.
    pub(crate) fn new(
        access: PrometheusAccess,
        every: Duration,
        queries: &Queries,
    ) -> Result<Self, TrustError> {
        let server = Prometheus::new("joulie-operator", access)?;
        let (asked, mut follow) = watch::channel(Vec::new());
        let (queue, rounds) = mpsc::channel(1);
        let queries = queries.clone();
        let task = tokio::spawn(async move {
            let mut timer = timer(every);
            loop {
                tokio::select! {
                    _ = timer.tick() => {}
                    changed = follow.changed() => if changed.is_err() { return },
                }
                let all: Vec<GridQuery> = follow.borrow_and_update().clone();
                if !all.is_empty() && queue.send(round(&server, &queries, all).await).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self { asked, rounds, task })
    }

    /// Which signals there are from now on.
    pub(crate) fn follow(&self, asked: Vec<GridQuery>) {
        self.asked.send_if_modified(|before| {
            let differs = *before != asked;
            *before = asked;
            differs
        });
    }

    /// The values of the next round; without those that cannot be used.
    pub(crate) async fn next(&mut self) -> Option<Vec<GridValue>> {
        self.rounds.recv().await
    }
}

impl Drop for GridSignals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How old the sample of a signal is; `None` while nobody says it.
async fn age(server: &Prometheus, queries: &Queries, of: &GridQuery) -> Option<Duration> {
    // The query may end with a comment.
    let query = format!("timestamp({}\n)", of.query);
    let answer = queries.ask_back(server, Purpose::BudgetSignalTime, &query, Some(of.look_back)).await;
    match answer {
        Ok(answer) => match answer.series.as_slice() {
            [one] => one.age(),
            _ => None,
        },
        // A number without labels is none of a sample. Nobody knows more of its age than that the look-back bounds it.
        Err(QueryError::Refused(_)) => Some(of.look_back),
        Err(
            QueryError::Unsent(_)
            | QueryError::NoAnswer(_)
            | QueryError::Partial(_)
            | QueryError::Malformed(_),
        ) => None,
    }
}

async fn round(server: &Prometheus, queries: &Queries, all: Vec<GridQuery>) -> Vec<GridValue> {
    let asked = all.into_iter().take(SIGNALS_MAX).map(|of| async move {
        // The time comes first, so that the value is no older than that.
        let age = age(server, queries, &of).await?;
        let back = Some(of.look_back);
        let answer = queries.ask_back(server, Purpose::BudgetSignal, &of.query, back).await.ok()?;
        let value = match answer.series.as_slice() {
            // Nobody can say which of several is right.
            [one] => one.number().and_then(|text| text.parse::<f64>().ok()),
            _ => None,
        };
        let value = value.filter(|value| SignalLaw::is_possible(*value));
        queries.unused(Purpose::BudgetSignal, if value.is_some() { 0 } else { answer.series.len() });
        Some(GridValue { of, value: value?, age })
    });
    futures::stream::iter(asked).buffered(AT_ONCE).filter_map(std::future::ready).collect().await
}
