//! Pods with GPUs on a real control plane: the real kube-scheduler, two replicas of the shipped extender and the shipped
//! operator, each with the rights of the chart. Kubelets, agents and cards are stood in for (`stand_in`); a kubelet gives
//! cards by its own order. Each story has nodes of a model of its own. One node has a card of a virtual NVML and the shipped agent
//! (`mig`).

mod claims;
mod killed;
mod kubelet;
mod mig;
pub(crate) mod stand_in;
mod victims;

use crate::{ONE_BESIDE, shipped};
use cluster::life::{FakeNode, Life};
use cluster::{
    Component, ControlPlane, ControlPlaneOptions, Extender, NodeForm, Program, Scheduler, start_or_skip,
};
use install::audited::AuditedPart;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use stand_in::{Kubelets, Relay, add_card, gpus};
use std::net::SocketAddr;
use std::time::Duration;
use system::field::{self, Field};
use system::http::{self, Http};
use system::rights::{self, ProgramAccount};
use system::{audit, ports, until};
use tokio::time::Instant;

const FOLDER: &str = "kustomize/gpu-placement";
const NAMESPACE: &str = "gpus";
/// Generous, because the machine may be busy; no test depends on timing.
const PATIENCE: Duration = Duration::from_secs(90);
/// So many pods want the last card at once.
const RACERS: u32 = 50;
/// More than any node has cards: so that the cards decide, and not what a device plugin advertises.
const MANY: &str = "50";

/// A node, its model (or one for each card), the islands of its cards, and the GPUs that it advertises.
type Machine = (&'static str, &'static str, &'static [u16], &'static str);

const MACHINES: [Machine; 15] = [
    ("large", "NVIDIA A100-SXM4-40GB", &[0, 0], MANY),
    ("small", "Tesla T4", &[0, 0], MANY),
    ("pairs", "NVIDIA H100 80GB HBM3", &[0, 0, 1, 1], MANY),
    ("four", "NVIDIA H100 80GB HBM3", &[0, 0, 0, 0], MANY),
    ("last", "NVIDIA L4", &[0], MANY),
    ("few", "NVIDIA L40S", &[0, 0], MANY),
    ("refused", "NVIDIA A10", &[0], MANY),
    ("lost", "NVIDIA A30", &[0, 0], MANY),
    ("dying", "Tesla V100-SXM2-32GB", &[0], MANY),
    ("killed", "NVIDIA A40", &[0], MANY),
    ("claimed", "NVIDIA L20", &[0], MANY),
    // Full for kube-scheduler too, so that it preempts.
    ("right", "NVIDIA B200", &[0], "1"),
    ("wrong", "NVIDIA GH200 480GB", &[0], "1"),
    ("mixed", "Tesla P4|NVIDIA L2", &[0, 1], "2"),
    // Its agent makes the object of its card.
    (mig::NODE, "", &[], MANY),
];

const PROGRAMS: [&str; 4] = ["extender-0", "extender-1", "operator", mig::AGENT];

struct GpuSystem {
    control_plane: ControlPlane,
    client: Client,
    /// The two replicas of the extender, for questions of our own.
    replicas: [Http; 2],
    addresses: [SocketAddr; 2],
    relay: Relay,
    field: Field,
    kubelets: Kubelets,
    divided: mig::Divided,
    _life: Life,
}

/// The name of a card.
fn card(node: &str, number: usize) -> String {
    format!("{node}-{number}")
}

/// A pod that asks for so many cards of a model.
fn wants(name: &str, model: &str, count: u32) -> Value {
    let mut pod = field::pod(name);
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    pod["metadata"]["annotations"] = json!({"gpu-extender.mle.com/model": model});
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": count.to_string()});
    pod
}

/// The same, which no scheduler looks at.
fn alone(mut pod: Value) -> Value {
    pod["spec"]["schedulerName"] = json!("nobody");
    pod
}

async fn wait(what: &str, is_so: impl AsyncFnMut() -> bool) {
    if let Err(why) = until(what, PATIENCE, is_so).await {
        panic!("{why}");
    }
}

