//! A log of sampled requests and their answers, for `joulie-extender replay` (docs/adr/0034).
//!
//! A request only counts and, if it is sampled, puts its body and its answer into a short queue. A task of its own writes
//! them. What the log says of a pod is what the extender reads: no commands, no environment, no other annotations.

use crate::decide::Outcome;
use crate::metrics::{Logged, Metrics, Verb};
use crate::reply::Reply;
use bytes::Bytes;
use host_kit::shutdown::Stop;
use jiff::Timestamp;
use joulie_api::labels;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// What is logged, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLogRule {
    /// The file. Lines are added to it.
    pub path: PathBuf,
    /// One of so many requests is logged.
    pub every: u64,
    /// The file grows no further than this many bytes.
    pub bytes_max: u64,
}

/// A longer request is not logged, because it would be held in memory until it is written.
const BODY_BYTES_MAX: usize = 4 << 20;
/// How many requests may wait to be written.
const QUEUE: usize = 16;

/// What requests see of it. Clones share it.
#[derive(Clone)]
pub(crate) struct RequestLog {
    every: u64,
    count: Arc<AtomicU64>,
    queue: mpsc::Sender<Sample>,
    metrics: Metrics,
}

/// A sampled request.
pub(crate) struct Sample {
    pub(crate) verb: Verb,
    pub(crate) at: Timestamp,
    pub(crate) body: Bytes,
    /// The answer in pieces.
    pub(crate) answer: Vec<Bytes>,
    /// Whether a shortlist was given, in a word.
    pub(crate) list: Option<&'static str>,
    /// How many other pods were expected on nodes.
    pub(crate) expected: usize,
}

/// The task that writes.
pub(crate) struct LogWriter {
    queue: mpsc::Receiver<Sample>,
    file: File,
    written: u64,
    bytes_max: u64,
    profile_key: Arc<str>,
    metrics: Metrics,
}

/// Opens the log.
pub(crate) async fn open(
    rule: &RequestLogRule,
    profile_key: Arc<str>,
    metrics: Metrics,
) -> io::Result<(RequestLog, LogWriter)> {
    let file = File::options().create(true).append(true).open(&rule.path).await?;
    let written = file.metadata().await?.len();
    let (sender, queue) = mpsc::channel(QUEUE);
    let log =
        RequestLog { every: rule.every, count: Arc::default(), queue: sender, metrics: metrics.clone() };
    Ok((log, LogWriter { queue, file, written, bytes_max: rule.bytes_max, profile_key, metrics }))
}

impl RequestLog {
    /// Whether the next request is sampled.
    pub(crate) fn is_due(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed).checked_rem(self.every) == Some(0)
    }

    /// Logs a request, unless it is too long or too many wait.
    pub(crate) fn offer(&self, sample: Sample) {
        if sample.body.len() > BODY_BYTES_MAX {
            return self.metrics.logged(Logged::TooLong);
        }
        if self.queue.try_send(sample).is_err() {
            self.metrics.logged(Logged::Dropped);
        }
    }
}

impl Sample {
    pub(crate) fn of(verb: Verb, at: Timestamp, body: &Bytes, reply: &Reply, outcome: &Outcome) -> Self {
        let list = outcome.list.map(crate::shortlist::ListAnswer::word);
        Self { verb, at, body: body.clone(), answer: reply.pieces(), list, expected: 0 }
    }

    /// The line of the log.
    fn line(&self, profile_key: &str) -> Option<String> {
        let request: Value = serde_json::from_slice(&self.body).ok()?;
        let answer: Value = serde_json::from_slice(&self.answer.concat()).ok()?;
        let line = json!({
            "verb": self.verb.word(),
            "at": self.at.to_string(),
            "list": self.list,
            "expected": self.expected,
            "request": trimmed(&request, profile_key),
            "answer": told(self.verb, &answer),
        });
        Some(format!("{line}\n"))
    }
}

impl LogWriter {
    /// Writes until the program ends.
    pub(crate) async fn run(mut self, stop: Stop) {
        loop {
            let sample = tokio::select! {
                biased;
                () = stop.requested() => return,
                sample = self.queue.recv() => sample,
            };
            let Some(sample) = sample else { return };
            let logged = self.write(&sample).await;
            self.metrics.logged(logged);
        }
    }

    async fn write(&mut self, sample: &Sample) -> Logged {
        let Some(line) = sample.line(&self.profile_key) else { return Logged::Failed };
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.written.saturating_add(length) > self.bytes_max {
            return Logged::Full;
        }
        let written = self.file.write_all(line.as_bytes()).await;
        if written.is_err() || self.file.flush().await.is_err() {
            return Logged::Failed;
        }
        self.written = self.written.saturating_add(length);
        Logged::Written
    }
}

/// What an answer says of each node: `kept`, why it is refused, or its score.
pub(crate) fn told(verb: Verb, answer: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    match verb {
        Verb::Filter => {
            for map in ["failedNodes", "failedAndUnresolvableNodes"] {
                for (node, why) in answer[map].as_object().into_iter().flatten() {
                    all.insert(node.clone(), why.as_str().unwrap_or_default().to_owned());
                }
            }
            let names = answer["nodenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let items = answer["nodes"]["items"].as_array().into_iter().flatten();
            let items = items.filter_map(|node| node["metadata"]["name"].as_str());
            all.extend(names.chain(items).map(|node| (node.to_owned(), "kept".to_owned())));
        }
        Verb::Prioritize => {
            for entry in answer.as_array().into_iter().flatten() {
                let node = entry["host"].as_str().unwrap_or_default();
                all.insert(node.to_owned(), entry["score"].to_string());
            }
        }
    }
    all
}

/// The value of a key of a request, which comes in any casing.
fn member<'v>(request: &'v Value, name: &str) -> &'v Value {
    let mut members = request.as_object().into_iter().flatten();
    members.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or(&Value::Null, |(_, value)| value)
}

