//! Evictions: what is sent to move one pod, and what came of it.
//!
//! ```text
//! owner read ──▶ cooling down? ──▶ owner annotated ──▶ eviction asked for ──▶ evicted
//!                                                            │ denied, gone
//!                                                            └──▶ annotation as it was before
//! ```
//!
//! The owner is annotated first, with the version that was read: of two leaders only one succeeds, and a later one sees
//! the time. An eviction without an answer may have happened, so the annotation stays. Orders are carried out one at a
//! time. A process that does not lead at that moment sends nothing, nor does one whose settings do not ask for evictions
//! any more.

mod owner;

pub(crate) use owner::OwnerKind;

use crate::settings::Settings;
use crate::writes::{Trouble, ask, timed};
use host_kit::clock::HostClock;
use host_kit::closed_label;
use host_kit::config::Live;
use host_kit::leader::{Leadership, Term};
use jiff::Timestamp;
use joulie_api::node_twin::RescheduleCause;
use joulie_core::placement::class::SchedulableClass;
use kube::Client;
use owner::{OwnerNow, annotations};
use planner::migration::eviction::EvictionOutcome;
use planner::plan::DrainOverdue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// One pod to evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvictionOrder {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its identity: another pod of this name stays.
    pub(crate) uid: String,
    /// Its node.
    pub(crate) node: String,
    /// The class that its node offers.
    pub(crate) from_class: SchedulableClass,
    /// Why, in one word.
    pub(crate) cause: RescheduleCause,
    /// Why, in words.
    pub(crate) reason: String,
    /// A node that could accept it.
    pub(crate) to: String,
    /// The kind of its controller.
    pub(crate) owner_kind: OwnerKind,
    /// The name of its controller.
    pub(crate) owner_name: String,
    /// The key of its controller.
    pub(crate) owner: String,
    /// Whether the overdue drain of its node is why.
    pub(crate) ends_drain: bool,
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvictionEnd {
    /// The pod is being evicted.
    Evicted,
    /// A disruption budget or another rule forbids it; with the server's words.
    Denied(String),
    /// The pod does not exist any more.
    Gone,
    /// Another pod of the controller was evicted recently.
    CoolingDown(String),
    /// It could not be asked for; nothing has moved.
    Failed(String),
    /// It was asked for, and there was no answer.
    Unknown(String),
    /// This process does not lead any more, or evictions are not asked for any more.
    Withdrawn,
}

closed_label! {
    /// The result of an eviction.
    pub(crate) enum EvictionResult {
        /// The pod is being evicted.
        Evicted = "evicted",
        /// A disruption budget or another rule forbids it.
        Denied = "denied",
        /// The pod did not exist any more.
        Gone = "gone",
        /// Another pod of its controller was evicted recently.
        CoolingDown = "cooling_down",
        /// It could not be asked for.
        Failed = "failed",
        /// There was no answer.
        Unknown = "unknown",
        /// This process did not lead any more, or evictions were not asked for any more.
        Withdrawn = "withdrawn",
        /// It would have been asked for.
        DryRun = "dry_run",
    }
}

impl EvictionEnd {
    /// The result for metrics.
    pub(crate) const fn result(&self) -> EvictionResult {
        match self {
            Self::Evicted => EvictionResult::Evicted,
            Self::Denied(_) => EvictionResult::Denied,
            Self::Gone => EvictionResult::Gone,
            Self::CoolingDown(_) => EvictionResult::CoolingDown,
            Self::Failed(_) => EvictionResult::Failed,
            Self::Unknown(_) => EvictionResult::Unknown,
            Self::Withdrawn => EvictionResult::Withdrawn,
        }
    }

    /// The outcome for the law; `None` if nobody knows it.
    pub(crate) const fn outcome(&self) -> Option<EvictionOutcome> {
        match self {
            Self::Evicted => Some(EvictionOutcome::Evicted),
            Self::Denied(_) | Self::CoolingDown(_) | Self::Failed(_) | Self::Withdrawn => {
                Some(EvictionOutcome::Denied)
            }
            Self::Gone => Some(EvictionOutcome::Gone),
            Self::Unknown(_) => None,
        }
    }
}

/// An order that has ended.
#[derive(Debug)]
pub(crate) struct EndedEviction {
    /// The order.
    pub(crate) order: EvictionOrder,
    /// The term in which it was given.
    pub(crate) term: Term,
    /// What came of it.
    pub(crate) became: EvictionEnd,
}

/// Carries out orders.
pub(crate) struct Evictions {
    orders: mpsc::UnboundedSender<(EvictionOrder, Term, Duration)>,
}