impl GpuSystem {
    /// `None`, with a message, if there is no control plane.
    async fn start() -> Option<Self> {
        let options = ControlPlaneOptions {
            controller_manager: false,
            audited_group: Some(audit::GROUP.to_owned()),
            ..ControlPlaneOptions::whole()
        };
        let control_plane = start_or_skip(&options)?;
        let client = control_plane.client().await.unwrap();
        rights::install(&client).await.unwrap();
        rights::install_also(&client, FOLDER).await.unwrap();
        let machines = MACHINES.iter().map(|(name, _, _, gpus)| {
            let machine = FakeNode::named(name).has("nvidia.com/gpu", gpus);
            match *name {
                mig::NODE => machine.label("joulie.io/managed", "true").has(mig::INSTANCE, MANY),
                _ => machine,
            }
        });
        let life = Life::start(client.clone(), machines.collect()).await.unwrap();
        for (node, model, islands, _) in MACHINES {
            for (number, island) in islands.iter().enumerate() {
                let name = card(node, number);
                let model = model.split('|').nth(number).unwrap_or(model);
                add_card(&client, &name, (node, model, *island)).await;
            }
        }
        let kubelets = Kubelets::start(&client);
        let field = Field::new(&client, NAMESPACE).await.unwrap();
        let addresses = [ports::free().unwrap(), ports::free().unwrap()];
        let relay = Relay::start(addresses[0]).await;
        let replicas = addresses.map(|address| http::at(address).unwrap());
        let divided = mig::Divided::start(&control_plane, &client).await;
        let system =
            Self { control_plane, client, replicas, addresses, relay, field, kubelets, divided, _life: life };
        system.run_extenders().await;
        system.run_operator().await;
        let mut extender =
            Extender::new(&format!("http://{}", system.relay.address), NodeForm::Names).unwrap();
        (extender.binds, extender.preempts) = (true, true);
        extender.managed_resources = ["nvidia.com/gpu", mig::INSTANCE].map(str::to_owned).to_vec();
        let scheduler = Scheduler::with(extender);
        tokio::task::block_in_place(|| system.control_plane.start_scheduler(&scheduler)).unwrap();
        Some(system)
    }

    async fn run_extenders(&self) {
        for (number, (address, replica)) in self.addresses.iter().zip(&self.replicas).enumerate() {
            self.run_extender(&format!("extender-{number}"), *address, replica).await;
        }
    }

    async fn run_extender(&self, name: &str, address: SocketAddr, replica: &Http) {
        let kubeconfig = ProgramAccount::Extender.kubeconfig(&self.control_plane).await.unwrap();
        let mut program =
            Program::new(name, &shipped().extender).variable("KUBECONFIG", kubeconfig.to_string_lossy());
        for (name, value) in rights::settings(ProgramAccount::Extender).unwrap() {
            program = program.variable(&name, value);
        }
        let program = program
            .variable("EXTENDER_ADDR", address.to_string())
            .variable("METRICS_ADDR", "127.0.0.1:0")
            .variable("DRAIN_LINGER", "0s")
            // A quarter of them is one address's.
            .variable("EXTENDER_CONNECTIONS_MAX", "256")
            .variable("GPU_PLACEMENT", "annotated")
            .variable("GPU_BIND", "true")
            .variable("GPU_DRA", "read");
        self.control_plane.start_program(&program).unwrap();
        let synced = async || {
            let page = replica.get("/debug/scoring").await;
            page.is_ok_and(|page| page["synced"] == true)
        };
        wait("the extender has read everything", synced).await;
    }

    async fn run_operator(&self) {
        let config = self.control_plane.folder().join("operator.conf");
        std::fs::write(&config, "").unwrap();
        let kubeconfig = ProgramAccount::Operator.kubeconfig(&self.control_plane).await.unwrap();
        let mut program = Program::new("operator", &shipped().operator)
            .variable("KUBECONFIG", kubeconfig.to_string_lossy());
        for (name, value) in rights::settings(ProgramAccount::Operator).unwrap() {
            program = program.variable(&name, value);
        }
        let program = program
            .variable("JOULIE_CONFIG", config.to_string_lossy())
            .variable("METRICS_ADDR", "127.0.0.1:0")
            .variable("GPU_REPAIR_AFTER", "10s");
        self.control_plane.start_program(&program).unwrap();
    }

