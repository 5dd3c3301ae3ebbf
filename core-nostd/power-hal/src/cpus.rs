//! The CPUs that a frequency policy covers, and the policies that must be throttled together.
//!
//! Two hardware threads of one core (SMT siblings) run at the higher of their two requests, so a policy that is
//! lowered alone has no effect while a policy of its sibling is not. Policies whose CPUs share a core therefore carry
//! one *group*, and a law throttles whole groups.

use crate::Domain;
use core::fmt;

const WORDS: usize = 32;

/// A set of logical CPUs by their kernel numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuSet {
    bits: [u64; WORDS],
}

/// Why a list of CPUs is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCpus {
    /// A CPU number beyond what a set holds.
    Beyond,
    /// The text is not a list such as `0-3,64`.
    NotAList,
    /// A policy that covers no CPU.
    Empty,
}

impl fmt::Display for BadCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond => write!(f, "expected CPU numbers below {}", CpuSet::CAPACITY),
            Self::NotAList => f.write_str("expected CPU numbers and ranges such as 0-3,64 or 0 1 2"),
            Self::Empty => f.write_str("expected at least one CPU"),
        }
    }
}

impl core::error::Error for BadCpus {}

impl CpuSet {
    /// CPU numbers are below this; a larger one is refused, never ignored.
    pub const CAPACITY: u16 = 2048;

    /// No CPU.
    pub const EMPTY: Self = Self { bits: [0; WORDS] };

    /// Adds a CPU.
    ///
    /// # Errors
    /// When its number does not fit; the set is unchanged.
    pub fn insert(&mut self, cpu: u16) -> Result<(), BadCpus> {
        let (word, bit) = place(cpu);
        let slot = self.bits.get_mut(word).ok_or(BadCpus::Beyond)?;
        *slot |= bit;
        Ok(())
    }

    /// Reads a list as sysfs writes it: ranges and commas (`0-3,64`, of topology files), or numbers and spaces
    /// (`0 1 2`, of cpufreq). Surrounding space and an end of line do not matter.
    ///
    /// ```
    /// use power_hal::CpuSet;
    /// let cpus = CpuSet::parse("0-2,64\n")?;
    /// assert_eq!(cpus, CpuSet::parse("0 1 2 64")?);
    /// assert_eq!((cpus.count(), cpus.lowest()), (4, Some(0)));
    /// # Ok::<(), power_hal::BadCpus>(())
    /// ```
    ///
    /// # Errors
    /// When the text is no such list, or names a CPU that does not fit.
    pub fn parse(text: &str) -> Result<Self, BadCpus> {
        let mut set = Self::EMPTY;
        for item in text.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty()) {
            let (first, last) = item.split_once(['-']).unwrap_or((item, item));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(BadCpus::NotAList);
            }
            for cpu in first..=last {
                set.insert(cpu)?;
            }
        }
        Ok(set)
    }

    /// Whether the set contains the CPU.
    #[must_use]
    pub fn contains(&self, cpu: u16) -> bool {
        let (word, bit) = place(cpu);
        self.bits.get(word).is_some_and(|slot| slot & bit != 0)
    }

    /// Whether the two sets share a CPU.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.bits.iter().zip(&other.bits).any(|(a, b)| a & b != 0)
    }

    /// The number of CPUs.
    #[must_use]
    pub fn count(&self) -> u16 {
        let count = self.bits.iter().fold(0_u32, |sum, word| sum.saturating_add(word.count_ones()));
        u16::try_from(count).unwrap_or(Self::CAPACITY)
    }

    /// The lowest CPU.
    #[must_use]
    pub fn lowest(&self) -> Option<u16> {
        self.iter().next()
    }

    /// All CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..Self::CAPACITY).filter(|&cpu| self.contains(cpu))
    }
}

fn place(cpu: u16) -> (usize, u64) {
    (usize::from(cpu >> 6), 1_u64.wrapping_shl(u32::from(cpu & 63)))
}

fn number(text: &str) -> Result<u16, BadCpus> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadCpus::NotAList);
    }
    let number = text.parse().map_err(|_| BadCpus::Beyond)?;
    if number < CpuSet::CAPACITY { Ok(number) } else { Err(BadCpus::Beyond) }
}

