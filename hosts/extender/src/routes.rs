//! The two ports: one for kube-scheduler, one for the people who run the extender.

use crate::bind::Binder;
use crate::decide::{self, Outcome};
use crate::expected::Expected;
use crate::explain;
use crate::metrics::{Metrics, Refusal, Verb};
use crate::pods_by_name::{NoPod, PodQuestion};
use crate::reply::Reply;
use crate::request_log::{RequestLog, Sample};
use crate::scan::Malformed;
use crate::seen::SEEN;
use crate::settings::PlacementSettings;
use crate::snapshot::View;
use crate::snapshot_builder::Shown;
use bytes::Bytes;
use host_kit::clock::HostClock;
use host_kit::health::Health;
use host_kit::ops::Ops;
use host_kit::server::{Guard, Routes};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use kube::Client;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;

/// What both ports share.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) shown: Shown,
    pub(crate) expected: Expected,
    pub(crate) placement: PlacementSettings,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn HostClock>,
    pub(crate) guard: Guard,
    pub(crate) log: Option<RequestLog>,
}

/// kube-scheduler's port.
pub(crate) struct Work {
    pub(crate) desk: Desk,
    pub(crate) health: Health,
    /// Binds pods, where that is wished.
    pub(crate) binder: Option<Binder>,
    /// Whether preemptions are answered.
    pub(crate) preempts: bool,
    pub(crate) body_max: usize,
}

/// The port for the people who run the extender.
pub(crate) struct Inside {
    pub(crate) desk: Desk,
    /// For pods that are asked about by their names.
    pub(crate) client: Client,
    pub(crate) ops: Ops,
}

