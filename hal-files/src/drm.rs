//! Which processes work GPUs, by what the kernel tells of each file that they have open (`/proc/PID/fdinfo`).
//!
//! The drivers of the kernel's DRM write the same keys there: the device (`drm-pdev`), the number of the client
//! (`drm-client-id`), and for how long each engine has worked for it (`drm-engine-NAME`, in nanoseconds; some drivers
//! have `drm-cycles-NAME` instead). A client is worked for as long as its busiest engine is. Two files of one client,
//! as a fork leaves them, count once, for the process with the lower number.
//!
//! To know which files those are, the links of all files of all processes are read. So a process is looked through when it is first seen,
//! and then after 1, 2, 4 to 32 looks, and no look reads more than [`LINKS_MOST`] links (10 µs each on a loaded virtual machine); where a
//! process has more files, the next look goes on behind them. At one
//! look a second, who opens a GPU is found within half a minute where all processes have up to 16,000 files open, and later
//! where they have more. What a client had used before it was found does not count. Until all processes of the first look were
//! looked through to their last file, nothing is known. Nor is it while a process has more than [`FILES_MOST`] files open, or the
//! machine more than 65,536 processes: who is not looked at may use a GPU.
//!
//! A number that went to another process is noticed when that one is looked through, or at once if the one before had a GPU open.
//!
//! It needs the right to look into processes of others (`CAP_SYS_PTRACE`, and `CAP_DAC_READ_SEARCH` for those of other users).
//! Without it nothing is known, and of a GPU whose driver does not tell (kernels before 5.19) neither: that is never taken for
//! "nobody".

use crate::Root;
use crate::process::began;
use power_hal::Key;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The most links that one look reads.
pub const LINKS_MOST: usize = 500;
/// The most files of a process that are looked at.
pub const FILES_MOST: usize = 16_384;
/// The most looks between two times that a process is looked through.
const WAIT_MOST: u64 = 32;
/// The most processes; a machine's `pid_max` may be larger, and with more nothing is known.
const PROCESSES_MOST: usize = 65_536;
/// After so many looks it is tried again whether processes may be looked into.
const REFUSED_FOR: u64 = 60;
/// The text of one file has one or two KiB.
const BYTES_MOST: u64 = 16 << 10;
/// What a read answers of a file whose process has ended.
const ESRCH: i32 = 3;
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
    /// When it began, as no other process of this number did; `None` if that is not known.
    began: Option<u64>,
    /// In which look it was found.
    found: u64,
    /// How many of its files were looked at when it was cut short.
    from: usize,
    seen: Seen,
    /// In which look it is looked through again.
    again: u64,
    wait: u64,
}

impl Looked {
    const fn new(look: u64) -> Self {
        Self {
            files: GpuFiles::new(),
            began: None,
            found: look,
            from: 0,
            seen: Seen::NotYet,
            again: look,
            wait: 1,
        }
    }

    /// Takes in how far it was looked through. Who was cut short is among the first of the next look.
    fn reached(&mut self, reach: Reach, look: u64) {
        (self.from, self.seen) = match reach {
            Reach::Part(at) => (at, self.seen),
            Reach::End => (0, Seen::All),
            Reach::Most => (0, Seen::NotAll),
        };
        if let Reach::Part(_) = reach {
            self.again = look;
        } else {
            self.again = look + self.wait;
            self.wait = (self.wait * 2).min(WAIT_MOST);
        }
    }
}

/// What was seen of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It was not looked through to its last file yet.
    NotYet,
    /// All its files.
    All,
    /// It has more files than are looked at.
    NotAll,
}

/// How far one look went through a process.
#[derive(Clone, Copy, Debug)]
enum Reach {
    /// To its last file.
    End,
    /// So many files, behind which it goes on.
    Part(usize),
    /// As many files as are looked at, and it has more.
    Most,
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

