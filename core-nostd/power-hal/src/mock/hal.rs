//! The HAL on the hardware that is not there.

use super::ground::{Ground, Plot};
use crate::contract::{Instants, Ledger, Trouble, World};
use crate::{
    Control, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Key, Original, Originals,
};
use crate::{PowerHal, Sample, Setting, lower_first};
use core::fmt;
use heapless::Vec;
use power_units::{KiloHertz, MicroWatts, Micros, Percent};

/// What the mock fails with: at which domain, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MockError {
    /// Which domain; none if it is not listed.
    pub domain: Option<Key>,
    /// How.
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
    ground: &'g Ground<N>,
    originals: O,
    generation: Generation,
    /// Where each domain that is listed stands in the ground.
    places: Vec<usize, N>,
    list: Vec<Domain, N>,
}

impl<'g, O: Originals, const N: usize> Mock<'g, O, N> {
    /// Opens the devices of a ground.
    #[must_use]
    pub fn open(ground: &'g Ground<N>, originals: O) -> Self {
        let mut mock =
            Self { ground, originals, generation: Generation::FIRST, places: Vec::new(), list: Vec::new() };
        mock.list_anew();
        mock
    }

    /// The ground that it stands on.
    #[must_use]
    pub const fn ground(&self) -> &'g Ground<N> {
        self.ground
    }

    fn list_anew(&mut self) {
        self.places.clear();
        self.list.clear();
        for (at, domain) in self.ground.shown() {
            // There is as much room as there are devices.
            let _listed = self.places.push(at).is_ok() && self.list.push(domain).is_ok();
        }
    }

    fn place(&self, domain: Handle) -> Result<(usize, Plot), MockError> {
        let listed = self.domains().get(domain).and_then(|_| self.places.get(domain.index()).copied());
        let plot = listed.and_then(|at| self.ground.plot(at).map(|plot| (at, plot)));
        plot.ok_or(MockError { domain: None, kind: ErrorKind::Gone })
    }

    fn readable(&self, domain: Handle) -> Result<(usize, Plot), MockError> {
        let (at, plot) = self.place(domain)?;
        plot.readable().map_err(|kind| MockError { domain: Some(*plot.domain().key()), kind })?;
        Ok((at, plot))
    }

    fn writable(&self, domain: Handle) -> Result<(usize, Plot), MockError> {
        let (at, plot) = self.place(domain)?;
        plot.writable().map_err(|kind| MockError { domain: Some(*plot.domain().key()), kind })?;
        Ok((at, plot))
    }

    /// Writes both power limits, so that no instant is above both the old and the new ones.
    fn set_power(&self, at: usize, old: &Plot, long: MicroWatts, short: MicroWatts) {
        let long_now = match old.own(Control::Power) {
            Some(Setting::Power(long)) => long,
            Some(Setting::Frequency(_) | Setting::Throttle(_)) | None => MicroWatts::ZERO,
        };
        for which in lower_first(&[(long_now, long), (old.short_term(), short)]) {
            self.ground
                .change_at(at, |plot| if which == 0 { plot.set_long(long) } else { plot.set_short(short) });
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
        let (_, plot) = self.readable(domain)?;
        let mut sample = Sample::at(self.ground.now());
        if let Some(measured) = plot.measured() {
            sample.meter = Ok(measured);
        }
        for setting in Control::ALL.into_iter().filter_map(|control| plot.in_force(control)) {
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
        let (_, plot) = self.readable(domain)?;
        let words = match plot.own(control) {
            Some(Setting::Power(long)) => [long.get(), plot.short_term().get()],
            Some(Setting::Frequency(limit)) => [limit.to_bits().cast_unsigned(), 0],
            Some(Setting::Throttle(throttle)) => [throttle.to_bits().cast_unsigned(), 0],
            None => {
                return Err(MockError { domain: Some(*plot.domain().key()), kind: ErrorKind::NotSupported });
            }
        };
        let too_many = MockError { domain: Some(*plot.domain().key()), kind: ErrorKind::BadData };
        Original::new(LAYOUT, &words).ok_or(too_many)
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, MockError> {
        let (at, plot) = self.writable(domain)?;
        match setting {
            // The short-term limit stands a quarter above the long-term one, as far as the register goes.
            Setting::Power(long) => {
                let ceiling = plot.domain().power().map_or(long, |limit| limit.upper());
                let short = long + MicroWatts::new(long.get() >> 2);
                self.set_power(at, &plot, long, short.min(ceiling.max(long)));
            }
            Setting::Frequency(limit) => self.ground.change_at(at, |plot| plot.set_frequency(limit)),
            Setting::Throttle(throttle) => self.ground.change_at(at, |plot| plot.set_throttle(throttle)),
        }
        let (_, now) = self.readable(domain)?;
        now.in_force(setting.control()).ok_or(MockError { domain: None, kind: ErrorKind::Gone })
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), MockError> {
        let (at, plot) = self.writable(domain)?;
        let &[first, second] = original.words() else {
            return Err(MockError { domain: Some(*plot.domain().key()), kind: ErrorKind::BadData });
        };
        match control {
            Control::Power => self.set_power(at, &plot, MicroWatts::new(first), MicroWatts::new(second)),
            Control::Frequency => {
                let limit = KiloHertz::from_bits(first.cast_signed());
                self.ground.change_at(at, |plot| plot.set_frequency(limit));
            }
            Control::Throttle => {
                let throttle = Percent::from_bits(first.cast_signed());
                self.ground.change_at(at, |plot| plot.set_throttle(throttle));
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

/// The ground is the mock's world.
impl<'g, J: Originals + Clone, const N: usize> World<Mock<'g, Ledger<J>, N>> for &'g Ground<N> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        Ground::in_force(self, domain, control)
    }

    fn instants(&mut self, domain: &Key) -> Option<Instants> {
        Ground::instants(self, domain)
    }

    fn advance(&mut self, span: Micros) -> bool {
        Ground::advance(self, span);
        true
    }

    fn cause(&mut self, trouble: Trouble) -> bool {
        Ground::cause(self, trouble)
    }

    fn heal(&mut self, trouble: Trouble) {
        Ground::heal(self, trouble);
    }

    fn restart(&mut self, hal: &mut Mock<'g, Ledger<J>, N>) -> bool {
        let journal = hal.originals.clone();
        *hal = Mock::open(self, journal);
        true
    }
}
