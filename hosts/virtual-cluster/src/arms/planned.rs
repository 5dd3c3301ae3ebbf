//! The planner that ships: the operator's round over the nodes, and the engine's record of the demand on each node.

use super::node::NodeMemory;
use super::{ArmView, CapWrite, Divider, NodeSays, NodeSecond};
use crate::site::{LimitsNow, VirtualSite};
use crate::{STEPS_A_SECOND, arms::kinds};
use joulie_core::budget::demand::{DemandReport, TokenBucket};
use joulie_core::budget::sustained::SustainedLimit;
use joulie_core::budget::{Grant, GrantReceipt, Priority};
use planner::budget::{
    BudgetLimits, BudgetMemory, LimitPlace, NodePowerModel, PowerSharing, Rules, SiteLimit, Stake, round,
};
use planner::catalog::Catalog;
use planner::inventory::HardwareFacts;
use planner::node::{Confirmation, Labels, MachineFacts, Node, Signed};
use planner::power::{NoMeasurement, NodeReading, PowerMeter};
use plant::{from_watts, to_watts};
use power_units::{Micros, Ratio, Stamp, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The planner's round as an arm.
pub struct PlannedArm {
    sharing: PowerSharing,
    nodes: Vec<Node>,
    places: BTreeMap<Arc<str>, usize>,
    classes: Vec<Priority>,
    most: Vec<Watts>,
    floors: Vec<f64>,
    settings: BudgetLimits,
    /// The limits of the site and of each rack, where they are written ones.
    written: Option<Vec<SiteLimit>>,
    memory: BudgetMemory,
    engines: Vec<NodeMemory>,
    /// Reports that have not arrived yet: when they do, and of which machine they are.
    on_their_way: Vec<(usize, usize, DemandReport)>,
    /// Something has changed since the last round.
    is_due: bool,
    /// When the last round asked for another one.
    again: Option<Stamp>,
}

/// The name of a rack.
fn rack(at: usize) -> String {
    format!("rack-{at:03}")
}

pub(super) fn watts(watts: f64) -> Watts {
    to_watts(watts).unwrap_or(Watts::ZERO)
}

/// The time of a step.
pub(super) fn stamp(step: usize) -> Stamp {
    Stamp::new(Micros::new(step as u64 * 1_000_000 / STEPS_A_SECOND as u64))
}

impl PlannedArm {
    /// The planner for a site, with so many orders a minute for 5,000 machines.
    ///
    /// # Panics
    /// When the embedded catalogue cannot be read.
    #[must_use]
    pub fn new(sharing: PowerSharing, orders_a_minute: u32, site: &VirtualSite) -> Self {
        let catalog = Catalog::embedded().expect("the catalogue is part of the planner");
        let facts = MachineFacts::of(&HardwareFacts::default(), None, false, (true, true), &catalog);
        let racks: Vec<Arc<str>> = (0..site.base.len()).map(|at| rack(at).into()).collect();
        let nodes: Vec<Node> = site
            .machines
            .iter()
            .enumerate()
            .map(|(at, machine)| {
                let model = NodePowerModel::lump(watts(machine.kind.floor()), watts(machine.kind.max()));
                let machine_facts = MachineFacts { power_model: model, has_agent: true, ..facts.clone() };
                node(at, machine_facts, racks.get(machine.rack).cloned())
            })
            .collect();
        let places = nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
        let rack_base = site.base.iter().enumerate().map(|(at, &base)| (rack(at), watts(base))).collect();
        let most = kinds(site).iter().map(|kind| watts(kind.max())).collect();
        Self {
            sharing,
            nodes,
            places,
            classes: site.machines.iter().map(|machine| machine.class).collect(),
            most,
            floors: kinds(site).iter().map(|kind| kind.floor()).collect(),
            settings: settings(rack_base, sharing),
            written: None,
            memory: BudgetMemory::with_tokens(tokens(orders_a_minute, site)),
            engines: vec![NodeMemory::new(); site.machines.len()],
            on_their_way: Vec::new(),
            is_due: true,
            again: None,
        }
    }

    /// The same by demand, with written limits, of which that of the site has a second one for the mean of a minute where the
    /// experiment has one.
    #[must_use]
    pub fn written(site: &VirtualSite) -> Self {
        let mut arm = Self::new(PowerSharing::Demand, TokenBucket::PER_MINUTE, site);
        for (node, machine) in arm.nodes.iter_mut().zip(&site.machines) {
            node.limits = LimitPlace { limit: Some(1 + machine.rack), bound: true, ..LimitPlace::default() };
        }
        arm.written = Some(Vec::new());
        arm
    }

    /// Takes over what the cluster shows of each node's grant.
    fn observe(&mut self, step: usize, views: &[ArmView]) {
        for ((node, view), engine) in self.nodes.iter_mut().zip(views).zip(&mut self.engines) {
            node.power.reading = match view.second {
                Some(second) => NodeReading::Measured {
                    meter: PowerMeter::Agent,
                    watts: watts(second.drawn),
                    age: Micros::new(1_000_000),
                },
                None => NodeReading::Absent(NoMeasurement::NotConfigured),
            };
            let granted = &mut node.granted;
            if granted.grant.is_none() {
                let first = watts(view.asked);
                granted.grant = Some(Grant { serial: view.serial, watts: first, ceiling: first });
            }
            let yields = view.yields.map(watts);
            let receipt =
                GrantReceipt { serial: view.heard, holds: watts(view.holds), floor: Watts::ZERO, yields };
            if granted.signed.as_ref().is_none_or(|signed| signed.receipt != receipt) {
                let (boot, node_uid) = (node.boot.clone(), node.uid.clone());
                granted.signed = Some(Signed { receipt, boot, node_uid });
                granted.demand = engine.with_receipt(stamp(step)).or(granted.demand);
                self.is_due = true;
            }
        }
    }

    /// Takes over the reports that have arrived.
    fn receive(&mut self, step: usize) {
        let (nodes, is_due) = (&mut self.nodes, &mut self.is_due);
        self.on_their_way.retain(|(at, machine, report)| {
            let Some(node) = nodes.get_mut(*machine).filter(|_| *at <= step) else { return true };
            node.granted.demand = Some(*report);
            *is_due = true;
            false
        });
    }

    /// Takes over the limits, if they have changed.
    fn follow(&mut self, limits: &LimitsNow) {
        if let Some(written) = &mut self.written {
            let now = site_limits(limits, &self.settings.rack_base);
            self.is_due |= now != *written;
            *written = now;
            return;
        }
        let site = Some(watts(limits.site));
        if self.settings.site != site {
            self.settings.site = site;
            self.settings.racks =
                limits.racks.iter().enumerate().map(|(at, &limit)| (rack(at), watts(limit))).collect();
            self.is_due = true;
        }
    }
}

/// The limits of the site and of each rack, as persons would have written them.
fn site_limits(limits: &LimitsNow, rack_base: &BTreeMap<String, Watts>) -> Vec<SiteLimit> {
    let one = |name: String, parent, limit, base| SiteLimit {
        name: name.into(),
        parent,
        watts: watts(limit),
        base,
        enforced: true,
        paused: false,
        armed: limits.armed,
        sustained: None,
    };
    let both = SustainedLimit::new(watts(limits.instant), watts(limits.site), Micros::MINUTE);
    let sustained = both.ok().filter(|_| limits.instant > limits.site);
    let site = SiteLimit { sustained, ..one("site".to_owned(), None, limits.instant, Watts::ZERO) };
    let racks = limits.racks.iter().enumerate().map(|(at, &limit)| {
        let name = rack(at);
        let base = rack_base.get(&name).copied().unwrap_or(Watts::ZERO);
        one(name, Some(0), limit, base)
    });
    std::iter::once(site).chain(racks).collect()
}

/// The orders that may go out, in proportion to so many a minute for 5,000 machines.
pub(super) fn tokens(orders_a_minute: u32, site: &VirtualSite) -> TokenBucket {
    let count = u32::try_from(site.machines.len()).unwrap_or(u32::MAX);
    let per_minute = count.saturating_mul(orders_a_minute) / 5_000;
    TokenBucket::new(per_minute, TokenBucket::BURST)
}

/// What the operator's settings are without a word.
fn settings(rack_base: BTreeMap<String, Watts>, sharing: PowerSharing) -> BudgetLimits {
    BudgetLimits {
        rack_base,
        sharing,
        dead_band: Watts::from_int(5),
        raise_band: Ratio::from_bits(Ratio::ONE.to_bits() / 20),
        raise_dwell: Micros::new(30_000_000),
        answer_within: Micros::new(30_000_000),
        gone_hold: Micros::new(600_000_000),
        ..BudgetLimits::none()
    }
}

fn node(at: usize, machine: MachineFacts, rack: Option<Arc<str>>) -> Node {
    Node {
        labels: Labels { rack, ..Labels::default() },
        confirmation: Confirmation::InForce,
        ..Node::ready(&format!("node-{at:05}"), machine)
    }
}

impl Divider for PlannedArm {
    fn sense(&mut self, step: usize, machine: usize, second: NodeSecond) -> NodeSays {
        let Some(engine) = self.engines.get_mut(machine).filter(|_| self.sharing == PowerSharing::Demand)
        else {
            return NodeSays::default();
        };
        let (Some(&most), Some(&floor)) = (self.most.get(machine), self.floors.get(machine)) else {
            return NodeSays::default();
        };
        let (says, report) = engine.learn(stamp(step), &second, (floor, from_watts(most)));
        self.on_their_way.extend(report.map(|report| (step + 1, machine, report)));
        says
    }

    fn defers(&self) -> bool {
        self.sharing == PowerSharing::Demand
    }

    fn decide(&mut self, step: usize, limits: &LimitsNow, views: &[ArmView], caps: &mut Vec<CapWrite>) {
        self.observe(step, views);
        self.follow(limits);
        self.receive(step);
        // A round follows each change, and when the last one asked for another.
        let is_time = self.again.is_some_and(|again| stamp(step) >= again);
        if !self.is_due && !is_time {
            return;
        }
        self.is_due = false;
        let stakes: Vec<Stake<'_>> = self
            .nodes
            .iter()
            .zip(self.most.iter().zip(&self.classes))
            .map(|(node, (&most, &priority))| Stake {
                node,
                priority,
                wanted: Some(most),
                leaves: false,
                aside: false,
            })
            .collect();
        let limits = self.written.as_deref().unwrap_or_default();
        let rules = Rules { settings: &self.settings, limits, trial: false };
        let made =
            round(&stakes, rules, &mut self.memory, stamp(step), true).expect("the limits are consistent");
        self.again = made.again;
        for ask in made.asks {
            let Some(&machine) = self.places.get(&ask.node) else { continue };
            let Some(node) = self.nodes.get_mut(machine) else { continue };
            let grant = Grant { serial: node.granted.next_serial(), watts: ask.watts, ceiling: ask.ceiling };
            node.granted.grant = Some(grant);
            caps.push(CapWrite { machine, watts: from_watts(ask.watts), lends: ask.lends });
        }
    }
}
