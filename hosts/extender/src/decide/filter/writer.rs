//! Writes the answer to filter, group after group of candidates.
//!
//! Candidates that pass are returned as they were received, as ranges of the request: names are copied, objects are
//! not.

use super::{Sorted, Verdict};
use crate::decide::{Asked, Candidate, Listed, Outcome, candidates};
use crate::reply::Reply;
use crate::scan::{Candidates, Message};
use bytes::Bytes;
use joulie_core::placement::filter::{Eviction, Rejection};
use std::io::Write;
use std::ops::Range;

/// The candidates that were kept and rejected so far.
pub(super) struct Writer<'m> {
    message: &'m Message<'m>,
    body: &'m Bytes,
    pub(super) outcome: Outcome,
    /// The range of the request that is being kept, from its first candidate to the last one so far.
    open: Option<Range<usize>>,
    /// The closed ranges before it, if candidates are objects, and what separates them.
    runs: Vec<Bytes>,
    /// A copy of the closed ranges before it, if candidates are names: names are short, so one copy is cheaper than
    /// many pieces. Each range is followed by a comma.
    names: Vec<u8>,
    /// Entries of the map of rejections that evictions cannot resolve, and of the map of those that they may resolve.
    unresolvable: Vec<u8>,
    resolvable: Vec<u8>,
    /// Whether both lists are expected: that of a pod with GPUs.
    has_both: bool,
    /// What was written of GPUs: thousands of nodes have few reasons.
    said: Said,
}

impl<'m> Writer<'m> {
    pub(super) fn new(message: &'m Message<'m>, body: &'m Bytes, asked: &Asked) -> Self {
        let rejected = [0; Rejection::KINDS.len()];
        let outcome = Outcome { asked: *asked, rejected, unknown: 0, offer: None, list: None };
        let (runs, names, unresolvable, resolvable) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (has_both, said) = (asked.gpus.is_some(), Said::default());
        Self { message, body, outcome, open: None, runs, names, unresolvable, resolvable, has_both, said }
    }

    /// Keeps all candidates.
    pub(super) fn keeps_all(&mut self) {
        let all = candidates(&self.message.candidates);
        self.keeps_up_to(&all, 0..all.len());
    }

