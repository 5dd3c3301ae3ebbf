use super::*;
use host_kit::reflect::{ByHand, Row, by_hand};
use serde_json::{Value, json};

struct World {
    nodes: ByHand<SiteRow>,
    services: ByHand<ServiceRow>,
    builder: OtherScoresBuilder,
    registry: Registry,
}

impl World {
    /// Two nodes that are alike, no Service and no pod.
    fn new() -> Self {
        let ((mut nodes, seen_nodes), (mut services, seen_services)) = (by_hand(), by_hand());
        nodes.list(&[site("a", "z1"), site("b", "z2")]);
        services.list([]);
        let mut registry = Registry::default();
        for name in ["a", "b"] {
            registry.number(name);
        }
        let builder = OtherScoresBuilder::new(Some(seen_nodes), Some(seen_services));
        let mut world = Self { nodes, services, builder, registry };
        world.builder.follow(&ReflectEvent::Begin);
        world.builder.follow(&ReflectEvent::Whole);
        world
    }

    fn shown(&mut self) -> Arc<OtherScores> {
        self.builder.renew(&self.registry);
        self.builder.shown()
    }

    fn judged(&mut self, pod: &Value) -> Result<(), ListAnswer> {
        let text = pod.to_string();
        self.shown().indifferent(Some(serde_json::from_str(&text).unwrap()))
    }

    fn see(&mut self, uid: &str, affinity: &Value) {
        let pod = json!({"metadata": {"uid": uid, "namespace": "n"}, "spec": {"affinity": affinity}});
        let row = Arc::new(PodRow::read(&pod).unwrap());
        self.builder.follow(&ReflectEvent::Seen { uid: uid.to_owned(), row });
    }
}

fn site(name: &str, zone: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "labels": {"topology.kubernetes.io/zone": zone}},
           "status": {"images": [{"names": ["everywhere:1"], "sizeBytes": 900_000_000}]}})
}

fn pod(image: &str) -> Value {
    json!({"metadata": {"namespace": "n", "labels": {"app": "x", "job-name": "j"}},
           "spec": {"containers": [{"image": image}]}})
}

#[test]
fn a_pod_is_safe_only_while_everything_is_known() {
    let mut world = World::new();
    assert_eq!(world.judged(&pod("everywhere:1")), Ok(()));
    assert_eq!(world.shown().indifferent(None), Err(ListAnswer::Unknown));
    let unread = Arc::new(OtherScores::default());
    let text = pod("x").to_string();
    assert_eq!(unread.indifferent(Some(serde_json::from_str(&text).unwrap())), Err(ListAnswer::Unknown));
    // A pod without a name for its image.
    let odd = json!({"metadata": {"namespace": "n"}, "spec": {"containers": [{}]}});
    assert_eq!(world.judged(&odd), Err(ListAnswer::Unknown));
    // A node that cannot be read.
    let images: Vec<Value> =
        (0..2_000).map(|n| json!({"names": [format!("{n}")], "sizeBytes": 1_u64 << 30})).collect();
    world.nodes.apply(&json!({"metadata": {"name": "b", "uid": "b"}, "status": {"images": images}}));
    assert_eq!(world.judged(&pod("everywhere:1")), Err(ListAnswer::Unknown));
    assert_eq!(world.shown().site(Some(1)).indifferent(), Err(ListAnswer::Unknown));
}

#[test]
fn a_service_that_selects_the_pod_spreads_it() {
    let mut world = World::new();
    let service = |namespace: &str, selector: Value| json!({"metadata": {"name": "s", "namespace": namespace, "uid": "s"}, "spec": {"selector": selector}});
    for (namespace, selector, answer) in [
        ("n", json!({"app": "x"}), Err(ListAnswer::Spread)),
        ("n", json!({"job-name": "j", "app": "x"}), Err(ListAnswer::Spread)),
        ("n", json!({"app": "y"}), Ok(())),
        ("n", json!({}), Ok(())),
        ("other", json!({"app": "x"}), Ok(())),
    ] {
        world.services.list(&[service(namespace, selector.clone())]);
        assert_eq!(world.judged(&pod("everywhere:1")), answer, "{namespace} {selector}");
    }
    world.services.list(&[service("n", json!({"app": "x"}))]);
    let mut hard = pod("everywhere:1");
    hard["spec"]["topologySpreadConstraints"] = json!([{"whenUnsatisfiable": "DoNotSchedule"}]);
    assert_eq!(world.judged(&hard), Ok(()));
}

