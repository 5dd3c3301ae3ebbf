//! The judge compares the limits in force on all machines with the budget, at every instant, and attributes an excess
//! to its excuses.
//!
//! It knows the plants, not the system under test. The limits in force change only when a machine is written to,
//! boots or is changed by somebody else, so the sums are exact and need no sampling. An excuse defines the watts with
//! which a part of a machine counts instead of its limit in force. The excess that disappears with an excuse is
//! attributed to it, in the order of [`Excuse::ALL`]; the remaining excess has no excuse.
//!
//! The caller reports the true state of the machines and the time: the world test its virtual time, the chaos test on
//! a real control plane the real time.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

/// Limits have steps of an eighth of a watt or more; smaller differences are rounding.
const TOLERANCE: f64 = 0.5;

/// Why an excess is not a fault of the system. There are no other reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excuse {
    /// A machine has booted, and its first receipt is missing. Once the receipt is due, the others must make room for
    /// what the machine may draw, as far as they can be limited.
    Reboot,
    /// A device refuses its limit.
    Refusal,
    /// Another program writes to the hardware.
    Rival,
    /// The budget was cut, and the deadline of the cut has not passed.
    Cut,
    /// The API was restored to an older state.
    Restored,
}

impl Excuse {
    /// All excuses.
    pub const ALL: [Self; 5] = [Self::Reboot, Self::Refusal, Self::Rival, Self::Cut, Self::Restored];

    /// The name for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reboot => "reboot until the first receipt",
            Self::Refusal => "device refuses",
            Self::Rival => "rival writer",
            Self::Cut => "cut until its deadline",
            Self::Restored => "API restored",
        }
    }
}

/// A part of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachinePart {
    /// All packages.
    Cpu,
    /// All GPUs.
    Gpu,
}

/// The size and the duration of an excess.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Excess {
    /// Watt-seconds.
    pub watt_seconds: f64,
    /// The total time.
    pub time: Duration,
    /// The longest time without a break.
    pub longest: Duration,
    run: Duration,
}

impl Excess {
    fn add(&mut self, watts: f64, time: Duration) {
        if watts <= 0.0 {
            self.run = Duration::ZERO;
            return;
        }
        self.watt_seconds += watts * time.as_secs_f64();
        self.time += time;
        self.run += time;
        self.longest = self.longest.max(self.run);
    }
}

#[derive(Debug)]
struct Held {
    watts: f64,
    /// The least that the part can be limited to.
    least: f64,
    excuses: BTreeMap<Excuse, Counted>,
    /// When the others must have made room for the part, if it has booted and its receipt is missing.
    room_due: Option<Duration>,
}

impl Held {
    const fn new(watts: f64, least: f64) -> Self {
        Self { watts, least, excuses: BTreeMap::new(), room_due: None }
    }

    /// Whether it has booted and its receipt is overdue.
    fn is_overdue(&self, now: Duration) -> bool {
        self.excuses.contains_key(&Excuse::Reboot) && self.room_due.is_some_and(|due| due <= now)
    }

    /// The watts with which it counts under these excuses.
    fn counted(&self, excuses: &[Excuse], now: Duration) -> f64 {
        let known = excuses.iter().filter(|&&excuse| excuse != Excuse::Reboot || !self.is_overdue(now));
        let excused = known.filter_map(|excuse| self.excuses.get(excuse));
        excused.fold(self.watts, |watts, counted| watts.min(counted.watts))
    }
}

/// The watts with which a part counts under an excuse, and the latest end of the excuse.
#[derive(Clone, Copy, Debug)]
struct Counted {
    watts: f64,
    until: Duration,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Judge {
    at: Duration,
    budget: f64,
    /// Earlier, higher budgets, which count until the deadlines of the cuts.
    cuts: Vec<(Duration, f64)>,
    /// The highest earlier budget that a node may still follow, because it was not informed of the cut.
    before: f64,
    restored: Duration,
    /// Until when a node cannot have followed a cut, because it could not be informed.
    untold: BTreeMap<String, Duration>,
    parts: BTreeMap<(String, MachinePart), Held>,
    excused: BTreeMap<Excuse, Excess>,
    unexcused: Excess,
    /// The excesses without an excuse, each with its highest watts.
    breaches: Vec<Breach>,
}

/// One excess without an excuse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breach {
    /// Its start.
    pub from: Duration,
    /// Its end, or when it was last seen.
    pub to: Duration,
    /// Its highest watts.
    pub watts: f64,
}

