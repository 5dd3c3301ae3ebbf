use super::*;
use host_kit::reflect::{ByHand, Row, by_hand};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The events that an API server would send.
pub(crate) struct Server {
    pub(crate) nodes: ByHand<NodeSeen>,
    pub(crate) pods: ByHand<crate::rows::PodSeen>,
    hardware: ByHand<HardwareSeen>,
    profiles: ByHand<ProfileSeen>,
    twins: ByHand<TwinSeen>,
    grants: ByHand<GrantSeen>,
    budgets: ByHand<crate::rows::BudgetSeen>,
    plan: ByHand<crate::rows::PlanLeaseSeen>,
    workloads: ByHand<crate::rows::WorkloadProfileSeen>,
}

pub(crate) fn server() -> (Server, Watches) {
    let (nodes, seen_nodes) = by_hand();
    let (pods, seen_pods) = by_hand();
    let (hardware, seen_hardware) = by_hand();
    let (profiles, seen_profiles) = by_hand();
    let (twins, seen_twins) = by_hand();
    let (grants, seen_grants) = by_hand();
    let (budgets, seen_budgets) = by_hand();
    let (_, seen_events) = by_hand();
    let (plan, seen_plan) = by_hand();
    let (workloads, seen_workloads) = by_hand();
    let watches = Watches {
        nodes: seen_nodes,
        pods: seen_pods,
        hardware: seen_hardware,
        profiles: seen_profiles,
        twins: seen_twins,
        grants: seen_grants,
        budgets: seen_budgets,
        events: seen_events,
        plan: seen_plan,
        workloads: Some(seen_workloads),
        gpus: None,
    };
    (Server { nodes, pods, hardware, profiles, twins, grants, budgets, plan, workloads }, watches)
}

/// An event: the kind, the object's name, its node, and its content.
type Told = (u8, u8, u8, u8);

impl Server {
    fn tell(&mut self, (kind, name, node, what): Told, version: usize) {
        // Mostly an object belongs to the node whose name it has.
        let node = format!("n{}", if what % 7 == 6 { node } else { name });
        let meta = |name: String| json!({"name": name, "uid": "u", "resourceVersion": version.to_string()});
        match kind {
            0 => {
                let ready =
                    json!([{"type": "Ready", "status": if what % 3 == 2 { "False" } else { "True" }}]);
                let mut object =
                    json!({"metadata": meta(format!("n{name}")), "status": {"conditions": ready}});
                object["metadata"]["labels"] =
                    json!({"profile": if what % 2 == 0 { "eco" } else { "performance" }});
                told(&mut self.nodes, &object, what, 5);
            }
            1 => {
                let mut object = json!({"metadata": meta(format!("p{name}")),
                    "spec": {"nodeName": node}, "status": {"phase": if what % 3 == 0 { "Succeeded" } else { "Running" }}});
                object["metadata"]["namespace"] = json!(if what % 4 == 3 { "ignored" } else { "default" });
                object["metadata"]["annotations"] = json!({"joulie.io/workload-class": if what % 2 == 0 { "performance" } else { "eh" },
                        "joulie.io/reschedulable": if what % 5 < 3 { "true" } else { "no" }});
                object["metadata"]["ownerReferences"] =
                    json!([{"kind": "StatefulSet", "name": format!("s{}", name % 2), "controller": true}]);
                object["status"]["conditions"] =
                    json!([{"type": "Ready", "status": if what < 2 { "True" } else { "False" }}]);
                told(&mut self.pods, &object, what, 4);
            }
            2 => {
                let spec = json!({"nodeName": if what == 3 { json!(null) } else { json!(node) }});
                let object = json!({"metadata": meta(format!("h{name}")), "spec": spec,
                    "status": {"cpu": {"rawModel": "new", "sockets": what + 1, "controlAvailable": what % 2 == 0,
                        "capRange": {"minWattsPerSocket": 50, "maxWattsPerSocket": if what == 4 { 20_000 } else { 300 }}}}});
                told(&mut self.hardware, &object, what, 11);
            }
            3 => {
                let serial = if what == 3 { json!("three") } else { json!(version) };
                let mut metadata = meta(format!("g{name}"));
                metadata["labels"] = json!({"joulie.io/power-budget": format!("b{}", what % 6)});
                let object = json!({"metadata": metadata,
                    "spec": {"nodeName": node, "serial": serial, "watts": 100 + u32::from(what), "ceiling": 200},
                    "status": {"serial": version, "bootID": "b", "nodeUID": "u", "holds": 100}});
                told(&mut self.grants, &object, what, 11);
            }
            7 => {
                let labels = json!({"profile": if what % 2 == 0 { "eco" } else { "performance" }});
                let spec = json!({"watts": if what == 3 { json!("many") } else { json!(100 * u32::from(what)) },
                    "parent": (what % 3 != 0).then(|| format!("b{}", what % 5)),
                    "mode": if what % 4 == 0 { "observe" } else { "enforce" }, "pause": what == 6,
                    "nodeSelector": (what % 5 != 0).then(|| json!({"matchLabels": labels}))});
                let object = json!({"metadata": meta(format!("b{}", name % 4)), "spec": spec});
                told(&mut self.budgets, &object, what, 11);
            }
            6 => {
                let mut object = json!({"metadata": meta("joulie-plan".to_owned())});
                object["metadata"]["annotations"] = match what % 3 {
                    0 => json!({"joulie.io/release": "all"}),
                    1 => json!({"joulie.io/release": "none"}),
                    _ => json!({}),
                };
                told(&mut self.plan, &object, what, 11);
            }
            8 => {
                let mut metadata = meta(format!("w{name}"));
                metadata["namespace"] = json!("default");
                let level = ["low", "medium", "high", "vast"][usize::from(what % 4)];
                let object = json!({"metadata": metadata,
                    "spec": {"workloadRef": {"kind": "StatefulSet", "name": format!("s{}", name % 3)}},
                    "status": {"confidence": 0.1 * f64::from(what), "cpu": {"intensity": level}}});
                told(&mut self.workloads, &object, what, 11);
            }
            _ => {
                let mut object = json!({"metadata": meta(format!("s{name}")), "spec": {"nodeName": node,
                    "profile": if what == 3 { "broken" } else { "eco" }, "policy": {"name": format!("p{what}")}}});
                if what % 2 == 0 {
                    object["metadata"]["managedFields"] =
                        json!([{"manager": "joulie-operator", "operation": "Apply", "fieldsV1": {}}]);
                }
                if kind == 4 {
                    told(&mut self.profiles, &object, what, 11);
                } else {
                    object["spec"]["scheduling"] = json!({"draining": what % 4 == 0});
                    told(&mut self.twins, &object, what, 11);
                }
            }
        }
    }
}

