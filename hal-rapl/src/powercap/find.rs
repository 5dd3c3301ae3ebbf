//! Finds the packages: resolves the links of the class folder and counts each target once.

use super::package::{Package, ZONES_MAX};
use super::zone::{ControlType, Zone, package_of_name};
use crate::RaplError;
use crate::aim::{CEILING_UW, FLOOR_UW, STEP_UW};
use hal_files::{Access, Attribute, FileError, FileOperation, Root};
use power_hal::{Control, Counter, Domain, ErrorKind, Key, Limit, Originals, Span, Surface};
use power_units::{MicroJoules, MicroWatts};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A flat folder of links only: control types, zones and their sub-zones.
const CLASS: &str = "sys/class/powercap";

/// The result of an enumeration, in the order of the keys.
pub(super) struct Found {
    pub(super) packages: Vec<Package>,
    pub(super) problems: Vec<RaplError>,
}

/// The number of a package, and of its die if there are several.
type Number = (u16, Option<u16>);

/// A package zone: its folder, its driver and its number.
struct Named {
    folder: Arc<Path>,
    control_type: ControlType,
    package: Number,
}

/// The current packages. If a zone that was listed before temporarily cannot be opened, the whole enumeration fails,
/// so that the last list stays valid. For a new zone that is a problem to report, and the others are listed.
pub(super) fn packages(
    root: &Root,
    before: &[Package],
    originals: &impl Originals,
) -> Result<Found, RaplError> {
    let known =
        |folder: &Path| before.iter().flat_map(|package| &package.zones).any(|zone| *zone.folder == *folder);
    let mut problems = Vec::new();
    let mut zones: BTreeMap<Key, (Number, Vec<Zone>)> = BTreeMap::new();
    let mut folders = Vec::new();
    for id in root.names(&root.join(CLASS))? {
        let opened = match named(root, &id, &mut folders) {
            Ok(None) => continue,
            Ok(Some(Named { folder, control_type, package })) => {
                Zone::open(Arc::clone(&folder), control_type, &mut problems).map(|zone| (package, zone))
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok((package, zone)) => {
                let (_, zones) =
                    zones.entry(Key::package(package.0, package.1)).or_insert((package, Vec::new()));
                if zones.iter().any(|other| other.control_type == zone.control_type) {
                    problems.push(RaplError::Twice(zone.folder));
                } else {
                    zones.push(zone);
                }
            }
            Err(RaplError::File(error)) if error.kind == ErrorKind::Gone => {
                if stands(&error.path) {
                    problems.push(error.into());
                }
            }
            Err(RaplError::File(error)) if error.path.parent().is_some_and(known) => return Err(error.into()),
            Err(error) => problems.push(error),
        }
    }
    let packages = zones.into_iter().map(|(key, (package, zones))| {
        let old = before.iter().find(|old| *old.domain.key() == key);
        build(package, zones, old, originals)
    });
    Ok(Found { packages: packages.collect(), problems })
}

/// Whether the zone of a missing file still exists: then it was not removed.
fn stands(file: &Path) -> bool {
    let zone = file.parent().filter(|folder| folder.is_dir());
    let name = zone.and_then(Path::file_name).and_then(|name| name.to_str());
    name.and_then(ControlType::of_folder).is_some()
}

/// Returns the folder of the first package zone, if there is any.
pub(super) fn any(root: &Root) -> Result<Option<Arc<Path>>, RaplError> {
    let mut folders = Vec::new();
    for id in root.names(&root.join(CLASS))? {
        match named(root, &id, &mut folders) {
            Ok(None) => {}
            Ok(Some(zone)) => return Ok(Some(zone.folder)),
            Err(RaplError::File(error)) if error.kind == ErrorKind::Gone => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The package zone behind a link, unless it is something else or was already found.
fn named(root: &Root, id: &str, folders: &mut Vec<Arc<Path>>) -> Result<Option<Named>, RaplError> {
    let link = root.join(CLASS).join(id);
    let folder: Arc<Path> = match link.canonicalize() {
        Ok(folder) => Arc::from(folder),
        Err(error) => {
            return Err(
                FileError::from_io(&Arc::from(link), FileOperation::Open, Surface::Device, &error).into()
            );
        }
    };
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let Some(control_type) = ControlType::of_folder(name) else { return Ok(None) };
    if folders.contains(&folder) {
        return Ok(None);
    }
    folders.push(Arc::clone(&folder));
    let name = Attribute::powercap(folder.join("name"), Access::Read)?.read_line()?;
    Ok(package_of_name(&name).map(|package| Named { folder, control_type, package }))
}

fn build(
    (package, die): Number,
    mut zones: Vec<Zone>,
    old: Option<&Package>,
    originals: &impl Originals,
) -> Package {
    zones.sort_by_key(|zone| zone.control_type);
    zones.truncate(ZONES_MAX);
    for zone in &mut zones {
        let before =
            old.and_then(|old| old.zones.iter().find(|other| other.control_type == zone.control_type));
        zone.held = before.is_some_and(|before| before.held);
    }
    let mut domain = Domain::package(package, die);
    if let Some(zone) = zones.iter().find(|zone| zone.energy.is_some()) {
        domain = domain.with_counter(Counter::of_range(Some(MicroJoules::new(zone.energy_range_uj))));
    }
    if let Some(dram) = zones.iter().find_map(|zone| zone.dram.as_ref()) {
        domain = domain.with_dram(Counter::of_range(Some(MicroJoules::new(dram.range_uj))));
    }
    let max_uw = zones.iter().find_map(|zone| zone.limits.as_ref()).map(|limits| limits.max_uw);
    let max_refuted = max_uw.is_some_and(|max_uw| refuted(max_uw, domain.key(), &zones, old, originals));
    let known = max_uw.filter(|_| !max_refuted).map(MicroWatts::new);
    if let Some(limit) = max_uw.and_then(|_| limit(known)) {
        domain = domain.with_power(limit);
    }
    let window_refused = old.is_some_and(|old| old.window_refused);
    Package { domain, zones, gone: false, max_refuted, window_refused }
}

/// A maximum below the limit that is in use is not valid. Once detected, that stays so: our own lower limit must not
/// make it credible again.
fn refuted(
    max_uw: u64,
    key: &Key,
    zones: &[Zone],
    old: Option<&Package>,
    originals: &impl Originals,
) -> bool {
    let in_use = zones.iter().filter_map(|zone| zone.limits.as_ref()?.long.read().ok());
    let above = |limit_uw: u64| limit_uw > max_uw;
    let before = match old {
        Some(old) => old.max_refuted,
        None => originals
            .kept(key, Control::Power)
            .and_then(|original| super::saved::unpack(&original))
            .is_some_and(|saved| saved.iter().flatten().any(|saved| above(saved.long_uw))),
    };
    max_uw > 0 && (before || in_use.into_iter().any(above))
}

/// From a reasonable minimum to the maximum of the field, or to the driver's maximum if that is valid.
fn limit(max: Option<MicroWatts>) -> Option<Limit<MicroWatts>> {
    let span = Span { floor: MicroWatts::new(FLOOR_UW), ceiling: MicroWatts::new(CEILING_UW) };
    let limit = Limit::new(span, MicroWatts::new(STEP_UW)).ok()?;
    Some(limit.known(None, max).unwrap_or(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_largest_value_that_cannot_be_leaves_the_fields_own_end() {
        let upper = |max| limit(max).unwrap().upper().get();
        assert_eq!(upper(None), 4_095_875_000);
        assert_eq!(upper(Some(MicroWatts::new(250_000_000))), 250_000_000);
        assert_eq!(upper(Some(MicroWatts::new(1))), 4_095_875_000);
        assert_eq!(upper(Some(MicroWatts::new(9_000_000_000))), 4_095_875_000);
        assert_eq!(limit(None).unwrap().lower().get(), 1_000_000);
    }
}