    /// Writes the next group of candidates. `verdict` is called only for those that are neither certainly kept nor
    /// rejected as eco.
    pub(super) fn writes<'s>(
        &mut self,
        some: &Listed<'_>,
        sorted: Sorted,
        verdict: impl Fn(usize) -> Verdict<'s>,
    ) {
        let Sorted { all, mut kept, unlabelled, eco } = sorted;
        if matches!(some, Listed::Nodes(_)) {
            for place in places(kept & unlabelled).filter(|&place| verdict(place).rejection().is_some()) {
                kept &= !(1 << place);
            }
        }
        self.keeps(some, kept);
        self.rejects_eco(some, eco);
        for place in places(all & !(kept | eco)) {
            if let Some(candidate) = some.at(place) {
                self.rejects(&candidate, verdict(place));
            }
        }
    }

    /// Rejects the candidates whose bit is set for the most frequent reason.
    fn rejects_eco(&mut self, some: &Listed<'_>, eco: u64) {
        if eco == 0 {
            return;
        }
        let [count, ..] = &mut self.outcome.rejected;
        *count += eco.count_ones();
        let names = self.message.body;
        let out = entries(&mut self.unresolvable, self.message, self.has_both);
        for place in places(eco) {
            if let Some(name) = some.name(place).and_then(|name| name.quoted(names)) {
                out.extend_from_slice(name);
                out.extend_from_slice(ECO.as_bytes());
            }
        }
    }

    /// Keeps the candidates whose bit is set. Neighbours form one range, which extends the open range if it is
    /// adjacent.
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

    /// Whether the last candidate so far was kept.
    pub(super) fn keeps_last(&self) -> bool {
        self.open.is_some()
    }

    /// Keeps these candidates and extends the open range to them. A comma separates two neighbours.
    fn keeps_up_to(&mut self, some: &Listed<'_>, these: Range<usize>) {
        let (first, last) = (some.at(these.start), some.at(these.end.saturating_sub(1)));
        if let (Some(first), Some(last)) = (first, last) {
            let start = self.open.as_ref().map_or(first.raw.range().start, |run| run.start);
            self.open = Some(start..last.raw.range().end);
        }
    }

    /// Closes the open range.
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
                // Ranges that are not adjacent are at most every other candidate.
                self.runs.reserve(candidates(&self.message.candidates).len().saturating_add(1));
            }
            self.keeps_objects(run);
        }
    }

    fn keeps_objects(&mut self, run: Range<usize>) {
        if !self.runs.is_empty() {
            self.runs.push(Bytes::from_static(b","));
        }
        self.runs.push(self.body.slice(run));
    }

    fn rejects(&mut self, candidate: &Candidate, verdict: Verdict<'_>) {
        let (Some(why), Some(reason)) = (verdict.rejection(), verdict.reason()) else { return };
        let [eco, draining, label, cap, budget, gpu, wish, cores, deferred] = &mut self.outcome.rejected;
        let counted = match why {
            Rejection::Eco => eco,
            Rejection::Draining => draining,
            Rejection::EcoLabel => label,
            Rejection::OverCap { .. } => cap,
            Rejection::OverBudget { .. } => budget,
            Rejection::Gpu(_) => gpu,
            Rejection::GpuWish(_) => wish,
            Rejection::GpuCores => cores,
            Rejection::Deferred => deferred,
        };
        *counted += 1;
        let out = match why.eviction() {
            Eviction::CannotHelp => &mut self.unresolvable,
            Eviction::MayHelp => &mut self.resolvable,
        };
        let Some(name) = candidate.name.quoted(self.message.body) else {
            // A node without a name has no key in the map of reasons, so it is only left out.
            return;
        };
        let out = entries(out, self.message, self.has_both);
        out.extend_from_slice(name);
        match self.said.find(why) {
            Some(before) => out.extend_from_within(before),
            None => {
                let begun = out.len();
                // Writing into memory does not fail, and no reason contains a character to escape.
                let _ = write!(out, ":\"{reason}\",");
                self.said.keep(why, begun..out.len());
            }
        }
    }

    pub(super) fn finish(mut self) -> (Reply, Outcome) {
        // If all names that are kept are one range, it is sent without a copy.
        let whole = self.open.take_if(|_| self.names.is_empty());
        self.close();
        self.names.pop();
        let copied = std::mem::take(&mut self.names);
        let kept = match (whole, &self.message.candidates) {
            (Some(run), Candidates::Names(_)) => Some(self.body.slice(run)),
            (Some(run), Candidates::None | Candidates::Nodes(_)) => {
                self.keeps_objects(run);
                None
            }
            (None, _) => None,
        };
        let (begin, end): (&'static [u8], &'static [u8]) = match self.message.candidates {
            Candidates::None => (b"{", b""),
            Candidates::Names(_) => (b"{\"nodenames\":[", b"],"),
            Candidates::Nodes(_) => (b"{\"nodes\":{\"metadata\":{},\"items\":[", b"]},"),
        };
        // Each entry ends with a comma; the last entry of a map does not.
        let is_both = !self.unresolvable.is_empty() && !self.resolvable.is_empty();
        self.unresolvable.pop();
        self.resolvable.pop();
        let between: &'static [u8] = if is_both { b"," } else { b"" };
        let copied_max = if self.has_both { usize::MAX } else { SHORT_MAX };
        let [copied, unresolvable, resolvable] =
            joined([copied, self.unresolvable, self.resolvable], copied_max);
        let names = kept.unwrap_or(copied);
        let tail = [
            Bytes::from_static(end),
            Bytes::from_static(b"\"failedNodes\":{"),
            unresolvable.clone(),
            Bytes::from_static(between),
            resolvable,
            Bytes::from_static(b"},\"failedAndUnresolvableNodes\":{"),
            unresolvable,
            Bytes::from_static(b"},\"error\":\"\"}"),
        ];
        (Reply::of([Bytes::from_static(begin), names], self.runs, tail), self.outcome)
    }
}

/// Longer texts are not copied to save an allocation, unless both lists of reasons are expected.
const SHORT_MAX: usize = 1 << 14;

