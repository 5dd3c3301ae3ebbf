//! `/debug/plan`: what the last pass decided for each node, by which rule, and from which inputs of which age; and the
//! account of each group of the budget.

use super::Reconciler;
use crate::routes::PlanAnswer;
use crate::site::Watches;
use host_kit::clock::Mono;
use host_kit::reflect::{Row, Rows};
use joulie_core::budget::Grant;
use planner::budget::{GroupPower, GroupStanding};
use planner::facility::Aged;
use planner::guard::Publication;
use planner::node::{Granted, Node};
use planner::plan::{NodeDecision, Plan};
use planner::policy::Fallback;
use planner::profile::Profile;
use planner::twin::Twin;
use power_units::Micros;
use serde_json::{Value, json};
use std::fmt::{Debug, Display};

/// The nodes of a page; for more there is `?node=NAME`.
const NODES_MAX: usize = 5_000;
/// The names in a list.
const NAMES_MAX: usize = 100;

/// What the last pass decided.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) plan: Plan,
    pub(super) twins: Vec<Twin>,
    pub(super) at: Mono,
}

impl Reconciler {
    /// The page about all nodes, or about one.
    pub(crate) fn explain(&self, node: Option<&str>, watches: &Watches, now: Mono) -> PlanAnswer {
        let Some(Decided { plan, twins, at }) = &self.decided else { return PlanAnswer::NoPass };
        let all = plan.nodes.iter().zip(twins);
        let found: Vec<_> = match node {
            Some(name) => all.filter(|(decision, _)| &*decision.node == name).collect(),
            None => all.take(NODES_MAX).collect(),
        };
        if node.is_some() && found.is_empty() {
            return PlanAnswer::NoNode;
        }
        let left_out = if node.is_some() { 0 } else { plan.nodes.len() - found.len() };
        let nodes: Vec<Value> =
            found.into_iter().map(|(decision, twin)| self.explain_node(plan, decision, twin, now)).collect();
        let page = json!({
            "pass": self.passes,
            "decision": self.decision(),
            "ageSeconds": seconds(now.since(*at).as_secs_f64()),
            "policy": policy(plan),
            "inputs": self.explain_inputs(watches, now),
            "groups": self.explain_groups(),
            "orders": {
                "byDemand": self.round.orders.orders,
                "forced": self.round.orders.forced,
                "heldBack": self.round.orders.held_back,
            },
            "away": names(plan.away.iter()),
            "out": names(plan.out.iter()),
            "nodes": nodes,
            "nodesLeftOut": left_out,
        });
        // A page about one node is for the eye.
        PlanAnswer::Page(if node.is_some() { format!("{page:#}\n") } else { format!("{page}\n") })
    }

    fn explain_inputs(&self, watches: &Watches, now: Mono) -> Value {
        let stamp = super::stamp(now);
        let facility = self.site.cluster.facility.at(stamp, self.settings.plan.facility_hold);
        let Watches {
            nodes,
            pods,
            hardware,
            profiles,
            twins,
            grants,
            budgets,
            events,
            plan,
            workloads,
            gpus,
        } = watches;
        json!({
            "watches": [
                watch(nodes, now), watch(pods, now), watch(hardware, now), watch(profiles, now),
                watch(twins, now), watch(grants, now), watch(budgets, now), watch(events, now),
                watch(plan, now),
                workloads.as_ref().map(|rows| watch(rows, now)), gpus.as_ref().map(|rows| watch(rows, now)),
            ],
            "podsKnown": self.site.cluster.pods.is_some(),
            "trustedProfiles": self.site.workloads.len(),
            "facility": {"pue": aged(facility.pue())},
        })
    }

    fn explain_groups(&self) -> Vec<Value> {
        let measured = self.measured.iter().copied().chain(std::iter::repeat(None));
        let name = |at: usize| self.shown.get(at).map(|group| group.name.clone());
        let group = |(group, measured): (&GroupStanding, Option<power_units::Watts>)| {
            json!({
                "name": group.name,
                "from": word(group.source),
                "parent": group.parent.and_then(name),
                "enforced": group.enforced,
                "nodes": group.nodes,
                "limitW": number(group.limit),
                "countedW": number(group.load),
                "measuredW": number(measured),
                "shortW": number(group.short),
                "exceededW": number(group.exceeded),
                "unknown": group.unknown,
                "kept": group.is_kept(),
                "lowered": {"watts": number(Some(group.lowered.watts)), "nodes": group.lowered.nodes},
                "holders": names(group.holders.iter()),
                "demand": group.power.as_ref().map(demand),
            })
        };
        self.shown.iter().zip(measured).map(group).collect()
    }

