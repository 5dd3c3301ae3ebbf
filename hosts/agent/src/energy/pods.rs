//! The pods of a node: whose the UID of a cgroup and the name in an answer of the kubelet are.
//!
//! The cgroup of a pod has the UID that the API server has given it, which nobody can choose. That of a static pod has a name that
//! the kubelet writes on the pod's mirror, and whoever may create pods can write the same on one of their own. So a name counts only
//! on what the kubelet takes for a mirror, and therefore never runs under its own UID; it never takes the place of a UID, and of
//! several mirrors with one name the first keeps it. The kubelet deletes a mirror that it has not made.

use host_kit::clock::Mono;
use host_kit::reflect::{ObjectKey, Row, Rows};
use joulie_api::labels;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// For how long a pod that the API has forgotten is still known: its cgroup goes some seconds later.
const KEPT: Duration = Duration::from_secs(300);
/// The most pods that are known at once, those of the last minutes included; more are unknown.
const PODS_MOST: usize = 8_192;
/// Where the kubelet writes the name that the cgroup of a static pod has.
const STATIC: &str = "kubernetes.io/config.hash";
/// The same name once more. What has it is a mirror for the kubelet, and the API server lets nobody add it to a pod or take it off.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A longer one is not the kubelet's, and would be a label of a series.
const HASH_MOST: usize = 64;

/// The workload that a pod belongs to: its outermost controller that its own metadata names, or itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Workload {
    pub(crate) namespace: Arc<str>,
    /// Its kind and name, as in `Deployment/web`.
    pub(crate) name: Arc<str>,
}

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodOwner {
    /// The name of its cgroup, if it is the mirror of a static pod.
    hash: Option<String>,
    /// When the API server has created it, as it writes it.
    created: String,
    workload: Workload,
    /// Whether it has ended for good, and so holds no device any more.
    over: bool,
    /// The UID that the API gave it.
    api_uid: String,
    /// The VRAM that it asks for of each GPU.
    vram_mb: Option<u64>,
    /// The GPUs that were taken for it when it was bound, separated by commas.
    cards: Option<String>,
}

impl PodOwner {
    pub(crate) const fn has_ended(&self) -> bool {
        self.over
    }

    pub(crate) fn api_uid(&self) -> &str {
        &self.api_uid
    }

    pub(crate) const fn vram_mb(&self) -> Option<u64> {
        self.vram_mb
    }

    pub(crate) fn cards_taken(&self) -> Option<&str> {
        self.cards.as_deref()
    }
}

impl Row for PodOwner {
    const KIND: &'static str = "Pod";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let meta = &object["metadata"];
        let text = |field: &str| meta[field].as_str().filter(|text| !text.is_empty());
        let name = text("name").ok_or("it has no name")?;
        let uid = text("uid").ok_or("it has no UID")?;
        let phase = object["status"]["phase"].as_str();
        let workload = Workload {
            namespace: text("namespace").unwrap_or_default().into(),
            name: controller(meta).unwrap_or_else(|| format!("Pod/{name}")).into(),
        };
        let annotation = |key: &str| meta["annotations"][key].as_str().map(str::trim);
        let vram = annotation(labels::pod::GPU_VRAM_MB).and_then(|text| text.parse().ok());
        Ok(Self {
            hash: mirrored(object).map(str::to_owned),
            created: text("creationTimestamp").unwrap_or_default().to_owned(),
            workload,
            over: matches!(phase, Some("Succeeded" | "Failed")),
            api_uid: uid.to_owned(),
            vram_mb: vram.filter(|&mb| mb > 0),
            cards: annotation(labels::pod::GPU_CARDS).filter(|cards| !cards.is_empty()).map(str::to_owned),
        })
    }
}

