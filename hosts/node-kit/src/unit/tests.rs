use super::*;
use crate::Boot;
use crate::testing::Folder;
use power_hal::Original;
use power_units::MicroWatts;

/// A package with 120 W in force, and a journal that has its original with this as what it was.
fn capped(was: Option<Setting>) -> (Folder, Journal, Unit) {
    let folder = Folder::new();
    let journal = Journal::open(&folder.0, Boot::new("a").unwrap()).unwrap();
    let original = Original::new(1, &[200_000_000]).unwrap();
    let entry = (Key::package(0, None), Control::Power, original, was);
    journal.of(BackendKind::Powercap).keep_all(&[entry]).unwrap();
    let unit = Unit {
        backend: Some(BackendKind::Powercap),
        in_force: Some(Watts::from_int(120)),
        ..Unit::bare(Key::package(0, None))
    };
    (folder, journal, unit)
}

#[test]
fn where_nobody_could_read_the_owners_limit_what_stands_takes_its_place() {
    let (_folder, journal, mut unit) = capped(None);
    let stands = |unit: &Unit| (unit.owners_limit(&journal), unit.stands_unknown(&journal));
    assert_eq!(stands(&unit), (None, Some(Watts::from_int(120))));
    (unit.in_force, unit.ordered) = (None, Some(Watts::from_int(110)));
    assert_eq!(stands(&unit), (None, Some(Watts::from_int(110))), "out of sight");
}

#[test]
fn an_owners_limit_that_was_read_is_the_only_bound() {
    let (_folder, journal, unit) = capped(Some(Setting::Power(MicroWatts::new(200_000_000))));
    assert_eq!(unit.owners_limit(&journal), Some(Watts::from_int(200)));
    assert_eq!(unit.stands_unknown(&journal), None);
}
