//! Every setting of the operator: its name, its default, and the values that are accepted.

use super::facility::{self, CoolingNamed};
use super::power::{self, Named};
use super::sleep::SLEEP_MODES;
use super::{FLOORS, GUARDS, MARKS, OVERDUE, SHARINGS, SOURCES, UI_MODES, UiMode, fraction, namespaces};
use crate::rows::is_of_kubernetes;
use host_kit::bearer::TokenFile;
use host_kit::clock::micros;
use host_kit::config::parse::{self, boolean, duration, one_of, percent, watts, whole};
use host_kit::config::{ConfigSetting, Listen, Retired, SettingsTable, Url, UrlTemplate, Wrong};
use host_kit::program;
use host_kit::prometheus::settings as prometheus;
use host_kit::server::settings as tls;
use joulie_api::workload_profile::TrustRule;
use kube::core::Selector;
use planner::budget::PowerSharing;
use planner::guard::GuardMode;
use planner::node::DesiredKind;
use planner::plan::{DrainOverdue, DrainingLabel};
use planner::policy::FamilyFloor;
use planner::sleep::SleepMode;
use planner::twin::cooling::CapacityTable;
use power_units::{Micros, Percent, Ratio, Role, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
const A_FRACTION: &str = "a number from 0 to 1";
const A_PERCENTAGE: &str = "a percentage from 0 to 100";
const SOME_WATTS: &str = "watts, 1 or more";
const A_COUNT: &str = "a whole number, 0 or more";

fn cap(text: &str) -> Result<Watts, Wrong> {
    watts(text, Role::Limit, Watts::from_int(1)..=Watts::from_int(1_000_000))
}

fn profile_key(text: &str) -> Result<String, Wrong> {
    let key = parse::label_key(text)?;
    if is_of_kubernetes(&key) {
        return Err(Wrong("labels below kubernetes.io and k8s.io are Kubernetes' own".to_owned()));
    }
    Ok(key)
}

fn some(text: &str) -> Result<Watts, Wrong> {
    watts(text, Role::Limit, Watts::from_int(1)..=Watts::from_int(2_000_000_000))
}

fn limit(text: &str) -> Result<Option<Watts>, Wrong> {
    some(text).map(Some)
}

fn load(text: &str) -> Result<Watts, Wrong> {
    watts(text, Role::Demand, Watts::ZERO..=Watts::from_int(2_000_000_000))
}

fn evictions(text: &str) -> Result<u32, Wrong> {
    whole(text, 1..=1_000)
}

const SOME_EVICTIONS: &str = "a whole number from 1 to 1000";

fn counted(text: &str) -> Result<i64, Wrong> {
    whole(text, 0..=1_000_000_000)
}

/// Parses `r1=40000,r2=38000.5,*=50000`
fn by_rack(text: &str, one: impl Fn(&str) -> Result<Watts, Wrong>) -> Result<BTreeMap<String, Watts>, Wrong> {
    let mut racks = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((rack, watts)) = part.split_once('=') else {
            return Err(Wrong(format!("{part:?} is not RACK=WATTS")));
        };
        let rack = rack.trim().to_owned();
        if rack.is_empty() || racks.insert(rack.clone(), one(watts)?).is_some() {
            return Err(Wrong(format!("the rack {rack:?} is named twice, or has no name")));
        }
    }
    Ok(racks)
}

/// Parses `batch=4,team-a=10,*=2`
fn by_namespace(text: &str) -> Result<BTreeMap<String, u32>, Wrong> {
    let mut counts = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, count)) = part.split_once('=') else {
            return Err(Wrong(format!("{part:?} is not NAMESPACE=COUNT")));
        };
        let (name, count) = (name.trim(), whole(count, 0..=1_000_000)?);
        if name.is_empty() || counts.insert(name.to_owned(), count).is_some() {
            return Err(Wrong(format!("the namespace {name:?} is named twice, or has no name")));
        }
    }
    Ok(counts)
}

fn some_namespaces(text: &str) -> Result<Option<BTreeSet<String>>, Wrong> {
    let all = namespaces(text);
    if all.is_empty() { Err(Wrong("it names no namespace".to_owned())) } else { Ok(Some(all)) }
}

fn rack_limits(text: &str) -> Result<BTreeMap<String, Watts>, Wrong> {
    by_rack(text, some)
}

fn rack_loads(text: &str) -> Result<BTreeMap<String, Watts>, Wrong> {
    by_rack(text, load)
}

