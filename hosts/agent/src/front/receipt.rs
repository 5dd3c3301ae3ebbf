//! The receipt for a grant: how much the node can draw under the limits that were read back. It is a rule over the
//! machine's view, with the memory of [`Proof`].
//!
//! A receipt for a new serial is given once every device is read back at or below its share, or is known to refuse it,
//! and the measured power is within that or has had time to come down. A device that keeps to no limit counts with the
//! most that it can draw. If that is not known, the receipt contains no number.

use super::armed::ArmedNow;
use super::grants::Stands;
use super::inputs::Inputs;
use super::outcome::Terms;
use super::proof::{Measured, Proof};
use crate::machine::{Device, Drawn, Means, Part, View};
use host_kit::clock::Mono;
use joulie_core::node::cap::{CapReport, CapResult};
use power_units::Watts;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is reported about a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) serial: u64,
    pub(crate) boot: String,
    pub(crate) node: String,
    /// The most that the packages and GPUs draw together; `None` if it is not known.
    pub(crate) holds: Option<Watts>,
    /// The least that they can be held to; `None` if it is not known.
    pub(crate) floor: Option<Watts>,
    /// What the node has left of the grant, where it has yielded some of it.
    pub(crate) yields: Option<Watts>,
    /// The armed events that are in force in full.
    pub(crate) armed: Vec<String>,
}

/// The devices that do not keep to the grant, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unkept {
    /// Those that do not go down to their share.
    pub(crate) refused: Vec<String>,
    /// Those that draw more than their limit, or than the closed loop's cap, for longer than a limit needs. They count
    /// with the most that they can draw.
    pub(crate) above: Vec<String>,
}

impl Unkept {
    /// Describes them for people; `None` if all devices keep to the grant.
    pub(crate) fn words(&self) -> Option<String> {
        let Self { refused, above } = self;
        let say = |keys: &[String], what| (!keys.is_empty()).then(|| format!("{} {what}", keys.join(", ")));
        let refused = say(refused, "did not go down to the share of the grant");
        let above = say(above, "drew above the limit for longer than a limit needs, and the most counts");
        let all: Vec<String> = refused.into_iter().chain(above).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// What is remembered of one node.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// One for each device that has a meter of its own, and one for each kind of device.
    proofs: BTreeMap<String, Proof>,
    /// Since when all limits are as required, and for which object and serial.
    held: Option<((String, u64), Mono)>,
    last: Option<(String, Receipt)>,
    /// The most that the grant allows that the last receipt is for.
    in_force: Option<Watts>,
    /// The limits of devices that were asked for less, and when they last refused it. Until a device goes lower, or has
    /// refused nothing for [`REFUSED_FOR`], this counts as the least it can be held to.
    refused: BTreeMap<String, (Watts, Mono)>,
    /// The devices that did not keep to the grant at the last look.
    unkept: Unkept,
    /// What armed events leave of the node.
    armed: ArmedNow,
    /// What the node has left of its grant, where it has yielded some of it and would know so after a restart.
    yields: Option<Watts>,
    /// The boot and the Node object that were last known, even if the object is gone now.
    boot: Option<String>,
    node: Option<String>,
}

/// The state of the devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    /// Whether every limit is as required, or was refused.
    held: bool,
    /// Whether the measured power is as required, too.
    shown: bool,
    holds: Option<Watts>,
}

/// How long a refusal counts as the least of a device. The operator then asks for less again where a limit is short of
/// room, so that a device that refuses for good is lowered and raised once in this time.
const REFUSED_FOR: Duration = Duration::from_secs(120);

/// A smaller difference does not count as a change.
const WIGGLE: Watts = Watts::from_int(1);

impl Receipts {
    /// Takes in what armed events leave of the node.
    pub(crate) fn arms(&mut self, armed: ArmedNow) {
        self.armed = armed;
    }

    /// Takes in what the node has left of its grant.
    pub(crate) fn yields(&mut self, left: Option<Watts>) {
        self.yields = left;
    }

