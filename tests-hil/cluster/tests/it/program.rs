//! A suite's programs beside the control plane: their variables, logs, signals and ends.

use crate::support::{shared, until};
use cluster::{ProcessSignal, Program};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A shell that runs this script.
fn shell(name: &str, script: &str) -> Program {
    Program::new(name, Path::new("/bin/sh")).argument("-c").argument(script)
}

#[tokio::test]
async fn a_program_has_its_own_variables_and_ends_as_it_likes_when_it_is_asked() {
    let Some(cluster) = shared().await else { return };
    let script = "trap 'echo asked; exit 3' TERM; echo $WORD $HOME $PATH.; while :; do sleep 0.1; done";
    cluster.start_program(&shell("polite", script).variable("WORD", "told")).unwrap();
    let folder = cluster.folder().display().to_string();
    until("its first line", || async { !cluster.program_log("polite").is_empty() }).await;
    assert!(cluster.program_log("polite").starts_with(&format!("told {folder} ")));
    assert!(cluster.program_pid("polite").is_some() && cluster.program_ended("polite").is_none());

    let status = cluster.end_program("polite", PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(cluster.program_log("polite").ends_with("asked"));
    // The next program of that name appends to the same log.
    cluster.start_program(&shell("polite", "echo again; sleep 600")).unwrap();
    until("its line", || async { cluster.program_log("polite").ends_with("asked\nagain") }).await;
    cluster.kill_program("polite");
    assert_eq!((cluster.program_pid("polite"), cluster.program_ended("polite")), (None, None));
    let told = cluster.signal_program("polite", ProcessSignal::Terminate).unwrap_err().to_string();
    assert!(told.contains("polite was not started"), "{told}");
}

#[tokio::test]
async fn a_program_that_does_not_end_is_shown_with_its_log_and_can_be_killed() {
    let Some(cluster) = shared().await else { return };
    cluster.start_program(&shell("deaf", "trap '' TERM; echo deaf; while :; do sleep 0.1; done")).unwrap();
    until("its line", || async { cluster.program_log("deaf") == "deaf" }).await;
    let told = cluster.end_program("deaf", Duration::from_millis(300)).await.unwrap_err().to_string();
    assert!(told.contains("deaf did not end") && told.ends_with("deaf"), "{told}");
    cluster.kill_program("deaf");
    assert!(cluster.program_pid("deaf").is_none());
}