macro_rules! settings {
    ($($setting:ident: $type:ty = $how:ident($($part:expr),+ $(,)?)$(.$more:ident())*;)*) => {
        $(pub(crate) const $setting: ConfigSetting<$type> = ConfigSetting::$how($($part),+)$(.$more())*;)*

        /// All settings of the operator.
        pub const TABLE: SettingsTable = SettingsTable {
            program: "joulie-operator",
            about: "plans which nodes run at full power and which capped, and keeps their digital twins",
            settings: &[
                &program::KUBECONFIG, &program::LOG_LEVEL, &program::LOG_FORMAT, &program::DEBUG_TOKEN,
                &program::NAMESPACE, &program::POD_NAME, &program::SHUTDOWN_TIMEOUT,
                &tls::METRICS_TLS_CERT_FILE, &tls::METRICS_TLS_KEY_FILE, &tls::METRICS_AUTH,
                &prometheus::PROMETHEUS_ADDRESS, &prometheus::PROMETHEUS_CA_FILE, &prometheus::PROMETHEUS_TOKEN_FILE,
                &prometheus::PROMETHEUS_USER, &prometheus::PROMETHEUS_PASSWORD_FILE, &prometheus::PROMETHEUS_HEADERS,
                &prometheus::PROMETHEUS_TIMEOUT, $(&$setting),*
            ],
            retired: RETIRED,
            families: &[
                "QUEUE_HP_", "STATIC_HP_", "OPERATOR_NODE_POWER_", "BUDGET_", "TLS_", "METRICS_", "PROMETHEUS_", "FACILITY_", "CLASSIFY_",
                "RESCHEDULE_", "SLEEP_",
            ],
        };
    };
}

const RETIRED: &[Retired] = &[
    Retired {
        name: "KUBE_CLIENT_QPS",
        note: "the API server's fairness limits; WRITERS bounds what is under way",
    },
    Retired {
        name: "KUBE_CLIENT_BURST",
        note: "the API server's fairness limits; WRITERS bounds what is under way",
    },
    Retired {
        name: "CLASSIFY_SIM_NOISE_PCT",
        note: "CLASSIFY_SIM_ANNOTATION_FALLBACK takes the annotations as they are and adds no noise",
    },
    Retired {
        name: "DRAINING_LABEL",
        note: "the label is joulie.io/draining; DRAINING_LABEL_MODE says when it is there",
    },
    Retired { name: "WORKLOAD_INTENT_LABEL", note: NO_INTENT },
    Retired { name: "PERFORMANCE_INTENT_VALUE", note: NO_INTENT },
];

const NO_INTENT: &str = "pods are classed by their constraints and the annotation joulie.io/workload-class";

