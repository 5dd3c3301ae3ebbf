//! `SCORING_FORMULA=consolidate`: fewest nodes, by watts.
//!
//! ```text
//! cost  = the pod's watts here + the watts of a node at rest, if no pod runs here yet
//! watts = 60 · scale² / (scale² + cost²)        scale = 100 W + 5 W per core + 350 W per GPU of the pod
//! fill  = 30 · (requested + asked) / all        of the GPUs for pods with GPUs, of the cores for others;
//!         30 · (free − asked) / all             of the GPUs where they are scarce, for standard pods, on nodes that are not whole
//! whole = 10 unless the pod takes a part of a GPU node of which all GPUs are free
//! cores = 12 for each GPU by which fewer of the node's free GPUs lack cores than before, less 12 for each by which more do;
//!         a GPU needs what pods with GPUs ask for with each, and only pods with GPUs earn or lose this
//! score = watts + fill + whole + cores, each rounded down; from 1 to 100
//! ```
//!
//! - A node where the pod does not fit scores 0: more watts than are left under the node's cap or the limits above it, more cores or GPUs
//!   than are free, or, without GPUs, cores that the free GPUs of the node need.
//! - A GPU node is spare where enough others of its model are whole ([`WholeNodes`]): its free GPUs need no cores, and it may be broken.
//! - A pod with one GPU and half of a node's cores leaves GPUs that nobody can use. The points for cores put it where cores are left
//!   over, and pods with few cores where they lack, so that fewer GPUs stay free while pods wait for them.
//! - GPUs of a model are scarce where few of all are free ([`GpuSupply`]). Few nodes can be emptied then, so standard pods with GPUs are spread: what
//!   packing would gain are nodes for pods with many GPUs, and all pods with few of them would wait behind these. Performance pods
//!   are packed, so that they still find whole nodes. Where GPUs are short, pods without GPUs leave the cores of all GPUs too.
//! - A node that is emptied (draining, or marked with a stress), and one of which it is not known what is left under its cap, has a
//!   quarter of the points.
//! - What is not known earns nothing: watts of unknown hardware, the fill of an unknown size. A node is only taken for used when
//!   pods are known to run there.
//!
//! Of two nodes of a kind where the pod fits, the one that is used scores at least as much as the one that is not, and more
//! wherever a node at rest draws enough to be a point; not so where pods with GPUs are spread, or lose points for cores.
//! Everything that does not depend on the pod is compiled into [`ConsolidateTerms`] once for each change of a node.

use super::{NodeFacts, Points, ScoreSummary, Scoring, settle};
use crate::placement::class::{SchedulableClass, WorkloadClass};
use crate::placement::demand::PodDemand;
use crate::placement::estimate::HardwareRecord;
use crate::placement::sensitivity::PointsLost;
use power_units::Watts;

/// The points of the three parts.
const WATTS_POINTS: u64 = 60;
const FILL_POINTS: u64 = 30;
const WHOLE_POINTS: u64 = 10;
/// The points for each free GPU that has cores after the pod and had none before, or the other way round.
const CORES_POINTS: u64 = 12;
/// Of the draw at full load: published curves of two-socket servers have 16 to 20 %, and 100 W of a GPU's 700 W are 15 %.
const IDLE_CPU_PERCENT: u32 = 20;
const IDLE_GPU_PERCENT: u32 = 15;

/// The part of the GPUs of a model that is to be free on whole nodes before pods without GPUs may take the cores of others.
const WHOLE_PERCENT: u64 = 2;
/// Where a smaller part of the GPUs of a model is free, they are scarce, or short.
const SCARCE_PERCENT: u64 = 20;
const SHORT_PERCENT: u64 = 10;

/// The GPUs of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCards {
    /// How many it has; zero for a node without GPUs.
    pub all: u32,
    /// How many of them no pod has.
    pub free: u32,
}

/// How pods can come to a node with GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuNodeUse {
    /// None can.
    Closed,
    /// They can, and some are there, or some GPU is taken.
    Open,
    /// All of it can be had: no pod runs there, and pods may come.
    Whole,
}

