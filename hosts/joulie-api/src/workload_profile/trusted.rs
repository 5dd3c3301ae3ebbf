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
    /// are about one workload, the later one counts.
    pub fn of<'a>(
        profiles: impl IntoIterator<Item = ([&'a str; 3], Result<TrustedProfile, Distrust>)>,
    ) -> Self {
        let (mut by, mut distrusted) = (BTreeMap::new(), BTreeMap::new());
        for (workload, said) in profiles {
            // One that is not trusted must not leave another one standing that it contradicts.
            by.insert(workload, said);
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
            (["b", "Job", "x"], Ok(said(CpuLevel::Medium))),
        ]);
        assert_eq!(all.find(["a", "Job", "x"]), Some(said(CpuLevel::High)));
        assert_eq!(all.find(["b", "Job", "x"]), Some(said(CpuLevel::Medium)));
        assert_eq!((all.find(["a", "Job", "y"]), all.find(["a", "Pod", "x"])), (None, None));
        assert_eq!(
            (all.len(), all.distrusted(Distrust::Stale), all.distrusted(Distrust::Doubtful)),
            (2, 1, 0)
        );
    }
}
