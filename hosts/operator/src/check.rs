//! `joulie-operator check`: whether an installation does its work, for `helm test` and for a person.
//!
//! It only reads, with the account of the operator: whether the kinds exist, whether the plan's Lease is renewed, and for
//! each managed node whether its agent reports, whether the operator has planned for it, and whether its caps are in force.
//! A change may be under way, so it repeats the check until the timeout.

use crate::command;
use crate::settings::{DESIRED_SOURCE, NODE_SELECTOR, RESERVED_LABEL_KEY};
use crate::uninstall::{LOOK, NAMED, OLD, REQUEST};
use host_kit::clock::{HostClock, SystemClock};
use host_kit::config::parse::duration;
use host_kit::config::{ConfigSetting, Refusals, SettingsTable, Values};
use host_kit::connect::chain;
use host_kit::program;
use host_kit::shutdown::status::EndStatus;
use joulie_api::condition::{Condition, ConditionStatus, ConditionType};
use joulie_api::labels::{PLAN_LEASE, is_true};
use joulie_api::node_hardware::NodeHardware;
use joulie_api::node_power_grant::NodePowerGrant;
use joulie_api::node_power_profile::NodePowerProfile;
use joulie_api::node_twin::NodeTwin;
use joulie_api::power_budget::PowerBudget;
use joulie_api::word::Vocabulary;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectList};
use kube::core::Selector;
use kube::{Api, Client, Resource};
use planner::node::DesiredKind;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

/// For how long the check is repeated.
const CHECK_TIMEOUT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "CHECK_TIMEOUT",
    "1m",
    |text| duration(text, Duration::from_secs(1)..=Duration::from_secs(3600)),
    "a duration between 1s and 1h",
    "How long to wait for what is not in order yet",
);

/// The settings of the command.
pub const CHECK_TABLE: SettingsTable = SettingsTable {
    program: "joulie-operator check",
    about: "says whether the kinds are there, somebody plans, and every managed node reports and holds what is asked of it",
    settings: &[
        &program::KUBECONFIG,
        &program::NAMESPACE,
        &NODE_SELECTOR,
        &RESERVED_LABEL_KEY,
        &DESIRED_SOURCE,
        &CHECK_TIMEOUT,
    ],
    retired: &[],
    families: &[],
};

const IN_ORDER: EndStatus = EndStatus { code: 0, meaning: "all that was looked at is in order" };
const NOT_IN_ORDER: EndStatus =
    EndStatus { code: 1, meaning: "something is not, or it cannot be looked at; standard error says what" };
const REFUSED: EndStatus =
    EndStatus { code: 2, meaning: "the configuration is refused, and nothing was looked at" };

/// How `joulie-operator check` ends.
pub const CHECK_STATUSES: [EndStatus; 3] = [IN_ORDER, NOT_IN_ORDER, REFUSED];

/// Reasons of `CapEnforced` that follow from a site's own settings, so that waiting does not change them.
const CHOSEN: [&str; 2] = ["Unmeasured", SIMULATED];
const SIMULATED: &str = "SimulateOnly";

/// What is checked.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Where the Leases are.
    namespace: String,
    /// Which nodes are managed.
    selector: Selector,
    /// The label that keeps a node out of the plan.
    reserved_key: String,
    /// Which kind carries the desired state.
    source: DesiredKind,
    /// For how long.
    within: Duration,
}

impl Checked {
    /// From the settings.
    pub fn read(values: &Values) -> Result<Self, Refusals> {
        Ok(Self {
            namespace: values.get(&program::NAMESPACE)?,
            selector: values.get(&NODE_SELECTOR)?,
            reserved_key: values.get(&RESERVED_LABEL_KEY)?,
            source: values.get(&DESIRED_SOURCE)?,
            within: values.get(&CHECK_TIMEOUT)?,
        })
    }
}

/// Runs the command to one of [`CHECK_STATUSES`].
pub fn check(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let work = async |client: Client, checked: Checked| {
        let clock = SystemClock::new();
        let said = wait_for_order(&client, &checked, &clock).await?;
        Ok(said.join("\n"))
    };
    command::run(&CHECK_TABLE, CHECK_STATUSES, arguments, Checked::read, work)
}

