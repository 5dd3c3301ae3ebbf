//! The unit of systemd for one machine: systemd reads it, and what it starts does what it says.

use crate::test_machine::TestMachine;
use rig::test_machine::Folder;
use std::path::Path;
use std::process::{Command, Stdio};

/// As installed.
const PROGRAM: &str = "/usr/bin/joulie";
const FULL: &str = "250000000\n";
/// 80 % of it.
const CAPPED: &str = "200000000\n";

fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// What a line of a unit or of a file of variables says.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let lines: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect();
    assert_eq!(lines.len(), 1, "{name}");
    lines[0]
}

/// The words that systemd starts, with the values that ship, without the program and `node`.
fn words() -> Vec<String> {
    let (unit, values) = (shipped("joulie-node.service"), shipped("node.conf"));
    let line = value(&unit, "ExecStart").replace("$CAPS", value(&values, "CAPS"));
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[..2], [PROGRAM, "node"]);
    words[2..].to_vec()
}

/// The same command without a single capability, as the unit starts it.
fn without_capabilities(command: &Command) -> Command {
    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    bare.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    bare
}

#[test]
fn systemd_reads_the_unit_and_knows_every_directive() {
    let folder = Folder::new();
    let unit = folder.0.join("joulie-node.service");
    let text = shipped("joulie-node.service");
    // It looks whether the program is there.
    std::fs::write(&unit, text.replace(PROGRAM, env!("CARGO_BIN_EXE_joulie"))).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
        }
        Err(error) => println!("SKIP(no systemd-analyze: {error})"),
    }
}

#[test]
fn the_unit_holds_its_cap_leaves_it_when_it_is_killed_and_puts_back_when_it_is_stopped() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let words = words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let start = || {
        let command = without_capabilities(&room.command(&words));
        room.start_command(command, "held until a signal ends this command")
    };
    let mut running = start();
    assert_eq!([room.limit(0), room.limit(1)], [CAPPED, CAPPED]);
    running.signal("KILL");
    assert_eq!(running.end(), None, "{}", running.said());
    assert_eq!([room.limit(0), room.limit(1)], [CAPPED, CAPPED]);

    // The next start takes the caps over: what it puts back is what was in force before the first.
    let mut running = start();
    running.signal("TERM");
    assert_eq!(running.end(), Some(0), "{}", running.said());
    assert_eq!([room.limit(0), room.limit(1)], [FULL, FULL]);
}

/// A unit that were stopped by another signal, or whose end is not waited for, would leave the caps.
#[test]
fn the_unit_is_stopped_by_the_signal_that_puts_back() {
    let unit = shipped("joulie-node.service");
    assert!(!unit.contains("KillSignal=") && !unit.contains("KillMode=") && !unit.contains("SendSIGHUP="));
    let seconds: u32 = value(&unit, "TimeoutStopSec").strip_suffix('s').unwrap().parse().unwrap();
    assert!(seconds > 10, "originals may take 10 s to be back");
    assert_eq!(value(&unit, "StateDirectory"), "joulie");
    assert!(!unit.contains("ProtectKernelTunables="), "/sys would be read-only");
}