/// How many GPUs of a model are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSupply {
    /// A fifth of them or more; or it is not known.
    #[default]
    Ample,
    /// Fewer: standard pods with GPUs are spread.
    Scarce,
    /// Fewer than a tenth: also, pods without GPUs leave the cores of all GPUs.
    Short,
}

/// The nodes with GPUs of one model: how many of their GPUs are free, and how many on whole nodes, where nothing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeNodes {
    all: u64,
    free: u64,
    whole: u64,
}

impl WholeNodes {
    /// Counts a node.
    pub fn see(&mut self, cards: NodeCards, used: GpuNodeUse) {
        let (free, whole) = match used {
            GpuNodeUse::Closed => (0, 0),
            GpuNodeUse::Open => (cards.free.min(cards.all), 0),
            GpuNodeUse::Whole => (cards.all, cards.all),
        };
        self.all = self.all.saturating_add(u64::from(cards.all));
        self.free = self.free.saturating_add(u64::from(free));
        self.whole = self.whole.saturating_add(u64::from(whole));
    }

    /// Whether enough is whole without a node that was counted.
    #[must_use]
    pub fn spares(&self, cards: NodeCards, used: GpuNodeUse) -> bool {
        let own = if used == GpuNodeUse::Whole { u64::from(cards.all) } else { 0 };
        let others = self.whole.saturating_sub(own);
        cards.all > 0 && others.saturating_mul(100) >= self.all.saturating_mul(WHOLE_PERCENT)
    }

    /// How many are free. What cannot be had is not free.
    #[must_use]
    pub fn supply(&self) -> GpuSupply {
        let is_below = |percent| self.free.saturating_mul(100) < self.all.saturating_mul(percent);
        match () {
            () if is_below(SHORT_PERCENT) => GpuSupply::Short,
            () if is_below(SCARCE_PERCENT) => GpuSupply::Scarce,
            () => GpuSupply::Ample,
        }
    }
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsolidateFacts {
    /// Thousandths of a core that pods can have there.
    pub cores_milli: Option<u32>,
    /// What the pods there ask for of these.
    pub requested_milli: u32,
    /// The GPUs; `None` where it is not known whether it has some.
    pub cards: Option<NodeCards>,
    /// How many thousandths of a core each free GPU needs.
    pub milli_per_gpu: u32,
    /// Whether enough GPU nodes are whole without it; see [`WholeNodes::spares`].
    pub is_spare: bool,
    /// How many GPUs of its model are free; see [`WholeNodes::supply`].
    pub supply: GpuSupply,
    /// Whether pods run there besides those that run on every node. False where that is not known.
    pub is_used: bool,
    /// What it draws without a pod; see [`HardwareRecord::at_rest`].
    pub at_rest: Option<Watts>,
    /// What is left under its cap, and under the limits above it.
    pub room: Option<Watts>,
    /// Whether pods are to leave it: it is draining, or marked with a stress.
    pub is_emptied: bool,
}

impl ConsolidateFacts {
    /// The same with what the node's twin and hardware say; `None` without a fresh twin. What an empty node was measured to draw
    /// is what it draws at rest; the hardware record says it where there is no measurement.
    #[must_use]
    pub fn of_node(self, node: &NodeFacts<'_>) -> Option<Self> {
        let twin = node.fresh_twin()?;
        let measured = twin.power.and_then(|power| power.measured).filter(|_| !self.is_used);
        let measured = measured.filter(|&watts| watts > Watts::ZERO);
        let said = node.hardware.and_then(HardwareRecord::at_rest);
        Some(Self {
            at_rest: said.map(|said| measured.unwrap_or(said)),
            room: twin.room(),
            is_emptied: twin.marked || twin.class == SchedulableClass::Draining,
            ..self
        })
    }
}

impl HardwareRecord {
    /// What a node draws without a pod: 20 % of its processors' most, and 15 % of its GPUs'. `None` where a part of that is
    /// not known.
    #[must_use]
    pub fn at_rest(&self) -> Option<Watts> {
        let part = |watts: Watts, percent| {
            Watts::from_bits(watts.times(percent).to_bits().checked_div(100).unwrap_or(0))
        };
        let known = |watts: Option<Watts>| watts.filter(|&watts| watts > Watts::ZERO);
        let cpu = part(known(self.cpu_max)?, IDLE_CPU_PERCENT);
        let gpus = match self.gpus {
            Some(gpus) if gpus.count != Some(0) => {
                part(known(gpus.max)?.times(gpus.count?), IDLE_GPU_PERCENT)
            }
            Some(_) | None => Watts::ZERO,
        };
        Some(cpu + gpus)
    }
}

/// A node's part of the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsolidateTerms {
    /// What the first pod costs beside its own watts, in 2⁻¹⁶ W; `None` where nothing is known of watts.
    opening: Option<u64>,
    room: Option<Watts>,
    /// Free cores, without and with those that the free GPUs need.
    surplus_milli: u32,
    free_milli: u32,
    cores_milli: u32,
    cards: Option<NodeCards>,
    milli_per_gpu: u32,
    is_spare: bool,
    is_scarce: bool,
    is_emptied: bool,
}

