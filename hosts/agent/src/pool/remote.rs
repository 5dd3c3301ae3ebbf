//! One node over HTTP: a task with its own period, which reads, decides, posts, and reports the outcome.
//!
//! ```text
//!  every period, and at each change of the desired state:
//!    telemetry ──▶ engine.step ──orders──▶ control ──outcomes──▶ engine.step … until nothing is to be posted
//! ```
//!
//! A node that does not answer is asked less often, so that many such nodes do not take the request slots of the
//! others. It is still asked at least once in five seconds, so that it is measured and capped soon after it answers
//! again. A new desired state is always tried at once.

mod shape;
mod view;

use super::engine::{NodeEngine, Order, Reach, Turn};
use super::http::{Http, Standing, Trouble};
use super::wire::{Action, Telemetry};
use crate::counts::Refused;
use crate::machine::{Control, Found, View};
use crate::plug::Differences;
use crate::route::{Reached, Standing as RouteStanding};
use crate::settings::{ControlPreference, NodeEndpoint, NodeRouting};
use host_kit::clock::HostClock;
use host_kit::log::Repeats;
use joulie_api::condition::rfc3339;
use joulie_core::node::backend::{BackendLaw, BackendPreference};
use joulie_core::node::engine::{Beyond, EngineLaws, LeaseTerms, NodeParts, Occasion};
use joulie_core::placement::freshness::UnixTime;
use node_kit::{Desire, NodeWants};
use planner::catalog::Catalog;
use power_hal::ErrorKind;
use power_units::{Micros, Stamp, Watts};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// What all nodes share.
pub(crate) struct Common {
    pub(super) http: Arc<Http>,
    /// The laws of a node whose parts are all controlled.
    pub(super) laws: EngineLaws,
    pub(super) period: Duration,
    pub(super) clock: Arc<dyn HostClock>,
    pub(super) catalog: Catalog,
}

/// What the labels of a node say of its hardware. Telemetry takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) cpu_model: Option<String>,
    pub(crate) sockets: Option<u32>,
    pub(crate) gpu_model: Option<String>,
    pub(crate) gpus: u32,
    /// The pool's selector matches the node.
    pub(crate) is_selected: bool,
    /// The impossible values in the labels.
    pub(crate) refused: Refused,
}

/// The front's handle to a node. Clones share it.
#[derive(Clone)]
pub(crate) struct Remote {
    desires: Arc<watch::Sender<Desire>>,
    renewal: Arc<Mutex<Option<UnixTime>>>,
    hints: Arc<watch::Sender<Option<Hints>>>,
    routes: Arc<watch::Sender<Arc<RouteStanding>>>,
    /// Its grant was kept on disk: this pool had the node before.
    is_kept: bool,
}

impl Remote {
    /// Sets through what the node is reached.
    pub(crate) fn set_route(&self, route: Arc<RouteStanding>) {
        self.routes.send_if_modified(|last| {
            let changed = *last != route;
            *last = route;
            changed
        });
    }

    /// Whether the machine is to keep to a grant.
    pub(crate) fn is_granted(&self) -> bool {
        self.desires.borrow().grant.is_some()
    }

    /// Sets what the Node object says now.
    pub(crate) fn hint(&self, hints: Hints) {
        self.hints.send_if_modified(|last| {
            let changed = last.as_ref() != Some(&hints);
            *last = Some(hints);
            changed
        });
    }
}

impl Control for Remote {
    fn desire(&self, desire: Desire) {
        self.desires.send_if_modified(|last| {
            let changed = *last != desire;
            *last = desire;
            changed
        });
    }

