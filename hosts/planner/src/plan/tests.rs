use super::*;
use crate::demand::{PodConstraints, PodPhase, PodRow};
use crate::guard::StateName;
use crate::hardware::ResolvedHardware;
use crate::intent::{CapSettings, DeviceCap, GpuNodeCpus, UserRanges};
use crate::inventory::{HardwareFacts, LabelFacts};
use crate::policy::{QueueAware, RuleSwap, StaticPartition};
use crate::profile::PerProfile;
use power_units::{Percent, Ratio, Role, Watts};
use proptest::prelude::*;
use std::collections::BTreeSet;

mod rig;
use crate::budget::{self, BudgetLimits, NodePowerModel, Rules};
use crate::node::rig::{carried, state};
use crate::node::{Carried, Published, Signed};
use joulie_core::budget::{Grant, GrantReceipt};
use rig::*;

const GONE: [ObjectChange; 2] = [ObjectChange::NoLabels, ObjectChange::NoState];

#[test]
fn the_densest_nodes_of_every_family_get_full_power() {
    // Table C2 through the whole pass: h100-a, mi300x-a and cpu-a.
    let mut cluster = Rig::of(&[
        ("h100-b", "NVIDIA_H100_SXM", 8),
        ("cpu-a", "", 0),
        ("h100-a", "NVIDIA_H100_SXM", 8),
        ("mi300x-a", "AMD_INSTINCT_MI300X", 4),
    ]);
    let plan = cluster.pass(&settings(static_partition("0.25")));
    assert_eq!(planned(&plan, Profile::Performance), ["cpu-a", "h100-a", "mi300x-a"]);
    let order: Vec<_> = plan.nodes.iter().map(|node| &*node.node).collect();
    assert_eq!(order, ["h100-a", "h100-b", "mi300x-a", "cpu-a"]);
    assert_eq!((plan.policy, plan.fallback), ("static-partition-v1", None));
}

#[test]
fn a_cluster_that_is_as_planned_gives_no_actions() {
    let mut cluster = Rig::of(&[("a", "NVIDIA_L40S", 4), ("b", "", 0), ("c", "", 0), ("d", "", 0)]);
    for settings in [settings(static_partition("0.5")), hard(static_partition("0.5"))] {
        cluster.settle(&settings);
        let plan = cluster.pass(&settings);
        assert!(plan.is_quiet() && plan.nodes.iter().all(|node| node.guard.applied.is_none()));
        assert!(plan.releases.is_empty());
    }
    // A new leader without a memory has nothing to change either.
    cluster.memory = PlanMemory::default();
    let plan = cluster.pass(&settings(static_partition("0.5")));
    assert!(plan.is_quiet(), "{plan:?}");
}

#[test]
fn a_downgrade_writes_the_label_then_the_cap() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("1")));
    let plan = cluster.pass(&settings(static_partition("0.5")));
    let changes = plan.changes("b");
    assert_eq!(
        changes.first(),
        Some(&ObjectChange::Labels { profile: Some(Profile::Eco), draining: Some(false) })
    );
    assert!(matches!(changes.get(1), Some(ObjectChange::State(write)) if write.desired.caps == cpu_caps(60)));
    assert_eq!(changes.len(), 2);
}

#[test]
fn an_upgrade_writes_the_cap_sees_it_confirmed_then_the_label() {
    // Fix list operator B30.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("0.5")));
    let up = settings(static_partition("1"));
    cluster.agents = Confirmation::Awaited;
    let first = cluster.pass(&up);
    assert!(
        matches!(first.changes("b"), [ObjectChange::State(write)] if write.desired.caps == cpu_caps(100))
    );
    assert_eq!(node(&first, "b").guard.held, Some(HoldReason::CapsUnconfirmed));
    assert!(cluster.pass(&up).changes("b").is_empty(), "it waits and writes nothing");
    assert_eq!(cluster.label("b"), Some("eco"));
    cluster.confirm();
    let last = cluster.pass(&up);
    let labels = [ObjectChange::Labels { profile: Some(Profile::Performance), draining: Some(false) }];
    assert_eq!(last.changes("b"), labels);
    assert_eq!(cluster.label("b"), Some("performance"));
}

#[test]
fn an_upgrade_under_a_limit_waits_until_its_entitlement_is_known_to_fit() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("0.5")));
    let mut up = settings(static_partition("1"));
    up.budget = BudgetLimits { site: Some(Watts::from_int(1000)), ..BudgetLimits::none() };
    confirm_grant(cluster.row("b"));
    cluster.pass(&up);
    cluster.confirm();
    // The caps are confirmed, and no round has said what the node is entitled to.
    assert_eq!(node(&cluster.pass(&up), "b").guard.held, Some(HoldReason::CapsUnconfirmed));
    assert_eq!(cluster.label("b"), Some("eco"));
    let rules = Rules { settings: &up.budget, limits: &[], trial: false };
    budget::round(&[], rules, &mut cluster.memory.budget, Stamp::new(Micros::ZERO), true).unwrap();
    cluster.pass(&up);
    assert_eq!(cluster.label("b"), Some("performance"));
}

#[test]
fn a_confirmation_of_other_caps_confirms_nothing() {
    // The agent confirms the published caps of eco; that does not confirm the caps of performance.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("0.5")));
    let plan = cluster.pass(&settings(static_partition("1")));
    assert_eq!(node(&plan, "b").guard.state, TransitionState::ActiveEco);
    assert!(!plan.changes("b").iter().any(|change| matches!(change, ObjectChange::Labels { .. })));
}

#[test]
fn a_node_whose_owner_allows_far_less_is_not_offered_as_a_performance_node() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("0.5")));
    let up = settings(static_partition("1"));
    cluster.agents = Confirmation::Short;
    cluster.pass(&up);
    let plan = cluster.pass(&up);
    assert_eq!(node(&plan, "b").guard.held, Some(HoldReason::CapsUnconfirmed));
    assert!(plan.changes("b").is_empty(), "the caps of performance stand, and nothing more is written");
    assert_eq!(cluster.label("b"), Some("eco"));
}

