//! An enumeration of all policies of the machine.

use crate::policy::CpufreqPolicy;
use crate::slot::Slot;
use crate::topology::{Topology, absent};
use crate::{CpufreqError, CpufreqFault};
use hal_files::{FileError, Root};
use power_hal::{Covers, CpuSet, Domain, couple};
use std::path::Path;
use std::sync::Arc;

/// The kernel's folder of policies. `cpuN/cpufreq` are links to its content.
const FOLDER: &str = "sys/devices/system/cpu/cpufreq";

/// The result of an enumeration.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The policies in the order of their lowest CPU; `slots` has their open files at the same
    /// index.
    pub(crate) domains: Vec<Domain>,
    pub(crate) slots: Vec<Slot>,
    /// The problems.
    pub(crate) complaints: Vec<CpufreqError>,
}

impl Survey {
    /// Enumerates the machine. A policy that does not answer now is described as in `before`.
    pub(crate) fn of(root: &Root, topology: &mut Topology, before: &[Slot]) -> Result<Self, FileError> {
        let folder = root.join(FOLDER);
        let mut survey = Self::default();
        let mut policies = Vec::new();
        for name in root.names(&folder)?.into_iter().filter(|name| is_policy(name)) {
            let path: Arc<Path> = Arc::from(folder.join(&name));
            if let Some(policy) = survey.policy(&path, &name, before) {
                policies.push((path, name, policy));
            }
        }
        policies.sort_by_key(|(_, _, policy)| policy.related.lowest());
        let mut taken = CpuSet::EMPTY;
        for (path, name, policy) in policies {
            if taken.meets(&policy.related) {
                survey.complaints.push(CpufreqError::of(&path, CpufreqFault::Shared));
                continue;
            }
            for cpu in policy.related.iter() {
                // A number from a set fits into a set.
                let _fits = taken.insert(cpu);
            }
            let complaints = &mut survey.complaints;
            let placed = place(root, topology, policy, &mut |fault| {
                complaints.push(CpufreqError::of(&path, fault));
            });
            match placed.and_then(|(policy, package)| open(&path, &name, policy, package, complaints)) {
                Ok((domain, slot)) => {
                    survey.domains.push(domain);
                    survey.slots.push(slot);
                }
                Err(fault) => survey.complaints.push(CpufreqError::of(&path, fault)),
            }
        }
        couple(&mut survey.domains, topology.cores());
        Ok(survey)
    }

    /// The content of a folder, or its last known content; `None` if it is being removed.
    fn policy(&mut self, path: &Arc<Path>, name: &str, before: &[Slot]) -> Option<CpufreqPolicy> {
        let known = before.iter().find(|slot| *slot.name == *name).map(|slot| &slot.policy);
        let complaints = &mut self.complaints;
        let read = CpufreqPolicy::read(path, &mut |fault| complaints.push(CpufreqError::of(path, fault)));
        match read {
            Ok(policy) => {
                let range = policy.range.or(known.and_then(|known| known.range));
                Some(CpufreqPolicy { range, ..policy })
            }
            Err(CpufreqFault::File(error)) if absent(&error) => None,
            Err(fault) => {
                let busy =
                    matches!(&fault, CpufreqFault::File(error) if error.kind == power_hal::ErrorKind::Busy);
                if !busy || known.is_none() {
                    self.complaints.push(CpufreqError::of(path, fault));
                }
                let online = |known: &CpufreqPolicy| if busy { CpuSet::EMPTY } else { known.online };
                known.map(|known| CpufreqPolicy { online: online(known), ..known.clone() })
            }
        }
    }
}

/// `policy` and a number; the same folder also contains `boost` and the folders of governors.
fn is_policy(name: &str) -> bool {
    name.strip_prefix("policy")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads the topology of all CPUs of a policy, and finds their package.
fn place(
    root: &Root,
    topology: &mut Topology,
    policy: CpufreqPolicy,
    complain: &mut impl FnMut(CpufreqFault),
) -> Result<(CpufreqPolicy, u16), CpufreqFault> {
    let mut found = None;
    for cpu in policy.related.iter() {
        let place = topology.look(root, cpu).unwrap_or_else(|error| {
            complain(error.into());
            topology.known(cpu)
        });
        found = found.or(place);
    }
    let found = found.ok_or(CpufreqFault::Unplaced)?;
    Ok((CpufreqPolicy { die: found.die, ..policy }, found.package))
}

fn open(
    path: &Path,
    name: &str,
    policy: CpufreqPolicy,
    package: u16,
    complaints: &mut Vec<CpufreqError>,
) -> Result<(Domain, Slot), CpufreqFault> {
    let covers = Covers::new(package, policy.related).map_err(CpufreqFault::Cpus)?;
    let mut domain = Domain::policy(covers);
    match policy.limit() {
        Some(Ok(limit)) => domain = domain.with_frequency(limit),
        // Described without a limit, so that no caller relies on one.
        Some(Err(bad)) => complaints.push(CpufreqError::at(*domain.key(), CpufreqFault::Range(bad))),
        None => {}
    }
    let slot = Slot::open(path, name, *domain.key(), policy)?;
    Ok((domain, slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_policies_are_policies() {
        for (name, expected) in [
            ("policy0", true),
            ("policy255", true),
            ("policy", false),
            ("policyX", false),
            ("policy-1", false),
            ("boost", false),
            ("ondemand", false),
            ("cpu0", false),
        ] {
            assert_eq!(is_policy(name), expected, "{name}");
        }
    }
}
