//! GPUs whose power limit does not hold them, behind their drivers and with the plant: the loop over the clock.

use crate::test_machine::TestMachine;
use joulie_core::node::cap::{CapIntent, CapReport, CapResult, DesiredCap};
use node_kit::{Config, Desire, HardwareSources, LoopCause, NodeLock, OpenNode};
use nvml_stub::{StubMachine, code};
use plant::PlantDomain;
use power_hal::Control;
use power_units::Watts;
use rig::faults::{Direction, Effect, Fault};
use rig::gpu_clock::HwmonClock;
use rig::machine::VirtualAttribute;
use rig::nvidia::NvidiaGpu;
use std::time::Duration;

const SET: &str = "nvmlDeviceSetPowerManagementLimit";
const EACCES: i32 = 13;
const ANSWERS: Duration = Duration::from_secs(20);

/// A machine with two busy H100 of 700 W.
fn two() -> Option<(TestMachine, Config)> {
    let room = TestMachine::profile("gpu-2s8")?;
    for at in 2..8 {
        room.machine.lock().change_nvidia(at, |card| card.present = false);
    }
    // The library is loaded from a real disk, and its folder of GPUs is the machine's.
    let folder = room.beside("gpus");
    let library = StubMachine::at(&folder).library().unwrap();
    std::os::unix::fs::symlink(room.root().join("nvml"), folder.join("nvml")).unwrap();
    let config = room.config();
    let sources = HardwareSources { nvml: Some(library), ..config.sources.clone() };
    Some((room, Config { sources, ..config }))
}

/// Ends a node as a kill does, which restores nothing, and opens the next one once the threads of the first have ended.
fn after_a_kill(room: &TestMachine, node: OpenNode, config: Config) -> OpenNode {
    drop(node);
    for _ in 0..400 {
        if matches!(NodeLock::holder(&room.state()), Ok(None)) {
            break;
        }
        room.rest();
    }
    room.open(config)
}

fn cap(watts: i32) -> Desire {
    let cap = CapIntent::of_watts(Watts::from_int(watts));
    Desire { gpu: DesiredCap::Cap(cap), ..Desire::UNKNOWN }
}

fn drawn(room: &TestMachine, at: usize) -> f64 {
    room.machine.lock().plant().watts(PlantDomain::Gpu(at)).unwrap()
}

fn card<T>(room: &TestMachine, at: usize, by: impl FnOnce(&NvidiaGpu) -> T) -> T {
    by(&room.machine.lock().nvidia()[at])
}

fn causes(node: &OpenNode) -> Vec<Option<LoopCause>> {
    node.report().gpus.iter().map(|gpu| gpu.clock.unwrap().cause).collect()
}

fn applied(watts: i32) -> CapReport {
    CapReport::Cap(CapResult::Applied { effective: Watts::from_int(watts) })
}

