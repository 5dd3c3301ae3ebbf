use crate::contract::{
    ContractMode, ContractReport, DomainFault, Opaque, RefusableOriginals, Rule, SecondHal, check,
};
use crate::mock::{Mock, MockDevice, MockMachine};
use crate::{
    Control, Counter, Covers, CpuSet, Domain, Key, Limit, Originals, OriginalsInMemory, PowerHal, Setting,
    Span, StateReading, Throttle, ThrottledMeter,
};
use crate::{ErrorKind, Original};
use power_units::{KiloHertz, MicroJoules, MicroWatts, Micros, Percent};
use std::vec::Vec;

pub(super) fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

pub(super) fn khz(khz: i32) -> KiloHertz {
    KiloHertz::from_int(khz)
}

/// A RAPL register of eighths of a watt.
pub(super) fn register() -> Limit<MicroWatts> {
    Limit::new(Span { floor: w(1), ceiling: MicroWatts::new(4_095_875_000) }, MicroWatts::new(125_000))
        .unwrap()
}

/// Energy status unit 16: the counter starts again after 65.5 kJ.
pub(super) fn counter() -> Counter {
    Counter::new(MicroJoules::new(65_532_610_987 + 15))
}

pub(super) fn package(number: u16) -> Domain {
    let limit = register().known(Some(w(75)), Some(w(270))).unwrap();
    Domain::package(number, None).with_counter(counter()).with_power(limit)
}

pub(super) fn policy(cpu: u16) -> MockDevice {
    let limit = Limit::new(Span { floor: khz(1_200_000), ceiling: khz(3_200_000) }, khz(0)).unwrap();
    let covers = Covers::new(0, CpuSet::parse(&std::format!("{cpu}")).unwrap()).unwrap();
    MockDevice::new(Domain::policy(covers).with_frequency(limit))
}

fn gpu(address: &str, min: u64, max: u64) -> Domain {
    let limit = Limit::new(Span { floor: w(1), ceiling: w(4_294) }, MicroWatts::new(1_000)).unwrap();
    let limit = limit.known(Some(w(min)), Some(w(max))).unwrap().with_default(Some(w(max)));
    Domain::gpu(address).unwrap().with_power_meter().with_power(limit)
}

/// A domain that reports everything of its state.
pub(super) fn reporting(domain: Domain) -> Domain {
    StateReading::ALL.into_iter().fold(domain, Domain::with_reading)
}

fn passes<const N: usize>(devices: [MockDevice; N]) -> ContractReport {
    let machine = MockMachine::new(devices);
    let mut hal = Mock::open(&machine, RefusableOriginals::new(OriginalsInMemory::<32>::new()));
    let before: Vec<_> = states(&machine, &devices);
    let report = check(&mut hal, &mut &machine, ContractMode::Full).unwrap();
    assert_eq!(states(&machine, &devices), before, "a run leaves everything as it found it");
    assert!(hal.originals().inner().is_empty());
    report
}

fn states<const N: usize>(machine: &MockMachine<N>, devices: &[MockDevice]) -> Vec<Option<Setting>> {
    let keys = devices.iter().map(|device| *device.domain().key());
    keys.flat_map(|key| Control::ALL.map(|control| machine.in_force(&key, control))).collect()
}

#[test]
fn a_machine_of_every_kind_keeps_every_rule() {
    let throttle = Throttle::new(Percent::from_int(80), Percent::ZERO).unwrap();
    let report = passes([
        MockDevice::new(package(0)).limited(w(100), w(250)).counting_from(MicroJoules::new(65_532_000_000)),
        MockDevice::new(package(1)).limited(w(180), w(200)).drawing(w(250)),
        policy(0),
        policy(1).limited_to(khz(2_000_000)),
        MockDevice::new(reporting(gpu("0000:c1:00.0", 200, 700)).with_throttled(ThrottledMeter::Periods))
            .held_back(),
        MockDevice::new(gpu("0000:41:00.0", 290, 294)),
        MockDevice::new(Domain::socket(0).with_power_meter().with_power(register()))
            .held_at(Setting::Power(w(240))),
        MockDevice::new(Domain::socket(1).with_throttle(throttle)),
        MockDevice::new(
            Domain::package(2, Some(1))
                .with_counter(Counter::endless())
                .with_dram(counter())
                .with_throttled(ThrottledMeter::Time { modulus: None }),
        )
        .held_back(),
    ]);
    assert_eq!(
        (report.domains, report.controls, report.blocked, report.blind, report.in_use),
        (9, 8, 0, 0, 0)
    );
    assert_eq!(report.unseen().collect::<Vec<_>>(), []);
}

#[test]
fn absent_hardware_is_an_empty_list_and_no_error() {
    let report = passes([]);
    assert_eq!((report.domains, report.controls), (0, 0));
    assert_eq!(report.looks(Rule::Restored), 0, "and proves nothing of the rest");
}

#[test]
fn a_meter_that_nothing_can_limit_keeps_the_contract() {
    // EPYC under powercap: energy, and no limit.
    let report = passes([0, 1].map(|n| MockDevice::new(Domain::package(n, None).with_counter(counter()))));
    assert_eq!((report.domains, report.controls), (2, 0));
    assert!(report.looks(Rule::LackingRefused) == 8 && report.looks(Rule::BatchSurvives) == 2);
}

#[test]
fn a_range_of_one_value_and_a_range_that_nobody_knows_keep_the_contract() {
    let one = Domain::package(0, None).with_power(register().known(Some(w(290)), Some(w(290))).unwrap());
    let unknown = Domain::package(1, None).with_power(register());
    let report = passes([MockDevice::new(one), MockDevice::new(unknown).limited(w(35), w(60))]);
    assert_eq!((report.controls, report.blocked), (2, 0));
}

