//! The page with 5,000 nodes in a headless browser: when the first picture is there, and what an update costs the browser and the program.
//! `cargo xtask bench page` runs it.
//!
//! The page is the one that the operator serves: its watches, over HTTP, of the API in memory. There a tenth of the nodes draws something
//! else each second, and pods come and go. Scripts are measured by the processor time of the browser's thread, so that a busy machine does
//! not count; the program by that of the threads that serve the page.
#![expect(clippy::print_stdout, reason = "a table for a person")]

use browser::{Browser, Screen};
use bytes::Bytes;
use cluster::assets::Environment;
use cluster::{Chromium, ClusterError};
use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::{HostClock, SystemClock};
use host_kit::config::Listen;
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::server::{Drain, HttpServer, Port, Routes, ServerLimits, ServerMetrics};
use host_kit::shutdown::{self, Tasks};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use page::explain::UiExplainer;
use page::hub::{UiBody, UiHub};
use page::observe::{UiObserver, UiSource};
use page::picture::{UiPicture, UiSite};
use page::serve::{Ui, said};
use page::wire::UiNews;
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

type Any = Box<dyn Error + Send + Sync>;

const NODES: u32 = 5_000;
const PODS: u32 = 20_000;
const RACKS: u32 = 125;
/// The nodes that draw something else each second.
const CHANGE: u32 = NODES / 10;
/// The pods that come, and as many that go, each second.
const PODS_CHANGE: u32 = 5;
/// How often some of them do.
const TICK: Duration = Duration::from_millis(100);
/// Between two looks at the browser's clock. An update comes each half second.
const LOOK: Duration = Duration::from_millis(100);
/// The updates that are measured, and the most looks until they have come.
const UPDATES: usize = 60;
const LOOKS_MAX: u32 = 3_000;
/// Less is no update: the page looks at the time each second.
const SCRIPT_MS_MIN: f64 = 0.3;
const JOULIE: &str = "/apis/joulie.io/v1alpha1";
const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
/// The threads that serve the page.
const SERVING: &str = "joulie-page";

/// The bars.
const FIRST_MS: f64 = 1_000.0;
const SCRIPT_MS: f64 = 50.0;
const UPDATE_KB: f64 = 64.0;
const SERVER_MS: f64 = 200.0;

struct Served(Ui);

impl Routes for Served {
    type Body = UiBody;

    async fn answer(&self, request: Request<Bytes>, _: SocketAddr) -> Response<UiBody> {
        let (head, body) = request.into_parts();
        self.0
            .answer(&head, &body)
            .await
            .unwrap_or_else(|| said(StatusCode::NOT_FOUND, "the page is at /ui/"))
    }
}

fn main() -> Result<(), Any> {
    let chromium = match Chromium::obtain(&Environment::of_this_process()) {
        Ok(chromium) => chromium,
        Err(ClusterError::Absent(why)) => {
            println!("SKIP(no browser: {why})");
            return Ok(());
        }
        Err(why) => return Err(why.to_string().into()),
    };
    let threads = |name: &str| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build()
    };
    let (site, serving) = (threads("site")?, threads(SERVING)?);
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).map_err(|bad| bad.to_string())?;
    let served = site.block_on(async {
        fill(&api.client_as("site")).await?;
        Ok::<_, Any>(api.serve(SocketAddr::from(([127, 0, 0, 1], 0)), None, None).await?)
    })?;
    println!("{NODES} nodes in {RACKS} racks, {PODS} pods");
    let (trigger, stop) = shutdown::pair();
    let page = serving.block_on(serve(served.address(), stop.clone()))?;
    let changer = site.spawn(async move { change(&api.client_as("site"), &stop).await });
    let folder = std::env::temp_dir().join(format!("joulie-page-{}", std::process::id()));
    let measured = measure(&chromium, &folder, &page, &site);
    trigger.request("it is measured");
    site.block_on(changer)??;
    site.block_on(served.stop());
    serving.shutdown_background();
    measured
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<(), Any> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    client.request_text(request.body(body.to_string().into_bytes())?).await.map(drop)?;
    Ok(())
}

fn name(number: u32) -> String {
    format!("node-{number:04}")
}

