//! A page of Kepler's metrics, as far as it is about packages, pods and the idle node; and what was used between two of them.
//!
//! Kepler before 0.10 names containers in the labels `container_namespace` and `pod_name` and tells `idle` and `dynamic`
//! in a label; since then pods have series of their own with a `zone`, and the idle part of the node has another name.
//! Where both are on a page the later ones count.

use host_kit::metrics::ScrapedSeries;
use std::collections::BTreeMap;
use std::fmt;

const NODE: &str = "kepler_node_cpu_joules_total";
const IDLE: &str = "kepler_node_cpu_idle_joules_total";
const POD: &str = "kepler_pod_cpu_joules_total";
const OLD_NODE: &str = "kepler_node_package_joules_total";
const OLD_CONTAINER: &str = "kepler_container_package_joules_total";
/// The namespace of processes that are no containers, before 0.10.
const OLD_SYSTEM: &str = "system";
/// What the five begin with: other lines are not looked at.
const BEGINNINGS: [&str; 3] = ["kepler_node_", "kepler_pod_cpu_joules", "kepler_container_package_joules"];
/// Far more pods than a kubelet runs; more count as what is of no pod.
const PODS_MOST: usize = 4_096;
/// Names of Kubernetes have at most 253 characters.
const NAME_MOST: usize = 253;
/// In joules: a kilowatt for 31 years. A counter that shows more is none.
const JOULES_MOST: f64 = 1e12;

/// A pod as Kepler names it; what it does not tell is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeplerPod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The counters of a page, in microjoules since Kepler's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeplerPage {
    /// Of all packages.
    node: u64,
    /// What of that it says is of the idle node, if it tells it apart.
    idle: Option<u64>,
    pods: BTreeMap<KeplerPod, u64>,
}

/// Why a page is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeplerError {
    /// It is no text.
    NoText,
    /// It does not say what the packages have drawn.
    NoPackages,
    /// It is of another node.
    OtherNode(String),
}

impl fmt::Display for KeplerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoText => f.write_str("it is no text"),
            Self::NoPackages => write!(f, "it has neither {NODE} of zone package nor {OLD_NODE}"),
            Self::OtherNode(name) => {
                write!(f, "it is of node {name:?}: the URL must lead to the Kepler of this node")
            }
        }
    }
}

/// What the series of one generation say.
#[derive(Default)]
struct Generation {
    node_name: Option<String>,
    node: Option<u64>,
    idle: Option<u64>,
    pods: BTreeMap<KeplerPod, u64>,
}

impl KeplerPage {
    /// Reads a page of the Kepler of this node.
    pub(crate) fn read(page: &[u8], node: &str) -> Result<Self, KeplerError> {
        let text = std::str::from_utf8(page).map_err(|_| KeplerError::NoText)?;
        let (mut new, mut old) = (Generation::default(), Generation::default());
        let is_asked = |line: &&str| BEGINNINGS.iter().any(|beginning| line.starts_with(beginning));
        for series in text.lines().filter(is_asked).filter_map(ScrapedSeries::read) {
            let Some(micro) = series.count().and_then(microjoules) else { continue };
            match series.name {
                NODE if is_package(&series) => {
                    new.named(series.label("node_name"));
                    add(&mut new.node, micro);
                }
                IDLE if is_package(&series) => add(&mut new.idle, micro),
                POD if is_package(&series) => new.pod(("pod_namespace", "pod_name"), &series, micro),
                OLD_NODE => {
                    old.named(series.label("instance"));
                    add(&mut old.node, micro);
                    if series.label("mode") == "idle" {
                        add(&mut old.idle, micro);
                    }
                }
                OLD_CONTAINER
                    if series.label("mode") != "idle"
                        && series.label("container_namespace") != OLD_SYSTEM =>
                {
                    old.pod(("container_namespace", "pod_name"), &series, micro);
                }
                _ => {}
            }
        }
        let Generation { node_name, node: drawn, idle, pods } = if new.node.is_some() { new } else { old };
        let drawn = drawn.ok_or(KeplerError::NoPackages)?;
        match node_name {
            Some(name) if name != node => Err(KeplerError::OtherNode(name)),
            Some(_) | None => Ok(Self { node: drawn, idle, pods }),
        }
    }