/// What was found, in lines for a person.
#[derive(Debug, Default)]
struct Findings {
    said: Vec<String>,
    wrong: Vec<String>,
}

/// Repeats the check until everything is in order, and returns the findings; after the timeout returns what is not.
pub async fn wait_for_order(
    client: &Client,
    checked: &Checked,
    clock: &dyn HostClock,
) -> Result<Vec<String>, String> {
    let until = clock.mono().plus(checked.within);
    loop {
        let began = clock.mono();
        match look(client, checked, clock).await {
            Ok(Findings { said, wrong }) if wrong.is_empty() => return Ok(said),
            Ok(_) | Err(_) if clock.mono() < until => {}
            Ok(Findings { said, wrong }) => return Err(conclusion(&said, &wrong, checked.within)),
            Err(why) => return Err(format!("cannot look: {why}")),
        }
        // A large cluster takes long to list, and is listed less often. The last look is at the end of the time.
        let now = clock.mono();
        tokio::time::sleep(LOOK.max(now.since(began) * 4).min(until.since(now))).await;
    }
}

fn conclusion(said: &[String], wrong: &[String], within: Duration) -> String {
    let mut text: String = said.iter().flat_map(|line| [line, "\n"]).collect();
    text.push_str(&format!("not in order after {}s:", within.as_secs()));
    for one in wrong.iter().take(NAMED) {
        text.push_str(&format!("\n  {one}"));
    }
    if let Some(more) = wrong.len().checked_sub(NAMED).filter(|&more| more > 0) {
        text.push_str(&format!("\n  and {more} more"));
    }
    text
}

/// Checks everything once.
async fn look(client: &Client, checked: &Checked, clock: &dyn HostClock) -> Result<Findings, String> {
    let mut found = Findings::default();
    let kinds = (
        by_node::<NodeHardware>(client, &mut found).await?,
        by_node::<NodePowerProfile>(client, &mut found).await?,
        by_node::<NodeTwin>(client, &mut found).await?,
        by_node::<NodePowerGrant>(client, &mut found).await?,
    );
    if found.wrong.is_empty() {
        found.said.push("the kinds are there".to_owned());
    }
    limits(client, &mut found).await?;
    plan(client, checked, clock, &mut found).await?;

    let chosen = ListParams::default().labels(&checked.selector.to_string());
    let nodes = all(&Api::<Node>::all(client.clone()), chosen).await?;
    let is_left_out = |node: &Node| {
        let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(&checked.reserved_key));
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        is_cordoned || is_true(label.map(String::as_str))
    };
    let (left_out, nodes): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(is_left_out);
    let (hardware, profiles, twins, grants) = &kinds;
    let desired = match checked.source {
        DesiredKind::Profile => profiles,
        DesiredKind::Twin => twins,
    };
    let mut good = 0;
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        match judge(hardware.get(name), twins.get(name), desired.get(name), grants.get(name)) {
            Verdict::InOrder => good += 1,
            Verdict::Chosen(why) => found.said.push(format!("node {name}: {why}")),
            Verdict::Wrong(why) => found.wrong.push(format!("node {name}: {why}")),
        }
    }
    if !left_out.is_empty() {
        found
            .said
            .push(format!("reserved and cordoned nodes, which are not planned for: {}", left_out.len()));
    }
    found.said.push(match nodes.len() {
        0 => format!("no node has the labels {}: nothing is capped", checked.selector),
        all => format!("{good} of {all} managed nodes report and hold what is asked of them"),
    });
    Ok(found)
}

