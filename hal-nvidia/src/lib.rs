//! NVIDIA GPUs behind the power port, through NVML (`libnvidia-ml.so.1`) loaded at run time.
//!
//! A *card* is a physical GPU, known by its UUID and by nothing else: the driver's order is another one after a boot or
//! a reload. A MIG instance is never a domain; where the driver lists one, its card is. A *session* lasts from
//! initialising the library to ending that; a handle of an earlier session never reaches the library.
//!
//! # What is read back
//!
//! The limit that the card **enforces**, which is the lowest of the one that was asked of it and those that were set
//! out of band by the BMC or the VBIOS. Less than the wish is therefore no failure, and the port calls it clamped. The
//! saved original is the limit that was **asked** of the card: the out-of-band one is not ours to write.
//!
//! # What a reload of the driver does
//!
//! Every handle is void, every limit is the default again, counters begin at zero. The library then answers that it is
//! not initialised, that there is no driver, or that the GPU is lost, all of which are
//! [`Gone`](power_hal::ErrorKind::Gone); the next `describe` begins another session, the domains come back under their
//! keys, and `sample` shows the limit that is in force, so that the host re-asserts its own. The same answers come from
//! a card that fell off the bus: it is left out until it is back, and as it can come back in another session only, each
//! `describe` begins one until then.
//!
//! # Persistence mode
//!
//! Without it the driver forgets a limit as soon as the last program that uses the GPU ends. While a session is open,
//! this one is such a program, so the limit stays; it is lost when the agent ends and no job runs, and `sample` shows
//! the default to the next agent. It is lost in the same way when a session has to begin anew.
//! [`NvidiaGpuFacts::persistence`] says whether that can happen; the report of `hil` shows it, and the agent does not. It is never
//! switched on here: it is the administrator's, and costs idle power.
//!
//! # What is measured
//!
//! The counter of energy since the driver was loaded (Volta and later), which the card updates every 100 ms or so: a
//! law takes power over a second or more. Where there is none, the power of the last second, else what
//! `nvmlDeviceGetPowerUsage` says, else that of the instant.
//!
//! # Module scope
//!
//! On Grace Hopper and Grace Blackwell the CPU and the GPU of a module share a limit. [`LimitScope::Module`] makes that the
//! limit, and the module's meter the meter, of each GPU's domain. A GPU that sits on no such module then has neither.
//! Two GPUs of one module have the same limit: whoever sums up domains of this scope counts it twice.
//!
//! # Privileges
//!
//! Reading needs none. Setting needs root; in a virtual GPU it is [`NotSupported`](power_hal::ErrorKind::NotSupported)
//! or [`PermissionDenied`](power_hal::ErrorKind::PermissionDenied), which is only known once it is tried.
#![deny(unsafe_code)]

mod error;
mod facts;
#[expect(unsafe_code, reason = "the boundary to the library")]
mod ffi;
mod gauge;
mod hal;
mod islands;
mod library;
mod survey;

pub use error::{NvidiaError, NvmlFault, NvmlOperation};
pub use facts::{Mig, NvidiaFacts, NvidiaGpuFacts};
pub use gauge::LimitScope;
pub use hal::{GpuDraw, Nvidia};
pub use library::{Absent, Library};
