//! Property: of any text of `/proc/PID/cgroup` the path is a part of it and begins with a slash, and the pod that it is of, if it
//! is one, is named by one component of the path.

use agent::pod_of_group;
use node_kit::unified_group;

pub(crate) fn run(bytes: &[u8]) {
    let Some(path) = unified_group(bytes) else { return };
    assert!(path.starts_with('/') && !path.contains('\n'));
    assert!(bytes.windows(path.len()).any(|part| part == path.as_bytes()));
    let Some(uid) = pod_of_group(path) else { return };
    assert!((1..=64).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
    let names = |component: &str| component.replace('_', "-").contains(&format!("pod{uid}"));
    assert!(path.split('/').any(names), "{uid} in {path}");
    // Whatever a pod makes below its own group is of the same pod.
    assert_eq!(pod_of_group(&format!("{path}/podother")), Some(uid));
}
