//! The answer to prioritize: every candidate with its score, in the order of the request.
//!
//! The scores are those of the formula, with one exception: while other pods are expected and several nodes share the
//! best score, one of them keeps it and the others get one point less (docs/adr/0011).

use super::{Asked, Candidate, Numbered, Outcome, candidates};
use crate::expected::Offer;
use crate::index;
use crate::kinds::Weighed;
use crate::reply::Reply;
use crate::scan::{Candidates, Message};
use crate::settings::{GpuNodeCores, PlacementSettings};
use crate::snapshot::{Snapshot, View};
use bytes::Bytes;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::filter::Rejection;
use joulie_core::placement::gpu::{self, GpuRequest, Packing};
use joulie_core::placement::score::{
    self, ConsolidateCandidate, Formula, Points, ScoreMax, consolidate_all, score_all,
};
use joulie_core::placement::sensitivity::{CapSensitivity, PointsLost};
use power_units::Watts;

pub(super) fn answer(
    view: &View<'_>,
    placement: &PlacementSettings,
    message: &Message<'_>,
    pod: Option<PodUid>,
    asked: &Asked,
) -> (Reply, Outcome) {
    let Scored { points, unknown, offer } = scored(view, placement, message, pod, asked);
    let text = length_of_names(message);
    let mut out = Vec::with_capacity(text.saturating_add((points.len() + 1).saturating_mul(ENTRY_BYTES)));
    out.extend_from_slice(b"[{\"host\":\"");
    let begun = out.len();
    for (candidate, points) in candidates(&message.candidates).zip(&points) {
        let name = candidate.name.of(message.body);
        // A candidate without a name cannot be listed.
        if !name.is_empty() {
            out.extend_from_slice(name);
            out.extend_from_slice(Tail::of(points.get()));
        }
    }
    // Remove the beginning of an entry that does not follow.
    let ended = if out.len() > begun { out.len() - NEXT.len() } else { 1 };
    out.truncate(ended);
    out.push(b']');
    let rejected = [0; Rejection::KINDS.len()];
    let outcome = Outcome { asked: *asked, rejected, unknown, offer, list: None };
    (Bytes::from(out).into(), outcome)
}

/// The scores of all candidates, in the order of the request.
pub(crate) struct Scored {
    pub(crate) points: Vec<Points>,
    unknown: u32,
    offer: Option<Offer>,
}

/// The points of all candidates by the formula alone, in the order of the request, and how many are unknown.
pub(crate) fn points(
    view: &View<'_>,
    placement: &PlacementSettings,
    message: &Message<'_>,
    pod: Option<PodUid>,
    asked: &Asked,
) -> (Vec<Points>, u32) {
    let mut points = vec![Points::Unknown(0); candidates(&message.candidates).len()];
    let unseen = view.unseen(pod);
    let weighed = view.snapshot.fleet.kinds.weigh(&asked.terms);
    let hurt = asked.terms.sensitivity();
    let looked_up = Numbered::of(view.snapshot, message)
        .map(|number| (number, looked_up(view.snapshot, &unseen, &weighed, hurt, number)));
    let scoring = &placement.scoring;
    let unknown = match scoring.formula {
        Formula::Headroom | Formula::Facility => {
            score_all(scoring, asked.class, looked_up.map(|(_, candidate)| candidate), &mut points).unknown
        }
        Formula::Consolidate => {
            let candidates = looked_up.map(|(number, candidate)| {
                let score::NodeCandidate { added, assumed, lost, .. } = candidate;
                ConsolidateCandidate { terms: view.snapshot.consolidated(number), added, assumed, lost }
            });
            consolidate_all(scoring, &asked.consolidate, candidates, &mut points).unknown
        }
    };
    if let Some(Ok(request)) = asked.gpus {
        mix(view.snapshot, placement, message, (request, asked), &mut points);
    }
    if let (Some(milli), GpuNodeCores::Score) = (asked.cores, placement.gpus.cores) {
        leave_cores(view.snapshot, placement, message, milli, &mut points);
    }
    (points, unknown)
}

pub(crate) fn scored(
    view: &View<'_>,
    placement: &PlacementSettings,
    message: &Message<'_>,
    pod: Option<PodUid>,
    asked: &Asked,
) -> Scored {
    let (mut points, unknown) = points(view, placement, message, pod, asked);
    let drawn = pod.and_then(|pod| draw(message, pod, &points));
    let offer = drawn.and_then(|(_, candidate)| {
        super::offer(view.snapshot, pod, candidate.number(&view.snapshot.fleet.index, message.body)?)
    });
    if let (Some((at, _)), Some(_)) = (drawn, offer)
        && view.expects_others(pod)
    {
        offer_alone(&mut points, at);
    }
    Scored { points, unknown, offer }
}