/// A pod's part of the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsolidatePod {
    is_standard: bool,
    cores_milli: u32,
    gpus: u32,
    /// The cost at which half of the points for watts are left, in 2⁻¹⁶ W.
    scale: u64,
}

/// The parts of the score of one pod on one node, in points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consolidated {
    /// What the pod would cost there: its watts, and those of the node at rest if it is the first.
    pub cost: Option<Watts>,
    /// What that earns.
    pub watts: u8,
    /// How full the node would be, or how empty where GPUs are scarce.
    pub fill: u8,
    /// No whole GPU node is broken.
    pub whole: u8,
    /// Fewer free GPUs lack cores than before, or more.
    pub cores: i8,
    /// Why it scores less than the sum, if it does.
    pub held_back: Option<HeldBack>,
    /// The score, from 0 to 100.
    pub score: u8,
}

/// Why a node scores less than the sum of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// The pod would take more watts than are left: 0.
    OverCap,
    /// Too few cores or GPUs are free: 0.
    Full,
    /// The pod asks for no GPU, and for cores that the free GPUs need: 0.
    GpuCores,
    /// Pods are to leave the node: a quarter.
    Emptied,
    /// It is not known what is left under its cap: a quarter.
    NoRoomKnown,
}

impl HeldBack {
    /// The word by which it is shown.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::OverCap => "over-cap",
            Self::Full => "full",
            Self::GpuCores => "gpu-cores",
            Self::Emptied => "emptied",
            Self::NoRoomKnown => "room-unknown",
        }
    }
}

impl ConsolidatePod {
    /// Compiles a pod.
    #[must_use]
    pub fn of(demand: &PodDemand) -> Self {
        let (cores_milli, gpus) = (demand.cpu.get(), demand.gpus.map_or(0, |gpus| gpus.count));
        let watts = |each: u64, count: u32| (each << 16).saturating_mul(u64::from(count));
        let cores = watts(5, cores_milli).checked_div(1000).unwrap_or(0);
        let scale = watts(100, 1).saturating_add(cores).saturating_add(watts(350, gpus));
        let is_standard = demand.class == WorkloadClass::Standard;
        Self { is_standard, cores_milli, gpus, scale }
    }
}

