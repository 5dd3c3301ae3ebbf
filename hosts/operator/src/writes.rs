//! Writes: what is sent to the API server for one node, in order, and the outcome.
//!
//! A job is the work for one node. Its writes are sent one after the other, each only after the previous one succeeded.
//! Jobs of several nodes are sent in parallel, so that a node that fails or hangs delays no other. A process that does
//! not lead at that moment sends nothing.

mod queue;

pub(crate) use queue::Lane;

use self::queue::Queue;
use crate::publish::MANAGER;
use host_kit::clock::HostClock;
use host_kit::leader::{Leadership, Term};
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The target of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// The labels of the node.
    Node,
    /// The taint of the node.
    Taint,
    /// Mark, cordon and taint of a node that sleeps.
    Sleep,
    /// NodePowerProfile.
    Profile,
    /// Its status.
    ProfileStatus,
    /// NodeTwin.
    Twin,
    /// Its status.
    TwinStatus,
    /// NodePowerGrant.
    Grant,
    /// What a NodePowerGrant says beside the grant: the PowerBudget that its node is in, and what events leave.
    GrantLabel,
    /// The status of a PowerBudget.
    BudgetStatus,
    /// The status of a PowerEvent.
    EventStatus,
}

impl Target {
    /// All of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::Node,
        Self::Taint,
        Self::Sleep,
        Self::Profile,
        Self::ProfileStatus,
        Self::Twin,
        Self::TwinStatus,
        Self::Grant,
        Self::GrantLabel,
        Self::BudgetStatus,
        Self::EventStatus,
    ];

    /// The kind, for logs and metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Node => "labels",
            Self::Taint => "taint",
            Self::Sleep => "sleep",
            Self::Profile => "profile",
            Self::ProfileStatus => "profile-status",
            Self::Twin => "twin",
            Self::TwinStatus => "twin-status",
            Self::Grant => "grant",
            Self::GrantLabel => "grant-label",
            Self::BudgetStatus => "budget-status",
            Self::EventStatus => "event-status",
        }
    }

    /// The path of an object.
    fn path(self, name: &str) -> String {
        let joulie = "/apis/joulie.io/v1alpha1";
        match self {
            Self::Node | Self::Taint | Self::Sleep => format!("/api/v1/nodes/{name}"),
            Self::Profile => format!("{joulie}/nodepowerprofiles/{name}"),
            Self::ProfileStatus => format!("{joulie}/nodepowerprofiles/{name}/status"),
            Self::Twin => format!("{joulie}/nodetwins/{name}"),
            Self::TwinStatus => format!("{joulie}/nodetwins/{name}/status"),
            Self::Grant | Self::GrantLabel => format!("{joulie}/nodepowergrants/{name}"),
            Self::BudgetStatus => format!("{joulie}/powerbudgets/{name}/status"),
            Self::EventStatus => format!("{joulie}/powerevents/{name}/status"),
        }
    }
}

/// How an object is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    /// Server-side apply of this configuration. It takes over fields of others only if an operator of another
    /// generation owned them.
    Apply {
        /// The configuration.
        document: Value,
        /// Whether fields of others are taken over.
        force: bool,
    },
    /// Creates the object, if there is none of its name.
    Create {
        /// The object.
        document: Value,
    },
    /// A merge patch, which names the version that it is based on.
    Merge {
        /// The patch.
        document: Value,
    },
    /// A JSON patch, which tests what it replaces.
    Replace {
        /// The patch.
        patch: Value,
    },
    /// Deletes the object with this uid.
    Delete {
        /// The uid.
        uid: String,
    },
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    /// The target.
    pub(crate) target: Target,
    /// The name of the object.
    pub(crate) name: String,
    /// How it is written.
    pub(crate) how: How,
}

