//! `joulie demo`: the whole system on simulated nodes, in one process.
//!
//! ```text
//!            ┌───────────── API in memory (also over TLS, for kubectl) ─────────────┐
//!   operator ┘      agent ┘       extender ┘        scheduler ┘    simulator ┘      └ observer ─▶ state ─▶ view
//!                     └──── telemetry, control ──── HTTP ─────────────┘                       └▶ story ─▶ lines
//!                                   └─ filter, prioritize ─ HTTP ┘                            ├▶ tally ─▶ table
//!                                                                                             └▶ page, with orders back
//! ```
//!
//! The four hosts are the programs that ship. Only the demo has the replacement for kube-scheduler, the shortened
//! times (`cluster`), zones that get hot (`heat`), the actions of `--chaos`, and the orders of its page (`page`). The view shows only what is available through the API and over
//! HTTP.

mod act;
mod chaos;
mod cluster;
mod events;
mod fault;
mod heat;
mod home;
mod host;
mod observe;
mod page;
mod plain;
mod probe;
mod scheduler;
mod show;
mod state;
mod summary;
mod targets;
mod terminal;
mod view;
mod web;

use self::page::DemoPage;
use crate::args::Demo;
use crate::node::Ending;
use crate::out::Out;
use crate::value::PageAt;
use ::page::orders::GivenOrder;
use act::Act;
use chaos::Chaos;
use cluster::{DemoCluster, DemoContext};
use events::{Line, Tone};
use heat::Heat;
use home::Home;
use host_kit::clock::{HostClock, SystemClock};
use host_kit::log::{Format, Levels};
use host_kit::shutdown::{self, Tasks};
use observe::Observer;
use show::Show;
use state::{Placement, State};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use targets::Targets;
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// The Lease for the leader election of the operators.
pub(crate) const LEADER_LEASE: &str = "joulie-operator";
/// How often the state is read and drawn.
const LOOK: Duration = Duration::from_millis(250);
/// The length of a round of hot zones and of `--chaos` if the demo has no end.
const ROUND: Duration = Duration::from_secs(100);
/// How long the demo's own tasks may take to stop.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Runs the demo until it ends.
pub(crate) fn run(args: &Demo) -> Ending {
    match play(args) {
        Ok(()) => Ending::Done,
        Err((ending, why)) => {
            // If standard error is closed, the message is lost.
            let _told = writeln!(std::io::stderr(), "joulie: {why}");
            ending
        }
    }
}

type Failure = (Ending, String);

fn failed(why: String) -> Failure {
    (Ending::NotDone, why)
}

fn play(args: &Demo) -> Result<(), Failure> {
    if let Some(path) = &args.log {
        logs(path).map_err(|why| (Ending::Usage, why))?;
    }
    let home = Home::take(args.kubeconfig.as_deref()).map_err(|why| (Ending::Usage, why))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| failed(format!("the threads of the demo cannot be started: {error}")))?;
    let played = runtime.block_on(perform(args, &home));
    // Remaining tasks must not keep the process alive.
    runtime.shutdown_background();
    played
}

/// Writes the logs of all parts to a file.
fn logs(path: &std::path::Path) -> Result<(), String> {
    let wrong = |why: String| format!("--log {}: {why}", path.display());
    let file =
        std::fs::File::create(path).map_err(|error| wrong(format!("it cannot be written: {error}")))?;
    let levels: Levels = "info".parse().map_err(|error| wrong(format!("{error}")))?;
    let started = host_kit::log::start_to(std::sync::Mutex::new(file), Format::Text, &levels);
    started.map(drop).map_err(|error| wrong(error.to_string()))
}

