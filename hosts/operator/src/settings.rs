//! The operator's settings: the table, and its values as parts that have been checked together.

mod facility;
mod power;
mod reschedule;
mod sleep;
mod table;

pub(crate) use facility::FacilitySettings;
pub(crate) use power::{NodePower, PowerAccess, PowerSource};
pub(crate) use reschedule::Rescheduling;
pub(crate) use sleep::SleepSettings;
pub use table::TABLE;
pub(crate) use table::{
    CLASSIFY_INTERVAL, CLASSIFY_METRICS_WINDOW, CLASSIFY_MIN_CONFIDENCE, CLASSIFY_SIM_ANNOTATION_FALLBACK,
    ENABLE_CLASSIFIER, KEPLER_AVAILABLE, RECLASSIFY_INTERVAL,
};
pub(crate) use table::{DESIRED_SOURCE, NODE_SELECTOR, RESERVED_LABEL_KEY};

use crate::classify::ClassifySettings;
use crate::site::Selectors;
use host_kit::clock::micros;
use host_kit::config::{ConfigSetting, Listen, Refusals, Values};
use host_kit::leader::Candidate;
use host_kit::program;
use host_kit::prometheus::{PrometheusAccess, settings as prometheus};
use host_kit::server::settings::{self as tls, MetricsPort};
use joulie_api::workload_profile::TrustRule;
use planner::budget::{BudgetLimits, PowerSharing};
use planner::catalog::Catalog;
use planner::demand::DemandBound;
use planner::guard::GuardMode;
use planner::hardware::PowerRange;
use planner::intent::{CapSettings, GpuNodeCpus, Intents, UserRanges};
use planner::node::DesiredKind;
use planner::plan::{self, DrainLaw, DrainOverdue, DrainingLabel};
use planner::policy::{FamilyFloor, PlacementPolicy, PolicyType, QueueAware, RuleSwap, StaticPartition};
use planner::power::Grounds;
use planner::profile::PerProfile;
use power_units::{Percent, Ratio, Role, Watts};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where metrics, health and debugging are served.
    pub(crate) metrics: Listen,
    /// TLS there, and who may read the metrics.
    pub(crate) metrics_port: MetricsPort,
    /// Who may see /debug from elsewhere.
    pub(crate) debug_token: Option<String>,
    /// Whether the live page is served.
    pub(crate) ui: UiMode,
    /// Where the Leases and Events are.
    pub(crate) namespace: String,
    /// The pod's name, after which the process is named.
    pub(crate) pod_name: Option<String>,
    /// How objects are selected and read.
    pub(crate) selectors: Selectors,
    /// The settings of the planner.
    pub(crate) plan: plan::Settings,
    /// The known models.
    pub(crate) catalog: Catalog,
    /// Whether `POLICY_TYPE` was an unknown policy.
    pub(crate) policy_unknown: bool,
    /// A pass is made at least this often.
    pub(crate) interval: Duration,
    /// How long a node that is not ready keeps its place in the plan.
    pub(crate) not_ready_patience: Duration,
    /// The plan's Lease is renewed at most this often.
    pub(crate) renew_plan: Duration,
    /// A twin's status is written again when it is this old, for readers that judge it by its `lastUpdated`.
    pub(crate) twin_refresh: Option<Duration>,
    /// How long one request to the API server may take.
    pub(crate) write_timeout: Duration,
    /// How many requests may be in progress at once.
    pub(crate) writers: usize,
    /// Where measured power comes from.
    pub(crate) power: NodePower,
    /// How the building's sensors are asked, if they are.
    pub(crate) facility: Option<FacilitySettings>,
    /// How long the last sample of a node is valid.
    pub(crate) hold: Duration,
    /// The Prometheus server, if there is one.
    pub(crate) prometheus: Option<PrometheusAccess>,
    /// How often signals of PowerBudgets are asked for.
    pub(crate) signal_interval: Duration,
    /// The classifier, if there is one.
    pub(crate) classify: Option<ClassifySettings>,
    /// How pods are moved off stressed nodes.
    pub(crate) rescheduling: Rescheduling,
    /// When a GPU that was taken for a pod is looked at; `None` if never.
    pub(crate) gpu_repair_after: Option<Duration>,
    /// How nodes sleep.
    pub(crate) sleep: SleepSettings,
    /// The election.
    pub(crate) election: Election,
}

/// The times of the election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Election {
    /// How long others wait.
    pub(crate) lease: Duration,
    /// How long a leader continues without a renewal.
    pub(crate) renew: Duration,
    /// The pause between two attempts.
    pub(crate) retry: Duration,
}

