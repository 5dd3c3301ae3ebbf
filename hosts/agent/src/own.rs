//! Mode daemonset: the agent's own node, by its hardware or over HTTP, as its route says.
//!
//! ```text
//!   the hardware ──the route leads over HTTP──▶ the loop has ended, its limits stay ──▶ endpoints
//!   the endpoints ──the route leads to the hardware──▶ their tasks have ended, their limits stay ──▶ the hardware
//! ```
//!
//! A change is what a restart of the agent with other settings is: the machine that is left keeps its limits and its originals in the
//! journal, and the other one's limits are adopted as they are found. So nothing is lifted in between. The two are never
//! controlled at the same time, and an endpoint that fails never leads back to the hardware.

use crate::front::grants::Stands;
use crate::front::inputs::{Inputs, Watched};
use crate::front::node::{Front, Shared};
use crate::front::rows::NodeRow;
use crate::front::watches::{Confirmed, Watches};
use crate::host::{self, Ending, Host, Taps};
use crate::machine::{Control, View};
use crate::pool::http::Http;
use crate::pool::{Pool, PoolError, PoolNodes, Routes, tell_route};
use crate::route::{Base, Profiles, Reached, Standing};
use crate::settings::{MachineSettings, OnExit, Settings, Shards};
use host_kit::clock::{HostClock, Mono};
use host_kit::health::{CheckResult, Heartbeat};
use host_kit::reflect::Row;
use host_kit::shutdown::Stop;
use joulie_core::placement::freshness::UnixTime;
use k8s_openapi::api::core::v1::Node;
use kube::core::SelectorExt;
use kube::{Api, Client};
use node_kit::Desire;
use planner::catalog::Catalog;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The agent's own node.
pub(crate) struct OwnNode {
    pub(crate) settings: Settings,
    pub(crate) node: String,
    pub(crate) machine: MachineSettings,
    /// What is told while the hardware is controlled.
    pub(crate) taps: Taps,
    pub(crate) base: Base,
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Catalog,
    pub(crate) http: Arc<Http>,
    pub(crate) client: Client,
    pub(crate) beat: Heartbeat,
    pub(crate) stop: Stop,
    pub(crate) now: Present,
}

/// The hardware, while it is controlled.
#[derive(Clone, Default)]
pub(crate) struct Present(Arc<Mutex<Option<Host>>>);

impl Present {
    fn set(&self, host: Option<Host>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = host;
    }

    /// A check for `/readyz`. Endpoints that do not answer are no reason to take the agent for broken.
    pub(crate) fn check(&self) -> impl Fn(host_kit::clock::Mono) -> CheckResult + Send + Sync + 'static {
        let here = self.clone();
        move |_| {
            let host = here.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            host.map_or(CheckResult::Pass, |host| host.check())
        }
    }
}

/// A machine that was started and does not run yet.
pub(crate) enum Machine {
    /// The hardware, of which these parts are controlled.
    Host(host::Started, Arc<Reached>),
    /// Endpoints.
    Http(Box<Pool>),
}

/// Why a machine cannot be started.
#[derive(Debug)]
pub(crate) enum MachineError {
    /// The hardware.
    Host(host::StartError),
    /// The endpoints.
    Http(PoolError),
}

impl std::fmt::Display for MachineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Http(error) => error.fmt(f),
        }
    }
}

/// What ends the work for a machine.
enum Over {
    /// The route leads to another one.
    Moved,
    /// The program ends, or has to.
    Ended,
}

/// What is told to a host's thread, and by which route.
struct Routed {
    host: Host,
    routes: watch::Receiver<Arc<Standing>>,
}

impl Control for Routed {
    fn desire(&self, desire: Desire) {
        self.host.desire(desire);
    }

    fn renewed(&self, at: UnixTime) {
        self.host.renewed(at);
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn route(&self) -> Arc<Standing> {
        self.routes.borrow().clone()
    }
}

impl OwnNode {
    /// The route until the profiles are known.
    pub(crate) fn route(&self) -> (watch::Sender<Arc<Standing>>, watch::Receiver<Arc<Standing>>) {
        watch::channel(Arc::new(self.base.start()))
    }

