//! From registers to powercap: what becomes of the originals when the kernel's driver is loaded later.
//!
//! The driver finds a cap that registers set, and nothing tells it from the owner's limit. The journal knows, under this
//! backend's name, which does not open any more. So the originals are said again in powercap's words; no register is written.

use super::{MsrIo, packages, register, register_of};
use crate::{RaplError, powercap};
use hal_files::Root;
use power_hal::{Control, Originals};

/// Hands the originals of all packages that powercap shows now from `registers` to `powercap`, and answers how many. Where
/// both hold one, nobody can tell which was first, and both stay.
///
/// # Errors
/// When powercap or the processors cannot be listed, a register of units does not answer, or the journal cannot be written.
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
            // As the kernel will read it, which counts in whole microseconds.
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