    /// A program that has ended unexpectedly, with its log.
    fn ended(&self) -> Option<String> {
        PROGRAMS.into_iter().find_map(|name| {
            let status = self.control_plane.program_ended(name)?;
            Some(format!("{name} ended with {status}:\n{}", self.control_plane.program_log(name)))
        })
    }

    fn pods(&self) -> Api<Pod> {
        self.field.pods()
    }

    async fn create(&self, pod: &Value) -> Value {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let made = self.pods().create(&PostParams::default(), &pod).await.unwrap();
        serde_json::to_value(made).unwrap()
    }

    async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
        wait("the pod is gone", async || self.pods().get_opt(name).await.unwrap().is_none()).await;
    }

    async fn node_of(&self, name: &str) -> Option<String> {
        self.pods().get_opt(name).await.unwrap()?.spec?.node_name
    }

    /// Waits until a pod is on a node.
    async fn lands(&self, name: &str, node: &str) {
        wait(&format!("{name} is on {node}"), async || self.node_of(name).await.as_deref() == Some(node))
            .await;
    }

    /// The same for a pod that waits for others to leave. kube-scheduler sees no GPU objects: it tries a pod that an extender
    /// refused again with the next event of a node or pod.
    async fn lands_at_last(&self, name: &str, node: &str) {
        let mut nudges = 0;
        wait(&format!("{name} is on {node}"), async || {
            nudges += 1;
            self.nudge(&format!("{name}-{nudges}")).await;
            self.node_of(name).await.as_deref() == Some(node)
        })
        .await;
    }

    /// Has kube-scheduler try refused pods again, and gives it a moment.
    async fn nudge(&self, word: &str) {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let label = json!({"metadata": {"labels": {"nudge": word}}});
        nodes.patch("small", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    /// What kube-scheduler says of a pod that has no node.
    async fn why_not(&self, name: &str) -> String {
        let pod = self.pods().get(name).await.unwrap();
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let scheduled =
            conditions.into_iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
        scheduled.and_then(|one| one.message).unwrap_or_default()
    }

    async fn status(&self, card: &str) -> Value {
        let gpu = gpus(&self.client).get(card).await.unwrap();
        serde_json::to_value(gpu).unwrap()["status"].clone()
    }

    /// Those whom a card is taken for and whose kubelet has not answered.
    async fn taken(&self, card: &str) -> Vec<String> {
        let taken = self.status(card).await["assumed"].as_array().cloned().unwrap_or_default();
        taken.iter().filter_map(|one| one["podUID"].as_str().map(str::to_owned)).collect()
    }

    async fn nothing_is_taken(&self, cards: &[String]) {
        for card in cards {
            wait(&format!("{card} is taken for nobody"), async || self.taken(card).await.is_empty()).await;
        }
    }

    /// The pod that holds a card by the kubelet.
    async fn holder(&self, card: &str) -> Option<String> {
        self.status(card).await["podName"].as_str().map(str::to_owned)
    }

    /// Waits until both replicas let exactly these nodes pass: their watches lag.
    async fn pass(&self, pod: &Value, nodes: &[&str]) {
        let names: Vec<&str> = MACHINES.iter().map(|(name, ..)| *name).collect();
        let body = json!({"Pod": pod, "NodeNames": names}).to_string().into_bytes();
        for replica in &self.replicas {
            let passes = async || {
                let answer = replica.post("/filter", body.clone()).await.unwrap_or_default();
                answer["nodenames"] == json!(nodes)
            };
            wait(&format!("{nodes:?} pass"), passes).await;
        }
    }

    async fn bind(&self, replica: usize, pod: &Value, node: &str) -> Value {
        self.replicas[replica].post("/bind", binding(pod, node)).await.unwrap()
    }
}

/// What kube-scheduler asks bind.
fn binding(pod: &Value, node: &str) -> Vec<u8> {
    let meta = &pod["metadata"];
    let body = json!({"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node});
    body.to_string().into_bytes()
}

impl Drop for GpuSystem {
    /// The folder is removed with the control plane, so the last lines are shown.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in PROGRAMS {
                system::tell(&format!("--- {name}\n{}", self.control_plane.program_log(name)));
            }
        }
    }
}

