//! Rules about setting a control and releasing it.

use super::ContractMode;
use super::rule::{ContractBreach, Rule};
use super::session::{Session, Target};
use super::wishes::{Wishes, nonsense, setting, wishes};
use super::world::{ContractWorld, RefusableOriginals};
use crate::{ApplyOutcome, Control, ErrorKind, Original, Originals, PowerHal, Released, Setting};

/// A control as it was before the run changed it.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) control: Control,
    pub(super) before: Setting,
    pub(super) original: Original,
    pub(super) wishes: Wishes,
}

impl Start {
    /// `None` if the control must be skipped; the report then counts the reason.
    pub(super) fn of<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, control: Control) -> Option<Self>
    where
        J: Originals,
        H: PowerHal<Originals = RefusableOriginals<J>>,
        W: ContractWorld<H>,
    {
        if s.hal.originals().kept(target.key(), control).is_some() {
            s.report.in_use = s.report.in_use.saturating_add(1);
            return None;
        }
        let before = s.in_force(target, control);
        let original = s.hal.save(target.handle, control).ok();
        let (Some(before), Some(original)) = (before, original) else {
            s.report.blind = s.report.blind.saturating_add(1);
            return None;
        };
        let Some(wishes) = wishes(&target.domain, before, s.mode) else {
            s.report.blocked = s.report.blocked.saturating_add(1);
            return None;
        };
        Some(Self { control, before, original, wishes })
    }
}

pub(super) fn check<J, H, W>(s: &mut Session<'_, H, W>, target: &Target) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    lacking(s, target)?;
    for control in Control::ALL.into_iter().filter(|&control| target.domain.has(control)) {
        // A restart during the check of the last control has created another list.
        let Some(target) = &s.find(target.key()) else { continue };
        let Some(start) = Start::of(s, target, control) else { continue };
        // Discards the changes from before this run.
        let _earlier = s.world.instants(target.key());
        untouched(s, target, &start)?;
        saved_first(s, target, &start)?;
        refused(s, target, &start)?;
        let others = s.others(target.key());
        if !first(s, target, &start)? {
            s.report.blocked = s.report.blocked.saturating_add(1);
            continue;
        }
        let others_now = s.others(target.key());
        s.hold(
            ContractBreach::at(Rule::OthersUntouched, target.key()).asked(start.wishes.inside),
            others == others_now,
        )?;
        repeated(s, target, &start)?;
        ends(s, target, &start)?;
        restored(s, target, &start)?;
        let others_now = s.others(target.key());
        s.hold(ContractBreach::at(Rule::OthersUntouched, target.key()), others == others_now)?;
        s.report.controls = s.report.controls.saturating_add(1);
        restarted(s, target, &start)?;
    }
    Ok(())
}

/// Controls that the domain does not have.
fn lacking<J, H, W>(s: &mut Session<'_, H, W>, target: &Target) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let state = s.others(target.key()).wrapping_add(s.state(target));
    for control in Control::ALL.into_iter().filter(|&control| !target.domain.has(control)) {
        let wish = setting(control, 100);
        let refused = s.apply(target, wish).err();
        let breach = ContractBreach::at(Rule::LackingRefused, target.key()).asked(wish).error(refused);
        s.hold(breach, refused == Some(ErrorKind::NotSupported))?;
    }
    let unchanged = s.others(target.key()).wrapping_add(s.state(target)) == state;
    s.hold(ContractBreach::at(Rule::LackingRefused, target.key()), unchanged)
}

fn untouched<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let released = s.release(target);
    let found = s.in_force(target, start.control);
    let breach = ContractBreach::at(Rule::UntouchedRelease, target.key()).found(found).error(released.err());
    s.hold(breach, released.is_ok() && found == Some(start.before))?;
    s.hold_order(target)
}

