//! One control plane, which starts completely or not at all, and its handle.
//!
//! All functions may be called inside or outside an asynchronous runtime. Functions that return a client or call the
//! API are `async`; functions that start and stop processes block their thread for seconds.

mod accounts;

use crate::assets::{Binaries, Environment};
use crate::component::{Component, SCHEDULER_FILE, Scheduler};
use crate::error::ClusterError;
use crate::folder::{self, Folder};
use crate::kubeconfig::{self, Login};
use crate::pki;
use crate::ports::Ports;
use crate::processes::{ProcessKeeper, Start, Who, log_file};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How often a component's readiness is checked.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(50);
/// The most attempts to start if another process takes one of the ports.
const ATTEMPTS_MAX: u32 = 3;
const AUDIT_LOG: &str = "audit.log";

/// What to start. etcd and the API server are always included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// The environment in which binaries are searched.
    pub environment: Environment,
    /// The folder for all files. It must not exist yet, and is removed at the end; `None` for a temporary folder.
    pub folder: Option<PathBuf>,
    /// The controllers: ServiceAccounts of new namespaces, garbage, node life cycle, deployments and jobs.
    pub controller_manager: bool,
    /// `None` leaves every pod pending; [`ControlPlane::start_scheduler`] can start it later.
    pub scheduler: Option<Scheduler>,
    /// The API server logs the requests of this group's members to [`ControlPlane::audit_log`].
    pub audited_group: Option<String>,
    /// Additional flags. They come last, so they take precedence.
    pub flags: Vec<(Component, String)>,
    /// How long each component may take to become ready.
    pub deadline: Duration,
}

impl ControlPlaneOptions {
    /// All four components with their defaults.
    #[must_use]
    pub fn whole() -> Self {
        Self { controller_manager: true, scheduler: Some(Scheduler::plain()), ..Self::api_only() }
    }

    /// etcd and the API server, which is enough for tests of the API alone. Namespaces then have no default
    /// ServiceAccount, so pods are refused unless their account is created by hand.
    #[must_use]
    pub fn api_only() -> Self {
        Self {
            environment: Environment::of_this_process(),
            folder: None,
            controller_manager: false,
            scheduler: None,
            audited_group: None,
            flags: Vec::new(),
            deadline: Duration::from_secs(90),
        }
    }
}

/// A running control plane. Dropping it ends every process and removes the folder.
pub struct ControlPlane {
    binaries: Binaries,
    flags: Vec<(Component, String)>,
    pub(crate) deadline: Duration,
    ports: Ports,
    admin: PathBuf,
    // Allows one start or stop at a time.
    changing: Mutex<()>,
    // The processes end before their folder is removed.
    pub(crate) keeper: ProcessKeeper,
    pub(crate) folder: Folder,
}

impl ControlPlane {
    /// Starts what the options ask for, and returns when it is ready.
    ///
    /// # Errors
    /// [`ClusterError::Absent`] if there are no binaries and no way to build them; any other error, with the last
    /// lines of the component's log.
    pub fn start(options: &ControlPlaneOptions) -> Result<Self, ClusterError> {
        let mut needed = vec![Component::Etcd, Component::ApiServer];
        if options.controller_manager {
            needed.push(Component::ControllerManager);
        }
        if options.scheduler.is_some() {
            needed.push(Component::Scheduler);
        }
        let binaries = Binaries::obtain(&options.environment, &needed)?;
        with_free_ports(Ports::pick, |ports| Self::bring_up(options, binaries.clone(), ports))
    }

