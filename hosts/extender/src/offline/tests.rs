use super::*;
use crate::metrics::Verb;
use crate::request_log;

fn given(settings: &[(&str, &str)]) -> Settings {
    super::settings(settings.iter().map(|(name, value)| ((*name).into(), (*value).into()))).unwrap()
}

const WRITTEN: &str = "2026-01-01T00:00:00Z";

/// Objects as kubectl writes them: two performance nodes with 200 and 600 of 1,000 W, an eco node, and a pod of four
/// processors that was bound to the first one and does not run yet.
fn cluster() -> Vec<Value> {
    let mut all = Vec::new();
    for (name, class, watts) in [("a", "performance", 200), ("b", "performance", 600), ("c", "eco", 100)] {
        let power = json!({"source": "http", "measuredNodePowerW": watts, "nodeCappedPowerW": 1000, "sampledAt": WRITTEN});
        all.push(json!({"kind": "Node", "metadata": {"name": name, "uid": name}}));
        all.push(json!({"kind": "NodeTwin", "metadata": {"name": name, "uid": name}, "spec": {"nodeName": name, "profile": class},
            "status": {"schedulableClass": class, "lastUpdated": WRITTEN, "predictedCoolingStressScore": 0,
                       "powerMeasurement": power}}));
        all.push(json!({"kind": "NodeHardware", "metadata": {"name": name, "uid": name}, "spec": {"nodeName": name},
            "status": {"cpu": {"totalCores": 40, "sockets": 1, "capRange": {"maxWattsPerSocket": 400}}}}));
    }
    let mut bound = pod();
    bound["kind"] = json!("Pod");
    bound["metadata"]["uid"] = json!("bound");
    bound["spec"]["nodeName"] = json!("a");
    bound["status"] = json!({"phase": "Pending"});
    all.push(bound);
    all
}

fn pod() -> Value {
    json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {"joulie.io/workload-class": "performance"}},
           "spec": {"containers": [{"resources": {"requests": {"cpu": "4"}}}]}})
}

fn saved(settings: &Settings) -> Saved {
    Saved::read(&json!({"kind": "List", "items": cluster()}).to_string(), settings).unwrap()
}

fn said(saved: &Saved, settings: &Settings, verb: &str, nodes: &[&str]) -> Value {
    let nodes: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
    serde_json::from_str(&answer(saved, settings, verb, &pod(), &nodes).unwrap()).unwrap()
}

#[test]
fn a_saved_cluster_answers_as_the_cluster_did_when_it_was_saved() {
    let settings = given(&[]);
    let saved = saved(&settings);
    assert_eq!(saved.warnings, Vec::<String>::new());
    let filter = said(&saved, &settings, "filter", &[]);
    assert_eq!(filter["nodenames"], json!(["a", "b"]));
    assert_eq!(filter["failedAndUnresolvableNodes"].as_object().unwrap().keys().collect::<Vec<_>>(), ["c"]);
    // 28 W each for the pod and for the one that is bound and in no sample yet: 0.7 · (1000 − 200 − 28 − 28)/10 + 15 =
    // 67.08, and 0.7 · (1000 − 600 − 28)/10 + 15 = 41.04.
    let scores = said(&saved, &settings, "prioritize", &["a", "b"]);
    assert_eq!(scores, json!([{"host": "a", "score": 67}, {"host": "b", "score": 41}]));
    let page = said(&saved, &settings, "explain", &["b"]);
    assert_eq!((&page["nodes"][0]["nodeName"], &page["nodes"][0]["answer"]), (&json!("b"), &json!(41)));
    assert_eq!(saved.pod("n", "p").unwrap()["metadata"]["uid"], "bound");
}

/// Without the GPU objects of the file a pod with GPUs would fit nowhere.
#[test]
fn a_saved_cluster_knows_its_gpus_and_who_claims_them() {
    let card = |node: &str| {
        json!({"kind": "GPU", "metadata": {"name": node, "uid": node},
               "spec": {"nodeName": node, "uuid": format!("GPU-{node}"), "model": "NVIDIA A100", "totalVRAMmb": 40_000, "vendor": "nvidia"},
               "status": {"allocatedVRAMmb": 0, "phase": "Available", "health": "Healthy"}})
    };
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "b", "uid": "s"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": "b", "pool": {"name": "b", "generation": 1, "resourceSliceCount": 1},
                 "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-b"}}}]}});
    let claim = json!({"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n", "uid": "c"},
        "status": {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "b", "device": "gpu-0"}]}}}});
    let mut asks = pod();
    asks["metadata"]["annotations"]["gpu-extender.mle.com/model"] = json!("A100");
    asks["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
    let kept = |settings: &[(&str, &str)], more: &[Value]| {
        let settings = given(settings);
        let items = [cluster(), more.to_vec()].concat();
        let saved = Saved::read(&json!({"kind": "List", "items": items}).to_string(), &settings).unwrap();
        let said = answer(&saved, &settings, "filter", &asks, &[]).unwrap();
        (serde_json::from_str::<Value>(&said).unwrap()["nodenames"].clone(), saved.warnings.len())
    };
    let on = [("GPU_PLACEMENT", "annotated")];
    let all = [card("a"), card("b"), slice, claim];
    assert_eq!(kept(&on, &all), (json!(["a", "b"]), 0));
    assert_eq!(kept(&on, &[card("b")]), (json!(["b"]), 0));
    let reads = [("GPU_PLACEMENT", "annotated"), ("GPU_DRA", "read")];
    assert_eq!(kept(&reads, &all), (json!(["a"]), 0), "a claim holds the card of b");
    assert_eq!(kept(&on, &[]), (json!([]), 1), "that there are none is told");
}