    fn explain_node(&self, plan: &Plan, decision: &NodeDecision, twin: &Twin, now: Mono) -> Value {
        let NodeDecision { node: name, place, planned, blocking, guard, desired, overdue, remember: _ } =
            decision;
        let node = self.site.cluster.nodes.get(*place).filter(|node| node.name == *name);
        json!({
            "node": &**name,
            "planned": planned.as_str(),
            "by": plan.policy,
            "state": guard.state.name().as_str(),
            "class": guard.state.class().as_str(),
            "held": guard.held.map(word),
            "publishes": guard.publish.map(publication),
            "desired": desired.as_ref().map(|desired| json!({
                "profile": desired.profile.as_str(), "draining": desired.draining, "caps": word(desired.caps),
            })),
            "performancePods": blocking,
            "overdue": overdue,
            "twin": {
                "headroom": number(twin.headroom),
                "coolingStress": number(twin.cooling.map(|stress| stress.percent)),
                "psuStress": number(twin.psu.map(|stress| stress.percent)),
                "cappedW": number(twin.power.node.map(|node| node.capped)),
                "ratedW": number(twin.power.node.map(|node| node.rating)),
                "drawnW": number(twin.power.draw.watts()),
                "drawnFrom": twin.power.draw.source().as_str(),
                "drawnAgeSeconds": twin.power.draw.age().map(of_micros),
            },
            "inputs": node.map(|node| self.explain_facts(node)),
            "writing": self.busy.contains_key(name),
            "leftAloneSeconds": self.backoffs.until(name).filter(|until| *until > now)
                .map(|until| seconds(until.since(now).as_secs_f64())),
        })
    }

    fn explain_facts(&self, node: &Node) -> Value {
        let told = node.published.obeyed();
        let receipt = node.receipt();
        json!({
            "presence": word(node.presence),
            "visibility": word(node.visibility),
            "confirmation": word(node.confirmation),
            "label": node.labels.profile.text.as_deref(),
            "labelOfOthers": node.labels.profile.theirs,
            "rack": node.labels.rack.as_deref(),
            "zone": node.labels.zone.as_deref(),
            "cpuModel": node.machine.resolved.hardware.cpu.model.as_deref(),
            "gpus": node.machine.resolved.hardware.gpu.as_ref().map(|gpus| gpus.count),
            "implausible": node.machine.implausible.as_deref(),
            "publishedProfile": told.map(|told| told.desired.profile.as_str()),
            "publishedCaps": told.map(|told| word(told.desired.caps)),
            "ofPersons": told.is_some_and(|told| told.persons || told.theirs.any()),
            "budget": self.site.budgets.name_of(&node.limits),
            "paused": node.limits.paused,
            "granted": granted(&node.granted),
            "demand": node.demand().map(|demand| json!({
                "bites": demand.bites(),
                "quantilesW": demand.quantiles().map(|watts| number(Some(watts))),
            })),
            "receipt": receipt.map(|receipt| json!({
                "serial": receipt.serial, "holdsW": number(Some(receipt.holds)),
            })),
        })
    }
}

/// The grant, and what is left of it after what the node has yielded. The division counts a yield also where the receipt is of
/// another boot or Node object, and shows none then.
fn granted(granted: &Granted) -> Option<Value> {
    let Grant { watts, serial, .. } = granted.grant?;
    let left = granted.stands().map(|left| left.watts);
    Some(json!({
        "watts": number(Some(watts)), "serial": serial, "released": granted.released, "leftW": number(left),
    }))
}