/// Which controls have an original in the journal.
fn touched(node: &OpenNode) -> Vec<Control> {
    let mut all: Vec<Control> = node.journal().entries().iter().map(|entry| entry.control).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_gpu_that_refuses_its_limit_is_held_by_its_clock_and_gets_everything_back() {
    let Some((room, config)) = two() else { return };
    room.machine.lock().faults().add(Fault::nvml(Some(0), SET, code::NO_PERMISSION, u32::MAX));
    let mut node = room.open(config);
    room.periods(&mut node, 2);
    assert_eq!(node.report().gpus.len(), 2);
    node.handle().desire(cap(300));
    // The first lock is set in the period of the refusal; the model of the card is learned within seconds.
    room.periods(&mut node, 10);
    assert!((285.0..300.5).contains(&drawn(&room, 0)), "{} W", drawn(&room, 0));
    assert!((drawn(&room, 1) - 300.0).abs() < 1.0, "{} W", drawn(&room, 1));
    assert_eq!(causes(&node), [Some(LoopCause::Refused), None]);
    assert_eq!(node.report().gpu.unwrap().report, applied(600));
    assert_eq!(node.report().gpus[0].clock.unwrap().cap, Some(Watts::from_int(300)));
    assert_eq!(touched(&node), [Control::Power, Control::Frequency], "one for each GPU");
    // Another cap: the loop follows.
    node.handle().desire(cap(400));
    room.periods(&mut node, 10);
    assert!((385.0..400.5).contains(&drawn(&room, 0)), "{} W", drawn(&room, 0));
    node.handle().desire(Desire { gpu: DesiredCap::Gone, ..Desire::UNKNOWN });
    room.periods(&mut node, 3);
    for at in 0..2 {
        assert_eq!(card(&room, at, |card| (card.lock_mhz, card.limit_mw)), (None, 700_000));
    }
    assert!(node.journal().is_empty());
    assert_eq!(causes(&node), [None, None]);
}

/// Three minutes after the limit was read back the loop takes over. The process is killed, and the next one restores.
#[test]
fn a_limit_that_is_not_kept_is_replaced_after_three_minutes_and_a_lock_survives_no_restore() {
    let Some((room, config)) = two() else { return };
    room.machine.lock().change_nvidia(0, |card| card.obeys = false);
    let mut node = room.open(config.clone());
    room.periods(&mut node, 2);
    node.handle().desire(cap(300));
    room.periods(&mut node, 175);
    assert!(drawn(&room, 0) > 690.0 && causes(&node)[0].is_none(), "{} W", drawn(&room, 0));
    // On a busy machine some periods have no reading.
    for _ in 0..12 {
        if causes(&node)[0].is_some() {
            break;
        }
        room.periods(&mut node, 5);
    }
    assert_eq!(causes(&node), [Some(LoopCause::NotKept), None]);
    room.periods(&mut node, 15);
    assert!((280.0..300.5).contains(&drawn(&room, 0)), "{} W", drawn(&room, 0));
    assert_eq!(card(&room, 0, |card| card.limit_mw), 300_000, "the limit stays in place");
    assert_eq!(node.report().gpu.unwrap().report, applied(600));
    // Nothing is restored at the end of a process, as at a kill.
    drop(node);
    assert!(card(&room, 0, |card| card.lock_mhz.is_some()));
    let mut node = room.open(config.clone());
    assert_eq!(node.restore(ANSWERS), Ok(()));
    assert_eq!(card(&room, 0, |card| (card.lock_mhz, card.limit_mw)), (None, 700_000));
    // A process that goes on with the cap adopts the lock, and ends it only when the limit counts.
    drop(node);
    let mut node = room.open(config);
    node.handle().desire(cap(300));
    room.periods(&mut node, 10);
    assert_eq!(card(&room, 1, |card| (card.lock_mhz, card.limit_mw)), (None, 300_000));
}

/// 200 W is the least limit. 150 W are (50/600)^(1/2.375) = 0.351 of the highest clock.
#[test]
fn a_cap_below_the_least_limit_is_held_by_the_clock() {
    let Some((room, config)) = two() else { return };
    let mut node = room.open(config);
    room.periods(&mut node, 2);
    node.handle().desire(cap(150));
    room.periods(&mut node, 20);
    for at in 0..2 {
        assert!((140.0..150.5).contains(&drawn(&room, at)), "{} W", drawn(&room, at));
        assert_eq!(card(&room, at, |card| card.limit_mw), 200_000);
    }
    assert_eq!(causes(&node), [Some(LoopCause::OutOfRange); 2]);
    assert_eq!(node.report().gpu.unwrap().report, applied(300));
    assert_eq!(node.restore(ANSWERS), Ok(()));
    assert_eq!(card(&room, 0, |card| (card.lock_mhz, card.limit_mw)), (None, 700_000));
}

/// The driver tells the next process no lock. It begins at the clock at which the card runs, and raises nothing above the cap.
#[test]
fn a_lock_is_taken_over_from_a_process_that_ended_without_a_rise() {
    let Some((room, config)) = two() else { return };
    let mut node = room.open(config.clone());
    room.periods(&mut node, 2);
    node.handle().desire(cap(150));
    room.periods(&mut node, 20);
    let mut node = after_a_kill(&room, node, config);
    node.handle().desire(cap(150));
    for period in 0..20 {
        room.periods(&mut node, 1);
        for at in 0..2 {
            let (drawn, lock) = (drawn(&room, at), card(&room, at, |card| card.lock_mhz));
            assert!(drawn < 150.0 * 1.03, "period {period}: {drawn} W, {lock:?}");
        }
    }
    assert_eq!(causes(&node), [Some(LoopCause::OutOfRange); 2]);
}

/// In a virtual GPU neither a limit nor a lock can be set: that is said, and nothing is claimed.
#[test]
fn a_gpu_that_refuses_the_lock_too_is_reported_as_failed() {
    let Some((room, config)) = two() else { return };
    room.machine.lock().change_nvidia(0, |card| card.settable = false);
    let mut node = room.open(config);
    room.periods(&mut node, 2);
    node.handle().desire(cap(300));
    room.periods(&mut node, 10);
    let failed = CapReport::Cap(CapResult::Failed(power_hal::ErrorKind::PermissionDenied));
    assert_eq!(node.report().gpu.unwrap().report, failed);
    assert_eq!(card(&room, 0, |card| (card.lock_mhz, card.limit_mw)), (None, 700_000));
    assert_eq!(touched(&node), [Control::Power], "only the other card has a limit of ours");
    node.handle().desire(Desire { gpu: DesiredCap::Gone, ..Desire::UNKNOWN });
    room.periods(&mut node, 10);
    assert_eq!((touched(&node), node.report().gpu.unwrap().report), (vec![], CapReport::NoIntent));
}

/// The clocks of the GPUs of hwmon.
fn clocks(room: &TestMachine) -> Vec<HwmonClock> {
    let mut clocks = Vec::new();
    room.machine.lock().change(|_, _, hwmons| {
        clocks = hwmons.iter().filter_map(|slot| slot.hwmon.clock.clone()).collect();
    });
    clocks
}

/// The performance level, and the lowest and the highest clock, of the MI300X.
fn amd(room: &TestMachine) -> (&'static str, (u32, u32)) {
    match &clocks(room)[0] {
        HwmonClock::Amd(clock) => (clock.level, clock.in_force),
        other @ HwmonClock::Intel(_) => panic!("{other:?}"),
    }
}

const FREE: (&str, (u32, u32)) = ("auto", (132, 2_100));

/// 350 W is the least cap. 300 W are (200/650)^(1/2.375) = 0.609 of 2,100 MHz.
#[test]
fn a_gpu_of_amd_is_held_below_its_least_cap_by_its_clock_which_the_next_process_adopts_and_gives_back() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    node.handle().desire(cap(300));
    room.periods(&mut node, 20);
    assert!((280.0..300.5).contains(&drawn(&room, 0)), "{} W", drawn(&room, 0));
    assert_eq!(causes(&node), [Some(LoopCause::OutOfRange)]);
    assert_eq!(node.report().gpu.unwrap().report, applied(300));
    let (level, (low, high)) = amd(&room);
    assert_eq!((level, low), ("manual", 132));
    assert!((1_200..1_290).contains(&high), "{high} MHz");
    let clock = node.report().gpus[0].clock.unwrap();
    assert_eq!(clock.limit.map(|limit| limit.to_whole(power_units::Role::Nearest)), Some(high * 1_000));
    // The driver tells the clock, so the next process goes on from it.
    let mut node = after_a_kill(&room, node, room.config());
    node.handle().desire(cap(300));
    for _ in 0..10 {
        room.periods(&mut node, 1);
        assert!(drawn(&room, 0) < 310.0, "{} W", drawn(&room, 0));
    }
    assert_eq!(causes(&node), [Some(LoopCause::OutOfRange)]);
    // A cap that the limit holds ends the loop, and the level is the driver's own again.
    node.handle().desire(cap(400));
    room.periods(&mut node, 40);
    assert_eq!((causes(&node), amd(&room)), (vec![None], FREE));
    assert!((drawn(&room, 0) - 400.0).abs() < 2.0, "{} W", drawn(&room, 0));
    node.handle().desire(cap(300));
    room.periods(&mut node, 10);
    assert_ne!(amd(&room), FREE);
    let mut node = after_a_kill(&room, node, room.config());
    assert_eq!(node.restore(ANSWERS), Ok(()));
    assert_eq!(amd(&room), FREE);
    assert!(node.journal().is_empty());
}