impl Evictions {
    /// Waits for orders; what comes of them arrives at the receiver. There are never more orders than the budget of the
    /// cluster allows.
    pub(crate) fn new(
        client: &Client,
        leadership: &Leadership,
        clock: &Arc<dyn HostClock>,
        live: &Live<Settings>,
    ) -> (Self, mpsc::UnboundedReceiver<EndedEviction>) {
        let (orders, mut waiting) = mpsc::unbounded_channel::<(EvictionOrder, Term, Duration)>();
        let (ended, receiver) = mpsc::unbounded_channel();
        let (client, leadership, clock) = (client.clone(), leadership.clone(), clock.clone());
        let live = live.clone();
        let timeout = live.in_force().write_timeout;
        tokio::spawn(async move {
            while let Some((order, term, cooldown)) = waiting.recv().await {
                let leads = || leadership.term(clock.mono()) == Some(term);
                // The settings may have changed since the order.
                let asked_for = || {
                    let settings = live.newest();
                    let follows = !order.ends_drain || settings.plan.drain.then == DrainOverdue::Evict;
                    follows && settings.rescheduling.eviction.is_some_and(|law| law.moves_pods())
                };
                let evicting =
                    Evicting { client: &client, order: &order, leads, asked_for, timeout, cooldown };
                let became = evicting.carry_out(clock.wall()).await;
                // If there is no receiver, the program is ending.
                let _ = ended.send(EndedEviction { order, term, became });
            }
        });
        (Self { orders }, receiver)
    }

    /// Gives an order in the given term of leadership, unless the owner was evicted from within `cooldown`.
    pub(crate) fn send(&self, order: EvictionOrder, term: Term, cooldown: Duration) {
        // Without the task the program is ending.
        let _ = self.orders.send((order, term, cooldown));
    }
}

/// The annotation of an owner is tried again this often where its object changes all the time.
const ATTEMPTS: u32 = 3;

struct Evicting<'a, L, A> {
    client: &'a Client,
    order: &'a EvictionOrder,
    /// Whether this process leads.
    leads: L,
    /// Whether evictions are asked for.
    asked_for: A,
    timeout: Duration,
    cooldown: Duration,
}

impl<L: Fn() -> bool, A: Fn() -> bool> Evicting<'_, L, A> {
    async fn carry_out(&self, now: Timestamp) -> EvictionEnd {
        if !self.is_wanted() {
            return EvictionEnd::Withdrawn;
        }
        let before = match self.annotate(now).await {
            Ok(before) => before,
            Err(became) => return became,
        };
        let became = if self.is_wanted() { self.evict().await } else { EvictionEnd::Withdrawn };
        match became {
            EvictionEnd::Evicted | EvictionEnd::Unknown(_) => {}
            EvictionEnd::Denied(_)
            | EvictionEnd::Gone
            | EvictionEnd::CoolingDown(_)
            | EvictionEnd::Failed(_)
            | EvictionEnd::Withdrawn => self.restore(&before).await,
        }
        became
    }

    fn is_wanted(&self) -> bool {
        (self.leads)() && (self.asked_for)()
    }

    /// Tells the owner, and returns what its annotations said before.
    async fn annotate(&self, now: Timestamp) -> Result<Value, EvictionEnd> {
        let path = self.order.owner_kind.path(&self.order.namespace, &self.order.owner_name);
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let found = self.send("GET", &path, &Value::Null).await;
            let object = found.map_err(|trouble| EvictionEnd::Failed(of_owner(&trouble)))?;
            let owner = OwnerNow::read(&object);
            if let Some(why) = owner.spared(now, self.cooldown) {
                return Err(why);
            }
            let said = annotations(self.order, now);
            let document = json!({"metadata": {"resourceVersion": owner.version, "annotations": said}});
            match self.send("PATCH", &path, &document).await {
                Ok(_) => return Ok(owner.before),
                Err(Trouble::Stale(why)) => last = why,
                Err(trouble) => return Err(EvictionEnd::Failed(of_owner(&trouble))),
            }
        }
        Err(EvictionEnd::Failed(format!("the controller changes all the time: {last}")))
    }

    /// Takes back what the owner was told. If that fails, the owner rests for a cooldown.
    async fn restore(&self, before: &Value) {
        let path = self.order.owner_kind.path(&self.order.namespace, &self.order.owner_name);
        let document = json!({"metadata": {"annotations": before}});
        for _ in 0..ATTEMPTS {
            match self.send("PATCH", &path, &document).await {
                Ok(_) | Err(Trouble::Gone | Trouble::NotLeading) => return,
                Err(
                    trouble @ (Trouble::Owned(_)
                    | Trouble::Stale(_)
                    | Trouble::Refused(_)
                    | Trouble::Away(..)),
                ) => {
                    let (owner, why) = (&self.order.owner, trouble.words());
                    tracing::warn!(owner, "the annotation about an eviction cannot be taken back: {why}");
                }
            }
        }
    }

    async fn evict(&self) -> EvictionEnd {
        let EvictionOrder { namespace, name, uid, .. } = self.order;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}}});
        let asked = timed("POST", &path, "application/json", &eviction);
        let Ok(request) = asked else {
            return EvictionEnd::Failed("it cannot be written as a request".to_owned());
        };
        let answer = tokio::time::timeout(self.timeout, self.client.request::<Value>(request)).await;
        match answer {
            Err(_) => EvictionEnd::Unknown("no answer in time".to_owned()),
            Ok(Ok(_)) => EvictionEnd::Evicted,
            Ok(Err(kube::Error::Api(status))) => became(&status),
            Ok(Err(error)) => EvictionEnd::Unknown(error.to_string()),
        }
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, Trouble> {
        if !(self.leads)() {
            return Err(Trouble::NotLeading);
        }
        let request = match method {
            "GET" => http::Request::get(path).body(Vec::new()),
            _ => timed(method, path, "application/merge-patch+json", body),
        };
        let late = |_| Err(Trouble::Away("no answer in time".to_owned(), None));
        tokio::time::timeout(self.timeout, ask(self.client, request)).await.unwrap_or_else(late)
    }
}

