//! The answer to filter: who is left, and why the others are not.
//!
//! Who is left goes back as it came: stretches of the request, with a copy of names and without one of objects.

use super::{Asked, Candidate, Numbered, Outcome, admission, candidates};
use crate::expected::Offer;
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
        for (candidate, number) in Numbered::of(snapshot, message) {
            match judge(snapshot, message, asked.class, (&candidate, number), power.as_ref()) {
                Ok(()) => writer.keeps(&candidate),
                Err(why) => writer.rejects(&candidate, why),
            }
        }
    } else {
        // A standard pod that only lowers scores passes everywhere: nobody needs to be looked up.
        candidates(&message.candidates).for_each(|candidate| writer.keeps(&candidate));
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

/// Whether a pod of this class may go to a node; with what it weighs, whether it fits under the cap there, too.
#[inline]
pub(crate) fn judge(
    snapshot: &Snapshot,
    message: &Message<'_>,
    class: WorkloadClass,
    (candidate, number): (&Candidate, Option<usize>),
    power: Option<&Weighed<'_>>,
) -> Result<(), Rejection> {
    if class == WorkloadClass::Performance {
        match admission(snapshot, number) {
            Admission::Free => {}
            Admission::Unlabelled => {
                let label = labels::node::POWER_PROFILE;
                if candidate.is_object && has_label(candidate.raw.of(message.body), label, "eco") {
                    return Err(Rejection::EcoLabel);
                }
            }
            Admission::Eco => return Err(Rejection::Eco),
            Admission::Draining => return Err(Rejection::Draining),
            Admission::EcoLabel => return Err(Rejection::EcoLabel),
        }
    }
    let (Some(power), Some(number)) = (power, number) else { return Ok(()) };
    let filter = snapshot.fleet.filters.get(number);
    filter.map_or(Ok(()), |filter| filter.fits(power.on(number) + snapshot.assumed(number)))
}

/// Writes the answer while the candidates are judged.
struct Writer<'m> {
    message: &'m Message<'m>,
    outcome: Outcome,
    /// Stretches of the request that are kept: from the first of a run of neighbours to the last.
    runs: Vec<Range<usize>>,
    open: Option<Range<usize>>,
    /// Entries of the maps of those that evictions cannot and may help.
    unresolvable: Vec<u8>,
    resolvable: Vec<u8>,
}

impl<'m> Writer<'m> {
    fn new(message: &'m Message<'m>, asked: &Asked) -> Self {
        let outcome = Outcome { asked: *asked, rejected: [0; 4], unknown: 0, offer: None };
        Self {
            message,
            outcome,
            runs: Vec::new(),
            open: None,
            unresolvable: Vec::new(),
            resolvable: Vec::new(),
        }
    }

    #[inline]
    fn keeps(&mut self, candidate: &Candidate) {
        match &mut self.open {
            // Between two neighbours there is a comma.
            Some(run) => run.end = candidate.raw.range().end,
            None => self.open = Some(candidate.raw.range()),
        }
    }

    fn rejects(&mut self, candidate: &Candidate, why: Rejection) {
        if let Some(run) = self.open.take() {
            if self.runs.is_empty() {
                self.runs.reserve(candidates(&self.message.candidates).len() / 2 + 1);
            }
            self.runs.push(run);
        }
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
        self.runs.extend(self.open.take());
        let mut pieces = Vec::with_capacity(self.runs.len().saturating_mul(2) + 8);
        match self.message.candidates {
            Candidates::None => pieces.push(Bytes::from_static(b"{")),
            Candidates::Names(_) => {
                pieces.push(Bytes::from_static(b"{\"nodenames\":["));
                pieces.push(self.copied(body));
                pieces.push(Bytes::from_static(b"],"));
            }
            Candidates::Nodes(_) => {
                pieces.push(Bytes::from_static(b"{\"nodes\":{\"metadata\":{},\"items\":["));
                for (at, run) in self.runs.iter().enumerate() {
                    if at > 0 {
                        pieces.push(Bytes::from_static(b","));
                    }
                    pieces.push(body.slice(run.clone()));
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

    /// The runs of names: short, so that a copy is cheaper than many pieces. One run is no copy.
    fn copied(&self, body: &Bytes) -> Bytes {
        if let [run] = self.runs.as_slice() {
            return body.slice(run.clone());
        }
        let mut out = Vec::with_capacity(self.runs.iter().fold(self.runs.len(), |sum, run| sum + run.len()));
        for (at, run) in self.runs.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(body.get(run.clone()).unwrap_or_default());
        }
        Bytes::from(out)
    }
}

/// Half of a name and a reason.
const ENTRY_BYTES: usize = 64;

/// The end of a name and the reason that is given most, ready made: a test holds it against the core's words.
const ECO: &str = ":\"joulie: performance pods do not run on eco nodes\",";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_core_s() {
        assert_eq!(ECO, format!(":\"{}\",", Rejection::Eco));
        let counted = [Rejection::Eco, Rejection::Draining, Rejection::EcoLabel];
        assert_eq!(counted.map(Rejection::kind), Rejection::KINDS[..3], "they are counted in this order");
    }
}
