//! Rules about faults of a machine: locks, failing reads, other writers, lost and renumbered devices. Each fault
//! needs a world that can cause it.

use super::listing::describe;
use super::rule::{ContractBreach, Rule};
use super::session::{Session, Target, state_of};
use super::setting::{Start, as_before, restored};
use super::world::{ContractWorld, DomainFault, RefusableOriginals, setting_of};
use crate::{Control, ErrorKind, Originals, PowerHal, Reading};

pub(super) fn check<J, H, W>(s: &mut Session<'_, H, W>, target: &Target) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    unreadable(s, target)?;
    for control in Control::ALL.into_iter().filter(|&control| target.domain.has(control)) {
        // A domain that came back after the last control has another handle.
        let Some(target) = s.find(target.key()) else { continue };
        let Some(start) = Start::of(s, &target, control) else { continue };
        moved(s, &target, &start)?;
        locked(s, &target, &start)?;
        vanished(s, &target, &start)?;
    }
    Ok(())
}

fn unreadable<J, H, W>(s: &mut Session<'_, H, W>, target: &Target) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let trouble = DomainFault::Unreadable(*target.key());
    if s.count() < 2 {
        return Ok(());
    }
    let before = readable(s, target);
    if s.world.cause(trouble) {
        let during = readable(s, target);
        s.world.heal(trouble);
        s.hold(
            ContractBreach::at(Rule::BatchSurvives, target.key()),
            before.1 && !during.1 && before.0 == during.0,
        )?;
    }
    Ok(())
}

/// Samples the target in batches with the others. Returns how many of the others could be read, and whether the
/// target could be read in every batch.
fn readable<J, H, W>(s: &mut Session<'_, H, W>, target: &Target) -> (usize, bool)
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let (mut others, mut itself) = (0_usize, true);
    let mut at = 0_usize;
    while at < s.count() {
        let mut batch = [Reading::new(target.handle); 8];
        for slot in batch.iter_mut().skip(1) {
            if let Some(other) = s.nth(at) {
                slot.domain = other.handle;
            }
            at = at.saturating_add(1);
        }
        s.hal.sample(&mut batch);
        for reading in &batch {
            if reading.domain == target.handle {
                itself &= reading.outcome.is_ok();
            } else {
                others = others.saturating_add(usize::from(reading.outcome.is_ok()));
            }
        }
    }
    (others, itself)
}

/// Somebody else changes a limit that we have set: the sample shows it, and a release still restores the original.
fn moved<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    if s.apply(target, start.wishes.inside).is_err() {
        return Ok(());
    }
    if s.world.cause(DomainFault::Moved(*target.key(), start.wishes.low)) {
        let truth = s.world.in_force(target.key(), start.control);
        let said = s.sample(target.handle).ok().and_then(|sample| setting_of(&sample, start.control));
        let breach =
            ContractBreach::at(Rule::SampleSeesOthers, target.key()).asked(start.wishes.low).found(said);
        s.hold(breach, truth.is_none() || truth == said)?;
    }
    // The HAL is not responsible for the order in which somebody else writes.
    let _by_others = s.world.instants(target.key());
    restored(s, target, start)
}

fn locked<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let trouble = DomainFault::Locked(*target.key());
    if !s.world.cause(trouble) {
        return Ok(());
    }
    let wish = start.wishes.low;
    let refused = s.apply(target, wish).err();
    let found = s.in_force(target, start.control);
    let readable = s.sample(target.handle).is_ok();
    let released = s.release(target);
    let said = refused == Some(ErrorKind::Locked) && found == Some(start.before) && readable;
    let held = s.hold(
        ContractBreach::at(Rule::LockedSaid, target.key()).asked(wish).found(found).error(refused),
        said,
    );
    s.world.heal(trouble);
    held?;
    as_before(s, target, start, Rule::LockedSaid, released.err())
}

