//! Whether a WorkloadProfile is trusted: one rule for everything that reads profiles.
//!
//! A profile that is not trusted says nothing, as if it did not exist. Fields that persons have written count like those
//! of the classifier; a person who writes a profile alone gives it a confidence too.

use super::{CpuLevel, CpuUse, GpuLevel, GpuUse, WorkloadProfile, WorkloadProfileStatus};
use crate::condition::{self, ConditionStatus, ConditionType};
use crate::word::{Vocabulary, Word};
use joulie_core::placement::sensitivity::{CapSensitivity, SensitivityLevel};
use power_units::{Ratio, Role};

/// The reason of a condition `TelemetryFresh` where no metrics are asked for, so that none can be stale.
pub const NO_PROMETHEUS: &str = "NoPrometheus";

/// The rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustRule {
    least: Ratio,
}

/// What a trusted profile says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrustedProfile {
    /// How hard the workload works processors.
    pub cpu_intensity: Option<CpuLevel>,
    /// How much a cap of the processors would hurt it.
    pub cpu_sensitivity: Option<CpuLevel>,
    /// How hard it works GPUs.
    pub gpu_intensity: Option<GpuLevel>,
    /// How much a cap of the GPUs would hurt it.
    pub gpu_sensitivity: Option<GpuLevel>,
}

/// Why a profile is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distrust {
    /// It has no confidence.
    Unsaid,
    /// Its confidence is not from 0 to 1, or one of its levels is an unknown word.
    Malformed,
    /// Its metrics are not fresh.
    Stale,
    /// Its confidence is below the least one.
    Doubtful,
    /// Another profile says something else of the same workload, or is not trusted.
    Contradicted,
}

impl Distrust {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Unsaid, Self::Malformed, Self::Stale, Self::Doubtful, Self::Contradicted];
}

impl From<TrustedProfile> for CapSensitivity {
    fn from(said: TrustedProfile) -> Self {
        let cpu = said.cpu_sensitivity.map_or(SensitivityLevel::Low, |level| match level {
            CpuLevel::High => SensitivityLevel::High,
            CpuLevel::Medium => SensitivityLevel::Medium,
            CpuLevel::Low => SensitivityLevel::Low,
        });
        let gpu = said.gpu_sensitivity.map_or(SensitivityLevel::Low, |level| match level {
            GpuLevel::High => SensitivityLevel::High,
            GpuLevel::Medium => SensitivityLevel::Medium,
            GpuLevel::Low | GpuLevel::None => SensitivityLevel::Low,
        });
        Self { cpu, gpu }
    }
}

impl TrustRule {
    /// The default of `CLASSIFY_MIN_CONFIDENCE`.
    pub const LEAST_DEFAULT: &'static str = "0.5";

    /// Trusts profiles with at least this confidence, which is `CLASSIFY_MIN_CONFIDENCE`.
    #[must_use]
    pub const fn new(least: Ratio) -> Self {
        Self { least }
    }

    /// What the profile says.
    ///
    /// # Errors
    /// If it is not trusted.
    pub fn read(self, status: &WorkloadProfileStatus) -> Result<TrustedProfile, Distrust> {
        let confidence = status.confidence.ok_or(Distrust::Unsaid)?;
        let confidence = Ratio::parse(&confidence.to_string(), Role::Nearest);
        let confidence = confidence.ok().filter(|one| (Ratio::ZERO..=Ratio::ONE).contains(one));
        let confidence = confidence.ok_or(Distrust::Malformed)?;
        let (no_cpu, no_gpu) = (CpuUse::default(), GpuUse::default());
        let (cpu, gpu) = (status.cpu.as_ref().unwrap_or(&no_cpu), status.gpu.as_ref().unwrap_or(&no_gpu));
        let said = TrustedProfile {
            cpu_intensity: level(cpu.intensity.as_ref())?,
            cpu_sensitivity: level(cpu.cap_sensitivity.as_ref())?,
            gpu_intensity: level(gpu.intensity.as_ref())?,
            gpu_sensitivity: level(gpu.cap_sensitivity.as_ref())?,
        };
        let conditions = status.conditions.as_deref().unwrap_or_default();
        // A profile that a person has written has no such condition, or that of a classifier without metrics.
        let stale = condition::find(conditions, ConditionType::TelemetryFresh)
            == Some(ConditionStatus::False)
            && !conditions.iter().any(|one| one.reason.as_deref() == Some(NO_PROMETHEUS));
        match () {
            () if stale => Err(Distrust::Stale),
            () if confidence < self.least => Err(Distrust::Doubtful),
            () => Ok(said),
        }
    }
}

