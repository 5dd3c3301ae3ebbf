//! As much of an API server as an election and a watch need, with every answer controlled by the test.

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::mpsc;

type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// How requests are answered.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Health {
    Well,
    Failing,
    Hanging,
}

/// The answers to a list or a watch, in order.
pub(crate) enum Answer {
    Whole(Value),
    Status(u16),
    /// A status with a message.
    Told(u16, &'static str),
    /// A stream that stays open as long as its sender.
    Stream(mpsc::UnboundedReceiver<String>),
    /// No answer, as from a dead connection.
    Never,
}

pub(crate) struct State {
    pub(crate) health: Health,
    /// The one Lease that may exist.
    pub(crate) lease: Option<Value>,
    versions: u64,
    pub(crate) lists: VecDeque<Answer>,
    pub(crate) watches: VecDeque<Answer>,
    /// Method and path with query of every request.
    pub(crate) asked: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            health: Health::Well,
            lease: None,
            versions: 0,
            lists: VecDeque::new(),
            watches: VecDeque::new(),
            asked: Vec::new(),
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move { Ok::<_, Infallible>(fake.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// A watch whose events the test sends.
    pub(crate) fn watch(&self) -> mpsc::UnboundedSender<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().watches.push_back(Answer::Stream(receiver));
        sender
    }

    pub(crate) fn asked(&self, part: &str) -> usize {
        self.state().asked.iter().filter(|line| line.contains(part)).count()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Sent> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let health = {
            let mut state = self.state();
            state.asked.push(format!("{} {}", head.method, head.uri));
            state.health
        };
        match health {
            Health::Well => {}
            Health::Failing => return status(500),
            Health::Hanging => std::future::pending().await,
        }
        if head.uri.path().contains("/leases") {
            return self.lease(&head.method, &body);
        }
        let watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
        let next = {
            let mut state = self.state();
            if watch { state.watches.pop_front() } else { state.lists.pop_front() }
        };
        match next {
            Some(Answer::Whole(value)) => whole(200, &value),
            Some(Answer::Status(code)) => status(code),
            Some(Answer::Told(code, message)) => told(code, message),
            Some(Answer::Stream(lines)) => stream(lines),
            Some(Answer::Never) | None => std::future::pending().await,
        }
    }

    fn lease(&self, method: &Method, body: &Bytes) -> Response<Sent> {
        let mut state = self.state();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        if *method == Method::GET {
            return state.lease.as_ref().map_or_else(|| status(404), |lease| whole(200, lease));
        }
        let mut sent: Value = serde_json::from_slice(body).unwrap();
        let there = state.lease.as_ref().map(version);
        let fits = if *method == Method::POST { there.is_none() } else { there == Some(version(&sent)) };
        if !fits {
            return status(409);
        }
        state.versions += 1;
        sent["metadata"]["resourceVersion"] = state.versions.to_string().into();
        state.lease = Some(sent.clone());
        whole(200, &sent)
    }
}

fn whole(code: u16, value: &Value) -> Response<Sent> {
    let body = Full::new(Bytes::from(value.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn status(code: u16) -> Response<Sent> {
    told(code, "as told")
}

fn told(code: u16, message: &str) -> Response<Sent> {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        _ => "InternalError",
    };
    whole(
        code,
        &json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason}),
    )
}

fn stream(lines: mpsc::UnboundedReceiver<String>) -> Response<Sent> {
    let frames = futures::stream::unfold(lines, |mut lines| async move {
        let line = lines.recv().await?;
        Some((Bytes::from(format!("{line}\n")), lines))
    });
    let frames = frames.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}
