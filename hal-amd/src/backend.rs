//! What a way to the hardware has to do; everything else is the same for all of them.

use crate::AmdError;
use power_hal::Domain;
use power_units::MicroWatts;

/// A way to devices that say their power and take a cap. A device is named by its place in the list of the last look;
/// a place beyond it is [`AmdError::Gone`].
pub trait Backend {
    /// Looks at the hardware anew and lists its domains by their keys in order. What cannot be made sense of is left
    /// out, or described without what is missing, and is a complaint. Absent hardware is an empty list.
    ///
    /// # Errors
    /// When the hardware cannot be listed; the places of the last look then stay, and those whose device cannot be
    /// reached any more are [`AmdError::Gone`].
    fn look(&mut self, complaints: &mut Vec<AmdError>) -> Result<Vec<Domain>, AmdError>;

    /// Whether reading the device now would leave it as it is.
    ///
    /// # Errors
    /// When reading would wake it from its sleep.
    fn awake(&self, at: usize) -> Result<(), AmdError>;

    /// The power that it draws.
    ///
    /// # Errors
    /// When it does not say.
    fn power(&self, at: usize) -> Result<MicroWatts, AmdError>;

    /// The cap that is in force, above zero.
    ///
    /// # Errors
    /// When it does not say.
    fn cap(&self, at: usize) -> Result<MicroWatts, AmdError>;

    /// Writes a cap that lies in the range.
    ///
    /// # Errors
    /// When it is not taken.
    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), AmdError>;
}