/// What the extender reads of a request.
fn trimmed(request: &Value, profile_key: &str) -> Value {
    let mut kept = Map::new();
    let pod = member(request, "Pod");
    if pod.is_object() {
        kept.insert("Pod".to_owned(), trimmed_pod(pod));
    }
    let nodes = member(request, "Nodes");
    if nodes.is_object() {
        let node = |node: &Value| {
            let metadata = &node["metadata"];
            json!({"metadata": {"name": metadata["name"], "labels": {profile_key: metadata["labels"][profile_key]}}})
        };
        let items: Vec<Value> = member(nodes, "items").as_array().into_iter().flatten().map(node).collect();
        kept.insert("Nodes".to_owned(), json!({"items": items}));
    }
    let names = member(request, "NodeNames");
    if names.is_array() {
        kept.insert("NodeNames".to_owned(), names.clone());
    }
    Value::Object(kept)
}

fn trimmed_pod(pod: &Value) -> Value {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let mut head = picked(metadata, &["name", "namespace", "uid", "labels"]);
    let owner = |owner: &Value| Value::Object(picked(owner, &["kind", "name", "controller"]));
    head.insert("ownerReferences".to_owned(), each(&metadata["ownerReferences"], owner));
    let read = [labels::pod::WORKLOAD_CLASS, labels::pod::GPU_MODEL, labels::pod::GPU_VRAM_MB];
    head.insert("annotations".to_owned(), Value::Object(picked(&metadata["annotations"], &read)));
    let mut body = picked(
        spec,
        &["nodeName", "overhead", "resources", "affinity", "topologySpreadConstraints", "schedulingGroup"],
    );
    for containers in ["initContainers", "containers"] {
        let container = |one: &Value| Value::Object(picked(one, &["image", "resources", "restartPolicy"]));
        body.insert(containers.to_owned(), each(&spec[containers], container));
    }
    // Of volumes and claims only that they are there.
    let kinds = |volume: &Value| -> Value {
        let keys = volume.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        keys.map(|(key, _)| (key.clone(), json!({}))).collect()
    };
    body.insert("volumes".to_owned(), each(&spec["volumes"], kinds));
    body.insert("resourceClaims".to_owned(), each(&spec["resourceClaims"], |_| json!({})));
    json!({"metadata": head, "spec": body})
}

/// These members, where they are there.
fn picked(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let there = keys.iter().filter_map(|key| Some(((*key).to_owned(), object.get(key)?.clone())));
    there.collect()
}

fn each(list: &Value, item: impl Fn(&Value) -> Value) -> Value {
    list.as_array().map_or(Value::Null, |all| all.iter().map(item).collect())
}

/// Why the log cannot be opened, for the person who set it.
pub(crate) fn refused(path: &Path, error: &io::Error) -> String {
    format!(
        "REQUEST_LOG: {} cannot be opened: {error}; name a file in a folder that may be written",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_pod_is_logged_but_what_is_read() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"},
                "annotations": {"joulie.io/workload-class": "performance", "note": "SECRET"},
                "ownerReferences": [{"kind": "Job", "name": "j", "controller": true, "uid": "SECRET"}],
                "managedFields": ["SECRET"]},
            "spec": {"serviceAccountName": "SECRET", "containers": [{"image": "i", "command": ["SECRET"],
                "env": [{"name": "A", "value": "SECRET"}], "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "SECRET", "secret": {"secretName": "SECRET"}}],
                "resourceClaims": [{"name": "SECRET"}]},
            "status": {"message": "SECRET"},
        });
        let node =
            json!({"metadata": {"name": "a", "labels": {"k": "eco", "x": "SECRET"}}, "spec": "SECRET"});
        let request = json!({"pod": pod, "nodes": {"items": [node]}, "other": "SECRET"});
        let kept = trimmed(&request, "k");
        assert!(!kept.to_string().contains("SECRET"), "{kept}");
        assert_eq!(kept["Nodes"], json!({"items": [{"metadata": {"name": "a", "labels": {"k": "eco"}}}]}));
        let pod = &kept["Pod"];
        assert_eq!(pod["metadata"]["annotations"], json!({"joulie.io/workload-class": "performance"}));
        assert_eq!(
            pod["spec"]["containers"],
            json!([{"image": "i", "resources": {"requests": {"cpu": "1"}}}])
        );
        assert_eq!(pod["spec"]["volumes"], json!([{"name": {}, "secret": {}}]));
        // What is missing stays missing.
        assert_eq!(trimmed(&json!({"NodeNames": ["a"]}), "k"), json!({"NodeNames": ["a"]}));
    }

    #[test]
    fn an_answer_is_told_by_node() {
        let filter = json!({"nodenames": ["a"], "failedNodes": {"b": "why"}, "failedAndUnresolvableNodes": {"b": "why"}});
        let expected = [("a", "kept"), ("b", "why")].map(|(node, said)| (node.to_owned(), said.to_owned()));
        assert_eq!(told(Verb::Filter, &filter), expected.into());
        let scores = json!([{"host": "a", "score": 7}]);
        assert_eq!(told(Verb::Prioritize, &scores), [("a".to_owned(), "7".to_owned())].into());
    }
}
