//! The structures of `nvml.h` that the library fills in, with their sizes on x86-64 and arm64. They are defined
//! independently, so that a mistake in the bindings under test is detected.

use std::ffi::{c_char, c_int, c_longlong, c_uchar, c_uint, c_ulonglong};

pub(crate) const PCI_TEXT: usize = 32;

/// `nvmlPciInfo_t`.
#[repr(C)]
pub(crate) struct PciInfo {
    pub(crate) legacy: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) device_id: c_uint,
    pub(crate) subsystem_id: c_uint,
    pub(crate) text: [c_char; PCI_TEXT],
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub(crate) struct Memory {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlUtilization_t`: percent of the time in which a kernel ran.
#[repr(C)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// `nvmlProcessUtilizationSample_t`: percent of the time in which a process computed.
#[repr(C)]
pub(crate) struct ProcessSample {
    pub(crate) pid: c_uint,
    pub(crate) timestamp: c_ulonglong,
    pub(crate) sm: c_uint,
    pub(crate) memory: c_uint,
    pub(crate) encoder: c_uint,
    pub(crate) decoder: c_uint,
}

/// `nvmlFieldValue_t`, whose value is a union of 8 bytes.
#[repr(C)]
pub(crate) struct FieldValue {
    pub(crate) field: c_uint,
    pub(crate) scope: c_uint,
    pub(crate) timestamp: c_longlong,
    pub(crate) latency: c_longlong,
    pub(crate) kind: c_int,
    pub(crate) answer: c_uint,
    pub(crate) value: c_ulonglong,
}

/// `nvmlPowerValue_v2_t`.
#[repr(C)]
pub(crate) struct PowerValue {
    pub(crate) version: c_uint,
    pub(crate) scope: c_uchar,
    pub(crate) milliwatts: c_uint,
}

/// `NVML_STRUCT_VERSION(Memory, 2)`: the size, and the version in the highest byte.
pub(crate) const MEMORY_V2: c_uint = 40 | (2 << 24);
/// `NVML_STRUCT_VERSION(PowerValue, 2)`.
pub(crate) const POWER_VALUE_V2: c_uint = 12 | (2 << 24);

const _: () = assert!(size_of::<PciInfo>() == 68);
const _: () = assert!(size_of::<Memory>() == 40);
const _: () = assert!(size_of::<Utilization>() == 8);
const _: () = assert!(size_of::<ProcessSample>() == 32);
const _: () = assert!(size_of::<FieldValue>() == 40);
const _: () = assert!(size_of::<PowerValue>() == 12);