fn of_owner(trouble: &Trouble) -> String {
    format!("the controller cannot be told: {}", trouble.words())
}

/// What the server's refusal means. A disruption budget denies with 429, or with 500 where two budgets select a pod.
fn became(status: &kube::core::Status) -> EvictionEnd {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let words: Vec<&str> =
        [status.message.as_str()].into_iter().chain(causes.map(|cause| cause.message.as_str())).collect();
    let words = words.join(" ");
    match status.code {
        404 | 409 => EvictionEnd::Gone,
        429 => EvictionEnd::Denied(words),
        500 if words.contains("PodDisruptionBudget") => EvictionEnd::Denied(words),
        // The server may have given up while it worked on it.
        500.. => EvictionEnd::Unknown(words),
        _ => EvictionEnd::Failed(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use std::sync::Mutex;

    /// What is asked for, when evictions are switched off after so many requests; and what becomes of the order.
    async fn switched_off_after(requests: usize) -> (Vec<String>, EvictionEnd) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let line = format!("{} {}", request.method(), request.uri().path());
            log.lock().unwrap().push(line);
            let owner = json!({"metadata": {"resourceVersion": "7", "annotations": {}}});
            let answer = http::Response::new(Body::from(owner.to_string().into_bytes()));
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        let client = Client::new(service, "default");
        let order = EvictionOrder {
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
            node: "hot".to_owned(),
            from_class: SchedulableClass::Performance,
            cause: RescheduleCause::CoolingStress,
            reason: "its cooling is used".to_owned(),
            to: "cool".to_owned(),
            owner_kind: OwnerKind::read("StatefulSet").unwrap(),
            owner_name: "web".to_owned(),
            owner: "shop/StatefulSet/web".to_owned(),
            ends_drain: false,
        };
        let asked_for = || asked.lock().unwrap().len() < requests;
        let (timeout, cooldown) = (Duration::from_secs(60), Duration::from_secs(600));
        let evicting =
            Evicting { client: &client, order: &order, leads: || true, asked_for, timeout, cooldown };
        let became = evicting.carry_out(Timestamp::UNIX_EPOCH).await;
        let asked = asked.lock().unwrap().clone();
        (asked, became)
    }

    #[tokio::test]
    async fn an_order_that_waits_is_withdrawn_when_evictions_are_switched_off() {
        const OWNER: &str = "/apis/apps/v1/namespaces/shop/statefulsets/web";
        let (asked, became) = switched_off_after(0).await;
        assert_eq!((asked.len(), became), (0, EvictionEnd::Withdrawn));
        let (asked, became) = switched_off_after(2).await;
        let (get, patch) = (format!("GET {OWNER}"), format!("PATCH {OWNER}"));
        assert_eq!((asked, became), (vec![get, patch.clone(), patch], EvictionEnd::Withdrawn));
        let (asked, became) = switched_off_after(usize::MAX).await;
        assert_eq!(asked.last().unwrap(), "POST /api/v1/namespaces/shop/pods/web-0/eviction");
        assert_eq!(became, EvictionEnd::Evicted);
    }

    fn status(code: u16, causes: &Value) -> EvictionEnd {
        let status = json!({"status": "Failure", "message": "no", "reason": "x", "code": code, "details": {"causes": causes}});
        became(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_refusal_is_told_from_a_pod_that_is_gone_and_from_no_answer() {
        let causes = json!([{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2"}]);
        assert_eq!(
            status(429, &causes),
            EvictionEnd::Denied("no The disruption budget web needs 2".to_owned())
        );
        let two = json!([{"message": "This pod has more than one PodDisruptionBudget"}]);
        assert!(matches!(status(500, &two), EvictionEnd::Denied(_)));
        assert_eq!(status(500, &json!([])), EvictionEnd::Unknown("no".to_owned()));
        assert_eq!(status(403, &json!([])), EvictionEnd::Failed("no".to_owned()));
        assert_eq!(
            (status(404, &json!([])), status(409, &json!([]))),
            (EvictionEnd::Gone, EvictionEnd::Gone)
        );
        assert_eq!(status(504, &json!([])), EvictionEnd::Unknown("no".to_owned()));
    }
}
