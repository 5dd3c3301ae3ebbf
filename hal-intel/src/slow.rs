//! What slows a GPU, as its driver shows it: a file for each cause, in a folder for each part of the GPU (GT).

use crate::gt::Gt;
use hal_files::{Attribute, FileError, hwmon};
use power_hal::{Slowdown, Slowdowns};

/// The causes by the ends of their files' names, of i915 and xe alike: the three limits of power, heat (of the chip, of
/// its averages, of its voltage regulators), a signal from outside, and the largest current.
const CAUSES: [(&str, Slowdown); 8] = [
    ("pl1", Slowdown::PowerLimit),
    ("pl2", Slowdown::PowerLimit),
    ("pl4", Slowdown::PowerLimit),
    ("thermal", Slowdown::Heat),
    ("ratl", Slowdown::Heat),
    ("vr_thermalert", Slowdown::Heat),
    ("prochot", Slowdown::Hardware),
    ("vr_tdc", Slowdown::Current),
];

/// The open files of one part of a GPU.
#[derive(Debug)]
struct Part {
    /// Whether any cause is there; it is read first.
    status: Attribute,
    causes: Vec<(Slowdown, Attribute)>,
}

/// The open files of a GPU; none where its driver shows none.
#[derive(Debug, Default)]
pub(crate) struct SlowFiles(Vec<Part>);

impl SlowFiles {
    /// Opens the files of a GPU's parts.
    pub(crate) fn open(parts: &[Gt], complain: &mut dyn FnMut(FileError)) -> Self {
        let mut found = Vec::new();
        for part in parts {
            // The files of xe are in a folder of their own; those of i915 have a prefix.
            let (status, reason) = if part.is_of_xe() {
                ("freq0/throttle/status", "freq0/throttle/reason_")
            } else {
                ("throttle_reason_status", "throttle_reason_")
            };
            let Some(status) = hwmon::open(&part.file(status), complain) else { continue };
            let mut causes = Vec::new();
            for (name, cause) in CAUSES {
                let file = part.file(&format!("{reason}{name}"));
                causes.extend(hwmon::open(&file, complain).map(|file| (cause, file)));
            }
            found.push(Part { status, causes });
        }
        Self(found)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The causes that slow any part of the GPU at this instant.
    pub(crate) fn read(&self) -> Result<Slowdowns, FileError> {
        let mut found = Slowdowns::NONE;
        for part in &self.0 {
            if part.status.read_whole()? == 0 {
                continue;
            }
            for (cause, file) in &part.causes {
                if file.read_whole()? != 0 {
                    found = found.with(*cause);
                }
            }
        }
        Ok(found)
    }
}
