//! Experiments in a terminal: a trace is read by the program, its result compared with itself, and what cannot be used is told.

use crate::test_machine::program;
use rig::test_machine::Folder;
use serde_json::Value;

/// Lines as those of the published pod list, which is not part of this repository.
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-0,12000,16384,1,460,,LS,Running,0,3600,0
pod-1,88000,327680,8,1000,,Burstable,Succeeded,600,4200,600
pod-2,3152,5600,0,0,,BE,Failed,900,1100,902
pod-3,11908,47104,1,1000,,BE,Pending,1000,1060,
";

#[test]
fn a_trace_is_replayed_and_its_result_is_what_compare_reads() {
    let folder = Folder::new();
    let at = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let (pods, page, result) = (at("pods.csv"), at("page.html"), at("result.json"));
    std::fs::write(&pods, PODS).unwrap();
    let said = program(&["replay", &pods, "--arms", "packing,joulie", "--json", "--html", &page]);
    let told = "5 lines: 3 jobs, 1 other records, 1 that could not be used, 0 jobs larger than any node";
    assert!(said.err.contains(told), "{}", said.err);
    assert!(said.err.contains("line 5: it was never scheduled"), "{}", said.err);
    let text = said.ended(0);
    let json: Value = serde_json::from_str(&text).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let arms: Vec<&str> = rows.iter().map(|row| row["arm"].as_str().unwrap()).collect();
    let sleeps = ["packing", "packing +sleep", "packing +ahead", "joulie", "joulie +sleep", "joulie +ahead"];
    assert_eq!(arms, sleeps);
    for row in rows {
        let figure = |name: &str| row["figures"][name].as_f64().unwrap();
        assert_eq!((figure("jobs"), figure("dropped")), (3.0, 0.0), "{row}");
        assert!(figure("over_bound") >= 1.0, "{row}");
    }
    // The page loads nothing.
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("packing +sleep"), "{page}");
    for loads in ["src=", "href=", "url(", "<script", "@import"] {
        assert!(!page.contains(loads), "{loads}");
    }
    std::fs::write(&result, &text).unwrap();
    let same: String = sleeps.map(|arm| format!("trace {arm}:\n")).concat();
    assert_eq!(program(&["compare", &result, &result]).ended(0), same);
    // Without --json it is a table.
    let table = program(&["replay", &pods, "--arms", "packing"]).ended(0);
    assert!(table.contains("it_kwh") && table.contains("packing +sleep"), "{table}");
}

#[test]
fn what_is_no_trace_no_law_and_no_result_is_refused_by_name() {
    let folder = Folder::new();
    let at = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let (pods, junk) = (at("pods.csv"), at("junk"));
    std::fs::write(&pods, PODS).unwrap();
    std::fs::write(&junk, "a,b\n1,2\n").unwrap();
    let table: &[(&[&str], i32, &str)] = &[
        (&["replay", &junk], 1, "junk: neither JSON objects nor a CSV"),
        (&["replay", "/nowhere/pods.csv"], 1, "/nowhere/pods.csv: "),
        (&["replay", &pods, "--arms", "best"], 1, "no law \"best\""),
        (&["replay", &pods, "--speed", "0"], 2, "not from 0.001 to 1000000"),
        (&["simulate", "--experiment", "caps", "--arms", "joulie"], 1, "no law \"joulie\""),
        (&["simulate", "--experiment", "best"], 2, "compat"),
        (&["compare", &junk, &junk], 1, "no result of joulie simulate"),
    ];
    for (words, code, why) in table {
        let said = program(words);
        assert_eq!(said.code, Some(*code), "{words:?}: {said:?}");
        assert!(said.err.contains(why), "{words:?}: {}", said.err);
        assert_eq!(said.out, "", "{words:?}");
    }
}
