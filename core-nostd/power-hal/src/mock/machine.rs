//! The hardware of the mock.

use crate::contract::{DomainFault, DomainLimits, Instants};
use crate::{
    Control, Counter, Domain, ErrorKind, Key, Measured, MemoryUse, Meter, Sample, Setting, Slowdown,
    Slowdowns, StateReading, Throttled, ThrottledMeter,
};
use core::cell::Cell;
use power_units::{Celsius, KiloHertz, MicroJoules, MicroWatts, Micros, Percent, Stamp};

/// One device.
#[derive(Clone, Copy, Debug)]
pub struct MockDevice {
    domain: Domain,
    present: bool,
    locked: bool,
    broken: Option<ErrorKind>,
    /// Long-term and short-term limit.
    limits: (MicroWatts, MicroWatts),
    frequency: KiloHertz,
    throttle: Percent,
    /// A limit of another writer; the stricter of the two is in force.
    stricter: Option<Setting>,
    counted: MicroJoules,
    draw: MicroWatts,
    dram: MicroJoules,
    /// Whether its power limit holds it back, and for how long it has.
    held: bool,
    throttled: Micros,
    passed: Micros,
    temperature: Celsius,
    utilisation: Percent,
    memory: Option<MemoryUse>,
    instants: Instants,
}

impl MockDevice {
    /// A device without limits by anybody, drawing 100 W, at 40 °C and half busy, with 1 of 16 GiB in use.
    #[must_use]
    pub fn new(domain: Domain) -> Self {
        let power = domain.power().map_or(MicroWatts::ZERO, |limit| limit.default().unwrap_or(limit.upper()));
        let limits = (power, power);
        Self {
            domain,
            present: true,
            locked: false,
            broken: None,
            limits,
            frequency: domain.frequency().map_or(KiloHertz::ZERO, |limit| limit.upper()),
            throttle: Percent::ZERO,
            stricter: None,
            counted: MicroJoules::ZERO,
            draw: MicroWatts::new(100_000_000),
            dram: MicroJoules::ZERO,
            held: false,
            throttled: Micros::ZERO,
            passed: Micros::ZERO,
            temperature: Celsius::from_int(40),
            utilisation: Percent::from_int(50),
            memory: MemoryUse::new(1 << 30, 16 << 30),
            instants: Instants::new(side_by_side(limits)),
        }
    }

