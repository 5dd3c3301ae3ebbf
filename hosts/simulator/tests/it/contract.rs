//! The contract over HTTP.

use super::lab::Lab;
use host_kit::bearer::TokenFile;
use simulator::{Fleet, Settings};
use std::time::Duration;

#[tokio::test]
async fn a_cap_is_answered_and_shows_in_the_telemetry() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:1").await;
    let asked =
        r#"{"node":"sim-xeon-0","action":"rapl.set_power_cap_watts","capWatts":200,"throttlePct":-1}"#;
    let answer = simulator.json("POST", "/control/sim-xeon-0", asked).await;
    assert_eq!((&answer["ok"], &answer["result"]), (&true.into(), &"applied".into()));
    assert_eq!(answer["state"]["capWatts"], 200.0);
    let telemetry = simulator.telemetry("sim-xeon-0").await;
    assert_eq!(telemetry["cpu"]["raplCapWatts"], 200.0);
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(lab.api.client());
    let info = nodes.get("sim-xeon-0").await.unwrap().status.unwrap().node_info.unwrap();
    assert!(info.boot_id.starts_with("sim-"), "{info:?}");
    assert_eq!(telemetry["bootID"], info.boot_id.as_str(), "the node and its kubelet tell one boot");
    simulator.stop().await;
}

#[tokio::test]
async fn telemetry_has_every_field_of_upstreams_contract() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:1,gpu:1").await;
    // Facts: simulator.md section 3.9.
    let top = [
        "node",
        "packagePowerWatts",
        "instantPackagePowerWatts",
        "cpu",
        "gpu",
        "hardwareModel",
        "pods",
        "ts",
    ];
    let cpu = [
        "packagePowerWatts",
        "instantPowerWatts",
        "utilization",
        "memoryIntensity",
        "ioIntensity",
        "workClass",
        "freqScale",
        "throttlePct",
        "thermalThrottlePct",
        "temperatureC",
        "capWatts",
        "targetCapWatts",
        "raplCapWatts",
        "capSaturated",
    ];
    let gpu = [
        "present",
        "vendor",
        "product",
        "count",
        "powerWattsTotal",
        "avgPowerWattsTotal",
        "capWattsPerGpuApplied",
        "capWattsPerGpuTarget",
        "utilization",
        "memoryIntensity",
        "cpuFeedIntensity",
        "workClass",
        "perfMultiplier",
    ];
    let model = ["cpuModel", "cpuProvenance", "cpuCurveSource", "cpuProxyFrom", "gpuProvenance"];
    lab.clock.advance(Duration::from_secs(5));
    for (node, present) in [("sim-xeon-0", false), ("sim-gpu-0", true)] {
        let telemetry = simulator.telemetry(node).await;
        for (part, fields) in
            [("", &top[..]), ("/cpu", &cpu[..]), ("/gpu", &gpu[..]), ("/hardwareModel", &model[..])]
        {
            let object = telemetry.pointer(part).unwrap().as_object().unwrap();
            for field in fields {
                assert!(object.get(*field).is_some_and(|value| !value.is_null()), "{node}{part}: {field}");
            }
        }
        assert_eq!(telemetry["gpu"]["present"], present);
        let (cpu, gpu) = (&telemetry["cpu"]["packagePowerWatts"], &telemetry["gpu"]["avgPowerWattsTotal"]);
        let sum = cpu.as_f64().unwrap() + gpu.as_f64().unwrap();
        assert_eq!(telemetry["packagePowerWatts"].as_f64(), Some(sum), "the top level is both together");
        assert!(telemetry["pods"]["byIntentClass"]["performance"].is_u64());
        assert!(telemetry["ts"].as_str().unwrap().ends_with('Z'));
    }
    simulator.stop().await;
}

