//! Restores every original.

use super::OpenNode;
use crate::time::Deadline;
use crate::{Desire, JournalEntry};
use std::time::Duration;

/// What could not be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The entries that the journal still holds.
    pub entries: Vec<JournalEntry>,
}

impl OpenNode {
    /// Restores every original in the journal, and returns what is left after `wait`: for hardware that is gone, or
    /// that refuses. The rest stays in the journal, and this can be called again.
    ///
    /// # Errors
    /// When something is left.
    pub fn restore(&mut self, wait: Duration) -> Result<(), Left> {
        self.handle().desire(Desire::GONE);
        self.wait_for_backends(wait);
        let until = Deadline::after(wait);
        let pause = self.time.lasting(self.config.period).min(Duration::from_millis(200));
        let is_done = |node: &Self| node.journal.is_empty() && !node.journal.is_behind();
        while !is_done(self) && !until.is_over() {
            self.period();
            self.settle_within(pause);
            self.journal.tidy();
            if !is_done(self) {
                // No wakeup comes while the hardware refuses, so this is a wait between two attempts.
                self.wakeup.wait(self.wakeup.count(), Deadline::after(pause));
            }
        }
        let entries = self.journal.entries();
        if entries.is_empty() && !self.journal.is_behind() { Ok(()) } else { Err(Left { entries }) }
    }
}
