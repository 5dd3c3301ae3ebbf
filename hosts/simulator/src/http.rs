//! The HTTP port of the simulated nodes: upstream's contract, and the faults that a person or a test sets.
//!
//! | path | verbs | what |
//! |---|---|---|
//! | `/telemetry/{node}` | GET | what the node says of itself |
//! | `/control/{node}` | POST | a limit is set |
//! | `/state/{node}` | GET | everything about the node, its pods included; true also while its telemetry lies |
//! | `/faults/{node}` | GET, POST, DELETE | what is broken; a POST replaces all of it |
//! | `/nodes` | GET | the names of all nodes |
//! | `/site`, `/site/{zone}`, `/api/v1/query` | | the building around them ([`crate::site`]) |
//! | `/redfish/v1/…` | | the power of the machines, by their management controllers ([`crate::redfish`]) |
//! | `/healthz`, `/livez`, `/readyz`, `/metrics`, `/debug/…` | GET | as every program's |
//!
//! An unknown node is answered with 404, a missing name with 400, another verb with 405. No answer is delayed except
//! by a fault.

use crate::control;
use crate::faults::{ControlFault, NodeFaults, TelemetryFault as Broken};
use crate::metrics::SimMetrics;
use crate::pods::BoundPod;
use crate::redfish::{self, RedfishAnswer};
use crate::site;
use crate::telemetry::TelemetryResponse;
use crate::world::{SimulatedBmcs, SimulatedNode, SimulatedState, SimulatedWorld};
use bytes::Bytes;
use host_kit::bearer::TokenFile;
use host_kit::ops::Ops;
use host_kit::reflect::Rows;
use host_kit::server::Routes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

type Answer = Response<Full<Bytes>>;

/// The handler of the port.
pub(crate) struct Port {
    world: Arc<SimulatedWorld>,
    pods: Rows<BoundPod>,
    metrics: SimMetrics,
    ops: Ops,
    token: Option<TokenFile>,
}

/// The pages of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Telemetry,
    Control,
    State,
    Faults,
}

impl Path {
    fn read(path: &str) -> Option<(Self, String)> {
        let (first, node) = path.strip_prefix('/')?.split_once('/')?;
        let path = match first {
            "telemetry" => Self::Telemetry,
            "control" => Self::Control,
            "state" => Self::State,
            "faults" => Self::Faults,
            _ => return None,
        };
        // An escape that means nothing stays as it is.
        Some((path, percent_decode_str(node).decode_utf8_lossy().into_owned()))
    }

    const fn verbs(self) -> &'static str {
        match self {
            Self::Telemetry | Self::State => "GET",
            Self::Control => "POST",
            Self::Faults => "GET, POST, DELETE",
        }
    }
}

impl Port {
    /// With a token, whoever asks for a node must show it.
    pub(crate) fn new(
        (world, pods): (Arc<SimulatedWorld>, Rows<BoundPod>),
        metrics: SimMetrics,
        ops: Ops,
        token: Option<TokenFile>,
    ) -> Self {
        Self { world, pods, metrics, ops, token }
    }

