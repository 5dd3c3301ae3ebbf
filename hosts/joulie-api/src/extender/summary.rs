//! The UID, the class and the demand of a pod, read directly from its text without building anything.
//!
//! The result equals that of [`ExtenderPod`] for normal pods. If anything is unusual (a key twice, a value of another
//! type, an invalid quantity), [`ExtenderPod`] reads the pod and names the field that is wrong.

use super::members::{Members, elements, text};
use super::pod::{self, ExtenderPod};
use crate::field::FieldError;
use crate::labels;
use crate::quantity::Quantity;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::class::{Classified, WorkloadClass};
use joulie_core::placement::demand::{
    Container, DemandSum, GpuResource, GpuVendor, PodDemand, ResourceRequest, Runs,
};
use serde_json::value::RawValue;

/// A pod's UID, class and demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSummary {
    /// Its UID; `None` if it has none, like a pod that was never created.
    pub uid: Option<PodUid>,
    /// The class that it requests.
    pub class: Classified,
    /// The resources that it requests while it runs.
    pub demand: PodDemand,
}

impl PodSummary {
    /// Reads a pod.
    ///
    /// # Errors
    /// If it is not a pod, or a quantity is not valid; the error names the field.
    pub fn read(raw: &RawValue) -> Result<Self, FieldError> {
        if let Some(brief) = plain(raw.get()) {
            return Ok(brief);
        }
        let pod = ExtenderPod::read(raw)?;
        let [_, _, uid] = pod.identity();
        Ok(Self { uid: uid.and_then(known), class: pod.class(), demand: pod.demand()? })
    }
}

fn known(uid: &str) -> Option<PodUid> {
    (!uid.is_empty()).then(|| pod::uid(uid))
}

/// The value of a member, if it is present; null is the same as missing.
pub(super) type Slot<'a> = Option<&'a str>;

/// The members with these names. `None` if the text is not an object, or one of them comes twice.
pub(super) fn pick<'a, const N: usize>(json: &'a str, names: [&str; N]) -> Option<[Slot<'a>; N]> {
    let mut found = [None; N];
    let mut seen = [false; N];
    for (key, value) in Members::of(json)? {
        if let Some(at) = names.iter().position(|name| *name == key) {
            if std::mem::replace(seen.get_mut(at)?, true) {
                return None;
            }
            *found.get_mut(at)? = (value != "null").then_some(value);
        }
    }
    Some(found)
}

/// A list, empty if it is missing; `None` if the value is something else.
pub(super) fn list(json: Slot<'_>) -> Option<&str> {
    match json {
        None => Some("[]"),
        Some(json) => json.starts_with('[').then_some(json),
    }
}

fn plain(json: &str) -> Option<PodSummary> {
    let [metadata, spec] = pick(json, ["metadata", "spec"])?;
    let (uid, class) = head(metadata)?;
    let mut sum = DemandSum::default();
    if let Some(spec) = spec {
        let names = ["initContainers", "containers", "resources", "overhead", "nodeName"];
        let [init, main, resources, overhead, node] = pick(spec, names)?;
        node.is_none_or(|node| node.starts_with('"')).then_some(())?;
        for one in elements(list(init)?) {
            let [resources, restart] = pick(one, ["resources", "restartPolicy"])?;
            let restart = restart.map_or(Some("".into()), text)?;
            sum.add(&container(resources, if restart == "Always" { Runs::Sidecar } else { Runs::Init })?);
        }
        for one in elements(list(main)?) {
            let [resources, restart] = pick(one, ["resources", "restartPolicy"])?;
            restart.map_or(Some("".into()), text)?;
            sum.add(&container(resources, Runs::Main)?);
        }
        if let Some(resources) = resources {
            let pod = container(Some(resources), Runs::Main)?;
            sum.pod_level(pod.cpu_milli, pod.memory_bytes);
        }
        if let Some(overhead) = overhead {
            let amounts = Amounts::read(overhead)?;
            sum.overhead(amounts.cpu.unwrap_or(0), amounts.memory.unwrap_or(0));
        }
    }
    Some(PodSummary { uid, class, demand: sum.total(class.class) })
}

fn head(metadata: Slot<'_>) -> Option<(Option<PodUid>, Classified)> {
    let Some(metadata) = metadata else { return Some((None, WorkloadClass::read(None))) };
    let [name, namespace, uid, annotations] = pick(metadata, ["name", "namespace", "uid", "annotations"])?;
    let is_text = |slot: Slot<'_>| slot.is_none_or(|value| value.starts_with('"'));
    (is_text(name) && is_text(namespace) && is_text(uid)).then_some(())?;
    let uid = match uid {
        Some(uid) => known(&text(uid)?),
        None => None,
    };
    Some((uid, class(annotations)?))
}

