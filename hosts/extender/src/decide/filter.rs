//! The answer to filter: who is left, and why the others are not.
//!
//! Who is left goes back as it came: stretches of the request, with a copy of names and without one of objects.

use super::{Asked, Candidate, Listed, Numbered, Outcome, admission, candidates};
use crate::expected::Offer;
use crate::index::{AT_ONCE, Numbers};
use crate::kinds::Weighed;
use crate::reply::Reply;
use crate::scan::wide::{HIGHS, gather};
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
            let sorted = sort(snapshot, asked.class, (numbers, some.len()), power.as_ref());
            writer.writes(&some, sorted, |place| {
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
    (numbers, count): (&Numbers, usize),
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
    let (eights, _) = bytes.as_chunks::<8>();
    let shift = which.bit().leading_zeros();
    let column = eights.iter().map(|eight| gather(u64::from_le_bytes(*eight) << shift & HIGHS));
    column.zip(0..).fold(0, |all, (bits, eight)| all | bits << (8 * eight))
}

/// Writes the answer, some candidates after the others.
struct Writer<'m> {
    message: &'m Message<'m>,
    outcome: Outcome,
    /// The stretch of the request that is kept, from the first of its candidates to the last one so far.
    open: Option<Range<usize>>,
    /// Those before it, of objects.
    runs: Vec<Range<usize>>,
    /// A copy of those before it, of names: they are short, so that a copy is cheaper than many pieces. Behind each is a comma.
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

    /// The next candidates. `verdict` is asked of those that are neither kept for certain nor rejected for the usual reason.
    fn writes(&mut self, some: &Listed<'_>, sorted: Sorted, verdict: impl Fn(usize) -> Verdict) {
        let Sorted { all, mut kept, unlabelled, eco } = sorted;
        if matches!(some, Listed::Nodes(_)) {
            for place in places(kept & unlabelled).filter(|&place| verdict(place).rejection().is_some()) {
                kept &= !(1 << place);
            }
        }
        self.keeps(some, kept);
        self.rejects_eco(some, eco);
        for place in places(all & !(kept | eco)) {
            if let (Some(candidate), Some(why)) = (some.at(place), verdict(place).rejection()) {
                self.rejects(&candidate, why);
            }
        }
    }

    /// Those of these whose bit is set are rejected for the reason that is given most.
    fn rejects_eco(&mut self, some: &Listed<'_>, eco: u64) {
        if eco == 0 {
            return;
        }
        let [count, ..] = &mut self.outcome.rejected;
        *count += eco.count_ones();
        let names = self.message.names();
        let out = entries(&mut self.unresolvable, self.message);
        for place in places(eco) {
            if let Some(name) = some.name(place).and_then(|name| name.quoted(names)) {
                out.extend_from_slice(name);
                out.extend_from_slice(ECO.as_bytes());
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
        if let Candidates::Names(names) = &self.message.candidates {
            if self.names.is_empty() {
                let last = names.spans.last().map_or(run.end, |last| last.range().end);
                self.names.reserve(last.saturating_sub(run.start).saturating_add(2));
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
        let out = entries(out, self.message);
        out.extend_from_slice(name);
        // Writing into memory does not fail, and no reason has anything to escape.
        let _ = write!(out, ":\"{why}\",");
    }

    fn finish(mut self, body: &Bytes) -> (Reply, Outcome) {
        // Names that are one stretch are no copy, if it is the last one.
        let whole = self.open.take_if(|_| self.names.is_empty());
        self.close();
        let mut pieces = Vec::with_capacity(self.runs.len().saturating_mul(2) + 10);
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

/// A list of entries, with room. One that grows is copied: there is room for half of the candidates, and for all at the second
/// try.
fn entries<'l>(list: &'l mut Vec<u8>, message: &Message<'_>) -> &'l mut Vec<u8> {
    if list.is_empty() {
        list.reserve(candidates(&message.candidates).len().saturating_mul(ENTRY_BYTES));
    }
    list
}

/// The places of the bits that are set.
fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = usize::try_from(bits.trailing_zeros()).ok().filter(|_| bits != 0);
        bits &= bits.wrapping_sub(1);
        place
    })
}

/// A bit for each of those that are judged together.
const _: () = assert!(AT_ONCE <= 64, "there is no bit for so many");

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
    use joulie_core::placement::class::SchedulableClass;
    use joulie_core::placement::demand::{Demand, MilliCores};
    use joulie_core::placement::estimate::Coefficients;
    use joulie_core::placement::filter::FilterTerms;
    use joulie_core::placement::freshness::Freshness;
    use joulie_core::placement::score::{NodeFacts, PodTerms, PowerMeasurement, Twin};
    use power_units::Micros;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn the_words_are_the_core_s() {
        assert_eq!(ECO, format!(":\"{}\",", Rejection::Eco));
        let counted = [Rejection::Eco, Rejection::Draining, Rejection::EcoLabel];
        assert_eq!(counted.map(Rejection::kind), Rejection::KINDS[..3], "they are counted in this order");
    }

    #[test]
    fn what_is_sorted_together_is_what_is_judged_alone() {
        use Admission::{Draining, Eco, EcoLabel, Free, Unlabelled};
        let (mut registry, mut admissions, mut filters) = (Registry::default(), Vec::new(), Vec::new());
        for node in 0..90 {
            registry.number(&format!("n{node}"));
            admissions.push([Free, Unlabelled, Eco, Draining, EcoLabel][node % 5]);
            filters.push(if node % 3 == 0 { over() } else { FilterTerms::UNKNOWN });
        }
        let index = Arc::new(Index::of(&registry));
        let (admissions, filters) = (admissions.into(), filters.into());
        let fleet = Arc::new(Fleet { index, admissions, filters, ..Fleet::default() });
        let snapshot = Snapshot { fleet, ..Snapshot::nothing() };
        for (first, count) in [(0, 0), (0, 1), (3, 63), (7, 64), (60, 64)] {
            // The last ones are nobody's.
            let names: Vec<String> = (first..first + count).map(|node| format!("n{node}")).collect();
            let numbers = snapshot.fleet.index.find_all(names.iter().map(|name| name.as_bytes()));
            for (class, weighs) in [
                (WorkloadClass::Standard, true),
                (WorkloadClass::Performance, false),
                (WorkloadClass::Performance, true),
            ] {
                let demand = Demand { class, cpu: MilliCores::new(0), memory_bytes: 0, gpus: None };
                let weighed = snapshot.fleet.kinds.weigh(&PodTerms::of(&demand, &Coefficients::REFERENCE));
                let power = weighs.then_some(&weighed);
                let sorted = sort(&snapshot, class, (&numbers, count), power);
                for place in 0..AT_ONCE {
                    let has = |bits: u64| bits >> place & 1 == 1;
                    let told = (has(sorted.all), has(sorted.kept), has(sorted.unlabelled), has(sorted.eco));
                    let number = numbers.at(place);
                    let verdict = judge(&snapshot, class, number, power, || None);
                    let is_performance = class == WorkloadClass::Performance;
                    let is = |which| is_performance && admission(&snapshot, number) == which;
                    let alone = (true, verdict.rejection().is_none(), is(Unlabelled), is(Eco));
                    let expected = if place < count { alone } else { (false, false, false, false) };
                    assert_eq!(told, expected, "{first} {count} {class:?} {weighs} {place}");
                }
            }
        }
    }

    /// 700 W under a cap of 600 W.
    fn over() -> FilterTerms {
        let power = PowerMeasurement {
            measured: Some(Watts::from_int(700)),
            capped: Some(Watts::from_int(600)),
            trend: None,
        };
        let twin = Twin { power: Some(power), ..Twin::silent(SchedulableClass::Performance) };
        let freshness = Freshness::Fresh { left: Micros::MINUTE };
        FilterTerms::of(&NodeFacts { freshness, twin: Some(&twin), hardware: None }, false)
    }

    /// What is known of a node; of the last one the request alone knows anything.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Free,
        Eco,
        Draining,
        OverCap,
        SaysEco,
    }
    const KINDS: [Kind; 5] = [Kind::Free, Kind::Eco, Kind::Draining, Kind::OverCap, Kind::SaysEco];

    /// Nodes of these kinds, `n0` and on.
    fn snapshot(kinds: &[Kind]) -> Snapshot {
        let mut registry = Registry::default();
        let (mut admissions, mut filters) = (Vec::new(), Vec::new());
        for (node, kind) in kinds.iter().enumerate().filter(|(_, kind)| **kind != Kind::SaysEco) {
            registry.number(&format!("n{node}"));
            admissions.push(match kind {
                Kind::Eco => Admission::Eco,
                Kind::Draining => Admission::Draining,
                Kind::Free | Kind::OverCap | Kind::SaysEco => Admission::Free,
            });
            // An eco node is told of as one, over its cap or not.
            let is_over = matches!(kind, Kind::OverCap | Kind::Eco);
            filters.push(if is_over { over() } else { FilterTerms::UNKNOWN });
        }
        let index = Arc::new(Index::of(&registry));
        let (admissions, filters) = (admissions.into(), filters.into());
        let fleet = Arc::new(Fleet { index, admissions, filters, ..Fleet::default() });
        Snapshot { fleet, ..Snapshot::nothing() }
    }

    /// What becomes of these nodes and a performance pod, by requests of names and of objects.
    fn answers(kinds: &[Kind]) -> [Value; 4] {
        let (snapshot, expected) = (snapshot(kinds), Expected::new(Duration::ZERO).load());
        let view = View { snapshot: &snapshot, expected: &expected, now: Mono::START };
        let placement = Placement { power_fit: PowerFit::Filter, ..burst::placement() };
        let pod = r#""Pod":{"metadata":{"annotations":{"joulie.io/workload-class":"performance"}}}"#;
        let name = |node: usize| {
            if node.is_multiple_of(7) { format!(r#""\u006e{node}""#) } else { format!(r#""n{node}""#) }
        };
        let object = |(node, kind): (usize, &Kind)| {
            let says =
                if *kind == Kind::SaysEco { r#","labels":{"joulie.io/power-profile":"eco"}"# } else { "" };
            format!(r#"{{"metadata":{{"name":"n{node}"{says}}}}}"#)
        };
        let names: Vec<String> = (0..kinds.len()).map(name).collect();
        let objects: Vec<String> = kinds.iter().enumerate().map(object).collect();
        let request = |all: &[String], between: &str, is_objects: bool| {
            let list = all.join(between);
            let list = if is_objects {
                format!(r#""Nodes":{{"items":[{list}]}}"#)
            } else {
                format!(r#""NodeNames":[{list}]"#)
            };
            let (reply, outcome) =
                crate::decide::filter(&view, &placement, &format!("{{{pod},{list}}}").into()).unwrap();
            let mut answer: Value = serde_json::from_slice(&Answer::of(reply).whole()).unwrap();
            answer["counted"] = json!(outcome.rejected);
            answer
        };
        [(&names, ",", false), (&names, " ,\n", false), (&objects, ",", true), (&objects, " , ", true)]
            .map(|(all, between, is_objects)| request(all, between, is_objects))
    }

    #[test]
    fn whatever_is_kept_is_kept_in_its_order_and_the_others_are_told_of() {
        for count in [0, 1, 2, 63, 64, 65, 127, 128, 129, 200] {
            let patterns: [&dyn Fn(usize) -> Kind; 9] = [
                &|_| Kind::Free,
                &|_| Kind::Eco,
                &|at| if at % 2 == 0 { Kind::Free } else { Kind::Eco },
                &|at| if at % 2 == 0 { Kind::Draining } else { Kind::Free },
                &|at| if at == 0 { Kind::Free } else { Kind::OverCap },
                &|at| if at + 1 == count { Kind::Free } else { Kind::Draining },
                // A stretch over the edge of what is judged together, and all but one.
                &|at| if (60..70).contains(&at) { Kind::Free } else { Kind::Eco },
                &|at| if at == 64 { Kind::SaysEco } else { Kind::Free },
                &|at| KINDS[at * at % 7 % 5],
            ];
            for (which, pattern) in patterns.iter().enumerate() {
                let kinds: Vec<Kind> = (0..count).map(pattern).collect();
                let named = |wanted: &[Kind]| -> Vec<String> {
                    let all = kinds.iter().enumerate().filter(|(_, kind)| wanted.contains(kind));
                    all.map(|(at, _)| format!("n{at}")).collect()
                };
                for (form, answer) in answers(&kinds).into_iter().enumerate() {
                    // A name says nothing of a label.
                    let (kept, labelled): (&[Kind], &[Kind]) = if form < 2 {
                        (&[Kind::Free, Kind::SaysEco], &[])
                    } else {
                        (&[Kind::Free], &[Kind::SaysEco])
                    };
                    let names = match answer["nodes"]["items"].as_array() {
                        Some(items) => items.iter().map(|item| item["metadata"]["name"].clone()).collect(),
                        None => answer["nodenames"].clone(),
                    };
                    assert_eq!(names, json!(named(kept)), "{count} {which} {form}");
                    let told = |map: &str| -> Vec<String> {
                        answer[map].as_object().unwrap().keys().cloned().collect()
                    };
                    let mut unresolvable = [named(&[Kind::Eco, Kind::Draining]), named(labelled)].concat();
                    let mut failed = [unresolvable.clone(), named(&[Kind::OverCap])].concat();
                    unresolvable.sort();
                    failed.sort();
                    assert_eq!(told("failedNodes"), failed, "{count} {which} {form}");
                    assert_eq!(told("failedAndUnresolvableNodes"), unresolvable, "{count} {which} {form}");
                    let counts = [&[Kind::Eco][..], &[Kind::Draining], labelled, &[Kind::OverCap]];
                    assert_eq!(answer["counted"], json!(counts.map(|kinds| named(kinds).len())));
                }
            }
        }
    }
}
