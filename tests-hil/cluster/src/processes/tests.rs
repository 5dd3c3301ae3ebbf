use super::*;
use crate::folder::Folder;

/// A process that runs for a long time.
fn sleeper(at: &Path) -> Child {
    Command::new("sleep").arg("600").current_dir(at).spawn().unwrap()
}

#[test]
fn the_watchdog_kills_whom_it_was_told_about_and_nobody_who_merely_has_such_an_id() {
    let folder = Folder::temporary().unwrap();
    std::fs::create_dir(folder.join("data")).unwrap();
    let mut child = sleeper(folder.path());
    // Simulates that the id of an ended child was reused by another process.
    let mut stranger = sleeper(Path::new("/"));
    let mut watchdog = start_watchdog(folder.path()).unwrap();
    let mut pipe = watchdog.stdin.take().unwrap();
    writeln!(pipe, "{}\n{}", child.id(), stranger.id()).unwrap();
    assert!(child.try_wait().unwrap().is_none() && watchdog.try_wait().unwrap().is_none());
    // As the kernel does when this process ends.
    drop(pipe);
    assert!(watchdog.wait().unwrap().success());
    assert!(!child.wait().unwrap().success());
    assert!(!folder.path().exists());
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
