//! What dynamic resource allocation says of cards: ResourceSlices tell what they are, and ResourceClaims who holds them.
//!
//! kube-scheduler allocates claims, and this only reads them (`GPU_DRA=read`). A card that a claim holds takes no other pod.
//! A claim on a GPU of which nobody says which card it is leaves no free card of its node.

use host_kit::reflect::{CachedRow, ObjectKey, Row, Rows, Served};
use joulie_api::dra::{DeviceClaim, DeviceSlice, PublishedDevice, PublishedDevices};
use joulie_api::extender::pod;
use joulie_core::placement::assumed::PodUid;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A ResourceSlice.
#[derive(Debug)]
pub(crate) struct SliceRow(DeviceSlice);

impl Row for SliceRow {
    const KIND: &'static str = "resourceslices";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        DeviceSlice::read(object).map(Self)
    }
}

/// A ResourceClaim.
#[derive(Debug)]
pub(crate) struct ClaimRow(DeviceClaim);

impl Row for ClaimRow {
    const KIND: &'static str = "resourceclaims";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        DeviceClaim::read(object).map(Self)
    }
}

/// What slices and claims say of cards, which are named as their GPU objects name them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimedCards {
    /// What the driver says of each whole card.
    published: BTreeMap<String, PublishedDevice>,
    /// Who holds each card, or a part of it, by claims.
    held: BTreeMap<String, Vec<PodUid>>,
    /// The nodes on which a claim holds a GPU that cannot be told from the others.
    blind: BTreeSet<String>,
}

