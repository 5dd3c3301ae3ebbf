//! Turns a request and a snapshot into an answer. Nothing here waits, locks, or reads a clock.

mod filter;
mod preempt;
pub(crate) use filter::judge;
mod prioritize;
pub(crate) use prioritize::{points, scored};

use crate::cores;
use crate::expected::Offer;
use crate::gpus::GpuAsk;
use crate::index::{AT_ONCE, Index, Numbers};
use crate::instances::InstancesAsk;
use crate::reply::Reply;
use crate::scan::{Candidates, Item, Malformed, Message, Span, text};
use crate::settings::{GpuNodeCores, PlacementSettings};
use crate::shortlist::{ListAnswer, Wanted};
use crate::snapshot::{Admission, Snapshot, View};
use bytes::Bytes;
use joulie_api::extender::{PodDeferral, PodSummary, PodWorkload};
use joulie_core::placement::assumed::{NodeKey, PodUid};
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::demand::{MilliCores, PodDemand};
use joulie_core::placement::filter::Rejection;
use joulie_core::placement::kube_scheduler::ScheduledPod;
use joulie_core::placement::score::{ConsolidatePod, PodTerms};
use joulie_core::placement::sensitivity::CapSensitivity;
use power_units::Watts;
use serde_json::value::RawValue;

/// What a decision needs to know of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) class: WorkloadClass,
    /// Whether the class annotation has one of its two valid values, or is missing.
    pub(crate) recognised: bool,
    pub(crate) terms: PodTerms,
    /// What it asks for of GPUs, where that is looked at.
    pub(crate) gpus: Option<GpuAsk>,
    /// What it asks for of MIG instances, where that is looked at.
    pub(crate) instances: Option<InstancesAsk>,
    /// The same as `SCORING_FORMULA=consolidate` counts it, and as kube-scheduler does.
    pub(crate) consolidate: ConsolidatePod,
    pub(crate) scheduled: ScheduledPod,
    /// How many thousandths of a core a pod without GPUs asks for, where it leaves some to free GPUs.
    pub(crate) cores: Option<i64>,
    /// Until when it may wait.
    pub(crate) deferral: PodDeferral,
}

/// What is looked at of nodes before a pod may go there, beside its class and its watts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GpuNeeds<'a> {
    /// The cards that it asks for.
    pub(crate) ask: Option<&'a GpuAsk>,
    /// The MIG instances that it asks for.
    pub(crate) instances: Option<&'a InstancesAsk>,
    /// The cores that it would take of those that free cards need.
    pub(crate) cores: Option<i64>,
    /// Until when it may wait.
    pub(crate) deferral: PodDeferral,
}

impl<'a> GpuNeeds<'a> {
    pub(crate) fn of(asked: &'a Asked, placement: &PlacementSettings) -> Self {
        let filters = placement.gpus.cores == GpuNodeCores::Filter;
        let (ask, instances) = (asked.gpus.as_ref(), asked.instances.as_ref());
        Self { ask, instances, cores: asked.cores.filter(|_| filters), deferral: asked.deferral }
    }

    /// Whether every node passes.
    pub(crate) fn is_none(self) -> bool {
        let may_wait = matches!(self.deferral, PodDeferral::Until(_));
        self.ask.is_none() && self.instances.is_none() && self.cores.is_none() && !may_wait
    }

    /// The PowerBudget above a node that keeps a pod waiting that may wait, and why.
    pub(crate) fn waits_for(self, snapshot: &Snapshot, number: Option<usize>) -> Option<(&str, &str)> {
        let fleet = &snapshot.fleet;
        let place = fleet.places.get(number.filter(|_| self.deferral != PodDeferral::None)?)?;
        fleet.budgets.keep_waiting(*place, self.deferral)
    }

