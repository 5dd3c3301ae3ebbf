//! Guarantees of the core that tests cannot show, checked in the linked machine code: it needs nothing but `core`, it
//! never allocates, no path in it panics, it has no floating-point instruction and no recursion, and a control tick
//! has a bounded stack.
//!
//! The proofs hold for the pinned compiler and these optimisation levels. Each proof is also run on a violation,
//! which a feature of `link-proof` adds: a proof that accepts it is broken.

mod floats;
mod program;
mod stack;

use crate::succeed;
use anyhow::{Context, Result, bail, ensure};
use program::Program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The linker's message if a panic path remains.
const PANIC: &str = "undefined symbol: the_core_can_panic";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A name that the precompiled `core` refers to, but never calls.
const MENTIONED: &str = "rust_eh_personality";

/// Runs every proof, then every violation.
pub(crate) fn run(root: &Path) -> Result<()> {
    let proof = LinkProof { crate_dir: root.join("core-nostd/link-proof") };
    core_only(root)?;
    println!("proof: joulie-core and what it uses build against a sysroot that holds `core` only");
    for profile in ["release", "lto"] {
        let program = match proof.program(profile, None) {
            Err(error) if format!("{error:#}").contains(PANIC) => bail!("{}", proof.who_panics(profile)?),
            program => program?,
        };
        floats::refuse(&program)?;
        let depths = stack::check(&program)?;
        println!(
            "proof: {profile}: links with no allocator and no panic path, no float instruction, no recursion"
        );
        println!("proof: {profile}: {depths}");
    }
    planted(&proof)
}

/// Each violation must be detected by its proof.
fn planted(proof: &LinkProof) -> Result<()> {
    for (feature, expected) in [
        ("plant-vec", "no global memory allocator found"),
        ("plant-index", "undefined symbol: the_core_can_panic"),
    ] {
        for profile in ["release", "lto"] {
            let said = match proof.program(profile, Some(feature)) {
                Ok(_) => bail!("the link proof let {feature} pass at {profile}"),
                Err(error) => format!("{error:#}"),
            };
            ensure!(said.contains(expected), "{feature} failed for another reason:\n{said}");
        }
    }
    let float = floats::refuse(&proof.program("release", Some("plant-float"))?);
    ensure!(float.is_err(), "the float proof let plant-float pass");
    for feature in ["plant-recursion", "plant-stack"] {
        let seen = stack::check(&proof.program("release", Some(feature))?);
        ensure!(seen.is_err(), "the stack proof let {feature} pass");
    }
    println!("proof: a planted vec!, index, f64, recursion and large frame were each refused");
    Ok(())
}

/// The crate that keeps every entry point of the core in the program.
struct LinkProof {
    crate_dir: PathBuf,
}

impl LinkProof {
    fn program(&self, profile: &str, feature: Option<&str>) -> Result<Program> {
        self.link(profile, feature, &[])
    }

    /// Links in spite of panic paths, and names the functions that lead into a panic.
    fn who_panics(&self, profile: &str) -> Result<String> {
        let program = self.link(profile, None, &["-Clink-arg=-Wl,--defsym=the_core_can_panic=0"])?;
        let panics = |name: &str| {
            name.contains("panic") || name.contains("unwrap_failed") || name.contains("expect_failed")
        };
        let calls_one = |function: &&program::Function| {
            !panics(&function.name) && function.callees.iter().any(|&callee| panics(program.name(callee)))
        };
        let names: Vec<_> = program.functions.values().filter(calls_one).map(|f| f.name.as_str()).collect();
        Ok(format!("{profile}: a panic is reachable from {}", names.join(", ")))
    }

    fn link(&self, profile: &str, feature: Option<&str>, more: &[&str]) -> Result<Program> {
        let mut flags = vec!["-Zemit-stack-sizes".to_owned(), "-Crelocation-model=static".to_owned()];
        let mentioned = format!("-Wl,--defsym={MENTIONED}=0");
        let linker = ["-static", "-nostartfiles", "-nostdlib", &mentioned];
        flags.extend(linker.map(|argument| format!("-Clink-arg={argument}")));
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        let mut cargo = cargo(&self.crate_dir);
        cargo.args(["build", "--locked", "--target", TARGET, "--profile", profile]);
        cargo.env("RUSTFLAGS", flags.join(" "));
        // Frame sizes are an unstable output of the compiler, which the pinned version supports.
        cargo.env("RUSTC_BOOTSTRAP", "1");
        if let Some(feature) = feature {
            cargo.args(["--features", feature]);
        }
        succeed(&mut cargo).with_context(|| format!("link-proof at {profile} with {feature:?}"))?;
        Program::read(&self.crate_dir.join("target").join(TARGET).join(profile).join("link-proof"))
    }
}

/// Builds the core where neither `std` nor `alloc` exists.
fn core_only(root: &Path) -> Result<()> {
    let found = succeed(Command::new("rustc").current_dir(root).args(["--print", "sysroot"]))?;
    let real =
        Path::new(std::str::from_utf8(&found.stdout)?.trim()).join("lib/rustlib").join(TARGET).join("lib");
    let bare = root.join("target/core-only");
    let libraries = bare.join("sysroot/lib/rustlib").join(TARGET).join("lib");
    std::fs::create_dir_all(&libraries)?;
    let mut copied = 0;
    for entry in
        std::fs::read_dir(&real).with_context(|| format!("the standard library in {}", real.display()))?
    {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if ["libcore-", "libcompiler_builtins-", "librustc_std_workspace_core-"]
            .iter()
            .any(|p| name.starts_with(p))
        {
            std::fs::copy(entry.path(), libraries.join(name))?;
            copied += 1;
        }
    }
    ensure!(copied >= 3, "found {copied} of the libraries core, compiler_builtins, rustc_std_workspace_core");
    let build = |package: &str| {
        let mut cargo = cargo(root);
        cargo.args(["build", "--locked", "--target", TARGET, "--package", package, "--lib"]);
        cargo.env("RUSTFLAGS", format!("--sysroot={}", bare.join("sysroot").display()));
        cargo.env("CARGO_TARGET_DIR", bare.join("target"));
        succeed(&mut cargo)
    };
    build("joulie-core")?;
    // plant is a std crate with the same units: if it builds here, the check does not hide `std`.
    let with_std = build("plant").err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(
        with_std.contains("can't find crate for `std`"),
        "the bare sysroot did not refuse std:\n{with_std}"
    );
    Ok(())
}

/// A cargo command without the flags and the target folder of the calling cargo.
fn cargo(dir: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(dir).env_remove("CARGO_TARGET_DIR").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}
