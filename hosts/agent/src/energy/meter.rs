//! What the devices of a node have drawn, in whole microjoules, from successive reports of its control loop.
//!
//! An energy counter gives the energy between two readings exactly, over its wraps; a power meter gives it as power times the time
//! since the reading before. The totals only grow, so a reader that comes late misses nothing. What was drawn over a *gap*, a span
//! that is longer than readings are apart, is kept apart, because nobody can say who drew it: a counter still tells it exactly, and
//! without one it is estimated by the last known power.

use super::users::CardUses;
use joulie_core::node::energy::MeterReading;
use node_kit::{BackendReport, CardFacts, CardInstance, Cards, DeviceReport, GpuGroupUse, NodeReport};
use power_hal::{Counter, Key};
use power_units::{MicroJoules, Micros, Stamp, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// More than any package or GPU draws: a counter that rose faster was reset.
const POWER_MOST: Watts = Watts::from_int(4_000);
/// No span below this is a gap, however short the period is.
const GAP_LEAST: Micros = Micros::new(5_000_000);
/// A node has at most this many packages and GPUs; more are not counted.
const DEVICES_MOST: usize = 512;

/// What a device has drawn since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// In microjoules, outside of gaps.
    pub(crate) metered: u64,
    /// In microjoules, over gaps.
    pub(crate) gap: u64,
    /// How long the gaps were, in microseconds.
    pub(crate) gap_micros: u64,
}

impl Drawn {
    /// What was drawn since an earlier state of the same total.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            metered: self.metered.saturating_sub(earlier.metered),
            gap: self.gap.saturating_sub(earlier.gap),
            gap_micros: self.gap_micros.saturating_sub(earlier.gap_micros),
        }
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            metered: self.metered.saturating_add(other.metered),
            gap: self.gap.saturating_add(other.gap),
            gap_micros: self.gap_micros.saturating_add(other.gap_micros),
        }
    }
}

/// What a meter shows at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shows {
    /// The value of an energy counter.
    Counter(Counter, MicroJoules),
    /// The mean power up to now.
    Power(Watts),
    /// Nothing that can be used.
    Nothing,
}

impl Shows {
    fn of(device: &DeviceReport) -> Self {
        match (device.counter, device.energy, device.power) {
            (Some(counter), Some(energy), _) if counter.can_show(energy) => Self::Counter(counter, energy),
            (None, _, MeterReading::Fresh { watts, .. }) if watts >= Watts::ZERO => Self::Power(watts),
            (Some(_), _, _)
            | (
                None,
                _,
                MeterReading::Fresh { .. }
                | MeterReading::Stale { .. }
                | MeterReading::Missing(_)
                | MeterReading::Impossible(_),
            ) => Self::Nothing,
        }
    }
}

/// One device's meter: its last reading, and the total.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    last: Option<Last>,
    total: Drawn,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Stamp,
    counter: Option<MicroJoules>,
    watts: Option<Watts>,
}

impl Meter {
    /// Takes a reading in. One that is not later than the last is ignored.
    pub(super) fn take(&mut self, at: Stamp, shows: Shows, gap_after: Micros) {
        let Some(last) = self.last else {
            self.last = match shows {
                Shows::Counter(_, energy) => Some(Last { at, counter: Some(energy), watts: None }),
                Shows::Power(watts) => Some(Last { at, counter: None, watts: Some(watts) }),
                Shows::Nothing => None,
            };
            return;
        };
        let Some(span) = at.since(last.at).filter(|span| *span > Micros::ZERO) else { return };
        match shows {
            Shows::Nothing => {}
            Shows::Power(watts) if span <= gap_after => {
                self.total.metered += watts.during(span).get();
                self.last = Some(Last { at, counter: None, watts: Some(watts) });
            }
            Shows::Power(watts) => {
                let mean = last.watts.map_or(watts, |before| half(before) + half(watts));
                self.bridge(mean.during(span), span);
                self.last = Some(Last { at, counter: None, watts: Some(watts) });
            }
            // The reading stays the one to compare with, so what is drawn meanwhile counts when the counter moves on.
            Shows::Counter(_, energy) if last.counter == Some(energy) => {}
            Shows::Counter(counter, energy) => {
                let most = POWER_MOST.during(span);
                let grown = last.counter.and_then(|before| counter.between(before, energy).ok());
                let told = grown.filter(|grown| *grown <= most);
                match told {
                    Some(grown) if counter.tells(most) && span <= gap_after => {
                        self.total.metered += grown.get();
                    }
                    Some(grown) if counter.tells(most) => self.bridge(grown, span),
                    // How often it has wrapped is not known: as often as fits the last known power best.
                    Some(grown) => {
                        let estimate = last.watts.map_or(grown, |watts| watts.during(span));
                        self.bridge(wrapped(counter, grown, estimate), span);
                    }
                    // It was reset, or is another counter.
                    None => {
                        self.bridge(last.watts.map_or(MicroJoules::ZERO, |watts| watts.during(span)), span);
                    }
                }
                let watts = told.zip(span.non_zero()).map(|(grown, span)| grown.over(span));
                self.last = Some(Last { at, counter: Some(energy), watts: watts.or(last.watts) });
            }
        }
    }

