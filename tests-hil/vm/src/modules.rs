//! Builds the modules for a kernel: our own, and the kernel's RAPL and msr drivers on top of them. The results are
//! cached by content.

use crate::cache;
use crate::packages::{Kernel, succeed};
use anyhow::{Context, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Our sources.
const FILES: [(&str, &str); 6] = [
    ("Kbuild", include_str!("../modules/Kbuild")),
    ("shim.h", include_str!("../modules/shim.h")),
    ("silicon.h", include_str!("../modules/silicon.h")),
    ("silicon.c", include_str!("../modules/silicon.c")),
    ("frequency.c", include_str!("../modules/frequency.c")),
    ("twin.c", include_str!("../modules/twin.c")),
];
const MORE: [(&str, &str); 2] =
    [("cards.c", include_str!("../modules/cards.c")), ("kexec.c", include_str!("../modules/kexec.c"))];

/// The kernel's own sources, compiled unchanged.
const THEIRS: [&str; 3] =
    ["drivers/powercap/intel_rapl_common.c", "drivers/powercap/intel_rapl_msr.c", "arch/x86/kernel/msr.c"];

/// The folder with the built `.ko` files.
pub(crate) fn build(cache: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (FILES, MORE).hash(&mut hasher);
    let folder =
        cache.join(format!("modules-{}_{}-{:016x}", kernel.release, kernel.version, hasher.finish()));
    cache::filled(&folder, |half| {
        for (name, text) in FILES.iter().chain(&MORE) {
            std::fs::write(half.join(name), text)?;
        }
        for path in THEIRS {
            let from = kernel.root.join("source").join(path);
            let name = from.file_name().context("a source has a name")?;
            std::fs::copy(&from, half.join(name)).with_context(|| format!("copying {}", from.display()))?;
        }
        let headers = kernel.root.join(format!("usr/src/linux-headers-{}", kernel.release));
        let common = kernel.release.replace("-amd64", "-common");
        let makefile = kernel.root.join(format!("usr/src/linux-headers-{common}/Makefile"));
        // The package's Makefile contains an absolute path of an installed tree.
        std::fs::write(headers.join("Makefile"), format!("include {}\n", makefile.display()))?;
        let mut make = Command::new("make");
        // BTF type information needs an additional program, and is not used here.
        make.arg("-C")
            .arg(&headers)
            .arg(format!("M={}", half.display()))
            .arg("CONFIG_DEBUG_INFO_BTF_MODULES=");
        succeed(make.arg("modules")).context("building the modules of the test machine")?;
        for name in modules(half)? {
            succeed(Command::new("strip").arg("--strip-debug").arg(half.join(name)))?;
        }
        let mut gcc = Command::new("gcc");
        gcc.current_dir(half).args(["-static", "-O1", "-o", "kexec", "kexec.c"]);
        succeed(&mut gcc).context("building the guest's kexec").map(drop)
    })?;
    Ok(folder)
}

/// The names of the built modules.
pub(crate) fn modules(folder: &Path) -> Result<Vec<String>> {
    let names = std::fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.ends_with(".ko")).collect())
}
