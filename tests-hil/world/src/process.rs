//! The shipped programs, each as the tasks that its own `start` creates. They can be killed at any await point.

use crate::budget;
use crate::clock::Virtual;
use crate::disk::Disk;
use crate::draw::Draw;
use crate::network::{Alive, Line, Road, client};
use crate::scene::Scene;
use crate::sleep;
use embedded_api::EmbeddedApi;
use host_kit::config::{Invocation, LiveConfig, SettingsTable, Values, load};
use host_kit::program::Context;
use host_kit::shutdown::{self, Apart, Tasks, Trigger};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The namespace of Joulie's Leases and Events.
pub(crate) const NAMESPACE: &str = "joulie-system";

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// One of the operators.
    Operator(char),
    /// The agent of a node.
    Agent(String),
    /// The extender.
    Extender,
}

impl Who {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Operator(letter) => format!("operator-{letter}"),
            Self::Agent(node) => format!("agent-{node}"),
            Self::Extender => "extender".to_owned(),
        }
    }

    /// The name of the counter for its kills.
    pub(crate) const fn kill(&self) -> &'static str {
        match self {
            Self::Operator(_) => "kills of operators",
            Self::Agent(_) => "kills of agents",
            Self::Extender => "kills of the extender",
        }
    }
}

/// A running program.
pub(crate) struct Process {
    alive: Alive,
    task: JoinHandle<()>,
    /// Never used, because programs are only killed here.
    _trigger: Trigger,
}

/// The parameters of a program's start.
pub(crate) struct Start<'a> {
    pub(crate) api: &'a EmbeddedApi,
    pub(crate) scene: &'a Arc<Scene>,
    /// The disks of all machines: an agent finds its data there at its next start.
    pub(crate) disk: &'a Disk,
    pub(crate) seed: u64,
    pub(crate) site_watts: f64,
    /// The file of the machines' controllers, where nodes sleep.
    pub(crate) bmcs: Option<&'a Path>,
    /// The number of its earlier starts.
    pub(crate) number: u32,
    /// The connections to the API server and to the machines.
    pub(crate) lines: (&'a Arc<Line>, &'a Arc<Line>),
}

impl Process {
    /// Starts a program.
    ///
    /// # Errors
    /// If it refuses its settings or does not start.
    pub(crate) async fn start(who: &Who, start: &Start<'_>) -> Result<Self, String> {
        let alive: Alive = Arc::new(AtomicBool::new(true));
        let chance = Draw::new(start.seed, &format!("{}/{}", who.name(), start.number));
        let (trigger, stop) = shutdown::pair();
        let context = Context {
            client: client(start.api, start.lines.0, &alive),
            clock: Arc::new(Virtual::new(start.scene.hour(), chance)),
            stop,
            logs: None,
            config: LiveConfig::fixed(String::new()),
        };
        let mut tasks = Tasks::new();
        match who {
            Who::Operator(_) => {
                let mut variables = budget::operator(start.site_watts);
                variables.extend(start.bmcs.into_iter().flat_map(sleep::operator));
                let values = values(&operator::settings::TABLE, &variables)?;
                let settings = operator::Settings::read(&values).map_err(|refused| refused.to_string())?;
                let road = Arc::new(Road::new(start.lines.1, &alive));
                let began = operator::start_over(road, settings, context, &mut tasks).await;
                began.map_err(|error| error.to_string())?;
            }
            Who::Agent(node) => {
                let values = values(&agent::settings::TABLE, &of_agent(node, start.disk))?;
                let settings =
                    agent::settings::Settings::read(&values).map_err(|refused| refused.to_string())?;
                let road = Arc::new(Road::new(start.lines.1, &alive));
                let began = agent::start_over(road, settings, context, &mut tasks).await;
                began.map_err(|error| error.to_string())?;
            }
            Who::Extender => {
                let variables = [("EXTENDER_ADDR", "127.0.0.1:0".to_owned())];
                let values = values(&extender::settings::TABLE, &variables)?;
                let settings =
                    extender::settings::Settings::read(&values).map_err(|refused| refused.to_string())?;
                let began = extender::start_on(Apart::here(), settings, context, &mut tasks).await;
                began.map_err(|error| error.to_string())?;
            }
        }
        let (signals, received) = mpsc::channel(1);
        let asked = trigger.clone();
        let task = tokio::spawn(async move {
            let _signals = signals;
            tasks.run(asked, received, Duration::from_secs(20)).await;
        });
        Ok(Self { alive, task, _trigger: trigger })
    }

    /// Ends it at once, without a shutdown.
    pub(crate) fn kill(self) {
        self.alive.store(false, Ordering::Relaxed);
        self.task.abort();
    }

    /// Whether it has ended without a kill, which is a defect.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

/// The settings of an agent for one node over HTTP, which stores its last grant on the node's disk.
fn of_agent(node: &str, disk: &Disk) -> Vec<(&'static str, String)> {
    let (telemetry, control) = ("http://machine/telemetry/{node}", "http://machine/control/{node}");
    [
        ("NODE_NAME", node),
        ("TELEMETRY_CPU_SOURCE", "http"),
        ("TELEMETRY_CPU_HTTP_ENDPOINT", telemetry),
        ("TELEMETRY_CPU_CONTROL", "http"),
        ("TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT", control),
        ("TELEMETRY_GPU_CONTROL", "http"),
        ("TELEMETRY_GPU_CONTROL_HTTP_ENDPOINT", control),
        ("RECONCILE_INTERVAL", "5s"),
        ("POWER_PUBLISH_INTERVAL", "60s"),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.to_owned()))
    .chain([("STATE_DIR", disk.of(node).display().to_string())])
    .collect()
}

fn values(table: &SettingsTable, variables: &[(&'static str, String)]) -> Result<Values, String> {
    // Nobody connects to these ports; they are bound because the programs always do so.
    let all = [("METRICS_ADDR", "127.0.0.1:0"), ("JOULIE_NAMESPACE", NAMESPACE)];
    let own = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let all = all.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).chain(own);
    match Invocation::read(std::iter::empty(), all) {
        Invocation::Run(sources) => load(table, &sources).map_err(|refused| refused.to_string()),
        Invocation::Help | Invocation::Version => Err("neither was asked for".to_owned()),
    }
}
