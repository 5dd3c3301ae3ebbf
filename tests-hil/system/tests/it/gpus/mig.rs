//! A card that is divided into MIG instances: the shipped agent on a virtual NVML, a kubelet that speaks PodResources, the real
//! kube-scheduler, and our bind.

use super::kubelet::Kubelet;
use super::stand_in::gpus;
use super::{GpuSystem, NAMESPACE, wait, wants};
use crate::shipped;
use cluster::{ControlPlane, Program};
use kube::Client;
use kube::api::{ListParams, PostParams};
use nvml_stub::{StubGpu, StubMachine};
use serde_json::{Value, json};
use std::path::PathBuf;
use system::field;
use system::rights::{self, ProgramAccount};
use tokio::time::Instant;

pub(super) const NODE: &str = "divided";
pub(super) const AGENT: &str = "agent";
/// An eighth of the card.
pub(super) const INSTANCE: &str = "nvidia.com/mig-1g.18gb";
const MODEL: &str = "NVIDIA H200";
const UUID: &str = "GPU-8f1e5a30-0b1c-4d7e-9a55-0123456789ab";
const FIRST: &str = "MIG-11111111-0b1c-4d7e-9a55-0123456789ab";
const SECOND: &str = "MIG-22222222-0b1c-4d7e-9a55-0123456789ab";

/// Why a card that is divided, or an instance that is not there, takes no pod.
const NOT_WHOLE: &str =
    "joulie: too few GPUs of the model asked for are healthy, whole and known well enough (0)";
const NO_INSTANCE: &str =
    "joulie: too few MIG instances on the node are as asked for and known well enough (0)";
const NONE_FREE: &str = "joulie: too few MIG instances as asked for are free (0)";

/// The node with the divided card.
pub(super) struct Divided {
    stub: StubMachine,
    pub(super) kubelet: Kubelet,
}

/// The folder of an instance in the virtual NVML.
fn folder(uuid: &str) -> &'static str {
    if uuid == FIRST { "gpus/first" } else { "gpus/second" }
}

impl Divided {
    /// The machine, its kubelet and its agent. The node exists.
    pub(super) async fn start(control_plane: &ControlPlane, client: &Client) -> Self {
        let root = control_plane.folder().join(NODE);
        let stub = StubMachine::at(root.join("nvml"));
        let library = stub.library().unwrap();
        let card = StubGpu {
            uuid: UUID,
            pci: "00000000:C1:00.0",
            min_mw: 200_000,
            max_mw: 700_000,
            default_mw: 700_000,
        };
        stub.add("card", &card).unwrap();
        let mut files = vec![
            ("driver".to_owned(), "570.133.20".to_owned()),
            // NVML numbers cards, and not instances.
            ("order".to_owned(), "card".to_owned()),
            ("gpus/card/name".to_owned(), MODEL.to_owned()),
            ("gpus/card/vram_mib".to_owned(), "143771".to_owned()),
            ("gpus/card/mig".to_owned(), "1".to_owned()),
        ];
        for uuid in [FIRST, SECOND] {
            let all = [
                ("parent", "card"),
                ("uuid", uuid),
                ("name", "NVIDIA H200 MIG 1g.18gb"),
                ("vram_mib", "16384"),
            ];
            files.extend(all.map(|(file, text)| (format!("{}/{file}", folder(uuid)), text.to_owned())));
        }
        for (file, text) in files {
            stub.put(&file, &text).unwrap();
        }
        let socket = root.join("kubelet.sock");
        let kubelet = Kubelet::start(client, NODE, &stub, &socket);
        // The policy requires a token that names the agent's node.
        let kubeconfig = ProgramAccount::Agent.kubeconfig_on(control_plane, NODE).await.unwrap();
        let mut program =
            Program::new(AGENT, &shipped().agent).variable("KUBECONFIG", kubeconfig.to_string_lossy());
        for (name, value) in rights::settings(ProgramAccount::Agent).unwrap() {
            program = program.variable(&name, value);
        }
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let program = program
            .variable("AGENT_MODE", "daemonset")
            .variable("NODE_NAME", NODE)
            .variable("STATE_DIR", text(root.join("state")))
            .variable("HOST_ROOT", text(root))
            .variable("METRICS_ADDR", "127.0.0.1:0")
            .variable("NVML_PATH", text(library))
            .variable("GPU_OBJECTS", "on")
            .variable("GPU_DRA", "read")
            .variable("ENERGY_POD_RESOURCES_SOCKET", text(socket));
        control_plane.start_program(&program).unwrap();
        Self { stub, kubelet }
    }

