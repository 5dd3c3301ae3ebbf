//! The real kube-scheduler takes the configuration that the chart renders for it, whatever is switched on.

use crate::values::{MATRIX, rendered};
use cluster::assets::{self, Environment};
use cluster::{ClusterError, MutualTls};
use install::{Helm, objects, skip};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Beside the matrix: who binds, with and without TLS.
const BINDS: [(&str, &[&str]); 3] = [
    ("bind", &["--set", "gpuPlacement.enabled=true,gpuPlacement.bind=true"]),
    (
        "bind, with TLS",
        &["--set", "gpuPlacement.enabled=true,gpuPlacement.bind=true,schedulerExtender.tls.enabled=true"],
    ),
    (
        "an account for bind, with TLS",
        &[
            "--set",
            "gpuPlacement.enabled=true,gpuPlacement.bind=true,gpuPlacement.bindAccount=own,schedulerExtender.tls.enabled=true,scheduler.ignorable=false",
        ],
    ),
];

/// kube-scheduler, and what a host has for it.
struct Host {
    program: PathBuf,
    folder: PathBuf,
    tls: MutualTls,
}

impl Drop for Host {
    fn drop(&mut self) {
        // Who looks at a failure has its message.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Host {
    fn or_skip() -> Option<Self> {
        let program = match assets::kube_scheduler(&Environment::of_this_process()) {
            Ok(program) => program,
            Err(ClusterError::Absent(why)) => {
                skip(&format!("no kube-scheduler, so no configuration is read: {why}"));
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let folder = std::env::temp_dir().join(format!("joulie-scheduler-config-{}", std::process::id()));
        let tls = MutualTls::create(&folder).unwrap();
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        std::fs::write(folder.join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Some(Self { program, folder, tls })
    }

    /// Reads a configuration as at a start, without starting; what it says if it refuses it.
    fn takes(&self, mut config: Value) -> Result<(), String> {
        // A pod has its account, and the cluster's own kube-scheduler a file.
        config["clientConnection"]["kubeconfig"] = json!(self.folder.join("kubeconfig"));
        for entry in config["extenders"].as_array_mut().unwrap() {
            let Some(files) = entry.get_mut("tlsConfig") else { continue };
            let there = [&self.tls.ca, &self.tls.client.certificate, &self.tls.client.key];
            for (name, path) in ["caFile", "certFile", "keyFile"].into_iter().zip(there) {
                assert!(Path::new(files[name].as_str().unwrap()).is_absolute(), "{name}");
                files[name] = json!(path);
            }
        }
        let (file, out) = (self.folder.join("config.yaml"), self.folder.join("out.yaml"));
        std::fs::write(&file, config.to_string()).unwrap();
        let output = Command::new(&self.program)
            .args(["--secure-port=0", "--config"])
            .arg(file)
            .arg("--write-config-to")
            .arg(out)
            .output()
            .unwrap();
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn config(all: &[Value]) -> Option<Value> {
    let config = all.iter().find(|one| one["metadata"]["name"] == "joulie-scheduler-config")?;
    let mut texts = objects(config["data"]["config.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(texts.len(), 1);
    texts.pop()
}

#[test]
fn kube_scheduler_takes_the_configuration_of_every_combination() {
    let Some(helm) = Helm::or_skip() else { return };
    let Some(host) = Host::or_skip() else { return };
    let mut taken = 0;
    for (what, of) in MATRIX.iter().chain(&BINDS) {
        let Some(config) = config(&rendered(&helm, of)) else { continue };
        host.takes(config.clone()).unwrap_or_else(|why| panic!("{what}: {why}\n{config:#}"));
        taken += 1;
        // Only with one that manages a resource are other pods left to kube-scheduler.
        let binds = |entry: &&Value| entry["bindVerb"].is_string();
        for entry in config["extenders"].as_array().unwrap().iter().filter(binds) {
            assert_eq!(entry["managedResources"][0]["name"], "nvidia.com/gpu", "{what}");
        }
        // One that hangs costs each pod that it is asked about so long.
        for entry in config["extenders"].as_array().unwrap() {
            let is_for_all = entry["managedResources"].is_null();
            assert!(!is_for_all || entry["httpTimeout"] == config["extenders"][0]["httpTimeout"], "{what}");
        }
    }
    assert!(taken > 12, "{taken}");
    let mut twice = config(&rendered(&helm, BINDS[0].1)).unwrap();
    let entry = twice["extenders"][1].clone();
    twice["extenders"].as_array_mut().unwrap().push(entry);
    assert!(host.takes(twice).unwrap_err().contains("extender"), "two that bind are refused");
}

#[test]
fn a_second_scheduler_starts_anew_when_its_configuration_changes() {
    let Some(helm) = Helm::or_skip() else { return };
    let second =
        "scheduler.enabled=true,scheduler.image.repository=kube-scheduler,scheduler.image.tag=v1.36.3";
    let of = |more: &str| {
        let all = rendered(&helm, &["--set", &format!("{second}{more}")]);
        let named =
            |one: &&Value| one["kind"] == "Deployment" && one["metadata"]["name"] == "joulie-scheduler";
        let pod = all.iter().find(named).unwrap()["spec"]["template"]["metadata"]["annotations"].clone();
        (config(&all).unwrap(), pod)
    };
    let plain = of("");
    assert_eq!(of(""), plain);
    for more in [
        ",gpuPlacement.enabled=true,gpuPlacement.bind=true",
        ",schedulerExtender.clusterIP=10.96.0.50",
        ",schedulerExtender.port=9000",
        ",scheduler.weight=2",
        ",schedulerExtender.tls.enabled=true",
    ] {
        let changed = of(more);
        assert!(changed.0 != plain.0 && changed.1 != plain.1, "{more}");
    }
}