/// Writes the CPU numbers; consecutive numbers as ranges.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for first in self.iter().filter(|&cpu| cpu == 0 || !self.contains(cpu.saturating_sub(1))) {
            let last = (first..Self::CAPACITY).take_while(|&cpu| self.contains(cpu)).last().unwrap_or(first);
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// What a frequency policy covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Covers {
    package: u16,
    cpus: CpuSet,
    lowest: u16,
    group: u16,
}

impl Covers {
    /// All CPUs of a policy, online or not, and their package.
    ///
    /// # Errors
    /// When there is no CPU.
    pub fn new(package: u16, cpus: CpuSet) -> Result<Self, BadCpus> {
        let lowest = cpus.lowest().ok_or(BadCpus::Empty)?;
        Ok(Self { package, cpus, lowest, group: lowest })
    }

    /// The physical number of the package.
    #[must_use]
    pub const fn package(&self) -> u16 {
        self.package
    }

    /// The CPUs.
    #[must_use]
    pub const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// The lowest of the CPUs, which names the policy.
    #[must_use]
    pub const fn lowest(&self) -> u16 {
        self.lowest
    }

    /// The lowest CPU of all policies that must be throttled together with this one; the same for each of them. A
    /// policy that was never coupled is a group of its own.
    #[must_use]
    pub const fn group(&self) -> u16 {
        self.group
    }

    pub(crate) const fn set_group(&mut self, group: u16) {
        self.group = group;
    }
}

/// Joins the frequency policies among `domains` whose CPUs share one of the `cores` (the thread siblings of each
/// core), also transitively. A HAL calls it once per enumeration.
pub fn couple(domains: &mut [Domain], cores: impl IntoIterator<Item = CpuSet>) {
    for core in cores {
        let touching = |covers: &Covers| covers.cpus.meets(&core);
        let groups = || domains.iter().filter_map(Domain::covers).filter(|c| touching(c)).map(Covers::group);
        let Some(lowest) = groups().min() else { continue };
        // Every group that touches the core is merged into the lowest one, completely. One pass per group, since the
        // remaining groups are searched again.
        while let Some(other) = find_other(domains, &core, lowest) {
            for covers in domains.iter_mut().filter_map(Domain::covers_mut).filter(|c| c.group == other) {
                covers.set_group(lowest);
            }
        }
    }
}

