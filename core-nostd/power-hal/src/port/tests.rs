use super::*;
use crate::contract::DomainFault;
use crate::mock::{Mock, MockDevice, MockError, MockMachine};
use crate::{ApplyOutcome, Limit, OriginalsInMemory, Span, Throttle};
use core::convert::Infallible;
use power_units::{KiloHertz, MicroWatts, Percent};

fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

fn package(number: u16) -> Domain {
    let limit = Limit::new(Span { floor: w(1), ceiling: w(4_095) }, MicroWatts::new(125_000)).unwrap();
    Domain::package(number, None).with_power(limit.known(Some(w(75)), Some(w(270))).unwrap())
}

fn two() -> MockMachine<2> {
    MockMachine::new([MockDevice::new(package(0)).limited(w(250), w(270)), MockDevice::new(package(1))])
}

fn handle<const N: usize, O: Originals>(hal: &Mock<'_, O, N>, number: u16) -> Handle {
    hal.domains().find(&Key::package(number, None)).unwrap()
}

const POWER: Control = Control::Power;

fn long_term(machine: &MockMachine<2>, number: u16) -> Option<Setting> {
    machine.in_force(&Key::package(number, None), POWER)
}

/// A journal that fails on request.
#[derive(Debug, Default)]
struct Faulty {
    memory: OriginalsInMemory<4>,
    keeps: bool,
    forgets: bool,
}

impl Originals for Faulty {
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind> {
        if self.keeps { self.memory.keep(domain, control, original) } else { Err(ErrorKind::Io) }
    }
    fn kept(&self, domain: &Key, control: Control) -> Option<Original> {
        self.memory.kept(domain, control)
    }
    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind> {
        if self.forgets { self.memory.forget(domain, control) } else { Err(ErrorKind::PermissionDenied) }
    }
}

#[test]
fn nothing_is_written_when_the_journal_refuses() {
    let machine = two();
    let mut hal = Mock::open(&machine, Faulty::default());
    let package = handle(&hal, 0);
    let refused = hal.apply(package, Setting::Power(w(100)));
    assert_eq!(refused, Err(PortError::Refused(Refusal::NotKept(ErrorKind::Io))));
    assert!(machine.instants(&Key::package(0, None)).unwrap().is_still());
}

#[test]
fn what_the_port_refuses_does_not_reach_the_journal_either() {
    let machine = two();
    let mut hal = Mock::open(&machine, Faulty::default());
    let package = handle(&hal, 0);
    for (wish, refusal) in [
        (Setting::Power(MicroWatts::ZERO), Refusal::NotPositive),
        (Setting::Frequency(KiloHertz::from_int(2_000_000)), Refusal::Lacking),
        (Setting::Throttle(Percent::from_int(10)), Refusal::Lacking),
    ] {
        assert_eq!(hal.apply(package, wish), Err(PortError::Refused(refusal)));
    }
}

/// Fix list agent S5, S6: originals outlive the process, and a cap from before a restart is released to
/// them.
#[test]
fn a_hal_that_opens_on_a_capped_machine_releases_to_the_journals_original() {
    let machine = two();
    let mut first = Mock::open(&machine, OriginalsInMemory::<4>::new());
    let package = handle(&first, 0);
    first.apply(package, Setting::Power(w(100))).unwrap();
    let journal = first.originals().clone();

    let mut second = Mock::open(&machine, journal.clone());
    let package = handle(&second, 0);
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(100))), "opening changes nothing");
    second.apply(package, Setting::Power(w(120))).unwrap();
    assert_eq!(second.release(package), Ok(Released::Restored));
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(250))));

    let mut third = Mock::open(&machine, journal);
    assert_eq!(third.release(package), Ok(Released::Restored), "an entry that was left over is harmless");
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(250))));
}

#[test]
fn a_journal_that_cannot_let_go_is_said_and_the_original_is_in_force() {
    let machine = two();
    let mut hal = Mock::open(&machine, Faulty { keeps: true, ..Faulty::default() });
    let package = handle(&hal, 0);
    hal.apply(package, Setting::Power(w(100))).unwrap();
    let released = hal.release(package);
    assert_eq!(released, Err(PortError::Refused(Refusal::NotForgotten(ErrorKind::PermissionDenied))));
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(250))));
    hal.originals().forgets = true;
    assert_eq!(hal.release(package), Ok(Released::Restored));
    assert_eq!(hal.release(package), Ok(Released::Untouched));
}