    /// The receipt to publish now for the object that is followed; `None` if there is none.
    pub(crate) fn of(
        &mut self,
        stands: &Stands,
        inputs: &Inputs,
        view: &View,
        terms: &Terms,
        now: Mono,
    ) -> Option<Receipt> {
        let row = inputs.node.as_ref();
        let boot = view.boot.clone().or_else(|| row.and_then(|row| row.boot.clone()));
        self.boot = boot.or(self.boot.take());
        self.node = row.map(|row| row.uid.clone()).filter(|uid| !uid.is_empty()).or(self.node.take());
        let Some(kept) = stands.followed().filter(|_| !terms.simulate_only) else {
            self.unkept = Unkept::default();
            return None;
        };
        self.last.take_if(|(uid, _)| *uid != kept.uid);
        let (boot, node) = (self.boot.clone()?, self.node.clone()?);
        let is_armed = stands.grant().is_none() || view.desire.armed == self.armed.share;
        if view.desire.grant != stands.grant() || !is_armed {
            return self.standing();
        }
        self.unkept = Unkept::default();
        self.refused.retain(|_, (_, at)| now.since(*at) < REFUSED_FOR);
        let cpu = self.count("cpu", &view.cpu, now, terms.patience);
        let gpu = self.count("gpu", &view.gpu, now, terms.patience);
        let holds = cpu.holds.zip(gpu.holds).and_then(|(cpu, gpu)| cpu.checked_add(gpu));
        let which = (kept.uid.clone(), kept.grant.serial);
        if !(cpu.held && gpu.held) {
            self.held = None;
            return self.grown(holds);
        }
        let since = match &self.held {
            Some((before, since)) if *before == which => *since,
            Some(_) | None => now,
        };
        self.held = Some((which, since));
        let is_unmetered = |part: &Part| !part.devices.is_empty() && part.drawn == Drawn::Unmetered;
        let unmetered = is_unmetered(&view.cpu) || is_unmetered(&view.gpu);
        let waited = !unmetered || now.since(since) >= terms.patience;
        let known = self.last.as_ref().is_some_and(|(_, last)| last.serial == kept.grant.serial);
        if !(cpu.shown && gpu.shown && (waited || known)) {
            return self.grown(holds);
        }
        // A ramp is told when it is over: until then the node holds no more than its grant.
        if known && self.armed.moves && holds.is_some_and(|holds| holds <= kept.grant.watts) {
            return self.standing();
        }
        let (floor, armed) = (self.floor(view), self.armed.full.clone());
        let (serial, yields) = (kept.grant.serial, self.yields);
        let receipt = Receipt { serial, boot, node, holds, floor, yields, armed };
        let last = self.last.take().map(|(_, last)| last);
        // Where a node divides its grant anew, each share is rounded in another way.
        let devices = view.cpu.devices.len().saturating_add(view.gpu.devices.len());
        let rounding = WIGGLE.times(u32::try_from(devices).unwrap_or(u32::MAX));
        let is_over = |receipt: &Receipt| receipt.holds.is_some_and(|holds| holds > kept.grant.watts);
        // Nor does it say more than the grant when that is over.
        let is_same =
            |last: &Receipt| same(last, &receipt, rounding) && (is_over(&receipt) || !is_over(last));
        let same = last.filter(is_same);
        self.in_force = Some(kept.grant.watts);
        self.last = Some((kept.uid.clone(), same.unwrap_or(receipt)));
        self.standing()
    }

    /// Which devices do not keep to the grant.
    pub(crate) const fn unkept(&self) -> &Unkept {
        &self.unkept
    }

    /// What may be held now, where a grant of `granted` stands: what the grant allows that the last receipt is for, or what the
    /// later one allows if that is more. What is on its way down is not too much, and what is on its way up neither.
    pub(crate) fn in_force(&self, granted: Option<Watts>) -> Option<Watts> {
        let before = self.in_force?;
        Some(granted.map_or(before, |granted| granted.max(before)))
    }

    pub(crate) fn standing(&self) -> Option<Receipt> {
        self.last.as_ref().map(|(_, receipt)| receipt.clone())
    }

    /// Between two grants the old receipt stays, and the power in it only ever rises.
    fn grown(&mut self, holds: Option<Watts>) -> Option<Receipt> {
        if let Some((_, last)) = &mut self.last {
            last.holds = match (last.holds, holds) {
                (Some(before), Some(now)) if now >= before + WIGGLE => Some(now),
                (before @ Some(_), Some(_)) => before,
                (None, _) | (_, None) => None,
            };
        }
        self.standing()
    }

    fn count(&mut self, kind: &str, part: &Part, now: Mono, patience: Duration) -> Count {
        if part.means == Means::Dvfs {
            return self.count_loop(kind, part, now, patience);
        }
        let settled = !matches!(part.report, CapReport::Pending | CapReport::NoIntent);
        let each_metered = part.devices.iter().all(|device| matches!(device.drawn, Drawn::Is(_)));
        let limits = Watts::checked_sum(part.devices.iter().filter_map(ceiling));
        let together = match limits {
            Some(limits) if !each_metered => self.look(kind, limits, part.drawn, now, patience),
            Some(_) | None => Measured::Unknown,
        };
        let mut all = Count { held: true, shown: true, holds: Some(Watts::ZERO) };
        for device in &part.devices {
            let measured = match ceiling(device).filter(|_| each_metered) {
                Some(limit) => self.look(&device.key, limit, device.drawn, now, patience),
                None => together,
            };
            let within = match (device.limit, device.share) {
                (Some(limit), Some(share)) => limit <= share,
                (None, Some(_)) => false,
                (_, None) => true,
            };
            let holds = match measured {
                Measured::Above => device.range.max(),
                Measured::Within | Measured::Waiting | Measured::Unknown => ceiling(device),
            };
            all.held &= within || settled;
            self.refuses(device, settled && !within, now);
            if measured == Measured::Above {
                self.unkept.above.push(device.key.clone());
            }
            all.shown &= measured != Measured::Waiting;
            all.holds = all.holds.zip(holds).and_then(|(sum, one)| sum.checked_add(one));
        }
        all
    }

