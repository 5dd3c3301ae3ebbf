//! A domain and its controls, and the handles by which the hot path names it.

use crate::{
    Control, Counter, Covers, Key, Limit, Meter, Refusal, Setting, StateReading, StateReadings, Throttle,
    ThrottledMeter,
};
use power_units::{KiloHertz, MicroWatts};

/// A piece of hardware that is measured or limited as one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    key: Key,
    package: Option<u16>,
    covers: Option<Covers>,
    meter: Option<Meter>,
    dram: Option<Counter>,
    readings: StateReadings,
    throttled: Option<ThrottledMeter>,
    power: Option<Limit<MicroWatts>>,
    frequency: Option<Limit<KiloHertz>>,
    /// Whether the device tells its frequency limit.
    tells_frequency: bool,
    throttle: Option<Throttle>,
}

impl Domain {
    /// A CPU package by its physical number, or one die of it.
    #[must_use]
    pub fn package(package: u16, die: Option<u16>) -> Self {
        Self::bare(Key::package(package, die), Some(package))
    }

    /// A CPU socket by its physical number, as its firmware caps it.
    #[must_use]
    pub fn socket(socket: u16) -> Self {
        Self::bare(Key::socket(socket), Some(socket))
    }

    /// A frequency policy.
    #[must_use]
    pub fn policy(covers: Covers) -> Self {
        Self { covers: Some(covers), ..Self::bare(Key::policy(covers.lowest()), Some(covers.package())) }
    }

