//! The state of every workload between classifications.
//!
//! A workload is its controller or, without one, its pod; the caller gives the key. It is classified again every 15
//! minutes. A value that moves around a threshold changes nothing: the former verdict stays while any reading within
//! the *band* around the present one would still give it. When metrics fail, the profile stays and the next attempt is
//! made at once. Each further interval without metrics takes one piece of evidence from the confidence, until only the
//! hints are left.

use super::metrics::WorkloadMetrics;
use super::rules::classify;
use super::{Confidence, DeviceUsage, Hints, WorkloadProfile};
use power_units::{Micros, Percent, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How often workloads are classified, and how wide the band is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLaw {
    every: Micros,
    band: Percent,
}

/// Profiles are reclassified every 15 minutes.
pub const EVERY: Micros = Micros::new(900_000_000);
/// Three points to either side of a threshold.
pub const BAND: Percent = Percent::from_int(3);

/// Tuning that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLawError {
    /// The interval.
    Every,
    /// The band.
    Band,
}

impl fmt::Display for MemoryLawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Every => "workloads can be reclassified every 1 s to every 24 h",
            Self::Band => {
                "the band around a reading must be from 0 to 5 points, the distance of two thresholds"
            }
        })
    }
}

impl std::error::Error for MemoryLawError {}

impl MemoryLaw {
    /// Reclassifies every `every`, with `band` to either side of a reading.
    ///
    /// # Errors
    /// When the interval is out of range, or the band is wider than the distance of two thresholds.
    pub fn new(every: Micros, band: Percent) -> Result<Self, MemoryLawError> {
        if every < Micros::new(1_000_000) || every > Micros::new(86_400_000_000) {
            return Err(MemoryLawError::Every);
        }
        if band < Percent::ZERO || band > Percent::from_int(5) {
            return Err(MemoryLawError::Band);
        }
        Ok(Self { every, band })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    profile: WorkloadProfile,
    /// When there last were metrics, and the confidence they gave.
    backed: Option<(Stamp, Confidence)>,
}

/// The workloads and their state.
#[derive(Clone, Debug)]
pub struct WorkloadMemory<K>(BTreeMap<K, Known>);

impl<K> Default for WorkloadMemory<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> WorkloadMemory<K> {
    /// Whether to classify a workload again: when it is new, when its metrics are as old as the interval, and at once
    /// when the last attempt found no metrics.
    #[must_use]
    pub fn is_due(&self, law: &MemoryLaw, key: &K, now: Stamp) -> bool {
        let backed = self.0.get(key).and_then(|known| known.backed);
        backed.is_none_or(|(at, _)| now.since(at).is_none_or(|age| age >= law.every))
    }

    /// Updates a workload with new hints and metrics, and returns its profile.
    pub fn step(
        &mut self,
        law: &MemoryLaw,
        key: &K,
        now: Stamp,
        hints: &Hints,
        metrics: Option<&WorkloadMetrics>,
    ) -> &WorkloadProfile {
        let metrics = metrics.filter(|metrics| !metrics.is_empty());
        let before = self.0.remove(key);
        let known = match (before, metrics) {
            (before, Some(metrics)) => renewed(law, before.as_ref(), now, hints, metrics),
            (Some(before), None) => kept(law, before, now, hints),
            (None, None) => Known { profile: classify(hints, None), backed: None },
        };
        &self.0.entry(key.clone()).or_insert(known).profile
    }

    /// Takes in a profile that another process made from metrics, of which the last were read at `backed`. What is
    /// known already stays.
    pub fn adopt(&mut self, key: K, profile: WorkloadProfile, backed: Stamp) {
        let backed = Some((backed, profile.confidence));
        self.0.entry(key).or_insert(Known { profile, backed });
    }

    /// When a workload last had metrics that its profile still rests on.
    #[must_use]
    pub fn backed_at(&self, key: &K) -> Option<Stamp> {
        self.0.get(key).and_then(|known| known.backed).map(|(at, _)| at)
    }