#[test]
fn bare_nodes_without_agents_are_labelled_at_once() {
    // Table C14: two managed bare nodes under rule_swap get one performance and one eco label in one pass.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.agents = Confirmation::Unenforced;
    cluster.nodes.iter_mut().for_each(|row| row.confirmation = Confirmation::Unenforced);
    let mut swap = settings(PlacementPolicy::RuleSwap(RuleSwap::new(Micros::MINUTE)));
    swap.draining_label = DrainingLabel::OnlyWhileDraining;
    cluster.pass(&swap);
    assert_eq!((cluster.label("a"), cluster.label("b")), (Some("eco"), Some("performance")));
    cluster.seconds = 60;
    cluster.pass(&swap);
    assert_eq!((cluster.label("a"), cluster.label("b")), (Some("performance"), Some("eco")));
    assert!(
        cluster.nodes.iter().all(|node| node.labels.draining.text.is_none()),
        "no mark where nothing ever drained"
    );
}

#[test]
fn a_node_with_performance_pods_drains_and_then_is_eco() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("1")));
    cluster.add_pods("b", PodPhase::Running, "performance", 2);
    let half = settings(static_partition("0.5"));
    let plan = cluster.pass(&half);
    let b = node(&plan, "b");
    assert_eq!((b.blocking, b.guard.state.name().as_str()), (Some(2), "DrainingPerformance"));
    assert_eq!((cluster.label("b"), cluster.draining("b")), (Some("eco"), Some("true")));
    assert_eq!(cluster.caps("b"), cpu_caps(60), "the soft guard caps at once");
    cluster.pods.as_mut().unwrap().clear();
    let plan = cluster.pass(&half);
    let applied = node(&plan, "b").guard.applied.unwrap();
    assert_eq!((applied.0.as_str(), applied.1.as_str()), ("DrainingPerformance", "ActiveEco"));
    assert_eq!((cluster.label("b"), cluster.draining("b")), (Some("eco"), Some("false")));
}

#[test]
fn the_draining_label_is_always_there_or_only_while_a_node_drains() {
    // Seeds: "count == 0: set node label joulie.io/draining=false". Table C14 and C16: "no draining label".
    for (mark, at_rest) in [(DrainingLabel::Always, Some("false")), (DrainingLabel::OnlyWhileDraining, None)]
    {
        let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
        let with = |fraction| Settings { draining_label: mark, ..settings(static_partition(fraction)) };
        cluster.settle(&with("1"));
        assert_eq!((cluster.draining("a"), cluster.draining("b")), (at_rest, at_rest));
        cluster.add_pods("b", PodPhase::Running, "performance", 1);
        cluster.settle(&with("0.5"));
        assert_eq!((cluster.draining("a"), cluster.draining("b")), (at_rest, Some("true")));
        cluster.pods.as_mut().unwrap().clear();
        cluster.settle(&with("0.5"));
        assert_eq!((cluster.draining("a"), cluster.draining("b")), (at_rest, at_rest));
        // An invalid text is corrected, and then nothing more changes.
        cluster.row("a").labels.draining.text = Some("maybe".into());
        cluster.pass(&with("0.5"));
        assert_eq!(cluster.draining("a"), at_rest);
        assert!(cluster.pass(&with("0.5")).is_quiet());
    }
}

#[test]
fn what_somebody_else_owns_is_no_difference() {
    // Table C14: an unchanged label is no write, and a person's is never written over.
    let eco = |drains| LabelsSay::These { profile: Some(Profile::Eco), draining: Some(drains), drains };
    let differs =
        |node: &Node, drains| diff(&Objects { labels: Some(eco(drains)), ..Objects::default() }, node, false);
    let mut node = row("a", "", 0);
    let labels = |draining| [ObjectChange::Labels { profile: Some(Profile::Eco), draining: Some(draining) }];
    assert_eq!(differs(&node, false), labels(false));
    (node.labels.profile.text, node.labels.draining.text) = (Some("eco".into()), Some("false".into()));
    assert_eq!(differs(&node, false), []);
    node.labels.profile.text = Some("performance".into());
    node.labels.profile.theirs = true;
    assert_eq!(differs(&node, false), []);
    assert_eq!(differs(&node, true), labels(true), "the mark is ours");
    node.labels.draining.theirs = true;
    assert_eq!(differs(&node, true), []);
}

/// It has confirmed its grant in this boot.
fn confirm_grant(node: &mut Node) {
    let receipt = GrantReceipt { serial: 1, holds: Watts::from_int(500), floor: Watts::ZERO, yields: None };
    let (boot, node_uid) = (node.boot.clone(), node.uid.clone());
    node.granted.signed = Some(Signed { receipt, boot, node_uid });
}

#[test]
fn a_node_that_nobody_is_known_to_cap_is_tainted_where_that_is_asked() {
    let limited = |taint_uncapped| Settings {
        budget: BudgetLimits { site: Some(Watts::from_int(1000)), ..BudgetLimits::none() },
        taint_uncapped,
        ..settings(static_partition("1"))
    };
    let told = |node: &Node, settings: &Settings| diff(&desired(node, None, settings), node, false);
    let mut node = row("a", "", 0);
    assert_eq!(told(&node, &limited(true)), [ObjectChange::Taint(true)]);
    assert_eq!(told(&node, &limited(false)), []);
    assert_eq!(told(&node, &Settings { taint_uncapped: true, ..settings(static_partition("1")) }), []);
    node.tainted = true;
    assert_eq!(told(&node, &limited(true)), []);
    assert_eq!(told(&node, &limited(false)), [ObjectChange::Taint(false)], "it goes with the setting");
    confirm_grant(&mut node);
    assert_eq!(told(&node, &limited(true)), [ObjectChange::Taint(false)]);
    node.tainted = false;
    node.boot = "another".to_owned();
    assert_eq!(told(&node, &limited(true)), [ObjectChange::Taint(true)], "it has rebooted");
    node.machine.has_agent = true;
    assert_eq!(told(&node, &limited(true)), [ObjectChange::Taint(true)]);
    node.machine.power_model = NodePowerModel::of(&node.machine.resolved.hardware, (false, false));
    assert_eq!(told(&node, &limited(true)), [], "its agent has nothing to cap with");
    node.selected = false;
    assert_eq!(told(&node, &limited(true)), []);
}

#[test]
fn the_hard_guard_holds_the_caps_until_the_pods_are_gone() {
    // Fix list operator B9.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&hard(static_partition("1")));
    cluster.add_pods("b", PodPhase::Running, "performance", 1);
    let half = hard(static_partition("0.5"));
    for _ in 0..3 {
        cluster.pass(&half);
        assert_eq!((cluster.label("b"), cluster.draining("b")), (Some("eco"), Some("true")));
        assert_eq!(cluster.caps("b"), cpu_caps(100));
    }
    // A new leader finds the same state in the objects.
    cluster.memory = PlanMemory::default();
    cluster.pass(&half);
    assert_eq!(cluster.caps("b"), cpu_caps(100));
    cluster.pods.as_mut().unwrap().clear();
    cluster.pass(&half);
    assert_eq!(cluster.caps("b"), cpu_caps(60));
}

