//! The answer to filter: which nodes pass, and why the others do not.

mod writer;

use self::writer::{Writer, places};
use super::{GpuNeeds, Listed, Numbered, Outcome, admission, candidates};
use crate::budgets;
use crate::expected::Offer;
use crate::index::{AT_ONCE, Numbers};
use crate::kinds::Weighed;
use crate::reply::Reply;
use crate::scan::{Message, has_label};
use crate::settings::PlacementSettings;
use crate::shortlist::{self, ListAnswer, Wanted};
use crate::snapshot::{Admission, Snapshot, View};
use bytes::Bytes;
use joulie_api::extender::LacksWatts;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::filter::{PowerFit, Rejection};
use power_units::Watts;
use std::fmt;

pub(super) fn answer(
    view: &View<'_>,
    placement: &PlacementSettings,
    body: &Bytes,
    message: &Message<'_>,
    wanted: Wanted<'_>,
) -> (Reply, Outcome) {
    let (snapshot, asked) = (view.snapshot, wanted.asked);
    let mut writer = Writer::new(message, body, asked);
    let power = (placement.power_fit == PowerFit::Filter).then(|| snapshot.fleet.kinds.weigh(&asked.terms));
    let gpus = GpuNeeds::of(asked, placement);
    let sorted = |some: &Listed<'_>, numbers: &Numbers| {
        let mut sorted = sort(snapshot, asked.class, numbers, some.len(), power.as_ref());
        if !gpus.is_none() {
            sorted.kept &= !without_gpus(snapshot, numbers, sorted.kept, gpus);
        }
        sorted
    };
    let passes = |some: &Listed<'_>, numbers: &Numbers| {
        passing(sorted(some, numbers), some, |place| {
            let object = || some.object(place, message.body);
            judge(snapshot, (asked.class, gpus), numbers.at(place), power.as_ref(), object)
        })
    };
    let list = shortlist::of(view, placement, message, wanted, passes);
    writer.outcome.list =
        list.as_ref().map(|list| list.as_ref().map_or_else(|why| *why, |_| ListAnswer::Short));
    let mut chosen = list.and_then(Result::ok);
    if chosen.is_some() || power.is_some() || !gpus.is_none() || asked.class == WorkloadClass::Performance {
        let (mut all, mut first) = (Numbered::of(snapshot, message), 0);
        while let Some((some, numbers)) = all.some() {
            let mut sorted = sorted(&some, numbers);
            if let Some(chosen) = &mut chosen {
                // One that is left out is neither kept nor rejected.
                sorted.kept &= chosen.bits(first, some.len());
                first += some.len();
            }
            writer.writes(&some, sorted, |place| {
                let object = || some.object(place, message.body);
                judge(snapshot, (asked.class, gpus), numbers.at(place), power.as_ref(), object)
            });
        }
    } else {
        // A standard pod passes everywhere while power only lowers scores, so no node is looked up.
        writer.keeps_all();
    }
    writer.outcome.offer = only(snapshot, message, wanted.pod, &writer);
    writer.finish()
}

/// The only candidate, if it passes: kube-scheduler puts the pod there without asking for scores.
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

/// What keeps a pod from a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict<'s> {
    /// `Free` if the pod's class excludes it from no node.
    admission: Admission,
    /// Why it cannot have the node's GPUs, or the cores that they need, or has to wait, if that is so.
    gpu: Option<Rejection>,
    /// Why the power does not suffice for it, if that is checked.
    power: Option<Rejection>,
    /// The PowerBudget that lacks the power.
    budget: Option<&'s str>,
    /// The PowerBudget that keeps it waiting, and why, if it may wait.
    waits: Option<(&'s str, &'s str)>,
}

/// A rejection, with the name of the PowerBudget where that lacks power or keeps the pod waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RejectionReason<'s> {
    why: Rejection,
    budget: Option<&'s str>,
    waits: Option<(&'s str, &'s str)>,
}

impl fmt::Display for RejectionReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.why, self.budget, self.waits) {
            (Rejection::OverBudget { by: watts }, Some(budget), _) => LacksWatts { budget, watts }.fmt(f),
            (Rejection::Deferred, _, Some((budget, why))) => {
                write!(f, "joulie: the pod may wait, and does for the limit of PowerBudget {budget}: {why}")
            }
            (why, ..) => why.fmt(f),
        }
    }
}

impl<'s> Verdict<'s> {
    const PASSES: Self =
        Self { admission: Admission::Free, gpu: None, power: None, budget: None, waits: None };

    /// Why the node is rejected, if it is.
    pub(crate) fn rejection(self) -> Option<Rejection> {
        match self.admission {
            Admission::Eco => Some(Rejection::Eco),
            Admission::Draining => Some(Rejection::Draining),
            Admission::EcoLabel => Some(Rejection::EcoLabel),
            Admission::Free | Admission::Unlabelled => self.gpu.or(self.power),
        }
    }

