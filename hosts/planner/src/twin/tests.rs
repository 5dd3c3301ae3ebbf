//! The conformance rows of the twin, with values computed by hand from the formulas beside them.

use super::cooling::{Linear, MeasuredPower, REFERENCE};
use super::psu::{PsuScope, RACK_LIMIT};
use super::*;
use crate::facility::{Facility, Observation};
use crate::hardware::{Cpu, GpuInventory};
use crate::power::estimate::Basis;
use crate::power::{Grounds, NoMeasurement, PowerMeter};
use crate::profile::Profile;
use power_units::{Celsius, Micros, Ratio, Role, Stamp};

const NOW: Stamp = Stamp::new(Micros::new(1_000_000_000));
const HOLD: Micros = Micros::new(300_000_000);

fn w(value: i32) -> Watts {
    Watts::from_int(value)
}

pub(super) fn law() -> TwinLaw<MeasuredPower> {
    TwinLaw { cooling: MeasuredPower, psu: PsuLimits::STANDARD, utilization: UtilizationModel::STANDARD }
}

pub(super) fn hardware((sockets, each): (u32, i32), gpus: Option<(u32, i32)>) -> ResolvedHardware {
    let cpu = Cpu { sockets: Some(sockets), max_per_socket: Some(w(each)), ..Cpu::default() };
    let gpu = gpus.map(|(count, max)| GpuInventory { model: None, count, min: None, max: Some(w(max)) });
    ResolvedHardware { cpu, gpu }
}

pub(super) fn measured(watts: i32) -> NodeReading {
    NodeReading::Measured { meter: PowerMeter::Http, watts: w(watts), age: Micros::ZERO }
}

pub(super) fn node(hardware: &ResolvedHardware) -> TwinFacts<'_> {
    TwinFacts {
        hardware,
        class: SchedulableClass::Performance,
        cpu_cap: CapValue::Open,
        gpu_cap: CapValue::Open,
        entitled: None,
        reading: measured(0),
        trend: None,
        rest: None,
        load: None,
        rack: None,
        zone: None,
    }
}

fn caps(cpu: i32, gpu: i32) -> (CapValue, CapValue) {
    (CapValue::Percent(Percent::from_int(cpu)), CapValue::Percent(Percent::from_int(gpu)))
}

fn facility(observations: &[Observation<'_>]) -> Facility {
    let mut facility = Facility::default();
    for &observation in observations {
        facility.record(NOW, NOW, observation).unwrap();
    }
    facility
}

fn degrees(text: &str) -> Observation<'static> {
    Observation::Ambient(Celsius::parse(text, Role::Nearest).unwrap())
}

/// The twins of nodes in a building with these observations.
fn site_twins<M: CoolingModel>(
    law: &TwinLaw<M>,
    nodes: &[TwinFacts<'_>],
    says: &[Observation<'_>],
) -> Vec<Twin> {
    let facility = facility(says);
    let unmanaged = BTreeMap::new();
    twins(law, nodes, &SiteFacts { facility: facility.at(NOW, HOLD), unmanaged: &unmanaged })
}

fn twin(facts: TwinFacts<'_>, says: &[Observation<'_>]) -> Twin {
    site_twins(&law(), &[facts], says).pop().unwrap()
}

#[track_caller]
fn close(actual: Option<Percent>, expected: &str) {
    let actual = actual.unwrap();
    let off = (actual - Percent::parse(expected, Role::Nearest).unwrap()).abs();
    assert!(off < Percent::parse("0.0001", Role::Nearest).unwrap(), "{actual}, not {expected}");
}

#[track_caller]
fn close_pue(twin: &Twin, expected: &str) {
    let actual = twin.pue.unwrap();
    let off = (actual - Ratio::parse(expected, Role::Nearest).unwrap()).abs();
    assert!(off < Ratio::parse("0.0001", Role::Nearest).unwrap(), "{actual}, not {expected}");
}

fn cooling(twin: &Twin) -> Option<Percent> {
    twin.cooling.map(|stress| stress.percent)
}

fn psu(twin: &Twin) -> Option<Percent> {
    twin.psu.map(|stress| stress.percent)
}

/// 2 × 360 W and 8 × 400 W: 3920 W.
fn big() -> ResolvedHardware {
    let mut hardware = hardware((2, 360), Some((8, 400)));
    hardware.cpu.total_cores = Some(192);
    hardware
}

/// The big node at 1960 W and two caps.
fn big_at(
    hardware: &ResolvedHardware,
    watts: i32,
    (cpu_cap, gpu_cap): (CapValue, CapValue),
) -> TwinFacts<'_> {
    TwinFacts { reading: measured(watts), cpu_cap, gpu_cap, ..node(hardware) }
}