/// 300 W are (200/500)^(1/2.375) = 0.680 of the highest clock of a card of 600 W: 1,050 MHz of 1,600 in steps of 50, at which
/// it draws 284 W, and of 2,400 MHz 1,600, at which it draws 291 W.
#[test]
fn gpus_of_intel_that_refuse_their_limits_are_held_by_their_clocks_and_get_everything_back() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let limits = |room: &TestMachine| clocks(room).iter().map(HwmonClock::limit_mhz).collect::<Vec<_>>();
    let free = format!("{:?}", clocks(&room));
    for at in 0..3 {
        let (on, effect) = (VirtualAttribute::Cap(at), Effect::Fails(EACCES));
        let fault = Fault { on, direction: Direction::Write, effect, times: u32::MAX };
        room.machine.lock().faults().add(fault);
    }
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    node.handle().desire(cap(300));
    room.periods(&mut node, 20);
    for at in 0..3 {
        assert!((270.0..300.5).contains(&drawn(&room, at)), "{} W: {:?}", drawn(&room, at), limits(&room));
    }
    assert_eq!(causes(&node), [Some(LoopCause::Refused); 3]);
    assert_eq!(node.report().gpu.unwrap().report, applied(900));
    assert_eq!(touched(&node), [Control::Frequency; 3]);
    // Somebody raises a clock: it is lowered again.
    room.machine.lock().change(|_, _, hwmons| {
        if let Some(HwmonClock::Intel(parts)) = &mut hwmons[0].hwmon.clock {
            (parts[0].high, parts[0].boost) = (1_600, Some(1_600));
        }
    });
    room.periods(&mut node, 10);
    assert!((270.0..300.5).contains(&drawn(&room, 0)), "{} W: {:?}", drawn(&room, 0), limits(&room));
    node.handle().desire(Desire { gpu: DesiredCap::Gone, ..Desire::UNKNOWN });
    room.periods(&mut node, 3);
    assert_eq!(format!("{:?}", clocks(&room)), free);
    assert!(node.journal().is_empty());
}