/// The model, the memory and the number decide, and a person is told why a node is none.
async fn a_pod_goes_where_its_model_and_memory_are(system: &GpuSystem) {
    let fits = wants("fits", "A100", 2);
    system.pass(&fits, &["large"]).await;
    let mut too_large = wants("too-large", "A100", 1);
    too_large["metadata"]["annotations"]["gpu-extender.mle.com/vram-mb"] = json!("80000");
    system.create(&too_large).await;
    system.create(&fits).await;
    system.create(&wants("either", "T4, P100", 1)).await;
    system.lands("fits", "large").await;
    system.lands("either", "small").await;
    wait("the reason is told", async || {
        let why = system.why_not("too-large").await;
        why.contains("joulie: too few GPUs of the node have that much VRAM")
            && why.contains("joulie: too few GPUs of the model asked for on the node")
    })
    .await;
    // The kubelet gives the last card first, and bind takes the first one: what the kubelet says counts.
    wait("the kubelet's word is written", async || {
        system.holder(&card("small", 1)).await.as_deref() == Some("either")
    })
    .await;
    system.nothing_is_taken(&[card("large", 0), card("large", 1), card("small", 0), card("small", 1)]).await;
    for name in ["fits", "either", "too-large"] {
        system.delete(name).await;
    }
}

async fn required_links_are_one_island(system: &GpuSystem) {
    let mut linked = wants("linked", "H100", 4);
    linked["metadata"]["annotations"]["gpu-extender.mle.com/link"] = json!("required");
    system.pass(&linked, &["four"]).await;
    system.create(&linked).await;
    system.lands("linked", "four").await;
    system.create(&wants("unlinked", "H100", 4)).await;
    system.lands("unlinked", "pairs").await;
    for name in ["linked", "unlinked"] {
        system.delete(name).await;
    }
}

/// Fifty pods at once through two replicas, and five through kube-scheduler: as many are bound as there are cards.
async fn the_last_card_has_one_winner(system: &GpuSystem) {
    system.pass(&wants("any", "L4", 1), &["last"]).await;
    let mut racers = Vec::new();
    for number in 0..RACERS {
        racers.push(system.create(&alone(wants(&format!("racer-{number}"), "L4", 1))).await);
    }
    let race = racers.iter().enumerate().map(|(at, pod)| system.bind(at % 2, pod, "last"));
    let answers = futures::future::join_all(race).await;
    let won = answers.iter().filter(|answer| answer["Error"] == "").count();
    assert_eq!(won, 1, "{answers:?}");
    let bound = system.pods().list(&ListParams::default().fields("spec.nodeName=last")).await.unwrap();
    assert_eq!(bound.items.len(), 1, "one is on the node");
    wait("the winner has the card", async || {
        system.holder(&card("last", 0)).await == bound.items[0].metadata.name
    })
    .await;

    system.pass(&wants("any", "L40S", 1), &["few"]).await;
    let names: Vec<String> = (0..5).map(|number| format!("of-few-{number}")).collect();
    for name in &names {
        system.create(&wants(name, "L40S", 1)).await;
    }
    let mut seen = Vec::new();
    let two_are_bound = async || {
        seen.clear();
        let (mut bound, mut refused) = (0, 0);
        for name in &names {
            let (node, why_not) = (system.node_of(name).await, system.why_not(name).await);
            bound += usize::from(node.is_some());
            refused += usize::from(why_not.contains("too few GPUs of the model asked for are free"));
            seen.push((node, why_not));
        }
        (bound, refused) == (2, 3)
    };
    let ended = until("two are bound, and the others are told why not", PATIENCE, two_are_bound).await;
    if let Err(why) = ended {
        panic!("{why}: {seen:#?}");
    }
    for name in names.iter().cloned().chain((0..RACERS).map(|number| format!("racer-{number}"))) {
        system.delete(&name).await;
    }
}

