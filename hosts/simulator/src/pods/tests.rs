use super::*;
use serde_json::json;

fn object() -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "default", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"sim.joulie.io/duration": "90s", "joulie.io/workload-class": "performance", "other": "x"},
        },
        "spec": {
            "nodeName": "sim-xeon-0",
            "containers": [
                {"name": "one", "image": "pause", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}},
                {"name": "two", "image": "pause", "resources": {
                    "requests": {"cpu": 2}, "limits": {"cpu": "4", "nvidia.com/gpu": "2"},
                }},
            ],
            "initContainers": [{"name": "first", "image": "pause", "resources": {"requests": {"memory": "3Gi"}}}],
        },
        "status": {"phase": "Pending"},
    })
}

fn pod(change: impl FnOnce(&mut Value)) -> BoundPod {
    let mut object = object();
    change(&mut object);
    BoundPod::read(&object).unwrap()
}

const GIB: i128 = (1 << 30) * 1_000_000_000;

#[test]
fn a_pod_takes_what_its_containers_ask_for_or_are_limited_to() {
    let pod = pod(|_| ());
    assert_eq!((pod.asks.cpus(), pod.asks.gpus()), (3.5, 2));
    assert_eq!(pod.asks.0["memory"], 3 * GIB, "the initial container's, which is larger");
    let work = pod.work.unwrap();
    assert!(work.performance);
    assert_eq!(work.duration.unwrap().as_secs(), 90);
    assert_eq!(pod.containers.len(), 2);
}

#[test]
fn a_pod_without_an_id_or_a_node_or_with_a_quantity_that_is_none_is_no_row() {
    for (path, value) in [
        ("/metadata/uid", json!("")),
        ("/metadata/uid", json!(7)),
        ("/spec/nodeName", json!(null)),
        ("/spec/containers/0/resources/requests/cpu", json!("lots")),
        ("/spec/containers/0/resources/requests/cpu", json!({})),
    ] {
        let mut object = object();
        *object.pointer_mut(path).unwrap() = value;
        assert!(BoundPod::read(&object).is_err(), "{path}");
    }
    for hostile in [json!(null), json!([]), json!("pod"), json!({"metadata": 1, "spec": [], "status": "x"})] {
        assert!(BoundPod::read(&hostile).is_err(), "{hostile}");
    }
}

#[test]
fn progress_is_read_back_as_it_was_written_and_anything_else_is_none() {
    let with = |said: Value| pod(|object| object["status"]["conditions"] = said).done;
    let written = progress(0.123_456_7, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(with(written["conditions"].clone()), 0.123_457);
    for message in ["", "NaN of it", "-0.5", "1.5", "half", "inf"] {
        assert_eq!(with(json!([{"type": PROGRESS, "message": message}])), 0.0, "{message:?}");
    }
    assert_eq!(with(json!({"type": 5})), 0.0);
}

#[test]
fn what_comes_next_follows_from_phase_deletion_and_progress() {
    let at = |phase: &str, grace: Option<u64>| {
        pod(|object| {
            object["status"]["phase"] = json!(phase);
            if let Some(grace) = grace {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            }
        })
    };
    for (phase, grace, finished, note, wanted) in [
        ("Running", None, false, None, Next::Wait),
        ("Running", None, false, Some(0.5), Next::Checkpoint(0.5)),
        ("Running", None, true, Some(1.0), Next::Finish(0)),
        ("Running", Some(30), true, None, Next::Remove),
        ("Pending", Some(30), false, None, Next::Remove),
        ("Succeeded", Some(30), true, None, Next::Remove),
        ("Running", Some(0), true, None, Next::Wait),
        ("Succeeded", None, true, None, Next::Wait),
        ("Failed", None, true, Some(0.5), Next::Wait),
        ("Unknown", None, true, None, Next::Wait),
        ("Pending", None, true, None, Next::Wait),
    ] {
        assert_eq!(at(phase, grace).next(finished, note), wanted, "{phase} {grace:?} {finished} {note:?}");
    }
    let failing = pod(|object| {
        object["status"]["phase"] = json!("Running");
        object["metadata"]["annotations"]["sim.joulie.io/exit-code"] = json!("3");
    });
    assert_eq!(failing.next(true, None), Next::Finish(3));
}

#[test]
fn a_pod_for_which_there_is_no_room_is_turned_away_in_a_kubelets_words() {
    let room = |cpu: i128, gpus: i128| {
        BTreeMap::from([
            ("cpu".to_owned(), cpu * 1_000_000_000),
            ("memory".to_owned(), 64 * GIB),
            ("nvidia.com/gpu".to_owned(), gpus * 1_000_000_000),
            ("pods".to_owned(), 2_000_000_000),
        ])
    };
    let one = pod(|_| ());
    let mut used = BTreeMap::new();
    assert_eq!(one.admit(&room(8, 8), &used), Next::Run);
    one.asks.add_to(&mut used);
    assert_eq!(one.admit(&room(7, 8), &used), Next::Run, "exactly full is full and not too full");
    let refused = |next| match next {
        Next::Reject(reason, message) => (reason, message),
        Next::Wait | Next::Run | Next::Finish(_) | Next::Checkpoint(_) | Next::Remove => panic!("{next:?}"),
    };
    let (reason, message) = refused(one.admit(&room(6, 8), &used));
    assert_eq!(reason, "OutOfcpu");
    assert_eq!(
        message,
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 3500, used: 3500, capacity: 6000"
    );
    let (reason, message) = refused(one.admit(&room(8, 3), &used));
    assert_eq!(reason, "OutOfnvidia.com/gpu");
    assert!(message.ends_with("requested: 2, used: 2, capacity: 3"), "{message}");
    one.asks.add_to(&mut used);
    assert_eq!(refused(one.admit(&room(100, 100), &used)).0, "OutOfpods");
    let (reason, message) = refused(
        pod(|object| object["metadata"]["annotations"]["sim.joulie.io/duration"] = json!("soon"))
            .admit(&room(8, 8), &BTreeMap::new()),
    );
    assert_eq!(reason, "UnreadableWork");
    assert!(message.starts_with("the annotation sim.joulie.io/duration is \"soon\"; "), "{message}");
}