    fn renewed(&self, at: UnixTime) {
        *self.renewal.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    fn is_ours(&self) -> bool {
        self.is_kept || self.hints.borrow().as_ref().is_some_and(|hints| hints.is_selected)
    }

    fn route(&self) -> Arc<RouteStanding> {
        self.routes.borrow().clone()
    }
}

/// What an endpoint tells.
type Answer = Result<Telemetry, Trouble>;

/// The task of one node.
pub(crate) struct Task {
    node: String,
    common: Arc<Common>,
    /// `None` until a Node object was seen.
    hints: watch::Receiver<Option<Hints>>,
    desires: watch::Receiver<Desire>,
    routes: watch::Receiver<Arc<RouteStanding>>,
    /// The endpoints that are used, and the laws of a node with them.
    routing: NodeRouting,
    laws: EngineLaws,
    renewal: Arc<Mutex<Option<UnixTime>>>,
    views: watch::Sender<Option<View>>,
    /// Its grant was kept on disk: this pool had the node before.
    is_kept: bool,
    /// The lease of the desired state. It runs since `started`.
    lease: Option<LeaseTerms>,
    started: Stamp,
    engine: Option<NodeEngine>,
    /// What did not fit into the engine when that was last logged.
    beyond: Beyond,
    telemetry: Option<Telemetry>,
    /// Why there is none of the processors and of the GPUs, where somebody was asked.
    failed: [Option<ErrorKind>; 2],
    /// Whether any was ever told of them.
    heard: [bool; 2],
    /// The last telemetry that arrived: the hardware of a node stays known when the node stops answering.
    described: Option<Telemetry>,
    /// What the node draws beside its packages and GPUs, by the last answers.
    differences: Differences,
    found: Arc<Found>,
    counts: Counts,
    /// Of telemetry, of control, and of the telemetry of GPUs where that has its own endpoint.
    trouble: [Option<Trouble>; 3],
    repeats: Repeats,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    failures: u32,
    troubles: u64,
    blind: u64,
    late: u64,
    refused: u64,
}

const REPEAT_WINDOW: Duration = Duration::from_secs(300);
/// Rounds of orders within one period: a limit, a throttle that is lifted after it, and what follows from those.
const ROUNDS: usize = 4;
/// How many times a node that shares a grant between packages and GPUs may leave telemetry unanswered before the agent
/// sets its limits without knowing those in force.
const SILENT_AT_START: u32 = 2;
/// Nodes that do not answer share a few request slots of their own (`http`), so a longer wait would save little. It
/// would also leave a node that has recovered unmeasured for as long.
const WAIT_MOST: Duration = Duration::from_secs(5);

/// How long to wait after this many failures in a row.
fn wait(period: Duration, failures: u32) -> Duration {
    period.saturating_mul(1 << failures.min(8)).min(WAIT_MOST.max(period))
}

/// Creates a node's task and the front's handles to it. `desire` applies until the front sets another.
pub(crate) fn open(
    node: &str,
    common: Arc<Common>,
    (desire, route): (Desire, Arc<RouteStanding>),
    lease: Option<LeaseTerms>,
) -> (Task, Remote, watch::Receiver<Option<View>>) {
    let is_kept = desire.grant.is_some();
    let (desires, wanted) = watch::channel(desire);
    let (hints, hinted) = watch::channel(None);
    let routing = endpoints(&route.reached);
    let laws = laws(&common.laws, &routing);
    let (routes, routed) = watch::channel(route);
    let (views, seen) = watch::channel(None);
    let renewal = Arc::new(Mutex::new(None));
    let started = stamp(&common);
    let task = Task {
        node: node.to_owned(),
        common,
        hints: hinted,
        desires: wanted,
        routes: routed,
        routing,
        laws,
        renewal: renewal.clone(),
        views,
        is_kept,
        lease,
        started,
        engine: None,
        beyond: Beyond::NOTHING,
        telemetry: None,
        failed: [None; 2],
        heard: [false; 2],
        described: None,
        differences: Differences::default(),
        found: Arc::default(),
        counts: Counts::default(),
        trouble: [None, None, None],
        repeats: Repeats::every(REPEAT_WINDOW),
    };
    let (desires, hints, routes) = (Arc::new(desires), Arc::new(hints), Arc::new(routes));
    (task, Remote { desires, renewal, hints, routes, is_kept }, seen)
}

/// The endpoints of a route; none if it is not over HTTP.
fn endpoints(reached: &Reached) -> NodeRouting {
    match reached {
        Reached::Http(routing) => routing.clone(),
        Reached::Host { .. } => NodeRouting::NOWHERE,
    }
}

fn laws(all: &EngineLaws, routing: &NodeRouting) -> EngineLaws {
    let preference = match routing.preference {
        ControlPreference::LimitFirst => BackendPreference::LimitFirst,
        ControlPreference::ThrottleOnly => BackendPreference::ThrottleOnly,
    };
    EngineLaws {
        cpu: BackendLaw { preference, ..all.cpu },
        // A part that no endpoint can cap counts with all that it draws.
        grants: NodeParts { cpu: routing.cpu.is_some(), gpu: routing.gpu.is_some() },
        ..*all
    }
}

/// Whether these are the same endpoints, told the same: only their times or tokens may differ.
fn is_same_machine(one: &NodeRouting, other: &NodeRouting) -> bool {
    let urls = |routing: &NodeRouting| {
        [&routing.source, &routing.gpu_source, &routing.cpu, &routing.gpu]
            .map(|at| at.as_ref().map(|at| at.url.clone()))
    };
    one.preference == other.preference && urls(one) == urls(other)
}

fn stamp(common: &Common) -> Stamp {
    Stamp::new(Micros::new(common.clock.mono().as_millis().saturating_mul(1000)))
}

impl Task {
    /// Runs until it is dropped.
    pub(crate) async fn run(&mut self) {
        loop {
            self.refuse_hints();
            let failed = self.period().await;
            self.counts.failures = if failed { self.counts.failures.saturating_add(1) } else { 0 };
            let wait = wait(self.common.period, self.counts.failures);
            // The order delays nothing: the next period looks at everything.
            let alive = tokio::select! {
                biased;
                changed = self.desires.changed() => changed.is_ok(),
                changed = self.routes.changed() => changed.is_ok(),
                () = tokio::time::sleep(wait) => true,
            };
            if !alive {
                return;
            }
        }
    }

