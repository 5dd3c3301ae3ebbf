//! Decides what `--chaos` does to the system, when, and to which node. `cluster` executes it.

use super::act::Act;
use super::state::{Offer, State};
use std::time::Duration;

/// A step of the script, before its node is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Blind,
    See,
    Reserve,
    Return,
    CapByHand,
    HandBack,
    KillOperator,
    StartOperator,
    KillExtender,
    StartExtender,
}

/// When each step is due, in percent of a round. Each fault is repaired in the same round.
const SCRIPT: [(u32, Step); 10] = [
    (16, Step::Blind),
    (26, Step::Reserve),
    (36, Step::CapByHand),
    (42, Step::See),
    (46, Step::KillOperator),
    (52, Step::Return),
    (64, Step::StartOperator),
    (74, Step::KillExtender),
    (82, Step::StartExtender),
    (88, Step::HandBack),
];

/// The script and its current position.
#[derive(Debug)]
pub(super) struct Chaos {
    round: Duration,
    next: usize,
    rounds: u32,
    blind: Option<String>,
    reserved: Option<String>,
    by_hand: Option<String>,
}

impl Chaos {
    /// One round over the whole run, or repeated rounds of this length if the run has no end.
    pub(super) const fn over(round: Duration) -> Self {
        Self { round, next: 0, rounds: 0, blind: None, reserved: None, by_hand: None }
    }

    /// The action that is due now. Call it until it returns `None`.
    pub(super) fn due(&mut self, state: &State) -> Option<Act> {
        loop {
            let (percent, step) = SCRIPT.get(self.next).copied()?;
            let begun = self.round.saturating_mul(self.rounds);
            if state.at < begun.saturating_add(self.round.saturating_mul(percent) / 100) {
                return None;
            }
            self.next += 1;
            if self.next == SCRIPT.len() {
                (self.next, self.rounds) = (0, self.rounds.saturating_add(1));
            }
            // Skip a step for which there is no suitable node.
            if let Some(act) = self.act(step, state) {
                return Some(act);
            }
        }
    }

    fn act(&mut self, step: Step, state: &State) -> Option<Act> {
        match step {
            Step::Blind => {
                self.blind = self.some_node(state, Offer::Eco);
                self.blind.clone().map(Act::Blind)
            }
            Step::See => self.blind.take().map(Act::See),
            Step::Reserve => {
                self.reserved = self.some_node(state, Offer::Eco);
                self.reserved.clone().map(Act::Reserve)
            }
            Step::Return => self.reserved.take().map(Act::Return),
            Step::CapByHand => {
                self.by_hand = self.some_node(state, Offer::Performance);
                self.by_hand.clone().map(Act::CapByHand)
            }
            Step::HandBack => self.by_hand.take().map(Act::HandBack),
            Step::KillOperator => Some(Act::KillOperator),
            Step::StartOperator => Some(Act::StartOperator),
            Step::KillExtender => Some(Act::KillExtender),
            Step::StartExtender => Some(Act::StartExtender),
        }
    }

    /// The first node by name with this offer whose processors are capped and that no other step uses.
    fn some_node(&self, state: &State, offer: Offer) -> Option<String> {
        let taken = [&self.blind, &self.reserved, &self.by_hand];
        let free = |name: &String| taken.iter().all(|one| one.as_ref() != Some(name));
        let fits = state.nodes.iter().find(|(name, node)| {
            node.offer == offer && node.gpu.count == 0 && !node.reserved && !node.by_hand && free(name)
        });
        fits.map(|(name, _)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::state::Node;

    fn state(at: u64) -> State {
        let node = |offer| Node { offer, ..Node::default() };
        let nodes =
            [("a", Offer::Performance), ("b", Offer::Eco), ("c", Offer::Eco), ("d", Offer::Performance)];
        State {
            at: Duration::from_secs(at),
            nodes: nodes.into_iter().map(|(name, offer)| (name.to_owned(), node(offer))).collect(),
            ..State::default()
        }
    }

    fn all(chaos: &mut Chaos, at: u64) -> Vec<Act> {
        std::iter::from_fn(|| chaos.due(&state(at))).collect()
    }

    #[test]
    fn what_is_broken_is_mended_in_the_same_round_and_on_the_same_node() {
        let mut chaos = Chaos::over(Duration::from_secs(100));
        assert_eq!(all(&mut chaos, 15), []);
        let node = |name: &str| name.to_owned();
        let round = [
            Act::Blind(node("b")),
            Act::Reserve(node("c")),
            Act::CapByHand(node("a")),
            Act::See(node("b")),
            Act::KillOperator,
            Act::Return(node("c")),
            Act::StartOperator,
            Act::KillExtender,
            Act::StartExtender,
            Act::HandBack(node("a")),
        ];
        assert_eq!(all(&mut chaos, 99), round);
        assert_eq!(all(&mut chaos, 115), []);
        assert_eq!(all(&mut chaos, 116), [Act::Blind(node("b"))]);
    }

    #[test]
    fn a_step_without_a_node_for_it_is_left_out_with_its_mending() {
        let mut chaos = Chaos::over(Duration::from_secs(100));
        let empty = State { at: Duration::from_secs(99), ..State::default() };
        let acts: Vec<Act> = std::iter::from_fn(|| chaos.due(&empty)).collect();
        let four = [Act::KillOperator, Act::StartOperator, Act::KillExtender, Act::StartExtender];
        assert_eq!(acts, four);
    }
}
