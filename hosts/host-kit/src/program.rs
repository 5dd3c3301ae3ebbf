//! What every program does around its own work: read its settings, start its logs, create its client, run its tasks
//! until a signal, and end with a status that tells how.
//!
//! The work itself is a library function that takes a [`Context`], so that several programs can also run in one process.

use crate::clock::{HostClock, SystemClock};
use crate::config::{
    self, ConfigSetting, Invocation, LiveConfig, Refusals, SettingsTable, Values, Wrong, parse,
};
use crate::connect;
use crate::log::{self, Format, Levels, Logs};
use crate::metrics::BuildInfo;
use crate::shutdown::status::{EndStatus, FAILED, REFUSED};
use crate::shutdown::{self, Stop, Tasks};
use kube::Client;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The kubeconfig. In a pod there is none, and the pod's service account counts.
pub const KUBECONFIG: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "KUBECONFIG",
    |text| parse::path(text).map(Some),
    "the path of a file",
    "How to reach the API server; without it the pod's service account, then ~/.kube/config",
);

/// What is logged.
pub const LOG_LEVEL: ConfigSetting<Levels> = ConfigSetting::with_default(
    "LOG_LEVEL",
    "info",
    |text| text.parse::<Levels>().map_err(|wrong| Wrong(wrong.to_string())),
    "a level (error, warn, info, debug, trace), then PART=LEVEL, as in info,kube=debug",
    "What is logged; PUT /debug/log changes it while the program runs",
)
.live();

/// How log lines look.
pub const LOG_FORMAT: ConfigSetting<Format> = ConfigSetting::with_default(
    "LOG_FORMAT",
    "text",
    |text| parse::one_of(text, &[("text", Format::Text), ("json", Format::Json)]),
    "text or json",
    "How a log line looks: text for people, json for machines",
);

/// Who may see the pages under /debug, besides this machine.
pub const DEBUG_TOKEN: ConfigSetting<Option<String>> = ConfigSetting::optional(
    "DEBUG_TOKEN",
    |text| parse::text(text).map(Some),
    "a text without spaces around it",
    "Whoever shows this as a bearer token may see /debug from elsewhere; from this machine everybody may",
)
.secret();

/// The namespace of Leases and Events.
pub const NAMESPACE: ConfigSetting<String> = ConfigSetting::with_default(
    "JOULIE_NAMESPACE",
    "joulie-system",
    parse::object_name,
    "the name of a namespace",
    "Where Joulie's Leases and Events are; it must exist, and the roles are for the namespace of the installation",
)
.or_called(&["POD_NAMESPACE"]);

/// The name of the process in Leases and Events.
pub const POD_NAME: ConfigSetting<Option<String>> = ConfigSetting::optional(
    "POD_NAME",
    |text| parse::object_name(text).map(Some),
    "the name of a pod",
    "How the process calls itself in Leases and Events; without it as the machine is called, which in a pod is its name",
);

/// How long the tasks have to end after they were asked to.
pub const SHUTDOWN_TIMEOUT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "SHUTDOWN_TIMEOUT",
    "20s",
    |text| parse::duration(text, Duration::from_millis(100)..=Duration::from_secs(600)),
    "a duration between 100ms and 10m",
    "How long the program may take to end; keep it below terminationGracePeriodSeconds",
);

/// What the work of a program uses.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// Time.
    pub clock: Arc<dyn HostClock>,
    /// Tells when to end.
    pub stop: Stop,
    /// Changes the log level, if this program owns the logs.
    pub logs: Option<Logs>,
    /// The configuration, for /debug/config, and how it follows its file.
    pub config: LiveConfig,
}

/// What the work of a program uses that has no cluster.
#[derive(Clone)]
pub struct LocalContext {
    /// Time.
    pub clock: Arc<dyn HostClock>,
    /// Tells when to end.
    pub stop: Stop,
    /// Changes the log level, if this program owns the logs.
    pub logs: Option<Logs>,
    /// The configuration, for /debug/config, and how it follows its file.
    pub config: LiveConfig,
}

impl Context {
    /// All of it but the API server.
    #[must_use]
    pub fn local(&self) -> LocalContext {
        let Self { client: _, clock, stop, logs, config } = self.clone();
        LocalContext { clock, stop, logs, config }
    }
}

