use super::*;
use crate::hardware::ResolvedHardware;
use crate::inventory::resolve;

const EPYC: &str = "AMD EPYC 9654 96-Core Processor";

fn watts(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn packages(model: &str, min: i32, max: i32) -> Reported {
    let said = |figure: i32| Some(watts(figure)).filter(|&watts| watts != Watts::ZERO);
    let (cpu_min, cpu_max) = (said(min), said(max));
    Reported { cpu_raw_model: Some(model.into()), sockets: Some(2), cpu_min, cpu_max, ..Reported::default() }
}

fn gpus(model: &str, min: i32, max: i32) -> Reported {
    Reported {
        gpu_raw_model: Some(model.into()),
        gpu_count: Some(8),
        gpu_min: Some(watts(min)),
        gpu_max: Some(watts(max)),
        ..Reported::default()
    }
}

/// The accepted hardware, and how many of its figures are not accepted.
fn taken(reported: Reported, peers: &Peers) -> (ResolvedHardware, usize) {
    let catalog = Catalog::embedded().unwrap();
    let facts = HardwareFacts { reported: Some(reported), ..HardwareFacts::default() };
    let (facts, told) = believed(facts, &catalog, peers);
    (resolve(&facts, None, false, &catalog).hardware, told.len())
}

fn ends((hardware, told): (ResolvedHardware, usize)) -> (Option<Watts>, Option<Watts>, usize) {
    (hardware.cpu.min_per_socket, hardware.cpu.max_per_socket, told)
}

#[test]
fn a_floor_of_20_kw_is_that_of_the_model() {
    // Observed: minWattsPerSocket 20000 took 32.8 kW from all others.
    let nobody = Peers::default();
    for said in [packages(EPYC, 20_000, 20_000), packages(EPYC, 20_000, 0), packages(EPYC, 20_000, 400)] {
        let (min, max, told) = ends(taken(said.clone(), &nobody));
        assert_eq!(min, Some(watts(320)), "{said:?}");
        // Five quarters of 400 W if it reports more.
        let expected = if said.cpu_max == Some(watts(20_000)) { 500 } else { 400 };
        assert_eq!(max, Some(watts(expected)), "{said:?}");
        assert!(told > 0, "{said:?}");
    }
}

#[test]
fn a_maximum_that_is_understated_is_that_of_the_model() {
    let nobody = Peers::default();
    // 50 W of a package that may draw 400 W would leave 350 W uncounted.
    assert_eq!(ends(taken(packages(EPYC, 20, 50), &nobody)), (Some(watts(20)), Some(watts(400)), 1));
    // Firmware that allows 320 W, a floor from RAPL, and a model without a configurable design power are accepted.
    assert_eq!(ends(taken(packages(EPYC, 100, 320), &nobody)), (Some(watts(100)), Some(watts(320)), 0));
    assert_eq!(ends(taken(packages(EPYC, 0, 500), &nobody)), (None, Some(watts(500)), 0));
    let xeon = "INTEL_XEON_GOLD_6530";
    assert_eq!(ends(taken(packages(xeon, 126, 250), &nobody)), (Some(watts(126)), Some(watts(250)), 0));
    assert_eq!(ends(taken(packages(xeon, 20_000, 270), &nobody)), (None, Some(watts(270)), 1));
}

#[test]
fn gpus_are_held_against_their_model_too() {
    let of = |said| {
        let (hardware, told) = taken(said, &Peers::default());
        let gpus = hardware.gpu.unwrap();
        (gpus.min, gpus.max, told)
    };
    // H100 SXM: 350 W to 700 W; five quarters of 700 W are 875 W.
    let sxm = "NVIDIA-H100-80GB-HBM3";
    assert_eq!(of(gpus(sxm, 200, 700)), (Some(watts(200)), Some(watts(700)), 0));
    assert_eq!(of(gpus(sxm, 9_000, 9_000)), (Some(watts(350)), Some(watts(875)), 2));
    assert_eq!(of(gpus(sxm, 1, 1)), (Some(watts(1)), Some(watts(700)), 1));
}

#[test]
fn without_a_catalogue_the_peers_of_a_model_bound_each_other() {
    let mut peers = Peers::default();
    for (node, max) in [("a", 280), ("b", 300), ("c", 310)] {
        peers.note(node, Some(&packages("new", 90, max)));
    }
    // The median is 300 W: 225 W to 375 W are accepted, and a floor up to 112.5 W.
    let by = |peers: &Peers, min, max| ends(taken(packages("new", min, max), peers));
    let of = |min, max| by(&peers, min, max);
    assert_eq!(of(90, 375), (Some(watts(90)), Some(watts(375)), 0));
    assert_eq!(of(2_000, 3_000), (Some(watts(90)), Some(watts(375)), 2));
    assert_eq!(of(40, 50), (Some(watts(40)), Some(watts(300)), 1));
    // One of many nodes moves the median at most to its neighbour, whatever it reports.
    peers.note("d", Some(&packages("new", 3_900, 4_000)));
    assert_eq!(by(&peers, 3_900, 4_000), (Some(watts(90)), Some(watts(375)), 2));
}

#[test]
fn alone_a_model_that_nobody_knows_is_bounded_by_physics() {
    let mut peers = Peers::default();
    peers.note("a", Some(&packages("new", 90, 300)));
    peers.note("b", Some(&packages("new", 20_000, 30_000)));
    let of = |min, max| ends(taken(packages("new", min, max), &peers));
    assert_eq!(of(90, 300), (Some(watts(90)), Some(watts(300)), 0));
    assert_eq!(of(20_000, 30_000), (None, Some(PACKAGE_MAX), 2));
}

#[test]
fn a_count_that_no_machine_has_is_asked_of_the_next_source() {
    let catalog = Catalog::embedded().unwrap();
    let of = |sockets, gpu_count, labelled: Option<u32>, allocatable_gpus| {
        let reported =
            Reported { sockets: Some(sockets), gpu_count: Some(gpu_count), ..packages(EPYC, 0, 0) };
        let labels = super::super::LabelFacts { gpu_count: labelled, ..Default::default() };
        let facts =
            HardwareFacts { reported: Some(reported), labels, capacity_cpus: Some(384), allocatable_gpus };
        let (facts, told) = believed(facts, &catalog, &Peers::default());
        let hardware = resolve(&facts, None, false, &catalog).hardware;
        (hardware.cpu.sockets, hardware.gpu.map(|gpus| gpus.count), told.len())
    };
    assert_eq!(of(2, 8, None, 8), (Some(2), Some(8), 0));
    assert_eq!(of(2, 4_000_000_000, Some(8), 0), (Some(2), Some(8), 1));
    assert_eq!(of(2, 8, Some(4_000_000_000), u32::MAX), (Some(2), Some(8), 2));
    assert_eq!(of(2, 4_000_000_000, Some(u32::MAX), u32::MAX), (Some(2), None, 3));
    // More GPUs than any single machine has need a second source.
    assert_eq!(of(2, 32, None, 4), (Some(2), Some(4), 1));
    assert_eq!(of(2, 32, None, 32), (Some(2), Some(32), 0));
    // 384 processors are four packages of 96 cores at most.
    assert_eq!((of(4, 8, None, 8).0, of(64, 8, None, 8).0), (Some(4), Some(4)));
}

#[test]
fn peers_forget_what_is_gone_and_say_when_they_know_something_else() {
    let mut peers = Peers::default();
    let said = packages("new", 90, 300);
    assert!(!peers.note("a", Some(&said)) && !peers.note("b", Some(&said)));
    assert!(peers.note("c", Some(&said)), "three agree");
    assert!(!peers.note("c", Some(&said)), "nothing new");
    assert!(!peers.note("d", Some(&packages("new", 90, 900))), "the middle stays");
    assert!(!peers.note("d", None) && peers.note("a", None));
    assert_eq!(peers.packages(&said), None);
}
