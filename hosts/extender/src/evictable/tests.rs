//! Whom preempt names, by cards, priorities, budgets and what kube-scheduler counts.

use super::*;
use crate::dra::ClaimedCards;
use crate::gpus::{GpuRow, Models, node_cards};
use host_kit::reflect::by_hand;
use joulie_api::extender::preempt::PreemptArgs;
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::gpu::ModelSet;
use serde_json::json;

fn pod(uid: &str, priority: i64, gpus: u32, cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": gpus.to_string()}});
    json!({"metadata": {"name": uid, "namespace": "d", "uid": uid, "labels": {"app": uid}},
           "spec": {"nodeName": "n", "priority": priority, "containers": [{"name": "c", "resources": resources}]}})
}

fn card(name: &str, model: &str, holder: &str) -> Value {
    let status = match holder {
        "" => json!({"allocatedVRAMmb": 0, "phase": "Available"}),
        uid => json!({"allocatedVRAMmb": 40_000, "phase": "Allocated", "podName": uid,
                      "allocations": [{"podUID": uid, "podName": uid, "vramMb": 40_000}]}),
    };
    json!({"metadata": {"name": name, "uid": name}, "status": status,
           "spec": {"nodeName": "n", "uuid": name, "model": model, "totalVRAMmb": 40_000, "vendor": "nvidia"}})
}

/// A node with these pods and cards, and budgets: an app, and how many disruptions it allows.
struct Room {
    builder: EvictablesBuilder,
    held: Vec<HeldCard>,
    models: Models,
}

impl Room {
    fn of(pods: &[Value], cards: &[Value], budgets: &[(&str, i64)]) -> Self {
        let (mut writer, rows) = by_hand::<BudgetRow>();
        let budgets: Vec<Value> = budgets
            .iter()
            .map(|(app, allowed)| {
                json!({"metadata": {"name": app, "namespace": "d", "uid": app},
                       "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": allowed}})
            })
            .collect();
        writer.list(&budgets);
        let mut builder = EvictablesBuilder::new(Some(rows));
        builder.renew();
        builder.follow(&ReflectEvent::Begin);
        for pod in pods {
            let row = Arc::new(PodRow::read(pod).unwrap());
            builder.follow(&ReflectEvent::Seen { uid: String::new(), row });
        }
        builder.follow(&ReflectEvent::Whole);
        let rows: Vec<GpuRow> = cards.iter().map(|one| GpuRow::read(one).unwrap()).collect();
        let mut models = Models::default();
        let now = UnixTime::from_micros(0);
        let claimed = ClaimedCards::default();
        let held = node_cards(rows.iter(), &claimed, now, |name, vendor| models.number(name, vendor));
        Self { builder, held, models }
    }

    /// The victims, and how many budgets they violate, of a pod with a priority of 100 for whom kube-scheduler has chosen some.
    fn asked(
        &mut self,
        (model, count): (&str, i64),
        preemptor: &Value,
        chosen: &[&str],
    ) -> Option<(Vec<String>, i64)> {
        let pods: Vec<Value> = chosen.iter().map(|uid| json!({"UID": uid})).collect();
        let body =
            json!({"Pod": preemptor, "NodeNameToMetaVictims": {"n": {"Pods": pods, "NumPDBViolations": 5}}});
        let body = body.to_string();
        let mut args = PreemptArgs::parse(body.as_bytes()).unwrap();
        let models = ModelSet::EMPTY.with(self.models.number(model, Some(GpuVendor::Nvidia)));
        let request = GpuRequest::new(None, None, count).unwrap().of(models);
        let victims = args.nodes.first_mut().unwrap();
        let before = victims.clone();
        let preemptor = Preemptor::read(args.pod);
        let is_changed = self.builder.shown().replace(victims, &self.held, request, preemptor);
        assert!(is_changed || *victims == before);
        let uids = victims.uids.iter().map(|uid| uid.as_str().to_owned()).collect();
        is_changed.then_some((uids, victims.pdb_violations))
    }
}

