use super::*;
use serde_json::json;

fn node(value: Value) -> NodeRow {
    NodeRow::read(&value).unwrap()
}

fn pod(spec: Value) -> PodRow {
    PodRow::read(&json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})).unwrap()
}

fn asking(cpu: &str, memory: &str, on: Option<&str>) -> PodRow {
    pod(json!({"nodeName": on, "containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}]}))
}

fn sized(cpu: &str, memory: &str) -> NodeRow {
    node(
        json!({"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110", "nvidia.com/gpu": "4"}}}),
    )
}

fn scores(nodes: &[(&str, &NodeRow)], bound: &[PodRow], pod: &PodRow) -> BTreeMap<String, i64> {
    let mut fit = Fit::of(nodes.iter().copied());
    bound.iter().for_each(|one| fit.take(one));
    fit.scores(pod).into_iter().map(|(name, score)| (name.to_owned(), score)).collect()
}

#[test]
fn a_node_scores_what_it_would_have_left() {
    // (8 − 2 − 2) of 8 is 50 %, (16 − 4 − 4) of 16 is 50 %; the other node is empty: 75 % and 75 %.
    let row = sized("8", "16Gi");
    let bound = [asking("2", "4Gi", Some("a"))];
    let got = scores(&[("a", &row), ("b", &row)], &bound, &asking("2000m", "4Gi", None));
    assert_eq!(got, BTreeMap::from([("a".to_owned(), 50), ("b".to_owned(), 75)]));
}

#[test]
fn what_does_not_fit_exactly_does_not_fit() {
    let row = sized("4", "8Gi");
    assert_eq!(scores(&[("a", &row)], &[], &asking("4", "8Gi", None)).len(), 1);
    assert_eq!(scores(&[("a", &row)], &[], &asking("4001m", "1Gi", None)).len(), 0);
    assert_eq!(
        scores(&[("a", &row)], &[asking("1", "1Gi", Some("a"))], &asking("3.5", "1Gi", None)).len(),
        0
    );
    let ended = PodRow { ended: true, ..asking("4", "8Gi", Some("a")) };
    assert_eq!(scores(&[("a", &row)], &[ended], &asking("4", "8Gi", None)).len(), 1);
}

#[test]
fn a_limit_alone_is_a_request_and_gpus_are_counted() {
    let row = sized("8", "16Gi");
    let gpus =
        |count: &str| pod(json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": count}}}]}));
    assert_eq!(scores(&[("a", &row)], &[], &gpus("4")).len(), 1);
    assert_eq!(scores(&[("a", &row)], &[], &gpus("5")).len(), 0);
    assert_eq!(
        scores(
            &[("a", &row)],
            &[],
            &pod(json!({"containers": [{"resources": {"limits": {"amd.com/gpu": 1}}}]}))
        )
        .len(),
        0
    );
}

#[test]
fn the_largest_init_container_counts_where_it_is_more() {
    let row = sized("4", "8Gi");
    let with = |init: &str| {
        pod(json!({
            "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"resources": {"requests": {"cpu": init}}}],
        }))
    };
    assert_eq!(with("1").asks["cpu"], 2_000_000_000);
    assert_eq!(with("5").asks["cpu"], 5_000_000_000);
    assert_eq!(scores(&[("a", &row)], &[], &with("5")).len(), 0);
}

#[test]
fn cordons_taints_and_selectors_keep_pods_away() {
    let status = json!({"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}});
    let cordoned = node(json!({"spec": {"unschedulable": true}, "status": status}));
    let taint = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]);
    let tainted = node(json!({"spec": {"taints": taint}, "status": status}));
    let labelled = node(json!({"metadata": {"labels": {"zone": "a"}}, "status": status}));
    let nodes = [("cordoned", &cordoned), ("tainted", &tainted), ("labelled", &labelled)];
    let names = |pod: &PodRow| scores(&nodes, &[], pod).into_keys().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&pod(json!({}))), "labelled");
    assert_eq!(names(&pod(json!({"nodeSelector": {"zone": "b"}}))), "");
    for (toleration, expected) in [
        (json!({"key": "k", "value": "v"}), "labelled tainted"),
        (json!({"key": "k", "operator": "Exists"}), "labelled tainted"),
        (json!({"operator": "Exists"}), "labelled tainted"),
        (json!({"key": "k", "value": "w"}), "labelled"),
        (json!({"key": "other", "operator": "Exists"}), "labelled"),
    ] {
        assert_eq!(names(&pod(json!({"tolerations": [toleration]}))), expected, "{toleration}");
    }
}

#[test]
fn a_node_takes_no_more_pods_than_it_may() {
    let row = node(json!({"status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "1"}}}));
    assert_eq!(scores(&[("a", &row)], &[], &pod(json!({}))).len(), 1);
    assert_eq!(scores(&[("a", &row)], &[pod(json!({"nodeName": "a"}))], &pod(json!({}))).len(), 0);
}

#[test]
fn a_pod_that_is_not_ours_to_place_is_left_alone() {
    let read = |value: Value| PodRow::read(&value).unwrap().is_ours_to_place();
    assert!(read(json!({})));
    assert!(read(json!({"spec": {"schedulerName": "default-scheduler", "nodeName": ""}})));
    assert!(!read(json!({"spec": {"schedulerName": "another"}})));
    assert!(!read(json!({"spec": {"nodeName": "a"}})));
    assert!(!read(json!({"status": {"phase": "Failed"}})));
    assert!(!read(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
}

#[test]
fn a_quantity_that_is_none_is_named() {
    let bad = PodRow::read(&json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "two"}}}]}}));
    assert!(bad.unwrap_err().starts_with("cpu: \"two\" is no quantity"));
}