/// Mixes the scores with those of the nodes' GPUs (docs/adr/0032).
fn mix(
    snapshot: &Snapshot,
    placement: &PlacementSettings,
    message: &Message<'_>,
    (request, asked): (GpuRequest, &Asked),
    points: &mut [Points],
) {
    // Where no node's size is known, the cards decide alone.
    let fills = request.packing() == Packing::Pack && !snapshot.loads.is_empty();
    for (number, points) in Numbered::of(snapshot, message).zip(points) {
        let score = snapshot.fleet.gpus.score(request, number);
        let fill = fills.then(|| snapshot.fill(&asked.scheduled, number));
        let score = match placement.scoring.max {
            ScoreMax::Hundred => score,
            ScoreMax::Ten => score / 10,
        };
        let fill = match placement.scoring.max {
            ScoreMax::Hundred => fill,
            ScoreMax::Ten => fill.map(|fill| fill / 10),
        };
        let mixed = gpu::mixed(score, fill, points.get(), placement.gpus.share);
        *points = match points {
            Points::Known(_) => Points::Known(mixed),
            Points::Unknown(_) => Points::Unknown(mixed),
        };
    }
}

/// The points that a node loses where a pod without GPUs would take cores that free GPUs need.
const CORES_LOST: u8 = 25;

/// Scores the nodes lower whose free GPUs need the cores that a pod without GPUs would take (docs/adr/0040).
fn leave_cores(
    snapshot: &Snapshot,
    placement: &PlacementSettings,
    message: &Message<'_>,
    milli: i64,
    points: &mut [Points],
) {
    let lost = match placement.scoring.max {
        ScoreMax::Hundred => CORES_LOST,
        ScoreMax::Ten => CORES_LOST / 10,
    };
    for (number, points) in Numbered::of(snapshot, message).zip(points) {
        if snapshot.takes_gpu_cores(milli, number) {
            *points = match *points {
                Points::Known(points) => Points::Known(points.saturating_sub(lost)),
                Points::Unknown(points) => Points::Unknown(points.saturating_sub(lost)),
            };
        }
    }
}

/// One of the candidates with the best score, and its position. The draw depends on the pod's UID and the names, not
/// on the order of the request.
fn draw(message: &Message<'_>, pod: PodUid, points: &[Points]) -> Option<(usize, Candidate)> {
    let most = points.iter().map(|points| points.get()).max()?;
    let (all, names) = (candidates(&message.candidates), message.body);
    let alike = points.iter().enumerate().filter(|(_, points)| points.get() == most);
    let alike = alike.filter_map(|(at, _)| Some((at, all.at(at)?)));
    alike.max_by_key(|(_, candidate)| index::draw(candidate.name.of(names), pod))
}

/// Takes one point off the other candidates with the same score. kube-scheduler takes any of several equal nodes, so
/// the pod may be expected on the wrong one. That is harmless for one pod, but not while many are expected.
fn offer_alone(points: &mut [Points], at: usize) {
    let Some(most) = points.get(at).map(|points| points.get()) else { return };
    for (_, other) in
        points.iter_mut().enumerate().filter(|(place, other)| *place != at && other.get() == most)
    {
        let less = most.saturating_sub(1);
        *other = match other {
            Points::Known(_) => Points::Known(less),
            Points::Unknown(_) => Points::Unknown(less),
        };
    }
}

#[inline]
fn looked_up<'s>(
    snapshot: &'s Snapshot,
    unseen: &[Watts],
    weighed: &Weighed<'_>,
    hurt: CapSensitivity,
    number: Option<usize>,
) -> score::NodeCandidate<'s> {
    let Some(number) = number else {
        let (added, assumed) = (Watts::ZERO, Watts::ZERO);
        return score::NodeCandidate { terms: None, added, assumed, lost: PointsLost::NONE };
    };
    let assumed = unseen.get(number).copied().unwrap_or(Watts::ZERO);
    let lost = match hurt == CapSensitivity::NONE {
        true => PointsLost::NONE,
        false => snapshot.fleet.depths.get(number).map_or(PointsLost::NONE, |depth| hurt.lost(*depth)),
    };
    score::NodeCandidate { terms: snapshot.fleet.terms.get(number), added: weighed.on(number), assumed, lost }
}

/// The total length of all names.
fn length_of_names(message: &Message<'_>) -> usize {
    match &message.candidates {
        Candidates::None => 0,
        Candidates::Names(names) => names.spans.iter().fold(0, |sum, span| sum + span.range().len()),
        Candidates::Nodes(nodes) => nodes.iter().fold(0, |sum, node| sum + node.name.range().len()),
    }
}

/// What separates two entries.
const NEXT: &[u8] = b",{\"host\":\"";
/// The bytes of an entry besides its name: `","score":100},{"host":"`.
const ENTRY_BYTES: usize = 24;

/// The text after a name: its score and the beginning of the next entry.
#[derive(Clone, Copy)]
struct Tail {
    text: [u8; ENTRY_BYTES],
    length: usize,
}

/// One for each possible score.
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
        // The highest score is 100.
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
