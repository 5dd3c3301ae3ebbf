//! The restorer: puts back the originals in the journal, and does nothing else.

use crate::args::Args;
use crate::guardian::Mark;
use crate::kits::{self, HalVisitor, JournalAccess, Kit};
use crate::verdict::Verdict;
use crate::witness::pause;
use crate::worker::journal;
use node_kit::{Journal, JournalEntry};
use power_hal::PowerHal;
use power_hal::contract::RefusableOriginals;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Several attempts, because a missing device may come back and a busy driver may become free.
const TRIES: u32 = 5;
const BETWEEN: Duration = Duration::from_secs(1);

/// Runs the restorer.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut verdict = Verdict::new(std::io::stdout());
    let journal = match journal(args) {
        Ok(journal) => journal,
        Err(error) => {
            verdict.fail(&format!("restore: {error}"));
            return ExitCode::FAILURE;
        }
    };
    for at in 0..TRIES {
        if at > 0 {
            pause(BETWEEN);
        }
        let kinds: BTreeSet<_> = journal.entries().iter().map(|entry| entry.backend).collect();
        for kind in kinds {
            kits::one(args, kind, &mut Restore { journal: &journal, verdict: &mut verdict });
        }
        if journal.is_empty() && !journal.is_behind() {
            Mark::of(args).remove();
            return ExitCode::SUCCESS;
        }
    }
    for entry in journal.entries() {
        verdict.fail(&format!("restore: {} is not back; `joulie node restore` tries again", shown(&entry)));
    }
    ExitCode::FAILURE
}

/// Like [`run`], but without a guardian: reports the result to a person. It does so only at its end, because a
/// terminal may stop a background process that writes to it.
pub(crate) fn inherit(args: &Args) -> ExitCode {
    let held = journal(args).map_or(0, |journal| journal.len());
    let outcome = run(args);
    let left =
        journal(args).map_or_else(|error| error.to_string(), |journal| format!("{} are not", journal.len()));
    let _nobody_reads = writeln!(
        std::io::stderr(),
        "hil: the guardian is gone; of {held} originals in {}, {left} back",
        args.state.display()
    );
    outcome
}

struct Restore<'a> {
    journal: &'a Journal,
    verdict: &'a mut Verdict,
}

impl HalVisitor for Restore<'_> {
    fn on<H>(&mut self, kit: &Kit<'_, H>)
    where
        H: PowerHal<Originals = RefusableOriginals<JournalAccess>, Error: Display>,
    {
        let share = self.journal.of(kit.kind);
        let mut hal = match (kit.open)(JournalAccess::Of(share.clone())) {
            Ok(hal) => hal,
            Err(error) => return self.verdict.tell(&format!("     restore: {error}")),
        };
        for entry in self.journal.entries().iter().filter(|entry| entry.backend == kit.kind) {
            let Some(handle) = hal.domains().find(&entry.domain) else {
                self.verdict.tell(&format!("     restore: {} is not there now", shown(entry)));
                continue;
            };
            match hal.release(handle) {
                Ok(_) => self.verdict.pass(&format!("restore: {} is back", shown(entry))),
                Err(error) => self.verdict.tell(&format!("     restore: {}: {error}", shown(entry))),
            }
        }
        share.tidy();
    }
}

fn shown(entry: &JournalEntry) -> String {
    format!("{} of {} by {}", entry.control.label(), entry.domain, entry.backend.label())
}