    fn may_ask(&self, request: &Request<Bytes>) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_shown(request.headers()))
    }

    async fn about(&self, path: Path, name: &str, request: &Request<Bytes>) -> Answer {
        let verb = request.method();
        if !path.verbs().split(", ").any(|known| known == verb.as_str()) {
            let mut refused = told(StatusCode::METHOD_NOT_ALLOWED, &format!("use {}", path.verbs()));
            refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static(path.verbs()));
            return refused;
        }
        if name.trim().is_empty() {
            return told(StatusCode::BAD_REQUEST, "the path names no node");
        }
        let Some(node) = self.world.node(name.trim()) else {
            return told(
                StatusCode::NOT_FOUND,
                &format!("there is no node {name:?} here; GET /nodes lists them"),
            );
        };
        match path {
            Path::Faults => self.faults(node, verb, request.body()),
            Path::State => json(StatusCode::OK, &truth_of(&mut self.world.at(node))),
            Path::Telemetry | Path::Control => {
                let (faults, answers) = {
                    let state = self.world.at(node);
                    (state.faults, state.machine.answers())
                };
                if faults.gone || !answers {
                    return told(StatusCode::GATEWAY_TIMEOUT, "the node does not answer");
                }
                tokio::time::sleep(faults.delay()).await;
                if path == Path::Telemetry {
                    self.telemetry(node)
                } else {
                    self.control(node, request.body())
                }
            }
        }
    }

    /// What is asked about the building; `None` if it is about something else.
    fn about_the_site(&self, request: &Request<Bytes>) -> Option<Answer> {
        let (path, verb) = (request.uri().path(), request.method());
        if *verb == Method::GET && path == "/api/v1/query" {
            let asked = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
            let query = asked.into_iter().find(|(name, _)| name == "query").map(|(_, query)| query);
            let query = query.unwrap_or_default();
            return Some(match site::answer(&query, &self.world, &self.pods) {
                Some(answer) => json(StatusCode::OK, &answer),
                None => told(StatusCode::INTERNAL_SERVER_ERROR, "what answers about the building is broken"),
            });
        }
        let site = self.world.site();
        if path == "/site" {
            match *verb {
                Method::GET => {}
                Method::POST => {
                    if let Err(why) = site.break_sensors(request.body()) {
                        return Some(told(StatusCode::BAD_REQUEST, &why));
                    }
                    tracing::info!("a fault of the sensors was set");
                }
                _ => return Some(told(StatusCode::METHOD_NOT_ALLOWED, "use GET, POST")),
            }
            return Some(json(StatusCode::OK, &site.shown()));
        }
        let zone = percent_decode_str(path.strip_prefix("/site/")?).decode_utf8_lossy();
        if site.zone(&zone).is_none() {
            let why = format!("there is no zone {zone:?} here; GET /site lists them");
            return Some(told(StatusCode::NOT_FOUND, &why));
        }
        match *verb {
            Method::GET => {}
            Method::POST => {
                if let Err(why) = site.set(&zone, request.body()) {
                    return Some(told(StatusCode::BAD_REQUEST, &why));
                }
                tracing::info!(zone = &*zone, "the temperature was set");
            }
            Method::DELETE => site.calm(&zone),
            _ => return Some(told(StatusCode::METHOD_NOT_ALLOWED, "use GET, POST, DELETE")),
        }
        Some(json(StatusCode::OK, &site.zone(&zone)))
    }

    /// What management controllers are asked; `None` if it is something else.
    fn about_power(&self, request: &Request<Bytes>) -> Option<Answer> {
        let mut bmcs = SimulatedBmcs(&self.world);
        let RedfishAnswer { status, document, allow } =
            redfish::answer(&mut bmcs, request.method(), request.uri().path(), request.body())?;
        let mut answer = match document {
            Some(document) => json(status, &document),
            None => with(status, Vec::new()),
        };
        if let Some(allow) = allow {
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        Some(answer)
    }

    fn telemetry(&self, node: &SimulatedNode) -> Answer {
        let now = self.world.clock().wall();
        let mut state = self.world.at(node);
        match state.faults.telemetry {
            Broken::Error => {
                return told(StatusCode::INTERNAL_SERVER_ERROR, "the node's telemetry is broken");
            }
            Broken::Garbage => return text(r#"{"node":"half of an answer","packagePowerWatts":41"#),
            Broken::Empty => return json(StatusCode::OK, &json!({"node": node.member.name, "ts": now})),
            Broken::Stuck => {
                if let Some(shown) = &state.shown {
                    return json(StatusCode::OK, shown);
                }
            }
            Broken::Ok => {}
        }
        let state = &mut *state;
        let fresh = TelemetryResponse::of(&mut state.machine, &state.last, now);
        state.shown = Some(fresh.clone());
        json(StatusCode::OK, &fresh)
    }

    fn control(&self, node: &SimulatedNode, body: &[u8]) -> Answer {
        let now = self.world.clock().wall();
        let mut state = self.world.at(node);
        let state = &mut *state;
        let done = match control::act(&mut state.machine, &mut state.last, &state.faults, body, now) {
            Ok(done) => done,
            Err(why) => return told(StatusCode::BAD_REQUEST, &why),
        };
        self.metrics.controlled(done.action, done.outcome);
        let broken = state.faults.control == ControlFault::Error;
        let status = if broken { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
        json(status, &control::answer(&mut state.machine, &state.last, &done, &node.member.name))
    }

    fn faults(&self, node: &SimulatedNode, verb: &Method, body: &[u8]) -> Answer {
        let set = match *verb {
            Method::POST => match NodeFaults::from_json(body) {
                Ok(faults) => Some(faults),
                Err(why) => return told(StatusCode::BAD_REQUEST, &why),
            },
            Method::DELETE => Some(NodeFaults::default()),
            _ => None,
        };
        let mut state = self.world.at(node);
        if let Some(faults) = set {
            tracing::info!(node = node.member.name, "faults were set: {faults:?}");
            state.faults = faults;
        }
        json(StatusCode::OK, &state.faults)
    }
}

impl Routes for Port {
    type Body = Full<Bytes>;

    async fn answer(&self, request: Request<Bytes>, peer: SocketAddr) -> Answer {
        let path = request.uri().path();
        let is_guarded = |path: &str| {
            let ours = ["/nodes", "/site", "/api/v1/query"];
            let is_below = ["/site/", "/redfish"].iter().any(|part| path.starts_with(part));
            Path::read(path).is_some() || is_below || ours.contains(&path)
        };
        if is_guarded(path) && !self.may_ask(&request) {
            return told(StatusCode::UNAUTHORIZED, "show the token: Authorization: Bearer TOKEN");
        }
        if let Some((path, name)) = Path::read(path) {
            return self.about(path, &name, &request).await;
        }
        if let Some(answer) = self.about_the_site(&request).or_else(|| self.about_power(&request)) {
            return answer;
        }
        if path == "/nodes" && *request.method() == Method::GET {
            let names: Vec<&String> = self.world.nodes().keys().collect();
            return json(StatusCode::OK, &json!({"nodes": names}));
        }
        self.ops.known(&request, peer).await.unwrap_or_else(|| {
            told(
                StatusCode::NOT_FOUND,
                "there are /telemetry/NODE, /control/NODE, /state/NODE, /faults/NODE, /nodes, /site, /site/ZONE, /redfish/v1, /healthz and /metrics",
            )
        })
    }
}

fn told(status: StatusCode, why: &str) -> Answer {
    json(status, &json!({"error": why}))
}

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let text = serde_json::to_vec(value).unwrap_or_else(|_| Value::Null.to_string().into_bytes());
    with(status, text)
}

fn text(text: &str) -> Answer {
    with(StatusCode::OK, text.as_bytes().to_vec())
}

fn with(status: StatusCode, body: Vec<u8>) -> Answer {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The truth about a node, for people and tests, whatever its telemetry shows.
fn truth_of(state: &mut SimulatedState) -> Value {
    let telemetry = TelemetryResponse::of(&mut state.machine, &state.last, state.last.at);
    let machine = &state.machine;
    let pods: Vec<Value> = machine
        .pods()
        .iter()
        .map(|(id, pod)| {
            json!({
                "uid": id.to_string(),
                "done": pod.done(),
                "finished": pod.is_finished(),
                "performance": pod.work.performance,
                "cpus": pod.work.cpus,
                "gpus": pod.work.gpus,
                "cpuClass": pod.work.cpu_class.word(),
                "durationSeconds": pod.work.duration.map(|duration| duration.as_secs_f64()),
            })
        })
        .collect();
    json!({
        "node": machine.name(),
        "state": {
            "simulatedSeconds": machine.now().get() as f64 / 1e6,
            "joules": machine.joules(),
            "power": machine.power().word(),
            "offSeconds": machine.off().seconds,
            "offJoules": machine.off().joules,
            "bootSeconds": machine.booting().seconds,
            "bootJoules": machine.booting().joules,
            "lostPods": machine.lost_pods(),
            "lastAction": state.last.action,
            "lastResult": state.last.outcome.word(),
            "lastUpdate": state.last.at,
            "faults": state.faults,
            "telemetry": telemetry,
            "pods": pods,
        },
    })
}