impl ConsolidateTerms {
    /// Compiles a node.
    #[must_use]
    pub fn of(node: &ConsolidateFacts) -> Self {
        let cores_milli = node.cores_milli.unwrap_or(0);
        let free_milli = cores_milli.saturating_sub(node.requested_milli);
        // Where it is not known whether there are GPUs, no core is known to be left over.
        let surplus_milli = node.cards.map_or(0, |cards| {
            let needing = match node.supply {
                _ if node.is_spare => 0,
                GpuSupply::Short => cards.all,
                GpuSupply::Ample | GpuSupply::Scarce => cards.free.min(cards.all),
            };
            free_milli.saturating_sub(node.milli_per_gpu.saturating_mul(needing))
        });
        let opening = node.at_rest.map(|watts| if node.is_used { 0 } else { sixteenth_bits(watts) });
        Self {
            opening,
            room: node.room,
            surplus_milli,
            free_milli,
            cores_milli,
            cards: node.cards,
            // Of a node of unknown size it is not known what lacks cores.
            milli_per_gpu: node.cores_milli.map_or(0, |_| node.milli_per_gpu),
            is_spare: node.is_spare,
            is_scarce: node.supply != GpuSupply::Ample,
            is_emptied: node.is_emptied,
        }
    }

    /// The score of a pod that would add `added` watts. `assumed` are the watts of pods that no sample includes yet.
    #[must_use]
    #[inline]
    pub fn score(&self, pod: &ConsolidatePod, added: Watts, assumed: Watts) -> u8 {
        self.explain(pod, added, assumed).score
    }

    /// The same, part by part.
    #[must_use]
    #[inline]
    pub fn explain(&self, pod: &ConsolidatePod, added: Watts, assumed: Watts) -> Consolidated {
        let own = added.or_zero();
        let cost = self.opening.map(|opening| sixteenth_bits(own).saturating_add(opening));
        let watts = cost.map_or(0, |cost| cheapness(pod.scale, cost));
        let fill = match (pod.gpus, self.cards) {
            (0, _) => {
                let taken = self.cores_milli.saturating_sub(self.free_milli).saturating_add(pod.cores_milli);
                part_of(FILL_POINTS, u64::from(taken), u64::from(self.cores_milli))
            }
            (_, None) => 0,
            (gpus, Some(cards)) => {
                let left = cards.free.min(cards.all).saturating_sub(gpus);
                let counts = match self.is_scarce && pod.is_standard {
                    // Whole nodes come last.
                    true if cards.free >= cards.all => 0,
                    true => left,
                    false => cards.all.saturating_sub(left),
                };
                part_of(FILL_POINTS, u64::from(counts), u64::from(cards.all))
            }
        };
        let whole = if self.breaks(pod) { 0 } else { WHOLE_POINTS };
        let held_back = self.holds_back(pod, own + assumed.or_zero());
        let sum = watts.saturating_add(fill).saturating_add(whole);
        let cores = self.cores_points(pod);
        let sum = match u64::try_from(cores) {
            Ok(earned) => sum.saturating_add(earned).min(100),
            // A node where the pod fits keeps a point.
            Err(_) => sum.saturating_sub(u64::from(cores.unsigned_abs())).max(sum.min(1)),
        };
        let score = match held_back {
            None => sum,
            Some(HeldBack::OverCap | HeldBack::Full | HeldBack::GpuCores) => 0,
            Some(HeldBack::Emptied | HeldBack::NoRoomKnown) => sum >> 2,
        };
        let small = |points: u64| u8::try_from(points.min(100)).unwrap_or(100);
        Consolidated {
            cost: cost.map(|cost| {
                Watts::from_bits(i64::try_from(cost).unwrap_or(i64::MAX).saturating_mul(1 << 16))
            }),
            watts: small(watts),
            fill: small(fill),
            whole: small(whole),
            cores,
            held_back,
            score: small(score),
        }
    }

    /// Whether the pod takes a part of a node of which all GPUs are free, and which is not spare. One whose GPUs are not known
    /// may be such a node.
    #[inline]
    fn breaks(&self, pod: &ConsolidatePod) -> bool {
        self.cards.is_none_or(|cards| {
            cards.all > 0 && cards.free >= cards.all && pod.gpus < cards.all && !self.is_spare
        })
    }

