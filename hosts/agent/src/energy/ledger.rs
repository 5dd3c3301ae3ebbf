//! The accounts: who a node's energy is charged to, in whole microjoules.
//!
//! ```text
//!  drawn by packages ─┬─ over a gap ──────────────────────────────────────────▶ unknown
//!                     ├─ the idle floor times the span ───────────────────────▶ idle
//!                     └─ the rest, in proportion to processor time ─┬─ of pods ▶ their workloads
//!                                                                   ├─ unseen ─▶ unknown
//!                                                                   └─ other ──▶ system
//!  drawn by a GPU ────┬─ over a gap ──────────────────────────────────────────▶ unknown
//!                     └─ by holders and use ──────────────────────────────────▶ as `card` says
//! ```
//!
//! Where Kepler says what pods and the idle node used of the packages, its proportions take the place of the floor and of
//! processor time; how much there is to divide is still what the meter says.
//!
//! What was drawn is divided by largest remainders, so all accounts sum to it exactly, at every moment. Of pods and workloads there
//! is a bound; what is beyond it is charged to `other`. A workload without pods leaves after a while, and what it was charged stays
//! in the sum of those that have left.

mod card;

pub(crate) use card::CardUsed;

use super::kepler::KeplerUsed;
use super::meter::Drawn;
use super::pods::{Pod, Workload};
use super::share::shares;
use super::source::EnergySource;
use card::{CardDivision, CardUser, division};
use host_kit::clock::Mono;
use power_units::{Micros, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Microjoules of packages and of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Energy {
    pub(crate) cpu: u64,
    pub(crate) gpu: u64,
}

impl Energy {
    const fn of_cpu(cpu: u64) -> Self {
        Self { cpu, gpu: 0 }
    }

    const fn of_gpu(gpu: u64) -> Self {
        Self { cpu: 0, gpu }
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_add(other.cpu), gpu: self.gpu.saturating_add(other.gpu) }
    }

    fn add(&mut self, other: Self) {
        *self = self.and(other);
    }
}

/// What is charged at a time.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// When.
    pub(crate) at: Mono,
    /// What the packages drew, span by span; none while it waits for Kepler.
    pub(crate) packages: Vec<PackageSpan>,
    /// By what Kepler says all these spans are divided together.
    pub(crate) kepler: Option<KeplerUsed>,
    /// What each GPU drew, and who uses it.
    pub(crate) gpus: Vec<CardSpan>,
}

/// What the packages drew in a span.
#[derive(Clone, Debug)]
pub(crate) struct PackageSpan {
    /// How long it was.
    pub(crate) span: Micros,
    /// What all packages drew.
    pub(crate) drawn: Drawn,
    /// Who used the processors; `None` if that is not known.
    pub(crate) used: Option<Used>,
    /// What the packages draw when the node is idle, if it was measured.
    pub(crate) floor: Option<Watts>,
}

impl PackageSpan {
    /// What of it is the idle floor.
    fn idle(&self) -> u64 {
        idle(self.floor, self.span).min(self.drawn.metered)
    }
}

/// What a GPU drew in a span.
#[derive(Clone, Debug)]
pub(crate) struct CardSpan {
    /// How long it was.
    pub(crate) span: Micros,
    /// What it drew.
    pub(crate) drawn: Drawn,
    /// Who holds it.
    pub(crate) holders: Holders,
    /// Who used it; `None` if that is not known.
    pub(crate) used: Option<CardUsed>,
    /// What it draws when nobody uses it, if it was measured.
    pub(crate) floor: Option<Watts>,
}

fn idle(floor: Option<Watts>, span: Micros) -> u64 {
    floor.map_or(0, |floor| floor.during(span).get())
}

/// Processor time of a span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    /// Of each pod, if it is known whose it is.
    pub(crate) pods: Vec<(Option<Pod>, u64)>,
    /// Of pods that were not seen.
    pub(crate) unseen: u64,
    /// Of whatever is no pod.
    pub(crate) system: u64,
}

/// Who holds a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holders {
    /// It is not known.
    Unknown,
    /// Nobody.
    Nobody,
    /// These pods; one that is not known is charged as unknown.
    Pods(Vec<Option<Pod>>),
    /// These pods hold its MIG instances, of these sizes.
    Instances(Vec<(Option<Pod>, u64)>),
}

/// How many accounts there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) pods: usize,
    pub(crate) namespaces: usize,
    pub(crate) workloads: usize,
    /// For how long an account stays when its pods have gone, so that its last value is read.
    pub(crate) kept: Duration,
}

