//! How long each pod has used processors, as the kernel counts it: `usage_usec` of `cpu.stat` in the cgroup (version 2) of the pod.
//!
//! The cgroup of a pod counts its containers of the past too, and that of all pods (`kubepods`) counts pods of the past, so what was
//! used between two readings is never lost, only not known to be whose. Both of kubelet's drivers are read:
//!
//! ```text
//! systemd    kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_WITH_UNDERSCORES.slice
//! cgroupfs   kubepods/burstable/podUID
//! ```
//!
//! Version 1 is refused: there the kernel counts in another hierarchy for each controller, and kubelet has left it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Where kubelet has its pods, below the root of the hierarchy; the last two are those of kind.
const PODS: [&str; 4] =
    ["kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods"];
/// Far more pods than a kubelet runs; those beyond count as pods that nobody has seen.
const PODS_MOST: usize = 4_096;
/// A `cpu.stat` has some hundred bytes.
const BYTES_MOST: u64 = 64 << 10;

/// Processor time in microseconds since the boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTotals {
    /// Of the whole machine.
    pub(super) machine: u64,
    /// Of all pods, those of the past included.
    pub(super) all_pods: u64,
    /// Of each pod, by the UID in the name of its cgroup.
    pub(super) pods: BTreeMap<String, u64>,
}

/// Why processor time cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CgroupError {
    /// The machine has no cgroups of version 2.
    VersionOne(PathBuf),
    /// No folder of kubelet's pods is there.
    NoPods(PathBuf),
    /// A file cannot be read, or is not what the kernel writes.
    File(PathBuf, String),
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionOne(root) => write!(
                f,
                "{} is no cgroup hierarchy of version 2, and version 1 is not read; boot with systemd.unified_cgroup_hierarchy=1, or \
                 mount the host's /sys below HOST_ROOT",
                root.display()
            ),
            Self::NoPods(root) => {
                write!(
                    f,
                    "kubelet's pods are not below {}: expected one of {}",
                    root.display(),
                    PODS.join(", ")
                )
            }
            Self::File(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

/// Reads the processor time of all pods below the root of the hierarchy.
pub(super) fn read(root: &Path) -> Result<CpuTotals, CgroupError> {
    if !root.join("cgroup.controllers").is_file() {
        return Err(CgroupError::VersionOne(root.to_owned()));
    }
    // From the whole to its parts: what is used meanwhile is then counted in a part, which only shifts proportions by a moment.
    let machine = usage(root)?;
    let folder = PODS.iter().map(|folder| root.join(folder)).find(|folder| folder.is_dir());
    let folder = folder.ok_or_else(|| CgroupError::NoPods(root.to_owned()))?;
    let mut totals = CpuTotals { machine, all_pods: usage(&folder)?, pods: BTreeMap::new() };
    for name in folders(&folder)? {
        let inside = folder.join(&name);
        if let Some(uid) = pod_uid(&name) {
            totals.add(uid, &inside)?;
        } else if ["burstable", "besteffort"]
            .iter()
            .any(|class| name.trim_end_matches(".slice").ends_with(class))
        {
            for name in folders(&inside)? {
                if let Some(uid) = pod_uid(&name) {
                    totals.add(uid, &inside.join(&name))?;
                }
            }
        }
    }
    Ok(totals)
}

impl CpuTotals {
    fn add(&mut self, uid: String, folder: &Path) -> Result<(), CgroupError> {
        if self.pods.len() >= PODS_MOST && !self.pods.contains_key(&uid) {
            return Ok(());
        }
        // A pod may end between the listing and the reading; what it used is in the count of all pods.
        if let Some(used) = usage_if_there(folder)? {
            self.pods.insert(uid, used);
        }
        Ok(())
    }
}

fn folders(of: &Path) -> Result<Vec<String>, CgroupError> {
    let failed = |error: std::io::Error| CgroupError::File(of.to_owned(), error.to_string());
    let mut names = Vec::new();
    for entry in fs::read_dir(of).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // The kernel's names are ASCII here; another is no cgroup of kubelet's.
        names.extend(entry.file_name().into_string().ok().filter(|_| is_folder));
    }
    Ok(names)
}

/// The UID in the name of a pod's cgroup, of either driver.
fn pod_uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    let fits = (1..=64).contains(&uid.len());
    (fits && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')).then_some(uid)
}

/// The UID of the pod that a control group is of, by its path as the kernel writes it for a process that may be in another
/// cgroup namespace. What is below a pod's group may have any name, so the first that is a pod's counts.
pub(super) fn pod_of(path: &str) -> Option<String> {
    path.split('/').find_map(pod_uid)
}

