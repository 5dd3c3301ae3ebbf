//! What a WorkloadProfile says: made from what is known, and compared with what is there.
//!
//! A number that moves a little is not worth a write, and neither is the text of the reasons, which has the numbers in
//! it: they are written when a class, the confidence or a condition changes, or when a utilisation has moved by more
//! than [`DEAD_BAND`] points.

use super::workloads::WorkloadKey;
use crate::reasons::OWNED_BY_OTHERS;
use crate::rows::{Leaf, WorkloadProfileSeen};
use jiff::Timestamp;
use joulie_api::condition::{self, Condition, ConditionReason};
use joulie_api::extender::workload::POD;
use joulie_api::labels::object;
use joulie_api::number::{Number, Whole};
use joulie_api::word::{Vocabulary, Word};
use joulie_api::workload_profile::{
    CpuBound, CpuLevel, CpuUse, Criticality, GpuBound, GpuLevel, GpuUse, Migratability, WorkloadProfileClass,
    WorkloadProfileStatus,
};
use joulie_core::placement::class::WorkloadClass;
use planner::classify::{Bound, Confidence, DeviceUsage, Intensity, Sensitivity, WorkloadProfile};
use power_units::{Percent, Role};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A utilisation within this many points of the published one is not published.
const DEAD_BAND: f64 = 5.0;
/// The longest value of a label.
const LABEL_MAX: usize = 63;

/// What a profile is to say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted<'a> {
    pub(super) workload: &'a WorkloadKey,
    pub(super) node: Option<&'a str>,
    pub(super) profile: WorkloadProfile,
    /// Whether its metrics are fresh, and why.
    pub(super) fresh: &'static ConditionReason,
    /// That, in a sentence.
    pub(super) why: String,
    /// What somebody else owns, in a sentence; `None` if there is nothing.
    pub(super) overridden: Option<String>,
}