#[test]
fn c10_an_eco_node_that_is_measured_at_0_w() {
    let big = big();
    let twin = twin(TwinFacts { class: SchedulableClass::Eco, ..big_at(&big, 0, caps(60, 60)) }, &[]);
    assert_eq!(twin.class, SchedulableClass::Eco);
    let sixty = Some(Percent::from_int(60));
    assert_eq!(twin.caps, CapState { cpu: sixty, gpu: sixty });
    close(twin.headroom, "100");
    close(cooling(&twin), "0");
    close(twin.density, "100");
    let budget = twin.power.node.unwrap();
    assert_eq!(budget.rating, w(3_920));
    assert!((budget.capped - w(2_352)).abs() < Watts::from_bits(1 << 16));
}

#[test]
fn c10_the_class_is_what_the_guard_says_and_not_what_is_planned() {
    use crate::guard::{CapsOf, GuardMode, TransitionState};
    let big = big();
    let class = |profile, draining, caps| {
        let class =
            TransitionState::observed(profile, draining, CapsOf::Profile(caps), GuardMode::Soft).class();
        twin(TwinFacts { class, ..node(&big) }, &[]).class
    };
    let (performance, eco) = (Profile::Performance, Profile::Eco);
    assert_eq!(class(Some(performance), true, performance), SchedulableClass::Draining);
    assert_eq!(class(Some(eco), true, eco), SchedulableClass::Draining);
    assert_eq!(class(None, true, eco), SchedulableClass::Draining);
    assert_eq!(class(Some(performance), false, performance), SchedulableClass::Performance);
    assert_eq!(class(Some(eco), false, eco), SchedulableClass::Eco);
    assert_eq!(class(None, false, eco), SchedulableClass::Unknown);
}

#[test]
fn an_estimate_has_no_trend() {
    let big = big();
    let trend = Some(WattsPerMinute::from_int(-600));
    let facts = TwinFacts { trend, reading: NodeReading::Absent(NoMeasurement::HttpError), ..node(&big) };
    assert_eq!(twin(facts, &[]).power.trend, None);
}

#[test]
fn c10_a_cap_of_nothing_is_no_cap() {
    let big = big();
    for percent in [0, -1] {
        let twin = twin(big_at(&big, 0, caps(percent, percent)), &[]);
        let all = Some(Percent::HUNDRED);
        assert_eq!(twin.caps, CapState { cpu: all, gpu: all });
        assert_eq!(twin.power.node.unwrap().capped, w(3_920));
    }
}

#[test]
fn c10_a_node_whose_hardware_is_zero_is_unknown_and_not_best() {
    // The row's values (density 0, headroom 100, cooling 0) are the formulas' results for zeroes; the tests of
    // `headroom::of` and `density::of` check them. A twin has them only for a node that is known to have no hardware;
    // fix lists operator B7 and B28: a missing rating was read as 0 W, and 0 W as the best node of the cluster.
    let nothing = ResolvedHardware::default();
    let blank = twin(node(&nothing), &[]);
    assert_eq!((blank.headroom, blank.cooling, blank.density, blank.pue), (None, None, None, None));
    let mut zero = hardware((0, 0), None);
    zero.cpu.total_cores = Some(0);
    let zeroes = twin(node(&zero), &[]);
    assert_eq!((zeroes.headroom, zeroes.cooling), (None, None));
    close(zeroes.density, "0");
}