settings! {
    METRICS_ADDR: Listen = with_default(
        "METRICS_ADDR", ":8081", parse::listen, "an address such as :8081", "Where metrics, health and debugging are served");
    UI: UiMode = with_default(
        "UI", "off", |text| one_of(text, &UI_MODES), "off or read",
        "read: the live page is served at /ui/ on the port for metrics, to whom /debug is. It watches the objects once more, also those of all pods");
    RECONCILE_INTERVAL: Duration = with_default(
        "RECONCILE_INTERVAL", "1m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "A pass is made at least so often; changes are planned when they come. The phase of rule_swap_v1");
    PLAN_RENEW_INTERVAL: Duration = with_default(
        "PLAN_RENEW_INTERVAL", "10s", |text| duration(text, SECOND..=30 * SECOND), "a duration between 1s and 30s",
        "How often the Lease joulie-plan is renewed, by which twins are fresh");
    TWIN_REFRESH: Option<Duration> = optional(
        "TWIN_REFRESH", |text| duration(text, 10 * SECOND..=3600 * SECOND).map(Some), "a duration between 10s and 1h",
        "A twin's status is written again when it is so old, for readers that do not know the Lease; without it only changes are written. 2m for the scheduler of upstream, which takes 5m for old");
    WRITE_TIMEOUT: Duration = with_default(
        "WRITE_TIMEOUT", "10s", |text| duration(text, SECOND / 10..=60 * SECOND), "a duration between 100ms and 1m",
        "How long one request to the API server may take");
    WRITERS: usize = with_default(
        "WRITERS", "32", |text| whole(text, 1..=512), "a whole number from 1 to 512", "How many nodes are written to at once: half of the places for labels and classes first, half for caps");
    NODE_SELECTOR: Selector = with_default(
        "NODE_SELECTOR", "joulie.io/managed=true", parse::selector, "a label selector", "Which nodes are planned for");
    RESERVED_LABEL_KEY: String = with_default(
        "RESERVED_LABEL_KEY", "joulie.io/reserved", parse::label_key, "the key of a label", "A node with it at true is left alone");
    POWER_PROFILE_LABEL: String = with_default(
        "POWER_PROFILE_LABEL", "joulie.io/power-profile", profile_key, "the key of a label outside kubernetes.io and k8s.io",
        "The label of nodes that says performance or eco");
    GPU_PRODUCT_LABEL_KEYS: Vec<String> = with_default(
        "GPU_PRODUCT_LABEL_KEYS", "joulie.io/gpu.product,nvidia.com/gpu.product,amd.com/gpu.product,amd.com/gpu.family",
        parse::list, "keys of labels between commas", "Where a node's GPU product may be named, in this order");
    HARDWARE_CATALOG_PATH: Option<PathBuf> = optional(
        "HARDWARE_CATALOG_PATH", |text| parse::path(text).map(Some), "the path of a hardware catalogue (YAML)",
        "Models that are added to the built-in catalogue, or take the place of one of it; read once at start, and refused as a whole if one figure is");
    DESIRED_SOURCE: DesiredKind = with_default(
        "DESIRED_SOURCE", "profile", |text| one_of(text, &SOURCES), "profile or twin",
        "Which kind the agents obey: NodePowerProfile, or NodeTwin as those of v0.1 do");
    POLICY_TYPE: String = with_default(
        "POLICY_TYPE", "static_partition", parse::text, "static_partition, queue_aware_v1 or rule_swap_v1",
        "How many nodes run at full power; another word is static_partition, with a warning").live();
    STATIC_HP_FRAC: Ratio = with_default("STATIC_HP_FRAC", "0.50", fraction, A_FRACTION, "static_partition: the part of the nodes at full power").live();
    QUEUE_HP_BASE_FRAC: Ratio = with_default("QUEUE_HP_BASE_FRAC", "0.60", fraction, A_FRACTION, "queue_aware_v1: that part without pressure").live();
    QUEUE_HP_MIN: i64 = with_default("QUEUE_HP_MIN", "1", counted, A_COUNT, "queue_aware_v1: the least nodes at full power").live();
    QUEUE_HP_MAX: i64 = with_default("QUEUE_HP_MAX", "1000000", counted, A_COUNT, "queue_aware_v1: the most; 0 sets no bound").live();
    QUEUE_PERF_PER_HP_NODE: i64 = with_default(
        "QUEUE_PERF_PER_HP_NODE", "10", |text| whole(text, 1..=1_000_000), "a whole number, 1 or more",
        "queue_aware_v1: performance pods for each node at full power").live();
    FAMILY_FLOOR: FamilyFloor = with_default(
        "FAMILY_FLOOR", "raise", |text| one_of(text, &FLOORS), "raise, within-count or off",
        "Whether each hardware family keeps a node at full power").live();
    GUARD_MODE: GuardMode = with_default(
        "GUARD_MODE", "soft", |text| one_of(text, &GUARDS), "soft or hard",
        "Whether a node that drains has the caps of eco at once, or when it has drained").live();
    DRAIN_DEADLINE: Duration = with_default(
        "DRAIN_DEADLINE", "1h", |text| duration(text, SECOND..=7 * DAY), "a duration between 1s and 168h",
        "How long performance pods may keep a node from becoming an eco node before that is told").live();
    DRAIN_OVERDUE: DrainOverdue = with_default(
        "DRAIN_OVERDUE", "tell", |text| one_of(text, &OVERDUE), "tell, hold or evict",
        "What follows then: tell goes on as before, hold leaves the caps and labels of the node as they are until the pods have left, evict evicts those of them that say joulie.io/reschedulable, where ENABLE_ACTIVE_RESCHEDULING is true, within the limits of RESCHEDULE_*").live();
    DRAINING_LABEL_MODE: DrainingLabel = with_default(
        "DRAINING_LABEL_MODE", "always", |text| one_of(text, &MARKS), "always or while-draining",
        "Whether nodes that do not drain carry joulie.io/draining=false").live();
    PERFORMANCE_DWELL: Option<Micros> = optional(
        "PERFORMANCE_DWELL", |text| duration(text, SECOND..=DAY).map(|dwell| Some(micros(dwell))),
        "a duration between 1s and 24h", "How long a node stays at full power at least").live();
    NOT_READY_PATIENCE: Duration = with_default(
        "NOT_READY_PATIENCE", "5m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long a node that is not Ready keeps its place in the plan");
    RELEASE_PATIENCE: Duration = with_default(
        "RELEASE_PATIENCE", "2m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long the release of a node waits for its agent to lift the caps");
    IGNORED_NAMESPACES: BTreeSet<String> = with_default(
        "IGNORED_NAMESPACES", "kube-system,kube-public,kube-node-lease", |text| Ok(namespaces(text)), "names between commas",
        "Pods in these namespaces are neither pressure nor a reason to wait");
    PERFORMANCE_NAMESPACES: Option<BTreeSet<String>> = optional(
        "PERFORMANCE_NAMESPACES", some_namespaces, "names between commas",
        "Only pods in these namespaces may ask for performance; those in others count as standard. Without it all may").live();
    PERFORMANCE_NODES_MAX: BTreeMap<String, u32> = with_default(
        "PERFORMANCE_NODES_MAX", "", by_namespace, "NAMESPACE=COUNT between commas, * for every other namespace",
        "How many nodes the performance pods of a namespace may hold; the youngest past that count as standard").live();
    PERFORMANCE_CAP_WATTS: Watts = with_default("PERFORMANCE_CAP_WATTS", "5000", cap, SOME_WATTS, "The cap of each package at full power, with CPU_WRITE_ABSOLUTE_CAPS").live();
    ECO_CAP_WATTS: Watts = with_default("ECO_CAP_WATTS", "120", cap, SOME_WATTS, "The cap of each package in eco, with CPU_WRITE_ABSOLUTE_CAPS").live();
    CPU_PERFORMANCE_CAP_PCT_OF_MAX: Percent = with_default("CPU_PERFORMANCE_CAP_PCT_OF_MAX", "100", percent, A_PERCENTAGE, "The cap of packages at full power").live();
    CPU_ECO_CAP_PCT_OF_MAX: Percent = with_default("CPU_ECO_CAP_PCT_OF_MAX", "60", percent, A_PERCENTAGE, "The cap of packages in eco").live();
    CPU_WRITE_ABSOLUTE_CAPS: bool = with_default("CPU_WRITE_ABSOLUTE_CAPS", "false", boolean, "true or false", "Whether packages are capped in watts").live();
    GPU_NODE_CPU_CAPS: bool = with_default("GPU_NODE_CPU_CAPS", "false", boolean, "true or false", "Whether the packages of GPU nodes are capped too").live();
    GPU_PERFORMANCE_CAP_PCT_OF_MAX: Percent = with_default(
        "GPU_PERFORMANCE_CAP_PCT_OF_MAX", "100", percent, A_PERCENTAGE, "The cap of GPUs at full power; 0 leaves them alone").live();
    GPU_ECO_CAP_PCT_OF_MAX: Percent = with_default("GPU_ECO_CAP_PCT_OF_MAX", "60", percent, A_PERCENTAGE, "The cap of GPUs in eco; 0 leaves them alone").live();
    GPU_WRITE_ABSOLUTE_CAPS: bool = with_default("GPU_WRITE_ABSOLUTE_CAPS", "false", boolean, "true or false", "Whether GPUs are capped in watts too").live();
    GPU_MODEL_CAPS_JSON: String = with_default(
        "GPU_MODEL_CAPS_JSON", "{}", parse::text, "{\"product\": {\"minCapWatts\": 200, \"maxCapWatts\": 350}}",
        "What GPUs can be capped to, before what nodes report and the catalogue knows").live();
    NODE_POWER_SOURCE: Vec<Named> = with_default(
        "OPERATOR_NODE_POWER_SOURCE", "agent", power::named,
        "agent, kepler, prometheus, http, static or utilization, several of them between commas",
        "Where the measured power of nodes comes from: the first of them that has a value counts. static and utilization, which are the same, measure nothing: the power is estimated from what pods request and from the caps");
    NODE_POWER_PROMETHEUS_ADDRESS: Option<Url> = optional(
        "OPERATOR_NODE_POWER_PROMETHEUS_ADDRESS", |text| parse::url(text).map(Some), "a URL",
        "prometheus, kepler: the server, where it is not that of PROMETHEUS_ADDRESS");
    NODE_POWER_PROMETHEUS_QUERY: Option<String> = optional(
        "OPERATOR_NODE_POWER_PROMETHEUS_QUERY", |text| power::query(text, &["{node}"]).map(Some), "PromQL that yields watts",
        "prometheus: the query. It answers for all nodes, one series for each; with {node} in it, it is asked for each node");
    NODE_POWER_KEPLER_WINDOW: Duration = with_default(
        "OPERATOR_NODE_POWER_KEPLER_WINDOW", "1m", |text| duration(text, 5 * SECOND..=3600 * SECOND), "a duration between 5s and 1h",
        "kepler: the time over which the power is taken; two scrapes have to lie in it");
    NODE_POWER_DISAGREE_PCT: Percent = with_default(
        "OPERATOR_NODE_POWER_DISAGREE_PCT", "30", percent, A_PERCENTAGE,
        "Two sources whose values for a node are further apart than this disagree, which its twin says");
    NODE_POWER_HTTP_ENDPOINT: Option<UrlTemplate> = optional(
        "OPERATOR_NODE_POWER_HTTP_ENDPOINT", |text| parse::url_template(text).map(Some), "a URL with {node} in it",
        "http: where the power of a node is read");
    NODE_POWER_HTTP_CA_FILE: Option<PathBuf> = optional(
        "OPERATOR_NODE_POWER_HTTP_CA_FILE", |text| parse::path(text).map(Some), "the path of a file of certificates (PEM)",
        "Who signs the certificate of an https endpoint; without it the authorities that the system knows");
    NODE_POWER_HTTP_TOKEN_FILE: Option<TokenFile> = optional(
        "OPERATOR_NODE_POWER_HTTP_TOKEN_FILE", TokenFile::parse, "the path of a file with a token",
        "The bearer token that is shown to the endpoint; it is read for each request");
    POWER_POLL_INTERVAL: Duration = with_default(
        "POWER_POLL_INTERVAL", "10s", |text| duration(text, SECOND / 10..=300 * SECOND), "a duration between 100ms and 5m",
        "http, prometheus, kepler: how often they are asked");
    POWER_HOLD: Duration = with_default(
        "POWER_HOLD", "7m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long the last sample of a node stands; agents publish an unchanged one every 5m");
    ENABLE_FACILITY_METRICS: bool = with_default(
        "ENABLE_FACILITY_METRICS", "false", boolean, "true or false",
        "Whether the building's sensors are read from Prometheus: temperatures for the cooling stress, the power of racks, the real PUE");
    FACILITY_PROMETHEUS_ADDRESS: Option<Url> = optional(
        "FACILITY_PROMETHEUS_ADDRESS", |text| parse::url(text).map(Some), "a URL",
        "The server with the sensors, where it is not that of PROMETHEUS_ADDRESS; without either http://prometheus-operated.monitoring:9090");
    FACILITY_POLL_INTERVAL: Duration = with_default(
        "FACILITY_POLL_INTERVAL", "30s", |text| duration(text, SECOND / 10..=3600 * SECOND), "a duration between 100ms and 1h",
        "How often the sensors are read");
    FACILITY_HOLD: Duration = with_default(
        "FACILITY_HOLD", "5m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long a value of a sensor is fresh. An older one may make a node look worse, never better, and moves no pod; after a day it is forgotten").live();
    FACILITY_AMBIENT_TEMP_METRIC: String = with_default(
        "FACILITY_AMBIENT_TEMP_METRIC", "datacenter_ambient_temperature_celsius", |text| power::query(text, &[]),
        "PromQL that yields degrees Celsius, or none", "The temperature of the building; of several series the hottest counts");
    FACILITY_IT_POWER_METRIC: String = with_default(
        "FACILITY_IT_POWER_METRIC", "datacenter_total_it_power_watts", |text| power::query(text, &[]),
        "PromQL that yields watts, or none", "The power of all machines: one series");
    FACILITY_COOLING_POWER_METRIC: String = with_default(
        "FACILITY_COOLING_POWER_METRIC", "datacenter_cooling_power_watts", |text| power::query(text, &[]),
        "PromQL that yields watts, or none", "The power of the cooling: one series");
    FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE: Option<String> = optional(
        "FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", |text| power::query(text, &["{zone}"]).map(Some),
        "PromQL that yields degrees Celsius, with or without {zone}",
        "The temperature of each cooling zone (label joulie.io/cooling-zone of nodes): asked for each zone where {zone} is in it, otherwise once, and the label zone or cooling_zone of a series names the zone");
    FACILITY_RACK_POWER_METRIC_TEMPLATE: Option<String> = optional(
        "FACILITY_RACK_POWER_METRIC_TEMPLATE", |text| power::query(text, &["{rack}"]).map(Some),
        "PromQL that yields watts, with or without {rack}",
        "The power of each rack (label joulie.io/rack of nodes), with all that draws there: asked for each rack where {rack} is in it, otherwise once, and the label rack of a series names the rack");
    RACK_CAPACITY_WATTS: BTreeMap<String, Watts> = with_default(
        "RACK_CAPACITY_WATTS", "", rack_limits, "RACK=WATTS between commas, * for every other rack",
        "What the supply of racks can bear, for the PSU stress; where it says nothing, BUDGET_RACK_WATTS, and without that 50000").live();
    COOLING_MODEL: CoolingNamed = with_default(
        "COOLING_MODEL", "measured", |text| one_of(text, &[("measured", CoolingNamed::Measured), ("linear", CoolingNamed::Linear), ("table", CoolingNamed::Table)]),
        "measured, linear or table", "How the cooling stress is computed: from the measured power and the temperature, from the caps and the temperature as upstream's v0.1.0 does, or from the measured power and COOLING_TABLE").live();
    COOLING_TABLE: Option<CapacityTable> = optional(
        "COOLING_TABLE", |text| facility::cooling_table(text).map(Some), "up to 8 CELSIUS=PERCENT between commas, in the order of the temperatures",
        "table: which part of a node's rating can be cooled at a temperature, such as 18=100,27=80,35=45; between two of them in proportion, beyond them as at the nearest").live();
    COOLING_REFERENCE_WATTS: Watts = with_default(
        "COOLING_REFERENCE_WATTS", "4000", cap, SOME_WATTS, "linear: the capped power of a node that takes 80 % of its cooling").live();
    ENABLE_CLASSIFIER: Option<bool> = optional(
        "ENABLE_CLASSIFIER", |text| boolean(text).map(Some), "true or false",
        "Whether workloads are classified and have WorkloadProfiles; not set, they are where PROMETHEUS_ADDRESS is set");
    CLASSIFY_INTERVAL: Duration = with_default(
        "CLASSIFY_INTERVAL", "30s", |text| duration(text, SECOND / 10..=3600 * SECOND), "a duration between 100ms and 1h",
        "How often the classifier looks for new workloads, for changes and for those that are due").live();
    RECLASSIFY_INTERVAL: Duration = with_default(
        "RECLASSIFY_INTERVAL", "15m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How often a workload is classified again; without metrics its confidence fades by one step in each").live();
    CLASSIFY_METRICS_WINDOW: Duration = with_default(
        "CLASSIFY_METRICS_WINDOW", "10m", |text| duration(text, 30 * SECOND..=DAY), "a duration between 30s and 24h",
        "Over which time the use of processors, GPUs and energy is averaged; several scrapes must fit in").live();
    CLASSIFY_MIN_CONFIDENCE: Ratio = with_default(
        "CLASSIFY_MIN_CONFIDENCE", TrustRule::LEAST_DEFAULT, fraction, A_FRACTION,
        "A WorkloadProfile with less confidence is not trusted: it changes nothing, and counts as doubtful (joulie_operator_workloads); the extender has the same setting, which waits for a restart").live();
    KEPLER_AVAILABLE: bool = with_default(
        "KEPLER_AVAILABLE", "true", boolean, "true or false", "Whether the classifier asks Prometheus for the energy that Kepler measures");
    CLASSIFY_SIM_ANNOTATION_FALLBACK: bool = with_default(
        "CLASSIFY_SIM_ANNOTATION_FALLBACK", "false", boolean, "true or false",
        "Whether the annotations sim.joulie.io/* of pods count where Prometheus has no metrics; a workload that names no class then has the one that its metrics suggest");
    BUDGET_SITE_WATTS: Option<Watts> = optional("BUDGET_SITE_WATTS", limit, SOME_WATTS, "What the site may draw, also above the limits of PowerBudgets; a PowerBudget can be changed without a restart, this cannot");
    BUDGET_SITE_BASE_WATTS: Watts = with_default(
        "BUDGET_SITE_BASE_WATTS", "0", load, "watts, 0 or more", "What the site draws that nobody controls, beside the racks' base loads; state it, it is not measured");
    BUDGET_RACK_WATTS: BTreeMap<String, Watts> = with_default(
        "BUDGET_RACK_WATTS", "", rack_limits, "RACK=WATTS between commas, * for every other rack", "What racks may draw (label joulie.io/rack), of nodes that no enforced PowerBudget selects");
    BUDGET_RACK_BASE_WATTS: BTreeMap<String, Watts> = with_default(
        "BUDGET_RACK_BASE_WATTS", "", rack_loads, "RACK=WATTS between commas, * for every other rack", "What racks draw that nobody controls");
    BUDGET_NODE_REST_WATTS: Watts = with_default(
        "BUDGET_NODE_REST_WATTS", "0", load, "watts, 0 or more", "What a node draws at most beside its packages and GPUs");
    BUDGET_NODE_REST_MEASURED: bool = with_default(
        "BUDGET_NODE_REST_MEASURED", "false", boolean, "true or false",
        "Whether a node whose own meter has shown more beside its packages and GPUs counts with that, in place of BUDGET_NODE_REST_WATTS; it never counts with less");
    BUDGET_DRIFT_PCT: Percent = with_default(
        "BUDGET_DRIFT_PCT", "10", percent, A_PERCENTAGE,
        "Meters that show this much more in a group than is counted there are told: condition MetersDisagree of its PowerBudget");
    BUDGET_SIGNAL_INTERVAL: Duration = with_default(
        "BUDGET_SIGNAL_INTERVAL", "30s", |text| duration(text, SECOND..=3600 * SECOND), "a duration between 1s and 1h",
        "How often the signals of PowerBudgets are asked of the server of PROMETHEUS_ADDRESS");
    BUDGET_UNKNOWN_NODE_WATTS: Option<Watts> = optional(
        "BUDGET_UNKNOWN_NODE_WATTS", limit, SOME_WATTS,
        "What a node counts with while its hardware is not known; without it nothing beside such a node is raised");
    BUDGET_MODE: PowerSharing = with_default(
        "BUDGET_MODE", "demand", |text| one_of(text, &SHARINGS), "demand or static",
        "How a limit is shared: demand lets nodes that need less lend to those that need more, within what the policy wants for each; static divides it by what the policy wants alone");
    BUDGET_DEAD_BAND_WATTS: Watts = with_default(
        "BUDGET_DEAD_BAND_WATTS", "5", load, "watts, 0 or more", "A change of a node's cap that is smaller is not worth a write");
    BUDGET_RAISE_PCT: Percent = with_default(
        "BUDGET_RAISE_PCT", "5", percent, A_PERCENTAGE, "Under a budget a node at full power is raised by this part of its cap at least");
    BUDGET_RAISE_DWELL: Duration = with_default(
        "BUDGET_RAISE_DWELL", "30s", |text| duration(text, SECOND / 10..=DAY), "a duration between 100ms and 24h",
        "Or by less, once it could have been for so long; an eco node only then");
    BUDGET_ANSWER_WITHIN: Duration = with_default(
        "BUDGET_ANSWER_WITHIN", "30s", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long a node may take to read a grant back before the others make room for what it may draw");
    BUDGET_GONE_HOLD: Duration = with_default(
        "BUDGET_GONE_HOLD", "10m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long the grant of a deleted Node counts after its agent was last heard");
    BUDGET_TAINT_UNCAPPED: bool = with_default(
        "BUDGET_TAINT_UNCAPPED", "false", boolean, "true or false",
        "Whether a new or rebooted node under a limit is tainted until it has read its grant back");
    RESCHEDULE_THRESHOLD: Percent = with_default(
        "RESCHEDULE_THRESHOLD", "70", percent, A_PERCENTAGE,
        "Above this cooling or PSU stress of a node, its pods with joulie.io/reschedulable are recommended to leave, until it is 5 points lower").live();
    ENABLE_ACTIVE_RESCHEDULING: bool = with_default(
        "ENABLE_ACTIVE_RESCHEDULING", "false", boolean, "true or false",
        "Whether pods are evicted from stressed nodes; it needs rights that the chart grants with operator.rescheduling.enabled").live();
    RESCHEDULE_INTERVAL: Duration = with_default(
        "RESCHEDULE_INTERVAL", "60s", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h", "Between two rounds of evictions").live();
    RESCHEDULE_STRESSED_FOR: Duration = with_default(
        "RESCHEDULE_STRESSED_FOR", "5m", |text| duration(text, Duration::ZERO..=DAY), "a duration up to 24h",
        "How long a node must have been stressed without a break before pods are evicted").live();
    RESCHEDULE_WINDOW: Duration = with_default(
        "RESCHEDULE_WINDOW", "10m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "The time for which evictions are counted; a pod that may not leave is tried once in it").live();
    RESCHEDULE_MAX_EVICTIONS_PER_NODE: u32 = with_default(
        "RESCHEDULE_MAX_EVICTIONS_PER_NODE", "1", evictions, SOME_EVICTIONS, "Evictions from one node in RESCHEDULE_WINDOW").live();
    RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE: u32 = with_default(
        "RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE", "2", evictions, SOME_EVICTIONS, "Evictions from one namespace in RESCHEDULE_WINDOW").live();
    RESCHEDULE_MAX_EVICTIONS: u32 = with_default(
        "RESCHEDULE_MAX_EVICTIONS", "5", evictions, SOME_EVICTIONS, "Evictions in the cluster in RESCHEDULE_WINDOW").live();
    RESCHEDULE_COOLDOWN: Duration = with_default(
        "RESCHEDULE_COOLDOWN", "30m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long the controller of an evicted pod is left alone; at least RESCHEDULE_WINDOW").live();
    RESCHEDULE_DRY_RUN: bool = with_default(
        "RESCHEDULE_DRY_RUN", "false", boolean, "true or false", "Whether evictions are only logged and counted").live();
    GPU_REPAIR_AFTER: Option<Duration> = optional(
        "GPU_REPAIR_AFTER", |text| duration(text, 10 * SECOND..=DAY).map(Some), "a duration between 10s and 24h",
        "After so long a GPU that was taken for a pod, and that no kubelet confirmed, is free again, or stays taken if the pod is on its node; without it the agents alone do that. It needs rights that the chart grants with gpuPlacement.bind");
    SLEEP: SleepMode = with_default(
        "SLEEP", "off", |text| one_of(text, &SLEEP_MODES), "off, observe or on",
        "Whether empty nodes that ask for it are switched off, and woken for pods that wait: on, or observe, which only computes it; off wakes those that sleep. It needs SLEEP_BMC_FILE").live();
    SLEEP_BMC_FILE: Option<PathBuf> = optional(
        "SLEEP_BMC_FILE", |text| parse::path(text).map(Some), "a path",
        "The file (YAML) that says how the power of each node is read and switched: Redfish, a webhook, Wake-on-LAN; read at the start");
    SLEEP_POLL: Duration = with_default(
        "SLEEP_POLL", "10s", |text| duration(text, SECOND..=60 * SECOND), "a duration between 1s and 1m",
        "How often the management controller of a node on its way to sleep or back is asked; of other nodes that may sleep every sixth time");
    SLEEP_IDLE_FOR: Duration = with_default(
        "SLEEP_IDLE_FOR", "10m", |text| duration(text, Duration::ZERO..=DAY), "a duration up to 24h",
        "How long a node must have been empty, and at least so long as its next boot costs what sleep saves").live();
    SLEEP_MIN_ON: Duration = with_default(
        "SLEEP_MIN_ON", "15m", |text| duration(text, Duration::ZERO..=DAY), "a duration up to 24h",
        "How long a node must have been awake before it sleeps").live();
    SLEEP_SETTLE: Duration = with_default(
        "SLEEP_SETTLE", "30s", |text| duration(text, SECOND..=3600 * SECOND), "a duration between 1s and 1h",
        "How long a node that was cordoned waits for a pod that is still on its way to it, before it is switched off").live();
    SLEEP_OFF_WITHIN: Duration = with_default(
        "SLEEP_OFF_WITHIN", "10m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long switching off may take; then the node is left to people").live();
    SLEEP_WAKE_TAKES: Duration = with_default(
        "SLEEP_WAKE_TAKES", "5m", |text| duration(text, SECOND..=3600 * SECOND), "a duration between 1s and 1h",
        "How long a node takes from the order to wake until it takes pods: for what usually comes in such a time there are empty nodes awake, and its largest draw for so long is what a boot costs").live();
    SLEEP_WAKE_WITHIN: Duration = with_default(
        "SLEEP_WAKE_WITHIN", "15m", |text| duration(text, SECOND..=DAY), "a duration between 1s and 24h",
        "How long waking may take; then the node is left to people, and another one is woken").live();
    SLEEP_FLOOR: u32 = with_default(
        "SLEEP_FLOOR", "1", |text| whole(text, 0..=100_000), A_COUNT,
        "How many nodes of each zone (topology.kubernetes.io/zone) and GPU model stay awake").live();
    SLEEP_WARM_QUANTILE: Ratio = with_default(
        "SLEEP_WARM_QUANTILE", "0.95", fraction, A_FRACTION,
        "In this share of the times of SLEEP_WAKE_TAKES there were no more empty nodes taken than stay awake").live();
    SLEEP_STANDBY_WATTS: Watts = with_default(
        "SLEEP_STANDBY_WATTS", "35", load, "watts, 0 or more", "What a node counts in its budgets while it is off").live();
    SLEEP_SLEEPS_AT_ONCE: u32 = with_default(
        "SLEEP_SLEEPS_AT_ONCE", "2", |text| whole(text, 1..=1_000), "a whole number from 1 to 1000",
        "How many nodes may be on their way to sleep").live();
    SLEEP_WAKES_AT_ONCE: u32 = with_default(
        "SLEEP_WAKES_AT_ONCE", "8", |text| whole(text, 1..=1_000), "a whole number from 1 to 1000",
        "How many nodes may be on their way back").live();
    LEASE_DURATION: Duration = with_default(
        "LEADER_LEASE_DURATION", "10s", |text| duration(text, SECOND..=3600 * SECOND), "whole seconds", "How long replicas wait for a leader that says nothing");
    LEASE_RENEW_DEADLINE: Duration = with_default(
        "LEADER_RENEW_DEADLINE", "7s", |text| duration(text, SECOND / 10..=3600 * SECOND), "a duration", "How long a leader acts without a renewal");
    LEASE_RETRY_PERIOD: Duration = with_default(
        "LEADER_RETRY_PERIOD", "2s", |text| duration(text, SECOND / 100..=600 * SECOND), "a duration", "Between two renewals");
}
