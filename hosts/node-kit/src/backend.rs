//! The table of hardware: every HAL of a node, with the facts that each host needs.
//!
//! A row is a type in [`rows`] that implements [`HalRow`]; `table!` below lists them. Discovery ([`Wanted`]), `joulie
//! node`, `hil` and the agent's reports read this table and have no list of HALs of their own. docs/ADDING_A_HAL.md
//! describes how to add a row.

mod rows;

use crate::cards::{CardFacts, Cards};
use crate::driver::{Asks, Device, Driver, DriverError};
use crate::journal::JournalShare;
use crate::uses::{ControlGroups, GpuUseFiles, ProcessUses};
use crate::{HardwareSources, NodeAccess, RegisterAccess, Time};
use power_hal::{ErrorType, Original, Originals, PowerHal, Setting};
use std::fmt::Display;

/// What a HAL caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalTarget {
    /// The power of packages or sockets.
    Package,
    /// The frequency of policies.
    Policy,
    /// The power of GPUs.
    Gpu,
}

impl HalTarget {
    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Policy => "policy",
            Self::Gpu => "GPU",
        }
    }
}

/// What hosts say of a HAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalFacts {
    /// Its name in the journal, in metric labels and in what `joulie node` and `hil` print. It never changes: a journal
    /// of an earlier version is read by it.
    pub label: &'static str,
    /// What it is, in a few words for help texts.
    pub what: &'static str,
    /// What it caps.
    pub caps: HalTarget,
    /// Who made the GPUs, as NodeHardware names them; none where it caps no GPUs.
    pub vendor: Option<&'static str>,
    /// The word `backend` of a status where it holds a cap, and the source of measured power.
    pub class: &'static str,
    /// What `hil --require` calls it; several HALs may reach the same hardware.
    pub hardware: &'static str,
    /// What a process needs to set its limits.
    pub access: &'static str,
    /// Why it is used only where the configuration says so.
    pub opt_in: Option<&'static str>,
}

/// A HAL in the table.
pub trait HalRow {
    /// The facts for hosts.
    const FACTS: HalFacts;

    /// The HAL, with the journal for its originals.
    type Hal<O: Originals + Send + 'static>: PowerHal<Originals = O, Error: Display> + Send + 'static;

    /// Opens it. For absent hardware it returns a HAL without domains.
    ///
    /// # Errors
    /// The HAL's errors.
    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        access: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, <Self::Hal<O> as ErrorType>::Error>;

    /// The problems of its last enumeration.
    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String>;

    /// What its GPUs are apart from their power; `None` if it caps no GPUs. A list without complaints is complete.
    fn cards<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Option<Cards> {
        let listed = || hal.domains().iter().map(|(_, domain)| CardFacts::of(*domain.key())).collect();
        (Self::FACTS.caps == HalTarget::Gpu).then(|| Cards {
            list: listed(),
            complete: Self::complaints(hal).is_empty(),
            answered: true,
        })
    }

    /// Which processes used its GPUs since the last call, by its own means or by the kernel's files. A GPU of which it cannot
    /// say that is not in it.
    fn processes<O: Originals + Send + 'static>(
        hal: &mut Self::Hal<O>,
        files: &mut GpuUseFiles,
    ) -> Vec<ProcessUses> {
        let _cannot_tell = (hal, files);
        Vec::new()
    }

    /// The setting in an original that was saved while its reading failed, if a single value says it.
    fn was(original: &Original) -> Option<Setting> {
        let _has_more_values = original;
        None
    }

    /// What was searched for, if it has no domains.
    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, hal: &Self::Hal<O>) -> String;
}

/// An operation on any row.
pub trait Visit {
    /// Its result.
    type Out;

    /// Runs it.
    fn row<R: HalRow>(self, kind: BackendKind) -> Self::Out;
}

