//! The programs as processes around one control plane, with the shipped settings except for their addresses and
//! limits: two operators, an agent for all nodes, an extender, and the simulator with the machines.

use super::gate::Gate;
use super::pods::NAMESPACE;
use super::truth::{Each, Shape, Truth};
use crate::http::{self, Http};
use crate::rights::{self, ProgramAccount};
use crate::{SystemError, ports};
use cluster::{ControlPlane, ControlPlaneOptions, Extender, NodeForm, Program, Scheduler, start_or_skip};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// Generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// The interval at which the full-power nodes are swapped.
const SWAPS_EVERY: &str = "10s";

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct ChaosPrograms {
    /// `joulie-agent`.
    pub agent: PathBuf,
    /// `joulie-operator`.
    pub operator: PathBuf,
    /// `joulie-extender`.
    pub extender: PathBuf,
    /// `joulie-simulator`.
    pub simulator: PathBuf,
}

/// One of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Simulator,
    Agent,
    OperatorA,
    OperatorB,
    Extender,
}

impl Part {
    pub(super) const ALL: [Self; 5] =
        [Self::Simulator, Self::Agent, Self::OperatorA, Self::OperatorB, Self::Extender];
    pub(super) const OPERATORS: [Self; 2] = [Self::OperatorA, Self::OperatorB];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Simulator => "simulator",
            Self::Agent => "agent",
            Self::OperatorA => "operator-a",
            Self::OperatorB => "operator-b",
            Self::Extender => "extender",
        }
    }

    const fn account(self) -> ProgramAccount {
        match self {
            Self::Simulator => ProgramAccount::Simulator,
            Self::Agent => ProgramAccount::Pool,
            Self::OperatorA | Self::OperatorB => ProgramAccount::Operator,
            Self::Extender => ProgramAccount::Extender,
        }
    }
}

/// The addresses that stay the same when a process is restarted.
struct Addresses {
    simulator: SocketAddr,
    extender: SocketAddr,
    gate: SocketAddr,
}

/// See the module documentation.
pub(super) struct Site {
    pub(super) control_plane: ControlPlane,
    pub(super) client: Client,
    pub(super) simulator: Http,
    /// Bound before the agent starts, and served once the machines are known.
    gate: Mutex<Option<TcpListener>>,
    programs: ChaosPrograms,
    addresses: Addresses,
    kubeconfigs: BTreeMap<ProgramAccount, PathBuf>,
    fleet: String,
    /// The times of the election, if they differ from the shipped ones: lease, renewal, retry.
    election: Option<[String; 3]>,
    /// The seed of a workload that the simulator makes, if it makes one.
    workload: Option<u64>,
    limit: AtomicU32,
    /// Whether operators that are started from now on continuously move power between nodes.
    swaps: AtomicBool,
    /// The length of a part's log when its process was started.
    logged: Mutex<BTreeMap<Part, usize>>,
}

impl Site {
    /// A control plane with Joulie's kinds and accounts, but without its programs. `None`, with a message, if that is
    /// not possible.
    pub(super) async fn start(
        programs: &ChaosPrograms,
        fleet: String,
        election: Option<[String; 3]>,
        workload: Option<u64>,
    ) -> Result<Option<Self>, SystemError> {
        let Some(control_plane) = start_or_skip(&ControlPlaneOptions::whole()) else { return Ok(None) };
        let client = control_plane.client().await?;
        rights::install(&client).await?;
        let mut kubeconfigs = BTreeMap::new();
        for account in [
            ProgramAccount::Pool,
            ProgramAccount::Operator,
            ProgramAccount::Extender,
            ProgramAccount::Simulator,
        ] {
            kubeconfigs.insert(account, account.kubeconfig(&control_plane).await?);
        }
        let gate = TcpListener::bind("127.0.0.1:0").await?;
        let addresses =
            Addresses { simulator: ports::free()?, extender: ports::free()?, gate: gate.local_addr()? };
        Ok(Some(Self {
            control_plane,
            client,
            simulator: http::at(addresses.simulator)?,
            gate: Mutex::new(Some(gate)),
            programs: programs.clone(),
            addresses,
            kubeconfigs,
            fleet,
            election,
            workload,
            limit: AtomicU32::new(0),
            swaps: AtomicBool::new(false),
            logged: Mutex::default(),
        }))
    }

