//! Binds pods, and takes the cards of those that ask for GPUs before.
//!
//! ```text
//!  the pod, its node's GPUs (from the API server) ──▶ which cards ──▶ taken, one by one ──▶ binding
//!                    ▲                                                  │ somebody was faster  │ refused
//!                    └────────────── given back ◀──────────────────────┘                      ▼
//!                                                                                          given back
//! ```
//!
//! A card is taken by a write of its GPU object's status that the API server accepts only if nobody has written the
//! object since it was read. So of two pods that are bound to one last card, through whichever replicas, one gets it;
//! kube-scheduler tries the other one again. What a bind took and never used ends by time
//! ([`TAKEN_FOR`](crate::gpus::TAKEN_FOR)).

use crate::gpus::{GpuRow, HeldCard, Models, node_cards};
use crate::metrics::{Bound, Metrics};
use crate::pods_by_name::PodQuestion;
use crate::settings::GpuRule;
use crate::snapshot_builder::Shown;
use host_kit::clock::HostClock;
use host_kit::config::parse::object_name;
use host_kit::reflect::Row;
use joulie_api::condition::rfc3339;
use joulie_api::extender::bind::{BindArgs, write_bind};
use joulie_api::extender::{GpuWish, Keys, PodSummary, instances_asked, pod};
use joulie_api::labels;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::gpu::{BadWish, GpuRequest, PhysicalGpu, Vram, fit};
use kube::Client;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long the API server may take for one request.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often cards are chosen again where others were faster. kube-scheduler tries again later anyway.
const TRIES: u32 = 5;
const GPUS: &str = "/apis/gpu.mle.com/v1alpha1/gpus";
/// More than any node has; what is beyond is not looked at.
const CARDS_MAX: usize = 64;

/// Binds pods.
#[derive(Clone)]
pub(crate) struct Binder {
    pub(crate) client: Client,
    pub(crate) rule: GpuRule,
    pub(crate) clock: Arc<dyn HostClock>,
    pub(crate) metrics: Metrics,
    /// For what claims hold, as the watches have shown it.
    pub(crate) shown: Shown,
}

/// Why a pod was not bound.
struct Unbound {
    outcome: Bound,
    why: String,
}

impl Unbound {
    fn new(outcome: Bound, why: impl fmt::Display) -> Self {
        Self { outcome, why: format!("joulie: {}", why.to_string().trim_end()) }
    }
}

/// A failed request.
enum Failed {
    /// The object was written since it was read, or the pod is bound already.
    Conflict(String),
    /// There is no such object.
    Gone,
    /// The node has no cards for the pod.
    NoCard(String),
    /// It is not known whether it was done.
    Unknown(String),
    /// It was refused.
    Refused(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(why) | Self::NoCard(why) | Self::Unknown(why) | Self::Refused(why) => {
                f.write_str(why)
            }
            Self::Gone => f.write_str("it does not exist"),
        }
    }
}

/// A GPU object as it was read.
struct Found {
    name: String,
    version: String,
    row: GpuRow,
    /// The entries of `status.assumed`.
    assumed: Vec<Value>,
}

impl Found {
    fn read(object: &Value) -> Option<Self> {
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        Some(Self {
            name: text("name")?,
            version: text("resourceVersion")?,
            // A card that cannot be read is not taken.
            row: GpuRow::read(object).ok()?,
            assumed: object["status"]["assumed"].as_array().cloned().unwrap_or_default(),
        })
    }

    /// The entries without those of a pod.
    fn without(&self, uid: &str) -> Vec<Value> {
        self.assumed.iter().filter(|one| one["podUID"].as_str() != Some(uid)).cloned().collect()
    }
}

impl Binder {
    /// Answers a request; `None` if the body is none.
    pub(crate) async fn answer(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let args = BindArgs::parse(body).map_err(|bad| {
            self.metrics.bound(Bound::Malformed);
            bad.to_string()
        })?;
        let mut out = Vec::new();
        match self.bind(&args).await {
            Ok(()) => {
                self.metrics.bound(Bound::Done);
                write_bind(Keys::Capital, "", &mut out);
            }
            Err(Unbound { outcome, why }) => {
                self.metrics.bound(outcome);
                tracing::info!(
                    pod = args.pod_name,
                    namespace = args.pod_namespace,
                    node = args.node,
                    "not bound: {why}"
                );
                write_bind(Keys::Capital, why, &mut out);
            }
        }
        Ok(out)
    }