    /// Why the pod may not go to a node.
    #[inline]
    pub(crate) fn rejects(self, snapshot: &Snapshot, number: Option<usize>) -> Option<Rejection> {
        let gpus = &snapshot.fleet.gpus;
        let of_cards = self.ask.and_then(|ask| gpus.rejects(ask, number));
        let of_instances =
            || self.instances.and_then(|ask| gpus.instances().rejects(ask, number, &[])).map(Rejection::Gpu);
        let of_cores = || {
            let takes = self.cores.is_some_and(|milli| snapshot.takes_gpu_cores(milli, number));
            takes.then_some(Rejection::GpuCores)
        };
        let waits = self.waits_for(snapshot, number).map(|_| Rejection::Deferred);
        waits.or(of_cards).or_else(of_instances).or_else(of_cores)
    }
}

/// What a request led to, besides its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) asked: Asked,
    /// Candidates that were rejected, by `Rejection::KINDS`.
    pub(crate) rejected: [u32; Rejection::KINDS.len()],
    /// Candidates that were scored as unknown.
    pub(crate) unknown: u32,
    /// The node on which kube-scheduler is likely to put the pod after this answer, if it can be predicted.
    pub(crate) offer: Option<Offer>,
    /// Whether filter answered with a shortlist, or why it did not; `None` where none was due.
    pub(crate) list: Option<ListAnswer>,
}

/// Answers filter.
pub(crate) fn filter(
    view: &View<'_>,
    placement: &PlacementSettings,
    body: &Bytes,
) -> Result<(Reply, Outcome), Malformed> {
    let message = Message::read(body)?;
    let (pod, asked) = asked(view.snapshot, &message, placement)?;
    Ok(filter::answer(view, placement, body, &message, Wanted { pod, asked: &asked }))
}

/// Answers prioritize.
pub(crate) fn prioritize(
    view: &View<'_>,
    placement: &PlacementSettings,
    body: &Bytes,
) -> Result<(Reply, Outcome), Malformed> {
    let message = Message::read(body)?;
    let (pod, asked) = asked(view.snapshot, &message, placement)?;
    Ok(prioritize::answer(view, placement, &message, pod, &asked))
}

/// Answers preempt: the candidates where evicting the victims makes room for the pod.
pub(crate) fn preempt(
    snapshot: &Snapshot,
    placement: &PlacementSettings,
    body: &[u8],
) -> Result<Vec<u8>, Malformed> {
    preempt::answer(snapshot, placement, body)
}

/// The pod's class and terms. A request without a pod requests nothing and is standard.
pub(crate) fn asked(
    snapshot: &Snapshot,
    message: &Message<'_>,
    placement: &PlacementSettings,
) -> Result<(Option<PodUid>, Asked), Malformed> {
    asked_by(snapshot, message.pod, placement)
}

fn asked_by(
    snapshot: &Snapshot,
    pod: Option<&RawValue>,
    placement: &PlacementSettings,
) -> Result<(Option<PodUid>, Asked), Malformed> {
    let coefficients = &placement.scoring.coefficients;
    let Some(pod) = pod else {
        let class = WorkloadClass::Standard;
        let cpu = MilliCores::new(0);
        let demand = PodDemand { class, cpu, memory_bytes: 0, gpus: None, gpu_quarters: 0 };
        let terms = PodTerms::of(&demand, coefficients);
        let (consolidate, scheduled) = (ConsolidatePod::of(&demand), cores::scheduled(&demand));
        let (recognised, gpus, instances, cores) = (true, None, None, None);
        let deferral = PodDeferral::None;
        return Ok((
            None,
            Asked { class, recognised, terms, gpus, instances, consolidate, scheduled, cores, deferral },
        ));
    };
    let PodSummary { uid, class, demand } = PodSummary::read(pod).map_err(Malformed::new)?;
    let terms = PodTerms::of(&demand, coefficients).sensitive(sensitivity(snapshot, pod));
    let rule = &placement.gpus;
    let (gpus, instances) = match rule.is_on() {
        true => snapshot.fleet.gpus.asked(rule, &demand, pod),
        false => (None, None),
    };
    let has_none = demand.gpus.is_none_or(|gpus| gpus.count == 0) && instances.is_none();
    let leaves = rule.cores != GpuNodeCores::Free && has_none;
    let cores = leaves.then(|| i64::from(demand.cpu.get()));
    let (consolidate, scheduled) = (ConsolidatePod::of(&demand), cores::scheduled(&demand));
    let (class, recognised) = (class.class, class.recognised);
    let deferral = PodDeferral::read(pod);
    Ok((uid, Asked { class, recognised, terms, gpus, instances, consolidate, scheduled, cores, deferral }))
}

