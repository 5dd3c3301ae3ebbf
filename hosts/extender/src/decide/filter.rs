//! The answer to filter: who is left, and why the others are not.
//!
//! Who is left goes back as it came: stretches of the request, with a copy of names and without one of objects.

use super::{Asked, Candidate, Listed, Numbered, Outcome, admission, candidates};
use crate::expected::Offer;
use crate::index::AT_ONCE;
use crate::kinds::Weighed;
use crate::reply::Reply;
use crate::scan::{Candidates, Message, has_label};
use crate::settings::Placement;
use crate::snapshot::{Admission, Snapshot};
use bytes::Bytes;
use joulie_api::labels;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::filter::{Eviction, PowerFit, Rejection};
use power_units::Watts;
use std::io::Write;
use std::ops::Range;

pub(super) fn answer(
    snapshot: &Snapshot,
    placement: &Placement,
    body: &Bytes,
    message: &Message<'_>,
    (pod, asked): (Option<PodUid>, &Asked),
) -> (Reply, Outcome) {
    let mut writer = Writer::new(message, asked);
    let power = (placement.power_fit == PowerFit::Filter).then(|| snapshot.fleet.kinds.weigh(&asked.terms));
    if power.is_some() || asked.class == WorkloadClass::Performance {
        let mut all = Numbered::of(snapshot, message);
        while let Some((some, numbers)) = all.some() {
            writer.writes(&some, |place| {
                let object = || some.object(place, message.body);
                judge(snapshot, asked.class, numbers.at(place), power.as_ref(), object)
            });
        }
    } else {
        // A standard pod that only lowers scores passes everywhere: nobody needs to be looked up.
        writer.keeps_all();
    }
    writer.outcome.offer = only(snapshot, message, (pod, asked), &writer);
    writer.finish(body)
}

/// A node that is the only one, and is kept: kube-scheduler puts the pod there and asks for no scores.
fn only(
    snapshot: &Snapshot,
    message: &Message<'_>,
    (pod, asked): (Option<PodUid>, &Asked),
    writer: &Writer<'_>,
) -> Option<Offer> {
    let mut all = candidates(&message.candidates);
    let candidate = if all.len() == 1 { all.next()? } else { return None };
    let number =
        candidate.number(&snapshot.fleet.index, message.names()).filter(|_| writer.open.is_some())?;
    super::offer(snapshot, pod, asked, number)
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

    /// Whether nothing does. Both are looked at whatever the first one says: no choice is to be made.
    #[inline]
    fn passes(self) -> bool {
        matches!(self.admission, Admission::Free | Admission::Unlabelled) & (self.over <= Watts::ZERO)
    }

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
        let says_eco = |object| has_label(object, labels::node::POWER_PROFILE, "eco");
        if verdict.admission == Admission::Unlabelled && object().is_some_and(says_eco) {
            verdict.admission = Admission::EcoLabel;
        }
    }
    if let (Some(power), Some(number)) = (power, number)
        && let Some(filter) = snapshot.fleet.filters.get(number)
    {
        verdict.over = filter.over(power.on(number) + snapshot.assumed(number));
    }
    verdict
}

/// Writes the answer while the candidates are judged.
struct Writer<'m> {
    message: &'m Message<'m>,
    outcome: Outcome,
    /// The stretch of the request that is kept, from the first of its candidates to the last one so far.
    open: Option<Range<usize>>,
    /// Those before it: of objects where they are, of names a copy, each with a comma behind it.
    runs: Vec<Range<usize>>,
    names: Vec<u8>,
    /// Entries of the maps of those that evictions cannot and may help.
    unresolvable: Vec<u8>,
    resolvable: Vec<u8>,
}

impl<'m> Writer<'m> {
    fn new(message: &'m Message<'m>, asked: &Asked) -> Self {
        let outcome = Outcome { asked: *asked, rejected: [0; 4], unknown: 0, offer: None };
        let (runs, names) = (Vec::new(), Vec::new());
        Self { message, outcome, open: None, runs, names, unresolvable: Vec::new(), resolvable: Vec::new() }
    }

    /// All candidates stay.
    fn keeps_all(&mut self) {
        let all = candidates(&self.message.candidates);
        self.keeps_up_to(&all, 0..all.len());
    }

    /// The next candidates, by the verdict on each. Which are kept cannot be foreseen, and a processor that has to is wrong each
    /// second time: they are sorted first, which takes no choice, and then written.
    #[inline]
    fn writes(&mut self, some: &Listed<'_>, verdict: impl Fn(usize) -> Verdict) {
        let mut verdicts = [Verdict::PASSES; AT_ONCE];
        let mut kept = 0;
        for (place, slot) in verdicts.iter_mut().enumerate().take(some.len()) {
            *slot = verdict(place);
            kept |= u64::from(slot.passes()) << place;
        }
        self.keeps(some, kept);
        // Behind the last one there is nothing to reject.
        for place in places(!kept) {
            let why = verdicts.get(place).and_then(|verdict| verdict.rejection());
            if let (Some(candidate), Some(why)) = (some.at(place), why) {
                self.rejects(&candidate, why);
            }
        }
    }