#[test]
fn other_settings_do_not_lower_the_caps_of_a_node_that_drains() {
    // Fix list operator B9. Performance was 100 % when the drain began, and is 90 % for the leader that takes over.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&hard(static_partition("1")));
    cluster.add_pods("b", PodPhase::Running, "performance", 1);
    cluster.pass(&hard(static_partition("0.5")));
    cluster.memory = PlanMemory::default();
    let mut half = hard(static_partition("0.5"));
    half.intents = cpu_intents(90, 60);
    for _ in 0..3 {
        cluster.pass(&half);
        assert_eq!((cluster.label("b"), cluster.draining("b")), (Some("eco"), Some("true")));
        assert_eq!(cluster.caps("b"), cpu_caps(100));
    }
    cluster.pods.as_mut().unwrap().clear();
    cluster.pass(&half);
    assert_eq!(cluster.caps("b"), cpu_caps(60));
}

#[test]
fn an_eco_label_alone_does_not_cap_a_node_that_runs_performance_pods() {
    // Fix list operator B9. The label may have been written by anyone, with no desired state or with that of
    // performance.
    for published in [None, Some(cpu_caps(100))] {
        let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
        cluster.put_label("b", "eco");
        if let Some(caps) = published {
            cluster.publish("b", ours(Profile::Performance, caps));
        }
        cluster.add_pods("b", PodPhase::Running, "performance", 1);
        let half = hard(static_partition("0.5"));
        for _ in 0..3 {
            let plan = cluster.pass(&half);
            assert_eq!(node(&plan, "b").guard.state.name(), StateName::DrainingPerformance);
            assert_eq!(cluster.caps("b"), cpu_caps(100));
        }
        cluster.pods.as_mut().unwrap().clear();
        cluster.settle(&half);
        assert_eq!((cluster.label("b"), cluster.caps("b")), (Some("eco"), cpu_caps(60)));
    }
}

#[test]
fn a_performance_label_over_the_caps_of_eco_is_not_taken_at_its_word() {
    // Fix list operator B30.
    let mut cluster = Rig::of(&[("a", "", 0)]);
    cluster.put_label("a", "performance");
    cluster.publish("a", ours(Profile::Eco, cpu_caps(60)));
    cluster.agents = Confirmation::Awaited;
    let all = settings(static_partition("1"));
    let mut unenforced = cluster.clone();
    let plan = cluster.pass(&all);
    assert_eq!(node(&plan, "a").guard.held, Some(HoldReason::CapsUnconfirmed));
    assert_eq!((cluster.label("a"), cluster.caps("a")), (Some("eco"), cpu_caps(100)));
    cluster.confirm();
    cluster.pass(&all);
    assert_eq!(cluster.label("a"), Some("performance"));
    // If nothing can have capped the node, the label is right.
    unenforced.row("a").confirmation = Confirmation::Unenforced;
    let plan = unenforced.pass(&all);
    assert_eq!(node(&plan, "a").guard.state, TransitionState::ActivePerformance);
}

#[test]
fn a_label_that_says_nothing_does_not_lift_the_caps_of_a_busy_node() {
    // Fix list operator B9. 60 % are those of eco, 70 % those of neither profile.
    for percent in [60, 70] {
        let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
        cluster.put_label("b", "garbage");
        cluster.publish("b", ours(Profile::Eco, cpu_caps(percent)));
        cluster.add_pods("b", PodPhase::Running, "performance", 1);
        let half = hard(static_partition("0.5"));
        for _ in 0..3 {
            cluster.pass(&half);
            assert_eq!((cluster.label("b"), cluster.caps("b")), (Some("eco"), cpu_caps(percent)));
        }
    }
}

#[test]
fn the_guard_counts_the_pods_of_the_node_that_are_not_done() {
    // Table C6, node count test, and Fix list operator B8: a pending pod that is bound blocks, an unbound one does not.
    let mut cluster = Rig::of(&[("a", "", 0)]);
    cluster.add_pods("a", PodPhase::Running, "performance", 1);
    cluster.add_pods("a", PodPhase::Running, "standard", 1);
    cluster.add_pods("a", PodPhase::Succeeded, "performance", 1);
    cluster.add_pods("elsewhere", PodPhase::Running, "performance", 1);
    cluster.add_pods("", PodPhase::Pending, "performance", 1);
    let mut eco = cluster.pods.clone().unwrap();
    eco[0].asks = PodConstraints { node_selector: Some("eco".to_owned()), ..PodConstraints::default() };
    let none = settings(static_partition("0"));
    assert_eq!(node(&cluster.pass(&none), "a").blocking, Some(1));
    cluster.add_pods("a", PodPhase::Pending, "performance", 1);
    assert_eq!(node(&cluster.pass(&none), "a").blocking, Some(2));
    cluster.pods = Some(eco);
    assert_eq!(node(&cluster.pass(&none), "a").blocking, Some(0));
}

#[test]
fn waiting_pods_raise_the_pressure_and_pods_elsewhere_do_not() {
    // Fix list operator B8.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0), ("c", "", 0), ("d", "", 0)]);
    cluster.nodes[3].selected = false;
    cluster.add_pods("", PodPhase::Pending, "performance", 15);
    cluster.add_pods("a", PodPhase::Running, "Performance", 6);
    cluster.add_pods("d", PodPhase::Running, "performance", 100);
    cluster.add_pods("gone", PodPhase::Running, "performance", 100);
    cluster.add_pods("a", PodPhase::Failed, "performance", 100);
    let queue = settings(queue_aware("0", 0, 100, 10));
    let plan = cluster.pass(&queue);
    assert_eq!(plan.demand.unwrap().performance_only, 21);
    assert_eq!(planned(&plan, Profile::Performance).len(), 3);
    // Pods in an ignored namespace are neither pressure nor a reason to wait.
    cluster.ignored = BTreeSet::from(["default".to_owned()]);
    let plan = cluster.pass(&queue);
    assert_eq!(plan.demand, Some(ProfileDemand::default()));
    assert!(plan.nodes.iter().all(|node| node.blocking == Some(0)));
}