impl Wanted<'_> {
    /// The labels of the object.
    pub(super) fn labels(&self) -> BTreeMap<&'static str, String> {
        let pod = (self.workload.kind == POD).then_some(self.workload.name.as_str());
        let named = [(object::POD_NAME, pod), (object::NODE_NAME, self.node)];
        let named =
            named.into_iter().filter_map(|(key, value)| Some((key, value.filter(|it| is_label(it))?)));
        let by = (object::MANAGED_BY, object::BY_OPERATOR);
        named.chain([by]).map(|(key, value)| (key, value.to_owned())).collect()
    }

    /// The object, without the fields that others own.
    pub(super) fn object(&self, name: &str, theirs: &BTreeSet<Leaf>) -> Value {
        let WorkloadKey { namespace, kind, name: of } = self.workload;
        let mut spec = json!({"workloadRef": {"kind": kind, "namespace": namespace, "name": of}});
        if let Some(node) = self.node.filter(|_| !theirs.contains(&Leaf::NodeName)) {
            spec["nodeName"] = json!(node);
        }
        json!({
            "apiVersion": "joulie.io/v1alpha1", "kind": "WorkloadProfile",
            "metadata": {"name": name, "namespace": namespace, "labels": self.labels()}, "spec": spec,
        })
    }

    /// The status, without the fields that others own.
    pub(super) fn status(
        &self,
        before: &[Condition],
        generation: i64,
        theirs: &BTreeSet<Leaf>,
        now: Timestamp,
    ) -> Value {
        let said = WorkloadProfileStatus {
            classification_reason: Some(self.profile.reason.clone()),
            last_updated: Some(condition::rfc3339(now)),
            observed_generation: Some(Whole::from(generation)),
            conditions: Some(self.conditions(before, generation, now)),
            ..classes(&self.profile)
        };
        let mut status = json!({ "status": said });
        for leaf in theirs {
            remove(&mut status, leaf.path());
        }
        status["status"].take()
    }

    fn conditions(&self, before: &[Condition], generation: i64, now: Timestamp) -> Vec<Condition> {
        let new = |reason: &ConditionReason, text: &str| {
            Condition::new(reason.about, reason.status, reason.word, text, Some(generation), now)
        };
        let mut all = Vec::new();
        let overridden = self.overridden.as_deref().map(|text| new(&OWNED_BY_OTHERS, text));
        for one in [Some(new(self.fresh, &self.why)), overridden].into_iter().flatten() {
            // The time of the last transition stays while the status does.
            let mut kept: Vec<_> = before.iter().filter(|old| old.type_ == one.type_).cloned().collect();
            condition::set(&mut kept, one);
            all.extend(kept);
        }
        all
    }

    /// Whether the object differs from what it is to be.
    pub(super) fn object_differs(&self, seen: &WorkloadProfileSeen) -> bool {
        let node = !seen.theirs.contains(&Leaf::NodeName) && seen.node.as_deref() != self.node;
        node || seen.labels != self.labels()
    }

    /// Whether the status says something else than it should, by more than the dead-band.
    pub(super) fn status_differs(&self, seen: &WorkloadProfileSeen) -> bool {
        let (wanted, status) = (classes(&self.profile), &seen.status);
        let ours = |leaf: Leaf| !seen.theirs.contains(&leaf);
        let moved = |leaf, old, new| ours(leaf) && has_moved(old, new);
        let words = leaves(&wanted).into_iter().zip(leaves(status));
        let otherwise = words.filter(|(new, old)| ours(new.0) && new.1 != old.1).count() > 0;
        let (cpu, gpu) = (status.cpu.clone().unwrap_or_default(), status.gpu.clone().unwrap_or_default());
        let missing = (ours(Leaf::LastUpdated) && status.last_updated.is_none())
            || (ours(Leaf::Reason) && status.classification_reason.is_none());
        let generation = ours(Leaf::ObservedGeneration)
            && status.observed_generation != Some(Whole::from(seen.generation));
        otherwise
            || missing
            || generation
            || moved(Leaf::CpuUtilization, cpu.avg_utilization_pct, utilization(&self.profile.cpu))
            || moved(Leaf::GpuUtilization, gpu.avg_utilization_pct, utilization(&self.profile.gpu))
            || self.says_otherwise(status.conditions.as_deref().unwrap_or_default())
    }

    fn says_otherwise(&self, conditions: &[Condition]) -> bool {
        let fresh = (self.fresh.about, Some((self.fresh.status, self.fresh.word)));
        let owned = self.overridden.as_ref().map(|_| (OWNED_BY_OTHERS.status, OWNED_BY_OTHERS.word));
        [fresh, (OWNED_BY_OTHERS.about, owned)].into_iter().any(|(about, wanted)| {
            let found = conditions.iter().find(|one| one.type_ == about.as_str());
            let found = found.map(|one| (one.status.as_str(), one.reason.as_deref().unwrap_or_default()));
            found != wanted.map(|(status, word)| (status.as_str(), word))
        })
    }
}

/// Each field that is compared as a text, with it.
fn leaves(status: &WorkloadProfileStatus) -> [(Leaf, Option<String>); 9] {
    fn word<V: Vocabulary>(word: Option<&Word<V>>) -> Option<String> {
        word.map(|word| word.as_str().to_owned())
    }
    let (cpu, gpu) = (status.cpu.as_ref(), status.gpu.as_ref());
    let class = status.criticality.as_ref().and_then(|criticality| criticality.class.as_ref());
    let moves = status.migratability.as_ref().and_then(|migratability| migratability.reschedulable);
    [
        (Leaf::Class, word(class)),
        (Leaf::Reschedulable, moves.map(|moves| moves.to_string())),
        (Leaf::CpuIntensity, word(cpu.and_then(|cpu| cpu.intensity.as_ref()))),
        (Leaf::CpuBound, word(cpu.and_then(|cpu| cpu.bound.as_ref()))),
        (Leaf::CpuSensitivity, word(cpu.and_then(|cpu| cpu.cap_sensitivity.as_ref()))),
        (Leaf::GpuIntensity, word(gpu.and_then(|gpu| gpu.intensity.as_ref()))),
        (Leaf::GpuBound, word(gpu.and_then(|gpu| gpu.bound.as_ref()))),
        (Leaf::GpuSensitivity, word(gpu.and_then(|gpu| gpu.cap_sensitivity.as_ref()))),
        (Leaf::Confidence, status.confidence.map(|confidence| confidence.to_string())),
    ]
}

