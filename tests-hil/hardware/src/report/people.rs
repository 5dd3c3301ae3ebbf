//! Other programs on the machine that write power limits, and whether this process sees the whole machine.

use std::collections::BTreeSet;
use std::path::Path;

/// Programs that are known to write limits of packages, frequencies or GPUs.
const WRITERS: [&str; 12] = [
    "thermald",
    "tuned",
    "power-profiles-daemon",
    "nvidia-powerd",
    "tlp",
    "tlp-pd",
    "auto-cpufreq",
    "irqbalance-ppd",
    "intel-speed-select",
    "raplcap",
    "joulie-agent",
    "joulie",
];

/// The kernel truncates the name of a process to this many bytes.
const NAME_MAX: usize = 15;

/// The running ones.
pub(super) fn other_writers() -> String {
    let running = running(Path::new("/proc"));
    if running.is_empty() {
        return "none that is known by name".to_owned();
    }
    running.into_iter().collect::<Vec<_>>().join(", ")
}

fn running(proc: &Path) -> BTreeSet<String> {
    let Ok(folders) = std::fs::read_dir(proc) else { return BTreeSet::new() };
    let numbers = folders.flatten().filter_map(|folder| folder.file_name().to_str()?.parse::<u32>().ok());
    let known = numbers.filter_map(|number| {
        let folder = proc.join(number.to_string());
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        known(name.trim(), &line).map(|name| format!("{name} (process {number})"))
    });
    known.collect()
}

/// The writer that a process is, if any: by its name, or by the first two words of its command line, because an
/// interpreter may come first.
fn known(name: &str, line: &[u8]) -> Option<&'static str> {
    let words: Vec<_> =
        line.split(|&byte| byte == 0).take(2).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let files = words.iter().filter_map(|word| Path::new(word).file_name()?.to_str());
    let files: Vec<_> = files.collect();
    WRITERS.into_iter().find(|writer| {
        let cut = writer.get(..NAME_MAX).unwrap_or(writer);
        name == cut || files.contains(writer)
    })
}

/// Whether this process is in a container, and how that was detected.
pub(super) fn container() -> String {
    let file = |path: &str| Path::new(path).exists().then(|| path.to_owned());
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group =
        ["kubepods", "docker", "containerd", "libpod", "lxc"].into_iter().find(|word| groups.contains(word));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let overlay = mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        (words.next(), words.next()) == (Some("/"), Some("overlay"))
    });
    let seen = file("/.dockerenv")
        .or_else(|| file("/run/.containerenv"))
        .or_else(|| group.map(|group| format!("control group of {group}")))
        .or_else(|| overlay.then(|| "the root is an overlay".to_owned()));
    seen.map_or_else(
        || "no sign of one".to_owned(),
        |by| format!("yes ({by}): powercap may be masked and /sys read-only, processes outside are not seen"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_known_by_a_name_that_the_kernel_cut_and_behind_an_interpreter() {
        assert_eq!(
            known("power-profiles-", b"/usr/libexec/power-profiles-daemon\0"),
            Some("power-profiles-daemon")
        );
        assert_eq!(known("python3", b"/usr/bin/python3\0/usr/sbin/tuned\0-l\0"), Some("tuned"));
        assert_eq!(known("thermald", b""), Some("thermald"));
        assert_eq!(known("vi", b"vi\0notes\0thermald\0"), None);
        assert_eq!(known("kthreadd", b""), None);
    }
}
