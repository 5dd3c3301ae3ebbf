//! The chart's Certificates in the hands of cert-manager: its own controllers issue them by the issuer that docs/INSTALL.md
//! says, the extender and the real kube-scheduler use what comes, and go on with it when it is renewed. Only in
//! `cargo xtask test --long`, since cert-manager has to be built.

use crate::placement::{NAMESPACE as STORIES, all_run, refusals};
use crate::support::{in_config_map, is_long, wait};
use cluster::assets::Environment;
use cluster::{CertManager, ClusterError, Scheduler};
use install::{Helm, NAMESPACE, deploy};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use system::field::{self, Field};
use system::rights::{self, ProgramAccount};
use system::world::{SystemProcess, TestSystem};

/// The issuer of the chapter, and the Secrets of the chart's three Certificates.
const ISSUER: &str = "joulie-ca";
const SERVER: &str = "joulie-scheduler-extender-tls";
const CLIENT: &str = "joulie-scheduler-client-tls";
const METRICS: &str = "joulie-metrics-tls";
/// Where the chart mounts the extender's.
const MOUNT: &str = "/etc/joulie-tls";
/// How often the extender must have taken a renewed certificate.
const RENEWALS: u32 = 2;

pub(crate) async fn the_charts_certificates_are_issued_and_renewed(world: &TestSystem) {
    if !is_long() {
        return system::tell("  only in cargo xtask test --long");
    }
    let Some(helm) = Helm::or_skip() else { return };
    let cert_manager = match CertManager::obtain(&Environment::of_this_process()) {
        Ok(cert_manager) => cert_manager,
        Err(ClusterError::Absent(why)) => return system::skip(&format!("no cert-manager: {why}")),
        Err(why) => panic!("{why}"),
    };
    let kinds = cert_manager.definitions().unwrap();
    let kinds: Vec<Value> = kinds.iter().flat_map(|text| install::objects(text).unwrap()).collect();
    assert!(kinds.iter().any(|kind| kind["metadata"]["name"] == "certificates.cert-manager.io"));
    rights::apply_all(&world.client, kinds).await.unwrap();
    cert_manager.start(&world.control_plane).unwrap();

    let server = Mounted::at(world, "cert-manager-server", SERVER);
    let client = Mounted::at(world, "cert-manager-client", CLIENT);
    let chart = rendered(&helm, world, &client);
    rights::apply_all(&world.client, of_the_chapter()).await.unwrap();
    let mut certificates: Vec<Value> =
        chart.iter().filter(|one| one["apiVersion"] == "cert-manager.io/v1").cloned().collect();
    assert_eq!(certificates.len(), 3);
    // So that the extender's is due 20 s after it was issued: an hour is the shortest that cert-manager has.
    let short = certificates.iter_mut().find(|one| one["spec"]["secretName"] == SERVER).unwrap();
    short["spec"]["duration"] = json!("1h");
    short["spec"]["renewBefore"] = json!("59m40s");
    rights::apply_all(&world.client, certificates).await.unwrap();
    wait("three certificates are issued", async || {
        server.refresh().await && client.refresh().await && secret(world, METRICS).await.is_some()
    })
    .await;

    the_extender_has(world, &chart, &server).await;
    let scheduler = Scheduler { written: extenders(&chart), ..Scheduler::plain() };
    tokio::task::block_in_place(|| world.control_plane.start_scheduler(&scheduler)).unwrap();
    pods_are_placed_while_it_is_renewed(world, &server).await;

    // The stories that follow have certificates of their own.
    world.control_plane.kill_program(CertManager::NAME);
    world.run(SystemProcess::Extender, &[]).unwrap();
    wait("the extender is ready", async || world.extender.answers("/readyz").await).await;
    let scheduler = world.scheduler().unwrap();
    tokio::task::block_in_place(|| world.control_plane.start_scheduler(&scheduler)).unwrap();
}

/// The chart with what a site with cert-manager says, and the address and files of this machine.
fn rendered(helm: &Helm, world: &TestSystem, client: &Mounted<'_>) -> Vec<Value> {
    let file = |name: &str| client.folder.join(name).display().to_string();
    let values = [
        "schedulerExtender.tls.enabled=true,schedulerExtender.tls.certManager.enabled=true".to_owned(),
        format!("schedulerExtender.tls.certManager.issuerRef.name={ISSUER},scheduler.ignorable=false"),
        format!(
            "metricsTls.enabled=true,metricsTls.certManager.enabled=true,metricsTls.certManager.issuerRef.name={ISSUER}"
        ),
        format!("scheduler.url=https://{},scheduler.httpTimeout=5s", world.work()),
        format!("scheduler.tls.caFile={},scheduler.tls.certFile={}", file("ca.crt"), file("tls.crt")),
        format!("scheduler.tls.keyFile={}", file("tls.key")),
    ];
    let flags: Vec<&str> = values.iter().flat_map(|values| ["--set", values]).collect();
    install::objects(&helm.template("chart", &flags).unwrap()).unwrap()
}

