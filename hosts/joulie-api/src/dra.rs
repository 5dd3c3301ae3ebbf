//! Devices of dynamic resource allocation (`resource.k8s.io/v1`): what drivers publish in ResourceSlices, and which
//! ResourceClaims hold it. Only what the accounting of GPUs needs is read.
//!
//! A device is joined to a GPU object by its UUID, as NVIDIA's driver publishes it, or by its PCI address. A part of a card
//! (MIG) is joined to the card that it is a part of.

use crate::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// The version of the API that is read, in which both kinds are.
pub const VERSION: &str = "/apis/resource.k8s.io/v1";
/// The ResourceSlices.
pub const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// The ResourceClaims.
pub const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";

/// The most devices that Kubernetes accepts in a slice; more are no slice.
const DEVICES_MAX: usize = 128;
/// More than Kubernetes accepts in a claim (32 devices and 256 pods).
const CLAIM_MAX: usize = 256;
const MIB: i64 = 1 << 20;

/// The name of a device in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceName {
    /// The driver.
    pub driver: String,
    /// The pool, often named as the node.
    pub pool: String,
    /// The device within it.
    pub device: String,
}

impl DeviceName {
    /// Whether the driver is one of GPUs, by its name.
    #[must_use]
    pub fn is_gpu(&self) -> bool {
        self.driver.contains("gpu")
    }
}

/// What a driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedDevice {
    /// What the GPU object of its card calls the card; `None` where the driver does not say it, or contradicts itself.
    pub card: Option<String>,
    /// Whether it is a part of the card.
    pub is_part: bool,
    /// The model of a whole card.
    pub model: Option<String>,
    /// The memory of a whole card in MB of the GPU objects, which are 2²⁰ bytes.
    pub vram_mb: Option<i64>,
    /// Whether pods may have it: no taint of the device keeps them off.
    pub is_usable: bool,
}

impl PublishedDevice {
    /// `None` if it has no name, or a value cannot be read.
    fn read(device: &Value, driver: &str) -> Option<(String, Self)> {
        let name = text(&device["name"])?;
        let attributes = &device["attributes"];
        let said = |key: &str| {
            let of_driver = || attributes.get(format!("{driver}/{key}"));
            text(&attributes.get(key).or_else(of_driver)?["string"])
        };
        let parent = said("parentUUID");
        let is_part = parent.is_some() || said("type").is_some_and(|kind| kind != "gpu");
        let own = || said("uuid").or_else(|| said("resource.kubernetes.io/pciBusID"));
        // A part whose card is not said is of no card that is known.
        let card = if is_part { parent } else { own() };
        let memory = [format!("{driver}/memory"), "memory".to_owned()];
        let memory = memory.iter().find_map(|key| device["capacity"][key]["value"].as_str());
        let bytes = memory.map(Quantity::parse).transpose().ok()?.map(Quantity::value);
        let keeps_off = |taint: &Value| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"));
        let taints = device["taints"].as_array().into_iter().flatten();
        let whole = !is_part;
        let model = said("productName").filter(|_| whole);
        let vram_mb = bytes.map(|bytes| bytes / MIB).filter(|mb| whole && *mb > 0);
        let is_usable = !taints.into_iter().any(keeps_off);
        Some((name, Self { card, is_part, model, vram_mb, is_usable }))
    }
}

/// A ResourceSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSlice {
    driver: String,
    pool: String,
    /// Slices of an older generation of their pool are obsolete.
    generation: i64,
    devices: Vec<(String, PublishedDevice)>,
}

impl DeviceSlice {
    /// Reads a ResourceSlice.
    ///
    /// # Errors
    /// If it lacks a name, or a device cannot be read; the text says which field.
    pub fn read(object: &Value) -> Result<Self, String> {
        let spec = &object["spec"];
        let driver = text(&spec["driver"]).ok_or("spec.driver is no name")?;
        let pool = text(&spec["pool"]["name"]).ok_or("spec.pool.name is no name")?;
        let generation = spec["pool"]["generation"].as_i64().ok_or("spec.pool.generation is no number")?;
        let listed = list(&spec["devices"], "spec.devices", DEVICES_MAX)?;
        let devices = listed.iter().map(|device| PublishedDevice::read(device, &driver));
        let devices: Option<Vec<_>> = devices.collect();
        let devices =
            devices.ok_or("a device of spec.devices has no name, or a memory that is no quantity")?;
        Ok(Self { driver, pool, generation, devices })
    }
}

/// All devices that drivers publish at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedDevices(BTreeMap<DeviceName, PublishedDevice>);

