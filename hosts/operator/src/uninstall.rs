//! `joulie-operator uninstall`: asks the operators to release all nodes, waits until that is done, and names the nodes
//! that are left.
//!
//! The request is stored on the plan's Lease, where the leader sees it, and not in this process: operators that are
//! killed or replaced meanwhile continue with it. If the command runs in a pod, it makes the pod's ServiceAccount the
//! owner of the Leases, so that they are deleted with the installation and the request does not affect the next one.

use crate::command::{self, tell};
use crate::writes::apply_as;
use host_kit::clock::{HostClock, Mono, SystemClock};
use host_kit::config::parse::duration;
use host_kit::config::{ConfigSetting, SettingsTable, Values};
use host_kit::connect::chain;
use host_kit::program;
use host_kit::shutdown::status::EndStatus;
use joulie_api::labels::{LEADER_LEASE, PLAN_LEASE, RELEASE, RELEASE_ALL, object};
use joulie_api::node_power_grant::NodePowerGrant;
use joulie_api::node_power_profile::NodePowerProfile;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

/// How long to wait for the nodes.
const RELEASE_TIMEOUT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "RELEASE_TIMEOUT",
    "10m",
    |text| duration(text, Duration::from_secs(1)..=Duration::from_secs(86_400)),
    "a duration between 1s and 24h",
    "How long to wait for the release of all nodes; what is asked for stays asked for afterwards",
);

/// All settings of the command.
pub const UNINSTALL_TABLE: SettingsTable = SettingsTable {
    program: "joulie-operator uninstall",
    about: "asks the operators for the release of all nodes and waits for it",
    settings: &[&program::KUBECONFIG, &program::NAMESPACE, &RELEASE_TIMEOUT],
    retired: &[],
    families: &[],
};

const RELEASED: EndStatus = EndStatus { code: 0, meaning: "every node is released" };
const LEFT: EndStatus = EndStatus {
    code: 1,
    meaning: "some nodes are not released, or the API server does not answer; standard error names them; the operators go on",
};
const REFUSED: EndStatus =
    EndStatus { code: 2, meaning: "the configuration is refused, and nothing was asked for" };

/// The exit statuses of `joulie-operator uninstall`.
pub const UNINSTALL_STATUSES: [EndStatus; 3] = [RELEASED, LEFT, REFUSED];

/// The field manager of this command.
const MANAGER: &str = "joulie-uninstall";
/// How often it looks.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// It says how far things are at least so often.
const TELL: Duration = Duration::from_secs(30);
/// Agents restore the originals a moment after their nodes' objects are deleted; tests with the real control plane saw
/// up to 0.2 s.
const AGENTS: Duration = Duration::from_secs(3);
/// One request.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);
/// The plan's Lease is renewed every 10 s by default; nobody leads where it is much older.
pub(crate) const OLD: Duration = Duration::from_secs(60);
/// Names that are told of those that are left.
pub(crate) const NAMED: usize = 50;

/// Runs the command; returns one of [`UNINSTALL_STATUSES`].
pub fn uninstall(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let read = |values: &Values| Ok((values.get(&program::NAMESPACE)?, values.get(&RELEASE_TIMEOUT)?));
    let work = async |client: Client, (namespace, within): (String, Duration)| {
        let clock = SystemClock::new();
        release_all(&client, &namespace, within, &clock, &mut tell).await?;
        Ok("every node is released".to_owned())
    };
    command::run(&UNINSTALL_TABLE, UNINSTALL_STATUSES, arguments, read, work)
}

/// Receives messages about the progress.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

