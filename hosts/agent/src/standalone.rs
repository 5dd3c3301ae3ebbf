//! `joulie-agent --standalone FILE`: the machine that the agent runs on, without a cluster (docs/adr/0029).
//!
//! ```text
//!  FILE ──two equal readings──▶ caps ──Desire──▶ host (node-kit, its own thread)
//!                                                  │ View
//!                              status file, metrics ◀┘
//! ```
//!
//! The machine and its control loop are those of an agent in a cluster; a file takes the place of the watches, and another that of
//! the statuses. A file that cannot be read, or not be used, changes nothing: what it last said stays in force, and this is told.

mod file;
mod status;

use crate::front::armed::ArmedNow;
use crate::front::grants::Stands;
use crate::front::outcome::{Outcome, Outcomes, Terms};
use crate::front::wanted::{Goal, Subject, Unknown, Wanted};
use crate::host::{self, Ending, Host};
use crate::machine::View;
use crate::metrics::{Metrics, PowerDetail};
use crate::plug::PlugParts;
use crate::settings::OnExit;
use crate::settings::standalone::{self as settings, Caps, STANDALONE_TABLE, Standalone};
use crate::start::{self, BUILD, StartError};
use file::Settling;
use host_kit::clock::HostClock;
use host_kit::config::{self, Invocation};
use host_kit::health::{CheckResult, Health, Heartbeat};
use host_kit::metrics::MetricsBuilder as Page;
use host_kit::program::{self, LocalContext};
use host_kit::server::{Scrapers, ServerMetrics};
use host_kit::shutdown::{Stop, Tasks};
use joulie_api::condition::rfc3339;
use joulie_core::placement::freshness::UnixTime;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the file is read.
const READ_EVERY: Duration = Duration::from_secs(1);
/// A status that says the same is written again after this time, so that its age tells whether the agent lives.
const STATUS_AGAIN: Duration = Duration::from_secs(10);

/// The command line, to read the settings again when the file has changed.
#[derive(Clone, Debug)]
struct Line {
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// Runs the command; the arguments are those behind `--standalone`.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let Some(path) = arguments.next().filter(|path| !path.to_string_lossy().starts_with("--")) else {
        // If standard error is closed, nobody can be told; the exit status still reports it.
        let _written =
            writeln!(std::io::stderr(), "joulie-agent: --standalone needs a file: --standalone FILE");
        return ExitCode::from(host_kit::shutdown::status::REFUSED.code);
    };
    let all = [OsString::from("--config"), path.clone()].into_iter().chain(arguments);
    let line =
        Line { path: path.into(), arguments: all.collect(), environment: std::env::vars_os().collect() };
    program::run_alone(
        &STANDALONE_TABLE,
        &BUILD,
        line.arguments.clone(),
        settings::read,
        async |standalone, context, tasks| begin(standalone, line, context, tasks).await,
    )
}

async fn begin(
    standalone: Standalone,
    line: Line,
    context: LocalContext,
    tasks: &mut Tasks,
) -> Result<(), StartError> {
    let Standalone { settings, node, machine, status, fixed } = standalone;
    let mut page = Page::of(&BUILD);
    let metrics = Metrics::register(page.registry());
    let servers = ServerMetrics::register(page.registry());
    let beat = Heartbeat::started(context.clock.mono());
    let plug = PlugParts {
        settings: &settings.plug,
        node: &node,
        root: machine.root.as_deref(),
        detail: settings.power_detail,
        clock: context.clock.clone(),
        stop: context.stop.clone(),
    };
    let plug = plug.start(page.registry(), tasks).map_err(StartError::Plug)?;
    let clock = context.clock.clone();
    let taps = host::Taps { plug, ..host::Taps::default() };
    let began = host::start(&settings, &node, &machine, clock, (beat.clone(), taps));
    let began = began.map_err(StartError::Machine)?;
    let here = began.host.clone();
    let health = Health::new(context.clock.clone()).ready_until(context.stop.clone());
    let health = health
        .live("loop", beat.check("the control loop", start::loop_most(settings.period)))
        .ready("machine", move |_| here.check());
    let (state, states) = watch::channel(None::<Option<String>>);
    let health = health.ready("file", move |_| match states.borrow().as_ref() {
        None => CheckResult::Fail("the file has not been read twice yet".to_owned()),
        Some(Some(why)) => CheckResult::Fail(why.clone()),
        Some(None) => CheckResult::Pass,
    });
    let kept = settings.kept_grant(&node);
    let stands = kept.as_deref().map_or(Stands::Nothing, Stands::of_file);
    if stands != Stands::Nothing {
        tracing::warn!("from a cluster: {}; `joulie-agent restore` forgets it", stands.say());
    }
    let follow = Follow {
        node,
        line,
        fixed,
        status,
        stands,
        terms: start::terms(&settings, (machine.cpu, machine.gpu)),
        detail: settings.power_detail,
        metrics,
        clock: context.clock.clone(),
        host: began.host.clone(),
        views: began.views.clone(),
        state,
        settling: Settling::default(),
        file: FileState::default(),
        wanted: Wanted::Unknown(Unknown::NotSynced),
        outcomes: Outcomes::default(),
        outcome: Outcome::default(),
        written: None,
        unwritten: false,
    };
    let until = context.stop.clone();
    tasks.spawn("front", async move {
        tokio::select! { () = follow.run() => {}, () = until.requested() => {} }
    });
    tasks.spawn("machine", supervise(settings.on_exit, began.host, began.views, context.stop.clone()));
    let port = start::OpsPort { settings: &settings, page, health, servers, scrapers: Scrapers::default() };
    port.open(&context, tasks).await.map(drop)
}

