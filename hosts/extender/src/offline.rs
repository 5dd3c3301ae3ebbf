//! Decides without a cluster, from a saved one: `joulie-extender --snapshot FILE …` and `joulie-extender replay LOG
//! --snapshot FILE` (docs/adr/0034).
//!
//! It reads files and the settings of the environment, writes to standard output, and asks no API server.

mod replay;
mod saved;

use crate::decide;
use crate::expected::Expected;
use crate::explain;
use crate::probe::ProbeResponse;
use crate::settings::{Settings, TABLE};
use crate::snapshot::View;
use bytes::Bytes;
use host_kit::clock::Mono;
use host_kit::config::{self, Invocation};
use host_kit::shutdown::status::REFUSED;
use saved::Saved;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: joulie-extender --snapshot FILE filter|prioritize|explain POD [NODE...]
       joulie-extender replay LOG --snapshot FILE
FILE: kubectl get nodes,nodetwins,nodehardwares,powerbudgets,workloadprofiles,services,pods,leases -A -o json
      (with GPU_PLACEMENT also gpus.gpu.mle.com, with GPU_DRA also resourceslices,resourceclaims)
POD:  a file with a pod as JSON or YAML, - for standard input, or NAMESPACE/NAME of a pod in FILE
LOG:  what REQUEST_LOG has written";

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The status of a replay in which an answer differs.
const DIFFERS: u8 = 1;

/// Runs `--snapshot`; the arguments are those behind it.
pub fn snapshot(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    end(ask(&texts(arguments)).map(|said| (said, true)))
}

/// Runs `replay`; the arguments are those behind it.
pub fn replay(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    end(replayed(&texts(arguments)))
}

fn texts(arguments: impl Iterator<Item = OsString>) -> Vec<String> {
    arguments.map(|argument| argument.to_string_lossy().into_owned()).collect()
}

fn end(result: Result<(String, bool), String>) -> ExitCode {
    match result {
        Ok((said, is_same)) => {
            let written = std::io::stdout().write_all(said.as_bytes());
            if written.is_ok() && is_same { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) }
        }
        Err(why) => {
            // If standard error is closed, nobody can be told; the exit status still reports it.
            let _ = writeln!(std::io::stderr(), "joulie-extender: {why}");
            ExitCode::from(REFUSED.code)
        }
    }
}

fn replayed(arguments: &[String]) -> Result<(String, bool), String> {
    let (log, file) = match arguments {
        [log, flag, file] if flag == "--snapshot" => (log, file),
        [flag, file, log] if flag == "--snapshot" => (log, file),
        _ => return Err(USAGE.to_owned()),
    };
    let settings = settings(std::env::vars_os())?;
    let saved = open(file, &settings)?;
    let log = text(Path::new(log))?;
    Ok(replay::replay(&log, &saved, &settings.placement))
}

fn ask(arguments: &[String]) -> Result<String, String> {
    let [file, verb, pod, nodes @ ..] = arguments else { return Err(USAGE.to_owned()) };
    let settings = settings(std::env::vars_os())?;
    let saved = open(file, &settings)?;
    let pod = self::pod(pod, &saved)?;
    answer(&saved, &settings, verb, &pod, nodes)
}

/// The answer about a pod. Without nodes, all that the saved cluster has.
fn answer(
    saved: &Saved,
    settings: &Settings,
    verb: &str,
    pod: &Value,
    nodes: &[String],
) -> Result<String, String> {
    let placement = &settings.placement;
    let expected = Expected::new(Duration::ZERO).load();
    let view = View { snapshot: &saved.snapshot, expected: &expected, now: Mono::START };
    if let Some(unknown) = nodes.iter().find(|node| !saved.names.contains(node.as_str())) {
        return Err(format!("there is no node {unknown} in the saved cluster"));
    }
    let body = || -> Bytes {
        let all = || saved.names.iter().map(String::as_str).collect();
        let names: Vec<&str> =
            if nodes.is_empty() { all() } else { nodes.iter().map(String::as_str).collect() };
        json!({"Pod": pod, "NodeNames": names}).to_string().into()
    };
    let page = match (verb, nodes) {
        ("filter", _) => whole(decide::filter(&view, placement, &body()).map(|(reply, _)| reply)),
        ("prioritize", _) => whole(decide::prioritize(&view, placement, &body()).map(|(reply, _)| reply)),
        ("explain", []) => explain::pod(&view, placement, pod, None).map_err(|why| why.to_string()),
        ("explain", [node]) => {
            explain::pod(&view, placement, pod, Some(node.as_str())).map_err(|why| why.to_string())
        }
        ("explain", _) => explain::request(&view, placement, &body()).map_err(|why| why.to_string()),
        _ => Err(USAGE.to_owned()),
    }?;
    Ok(format!("{page:#}\n"))
}

/// The whole answer as JSON.
fn whole(reply: Result<crate::reply::Reply, crate::scan::Malformed>) -> Result<Value, String> {
    let reply = reply.map_err(|why| why.to_string())?;
    serde_json::from_slice(&ProbeResponse::of(reply).whole()).map_err(|error| error.to_string())
}

fn settings(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Settings, String> {
    let Invocation::Run(sources) = Invocation::read([], environment) else {
        return Err(USAGE.to_owned());
    };
    let read = config::load(&TABLE, &sources).and_then(|values| Settings::read(&values));
    read.map_err(|refusals| refusals.to_string())
}

fn open(file: &str, settings: &Settings) -> Result<Saved, String> {
    let saved = Saved::read(&text(Path::new(file))?, settings).map_err(|why| format!("{file}: {why}"))?;
    for warning in &saved.warnings {
        // Told beside the answer; if nobody reads it, the answer is the same.
        let _ = writeln!(std::io::stderr(), "joulie-extender: {warning}");
    }
    Ok(saved)
}

fn text(path: &Path) -> Result<String, String> {
    let why = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(why)?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(why)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(format!("{}: it has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(text)
}

/// The pod that a word of the command line means.
fn pod(word: &str, saved: &Saved) -> Result<Value, String> {
    let manifest = match word {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .take(MANIFEST_BYTES_MAX)
                .read_to_string(&mut text)
                .map_err(|error| error.to_string())?;
            text
        }
        path if Path::new(path).exists() => text(Path::new(path))?,
        name => {
            let found = name.split_once('/').and_then(|(namespace, name)| saved.pod(namespace, name));
            return found.cloned().ok_or_else(|| format!("there is neither a file nor a saved pod {name}"));
        }
    };
    let read: Value = serde_saphyr::from_str(&manifest).map_err(|error| format!("{word}: {error}"))?;
    let kind = read["kind"].as_str().unwrap_or("Pod");
    if kind != "Pod" || !read.is_object() {
        return Err(format!("{word}: expected a Pod, found something else"));
    }
    Ok(read)
}

const MANIFEST_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests;