#[test]
fn without_pods_nothing_is_downgraded_and_the_base_stands_in() {
    // Fix list operator B13; table C3, pod LIST error.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0), ("c", "", 0)]);
    cluster.add_pods("", PodPhase::Pending, "performance", 30);
    let queue = settings(queue_aware("0.34", 0, 100, 10));
    cluster.settle(&queue);
    assert_eq!(cluster.label("c"), Some("performance"));
    cluster.pods = None;
    let plan = cluster.pass(&queue);
    assert_eq!((plan.policy, plan.fallback), ("static-partition-v1", Some(Fallback::PressureUnknown)));
    assert_eq!(planned(&plan, Profile::Performance), ["a"]);
    assert_eq!(node(&plan, "c").guard.held, Some(HoldReason::PodsUnknown));
    assert!(plan.is_quiet(), "not even the policy's name is written");
    assert_eq!(cluster.label("c"), Some("performance"));
    // An upgrade needs no pods.
    let plan = cluster.pass(&settings(static_partition("1")));
    assert_eq!(planned(&plan, Profile::Performance).len(), 3);
}

#[test]
fn a_node_that_nobody_knows_anything_of_is_left_alone_while_the_pods_are_not_known() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.put_label("b", "garbage");
    cluster.pods = None;
    let plan = cluster.pass(&settings(static_partition("0.5")));
    let b = node(&plan, "b");
    assert_eq!((b.guard.state.name(), &b.desired), (StateName::Unknown, &None));
    assert!(plan.changes("b").is_empty());
}

#[test]
fn nodes_that_are_lost_are_no_supply_and_stay_as_they_are() {
    // Fix list operator B30.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0), ("c", "", 0)]);
    cluster.settle(&settings(static_partition("0.34")));
    assert_eq!(cluster.label("a"), Some("performance"));
    cluster.nodes[0].presence = Presence::Lost;
    let plan = cluster.pass(&settings(static_partition("0.34")));
    assert_eq!((&plan.out, &plan.away), (&vec!["a".into()], &vec![]));
    assert_eq!(planned(&plan, Profile::Performance), ["b"]);
    assert!(plan.releases.is_empty());
    assert_eq!(cluster.label("a"), Some("performance"));
}

#[test]
fn nodes_that_are_away_keep_their_places_and_the_others_theirs() {
    // The nodes that exist after an outage of the API server: none at first, then one after the other, in any order.
    let names = ["a", "b", "c", "d", "e", "f"];
    let nodes: Vec<_> =
        names.iter().map(|&name| (name, if name < "e" { "" } else { "NVIDIA_L40S" }, 4)).collect();
    let half = settings(static_partition("0.5"));
    let mut settled = Rig::of(&nodes);
    settled.settle(&half);
    let labels = |cluster: &Rig| names.map(|name| cluster.label(name).unwrap().to_owned());
    let performance = ["performance", "eco", "eco", "eco", "performance", "performance"];
    assert_eq!(labels(&settled), performance, "of two families the first, and the densest");
    for first in 0..names.len() {
        for (visibility, memory) in
            [(Visibility::Clear, settled.memory.clone()), (Visibility::Blind, PlanMemory::default())]
        {
            let mut cluster = settled.clone();
            cluster.memory = memory;
            for row in &mut cluster.nodes {
                (row.presence, row.visibility) = (Presence::Away, visibility);
            }
            for back in 0..=names.len() {
                let plan = cluster.pass(&half);
                assert_eq!((plan.nodes.len(), plan.away.len()), (back, names.len() - back));
                assert!(plan.is_quiet(), "{first} {back} {plan:?}");
                if back < names.len() {
                    cluster.nodes[(first + back) % names.len()].presence = Presence::Ready;
                }
            }
            assert_eq!(labels(&cluster), performance);
        }
    }
}

#[test]
fn a_node_that_is_away_keeps_full_power_if_it_has_it_and_is_not_raised_to_it() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0), ("c", "", 0), ("d", "", 0)]);
    cluster.settle(&settings(static_partition("0.25")));
    cluster.row("a").presence = Presence::Away;
    cluster.row("b").presence = Presence::Away;
    let plan = cluster.pass(&settings(static_partition("0.5")));
    assert_eq!(planned(&plan, Profile::Performance), ["c"], "a has one of the two places");
    assert_eq!((&plan.away, &plan.out), (&vec!["a".into(), "b".into()], &vec![]));
    assert_eq!(cluster.label("b"), Some("eco"));
}

#[test]
fn a_raise_that_was_under_way_when_all_went_is_not_given_to_another() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0), ("c", "", 0), ("d", "", 0)]);
    cluster.settle(&settings(static_partition("0.25")));
    cluster.agents = Confirmation::Awaited;
    let half = settings(static_partition("0.5"));
    cluster.pass(&half);
    assert_eq!(
        (cluster.label("b"), cluster.caps("b")),
        (Some("eco"), cpu_caps(100)),
        "it is not confirmed yet"
    );
    cluster.nodes.iter_mut().for_each(|row| row.presence = Presence::Away);
    for memory in [cluster.memory.clone(), PlanMemory::default()] {
        let mut cluster = Rig { memory, ..cluster.clone() };
        for name in ["c", "d", "a", "b"] {
            cluster.row(name).presence = Presence::Ready;
            let plan = cluster.pass(&half);
            assert!(plan.is_quiet(), "{name} {plan:?}");
        }
        cluster.confirm();
        cluster.pass(&half);
        assert_eq!((cluster.label("b"), cluster.label("c")), (Some("performance"), Some("eco")));
    }
}

#[test]
fn a_node_that_never_was_ready_is_not_counted() {
    // Four ready nodes give two performance nodes; ten starting nodes would give five more.
    let there = ["a", "b", "c", "d"].map(|name| (name, "", 0));
    let starting = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"].map(|name| (name, "NVIDIA_L40S", 4));
    let mut cluster = Rig::of(&[there.as_slice(), &starting].concat());
    for (name, ..) in starting {
        cluster.row(name).presence = Presence::Away;
    }
    let plan = cluster.pass(&settings(static_partition("0.5")));
    assert_eq!(planned(&plan, Profile::Performance), ["a", "b"]);
    assert_eq!((plan.away.len(), plan.out.len()), (0, 10));
}

#[test]
fn no_eligible_node_gives_an_empty_plan() {
    let mut cluster = Rig::of(&[]);
    let plan = cluster.pass(&settings(static_partition("0.5")));
    assert!(plan.nodes.is_empty() && plan.releases.is_empty());
}

