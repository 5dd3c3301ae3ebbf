//! The rules by name, the report of a breach, and the report of a run.

use crate::{ErrorKind, Key, Setting};
use core::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident: $sentence:literal,)*) => {
        /// The rules that the contract executes. Closed: a caller that lists them meets a new one at the build.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[$doc])* #[doc = $sentence] $name,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: [Self; COUNT] = [$(Self::$name),*];

            /// The rule as a sentence.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }

        const COUNT: usize = [$($sentence),*].len();
    };
}

rules! {
    Describes: "Listing the domains succeeds, with an empty list where the hardware is absent.",
    KeysUnique: "No two domains have the same key.",
    DescribeStable: "Listing the domains twice gives the same list, and its handles stay valid.",
    SampleComplete: "A sample answers for everything that its domain has, and for nothing else.",
    SampleStamped: "A sample is stamped with a time that never goes backwards.",
    MeterForward: "A meter never goes backwards, except by its wrap, and never gives an impossible value.",
    StatePossible: "What a domain reports of its state is possible, and the time for which its limit held it never shrinks.",
    BatchSurvives: "A domain that cannot be read reports that, and leaves the others of the batch readable.",
    SampleSeesOthers: "A sample shows the limit that is in force, whoever set it.",
    LackingRefused: "A setting that a domain does not have is not supported, and changes nothing.",
    ZeroRefused: "A limit of zero or below is out of range, and changes nothing.",
    UntouchedRelease: "Releasing a domain that was never touched changes nothing.",
    SavedFirst: "The original is saved before the first write; when it cannot be saved, nothing is written.",
    SavedOnce: "The saved original is what was in force before the first write, and stays that.",
    Applies: "A setting inside the range is applied.",
    Clamped: "A setting outside the range is clamped to the range before it is written.",
    ReadBack: "What is reported as effective is what is in force.",
    Reported: "What is reported as requested is what was asked, and a difference is called one.",
    Repeatable: "Applying the same setting twice is the same as once.",
    OthersUntouched: "No other domain changes.",
    Ordered: "No instant is above both the old and the new limits.",
    Restored: "Releasing restores exactly what was in force before the first write, and removes the saved original.",
    ReleasedTwice: "Releasing twice is harmless.",
    RestartRestores: "A restart finds its originals in the journal, and releases to them, not to what it found.",
    LockedSaid: "A locked limit is reported as locked, and does not change.",
    GoneSaid: "A domain that vanished is reported as gone, its original stays saved, and it returns under its key.",
    StaleRefused: "A handle of an earlier list never reaches another domain.",
    KeyFollowsHardware: "A key names the same hardware after the kernel has renumbered it.",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// A rule that a HAL broke, and at which domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractBreach {
    /// Which rule.
    pub rule: Rule,
    /// At which domain; `None` if the rule is about the whole list.
    pub domain: Option<Key>,
    /// What was asked, if a setting was asked.
    pub asked: Option<Setting>,
    /// What was in force, or reported, instead.
    pub found: Option<Setting>,
    /// The error of the HAL, if it failed.
    pub error: Option<ErrorKind>,
}

impl ContractBreach {
    pub(super) const fn of(rule: Rule) -> Self {
        Self { rule, domain: None, asked: None, found: None, error: None }
    }

    pub(super) const fn at(rule: Rule, domain: &Key) -> Self {
        Self { domain: Some(*domain), ..Self::of(rule) }
    }

    pub(super) const fn asked(self, asked: Setting) -> Self {
        Self { asked: Some(asked), ..self }
    }

    pub(super) const fn found(self, found: Option<Setting>) -> Self {
        Self { found, ..self }
    }

    pub(super) const fn error(self, error: Option<ErrorKind>) -> Self {
        Self { error, ..self }
    }

    /// This breach as an error, unless the rule was kept.
    pub(super) const fn unless(self, kept: bool) -> Result<(), Self> {
        if kept { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for ContractBreach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {:?}", self.rule)?;
        if let Some(domain) = &self.domain {
            write!(f, " at {domain}")?;
        }
        if let Some(asked) = self.asked {
            write!(f, ", asked {asked:?}")?;
        }
        if let Some(found) = self.found {
            write!(f, ", found {found:?}")?;
        }
        if let Some(error) = self.error {
            write!(f, ", failed with {error:?}")?;
        }
        write!(f, ": {}", self.rule)
    }
}

impl core::error::Error for ContractBreach {}

/// What a run without a breach has checked. A run without checks is no proof: see [`ContractReport::unseen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractReport {
    /// How many domains were described.
    pub domains: u32,
    /// How many controls were set and released.
    pub controls: u32,
    /// How many controls could not be set on this machine (locked, not permitted, busy); the HAL reported that
    /// and changed nothing.
    pub blocked: u32,
    /// How many controls were skipped because the journal holds their original: they are in use.
    pub in_use: u32,
    /// How many controls were skipped because their state could not be read.
    pub blind: u32,
    looks: [u32; COUNT],
}

impl ContractReport {
    pub(super) const EMPTY: Self =
        Self { domains: 0, controls: 0, blocked: 0, in_use: 0, blind: 0, looks: [0; COUNT] };

    pub(super) fn look(&mut self, rule: Rule) {
        for (known, looks) in Rule::ALL.iter().zip(&mut self.looks) {
            if *known == rule {
                *looks = looks.saturating_add(1);
            }
        }
    }

    /// How often a rule was checked.
    #[must_use]
    pub fn looks(&self, rule: Rule) -> u32 {
        Rule::ALL.iter().zip(self.looks).find(|(known, _)| **known == rule).map_or(0, |(_, looks)| looks)
    }

    /// The rules that were not checked, because the mode, the domains or the world did not allow it.
    pub fn unseen(&self) -> impl Iterator<Item = Rule> + '_ {
        Rule::ALL.iter().zip(self.looks).filter(|(_, looks)| *looks == 0).map(|(rule, _)| *rule)
    }
}