/// Asks for the release of all nodes and waits for it; returns what is left after `within`.
pub async fn release_all(
    client: &Client,
    namespace: &str,
    within: Duration,
    clock: &dyn HostClock,
    tell: Tell<'_>,
) -> Result<(), String> {
    let until = clock.mono().plus(within);
    let mut progress = Progress::default();
    let mut asked = false;
    loop {
        let now = clock.mono();
        if !asked {
            match ask(client, namespace).await {
                Ok(()) => {
                    asked = true;
                    tell(&format!(
                        "asked for on the Lease {namespace}/{PLAN_LEASE}: the release of all nodes"
                    ));
                }
                Err(why) => progress.failed(&format!("asking for the release: {why}"), now, tell),
            }
        }
        if asked {
            match left(client).await {
                Ok(left) if left.is_empty() => break,
                Ok(left) => progress.looked(left, now, tell),
                Err(why) => progress.failed(&format!("looking at what is left: {why}"), now, tell),
            }
        }
        if now >= until {
            let age = age(client, namespace, clock).await;
            return Err(progress.conclusion(within, asked, age.as_deref()));
        }
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(AGENTS).await;
    Ok(())
}

/// The progress so far.
#[derive(Default)]
struct Progress {
    left: BTreeSet<String>,
    trouble: Option<String>,
    told: Option<(usize, Mono)>,
}

impl Progress {
    fn looked(&mut self, left: BTreeSet<String>, now: Mono, tell: Tell<'_>) {
        self.trouble = None;
        self.left = left;
        let count = self.left.len();
        if self.told.is_none_or(|(of, at)| of != count && now.since(at) >= LOOK * 5 || now.since(at) >= TELL)
        {
            tell(&format!("{count} objects of nodes are left"));
            self.told = Some((count, now));
        }
    }

    fn failed(&mut self, why: &str, now: Mono, tell: Tell<'_>) {
        if self.trouble.as_deref() != Some(why) {
            tell(&format!("{why}; trying again"));
        }
        self.trouble = Some(why.to_owned());
        self.told = Some((self.left.len(), now));
    }

    /// What is left and what to do, for the person who uninstalls.
    fn conclusion(&self, within: Duration, asked: bool, old: Option<&str>) -> String {
        let mut text = format!("not all nodes are released after {}s:", within.as_secs());
        for one in self.left.iter().take(NAMED) {
            text.push_str(&format!("\n  {one}"));
        }
        if let Some(more) = self.left.len().checked_sub(NAMED).filter(|&more| more > 0) {
            text.push_str(&format!("\n  and {more} more"));
        }
        for said in self.trouble.as_deref().into_iter().chain(old) {
            text.push_str(&format!("\n{said}"));
        }
        if self.left.iter().any(|one| one.starts_with("NodePowerGrant ")) {
            text.push_str(
                "\nA grant stays while the limit has no room for what its node may draw then, or while the node does not answer: \
                 raise or remove the limit (a PowerBudget, BUDGET_SITE_WATTS and the like), or run `joulie-agent restore` on the node.",
            );
        }
        if self.left.iter().any(|one| one.starts_with("NodePowerProfile ")) {
            text.push_str(
                "\nA profile stays while its node's agent does not confirm that the caps are lifted.",
            );
        }
        if asked {
            text.push_str(&format!(
                "\nThe operators go on with it. Run this again to wait longer. To take it back: kubectl annotate lease {PLAN_LEASE} \
                 {RELEASE}-"
            ));
        }
        text
    }
}

/// Writes the request to the plan's Lease, and makes our ServiceAccount the owner of both Leases, if there is one.
async fn ask(client: &Client, namespace: &str) -> Result<(), String> {
    let owner = account(client, namespace).await?;
    let owners: Vec<Value> = owner.into_iter().collect();
    for lease in [PLAN_LEASE, LEADER_LEASE] {
        let mut metadata = json!({"name": lease, "namespace": namespace, "ownerReferences": owners});
        if lease == PLAN_LEASE {
            metadata["annotations"] = json!({(RELEASE): RELEASE_ALL});
        }
        let document = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}");
        let request = apply_as(MANAGER, &path, &document, false).map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(REQUEST, client.request::<Value>(request)).await;
        answer.map_err(|_| "no answer in time".to_owned())?.map_err(|error| chain(&error))?;
    }
    Ok(())
}

/// The ServiceAccount of this process as an owner, if it is in this namespace.
async fn account(client: &Client, namespace: &str) -> Result<Option<Value>, String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(REQUEST, client.request::<Value>(request)).await;
    let review = match answer.map_err(|_| "no answer in time".to_owned())? {
        Ok(review) => review,
        // Kubernetes before 1.28 and the API server in memory do not have this API.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 403 => return Ok(None),
        Err(error) => return Err(chain(&error)),
    };
    let who = &review["status"]["userInfo"];
    let prefix = format!("system:serviceaccount:{namespace}:");
    let name = who["username"].as_str().and_then(|name| name.strip_prefix(&prefix));
    let uid = who["uid"].as_str().filter(|uid| !uid.is_empty());
    Ok(name
        .zip(uid)
        .map(|(name, uid)| json!({"apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid})))
}

/// The objects that hold nodes: the profiles that the operator manages, and all grants.
async fn left(client: &Client) -> Result<BTreeSet<String>, String> {
    let ours = format!("{}={}", object::MANAGED_BY, object::BY_OPERATOR);
    let mut left = names::<NodePowerProfile>(client, Some(&ours)).await?;
    left.extend(names::<NodePowerGrant>(client, None).await?);
    Ok(left)
}

async fn names<K>(client: &Client, labels: Option<&str>) -> Result<BTreeSet<String>, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let mut names = BTreeSet::new();
    let mut page =
        ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default().limit(500) };
    loop {
        let answer = tokio::time::timeout(REQUEST, api.list_metadata(&page)).await;
        let list = match answer.map_err(|_| "no answer in time".to_owned())? {
            Ok(list) => list,
            // If the kind does not exist, there are no objects of it.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(names),
            Err(error) => return Err(chain(&error)),
        };
        let found = list.items.into_iter().filter_map(|object| object.metadata.name);
        names.extend(found.map(|name| format!("{} {name}", K::kind(&()))));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(names),
        }
    }
}

/// A message that nobody renews the plan's Lease, if that is so: then nobody releases anything.
async fn age(client: &Client, namespace: &str, clock: &dyn HostClock) -> Option<String> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{PLAN_LEASE}");
    let request = http::Request::get(path).body(Vec::new()).ok()?;
    let lease = tokio::time::timeout(REQUEST, client.request::<Value>(request)).await.ok()?.ok()?;
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    match renewed {
        None => Some(format!("No operator has ever renewed the Lease {PLAN_LEASE}: is one running?")),
        Some(at) => {
            let age = clock.wall().duration_since(at);
            let old = Duration::try_from(age).ok().filter(|age| *age > OLD)?;
            Some(format!(
                "No operator has renewed the Lease {PLAN_LEASE} for {}s: is one running?",
                old.as_secs()
            ))
        }
    }
}
