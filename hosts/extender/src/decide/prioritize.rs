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
    let mut out = Vec::with_capacity(text.saturating_add((count + 1).saturating_mul(ENTRY_BYTES)));
    out.extend_from_slice(b"[{\"host\":\"");
    let begun = out.len();
    for (candidate, points) in candidates(&message.candidates).zip(points) {
        let name = candidate.name.of(message.body);
        // Whoever has no name cannot be told of.
        if !name.is_empty() {
            out.extend_from_slice(name);
            out.extend_from_slice(Tail::of(points.get()));
        }
    }
    // An entry has begun that does not come.
    let ended = if out.len() > begun { out.len() - NEXT.len() } else { 1 };
    out.truncate(ended);
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

/// What comes between two entries.
const NEXT: &[u8] = b",{\"host\":\"";
/// What an entry has besides its name: `","score":100},{"host":"`.
const ENTRY_BYTES: usize = 24;

/// What comes behind a name: its points, and the beginning of the next entry.
#[derive(Clone, Copy)]
struct Tail {
    text: [u8; ENTRY_BYTES],
    length: usize,
}

/// For every number of points that there is.
static TAILS: [Tail; 101] = {
    let mut all = [Tail { text: [0; ENTRY_BYTES], length: 0 }; 101];
    let (mut points, mut at) = (0_u8, 0);
    while at < all.len() {
        all[at] = Tail::new(points);
        points += 1;
        at += 1;
    }
    all
};

impl Tail {
    const fn new(points: u8) -> Self {
        let mut tail = Self { text: [0; ENTRY_BYTES], length: 0 };
        tail.add(b"\",\"score\":");
        if points >= 100 {
            tail.add(&[b'0' + points / 100]);
        }
        if points >= 10 {
            tail.add(&[b'0' + points / 10 % 10]);
        }
        tail.add(&[b'0' + points % 10]);
        tail.add(b"}");
        tail.add(NEXT);
        tail
    }

    const fn add(&mut self, more: &[u8]) {
        let mut at = 0;
        while at < more.len() {
            self.text[self.length] = more[at];
            self.length += 1;
            at += 1;
        }
    }

    fn of(points: u8) -> &'static [u8] {
        // The best score is a hundred.
        let tail = TAILS.get(usize::from(points)).or(TAILS.last());
        tail.and_then(|tail| tail.text.get(..tail.length)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_points_is_written() {
        for points in 0..=100 {
            let expected = format!("\",\"score\":{points}}},{{\"host\":\"");
            assert_eq!(Tail::of(points), expected.as_bytes());
        }
    }
}