impl PublishedDevices {
    /// The devices of these slices. Of a pool the latest generation counts. A device that comes twice, and not the same,
    /// is of no card that is known.
    #[must_use]
    pub fn of<'s>(slices: impl Iterator<Item = &'s DeviceSlice> + Clone) -> Self {
        let mut latest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for slice in slices.clone() {
            let generation = latest.entry((&slice.driver, &slice.pool)).or_insert(i64::MIN);
            *generation = slice.generation.max(*generation);
        }
        let mut all: BTreeMap<DeviceName, PublishedDevice> = BTreeMap::new();
        for slice in slices {
            if latest.get(&(slice.driver.as_str(), slice.pool.as_str())) != Some(&slice.generation) {
                continue;
            }
            for (device, published) in &slice.devices {
                let [driver, pool, device] = [&slice.driver, &slice.pool, device].map(Clone::clone);
                let known =
                    all.entry(DeviceName { driver, pool, device }).or_insert_with(|| published.clone());
                if known != published {
                    (known.card, known.is_usable) = (None, false);
                }
            }
        }
        Self(all)
    }

    /// What is published of a device.
    #[must_use]
    pub fn find(&self, name: &DeviceName) -> Option<&PublishedDevice> {
        self.0.get(name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&DeviceName, &PublishedDevice)> {
        self.0.iter()
    }
}

/// A ResourceClaim, as far as devices are allocated to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceClaim {
    /// Its own UID.
    pub uid: String,
    /// The devices that nobody else may have.
    pub devices: Vec<DeviceName>,
    /// The one node on which they can be used, if there is one.
    pub node: Option<String>,
    /// The UIDs of the pods that may use it.
    pub pods: Vec<String>,
}

impl DeviceClaim {
    /// Reads a ResourceClaim. What it asks for counts only once it is allocated.
    ///
    /// # Errors
    /// If an allocation cannot be read; the text says which field.
    pub fn read(object: &Value) -> Result<Self, String> {
        let uid = text(&object["metadata"]["uid"]).ok_or("metadata.uid is missing")?;
        let status = &object["status"];
        let allocation = &status["allocation"];
        let mut devices = Vec::new();
        let results = &allocation["devices"]["results"];
        for result in list(results, "status.allocation.devices.results", CLAIM_MAX)? {
            // Who administers devices takes none from others.
            if result["adminAccess"] == true {
                continue;
            }
            let name = |field: &str| {
                text(&result[field])
                    .ok_or_else(|| format!("status.allocation.devices.results: {field} is no name"))
            };
            devices.push(DeviceName {
                driver: name("driver")?,
                pool: name("pool")?,
                device: name("device")?,
            });
        }
        let reserved = list(&status["reservedFor"], "status.reservedFor", CLAIM_MAX)?;
        let pods =
            reserved.iter().filter(|one| one["resource"] == "pods").filter_map(|one| text(&one["uid"]));
        Ok(Self { uid, devices, node: node(&allocation["nodeSelector"]), pods: pods.collect() })
    }
}

/// A list that may be missing. What is no list is not taken for an empty one: devices that somebody has would seem free.
fn list<'v>(value: &'v Value, field: &str, most: usize) -> Result<&'v [Value], String> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(all) if all.len() <= most => Ok(all),
        Value::Array(_) => Err(format!("{field} has more than {most}")),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(format!("{field} is no list"))
        }
    }
}

