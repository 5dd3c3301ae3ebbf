//! The extender's settings, and which values are accepted.

use crate::request_log::RequestLogRule;
use crate::shortlist::{ShortlistPods, ShortlistRule};
use host_kit::clock::micros;
use host_kit::config::parse;
use host_kit::config::{ConfigSetting, Listen, Refusals, Retired, SettingsTable, Values, Wrong};
use host_kit::program;
use host_kit::server::TlsFiles;
use host_kit::server::settings::{self as tls, MetricsPort};
use joulie_api::labels;
use joulie_api::workload_profile::TrustRule;
use joulie_core::placement::assumed::AssumedRule;
use joulie_core::placement::estimate::{self, Coefficients};
use joulie_core::placement::filter::PowerFit;
use joulie_core::placement::freshness::FreshnessRule;
use joulie_core::placement::gpu::Packing;
use joulie_core::placement::score::{Formula, ScoreMax, Scoring, UnknownScore};
use power_units::{Ratio, Role};
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const EXTENDER_ADDR: ConfigSetting<Listen> = ConfigSetting::with_default(
    "EXTENDER_ADDR",
    ":9876",
    parse::listen,
    "an address to listen on, such as :9876 or 127.0.0.1:9876; port 0 lets the kernel choose",
    "Where kube-scheduler asks: POST /filter and POST /prioritize",
);

const METRICS_ADDR: ConfigSetting<Listen> = ConfigSetting::with_default(
    "METRICS_ADDR",
    ":9877",
    parse::listen,
    "an address to listen on, such as :9877",
    "Where /metrics, /livez, /readyz and /debug are",
);

const TWIN_STALENESS_THRESHOLD: ConfigSetting<Duration> = ConfigSetting::with_default(
    "TWIN_STALENESS_THRESHOLD",
    "5m",
    |text| parse::duration(text, Duration::from_secs(1)..=Duration::from_secs(24 * 3600)),
    "a duration between 1s and 24h",
    "A NodeTwin that is older is not believed: the node counts as unknown",
);

const MARGINAL_CPU: ConfigSetting<String> = coefficient(
    "MARGINAL_CPU_UTIL_COEFF",
    "0.7",
    "Which part of the cores that it asks for a pod is taken to use",
);
const MARGINAL_GPU: ConfigSetting<String> =
    coefficient("MARGINAL_GPU_UTIL_COEFF_STANDARD", "0.65", "The same of the GPUs of standard pods");
const MARGINAL_GPU_PERFORMANCE: ConfigSetting<String> =
    coefficient("MARGINAL_GPU_UTIL_COEFF_PERFORMANCE", "0.85", "The same of the GPUs of performance pods");

const fn coefficient(name: &'static str, default: &'static str, help: &'static str) -> ConfigSetting<String> {
    // Which of the three settings it is makes no difference to the accepted values.
    ConfigSetting::with_default(
        name,
        default,
        |text| {
            let accepted = Coefficients::REFERENCE.with(estimate::CoefficientSetting::Cpu, text);
            accepted
                .map(|_| text.trim().to_owned())
                .map_err(|_| Wrong("it is not a number above 0 and at most 2".to_owned()))
        },
        "a number above 0 and at most 2",
        help,
    )
}

const ENABLE_FACILITY_METRICS: ConfigSetting<bool> = ConfigSetting::with_default(
    "ENABLE_FACILITY_METRICS",
    "false",
    parse::boolean,
    "true or false",
    "Whether NodeTwin.status.estimatedPUE multiplies a pod's watts; one that rests on cooling stress alone, as upstream's operator writes it, counts as 1.0",
);

const POWER_PROFILE_LABEL: ConfigSetting<String> = ConfigSetting::with_default(
    "POWER_PROFILE_LABEL",
    labels::node::POWER_PROFILE,
    parse::label_key,
    "the key of a label",
    "The label of nodes that says eco where no twin speaks; as the operator has it",
);

