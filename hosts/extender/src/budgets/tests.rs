use super::*;
use host_kit::reflect::{Rows, by_hand};
use joulie_core::placement::freshness::Freshness;
use joulie_core::placement::score::{NodeFacts, TwinPower, TwinStatus};
use power_units::Micros;
use serde_json::{Value, json};

fn watts(watts: i32) -> Watts {
    Watts::from_int(watts)
}

/// A budget of which the operator says what it can grant to performance, draining and eco nodes.
fn budget(name: &str, parent: Option<&str>, grantable: [i32; 3], more: &Value) -> Value {
    let [performance, draining, eco] = grantable;
    let mut object = json!({"metadata": {"name": name, "uid": name, "generation": 3},
        "spec": {"parent": parent, "watts": 1000, "mode": "enforce"},
        "status": {"observedGeneration": 3, "limitWatts": 1000, "mode": "enforce", "demand": {
            "assumedWatts": 0,
            "grantableWatts": {"performance": performance, "draining": draining, "eco": eco},
            "price": {"performance": 0, "draining": 0.25, "eco": 0.5}}}});
    merge(&mut object, more);
    object
}

fn merge(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            more.iter().for_each(|(key, more)| merge(object.entry(key).or_insert(Value::Null), more));
        }
        (object, more) => *object = more.clone(),
    }
}

fn rows(objects: &[Value]) -> Rows<BudgetRow> {
    let (mut server, rows) = by_hand::<BudgetRow>();
    server.list(objects);
    rows
}

fn budgets(objects: &[Value]) -> Budgets {
    rows(objects).with(|rows| Budgets::of(rows, true))
}

/// A node that draws 300 W, could be granted 700 W, and is entitled to 350 W.
fn node(budget: Option<&str>, class: SchedulableClass) -> Node {
    let power = Some(TwinPower { measured: Some(watts(300)), capped: Some(watts(700)), trend: None });
    let twin = Some(TwinStatus { power, entitled: Some(watts(350)), ..TwinStatus::silent(class) });
    Node { twin, budget: budget.map(Arc::from), ..Node::unknown("n") }
}

/// All names in these tests.
const NAMES: [&str; 6] = ["rack-0", "rack-1", "row", "site", "a", "b"];

/// What is left on each node, and which budget bounds it.
fn left(budgets: &Budgets, nodes: &[Node], assumed: &[i32]) -> Vec<(Watts, Option<&'static str>)> {
    let freshness = Freshness::Fresh { left: Micros::MINUTE };
    let places = budgets.places(nodes);
    let classes: Vec<_> = nodes.iter().map(|node| node.twin.unwrap().class).collect();
    let filter = |node: &Node| {
        FilterTerms::of(&NodeFacts { freshness, twin: node.twin.as_ref(), hardware: None }, false)
    };
    let filters: Vec<FilterTerms> = nodes.iter().map(filter).collect();
    let assumed: Vec<Watts> = assumed.iter().copied().map(watts).collect();
    let left = budgets.left(&places, &classes, &filters, &assumed);
    let name = |at| NAMES.into_iter().find(|name| budgets.name(left.by(at)) == Some(name));
    (0..nodes.len()).map(|at| (left.of(at).unwrap(), name(at))).collect()
}

use SchedulableClass::{Draining, Eco, Performance, Unknown};

#[test]
fn the_least_on_the_way_up_is_left_for_the_node_s_class_and_is_named() {
    let none = json!({});
    let all = budgets(&[
        budget("rack-0", Some("site"), [380, 250, 90], &none),
        budget("rack-1", Some("site"), [200, 200, 200], &none),
        budget("site", None, [380, 250, 90], &none),
    ]);
    let of = |rack: &str, class| left(&all, &[node(Some(rack), class)], &[0])[0];
    // Of equals the highest is named; its own cap leaves 400 W, its entitlement 50 W.
    assert_eq!(of("rack-0", Performance), (watts(380), Some("site")));
    assert_eq!(of("rack-0", Draining), (watts(250), Some("site")));
    assert_eq!(of("rack-0", Eco), (watts(90), Some("site")));
    assert_eq!(of("rack-0", Unknown), (watts(90), Some("site")), "a class that is not known is served last");
    assert_eq!(of("rack-1", Performance), (watts(200), Some("rack-1")));
    let much = budgets(&[budget("rack-0", None, [9000, 9000, 20], &none)]);
    assert_eq!(left(&much, &[node(Some("rack-0"), Performance)], &[0]), [(watts(400), None)], "its own cap");
    assert_eq!(
        left(&much, &[node(Some("rack-0"), Eco)], &[0]),
        [(watts(50), Some("rack-0"))],
        "its entitlement"
    );
}

