//! All current limits of the machine, for a comparison with later ones.

use crate::args::Args;
use crate::kits::{self, HalVisitor, JournalAccess, Kit};
use crate::verdict::Verdict;
use node_kit::BackendKind;
use power_hal::contract::RefusableOriginals;
use power_hal::{Control, Error, ErrorKind, Key, Original, PowerHal};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The limits. For a limit that cannot be read the error is kept.
#[derive(Default)]
pub(crate) struct Limits(BTreeMap<(BackendKind, Key, &'static str), Result<Original, ErrorKind>>);

impl Limits {
    /// Reads the limits through HALs that are opened for this purpose and write nothing.
    pub(crate) fn of(args: &Args) -> Self {
        let mut limits = Self::default();
        kits::each(args, &mut limits);
        limits
    }

    /// Checks that the limits have not changed.
    pub(crate) fn hold(&self, now: &Self, verdict: &mut Verdict) {
        let mut changed = 0;
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(now.0.keys()).collect();
        for name in names {
            let (before, after) = (self.0.get(name), now.0.get(name));
            if before != after {
                changed += 1;
                let (kind, key, control) = name;
                verdict.fail(&format!(
                    "limits: {control} of {key} by {} was {}, is {}; another writer may have set it, see above",
                    kind.label(),
                    shown(before),
                    shown(after)
                ));
            }
        }
        if self.0.is_empty() && changed == 0 {
            verdict.skip("limits: this machine has none that could have changed");
        } else if changed == 0 {
            verdict.pass(&format!("limits: all {} are as they were", self.0.len()));
        }
    }
}

fn shown(limit: Option<&Result<Original, ErrorKind>>) -> String {
    match limit {
        None => "absent".to_owned(),
        Some(Ok(original)) => format!("{:?}", original.words()),
        Some(Err(kind)) => kind.label().to_owned(),
    }
}

impl HalVisitor for Limits {
    fn on<H>(&mut self, kit: &Kit<'_, H>)
    where
        H: PowerHal<Originals = RefusableOriginals<JournalAccess>, Error: Display>,
    {
        // A backend that cannot be opened has no limits, and the run itself reports it.
        let Ok(mut hal) = (kit.open)(JournalAccess::Closed) else { return };
        let list: Vec<_> = hal.domains().iter().map(|(handle, domain)| (handle, *domain)).collect();
        for (handle, domain) in list {
            for control in Control::ALL.into_iter().filter(|&control| domain.has(control)) {
                let saved = hal.save(handle, control).map_err(|error| error.kind());
                self.0.insert((kit.kind, *domain.key(), control.label()), saved);
            }
        }
    }
}