const SCORING_FORMULA: ConfigSetting<Formula> = ConfigSetting::with_default(
    "SCORING_FORMULA",
    "headroom",
    |text| Formula::read(text).map_err(wrong),
    "headroom, facility or consolidate",
    "headroom: 0.7 headroom, 0.15 cooling and the trend; facility: 0.4 headroom, 0.3 cooling, 0.3 power supply (0.55 and 0.45 where no power supply stress is known); consolidate: fewest nodes by watts, with whole GPU nodes kept whole",
);

const EXTENDER_SCORE_MAX: ConfigSetting<ScoreMax> = ConfigSetting::with_default(
    "EXTENDER_SCORE_MAX",
    "100",
    |text| ScoreMax::read(text).map_err(wrong),
    "100 or 10",
    "The best score; kube-scheduler multiplies what it is told by ten times the extender's weight",
);

const UNKNOWN_SCORE: ConfigSetting<UnknownScore> = ConfigSetting::with_default(
    "UNKNOWN_SCORE",
    "cautious",
    |text| UnknownScore::read(text).map_err(wrong),
    "neutral or cautious",
    "What an unknown node scores: cautious is 50 and at most what the lowest known candidate does, neutral is 50",
);

const USE_WORKLOAD_PROFILES: ConfigSetting<bool> = ConfigSetting::with_default(
    "USE_WORKLOAD_PROFILES",
    "true",
    parse::boolean,
    "true or false",
    "Whether a pod scores lower on capped nodes as far as the WorkloadProfile of its workload says that caps hurt it",
);

const CLASSIFY_MIN_CONFIDENCE: ConfigSetting<Ratio> = ConfigSetting::with_default(
    "CLASSIFY_MIN_CONFIDENCE",
    TrustRule::LEAST_DEFAULT,
    |text| {
        let ratio = Ratio::parse(text.trim(), Role::Nearest).map_err(wrong)?;
        match (Ratio::ZERO..=Ratio::ONE).contains(&ratio) {
            true => Ok(ratio),
            false => Err(Wrong("it is not between 0 and 1".to_owned())),
        }
    },
    "a fraction from 0 to 1",
    "A WorkloadProfile with less confidence is not trusted: it changes nothing; as the operator has it",
);

const POWER_FIT: ConfigSetting<PowerFit> = ConfigSetting::with_default(
    "POWER_FIT",
    "score",
    |text| PowerFit::read(text).map_err(wrong),
    "score or filter",
    "Whether a pod that would take a node over its cap, assumed watts included, is scored lower (score) or the node refused (filter)",
);

const SHORTLIST: ConfigSetting<ShortlistPods> = ConfigSetting::with_default(
    "SHORTLIST",
    "off",
    |text| {
        let words =
            [("off", ShortlistPods::Nobody), ("safe", ShortlistPods::Safe), ("all", ShortlistPods::All)];
        parse::one_of(text, &words)
    },
    "off, safe or all",
    "Which pods' filter requests are answered with the best candidates only: safe means pods whose other scores cannot be turned by it",
);

const SHORTLIST_SIZE: ConfigSetting<u32> = ConfigSetting::with_default(
    "SHORTLIST_SIZE",
    "64",
    |text| parse::whole(text, 2..=4096),
    "a whole number from 2 to 4096",
    "How many candidates such an answer has, if as many fit",
);

const GPU_PLACEMENT: ConfigSetting<GpuPods> = ConfigSetting::with_default(
    "GPU_PLACEMENT",
    "off",
    |text| match text.trim() {
        "off" => Ok(GpuPods::Off),
        "annotated" => Ok(GpuPods::Annotated),
        "all" => Ok(GpuPods::All),
        _ => Err(Wrong("it is another word".to_owned())),
    },
    "off, annotated or all",
    "Whether GPU objects are watched, and pods placed by them: those with annotations gpu-extender.mle.com/… (annotated), or all that ask for GPUs",
);