    /// The profile of a workload.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&WorkloadProfile> {
        self.0.get(key).map(|known| &known.profile)
    }

    /// Forgets every workload that is gone.
    pub fn keep_only(&mut self, live: &BTreeSet<K>) {
        self.0.retain(|key, _| live.contains(key));
    }
}

fn renewed(
    law: &MemoryLaw,
    before: Option<&Known>,
    now: Stamp,
    hints: &Hints,
    metrics: &WorkloadMetrics,
) -> Known {
    let mut profile = classify(hints, Some(metrics));
    if let Some(before) = before.filter(|before| before.backed.is_some()) {
        steady(law, &before.profile, &mut profile, hints, metrics);
    }
    let backed = Some((now, profile.confidence));
    Known { profile, backed }
}

/// Keeps the former verdict where a reading within the band would still give it. The rules compare each signal with
/// thresholds, and two signals with each other, so the corners of the band show any difference.
fn steady(
    law: &MemoryLaw,
    before: &WorkloadProfile,
    profile: &mut WorkloadProfile,
    hints: &Hints,
    metrics: &WorkloadMetrics,
) {
    let same = |a: DeviceUsage, b: DeviceUsage| {
        (a.intensity, a.bound, a.sensitivity) == (b.intensity, b.bound, b.sensitivity)
    };
    let held = |old: DeviceUsage, new: DeviceUsage| DeviceUsage { utilization: new.utilization, ..old };
    let (cpu_moved, gpu_moved) = (!same(before.cpu, profile.cpu), !same(before.gpu, profile.gpu));
    if !cpu_moved && !gpu_moved {
        return;
    }
    let near: Vec<_> = corners(law.band)
        .map(|(cpu, gpu, memory)| classify(hints, Some(&metrics.moved(cpu, gpu, memory))))
        .collect();
    if cpu_moved && near.iter().any(|near| same(near.cpu, before.cpu)) {
        profile.cpu = held(before.cpu, profile.cpu);
        profile.reason.push_str("; cpu held: within the band of a threshold");
    }
    if gpu_moved && near.iter().any(|near| same(near.gpu, before.gpu)) {
        profile.gpu = held(before.gpu, profile.gpu);
        profile.reason.push_str("; gpu held: within the band of a threshold");
    }
}

fn corners(band: Percent) -> impl Iterator<Item = (Percent, Percent, Percent)> {
    let ends = move || [-band, Percent::ZERO, band].into_iter();
    ends().flat_map(move |cpu| ends().flat_map(move |gpu| ends().map(move |memory| (cpu, gpu, memory))))
}

/// One piece of evidence, in tenths of confidence.
const EVIDENCE: u8 = 2;

fn kept(law: &MemoryLaw, before: Known, now: Stamp, hints: &Hints) -> Known {
    let by_hints = classify(hints, None);
    let Some((at, confidence)) = before.backed else {
        return Known { profile: by_hints, backed: None };
    };
    let intervals = now.since(at).and_then(|age| age.get().checked_div(law.every.get())).unwrap_or(0);
    let missed = u8::try_from(intervals.saturating_sub(1)).unwrap_or(u8::MAX);
    let left = confidence.less(missed.saturating_mul(EVIDENCE));
    if missed > 0 && left <= by_hints.confidence {
        return Known { profile: by_hints, backed: None };
    }
    let profile = WorkloadProfile {
        class: hints.class.class,
        reschedulable: hints.reschedulable,
        confidence: left,
        ..before.profile
    };
    Known { profile, backed: before.backed }
}

#[cfg(test)]
mod tests {
    use super::super::{Bound, Intensity, Sensitivity};
    use super::*;
    use joulie_core::placement::class::WorkloadClass;

    const MINUTE: u64 = 60_000_000;

    fn law() -> MemoryLaw {
        MemoryLaw::new(EVERY, BAND).unwrap()
    }

