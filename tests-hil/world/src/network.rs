//! The connection between a process and its servers: the API server, and the machines of an agent. Requests are
//! delayed or lost, or they are executed and their answers are lost.
//!
//! A killed process sends nothing more. A request that is under way may still be executed, as in a network, but it
//! gets no answer.

use crate::draw::Draw;
use crate::older;
use crate::scene::Scene;
use crate::story::Weight;
use bytes::Bytes;
use embedded_api::EmbeddedApi;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use host_kit::http_client::Carrier;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use serde_json::json;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tower::service_fn;

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// The fault rates, in thousandths of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// Requests that never arrive.
    pub(crate) requests_lost: u64,
    /// Requests that are executed, and whose answers are lost.
    pub(crate) answers_lost: u64,
    /// Requests that take up to some seconds.
    pub(crate) slow: u64,
    /// Requests that a busy server refuses.
    pub(crate) refused: u64,
    /// Whether nothing passes at all.
    pub(crate) is_cut: bool,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    /// An error at once or after a while.
    Lost(Duration),
    AnswerLost(Duration),
    Slow(Duration),
    Refused(StatusCode),
}

/// The connection of one process. It outlives the process: its successor has the same name and the same fault rates.
pub(crate) struct Line {
    pub(crate) name: String,
    scene: Arc<Scene>,
    state: Mutex<(Weather, Draw)>,
    may_grant: AtomicBool,
    is_older: bool,
    has_older_definitions: bool,
}

/// Whether a process is alive.
pub(crate) type Alive = Arc<AtomicBool>;

/// The longest time for which a connection hangs.
const HANGS_MOST_MS: u64 = 20_000;
const SLOW_MOST_MS: u64 = 4_000;

impl Line {
    pub(crate) fn new(name: &str, seed: u64, scene: &Arc<Scene>) -> Self {
        let state = Mutex::new((Weather::default(), Draw::new(seed, name)));
        let may_grant = AtomicBool::new(true);
        let (is_older, has_older_definitions) = (false, false);
        Self {
            name: name.to_owned(),
            scene: scene.clone(),
            state,
            may_grant,
            is_older,
            has_older_definitions,
        }
    }

    /// The connection of a program that does not know the fields of this version.
    pub(crate) fn of_an_older_program(self, is_older: bool) -> Self {
        Self { is_older, ..self }
    }

    /// The connection to a server that drops the fields of this version.
    pub(crate) fn with_older_definitions(self, has_older_definitions: bool) -> Self {
        Self { has_older_definitions, ..self }
    }

    /// What a program knows of what passes here.
    fn known(&self, bytes: Bytes) -> Bytes {
        let Some(known) = self.is_older.then(|| older::without(&bytes)).flatten() else { return bytes };
        self.scene.count(older::DROPPED);
        known
    }

    /// Sets the fault rates from now on.
    pub(crate) fn weather(&self, weather: Weather) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = weather;
    }

    /// Sets whether the process with this connection may write grants.
    pub(crate) fn may_grant(&self, may: bool) {
        self.may_grant.store(may, Ordering::Relaxed);
    }

    /// Whether the API server refuses a request because of a missing right.
    fn forbids(&self, method: &Method, path: &str) -> bool {
        let writes = *method != Method::GET && path.contains("/nodepowergrants");
        writes && !self.may_grant.load(Ordering::Relaxed)
    }

    /// Whether every request and every answer arrives.
    pub(crate) fn is_fine(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 == Weather::default()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.is_cut
    }

    /// Draws the next request's delay, its fate and the delay of its answer.
    fn draw(&self) -> (Duration, Fate, Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (weather, draw) = &mut *state;
        let (there, back) = (draw.millis(1, 4), draw.millis(1, 4));
        let hangs = if draw.permille(500) { draw.millis(1, HANGS_MOST_MS) } else { Duration::from_millis(1) };
        let fate = if weather.is_cut {
            self.scene.count("requests cut off");
            Fate::Lost(hangs)
        } else if draw.permille(weather.requests_lost) {
            self.scene.count("requests lost");
            Fate::Lost(hangs)
        } else if draw.permille(weather.answers_lost) {
            self.scene.count("answers lost");
            Fate::AnswerLost(hangs)
        } else if draw.permille(weather.slow) {
            self.scene.count("requests slow");
            Fate::Slow(draw.millis(100, SLOW_MOST_MS))
        } else if draw.permille(weather.refused) {
            self.scene.count("requests refused");
            let codes = [
                StatusCode::INTERNAL_SERVER_ERROR,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::CONFLICT,
            ];
            Fate::Refused(codes[draw.index(codes.len())])
        } else {
            Fate::Fine
        };
        (there, fate, back)
    }
}

