//! power-hal: the verbs on the mock, and what HALs call.

use power_hal::contract;
use power_hal::mock::{Ground, Mock};
use power_hal::{
    Applied, Counter, CpuSet, Domain, ErrorKind, Failure, Handle, Key, Limit, Measured, Memory, PowerHal, Reading,
    Released, Setting, Surface,
};
use power_units::{MicroJoules, MicroWatts, NonZeroMicros};

roots! {
    fn hal_domains() -> usize {
        0
    }
}
