//! The virtual hardware of the suite's only real node, as a separate process, because a process must not load a
//! library through a mount that it serves: `system-rig PROFILE FOLDER`. It prints a line for every write to a power
//! limit.
#![expect(clippy::print_stdout, reason = "what it prints is its log")]

use rig::machine::{RigTime, Shared, VirtualAttribute};
use rig::{fuse, profile};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use system::SystemError;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.as_slice() {
        [name, on] => serve(name, Path::new(on)),
        _ => Err("usage: system-rig PROFILE FOLDER".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            println!("system-rig: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn serve(name: &str, on: &Path) -> Result<(), SystemError> {
    let build = profile::find(name).ok_or_else(|| format!("the rig has no profile {name}"))?;
    let mut machine = build(RigTime::Real(1.0))?;
    machine.watch(|attribute, text, zones| {
        if let VirtualAttribute::PowerLimit(zone, constraint) = *attribute {
            let id = zones.get(zone).map_or("?", |slot| slot.zone.id.as_str());
            let text = String::from_utf8_lossy(text);
            // If the log cannot be written, the test that reads it fails.
            let _ = writeln!(std::io::stdout(), "write {id} {constraint} {}", text.trim());
        }
    });
    std::fs::create_dir_all(on)?;
    let mounted = fuse::mount(Shared::new(machine), on)?;
    println!("mounted");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok::<_, std::io::Error>(signal(SignalKind::terminate())?.recv().await) })?;
    drop(mounted);
    Ok(())
}
