//! The HAL of the mock.

use super::machine::{MockDevice, MockMachine};
use crate::contract::{ContractWorld, DomainFault, Instants, RefusableOriginals};
use crate::{
    Control, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Key, Original, Originals,
};
use crate::{PowerHal, Sample, Setting, lower_first};
use core::fmt;
use heapless::Vec;
use power_units::{KiloHertz, MicroWatts, Micros, Percent};

/// The error of the mock: at which domain, and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MockError {
    /// The domain; `None` if it is not listed.
    pub domain: Option<Key>,
    /// The kind.
    pub kind: ErrorKind,
}

impl fmt::Display for MockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            Some(domain) => write!(f, "{domain}: {}", self.kind),
            None => fmt::Display::fmt(&self.kind, f),
        }
    }
}

impl core::error::Error for MockError {}

impl Error for MockError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// A HAL of up to `N` domains that saves originals in `O`.
#[derive(Debug)]
pub struct Mock<'g, O, const N: usize> {
    machine: &'g MockMachine<N>,
    originals: O,
    generation: Generation,
    /// The index of each listed domain in the machine.
    places: Vec<usize, N>,
    list: Vec<Domain, N>,
}

impl<'g, O: Originals, const N: usize> Mock<'g, O, N> {
    /// Opens the devices of a machine.
    #[must_use]
    pub fn open(machine: &'g MockMachine<N>, originals: O) -> Self {
        let mut mock =
            Self { machine, originals, generation: Generation::FIRST, places: Vec::new(), list: Vec::new() };
        mock.list_anew();
        mock
    }

    /// The machine on which it runs.
    #[must_use]
    pub const fn machine(&self) -> &'g MockMachine<N> {
        self.machine
    }

    fn list_anew(&mut self) {
        self.places.clear();
        self.list.clear();
        for (at, domain) in self.machine.shown() {
            // The capacity is the number of devices.
            let _listed = self.places.push(at).is_ok() && self.list.push(domain).is_ok();
        }
    }

    fn place(&self, domain: Handle) -> Result<(usize, MockDevice), MockError> {
        let listed = self.domains().get(domain).and_then(|_| self.places.get(domain.index()).copied());
        let device = listed.and_then(|at| self.machine.device(at).map(|device| (at, device)));
        device.ok_or(MockError { domain: None, kind: ErrorKind::Gone })
    }

    fn readable(&self, domain: Handle) -> Result<(usize, MockDevice), MockError> {
        let (at, device) = self.place(domain)?;
        device.readable().map_err(|kind| MockError { domain: Some(*device.domain().key()), kind })?;
        Ok((at, device))
    }

    fn writable(&self, domain: Handle) -> Result<(usize, MockDevice), MockError> {
        let (at, device) = self.place(domain)?;
        device.writable().map_err(|kind| MockError { domain: Some(*device.domain().key()), kind })?;
        Ok((at, device))
    }

    /// Writes both power limits, so that no instant is above both the old and the new limits.
    fn set_power(&self, at: usize, old: &MockDevice, long: MicroWatts, short: MicroWatts) {
        let long_now = match old.own(Control::Power) {
            Some(Setting::Power(long)) => long,
            Some(Setting::Frequency(_) | Setting::Throttle(_)) | None => MicroWatts::ZERO,
        };
        for which in lower_first(&[(long_now, long), (old.short_term(), short)]) {
            self.machine.change_at(at, |device| {
                if which == 0 { device.set_long(long) } else { device.set_short(short) }
            });
        }
    }
}

impl<O, const N: usize> ErrorType for Mock<'_, O, N> {
    type Error = MockError;
}

