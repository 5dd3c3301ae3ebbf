//! A library with the face of `libnvidia-ml.so.1`: its GPUs are folders of small text files, so that a test, the rig or
//! a person drives it by writing files, and sees what was set by reading them.
//!
//! Where the folder is, is said by the environment variable `JOULIE_NVML_STUB`; without it, it is the folder in which
//! the library itself lies. A test copies the library into a folder of its own ([`StubMachine::library`]) and shares
//! nothing with the tests beside it. What is in the folder is described at [`StubMachine`].
//!
//! It answers as the manual of NVML 12 and the vendor's library do: a limit out of range is refused and not clamped, a
//! file that is missing is a feature that the card does not have, what a card enforces is the lower of the limit that
//! was set and the one that was set out of band, and after a reload of the driver every call but `nvmlInit_v2` answers
//! that the library is not initialised. A card that was lost once stays lost for whoever saw it, until that one
//! initialises the library anew.
//!
//! Where the folder `nvml` lies beside the library, it answers from that one: so does the rig show its GPUs.
#![expect(
    unsafe_code,
    reason = "functions in the shape of C are what this library is for; exports.rs holds them"
)]

mod answers;
mod exports;
mod machine;
mod shape;

pub use machine::{StubGpu, StubMachine, built};

/// Answers of the library, by their numbers in `nvml.h`.
pub mod code {
    /// It was done.
    pub const SUCCESS: u32 = 0;
    /// `nvmlInit_v2` was not called, or the driver is another one since.
    pub const UNINITIALIZED: u32 = 1;
    /// A value that is not one.
    pub const INVALID_ARGUMENT: u32 = 2;
    /// The card does not have this.
    pub const NOT_SUPPORTED: u32 = 3;
    /// Only root may do this.
    pub const NO_PERMISSION: u32 = 4;
    /// Nothing has this name.
    pub const NOT_FOUND: u32 = 6;
    /// The buffer is too small.
    pub const INSUFFICIENT_SIZE: u32 = 7;
    /// There is no driver.
    pub const DRIVER_NOT_LOADED: u32 = 9;
    /// No answer came in time.
    pub const TIMEOUT: u32 = 10;
    /// The card fell off the bus.
    pub const GPU_IS_LOST: u32 = 15;
    /// A control group does not let this process at the card.
    pub const OPERATING_SYSTEM: u32 = 17;
    /// The library is of another version than the driver.
    pub const LIB_RM_VERSION_MISMATCH: u32 = 18;
    /// Somebody else holds it.
    pub const IN_USE: u32 = 19;
    /// A structure of another version.
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    /// Nobody knows.
    pub const UNKNOWN: u32 = 999;
}

/// The functions that the library answers before it knows of which card, and that can be made to fail for all of them.
pub const OF_THE_MACHINE: [&str; 5] = [
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlInit_v2",
    "nvmlSystemGetDriverVersion",
];

/// The functions that are about one card, the two that find it included.
pub const OF_A_CARD: [&str; 24] = [
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMemoryInfo_v2",
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
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceIsMigDeviceHandle",
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
        // To end a session always succeeds here.
        let listed: BTreeSet<&str> =
            OF_THE_MACHINE.into_iter().chain(OF_A_CARD).chain(["nvmlShutdown"]).collect();
        assert_eq!(exported, listed);
    }
}
