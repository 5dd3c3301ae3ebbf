//! Checks the contract on each backend, with a line for each rule.

use crate::args::Args;
use crate::kits::{HalVisitor, JournalAccess, Kit};
use crate::verdict::Verdict;
use crate::witness::Witness;
use node_kit::{BackendKind, Journal};
use power_hal::contract::{ContractMode, ContractReport, RefusableOriginals, Rule, check};
use power_hal::{Error, ErrorKind, PowerHal};
use std::collections::BTreeSet;
use std::fmt::Display;

/// A run of the contract over all backends.
pub(crate) struct Examine<'a> {
    args: &'a Args,
    verdict: &'a mut Verdict,
    journal: Option<Journal>,
    alive: Box<dyn FnMut() + 'a>,
    /// The hardware that was found, by its names in the table.
    found: BTreeSet<&'static str>,
}

impl<'a> Examine<'a> {
    /// A run that only reads.
    pub(crate) fn looking(args: &'a Args, verdict: &'a mut Verdict) -> Self {
        Self { args, verdict, journal: None, alive: Box::new(|| {}), found: BTreeSet::new() }
    }

    /// A run that lowers limits and puts them back. `alive` is called during long operations.
    pub(crate) fn writing(
        args: &'a Args,
        verdict: &'a mut Verdict,
        journal: Journal,
        alive: impl FnMut() + 'a,
    ) -> Self {
        Self { args, verdict, journal: Some(journal), alive: Box::new(alive), found: BTreeSet::new() }
    }

    /// Checks that required hardware with several backends was found by at least one of them.
    pub(crate) fn end(self) {
        let Self { args, verdict, found, .. } = self;
        let many: BTreeSet<_> = BackendKind::ALL
            .map(|kind| kind.facts().hardware)
            .into_iter()
            .filter(|word| ways(word) > 1)
            .collect();
        for word in many.into_iter().filter(|word| args.requires(word) && !found.contains(word)) {
            verdict.fail(&format!("{word}: required, and in none of the {} ways above", ways(word)));
        }
    }

    fn skip(&mut self, kind: BackendKind, why: &str) {
        let (label, hardware) = (kind.label(), kind.facts().hardware);
        if ways(hardware) == 1 && self.args.requires(hardware) {
            self.verdict.fail(&format!("{label}: {hardware} is required: {why}"));
        } else {
            self.verdict.skip(&format!("{label}: {why}"));
        }
    }

    fn complain(&mut self, kind: BackendKind, said: &[String]) {
        for complaint in said {
            self.skip(kind, &format!("left out: {complaint}"));
        }
    }

    fn contract<H>(&mut self, kit: &Kit<'_, H>, mut hal: H, mode: ContractMode)
    where
        H: PowerHal<Originals = RefusableOriginals<JournalAccess>, Error: Display>,
    {
        let label = kit.kind.label();
        let twin = match (kit.open)(JournalAccess::Closed) {
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

    fn rules(&mut self, label: &str, report: &ContractReport, mode: ContractMode) {
        for rule in Rule::ALL {
            match report.looks(rule) {
                0 => self.verdict.skip(&format!("{label} {rule:?}: {}", why_unseen(rule, mode))),
                looks => self.verdict.pass(&format!("{label} {rule:?}: {rule} [looks: {looks}]")),
            }
        }
        let ContractReport { domains, controls, blocked, in_use, blind, .. } = report;
        self.verdict.tell(&format!(
            "     {label}: {domains} domains; {controls} controls set and put back, {blocked} that nobody may set, \
             {in_use} in use, {blind} unreadable"
        ));
    }
}

impl HalVisitor for Examine<'_> {
    fn on<H>(&mut self, kit: &Kit<'_, H>)
    where
        H: PowerHal<Originals = RefusableOriginals<JournalAccess>, Error: Display>,
    {
        let (book, mode) = match &self.journal {
            None => (JournalAccess::Closed, ContractMode::ReadOnly),
            Some(journal) => (JournalAccess::Of(journal.of(kit.kind)), ContractMode::Lowering),
        };
        (self.alive)();
        let hal = match (kit.open)(book) {
            Ok(hal) => hal,
            Err(error) if error.kind() == ErrorKind::NotSupported => {
                return self.skip(kit.kind, &error.to_string());
            }
            Err(error) => {
                let mut text = format!("{}: opening it: {error}", kit.kind.label());
                if error.kind() == ErrorKind::PermissionDenied {
                    text.push_str(&format!("; it needs {}", kit.kind.facts().access));
                }
                return self.verdict.fail(&text);
            }
        };
        let mut said = (kit.said)(&hal);
        if hal.domains().is_empty() {
            let absent = (kit.absent)(&hal);
            said.retain(|complaint| *complaint != absent);
            self.complain(kit.kind, &said);
            return self.skip(kit.kind, &absent);
        }
        self.complain(kit.kind, &said);
        self.found.insert(kit.kind.facts().hardware);
        self.contract(kit, hal, mode);
        if let Some(journal) = &self.journal {
            journal.of(kit.kind).tidy();
        }
    }

    fn leave(&mut self, kind: BackendKind, why: &str) {
        self.skip(kind, why);
    }
}

/// The number of backends for this hardware.
fn ways(hardware: &str) -> usize {
    BackendKind::ALL.into_iter().filter(|kind| kind.facts().hardware == hardware).count()
}

/// Why a rule was not checked.
fn why_unseen(rule: Rule, mode: ContractMode) -> &'static str {
    match rule {
        Rule::BatchSurvives
        | Rule::SampleSeesOthers
        | Rule::GoneSaid
        | Rule::StaleRefused
        | Rule::KeyFollowsHardware => "its trouble is not brought about on a real machine",
        Rule::ZeroRefused => "a wish of nothing is not put to a real machine",
        Rule::Ordered => "nobody sees the instants between two writes",
        Rule::LockedSaid if mode != ContractMode::ReadOnly => "nothing is locked",
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
            if mode == ContractMode::ReadOnly {
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
        | Rule::MeterForward
        | Rule::StatePossible => "no domain could be read",
    }
}
