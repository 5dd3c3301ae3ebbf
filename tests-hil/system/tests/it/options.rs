//! What options of the chart add to its roles, on a control plane of its own, by programs with the chart's settings and accounts: the
//! chart's second kube-scheduler places a pod with a GPU, which the binder binds; the operator's live page explains the pod and its
//! node; and a pod past a bound on performance is told so. A right that none of that uses fails it.

use crate::gpus::stand_in::{Kubelets, add_card};
use crate::placement::CLASS;
use crate::support::{in_config_map, wait};
use crate::{ONE_BESIDE, shipped};
use cluster::assets::{self, Environment};
use cluster::life::{FakeNode, Life};
use cluster::{ClusterError, ControlPlane, ControlPlaneOptions, Program, start_or_skip};
use install::Helm;
use install::audited::AuditedPart;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use system::field::{self, Field};
use system::http::{self, Http};
use system::rights::{self, ProgramAccount};
use system::{audit, ports};
use tokio::time::Instant;

const NAMESPACE: &str = "options";
const NODE: &str = "one";
const MODEL: &str = "NVIDIA A100-SXM4-40GB";
const PROGRAMS: [&str; 4] = ["operator", "extender", "binder", "scheduler"];

struct OptionSystem {
    control_plane: ControlPlane,
    client: Client,
    /// The operator's port.
    operator: Http,
    extender: Http,
    binder: Http,
    _kubelets: Kubelets,
    _life: Life,
}

impl Drop for OptionSystem {
    /// The folder is removed with the control plane, so the last lines are shown.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in PROGRAMS {
                system::tell(&format!("--- {name}\n{}", self.control_plane.program_log(name)));
            }
        }
    }
}

