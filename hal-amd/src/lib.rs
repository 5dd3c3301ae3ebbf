//! Power caps of AMD GPUs and EPYC sockets behind the power port.
//!
//! One HAL, [`Amd`], over a [`DeviceBackend`]. The backends differ only in how they access the same numbers, the power
//! that is drawn and the cap:
//!
//! - [`Hwmon`]: `power1_cap` of the drivers amdgpu (a GPU) and `amd_hsmp_hwmon` (a socket). The first choice. The clock of an
//!   Instinct GPU can be limited too.
//! - [`Hsmp`]: the mailbox of an EPYC socket through `/dev/hsmp`, for kernels whose driver shows no hwmon yet.
//! - [`Rocm`]: the library `librocm_smi64`, loaded at run time, where the hwmon of the GPUs is not accessible.
//!
//! ```no_run
//! use hal_amd::{Amd, DeviceSelection, Hwmon};
//! use hal_files::Root;
//! use power_hal::{Clock, OriginalsInMemory, PowerHal};
//!
//! fn gpus(clock: impl Clock) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut hal = Amd::open(Hwmon::new(Root::machine(), DeviceSelection::Gpus), clock, OriginalsInMemory::<64>::new())?;
//!     for (_, gpu) in hal.describe()?.iter() {
//!         assert!(gpu.key().as_str().starts_with("gpu-"));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! [`KfdProcesses`] tells which processes compute on the GPUs, for accounts of energy.
//!
//! # What is in force
//!
//! The cap that is read back is the strictest of several: ours, and that of a management controller (out of band),
//! which cannot be distinguished. Less than the wish is therefore normal, and the port reports it as clamped. For the
//! same reason a release is complete when the original was written and nothing above it is in force.
//!
//! # What is no domain
//!
//! A cap holds for a whole device. A partition of a GPU (`amdgpu_xcp.N`) has no cap of its own, and the secondary die
//! of a module, whose largest cap is 0, accepts none. Neither is listed, so that no cap is counted twice.
#![deny(unsafe_code)]

mod error;
#[allow(unsafe_code, reason = "the FFI boundary")]
mod ffi;
mod hsmp;
mod hwmon;
mod kfd;
mod rocm;
mod watts;

pub use error::AmdError;
pub use hal_files::devices::DeviceBackend;
pub use hsmp::{DevHsmp, Hsmp, HsmpCommand, HsmpMessage, Mailbox};
pub use hwmon::{DeviceSelection, Hwmon, clock_in};
pub use kfd::{KfdNode, KfdProcesses, KfdUse};
pub use rocm::{Call, Rocm, RsmiStatus, Where};

/// The devices of a backend.
pub type Amd<B, C, O> = hal_files::devices::CappedDevices<B, C, O>;