const GPU_PACKING: ConfigSetting<Packing> = ConfigSetting::with_default(
    "GPU_PACKING",
    "pack",
    |text| Packing::read(text.trim()).ok_or_else(|| Wrong("it is another word".to_owned())),
    "pack or spread",
    "Whether pods with GPUs go where GPUs are used already, so that nodes and islands stay whole, or where they are free; a pod's annotation says otherwise",
);

const GPU_SCORE_SHARE: ConfigSetting<usize> = ConfigSetting::with_default(
    "GPU_SCORE_SHARE",
    "60",
    |text| parse::whole(text, 0..=100),
    "a whole number from 0 to 100",
    "How many percent of the score of a pod with GPUs its GPUs are; the rest is the score by watts",
);

const GPU_NODE_CORES: ConfigSetting<GpuNodeCores> = ConfigSetting::with_default(
    "GPU_NODE_CORES",
    "free",
    |text| {
        let words =
            [("free", GpuNodeCores::Free), ("score", GpuNodeCores::Score), ("filter", GpuNodeCores::Filter)];
        parse::one_of(text, &words)
    },
    "free, score or filter",
    "Whether pods without GPUs may take the cores that the free GPUs of a node need (free), or score 25 lower there (score), or are refused (filter); a GPU needs as many as the pods with GPUs of the cluster ask for with one",
);

const GPU_BIND: ConfigSetting<GpuBind> = ConfigSetting::with_default(
    "GPU_BIND",
    "false",
    |text| match text.trim() {
        "apart" => Ok(GpuBind::Apart),
        other => Ok(if parse::boolean(other)? { GpuBind::Here } else { GpuBind::Nowhere }),
    },
    "true, false or apart",
    "Whether POST /bind and POST /preempt are answered: bind takes the cards of a pod before it binds it; needs GPU_PLACEMENT and rights to write. apart: preempt alone, and another extender binds, with an account of its own",
);

const GPU_DRA: ConfigSetting<bool> = ConfigSetting::with_default(
    "GPU_DRA",
    "off",
    |text| parse::one_of(text, &[("off", false), ("read", true)]),
    "off or read",
    "Whether ResourceSlices and ResourceClaims (resource.k8s.io/v1) are read: slices say what cards are, and a card that a claim holds takes no other pod; needs GPU_PLACEMENT. Where the API server does not have them nothing changes",
);

const ASSUMED_SETTLE: ConfigSetting<Duration> = ConfigSetting::with_default(
    "ASSUMED_SETTLE",
    "30s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(3600)),
    "a duration of at most 1h",
    "A pod's assumed watts count until the node's power was sampled so long after its start",
);

const ASSUMED_MAX_AGE: ConfigSetting<Duration> = ConfigSetting::with_default(
    "ASSUMED_MAX_AGE",
    "10m",
    |text| parse::duration(text, Duration::from_secs(1)..=Duration::from_secs(24 * 3600)),
    "a duration between 1s and 24h, above ASSUMED_SETTLE",
    "A pod that was bound and does not run counts so long",
);

const ASSUMED_PODS_MAX: ConfigSetting<usize> = ConfigSetting::with_default(
    "ASSUMED_PODS_MAX",
    "16384",
    |text| parse::whole(text, 16..=1_000_000),
    "a whole number from 16 to 1000000",
    "How many pods that no sample shows yet are kept; beyond it the longest bound are dropped, and that is counted",
);

const EXPECTED_MAX_AGE: ConfigSetting<Duration> = ConfigSetting::with_default(
    "EXPECTED_MAX_AGE",
    "5s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(60)),
    "a duration of at most 1m; 0s for never",
    "A pod that was scored counts so long on the node that scored best, until its binding is seen",
);