    /// How many processes have more files open than are looked at.
    #[must_use]
    pub fn with_more_files(&self) -> usize {
        self.processes.values().filter(|one| one.seen == Seen::NotAll).count()
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

    /// Whether all of the first processes were looked through, and none has more files than are looked at.
    fn is_whole(&self) -> bool {
        self.processes.values().all(|one| match one.seen {
            Seen::NotYet => one.found > self.begun,
            Seen::All => true,
            Seen::NotAll => false,
        })
    }

    /// Takes in which processes there are. A machine without any is one whose `/proc` is not there.
    fn list(&mut self) -> Result<(), Refused> {
        let names = self.root.names(&self.root.join("proc")).map_err(|_| Refused)?;
        let pids = numbers(&names).ok_or(Refused)?;
        self.processes.retain(|pid, _| pids.binary_search(pid).is_ok());
        if self.processes.is_empty() {
            self.begun = self.look;
        }
        for pid in pids {
            self.processes.entry(pid).or_insert(Looked::new(self.look));
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
            self.start_anew_if_another(pid);
            let from = self.processes.get(&pid).map_or(0, |looked| looked.from);
            let (files, reach) = self.files(pid, from, &mut left)?;
            if let Some(looked) = self.processes.get_mut(&pid) {
                // Those that are closed by now are dropped when they are read.
                looked.files.extend(files);
                looked.reached(reach, self.look);
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Forgets what was found of a process whose number another one has by now.
    fn start_anew_if_another(&mut self, pid: u32) {
        let now = text(&self.of(pid, "stat")).ok().and_then(|text| began(&text));
        let look = self.look;
        if let Some(looked) = self.processes.get_mut(&pid) {
            if looked.began.zip(now).is_some_and(|(before, now)| before != now) {
                *looked = Looked::new(look);
            }
            looked.began = now.or(looked.began);
        }
    }

    /// The files of a process that are open on GPUs, without the first so many, and how far that went. One that has just ended
    /// has none.
    fn files(&self, pid: u32, from: usize, left: &mut usize) -> Result<(GpuFiles, Reach), Refused> {
        let mut files = GpuFiles::new();
        let folder = match std::fs::read_dir(self.of(pid, "fd")) {
            Ok(folder) => folder,
            Err(error) if is_gone(&error) => return Ok((files, Reach::End)),
            Err(_) => return Err(Refused),
        };
        for (at, file) in folder.flatten().enumerate().skip(from) {
            if at >= FILES_MOST {
                return Ok((files, Reach::Most));
            }
            let Some(rest) = left.checked_sub(1) else {
                return Ok((files, Reach::Part(at)));
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
        Ok((files, Reach::End))
    }

    fn of(&self, pid: u32, what: &str) -> PathBuf {
        self.root.join(&format!("proc/{pid}/{what}"))
    }

    /// Reads all files that are known.
    fn read(&mut self) -> (BTreeMap<(Key, u64), DrmClient>, DrmUses) {
        let (mut now, mut uses) = (BTreeMap::new(), DrmUses::new());
        let on_gpus = self.processes.iter().filter(|(_, looked)| !looked.files.is_empty());
        let on_gpus: Vec<u32> = on_gpus.map(|(pid, _)| *pid).collect();
        on_gpus.into_iter().for_each(|pid| self.start_anew_if_another(pid));
        let mut processes = std::mem::take(&mut self.processes);
        for (pid, looked) in &mut processes {
            looked.files.retain(|name, to| {
                let told = match text(&self.of(*pid, "fdinfo").join(name)) {
                    // It was closed, or its process has ended.
                    Err(error) if is_gone(&error) => return false,
                    text => text.ok().and_then(|text| DrmClient::read(&text)),
                };
                let Some(client) = told else {
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

/// The numbers among names, ascending; `None` if there are none, or more than are looked at.
fn numbers(names: &[String]) -> Option<Vec<u32>> {
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    (1..=PROCESSES_MOST).contains(&pids.len()).then_some(pids)
}

/// Whether a file of a process is not there any more.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// Whether a link leads to a device of the DRM. In a container's own `/dev` it has the same place.
fn is_of_a_gpu(to: &Path) -> bool {
    to.parent().is_some_and(|folder| folder.ends_with("dri"))
}

fn text(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(BYTES_MOST).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
