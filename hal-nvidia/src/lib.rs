//! NVIDIA GPUs behind the power port, through NVML (`libnvidia-ml.so.1`) loaded at run time.
//!
//! A *card* is a physical GPU, identified only by its UUID: the driver's order changes with a boot or a reload. A MIG
//! instance is never a domain; if the driver lists one, its card is used. A *session* lasts from the initialisation of
//! the library to its shutdown; a handle of an earlier session never reaches the library.
//!
//! # What is read back
//!
//! The read-back is the limit that the card **enforces**: the lowest of the requested limit and those that were set out
//! of band by the BMC or the VBIOS. Less than the wish is therefore no failure, and the port reports it as clamped. The
//! saved original is the limit that was **requested** of the card: the out-of-band limit is not ours to write.
//!
//! # What a reload of the driver does
//!
//! After a reload every handle is void, every limit is the default again, and counters start at zero. The library then
//! answers that it is not initialised, that there is no driver, or that the GPU is lost, all of which are
//! [`Gone`](power_hal::ErrorKind::Gone). The next `describe` begins another session, the domains return under their
//! keys, and `sample` shows the limit that is in force, so that the host restores its own. A card that fell off the bus
//! causes the same answers. It is left out until it is back. Since it can come back only in another session, each
//! `describe` begins a new session until then.
//!
//! # Persistence mode
//!
//! Without it the driver loses a limit as soon as the last program that uses the GPU ends. While a session is open,
//! this process is such a program, so the limit stays. The limit is lost when the agent ends and no job runs, and
//! `sample` shows the default to the next agent. It is lost in the same way when a session must be restarted.
//! [`NvidiaGpuFacts::persistence`] tells whether that can happen; the report of `hil` shows it, and the agent does not.
//! This HAL never switches it on: that is the administrator's decision, and costs idle power.
//!
//! # What is measured
//!
//! The counter of energy since the driver was loaded (Volta and later), which the card updates about every 100 ms: a
//! law uses power over a second or more. Without a counter, the power of the last second is used, else the value of
//! `nvmlDeviceGetPowerUsage`, else the instantaneous power.
//!
//! # What is reported beside power
//!
//! Temperature, utilisation, memory in use, what slows the card (clock event reasons), and for how long its power limit
//! has held it back: the violation counter of the power policy, which only the power limit advances. Memory in use is asked
//! for at every eighth reading, of another card each time, and is at most ten seconds old. A card without that
//! counter says so for the instant, by the reason "software power cap". What a card or a library does not have is not
//! listed: in MIG mode that is the utilisation.
//!
//! # The lock of the clock
//!
//! The driver locks the graphics clock of Volta and later (`nvmlDeviceSetGpuLockedClocks`) between two clocks of its table,
//! here from its lowest one to the wish. It tells the lock to nobody. So the read-back is what the driver has accepted from
//! this HAL in this session, and the sample shows that until the card runs at a higher clock for longer than two seconds:
//! then there is no lock. The only original is that there is none. A lock that somebody else had set is lost when ours is
//! ended. After a restart with an original in the journal it is not known what is locked, and it counts as nothing.
//!
//! # Module scope
//!
//! On Grace Hopper and Grace Blackwell the CPU and the GPU of a module share a limit. With [`LimitScope::Module`] the
//! limit and the meter of each GPU's domain are those of its module. A GPU without such a module then has neither. Two
//! GPUs of one module have the same limit: a sum over domains of this scope counts it twice.
//!
//! # Privileges
//!
//! Reading needs none. Setting a limit or a lock needs root. For a virtual GPU setting is
//! [`NotSupported`](power_hal::ErrorKind::NotSupported) or
//! [`PermissionDenied`](power_hal::ErrorKind::PermissionDenied), which is known only after an attempt.
#![deny(unsafe_code)]

mod error;
mod facts;
#[expect(unsafe_code, reason = "the boundary to the library")]
mod ffi;
mod gauge;
mod hal;
mod islands;
mod library;
mod lock;
mod processes;
mod state;
mod survey;

pub use error::{NvidiaError, NvmlFault, NvmlOperation};
pub use facts::{Mig, MigInstance, NvidiaFacts, NvidiaGpuFacts};
pub use gauge::LimitScope;
pub use hal::{GpuDraw, Nvidia};
pub use library::{Absent, Library};
pub use processes::{NvidiaProcess, NvidiaUse, UseCursor, UseSample};
