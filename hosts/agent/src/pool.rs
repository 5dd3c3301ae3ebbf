//! Mode pool: many nodes over HTTP. Each node has a task of its own, so that one that does not answer delays no other.
//!
//! A node becomes a member when it is selected or under a grant, and belongs to this replica's shard. It leaves when no
//! grant is in force and its Node object is gone, or it is not selected any more and its originals are restored.
//! Watches show which nodes exist; the disk shows which of them were under a grant before the start.

mod engine;
pub(crate) mod http;
mod remote;
mod wire;

use crate::front::armed::ArmedNow;
use crate::front::events;
use crate::front::grants::Stands;
use crate::front::inputs::{ByNode, Inputs, Watched};
use crate::front::node::{Front, Shared};
use crate::front::rows::NodeRow;
use crate::front::watches::Confirmed;
use crate::host;
use crate::machine::{Control, View};
use crate::route::{Base, Profiles, Standing};
use crate::settings::{AgentTarget, Floors, OnExit, Settings, Shards};
use host_kit::clock::micros;
use host_kit::health::Heartbeat;
use host_kit::http_client::TrustError;
use host_kit::shutdown::Stop;
use joulie_api::labels::node;
use joulie_core::node::backend::BackendLaw;
use joulie_core::node::cap::CapReport;
use joulie_core::node::engine::{EngineLaws, NodeParts};
use joulie_core::node::gpu_cap::GpuLaw;
use kube::core::SelectorExt;
use node_kit::{Config, Desire, HardwareSources, NodeAccess};
use planner::catalog::Catalog;
use remote::{Common, Hints, Remote};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A pool that can be run.
pub(crate) struct Pool {
    settings: Settings,
    shards: Shards,
    routes: Routes,
    common: Arc<Common>,
    shared: Arc<Shared>,
    confirmed: Confirmed,
    beat: Heartbeat,
    members: BTreeMap<String, Member>,
    tasks: JoinSet<()>,
    /// The nodes whose grants were on disk at the start, until they are members.
    kept: Vec<String>,
    /// Whether the warning that no grant is kept was logged.
    said: bool,
}

struct Member {
    inputs: watch::Sender<Inputs>,
    views: watch::Receiver<Option<View>>,
    remote: Remote,
    route: Arc<Standing>,
    /// Dropped when the member leaves, which ends its task.
    _stays: tokio::sync::oneshot::Sender<()>,
}

/// Waits this long, so that changes that come together are handled together.
const TOGETHER: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long to wait at the end for the originals to be restored.
const RESTORE_WITHIN: Duration = Duration::from_secs(10);

/// Why the pool cannot be created.
#[derive(Debug)]
pub enum PoolError {
    /// TLS cannot be set up.
    Tls(TrustError),
    /// The period is not valid.
    Period(node_kit::ConfigError),
}

impl std::fmt::Display for PoolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tls(error @ TrustError::File { .. }) => write!(f, "TELEMETRY_HTTP_CA_FILE={error}"),
            Self::Tls(error @ TrustError::System(_)) => write!(
                f,
                "an endpoint has TLS, and {error}; \
                 set TELEMETRY_HTTP_CA_FILE to a file with those of the endpoints"
            ),
            Self::Tls(error @ TrustError::Library(_)) => error.fmt(f),
            Self::Period(error) => write!(f, "RECONCILE_INTERVAL: {error}"),
        }
    }
}

/// Which nodes a pool has, and how it reaches them.
pub(crate) struct PoolNodes {
    pub(crate) routes: Routes,
    pub(crate) shards: Shards,
    pub(crate) http: Arc<http::Http>,
}

/// Who says through what a node is reached.
pub(crate) enum Routes {
    /// The pool, for each of its nodes.
    Each(Box<Base>),
    /// Somebody else, for the only one.
    One(watch::Receiver<Arc<Standing>>),
}