/// Checks that every PowerBudget is used as it is written, and that its limit is kept.
async fn limits(client: &Client, found: &mut Findings) -> Result<(), String> {
    let Some(budgets) = listed::<PowerBudget>(client, found).await? else { return Ok(()) };
    for budget in &budgets {
        let name = budget.metadata.name.as_deref().unwrap_or_default();
        let status = &budget.data["status"];
        let is_current = status["observedGeneration"].as_i64() == budget.metadata.generation;
        let conditions = Vec::<Condition>::deserialize(&status["conditions"]).unwrap_or_default();
        for about in [ConditionType::Accepted, ConditionType::WithinBudget] {
            let of = conditions.iter().find(|condition| condition.type_ == about.as_str());
            match of.filter(|_| is_current) {
                Some(of) if of.status.known() == Some(ConditionStatus::False) => {
                    let text = of.message.as_deref().unwrap_or_default();
                    found.wrong.push(format!("PowerBudget {name}: {} is False: {text}", about.as_str()));
                }
                Some(_) => {}
                None => {
                    found.wrong.push(format!("PowerBudget {name}: the operator has not taken it in"));
                    break;
                }
            }
        }
    }
    if !budgets.is_empty() {
        found.said.push(format!("PowerBudgets: {}", budgets.len()));
    }
    Ok(())
}

/// Objects of a kind, each by its node.
type Objects = BTreeMap<String, DynamicObject>;