impl Judge {
    /// A judge for this budget, without machines.
    #[must_use]
    pub const fn new(budget: f64) -> Self {
        Self {
            at: Duration::ZERO,
            budget,
            cuts: Vec::new(),
            before: budget,
            restored: Duration::ZERO,
            untold: BTreeMap::new(),
            parts: BTreeMap::new(),
            excused: BTreeMap::new(),
            unexcused: Excess {
                watt_seconds: 0.0,
                time: Duration::ZERO,
                longest: Duration::ZERO,
                run: Duration::ZERO,
            },
            breaches: Vec::new(),
        }
    }

    /// Adds a part of a machine, with its limit in force and its lowest possible limit.
    pub fn part(&mut self, node: &str, part: MachinePart, watts: f64, least: f64) {
        self.parts.insert((node.to_owned(), part), Held::new(watts, least));
    }

    /// Sets the limit in force of a part from now on. Call [`Judge::advance`] first.
    pub fn holds(&mut self, node: &str, part: MachinePart, watts: f64) {
        let held = self.parts.entry((node.to_owned(), part));
        held.or_insert(Held::new(watts, 0.0)).watts = watts;
    }

    /// Records that this node cannot be informed of a cut until this time. The division is then not at fault for the
    /// node's limits, and the others keep the cut as far as they can be limited.
    pub fn untold(&mut self, node: &str, until: Duration) {
        self.untold.insert(node.to_owned(), until);
    }

    /// Gives the others until `until` to make room for every booted machine for which room is not due yet: a node that
    /// cannot be informed any more is noticed only when its answer is late.
    pub fn postpone_room(&mut self, until: Duration) {
        let at = self.at;
        let due = self.parts.values_mut().filter_map(|held| held.room_due.as_mut());
        for due in due.filter(|due| **due > at) {
            *due = (*due).max(until);
        }
    }

    /// The limit in force of a part.
    #[must_use]
    pub fn held(&self, node: &str, part: MachinePart) -> f64 {
        self.parts.get(&(node.to_owned(), part)).map_or(0.0, |held| held.watts)
    }

    /// Starts an excuse: the part counts with no more than `watts`, until `until` at most. An excuse that is active
    /// already keeps its watts.
    pub fn excuse(&mut self, (node, part): (&str, MachinePart), excuse: Excuse, watts: f64, until: Duration) {
        if let Some(held) = self.parts.get_mut(&(node.to_owned(), part)) {
            let counted = held.excuses.entry(excuse).or_insert(Counted { watts, until });
            counted.until = counted.until.max(until);
        }
    }

    /// Records a boot. While the first receipt is missing, the part counts with no more than `watts` until `due`.
    /// After that it counts with its limit in force, which is excused as far as the others cannot make up for it at
    /// their lowest limits.
    pub fn booted(&mut self, (node, part): (&str, MachinePart), watts: f64, due: Duration) {
        self.end((node, part), Excuse::Reboot);
        self.excuse((node, part), Excuse::Reboot, watts, Duration::MAX);
        if let Some(held) = self.parts.get_mut(&(node.to_owned(), part)) {
            held.room_due = Some(due);
        }
    }

    /// Ends an excuse.
    pub fn end(&mut self, (node, part): (&str, MachinePart), excuse: Excuse) {
        if let Some(held) = self.parts.get_mut(&(node.to_owned(), part)) {
            held.excuses.remove(&excuse);
        }
    }

    /// Changes the budget; a lower one counts from `deadline` on.
    pub fn budget(&mut self, watts: f64, deadline: Duration) {
        if watts < self.budget {
            self.cuts.push((deadline, self.budget));
            self.before = self.before.max(self.budget);
        }
        self.budget = watts;
    }

    /// Suspends all deadlines while it is unclear who leads (`None`); afterwards each suspended deadline is set to
    /// the given time.
    pub fn put_off(&mut self, deadline: Option<Duration>) {
        let booted = self.parts.values_mut().filter(|held| held.excuses.contains_key(&Excuse::Reboot));
        let booted = booted.filter_map(|held| held.room_due.as_mut());
        for until in self.cuts.iter_mut().map(|(until, _)| until).chain(booted) {
            *until = match deadline {
                None => Duration::MAX,
                Some(deadline) if *until == Duration::MAX => deadline,
                Some(_) => *until,
            };
        }
    }

    /// Excuses everything until this time, because the API server has lost its recent state.
    pub fn restored(&mut self, until: Duration) {
        self.restored = until;
    }