#[test]
fn a_first_write_that_fails_and_changes_nothing_leaves_nothing_to_release() {
    let machine = two();
    let key = Key::package(0, None);
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    let package = handle(&hal, 0);
    machine.cause(DomainFault::Locked(key));
    let refused = hal.apply(package, Setting::Power(w(100)));
    assert_eq!(refused, Err(PortError::Hal(MockError { domain: Some(key), kind: ErrorKind::Locked })));
    assert_eq!(hal.release(package), Ok(Released::Untouched));
}

#[test]
fn a_later_write_that_fails_keeps_the_original() {
    let machine = two();
    let key = Key::package(0, None);
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    let package = handle(&hal, 0);
    hal.apply(package, Setting::Power(w(100))).unwrap();
    machine.cause(DomainFault::Locked(key));
    assert!(hal.apply(package, Setting::Power(w(90))).is_err());
    assert_eq!(hal.release(package).map_err(|failure| failure.kind()), Err(ErrorKind::Locked));
    assert!(hal.originals().kept(&key, POWER).is_some());
    machine.heal(DomainFault::Locked(key));
    assert_eq!(hal.release(package), Ok(Released::Restored));
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(250))));
}

/// A HAL whose writes do only half of their work.
struct Half<'g> {
    hal: Mock<'g, OriginalsInMemory<4>, 2>,
    machine: &'g MockMachine<2>,
    answers: Result<Setting, ErrorKind>,
}

impl ErrorType for Half<'_> {
    type Error = MockError;
}

impl PowerHal for Half<'_> {
    type Originals = OriginalsInMemory<4>;

    fn domains(&self) -> Domains<'_> {
        self.hal.domains()
    }
    fn enumerate(&mut self) -> Result<(), MockError> {
        self.hal.enumerate()
    }
    fn read(&mut self, domain: Handle) -> Result<Sample, MockError> {
        self.hal.read(domain)
    }
    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, MockError> {
        self.hal.save(domain, control)
    }
    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, MockError> {
        let key = *self.domains().get(domain).unwrap().key();
        self.machine.cause(DomainFault::Moved(key, setting));
        self.answers.map_err(|kind| MockError { domain: Some(key), kind })
    }
    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), MockError> {
        match self.answers {
            // The write is accepted without effect, as for a locked time window on some kernels.
            Ok(_) => Ok(()),
            Err(_) => self.hal.restore(domain, control, original),
        }
    }
    fn originals(&mut self) -> &mut OriginalsInMemory<4> {
        self.hal.originals()
    }
}

#[test]
fn a_first_write_that_fails_half_way_is_released_to_the_original() {
    let machine = two();
    let hal = Mock::open(&machine, OriginalsInMemory::new());
    let package = handle(&hal, 0);
    let mut hal = Half { hal, machine: &machine, answers: Err(ErrorKind::Io) };
    assert!(hal.apply(package, Setting::Power(w(100))).is_err());
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(100))));
    assert_eq!(hal.release(package), Ok(Released::Restored));
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(250))));
}

#[test]
fn a_restore_without_effect_is_said_and_the_original_is_not_lost() {
    let machine = two();
    let hal = Mock::open(&machine, OriginalsInMemory::new());
    let package = handle(&hal, 0);
    let mut hal = Half { hal, machine: &machine, answers: Ok(Setting::Power(w(100))) };
    hal.apply(package, Setting::Power(w(100))).unwrap();
    assert_eq!(hal.release(package), Err(PortError::Refused(Refusal::NotRestored)));
    assert!(hal.originals().kept(&Key::package(0, None), POWER).is_some());
}

#[test]
fn an_answer_for_another_control_is_bad_data() {
    let machine = two();
    let hal = Mock::open(&machine, OriginalsInMemory::new());
    let package = handle(&hal, 0);
    let mut hal = Half { hal, machine: &machine, answers: Ok(Setting::Throttle(Percent::ZERO)) };
    let applied = hal.apply(package, Setting::Power(w(100)));
    assert_eq!(applied, Err(PortError::Refused(Refusal::Mismatched)));
    assert!(hal.originals().kept(&Key::package(0, None), POWER).is_some(), "something was written");
}