/// The name of the static pod's cgroup, if this is the mirror that the kubelet of its node has made of it.
fn mirrored(object: &Value) -> Option<&str> {
    let (meta, node) = (&object["metadata"], object["spec"]["nodeName"].as_str()?);
    let annotation = |key: &str| meta["annotations"][key].as_str();
    let hash = annotation(MIRROR).filter(|hash| (1..=HASH_MOST).contains(&hash.len()))?;
    let mut owners = meta["ownerReferences"].as_array()?.iter();
    let is_of_node = owners.any(|owner| owner["kind"] == "Node" && owner["name"] == node);
    (annotation(STATIC) == Some(hash) && is_of_node).then_some(hash)
}

/// The controller's kind and name. A Deployment names its ReplicaSets after itself and the hash that their pods carry. Whatever runs as
/// a static pod is owned by its Node, and is a workload of its own.
fn controller(meta: &Value) -> Option<String> {
    let mut references = meta["ownerReferences"].as_array()?.iter();
    let owner = references.find(|reference| reference["controller"].as_bool() == Some(true))?;
    let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
    let hash = meta["labels"]["pod-template-hash"].as_str().filter(|hash| !hash.is_empty());
    let of_deployment =
        |hash: &str| name.strip_suffix(hash)?.strip_suffix('-').filter(|name| !name.is_empty());
    match (kind, hash.and_then(of_deployment)) {
        ("ReplicaSet", Some(deployment)) => Some(format!("Deployment/{deployment}")),
        ("Node", _) => None,
        _ => Some(format!("{kind}/{name}")),
    }
}

/// A pod that energy is charged to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) name: Arc<str>,
    pub(crate) workload: Workload,
}

#[derive(Clone, Debug)]
struct KnownPod {
    name: Arc<str>,
    workload: Workload,
    /// The UID that the API gave it.
    api_uid: String,
    seen: Mono,
}

impl KnownPod {
    /// Whether it is this pod, perhaps created anew.
    fn is(&self, key: &ObjectKey) -> bool {
        *self.name == *key.name && *self.workload.namespace == *key.namespace
    }
}

/// The pods that are known, and those of the last minutes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    by_uid: BTreeMap<String, KnownPod>,
    /// Those that the API has now, by namespace and name, and whether they have ended.
    by_name: BTreeMap<(String, String), (String, bool)>,
}

impl Pods {
    /// Takes in what the watch says now.
    pub(crate) fn take(&mut self, rows: &Rows<PodOwner>, now: Mono) {
        rows.with(|rows| self.refresh(rows.iter().map(|(key, held)| (key, &*held.row)), now));
    }

