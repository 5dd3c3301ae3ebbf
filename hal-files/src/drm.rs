//! Which processes work GPUs, by what the kernel tells of each file that they have open (`/proc/PID/fdinfo`).
//!
//! The drivers of the kernel's DRM write the same keys there: the device (`drm-pdev`), the number of the client
//! (`drm-client-id`), and for how long each engine has worked for it (`drm-engine-NAME`, in nanoseconds; some drivers
//! have `drm-cycles-NAME` instead). A client is worked for as long as its busiest engine is. Two files of one client,
//! as a fork leaves them, count once, for the process with the lower number.
//!
//! To know which files those are, the links of all files of all processes are read. So a process is looked through when it is first seen,
//! and then after 1, 2, 4 to 32 looks, and no look reads more than [`LINKS_MOST`] links (10 µs each on a loaded virtual machine); where a
//! process has more files, the next time goes on behind them, up to 4,096. At one
//! look a second, who opens a GPU is found within half a minute where all processes have up to 16,000 files open, and later
//! where they have more. What a client had used before it was found does not count. Until all processes of the first look were
//! looked through, nothing is known.
//!
//! It needs the right to look into processes of others (`CAP_SYS_PTRACE`, and `CAP_DAC_READ_SEARCH` for those of other users).
//! Without it nothing is known, and of a GPU whose driver does not tell (kernels before 5.19) neither: that is never taken for
//! "nobody".

use crate::Root;
use power_hal::Key;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The most links that one look reads.
pub const LINKS_MOST: usize = 500;
/// The most files of a process: beyond them the next time begins at the first one again.
const FILES_MOST: usize = 4_096;
/// The most looks between two times that a process is looked through.
const WAIT_MOST: u64 = 32;
/// The most processes; a machine's `pid_max` may be larger, and what is beyond is not looked at.
const PROCESSES_MOST: usize = 65_536;
/// After so many looks it is tried again whether processes may be looked into.
const REFUSED_FOR: u64 = 60;
/// The text of one file has one or two KiB.
const BYTES_MOST: u64 = 16 << 10;
/// Far more engines than a GPU has kinds of.
const ENGINES_MOST: usize = 32;

/// What the kernel tells of a file that is open on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrmClient {
    /// The GPU's key.
    pub gpu: Key,
    /// The number of the client, which no other client of this GPU has.
    pub id: u64,
    /// For how long each engine has worked for it, in nanoseconds, or in cycles of the GPU where the driver does not tell time.
    pub engines: BTreeMap<String, u64>,
}

impl DrmClient {
    /// Reads the text of a file in `fdinfo`; `None` if it is of no GPU, or does not say for how long one worked.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (mut gpu, mut id) = (None, None);
        let (mut times, mut cycles) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match key {
                "drm-pdev" => gpu = Key::gpu(value).ok(),
                "drm-client-id" => id = value.parse().ok(),
                _ => {
                    // The number of like engines is beside their time: `drm-engine-capacity-NAME`.
                    let engine =
                        key.strip_prefix("drm-engine-").filter(|name| !name.starts_with("capacity-"));
                    note(&mut times, engine, value.strip_suffix(" ns"));
                    note(&mut cycles, key.strip_prefix("drm-cycles-"), Some(value));
                }
            }
        }
        let engines = if times.is_empty() { cycles } else { times };
        let is_amd = text.lines().any(|line| line.split_whitespace().eq(["drm-driver:", "amdgpu"]));
        // amdgpu leaves out engines that have not worked yet.
        (!engines.is_empty() || is_amd).then_some(())?;
        Some(Self { gpu: gpu?, id: id?, engines })
    }

    /// For how long its busiest engine has worked since an earlier reading. A counter that went back has begun anew.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> u64 {
        let worked = self.engines.iter().map(|(engine, now)| {
            let before = earlier.engines.get(engine).copied().unwrap_or(0);
            now.checked_sub(before).unwrap_or(*now)
        });
        worked.max().unwrap_or(0)
    }
}

fn note(engines: &mut BTreeMap<String, u64>, name: Option<&str>, value: Option<&str>) {
    if let Some(name) = name.filter(|name| !name.is_empty())
        && let Some(value) = value.and_then(|value| value.parse().ok())
        && (engines.len() < ENGINES_MOST || engines.contains_key(name))
    {
        engines.insert(name.to_owned(), value);
    }
}

/// What processes used of GPUs: of each GPU on which anybody has a file open, the processes with their use; `None` where its
/// driver does not tell.
pub type DrmUses = BTreeMap<Key, Option<Vec<(u32, u64)>>>;

/// Follows the clients of all GPUs.
#[derive(Debug)]
pub struct DrmClients {
    root: Root,
    look: u64,
    refused_until: u64,
    /// The look in which the first processes were found.
    begun: u64,
    processes: BTreeMap<u32, Looked>,
    clients: Option<BTreeMap<(Key, u64), DrmClient>>,
}

/// Files by their numbers, each with the device on which it is open.
type GpuFiles = BTreeMap<String, PathBuf>;

/// A process.
#[derive(Debug)]
struct Looked {
    /// Its files that are open on GPUs, and on which device.
    files: GpuFiles,
    /// How many of its files were looked at when it was cut short.
    from: usize,
    /// In which look it is looked through again.
    again: u64,
    wait: u64,
}

/// Processes may not be looked into.
#[derive(Debug)]
struct Refused;

impl DrmClients {
    /// Of the processes of the machine below `root`.
    #[must_use]
    pub const fn below(root: Root) -> Self {
        Self { root, look: 0, refused_until: 0, begun: 0, processes: BTreeMap::new(), clients: None }
    }