#[test]
fn a_control_that_cannot_be_put_back_does_not_keep_the_others_from_it() {
    let khz = KiloHertz::from_int;
    let frequency = Limit::new(Span { floor: khz(200_000), ceiling: khz(2_000_000) }, khz(0)).unwrap();
    let throttle = Throttle::new(Percent::HUNDRED, Percent::ZERO).unwrap();
    let machine =
        MockMachine::new([MockDevice::new(package(0).with_frequency(frequency).with_throttle(throttle))]);
    let key = Key::package(0, None);
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    // An original from an unknown version of the HAL.
    hal.originals().keep(&key, POWER, &Original::new(9, &[1, 2, 3]).unwrap()).unwrap();
    let package = hal.domains().find(&key).unwrap();
    hal.apply(package, Setting::Frequency(khz(1_000_000))).unwrap();
    hal.apply(package, Setting::Throttle(Percent::from_int(30))).unwrap();
    assert_eq!(hal.release(package).map_err(|failure| failure.kind()), Err(ErrorKind::BadData));
    assert_eq!(machine.in_force(&key, Control::Frequency), Some(Setting::Frequency(khz(2_000_000))));
    assert_eq!(machine.in_force(&key, Control::Throttle), Some(Setting::Throttle(Percent::ZERO)));
    assert!(hal.originals().kept(&key, POWER).is_some());
}

#[test]
fn a_batch_answers_for_every_domain_whatever_befalls_one() {
    let machine = two();
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    let (first, second) = (handle(&hal, 0), handle(&hal, 1));
    let mut readings = [first, second, first].map(Reading::new);
    assert!(
        readings.iter().all(|reading| reading.outcome == Err(ErrorKind::Timeout)),
        "nothing has answered yet"
    );
    machine.cause(DomainFault::Unreadable(Key::package(0, None)));
    hal.sample(&mut readings);
    assert_eq!(readings.map(|r| r.outcome.err()), [Some(ErrorKind::Io), None, Some(ErrorKind::Io)]);
    machine.heal(DomainFault::Unreadable(Key::package(0, None)));
    hal.sample(&mut readings);
    assert!(readings.iter().all(|reading| reading.outcome.is_ok()));
    hal.sample(&mut []);
}

#[test]
fn an_old_value_is_never_left_in_a_reading() {
    let machine = two();
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    let mut readings = [Reading::new(handle(&hal, 0))];
    hal.sample(&mut readings);
    machine.cause(DomainFault::Vanished(Key::package(0, None)));
    hal.sample(&mut readings);
    assert_eq!(readings[0].outcome, Err(ErrorKind::Gone));
    hal.describe().unwrap();
    hal.sample(&mut readings);
    assert_eq!(readings[0].outcome, Err(ErrorKind::Gone));
}

#[test]
fn a_handle_from_before_an_enumeration_is_gone_and_touches_nothing() {
    let machine = two();
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    let stale = handle(&hal, 0);
    machine.cause(DomainFault::Renumbered);
    hal.describe().unwrap();
    assert_eq!(hal.apply(stale, Setting::Power(w(100))), Err(PortError::Refused(Refusal::Stale)));
    assert_eq!(hal.release(stale), Err(PortError::Refused(Refusal::Stale)));
    for number in [0, 1] {
        assert!(machine.instants(&Key::package(number, None)).unwrap().is_still());
    }
    let fresh = handle(&hal, 0);
    assert!(hal.apply(fresh, Setting::Power(w(100))).is_ok());
    assert_eq!(long_term(&machine, 0), Some(Setting::Power(w(100))));
}

#[test]
fn a_stricter_limit_of_somebody_elses_is_reported_as_clamped() {
    let bmc = Setting::Power(w(140));
    let machine = MockMachine::new([MockDevice::new(package(0)).held_at(bmc), MockDevice::new(package(1))]);
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    let applied = hal.apply(handle(&hal, 0), Setting::Power(w(200))).unwrap();
    assert_eq!(
        applied.outcome(),
        ApplyOutcome::Clamped { requested: Setting::Power(w(200)), effective: bmc }
    );
    assert_eq!(hal.apply(handle(&hal, 0), Setting::Power(w(120))).unwrap().outcome(), ApplyOutcome::Exact);
}

