//! The contract of the port, as code. It runs unchanged on the mock, on a plain tree of files, on virtual hardware and
//! on real machines; what differs is the [`World`] behind the HAL and the [`Mode`].
//!
//! The rules are the variants of [`Rule`]. A run stops at the first [`Breach`]; a run without one gives a [`Report`]
//! of what it could look at, because a run that saw nothing proves nothing.
//!
//! ```
//! use power_hal::contract::{Ledger, Mode, Rule, check};
//! use power_hal::mock::{Ground, Mock, Plot};
//! use power_hal::{Domain, Limit, Memory, Span};
//! use power_units::MicroWatts;
//!
//! let w = |watts: u64| MicroWatts::new(watts * 1_000_000);
//! let limit = Limit::new(Span { floor: w(1), ceiling: w(4_000) }, MicroWatts::new(125_000))?;
//! let package = |n| Plot::new(Domain::package(n, None).with_power(limit));
//! let ground = Ground::new([package(0), package(1)]);
//! let mut hal = Mock::open(&ground, Ledger::new(Memory::<4>::new()));
//!
//! let report = check(&mut hal, &mut &ground, Mode::Full)?;
//! assert_eq!((report.domains, report.controls, report.blocked), (2, 2, 0));
//! assert!(report.looks(Rule::Restored) > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On a real machine the world is a second HAL and a way to wait ([`Twin`]), and the mode is [`Mode::ReadOnly`], which
//! writes nothing, or [`Mode::Lowering`], which raises nothing. Every run leaves what it touched as it found it, as far
//! as the HAL under test can.

mod listing;
mod rule;
mod session;
mod setting;
mod trouble;
mod wishes;
mod world;

pub use rule::{Breach, Report, Rule};
pub use world::{Instants, Ledger, Limits, Opaque, Trouble, Twin, World};

use crate::{Originals, PowerHal};
use session::Session;

/// How far a run may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Describe and sample; write nothing, ask for nothing.
    ReadOnly,
    /// Set limits inside the range and not above what is in force, and release them. For real machines: a HAL that is
    /// wrong about its range is not asked for more than there is, nor for nothing.
    Lowering,
    /// Everything.
    Full,
}

/// Runs the contract. The HAL must have been opened with a [`Ledger`] around its journal.
///
/// # Errors
/// The first rule that the HAL broke. Every domain has then been released, as far as such a HAL can.
pub fn check<J, H, W>(hal: &mut H, world: &mut W, mode: Mode) -> Result<Report, Breach>
where
    J: Originals,
    H: PowerHal<Originals = Ledger<J>>,
    W: World<H>,
{
    let mut session = Session { hal, world, mode, report: Report::EMPTY };
    let outcome = run(&mut session);
    if outcome.is_err() && mode != Mode::ReadOnly {
        let s = &mut session;
        s.hal.originals().refuse(false);
        let mut last = None;
        while let Some(target) = s.after(last) {
            // The breach is the news; what a broken HAL says of its release is not.
            let _released = s.release(&target);
            last = Some(*target.key());
        }
    }
    outcome.map(|()| session.report)
}

fn run<J, H, W>(s: &mut Session<'_, H, W>) -> Result<(), Breach>
where
    J: Originals,
    H: PowerHal<Originals = Ledger<J>>,
    W: World<H>,
{
    let mode = s.mode;
    listing::check_list(s)?;
    let mut last = None;
    while let Some(target) = s.after(last) {
        listing::check_sample(s, &target)?;
        last = Some(*target.key());
    }
    if mode == Mode::ReadOnly {
        return Ok(());
    }
    let mut last = None;
    while let Some(target) = s.after(last) {
        setting::check(s, &target)?;
        last = Some(*target.key());
    }
    let mut last = None;
    while let Some(target) = s.after(last).filter(|_| mode == Mode::Full) {
        trouble::check(s, &target)?;
        last = Some(*target.key());
    }
    if mode == Mode::Full {
        trouble::check_renumbered(s)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