    /// Remembers the limit below which a device does not go, for a time: nobody asks for less meanwhile, so that nothing
    /// else would show that the device takes lower limits again.
    fn refuses(&mut self, device: &Device, refuses: bool, now: Mono) {
        if refuses {
            self.unkept.refused.push(device.key.clone());
        }
        let Some(limit) = device.limit else { return };
        if refuses {
            self.refused.insert(device.key.clone(), (limit, now));
        } else if self.refused.get(&device.key).is_some_and(|(known, _)| limit < *known) {
            self.refused.remove(&device.key);
        }
    }

    /// The least that all devices can be held to, by the ranges that they report and by the limits that they refused.
    fn floor(&self, view: &View) -> Option<Watts> {
        let least = |device: &Device| match device.share {
            Some(_) => self.refused.get(&device.key).map(|(limit, _)| *limit).or(device.range.min()),
            None => ceiling(device),
        };
        Watts::checked_sum(
            view.cpu.devices.iter().chain(&view.gpu.devices).map(least).collect::<Option<Vec<_>>>()?,
        )
    }

    /// A closed loop holds its cap while no more is drawn; the limits of the packages are not what holds. Where it does not,
    /// they are, and are the least that there is until it holds again.
    fn count_loop(&mut self, kind: &str, part: &Part, now: Mono, patience: Duration) -> Count {
        let mut all = part.devices.iter().map(ceiling);
        let most = all.try_fold(Watts::ZERO, |sum, one| sum.checked_add(one?));
        let fails = Count { held: true, shown: true, holds: most };
        let measured = match part.report {
            CapReport::Cap(CapResult::Applied { effective }) => {
                self.look(kind, effective, part.drawn, now, patience)
            }
            CapReport::Cap(_) | CapReport::Throttled(_) => Measured::Unknown,
            CapReport::Pending | CapReport::NoIntent => {
                return Count { held: false, shown: false, holds: most };
            }
        };
        match (measured, part.report) {
            (Measured::Within, CapReport::Cap(CapResult::Applied { effective })) => {
                for device in &part.devices {
                    self.refused.remove(&device.key);
                }
                return Count { holds: Some(effective), ..fails };
            }
            (Measured::Waiting, _) => return Count { shown: false, ..fails },
            (Measured::Above, _) => self.unkept.above.extend(part.devices.iter().map(|it| it.key.clone())),
            (Measured::Within | Measured::Unknown, _) => {}
        }
        for device in &part.devices {
            let is_above = |limit: &Watts| device.share.is_some_and(|share| *limit > share);
            if let Some(limit) = device.limit.filter(is_above) {
                self.refused.insert(device.key.clone(), (limit, now));
            }
        }
        fails
    }

    fn look(&mut self, key: &str, cap: Watts, drawn: Drawn, now: Mono, patience: Duration) -> Measured {
        self.proofs.entry(key.to_owned()).or_default().look(cap, drawn, now, patience)
    }
}

/// The most that a device draws, by its limit and by its range.
fn ceiling(device: &Device) -> Option<Watts> {
    match (device.limit, device.range.max()) {
        (Some(limit), Some(max)) => Some(limit.min(max)),
        (limit, max) => limit.or(max),
    }
}

/// Whether `a` still says what `b` says. What it says that the node holds is an upper bound, so it may be a little too much.
fn same(a: &Receipt, b: &Receipt, rounding: Watts) -> bool {
    let about = |a: Option<Watts>, b: Option<Watts>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < WIGGLE,
        (a, b) => a == b,
    };
    let Receipt { serial, boot, node, holds, floor, yields, armed } = a;
    let is_bound = holds.zip(b.holds).is_some_and(|(said, now)| now <= said && said - now < rounding);
    (*serial, boot, node, yields, armed) == (b.serial, &b.boot, &b.node, &b.yields, &b.armed)
        && (is_bound || about(*holds, b.holds))
        && about(*floor, b.floor)
}

#[cfg(test)]
pub(crate) mod tests;
