//! One package: its zone, and its twin if it has one, read and written as one domain.

use super::saved::{self, Saved};
use super::zone::{Dram, Limits, State, Zone};
use crate::RaplError;
use crate::aim::{self, CEILING_UW, STEP_UW, WINDOW_MAX_US};
use crate::reading::Value;
use hal_files::FileError;
use power_hal::{Domain, Error, ErrorKind, Original, lower_first};

/// A package and its twin.
pub(super) const ZONES_MAX: usize = 2;

/// The target limits of one zone.
#[derive(Clone, Copy, Debug)]
struct Target {
    long_uw: u64,
    /// `None` if it does not change.
    short_uw: Option<u64>,
    window_us: u64,
    /// Whether the zone is to be on.
    on: bool,
}

impl Target {
    /// The target, adapted to this state. Switching a zone on switches both of its limits on. A short-term limit of 0 W
    /// that is off would then stop the machine, so it is first set to the largest value, which limits nothing, like a
    /// limit that is off.
    fn over(self, state: &State) -> Self {
        let switches_on = self.on && !state.enabled && self.short_uw.is_none() && state.short_uw == Some(0);
        Self { short_uw: if switches_on { Some(CEILING_UW) } else { self.short_uw }, ..self }
    }

    /// Whether the zone is to be off, and is not off yet or has other limits.
    fn switches_off(&self, state: &State) -> bool {
        let short_differs = state.short_uw.zip(self.short_uw).is_some_and(|(is, wanted)| is != wanted);
        !self.on && (state.enabled || state.long_uw != self.long_uw || short_differs)
    }
}

/// A package with its zones; its own zone comes before its twin.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) domain: Domain,
    pub(super) zones: Vec<Zone>,
    /// Set by a file access that reports it.
    pub(super) gone: bool,
    /// Whether `max_power_uw` was below a limit in use, and so is no longer trusted.
    pub(super) max_refuted: bool,
    pub(super) window_refused: bool,
}

impl Package {
    /// Whether the next enumeration has found the same package, so that handles stay valid.
    pub(super) fn is_still(&self, next: &Self) -> bool {
        let folders = |package: &Self| package.zones.len() == self.zones.len();
        !self.gone
            && self.domain == next.domain
            && folders(next)
            && self.zones.iter().zip(&next.zones).all(|(old, new)| old.folder == new.folder)
    }

    /// Reads the counter: the package's own, since the twin's is the same.
    pub(super) fn energy(&self) -> Value {
        let (zone, energy) =
            self.zones.iter().find_map(|zone| zone.energy.as_ref().map(|file| (zone, file)))?;
        let read = energy.as_ref().map_err(Clone::clone).and_then(|file| {
            let value = file.read_whole()?;
            let possible = zone.energy_range_uj == 0 || value <= zone.energy_range_uj;
            if possible { Ok(value) } else { Err(FileError::bad_data(file.path())) }
        });
        Some(read.map_err(RaplError::File))
    }

    /// Reads the counter of the package's memory, if it has one. That the sub-zone is gone does not mean that the package
    /// is.
    pub(super) fn dram(&self) -> Option<Result<u64, FileError>> {
        self.zones.iter().find_map(|zone| zone.dram.as_ref()).map(Dram::read)
    }

    /// The limit in force, if the domain has one.
    pub(super) fn limit(&mut self) -> Value {
        self.domain.power().is_some().then(|| self.in_force())
    }

    /// The current settings of the package. Once an original is kept, they are compared with it, so only the zones in
    /// it count: a twin that was absent when it was saved is never changed, and is not restored.
    pub(super) fn save(&mut self, kept: Option<&Original>) -> Result<Original, RaplError> {
        let states = self.states()?;
        let originals = kept.and_then(saved::unpack);
        let mut saved = [None; ZONES_MAX];
        for ((slot, zone), state) in saved.iter_mut().zip(&self.zones).zip(&states) {
            let Some(state) = state else { continue };
            let mut now = Saved::of(zone.control_type, state);
            if let Some(originals) = &originals {
                let is_it = |kept: &&Saved| kept.control_type == zone.control_type;
                let Some(kept) = originals.iter().flatten().find(is_it) else { continue };
                // The same holds for a short-term limit that was not used: we did not write its present value.
                now.short_uw = now.short_uw.filter(|_| kept.short_uw.is_some());
            } else if !now.is_possible() {
                return Err(RaplError::ZeroInForce(*self.domain.key()));
            }
            *slot = Some(now);
        }
        saved::pack(&saved).ok_or(RaplError::UnknownOriginal(*self.domain.key()))
    }

