use super::*;
use crate::worker::{View, Worker};
use power_hal::{Applied, Domains, Generation, Limit, Released, Sample, Span};
use power_units::MicroWatts;
use std::sync::mpsc::{Receiver, Sender, channel};

const ANSWERS: Duration = Duration::from_secs(20);

fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

const FIRST: Ticket = Ticket::NONE.next();

fn set(watts: u64) -> Order {
    Order::Set(Setting::Power(w(watts)))
}

/// A device of packages that records its orders, and that waits for a signal at each write while the test holds
/// it.
struct Fake {
    domains: Vec<Domain>,
    generation: Generation,
    limit: Vec<MicroWatts>,
    told: Sender<String>,
    gate: Option<Receiver<()>>,
    gone: bool,
}

impl Device for Fake {
    fn look(&mut self) -> Result<(), DriverError> {
        if std::mem::take(&mut self.gone) {
            self.generation = self.generation.next();
        }
        Ok(())
    }

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.domains)
    }

    fn frequency_table(&self, _: Handle) -> &[u32] {
        &[]
    }

    fn sample(&mut self, readings: &mut [Reading]) {
        for (reading, limit) in readings.iter_mut().zip(&self.limit) {
            let sample = Sample { power_limit: Ok(*limit), ..Sample::at(Stamp::new(Micros::ZERO)) };
            reading.outcome = if self.gone { Err(ErrorKind::Gone) } else { Ok(sample) };
        }
    }

    fn keep(&mut self, touched: &[(Handle, Control, Option<Setting>)]) {
        if !touched.is_empty() {
            self.told.send(format!("keep {}", touched.len())).unwrap();
        }
    }

    fn apply(&mut self, domain: Handle, setting: Setting) -> Result<Applied, DriverError> {
        if let Some(gate) = &self.gate {
            gate.recv().unwrap();
        }
        let Setting::Power(limit) = setting else { panic!("a package has a power limit") };
        self.limit[domain.index()] = limit;
        self.told.send(format!("{} to {}", domain.index(), limit.get() / 1_000_000)).unwrap();
        Ok(Applied::new(&self.domains[domain.index()], setting, setting))
    }

    fn release(&mut self, domain: Handle, _: Control) -> Result<Released, DriverError> {
        self.told.send(format!("{} back", domain.index())).unwrap();
        Ok(Released::Restored)
    }

    fn cards(&self) -> Option<crate::Cards> {
        None
    }

    fn uses(&mut self) -> Option<Vec<crate::GpuGroupUse>> {
        None
    }

    fn tidy(&self) {
        self.told.send("tidy".to_owned()).unwrap();
    }

    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }
}

struct Bench {
    worker: Worker,
    wakeup: Arc<Wakeup>,
    told: Receiver<String>,
    time: Time,
}

fn start(packages: u16, gate: Option<Receiver<()>>, gone: bool) -> Bench {
    let (tell, told) = channel();
    let limit = Limit::new(Span { floor: w(1), ceiling: w(4_000) }, w(0)).unwrap();
    let domains = (0..packages).map(|n| Domain::package(n, None).with_power(limit)).collect();
    let generation = Generation::FIRST;
    let limit = vec![w(200); packages.into()];
    let mut fake = Some(Fake { domains, generation, limit, told: tell, gate, gone });
    let (wakeup, time) = (Arc::new(Wakeup::default()), Time::manual());
    let opener = Box::new(move || Ok(Box::new(fake.take().unwrap()) as Box<dyn Device>));
    let retry = Backoff::new(Micros::new(1), Micros::new(1)).unwrap();
    let worker = Worker::start(BackendKind::Powercap, opener, retry, time.clone(), wakeup.clone()).unwrap();
    let mut bench = Bench { worker, wakeup, told, time };
    bench.until(|view| view.standing == BackendState::Ready);
    bench
}

impl Bench {
    /// Processes what arrives until `done` is true.
    fn until(&mut self, done: impl Fn(&View) -> bool) {
        let until = Deadline::after(ANSWERS);
        loop {
            let heard = self.wakeup.count();
            self.worker.collect();
            if done(&self.worker.view) {
                return;
            }
            assert!(!until.is_over(), "{:?}", self.worker.view);
            self.wakeup.wait(heard, until);
        }
    }

    fn heard(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.told.recv_timeout(ANSWERS).unwrap()).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.worker.stop();
    }
}

#[test]
fn originals_are_kept_first_and_what_lowers_goes_before_what_raises() {
    let (open, gate) = channel();
    let mut bench = start(3, Some(gate), false);
    bench.worker.ask(1);
    bench.until(|view| view.answered == 1);
    // The first order blocks the thread, so that the others are taken as one batch.
    bench.worker.order(2, FIRST, set(200));
    let first = bench.heard(1);
    for (package, order) in [(0, set(300)), (1, Order::Release(Control::Power)), (2, set(100))] {
        assert!(bench.worker.order(package, FIRST.next(), order));
    }
    (0..3).for_each(|_| open.send(()).unwrap());
    assert_eq!(first, ["keep 1"]);
    assert_eq!(bench.heard(7), ["2 to 200", "tidy", "keep 2", "2 to 100", "0 to 300", "1 back", "tidy"]);
    let (ticket, read_back) = (FIRST.next(), Ok(Setting::Power(w(100))));
    bench.until(|view| view.outcomes[2] == Some(Outcome::Set { ticket, read_back }));
}

