use super::*;
use crate::load::{Load, LoadJitter, LoadProfile};
use crate::preset;

fn millis(n: u64) -> Micros {
    Micros::new(n * 1_000)
}

const NODE: PlantDomain = PlantDomain::Node;

fn bench() -> Plant {
    let mut plant = Plant::new(&preset::xeon_2s(), 1).unwrap();
    plant.set_load(Load::busy(1.0)).unwrap();
    plant
}

fn power(window: Micros, noise: Noise, number: u64) -> PowerSensor {
    PowerSensor::new(NODE, window, noise, 1, number).unwrap()
}

#[test]
fn an_instant_sensor_shows_what_is_drawn() {
    let mut plant = bench();
    let mut sensor = power(Micros::ZERO, Noise::NONE, 0);
    assert_eq!(sensor.read(&plant), Some(120.0), "before the first step it is as it has been for long");
    plant.advance(millis(1));
    assert_eq!(sensor.read(&plant), Some(500.0));
}

#[test]
fn an_averaging_sensor_is_half_way_after_half_its_window() {
    let mut plant = bench();
    plant.set_profile(LoadProfile::Steps(vec![(Micros::ZERO, 0.0), (millis(5_000), 1.0)])).unwrap();
    plant.advance(millis(5_000));
    let mut sensor = power(millis(1_000), Noise::NONE, 0);
    let mut shown = vec![sensor.read(&plant).unwrap()];
    for _ in 0..6 {
        plant.advance(millis(250));
        shown.push(sensor.read(&plant).unwrap());
    }
    // From 120 W to 500 W in a straight line over 1 s.
    assert_eq!(shown, [120.0, 215.0, 310.0, 405.0, 500.0, 500.0, 500.0]);
}

#[test]
fn a_window_that_has_not_passed_yet_goes_over_what_there_is() {
    let mut plant = bench();
    plant.set_profile(LoadProfile::Steps(vec![(millis(100), 0.0)])).unwrap();
    plant.advance(millis(200));
    assert_eq!(power(millis(1_000), Noise::NONE, 0).read(&plant), Some(310.0));
}

#[test]
fn an_average_read_between_the_points_of_the_grid_is_still_a_mean() {
    let mut plant = bench();
    plant.advance(Micros::new(2_003_700));
    assert_eq!(power(millis(1_200), Noise::NONE, 0).read(&plant), Some(500.0));
}

