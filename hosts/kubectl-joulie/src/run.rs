//! From a parsed command line to what is said, and how the program ends.

use crate::api::{ApiError, ClusterApi};
use crate::args::{Common, Explained, OutputFormat, PluginCli, PluginCommand, Simulated};
use crate::{budget, cap, doctor, energy, explain, pages, recommend, remote, simulate, status, top};
use host_kit::clock::{HostClock, SystemClock};
use host_kit::config::parse::object_name;
use host_kit::connect::chain;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Who asks, and where.
pub struct PluginSession {
    pub(crate) api: ClusterApi,
    pub(crate) clock: Arc<dyn HostClock>,
    pub(crate) common: Common,
    /// The namespace of pods that are named without one.
    pub(crate) namespace: String,
    /// The token for debugging pages.
    pub(crate) debug_token: Option<String>,
}

impl PluginSession {
    /// Asks through this client.
    ///
    /// # Errors
    /// If there is no token in the file that is named for it.
    pub fn through(client: Client, clock: Arc<dyn HostClock>, common: Common) -> Result<Self, String> {
        let namespace = common.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let debug_token = common.debug_token_file.as_deref().map(remote::token).transpose()?;
        Ok(Self { api: ClusterApi::new(client), clock, common, namespace, debug_token })
    }

    pub(crate) const fn format(&self) -> Option<OutputFormat> {
        self.common.output
    }
}

/// What is said, and whether all is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// For standard output.
    pub text: String,
    /// For standard error.
    pub notes: Vec<String>,
    /// The exit code.
    pub code: u8,
}

impl Reply {
    pub(crate) const fn done(text: String) -> Self {
        Self { text, notes: Vec::new(), code: 0 }
    }

    pub(crate) fn not_done(why: impl Into<String>) -> Self {
        Self { text: String::new(), notes: vec![why.into()], code: 1 }
    }
}

impl From<ApiError> for Reply {
    fn from(error: ApiError) -> Self {
        Self::not_done(error.to_string())
    }
}

/// Carries a command out. `top` and `status --watch` say what they see once.
pub async fn run(asked: &PluginSession, command: &PluginCommand) -> Reply {
    let said = match command {
        PluginCommand::Status { .. } => status::status(asked).await,
        PluginCommand::Top { nodes, .. } => top::once(asked, usize::from(*nodes)).await,
        PluginCommand::Explain { what: Explained::Node { name } } => explain::node(asked, name).await,
        PluginCommand::Explain { what: Explained::Pod { name } } => explain::pod(asked, name).await,
        PluginCommand::Simulate { what: Simulated::Pod(shape) } => simulate::simulate(asked, shape).await,
        PluginCommand::Cap(order) => cap::cap(asked, order).await,
        PluginCommand::Budget { change: None } => budget::list(asked).await,
        PluginCommand::Budget { change: Some(order) } => budget::change(asked, order).await,
        PluginCommand::Energy { by, agents } => energy::energy(asked, *by, usize::from(*agents)).await,
        PluginCommand::Doctor(order) => doctor::doctor(asked, order).await,
        PluginCommand::Recommend => recommend::recommend(asked).await,
        PluginCommand::Completion { .. } | PluginCommand::Man { .. } => {
            Err(Reply::not_done("this needs no cluster"))
        }
    };
    said.unwrap_or_else(|reply| reply)
}

/// The program: reads the kubeconfig, and carries the command out.
#[must_use]
pub fn start(cli: PluginCli) -> ExitCode {
    match &cli.command {
        PluginCommand::Completion { shell } => return say(&Reply::done(pages::completion(*shell))),
        PluginCommand::Man { folder } => {
            return say(&match pages::write(folder) {
                Ok(text) => Reply::done(text),
                Err(error) => Reply::not_done(format!("{}: {error}", folder.display())),
            });
        }
        PluginCommand::Status { .. }
        | PluginCommand::Top { .. }
        | PluginCommand::Explain { .. }
        | PluginCommand::Simulate { .. }
        | PluginCommand::Cap(_)
        | PluginCommand::Budget { .. }
        | PluginCommand::Energy { .. }
        | PluginCommand::Doctor(_)
        | PluginCommand::Recommend => {}
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return say(&Reply::not_done(error.to_string())),
    };
    let code = runtime.block_on(async {
        let asked = match connect(cli.common).await {
            Ok(asked) => asked,
            Err(why) => return say(&Reply { code: 2, ..Reply::not_done(why) }),
        };
        if matches!(cli.command, PluginCommand::Status { watch: true }) {
            return watch(&asked, &cli.command).await;
        }
        // Who names a time wants to follow it, also in a file.
        if let PluginCommand::Top { once: false, lasting, nodes } = &cli.command
            && (io::stdout().is_terminal() || lasting.is_some())
        {
            let seen = top::live(&asked, usize::from(*nodes), *lasting).await;
            return seen.map_or_else(|reply| say(&reply), |()| ExitCode::SUCCESS);
        }
        say(&run(&asked, &cli.command).await)
    });
    // Watches that still run must not keep the process alive.
    runtime.shutdown_background();
    code
}

/// How often `status --watch` lists, as upstream does.
const AGAIN: Duration = Duration::from_secs(2);

async fn watch(asked: &PluginSession, command: &PluginCommand) -> ExitCode {
    loop {
        let reply = run(asked, command).await;
        // Clears the screen.
        let text = format!("\u{1b}[2J\u{1b}[H{}Ctrl-C ends", reply.text);
        // An API server that is away for a moment ends nothing.
        let _code = say(&Reply { text, ..reply });
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            _ = tokio::signal::ctrl_c() => return ExitCode::SUCCESS,
        }
    }
}

/// Says it. A reader that goes away is no error.
fn say(reply: &Reply) -> ExitCode {
    let mut err = io::stderr();
    for note in &reply.notes {
        // If standard error is closed, the exit code still tells.
        let _told = writeln!(err, "{}", crate::clean::clean(note));
    }
    let mut out = io::stdout();
    match out.write_all(reply.text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(reply.code),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(reply.code),
        Err(_) => ExitCode::FAILURE,
    }
}

async fn connect(common: Common) -> Result<PluginSession, String> {
    for name in [Some(&common.joulie_namespace), common.namespace.as_ref()].into_iter().flatten() {
        object_name(name).map_err(|wrong| format!("{name:?} is no name of a namespace: {wrong}"))?;
    }
    let options = KubeConfigOptions { context: common.context.clone(), ..KubeConfigOptions::default() };
    let config = match (&common.kubeconfig, &common.context) {
        (Some(file), _) => {
            let read =
                Kubeconfig::read_from(file).map_err(|error| format!("{}: {}", file.display(), chain(&error)));
            Config::from_custom_kubeconfig(read?, &options).await.map_err(|error| chain(&error))
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|error| chain(&error)),
        (None, None) => Config::infer().await.map_err(|error| chain(&error)),
    };
    let mut config = config
        .map_err(|why| format!("no API server is known: {why}; name a kubeconfig with --kubeconfig"))?;
    config.default_retry = false;
    // kube looks for the system's authorities also where the server has no TLS, and gives up where there are none.
    if config.cluster_url.scheme_str() == Some("http") && config.root_cert.is_none() {
        config.root_cert = Some(Vec::new());
    }
    let client = Client::try_from(config).map_err(|error| chain(&error))?;
    PluginSession::through(client, Arc::new(SystemClock::new()), common)
}