/// What follows demand in a group.
fn demand(power: &GroupPower) -> Value {
    let class = |[performance, draining, eco]: [Option<f64>; 3]| json!({"performance": performance, "draining": draining, "eco": eco});
    json!({
        "lends": power.lends,
        "overloaded": power.overloaded,
        "price": class(power.price.map(|price| number(Some(price)))),
        "reserveW": number(Some(power.reserve)),
        "inFlightW": number(Some(power.in_flight)),
        "bitingW": number(Some(power.biting.watts)),
        "bitingNodes": power.biting.nodes,
        "missingW": number(Some(power.missing)),
        "missingEntitledW": number(Some(power.missing_entitled)),
        "reclaimableW": class(power.reclaimable.map(|watts| number(Some(watts)))),
        "blindNodes": power.blind,
    })
}

fn policy(plan: &Plan) -> Value {
    let full = plan.nodes.iter().filter(|decision| decision.planned == Profile::Performance).count();
    json!({
        "name": plan.policy,
        "standsInBecause": plan.fallback.map(|why| match why {
            Fallback::PressureUnknown => "the pods are unknown",
        }),
        "performanceNodes": full,
        "plannedNodes": plan.nodes.len(),
        "demand": plan.demand.map(|demand| json!({
            "performancePods": demand.performance_only,
            "ofThemHardWorking": demand.hard,
            "pressure": demand.pressure(),
            "ecoPods": demand.eco_only,
            "otherPods": demand.general,
            "unrecognisedClass": demand.unrecognised,
        })),
        "releasing": names(plan.releases.iter().map(|release| &release.node)),
    })
}

fn publication(published: Publication) -> Value {
    json!({
        "profile": published.profile.as_str(),
        "capsOf": word(published.caps),
        "label": published.label.map(Profile::as_str),
        "draining": published.draining,
    })
}

/// A watch, and how long ago the API server last said anything in it.
fn watch<R: Row>(rows: &Rows<R>, now: Mono) -> Value {
    json!({
        "kind": R::KIND,
        "synced": rows.is_synced(),
        "silentSeconds": rows.silence(now).map(|silence| seconds(silence.as_secs_f64())),
        "unreadable": rows.malformed().len(),
    })
}

fn aged<T: Display>(value: Option<Aged<T>>) -> Option<Value> {
    let Aged { value, age, fresh } = value?;
    Some(json!({"value": number(Some(value)), "ageSeconds": of_micros(age), "fresh": fresh}))
}

/// The first of these names, and how many more there are.
fn names<'a>(all: impl ExactSizeIterator<Item = &'a std::sync::Arc<str>>) -> Value {
    let count = all.len();
    let some: Vec<&str> = all.take(NAMES_MAX).map(|name| &**name).collect();
    json!({"count": count, "names": some})
}

/// The word of a closed list.
fn word(value: impl Debug) -> String {
    format!("{value:?}")
}

/// A number as JSON; null if it is not known.
fn number(value: Option<impl Display>) -> Option<f64> {
    value?.to_string().parse().ok()
}

/// In tenths.
fn seconds(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

fn of_micros(age: Micros) -> f64 {
    seconds(std::time::Duration::from_micros(age.get()).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_core::budget::GrantReceipt;
    use planner::node::Signed;
    use power_units::Watts;

    #[test]
    fn what_is_left_of_a_grant_is_shown_whatever_boot_the_receipt_is_of() {
        let w = Watts::from_int;
        let grant = Some(Grant { serial: 7, watts: w(300), ceiling: w(300) });
        let yields = |serial, yields| {
            let receipt = GrantReceipt { serial, holds: w(180), floor: Watts::ZERO, yields };
            // Nothing here knows of the node's boot.
            let signed =
                Some(Signed { receipt, boot: "of before".to_owned(), node_uid: "of before".to_owned() });
            granted(&Granted { grant, signed, ..Granted::default() })
        };
        let of = |left: f64| Some(json!({"watts": 300.0, "serial": 7, "released": false, "leftW": left}));
        assert_eq!(yields(7, Some(w(200))), of(200.0));
        assert_eq!(
            [yields(7, None), yields(6, Some(w(200)))],
            [of(300.0), of(300.0)],
            "of no yield, or another grant"
        );
        assert_eq!(granted(&Granted { grant, ..Granted::default() }), of(300.0));
        assert_eq!(granted(&Granted::default()), None);
    }
}