    /// The points for the free GPUs that have cores after the pod and lacked them before, or the other way round.
    #[inline]
    fn cores_points(&self, pod: &ConsolidatePod) -> i8 {
        let Some(cards) = self.cards.filter(|_| pod.gpus > 0) else { return 0 };
        let (free, each) = (cards.free.min(cards.all), u64::from(self.milli_per_gpu));
        let lacking =
            |gpus: u32, milli: u32| u64::from(gpus).saturating_mul(each).saturating_sub(u64::from(milli));
        let before = lacking(free, self.free_milli);
        let left = self.free_milli.saturating_sub(pod.cores_milli);
        let after = lacking(free.saturating_sub(pod.gpus), left);
        let earned = before.saturating_sub(after).saturating_mul(CORES_POINTS);
        let lost = after.saturating_sub(before).saturating_mul(CORES_POINTS);
        let small = |points: Option<u64>| i8::try_from(points.unwrap_or(0).min(100)).unwrap_or(100);
        // One of the two is zero. What is lost is rounded up.
        match lost {
            0 => small(earned.checked_div(each)),
            _ => small(lost.saturating_add(each.saturating_sub(1)).checked_div(each)).saturating_neg(),
        }
    }

    #[inline]
    fn holds_back(&self, pod: &ConsolidatePod, added: Watts) -> Option<HeldBack> {
        let free_gpus = self.cards.map_or(0, |cards| cards.free.min(cards.all));
        match () {
            () if self.room.is_some_and(|room| added > room) => Some(HeldBack::OverCap),
            () if pod.cores_milli > self.free_milli || pod.gpus > free_gpus => Some(HeldBack::Full),
            () if pod.gpus == 0 && pod.cores_milli > self.surplus_milli => Some(HeldBack::GpuCores),
            () if self.is_emptied => Some(HeldBack::Emptied),
            () if self.room.is_none() => Some(HeldBack::NoRoomKnown),
            () => None,
        }
    }
}

/// One node of a request.
#[derive(Clone, Copy, Debug)]
pub struct ConsolidateCandidate<'a> {
    /// Its terms; `None` for a node without a fresh twin, or that the snapshot does not contain.
    pub terms: Option<&'a ConsolidateTerms>,
    /// The watts that the pod would add to it.
    pub added: Watts,
    /// Watts assumed for pods that no sample includes yet.
    pub assumed: Watts,
    /// The points that the pod loses by the node's caps.
    pub lost: PointsLost,
}

/// Scores the candidates into `out`, one for one, up to the length of the shorter one.
pub fn consolidate_all<'a>(
    scoring: &Scoring,
    pod: &ConsolidatePod,
    candidates: impl IntoIterator<Item = ConsolidateCandidate<'a>>,
    out: &mut [Points],
) -> ScoreSummary {
    let scores = candidates.into_iter().map(|candidate| {
        let score = candidate.terms?.score(pod, candidate.added, candidate.assumed);
        Some(score.saturating_sub(candidate.lost.points()))
    });
    settle(scoring, scores, out)
}

/// Watts in 2⁻¹⁶ W, rounded up; a negative value is zero.
#[inline]
fn sixteenth_bits(watts: Watts) -> u64 {
    u64::try_from(watts.to_bits()).unwrap_or(0).saturating_add((1 << 16) - 1) >> 16
}

/// The points of a cost: half of them at `scale`, and by squares, so that twice the watts are worth more than what is full.
#[inline]
fn cheapness(scale: u64, cost: u64) -> u64 {
    // 2⁻¹⁶ W become 2⁻⁶ W and at most 4 MW, so that no square is above 2⁵⁶.
    let square = |watts: u64| {
        let watts = (watts >> 10).min(1 << 28);
        watts.saturating_mul(watts)
    };
    part_of(WATTS_POINTS, square(scale), square(scale).saturating_add(square(cost)))
}

/// `scale × part ÷ whole`, rounded down, at most `scale`, and zero where `whole` is zero. `scale` is at most 100.
#[inline]
fn part_of(scale: u64, part: u64, whole: u64) -> u64 {
    scale.saturating_mul(part.min(whole)).checked_div(whole).unwrap_or(0)
}

#[cfg(test)]
mod tests;