impl Settings {
    /// Reads the settings, and checks them together.
    pub fn read(values: &Values) -> Result<Self, Refusals> {
        let file = values.get(&table::HARDWARE_CATALOG_PATH)?;
        let catalog = catalog_file::load(file.as_deref());
        let catalog = catalog
            .map_err(|error| values.conflict(&[table::HARDWARE_CATALOG_PATH.name()], &error.to_string()))?;
        let (policy, policy_unknown) = policy(values)?;
        let election = Election {
            lease: values.get(&table::LEASE_DURATION)?,
            renew: values.get(&table::LEASE_RENEW_DEADLINE)?,
            retry: values.get(&table::LEASE_RETRY_PERIOD)?,
        };
        if let Err(why) = Candidate::new("x", election.lease, election.renew, election.retry) {
            let names = ["LEADER_LEASE_DURATION", "LEADER_RENEW_DEADLINE", "LEADER_RETRY_PERIOD"];
            return Err(values.conflict(&names, &why.to_string()));
        }
        let plan = plan::Settings {
            policy,
            floor: values.get(&table::FAMILY_FLOOR)?,
            guard: values.get(&table::GUARD_MODE)?,
            draining_label: values.get(&table::DRAINING_LABEL_MODE)?,
            intents: intents(values, &catalog)?,
            dwell: values.get(&table::PERFORMANCE_DWELL)?,
            drain: DrainLaw {
                deadline: micros(values.get(&table::DRAIN_DEADLINE)?),
                then: values.get(&table::DRAIN_OVERDUE)?,
            },
            release_patience: micros(values.get(&table::RELEASE_PATIENCE)?),
            budget: limits(values)?,
            taint_uncapped: values.get(&table::BUDGET_TAINT_UNCAPPED)?,
            twin: facility::twin(values)?,
            facility_hold: micros(values.get(&table::FACILITY_HOLD)?),
        };
        let prometheus = prometheus(values)?;
        let facility = facility::read(values)?;
        // With sensors, a pod leaves only for what they have measured; without any, a stress is at best modelled.
        let least = if facility.is_some() { Grounds::Measured } else { Grounds::Modelled };
        Ok(Self {
            metrics: values.get(&table::METRICS_ADDR)?,
            metrics_port: tls::metrics_port(values)?,
            debug_token: values.get(&program::DEBUG_TOKEN)?,
            ui: values.get(&table::UI)?,
            namespace: values.get(&program::NAMESPACE)?,
            pod_name: values.get(&program::POD_NAME)?,
            selectors: selectors(values)?,
            plan,
            catalog,
            policy_unknown,
            not_ready_patience: values.get(&table::NOT_READY_PATIENCE)?,
            interval: values.get(&table::RECONCILE_INTERVAL)?,
            renew_plan: values.get(&table::PLAN_RENEW_INTERVAL)?,
            twin_refresh: values.get(&table::TWIN_REFRESH)?,
            write_timeout: values.get(&table::WRITE_TIMEOUT)?,
            writers: values.get(&table::WRITERS)?,
            power: power::read(values)?,
            facility,
            hold: values.get(&table::POWER_HOLD)?,
            classify: ClassifySettings::read(values, prometheus.is_some())?,
            prometheus,
            signal_interval: values.get(&table::BUDGET_SIGNAL_INTERVAL)?,
            rescheduling: reschedule::rescheduling(values, least)?,
            gpu_repair_after: values.get(&table::GPU_REPAIR_AFTER)?,
            sleep: sleep::sleep(values)?,
            election,
        })
    }
}

fn selectors(values: &Values) -> Result<Selectors, Refusals> {
    Ok(Selectors {
        selector: values.get(&table::NODE_SELECTOR)?,
        reserved_key: values.get(&table::RESERVED_LABEL_KEY)?,
        profile_key: values.get(&table::POWER_PROFILE_LABEL)?,
        ignored_namespaces: values.get(&table::IGNORED_NAMESPACES)?,
        gpu_product_keys: values.get(&table::GPU_PRODUCT_LABEL_KEYS)?,
        source: values.get(&table::DESIRED_SOURCE)?,
        sleep: values.get(&table::SLEEP_BMC_FILE)?.is_some(),
        trust: TrustRule::new(values.get(&table::CLASSIFY_MIN_CONFIDENCE)?),
        bound: DemandBound {
            namespaces: values.get(&table::PERFORMANCE_NAMESPACES)?,
            nodes_max: values.get(&table::PERFORMANCE_NODES_MAX)?,
            pods_per_node: match PolicyType::read(&values.get(&table::POLICY_TYPE)?).0 {
                PolicyType::QueueAware => {
                    Some(u32::try_from(values.get(&table::QUEUE_PERF_PER_HP_NODE)?).unwrap_or(u32::MAX))
                }
                PolicyType::StaticPartition | PolicyType::RuleSwap => None,
            },
        },
    })
}

