//! The contract of the port, as code. It runs unchanged on the mock, on a plain tree of files, on virtual hardware and
//! on real machines; what differs is the [`ContractWorld`] behind the HAL and the [`ContractMode`].
//!
//! The rules are the variants of [`Rule`]. A run stops at the first [`ContractBreach`]. A run without one returns a
//! [`ContractReport`] of the checks that it could make, because a run without checks proves nothing.
//!
//! ```
//! use power_hal::contract::{ContractMode, RefusableOriginals, Rule, check};
//! use power_hal::mock::{Mock, MockDevice, MockMachine};
//! use power_hal::{Domain, Limit, OriginalsInMemory, Span};
//! use power_units::MicroWatts;
//!
//! let w = |watts: u64| MicroWatts::new(watts * 1_000_000);
//! let limit = Limit::new(Span { floor: w(1), ceiling: w(4_000) }, MicroWatts::new(125_000))?;
//! let package = |n| MockDevice::new(Domain::package(n, None).with_power(limit));
//! let machine = MockMachine::new([package(0), package(1)]);
//! let mut hal = Mock::open(&machine, RefusableOriginals::new(OriginalsInMemory::<4>::new()));
//!
//! let report = check(&mut hal, &mut &machine, ContractMode::Full)?;
//! assert_eq!((report.domains, report.controls, report.blocked), (2, 2, 0));
//! assert!(report.looks(Rule::Restored) > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On a real machine the world is a second HAL and a way to wait ([`SecondHal`]), and the mode is
//! [`ContractMode::ReadOnly`], which writes nothing, or [`ContractMode::Lowering`], which raises nothing. Every run
//! restores what it changed, as far as the HAL under test can.

mod listing;
mod rule;
mod session;
mod setting;
mod trouble;
mod wishes;
mod world;

pub use rule::{ContractBreach, ContractReport, Rule};
pub use world::{ContractWorld, DomainFault, DomainLimits, Instants, Opaque, RefusableOriginals, SecondHal};

use crate::{Originals, PowerHal};
use session::Session;

/// How much a run may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractMode {
    /// Describe and sample; write nothing.
    ReadOnly,
    /// Set limits inside the range and not above what is in force, and release them. For real machines: if the HAL is
    /// wrong about its range, it is still never asked for more than is in force, nor for zero.
    Lowering,
    /// Everything.
    Full,
}

/// Runs the contract. The HAL must have been opened with a [`RefusableOriginals`] around its journal.
/// Runs the contract. The HAL must have been opened with a [`RefusableOriginals`] around its journal.
/// # Errors
/// The first rule that the HAL broke. Every domain has then been released, as far as that HAL can.
pub fn check<J, H, W>(
    hal: &mut H,
    world: &mut W,
    mode: ContractMode,
) -> Result<ContractReport, ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let mut session = Session { hal, world, mode, report: ContractReport::EMPTY };
    let outcome = run(&mut session);
    if outcome.is_err() && mode != ContractMode::ReadOnly {
        let s = &mut session;
        s.hal.originals().refuse(false);
        let mut last = None;
        while let Some(target) = s.after(last) {
            // The breach is what counts; the result of a broken HAL's release does not.
            let _released = s.release(&target);
            last = Some(*target.key());
        }
    }
    outcome.map(|()| session.report)
}

fn run<J, H, W>(s: &mut Session<'_, H, W>) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let mode = s.mode;
    listing::check_list(s)?;
    let mut last = None;
    while let Some(target) = s.after(last) {
        listing::check_sample(s, &target)?;
        last = Some(*target.key());
    }
    if mode == ContractMode::ReadOnly {
        return Ok(());
    }
    let mut last = None;
    while let Some(target) = s.after(last) {
        setting::check(s, &target)?;
        last = Some(*target.key());
    }
    let mut last = None;
    while let Some(target) = s.after(last).filter(|_| mode == ContractMode::Full) {
        trouble::check(s, &target)?;
        last = Some(*target.key());
    }
    if mode == ContractMode::Full {
        trouble::check_renumbered(s)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