/// These texts; those of at most `copied_max` bytes are put behind the one with the most room: a buffer that is not full costs
/// an allocation of its own when it is sent.
fn joined<const N: usize>(mut texts: [Vec<u8>; N], copied_max: usize) -> [Bytes; N] {
    let room = |text: &Vec<u8>| text.capacity().saturating_sub(text.len());
    let roomiest = (0..N).max_by_key(|at| texts.get(*at).map_or(0, room)).unwrap_or(0);
    let mut base = texts.get_mut(roomiest).map(std::mem::take).unwrap_or_default();
    let begun = base.len();
    let parts = texts.map(|text| {
        if text.len() > copied_max.min(room(&base)) {
            return Err(Bytes::from(text));
        }
        let start = base.len();
        base.extend_from_slice(&text);
        Ok(start..base.len())
    });
    let base = Bytes::from(base);
    let mut joined = parts.map(|part| part.map_or_else(|own| own, |range| base.slice(range)));
    if let Some(text) = joined.get_mut(roomiest) {
        *text = base.slice(..begun);
    }
    joined
}

/// Reasons that were written, and where in their list: copying one is cheaper than formatting it.
#[derive(Default)]
struct Said {
    some: [Option<(Rejection, Range<usize>)>; SAID_MAX],
    next: usize,
}

/// More reasons than this are formatted each time.
const SAID_MAX: usize = 8;

impl Said {
    /// Where this reason is in its list, which the reason alone determines.
    fn find(&self, why: Rejection) -> Option<Range<usize>> {
        let mut some = self.some.iter().map_while(Option::as_ref);
        some.find(|(said, _)| *said == why).map(|(_, place)| place.clone())
    }

    /// Only reasons that consist of nothing else are kept: that of a budget has its name too.
    fn keep(&mut self, why: Rejection, place: Range<usize>) {
        let is_whole = matches!(why, Rejection::Gpu(_) | Rejection::GpuWish(_) | Rejection::GpuCores);
        if let Some(slot) = self.some.get_mut(self.next).filter(|_| is_whole) {
            *slot = Some((why, place));
            self.next += 1;
        }
    }
}

/// The list of entries, with memory reserved at the first entry for about half of the candidates, or for all where the other
/// list is put behind it. The list is copied when it grows; the second allocation is large enough for all.
fn entries<'l>(list: &'l mut Vec<u8>, message: &Message<'_>, has_both: bool) -> &'l mut Vec<u8> {
    if list.is_empty() {
        let each = if has_both { 2 * ENTRY_BYTES } else { ENTRY_BYTES };
        list.reserve(candidates(&message.candidates).len().saturating_mul(each));
    }
    list
}

/// The positions of the bits that are set.
pub(super) fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = usize::try_from(bits.trailing_zeros()).ok().filter(|_| bits != 0);
        bits &= bits.wrapping_sub(1);
        place
    })
}

/// Half of the size of a name and a reason.
const ENTRY_BYTES: usize = 64;

/// The text after a name for the most frequent reason, precomputed. A test compares it with the core's text.
pub(super) const ECO: &str = ":\"joulie: performance pods do not run on eco nodes\",";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_texts_are_as_they_were_and_short_ones_have_no_buffer_of_their_own() {
        let text = |letter: u8, length: usize, room: usize| {
            let mut text = Vec::with_capacity(length + room);
            text.resize(length, letter);
            text
        };
        for (lengths, is_joined) in [
            ([5, 40, 7], true),
            ([0, 0, 0], true),
            ([0, 40, 0], true),
            // Longer than what is copied, and longer than the room that is left.
            ([SHORT_MAX + 1, 40, SHORT_MAX + 1], false),
            ([900, 40, 900], false),
        ] {
            let room = if lengths[0] == 900 { 1_000 } else { 1 << 16 };
            let texts = [text(b'a', lengths[0], 3), text(b'b', lengths[1], room), text(b'c', lengths[2], 3)];
            let before = texts.clone();
            let after = joined(texts, SHORT_MAX);
            assert_eq!(after.clone().map(|text| text.to_vec()), before);
            let base = after[1].as_ptr_range();
            let behind = after[2].as_ptr().addr().checked_sub(base.start.addr());
            let is_behind = behind.is_some_and(|behind| behind >= lengths[1] && behind <= lengths[1] + room);
            assert!(!is_joined || lengths[2] == 0 || is_behind, "{lengths:?}");
        }
    }
}
