//! A cluster from a file: lists of objects as `kubectl get -o json` writes them, in one list or several after each other.

use crate::assumed_ledger::{AssumedLedger, Round, Scales};
use crate::budgets::BudgetRow;
use crate::cores::{CoresRow, FreeCores};
use crate::dra::{ClaimRow, ClaimedCards, SliceRow};
use crate::gpus::{GpuRow, Gpus};
use crate::index::{Index, Registry};
use crate::node_store::NodeStore;
use crate::rows::{EcoLabel, HardwareRow, LeaseRow, PodRow, ProfileRow, TwinRow};
use crate::settings::Settings;
use crate::shortlist::{OtherScoresBuilder, Remembered, ServiceRow, SiteRow};
use crate::snapshot::{Fleet, Rules, Snapshot};
use crate::snapshot_builder::trusted;
use host_kit::reflect::{ReflectEvent, Row, Rows, by_hand};
use joulie_api::labels;
use joulie_api::workload_profile::TrustedProfiles;
use joulie_core::placement::freshness::{Evidence, Now, PlanLease, UnixTime};
use joulie_core::placement::score::Formula;
use power_units::{Micros, Stamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The cluster, as it is decided on.
pub(super) struct Saved {
    pub(super) snapshot: Snapshot,
    /// The nodes of the cluster.
    pub(super) names: BTreeSet<String>,
    /// What could not be read.
    pub(super) warnings: Vec<String>,
    pods: Vec<Value>,
}

/// The objects by their kinds.
type Objects = BTreeMap<String, Vec<Value>>;

/// When the latest object of the operator or an agent was written, and what the plan's Lease says.
struct Written {
    latest: UnixTime,
    renewed: Option<UnixTime>,
    no_classifier: bool,
}

impl Saved {
    /// Reads the lists. The time of all decisions is the latest one that an object of the operator or an agent names.
    pub(super) fn read(text: &str, settings: &Settings) -> Result<Self, String> {
        let objects = objects(text)?;
        let of = |kind: &str| objects.get(kind).map(Vec::as_slice).unwrap_or_default();
        let mut warnings = Vec::new();
        let budgets = rows::<BudgetRow>(of("PowerBudget"), &mut warnings);
        let twins = rows::<TwinRow>(of("NodeTwin"), &mut warnings);
        let hardware = rows::<HardwareRow>(of("NodeHardware"), &mut warnings);
        let eco = eco_labels(settings, of("Node"), &mut warnings);
        if of("NodeTwin").is_empty() {
            warnings.push("there are no NodeTwins: every node is unknown".to_owned());
        }
        let Written { latest, renewed, no_classifier } = written(&twins, of("Lease"));
        let (own, lease) = clocks(latest, renewed);
        let now = Now { wall: latest, own };
        let mut registry = Registry::default();
        let cards = cards(settings, &objects, &mut warnings);
        let mut store = NodeStore::new(twins, hardware, eco).with_budgets(budgets).with_gpus(cards);
        let (nodes, _) = store.read(&mut registry, |_| false);
        let gpus = gpus(settings, &objects, (store.gpus.as_ref(), &registry, latest), &mut warnings);
        let scoring = &settings.placement.scoring;
        let (profile_key, freshness) = (&settings.profile_key, settings.freshness);
        let rules = Rules { scoring, profile_key, freshness, lease, now };
        let budgets = store.grantable(rules.plans());
        let index = Arc::new(Index::of(&registry));
        let fleet = Arc::new(Fleet::with((budgets, gpus), nodes, index, &rules, true));
        let sites = rows::<SiteRow>(of("Node"), &mut warnings);
        let services = rows::<ServiceRow>(of("Service"), &mut warnings);
        let mut other_scores = OtherScoresBuilder::new(Some(sites), Some(services));
        let mut ledger =
            AssumedLedger::new(settings.assumed, settings.assumed_pods_max, scoring.coefficients);
        let scales = Scales { registry: &registry, fleet: &fleet, now: latest };
        let mut round = Round::default();
        let counts = settings.placement.counts_cores();
        let mut cores = FreeCores::new(counts.then(|| rows::<CoresRow>(of("Node"), &mut warnings)));
        for event in events(of("Pod"), &mut warnings) {
            other_scores.follow(&event);
            cores.follow(&event);
            ledger.follow(event, scales, &mut round);
        }
        ledger.sweep(&fleet, latest);
        other_scores.renew(&registry);
        cores.renew(&registry, &fleet.gpus);
        let numbers = registry.len();
        let names = names(of("Node"), &fleet);
        let assumed = ledger.sums(numbers);
        let left = fleet.left(&assumed);
        let snapshot = Snapshot {
            gpu_room: cores.room(numbers),
            loads: cores.loads(numbers),
            consolidated: match scoring.formula {
                Formula::Consolidate => cores.consolidated(&fleet, &left, &assumed),
                Formula::Headroom | Formula::Facility => Box::default(),
            },
            left,
            assumed,
            assumed_pods: ledger.pods(),
            waiting_pods: ledger.waiting(),
            queue: ledger.queue(),
            workloads: Arc::new(match no_classifier {
                true => TrustedProfiles::default(),
                false => profiles(settings, of("WorkloadProfile"), &mut warnings),
            }),
            other_scores: other_scores.shown(),
            remembered: Arc::new(Remembered::new()),
            fleet,
            ..Snapshot::nothing()
        };
        Ok(Self { snapshot, names, warnings, pods: of("Pod").to_vec() })
    }

    /// A pod of the saved cluster.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<&Value> {
        let is = |pod: &&Value| pod["metadata"]["namespace"] == namespace && pod["metadata"]["name"] == name;
        self.pods.iter().find(is)
    }
}

