//! What happened since the last second, from what was read of the machine.

use super::cgroup::{CpuMeter, CpuTotals, CpuUsed};
use super::floor::IdleFloor;
use super::kepler::{KeplerKeeping, KeplerPage};
use super::ledger::{CardSpan, CardUsed, Holders, Interval, PackageSpan, Used};
use super::meter::{Drawn, Totals};
use super::pod_resources::Held;
use super::pods::Pods;
use super::users::CardUsers;
use host_kit::clock::Mono;
use power_hal::Key;
use power_units::{Micros, Stamp};
use std::collections::BTreeMap;

/// What was read of the machine.
pub(super) struct Seen {
    pub(super) totals: Totals,
    pub(super) cpu: Option<CpuTotals>,
    pub(super) processors: Option<u64>,
    /// Kepler's page, if there is a new one.
    pub(super) kepler: Option<KeplerPage>,
}

/// What is remembered from one second to the next.
#[derive(Debug, Default)]
pub(super) struct State {
    totals: Totals,
    cpu: CpuMeter,
    pub(super) floor: IdleFloor,
    users: CardUsers,
    pub(super) card_floors: BTreeMap<Key, IdleFloor>,
    pub(super) kepler: KeplerKeeping,
}

impl State {
    /// What is charged now; `None` while the meters have not been read again.
    pub(super) fn interval(
        &mut self,
        now: Mono,
        Seen { mut totals, cpu, processors, kepler }: Seen,
        pods: &Pods,
        held: Option<&Held>,
    ) -> Option<Interval> {
        let at = totals.at?;
        self.users.take(at, std::mem::take(&mut totals.uses));
        if let Some(page) = kepler {
            self.kepler.page(page);
        }
        // Energy and processor time are of the same span only if both are taken at the same moments.
        if self.totals.at == Some(at) {
            return None;
        }
        let span = self.totals.at.and_then(|before: Stamp| at.since(before)).unwrap_or(Micros::ZERO);
        let used = cpu.and_then(|cpu| self.cpu.take(cpu));
        let drawn = totals.packages.since(self.totals.packages);
        let busy = used.as_ref().map(|used| used.machine).filter(|_| processors.is_some());
        self.floor.take(drawn, span, busy, processors.unwrap_or(0));
        let before = std::mem::replace(&mut self.totals, totals);
        // What is of instances that are known here is not held elsewhere.
        let own = |held: &Held| held.clone().with_instances(|id| self.totals.instances.contains_key(id));
        let held = held.map(own);
        let keys: Vec<(Key, Drawn)> = self.totals.gpus.iter().map(|(key, drawn)| (*key, *drawn)).collect();
        let gpus = keys.into_iter().map(|(key, total)| {
            let drawn = total.since(before.gpus.get(&key).copied().unwrap_or_default());
            self.card(key, (span, drawn), pods, held.as_ref())
        });
        let gpus = gpus.collect();
        self.card_floors.retain(|key, _| self.totals.gpus.contains_key(key));
        let used = used.map(|used| charged(used, pods));
        let packages = PackageSpan { span, drawn, used, floor: self.floor.watts() };
        let (packages, kepler) = self.kepler.take(now, packages, pods);
        Some(Interval { at: now, packages, kepler, gpus })
    }

    fn card(
        &mut self,
        key: Key,
        (span, drawn): (Micros, Drawn),
        pods: &Pods,
        held: Option<&Held>,
    ) -> CardSpan {
        let holders = holders(&key, held, &self.totals, pods);
        let used = self.users.of(&key, pods);
        let floor = self.card_floors.entry(key).or_default();
        floor.take(drawn, span, busy(used.as_ref(), &holders, span), 1);
        CardSpan { span, drawn, holders, used, floor: floor.watts() }
    }
}

/// For how long a card was in use, as its idle floor counts it. Any use at all is too much: a card draws a lot at little use.
fn busy(used: Option<&CardUsed>, holders: &Holders, span: Micros) -> Option<u64> {
    match (used, holders) {
        (Some(used), _) if used.is_nothing() => Some(0),
        (Some(_), _) => Some(span.get().saturating_mul(IDLE_PARTS)),
        (None, Holders::Nobody) => Some(0),
        (None, Holders::Unknown | Holders::Pods(_) | Holders::Instances(_)) => None,
    }
}

/// A second of use keeps a window of this many seconds from being idle.
const IDLE_PARTS: u64 = 1_000;

fn charged(used: CpuUsed, pods: &Pods) -> Used {
    let CpuUsed { machine: _, pods: of_pods, unseen, system } = used;
    Used { pods: of_pods.into_iter().map(|(uid, used)| (pods.of_uid(&uid), used)).collect(), unseen, system }
}

/// Of a size in slices: instances that several pods share count for each of them as its part of this.
const SLICE: u64 = 1_000;

fn holders(key: &Key, held: Option<&Held>, totals: &Totals, pods: &Pods) -> Holders {
    let Some(held) = held else { return Holders::Unknown };
    // A pod that has ended holds nothing, though some kubelets still tell it.
    let is_there = |namespace: &str, name: &str| !pods.has_ended(namespace, name);
    let names = held.of.get(key).into_iter().flatten();
    let names = names.filter(|name| is_there(&name.namespace, &name.name));
    let holding: Vec<_> = names.map(|name| pods.of_name(&name.namespace, &name.name)).collect();
    if !holding.is_empty() {
        return Holders::Pods(holding);
    }
    let mut instances = Vec::new();
    for (id, of) in held.by_instance() {
        let Some((_, slices)) = totals.instances.get(id).filter(|(card, _)| card == key) else { continue };
        let of: Vec<(&str, &str)> = of.filter(|(namespace, name)| is_there(namespace, name)).collect();
        let each = slices * SLICE / u64::try_from(of.len()).unwrap_or(1).max(1);
        instances.extend(of.into_iter().map(|(namespace, name)| (pods.of_name(namespace, name), each)));
    }
    match (instances.is_empty(), held.has_elsewhere()) {
        (false, _) => Holders::Instances(instances),
        (true, false) => Holders::Nobody,
        // Somebody holds a GPU, or a part of one, that cannot be told from this one.
        (true, true) => Holders::Unknown,
    }
}
