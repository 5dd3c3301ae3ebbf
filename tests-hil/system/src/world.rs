//! The whole system as processes: a control plane with Joulie installed, one node on virtual hardware, simulated
//! nodes, and the shipped programs with their own tokens.

use crate::http::{self, Http};
use crate::register::RegisterFiles;
use crate::rights::{self, ProgramAccount};
use crate::{SystemError, audit, ports};
use cluster::life::{FakeNode, Life};
use cluster::{
    ControlPlane, ControlPlaneOptions, Extender, MutualTls, NodeForm, Program, Scheduler, start_or_skip,
};
use host_kit::bearer::TokenFile;
use kube::Client;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The node on virtual hardware.
pub const RIG: &str = "rig-0";
/// 20 simulated nodes, of each kind that Joulie caps differently.
pub const FLEET: &str = "xeon:8,epyc:8,gpu:4";
/// Their number.
pub const SIMULATED: usize = 20;
/// Two packages with RAPL, under full load.
const PROFILE: &str = "xeon-2s";
/// Generous, because the machine may be busy; no test depends on timing.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The file with the token that the simulated nodes demand.
const NODE_TOKEN: &str = "nodes.token";
/// The operators' file of settings, in the folder of the control plane.
const OPERATOR_CONFIG: &str = "operator.conf";

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Shipped {
    /// `joulie-agent`.
    pub agent: PathBuf,
    /// `joulie-operator`.
    pub operator: PathBuf,
    /// `joulie-extender`.
    pub extender: PathBuf,
    /// `joulie-simulator`.
    pub simulator: PathBuf,
    /// `system-rig`.
    pub rig: PathBuf,
}

/// One of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemProcess {
    /// The server of the virtual hardware.
    Rig,
    /// The agent of the node on virtual hardware.
    Agent,
    /// The agent of the simulated nodes.
    Pool,
    /// The simulated nodes.
    Simulator,
    /// One replica of the operator.
    OperatorA,
    /// The other replica.
    OperatorB,
    /// The extender.
    Extender,
}

impl SystemProcess {
    /// All processes, in the order in which their logs are shown.
    pub const ALL: [Self; 7] = [
        Self::Rig,
        Self::Agent,
        Self::Pool,
        Self::Simulator,
        Self::OperatorA,
        Self::OperatorB,
        Self::Extender,
    ];

    /// The name of the process and its log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rig => "rig",
            Self::Agent => "agent",
            Self::Pool => "agent-pool",
            Self::Simulator => "simulator",
            Self::OperatorA => "operator-a",
            Self::OperatorB => "operator-b",
            Self::Extender => "extender",
        }
    }
}

/// The whole system. Dropping it ends every process; after a failed test it prints their logs.
pub struct TestSystem {
    /// The control plane. Its folder contains everything.
    pub control_plane: ControlPlane,
    /// The client of an administrator.
    pub client: Client,
    /// The power limits of the node on virtual hardware.
    pub registers: RegisterFiles,
    /// The simulator's port.
    pub simulator: Http,
    /// The extender's port for people and metrics.
    pub extender: Http,
    /// What the extender and kube-scheduler show each other.
    pub tls: MutualTls,
    /// The folder for the logs of a failed test.
    keep: PathBuf,
    /// One for each account, written once: a program may be reading it while the next one is started.
    kubeconfigs: BTreeMap<ProgramAccount, PathBuf>,
    /// The programs.
    pub shipped: Shipped,
    ports: [SocketAddr; 3],
    _life: Life,
}

impl TestSystem {
    /// A control plane with Joulie's kinds and accounts, the virtual hardware, and its node, but without Joulie's
    /// programs. `None`, with a message, if that is not possible.
    ///
    /// # Errors
    /// If it is possible, but fails.
    pub async fn start(shipped: Shipped, keep: &Path) -> Result<Option<Self>, SystemError> {
        Self::start_after(shipped, keep, async |_: &Path, _: &Client| {}).await
    }

