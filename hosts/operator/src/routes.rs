//! The operator's port: metrics, health and debugging, `/debug/plan`, which says what the last pass decided and why, and the live
//! page, where it is asked for.
//!
//! The loop that plans answers it between two passes, so that nothing is copied for a question that nobody asks.

use bytes::Bytes;
use host_kit::ops::Ops;
use host_kit::server::{Guard, Routes};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use page::hub::UiBody;
use page::serve::{Ui, names_this_machine};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The path.
const PLAN: &str = "/debug/plan";
/// Questions that wait at the same time; more are refused.
const WAITING_MAX: usize = 4;
/// A pass over thousands of nodes takes a part of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question about the plan.
pub(crate) struct PlanQuestion {
    /// The only node that is asked for, if it is one.
    pub(crate) node: Option<String>,
    /// Where the answer goes.
    pub(crate) answer: oneshot::Sender<PlanAnswer>,
}

/// The answer.
pub(crate) enum PlanAnswer {
    /// The page.
    Page(String),
    /// This process has made no pass in this term.
    NoPass,
    /// No such node is planned.
    NoNode,
}

/// The port.
pub(crate) struct Port {
    ops: Ops,
    guard: Guard,
    questions: mpsc::Sender<PlanQuestion>,
    ui: Option<Ui>,
}

impl Port {
    /// The port, and the questions that come to it.
    pub(crate) fn new(ops: Ops, guard: Guard, ui: Option<Ui>) -> (Self, mpsc::Receiver<PlanQuestion>) {
        let (questions, asked) = mpsc::channel(WAITING_MAX);
        (Self { ops, guard, questions, ui }, asked)
    }

    /// The live page, for whom `/debug` is. Who shows no token must name this machine: a browser shows a page of another site, whose
    /// name leads here, what a forwarded port answers.
    async fn page(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<UiBody> {
        let Some(ui) = &self.ui else {
            return text(StatusCode::NOT_FOUND, "the page is off: set UI=read\n").map(BodyExt::boxed_unsync);
        };
        let (head, body) = request.into_parts();
        let may = self.guard.admits(&head, peer);
        if !may || !(self.guard.is_shown(&head) || names_this_machine(&head.headers)) {
            let why = "only from this machine and by its address (kubectl port-forward), or with the token\n";
            return text(StatusCode::FORBIDDEN, why).map(BodyExt::boxed_unsync);
        }
        let answer = ui.answer(&head, &body).await;
        let nothing = || text(StatusCode::NOT_FOUND, "the page is at /ui/\n").map(BodyExt::boxed_unsync);
        answer.unwrap_or_else(nothing)
    }

    async fn plan(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let (head, _) = request.into_parts();
        if !self.guard.admits(&head, peer) {
            return text(StatusCode::FORBIDDEN, "only from this machine, or with the token\n");
        }
        if head.method != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        }
        let node = match head.uri.query().filter(|query| !query.is_empty()) {
            None => None,
            Some(query) => match query.strip_prefix("node=").filter(|name| !name.is_empty()) {
                Some(name) => Some(name.to_owned()),
                None => return text(StatusCode::BAD_REQUEST, "the one parameter is ?node=NAME\n"),
            },
        };
        let (answer, answered) = oneshot::channel();
        if self.questions.try_send(PlanQuestion { node, answer }).is_err() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "others ask at the same time: ask again\n");
        }
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(PlanAnswer::Page(page))) => {
                let mut response = Response::new(Full::from(page));
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                response
            }
            Ok(Ok(PlanAnswer::NoPass)) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "this process has made no pass: ask the one that the Lease joulie-operator names, or wait\n",
            ),
            Ok(Ok(PlanAnswer::NoNode)) => text(StatusCode::NOT_FOUND, "no node of this name is planned\n"),
            Ok(Err(_)) | Err(_) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer: look at /livez\n")
            }
        }
    }
}

impl Routes for Port {
    type Body = UiBody;

    async fn answer(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<UiBody> {
        let path = request.uri().path();
        if path == "/ui" || path.starts_with("/ui/") {
            return self.page(request, peer).await;
        }
        let answer = if path == PLAN {
            self.plan(request, peer).await
        } else {
            let known = self.ops.known(&request, peer).await;
            known.unwrap_or_else(|| {
                text(
                    StatusCode::NOT_FOUND,
                    "there are /metrics, /livez, /readyz, /healthz, /debug/config, /debug/log, /debug/plan and /ui/\n",
                )
            })
        };
        answer.map(BodyExt::boxed_unsync)
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
