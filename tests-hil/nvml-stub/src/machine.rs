//! The folder that the library reads.

use crate::code;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A folder with this layout. Writing into it controls the GPUs.
///
/// | file | what it holds |
/// |---|---|
/// | `driver` | the driver's version |
/// | `epoch` | any text; when it changes, the driver was reloaded, and only `nvmlInit_v2` answers |
/// | `order` | names of cards, one a line, by their index; without it, all names in order |
/// | `errors` | lines `FUNCTION CODE`: what `nvmlInit_v2` and other functions without a card answer |
/// | `gpus/NAME/uuid`, `name`, `pci`, `vram_mib` | who the card is |
/// | `gpus/NAME/{min,max,default,limit}_mw` | its power limit |
/// | `gpus/NAME/oob_mw` | a limit that was set out of band |
/// | `gpus/NAME/{energy_mj,power_mw,instant_mw,average_mw}` | what it measures |
/// | `gpus/NAME/vram_used_mib` | how much of its memory is in use; none without the file |
/// | `gpus/NAME/reasons` | what slows it now, in the bits of nvml.h |
/// | `gpus/NAME/throttled_ns` | for how long its power limit has held it back |
/// | `gpus/NAME/{celsius,busy_percent}` | its temperature, and for how much of the time it computes |
/// | `gpus/NAME/clocks_mhz` | the clocks to which it can be locked: the lowest, the highest and the step |
/// | `gpus/NAME/clock_mhz` | the clock at which it runs |
/// | `gpus/NAME/lock_mhz` | the lowest and the highest clock of the lock that was set; `0 0`, or no file, without one |
/// | `gpus/NAME/processes` | lines `MICROSECONDS PID SM MEMORY ENCODER DECODER`: a process, when it was seen, and its percents |
/// | `gpus/NAME/module/{min,max,default,limit,oob,…}` | the same of the module that it sits on |
/// | `gpus/NAME/persistence`, `mig` | `0` or `1` |
/// | `gpus/NAME/parent` | this is a MIG instance of the card of that name |
/// | `gpus/NAME/nvlink` | lines `LINK STATE PCI TYPE`: what a link leads to; TYPE is 0 GPU, 1 NPU, 2 switch |
/// | `gpus/NAME/errors` | lines `FUNCTION CODE`, or `* CODE` for every function |
/// | `gpus/NAME/log` | a line for each limit that was set: what in milliwatts, and for which scope |
/// | `calls/FUNCTION`, `gpus/NAME/calls/FUNCTION` | what that function answers, read once for each call of it; 0 lets it go on |
/// | `served` | whoever serves this folder takes a limit or a lock as the driver does: it is written into `limit_mw` or `lock_mhz`, and what that answers decides |
///
/// A missing file is a feature that the card lacks.
#[derive(Clone, Debug)]
pub struct StubMachine {
    root: PathBuf,
}

/// A card with a power limit and an energy counter, as a starting point for tests.
#[derive(Clone, Copy, Debug)]
pub struct StubGpu {
    /// Its UUID.
    pub uuid: &'static str,
    /// Its bus address.
    pub pci: &'static str,
    /// The smallest limit that it accepts.
    pub min_mw: u32,
    /// The largest limit that it accepts.
    pub max_mw: u32,
    /// Its default limit.
    pub default_mw: u32,
}

impl StubMachine {
    /// The machine in this folder.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Copies the library into the folder, so that it uses this folder, and returns its path.
    ///
    /// # Errors
    /// If the library was not built, or the folder cannot be written.
    pub fn library(&self) -> io::Result<PathBuf> {
        let own = self.root.join("libnvidia-ml.so.1");
        fs::create_dir_all(&self.root)?;
        fs::copy(built("nvml-stub")?, &own)?;
        Ok(own)
    }

    /// Like [`StubMachine::library`], but of an older version without some functions: their names are overwritten in
    /// the copy.
    ///
    /// # Errors
    /// As there, and if the library has no such function.
    pub fn library_without(&self, functions: &[&str]) -> io::Result<PathBuf> {
        let own = self.library()?;
        let mut bytes = fs::read(&own)?;
        for function in functions {
            let name = format!("\0{function}\0").into_bytes();
            let mut found = false;
            while let Some(at) = bytes.windows(name.len()).position(|window| window == name) {
                bytes[at + 1] = b'~';
                found = true;
            }
            if !found {
                return Err(io::Error::other(format!("the library has no function {function}")));
            }
        }
        fs::write(&own, bytes)?;
        Ok(own)
    }