/// All objects of a kind; `None` if the kind is not there.
async fn listed<K: Resource<DynamicType = ()>>(
    client: &Client,
    found: &mut Findings,
) -> Result<Option<Vec<DynamicObject>>, String> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match all(&api, ListParams::default()).await {
        Ok(list) => Ok(Some(list)),
        Err(why) if why == ABSENT => {
            let name = format!("{}.{}", resource.plural, resource.group);
            found.wrong.push(format!("the kind {name} is not there: install the chart joulie-crds"));
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

async fn by_node<K: Resource<DynamicType = ()>>(
    client: &Client,
    found: &mut Findings,
) -> Result<Objects, String> {
    let list = listed::<K>(client, found).await?.unwrap_or_default();
    let node = |object: &DynamicObject| object.data["spec"]["nodeName"].as_str().map(str::to_owned);
    let mut objects = Objects::new();
    for object in list {
        // Of several objects for one node the agent follows the first by name, which is the first of the list.
        if let Some(node) = node(&object) {
            objects.entry(node).or_insert(object);
        }
    }
    Ok(objects)
}

/// The error of [`all`] for a kind that the server does not have.
const ABSENT: &str = "the kind is not there";

/// All objects of an API, page by page.
async fn all<K>(api: &Api<K>, mut page: ListParams) -> Result<Vec<K>, String>
where
    K: Clone + Debug + DeserializeOwned,
{
    page = page.limit(500);
    let mut found = Vec::new();
    loop {
        let answer = tokio::time::timeout(REQUEST, api.list(&page)).await;
        let list: ObjectList<K> = match answer.map_err(|_| "no answer in time".to_owned())? {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Err(ABSENT.to_owned()),
            Err(error) => return Err(chain(&error)),
        };
        found.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

/// Whether an operator renews the plan's Lease. Without that the other findings are old.
async fn plan(
    client: &Client,
    checked: &Checked,
    clock: &dyn HostClock,
    found: &mut Findings,
) -> Result<(), String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &checked.namespace);
    let answer = tokio::time::timeout(REQUEST, leases.get_opt(PLAN_LEASE)).await;
    let lease = answer.map_err(|_| "no answer in time".to_owned())?.map_err(|error| chain(&error))?;
    let spec = lease.and_then(|lease| lease.spec);
    let renewed = spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    let holder = spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    let Some(renewed) = renewed else {
        found.wrong.push(format!(
            "nobody has renewed the Lease {}/{PLAN_LEASE}: is an operator running?",
            checked.namespace
        ));
        return Ok(());
    };
    // A time slightly ahead of this clock counts as new.
    let age = Duration::try_from(clock.wall().duration_since(renewed)).unwrap_or_default();
    let of = format!(
        "the Lease {}/{PLAN_LEASE} was renewed {} s ago by {holder}",
        checked.namespace,
        age.as_secs()
    );
    if age > OLD {
        found.wrong.push(format!("{of}: is an operator running?"))
    } else {
        found.said.push(of)
    }
    Ok(())
}

/// The finding about one node.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    InOrder,
    /// The site has set it up so; it is reported.
    Chosen(String),
    Wrong(String),
}

/// The first finding about a node that is not in order, in the order in which the steps happen.
fn judge(
    hardware: Option<&DynamicObject>,
    twin: Option<&DynamicObject>,
    desired: Option<&DynamicObject>,
    grant: Option<&DynamicObject>,
) -> Verdict {
    let wrong = |why: &str| Verdict::Wrong(why.to_owned());
    if hardware.is_none_or(|object| object.data["status"].is_null()) {
        return wrong("no NodeHardware: its agent has not reported; does it run there?");
    }
    let Some(twin) = twin.filter(|twin| twin.data["status"].is_object()) else {
        return wrong("no NodeTwin with a status: no operator has planned for it");
    };
    if let Some(fresh) = condition(twin, ConditionType::TelemetryFresh)
        && fresh["status"] != ConditionStatus::True.as_str()
    {
        return Verdict::Wrong(words(fresh));
    }
    let Some(desired) = desired else {
        return wrong("nothing is asked of it: no operator has planned for it");
    };
    let Some(enforced) = condition(desired, ConditionType::CapEnforced) else {
        return wrong("its agent does not say whether the caps are in force; does it run there?");
    };
    if enforced["observedGeneration"].as_i64() != desired.metadata.generation {
        return wrong("its agent has not answered to what is asked now");
    }
    let is_true = enforced["status"] == ConditionStatus::True.as_str();
    let is_chosen = CHOSEN.iter().any(|reason| enforced["reason"] == *reason);
    if !is_true && !is_chosen {
        return Verdict::Wrong(words(enforced));
    }
    // An agent that only simulates writes no receipt.
    if let Some(grant) = grant
        && enforced["reason"] != SIMULATED
        && grant.data["spec"]["serial"] != grant.data["status"]["serial"]
    {
        return wrong("its agent has not read back its grant");
    }
    if is_true { Verdict::InOrder } else { Verdict::Chosen(words(enforced)) }
}

fn condition(object: &DynamicObject, about: ConditionType) -> Option<&Value> {
    let all = object.data["status"]["conditions"].as_array()?;
    all.iter().find(|one| one["type"] == about.as_str())
}

/// A condition as a person reads it.
fn words(condition: &Value) -> String {
    let text = |part: &str| condition[part].as_str().unwrap_or_default().to_owned();
    let said = format!("{} is {} ({}): {}", text("type"), text("status"), text("reason"), text("message"));
    said.trim_end_matches(": ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str, spec: Value, status: Value) -> DynamicObject {
        let whole = json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind,
            "metadata": {"name": "a", "generation": 1}, "spec": spec, "status": status});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_grant_is_read_back_but_by_an_agent_that_only_simulates() {
        let hardware = object("NodeHardware", json!({}), json!({"cpu": {}}));
        let twin = object("NodeTwin", json!({}), json!({"conditions": []}));
        let grant = |receipt: Value| object("NodePowerGrant", json!({"serial": 2}), receipt);
        let judged = |reason: &str, grant: &DynamicObject| {
            let is_true = if reason == "Enforced" { "True" } else { "False" };
            let enforced =
                json!({"type": "CapEnforced", "status": is_true, "reason": reason, "observedGeneration": 1});
            let profile = object("NodePowerProfile", json!({}), json!({"conditions": [enforced]}));
            match judge(Some(&hardware), Some(&twin), Some(&profile), Some(grant)) {
                Verdict::InOrder => "in order".to_owned(),
                Verdict::Chosen(why) | Verdict::Wrong(why) => why,
            }
        };
        let (open, held) = (grant(json!({})), grant(json!({"serial": 2})));
        assert_eq!(judged("Enforced", &held), "in order");
        for reason in ["Enforced", "Unmeasured"] {
            assert_eq!(judged(reason, &open), "its agent has not read back its grant");
        }
        assert_eq!(judged("SimulateOnly", &open), "CapEnforced is False (SimulateOnly)");
    }
}