    fn bridge(&mut self, energy: MicroJoules, span: Micros) {
        self.total.gap += energy.get();
        self.total.gap_micros += span.get();
    }
}

const fn half(watts: Watts) -> Watts {
    Watts::from_bits(watts.to_bits() / 2)
}

/// The value that a counter's growth stands for which is nearest to an estimate.
fn wrapped(counter: Counter, grown: MicroJoules, estimate: MicroJoules) -> MicroJoules {
    let Some(modulus) = counter.modulus().map(MicroJoules::get).filter(|modulus| *modulus > 0) else {
        return grown;
    };
    let beyond = estimate.get().saturating_sub(grown.get());
    let wraps = beyond.saturating_add(modulus / 2) / modulus;
    MicroJoules::new(grown.get().saturating_add(wraps.saturating_mul(modulus)))
}

/// What the ledger reads: the totals as of one report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// When that report was made.
    pub(crate) at: Option<Stamp>,
    /// All packages together.
    pub(crate) packages: Drawn,
    /// Each GPU.
    pub(crate) gpus: BTreeMap<Key, Drawn>,
    /// Who used GPUs, since this was last asked for.
    pub(crate) uses: CardUses,
    /// The MIG instances: of which card each is, and of how many of its slices.
    pub(crate) instances: Arc<Instances>,
}

/// MIG instances by what the device plugin calls them.
pub(crate) type Instances = BTreeMap<String, (Key, u64)>;

/// The meters of all devices of a node.
#[derive(Debug)]
pub(crate) struct Meters {
    gap_after: Micros,
    period: u64,
    at: Option<Stamp>,
    packages: BTreeMap<Key, Meter>,
    gpus: BTreeMap<Key, Meter>,
    uses: CardUses,
    instances: Arc<Instances>,
    /// What was taken in last of each backend, by the order in which they are reported.
    taken: Vec<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    uses: Option<Arc<[GpuGroupUse]>>,
    cards: Option<Arc<Cards>>,
}

impl Meters {
    /// For a control loop of this period.
    pub(crate) fn new(period: Micros) -> Self {
        let gap_after = (period + period + period).max(GAP_LEAST);
        Self {
            gap_after,
            period: 0,
            at: None,
            packages: BTreeMap::new(),
            gpus: BTreeMap::new(),
            uses: CardUses::default(),
            instances: Arc::default(),
            taken: Vec::new(),
        }
    }

    /// The control loop begins anew, with a time of its own: what was drawn meanwhile is not counted, as after a restart
    /// of the process.
    pub(crate) fn begin_anew(&mut self) {
        self.period = 0;
        for meter in self.packages.values_mut().chain(self.gpus.values_mut()) {
            meter.last = None;
        }
    }