fn urgent(gpus: u32) -> Value {
    let mut pod = pod("urgent", 100, gpus, "1");
    pod["spec"]["nodeName"] = json!(null);
    pod
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_useless_victim_is_swapped_for_one_that_has_the_wished_card() {
    let pods = [pod("useless", 0, 1, "1"), pod("holder", 10, 1, "1")];
    let cards = [card("t", "T4", "useless"), card("a", "A100", "holder")];
    let mut room = Room::of(&pods, &cards, &[]);
    assert_eq!(room.asked(("A100", 1), &urgent(1), &["useless"]), Some((names(&["holder"]), 0)));
    // Nothing was proposed, as kube-scheduler does from 1.38 on.
    assert_eq!(room.asked(("A100", 1), &urgent(1), &[]), Some((names(&["holder"]), 0)));
    // Nobody has such a card.
    assert_eq!(room.asked(("H100", 1), &urgent(1), &["useless"]), None);
    assert_eq!(room.asked(("A100", 2), &urgent(2), &["useless"]), None);
    // The holder is as important as the pod.
    let mut equal = urgent(1);
    equal["spec"]["priority"] = json!(10);
    assert_eq!(room.asked(("A100", 1), &equal, &["useless"]), None);
    equal["spec"]["priority"] = json!(null);
    assert_eq!(room.asked(("A100", 1), &equal, &["useless"]), None, "no priority is 0");
    // It has left; and one that is leaving is not evicted.
    room.builder.follow(&ReflectEvent::Gone { uid: "holder".to_owned() });
    assert_eq!(room.asked(("A100", 1), &urgent(1), &["useless"]), None);
    let mut leaving = pods.clone();
    leaving[1]["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    assert_eq!(Room::of(&leaving, &cards, &[]).asked(("A100", 1), &urgent(1), &["useless"]), None);
}

#[test]
fn a_victim_stays_one_where_something_else_may_need_it() {
    let cards = [card("t", "T4", "useless"), card("a", "A100", "holder")];
    let both = Some((names(&["useless", "holder"]), 0));
    // It frees more processors than the other one does.
    let mut pods = [pod("useless", 0, 1, "2"), pod("holder", 10, 1, "1")];
    assert_eq!(Room::of(&pods, &cards, &[]).asked(("A100", 1), &urgent(1), &["useless"]), both);
    // It has a port of the node, or the preemptor looks at other pods.
    pods[0] = pod("useless", 0, 1, "1");
    pods[0]["spec"]["containers"][0]["ports"] = json!([{"hostPort": 80}]);
    assert_eq!(Room::of(&pods, &cards, &[]).asked(("A100", 1), &urgent(1), &["useless"]), both);
    pods[0] = pod("useless", 0, 1, "1");
    let mut room = Room::of(&pods, &cards, &[]);
    for (field, value) in [
        ("affinity", json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}})),
        ("topologySpreadConstraints", json!([{}])),
        ("volumes", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}])),
        ("initContainers", json!([{}])),
        ("hostNetwork", json!(true)),
    ] {
        let mut asks = urgent(1);
        asks["spec"][field] = value;
        assert_eq!(room.asked(("A100", 1), &asks, &["useless"]), both, "{field}");
    }
    let mut asks = urgent(1);
    asks["spec"]["volumes"] = json!([{"name": "v", "projected": {}}]);
    assert_eq!(room.asked(("A100", 1), &asks, &["useless"]), Some((names(&["holder"]), 0)));
    // A pod without GPUs is not known here: kube-scheduler has chosen it for what it checks, and counted its budgets.
    let with_other = Some((names(&["other", "holder"]), 5));
    assert_eq!(room.asked(("A100", 1), &urgent(1), &["other"]), with_other);
}

#[test]
fn a_pod_frees_what_it_requests_and_not_what_it_is_assumed_to_use() {
    let cards = [card("t", "T4", "useless"), card("a", "A100", "holder")];
    let mut pods = [pod("useless", 0, 1, "200m"), pod("holder", 10, 1, "200m")];
    let asked = |pods: &[Value]| Room::of(pods, &cards, &[]).asked(("A100", 1), &urgent(1), &["useless"]);
    assert_eq!(asked(&pods), Some((names(&["holder"]), 0)));
    // It requests no processors, so none are free without the other one, though it uses some.
    let both = Some((names(&["useless", "holder"]), 0));
    pods[1]["spec"]["containers"][0]["resources"]["requests"] = json!(null);
    assert_eq!(asked(&pods), both);
    pods[1]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "0"}, "limits": {"cpu": "8", "nvidia.com/gpu": "1"}});
    assert_eq!(asked(&pods), both);
    // Nor does the node have memory for both.
    let memory = json!({"cpu": "200m", "memory": "1Gi"});
    pods[0]["spec"]["containers"][0]["resources"]["requests"] = memory.clone();
    pods[1]["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "200m", "memory": "512Mi"});
    assert_eq!(asked(&pods), both);
    pods[1]["spec"]["containers"][0]["resources"]["requests"] = memory;
    assert_eq!(asked(&pods), Some((names(&["holder"]), 0)));
}