/// The domain disappears while a limit of ours is in force, and comes back.
fn vanished<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let key = *target.key();
    let trouble = DomainFault::Vanished(key);
    let breach = |error| ContractBreach::at(Rule::GoneSaid, &key).error(error);
    if s.apply(target, start.wishes.inside).is_err() {
        return Ok(());
    }
    s.hold_order(target)?;
    if !s.world.cause(trouble) {
        return restored(s, target, start);
    }
    // Before the next enumeration: the access itself must detect it.
    all_gone(s, target, start, Rule::GoneSaid)?;
    describe(s)?;
    let listed = s.find(&key).is_some();
    s.hold(breach(None), !listed)?;
    // The list is another one now; an old handle must not reach another domain at the same index.
    all_gone(s, target, start, Rule::StaleRefused)?;
    let kept = s.hal.originals().kept(&key, start.control) == Some(start.original);
    s.hold(breach(None), kept)?;
    s.world.heal(trouble);
    describe(s)?;
    all_gone(s, target, start, Rule::StaleRefused)?;
    let Some(back) = s.find(&key) else { return s.hold(breach(None), false) };
    let released = s.release(&back);
    as_before(s, &back, start, Rule::GoneSaid, released.err())?;
    let _while_away = s.world.instants(&key);
    Ok(())
}

/// Checks that each verb reports the target as gone, and that the others are unchanged.
fn all_gone<J, H, W>(
    s: &mut Session<'_, H, W>,
    target: &Target,
    start: &Start,
    rule: Rule,
) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let others = s.others(target.key());
    let sampled = s.sample(target.handle).err();
    let applied = s.apply(target, start.wishes.low).err();
    let released = s.release(target).err();
    for error in [sampled, applied, released] {
        let breach = ContractBreach::at(rule, target.key()).asked(start.wishes.low).error(error);
        s.hold(breach, error == Some(ErrorKind::Gone))?;
    }
    let unchanged = s.others(target.key()) == others;
    s.hold(ContractBreach::at(rule, target.key()).asked(start.wishes.low), unchanged)
}

/// All devices are renumbered. A sample under a key must still show what is in force on that hardware, and an old
/// handle must reach the hardware that it named, or nothing.
pub(super) fn check_renumbered<J, H, W>(s: &mut Session<'_, H, W>) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let Some(first) = s.nth(0) else { return Ok(()) };
    let before = said_by_all(s);
    if !s.world.cause(DomainFault::Renumbered) {
        return Ok(());
    }
    describe(s)?;
    let after = said_by_all(s);
    s.hold(ContractBreach::of(Rule::KeyFollowsHardware), before == after)?;
    let reached = s.hal.domains().get(first.handle).map(|domain| *domain.key());
    let same_or_none = reached.is_none_or(|key| key == *first.key());
    s.hold(ContractBreach::at(Rule::StaleRefused, first.key()), same_or_none)?;
    for at in 0..s.count() {
        let Some(target) = s.nth(at) else { continue };
        agrees(s, &target)?;
        for control in Control::ALL.into_iter().filter(|&control| target.domain.has(control)) {
            let Some(start) = Start::of(s, &target, control) else { continue };
            let applied = s.apply(&target, start.wishes.low);
            let truth = s.world.in_force(target.key(), control);
            let reached = truth.is_none() || applied.is_ok_and(|applied| truth == Some(applied.effective()));
            let breach = ContractBreach::at(Rule::KeyFollowsHardware, target.key())
                .asked(start.wishes.low)
                .found(truth);
            let held = s.hold(breach.error(applied.err()), reached);
            let released = s.release(&target);
            held?;
            as_before(s, &target, &start, Rule::KeyFollowsHardware, released.err())?;
        }
    }
    s.world.heal(DomainFault::Renumbered);
    describe(s)
}

/// Checks that the HAL's sample of a domain agrees with the world.
fn agrees<J, H, W>(s: &mut Session<'_, H, W>, target: &Target) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let Ok(sample) = s.sample(target.handle) else { return Ok(()) };
    for control in Control::ALL {
        let (said, truth) = (setting_of(&sample, control), s.world.in_force(target.key(), control));
        let breach = ContractBreach::at(Rule::KeyFollowsHardware, target.key()).found(said);
        s.hold(breach, truth.is_none() || said == truth)?;
    }
    Ok(())
}

/// A digest of the limits in the HAL's samples, by key; it does not depend on the order.
fn said_by_all<J, H, W>(s: &mut Session<'_, H, W>) -> u64
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let mut digest = 0_u64;
    for at in 0..s.count() {
        let Some(target) = s.nth(at) else { continue };
        let said = s.sample(target.handle).ok();
        let state = state_of(target.key(), |control| setting_of(&said?, control));
        digest = digest.wrapping_add(state);
    }
    digest
}
