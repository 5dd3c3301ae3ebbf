//! The MIG instances that a pod asks for, by the names of its resources.

use crate::quantity::Quantity;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What the names of these resources begin with; the rest is the profile.
const RESOURCE: &str = "nvidia.com/mig-";

/// How many instances of each profile a pod asks for; none for a pod that asks for none. A number that cannot be read is more than
/// any node has.
#[must_use]
pub fn instances_asked(raw: &RawValue) -> BTreeMap<String, u32> {
    // Usual pods are not read.
    if !raw.get().contains("mig-") {
        return BTreeMap::new();
    }
    let Ok(pod) = serde_json::from_str::<Value>(raw.get()) else { return BTreeMap::new() };
    let mut asked: BTreeMap<String, u32> = BTreeMap::new();
    for container in containers(&pod, "containers") {
        for (profile, count) in of_container(container) {
            let sum = asked.entry(profile).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    // What an init container has is free for the others after it.
    for container in containers(&pod, "initContainers") {
        for (profile, count) in of_container(container) {
            let most = asked.entry(profile).or_default();
            *most = count.max(*most);
        }
    }
    asked.retain(|_, count| *count > 0);
    asked
}

fn containers<'p>(pod: &'p Value, list: &str) -> impl Iterator<Item = &'p Value> {
    pod["spec"][list].as_array().into_iter().flatten()
}

/// What a container asks for. Kubernetes lets requests and limits of such resources be equal only.
fn of_container(container: &Value) -> BTreeMap<String, u32> {
    let mut asked: BTreeMap<String, u32> = BTreeMap::new();
    for part in ["limits", "requests"] {
        for (name, amount) in container["resources"][part].as_object().into_iter().flatten() {
            let Some(profile) = name.strip_prefix(RESOURCE).filter(|profile| !profile.is_empty()) else {
                continue;
            };
            let text = amount.as_str().map(|text| Quantity::parse(text).ok().map(Quantity::value));
            let whole = text.unwrap_or_else(|| amount.as_i64());
            let count = whole.and_then(|whole| u32::try_from(whole).ok()).unwrap_or(u32::MAX);
            let most = asked.entry(profile.to_owned()).or_default();
            *most = count.max(*most);
        }
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(spec: &Value) -> Vec<(String, u32)> {
        let pod = json!({"spec": spec}).to_string();
        instances_asked(serde_json::from_str(&pod).unwrap()).into_iter().collect()
    }

    #[test]
    fn instances_are_asked_for_by_the_names_of_resources() {
        let limits = |limits: Value| json!({"resources": {"limits": limits}});
        let spec = json!({
            "containers": [limits(json!({"nvidia.com/mig-1g.10gb": "2", "cpu": "1"})),
                           limits(json!({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": "0"}))],
            "initContainers": [limits(json!({"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-3g.40gb": "1"}))]});
        let of = |profile: &str, count| (profile.to_owned(), count);
        assert_eq!(asked(&spec), [of("1g.10gb", 3), of("3g.40gb", 1)]);
        for bad in ["-1", "x", "4294967296"] {
            let spec = json!({"containers": [limits(json!({"nvidia.com/mig-1g.10gb": bad}))]});
            assert_eq!(asked(&spec), [of("1g.10gb", u32::MAX)], "{bad}");
        }
        for none in [
            json!(null),
            json!({"containers": [limits(json!({"nvidia.com/mig-": "1", "nvidia.com/gpu": "1"}))]}),
        ] {
            assert_eq!(asked(&none), []);
        }
    }
}
