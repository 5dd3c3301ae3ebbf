//! A pod, as far as it matters to power: its class, and what its containers request.
//!
//! A missing or null value requests nothing. An invalid quantity is an error that names the container, because a pod
//! with a wrong weight is placed wrongly.

use crate::field::FieldError;
use crate::labels;
use crate::quantity::Quantity;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::class::{Classified, WorkloadClass};
use joulie_core::placement::demand::{
    Container, DemandSum, GpuResource, GpuVendor, PodDemand, ResourceRequest, Runs,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExtenderPod {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    annotations: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    init_containers: Option<Vec<ContainerSpec>>,
    containers: Option<Vec<ContainerSpec>>,
    resources: Option<Resources>,
    overhead: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerSpec {
    restart_policy: Option<String>,
    resources: Option<Resources>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Option<Map<String, Value>>,
    limits: Option<Map<String, Value>>,
}

impl ExtenderPod {
    /// Reads a pod.
    ///
    /// # Errors
    /// If it is not a pod; the error names the field.
    pub fn read(raw: &RawValue) -> Result<Self, FieldError> {
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            FieldError::new(&error.path().to_string(), Some(error.inner().to_string()), "a pod")
        })
    }

    /// Its name, its namespace and its UID, if it has them.
    #[must_use]
    pub fn identity(&self) -> [Option<&str>; 3] {
        let Some(metadata) = &self.metadata else { return [None; 3] };
        [&metadata.name, &metadata.namespace, &metadata.uid].map(|text| text.as_deref())
    }

    /// The node that it is bound to.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The class that it requests. An annotation that is not a text counts as an unknown class.
    #[must_use]
    pub fn class(&self) -> Classified {
        match self.annotation(labels::pod::WORKLOAD_CLASS) {
            Some(Value::String(text)) => WorkloadClass::read(Some(text)),
            Some(_) => Classified { class: WorkloadClass::Standard, recognised: false },
            None => WorkloadClass::read(None),
        }
    }

    /// Whether it may be restarted elsewhere.
    #[must_use]
    pub fn is_reschedulable(&self) -> bool {
        labels::is_true(self.annotation(labels::pod::RESCHEDULABLE).and_then(Value::as_str))
    }

    /// The resources that it requests while it runs.
    ///
    /// # Errors
    /// If a quantity is not valid.
    pub fn demand(&self) -> Result<PodDemand, FieldError> {
        let mut sum = DemandSum::default();
        if let Some(spec) = &self.spec {
            let init = spec.init_containers.iter().flatten().enumerate();
            for (at, container) in init {
                let sidecar = container.restart_policy.as_deref() == Some("Always");
                let runs = if sidecar { Runs::Sidecar } else { Runs::Init };
                sum.add(&container.read(&format!("spec.initContainers[{at}]"), runs)?);
            }
            for (at, container) in spec.containers.iter().flatten().enumerate() {
                sum.add(&container.read(&format!("spec.containers[{at}]"), Runs::Main)?);
            }
            if let Some(resources) = &spec.resources {
                let pod = resources.read("spec", Runs::Main)?;
                sum.pod_level(pod.cpu_milli, pod.memory_bytes);
            }
            let overhead = |name| amount("spec.overhead", spec.overhead.as_ref(), name);
            let (cpu, memory) = (overhead("cpu")?, overhead("memory")?);
            sum.overhead(cpu.map_or(0, milli), memory.map_or(0, whole));
        }
        Ok(sum.total(self.class().class))
    }

    fn annotation(&self, key: &str) -> Option<&Value> {
        self.metadata.as_ref()?.annotations.as_ref()?.get(key).filter(|value| !value.is_null())
    }
}

impl ContainerSpec {
    fn read(&self, field: &str, runs: Runs) -> Result<Container, FieldError> {
        match &self.resources {
            Some(resources) => resources.read(field, runs),
            None => Resources::default().read(field, runs),
        }
    }
}

impl Resources {
    fn read(&self, field: &str, runs: Runs) -> Result<Container, FieldError> {
        let ask = |name, unit: fn(Quantity) -> u64| -> Result<ResourceRequest, FieldError> {
            Ok(ResourceRequest {
                request: amount(&format!("{field}.resources.requests"), self.requests.as_ref(), name)?
                    .map(unit),
                limit: amount(&format!("{field}.resources.limits"), self.limits.as_ref(), name)?.map(unit),
            })
        };
        let mut container = Container {
            runs,
            cpu_milli: ask("cpu", milli)?,
            memory_bytes: ask("memory", whole)?,
            gpus: [ResourceRequest::default(); 3],
            gpu_quarters: ResourceRequest {
                request: parts_of_gpus(&format!("{field}.resources.requests"), self.requests.as_ref())?,
                limit: parts_of_gpus(&format!("{field}.resources.limits"), self.limits.as_ref())?,
            },
        };
        for (vendor, gpus) in GpuVendor::ALL.into_iter().zip(&mut container.gpus) {
            gpus.request = gpus_of(vendor, &format!("{field}.resources.requests"), self.requests.as_ref())?;
            gpus.limit = gpus_of(vendor, &format!("{field}.resources.limits"), self.limits.as_ref())?;
        }
        Ok(container)
    }
}

