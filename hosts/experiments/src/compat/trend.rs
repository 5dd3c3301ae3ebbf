//! What upstream's formulas follow: the power of each node over the last ten steps, and the trend of all together.

use crate::fleet::NODES;

/// Samples from which a slope is computed.
const SAMPLES: usize = 10;
/// A trend of the cluster above this many watts for each minute is a burst.
const BURST_W: f64 = 500.0;

pub(crate) struct PowerTrend {
    /// Of each node, watts for each minute.
    pub(crate) slopes: Vec<f64>,
    /// What slopes are divided by: 2 in a burst of the cluster, else 6.
    pub(crate) scale: f64,
    /// The samples of all nodes, a ring of steps.
    samples: Vec<Vec<f64>>,
    totals: Vec<f64>,
    slot: usize,
}

impl PowerTrend {
    pub(crate) fn new() -> Self {
        Self {
            slopes: vec![0.0; NODES],
            scale: 6.0,
            samples: vec![vec![0.0; NODES]; SAMPLES],
            totals: vec![0.0; SAMPLES],
            slot: 0,
        }
    }

    /// Samples all nodes in a step, and computes the slopes.
    pub(crate) fn sample(&mut self, step: usize, watts_of: impl Fn(usize) -> f64) {
        self.slot = step % SAMPLES;
        let mut total = 0.0;
        for (place, sample) in self.samples[self.slot].iter_mut().enumerate() {
            *sample = watts_of(place);
            total += *sample;
        }
        self.totals[self.slot] = total;
        self.regress(step);
    }

    /// A node changed within a step: its sample does so too, and no slope.
    pub(crate) fn touch(&mut self, node: usize, watts: f64) {
        self.samples[self.slot][node] = watts;
    }

    /// Least squares over the last samples. Deviations from the newest are used, so that a constant has slope zero.
    fn regress(&mut self, step: usize) {
        let count = (step + 1).min(SAMPLES);
        self.slopes.fill(0.0);
        if count < 2 {
            return;
        }
        let middle = (count as f64 - 1.0) / 2.0;
        let spread: f64 = (0..count).map(|place| (place as f64 - middle).powi(2)).sum();
        let mut trend = 0.0;
        for place in 0..count {
            let weight = (place as f64 - middle) / spread;
            let slot = (step + 1 - count + place) % SAMPLES;
            trend += weight * (self.totals[slot] - self.totals[self.slot]);
            for (node, slope) in self.slopes.iter_mut().enumerate() {
                *slope += weight * (self.samples[slot][node] - self.samples[self.slot][node]);
            }
        }
        self.scale = if trend.abs() > BURST_W { 2.0 } else { 6.0 };
    }
}