#[test]
fn lists_come_in_every_form() {
    let settings = given(&[]);
    // A list of one kind whose items do not say it, as `kubectl get --raw` writes it, and objects one after the other.
    let (mut lists, mut items) = (String::new(), Vec::new());
    for mut object in cluster() {
        if object["kind"] == "NodeTwin" {
            object.as_object_mut().unwrap().remove("kind");
            items.push(object);
        } else {
            lists.push_str(&object.to_string());
        }
    }
    let text = format!("{lists}\n{}", json!({"kind": "NodeTwinList", "items": items}));
    let saved = Saved::read(&text, &settings).unwrap();
    let scores = said(&saved, &settings, "prioritize", &["a"]);
    assert_eq!(scores, json!([{"host": "a", "score": 67}]));
}

#[test]
fn what_cannot_be_used_is_told() {
    let settings = given(&[]);
    for (text, why) in [
        ("", "no objects of Kubernetes"),
        ("{}", "no objects of Kubernetes"),
        ("{\"kind\":", "not JSON"),
        ("NAME  STATUS", "not JSON"),
    ] {
        let refused = Saved::read(text, &settings).err().unwrap();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    let mut objects = cluster();
    objects[1]["status"]["powerMeasurement"] = json!("no object");
    let saved = Saved::read(&json!({"items": objects}).to_string(), &settings).unwrap();
    assert!(
        saved.warnings[0].starts_with("1 of nodetwins cannot be read, such as a: "),
        "{:?}",
        saved.warnings
    );
    let nodes =
        Saved::read(&json!({"kind": "Node", "metadata": {"name": "a"}}).to_string(), &settings).unwrap();
    assert_eq!(nodes.warnings, ["there are no NodeTwins: every node is unknown"]);
    for (verb, nodes) in [("bind", vec![]), ("filter", vec!["nobody".to_owned()])] {
        assert!(answer(&saved, &settings, verb, &pod(), &nodes).is_err(), "{verb}");
    }
}

/// A line of a log: what the cluster answers now to this request.
fn line(saved: &Saved, settings: &Settings, verb: Verb, list: Option<&str>) -> Value {
    let answer = said(saved, settings, verb.word(), &["a", "b", "c"]);
    json!({"verb": verb.word(), "at": WRITTEN, "list": list, "expected": 0,
           "request": {"Pod": pod(), "NodeNames": ["a", "b", "c"]}, "answer": request_log::told(verb, &answer)})
}

#[test]
fn a_replay_says_the_same_or_what_differs() {
    let settings = given(&[]);
    let saved = saved(&settings);
    let lines =
        [line(&saved, &settings, Verb::Filter, None), line(&saved, &settings, Verb::Prioritize, None)];
    let log = format!("{}\n\n{}\n", lines[0], lines[1]);
    let (said, is_same) = replay::replay(&log, &saved, &settings.placement);
    assert_eq!(
        (said.as_str(), is_same),
        ("2 answers are the same, 0 differ, 0 lines cannot be answered\n", true)
    );
    // The eco node was no eco node then, and one line is cut off.
    let mut other = lines[0].clone();
    other["answer"]["c"] = json!("kept");
    other["expected"] = json!(3);
    let log = format!("{other}\n{{\"verb\":\n{{\"verb\":\"bind\"}}");
    let (said, is_same) = replay::replay(&log, &saved, &settings.placement);
    assert!(!is_same);
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(
        said[0],
        "line 1, filter at 2026-01-01T00:00:00Z: 1 nodes: c kept then, joulie: performance pods do not run on eco nodes now (3 other pods were expected on nodes then)"
    );
    assert!(
        said[1].starts_with("line 2 cannot be answered: ") && said[2].starts_with("line 3 cannot"),
        "{said:?}"
    );
    assert_eq!(said[3], "0 answers are the same, 1 differ, 2 lines cannot be answered");
}

#[test]
fn a_shortlist_is_replayed_as_it_was_given() {
    let settings = given(&[("SHORTLIST", "all"), ("SHORTLIST_SIZE", "2")]);
    let mut objects = cluster();
    // The eco node is one of three that a standard pod may go to.
    let standard = |mut line: Value| {
        line["request"]["Pod"]["metadata"]["annotations"] = json!({});
        line
    };
    objects.retain(|object| object["kind"] != "Pod");
    let saved = Saved::read(&json!({"items": objects}).to_string(), &settings).unwrap();
    let mut short = standard(line(&saved, &settings, Verb::Filter, Some("short")));
    // 0.7 · 87.2 + 15 for the eco node, 0.7 · 77.2 + 15 and 0.7 · 37.2 + 15 for the others.
    short["answer"] = json!({"a": "kept", "c": "kept"});
    let mut again = standard(line(&saved, &settings, Verb::Filter, Some("again")));
    again["answer"] = json!({"a": "kept", "b": "kept", "c": "kept"});
    let (said, is_same) = replay::replay(&format!("{short}\n{again}"), &saved, &settings.placement);
    assert!(is_same, "{said}");
}
