//! Virtual power hardware for manual use: mounts a profile, puts load on it, and runs until it is interrupted.
#![expect(clippy::print_stdout, reason = "it talks to the person who started it")]

use rig::library::{NVML, ROCM};
use rig::machine::{RigTime, Shared};
use rig::{fuse, profile};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (name, on) = match words.as_slice() {
        [name] => (name.as_str(), PathBuf::from("/tmp/joulie-rig")),
        [name, on] => (name.as_str(), PathBuf::from(on)),
        _ => return usage(),
    };
    let Some(build) = profile::find(name) else { return usage() };
    match serve(build, &on) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("rig: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    println!("usage: rig PROFILE [FOLDER]; as root. The profiles are:");
    for (name, what, _) in profile::PROFILES {
        println!("  {name:<16}{what}");
    }
    ExitCode::from(2)
}

fn serve(build: profile::MachineBuilder, on: &Path) -> Result<(), Box<dyn std::error::Error>> {
    prepare(on)?;
    let machine = Shared::new(build(RigTime::Real(1.0))?);
    let _mounted = fuse::mount(machine, on)?;
    explain(on);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Prints commands to try.
fn explain(on: &Path) {
    println!("mounted on {}; end it with Ctrl-D, or by closing standard input. Try:", on.display());
    println!("  cat {}/sys/class/powercap/intel-rapl:0/energy_uj", on.display());
    println!(
        "  echo 120000000 > {}/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw",
        on.display()
    );
    for (name, variable, folder) in [(NVML, "JOULIE_NVML_STUB", "nvml"), (ROCM, "JOULIE_ROCM_STUB", "rocm")] {
        let library = on.join("lib").join(name);
        if library.exists() {
            println!(
                "GPUs are behind the library {}; a copy of it elsewhere finds them by",
                library.display()
            );
            println!("  {variable}={}", on.join(folder).display());
            println!("  grep . {}/gpus/*/*", on.join(folder).display());
        }
    }
}

/// Creates the folder for the mount. A killed rig leaves a dead mount behind.
fn prepare(on: &Path) -> Result<(), String> {
    let left_behind = std::fs::metadata(on).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
    if left_behind {
        let on = on.display();
        return Err(format!(
            "{on} is the mount of a rig that was killed; end it with `umount {on}` and start again"
        ));
    }
    std::fs::create_dir_all(on).map_err(|error| format!("making the folder {}: {error}", on.display()))
}
