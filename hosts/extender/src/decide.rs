//! A request and a snapshot into an answer. Nothing here waits, locks, or reads a clock.

mod filter;
pub(crate) use filter::judge;
mod prioritize;
pub(crate) use prioritize::scored;

use crate::expected::Offer;
use crate::reply::Reply;
use crate::scan::{Candidates, Item, Malformed, Message, text, wide::Span};
use crate::settings::Placement;
use crate::snapshot::{Admission, Snapshot, View};
use bytes::Bytes;
use joulie_api::extender::Brief;
use joulie_core::placement::assumed::{NodeKey, PodUid};
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::demand::{Demand, MilliCores};
use joulie_core::placement::score::PodTerms;
use power_units::Watts;
use serde_json::value::RawValue;

/// What a pod is to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) class: WorkloadClass,
    /// Whether its annotation is one of the two words, or missing.
    pub(crate) recognised: bool,
    pub(crate) terms: PodTerms,
}

/// What became of a request, beside its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) asked: Asked,
    /// Candidates that were rejected, by `Rejection::KINDS`.
    pub(crate) rejected: [u32; 4],
    /// Candidates that were scored as unknown.
    pub(crate) unknown: u32,
    /// Where kube-scheduler is likely to put the pod after this answer, if that can be told.
    pub(crate) offer: Option<Offer>,
}

/// Answers filter.
pub(crate) fn filter(
    view: &View<'_>,
    placement: &Placement,
    body: &Bytes,
) -> Result<(Reply, Outcome), Malformed> {
    let message = Message::read(body)?;
    let (pod, asked) = asked(&message, placement)?;
    Ok(filter::answer(view.snapshot, placement, body, &message, (pod, &asked)))
}

/// Answers prioritize.
pub(crate) fn prioritize(
    view: &View<'_>,
    placement: &Placement,
    body: &Bytes,
) -> Result<(Reply, Outcome), Malformed> {
    let message = Message::read(body)?;
    let (pod, asked) = asked(&message, placement)?;
    Ok(prioritize::answer(view, placement, &message, (pod, &asked)))
}

/// The pod of a request; none asks for nothing and is standard.
pub(crate) fn asked(
    message: &Message<'_>,
    placement: &Placement,
) -> Result<(Option<PodUid>, Asked), Malformed> {
    let coefficients = &placement.scoring.coefficients;
    let Some(pod) = message.pod else {
        let class = WorkloadClass::Standard;
        let demand = Demand { class, cpu: MilliCores::new(0), memory_bytes: 0, gpus: None };
        let terms = PodTerms::of(&demand, coefficients);
        return Ok((None, Asked { class, recognised: true, terms }));
    };
    let raw: &RawValue = serde_json::from_str(pod).map_err(Malformed::new)?;
    let Brief { uid, class, demand } = Brief::read(raw).map_err(Malformed::new)?;
    let terms = PodTerms::of(&demand, coefficients);
    Ok((uid, Asked { class: class.class, recognised: class.recognised, terms }))
}

/// The pod on the node of this number, if it has a name to be known by and adds anything there.
fn offer(snapshot: &Snapshot, pod: Option<PodUid>, asked: &Asked, number: usize) -> Option<Offer> {
    let watts = snapshot.fleet.terms.get(number)?.estimate(&asked.terms).total();
    let node = NodeKey(u32::try_from(number).ok()?);
    Some(Offer { pod: pod?, node, watts }).filter(|offer| offer.watts > Watts::ZERO)
}

/// One candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// All of it, as it is in the body: an object, or a name with its quotes.
    pub(crate) raw: Span,
    /// Its name, in [`Message::names`]; empty where it has none.
    pub(crate) name: Span,
    pub(crate) escaped: bool,
    /// Whether `raw` is an object.
    pub(crate) is_object: bool,
}

impl Candidate {
    /// Its number in the snapshot.
    #[inline]
    pub(crate) fn number(&self, snapshot: &Snapshot, names: &[u8]) -> Option<usize> {
        if self.escaped {
            return snapshot.fleet.index.find(text(names, self.name, true).as_bytes());
        }
        snapshot.fleet.index.find(self.name.of(names))
    }
}

impl From<&Item> for Candidate {
    fn from(item: &Item) -> Self {
        Self { raw: item.raw, name: item.name, escaped: item.escaped, is_object: true }
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
        Candidates::Nodes(nodes) => Listed::Nodes(nodes.items.iter()),
    }
}

impl Listed<'_> {
    /// The candidate at this place of those that are left.
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
                is_object: false,
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

/// How many candidates are looked up before they are judged.
const AT_ONCE: usize = 64;

/// Looks the candidates up, some dozens at a time, and hands each with its number to `each`. A lookup waits for memory; as
/// long as nothing is decided between two of them, the processor waits for many at once.
#[inline]
pub(crate) fn each_with_number(
    snapshot: &Snapshot,
    message: &Message<'_>,
    mut each: impl FnMut(&Candidate, Option<usize>),
) {
    let (mut ahead, names) = (candidates(&message.candidates), message.names());
    let mut behind = ahead.clone();
    let mut numbers = [None; AT_ONCE];
    while ahead.len() > 0 {
        for (number, candidate) in numbers.iter_mut().zip(ahead.by_ref()) {
            *number = candidate.number(snapshot, names);
        }
        for (number, candidate) in numbers.iter().zip(behind.by_ref()) {
            each(&candidate, *number);
        }
    }
}

pub(crate) fn admission(snapshot: &Snapshot, number: Option<usize>) -> Admission {
    number.and_then(|number| snapshot.fleet.admissions.get(number)).copied().unwrap_or(Admission::UNKNOWN)
}