    /// The driver lists an instance no more.
    fn loses(&self, uuid: &str) {
        std::fs::remove_dir_all(self.stub.root().join(folder(uuid))).unwrap();
    }

    /// The card is reset, as a change of its mode needs it, and is whole then.
    fn becomes_whole(&self) {
        self.stub.put("gpus/card/mig", "0").unwrap();
        self.stub.end_sessions().unwrap();
    }
}

/// A pod that asks for an instance.
fn part(name: &str) -> Value {
    let mut pod = field::pod(name);
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    pod["metadata"]["annotations"] = json!({"gpu-extender.mle.com/model": "H200"});
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({INSTANCE: "1"});
    pod
}

impl GpuSystem {
    /// Waits until the object of the card is like that, and returns it.
    async fn card_is(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Value::Null;
        let look = async || {
            let all = gpus(&self.client).list(&ListParams::default()).await.unwrap().items;
            let all = all.into_iter().map(|one| serde_json::to_value(one).unwrap());
            seen = all.into_iter().find(|one| one["spec"]["uuid"] == UUID).unwrap_or_default();
            is(&seen)
        };
        let ended = system::until(what, super::PATIENCE, look).await;
        assert!(ended.is_ok(), "{what}: {seen:#}");
        seen
    }

    /// Waits until the kubelet has given a pod one device, and the object says the same; returns the device.
    async fn has_its_own(&self, pod: &str) -> String {
        let mut given = Vec::new();
        wait(&format!("the kubelet gives {pod} a device"), async || {
            given = self.divided.kubelet.has(pod);
            given.len() == 1
        })
        .await;
        let uid = self.pods().get(pod).await.unwrap().metadata.uid;
        let given = given.swap_remove(0);
        let says = |gpu: &Value| {
            let instances = gpu["status"]["instances"].as_array().into_iter().flatten();
            let whole = (given == UUID).then_some(&gpu["status"]["allocations"][0]);
            let mut parts = instances.filter(|one| one["uuid"] == given && one["phase"] == "Allocated");
            let of = whole.or_else(|| parts.next()).unwrap_or(&Value::Null);
            of["podName"] == pod && of["podNamespace"] == NAMESPACE && of["podUID"].as_str() == uid.as_deref()
        };
        self.card_is(&format!("the object says that {pod} has {given}"), says).await;
        given
    }

    async fn is_told(&self, pod: &str, why: &str) {
        let mut nudges = 0;
        wait(&format!("{pod} is told: {why}"), async || {
            nudges += 1;
            // What was said before may be of before.
            self.nudge(&format!("told-{pod}-{nudges}")).await;
            self.why_not(pod).await.contains(why)
        })
        .await;
        assert_eq!(self.node_of(pod).await, None);
    }
}

/// The phases of the instances, in the order of their names.
fn phases(gpu: &Value) -> Vec<&str> {
    let all = gpu["status"]["instances"].as_array().into_iter().flatten();
    all.filter_map(|one| one["phase"].as_str()).collect()
}