    /// A GPU by its UUID or PCI address.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn gpu(identity: &str) -> Result<Self, crate::KeyError> {
        Ok(Self::bare(Key::gpu(identity)?, None))
    }

    const fn bare(key: Key, package: Option<u16>) -> Self {
        Self {
            key,
            package,
            covers: None,
            meter: None,
            dram: None,
            readings: StateReadings::NONE,
            throttled: None,
            power: None,
            frequency: None,
            tells_frequency: false,
            throttle: None,
        }
    }

    /// With a counter of its energy.
    #[must_use]
    pub const fn with_counter(self, counter: Counter) -> Self {
        Self { meter: Some(Meter::Energy(counter)), ..self }
    }

    /// With a meter that reports power.
    #[must_use]
    pub const fn with_power_meter(self) -> Self {
        Self { meter: Some(Meter::Power), ..self }
    }

    /// With a counter of the energy of its memory (DRAM), which its own meter does not contain.
    #[must_use]
    pub const fn with_dram(self, counter: Counter) -> Self {
        Self { dram: Some(counter), ..self }
    }

    /// With one more kind of reading of its state.
    #[must_use]
    pub const fn with_reading(self, kind: StateReading) -> Self {
        Self { readings: self.readings.with(kind), ..self }
    }

    /// With a meter of how long its power limit holds it back.
    #[must_use]
    pub const fn with_throttled(self, meter: ThrottledMeter) -> Self {
        Self { throttled: Some(meter), ..self }
    }

    /// With a power limit.
    #[must_use]
    pub const fn with_power(self, limit: Limit<MicroWatts>) -> Self {
        Self { power: Some(limit), ..self }
    }

    /// With a frequency limit.
    #[must_use]
    pub const fn with_frequency(self, limit: Limit<KiloHertz>) -> Self {
        Self { frequency: Some(limit), tells_frequency: true, ..self }
    }

    /// With a frequency limit that the device takes and tells nobody: only the HAL that has set it knows it.
    #[must_use]
    pub const fn with_untold_frequency(self, limit: Limit<KiloHertz>) -> Self {
        Self { frequency: Some(limit), tells_frequency: false, ..self }
    }

    /// With a throttle.
    #[must_use]
    pub const fn with_throttle(self, throttle: Throttle) -> Self {
        Self { throttle: Some(throttle), ..self }
    }

    /// Its stable name.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The physical number of the CPU package that it is or is part of; `None` for a GPU.
    #[must_use]
    pub const fn package_number(&self) -> Option<u16> {
        self.package
    }

    /// The CPUs that it covers, for a frequency policy.
    #[must_use]
    pub const fn covers(&self) -> Option<&Covers> {
        self.covers.as_ref()
    }

    pub(crate) const fn covers_mut(&mut self) -> Option<&mut Covers> {
        self.covers.as_mut()
    }

    /// Its meter.
    #[must_use]
    pub const fn meter(&self) -> Option<Meter> {
        self.meter
    }

    /// The counter of its memory's energy. It is never part of [`meter`](Self::meter), and a sum over packages does not
    /// contain it.
    #[must_use]
    pub const fn dram(&self) -> Option<Counter> {
        self.dram
    }

    /// The kinds of readings of its state.
    #[must_use]
    pub const fn readings(&self) -> StateReadings {
        self.readings
    }

    /// How it measures that its power limit holds it back; `None` where it does not: then that is unknown, not zero.
    #[must_use]
    pub const fn throttled(&self) -> Option<ThrottledMeter> {
        self.throttled
    }

    /// Its power limit.
    #[must_use]
    pub const fn power(&self) -> Option<&Limit<MicroWatts>> {
        self.power.as_ref()
    }

    /// Its frequency limit.
    #[must_use]
    pub const fn frequency(&self) -> Option<&Limit<KiloHertz>> {
        self.frequency.as_ref()
    }

    /// Whether another HAL on the same device can read its frequency limit.
    #[must_use]
    pub const fn tells_frequency(&self) -> bool {
        self.tells_frequency
    }

    /// Its throttle.
    #[must_use]
    pub const fn throttle(&self) -> Option<&Throttle> {
        self.throttle.as_ref()
    }

    /// Whether it has this control.
    #[must_use]
    pub const fn has(&self, control: Control) -> bool {
        match control {
            Control::Power => self.power.is_some(),
            Control::Frequency => self.frequency.is_some(),
            Control::Throttle => self.throttle.is_some(),
        }
    }

    /// The setting to write for a wish: rounded to what the device accepts, inside the range.
    ///
    /// ```
    /// use power_hal::{Domain, Refusal, Setting};
    /// use power_units::MicroWatts;
    /// let meter_only = Domain::package(0, None).with_power_meter();
    /// assert_eq!(meter_only.admit(Setting::Power(MicroWatts::new(100_000_000))), Err(Refusal::Lacking));
    /// ```
    ///
    /// # Errors
    /// When the domain does not have that control, or the wish is a limit of zero or below, or a negative throttle.
    pub fn admit(&self, wish: Setting) -> Result<Setting, Refusal> {
        let admitted = match wish {
            Setting::Power(wish) => self.power.ok_or(Refusal::Lacking)?.clamp(wish).map(Setting::Power),
            Setting::Frequency(wish) => {
                self.frequency.ok_or(Refusal::Lacking)?.clamp(wish).map(Setting::Frequency)
            }
            Setting::Throttle(wish) => {
                self.throttle.ok_or(Refusal::Lacking)?.clamp(wish).map(Setting::Throttle)
            }
        };
        admitted.ok_or(Refusal::NotPositive)
    }

    /// Whether what is in force matches the wish, apart from the device's rounding.
    #[must_use]
    pub fn grants(&self, wish: Setting, effective: Setting) -> bool {
        match (wish, effective) {
            (Setting::Power(wish), Setting::Power(found)) => {
                self.power.is_some_and(|p| p.grants(wish, found))
            }
            (Setting::Frequency(wish), Setting::Frequency(found)) => {
                self.frequency.is_some_and(|f| f.grants(wish, found))
            }
            (Setting::Throttle(wish), Setting::Throttle(found)) => {
                self.throttle.is_some_and(|t| t.grants(wish, found))
            }
            (Setting::Power(_) | Setting::Frequency(_) | Setting::Throttle(_), _) => false,
        }
    }
}

/// Identifies an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(u32);

impl Generation {
    /// The first one.
    pub const FIRST: Self = Self(0);

    /// The next one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// A domain's index in the list of one enumeration: cheap, for the hot path, and stale as soon as the HAL lists its
/// domains again. To remember a domain for longer, store its [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    at: u32,
    generation: Generation,
}

impl Handle {
    /// The index in the list, for the HAL that created the handle.
    #[must_use]
    pub fn index(self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX)
    }
}

/// The domains of one enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Domains<'a> {
    generation: Generation,
    list: &'a [Domain],
}

impl<'a> Domains<'a> {
    /// A list, and the enumeration that it comes from. The generation must differ from those of all other lists that
    /// the HAL has shown.
    #[must_use]
    pub const fn new(generation: Generation, list: &'a [Domain]) -> Self {
        Self { generation, list }
    }

