//! Property: of any JSON a ResourceSlice and a ResourceClaim are read whole or refused in a few words; what is read has names, a
//! memory above zero, and bounds; the same slice twice says what it says once, and an older generation of its pool says nothing.

use joulie_api::dra::{DeviceClaim, DeviceSlice, PublishedDevices};
use serde_json::{Value, json};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    match DeviceSlice::read(&object) {
        Ok(slice) => {
            let once = PublishedDevices::of([&slice].into_iter());
            assert_eq!(PublishedDevices::of([&slice, &slice].into_iter()), once);
            for (name, device) in once.iter() {
                assert!([&name.driver, &name.pool, &name.device].into_iter().all(|text| !text.is_empty()));
                assert!(device.card.as_ref().is_none_or(|card| !card.is_empty()));
                assert!(device.vram_mb.is_none_or(|mb| mb > 0 && !device.is_part));
            }
            let mut later = object.clone();
            let generation = later["spec"]["pool"]["generation"].as_i64().and_then(|now| now.checked_add(1));
            if let Some(next) = generation {
                later["spec"]["pool"]["generation"] = json!(next);
                later["spec"]["devices"] = json!([]);
                let emptied = DeviceSlice::read(&later).expect("a slice without devices");
                assert_eq!(PublishedDevices::of([&slice, &emptied].into_iter()).iter().count(), 0);
            }
        }
        Err(why) => assert!(!why.is_empty() && why.len() < 200, "{why}"),
    }
    match DeviceClaim::read(&object) {
        Ok(claim) => {
            assert!(!claim.uid.is_empty() && claim.devices.len() <= 256 && claim.pods.len() <= 256);
            assert!(claim.node.as_ref().is_none_or(|node| !node.is_empty()));
            // No device is made up.
            for device in &claim.devices {
                let results =
                    object["status"]["allocation"]["devices"]["results"].as_array().expect("results");
                assert!(results.iter().any(|one| one["device"] == json!(device.device)));
            }
        }
        Err(why) => assert!(!why.is_empty() && why.len() < 200, "{why}"),
    }
}
