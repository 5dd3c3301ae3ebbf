//! `joulie-agent --standalone`: a machine that follows a file, without a cluster.

use crate::test_machine::{Agent, TestMachine};
use rig::test_machine::Folder;
use serde_json::Value;
use std::path::PathBuf;

/// The file, the status, and the machine that the agent is on.
struct Desk {
    folder: Folder,
    room: TestMachine,
}

impl Desk {
    fn new() -> Option<Self> {
        TestMachine::profile("xeon-2s").map(|room| Self { folder: Folder::new(), room })
    }

    fn file(&self) -> PathBuf {
        self.folder.0.join("agent.conf")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    fn start(&self) -> Agent {
        let file = self.file().display().to_string();
        let settings = [
            ("HOST_ROOT", self.room.root().display().to_string()),
            ("STATE_DIR", self.room.state().display().to_string()),
            ("STATUS_FILE", self.folder.0.join("run/agent.json").display().to_string()),
            ("METRICS_ADDR", "127.0.0.1:0".to_owned()),
            ("RECONCILE_INTERVAL", "500ms".to_owned()),
        ];
        Agent::start_with(&["--standalone", &file], &settings)
    }

    /// Waits until the status meets a condition.
    async fn until(&self, is: impl Fn(&Value) -> bool) -> Value {
        let path = self.folder.0.join("run/agent.json");
        let look = async {
            loop {
                // Whoever reads finds a whole document, or none yet.
                if let Ok(text) = std::fs::read_to_string(&path) {
                    let status: Value = serde_json::from_str(&text).unwrap();
                    if is(&status) {
                        return status;
                    }
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(std::time::Duration::from_secs(60), look).await;
        found.unwrap_or_else(|_| panic!("{:?}", std::fs::read_to_string(&path)))
    }
}

fn reason(status: &Value) -> &str {
    status["capEnforced"]["reason"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_follows_the_file_and_a_broken_one_lifts_no_cap() {
    let Some(desk) = Desk::new() else { return };
    desk.write("CPU_CAP=120W\nGPU_CAP=none\n");
    let agent = desk.start();
    desk.room.until_limits(&[120, 120]).await;
    let status = desk.until(|status| reason(status) == "Enforced").await;
    assert_eq!(status["file"]["inForce"], true);
    assert_eq!(status["cpu"]["devices"][0]["limitWatts"], 120.0);
    assert_eq!(
        (status["cpu"]["requestedWatts"].as_f64(), status["cpu"]["capWatts"].as_f64()),
        (Some(120.0), Some(120.0))
    );
    agent.until_page("/metrics", "joulie_cap_enforced{node=\"this-machine\"} 1").await;
    assert!(agent.page("/readyz?verbose").await.starts_with("HTTP/1.1 200"));

    // A change takes effect; one of a setting that is read at a start alone is told.
    desk.write("CPU_CAP=60%\nGPU_CAP=none\nON_EXIT=restore\n");
    desk.room.until_limits(&[150, 150]).await;
    let status = desk.until(|status| status["file"]["restartNeeded"] == true).await;
    assert_eq!(status["file"]["error"], Value::Null);

    // Empty, cut off, garbage, gone: each is told, and the caps stay.
    for (text, says) in [
        (Some(""), "CPU_CAP: it is required"),
        (Some("CPU_CAP=60%\n"), "GPU_CAP: it is required"),
        (Some("CPU_CAP=-5W\nGPU_CAP=none\n"), "CPU_CAP=\"-5W\""),
        (Some("CPU_CAP=100\nGPU_CAP=none\n"), "CPU_CAP=\"100\""),
        (Some("CPU_CAP=60%\nGPU_CAP=none\nCPU_CAPS=1W\n"), "CPU_CAPS"),
        (None, "it cannot be read"),
    ] {
        match text {
            Some(text) => desk.write(text),
            None => std::fs::remove_file(desk.file()).unwrap(),
        }
        let told =
            |status: &Value| status["file"]["error"].as_str().is_some_and(|error| error.starts_with(says));
        let status = desk.until(told).await;
        assert_eq!(
            (status["file"]["inForce"].as_bool(), reason(&status)),
            (Some(false), "Malformed"),
            "{text:?}: {status}"
        );
        assert_eq!(desk.room.limits(), [150, 150], "{text:?}");
    }
    agent.until_page("/readyz?verbose", "cannot be read").await;
    let page = agent.page("/metrics").await;
    let malformed = page
        .lines()
        .find_map(|line| line.strip_prefix("joulie_malformed_desired_state_total{node=\"this-machine\"} "));
    assert!(malformed.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count >= 6), "{page}");

    // Killed and started with the file that is still broken it refuses, and with a good one it goes on.
    agent.kill();
    desk.write("CPU_CAP=oops\nGPU_CAP=none\n");
    let refused = desk.start();
    assert_eq!(refused.ended().await.code(), Some(2));
    assert_eq!(desk.room.limits(), [150, 150]);
    desk.write("CPU_CAP=none\nGPU_CAP=none\n");
    let agent = desk.start();
    desk.room.until_limits(&[250, 250]).await;
    desk.until(|status| reason(status) == "NoCap").await;
    assert!(agent.terminate().await.success());
}

#[test]
fn the_command_says_what_it_needs() {
    let (code, said) = Agent::run(&["--standalone"], &[]);
    assert!(code == Some(2) && said.contains("--standalone FILE"), "{said}");
    let (code, said) = Agent::run(&["--standalone", "/nowhere/agent.conf"], &[]);
    assert!(code == Some(2) && said.contains("/nowhere/agent.conf cannot be read"), "{said}");
}

/// The unit and the file that ship start the program, and the file is one that it accepts.
#[test]
fn the_shipped_unit_starts_the_shipped_file() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    let unit = std::fs::read_to_string(folder.join("joulie-agent.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/joulie-agent --standalone /etc/joulie/agent.conf\n"));
    assert!(unit.contains("\nRestartPreventExitStatus=2\n"));
    // `--metrics-addr` is refused, and so shows that nothing of the file is.
    let file = folder.join("agent.conf").display().to_string();
    let (code, said) = Agent::run(&["--standalone", &file, "--metrics-addr", "nowhere"], &[]);
    assert!(code == Some(2) && said.matches("accepted:").count() == 1, "{said}");
    let copy = Folder::new();
    let path = copy.0.join("joulie-agent.service");
    std::fs::write(&path, unit.replace("/usr/bin/joulie-agent", env!("CARGO_BIN_EXE_joulie-agent"))).unwrap();
    match std::process::Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
        }
        Err(error) => println!("SKIP(no systemd-analyze: {error})"),
    }
}