    /// Those of these whose bit is set stay. Neighbours are one stretch, with those before them if nothing lies between.
    fn keeps(&mut self, some: &Listed<'_>, mut kept: u64) {
        let mut at = 0;
        while kept != 0 {
            let gap = kept.trailing_zeros();
            let length = (kept >> gap).trailing_ones();
            if gap > 0 {
                self.close();
            }
            let first = at + usize::try_from(gap).unwrap_or(0);
            at = first + usize::try_from(length).unwrap_or(0);
            self.keeps_up_to(some, first..at);
            kept = kept.checked_shr(gap + length).unwrap_or(0);
        }
        if at < some.len() {
            self.close();
        }
    }

    /// These stay with what is open before them. Between two neighbours there is a comma.
    fn keeps_up_to(&mut self, some: &Listed<'_>, these: Range<usize>) {
        let (first, last) = (some.at(these.start), some.at(these.end.saturating_sub(1)));
        if let (Some(first), Some(last)) = (first, last) {
            let start = self.open.as_ref().map_or(first.raw.range().start, |run| run.start);
            self.open = Some(start..last.raw.range().end);
        }
    }

    /// The stretch that is open goes no further.
    fn close(&mut self) {
        let Some(run) = self.open.take() else { return };
        if let Candidates::Names(_) = self.message.candidates {
            if self.names.is_empty() {
                self.names.reserve(self.message.body.len());
            }
            self.names.extend_from_slice(self.message.body.get(run).unwrap_or_default());
            self.names.push(b',');
        } else {
            if self.runs.is_empty() {
                self.runs.reserve(candidates(&self.message.candidates).len() / 2 + 1);
            }
            self.runs.push(run);
        }
    }

    fn rejects(&mut self, candidate: &Candidate, why: Rejection) {
        let [eco, draining, label, cap] = &mut self.outcome.rejected;
        let counted = match why {
            Rejection::Eco => eco,
            Rejection::Draining => draining,
            Rejection::EcoLabel => label,
            Rejection::OverCap { .. } => cap,
        };
        *counted += 1;
        let out = match why.eviction() {
            Eviction::CannotHelp => &mut self.unresolvable,
            Eviction::MayHelp => &mut self.resolvable,
        };
        let Some(name) = candidate.name.quoted(self.message.names()) else {
            // A node without a name can be left out, and not be told of.
            return;
        };
        if out.is_empty() {
            // A list that grows is copied: room for half of the candidates, and for all at the second try.
            out.reserve(candidates(&self.message.candidates).len().saturating_mul(ENTRY_BYTES));
        }
        out.extend_from_slice(name);
        match why {
            Rejection::Eco => out.extend_from_slice(ECO.as_bytes()),
            Rejection::Draining | Rejection::EcoLabel | Rejection::OverCap { .. } => {
                // Writing into memory does not fail, and no reason has anything to escape.
                let _ = write!(out, ":\"{why}\",");
            }
        }
    }

    fn finish(mut self, body: &Bytes) -> (Reply, Outcome) {
        // Names that all stay are no copy.
        let whole = self.open.take_if(|_| self.names.is_empty());
        self.close();
        let mut pieces = Vec::with_capacity(self.runs.len().saturating_mul(2) + 8);
        match self.message.candidates {
            Candidates::None => pieces.push(Bytes::from_static(b"{")),
            Candidates::Names(_) => {
                self.names.pop();
                pieces.push(Bytes::from_static(b"{\"nodenames\":["));
                pieces.push(whole.map_or_else(|| Bytes::from(self.names), |run| body.slice(run)));
                pieces.push(Bytes::from_static(b"],"));
            }
            Candidates::Nodes(_) => {
                pieces.push(Bytes::from_static(b"{\"nodes\":{\"metadata\":{},\"items\":["));
                for (at, run) in self.runs.into_iter().chain(whole).enumerate() {
                    if at > 0 {
                        pieces.push(Bytes::from_static(b","));
                    }
                    pieces.push(body.slice(run));
                }
                pieces.push(Bytes::from_static(b"]},"));
            }
        }
        // Each entry ends in a comma, the last one of a map does not.
        let is_both = !self.unresolvable.is_empty() && !self.resolvable.is_empty();
        self.unresolvable.pop();
        self.resolvable.pop();
        let between = if is_both { &b","[..] } else { b"" };
        let unresolvable = Bytes::from(self.unresolvable);
        pieces.push(Bytes::from_static(b"\"failedNodes\":{"));
        pieces.push(unresolvable.clone());
        pieces.push(Bytes::from_static(between));
        pieces.push(Bytes::from(self.resolvable));
        pieces.push(Bytes::from_static(b"},\"failedAndUnresolvableNodes\":{"));
        pieces.push(unresolvable);
        pieces.push(Bytes::from_static(b"},\"error\":\"\"}"));
        (Reply::of(pieces), self.outcome)
    }
}