    /// The same on a control plane to which something is done first, by its kubeconfig and its client.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn start_after(
        shipped: Shipped,
        keep: &Path,
        before: impl AsyncFnOnce(&Path, &Client),
    ) -> Result<Option<Self>, SystemError> {
        if let Err(why) = ports::fuse() {
            crate::skip(&why);
            return Ok(None);
        }
        let options = ControlPlaneOptions {
            audited_group: Some(audit::GROUP.to_owned()),
            ..ControlPlaneOptions::whole()
        };
        let Some(control_plane) = start_or_skip(&options) else { return Ok(None) };
        let client = control_plane.client().await?;
        before(control_plane.kubeconfig(), &client).await;
        rights::install(&client).await?;
        let on = control_plane.folder().join("hardware");
        let rig = Program::new(SystemProcess::Rig.name(), &shipped.rig)
            .argument(PROFILE)
            .argument(on.to_string_lossy());
        control_plane.start_program(&rig)?;
        let registers = RegisterFiles::new(&on, &control_plane.program_log_file(SystemProcess::Rig.name()));
        crate::until("the virtual hardware is mounted", PATIENCE, async || registers.are_there()).await?;
        let machine = FakeNode::named(RIG).label("joulie.io/managed", "true").has("cpu", "128");
        let life = Life::start(client.clone(), vec![machine]).await?;
        let mut kubeconfigs = BTreeMap::new();
        // The policy requires a token that names the agent's node.
        kubeconfigs
            .insert(ProgramAccount::Agent, ProgramAccount::Agent.kubeconfig_on(&control_plane, RIG).await?);
        for account in [
            ProgramAccount::Pool,
            ProgramAccount::Operator,
            ProgramAccount::Extender,
            ProgramAccount::Simulator,
        ] {
            kubeconfigs.insert(account, account.kubeconfig(&control_plane).await?);
        }
        let ports = [ports::free()?, ports::free()?, ports::free()?];
        let tls = MutualTls::create(&control_plane.folder().join("extender-tls"))?;
        let scraper = control_plane.folder().join("scraper.token");
        std::fs::write(&scraper, rights::scraper(&control_plane, &client).await?)?;
        let nodes = control_plane.folder().join(NODE_TOKEN);
        std::fs::write(&nodes, "of-the-simulated-nodes\n")?;
        std::fs::write(control_plane.folder().join(OPERATOR_CONFIG), "")?;
        let node_token = TokenFile::new(&nodes)?;
        Ok(Some(Self {
            control_plane,
            client,
            registers,
            simulator: http::with_token(ports[0], Some(node_token.clone()))?,
            extender: http::over_tls(ports[2], &tls.ca, Some(TokenFile::new(&scraper)?))?,
            tls,
            keep: keep.to_owned(),
            kubeconfigs,
            shipped,
            ports,
            _life: life,
        }))
    }

    /// Starts a part with these additional variables, and replaces the one that runs.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn run(&self, part: SystemProcess, variables: &[(&str, &str)]) -> Result<(), SystemError> {
        self.run_of(&self.shipped, part, variables)
    }

    /// The same with other programs, such as those of another release.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn run_of(
        &self,
        programs: &Shipped,
        part: SystemProcess,
        variables: &[(&str, &str)],
    ) -> Result<(), SystemError> {
        let mut program = self.program(programs, part)?;
        for (name, value) in variables {
            program = program.variable(name, *value);
        }
        Ok(self.control_plane.start_program(&program)?)
    }

    /// Writes the file of settings of the operators, which follow it while they run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure_operators(&self, text: &str) -> Result<(), SystemError> {
        Ok(std::fs::write(self.control_plane.folder().join(OPERATOR_CONFIG), text)?)
    }

    fn program(&self, programs: &Shipped, part: SystemProcess) -> Result<Program, SystemError> {
        let folder = self.control_plane.folder();
        let (path, account) = match part {
            SystemProcess::Rig => return Err("the virtual hardware is started once".into()),
            SystemProcess::Agent => (&programs.agent, ProgramAccount::Agent),
            SystemProcess::Pool => (&programs.agent, ProgramAccount::Pool),
            SystemProcess::Simulator => (&programs.simulator, ProgramAccount::Simulator),
            SystemProcess::OperatorA | SystemProcess::OperatorB => {
                (&programs.operator, ProgramAccount::Operator)
            }
            SystemProcess::Extender => (&programs.extender, ProgramAccount::Extender),
        };
        let kubeconfig = self.kubeconfigs.get(&account).ok_or("an account without a token")?;
        let mut program =
            Program::new(part.name(), path).variable("KUBECONFIG", kubeconfig.to_string_lossy());
        // The settings of the chart, overridden by those of this machine.
        for (name, value) in rights::settings(account)? {
            program = program.variable(&name, value);
        }
        let metrics = "127.0.0.1:0";
        let [simulator, extender, inside] = self.ports;
        let file = |path: &Path| path.to_string_lossy().into_owned();
        Ok(match part {
            SystemProcess::Rig => program,
            SystemProcess::Agent => program
                .variable("AGENT_MODE", "daemonset")
                .variable("NODE_NAME", RIG)
                .variable("HOST_ROOT", folder.join("hardware").to_string_lossy())
                .variable("STATE_DIR", folder.join("state").to_string_lossy())
                .variable("METRICS_ADDR", metrics),
            SystemProcess::Pool => program
                .variable("AGENT_MODE", "pool")
                .variable("POD_NAME", "joulie-agent-pool-0")
                .variable("POOL_SHARDS", "1")
                // The chart's is a folder of this machine, where grants of a run that broke off would stand.
                .variable("STATE_DIR", folder.join("pool").to_string_lossy())
                .variable("POOL_NODE_SELECTOR", "joulie.io/managed=true,joulie.io/simulated=true")
                .variable("TELEMETRY_HTTP_TOKEN_FILE", file(&folder.join(NODE_TOKEN)))
                .variable("TELEMETRY_CPU_SOURCE", "http")
                .variable("TELEMETRY_CPU_HTTP_ENDPOINT", format!("http://{simulator}/telemetry/{{node}}"))
                .variable("TELEMETRY_CPU_CONTROL", "http")
                .variable(
                    "TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT",
                    format!("http://{simulator}/control/{{node}}"),
                )
                .variable("TELEMETRY_GPU_CONTROL", "http")
                .variable(
                    "TELEMETRY_GPU_CONTROL_HTTP_ENDPOINT",
                    format!("http://{simulator}/control/{{node}}"),
                )
                .variable("METRICS_ADDR", metrics),
            SystemProcess::Simulator => program
                .variable("SIM_FLEET", FLEET)
                .variable("SIM_ADDR", simulator.to_string())
                .variable("SIM_TOKEN_FILE", file(&folder.join(NODE_TOKEN))),
            // Short times, so that a failover takes seconds.
            SystemProcess::OperatorA | SystemProcess::OperatorB => program
                .variable("LEADER_LEASE_DURATION", "3s")
                .variable("LEADER_RENEW_DEADLINE", "2s")
                .variable("LEADER_RETRY_PERIOD", "500ms")
                .variable("JOULIE_CONFIG", file(&folder.join(OPERATOR_CONFIG)))
                .variable("METRICS_ADDR", metrics),
            SystemProcess::Extender => program
                .variable("EXTENDER_ADDR", extender.to_string())
                .variable("TLS_CERT_FILE", file(&self.tls.server.certificate))
                .variable("TLS_KEY_FILE", file(&self.tls.server.key))
                .variable("TLS_CLIENT_CA_FILE", file(&self.tls.ca))
                .variable("METRICS_ADDR", inside.to_string())
                .variable("METRICS_TLS_CERT_FILE", file(&self.tls.server.certificate))
                .variable("METRICS_TLS_KEY_FILE", file(&self.tls.server.key))
                .variable("METRICS_AUTH", "token")
                .variable("DRAIN_LINGER", "0s")
                // There are fewer nodes than a shortlist has; what it looks at is watched.
                .variable("SHORTLIST", "safe"),
        })
    }

    /// Stops a part gracefully, and waits until it has ended.
    ///
    /// # Errors
    /// If it does not end, or not successfully.
    pub async fn end(&self, part: SystemProcess) -> Result<(), SystemError> {
        let status = self.control_plane.end_program(part.name(), PATIENCE).await?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{} ended with {status}:\n{}", part.name(), self.control_plane.program_log(part.name()))
            .into())
    }

    /// Runs the operator's command that releases every node, with the operator's account, until it ends.
    ///
    /// # Errors
    /// If it does not end, or not successfully.
    pub async fn uninstall(&self) -> Result<(), SystemError> {
        self.operators_command("uninstall", ("RELEASE_TIMEOUT", "50s")).await
    }

    /// Runs the operator's command that says what is not as it should be, as `helm test` does.
    ///
    /// # Errors
    /// If something is not, or it does not end.
    pub async fn check(&self) -> Result<(), SystemError> {
        self.operators_command("check", ("CHECK_TIMEOUT", "50s")).await
    }

    async fn operators_command(&self, name: &str, patience: (&str, &str)) -> Result<(), SystemError> {
        let kubeconfig =
            self.kubeconfigs.get(&ProgramAccount::Operator).ok_or("an account without a token")?;
        let program = Program::new(name, &self.shipped.operator)
            .argument(name)
            .variable("KUBECONFIG", kubeconfig.to_string_lossy())
            .variable(patience.0, patience.1);
        self.control_plane.start_program(&program)?;
        let mut ended = None;
        let is_over = async || {
            ended = self.control_plane.program_ended(name);
            ended.is_some()
        };
        crate::until(&format!("joulie-operator {name} ends"), PATIENCE, is_over).await?;
        match ended {
            Some(status) if status.success() => Ok(()),
            _ => Err(self.control_plane.program_log(name).into()),
        }
    }

    /// Kills a part.
    pub fn kill(&self, part: SystemProcess) {
        self.control_plane.kill_program(part.name());
    }

    /// kube-scheduler's configuration with the extender. Without it no pod is placed.
    ///
    /// # Errors
    /// Never, because the address is valid.
    pub fn scheduler(&self) -> Result<Scheduler, SystemError> {
        let extender = Extender::new(&format!("http://{}", self.work()), NodeForm::Names)?;
        Ok(Scheduler::with(extender.over_tls(&self.tls)))
    }

    /// The extender's port for kube-scheduler, which demands a certificate.
    #[must_use]
    pub const fn work(&self) -> SocketAddr {
        let [_, extender, _] = self.ports;
        extender
    }

    /// A part that has failed, with the last lines of its log. Killed or stopped parts do not count.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        SystemProcess::ALL.into_iter().find_map(|part| {
            let status = self.control_plane.program_ended(part.name()).filter(|status| !status.success())?;
            Some(format!(
                "{} ended with {status}:\n{}",
                part.name(),
                self.control_plane.program_log(part.name())
            ))
        })
    }
}

impl Drop for TestSystem {
    /// The folder is removed with the control plane, so copy the logs for the analysis of a failure.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // If a log cannot be copied, its last lines are printed anyway.
        let _ = std::fs::create_dir_all(&self.keep);
        let mut shown = format!("\nthe logs are kept in {}\n", self.keep.display());
        for part in SystemProcess::ALL {
            let _ = std::fs::copy(
                self.control_plane.program_log_file(part.name()),
                self.keep.join(format!("{}.log", part.name())),
            );
            shown.push_str(&format!(
                "--- {}\n{}\n",
                part.name(),
                self.control_plane.program_log(part.name())
            ));
        }
        crate::tell(&shown);
    }
}
