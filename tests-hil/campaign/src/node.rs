//! The child process: a node on the rig's files that executes commands, line by line, until it is killed.
//!
//! `cap WATTS` (of each package), `gone`, `unknown`, `tick MICROSECONDS WAIT HANGS` (in lockstep: this much time has
//! passed; wait up to WAIT ms for orders, and for the calls of every backend but HANGS, `-` for none), `status`,
//! `restore`, `stop`. Each is answered by a line.

use hal_amd::Where;
use joulie_core::node::cap::{CapIntent, DesiredCap};
use node_kit::{Boot, Config, Desire, HardwareSources, NodeAccess, NodeHandle, NodeReport, OpenNode, Time};
use power_units::{KiloHertz, Micros, Role, Watts};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The period of the closed loop: the law `tracking` is designed for half a second to a second.
pub(crate) const PERIOD: Micros = Micros::new(500_000);
/// The boot id of every node of a scenario.
pub(crate) const BOOT: &str = "campaign";
/// How many times faster than real time a free scenario runs.
pub(crate) const SPEED: u32 = 25;

const USAGE: &str = "usage: campaign node ROOT STATE lockstep|free WAIT_MS";

/// Runs as a node. The arguments are the root of the machine's files, its state folder, the pace, and how long to
/// wait for backends, ms.
#[must_use]
pub fn serve(arguments: &[String]) -> ExitCode {
    let [root, state, pace, wait] = arguments else { return refuse(USAGE) };
    let Ok(wait) = wait.parse().map(Duration::from_millis) else { return refuse(USAGE) };
    let (time, free) = match pace.as_str() {
        "lockstep" => (Time::manual(), false),
        "free" => (Time::faster(SPEED), true),
        _ => return refuse(USAGE),
    };
    match open(Path::new(root), state.into(), &time) {
        Ok(mut node) => {
            node.wait_for_backends(wait);
            say("ready");
            if free {
                run_free(node)
            } else {
                run_in_lockstep(&mut node, &time)
            }
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error),
    }
}

fn refuse(why: &str) -> ExitCode {
    say(&format!("refused {why}"));
    ExitCode::FAILURE
}

fn say(line: &str) {
    // The scenario may have ended and closed the pipe.
    let _said = writeln!(std::io::stdout(), "{line}");
}

fn open(root: &Path, state: PathBuf, time: &Time) -> Result<OpenNode, String> {
    // No GPU libraries: the machine has no GPU, and the libraries of the host must not be used.
    let none = state.join("no-library");
    let sources =
        HardwareSources { nvml: Some(none.clone()), rocm: Where::At(none), ..HardwareSources::below(root) };
    let config =
        Config::standard(sources, state, NodeAccess::Control, PERIOD).map_err(|error| error.to_string())?;
    let boot = Boot::new(BOOT).ok_or("the boot's id is one")?;
    OpenNode::open_in(config, time.clone(), boot).map_err(|error| error.to_string())
}

/// Listing all hardware anew takes real time, and this clock stands still meanwhile: no simulated time may pass. The
/// backend whose file hangs is not waited for.
#[expect(clippy::disallowed_methods, reason = "real time is what is waited for")]
fn wait_for_the_late(node: &mut OpenNode, hangs: &str) {
    for _ in 0..2_000 {
        let mut others = node.report().backends.iter().filter(|backend| backend.kind.label() != hangs);
        if others.all(|backend| backend.stuck_since.is_none()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
        node.settle();
    }
}

fn run_in_lockstep(node: &mut OpenNode, time: &Time) {
    let handle = node.handle();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["tick", micros, wait, hangs] => {
                let (Ok(micros), Ok(wait)) = (micros.parse(), wait.parse()) else { return say("what?") };
                time.advance(Micros::new(micros));
                node.period();
                node.settle_within(Duration::from_millis(wait));
                wait_for_the_late(node, hangs);
                say(&status(node.report()));
            }
            ["restore"] => say(&restore(node)),
            ["stop"] => return say("stopped"),
            _ => say(&wish(&handle, &words, || status(node.report()))),
        }
    }
}

fn run_free(mut node: OpenNode) {
    let handle = node.handle();
    let runner = std::thread::spawn(move || {
        node.run();
        node
    });
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let ends = matches!(words.as_slice(), ["stop" | "restore"]);
        if ends {
            handle.stop();
            match runner.join() {
                Ok(mut node) if words == ["restore"] => say(&restore(&mut node)),
                Ok(_) => say("stopped"),
                Err(_) => say("what?"),
            }
            return;
        }
        say(&wish(&handle, &words, || status(&handle.report())));
    }
}

fn restore(node: &mut OpenNode) -> String {
    match node.restore(Duration::from_secs(20)) {
        Ok(()) => "restored".to_owned(),
        Err(left) => format!("left {:?}", left.entries),
    }
}

fn wish(handle: &NodeHandle, words: &[&str], status: impl Fn() -> String) -> String {
    let desire = match words {
        ["cap", watts] => match watts.parse() {
            Ok(watts) => {
                let cap = DesiredCap::Cap(CapIntent::of_watts(Watts::from_int(watts)));
                Desire { cpu: cap, ..Desire::UNKNOWN }
            }
            Err(_) => return "what?".to_owned(),
        },
        ["gone"] => Desire::GONE,
        ["unknown"] => Desire::UNKNOWN,
        ["status"] => return status(),
        _ => return "what?".to_owned(),
    };
    handle.desire(desire);
    "ok".to_owned()
}

/// `ok ORIGINALS PERIODS STUCK …`: the number of originals, the number of periods, the backends that hang, and
/// further values for people.
fn status(report: &NodeReport) -> String {
    let stuck = report.backends.iter().filter(|backend| backend.stuck_since.is_some());
    let labels: Vec<&str> = stuck.map(|backend| backend.kind.label()).collect();
    let stuck = if labels.is_empty() { "-".to_owned() } else { labels.join(",") };
    let counts = &report.counts;
    let cpu = report.cpu.map(|decision| (decision.mode, decision.status.report));
    let law = report.law.map(|decision| (decision.action, decision.command));
    let limits = ends(report.policies.iter().filter_map(|policy| policy.limit));
    let running = ends(report.policies.iter().filter_map(|policy| policy.running));
    let (originals, periods, power) = (report.originals, counts.periods, report.power);
    format!("ok {originals} {periods} {stuck} {cpu:?} {law:?} {power:?} limits {limits} running {running}")
}

/// The lowest and the highest of some frequencies, and their number.
fn ends(all: impl Iterator<Item = KiloHertz> + Clone) -> String {
    let khz = |end: Option<KiloHertz>| end.map_or(0, |khz| khz.to_whole(Role::Nearest));
    format!("{}..{} of {}", khz(all.clone().min()), khz(all.clone().max()), all.count())
}