    /// Adds a card.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn add(&self, name: &str, card: &StubGpu) -> io::Result<()> {
        let file = |file: &str| format!("gpus/{name}/{file}");
        self.put(&file("uuid"), card.uuid)?;
        self.put(&file("pci"), card.pci)?;
        self.put(&file("name"), "NVIDIA H100 80GB HBM3")?;
        self.put(&file("vram_mib"), "81559")?;
        self.put(&file("min_mw"), &card.min_mw.to_string())?;
        self.put(&file("max_mw"), &card.max_mw.to_string())?;
        self.put(&file("default_mw"), &card.default_mw.to_string())?;
        self.put(&file("limit_mw"), &card.default_mw.to_string())?;
        self.put(&file("energy_mj"), "1000000")?;
        self.put(&file("power_mw"), "70000")?;
        self.put(&file("instant_mw"), "71000")?;
        self.put(&file("average_mw"), "70000")?;
        self.put(&file("persistence"), "1")?;
        self.put(&file("mig"), "0")
    }

    /// Replaces a file as a whole: a concurrent reader sees the old text or the new one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, file: &str, text: &str) -> io::Result<()> {
        let path = self.root.join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let beside = path.with_extension("new");
        fs::write(&beside, format!("{text}\n"))?;
        fs::rename(beside, path)
    }

    /// The text of a file; `None` if it does not exist.
    #[must_use]
    pub fn get(&self, file: &str) -> Option<String> {
        self.read(file).ok()
    }

    /// The text of a file, in one read if it is short: a process that serves the folder counts reads, and a changing
    /// number must not be combined from two reads.
    fn read(&self, file: &str) -> io::Result<String> {
        let mut file = File::open(self.root.join(file))?;
        let mut text = Vec::new();
        let mut part = [0; 4096];
        loop {
            let length = file.read(&mut part)?;
            text.extend_from_slice(&part[..length]);
            if length < part.len() {
                let text = String::from_utf8(text).map_err(|_| ErrorKind::InvalidData)?;
                return Ok(text.trim().to_owned());
            }
        }
    }

    /// Whether a process serves the folder and checks the limits that are written into it.
    pub(crate) fn served(&self) -> bool {
        self.root.join("served").exists()
    }

    /// Passes a limit or a lock to the process that serves the folder; a refusal is the answer of the library.
    pub(crate) fn hand_over(&self, file: &str, text: &str) -> Result<(), u32> {
        let line = format!("{text}\n");
        let written = File::options().write(true).open(self.root.join(file));
        written.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EINVAL | libc::ERANGE) => code::INVALID_ARGUMENT,
                Some(libc::EPERM | libc::EACCES) => code::NO_PERMISSION,
                Some(libc::ENODEV | libc::ENOENT) => code::GPU_IS_LOST,
                _ => code::UNKNOWN,
            }
        })
    }

    /// Removes a file, and the feature with it.
    pub fn remove(&self, file: &str) {
        // The file may be missing already.
        let _gone = fs::remove_file(self.root.join(file));
    }

    /// Unloads the driver and loads it again: limits are reset to the defaults, counters start at zero, and users of
    /// the library must initialise it again.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn reload_driver(&self) -> io::Result<()> {
        for name in self.names() {
            for limit in [format!("gpus/{name}"), format!("gpus/{name}/module")] {
                if let Some(default) = self.get(&format!("{limit}/default_mw")) {
                    self.put(&format!("{limit}/limit_mw"), &default)?;
                }
                if self.get(&format!("{limit}/energy_mj")).is_some() {
                    self.put(&format!("{limit}/energy_mj"), "0")?;
                }
            }
        }
        self.end_sessions()
    }

    /// Ends all sessions: users of the library must initialise it again.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn end_sessions(&self) -> io::Result<()> {
        let epoch: u64 = self.get("epoch").and_then(|text| text.parse().ok()).unwrap_or(0);
        self.put("epoch", &(epoch + 1).to_string())
    }

    /// The names of the cards by their index.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        if let Some(order) = self.get("order") {
            return order.lines().map(str::to_owned).collect();
        }
        self.all_names()
    }

    /// The names of all cards and instances, whether they have an index or not.
    pub(crate) fn all_names(&self) -> Vec<String> {
        let listing = fs::read_dir(self.root.join("gpus")).into_iter().flatten();
        let mut names: Vec<String> =
            listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// A number in a file of a card. Without the file the card lacks the feature. Invalid content, or a file that
    /// cannot be read, is an unknown error.
    pub(crate) fn number<T: FromStr>(&self, file: &str) -> Result<T, u32> {
        match self.read(file) {
            Ok(text) => text.parse().map_err(|_| code::UNKNOWN),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(code::NOT_SUPPORTED),
            Err(_) => Err(code::UNKNOWN),
        }
    }

    /// The error that a function is made to return for the card of a folder, or for the machine if the folder is
    /// empty.
    pub(crate) fn error(&self, folder: &str, function: &str) -> Option<u32> {
        let made = match self.read(&format!("{folder}calls/{function}")) {
            Ok(code) => Some(code.parse().unwrap_or(code::UNKNOWN)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let errors = self.get(&format!("{folder}errors"))?;
                errors.lines().find_map(|line| {
                    let (name, code) = line.split_once(' ')?;
                    (name == function || name == "*").then(|| code.trim().parse().unwrap_or(code::UNKNOWN))
                })
            }
            Err(_) => Some(code::UNKNOWN),
        };
        made.filter(|&made| made != code::SUCCESS)
    }
}

/// The path of a package's shared library as cargo has built it: beside the program that depends on it, or in the
/// folder that `CARGO_TARGET_DIR` names.
///
/// # Errors
/// If it is in neither place; the error names the command that builds it.
pub fn built(package: &str) -> io::Result<PathBuf> {
    let file = format!("lib{}.so", package.replace('-', "_"));
    let program = std::env::current_exe()?;
    #[expect(clippy::disallowed_methods, reason = "it is cargo's own, and says where its outputs are")]
    let told = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let told = told.iter().flat_map(|target| [target.join("debug"), target.join("release")]);
    let folders = program.ancestors().skip(1).take(3).map(Path::to_path_buf).chain(told);
    let found = folders
        .flat_map(|folder| [folder.join("deps").join(&file), folder.join(&file)].into_iter())
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        io::Error::other(format!(
            "{file} is neither beside {} nor in CARGO_TARGET_DIR; build it with `cargo build -p {package}`",
            program.display()
        ))
    })
}