fn told<R: Row>(to: &mut ByHand<R>, object: &Value, what: u8, gone: u8) {
    if what == gone { to.delete(object) } else { to.apply(object) }
}

fn selectors(source: DesiredKind) -> Selectors {
    Selectors {
        selector: Selector::default(),
        reserved_key: "reserved".to_owned(),
        profile_key: "profile".to_owned(),
        ignored_namespaces: BTreeSet::from(["ignored".to_owned()]),
        gpu_product_keys: Vec::new(),
        source,
        trust: TrustRule::new(power_units::Ratio::from_bits(1 << 31)),
        bound: DemandBound::NONE,
        sleep: true,
    }
}

/// A site of which only this Node is known.
pub(crate) fn of_one_node(node: &Value) -> Site {
    let (mut server, mut watches) = server();
    server.nodes.list([node]);
    let mut site = Site::default();
    site.refresh(&mut watches, &selectors(DesiredKind::Profile), &Catalog::embedded().unwrap());
    site
}

#[test]
fn a_floor_of_20_kw_costs_the_node_that_says_it_and_nobody_else() {
    let (mut server, mut watches) = server();
    let catalog = Catalog::embedded().unwrap();
    server.nodes.list(["n0", "n1"].map(|name| json!({"metadata": {"name": name}})).iter());
    let hardware = ["n0", "n1"].map(|node| {
        let floor = if node == "n1" { 20_000 } else { 100 };
        let range = json!({"minWattsPerSocket": floor, "maxWattsPerSocket": floor.max(400)});
        json!({"metadata": {"name": node}, "spec": {"nodeName": node}, "status": {"cpu":
            {"rawModel": "AMD EPYC 9654 96-Core Processor", "sockets": 2, "capRange": range}}})
    });
    server.hardware.list(hardware.iter());
    let mut site = Site::default();
    site.refresh(&mut watches, &selectors(DesiredKind::Profile), &catalog);
    let of = |node: &str| {
        let machine = &site.node(node).unwrap().machine;
        (machine.resolved.hardware.cpu.min_per_socket, machine.implausible.as_deref())
    };
    assert_eq!(of("n0"), (Some(power_units::Watts::from_int(100)), None));
    let (floor, why) = of("n1");
    assert_eq!(floor, Some(power_units::Watts::from_int(320)));
    assert_eq!(
        why,
        Some(
            "cpu.capRange.maxWattsPerSocket is 20000 W, and at most 500 W is believed; \
             cpu.capRange.minWattsPerSocket is 20000 W, and at most 400 W is believed"
        )
    );
}