fn saved_first<J, H, W>(
    s: &mut Session<'_, H, W>,
    target: &Target,
    start: &Start,
) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let wish = start.wishes.low;
    s.hal.originals().refuse(true);
    let applied = s.apply(target, wish);
    s.hal.originals().refuse(false);
    let found = s.in_force(target, start.control);
    let at_no_instant = s.world.instants(target.key()).is_none_or(|seen| seen.ordered() && seen.is_still());
    let kept = applied.is_err() && found == Some(start.before) && at_no_instant;
    s.hold(
        ContractBreach::at(Rule::SavedFirst, target.key()).asked(wish).found(found).error(applied.err()),
        kept,
    )
}

fn refused<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    // On a real machine a limit of zero is not tried, since a faulty HAL might apply it.
    if s.mode != ContractMode::Full {
        return Ok(());
    }
    for wish in nonsense(start.control) {
        let refused = s.apply(target, wish).err();
        let found = s.in_force(target, start.control);
        let kept = s.hal.originals().kept(target.key(), start.control).is_none();
        let unchanged = found == Some(start.before) && kept;
        let breach =
            ContractBreach::at(Rule::ZeroRefused, target.key()).asked(wish).found(found).error(refused);
        s.hold(breach, unchanged && refused == Some(ErrorKind::OutOfRange))?;
    }
    Ok(())
}

/// The first write. Returns false if the machine does not allow it; that must be reported, and change nothing.
fn first<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<bool, ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    match asked(s, target, start.control, start.wishes.inside)? {
        Ok(_) => {
            let kept = s.hal.originals().kept(target.key(), start.control) == Some(start.original);
            s.hold(ContractBreach::at(Rule::SavedOnce, target.key()).asked(start.wishes.inside), kept)?;
            Ok(true)
        }
        Err(ErrorKind::Locked | ErrorKind::PermissionDenied | ErrorKind::Busy) => {
            let found = s.in_force(target, start.control);
            let breach =
                ContractBreach::at(Rule::LockedSaid, target.key()).asked(start.wishes.inside).found(found);
            s.hold(breach, found == Some(start.before))?;
            restored(s, target, start)?;
            Ok(false)
        }
        Err(error) => {
            let breach =
                ContractBreach::at(Rule::Applies, target.key()).asked(start.wishes.inside).error(Some(error));
            s.hold(breach, false).map(|()| false)
        }
    }
}

/// Applies a wish and checks the rules for every answer. Returns what is in force afterwards.
pub(super) fn asked<J, H, W>(
    s: &mut Session<'_, H, W>,
    target: &Target,
    control: Control,
    wish: Setting,
) -> Result<Result<Setting, ErrorKind>, ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let applied = match s.apply(target, wish) {
        Ok(applied) => applied,
        Err(error) => return Ok(Err(error)),
    };
    s.hold(ContractBreach::at(Rule::Applies, target.key()).asked(wish), true)?;
    let found = s.in_force(target, control);
    let breach = |rule| ContractBreach::at(rule, target.key()).asked(wish).found(found);
    s.hold(breach(Rule::ReadBack), found == Some(applied.effective()))?;
    let exact = target.domain.grants(wish, applied.effective());
    let honest = applied.requested() == wish && (applied.outcome() == ApplyOutcome::Exact) == exact;
    s.hold(breach(Rule::Reported), honest)?;
    let admitted = target.domain.admit(wish);
    let bounded =
        admitted.is_ok_and(|admitted| applied.effective().permits_more_than(admitted) == Some(false));
    let something = control == Control::Throttle || applied.effective() != setting(control, 0);
    s.hold(breach(Rule::Clamped), bounded && something)?;
    s.hold_order(target)?;
    Ok(Ok(applied.effective()))
}

/// Applies a wish that must succeed since the first one did.
fn granted<J, H, W>(
    s: &mut Session<'_, H, W>,
    target: &Target,
    start: &Start,
    wish: Setting,
) -> Result<Setting, ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let found = asked(s, target, start.control, wish)?
        .map_err(|error| ContractBreach::at(Rule::Applies, target.key()).asked(wish).error(Some(error)))?;
    let kept = s.hal.originals().kept(target.key(), start.control) == Some(start.original);
    s.hold(ContractBreach::at(Rule::SavedOnce, target.key()).asked(wish), kept)?;
    Ok(found)
}

