//! A library with the interface of `libnvidia-ml.so.1`. Its GPUs are folders of small text files: a test, the rig or
//! a person controls it by writing files, and reads there what was set.
//!
//! The environment variable `JOULIE_NVML_STUB` names the folder; without it, it is the folder that contains the
//! library. A test copies the library into a folder of its own ([`StubMachine::library`]) and shares nothing with
//! other tests. [`StubMachine`] describes the contents of the folder.
//!
//! It answers as the manual of NVML 12 and the vendor's library do. A limit out of range is refused and not clamped.
//! A missing file is a feature that the card lacks. A card enforces the lower of the limit that was set and the one
//! that was set out of band. After a reload of the driver every call except `nvmlInit_v2` answers that the library is
//! not initialised. A card that was lost once stays lost for its users until they initialise the library again.
//!
//! If there is a folder `nvml` beside the library, that folder is used: the rig presents its GPUs in this way.
#![expect(
    unsafe_code,
    reason = "functions in the shape of C are what this library is for; exports.rs holds them"
)]

mod answers;
mod exports;
mod machine;
mod shape;

pub use machine::{StubGpu, StubMachine, built};

/// The return codes of the library, by their numbers in `nvml.h`.
pub mod code {
    /// Success.
    pub const SUCCESS: u32 = 0;
    /// `nvmlInit_v2` was not called, or the driver was reloaded since.
    pub const UNINITIALIZED: u32 = 1;
    /// An argument is invalid.
    pub const INVALID_ARGUMENT: u32 = 2;
    /// The card does not support this.
    pub const NOT_SUPPORTED: u32 = 3;
    /// Only root may do this.
    pub const NO_PERMISSION: u32 = 4;
    /// There is nothing with this name.
    pub const NOT_FOUND: u32 = 6;
    /// The buffer is too small.
    pub const INSUFFICIENT_SIZE: u32 = 7;
    /// There is no driver.
    pub const DRIVER_NOT_LOADED: u32 = 9;
    /// No answer came in time.
    pub const TIMEOUT: u32 = 10;
    /// The card fell off the bus.
    pub const GPU_IS_LOST: u32 = 15;
    /// A control group denies this process access to the card.
    pub const OPERATING_SYSTEM: u32 = 17;
    /// The library and the driver have different versions.
    pub const LIB_RM_VERSION_MISMATCH: u32 = 18;
    /// Another process uses it.
    pub const IN_USE: u32 = 19;
    /// A structure has another version.
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    /// An unknown error.
    pub const UNKNOWN: u32 = 999;
}

/// The functions that do not refer to a card. They can be made to fail for the whole machine.
pub const OF_THE_MACHINE: [&str; 5] = [
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlInit_v2",
    "nvmlSystemGetDriverVersion",
];

/// The functions that refer to one card, including the two that find it.
pub const OF_A_CARD: [&str; 33] = [
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetSupportedGraphicsClocks",
    "nvmlDeviceGetSupportedMemoryClocks",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceIsMigDeviceHandle",
    "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceSetPowerManagementLimit",
    "nvmlDeviceSetPowerManagementLimit_v2",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_exported_function_is_in_a_list() {
        let words =
            include_str!("exports.rs").split(|letter: char| letter != '_' && !letter.is_alphanumeric());
        let is_function = |word: &&str| {
            let function = word.strip_prefix("nvml").filter(|_| !word.ends_with("_t"));
            function.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        };
        let exported: BTreeSet<&str> = words.filter(is_function).collect();
        // Ending a session always succeeds here.
        let listed: BTreeSet<&str> =
            OF_THE_MACHINE.into_iter().chain(OF_A_CARD).chain(["nvmlShutdown"]).collect();
        assert_eq!(exported, listed);
    }
}
