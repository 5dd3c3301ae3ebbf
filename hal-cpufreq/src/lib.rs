//! Frequency policies of Linux (cpufreq) behind the power port.
//!
//! A *policy* is a folder `sys/devices/system/cpu/cpufreq/policyN`: CPUs that share one frequency request. Only these
//! folders are listed; `cpuN/cpufreq` are links to them, and to follow both would list a policy once for itself and
//! once for each of its CPUs. A policy is known by the lowest CPU that it covers, online or not. Policies whose CPUs
//! are threads of one core carry one group ([`Covers::group`](power_hal::Covers::group)): a core runs at the highest
//! request of its threads, so a law that lowers one thread alone lowers nothing.
//!
//! # What is written
//!
//! `scaling_max_freq`, and nothing else; never `scaling_min_freq`, which the kernel shows lowered by itself while the
//! maximum lies below it, and shows as before afterwards. The kernel clamps without a word, reads `2400000xyz` as
//! 2.4 GHz and 2³² as nothing; none of it can happen, because the port clamps before, a frequency fits 31 bits, and
//! only digits are written. Where the driver has a table, the highest entry that is not above the wish is written, so
//! that what is read back is what the hardware was told, on kernels that show the table's entry and on those that do
//! not.
//!
//! # What is read back
//!
//! The kernel answers a write before a worker has brought it into force, so what reads as before the write is read again
//! for up to 200 ms: never is a limit reported that is not in force. Where another request keeps the limit lower, that
//! wait passes once, and not again while the limit stays there.
//!
//! The lowest of all requests: ours, the thermal framework's, the platform's. Less than the wish is therefore normal,
//! and the port calls it clamped. More than the wish means that somebody else wrote the same file, and is answered as it
//! is. [`Cpufreq::standing`] tells the two apart later on. Nobody can read the request itself, so the saved original is
//! what was in force, and a limit that was in force only because the machine was hot becomes the administrator's.
//!
//! A write is left out only if the last write of this HAL to that policy was the same value, and the file still reads
//! what it read back then. That the file reads the wanted value is not enough: it may be somebody else's request that
//! holds it there.
//!
//! # What a frequency is worth
//!
//! `cpuinfo_avg_freq`, where the kernel has it, is counted by the hardware over the last milliseconds; it has no answer
//! for a CPU that idles. `scaling_cur_freq` is what is left then. On x86 with the counters APERF and MPERF it is counted
//! too, by every driver, but a CPU that idled shows an old value. On a machine without them, a virtual one, it is the
//! frequency that the driver asked for last: an echo of the limit. Either is said of one CPU of the policy.
//!
//! # CPUs that are offline
//!
//! When all CPUs of a policy are offline, the kernel answers EBUSY for each of its files. The policy stays described,
//! as it was read before; reading and setting it is [`Busy`](power_hal::ErrorKind::Busy), and its limit is still in
//! force when a CPU comes back. A policy that was never seen online cannot be described and is a complaint
//! ([`Cpufreq::complaints`]). An offline CPU has no topology; what was known of it before still holds.
//!
//! A driver that is loaded anew has forgotten all limits: the old descriptors answer ENODEV, which is
//! [`Gone`](power_hal::ErrorKind::Gone); the next `describe` opens the files again, and `sample` then shows the maximum.
#![forbid(unsafe_code)]

mod driver;
mod error;
mod hal;
mod policy;
mod slot;
mod standing;
mod survey;
mod table;
mod topology;

pub use driver::Driver;
pub use error::{CpufreqError, CpufreqFault};
pub use hal::Cpufreq;
pub use policy::CpufreqPolicy;
pub use standing::LimitStatus;
pub use table::FrequencyTable;