    fn refresh<'a>(&mut self, rows: impl Iterator<Item = (&'a ObjectKey, &'a PodOwner)>, now: Mono) {
        self.by_name.clear();
        let (mut mirrors, pods): (Vec<_>, Vec<_>) = rows.partition(|(_, row)| row.hash.is_some());
        for (key, row) in pods {
            self.know(key, row, &row.api_uid, now);
        }
        mirrors.sort_by(|(_, one), (_, other)| {
            (&one.created, &one.api_uid).cmp(&(&other.created, &other.api_uid))
        });
        for (key, row) in mirrors {
            let hash = row.hash.as_deref().unwrap_or(&row.api_uid);
            let is_free = self.by_uid.get(hash).is_none_or(|known| known.api_uid != hash && known.is(key));
            self.know(key, row, if is_free { hash } else { &row.api_uid }, now);
        }
        self.by_uid.retain(|_, known| now.since(known.seen) <= KEPT);
    }

    /// The cgroup of a pod has this UID in its name.
    fn know(&mut self, key: &ObjectKey, row: &PodOwner, uid: &str, now: Mono) {
        self.by_name.insert((key.namespace.clone(), key.name.clone()), (uid.to_owned(), row.over));
        if self.by_uid.len() < PODS_MOST || self.by_uid.contains_key(uid) {
            let (name, workload) = (key.name.as_str().into(), row.workload.clone());
            let known = KnownPod { name, workload, api_uid: row.api_uid.clone(), seen: now };
            self.by_uid.insert(uid.to_owned(), known);
        }
    }

    /// The pod whose cgroup has this UID in its name.
    pub(crate) fn of_uid(&self, uid: &str) -> Option<Pod> {
        let KnownPod { name, workload, .. } = self.by_uid.get(uid)?.clone();
        Some(Pod { uid: uid.to_owned(), name, workload })
    }

    /// The pod that has this name now.
    pub(crate) fn of_name(&self, namespace: &str, name: &str) -> Option<Pod> {
        self.of_uid(&self.named(namespace, name)?.0)
    }

    /// Whether the pod of this name has ended for good.
    pub(crate) fn has_ended(&self, namespace: &str, name: &str) -> bool {
        self.named(namespace, name).is_some_and(|(_, over)| *over)
    }

    fn named(&self, namespace: &str, name: &str) -> Option<&(String, bool)> {
        self.by_name.get(&(namespace.to_owned(), name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workload(meta: &Value) -> String {
        let object = json!({"metadata": meta});
        PodOwner::read(&object).map_or_else(|why| why, |row| row.workload.name.to_string())
    }

    fn owned(kind: &str, name: &str, hash: &str) -> Value {
        json!({"name": "p", "uid": "u", "labels": {"pod-template-hash": hash}, "ownerReferences": [
            {"kind": "Other", "name": "x"}, {"kind": kind, "name": name, "controller": true},
        ]})
    }

    #[test]
    fn a_pod_belongs_to_its_outermost_controller() {
        assert_eq!(workload(&owned("ReplicaSet", "web-5d4f", "5d4f")), "Deployment/web");
        assert_eq!(workload(&owned("ReplicaSet", "web-5d4f", "")), "ReplicaSet/web-5d4f");
        assert_eq!(workload(&owned("ReplicaSet", "-5d4f", "5d4f")), "ReplicaSet/-5d4f");
        assert_eq!(workload(&owned("Job", "train", "")), "Job/train");
        assert_eq!(workload(&owned("Node", "n1", "")), "Pod/p");
        assert_eq!(workload(&json!({"name": "p", "uid": "u"})), "Pod/p");
        assert_eq!(workload(&json!({"name": "p"})), "it has no UID");
        assert_eq!(workload(&json!({"uid": "u"})), "it has no name");
    }

    #[test]
    fn a_pod_is_known_for_a_while_after_it_has_gone_and_one_that_has_ended_holds_nothing() {
        let at = |seconds| Mono::at(Duration::from_secs(seconds));
        let pod = |uid: &str, phase: &str, hash: Value| {
            let mut object = mirror("p", uid, &hash, 0);
            object["status"] = json!({"phase": phase});
            PodOwner::read(&object).unwrap()
        };
        let key = ObjectKey { namespace: "shop".to_owned(), name: "p".to_owned() };
        let mut pods = Pods::default();
        let row = pod("u1", "Running", Value::Null);
        pods.refresh([(&key, &row)].into_iter(), at(0));
        assert_eq!(pods.of_name("shop", "p").unwrap().uid, "u1");
        pods.refresh(std::iter::empty(), at(300));
        assert_eq!(pods.of_name("shop", "p"), None, "its name may be that of another pod now");
        let known = pods.of_uid("u1").unwrap();
        assert_eq!((&*known.name, &*known.workload.name), ("p", "Pod/p"));
        pods.refresh(std::iter::empty(), at(301));
        assert_eq!(pods.of_uid("u1"), None);
        // The mirror of a static pod has another UID than the pod's cgroup.
        let row = pod("u2", "Succeeded", json!("5f4dcc3b"));
        pods.refresh([(&key, &row)].into_iter(), at(302));
        assert_eq!(pods.of_uid("u2"), None);
        assert_eq!(pods.of_name("shop", "p").unwrap().uid, "5f4dcc3b");
        for odd in [String::new(), "f".repeat(65)] {
            assert_eq!(
                pod("u3", "Running", json!(odd)).hash,
                None,
                "whoever creates a pod writes any text there"
            );
        }
        assert!(pods.has_ended("shop", "p") && !pods.has_ended("shop", "q"));
    }

    /// The mirror of a static pod of the node `n1`, or what looks like it.
    fn mirror(name: &str, uid: &str, hash: &Value, second: u32) -> Value {
        let owner = json!({"kind": "Node", "name": "n1", "controller": true});
        json!({"spec": {"nodeName": "n1"}, "metadata": {"name": name, "namespace": "shop", "uid": uid,
            "creationTimestamp": format!("2026-05-01T12:00:{second:02}Z"), "ownerReferences": [owner],
            "annotations": {STATIC: hash, MIRROR: hash}}})
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    /// The names of the pods that these UIDs of cgroups are told as, after each of these views of the API.
    fn told(views: &[&[Value]], uids: [&str; 3]) -> [Option<String>; 3] {
        let mut pods = Pods::default();
        for (second, view) in (1_u64..).zip(views) {
            let read = |object: &Value| {
                (key(object["metadata"]["name"].as_str().unwrap()), PodOwner::read(object).unwrap())
            };
            let rows: Vec<(ObjectKey, PodOwner)> = view.iter().map(read).collect();
            pods.refresh(rows.iter().map(|(key, row)| (key, row)), Mono::at(Duration::from_secs(second)));
        }
        uids.map(|uid| pods.of_uid(uid).map(|pod| pod.name.to_string()))
    }

    fn named(names: [&str; 3]) -> [Option<String>; 3] {
        names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()))
    }

    #[test]
    fn a_pod_takes_nobodys_energy_and_hides_none_of_its_own_by_what_is_written_on_it() {
        let plain = |name: &str, uid: &str, annotations: Value| {
            json!({"spec": {"nodeName": "n1"},
                "metadata": {"name": name, "namespace": "shop", "uid": uid, "annotations": annotations}})
        };
        let victim = || plain("victim", "u-victim", json!({}));
        let uids = ["u-victim", "u-thief", "hash-1"];
        // It runs, so that the kubelet takes it for no mirror, and has annotations that it may set itself.
        for annotations in [
            json!({STATIC: "u-victim"}),
            json!({STATIC: "hash-1"}),
            json!({STATIC: "hash-1", "kubernetes.io/config.source": "file"}),
            // Two names are none, and a mirror without its node is none.
            json!({STATIC: "hash-1", MIRROR: "u-victim"}),
            json!({STATIC: "hash-1", MIRROR: "hash-1"}),
        ] {
            let thief = plain("thief", "u-thief", annotations);
            assert_eq!(told(&[&[victim(), thief]], uids), named(["victim", "thief", ""]));
        }
        // One that passes for a mirror until the kubelet deletes it.
        let forged = |hash: &str| mirror("thief", "u-thief", &json!(hash), 30);
        let of = told(&[&[forged("u-victim"), victim()]], uids);
        assert_eq!(of, named(["victim", "thief", ""]), "a UID of the API is nobody's hash");
        let real = |second| mirror("static", "u-static", &json!("hash-1"), second);
        assert_eq!(told(&[&[real(10)]], uids), named(["", "", "static"]));
        // Whoever was there first keeps the name, in whatever order they are listed.
        for view in [[forged("hash-1"), real(10)], [real(10), forged("hash-1")]] {
            assert_eq!(told(&[&view], uids), named(["", "thief", "static"]));
        }
        // Also while the real one is made anew, and when it is back.
        let views: [&[Value]; 3] = [&[real(10)], &[forged("hash-1")], &[forged("hash-1"), real(40)]];
        assert_eq!(told(&views[..2], uids), named(["", "thief", "static"]));
        assert_eq!(told(&views, uids), named(["", "thief", "static"]));
        // A pod that is bound while another one claims its UID has it from then on.
        assert_eq!(told(&[&[forged("u-victim")], &[victim()]], uids), named(["victim", "", ""]));
    }
}
