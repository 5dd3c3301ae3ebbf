//! The status of an agent without a cluster, as a file: JSON, replaced as a whole.

use super::FileState;
use crate::front::outcome::{Outcome, Said};
use crate::machine::{Drawn, Part, View};
use joulie_api::number::Number;
use power_units::Watts;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// The document; `None` for what is not known.
pub(super) fn document(node: &str, file: &FileState, outcome: &Outcome, view: Option<&View>) -> Value {
    let verdict = outcome.verdict.as_ref().map(|verdict| {
        let status = match verdict.why.status() {
            joulie_api::condition::ConditionStatus::True => "True",
            joulie_api::condition::ConditionStatus::False => "False",
            joulie_api::condition::ConditionStatus::Unknown => "Unknown",
        };
        json!({"status": status, "reason": verdict.why.word(), "message": verdict.message})
    });
    json!({
        "node": node,
        "file": {
            "path": file.path.display().to_string(),
            "inForce": file.error.is_none() && file.caps.is_some(),
            "error": file.error,
            "restartNeeded": file.restart_needed,
        },
        "capEnforced": verdict,
        "cpu": view.map(|view| part(&view.cpu, outcome.cpu.as_ref())),
        "gpu": view.map(|view| part(&view.gpu, outcome.gpu.as_ref())),
        "plug": view.and_then(|view| view.plug).map(|plug| json!({
            "source": plug.source.word(),
            "powerWatts": plug.watts.map(|watts| Number::tenths(watts).get()),
            "restWatts": plug.rest.map(|watts| Number::tenths(watts).get()),
        })),
    })
}

fn part(part: &Part, said: Option<&Said>) -> Value {
    let watts = |watts: Option<Watts>| watts.map(|watts| Number::tenths(watts).get());
    let drawn = |drawn: Drawn| watts(drawn.watts());
    let devices: Vec<Value> = part
        .devices
        .iter()
        .map(|device| {
            json!({"key": device.key, "limitWatts": watts(device.limit), "powerWatts": drawn(device.drawn)})
        })
        .collect();
    json!({
        "backend": part.means.word(),
        "result": said.map(|said| said.result),
        "message": said.map(|said| said.message.clone()),
        "requestedWatts": watts(said.and_then(|said| said.requested)),
        "capWatts": watts(said.and_then(|said| said.cap)),
        "powerWatts": drawn(part.drawn),
        "trouble": part.trouble,
        "devices": devices,
    })
}

/// Replaces the file: whoever reads it finds the document of before, or this one.
pub(super) fn write(path: &Path, document: &Value) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = std::fs::File::create(&beside)?;
    serde_json::to_writer_pretty(&mut file, document)?;
    file.write_all(b"\n")?;
    drop(file);
    std::fs::rename(&beside, path)
}