    /// Starts the machine to which a route leads.
    pub(crate) fn start(
        &self,
        routes: &watch::Receiver<Arc<Standing>>,
        confirmed: &Confirmed,
    ) -> Result<Machine, MachineError> {
        let Self { settings, node, machine, taps, shared, catalog, http, beat, now, .. } = self;
        let reached = routes.borrow().reached.clone();
        match &*reached {
            &Reached::Host { cpu, gpu } => {
                let machine = MachineSettings { cpu, gpu, ..machine.clone() };
                if let Some(meters) = &taps.meters {
                    meters.lock().unwrap_or_else(PoisonError::into_inner).begin_anew();
                }
                let started =
                    host::start(settings, node, &machine, shared.clock.clone(), (beat.clone(), taps.clone()));
                let started = started.map_err(MachineError::Host)?;
                now.set(Some(started.host.clone()));
                Ok(Machine::Host(started, reached))
            }
            Reached::Http(_) => {
                now.set(None);
                let nodes = PoolNodes {
                    routes: Routes::One(routes.clone()),
                    shards: Shards::WHOLE,
                    http: http.clone(),
                };
                let (catalog, confirmed) = (catalog.clone(), confirmed.clone());
                let pool = Pool::new(settings, nodes, shared.clone(), catalog, confirmed, beat.clone());
                Ok(Machine::Http(Box::new(pool.map_err(MachineError::Http)?)))
            }
        }
    }

    /// Works until asked to stop, or until the watches or the machine have ended.
    pub(crate) async fn run(
        self,
        mut machine: Machine,
        Watches { watched, confirmed }: Watches,
        (sender, mut routes): (watch::Sender<Arc<Standing>>, watch::Receiver<Arc<Standing>>),
    ) {
        let follow = follow(&self.node, &self.base, watched.clone(), sender, &self.shared);
        let work = async {
            loop {
                let over = match machine {
                    Machine::Host(started, here) => {
                        let watches = (&watched, &confirmed);
                        self.by_host((started, here), watches, &mut routes).await
                    }
                    Machine::Http(pool) => self.over_http(*pool, &watched, &mut routes).await,
                };
                match over {
                    Over::Ended => return,
                    Over::Moved => {}
                }
                self.shared.metrics.forget(&self.node);
                machine = match self.start(&routes, &confirmed) {
                    Ok(machine) => machine,
                    Err(error) => {
                        tracing::error!(node = self.node, "the machine cannot be started: {error}");
                        return;
                    }
                };
            }
        };
        tokio::select! {
            biased;
            // The watches end with the program, and the machine still has to be left in order.
            () = async { follow.await; std::future::pending().await } => {}
            () = work => {}
        }
    }

    async fn by_host(
        &self,
        (host::Started { host, views }, here): (host::Started, Arc<Reached>),
        (watched, confirmed): (&Watched, &Confirmed),
        routes: &mut watch::Receiver<Arc<Standing>>,
    ) -> Over {
        let (sender, inputs) = watch::channel(Inputs::default());
        let kept = self.settings.kept_grant(&self.node);
        let control = Arc::new(Routed { host: host.clone(), routes: routes.clone() });
        let front = Front {
            node: self.node.clone(),
            shared: self.shared.clone(),
            control: control.clone(),
            http: self.http.clone(),
            inputs,
            views: views.clone(),
            stands: kept.as_deref().map_or(Stands::Nothing, Stands::of_file),
            kept,
        };
        let work = async {
            // None of these ends before the watches do, which end with the program.
            tokio::select! {
                biased;
                () = self.stop.requested() => {}
                () = front.run() => {}
                () = route(watched.clone(), self.node.clone(), sender) => {}
                () = renew(confirmed.clone(), control, self.shared.clock.clone()) => {}
            }
            std::future::pending::<()>().await;
        };
        let moved = async {
            // An error means that nobody says it any more, when the watches have ended.
            let is_lost = routes.wait_for(|route| route.reached != here).await.is_err();
            if is_lost {
                std::future::pending().await
            }
        };
        let supervise = self.supervise(host.clone(), views.clone());
        tokio::select! {
            biased;
            () = supervise => return Over::Ended,
            // Before the front, which would tell this machine what is meant for the other one.
            () = moved => {}
            () = work => {}
        }
        tracing::info!(node = self.node, "this machine is not controlled any more, and its limits stay");
        host.end(Ending::Keep);
        let mut views = views;
        while views.changed().await.is_ok() {}
        Over::Moved
    }