fn level<V: Vocabulary>(word: Option<&Word<V>>) -> Result<Option<V>, Distrust> {
    word.map(|word| word.known().ok_or(Distrust::Malformed)).transpose()
}

impl WorkloadProfile {
    /// The namespace, the kind and the name of the workload; `None` if the profile names none, or one of another
    /// namespace: whoever may write here says nothing about others.
    #[must_use]
    pub fn workload(&self) -> Option<[&str; 3]> {
        let (of, here) = (self.spec.workload_ref.as_ref()?, self.metadata.namespace.as_deref()?);
        let is_here = of.namespace.as_deref().is_none_or(|there| there == here);
        is_here.then_some([here, &of.kind, &of.name])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(least: &str, status: Value) -> Result<TrustedProfile, Distrust> {
        let rule = TrustRule::new(Ratio::parse(least, Role::Nearest).unwrap());
        rule.read(&serde_json::from_value(status).unwrap())
    }

    fn whole() -> Value {
        json!({"confidence": 0.7, "cpu": {"intensity": "high", "capSensitivity": "medium"},
               "gpu": {"intensity": "low", "capSensitivity": "none"},
               "conditions": [{"type": "TelemetryFresh", "status": "True"}]})
    }

    #[test]
    fn a_profile_is_trusted_from_the_least_confidence_on() {
        let said = TrustedProfile {
            cpu_intensity: Some(CpuLevel::High),
            cpu_sensitivity: Some(CpuLevel::Medium),
            gpu_intensity: Some(GpuLevel::Low),
            gpu_sensitivity: Some(GpuLevel::None),
        };
        assert_eq!(read("0.7", whole()), Ok(said));
        assert_eq!(read("0.71", whole()), Err(Distrust::Doubtful));
        assert_eq!(read("0", json!({"confidence": 0})), Ok(TrustedProfile::default()));
    }

    #[test]
    fn a_profile_that_is_stale_or_malformed_or_says_no_confidence_is_not_trusted() {
        let with = |path: &str, value: Value| {
            let mut status = whole();
            *status.pointer_mut(path).unwrap() = value;
            read("0", status)
        };
        assert_eq!(with("/confidence", json!(null)), Err(Distrust::Unsaid));
        for confidence in [json!(-0.1), json!(1.1), json!(1e300), json!(7)] {
            assert_eq!(with("/confidence", confidence.clone()), Err(Distrust::Malformed), "{confidence}");
        }
        for path in ["/cpu/intensity", "/cpu/capSensitivity", "/gpu/intensity", "/gpu/capSensitivity"] {
            assert_eq!(with(path, json!("vast")), Err(Distrust::Malformed), "{path}");
        }
        assert_eq!(with("/conditions/0/status", json!("False")), Err(Distrust::Stale));
        assert!(with("/conditions/0/status", json!("Unknown")).is_ok());
        let without = json!([{"type": "TelemetryFresh", "status": "False", "reason": "NoPrometheus"}]);
        assert!(with("/conditions", without).is_ok());
        assert!(with("/conditions", json!([])).is_ok());
    }

    #[test]
    fn a_profile_is_about_a_workload_of_its_own_namespace() {
        let of = |workload: Value| {
            let profile: WorkloadProfile = serde_json::from_value(json!({"apiVersion": "joulie.io/v1alpha1",
                "kind": "WorkloadProfile", "metadata": {"name": "p", "namespace": "x"}, "spec": {"workloadRef": workload}}))
            .unwrap();
            profile.workload().map(|of| of.join("/"))
        };
        assert_eq!(of(json!({"kind": "Deployment", "name": "web"})).as_deref(), Some("x/Deployment/web"));
        assert_eq!(of(json!({"kind": "Job", "name": "j", "namespace": "x"})).as_deref(), Some("x/Job/j"));
        assert_eq!(of(json!({"kind": "Job", "name": "j", "namespace": "y"})), None);
        assert_eq!(of(json!(null)), None);
    }
}
