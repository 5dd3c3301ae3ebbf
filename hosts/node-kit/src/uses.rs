//! Which control groups used a GPU, for accounts of energy. No decision of a node depends on it.
//!
//! A driver names processes by their numbers, and some of them have ended when somebody looks. So the thread of the
//! backend looks at once, and remembers what it found for as long as the driver names the process.

use hal_files::Root;
use power_hal::Key;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// A file with the control groups of a process has some hundred bytes.
const BYTES_MOST: u64 = 64 << 10;
/// A path is not longer than this (`PATH_MAX`).
const PATH_MOST: usize = 4_096;
/// What begins the line of the hierarchy of version 2.
const UNIFIED: &str = "0::";

/// The processes of a GPU as its driver tells them: their numbers, and how much they used it.
pub(crate) type ProcessUses = (Key, Vec<(u32, u64)>);

/// How much each control group used a GPU since the period before. The unit is the driver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuGroupUse {
    /// The key of its domain.
    pub key: Key,
    /// The path of each group as the kernel writes it, with its use; `None` is the use of processes whose group is not
    /// known. It is empty if nobody used it.
    pub groups: BTreeMap<Option<Arc<str>>, u64>,
}

/// Knows the control groups of processes.
pub(crate) struct ControlGroups {
    root: Root,
    known: BTreeMap<u32, Arc<str>>,
}

impl ControlGroups {
    /// Of the processes of the machine below `root`.
    pub(crate) const fn below(root: Root) -> Self {
        Self { root, known: BTreeMap::new() }
    }

    /// The use of GPUs by control groups.
    pub(crate) fn of(&mut self, uses: Vec<ProcessUses>) -> Vec<GpuGroupUse> {
        let mut named = BTreeMap::new();
        let all = uses.into_iter().map(|(key, processes)| {
            let mut groups: BTreeMap<Option<Arc<str>>, u64> = BTreeMap::new();
            for (pid, used) in processes {
                let group = self.group(pid).or_else(|| self.known.get(&pid).cloned());
                named.extend(group.clone().map(|group| (pid, group)));
                let sum = groups.entry(group).or_default();
                *sum = sum.saturating_add(used);
            }
            GpuGroupUse { key, groups }
        });
        let all = all.collect();
        self.known = named;
        all
    }

    fn group(&self, pid: u32) -> Option<Arc<str>> {
        let path = self.root.join(&format!("proc/{pid}/cgroup"));
        let mut text = Vec::new();
        File::open(path).ok()?.take(BYTES_MOST).read_to_end(&mut text).ok()?;
        unified_group(&text).map(Arc::from)
    }
}

/// The path in the hierarchy of version 2, from the text of `/proc/PID/cgroup`.
#[must_use]
pub fn unified_group(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix(UNIFIED))?;
    (path.starts_with('/') && path.len() <= PATH_MOST).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_unified_hierarchy_is_read_and_no_other() {
        let path = "/kubepods.slice/kubepods-podu1.slice/cri-containerd-c.scope";
        let text = format!("12:cpu,cpuacct:/other\n0::{path}\n");
        assert_eq!(unified_group(text.as_bytes()), Some(path));
        for text in [&b""[..], b"0::", b"0::x", b"12:cpu:/a\n", b"\xff0::/a", b"1:name=0::/a"] {
            assert_eq!(unified_group(text), None, "{text:?}");
        }
        let long = format!("0::/{}", "a".repeat(PATH_MOST));
        assert_eq!(unified_group(long.as_bytes()), None);
    }

    #[test]
    fn a_process_that_has_ended_is_still_of_its_group() {
        let folder = std::env::temp_dir().join(format!("node-kit-uses-{}", std::process::id()));
        let own = folder.join("proc/7");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup"), "0::/a\n").unwrap();
        let key = Key::gpu("0000:c1:00.0").unwrap();
        let mut groups = ControlGroups::below(Root::at(&folder));
        let mut uses = |processes: &[(u32, u64)]| -> Vec<(Option<String>, u64)> {
            let [one] = <[GpuGroupUse; 1]>::try_from(groups.of(vec![(key, processes.to_vec())])).unwrap();
            assert_eq!(one.key, key);
            one.groups.into_iter().map(|(group, used)| (group.as_deref().map(str::to_owned), used)).collect()
        };
        let a = Some("/a".to_owned());
        let expected: Vec<(Option<String>, u64)> = vec![(None, 5), (a.clone(), 30)];
        assert_eq!(uses(&[(7, 30), (8, 5)]), expected);
        fs::remove_dir_all(&own).unwrap();
        assert_eq!(uses(&[(7, 10)]), vec![(a, 10)], "it ended after it computed");
        assert_eq!(uses(&[]), vec![]);
        assert_eq!(uses(&[(7, 10)]), vec![(None, 10)], "the number may be another process's by now");
        fs::remove_dir_all(&folder).unwrap();
    }
}
