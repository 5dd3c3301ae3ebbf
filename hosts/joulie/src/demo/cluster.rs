//! The demo's cluster: the API in memory, served to kubectl, and the programs that ship, each in a runtime of its
//! own. They know the same of each other as in a cluster: addresses, and objects of the API.
//!
//! Only the demo's times are set here: everything that takes minutes in a cluster takes seconds.

mod act;
mod broken;
mod parts;
mod tls;

pub(super) use act::SITE_BUDGET;

use super::act::POLICIES;
use super::fault::DemoFault;
use super::home::Home;
use super::host::Host;
use super::observe::{Observer, Probed, Watched};
use super::probe::probe;
use super::scheduler::{Extender, Scheduler};
use super::state::Placement;
use super::web::Web;
use embedded_api::{ApiOptions, EmbeddedApi, Serving, Tls, Token};
use host_kit::clock::{HostClock, Mono};
use host_kit::config::LiveConfig;
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::program::Context;
use host_kit::reflect::{Reflections, Row, Rows, WatchSource, reflect};
use host_kit::shutdown::{Stop, Tasks};
use kube::Client;
use parts::{ExtenderPorts, Part};
use power_units::Watts;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tls::DemoTls;
use tokio::sync::mpsc::UnboundedSender;

/// The namespace of Joulie's Leases and Events.
pub(super) const NAMESPACE: &str = "joulie-system";
/// The files of the programs in the folder of the demo.
pub(super) const FILES: [&str; 3] = [tls::CERTIFICATE, tls::KEY, parts::CONTROLLERS];
/// Any free port on the loopback address.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
/// How often the API says on a watch that nothing has changed: a minute elsewhere.
const BOOKMARKS: Duration = Duration::from_secs(3);

/// The data that every part of the demo receives.
#[derive(Clone)]
pub(super) struct DemoContext {
    api: EmbeddedApi,
    pub(super) clock: Arc<dyn HostClock>,
    pub(super) began: Mono,
    pub(super) budget: Watts,
    pub(super) seed: u64,
    policy: &'static str,
    /// Where the operator's other files and those of the extender are.
    folder: Option<PathBuf>,
    /// The operator's file of settings.
    settings: Option<PathBuf>,
    /// The certificate of the extender, if there was a place for it.
    tls: Option<Arc<DemoTls>>,
    /// The operator compares the agents' meters with another one.
    second_meter: bool,
}

impl DemoContext {
    /// An API that contains only Joulie's kinds.
    pub(super) fn new(
        clock: Arc<dyn HostClock>,
        began: Mono,
        budget: Watts,
        seed: u64,
    ) -> Result<Self, String> {
        let options = ApiOptions { bookmark_every: BOOKMARKS, ..ApiOptions::with(joulie_api::crd::all()) };
        let api = EmbeddedApi::new(&options).map_err(|bad| bad.to_string())?;
        let (policy, folder, settings, tls) = (POLICIES[0], None, None, None);
        Ok(Self { api, clock, began, budget, seed, policy, folder, settings, tls, second_meter: false })
    }

    /// The programs have their files here.
    pub(super) fn at_home(self, home: &Home) -> Self {
        Self { folder: home.folder(), settings: home.settings(), ..self }
    }

    /// Whom the scheduler trusts to be the extender.
    fn trusted(&self) -> Option<&Path> {
        self.tls.as_ref().map(|tls| tls.certificate.as_path())
    }

    /// A client with this user agent. It runs in the runtime of the caller.
    pub(super) fn client(&self, name: &str) -> Client {
        self.api.client_as(name)
    }

    /// The context with which a host is started.
    fn context(&self, name: &str, stop: Stop, config: LiveConfig) -> Context {
        Context { client: self.client(name), clock: self.clock.clone(), stop, logs: None, config }
    }
}

/// The running cluster.
pub(super) struct DemoCluster {
    demo: DemoContext,
    serving: Serving,
    hosts: BTreeMap<Part, Host>,
    simulator: Web,
    work: SocketAddr,
    /// Where each part shows its metrics, also after a restart.
    metrics: BTreeMap<Part, SocketAddr>,
    /// What is broken.
    broken: BTreeSet<DemoFault>,
    /// When another program last set limits.
    meddled: Duration,
}

impl DemoCluster {
    /// Serves the API to kubectl.
    pub(super) async fn serve(demo: &DemoContext, home: &Home) -> Result<Serving, String> {
        let served = |why: String| format!("the API cannot be served to kubectl: {why}");
        let tls = Tls::loopback().map_err(served)?;
        let token = format!("{:016x}{:016x}", chance(), chance());
        let serving = demo.api.serve(ANY_PORT, Some(tls), Token::new(&token)).await;
        let serving = serving.map_err(|error| served(error.to_string()))?;
        serving.write_kubeconfig(home.kubeconfig()).map_err(|error| served(error.to_string()))?;
        Ok(serving)
    }

