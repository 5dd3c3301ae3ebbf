//! The law of Slurm's power plugin, as its power management guide describes it: machines that draw much less than their cap
//! lose half of the difference, and the others share what remains.
//!
//! Where machines differ, a share is the same part of the way from the floor to the maximum, and not the same watts: that
//! suits the law better. It writes all caps at once, lowers first, and awaits nothing.

use super::{ArmView, CapWrite, Divider, kinds, level};
use crate::STEPS_A_SECOND;
use crate::site::{LimitsNow, MachineModel, VirtualSite};

/// The settings of the plugin, by their names there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlurmParameters {
    /// Seconds between two rounds.
    pub balance_interval: usize,
    /// The most that a cap is lowered by, of the machine's range.
    pub decrease_rate: f64,
    /// The most that a cap is raised by, of the machine's range.
    pub increase_rate: f64,
    /// A machine that draws less than this part of its cap is lowered.
    pub lower_threshold: f64,
    /// A machine that draws more than this part of its cap is raised.
    pub upper_threshold: f64,
    /// A machine on which a job started within so many seconds gets a full share at once.
    pub recent_job: f64,
}

impl SlurmParameters {
    /// What the plugin does without settings.
    pub const DEFAULT: Self = Self {
        balance_interval: 30,
        decrease_rate: 0.5,
        increase_rate: 0.2,
        lower_threshold: 0.9,
        upper_threshold: 0.95,
        recent_job: 300.0,
    };
}

/// A machine in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlurmNode {
    pub(crate) floor: f64,
    pub(crate) max: f64,
    pub(crate) cap: f64,
    pub(crate) drawn: Option<f64>,
    pub(crate) is_new: bool,
}

/// The caps after a round in which `watts` are divided.
pub(crate) fn balance(parameters: &SlurmParameters, nodes: &[SlurmNode], watts: f64) -> Vec<f64> {
    let SlurmParameters { decrease_rate, increase_rate, lower_threshold, upper_threshold, .. } = *parameters;
    let mut caps: Vec<f64> = nodes.iter().map(|node| node.cap).collect();
    // Who is raised, and how far at most.
    let mut raised: Vec<(usize, f64)> = Vec::new();
    for (at, (node, cap)) in nodes.iter().zip(&mut caps).enumerate() {
        let range = node.max - node.floor;
        // A machine whose draw is not known counts as one that needs more.
        let drawn = node.drawn.unwrap_or(node.cap);
        if node.is_new {
            raised.push((at, node.max));
        } else if drawn < node.cap * lower_threshold {
            let less = ((node.cap - drawn) / 2.0).min(decrease_rate * range);
            *cap = (node.cap - less).max(node.floor);
        } else if drawn > node.cap * upper_threshold {
            raised.push((at, (node.cap + increase_rate * range).min(node.max)));
        }
    }
    // Who may not be raised to a full share leaves the difference to the others.
    loop {
        let open: f64 = raised.iter().filter_map(|(at, _)| caps.get(*at)).sum();
        let taken = caps.iter().sum::<f64>() - open;
        let ranges: Vec<(f64, f64)> =
            raised.iter().filter_map(|(at, _)| nodes.get(*at)).map(|node| (node.floor, node.max)).collect();
        let shares = level(&ranges, watts - taken);
        let before = raised.len();
        let mut left = Vec::with_capacity(before);
        for (&(at, most), share) in raised.iter().zip(&shares) {
            let is_bound = *share > most;
            if let Some(cap) = caps.get_mut(at) {
                *cap = if is_bound { most } else { *share };
            }
            if !is_bound {
                left.push((at, most));
            }
        }
        raised = left;
        if raised.len() == before {
            return caps;
        }
    }
}

/// The law with its settings.
#[derive(Clone, Debug)]
pub struct SlurmLaw {
    parameters: SlurmParameters,
    kinds: Vec<&'static MachineModel>,
    base: f64,
}

impl SlurmLaw {
    /// The law for the machines of a site.
    #[must_use]
    pub fn new(parameters: SlurmParameters, site: &VirtualSite) -> Self {
        Self { parameters, kinds: kinds(site), base: site.whole_base() }
    }
}

impl Divider for SlurmLaw {
    fn decide(&mut self, step: usize, limits: &LimitsNow, nodes: &[ArmView], caps: &mut Vec<CapWrite>) {
        if !step.is_multiple_of(self.parameters.balance_interval * STEPS_A_SECOND) {
            return;
        }
        let all: Vec<SlurmNode> = nodes
            .iter()
            .zip(&self.kinds)
            .map(|(node, kind)| SlurmNode {
                floor: kind.floor(),
                max: kind.max(),
                cap: node.asked,
                drawn: node.second.map(|second| second.counted),
                is_new: node.job_age.is_some_and(|age| age < self.parameters.recent_job),
            })
            .collect();
        let next = balance(&self.parameters, &all, limits.site - self.base);
        let mut changed: Vec<CapWrite> = Vec::new();
        for (machine, (node, cap)) in nodes.iter().zip(next).enumerate() {
            let watts = cap.floor();
            if (watts - node.asked).abs() >= 1.0 {
                changed.push(CapWrite { machine, watts, lends: false });
            }
        }
        let is_lower =
            |write: &CapWrite| nodes.get(write.machine).is_some_and(|node| write.watts < node.asked);
        caps.extend(changed.iter().copied().filter(is_lower));
        caps.extend(changed.iter().copied().filter(|write| !is_lower(write)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of the guide: ten machines of 100 to 200 W under 1800 W.
    #[test]
    fn the_example_of_the_guide_comes_out_watt_for_watt() {
        let parameters = SlurmParameters {
            balance_interval: 60,
            decrease_rate: 0.3,
            increase_rate: 0.1,
            lower_threshold: 0.9,
            upper_threshold: 0.98,
            recent_job: 300.0,
        };
        let round = |caps: &[f64], drawn: &[f64], new: Option<usize>| -> Vec<f64> {
            let node = |at: usize| SlurmNode {
                floor: 100.0,
                max: 200.0,
                cap: caps[at],
                drawn: Some(drawn[at]),
                is_new: new == Some(at),
            };
            let nodes: Vec<SlurmNode> = (0..10).map(node).collect();
            balance(&parameters, &nodes, 1800.0).into_iter().map(f64::floor).collect()
        };
        let with = |first: f64, second: f64, others: f64| {
            let mut all = [others; 10];
            (all[0], all[1]) = (first, second);
            all
        };
        // Half of 70 W is 35, at most 30: 150. (1800 − 150) / 9 = 183.
        let caps = round(&[180.0; 10], &with(110.0, 180.0, 180.0), None);
        assert_eq!(caps, with(150.0, 183.0, 183.0));
        // Half of 40 W: 130. Half of 68 is 34, at most 30: 153. (1800 − 283) / 8 = 189.
        let caps = round(&caps, &with(110.0, 115.0, 183.0), None);
        assert_eq!(caps, with(130.0, 153.0, 189.0));
        // 128 W is more than 98 % of 130: 10 W more. The second has a new job: (1800 − 140) / 9 = 184.
        let caps = round(&caps, &with(128.0, 115.0, 189.0), Some(1));
        assert_eq!(caps, with(140.0, 184.0, 184.0));
    }
}
