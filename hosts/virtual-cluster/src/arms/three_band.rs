//! Three bands over what is drawn, after the published descriptions of a large operator's controllers: nobody has a cap until
//! a group draws 99 % of its limit; then those who draw most are capped until it would draw 95 %; below 90 % all caps
//! go. Racks are looked at every 3 s, the site every 9 s.
//!
//! It gives out more than the limit, so that the limit can be exceeded until the caps are in force.

use super::{ArmView, CapWrite, Divider};
use crate::STEPS_A_SECOND;
use crate::site::{LimitsNow, VirtualSite};

const UPPER: f64 = 0.99;
const TARGET: f64 = 0.95;
const LOWER: f64 = 0.90;
const RACK_PERIOD: usize = 3;
const SITE_PERIOD: usize = 9;

/// The law.
#[derive(Clone, Debug)]
pub struct ThreeBandLaw {
    site: VirtualSite,
    /// The cap for the rack's sake and the cap for the site's.
    caps: Vec<[f64; 2]>,
}

impl ThreeBandLaw {
    /// The law for a site.
    #[must_use]
    pub fn new(site: &VirtualSite) -> Self {
        let caps = site.machines.iter().map(|machine| [machine.kind.max(); 2]).collect();
        Self { site: site.clone(), caps }
    }

    /// Looks at one group.
    fn look(&mut self, (level, members): (usize, &[usize]), drawn: &[f64], base: f64, limit: f64) {
        let sum = base + members.iter().map(|&at| drawn[at]).sum::<f64>();
        if sum > UPPER * limit {
            let over = sum - TARGET * limit;
            let cap = ceiling(members.iter().map(|&at| drawn[at]), over);
            for &at in members.iter().filter(|&&at| drawn[at] > cap) {
                self.caps[at][level] = cap;
            }
        } else if sum < LOWER * limit {
            for &at in members {
                self.caps[at][level] = self.site.machines[at].kind.max();
            }
        }
    }
}

/// The ceiling under which these draw `less` together: the highest come down first.
fn ceiling(drawn: impl Iterator<Item = f64>, less: f64) -> f64 {
    let mut all: Vec<f64> = drawn.collect();
    all.sort_by(|one, other| other.total_cmp(one));
    let mut sum = 0.0;
    for (count, &highest) in all.iter().enumerate() {
        sum += highest;
        let next = all.get(count + 1).copied().unwrap_or(0.0);
        let many = (count + 1) as f64;
        if sum - many * next >= less {
            return (sum - less) / many;
        }
    }
    0.0
}

impl Divider for ThreeBandLaw {
    fn decide(&mut self, step: usize, limits: &LimitsNow, nodes: &[ArmView], caps: &mut Vec<CapWrite>) {
        if !step.is_multiple_of(RACK_PERIOD * STEPS_A_SECOND) {
            return;
        }
        let drawn: Vec<f64> =
            nodes.iter().map(|node| node.second.map_or(node.holds, |second| second.drawn)).collect();
        for (rack, &limit) in limits.racks.iter().enumerate() {
            let members: Vec<usize> =
                (0..nodes.len()).filter(|&at| self.site.machines[at].rack == rack).collect();
            self.look((0, &members), &drawn, self.site.base[rack], limit);
        }
        if step.is_multiple_of(SITE_PERIOD * STEPS_A_SECOND) {
            let members: Vec<usize> = (0..nodes.len()).collect();
            self.look((1, &members), &drawn, self.site.whole_base(), limits.site);
        }
        for (machine, (node, [rack, site])) in nodes.iter().zip(&self.caps).enumerate() {
            let watts = self.site.machines[machine].kind.kept(rack.min(*site)).floor();
            if (watts - node.asked).abs() >= 1.0 {
                caps.push(CapWrite { machine, watts, lends: false });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_down_first() {
        // 100 W less: the first from 500 to 400.
        assert_eq!(ceiling([300.0, 500.0, 400.0].into_iter(), 100.0), 400.0);
        // 300 W less of the first two: (500 + 400 − 300) / 2.
        assert_eq!(ceiling([300.0, 500.0, 400.0].into_iter(), 300.0), 300.0);
        // 600 W less of all three: (1200 − 600) / 3.
        assert_eq!(ceiling([300.0, 500.0, 400.0].into_iter(), 600.0), 200.0);
    }
}