/// Whether the extender's account may bind pods now.
async fn may_bind(client: &Client) -> bool {
    let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "resourceAttributes": {"namespace": NAMESPACE, "verb": "create", "resource": "pods", "subresource": "binding"}}});
    let request = ::http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let request = request.header("content-type", "application/json").body(question.to_string().into_bytes());
    let answer: Value = client.request(request.unwrap()).await.unwrap();
    answer["status"]["allowed"] == true
}

/// The API server refuses the binding: the card is given back, and the pod is bound when it may be.
async fn a_bind_that_fails_gives_its_cards_back(system: &GpuSystem) {
    let account = system
        .control_plane
        .service_account_client(rights::NAMESPACE, ProgramAccount::Extender.name())
        .await
        .unwrap();
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(system.client.clone());
    let role = roles.get("joulie-extender-bind").await.unwrap();
    let rules = serde_json::to_value(&role.rules).unwrap();
    let without: Vec<&Value> = rules
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["resources"] != json!(["pods/binding"]))
        .collect();
    let set = async |rules: Value| {
        let patch = json!({"rules": rules});
        roles.patch("joulie-extender-bind", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    set(json!(without)).await;
    wait("nothing may be bound", async || !may_bind(&account).await).await;
    system.create(&wants("unlucky", "A10", 1)).await;
    wait("the pod is told", async || {
        system.why_not("unlucky").await.contains("joulie: the pod cannot be bound")
    })
    .await;
    assert_eq!(system.node_of("unlucky").await, None);
    system.nothing_is_taken(&[card("refused", 0)]).await;
    set(rules).await;
    wait("pods may be bound", async || may_bind(&account).await).await;
    system.lands("unlucky", "refused").await;
    system.delete("unlucky").await;
}

/// kube-scheduler never hears that the pod was bound: it is, once, and has one card.
async fn a_lost_answer_to_bind_binds_once(system: &GpuSystem) {
    system.pass(&wants("any", "A30", 1), &["lost"]).await;
    system.relay.lose_next_bind();
    let lost = system.create(&wants("lost", "A30", 1)).await;
    system.lands("lost", "lost").await;
    assert!(system.relay.has_lost_it());
    wait("the kubelet gave it a card", async || {
        system.holder(&card("lost", 1)).await.as_deref() == Some("lost")
    })
    .await;
    system.nothing_is_taken(&[card("lost", 0), card("lost", 1)]).await;
    // Asked again, the other replica says what is so, and takes no second card.
    assert_eq!(system.bind(1, &lost, "lost").await["Error"], "");
    assert!(
        system.taken(&card("lost", 0)).await.is_empty() && system.holder(&card("lost", 0)).await.is_none()
    );
    system.delete("lost").await;
}

async fn a_card_that_dies_takes_no_pod(system: &GpuSystem) {
    let wanted = wants("late", "V100", 1);
    system.pass(&wanted, &["dying"]).await;
    system.kubelets.dies(&card("dying", 0), true);
    system.pass(&wanted, &[]).await;
    system.create(&wanted).await;
    wait("the pod is told", async || {
        let why = system.why_not("late").await;
        why.contains("too few GPUs of the model asked for are healthy, whole and known well enough")
    })
    .await;
    assert_eq!(system.node_of("late").await, None);
    system.delete("late").await;
    system.kubelets.dies(&card("dying", 0), false);
    system.pass(&wanted, &["dying"]).await;
    system.create(&wanted).await;
    system.lands("late", "dying").await;
    system.delete("late").await;
}

/// A pod of a higher priority evicts the one that has the card that it wants, and not the one that kube-scheduler alone
/// would evict.
async fn the_right_victim_is_preempted(system: &GpuSystem) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1_000});
    let request = ::http::Request::post("/apis/scheduling.k8s.io/v1/priorityclasses");
    let request = request.header("content-type", "application/json").body(class.to_string().into_bytes());
    system.client.request::<Value>(request.unwrap()).await.unwrap();
    system.create(&wants("victim", "B200", 1)).await;
    system.lands("victim", "right").await;
    // The younger one: among equal nodes kube-scheduler takes the one whose victims began last.
    system.create(&wants("bystander", "GH200", 1)).await;
    system.lands("bystander", "wrong").await;
    for (name, node) in [("victim", "right"), ("bystander", "wrong")] {
        wait("it has the card", async || system.holder(&card(node, 0)).await.as_deref() == Some(name)).await;
    }
    let mut urgent = wants("urgent", "B200", 1);
    system.pass(&urgent, &[]).await;
    urgent["spec"]["priorityClassName"] = json!("urgent");
    system.create(&urgent).await;
    system.lands_at_last("urgent", "right").await;
    assert_eq!(system.node_of("victim").await, None, "it has left");
    assert_eq!(system.node_of("bystander").await.as_deref(), Some("wrong"));
    wait("it has the card", async || system.holder(&card("right", 0)).await.as_deref() == Some("urgent"))
        .await;
    // Where no victim has such a card nobody is evicted.
    let mut hopeless = wants("hopeless", "B300", 1);
    hopeless["spec"]["priorityClassName"] = json!("urgent");
    system.create(&hopeless).await;
    wait("kube-scheduler has tried", async || !system.why_not("hopeless").await.is_empty()).await;
    assert_eq!(system.node_of("bystander").await.as_deref(), Some("wrong"));
    for name in ["urgent", "bystander", "hopeless"] {
        system.delete(name).await;
    }
}

