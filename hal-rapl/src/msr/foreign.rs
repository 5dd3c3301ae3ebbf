//! Registers through the msru crate: the machine's own /dev/cpu, always opened for writing, one descriptor for each
//! register.

use super::device::fault;
use super::{MsrFault, MsrIo};
use hal_files::Access;
use msru::{Accessor, Msr, MsrError};
use power_hal::ErrorKind;
use std::collections::BTreeMap;
use std::fmt;

/// The machine's registers. Each stays open after its first use.
#[derive(Default)]
pub struct Msru {
    open: BTreeMap<(u16, u32), Msr>,
}

impl Msru {
    /// Each is opened at its first use.
    #[must_use]
    pub const fn new() -> Self {
        Self { open: BTreeMap::new() }
    }

    fn register(&mut self, cpu: u16, register: u32) -> Result<&mut Msr, MsrError> {
        use std::collections::btree_map::Entry;
        match self.open.entry((cpu, register)) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(free) => Ok(free.insert(Msr::new(register, cpu)?)),
        }
    }

    /// Builds the fault. A register that is gone is opened again at the next access.
    fn fault(&mut self, cpu: u16, register: u32, access: Access, error: &MsrError) -> MsrFault {
        let fault = match error {
            MsrError::IoError(error) => fault(cpu, register, access, error),
            // The crate reports this for every path that it cannot find.
            MsrError::MissingKernelModule => {
                MsrFault { cpu, register, access, kind: ErrorKind::Gone, errno: None }
            }
            MsrError::UnknownError => MsrFault { cpu, register, access, kind: ErrorKind::Io, errno: None },
        };
        if fault.kind == ErrorKind::Gone {
            self.open.remove(&(cpu, register));
        }
        fault
    }
}

impl fmt::Debug for Msru {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.open.keys()).finish()
    }
}

impl MsrIo for Msru {
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault> {
        let value = self.register(cpu, register).and_then(|open| open.read());
        value.map_err(|error| self.fault(cpu, register, Access::Read, &error))
    }

    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault> {
        let wrote = self.register(cpu, register).and_then(|open| {
            open.set_value(value);
            open.write()
        });
        wrote.map_err(|error| self.fault(cpu, register, Access::ReadWrite, &error))
    }
}