/// Creates what a cluster with Joulie has.
async fn fill(client: &Client) -> Result<(), Any> {
    let racks = (0..RACKS).map(|rack| (format!("rack-{rack}"), Some("site"), 2_800_000 / RACKS));
    for (budget, parent, watts) in [("site".to_owned(), None, 2_800_000)].into_iter().chain(racks) {
        let spec = match parent {
            Some(parent) => json!({"parent": parent, "watts": watts, "mode": "enforce",
                "nodeSelector": {"matchLabels": {"joulie.io/rack": budget}}}),
            None => json!({"watts": watts, "mode": "enforce"}),
        };
        create(client, "PowerBudget", "powerbudgets", &budget, spec, json!({})).await?;
        let status = json!({"status": {"countedWatts": watts, "measuredWatts": watts / 2, "nodes": 40}});
        send(client, "PATCH", &format!("{JOULIE}/powerbudgets/{budget}/status"), &status).await?;
    }
    for number in 0..NODES {
        node(client, number).await?;
        watts(client, number, 0).await?;
    }
    for number in 0..PODS {
        pod(client, number).await?;
    }
    Ok(())
}

async fn create(
    client: &Client,
    kind: &str,
    plural: &str,
    name: &str,
    spec: Value,
    labels: Value,
) -> Result<(), Any> {
    let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "labels": labels}, "spec": spec});
    send(client, "POST", &format!("{JOULIE}/{plural}"), &object).await
}

/// A node, and what the operator and its agent say of it.
async fn node(client: &Client, number: u32) -> Result<(), Any> {
    let (name, rack) = (name(number), format!("rack-{}", number % RACKS));
    let profile = ["performance", "eco"][usize::from(!number.is_multiple_of(4))];
    let labels = json!({"joulie.io/managed": "true", "joulie.io/rack": rack, "joulie.io/power-profile": profile,
        "joulie.io/cooling-zone": format!("zone-{}", number % 8), "joulie.io/hw.cpu-model": "AMD_EPYC_9654"});
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    send(client, "POST", "/api/v1/nodes", &object).await?;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    send(client, "PATCH", &format!("/api/v1/nodes/{name}/status"), &ready).await?;
    let spec = json!({"nodeName": name, "profile": profile, "cpu": {"packagePowerCapPctOfMax": 60}});
    create(client, "NodePowerProfile", "nodepowerprofiles", &name, spec, json!({})).await?;
    let said = if number.is_multiple_of(97) { "False" } else { "True" };
    let control = json!({"status": {"control": {"cpu": {"backend": "rapl", "result": "applied",
            "observedGeneration": 1, "requestedWatts": 216, "capWatts": 216}},
        "conditions": [condition("CapEnforced", said)]}});
    send(client, "PATCH", &format!("{JOULIE}/nodepowerprofiles/{name}/status"), &control).await?;
    let spec = json!({"nodeName": name, "watts": 560, "ceiling": 560, "serial": 1});
    let label = json!({"joulie.io/power-budget": rack});
    create(client, "NodePowerGrant", "nodepowergrants", &name, spec, label).await?;
    let holds = json!({"status": {"serial": 1, "bootID": "b", "nodeUID": "u", "holds": 550}});
    send(client, "PATCH", &format!("{JOULIE}/nodepowergrants/{name}/status"), &holds).await?;
    let spec = json!({"nodeName": name, "profile": profile});
    create(client, "NodeTwin", "nodetwins", &name, spec, json!({})).await?;
    create(client, "NodeHardware", "nodehardwares", &name, json!({"nodeName": name}), json!({})).await
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Said", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// What a node draws now: its agent's sample, and the operator's twin.
async fn watts(client: &Client, number: u32, step: u32) -> Result<(), Any> {
    let (name, watts) = (name(number), 300 + (number * 37 + step * 53) % 200);
    let sample = json!({"status": {"power": {"cpuWatts": watts, "sampledAt": format!("2026-01-01T00:00:00.{step:06}Z")}}});
    send(client, "PATCH", &format!("{JOULIE}/nodehardwares/{name}/status"), &sample).await?;
    let twin = json!({"status": {
        "schedulableClass": if number.is_multiple_of(4) { "performance" } else { "eco" },
        "predictedPowerHeadroomScore": (520 - watts) * 100 / 520, "predictedCoolingStressScore": watts / 10,
        "predictedPsuStressScore": 30, "conditions": [condition("TelemetryFresh", "True")],
        "powerMeasurement": {"measuredNodePowerW": watts, "nodeCappedPowerW": 520, "nodeTdpW": 900}}});
    send(client, "PATCH", &format!("{JOULIE}/nodetwins/{name}/status"), &twin).await
}

async fn pod(client: &Client, number: u32) -> Result<(), Any> {
    let class = if number.is_multiple_of(7) { "performance" } else { "standard" };
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p-{number}"), "annotations": {"joulie.io/workload-class": class}},
        "spec": {"nodeName": name(number % NODES), "containers": [{"name": "main", "image": "none"}]}});
    send(client, "POST", PODS_PATH, &pod).await
}

