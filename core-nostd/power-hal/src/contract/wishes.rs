//! The wishes for a control: values inside its range, at its ends, and beyond them.

use super::ContractMode;
use crate::{Control, Domain, Setting};
use power_units::{KiloHertz, MicroWatts, Percent, Role};

/// The wishes for one control.
#[derive(Clone, Copy)]
pub(super) struct Wishes {
    /// Inside the range, and not on a step of the device, so that a read-back differs from the wish.
    pub(super) inside: Setting,
    /// The strictest end of the range.
    pub(super) low: Setting,
    /// The other end, and values beyond the ends; only if the mode allows to raise limits.
    pub(super) beyond: Option<Beyond>,
}

#[derive(Clone, Copy)]
pub(super) struct Beyond {
    /// The most permissive end of the range.
    pub(super) high: Setting,
    /// A wish outside the range, and the end to which it must be clamped.
    pub(super) past: [(Setting, Setting); 4],
}

/// The wishes for a control of a domain that has `before` in force; `None` where it cannot be lowered within the
/// range.
pub(super) fn wishes(domain: &Domain, before: Setting, mode: ContractMode) -> Option<Wishes> {
    let control = before.control();
    let (lower, upper) = ends(domain, control)?;
    let full = mode == ContractMode::Full;
    let setting = |raw| setting(control, raw);
    let (strict, lenient) = if control == Control::Throttle { (upper, lower) } else { (lower, upper) };
    // If nothing may be raised, the range ends at what is in force.
    let from = if full { lenient } else { raw(before).max(lower).min(upper) };
    let middle = strict.min(from).saturating_add(strict.abs_diff(from) >> 1);
    let inside = (middle | 1).min(strict.max(from));
    let (high, low) = (setting(lenient), setting(strict));
    let over = setting(upper.saturating_add(upper >> 3).saturating_add(1));
    let top = setting(upper);
    let under = if control == Control::Throttle { (over, top) } else { (setting(1), low) };
    let past =
        [(over, top), (setting(OVER.max(upper.saturating_add(1))), top), (setting(u64::MAX), top), under];
    let room = full || strict != from;
    room.then_some(Wishes { inside: setting(inside), low, beyond: full.then_some(Beyond { high, past }) })
}

/// 5 kW: a 15-bit register of eighths of a watt wraps it to 904 W.
const OVER: u64 = 5_000_000_000;

fn ends(domain: &Domain, control: Control) -> Option<(u64, u64)> {
    match control {
        Control::Power => domain.power().map(|limit| (limit.lower().get(), limit.upper().get())),
        Control::Frequency => domain.frequency().map(|limit| (whole(limit.lower()), whole(limit.upper()))),
        Control::Throttle => domain.throttle().map(|throttle| (0, percent(throttle.max()))),
    }
}

fn whole(frequency: KiloHertz) -> u64 {
    u64::from(frequency.to_whole(Role::Limit))
}

fn percent(percent: Percent) -> u64 {
    u64::try_from(percent.round()).unwrap_or(0)
}

fn raw(setting: Setting) -> u64 {
    match setting {
        Setting::Power(limit) => limit.get(),
        Setting::Frequency(limit) => whole(limit),
        Setting::Throttle(throttle) => percent(throttle),
    }
}

pub(super) fn setting(control: Control, raw: u64) -> Setting {
    let small = i32::try_from(raw).unwrap_or(i32::MAX);
    match control {
        Control::Power => Setting::Power(MicroWatts::new(raw)),
        Control::Frequency => Setting::Frequency(KiloHertz::from_int(small)),
        Control::Throttle => Setting::Throttle(Percent::from_int(small)),
    }
}

/// Wishes that are not valid limits.
pub(super) const fn nonsense(control: Control) -> [Setting; 2] {
    match control {
        Control::Power => [Setting::Power(MicroWatts::ZERO); 2],
        Control::Frequency => {
            [Setting::Frequency(KiloHertz::ZERO), Setting::Frequency(KiloHertz::from_int(-1))]
        }
        Control::Throttle => [Setting::Throttle(Percent::from_int(-1)), Setting::Throttle(Percent::MIN)],
    }
}
