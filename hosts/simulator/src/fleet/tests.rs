use super::*;
use crate::hardware::Vendor;

fn refused(text: &str) -> String {
    Fleet::parse(text).unwrap_err().to_string()
}

#[test]
fn a_list_of_kinds_makes_nodes_with_names_racks_and_capacity() {
    let members = Fleet::parse("xeon:2, epyc:1 ,gpu:1").unwrap().members().unwrap();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["sim-xeon-0", "sim-xeon-1", "sim-epyc-0", "sim-gpu-0"]);
    let rack = |at: usize| members[at].labels[node::RACK].as_str();
    assert_eq!((rack(0), rack(1), rack(2), rack(3)), ("rack-0", "rack-1", "rack-2", "rack-0"));
    assert_eq!(members[0].capacity["cpu"], "128");
    assert_eq!(members[0].labels[node::CPU_MODEL], "INTEL_XEON_GOLD_6530");
    assert_eq!(members[0].labels[node::CPU_SOCKETS], "2");
    assert!(!members[0].capacity.contains_key("nvidia.com/gpu"));
    assert_eq!(members[3].capacity["nvidia.com/gpu"], "8");
    assert_eq!(members[3].labels["feature.node.kubernetes.io/pci-10de.present"], "true");
    let valid = |value: &str| value.len() <= 63 && !value.contains([' ', '/', '(']);
    assert!(members.iter().flat_map(|member| member.labels.values()).all(|value| valid(value)));
}

#[test]
fn a_list_that_is_no_fleet_is_refused_with_the_reason() {
    assert_eq!(refused("xeon"), "\"xeon\" is not KIND:COUNT");
    assert!(refused("cray:1").contains("accepted: xeon, epyc, gpu, amd-gpu"));
    for text in ["", "xeon:0", "xeon:5001", "xeon:4294967295,epyc:1"] {
        assert!(refused(text).contains("accepted: 1 to 5000"), "{text}");
    }
    assert_eq!(refused("xeon:-1"), "\"-1\" is no number of nodes");
    assert!(refused("xeon:1,xeon:1").contains("two nodes would be called sim-xeon-0"));
}

#[test]
fn a_file_says_kinds_of_ones_own() {
    let fleet = Fleet::from_json(
        r#"{"racks": 2, "zones": 2, "prefix": "lab", "kinds": [
            {"name": "nvl", "count": 2, "cpuModel": "AMD EPYC 9655 96-Core Processor", "sockets": 1,
             "coresPerSocket": 48, "threadsPerCore": 1, "memoryGiB": 512,
             "gpus": {"model": "AMD_INSTINCT_MI300X", "count": 4}, "labels": {"team": "a"}}]}"#,
    )
    .unwrap();
    let members = fleet.members().unwrap();
    assert_eq!(members[1].name, "lab-nvl-1");
    let zone = |at: usize| members[at].labels[node::COOLING_ZONE].as_str();
    assert_eq!((zone(0), zone(1)), ("zone-0", "zone-1"));
    assert_eq!(members[1].capacity["cpu"], "48");
    assert_eq!(members[1].capacity["amd.com/gpu"], "4");
    assert_eq!(
        (members[1].labels["team"].as_str(), members[1].labels[node::CPU_SOCKETS].as_str()),
        ("a", "1")
    );
    assert_eq!(members[1].hardware.cpu_model, "AMD_EPYC_9655");
    assert_eq!(fleet.gpus(), Some(WorkloadGpus { vendor: Vendor::Amd, most: 4 }));
}

#[test]
fn a_file_with_a_typo_or_an_impossible_kind_is_refused() {
    let kind = |change: &str| format!(r#"{{"kinds": [{{"name": "a", "count": 1, {change}}}]}}"#);
    for (text, why) in [
        ("".to_owned(), "EOF"),
        ("{}".to_owned(), "missing field"),
        (r#"{"kinds": []}"#.to_owned(), "a fleet of 0 nodes"),
        (kind(r#""cpuModel": "AMD_EPYC_9654", "socket": 2"#), "unknown field"),
        (kind(r#""cpuModel": "Z80""#), "no processor \"Z80\""),
        (kind(r#""cpuModel": "AMD_EPYC_9654", "sockets": 0"#), "sockets is 0"),
        (kind(r#""cpuModel": "AMD_EPYC_9654", "sockets": -1"#), "invalid value"),
        (kind(r#""cpuModel": "AMD_EPYC_9654", "gpus": {"model": "X", "count": 1}"#), "no graphics processor"),
        (
            kind(r#""cpuModel": "AMD_EPYC_9654", "gpus": {"model": "NVIDIA_L40S", "count": 99}"#),
            "gpus.count is 99",
        ),
        (kind(r#""cpuModel": "AMD_EPYC_9654""#).replace("\"a\"", "\"A/b\""), "a kind called"),
        (kind(r#""cpuModel": "AMD_EPYC_9654""#).replace("{\"kinds\"", "{\"racks\": 0, \"kinds\""), "0 racks"),
        (
            kind(r#""cpuModel": "AMD_EPYC_9654""#).replace("{\"kinds\"", "{\"zones\": 0, \"kinds\""),
            "0 cooling zones",
        ),
    ] {
        let said = Fleet::from_json(&text).unwrap_err().to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[test]
fn every_kind_that_is_built_in_is_a_machine() {
    for kind in kind::BUILT_IN {
        let members = Fleet::parse(&format!("{kind}:1")).unwrap().members().unwrap();
        assert!(crate::machine::SimulatedMachine::new(&members[0], 1).is_ok(), "{kind}");
    }
}
