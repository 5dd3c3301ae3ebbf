//! Alerts on a real Prometheus, while the faults that they are made for happen in the demo: these alerts fire, and no other does.

use super::demo::fresh;
use super::page::{PageDemo, ask, exchange};
use super::prometheus::{Prometheus, alerts, deploy, folder, or_skip, yaml};
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
/// The same of the alerts that look at what is lowered, read and read back all the time, which takes longer where the processors are
/// busy.
const LONGER: &str = "24s";
const LONG: [&str; 3] = ["JoulieGrantExceeded", "JoulieGrantNotInForce", "JoulieMeterBlind"];
/// Over which times rates are taken, in place of minutes: once is not enough for an alert. What is asked again with growing pauses needs
/// the longer ones.
const WINDOWS: [(&str, &str); 4] =
    [("[5m]", "[10s]"), ("[10m]", "[10s]"), ("[15m]", "[20s]"), ("[30m]", "[20s]")];
/// How old a sensor's value may be, in seconds.
const AGES: [(&str, &str); 1] = [("> 600", "> 10")];
/// How often the alerts are looked at, each second, before it is given up: generous, because the machine may be busy.
const LOOKS: u32 = 240;
/// So many looks in a row find a healthy demo before the first fault: whatever is about to fire since the start has fired by then.
const WELL: u32 = 25;
/// After faults that no alert is for.
const QUIET_LOOKS: u32 = 20;

const NODE: &str = "sim-epyc-0";
const WRITTEN_TO: &str = "sim-epyc-1";
const KEEPS: &str = "sim-epyc-0";
const REFUSES: &str = "sim-gpu-1";
const FAILS: &str = "sim-gpu-2";
const SLOW: &str = "sim-gpu-0";
const GUEST: &str = "guest";
const SLEEPER: &str = "sleeper";
const SITE: &str = "powerbudget/site";
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
    /// What follows waits until this query has an answer.
    Seen(&'static str),
}

use Step::{Api, Machine, Order, Scraped, Seen, Unscraped};

