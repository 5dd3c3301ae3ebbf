//! The shipped `kubectl joulie` on a real control plane, while operators, agents and the extender work: what it says is compared with
//! what the API server and the machines say, and `doctor` is silent until something is broken.
//!
//! The programs run as processes. A pod of the chart's own template stands for each, with the address of this machine, so that the API
//! server's proxy leads to it.

use crate::placement::{self, CLASS, all_enforced, all_run, profiles};
use crate::support::{limited, wait};
use crate::{ONE_BESIDE, shipped};
use install::audited::AuditedPart;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use system::field::{self, Field};
use system::rights::{self, NAMESPACE, ProgramAccount};
use system::world::{PATIENCE, RIG, SIMULATED, SystemProcess, TestSystem};
use system::{audit, objects, ports};
use tokio::time::Instant;

const TOKEN: &str = "of-the-debugging-pages";
const LEDGER: &str = "kustomize/energy-ledger";
/// More than all nodes can draw.
const BUDGET_WATTS: f64 = 200_000.0;
/// All nodes.
const NODES: usize = SIMULATED + 1;

/// What the plugin said.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    text: String,
    notes: String,
}

/// A person with a shell.
struct Person<'w> {
    world: &'w TestSystem,
    token: String,
}

impl Person<'_> {
    /// `kubectl joulie` with these words.
    fn asks(&self, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_system-kubectl"));
        command.env_clear().arg("--kubeconfig").arg(self.world.control_plane.kubeconfig()).args(words);
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), text: text(output.stdout), notes: text(output.stderr) }
    }

    /// The same, for a person who has the token of the debugging pages.
    fn asks_with_token(&self, words: &[&str]) -> Said {
        self.asks(&[words, &["--debug-token-file", &self.token]].concat())
    }

    /// The text of what has to be done.
    fn text(&self, words: &[&str]) -> String {
        let said = self.asks(words);
        assert_eq!(said.code, Some(0), "{words:?}: {said:#?}");
        said.text
    }

    /// The document of what has to be done.
    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[words, &["-o", "json"]].concat())).unwrap()
    }

    fn findings(&self) -> Vec<Value> {
        let said = self.asks(&["doctor", "-o", "json"]);
        let whole: Value = serde_json::from_str(&said.text).unwrap_or_else(|_| panic!("{said:#?}"));
        let findings = whole["findings"].as_array().unwrap().clone();
        assert_eq!(said.code, Some(i32::from(!findings.is_empty())), "{said:#?}");
        findings
    }

    /// Waits until nothing is wrong.
    async fn doctor_is_silent(&self) {
        let mut last = Vec::new();
        let look = async || {
            last = self.findings();
            last.is_empty()
        };
        let ended = system::until("doctor is silent", PATIENCE * 3, look).await;
        assert!(ended.is_ok(), "{last:#?}");
    }

    /// Waits until doctor finds this, by that check.
    async fn doctor_finds(&self, check: &str, seen: &str) {
        let mut last = Vec::new();
        let look = async || {
            last = self.findings();
            last.iter().any(|one| {
                one["check"] == check && one["seen"].as_str().is_some_and(|text| text.contains(seen))
            })
        };
        let ended = system::until("doctor finds it", PATIENCE, look).await;
        assert!(ended.is_ok(), "{check}: {seen:?} is not in {last:#?}");
    }
}

/// An address of this machine that is not loopback, which the API server's proxy refuses.
fn address() -> Option<Ipv4Addr> {
    let routes = std::fs::read_to_string("/proc/net/fib_trie").ok()?;
    let mut last: Option<Ipv4Addr> = None;
    for line in routes.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            let found = last.filter(|address| !address.is_loopback() && !address.is_link_local());
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// A pod for a program that runs as a process, of the template of the chart.
struct StandIn<'a> {
    name: &'a str,
    account: ProgramAccount,
    port: u16,
    has_tls: bool,
    /// Settings that the process has beside those of the template.
    more: &'a [(&'a str, &'a str)],
}

async fn stand_in(world: &TestSystem, address: Ipv4Addr, of: StandIn<'_>) {
    let StandIn { name, account, port, has_tls, more } = of;
    let template = rights::template(account).unwrap();
    let mut spec = template["spec"].clone();
    spec["nodeName"] = json!(RIG);
    let container = &mut spec["containers"][0];
    container["ports"] = json!([{"name": "metrics", "containerPort": port}]);
    if has_tls {
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            container[probe]["httpGet"]["scheme"] = json!("HTTPS");
        }
    }
    let variables = container["env"].as_array_mut().unwrap();
    variables.extend(more.iter().map(|(name, value)| json!({"name": name, "value": value})));
    let pod = json!({"metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": spec});
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let runs = async || {
        let pod = pods.get(name).await.unwrap();
        pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
    };
    wait("its kubelet runs it", runs).await;
    let at = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&at)).await.unwrap();
}