impl<O: Originals, const N: usize> PowerHal for Mock<'_, O, N> {
    type Originals = O;

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.list)
    }

    fn enumerate(&mut self) -> Result<(), MockError> {
        let before = (self.places.clone(), self.list.clone());
        self.list_anew();
        if (&self.places, &self.list) != (&before.0, &before.1) {
            self.generation = self.generation.next();
        }
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, MockError> {
        let (_, device) = self.readable(domain)?;
        let mut sample = Sample::at(self.machine.now());
        if let Some(measured) = device.measured() {
            sample.meter = Ok(measured);
        }
        device.report(&mut sample);
        for setting in Control::ALL.into_iter().filter_map(|control| device.in_force(control)) {
            match setting {
                Setting::Power(limit) => sample.power_limit = Ok(limit),
                Setting::Frequency(limit) => {
                    sample.frequency_limit = Ok(limit);
                    sample.frequency = Ok(limit);
                }
                Setting::Throttle(throttle) => sample.throttle = Ok(throttle),
            }
        }
        Ok(sample)
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, MockError> {
        let (_, device) = self.readable(domain)?;
        let words = match device.own(control) {
            Some(Setting::Power(long)) => [long.get(), device.short_term().get()],
            Some(Setting::Frequency(limit)) => [limit.to_bits().cast_unsigned(), 0],
            Some(Setting::Throttle(throttle)) => [throttle.to_bits().cast_unsigned(), 0],
            None => {
                return Err(MockError {
                    domain: Some(*device.domain().key()),
                    kind: ErrorKind::NotSupported,
                });
            }
        };
        let too_many = MockError { domain: Some(*device.domain().key()), kind: ErrorKind::BadData };
        Original::new(LAYOUT, &words).ok_or(too_many)
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, MockError> {
        let (at, device) = self.writable(domain)?;
        match setting {
            // The short-term limit is a quarter above the long-term one, up to the register's maximum.
            Setting::Power(long) => {
                let ceiling = device.domain().power().map_or(long, |limit| limit.upper());
                let short = long + MicroWatts::new(long.get() >> 2);
                self.set_power(at, &device, long, short.min(ceiling.max(long)));
            }
            Setting::Frequency(limit) => self.machine.change_at(at, |device| device.set_frequency(limit)),
            Setting::Throttle(throttle) => self.machine.change_at(at, |device| device.set_throttle(throttle)),
        }
        let (_, now) = self.readable(domain)?;
        now.in_force(setting.control()).ok_or(MockError { domain: None, kind: ErrorKind::Gone })
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), MockError> {
        let (at, device) = self.writable(domain)?;
        let &[first, second] = original.words() else {
            return Err(MockError { domain: Some(*device.domain().key()), kind: ErrorKind::BadData });
        };
        match control {
            Control::Power => self.set_power(at, &device, MicroWatts::new(first), MicroWatts::new(second)),
            Control::Frequency => {
                let limit = KiloHertz::from_bits(first.cast_signed());
                self.machine.change_at(at, |device| device.set_frequency(limit));
            }
            Control::Throttle => {
                let throttle = Percent::from_bits(first.cast_signed());
                self.machine.change_at(at, |device| device.set_throttle(throttle));
            }
        }
        Ok(())
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }
}

/// The long-term and the short-term limit, or one value and a zero.
const LAYOUT: u8 = 0;

/// The machine is the mock's world.
impl<'g, J: Originals + Clone, const N: usize> ContractWorld<Mock<'g, RefusableOriginals<J>, N>>
    for &'g MockMachine<N>
{
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        MockMachine::in_force(self, domain, control)
    }

    fn instants(&mut self, domain: &Key) -> Option<Instants> {
        MockMachine::instants(self, domain)
    }

    fn advance(&mut self, span: Micros) -> bool {
        MockMachine::advance(self, span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        MockMachine::cause(self, trouble)
    }

    fn heal(&mut self, trouble: DomainFault) {
        MockMachine::heal(self, trouble);
    }

    fn restart(&mut self, hal: &mut Mock<'g, RefusableOriginals<J>, N>) -> bool {
        let journal = hal.originals.clone();
        *hal = Mock::open(self, journal);
        true
    }
}