fn policy(values: &Values) -> Result<(PlacementPolicy, bool), Refusals> {
    let (kind, known) = PolicyType::read(&values.get(&table::POLICY_TYPE)?);
    let interval = micros(values.get(&table::RECONCILE_INTERVAL)?);
    let refuse = |names: &[&str], why: &dyn std::fmt::Display| values.conflict(names, &why.to_string());
    let policy = match kind {
        PolicyType::StaticPartition => {
            let fraction = values.get(&table::STATIC_HP_FRAC)?;
            PlacementPolicy::StaticPartition(
                StaticPartition::new(fraction).map_err(|why| refuse(&["STATIC_HP_FRAC"], &why))?,
            )
        }
        PolicyType::QueueAware => {
            let names = ["QUEUE_HP_BASE_FRAC", "QUEUE_HP_MIN", "QUEUE_HP_MAX", "QUEUE_PERF_PER_HP_NODE"];
            let policy = QueueAware::new(
                values.get(&table::QUEUE_HP_BASE_FRAC)?,
                values.get(&table::QUEUE_HP_MIN)?,
                values.get(&table::QUEUE_HP_MAX)?,
                values.get(&table::QUEUE_PERF_PER_HP_NODE)?,
            );
            PlacementPolicy::QueueAware(policy.map_err(|why| refuse(&names, &why))?)
        }
        PolicyType::RuleSwap => PlacementPolicy::RuleSwap(RuleSwap::new(interval)),
    };
    Ok((policy, !known))
}

fn intents(values: &Values, catalog: &Catalog) -> Result<Intents, Refusals> {
    let both = |performance: &ConfigSetting<Percent>, eco: &ConfigSetting<Percent>| {
        Ok::<_, Refusals>(PerProfile { performance: values.get(performance)?, eco: values.get(eco)? })
    };
    let gpu_node_cpus =
        if values.get(&table::GPU_NODE_CPU_CAPS)? { GpuNodeCpus::Cap } else { GpuNodeCpus::Leave };
    let settings = CapSettings {
        cpu_percent: both(&table::CPU_PERFORMANCE_CAP_PCT_OF_MAX, &table::CPU_ECO_CAP_PCT_OF_MAX)?,
        cpu_watts: PerProfile {
            performance: values.get(&table::PERFORMANCE_CAP_WATTS)?,
            eco: values.get(&table::ECO_CAP_WATTS)?,
        },
        cpu_absolute: values.get(&table::CPU_WRITE_ABSOLUTE_CAPS)?,
        gpu_node_cpus,
        gpu_percent: both(&table::GPU_PERFORMANCE_CAP_PCT_OF_MAX, &table::GPU_ECO_CAP_PCT_OF_MAX)?,
        gpu_absolute: values.get(&table::GPU_WRITE_ABSOLUTE_CAPS)?,
    };
    let text = values.get(&table::GPU_MODEL_CAPS_JSON)?;
    let ranges = gpu_ranges(&text)
        .and_then(|gpus| UserRanges::new(Vec::new(), gpus, catalog).map_err(|error| error.to_string()));
    let ranges = ranges.map_err(|why| values.conflict(&["GPU_MODEL_CAPS_JSON"], &why))?;
    Intents::new(settings, ranges).map_err(|why| {
        let names = [
            "CPU_ECO_CAP_PCT_OF_MAX",
            "ECO_CAP_WATTS",
            "GPU_ECO_CAP_PCT_OF_MAX",
            "CPU_PERFORMANCE_CAP_PCT_OF_MAX",
        ];
        values.conflict(&names, &why.to_string())
    })
}