#[test]
fn c10_a_cluster_beyond_all_limits_is_fully_stressed() {
    let big = big();
    close(psu(&twin(node(&big), &[Observation::ItPower(w(1_000_000_000))])), "100");
}

#[test]
fn c10_a_node_with_two_different_caps_and_a_trend() {
    let hardware = hardware((2, 350), Some((8, 700)));
    let trend = Some(WattsPerMinute::from_int(-120));
    let twin = twin(TwinFacts { trend, ..big_at(&hardware, 1_500, caps(60, 40)) }, &[]);
    let power = twin.power;
    let watts = |budget: Option<CappedRating>| {
        let CappedRating { rating, capped } = budget.unwrap();
        (rating, (capped + Watts::from_bits(1 << 16)).to_bits() >> 32)
    };
    assert_eq!(watts(power.cpu), (w(700), 420));
    assert_eq!(watts(power.gpu), (w(5_600), 2_240));
    assert_eq!(watts(power.node), (w(6_300), 2_660));
    // (2660 − 1500) / 2660
    close(twin.headroom, "43.609022");
    assert_eq!(power.trend, trend);
}

#[test]
fn c10_a_node_above_its_cap_has_negative_headroom() {
    let hardware = hardware((1, 200), None);
    close(twin(big_at(&hardware, 150, caps(50, 100)), &[]).headroom, "-50");
}