impl Pool {
    /// Creates a pool for the nodes of these shards.
    pub(crate) fn new(
        settings: &Settings,
        PoolNodes { routes, shards, http }: PoolNodes,
        shared: Arc<Shared>,
        catalog: Catalog,
        confirmed: Confirmed,
        beat: Heartbeat,
    ) -> Result<Self, PoolError> {
        let common = Arc::new(Common {
            http,
            laws: laws(settings).map_err(PoolError::Period)?,
            period: settings.period,
            clock: shared.clock.clone(),
            catalog,
        });
        let settings = settings.clone();
        let (members, tasks) = (BTreeMap::new(), JoinSet::new());
        let kept = kept_nodes(&settings);
        let said = false;
        Ok(Self { settings, shards, routes, common, shared, confirmed, beat, members, tasks, kept, said })
    }

    pub(crate) fn beat(&self) -> Heartbeat {
        self.beat.clone()
    }

    /// Runs until asked to stop, or until the watches have ended.
    pub(crate) async fn run(&mut self, mut watched: Watched, stop: Stop) {
        loop {
            self.beat.beat(self.common.clock.mono());
            self.look(&watched);
            let mark = self.confirmed.mark(self.common.clock.mono());
            for member in self.members.values() {
                if let Some(mark) = mark {
                    member.remote.renewed(mark);
                }
            }
            // The order delays nothing: few tasks end, and after each event everything is looked at.
            tokio::select! {
                biased;
                () = stop.requested() => break,
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                alive = watched.changed() => if !alive { return },
                () = self.routes.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
        if self.settings.on_exit == OnExit::Restore {
            self.restore().await;
        }
        self.tasks.shutdown().await;
    }

    /// Ends the work for all nodes, so that no request of it is sent any more.
    pub(crate) async fn leave(mut self) {
        self.tasks.shutdown().await;
    }

    /// Updates the members.
    fn look(&mut self, watched: &Watched) {
        self.say_what_is_kept(watched);
        let all = watched.by_node();
        let there: BTreeMap<&str, &NodeRow> = all.nodes().collect();
        let (shards, shared) = (self.shards, self.shared.clone());
        let selected = |row: &NodeRow| shared.selector.matches(&row.labels);
        // Neither a label nor a missing Node object releases a node from its grant.
        let kept = std::mem::take(&mut self.kept);
        let nodes = there.iter().filter(|(_, row)| selected(row)).map(|(name, _)| *name);
        for name in nodes.chain(all.granted()).chain(kept.iter().map(String::as_str)) {
            if shards.own(name) && !self.members.contains_key(name) {
                let member = self.join(name);
                self.members.insert(name.to_owned(), member);
            }
        }
        // First of all: nothing is desired of a machine that is not the node's any more.
        for (name, member) in &mut self.members {
            member.follow(name, &self.routes, &all, &self.shared);
        }
        let synced = watched.nodes.is_synced();
        self.members.retain(|name, member| {
            let row = there.get(name.as_str());
            let stays = match row {
                _ if !synced => true,
                None => all.is_granted(name) || member.is_granted(),
                Some(row) => selected(row) || all.is_granted(name) || !member.is_free(),
            };
            if stays {
                let inputs = all.of(name);
                member.inputs.send_if_modified(|last| {
                    let changed = *last != inputs;
                    if let Some(row) = row.filter(|_| changed) {
                        member.remote.hint(hints(row, selected(row)));
                    }
                    *last = inputs;
                    changed
                });
            } else {
                tracing::info!(node = name, "the node leaves the pool");
                shared.metrics.forget(name);
                shared.metrics.forget_routes(name);
            }
            stays
        });
    }

    /// Warns once if no grant is kept on disk although there can be grants: a start without the API then knows none.
    fn say_what_is_kept(&mut self, watched: &Watched) {
        if self.settings.state.is_none() && !self.said && watched.grants.is_synced() {
            self.said = true;
            tracing::warn!(
                "STATE_DIR is not set: no grant is kept on disk, so a pool that starts anew while the API server is \
                 away, or after a grant's object was deleted, holds no node to it"
            );
        }
    }

    fn join(&mut self, name: &str) -> Member {
        let lease = host::lease(&self.settings.lease, name);
        let stands = self.settings.kept_grant(name).as_deref().map_or(Stands::Nothing, Stands::of_file);
        let desire = stands.over(Desire::UNKNOWN, &ArmedNow::default());
        let route = match &self.routes {
            Routes::Each(base) => Arc::new(base.start()),
            Routes::One(route) => route.borrow().clone(),
        };
        let (mut task, remote, views) =
            remote::open(name, self.common.clone(), (desire, route.clone()), lease);
        let (inputs, seen) = watch::channel(Inputs::default());
        let front = Front {
            node: name.to_owned(),
            shared: self.shared.clone(),
            control: Arc::new(remote.clone()),
            http: self.common.http.clone(),
            inputs: seen,
            views: views.clone(),
            stands,
            kept: self.settings.kept_grant(name),
        };
        let (stays, leaves) = tokio::sync::oneshot::channel::<()>();
        self.tasks.spawn(async move {
            // None of these ever ends while the node stays, so each is polled every time.
            tokio::select! {
                biased;
                _ = leaves => {}
                () = task.run() => {}
                // The front ends with its inputs; the machine is still needed to restore originals.
                () = async { front.run().await; std::future::pending().await } => {}
            }
        });
        Member { inputs, views, remote, route, _stays: stays }
    }

    /// Restores the originals of all members, as far as time allows. The end of a process does not end a grant.
    async fn restore(&mut self) {
        let granted = self.members.values().filter(|member| member.is_granted()).count();
        if granted > 0 {
            tracing::warn!("{granted} nodes keep their limits: ON_EXIT=restore does not end their grants");
        }
        self.members.retain(|_, member| !member.is_granted());
        for member in self.members.values_mut() {
            // Without inputs the front ends, and does not change this desire any more.
            let (nowhere, _) = watch::channel(Inputs::default());
            member.inputs = nowhere;
            member.remote.desire(Desire::GONE);
        }
        let all = async {
            for member in self.members.values_mut() {
                let mut views = member.views.clone();
                let _free = views.wait_for(|view| view.as_ref().is_some_and(view_is_free)).await;
            }
        };
        if tokio::time::timeout(RESTORE_WITHIN, all).await.is_err() {
            let left = self.members.values().filter(|member| !member.is_free()).count();
            tracing::error!("the originals of {left} nodes are not restored");
        }
    }
}

impl Routes {
    /// Waits for a change that is not one of the watches.
    async fn changed(&mut self) {
        match self {
            Self::Each(_) => std::future::pending().await,
            Self::One(route) => {
                // Whoever says it lives as long as the pool.
                if route.changed().await.is_err() {
                    std::future::pending().await
                }
            }
        }
    }
}

impl Member {
    /// Takes in through what the node is reached now.
    fn follow(&mut self, name: &str, routes: &Routes, all: &ByNode, shared: &Shared) {
        let route = match routes {
            Routes::Each(base) => {
                let profiles = all.routes(name);
                let route = base.choose(name, &profiles, &self.route);
                if route == *self.route {
                    return;
                }
                tell_route(name, (&self.route, &route), &profiles, shared);
                Arc::new(route)
            }
            Routes::One(route) => route.borrow().clone(),
        };
        self.route = route.clone();
        self.remote.set_route(route);
    }

    /// Whether the member is under a grant, or was until its last step.
    fn is_granted(&self) -> bool {
        let before = self.views.borrow().as_ref().is_some_and(|view| view.desire.grant.is_some());
        before || self.remote.is_granted()
    }

    fn is_free(&self) -> bool {
        self.views.borrow().as_ref().is_none_or(view_is_free)
    }
}

fn view_is_free(view: &View) -> bool {
    view.desire == Desire::GONE
        && view.cpu.report == CapReport::NoIntent
        && view.gpu.report == CapReport::NoIntent
}

/// Says in the log, the metrics and an Event that a node is reached in another way, or why it is not.
pub(crate) fn tell_route(
    node: &str,
    (before, now): (&Standing, &Standing),
    profiles: &Profiles,
    shared: &Shared,
) {
    shared.metrics.routes(node, now.refused.is_some(), before.differs(now));
    if let Some(what) = events::of_route(before, now, profiles) {
        shared.events.say(events::note(node, what));
    }
    match (&now.refused, &before.refused) {
        (Some(_), _) => tracing::warn!(node, "{}", now.say()),
        // Nothing has changed when the profiles are read for the first time and none is for this node.
        (None, None) if !before.differs(now) && before.by == now.by && now.rivals.is_empty() => {}
        (None, _) => tracing::info!(node, "{}", now.say()),
    }
}

/// The laws of node-kit with its tuning; only the access to the devices differs.
fn laws(settings: &Settings) -> Result<EngineLaws, node_kit::ConfigError> {
    let period = micros(settings.period);
    let config = Config::standard(HardwareSources::machine(), PathBuf::new(), NodeAccess::Look, period)?;
    let Floors { cpu, gpu } = settings.floors;
    Ok(EngineLaws {
        cpu: BackendLaw { floor: cpu, ..config.cpu },
        gpu: GpuLaw { floor: gpu, ..config.gpu },
        dvfs: settings.dvfs.law,
        grants: NodeParts::ALL,
        access: if settings.simulate_only { NodeAccess::Look } else { NodeAccess::Control },
    })
}

/// The nodes whose grants are on disk: those of the pool, or the one that is reached over HTTP.
fn kept_nodes(settings: &Settings) -> Vec<String> {
    if let AgentTarget::Host { node, .. } = &settings.target {
        let there = settings.kept_grant(node).is_some_and(|file| file.exists());
        return Vec::from_iter(there.then(|| node.clone()));
    }
    let Some(folder) = settings.kept_grants() else { return Vec::new() };
    let named = |file: &std::ffi::OsStr| file.to_str()?.strip_suffix(".json").map(str::to_owned);
    let read = || -> std::io::Result<Vec<String>> {
        let mut nodes = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            nodes.extend(named(&entry?.file_name()));
        }
        nodes.sort_unstable();
        Ok(nodes)
    };
    let mut nodes = read().unwrap_or_else(|error| {
        if error.kind() != std::io::ErrorKind::NotFound {
            tracing::error!(
                "the grants that are kept in {} cannot be listed: {error}; the nodes are held to theirs once the API \
                 server tells of them",
                folder.display()
            );
        }
        Vec::new()
    });
    if let AgentTarget::Remote { node, .. } = &settings.target {
        nodes.retain(|kept| kept == node);
    }
    nodes
}

fn hints(row: &NodeRow, is_selected: bool) -> Hints {
    let label =
        |key: &str| row.labels.get(key).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let product = || node::GPU_PRODUCTS.iter().find_map(|key| label(key));
    Hints {
        cpu_model: label(node::CPU_MODEL).or_else(|| label(node::NFD_CPU_MODEL)),
        sockets: row.sockets,
        gpu_model: label(node::GPU_MODEL).or_else(product),
        gpus: row.gpus,
        is_selected,
        refused: row.refused.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_which_setting_names_whom_to_trust() {
        let told = |error| PoolError::Tls(error).to_string();
        let file = TrustError::File { file: "/x/ca.pem".into(), why: "it is empty".to_owned() };
        assert_eq!(told(file), "TELEMETRY_HTTP_CA_FILE=/x/ca.pem: it is empty");
        let system = told(TrustError::System("none found".to_owned()));
        assert!(
            system.starts_with("an endpoint has TLS, and this system knows no certificate authorities ("),
            "{system}"
        );
        assert!(
            system.ends_with("; set TELEMETRY_HTTP_CA_FILE to a file with those of the endpoints"),
            "{system}"
        );
    }
}