/// Changes a tenth of the nodes each second, and some pods, until asked to stop.
async fn change(client: &Client, stop: &shutdown::Stop) -> Result<(), Any> {
    let mut due = tokio::time::interval(TICK);
    for step in 1_u32.. {
        due.tick().await;
        if stop.is_requested() {
            break;
        }
        for at in 0..CHANGE / 10 {
            // Nodes all over the site.
            watts(client, (step * CHANGE / 10 + at).wrapping_mul(1_549) % NODES, step).await?;
        }
        if step.is_multiple_of(10) {
            for at in 0..PODS_CHANGE {
                let number = step / 10 * PODS_CHANGE + at;
                send(client, "DELETE", &format!("{PODS_PATH}/p-{number}"), &json!({})).await?;
                pod(client, PODS + number).await?;
            }
        }
    }
    Ok(())
}

/// The page that is served, and what it has sent.
struct Page {
    url: String,
    hub: Arc<UiHub>,
    sent: Arc<Mutex<Vec<usize>>>,
    _tasks: Tasks,
}

/// Serves the page of the API at this address.
async fn serve(api: SocketAddr, stop: shutdown::Stop) -> Result<Page, Any> {
    let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
    let client = move || -> Result<Client, Any> {
        Ok(Client::try_from(kube::Config::new(format!("http://{api}").parse()?))?)
    };
    let hub = UiHub::new(clock.chance());
    // The curve is full before the page is opened.
    let start = clock.wall().as_millisecond() as f64 / 1000.0;
    for second in 0..900 {
        let site = UiSite { watts: Some(2_000_000.0), limit: Some(2_800_000.0), ..UiSite::default() };
        let at = start - 900.0 + f64::from(second);
        hub.show(UiPicture { at, site, ..UiPicture::default() }, &UiNews::default());
    }
    let source = UiSource {
        title: "5,000 nodes".to_owned(),
        client: client()?,
        clock: clock.clone(),
        namespace: "joulie-system".to_owned(),
        hold: Duration::from_secs(600),
        extras: None,
    };
    let mut tasks = Tasks::new();
    let observer = UiObserver::start(source, (&mut tasks, &stop));
    tasks.spawn("picture", observer.run(hub.clone(), stop.clone()));
    let first = client()?;
    let explainer = UiExplainer::start(move || first, clock.clone(), "joulie-system".to_owned())?;
    let routes = Served(Ui::new(hub.clone(), explainer, None, stop.clone()));
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "page", version: "", revision: "" });
    let counted = ServerMetrics::register(metrics.registry());
    let limits = ServerLimits::new(8 * 1024, 64)?.with_peer_max(64)?;
    let listen = Listen::At(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = HttpServer::bind(listen, Port::Work, routes, limits, &counted, clock.clone()).await?;
    let url = format!("http://{}/ui/", server.address()?);
    let serving = stop.clone();
    tasks.spawn("server", async move {
        let _open = server.run(serving, Drain::new(Duration::ZERO, TICK)).await;
    });
    let sent = Arc::new(Mutex::new(Vec::new()));
    tokio::spawn(listen_in(hub.clone(), stop, sent.clone()));
    Ok(Page { url, hub, sent, _tasks: tasks })
}