    /// The domain of the device.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        &self.domain
    }

    /// With these long-term and short-term power limits in force.
    #[must_use]
    pub const fn limited(self, long: MicroWatts, short: MicroWatts) -> Self {
        let instants = Instants::new(side_by_side((long, short)));
        Self { limits: (long, short), instants, ..self }
    }

    /// With this frequency limit in force.
    #[must_use]
    pub const fn limited_to(self, frequency: KiloHertz) -> Self {
        Self { frequency, ..self }
    }

    /// With this draw.
    #[must_use]
    pub const fn drawing(self, draw: MicroWatts) -> Self {
        Self { draw, ..self }
    }

    /// With this value of its energy counter.
    #[must_use]
    pub const fn counting_from(self, counted: MicroJoules) -> Self {
        Self { counted, ..self }
    }

    /// Held back by its power limit.
    #[must_use]
    pub const fn held_back(self) -> Self {
        Self { held: true, ..self }
    }

    /// At this temperature.
    #[must_use]
    pub const fn warm(self, temperature: Celsius) -> Self {
        Self { temperature, ..self }
    }

    /// With a limit of another writer, for example a management controller; the device keeps to it if it is the
    /// stricter one.
    #[must_use]
    pub const fn held_at(self, stricter: Setting) -> Self {
        Self { stricter: Some(stricter), ..self }
    }

    /// What is in force.
    pub(super) fn in_force(&self, control: Control) -> Option<Setting> {
        let own = self.own(control)?;
        let stricter = self.stricter.filter(|stricter| own.permits_more_than(*stricter) == Some(true));
        Some(stricter.unwrap_or(own))
    }

    /// The value of this device's own register, without a stricter limit of another writer.
    pub(super) fn own(&self, control: Control) -> Option<Setting> {
        let own = match control {
            Control::Power => Setting::Power(self.limits.0),
            Control::Frequency => Setting::Frequency(self.frequency),
            Control::Throttle => Setting::Throttle(self.throttle),
        };
        self.domain.has(control).then_some(own)
    }

    pub(super) const fn short_term(&self) -> MicroWatts {
        self.limits.1
    }

    pub(super) fn measured(&self) -> Option<Measured> {
        match self.domain.meter()? {
            Meter::Energy(_) => Some(Measured::Energy(self.counted)),
            Meter::Power => Some(Measured::Power(self.draw)),
        }
    }

    /// Fills in what the domain reports of its state.
    pub(super) fn report(&self, sample: &mut Sample) {
        let readings = self.domain.readings();
        if readings.has(StateReading::Temperature) {
            sample.temperature = Ok(self.temperature);
        }
        if readings.has(StateReading::Utilisation) {
            sample.utilisation = Ok(self.utilisation);
        }
        if readings.has(StateReading::Memory) {
            sample.memory = self.memory.ok_or(ErrorKind::BadData);
        }
        if readings.has(StateReading::Slowdown) {
            let none = Slowdowns::NONE;
            sample.slowdowns = Ok(if self.held { none.with(Slowdown::PowerLimit) } else { none });
        }
        if self.domain.dram().is_some() {
            sample.dram = Ok(self.dram);
        }
        let milliseconds = |time: Micros| u32::try_from(time.get() / 1_000).unwrap_or(u32::MAX);
        if let Some(meter) = self.domain.throttled() {
            sample.throttled = Ok(match meter {
                ThrottledMeter::Time { .. } => Throttled::Time(self.throttled),
                ThrottledMeter::Periods => {
                    Throttled::Periods { held: milliseconds(self.throttled), of: milliseconds(self.passed) }
                }
                ThrottledMeter::Instant => Throttled::Instant(self.held),
            });
        }
    }

    /// Whether it can be read, else why not.
    pub(super) fn readable(&self) -> Result<(), ErrorKind> {
        if !self.present {
            return Err(ErrorKind::Gone);
        }
        self.broken.map_or(Ok(()), Err)
    }

    /// Whether it can be written, else why not.
    pub(super) fn writable(&self) -> Result<(), ErrorKind> {
        self.readable()?;
        if self.locked { Err(ErrorKind::Locked) } else { Ok(()) }
    }

    /// Writes the long-term limit, rounded down to the register's step.
    pub(super) fn set_long(&mut self, limit: MicroWatts) {
        self.limits.0 = self.rounded(limit);
        self.record();
    }

    /// Writes the short-term limit.
    pub(super) fn set_short(&mut self, limit: MicroWatts) {
        self.limits.1 = self.rounded(limit);
        self.record();
    }

    pub(super) const fn set_frequency(&mut self, frequency: KiloHertz) {
        self.frequency = frequency;
    }

    pub(super) const fn set_throttle(&mut self, throttle: Percent) {
        self.throttle = throttle;
    }

    /// A register accepts multiples of its step, up to its ceiling; a larger value wraps, as a powercap limit does.
    fn rounded(&self, limit: MicroWatts) -> MicroWatts {
        let Some(power) = self.domain.power() else { return limit };
        let step = power.step().max(MicroWatts::new(1)).get();
        let modulus = power.writable().ceiling.get().saturating_add(step);
        let held = limit.get().checked_rem(modulus).unwrap_or(0);
        MicroWatts::new(held.saturating_sub(held.checked_rem(step).unwrap_or(0)))
    }

    fn record(&mut self) {
        self.instants.push(side_by_side(self.limits));
    }

    fn pass(&mut self, span: Micros) {
        let counter = match self.domain.meter() {
            Some(Meter::Energy(counter)) => Some(counter),
            Some(Meter::Power) | None => None,
        };
        self.counted = counted_on(self.counted, self.draw, span, counter);
        // The memory of a package draws an eighth of the package's power.
        let memory = MicroWatts::new(self.draw.get() >> 3);
        self.dram = counted_on(self.dram, memory, span, self.domain.dram());
        self.passed = self.passed + span;
        if self.held {
            self.throttled = self.throttled + span;
        }
    }
}

/// The state of a counter after a span.
fn counted_on(counted: MicroJoules, draw: MicroWatts, span: Micros, counter: Option<Counter>) -> MicroJoules {
    let seconds_e6 = u128::from(span.get());
    let drawn = seconds_e6.saturating_mul(u128::from(draw.get())).checked_div(1_000_000).unwrap_or(0);
    let counted = u128::from(counted.get()).saturating_add(drawn);
    let modulus = counter.and_then(|counter| counter.modulus()).map(MicroJoules::get);
    let left = modulus.and_then(|modulus| counted.checked_rem(u128::from(modulus))).unwrap_or(counted);
    MicroJoules::new(u64::try_from(left).unwrap_or(u64::MAX))
}

