//! The law of EAR's global manager, simplified: every two minutes, machines with slack release it, machines below their
//! share get it back first, and machines that want more get equal parts of what is left, at most 255 W a round.

use super::{ArmView, CapWrite, Divider, kinds};
use crate::STEPS_A_SECOND;
use crate::site::{LimitsNow, MachineModel, VirtualSite};

/// Seconds between two rounds.
const PERIOD: usize = 120;
/// A machine with this much slack releases what is beyond it.
const SLACK: f64 = 50.0;
/// A request is a number of eight bits.
const MOST: f64 = 255.0;

/// The law.
#[derive(Clone, Debug)]
pub struct EarLaw {
    kinds: Vec<&'static MachineModel>,
    base: f64,
}

/// What a machine is, in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Release,
    AskDefault,
    Greedy,
    Idle,
}

/// The state of a machine by its cap, its share and its last second.
fn state(cap: f64, share: f64, view: &ArmView) -> State {
    let Some(second) = view.second else { return State::Idle };
    let is_greedy = second.bitten > 0.0 && cap - second.counted < SLACK;
    if !is_greedy && cap - second.counted >= SLACK {
        State::Release
    } else if is_greedy && cap < share - 1.0 {
        State::AskDefault
    } else if is_greedy {
        State::Greedy
    } else {
        State::Idle
    }
}

impl EarLaw {
    /// The law for the machines of a site.
    #[must_use]
    pub fn new(site: &VirtualSite) -> Self {
        Self { kinds: kinds(site), base: site.whole_base() }
    }

    /// Gives equal parts of what is free to some machines.
    fn share_out(&self, who: &[usize], caps: &mut [f64], free: &mut f64) {
        let part = (*free / who.len().max(1) as f64).clamp(0.0, MOST);
        for &at in who {
            let (Some(cap), Some(kind)) = (caps.get_mut(at), self.kinds.get(at)) else { continue };
            let more = part.min(kind.max() - *cap).max(0.0);
            *cap += more;
            *free -= more;
        }
    }
}

impl Divider for EarLaw {
    fn decide(&mut self, step: usize, limits: &LimitsNow, nodes: &[ArmView], caps: &mut Vec<CapWrite>) {
        if !step.is_multiple_of(PERIOD * STEPS_A_SECOND) {
            return;
        }
        let mut next: Vec<f64> = nodes.iter().map(|node| node.asked).collect();
        let states: Vec<State> =
            nodes.iter().zip(&limits.entitled).map(|(node, &share)| state(node.asked, share, node)).collect();
        let those = |wanted: State| {
            let all = states.iter().enumerate().filter(move |(_, state)| **state == wanted);
            all.map(|(at, _)| at)
        };
        for at in those(State::Release) {
            let (Some(cap), Some(kind)) = (next.get_mut(at), self.kinds.get(at)) else { continue };
            let drawn = nodes.get(at).and_then(|node| node.second).map_or(*cap, |second| second.counted);
            *cap = kind.kept((drawn + SLACK).min(*cap));
        }
        let mut free = limits.site - self.base - next.iter().sum::<f64>();
        let entitled = |at: usize| limits.entitled.get(at).copied().unwrap_or(0.0);
        let asked: f64 = those(State::AskDefault).map(|at| entitled(at) - next[at]).sum();
        if asked > free {
            // What others have beyond their shares is taken evenly.
            let beyond: f64 = next.iter().enumerate().map(|(at, cap)| (cap - entitled(at)).max(0.0)).sum();
            let part = if beyond > 0.0 { ((asked - free) / beyond).clamp(0.0, 1.0) } else { 0.0 };
            for (at, cap) in next.iter_mut().enumerate() {
                let less = (*cap - entitled(at)).max(0.0) * part;
                *cap -= less;
                free += less;
            }
        }
        let part = if asked > 0.0 { (free / asked).clamp(0.0, 1.0) } else { 0.0 };
        for at in those(State::AskDefault) {
            let more = (entitled(at) - next[at]).max(0.0) * part;
            next[at] += more;
            free -= more;
        }
        let (plain, others): (Vec<usize>, Vec<usize>) =
            those(State::Greedy).partition(|&at| next[at] <= entitled(at) + 1.0);
        self.share_out(&plain, &mut next, &mut free);
        self.share_out(&others, &mut next, &mut free);
        for (machine, (node, cap)) in nodes.iter().zip(next).enumerate() {
            let watts = cap.floor();
            if (watts - node.asked).abs() >= 1.0 {
                caps.push(CapWrite { machine, watts, lends: false });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::NodeSecond;

    fn view(asked: f64, drawn: f64, bitten: f64) -> ArmView {
        let (serial, granted, lends) = (1, asked, false);
        let second = Some(NodeSecond {
            drawn,
            counted: drawn,
            bitten,
            cap: asked,
            most: 720.0,
            serial,
            granted,
            lends,
        });
        ArmView { serial: 1, asked, heard: 1, holds: asked, yields: None, second, job_age: None }
    }

    /// Three machines without GPUs (180 to 720 W, 120 W beside) under 1860 W: 1500 W for the devices, 500 each.
    #[test]
    fn slack_is_released_and_goes_to_who_wants_more() {
        let mut site = VirtualSite::of(10);
        site.machines.retain(|machine| machine.kind.gpus.count == 0);
        site.base = vec![360.0];
        let limits = LimitsNow {
            site: 1860.0,
            instant: 1860.0,
            armed: false,
            racks: vec![1860.0],
            entitled: vec![500.0; 3],
        };
        let mut law = EarLaw::new(&site);
        let mut caps = Vec::new();
        // The first releases 500 − 350 = 150 W; the second and the third want more: 75 W each.
        let nodes = [view(500.0, 300.0, 0.0), view(500.0, 500.0, 1.0), view(500.0, 499.0, 0.5)];
        law.decide(0, &limits, &nodes, &mut caps);
        let all: Vec<f64> = caps.iter().map(|write| write.watts).collect();
        assert_eq!(all, [350.0, 575.0, 575.0]);
        // The first wants its share back: 150 W, taken evenly from the 75 W that each of the others has beyond theirs.
        caps.clear();
        let nodes = [view(350.0, 350.0, 1.0), view(575.0, 575.0, 1.0), view(575.0, 575.0, 1.0)];
        law.decide(240, &limits, &nodes, &mut caps);
        let all: Vec<f64> = caps.iter().map(|write| write.watts).collect();
        assert_eq!(all, [500.0, 500.0, 500.0]);
    }
}
