//! The live page of the demo: what the crate `page` shows of any cluster, what the demo knows beside the API, and what a person may do.
//!
//! It is served to this machine alone. Orders come with a token that only the page has.

use super::act::{Act, POLICIES};
use super::cluster::{DemoCluster, DemoContext, NAMESPACE};
use super::events::{Line, Tone};
use super::fault::DemoFault;
use super::state::{Placement, State};
use ::page::explain::UiExplainer;
use ::page::hub::{UiBody, UiHub};
use ::page::observe::{UiExtras, UiObserver, UiSource};
use ::page::orders::{GivenOrder, UiOrder, UiOrders};
use ::page::picture::{UiControls, UiFault, UiLine, UiPlacement, UiTone};
use ::page::serve::{Ui, names_this_machine, said};
use bytes::Bytes;
use host_kit::clock::HostClock;
use host_kit::config::Listen;
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::server::{Drain, HttpServer, Port, Routes, ServerLimits, ServerMetrics};
use host_kit::shutdown::{Stop, Tasks};
use http::{HeaderValue, Request, Response, StatusCode, header};
use power_units::{Role, Watts};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// As the view has it: the demo's agents renew their readings every two seconds.
const HOLD: Duration = Duration::from_secs(8);
/// Open streams end when the demo does; nothing else takes long.
const DRAIN: Duration = Duration::from_millis(500);
/// The connections: a browser has six to one server, and several may be open.
const CONNECTIONS_MAX: usize = 64;
/// An order is some dozen bytes.
const BODY_MAX: usize = 8 * 1024;

/// The page of a running demo.
pub(super) struct DemoPage {
    url: String,
    extras: UiExtras,
    orders: mpsc::Receiver<GivenOrder>,
    clock: Arc<dyn HostClock>,
    /// The zones without cooling, and the nodes without telemetry, as far as the demo has done it.
    hot: BTreeSet<String>,
    silenced: BTreeSet<String>,
}

/// The paths of its port.
struct PageRoutes(Ui);

impl Routes for PageRoutes {
    type Body = UiBody;

    async fn answer(&self, request: Request<Bytes>, _: SocketAddr) -> Response<UiBody> {
        let (head, body) = request.into_parts();
        if !names_this_machine(&head.headers) {
            return said(StatusCode::FORBIDDEN, "open the page by the address that joulie demo has said");
        }
        if head.uri.path() == "/" {
            let mut moved = said(StatusCode::TEMPORARY_REDIRECT, "the page is at /ui/");
            moved.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui/"));
            return moved;
        }
        let answer = self.0.answer(&head, &body).await;
        answer.unwrap_or_else(|| said(StatusCode::NOT_FOUND, "the page is at /ui/"))
    }
}

impl DemoPage {
    /// Serves it. Until the cluster has started, it is empty.
    pub(super) async fn serve(
        stage: &DemoContext,
        at: SocketAddr,
        (tasks, stop): (&mut Tasks, &Stop),
    ) -> Result<Self, String> {
        let wrong = |why: String| format!("--page {at}: {why}; name another address, or --page off");
        let clock = stage.clock.clone();
        let token = format!("{:016x}{:016x}", clock.chance(), clock.chance());
        let (sender, orders) = UiOrders::new(token);
        let hub = UiHub::new(clock.chance());
        let extras = UiExtras::default();
        let source = UiSource {
            title: "joulie demo".to_owned(),
            client: stage.client("joulie-page"),
            clock: clock.clone(),
            namespace: NAMESPACE.to_owned(),
            hold: HOLD,
            extras: Some(extras.clone()),
        };
        let observer = UiObserver::start(source, (&mut *tasks, stop));
        let explained = stage.clone();
        let explainer =
            UiExplainer::start(move || explained.client("joulie-page"), clock.clone(), NAMESPACE.to_owned());
        let explainer = explainer.map_err(|error| wrong(error.to_string()))?;
        let ui = Ui::new(hub.clone(), explainer, Some(sender), stop.clone());
        // The metrics of the demo's own server are not exported.
        let mut metrics = MetricsBuilder::of(&BuildInfo { component: "demo", version: "", revision: "" });
        let counted = ServerMetrics::register(metrics.registry());
        let limits =
            ServerLimits::new(BODY_MAX, CONNECTIONS_MAX).map_err(|error| wrong(error.to_string()))?;
        // All of them come from this machine.
        let limits = limits.with_peer_max(CONNECTIONS_MAX).map_err(|error| wrong(error.to_string()))?;
        let listen = Listen::At(at);
        let server = HttpServer::bind(listen, Port::Work, PageRoutes(ui), limits, &counted, clock.clone());
        let server = server.await.map_err(|error| wrong(error.to_string()))?;
        let address = server.address().map_err(|error| wrong(error.to_string()))?;
        let serving = stop.clone();
        tasks.spawn("page", async move {
            server.run(serving, Drain::new(Duration::ZERO, DRAIN)).await;
        });
        tasks.spawn("picture", observer.run(hub, stop.clone()));
        let url = format!("http://{address}/ui/");
        Ok(Self { url, extras, orders, clock, hot: BTreeSet::new(), silenced: BTreeSet::new() })
    }

    /// Where it is.
    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// An order that waits.
    pub(super) fn order(&mut self) -> Option<GivenOrder> {
        self.orders.try_recv().ok()
    }

