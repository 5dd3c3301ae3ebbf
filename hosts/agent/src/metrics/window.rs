//! What the metrics show of a node's power: the mean of at least a second, in whole watts and joules.
//!
//! Power at the resolution of the hardware tells what runs on a processor, down to the bits of keys (PLATYPUS), and metrics
//! are read by more people than may read the counters. `POWER_METRICS=exact` shows what was read.

use super::devices::ShownDevices;
use crate::machine::View;
use host_kit::clock::Mono;
use power_units::Watts;
use std::collections::BTreeMap;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(1);
const MICROJOULES: u64 = 1_000_000;

/// How exactly power is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerDetail {
    /// The mean of at least a second, in whole watts.
    #[default]
    Averaged,
    /// As it was read.
    Exact,
}

/// The values to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShownPower {
    pub(super) packages: Option<f64>,
    pub(super) gpus: Option<f64>,
    pub(super) observed: Option<f64>,
    pub(super) smoothed: Option<f64>,
    /// The power and the energy counter of each zone.
    pub(super) zones: Vec<(String, Option<f64>, Option<u64>)>,
    /// Each GPU, and the memory of each package.
    pub(super) devices: ShownDevices,
}

/// The readings since values were last shown.
#[derive(Debug, Default)]
pub(super) struct PowerWindow {
    since: Option<Mono>,
    packages: Mean,
    gpus: Mean,
    observed: Mean,
    smoothed: Mean,
    zones: BTreeMap<String, Mean>,
    drams: BTreeMap<String, Mean>,
    each_gpu: BTreeMap<String, Mean>,
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, reading: Option<Watts>) {
        if let Some(watts) = reading {
            self.sum += super::as_f64(watts);
            self.count += 1;
        }
    }

    fn value(&self, detail: PowerDetail) -> Option<f64> {
        let mean = (self.count > 0).then(|| self.sum / f64::from(self.count))?;
        Some(match detail {
            PowerDetail::Averaged => mean.round(),
            PowerDetail::Exact => mean,
        })
    }
}

impl PowerWindow {
    /// Takes a reading in. Returns what is to be shown now, if it is time.
    pub(super) fn take(&mut self, view: &View, now: Mono, detail: PowerDetail) -> Option<ShownPower> {
        self.packages.add(view.cpu.drawn.watts());
        self.gpus.add(view.gpu.drawn.watts());
        self.observed.add(view.details.law.and_then(|law| law.observed));
        self.smoothed.add(view.details.law.and_then(|law| law.smoothed));
        for device in &view.cpu.devices {
            self.zones.entry(device.key.clone()).or_default().add(device.drawn.watts());
            self.drams.entry(device.key.clone()).or_default().add(device.beside.dram.watts());
        }
        for device in &view.gpu.devices {
            self.each_gpu.entry(device.key.clone()).or_default().add(device.drawn.watts());
        }
        let is_due = self.since.is_none_or(|since| now.since(since) >= WINDOW);
        if detail == PowerDetail::Averaged && !is_due {
            return None;
        }
        let whole = |energy: u64| match detail {
            PowerDetail::Averaged => energy - energy % MICROJOULES,
            PowerDetail::Exact => energy,
        };
        let zone = |device: &crate::machine::Device| {
            let power = self.zones.get(&device.key).and_then(|mean| mean.value(detail));
            (device.key.clone(), power, device.energy.map(|energy| whole(energy.get())))
        };
        let mean =
            |of: &BTreeMap<String, Mean>, key: &String| of.get(key).and_then(|mean| mean.value(detail));
        let dram = |device: &crate::machine::Device| {
            let energy = device.beside.dram_energy.map(|energy| whole(energy.get()));
            (device.key.clone(), mean(&self.drams, &device.key), energy)
        };
        let gpu = |device: &crate::machine::Device| (device.key.clone(), mean(&self.each_gpu, &device.key));
        let devices = ShownDevices {
            drams: view.cpu.devices.iter().map(dram).collect(),
            gpus: view.gpu.devices.iter().map(gpu).collect(),
        };
        let shown = ShownPower {
            packages: self.packages.value(detail),
            gpus: self.gpus.value(detail),
            observed: self.observed.value(detail),
            smoothed: self.smoothed.value(detail),
            zones: view.cpu.devices.iter().map(zone).collect(),
            devices,
        };
        *self = Self { since: Some(now), ..Self::default() };
        Some(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::receipt::tests::{draws, packages, view};
    use crate::machine::Drawn;
    use power_units::MicroJoules;

    fn at(millis: u64) -> Mono {
        Mono::at(Duration::from_millis(millis))
    }

    fn reading(watts: Drawn, energy: u64) -> View {
        let mut cpu = packages(&[(None, 100, watts)]);
        cpu.devices[0].energy = Some(MicroJoules::new(energy));
        view(1, cpu)
    }

    #[test]
    fn power_is_shown_as_the_mean_of_a_second_in_whole_watts_unless_asked_otherwise() {
        let mut window = PowerWindow::default();
        let mut shown = Vec::new();
        // Ten readings a second of a package that switches between 100 and 200 W.
        for tick in 0..=20 {
            let watts = if tick % 2 == 0 { 100 } else { 200 };
            let view = reading(draws(watts), 1_234_567 + 1_000 * tick);
            shown.extend(window.take(&view, at(100 * tick), PowerDetail::Averaged));
        }
        // The first reading alone; then each the mean of ten, which are 200, 100, ... W.
        let packages: Vec<Option<f64>> = shown.iter().map(|power| power.packages).collect();
        assert_eq!(packages, [Some(100.0), Some(150.0), Some(150.0)]);
        assert_eq!(shown[1].zones, [("package-0".to_owned(), Some(150.0), Some(1_000_000))]);

        let mut window = PowerWindow::default();
        for tick in 0..3 {
            let view = reading(draws(100 + 50 * tick), 1_234_567);
            let shown = window.take(&view, at(100), PowerDetail::Exact).unwrap();
            assert_eq!(shown.packages, Some(f64::from(100 + 50 * tick)));
            assert_eq!(shown.zones[0].2, Some(1_234_567));
        }
    }

    #[test]
    fn power_that_is_not_known_is_not_shown_and_a_gap_does_not_count_as_zero() {
        let mut window = PowerWindow::default();
        let averaged = PowerDetail::Averaged;
        let first = window.take(&reading(Drawn::Unknown, 0), at(0), averaged).unwrap();
        assert_eq!((first.packages, first.gpus), (None, None));
        assert_eq!(window.take(&reading(draws(300), 0), at(500), averaged), None);
        let then = window.take(&reading(Drawn::Unknown, 0), at(1000), averaged).unwrap();
        assert_eq!(then.packages, Some(300.0));
    }
}
