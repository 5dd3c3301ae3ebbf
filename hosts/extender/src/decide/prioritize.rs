//! The answer to prioritize: every candidate with its points, in the order of the request.

use super::{Asked, Candidate, Outcome, candidates};
use crate::reply::Reply;
use crate::scan::{Candidates, Message};
use crate::settings::Placement;
use crate::snapshot::Snapshot;
use bytes::Bytes;
use joulie_core::placement::score::{self, Points, score_all};
use power_units::Watts;

pub(super) fn answer(
    snapshot: &Snapshot,
    placement: &Placement,
    message: &Message<'_>,
    asked: &Asked,
) -> (Reply, Outcome) {
    let (count, text) = sizes(message);
    let mut points = vec![Points::Unknown(0); count];
    let looked_up =
        candidates(&message.candidates).map(|candidate| looked_up(snapshot, message.body, &candidate));
    let scored = score_all(&placement.scoring, &asked.terms, looked_up, &mut points);
    let mut out =
        Vec::with_capacity(text.saturating_add(count.saturating_mul(ENTRY_BYTES)).saturating_add(2));
    out.push(b'[');
    for (candidate, points) in candidates(&message.candidates).zip(points) {
        let name = candidate.name.of(message.body);
        // Whoever has no name cannot be told of.
        if name.is_empty() {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"host\":\"");
        out.extend_from_slice(name);
        out.extend_from_slice(b"\",\"score\":");
        digits(points.get(), &mut out);
        out.push(b'}');
    }
    out.push(b']');
    let outcome = Outcome { asked: *asked, rejected: [0; 4], unknown: scored.unknown };
    (Reply::of(vec![Bytes::from(out)]), outcome)
}

#[inline]
fn looked_up<'s>(snapshot: &'s Snapshot, body: &[u8], candidate: &Candidate) -> score::Candidate<'s> {
    let Some(number) = candidate.number(snapshot, body) else {
        return score::Candidate { terms: None, assumed: Watts::ZERO };
    };
    score::Candidate { terms: snapshot.fleet.terms.get(number), assumed: snapshot.assumed(number) }
}

/// What an entry has besides its name: `{"host":"","score":100},`.
const ENTRY_BYTES: usize = 25;

/// How many candidates, and how long their names are together.
fn sizes(message: &Message<'_>) -> (usize, usize) {
    match &message.candidates {
        Candidates::None => (0, 0),
        Candidates::Names(names) => {
            (names.spans.len(), names.spans.iter().fold(0, |sum, span| sum + span.range().len()))
        }
        Candidates::Nodes(items) => {
            (items.len(), items.iter().fold(0, |sum, item| sum + item.name.range().len()))
        }
    }
}

fn digits(points: u8, out: &mut Vec<u8>) {
    let (hundreds, tens, ones) = (points / 100, points / 10 % 10, points % 10);
    if hundreds > 0 {
        out.push(b'0' + hundreds);
    }
    if hundreds > 0 || tens > 0 {
        out.push(b'0' + tens);
    }
    out.push(b'0' + ones);
}
