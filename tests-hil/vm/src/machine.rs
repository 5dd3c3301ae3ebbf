//! One run of a scenario: QEMU with two serial lines, for the kernel's console and for the guest's verdicts.

use crate::api::Outside;
use crate::packages::{Kernel, Tools, succeed};
use crate::scenario::Scenario;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The accelerator of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    Kvm,
    /// Emulation: slower, but always available.
    Tcg,
}

/// How often a boot that [`died_patching`] is repeated.
const REPEATS: u32 = 2;

/// The location of registers that survive kexec, and the memory that the kernel reserves for them.
const KEEP: &str = "memmap=64K$0x10000000 vm.keep=0x10000000";

/// A machine that can run scenarios.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) tools: &'a Tools,
    pub(crate) initramfs: &'a Path,
    pub(crate) accelerator: Accelerator,
    /// The folder for this machine's files.
    pub(crate) folder: &'a Path,
}

impl Machine<'_> {
    /// Runs all boots of a scenario, and returns the guest's output.
    pub(crate) fn run(&self, scenario: &Scenario) -> Result<String> {
        let disk = self.file(scenario, "disk");
        if scenario.disk {
            self.make_disk(&disk)?;
        }
        let api = if scenario.api { Some(Outside::start()?) } else { None };
        let mut said = String::new();
        for boot in 1..=scenario.boots {
            let words = self.file(scenario, &format!("{boot}.said"));
            let console = self.file(scenario, &format!("{boot}.console"));
            let mut complaint = String::new();
            for again in 0..=REPEATS {
                complaint = self.boot(scenario, boot, (&words, &disk, api.as_ref()))?;
                let text = |path: &Path| {
                    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
                };
                if again == REPEATS || !died_patching(&text(&console), &text(&words)) {
                    break;
                }
                println!(
                    "vm {} {}: boot {boot} died with int3 before the guest's first line; it is repeated",
                    self.kernel.series, scenario.name
                );
            }
            said.push_str(&String::from_utf8_lossy(&std::fs::read(&words).unwrap_or_default()));
            let serious = complaint.lines().filter(|line| !line.contains(": warning: "));
            serious.for_each(|line| said.push_str(&format!("QEMU {line}\n")));
        }
        Ok(said)
    }

    fn file(&self, scenario: &Scenario, what: &str) -> PathBuf {
        self.folder.join(name(scenario, &self.kernel.series, what))
    }

    /// Boots once, and returns QEMU's own error output.
    fn boot(
        &self,
        scenario: &Scenario,
        boot: u32,
        (words, disk, api): (&Path, &Path, Option<&Outside>),
    ) -> Result<String> {
        let mut qemu = Command::new("timeout");
        qemu.arg(scenario.limit_s.to_string()).arg(&self.tools.qemu);
        self.firmware(&mut qemu);
        let (accelerator, plain) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            Accelerator::Tcg => ("tcg,thread=multi", "Skylake-Server"),
        };
        let model = if scenario.amd { "EPYC-Rome,vendor=AuthenticAMD" } else { plain };
        let vendor = if scenario.amd { "" } else { ",vendor=GenuineIntel" };
        qemu.args(["-accel", accelerator, "-cpu", &format!("{model}{vendor}"), "-smp", &scenario.smp]);
        qemu.args(["-m", "512", "-nographic", "-no-reboot", "-nodefaults", "-display", "none"]);
        qemu.arg("-kernel").arg(self.kernel.image()).arg("-initrd").arg(self.initramfs);
        let keep = if scenario.keep { KEEP } else { "" };
        let address = api.map(|api| format!("vm.api={}", api.address())).unwrap_or_default();
        let line = format!(
            "console=ttyS0 quiet panic=-1 cpufreq.default_governor=performance vm.scenario={} vm.boot={boot} {keep} {address}",
            scenario.name
        );
        qemu.args(["-append", &line]);
        for path in [&self.file(scenario, &format!("{boot}.console")), words] {
            qemu.args(["-serial", &format!("file:{}", path.display())]);
        }
        if scenario.disk {
            qemu.args(["-drive", &format!("file={},if=virtio,format=raw,cache=writeback", disk.display())]);
        }
        if let Some(api) = api {
            let file = self.file(scenario, "kubeconfig");
            std::fs::write(&file, api.kubeconfig())?;
            qemu.args(["-drive", &format!("file={},if=virtio,format=raw,readonly=on", file.display())]);
            qemu.args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]);
        }
        // If QEMU was ended by the time limit, lines are missing in the guest's output.
        let ended = qemu.stdin(Stdio::null()).stdout(Stdio::null()).output().context("starting QEMU")?;
        Ok(String::from_utf8_lossy(&ended.stderr).into_owned())
    }

    /// Sets the paths of libraries and firmware for an unpacked QEMU.
    fn firmware(&self, qemu: &mut Command) {
        if self.tools.unpacked {
            let root = &self.tools.root;
            let libraries =
                ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|folder| root.join(folder));
            qemu.env("LD_LIBRARY_PATH", libraries.map(|folder| folder.display().to_string()).join(":"));
            for folder in ["usr/share/qemu", "usr/share/seabios"] {
                qemu.arg("-L").arg(root.join(folder));
            }
        }
    }

    fn make_disk(&self, disk: &Path) -> Result<()> {
        let file = std::fs::File::create(disk)?;
        file.set_len(32 << 20)?;
        let mke2fs = ["sbin/mke2fs", "usr/sbin/mke2fs"].map(|name| self.tools.root.join(name));
        let mke2fs = mke2fs.iter().find(|path| path.is_file()).context("e2fsprogs has no mke2fs")?;
        succeed(
            Command::new(mke2fs).args(["-q", "-t", "ext4", "-O", "^metadata_csum,^orphan_file"]).arg(disk),
        )
        .map(drop)
    }
}