#[test]
fn what_is_assumed_below_a_limit_is_taken_off_it_once() {
    let all = budgets(&[
        budget("rack-0", Some("site"), [380, 0, 0], &json!({"status": {"demand": {"assumedWatts": 60}}})),
        budget("site", None, [390, 0, 0], &json!({})),
    ]);
    let nodes = [node(Some("rack-0"), Performance), node(Some("rack-0"), Performance)];
    // 100 W are assumed on the first node: the site has 290 W left. The rack's operator knows of 60 W of them: 340 W.
    assert_eq!(left(&all, &nodes, &[100, 0]), [(watts(290), Some("site")), (watts(290), Some("site"))]);
    // Of 250 W more on the first node nothing is left there but what its own cap allows.
    assert_eq!(left(&all, &nodes, &[350, 0]), [(watts(40), Some("site")), (watts(50), Some("site"))]);
}

#[test]
fn what_is_not_said_of_the_limit_that_stands_leaves_the_entitlement_alone() {
    let of = |more: Value| {
        let all = budgets(&[budget("rack-0", None, [380, 380, 380], &more)]);
        left(&all, &[node(Some("rack-0"), Performance)], &[0])[0]
    };
    assert_eq!(of(json!({})), (watts(380), Some("rack-0")));
    let unknown = (watts(50), None);
    for more in [
        json!({"metadata": {"generation": 4}}),
        json!({"status": null}),
        json!({"status": {"demand": null}}),
        json!({"status": {"mode": "observe"}}),
        json!({"status": {"demand": {"grantableWatts": {"eco": null}}}}),
        json!({"status": {"demand": {"grantableWatts": {"eco": 1e300}}}}),
        json!({"status": {"demand": {"assumedWatts": null}}}),
        json!({"status": {"demand": {"price": null}}}),
    ] {
        assert_eq!(of(more.clone()), unknown, "{more}");
    }
    let good = rows(&[budget("rack-0", None, [380, 380, 380], &json!({}))]);
    let silent = good.with(|rows| Budgets::of(rows, false));
    assert_eq!(left(&silent, &[node(Some("rack-0"), Performance)], &[0]), [unknown], "nobody plans");
    for place in [None, Some("gone")] {
        assert_eq!(left(&silent, &[node(place, Performance)], &[0]), [unknown]);
    }
}

#[test]
fn a_limit_that_is_only_observed_bounds_nothing_and_a_cycle_ends() {
    let observed = json!({"spec": {"mode": "observe"}, "status": {"mode": "observe", "demand": null}});
    let all = budgets(&[
        budget("row", Some("site"), [0, 0, 0], &observed),
        budget("site", None, [120, 0, 0], &json!({})),
    ]);
    assert_eq!(left(&all, &[node(Some("row"), Performance)], &[0]), [(watts(120), Some("site"))]);
    let cycle = budgets(&[
        budget("a", Some("b"), [120, 0, 0], &json!({})),
        budget("b", Some("a"), [90, 0, 0], &json!({})),
    ]);
    assert_eq!(left(&cycle, &[node(Some("a"), Performance)], &[10]), [(watts(80), Some("b"))]);
}

#[test]
fn the_highest_price_on_the_way_up_is_the_price_of_the_node() {
    let dear = json!({"status": {"demand": {"price": {"performance": 0.3, "draining": 7, "eco": 0}}}});
    let all = budgets(&[
        budget("rack-0", Some("site"), [0, 0, 0], &json!({})),
        budget("site", None, [0, 0, 0], &dear),
    ]);
    let mut nodes = [Performance, Draining, Eco].map(|class| node(Some("rack-0"), class));
    let places = all.places(&nodes);
    all.price(&mut nodes, &places);
    let price = |text: &str| Ratio::parse(text, Role::Demand).unwrap();
    // More than everything is everything.
    assert_eq!(nodes.clone().map(|node| node.twin.unwrap().price), [price("0.3"), Ratio::ONE, price("0.5")]);
    Budgets::default().price(&mut nodes, &places);
    assert!(nodes.iter().all(|node| node.twin.unwrap().price == Ratio::ZERO), "nothing is known any more");
}