/// The writes for one node.
#[derive(Debug)]
pub(crate) struct Job<Then> {
    /// The node.
    pub(crate) node: Arc<str>,
    /// The lane of the job.
    pub(crate) lane: Lane,
    /// The writes, in this order.
    pub(crate) writes: Vec<Write>,
    /// What to do when all have succeeded.
    pub(crate) then: Then,
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Somebody else owns a field; with the server's message.
    Owned(String),
    /// The object was replaced or has changed.
    Stale(String),
    /// The object does not exist.
    Gone,
    /// The server refuses it and will refuse it again.
    Refused(String),
    /// The server is busy or away; with the time for which it asks clients to wait.
    Away(String, Option<Duration>),
    /// This process does not lead any more.
    NotLeading,
}

impl Trouble {
    /// The reason in words.
    pub(crate) fn words(&self) -> &str {
        match self {
            Self::Owned(why) | Self::Stale(why) | Self::Refused(why) | Self::Away(why, _) => why,
            Self::Gone => "it is not there any more",
            Self::NotLeading => "this process does not lead any more",
        }
    }
}

/// A write that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    /// The target.
    pub(crate) target: Target,
    /// The version in which it left the object.
    pub(crate) version: String,
}

/// The outcome of a job.
#[derive(Debug)]
pub(crate) struct Outcome<Then> {
    /// The node.
    pub(crate) node: Arc<str>,
    /// The writes that succeeded.
    pub(crate) landed: Vec<Landed>,
    /// The first write that failed, and why.
    pub(crate) failed: Option<(Target, Trouble)>,
    /// What the job was for.
    pub(crate) then: Then,
}

/// Sends jobs.
pub(crate) struct Writers<Then> {
    queue: Arc<Queue<(Job<Then>, Term)>>,
}

/// Jobs that have not started when another process leads, or when this is dropped, are left for the next leader to plan
/// again.
impl<Then> Drop for Writers<Then> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl<Then: Send + 'static> Writers<Then> {
    /// Runs at most `most` jobs at once; their outcomes arrive at the receiver.
    pub(crate) fn new(
        client: &Client,
        leadership: &Leadership,
        clock: &Arc<dyn HostClock>,
        timeout: Duration,
        most: usize,
    ) -> (Self, mpsc::UnboundedReceiver<Outcome<Then>>) {
        let (outcomes, receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(Queue::new());
        for writer in 0..most {
            let (queue, outcomes) = (queue.clone(), outcomes.clone());
            let (client, leadership, clock) = (client.clone(), leadership.clone(), clock.clone());
            tokio::spawn(async move {
                while let Some((job, term)) = queue.next(Lane::preferred_by(writer)).await {
                    let leads = || leadership.term(clock.mono()) == Some(term);
                    // If there is no receiver, the program is ending.
                    let _ = outcomes.send(carry_out(&client, job, leads, timeout).await);
                }
            });
        }
        (Self { queue }, receiver)
    }

    /// Queues a job in the given term of leadership.
    pub(crate) fn send(&self, job: Job<Then>, term: Term) {
        self.queue.put(job.lane, (job, term));
    }
}

/// Sends the writes of a job, one after the other, until one fails.
async fn carry_out<Then>(
    client: &Client,
    job: Job<Then>,
    leads: impl Fn() -> bool,
    timeout: Duration,
) -> Outcome<Then> {
    let Job { node, writes, then, lane: _ } = job;
    let (mut landed, mut failed) = (Vec::new(), None);
    for write in writes {
        let target = write.target;
        let result = if leads() { one(client, write, timeout).await } else { Err(Trouble::NotLeading) };
        match result {
            Ok(one) => landed.push(one),
            Err(trouble) => {
                failed = Some((target, trouble));
                break;
            }
        }
    }
    Outcome { node, landed, failed, then }
}

/// Sends one write, with a limit of `timeout`.
async fn one(client: &Client, write: Write, timeout: Duration) -> Result<Landed, Trouble> {
    let late = |_| Err(Trouble::Away("no answer in time".to_owned(), None));
    tokio::time::timeout(timeout, send(client, write)).await.unwrap_or_else(late)
}

