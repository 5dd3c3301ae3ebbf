//! Who is asked, and in which form.

use super::Programs;
use crate::Trouble;
use crate::echo::Scores;
use cluster::{ControlPlane, Extender, NodeForm, Program, Scheduler};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use tokio::net::TcpStream;

/// The name of the extender's process, of which one runs at a time.
const PROGRAM: &str = "extender";
/// An answer with 5,000 full nodes may take long on a busy machine, and kube-scheduler must not give up.
const TIMEOUT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

/// An extender of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// kube-scheduler by itself.
    Nobody,
    /// It repeats what it was asked.
    Echo(NodeForm, Scores),
}

impl Contender {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nobody => "none",
            Self::Echo(_, Scores::Constant) => "echo, constant scores",
            Self::Echo(_, Scores::Empty) => "echo, no scores",
        }
    }

    /// `None` for who is not asked.
    pub(super) fn form(self) -> Option<NodeForm> {
        match self {
            Self::Nobody => None,
            Self::Echo(form, _) => Some(form),
        }
    }

    /// Starts it, in the place of the one before, and says how kube-scheduler is to ask it.
    pub(super) async fn start(
        self,
        control_plane: &ControlPlane,
        programs: &Programs,
    ) -> Result<Scheduler, Trouble> {
        control_plane.kill_program(PROGRAM);
        let Some(form) = self.form() else {
            return Ok(Scheduler { percentage_of_nodes_to_score: Some(100), ..Scheduler::plain() });
        };
        let at = free_address()?;
        control_plane.start_program(&self.program(programs, at))?;
        listens(at).await.map_err(|error| {
            format!(
                "{} does not listen: {error}; its log:\n{}",
                self.name(),
                control_plane.program_log(PROGRAM)
            )
        })?;
        let mut extender = Extender::new(&format!("http://{at}"), form)?;
        extender.timeout = TIMEOUT;
        Ok(Scheduler { percentage_of_nodes_to_score: Some(100), ..Scheduler::with(extender) })
    }

    fn program(self, programs: &Programs, at: SocketAddr) -> Program {
        match self {
            Self::Nobody | Self::Echo(_, Scores::Constant) => {
                Program::new(PROGRAM, &programs.echo).argument("echo").argument(at.to_string())
            }
            Self::Echo(_, Scores::Empty) => Self::Nobody.program(programs, at).argument("--empty"),
        }
    }
}

/// An address that nobody listens on; it may be taken before it is used, and then the bench says so.
pub(super) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Waits until somebody listens there.
pub(super) async fn listens(at: SocketAddr) -> Result<(), Trouble> {
    let trying = async {
        while TcpStream::connect(at).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, trying).await.map_err(|_| "nobody answered in time".into())
}
