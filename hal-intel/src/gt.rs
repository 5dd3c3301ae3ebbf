//! The parts of a GPU (GT), each with a folder of its own, in which its driver shows its clock and what slows it.

use hal_files::hwmon;
use std::path::{Path, PathBuf};

/// More tiles of a GPU, and parts of a tile, than there are.
const TILES_MAX: u8 = 4;
const PARTS_MAX: u8 = 4;

/// A part that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gt {
    /// Its number on this GPU, which no other part has.
    pub(crate) number: u8,
    folder: PathBuf,
    of_xe: bool,
}

impl Gt {
    /// All that may be below a GPU's own folder, in the layouts of both drivers.
    pub(crate) fn all(device: &Path) -> Vec<Self> {
        let of_xe = (0..TILES_MAX).flat_map(|tile| {
            (0..PARTS_MAX).map(move |part| Self {
                number: tile * PARTS_MAX + part,
                folder: device.join(format!("tile{tile}/gt{part}")),
                of_xe: true,
            })
        });
        let cards = std::fs::read_dir(device.join("drm")).into_iter().flatten();
        let cards = cards.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            hwmon::number::<u32>(&name, "card").map(|_| device.join("drm").join(name))
        });
        let of_i915 = cards.flat_map(|card| {
            (0..PARTS_MAX).map(move |part| Self {
                number: part,
                folder: card.join(format!("gt/gt{part}")),
                of_xe: false,
            })
        });
        of_xe.chain(of_i915).collect()
    }

    pub(crate) const fn is_of_xe(&self) -> bool {
        self.of_xe
    }

    /// A file below its folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