impl Bounds {
    /// A kubelet runs 110 pods unless it is told otherwise; a series costs memory here and in whatever reads it.
    pub(crate) const STANDARD: Self =
        Self { pods: 1_024, namespaces: 128, workloads: 512, kept: Duration::from_secs(600) };
}

#[derive(Clone, Copy, Debug)]
struct Account {
    energy: Energy,
    seen: Mono,
}

/// The accounts of a node since the start.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    bounds: Bounds,
    pods: BTreeMap<Pod, Account>,
    workloads: BTreeMap<Workload, Account>,
    pub(crate) system: Energy,
    pub(crate) idle: Energy,
    pub(crate) unknown: Energy,
    /// Of pods beyond the bounds.
    pub(crate) other: Energy,
    /// Of workloads that have left.
    pub(crate) left: Energy,
    /// All that was drawn.
    pub(crate) drawn: Energy,
    /// By what that was divided.
    pub(crate) divided: BTreeMap<EnergySource, Energy>,
    /// How long meters were silent.
    pub(crate) gap_micros: Energy,
    /// How often a charge was beyond the bounds.
    pub(crate) beyond: u64,
}

impl Ledger {
    pub(crate) const fn new(bounds: Bounds) -> Self {
        const NONE: Energy = Energy { cpu: 0, gpu: 0 };
        Self {
            bounds,
            pods: BTreeMap::new(),
            workloads: BTreeMap::new(),
            system: NONE,
            idle: NONE,
            unknown: NONE,
            other: NONE,
            left: NONE,
            drawn: NONE,
            divided: BTreeMap::new(),
            gap_micros: NONE,
            beyond: 0,
        }
    }

    /// Charges what was drawn.
    pub(crate) fn take(&mut self, interval: &Interval) {
        match &interval.kepler {
            Some(kepler) => self.by_kepler(&interval.packages, kepler, interval.at),
            None => interval.packages.iter().for_each(|span| self.packages(span, interval.at)),
        }
        for card in &interval.gpus {
            self.gpu(card, interval.at);
        }
        self.let_go(interval.at);
        debug_assert_eq!(self.sum(), self.drawn, "every microjoule has an account");
        debug_assert_eq!(
            self.divided.values().copied().fold(Energy::default(), Energy::and),
            self.drawn,
            "and a source"
        );
    }

    /// All accounts together, which is what was drawn.
    pub(crate) fn sum(&self) -> Energy {
        let fixed = [self.system, self.idle, self.unknown, self.other, self.left];
        let workloads = self.workloads().map(|(_, energy)| energy);
        fixed.into_iter().chain(workloads).fold(Energy::default(), Energy::and)
    }

    /// Counts what was drawn, and charges what was drawn over gaps.
    fn draw(&mut self, drawn: Drawn, of: fn(u64) -> Energy, source: EnergySource) {
        let Drawn { metered, gap, gap_micros } = drawn;
        self.drawn.add(of(metered.saturating_add(gap)));
        self.unknown.add(of(gap));
        self.gap_micros.add(of(gap_micros));
        for (source, energy) in [(source, metered), (EnergySource::Nothing, gap)] {
            if energy > 0 {
                self.divided.entry(source).or_default().add(of(energy));
            }
        }
    }

    fn packages(&mut self, span: &PackageSpan, at: Mono) {
        let source = if span.used.is_some() { EnergySource::Cgroups } else { EnergySource::Nothing };
        self.draw(span.drawn, Energy::of_cpu, source);
        let idle = span.idle();
        self.idle.add(Energy::of_cpu(idle));
        let rest = span.drawn.metered - idle;
        let Some(used) = &span.used else { return self.unknown.add(Energy::of_cpu(rest)) };
        let others = [used.unseen, used.system];
        let weights: Vec<u64> = others.into_iter().chain(used.pods.iter().map(|(_, used)| *used)).collect();
        // No processor time at all is a reading that cannot be, so nobody is charged for it.
        let parts = shares(rest, &weights).unwrap_or_else(|| vec![rest]);
        let mut parts = parts.into_iter();
        self.unknown.add(Energy::of_cpu(parts.next().unwrap_or(0)));
        self.system.add(Energy::of_cpu(parts.next().unwrap_or(0)));
        for ((pod, _), part) in used.pods.iter().zip(parts.chain(std::iter::repeat(0))) {
            self.charge(pod.as_ref(), Energy::of_cpu(part), at);
        }
    }