#[test]
fn the_affinity_of_other_pods_counts_while_they_are_there() {
    let mut world = World::new();
    let near =
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}});
    let anywhere = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "z", "namespaceSelector": {}}]}});
    let mut elsewhere = pod("everywhere:1");
    elsewhere["metadata"]["namespace"] = json!("other");
    world.see("1", &near);
    assert_eq!(world.judged(&pod("everywhere:1")), Err(ListAnswer::Neighbour));
    assert_eq!(world.judged(&elsewhere), Ok(()));
    world.see("2", &anywhere);
    assert_eq!(world.judged(&elsewhere), Err(ListAnswer::Neighbour));
    world.builder.follow(&ReflectEvent::Gone { uid: "2".to_owned() });
    assert_eq!(world.judged(&elsewhere), Ok(()));
    // A new list without the pod.
    world.builder.follow(&ReflectEvent::Begin);
    world.see("3", &json!(null));
    world.builder.follow(&ReflectEvent::Whole);
    assert_eq!(world.judged(&pod("everywhere:1")), Ok(()));
}

#[test]
fn an_image_matters_that_some_nodes_have() {
    let mut world = World::new();
    // 900 MB of half of the nodes are 450 MB: (450 − 24) of (1049 − 24) points.
    let mut one = site("b", "z2");
    one["status"]["images"] = json!([
        {"names": ["everywhere:1"], "sizeBytes": 900_000_000},
        {"names": ["some:latest"], "sizeBytes": 900_000_000},
        {"names": ["light:1"], "sizeBytes": 40_000_000},
    ]);
    world.nodes.apply(&one);
    assert_eq!(world.judged(&pod("some")), Err(ListAnswer::Image));
    assert_eq!(world.judged(&pod("some:latest")), Err(ListAnswer::Image));
    // The registry's port is no tag.
    assert_eq!(world.judged(&pod("host:5000/some")), Ok(()));
    // Half of 40 MB is less than what any image must have.
    assert_eq!(world.judged(&pod("light:1")), Ok(()));
    assert_eq!(world.judged(&pod("never-seen:1")), Ok(()));
    // Once the other node has it too, or no node has it any more, it does not matter.
    let mut other = one.clone();
    other["metadata"] = site("a", "z1")["metadata"].clone();
    world.nodes.apply(&other);
    assert_eq!(world.judged(&pod("some")), Ok(()));
    world.nodes.delete(&one);
    assert_eq!(world.judged(&pod("some")), Ok(()));
    world.nodes.list(&[site("a", "z1"), site("b", "z2")]);
    assert_eq!(world.judged(&pod("some")), Ok(()));
}

#[test]
fn zones_and_taints_are_those_of_the_nodes() {
    let mut world = World::new();
    world.registry.number("unknown");
    let shown = world.shown();
    assert_eq!([0, 1, 2, 3].map(|number| shown.site(Some(number)).zone()), [1, 2, 0, 0]);
    assert_eq!(shown.site(Some(0)).indifferent(), Ok(()));
    assert_eq!(shown.site(Some(2)).indifferent(), Err(ListAnswer::Unknown));
    assert_eq!(shown.site(None).indifferent(), Err(ListAnswer::Unknown));
    let mut tainted = site("a", "z1");
    tainted["spec"]["taints"] = json!([{"effect": "PreferNoSchedule"}]);
    world.nodes.apply(&tainted);
    assert_eq!(world.shown().site(Some(0)).indifferent(), Err(ListAnswer::Taint));
}
