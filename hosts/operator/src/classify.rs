//! The classifier: what each workload does with its nodes, by the metrics of its pods, as a WorkloadProfile.
//!
//! ```text
//! pods, nodes ──▶ workloads ──▶ due? ──▶ queries ──▶ round ──▶ changes ──▶ writer ──▶ API server
//! profiles ───────────────────────────────────────────┘ ▲                     │
//!                                                        └─── rests, memory ───┘
//! ```
//!
//! It is a loop of its own beside the plan, so that a Prometheus server that is slow or away delays no cap. Only a
//! leader asks and writes. Metrics that are missing never make a class: the profiles stay as they are, say so in a
//! condition, and lose confidence with time, until only the annotations count.
//!
//! - `signals`: the queries, and whose a series is; `workloads`: pods by their outermost controller;
//! - `round`: what follows from all of it, synchronous; `document`: what a profile says, and when that is worth a write;
//! - `writer`: sending, and what came of it; `settings`: what it can be told.

mod document;
mod round;
mod settings;
mod signals;
mod stats;
mod workloads;
mod writer;

pub(crate) use settings::ClassifySettings;
pub(crate) use stats::ClassifyStats;

use self::round::{Answers, Decided, Law, Memory, RoundFacts, Tally};
use self::signals::Fates;
use self::stats::{Known, Signal};
use self::workloads::{Measured, Values, Workloads};
use self::writer::{ProfileWriter, Rests};
use crate::queries::Queries;
use crate::rows::{NodeSeen, PodSeen, WorkloadProfileSeen};
use crate::settings::Settings;
use crate::site::SILENCE_MAX;
use futures::StreamExt;
use host_kit::clock::{HostClock, Mono, micros};
use host_kit::config::Live;
use host_kit::leader::{Leadership, Term};
use host_kit::prometheus::{Answer, Prometheus};
use host_kit::reflect::{ObjectKey, Row, Rows};
use host_kit::shutdown::Stop;
use kube::Client;
use power_units::Stamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The wait for rows and for leadership.
const PAUSE: Duration = Duration::from_secs(1);
/// Above so many pods a round is not made on a thread that others wait for.
const QUICK_MAX: usize = 1_000;
/// The memory's time begins so long before the process, so that what was measured before it has a time.
const PAST: Duration = Duration::from_secs(30 * 86_400);

/// So many signals are asked for at once. The answers of a large cluster are large.
const ASKED_AT_ONCE: usize = 2;

/// What the loop needs.
pub(crate) struct ClassifyParts {
    /// The API server.
    pub(crate) client: Client,
    /// The Prometheus server, if there is one.
    pub(crate) prometheus: Option<Prometheus>,
    /// Time.
    pub(crate) clock: Arc<dyn HostClock>,
    /// Whether this process leads.
    pub(crate) leadership: Leadership,
    /// Pods.
    pub(crate) pods: Rows<PodSeen>,
    /// Nodes.
    pub(crate) nodes: Rows<NodeSeen>,
    /// WorkloadProfiles.
    pub(crate) profiles: Rows<WorkloadProfileSeen>,
    /// What the operator is told.
    pub(crate) settings: Live<Settings>,
    /// What the classifier is told.
    pub(crate) told: ClassifySettings,
    /// The namespaces whose pods are no workloads.
    pub(crate) ignored: BTreeSet<String>,
    /// How long one request to the API server may take.
    pub(crate) write_timeout: Duration,
    /// How many profiles are written at once.
    pub(crate) writers: usize,
    /// What it asks of Prometheus.
    pub(crate) queries: Queries,
    /// Its metrics.
    pub(crate) stats: ClassifyStats,
}

/// The loop.
pub(crate) struct Classifier {
    parts: ClassifyParts,
    law: Law,
    writer: ProfileWriter,
    term: Option<Term>,
    memory: Memory,
    rests: Rests,
    /// Whether the server was away, and how often in a row.
    away: u32,
    said: Option<String>,
    /// Whether the last queries were all without an answer.
    unanswered: bool,
}