#[test]
fn c10_the_room_decides_how_much_of_the_rating_can_be_cooled() {
    let hardware = hardware((2, 350), None);
    let stress = |says: &[Observation<'_>]| cooling(&twin(big_at(&hardware, 350, caps(100, 100)), says));
    close(stress(&[degrees("20")]), "50");
    close(stress(&[degrees("45")]), "100");
    close(stress(&[degrees("60")]), "100");
    // Fix list operator B24: the table has 50 for 0 °C, as if freezing were unknown. 50 / 1.4:
    close(stress(&[degrees("0")]), "35.714286");
    close(stress(&[]), "50");
    let server = self::hardware((2, 360), None);
    let at = |text| cooling(&twin(big_at(&server, 300, caps(100, 100)), &[degrees(text)]));
    // 300/720 = 41.666667: over 1.04, and over 0.7.
    close(at("18"), "40.064103");
    close(at("35"), "59.523810");
}

#[test]
fn c10_a_racks_own_power_counts_before_the_clusters() {
    let hardware = big();
    let facts = TwinFacts { rack: Some("r1"), ..node(&hardware) };
    let both = [Observation::ItPower(w(40_000)), Observation::RackPower("r1", w(10_000))];
    let of_rack = twin(facts, &both).psu.unwrap();
    assert_eq!((of_rack.percent, of_rack.scope), (Percent::from_int(20), PsuScope::Rack));
    let of_cluster = twin(facts, &both[..1]).psu.unwrap();
    assert_eq!((of_cluster.percent, of_cluster.scope), (Percent::from_int(80), PsuScope::Cluster));
    close(psu(&twin(facts, &[Observation::ItPower(w(30_000))])), "60");
}

#[test]
fn c10_density_counts_cores_and_graphics_processors() {
    let mut small = hardware((2, 270), None);
    small.cpu.total_cores = Some(64);
    close(twin(node(&big()), &[]).density, "100");
    close(twin(node(&small), &[]).density, "33.333333");
}

#[test]
fn c10_the_whole_row_of_a_node_of_3920_w() {
    let big = big();
    let rack = |watts| Observation::RackPower("r1", w(watts));
    let row = |watts, percents, says: &[Observation<'_>]| {
        twin(TwinFacts { rack: Some("r1"), ..big_at(&big, watts, percents) }, says)
    };
    let half = row(1_960, caps(100, 100), &[degrees("20")]);
    close(half.headroom, "50");
    close(cooling(&half), "50");
    let warm = row(1_960, caps(60, 60), &[degrees("25")]);
    close(warm.headroom, "16.666667");
    close(cooling(&warm), "55.555556");
    let hot = row(3_000, caps(60, 60), &[degrees("35"), Observation::ItPower(w(25_000)), rack(10_000)]);
    close(hot.headroom, "-27.551020");
    close(cooling(&hot), "100");
    close(psu(&hot), "20");
    let full = row(3_920, caps(100, 100), &[degrees("45"), Observation::ItPower(w(60_000)), rack(60_000)]);
    close(full.headroom, "0");
    close(cooling(&full), "100");
    close(psu(&full), "100");
}

#[test]
fn c10_cold_and_hot_rooms() {
    let big = big();
    let stress = |text| cooling(&twin(big_at(&big, 1_960, caps(100, 100)), &[degrees(text)]));
    close(stress("5"), "38.461538");
    close(stress("0.1"), "35.765379");
    close(stress("44.99"), "99.960016");
    // Fix list operator B24: the table has 50 for −5 °C. 50 / 1.5:
    close(stress("-5"), "33.333333");
}

#[test]
fn c15_the_linear_model() {
    let law =
        TwinLaw { cooling: Linear::new(REFERENCE).unwrap(), psu: law().psu, utilization: law().utilization };
    let big = big();
    let of = |percents, says: &[Observation<'_>]| {
        site_twins(&law, &[big_at(&big, 0, percents)], says).pop().unwrap()
    };
    let eco = of(caps(60, 60), &[degrees("0")]);
    close(cooling(&eco), "47.04");
    let full = of(caps(100, 100), &[]);
    close(cooling(&full), "78.4");
    close(psu(&of(caps(60, 60), &[Observation::ItPower(w(35_000))])), "70");
}

#[test]
fn a_node_without_a_measurement_never_looks_empty() {
    // Fix list operator B7.
    let big = big();
    let blind = |absent, load| {
        let facts = TwinFacts { reading: NodeReading::Absent(absent), load, ..big_at(&big, 0, caps(60, 60)) };
        twin(facts, &[])
    };
    let of_caps = blind(NoMeasurement::NotConfigured, None);
    assert_eq!(of_caps.power.draw.source().as_str(), "static");
    close(of_caps.headroom, "0");
    close(cooling(&of_caps), "60");
    assert_eq!(of_caps.cooling.unwrap().grounds, Grounds::WorstCase);
    let failing = blind(NoMeasurement::PrometheusNoData, None);
    assert_eq!(failing.power.draw.source().as_str(), "prometheus-no-data");
    close(failing.headroom, "0");
    // Idle: 720·0.20 + 3200·0.15 = 624 W of 2352 W, and of 3920 W.
    let idle = blind(NoMeasurement::NotConfigured, Some(NodeLoad { cpu: Ratio::ZERO, gpu: Ratio::ZERO }));
    assert_eq!(idle.power.draw.basis(), Some(Basis::Utilization));
    assert_eq!(idle.power.draw.source().as_str(), "utilization");
    close(idle.headroom, "73.469388");
    close(cooling(&idle), "15.918367");
}

#[test]
fn a_node_without_ratings_has_a_measured_power_and_no_scores() {
    let mut half = hardware((2, 360), Some((8, 400)));
    half.gpu = half.gpu.map(|gpus| GpuInventory { max: None, ..gpus });
    let twin = twin(TwinFacts { reading: measured(500), ..node(&half) }, &[]);
    assert_eq!(twin.power.draw.watts(), Some(w(500)));
    assert_eq!((twin.headroom, twin.cooling, twin.power.node), (None, None, None));
    assert_eq!(twin.power.cpu.map(|budget| budget.rating), Some(w(720)));
}

#[test]
fn caps_in_watts_reach_the_budget() {
    // Fix list operator B29: eco at 216 W a package and 240 W a graphics processor is 60 %.
    let big = big();
    let twin = twin(big_at(&big, 1_960, (CapValue::Each(w(216)), CapValue::Each(w(240)))), &[]);
    let sixty = Some(Percent::from_int(60));
    assert_eq!(twin.caps, CapState { cpu: sixty, gpu: sixty });
    assert_eq!(twin.power.node.unwrap().capped, w(2_352));
    close(twin.headroom, "16.666667");
}

#[test]
fn a_rack_is_the_sum_of_its_nodes_and_of_what_nobody_manages() {
    // Fix list operator B23.
    let big = big();
    let in_rack = |rack, watts| TwinFacts { rack: Some(rack), ..big_at(&big, watts, caps(100, 100)) };
    let blind = TwinFacts { reading: NodeReading::Absent(NoMeasurement::HttpError), ..in_rack("b", 0) };
    let unmanaged = BTreeMap::from([("a".to_owned(), Some(w(5_000)))]);
    let facility = Facility::default();
    let site = SiteFacts { facility: facility.at(NOW, HOLD), unmanaged: &unmanaged };
    let all = twins(&law(), &[in_rack("a", 2_000), in_rack("b", 1_080), in_rack("a", 3_000), blind], &site);
    // Rack a: 2000 + 3000 + 5000 W. Rack b: 1080 W and the 3920 W that the unmeasured node may draw.
    let stress: Vec<_> = all.iter().map(|twin| twin.psu.unwrap()).collect();
    assert_eq!(stress[0].percent, Percent::from_int(20));
    assert_eq!((stress[2].percent, stress[2].grounds), (Percent::from_int(20), Grounds::Measured));
    assert_eq!((stress[1].percent, stress[1].grounds), (Percent::from_int(10), Grounds::WorstCase));
    assert_eq!(stress[3], stress[1]);
}

#[test]
fn a_rack_with_machines_of_which_nobody_knows_the_power_falls_back_to_the_cluster() {
    let big = big();
    let facts = TwinFacts { rack: Some("a"), ..big_at(&big, 2_000, caps(100, 100)) };
    let stress = |base: Option<Watts>, says: &[Observation<'_>]| {
        let (facility, unmanaged) = (facility(says), BTreeMap::from([("a".to_owned(), base)]));
        twins(&law(), &[facts], &SiteFacts { facility: facility.at(NOW, HOLD), unmanaged: &unmanaged })[0].psu
    };
    let cluster = Observation::ItPower(w(45_000));
    for unknown in [None, Some(w(-9)), Some(Watts::MIN)] {
        assert_eq!(stress(unknown, &[]), None, "{unknown:?}");
        let stress = stress(unknown, &[cluster]).unwrap();
        assert_eq!((stress.percent, stress.scope), (Percent::from_int(90), PsuScope::Cluster), "{unknown:?}");
    }
    // 0 W is a valid value, and the facility's measurement of the rack includes everything.
    let none = stress(Some(Watts::ZERO), &[cluster]).unwrap();
    assert_eq!((none.percent, none.scope), (Percent::from_int(4), PsuScope::Rack));
    let whole = stress(None, &[cluster, Observation::RackPower("a", w(5_000))]).unwrap();
    assert_eq!((whole.percent, whole.scope), (Percent::from_int(10), PsuScope::Rack));
}

#[test]
fn a_rack_with_an_unknown_part_falls_back_to_the_cluster() {
    let (big, nothing) = (big(), ResolvedHardware::default());
    let lost = TwinFacts {
        reading: NodeReading::Absent(NoMeasurement::HttpError),
        rack: Some("a"),
        ..node(&nothing)
    };
    let known = TwinFacts { rack: Some("a"), ..big_at(&big, 2_000, caps(100, 100)) };
    let with_cluster = site_twins(&law(), &[lost, known], &[Observation::ItPower(w(45_000))]);
    for twin in &with_cluster {
        let stress = twin.psu.unwrap();
        assert_eq!((stress.percent, stress.scope), (Percent::from_int(90), PsuScope::Cluster));
    }
    assert_eq!(site_twins(&law(), &[lost, known], &[])[1].psu, None);
}

#[test]
fn every_rack_can_have_its_own_limit() {
    let limits = PsuLimits::new(RACK_LIMIT, BTreeMap::from([("small".to_owned(), w(8_000))])).unwrap();
    let law = TwinLaw { psu: limits, ..law() };
    let big = big();
    let facts = TwinFacts { rack: Some("small"), ..big_at(&big, 2_000, caps(100, 100)) };
    close(psu(&site_twins(&law, &[facts], &[])[0]), "25");
    for bad in [0, -1] {
        assert!(PsuLimits::new(w(bad), BTreeMap::new()).is_err());
        let racks = BTreeMap::from([("r".to_owned(), w(bad))]);
        let error = PsuLimits::new(RACK_LIMIT, racks).unwrap_err();
        assert_eq!(error.to_string(), "the power limit of rack \"r\" must be above 0 W");
    }
}

#[test]
fn a_pue_is_what_the_facility_measures_and_is_never_guessed() {
    // The tables C10 and C15 have 1.05 to 1.40, estimated from the cooling stress; seed 000: "the operator computes
    // PUE from real data-center metrics".
    let big = big();
    let facts = big_at(&big, 1_960, caps(100, 100));
    assert_eq!(twin(facts, &[degrees("45")]).pue, None);
    let says = [Observation::ItPower(w(1_000)), Observation::CoolingPower(w(600))];
    close_pue(&twin(facts, &says), "1.6");
}

#[test]
fn a_node_in_no_rack_has_no_racks_stress_and_one_in_an_unknown_rack_an_unknown_one() {
    let (big, nothing) = (big(), ResolvedHardware::default());
    let free = twin(node(&big), &[]).psu.unwrap();
    assert_eq!((free.percent, free.scope), (Percent::ZERO, PsuScope::Nothing));
    let lost = TwinFacts {
        reading: NodeReading::Absent(NoMeasurement::HttpError),
        rack: Some("a"),
        ..node(&nothing)
    };
    assert_eq!(twin(lost, &[]).psu, None);
}

#[test]
fn every_zone_has_its_own_climate() {
    // Fix list operator B23.
    let big = big();
    let says = [degrees("20"), Observation::ZoneAmbient("hot", Celsius::from_int(45))];
    let stress = |zone| cooling(&twin(TwinFacts { zone, ..big_at(&big, 980, caps(100, 100)) }, &says));
    close(stress(Some("hot")), "50");
    close(stress(Some("other")), "25");
    close(stress(None), "25");
}

#[test]
fn a_counter_that_is_read_as_watts_is_suspected() {
    // Fix list operator B36: joules since boot instead of watts. The number still counts as measured, and as the
    // worst value.
    let big = big();
    let absurd = twin(big_at(&big, 1_000_000_000, caps(100, 100)), &[]);
    assert!(absurd.power.suspect);
    assert!(absurd.headroom.unwrap() < Percent::ZERO);
    close(cooling(&absurd), "100");
    assert!(!twin(big_at(&big, 39_200, caps(100, 100)), &[]).power.suspect);
}

#[test]
fn what_no_cap_is_on_counts_on_both_sides_of_the_headroom() {
    let hardware = hardware((2, 250), None);
    // Two packages of 250 W at 50 % are 250 W. They draw 200 W, and the plug shows 140 W more.
    let at_plug = TwinFacts { rest: Some(w(140)), ..big_at(&hardware, 340, caps(50, 100)) };
    let twin_at_plug = twin(at_plug, &[]);
    let node = twin_at_plug.power.node.unwrap();
    assert_eq!((node.capped, node.rating), (w(390), w(640)));
    // (390 − 340) ÷ 390 = 12.8205 %; the 50 W that are left are those of the devices.
    let headroom = twin_at_plug.headroom.unwrap();
    let off = (headroom - Percent::parse("12.820512", Role::Nearest).unwrap()).abs();
    assert!(off < Percent::parse("0.0001", Role::Nearest).unwrap(), "{headroom}");
    // An estimate is one of the devices, and is compared with them.
    let absent = NodeReading::Absent(NoMeasurement::AgentNoData);
    let estimated = twin(TwinFacts { reading: absent, ..at_plug }, &[]);
    assert_eq!(estimated.power.node.unwrap().capped, w(250));
    // A rest below nothing is none.
    let wrong = twin(TwinFacts { rest: Some(w(-5)), ..at_plug }, &[]);
    assert_eq!(wrong.power.node.unwrap().capped, w(250));
}
