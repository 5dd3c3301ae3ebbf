//! Bounds of facts from outside: telemetry, labels, resources, NodeHardware. A count beyond its bound is treated as
//! missing, and the next source is used. It is never cut to the bound, because then the false count would be accepted.

use power_units::Watts;

/// The most packages of a node. The largest machines that run one kernel have 32 sockets.
pub const SOCKETS_MAX: u32 = 64;

/// The most GPUs of a node. The largest composed machines have 32; a device plugin that shares each of 8 GPUs among 8
/// containers offers 64.
pub const GPUS_MAX: u32 = 64;

/// The most logical processors of a node: the kernel's own limit (`NR_CPUS` on x86-64 with `MAXSMP`).
pub const PROCESSORS_MAX: u32 = 8192;

/// The most watts of a package. Processors of 600 W are sold; no socket supplies 4 kW.
pub const PACKAGE_MAX: Watts = Watts::from_int(4000);

/// The most watts of a GPU. Boards of 1.4 kW are sold, and 3.6 kW are announced for four dies on one board.
pub const GPU_MAX: Watts = Watts::from_int(4000);

/// A valid count: above zero, and within its bound.
#[must_use]
pub fn bounded(count: u32, max: u32) -> Option<u32> {
    Some(count).filter(|count| (1..=max).contains(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_its_bound_is_not_said() {
        for (count, said) in
            [(0, None), (1, Some(1)), (GPUS_MAX, Some(GPUS_MAX)), (GPUS_MAX + 1, None), (u32::MAX, None)]
        {
            assert_eq!(bounded(count, GPUS_MAX), said);
        }
    }
}