    /// What an order means here, or why it cannot be done.
    pub(super) fn act(&self, order: UiOrder, state: &State, cluster: &DemoCluster) -> Result<Act, String> {
        let node = |name: String| match state.nodes.contains_key(&name) {
            true => Ok(name),
            false => Err(format!("there is no node {name}")),
        };
        let zone = |name: String| match zones(state).contains(&name) {
            true => Ok(name),
            false => Err(format!("there is no zone {name}")),
        };
        match order {
            UiOrder::Budget { watts } => match Watts::parse(&watts.to_string(), Role::Limit) {
                Ok(watts) => Ok(Act::Budget(watts)),
                Err(why) => Err(format!("{watts} is no budget: {why}")),
            },
            // It is stopped for that, and such a file is refused at the next start.
            UiOrder::Policy { .. } if cluster.would_not_start() => Err(format!(
                "{}: the operator would not start again with another policy; mend that first",
                DemoFault::Settings
            )),
            UiOrder::Break { fault } | UiOrder::Mend { fault }
                if fault == DemoFault::Meters.word() && cluster.would_not_start() =>
            {
                Err(format!(
                    "{}: the operator would not start again with other meters; mend that first",
                    DemoFault::Settings
                ))
            }
            UiOrder::Policy { name } => match POLICIES.into_iter().find(|known| **known == name) {
                Some(policy) => Ok(Act::Policy(policy)),
                None => Err(format!("{name:?} is none of {}", POLICIES.join(", "))),
            },
            UiOrder::Silence { node: name } => node(name).map(Act::Blind),
            UiOrder::Hear { node: name } => node(name).map(Act::See),
            UiOrder::Heat { zone: name } => zone(name).map(Act::Heat),
            UiOrder::Cool { zone: name } => zone(name).map(Act::Cool),
            UiOrder::KillLeader if cluster.has_operator() => Ok(Act::KillOperator),
            UiOrder::KillLeader => Err("the operator does not run".to_owned()),
            UiOrder::StartLeader if cluster.has_operator() => Err("the operator runs already".to_owned()),
            UiOrder::StartLeader => Ok(Act::StartOperator),
            UiOrder::Break { fault } => {
                let fault = known(&fault)?;
                let free = !cluster.is_broken(fault);
                free.then_some(Act::Break(fault)).ok_or_else(|| format!("it is so already that {fault}"))
            }
            UiOrder::Mend { fault } => {
                let fault = known(&fault)?;
                let broken = cluster.is_broken(fault);
                broken.then_some(Act::Mend(fault)).ok_or_else(|| format!("it is not so that {fault}"))
            }
        }
    }

    /// Notes what was done, by whomever.
    pub(super) fn done(&mut self, act: &Act) {
        match act {
            Act::Heat(zone) => self.hot.extend([zone.clone()]),
            Act::Cool(zone) => self.hot.retain(|hot| hot != zone),
            Act::Blind(node) => self.silenced.extend([node.clone()]),
            Act::See(node) => self.silenced.retain(|silenced| silenced != node),
            Act::Reserve(_)
            | Act::Return(_)
            | Act::CapByHand(_)
            | Act::HandBack(_)
            | Act::KillOperator
            | Act::StartOperator
            | Act::KillExtender
            | Act::StartExtender
            | Act::Budget(_)
            | Act::Policy(_)
            | Act::Break(_)
            | Act::Mend(_) => {}
        }
    }

    /// Tells what the API does not.
    pub(super) fn tell(&self, state: &State, told: Vec<Line>, placed: &[Placement], cluster: &DemoCluster) {
        let now = self.clock.wall().as_millisecond() as f64 / 1000.0;
        // What is told is timed from the beginning of the demo.
        let at = |moment: Duration| now - state.at.as_secs_f64() + moment.as_secs_f64();
        let controls = UiControls {
            policies: POLICIES.map(str::to_owned).to_vec(),
            policy: cluster.policy().to_owned(),
            budget: state.budget.and_then(number),
            zones: zones(state).into_iter().collect(),
            hot: self.hot.iter().cloned().collect(),
            silenced: self.silenced.iter().cloned().collect(),
            operator: cluster.has_operator(),
            faults: DemoFault::ALL.into_iter().map(|fault| shown(fault, cluster)).collect(),
        };
        self.extras.tell(|extra| {
            extra.controls = Some(controls);
            extra.celsius.clear();
            extra.scores.clear();
            for (name, node) in &state.nodes {
                extra
                    .celsius
                    .extend(node.temperature.and_then(number).map(|celsius| (name.clone(), celsius)));
                extra.scores.extend(node.score.map(|score| (name.clone(), score)));
            }
            extra.news.lines.extend(told.into_iter().map(|line| UiLine {
                at: at(line.at),
                tone: tone(line.tone),
                text: line.text,
            }));
            extra.news.placements.extend(placed.iter().map(|placed| UiPlacement {
                at: at(placed.at),
                pod: format!("{}/{}", placed.namespace, placed.pod),
                performance: placed.performance,
                node: placed.node.clone(),
                why: placed.why.clone(),
            }));
        });
    }
}

/// The fault of this name.
fn known(name: &str) -> Result<DemoFault, String> {
    let found = DemoFault::ALL.into_iter().find(|fault| fault.word() == name);
    let words = || DemoFault::ALL.map(DemoFault::word).join(", ");
    found.ok_or_else(|| format!("{name:?} is none of {}", words()))
}

fn shown(fault: DemoFault, cluster: &DemoCluster) -> UiFault {
    UiFault { name: fault.word(), about: fault.about(), on: cluster.is_broken(fault) }
}

const fn tone(tone: Tone) -> UiTone {
    match tone {
        Tone::Good => UiTone::Good,
        Tone::Plain => UiTone::Plain,
        Tone::Warn => UiTone::Warn,
        Tone::Bad => UiTone::Bad,
        Tone::Chaos => UiTone::Act,
    }
}

fn zones(state: &State) -> BTreeSet<String> {
    state.nodes.values().filter_map(|node| node.zone.clone()).collect()
}

fn number(value: impl std::fmt::Display) -> Option<f64> {
    value.to_string().parse().ok()
}
