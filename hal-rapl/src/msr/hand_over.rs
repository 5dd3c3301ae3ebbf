//! The transition from registers to powercap: transfers the originals when the kernel's driver is
//! loaded later.
//!
//! The driver finds a cap that was set through registers, and cannot distinguish it from the owner's
//! limit. The journal has the originals under the name of this backend, which no longer opens. So the
//! originals are translated into powercap's format; no register is written.

use super::{MsrIo, packages, register, register_of};
use crate::{RaplError, powercap};
use hal_files::Root;
use power_hal::{Control, Originals};

/// Transfers the originals of all packages that powercap shows now from `registers` to `powercap`, and
/// returns their number. If both hold one, it is unknown which was first, and both stay.
///
/// # Errors
/// When powercap or the processors cannot be listed, a unit register cannot be read, or the journal
/// cannot be written.
pub fn hand_over(
    root: &Root,
    io: &mut impl MsrIo,
    registers: &mut impl Originals,
    powercap: &mut impl Originals,
) -> Result<usize, RaplError> {
    if powercap::package_zone(root)?.is_none() {
        return Ok(0);
    }
    let mut count = 0;
    for package in packages::list(root)? {
        let key = package.key();
        let Some(original) = registers.kept(&key, Control::Power) else { continue };
        if powercap.kept(&key, Control::Power).is_some() {
            continue;
        }
        let unknown = RaplError::UnknownOriginal(key);
        let limit = register_of(&original).ok_or_else(|| unknown.clone())?;
        let (units, _) = register::find(io, package.cpu)?.ok_or_else(|| package.silent())?;
        let long = limit.long();
        let said = powercap::Said {
            long_uw: units.power_uw(long.power()),
            // The value that the kernel will read, in whole microseconds.
            window_us: units.window_by_the_kernel_us(long.window()),
            short_uw: units.power_uw(limit.short().power()),
            enabled: long.enabled(),
        };
        let original = powercap::original(said).ok_or(unknown)?;
        let kept = powercap.keep(&key, Control::Power, &original);
        kept.and_then(|()| registers.forget(&key, Control::Power))
            .map_err(|kind| RaplError::NotKept(key, kind))?;
        count += 1;
    }
    Ok(count)
}