/// Returns when the thread of the machine has ended: after it was asked to, or by itself, and then the program ends too.
async fn supervise(on_exit: OnExit, host: Host, mut views: watch::Receiver<Option<View>>, stop: Stop) {
    let ended = async { while views.changed().await.is_ok() {} };
    tokio::select! {
        () = ended => return,
        () = stop.requested() => {}
    }
    host.end(match on_exit {
        OnExit::Restore => Ending::Restore,
        OnExit::Keep => Ending::Keep,
    });
    while views.changed().await.is_ok() {}
}

/// What is known of the file.
#[derive(Clone, Debug, Default, PartialEq)]
struct FileState {
    path: PathBuf,
    /// What it last said that could be used.
    caps: Option<Caps>,
    /// Why what it says now cannot be used.
    error: Option<String>,
    /// Whether it says something that takes effect at a start alone.
    restart_needed: bool,
}

/// Follows the file and the machine.
struct Follow {
    node: String,
    line: Line,
    fixed: String,
    status: PathBuf,
    stands: Stands,
    terms: Terms,
    detail: PowerDetail,
    metrics: Metrics,
    clock: Arc<dyn HostClock>,
    host: Host,
    views: watch::Receiver<Option<View>>,
    /// For `/readyz`: whether the file was taken in, and why not.
    state: watch::Sender<Option<Option<String>>>,
    settling: Settling,
    file: FileState,
    wanted: Wanted,
    outcomes: Outcomes,
    outcome: Outcome,
    /// The last status, and when it was written.
    written: Option<(Value, host_kit::clock::Mono)>,
    /// Whether the last status could not be written.
    unwritten: bool,
}

impl Follow {
    async fn run(mut self) {
        self.file.path.clone_from(&self.line.path);
        self.views.mark_changed();
        let mut due = self.clock.mono();
        loop {
            let now = self.clock.mono();
            if now >= due {
                due = now.plus(READ_EVERY);
                self.read().await;
            }
            self.step();
            self.tell();
            let wait = due.since(self.clock.mono());
            let alive = tokio::select! {
                changed = self.views.changed() => {
                    self.views.mark_changed();
                    changed.is_ok()
                }
                () = tokio::time::sleep(wait) => true,
            };
            if !alive {
                return;
            }
        }
    }

    async fn read(&mut self) {
        let (line, path) = (self.line.clone(), self.line.path.clone());
        let settled = match tokio::task::spawn_blocking(move || file::read(&path)).await {
            Ok(reading) => self.settling.take(reading),
            Err(_) => return,
        };
        if settled {
            let text = self.settling.settled().cloned().unwrap_or_else(|| Err(String::new()));
            let taken = tokio::task::spawn_blocking(move || take(&line, &text)).await;
            match taken.unwrap_or(Taken::Moved) {
                // It has changed meanwhile: what was used is not what was read twice.
                Taken::Moved => self.settling.again(),
                Taken::Caps(caps, fixed) => self.accept(caps, &fixed),
                Taken::Refused(why) => self.refuse(why),
            }
        }
        if self.file.error.is_none() && self.file.caps.is_some() {
            // The file confirms what it says.
            let heard = i64::try_from(self.clock.mono().as_millis()).unwrap_or(i64::MAX / 1_000);
            self.host.renewed(UnixTime::from_micros(heard.saturating_mul(1_000)));
        }
    }