/// kube-scheduler's program; `None`, with a message, if there is none.
fn kube_scheduler() -> Option<PathBuf> {
    match assets::kube_scheduler(&Environment::of_this_process()) {
        Ok(program) => Some(program),
        Err(ClusterError::Absent(why)) => {
            system::skip(&format!("no kube-scheduler: {why}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A program with an account of the chart, and the settings that it has there.
async fn program(
    control_plane: &ControlPlane,
    chart: &[Value],
    account: ProgramAccount,
    (name, path): (&str, &Path),
) -> Program {
    let kubeconfig = account.kubeconfig(control_plane).await.unwrap();
    let mut program = Program::new(name, path).variable("KUBECONFIG", kubeconfig.to_string_lossy());
    for (name, value) in rights::settings_in(chart, account).unwrap() {
        program = program.variable(&name, value);
    }
    program
}

impl OptionSystem {
    /// `None`, with a message, if something for it is missing.
    async fn start() -> Option<Self> {
        let helm = Helm::or_skip()?;
        let options = ControlPlaneOptions {
            audited_group: Some(audit::GROUP.to_owned()),
            ..ControlPlaneOptions::api_only()
        };
        let control_plane = start_or_skip(&options)?;
        let kube_scheduler = kube_scheduler()?;
        let client = control_plane.client().await.unwrap();
        let [page, work, bind] = [(); 3].map(|()| ports::free().unwrap());
        // Not ignorable, so that the extender is asked however slow this machine is.
        let of_here = format!(
            "scheduler.url=http://{work},scheduler.binderUrl=http://{bind},scheduler.ignorable=false,scheduler.httpTimeout=5s"
        );
        let renderings = AuditedPart::Options.renderings();
        let flags = [renderings[0].flags, &["--set", &of_here]].concat();
        let chart = install::objects(&helm.template("chart", &flags).unwrap()).unwrap();
        rights::install_also(&client, rights::KINDS).await.unwrap();
        rights::apply_all(&client, chart.clone()).await.unwrap();

        let machine = FakeNode::named(NODE).label("joulie.io/managed", "true").has("nvidia.com/gpu", "1");
        let life = Life::start(client.clone(), vec![machine]).await.unwrap();
        add_card(&client, "card", (NODE, MODEL, 0)).await;
        let kubelets = Kubelets::start(&client);
        Field::new(&client, NAMESPACE).await.unwrap();
        let at = |address| http::at(address).unwrap();
        let system = Self {
            control_plane,
            client,
            operator: at(page),
            extender: at(work),
            binder: at(bind),
            _kubelets: kubelets,
            _life: life,
        };
        system.run_operator(&chart, page).await;
        system.run_extender(&chart, ProgramAccount::Extender, ("extender", work)).await;
        system.run_extender(&chart, ProgramAccount::Binder, ("binder", bind)).await;
        system.run_scheduler(&chart, &kube_scheduler).await;
        Some(system)
    }

    async fn run_operator(&self, chart: &[Value], page: SocketAddr) {
        let config = self.control_plane.folder().join("operator.conf");
        std::fs::write(&config, in_config_map(chart, "joulie-operator-config", "operator.conf")).unwrap();
        let (account, path) = (ProgramAccount::Operator, shipped().operator);
        let program = program(&self.control_plane, chart, account, ("operator", &path)).await;
        let program = program
            .variable("JOULIE_CONFIG", config.to_string_lossy())
            .variable("METRICS_ADDR", page.to_string());
        self.control_plane.start_program(&program).unwrap();
    }

    async fn run_extender(&self, chart: &[Value], account: ProgramAccount, (name, at): (&str, SocketAddr)) {
        let program = program(&self.control_plane, chart, account, (name, &shipped().extender)).await;
        let program = program
            .variable("EXTENDER_ADDR", at.to_string())
            .variable("METRICS_ADDR", "127.0.0.1:0")
            .variable("DRAIN_LINGER", "0s");
        self.control_plane.start_program(&program).unwrap();
    }

    /// With the chart's own configuration. A pod has its account's kubeconfig by itself.
    async fn run_scheduler(&self, chart: &[Value], path: &Path) {
        let kubeconfig = ProgramAccount::Scheduler.kubeconfig(&self.control_plane).await.unwrap();
        let text = in_config_map(chart, "joulie-scheduler-config", "config.yaml");
        let mut config = install::objects(text).unwrap().remove(0);
        config["clientConnection"] = json!({"kubeconfig": kubeconfig});
        let folder = self.control_plane.folder();
        let file = folder.join("second-scheduler.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let port = ports::free().unwrap().port();
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let program = Program::new("scheduler", path)
            .argument(flag("config", &file))
            .argument(flag("cert-dir", &folder.join("second-scheduler")))
            .argument(flag("authentication-kubeconfig", &kubeconfig))
            .argument(flag("authorization-kubeconfig", &kubeconfig))
            .argument("--bind-address=127.0.0.1")
            .argument(format!("--secure-port={port}"));
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
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn create(&self, pod: &Value) {
        let pod = serde_json::from_value(pod.clone()).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }
}

async fn a_pod_with_a_gpu_is_placed_by_the_second_scheduler_and_bound_by_the_binder(system: &OptionSystem) {
    let mut pod = field::pod("with-a-card");
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    pod["metadata"]["annotations"] = json!({"gpu-extender.mle.com/model": "A100"});
    pod["spec"]["schedulerName"] = json!("joulie-scheduler");
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
    let asked = json!({"Pod": pod, "NodeNames": [NODE]}).to_string().into_bytes();
    wait("the extender lets the node pass", async || {
        let answer = system.extender.post("/filter", asked.clone()).await.unwrap_or_default();
        answer["nodenames"] == json!([NODE])
    })
    .await;
    wait("the binder has read everything", async || {
        system.binder.get("/debug/scoring").await.is_ok_and(|page| page["synced"] == true)
    })
    .await;
    system.create(&pod).await;
    wait("the pod is on the node", async || {
        let pod = system.pods().get("with-a-card").await.unwrap();
        pod.spec.unwrap().node_name.as_deref() == Some(NODE)
    })
    .await;
}

/// Once for each time that it is past the bound: the second time its Event becomes a series.
async fn a_pod_past_a_bound_is_told(system: &OptionSystem) {
    let events: Api<Event> = Api::namespaced(system.client.clone(), NAMESPACE);
    let told = async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let mut of = all.into_iter().filter(|one| one.reason.as_deref() == Some("PerformanceNotAllowed"));
        let event = of.next()?;
        assert!(of.next().is_none(), "one Event for a pod");
        Some(event.series.map_or(1, |series| series.count))
    };
    let asks = async |class: Value| {
        let change = json!({"metadata": {"annotations": {CLASS: class}}});
        system.pods().patch("asks", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };
    let mut pod = field::pod("asks");
    pod["metadata"]["annotations"] = json!({CLASS: "performance"});
    // No scheduler looks at it.
    pod["spec"]["schedulerName"] = json!("nobody");
    system.create(&pod).await;
    wait("it is told", async || told().await == Some(1)).await;
    asks(Value::Null).await;
    let is_over = "joulie_operator_past_bound_pods{reason=\"namespace\"} 0";
    wait("it asks no more", async || {
        system.operator.text("/metrics").await.is_ok_and(|page| page.contains(is_over))
    })
    .await;
    asks(json!("performance")).await;
    wait("it is told again", async || told().await == Some(2)).await;
}

async fn the_page_explains_a_node_and_a_pod(system: &OptionSystem) {
    for (asked, says) in [
        (format!("node={NODE}"), format!("node {NODE}\n")),
        (format!("pod={NAMESPACE}/with-a-card"), format!("it is on node {NODE}, ")),
        (format!("pod={NAMESPACE}/asks"), "PerformanceNotAllowed: ".to_owned()),
    ] {
        let mut said = Value::Null;
        wait(&format!("the page says what {asked} is"), async || {
            said = system.operator.get(&format!("/ui/explain?{asked}")).await.unwrap_or_default();
            said["text"].is_string()
        })
        .await;
        let text = said["text"].as_str().unwrap();
        assert!(text.contains(&says) && !text.contains("cannot be listed"), "{asked}: {said:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_options_of_the_chart_add_are_used() {
    let _alone = ONE_BESIDE.lock().await;
    let begun = Instant::now();
    let Some(system) = OptionSystem::start().await else { return };
    system::tell(&format!("options: up after {:.1?}", begun.elapsed()));
    let stories = async {
        a_pod_with_a_gpu_is_placed_by_the_second_scheduler_and_bound_by_the_binder(&system).await;
        a_pod_past_a_bound_is_told(&system).await;
        the_page_explains_a_node_and_a_pod(&system).await;
        audit::each_was_used(&system.control_plane, AuditedPart::Options).await
    };
    let an_end = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let Some(ended) = system.ended() {
                return ended;
            }
        }
    };
    let rights = tokio::select! {
        rights = stories => rights.unwrap(),
        ended = an_end => panic!("{ended}"),
    };
    // Of the operator five, of the binder 26, of the scheduler three.
    assert!(rights > 30, "{rights} rights");
    system::tell(&format!("options: {rights} rights, {:.1?}", begun.elapsed()));
}