    /// What each process used since the look before; `None` if that is not known.
    pub fn look(&mut self) -> Option<DrmUses> {
        self.look += 1;
        if self.look < self.refused_until {
            return None;
        }
        let found = self.list().and_then(|()| {
            let is_whole = self.is_whole();
            self.look_through().map(|()| is_whole)
        });
        let Ok(is_whole) = found else {
            self.refused_until = self.look + REFUSED_FOR;
            self.processes.clear();
            self.clients = None;
            return None;
        };
        let (now, uses) = self.read();
        self.clients.replace(now).filter(|_| is_whole).map(|_| uses)
    }

    /// Whether none of the first processes still waits to be looked through.
    fn is_whole(&self) -> bool {
        self.processes.values().all(|one| one.wait > 1 || one.again > self.begun)
    }

    /// Takes in which processes there are. A machine without any is one whose `/proc` is not there.
    fn list(&mut self) -> Result<(), Refused> {
        let names = self.root.names(&self.root.join("proc")).map_err(|_| Refused)?;
        let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        if pids.is_empty() {
            return Err(Refused);
        }
        pids.sort_unstable();
        pids.truncate(PROCESSES_MOST);
        self.processes.retain(|pid, _| pids.binary_search(pid).is_ok());
        if self.processes.is_empty() {
            self.begun = self.look;
        }
        for pid in pids {
            let new = Looked { files: GpuFiles::new(), from: 0, again: self.look, wait: 1 };
            self.processes.entry(pid).or_insert(new);
        }
        Ok(())
    }

    /// Looks for files on GPUs, in the processes that have waited longest.
    fn look_through(&mut self) -> Result<(), Refused> {
        let mut due: Vec<(u64, u32)> =
            self.processes.iter().map(|(pid, looked)| (looked.again, *pid)).collect();
        due.retain(|(again, _)| *again <= self.look);
        due.sort_unstable();
        let mut left = LINKS_MOST;
        for (_, pid) in due {
            let begun = left;
            let from = self.processes.get(&pid).map_or(0, |looked| looked.from);
            let (files, from) = self.files(pid, from, &mut left)?;
            // Who was cut short is the first of the next look, and is then looked through as far as a look goes.
            if left == 0 && begun < LINKS_MOST {
                break;
            }
            if let Some(looked) = self.processes.get_mut(&pid) {
                // Those that are closed by now are dropped when they are read.
                looked.files.extend(files);
                looked.from = from;
                looked.again = self.look + looked.wait;
                looked.wait = (looked.wait * 2).min(WAIT_MOST);
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The files of a process that are open on GPUs, without the first so many, and from which on to go on the next time. One
    /// that has just ended has none.
    fn files(&self, pid: u32, from: usize, left: &mut usize) -> Result<(GpuFiles, usize), Refused> {
        let mut files = GpuFiles::new();
        let folder = match std::fs::read_dir(self.of(pid, "fd")) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Refused),
            Err(_) => return Ok((files, 0)),
        };
        for (at, file) in folder.flatten().enumerate().skip(from) {
            let Some(rest) = left.checked_sub(1) else {
                return Ok((files, if at < FILES_MOST { at } else { 0 }));
            };
            *left = rest;
            let to = match std::fs::read_link(file.path()) {
                Ok(to) if is_of_a_gpu(&to) => to,
                // The folder is its owner's, and the links take a right of their own.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Refused),
                Ok(_) | Err(_) => continue,
            };
            files.extend(file.file_name().into_string().ok().map(|name| (name, to)));
        }
        Ok((files, 0))
    }

    fn of(&self, pid: u32, what: &str) -> PathBuf {
        self.root.join(&format!("proc/{pid}/{what}"))
    }

    /// Reads all files that are known.
    fn read(&mut self) -> (BTreeMap<(Key, u64), DrmClient>, DrmUses) {
        let (mut now, mut uses) = (BTreeMap::new(), DrmUses::new());
        let mut processes = std::mem::take(&mut self.processes);
        for (pid, looked) in &mut processes {
            looked.files.retain(|name, to| {
                let Some(text) = text(&self.of(*pid, "fdinfo").join(name)) else { return false };
                let Some(client) = DrmClient::read(&text) else {
                    let stands =
                        std::fs::read_link(self.of(*pid, "fd").join(name)).is_ok_and(|now| now == *to);
                    // What does not tell is unknown, whoever else tells.
                    uses.extend(self.gpu_of(to).filter(|_| stands).map(|gpu| (gpu, None)));
                    return stands;
                };
                // A client of several files counts once.
                let Entry::Vacant(first) = now.entry((client.gpu, client.id)) else { return true };
                let before = self.clients.as_ref().and_then(|clients| clients.get(first.key()));
                let used = before.map_or(0, |before| client.since(before));
                if let Some(told) = uses.entry(client.gpu).or_insert_with(|| Some(Vec::new())).as_mut()
                    && used > 0
                {
                    told.push((*pid, used));
                }
                first.insert(client);
                true
            });
        }
        self.processes = processes;
        (now, uses)
    }

    /// The GPU behind a device of the DRM.
    fn gpu_of(&self, to: &Path) -> Option<Key> {
        let name = to.file_name()?.to_str()?;
        let device = std::fs::canonicalize(self.root.join(&format!("sys/class/drm/{name}/device"))).ok()?;
        Key::gpu(device.file_name()?.to_str()?).ok()
    }
}

/// Whether a link leads to a device of the DRM. In a container's own `/dev` it has the same place.
fn is_of_a_gpu(to: &Path) -> bool {
    to.parent().is_some_and(|folder| folder.ends_with("dri"))
}

fn text(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(BYTES_MOST).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests;