#[test]
fn a_newer_order_takes_the_place_of_one_that_was_not_begun() {
    let (open, gate) = channel();
    let bench = start(1, Some(gate), false);
    bench.worker.order(0, FIRST, set(190));
    let first = bench.heard(1);
    for watts in [180, 170, 160] {
        bench.worker.order(0, FIRST, set(watts));
    }
    open.send(()).unwrap();
    open.send(()).unwrap();
    assert_eq!(first, ["keep 1"]);
    assert_eq!(bench.heard(5), ["0 to 190", "tidy", "keep 1", "0 to 160", "tidy"]);
}

#[test]
fn each_outcome_is_told_once() {
    let mut bench = start(1, None, false);
    bench.worker.order(0, FIRST, set(150));
    bench.until(|view| view.outcomes[0].is_some());
    bench.worker.collect();
    assert_eq!(bench.worker.view.outcomes[0], None);
}

#[test]
fn a_call_that_hangs_is_seen_and_does_not_hold_whoever_asks() {
    let (open, gate) = channel();
    let mut bench = start(1, Some(gate), false);
    bench.worker.order(0, FIRST, set(150));
    bench.heard(1);
    bench.worker.ask(1);
    bench.time.advance(Micros::new(5_000_000));
    bench.worker.collect();
    assert!(bench.worker.view.inside.is_some() && !bench.worker.has_answered(1));
    open.send(()).unwrap();
    bench.until(|view| view.answered == 1 && view.inside.is_none());
}

#[test]
fn an_order_for_hardware_that_was_listed_anew_is_not_carried_out() {
    let mut bench = start(1, None, true);
    bench.time.advance(Micros::new(2_000_000));
    bench.worker.ask(1);
    let until = Deadline::after(ANSWERS);
    while !bench.worker.has_answered(1) {
        bench.wakeup.wait(bench.wakeup.count(), Deadline::after(Duration::from_millis(1)));
        assert!(!until.is_over());
    }
    assert!(!bench.worker.order(0, FIRST, set(100)), "the view is of the epoch before");
    bench.worker.collect();
    assert!(bench.worker.order(0, FIRST, set(110)));
    assert_eq!(bench.heard(2), ["keep 1", "0 to 110"]);
}

#[test]
fn a_backend_that_does_not_open_is_tried_again() {
    let mut tries = 0;
    let (tell, _told) = channel();
    let opener: Opener = Box::new(move || {
        tries += 1;
        if tries < 3 {
            return Err(DriverError { kind: ErrorKind::Io, text: format!("try {tries}") });
        }
        let (domains, limit) = (Vec::new(), Vec::new());
        let told = tell.clone();
        let generation = Generation::FIRST;
        Ok(Box::new(Fake { domains, generation, limit, told, gate: None, gone: false }))
    });
    let (wakeup, time) = (Arc::new(Wakeup::default()), Time::real());
    let retry = Backoff::new(Micros::new(1), Micros::new(1)).unwrap();
    let worker = Worker::start(BackendKind::Rocm, opener, retry, time.clone(), wakeup.clone()).unwrap();
    let (_, told) = channel();
    let mut bench = Bench { worker, wakeup, told, time };
    bench.until(|view| view.standing == BackendState::Ready);
}

/// The thread's own part of a batch; the HALs' own tests measure theirs.
#[test]
fn a_batch_allocates_nothing() {
    let bench = start(10, None, false);
    let thread = Thread {
        kind: BackendKind::Powercap,
        mailbox: bench.worker.mailbox.clone(),
        wakeup: bench.wakeup.clone(),
        time: bench.time.clone(),
        retry: Backoff::new(Micros::new(1), Micros::new(1)).unwrap(),
        opener: Box::new(|| Err(DriverError { kind: ErrorKind::Io, text: String::new() })),
    };
    let (tell, _told) = channel();
    let domains: Vec<Domain> = (0..10).map(|n| Domain::package(n, None)).collect();
    let (generation, limit) = (Generation::FIRST, vec![w(1); 10]);
    let fake = Fake { domains, generation, limit, told: tell, gate: None, gone: false };
    let mut own = super::Bench::new(Box::new(fake), bench.time.now());
    thread.publish(&mut own);
    let counted = allocation_counter::measure(|| {
        thread.carry_out(&mut own);
        thread.answer(&mut own, 1);
    });
    assert_eq!(counted.count_total, 0);
}