/// The whole GPUs of one vendor, under all resource names of that vendor.
fn gpus_of(
    vendor: GpuVendor,
    field: &str,
    resources: Option<&Map<String, Value>>,
) -> Result<Option<u64>, FieldError> {
    let mut sum = None;
    for name in resources.into_iter().flat_map(Map::keys) {
        if GpuResource::read(name) == Some(GpuResource::Whole(vendor)) {
            let count = amount(field, resources, name)?.map_or(0, whole);
            sum = Some(count.saturating_add(sum.unwrap_or(0)));
        }
    }
    Ok(sum)
}

/// The parts of GPUs, under all names, in quarters of a GPU.
fn parts_of_gpus(field: &str, resources: Option<&Map<String, Value>>) -> Result<Option<u64>, FieldError> {
    let mut sum = None;
    for name in resources.into_iter().flat_map(Map::keys) {
        if let Some(GpuResource::Part { quarters, .. }) = GpuResource::read(name) {
            let count = amount(field, resources, name)?.map_or(0, whole);
            sum = Some(count.saturating_mul(quarters.into()).saturating_add(sum.unwrap_or(0)));
        }
    }
    Ok(sum)
}

fn amount(
    field: &str,
    resources: Option<&Map<String, Value>>,
    name: &str,
) -> Result<Option<Quantity>, FieldError> {
    let value = match resources.and_then(|resources| resources.get(name)) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let bad =
        |expected: String| FieldError::new(&format!("{field}[{name}]"), Some(value.to_string()), expected);
    let quantity = Quantity::deserialize(value).map_err(|error| bad(format!("a quantity ({error})")))?;
    if quantity < Quantity::ZERO {
        return Err(bad("0 or more".to_owned()));
    }
    Ok(Some(quantity))
}

/// A pod's UID as a number. A UID that is not a UUID is hashed: it only has to stay the same.
#[must_use]
pub fn uid(text: &str) -> PodUid {
    let digits = text.chars().filter(|&c| c != '-');
    let number = digits
        .clone()
        .try_fold(0_u128, |number, digit| Some((number << 4) | u128::from(digit.to_digit(16)?)));
    match number {
        Some(number) if digits.count() == 32 => PodUid(number),
        // FNV-1a with the prime and the basis of 128 bits.
        Some(_) | None => {
            PodUid(text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
                (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            }))
        }
    }
}

fn milli(quantity: Quantity) -> u64 {
    u64::try_from(quantity.milli_value()).unwrap_or(0)
}