fn has_moved(old: Option<Number>, new: Option<Number>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => (old.get() - new.get()).abs() > DEAD_BAND,
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

/// The part of the status that the classes give.
fn classes(profile: &WorkloadProfile) -> WorkloadProfileStatus {
    WorkloadProfileStatus {
        criticality: Some(Criticality { class: Some(WorkloadProfileClass::from(profile.class).into()) }),
        migratability: Some(Migratability { reschedulable: Some(profile.reschedulable) }),
        cpu: Some(CpuUse {
            intensity: CpuLevel::read(profile.cpu.intensity.as_str()).map(Word::from),
            bound: CpuBound::read(profile.cpu.bound.as_str()).map(Word::from),
            avg_utilization_pct: utilization(&profile.cpu),
            cap_sensitivity: CpuLevel::read(profile.cpu.sensitivity.as_str()).map(Word::from),
        }),
        gpu: Some(GpuUse {
            intensity: GpuLevel::read(profile.gpu.intensity.as_str()).map(Word::from),
            bound: GpuBound::read(profile.gpu.bound.as_str()).map(Word::from),
            avg_utilization_pct: utilization(&profile.gpu),
            cap_sensitivity: GpuLevel::read(profile.gpu.sensitivity.as_str()).map(Word::from),
        }),
        confidence: Number::new(f64::from(tenths_of(profile.confidence)) / 10.0),
        ..WorkloadProfileStatus::default()
    }
}

/// A utilisation in whole points.
fn utilization(usage: &DeviceUsage) -> Option<Number> {
    usage.utilization.map(|percent| Number::from(percent.round()))
}

fn tenths_of(confidence: Confidence) -> i32 {
    confidence.to_ratio().to_percent().round() / 10
}

/// The confidence that a number says, in tenths.
fn confidence_of(number: Number) -> Option<Confidence> {
    let percent = Percent::parse(&(number.get() * 10.0).to_string(), Role::Nearest).ok()?;
    u8::try_from(percent.round()).ok().filter(|&tenths| tenths <= 10).map(Confidence::tenths)
}

/// The profile that a status says, as the classifier wrote it; `None` if a part is missing or is another word.
pub(super) fn profile_of(status: &WorkloadProfileStatus) -> Option<WorkloadProfile> {
    let (cpu, gpu) = (status.cpu.as_ref()?, status.gpu.as_ref()?);
    Some(WorkloadProfile {
        class: WorkloadClass::try_from(status).ok()?,
        reschedulable: status.migratability.as_ref()?.reschedulable?,
        cpu: DeviceUsage {
            intensity: intensity(cpu.intensity.as_ref()?.as_str())?,
            bound: bound(cpu.bound.as_ref()?.as_str())?,
            sensitivity: sensitivity(cpu.cap_sensitivity.as_ref()?.as_str())?,
            utilization: percent(cpu.avg_utilization_pct),
        },
        gpu: DeviceUsage {
            intensity: intensity(gpu.intensity.as_ref()?.as_str())?,
            bound: bound(gpu.bound.as_ref()?.as_str())?,
            sensitivity: sensitivity(gpu.cap_sensitivity.as_ref()?.as_str())?,
            utilization: percent(gpu.avg_utilization_pct),
        },
        confidence: confidence_of(status.confidence?)?,
        reason: status.classification_reason.clone().unwrap_or_default(),
    })
}

fn percent(number: Option<Number>) -> Option<Percent> {
    let percent = Percent::parse(&number?.to_string(), Role::Nearest).ok()?;
    (Percent::ZERO..=Percent::HUNDRED).contains(&percent).then_some(percent)
}

fn intensity(word: &str) -> Option<Intensity> {
    let all = [Intensity::None, Intensity::Low, Intensity::Medium, Intensity::High];
    all.into_iter().find(|one| one.as_str() == word)
}

fn bound(word: &str) -> Option<Bound> {
    let all = [Bound::None, Bound::Compute, Bound::Memory, Bound::Io, Bound::Mixed];
    all.into_iter().find(|one| one.as_str() == word)
}

fn sensitivity(word: &str) -> Option<Sensitivity> {
    let all = [Sensitivity::None, Sensitivity::Low, Sensitivity::Medium, Sensitivity::High];
    all.into_iter().find(|one| one.as_str() == word)
}

/// Takes a field out, and what is empty without it: an empty part would be owned too.
fn remove(value: &mut Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some(fields) = value.as_object_mut() else { return };
    if rest.is_empty() {
        fields.remove(*first);
        return;
    }
    let Some(below) = fields.get_mut(*first) else { return };
    remove(below, rest);
    if below.as_object().is_some_and(Map::is_empty) {
        fields.remove(*first);
    }
}

/// Whether a text can be the value of a label.
fn is_label(text: &str) -> bool {
    let ends = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
    text.len() <= LABEL_MAX
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(
        intensity: Intensity,
        bound: Bound,
        sensitivity: Sensitivity,
        percent: Option<i32>,
    ) -> DeviceUsage {
        DeviceUsage { intensity, bound, sensitivity, utilization: percent.map(Percent::from_int) }
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        for tenths in 0..=10 {
            for class in [WorkloadClass::Performance, WorkloadClass::Standard] {
                let profile = WorkloadProfile {
                    class,
                    reschedulable: tenths % 2 == 0,
                    cpu: usage(Intensity::High, Bound::Io, Sensitivity::Medium, Some(i32::from(tenths))),
                    gpu: usage(Intensity::None, Bound::None, Sensitivity::None, None),
                    confidence: Confidence::tenths(tenths),
                    reason: "why".to_owned(),
                };
                let mut status = classes(&profile);
                status.classification_reason = Some("why".to_owned());
                let text = serde_json::to_string(&status).unwrap();
                let back: WorkloadProfileStatus = serde_json::from_str(&text).unwrap();
                assert_eq!(profile_of(&back), Some(profile), "{text}");
            }
        }
    }

    #[test]
    fn a_status_of_others_that_lacks_a_part_or_has_another_word_is_no_profile() {
        let whole = json!({"migratability": {"reschedulable": true}, "confidence": 0.5,
            "cpu": {"intensity": "high", "bound": "io", "capSensitivity": "low", "avgUtilizationPct": 1e300},
            "gpu": {"intensity": "none", "bound": "none", "capSensitivity": "none"}});
        let read = |status: &Value| profile_of(&serde_json::from_value(status.clone()).unwrap());
        assert_eq!(read(&whole).unwrap().cpu.utilization, None, "no such utilisation");
        for (path, value) in [
            ("/confidence", json!(7)),
            ("/confidence", json!(-1)),
            ("/confidence", json!(1e300)),
            ("/cpu/bound", json!("magic")),
            ("/cpu", json!(null)),
            ("/gpu/intensity", json!(null)),
            ("/migratability", json!(null)),
        ] {
            let mut other = whole.clone();
            *other.pointer_mut(path).unwrap() = value;
            assert_eq!(read(&other), None, "{path}");
        }
    }

    #[test]
    fn a_part_that_is_empty_without_a_field_goes_with_it() {
        let mut value =
            json!({"status": {"criticality": {"class": "x"}, "cpu": {"bound": "io", "intensity": "low"}}});
        for leaf in [Leaf::Class, Leaf::CpuBound, Leaf::GpuBound, Leaf::NodeName] {
            remove(&mut value, leaf.path());
        }
        assert_eq!(value, json!({"status": {"cpu": {"intensity": "low"}}}));
    }

    #[test]
    fn only_what_can_be_the_value_of_a_label_becomes_one() {
        assert!(is_label("ip-10-0-0-1.eu.internal") && is_label("A_b"));
        for text in ["", "-a", "a.", "a b", "\u{e4}", &"n".repeat(64)] {
            assert!(!is_label(text), "{text}");
        }
    }
}
