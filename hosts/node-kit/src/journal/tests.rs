use super::*;
use power_hal::{Originals, Setting};
use power_units::{KiloHertz, MicroWatts};
use proptest::prelude::*;
use rig::test_machine::Folder;
use std::fs;

fn boot(id: &str) -> Boot {
    Boot::new(id).unwrap()
}

fn original(words: &[u64]) -> Original {
    Original::new(1, words).unwrap()
}

const POWER: Control = Control::Power;

/// A journal with one original of a package.
fn held() -> (Folder, Journal) {
    let folder = Folder::new();
    let journal = Journal::open(&folder.0, boot("a")).unwrap();
    let was = Some(Setting::Power(MicroWatts::new(250_000_000)));
    let package = (Key::package(0, None), POWER, original(&[250_000_000]), was);
    journal.of(BackendKind::Powercap).keep_all(&[package]).unwrap();
    (folder, journal)
}

fn text(folder: &Folder) -> String {
    fs::read_to_string(folder.0.join(file::NAME)).unwrap()
}

#[test]
fn what_was_kept_is_there_after_a_restart_and_gone_after_a_reboot() {
    let (folder, _) = held();
    let again = Journal::open(&folder.0, boot("a")).unwrap();
    assert_eq!(
        again.of(BackendKind::Powercap).kept(&Key::package(0, None), POWER),
        Some(original(&[250_000_000]))
    );
    assert_eq!(again.entries().len(), 1);
    let rebooted = Journal::open(&folder.0, boot("b")).unwrap();
    assert_eq!((rebooted.len(), rebooted.void()), (0, 1));
}

#[test]
fn a_kernel_that_another_one_started_finds_the_power_limits_as_they_were() {
    let (folder, journal) = held();
    let policy = (Key::policy(3), Control::Frequency, original(&[2_600_000]), None);
    journal.of(BackendKind::Cpufreq).keep_all(&[policy]).unwrap();
    let next = Journal::open(&folder.0, boot("b").by_kexec()).unwrap();
    assert_eq!((next.len(), next.void()), (1, 1), "frequencies are the kernel's own");
    assert!(next.holds(BackendKind::Powercap, &Key::package(0, None), POWER));
    assert!(next.is_behind(), "the file is still of the boot before");
    next.tidy();
    assert_eq!(Journal::open(&folder.0, boot("b")).unwrap().len(), 1, "of this boot from now on");
}

