//! Registers through /dev/cpu below a root, opened read-only if nothing will be written.

use super::{MsrFault, MsrIo};
use hal_files::{Access, Root};
use power_hal::{ErrorKind, Surface};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The driver of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The kernel's own: `/dev/cpu/N/msr`.
    Msr,
    /// msr-safe: `/dev/cpu/N/msr_safe`, through which a process without privileges can read and
    /// write the registers of its allow-list.
    MsrSafe,
}

/// The register devices below a root. The device of each processor stays open after its first use.
#[derive(Debug)]
pub struct MsrDevices {
    root: Root,
    kind: DeviceKind,
    access: Access,
    open: BTreeMap<u16, File>,
}

impl MsrDevices {
    /// The devices below a root; each is opened at its first use.
    #[must_use]
    pub const fn new(root: Root, kind: DeviceKind, access: Access) -> Self {
        Self { root, kind, access, open: BTreeMap::new() }
    }

    fn file(&mut self, cpu: u16) -> io::Result<&File> {
        use std::collections::btree_map::Entry;
        match self.open.entry(cpu) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(free) => {
                let name = match self.kind {
                    DeviceKind::Msr => "msr",
                    DeviceKind::MsrSafe => "msr_safe",
                };
                let path = self.root.join(&format!("dev/cpu/{cpu}/{name}"));
                let writes = self.access == Access::ReadWrite;
                Ok(free.insert(OpenOptions::new().read(true).write(writes).open(path)?))
            }
        }
    }

    /// Builds the fault. A device that is gone is opened again at the next access.
    fn fault(&mut self, cpu: u16, register: u32, access: Access, error: &io::Error) -> MsrFault {
        let fault = fault(cpu, register, access, error);
        if fault.kind == ErrorKind::Gone {
            self.open.remove(&cpu);
        }
        fault
    }
}

/// The port's kind for an error of the device: EPERM is lockdown or `msr.allow_writes=off`, EIO a
/// register that does not exist or does not accept the value, ENXIO a processor that is offline.
pub(super) fn fault(cpu: u16, register: u32, access: Access, error: &io::Error) -> MsrFault {
    let errno = error.raw_os_error();
    let kind = match errno {
        Some(number) => ErrorKind::from_errno(number, Surface::Device),
        None if error.kind() == io::ErrorKind::UnexpectedEof => ErrorKind::BadData,
        None => ErrorKind::Io,
    };
    MsrFault { cpu, register, access, kind, errno }
}

impl MsrIo for MsrDevices {
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault> {
        let mut bytes = [0; 8];
        let read = self.file(cpu).and_then(|file| file.read_exact_at(&mut bytes, register.into()));
        read.map_err(|error| self.fault(cpu, register, Access::Read, &error))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault> {
        let access = Access::ReadWrite;
        if self.access == Access::Read {
            return Err(MsrFault { cpu, register, access, kind: ErrorKind::PermissionDenied, errno: None });
        }
        // One call for all eight bytes: a partial write would change the register's meaning.
        let wrote = self.file(cpu).and_then(|file| file.write_at(&value.to_le_bytes(), register.into()));
        match wrote {
            Ok(8) => Ok(()),
            Ok(_) => Err(MsrFault { cpu, register, access, kind: ErrorKind::Io, errno: None }),
            Err(error) => Err(self.fault(cpu, register, access, &error)),
        }
    }
}
