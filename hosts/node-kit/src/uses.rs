//! Which control groups used a GPU, for accounts of energy. No decision of a node depends on it.
//!
//! A driver names processes by their numbers, and some of them have ended when somebody looks. So the thread of the
//! backend looks at once, and remembers what it found for as long as the driver names the process. Where another process
//! has the number by then, it is not known whose the use was.
//!
//! NVIDIA's library names them. Of other GPUs the kernel tells what their processes used ([`GpuUseFiles`]).

use crate::Time;
use hal_amd::{KfdProcesses, KfdUse};
use hal_files::Root;
use hal_files::drm::{DrmClients, DrmUses, FILES_MOST};
use hal_files::process::began;
use power_hal::{Clock, Key};
use power_units::{Micros, Stamp};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// The files that tell of a process have some hundred bytes.
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

/// The files in which the kernel tells what processes use of GPUs.
#[derive(Debug)]
pub struct GpuUseFiles {
    drm: DrmClients,
    kfd: KfdProcesses,
    time: Time,
    last: Option<Stamp>,
    /// Whether some process has more files open than are looked at.
    has_more_files: bool,
}

impl GpuUseFiles {
    fn below(root: &Root, time: Time) -> Self {
        let (drm, kfd) = (DrmClients::below(root.clone()), KfdProcesses::below(root.clone()));
        Self { drm, kfd, time, last: None, has_more_files: false }
    }

    /// What the kernel tells of the files of processes; says when it is not known because one has too many.
    fn look(&mut self) -> Option<DrmUses> {
        let uses = self.drm.look();
        let processes = self.drm.with_more_files();
        if processes > 0 && !self.has_more_files {
            log::warn!(
                "who uses AMD's and Intel's GPUs is unknown: {processes} processes have over {FILES_MOST} files"
            );
        }
        self.has_more_files = processes > 0;
        uses
    }

    /// What processes used of these GPUs whose work all goes through the kernel, as far as it is known.
    pub(crate) fn by_drm(&mut self, gpus: &[Key]) -> Vec<ProcessUses> {
        if gpus.is_empty() {
            return Vec::new();
        }
        let Some(mut uses) = self.look() else { return Vec::new() };
        let used = |gpu: &Key| Some((*gpu, uses.remove(gpu).unwrap_or(Some(Vec::new()))?));
        gpus.iter().filter_map(used).collect()
    }

    /// What processes used of these GPUs of AMD, whose work goes through the kernel or past it. The unit is a nanosecond of a
    /// whole GPU.
    pub(crate) fn by_drm_and_kfd(&mut self, gpus: &[Key]) -> Vec<ProcessUses> {
        if gpus.is_empty() {
            return Vec::new();
        }
        let now = self.time.now();
        let over = self.last.replace(now).and_then(|last| now.since(last));
        let (mut files, mut computes) = (self.look(), self.kfd.look());
        let used = |gpu: &Key| {
            let of_files = files.as_mut().and_then(|all| all.remove(gpu).unwrap_or(Some(Vec::new())));
            let of_kfd = match &mut computes {
                Some(all) => all.remove(gpu),
                None => Some(KfdUse { units: 0, occupied: None }),
            };
            Some((*gpu, together(of_files, of_kfd, over?)?))
        };
        gpus.iter().filter_map(used).collect()
    }
}

/// What the processes of a GPU used over a time, by their files and by the units that they occupy at its end; `None` if that is not
/// known. Who may not look into the files of others knows of a GPU that computes who does it, and of another one nothing.
fn together(files: Option<Vec<(u32, u64)>>, kfd: Option<KfdUse>, over: Micros) -> Option<Vec<(u32, u64)>> {
    let computes = match kfd {
        None => Vec::new(),
        Some(KfdUse { units, occupied }) => {
            let nanos = over.get().saturating_mul(1_000);
            let share = |(pid, occupied): (u32, u64)| {
                let used = u128::from(nanos) * u128::from(occupied) / u128::from(units.max(1));
                (pid, u64::try_from(used).unwrap_or(u64::MAX))
            };
            occupied?.into_iter().map(share).collect()
        }
    };
    match files {
        Some(files) => Some(files.into_iter().chain(computes).collect()),
        None => Some(computes).filter(|computes| !computes.is_empty()),
    }
}

/// Knows the control groups of processes.
pub(crate) struct ControlGroups {
    root: Root,
    known: BTreeMap<u32, Member>,
    files: GpuUseFiles,
}

/// A process of a control group.
#[derive(Clone, Debug)]
struct Member {
    /// When it began, in the kernel's ticks: no other process of its number began then.
    began: Option<u64>,
    group: Arc<str>,
}

impl Member {
    fn is_another_than(&self, before: &Self) -> bool {
        self.began.zip(before.began).is_some_and(|(now, before)| now != before)
    }
}