async fn is_ready(world: &TestSystem, pod: &str, ready: bool) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let status = if ready { "True" } else { "False" };
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    pods.patch_status(pod, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
}

/// Everything runs, and shows its port on an address of this machine.
async fn up(world: &TestSystem, address: Ipv4Addr) {
    rights::install_also(&world.client, LEDGER).await.unwrap();
    let port = || ports::free().unwrap().port();
    let [agent, pool, first, second] = [port(), port(), port(), port()];
    let at = |port: u16| format!("{address}:{port}");
    world
        .run(
            SystemProcess::Agent,
            &[("METRICS_ADDR", &at(agent)), ("ENERGY_LEDGER", "on"), ("POWER_METRICS", "exact")],
        )
        .unwrap();
    world.run(SystemProcess::Simulator, &[]).unwrap();
    world.run(SystemProcess::Pool, &[("METRICS_ADDR", &at(pool))]).unwrap();
    for (part, port) in [(SystemProcess::OperatorA, first), (SystemProcess::OperatorB, second)] {
        let variables = [
            ("METRICS_ADDR", at(port)),
            ("DEBUG_TOKEN", TOKEN.to_owned()),
            ("BUDGET_NODE_REST_WATTS", "300".to_owned()),
        ];
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        world.run(part, &variables).unwrap();
    }
    // On loopback it is asked by this suite too.
    let inside = world.extender.address().port();
    let metrics = format!("0.0.0.0:{inside}");
    world.run(SystemProcess::Extender, &[("METRICS_ADDR", &metrics), ("DEBUG_TOKEN", TOKEN)]).unwrap();
    wait("the extender is ready", async || world.extender.answers("/readyz").await).await;
    let scheduler = world.scheduler().unwrap();
    tokio::task::block_in_place(|| world.control_plane.start_scheduler(&scheduler)).unwrap();
    for of in [
        ("operator-a", ProgramAccount::Operator, first, false, &[][..]),
        ("operator-b", ProgramAccount::Operator, second, false, &[]),
        ("agent-of-the-rig", ProgramAccount::Agent, agent, false, &[("ENERGY_LEDGER", "on")]),
        ("agent-pool-0", ProgramAccount::Pool, pool, false, &[]),
        ("extender-0", ProgramAccount::Extender, inside, true, &[]),
    ] {
        let (name, account, port, has_tls, more) = of;
        stand_in(world, address, StandIn { name, account, port, has_tls, more }).await;
    }
    wait("every node has its profile's label", async || profiles(world).await.len() == NODES).await;
    all_enforced(world).await;
    wait("every node has a twin with its power", async || {
        let twins = objects::list(&world.client, "NodeTwin").await.unwrap();
        let measured = |twin: &Value| twin["status"]["powerMeasurement"]["measuredNodePowerW"].is_number();
        twins.len() == NODES && twins.iter().all(measured)
    })
    .await;
}

fn counts(profiles: &BTreeMap<String, String>) -> (usize, usize) {
    let of = |class: &str| profiles.values().filter(|profile| *profile == class).count();
    (of("eco"), of("performance"))
}

