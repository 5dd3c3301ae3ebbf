//! One run of a scenario: QEMU with two serial lines, for the kernel's console and for the guest's verdicts.

use crate::api::Outside;
use crate::packages::{Kernel, Tools, succeed};
use crate::run::now;
use crate::scenario::Scenario;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The accelerator of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    Kvm,
    /// Emulation: slower, but always available.
    Tcg,
}

/// How often a boot is repeated in which the guest said nothing: emulated, a machine now and then stands still in the firmware, or dies in
/// the kernel's patching of its own code. Nothing of ours has run then.
const REPEATS: u32 = 4;

/// How long a guest may need to its first line, on a busy machine.
const FIRST_LINE: Duration = Duration::from_secs(90);

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
            let mut complaint = String::new();
            for again in 0..=REPEATS {
                complaint = self.boot(scenario, boot, (&words, &disk, api.as_ref()))?;
                if again == REPEATS || has_spoken(&words) {
                    break;
                }
                println!(
                    "vm {} {}: boot {boot} ended before the guest's first line; it is repeated",
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
        let mut qemu = Command::new(&self.tools.qemu);
        self.firmware(&mut qemu);
        let (accelerator, plain) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            Accelerator::Tcg => ("tcg,thread=multi", "Skylake-Server"),
        };
        let model = if scenario.amd { "EPYC-Rome,vendor=AuthenticAMD" } else { plain };
        let vendor = if scenario.amd { "" } else { ",vendor=GenuineIntel" };
        qemu.args(["-accel", accelerator, "-cpu", &format!("{model}{vendor}"), "-smp", &scenario.smp]);
        // kexec holds the initial file system four times: unpacked, as a file, loaded, and as the next kernel finds it.
        qemu.args(["-m", "1024", "-nographic", "-no-reboot", "-nodefaults", "-display", "none"]);
        qemu.arg("-kernel").arg(self.kernel.unpacked_image()).arg("-initrd").arg(self.initramfs);
        let keep = if scenario.keep { KEEP } else { "" };
        let address = api.map(|api| format!("vm.api={}", api.address())).unwrap_or_default();
        // What guards a real machine's secrets only costs time here: emulated, each switch into the kernel is slow.
        let line = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off nokaslr cpufreq.default_governor=performance \
             vm.scenario={} vm.boot={boot} {keep} {address}",
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
        let complaint = self.file(scenario, &format!("{boot}.complaint"));
        qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&complaint)?);
        std::fs::write(words, "")?;
        let mut child = qemu.spawn().context("starting QEMU")?;
        let begun = now();
        // If QEMU is ended by a time limit, lines are missing in the guest's output.
        while child.try_wait()?.is_none() {
            let whole = Duration::from_secs(u64::from(scenario.limit_s));
            let limit = if has_spoken(words) { whole } else { whole.min(FIRST_LINE) };
            if begun.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                break;
            }
            pause();
        }
        Ok(String::from_utf8_lossy(&std::fs::read(complaint)?).into_owned())
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

/// Whether the guest said anything in the file of its lines.
fn has_spoken(words: &Path) -> bool {
    std::fs::read(words).is_ok_and(|said| said.iter().any(|byte| !byte.is_ascii_whitespace()))
}

/// Waits a moment for another process.
#[expect(clippy::disallowed_methods, reason = "QEMU is another process, which nothing here can await")]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
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
    fn a_guest_has_spoken_with_its_first_word() {
        let words = std::env::temp_dir().join(format!("joulie-vm-words-{}", std::process::id()));
        for (said, spoken) in [("", false), ("\r\n ", false), ("START\n", true)] {
            std::fs::write(&words, said).unwrap();
            assert_eq!(has_spoken(&words), spoken, "{said:?}");
        }
        std::fs::remove_file(&words).unwrap();
        assert!(!has_spoken(&words), "there is no file");
    }

    #[test]
    fn two_kernels_never_share_a_file() {
        let scenario = Scenario::parse("x", "# vm:\n").unwrap();
        assert_ne!(name(&scenario, "6.1", "1.said"), name(&scenario, "6.12", "1.said"));
    }
}
