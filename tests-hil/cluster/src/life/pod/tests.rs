use super::*;

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

fn in_phase(phase: &str, finish: Option<&str>) -> Pod {
    let annotations = finish.map(|value| json!({FINISH: value}));
    pod(json!({"metadata": {"name": "a", "annotations": annotations}, "status": {"phase": phase}}))
}

#[test]
fn a_pod_runs_before_it_ends_and_ends_once() {
    for (phase, finish, expected) in [
        ("Pending", None, Next::Run),
        ("Pending", Some("Succeeded"), Next::Run),
        ("Running", None, Next::Wait),
        ("Running", Some("Succeeded"), Next::Finish(PodEnding::Succeeded)),
        ("Running", Some("Failed"), Next::Finish(PodEnding::Failed)),
        ("Succeeded", Some("Failed"), Next::Wait),
        ("Failed", Some("Succeeded"), Next::Wait),
        ("Unknown", Some("Succeeded"), Next::Wait),
    ] {
        assert_eq!(next(&in_phase(phase, finish)), expected, "{phase} {finish:?}");
    }
    assert_eq!(next(&Pod::default()), Next::Run);
}

#[test]
fn a_deleted_pod_is_confirmed_once_whatever_its_phase() {
    for phase in ["Pending", "Running", "Succeeded", "Failed"] {
        let deleted = |grace: i64| {
            pod(json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace},
                "status": {"phase": phase},
            }))
        };
        assert_eq!(next(&deleted(30)), Next::Remove);
        // Only its finalizers remain.
        assert_eq!(next(&deleted(0)), Next::Wait);
    }
}

#[test]
fn a_finish_that_is_none_is_told_once_and_the_pod_runs_on() {
    for asked in ["", "succeeded", "Done", "\u{0}"] {
        let mut asked_for = in_phase("Running", Some(asked));
        let Next::Say(message) = next(&asked_for) else { panic!("{asked:?}") };
        assert!(message.contains(FINISH) && message.contains("Failed are accepted"), "{message}");
        asked_for.status.as_mut().unwrap().message = Some(message);
        assert_eq!(next(&asked_for), Next::Wait);
    }
}
