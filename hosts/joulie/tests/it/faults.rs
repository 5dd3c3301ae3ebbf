//! Alerts on a real Prometheus, while the faults that they are made for happen in the demo: these alerts fire, and no other does.

use super::demo::fresh;
use super::page::{PageDemo, ask, exchange};
use super::prometheus::{Prometheus, deploy, folder, or_skip, yaml};
use bytes::Bytes;
use cluster::assets::Environment;
use cluster::prometheus::obtain;
use http::{Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// For how long what is wrong is wrong before an alert fires, in place of minutes.
const FOR: &str = "12s";
/// Over which time rates are taken, in place of minutes: once is not enough for an alert.
const WINDOW: &str = "[10s]";
/// How often the alerts are looked at, each second.
const LOOKS: u32 = 120;
/// After a fault that no alert is for.
const QUIET_LOOKS: u32 = 20;

const NODE: &str = "sim-epyc-0";
const OTHER: &str = "sim-epyc-1";
const LEADER: &str = "/apis/coordination.k8s.io/v1/namespaces/joulie-system/leases/joulie-operator";
const BUDGETS: &str = "/apis/joulie.io/v1alpha1/powerbudgets";

/// What breaks something, or mends it.
enum Step {
    /// An order to the demo, as its page gives it.
    Order(&'static str),
    /// The simulated machine does so; without anything it is mended.
    Machine(&'static str, Option<&'static str>),
    /// A request to the API server: method, path and body.
    Api(&'static str, &'static str, &'static str),
    /// The agent is not scraped any more, as if it had died.
    Unscraped,
    /// It is scraped again.
    Scraped,
}

use Step::{Api, Machine, Order, Scraped, Unscraped};

/// A fault.
struct Fault {
    what: &'static str,
    begin: &'static [Step],
    mend: &'static [Step],
    /// The alerts that are made for it, with what they name.
    fires: &'static [(&'static str, &'static str)],
    /// The alerts that may follow, with the reason. Where none is named before, one of these does.
    follows: &'static [(&'static str, &'static str)],
}

const NO_PLAN: &str = "nobody confirms the plan: after half a minute the extender believes no twin";
const AS_BEFORE: Step = Order(r#"{"do": "budget", "watts": 9000}"#);

/// What happens to machines, and what a person asks of them.
const OF_MACHINES: [Fault; 6] = [
    Fault {
        what: "the telemetry of a node answers 500: its cap cannot be read back, and its power is not measured",
        begin: &[Order(r#"{"do": "silence", "node": "sim-epyc-0"}"#)],
        mend: &[Order(r#"{"do": "hear", "node": "sim-epyc-0"}"#)],
        fires: &[("JoulieDriverFails", NODE), ("JoulieMeterBlind", NODE), ("JoulieCapUnknown", NODE)],
        follows: &[],
    },
    Fault {
        what: "the cooling of a zone fails: new pods go elsewhere by themselves, which is nothing for a person to do",
        begin: &[Order(r#"{"do": "heat", "zone": "zone-1"}"#)],
        mend: &[Order(r#"{"do": "cool", "zone": "zone-1"}"#)],
        fires: &[],
        follows: &[],
    },
    Fault {
        what: "the limit is lowered to what can be kept",
        begin: &[Order(r#"{"do": "budget", "watts": 8000}"#)],
        mend: &[AS_BEFORE],
        fires: &[],
        follows: &[],
    },
    Fault {
        what: "the limit is lowered below the lowest caps",
        begin: &[Order(r#"{"do": "budget", "watts": 6000}"#)],
        mend: &[AS_BEFORE],
        fires: &[("JoulieBudgetShort", "powerbudget/site")],
        follows: &[("JoulieBudgetExceeded", "what the lowest caps let through is more than this limit")],
    },
    Fault {
        what: "a machine takes limits and keeps the old ones, while the limit of the site is lowered",
        begin: &[
            Machine(OTHER, Some(r#"{"control": "ignored"}"#)),
            Order(r#"{"do": "budget", "watts": 6600}"#),
        ],
        mend: &[Machine(OTHER, None), AS_BEFORE],
        fires: &[("JoulieGrantExceeded", OTHER)],
        follows: &[
            ("JoulieBudgetShort", "what the machine keeps is missing for the others"),
            ("JoulieBudgetExceeded", "what the machine keeps counts"),
        ],
    },
    Fault {
        what: "a machine takes no limits, while the limit of the site is lowered",
        begin: &[
            Machine(OTHER, Some(r#"{"control": "error"}"#)),
            Order(r#"{"do": "budget", "watts": 8000}"#),
        ],
        mend: &[Machine(OTHER, None), AS_BEFORE],
        fires: &[],
        // What is known of it depends on whether its grant was lowered before it refused.
        follows: &[
            ("JoulieCapNotEnforced", "its agent says that the limit is refused"),
            ("JoulieCapUnknown", "nobody knows what it holds"),
            ("JoulieGrantExceeded", "it holds what it was granted before"),
            ("JoulieGrantNotInForce", "it does not take the lower grant"),
        ],
    },
];

/// What happens to programs and their objects.
const OF_PROGRAMS: [Fault; 4] = [
    Fault {
        what: "a person writes a PowerBudget that cannot be read",
        begin: &[Api(
            "POST",
            BUDGETS,
            r#"{"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "broken"},
                "spec": {"watts": 50000, "mode": "observe", "sustainedWatts": 100, "nodeSelector": {"matchLabels": {"of": "nobody"}}}}"#,
        )],
        mend: &[Api("DELETE", "/apis/joulie.io/v1alpha1/powerbudgets/broken", "{}")],
        fires: &[("JoulieObjectsUnreadable", "")],
        follows: &[],
    },
    Fault {
        what: "somebody holds the operators' Lease and does not plan",
        begin: &[Api(
            "PATCH",
            LEADER,
            r#"{"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 600, "renewTime": "2026-01-01T00:00:00.000000Z"}}"#,
        )],
        mend: &[Api("PATCH", LEADER, r#"{"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}"#)],
        fires: &[("JoulieNoLeader", "")],
        follows: &[
            ("JoulieTelemetryStale", NO_PLAN),
            ("JoulieExtenderNotReady", NO_PLAN),
            ("JoulieProgramNotReady", NO_PLAN),
            ("JouliePlacementsBlind", NO_PLAN),
            ("JouliePlanUnconfirmed", NO_PLAN),
        ],
    },
    Fault {
        what: "the operator is killed",
        begin: &[Order(r#"{"do": "kill-leader"}"#)],
        mend: &[Order(r#"{"do": "start-leader"}"#)],
        fires: &[("JoulieProgramGone", "operator")],
        follows: &[
            ("JoulieTelemetryStale", NO_PLAN),
            ("JoulieExtenderNotReady", NO_PLAN),
            ("JoulieProgramNotReady", NO_PLAN),
            ("JouliePlacementsBlind", NO_PLAN),
            ("JouliePlanUnconfirmed", NO_PLAN),
        ],
    },
    Fault {
        what: "the agent dies",
        begin: &[Unscraped],
        mend: &[Scraped],
        fires: &[
            ("JoulieProgramGone", "agent"),
            ("JoulieAgentSilent", "sim-epyc-0"),
            ("JoulieAgentSilent", "sim-xeon-0"),
        ],
        follows: &[("JoulieAgentSilent", "each of its nodes is named, and two of them are enough here")],
    },
];

/// The rules with shorter times.
fn shortened() -> Value {
    let mut rules = yaml(&deploy().join("alerts/joulie.yaml"));
    for group in rules["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            if rule["for"].is_string() {
                rule["for"] = json!(FOR);
            }
            let mut expr = rule["expr"].as_str().unwrap().to_owned();
            for window in ["[5m]", "[10m]", "[15m]", "[30m]"] {
                expr = expr.replace(window, WINDOW);
            }
            rule["expr"] = json!(expr);
        }
    }
    rules
}

/// An alert that fires: its name, and the node, group or program that it names.
type Firing = BTreeSet<(String, String)>;

async fn firing(prometheus: &Prometheus) -> Firing {
    let said = prometheus.get("/api/v1/alerts").await.unwrap_or_default();
    let all = said["data"]["alerts"].as_array().cloned().unwrap_or_default();
    let of = |alert: &Value| {
        let labels = &alert["labels"];
        let about = ["node", "group", "component"].iter().find_map(|label| labels[*label].as_str());
        (labels["alertname"].as_str().unwrap().to_owned(), about.unwrap_or_default().to_owned())
    };
    all.iter().filter(|alert| alert["state"] == "firing").map(of).collect()
}

/// Looks until this is so; whatever fires meanwhile must be the fault's.
async fn until(prometheus: &Prometheus, fault: &Fault, is: impl Fn(&Firing) -> bool) -> bool {
    for _ in 0..LOOKS {
        let now = firing(prometheus).await;
        for (alert, about) in &now {
            let is_for_it = fault.fires.iter().any(|(name, of)| name == alert && of == about);
            let follows = fault.follows.iter().any(|(name, _)| name == alert);
            assert!(is_for_it || follows, "{}: {alert} of {about:?} fires too: {now:?}", fault.what);
        }
        if is(&now) {
            return true;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    false
}

/// Gives an order, as the page does.
async fn order(demo: &PageDemo, order: &'static str) {
    let document = Request::get(demo.url.as_str()).body(Bytes::new()).unwrap();
    let document = String::from_utf8(ask(document).await.unwrap().to_vec()).unwrap();
    let token = document.split("joulie-token\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    let request = Request::post(format!("{}do", demo.url)).header("content-type", "application/json");
    let request = request.header("joulie-page-token", token).body(Bytes::from_static(order.as_bytes()));
    let (status, said) = exchange(request.unwrap()).await.unwrap();
    assert_eq!(status, StatusCode::OK, "{order}: {}", String::from_utf8_lossy(&said));
}

/// Writes what is scraped, as a whole.
fn scrape<'t>(targets: impl Iterator<Item = &'t Value>, file: &Path) {
    let new = file.with_extension("new");
    let all: Vec<Value> = targets.cloned().collect();
    std::fs::write(&new, Value::from(all).to_string()).unwrap();
    std::fs::rename(&new, file).unwrap();
}

/// What steps are taken on.
struct Site<'a> {
    demo: &'a PageDemo,
    client: Client,
    targets: &'a [Value],
    scraped: &'a Path,
}

impl Site<'_> {
    async fn take(&self, steps: &[Step]) {
        for step in steps {
            match step {
                Order(text) => order(self.demo, text).await,
                Machine(node, does) => self.machine(node, *does).await,
                Api(method, path, body) => self.request(method, path, body).await,
                Unscraped => {
                    let is_agent = |target: &&Value| target["labels"]["job"] == "joulie-agent";
                    scrape(self.targets.iter().filter(|target| !is_agent(target)), self.scraped);
                }
                Scraped => scrape(self.targets.iter(), self.scraped),
            }
        }
    }

    async fn machine(&self, node: &str, does: Option<&str>) {
        let mut simulators =
            self.targets.iter().filter(|target| target["labels"]["job"] == "joulie-simulator");
        let address = simulators.next().unwrap()["targets"][0].as_str().unwrap();
        let method = if does.is_some() { "POST" } else { "DELETE" };
        let request = Request::builder().method(method).uri(format!("http://{address}/faults/{node}"));
        let body = Bytes::from(does.unwrap_or_default().to_owned());
        let request = request.header("content-type", "application/json").body(body);
        let (status, said) = exchange(request.unwrap()).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{node}: {}", String::from_utf8_lossy(&said));
    }

    async fn request(&self, method: &str, path: &str, body: &str) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let _done: Value =
            self.client.request(request.body(body.as_bytes().to_vec()).unwrap()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_each_fault_of_a_machine_the_alerts_that_are_made_for_it_fire_and_no_other() {
    the_alerts_of_each_fire("faults-of-machines", &OF_MACHINES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_each_fault_of_a_program_the_alerts_that_are_made_for_it_fire_and_no_other() {
    the_alerts_of_each_fire("faults-of-programs", &OF_PROGRAMS).await;
}

/// Begins and mends one fault after the other, in a demo of its own that a Prometheus of its own scrapes.
async fn the_alerts_of_each_fire(name: &str, faults: &[Fault]) {
    let Some(program) = or_skip(obtain(&Environment::of_this_process())) else { return };
    let folder = folder(name);
    std::fs::write(folder.join("joulie.yaml"), shortened().to_string()).unwrap();
    let demo = PageDemo::start();
    let scraped = fresh("scraped").with_extension("json");
    let prometheus = Prometheus::start(&program, &folder, &scraped);
    let mut targets = Vec::new();
    for _ in 0..LOOKS {
        let text = std::fs::read_to_string(&demo.targets).unwrap_or_default();
        targets = serde_json::from_str(&text).unwrap_or_default();
        if !targets.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(targets.len(), 4, "agent, operator, extender, simulator: {targets:?}");
    let client = demo.demo.client().await;
    let site = Site { demo: &demo, client, targets: &targets, scraped: &scraped };
    site.take(&[Scraped]).await;
    let healthy = "sum(joulie_ready) == 4 and on () sum(joulie_cap_enforced == bool 1) == 12";
    let is_healthy =
        async || !prometheus.values(healthy).await.is_empty() && firing(&prometheus).await.is_empty();
    let mut before = is_healthy().await;
    for _ in 0..LOOKS {
        if before {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        before = is_healthy().await;
    }
    assert!(before, "it is not healthy before the first fault: {:?}", firing(&prometheus).await);
    for fault in faults {
        site.take(fault.begin).await;
        if fault.fires.is_empty() && fault.follows.is_empty() {
            for _ in 0..QUIET_LOOKS {
                assert!(until(&prometheus, fault, |_| true).await);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        let all = |now: &Firing| {
            let named =
                fault.fires.iter().all(|(name, of)| now.contains(&((*name).to_owned(), (*of).to_owned())));
            named && (fault.follows.is_empty() || !now.is_empty())
        };
        assert!(until(&prometheus, fault, all).await, "{}: {:?} fire", fault.what, firing(&prometheus).await);
        site.take(fault.mend).await;
        assert!(until(&prometheus, fault, Firing::is_empty).await, "{}: it is mended", fault.what);
    }
    drop(site);
    drop((prometheus, demo));
    std::fs::remove_dir_all(&folder).unwrap();
    let _gone = std::fs::remove_file(&scraped);
}