    /// Takes in the present route. Another endpoint is another machine, as it is for an agent that starts anew: its limits are adopted
    /// as they are found, and those of the previous one stay as they are.
    fn follow_route(&mut self) {
        let routing = endpoints(&self.routes.borrow_and_update().reached);
        let before = std::mem::replace(&mut self.routing, routing);
        if is_same_machine(&before, &self.routing) {
            return;
        }
        self.laws = laws(&self.common.laws, &self.routing);
        self.engine = None;
        (self.telemetry, self.described) = (None, None);
        (self.failed, self.heard) = ([None; 2], [false; 2]);
        self.differences = Differences::default();
        self.trouble = [None, None, None];
        // An endpoint that has not answered yet takes the place of no sound one.
        self.counts.failures = 1;
        self.started = stamp(&self.common);
        // What was said of the previous machine does not answer what is desired of this one.
        self.views.send_if_modified(|view| {
            view.as_mut().is_some_and(|view| {
                let changed = view.desire != Desire::UNKNOWN;
                (view.desire, view.wants) = (Desire::UNKNOWN, NodeWants::default());
                changed
            })
        });
    }

    /// Runs one period; returns whether the node did not answer.
    async fn period(&mut self) -> bool {
        self.follow_route();
        let desire = *self.desires.borrow_and_update();
        let mut failed = self.read().await;
        let shape = self.shape();
        if self.engine.is_none() {
            // A node that has not answered yet may be under a cap of Joulie's, so it is not known what to adopt. And if
            // it is not known how many devices share a grant, each would get all of it.
            if failed && desire == Desire::UNKNOWN || !self.is_described() {
                return failed;
            }
            // A grant that packages and GPUs share: while it is not known how the limits in force share it, the first
            // write of either may raise it. A node that answers late is worth a few seconds.
            if failed && shape.gpus > 0 && desire.grant.is_some() && self.counts.failures < SILENT_AT_START {
                return failed;
            }
            let found = self.telemetry.as_ref();
            self.engine = Some(NodeEngine::adopt(self.reach(), shape, found, self.lease, self.started));
        }
        if let Some(engine) = &mut self.engine {
            engine.reshape(shape);
        }
        self.say_what_does_not_fit();
        failed |= self.control(desire).await;
        self.tell(desire);
        failed
    }

    /// Asks for telemetry; returns whether an endpoint did not answer.
    async fn read(&mut self) -> bool {
        let routing = self.routing.clone();
        let cpu = self.ask(routing.source.as_ref());
        if routing.has_one_source() {
            let told = cpu.await;
            let (kind, told) = self.take(0, told);
            self.failed = [kind; 2];
            if told.is_some() {
                self.heard = [true; 2];
                self.described.clone_from(&told);
            }
            self.telemetry = told;
        } else {
            let (cpu, gpu) = tokio::join!(cpu, self.ask(routing.gpu_source.as_ref()));
            let ((cpu_kind, cpu), (gpu_kind, gpu)) = (self.take(0, cpu), self.take(2, gpu));
            self.failed = [cpu_kind, gpu_kind];
            self.heard = [self.heard[0] || cpu.is_some(), self.heard[1] || gpu.is_some()];
            self.bring_together(cpu, gpu);
        }
        self.compare();
        let failed = self.failed != [None; 2];
        self.counts.blind += u64::from(failed);
        failed
    }

    async fn ask(&self, source: Option<&NodeEndpoint>) -> Option<Answer> {
        Some(self.common.http.telemetry(source?, &self.node, self.standing()).await)
    }

    /// Counts and logs what is wrong with an answer. Returns why there is none, or what it tells.
    fn take(&mut self, which: usize, answer: Option<Answer>) -> (Option<ErrorKind>, Option<Telemetry>) {
        let told = answer.transpose();
        self.note(which, told.as_ref().err());
        match told {
            Ok(told) => {
                if let Some(told) = &told {
                    self.refuse(&told.refused);
                }
                (None, told)
            }
            Err(trouble) => (Some(trouble.kind), None),
        }
    }

