//! The accounts: who a node's energy is charged to, in whole microjoules.
//!
//! ```text
//!  drawn by packages ─┬─ over a gap ──────────────────────────────────────────▶ unknown
//!                     ├─ the idle floor times the span ───────────────────────▶ idle
//!                     └─ the rest, in proportion to processor time ─┬─ of pods ▶ their workloads
//!                                                                   ├─ unseen ─▶ unknown
//!                                                                   └─ other ──▶ system
//!  drawn by a GPU ────┬─ over a gap, or holders not known ────────────────────▶ unknown
//!                     ├─ nobody holds it ─────────────────────────────────────▶ idle
//!                     └─ in equal parts to the pods that hold it ─────────────▶ their workloads
//! ```
//!
//! What was drawn is divided by largest remainders, so all accounts sum to it exactly, at every moment. Of pods and workloads there
//! is a bound; what is beyond it is charged to `other`. A workload without pods leaves after a while, and what it was charged stays
//! in the sum of those that have left.

use super::meter::Drawn;
use super::pods::{Pod, Workload};
use super::share::shares;
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

/// What happened in a span.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// When it ended.
    pub(crate) at: Mono,
    /// How long it was.
    pub(crate) span: Micros,
    /// What all packages drew.
    pub(crate) packages: Drawn,
    /// Who used the processors; `None` if that is not known.
    pub(crate) used: Option<Used>,
    /// What the packages draw when the node is idle, if it was measured.
    pub(crate) floor: Option<Watts>,
    /// What each GPU drew, and who holds it.
    pub(crate) gpus: Vec<(Drawn, Holders)>,
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
            gap_micros: NONE,
            beyond: 0,
        }
    }

    /// Charges what was drawn in a span.
    pub(crate) fn take(&mut self, interval: &Interval) {
        self.packages(interval);
        for (drawn, holders) in &interval.gpus {
            self.gpu(*drawn, holders, interval.at);
        }
        self.let_go(interval.at);
        debug_assert_eq!(self.sum(), self.drawn, "every microjoule has an account");
    }

    /// All accounts together, which is what was drawn.
    pub(crate) fn sum(&self) -> Energy {
        let fixed = [self.system, self.idle, self.unknown, self.other, self.left];
        let workloads = self.workloads().map(|(_, energy)| energy);
        fixed.into_iter().chain(workloads).fold(Energy::default(), Energy::and)
    }

    fn packages(&mut self, interval: &Interval) {
        let Drawn { metered, gap, gap_micros } = interval.packages;
        self.drawn.add(Energy::of_cpu(metered.saturating_add(gap)));
        self.unknown.add(Energy::of_cpu(gap));
        self.gap_micros.add(Energy::of_cpu(gap_micros));
        let floor = interval.floor.map_or(0, |floor| floor.during(interval.span).get());
        let idle = floor.min(metered);
        self.idle.add(Energy::of_cpu(idle));
        let rest = metered - idle;
        let Some(used) = &interval.used else { return self.unknown.add(Energy::of_cpu(rest)) };
        let others = [used.unseen, used.system];
        let weights: Vec<u64> = others.into_iter().chain(used.pods.iter().map(|(_, used)| *used)).collect();
        // No processor time at all is a reading that cannot be, so nobody is charged for it.
        let parts = shares(rest, &weights).unwrap_or_else(|| vec![rest]);
        let mut parts = parts.into_iter();
        self.unknown.add(Energy::of_cpu(parts.next().unwrap_or(0)));
        self.system.add(Energy::of_cpu(parts.next().unwrap_or(0)));
        for ((pod, _), part) in used.pods.iter().zip(parts.chain(std::iter::repeat(0))) {
            self.charge(pod.as_ref(), Energy::of_cpu(part), interval.at);
        }
    }

    fn gpu(&mut self, drawn: Drawn, holders: &Holders, at: Mono) {
        let Drawn { metered, gap, gap_micros } = drawn;
        self.drawn.add(Energy::of_gpu(metered.saturating_add(gap)));
        self.unknown.add(Energy::of_gpu(gap));
        self.gap_micros.add(Energy::of_gpu(gap_micros));
        match holders {
            Holders::Unknown => self.unknown.add(Energy::of_gpu(metered)),
            Holders::Nobody => self.idle.add(Energy::of_gpu(metered)),
            Holders::Pods(pods) => {
                let Some(parts) = shares(metered, &vec![1; pods.len()]) else {
                    return self.idle.add(Energy::of_gpu(metered));
                };
                for (pod, part) in pods.iter().zip(parts) {
                    self.charge(pod.as_ref(), Energy::of_gpu(part), at);
                }
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

    /// How many pods have an account.
    pub(crate) fn pods(&self) -> usize {
        self.pods.len()
    }
}

#[cfg(test)]
mod tests;