const fn side_by_side(limits: (MicroWatts, MicroWatts)) -> DomainLimits {
    DomainLimits { each: [limits.0, limits.1, MicroWatts::ZERO, MicroWatts::ZERO] }
}

/// A machine of `N` devices.
#[derive(Debug)]
pub struct MockMachine<const N: usize> {
    devices: [Cell<MockDevice>; N],
    now: Cell<Stamp>,
    /// By how many positions the order in which the kernel shows the devices is rotated.
    turned: Cell<usize>,
}

impl<const N: usize> MockMachine<N> {
    /// A machine of these devices, at the start of its clock.
    #[must_use]
    pub fn new(devices: [MockDevice; N]) -> Self {
        Self {
            devices: devices.map(Cell::new),
            now: Cell::new(Stamp::new(Micros::ZERO)),
            turned: Cell::new(0),
        }
    }

    /// The time on the machine.
    #[must_use]
    pub fn now(&self) -> Stamp {
        self.now.get()
    }

    /// Lets time pass, in which the devices draw power.
    pub fn advance(&self, span: Micros) {
        self.now.set(self.now.get() + span);
        for cell in &self.devices {
            let mut device = cell.get();
            device.pass(span);
            cell.set(device);
        }
    }

    /// The setting that is in force on a device.
    #[must_use]
    pub fn in_force(&self, key: &Key, control: Control) -> Option<Setting> {
        self.find(key).and_then(|cell| cell.get().in_force(control))
    }

    /// The power limits of a device at every instant since the last call.
    #[must_use]
    pub fn instants(&self, key: &Key) -> Option<Instants> {
        let cell = self.find(key)?;
        let mut device = cell.get();
        let seen = core::mem::replace(&mut device.instants, Instants::new(side_by_side(device.limits)));
        cell.set(device);
        device.domain.has(Control::Power).then_some(seen)
    }

    /// Changes what a device draws.
    pub fn draw(&self, key: &Key, draw: MicroWatts) {
        self.change(key, |device| device.draw = draw);
    }

    /// Causes a fault. Returns false if there is no such device.
    pub fn cause(&self, trouble: DomainFault) -> bool {
        match trouble {
            DomainFault::Locked(key) => self.change(&key, |device| device.locked = true),
            DomainFault::Unreadable(key) => self.change(&key, |device| device.broken = Some(ErrorKind::Io)),
            DomainFault::Vanished(key) => self.change(&key, |device| device.present = false),
            DomainFault::Moved(key, setting) => self.change(&key, |device| match setting {
                Setting::Power(limit) => device.set_long(limit),
                Setting::Frequency(limit) => device.set_frequency(limit),
                Setting::Throttle(throttle) => device.set_throttle(throttle),
            }),
            DomainFault::Renumbered => {
                self.turned.set(self.turned.get().saturating_add(1));
                true
            }
        }
    }

    /// Ends a fault. A changed limit stays changed, and new numbers stay new.
    pub fn heal(&self, trouble: DomainFault) {
        match trouble {
            DomainFault::Locked(key) => self.change(&key, |device| device.locked = false),
            DomainFault::Unreadable(key) => self.change(&key, |device| device.broken = None),
            DomainFault::Vanished(key) => self.change(&key, |device| device.present = true),
            DomainFault::Moved(..) | DomainFault::Renumbered => true,
        };
    }

    /// The devices that are present, in the order in which the kernel shows them, each with its index.
    pub(super) fn shown(&self) -> impl Iterator<Item = (usize, Domain)> + '_ {
        let turned = self.turned.get().checked_rem(N).unwrap_or(0);
        let places = (0..N).cycle().skip(turned).take(N);
        places.filter_map(|at| {
            self.device(at).filter(|device| device.present).map(|device| (at, device.domain))
        })
    }

    pub(super) fn device(&self, at: usize) -> Option<MockDevice> {
        self.devices.get(at).map(Cell::get)
    }

    pub(super) fn change_at(&self, at: usize, change: impl FnOnce(&mut MockDevice)) {
        if let Some(cell) = self.devices.get(at) {
            let mut device = cell.get();
            change(&mut device);
            cell.set(device);
        }
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut MockDevice)) -> bool {
        let at = self.devices.iter().position(|cell| cell.get().domain.key() == key);
        at.map(|at| self.change_at(at, change)).is_some()
    }

    fn find(&self, key: &Key) -> Option<&Cell<MockDevice>> {
        self.devices.iter().find(|cell| cell.get().domain.key() == key)
    }
}