async fn perform(args: &Demo, home: &Home) -> Result<(), Failure> {
    let mut signals =
        shutdown::signals().map_err(|error| failed(format!("signals cannot be taken: {error}")))?;
    let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
    let began = clock.mono();
    let lasting = args.lasting.map(|span| Duration::from_micros(span.micros().get()));
    let show = Show::begin(Out::new(), args, lasting, home.kubeconfig());
    let mut show = show.map_err(|why| (Ending::Usage, why))?;
    let stage = DemoContext::new(clock.clone(), began, args.budget.watts(), args.seed).map_err(failed)?;
    let stage = stage.at_home(home);
    let serving = DemoCluster::serve(&stage, home).await.map_err(failed)?;
    let (trigger, stop) = shutdown::pair();
    let mut tasks = Tasks::new();
    let page = match args.page {
        PageAt::Off => None,
        PageAt::At(address) => {
            let page = DemoPage::serve(&stage, address, (&mut tasks, &stop)).await;
            let page = page.map_err(|why| (Ending::Usage, why))?;
            show.has_page(page.url());
            Some(page)
        }
    };
    show.first();
    let starting = DemoCluster::start(stage, serving);
    let cluster = tokio::select! {
        cluster = starting => cluster.map_err(failed)?,
        Some(_) = signals.recv() => return Ok(()),
    };
    // Dropped, and so removed, at the end.
    let _targets = match args.targets.as_deref() {
        Some(path) => Some(Targets::write(path, cluster.metrics()).map_err(|why| (Ending::Usage, why))?),
        None => None,
    };
    let (placed, placements) = mpsc::unbounded_channel();
    let observer = cluster.watch(placed, (&mut tasks, &stop)).map_err(failed)?;
    let chaos = args.chaos.then(|| Chaos::over(lasting.unwrap_or(ROUND)));
    let heat = Heat::over(lasting.unwrap_or(ROUND));
    let mut run = Run { cluster, observer, placements, chaos, heat, show, page };
    let ended = tokio::select! {
        ended = run.on(lasting) => ended,
        Some(_) = signals.recv() => Ok(()),
    };
    let Run { cluster, show, .. } = run;
    // Print the table at once; the parts stop after it. A second signal does not wait for them.
    let said = show.end();
    let (_nobody, no_signals) = mpsc::channel(1);
    let ending = async {
        let asked = async {
            trigger.request("the demo ends");
            cluster.stop().await;
        };
        tokio::join!(tasks.run(trigger.clone(), no_signals, END_WITHIN), asked)
    };
    tokio::select! {
        _ended = ending => {}
        Some(_) = signals.recv() => {}
    }
    ended.and(said).map_err(failed)
}

/// The state of a running demo.
struct Run {
    cluster: DemoCluster,
    observer: Observer,
    placements: UnboundedReceiver<Placement>,
    chaos: Option<Chaos>,
    heat: Heat,
    show: Show,
    page: Option<DemoPage>,
}

impl Run {
    /// Reads the state, reports events and acts until the time is over or the output is closed.
    async fn on(&mut self, lasting: Option<Duration>) -> Result<(), String> {
        let mut due = tokio::time::interval(LOOK);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            due.tick().await;
            let placed: Vec<Placement> = std::iter::from_fn(|| self.placements.try_recv().ok()).collect();
            let state = self.observer.look(&placed);
            while let Some(act) = self.chaos.as_mut().and_then(|chaos| chaos.due(&state)) {
                // What could not be done is told.
                let _told = self.do_it(&act, act.told(), state.at).await;
            }
            if let Some(act) = self.heat.due(&state) {
                // What could not be done is told.
                let _told = self.do_it(&act, act.told(), state.at).await;
            }
            self.obey(&state).await;
            self.cluster.meddle(state.at).await;
            let told = self.show.go_on(&state, &placed);
            if let Some(page) = &self.page {
                page.tell(&state, told, &placed, &self.cluster);
            }
            if let Some(why) = self.cluster.failure() {
                return Err(why);
            }
            if lasting.is_some_and(|lasting| state.at >= lasting) || !self.show.is_seen() {
                return Ok(());
            }
        }
    }

    /// Carries out what a person at the page has ordered.
    async fn obey(&mut self, state: &State) {
        while let Some(GivenOrder { order, answer }) = self.page.as_mut().and_then(DemoPage::order) {
            let Some(page) = &self.page else { return };
            let done = match page.act(order, state, &self.cluster) {
                Ok(act) => {
                    let told = act.told_of_a_person();
                    self.do_it(&act, told.clone(), state.at).await.map(|()| told)
                }
                Err(why) => Err(why),
            };
            // Whoever has closed the page needs no answer.
            let _gone = answer.send(done);
        }
    }

    /// An action that failed is reported as an event too.
    async fn do_it(&mut self, act: &Act, told: String, at: Duration) -> Result<(), String> {
        self.show.tell(Line { at, tone: Tone::Chaos, text: told });
        let done = self.cluster.act(act).await;
        match &done {
            Ok(()) => {
                if let Some(page) = &mut self.page {
                    page.done(act);
                }
            }
            Err(why) => {
                let text = format!("that could not be done: {}", state::clean(why));
                self.show.tell(Line { at, tone: Tone::Bad, text });
            }
        }
        done
    }
}
