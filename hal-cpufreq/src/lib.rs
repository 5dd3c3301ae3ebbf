//! Frequency policies of Linux (cpufreq) behind the power port.
//!
//! A *policy* is a folder `sys/devices/system/cpu/cpufreq/policyN`: CPUs that share one frequency request. Only these
//! folders are listed; `cpuN/cpufreq` are links to them, and with both a policy would be listed once for itself and
//! once for each of its CPUs. A policy is identified by the lowest CPU that it covers, online or not. Policies whose
//! CPUs are threads of one core have the same group ([`Covers::group`](power_hal::Covers::group)): a core runs at the
//! highest request of its threads, so lowering one thread alone has no effect.
//!
//! # What is written
//!
//! Only `scaling_max_freq` is written. `scaling_min_freq` is never written; the kernel itself shows it lowered while
//! the maximum is below it, and shows the old value afterwards. The kernel clamps silently, reads `2400000xyz` as 2.4
//! GHz and 2³² as zero. None of this can happen here, because the port clamps before, a frequency fits in 31 bits, and
//! only digits are written. If the driver has a table, the highest entry that is not above the wish is written. So the
//! read-back is the value that the hardware got, on kernels that show the table's entry and on those that do not.
//!
//! # What is read back
//!
//! The kernel answers a write before a worker has brought it into force. So a value that is unchanged since before the
//! write is read again for up to 200 ms: a limit that is not in force is never reported. Where another request keeps
//! the limit lower, that wait happens once, and not again while the limit stays there.
//!
//! The read-back is the lowest of all requests: ours, that of the thermal framework, that of the platform. Less than
//! the wish is therefore normal, and the port reports it as clamped. More than the wish means that somebody else wrote
//! the same file, and is reported as it is. [`Cpufreq::standing`] distinguishes the two later. The request itself
//! cannot be read. So the saved original is the limit that was in force, and a limit that was in force only because the
//! machine was hot is restored as if it were the administrator's.
//!
//! A write is skipped only if the last write of this HAL to that policy was the same value, and the file still reads
//! what was read back then. It does not suffice that the file reads the wanted value: another writer's request may hold
//! it there.
//!
//! # What a frequency reading means
//!
//! `cpuinfo_avg_freq`, where the kernel has it, is counted by the hardware over the last milliseconds; it has no value
//! for an idle CPU. Then `scaling_cur_freq` is used. On x86 with the counters APERF and MPERF it is counted too, by
//! every driver, but shows an old value for a CPU that was idle. On a machine without these counters, such as a virtual
//! one, it is the last frequency that the driver requested: an echo of the limit. Both describe one CPU of the policy.
//!
//! # CPUs that are offline
//!
//! When all CPUs of a policy are offline, the kernel answers EBUSY for each of its files. The policy stays described as
//! it was last read; reading and setting it is [`Busy`](power_hal::ErrorKind::Busy), and its limit is still in force
//! when a CPU comes back. A policy that was never seen online cannot be described and is a complaint
//! ([`Cpufreq::complaints`]). An offline CPU has no topology; the last known topology is used.
//!
//! A reloaded driver has lost all limits: the old descriptors answer ENODEV, which is
//! [`Gone`](power_hal::ErrorKind::Gone). The next `describe` opens the files again, and `sample` then shows the
//! maximum.
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
pub use hal::{Cpufreq, limit_in};
pub use policy::CpufreqPolicy;
pub use standing::LimitStatus;
pub use table::FrequencyTable;