/// The objects of the chapter "Certificates by cert-manager".
fn of_the_chapter() -> Vec<Value> {
    let text = std::fs::read_to_string(deploy().join("../../docs/INSTALL.md")).unwrap();
    let (_, chapter) = text.split_once("### Certificates by cert-manager").unwrap();
    let (_, block) = chapter.split_once("```yaml\n").unwrap();
    let objects = install::objects(block.split_once("```").unwrap().0).unwrap();
    assert!(objects.iter().any(|one| one["kind"] == "Issuer" && one["metadata"]["name"] == ISSUER));
    objects
}

/// The extender with the chart's settings, whose files are those that a kubelet would have mounted.
async fn the_extender_has(world: &TestSystem, chart: &[Value], server: &Mounted<'_>) {
    let settings = rights::settings_in(chart, ProgramAccount::Extender).unwrap();
    let files: Vec<(String, String)> = settings
        .into_iter()
        .filter(|(_, path)| path.starts_with(MOUNT))
        .map(|(name, path)| (name, path.replacen(MOUNT, &server.folder.display().to_string(), 1)))
        .collect();
    assert_eq!(files.len(), 3, "{files:?}");
    let files: Vec<(&str, &str)> = files.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
    world.run(SystemProcess::Extender, &files).unwrap();
    wait("the extender is ready", async || world.extender.answers("/readyz").await).await;
}

/// What kube-scheduler's configuration says of extenders.
fn extenders(chart: &[Value]) -> Vec<Value> {
    let config = in_config_map(chart, "joulie-scheduler-config", "config.yaml");
    let config = install::objects(config).unwrap();
    config[0]["extenders"].as_array().unwrap().clone()
}

async fn pods_are_placed_while_it_is_renewed(world: &TestSystem, server: &Mounted<'_>) {
    let field = Field::new(&world.client, STORIES).await.unwrap();
    let (mut made, first) = (0, secret(world, SERVER).await.unwrap());
    let before = refusals(world).await;
    let renewed = async || {
        let mut pod = field::pod(&format!("issued-{made}"));
        pod["spec"]["nodeSelector"] = json!({"joulie.io/hw.kind": "epyc"});
        pod["metadata"]["annotations"] = json!({"sim.joulie.io/cpu-util-pct": "0"});
        field.make(&pod, 1).await.unwrap();
        made += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.refresh().await;
        taken(world).await >= RENEWALS
    };
    let outcome = system::until("the certificate is renewed", PATIENCE, renewed).await;
    outcome.unwrap_or_else(|why| panic!("{why}\n{}", world.control_plane.program_log(CertManager::NAME)));
    assert_ne!(secret(world, SERVER).await.unwrap()["tls.crt"], first["tls.crt"]);
    all_run(&field.pods(), "issued", made).await;
    assert_eq!(
        refusals(world).await,
        before,
        "the extender is not ignorable here, so a request that fails is told"
    );
    system::tell(&format!(
        "  {made} pods were placed while cert-manager renewed the certificate {RENEWALS} times"
    ));
    field.clear().await.unwrap();
}

/// Renewals, of 20 s each and seen within 10 s.
const PATIENCE: Duration = Duration::from_secs(180);

/// How many renewed certificates the extender has taken since its start.
async fn taken(world: &TestSystem) -> u32 {
    let page = world.extender.text("/metrics").await.unwrap();
    let name = "joulie_tls_reloads_total{port=\"work\",outcome=\"applied\"} ";
    page.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap_or(0)
}

type Files = BTreeMap<String, Vec<u8>>;

/// A Secret with a certificate, if it is there and whole.
async fn secret(world: &TestSystem, name: &str) -> Option<Files> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    let data = secrets.get_opt(name).await.unwrap()?.data?;
    let files: Files = data.into_iter().map(|(name, bytes)| (name, bytes.0)).collect();
    let whole = |name: &str| files.get(name).is_some_and(|bytes| !bytes.is_empty());
    ["tls.crt", "tls.key", "ca.crt"].into_iter().all(whole).then_some(files)
}

/// A Secret in a folder, as a kubelet mounts it: each version in a folder of its own, behind a link that changes in one step.
struct Mounted<'a> {
    world: &'a TestSystem,
    name: &'static str,
    folder: PathBuf,
}

impl<'a> Mounted<'a> {
    fn at(world: &'a TestSystem, folder: &str, name: &'static str) -> Self {
        let folder = world.control_plane.folder().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("..data").join(file), folder.join(file)).unwrap();
        }
        Self { world, name, folder }
    }

    /// Mounts what the Secret has now; whether there is one.
    async fn refresh(&self) -> bool {
        let Some(files) = secret(self.world, self.name).await else { return false };
        let there = |(name, bytes): (&String, &Vec<u8>)| {
            std::fs::read(self.folder.join(name)).is_ok_and(|mounted| mounted == *bytes)
        };
        if files.iter().all(there) {
            return true;
        }
        let versions = std::fs::read_dir(&self.folder).unwrap().count();
        let version = format!("..version-{versions}");
        std::fs::create_dir(self.folder.join(&version)).unwrap();
        for (name, bytes) in &files {
            std::fs::write(self.folder.join(&version).join(name), bytes).unwrap();
        }
        let link = self.folder.join("..data_tmp");
        symlink(&version, &link).unwrap();
        std::fs::rename(link, self.folder.join("..data")).unwrap();
        true
    }
}
