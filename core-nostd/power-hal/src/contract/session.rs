//! A run in progress: the HAL, the world, and the checks so far.

use super::ContractMode;
use super::rule::{ContractBreach, ContractReport, Rule};
use super::world::{ContractWorld, RefusableOriginals, setting_of};
use crate::{
    Applied, Control, Domain, Error, ErrorKind, Handle, Key, Originals, PowerHal, Reading, Released,
};
use crate::{Sample, Setting};

pub(super) struct Session<'a, H, W> {
    pub(super) hal: &'a mut H,
    pub(super) world: &'a mut W,
    pub(super) mode: ContractMode,
    pub(super) report: ContractReport,
}

/// A domain under test.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) handle: Handle,
    pub(super) domain: Domain,
}

impl Target {
    pub(super) const fn key(&self) -> &Key {
        self.domain.key()
    }
}

impl<J: Originals, H: PowerHal<Originals = RefusableOriginals<J>>, W: ContractWorld<H>> Session<'_, H, W> {
    /// Counts a check of a rule, and ends the run unless the rule was kept.
    pub(super) fn hold(&mut self, breach: ContractBreach, kept: bool) -> Result<(), ContractBreach> {
        self.report.look(breach.rule);
        breach.unless(kept)
    }

    pub(super) fn count(&self) -> usize {
        self.hal.domains().len()
    }

    pub(super) fn nth(&self, at: usize) -> Option<Target> {
        self.hal.domains().iter().nth(at).map(|(handle, domain)| Target { handle, domain: *domain })
    }

    /// The domain whose key comes next after `last`: this order is stable over restarts and lost
    /// devices.
    pub(super) fn after(&self, last: Option<Key>) -> Option<Target> {
        let later =
            self.hal.domains().iter().filter(|(_, domain)| last.is_none_or(|last| *domain.key() > last));
        let next = later.min_by_key(|(_, domain)| *domain.key());
        next.map(|(handle, domain)| Target { handle, domain: *domain })
    }

    pub(super) fn find(&self, key: &Key) -> Option<Target> {
        let domains = self.hal.domains();
        let handle = domains.find(key)?;
        domains.get(handle).map(|domain| Target { handle, domain: *domain })
    }

    pub(super) fn sample(&mut self, handle: Handle) -> Result<Sample, ErrorKind> {
        let mut batch = [Reading::new(handle)];
        self.hal.sample(&mut batch);
        let [reading] = batch;
        reading.outcome
    }

    /// The setting in force, from the world if it knows it, else from the HAL's own sample.
    pub(super) fn in_force(&mut self, target: &Target, control: Control) -> Option<Setting> {
        if let Some(setting) = self.world.in_force(target.key(), control) {
            return Some(setting);
        }
        let sample = self.sample(target.handle).ok()?;
        setting_of(&sample, control)
    }

    pub(super) fn apply(&mut self, target: &Target, wish: Setting) -> Result<Applied, ErrorKind> {
        self.hal.apply(target.handle, wish).map_err(|failure| failure.kind())
    }

    pub(super) fn release(&mut self, target: &Target) -> Result<Released, ErrorKind> {
        self.hal.release(target.handle).map_err(|failure| failure.kind())
    }

    /// A digest of the settings in force on all domains except one.
    pub(super) fn others(&mut self, except: &Key) -> u64 {
        let mut digest = 0_u64;
        for at in 0..self.count() {
            let Some(other) = self.nth(at).filter(|other| other.key() != except) else { continue };
            digest = digest.wrapping_add(self.state(&other));
        }
        digest
    }

    /// A digest of a domain's key and of the settings in force on it.
    pub(super) fn state(&mut self, target: &Target) -> u64 {
        let has = target.domain;
        state_of(target.key(), |control| if has.has(control) { self.in_force(target, control) } else { None })
    }

    /// Checks the order in which the limits changed since the last check, if the world records
    /// instants.
    pub(super) fn hold_order(&mut self, target: &Target) -> Result<(), ContractBreach> {
        match self.world.instants(target.key()) {
            Some(instants) => self.hold(ContractBreach::at(Rule::Ordered, target.key()), instants.ordered()),
            None => Ok(()),
        }
    }
}

/// A digest of a key and of a setting for each control.
pub(super) fn state_of(key: &Key, mut setting: impl FnMut(Control) -> Option<Setting>) -> u64 {
    let named = key.as_str().bytes().fold(SEED, |digest, byte| mix(digest, u64::from(byte)));
    Control::ALL
        .into_iter()
        .fold(named, |digest, control| mix(digest, setting(control).map_or(u64::MAX, bits)))
}

/// FNV-1a over words.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;

pub(super) fn mix(digest: u64, word: u64) -> u64 {
    (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
}

fn bits(setting: Setting) -> u64 {
    match setting {
        Setting::Power(limit) => limit.get(),
        Setting::Frequency(limit) => limit.to_bits().cast_unsigned(),
        Setting::Throttle(throttle) => throttle.to_bits().cast_unsigned(),
    }
}