    fn bring_up(
        options: &ControlPlaneOptions,
        binaries: Binaries,
        ports: Ports,
    ) -> Result<Self, ClusterError> {
        let folder = match &options.folder {
            Some(path) => Folder::at(path)?,
            None => Folder::temporary()?,
        };
        pki::write(&folder)?;
        let by_certificate =
            |who: &str| kubeconfig::write(&folder, who, ports.api_server, "ca", &Login::Certificate(who));
        let admin = by_certificate(pki::ADMIN.file)?;
        by_certificate(pki::CONTROLLER_MANAGER.file)?;
        by_certificate(pki::SCHEDULER.file)?;
        kubeconfig::write(&folder, "etcd", ports.etcd, "etcd-ca", &Login::Certificate("etcd-client"))?;
        let mut flags = Vec::new();
        if let Some(group) = &options.audited_group {
            let policy = folder.write("audit-policy.json", &format!("{:#}\n", audit_policy(group)))?;
            let file =
                |flag: &str, path: &Path| (Component::ApiServer, format!("--{flag}={}", path.display()));
            flags.push(file("audit-policy-file", &policy));
            flags.push(file("audit-log-path", &folder.path().join(AUDIT_LOG)));
            // The log of a suite must stay in one file.
            flags.push((Component::ApiServer, "--audit-log-maxsize=2000".to_owned()));
        }
        flags.extend(options.flags.iter().cloned());
        let control_plane = Self {
            binaries,
            flags,
            deadline: options.deadline,
            ports,
            admin,
            changing: Mutex::new(()),
            keeper: ProcessKeeper::start(folder.path())?,
            folder,
        };
        // The API server waits for its etcd.
        control_plane.spawn(Component::Etcd)?;
        control_plane.spawn(Component::ApiServer)?;
        control_plane.await_ready(&[Component::Etcd, Component::ApiServer])?;
        let mut rest = Vec::new();
        if options.controller_manager {
            control_plane.spawn(Component::ControllerManager)?;
            rest.push(Component::ControllerManager);
        }
        if let Some(scheduler) = &options.scheduler {
            control_plane.write_scheduler_file(scheduler)?;
            control_plane.spawn(Component::Scheduler)?;
            rest.push(Component::Scheduler);
        }
        control_plane.await_ready(&rest)?;
        Ok(control_plane)
    }

    /// The kubeconfig of an administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// The folder with keys, logs and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One JSON object for each request of the audited group, if there is one.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join(AUDIT_LOG)
    }

    /// The last lines of a component's log.
    #[must_use]
    pub fn log(&self, component: Component) -> String {
        folder::tail(&log_file(self.folder.path(), &Who::Component(component)))
    }

    /// The process id of a running component.
    #[must_use]
    pub fn pid(&self, component: Component) -> Option<u32> {
        self.keeper.pid(Who::Component(component))
    }

    /// A client of an administrator. It belongs to the runtime on which it is created.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client, ClusterError> {
        kubeconfig::client(&self.admin).await
    }

    /// Creates a namespace, and waits until pods can be created in it.
    ///
    /// # Errors
    /// When the API refuses it, or its default ServiceAccount does not appear.
    pub async fn namespace(&self, name: &str) -> Result<(), ClusterError> {
        let client = self.client().await?;
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(ClusterError::api("making a namespace"))?;
        if self.pid(Component::ControllerManager).is_none() {
            return Ok(());
        }
        let appeared = until(|| async { has_default_account(&client, name).await });
        tokio::time::timeout(self.deadline, appeared).await.map_err(|_| {
            self.not_ready(Component::ControllerManager, "no default ServiceAccount in a namespace")
        })
    }

    /// Compacts etcd up to the current revision, and returns that revision. With the flag `--watch-cache=false` the
    /// API server then answers a watch of an older revision with 410 Gone. With its cache it keeps answering from
    /// that cache until it is restarted ([`Self::stop`], [`Self::run`]).
    ///
    /// # Errors
    /// If etcd refuses.
    pub async fn compact(&self) -> Result<i64, ClusterError> {
        let etcd = kubeconfig::client(&self.folder.join("etcd.kubeconfig")).await?;
        // "AA==" is the key of one zero byte, which does not exist; only the header of the answer is needed.
        let state = ask_etcd(&etcd, "/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = state["header"]["revision"].as_str().and_then(|text| text.parse::<i64>().ok());
        let revision =
            revision.ok_or_else(|| ClusterError::Asked(format!("etcd named no revision: {state}")))?;
        ask_etcd(&etcd, "/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true}))
            .await?;
        Ok(revision)
    }

    /// Kills a component; the others keep running.
    pub fn stop(&self, component: Component) {
        let _one_at_a_time = self.changing.lock();
        self.keeper.kill(Who::Component(component));
    }

    /// Starts a stopped component or restarts a running one, at the same port, and waits until it is ready.
    ///
    /// # Errors
    /// If it is not in the options, or does not become ready.
    pub fn run(&self, component: Component) -> Result<(), ClusterError> {
        let _one_at_a_time = self.changing.lock();
        self.spawn(component)?;
        self.await_ready(&[component])
    }

    /// Starts kube-scheduler with a configuration, and replaces a running one. This is for an extender that needs the
    /// kubeconfig before it can answer.
    ///
    /// # Errors
    /// If its binary is not among those of the options, or it does not become ready.
    pub fn start_scheduler(&self, scheduler: &Scheduler) -> Result<(), ClusterError> {
        self.write_scheduler_file(scheduler)?;
        self.run(Component::Scheduler)
    }

    fn write_scheduler_file(&self, scheduler: &Scheduler) -> Result<(), ClusterError> {
        let file = scheduler.file(&self.folder.join("scheduler.kubeconfig"));
        self.folder.write(SCHEDULER_FILE, &format!("{file:#}\n")).map(drop)
    }

    fn spawn(&self, component: Component) -> Result<(), ClusterError> {
        let mut flags = component.flags(&self.folder, &self.ports);
        flags.extend(self.flags.iter().filter(|(of, _)| *of == component).map(|(_, flag)| flag.clone()));
        let program = self.binaries.program(component)?;
        let start = Start { program, arguments: flags, environment: BTreeMap::new() };
        self.keeper.spawn(Who::Component(component), start)
    }

    /// Waits until all of these are ready, or returns the error of the first that is not.
    fn await_ready(&self, components: &[Component]) -> Result<(), ClusterError> {
        let wait = async {
            for &component in components {
                self.ready(component).await?;
            }
            Ok(())
        };
        block_on(wait)?
    }

    async fn ready(&self, component: Component) -> Result<(), ClusterError> {
        let mut answer = "none".to_owned();
        let asking = async {
            loop {
                match self.is_ready(component).await {
                    Ok(()) => return Ok(()),
                    Err(error) => answer = error.to_string(),
                }
                if let Some((ended, status)) = self.keeper.ended() {
                    return Err(ClusterError::Ended { component: ended, status, log: self.log(ended) });
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
        };
        match tokio::time::timeout(self.deadline, asking).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.not_ready(component, &answer)),
        }
    }

    async fn is_ready(&self, component: Component) -> Result<(), ClusterError> {
        let file = if component == Component::Etcd {
            self.folder.join("etcd.kubeconfig")
        } else {
            self.admin.clone()
        };
        let client = kubeconfig::client_at(&file, component.port(&self.ports)).await?;
        let request = http::Request::get(component.ready_path())
            .body(Vec::new())
            .map_err(|error| ClusterError::Asked(error.to_string()))?;
        client.request_text(request).await.map_err(ClusterError::api("asking whether it is ready"))?;
        if component == Component::ControllerManager
            && !has_default_account(&kubeconfig::client(&self.admin).await?, "default").await
        {
            return Err(ClusterError::Asked("the namespace default has no ServiceAccount yet".to_owned()));
        }
        Ok(())
    }

    fn not_ready(&self, component: Component, answer: &str) -> ClusterError {
        ClusterError::NotReady {
            component,
            waited: self.deadline,
            answer: answer.to_owned(),
            log: self.log(component),
        }
    }
}

/// Who asked for what and with which result, but no content of objects.
fn audit_policy(group: &str) -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "userGroups": [group]}, {"level": "None"}],
    })
}