#[tokio::test]
async fn every_path_answers_what_the_contract_says() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:1").await;
    let control = r#"{"action":"rapl.set_power_cap_watts","capWatts":200}"#;
    for (verb, path, body, status) in [
        ("GET", "/telemetry/sim-xeon-0", "", 200),
        ("GET", "/telemetry/sim-xeon-0?x=y", "", 200),
        ("GET", "/telemetry/sim%2Dxeon%2D0", "", 200),
        ("POST", "/telemetry/sim-xeon-0", "", 405),
        ("PUT", "/telemetry/sim-xeon-0", "", 405),
        ("GET", "/telemetry/", "", 400),
        ("GET", "/telemetry/%20", "", 400),
        ("GET", "/telemetry/nobody", "", 404),
        ("GET", "/telemetry/sim-xeon-0/x", "", 404),
        ("GET", "/telemetry/%ff%zz", "", 404),
        ("POST", "/control/sim-xeon-0", control, 200),
        ("GET", "/control/sim-xeon-0", "", 405),
        ("DELETE", "/control/sim-xeon-0", "", 405),
        ("POST", "/control/", control, 400),
        ("POST", "/control/nobody", control, 404),
        ("POST", "/control/sim-xeon-0", "{", 400),
        ("POST", "/control/sim-xeon-0", "", 400),
        ("POST", "/control/sim-xeon-0", r#"{"action":"reboot"}"#, 200),
        ("POST", "/control/sim-xeon-0", r#"{"action":"gpu.set_power_cap_watts","capWattsPerGpu":300}"#, 200),
        ("POST", "/control/sim-xeon-0", r#"{"capWatts":"much"}"#, 400),
        ("GET", "/state/sim-xeon-0", "", 200),
        ("POST", "/state/sim-xeon-0", "", 405),
        ("GET", "/faults/sim-xeon-0", "", 200),
        ("POST", "/faults/sim-xeon-0", r#"{"telemetry":"sad"}"#, 400),
        ("PATCH", "/faults/sim-xeon-0", "{}", 405),
        ("GET", "/nodes", "", 200),
        ("GET", "/healthz", "", 200),
        ("GET", "/readyz", "", 200),
        ("GET", "/metrics", "", 200),
        ("GET", "/", "", 404),
        ("GET", "/telemetry", "", 404),
        ("GET", "//telemetry/sim-xeon-0", "", 404),
    ] {
        let (answered, said) = simulator.ask(verb, path, body).await;
        assert_eq!(answered, status, "{verb} {path} {body}: {said}");
    }
    let large = format!("{{\"action\":\"{}\"}}", "x".repeat(100_000));
    assert_eq!(simulator.ask("POST", "/control/sim-xeon-0", &large).await.0, 413);
    simulator.stop().await;
}

#[tokio::test]
async fn without_the_token_nobody_learns_of_a_node_or_moves_it() {
    let lab = Lab::new();
    let file = std::env::temp_dir().join(format!("joulie-sim-token-{}", std::process::id()));
    std::fs::write(&file, "secret\n").unwrap();
    let token = TokenFile::new(&file).unwrap();
    let settings = Settings { token: Some(token), ..Settings::of(Fleet::parse("xeon:1").unwrap()) };
    let simulator = lab.start_with(settings).await;
    let control = r#"{"action":"rapl.set_power_cap_watts","capWatts":200}"#;
    for (verb, path, body) in [
        ("GET", "/telemetry/sim-xeon-0", ""),
        ("POST", "/control/sim-xeon-0", control),
        ("GET", "/state/sim-xeon-0", ""),
        ("POST", "/faults/sim-xeon-0", "{}"),
        ("GET", "/nodes", ""),
        ("GET", "/redfish/v1/Systems/sim-xeon-0", ""),
    ] {
        for line in ["", "Authorization: Bearer secre\r\n", "Authorization: secret\r\n"] {
            assert_eq!(simulator.ask_with(line, verb, path, body).await.0, 401, "{verb} {path} {line}");
        }
        let line = "Authorization: Bearer secret\r\n";
        assert_eq!(simulator.ask_with(line, verb, path, body).await.0, 200, "{verb} {path}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(simulator.ask("GET", path, "").await.0, 200, "{path}");
    }
    simulator.stop().await;
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn faults_break_a_node_in_the_way_that_was_asked_and_no_other() {
    let lab = Lab::new();
    let simulator = lab.start("xeon:2").await;
    let telemetry = "/telemetry/sim-xeon-0";
    let fault = async |body: &str| drop(simulator.json("POST", "/faults/sim-xeon-0", body).await);
    fault(r#"{"telemetry":"error"}"#).await;
    assert_eq!(simulator.ask("GET", telemetry, "").await.0, 500);
    fault(r#"{"telemetry":"garbage"}"#).await;
    let (status, garbage) = simulator.ask("GET", telemetry, "").await;
    assert_eq!((status, serde_json::from_str::<serde_json::Value>(&garbage).is_err()), (200, true));
    fault(r#"{"telemetry":"empty"}"#).await;
    assert!(simulator.telemetry("sim-xeon-0").await.get("packagePowerWatts").is_none());
    fault(r#"{"telemetry":"stuck"}"#).await;
    let first = simulator.ask("GET", telemetry, "").await;
    lab.clock.advance(Duration::from_secs(60));
    assert_eq!(simulator.ask("GET", telemetry, "").await, first);
    fault(r#"{"gone":true}"#).await;
    assert_eq!(simulator.ask("GET", telemetry, "").await.0, 504);
    assert_eq!(simulator.ask("POST", "/control/sim-xeon-0", "{}").await.0, 504);
    assert_eq!(simulator.ask("GET", "/state/sim-xeon-0", "").await.0, 200, "the truth is still to be had");
    assert_eq!(simulator.ask("GET", "/telemetry/sim-xeon-1", "").await.0, 200);

    let cap = r#"{"action":"rapl.set_power_cap_watts","capWatts":200}"#;
    fault(r#"{"control":"ignored"}"#).await;
    assert_eq!(simulator.json("POST", "/control/sim-xeon-0", cap).await["result"], "applied");
    assert_eq!(simulator.telemetry("sim-xeon-0").await["cpu"]["raplCapWatts"], 270.0);
    fault(r#"{"control":"blocked"}"#).await;
    assert_eq!(simulator.json("POST", "/control/sim-xeon-0", cap).await["result"], "blocked");
    fault(r#"{"control":"error"}"#).await;
    assert_eq!(simulator.ask("POST", "/control/sim-xeon-0", cap).await.0, 500);
    fault(r#"{"slowMs":20}"#).await;
    assert_eq!(simulator.ask("GET", telemetry, "").await.0, 200);
    let healed = simulator.json("DELETE", "/faults/sim-xeon-0", "").await;
    assert_eq!((&healed["telemetry"], &healed["slowMs"]), (&"ok".into(), &0.into()));
    assert_eq!(simulator.json("POST", "/control/sim-xeon-0", cap).await["state"]["capWatts"], 200.0);
    simulator.stop().await;
}