    /// Starts the machines, waits until they answer, and returns their hardware.
    pub(super) async fn machines(&self) -> Result<BTreeMap<String, Shape>, SystemError> {
        self.run(Part::Simulator)?;
        crate::until("the machines answer", PATIENCE, async || self.simulator.get("/nodes").await.is_ok())
            .await?;
        let states = self.telemetry().await?;
        Ok(states.iter().map(|(name, told)| (name.clone(), Shape::read(told))).collect())
    }

    /// Starts the proxy between the agent and the machines.
    pub(super) fn open_gate(&self, truth: &Arc<Truth>) -> Result<(), SystemError> {
        let listener = self.gate.lock().unwrap_or_else(PoisonError::into_inner).take();
        let listener = listener.ok_or("the gate is open already")?;
        tokio::spawn(Arc::new(Gate::new(Arc::clone(truth), self.simulator.clone())).serve(listener));
        Ok(())
    }

    /// The telemetry of each machine.
    pub(super) async fn telemetry(&self) -> Result<BTreeMap<String, Value>, SystemError> {
        let listed = self.simulator.get("/nodes").await?;
        let mut told = BTreeMap::new();
        for name in listed["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let state = self.simulator.get(&format!("/state/{name}")).await?;
            told.insert(name.to_owned(), state["state"]["telemetry"].clone());
        }
        Ok(told)
    }

    /// The limits in force that each machine reports.
    pub(super) async fn limits(&self) -> Result<BTreeMap<String, Each>, SystemError> {
        let told = self.telemetry().await?;
        let each = |told: &Value| Each {
            package: told["cpu"]["capWatts"].as_f64().unwrap_or_default(),
            gpu: told["gpu"]["capWattsPerGpuApplied"].as_f64().unwrap_or_default(),
        };
        Ok(told.iter().map(|(name, told)| (name.clone(), each(told))).collect())
    }

    /// Sets the site limit of operators that are started from now on, W.
    pub(super) fn limit(&self, watts: u32) {
        self.limit.store(watts, Ordering::Relaxed);
    }

    /// Whether operators that are started from now on swap the full-power nodes every few seconds, or keep all nodes
    /// at full power.
    pub(super) fn swaps(&self, swaps: bool) {
        self.swaps.store(swaps, Ordering::Relaxed);
    }

    /// Starts a part, and replaces the one that runs.
    pub(super) fn run(&self, part: Part) -> Result<(), SystemError> {
        let log = self.log(part).len();
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(part, log);
        Ok(self.control_plane.start_program(&self.program(part)?)?)
    }

    /// Kills a part with SIGKILL, and returns when it has ended.
    pub(super) fn kill(&self, part: Part) {
        self.control_plane.kill_program(part.name());
    }

    /// Stops a part gracefully, as a rollout does, and waits until it has ended.
    pub(super) async fn end(&self, part: Part) -> Result<(), SystemError> {
        let status = self.control_plane.end_program(part.name(), PATIENCE).await?;
        if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", part.name()).into()) }
    }

    fn program(&self, part: Part) -> Result<Program, SystemError> {
        let Addresses { simulator, extender, gate } = &self.addresses;
        let path = match part {
            Part::Simulator => &self.programs.simulator,
            Part::Agent => &self.programs.agent,
            Part::OperatorA | Part::OperatorB => &self.programs.operator,
            Part::Extender => &self.programs.extender,
        };
        let kubeconfig = self.kubeconfigs.get(&part.account()).ok_or("an account without a token")?;
        let program = Program::new(part.name(), path).variable("KUBECONFIG", kubeconfig.to_string_lossy());
        let metrics = "127.0.0.1:0";
        let control = format!("http://{gate}/control/{{node}}");
        Ok(match part {
            Part::Simulator => self.loaded(
                program.variable("SIM_FLEET", &self.fleet).variable("SIM_ADDR", simulator.to_string()),
            ),
            Part::Agent => program
                .variable("AGENT_MODE", "pool")
                .variable("POD_NAME", "joulie-agent-pool-0")
                .variable("POOL_NODE_SELECTOR", "joulie.io/managed=true,joulie.io/simulated=true")
                .variable("STATE_DIR", self.control_plane.folder().join("pool").to_string_lossy())
                .variable("TELEMETRY_CPU_SOURCE", "http")
                .variable("TELEMETRY_CPU_HTTP_ENDPOINT", format!("http://{simulator}/telemetry/{{node}}"))
                .variable("TELEMETRY_CPU_CONTROL", "http")
                .variable("TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT", &control)
                .variable("TELEMETRY_GPU_CONTROL", "http")
                .variable("TELEMETRY_GPU_CONTROL_HTTP_ENDPOINT", &control)
                .variable("METRICS_ADDR", metrics),
            Part::OperatorA | Part::OperatorB => self.planned(
                program
                    .variable("BUDGET_SITE_WATTS", self.limit.load(Ordering::Relaxed).to_string())
                    // More than any node of the fleet.
                    .variable("BUDGET_UNKNOWN_NODE_WATTS", "7000")
                    .variable("GPU_NODE_CPU_CAPS", "true")
                    .variable("METRICS_ADDR", metrics),
            ),
            Part::Extender => program
                .variable("EXTENDER_ADDR", extender.to_string())
                .variable("METRICS_ADDR", metrics)
                .variable("DRAIN_LINGER", "0s"),
        })
    }

