//! What lies between a process and whom it asks: the API server, and the machines of an agent. Requests take their time,
//! get lost on their way, or their answers do after they landed.
//!
//! A process that is killed sends nothing more: what is under way may still land, as in a network, and no answer comes.

use crate::draw::Draw;
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

/// How bad it is, in thousandths of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// Never arrive.
    pub(crate) requests_lost: u64,
    /// Land, and their answers are lost.
    pub(crate) answers_lost: u64,
    /// Take up to some seconds.
    pub(crate) slow: u64,
    /// Are refused by a server that is busy.
    pub(crate) refused: u64,
    /// Nothing goes through at all.
    pub(crate) is_cut: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    /// An error at once, or one after a while.
    Lost(Duration),
    AnswerLost(Duration),
    Slow(Duration),
    Refused(StatusCode),
}

/// The line of one process. It outlives the process, which gets a new one of the same name: the weather stays.
pub(crate) struct Line {
    pub(crate) name: String,
    scene: Arc<Scene>,
    state: Mutex<(Weather, Draw)>,
    may_grant: AtomicBool,
}

/// Whether a process lives.
pub(crate) type Alive = Arc<AtomicBool>;

/// A connection that hangs does so for up to this long.
const HANGS_MOST_MS: u64 = 20_000;
const SLOW_MOST_MS: u64 = 4_000;

impl Line {
    pub(crate) fn new(name: &str, seed: u64, scene: &Arc<Scene>) -> Self {
        let state = Mutex::new((Weather::default(), Draw::new(seed, name)));
        Self { name: name.to_owned(), scene: scene.clone(), state, may_grant: AtomicBool::new(true) }
    }

    /// Another weather from now on.
    pub(crate) fn weather(&self, weather: Weather) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = weather;
    }

    /// Whether whoever writes along this line may write grants.
    pub(crate) fn may_grant(&self, may: bool) {
        self.may_grant.store(may, Ordering::Relaxed);
    }

    /// What the API server says to a request for want of a right.
    fn forbids(&self, method: &Method, path: &str) -> bool {
        let writes = *method != Method::GET && path.contains("/nodepowergrants");
        writes && !self.may_grant.load(Ordering::Relaxed)
    }

    /// Whether every request arrives, and its answer.
    pub(crate) fn is_fine(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 == Weather::default()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.is_cut
    }

    /// The next request's way there, its fate and its answer's way back.
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

/// Nobody is there any more to whom an answer would mean something.
async fn while_alive(alive: &Alive) {
    if !alive.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection was lost")
}

/// A process's client of the API server.
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
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
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

/// A watch ends with its process, and breaks off when the line is cut.
fn flowing(response: Response<kube::client::Body>, line: &Arc<Line>, alive: &Alive) -> Answer {
    let (line, alive) = (line.clone(), alive.clone());
    response.map(move |body| {
        let frames = BodyStream::new(body).map(move |frame| match frame {
            _ if !alive.load(Ordering::Relaxed) || line.is_cut() => Err(lost()),
            Ok(frame) => Ok(frame),
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

/// A request for people: what is behind the name of its group, and of a body what it wants.
fn said(method: &Method, path: &str, query: &str, body: &[u8]) -> String {
    let short =
        path.rsplit_once("/v1alpha1/").or_else(|| path.rsplit_once("/v1/")).map_or(path, |(_, short)| short);
    if *method == Method::GET {
        let watch = if query.contains("watch=") { " (watch)" } else { "" };
        return format!("{method} {short}{watch}");
    }
    let text = String::from_utf8_lossy(body);
    // The spec or the status of an object; all of a JSON Patch.
    let parts = ["\"spec\":", "\"status\":", "\"labels\":"].into_iter();
    let wanted =
        if text.starts_with('[') { Some(0) } else { parts.filter_map(|part| text.find(part)).next() };
    let wanted: String =
        wanted.map_or("", |at| text.get(at..).unwrap_or_default()).chars().take(240).collect();
    format!("{method} {short} {wanted}")
}

/// An agent's way to its machines.
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
            // A machine that is down says nothing; the agent gives up by itself.
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

/// The machine's end of the contract.
fn at_machine(scene: &Scene, request: &Request<Bytes>) -> Option<(StatusCode, Bytes)> {
    let path = request.uri().path();
    if let Some(node) = path.strip_prefix("/telemetry/") {
        return scene.telemetry(node).map(|body| (StatusCode::OK, body));
    }
    match path.strip_prefix("/control/") {
        Some(node) => scene.control(node, request.body()),
        None => Some((StatusCode::NOT_FOUND, Bytes::new())),
    }
}