#[test]
fn a_node_that_is_not_eligible_any_more_is_lifted_then_unlabelled_then_forgotten() {
    // Fix list operator B17.
    type Leave = fn(&mut Node);
    let leave: [(Leave, ReleaseReason); 3] = [
        (|row| row.selected = false, ReleaseReason::Deselected),
        (|row| row.reserved = true, ReleaseReason::Reserved),
        (|row| row.unschedulable = true, ReleaseReason::Cordoned),
    ];
    for (change, reason) in leave {
        let mut cluster = Rig::of(&[("a", "", 0), ("b", "NVIDIA_L40S", 4), ("c", "", 0)]);
        let settings = settings(static_partition("0"));
        cluster.settle(&settings);
        // c is the only eco node: a and b are their families' supply.
        change(cluster.row("c"));
        cluster.agents = Confirmation::Awaited;
        let plan = cluster.pass(&settings);
        let [release] = plan.releases.as_slice() else { panic!("{plan:?}") };
        assert_eq!((&*release.node, release.reason), ("c", reason));
        let lifted = NodeCaps { cpu: Some(DeviceCap::LIFTED), gpu: None };
        assert!(matches!(plan.changes("c"), [ObjectChange::State(write)] if write.desired.caps == lifted));
        assert!(cluster.pass(&settings).changes("c").is_empty(), "it waits for the agent");
        assert_eq!(cluster.label("c"), Some("eco"), "and keeps its label until then");
        cluster.agents = Confirmation::InForce;
        cluster.confirm();
        let plan = cluster.pass(&settings);
        assert_eq!(plan.changes("c"), GONE);
        assert_eq!(cluster.label("c"), None);
        assert!(cluster.pass(&settings).releases.is_empty());
    }
}

#[test]
fn a_release_waits_for_an_agent_only_so_long() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    let settings = settings(static_partition("0"));
    cluster.settle(&settings);
    cluster.row("b").selected = false;
    cluster.agents = Confirmation::Awaited;
    cluster.pass(&settings);
    cluster.seconds += 119;
    assert!(cluster.pass(&settings).changes("b").is_empty());
    cluster.seconds += 1;
    assert_eq!(cluster.pass(&settings).changes("b"), GONE);
}

#[test]
fn a_release_does_not_wait_for_more_than_the_owner_allows() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    let settings = settings(static_partition("0"));
    cluster.settle(&settings);
    cluster.row("b").selected = false;
    cluster.agents = Confirmation::Short;
    cluster.pass(&settings);
    assert_eq!(cluster.pass(&settings).changes("b"), GONE);
}

#[test]
fn a_release_does_not_wait_for_ever_for_caps_that_somebody_else_holds() {
    // Fix list operator B17. A person owns a field of the object, so it keeps its 50 % whatever is applied.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    let settings = settings(static_partition("0"));
    cluster.settle(&settings);
    cluster.row("b").selected = false;
    let hold = |cluster: &mut Rig| {
        let of_b = cluster.row("b").published.profile.as_mut().unwrap();
        of_b.desired.caps = cpu_caps(50);
    };
    hold(&mut cluster);
    for _ in 0..3 {
        assert!(matches!(cluster.pass(&settings).changes("b"), [ObjectChange::State(_)]));
        hold(&mut cluster);
    }
    cluster.seconds += 120;
    assert_eq!(cluster.pass(&settings).changes("b"), GONE);
    assert_eq!(cluster.label("b"), None);
}

#[test]
fn a_cap_that_a_person_holds_does_not_hold_up_a_release_of_a_node_whose_agent_follows_it_no_more() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    let settings = settings(static_partition("0"));
    cluster.settle(&settings);
    cluster.row("b").selected = false;
    cluster.row("b").published.profile.as_mut().unwrap().desired.caps = cpu_caps(50);
    cluster.row("b").confirmation = Confirmation::Lifted;
    assert_eq!(cluster.pass(&settings).changes("b"), GONE);
    assert_eq!(cluster.label("b"), None);
}

#[test]
fn a_cap_that_a_person_holds_does_not_hold_up_a_release_of_a_node_that_is_not_selected_any_more() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    let settings = settings(static_partition("0"));
    cluster.settle(&settings);
    cluster.row("b").selected = false;
    let hold = |cluster: &mut Rig, confirmation| {
        let of_b = cluster.row("b").published.profile.as_mut().unwrap();
        (of_b.desired.caps, of_b.theirs.cpu) = (cpu_caps(50), true);
        cluster.row("b").confirmation = confirmation;
    };
    // Its agent has not followed it yet.
    hold(&mut cluster, Confirmation::Awaited);
    assert_ne!(cluster.pass(&settings).changes("b"), GONE);
    hold(&mut cluster, Confirmation::InForce);
    assert_eq!(cluster.pass(&settings).changes("b"), GONE);
    assert_eq!(cluster.label("b"), None);
}

#[test]
fn a_deleted_node_leaves_no_object_behind() {
    // Fix list operator B17.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    let settings = settings(static_partition("0.5"));
    cluster.settle(&settings);
    cluster.delete("b");
    cluster.memory = PlanMemory::default();
    let plan = cluster.pass(&settings);
    let [release] = plan.releases.as_slice() else { panic!("{plan:?}") };
    assert_eq!((&*release.node, release.reason), ("b", ReleaseReason::Deleted));
    assert_eq!(plan.changes("b"), [ObjectChange::NoState]);
    assert!(cluster.pass(&settings).releases.is_empty());
    // One of the two objects could not be deleted.
    cluster.settle(&settings);
    cluster.delete("a");
    cluster.memory = PlanMemory::default();
    cluster.gone[0].published.profile = None;
    assert_eq!(cluster.pass(&settings).changes("a"), [ObjectChange::NoState]);
}

#[test]
fn what_a_person_wrote_for_a_node_that_is_not_ours_is_not_taken_back() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.row("b").selected = false;
    cluster.put_label("b", "eco");
    cluster.publish("b", Carried { persons: true, ..ours(Profile::Eco, cpu_caps(50)) });
    assert!(cluster.pass(&settings(static_partition("0.5"))).releases.is_empty());
}

#[test]
fn a_node_that_comes_back_while_it_is_released_is_planned_again() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    let settings = settings(static_partition("0"));
    cluster.settle(&settings);
    cluster.row("b").unschedulable = true;
    cluster.pass(&settings);
    cluster.row("b").unschedulable = false;
    cluster.settle(&settings);
    assert_eq!((cluster.label("b"), cluster.caps("b")), (Some("eco"), cpu_caps(60)));
}