/// How much caps would hurt the pod, as far as a trusted profile of its workload says.
fn sensitivity(snapshot: &Snapshot, pod: &RawValue) -> CapSensitivity {
    if snapshot.workloads.is_empty() {
        return CapSensitivity::NONE;
    }
    let said = PodWorkload::read(pod).and_then(|workload| snapshot.workloads.find(workload.names()));
    said.map_or(CapSensitivity::NONE, CapSensitivity::from)
}

/// An offer of this node to the pod, unless the pod is known to add nothing there.
fn offer(snapshot: &Snapshot, pod: Option<PodUid>, number: usize) -> Option<Offer> {
    let (pod, node) = (pod?, NodeKey(u32::try_from(number).ok()?));
    let watts = snapshot.adds(pod, node);
    (watts != Some(Watts::ZERO)).then_some(Offer { pod, node, watts })
}

/// One candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// The whole candidate as it is in the body: an object, or a name with its quotes.
    pub(crate) raw: Span,
    /// The name's span in the body; empty if it has none.
    pub(crate) name: Span,
    pub(crate) escaped: bool,
}

impl Candidate {
    /// The node's number.
    pub(crate) fn number(&self, index: &Index, body: &[u8]) -> Option<usize> {
        if self.escaped {
            return index.find(text(body, self.name, true).as_bytes());
        }
        index.find(self.name.of(body))
    }
}

impl From<&Item> for Candidate {
    fn from(item: &Item) -> Self {
        Self { raw: item.raw, name: item.name, escaped: item.escaped }
    }
}

/// The candidates, in the order of the request.
#[derive(Clone)]
pub(crate) enum Listed<'c> {
    None,
    Names(std::slice::Iter<'c, Span>, bool),
    Nodes(std::slice::Iter<'c, Item>),
}

pub(crate) fn candidates(candidates: &Candidates) -> Listed<'_> {
    match candidates {
        Candidates::None => Listed::None,
        Candidates::Names(names) => Listed::Names(names.spans.iter(), names.escaped),
        Candidates::Nodes(items) => Listed::Nodes(items.iter()),
    }
}

impl Listed<'_> {
    /// The first `count` of the remaining candidates.
    fn first(self, count: usize) -> Self {
        match self {
            Self::None => Self::None,
            Self::Names(names, escaped) => {
                Self::Names(names.as_slice().get(..count).unwrap_or_default().iter(), escaped)
            }
            Self::Nodes(items) => Self::Nodes(items.as_slice().get(..count).unwrap_or_default().iter()),
        }
    }

    /// The object at this position among the remaining candidates, if they are objects.
    pub(crate) fn object<'b>(&self, place: usize, body: &'b [u8]) -> Option<&'b [u8]> {
        match self {
            Self::None | Self::Names(..) => None,
            Self::Nodes(items) => items.as_slice().get(place).map(|item| item.raw.of(body)),
        }
    }

    /// The name of the candidate at this position among the remaining ones.
    pub(crate) fn name(&self, place: usize) -> Option<Span> {
        match self {
            Self::None => None,
            Self::Names(names, _) => names.as_slice().get(place).copied(),
            Self::Nodes(items) => items.as_slice().get(place).map(|item| item.name),
        }
    }

    /// The candidate at this position among the remaining ones.
    pub(crate) fn at(&self, place: usize) -> Option<Candidate> {
        match self {
            Self::None => None,
            Self::Names(names, escaped) => {
                Self::Names(names.as_slice().get(place..)?.iter(), *escaped).next()
            }
            Self::Nodes(items) => items.as_slice().get(place).map(Candidate::from),
        }
    }
}

