//! The extenders that are compared, and the form of their requests.

use super::BenchPrograms;
use crate::echo::Scores;
use crate::rights::ProgramAccount;
use crate::{SystemError, ports, until};
use cluster::{ControlPlane, Extender, NodeForm, Program, Scheduler};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// The name of the extender's process; only one runs at a time.
const PROGRAM: &str = "extender";
/// Generous: an answer with 5,000 full nodes may take long on a busy machine, and kube-scheduler must not give up.
const TIMEOUT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

/// An extender of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// kube-scheduler without an extender.
    Nobody,
    /// The echo server.
    Echo(NodeForm, Scores),
    /// `joulie-extender`, as it ships.
    Ours(NodeForm),
    /// The same with this value of `SHORTLIST`.
    Short(&'static str),
}

impl Contender {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nobody => "none",
            Self::Echo(_, Scores::Constant) => "echo, constant scores",
            Self::Echo(_, Scores::Empty) => "echo, no scores",
            Self::Echo(_, Scores::Few) => "echo of the first 64 nodes",
            Self::Ours(_) => "joulie-extender",
            Self::Short("safe") => "joulie-extender, SHORTLIST=safe",
            Self::Short(_) => "joulie-extender, SHORTLIST=all",
        }
    }

    /// The form of the nodes; `None` without an extender.
    pub(super) fn form(self) -> Option<NodeForm> {
        match self {
            Self::Nobody => None,
            Self::Echo(form, _) | Self::Ours(form) => Some(form),
            Self::Short(_) => Some(NodeForm::Names),
        }
    }

    /// Starts it, which replaces the one before, and returns kube-scheduler's configuration for it. The variables are
    /// for `joulie-extender`.
    pub(super) async fn start(
        self,
        control_plane: &ControlPlane,
        programs: &BenchPrograms,
        variables: &[(&str, &str)],
    ) -> Result<Asked, SystemError> {
        control_plane.kill_program(PROGRAM);
        let Some(form) = self.form() else {
            return Ok(Asked { scheduler: all_nodes(Scheduler::plain()), at: None });
        };
        let at = ports::free()?;
        let mut program = self.program(control_plane, programs, at).await?;
        for (name, value) in variables {
            program = program.variable(name, *value);
        }
        control_plane.start_program(&program)?;
        let is_ready = async || match self {
            Self::Nobody | Self::Echo(..) => TcpStream::connect(at).await.is_ok(),
            Self::Ours(_) | Self::Short(_) => synced(at).await.unwrap_or(false),
        };
        until("the extender is ready", PATIENCE, is_ready).await.map_err(|error| {
            format!("{}: {error}; its log:\n{}", self.name(), control_plane.program_log(PROGRAM))
        })?;
        let mut extender = Extender::new(&format!("http://{at}"), form)?;
        extender.timeout = TIMEOUT;
        Ok(Asked { scheduler: all_nodes(Scheduler::with(extender)), at: Some(at) })
    }

    async fn program(
        self,
        control_plane: &ControlPlane,
        programs: &BenchPrograms,
        at: SocketAddr,
    ) -> Result<Program, SystemError> {
        Ok(match self {
            Self::Nobody | Self::Echo(..) => {
                let echo = Program::new(PROGRAM, &programs.echo).argument("echo").argument(at.to_string());
                match self {
                    Self::Echo(_, Scores::Empty) => echo.argument("--empty"),
                    Self::Echo(_, Scores::Few) => echo.argument("--few"),
                    Self::Echo(_, Scores::Constant) | Self::Nobody | Self::Ours(_) | Self::Short(_) => echo,
                }
            }
            Self::Ours(_) | Self::Short(_) => {
                let shortlist = if let Self::Short(pods) = self { pods } else { "off" };
                let kubeconfig = ProgramAccount::Extender.kubeconfig(control_plane).await?;
                Program::new(PROGRAM, &programs.extender)
                    .variable("KUBECONFIG", kubeconfig.to_string_lossy())
                    .variable("EXTENDER_ADDR", at.to_string())
                    .variable("METRICS_ADDR", "127.0.0.1:0")
                    // The twins are written once, and a bench takes longer than their allowed age.
                    .variable("TWIN_STALENESS_THRESHOLD", "24h")
                    .variable("ASSUMED_MAX_AGE", "1h")
                    .variable("SHORTLIST", shortlist)
            }
        })
    }
}

/// The configuration of kube-scheduler, and the address of the extender.
pub(super) struct Asked {
    pub(super) scheduler: Scheduler,
    pub(super) at: Option<SocketAddr>,
}

/// Score every node, so that requests have the maximum length.
fn all_nodes(scheduler: Scheduler) -> Scheduler {
    Scheduler { percentage_of_nodes_to_score: Some(100), ..scheduler }
}

/// Whether `joulie-extender` has read everything.
async fn synced(at: SocketAddr) -> Result<bool, SystemError> {
    Ok(crate::http::at(at)?.get("/debug/scoring").await?["synced"] == true)
}
