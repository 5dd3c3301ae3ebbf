//! The desired power state of a node, as NodePowerProfile and NodeTwin both carry it.

use crate::field::{FieldError, within};
use crate::macros::{part, vocabulary};
use crate::number::Number;
use crate::word::Word;
use joulie_core::node::cap::{CAP_LEAST, CapIntent};
use power_units::{Percent, Watts};

vocabulary! {
    /// The two supplies that a node can be.
    pub enum ProfileName {
        /// Full power.
        Performance = "performance",
        /// Capped.
        Eco = "eco",
    }
}

vocabulary! {
    /// What the cap of a node's GPUs is for.
    pub enum GpuScope {
        /// Each GPU by itself.
        PerGpu = "perGpu",
    }
}

part! {
    /// What is asked of the processors. Watts win over the percentage where both are there.
    pub struct CpuCaps {
        /// The cap of each package, in watts.
        #[schemars(range(min = 1.0))]
        package_power_cap_watts: Number,
        /// The cap of each package, in percent of the most that it can be set to.
        #[schemars(range(min = 0.0, max = 100.0), extend("exclusiveMinimum" = true))]
        package_power_cap_pct_of_max: Number,
    }
}

part! {
    /// What is asked of the GPUs.
    pub struct GpuCaps {
        /// The cap; without one nothing is asked.
        power_cap: GpuPowerCap,
    }
}

part! {
    /// The cap of a node's GPUs. Watts win over the percentage where both are there.
    pub struct GpuPowerCap {
        /// What the cap is for; each GPU by itself where it does not say.
        scope: Word<GpuScope>,
        /// The cap of each GPU, in watts.
        #[schemars(range(min = 1.0))]
        cap_watts_per_gpu: Number,
        /// The cap of each GPU, in percent of the most that it can be set to.
        #[schemars(range(min = 0.0, max = 100.0), extend("exclusiveMinimum" = true))]
        cap_pct_of_max: Number,
    }
}

part! {
    /// The policy behind a desired state.
    pub struct PolicyRef {
        /// Its name.
        name: String,
    }
}

impl CpuCaps {
    /// Converts an intent to the part of a spec.
    #[must_use]
    pub fn of(intent: CapIntent) -> Self {
        Self {
            package_power_cap_watts: intent.watts.map(Number::from),
            package_power_cap_pct_of_max: intent.percent.map(Number::from),
        }
    }
}

impl GpuCaps {
    /// Converts an intent to the part of a spec, for each GPU; `None` if it asks for nothing.
    #[must_use]
    pub fn of(intent: CapIntent) -> Option<Self> {
        (intent != CapIntent::NONE).then(|| Self {
            power_cap: Some(GpuPowerCap {
                scope: Some(GpuScope::PerGpu.into()),
                cap_watts_per_gpu: intent.watts.map(Number::from),
                cap_pct_of_max: intent.percent.map(Number::from),
            }),
        })
    }
}

/// The content of a desired state, whichever kind carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredSpec {
    /// The node.
    pub node: String,
    /// Its profile.
    pub profile: ProfileName,
    /// The cap of each package.
    pub cpu: CapIntent,
    /// The cap of each GPU.
    pub gpu: CapIntent,
    /// The policy that decided it.
    pub policy: Option<String>,
    /// Whether performance pods still run there while it becomes an eco node.
    pub draining: bool,
}

/// The parts of a spec that carry a desired state.
pub(crate) struct Parts<'a> {
    pub(crate) node: &'a str,
    pub(crate) profile: &'a Word<ProfileName>,
    pub(crate) cpu: Option<&'a CpuCaps>,
    pub(crate) gpu: Option<&'a GpuCaps>,
    pub(crate) policy: Option<&'a PolicyRef>,
    pub(crate) draining: Option<bool>,
}

impl TryFrom<Parts<'_>> for DesiredSpec {
    type Error = FieldError;

    fn try_from(parts: Parts<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            node: node_name("spec.nodeName", parts.node)?,
            profile: parts.profile.expect("spec.profile")?,
            cpu: parts.cpu.map_or(Ok(CapIntent::NONE), cpu_intent)?,
            gpu: parts.gpu.and_then(|gpu| gpu.power_cap.as_ref()).map_or(Ok(CapIntent::NONE), gpu_intent)?,
            policy: parts.policy.and_then(|policy| policy.name.clone()),
            draining: parts.draining.unwrap_or(false),
        })
    }
}

/// The name of a node, which must not be empty.
pub(crate) fn node_name(field: &str, name: &str) -> Result<String, FieldError> {
    if name.is_empty() { Err(FieldError::missing(field, "the name of a node")) } else { Ok(name.to_owned()) }
}

fn cpu_intent(caps: &CpuCaps) -> Result<CapIntent, FieldError> {
    Ok(CapIntent {
        watts: watts("spec.cpu.packagePowerCapWatts", caps.package_power_cap_watts)?,
        percent: percent("spec.cpu.packagePowerCapPctOfMax", caps.package_power_cap_pct_of_max)?,
    })
}

