//! One round: what is known of pods, nodes, profiles and signals goes in, and what is to be written comes out. No I/O,
//! no clock.
//!
//! What is to be written is the difference between what the profiles should say and what they say, each round anew; a
//! write that failed is still a difference in the next round. The memory holds what cannot be seen: when a workload was
//! last measured, and since when it is here or gone. It can be lost: a new leader continues from the objects.

mod adopt;
mod there;

use self::adopt::adopted;
use self::there::{Names, There};
use super::document::Wanted;
use super::stats::{Basis, Known};
use super::workloads::{Measured, Seen, WorkloadKey, Workloads};
use crate::reasons::{MEASURED, NO_PROMETHEUS, NO_SERIES, PROMETHEUS_SILENT, SIMULATED};
use crate::rows::{NodeSeen, WorkloadProfileSeen};
use host_kit::reflect::{CachedRow, ObjectKey};
use jiff::Timestamp;
use joulie_api::condition::ConditionReason;
use joulie_core::placement::class::{Classified, WorkloadClass};
use planner::classify::memory::{MemoryLaw, WorkloadMemory};
use planner::classify::rules::derive_class;
use planner::classify::{Confidence, WorkloadProfile};
use power_units::{Micros, Stamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The most objects that one round writes to. What is left is written in the next one.
const WRITES_MAX: usize = 2_000;
/// The most objects that one round deletes.
const DELETIONS_MAX: usize = 500;

/// How workloads are classified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    pub(super) memory: MemoryLaw,
    /// How often a workload is classified again.
    pub(super) every: Micros,
    /// How often it is looked.
    pub(super) look: Micros,
    /// The confidence from which readers use a profile.
    pub(super) least: Confidence,
    /// Whether the annotations of simulated pods count.
    pub(super) simulated: bool,
    /// Whether there is a Prometheus.
    pub(super) asks: bool,
}

impl Law {
    /// How long metrics may be late before it is said: a Prometheus server restarts within that.
    const fn patience(&self) -> Micros {
        Micros::new(self.every.get() / 5)
    }
}

/// The answers of this round.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// The values; `None` if nothing was asked.
    pub(super) measured: Option<Measured>,
    /// Whether any query was answered.
    pub(super) any: bool,
    /// Why the first of the failed queries failed.
    pub(super) failed: Option<String>,
}

/// All that a round may know.
pub(super) struct RoundFacts<'a> {
    pub(super) now: Stamp,
    pub(super) wall: Timestamp,
    pub(super) workloads: &'a Workloads,
    pub(super) nodes: &'a BTreeMap<ObjectKey, CachedRow<NodeSeen>>,
    pub(super) profiles: &'a BTreeMap<ObjectKey, CachedRow<WorkloadProfileSeen>>,
    pub(super) answers: &'a Answers,
}

/// What is to be done to one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// It is applied.
    Apply {
        /// The object; `None` if it is as it should be, or is a person's.
        object: Option<Value>,
        /// The status.
        status: Value,
        /// The version that the object must still have for fields of an earlier operator to be taken over.
        takes_over: Option<String>,
    },
    /// It is deleted, if it still has this uid.
    Delete(String),
}

/// What comes out of a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Decided {
    /// The changes by object.
    pub(super) changes: Vec<(ObjectKey, Change)>,
    /// What was counted.
    pub(super) tally: Tally,
    /// Whether there are more changes than one round makes.
    pub(super) more: bool,
}

/// What is remembered of a workload beside its profile.
#[derive(Clone, Copy, Debug)]
struct Since {
    /// When it was first seen to run.
    here: Stamp,
    /// The class that its metrics suggest, for a simulated workload that names none.
    derived: Option<WorkloadClass>,
    /// Whether its metrics are those of annotations.
    by_annotations: bool,
}

/// What is remembered between rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    profiles: WorkloadMemory<WorkloadKey>,
    since: BTreeMap<WorkloadKey, Since>,
    /// The workloads that are gone and have a profile or a memory, and since when.
    gone: BTreeMap<WorkloadKey, Stamp>,
    /// When a query was last answered, and why the last one was not.
    heard: Option<Stamp>,
    silence: Option<String>,
}

impl Memory {
    /// Whether any workload is to be classified now, so that the signals are asked for.
    pub(super) fn asks(&self, law: &Law, workloads: &Workloads, now: Stamp) -> bool {
        law.asks && workloads.keys().any(|key| self.profiles.is_due(&law.memory, key, now))
    }

