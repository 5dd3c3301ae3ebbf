//! The trusted profiles of all workloads, to be looked up by workload without allocating.

use super::trust::{Distrust, TrustedProfile};
use std::collections::BTreeMap;

/// What trusted profiles say, by workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProfiles {
    /// In the order of namespace, kind and name.
    all: Box<[([Box<str>; 3], TrustedProfile)]>,
    /// How many profiles are not trusted, by the reason.
    distrusted: BTreeMap<Distrust, usize>,
}

impl TrustedProfiles {
    /// Of these profiles: the namespace, the kind and the name of each workload, and what its profile says. Where two
    /// are about one workload and do not say the same, neither is trusted, so that their names decide nothing.
    pub fn of<'a>(
        profiles: impl IntoIterator<Item = ([&'a str; 3], Result<TrustedProfile, Distrust>)>,
    ) -> Self {
        let (mut by, mut distrusted) = (BTreeMap::new(), BTreeMap::new());
        for (workload, said) in profiles {
            let first = *by.entry(workload).or_insert(said);
            if first != said {
                by.insert(workload, Err(Distrust::Contradicted));
            }
        }
        let all = by.into_iter().filter_map(|(workload, said)| match said {
            Ok(said) => Some((workload.map(Box::from), said)),
            Err(why) => {
                *distrusted.entry(why).or_insert(0) += 1;
                None
            }
        });
        Self { all: all.collect(), distrusted }
    }

    /// What is known of a workload, by its namespace, kind and name.
    #[must_use]
    pub fn find(&self, workload: [&str; 3]) -> Option<TrustedProfile> {
        let order = |known: &[Box<str>; 3]| known.each_ref().map(|text| &**text).cmp(&workload);
        let at = self.all.binary_search_by(|(known, _)| order(known)).ok()?;
        self.all.get(at).map(|(_, said)| *said)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many workloads have a profile that is not trusted for this reason.
    #[must_use]
    pub fn distrusted(&self, why: Distrust) -> usize {
        self.distrusted.get(&why).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload_profile::CpuLevel;

    #[test]
    fn each_workload_is_found_by_its_namespace_kind_and_name() {
        let said = |level| TrustedProfile { cpu_intensity: Some(level), ..TrustedProfile::default() };
        let all = TrustedProfiles::of([
            (["b", "Job", "x"], Ok(said(CpuLevel::Low))),
            (["a", "Job", "x"], Ok(said(CpuLevel::High))),
            (["a", "Job", "y"], Ok(said(CpuLevel::High))),
            (["a", "Job", "y"], Err(Distrust::Stale)),
            (["a", "Job", "x"], Ok(said(CpuLevel::High))),
            (["a", "Job", "z"], Err(Distrust::Doubtful)),
        ]);
        assert_eq!(all.find(["a", "Job", "x"]), Some(said(CpuLevel::High)));
        assert_eq!(all.find(["b", "Job", "x"]), Some(said(CpuLevel::Low)));
        assert_eq!((all.find(["a", "Job", "y"]), all.find(["a", "Pod", "x"])), (None, None));
        let distrusted = [Distrust::Stale, Distrust::Doubtful, Distrust::Contradicted];
        assert_eq!((all.len(), distrusted.map(|why| all.distrusted(why))), (2, [0, 1, 1]));
    }

    #[test]
    fn of_two_profiles_that_differ_neither_counts_in_whatever_order_they_are_read() {
        let said = |level| Ok(TrustedProfile { cpu_intensity: Some(level), ..TrustedProfile::default() });
        let workload = ["a", "Job", "x"];
        let both = [(workload, said(CpuLevel::Low)), (workload, said(CpuLevel::High))];
        for both in [both, [both[1], both[0]]] {
            let all = TrustedProfiles::of(both.into_iter().chain([both[0]]));
            assert_eq!((all.find(workload), all.distrusted(Distrust::Contradicted)), (None, 1));
        }
    }
}
