//! The page of the demo in a real browser: what it shows, that it goes on, and that each of its controls does what it says, which is
//! looked up in the API and not on the page alone.

use super::demo::{Demo, fresh, joulie};
use browser::{ACCESSIBILITY, Browser, Screen};
use bytes::Bytes;
use cluster::assets::Environment;
use cluster::{Chromium, ClusterError};
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use http::{Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DESK: Screen = Screen { width: 1280, height: 900, dark: false };
/// Where the pictures of the documents are written (`cargo xtask pictures`), of a moment at which much is to be seen; without it they are
/// written beside the build, at once.
const PICTURES: &str = "JOULIE_PAGE_PICTURES";
const NODE: &str = "sim-epyc-0";

/// The browser; `None` after a SKIP, if it cannot be had.
fn chromium() -> Option<Chromium> {
    match Chromium::obtain(&Environment::of_this_process()) {
        Ok(chromium) => Some(chromium),
        Err(ClusterError::Absent(why)) => {
            println!("SKIP(no browser: {why})");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// A demo without an end, and where its page is.
pub(super) struct PageDemo {
    pub(super) demo: Demo,
    pub(super) url: String,
    pub(super) targets: PathBuf,
}

impl PageDemo {
    pub(super) fn start() -> Self {
        let targets = fresh("targets");
        let mut demo = Demo::piped(&["demo", "--plain", "--targets", targets.to_str().unwrap()]);
        let mut lines = BufReader::new(demo.child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.strip_prefix("or open its page: ")?.to_owned())).unwrap();
        // A pipe that nobody reads would stop the demo.
        std::thread::spawn(move || lines.for_each(drop));
        Self { demo, url, targets }
    }

    /// What the simulator says there.
    async fn simulator(&self, path: &str) -> Value {
        let text = std::fs::read_to_string(&self.targets).unwrap_or_default();
        let targets: Value = serde_json::from_str(&text).unwrap_or_default();
        let all = targets.as_array().cloned().unwrap_or_default();
        let simulator = all.iter().find(|one| one["labels"]["job"] == "joulie-simulator");
        let Some(address) = simulator.and_then(|one| one["targets"][0].as_str()) else { return Value::Null };
        let answer = ask(Request::get(format!("http://{address}{path}")).body(Bytes::new()).unwrap()).await;
        serde_json::from_slice(&answer.unwrap_or_default()).unwrap_or_default()
    }
}

impl Drop for PageDemo {
    fn drop(&mut self) {
        let _told = Command::new("kill").args(["-INT", &self.demo.child.id().to_string()]).status();
        let _ended = self.demo.child.wait();
    }
}

pub(super) async fn exchange(request: Request<Bytes>) -> Result<(StatusCode, Bytes), String> {
    let limits = ClientLimits { timeout: Duration::from_secs(30), bytes_max: 1 << 24, idle_max: 1 };
    let client = HttpClient::new("test", limits, Trust::Nobody).map_err(|error| error.to_string())?;
    client.exchange(request, |_| true).await.map_err(|error| error.to_string())
}

pub(super) async fn ask(request: Request<Bytes>) -> Result<Bytes, String> {
    exchange(request).await.map(|(_, body)| body)
}

fn open(chromium: &Chromium, screen: Screen, url: &str) -> Browser {
    let mut browser = Browser::open(chromium, &fresh("browser"), screen).unwrap();
    browser.go(url).unwrap();
    // The site, three racks, and the first of twelve nodes.
    browser.until("document.querySelectorAll('#rows .row').length >= 8").unwrap();
    browser
}

async fn object(client: &Client, path: &str) -> Value {
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap_or_default()
}

async fn until(what: &str, is: impl AsyncFn() -> bool) {
    for _ in 0..300 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("not within a minute: {what}");
}

fn press(browser: &mut Browser, button: &str) {
    browser.js(&format!("document.querySelector('{button}').click()")).unwrap();
}

fn choose(browser: &mut Browser, select: &str, value: &str) {
    let chosen = format!(
        "(() => {{ const one = document.querySelector('{select}'); one.value = '{value}'; one.dispatchEvent(new Event('change')); return one.value }})()"
    );
    assert_eq!(browser.js(&chosen).unwrap(), value, "{select}");
}

/// What the page says was done.
fn said(browser: &mut Browser, part: &str) {
    browser.until(&format!("document.querySelector('#said').textContent.includes('{part}')")).unwrap();
    assert_eq!(browser.js("document.querySelector('#said').className").unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_control_does_what_it_says_and_the_page_goes_on() {
    let Some(chromium) = chromium() else { return };
    let demo = PageDemo::start();
    let client = demo.demo.client().await;
    let mut browser = open(&chromium, DESK, &demo.url);
    let more = "(async () => { const before = joulie.updates; await new Promise(done => setTimeout(done, 8000)); return joulie.updates - before })()";
    assert!(browser.js(more).unwrap().as_i64().unwrap() >= 8, "it is not drawn once a second");

    // The budget.
    choose(&mut browser, "#i-budget", "8000");
    press(&mut browser, "#f-budget button");
    said(&mut browser, "8000 W");
    until("the PowerBudget is changed", async || {
        object(&client, "/apis/joulie.io/v1alpha1/powerbudgets/site").await["spec"]["watts"].as_f64()
            == Some(8000.0)
    })
    .await;
    browser.until("document.querySelector('#of').textContent === 'of 8000 W'").unwrap();

    // A node without telemetry.
    let twin_fresh = async |fresh: &str| {
        let twins = object(&client, "/apis/joulie.io/v1alpha1/nodetwins").await;
        let all = twins["items"].as_array().cloned().unwrap_or_default();
        let twin = all.into_iter().find(|twin| twin["spec"]["nodeName"] == NODE).unwrap_or_default();
        let conditions = twin["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "TelemetryFresh" && one["status"] == fresh)
    };
    choose(&mut browser, "#i-node", NODE);
    press(&mut browser, "#b-node");
    said(&mut browser, "answers 500");
    until("the twin is stale", async || twin_fresh("False").await).await;
    browser
        .until(&format!("[...document.querySelectorAll('#rows .row')].some(row => row.textContent.includes('{NODE}') && row.textContent.includes('not measured'))"))
        .unwrap();
    browser.until("document.querySelector('#b-node').textContent === 'Mend'").unwrap();
    press(&mut browser, "#b-node");
    until("the twin is fresh", async || twin_fresh("True").await).await;

    // A zone without cooling.
    choose(&mut browser, "#i-zone", "zone-1");
    press(&mut browser, "#b-zone");
    said(&mut browser, "the cooling of zone-1 fails");
    until("the zone is hot", async || demo.simulator("/site/zone-1").await.to_string().contains("42")).await;
    browser.until("document.querySelector('#b-zone').textContent === 'Start'").unwrap();
    press(&mut browser, "#b-zone");
    until("the zone is mild", async || {
        let zone = demo.simulator("/site/zone-1").await;
        zone.is_object() && !zone.to_string().contains("42")
    })
    .await;

    // What else breaks.
    choose(&mut browser, "#i-fault", "sensors");
    press(&mut browser, "#b-fault");
    said(&mut browser, "the sensors of the building are silent");
    until("the sensors are silent", async || demo.simulator("/site").await["sensors"] == "silent").await;
    browser.until("document.querySelector('#b-fault').textContent === 'Mend'").unwrap();
    press(&mut browser, "#b-fault");
    until("they are mended", async || demo.simulator("/site").await["sensors"] == "ok").await;

    // The leader.
    let renewed = async || {
        let lease =
            object(&client, "/apis/coordination.k8s.io/v1/namespaces/joulie-system/leases/joulie-plan").await;
        lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned()
    };
    press(&mut browser, "#b-leader");
    said(&mut browser, "kill -9 of the operator");
    browser.until("document.querySelector('#b-leader').textContent === 'Start'").unwrap();
    let last = renewed().await;
    browser.until("/confirmed [5-9] s ago/.test(document.querySelector('#plan').textContent)").unwrap();
    assert_eq!(renewed().await, last, "somebody still plans");
    press(&mut browser, "#b-leader");
    until("somebody plans again", async || renewed().await != last).await;

    // The policy.
    choose(&mut browser, "#i-policy", "static_partition");
    press(&mut browser, "#f-policy button");
    said(&mut browser, "POLICY_TYPE=static_partition");
    until("the plan is of that policy", async || {
        let profiles = object(&client, "/apis/joulie.io/v1alpha1/nodepowerprofiles").await;
        let all = profiles["items"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| one["spec"]["policy"]["name"] == "static-partition-v1")
    })
    .await;

    // What is refused is said.
    choose(&mut browser, "#i-budget", "100");
    browser
        .js("document.querySelector('#i-budget').min = '0'; document.querySelector('#i-budget').value = '5'")
        .unwrap();
    press(&mut browser, "#f-budget button");
    browser.until("document.querySelector('#said.bad')?.textContent.includes('from 100 W')").unwrap();
    let watts = object(&client, "/apis/joulie.io/v1alpha1/powerbudgets/site").await["spec"]["watts"].as_f64();
    assert_eq!(watts, Some(8000.0));
    // The refusal itself is an error of the network in the browser's eyes.
    let wrong: Vec<String> =
        browser.complaints().into_iter().filter(|one| !one.contains("status of 400")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Without what changes from second to second.
fn steady(text: &str) -> Vec<String> {
    let digits = |line: &str| {
        line.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
    };
    let lines = text.lines().take_while(|line| !line.starts_with("  events"));
    lines.map(digits).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_and_a_pod_are_explained_as_kubectl_joulie_does_and_the_keyboard_is_enough() {
    let Some(chromium) = chromium() else { return };
    let demo = PageDemo::start();
    let client = demo.demo.client().await;
    let mut browser = open(&chromium, DESK, &demo.url);
    until("the node has a twin that is measured", async || {
        let twins = object(&client, "/apis/joulie.io/v1alpha1/nodetwins").await;
        twins["items"].to_string().contains("measuredNodePowerW")
    })
    .await;
    let by_command = || {
        let mut command = joulie();
        command.args(["kubectl", "--kubeconfig"]).arg(&demo.demo.kubeconfig).args(["explain", "node", NODE]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let same = async || {
        let asked = Request::get(format!("{}explain?node={NODE}", demo.url)).body(Bytes::new()).unwrap();
        let answer: Value = serde_json::from_slice(&ask(asked).await.unwrap_or_default()).unwrap_or_default();
        // Between the two questions the node may have changed.
        steady(answer["text"].as_str().unwrap_or_default()) == steady(&by_command())
    };
    until("both say the same", same).await;

    // From the tree into the explanation and back, by keys alone.
    browser.js("document.querySelector('#tree').focus()").unwrap();
    for key in ["ArrowDown", "ArrowDown", "Enter"] {
        browser.key(key).unwrap();
    }
    browser.until("document.querySelectorAll('#about-body dt').length >= 6").unwrap();
    let rules = browser.js(ACCESSIBILITY).unwrap();
    assert_eq!(rules, json!([]), "with the dialog");
    browser.key("Escape").unwrap();
    browser.until("!document.querySelector('#about').open && document.activeElement.id === 'tree'").unwrap();
    browser.key("ArrowLeft").unwrap();
    browser.key("ArrowLeft").unwrap();
    browser.until("[...document.querySelectorAll('#rows .row.at')].every(row => row.getAttribute('aria-expanded') === 'false')").unwrap();

    // A pod, from the list of placements.
    browser.until("document.querySelector('#placed li button')").unwrap();
    press(&mut browser, "#placed li button");
    browser.until("document.querySelector('#about-h').textContent.startsWith('pod ') && document.querySelectorAll('#about-body dt').length >= 3").unwrap();
    assert_eq!(browser.complaints(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_read_in_light_and_dark_and_on_a_phone() {
    let Some(chromium) = chromium() else { return };
    let demo = PageDemo::start();
    for (name, screen) in [
        ("page-light", Screen { height: 1084, ..DESK }),
        ("page-dark", Screen { height: 1084, dark: true, ..DESK }),
        ("page-phone", Screen { width: 390, height: 844, dark: false }),
    ] {
        let mut browser = open(&chromium, screen, &demo.url);
        browser.until("document.querySelectorAll('#curve path.draw[d]').length === 1 && document.querySelectorAll('#placed li').length >= 5").unwrap();
        if pictures().is_some() {
            lively(&mut browser);
        }
        assert_eq!(browser.js(ACCESSIBILITY).unwrap(), json!([]), "{name}");
        let wide = browser.js("document.documentElement.scrollWidth - innerWidth").unwrap();
        assert!(wide.as_i64().unwrap() <= 0, "{name} must be scrolled sideways by {wide}");
        let folder = pictures().unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned());
        std::fs::write(folder.join(format!("{name}.webp")), browser.picture().unwrap()).unwrap();
        assert_eq!(browser.complaints(), [""; 0], "{name}");
        if name == "page-light" {
            // The rules bite.
            browser
                .js("document.querySelector('main').insertAdjacentHTML('beforeend', '<section aria-label=x><button></button><p id=pale>pale</p></section>'); document.getElementById('pale').style.color = '#bbb'")
                .unwrap();
            let wrong = browser.js(ACCESSIBILITY).unwrap().to_string();
            assert!(wrong.contains("it has no name") && wrong.contains("a contrast of"), "{wrong}");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one variable of this suite")]
fn pictures() -> Option<PathBuf> {
    std::env::var_os(PICTURES).map(PathBuf::from)
}

/// Waits until there is something to see: two minutes of the curve, nodes of both kinds, and things that have happened.
fn lively(browser: &mut Browser) {
    let several = "(document.querySelector('#curve path.draw').getAttribute('d').match(/L/g) ?? []).length >= 120 && \
                   ['performance', 'eco'].every(what => document.querySelector(`#states [data-class=${what}] b`).textContent >= 3) && \
                   document.querySelectorAll('#lines li').length >= 8";
    let seen = (0..8).any(|_| browser.until(several).is_ok());
    assert!(seen, "there is little to see");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_site_can_neither_read_the_page_nor_give_it_orders() {
    let demo = PageDemo::start();
    let document = Request::get(demo.url.as_str()).body(Bytes::new()).unwrap();
    let document = String::from_utf8(ask(document).await.unwrap().to_vec()).unwrap();
    let token = document.split("joulie-token\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(token.len(), 32);
    let host = demo.url.strip_prefix("http://").unwrap().strip_suffix("/ui/").unwrap();
    let order = |headers: &[(&str, &str)]| {
        let mut request = Request::post(format!("{}do", demo.url)).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        exchange(request.body(Bytes::from_static(b"{\"do\": \"budget\", \"watts\": 7000}")).unwrap())
    };
    let shown = ("joulie-page-token", token);
    let refusals: [(&[(&str, &str)], &str); 4] = [
        (&[], "another token"),
        (&[("joulie-page-token", "0")], "another token"),
        (&[shown, ("origin", "http://evil.example")], "another site"),
        (&[shown, ("host", "evil.example")], "by the address"),
    ];
    for (headers, why) in refusals {
        let (status, said) = order(headers).await.unwrap();
        let said = String::from_utf8_lossy(&said);
        assert!(status == StatusCode::FORBIDDEN && said.contains(why), "{headers:?}: {status} {said}");
    }
    let origin = format!("http://{host}");
    let client = demo.demo.client().await;
    until("an order of the page itself is carried out", async || {
        let done =
            order(&[shown, ("origin", &origin)]).await.is_ok_and(|(status, _)| status == StatusCode::OK);
        let site = object(&client, "/apis/joulie.io/v1alpha1/powerbudgets/site").await;
        done && site["spec"]["watts"].as_f64() == Some(7000.0)
    })
    .await;
}

#[test]
fn without_a_page_nothing_listens() {
    let output = joulie().args(["demo", "--plain", "--page", "off", "--for", "1s"]).output().unwrap();
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stdout).contains("its page"));
}
