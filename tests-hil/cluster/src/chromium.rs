//! A real browser: the headless Chromium on `PATH`, otherwise the distribution's package with those that it needs, downloaded once and
//! unpacked in the cache. Nothing is installed.

use crate::assets::Environment;
use crate::error::ClusterError;
use crate::folder::last_lines;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The names of the programs, the smallest first.
const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// The package, and its program.
const PACKAGE: &str = "chromium-headless-shell";
const PROGRAM: &str = "usr/lib/chromium/chromium-headless-shell";
/// Where the libraries are in the packages.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The browser's program, and where its libraries and fonts are if it is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chromium {
    program: PathBuf,
    root: Option<PathBuf>,
}

impl Chromium {
    /// Finds it, or unpacks it.
    ///
    /// # Errors
    /// [`ClusterError::Absent`] if there is none and none can be had.
    pub fn obtain(environment: &Environment) -> Result<Self, ClusterError> {
        if let Some(program) = PROGRAMS.iter().find_map(|name| environment.find(name)) {
            return Ok(Self { program, root: None });
        }
        let cache = environment.cache()?;
        let root = cache.join(PACKAGE);
        std::fs::create_dir_all(&cache).map_err(ClusterError::file("making the cache folder", &cache))?;
        let lock = cache.join("chromium.lock");
        let alone = File::create(&lock).map_err(ClusterError::file("opening the lock", &lock))?;
        alone.lock().map_err(ClusterError::file("locking", &lock))?;
        let program = root.join(PROGRAM);
        if !program.is_file() {
            unpack(&cache.join("chromium.new"), &root)?;
        }
        let browser = Self { program, root: Some(root) };
        let mut command = Command::new(&browser.program);
        browser.prepare(&mut command);
        run(command.args(["--no-sandbox", "--version"]))
            .map_err(|why| ClusterError::Absent(format!("the unpacked {PACKAGE} does not start: {why}")))?;
        Ok(browser)
    }

    /// Its file.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Gives a command the environment that the program needs.
    pub fn prepare(&self, command: &mut Command) {
        if let Some(root) = &self.root {
            // The library of sound has a part in a folder of its own.
            let pulse = root.join(LIBRARIES).join("pulseaudio");
            let libraries = [root.join(LIBRARIES), root.join("lib/x86_64-linux-gnu"), pulse];
            let path =
                libraries.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":");
            command.env("LD_LIBRARY_PATH", path);
            // Else the fonts are those of the machine.
            if root.join("etc/fonts").is_dir() {
                command.env("FONTCONFIG_SYSROOT", root);
            }
        }
    }
}

/// Downloads the package and what it needs and this machine lacks, and puts it at its place by a rename.
fn unpack(new: &Path, root: &Path) -> Result<(), ClusterError> {
    // Remove what a killed download left.
    let _ = std::fs::remove_dir_all(new);
    let archives = new.join("archives");
    std::fs::create_dir_all(archives.join("partial"))
        .map_err(ClusterError::file("making the folder", new))?;
    let absent = |why: String| {
        ClusterError::Absent(format!("there is no {PACKAGE} on PATH, and the package cannot be had: {why}"))
    };
    let place = format!("Dir::Cache::archives={}", archives.display());
    let download = ["-q", "-y", "-o", "APT::Sandbox::User=root", "-o", &place, "-o", "Debug::NoLocking=1"];
    let what = ["--download-only", "--no-install-recommends", "install", PACKAGE];
    run(Command::new("apt-get").args(download).args(what)).map_err(absent)?;
    let all = "for deb in archives/*.deb; do dpkg-deb -x \"$deb\" . || exit 1; done; rm -r archives";
    run(Command::new("sh").args(["-c", all]).current_dir(new)).map_err(absent)?;
    let _ = std::fs::remove_dir_all(root);
    std::fs::rename(new, root).map_err(ClusterError::file("moving the package to", root))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(last_lines(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat())).replace('\n', " "))
}