impl ControlGroups {
    /// Of the processes of the machine below `root`.
    pub(crate) fn below(root: Root, time: Time) -> Self {
        let files = GpuUseFiles::below(&root, time);
        Self { root, known: BTreeMap::new(), files }
    }

    /// The kernel's files about its processes.
    pub(crate) const fn files(&mut self) -> &mut GpuUseFiles {
        &mut self.files
    }

    /// The use of GPUs by control groups.
    pub(crate) fn of(&mut self, uses: Vec<ProcessUses>) -> Vec<GpuGroupUse> {
        let mut named = BTreeMap::new();
        let all = uses.into_iter().map(|(key, processes)| {
            let mut groups: BTreeMap<Option<Arc<str>>, u64> = BTreeMap::new();
            for (pid, used) in processes {
                let (now, before) = (self.member(pid), self.known.get(&pid).cloned());
                let is_another = now.as_ref().zip(before.as_ref()).is_some_and(|(a, b)| a.is_another_than(b));
                let member = now.or(before);
                // Of two processes with one number it is not known who used the GPU.
                let group = member.as_ref().filter(|_| !is_another).map(|member| member.group.clone());
                named.extend(member.map(|member| (pid, member)));
                let sum = groups.entry(group).or_default();
                *sum = sum.saturating_add(used);
            }
            GpuGroupUse { key, groups }
        });
        let all = all.collect();
        self.known = named;
        all
    }

    fn member(&self, pid: u32) -> Option<Member> {
        let group = Arc::from(unified_group(&self.text(pid, "cgroup")?)?);
        Some(Member { began: self.text(pid, "stat").and_then(|text| began(&text)), group })
    }

    fn text(&self, pid: u32, name: &str) -> Option<Vec<u8>> {
        let path = self.root.join(&format!("proc/{pid}/{name}"));
        let mut text = Vec::new();
        File::open(path).ok()?.take(BYTES_MOST).read_to_end(&mut text).ok()?;
        Some(text)
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
        let mut groups = ControlGroups::below(Root::at(&folder), Time::manual());
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

    #[test]
    fn what_one_of_two_processes_with_the_same_number_used_is_of_no_known_group() {
        let folder = std::env::temp_dir().join(format!("node-kit-reused-{}", std::process::id()));
        let own = folder.join("proc/7");
        fs::create_dir_all(&own).unwrap();
        let is = |group: &str, began: u64| {
            fs::write(own.join("cgroup"), format!("0::{group}\n")).unwrap();
            let stat = format!("7 (a) b) S 1{} {began} 4096\n", " 0".repeat(17));
            fs::write(own.join("stat"), stat).unwrap();
        };
        let key = Key::gpu("0000:c1:00.0").unwrap();
        let mut groups = ControlGroups::below(Root::at(&folder), Time::manual());
        let mut uses = || {
            let [one] = <[GpuGroupUse; 1]>::try_from(groups.of(vec![(key, vec![(7, 10)])])).unwrap();
            one.groups.into_keys().map(|group| group.as_deref().map(str::to_owned)).collect::<Vec<_>>()
        };
        is("/a", 100);
        for _ in 0..2 {
            assert_eq!(uses(), [Some("/a".to_owned())]);
        }
        is("/b", 200);
        assert_eq!(uses(), [None], "either may have used it");
        assert_eq!(uses(), [Some("/b".to_owned())]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_and_occupied_units_are_one_account_in_nanoseconds() {
        let second = Micros::new(1_000_000);
        let kfd = |occupied: Option<&[(u32, u64)]>| {
            Some(KfdUse { units: 80, occupied: occupied.map(<[(u32, u64)]>::to_vec) })
        };
        let files = || Some(vec![(7, 500)]);
        // 20 of 80 units for a second.
        let both = Some(vec![(7, 500), (8, 250_000_000)]);
        assert_eq!(together(files(), kfd(Some(&[(8, 20)])), second), both);
        assert_eq!(together(files(), None, second), files(), "the machine has no KFD");
        assert_eq!(together(files(), kfd(None), second), None, "somebody may compute");
        assert_eq!(together(None, kfd(Some(&[(8, 80)])), second), Some(vec![(8, 1_000_000_000)]));
        assert_eq!(together(None, kfd(Some(&[])), second), None, "somebody may draw or copy");
        assert_eq!(together(Some(vec![]), kfd(Some(&[])), second), Some(vec![]), "nobody does anything");
        let absurd = Some(KfdUse { units: 0, occupied: Some(vec![(1, u64::MAX)]) });
        assert_eq!(together(None, absurd, Micros::new(u64::MAX)), Some(vec![(1, u64::MAX)]));
    }
}
