//! Random but repeatable nodes and pods for tests.

use super::class::{SchedulableClass, WorkloadClass};
use super::demand::{GpuDemand, GpuVendor, MilliCores, PodDemand};
use super::estimate::{HardwareRecord, NodeGpus};
use super::score::{TwinPower, TwinStatus};
use power_units::{Percent, Ratio, Watts, WattsPerMinute};

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number with a fraction of 32 bits between two whole ones.
    fn bits(&mut self, from: i64, to: i64) -> i64 {
        (from << 32) + self.below(((to - from) as u64) << 32) as i64
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(8) > 0).then_some(value)
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    fn vendor(&mut self) -> GpuVendor {
        GpuVendor::ALL[self.below(3) as usize]
    }

    pub(crate) fn watts(&mut self, from: i64, to: i64) -> Watts {
        Watts::from_bits(self.bits(from, to))
    }

    pub(crate) fn hardware(&mut self) -> HardwareRecord {
        let gpus = NodeGpus {
            count: Some(self.below(17) as u32).filter(|_| self.below(8) > 0),
            max: Some(self.watts(-10, 1500)).filter(|_| self.below(8) > 0),
            vendor: Some(self.vendor()).filter(|_| self.below(2) > 0),
            adds: Some(self.watts(-10, 1500)).filter(|_| self.below(8) == 0),
        };
        let cpu_max = self.watts(-10, 3000);
        let cores = self.below(512) as u32;
        HardwareRecord { cpu_max: self.maybe(cpu_max), cores: self.maybe(cores), gpus: self.maybe(gpus) }
    }

    pub(crate) fn class(&mut self) -> WorkloadClass {
        if self.below(2) == 0 { WorkloadClass::Standard } else { WorkloadClass::Performance }
    }

    pub(crate) fn demand(&mut self) -> PodDemand {
        let gpus = GpuDemand { count: self.below(12) as u32, vendor: self.vendor() };
        PodDemand {
            class: self.class(),
            cpu: MilliCores::new(self.below(600_000) as u32),
            memory_bytes: self.below(64 << 30),
            gpus: self.maybe(gpus),
            gpu_quarters: 0,
        }
    }

    pub(crate) fn twin(&mut self) -> TwinStatus {
        use SchedulableClass::{Draining, Eco, Performance, Unknown};
        let power = TwinPower {
            measured: Some(self.watts(-10, 15_000)).filter(|_| self.below(16) > 0),
            capped: Some(self.watts(-10, 15_000)).filter(|_| self.below(16) > 0),
            trend: Some(WattsPerMinute::from_bits(self.bits(-400, 400))).filter(|_| self.below(16) > 0),
        };
        let mut percent = |from, to| {
            let value = Percent::from_bits(self.bits(from, to));
            self.maybe(value)
        };
        let (headroom, cooling, psu) = (percent(-50, 150), percent(-20, 120), percent(-20, 120));
        let pue = Ratio::from_bits(self.bits(0, 3));
        TwinStatus {
            class: [Performance, Eco, Draining, Unknown][self.below(4) as usize],
            headroom,
            cooling,
            psu,
            pue: self.maybe(pue),
            power: self.maybe(power),
            caps: [None; 2],
            marked: self.below(8) == 0,
            ..TwinStatus::silent(Unknown)
        }
    }
}