#[test]
fn a_node_that_had_rebooted_and_is_deleted_may_draw_all_that_it_can_until_its_agent_speaks() {
    let (mut server, mut watches) = server();
    let catalog = Catalog::embedded().unwrap();
    let selectors = selectors(DesiredKind::Profile);
    let node = |boot: &str| json!({"metadata": {"name": "n0", "uid": "u"}, "status": {"nodeInfo": {"bootID": boot}}});
    let grant = |boot: &str, version: &str| {
        json!({"metadata": {"name": "n0", "uid": "g", "resourceVersion": version},
            "spec": {"nodeName": "n0", "serial": 3, "watts": 300, "ceiling": 300},
            "status": {"serial": 3, "bootID": boot, "nodeUID": "u", "holds": 300, "floor": 200}})
    };
    // Two packages of 100 to 400 W.
    let range = json!({"minWattsPerSocket": 100, "maxWattsPerSocket": 400});
    let hardware = json!({"metadata": {"name": "n0"}, "spec": {"nodeName": "n0"}, "status": {"cpu":
        {"rawModel": "AMD EPYC 9654 96-Core Processor", "sockets": 2, "capRange": range}}});
    server.hardware.list([&hardware]);
    server.nodes.list([&node("second")]);
    server.grants.list([&grant("first", "1")]);
    let mut site = Site::default();
    site.refresh(&mut watches, &selectors, &catalog);
    server.nodes.list([]);
    site.refresh(&mut watches, &selectors, &catalog);
    let is = |site: &Site| {
        let gone = site.node("n0").unwrap();
        (gone.presence, gone.receipt().map(|receipt| receipt.serial), gone.machine.power_model.max())
    };
    let watts = |watts| Some(power_units::Watts::from_int(watts));
    assert_eq!(is(&site), (Presence::Gone, None, watts(800)));
    server.grants.list([&grant("second", "2")]);
    site.refresh(&mut watches, &selectors, &catalog);
    assert_eq!(is(&site), (Presence::Gone, Some(3), watts(300)), "it says what it holds");
}