impl Classifier {
    /// Nothing has been looked at yet.
    pub(crate) fn new(parts: ClassifyParts) -> Self {
        let law = parts.told.law(parts.prometheus.is_some());
        let writer = ProfileWriter {
            client: parts.client.clone(),
            timeout: parts.write_timeout,
            at_once: parts.writers,
            stats: parts.stats.clone(),
        };
        let (memory, rests) = (Memory::default(), Rests::default());
        Self { parts, law, writer, term: None, memory, rests, away: 0, said: None, unanswered: false }
    }

    /// Runs until asked to stop. What is under way then is left to the next leader.
    pub(crate) async fn run(mut self, stop: Stop) {
        loop {
            let wait = tokio::select! {
                biased;
                () = stop.requested() => return,
                wait = self.look() => wait,
            };
            let ends = tokio::select! {
                ends = stop.requested_within(wait) => ends,
                // A shorter interval does not wait for the end of a longer one.
                _ = self.parts.settings.changed() => false,
            };
            if ends {
                return;
            }
        }
    }

    /// Makes a round if one can be made; returns how long to wait for the next.
    async fn look(&mut self) -> Duration {
        let now = self.parts.clock.mono();
        let term = self.parts.leadership.term(now);
        if term != self.term {
            // What another leader has written since is in the objects, and not in this memory.
            (self.memory, self.rests, self.away) = (Memory::default(), Rests::default(), 0);
            self.term = term;
            self.show(&Tally::default());
        }
        let Some(term) = term else { return PAUSE };
        self.configure();
        if let Some(why) = self.blind(now) {
            if self.said.as_ref() != Some(&why) {
                tracing::info!("no workload is classified: {why}");
                self.said = Some(why);
            }
            return PAUSE;
        }
        self.said = None;
        let workloads = Arc::new(self.workloads());
        let answers = self.ask(&workloads).await;
        self.tell(&answers);
        let decided = self.round(workloads, answers).await;
        self.show(&decided.tally);
        let more = decided.more;
        self.send(decided, term).await;
        let backoff = PAUSE.saturating_mul(1 << self.away.min(9));
        let look = self.parts.told.look;
        match self.away {
            0 if more => PAUSE.min(look),
            0 => look,
            _ => look.max(backoff),
        }
    }

    /// Takes over what has changed in the settings.
    fn configure(&mut self) {
        if let Some(told) = self.parts.settings.refresh().classify {
            self.parts.told = told;
            self.law = told.law(self.parts.prometheus.is_some());
        }
    }

    /// Why no round can be made.
    fn blind(&self, now: Mono) -> Option<String> {
        fn blind<R: Row>(rows: &Rows<R>, now: Mono) -> Option<String> {
            match rows.silence(now) {
                _ if !rows.is_synced() => Some(format!("{}s are not known yet", R::KIND)),
                Some(silence) if silence > SILENCE_MAX => {
                    Some(format!("the API server says nothing of {}s", R::KIND))
                }
                Some(_) | None => None,
            }
        }
        let ClassifyParts { pods, nodes, profiles, .. } = &self.parts;
        blind(pods, now).or_else(|| blind(nodes, now)).or_else(|| blind(profiles, now))
    }

    fn workloads(&self) -> Workloads {
        let ignored = &self.parts.ignored;
        self.parts.pods.with(|rows| Workloads::of(rows, |namespace| ignored.contains(namespace)))
    }

