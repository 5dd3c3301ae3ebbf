//! Access for measurements and fuzz targets. Nothing that runs in a cluster uses it.

use crate::decide::{self, Outcome};
use crate::dra::ClaimedCards;
use crate::evictable::EvictablesBuilder;
use crate::expected::Expected;
use crate::gpus::{GpuRow, Gpus};
use crate::index::{Index, Registry};
use crate::reply::Reply;
use crate::rows::PodRow;
use crate::scan::{Candidates, Malformed, Message, text};
use crate::settings::PlacementSettings;
use crate::shortlist::Remembered;
use crate::snapshot::{Fleet, Node, Rules, Snapshot, View, places};
use bytes::Bytes;
use host_kit::clock::Mono;
use host_kit::reflect::{ReflectEvent, Row};
use hyper::body::Body;
use joulie_api::dra::{DeviceClaim, DeviceSlice};
use joulie_api::labels;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::estimate::HardwareRecord;
use joulie_core::placement::freshness::{Evidence, FreshnessRule, Now, PlanLease, UnixTime};
use joulie_core::placement::kube_scheduler::ScheduledNode;
use joulie_core::placement::score::TwinStatus;
use power_units::{Micros, Stamp, Watts};
use serde_json::Value;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A candidate as the scanner found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedNode {
    /// Its name; empty if it has none.
    pub name: String,
    /// Where it is in the body.
    pub raw: Range<usize>,
}

/// What a scanner found in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The text of the pod.
    pub pod: Option<String>,
    /// The candidates.
    pub candidates: Vec<ScannedNode>,
}

/// Scans a body.
///
/// # Errors
/// If the body is no valid request.
pub fn scan(body: &[u8]) -> Result<Scanned, String> {
    let message = Message::read(body).map_err(|why| why.to_string())?;
    let candidates = decide::candidates(&message.candidates).map(|candidate| ScannedNode {
        name: text(message.body, candidate.name, candidate.escaped).into_owned(),
        raw: candidate.raw.range(),
    });
    let candidates = candidates.collect();
    Ok(Scanned { pod: message.pod.map(|pod| pod.get().to_owned()), candidates })
}

/// Scans a body and returns only the number of candidates.
///
/// # Errors
/// If the body is no valid request.
pub fn count(body: &[u8]) -> Result<usize, String> {
    match Message::read(body).map_err(|why| why.to_string())?.candidates {
        Candidates::None => Ok(0),
        Candidates::Names(names) => Ok(names.spans.len()),
        Candidates::Nodes(nodes) => Ok(nodes.len()),
    }
}

/// A snapshot that was not built by watches.
pub struct Picture {
    snapshot: Snapshot,
    expected: Expected,
    placement: PlacementSettings,
    /// A pod that asks as if it never had before.
    pod: Option<PodUid>,
}

impl Picture {
    /// A snapshot of nodes with fresh twins.
    #[must_use]
    pub fn of(nodes: &[(String, TwinStatus, HardwareRecord)], placement: PlacementSettings) -> Self {
        let node = |(name, twin, hardware): &(String, TwinStatus, HardwareRecord)| {
            let evidence = Evidence::Dated(Some(UnixTime::from_micros(0)));
            Node { twin: Some(*twin), hardware: Some(*hardware), evidence, ..Node::unknown(name) }
        };
        Self::with_nodes(nodes.iter().map(node), placement)
    }

    /// A snapshot of nodes of which only the names are known.
    #[must_use]
    pub fn of_names(names: &[&str], placement: PlacementSettings) -> Self {
        Self::with_nodes(names.iter().map(|name| Node::unknown(name)), placement)
    }

    fn with_nodes(nodes: impl Iterator<Item = Node> + Clone, placement: PlacementSettings) -> Self {
        let mut registry = Registry::default();
        for node in nodes.clone() {
            registry.number(&node.name);
        }
        let mut all = places(&registry);
        all.iter_mut().zip(nodes).for_each(|(place, node)| *place = node);
        let now = UnixTime::from_micros(0);
        let index = Arc::new(Index::of(&registry));
        let freshness = FreshnessRule::new(Micros::MINUTE).ok();
        let snapshot = freshness.map_or_else(Snapshot::nothing, |freshness| {
            let now = Now { wall: now, own: Stamp::new(Micros::ZERO) };
            let (scoring, profile_key) = (&placement.scoring, &labels::node::POWER_PROFILE.into());
            let rules = Rules { scoring, profile_key, freshness, lease: PlanLease::Unseen, now };
            let fleet = Arc::new(Fleet::of(all, index, &rules, true));
            let assumed = vec![Watts::ZERO; registry.len()].into_boxed_slice();
            let remembered = Arc::new(Remembered::new());
            Snapshot { fleet, assumed, remembered, ..Snapshot::nothing() }.with_left()
        });
        Self { snapshot, expected: Expected::new(EXPECTED), placement, pod: None }
    }

