//! Derives from the desired state and the actuations what each limit and the throttle are to do. Pure rules, no state.

use super::{BackendLaw, BackendPreference, Facts, Package, Throttling};
use crate::node::actuation::{Actuation, Want};
use crate::node::cap::{Blocked, CapIntent, CapRange, DesiredCap, Floor, Resolution, ResolvedCap};
use crate::node::throttle::ThrottlePercent;
use power_units::{Percent, Watts};

/// What is desired: an intent for the node, or its resolution for one package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish<T> {
    /// It is not known.
    Keep,
    /// Nothing.
    Nothing,
    /// A cap.
    Cap(T),
}

/// What the node needs besides the limits of its packages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The engaged limiters stay as they are: limits are on their way, or it is not known what is desired.
    AsIs,
    /// Nothing more: every limit has been in force for long enough, or nothing is desired.
    Nothing,
    /// A throttle.
    Throttle(Throttling),
    /// A cap that the node cannot enforce.
    Blocked(Blocked),
}

impl Wish<CapIntent> {
    pub(super) const fn of(desired: DesiredCap) -> Self {
        match desired {
            DesiredCap::Unknown => Self::Keep,
            DesiredCap::Gone | DesiredCap::Cap(CapIntent::NONE) => Self::Nothing,
            DesiredCap::Cap(intent) => Self::Cap(intent),
        }
    }

    /// What this means on a package of that range that may have no more than `most`.
    pub(super) fn on(self, range: CapRange, most: Option<Watts>, floor: Floor) -> Wish<Resolution> {
        match self {
            Self::Keep => Wish::Keep,
            Self::Nothing => Wish::Nothing,
            Self::Cap(intent) => Wish::Cap(intent.resolve_under(range, floor, most)),
        }
    }

    /// A node is to be capped where any of its packages has a grant, whatever the policy asks.
    pub(super) fn under_grant(self, packages: &[Package]) -> Self {
        let granted = packages.iter().any(|package| package.most().is_some());
        match self {
            Self::Keep | Self::Nothing if granted => Self::Cap(CapIntent::NONE),
            Self::Keep | Self::Nothing | Self::Cap(_) => self,
        }
    }

    fn percent(self) -> Option<Percent> {
        match self {
            Self::Keep | Self::Nothing => None,
            Self::Cap(intent) => intent.percent_above_zero(),
        }
    }
}

impl BackendLaw {
    /// What is wanted of the limit of one package; `throttled` says whether the throttle holds the node.
    pub(super) fn want_of_limit(&self, package: &Package, throttled: bool) -> Want<ResolvedCap> {
        let resolution = match package.wish {
            Wish::Keep => return Want::Keep,
            Wish::Nothing => return Want::Release,
            Wish::Cap(resolution) => resolution,
        };
        match (self.preference, resolution) {
            (_, Resolution::Blocked(_)) => Want::Keep,
            _ if !package.facts.has_limit => Want::Keep,
            (_, Resolution::Watts(target)) if target.is_as_found() => target.want(),
            (BackendPreference::LimitFirst, Resolution::Watts(target)) => {
                package.obedience.tried(target).want()
            }
            // The limit of an earlier cap that is not to be used any more is released once the throttle holds the node.
            (_, Resolution::Watts(_) | Resolution::Percent(_)) if throttled => Want::Release,
            (_, Resolution::Watts(_) | Resolution::Percent(_)) => Want::Keep,
        }
    }

    /// What the node needs besides the limits.
    pub(super) fn need(&self, wish: Wish<CapIntent>, packages: &[Package], facts: &Facts) -> Need {
        if packages.is_empty() {
            return match wish.on(CapRange::UNKNOWN, None, self.floor) {
                Wish::Keep => Need::AsIs,
                Wish::Nothing => Need::Nothing,
                Wish::Cap(Resolution::Percent(percent)) => Need::fixed(percent),
                Wish::Cap(Resolution::Watts(_)) => Need::Blocked(Blocked::NoPackages),
                Wish::Cap(Resolution::Blocked(reason)) => Need::Blocked(reason),
            };
        }
        let in_watts = match (wish.percent(), facts.has_meter, facts.throttle) {
            (_, true, _) | (None, false, None) => Need::Throttle(Throttling::Loop),
            (Some(percent), false, _) => Need::fixed(percent),
            (None, false, Some(_)) => Need::Blocked(Blocked::NoMeter),
        };
        let need = |package| self.need_of(package, in_watts, facts);
        packages.iter().map(need).reduce(Need::and).unwrap_or(Need::AsIs)
    }

