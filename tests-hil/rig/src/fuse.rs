//! The virtual files, mounted. Every file is opened for direct I/O, so that each read and write reaches the machine:
//! the file size is ignored, nothing is cached, and an offset may be the number of a register.

use crate::hsmp;
use crate::library::{self, Libraries};
use crate::machine::{Shared, VirtualAttribute};
use crate::tree::TreeEntry;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyIoctl, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// The kernel must not cache any answer.
const NO_CACHE: Duration = Duration::ZERO;
/// Except of the folders that a machine has for as long as it is mounted. The kernel asks for each folder of a path, and
/// for the right to enter it, at every open.
const LASTING: [&str; 7] =
    ["", "dev", "sys", "sys/class", "sys/devices", "sys/devices/system", "sys/devices/system/cpu"];
const LASTS: Duration = Duration::from_secs(3_600);
/// Several threads, so that a file that hangs does not block the others.
const THREADS: usize = 4;

/// A mounted machine. Dropping it unmounts the files, and then removes the copies of its libraries.
pub struct Mounted {
    _session: fuser::BackgroundSession,
    _libraries: Option<Libraries>,
}

/// Mounts a machine's files on a folder.
///
/// # Errors
/// If the kernel refuses the mount (no FUSE device, no privilege), or the machine has GPUs and their stub libraries
/// were not built.
pub fn mount(machine: Shared, on: &Path) -> std::io::Result<Mounted> {
    let mut options = fuser::Config::default();
    options.mount_options =
        vec![fuser::MountOption::FSName("rig".into()), fuser::MountOption::DefaultPermissions];
    options.n_threads = Some(THREADS);
    options.acl = fuser::SessionACL::All;
    let libraries = libraries_of(&machine)?;
    let files = Files { machine, names: Mutex::new(Names::new()) };
    let mounted = Mounted { _session: fuser::spawn_mount(files, on, &options)?, _libraries: libraries };
    // A thread that loads a library from here holds the loader's lock while it waits for this server, and starting a
    // thread takes that lock. If both are in one process, a server thread must run before.
    std::fs::metadata(on)?;
    Ok(mounted)
}

/// The libraries that present the machine's GPUs; files of the machine link to them.
fn libraries_of(machine: &Shared) -> std::io::Result<Option<Libraries>> {
    let mut machine = machine.lock();
    let mut packages = Vec::new();
    if !machine.nvidia().is_empty() {
        packages.push(("nvml-stub", library::NVML));
    }
    if !machine.rocm_order().is_empty() {
        packages.push(("rocm-stub", library::ROCM));
    }
    let libraries = Libraries::copy(&packages)?;
    machine.libraries = libraries.as_ref().map(|libraries| libraries.folder().to_owned());
    machine.settle();
    Ok(libraries)
}

/// Inode numbers, each assigned once and permanently to a file at a path, also if a file is replaced by another one.
struct Names {
    by_path: BTreeMap<(String, u64), u64>,
    by_inode: BTreeMap<u64, (String, u64)>,
}

impl Names {
    fn new() -> Self {
        let root = (String::new(), 0);
        Self { by_path: BTreeMap::from([(root.clone(), 1)]), by_inode: BTreeMap::from([(1, root)]) }
    }

    fn inode(&mut self, path: &str, edition: u64) -> u64 {
        let file = (path.to_owned(), edition);
        if let Some(&known) = self.by_path.get(&file) {
            return known;
        }
        let next = self.by_inode.len() as u64 + 1;
        self.by_path.insert(file.clone(), next);
        self.by_inode.insert(next, file);
        next
    }
}

struct Files {
    machine: Shared,
    names: Mutex<Names>,
}