    /// Adds what kube-scheduler counts on each node, by its place among the nodes.
    #[must_use]
    pub fn with_loads(mut self, of: impl Fn(usize) -> ScheduledNode) -> Self {
        self.snapshot.loads = (0..self.snapshot.fleet.nodes.len()).map(of).collect();
        self
    }

    /// Adds GPUs, by their objects.
    #[must_use]
    pub fn with_gpus(self, objects: &[Value]) -> Self {
        self.with_claimed_gpus(objects, &[], &[])
    }

    /// The same with ResourceSlices and ResourceClaims. What cannot be read is left out, as by a watch.
    #[must_use]
    pub fn with_claimed_gpus(mut self, objects: &[Value], slices: &[Value], claims: &[Value]) -> Self {
        let (mut writer, rows) = host_kit::reflect::by_hand::<GpuRow>();
        writer.list(objects);
        let slices: Vec<DeviceSlice> = slices.iter().filter_map(|one| DeviceSlice::read(one).ok()).collect();
        let claims: Vec<DeviceClaim> = claims.iter().filter_map(|one| DeviceClaim::read(one).ok()).collect();
        let claimed = Arc::new(ClaimedCards::of(slices.iter(), claims.iter()));
        if let Some(fleet) = Arc::get_mut(&mut self.snapshot.fleet) {
            let mut registry = Registry::default();
            for node in &fleet.nodes {
                registry.number(&node.name);
            }
            let gpus =
                rows.with(|rows| Gpus::of(rows.values(), &registry, claimed, UnixTime::from_micros(0)));
            fleet.gpus = Arc::new(gpus);
        }
        self
    }

    /// Adds the pod of this request to the pods that wait for a node.
    ///
    /// # Errors
    /// If the body is no valid request; the text says why.
    pub fn with_pod_of(mut self, body: &[u8]) -> Result<Self, String> {
        let message = Message::read(body).map_err(|why| why.to_string())?;
        let (pod, asked) =
            decide::asked(&self.snapshot, &message, &self.placement).map_err(|why| why.to_string())?;
        self.pod = pod;
        self.snapshot.queue = Arc::new(pod.map(|pod| (pod, asked.terms)).into_iter().collect());
        Ok(self)
    }

    /// Adds pods that have GPUs, as preempt knows them, by their objects.
    #[must_use]
    pub fn with_card_pods(mut self, objects: &[Value]) -> Self {
        let (mut none, budgets) = host_kit::reflect::by_hand();
        none.list([]);
        let mut builder = EvictablesBuilder::new(Some(budgets));
        builder.renew();
        for row in objects.iter().filter_map(|object| PodRow::read(object).ok()) {
            builder.follow(&ReflectEvent::Seen { uid: String::new(), row: Arc::new(row) });
        }
        self.snapshot.evictables = builder.shown();
        self
    }

    /// The answer to preempt.
    ///
    /// # Errors
    /// If the body is no valid request; the text says why.
    pub fn preempt(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        decide::preempt(&self.snapshot, &self.placement, body).map_err(|why| why.to_string())
    }

    /// The answer to filter, in the pieces that are sent.
    ///
    /// # Errors
    /// If the body is no valid request; the text says why.
    pub fn filter(&self, body: &Bytes) -> Result<ProbeResponse, String> {
        self.pod.into_iter().for_each(|pod| self.snapshot.remembered.forget(pod));
        self.decide(decide::filter, body)
    }

    /// The answer to prioritize. The pod is then expected on its best node, as in the program.
    ///
    /// # Errors
    /// If the body is no valid request; the text says why.
    pub fn prioritize(&self, body: &Bytes) -> Result<ProbeResponse, String> {
        self.decide(decide::prioritize, body)
    }

    fn decide(&self, decide: Decide, body: &Bytes) -> Result<ProbeResponse, String> {
        let expected = self.expected.load();
        let view = View { snapshot: &self.snapshot, expected: &expected, now: Mono::START };
        let (reply, outcome) = decide(&view, &self.placement, body).map_err(|why| why.to_string())?;
        if let Some(offer) = outcome.offer {
            self.expected.offer(offer, Mono::START);
        }
        Ok(ProbeResponse(reply))
    }
}

type Decide = fn(&View<'_>, &PlacementSettings, &Bytes) -> Result<(Reply, Outcome), Malformed>;

/// The clock does not advance here.
const EXPECTED: Duration = Duration::from_secs(1);

/// An answer in pieces.
pub struct ProbeResponse(Reply);

impl ProbeResponse {
    /// These pieces.
    pub(crate) fn of(reply: Reply) -> Self {
        Self(reply)
    }

    /// All pieces joined.
    #[must_use]
    pub fn whole(mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.0).poll_frame(&mut context) {
            if let Ok(piece) = frame.into_data() {
                all.extend_from_slice(&piece);
            }
        }
        all
    }
}