/// The node that a selector names, if it names one.
fn node(selector: &Value) -> Option<String> {
    let [term] = selector["nodeSelectorTerms"].as_array()?.as_slice() else { return None };
    let fields = term["matchFields"].as_array()?.iter();
    let by_name = fields.filter(|field| field["key"] == "metadata.name" && field["operator"] == "In");
    let mut values = by_name.filter_map(|field| field["values"].as_array());
    match values.next()?.as_slice() {
        [name] => text(name),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(generation: i64, devices: &Value) -> Value {
        json!({"spec": {"driver": "gpu.nvidia.com", "nodeName": "n", "devices": devices,
                        "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1}}})
    }

    fn gpu(name: &str, uuid: &str) -> Value {
        json!({"name": name, "capacity": {"memory": {"value": "81559Mi"}}, "attributes": {
            "type": {"string": "gpu"}, "uuid": {"string": uuid}, "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "architecture": {"string": "Hopper"}, "driverVersion": {"version": "570.0.0"}}})
    }

    fn named(device: &str) -> DeviceName {
        let [driver, pool, device] = ["gpu.nvidia.com", "n", device].map(str::to_owned);
        DeviceName { driver, pool, device }
    }

    fn published(slices: &[Value]) -> PublishedDevices {
        let read: Vec<DeviceSlice> = slices.iter().map(|one| DeviceSlice::read(one).unwrap()).collect();
        PublishedDevices::of(read.iter())
    }

    #[test]
    fn a_slice_says_what_its_cards_are_and_whose_parts_its_parts_are() {
        let part = json!({"name": "gpu-0-mig-1g10gb-0", "capacity": {"memory": {"value": "9856Mi"}}, "attributes": {
            "type": {"string": "mig"}, "uuid": {"string": "MIG-1"}, "parentUUID": {"string": "GPU-a"}}});
        let lost =
            json!({"name": "lost", "attributes": {"type": {"string": "mig"}, "uuid": {"string": "MIG-2"}}});
        let other = json!({"name": "amd", "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:0c:00.0"}}});
        let mut ill = gpu("gpu-1", "GPU-b");
        ill["taints"] = json!([{"key": "x", "effect": "NoSchedule"}]);
        let all = published(&[slice(1, &json!([gpu("gpu-0", "GPU-a"), part, lost, other, ill]))]);
        let of = |device: &str| all.find(&named(device)).unwrap().clone();
        let whole = of("gpu-0");
        assert_eq!((whole.card.as_deref(), whole.is_part, whole.is_usable), (Some("GPU-a"), false, true));
        assert_eq!((whole.model.as_deref(), whole.vram_mb), (Some("NVIDIA H100 80GB HBM3"), Some(81_559)));
        let part = of("gpu-0-mig-1g10gb-0");
        assert_eq!((part.card.as_deref(), part.is_part, part.vram_mb), (Some("GPU-a"), true, None));
        assert_eq!((of("lost").card, of("amd").card), (None, Some("0000:0c:00.0".to_owned())));
        assert!(!of("gpu-1").is_usable);
        assert_eq!(all.find(&named("gpu-9")), None);
    }

    #[test]
    fn the_latest_generation_counts_and_a_contradiction_is_no_card() {
        let all = published(&[
            slice(2, &json!([gpu("gpu-0", "GPU-new")])),
            slice(1, &json!([gpu("gpu-0", "GPU-old"), gpu("gpu-1", "GPU-gone")])),
        ]);
        assert_eq!(all.find(&named("gpu-0")).unwrap().card.as_deref(), Some("GPU-new"));
        assert_eq!(all.find(&named("gpu-1")), None);
        let both = published(&[
            slice(1, &json!([gpu("gpu-0", "GPU-a")])),
            slice(1, &json!([gpu("gpu-0", "GPU-b")])),
        ]);
        let twice = both.find(&named("gpu-0")).unwrap();
        assert_eq!((twice.card.as_deref(), twice.is_usable), (None, false));
    }

    #[test]
    fn what_is_no_slice_is_refused() {
        let many: Vec<Value> = (0..=DEVICES_MAX).map(|at| gpu(&format!("gpu-{at}"), "u")).collect();
        let mut odd = gpu("gpu-0", "u");
        odd["capacity"]["memory"]["value"] = json!("much");
        for (bad, why) in [
            (json!({}), "spec.driver"),
            (json!({"spec": {"driver": "d", "pool": {"name": ""}}}), "spec.pool.name"),
            (json!({"spec": {"driver": "d", "pool": {"name": "n", "generation": "1"}}}), "generation"),
            (slice(1, &json!(many)), "more than 128"),
            (slice(1, &json!({"gpu-0": {}})), "spec.devices is no list"),
            (slice(1, &json!([{}])), "no name"),
            (slice(1, &json!([odd])), "no quantity"),
        ] {
            let error = DeviceSlice::read(&bad).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(DeviceSlice::read(&slice(1, &json!(null))).is_ok_and(|none| none.devices.is_empty()));
    }

    #[test]
    fn a_claim_holds_what_is_allocated_to_it_for_the_pods_that_it_is_reserved_for() {
        let result = json!({"request": "r", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"});
        let mut admin = result.clone();
        admin["adminAccess"] = json!(true);
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
        let mut object = json!({"metadata": {"uid": "c"}, "status": {
            "allocation": {"devices": {"results": [result, admin]}, "nodeSelector": selector},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"},
                            {"apiGroup": "x", "resource": "others", "uid": "v"}]}});
        let claim = DeviceClaim::read(&object).unwrap();
        assert_eq!((claim.devices, claim.pods), (vec![named("gpu-0")], vec!["u".to_owned()]));
        assert_eq!((claim.node.as_deref(), claim.uid.as_str()), (Some("n"), "c"));
        object["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] =
            json!(["n", "m"]);
        assert_eq!(DeviceClaim::read(&object).unwrap().node, None);
        object["status"]["allocation"]["devices"]["results"][0]["device"] = json!(7);
        assert!(DeviceClaim::read(&object).unwrap_err().contains("device is no name"));
        object["status"]["allocation"]["devices"]["results"] = json!("gpu-0");
        let error = DeviceClaim::read(&object).unwrap_err();
        assert!(error.contains("results is no list"), "it does not hold nothing: {error}");
        object["status"] = json!({"reservedFor": {}});
        assert!(DeviceClaim::read(&object).unwrap_err().contains("status.reservedFor is no list"));
        object["status"] = json!(null);
        assert_eq!(DeviceClaim::read(&object).unwrap().devices, []);
        assert!(DeviceClaim::read(&json!({})).unwrap_err().contains("metadata.uid"));
    }
}