    fn at(minutes: u64) -> Stamp {
        Stamp::new(Micros::new(minutes * MINUTE))
    }

    fn metrics(cpu: i32, gpu: i32) -> WorkloadMetrics {
        WorkloadMetrics {
            cpu: Some(Percent::from_int(cpu)),
            gpu: Some(Percent::from_int(gpu)),
            ..WorkloadMetrics::default()
        }
    }

    fn standard() -> Hints {
        Hints::read(None, Some("true"))
    }

    struct Run {
        memory: WorkloadMemory<&'static str>,
    }

    impl Run {
        fn new() -> Self {
            Self { memory: WorkloadMemory::default() }
        }

        fn step(&mut self, minutes: u64, metrics: Option<WorkloadMetrics>) -> WorkloadProfile {
            self.memory.step(&law(), &"job", at(minutes), &standard(), metrics.as_ref()).clone()
        }

        fn due(&self, minutes: u64) -> bool {
            self.memory.is_due(&law(), &"job", at(minutes))
        }
    }

    #[test]
    fn a_workload_is_looked_at_every_15_minutes_and_at_once_after_a_failure() {
        // Fix list operator B-C2.
        let mut run = Run::new();
        assert!(run.due(0));
        run.step(0, Some(metrics(80, 0)));
        assert!(!run.due(14));
        assert!(run.due(15));
        run.step(15, None);
        assert!(run.due(15));
        run.step(16, Some(metrics(80, 0)));
        assert!(!run.due(30));
        // A clock that was set back does not delay it.
        assert!(run.due(3));
    }

    #[test]
    fn a_profile_of_another_process_is_held_at_a_threshold_and_fades_as_an_own_one() {
        let mut run = Run::new();
        let own = run.step(0, Some(metrics(76, 0)));
        assert_eq!(own.cpu.intensity, Intensity::High);
        let mut next = Run::new();
        next.memory.adopt("job", own.clone(), at(0));
        next.memory.adopt("job", WorkloadProfile { reschedulable: false, ..own.clone() }, at(9));
        assert_eq!((next.memory.get(&"job"), next.memory.backed_at(&"job")), (Some(&own), Some(at(0))));
        assert!(!next.due(14) && next.due(15));
        assert_eq!(next.step(15, None).cpu, own.cpu);
        assert_eq!(next.step(16, Some(metrics(74, 0))).cpu.intensity, Intensity::High);
        let mut fading = Run::new();
        fading.memory.adopt("job", own, at(0));
        assert_eq!(fading.step(30, None).reason, "hints only: no metrics");
        assert_eq!(fading.memory.backed_at(&"job"), None);
    }

    #[test]
    fn a_passing_failure_of_the_metrics_keeps_the_profile() {
        // Fix list operator B-C2.
        let mut run = Run::new();
        let before = run.step(0, Some(metrics(80, 0)));
        assert_eq!(run.step(15, None), before);
        assert_eq!(run.step(29, Some(WorkloadMetrics::default())), before);
        // Also a profile with little evidence: the use of the processors is unknown.
        let mut thin = Run::new();
        let gpu_only = WorkloadMetrics { gpu: Some(Percent::from_int(80)), ..WorkloadMetrics::default() };
        let before = thin.step(0, Some(gpu_only));
        assert_eq!(before.confidence, Confidence::tenths(3));
        assert_eq!(thin.step(15, None), before);
    }