    async fn over_http(
        &self,
        mut pool: Pool,
        watched: &Watched,
        routes: &mut watch::Receiver<Arc<Standing>>,
    ) -> Over {
        let moved = async {
            let is_lost = routes.wait_for(|route| route.reached.is_host()).await.is_err();
            if is_lost {
                std::future::pending().await
            }
        };
        let over = tokio::select! {
            biased;
            () = pool.run(watched.clone(), self.stop.clone()) => Over::Ended,
            () = moved => Over::Moved,
        };
        if matches!(over, Over::Moved) {
            tracing::info!(node = self.node, "the endpoints are not used any more, and their limits stay");
            pool.leave().await;
        }
        over
    }

    /// Returns when the thread has ended: after it was asked to, or by itself, and then the program ends too.
    async fn supervise(&self, host: Host, mut views: watch::Receiver<Option<View>>) {
        let ended = async { while views.changed().await.is_ok() {} };
        tokio::select! {
            () = ended => return,
            () = self.stop.requested() => {}
        }
        let ending = match self.settings.on_exit {
            OnExit::Restore => Ending::Restore,
            OnExit::Keep if self.is_deselected().await => {
                tracing::info!(
                    node = self.node,
                    "the node is not managed any more, so its originals come back"
                );
                Ending::Restore
            }
            OnExit::Keep => Ending::Keep,
        };
        host.end(ending);
        while views.changed().await.is_ok() {}
    }

    /// Whoever removes the label of a node also ends its pod at the same moment, and the watch may not have shown it
    /// yet.
    async fn is_deselected(&self) -> bool {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let look = tokio::time::timeout(LAST_LOOK, nodes.get(&self.node)).await;
        let node = look.ok().and_then(Result::ok).and_then(|node| serde_json::to_value(node).ok());
        let row = node.and_then(|node| NodeRow::read(&node).ok());
        row.is_some_and(|row| !self.settings.selector.matches(&row.labels))
    }
}

const LAST_LOOK: Duration = Duration::from_secs(2);

/// How long a profile that was followed has to be away before it counts as gone.
const SETTLES: Duration = Duration::from_millis(500);

/// Whether the profile that was followed is in none of the watches.
fn has_vanished(before: &Standing, profiles: &Profiles) -> bool {
    before.by.as_ref().is_some_and(|by| profiles.all.iter().all(|(_, row)| row.uid != by.uid))
}

/// Decides through what the node is reached, whenever the profiles change.
async fn follow(
    node: &str,
    base: &Base,
    mut watched: Watched,
    sender: watch::Sender<Arc<Standing>>,
    shared: &Shared,
) {
    let mut gone_since: Option<Mono> = None;
    loop {
        let profiles = watched.by_node().routes(node);
        let before = sender.borrow().clone();
        let now = base.choose(node, &profiles, &before);
        let clock = &shared.clock;
        gone_since = (now.differs(&before) && has_vanished(&before, &profiles))
            .then(|| gone_since.unwrap_or_else(|| clock.mono()));
        let until = gone_since.map(|since| since.plus(SETTLES)).filter(|until| clock.mono() < *until);
        if let Some(until) = until {
            // One whose target was changed leaves one watch and comes by the other, in any order.
            tokio::select! {
                alive = watched.changed() => if !alive { return },
                () = tokio::time::sleep(until.since(clock.mono())) => {}
            }
            continue;
        }
        if now != *before {
            tell_route(node, (&before, &now), &profiles, shared);
            sender.send_replace(Arc::new(now));
        }
        if !watched.changed().await {
            return;
        }
    }
}

/// What the watches say of the node goes to its front, as long as anybody watches.
async fn route(mut watched: Watched, node: String, sender: watch::Sender<Inputs>) {
    loop {
        let inputs = watched.by_node().of(&node);
        sender.send_if_modified(|last| {
            let changed = *last != inputs;
            *last = inputs;
            changed
        });
        if !watched.changed().await {
            return;
        }
    }
}

/// How often the lease is checked.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// Tells the machine when the desired state was last confirmed.
async fn renew(confirmed: Confirmed, control: Arc<dyn Control>, clock: Arc<dyn HostClock>) {
    loop {
        if let Some(mark) = confirmed.mark(clock.mono()) {
            control.renewed(mark);
        }
        tokio::time::sleep(RENEW_EVERY).await;
    }
}
