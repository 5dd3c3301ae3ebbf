//! The meaning of the kernel's error numbers. The same number means different things on different surfaces, and
//! powercap's wrappers replace the driver's own answer, so the surface must be named.

use crate::ErrorKind;

/// Where an error number came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// A read of a powercap file. A register that cannot be read answers ENODATA, an energy counter EINVAL.
    PowercapRead,
    /// A write to a powercap file. A limit that the firmware has locked answers ENODATA, its `enabled` ENOSYS.
    PowercapWrite,
    /// Everything else: cpufreq, hwmon, the MSR device, HSMP.
    Device,
}

impl ErrorKind {
    /// The meaning of a Linux error number on `surface`. An unknown number is an I/O error.
    ///
    /// ```
    /// use power_hal::{ErrorKind, Surface};
    /// const ENODATA: i32 = 61;
    /// assert_eq!(ErrorKind::from_errno(ENODATA, Surface::PowercapWrite), ErrorKind::Locked);
    /// assert_eq!(ErrorKind::from_errno(ENODATA, Surface::Device), ErrorKind::BadData);
    /// ```
    #[must_use]
    pub const fn from_errno(errno: i32, surface: Surface) -> Self {
        match (errno, surface) {
            (ENODATA | ENOSYS, Surface::PowercapWrite) => Self::Locked,
            (ENODATA | EINVAL, Surface::PowercapRead) => Self::Io,
            (ENODATA, Surface::Device) => Self::BadData,
            (EACCES | EPERM | EROFS, _) => Self::PermissionDenied,
            (EINVAL | ERANGE, _) => Self::OutOfRange,
            (EBUSY | EAGAIN, _) => Self::Busy,
            (ENODEV | ENXIO | ENOENT, _) => Self::Gone,
            (ETIMEDOUT, _) => Self::Timeout,
            (ENOMSG | EOPNOTSUPP | ENOSYS | ENOTTY, _) => Self::NotSupported,
            _ => Self::Io,
        }
    }
}

// The numbers of Linux on x86-64 and arm64 (asm-generic).
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ENXIO: i32 = 6;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOTTY: i32 = 25;
const EROFS: i32 = 30;
const ERANGE: i32 = 34;
const ENOSYS: i32 = 38;
const ENOMSG: i32 = 42;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{BadData, Busy, Gone, Io, Locked, NotSupported, OutOfRange, PermissionDenied, Timeout};
    use Surface::{Device, PowercapRead, PowercapWrite};

    fn on(surface: Surface, expected: ErrorKind, numbers: &[i32]) {
        for &number in numbers {
            assert_eq!(ErrorKind::from_errno(number, surface), expected, "{number} on {surface:?}");
        }
    }

    fn everywhere(expected: ErrorKind, numbers: &[i32]) {
        for surface in [PowercapRead, PowercapWrite, Device] {
            on(surface, expected, numbers);
        }
    }

    #[test]
    fn enodata_and_enosys_mean_locked_where_a_powercap_limit_is_written() {
        on(PowercapWrite, Locked, &[61, 38]);
    }

    #[test]
    fn enodata_and_enosys_mean_no_lock_anywhere_else() {
        on(PowercapRead, Io, &[61]);
        on(PowercapRead, NotSupported, &[38]);
        on(Device, BadData, &[61]);
        on(Device, NotSupported, &[38]);
    }

    #[test]
    fn an_energy_counter_that_cannot_be_read_is_not_a_value_out_of_range() {
        on(PowercapRead, Io, &[22]);
    }

    #[test]
    fn eacces_eperm_and_erofs_mean_permission_denied() {
        everywhere(PermissionDenied, &[13, 1, 30]);
    }

    #[test]
    fn einval_and_erange_mean_out_of_range_where_something_is_written() {
        on(PowercapWrite, OutOfRange, &[22, 34]);
        on(Device, OutOfRange, &[22, 34]);
    }

    #[test]
    fn ebusy_and_eagain_mean_busy() {
        everywhere(Busy, &[16, 11]);
    }

    #[test]
    fn enodev_enxio_and_enoent_mean_gone() {
        everywhere(Gone, &[19, 6, 2]);
    }

    #[test]
    fn etimedout_means_timeout() {
        everywhere(Timeout, &[110]);
    }

    #[test]
    fn enomsg_and_eopnotsupp_mean_not_supported() {
        everywhere(NotSupported, &[42, 95, 25]);
    }

    #[test]
    fn eio_and_whatever_has_no_name_mean_io() {
        everywhere(Io, &[5, 0, -1, 12, 133, i32::MAX, i32::MIN]);
    }
}