    /// The same in words.
    pub(crate) fn reason(self) -> Option<RejectionReason<'s>> {
        self.rejection().map(|why| RejectionReason { why, budget: self.budget, waits: self.waits })
    }
}

/// Whether the class of a pod admits it to a node, whether it can have the node's GPUs if it asks for some, and, if `power`
/// is given, whether the power suffices for it there.
/// `object` returns the Node object in the request, if there is one.
#[inline]
pub(crate) fn judge<'s, 'o>(
    snapshot: &'s Snapshot,
    (class, gpus): (WorkloadClass, GpuNeeds<'_>),
    number: Option<usize>,
    power: Option<&Weighed<'_>>,
    object: impl FnOnce() -> Option<&'o [u8]>,
) -> Verdict<'s> {
    let mut verdict = Verdict::PASSES;
    if class == WorkloadClass::Performance {
        verdict.admission = admission(snapshot, number);
        let says_eco = |object| has_label(object, &snapshot.fleet.profile_key, "eco");
        if verdict.admission == Admission::Unlabelled && object().is_some_and(says_eco) {
            verdict.admission = Admission::EcoLabel;
        }
    }
    verdict.gpu = gpus.rejects(snapshot, number);
    verdict.waits = gpus.waits_for(snapshot, number);
    if let (Some(power), Some(number)) = (power, number) {
        let by = snapshot.left.over(number, power.on(number));
        if by > Watts::ZERO {
            let limit = snapshot.left.by(number);
            verdict.power = Some(match limit {
                budgets::NONE => Rejection::OverCap { by },
                _ => Rejection::OverBudget { by },
            });
            verdict.budget = snapshot.fleet.budgets.name(limit);
        }
    }
    verdict
}

/// Verdicts on the candidates that are judged together, one bit for each candidate.
#[derive(Clone, Copy)]
struct Sorted {
    /// One bit for each candidate.
    all: u64,
    /// Candidates that pass, unless their own label says eco.
    kept: u64,
    /// Those of them whose label in the request decides, if the request has labels.
    unlabelled: u64,
    /// Candidates that are rejected because their twin says eco.
    eco: u64,
}

/// [`judge`] for one group of candidates. Which of them pass is hard to predict, and a mispredicted branch is
/// expensive: so every step runs for all of them without a branch.
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
            let over_by = number.map_or(Watts::ZERO, |number| snapshot.left.over(number, power.on(number)));
            over |= u64::from(over_by > Watts::ZERO) << place;
        }
        sorted.kept &= !over;
    }
    sorted
}

/// The candidates that pass, their own labels included. `verdict` is called only for those whose labels decide.
fn passing<'s>(sorted: Sorted, some: &Listed<'_>, verdict: impl Fn(usize) -> Verdict<'s>) -> u64 {
    let mut kept = sorted.kept;
    if matches!(some, Listed::Nodes(_)) {
        for place in places(kept & sorted.unlabelled).filter(|&place| verdict(place).rejection().is_some()) {
            kept &= !(1 << place);
        }
    }
    kept
}

/// Those of these candidates whose GPUs keep a pod off, as a bit mask.
fn without_gpus(snapshot: &Snapshot, numbers: &Numbers, these: u64, needs: GpuNeeds<'_>) -> u64 {
    let mut without = 0;
    for (place, number) in (0..AT_ONCE).zip(numbers.each()) {
        let bit = 1 << place;
        if these & bit != 0 && needs.rejects(snapshot, number).is_some() {
            without |= bit;
        }
    }
    without
}

/// The candidates that have the bit of this admission, as a bit mask. Eight bytes are looked at together: one after the other
/// they took a seventh of the answer to a performance pod.
fn column(bytes: &[u8; AT_ONCE], which: Admission) -> u64 {
    let (eights, _) = bytes.as_chunks::<8>();
    let shift = which.bit().leading_zeros();
    let column = eights.iter().map(|eight| gather(u64::from_le_bytes(*eight) << shift));
    column.zip(0..).fold(0, |all, (bits, eight)| all | bits << (8 * eight))
}

/// The high bits of eight bytes next to each other, that of the lowest byte first.
const fn gather(bytes: u64) -> u64 {
    // The bit of byte b is at 8 b. Shifted by 7 (8 - b) it is at 56 + b, and no two of the other products meet.
    (bytes >> 7 & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// There is one bit for each candidate of a group, and a group consists of eights.
const _: () = assert!(AT_ONCE <= 64 && AT_ONCE.is_multiple_of(8), "there is no bit for so many");

#[cfg(test)]
mod tests;