    /// What was used since an earlier page.
    pub(super) fn since(&self, earlier: &Self) -> KeplerGrowth {
        let Some(node) = self.node.checked_sub(earlier.node) else { return KeplerGrowth::Anew };
        if node == 0 {
            return KeplerGrowth::Still;
        }
        let idle = match (self.idle, earlier.idle) {
            (Some(now), Some(before)) => match now.checked_sub(before) {
                Some(idle) => Some(idle),
                None => return KeplerGrowth::Anew,
            },
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return KeplerGrowth::Anew,
        };
        let grown = |(pod, now): (&KeplerPod, &u64)| {
            let before = earlier.pods.get(pod).copied().unwrap_or(0);
            // A counter that went back is one that began anew.
            (pod.clone(), now.checked_sub(before).unwrap_or(*now))
        };
        let pods: Vec<(KeplerPod, u64)> = self.pods.iter().map(grown).collect();
        let sum = pods.iter().fold(0, |sum: u64, (_, used)| sum.saturating_add(*used));
        let known = sum.saturating_add(idle.unwrap_or(0));
        // Parts that are more than the whole, by more than rounding: pods have come back with what they had before.
        if known > node.saturating_add(node / TWENTIETH).saturating_add(JOULE) {
            return KeplerGrowth::Anew;
        }
        KeplerGrowth::Grown(KeplerDelta { node, idle, rest: node.saturating_sub(known), pods })
    }

    /// For the fuzz target: what all packages drew, and all pods together.
    pub(super) fn sums(&self) -> (u64, u64) {
        (self.node, self.pods.values().fold(0, |sum, used| sum.saturating_add(*used)))
    }
}

const TWENTIETH: u64 = 20;
const JOULE: u64 = 1_000_000;

/// What happened between two pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeplerGrowth {
    /// This was used.
    Grown(KeplerDelta),
    /// The counter of the packages stands still.
    Still,
    /// The counters have begun anew, or do not fit together: the later page is the one to compare with.
    Anew,
}

/// Microjoules between two pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeplerDelta {
    /// Of all packages.
    pub(super) node: u64,
    /// Of the idle node, if that is told apart.
    pub(super) idle: Option<u64>,
    /// Of whatever is neither.
    pub(super) rest: u64,
    /// Of each pod.
    pub(super) pods: Vec<(KeplerPod, u64)>,
}

impl Generation {
    /// Takes the name of a node, if there is one.
    fn named(&mut self, name: &str) {
        if !name.is_empty() && name.len() <= NAME_MOST {
            self.node_name.get_or_insert_with(|| name.to_owned());
        }
    }

    fn pod(&mut self, (namespace, name): (&str, &str), series: &ScrapedSeries<'_>, micro: u64) {
        let [uid, namespace, name] = ["pod_id", namespace, name].map(|label| series.label(label));
        let fits = [uid, namespace, name].iter().all(|text| text.len() <= NAME_MOST);
        if !fits || (uid.is_empty() && (namespace.is_empty() || name.is_empty())) {
            return;
        }
        let [uid, namespace, name] = [uid, namespace, name].map(str::to_owned);
        let pod = KeplerPod { uid, namespace, name };
        if self.pods.len() < PODS_MOST || self.pods.contains_key(&pod) {
            let sum = self.pods.entry(pod).or_default();
            *sum = sum.saturating_add(micro);
        }
    }
}

/// Whether a series is of packages. A node of several packages has them in one zone, or in `package-N` each.
fn is_package(series: &ScrapedSeries<'_>) -> bool {
    let zone = series.label("zone");
    zone == "package" || zone.starts_with("package-")
}

fn add(sum: &mut Option<u64>, micro: u64) {
    *sum = Some(sum.unwrap_or(0).saturating_add(micro));
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a whole number between 0 and 1e18 by then"
)]
fn microjoules(joules: f64) -> Option<u64> {
    (joules <= JOULES_MOST).then(|| (joules * 1e6).round() as u64)
}

#[cfg(test)]
mod tests;