type Decide = fn(&View<'_>, &PlacementSettings, &Bytes) -> Result<(Reply, Outcome), Malformed>;

impl Routes for Work {
    type Body = Reply;

    fn body_max(&self, head: &http::request::Parts) -> Option<usize> {
        // Only these verbs have large bodies.
        let large = matches!(head.uri.path(), "/filter" | "/prioritize" | "/preempt" | "/debug/scoring");
        Some(if large { self.body_max } else { SMALL })
    }

    async fn answer(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<Reply> {
        match request.uri().path() {
            "/filter" => self.desk.decide(Verb::Filter, decide::filter, &request),
            "/prioritize" => self.desk.decide(Verb::Prioritize, decide::prioritize, &request),
            "/bind" if self.binder.is_some() => self.write(&request).await,
            "/preempt" if self.preempts => self.write(&request).await,
            "/debug/scoring" => self.desk.debug(request, peer),
            path => {
                match self.health.answer(request.method(), path, request.uri().query().unwrap_or_default()) {
                    Some(answer) => whole(answer).await,
                    None => text(
                        StatusCode::NOT_FOUND,
                        "there are POST /filter, POST /prioritize, /healthz, /livez and /readyz\n",
                    ),
                }
            }
        }
    }
}

impl Work {
    /// Answers bind and preempt.
    async fn write(&self, request: &Request<Bytes>) -> Response<Reply> {
        if request.method() != Method::POST {
            return not_post();
        }
        let answer = match &self.binder {
            // In a task of its own: a caller that hangs up does not stop it between a card that it took and the binding.
            Some(binder) if request.uri().path() == "/bind" => {
                let (binder, body) = (binder.clone(), request.body().clone());
                let answered = tokio::spawn(async move { binder.answer(&body).await }).await;
                answered.unwrap_or_else(|ended| Err(ended.to_string()))
            }
            Some(_) | None => {
                let snapshot = self.desk.shown.load_full();
                if !snapshot.fleet.synced {
                    return text(StatusCode::SERVICE_UNAVAILABLE, NOT_SYNCED);
                }
                // It tries many sets of pods on many nodes, and must not hold up filter and prioritize meanwhile.
                let (placement, body) = (self.desk.placement, request.body().clone());
                let decided = move || decide::preempt(&snapshot, &placement, &body);
                let answered = tokio::task::spawn_blocking(decided).await;
                answered
                    .map_err(|ended| ended.to_string())
                    .and_then(|answer| answer.map_err(|why| why.to_string()))
            }
        };
        match answer {
            Ok(body) => json(Bytes::from(body).into()),
            Err(why) => refused((StatusCode::BAD_REQUEST, format!("{why}\n"))),
        }
    }
}

/// The largest body for a path that needs none.
const SMALL: usize = 1 << 16;

impl Routes for Inside {
    type Body = Reply;

    async fn answer(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<Reply> {
        match request.uri().path() {
            "/debug/scoring" => return self.desk.debug(request, peer),
            "/debug/explain" => return self.explain(&request.into_parts().0, peer).await,
            _ => {}
        }
        match self.ops.known(&request, peer).await {
            Some(answer) => whole(answer).await,
            None => text(
                StatusCode::NOT_FOUND,
                "there are /metrics, /livez, /readyz, /healthz, /debug/config, /debug/log, /debug/scoring and /debug/explain\n",
            ),
        }
    }
}

impl Inside {
    /// Explains the scores of a pod of the cluster.
    async fn explain(&self, head: &Parts, peer: SocketAddr) -> Response<Reply> {
        if !self.desk.guard.admits(head, peer) {
            return text(StatusCode::FORBIDDEN, NOT_ADMITTED);
        }
        if head.method != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        }
        let question = match PodQuestion::read(head.uri.query().unwrap_or_default()) {
            Ok(question) => question,
            Err(why) => return refused(why),
        };
        match question.fetch(&self.client).await {
            Ok(pod) => self
                .desk
                .page(|view, placement| explain::pod(view, placement, &pod, question.node.as_deref())),
            Err(why) => refused(why),
        }
    }
}

impl Desk {
    fn decide(&self, verb: Verb, decide: Decide, request: &Request<Bytes>) -> Response<Reply> {
        if request.method() != Method::POST {
            return not_post();
        }
        let began = self.clock.mono();
        let (expected, snapshot) = (self.expected.load(), self.shown.load());
        if !snapshot.fleet.synced {
            self.metrics.refused(verb, Refusal::NotSynced);
            return text(StatusCode::SERVICE_UNAVAILABLE, NOT_SYNCED);
        }
        let view = View { snapshot: &snapshot, expected: &expected, now: began };
        match decide(&view, &self.placement, request.body()) {
            Ok((reply, outcome)) => {
                // Record the offer before the answer is sent: the next request may follow at once.
                if let Some(offer) = outcome.offer {
                    self.metrics.displaced(self.expected.offer(offer, began));
                }
                self.metrics.answered(verb, &outcome, self.clock.mono().since(began));
                if let Some(log) = self.log.as_ref().filter(|log| log.is_due()) {
                    let sample = Sample::of(verb, self.clock.wall(), request.body(), &reply, &outcome);
                    let expected = expected.of_others(None, began).count();
                    log.offer(Sample { expected, ..sample });
                }
                let mut answer = json(reply);
                answer.headers_mut().insert(SEEN, snapshot.seen.header());
                answer
            }
            Err(malformed) => {
                self.metrics.refused(verb, Refusal::Malformed);
                tracing::debug!(verb = verb.word(), "{malformed}");
                let mut refused = Response::new(Reply::from(format!("{malformed}\n")));
                *refused.status_mut() = StatusCode::BAD_REQUEST;
                refused
            }
        }
    }

    fn debug(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<Reply> {
        let (head, body) = request.into_parts();
        if !self.guard.admits(&head, peer) {
            return text(StatusCode::FORBIDDEN, NOT_ADMITTED);
        }
        match head.method {
            Method::GET => self.page(|view, placement| Ok(explain::nodes(view, placement))),
            Method::POST => self.page(|view, placement| explain::request(view, placement, &body)),
            _ => {
                text(StatusCode::METHOD_NOT_ALLOWED, "use GET, or POST with a request of kube-scheduler's\n")
            }
        }
    }

    /// A page of what is known now.
    fn page(
        &self,
        explain: impl FnOnce(&View<'_>, &PlacementSettings) -> Result<Value, Malformed>,
    ) -> Response<Reply> {
        let (expected, snapshot) = (self.expected.load(), self.shown.load_full());
        let view = View { snapshot: &snapshot, expected: &expected, now: self.clock.mono() };
        match explain(&view, &self.placement) {
            Ok(page) => json(Reply::from(format!("{page:#}\n"))),
            Err(malformed) => refused((StatusCode::BAD_REQUEST, format!("{malformed}\n"))),
        }
    }
}

const NOT_SYNCED: &str =
    "the extender has not read all objects that it decides by yet; /readyz tells what is missing\n";

fn not_post() -> Response<Reply> {
    let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
    refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    refused
}

const NOT_ADMITTED: &str = "only from this machine, or with the token\n";

fn refused((status, why): NoPod) -> Response<Reply> {
    let mut response = Response::new(Reply::from(why));
    *response.status_mut() = status;
    response
}

fn json(reply: Reply) -> Response<Reply> {
    let mut response = Response::new(reply);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, text: &'static str) -> Response<Reply> {
    let mut response = Response::new(Reply::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// An answer of host-kit, whose body is complete already.
async fn whole(answer: Response<Full<Bytes>>) -> Response<Reply> {
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Response::from_parts(head, bytes.into())
}