impl ClaimedCards {
    /// What these objects say.
    pub(crate) fn of<'o>(
        slices: impl Iterator<Item = &'o DeviceSlice> + Clone,
        claims: impl Iterator<Item = &'o DeviceClaim>,
    ) -> Self {
        let devices = PublishedDevices::of(slices);
        let mut all = Self::default();
        for (_, device) in devices.iter().filter(|(_, device)| !device.is_part) {
            let Some(card) = &device.card else { continue };
            match all.published.get_mut(card) {
                None => drop(all.published.insert(card.clone(), device.clone())),
                // Two devices say that they are one card.
                Some(known) => known.is_usable = false,
            }
        }
        for claim in claims {
            // A claim that nobody uses yet, or any more, holds its devices as well.
            let holders = claim.pods.iter().map(String::as_str).map(pod::uid);
            let mut holders: Vec<PodUid> = holders.collect();
            if holders.is_empty() {
                holders.push(pod::uid(&claim.uid));
            }
            for name in &claim.devices {
                let device = devices.find(name);
                match device.and_then(|device| device.card.as_ref()) {
                    Some(card) => all.held.entry(card.clone()).or_default().extend(&holders),
                    None if name.is_gpu() => {
                        all.blind.insert(claim.node.as_ref().unwrap_or(&name.pool).clone());
                    }
                    None => {}
                }
            }
        }
        all
    }

    /// What these rows say.
    pub(crate) fn read(slices: &Rows<SliceRow>, claims: &Rows<ClaimRow>) -> Self {
        slices.with(|slices| {
            claims.with(|claims| Self::of(slices.values().map(|held| &held.row.0), allocated(claims)))
        })
    }

    /// What its driver publishes of a card.
    pub(crate) fn published(&self, card: Option<&str>) -> Option<&PublishedDevice> {
        self.published.get(card?)
    }

    /// Who holds a card by claims.
    pub(crate) fn holders(&self, card: Option<&str>) -> &[PodUid] {
        card.and_then(|card| self.held.get(card)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether somebody holds a card of the node, and nobody says which.
    pub(crate) fn is_blind(&self, node: &str) -> bool {
        self.blind.contains(node)
    }
}

/// The watches of both kinds.
pub(crate) struct DraWatch {
    slices: Rows<SliceRow>,
    claims: Rows<ClaimRow>,
    served: Served,
}

impl DraWatch {
    pub(crate) fn new(slices: Rows<SliceRow>, claims: Rows<ClaimRow>, served: Served) -> Self {
        Self { slices, claims, served }
    }

    /// Whether both were read, or the API server does not have them.
    pub(crate) fn is_synced(&self) -> bool {
        self.served.is_absent() || (self.slices.is_synced() && self.claims.is_synced())
    }

    /// Waits until an object has changed.
    pub(crate) async fn changed(&mut self) -> bool {
        let Self { slices, claims, .. } = self;
        tokio::select! {
            changed = slices.changed() => changed,
            changed = claims.changed() => changed,
        }
    }

    /// What the objects say, if any has changed.
    pub(crate) fn news(&mut self) -> Option<ClaimedCards> {
        let changed = [self.slices.news(|_| ()).is_some(), self.claims.news(|_| ()).is_some()];
        changed.contains(&true).then(|| ClaimedCards::read(&self.slices, &self.claims))
    }

    /// How many slices and claims cannot be read.
    pub(crate) fn malformed(&self) -> [usize; 2] {
        [self.slices.malformed().len(), self.claims.malformed().len()]
    }
}

fn allocated(claims: &BTreeMap<ObjectKey, CachedRow<ClaimRow>>) -> impl Iterator<Item = &DeviceClaim> {
    claims.values().map(|held| &held.row.0).filter(|claim| !claim.devices.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::by_hand;
    use serde_json::json;

    fn slice(node: &str, devices: &Value) -> Value {
        json!({"metadata": {"name": node, "uid": node}, "spec": {"driver": "gpu.nvidia.com", "nodeName": node,
               "devices": devices, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
    }

    fn gpu(name: &str, uuid: &str) -> Value {
        json!({"name": name, "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}})
    }

    fn claim(uid: &str, device: &str, pods: &[&str]) -> Value {
        let pods: Vec<Value> = pods.iter().map(|uid| json!({"resource": "pods", "uid": uid})).collect();
        let result = json!({"driver": "gpu.nvidia.com", "pool": "n", "device": device});
        json!({"metadata": {"name": uid, "namespace": "d", "uid": uid},
               "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": pods}})
    }

    #[test]
    fn a_claim_holds_the_card_of_its_device_for_its_pods_or_for_itself() {
        let ((mut by_slice, slices), (mut by_claim, claims)) = (by_hand(), by_hand());
        let mut watch = DraWatch::new(slices, claims, Served::known(true));
        assert!(!watch.is_synced());
        by_slice.list([&slice("n", &json!([gpu("gpu-0", "GPU-a"), gpu("gpu-1", "GPU-b")]))]);
        by_claim.list([&claim("c", "gpu-0", &["u", "v"]), &claim("d", "gpu-1", &[])]);
        assert!(watch.is_synced());
        let all = watch.news().unwrap();
        assert_eq!(all.holders(Some("GPU-a")), [pod::uid("u"), pod::uid("v")]);
        assert_eq!(all.holders(Some("GPU-b")), [pod::uid("d")]);
        assert_eq!((all.holders(Some("GPU-c")), all.holders(None)), (&[][..], &[][..]));
        assert!(!all.is_blind("n"));
        assert_eq!(watch.news(), None);
        // A device that nobody publishes any more.
        by_slice.list([&slice("n", &json!([gpu("gpu-0", "GPU-a")]))]);
        let all = watch.news().unwrap();
        assert!(all.is_blind("n") && all.holders(Some("GPU-b")).is_empty());
        // The claims are given back.
        by_claim.list(std::iter::empty());
        assert_eq!(watch.news().unwrap().holders(Some("GPU-a")), []);
    }

    #[test]
    fn two_devices_that_say_they_are_one_card_are_not_usable() {
        let slice = slice("n", &json!([gpu("gpu-0", "GPU-a"), gpu("gpu-1", "GPU-a"), gpu("gpu-2", "GPU-b")]));
        let slice = DeviceSlice::read(&slice).unwrap();
        let all = ClaimedCards::of([&slice].into_iter(), std::iter::empty());
        let usable = |card| all.published(Some(card)).map(|device| device.is_usable);
        assert_eq!((usable("GPU-a"), usable("GPU-b"), usable("GPU-c")), (Some(false), Some(true), None));
    }

    #[test]
    fn where_the_server_has_no_such_kinds_nothing_is_waited_for() {
        let ((_a, slices), (_b, claims)) = (by_hand(), by_hand());
        assert!(DraWatch::new(slices, claims, Served::known(false)).is_synced());
    }
}
