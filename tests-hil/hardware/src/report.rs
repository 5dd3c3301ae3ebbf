//! Describes the machine for people who read a run's output elsewhere. It only reads.

mod gpus;
mod people;

use crate::args::Args;
use crate::kits;
use crate::verdict::Verdict;
use hal_files::Root;
use node_kit::{Boot, Journal};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Prints the report.
pub(crate) fn tell(args: &Args, verdict: &mut Verdict) {
    let root = kits::root(args);
    verdict.tell("Machine");
    if let Some(folder) = &args.root {
        row(
            verdict,
            "root",
            &format!("{} for sys and dev; kernel and processes are this machine's", folder.display()),
        );
    }
    row(verdict, "kernel", &text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_else(unknown));
    row(verdict, "boot id", &text(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_else(unknown));
    row(verdict, "user", if is_root() { "root" } else { "not root: counters and registers may be refused" });
    row(verdict, "container", &people::container());
    processors(&root, args, verdict);
    powercap(&root, verdict);
    cpufreq(&root, verdict);
    hwmon(&root, verdict);
    devices(&root, verdict);
    rocm(&root, args, verdict);
    gpus::tell(args, verdict);
    row(verdict, "other writers", &people::other_writers());
    originals(args, verdict);
}

/// Whether this process may write to hardware.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

fn row(verdict: &mut Verdict, name: &str, what: &str) {
    // The name of a device is printed unchanged, except that it cannot start another line.
    verdict.tell(&format!("  {name:<14}{}", what.replace(|c: char| c.is_control(), " ")));
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The content of a file as one line.
fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The names in a folder below the root; empty if the folder does not exist.
fn names(root: &Root, folder: &str) -> Vec<String> {
    root.names(&root.join(folder)).unwrap_or_default()
}

fn processors(root: &Root, args: &Args, verdict: &mut Verdict) {
    // Below another root the only source of the model is the processor of the machine that this runs on.
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map_or_else(unknown, |(_, value)| value.trim().to_owned())
    };
    if args.root.is_none() {
        row(verdict, "cpu", &format!("{} ({})", field("model name"), field("vendor_id")));
    }
    let folder = "sys/devices/system/cpu";
    let number = |name: &str| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let cpus: Vec<_> = names(root, folder).into_iter().filter(|name| number(name)).collect();
    let sockets: BTreeSet<_> = cpus
        .iter()
        .filter_map(|cpu| text(&root.join(&format!("{folder}/{cpu}/topology/physical_package_id"))))
        .collect();
    row(verdict, "sockets", &format!("{} with {} logical processors", sockets.len(), cpus.len()));
}

fn powercap(root: &Root, verdict: &mut Verdict) {
    let class = "sys/class/powercap";
    let zones: Vec<_> = names(root, class).into_iter().filter(|name| name.contains(':')).collect();
    let none = if root.join(class).is_dir() { "the folder is empty" } else { "none" };
    row(
        verdict,
        "powercap",
        &if zones.is_empty() { none.to_owned() } else { format!("{} zones", zones.len()) },
    );
    for zone in zones {
        let file = |name: &str| text(&root.join(&format!("{class}/{zone}/{name}")));
        let mut limits = Vec::new();
        for at in 0..4 {
            let Some(name) = file(&format!("constraint_{at}_name")) else { break };
            let limit =
                file(&format!("constraint_{at}_power_limit_uw")).map_or_else(unknown, |uw| watts(&uw));
            limits.push(format!("{name} {limit}"));
        }
        let limits = if limits.is_empty() { "no limits".to_owned() } else { limits.join(", ") };
        let name = file("name").unwrap_or_else(unknown);
        let enabled = file("enabled").unwrap_or_else(unknown);
        verdict.tell(&format!("    {zone:<18}{name}: {limits}; enabled {enabled}"));
    }
}

fn watts(microwatts: &str) -> String {
    let number = microwatts.parse::<u64>().ok();
    number.map_or_else(unknown, |uw| format!("{}.{:03} W", uw / 1_000_000, uw / 1_000 % 1_000))
}

fn cpufreq(root: &Root, verdict: &mut Verdict) {
    let folder = "sys/devices/system/cpu/cpufreq";
    let policies: Vec<_> =
        names(root, folder).into_iter().filter(|name| name.starts_with("policy")).collect();
    let mut sorts: BTreeMap<String, usize> = BTreeMap::new();
    for policy in &policies {
        let file =
            |name: &str| text(&root.join(&format!("{folder}/{policy}/{name}"))).unwrap_or_else(unknown);
        let sort = format!(
            "{}, governor {}, {} to {} kHz, limit {} kHz",
            file("scaling_driver"),
            file("scaling_governor"),
            file("cpuinfo_min_freq"),
            file("cpuinfo_max_freq"),
            file("scaling_max_freq")
        );
        *sorts.entry(sort).or_default() += 1;
    }
    row(
        verdict,
        "cpufreq",
        &if sorts.is_empty() { "none".to_owned() } else { format!("{} policies", policies.len()) },
    );
    for (sort, count) in sorts {
        verdict.tell(&format!("    {count} × {sort}"));
    }
}

fn hwmon(root: &Root, verdict: &mut Verdict) {
    let class = "sys/class/hwmon";
    let devices = names(root, class);
    let said: Vec<_> = devices
        .iter()
        .map(|device| {
            let file = |name: &str| text(&root.join(&format!("{class}/{device}/{name}")));
            let caps = ["power1_cap", "power1_max", "power2_max"].into_iter().filter_map(|name| {
                let window =
                    file(&format!("{name}_interval")).map_or_else(String::new, |ms| format!(" over {ms} ms"));
                Some(format!(" ({name} {}{window})", watts(&file(name)?)))
            });
            let cap: String = caps.collect();
            format!("{device} {}{cap}", file("name").unwrap_or_else(unknown))
        })
        .collect();
    row(verdict, "hwmon", &if said.is_empty() { "none".to_owned() } else { said.join(", ") });
}

fn devices(root: &Root, verdict: &mut Verdict) {
    let has = |path: &str| if root.join(path).exists() { "yes" } else { "no" };
    row(
        verdict,
        "devices",
        &format!(
            "/dev/cpu/0/msr {}, /dev/cpu/0/msr_safe {}, /dev/hsmp {}, /dev/kfd (ROCm) {}",
            has("dev/cpu/0/msr"),
            has("dev/cpu/0/msr_safe"),
            has("dev/hsmp"),
            has("dev/kfd")
        ),
    );
}

fn rocm(root: &Root, args: &Args, verdict: &mut Verdict) {
    let driver = text(&root.join("sys/module/amdgpu/version"));
    let loaded = if root.join("sys/module/amdgpu").is_dir() { "loaded" } else { "not loaded" };
    // An installation cannot be detected below another root.
    let installed = args.root.is_none().then(|| text(Path::new("/opt/rocm/.info/version"))).flatten();
    let installed = installed.unwrap_or_else(|| "not seen".to_owned());
    row(verdict, "rocm", &format!("{installed}; amdgpu {}", driver.as_deref().unwrap_or(loaded)));
}

fn originals(args: &Args, verdict: &mut Verdict) {
    let journal = Boot::of_the_kernel().and_then(|boot| Journal::open(&args.state, boot));
    let said = match journal {
        Ok(journal) if journal.is_empty() => "the node is not capped by anything that keeps one".to_owned(),
        Ok(journal) => format!("the node is capped: {} originals", journal.len()),
        Err(error) => error.to_string(),
    };
    row(verdict, "journal", &format!("{}: {said}", args.state.display()));
}