#[test]
fn caps_that_an_earlier_owner_left_on_a_gpu_nodes_cpus_are_lifted() {
    // Fix list operator B1: 120 W on the packages of a GPU node.
    let mut cluster = Rig::of(&[("a", "NVIDIA_L40S", 4)]);
    let cap = DeviceCap { percent: None, watts: Some(Watts::from_int(120)) };
    cluster.publish("a", ours(Profile::Eco, NodeCaps { cpu: Some(cap), gpu: None }));
    cluster.settle(&settings(static_partition("1")));
    assert_eq!(cluster.caps("a").cpu, Some(DeviceCap::LIFTED));
    assert_eq!(cluster.label("a"), Some("performance"));
}

#[test]
fn a_performance_node_dwells_when_the_cluster_asks_for_it() {
    // Fix list operator B31.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0), ("c", "", 0)]);
    let dwelling =
        Settings { dwell: Some(Micros::new(300_000_000)), ..settings(queue_aware("0", 0, 100, 10)) };
    cluster.add_pods("", PodPhase::Pending, "performance", 30);
    cluster.settle(&dwelling);
    let risen = cluster.seconds;
    cluster.pods.as_mut().unwrap().clear();
    cluster.seconds = risen + 299;
    let plan = cluster.pass(&dwelling);
    assert_eq!(
        (node(&plan, "c").planned, node(&plan, "c").guard.held),
        (Profile::Eco, Some(HoldReason::Dwell))
    );
    assert!(plan.changes("c").is_empty());
    cluster.seconds = risen + 301;
    cluster.pass(&dwelling);
    assert_eq!(cluster.label("c"), Some("eco"));
    // Pressure raises it again at once.
    cluster.add_pods("", PodPhase::Pending, "performance", 30);
    cluster.settle(&dwelling);
    assert_eq!(cluster.label("c"), Some("performance"));
}

#[test]
fn a_drain_that_takes_too_long_is_overdue_and_may_hold_what_the_node_has() {
    for then in [DrainOverdue::Tell, DrainOverdue::Hold, DrainOverdue::Evict] {
        let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
        let law = DrainLaw { deadline: Micros::new(600_000_000), then };
        let settings = Settings { drain: law, ..hard(static_partition("0.5")) };
        cluster.add_pods("b", PodPhase::Running, "performance", 1);
        cluster.put_label("b", "performance");
        cluster.settle(&settings);
        let begun = cluster.seconds;
        cluster.seconds = begun + 590;
        assert!(!node(&cluster.pass(&settings), "b").overdue);
        cluster.seconds = begun + 601;
        let plan = cluster.pass(&settings);
        assert!(node(&plan, "b").overdue && !node(&plan, "a").overdue, "{then:?}");
        assert_eq!(node(&plan, "b").guard.held, Some(HoldReason::Draining));
        // Other caps for performance: only a node that is held keeps those that it has.
        let other = Settings { intents: cpu_intents(90, 60), ..settings.clone() };
        assert_eq!(cluster.pass(&other).changes("b").is_empty(), then == DrainOverdue::Hold, "{then:?}");
        // Without the pods it becomes an eco node, whatever follows when it is overdue.
        cluster.pods.as_mut().unwrap().clear();
        cluster.settle(&settings);
        assert_eq!((cluster.label("b"), cluster.caps("b")), (Some("eco"), cpu_caps(60)), "{then:?}");
        assert!(!node(&cluster.pass(&settings), "b").overdue);
    }
}

#[test]
fn a_node_whose_meter_is_silent_is_passed_over_and_the_next_is_raised() {
    // The densest of three nodes becomes blind while it is eco; then two more performance nodes are needed.
    let mut cluster = Rig::of(&[("a", "NVIDIA_L40S", 8), ("b", "NVIDIA_L40S", 4), ("c", "NVIDIA_L40S", 2)]);
    let queue = settings(queue_aware("0", 0, 2, 10));
    cluster.row("a").reserved = true;
    cluster.settle(&queue);
    cluster.row("a").reserved = false;
    cluster.put_label("a", "eco");
    cluster.row("a").visibility = Visibility::Blind;
    cluster.add_pods("", PodPhase::Pending, "performance", 20);
    cluster.settle(&queue);
    let labels = ["a", "b", "c"].map(|name| cluster.label(name));
    assert_eq!(labels, [Some("eco"), Some("performance"), Some("performance")]);
    // When its state is known again, it is the densest node as before.
    cluster.row("a").visibility = Visibility::Clear;
    cluster.settle(&queue);
    assert_eq!(cluster.label("a"), Some("performance"));
    // A performance node that becomes blind keeps its profile.
    cluster.row("a").visibility = Visibility::Blind;
    cluster.settle(&queue);
    assert_eq!(cluster.label("a"), Some("performance"));
}

#[test]
fn a_blind_node_is_not_raised_even_where_no_other_is_left() {
    let mut cluster = Rig::of(&[("a", "", 0)]);
    cluster.put_label("a", "eco");
    cluster.publish("a", ours(Profile::Eco, cpu_caps(60)));
    cluster.row("a").visibility = Visibility::Blind;
    cluster.settle(&settings(static_partition("1")));
    let plan = cluster.pass(&settings(static_partition("1")));
    assert_eq!(
        (node(&plan, "a").planned, node(&plan, "a").guard.held),
        (Profile::Performance, Some(HoldReason::Blind))
    );
    assert_eq!((cluster.label("a"), cluster.caps("a")), (Some("eco"), cpu_caps(60)));
}

#[test]
fn nothing_is_written_for_a_node_whose_desired_state_cannot_be_read() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("0.5")));
    cluster.row("b").visibility = Visibility::Unreadable;
    // Its object exists, but its content cannot be read.
    cluster.row("b").published = Published::default();
    let plan = cluster.pass(&settings(static_partition("1")));
    assert!(plan.changes("b").is_empty() && node(&plan, "b").desired.is_none());
    assert_eq!(cluster.label("b"), Some("eco"));
    assert_eq!(node(&plan, "b").guard.state.name(), StateName::Unknown);
}

#[test]
fn what_was_not_carried_out_is_planned_and_counted_again() {
    // Fix list operator B14: a transition counts when its node is committed.
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("1")));
    let half = settings(static_partition("0.5"));
    let failed = plan(&cluster.cluster(), &half, &cluster.memory);
    let again = plan(&cluster.cluster(), &half, &cluster.memory);
    assert_eq!(failed, again);
    let names = |plan: &Plan| node(plan, "b").guard.applied.map(|(from, to)| (from.as_str(), to.as_str()));
    assert_eq!(names(&again), Some(("ActivePerformance", "ActiveEco")));
    cluster.apply(again, &half);
    assert_eq!(names(&cluster.pass(&half)), None);
}