/// The places of the bits that are set.
fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = usize::try_from(bits.trailing_zeros()).ok().filter(|_| bits != 0);
        bits &= bits.wrapping_sub(1);
        place
    })
}

/// Half of a name and a reason.
const ENTRY_BYTES: usize = 64;

/// The end of a name and the reason that is given most, ready made: a test holds it against the core's words.
const ECO: &str = ":\"joulie: performance pods do not run on eco nodes\",";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burst;
    use crate::expected::Expected;
    use crate::index::{Index, Registry};
    use crate::probe::Answer;
    use crate::snapshot::{Fleet, View};
    use host_kit::clock::Mono;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn the_words_are_the_core_s() {
        assert_eq!(ECO, format!(":\"{}\",", Rejection::Eco));
        let counted = [Rejection::Eco, Rejection::Draining, Rejection::EcoLabel];
        assert_eq!(counted.map(Rejection::kind), Rejection::KINDS[..3], "they are counted in this order");
    }

    /// Nodes of these admissions, `n0` and on.
    fn snapshot(admissions: &[Admission]) -> Snapshot {
        let mut registry = Registry::default();
        for node in 0..admissions.len() {
            registry.number(&format!("n{node}"));
        }
        let index = Arc::new(Index::of(&registry));
        let fleet = Arc::new(Fleet { index, admissions: admissions.into(), ..Fleet::default() });
        Snapshot { fleet, ..Snapshot::nothing() }
    }

    /// What becomes of these nodes and a performance pod, by a request of names and by one of objects.
    fn answers(admissions: &[Admission]) -> [Value; 2] {
        let (snapshot, expected) = (snapshot(admissions), Expected::new(Duration::ZERO).load());
        let view = View { snapshot: &snapshot, expected: &expected, now: Mono::START };
        let names: Vec<String> = (0..admissions.len()).map(|node| format!("n{node}")).collect();
        let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        let pod = json!({"metadata": {"annotations": {"joulie.io/workload-class": "performance"}}});
        [json!({"Pod": pod, "NodeNames": names}), json!({"Pod": pod, "Nodes": {"items": items}})].map(
            |request| {
                let (reply, outcome) =
                    crate::decide::filter(&view, &burst::placement(), &request.to_string().into()).unwrap();
                let mut answer: Value = serde_json::from_slice(&Answer::of(reply).whole()).unwrap();
                answer["counted"] = json!(outcome.rejected);
                answer
            },
        )
    }

    #[test]
    fn whatever_is_kept_is_kept_in_its_order_and_the_others_are_told_of() {
        let (free, eco, draining) = (Admission::Free, Admission::Eco, Admission::Draining);
        for count in [0, 1, 2, 63, 64, 65, 127, 128, 129, 200] {
            let patterns: [&dyn Fn(usize) -> Admission; 8] = [
                &|_| free,
                &|_| eco,
                &|at| if at % 2 == 0 { free } else { eco },
                &|at| if at % 2 == 0 { draining } else { free },
                &|at| if at == 0 { free } else { eco },
                &|at| if at + 1 == count { free } else { draining },
                // A stretch over the edge of what is judged together, and all but one.
                &|at| if (60..70).contains(&at) { free } else { eco },
                &|at| if at == 64 { eco } else { free },
            ];
            for (which, pattern) in patterns.iter().enumerate() {
                let admissions: Vec<Admission> = (0..count).map(pattern).collect();
                let named = |wanted: Admission| -> Vec<String> {
                    let all = admissions.iter().enumerate().filter(|(_, admission)| **admission == wanted);
                    all.map(|(at, _)| format!("n{at}")).collect()
                };
                let [names, objects] = answers(&admissions);
                assert_eq!(names["nodenames"], json!(named(free)), "{count} {which}");
                let items = objects["nodes"]["items"].as_array().unwrap().iter();
                let kept: Vec<&Value> = items.map(|item| &item["metadata"]["name"]).collect();
                assert_eq!(json!(kept), json!(named(free)), "{count} {which}");
                for answer in [names, objects] {
                    let failed: Vec<&String> = answer["failedNodes"].as_object().unwrap().keys().collect();
                    let mut expected = [named(eco), named(draining)].concat();
                    expected.sort();
                    assert_eq!(json!(failed), json!(expected), "{count} {which}");
                    assert_eq!(answer["failedNodes"], answer["failedAndUnresolvableNodes"]);
                    assert_eq!(answer["counted"], json!([named(eco).len(), named(draining).len(), 0, 0]));
                }
            }
        }
    }
}
