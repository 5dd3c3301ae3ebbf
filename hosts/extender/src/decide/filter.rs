//! The answer to filter: who is left, and why the others are not.

mod writer;

use self::writer::Writer;
use super::{Asked, Numbered, Outcome, admission, candidates};
use crate::expected::Offer;
use crate::index::{AT_ONCE, Numbers};
use crate::kinds::Weighed;
use crate::reply::Reply;
use crate::scan::{Message, has_label};
use crate::settings::PlacementSettings;
use crate::snapshot::{Admission, Snapshot};
use bytes::Bytes;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::filter::{PowerFit, Rejection};
use power_units::Watts;

pub(super) fn answer(
    snapshot: &Snapshot,
    placement: &PlacementSettings,
    body: &Bytes,
    message: &Message<'_>,
    pod: Option<PodUid>,
    asked: &Asked,
) -> (Reply, Outcome) {
    let mut writer = Writer::new(message, asked);
    let power = (placement.power_fit == PowerFit::Filter).then(|| snapshot.fleet.kinds.weigh(&asked.terms));
    if power.is_some() || asked.class == WorkloadClass::Performance {
        let mut all = Numbered::of(snapshot, message);
        while let Some((some, numbers)) = all.some() {
            let sorted = sort(snapshot, asked.class, numbers, some.len(), power.as_ref());
            writer.writes(&some, sorted, |place| {
                let object = || some.object(place, message.body);
                judge(snapshot, asked.class, numbers.at(place), power.as_ref(), object)
            });
        }
    } else {
        // A standard pod that only lowers scores passes everywhere: nobody needs to be looked up.
        writer.keeps_all();
    }
    writer.outcome.offer = only(snapshot, message, pod, &writer);
    writer.finish(body)
}

/// A node that is the only one, and is kept: kube-scheduler puts the pod there and asks for no scores.
fn only(
    snapshot: &Snapshot,
    message: &Message<'_>,
    pod: Option<PodUid>,
    writer: &Writer<'_>,
) -> Option<Offer> {
    let mut all = candidates(&message.candidates);
    let candidate = if all.len() == 1 { all.next()? } else { return None };
    let number = candidate.number(&snapshot.fleet.index, message.body).filter(|_| writer.keeps_last())?;
    super::offer(snapshot, pod, number)
}

/// What stands between a pod and a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    /// Free for a pod that its class keeps from no node.
    admission: Admission,
    /// How far the pod would take the node over its cap, where that counts; nothing or less where it does not.
    over: Watts,
}

impl Verdict {
    const PASSES: Self = Self { admission: Admission::Free, over: Watts::ZERO };

    /// Why the node is rejected, if it is.
    pub(crate) fn rejection(self) -> Option<Rejection> {
        match self.admission {
            Admission::Eco => Some(Rejection::Eco),
            Admission::Draining => Some(Rejection::Draining),
            Admission::EcoLabel => Some(Rejection::EcoLabel),
            Admission::Free | Admission::Unlabelled => {
                (self.over > Watts::ZERO).then_some(Rejection::OverCap { by: self.over })
            }
        }
    }
}

/// Whether a pod of this class may go to a node; with what it weighs, whether it fits under the cap there, too. `object` is
/// the node as it is in the request, where it is.
#[inline]
pub(crate) fn judge<'o>(
    snapshot: &Snapshot,
    class: WorkloadClass,
    number: Option<usize>,
    power: Option<&Weighed<'_>>,
    object: impl FnOnce() -> Option<&'o [u8]>,
) -> Verdict {
    let mut verdict = Verdict::PASSES;
    if class == WorkloadClass::Performance {
        verdict.admission = admission(snapshot, number);
        let says_eco = |object| has_label(object, &snapshot.fleet.profile_key, "eco");
        if verdict.admission == Admission::Unlabelled && object().is_some_and(says_eco) {
            verdict.admission = Admission::EcoLabel;
        }
    }
    if let (Some(power), Some(number)) = (power, number) {
        verdict.over = over_cap(snapshot, number, power);
    }
    verdict
}

/// How far a pod that weighs this would take a node over its cap.
#[inline]
fn over_cap(snapshot: &Snapshot, number: usize, power: &Weighed<'_>) -> Watts {
    let added = power.on(number) + snapshot.assumed(number);
    snapshot.fleet.filters.get(number).map_or(Watts::ZERO, |filter| filter.over(added))
}

/// Candidates that are looked at together, a bit for each.
#[derive(Clone, Copy)]
struct Sorted {
    /// One for each.
    all: u64,
    /// Those that pass, unless their own label says otherwise.
    kept: u64,
    /// Of these, those whose label counts, where the request has it.
    unlabelled: u64,
    /// Those that are rejected for what their twin says of the profile.
    eco: u64,
}

/// What [`judge`] says of so many. Which of them pass cannot be foreseen, and a processor that has to is wrong each second time:
/// so each step is done for all of them, and none is a choice.
fn sort(
    snapshot: &Snapshot,
    class: WorkloadClass,
    numbers: &Numbers,
    count: usize,
    power: Option<&Weighed<'_>>,
) -> Sorted {
    let all = u32::try_from(count)
        .ok()
        .and_then(|count| u64::MAX.checked_shl(count))
        .map_or(u64::MAX, |behind| !behind);
    let mut sorted = Sorted { all, kept: all, unlabelled: 0, eco: 0 };
    if class == WorkloadClass::Performance {
        let mut bits = [0; AT_ONCE];
        for (bit, number) in bits.iter_mut().zip(numbers.each()) {
            *bit = admission(snapshot, number).bit();
        }
        let those = |which: Admission| column(&bits, which) & all;
        sorted.unlabelled = those(Admission::Unlabelled);
        sorted.eco = those(Admission::Eco);
        sorted.kept = those(Admission::Free) | sorted.unlabelled;
    }
    if let Some(power) = power {
        let mut over = 0;
        for (place, number) in (0..AT_ONCE).zip(numbers.each()) {
            let over_by = number.map_or(Watts::ZERO, |number| over_cap(snapshot, number, power));
            over |= u64::from(over_by > Watts::ZERO) << place;
        }
        sorted.kept &= !over;
    }
    sorted
}

/// Of which of so many bytes the bit of this admission is set.
fn column(bytes: &[u8; AT_ONCE], which: Admission) -> u64 {
    let is_set = bytes.iter().map(|byte| u64::from(byte & which.bit() != 0));
    is_set.zip(0..).fold(0, |all, (bit, place)| all | bit << place)
}

/// A bit for each of those that are judged together.
const _: () = assert!(AT_ONCE <= 64, "there is no bit for so many");

#[cfg(test)]
mod tests;
