//! The settings of the measured power of nodes.

use super::table;
use host_kit::bearer::TokenFile;
use host_kit::config::{Refusals, UrlTemplate, Values, Wrong};
use host_kit::prometheus::{PrometheusAccess, settings as prometheus};
use planner::power::{NoMeasurement, PowerMeter};
use power_units::{Ratio, Role};
use std::path::PathBuf;
use std::time::Duration;

/// Where the measured power of nodes comes from, and how it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodePower {
    /// The sources in the order of preference. Without any the twins estimate.
    pub(crate) sources: Vec<PowerSource>,
    /// How often the sources are asked that have to be asked.
    pub(crate) every: Duration,
    /// Two sources that differ by more than this part of the larger value disagree.
    pub(crate) apart: Ratio,
    /// The meters of a group may show this part of what is counted there more.
    pub(crate) drift: Ratio,
    /// How the endpoint of [`PowerSource::Http`] is asked.
    pub(crate) http: PowerAccess,
}

/// A source of measured power.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PowerSource {
    /// What the agents publish.
    Agent,
    /// An HTTP endpoint for each node.
    Http(Option<UrlTemplate>),
    /// A query that yields watts: of all nodes, or of the one whose name replaces `{node}` in it.
    Prometheus(PrometheusAccess, String),
    /// Kepler's counters of energy, as rates over this time.
    Kepler(PrometheusAccess, Duration),
}

impl PowerSource {
    /// Its name in objects and metrics.
    pub(crate) const fn meter(&self) -> PowerMeter {
        match self {
            Self::Agent => PowerMeter::Agent,
            Self::Http(_) => PowerMeter::Http,
            Self::Prometheus(..) => PowerMeter::Prometheus,
            Self::Kepler(..) => PowerMeter::Kepler,
        }
    }

    /// What is said of a node of which it has said nothing yet.
    pub(crate) const fn silent(&self) -> NoMeasurement {
        match self {
            Self::Http(None) => NoMeasurement::HttpNoEndpoint,
            Self::Agent | Self::Http(Some(_)) | Self::Prometheus(..) | Self::Kepler(..) => {
                self.meter().silent()
            }
        }
    }
}

/// How the endpoint of [`PowerSource::Http`] is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PowerAccess {
    /// The certificate authorities; `None`: those of the system.
    pub(crate) authorities: Option<PathBuf>,
    /// What is shown to it.
    pub(crate) token: Option<TokenFile>,
}

/// A source, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Agent,
    Http,
    Prometheus,
    Kepler,
    /// No meter: what the pods request, and the caps, say what a node draws.
    Estimate,
}

const NAMES: [(&str, Named); 6] = [
    ("agent", Named::Agent),
    ("http", Named::Http),
    ("prometheus", Named::Prometheus),
    ("kepler", Named::Kepler),
    ("static", Named::Estimate),
    ("utilization", Named::Estimate),
];

/// Reads `agent,kepler`
pub(super) fn named(text: &str) -> Result<Vec<Named>, Wrong> {
    let mut all = Vec::new();
    for word in text.split(',').map(str::trim) {
        let one = host_kit::config::parse::one_of(word, &NAMES)?;
        if all.contains(&one) {
            return Err(Wrong(format!("{word} is there twice")));
        }
        all.push(one);
    }
    match all.split_last() {
        Some((_, before)) if before.contains(&Named::Estimate) => {
            Err(Wrong("what comes behind static or utilization is never asked".to_owned()))
        }
        Some(_) | None => Ok(all),
    }
}

/// Reads them.
pub(super) fn read(values: &Values) -> Result<NodePower, Refusals> {
    let named = values.get(&table::NODE_POWER_SOURCE)?;
    let query = values.get(&table::NODE_POWER_PROMETHEUS_QUERY)?;
    let access = |source: &str| -> Result<PrometheusAccess, Refusals> {
        let own = values.get(&table::NODE_POWER_PROMETHEUS_ADDRESS)?;
        let shared = values.get(&prometheus::PROMETHEUS_ADDRESS)?;
        match own.or(shared) {
            Some(address) => prometheus::access(values, address),
            None => Err(values.conflict(
                &[table::NODE_POWER_SOURCE.name(), prometheus::PROMETHEUS_ADDRESS.name()],
                &format!("{source} is asked at a Prometheus server: set its address"),
            )),
        }
    };
    let mut sources = Vec::new();
    for one in named {
        sources.push(match one {
            Named::Agent => PowerSource::Agent,
            Named::Http => PowerSource::Http(values.get(&table::NODE_POWER_HTTP_ENDPOINT)?),
            Named::Prometheus => match &query {
                Some(query) => PowerSource::Prometheus(access("prometheus")?, query.clone()),
                None => {
                    return Err(values.conflict(
                        &[table::NODE_POWER_SOURCE.name(), table::NODE_POWER_PROMETHEUS_QUERY.name()],
                        "prometheus needs a query: set one that yields watts",
                    ));
                }
            },
            Named::Kepler => {
                PowerSource::Kepler(access("kepler")?, values.get(&table::NODE_POWER_KEPLER_WINDOW)?)
            }
            Named::Estimate => break,
        });
    }
    Ok(NodePower {
        sources,
        every: values.get(&table::POWER_POLL_INTERVAL)?,
        apart: values.get(&table::NODE_POWER_DISAGREE_PCT)?.to_ratio(Role::Nearest),
        drift: values.get(&table::BUDGET_DRIFT_PCT)?.to_ratio(Role::Nearest),
        http: PowerAccess {
            authorities: values.get(&table::NODE_POWER_HTTP_CA_FILE)?,
            token: values.get(&table::NODE_POWER_HTTP_TOKEN_FILE)?,
        },
    })
}

/// The longest query: with more, the URL of the question is refused by what stands between.
const QUERY_MAX: usize = 4096;

/// Reads a query in which only these placeholders stand for something.
pub(super) fn query(text: &str, placeholders: &[&str]) -> Result<String, Wrong> {
    let query = text.trim();
    if query.len() > QUERY_MAX {
        return Err(Wrong(format!("it is longer than {QUERY_MAX} characters")));
    }
    // In PromQL a brace is followed by a label, which a brace never ends without an operator.
    let named = ["{node}", "{zone}", "{rack}"]
        .into_iter()
        .find(|&other| query.contains(other) && !placeholders.contains(&other));
    match named {
        Some(other) => Err(Wrong(format!("{other} is not filled in here"))),
        None => Ok(query.to_owned()),
    }
}
