//! What the use of a pod is measured against: its requests and limits, as far as they bound the whole pod.

use joulie_api::quantity::Quantity;
use serde_json::Value;

/// The sums over the containers that run beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The processors requested, in thousandths; `None` if no container requests any.
    pub(crate) cpu_requested_milli: Option<u32>,
    /// The limit of the processors in thousandths; `None` if any container has none.
    pub(crate) cpu_limit_milli: Option<u32>,
    /// The limit of the memory in bytes; `None` if any container has none.
    pub(crate) memory_limit: Option<u64>,
}

impl Bounds {
    /// Reads the `spec` of a pod. What is written for the pod as a whole goes before the sum of the containers.
    pub(super) fn read(spec: &Value) -> Self {
        let init = spec["initContainers"].as_array().into_iter().flatten();
        let sidecars = init.filter(|container| container["restartPolicy"].as_str() == Some("Always"));
        let main = spec["containers"].as_array().into_iter().flatten();
        let all: Vec<&Value> = main.chain(sidecars).map(|container| &container["resources"]).collect();
        let pod = &spec["resources"];
        let requested = all.iter().filter_map(|one| milli(&one["requests"]["cpu"]));
        let requested = requested.reduce(u32::saturating_add).filter(|&sum| sum > 0);
        let limits = all.iter().map(|one| milli(&one["limits"]["cpu"]).filter(|&limit| limit > 0));
        let memories = all.iter().map(|one| bytes(&one["limits"]["memory"]).filter(|&limit| limit > 0));
        Self {
            cpu_requested_milli: milli(&pod["requests"]["cpu"]).or(requested),
            cpu_limit_milli: milli(&pod["limits"]["cpu"]).or_else(|| whole(limits, u32::saturating_add)),
            memory_limit: bytes(&pod["limits"]["memory"]).or_else(|| whole(memories, u64::saturating_add)),
        }
    }
}

/// The sum, if there is anything to sum and none is missing.
fn whole<T>(parts: impl Iterator<Item = Option<T>>, sum: fn(T, T) -> T) -> Option<T> {
    let mut parts = parts;
    let first = parts.next()??;
    parts.try_fold(first, |so_far, part| Some(sum(so_far, part?)))
}

fn quantity(value: &Value) -> Option<Quantity> {
    let number = value.as_number().map(ToString::to_string);
    Quantity::parse(number.as_deref().or_else(|| value.as_str())?).ok()
}

fn milli(value: &Value) -> Option<u32> {
    let milli = quantity(value)?.milli_value();
    u32::try_from(milli).ok().or_else(|| (milli > 0).then_some(u32::MAX))
}

fn bytes(value: &Value) -> Option<u64> {
    u64::try_from(quantity(value)?.value()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(requests: Value, limits: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn a_limit_of_some_containers_is_no_limit_of_the_pod() {
        let limited = container(json!({"cpu": "500m"}), json!({"cpu": 2, "memory": "1Gi"}));
        let free = container(json!({"cpu": "1"}), json!({}));
        let read = |containers: Value| Bounds::read(&json!({"containers": containers}));
        let both = read(json!([limited, limited]));
        assert_eq!((both.cpu_requested_milli, both.cpu_limit_milli), (Some(1000), Some(4000)));
        assert_eq!(both.memory_limit, Some(2 << 30));
        let one = read(json!([limited, free]));
        assert_eq!(
            (one.cpu_requested_milli, one.cpu_limit_milli, one.memory_limit),
            (Some(1500), None, None)
        );
        assert_eq!(read(json!([])), Bounds::default());
    }

    #[test]
    fn a_sidecar_counts_an_init_container_does_not_and_the_pods_own_go_first() {
        let main = container(json!({"cpu": 1}), json!({"cpu": 1}));
        let mut sidecar = container(json!({"cpu": 2}), json!({"cpu": 2}));
        let init = sidecar.clone();
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({"containers": [main], "initContainers": [sidecar, init]});
        assert_eq!(Bounds::read(&spec).cpu_limit_milli, Some(3000));
        let mut whole = spec;
        whole["resources"] = json!({"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}});
        let read = Bounds::read(&whole);
        assert_eq!((read.cpu_requested_milli, read.memory_limit), (Some(250), Some(64 << 20)));
    }

    #[test]
    fn what_is_no_quantity_bounds_nothing() {
        for cpu in [json!("much"), json!(-1), json!(null), json!({}), json!([])] {
            let limits = json!({"cpu": cpu, "memory": cpu});
            let read = Bounds::read(&json!({"containers": [container(limits.clone(), limits)]}));
            assert_eq!((read.cpu_limit_milli, read.memory_limit), (None, None), "{cpu}");
        }
        let huge = container(json!({"cpu": "9E"}), json!({"cpu": "9E", "memory": "9E"}));
        let read = Bounds::read(&json!({"containers": [huge, huge]}));
        assert_eq!(
            (read.cpu_requested_milli, read.memory_limit),
            (Some(u32::MAX), Some(18_000_000_000_000_000_000))
        );
    }
}
