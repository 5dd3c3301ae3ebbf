//! The calls of the library, and its status codes.

use power_hal::ErrorKind;
use std::fmt;

/// A function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `rsmi_init`.
    Init,
    /// `rsmi_num_monitor_devices`.
    Count,
    /// `rsmi_dev_pci_id_get`.
    PciId,
    /// `rsmi_dev_power_get`, or `rsmi_dev_power_ave_get` of older libraries.
    Power,
    /// `rsmi_dev_power_cap_get`.
    Cap,
    /// `rsmi_dev_power_cap_range_get`.
    Range,
    /// `rsmi_dev_power_cap_default_get`.
    Default,
    /// `rsmi_dev_power_cap_set`.
    SetCap,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "rsmi_init",
            Self::Count => "rsmi_num_monitor_devices",
            Self::PciId => "rsmi_dev_pci_id_get",
            Self::Power => "rsmi_dev_power_get",
            Self::Cap => "rsmi_dev_power_cap_get",
            Self::Range => "rsmi_dev_power_cap_range_get",
            Self::Default => "rsmi_dev_power_cap_default_get",
            Self::SetCap => "rsmi_dev_power_cap_set",
        })
    }
}

/// `rsmi_status_t`, other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RsmiStatus(pub u32);

impl RsmiStatus {
    /// A function that the library does not have.
    pub(crate) const NOT_SUPPORTED: Self = Self(2);
    /// The answer to a start on a machine without a GPU driver.
    pub(crate) const INIT_ERROR: Self = Self(8);

    /// The kind to branch on. An unknown status is an I/O error.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self.0 {
            // Invalid arguments, input out of bounds.
            1 | 7 => ErrorKind::OutOfRange,
            // Not supported, not yet implemented, setting unavailable.
            2 | 9 | 18 => ErrorKind::NotSupported,
            4 => ErrorKind::PermissionDenied,
            // An item was not found.
            10 => ErrorKind::Gone,
            // Unexpected size, no data, unexpected data.
            13..=15 => ErrorKind::BadData,
            // Interrupted, busy.
            12 | 16 => ErrorKind::Busy,
            _ => ErrorKind::Io,
        }
    }
}

impl fmt::Display for RsmiStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {})", self.kind(), self.0)
    }
}