const EXTENDER_BODY_MAX: ConfigSetting<usize> = ConfigSetting::with_default(
    "EXTENDER_BODY_MAX",
    "134217728",
    |text| parse::whole(text, 1 << 16..=1 << 30),
    "a number of bytes from 65536 to 1073741824",
    "The largest request; whole Node objects of 5,000 nodes are some 45 to 90 MB. All requests in flight may have twice as many",
);

const EXTENDER_CONNECTIONS_MAX: ConfigSetting<usize> = ConfigSetting::with_default(
    "EXTENDER_CONNECTIONS_MAX",
    "64",
    |text| parse::whole(text, 1..=10_000),
    "a whole number from 1 to 10000",
    "How many connections may be open; each may hold one request, and one address a quarter of them",
);

const NODE_SERIES: ConfigSetting<bool> = ConfigSetting::with_default(
    "NODE_SERIES",
    "true",
    parse::boolean,
    "true or false",
    "Whether /metrics has the scores of every node; four series each",
);

const REQUEST_LOG: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "REQUEST_LOG",
    |text| parse::path(text).map(Some),
    "the path of a file",
    "Where sampled requests and their answers are added, for joulie-extender replay; without it none are",
);

const REQUEST_LOG_EVERY: ConfigSetting<u64> = ConfigSetting::with_default(
    "REQUEST_LOG_EVERY",
    "100",
    |text| parse::whole(text, 1..=1_000_000),
    "a whole number from 1 to 1000000",
    "One of so many requests is added to REQUEST_LOG",
);

const REQUEST_LOG_BYTES_MAX: ConfigSetting<u64> = ConfigSetting::with_default(
    "REQUEST_LOG_BYTES_MAX",
    "67108864",
    |text| parse::whole(text, 1 << 16..=1 << 40),
    "a number of bytes from 65536 to 1099511627776",
    "REQUEST_LOG grows no further",
);

const DRAIN_LINGER: ConfigSetting<Duration> = ConfigSetting::with_default(
    "DRAIN_LINGER",
    "3s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(120)),
    "a duration of at most 2m",
    "How long requests are still accepted after the program was asked to end, until the Service has noticed",
);

/// All settings that the extender reads.
pub static TABLE: SettingsTable = SettingsTable {
    program: "joulie-extender",
    about: "filters and scores nodes for kube-scheduler by their power",
    settings: &[
        &EXTENDER_ADDR,
        &METRICS_ADDR,
        &tls::TLS_CERT_FILE,
        &tls::TLS_KEY_FILE,
        &tls::TLS_CLIENT_CA_FILE,
        &tls::METRICS_TLS_CERT_FILE,
        &tls::METRICS_TLS_KEY_FILE,
        &tls::METRICS_AUTH,
        &TWIN_STALENESS_THRESHOLD,
        &MARGINAL_CPU,
        &MARGINAL_GPU,
        &MARGINAL_GPU_PERFORMANCE,
        &ENABLE_FACILITY_METRICS,
        &POWER_PROFILE_LABEL,
        &SCORING_FORMULA,
        &EXTENDER_SCORE_MAX,
        &UNKNOWN_SCORE,
        &USE_WORKLOAD_PROFILES,
        &CLASSIFY_MIN_CONFIDENCE,
        &POWER_FIT,
        &SHORTLIST,
        &SHORTLIST_SIZE,
        &GPU_PLACEMENT,
        &GPU_PACKING,
        &GPU_SCORE_SHARE,
        &GPU_NODE_CORES,
        &GPU_BIND,
        &GPU_DRA,
        &ASSUMED_SETTLE,
        &ASSUMED_MAX_AGE,
        &ASSUMED_PODS_MAX,
        &EXPECTED_MAX_AGE,
        &EXTENDER_BODY_MAX,
        &EXTENDER_CONNECTIONS_MAX,
        &NODE_SERIES,
        &REQUEST_LOG,
        &REQUEST_LOG_EVERY,
        &REQUEST_LOG_BYTES_MAX,
        &DRAIN_LINGER,
        &program::NAMESPACE,
        &program::KUBECONFIG,
        &program::LOG_LEVEL,
        &program::LOG_FORMAT,
        &program::DEBUG_TOKEN,
        &program::SHUTDOWN_TIMEOUT,
    ],
    retired: &[
        Retired { name: "CACHE_TTL", note: "objects are watched, so nothing is cached for a time" },
        Retired { name: "ENABLE_MARGINAL_POWER_SCORING", note: "a pod's watts always count" },
        Retired {
            name: "EVICTION_HISTORY_TTL",
            note: "a node is avoided for as long as its twin says that it is stressed",
        },
        Retired { name: "MARGINAL_IDLE_GPU_WASTE_WATTS", note: "idle GPUs are not weighed" },
        Retired { name: "MARGINAL_REF_NODE_POWER_W", note: "a node is compared with its own cap" },
        Retired { name: "MARGINAL_REF_RACK_CAPACITY_W", note: "a node is compared with its own cap" },
    ],
    families: &[
        "EXTENDER_",
        "GPU_",
        "MARGINAL_",
        "ASSUMED_",
        "EXPECTED_",
        "TLS_",
        "METRICS_",
        "CLASSIFY_",
        "SHORTLIST_",
        "REQUEST_LOG_",
    ],
};