#[test]
fn nobody_else_is_named_before_the_budgets_are_known_or_for_a_pod_that_joins_others() {
    let cards = [card("t", "T4", "useless"), card("a", "A100", "holder")];
    let pods = [pod("useless", 0, 1, "1"), pod("holder", 10, 1, "1")];
    let mut room = Room::of(&pods, &cards, &[]);
    let mut joins = urgent(1);
    let term =
        json!({"labelSelector": {"matchLabels": {"app": "holder"}}, "topologyKey": "kubernetes.io/hostname"});
    joins["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([term]);
    assert_eq!(room.asked(("A100", 1), &joins, &["useless"]), None);
    assert!(room.asked(("A100", 1), &urgent(1), &["useless"]).is_some());
    let (mut writer, rows) = by_hand::<BudgetRow>();
    room.builder.budgets = Some(rows);
    room.builder.shown.budgets = None;
    room.builder.renew();
    assert_eq!(room.asked(("A100", 1), &urgent(1), &["useless"]), None);
    // The list was read, and has none.
    writer.list([]);
    room.builder.renew();
    assert!(room.asked(("A100", 1), &urgent(1), &["useless"]).is_some());
}

#[test]
fn a_budget_that_cannot_be_read_covers_every_pod_of_its_namespace_and_allows_nothing() {
    let cards = [card("a", "A100", "one"), card("b", "A100", "two")];
    let mut pods = [pod("one", 5, 1, "1"), pod("two", 1, 1, "1")];
    pods[1]["metadata"]["namespace"] = json!("e");
    let (mut writer, rows) = by_hand::<BudgetRow>();
    let mut room = Room::of(&pods, &cards, &[]);
    room.builder.budgets = Some(rows);
    let budget = |namespace: &str, labels: Value| {
        json!({"metadata": {"name": "b", "namespace": namespace, "uid": "b"},
               "spec": {"selector": {"matchLabels": labels}}, "status": {"disruptionsAllowed": 9}})
    };
    let mut asked = |room: &mut Room, budgets: &[Value]| {
        writer.list(budgets);
        room.builder.renew();
        room.asked(("A100", 1), &urgent(1), &[])
    };
    assert_eq!(asked(&mut room, &[]), Some((names(&["two"]), 0)), "the least important one");
    // It was never read: whom it is for is unknown, and how many it allows.
    assert_eq!(asked(&mut room, &[budget("e", json!(7))]), Some((names(&["one"]), 0)));
    let both = [budget("d", json!(7)), budget("e", json!(7))];
    assert_eq!(asked(&mut room, &both), Some((names(&["two"]), 1)));
    // It can be read again, and then not any more: what it said before may not be so.
    assert_eq!(asked(&mut room, &[budget("e", json!({"app": "other"}))]), Some((names(&["two"]), 0)));
    assert_eq!(asked(&mut room, &[budget("e", json!(7))]), Some((names(&["one"]), 0)));
}

#[test]
fn the_fewest_go_and_of_as_many_the_least_important() {
    let cards = [
        card("a", "A100", "one"),
        card("b", "A100", "two"),
        card("c", "A100", "pair"),
        card("d", "A100", "pair"),
    ];
    let pods = [pod("one", 5, 1, "1"), pod("two", 1, 1, "1"), pod("pair", 50, 2, "1")];
    let mut room = Room::of(&pods, &cards, &[]);
    assert_eq!(room.asked(("A100", 1), &urgent(1), &[]), Some((names(&["two"]), 0)));
    assert_eq!(room.asked(("A100", 2), &urgent(2), &[]), Some((names(&["pair"]), 0)), "one pod and not two");
    assert_eq!(room.asked(("A100", 3), &urgent(3), &[]), Some((names(&["two", "pair"]), 0)));
    assert_eq!(room.asked(("A100", 4), &urgent(4), &[]), Some((names(&["two", "one", "pair"]), 0)));
    // What kube-scheduler has chosen rightly so far is a part of it.
    assert_eq!(room.asked(("A100", 2), &urgent(2), &["one"]), Some((names(&["one", "two"]), 0)));
    // Twelve pods: those that need not go are spared, the most important first.
    let many: Vec<Value> = (0..12).map(|at| pod(&format!("p{at:02}"), 20 - at, 1, "1")).collect();
    let cards: Vec<Value> = (0..12).map(|at| card(&format!("c{at}"), "A100", &format!("p{at:02}"))).collect();
    let mut room = Room::of(&many, &cards, &[]);
    assert_eq!(room.asked(("A100", 2), &urgent(2), &[]), Some((names(&["p11", "p10"]), 0)));
}

#[test]
fn budgets_are_counted_as_kube_scheduler_counts_them_and_kept_where_they_can_be() {
    let cards = [card("a", "A100", "one"), card("b", "A100", "two")];
    let pods = [pod("one", 5, 1, "1"), pod("two", 1, 1, "1")];
    // The less important one is in a budget that allows nothing.
    let mut room = Room::of(&pods, &cards, &[("two", 0)]);
    assert_eq!(room.asked(("A100", 1), &urgent(1), &[]), Some((names(&["one"]), 0)));
    assert_eq!(room.asked(("A100", 2), &urgent(2), &[]), Some((names(&["two", "one"]), 1)));
    // Two pods of one app, of which one may go.
    let mut alike = pods.clone();
    alike.iter_mut().for_each(|pod| pod["metadata"]["labels"]["app"] = json!("both"));
    assert_eq!(Room::of(&alike, &cards, &[("both", 1)]).asked(("A100", 2), &urgent(2), &[]).unwrap().1, 1);
    assert_eq!(Room::of(&alike, &cards, &[("both", 2)]).asked(("A100", 2), &urgent(2), &[]).unwrap().1, 0);
    // A selector that is empty selects nothing, and a disruption that was counted is not counted again.
    let empty = json!({"metadata": {"namespace": "d"}, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}});
    let counted = json!({"metadata": {"namespace": "d"}, "spec": {"selector": {"matchExpressions": [
        {"key": "app", "operator": "Exists"}]}}, "status": {"disruptionsAllowed": 0, "disruptedPods": {"one": "now"}}});
    let one = PodRow::read(&pods[0]).unwrap().cards.unwrap();
    let two = PodRow::read(&pods[1]).unwrap().cards.unwrap();
    assert!(!BudgetRow::read(&empty).unwrap().covers(&one));
    let counted = BudgetRow::read(&counted).unwrap();
    assert_eq!((counted.covers(&one), counted.covers(&two)), (false, true));
    assert!(BudgetRow::read(&json!({"spec": {"selector": {"matchLabels": 7}}})).is_err());
}