/// For the fuzz target: the UID of the pod that a control group is of.
#[doc(hidden)]
#[must_use]
pub fn pod_of_group(path: &str) -> Option<String> {
    pod_of(path)
}

fn usage(folder: &Path) -> Result<u64, CgroupError> {
    let gone = || CgroupError::File(folder.join("cpu.stat"), "it is not there".to_owned());
    usage_if_there(folder)?.ok_or_else(gone)
}

fn usage_if_there(folder: &Path) -> Result<Option<u64>, CgroupError> {
    let path = folder.join("cpu.stat");
    let mut text = String::new();
    let read = fs::File::open(&path).and_then(|file| file.take(BYTES_MOST).read_to_string(&mut text));
    match read {
        Ok(_) => {}
        // ENODEV: the cgroup was removed while its file was open.
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(19) => {
            return Ok(None);
        }
        Err(error) => return Err(CgroupError::File(path, error.to_string())),
    }
    let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
    let used = line.and_then(|used| used.trim().parse().ok());
    let wrong = || CgroupError::File(path, "it has no line usage_usec with a whole number".to_owned());
    used.map(Some).ok_or_else(wrong)
}

/// Processor time in microseconds since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuUsed {
    /// Of the whole machine.
    pub(super) machine: u64,
    /// Of each pod that is there.
    pub(super) pods: Vec<(String, u64)>,
    /// Of pods that were not seen: they began and ended between the two readings, or ended after the first.
    pub(super) unseen: u64,
    /// Of whatever is no pod.
    pub(super) system: u64,
}

/// Remembers the last reading.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuMeter(Option<CpuTotals>);

impl CpuMeter {
    /// What was used since the reading before; `None` if there was none.
    pub(super) fn take(&mut self, now: CpuTotals) -> Option<CpuUsed> {
        let used = self.0.as_ref().map(|last| used(last, &now));
        self.0 = Some(now);
        used
    }
}

fn used(last: &CpuTotals, now: &CpuTotals) -> CpuUsed {
    let mut pods = Vec::with_capacity(now.pods.len());
    let mut seen = 0_u64;
    for (uid, total) in &now.pods {
        // A pod that was not there before has used all of it since; so has one whose cgroup was made anew.
        let before = last.pods.get(uid).copied().filter(|before| before <= total).unwrap_or(0);
        seen = seen.saturating_add(total - before);
        pods.push((uid.clone(), total - before));
    }
    let all_pods = now.all_pods.saturating_sub(last.all_pods);
    let machine = now.machine.saturating_sub(last.machine);
    CpuUsed {
        machine,
        pods,
        unseen: all_pods.saturating_sub(seen),
        system: machine.saturating_sub(all_pods.max(seen)),
    }
}

