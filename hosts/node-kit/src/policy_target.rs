//! A frequency policy: the location of its domain, and its facts for the engine.

use crate::cap_target::Place;
use crate::worker::{Order, Outcome, Worker, setting_of};
use crate::{BackendKind, Journal};
use joulie_core::node::engine::{
    EngineOrder, FrequencyPolicy, FrequencyPolicyFacts, Instruction, PolicyLimit, PolicyOutcome, Scale,
};
use joulie_core::node::throttle;
use power_hal::{Control, DomainKind, ErrorKind, Key, Setting};
use power_units::KiloHertz;
use std::collections::BTreeSet;

/// A policy that has a limit.
#[derive(Clone, Debug)]
pub(crate) struct PolicyTarget {
    pub(crate) key: Key,
    backend: BackendKind,
    place: Place,
}

/// The policies that the backends list now, with the state of the `known` ones. A throttle limits none of them below
/// `floor`.
pub(crate) fn policy_targets(
    workers: &[Worker],
    (targets, known): (&[PolicyTarget], &[FrequencyPolicy]),
    (journal, floor): (&Journal, Option<KiloHertz>),
) -> (Vec<PolicyTarget>, Vec<FrequencyPolicy>) {
    let mut found = (Vec::new(), Vec::new());
    for (worker, from) in workers.iter().enumerate() {
        for (domain, described) in from.view.domains.iter().enumerate() {
            let (DomainKind::Policy, Some(limit), Some(covers)) =
                (described.key().kind(), described.frequency(), described.covers())
            else {
                continue;
            };
            let place = Place { worker, domain };
            let target = PolicyTarget { key: *described.key(), backend: from.kind, place };
            let core =
                throttle::PolicyLocation { package: covers.package(), core: u32::from(covers.group()) };
            let scale = Scale::Frequency {
                floor: floor.map_or(limit.lower(), |floor| floor.within(limit.lower(), limit.upper())),
                most: limit.upper(),
                step: limit.step(),
            };
            let mut facts = FrequencyPolicyFacts::UNKNOWN;
            target.tell_original(&mut facts, journal);
            let policy = FrequencyPolicy::listed(scale, core, facts);
            let before = targets.iter().zip(known).find(|(before, _)| before.key == target.key);
            found.1.push(before.map_or(policy, |(_, before)| policy.after(before)));
            found.0.push(target);
        }
    }
    found
}

impl PolicyTarget {
    /// The frequency limit of this domain of a backend.
    pub(crate) const fn at(key: Key, backend: BackendKind, place: Place) -> Self {
        Self { key, backend, place }
    }

    /// The frequencies that all of them can be limited to, kHz, ascending; empty if one of them has no table. A policy
    /// that lacks an entry of another's table takes its own next lower one.
    pub(crate) fn frequency_table(targets: &[Self], workers: &[Worker]) -> Vec<u32> {
        let table = |target: &Self| &*workers[target.place.worker].view.tables[target.place.domain];
        if targets.iter().any(|target| table(target).is_empty()) {
            return Vec::new();
        }
        let all: BTreeSet<u32> = targets.iter().flat_map(|target| table(target).iter().copied()).collect();
        all.into_iter().collect()
    }

    /// Writes the reading and the outcome of the order into the facts.
    pub(crate) fn tell(&self, facts: &mut FrequencyPolicyFacts, workers: &mut [Worker]) {
        let view = &mut workers[self.place.worker].view;
        if let Some(outcome) = view.take_outcome(self.place.domain, Control::Frequency) {
            facts.outcome = told(outcome);
        }
        let reading = &view.readings[self.place.domain];
        facts.read = reading.as_ref().ok().map(|sample| sample.at);
        facts.limit = setting_of(reading, Control::Frequency).and_then(limit_of);
        facts.running = reading.as_ref().ok().and_then(|sample| sample.frequency.ok());
    }

    /// Writes the journal's content into the facts.
    pub(crate) fn tell_original(&self, facts: &mut FrequencyPolicyFacts, journal: &Journal) {
        facts.touched = journal.holds(self.backend, &self.key, Control::Frequency);
        facts.original = journal.was(self.backend, &self.key, Control::Frequency).and_then(limit_of);
    }

    /// Passes an order on. If it cannot be passed on, because the policy is gone, it has failed.
    pub(crate) fn obey(&self, order: EngineOrder, workers: &[Worker]) -> PolicyOutcome {
        let ticket = order.ticket;
        let gone = Err(ErrorKind::Gone);
        let (wanted, failed) = match order.instruction {
            Instruction::Limit(PolicyLimit::Frequency(frequency)) => {
                let failed = PolicyOutcome::Set { ticket, read_back: Err(ErrorKind::Gone) };
                (Order::Set(Setting::Frequency(frequency)), failed)
            }
            Instruction::Limit(PolicyLimit::Throttle(_)) | Instruction::Power(_) | Instruction::Release => {
                (Order::Release(Control::Frequency), PolicyOutcome::Released { ticket, outcome: gone })
            }
        };
        let passed = workers[self.place.worker].order(self.place.domain, ticket, wanted);
        if passed { PolicyOutcome::Unknown } else { failed }
    }
}

fn told(outcome: Outcome) -> PolicyOutcome {
    match outcome {
        Outcome::Released { ticket, outcome } => PolicyOutcome::Released { ticket, outcome },
        Outcome::Set { ticket, read_back } => {
            let read_back = read_back.and_then(|found| limit_of(found).ok_or(ErrorKind::BadData));
            PolicyOutcome::Set { ticket, read_back }
        }
    }
}

fn limit_of(setting: Setting) -> Option<PolicyLimit> {
    match setting {
        Setting::Frequency(frequency) => Some(PolicyLimit::Frequency(frequency)),
        Setting::Power(_) | Setting::Throttle(_) => None,
    }
}
