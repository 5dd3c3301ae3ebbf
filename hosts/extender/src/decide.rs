//! A request and a snapshot into an answer. Nothing here waits, locks, or reads a clock.

mod filter;
pub(crate) use filter::judge;
mod prioritize;

use crate::reply::Reply;
use crate::scan::{Candidates, Item, Malformed, Message, text, wide::Span};
use crate::settings::Placement;
use crate::snapshot::{Filter, Snapshot};
use bytes::Bytes;
use joulie_api::extender::Brief;
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::demand::{Demand, MilliCores};
use joulie_core::placement::score::PodTerms;
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
}

/// Answers filter.
pub(crate) fn filter(
    snapshot: &Snapshot,
    placement: &Placement,
    body: &Bytes,
) -> Result<(Reply, Outcome), Malformed> {
    let message = Message::read(body)?;
    let asked = asked(&message, placement)?;
    Ok(filter::answer(snapshot, placement, body, &message, &asked))
}

/// Answers prioritize.
pub(crate) fn prioritize(
    snapshot: &Snapshot,
    placement: &Placement,
    body: &Bytes,
) -> Result<(Reply, Outcome), Malformed> {
    let message = Message::read(body)?;
    let asked = asked(&message, placement)?;
    Ok(prioritize::answer(snapshot, placement, &message, &asked))
}

/// The pod of a request; none asks for nothing and is standard.
pub(crate) fn asked(message: &Message<'_>, placement: &Placement) -> Result<Asked, Malformed> {
    let coefficients = &placement.scoring.coefficients;
    let Some(pod) = message.pod else {
        let class = WorkloadClass::Standard;
        let demand = Demand { class, cpu: MilliCores::new(0), memory_bytes: 0, gpus: None };
        return Ok(Asked { class, recognised: true, terms: PodTerms::of(&demand, coefficients) });
    };
    let raw: &RawValue = serde_json::from_str(pod).map_err(Malformed::new)?;
    let Brief { class, demand } = Brief::read(raw).map_err(Malformed::new)?;
    Ok(Asked { class: class.class, recognised: class.recognised, terms: PodTerms::of(&demand, coefficients) })
}

/// One candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// All of it, as it is in the body: an object, or a name with its quotes.
    pub(crate) raw: Span,
    /// Its name; empty where it has none.
    pub(crate) name: Span,
    pub(crate) escaped: bool,
    /// Whether `raw` is an object.
    pub(crate) is_object: bool,
}

impl Candidate {
    /// Its number in the snapshot.
    #[inline]
    pub(crate) fn number(&self, snapshot: &Snapshot, body: &[u8]) -> Option<usize> {
        if self.escaped {
            return snapshot.fleet.index.find(text(body, self.name, true).as_bytes());
        }
        snapshot.fleet.index.find(self.name.of(body))
    }
}

impl From<&Item> for Candidate {
    fn from(item: &Item) -> Self {
        Self { raw: item.raw, name: item.name, escaped: item.escaped, is_object: true }
    }
}

/// The candidates, in the order of the request.
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
}

pub(crate) fn filter_of(snapshot: &Snapshot, number: Option<usize>) -> Filter {
    number.and_then(|number| snapshot.fleet.filters.get(number)).copied().unwrap_or(Filter::UNKNOWN)
}