/// Parses `{"product": {"minCapWatts": 200, "maxCapWatts": 350}}`
fn gpu_ranges(text: &str) -> Result<Vec<(String, PowerRange)>, String> {
    let map: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(text).map_err(|error| {
        format!("expected {{\"product\": {{\"minCapWatts\": 200, \"maxCapWatts\": 350}}}}: {error}")
    })?;
    let range = |(model, range): (String, BTreeMap<String, Value>)| {
        let watts = |field: &str| match range.get(field) {
            None => Ok(None),
            Some(value) => Watts::parse(&value.to_string(), Role::Limit)
                .map(Some)
                .map_err(|error| format!("{model}: {field}: {error}")),
        };
        let (min, max) = (watts("minCapWatts")?, watts("maxCapWatts")?);
        let max = max.ok_or_else(|| format!("{model}: maxCapWatts is missing"))?;
        Ok((model.clone(), PowerRange { min, max }))
    };
    map.into_iter().map(range).collect()
}

fn prometheus(values: &Values) -> Result<Option<PrometheusAccess>, Refusals> {
    let address = values.get(&prometheus::PROMETHEUS_ADDRESS)?;
    address.map(|address| prometheus::access(values, address)).transpose()
}

fn limits(values: &Values) -> Result<BudgetLimits, Refusals> {
    let limits = BudgetLimits {
        site: values.get(&table::BUDGET_SITE_WATTS)?,
        site_base: values.get(&table::BUDGET_SITE_BASE_WATTS)?,
        racks: values.get(&table::BUDGET_RACK_WATTS)?,
        rack_base: values.get(&table::BUDGET_RACK_BASE_WATTS)?,
        node_rest: values.get(&table::BUDGET_NODE_REST_WATTS)?,
        rest_measured: values.get(&table::BUDGET_NODE_REST_MEASURED)?,
        unknown_node: values.get(&table::BUDGET_UNKNOWN_NODE_WATTS)?,
        dead_band: values.get(&table::BUDGET_DEAD_BAND_WATTS)?,
        raise_band: values.get(&table::BUDGET_RAISE_PCT)?.to_ratio(Role::Limit),
        raise_dwell: micros(values.get(&table::BUDGET_RAISE_DWELL)?),
        answer_within: micros(values.get(&table::BUDGET_ANSWER_WITHIN)?),
        gone_hold: micros(values.get(&table::BUDGET_GONE_HOLD)?),
        sharing: values.get(&table::BUDGET_MODE)?,
    };
    Ok(limits)
}

/// The namespaces of a comma-separated list.
pub(crate) fn namespaces(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

/// A fraction from 0 to 1.
pub(crate) fn fraction(text: &str) -> Result<Ratio, host_kit::config::Wrong> {
    let wrong = |why: String| host_kit::config::Wrong(why);
    let ratio = Ratio::parse(text.trim(), Role::Nearest).map_err(|error| wrong(error.to_string()))?;
    if (Ratio::ZERO..=Ratio::ONE).contains(&ratio) {
        Ok(ratio)
    } else {
        Err(wrong("it is not between 0 and 1".to_owned()))
    }
}

/// How strictly downgrades are guarded, by its word.
pub(crate) const GUARDS: [(&str, GuardMode); 2] = [("soft", GuardMode::Soft), ("hard", GuardMode::Hard)];
/// How power is shared below a limit, by its word.
pub(crate) const SHARINGS: [(&str, PowerSharing); 2] =
    [("demand", PowerSharing::Demand), ("static", PowerSharing::Static)];
/// Which floor the families have, by its word.
pub(crate) const FLOORS: [(&str, FamilyFloor); 3] =
    [("raise", FamilyFloor::Raise), ("within-count", FamilyFloor::WithinCount), ("off", FamilyFloor::Off)];
/// What follows when a drain is overdue, by its word.
pub(crate) const OVERDUE: [(&str, DrainOverdue); 3] =
    [("tell", DrainOverdue::Tell), ("hold", DrainOverdue::Hold), ("evict", DrainOverdue::Evict)];
/// When nodes carry the draining label, by its word.
pub(crate) const MARKS: [(&str, DrainingLabel); 2] =
    [("always", DrainingLabel::Always), ("while-draining", DrainingLabel::OnlyWhileDraining)];
/// Whether the live page is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UiMode {
    /// It is not.
    Off,
    /// It shows, and changes nothing.
    Read,
}

/// The same, by its word.
pub(crate) const UI_MODES: [(&str, UiMode); 2] = [("off", UiMode::Off), ("read", UiMode::Read)];
/// Which kind carries the desired state, by its word.
pub(crate) const SOURCES: [(&str, DesiredKind); 2] =
    [("profile", DesiredKind::Profile), ("twin", DesiredKind::Twin)];

#[cfg(test)]
pub(crate) mod tests;