    /// Makes a round. Objects for which `rests` holds are left alone.
    pub(super) fn round(
        &mut self,
        law: &Law,
        facts: &RoundFacts<'_>,
        rests: impl Fn(&ObjectKey) -> bool,
    ) -> Decided {
        if facts.answers.any {
            (self.heard, self.silence) = (Some(facts.now), None);
        } else if let Some(why) = &facts.answers.failed {
            self.silence = Some(why.clone());
        }
        let there = There::of(facts.profiles);
        self.take_over(law, facts, &there);
        let mut decided = Decided::default();
        let free = Names::of(facts.workloads.keys(), facts.profiles, &there);
        for seen in facts.workloads.running() {
            let found = there.of.get(seen.key).copied();
            let profile = self.classify(law, facts, &seen, &mut decided.tally);
            let profile = profile.filter(|_| found.is_some() || !self.awaits(law, seen.key, facts.now));
            let Some(profile) = profile else {
                decided.tally.standing(Known::Awaited);
                continue;
            };
            decided.tally.standing(if profile.is_trusted(law.least) {
                Known::Trusted
            } else {
                Known::Doubtful
            });
            let (fresh, why) = self.freshness(law, seen.key, facts);
            let overridden = found.and_then(|(_, seen)| overridden(seen));
            let wanted = Wanted { workload: seen.key, node: seen.node, profile, fresh, why, overridden };
            let key = found.map_or_else(|| free.name(seen.key), |(key, _)| key.clone());
            if rests(&key) {
                continue;
            }
            let change = difference(&wanted, &key, found.map(|(_, seen)| seen), facts.wall);
            decided.changes.extend(change.map(|change| (key, change)));
        }
        decided.more = decided.changes.len() > WRITES_MAX;
        decided.changes.truncate(WRITES_MAX);
        self.gone(law, facts, &there, &rests, &mut decided);
        self.forget(facts.workloads);
        decided
    }

    /// Takes in what the objects say of workloads that are not remembered.
    fn take_over(&mut self, law: &Law, facts: &RoundFacts<'_>, there: &There<'_>) {
        for key in facts.workloads.keys() {
            if self.since.contains_key(key) {
                continue;
            }
            let since = Since { here: facts.now, derived: None, by_annotations: false };
            self.since.insert(key.clone(), since);
            let found =
                there.of.get(key).and_then(|(_, object)| adopted(law, &object.status, facts.now, facts.wall));
            if let Some((profile, backed)) = found {
                self.profiles.adopt(key.clone(), profile, backed);
            }
        }
    }

    /// The profile of a workload: classified anew if that is due and there is something new to say.
    fn classify(
        &mut self,
        law: &Law,
        facts: &RoundFacts<'_>,
        seen: &Seen<'_>,
        tally: &mut Tally,
    ) -> Option<WorkloadProfile> {
        let (key, hints) = (seen.key, &seen.hints);
        let due = self.profiles.is_due(&law.memory, key, facts.now);
        // While a part of the signals is not answered, a profile waits for all of them as long as it is not late.
        let partly = facts.answers.failed.is_some();
        let in_time =
            self.age(key, facts.now).map_or_else(|| self.is_new(law, key, facts.now), |age| age < late(law));
        let waits = partly && in_time;
        if due && !waits {
            let real = facts.answers.measured.as_ref();
            let real = real.map(|measured| facts.workloads.metrics(seen, measured, facts.nodes));
            let real = real.filter(|metrics| !metrics.is_empty());
            let said =
                real.is_none().then(|| law.simulated.then(|| facts.workloads.simulated(seen)).flatten());
            let said = said.flatten();
            let metrics = real.or(said);
            self.profiles.step(&law.memory, key, facts.now, hints, metrics.as_ref());
            tally.classified(match (real, said, self.profiles.backed_at(key)) {
                (Some(_), _, _) => Basis::Measured,
                (None, Some(_), _) => Basis::Simulated,
                (None, None, Some(_)) => Basis::Kept,
                (None, None, None) => Basis::Hints,
            });
            let derived = metrics.filter(|_| law.simulated).map(|metrics| derive_class(hints, &metrics));
            if let Some(since) = self.since.get_mut(key).filter(|_| metrics.is_some()) {
                (since.derived, since.by_annotations) = (derived, said.is_some());
            }
        }
        let profile = self.profiles.get(key)?.clone();
        let derived = self.since.get(key).and_then(|since| since.derived).filter(|_| !hints.explicit);
        let Classified { class, .. } = hints.class;
        Some(WorkloadProfile {
            class: derived.unwrap_or(class),
            reschedulable: hints.reschedulable,
            ..profile
        })
    }

    /// How old the metrics are on which a profile rests.
    fn age(&self, key: &WorkloadKey, now: Stamp) -> Option<Micros> {
        self.profiles.backed_at(key).map(|at| since(at, now))
    }

    /// Whether a workload without a profile is too new for one: the first metrics take a few scrapes, and many pods end
    /// before that.
    fn awaits(&self, law: &Law, key: &WorkloadKey, now: Stamp) -> bool {
        self.age(key, now).is_none() && self.is_new(law, key, now)
    }

    fn is_new(&self, law: &Law, key: &WorkloadKey, now: Stamp) -> bool {
        let here = self.since.get(key).map_or(Micros::new(0), |known| since(known.here, now));
        law.asks && here < law.patience()
    }