/// After the repair period nothing has leaked, and a person is told.
async fn what_it_took_is_free_after_the_repair(system: &GpuSystem, uid: &str) {
    let killed = card("killed", 0);
    let begun = Instant::now();
    wait("the card is free", async || system.taken(&killed).await.is_empty()).await;
    system::tell(&format!("  the operator freed it {:.1?} later, for {uid}", begun.elapsed()));
    system.pass(&wants("any", "A40", 1), &["killed"]).await;
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(system.client.clone(), "default");
    wait("an Event says so", async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let of = all.iter().filter(|event| event.reason.as_deref() == Some("GpuFreed"));
        of.filter(|event| {
            event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(killed.as_str())
        })
        .count()
            == 1
    })
    .await;
    system.delete("orphan").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_gpus_get_the_cards_that_they_ask_for_and_no_card_has_two() {
    let alone = ONE_BESIDE.lock().await;
    let begun = Instant::now();
    let Some(system) = GpuSystem::start().await else { return };
    system::tell(&format!("GPUs: up after {:.1?}", begun.elapsed()));
    let stories = async {
        let uid = killed::a_replica_dies_with_a_card_in_its_hand(&system).await;
        a_pod_goes_where_its_model_and_memory_are(&system).await;
        required_links_are_one_island(&system).await;
        the_last_card_has_one_winner(&system).await;
        a_bind_that_fails_gives_its_cards_back(&system).await;
        a_lost_answer_to_bind_binds_once(&system).await;
        a_card_that_dies_takes_no_pod(&system).await;
        claims::a_card_that_a_claim_holds_takes_no_pod(&system).await;
        the_right_victim_is_preempted(&system).await;
        victims::a_useless_victim_is_swapped(&system).await;
        what_it_took_is_free_after_the_repair(&system, &uid).await;
        // The agent lists instances anew once a minute. For most of that time these two wait, and hold nobody up.
        drop(alone);
        mig::a_divided_card_gives_its_instances_and_not_itself(&system).await;
        mig::a_card_that_has_left_has_no_object(&system).await;
    };
    let an_end = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let Some(ended) = system.ended() {
                return ended;
            }
        }
    };
    tokio::select! {
        () = stories => {}
        ended = an_end => panic!("{ended}"),
    }
    assert_eq!(
        system.kubelets.short().len(),
        0,
        "a pod was put on a node without a card: {:?}",
        system.kubelets.short()
    );
    system.control_plane.stop(Component::Scheduler);
    audit::each_was_used(&system.control_plane, AuditedPart::GpuPlacement).await.unwrap();
    system::tell(&format!("GPUs: {:.1?}", begun.elapsed()));
}