async fn status_and_top_say_what_is_capped(person: &Person<'_>) {
    let world = person.world;
    let profiles = profiles(world).await;
    let (eco, performance) = counts(&profiles);
    let text = person.text(&["status"]);
    let summary = format!("Nodes: {NODES} total ({eco} eco, {performance} performance)");
    assert!(text.contains(&summary), "{summary:?} is not in\n{text}");
    let status = person.json(&["status"]);
    let rows = status["items"].as_array().unwrap();
    let classes: BTreeMap<String, String> = rows
        .iter()
        .map(|row| (row["node"].as_str().unwrap().to_owned(), row["class"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(classes, profiles);
    assert!(rows.iter().all(|row| row["capEnforced"]["status"] == "True"), "{rows:#?}");
    assert_eq!(person.text(&["status", "-o", "name"]).lines().count(), NODES);

    let top = person.json(&["top", "--once", "--nodes", "1000"]);
    let drawn: Vec<f64> =
        top["items"].as_array().unwrap().iter().map(|row| row["measuredWatts"].as_f64().unwrap()).collect();
    assert_eq!((drawn.len(), &top["kind"]), (NODES, &json!("TopList")));
    assert!(drawn.is_sorted_by(|one, other| one >= other) && drawn[0] > 0.0, "{drawn:?}");
}

/// With the token the plan of the operator that leads, and not the standby's; with another one why not.
async fn a_node_is_explained(person: &Person<'_>) {
    let profiles = profiles(person.world).await;
    let eco = profiles.iter().find(|(_, profile)| *profile == "eco").map(|(node, _)| node.as_str()).unwrap();
    let words = ["explain", "node", eco];
    let said = person.json(&words);
    assert!(said["because"][0].as_str().unwrap().starts_with("the plan makes it eco"), "{said:#}");
    assert_eq!(said["node"]["metadata"]["labels"]["joulie.io/power-profile"], "eco");
    let text = person.text(&words);
    assert!(text.contains("not asked: --debug-token-file is not given"), "{text}");
    let with = person.asks_with_token(&[&words[..], &["-o", "json"]].concat());
    let said: Value = serde_json::from_str(&with.text).unwrap_or_else(|_| panic!("{with:#?}"));
    let planned = &said["plan"]["nodes"][0];
    assert_eq!(
        (&planned["node"], planned["planned"].as_str()),
        (&json!(eco), Some("eco")),
        "{:#}",
        said["plan"]
    );
    let other = person.world.control_plane.folder().join("other.token");
    std::fs::write(&other, "guessed\n").unwrap();
    let text = person.text(&[&words[..], &["--debug-token-file", other.to_str().unwrap()]].concat());
    let refused = text.lines().find(|line| line.contains("/debug/plan of the operator:")).unwrap_or_default();
    assert!(refused.contains("pod operator-") && refused.contains("with the token"), "{text}");
    assert_eq!(person.asks(&["explain", "node", "nobody"]).code, Some(1));
}

async fn a_pod_is_explained_and_simulated(person: &Person<'_>) {
    let world = person.world;
    let profiles = profiles(world).await;
    let field = Field::new(&world.client, placement::NAMESPACE).await.unwrap();
    let mut pod = field::pod("asked");
    pod["metadata"]["annotations"] = json!({CLASS: "performance"});
    field.make(&pod, 1).await.unwrap();
    let node = all_run(&field.pods(), "asked", 1).await.remove("asked-0").unwrap();
    let name = format!("{}/asked-0", placement::NAMESPACE);
    let words = ["explain", "pod", &name];
    let said = person.json(&words);
    assert_eq!(
        (&said["pod"]["spec"]["nodeName"], &said["pod"]["class"]),
        (&json!(node), &json!("performance"))
    );
    assert!(
        said["nodeBecause"][0].as_str().unwrap().starts_with("the plan makes it performance"),
        "{said:#}"
    );
    let text = person.text(&words);
    assert!(text.contains("as this program judges by the extender's default settings"), "{text}");
    let with = person.asks_with_token(&words);
    assert!(with.text.contains("as the extender of the cluster says"), "{with:#?}");
    for text in [text, with.text] {
        assert!(text.contains(&format!("{node}: ")) && text.contains("points, filter: pass"), "{text}");
    }
    let small = person.json(&["simulate", "pod", "--cpu", "2", "--class", "performance"]);
    let goes_to = small["node"].as_str().unwrap();
    assert_eq!(profiles.get(goes_to).map(String::as_str), Some("performance"), "{small:#}");
    assert_eq!(small["of"], json!(NODES));
    let large = person.asks(&["simulate", "pod", "--cpu", "100000"]);
    let refused = format!("{NODES} nodes: too few processors are left");
    assert!(large.code == Some(1) && large.text.contains(&refused), "{large:#?}");
    field.clear().await.unwrap();
}

async fn a_budget_is_listed_and_changed(person: &Person<'_>) {
    let world = person.world;
    assert!(person.text(&["budget"]).starts_with("No PowerBudgets"));
    let spec = json!({"watts": BUDGET_WATTS, "mode": "enforce"});
    objects::write(&world.client, "PowerBudget", "site", spec).await.unwrap();
    let mut shown = Value::Null;
    let kept = async || {
        shown = person.json(&["budget"])["items"][0].clone();
        let conditions = shown["conditions"].as_array().cloned().unwrap_or_default();
        let is = |about: &str| conditions.iter().any(|one| one["type"] == about && one["status"] == "True");
        is("Accepted") && is("WithinBudget")
    };
    let ended = system::until("the budget is kept", PATIENCE * 2, kept).await;
    assert!(ended.is_ok(), "{shown:#}");
    let budget = objects::get(&world.client, "PowerBudget", "site").await.unwrap();
    assert_eq!((&shown["name"], shown["limitWatts"].as_f64()), (&json!("site"), Some(BUDGET_WATTS)));
    assert_eq!((&shown["nodes"], &shown["mode"]), (&json!(NODES), &json!("enforce")));
    assert_eq!(
        shown["conditions"].as_array().unwrap().len(),
        budget["status"]["conditions"].as_array().unwrap().len()
    );
    let spec = async |field: &str| {
        objects::get(&world.client, "PowerBudget", "site").await.unwrap()["spec"][field].clone()
    };
    assert!(person.text(&["budget", "pause", "site"]).contains("Nothing was written: add --yes."));
    assert!(spec("pause").await.is_null());
    person.text(&["budget", "pause", "site", "--yes"]);
    assert_eq!(spec("pause").await, true);
    person.text(&["budget", "resume", "site", "--yes"]);
    assert_eq!(spec("pause").await, false);
}

/// A cap with an end reaches the registers, says whose it is, and is handed back after its end.
async fn a_cap_has_an_end(person: &Person<'_>) {
    let world = person.world;
    let profile = async || objects::get(&world.client, "NodePowerProfile", RIG).await.unwrap();
    let before = profile().await["spec"]["cpu"].clone();
    let words = ["cap", RIG, "--package", "120W", "--for", "1h", "--reason", "breaker 3"];
    assert!(person.text(&words).contains("Nothing was written: add --yes."));
    assert_eq!(profile().await["spec"]["cpu"], before);
    person.text(&[&words[..], &["--yes"]].concat());
    limited(world, 120).await;
    let notes = profile().await["metadata"]["annotations"].clone();
    let by = notes["joulie.io/cap-by"].as_str().unwrap().to_owned();
    let why = person.json(&["explain", "node", RIG])["because"][0].as_str().unwrap().to_owned();
    let said = format!(
        "; asked for by {by}; because: breaker 3; until {}",
        notes["joulie.io/cap-until"].as_str().unwrap()
    );
    assert!(
        why.starts_with("the cap of its packages was set by kubectl-joulie") && why.contains(&said),
        "{why}"
    );
    person.text(&["cap", RIG, "--package", "115W", "--for", "1s", "--yes"]);
    let handed_back = async || {
        let now = profile().await;
        now["metadata"]["annotations"]["joulie.io/cap-until"].is_null() && now["spec"]["cpu"] == before
    };
    let begun = Instant::now();
    if let Err(why) = system::until("the plan's cap is back", PATIENCE * 3, handed_back).await {
        panic!("{why}: {before} before, and now {:#}", profile().await);
    }
    system::tell(&format!("  the cap was handed back after {:.1?}", begun.elapsed()));
}

/// Without cgroups the ledger charges all that is drawn to nobody that is known.
async fn energy_comes_through_the_proxy(person: &Person<'_>) {
    let mut said = Value::Null;
    let charged = async || {
        let asked = person.asks(&["energy", "-o", "json"]);
        said = serde_json::from_str(&asked.text).unwrap_or_default();
        let joules =
            |row: &Value| row["account"] == "unknown" && row["joules"].as_f64().is_some_and(|it| it > 0.0);
        said["items"].as_array().is_some_and(|rows| rows.iter().any(joules))
    };
    let ended = system::until("joules are charged", PATIENCE, charged).await;
    assert!(ended.is_ok(), "{said:#}: {:#?}", person.asks(&["energy"]));
    let said = person.asks(&["energy"]);
    assert!(said.text.starts_with("Since each of 2 agents started: "), "{said:#?}");
    assert!(said.notes.contains("1 agents keep no ledger"), "{said:#?}");
}

/// As many rows as the twins have pieces of advice.
async fn recommend_says_what_the_twins_say(person: &Person<'_>) {
    let advised = async || {
        let twins = objects::list(&person.world.client, "NodeTwin").await.unwrap();
        let of = |twin: &Value| {
            let moves = twin["status"]["rescheduleRecommendations"].as_array().map_or(0, Vec::len);
            let mode = twin["status"]["gpuSlicingRecommendation"]["mode"].as_str().unwrap_or_default();
            moves + usize::from(!mode.is_empty() && mode != "none")
        };
        twins.iter().map(of).sum::<usize>()
    };
    wait("it says what the twins say", async || {
        let rows = person.json(&["recommend"])["items"].as_array().unwrap().len();
        rows == advised().await
    })
    .await;
}

/// Takes the right to PowerEvents from the operator's role, or gives it back.
async fn operator_may_read_events(world: &TestSystem, may: bool) {
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let mut role = roles.get("joulie-operator").await.unwrap();
    for rule in role.rules.iter_mut().flatten() {
        let resources = rule.resources.get_or_insert_default();
        if resources.iter().any(|one| one == "powerbudgets") {
            resources.retain(|one| one != "powerevents");
            resources.extend(may.then(|| "powerevents".to_owned()));
        }
    }
    let rules = json!({"rules": role.rules});
    roles.patch("joulie-operator", &PatchParams::default(), &Patch::Merge(rules)).await.unwrap();
}

/// The weight of our stanza in the ConfigMap of the chart.
async fn stanza_weighs(world: &TestSystem, before: &str, now: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), NAMESPACE);
    let name = "joulie-scheduler-config";
    let map = maps.get(name).await.unwrap();
    let text = map.data.unwrap().remove("config.yaml").unwrap();
    assert!(text.contains(before), "{text}");
    let data = json!({"data": {"config.yaml": text.replace(before, now)}});
    maps.patch(name, &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
}

async fn doctor_finds_what_is_broken(person: &Person<'_>) {
    let world = person.world;
    person.doctor_is_silent().await;
    assert_eq!(person.text(&["doctor"]), "nothing wrong, 17 checks\n");

    operator_may_read_events(world, false).await;
    person
        .doctor_finds(
            "program-rights",
            "operator: its account joulie-operator may not list, watch powerevents",
        )
        .await;
    operator_may_read_events(world, true).await;
    person.doctor_is_silent().await;

    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.delete("joulie-agent-energy-ledger", &DeleteParams::default()).await.unwrap();
    let seen = "agent: its account joulie-agent may not list, watch pods, for ENERGY_LEDGER=on";
    person.doctor_finds("program-rights", seen).await;
    rights::install_also(&world.client, LEDGER).await.unwrap();

    stanza_weighs(world, "weight: 1", "weight: 5").await;
    person.doctor_finds("scheduler", "weight 5: its scores count up to 5000 beside the 1200").await;
    stanza_weighs(world, "weight: 5", "weight: 1").await;
    person.doctor_is_silent().await;

    // An agent ends, and its kubelet finds that.
    world.end(SystemProcess::Agent).await.unwrap();
    is_ready(world, "agent-of-the-rig", false).await;
    person.doctor_finds("programs", &format!("pod agent-of-the-rig on node {RIG} is not ready")).await;
    let said = person.asks(&["energy"]);
    assert!(said.text.is_empty() && said.notes.contains("the agents keep no ledger"), "{said:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_joulie_says_what_is_so_and_doctor_finds_what_is_broken() {
    let _alone = ONE_BESIDE.lock().await;
    let keep = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl-logs");
    let Some(address) = address() else {
        return system::skip("the API server's proxy leads to no loopback, and there is no other address");
    };
    let begun = Instant::now();
    let Some(world) = TestSystem::start(shipped(), &keep).await.unwrap() else { return };
    let token = world.control_plane.folder().join("debug.token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let person = Person { world: &world, token: token.to_string_lossy().into_owned() };
    let story = async {
        up(&world, address).await;
        system::tell(&format!("kubectl joulie: all up after {:.1?}", begun.elapsed()));
        status_and_top_say_what_is_capped(&person).await;
        a_node_is_explained(&person).await;
        a_pod_is_explained_and_simulated(&person).await;
        energy_comes_through_the_proxy(&person).await;
        recommend_says_what_the_twins_say(&person).await;
        a_cap_has_an_end(&person).await;
        a_budget_is_listed_and_changed(&person).await;
        doctor_finds_what_is_broken(&person).await;
    };
    let an_end = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let Some(ended) = world.ended() {
                return ended;
            }
        }
    };
    tokio::select! {
        () = story => {}
        ended = an_end => panic!("{ended}"),
    }
    audit::each_was_used(&world.control_plane, AuditedPart::EnergyLedger).await.unwrap();
    system::tell(&format!("kubectl joulie: {:.1?}", begun.elapsed()));
}