impl Iterator for Listed<'_> {
    type Item = Candidate;

    #[inline]
    fn next(&mut self) -> Option<Candidate> {
        match self {
            Self::None => None,
            Self::Names(names, escaped) => names.next().map(|&name| Candidate {
                raw: Span { start: name.start.saturating_sub(1), end: name.end.saturating_add(1) },
                name,
                escaped: *escaped,
            }),
            Self::Nodes(items) => items.next().map(Candidate::from),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Self::None => 0,
            Self::Names(names, _) => names.len(),
            Self::Nodes(items) => items.len(),
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Listed<'_> {}

/// The numbers of the candidates, in the order of the request.
pub(crate) struct Numbered<'c> {
    index: &'c Index,
    body: &'c [u8],
    /// Candidates that were not looked up yet.
    left: Listed<'c>,
    numbers: Numbers,
    /// How many were looked up together, and how many of them were returned.
    count: usize,
    used: usize,
}

impl<'c> Numbered<'c> {
    pub(crate) fn of(snapshot: &'c Snapshot, message: &'c Message<'_>) -> Self {
        let left = candidates(&message.candidates);
        let index = &snapshot.fleet.index;
        Self { index, body: message.body, left, numbers: Numbers::NONE, count: 0, used: 0 }
    }

    /// The next candidates, as many as are looked up together, and their numbers. Do not mix it with the iterator:
    /// candidates that one of them has looked up are not returned by the other.
    pub(crate) fn some(&mut self) -> Option<(Listed<'c>, &Numbers)> {
        let some = self.left.clone();
        self.look_up();
        self.used = self.count;
        Some((some.first(self.count), &self.numbers)).filter(|_| self.count > 0)
    }

    fn look_up(&mut self) {
        (self.count, self.used) = (self.left.len().min(AT_ONCE), 0);
        let (these, body) = (self.left.clone(), self.body);
        let mut escaped = false;
        self.numbers = match &mut self.left {
            Listed::None => Numbers::NONE,
            Listed::Names(spans, has_escapes) => {
                escaped = *has_escapes;
                self.index.find_all(spans.by_ref().map(|span| span.of(body)))
            }
            Listed::Nodes(items) => self.index.find_all(items.by_ref().map(|item| {
                escaped |= item.escaped;
                item.name.of(body)
            })),
        };
        if escaped {
            let texts = these.map(|candidate| text(body, candidate.name, candidate.escaped));
            let texts: Vec<_> = texts.take(AT_ONCE).collect();
            self.numbers = self.index.find_all(texts.iter().map(|text| text.as_bytes()));
        }
    }
}

impl Iterator for Numbered<'_> {
    type Item = Option<usize>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.used == self.count {
            self.look_up();
            if self.count == 0 {
                return None;
            }
        }
        let number = self.numbers.at(self.used);
        self.used += 1;
        Some(number)
    }
}

pub(crate) fn admission(snapshot: &Snapshot, number: Option<usize>) -> Admission {
    number.and_then(|number| snapshot.fleet.admissions.get(number)).copied().unwrap_or(Admission::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Registry;
    use crate::snapshot::Fleet;
    use std::sync::Arc;

    #[test]
    fn every_candidate_has_its_number_however_its_name_is_written() {
        let mut registry = Registry::default();
        for node in 0..200 {
            registry.number(&format!("n-{node}"));
        }
        let index = Arc::new(Index::of(&registry));
        let fleet = Arc::new(Fleet { index, ..Fleet::default() });
        let snapshot = Snapshot { fleet, ..Snapshot::nothing() };
        for escaped in [1, 7, 1_000] {
            // One name in `escaped` is written with an escape; the last name is not a known node.
            let quoted = (1..=200).map(|node| {
                if node % escaped == 0 { format!(r#""\u006e-{node}""#) } else { format!(r#""n-{node}""#) }
            });
            let body = format!(r#"{{"NodeNames":[{}]}}"#, quoted.collect::<Vec<_>>().join(","));
            let message = Message::read(body.as_bytes()).unwrap();
            let numbers: Vec<_> = Numbered::of(&snapshot, &message).collect();
            assert!(numbers.iter().copied().eq((1..200).map(Some).chain([None])), "{escaped}: {numbers:?}");
        }
    }
}
