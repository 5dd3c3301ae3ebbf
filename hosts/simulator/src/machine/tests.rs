use super::*;
use crate::fleet::Fleet;
use crate::work;
use serde_json::json;

fn machine(fleet: &str) -> SimulatedMachine {
    let members = Fleet::parse(fleet).unwrap().members().unwrap();
    SimulatedMachine::new(&members[0], 1).unwrap()
}

/// A pod that keeps its processors and GPUs fully busy with work that depends on the clock.
fn busy(cpus: f64, gpus: u32, seconds: u32) -> Work {
    let notes = json!({
        work::DURATION: format!("{seconds}s"), work::CPU_UTIL: "100", work::GPU_UTIL: "100",
        work::MEMORY: "0", work::IO: "0", work::GPU_CLASS: "compute_bound",
    });
    Work::read(&serde_json::from_value(notes).unwrap(), cpus, gpus, true).unwrap()
}

fn id(name: &str) -> PodId {
    PodId(name.to_owned())
}

fn seconds(s: f64) -> Micros {
    let micros = std::time::Duration::from_secs_f64(s).as_micros();
    Micros::new(u64::try_from(micros).unwrap())
}

#[track_caller]
fn near(value: f64, wanted: f64, within: f64) {
    assert!((value - wanted).abs() <= within, "{value} and not {wanted} ± {within}");
}

#[test]
fn an_idle_machine_draws_what_its_packages_and_the_rest_draw() {
    let mut machine = machine("xeon:1");
    machine.advance(seconds(10.0));
    let reading = machine.read();
    // 0.18 of 270 W, twice; 80 W outside the packages.
    near(reading.cpu_watts, 97.2, 1e-6);
    near(reading.node_watts, 177.2, 1e-6);
    assert_eq!((reading.cpu_clock, reading.cpu_utilisation, reading.pods), (1.0, 0.0, 0));
    assert_eq!((reading.gpu_watts, machine.board_cap()), (0.0, None));
}

#[test]
fn a_cap_holds_for_each_package_and_slows_the_pods_down() {
    let mut machine = machine("xeon:1");
    machine.begin(id("a"), busy(128.0, 0, 100), 0.0);
    machine.advance(seconds(10.0));
    near(machine.read().cpu_watts, 540.0, 0.01);
    near(machine.pods()[&id("a")].done(), 0.1, 1e-6);

    assert_eq!(machine.set_package_cap(200.0), 200.0);
    machine.advance(seconds(20.0));
    let reading = machine.read();
    near(reading.cpu_watts, 400.0, 0.1);
    // 48.6 W + 221.4 W · x^2.5 = 200 W at x = 0.8589.
    near(reading.cpu_clock, 0.8589, 1e-3);
    machine.advance(seconds(30.0));
    let before = machine.pods()[&id("a")].done();
    machine.advance(seconds(40.0));
    near(machine.pods()[&id("a")].done() - before, 0.08589, 1e-4);
}

#[test]
fn no_instant_is_above_a_cap_once_it_holds() {
    let mut machine = machine("epyc:1");
    machine.begin(id("a"), busy(384.0, 0, 1_000), 0.0);
    machine.advance(seconds(10.0));
    machine.set_package_cap(250.0);
    // Long enough for the limiter, whose lag is 50 ms.
    machine.advance(seconds(11.0));
    for step in 0..200 {
        machine.advance(seconds(11.0 + f64::from(step) * 0.05));
        let most = machine.read().packages.iter().map(|(watts, _)| *watts).fold(0.0, f64::max);
        assert!(most <= 250.5, "{most} W at step {step}");
    }
}

#[test]
fn what_is_asked_for_is_brought_into_the_range_and_what_is_no_number_changes_nothing() {
    let mut machine = machine("gpu:1");
    // 0.55 of 280 W; the highest configurable design power is 300 W.
    near(machine.set_package_cap(1.0), 154.0, 1e-9);
    assert_eq!(machine.set_package_cap(5_000.0), 300.0);
    assert_eq!(machine.set_package_cap(200.0), 200.0);
    assert_eq!(machine.set_package_cap(f64::NAN), 200.0);
    assert_eq!(machine.set_board_cap(10.0), Some(350.0));
    assert_eq!(machine.set_board_cap(f64::INFINITY), Some(700.0));
    assert_eq!(machine.set_board_cap(f64::NAN), Some(700.0));
    assert_eq!(machine.set_throttle(i64::MIN), 0);
    assert_eq!(machine.set_throttle(i64::MAX), 100);
    machine.advance(seconds(5.0));
    // The full throttle leaves the lowest clock, a quarter.
    near(machine.read().cpu_clock, 0.25, 1e-3);
}

