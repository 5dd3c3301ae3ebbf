//! The contract on each way to power hardware, a line for each rule.

use crate::args::{Args, Hardware};
use crate::kits::{Book, Deed, Kit};
use crate::verdict::Verdict;
use crate::witness::Witness;
use node_kit::{BackendKind, Journal};
use power_hal::contract::{Ledger, Mode, Report, Rule, check};
use power_hal::{Error, ErrorKind, PowerHal};
use std::fmt::Display;

/// A run of the contract over the ways.
pub(crate) struct Examine<'a> {
    args: &'a Args,
    verdict: &'a mut Verdict,
    journal: Option<Journal>,
    alive: Box<dyn FnMut() + 'a>,
    found: Vec<Hardware>,
}

impl<'a> Examine<'a> {
    /// It reads only.
    pub(crate) fn looking(args: &'a Args, verdict: &'a mut Verdict) -> Self {
        Self { args, verdict, journal: None, alive: Box::new(|| {}), found: Vec::new() }
    }

    /// It lowers and puts back; `alive` is called as long as something goes on.
    pub(crate) fn writing(
        args: &'a Args,
        verdict: &'a mut Verdict,
        journal: Journal,
        alive: impl FnMut() + 'a,
    ) -> Self {
        Self { args, verdict, journal: Some(journal), alive: Box::new(alive), found: Vec::new() }
    }

    /// Holds that what is required and can be reached in several ways was found in one of them.
    pub(crate) fn end(self) {
        let Self { args, verdict, found, .. } = self;
        if args.requires(Hardware::Amd) && !found.contains(&Hardware::Amd) {
            verdict.fail("amd: required, and in none of the four ways above");
        }
    }

    fn skip(&mut self, kind: BackendKind, why: &str) {
        let hardware = Hardware::of(kind);
        let label = kind.label();
        if hardware != Hardware::Amd && self.args.requires(hardware) {
            self.verdict.fail(&format!("{label}: {} is required: {why}", hardware.word()));
        } else {
            self.verdict.skip(&format!("{label}: {why}"));
        }
    }

    fn complain(&mut self, kind: BackendKind, said: &[String]) {
        for complaint in said {
            self.skip(kind, &format!("left out: {complaint}"));
        }
    }

    fn contract<H>(&mut self, kit: &Kit<'_, H>, mut hal: H, mode: Mode)
    where
        H: PowerHal<Originals = Ledger<Book>, Error: Display>,
    {
        let label = kit.kind.label();
        let twin = match (kit.open)(Book::Closed) {
            Ok(twin) => twin,
            Err(error) => return self.verdict.fail(&format!("{label}: opening it a second time: {error}")),
        };
        let mut world = Witness::new(twin, kit.open, &mut *self.alive);
        let outcome = check(&mut hal, &mut world, mode);
        match outcome {
            Ok(report) => self.rules(label, &report, mode),
            Err(breach) => {
                self.verdict.fail(&format!("{label} {breach}"));
                self.verdict.skip(&format!("{label}: the rules after this breach"));
            }
        }
    }

    fn rules(&mut self, label: &str, report: &Report, mode: Mode) {
        for rule in Rule::ALL {
            match report.looks(rule) {
                0 => self.verdict.skip(&format!("{label} {rule:?}: {}", why_unseen(rule, mode))),
                looks => self.verdict.pass(&format!("{label} {rule:?}: {rule} [looks: {looks}]")),
            }
        }
        let Report { domains, controls, blocked, in_use, blind, .. } = report;
        self.verdict.tell(&format!(
            "     {label}: {domains} domains; {controls} controls set and put back, {blocked} that nobody may set, \
             {in_use} in use, {blind} unreadable"
        ));
    }
}

impl Deed for Examine<'_> {
    fn on<H>(&mut self, kit: &Kit<'_, H>)
    where
        H: PowerHal<Originals = Ledger<Book>, Error: Display>,
    {
        let (book, mode) = match &self.journal {
            None => (Book::Closed, Mode::ReadOnly),
            Some(journal) => (Book::Of(journal.of(kit.kind)), Mode::Lowering),
        };
        (self.alive)();
        let hal = match (kit.open)(book) {
            Ok(hal) => hal,
            Err(error) if error.kind() == ErrorKind::NotSupported => {
                return self.skip(kit.kind, &error.to_string());
            }
            Err(error) => {
                return self.verdict.fail(&format!("{}: opening it: {error}", kit.kind.label()));
            }
        };
        self.complain(kit.kind, &(kit.said)(&hal));
        if hal.domains().is_empty() {
            return self.skip(kit.kind, &(kit.absent)(&hal));
        }
        self.found.push(Hardware::of(kit.kind));
        self.contract(kit, hal, mode);
        if let Some(journal) = &self.journal {
            journal.of(kit.kind).tidy();
        }
    }

    fn leave(&mut self, kind: BackendKind, why: &str) {
        self.skip(kind, why);
    }
}

/// Why nothing was seen of a rule.
fn why_unseen(rule: Rule, mode: Mode) -> &'static str {
    match rule {
        Rule::BatchSurvives
        | Rule::SampleSeesOthers
        | Rule::GoneSaid
        | Rule::StaleRefused
        | Rule::KeyFollowsHardware => "its trouble is not brought about on a real machine",
        Rule::ZeroRefused => "a wish of nothing is not put to a real machine",
        Rule::Ordered => "nobody sees the instants between two writes",
        Rule::LockedSaid if mode != Mode::ReadOnly => "nothing is locked",
        Rule::LockedSaid
        | Rule::LackingRefused
        | Rule::UntouchedRelease
        | Rule::SavedFirst
        | Rule::SavedOnce
        | Rule::Applies
        | Rule::Clamped
        | Rule::ReadBack
        | Rule::Reported
        | Rule::Repeatable
        | Rule::OthersUntouched
        | Rule::Restored
        | Rule::ReleasedTwice
        | Rule::RestartRestores => {
            if mode == Mode::ReadOnly {
                "nothing is set without --write"
            } else {
                "no control could be set"
            }
        }
        Rule::Describes
        | Rule::KeysUnique
        | Rule::DescribeStable
        | Rule::SampleComplete
        | Rule::SampleStamped
        | Rule::MeterForward => "no domain could be read",
    }
}
