//! Property: of any text of a file of `/proc/PID/fdinfo` a client uses nothing between a reading and itself, never more than its counters
//! say, and the order of the lines does not matter where each key is there once; of any properties of a GPU of KFD its units are possible.

use hal_amd::KfdNode;
use hal_files::drm::DrmClient;
use std::collections::BTreeSet;

pub(crate) fn run(bytes: &[u8]) {
    if let Some(node) = KfdNode::read(bytes) {
        assert!((1..=100_000).contains(&node.units) && node.gpu.as_str().starts_with("gpu-"));
    }
    let Some(client) = DrmClient::read(bytes) else { return };
    assert_eq!(client.since(&client), 0);
    let none = DrmClient { engines: std::collections::BTreeMap::new(), ..client.clone() };
    assert_eq!(client.since(&none), client.engines.values().copied().max().unwrap_or(0));
    assert_eq!(none.since(&client), 0);
    assert!(client.engines.len() <= 32 && client.gpu.as_str().starts_with("gpu-"));
    let Ok(text) = std::str::from_utf8(bytes) else { panic!("it was read, and is no text") };
    let mut lines: Vec<&str> = text.lines().collect();
    let keys: BTreeSet<&str> = lines.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    if keys.len() == lines.len() && lines.len() <= 32 {
        lines.reverse();
        assert_eq!(DrmClient::read(lines.join("\n").as_bytes()), Some(client));
    }
}