/// Runs a program from its command line and environment. Returns its exit status, one of
/// [`OF_PROGRAMS`](crate::shutdown::status::OF_PROGRAMS).
///
/// The table must contain [`KUBECONFIG`], [`LOG_LEVEL`], [`LOG_FORMAT`] and [`SHUTDOWN_TIMEOUT`]. `read` converts the
/// values into the program's own settings, also when the file changes; `start` starts its tasks and returns.
pub fn run<S: Send + Sync + 'static, E: Into<Box<dyn Error>>>(
    table: &'static SettingsTable,
    build: &BuildInfo,
    arguments: impl IntoIterator<Item = OsString>,
    read: impl Fn(&Values) -> Result<S, Refusals> + Send + Sync + 'static,
    start: impl AsyncFnOnce(S, Context, &mut Tasks) -> Result<(), E>,
) -> ExitCode {
    let kubeconfig = |values: &Values| values.get(&KUBECONFIG);
    begin(table, build, arguments, (kubeconfig, read), async |(kubeconfig, settings), local, tasks| {
        let client = connect::connect(kubeconfig.as_deref()).await?;
        let LocalContext { clock, stop, logs, config } = local;
        let context = Context { client, clock, stop, logs, config };
        start(settings, context, tasks).await.map_err(Into::<Box<dyn Error>>::into)
    })
}

/// Like [`run`], without a cluster: the table needs no [`KUBECONFIG`].
pub fn run_alone<S: Send + Sync + 'static, E: Into<Box<dyn Error>>>(
    table: &'static SettingsTable,
    build: &BuildInfo,
    arguments: impl IntoIterator<Item = OsString>,
    read: impl Fn(&Values) -> Result<S, Refusals> + Send + Sync + 'static,
    start: impl AsyncFnOnce(S, LocalContext, &mut Tasks) -> Result<(), E>,
) -> ExitCode {
    begin(table, build, arguments, (|_: &Values| Ok(()), read), async |((), settings), local, tasks| {
        start(settings, local, tasks).await
    })
}

/// What is read once at the start comes before what is read again when the file changes.
fn begin<F, S: Send + Sync + 'static, E: Into<Box<dyn Error>>>(
    table: &'static SettingsTable,
    build: &BuildInfo,
    arguments: impl IntoIterator<Item = OsString>,
    (once, read): (
        impl FnOnce(&Values) -> Result<F, Refusals>,
        impl Fn(&Values) -> Result<S, Refusals> + Send + Sync + 'static,
    ),
    start: impl AsyncFnOnce((F, S), LocalContext, &mut Tasks) -> Result<(), E>,
) -> ExitCode {
    let sources = match Invocation::read(arguments, std::env::vars_os()) {
        Invocation::Run(sources) => sources,
        Invocation::Help => return say(&table.help()),
        Invocation::Version => {
            return say(&format!("{} {} ({})\n", table.program, build.version, build.revision));
        }
    };
    let loaded = config::load(table, &sources).and_then(|values| {
        let common = Common::read(&values)?;
        let settings = (once(&values)?, read(&values)?);
        Ok((values, common, settings))
    });
    let (values, common, settings) = match loaded {
        Ok(loaded) => loaded,
        Err(refusals) => return fail(REFUSED, &refusals),
    };
    let logs = match log::start(common.format, &common.levels) {
        Ok(logs) => logs,
        Err(error) => return fail(FAILED, &error),
    };
    values.announce();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(FAILED, &format!("the threads of the program cannot be started: {error}")),
    };
    let code = runtime.block_on(async {
        let signals = shutdown::signals()?;
        let (trigger, stop) = shutdown::pair();
        let mut tasks = Tasks::new();
        let clock = SystemClock::new();
        let config = LiveConfig::new(table, sources, values, read, clock.wall());
        let context = LocalContext { clock: Arc::new(clock), stop, logs: Some(logs), config };
        start(settings, context, &mut tasks).await.map_err(Into::into)?;
        Ok::<_, Box<dyn Error>>(tasks.run(trigger, signals, common.deadline).await.code())
    });
    // A task that does not end must not keep the process alive.
    runtime.shutdown_background();
    match code {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tracing::error!(program = table.program, "{error}");
            ExitCode::from(FAILED.code)
        }
    }
}

/// The settings that `run` itself needs.
struct Common {
    levels: Levels,
    format: Format,
    deadline: Duration,
}

impl Common {
    fn read(values: &Values) -> Result<Self, Refusals> {
        Ok(Self {
            levels: values.get(&LOG_LEVEL)?,
            format: values.get(&LOG_FORMAT)?,
            deadline: values.get(&SHUTDOWN_TIMEOUT)?,
        })
    }
}

fn say(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(status: EndStatus, why: &dyn std::fmt::Display) -> ExitCode {
    // If standard error is closed, nobody can be told; the exit status still reports it.
    let _ = writeln!(std::io::stderr(), "{why}");
    ExitCode::from(status.code)
}
