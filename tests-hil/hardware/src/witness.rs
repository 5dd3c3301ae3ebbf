//! The contract's view of a real machine: a second HAL that sees the limits in force, real time, and a restart.

use crate::kits::JournalAccess;
use power_hal::contract::{ContractWorld, RefusableOriginals, SecondHal};
use power_hal::{Control, Key, PowerHal, Setting};
use power_units::Micros;
use std::time::Duration;

/// A function that waits.
type Wait = fn(Micros);

/// The world.
pub(crate) struct Witness<'a, H: PowerHal> {
    twin: SecondHal<H, Wait>,
    open: &'a dyn Fn(JournalAccess) -> Result<H, H::Error>,
    alive: &'a mut dyn FnMut(),
    restarts: u32,
}

/// A restart opens every domain again, and a machine has hundreds of them, so only this many restarts are made.
const RESTARTS: u32 = 8;

impl<'a, H: PowerHal> Witness<'a, H> {
    /// A world that observes through `hal`. `alive` is called during long operations.
    pub(crate) fn new(
        hal: H,
        open: &'a dyn Fn(JournalAccess) -> Result<H, H::Error>,
        alive: &'a mut dyn FnMut(),
    ) -> Self {
        Self {
            twin: SecondHal::new(hal, |span| pause(Duration::from_micros(span.get()))),
            open,
            alive,
            restarts: 0,
        }
    }
}

impl<H: PowerHal<Originals = RefusableOriginals<JournalAccess>>> ContractWorld<H> for Witness<'_, H> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        (self.alive)();
        ContractWorld::<H>::in_force(&mut self.twin, domain, control)
    }

    fn advance(&mut self, span: Micros) -> bool {
        (self.alive)();
        ContractWorld::<H>::advance(&mut self.twin, span)
    }

    fn restart(&mut self, hal: &mut H) -> bool {
        if self.restarts >= RESTARTS {
            return false;
        }
        self.restarts += 1;
        let book = hal.originals().inner().clone();
        match (self.open)(book) {
            Ok(another) => {
                *hal = another;
                true
            }
            Err(_) => false,
        }
    }
}

/// Waits in real time.
#[expect(clippy::disallowed_methods, reason = "the program has no event loop")]
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}
