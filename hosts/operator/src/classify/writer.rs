//! Sends the changes of a round to the API server, some at once, and remembers what failed.

use super::round::Change;
use super::stats::{ClassifyStats, Part};
use crate::stats::Became;
use crate::writes::{Trouble, apply_as, delete, trouble};
use futures::StreamExt;
use host_kit::clock::Mono;
use host_kit::reflect::ObjectKey;
use joulie_api::labels::manager;
use kube::Client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The wait after a first failure. Every further failure doubles it.
const FIRST: Duration = Duration::from_secs(5);
/// The longest wait.
const MOST: Duration = Duration::from_secs(900);

/// Sends changes.
pub(super) struct ProfileWriter {
    pub(super) client: Client,
    pub(super) timeout: Duration,
    /// How many objects are written to at once.
    pub(super) at_once: usize,
    pub(super) stats: ClassifyStats,
}

/// What came of the changes of a round.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The objects that were written to, and the version in which each was left; empty if it was deleted.
    pub(super) landed: Vec<(ObjectKey, String)>,
    /// The objects whose change the server refused.
    pub(super) refused: Vec<(ObjectKey, Trouble)>,
    /// Why the server was found away; then what was left of the changes was not sent.
    pub(super) away: Option<String>,
}

/// How one change ended.
enum Ended {
    Landed(String),
    Failed(Trouble),
    NotSent,
}

impl ProfileWriter {
    /// Sends changes, as long as `leads` holds and the server is there.
    pub(super) async fn send(&self, changes: Vec<(ObjectKey, Change)>, leads: impl Fn() -> bool) -> Sent {
        let (away, leads) = (AtomicBool::new(false), &leads);
        let one = |(key, change): (ObjectKey, Change)| {
            let away = &away;
            async move {
                if away.load(Ordering::Relaxed) || !leads() {
                    return (key, Ended::NotSent);
                }
                let ended = self.one(&key, change, leads).await;
                if matches!(ended, Ended::Failed(Trouble::Away(..))) {
                    away.store(true, Ordering::Relaxed);
                }
                (key, ended)
            }
        };
        let mut all = futures::stream::iter(changes).map(one).buffer_unordered(self.at_once.max(1));
        let mut sent = Sent::default();
        while let Some((key, ended)) = all.next().await {
            match ended {
                Ended::Landed(version) => sent.landed.push((key, version)),
                Ended::Failed(Trouble::Away(why, _)) => sent.away = Some(why),
                Ended::Failed(Trouble::NotLeading) | Ended::NotSent => {}
                Ended::Failed(trouble) => sent.refused.push((key, trouble)),
            }
        }
        sent
    }