fn find_other(domains: &[Domain], core: &CpuSet, lowest: u16) -> Option<u16> {
    let touching = domains.iter().filter_map(Domain::covers).filter(|c| c.cpus.meets(core));
    touching.map(Covers::group).find(|&group| group != lowest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn set(cpus: &[u16]) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for &cpu in cpus {
            set.insert(cpu).unwrap();
        }
        set
    }

    fn policies(sets: &[&[u16]]) -> Vec<Domain> {
        sets.iter().map(|cpus| Domain::policy(Covers::new(0, set(cpus)).unwrap())).collect()
    }

    fn groups(domains: &[Domain]) -> Vec<u16> {
        domains.iter().map(|domain| domain.covers().unwrap().group()).collect()
    }

    #[test]
    fn the_lists_of_sysfs_are_read() {
        for (text, cpus) in [
            ("", &[][..]),
            ("\n", &[]),
            ("0\n", &[0]),
            ("0,64\n", &[0, 64]),
            ("0-3\n", &[0, 1, 2, 3]),
            ("0 1 2 3 \n", &[0, 1, 2, 3]),
            ("63-65,2047", &[63, 64, 65, 2047]),
        ] {
            assert_eq!(CpuSet::parse(text), Ok(set(cpus)), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_whole() {
        for text in ["a", "-1", "1-", "-", "3-1", "1-2-3", "0x3", "1.5", "0-3:1/2", "ff,ffffffff"] {
            assert_eq!(CpuSet::parse(text), Err(BadCpus::NotAList), "{text}");
        }
        for text in ["2048", "0-2048", "65536", "99999999999999999999"] {
            assert_eq!(CpuSet::parse(text), Err(BadCpus::Beyond), "{text}");
        }
        assert_eq!(CpuSet::EMPTY.clone().insert(2048), Err(BadCpus::Beyond));
        assert_eq!(Covers::new(0, CpuSet::EMPTY), Err(BadCpus::Empty));
    }

    /// Fix list agent S9: to throttle some of the threads has no effect while their siblings run on.
    #[test]
    fn policies_of_smt_siblings_are_one_group() {
        // Two cores with two threads each and one policy per thread, as in intel_pstate: 0+2 and 1+3.
        let mut domains = policies(&[&[0], &[1], &[2], &[3]]);
        couple(&mut domains, [set(&[0, 2]), set(&[1, 3]), set(&[0, 2]), set(&[1, 3])]);
        assert_eq!(groups(&domains), [0, 1, 0, 1]);
    }

    #[test]
    fn a_group_joins_over_several_steps_in_any_order() {
        let cores = [set(&[4, 5]), set(&[2, 3]), set(&[3, 4]), set(&[1, 9]), set(&[5, 9])];
        for turn in 0..cores.len() {
            let mut domains = policies(&[&[9], &[5], &[4], &[3], &[2], &[1], &[7]]);
            let mut turned = cores;
            turned.rotate_left(turn);
            couple(&mut domains, turned);
            assert_eq!(groups(&domains), [1, 1, 1, 1, 1, 1, 7]);
        }
    }

    #[test]
    fn a_policy_without_siblings_stays_alone_and_other_domains_are_let_be() {
        let mut domains = policies(&[&[0, 1], &[2, 3]]);
        domains.push(Domain::package(0, None));
        couple(&mut domains, [set(&[0, 1]), set(&[2, 3]), set(&[77, 78])]);
        assert_eq!(groups(&domains[..2]), [0, 2]);
        assert!(domains[2].covers().is_none());
    }

    #[test]
    fn a_machine_of_768_threads_is_coupled_by_core() {
        let mut domains: Vec<Domain> = (0..768)
            .map(|cpu| Domain::policy(Covers::new(u16::from(cpu >= 384), set(&[cpu])).unwrap()))
            .collect();
        couple(&mut domains, (0..384).map(|core| set(&[core, core + 384])));
        for (cpu, group) in (0_u16..).zip(groups(&domains)) {
            assert_eq!(group, cpu % 384);
        }
    }

    proptest! {
        #[test]
        fn text_reads_back_as_the_same_set(cpus in prop::collection::vec(0_u16..2048, 0..80)) {
            let set = set(&cpus);
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Ok(set));
            let mut sorted = cpus;
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), sorted.clone());
            prop_assert_eq!(usize::from(set.count()), sorted.len());
            prop_assert_eq!(set.lowest(), sorted.first().copied());
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,30}|[0-9, -]{0,30}") {
            let _ = CpuSet::parse(&text);
        }

        #[test]
        fn two_policies_share_a_group_exactly_if_cores_connect_them(
            pairs in prop::collection::vec((0_u16..10, 0_u16..10), 0..12),
        ) {
            let mut domains = policies(&[&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8], &[9]]);
            couple(&mut domains, pairs.iter().map(|&(a, b)| set(&[a, b])));
            // Reachability by squaring the relation until nothing is added.
            let mut reach = [[false; 10]; 10];
            for (i, row) in reach.iter_mut().enumerate() { row[i] = true; }
            for &(a, b) in &pairs {
                reach[usize::from(a)][usize::from(b)] = true;
                reach[usize::from(b)][usize::from(a)] = true;
            }
            for _ in 0..4 {
                for i in 0..10 { for j in 0..10 { for k in 0..10 {
                    reach[i][j] |= reach[i][k] && reach[k][j];
                }}}
            }
            let groups = groups(&domains);
            for i in 0..10 {
                for j in 0..10 { prop_assert_eq!(groups[i] == groups[j], reach[i][j]); }
                let lowest = (0..10).find(|&j| reach[i][j]).unwrap();
                prop_assert_eq!(usize::from(groups[i]), lowest);
            }
        }
    }
}
