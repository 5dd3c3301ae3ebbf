//! The definitions that are checked in are those of the types; `cargo xtask codegen` writes them.

use joulie_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Set by `cargo xtask codegen`: write the files instead of comparing them.
const WRITE: &str = "JOULIE_WRITE_CRDS";

const HEADER: &str =
    "# Generated from the types of hosts/joulie-api by `cargo xtask codegen`; changes here are lost.\n";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")
}

fn text(crd: &CustomResourceDefinition) -> String {
    // By way of a tree, which sorts what the types do not.
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
        .collect();
    assert_eq!(found, expected, "a file that no kind writes");
}