    /// Whether the metrics of a workload are fresh, and why.
    fn freshness(
        &self,
        law: &Law,
        key: &WorkloadKey,
        facts: &RoundFacts<'_>,
    ) -> (&'static ConditionReason, String) {
        let age = self.age(key, facts.now);
        if age.is_some_and(|age| age < late(law)) {
            if self.since.get(key).is_some_and(|since| since.by_annotations) {
                return (&SIMULATED, "the profile rests on annotations of simulated pods".to_owned());
            }
            return (&MEASURED, "the profile rests on metrics of its pods".to_owned());
        }
        if !law.asks {
            return (&NO_PROMETHEUS, "PROMETHEUS_ADDRESS is not set: only annotations are known".to_owned());
        }
        let silent = self.heard.is_none_or(|at| since(at, facts.now) >= law.patience());
        if let Some(why) = self.silence.as_ref().filter(|_| silent) {
            return (&PROMETHEUS_SILENT, format!("Prometheus gives no metrics: {why}"));
        }
        (&NO_SERIES, "Prometheus has no metrics of its pods".to_owned())
    }

    /// Deletes the profiles of ours whose workload has been gone for two looks.
    fn gone(
        &mut self,
        law: &Law,
        facts: &RoundFacts<'_>,
        there: &There<'_>,
        rests: &impl Fn(&ObjectKey) -> bool,
        decided: &mut Decided,
    ) {
        let is_live = |key: &WorkloadKey| facts.workloads.is_live(key);
        let remembered = self.since.keys().filter(|key| !is_live(key));
        let profiled = there.of.keys().filter(|key| !is_live(key));
        let missing: BTreeSet<WorkloadKey> = remembered.chain(profiled).cloned().collect();
        self.gone.retain(|key, _| missing.contains(key));
        for key in &missing {
            self.gone.entry(key.clone()).or_insert(facts.now);
        }
        let after = law.look.get().saturating_mul(2);
        let is_gone =
            |key: &WorkloadKey| self.gone.get(key).is_some_and(|at| since(*at, facts.now).get() >= after);
        let orphans = there.of.iter().filter(|(key, _)| is_gone(key)).map(|(_, one)| *one);
        let ours =
            orphans.chain(there.surplus.iter().copied()).filter(|(key, seen)| seen.is_ours() && !rests(key));
        let mut deletions: Vec<_> =
            ours.map(|(key, seen)| (key.clone(), Change::Delete(seen.stamp.uid.clone()))).collect();
        decided.more |= deletions.len() > DELETIONS_MAX;
        deletions.truncate(DELETIONS_MAX);
        decided.changes.extend(deletions);
        self.since.retain(|key, _| !is_gone(key));
    }

    fn forget(&mut self, workloads: &Workloads) {
        let mut known: BTreeSet<WorkloadKey> = self.since.keys().cloned().collect();
        known.extend(workloads.live().iter().cloned());
        self.profiles.keep_only(&known);
    }
}

/// How long ago a moment was.
fn since(at: Stamp, now: Stamp) -> Micros {
    now.since(at).unwrap_or(Micros::new(0))
}

/// The age from which metrics are said to be late.
fn late(law: &Law) -> Micros {
    Micros::new(law.every.get().saturating_add(law.patience().get()))
}

fn overridden(seen: &WorkloadProfileSeen) -> Option<String> {
    let fields: Vec<String> = seen.theirs.iter().map(|leaf| leaf.path().join(".")).collect();
    let who = seen.who.as_deref().filter(|_| !fields.is_empty())?;
    Some(format!("{who} owns {}", fields.join(", ")))
}

/// What an object lacks.
fn difference(
    wanted: &Wanted<'_>,
    key: &ObjectKey,
    seen: Option<&WorkloadProfileSeen>,
    now: Timestamp,
) -> Option<Change> {
    let nothing = BTreeSet::new();
    let theirs = seen.map_or(&nothing, |seen| &seen.theirs);
    // A person's object has its labels and its spec by them.
    let writes_object =
        seen.is_none_or(|seen| (seen.is_ours() || seen.former) && wanted.object_differs(seen));
    // Another spec is another generation, of which the status has to speak.
    let writes_status = writes_object || seen.is_none_or(|seen| wanted.status_differs(seen));
    if !writes_status {
        return None;
    }
    let conditions = seen.and_then(|seen| seen.status.conditions.as_deref()).unwrap_or_default();
    let generation = seen.map_or(1, |seen| seen.generation);
    Some(Change::Apply {
        object: writes_object.then(|| wanted.object(&key.name, theirs)),
        status: wanted.status(conditions, generation, theirs, now),
        takes_over: seen.filter(|seen| seen.former).map(|seen| seen.stamp.version.clone()),
    })
}

/// The counts of a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// How many workloads were classified, by what that rests on.
    pub(super) classified: BTreeMap<Basis, u64>,
    /// How many workloads stand how.
    pub(super) standing: BTreeMap<Known, u64>,
}

impl Tally {
    fn classified(&mut self, basis: Basis) {
        *self.classified.entry(basis).or_default() += 1;
    }

    fn standing(&mut self, known: Known) {
        *self.standing.entry(known).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