#[test]
fn noise_has_the_deviation_that_was_asked_for() {
    let mut plant = bench();
    plant.advance(millis(2_000));
    let mut sensor = power(millis(1_000), Noise { deviation: 0.01, dropped: 0.0 }, 3);
    let readings: Vec<f64> = (0..10_000).map(|_| sensor.read(&plant).unwrap()).collect();
    let mean = readings.iter().sum::<f64>() / 1e4;
    let deviation = (readings.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
    // The mean of 10,000 readings with 5 W of deviation has one of 0.05 W.
    assert!((mean - 500.0).abs() < 0.2, "{mean}");
    assert!((deviation - 5.0).abs() < 0.2, "{deviation}");
}

#[test]
fn readings_are_dropped_as_often_as_asked_for_without_shifting_the_others() {
    let plant = bench();
    let whole = Noise { deviation: 0.01, dropped: 0.0 };
    let mut without = power(Micros::ZERO, whole, 3);
    let mut with = power(Micros::ZERO, Noise { dropped: 0.05, ..whole }, 3);
    let mut dropped = 0;
    for _ in 0..10_000 {
        let expected = without.read(&plant);
        match with.read(&plant) {
            None => dropped += 1,
            seen => assert_eq!(seen, expected),
        }
    }
    assert!((420..580).contains(&dropped), "{dropped} of 10,000 at 5 %");
    let mut dead = power(Micros::ZERO, Noise { deviation: 0.0, dropped: 1.0 }, 3);
    assert!((0..100).all(|_| dead.read(&plant).is_none()));
}

#[test]
fn a_stuck_sensor_shows_its_last_reading() {
    let mut plant = bench();
    let mut sensor = power(Micros::ZERO, Noise::NONE, 0);
    plant.advance(millis(10));
    assert_eq!(sensor.read(&plant), Some(500.0));
    sensor.stick(true);
    plant.set_load(Load::IDLE).unwrap();
    plant.advance(millis(10));
    assert_eq!(sensor.read(&plant), Some(500.0));
    sensor.stick(false);
    assert_eq!(sensor.read(&plant), Some(120.0));
}

#[test]
fn one_more_sensor_changes_nothing_for_the_others_or_the_plant() {
    let run = |extra: bool| {
        let mut plant = bench();
        plant.set_jitter(Some(LoadJitter { deviation: 0.05, every: millis(50) })).unwrap();
        let noise = Noise { deviation: 0.02, dropped: 0.1 };
        let mut first = power(millis(100), noise, 0);
        let mut second = power(millis(100), noise, 1);
        let mut seen = Vec::new();
        for _ in 0..100 {
            plant.advance(millis(100));
            seen.push(first.read(&plant));
            if extra {
                second.read(&plant);
            }
        }
        (seen, plant.energy(NODE))
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn a_gpus_counter_stands_still_between_its_updates() {
    let mut spec = preset::xeon_2s();
    spec.gpus.push(preset::h100_sxm());
    let mut plant = Plant::new(&spec, 1).unwrap();
    plant.set_gpu_load(0, Load::busy(0.5)).unwrap();
    let mut counter = EnergyCounter::new(PlantDomain::Gpu(0), millis(100), Noise::NONE, 1, 0).unwrap();
    let mut shown = Vec::new();
    for _ in 0..9 {
        plant.advance(millis(50));
        shown.push(counter.read(&plant).unwrap().get() / 1_000_000);
    }
    // 100 W + 300 W: 40 J every 100 ms.
    assert_eq!(shown, [0, 40, 40, 80, 80, 120, 120, 160, 160]);
}

#[test]
fn a_packages_counter_is_brought_up_to_date_every_millisecond() {
    let mut plant = bench();
    let mut counter = EnergyCounter::new(NODE, millis(1), Noise::NONE, 1, 0).unwrap();
    plant.advance(Micros::new(3_900));
    assert_eq!(counter.read(&plant), Some(MicroJoules::new(1_500_000)));
}

#[test]
fn a_noisy_counter_never_runs_back_and_stays_about_right() {
    let mut plant = bench();
    let noise = Noise { deviation: 0.05, dropped: 0.05 };
    let mut counter = EnergyCounter::new(NODE, millis(10), noise, 1, 0).unwrap();
    let mut last = MicroJoules::ZERO;
    for _ in 0..1_000 {
        plant.advance(millis(10));
        if let Some(now) = counter.read(&plant) {
            assert!(now >= last);
            last = now;
        }
    }
    // 5 kJ, off by 5 % of one reading in the root of a thousand.
    let ratio = last.get() as f64 / 5e9;
    assert!((ratio - 1.0).abs() < 0.01 && ratio != 1.0, "{ratio}");
}

#[test]
fn a_stuck_counter_goes_on_from_what_was_drawn_meanwhile() {
    let mut plant = bench();
    let mut counter = EnergyCounter::new(NODE, millis(1), Noise::NONE, 1, 0).unwrap();
    plant.advance(millis(1_000));
    assert_eq!(counter.read(&plant), Some(MicroJoules::new(500_000_000)));
    counter.stick(true);
    plant.advance(millis(1_000));
    assert_eq!(counter.read(&plant), Some(MicroJoules::new(500_000_000)));
    counter.stick(false);
    assert_eq!(counter.read(&plant), Some(MicroJoules::new(1_000_000_000)));
}

#[test]
fn a_register_wraps_at_its_modulus() {
    // 2^32 units of 61.035 µJ, as the kernel rounds them.
    let modulus = MicroJoules::new(262_143_389_886);
    assert_eq!(wrapped(MicroJoules::new(262_143_389_885), modulus), Some(MicroJoules::new(262_143_389_885)));
    assert_eq!(wrapped(MicroJoules::new(262_143_389_886), modulus), Some(MicroJoules::ZERO));
    assert_eq!(wrapped(MicroJoules::new(524_286_779_773), modulus), Some(MicroJoules::new(1)));
    assert_eq!(wrapped(MicroJoules::new(5), MicroJoules::ZERO), None);
}

#[test]
fn a_sensor_of_nothing_and_a_sensor_that_cannot_be_are_refused() {
    let plant = bench();
    let mut none = PowerSensor::new(PlantDomain::Gpu(0), millis(1_000), Noise::NONE, 1, 0).unwrap();
    assert_eq!(none.read(&plant), None);
    let mut none = EnergyCounter::new(PlantDomain::Package(2), millis(1), Noise::NONE, 1, 0).unwrap();
    assert_eq!(none.read(&plant), None);

    let sensor = |window, noise| PowerSensor::new(NODE, window, noise, 1, 0).is_err();
    let counter = |every, noise| EnergyCounter::new(NODE, every, noise, 1, 0).is_err();
    for window in [millis(5), millis(1_210), Micros::MAX] {
        assert!(sensor(window, Noise::NONE) && counter(window, Noise::NONE));
    }
    assert!(counter(Micros::ZERO, Noise::NONE));
    for bad in [f64::NAN, -0.1, 1.1] {
        assert!(sensor(millis(10), Noise { deviation: bad, dropped: 0.0 }));
        assert!(counter(millis(10), Noise { deviation: 0.0, dropped: bad }));
    }
}