    /// The enumeration of this list.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The domains.
    #[must_use]
    pub const fn as_slice(&self) -> &'a [Domain] {
        self.list
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list is empty: the hardware or its library is absent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The domain of a handle; `None` if the handle is from another enumeration.
    #[must_use]
    pub fn get(&self, handle: Handle) -> Option<&'a Domain> {
        if handle.generation == self.generation { self.list.get(handle.index()) } else { None }
    }

    /// Each domain with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &'a Domain)> + use<'a> {
        let generation = self.generation;
        (0..u32::MAX).zip(self.list).map(move |(at, domain)| (Handle { at, generation }, domain))
    }

    /// The handle of the domain with this key.
    #[must_use]
    pub fn find(&self, key: &Key) -> Option<Handle> {
        self.iter().find(|(_, domain)| domain.key() == key).map(|(handle, _)| handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use power_units::Percent;

    fn w(watts: u64) -> MicroWatts {
        MicroWatts::new(watts * 1_000_000)
    }

    const MHZ: i32 = 1_000;

    #[test]
    fn what_a_domain_lacks_it_refuses_whatever_it_has() {
        let power = Limit::new(Span { floor: w(1), ceiling: w(4_095) }, w(1)).unwrap();
        let khz = KiloHertz::from_int;
        let frequency =
            Limit::new(Span { floor: khz(1_200 * MHZ), ceiling: khz(3_200 * MHZ) }, khz(0)).unwrap();
        let throttle = Throttle::new(Percent::HUNDRED, Percent::ZERO).unwrap();
        let wishes = [
            Setting::Power(w(100)),
            Setting::Frequency(khz(2_000 * MHZ)),
            Setting::Throttle(Percent::from_int(30)),
        ];
        for has in 0..8_u8 {
            let mut domain = Domain::socket(0);
            if has & 1 != 0 {
                domain = domain.with_power(power);
            }
            if has & 2 != 0 {
                domain = domain.with_frequency(frequency);
            }
            if has & 4 != 0 {
                domain = domain.with_throttle(throttle);
            }
            for (bit, wish) in wishes.into_iter().enumerate() {
                let expected = if has >> bit & 1 == 1 { Ok(wish) } else { Err(Refusal::Lacking) };
                assert_eq!(domain.admit(wish), expected);
                assert_eq!(domain.has(wish.control()), expected.is_ok());
                assert_eq!(domain.grants(wish, wish), expected.is_ok());
            }
        }
    }

    #[test]
    fn no_limit_of_zero_or_below_is_admitted() {
        let power = Limit::new(Span { floor: w(1), ceiling: w(4_095) }, w(0)).unwrap();
        let khz = KiloHertz::from_int;
        let frequency = Limit::new(Span { floor: khz(1), ceiling: khz(9) }, khz(0)).unwrap();
        let throttle = Throttle::new(Percent::HUNDRED, Percent::ZERO).unwrap();
        let domain = Domain::socket(0).with_power(power).with_frequency(frequency).with_throttle(throttle);
        for wish in [
            Setting::Power(MicroWatts::ZERO),
            Setting::Frequency(KiloHertz::ZERO),
            Setting::Frequency(-khz(1)),
            Setting::Frequency(KiloHertz::MIN),
            Setting::Throttle(-Percent::from_int(1)),
            Setting::Throttle(Percent::MIN),
        ] {
            assert_eq!(domain.admit(wish), Err(Refusal::NotPositive), "{wish:?}");
        }
    }

    #[test]
    fn a_handle_is_of_one_enumeration_only() {
        let list = [Domain::package(0, None), Domain::package(1, None)];
        let first = Domains::new(Generation::FIRST, &list);
        let handle = first.find(&Key::package(1, None)).unwrap();
        assert_eq!(first.get(handle).unwrap().key(), &Key::package(1, None));
        let turned = [list[1], list[0]];
        let second = Domains::new(Generation::FIRST.next(), &turned);
        assert!(second.get(handle).is_none());
        assert_eq!(second.find(&Key::package(1, None)).unwrap().index(), 0);
        let shorter = Domains::new(Generation::FIRST, &list[..1]);
        assert!(shorter.get(handle).is_none());
        assert_eq!(shorter.find(&Key::package(1, None)), None);
    }

    #[test]
    fn a_domain_knows_its_package() {
        let covers = Covers::new(1, crate::CpuSet::parse("5,133").unwrap()).unwrap();
        let policy = Domain::policy(covers);
        assert_eq!((policy.key().as_str(), policy.package_number()), ("cpu-5", Some(1)));
        assert_eq!(Domain::package(2, Some(1)).package_number(), Some(2));
        assert_eq!(Domain::gpu("0000:c1:00.0").unwrap().package_number(), None);
    }
}