    fn accept(&mut self, caps: Caps, fixed: &str) {
        let needs_restart = fixed != self.fixed;
        if needs_restart && !self.file.restart_needed {
            tracing::warn!("{} has settings that take effect at the next start", self.file.path.display());
        }
        (self.file.caps, self.file.error, self.file.restart_needed) = (Some(caps), None, needs_restart);
        self.state.send_replace(Some(None));
        self.want();
    }

    fn refuse(&mut self, why: String) {
        let stays = if self.file.caps.is_some() {
            "what it said before stays in force"
        } else {
            "nothing is changed"
        };
        tracing::error!("{} cannot be used, and {stays}: {why}", self.file.path.display());
        self.file.error = Some(why.clone());
        self.state.send_replace(Some(Some(why)));
        self.want();
    }

    fn want(&mut self) {
        let name = self.file.path.display().to_string();
        let object = Subject { name, uid: String::new(), generation: None };
        let malformed = self.file.error.clone();
        let wanted = match (self.file.caps, malformed) {
            (Some(Caps { cpu, gpu }), malformed) => {
                Wanted::Goal(Goal { object, cpu, gpu, policy: None, malformed, rivals: Vec::new() })
            }
            (None, Some(why)) => Wanted::Unknown(Unknown::Malformed { object, why }),
            (None, None) => Wanted::Unknown(Unknown::NotSynced),
        };
        if wanted != self.wanted {
            self.metrics.wants(&self.node, &wanted);
            if let (Some(caps), None) = (self.file.caps, &self.file.error) {
                tracing::info!("{} is in force: {caps}", self.file.path.display());
            }
            self.wanted = wanted;
        }
    }

    fn step(&mut self) {
        let desire = self.wanted.desire(self.terms.cpu, self.terms.gpu);
        self.host.desire(self.stands.over(desire, &ArmedNow::default()));
        let is_new = self.views.has_changed().unwrap_or(false);
        let view = self.views.borrow_and_update().clone();
        let Some(view) = view else { return };
        let now = self.clock.mono();
        if is_new {
            self.metrics.sees(&self.node, &view, (now, self.detail));
        }
        let outcome = self.outcomes.of(&self.wanted, &view, &self.terms, now);
        self.metrics.concludes(&self.node, &outcome);
        // What is still in progress is not reported: the report of before stays.
        if outcome.verdict.is_some() {
            self.outcome = outcome;
        }
    }

    fn tell(&mut self) {
        let now = self.clock.mono();
        let view = self.views.borrow().clone();
        let document = status::document(&self.node, &self.file, &self.outcome, view.as_ref());
        let last = self.written.as_ref();
        let is_due = |since: Duration| last.is_none_or(|(_, at)| now.since(*at) >= since);
        let is_same = last.is_some_and(|(last, _)| *last == document);
        if !is_due(if is_same { STATUS_AGAIN } else { READ_EVERY }) {
            return;
        }
        let mut shown = document.clone();
        shown["time"] = json!(rfc3339(self.clock.wall()));
        self.written = Some((document, now));
        match status::write(&self.status, &shown) {
            Ok(()) => self.unwritten = false,
            Err(error) => {
                if !self.unwritten {
                    tracing::error!("the status cannot be written to {}: {error}", self.status.display());
                }
                self.unwritten = true;
            }
        }
    }
}

/// What became of a file that was read twice.
enum Taken {
    Caps(Caps, String),
    Refused(String),
    Moved,
}

fn take(line: &Line, text: &Result<String, String>) -> Taken {
    let text = match text {
        Ok(text) => text,
        Err(why) => return Taken::Refused(format!("it cannot be read: {why}")),
    };
    // A line that asks for help would have ended the program.
    let Invocation::Run(sources) = Invocation::read(line.arguments.clone(), line.environment.clone()) else {
        return Taken::Moved;
    };
    let loaded = config::load(&STANDALONE_TABLE, &sources).and_then(|values| {
        settings::read(&values)?;
        Ok((settings::caps(&values)?, settings::fixed(&values)))
    });
    if file::read(&line.path).as_ref() != Ok(text) {
        return Taken::Moved;
    }
    match loaded {
        Ok((caps, fixed)) => Taken::Caps(caps, fixed),
        // Its first line says that nothing was started, which is about a start.
        Err(refusals) => {
            Taken::Refused(refusals.to_string().lines().skip(1).map(str::trim).collect::<Vec<_>>().join("; "))
        }
    }
}