    /// Takes in what two endpoints tell. The hardware of a part stays known while nothing is told of it.
    fn bring_together(&mut self, cpu: Option<Telemetry>, gpu: Option<Telemetry>) {
        if cpu.is_none() && gpu.is_none() {
            self.telemetry = None;
            return;
        }
        let before = self.described.take().unwrap_or_default();
        let known = cpu.clone().unwrap_or_else(|| before.clone());
        self.described = Some(known.with_gpus_of(gpu.as_ref().unwrap_or(&before)));
        self.telemetry = Some(cpu.unwrap_or_default().with_gpus_of(&gpu.unwrap_or_default()));
    }

    fn say_what_does_not_fit(&mut self) {
        let beyond = self.engine.as_ref().map_or(Beyond::NOTHING, |engine| engine.engine().beyond());
        if beyond != self.beyond && beyond != Beyond::NOTHING {
            tracing::error!(
                node = self.node,
                "{} packages and {} GPUs are more than this agent can control of one node: they have no caps of their own, \
                 and a grant counts them with the most that they draw",
                beyond.packages,
                beyond.gpus
            );
        }
        self.beyond = beyond;
    }

    /// Steps the engine and posts what it orders until it orders nothing; returns whether a post failed.
    async fn control(&mut self, desire: Desire) -> bool {
        let common = self.common.clone();
        let mut failed = false;
        for round in 0..ROUNDS {
            let now = stamp(&common);
            let Some(engine) = &mut self.engine else { return failed };
            let mut turn = Turn { now, occasion: Occasion::News, renewal: None };
            if round == 0 {
                engine.sense(self.telemetry.as_ref(), self.failed, now);
                turn.occasion = Occasion::Period;
                turn.renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
            let (orders, event) = engine.step(&self.laws, turn, desire);
            if let Some(event) = event {
                tracing::warn!(node = self.node, "the lease of the desired state: {event:?}");
            }
            if orders.is_empty() {
                return failed;
            }
            for order in orders {
                let outcome = self.post(order).await;
                failed |= outcome.as_ref().is_err_and(|trouble| trouble.kind == ErrorKind::Timeout);
                self.note(1, outcome.as_ref().err());
                if let Some(engine) = &mut self.engine {
                    engine.land(order, outcome.as_ref().map(|read_back| *read_back));
                }
            }
        }
        failed
    }

    async fn post(&self, order: Order) -> Result<Option<Watts>, Trouble> {
        let Common { http, clock, .. } = &*self.common;
        let endpoint = match order.action {
            Action::Cap(_) | Action::Throttle { .. } => &self.routing.cpu,
            Action::GpuCap(_) => &self.routing.gpu,
        };
        let nowhere = || Trouble { kind: ErrorKind::NotSupported, text: "no endpoint".to_owned() };
        let endpoint = endpoint.as_ref().ok_or_else(nowhere)?;
        let told = (order.action, rfc3339(clock.wall()));
        http.control(endpoint, &self.node, told, self.standing()).await
    }

    const fn standing(&self) -> Standing {
        if self.counts.failures == 0 { Standing::Sound } else { Standing::Suspect }
    }

    fn note(&mut self, which: usize, trouble: Option<&Trouble>) {
        if let Some(trouble) = trouble {
            self.counts.troubles += 1;
            self.counts.late += u64::from(trouble.kind == ErrorKind::Timeout);
            if self.trouble[which].as_ref() != Some(trouble) {
                tracing::warn!(node = self.node, "{}", trouble.text);
            }
        }
        self.trouble[which] = trouble.cloned();
    }

    /// Counts impossible values, and logs repeated ones only once in a while.
    fn refuse(&mut self, refused: &Refused) {
        self.counts.refused = self.counts.refused.saturating_add(refused.count());
        for words in refused.words() {
            if let Some(said) = self.repeats.note(words, self.common.clock.mono()) {
                tracing::warn!(node = self.node, "{words}{said}");
            }
        }
    }

    /// Counts impossible values in the labels, once for each Node object and each change of it.
    fn refuse_hints(&mut self) {
        if !self.hints.has_changed().unwrap_or(false) {
            return;
        }
        let refused = self.hints.borrow_and_update().as_ref().map(|hints| hints.refused.clone());
        self.refuse(&refused.unwrap_or_default());
    }

    fn reach(&self) -> Reach {
        let NodeRouting { source, gpu_source, cpu, gpu, .. } = &self.routing;
        let (meter, gpu_meter) = (source.is_some(), gpu_source.is_some());
        Reach { meter, gpu_meter, cpu: cpu.is_some(), gpu: gpu.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_answer_is_asked_less_often_and_never_less_than_once_in_five_seconds() {
        let seconds = |period: u64, failures| wait(Duration::from_secs(period), failures).as_secs();
        assert_eq!([0, 1, 2, 3, 20, u32::MAX].map(|failures| seconds(1, failures)), [1, 2, 4, 5, 5, 5]);
        assert_eq!([0, 3].map(|failures| seconds(20, failures)), [20, 20], "a longer period is kept");
    }
}