    /// Adds the settings of the workload: pods of all families, more than there is room for, and batch work that waits.
    fn loaded(&self, program: Program) -> Program {
        let Some(seed) = self.workload else { return program };
        program
            .variable("SIM_SEED", seed.to_string())
            .variable("SIM_WORKLOAD", "200ms/60s")
            .variable("SIM_WORKLOAD_NAMESPACE", NAMESPACE)
            .variable("SIM_WORKLOAD_BACKLOG", "20")
    }

    /// Adds the settings for the choice of full-power nodes and for the election.
    fn planned(&self, program: Program) -> Program {
        let program = if self.swaps.load(Ordering::Relaxed) {
            program.variable("POLICY_TYPE", "rule_swap_v1").variable("RECONCILE_INTERVAL", SWAPS_EVERY)
        } else {
            // Only the limit may lower a node.
            program.variable("STATIC_HP_FRAC", "1")
        };
        let names = ["LEADER_LEASE_DURATION", "LEADER_RENEW_DEADLINE", "LEADER_RETRY_PERIOD"];
        let times = self.election.iter().flatten();
        names.into_iter().zip(times).fold(program, |program, (name, time)| program.variable(name, time))
    }

    /// Configures kube-scheduler with the extender.
    pub(super) fn schedule(&self) -> Result<(), SystemError> {
        let extender = Extender::new(&format!("http://{}", self.addresses.extender), NodeForm::Names)?;
        let scheduler = Scheduler::with(extender);
        Ok(tokio::task::block_in_place(|| self.control_plane.start_scheduler(&scheduler))?)
    }

    /// The leading process, and its name in the Lease. Names are random, and each process logs its own when it begins
    /// to lead. A killed process no longer leads, whatever the Lease says.
    pub(super) async fn leader(&self) -> Option<(Part, String)> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), rights::NAMESPACE);
        let holder = leases.get_opt("joulie-operator").await.ok()??.spec?.holder_identity?;
        let begins = format!("{holder} leads from now on");
        let leads = |part: &Part| {
            let from = self.logged.lock().unwrap_or_else(PoisonError::into_inner).get(part).copied();
            self.log(*part).get(from.unwrap_or_default()..).is_some_and(|log| log.contains(&begins))
        };
        Part::OPERATORS.into_iter().find(leads).map(|part| (part, holder))
    }

    fn log(&self, part: Part) -> String {
        let log = std::fs::read(self.control_plane.program_log_file(part.name())).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// A part that has ended unexpectedly.
    pub(super) fn ended(&self) -> Option<String> {
        Part::ALL.into_iter().find_map(|part| {
            let status = self.control_plane.program_ended(part.name()).filter(|status| !status.success())?;
            let log = self.control_plane.program_log(part.name());
            Some(format!("{} ended with {status}:\n{log}", part.name()))
        })
    }

    /// Copies the logs to this folder, because the folder of the control plane is removed.
    pub(super) fn keep_logs(&self, folder: &Path) -> Result<(), SystemError> {
        std::fs::create_dir_all(folder)?;
        for part in Part::ALL {
            let to = folder.join(format!("{}.log", part.name()));
            std::fs::copy(self.control_plane.program_log_file(part.name()), to)?;
        }
        Ok(())
    }
}