fn wrong(error: impl Display) -> Wrong {
    Wrong(error.to_string())
}

/// The extender's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address for kube-scheduler.
    pub work: Listen,
    /// The address for metrics, health and debugging.
    pub metrics: Listen,
    /// TLS of the first.
    pub work_tls: Option<TlsFiles>,
    /// TLS of the second, and who may read the metrics.
    pub metrics_port: MetricsPort,
    /// The namespace of the plan's Lease.
    pub namespace: String,
    /// The token that allows access to /debug from other addresses.
    pub debug_token: Option<String>,
    /// How a request is decided.
    pub placement: PlacementSettings,
    /// The key of the profile label.
    pub profile_key: Arc<str>,
    /// Which profiles of workloads are trusted; `None` if none is used.
    pub trust: Option<TrustRule>,
    /// Whether pods are bound, and preemptions answered.
    pub binds: GpuBind,
    /// When a twin counts as fresh.
    pub freshness: FreshnessRule,
    /// The staleness threshold as it was given.
    pub staleness: Duration,
    /// How long a pod's watts are assumed.
    pub assumed: AssumedRule,
    /// The most pods whose watts are assumed.
    pub assumed_pods_max: usize,
    /// How long a scored pod is expected at most.
    pub expected_max: Duration,
    /// The largest request in bytes.
    pub body_max: usize,
    /// The most connections.
    pub connections_max: usize,
    /// Which requests are logged, if any.
    pub request_log: Option<RequestLogRule>,
    /// Whether each node has series of its own.
    pub node_series: bool,
    /// How long requests are still accepted after a stop was requested.
    pub linger: Duration,
    /// How long the program may take to stop.
    pub shutdown: Duration,
}

/// How a request is decided.
#[derive(Clone, Copy, Debug)]
pub struct PlacementSettings {
    /// The formula, its range and its coefficients.
    pub scoring: Scoring,
    /// Whether a node is rejected if a pod would take it over its cap.
    pub power_fit: PowerFit,
    /// Which pods are given a shortlist.
    pub shortlist: ShortlistRule,
    /// How pods that ask for GPUs are placed.
    pub gpus: GpuRule,
}

/// Who binds pods with GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuBind {
    /// kube-scheduler, and no preemption is answered.
    Nowhere,
    /// This program.
    Here,
    /// Another one with an account of its own, so that this one's token cannot bind; preemptions are answered here.
    Apart,
}

/// Which pods are placed by GPU objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuPods {
    /// None.
    Off,
    /// Those whose annotations say which GPUs they want.
    Annotated,
    /// Also those that only ask for a number.
    All,
}