fn gpu_intent(cap: &GpuPowerCap) -> Result<CapIntent, FieldError> {
    if let Some(scope) = &cap.scope {
        // There is only one scope; another one would give the watts another meaning.
        let GpuScope::PerGpu = scope.expect("spec.gpu.powerCap.scope")?;
    }
    Ok(CapIntent {
        watts: watts("spec.gpu.powerCap.capWattsPerGpu", cap.cap_watts_per_gpu)?,
        percent: percent("spec.gpu.powerCap.capPctOfMax", cap.cap_pct_of_max)?,
    })
}

fn watts(field: &str, number: Option<Number>) -> Result<Option<Watts>, FieldError> {
    within(field, number, Watts::parse, |&watts| watts >= CAP_LEAST, "1 W or more")
}

fn percent(field: &str, number: Option<Number>) -> Result<Option<Percent>, FieldError> {
    let fits = |&percent: &Percent| percent > Percent::ZERO && percent <= Percent::HUNDRED;
    within(field, number, Percent::parse, fits, "a percentage above 0, up to 100")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_power_profile::NodePowerProfileSpec;
    use crate::node_twin::NodeTwinSpec;
    use serde_json::{Value, json};

    fn desired(spec: Value) -> Result<DesiredSpec, String> {
        let profile: NodePowerProfileSpec = serde_json::from_value(spec.clone()).unwrap();
        let twin: NodeTwinSpec = serde_json::from_value(spec).unwrap();
        let (profile, twin) = (DesiredSpec::try_from(&profile), DesiredSpec::try_from(&twin));
        assert_eq!(profile, twin, "both kinds carry the same desired state");
        profile.map_err(|error| error.to_string())
    }

    fn with(field: Value) -> Result<DesiredSpec, String> {
        let mut spec = json!({"nodeName": "a", "profile": "eco"});
        spec.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        desired(spec)
    }

    #[test]
    fn whole_and_broken_numbers_are_caps() {
        // Agent table, row 5: 120 and 5000.0. Fix list operator B3.
        for (json, watts) in [(json!(120), 120), (json!(5000.0), 5000)] {
            let desired = with(json!({"cpu": {"packagePowerCapWatts": json}})).unwrap();
            assert_eq!(desired.cpu, CapIntent::of_watts(Watts::from_int(watts)));
            assert_eq!(desired.gpu, CapIntent::NONE);
        }
        let desired = with(json!({"gpu": {"powerCap": {"scope": "perGpu", "capPctOfMax": 60}}})).unwrap();
        assert_eq!(desired.gpu, CapIntent::of_percent(Percent::from_int(60)));
        assert_eq!(desired.cpu, CapIntent::NONE);
    }

    #[test]
    fn a_cap_out_of_range_names_its_field_and_is_no_cap() {
        for (field, message) in [
            (
                json!({"cpu": {"packagePowerCapWatts": 0.5}}),
                "spec.cpu.packagePowerCapWatts: expected 1 W or more, found 0.5",
            ),
            (
                json!({"cpu": {"packagePowerCapWatts": -3}}),
                "spec.cpu.packagePowerCapWatts: expected 1 W or more, found -3",
            ),
            (
                json!({"cpu": {"packagePowerCapPctOfMax": 100.5}}),
                "spec.cpu.packagePowerCapPctOfMax: expected a percentage above 0, up to 100, found 100.5",
            ),
            (
                json!({"gpu": {"powerCap": {"capPctOfMax": 0}}}),
                "spec.gpu.powerCap.capPctOfMax: expected a percentage above 0, up to 100, found 0",
            ),
            (
                json!({"gpu": {"powerCap": {"scope": "node", "capWattsPerGpu": 300}}}),
                "spec.gpu.powerCap.scope: expected perGpu, found node",
            ),
            (json!({"profile": "turbo"}), "spec.profile: expected performance or eco, found turbo"),
            (json!({"nodeName": ""}), "spec.nodeName: expected the name of a node, found nothing"),
        ] {
            assert_eq!(with(field), Err(message.to_owned()));
        }
        let beyond = with(json!({"cpu": {"packagePowerCapWatts": 1e300}})).unwrap_err();
        assert!(beyond.starts_with("spec.cpu.packagePowerCapWatts: expected a number that fits"), "{beyond}");
        assert!(beyond.ends_with("000… (301 characters)") && beyond.len() < 300, "{beyond}");
    }

    #[test]
    fn a_limit_rounds_down() {
        let desired = with(json!({"cpu": {"packagePowerCapWatts": 200.1}})).unwrap();
        // 200.1 · 2^32 = 859422955929.6
        assert_eq!(desired.cpu.watts.unwrap().to_bits(), 859_422_955_929);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for intent in [
            CapIntent::NONE,
            CapIntent::of_watts(Watts::from_int(250)),
            CapIntent::of_percent(Percent::from_int(60)),
        ] {
            let spec = json!({
                "nodeName": "a", "profile": "performance",
                "cpu": CpuCaps::of(intent), "gpu": GpuCaps::of(intent).unwrap_or_default(),
                "policy": {"name": "static-partition-v1"},
            });
            let desired = desired(spec).unwrap();
            assert_eq!((desired.cpu, desired.gpu), (intent, intent));
            assert_eq!(desired.policy.as_deref(), Some("static-partition-v1"));
        }
    }
}
