//! Tests the engine of a machine with its own hardware, an hour at a time.

use crate::number;
use joulie_core::node::actuation::ActuationLaw;
use joulie_core::node::backend::{BackendLaw, BackendPreference};
use joulie_core::node::backoff::Backoff;
use joulie_core::node::cap::Floor;
use joulie_core::node::classic::{self, Classic};
use joulie_core::node::drift::DriftLaw;
use joulie_core::node::engine::{EngineLaws, LoopLaw, NodeAccess, NodeParts};
use joulie_core::node::gpu_cap::GpuLaw;
use joulie_core::node::limiter::LimiterLaw;
use joulie_core::node::tracking::{self, Tracking};
use power_units::Micros;
use world::machine::{DeviceBehaviour, MachineHour, hour};

const EVERYDAY: u64 = 6;

fn laws(dvfs: LoopLaw) -> EngineLaws {
    let seconds = |count: u64| Micros::new(count * 1_000_000);
    let backoff = Backoff::new(seconds(1), seconds(60)).expect("waits that grow");
    let actuation = ActuationLaw::new(seconds(2), backoff).expect("a time above zero");
    let limits =
        LimiterLaw { actuation, drift: DriftLaw::new(backoff, 5, seconds(600)).expect("a truce above zero") };
    let (floor, preference) = (Floor::NONE, BackendPreference::LimitFirst);
    let cpu = BackendLaw { limits, throttle: actuation, settle: seconds(2), floor, preference };
    EngineLaws {
        cpu,
        gpu: GpuLaw { limits, floor },
        dvfs,
        grants: NodeParts::ALL,
        access: NodeAccess::Control,
    }
}

fn tracking() -> EngineLaws {
    laws(LoopLaw::Tracking(Tracking::new(tracking::DEFAULTS).expect("the standard tuning")))
}

fn played(seed: u64, laws: EngineLaws, devices: DeviceBehaviour) -> MachineHour {
    hour(seed, laws, devices).expect("a plant")
}

#[test]
fn what_a_machine_draws_stays_at_its_caps_and_its_originals_come_back() {
    let seeds = match number("WORLD_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("WORLD_SEEDS").unwrap_or(EVERYDAY),
    };
    let (mut limits, mut throttles, mut restarts) = (0, 0, 0);
    for seed in seeds {
        let hour = played(seed, tracking(), DeviceBehaviour::True);
        assert_eq!((&hour.breaches[..], &hour.left[..]), (&[][..], &[][..]), "WORLD_SEED={seed}");
        limits += hour.orders.0;
        throttles += hour.orders.1;
        restarts += hour.orders.2;
    }
    assert!(limits > 0 && throttles > 0 && restarts > 0, "{limits} {throttles} {restarts}");
}

#[test]
fn the_law_of_the_seeds_puts_the_originals_back_too() {
    let classic = laws(LoopLaw::Classic(Classic::new(classic::DEFAULTS).expect("the standard tuning")));
    for seed in 1..=EVERYDAY {
        assert_eq!(played(seed, classic, DeviceBehaviour::True).left, [""; 0], "WORLD_SEED={seed}");
    }
}

#[test]
fn an_hour_of_a_machine_plays_again_bit_for_bit() {
    let once = played(1, tracking(), DeviceBehaviour::True);
    assert_eq!(once, played(1, tracking(), DeviceBehaviour::True));
    assert_ne!(once.hash, played(2, tracking(), DeviceBehaviour::True).hash);
}

#[test]
fn devices_that_lie_are_found_out() {
    let breaches = (1..=EVERYDAY).map(|seed| played(seed, tracking(), DeviceBehaviour::Lying).breaches.len());
    assert!(breaches.sum::<usize>() > 0);
}