    #[test]
    fn confidence_fades_with_every_interval_without_metrics_until_hints_are_left() {
        let hints = Hints::read(Some("performance"), None);
        let mut memory = WorkloadMemory::default();
        let confidence = |memory: &mut WorkloadMemory<u8>, minutes, metrics: Option<&WorkloadMetrics>| {
            let profile = memory.step(&law(), &1, at(minutes), &hints, metrics);
            (profile.confidence, profile.cpu.intensity)
        };
        let tenths = Confidence::tenths;
        assert_eq!(confidence(&mut memory, 0, Some(&metrics(80, 0))), (tenths(7), Intensity::High));
        assert_eq!(confidence(&mut memory, 29, None), (tenths(7), Intensity::High));
        assert_eq!(confidence(&mut memory, 30, None), (tenths(5), Intensity::High));
        assert_eq!(confidence(&mut memory, 30, None), (tenths(5), Intensity::High));
        assert_eq!(confidence(&mut memory, 45, None), (tenths(3), Intensity::Medium));
    }

    #[test]
    fn a_value_about_a_threshold_does_not_flap() {
        let mut run = Run::new();
        let mut intensity = |minutes, cpu| run.step(minutes, Some(metrics(cpu, 0))).cpu.intensity;
        assert_eq!(intensity(0, 76), Intensity::High);
        assert_eq!(intensity(15, 73), Intensity::High);
        assert_eq!(intensity(30, 76), Intensity::High);
        assert_eq!(intensity(45, 71), Intensity::Medium);
        assert_eq!(intensity(60, 74), Intensity::Medium);
        assert_eq!(intensity(75, 77), Intensity::Medium);
        assert_eq!(intensity(90, 79), Intensity::High);
    }

    #[test]
    fn a_real_change_is_taken_at_once() {
        let mut run = Run::new();
        run.step(0, Some(metrics(90, 0)));
        let after = run.step(15, Some(metrics(5, 80)));
        assert_eq!((after.cpu.intensity, after.gpu.intensity), (Intensity::Low, Intensity::High));
        assert_eq!((after.cpu.bound, after.cpu.sensitivity), (Bound::Mixed, Sensitivity::Low));
    }

    #[test]
    fn the_gpu_verdict_holds_apart_from_the_cpu_verdict() {
        let mut run = Run::new();
        run.step(0, Some(metrics(10, 71)));
        let after = run.step(15, Some(metrics(40, 69)));
        assert_eq!((after.cpu.intensity, after.gpu.intensity), (Intensity::Medium, Intensity::High));
        assert!(after.reason.ends_with("; gpu held: within the band of a threshold"));
        assert_eq!(after.gpu.utilization, Some(Percent::from_int(69)));
    }

    #[test]
    fn what_the_pod_says_of_itself_counts_at_once() {
        let mut memory = WorkloadMemory::default();
        let class = |memory: &mut WorkloadMemory<u8>, text, minutes| {
            let hints = Hints::read(Some(text), None);
            memory.step(&law(), &1, at(minutes), &hints, None).class
        };
        memory.step(&law(), &1, at(0), &standard(), Some(&metrics(80, 0)));
        assert_eq!(class(&mut memory, "performance", 1), WorkloadClass::Performance);
        assert_eq!(class(&mut memory, "standard", 2), WorkloadClass::Standard);
    }

    #[test]
    fn workloads_that_are_gone_are_forgotten() {
        let mut memory = WorkloadMemory::default();
        for key in 0..5 {
            memory.step(&law(), &key, at(0), &standard(), None);
        }
        memory.keep_only(&BTreeSet::from([3, 9]));
        assert_eq!(memory.0.keys().collect::<Vec<_>>(), [&3]);
        assert!(memory.get(&3).is_some() && memory.get(&1).is_none());
    }

    #[test]
    fn tuning_that_makes_no_sense_is_refused() {
        assert_eq!(MemoryLaw::new(Micros::ZERO, BAND), Err(MemoryLawError::Every));
        assert_eq!(MemoryLaw::new(Micros::MAX, BAND), Err(MemoryLawError::Every));
        assert_eq!(MemoryLaw::new(EVERY, Percent::from_int(-1)), Err(MemoryLawError::Band));
        assert_eq!(MemoryLaw::new(EVERY, Percent::from_int(6)), Err(MemoryLawError::Band));
    }
}