    async fn bind(&self, args: &BindArgs) -> Result<(), Unbound> {
        let BindArgs { pod_uid, node, .. } = args;
        object_name(node)
            .map_err(|why| Unbound::new(Bound::Malformed, format_args!("the node {node}: {why}")))?;
        let pod = self.pod(args).await?;
        if is_bound(&pod, node) {
            return Ok(());
        }
        let mut tries = 0;
        let cards = loop {
            let found = self.cards(node).await?;
            let wanted = self.wanted(args, &pod, &found)?;
            let taken = self.take(args, &found, wanted).await;
            match taken {
                Ok(cards) => break cards,
                Err(Failed::Conflict(_) | Failed::Gone) if tries < TRIES => tries += 1,
                Err(failed) => {
                    let outcome = match failed {
                        Failed::Conflict(_) | Failed::Gone => Bound::Raced,
                        Failed::NoCard(_) => Bound::NoCard,
                        Failed::Unknown(_) | Failed::Refused(_) => Bound::Failed,
                    };
                    return Err(Unbound::new(outcome, format_args!("a card cannot be taken: {failed}")));
                }
            }
        };
        match self.post(args, &cards).await {
            Ok(()) => Ok(()),
            Err(failed) => {
                // The answer may have been lost, or an earlier try of the same pod was answered late.
                let outcome = match failed {
                    Failed::Conflict(_) | Failed::Unknown(_) => {
                        self.pod(args).await.map(|pod| is_bound(&pod, node))
                    }
                    Failed::Gone | Failed::NoCard(_) | Failed::Refused(_) => Ok(false),
                };
                match outcome {
                    Ok(true) => return Ok(()),
                    Ok(false) => self.give_back(node, pod_uid).await,
                    // Nobody knows. The cards stay taken until the kubelet says who has them, or by time.
                    Err(_) => {}
                }
                Err(Unbound::new(Bound::Failed, format_args!("the pod cannot be bound: {failed}")))
            }
        }
    }

    /// The pod as it is now.
    async fn pod(&self, args: &BindArgs) -> Result<Value, Unbound> {
        let failed = |(_, why): (_, String)| Unbound::new(Bound::Failed, why);
        let question = PodQuestion::of(&args.pod_namespace, &args.pod_name).map_err(failed)?;
        let pod = question.fetch(&self.client).await.map_err(failed)?;
        if pod["metadata"]["uid"].as_str() != Some(&args.pod_uid) {
            return Err(Unbound::new(Bound::Failed, "there is another pod of that name now"));
        }
        Ok(pod)
    }