fn class(annotations: Slot<'_>) -> Option<Classified> {
    let Some(annotations) = annotations else { return Some(WorkloadClass::read(None)) };
    let mut class = None;
    // If a key comes twice in a map, the last one counts.
    for (key, value) in Members::of(annotations)? {
        if key == labels::pod::WORKLOAD_CLASS {
            class = (value != "null").then_some(value);
        }
    }
    Some(match class {
        None => WorkloadClass::read(None),
        Some(value) if value.starts_with('"') => WorkloadClass::read(Some(&text(value)?)),
        Some(_) => Classified { class: WorkloadClass::Standard, recognised: false },
    })
}

fn container(resources: Slot<'_>, runs: Runs) -> Option<Container> {
    let [requests, limits] = match resources {
        Some(resources) => pick(resources, ["requests", "limits"])?,
        None => [None; 2],
    };
    let requests = requests.map_or(Some(Amounts::default()), Amounts::read)?;
    let limits = limits.map_or(Some(Amounts::default()), Amounts::read)?;
    let ask = |request, limit| ResourceRequest { request, limit };
    let mut gpus = [ResourceRequest::default(); 3];
    for ((gpus, request), limit) in gpus.iter_mut().zip(requests.gpus).zip(limits.gpus) {
        *gpus = ask(request, limit);
    }
    Some(Container {
        runs,
        cpu_milli: ask(requests.cpu, limits.cpu),
        memory_bytes: ask(requests.memory, limits.memory),
        gpus,
        gpu_quarters: ResourceRequest::default(),
    })
}

/// The amounts of a list of resources.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    cpu: Option<u64>,
    memory: Option<u64>,
    /// In the order of [`GpuVendor::ALL`].
    gpus: [Option<u64>; 3],
}

impl Amounts {
    fn read(json: &str) -> Option<Self> {
        let mut all = Self::default();
        let mut seen_gpu: [Option<GpuName<'_>>; 4] = [None; 4];
        let (mut seen_cpu, mut seen_memory) = (false, false);
        for (key, value) in Members::of(json)? {
            match &*key {
                "cpu" => {
                    (!std::mem::replace(&mut seen_cpu, true)).then_some(())?;
                    all.cpu = amount(value)?.map(|amount| whole(amount.milli_value()));
                }
                "memory" => {
                    (!std::mem::replace(&mut seen_memory, true)).then_some(())?;
                    all.memory = amount(value)?.map(|amount| whole(amount.value()));
                }
                name => {
                    let vendor = match GpuResource::read(name) {
                        Some(GpuResource::Whole(vendor)) => vendor,
                        // These are rare and have many names: the careful reader adds them up.
                        Some(GpuResource::Part { .. }) => return None,
                        None => continue,
                    };
                    // If the same name comes twice, the careful reader decides; there are four names.
                    let std::borrow::Cow::Borrowed(name) = key else { return None };
                    let free = seen_gpu.iter_mut().find(|seen| seen.is_none_or(|seen| seen.0 == name))?;
                    if free.replace(GpuName(name)).is_some() {
                        return None;
                    }
                    let at = GpuVendor::ALL.iter().position(|one| *one == vendor)?;
                    let count = amount(value)?.map_or(0, |amount| whole(amount.value()));
                    let sum = all.gpus.get_mut(at)?;
                    *sum = Some(count.saturating_add(sum.unwrap_or(0)));
                }
            }
        }
        Some(all)
    }
}

#[derive(Clone, Copy)]
struct GpuName<'a>(&'a str);

/// A quantity; the inner `None` for null, and the outer one for an invalid or negative value.
#[expect(
    clippy::option_option,
    reason = "null is a value here, and what is none is left to the careful reader"
)]
fn amount(value: &str) -> Option<Option<Quantity>> {
    if value == "null" {
        return Some(None);
    }
    let quantity = Quantity::parse(&text(value)?).ok()?;
    (quantity >= Quantity::ZERO).then_some(Some(quantity))
}