async fn send(client: &Client, write: Write) -> Result<Landed, Trouble> {
    let Write { target, name, how } = write;
    let path = target.path(&name);
    let object = match how {
        How::Apply { document, force } => ask(client, apply(&path, &document, force)).await?,
        How::Create { document } => {
            let all = path.strip_suffix(&format!("/{name}")).unwrap_or(&path);
            ask(client, timed("POST", all, "application/json", &document)).await?
        }
        How::Merge { document } => {
            ask(client, timed("PATCH", &path, "application/merge-patch+json", &document)).await?
        }
        How::Replace { patch } => {
            ask(client, timed("PATCH", &path, "application/json-patch+json", &patch)).await?
        }
        How::Delete { uid } => return gone(client, target, delete(&path, &uid)).await,
    };
    Ok(landed(target, &object))
}

/// A request that the server gives up by itself, so that a leader after us need not wait longer for what we sent.
pub(crate) fn timed(
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> http::Result<http::Request<Vec<u8>>> {
    http::Request::builder()
        .method(method)
        .uri(format!("{path}?fieldManager={MANAGER}&timeout={}s", SERVER_TIMEOUT.as_secs()))
        .header(http::header::CONTENT_TYPE, kind)
        .body(body.to_string().into_bytes())
}

/// The longest time that the server works on a grant.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Deletes an object; one that does not exist any more counts as deleted.
async fn gone(
    client: &Client,
    target: Target,
    request: http::Result<http::Request<Vec<u8>>>,
) -> Result<Landed, Trouble> {
    match ask(client, request).await {
        Ok(object) => Ok(landed(target, &object)),
        Err(Trouble::Gone) => Ok(Landed { target, version: String::new() }),
        Err(trouble) => Err(trouble),
    }
}

fn landed(target: Target, object: &Value) -> Landed {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    Landed { target, version }
}

/// Sends a request, and reads the object in the answer.
pub(crate) async fn ask(
    client: &Client,
    request: http::Result<http::Request<Vec<u8>>>,
) -> Result<Value, Trouble> {
    let request = request.map_err(|error| Trouble::Refused(error.to_string()))?;
    client.request::<Value>(request).await.map_err(trouble)
}

/// The request that applies a configuration.
pub(crate) fn apply(path: &str, document: &Value, force: bool) -> http::Result<http::Request<Vec<u8>>> {
    apply_as(MANAGER, path, document, force)
}

/// The request that applies a configuration for a given field manager.
pub(crate) fn apply_as(
    manager: &str,
    path: &str,
    document: &Value,
    force: bool,
) -> http::Result<http::Request<Vec<u8>>> {
    let force = if force { "&force=true" } else { "" };
    http::Request::patch(format!("{path}?fieldManager={manager}{force}"))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(document.to_string().into_bytes())
}

/// The request that deletes the object with this uid.
pub(crate) fn delete(path: &str, uid: &str) -> http::Result<http::Request<Vec<u8>>> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    http::Request::delete(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(options.to_string().into_bytes())
}

/// Classifies an error of the client.
pub(crate) fn trouble(error: kube::Error) -> Trouble {
    let kube::Error::Api(status) = error else { return Trouble::Away(error.to_string(), None) };
    let message = status.message.clone();
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    match status.code {
        404 => Trouble::Gone,
        409 if causes.iter().any(|cause| cause.reason == "FieldManagerConflict") => Trouble::Owned(message),
        409 => Trouble::Stale(message),
        429 | 503 => {
            let after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Trouble::Away(message, (after > 0).then(|| Duration::from_secs(u64::from(after))))
        }
        code if code >= 500 => Trouble::Away(message, None),
        _ => Trouble::Refused(message),
    }
}

#[cfg(test)]
mod tests;