    /// What one package needs; `in_watts` is what the node needs when its limits fail.
    fn need_of(&self, package: &Package, in_watts: Need, facts: &Facts) -> Need {
        let target = match package.wish {
            Wish::Keep => return Need::AsIs,
            Wish::Nothing => return Need::Nothing,
            Wish::Cap(Resolution::Blocked(reason)) => return Need::Blocked(reason),
            Wish::Cap(Resolution::Percent(percent)) => return Need::fixed(percent),
            Wish::Cap(Resolution::Watts(target)) => target,
        };
        let actuation = package.limiter.actuation();
        if target.is_as_found() {
            return if actuation == Actuation::Free { Need::Nothing } else { Need::AsIs };
        }
        let limited = package.facts.has_limit && self.preference == BackendPreference::LimitFirst;
        if !limited || actuation.lacks() || package.disobeys() {
            return in_watts;
        }
        let settled = |since| facts.now.since(since).is_some_and(|held| held >= self.settle);
        if actuation.held_since(target).is_some_and(settled) { Need::Nothing } else { Need::AsIs }
    }
}

/// The cap of all packages together, where it is known of every one and any of them is capped. A package that takes no
/// cap counts with the most that it draws, so that the others are held to their caps; `beyond` is added in the same
/// way.
pub(super) fn node_cap(packages: &[Package], beyond: Watts) -> Option<ResolvedCap> {
    let mut sum: Option<ResolvedCap> = None;
    let mut holds = false;
    for package in packages {
        let target = match package.wish {
            Wish::Cap(Resolution::Watts(target)) => {
                holds = true;
                target
            }
            Wish::Cap(Resolution::Blocked(_)) => ResolvedCap::most_of(package.facts.range)?,
            Wish::Keep | Wish::Nothing | Wish::Cap(Resolution::Percent(_)) => return None,
        };
        sum = Some(sum.map_or(target, |sum| sum.and(target)));
    }
    sum.filter(|_| holds).map(|sum| sum.beside(beyond))
}

impl Need {
    fn fixed(percent: Percent) -> Self {
        Self::Throttle(Throttling::Fixed(ThrottlePercent::leaving(percent)))
    }

    /// What this means for the throttle, where there is one.
    pub(super) const fn want(self, has_throttle: bool) -> Want<Throttling> {
        match self {
            Self::AsIs | Self::Blocked(_) => Want::Keep,
            Self::Nothing => Want::Release,
            Self::Throttle(throttling) if has_throttle => Want::Set(throttling),
            Self::Throttle(_) => Want::Keep,
        }
    }

    /// The need of two packages. A fixed throttle comes first: a package needs it because its cap has no watts. Then
    /// comes the closed loop, then what cannot be done. So a cap that one package cannot take leaves no other package
    /// without a limiter.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (fixed @ Self::Throttle(Throttling::Fixed(_)), _)
            | (_, fixed @ Self::Throttle(Throttling::Fixed(_))) => fixed,
            (running @ Self::Throttle(Throttling::Loop), _)
            | (_, running @ Self::Throttle(Throttling::Loop)) => running,
            (Self::Blocked(a), Self::Blocked(b)) => Self::Blocked(if a > b { a } else { b }),
            (blocked @ Self::Blocked(_), _) | (_, blocked @ Self::Blocked(_)) => blocked,
            (Self::AsIs, _) | (_, Self::AsIs) => Self::AsIs,
            (Self::Nothing, Self::Nothing) => Self::Nothing,
        }
    }
}