/// Blocks if the process has been killed, because it must not receive an answer.
async fn while_alive(alive: &Alive) {
    if !alive.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection was lost")
}

/// A process's client for the API server.
pub(crate) fn client(api: &EmbeddedApi, line: &Arc<Line>, alive: &Alive) -> kube::Client {
    let (inner, line, alive) = (api.client_as(&line.name), line.clone(), alive.clone());
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let (inner, line, alive) = (inner.clone(), line.clone(), alive.clone());
        async move { ask_api(&inner, &line, &alive, request).await }
    });
    kube::Client::new(service, "default")
}

async fn ask_api(
    inner: &kube::Client,
    line: &Arc<Line>,
    alive: &Alive,
    request: Request<kube::client::Body>,
) -> io::Result<Answer> {
    while_alive(alive).await;
    let (head, body) = request.into_parts();
    let body = line.known(body.collect().await.map_err(io::Error::other)?.to_bytes());
    let what = said(&head.method, head.uri.path(), head.uri.query().unwrap_or_default(), &body);
    let reads = head.method == Method::GET;
    let (there, fate, back) = line.draw();
    tokio::time::sleep(there).await;
    let tell = |came: &str| {
        let is_told = !reads && !head.uri.path().contains("/leases/") || fate != Fate::Fine;
        let weight = if is_told { Weight::Told } else { Weight::Noise };
        line.scene.tell(weight, format!("{}: {what} ⇒ {came}", line.name));
    };
    match fate {
        Fate::Lost(hangs) => {
            tell("lost");
            tokio::time::sleep(hangs).await;
            while_alive(alive).await;
            return Err(lost());
        }
        Fate::Refused(code) => {
            tell(code.as_str());
            tokio::time::sleep(back).await;
            while_alive(alive).await;
            return Ok(refusal(code));
        }
        Fate::Slow(by) => tokio::time::sleep(by).await,
        Fate::Fine | Fate::AnswerLost(_) => {}
    }
    if line.forbids(&head.method, head.uri.path()) {
        line.scene.count("writes forbidden");
        tell("403");
        tokio::time::sleep(back).await;
        while_alive(alive).await;
        return Ok(refusal(StatusCode::FORBIDDEN));
    }
    if line.has_older_definitions && older::without(&body).is_some() {
        line.scene.count(older::NOT_STORED);
    }
    let request = Request::from_parts(head.clone(), kube::client::Body::from(body.clone()));
    let response = inner.send(request).await.map_err(io::Error::other)?;
    match fate {
        Fate::AnswerLost(hangs) => {
            tell(&format!("{}, and the answer is lost", response.status().as_u16()));
            tokio::time::sleep(hangs).await;
            while_alive(alive).await;
            return Err(lost());
        }
        Fate::Fine | Fate::Slow(_) | Fate::Lost(_) | Fate::Refused(_) => tell(response.status().as_str()),
    }
    tokio::time::sleep(back).await;
    while_alive(alive).await;
    Ok(flowing(response, line, alive))
}