    /// Asks for all signals, if any workload is to be classified. Of each answer only the values of pods are kept.
    async fn ask(&self, workloads: &Arc<Workloads>) -> Answers {
        let mut answers = Answers::default();
        let Some(prometheus) = &self.parts.prometheus else { return answers };
        if !self.memory.asks(&self.law, workloads, self.stamp()) {
            return answers;
        }
        let settings = &self.parts.told;
        let signals = Signal::ALL.iter().copied().filter(|signal| settings.kepler || !signal.is_of_kepler());
        let asked = signals.map(|signal| async move {
            let query = signal.query(settings.window);
            let joined = match self.parts.queries.ask(prometheus, signal.purpose(), &query).await {
                Ok(answer) => Ok(join(signal, answer, workloads).await),
                Err(error) => Err(error),
            };
            (signal, joined)
        });
        let mut asked = futures::stream::iter(asked).buffered(ASKED_AT_ONCE);
        let mut measured = Measured::over(micros(settings.window));
        while let Some((signal, joined)) = asked.next().await {
            match joined {
                Ok(Some((values, fates))) => {
                    self.parts.stats.joined(signal, fates.each());
                    measured.take(values);
                    answers.any = true;
                }
                // The thread that joins ends without an answer only while the program ends.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!("{}: {error}", signal.word());
                    answers.failed.get_or_insert(error.to_string());
                }
            }
        }
        answers.measured = answers.any.then_some(measured);
        answers
    }

    /// Logs when Prometheus falls silent, and when it answers again.
    fn tell(&mut self, answers: &Answers) {
        match (&answers.failed, answers.any) {
            (Some(why), false) if !self.unanswered => {
                tracing::warn!("Prometheus gives no metrics, and the workloads keep their classes: {why}");
                self.unanswered = true;
            }
            (_, true) if self.unanswered => {
                tracing::info!("Prometheus answers again");
                self.unanswered = false;
            }
            (Some(_) | None, _) => {}
        }
    }

    /// Makes the round, on a thread of its own where it takes long.
    async fn round(&mut self, workloads: Arc<Workloads>, answers: Answers) -> Decided {
        let long = workloads.pods() > QUICK_MAX;
        let (stamp, wall, now) = (self.stamp(), self.parts.clock.wall(), self.parts.clock.mono());
        let (nodes, profiles) = (self.parts.nodes.all(), self.parts.profiles.all());
        let (law, clock) = (self.law, self.parts.clock.clone());
        let (mut memory, rests) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.rests));
        let make = move || {
            let facts = RoundFacts {
                now: stamp,
                wall,
                workloads: &workloads,
                nodes: &nodes,
                profiles: &profiles,
                answers: &answers,
            };
            let rests_now = |key: &ObjectKey| {
                let shown = profiles.get(key).map(|cached| cached.row.stamp.version.as_str());
                rests.rests(key, shown, now)
            };
            let decided = memory.round(&law, &facts, rests_now);
            (memory, rests, decided, clock.mono().since(now))
        };
        let made = if long { tokio::task::spawn_blocking(make).await } else { Ok(make()) };
        let Ok((memory, rests, decided, took)) = made else {
            tracing::error!("a round of the classifier broke off; the next one begins anew");
            return Decided::default();
        };
        self.parts.stats.took(took);
        (self.memory, self.rests) = (memory, rests);
        decided
    }

    async fn send(&mut self, decided: Decided, term: Term) {
        let wanted: BTreeSet<_> = decided.changes.iter().map(|(key, _)| key.clone()).collect();
        let (leadership, clock) = (&self.parts.leadership, &self.parts.clock);
        let sent = self.writer.send(decided.changes, || leadership.term(clock.mono()) == Some(term)).await;
        let now = clock.mono();
        self.rests.take(&sent, now);
        self.rests.forget(&wanted, now);
        self.away = match &sent.away {
            Some(why) => {
                if self.away == 0 {
                    tracing::warn!("WorkloadProfiles are not written: {why}");
                }
                self.away.saturating_add(1)
            }
            None => 0,
        };
    }

    fn stamp(&self) -> Stamp {
        let since_start = self.parts.clock.mono().since(Mono::START);
        Stamp::new(micros(since_start.saturating_add(PAST)))
    }

    fn show(&self, tally: &Tally) {
        let Tally { classified, standing } = tally;
        for (basis, count) in classified {
            self.parts.stats.classified(*basis, *count);
        }
        for known in Known::ALL {
            self.parts.stats.standing(*known, standing.get(known).copied().unwrap_or_default());
        }
    }
}

/// Joins an answer to the pods, on a thread of its own where it takes long.
async fn join(signal: Signal, answer: Answer, workloads: &Arc<Workloads>) -> Option<(Values, Fates)> {
    if workloads.pods() <= QUICK_MAX {
        return Some(Values::read(signal, &answer, workloads));
    }
    let workloads = workloads.clone();
    tokio::task::spawn_blocking(move || Values::read(signal, &answer, &workloads)).await.ok()
}