impl Files {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, inode: INodeNo) -> Result<(String, u64), Errno> {
        self.names().by_inode.get(&u64::from(inode)).cloned().ok_or(Errno::ENOENT)
    }

    fn entry(&self, inode: INodeNo) -> Result<(String, TreeEntry), Errno> {
        let (path, edition) = self.path(inode)?;
        let machine = self.machine.lock();
        let current = machine.edition(&path) == edition;
        let entry = machine.tree().get(&path).filter(|_| current).cloned().ok_or(Errno::ENODEV)?;
        Ok((path, entry))
    }

    fn attribute(&self, inode: INodeNo) -> Result<VirtualAttribute, Errno> {
        match self.entry(inode)? {
            (_, TreeEntry::File(_, attribute)) => Ok(attribute),
            _ => Err(Errno::EISDIR),
        }
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Result<(FileAttr, Duration), Errno> {
        let name = name.to_str().ok_or(Errno::ENOENT)?;
        let (folder, _) = self.path(parent)?;
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let machine = self.machine.lock();
        let entry = machine.tree().get(&path).cloned().ok_or(Errno::ENOENT)?;
        Ok((stat(self.names().inode(&path, machine.edition(&path)), &entry), lasts(&path)))
    }

    fn list(&self, inode: INodeNo) -> Result<Vec<(u64, FileType, String)>, Errno> {
        let (path, _) = self.path(inode)?;
        let machine = self.machine.lock();
        let mut names = self.names();
        let mut all =
            vec![(1, FileType::Directory, ".".to_owned()), (1, FileType::Directory, "..".to_owned())];
        for (name, entry) in machine.tree().children(&path) {
            let full = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            all.push((names.inode(&full, machine.edition(&full)), kind(entry), name.to_owned()));
        }
        Ok(all)
    }
}

/// For how long the kernel may cache what is at a path.
fn lasts(path: &str) -> Duration {
    if LASTING.contains(&path) { LASTS } else { NO_CACHE }
}

fn kind(entry: &TreeEntry) -> FileType {
    match entry {
        TreeEntry::Folder => FileType::Directory,
        TreeEntry::Link(_) => FileType::Symlink,
        TreeEntry::File(..) => FileType::RegularFile,
    }
}

fn stat(inode: u64, entry: &TreeEntry) -> FileAttr {
    let perm = match entry {
        TreeEntry::Folder => 0o755,
        TreeEntry::Link(_) => 0o777,
        TreeEntry::File(mode, _) => *mode,
    };
    FileAttr {
        ino: INodeNo(inode),
        // sysfs reports this for every attribute.
        size: 4096,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: kind(entry),
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.child(parent, name) {
            Ok((attr, lasts)) => reply.entry(&lasts, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.entry(inode) {
            Ok((path, entry)) => reply.attr(&lasts(&path), &stat(inode.into(), &entry)),
            Err(error) => reply.error(error),
        }
    }

    // Truncation, which `echo >` requests, has no effect on an attribute.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.entry(inode) {
            Ok((_, entry)) => reply.attr(&NO_CACHE, &stat(inode.into(), &entry)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.entry(inode) {
            Ok((_, TreeEntry::Link(target))) => reply.data(target.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    // The handle stores the access mode of the open file.
    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mode = u64::from((flags.0 & libc::O_ACCMODE).unsigned_abs());
        match self.attribute(inode) {
            Ok(_) => reply.opened(FileHandle(mode), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let answer = self
            .attribute(inode)
            .and_then(|attribute| self.machine.read(&attribute, offset, size).map_err(Errno::from_i32));
        match answer {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let answer = self
            .attribute(inode)
            .and_then(|attribute| self.machine.write(&attribute, offset, data).map_err(Errno::from_i32));
        match answer {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        }
    }

    fn ioctl(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let answer = match self.attribute(inode) {
            Ok(VirtualAttribute::Hsmp) => hsmp::ioctl(&self.machine, u64::from(handle), command, data),
            Ok(_) => Err(libc::ENOTTY),
            Err(error) => return reply.error(error),
        };
        match answer {
            Ok(data) => reply.ioctl(0, &data),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.list(inode) {
            Ok(all) => {
                let skip = usize::try_from(offset).unwrap_or(usize::MAX);
                for (at, (inode, kind, name)) in (1_u64..).zip(all).skip(skip) {
                    if reply.add(INodeNo(inode), at, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }
}