fn whole(quantity: Quantity) -> u64 {
    u64::try_from(quantity.value()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_core::placement::demand::GpuDemand;
    use serde_json::json;

    fn pod(json: &Value) -> ExtenderPod {
        let text = json.to_string();
        ExtenderPod::read(serde_json::from_str(&text).unwrap()).unwrap()
    }

    fn demand(spec: &Value) -> Result<PodDemand, String> {
        pod(&json!({"spec": spec})).demand().map_err(|error| error.to_string())
    }

    fn one(resources: &Value) -> PodDemand {
        demand(&json!({"containers": [{"resources": resources}]})).unwrap()
    }

    #[test]
    fn requests_and_limits_are_quantities() {
        // Fix list extender B22: the full grammar.
        // The powerest table: request 2 and limit 4 are 2; limit 4 is 4; 500m; the number 4.
        for (resources, milli) in [
            (json!({"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}), 2000),
            (json!({"limits": {"cpu": "4"}}), 4000),
            (json!({"requests": {"cpu": "500m"}}), 500),
            (json!({"requests": {"cpu": 4}}), 4000),
            (json!({"requests": {"cpu": 0.25}}), 250),
            (json!({"requests": {"cpu": "1u"}}), 1),
            (json!({"requests": null, "limits": null}), 250),
            (json!({"requests": {"cpu": null}}), 250),
        ] {
            assert_eq!(one(&resources).cpu.get(), milli, "{resources}");
        }
        assert_eq!(one(&json!({"requests": {"memory": "1.5Gi"}})).memory_bytes, 1_610_612_736);
    }

    #[test]
    fn containers_sidecars_overhead_and_the_pod_itself_count() {
        let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let spec = json!({
            "initContainers": [
                {"resources": cpu("8")},
                {"resources": cpu("100m"), "restartPolicy": "Always"},
            ],
            "containers": [{"resources": cpu("1")}, {"resources": cpu("500m")}, {}],
            "overhead": {"cpu": "50m", "memory": "1Ki"},
        });
        let read = demand(&spec).unwrap();
        assert_eq!((read.cpu.get(), read.memory_bytes), (1650, 1024));
        let mut whole = spec;
        whole["resources"] = cpu("4");
        assert_eq!(demand(&whole).unwrap().cpu.get(), 4050);
    }

    #[test]
    fn gpus_of_a_vendor_add_up_under_all_their_names() {
        let gpus = |resources: &Value| one(&json!({"limits": resources})).gpus;
        assert_eq!(
            gpus(&json!({"nvidia.com/gpu": "2"})),
            Some(GpuDemand { count: 2, vendor: GpuVendor::Nvidia })
        );
        assert_eq!(
            gpus(&json!({"gpu.intel.com/i915": 1, "gpu.intel.com/xe": 2})),
            Some(GpuDemand { count: 3, vendor: GpuVendor::Intel })
        );
        assert_eq!(gpus(&json!({"nvidia.com/mig-1g.5gb": 3, "cpu": 1})), None);
    }

    #[test]
    fn parts_of_gpus_add_up_in_quarters() {
        let parts = |resources: &Value| one(&json!({"limits": resources})).gpu_quarters;
        // Three of one slice, one of three, and a GPU that others may share.
        let several = json!({"nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-3g.20gb": "1", "nvidia.com/gpu": 2});
        assert_eq!(parts(&several), 6);
        assert_eq!(parts(&json!({"nvidia.com/gpu.shared": "2"})), 8);
        assert_eq!(parts(&json!({"nvidia.com/mig-2g.10gb": "4000000000"})), u32::MAX);
        assert_eq!(parts(&json!({"nvidia.com/gpu": 2, "cpu": 1})), 0);
        let requested =
            json!({"requests": {"nvidia.com/mig-1g.5gb": 1}, "limits": {"nvidia.com/mig-1g.5gb": 1}});
        assert_eq!(one(&requested).gpu_quarters, 1);
    }

    #[test]
    fn a_quantity_that_is_none_names_its_container() {
        for (resources, message) in [
            (
                json!({"requests": {"cpu": "two"}}),
                "spec.containers[0].resources.requests[cpu]: expected a quantity",
            ),
            (
                json!({"limits": {"memory": "-1"}}),
                "spec.containers[0].resources.limits[memory]: expected 0 or more",
            ),
            (
                json!({"limits": {"nvidia.com/gpu": []}}),
                "spec.containers[0].resources.limits[nvidia.com/gpu]: expected a quantity",
            ),
            (
                json!({"limits": {"nvidia.com/mig-1g.5gb": "-1"}}),
                "spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]: expected 0 or more",
            ),
        ] {
            let error = demand(&json!({"containers": [{"resources": resources}]})).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_uid_is_its_number_and_any_other_text_one_of_its_own() {
        let uuid = "0f1c52f4-0ba1-4d0a-9b43-6c6f8f1d9f43";
        assert_eq!(uid(uuid), PodUid(0x0f1c_52f4_0ba1_4d0a_9b43_6c6f_8f1d_9f43));
        assert_eq!(uid(&uuid.to_uppercase()), uid(uuid));
        let odd = ["", "u", "v", "0f1c52f4", &uuid[1..], &format!("{uuid}0"), "ü", &"f".repeat(33)].map(uid);
        for (at, one) in odd.iter().enumerate() {
            assert!(!odd[..at].contains(one) && *one != uid(uuid), "{at}");
        }
    }

    #[test]
    fn null_is_nothing_everywhere() {
        for json in [
            json!({}),
            json!({"metadata": null, "spec": null}),
            json!({"metadata": {"annotations": null}, "spec": {"containers": null, "initContainers": null}}),
        ] {
            let pod = pod(&json);
            assert_eq!(pod.demand().unwrap().cpu.get(), 250, "{json}");
            assert_eq!(pod.class().class, WorkloadClass::Standard);
            assert_eq!(pod.node(), None);
        }
        let not = serde_json::from_str::<&RawValue>("\"pod\"").unwrap();
        assert!(ExtenderPod::read(not).unwrap_err().to_string().contains("expected a pod"));
    }

    #[test]
    fn annotations_say_the_class() {
        let with = |annotations: &Value| {
            pod(&json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations},
                        "spec": {"nodeName": "a"}}))
        };
        let read = with(&json!({
            "joulie.io/workload-class": "Performance", "joulie.io/reschedulable": "true",
        }));
        assert_eq!(read.class(), Classified { class: WorkloadClass::Performance, recognised: true });
        assert!(read.is_reschedulable());
        assert_eq!((read.identity(), read.node()), ([Some("p"), Some("n"), Some("u")], Some("a")));
        assert_eq!(read.demand().unwrap().cpu.get(), 500);

        let odd = with(&json!({"joulie.io/workload-class": 7}));
        assert_eq!(odd.class(), Classified { class: WorkloadClass::Standard, recognised: false });
    }
}