/// How pods that ask for GPUs are placed.
#[derive(Clone, Copy, Debug)]
pub struct GpuRule {
    /// Which ones.
    pub scope: GpuPods,
    /// Which nodes score higher, unless the pod says it.
    pub packing: Packing,
    /// The part of the score in percent.
    pub share: u8,
    /// What pods without GPUs leave to free GPUs.
    pub cores: GpuNodeCores,
    /// Whether claims of devices and what drivers publish are read.
    pub reads_claims: bool,
}

/// Whether pods without GPUs leave the cores that the free GPUs of a node need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuNodeCores {
    /// They take any.
    Free,
    /// The node scores lower.
    Score,
    /// The node is refused.
    Filter,
}

impl PlacementSettings {
    /// Whether it is looked at what pods ask for on each node.
    pub(crate) fn counts_cores(&self) -> bool {
        self.counts_loads()
            || self.gpus.cores != GpuNodeCores::Free
            || self.scoring.formula == Formula::Consolidate
    }

    /// Whether it is looked at what kube-scheduler counts on each node.
    pub(crate) fn counts_loads(&self) -> bool {
        self.shortlist.is_on() || self.gpus.is_on()
    }
}

impl GpuRule {
    /// No pod is placed by GPUs.
    pub const OFF: Self = Self {
        scope: GpuPods::Off,
        packing: Packing::Pack,
        share: 0,
        cores: GpuNodeCores::Free,
        reads_claims: false,
    };

    /// Whether GPU objects are looked at.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.scope != GpuPods::Off
    }
}

impl Settings {
    /// Reads the settings.
    pub fn read(values: &Values) -> Result<Self, Refusals> {
        let staleness = values.get(&TWIN_STALENESS_THRESHOLD)?;
        let settle = values.get(&ASSUMED_SETTLE)?;
        let age = values.get(&ASSUMED_MAX_AGE)?;
        let freshness = FreshnessRule::new(micros(staleness))
            .map_err(|error| values.conflict(&["TWIN_STALENESS_THRESHOLD"], &error.to_string()))?;
        let assumed = AssumedRule::new(micros(settle), micros(age))
            .map_err(|error| values.conflict(&["ASSUMED_SETTLE", "ASSUMED_MAX_AGE"], &error.to_string()))?;
        let least = values.get(&CLASSIFY_MIN_CONFIDENCE)?;
        let every = values.get(&REQUEST_LOG_EVERY)?;
        let bytes_max = values.get(&REQUEST_LOG_BYTES_MAX)?;
        let request_log = values.get(&REQUEST_LOG)?;
        let (placement, binds) = (placement(values)?, values.get(&GPU_BIND)?);
        if binds != GpuBind::Nowhere && !placement.gpus.is_on() {
            let why = "pods are bound by GPU objects, which GPU_PLACEMENT=off does not look at";
            return Err(values.conflict(&["GPU_BIND", "GPU_PLACEMENT"], why));
        }
        let (linger, shutdown) = (values.get(&DRAIN_LINGER)?, values.get(&program::SHUTDOWN_TIMEOUT)?);
        if linger >= shutdown {
            let why =
                "requests are accepted for DRAIN_LINGER of SHUTDOWN_TIMEOUT, and no time is left to end them";
            return Err(values.conflict(&["DRAIN_LINGER", "SHUTDOWN_TIMEOUT"], why));
        }
        Ok(Self {
            work: values.get(&EXTENDER_ADDR)?,
            metrics: values.get(&METRICS_ADDR)?,
            work_tls: tls::work_tls(values)?,
            metrics_port: tls::metrics_port(values)?,
            namespace: values.get(&program::NAMESPACE)?,
            debug_token: values.get(&program::DEBUG_TOKEN)?,
            placement,
            binds,
            profile_key: values.get(&POWER_PROFILE_LABEL)?.into(),
            trust: values.get(&USE_WORKLOAD_PROFILES)?.then_some(TrustRule::new(least)),
            freshness,
            staleness,
            assumed,
            assumed_pods_max: values.get(&ASSUMED_PODS_MAX)?,
            expected_max: values.get(&EXPECTED_MAX_AGE)?,
            body_max: values.get(&EXTENDER_BODY_MAX)?,
            connections_max: values.get(&EXTENDER_CONNECTIONS_MAX)?,
            request_log: request_log.map(|path| RequestLogRule { path, every, bytes_max }),
            node_series: values.get(&NODE_SERIES)?,
            linger,
            shutdown,
        })
    }
}