/// How many processors are online, by the kernel's list; `None` if it cannot be read.
pub(super) fn processors(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok()?;
    let mut count = 0_u64;
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (1..=65_536).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::test_machine::Folder;

    const UID: &str = "0b1c4d7e-9a55-4e0a-8d5e-0123456789ab";
    const STATIC: &str = "5f4dcc3b5aa765d61d8327deb882cf99";

    fn cgroup(folder: &Path, name: &str, usec: u64) {
        let path = folder.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("cpu.stat"), format!("usage_usec {usec}\nuser_usec 1\nsystem_usec 2\n")).unwrap();
    }

    fn hierarchy() -> Folder {
        let folder = Folder::new();
        fs::write(folder.0.join("cgroup.controllers"), "cpu memory\n").unwrap();
        cgroup(&folder.0, "", 1_000);
        folder
    }

    #[test]
    fn pods_of_both_drivers_are_found_by_their_uid() {
        let folder = hierarchy();
        let underscored = UID.replace('-', "_");
        cgroup(&folder.0, "kubepods.slice", 600);
        cgroup(&folder.0, &format!("kubepods.slice/kubepods-pod{underscored}.slice"), 300);
        cgroup(&folder.0, "kubepods.slice/kubepods-burstable.slice", 200);
        cgroup(
            &folder.0,
            &format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice"),
            200,
        );
        cgroup(&folder.0, "kubepods.slice/kubepods-besteffort.slice", 0);
        let expected = CpuTotals {
            machine: 1_000,
            all_pods: 600,
            pods: [(UID.to_owned(), 300), (STATIC.to_owned(), 200)].into(),
        };
        assert_eq!(read(&folder.0).unwrap(), expected);

        let folder = hierarchy();
        cgroup(&folder.0, "kubepods", 600);
        cgroup(&folder.0, &format!("kubepods/pod{UID}"), 300);
        cgroup(&folder.0, &format!("kubepods/pod{UID}/container"), 299);
        cgroup(&folder.0, "kubepods/besteffort", 200);
        cgroup(&folder.0, &format!("kubepods/besteffort/pod{STATIC}"), 200);
        assert_eq!(read(&folder.0).unwrap(), expected);
    }

    #[test]
    fn version_one_and_whatever_is_not_the_kernels_is_refused_with_a_word() {
        let folder = Folder::new();
        fs::create_dir_all(folder.0.join("cpu,cpuacct/kubepods")).unwrap();
        let refused = read(&folder.0).unwrap_err();
        assert_eq!(refused, CgroupError::VersionOne(folder.0.clone()));
        assert!(refused.to_string().contains("version 1 is not read"), "{refused}");

        let folder = hierarchy();
        assert_eq!(read(&folder.0), Err(CgroupError::NoPods(folder.0.clone())));
        fs::create_dir(folder.0.join("kubepods")).unwrap();
        for text in
            ["", "usage_usec\n", "usage_usec -1\n", "usage_usec 99999999999999999999\n", "usage_usec 1.5\n"]
        {
            fs::write(folder.0.join("kubepods/cpu.stat"), text).unwrap();
            assert!(matches!(read(&folder.0), Err(CgroupError::File(..))), "{text:?}");
        }
    }

    #[test]
    fn names_that_are_no_pods_are_no_pods() {
        for name in [
            "pod",
            "podx/y",
            "system.slice",
            "kubepods-burstable.slice",
            "kubepods-pod.slice",
            "pod%n",
            "docker",
        ] {
            assert_eq!(pod_uid(name), None, "{name}");
        }
        let long = format!("pod{}", "a".repeat(65));
        assert_eq!(pod_uid(&long), None);
    }

    #[test]
    fn the_pod_of_a_group_is_in_its_path_whatever_is_below_it() {
        let underscored = UID.replace('-', "_");
        for path in [
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/cri-containerd-c.scope"
            ),
            // From another cgroup namespace.
            format!("/../../kubepods-burstable-pod{underscored}.slice/cri-containerd-c.scope"),
            format!("/kubepods/besteffort/pod{UID}/container/podother"),
        ] {
            assert_eq!(pod_of(&path).as_deref(), Some(UID), "{path}");
        }
        for path in
            ["/", "/system.slice/podman.service", "/user.slice/user-1000.slice/session-1.scope", "/../x"]
        {
            assert_eq!(pod_of(path), None, "{path}");
        }
    }

    #[test]
    fn what_pods_used_that_nobody_saw_is_told_apart() {
        let totals = |machine, all_pods, pods: &[(&str, u64)]| CpuTotals {
            machine,
            all_pods,
            pods: pods.iter().map(|(uid, used)| ((*uid).to_owned(), *used)).collect(),
        };
        let mut meter = CpuMeter::default();
        assert_eq!(meter.take(totals(1_000, 500, &[("a", 300), ("b", 100)])), None);
        // a used 50, b ended, c began and used 30; all pods used 120, so 40 are of b's end or of pods in between.
        let used = meter.take(totals(1_400, 620, &[("a", 350), ("c", 30)])).unwrap();
        let pods = vec![("a".to_owned(), 50), ("c".to_owned(), 30)];
        assert_eq!(used, CpuUsed { machine: 400, pods, unseen: 40, system: 280 });
        // The cgroup of a was made anew; a count of pods that is a moment older than theirs is no unseen time below zero.
        let used = meter.take(totals(1_500, 625, &[("a", 20)])).unwrap();
        assert_eq!((used.pods, used.unseen, used.system), (vec![("a".to_owned(), 20)], 0, 80));
    }

    #[test]
    fn processors_are_counted_by_the_kernels_list() {
        let folder = Folder::new();
        let cpu = folder.0.join("sys/devices/system/cpu");
        fs::create_dir_all(&cpu).unwrap();
        assert_eq!(processors(&folder.0), None);
        for (text, count) in [
            ("0-63,128-191\n", Some(128)),
            ("0\n", Some(1)),
            ("3-1\n", None),
            ("\n", None),
            ("0-4000000000\n", None),
        ] {
            fs::write(cpu.join("online"), text).unwrap();
            assert_eq!(processors(&folder.0), count, "{text}");
        }
    }
}