    /// Takes a report in. Between two periods nothing is measured.
    pub(crate) fn take(&mut self, report: &NodeReport) {
        let Some(at) = report.at.filter(|_| report.counts.periods != self.period) else { return };
        self.period = report.counts.periods;
        self.at = Some(at);
        for (meters, devices) in [(&mut self.packages, &report.packages), (&mut self.gpus, &report.gpus)] {
            for device in devices {
                if meters.len() >= DEVICES_MOST && !meters.contains_key(&device.key) {
                    continue;
                }
                meters.entry(device.key).or_default().take(at, Shows::of(device), self.gap_after);
            }
        }
        self.users(&report.backends);
    }

    /// Takes in who used GPUs, and which instances they have, where a backend tells something else than before.
    fn users(&mut self, backends: &[BackendReport]) {
        self.taken.resize_with(backends.len(), Taken::default);
        let mut is_changed = false;
        for (taken, BackendReport { uses, cards, .. }) in self.taken.iter_mut().zip(backends) {
            if let Some(uses) = uses.as_ref().filter(|uses| !is_same(taken.uses.as_ref(), uses)) {
                self.uses.add(uses);
                taken.uses = Some(uses.clone());
            }
            if let Some(cards) = cards.as_ref().filter(|cards| !is_same(taken.cards.as_ref(), cards)) {
                taken.cards = Some(cards.clone());
                is_changed = true;
            }
        }
        if is_changed {
            let cards = self.taken.iter().filter_map(|taken| taken.cards.as_deref());
            let of_card = |card: &CardFacts| {
                let key = card.key;
                let slices = |one: &CardInstance| one.profile.as_deref().and_then(slices).unwrap_or(1);
                card.instances.iter().map(|one| (one.id.clone(), (key, slices(one)))).collect::<Vec<_>>()
            };
            let all = cards.flat_map(|cards| cards.list.iter().flat_map(of_card));
            self.instances = Arc::new(all.take(DEVICES_MOST).collect());
        }
    }

    /// The totals as of now, and who used GPUs since the last call.
    pub(crate) fn totals(&mut self) -> Totals {
        Totals {
            uses: std::mem::take(&mut self.uses),
            instances: self.instances.clone(),
            at: self.at,
            packages: self.packages.values().fold(Drawn::default(), |sum, meter| sum.and(meter.total)),
            gpus: self.gpus.iter().map(|(key, meter)| (*key, meter.total)).collect(),
        }
    }
}

fn is_same<T: ?Sized>(before: Option<&Arc<T>>, now: &Arc<T>) -> bool {
    before.is_some_and(|before| Arc::ptr_eq(before, now))
}