/// A random cluster of many kinds of nodes and pods, some of them unusual.
fn strange_cluster() -> impl Strategy<Value = Rig> {
    let node = (0_usize..5, 0_u32..9, any::<[bool; 5]>(), 0_usize..5, 0_usize..4);
    let pod = (0_usize..12, 0_usize..5, any::<bool>(), 0_usize..5);
    (proptest::collection::vec(node, 1..12), proptest::collection::vec(pod, 0..30), any::<bool>(), 0_u64..200)
        .prop_map(|(nodes, pods, listed, seconds)| {
            let models = ["NVIDIA_L40S", "nvidia l40s", "AMD_INSTINCT_MI300X", "weird", ""];
            let labels = [None, Some("performance"), Some("eco"), Some("garbage"), Some("")];
            let mut cluster = Rig::of(&[]);
            cluster.seconds = seconds;
            for (at, (model, gpus, flags, label, published)) in nodes.into_iter().enumerate() {
                let mut row = row(&format!("n{at}"), models[model], gpus);
                // Most nodes are eligible and ready.
                row.selected = flags[0] || flags[1];
                row.unschedulable = flags[1] && flags[2];
                row.presence = match (flags[2] || flags[3], flags[1]) {
                    (true, _) => Presence::Ready,
                    (false, true) => Presence::Away,
                    (false, false) => Presence::Lost,
                };
                row.labels.profile.text = labels[label].map(Into::into);
                row.labels.draining.text = flags[4].then(|| "true".into());
                row.confirmation = if flags[3] { Confirmation::InForce } else { Confirmation::Awaited };
                row.visibility = match (flags[4], flags[0]) {
                    (false, _) => Visibility::Clear,
                    (true, true) => Visibility::Blind,
                    (true, false) => Visibility::Unreadable,
                };
                if published > 1 {
                    let desired = DesiredState { draining: flags[1], ..state(Profile::Eco, cpu_caps(60)) };
                    let there = Carried { persons: !flags[0], ..carried(desired.clone()) };
                    row.published = Published {
                        profile: Some(there),
                        twin: Some(carried(desired)),
                        ..Published::default()
                    };
                }
                if published == 3 && flags[2] {
                    cluster.gone.push(Node { presence: Presence::Gone, ..row });
                    continue;
                }
                cluster.nodes.push(row);
            }
            let phases = [
                PodPhase::Pending,
                PodPhase::Running,
                PodPhase::Succeeded,
                PodPhase::Failed,
                PodPhase::Unknown,
            ];
            let classes = ["performance", "standard", "eco", "Performance ", ""];
            let names = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11"];
            for (node, phase, terminating, class) in pods {
                let mut pod = pod_row(names[node], phases[phase], classes[class]);
                pod.terminating = terminating;
                cluster.pods.get_or_insert_default().push(pod);
            }
            if !listed {
                cluster.pods = None;
            }
            cluster
        })
}

/// The plan without the nodes' indexes, which depend on their order.
fn placeless(mut plan: Plan) -> Plan {
    plan.nodes.iter_mut().for_each(|node| node.place = 0);
    plan
}

proptest! {
    #[test]
    fn the_order_of_the_facts_does_not_matter(
        cluster in strange_cluster(), turns in proptest::collection::vec(any::<prop::sample::Index>(), 60), hard_guard in any::<bool>(),
    ) {
        let mut settings = settings(queue_aware("0.4", 0, 100, 3));
        settings.guard = if hard_guard { GuardMode::Hard } else { GuardMode::Soft };
        let mut shuffled = cluster.clone();
        for (at, turn) in turns.iter().enumerate() {
            fn swap<T>(rows: &mut [T], at: usize, turn: &prop::sample::Index) {
                if !rows.is_empty() {
                    rows.swap(at % rows.len(), turn.index(rows.len()));
                }
            }
            swap(&mut shuffled.nodes, at, turn);
            swap(&mut shuffled.gone, at, turn);
            if let Some(pods) = &mut shuffled.pods {
                swap(pods, at, turn);
            }
        }
        let expected = placeless(plan(&cluster.cluster(), &settings, &PlanMemory::default()));
        prop_assert_eq!(placeless(plan(&shuffled.cluster(), &settings, &PlanMemory::default())), expected);
    }

    #[test]
    fn any_cluster_settles_and_then_is_not_written_to(cluster in strange_cluster(), hard_guard in any::<bool>()) {
        let mut cluster = cluster;
        let mut settings = settings(queue_aware("0.4", 0, 100, 3));
        settings.guard = if hard_guard { GuardMode::Hard } else { GuardMode::Soft };
        cluster.settle(&settings);
        let plan = cluster.pass(&settings);
        for node in &plan.nodes {
            prop_assert!(plan.changes(&node.node).is_empty() && node.remember.is_none(), "{:?}", node);
        }
        prop_assert!(plan.releases.is_empty(), "{:?}", plan.releases);
    }
}

#[test]
fn a_node_under_a_limit_is_not_raised_before_its_first_receipt() {
    let performance = settings(static_partition("1"));
    for (observed, before) in [(false, "eco"), (true, "performance")] {
        let mut cluster = Rig::of(&[("a", "", 0)]);
        cluster.put_label("a", "eco");
        cluster.publish("a", ours(Profile::Eco, cpu_caps(60)));
        cluster.row("a").limits.bound = true;
        cluster.row("a").limits.observed = observed;
        cluster.settle(&performance);
        assert_eq!(
            cluster.label("a"),
            Some(before),
            "a limit that is only observed raises and lowers nobody"
        );
        let held = node(&cluster.pass(&performance), "a").guard.held;
        assert_eq!(held, (!observed).then_some(HoldReason::NoReceipt), "its state is seen clearly");
        confirm_grant(cluster.row("a"));
        cluster.settle(&performance);
        assert_eq!(cluster.label("a"), Some("performance"));
        // What is at full power already stays so: to lower it is the grant's part.
        cluster.row("a").granted.signed = None;
        cluster.settle(&performance);
        assert_eq!(cluster.label("a"), Some("performance"));
    }
}