#[test]
fn a_domain_with_every_control_has_each_original_of_its_own() {
    let limit = Limit::new(Span { floor: khz(210_000), ceiling: khz(1_980_000) }, khz(15_000)).unwrap();
    let throttle = Throttle::new(Percent::HUNDRED, Percent::ZERO).unwrap();
    let all = gpu("0000:01:00.0", 200, 700).with_frequency(limit).with_throttle(throttle);
    assert_eq!(passes([MockDevice::new(all)]).controls, 3);
}

#[test]
fn limits_below_their_own_range_come_back_as_they_were() {
    // A vendor tool has set less than the hardware's reported minimum.
    let report = passes([MockDevice::new(package(0)).limited(w(40), w(50)), MockDevice::new(package(1))]);
    assert_eq!(report.controls, 2);
}

#[test]
fn a_meter_wraps_within_a_run_without_being_called_backward() {
    let just_before = MicroJoules::new(65_532_611_002 - 5_000_000);
    passes([MockDevice::new(package(0)).counting_from(just_before).drawing(w(270))]);
}

#[test]
fn a_large_machine_keeps_the_contract() {
    let devices: [MockDevice; 24] = core::array::from_fn(|cpu| policy(cpu as u16));
    assert_eq!(passes(devices).controls, 24);
}

/// A HAL that counts the calls from the port.
type Counted<'g> = Mock<'g, RefusableOriginals<OriginalsInMemory<4>>, 2>;

fn two() -> MockMachine<2> {
    MockMachine::new([MockDevice::new(package(0)).limited(w(180), w(200)), MockDevice::new(package(1))])
}

fn open(machine: &MockMachine<2>) -> Counted<'_> {
    Mock::open(machine, RefusableOriginals::new(OriginalsInMemory::new()))
}

#[test]
fn a_read_only_run_writes_nothing_at_any_instant() {
    let machine = two();
    let report = check(&mut open(&machine), &mut &machine, ContractMode::ReadOnly).unwrap();
    for number in 0..2 {
        assert!(machine.instants(&Key::package(number, None)).unwrap().is_still());
    }
    assert_eq!((report.domains, report.controls), (2, 0));
    let seen: Vec<_> = Rule::ALL.into_iter().filter(|rule| report.looks(*rule) > 0).collect();
    assert_eq!(
        seen,
        [
            Rule::Describes,
            Rule::KeysUnique,
            Rule::DescribeStable,
            Rule::SampleComplete,
            Rule::SampleStamped,
            Rule::MeterForward,
            Rule::StatePossible
        ]
    );
}

#[test]
fn real_hardware_is_seen_through_a_second_hal() {
    let machine = two();
    let mut hal = open(&machine);
    let mut twin = SecondHal::new(open(&machine), |span: Micros| machine.advance(span));
    let report = check(&mut hal, &mut twin, ContractMode::Lowering).unwrap();
    assert_eq!((report.domains, report.controls, report.blocked), (2, 2, 0));
    assert!(report.looks(Rule::SavedFirst) == 2 && report.looks(Rule::MeterForward) > 0);
    assert_eq!((report.looks(Rule::ZeroRefused), report.looks(Rule::LockedSaid)), (0, 0));
}

#[test]
fn where_nothing_can_be_seen_the_report_says_what_was_not_looked_at() {
    let machine = two();
    let report = check(&mut open(&machine), &mut Opaque, ContractMode::Full).unwrap();
    let unseen: Vec<_> = report.unseen().collect();
    for rule in
        [Rule::BatchSurvives, Rule::SampleSeesOthers, Rule::Ordered, Rule::RestartRestores, Rule::GoneSaid]
    {
        assert!(unseen.contains(&rule), "{rule:?}");
    }
    assert!(!unseen.contains(&Rule::Restored));
}

#[test]
fn a_machine_that_is_locked_from_the_start_is_reported_as_blocked() {
    let machine = two();
    machine.cause(DomainFault::Locked(Key::package(0, None)));
    let report = check(&mut open(&machine), &mut &machine, ContractMode::Lowering).unwrap();
    assert_eq!((report.controls, report.blocked), (1, 1));
}

#[test]
fn a_control_that_is_in_use_is_left_alone() {
    let machine = two();
    let mut hal = open(&machine);
    let (key, word) = (Key::package(1, None), 270_000_000);
    hal.originals().keep(&key, Control::Power, &Original::new(0, &[word, word]).unwrap()).unwrap();
    let report = check(&mut hal, &mut &machine, ContractMode::Lowering).unwrap();
    assert_eq!((report.controls, report.in_use), (1, 1));
    assert!(hal.originals().kept(&key, Control::Power).is_some());
    assert!(machine.instants(&key).unwrap().is_still());
}

#[test]
fn a_machine_that_cannot_be_read_is_reported_as_blind() {
    let machine = two();
    machine.cause(DomainFault::Unreadable(Key::package(0, None)));
    let report = check(&mut open(&machine), &mut Opaque, ContractMode::Lowering).unwrap();
    assert_eq!((report.controls, report.blind), (1, 1));
}

#[test]
fn a_journal_that_refuses_from_the_start_is_a_breach_with_its_reason() {
    let machine = two();
    let mut hal = Mock::open(&machine, RefusableOriginals::new(OriginalsInMemory::<0>::new()));
    let breach = check(&mut hal, &mut &machine, ContractMode::Full).unwrap_err();
    assert_eq!((breach.rule, breach.error), (Rule::Applies, Some(ErrorKind::Io)));
    let text = std::string::ToString::to_string(&breach);
    assert!(text.starts_with("broken: Applies at package-0, asked Power("), "{text}");
}