fn placement(values: &Values) -> Result<PlacementSettings, Refusals> {
    let mut coefficients = Coefficients::REFERENCE;
    for (setting, text) in [
        (estimate::CoefficientSetting::Cpu, values.get(&MARGINAL_CPU)?),
        (estimate::CoefficientSetting::GpuStandard, values.get(&MARGINAL_GPU)?),
        (estimate::CoefficientSetting::GpuPerformance, values.get(&MARGINAL_GPU_PERFORMANCE)?),
    ] {
        coefficients = coefficients
            .with(setting, &text)
            .map_err(|error| values.conflict(&[setting.variable()], &error.to_string()))?;
    }
    let scoring = Scoring {
        formula: values.get(&SCORING_FORMULA)?,
        facility_metrics: values.get(&ENABLE_FACILITY_METRICS)?,
        unknown: values.get(&UNKNOWN_SCORE)?,
        max: values.get(&EXTENDER_SCORE_MAX)?,
        coefficients,
    };
    let shortlist = ShortlistRule { pods: values.get(&SHORTLIST)?, size: values.get(&SHORTLIST_SIZE)? };
    let gpus = GpuRule {
        scope: values.get(&GPU_PLACEMENT)?,
        packing: values.get(&GPU_PACKING)?,
        share: u8::try_from(values.get(&GPU_SCORE_SHARE)?).unwrap_or(100),
        cores: values.get(&GPU_NODE_CORES)?,
        reads_claims: values.get(&GPU_DRA)?,
    };
    if gpus.reads_claims && !gpus.is_on() {
        let why = "claims are joined to GPU objects, which GPU_PLACEMENT=off does not look at";
        return Err(values.conflict(&["GPU_DRA", "GPU_PLACEMENT"], why));
    }
    if gpus.cores != GpuNodeCores::Free && !gpus.is_on() {
        let why = "the GPUs of a node are known by GPU objects, which GPU_PLACEMENT=off does not look at";
        return Err(values.conflict(&["GPU_NODE_CORES", "GPU_PLACEMENT"], why));
    }
    Ok(PlacementSettings { scoring, power_fit: values.get(&POWER_FIT)?, shortlist, gpus })
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::config::{Invocation, load};

    fn read(all: &[(&str, &str)]) -> Result<Settings, String> {
        let given = all.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let Invocation::Run(sources) = Invocation::read([], given) else { panic!("a run") };
        load(&TABLE, &sources)
            .and_then(|values| Settings::read(&values))
            .map_err(|refusals| refusals.to_string())
    }

    #[test]
    fn a_drain_that_the_end_cuts_off_is_refused() {
        assert!(read(&[]).is_ok() && read(&[("DRAIN_LINGER", "19s")]).is_ok());
        assert!(read(&[("DRAIN_LINGER", "1m"), ("SHUTDOWN_TIMEOUT", "61s")]).is_ok());
        for all in [
            [("DRAIN_LINGER", "20s"), ("LOG_LEVEL", "info")],
            [("DRAIN_LINGER", "1s"), ("SHUTDOWN_TIMEOUT", "1s")],
        ] {
            let why = read(&all).unwrap_err();
            assert!(why.contains("DRAIN_LINGER") && why.contains("no time is left to end them"), "{why}");
        }
    }
}