    /// Judges the time up to `to`.
    pub fn advance(&mut self, to: Duration) {
        while self.at < to {
            let ends =
                self.parts.values().flat_map(|held| held.excuses.values().map(|counted| counted.until));
            let ends = ends.chain(self.cuts.iter().map(|(until, _)| *until)).chain([self.restored]);
            let ends = ends.chain(self.untold.values().copied());
            let ends = ends.chain(self.parts.values().filter_map(|held| held.room_due));
            let next = ends.filter(|end| *end > self.at).fold(to, Duration::min);
            self.account(next - self.at);
            self.at = next;
            for held in self.parts.values_mut() {
                held.excuses.retain(|_, counted| counted.until > next);
            }
            self.cuts.retain(|(until, _)| *until > next);
            self.untold.retain(|_, until| *until > next);
            if self.cuts.is_empty() && self.untold.is_empty() {
                self.before = self.budget;
            }
        }
    }

    /// The sum of the limits of all machines.
    #[must_use]
    pub fn in_force(&self) -> f64 {
        self.parts.values().map(|held| held.watts).sum()
    }

    /// The excess that remains with these excuses.
    fn over(&self, excuses: &[Excuse]) -> f64 {
        let sum: f64 = self.parts.values().map(|held| held.counted(excuses, self.at)).sum();
        let mut budget = self.budget;
        if excuses.contains(&Excuse::Reboot) && self.parts.values().any(|held| held.is_overdue(self.at)) {
            budget = budget.max(self.kept_at_best(excuses));
        }
        if excuses.contains(&Excuse::Cut) {
            if !self.untold.is_empty() {
                budget = budget.max(self.kept_at_best(excuses).min(self.before));
            }
            budget = self.cuts.iter().fold(budget, |most, (_, watts)| most.max(*watts));
        }
        let is_restored = excuses.contains(&Excuse::Restored) && self.restored > self.at;
        let over = sum - budget;
        if over <= TOLERANCE || is_restored { 0.0 } else { over }
    }

    /// The lowest possible sum of all limits while some nodes cannot be informed, or have booted and lack their
    /// receipt.
    fn kept_at_best(&self, excuses: &[Excuse]) -> f64 {
        let best = |((node, _), held): (&(String, MachinePart), &Held)| {
            let counted = held.counted(excuses, self.at);
            let is_fixed = self.untold.contains_key(node) || held.is_overdue(self.at);
            if is_fixed { counted } else { counted.min(held.least) }
        };
        self.parts.iter().map(best).sum()
    }

    fn account(&mut self, time: Duration) {
        let mut left = self.over(&[]);
        for (number, excuse) in Excuse::ALL.into_iter().enumerate() {
            let after = if left > 0.0 { self.over(&Excuse::ALL[..=number]) } else { 0.0 };
            self.excused.entry(excuse).or_default().add(left - after, time);
            left = after;
        }
        let goes_on = self.unexcused.run > Duration::ZERO;
        self.unexcused.add(left, time);
        if left > 0.0 {
            let to = self.at + time;
            match self.breaches.last_mut().filter(|_| goes_on) {
                Some(breach) => (breach.to, breach.watts) = (to, breach.watts.max(left)),
                None => self.breaches.push(Breach { from: self.at, to, watts: left }),
            }
        }
    }