#[test]
fn a_gpu_cap_slows_the_pod_on_the_gpus_and_leaves_the_idle_ones_alone() {
    let mut machine = machine("gpu:1");
    machine.begin(id("a"), busy(8.0, 4, 1_000), 0.0);
    machine.advance(seconds(20.0));
    near(machine.read().gpu_watts, 4.0 * 700.0 + 4.0 * 100.0, 1.0);
    machine.set_board_cap(350.0);
    machine.advance(seconds(30.0));
    let reading = machine.read();
    near(reading.gpu_watts, 4.0 * 350.0 + 4.0 * 100.0, 1.0);
    let before = machine.pods()[&id("a")].done();
    machine.advance(seconds(130.0));
    // 100 W + 600 W · x^(19/8) = 350 W at x = 0.6917; a fifth waits for memory: 0.6917 / (0.8 + 0.2·0.6917).
    near((machine.pods()[&id("a")].done() - before) * 10.0, 0.7371, 2e-3);
}

#[test]
fn the_result_does_not_depend_on_how_often_somebody_looks() {
    let mut whole = machine("gpu:1");
    let mut cut = whole.clone();
    for machine in [&mut whole, &mut cut] {
        machine.begin(id("short"), busy(64.0, 2, 7), 0.0);
        machine.begin(id("long"), busy(100.0, 4, 60), 0.25);
        machine.set_package_cap(180.0);
    }
    whole.advance(seconds(30.0));
    for step in 1..=3_000 {
        cut.advance(Micros::new(step * 10_000));
    }
    assert_eq!(whole.joules().to_bits(), cut.joules().to_bits());
    for pod in ["short", "long"] {
        assert_eq!(whole.pods()[&id(pod)].done().to_bits(), cut.pods()[&id(pod)].done().to_bits());
    }
    assert!(whole.pods()[&id("short")].is_finished());
    whole.advance(seconds(1.0));
    assert_eq!(whole.now(), seconds(30.0), "time does not go back");
}

#[test]
fn a_finished_pod_no_longer_loads_the_machine_and_one_that_is_ended_is_gone() {
    let mut machine = machine("gpu:1");
    machine.begin(id("a"), busy(128.0, 8, 10), 0.0);
    machine.begin(id("b"), busy(64.0, 0, 1_000), 0.0);
    machine.advance(seconds(30.0));
    let reading = machine.read();
    assert_eq!((reading.pods, reading.gpu_utilisation), (1, 0.0));
    near(reading.cpu_utilisation, 0.25, 1e-9);
    machine.end(&id("a"));
    machine.end(&id("a"));
    machine.end(&id("b"));
    assert!(machine.pods().is_empty());
    assert_eq!(machine.read().cpu_utilisation, 0.0);
}

#[test]
fn a_pod_goes_on_from_where_it_was_and_what_is_no_part_is_nothing() {
    let mut machine = machine("xeon:1");
    for (name, done, wanted) in [
        ("half", 0.5, 0.5),
        ("nan", f64::NAN, 0.0),
        ("more", 1.5, 0.0),
        ("less", -0.1, 0.0),
        ("all", 1.0, 1.0),
    ] {
        machine.begin(id(name), busy(1.0, 0, 100), done);
        assert_eq!(machine.pods()[&id(name)].done(), wanted, "{name}");
    }
    machine.begin(id("half"), busy(1.0, 0, 100), 0.0);
    assert_eq!(machine.pods()[&id("half")].done(), 0.5, "beginning twice changes nothing");
    assert!(machine.pods()[&id("all")].is_finished());
}

