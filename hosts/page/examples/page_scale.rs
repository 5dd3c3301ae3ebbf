//! The page with 5,000 nodes in a headless browser: when the first picture is there, and how long scripts take for an update in which
//! half of the nodes draw something else. `cargo xtask bench page` runs it.
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
use host_kit::shutdown;
use http::{Request, Response, StatusCode};
use page::explain::UiExplainer;
use page::hub::{UiBody, UiHub};
use page::picture::{UiBudget, UiNode, UiPicture, UiSite, tenths};
use page::serve::{Ui, said};
use page::wire::UiNews;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const NODES: u32 = 5_000;
const RACKS: u32 = 125;
const EVERY: Duration = Duration::from_millis(500);
/// The bars, in ms.
const FIRST_MS: f64 = 1_000.0;
const UPDATE_MS: f64 = 50.0;
/// The updates that are measured.
const UPDATES: u32 = 30;

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

/// A large site, at this step.
fn picture(step: u32, at: f64) -> UiPicture {
    let node = |number: u32| {
        // In each step half of the nodes draw something else.
        let phase = (step + number % 2) / 2;
        let watts = f64::from(300 + (number * 37 + phase * 53) % 200);
        let node = UiNode {
            kind: Some("2 EPYC 9654".to_owned()),
            rack: Some(format!("rack-{}", number % RACKS)),
            zone: Some(format!("zone-{}", number % 8)),
            budget: Some(format!("rack-{}", number % RACKS)),
            class: ["performance", "eco", "eco", "draining"][(number % 4) as usize].to_owned(),
            watts: Some(watts),
            allowed: Some(520.0),
            most: Some(900.0),
            granted: Some(560.0),
            held: Some(550.0),
            unused: Some(550.0 - watts),
            package_cap: Some(216.0),
            enforced: if number.is_multiple_of(97) { "no" } else { "yes" },
            headroom: Some(f64::from(number % 80)),
            cooling: Some(f64::from(number % 60)),
            psu: Some(30.0),
            pods: (number % 7) as usize,
            ..UiNode::default()
        };
        (format!("node-{number:04}"), node)
    };
    let nodes: std::collections::BTreeMap<String, UiNode> = (0..NODES).map(node).collect();
    let measured: f64 = nodes.values().filter_map(|node| node.watts).sum();
    let budget = |parent: Option<&str>, part: f64| UiBudget {
        parent: parent.map(str::to_owned),
        enforced: true,
        limit: Some(2_800_000.0 * part),
        counted: Some(2_750_000.0 * part),
        measured: Some(tenths(measured * part)),
        unused: Some(tenths((2_750_000.0 - measured) * part)),
        nodes: Some(u64::from(NODES)),
        kept: Some(true),
        ..UiBudget::default()
    };
    let racks = (0..RACKS).map(|rack| (format!("rack-{rack}"), budget(Some("site"), 1.0 / f64::from(RACKS))));
    let budgets = racks.chain([("site".to_owned(), budget(None, 1.0))]).collect();
    let site = UiSite {
        title: "5,000 nodes".to_owned(),
        watts: Some(tenths(measured)),
        limit: Some(2_800_000.0),
        counted: Some(2_750_000.0),
        leader: Some("operator-0".to_owned()),
        policy: Some("queue-aware-v1".to_owned()),
        plan_age: Some(u64::from(step % 10)),
        running: 20_000,
        ..UiSite::default()
    };
    UiPicture { at, site, budgets, nodes }
}

fn bar(name: &str, value: f64, limit: f64) {
    let verdict = if value <= limit { "PASS" } else { "FAIL" };
    println!("BAR {name} {value:.1} {limit:.0} {verdict}");
}

fn main() -> Result<(), Box<dyn Error>> {
    let chromium = match Chromium::obtain(&Environment::of_this_process()) {
        Ok(chromium) => chromium,
        Err(ClusterError::Absent(why)) => {
            println!("SKIP(no browser: {why})");
            return Ok(());
        }
        Err(why) => return Err(why.into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (trigger, stop) = shutdown::pair();
    let url = runtime.block_on(serve(stop))?;
    let folder = std::env::temp_dir().join(format!("joulie-page-{}", std::process::id()));
    let measured = measure(&chromium, &folder, &url);
    trigger.request("it is measured");
    measured
}

/// Serves the page, and changes what it shows; returns where it is.
async fn serve(stop: shutdown::Stop) -> Result<String, Box<dyn Error>> {
    let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
    let hub = UiHub::new(clock.chance());
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).map_err(|bad| bad.to_string())?;
    let explainer =
        UiExplainer::start(move || api.client_as("page"), clock.clone(), "joulie-system".to_owned())?;
    let routes = Served(Ui::new(hub.clone(), explainer, None, stop.clone()));
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "page", version: "", revision: "" });
    let counted = ServerMetrics::register(metrics.registry());
    let limits = ServerLimits::new(8 * 1024, 64)?.with_peer_max(64)?;
    let listen = Listen::At(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = HttpServer::bind(listen, Port::Work, routes, limits, &counted, clock.clone()).await?;
    let url = format!("http://{}/ui/", server.address()?);
    let serving = stop.clone();
    tokio::spawn(async move { server.run(serving, Drain::new(Duration::ZERO, EVERY)).await });
    let start = clock.wall().as_millisecond() as f64 / 1000.0;
    // The curve is full before the page is opened.
    let first = picture(0, start);
    for second in 0..900 {
        hub.show(UiPicture { at: start - 900.0 + f64::from(second), ..first.clone() }, &UiNews::default());
    }
    tokio::spawn(async move {
        let mut step = 0;
        while !stop.requested_within(EVERY).await {
            step += 1;
            hub.show(picture(step, clock.wall().as_millisecond() as f64 / 1000.0), &UiNews::default());
        }
    });
    Ok(url)
}

fn measure(chromium: &Chromium, folder: &std::path::Path, url: &str) -> Result<(), Box<dyn Error>> {
    let screen = Screen { width: 1280, height: 900, dark: false };
    let mut browser = Browser::open(chromium, folder, screen)?;
    let number = |browser: &mut Browser, of: &str| -> Result<f64, Box<dyn Error>> {
        Ok(browser.js(of)?.as_f64().ok_or_else(|| format!("{of} is no number"))?)
    };
    let mut first = f64::MAX;
    for _ in 0..3 {
        browser.go(url)?;
        browser.until("joulie.first !== null && document.querySelectorAll('#rows .row').length > 8")?;
        first = first.min(number(&mut browser, "joulie.first")?);
    }
    let updates = |browser: &mut Browser, name: &str| -> Result<(), Box<dyn Error>> {
        browser.js("joulie.took.length = 0")?;
        browser.until(&format!("joulie.took.length >= {UPDATES}"))?;
        let at = |part: &str| {
            format!("[...joulie.took].sort((a, b) => a - b)[Math.floor((joulie.took.length - 1) * {part})]")
        };
        bar(&format!("page_update_{name}_ms_p95"), number(browser, &at("0.95"))?, UPDATE_MS);
        println!("  half of them {:.1} ms or less", number(browser, &at("0.5"))?);
        Ok(())
    };
    bar("page_first_picture_ms", first, FIRST_MS);
    updates(&mut browser, "groups")?;
    browser.js("document.querySelector('#all').click()")?;
    browser
        .until(&format!("Number(document.querySelector('#tree').getAttribute('aria-rowcount')) > {NODES}"))?;
    updates(&mut browser, "all_open")?;
    let wrong = browser.complaints();
    if wrong.is_empty() { Ok(()) } else { Err(format!("the page complains: {wrong:?}").into()) }
}