    /// Divides spans by what Kepler says: of pods, of the idle node, and the rest, which is of no pod that it knows.
    fn by_kepler(&mut self, spans: &[PackageSpan], kepler: &KeplerUsed, at: Mono) {
        let drawn = spans.iter().fold(Drawn::default(), |sum, one| sum.and(one.drawn));
        self.draw(drawn, Energy::of_cpu, EnergySource::Kepler);
        // A Kepler that does not tell the idle part apart leaves that to the floor.
        let floor = if kepler.idle.is_some() { 0 } else { spans.iter().map(PackageSpan::idle).sum() };
        let floor = drawn.metered.min(floor);
        let others = [kepler.idle.unwrap_or(0), kepler.rest];
        let weights: Vec<u64> = others.into_iter().chain(kepler.pods.iter().map(|(_, used)| *used)).collect();
        let rest = drawn.metered - floor;
        let parts = shares(rest, &weights).unwrap_or_else(|| vec![0, rest]);
        let mut parts = parts.into_iter();
        self.idle.add(Energy::of_cpu(floor.saturating_add(parts.next().unwrap_or(0))));
        let nobodys = parts.next().unwrap_or(0);
        let used = || spans.iter().filter_map(|span| span.used.as_ref());
        let times = [used().map(|used| used.unseen).sum(), used().map(|used| used.system).sum()];
        let [unseen, system] = match shares(nobodys, &times).as_deref() {
            Some(&[unseen, system]) => [unseen, system],
            Some(_) | None => [nobodys, 0],
        };
        self.unknown.add(Energy::of_cpu(unseen));
        self.system.add(Energy::of_cpu(system));
        for ((pod, _), part) in kepler.pods.iter().zip(parts.chain(std::iter::repeat(0))) {
            self.charge(pod.as_ref(), Energy::of_cpu(part), at);
        }
    }

    fn gpu(&mut self, card: &CardSpan, at: Mono) {
        let CardDivision { source, above_floor, users } = division(card);
        self.draw(card.drawn, Energy::of_gpu, source);
        let metered = card.drawn.metered;
        let floor = if above_floor { idle(card.floor, card.span).min(metered) } else { 0 };
        self.idle.add(Energy::of_gpu(floor));
        let weights: Vec<u64> = users.iter().map(|(_, used)| *used).collect();
        let Some(parts) = shares(metered - floor, &weights) else {
            return self.unknown.add(Energy::of_gpu(metered - floor));
        };
        for ((user, _), part) in users.iter().zip(parts) {
            let part = Energy::of_gpu(part);
            match user {
                CardUser::Pod(pod) => self.charge(*pod, part, at),
                CardUser::System => self.system.add(part),
                CardUser::Idle => self.idle.add(part),
            }
        }
    }

    fn charge(&mut self, pod: Option<&Pod>, energy: Energy, at: Mono) {
        let Some(pod) = pod else { return self.unknown.add(energy) };
        if !self.has_place(pod) {
            self.beyond = self.beyond.saturating_add(u64::from(energy != Energy::default()));
            return self.other.add(energy);
        }
        for account in [
            self.pods.entry(pod.clone()).or_insert(Account { energy: Energy::default(), seen: at }),
            self.workloads
                .entry(pod.workload.clone())
                .or_insert(Account { energy: Energy::default(), seen: at }),
        ] {
            account.energy.add(energy);
            account.seen = at;
        }
    }

    fn has_place(&self, pod: &Pod) -> bool {
        let Bounds { pods, namespaces, workloads, kept: _ } = self.bounds;
        if !self.pods.contains_key(pod) && self.pods.len() >= pods {
            return false;
        }
        if self.workloads.contains_key(&pod.workload) {
            return true;
        }
        let known: BTreeSet<&str> = self.workloads.keys().map(|workload| &*workload.namespace).collect();
        self.workloads.len() < workloads
            && (known.len() < namespaces || known.contains(&*pod.workload.namespace))
    }

    /// Removes the accounts whose pods have gone a while ago.
    fn let_go(&mut self, at: Mono) {
        let kept = self.bounds.kept;
        let is_gone = |account: &Account| at.since(account.seen) > kept;
        self.pods.retain(|_, account| !is_gone(account));
        let left = &mut self.left;
        self.workloads.retain(|_, account| {
            if is_gone(account) {
                left.add(account.energy);
            }
            !is_gone(account)
        });
    }

    /// Each workload's account.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = (&Workload, Energy)> {
        self.workloads.iter().map(|(workload, account)| (workload, account.energy))
    }

    /// Each pod's account. What a pod was charged is in the account of its workload too.
    pub(crate) fn pods(&self) -> impl ExactSizeIterator<Item = (&Pod, Energy)> {
        self.pods.iter().map(|(pod, account)| (pod, account.energy))
    }
}

#[cfg(test)]
mod tests;