    async fn one(&self, key: &ObjectKey, change: Change, leads: impl Fn() -> bool) -> Ended {
        let ObjectKey { namespace, name } = key;
        let path = format!("/apis/joulie.io/v1alpha1/namespaces/{namespace}/workloadprofiles/{name}");
        let (object, mut status, takes_over) = match change {
            Change::Delete(uid) => {
                let gone = self.ask(Part::Deletion, delete(&path, &uid)).await;
                return match gone {
                    Ok(_) | Err(Trouble::Gone) => Ended::Landed(String::new()),
                    Err(trouble) => Ended::Failed(trouble),
                };
            }
            Change::Apply { object, status, takes_over } => (object, status, takes_over),
        };
        let mut version = takes_over;
        if let Some(object) = object {
            match self.ask(Part::Object, apply(&path, object, version.as_deref())).await {
                Ok(written) => {
                    speak_of(&mut status, &written["metadata"]["generation"]);
                    let now = written["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                    version = version.and(now);
                }
                Err(trouble) => return Ended::Failed(trouble),
            }
        }
        if !leads() {
            return Ended::Failed(Trouble::NotLeading);
        }
        let document = serde_json::json!({
            "apiVersion": "joulie.io/v1alpha1", "kind": "WorkloadProfile",
            "metadata": {"name": name, "namespace": namespace}, "status": status,
        });
        let path = format!("{path}/status");
        match self.ask(Part::Status, apply(&path, document, version.as_deref())).await {
            Ok(written) => {
                Ended::Landed(written["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
            }
            Err(trouble) => Ended::Failed(trouble),
        }
    }

    async fn ask(&self, part: Part, request: http::Result<http::Request<Vec<u8>>>) -> Result<Value, Trouble> {
        let asked = async {
            let request = request.map_err(|error| Trouble::Refused(error.to_string()))?;
            self.client.request::<Value>(request).await.map_err(trouble)
        };
        let late = |_| Err(Trouble::Away("no answer in time".to_owned(), None));
        let answer = tokio::time::timeout(self.timeout, asked).await.unwrap_or_else(late);
        self.stats.wrote(part, answer.as_ref().map_or_else(Became::of, |_| Became::Landed));
        answer
    }
}

/// An apply that takes over fields only of an object that still has the version in which they were an earlier
/// operator's.
fn apply(path: &str, mut document: Value, takes_over: Option<&str>) -> http::Result<http::Request<Vec<u8>>> {
    if let Some(version) = takes_over {
        document["metadata"]["resourceVersion"] = version.into();
    }
    apply_as(manager::CLASSIFIER, path, &document, takes_over.is_some())
}

/// Lets a status speak of the generation that the object now has.
fn speak_of(status: &mut Value, generation: &Value) {
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in conditions.filter(|condition| condition.is_object()) {
        condition["observedGeneration"] = generation.clone();
    }
    if status.get("observedGeneration").is_some() {
        status["observedGeneration"] = generation.clone();
    }
}

/// The objects that are left alone for now: those whose change failed, and those whose change does not show yet.
#[derive(Debug, Default)]
pub(super) struct Rests {
    failed: BTreeMap<ObjectKey, (u32, Mono)>,
    /// The version in which a change left an object; empty if it was deleted.
    awaited: BTreeMap<ObjectKey, String>,
}

impl Rests {
    /// Whether an object is to be left alone. `version` is the one that the watch shows; `None` if it shows no object.
    pub(super) fn rests(&self, key: &ObjectKey, version: Option<&str>, now: Mono) -> bool {
        let failed = self.failed.get(key).is_some_and(|(_, until)| now < *until);
        failed || self.awaited.get(key).is_some_and(|awaited| !shows(version, awaited))
    }

    /// Takes in what came of the changes of a round. A change that does not show for a round is not waited for longer.
    pub(super) fn take(&mut self, sent: &Sent, now: Mono) {
        self.awaited.clear();
        for (key, version) in &sent.landed {
            self.failed.remove(key);
            self.awaited.insert(key.clone(), version.clone());
        }
        for (key, trouble) in &sent.refused {
            let failures = self.failed.get(key).map_or(0, |(failures, _)| *failures);
            let wait = FIRST.saturating_mul(1 << failures.min(10)).min(MOST);
            if failures == 0 {
                tracing::warn!("WorkloadProfile {key}: {}", trouble.words());
            }
            self.failed.insert(key.clone(), (failures.saturating_add(1), now.plus(wait)));
        }
    }

    /// Forgets the failures of long ago, and those of objects that nobody wants to change any more.
    pub(super) fn forget(&mut self, wanted: &BTreeSet<ObjectKey>, now: Mono) {
        self.failed.retain(|key, (_, until)| wanted.contains(key) || now < *until);
    }
}

fn shows(version: Option<&str>, awaited: &str) -> bool {
    match (version, awaited) {
        (version, "") => version.is_none(),
        (None, _) => false,
        (Some(version), awaited) => match (version.parse::<u64>(), awaited.parse::<u64>()) {
            (Ok(version), Ok(awaited)) => version >= awaited,
            _ => version == awaited,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "x".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_change_that_does_not_show_yet_is_not_made_again_and_a_failed_one_waits_ever_longer() {
        let at = |seconds| Mono::at(Duration::from_secs(seconds));
        let mut rests = Rests::default();
        let landed = vec![(key("a"), "12".to_owned()), (key("gone"), String::new())];
        rests.take(&Sent { landed, ..Sent::default() }, at(0));
        assert!(rests.rests(&key("a"), Some("9"), at(1)) && rests.rests(&key("a"), None, at(1)));
        assert!(!rests.rests(&key("a"), Some("12"), at(1)) && !rests.rests(&key("a"), Some("103"), at(1)));
        assert!(rests.rests(&key("gone"), Some("12"), at(1)) && !rests.rests(&key("gone"), None, at(1)));
        rests.take(&Sent::default(), at(2));
        assert!(!rests.rests(&key("a"), Some("9"), at(3)), "it is waited for one round long");
        let refused =
            || Sent { refused: vec![(key("b"), Trouble::Refused("no".to_owned()))], ..Sent::default() };
        rests.take(&refused(), at(10));
        assert!(rests.rests(&key("b"), None, at(14)) && !rests.rests(&key("b"), None, at(15)));
        rests.take(&refused(), at(15));
        assert!(rests.rests(&key("b"), None, at(24)) && !rests.rests(&key("b"), None, at(25)));
        for _ in 0..40 {
            rests.take(&refused(), at(30));
        }
        assert!(!rests.rests(&key("b"), None, at(30 + 900)));
        rests.forget(&BTreeSet::new(), at(2000));
        rests.take(&refused(), at(2000));
        assert!(!rests.rests(&key("b"), None, at(2005)), "an old failure is forgotten");
    }

    #[test]
    fn a_status_speaks_of_the_generation_that_was_written() {
        let mut status =
            serde_json::json!({"observedGeneration": 1, "conditions": [{"observedGeneration": 1}, 3]});
        speak_of(&mut status, &7.into());
        let said = serde_json::json!({"observedGeneration": 7, "conditions": [{"observedGeneration": 7}, 3]});
        assert_eq!(status, said);
        let mut without = serde_json::json!({"cpu": {}});
        speak_of(&mut without, &7.into());
        assert_eq!(without["observedGeneration"], Value::Null);
    }
}