/// Notes how long each change is, as a second page gets it.
async fn listen_in(hub: Arc<UiHub>, stop: shutdown::Stop, sent: Arc<Mutex<Vec<usize>>>) {
    let Ok(mut stream) = hub.open(None, stop) else { return };
    while let Some(Ok(frame)) = stream.frame().await {
        let Ok(bytes) = frame.into_data() else { continue };
        if bytes.windows(13).take(64).any(|part| part == b"event: change") {
            sent.lock().unwrap_or_else(PoisonError::into_inner).push(bytes.len());
        }
    }
}

/// The processor time of the threads that serve the page, in ms.
fn serving_ms() -> Result<f64, Any> {
    let mut all = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        // A thread may have ended meanwhile.
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
        if name.trim() == SERVING {
            let times = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            all += times.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e6;
        }
    }
    Ok(all)
}

fn bar(name: &str, value: f64, limit: f64) {
    let verdict = if value <= limit { "PASS" } else { "FAIL" };
    println!("BAR {name} {value:.1} {limit:.0} {verdict}");
}

/// The value of which so many percent of all are no larger.
fn quantile(all: &mut [f64], percent: usize) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN)
}

fn measure(chromium: &Chromium, folder: &Path, page: &Page, site: &Runtime) -> Result<(), Any> {
    let screen = Screen { width: 1280, height: 900, dark: false };
    let mut browser = Browser::open(chromium, folder, screen)?;
    browser.clock_by_thread()?;
    let mut first = f64::MAX;
    for _ in 0..3 {
        browser.go(&page.url)?;
        browser.until("joulie.first !== null && document.querySelectorAll('#rows .row').length > 8")?;
        first = first.min(browser.js("joulie.first")?.as_f64().ok_or("there was no first picture")?);
    }
    bar("page_first_picture_ms", first, FIRST_MS);
    println!("  pages that are open: {}", page.hub.pages());
    let clock = SystemClock::new();
    let (mut spent, mut seconds) = (0.0, 0.0);
    for (name, press) in [
        ("groups", ""),
        ("all_open", "document.querySelector('#all').click()"),
        ("filtered", "document.querySelector('#states [data-class=eco]').click()"),
    ] {
        if !press.is_empty() {
            browser.js(press)?;
            browser.until("Number(document.querySelector('#tree').getAttribute('aria-rowcount')) > 3000")?;
        }
        let (before, began) = (serving_ms()?, clock.mono());
        let mut took = scripts(&mut browser, site)?;
        spent += serving_ms()? - before;
        seconds += clock.mono().since(began).as_secs_f64();
        for (part, of) in [("p50", 50), ("p99", 99), ("max", 100)] {
            bar(&format!("page_script_{name}_ms_{part}"), quantile(&mut took, of), SCRIPT_MS);
        }
    }
    let sent = page.sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut sent: Vec<f64> = sent.into_iter().map(|bytes| bytes as f64 / 1024.0).collect();
    bar("page_update_kib_p50", quantile(&mut sent, 50), UPDATE_KB);
    println!("  the largest {:.1} KiB", quantile(&mut sent, 100));
    bar("page_server_ms_per_second", spent / seconds, SERVER_MS);
    let wrong = browser.complaints();
    if wrong.is_empty() { Ok(()) } else { Err(format!("the page complains: {wrong:?}").into()) }
}

/// How long scripts took for each update, in ms of the browser's thread. An update is what runs between two looks in which nothing does.
fn scripts(browser: &mut Browser, site: &Runtime) -> Result<Vec<f64>, Any> {
    let (mut took, mut update) = (Vec::new(), 0.0);
    let mut last = browser.script_ms()?;
    for _ in 0..LOOKS_MAX {
        site.block_on(async { tokio::time::sleep(LOOK).await });
        let now = browser.script_ms()?;
        let ran = now - last;
        last = now;
        if ran >= SCRIPT_MS_MIN {
            update += ran;
        } else if update > 0.0 {
            took.push(update);
            update = 0.0;
            if took.len() == UPDATES {
                return Ok(took);
            }
        }
    }
    Err(format!("there were only {} updates", took.len()).into())
}