/// What an alert that may follow is about.
#[derive(Clone, Copy)]
enum About {
    /// This node, group or whatever it is, and no other.
    Only(&'static str),
    /// Any: the fault is no single node's.
    Any,
}

use About::{Any, Only};

/// An alert that may follow a fault, what it is about, and why.
type Follower = (&'static str, About, &'static str);

/// A fault.
struct Fault {
    what: &'static str,
    begin: &'static [Step],
    mend: &'static [Step],
    /// The alerts that are made for it, with what they name.
    fires: &'static [(&'static str, &'static str)],
    /// The alerts that may follow.
    follows: &'static [Follower],
}

/// Faults that do not disturb each other happen at the same time, and are mended one by one.
type Together = &'static [Fault];

const NO_PLAN: &str = "nobody confirms the plan: after half a minute the extender believes no twin";
const EACH: &str = "each one of them is named";
const NOT_WRITTEN: &str = "what the agents write does not arrive";
const NO_ROOM: &str = "what its machines keep is missing for the others";
const AS_BEFORE: Step = Order(r#"{"do": "budget", "watts": 9000}"#);
/// Without a limit that binds, each of these machines is allowed more than its least.
const ALLOWED_MORE: &str = r#"count(joulie_grant_watts{what="held",node=~"sim-epyc-0|sim-gpu-.*"} - ignoring (what) joulie_grant_watts{what="floor"} > 40) == 4"#;

/// What may follow where a machine does not take the lower limit that it was told.
const fn unkept(node: &'static str) -> [Follower; 9] {
    [
        ("JoulieBudgetShort", Only(SITE), NO_ROOM),
        ("JoulieBudgetExceeded", Only(SITE), NO_ROOM),
        ("JoulieGrantExceeded", Only(node), "it holds what it was granted before"),
        ("JoulieGrantRefused", Only(node), "it does not go down to the lower grant"),
        ("JoulieCapNotEnforced", Only(node), "its agent says that the limit is refused"),
        ("JoulieCapUnknown", Only(node), "its agent does not know what it holds"),
        ("JoulieDriverFails", Only(node), "it answers late"),
        ("JoulieMeterBlind", Only(node), "it answers late"),
        ("JoulieTelemetryStale", Only(node), "it is not measured"),
    ]
}

/// What may follow of a node that has no machine.
const fn unanswered(node: &'static str) -> [Follower; 5] {
    const WHY: &str = "no machine answers for it";
    [
        ("JoulieDriverFails", Only(node), WHY),
        ("JoulieMeterBlind", Only(node), WHY),
        ("JoulieCapUnknown", Only(node), WHY),
        ("JoulieCapNotEnforced", Only(node), WHY),
        ("JoulieTelemetryStale", Only(node), WHY),
    ]
}

const OF_MACHINES: [Together; 5] = [
    &[
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
    ],
    &[
        Fault {
            what: "the telemetry of a node answers 500: its cap cannot be read back, and its power is not measured",
            begin: &[Order(r#"{"do": "silence", "node": "sim-epyc-0"}"#)],
            mend: &[Order(r#"{"do": "hear", "node": "sim-epyc-0"}"#)],
            fires: &[("JoulieDriverFails", NODE), ("JoulieMeterBlind", NODE), ("JoulieCapUnknown", NODE)],
            follows: &[("JoulieTelemetryStale", Only(NODE), "it is not measured")],
        },
        Fault {
            what: "the sensors of the building are silent",
            begin: &[Order(r#"{"do": "break", "fault": "sensors"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "sensors"}"#)],
            fires: &[("JoulieSensorSilent", "zone-0"), ("JoulieSensorSilent", "zone-1")],
            follows: &[("JoulieSensorSilent", Only("zone-2"), EACH), ("JoulieSensorSilent", Only(""), EACH)],
        },
        Fault {
            what: "a node joins that no agent reaches, and nobody knows what it draws",
            begin: &[Order(r#"{"do": "break", "fault": "unknown-node"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "unknown-node"}"#)],
            fires: &[
                ("JoulieBudgetLoadUnknown", SITE),
                // The limits of the settings are one more group.
                ("JoulieBudgetLoadUnknown", "site"),
                ("JoulieDriverFails", GUEST),
            ],
            follows: &unanswered(GUEST),
        },
    ],
    &[Fault {
        what: "the limit is lowered below the lowest caps",
        begin: &[Order(r#"{"do": "budget", "watts": 6000}"#)],
        mend: &[AS_BEFORE],
        fires: &[("JoulieBudgetShort", SITE)],
        follows: &[(
            "JoulieBudgetExceeded",
            Only(SITE),
            "what the lowest caps let through is more than this limit",
        )],
    }],
    // The limit is raised so far that all machines are allowed more than their least, and lowered below that when they are broken: so
    // each of them is told less.
    &[
        Fault {
            what: "a machine takes limits and keeps the old ones, while the limit of the site is lowered",
            begin: &[
                Order(r#"{"do": "budget", "watts": 12000}"#),
                Seen(ALLOWED_MORE),
                Machine(KEEPS, Some(r#"{"control": "ignored"}"#)),
            ],
            mend: &[AS_BEFORE, Machine(KEEPS, None)],
            fires: &[("JoulieGrantExceeded", KEEPS)],
            follows: &unkept(KEEPS),
        },
        Fault {
            what: "a machine says that it takes no limits",
            begin: &[Machine(REFUSES, Some(r#"{"control": "blocked"}"#))],
            mend: &[Machine(REFUSES, None)],
            fires: &[("JoulieGrantRefused", REFUSES)],
            follows: &unkept(REFUSES),
        },
        Fault {
            what: "a machine takes 20 seconds for each answer",
            begin: &[Order(r#"{"do": "break", "fault": "slow-machine"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "slow-machine"}"#)],
            fires: &[("JoulieGrantNotInForce", SLOW)],
            follows: &unkept(SLOW),
        },
        Fault {
            what: "a machine's controls answer 500",
            begin: &[
                Machine(FAILS, Some(r#"{"control": "error"}"#)),
                Order(r#"{"do": "budget", "watts": 6000}"#),
            ],
            mend: &[Machine(FAILS, None)],
            fires: &[("JoulieCapNotEnforced", FAILS), ("JoulieBudgetExceeded", SITE)],
            follows: &unkept(FAILS),
        },
    ],
    &[
        Fault {
            what: "another program sets the limits of a machine",
            begin: &[Order(r#"{"do": "break", "fault": "other-writer"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "other-writer"}"#)],
            fires: &[("JoulieOtherWriter", WRITTEN_TO)],
            follows: &[],
        },
        Fault {
            what: "performance pods stay on nodes that are to become eco nodes",
            begin: &[Order(r#"{"do": "break", "fault": "pods-stay"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "pods-stay"}"#)],
            fires: &[("JoulieDrainOverdue", "")],
            follows: &[],
        },
        Fault {
            what: "a node that was put to sleep does not wake",
            begin: &[Order(r#"{"do": "break", "fault": "sleeper"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "sleeper"}"#)],
            fires: &[("JoulieNodeLeftToPeople", "")],
            follows: &unanswered(SLEEPER),
        },
    ],
];

const OF_PROGRAMS: [Together; 7] = [
    &[
        Fault {
            what: "the extender is killed",
            begin: &[Order(r#"{"do": "break", "fault": "extender"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "extender"}"#)],
            fires: &[("JoulieProgramGone", "extender")],
            follows: &[],
        },
        Fault {
            what: "a person writes a PowerBudget that cannot be read",
            begin: &[Api(
                "POST",
                BUDGETS,
                r#"{"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "broken"},
                    "spec": {"watts": 50000, "mode": "observe", "sustainedWatts": 100, "nodeSelector": {"matchLabels": {"of": "nobody"}}}}"#,
            )],
            mend: &[Api("DELETE", "/apis/joulie.io/v1alpha1/powerbudgets/broken", "{}")],
            fires: &[("JoulieObjectsUnreadable", "PowerBudget")],
            follows: &[],
        },
        Fault {
            what: "a person makes a mistake in the operator's file of settings",
            begin: &[Order(r#"{"do": "break", "fault": "settings"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "settings"}"#)],
            fires: &[("JoulieConfigRefused", "operator")],
            follows: &[],
        },
    ],
    &[
        Fault {
            what: "a person takes two rights from the programs, and the limit is lowered to what could be kept",
            // A site that is steady has no grant to write.
            begin: &[
                Order(r#"{"do": "break", "fault": "rights"}"#),
                Order(r#"{"do": "budget", "watts": 7500}"#),
            ],
            mend: &[Order(r#"{"do": "mend", "fault": "rights"}"#), AS_BEFORE],
            fires: &[("JoulieWritesRefused", "grant"), ("JoulieWatchForbidden", "workloadprofiles")],
            follows: &[
                ("JoulieBudgetExceeded", Only(SITE), "no grant can be lowered"),
                ("JoulieBudgetShort", Only(SITE), "no grant can be lowered"),
            ],
        },
        Fault {
            what: "Prometheus answers 500",
            begin: &[Order(r#"{"do": "break", "fault": "prometheus"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "prometheus"}"#)],
            fires: &[("JouliePrometheusQueriesFail", "ambient")],
            follows: &[
                ("JouliePrometheusQueriesFail", Any, EACH),
                ("JoulieSensorSilent", Any, "what Prometheus does not say is not heard"),
            ],
        },
        Fault {
            what: "the extender is started again without the right to read NodeTwins",
            begin: &[Order(r#"{"do": "break", "fault": "extender-rights"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "extender-rights"}"#)],
            fires: &[("JoulieExtenderNotReady", ""), ("JoulieProgramNotReady", "extender")],
            follows: &[
                ("JoulieWatchForbidden", Only("nodetwins"), "it is the right to watch them"),
                ("JouliePlacementsBlind", Only(""), "no twin is known"),
                ("JoulieTelemetryStale", Any, "no twin is known"),
            ],
        },
    ],
    &[
        Fault {
            what: "the second meter of each node is a thermometer",
            begin: &[Order(r#"{"do": "break", "fault": "second-meter"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "second-meter"}"#)],
            fires: &[("JoulieMetersDisagree", "")],
            follows: &[],
        },
        Fault {
            what: "pods are to be evicted from hot nodes, and their controller cannot be told",
            begin: &[
                Order(r#"{"do": "break", "fault": "evictions"}"#),
                Order(r#"{"do": "heat", "zone": "zone-1"}"#),
            ],
            mend: &[
                Order(r#"{"do": "mend", "fault": "evictions"}"#),
                Order(r#"{"do": "cool", "zone": "zone-1"}"#),
            ],
            fires: &[("JoulieEvictionsFail", "")],
            follows: &[],
        },
        Fault {
            what: "nobody renews the certificate of the extender",
            begin: &[Order(r#"{"do": "break", "fault": "certificate"}"#)],
            mend: &[Order(r#"{"do": "mend", "fault": "certificate"}"#)],
            fires: &[("JoulieCertificateEnds", "")],
            follows: &[],
        },
    ],
    &[Fault {
        what: "somebody holds the operators' Lease and does not plan",
        begin: &[Api(
            "PATCH",
            LEADER,
            r#"{"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 600, "renewTime": "2026-01-01T00:00:00.000000Z"}}"#,
        )],
        mend: &[Api("PATCH", LEADER, r#"{"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}"#)],
        fires: &[("JoulieNoLeader", ""), ("JoulieTelemetryStale", NODE), ("JouliePlacementsBlind", "")],
        follows: NOBODY_PLANS,
    }],
    &[Fault {
        what: "the operator is killed",
        begin: &[Order(r#"{"do": "kill-leader"}"#)],
        mend: &[Order(r#"{"do": "start-leader"}"#)],
        fires: &[("JoulieProgramGone", "operator")],
        follows: NOBODY_PLANS,
    }],
    &[Fault {
        what: "the agent dies",
        begin: &[Unscraped],
        mend: &[Scraped],
        fires: &[
            ("JoulieProgramGone", "agent"),
            ("JoulieAgentSilent", "sim-epyc-0"),
            ("JoulieAgentSilent", "sim-xeon-0"),
        ],
        follows: &[("JoulieAgentSilent", Any, "each of its nodes is named, and two of them are enough here")],
    }],
    // The last, because what could not be written meanwhile counts for a time after that.
    &[Fault {
        what: "the agents do not reach the API server",
        begin: &[Order(r#"{"do": "break", "fault": "agents-cut-off"}"#)],
        mend: &[Order(r#"{"do": "mend", "fault": "agents-cut-off"}"#)],
        fires: &[("JouliePlanUnconfirmed", "sim-epyc-0"), ("JouliePlanUnconfirmed", "sim-xeon-0")],
        follows: &[
            ("JouliePlanUnconfirmed", Any, "each of their nodes is named, and two of them are enough here"),
            ("JoulieWritesRefused", Only("nodehardware"), NOT_WRITTEN),
            ("JoulieWritesRefused", Only("nodepowergrant"), NOT_WRITTEN),
            ("JoulieWritesRefused", Only("nodepowerprofile"), NOT_WRITTEN),
            ("JoulieWritesRefused", Only("nodetwin"), NOT_WRITTEN),
            ("JoulieTelemetryStale", Any, NOT_WRITTEN),
            ("JouliePlacementsBlind", Only(""), NOT_WRITTEN),
        ],
    }],
];

/// What may follow where nobody plans for half a minute.
const NOBODY_PLANS: &[Follower] = &[
    ("JoulieTelemetryStale", Any, NO_PLAN),
    ("JoulieExtenderNotReady", Only(""), NO_PLAN),
    ("JoulieProgramNotReady", Only("extender"), NO_PLAN),
    ("JouliePlacementsBlind", Only(""), NO_PLAN),
    ("JouliePlanUnconfirmed", Any, NO_PLAN),
];

/// The alerts that no fault of the demo makes fire: why, the test in which a program exports what the rule looks at, and a part of it.
const ELSEWHERE: &[(&str, &str, &str, &str)] = &[(
    "JoulieHandlerPanicked",
    "it is a defect",
    "host-kit/tests/it/server.rs",
    r#"joulie_http_panics_total{port=\"work\"}"#,
)];

fn all_faults() -> impl Iterator<Item = &'static Fault> {
    OF_MACHINES.into_iter().chain(OF_PROGRAMS).flatten()
}

#[test]
fn every_alert_fires_in_a_fault_of_the_demo_or_a_test_has_its_metric_from_a_program() {
    let names = alerts();
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut all: BTreeSet<&str> =
        all_faults().flat_map(|fault| fault.fires).map(|(alert, _)| *alert).collect();
    for (alert, why, test, part) in ELSEWHERE {
        assert!(!why.is_empty() && all.insert(alert), "{alert} fires in a fault of the demo");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(test);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(part), "{alert}: {part} is not in {test}");
    }
    assert_eq!(all, names);
    for (alert, _, why) in all_faults().flat_map(|fault| fault.follows) {
        assert!(names.contains(alert) && !why.is_empty(), "{alert}");
    }
}

#[test]
fn an_alert_of_another_machine_or_limit_belongs_to_no_fault_of_machines() {
    for group in OF_MACHINES {
        let is_explained = |alert: &str, about: &str| group.iter().any(|fault| fault.explains(alert, about));
        for alert in &alerts() {
            assert!(
                !is_explained(alert, "sim-xeon-3") && !is_explained(alert, "powerbudget/rack-1"),
                "{alert}"
            );
        }
    }
    let broken = |node: &str| {
        let all = OF_MACHINES.into_iter().flatten();
        all.filter(|fault| fault.explains("JoulieGrantRefused", node)).count()
    };
    assert_eq!([KEEPS, REFUSES, SLOW, FAILS, WRITTEN_TO, GUEST].map(broken), [1, 1, 1, 1, 0, 0]);
}

/// The rules with shorter times.
fn shortened() -> Value {
    let mut rules = yaml(&deploy().join("alerts/joulie.yaml"));
    for group in rules["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            if rule["for"].is_string() {
                let is_long = LONG.iter().any(|alert| rule["alert"] == *alert);
                rule["for"] = json!(if is_long { LONGER } else { FOR });
            }
            let mut expr = rule["expr"].as_str().unwrap().to_owned();
            for (minutes, seconds) in WINDOWS.into_iter().chain(AGES) {
                expr = expr.replace(minutes, seconds);
            }
            rule["expr"] = json!(expr);
        }
    }
    rules
}

/// What an alert may be about, the first that it has.
const ABOUT: [&str; 7] = ["node", "group", "component", "place", "purpose", "object", "kind"];

/// The alerts that fire, each with the node, group or whatever it is about.
type Firing = BTreeSet<(String, String)>;

async fn firing(prometheus: &Prometheus) -> Firing {
    let said = prometheus.get("/api/v1/alerts").await.unwrap_or_default();
    let all = said["data"]["alerts"].as_array().cloned().unwrap_or_default();
    let of = |alert: &Value| {
        let labels = &alert["labels"];
        let about = ABOUT.iter().find_map(|label| labels[*label].as_str());
        (labels["alertname"].as_str().unwrap().to_owned(), about.unwrap_or_default().to_owned())
    };
    all.iter().filter(|alert| alert["state"] == "firing").map(of).collect()
}

impl Fault {
    fn is_for(&self, alert: &str, about: &str) -> bool {
        self.fires.iter().any(|(name, of)| *name == alert && *of == about)
    }

    /// Whether an alert is one of this fault or may follow.
    fn explains(&self, alert: &str, about: &str) -> bool {
        let follows = |(name, of, _): &Follower| {
            *name == alert
                && match of {
                    Only(one) => *one == about,
                    Any => true,
                }
        };
        self.is_for(alert, about) || self.follows.iter().any(follows)
    }
}

/// Looks until this is so; whatever fires meanwhile must be of these faults.
async fn until(prometheus: &Prometheus, faults: &[Fault], is: impl Fn(&Firing) -> bool) -> bool {
    for _ in 0..LOOKS {
        let now = firing(prometheus).await;
        for (alert, about) in &now {
            let is_explained = faults.iter().any(|fault| fault.explains(alert, about));
            let what: Vec<&str> = faults.iter().map(|fault| fault.what).collect();
            assert!(is_explained, "{what:?}: {alert} of {about:?} fires too: {now:?}");
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
    let (status, said) = answer(demo, order).await;
    assert_eq!(status, StatusCode::OK, "{order}: {said}");
}

/// The answer to an order.
async fn answer(demo: &PageDemo, order: &'static str) -> (StatusCode, String) {
    let document = Request::get(demo.url.as_str()).body(Bytes::new()).unwrap();
    let document = String::from_utf8(ask(document).await.unwrap().to_vec()).unwrap();
    let token = document.split("joulie-token\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    let request = Request::post(format!("{}do", demo.url)).header("content-type", "application/json");
    let request = request.header("joulie-page-token", token).body(Bytes::from_static(order.as_bytes()));
    let (status, said) = exchange(request.unwrap()).await.unwrap();
    (status, String::from_utf8_lossy(&said).into_owned())
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
    prometheus: &'a Prometheus,
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
                Seen(query) => self.seen(query).await,
            }
        }
    }

    async fn seen(&self, query: &str) {
        for _ in 0..LOOKS {
            if !self.prometheus.values(query).await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("no answer to {query}");
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

/// Makes the faults in a demo that a Prometheus with the rules scrapes.
async fn in_each(groups: &[Together], name: &str) {
    let Some(program) = or_skip(obtain(&Environment::of_this_process())) else { return };
    let folder = folder(name);
    std::fs::write(folder.join("joulie.yaml"), shortened().to_string()).unwrap();
    let demo = PageDemo::start();
    let scraped = fresh(name).with_extension("json");
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
    let site = Site { demo: &demo, client, targets: &targets, scraped: &scraped, prometheus: &prometheus };
    site.take(&[Scraped]).await;
    let healthy = "sum(joulie_ready) == 4 and on () sum(joulie_cap_enforced == bool 1) == 12";
    let mut well = 0;
    for _ in 0..LOOKS {
        let is_healthy = !prometheus.values(healthy).await.is_empty() && firing(&prometheus).await.is_empty();
        well = if is_healthy { well + 1 } else { 0 };
        if well == WELL {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(well == WELL, "it is not healthy before the first fault: {:?}", firing(&prometheus).await);
    for group in groups {
        in_all_of(group, &site).await;
    }
    drop(site);
    drop((prometheus, demo));
    std::fs::remove_dir_all(&folder).unwrap();
    let _gone = std::fs::remove_file(&scraped);
}

/// Begins all faults, waits for their alerts, and mends them one by one: what is made for one goes with it.
async fn in_all_of(group: Together, site: &Site<'_>) {
    let prometheus = site.prometheus;
    for fault in group {
        site.take(fault.begin).await;
    }
    if group.iter().all(|fault| fault.fires.is_empty()) {
        for _ in 0..QUIET_LOOKS {
            assert!(until(prometheus, group, |_| true).await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    let fires = |now: &Firing, fault: &Fault| {
        let is_there = |(name, of): &(&str, &str)| now.contains(&((*name).to_owned(), (*of).to_owned()));
        fault.fires.iter().all(is_there)
    };
    for fault in group {
        let seen = until(prometheus, group, |now| fires(now, fault)).await;
        let now = firing(prometheus).await;
        assert!(seen, "{}: {now:?} fire", fault.what);
        println!("{}: {now:?}", fault.what);
    }
    for (at, fault) in group.iter().enumerate() {
        site.take(fault.mend).await;
        let left = group.get(at + 1..).unwrap_or_default();
        let is_over = |now: &Firing| {
            let mut its = now.iter().filter(|(alert, about)| fault.is_for(alert, about));
            its.all(|(alert, about)| left.iter().any(|other| other.is_for(alert, about)))
        };
        let over = until(prometheus, group, is_over).await;
        assert!(over, "{}: it is mended, and {:?} fire", fault.what, firing(prometheus).await);
    }
    assert!(until(prometheus, group, Firing::is_empty).await, "all is mended");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_each_fault_of_machines_and_limits_the_alerts_that_are_made_for_it_fire_and_no_other() {
    in_each(&OF_MACHINES, "faults-machines").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_each_fault_of_programs_and_rights_the_alerts_that_are_made_for_it_fire_and_no_other() {
    in_each(&OF_PROGRAMS, "faults-programs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_policy_is_set_for_which_an_operator_would_be_stopped_that_would_not_start_again() {
    let demo = PageDemo::start();
    let policy = r#"{"do": "policy", "name": "static_partition"}"#;
    let refused = async |order: &'static str, part: &str| {
        let (status, said) = answer(&demo, order).await;
        assert!(status == StatusCode::CONFLICT && said.contains(part), "{order}: {status} {said}");
    };
    order(&demo, r#"{"do": "break", "fault": "settings"}"#).await;
    refused(policy, "file of settings").await;
    // The operator runs on. One that does not run gets the policy when it starts, which the mistake prevents.
    order(&demo, r#"{"do": "kill-leader"}"#).await;
    order(&demo, policy).await;
    refused(r#"{"do": "start-leader"}"#, "STATIC_HP_FRAC").await;
    order(&demo, r#"{"do": "mend", "fault": "settings"}"#).await;
    order(&demo, r#"{"do": "start-leader"}"#).await;
    order(&demo, r#"{"do": "policy", "name": "queue_aware_v1"}"#).await;
}
