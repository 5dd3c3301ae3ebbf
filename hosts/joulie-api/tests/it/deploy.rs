//! The API server accepts `hosts/deploy/kustomize/base` at the first `kubectl apply`, and it grants nobody more than
//! Joulie needs.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Every object of the folder in the order in which `kubectl apply -f FOLDER` sends them: file by file in the lexical
/// order of their names (it walks the folder as Go's `filepath.Walk` does), and each file from top to bottom. It does
/// not sort by kind, and the API server refuses objects in a namespace that does not exist.
fn objects() -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize/base");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let documents = texts.flat_map(|text| {
        let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap());
        documents.collect::<Vec<Value>>()
    });
    documents.collect()
}

#[test]
fn a_namespace_comes_before_what_is_in_it() {
    let mut there: BTreeSet<String> = ["default", "kube-system", "kube-node-lease"].map(str::to_owned).into();
    for object in objects() {
        let name = object["metadata"]["name"].as_str().unwrap();
        if object["kind"] == "Namespace" {
            there.insert(name.to_owned());
        }
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            assert!(there.contains(namespace), "{} {name} comes before {namespace}", object["kind"]);
        }
    }
}

#[test]
fn nobody_may_make_or_remove_pods_or_nodes_or_have_every_right() {
    let words = |list: &Value| -> BTreeSet<String> {
        list.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let mut seen = 0;
    for object in objects() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let (groups, resources, verbs) =
                (words(&rule["apiGroups"]), words(&rule["resources"]), words(&rule["verbs"]));
            seen += 1;
            for list in [&groups, &resources, &verbs] {
                assert!(!list.contains("*"), "{rule}");
            }
            let core = groups.contains("") && ["pods", "nodes"].iter().any(|kind| resources.contains(*kind));
            let makes = ["create", "delete", "deletecollection"].iter().any(|verb| verbs.contains(*verb));
            assert!(!(core && makes), "{} may {rule}", object["metadata"]["name"]);
        }
    }
    assert!(seen > 5, "{seen} rules");
}