/// The card takes pods by its instances, and none as a whole; an instance that has died, and who still has it, leave nothing that is
/// not certain; and when the card is whole again it is the other way round.
pub(super) async fn a_divided_card_gives_its_instances_and_not_itself(system: &GpuSystem) {
    let of = |uuid: &str| json!({"uuid": uuid, "profile": "1g.18gb", "memoryMb": 16_384});
    let free = |gpu: &Value| phases(gpu) == ["Available", "Available"];
    let gpu = system.card_is("two instances are free", free).await;
    let (spec, status) = (&gpu["spec"], &gpu["status"]);
    assert_eq!(
        (&spec["nodeName"], &spec["sliced"], &spec["model"]),
        (&json!(NODE), &json!(true), &json!(MODEL))
    );
    assert_eq!(spec["instances"], json!([of(FIRST), of(SECOND)]));
    assert_eq!((&status["phase"], &status["health"]), (&json!("Unknown"), &json!("Healthy")));

    let whole = wants("whole", "H200", 1);
    system.pass(&whole, &[]).await;
    system.create(&whole).await;
    system.is_told("whole", NOT_WHOLE).await;

    // Two pods get one each, bound by us; what the kubelet gave is what the object says.
    let before = system.relay.binds();
    let mut given = Vec::new();
    for name in ["part-0", "part-1"] {
        system.pass(&part(name), &[NODE]).await;
        system.create(&part(name)).await;
        system.lands(name, NODE).await;
        given.push(system.has_its_own(name).await);
    }
    assert_eq!(given, [SECOND, FIRST]);
    assert_eq!(system.relay.binds(), before + 2, "the extender was asked to bind each");
    assert_eq!(system.card_is("it is there", |gpu| !gpu.is_null()).await["status"]["assumed"], Value::Null);
    system.pass(&part("part-2"), &[]).await;
    system.create(&part("part-2")).await;
    system.is_told("part-2", NONE_FREE).await;

    // The instance of a pod dies. The agent lists the instances anew once a minute.
    let begun = Instant::now();
    system.divided.loses(SECOND);
    system.card_is("one instance is left", |gpu| gpu["spec"]["instances"] == json!([of(FIRST)])).await;
    system::tell(&format!("  the agent saw the death of an instance {:.1?} later", begun.elapsed()));
    // Whoever has what the driver does not know could have anything: what is free takes no pod.
    system.delete("part-1").await;
    system.card_is("the free instance is not certain", |gpu| phases(gpu) == ["Unknown"]).await;
    system.pass(&part("part-2"), &[]).await;
    system.is_told("part-2", NO_INSTANCE).await;
    system.delete("part-0").await;
    system.lands_at_last("part-2", NODE).await;
    assert_eq!(system.has_its_own("part-2").await, FIRST);
    system.delete("part-2").await;

    // The card is put out of MIG mode.
    system.divided.loses(FIRST);
    system.divided.becomes_whole();
    let is_whole = |gpu: &Value| {
        gpu["spec"]["sliced"] == false
            && gpu["spec"]["instances"].is_null()
            && gpu["status"]["phase"] == "Available"
    };
    system.card_is("the card is whole and free", is_whole).await;
    system.pass(&part("part-3"), &[]).await;
    system.pass(&whole, &[NODE]).await;
    system.lands_at_last("whole", NODE).await;
    assert_eq!(system.has_its_own("whole").await, UUID);
    let settled = |gpu: &Value| gpu["status"]["assumed"].as_array().is_none_or(Vec::is_empty);
    system.card_is("what was taken for it is over", settled).await;
    system.create(&part("part-3")).await;
    system.is_told("part-3", NO_INSTANCE).await;
    for name in ["whole", "part-3"] {
        system.delete(name).await;
    }
    assert_eq!(system.divided.kubelet.short().len(), 0, "{:?}", system.divided.kubelet.short());
}

/// The agent deletes the object of a card that its driver does not list, where an agent made it.
pub(super) async fn a_card_that_has_left_has_no_object(system: &GpuSystem) {
    let left = json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU",
        "metadata": {"name": "left", "labels": {"joulie.io/managed-by": "agent"}},
        "spec": {"nodeName": NODE, "uuid": "GPU-left", "vendor": "nvidia"}});
    let gpus = gpus(&system.client);
    gpus.create(&PostParams::default(), &serde_json::from_value(left).unwrap()).await.unwrap();
    wait("its object is deleted", async || gpus.get_opt("left").await.unwrap().is_none()).await;
}
