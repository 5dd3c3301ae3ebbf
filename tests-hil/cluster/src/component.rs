//! The four components and their flags. The flags are those that a cluster with RBAC and certificates needs. None of
//! them changes the decisions of the API server, the scheduler or the controllers.

use crate::error::ClusterError;
use crate::folder::Folder;
use crate::pki::{MutualTls, PemPair};
use crate::ports::Ports;
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A part of the control plane, in the order in which they are stopped: an API server without its etcd hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Namespaces, garbage, ServiceAccounts, node life cycle, deployments and jobs.
    ControllerManager,
    /// Binds pods.
    Scheduler,
    /// The API.
    ApiServer,
    /// The store of the API server.
    Etcd,
}

impl Component {
    /// The name of its program and its log, and in errors.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::ApiServer => "kube-apiserver",
            Self::Etcd => "etcd",
        }
    }

    /// The path of its readiness endpoint.
    pub(crate) const fn ready_path(self) -> &'static str {
        match self {
            Self::ControllerManager | Self::Scheduler => "/healthz",
            Self::ApiServer => "/readyz",
            Self::Etcd => "/health",
        }
    }

    pub(crate) const fn port(self, ports: &Ports) -> u16 {
        match self {
            Self::ControllerManager => ports.controller_manager,
            Self::Scheduler => ports.scheduler,
            Self::ApiServer => ports.api_server,
            Self::Etcd => ports.etcd,
        }
    }

    pub(crate) fn flags(self, folder: &Folder, ports: &Ports) -> Vec<String> {
        let flags = match self {
            Self::ControllerManager => controller_manager(folder),
            Self::Scheduler => scheduler(folder),
            Self::ApiServer => api_server(folder, ports),
            Self::Etcd => return etcd(folder, ports),
        };
        let serving = [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port(ports)),
            file(folder, "tls-cert-file", "serving.crt"),
            file(folder, "tls-private-key-file", "serving.key"),
        ];
        flags.into_iter().chain(serving).collect()
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn file(folder: &Folder, flag: &str, name: &str) -> String {
    format!("--{flag}={}", folder.join(name).display())
}

fn etcd(folder: &Folder, ports: &Ports) -> Vec<String> {
    let (clients, peers) = (ports.etcd, ports.etcd_peer);
    vec![
        "--name=etcd".to_owned(),
        file(folder, "data-dir", "etcd"),
        // The data is discarded anyway, and flushing the disk would be the slowest part of a start.
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls=https://127.0.0.1:{clients}"),
        format!("--advertise-client-urls=https://127.0.0.1:{clients}"),
        format!("--listen-peer-urls=https://127.0.0.1:{peers}"),
        format!("--initial-advertise-peer-urls=https://127.0.0.1:{peers}"),
        format!("--initial-cluster=etcd=https://127.0.0.1:{peers}"),
        file(folder, "cert-file", "etcd.crt"),
        file(folder, "key-file", "etcd.key"),
        file(folder, "trusted-ca-file", "etcd-ca.crt"),
        "--client-cert-auth".to_owned(),
        file(folder, "peer-cert-file", "etcd.crt"),
        file(folder, "peer-key-file", "etcd.key"),
        file(folder, "peer-trusted-ca-file", "etcd-ca.crt"),
        "--peer-client-cert-auth".to_owned(),
    ]
}

fn api_server(folder: &Folder, ports: &Ports) -> Vec<String> {
    vec![
        format!("--etcd-servers=https://127.0.0.1:{}", ports.etcd),
        file(folder, "etcd-cafile", "etcd-ca.crt"),
        file(folder, "etcd-certfile", "etcd-client.crt"),
        file(folder, "etcd-keyfile", "etcd-client.key"),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        file(folder, "client-ca-file", "ca.crt"),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        file(folder, "service-account-key-file", "service-accounts.pub"),
        file(folder, "service-account-signing-key-file", "service-accounts.key"),
    ]
}

fn controller_manager(folder: &Folder) -> Vec<String> {
    vec![
        file(folder, "kubeconfig", "controller-manager.kubeconfig"),
        // Every controller uses its own ServiceAccount, as in real clusters.
        "--use-service-account-credentials=true".to_owned(),
        file(folder, "service-account-private-key-file", "service-accounts.key"),
        file(folder, "root-ca-file", "ca.crt"),
        // With the default of 20 requests a second, tests would have to wait.
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=2000".to_owned(),
        "--leader-elect=false".to_owned(),
    ]
}