/// Another version of a program writes fewer fields, or more. Whatever an object does not say, its node counts no less for
/// it and is granted no more: a field that this side does not know, or does not find, is no consent to a raise.
#[test]
fn a_field_that_another_version_does_not_write_is_no_consent_to_a_raise() {
    let catalog = Catalog::embedded().unwrap();
    let settings =
        crate::settings::tests::read(&[("BUDGET_SITE_WATTS", "700"), ("BUDGET_UNKNOWN_NODE_WATTS", "5000")]);
    let settings = settings.unwrap();
    let decided = |objects: &[Value; 4]| {
        let [node, hardware, profile, grant] = objects;
        let (mut server, mut watches) = server();
        server.nodes.list([node]);
        server.hardware.list([hardware]);
        server.profiles.list([profile]);
        server.grants.list([grant]);
        let mut site = Site::default();
        site.refresh(&mut watches, &settings.selectors, &catalog);
        site.cluster.raises = true;
        let mut memory = planner::plan::PlanMemory::default();
        let round = planner::decide::decide(&site.cluster, &settings.plan, &mut memory).budget.unwrap();
        let asked = round.asks.iter().map(|ask| ask.watts).max();
        // What is not known counts as more than everything.
        (round.standings[0].load.unwrap_or(power_units::Watts::MAX), asked)
    };
    let whole = [
        json!({"metadata": {"name": "n0", "uid": "u", "labels": {"joulie.io/managed": "true"}}, "spec": {},
            "status": {"nodeInfo": {"bootID": "b"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"metadata": {"name": "n0"}, "spec": {"nodeName": "n0"}, "status": {
            "cpu": {"rawModel": "AMD EPYC 9654 96-Core Processor", "sockets": 2, "controlAvailable": true,
                "capRange": {"type": "package", "minWattsPerSocket": 100, "maxWattsPerSocket": 400}},
            "power": {"cpuWatts": 300, "at": "2026-01-01T00:00:00Z"},
            "capabilities": {"cpuControl": true}, "quality": {"overall": "exact"}}}),
        json!({"metadata": {"name": "n0", "uid": "p"}, "spec": {"nodeName": "n0", "profile": "eco",
                "cpu": {"packagePowerCapWatts": 150}},
            "status": {"control": {"cpu": {"backend": "rapl", "result": "applied", "capWatts": 150}},
                "conditions": [{"type": "CapEnforced", "status": "True", "observedGeneration": 1,
                    "reason": "ReadBack", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        json!({"metadata": {"name": "n0", "uid": "g", "resourceVersion": "1"},
            "spec": {"nodeName": "n0", "serial": 3, "watts": 300, "ceiling": 300},
            "status": {"serial": 3, "bootID": "b", "nodeUID": "u", "holds": 300, "floor": 200}}),
    ];
    let (counted, asked) = decided(&whole);
    assert_eq!(counted, power_units::Watts::from_int(300), "held by its receipt");
    let mut seen = 0;
    for object in 0..whole.len() {
        for path in paths(&whole[object], String::new()) {
            // Of whom an object speaks, and that there is a grant at all, no version leaves out.
            if path.starts_with("/metadata") || path.ends_with("/nodeName") || path == "/spec" {
                continue;
            }
            let mut less = whole.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            less[object].pointer_mut(parent).and_then(Value::as_object_mut).map(|map| map.remove(name));
            let mut more = whole.clone();
            if let Some(map) = more[object].pointer_mut(&path).and_then(Value::as_object_mut) {
                map.insert("ofAnotherVersion".to_owned(), json!({"watts": 0, "released": true}));
            }
            for (what, objects) in [("without", less), ("with more in", more)] {
                let (now, asks) = decided(&objects);
                assert!(now >= counted, "{what} {path} of {object}: {now} is counted");
                assert!(asks <= asked.max(Some(counted)), "{what} {path} of {object}: {asks:?} is granted");
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "{seen}");
}

/// The paths of all fields of an object.
fn paths(value: &Value, at: String) -> Vec<String> {
    let fields = value.as_object().into_iter().flatten();
    let mut all = Vec::new();
    for (name, value) in fields {
        let path = format!("{at}/{name}");
        all.extend(paths(value, path.clone()));
        all.push(path);
    }
    all
}

proptest! {
    #[test]
    fn what_is_kept_from_look_to_look_is_what_would_be_read_anew(
        looks in prop::collection::vec(prop::collection::vec((0_u8..9, 0_u8..9, 0_u8..9, 0_u8..12), 0..10), 1..16),
        listed in 0_usize..4, (by_twin, bounded) in any::<(bool, bool)>(),
    ) {
        let catalog = Catalog::embedded().unwrap();
        let mut selectors = selectors(if by_twin { DesiredKind::Twin } else { DesiredKind::Profile });
        if bounded {
            selectors.bound.nodes_max = BTreeMap::from([("*".to_owned(), 2)]);
        }
        let (mut server, mut watches) = server();
        let anew = watches.clone();
        let mut site = Site::default();
        for (version, look) in looks.into_iter().enumerate() {
            for told in look {
                server.tell(told, version);
            }
            if version == listed {
                // One kind is known before the others.
                server.hardware.list([]);
                server.pods.list([]);
            }
            let before = (site.cluster.clone(), site.observed.clone());
            let before_movable = site.movable.clone();
            let changes = site.refresh(&mut watches, &selectors, &catalog);
            let mut fresh = Site::default();
            fresh.refresh(&mut anew.clone(), &selectors, &catalog);
            prop_assert_eq!(format!("{:?}", site.observed), format!("{:?}", fresh.observed));
            prop_assert_eq!(&site.cluster.nodes, &fresh.cluster.nodes);
            prop_assert_eq!(&site.cluster.gone, &fresh.cluster.gone);
            prop_assert_eq!(&site.unread, &fresh.unread);
            prop_assert_eq!(&site.cluster.limits, &fresh.cluster.limits);
            prop_assert_eq!(&site.budgets.faults, &fresh.budgets.faults);
            prop_assert_eq!(&site.cluster.pods, &fresh.cluster.pods);
            prop_assert_eq!(&site.movable, &fresh.movable);
            prop_assert_eq!(&site.asking, &fresh.asking);
            prop_assert_eq!(&site.workloads, &fresh.workloads);
            for (at, observed) in site.observed.iter().enumerate() {
                prop_assert_eq!(site.find(&observed.node.name), Some(at));
                let told = changes.nodes.iter().chain(&before.1).any(|known| Arc::ptr_eq(known, observed));
                prop_assert!(told, "{} is told", observed.node.name);
            }
            let is_as_before = before.0.nodes == site.cluster.nodes && before.0.gone == site.cluster.gone;
            prop_assert!(changes.plan || (is_as_before && before.0.pods == site.cluster.pods && before_movable == site.movable));
        }
    }
}

/// Ten minutes without Prometheus, by the operator's own parts in virtual time: the building's thermometers and Kepler are
/// silent, while passes and rounds of evictions go on.
#[test]
fn ten_minutes_without_prometheus_make_no_node_better_move_no_cap_and_evict_nobody() {
    use crate::meters::Meters;
    use planner::classify::Hints;
    use planner::demand::DemandClass;
    use planner::facility::Observation;
    use planner::migration::eviction::{
        EvictionCandidate, EvictionVerdict, Evictor, Facts, Owner, RequestedResources,
    };
    use planner::migration::{NodeConditions, RunningPod};
    use planner::power::{NodeDraw, NodeReading, PowerMeter, PowerSample};
    use power_units::{Celsius, Percent};
    /// Of one node: its headroom, its cooling stress and its caps.
    type Looks = (Option<Percent>, Option<Percent>, Option<planner::intent::NodeCaps>);

    let settings = crate::settings::tests::read(&[
        ("PROMETHEUS_ADDRESS", "http://p:9090"),
        ("OPERATOR_NODE_POWER_SOURCE", "kepler"),
        ("ENABLE_FACILITY_METRICS", "true"),
        ("FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", "zone_celsius"),
        ("STATIC_HP_FRAC", "0.5"),
        ("ENABLE_ACTIVE_RESCHEDULING", "true"),
        ("RESCHEDULE_STRESSED_FOR", "0s"),
    ]);
    let settings = settings.unwrap();
    let law = settings.rescheduling.eviction.unwrap();
    let silent = settings.power.sources[0].silent();
    let (mut server, mut watches) = server();
    let node = |name: &str, zone: &str| {
        json!({"metadata": {"name": name, "uid": name, "labels": {"joulie.io/managed": "true",
                "joulie.io/hw.cpu-model": "AMD_EPYC_9654", "joulie.io/hw.cpu-sockets": "2",
                "joulie.io/cooling-zone": zone}}, "spec": {},
            "status": {"nodeInfo": {"bootID": "b"}, "allocatable": {"cpu": "192", "memory": "512Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]}})
    };
    // Two packages of up to 400 W. At 20 °C all of their 800 W can be cooled, of which 100 W are 12.5 %. At 40 °C
    // 60 % can be, 480 W, of which 400 W are 83.3 %: above the 70 % of RESCHEDULE_THRESHOLD.
    let drawn = [("cool", "mild", 100, 20), ("hot", "hot", 400, 40)];
    server.pods.list([]);
    server.hardware.list([]);
    server.nodes.list(&drawn.map(|(name, zone, ..)| node(name, zone)));
    let mut site = Site::default();
    site.cluster.facility = Facility::new(true);
    site.refresh(&mut watches, &settings.selectors, &Catalog::embedded().unwrap());
    site.cluster.raises = true;
    let mut meters = Meters::new(&settings.power, settings.hold).unwrap();
    let (mut memory, mut evictor) = (planner::plan::PlanMemory::default(), Evictor::default());
    let room = RequestedResources { cpu_milli: 64_000, memory_bytes: 1 << 38, gpus: 0, pods: 100 };
    let candidate = EvictionCandidate {
        pod: RunningPod {
            namespace: "shop",
            name: "web-0",
            node: "hot",
            hints: Hints::read(None, Some("true")),
            demand: DemandClass::General,
        },
        owner: Owner::Controller { key: "shop/StatefulSet/web", evicted_ago: None },
        needs: RequestedResources { cpu_milli: 2_000, memory_bytes: 1 << 30, gpus: 0, pods: 1 },
        others: 1,
        leaving: false,
        ends_drain: false,
    };

    let mut pass = |second: u64, answers: bool, candidates: &[EvictionCandidate<'_>]| {
        let now = Stamp::new(Micros::new((1_000 + second) * 1_000_000));
        for (name, zone, watts, degrees) in drawn {
            let sample = PowerSample::new(PowerMeter::Kepler, Watts::from_int(watts), now);
            meters.record(name, PowerMeter::Kepler, now, if answers { sample } else { Err(silent) });
            if answers && second.is_multiple_of(30) {
                let seen = Observation::ZoneAmbient(zone, Celsius::from_int(degrees));
                site.cluster.facility.record(now, now, seen).unwrap();
            }
        }
        site.cluster.now = now;
        site.cluster.facility.expire(now);
        let powers = meters.readings(drawn.iter().map(|(name, ..)| *name), now);
        for (node, power) in site.cluster.nodes.iter_mut().zip(powers) {
            let is_silent = matches!(power.reading, NodeReading::Absent(_));
            node.visibility = if is_silent { Visibility::Blind } else { Visibility::Clear };
            node.presence = Presence::Ready;
            node.power = power;
        }
        let decided = planner::decide::decide(&site.cluster, &settings.plan, &mut memory);
        decided.plan.nodes.iter().for_each(|decision| memory.commit(decision));
        let planned: Vec<_> = decided.plan.nodes.iter().zip(&decided.twins).collect();
        let conditions = |name: &str| {
            let (_, twin) = planned.iter().find(|(decision, _)| &*decision.node == name).unwrap();
            NodeConditions {
                name: if name == "hot" { "hot" } else { "cool" },
                ..NodeConditions::of("", twin)
            }
        };
        let place = |name: &str| planner::migration::Site { node: conditions(name), open: true, free: room };
        let sites = [place("cool"), place("hot")];
        let facts = Facts { now, sites: &sites, candidates, outcomes: &[] };
        let verdicts = evictor.step(&law, &facts, |_, _| true);
        let looks = ["cool", "hot"].map(|name| -> Looks {
            let (decision, twin) = planned.iter().find(|(decision, _)| &*decision.node == name).unwrap();
            let caps = decision.desired.as_ref().map(|desired| desired.caps);
            match twin.power.draw {
                NodeDraw::Measured { .. } | NodeDraw::Held { .. } => {
                    (twin.headroom, twin.cooling.map(|cooling| cooling.percent), caps)
                }
                // Its condition TelemetryFresh is False, by which the extender takes the node for unknown.
                NodeDraw::Estimated { .. } | NodeDraw::Unknown { .. } => (None, None, caps),
            }
        });
        (looks, verdicts.into_iter().map(|decision| decision.verdict).collect::<Vec<_>>())
    };

    let mut before = pass(0, true, &[]).0;
    for second in (10..=60).step_by(10) {
        before = pass(second, true, &[]).0;
    }
    let [(_, cool, _), (_, hot, _)] = before;
    assert!(cool < Some(Percent::from_int(13)) && hot > Some(Percent::from_int(83)), "{before:?}");
    for second in (70..=660).step_by(10) {
        // Values are fresh for FACILITY_HOLD, which is 5 min.
        let is_stale = second > 60 + 300;
        let candidates = [candidate];
        let given: &[EvictionCandidate<'_>] = if is_stale { &candidates } else { &[] };
        let (looks, verdicts) = pass(second, false, given);
        for ((headroom, cooling, caps), was) in looks.into_iter().zip(before) {
            assert!(headroom <= was.0, "{second}: {headroom:?} and {was:?}");
            assert!(
                cooling.is_none_or(|cooling| Some(cooling) >= was.1),
                "{second}: {cooling:?} and {was:?}"
            );
            assert_eq!(caps, was.2, "{second}: no cap moves");
        }
        let is_eviction = |verdict: &EvictionVerdict| matches!(verdict, EvictionVerdict::Evict { .. });
        assert!(!verdicts.iter().any(is_eviction), "{second}: {verdicts:?}");
    }
    // It answers again: after two rounds of the sensors all is as it was.
    for second in [690, 720] {
        pass(second, true, &[]);
    }
    assert_eq!(pass(721, true, &[]).0, before);
}