/// The compute slices of a MIG profile: 2 of `2g.20gb`, 1 of `1c.3g.40gb`.
fn slices(profile: &str) -> Option<u64> {
    let end = profile.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, rest) = profile.split_at(end);
    number.parse().ok().filter(|slices| (1..=16).contains(slices) && rest.starts_with(['c', 'g']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slices_of_an_instance_are_in_its_profile() {
        for (profile, count) in [
            ("1g.10gb", Some(1)),
            ("7g.80gb", Some(7)),
            ("1c.3g.40gb", Some(1)),
            ("1g.10gb.me", Some(1)),
            ("0g.1gb", None),
            ("99999999999999999999g", None),
            ("g", None),
            ("3", None),
            ("", None),
        ] {
            assert_eq!(slices(profile), count, "{profile}");
        }
    }

    const GAP: Micros = Micros::new(5_000_000);

    fn at(millis: u64) -> Stamp {
        Stamp::new(Micros::new(millis * 1_000))
    }

    fn counter(energy: u64) -> Shows {
        // A RAPL counter of 262,143.328850 J in steps of 61 µJ.
        Shows::Counter(Counter::new(MicroJoules::new(262_143_328_850)), MicroJoules::new(energy))
    }

    fn total(readings: &[(u64, Shows)]) -> (u64, u64, u64) {
        let mut meter = Meter::default();
        for (millis, shows) in readings {
            meter.take(at(*millis), *shows, GAP);
        }
        let Drawn { metered, gap, gap_micros } = meter.total;
        (metered, gap, gap_micros)
    }

    #[test]
    fn a_control_loop_that_begins_anew_has_a_time_of_its_own() {
        let mut meters = Meters::new(Micros::new(1_000_000));
        let key = Key::package(0, None);
        let read = |meters: &mut Meters, millis, energy| {
            meters.packages.entry(key).or_default().take(at(millis), counter(energy), GAP);
        };
        read(&mut meters, 60_000, 0);
        read(&mut meters, 61_000, 100_000_000);
        meters.begin_anew();
        // 40 J that nobody saw, then 60 J.
        read(&mut meters, 500, 140_000_000);
        read(&mut meters, 1_500, 200_000_000);
        assert_eq!(meters.totals().packages.metered, 160_000_000);
    }

    #[test]
    fn a_counter_tells_what_was_drawn_over_its_wrap() {
        // 100 J, then 50 J to the end of the range and 30 J from zero.
        let end = 262_143_328_850;
        let readings = [
            (0, counter(end - 150_000_000)),
            (1_000, counter(end - 50_000_000)),
            (2_000, counter(30_000_000)),
        ];
        assert_eq!(total(&readings), (180_000_000, 0, 0));
    }

    #[test]
    fn what_is_drawn_over_a_gap_is_neither_lost_nor_doubled_nor_anybodys() {
        let readings = [
            (0, counter(0)),
            (1_000, counter(100_000_000)),
            (2_000, Shows::Nothing),
            (9_000, Shows::Nothing),
            (11_000, counter(1_100_000_000)),
            (12_000, counter(1_200_000_000)),
        ];
        // 100 J, then a gap of 10 s with 1,000 J, then 100 J.
        assert_eq!(total(&readings), (200_000_000, 1_000_000_000, 10_000_000));
        // Two readings that failed are no gap yet.
        let readings = [(0, counter(0)), (1_000, Shows::Nothing), (3_000, counter(300_000_000))];
        assert_eq!(total(&readings), (300_000_000, 0, 0));
    }

    #[test]
    fn a_counter_that_stands_still_is_a_gap_when_it_moves_on() {
        let mut readings: Vec<(u64, Shows)> = (0..10).map(|second| (second * 1_000, counter(7))).collect();
        readings.push((10_000, counter(500_000_007)));
        assert_eq!(total(&readings), (0, 500_000_000, 10_000_000));
    }

    #[test]
    fn a_gap_of_unknown_wraps_is_taken_as_the_last_power_says() {
        // 400 W, then half an hour of silence: 720 kJ, which is 2 wraps (524,286.657700 J) and 195,713.342300 J.
        let after = 400_000_000 + 195_713_342_300;
        let readings = [(0, counter(0)), (1_000, counter(400_000_000)), (1_801_000, counter(after))];
        assert_eq!(total(&readings), (400_000_000, 720_000_000_000, 1_800_000_000));
    }

    #[test]
    fn a_counter_that_was_reset_counts_by_the_last_power() {
        let endless = |energy| Shows::Counter(Counter::endless(), MicroJoules::new(energy));
        let readings = [
            (0, endless(1_000_000_000)),
            (1_000, endless(1_200_000_000)),
            (2_000, endless(5)),
            (3_000, endless(100_000_005)),
        ];
        // 200 J; then 200 W for a second by estimate; then 100 J.
        assert_eq!(total(&readings), (300_000_000, 200_000_000, 1_000_000));
        // It jumped up by more than any package draws.
        let readings = [(0, endless(0)), (1_000, endless(50_000_000)), (2_000, endless(9_000_000_000))];
        assert_eq!(total(&readings), (50_000_000, 50_000_000, 1_000_000));
    }

    #[test]
    fn a_power_meter_is_added_up_over_time() {
        let watts = |watts| Shows::Power(Watts::from_int(watts));
        let readings = [
            (0, watts(100)),
            (1_000, watts(200)),
            (1_000, watts(900)),
            (500, watts(900)),
            (3_000, watts(50)),
            (13_000, watts(150)),
        ];
        // 200 W · 1 s + 50 W · 2 s; readings at the same time or before do not count; then 10 s at the mean of 50 and 150 W.
        assert_eq!(total(&readings), (300_000_000, 1_000_000_000, 10_000_000));
    }
}
