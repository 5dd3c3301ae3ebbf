//! Runs that are killed while writing: the remaining process puts the originals back.

use crate::test_machine::{PATIENCE, Said, TestMachine, children, kill, signal, until};
use rig::faults::{Direction, Effect, Fault};
use rig::gpu_clock::HwmonClock;
use rig::machine::VirtualAttribute;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A run that has lowered a limit, and the registers before.
fn in_the_middle(words: &[&str], takes: Duration) -> Option<(TestMachine, Child, u32, String)> {
    let room = TestMachine::profile("xeon-2s")?;
    let before = room.registers();
    slow(&room, takes, 40);
    let hil = room.hil(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("a limit is lowered", || room.journal() > 0 && room.registers() != before);
    let [worker] = children(&hil)[..] else { panic!("the guardian has one worker") };
    Some((room, hil, worker, before))
}

/// Makes writes of the first package's limits slow.
fn slow(room: &TestMachine, takes: Duration, times: u32) {
    for which in 0..2 {
        let on = VirtualAttribute::PowerLimit(0, which);
        let effect = Effect::Takes(takes);
        room.machine.lock().faults().add(Fault { on, direction: Direction::Write, effect, times });
    }
}

fn end(hil: Child) -> Said {
    hil.wait_with_output().unwrap().into()
}

const SLOW: Duration = Duration::from_millis(300);

#[test]
fn when_the_worker_is_killed_the_guardian_puts_everything_back() {
    let Some((room, hil, worker, before)) = in_the_middle(&["--write"], SLOW) else { return };
    kill(worker);
    let said = end(hil);
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert!(said.has("FAIL worker: it ended by signal: 9"), "{}", said.text);
    assert!(said.has("PASS restore: power of package-0 by powercap is back"), "{}", said.text);
    assert!(said.has("PASS limits: all "), "{}", said.text);
    assert_eq!((room.registers(), room.journal()), (before, 0));
    assert!(!room.state().join("hil-writes").exists());
}

/// Kills the worker in the write of this number among those that count, and checks that everything is put back.
fn killed_in(profile: &str, counts: fn(&VirtualAttribute) -> bool, moment: u32) -> Option<()> {
    killed_on(&TestMachine::profile(profile)?, profile, counts, moment);
    Some(())
}

fn killed_on(room: &TestMachine, profile: &str, counts: fn(&VirtualAttribute) -> bool, moment: u32) {
    let before = room.registers();
    let (stand, reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let mut writes = 0;
    room.machine.lock().watch(move |attribute, _, _| {
        writes += u32::from(counts(attribute));
        if counts(attribute) && writes == moment {
            // The write is in force, and the writing call does not return.
            stand.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
    });
    let hil = room.hil(&["--write"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    reached.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{profile} has no write {moment}"));
    let [worker] = children(&hil)[..] else { panic!("the guardian has one worker") };
    kill(worker);
    go_on.send(()).unwrap();
    let said = end(hil);
    assert_eq!(said.code, Some(1), "{profile} at {moment}: {}", said.text);
    assert!(said.has("PASS limits: all "), "{profile} at {moment}: {}", said.text);
    let after = (room.registers(), room.journal());
    assert_eq!(after, (before, 0), "{profile} at {moment}: {}", said.text);
}

fn of_a_clock(on: &VirtualAttribute) -> bool {
    matches!(on, VirtualAttribute::GpuClock(..))
}

#[test]
fn it_does_not_matter_at_which_write_the_worker_is_killed() {
    for (profile, moments) in [("xeon-2s", [2, 7, 20, 40]), ("mi300x", [1, 6, 30, 50])] {
        for moment in moments {
            let Some(()) = killed_in(profile, |_| true, moment) else { return };
        }
    }
}

/// A clock is limited in several writes: on an MI300X the level, both lines, and what puts them in force.
#[test]
fn it_does_not_matter_at_which_write_of_a_gpus_clock_the_worker_is_killed() {
    for (profile, moments) in [("mi300x", [1, 2, 3, 4]), ("max1550", [1, 2, 3, 8])] {
        for moment in moments {
            let Some(()) = killed_in(profile, of_a_clock, moment) else { return };
        }
    }
}

/// In the level `manual` a clock is limited in three writes, of which the first two show nowhere.
#[test]
fn a_line_of_a_gpus_clock_that_no_file_shows_is_put_back_too() {
    for moment in [1, 2, 3] {
        let Some(room) = TestMachine::profile("mi300x") else { return };
        room.machine.lock().change(|_, _, hwmons| {
            for slot in hwmons {
                if let Some(HwmonClock::Amd(clock)) = &mut slot.hwmon.clock {
                    (clock.level, clock.in_force) = ("manual", (500, 1_500));
                }
            }
        });
        killed_on(&room, "mi300x", of_a_clock, moment);
    }
}

#[test]
fn when_the_guardian_is_killed_the_worker_stops_and_puts_everything_back_and_keeps_the_lock_until_then() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let before = room.registers();
    let (stand, reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let elsewhere = Arc::new(AtomicUsize::new(0));
    let (mut writes, counted) = (0, elsewhere.clone());
    room.machine.lock().watch(move |attribute, _, _| {
        let on_the_first =
            matches!(attribute, VirtualAttribute::PowerLimit(0, _) | VirtualAttribute::TimeWindow(0, _));
        counted.fetch_add(usize::from(!on_the_first), Ordering::SeqCst);
        writes += 1;
        if writes == 2 {
            stand.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
    });
    let mut hil = room.hil(&["--write"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    reached.recv_timeout(PATIENCE).unwrap();
    hil.kill().unwrap();
    hil.wait().unwrap();
    let held = node_kit::NodeLock::take(&room.state()).map(|_| ()).unwrap_err().to_string();
    assert!(held.contains("being written by hil"), "{held}");
    assert!(room.journal() > 0);
    go_on.send(()).unwrap();
    let mut said = String::new();
    hil.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(
        said.contains("the guardian is gone; of 1 originals") && said.contains("0 are not back"),
        "{said}"
    );
    assert_eq!((room.registers(), room.journal()), (before, 0));
    assert_eq!(elsewhere.load(Ordering::SeqCst), 0, "it went on with other domains");
    until("the lock is free", || node_kit::NodeLock::take(&room.state()).is_ok());
}

#[test]
fn when_both_are_killed_the_next_run_puts_everything_back_first() {
    let Some((room, mut hil, worker, before)) = in_the_middle(&["--write"], SLOW) else { return };
    // While the worker is stopped, it cannot notice that the guardian ends.
    signal("STOP", worker);
    hil.kill().unwrap();
    hil.wait().unwrap();
    kill(worker);
    until("the lock is free", || std::fs::metadata(format!("/proc/{worker}/exe")).is_err());
    assert!(room.journal() > 0);
    assert_ne!(room.registers(), before);
    room.machine.lock().faults().heal();
    let looked = Said::of(&mut room.hil(&[]));
    assert!(looked.text.contains("the node is capped: 1 originals"), "{}", looked.text);
    let said = Said::of(&mut room.hil(&["--write"]));
    said.is_fine();
    assert!(said.text.contains("A run before this one was killed"), "{}", said.text);
    assert!(said.has("PASS restore: power of package-0 by powercap is back"), "{}", said.text);
    assert_eq!((room.registers(), room.journal()), (before, 0));
}

#[test]
fn a_worker_that_hangs_is_killed_and_nothing_is_put_back_before_it_is_out_of_the_driver() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let before = room.registers();
    let on = VirtualAttribute::PowerLimit(0, 1);
    let hang = |seconds, times| {
        let effect = Effect::Takes(Duration::from_secs(seconds));
        room.machine.lock().faults().add(Fault {
            on: on.clone(),
            direction: Direction::Write,
            effect,
            times,
        });
    };
    hang(0, 2);
    hang(6, 1);
    let said = Said::of(&mut room.hil(&["--write", "--patience", "1"]));
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert!(said.has("FAIL worker: nothing came back for 1 s; it is ended"), "{}", said.text);
    assert!(said.text.contains("still inside a driver"), "{}", said.text);
    assert!(said.has("FAIL worker: it ended by signal: 9"), "it was waited for: {}", said.text);
    assert!(said.has("PASS restore: power of package-0 by powercap is back"), "{}", said.text);
    assert!(said.has("PASS limits: all "), "{}", said.text);
    assert_eq!((room.registers(), room.journal()), (before, 0), "{}", said.text);
}
