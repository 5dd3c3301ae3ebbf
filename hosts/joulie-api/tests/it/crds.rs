//! The checked-in definitions are those of the types; `cargo xtask codegen` writes them.

use joulie_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Set by `cargo xtask codegen` to write the files instead of comparing them.
const WRITE: &str = "JOULIE_WRITE_CRDS";

const HEADER: &str =
    "# Generated from the types of hosts/joulie-api by `cargo xtask codegen`; changes here are lost.\n";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart-crds/files")
}

fn text(crd: &CustomResourceDefinition) -> String {
    // Converted to a tree first, which sorts what the types do not.
    let tree = serde_json::to_value(crd).unwrap();
    format!("{HEADER}{}", serde_saphyr::to_string(&tree).unwrap())
}

fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the one switch between writing and comparing")]
fn the_definitions_that_are_checked_in_are_those_of_the_types() {
    let write = std::env::var_os(WRITE).is_some();
    let mut expected = BTreeSet::new();
    for crd in crd::all() {
        let path = folder().join(file_name(&crd));
        expected.insert(file_name(&crd));
        if write {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, text(&crd)).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, text(&crd), "{} differs: run `cargo xtask codegen`", path.display());
    }
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    assert_eq!(found, expected, "a file that no kind writes");
}

/// The text in the definition of an unused kind: a person who creates such an object must not wait for an effect.
const UNUSED: &str = "No program of this version reads or writes it yet.";

fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn a_kind_that_no_program_uses_says_so() {
    let mut programs = String::new();
    for host in ["agent", "operator", "extender", "simulator"] {
        sources(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(host).join("src"), &mut programs);
    }
    let mut unused = 0;
    for crd in crd::all() {
        let module = match crd.spec.names.kind.as_str() {
            "GPU" => "gpu",
            "NodeHardware" => "node_hardware",
            "NodePowerGrant" => "node_power_grant",
            "NodePowerProfile" => "node_power_profile",
            "NodeTwin" => "node_twin",
            "PowerBudget" => "power_budget",
            "PowerEvent" => "power_event",
            "TelemetryProfile" => "telemetry_profile",
            "WorkloadProfile" => "workload_profile",
            other => panic!("a kind without a module here: {other}"),
        };
        let used = programs.contains(&format!("joulie_api::{module}"));
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let said = schema.description.as_deref().unwrap_or_default().ends_with(UNUSED);
        assert_eq!(said, !used, "{}: its description, in joulie_api::{module}", crd.spec.names.kind);
        unused += u32::from(!used);
    }
    assert_eq!(unused, 0);
}