fn scheduler(folder: &Folder) -> Vec<String> {
    vec![file(folder, "config", SCHEDULER_FILE)]
}

/// The configuration file of kube-scheduler.
pub(crate) const SCHEDULER_FILE: &str = "scheduler.json";

/// The configuration of kube-scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduler {
    /// The extenders, in the order in which they are asked.
    pub extenders: Vec<Extender>,
    /// The percentage of fitting nodes that are scored; `None` for kube-scheduler's default.
    pub percentage_of_nodes_to_score: Option<u8>,
    /// Extenders as a file for kube-scheduler has them, which are asked after the others.
    pub written: Vec<Value>,
}

impl Scheduler {
    /// The default configuration.
    #[must_use]
    pub const fn plain() -> Self {
        Self { extenders: Vec::new(), percentage_of_nodes_to_score: None, written: Vec::new() }
    }

    /// A configuration with one extender.
    #[must_use]
    pub fn with(extender: Extender) -> Self {
        Self { extenders: vec![extender], ..Self::plain() }
    }

    /// The configuration file; JSON is YAML.
    pub(crate) fn file(&self, kubeconfig: &std::path::Path) -> Value {
        let mut file = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            // With the default of 50 requests a second, a test of throughput would measure that limit.
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 10000},
            "leaderElection": {"leaderElect": false},
            "extenders": self.extenders.iter().map(Extender::stanza).chain(self.written.iter().cloned()).collect::<Vec<_>>(),
        });
        if let Some(percentage) = self.percentage_of_nodes_to_score {
            file["percentageOfNodesToScore"] = json!(percentage);
        }
        file
    }
}

/// The form in which kube-scheduler sends the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeForm {
    /// Their names (`nodeCacheCapable: true`).
    Names,
    /// Whole objects.
    Full,
}

/// An extender in kube-scheduler's configuration. The verbs are appended to the URL as `/filter` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    url: String,
    /// What kube-scheduler shows it, and by which authority it knows it.
    tls: Option<(PathBuf, PemPair)>,
    /// The form of the nodes that it receives.
    pub nodes: NodeForm,
    /// Its scores are multiplied by this weight and by 10.
    pub weight: u32,
    /// Whether pods are scheduled without it if it does not answer.
    pub ignorable: bool,
    /// Whether it binds pods.
    pub binds: bool,
    /// Whether it is asked about the victims of a preemption.
    pub preempts: bool,
    /// It is asked only about pods with these resources; if empty, about all pods.
    pub managed_resources: Vec<String>,
    /// How long kube-scheduler waits for an answer.
    pub timeout: Duration,
}

impl Extender {
    /// An extender that filters and prioritizes, with weight 1, a timeout of 5 s, and not ignorable.
    ///
    /// # Errors
    /// If the URL is not plain HTTP, which is enough on loopback.
    pub fn new(url: &str, nodes: NodeForm) -> Result<Self, ClusterError> {
        let parsed: Result<http::Uri, _> = url.parse();
        let fine = parsed.is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
        if !fine {
            return Err(ClusterError::Asked(format!(
                "the extender's URL is {url:?}; http://HOST:PORT[/PATH] is accepted"
            )));
        }
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            tls: None,
            nodes,
            weight: 1,
            ignorable: false,
            binds: false,
            preempts: false,
            managed_resources: Vec::new(),
            timeout: Duration::from_secs(5),
        })
    }

    /// The same over mutual TLS.
    #[must_use]
    pub fn over_tls(self, tls: &MutualTls) -> Self {
        let url = self.url.replacen("http://", "https://", 1);
        Self { url, tls: Some((tls.ca.clone(), tls.client.clone())), ..self }
    }

    fn stanza(&self) -> Value {
        let managed: Vec<_> = self
            .managed_resources
            .iter()
            .map(|name| json!({"name": name, "ignoredByScheduler": false}))
            .collect();
        let mut stanza = json!({
            "urlPrefix": self.url,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": self.weight,
            "nodeCacheCapable": self.nodes == NodeForm::Names,
            "ignorable": self.ignorable,
            "httpTimeout": format!("{}ms", self.timeout.as_millis()),
            "managedResources": managed,
        });
        if let Some((ca, PemPair { certificate, key })) = &self.tls {
            stanza["enableHTTPS"] = json!(true);
            stanza["tlsConfig"] = json!({"caFile": ca, "certFile": certificate, "keyFile": key});
        }
        if self.binds {
            stanza["bindVerb"] = json!("bind");
        }
        if self.preempts {
            stanza["preemptVerb"] = json!("preempt");
        }
        stanza
    }
}