#[test]
fn a_node_without_a_receipt_is_passed_over_and_the_next_is_raised() {
    // Of two eco nodes under a limit the denser one has not confirmed its grant yet.
    let half = settings(static_partition("0.5"));
    let mut cluster = Rig::of(&[("a", "NVIDIA_L40S", 8), ("b", "NVIDIA_L40S", 4)]);
    for name in ["a", "b"] {
        cluster.put_label(name, "eco");
        cluster.publish(name, ours(Profile::Eco, cpu_caps(60)));
        cluster.row(name).limits.bound = true;
    }
    confirm_grant(cluster.row("b"));
    cluster.settle(&half);
    assert_eq!(["a", "b"].map(|name| cluster.label(name)), [Some("eco"), Some("performance")]);
    confirm_grant(cluster.row("a"));
    cluster.settle(&half);
    assert_eq!(["a", "b"].map(|name| cluster.label(name)), [Some("performance"), Some("eco")]);
}

#[test]
fn an_agent_that_gets_no_grant_is_not_waited_for_where_its_node_counts_all_the_same() {
    let performance = settings(static_partition("1"));
    for (unknown_node, label) in [(None, "eco"), (Some(Watts::from_int(900)), "performance")] {
        let budget = BudgetLimits { unknown_node, ..BudgetLimits::none() };
        let performance = Settings { budget, ..performance.clone() };
        let mut cluster = Rig::of(&[("a", "", 0)]);
        cluster.put_label("a", "eco");
        cluster.publish("a", ours(Profile::Eco, cpu_caps(60)));
        let node = cluster.row("a");
        node.limits.bound = true;
        node.machine.has_agent = true;
        node.machine.power_model = NodePowerModel::of(&ResolvedHardware::default(), (true, true));
        cluster.settle(&performance);
        assert_eq!(cluster.label("a"), Some(label));
    }
}

#[test]
fn a_node_that_nobody_caps_is_not_waited_for_where_it_counts_all_the_same() {
    let performance = settings(static_partition("1"));
    let label = |has_agent, confirmation, is_known: bool, unknown_node| {
        let budget = BudgetLimits { unknown_node, ..BudgetLimits::none() };
        let performance = Settings { budget, ..performance.clone() };
        let mut cluster = Rig::of(&[("a", "", 0)]);
        cluster.put_label("a", "eco");
        cluster.publish("a", ours(Profile::Eco, cpu_caps(60)));
        let node = cluster.row("a");
        node.limits.bound = true;
        // It has been granted something: an agent that comes keeps to it.
        let watts = Watts::from_int(300);
        node.granted.grant = Some(Grant { serial: 1, watts, ceiling: watts });
        node.machine.has_agent = has_agent;
        if !is_known {
            node.machine.power_model = NodePowerModel::of(&ResolvedHardware::default(), (true, true));
        }
        for _ in 0..6 {
            cluster.row("a").confirmation = confirmation;
            cluster.pass(&performance);
        }
        cluster.label("a").map(str::to_owned)
    };
    let of = |label: &str| Some(label.to_owned());
    // It counts with its maximum as eco and as performance.
    assert_eq!(label(false, Confirmation::Unenforced, true, None), of("performance"));
    assert_eq!(label(false, Confirmation::Unenforced, false, Some(Watts::from_int(900))), of("performance"));
    assert_eq!(label(false, Confirmation::Unenforced, false, None), of("eco"), "nobody knows what it counts");
    // An agent has read caps back and has not described its machine yet.
    assert_eq!(label(false, Confirmation::InForce, true, None), of("eco"));
    // An agent that does not confirm its grant may still hold what it had before.
    assert_eq!(label(true, Confirmation::Unenforced, true, None), of("eco"));
    assert_eq!(label(true, Confirmation::InForce, true, None), of("eco"));
}

#[test]
fn a_node_that_is_not_waited_for_is_raised_only_while_the_limits_above_it_are_kept() {
    let limited = |site| Settings {
        budget: BudgetLimits { site: Some(Watts::from_int(site)), ..BudgetLimits::none() },
        ..settings(static_partition("1"))
    };
    let mut cluster = Rig::of(&[("a", "", 0)]);
    cluster.agents = Confirmation::Unenforced;
    cluster.put_label("a", "eco");
    cluster.publish("a", ours(Profile::Eco, cpu_caps(60)));
    cluster.row("a").machine.has_agent = false;
    cluster.row("a").confirmation = Confirmation::Unenforced;
    let mut told = |limits: &Settings| {
        for _ in 0..4 {
            cluster.pass(limits);
            let decision = crate::decide::decide(&cluster.cluster(), limits, &mut cluster.memory);
            assert!(decision.budget.is_ok());
        }
        cluster.row("a").published.obeyed().map(|there| there.desired.profile)
    };
    // It counts all that its two packages can draw. An agent that has not reported yet may hold them at the caps of eco.
    assert_eq!(told(&limited(100)), Some(Profile::Eco));
    assert_eq!(told(&limited(5000)), Some(Profile::Performance));
    assert_eq!(told(&limited(100)), Some(Profile::Performance), "to lower it is the grant's part");
}

#[test]
fn nothing_changes_for_a_node_under_a_paused_limit_until_it_is_not_paused() {
    let mut cluster = Rig::of(&[("a", "", 0), ("b", "", 0)]);
    cluster.settle(&settings(static_partition("1")));
    assert_eq!(cluster.label("a"), Some("performance"));
    cluster.row("a").limits.paused = true;
    let eco = Settings { floor: FamilyFloor::Off, ..settings(static_partition("0")) };
    cluster.settle(&eco);
    let plan = cluster.pass(&eco);
    assert_eq!(
        (node(&plan, "a").planned, node(&plan, "a").guard.held),
        (Profile::Eco, Some(HoldReason::Paused))
    );
    assert_eq!([cluster.label("a"), cluster.label("b")], [Some("performance"), Some("eco")]);
    // An eco node that is paused is passed over: another one is raised.
    cluster.row("a").limits.paused = false;
    cluster.settle(&eco);
    cluster.row("a").limits.paused = true;
    cluster.settle(&settings(static_partition("0.5")));
    assert_eq!([cluster.label("a"), cluster.label("b")], [Some("eco"), Some("performance")]);
    cluster.row("a").limits.paused = false;
    cluster.settle(&eco);
    assert_eq!(cluster.label("a"), Some("eco"));
    // A node that nothing was published for yet is at full power: it gets its first desired state.
    let mut cluster = Rig::of(&[("a", "", 0)]);
    cluster.row("a").limits.paused = true;
    cluster.settle(&eco);
    assert_eq!(cluster.label("a"), Some("eco"));
}