#[test]
fn a_borrowed_hal_is_a_hal() {
    fn cap<H: PowerHal>(mut hal: H) -> ApplyOutcome {
        let domain = hal.describe().unwrap_or_else(|_| unreachable!()).iter().next().unwrap().0;
        let outcome = hal.apply(domain, Setting::Power(w(100))).unwrap_or_else(|_| unreachable!()).outcome();
        let mut readings = [Reading::new(domain)];
        hal.sample(&mut readings);
        assert_eq!(readings[0].outcome.unwrap().power_limit, Ok(w(100)));
        assert!(hal.release(domain).is_ok());
        outcome
    }
    let machine = two();
    let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
    assert_eq!(cap(&mut hal), ApplyOutcome::Exact);
    assert_eq!(cap(&mut &mut hal), ApplyOutcome::Exact);
}

/// A HAL of absent hardware.
struct Absent(OriginalsInMemory<0>);

impl ErrorType for Absent {
    type Error = Infallible;
}

impl PowerHal for Absent {
    type Originals = OriginalsInMemory<0>;

    fn domains(&self) -> Domains<'_> {
        Domains::new(crate::Generation::FIRST, &[])
    }
    fn enumerate(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
    fn read(&mut self, _: Handle) -> Result<Sample, Infallible> {
        unreachable!("no domain is listed")
    }
    fn save(&mut self, _: Handle, _: Control) -> Result<Original, Infallible> {
        unreachable!("no domain is listed")
    }
    fn write(&mut self, _: Handle, _: Setting) -> Result<Setting, Infallible> {
        unreachable!("no domain is listed")
    }
    fn restore(&mut self, _: Handle, _: Control, _: &Original) -> Result<(), Infallible> {
        unreachable!("no domain is listed")
    }
    fn originals(&mut self) -> &mut OriginalsInMemory<0> {
        &mut self.0
    }
}

#[test]
fn what_is_not_listed_never_reaches_a_hal() {
    let machine = two();
    let foreign = handle(&Mock::open(&machine, OriginalsInMemory::<4>::new()), 1);
    let mut absent = Absent(OriginalsInMemory::new());
    assert!(absent.describe().unwrap().is_empty());
    let applied = absent.apply(foreign, Setting::Power(w(100)));
    assert_eq!(applied.map_err(|failure| failure.kind()), Err(ErrorKind::Gone));
    assert_eq!(absent.release(foreign).map_err(|failure| failure.kind()), Err(ErrorKind::Gone));
    let mut readings = [Reading::new(foreign)];
    absent.sample(&mut readings);
    assert_eq!(readings[0].outcome, Err(ErrorKind::Gone));
}

mod laws {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_asked_in_whatever_order_the_release_restores(
            wishes in prop::collection::vec((any::<bool>(), any::<u64>()), 0..12),
            long in 0_u64..300_000_000, short in 0_u64..300_000_000,
        ) {
            let (long, short) = (long - long % 125_000, short - short % 125_000);
            let device = MockDevice::new(package(0)).limited(MicroWatts::new(long), MicroWatts::new(short));
            let machine = MockMachine::new([device, MockDevice::new(package(1))]);
            let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
            let target = handle(&hal, 0);
            let before = hal.save(target, POWER).unwrap();
            for (huge, wish) in wishes {
                let wish = MicroWatts::new(if huge { wish } else { wish % 400_000_000 });
                match hal.apply(target, Setting::Power(wish)) {
                    Err(failure) => prop_assert_eq!((failure.kind(), wish), (ErrorKind::OutOfRange, MicroWatts::ZERO)),
                    Ok(applied) => {
                        prop_assert_eq!(Some(applied.effective()), long_term(&machine, 0));
                        let Setting::Power(found) = applied.effective() else { unreachable!() };
                        prop_assert!(w(75) <= found && found <= w(270));
                        prop_assert!(found <= wish || applied.permits_more());
                    }
                }
                prop_assert!(machine.instants(&Key::package(0, None)).unwrap().ordered());
            }
            prop_assert!(hal.release(target).is_ok());
            prop_assert_eq!(hal.save(target, POWER).unwrap(), before);
            prop_assert_eq!(long_term(&machine, 1), Some(Setting::Power(w(270))));
            prop_assert!(hal.originals().is_empty());
        }
    }
}
