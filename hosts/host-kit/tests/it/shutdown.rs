//! A test with a real signal.

use super::wire::{LONG, within};
use host_kit::shutdown::{self, Ending, Tasks};

#[tokio::test]
async fn sigterm_ends_the_tasks_and_not_the_process() {
    let (trigger, stop) = shutdown::pair();
    let signals = shutdown::signals().unwrap();
    let mut tasks = Tasks::new();
    tasks.spawn("watch", async move { stop.requested().await });
    let pid = std::process::id().to_string();
    let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success();
    assert!(sent, "kill(1) sends SIGTERM");
    assert_eq!(within(tasks.run(trigger, signals, LONG)).await, Ending::Clean);
}
