//! The resources of a pod, and whether a node has room for it, counted as a kubelet does.

use crate::hardware::Vendor;
use joulie_api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

const NANOS: i128 = 1_000_000_000;

/// The requests of a pod by resource, in billionths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests(pub(crate) BTreeMap<String, i128>);

/// A resource of which a node has too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    resource: String,
    requested: i128,
    used: i128,
    capacity: i128,
}

impl Lack {
    /// The reason in the words of a kubelet.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("OutOf{}", self.resource)
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A kubelet counts processors in thousandths and everything else in whole units.
        let unit = if self.resource == "cpu" { NANOS / 1_000 } else { NANOS };
        write!(
            f,
            "Pod was rejected: Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}",
            self.resource,
            self.requested / unit,
            self.used / unit,
            self.capacity / unit
        )
    }
}

impl PodRequests {
    /// Computes the requests from a pod's specification: the sum of its containers or the largest init container,
    /// plus the overhead. A resource with only a limit is requested in the amount of that limit.
    ///
    /// # Errors
    /// If a quantity is invalid.
    pub fn of(spec: &Value) -> Result<Self, String> {
        let mut sum: BTreeMap<String, i128> = BTreeMap::from([("pods".to_owned(), NANOS)]);
        for container in spec["containers"].as_array().into_iter().flatten() {
            for (resource, much) in container_asks(container)? {
                add(&mut sum, &resource, much);
            }
        }
        for container in spec["initContainers"].as_array().into_iter().flatten() {
            for (resource, much) in container_asks(container)? {
                let most = sum.entry(resource).or_default();
                *most = much.max(*most);
            }
        }
        for (resource, much) in quantities(&spec["overhead"])? {
            add(&mut sum, &resource, much);
        }
        Ok(Self(sum))
    }

    /// The requested logical processors.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.0.get("cpu").map_or(0.0, |nanos| *nanos as f64 / 1e9)
    }

    /// The requested graphics processors of any vendor.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let of = |vendor: Vendor| self.0.get(vendor.resource()).copied().unwrap_or(0);
        let nanos = of(Vendor::Nvidia).saturating_add(of(Vendor::Amd));
        u32::try_from(nanos / NANOS).unwrap_or(u32::MAX)
    }

    /// Checks whether a node with this capacity and usage has room for the pod.
    ///
    /// # Errors
    /// The first resource by name of which there is too little.
    pub fn fits(&self, room: &BTreeMap<String, i128>, used: &BTreeMap<String, i128>) -> Result<(), Lack> {
        for (resource, requested) in &self.0 {
            let capacity = room.get(resource).copied().unwrap_or(0);
            let used = used.get(resource).copied().unwrap_or(0);
            if *requested > 0 && used.saturating_add(*requested) > capacity {
                return Err(Lack { resource: resource.clone(), requested: *requested, used, capacity });
            }
        }
        Ok(())
    }

    /// Adds the requests to the usage.
    pub fn add_to(&self, used: &mut BTreeMap<String, i128>) {
        for (resource, much) in &self.0 {
            add(used, resource, *much);
        }
    }
}

fn add(sum: &mut BTreeMap<String, i128>, resource: &str, much: i128) {
    match sum.get_mut(resource) {
        Some(sum) => *sum = sum.saturating_add(much),
        None => drop(sum.insert(resource.to_owned(), much)),
    }
}

fn container_asks(container: &Value) -> Result<BTreeMap<String, i128>, String> {
    let mut asks = quantities(&container["resources"]["limits"])?;
    asks.extend(quantities(&container["resources"]["requests"])?);
    Ok(asks)
}

/// A resource list in billionths. A negative quantity, which no API server accepts, counts as zero.
pub(crate) fn quantities(list: &Value) -> Result<BTreeMap<String, i128>, String> {
    let read = |(resource, much): (&String, &Value)| {
        // A quantity may be written as a number or as text.
        let much = much.as_str().map_or_else(|| much.to_string(), str::to_owned);
        let quantity = Quantity::parse(&much).map_err(|error| format!("{resource}: {error}"))?;
        Ok((resource.clone(), quantity.nanos().max(0)))
    };
    list.as_object().into_iter().flatten().map(read).collect()
}
