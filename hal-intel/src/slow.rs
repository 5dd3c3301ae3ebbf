//! What slows a GPU, as its driver shows it: a file for each cause, in a folder for each part of the GPU (GT).

use hal_files::{Attribute, FileError, hwmon};
use power_hal::{Slowdown, Slowdowns};
use std::path::{Path, PathBuf};

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

/// More tiles of a GPU, and parts of a tile, than there are.
const TILES_MAX: usize = 4;
const PARTS_MAX: usize = 4;

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
    /// Opens the files below a GPU's own folder.
    pub(crate) fn open(device: &Path, complain: &mut dyn FnMut(FileError)) -> Self {
        let mut parts = Vec::new();
        for prefix in prefixes(device) {
            let file = |name: &str| PathBuf::from(format!("{}{name}", prefix.display()));
            // The files of xe are in a folder of their own; those of i915 have a prefix.
            let reason = if prefix.ends_with("throttle") { "/reason_" } else { "" };
            let status = if prefix.ends_with("throttle") { "/status" } else { "status" };
            let Some(status) = hwmon::open(&file(status), complain) else { continue };
            let mut causes = Vec::new();
            for (name, cause) in CAUSES {
                causes.extend(
                    hwmon::open(&file(&format!("{reason}{name}")), complain).map(|file| (cause, file)),
                );
            }
            parts.push(Part { status, causes });
        }
        Self(parts)
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

/// Where the files of each part begin: xe's folders, or i915's folders with the names' common beginning.
fn prefixes(device: &Path) -> Vec<PathBuf> {
    let of_xe = (0..TILES_MAX).flat_map(|tile| {
        (0..PARTS_MAX).map(move |part| device.join(format!("tile{tile}/gt{part}/freq0/throttle")))
    });
    let cards = std::fs::read_dir(device.join("drm")).into_iter().flatten();
    let cards = cards.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        hwmon::number::<u32>(&name, "card").map(|_| device.join("drm").join(name))
    });
    let of_i915 = cards
        .flat_map(|card| (0..PARTS_MAX).map(move |part| card.join(format!("gt/gt{part}/throttle_reason_"))));
    of_xe.chain(of_i915).collect()
}
