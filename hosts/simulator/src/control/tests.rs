use super::*;
use crate::fleet::Fleet;
use serde_json::json;

fn machine(fleet: &str) -> SimulatedMachine {
    let members = Fleet::parse(fleet).unwrap().members().unwrap();
    SimulatedMachine::new(&members[0], 1).unwrap()
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn ask(machine: &mut SimulatedMachine, body: &Value) -> (&'static str, Value) {
    let mut last = Last::nothing(NOW);
    let done = act(machine, &mut last, &NodeFaults::default(), body.to_string().as_bytes(), NOW).unwrap();
    let answer = serde_json::to_value(answer(machine, &last, &done, "n")).unwrap();
    (done.outcome.word(), answer)
}

#[test]
fn every_action_is_answered_as_upstream_answers_it() {
    // Facts: agent.md section 12, "Server side"; the ranges are those of the simulated machines.
    let rows = [
        (
            "xeon:1",
            json!({"action": SET_POWER, "capWatts": 200.0, "throttlePct": -1}),
            "applied",
            "capWatts",
            200.0,
        ),
        ("xeon:1", json!({"action": SET_POWER, "capWatts": 1.0}), "applied", "capWatts", 148.5),
        ("xeon:1", json!({"action": SET_POWER, "capWatts": 1e300}), "applied", "capWatts", 270.0),
        ("xeon:1", json!({"action": SET_POWER, "capWatts": 0}), "applied", "capWatts", 270.0),
        ("xeon:1", json!({"action": SET_POWER, "capWatts": -5}), "applied", "capWatts", 270.0),
        ("xeon:1", json!({"action": SET_POWER}), "applied", "capWatts", 270.0),
        (
            "xeon:1",
            json!({"action": SET_THROTTLE, "throttlePct": 40, "capWatts": 300}),
            "applied",
            "throttlePct",
            40.0,
        ),
        ("xeon:1", json!({"action": SET_THROTTLE, "throttlePct": -1}), "applied", "throttlePct", 0.0),
        ("xeon:1", json!({"action": SET_THROTTLE, "throttlePct": 101}), "applied", "throttlePct", 100.0),
        (
            "xeon:1",
            json!({"action": SET_GPU_POWER, "capWattsPerGpu": 300}),
            "blocked",
            "gpuCapWattsPerGpuApplied",
            0.0,
        ),
        (
            "gpu:1",
            json!({"action": SET_GPU_POWER, "capWattsPerGpu": 400}),
            "applied",
            "gpuCapWattsPerGpuApplied",
            400.0,
        ),
        (
            "gpu:1",
            json!({"action": SET_GPU_POWER, "capWattsPerGpu": 1}),
            "applied",
            "gpuCapWattsPerGpuTarget",
            350.0,
        ),
        (
            "gpu:1",
            json!({"action": SET_GPU_POWER, "capWattsPerGpu": 0}),
            "error",
            "gpuCapWattsPerGpuApplied",
            700.0,
        ),
        ("gpu:1", json!({"action": SET_GPU_POWER}), "error", "gpuCapWattsPerGpuApplied", 700.0),
        ("xeon:1", json!({"action": "reboot"}), "error", "capWatts", 270.0),
        ("xeon:1", json!({}), "error", "capWatts", 270.0),
        ("xeon:1", json!(null), "error", "capWatts", 270.0),
    ];
    for (fleet, body, result, field, value) in rows {
        let (outcome, answer) = ask(&mut machine(fleet), &body);
        assert_eq!(outcome, result, "{body}");
        assert_eq!(answer["result"], result, "{body}");
        assert_eq!(answer["ok"], result == "applied", "{body}");
        assert_eq!(answer["state"][field].as_f64(), Some(value), "{body}: {answer}");
        assert_eq!(answer["state"]["lastResult"], result);
        assert!(answer["simulatedPackagePowerWatts"].is_f64() && answer["message"].is_string());
    }
}

#[test]
fn a_body_that_is_no_object_of_the_right_types_changes_nothing() {
    let mut machine = machine("gpu:1");
    let mut last = Last::nothing(NOW);
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "{",
        "[]",
        "7",
        "\"x\"",
        r#"{"action":7}"#,
        r#"{"action":"rapl.set_power_cap_watts","capWatts":"200"}"#,
        r#"{"action":"rapl.set_power_cap_watts","capWatts":null}"#,
        r#"{"action":"rapl.set_power_cap_watts","capWatts":1e999}"#,
        r#"{"action":"rapl.set_power_cap_watts","capWatts":NaN}"#,
        r#"{"action":"dvfs.set_throttle_pct","throttlePct":37.5}"#,
        r#"{"action":"rapl.set_power_cap_watts","capWatts":200} trailing"#,
        "\u{0}",
        &deep,
    ] {
        let refused = act(&mut machine, &mut last, &NodeFaults::default(), body.as_bytes(), NOW);
        assert!(refused.is_err(), "{body:.60}");
    }
    assert!(act(&mut machine, &mut last, &NodeFaults::default(), &[0xff, 0xfe], NOW).is_err());
    assert_eq!(last, Last::nothing(NOW));
    assert_eq!((machine.package_cap(), machine.board_cap()), (300.0, Some(700.0)));
}

#[test]
fn broken_controls_never_reach_the_machine() {
    for (control, result) in [
        (ControlFault::Ignored, "applied"),
        (ControlFault::Blocked, "blocked"),
        (ControlFault::Error, "error"),
    ] {
        let mut machine = machine("xeon:1");
        let mut last = Last::nothing(NOW);
        let body = json!({"action": SET_POWER, "capWatts": 200.0}).to_string();
        let faults = NodeFaults { control, ..NodeFaults::default() };
        let done = act(&mut machine, &mut last, &faults, body.as_bytes(), NOW).unwrap();
        assert_eq!((done.action, done.outcome.word()), (ControlAction::Power, result));
        assert_eq!(machine.package_cap(), 270.0);
    }
}
