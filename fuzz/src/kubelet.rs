//! Property: of any answer of a kubelet's PodResources the GPUs that are held are counted within bounds, or the bytes are no
//! answer. What is appended twice is held once by each pod.

use agent::held_devices;

/// More devices than this are no answer.
const DEVICES_MOST: u64 = 4_096;

pub(crate) fn run(bytes: &[u8]) {
    let Some((held, elsewhere)) = held_devices(bytes) else { return };
    let held = u64::try_from(held).expect("it fits");
    assert!(held.saturating_add(elsewhere) <= DEVICES_MOST);
    // Two messages after each other are one with the pods of both.
    if let Some((again, more)) = held_devices(&[bytes, bytes].concat()) {
        assert_eq!(u64::try_from(again).expect("it fits"), held);
        assert!((elsewhere..=elsewhere.saturating_mul(2)).contains(&more));
    }
}