macro_rules! table {
    ($($(#[$doc:meta])* $kind:ident,)+) => {
        /// A way to access hardware. Each has its own thread, and no device is accessed by two.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum BackendKind {
            $($(#[$doc])* $kind,)+
        }

        impl BackendKind {
            const COUNT: usize = [$(Self::$kind),+].len();

            /// Every backend.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$kind),+];

            /// The facts for hosts.
            #[must_use]
            pub const fn facts(self) -> &'static HalFacts {
                match self {
                    $(Self::$kind => &<rows::$kind as HalRow>::FACTS,)+
                }
            }

            /// Runs an operation on its row.
            pub fn visit<V: Visit>(self, visit: V) -> V::Out {
                match self {
                    $(Self::$kind => visit.row::<rows::$kind>(self),)+
                }
            }
        }
    };
}

table! {
    /// RAPL through the kernel's powercap files.
    Powercap,
    /// RAPL through model-specific registers; opt-in.
    Msr,
    /// Frequency policies.
    Cpufreq,
    /// EPYC sockets through hwmon.
    AmdSocket,
    /// EPYC sockets through their mailbox, if they are not in hwmon.
    Hsmp,
    /// NVIDIA GPUs.
    Nvidia,
    /// AMD GPUs through hwmon.
    AmdGpu,
    /// AMD GPUs through ROCm SMI, if they are not in hwmon.
    Rocm,
    /// Intel GPUs through hwmon.
    Intel,
}

impl BackendKind {
    /// The label for metrics and the journal.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.facts().label
    }

    /// The backend with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }

    /// The setting in an original, if a single value says it.
    pub(crate) fn was(self, original: &Original) -> Option<Setting> {
        self.visit(Was(original))
    }

    /// Whether a node opens it; an opt-in backend only if the sources allow it.
    pub(crate) fn is_wanted(self, sources: &HardwareSources) -> bool {
        self.facts().opt_in.is_none() || sources.registers != RegisterAccess::Off
    }
}

/// A backend to be opened.
pub(crate) struct Wanted {
    pub(crate) kind: BackendKind,
    pub(crate) sources: HardwareSources,
    pub(crate) access: NodeAccess,
    /// Whether it tells which control groups use its GPUs.
    pub(crate) tells_uses: bool,
}

impl Wanted {
    /// Opens it. For absent hardware it returns a device without domains.
    pub(crate) fn open(&self, time: &Time, share: JournalShare) -> Result<Box<dyn Device>, DriverError> {
        self.kind.visit(Opening { wanted: self, time: time.clone(), share })
    }
}

/// The setting in an original.
struct Was<'a>(&'a Original);

impl Visit for Was<'_> {
    type Out = Option<Setting>;

    fn row<R: HalRow>(self, _: BackendKind) -> Self::Out {
        R::was(self.0)
    }
}

struct Opening<'a> {
    wanted: &'a Wanted,
    time: Time,
    share: JournalShare,
}

impl Visit for Opening<'_> {
    type Out = Result<Box<dyn Device>, DriverError>;

    fn row<R: HalRow>(self, _: BackendKind) -> Self::Out {
        let Wanted { sources, access, tells_uses, .. } = self.wanted;
        let asked = *tells_uses && R::FACTS.caps == HalTarget::Gpu;
        let groups = asked.then(|| ControlGroups::below(sources.root.clone(), self.time.clone()));
        let hal = R::open(sources, *access, self.time, self.share.clone()).map_err(DriverError::of)?;
        let complaints: fn(&R::Hal<JournalShare>) -> Vec<String> = R::complaints::<JournalShare>;
        let cards: fn(&R::Hal<JournalShare>) -> Option<Cards> = R::cards::<JournalShare>;
        let processes: fn(&mut R::Hal<JournalShare>, &mut GpuUseFiles) -> Vec<ProcessUses> =
            R::processes::<JournalShare>;
        Ok(Box::new(Driver::new(hal, self.share, Asks { complaints, cards, processes }, groups)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn labels_are_unique_and_lead_back_to_their_rows() {
        let labels: BTreeSet<_> = BackendKind::ALL.map(BackendKind::label).into();
        assert_eq!(labels.len(), BackendKind::ALL.len());
        for kind in BackendKind::ALL {
            assert_eq!(BackendKind::from_label(kind.label()), Some(kind));
            let facts = kind.facts();
            assert_eq!(facts.caps == HalTarget::Gpu, facts.vendor.is_some(), "{}", facts.label);
        }
    }

    /// The guide lists all rows.
    #[test]
    fn the_guide_shows_this_table() {
        let guide = include_str!("../../../docs/ADDING_A_HAL.md");
        for kind in BackendKind::ALL {
            let HalFacts { label, caps, vendor, class, hardware, access, .. } = kind.facts();
            let (caps, vendor) = (caps.word(), vendor.unwrap_or("–"));
            let row = format!("| `{label}` | {caps} | {vendor} | `{class}` | `{hardware}` | {access} |");
            assert!(guide.contains(&row), "docs/ADDING_A_HAL.md lacks the row\n{row}");
        }
        let rows = guide.lines().filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 5);
        assert_eq!(rows.count(), BackendKind::ALL.len(), "docs/ADDING_A_HAL.md has a row that is gone");
    }
}