fn repeated<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let once = s.in_force(target, start.control);
    let twice = granted(s, target, start, start.wishes.inside)?;
    let breach =
        ContractBreach::at(Rule::Repeatable, target.key()).asked(start.wishes.inside).found(Some(twice));
    s.hold(breach, once == Some(twice))
}

/// The ends of the range. Wishes beyond them must have the same result as the ends, on a device that would accept
/// them and on one that would wrap them.
fn ends<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    granted(s, target, start, start.wishes.low)?;
    let Some(beyond) = start.wishes.beyond else { return Ok(()) };
    granted(s, target, start, beyond.high)?;
    granted(s, target, start, start.wishes.inside)?;
    for (past, end) in beyond.past {
        let at_the_end = granted(s, target, start, end)?;
        granted(s, target, start, start.wishes.inside)?;
        let found = granted(s, target, start, past)?;
        let breach = ContractBreach::at(Rule::Clamped, target.key()).asked(past).found(Some(found));
        s.hold(breach, found == at_the_end)?;
    }
    granted(s, target, start, start.wishes.low).map(|_| ())
}

/// Releases, and checks that everything is as before; then releases once more.
pub(super) fn restored<J, H, W>(
    s: &mut Session<'_, H, W>,
    target: &Target,
    start: &Start,
) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let released = s.release(target);
    as_before(s, target, start, Rule::Restored, released.err())?;
    s.hold_order(target)?;
    let again = s.release(target);
    let said = again == Ok(Released::Untouched);
    as_before(s, target, start, Rule::ReleasedTwice, again.err())?;
    s.hold(ContractBreach::at(Rule::ReleasedTwice, target.key()).error(again.err()), said)
}

pub(super) fn as_before<J, H, W>(
    s: &mut Session<'_, H, W>,
    target: &Target,
    start: &Start,
    rule: Rule,
    error: Option<ErrorKind>,
) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    let found = s.in_force(target, start.control);
    let saved = s.hal.save(target.handle, start.control).ok();
    let forgotten = s.hal.originals().kept(target.key(), start.control).is_none();
    let same = found == Some(start.before) && saved == Some(start.original);
    let breach = ContractBreach::at(rule, target.key()).asked(start.before).found(found).error(error);
    s.hold(breach, error.is_none() && same && forgotten)
}

/// A crash while a limit is in force: the next HAL finds the limit and the journal, and continues from there.
fn restarted<J, H, W>(s: &mut Session<'_, H, W>, target: &Target, start: &Start) -> Result<(), ContractBreach>
where
    J: Originals,
    H: PowerHal<Originals = RefusableOriginals<J>>,
    W: ContractWorld<H>,
{
    for applies_again in [false, true] {
        let granted = granted(s, target, start, start.wishes.inside)?;
        if !s.world.restart(s.hal) {
            return restored(s, target, start);
        }
        let found = s.find(target.key());
        s.hold(ContractBreach::at(Rule::RestartRestores, target.key()), found.is_some())?;
        let Some(target) = found else { continue };
        // What a device does not tell, the next HAL cannot know: only the world can be asked.
        let untold = start.control == Control::Frequency && !target.domain.tells_frequency();
        let in_place = match s.world.in_force(target.key(), start.control) {
            None if !untold => s.in_force(&target, start.control),
            of_the_world => of_the_world,
        };
        let breach = ContractBreach::at(Rule::RestartRestores, target.key()).asked(granted).found(in_place);
        s.hold(breach, in_place == Some(granted) || (untold && in_place.is_none()))?;
        if applies_again {
            let applied = s.apply(&target, start.wishes.low);
            let kept = s.hal.originals().kept(target.key(), start.control) == Some(start.original);
            s.hold(
                ContractBreach::at(Rule::RestartRestores, target.key()).error(applied.err()),
                applied.is_ok() && kept,
            )?;
        }
        let released = s.release(&target);
        as_before(s, &target, start, Rule::RestartRestores, released.err())?;
        s.hold_order(&target)?;
    }
    Ok(())
}