#[test]
fn pods_that_want_more_than_there_is_share_it() {
    let mut machine = machine("xeon:1");
    machine.begin(id("a"), busy(128.0, 0, 100), 0.0);
    machine.begin(id("b"), busy(128.0, 0, 100), 0.0);
    machine.advance(seconds(20.0));
    near(machine.pods()[&id("a")].done(), 0.1, 1e-6);
    near(machine.read().cpu_watts, 540.0, 0.01);
}

#[test]
fn a_limit_that_even_the_lowest_clock_exceeds_is_told() {
    let mut machine = machine("epyc:1");
    machine.begin(id("a"), busy(384.0, 0, 1_000), 0.0);
    machine.set_package_cap(0.0);
    machine.advance(seconds(20.0));
    let reading = machine.read();
    // The range begins at 198 W, more than the lowest clock draws.
    assert!(!reading.saturated);
    near(reading.cpu_watts, 396.0, 0.2);
}

#[test]
fn a_machine_that_sleeps_draws_its_standby_and_pays_for_its_boot() {
    let mut machine = machine("xeon:1").booted("b");
    machine.set_package_cap(200.0);
    machine.advance(seconds(10.0));
    machine.switch(PowerOrder::ShutDown);
    machine.advance(seconds(24.9));
    assert!(machine.answers() && matches!(machine.power(), MachinePower::Stopping { .. }));
    machine.advance(seconds(25.0));
    assert_eq!((machine.power(), machine.answers()), (MachinePower::Off, false));
    machine.advance(seconds(125.0));
    let off = machine.read();
    assert_eq!((off.node_watts, off.cpu_watts, off.gpu_watts_now), (12.0, 0.0, 0.0));
    // 100 s of 12 W after 25 s of 177.2 W.
    near(machine.off().joules, 1_200.0, 1e-6);
    near(machine.joules(), 25.0 * 177.2 + 1_200.0, 0.1);
    // An order that its state does not allow changes nothing.
    machine.switch(PowerOrder::ShutDown);
    machine.switch(PowerOrder::CutOff);
    assert_eq!(machine.power(), MachinePower::Off);
    machine.switch(PowerOrder::Start);
    assert_eq!((machine.boot(), machine.answers()), ("b-1", false));
    machine.advance(seconds(215.0));
    assert_eq!(machine.power(), MachinePower::On);
    // Two packages of 270 W and 80 W for 90 s; the clocks take a moment to come up.
    near(machine.booting().joules, 90.0 * 620.0, 100.0);
    near(machine.booting().seconds, 90.0, 1e-9);
    assert_eq!((machine.package_cap(), machine.throttle_pct()), (270.0, 0), "a boot forgets its limits");
    machine.advance(seconds(225.0));
    near(machine.read().node_watts, 177.2, 0.1);
    assert_eq!((machine.now(), machine.lost_pods()), (seconds(225.0), 0));
    // One step over all of it comes to the same.
    let mut other = self::machine("xeon:1").booted("b");
    other.set_package_cap(200.0);
    other.advance(seconds(10.0));
    other.switch(PowerOrder::ShutDown);
    other.advance(seconds(125.0));
    other.switch(PowerOrder::Start);
    other.advance(seconds(225.0));
    near(other.joules() - machine.joules(), 0.0, 1e-3);
}

#[test]
fn pods_on_a_machine_that_goes_off_are_lost_and_counted() {
    let mut machine = machine("gpu:1").booted("b");
    machine.begin(id("a"), busy(8.0, 4, 100), 0.0);
    machine.begin(id("done"), busy(1.0, 0, 1), 1.0);
    machine.advance(seconds(1.0));
    machine.switch(PowerOrder::CutOff);
    assert_eq!((machine.lost_pods(), machine.pods().len()), (1, 0), "one that has ended is not lost");
    machine.switch(PowerOrder::Start);
    machine.switch(PowerOrder::CutOff);
    machine.switch(PowerOrder::Start);
    assert_eq!((machine.boot(), machine.lost_pods()), ("b-2", 1));
    machine.advance(seconds(100.0));
    machine.begin(id("a"), busy(8.0, 8, 100), 0.25);
    machine.advance(seconds(101.0));
    assert!(machine.read().gpu_watts_now > 4_000.0, "all its GPUs are free again");
    assert!(machine.pods()[&id("a")].done() > 0.25);
}