#[test]
fn a_person_can_read_what_was_in_force() {
    let (folder, journal) = held();
    let frequency = Some(Setting::Frequency(KiloHertz::from_int(2_600_000)));
    let policy = (Key::policy(3), Control::Frequency, original(&[2_600_000]), frequency);
    journal.of(BackendKind::Cpufreq).keep_all(&[policy]).unwrap();
    let text = text(&folder);
    for part in [
        r#""format": "joulie originals""#,
        r#""backend": "powercap""#,
        r#""domain": "package-0""#,
        r#""was": "250000000 uW""#,
        r#""domain": "cpu-3""#,
        r#""was": "2600000 kHz""#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let again = Journal::open(&folder.0, boot("a")).unwrap();
    assert_eq!(again.was(BackendKind::Cpufreq, &Key::policy(3), Control::Frequency), frequency);
}

#[test]
fn an_original_whose_reading_failed_is_known_from_its_words() {
    let (folder, journal) = held();
    let policy = |cpu| (Key::policy(cpu), Control::Frequency);
    let was = |journal: &Journal, cpu| journal.was(BackendKind::Cpufreq, &policy(cpu).0, policy(cpu).1);
    let unread = |cpu, words: &[u64]| (policy(cpu).0, policy(cpu).1, original(words), None);
    // A limit below the driver's highest frequency, and words that are none.
    let saved = [unread(3, &[2_600_000, 3_600_000]), unread(4, &[0, 0])];
    journal.of(BackendKind::Cpufreq).keep_all(&saved).unwrap();
    let frequency = Some(Setting::Frequency(KiloHertz::from_int(2_600_000)));
    for journal in [&journal, &Journal::open(&folder.0, boot("a")).unwrap()] {
        assert_eq!((was(journal, 3), was(journal, 4)), (frequency, None));
    }
}

#[test]
fn the_first_original_stays_and_each_backend_has_its_own() {
    let (folder, journal) = held();
    let (mut files, mut registers) = (journal.of(BackendKind::Powercap), journal.of(BackendKind::Msr));
    let package = Key::package(0, None);
    assert_eq!(files.keep(&package, POWER, &original(&[120])), Ok(()));
    assert_eq!(files.kept(&package, POWER), Some(original(&[250_000_000])));
    assert_eq!(registers.kept(&package, POWER), None);
    assert_eq!(registers.keep(&package, POWER, &original(&[7])), Ok(()));
    assert_eq!(files.forget(&package, POWER), Ok(()));
    files.tidy();
    let again = Journal::open(&folder.0, boot("a")).unwrap();
    assert_eq!(again.entries().len(), 1);
    assert!(again.holds(BackendKind::Msr, &package, POWER));
}

#[test]
fn what_cannot_be_written_down_is_not_kept() {
    let (folder, journal) = held();
    // A folder in place of the new file simulates a full or read-only disk, also for root.
    let beside = folder.0.join("originals.json.new");
    fs::create_dir(&beside).unwrap();
    let mut share = journal.of(BackendKind::Powercap);
    let other = Key::package(1, None);
    assert_eq!(share.keep(&other, POWER, &original(&[1])), Err(ErrorKind::Io));
    assert_eq!(share.kept(&other, POWER), None);
    assert_eq!(share.forget(&Key::package(0, None), POWER), Ok(()));
    share.tidy();
    assert!(journal.is_behind(), "the file still has the original");
    assert_eq!(Journal::open(&folder.0, boot("a")).unwrap().len(), 1);
    fs::remove_dir(&beside).unwrap();
    share.tidy();
    assert!(!journal.is_behind());
    assert_eq!(Journal::open(&folder.0, boot("a")).unwrap().len(), 0);
}

#[test]
fn half_of_a_new_journal_does_not_hurt_the_old_one() {
    let (folder, _) = held();
    fs::write(folder.0.join("originals.json.new"), "{\"format\": \"jou").unwrap();
    assert_eq!(Journal::open(&folder.0, boot("a")).unwrap().len(), 1);
}

#[test]
fn a_journal_that_is_none_is_refused_with_its_path_and_left_as_it_is() {
    let (folder, _) = held();
    let good = text(&folder);
    let path = folder.0.join(file::NAME);
    let bad = [
        (String::new(), "not a journal"),
        ("\u{0}\u{1}".to_owned(), "not a journal"),
        ("[]".to_owned(), "not a journal"),
        (good.replace("joulie originals", "shopping list"), "its format is not"),
        (good.replace("\"version\": 1", "\"version\": 2"), "later version"),
        (good.replace("\"version\": 1", "\"version\": -1"), "not a journal"),
        (good.replace("\"boot\": \"a\"", "\"boot\": \"\""), "which boot"),
        (good.replace("powercap", "powercup"), "unusable backend: \"powercup\""),
        (good.replace("package-0", "package-00"), "unusable domain: \"package-00\""),
        (good.replace("\"control\": \"power\"", "\"control\": \"might\""), "unusable control: \"might\""),
        (good.replace("250000000 uW", "250 W"), "unusable was: \"250 W\""),
        (good.replace("250000000 uW", "9 kHz"), "unusable was: \"9 kHz\""),
        (good.replace("\"layout\"", "\"lay\""), "not a journal"),
        (good.replace("\"words\": [", "\"words\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,"), "17 of them"),
        (good.replace("\"originals\"", "\"originals \""), "not a journal"),
        (good[..good.len() - 5].to_owned(), "not a journal"),
        (good.clone() + "{}", "not a journal"),
        ("x".repeat(5 << 20), "larger than any"),
    ];
    for (text, why) in bad {
        fs::write(&path, &text).unwrap();
        let error = Journal::open(&folder.0, boot("a")).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("originals.json"), "{why}: {error}");
        assert!(fs::read(&path).unwrap() == text.as_bytes(), "{why}: it was changed");
    }
    let doubled = good.replace(
        "    }\n  ]",
        "    },\n    {\"backend\": \"powercap\", \"domain\": \"package-0\", \
        \"control\": \"power\", \"layout\": 1, \"words\": []}\n  ]",
    );
    fs::write(&path, doubled).unwrap();
    assert!(
        Journal::open(&folder.0, boot("a")).unwrap_err().to_string().contains("original 2 is there twice")
    );
}

#[test]
fn a_boot_is_named_by_visible_text() {
    assert!(Boot::of_the_kernel().is_ok());
    for id in ["", "a b", "a\n", "ä", &"x".repeat(65)] {
        assert_eq!(Boot::new(id), None, "{id:?}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let folder = Folder::new();
        fs::write(folder.0.join(file::NAME), text).unwrap();
        prop_assert!(Journal::open(&folder.0, boot("a")).is_err());
    }

    #[test]
    fn what_is_written_is_read(words in proptest::collection::vec(any::<u64>(), 0..=16), layout: u8, cpu in 0..2048_u16) {
        let folder = Folder::new();
        let kept = Original::new(layout, &words).unwrap();
        let mut share = Journal::open(&folder.0, boot("a")).unwrap().of(BackendKind::Rocm);
        share.keep(&Key::policy(cpu), Control::Throttle, &kept).unwrap();
        let again = Journal::open(&folder.0, boot("a")).unwrap().of(BackendKind::Rocm);
        prop_assert_eq!(again.kept(&Key::policy(cpu), Control::Throttle), Some(kept));
    }
}
