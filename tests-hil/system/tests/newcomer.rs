//! The walk of a newcomer: the commands of docs/INSTALL.md, there and back, on a control plane of its own. In a program of its own, so that no other
//! control plane runs beside it.

use cluster::assets::{self, Environment};
use cluster::life::{FakeNode, Life};
use cluster::{ClusterError, ControlPlaneOptions, start_or_skip};
use std::path::Path;
use std::process::Command;
use system::skip;

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_gets_from_the_first_command_to_a_cap_and_leaves_nothing_behind() {
    let helm = match assets::helm(&Environment::of_this_process()) {
        Ok(helm) => helm,
        Err(ClusterError::Absent(why)) => return skip(&format!("no helm: {why}")),
        Err(error) => panic!("{error}"),
    };
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        return skip("there is no kubectl on PATH");
    }
    if let Err(why) = system::ports::fuse() {
        return skip(&why);
    }
    let Some(control_plane) = start_or_skip(&ControlPlaneOptions::whole()) else { return };
    let nodes = FakeNode::many("node", 2);
    let _life = Life::start(control_plane.client().await.unwrap(), nodes).await.unwrap();

    let mut walk = Command::new("sh");
    walk.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/newcomer.sh"))
        .env("HELM", helm)
        .env("CONFIG", control_plane.kubeconfig())
        .env("OPERATOR", env!("CARGO_BIN_EXE_system-operator"))
        .env("AGENT", env!("CARGO_BIN_EXE_system-agent"))
        .env("RIG", env!("CARGO_BIN_EXE_system-rig"));
    let output = tokio::task::spawn_blocking(move || walk.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("walk: done, with 8 commands until the cap, and nothing is left\n"), "{said}");
}
