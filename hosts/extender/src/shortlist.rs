//! The shortlist: filter answers with the best candidates only, so that kube-scheduler scores, encodes and decodes these
//! few instead of thousands (docs/adr/0034).
//!
//! Candidates that are left out are in no map of the answer. A pod that was given a shortlist and is asked about again
//! before it was bound is given all candidates: so it does not starve if none of the few suits a later plugin.

mod choice;
mod other_scores;
#[cfg(test)]
mod quality;
mod remembered;
mod rows;

pub(crate) use choice::Chosen;
pub(crate) use other_scores::{OtherScores, OtherScoresBuilder};
pub(crate) use remembered::Remembered;
pub(crate) use rows::{AffinityReach, ServiceRow, SiteRow};

use crate::decide::{self, Asked, Listed, Numbered, candidates};
use crate::index::Numbers;
use crate::scan::Message;
use crate::settings::PlacementSettings;
use crate::snapshot::{Snapshot, View};
use choice::Choice;
use host_kit::closed_label;
use joulie_api::extender::PodPreference;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::kube_scheduler::SchedulerProfile;
use remembered::Turn;

/// Which pods are given a shortlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortlistPods {
    /// None.
    Nobody,
    /// Those whose other scores cannot be turned by it.
    Safe,
    /// All.
    All,
}

/// Which pods are given a shortlist, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortlistRule {
    /// Which pods.
    pub pods: ShortlistPods,
    /// How many candidates it has, if as many fit.
    pub size: u32,
}

impl ShortlistRule {
    /// No pod is given one.
    pub const OFF: Self = Self { pods: ShortlistPods::Nobody, size: 64 };

    /// Whether any pod may be given one.
    pub(crate) fn is_on(self) -> bool {
        self.pods != ShortlistPods::Nobody
    }
}

closed_label! {
    /// Whether filter answered with a shortlist, where there are more candidates than one has; and if not, why.
    pub(crate) enum ListAnswer {
        /// The best candidates.
        Short = "short",
        /// All: the pod was given a shortlist before, and was not seen bound since.
        Again = "again",
        /// All: too many pods are remembered that were given one.
        Full = "full",
        /// All: the pod has no UID.
        NoUid = "no_uid",
        /// All: what other scores depend on is not known yet, or the pod cannot be read.
        Unknown = "unknown",
        /// All: the pod prefers nodes, or to be near other pods or away from them.
        Affinity = "affinity",
        /// All: the pod is spread softly.
        Spread = "spread",
        /// All: the pod has volumes that later plugins look at.
        Volume = "volume",
        /// All: the pod claims devices.
        Claim = "claim",
        /// All: the pod is scheduled with others.
        Group = "group",
        /// All: other pods prefer to be near pods of its namespace, or away from them.
        Neighbour = "neighbour",
        /// All: not every node has the pod's images.
        Image = "image",
        /// All: a candidate has a taint that is to be avoided.
        Taint = "taint",
    }
}

impl From<PodPreference> for ListAnswer {
    fn from(preference: PodPreference) -> Self {
        match preference {
            PodPreference::Unreadable => Self::Unknown,
            PodPreference::Affinity => Self::Affinity,
            PodPreference::Spread => Self::Spread,
            PodPreference::Volume => Self::Volume,
            PodPreference::Claim => Self::Claim,
            PodPreference::Group => Self::Group,
        }
    }
}

/// The pod of a request.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'w> {
    pub(crate) pod: Option<PodUid>,
    pub(crate) asked: &'w Asked,
}

/// What a candidate has of kube-scheduler's total, as far as it is known here: ten of its points for each of ours, and those
/// of its default profile for processors and memory. A node whose size is not known has none of the latter.
fn total(snapshot: &Snapshot, asked: &Asked, ours: u8, number: Option<usize>) -> u16 {
    let load = number.and_then(|number| snapshot.loads.get(number)).filter(|load| load.pods_max > 0);
    let own = load.map_or(0, |load| SchedulerProfile::DEFAULT.resources(load, &asked.scheduled));
    u16::from(ours).saturating_mul(10).saturating_add(u16::try_from(own).unwrap_or(0))
}

/// The candidates to keep, or why all are kept; `None` if there are no more candidates than a shortlist has. `passes`
/// returns which candidates of a group pass the filter, as bits.
pub(crate) fn of(
    view: &View<'_>,
    placement: &PlacementSettings,
    message: &Message<'_>,
    wanted: Wanted<'_>,
    passes: impl Fn(&Listed<'_>, &Numbers) -> u64,
) -> Option<Result<Chosen, ListAnswer>> {
    let rule = placement.shortlist;
    let count = candidates(&message.candidates).len();
    if !rule.is_on() || u32::try_from(count).is_ok_and(|count| count <= rule.size) {
        return None;
    }
    let Some(pod) = wanted.pod else { return Some(Err(ListAnswer::NoUid)) };
    let others = &view.snapshot.other_scores;
    let is_safe = rule.pods == ShortlistPods::Safe;
    if is_safe && let Err(why) = others.indifferent(message.pod) {
        return Some(Err(why));
    }
    let (points, _) = decide::points(view, placement, message, wanted.pod, wanted.asked);
    let mut choice = Choice::among(count);
    let (mut all, mut first) = (Numbered::of(view.snapshot, message), 0_usize);
    while let Some((some, numbers)) = all.some() {
        let kept = passes(&some, numbers);
        let scored = points.iter().skip(first).take(some.len());
        for ((place, points), number) in scored.enumerate().zip(numbers.each()) {
            if kept >> place & 1 == 0 {
                continue;
            }
            let site = others.site(number);
            if is_safe && let Err(why) = site.indifferent() {
                return Some(Err(why));
            }
            choice.add(first + place, total(view.snapshot, wanted.asked, points.get(), number), site.zone());
        }
        first += some.len();
    }
    if choice.len() <= rule.size {
        return None;
    }
    match view.snapshot.remembered.ask(pod, view.now) {
        Turn::First => {}
        Turn::Again => return Some(Err(ListAnswer::Again)),
        Turn::Full => return Some(Err(ListAnswer::Full)),
    }
    Some(Ok(choice.choose(rule, pod, message)))
}
