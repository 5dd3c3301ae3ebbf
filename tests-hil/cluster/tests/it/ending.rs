//! However its owner ends, nothing of a control plane remains.

use crate::support::{alone, processes_of, signal, until};
use cluster::assets::{self, Environment};
use cluster::{ClusterError, Component, ControlPlane, ControlPlaneOptions, start_or_skip};
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A control plane that another process owns.
struct Owned {
    owner: Child,
    /// Open as long as the owner may write.
    said: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
}

impl Drop for Owned {
    /// For a failed test.
    fn drop(&mut self) {
        drop((self.owner.kill(), self.owner.wait()));
    }
}

/// Starts it as a person does; `None`, with a message of the library, if that is impossible.
fn up() -> Option<Owned> {
    if let Err(ClusterError::Absent(_)) = assets::build(&Environment::of_this_process()) {
        return start_or_skip(&ControlPlaneOptions::api_only()).and(None);
    }
    let mut up = Command::new(env!("CARGO_BIN_EXE_cluster"));
    up.args(["up", "--api-only", "--nodes", "1"]).stdout(Stdio::piped());
    let mut owner = up.spawn().unwrap();
    let said = BufReader::new(owner.stdout.take().unwrap()).lines();
    let mut owned = Owned { owner, said, folder: PathBuf::new() };
    let folder = owned
        .said
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("nodes, in ").map(|(_, at)| at.to_owned()));
    owned.folder = folder.expect("it comes up, or said why not").into();
    Some(owned)
}

async fn nothing_is_left(folder: &Path) {
    until("the end of all processes", || async { processes_of(folder).is_empty() }).await;
    until("the end of the folder", || async { !folder.exists() }).await;
}

#[tokio::test]
async fn an_owner_that_is_killed_leaves_nothing() {
    let _alone = alone().await;
    let Some(mut owned) = up() else { return };
    // etcd, the API server and the watchdog.
    assert_eq!(processes_of(&owned.folder).len(), 3, "{:?}", processes_of(&owned.folder));
    owned.owner.kill().unwrap();
    owned.owner.wait().unwrap();
    nothing_is_left(&owned.folder).await;
}

#[tokio::test]
async fn the_kernel_ends_the_children_when_the_watchdog_is_killed_too() {
    let _alone = alone().await;
    let Some(mut owned) = up() else { return };
    let processes = processes_of(&owned.folder);
    let watchdog = processes.iter().find(|process| process.contains("joulie-cluster-watchdog")).unwrap();
    signal("KILL", watchdog.split_once(' ').unwrap().0.parse().unwrap());
    owned.owner.kill().unwrap();
    owned.owner.wait().unwrap();
    until("the end of all processes", || async { processes_of(&owned.folder).is_empty() }).await;
    // No process is left that could have removed it.
    std::fs::remove_dir_all(&owned.folder).unwrap();
}

#[tokio::test]
async fn an_owner_that_is_asked_to_end_takes_it_down_and_succeeds() {
    let _alone = alone().await;
    let Some(mut owned) = up() else { return };
    signal("TERM", owned.owner.id());
    assert!(owned.owner.wait().unwrap().success());
    nothing_is_left(&owned.folder).await;
}

#[tokio::test]
async fn a_handle_that_is_dropped_takes_it_down_before_it_returns() {
    let _alone = alone().await;
    let named = std::env::temp_dir().join(format!("joulie-named-{}", std::process::id()));
    let options = ControlPlaneOptions { folder: Some(named.clone()), ..ControlPlaneOptions::api_only() };
    let Some(cluster) = start_or_skip(&options) else { return };
    assert_eq!(cluster.folder(), named);
    assert!(cluster.pid(Component::Etcd).is_some() && cluster.pid(Component::Scheduler).is_none());
    // An existing folder belongs to somebody else, and is neither used nor removed.
    let told = ControlPlane::start(&options).err().unwrap().to_string();
    assert!(told.contains("must not exist yet"), "{told}");
    assert!(cluster.kubeconfig().exists());
    drop(cluster);
    assert_eq!(processes_of(&named), [""; 0]);
    assert!(!named.exists());
}
