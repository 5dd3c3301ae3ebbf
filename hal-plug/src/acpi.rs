//! The ACPI power meter: the driver `acpi_power_meter` shows it as a hwmon device of the name `power_meter`, with the
//! power in microwatts and the time over which it averages in milliseconds. Up to Linux 6.15 the files are in the folder
//! of the ACPI device behind the hwmon device, later in that of the hwmon device itself.
//!
//! The driver also offers a cap (`power1_cap`). It is not touched: what the firmware does about it is not known here.

use crate::{PlugError, PlugReading};
use hal_files::{Access, Attribute, FileError, Root, hwmon};
use power_hal::ErrorKind;
use power_units::{MicroWatts, Micros};
use std::path::{Path, PathBuf};

/// What the driver calls the device.
const NAME: &str = "power_meter";

/// The meter of a machine; it is looked for when it is read.
#[derive(Debug)]
pub struct AcpiMeter {
    root: Root,
    found: Option<Found>,
}

/// The meter's files, kept open.
#[derive(Debug)]
struct Found {
    power: Attribute,
    over: Option<Micros>,
}

impl AcpiMeter {
    /// The meter of the machine below this root.
    #[must_use]
    pub const fn new(root: Root) -> Self {
        Self { root, found: None }
    }

    /// What the meter says now. The firmware may ask the BMC for it, which can take seconds.
    ///
    /// # Errors
    /// When there is no meter, or it says nothing that can be used. The next reading looks for it again if it is gone.
    pub fn read(&mut self) -> Result<PlugReading, PlugError> {
        if self.found.is_none() {
            self.found = Some(self.find()?);
        }
        let Some(Found { power, over }) = &self.found else { return Err(PlugError::Absent) };
        let read = power.read_whole();
        let over = *over;
        match read {
            Ok(power) => PlugReading::new(MicroWatts::new(power), over),
            Err(error) => {
                if error.kind == ErrorKind::Gone {
                    self.found = None;
                }
                Err(error.into())
            }
        }
    }

    fn find(&self) -> Result<Found, PlugError> {
        let mut folders = Vec::new();
        for folder in hwmon::folders(&self.root)? {
            let places = [folder.clone(), folder.join("device")];
            let is_meter = |place: &PathBuf| hwmon::name(place).is_ok_and(|name| name == NAME);
            if places.iter().any(is_meter) {
                folders.extend(places.into_iter().find(|place| place.join("power1_average").exists()));
            }
        }
        // A laptop's meter may be that of its battery, which is not the plug.
        folders.retain(|folder| !matches!(number(&folder.join("power1_is_battery")), Ok(1)));
        match folders.as_slice() {
            [] => Err(PlugError::Absent),
            [folder] => {
                let power = Attribute::device(folder.join("power1_average"), Access::Read)?;
                let over = number(&folder.join("power1_average_interval")).ok();
                Ok(Found { power, over: over.map(|millis| Micros::new(millis.saturating_mul(1_000))) })
            }
            several => Err(PlugError::Several(several.len())),
        }
    }
}

fn number(path: &Path) -> Result<u64, FileError> {
    Attribute::device(path.to_owned(), Access::Read).and_then(|file| file.read_whole())
}
