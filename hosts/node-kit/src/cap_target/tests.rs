use super::*;
use crate::Boot;
use power_hal::Original;
use power_units::MicroWatts;
use rig::test_machine::Folder;

/// A package with 120 W in force, and a journal with its original, for which `was` is recorded.
fn capped(was: Option<Setting>) -> (Folder, Journal, CapTarget) {
    let folder = Folder::new();
    let journal = Journal::open(&folder.0, Boot::new("a").unwrap()).unwrap();
    let original = Original::new(1, &[200_000_000]).unwrap();
    let entry = (Key::package(0, None), Control::Power, original, was);
    journal.of(BackendKind::Powercap).keep_all(&[entry]).unwrap();
    let target = CapTarget {
        backend: Some(BackendKind::Powercap),
        in_force: Some(Watts::from_int(120)),
        ..CapTarget::bare(Key::package(0, None))
    };
    (folder, journal, target)
}

#[test]
fn where_nobody_could_read_the_owners_limit_what_stands_takes_its_place() {
    let (_folder, journal, mut target) = capped(None);
    let ordered = Some(Watts::from_int(110));
    let stands =
        |target: &CapTarget| (target.owners_limit(&journal), target.stands_unknown(&journal, ordered));
    assert_eq!(stands(&target), (None, Some(Watts::from_int(120))));
    target.in_force = None;
    assert_eq!(stands(&target), (None, Some(Watts::from_int(110))), "out of sight");
}

#[test]
fn an_owners_limit_that_was_read_is_the_only_bound() {
    let (_folder, journal, target) = capped(Some(Setting::Power(MicroWatts::new(200_000_000))));
    assert_eq!(target.owners_limit(&journal), Some(Watts::from_int(200)));
    assert_eq!(target.stands_unknown(&journal, None), None);
}