#[test]
fn pods_are_followed_through_lists_moves_and_ends() {
    let cards = [card("a", "A100", "one")];
    let mut room = Room::of(&[pod("one", 0, 1, "1")], &cards, &[]);
    let is_there = |room: &mut Room| room.asked(("A100", 1), &urgent(1), &[]).is_some();
    assert!(is_there(&mut room));
    // A list without it.
    room.builder.follow(&ReflectEvent::Begin);
    room.builder.follow(&ReflectEvent::Whole);
    assert!(!is_there(&mut room) && room.builder.nodes.is_empty() && room.builder.shown.pods.is_empty());
    let mut see = |pod: &Value| {
        let row = Arc::new(PodRow::read(pod).unwrap());
        room.builder.follow(&ReflectEvent::Seen { uid: String::new(), row });
        (room.builder.nodes.len(), room.builder.shown.pods.len())
    };
    assert_eq!(see(&pod("one", 0, 1, "1")), (1, 1));
    assert_eq!(see(&pod("one", 0, 1, "1")), (1, 1), "the same once more");
    let mut ended = pod("one", 0, 1, "1");
    ended["status"] = json!({"phase": "Failed"});
    assert_eq!(see(&ended), (0, 0));
    assert_eq!(see(&pod("none", 0, 0, "1")), (0, 0), "a pod without GPUs");
}