/// Ends a watch with its process, and interrupts it when the connection is cut.
fn flowing(response: Response<kube::client::Body>, line: &Arc<Line>, alive: &Alive) -> Answer {
    let (line, alive) = (line.clone(), alive.clone());
    response.map(move |body| {
        let frames = BodyStream::new(body).map(move |frame| match frame {
            _ if !alive.load(Ordering::Relaxed) || line.is_cut() => Err(lost()),
            Ok(frame) => Ok(frame.map_data(|bytes| line.known(bytes))),
            Err(error) => Err(io::Error::other(error)),
        });
        BodyExt::boxed_unsync(StreamBody::new(frames))
    })
}

fn refusal(code: StatusCode) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
        "reason": code.canonical_reason().unwrap_or_default(), "message": "injected"});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut response = Response::new(BodyExt::boxed_unsync(body));
    *response.status_mut() = code;
    response
}

/// A request in words: its path without the group, and the relevant part of its body.
fn said(method: &Method, path: &str, query: &str, body: &[u8]) -> String {
    let short =
        path.rsplit_once("/v1alpha1/").or_else(|| path.rsplit_once("/v1/")).map_or(path, |(_, short)| short);
    if *method == Method::GET {
        let watch = if query.contains("watch=") { " (watch)" } else { "" };
        return format!("{method} {short}{watch}");
    }
    let text = String::from_utf8_lossy(body);
    // The spec or the status of an object, or a whole JSON Patch.
    let parts = ["\"spec\":", "\"status\":", "\"labels\":"].into_iter();
    let wanted =
        if text.starts_with('[') { Some(0) } else { parts.filter_map(|part| text.find(part)).next() };
    let wanted: String =
        wanted.map_or("", |at| text.get(at..).unwrap_or_default()).chars().take(240).collect();
    format!("{method} {short} {wanted}")
}

/// The connection of an agent to its machines.
pub(crate) struct Road {
    line: Arc<Line>,
    alive: Alive,
}

impl Road {
    pub(crate) fn new(line: &Arc<Line>, alive: &Alive) -> Self {
        Self { line: line.clone(), alive: alive.clone() }
    }
}

impl Carrier for Road {
    fn carry(&self, request: Request<Bytes>) -> BoxFuture<'static, io::Result<Response<Bytes>>> {
        let (line, alive) = (self.line.clone(), self.alive.clone());
        async move {
            while_alive(&alive).await;
            let (there, fate, back) = line.draw();
            tokio::time::sleep(there).await;
            if fate != Fate::Fine {
                line.scene.tell(
                    Weight::Told,
                    format!("{}: {} {} {fate:?}", line.name, request.method(), request.uri().path()),
                );
            }
            match fate {
                Fate::Lost(hangs) => {
                    tokio::time::sleep(hangs).await;
                    return Err(lost());
                }
                Fate::Refused(code) => {
                    let mut response = Response::new(Bytes::new());
                    *response.status_mut() = code;
                    return Ok(response);
                }
                Fate::Slow(by) => tokio::time::sleep(by).await,
                Fate::Fine | Fate::AnswerLost(_) => {}
            }
            let answer = at_machine(&line.scene, &request);
            if let Fate::AnswerLost(hangs) = fate {
                tokio::time::sleep(hangs).await;
                return Err(lost());
            }
            // A machine that is down does not answer; the agent's timeout ends the request.
            let Some((status, body)) = answer else { return std::future::pending().await };
            tokio::time::sleep(back).await;
            while_alive(&alive).await;
            let mut response = Response::new(body);
            *response.status_mut() = status;
            Ok(response)
        }
        .boxed()
    }
}

/// The machine's side of the contract.
fn at_machine(scene: &Scene, request: &Request<Bytes>) -> Option<(StatusCode, Bytes)> {
    let path = request.uri().path();
    if let Some(node) = path.strip_prefix("/telemetry/") {
        return scene.telemetry(node).map(|body| (StatusCode::OK, body));
    }
    if let Some(rest) = path.strip_prefix("/redfish/v1/Systems/") {
        let node = rest.split('/').next().unwrap_or_default();
        return scene.redfish(node, request.method(), request.body());
    }
    match path.strip_prefix("/control/") {
        Some(node) => scene.control(node, request.body()),
        None => Some((StatusCode::NOT_FOUND, Bytes::new())),
    }
}