/// Whether a boot died in the kernel's patching of its own code before the guest said anything. QEMU's multi-threaded
/// emulation may run a breakpoint that another processor has already taken away; nothing of ours has run then.
fn died_patching(console: &str, words: &str) -> bool {
    words.trim().is_empty() && console.contains("Oops: int3")
}

/// The name of a file of one scenario on one kernel, because the other kernel runs the same scenario at the same
/// time.
fn name(scenario: &Scenario, series: &str, what: &str) -> String {
    format!("{}-{series}.{what}", scenario.name)
}

/// KVM, if it boots a guest: it may be unusable even if its device can be opened.
pub(crate) fn accelerator(
    kernel: &Kernel,
    tools: &Tools,
    initramfs: &Path,
    folder: &Path,
    probe: &Scenario,
) -> Accelerator {
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Accelerator::Tcg;
    }
    let machine = Machine { kernel, tools, initramfs, accelerator: Accelerator::Kvm, folder };
    let said = machine.run(&Scenario { limit_s: 15, ..probe.clone() });
    if said.is_ok_and(|said| said.contains("END 1")) { Accelerator::Kvm } else { Accelerator::Tcg }
}

/// The folder of one run, for consoles, verdicts and disks.
pub(crate) fn folder(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join("runs").join(std::process::id().to_string());
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_boot_that_died_before_the_guest_spoke_is_repeated() {
        let oops = "[    0.4] Oops: int3: 0000 [#1] PREEMPT SMP";
        assert!(died_patching(oops, "\n"));
        assert!(!died_patching(oops, "PASS a\n"), "the guest ran");
        assert!(!died_patching("[    0.4] Oops: 0000", ""), "another defect");
    }

    #[test]
    fn two_kernels_never_share_a_file() {
        let scenario = Scenario::parse("x", "# vm:\n").unwrap();
        assert_ne!(name(&scenario, "6.1", "1.said"), name(&scenario, "6.12", "1.said"));
    }
}