    /// The results.
    #[must_use]
    pub fn verdict(&self) -> (Excess, BTreeMap<Excuse, Excess>, Vec<Breach>) {
        (self.unexcused, self.excused.clone(), self.breaches.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn two(budget: f64) -> Judge {
        let mut judge = Judge::new(budget);
        judge.part("a", MachinePart::Cpu, 300.0, 200.0);
        judge.part("b", MachinePart::Gpu, 600.0, 100.0);
        judge
    }

    #[test]
    fn an_excess_without_an_excuse_counts_from_its_first_to_its_last_second() {
        let mut judge = two(900.0);
        judge.advance(at(10));
        judge.holds("a", MachinePart::Cpu, 400.0);
        judge.advance(at(13));
        judge.holds("a", MachinePart::Cpu, 450.0);
        judge.advance(at(15));
        judge.holds("a", MachinePart::Cpu, 300.0);
        judge.advance(at(20));
        let (unexcused, _, breaches) = judge.verdict();
        // 100 W for 3 s and 150 W for 2 s.
        assert_eq!((unexcused.watt_seconds, unexcused.longest), (600.0, at(5)));
        assert_eq!(breaches, [Breach { from: at(10), to: at(15), watts: 150.0 }]);
    }

    #[test]
    fn an_excuse_takes_what_its_part_adds_and_no_more() {
        let mut judge = two(900.0);
        judge.excuse(("a", MachinePart::Cpu), Excuse::Reboot, 300.0, at(100));
        judge.holds("a", MachinePart::Cpu, 400.0);
        judge.holds("b", MachinePart::Gpu, 650.0);
        judge.advance(at(10));
        let (unexcused, excused, _) = judge.verdict();
        assert_eq!(excused[&Excuse::Reboot].watt_seconds, 1000.0);
        assert_eq!(unexcused.watt_seconds, 500.0);
        judge.end(("a", MachinePart::Cpu), Excuse::Reboot);
        judge.advance(at(11));
        assert_eq!(judge.verdict().0.watt_seconds, 650.0);
    }

    #[test]
    fn a_cut_is_excused_until_its_deadline_and_not_a_moment_longer() {
        let mut judge = two(900.0);
        judge.budget(800.0, at(30));
        judge.advance(at(35));
        let (unexcused, excused, _) = judge.verdict();
        assert_eq!(
            excused[&Excuse::Cut],
            Excess { watt_seconds: 3000.0, time: at(30), longest: at(30), run: at(0) }
        );
        assert_eq!((unexcused.watt_seconds, unexcused.time), (500.0, at(5)));
    }

    #[test]
    fn what_a_node_that_nobody_can_tell_holds_is_excused_as_far_as_the_others_cannot_make_up_for_it() {
        let mut judge = two(900.0);
        judge.budget(500.0, at(30));
        judge.untold("b", at(50));
        judge.advance(at(40));
        // From the deadline on b has 600 W, and a has 300 W where it could have 200 W.
        assert_eq!(judge.verdict().0.watt_seconds, 1000.0);
        judge.holds("a", MachinePart::Cpu, 200.0);
        judge.advance(at(60));
        assert_eq!(judge.verdict().0.watt_seconds, 1000.0 + 3000.0);
    }

    #[test]
    fn a_deadline_that_is_put_off_begins_anew_once() {
        let mut judge = two(900.0);
        judge.budget(800.0, at(30));
        judge.put_off(None);
        judge.advance(at(40));
        judge.put_off(Some(at(60)));
        judge.put_off(Some(at(99)));
        judge.advance(at(61));
        assert_eq!(judge.verdict().0.watt_seconds, 100.0);
    }

    #[test]
    fn a_node_that_nobody_can_tell_excuses_no_raise_of_another() {
        let mut judge = two(900.0);
        judge.untold("b", at(50));
        judge.holds("a", MachinePart::Cpu, 400.0);
        judge.advance(at(1));
        assert_eq!(judge.verdict().0.watt_seconds, 100.0);
    }

    #[test]
    fn room_is_made_for_a_machine_that_has_booted_and_says_nothing() {
        let mut judge = two(700.0);
        judge.holds("a", MachinePart::Cpu, 0.0);
        judge.advance(at(10));
        judge.holds("a", MachinePart::Cpu, 400.0);
        judge.booted(("a", MachinePart::Cpu), 50.0, at(40));
        judge.advance(at(40));
        // It counts 50 W as long as the others need not have made room.
        assert_eq!(judge.verdict().0.watt_seconds, 0.0);
        judge.advance(at(41));
        // b has 600 W and could have 300 W.
        assert_eq!(judge.verdict().0.watt_seconds, 300.0);
        judge.end(("a", MachinePart::Cpu), Excuse::Reboot);
        judge.holds("b", MachinePart::Gpu, 300.0);
        judge.advance(at(50));
        assert_eq!(judge.verdict().0.watt_seconds, 300.0, "room was made");
    }

    #[test]
    fn what_nobody_can_make_up_for_is_excused_until_the_receipt_is_there() {
        let mut judge = two(400.0);
        judge.booted(("a", MachinePart::Cpu), 50.0, at(0));
        judge.holds("a", MachinePart::Cpu, 400.0);
        judge.holds("b", MachinePart::Gpu, 100.0);
        judge.advance(at(10));
        assert_eq!(judge.verdict().0.watt_seconds, 0.0, "b is as low as it can be");
        judge.end(("a", MachinePart::Cpu), Excuse::Reboot);
        judge.advance(at(11));
        assert_eq!(judge.verdict().0.watt_seconds, 100.0);
    }

    #[test]
    fn no_room_is_due_for_a_booted_machine_while_nobody_can_be_sure_who_leads() {
        let mut judge = two(700.0);
        judge.booted(("a", MachinePart::Cpu), 50.0, at(10));
        judge.put_off(None);
        judge.advance(at(30));
        assert_eq!(judge.verdict().0.watt_seconds, 0.0);
        judge.put_off(Some(at(40)));
        judge.advance(at(41));
        assert_eq!(judge.verdict().0.watt_seconds, 200.0);
    }

    #[test]
    fn a_budget_that_is_raised_excuses_nothing() {
        let mut judge = two(800.0);
        judge.budget(850.0, at(30));
        judge.advance(at(1));
        assert_eq!(judge.verdict().0.watt_seconds, 50.0);
    }
}
