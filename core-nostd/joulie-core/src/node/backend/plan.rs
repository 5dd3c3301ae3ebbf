//! What the node needs: from the desired state and the levers to what each of them is to do. Pure rules, no memory.

use super::{BackendLaw, Curb, Facts, Package, Preference};
use crate::node::cap::{Blocked, CapIntent, CapRange, Desired, Resolution, Target, throttle_leaving};
use crate::node::lever::Want;

/// The desired state, read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nobody knows it.
    Keep,
    /// Nothing.
    Nothing,
    /// A cap.
    Cap(CapIntent),
}

/// What the node needs besides the limits of its packages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// What is engaged stays so: limits are on their way, or nobody knows what is desired.
    AsIs,
    /// Nothing more: every limit has been in force for long enough, or nothing is desired.
    Nothing,
    /// A throttle.
    Throttle(Curb),
    /// Something that the node cannot do.
    Blocked(Blocked),
}

pub(super) const fn wish(desired: Desired) -> Wish {
    match desired {
        Desired::Unknown => Wish::Keep,
        Desired::Gone | Desired::Cap(CapIntent::NONE) => Wish::Nothing,
        Desired::Cap(intent) => Wish::Cap(intent),
    }
}

impl BackendLaw {
    /// What is wanted of the limit of one package, on a node that the throttle does or does not hold.
    pub(super) fn want_of_limit(&self, package: &Package, wish: Wish, throttled: bool) -> Want<Target> {
        let intent = match wish {
            Wish::Keep => return Want::Keep,
            Wish::Nothing => return Want::Release,
            Wish::Cap(intent) => intent,
        };
        match (self.preference, intent.resolve(package.facts.range, self.floor)) {
            (_, Resolution::Blocked(_)) => Want::Keep,
            _ if !package.facts.has_limit => Want::Keep,
            (Preference::LimitFirst, Resolution::Watts(target)) => Want::Set(target),
            // A limit that is not to be used any more, of an earlier cap, goes when the throttle holds the node.
            (
                Preference::LimitFirst | Preference::ThrottleOnly,
                Resolution::Watts(_) | Resolution::Percent(_),
            ) => {
                if throttled {
                    Want::Release
                } else {
                    Want::Keep
                }
            }
        }
    }

    /// How a node is throttled for a package with this resolution.
    fn curb(intent: CapIntent, resolution: Resolution, facts: &Facts) -> Curb {
        match (resolution, intent.percent_above_zero()) {
            (Resolution::Percent(percent), _) => Curb::Fixed(throttle_leaving(percent)),
            (Resolution::Watts(_) | Resolution::Blocked(_), Some(percent)) if !facts.has_meter => {
                Curb::Fixed(throttle_leaving(percent))
            }
            (Resolution::Watts(_) | Resolution::Blocked(_), _) => Curb::Loop,
        }
    }

    /// What the node needs besides the limits.
    pub(super) fn need(&self, wish: Wish, packages: &[Package], facts: &Facts) -> Need {
        let intent = match wish {
            Wish::Keep => return Need::AsIs,
            Wish::Nothing => return Need::Nothing,
            Wish::Cap(intent) => intent,
        };
        if packages.is_empty() {
            return match intent.resolve(CapRange::UNKNOWN, self.floor) {
                Resolution::Percent(percent) => Need::Throttle(Curb::Fixed(throttle_leaving(percent))),
                Resolution::Watts(_) => Need::Blocked(Blocked::NoPackages),
                Resolution::Blocked(reason) => Need::Blocked(reason),
            };
        }
        let need = |package| self.need_of(package, intent, facts);
        packages.iter().map(need).reduce(Need::and).unwrap_or(Need::AsIs)
    }

    fn need_of(&self, package: &Package, intent: CapIntent, facts: &Facts) -> Need {
        let resolution = intent.resolve(package.facts.range, self.floor);
        let target = match resolution {
            Resolution::Blocked(reason) => return Need::Blocked(reason),
            Resolution::Percent(_) => return Need::Throttle(Self::curb(intent, resolution, facts)),
            Resolution::Watts(target) => target,
        };
        let limited = package.facts.has_limit && self.preference == Preference::LimitFirst;
        let lever = package.limiter.lever();
        if !limited || lever.lacks() {
            return match Self::curb(intent, resolution, facts) {
                Curb::Loop if !facts.has_meter => Need::Blocked(Blocked::NoMeter),
                curb @ (Curb::Loop | Curb::Fixed(_)) => Need::Throttle(curb),
            };
        }
        let settled = |since| facts.now.since(since).is_some_and(|held| held >= self.settle);
        if lever.held_since(target).is_some_and(settled) { Need::Nothing } else { Need::AsIs }
    }

    pub(super) fn want_of_throttle(need: Need, facts: &Facts) -> Want<Curb> {
        match need {
            Need::AsIs | Need::Blocked(_) => Want::Keep,
            Need::Nothing => Want::Release,
            Need::Throttle(curb) if facts.throttle.is_some() => Want::Set(curb),
            Need::Throttle(_) => Want::Keep,
        }
    }

    /// What all packages together are to be held to, where it is known of every one.
    pub(super) fn node_cap(&self, wish: Wish, packages: &[Package]) -> Option<Target> {
        let intent = match wish {
            Wish::Keep | Wish::Nothing => return None,
            Wish::Cap(intent) => intent,
        };
        let mut sum: Option<Target> = None;
        for package in packages {
            let target = match intent.resolve(package.facts.range, self.floor) {
                Resolution::Watts(target) => target,
                Resolution::Percent(_) | Resolution::Blocked(_) => return None,
            };
            sum = Some(sum.map_or(target, |sum| sum.and(target)));
        }
        sum
    }
}

impl Need {
    /// The need of two packages: what cannot be done first, then a fixed throttle, which one of them needs for want of
    /// watts, then the closed loop.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Blocked(a), Self::Blocked(b)) => Self::Blocked(if a > b { a } else { b }),
            (blocked @ Self::Blocked(_), _) | (_, blocked @ Self::Blocked(_)) => blocked,
            (fixed @ Self::Throttle(Curb::Fixed(_)), _) | (_, fixed @ Self::Throttle(Curb::Fixed(_))) => {
                fixed
            }
            (running @ Self::Throttle(Curb::Loop), _) | (_, running @ Self::Throttle(Curb::Loop)) => running,
            (Self::AsIs, _) | (_, Self::AsIs) => Self::AsIs,
            (Self::Nothing, Self::Nothing) => Self::Nothing,
        }
    }
}
