//! Where a node is between awake and asleep, by the word in its mark. What follows from it the operator decides; the extender
//! asks only whether a node comes back for a pod.

/// Where a node is between awake and asleep. Without a mark it is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SleepPhase {
    /// It takes no pods any more, and it is looked whether one is still coming.
    Closing,
    /// It is being switched off.
    Stopping,
    /// It is off.
    Asleep,
    /// It is to be woken, and power is being made free for it.
    Waking,
    /// It is being switched on.
    Starting,
    /// It did not do what it was told, and is left to people.
    Left,
}

impl SleepPhase {
    /// All phases.
    pub const ALL: [Self; 6] =
        [Self::Closing, Self::Stopping, Self::Asleep, Self::Waking, Self::Starting, Self::Left];

    /// Its word in the mark.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Closing => "closing",
            Self::Stopping => "stopping",
            Self::Asleep => "asleep",
            Self::Waking => "waking",
            Self::Starting => "starting",
            Self::Left => "left",
        }
    }

    /// The phase of a word.
    #[must_use]
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.word() == word)
    }

    /// Whether the operator brings the node back when a pod needs it.
    #[must_use]
    pub const fn comes_back(self) -> bool {
        match self {
            Self::Closing | Self::Stopping | Self::Asleep | Self::Waking | Self::Starting => true,
            Self::Left => false,
        }
    }

    /// What it means, for people.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Closing => {
                "it takes no pods any more, and is switched off if none is still on its way to it"
            }
            Self::Stopping => {
                "it is being switched off; if that is not wanted any more, it takes pods again once no order to do so can be under way"
            }
            Self::Asleep => "it is off, and is woken for a pod that waits if the limits above it have room",
            Self::Waking => "it is to be woken, and the nodes under its limits make room for it first",
            Self::Starting => "it is being switched on",
            Self::Left => {
                "it did not do what it was told, and waits for a person; it takes pods again once it is there"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_its_word_and_no_other_word_is_one() {
        for phase in SleepPhase::ALL {
            assert_eq!(SleepPhase::read(phase.word()), Some(phase));
        }
        for bad in ["", "Asleep", "asleep ", "dreams"] {
            assert_eq!(SleepPhase::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_what_is_left_to_people_does_not_come_back() {
        let all = SleepPhase::ALL.map(SleepPhase::comes_back);
        assert_eq!(all, [true, true, true, true, true, false]);
    }
}