    /// Brings a cap into force, and returns the limit in force.
    pub(super) fn write(&mut self, cap_uw: u64, original: Option<&Original>) -> Result<u64, RaplError> {
        let cap_uw = cap_uw - cap_uw % STEP_UW;
        let originals = original.and_then(saved::unpack).unwrap_or_default();
        let states = self.states()?;
        let mut targets = [None; ZONES_MAX];
        for ((slot, zone), state) in targets.iter_mut().zip(&self.zones).zip(&states) {
            let Some(state) = state else { continue };
            let kept = originals.iter().flatten().find(|kept| kept.control_type == zone.control_type);
            // A twin that appeared after the original was saved has no original, so it is never changed.
            if kept.is_none() && originals.iter().any(Option::is_some) {
                continue;
            }
            let original = kept.copied().unwrap_or_else(|| Saved::of(zone.control_type, state));
            let target = Target {
                long_uw: cap_uw,
                short_uw: original.highest_short_uw().map(|highest| aim::short_term(cap_uw, highest)),
                window_us: WINDOW_MAX_US,
                on: true,
            };
            *slot = Some(target.over(state));
        }
        let refused = self.bring(&states, &targets)?;
        // The lower of two limits holds, so one zone suffices.
        let asked = targets.iter().flatten().count();
        if refused.iter().flatten().count() == asked
            && let Some(error) = refused.into_iter().flatten().next()
        {
            return Err(error);
        }
        self.read_back(&states, &targets)
    }

    pub(super) fn restore(&mut self, original: &Original) -> Result<(), RaplError> {
        let unknown = RaplError::UnknownOriginal(*self.domain.key());
        let originals = saved::unpack(original).ok_or(unknown)?;
        let states = self.states()?;
        let mut targets = [None; ZONES_MAX];
        for ((slot, zone), state) in targets.iter_mut().zip(&self.zones).zip(&states) {
            let kept = originals.iter().flatten().find(|kept| kept.control_type == zone.control_type);
            *slot = kept.zip(state.as_ref()).map(|(kept, state)| {
                let target = Target {
                    long_uw: kept.long_uw,
                    short_uw: kept.short_uw,
                    window_us: if kept.window_us == 0 { WINDOW_MAX_US } else { kept.window_us },
                    on: kept.enabled,
                };
                target.over(state)
            });
        }
        let refused = self.bring(&states, &targets)?;
        self.take_back_what_fell(&states, &targets)?;
        // An absent zone still has its cap when it comes back, so its original must not be forgotten.
        let is_there = |kept: &&Saved| self.zones.iter().any(|zone| zone.control_type == kept.control_type);
        if let Some(away) = originals.iter().flatten().find(|kept| !is_there(kept)) {
            return Err(RaplError::ZoneAway(*self.domain.key(), away.control_type.driver()));
        }
        if targets.iter().flatten().count() < originals.iter().flatten().count() {
            return Err(RaplError::Gone);
        }
        refused.into_iter().flatten().next().map_or(Ok(()), Err)
    }

    /// Writes what differs, so that no instant is above both the old and the new limits. Returns the zones that
    /// refused.
    fn bring(
        &mut self,
        states: &[Option<State>; ZONES_MAX],
        targets: &[Option<Target>; ZONES_MAX],
    ) -> Result<[Option<RaplError>; ZONES_MAX], RaplError> {
        let mut changes = [(0, 0); 2 * ZONES_MAX];
        for (pair, both) in changes.as_chunks_mut::<2>().0.iter_mut().zip(states.iter().zip(targets)) {
            if let (Some(state), Some(target)) = both {
                let short = state.short_uw.zip(target.short_uw).unwrap_or_default();
                *pair = [(state.long_uw, target.long_uw), short];
            }
        }
        let mut refused = [const { None }; ZONES_MAX];
        for (at, (state, target)) in states.iter().zip(targets).enumerate() {
            // As the first step, since the values for an off zone may be 0 W. A zone that will limit nothing can be
            // switched off at once.
            if state.as_ref().zip(target.as_ref()).is_some_and(|(state, target)| target.switches_off(state)) {
                self.attempt(&mut refused, at, Limits::disable)?;
            }
        }
        for at in lower_first(&changes) {
            let new_uw = changes.get(at).map_or(0, |change| change.1);
            self.attempt(&mut refused, at / 2, |limits| {
                let setter = if at % 2 == 0 { Some(&limits.long) } else { limits.short.as_ref() };
                setter.map_or(Ok(()), |setter| setter.write(new_uw))
            })?;
        }
        for (at, (state, target)) in states.iter().zip(targets).enumerate() {
            let (Some(state), Some(target)) = (state, target) else { continue };
            self.shorten(&mut refused, at, state, target)?;
            // As the last step, since enabling puts the limits in force at once.
            if target.on && !state.enabled {
                self.attempt(&mut refused, at, Limits::enable)?;
            }
        }
        Ok(refused)
    }