fn whole(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn both(json: &str) -> (Result<PodSummary, String>, Result<PodSummary, String>) {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        let careful = ExtenderPod::read(raw).and_then(|pod| {
            let uid = pod.identity()[2].and_then(known);
            Ok(PodSummary { uid, class: pod.class(), demand: pod.demand()? })
        });
        let text = |error: FieldError| error.to_string();
        (PodSummary::read(raw).map_err(text), careful.map_err(text))
    }

    #[test]
    fn a_pod_as_kube_scheduler_sends_it_is_read_without_a_word_of_it_being_kept() {
        // Fix list extender B13.
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"},
                         "annotations": {"note": "{\"x\":\"}\"}", "joulie.io/workload-class": " Performance "},
                         "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
            "spec": {
                "initContainers": [
                    {"name": "i", "resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "64"}}},
                    {"name": "s", "resources": {"limits": {"cpu": "100m"}}, "restartPolicy": "Always"},
                ],
                "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": "4", "memory": "10Gi", "nvidia.com/gpu": "1"},
                                                                 "limits": {"nvidia.com/gpu": "1"}}},
                    {"name": "d", "resources": {}},
                ],
                "overhead": {"cpu": "50m"}, "nodeName": "", "tolerations": [{"key": "x"}],
            },
            "status": {"phase": "Pending"},
        })
        .to_string();
        let brief = plain(&pod).unwrap();
        assert_eq!(both(&pod), (Ok(brief), Ok(brief)));
        assert_eq!((brief.demand.cpu.get(), brief.demand.gpus.unwrap().count), (4150, 4));
        assert_eq!(brief.class, Classified { class: WorkloadClass::Performance, recognised: true });
        let raw: &RawValue = serde_json::from_str(&pod).unwrap();
        let counted = allocation_counter::measure(|| drop(PodSummary::read(raw)));
        assert_eq!(counted.count_total, 0);
    }

    #[test]
    fn what_is_odd_is_told_as_the_careful_reader_tells_it() {
        for pod in [
            "{}",
            "null",
            "3",
            "\"pod\"",
            "[]",
            r#"{"metadata":null,"spec":null}"#,
            r#"{"metadata":{"annotations":{"joulie.io/workload-class":7}}}"#,
            r#"{"metadata":{"annotations":{"joulie.io/workload-class":null}}}"#,
            r#"{"metadata":{"annotations":[]}}"#,
            r#"{"metadata":{"name":3}}"#,
            r#"{"metadata":{"uid":3}}"#,
            r#"{"metadata":{"uid":""}}"#,
            r#"{"metadata":{"uid":"0f1c52f4-0ba1-4d0a-9b43-6c6f8f1d9f43"}}"#,
            r#"{"metadata":{"uid":"\u0061"}}"#,
            r#"{"metadata":{},"metadata":{}}"#,
            r#"{"spec":{"containers":{}}}"#,
            r#"{"spec":{"containers":[3]}}"#,
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"x"}}}]}}"#,
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"-1"}}}]}}"#,
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":2}}}]}}"#,
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":0.5,"memory":1e3}}}]}}"#,
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","cpu":"2"}}}]}}"#,
            r#"{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1","nvidia.com/gpu":"2"}}}]}}"#,
            r#"{"spec":{"containers":[{"resources":{"limits":{"gpu.intel.com/i915":"1","gpu.intel.com/xe":"2"}}}]}}"#,
            r#"{"spec":{"containers":[{"resources":null,"restartPolicy":3}]}}"#,
            r#"{"spec":{"resources":{"requests":{"cpu":"3"}},"overhead":{"memory":"x"}}}"#,
            r#"{"spec":{"nodeName":3}}"#,
        ] {
            let (brief, careful) = both(pod);
            assert_eq!(brief, careful, "{pod}");
        }
    }

    fn quantity() -> impl Strategy<Value = Value> {
        prop_oneof![
            "[0-9]{1,3}(m|Ki|Gi|k)?".prop_map(Value::from),
            Just(Value::Null),
            any::<u8>().prop_map(Value::from),
            "[0-9a-z-]{0,3}".prop_map(Value::from),
        ]
    }

    fn resources() -> impl Strategy<Value = Value> {
        let name = prop_oneof![
            Just("cpu"),
            Just("memory"),
            Just("nvidia.com/gpu"),
            Just("amd.com/gpu"),
            Just("gpu.intel.com/xe"),
            Just("gpu.intel.com/i915"),
            Just("nvidia.com/mig-1g.10gb"),
            Just("x.io/y"),
        ];
        let list = prop::collection::vec((name, quantity()), 0..5)
            .prop_map(|all| all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>())
            .boxed();
        prop_oneof![
            Just(Value::Null),
            (list.clone(), list)
                .prop_map(|(requests, limits)| json!({"requests": requests, "limits": limits})),
        ]
    }

    proptest! {
        #[test]
        fn the_brief_reader_says_what_the_careful_one_says(
            init in prop::collection::vec((resources(), any::<bool>()), 0..3),
            main in prop::collection::vec(resources(), 0..3),
            pod in resources(),
            class in prop_oneof![Just("performance"), Just("standard"), Just("batch"), Just("")],
        ) {
            let init: Vec<Value> = init
                .into_iter()
                .map(|(resources, always)| match always {
                    true => json!({"resources": resources, "restartPolicy": "Always"}),
                    false => json!({"resources": resources}),
                })
                .collect();
            let main: Vec<Value> = main.into_iter().map(|resources| json!({"resources": resources})).collect();
            let pod = json!({"metadata": {"annotations": {"joulie.io/workload-class": class}},
                             "spec": {"initContainers": init, "containers": main, "resources": pod}});
            let (brief, careful) = both(&pod.to_string());
            prop_assert_eq!(brief, careful);
        }
    }
}