fn objects(text: &str) -> Result<Objects, String> {
    let mut objects = Objects::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let mut document = document.map_err(|error| format!("it is not JSON: {error}"))?;
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => {
                let of_list = kind.strip_suffix("List").unwrap_or_default();
                for item in items {
                    // The items of a list of one kind need not say their kind.
                    let own = item["kind"].as_str().unwrap_or(of_list).to_owned();
                    objects.entry(own).or_default().push(item);
                }
            }
            Some(_) | None => objects.entry(kind).or_default().push(document),
        }
    }
    match objects.keys().any(|kind| !kind.is_empty()) {
        true => Ok(objects),
        false => Err("it has no objects of Kubernetes".to_owned()),
    }
}

/// Rows of these objects.
fn rows<R: Row>(objects: &[Value], warnings: &mut Vec<String>) -> Rows<R> {
    let (mut by_hand, rows) = by_hand();
    by_hand.list(objects);
    let malformed = rows.malformed();
    if let Some((key, why)) = malformed.first_key_value() {
        warnings.push(format!("{} of {} cannot be read, such as {key}: {why}", malformed.len(), R::KIND));
    }
    rows
}

/// The nodes whose label says eco.
fn eco_labels(settings: &Settings, nodes: &[Value], warnings: &mut Vec<String>) -> Rows<EcoLabel> {
    let is_eco = |node: &&Value| node["metadata"]["labels"][&*settings.profile_key] == "eco";
    let eco: Vec<Value> = nodes.iter().filter(is_eco).cloned().collect();
    rows(&eco, warnings)
}

/// The nodes that are saved, and those of which something is known.
fn names(nodes: &[Value], fleet: &Fleet) -> BTreeSet<String> {
    let names = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str());
    let known = fleet.known().map(|(_, node)| &*node.name);
    names.chain(known).map(str::to_owned).collect()
}

/// The GPU objects, where they are looked at.
fn cards(settings: &Settings, objects: &Objects, warnings: &mut Vec<String>) -> Option<Rows<GpuRow>> {
    let of = objects.get("GPU").map(Vec::as_slice).unwrap_or_default();
    if !settings.placement.gpus.is_on() {
        return None;
    }
    if of.is_empty() {
        warnings.push("there are no GPUs: pods with GPUs that are looked at fit nowhere".to_owned());
    }
    Some(rows(of, warnings))
}

/// The GPUs with what claims say of them.
fn gpus(
    settings: &Settings,
    objects: &Objects,
    (cards, registry, now): (Option<&Rows<GpuRow>>, &Registry, UnixTime),
    warnings: &mut Vec<String>,
) -> Arc<Gpus> {
    let Some(cards) = cards else { return Arc::default() };
    let of = |kind: &str| objects.get(kind).map(Vec::as_slice).unwrap_or_default();
    let claimed = match settings.placement.gpus.reads_claims {
        true => {
            let slices = rows::<SliceRow>(of("ResourceSlice"), warnings);
            ClaimedCards::read(&slices, &rows::<ClaimRow>(of("ResourceClaim"), warnings))
        }
        false => ClaimedCards::default(),
    };
    Arc::new(cards.with(|rows| Gpus::of(rows.values(), registry, Arc::new(claimed), now)))
}

/// What a watch of pods would report.
fn events(pods: &[Value], warnings: &mut Vec<String>) -> Vec<ReflectEvent<PodRow>> {
    let mut events = vec![ReflectEvent::Begin];
    let mut unreadable = 0;
    for pod in pods {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        // The watch does not select pods that have ended.
        if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            continue;
        }
        match PodRow::read(pod) {
            Ok(row) => events.push(ReflectEvent::Seen { uid, row: Arc::new(row) }),
            Err(_) => unreadable += 1,
        }
    }
    if unreadable > 0 {
        warnings.push(format!("{unreadable} pods cannot be read"));
    }
    events.push(ReflectEvent::Whole);
    events
}

fn profiles(settings: &Settings, objects: &[Value], warnings: &mut Vec<String>) -> TrustedProfiles {
    let rows = rows::<ProfileRow>(objects, warnings);
    let Some(rule) = settings.trust else { return TrustedProfiles::default() };
    rows.with(|rows| trusted(rows, rule))
}

fn written(twins: &Rows<TwinRow>, leases: &[Value]) -> Written {
    let plan = leases.iter().find(|lease| lease["metadata"]["name"] == labels::PLAN_LEASE);
    let lease = plan.and_then(|lease| LeaseRow::read(lease).ok());
    let renewed = lease.as_ref().and_then(|lease| lease.renewed);
    let no_classifier = lease.is_some_and(|lease| lease.no_classifier);
    let latest = twins.with(|rows| {
        let times = rows.values().filter_map(|held| held.row.said).flat_map(|said| {
            let dated = match said.evidence {
                Evidence::Dated(time) => time,
                Evidence::NoTwin | Evidence::Leased(_) => None,
            };
            [dated, said.sampled]
        });
        times.flatten().chain(renewed).max()
    });
    Written { latest: latest.unwrap_or(UnixTime::from_micros(0)), renewed, no_classifier }
}

/// Our own clock, on which the Lease was renewed as long ago as it says.
fn clocks(latest: UnixTime, renewed: Option<UnixTime>) -> (Stamp, PlanLease) {
    let Some(renewal) = renewed else { return (Stamp::new(Micros::ZERO), PlanLease::Unseen) };
    let age = latest.since(renewal).unwrap_or(Micros::ZERO);
    (Stamp::new(age), PlanLease::Renewed { renewal, received: Stamp::new(Micros::ZERO) })
}