    /// Writes the window; if the target is the longest window of a cap, only when the current one is longer.
    fn shorten(
        &mut self,
        refused: &mut [Option<RaplError>; ZONES_MAX],
        at: usize,
        state: &State,
        target: &Target,
    ) -> Result<(), RaplError> {
        let fits = |window: u64| {
            if target.window_us == WINDOW_MAX_US {
                window <= WINDOW_MAX_US
            } else {
                window == target.window_us
            }
        };
        if state.window_us.is_none_or(fits) {
            return Ok(());
        }
        let mut by_window = [const { None }; ZONES_MAX];
        if refused.get(at).is_some_and(Option::is_some) {
            return Ok(());
        }
        self.attempt(&mut by_window, at, |limits| {
            limits.window.as_ref().map_or(Ok(()), |window| window.write(target.window_us))
        })?;
        match by_window.into_iter().flatten().next() {
            // A limit over a longer window is still a limit; see `Powercap::long_windows`.
            Some(error) if is_final(error.kind()) => self.window_refused = true,
            Some(error) => *refused.get_mut(at).ok_or(RaplError::Gone)? = Some(error),
            None => self.window_refused = false,
        }
        Ok(())
    }

    /// Writes to a zone that has not refused yet. Only if the zone is gone, the whole operation ends.
    fn attempt(
        &mut self,
        refused: &mut [Option<RaplError>; ZONES_MAX],
        at: usize,
        write: impl FnOnce(&Limits) -> Result<(), FileError>,
    ) -> Result<(), RaplError> {
        let (Some(zone), Some(slot)) = (self.zones.get_mut(at), refused.get_mut(at)) else { return Ok(()) };
        let (Some(limits), None) = (&zone.limits, &slot) else { return Ok(()) };
        match write(limits) {
            Ok(()) => Ok(()),
            Err(error) if error.kind == ErrorKind::Gone => Err(error.into()),
            Err(error) => {
                zone.held |= error.kind == ErrorKind::Locked;
                *slot = Some(error.into());
                Ok(())
            }
        }
    }

    /// Handles a limit that was to rise to its original and fell instead: a register narrower than the original's has
    /// kept only some of its bits. Then the cap is restored.
    fn take_back_what_fell(
        &mut self,
        before: &[Option<State>; ZONES_MAX],
        targets: &[Option<Target>; ZONES_MAX],
    ) -> Result<(), RaplError> {
        let after = self.states()?;
        for (((zone, before), after), target) in self.zones.iter().zip(before).zip(&after).zip(targets) {
            if let (Some(before), Some(after), Some(target), Some(limits)) =
                (before, after, target, &zone.limits)
                && target.long_uw > before.long_uw
                && after.long_uw < before.long_uw
            {
                limits.long.write(before.long_uw)?;
                return Err(RaplError::UnknownOriginal(*self.domain.key()));
            }
        }
        Ok(())
    }

    /// The limit in force after a write. A limit that became zero is reverted: a package without power is worse than
    /// one above its cap, and the error reports it.
    fn read_back(
        &mut self,
        before: &[Option<State>; ZONES_MAX],
        targets: &[Option<Target>; ZONES_MAX],
    ) -> Result<u64, RaplError> {
        let after = self.states()?;
        for (((zone, before), after), target) in self.zones.iter().zip(before).zip(&after).zip(targets) {
            if let (Some(before), Some(after), Some(target), Some(limits)) =
                (before, after, target, &zone.limits)
                && after.long_uw == 0
                && target.long_uw > 0
                && before.long_uw > 0
            {
                limits.long.write(before.long_uw)?;
                return Err(RaplError::ReadBackZero(*self.domain.key()));
            }
        }
        Ok(self.lowest(&after))
    }

    fn in_force(&mut self) -> Result<u64, RaplError> {
        let states = self.states()?;
        Ok(self.lowest(&states))
    }

    fn lowest(&self, states: &[Option<State>; ZONES_MAX]) -> u64 {
        let each = self.zones.iter().zip(states);
        let limits = each.filter_map(|(zone, state)| state.as_ref().map(|state| zone.in_force(state)));
        limits.min().unwrap_or(CEILING_UW)
    }

    fn states(&mut self) -> Result<[Option<State>; ZONES_MAX], RaplError> {
        let mut states = [None; ZONES_MAX];
        for (slot, zone) in states.iter_mut().zip(&mut self.zones) {
            *slot = zone.state()?;
        }
        Ok(states)
    }
}

/// Whether firmware that refuses a window with this error will refuse it again. Any other error may be temporary, so
/// the cap counts as refused and is tried again: over a window of 28 s it would limit almost nothing.
const fn is_final(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::NotSupported | ErrorKind::Locked | ErrorKind::PermissionDenied | ErrorKind::OutOfRange => {
            true
        }
        ErrorKind::Busy | ErrorKind::Gone | ErrorKind::Timeout | ErrorKind::BadData | ErrorKind::Io => false,
    }
}
