//! The folder for `kubectl apply -k` matches the chart.

use install::{Helm, deploy, kustomize, objects, skip};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// If it is set, which `cargo xtask codegen` does, the files are written instead of compared.
const WRITE: &str = "JOULIE_WRITE_KUSTOMIZE";

fn below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, found);
        } else {
            found.insert(path.strip_prefix(kustomize::folder()).unwrap().to_owned());
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the one switch between writing and comparing")]
fn the_folder_is_what_the_chart_becomes() {
    let write = std::env::var_os(WRITE).is_some();
    let Some(helm) = Helm::or_skip() else {
        assert!(!write, "nothing can be rendered without helm");
        return;
    };
    let expected = kustomize::files(&helm).unwrap();
    for (name, text) in &expected {
        let path = kustomize::folder().join(name);
        if write {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(&found, text, "{} differs: run `cargo xtask codegen`", path.display());
    }
    let mut found = BTreeSet::new();
    below(&kustomize::folder(), &mut found);
    assert_eq!(found, expected.into_keys().collect(), "a file that the chart does not make");
}

/// A check that needs no helm: every file is listed in its kustomization, and every object has a unique name.
#[test]
fn every_file_is_in_its_kustomization_and_every_object_once() {
    let mut names = BTreeSet::new();
    let mut seen = 0;
    let mut files = BTreeSet::new();
    below(&kustomize::folder(), &mut files);
    for file in &files {
        let path = kustomize::folder().join(file);
        if file.ends_with("kustomization.yaml") {
            continue;
        }
        let kustomization = std::fs::read_to_string(path.with_file_name("kustomization.yaml")).unwrap();
        let listed = format!("  - {}\n", file.file_name().unwrap().to_str().unwrap());
        assert!(kustomization.contains(&listed), "{}", file.display());
        for object in objects(&std::fs::read_to_string(&path).unwrap()).unwrap() {
            let about = &object["metadata"];
            let name = format!("{} {} {}", object["kind"], about["namespace"], about["name"]);
            assert!(names.insert(name.clone()), "{name} twice");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
    let definitions = std::fs::read_to_string(deploy().join("chart-crds/files/kustomization.yaml")).unwrap();
    for entry in std::fs::read_dir(deploy().join("chart-crds/files")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let ours = name.starts_with("joulie.io_");
        assert_eq!(definitions.contains(&format!("  - {name}\n")), ours, "{name}");
    }
}

#[test]
fn kubectl_builds_it() {
    let run = |folder: &Path| Command::new("kubectl").arg("kustomize").arg(folder).output();
    let Ok(output) = run(&kustomize::folder()) else {
        skip("no kubectl on PATH, so no kustomization is built here");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built = objects(&String::from_utf8_lossy(&output.stdout)).unwrap();
    let kinds = |kind: &str| built.iter().filter(|object| object["kind"] == kind).count();
    assert_eq!((kinds("CustomResourceDefinition"), kinds("DaemonSet"), kinds("Deployment")), (8, 1, 2));
}