    /// The cards of a node as they are now.
    async fn cards(&self, node: &str) -> Result<Vec<Found>, Unbound> {
        let path = format!("{GPUS}?fieldSelector=spec.nodeName%3D{node}");
        let list = self.send(http::Method::GET, &path, "application/json", &Value::Null).await;
        let list = list.map_err(|failed| {
            Unbound::new(Bound::Failed, format_args!("the GPUs of the node cannot be listed: {failed}"))
        })?;
        let mut found: Vec<Found> =
            list["items"].as_array().into_iter().flatten().filter_map(Found::read).take(CARDS_MAX).collect();
        // Everybody takes cards in the same order, so of those that want the same ones the first goes on.
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// What a pod asks for, and the cards as they are; `None` where it asks for no card that is looked at.
    fn wanted(
        &self,
        args: &BindArgs,
        pod: &Value,
        found: &[Found],
    ) -> Result<Option<(GpuRequest, Vec<HeldCard>)>, Unbound> {
        let bad = |why: &dyn fmt::Display| {
            Unbound::new(Bound::Failed, format_args!("the pod {}: {why}", args.pod_name))
        };
        let raw = serde_json::value::to_raw_value(pod).map_err(|error| bad(&error))?;
        let summary = PodSummary::read(&raw).map_err(|error| bad(&error))?;
        let mut models = Models::default();
        let now = UnixTime::from_micros(self.clock.wall().as_microsecond());
        let claimed = self.shown.load().fleet.gpus.claimed().clone();
        let cards = node_cards(found.iter().map(|found| &found.row), &claimed, now, |name, vendor| {
            models.number(name, vendor)
        });
        match models.asked(&self.rule, GpuWish::read(&raw), &summary.demand) {
            None => Ok(None),
            // MIG instances are not taken: the kubelet gives any of the profile, and kube-scheduler counts these.
            Some(Err(BadWish::NoCount)) if !instances_asked(&raw).is_empty() => Ok(None),
            Some(Ok(request)) => Ok(Some((request, cards))),
            Some(Err(wrong)) => Err(Unbound::new(Bound::NoCard, wrong)),
        }
    }

    /// Takes cards for a pod, and returns their UUIDs.
    async fn take(
        &self,
        args: &BindArgs,
        found: &[Found],
        wanted: Option<(GpuRequest, Vec<HeldCard>)>,
    ) -> Result<Vec<String>, Failed> {
        let Some((request, cards)) = wanted else { return Ok(Vec::new()) };
        let uid = pod::uid(&args.pod_uid);
        let before: Vec<&HeldCard> = cards.iter().filter(|card| has(card, uid)).collect();
        if u32::try_from(before.len()).is_ok_and(|count| count == request.count()) {
            // An earlier try of the same pod took them.
            return Ok(before.iter().filter_map(|card| card.uuid.as_deref()).map(str::to_owned).collect());
        }
        if !before.is_empty() {
            self.give_back(&args.node, &args.pod_uid).await;
            return Err(Failed::Conflict("some cards of an earlier try were given back".to_owned()));
        }
        let physical: Vec<PhysicalGpu> = cards.iter().map(|card| card.card).collect();
        let chosen = fit(request, &physical).map_err(|reject| Failed::NoCard(reject.to_string()))?.cards;
        let (mut uuids, mut some) = (Vec::new(), false);
        let of_pod = found.iter().zip(&cards).enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
        for (_, (found, card)) in of_pod {
            if let Err(failed) = self.take_one(args, found, request, card).await {
                // An answer that was lost may have been a yes.
                if some || matches!(failed, Failed::Unknown(_)) {
                    self.give_back(&args.node, &args.pod_uid).await;
                }
                return Err(failed);
            }
            some = true;
            uuids.extend(card.uuid.as_deref().map(str::to_owned));
        }
        Ok(uuids)
    }

    async fn take_one(
        &self,
        args: &BindArgs,
        found: &Found,
        request: GpuRequest,
        card: &HeldCard,
    ) -> Result<(), Failed> {
        let need = card.card.vram.map_or(0, |vram: Vram| request.need_mb(vram));
        let mut assumed = found.without(&args.pod_uid);
        assumed.push(json!({
            "podNamespace": args.pod_namespace, "podName": args.pod_name, "podUID": args.pod_uid,
            "vramMb": need, "since": rfc3339(self.clock.wall()),
        }));
        self.write(found, assumed).await
    }

    /// Writes whom a card is taken for, if nobody has written the object since.
    async fn write(&self, found: &Found, assumed: Vec<Value>) -> Result<(), Failed> {
        let body = json!({"metadata": {"resourceVersion": found.version}, "status": {"assumed": assumed}});
        let path = format!("{GPUS}/{}/status", found.name);
        self.send(http::Method::PATCH, &path, "application/merge-patch+json", &body).await.map(drop)
    }

    /// Gives back all cards of a node that were taken for a pod.
    async fn give_back(&self, node: &str, uid: &str) {
        for _ in 0..=TRIES {
            let Ok(found) = self.cards(node).await else { continue };
            let taken = found.iter().filter(|found| found.without(uid).len() < found.assumed.len());
            let mut is_done = true;
            for found in taken {
                match self.write(found, found.without(uid)).await {
                    Ok(()) | Err(Failed::Gone) => {}
                    Err(_) => is_done = false,
                }
            }
            if is_done {
                self.metrics.bound(Bound::GivenBack);
                return;
            }
        }
        self.metrics.bound(Bound::Kept);
        tracing::warn!(
            node,
            pod = uid,
            "cards that were taken for a pod cannot be given back; they are free again by time"
        );
    }

    /// Binds the pod, and writes which cards were taken for it.
    async fn post(&self, args: &BindArgs, cards: &[String]) -> Result<(), Failed> {
        let BindArgs { pod_name, pod_namespace, pod_uid, node } = args;
        let mut body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod_name, "namespace": pod_namespace, "uid": pod_uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        if !cards.is_empty() {
            body["metadata"]["annotations"] = json!({labels::pod::GPU_CARDS: cards.join(",")});
        }
        let path = format!("/api/v1/namespaces/{pod_namespace}/pods/{pod_name}/binding");
        self.send(http::Method::POST, &path, "application/json", &body).await.map(drop)
    }

    async fn send(
        &self,
        method: http::Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Value, Failed> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, kind).body(body);
        let request = request.map_err(|error| Failed::Refused(error.to_string()))?;
        match tokio::time::timeout(TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(match status.code {
                404 => Failed::Gone,
                409 => Failed::Conflict(status.message.clone()),
                400..=499 => Failed::Refused(format!("{} {}", status.code, status.message)),
                _ => Failed::Unknown(format!("{} {}", status.code, status.message)),
            }),
            Ok(Err(error)) => Err(Failed::Unknown(error.to_string())),
            Err(_) => Err(Failed::Unknown("the API server did not answer in 2s".to_owned())),
        }
    }
}

fn is_bound(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"].as_str() == Some(node)
}

fn has(card: &HeldCard, uid: PodUid) -> bool {
    card.holders.iter().any(|one| one.pod == uid && !one.is_claim)
}