async fn has_default_account(client: &Client, namespace: &str) -> bool {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    matches!(accounts.get_opt("default").await, Ok(Some(_)))
}

async fn until<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    while !is_so().await {
        tokio::time::sleep(PROBE_EVERY).await;
    }
}

/// Sends a request through etcd's JSON gateway.
async fn ask_etcd(etcd: &Client, path: &str, body: &Value) -> Result<Value, ClusterError> {
    let request = http::Request::post(path)
        .body(body.to_string().into_bytes())
        .map_err(|error| ClusterError::Asked(error.to_string()))?;
    etcd.request(request).await.map_err(ClusterError::api("asking etcd"))
}

/// Tries again with other ports if another process took one of them.
fn with_free_ports<T>(
    mut pick: impl FnMut() -> Result<Ports, ClusterError>,
    mut bring_up: impl FnMut(Ports) -> Result<T, ClusterError>,
) -> Result<T, ClusterError> {
    let mut attempt = 1;
    loop {
        match bring_up(pick()?) {
            Err(error) if error.is_lost_port() && attempt < ATTEMPTS_MAX => attempt += 1,
            outcome => return outcome,
        }
    }
}

/// Waits for a future on a separate thread: the caller may be inside a runtime, which must not be entered twice.
fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, ClusterError> {
    let on_its_own = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| runtime.block_on(future)).map_err(ClusterError::system("starting a runtime"))
    };
    std::thread::scope(|scope| match scope.spawn(on_its_own).join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests;