    /// Starts all parts in the order of their dependencies.
    pub(super) async fn start(demo: DemoContext, serving: Serving) -> Result<Self, String> {
        let tls = demo.folder.as_deref().map(|folder| DemoTls::create(folder, demo.clock.clone()));
        let demo = DemoContext { tls: tls.transpose()?.map(Arc::new), ..demo };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        act::send(&demo.client("kubectl"), act::Verb::Create, "/api/v1/namespaces", &namespace).await?;
        act::limit(&demo.client("kubectl"), demo.budget, parts::RACKS).await?;
        let (simulator, telemetry) = parts::simulator(&demo).await?;
        let any = ExtenderPorts { work: ANY_PORT, metrics: ANY_PORT };
        let (extender, ports) = parts::extender(&demo, any).await?;
        let (operator, of_operator) = parts::operator(&demo, telemetry, ANY_PORT).await?;
        let (agent, of_agent) = parts::agent(&demo, telemetry).await?;
        let metrics = BTreeMap::from([
            (Part::Simulator, telemetry),
            (Part::Extender, ports.metrics),
            (Part::Operator, of_operator),
            (Part::Agent, of_agent),
        ]);
        let hosts = BTreeMap::from([
            (Part::Simulator, simulator),
            (Part::Extender, extender),
            (Part::Operator, operator),
            (Part::Agent, agent),
        ]);
        act::shop(&demo.client("kubectl")).await?;
        let simulator = Web::at("simulator", telemetry, None)?;
        let (broken, meddled) = (BTreeSet::new(), Duration::ZERO);
        Ok(Self { demo, serving, hosts, simulator, work: ports.work, metrics, broken, meddled })
    }

    /// Starts the scheduler and the watches of the view.
    pub(super) fn watch(
        &self,
        placed: UnboundedSender<Placement>,
        (tasks, stop): (&mut Tasks, &Stop),
    ) -> Result<Observer, String> {
        let extender = Extender::at(Web::at("extender", self.work, self.demo.trusted())?);
        let mut watcher = Watcher { demo: &self.demo, tasks, stop };
        let scheduler = Scheduler {
            client: self.demo.client("kube-scheduler"),
            extender: extender.clone(),
            nodes: watcher.rows("kube-scheduler", "/api/v1/nodes"),
            pods: watcher.rows("kube-scheduler", "/api/v1/pods"),
            clock: self.demo.clock.clone(),
            began: self.demo.began,
            placed,
        };
        let group = |plural: &str| format!("/apis/joulie.io/v1alpha1/{plural}");
        let watched = Watched {
            machines: watcher.rows("joulie-demo", "/api/v1/nodes"),
            profiles: watcher.rows("joulie-demo", &group("nodepowerprofiles")),
            twins: watcher.rows("joulie-demo", &group("nodetwins")),
            grants: watcher.rows("joulie-demo", &group("nodepowergrants")),
            hardware: watcher.rows("joulie-demo", &group("nodehardwares")),
            pods: watcher.rows("joulie-demo", "/api/v1/pods"),
            workloads: watcher.rows("joulie-demo", &group("workloadprofiles")),
            limits: watcher.rows("joulie-demo", &group("powerbudgets")),
            leases: watcher
                .rows("joulie-demo", &format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")),
        };
        let probed = Arc::new(Mutex::new(Probed::default()));
        let asked = (extender, self.simulator.clone());
        tasks.spawn("probe", probe(asked, watched.machines.clone(), probed.clone(), stop.clone()));
        tasks.spawn("scheduler", scheduler.run(stop.clone()));
        let time = (self.demo.clock.clone(), self.demo.began);
        Ok(Observer::new(watched, probed, time, Some(self.demo.budget)))
    }

    /// Where the metrics of each part are, by the name of its job.
    pub(super) fn metrics(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.metrics.iter().map(|(part, address)| (part.job(), *address))
    }

    /// Why a part has ended without a request.
    pub(super) fn failure(&mut self) -> Option<String> {
        self.hosts.values_mut().find_map(Host::failure)
    }

    /// Stops everything.
    pub(super) async fn stop(self) {
        let Self { serving, hosts, .. } = self;
        // Stop the API last, because the hosts may write while they stop.
        let ends: Vec<_> = hosts.into_values().map(|host| tokio::spawn(host.stop())).collect();
        for end in ends {
            // A host whose stop failed has ended as well.
            let _ended = end.await;
        }
        serving.stop().await;
    }
}

/// A random number that cannot be guessed during a demo. The token keeps other users of this machine out.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Creates reflectors.
struct Watcher<'w> {
    demo: &'w DemoContext,
    tasks: &'w mut Tasks,
    stop: &'w Stop,
}

impl Watcher<'_> {
    fn rows<R: Row>(&mut self, agent: &str, path: &str) -> Rows<R> {
        let source = WatchSource { path: path.to_owned(), labels: None, fields: None };
        // The metrics of the demo's own watches are not exported.
        let mut metrics = MetricsBuilder::of(&BuildInfo { component: "demo", version: "", revision: "" });
        let reflections = Reflections::register(metrics.registry());
        let (client, clock) = (self.demo.client(agent), self.demo.clock.clone());
        let (rows, follow) = reflect(&client, source, &reflections, clock, self.stop.clone());
        self.tasks.spawn(R::KIND, follow);
        rows
    }
}
