//! The picture of a cluster, from its API server. It decides nothing and writes nothing.

use crate::hub::UiHub;
use crate::picture::{UiBudget, UiControls, UiNode, UiPicture, UiPlacement, UiSite, tenths};
use crate::pods::{CountedPods, Placed};
use crate::rows::{BudgetRow, GrantRow, NodeRow, PlanRow, PodRow, ProfileRow, SampleRow, TwinRow};
use crate::told::lines;
use crate::wire::UiNews;
use host_kit::clock::{HostClock, Mono, ObservedRenewal};
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::reflect::{HEARD_WITHIN, ObjectKey, Reflections, Row, Rows, WatchSource, reflect};
use host_kit::shutdown::{Stop, Tasks};
use joulie_api::labels;
use kube::Client;
use kubectl_joulie::budget_and_above;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a picture is made while a page is open.
const EVERY: Duration = Duration::from_millis(500);
/// And while none is: for the curve, and for the first picture of a page.
const IDLE: Duration = Duration::from_secs(5);

/// What is watched, and how it is judged.
pub struct UiSource {
    /// What the page is of.
    pub title: String,
    /// The API server.
    pub client: Client,
    /// The clock.
    pub clock: Arc<dyn HostClock>,
    /// Where the Lease of the plan is.
    pub namespace: String,
    /// How long a sample counts that its agent does not renew.
    pub hold: Duration,
    /// What is told beside, in the demo; without it, lines and placements are derived from the pictures.
    pub extras: Option<UiExtras>,
}

/// What the demo knows beside the API.
#[derive(Clone, Debug, Default)]
pub struct UiExtra {
    /// What a person may do.
    pub controls: Option<UiControls>,
    /// The temperatures of nodes.
    pub celsius: BTreeMap<String, f64>,
    /// The extender's scores of nodes.
    pub scores: BTreeMap<String, i64>,
    /// What has come since the last picture.
    pub news: UiNews,
}

/// The same, shared with whoever tells it.
#[derive(Clone, Debug, Default)]
pub struct UiExtras(Arc<Mutex<UiExtra>>);

impl UiExtras {
    /// Changes it.
    pub fn tell(&self, change: impl FnOnce(&mut UiExtra)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn take(&self) -> UiExtra {
        let mut extra = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = std::mem::take(&mut extra.news);
        UiExtra { news, ..extra.clone() }
    }
}

/// The watches, and what is remembered between two pictures.
pub struct UiObserver {
    title: String,
    clock: Arc<dyn HostClock>,
    hold: Duration,
    extras: Option<UiExtras>,
    nodes: Rows<NodeRow>,
    profiles: Rows<ProfileRow>,
    twins: Rows<TwinRow>,
    grants: Rows<GrantRow>,
    samples: Rows<SampleRow>,
    budgets: Rows<BudgetRow>,
    pods: Rows<PodRow>,
    plan: Rows<PlanRow>,
    plan_signs: ObservedRenewal,
    sample_signs: BTreeMap<String, ObservedRenewal>,
    /// What all nodes draw as wholes, if each of them is known.
    whole: Option<f64>,
    counted: CountedPods,
    last: Option<Arc<UiPicture>>,
}

impl UiObserver {
    /// Begins to watch.
    pub fn start(source: UiSource, (tasks, stop): (&mut Tasks, &Stop)) -> Self {
        let UiSource { title, client, clock, namespace, hold, extras } = source;
        // The program's own watches of the same kinds are in its metrics; these are not.
        let mut metrics = MetricsBuilder::of(&BuildInfo { component: "page", version: "", revision: "" });
        let reflections = Reflections::register(metrics.registry());
        let mut watcher = PageWatcher { client: &client, clock: &clock, reflections, tasks, stop };
        let joulie = |plural: &str| format!("/apis/joulie.io/v1alpha1/{plural}");
        Self {
            title,
            hold,
            extras,
            nodes: watcher.rows("/api/v1/nodes", None),
            profiles: watcher.rows(&joulie("nodepowerprofiles"), None),
            twins: watcher.rows(&joulie("nodetwins"), None),
            grants: watcher.rows(&joulie("nodepowergrants"), None),
            samples: watcher.rows(&joulie("nodehardwares"), None),
            budgets: watcher.rows(&joulie("powerbudgets"), None),
            pods: watcher.rows("/api/v1/pods", None),
            plan: watcher.rows(
                &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
                Some(format!("metadata.name={}", labels::PLAN_LEASE)),
            ),
            clock,
            plan_signs: ObservedRenewal::NOTHING,
            sample_signs: BTreeMap::new(),
            whole: None,
            counted: CountedPods::default(),
            last: None,
        }
    }

    /// Shows pictures until asked to stop.
    pub async fn run(mut self, hub: Arc<UiHub>, stop: Stop) {
        loop {
            if self.nodes.is_synced() {
                let (picture, news) = self.look();
                hub.show(picture, &news);
            }
            let pause = if hub.pages() > 0 { EVERY } else { IDLE };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // The first picture of a page may be old: the next follows at once.
                () = hub.called() => {}
                () = stop.requested() => return,
            }
        }
    }

    /// The picture of now, and what has come since the last one.
    fn look(&mut self) -> (Arc<UiPicture>, UiNews) {
        let now = self.clock.mono();
        let extra = self.extras.as_ref().map(UiExtras::take);
        let placed = self.counted.look(&mut self.pods);
        let mut nodes = self.nodes(now);
        if let Some(extra) = &extra {
            for (name, node) in &mut nodes {
                node.celsius = extra.celsius.get(name).copied().map(tenths);
                node.score = extra.scores.get(name).copied();
            }
        }
        let budgets = self.budgets(&nodes);
        let site = self.site(&nodes, &budgets, extra.as_ref(), now);
        let at = tenths(self.clock.wall().as_millisecond() as f64 / 1000.0);
        let picture = Arc::new(UiPicture { at, site, budgets, nodes });
        let news = match (extra, &self.last) {
            (Some(extra), _) => extra.news,
            (None, None) => UiNews::default(),
            (None, Some(last)) => {
                UiNews { placements: placements(placed, &picture), lines: lines(last, &picture) }
            }
        };
        self.last = Some(picture.clone());
        (picture, news)
    }

    fn nodes(&mut self, now: Mono) -> BTreeMap<String, UiNode> {
        let (profiles, twins) =
            (by_node(&self.profiles, |row| &row.node), by_node(&self.twins, |row| &row.node));
        let (grants, samples) =
            (by_node(&self.grants, |row| &row.node), by_node(&self.samples, |row| &row.node));
        self.sample_signs.retain(|name, _| samples.contains_key(name));
        let (mut all, mut whole) = (BTreeMap::new(), Some(0.0));
        for (key, row) in self.nodes.with(|rows| {
            rows.iter().map(|(key, held)| (key.name.clone(), held.row.clone())).collect::<Vec<_>>()
        }) {
            let (profile, twin) = (profiles.get(&key), twins.get(&key));
            if !row.managed && profile.is_none() && twin.is_none() {
                continue;
            }
            let sample = samples.get(&key);
            let signs = self.sample_signs.entry(key.clone()).or_insert(ObservedRenewal::NOTHING);
            if let Some(sign) = sample.and_then(|sample| sample.sampled_at.as_deref()) {
                signs.hear(sign, now);
            }
            let fresh = signs.age(now).is_some_and(|age| age <= self.hold);
            let sample = sample.filter(|_| fresh);
            whole = whole.zip(sample.and_then(|sample| sample.whole)).map(|(sum, one)| sum + one);
            let (running, performance) = self.counted.by_node.get(&key).copied().unwrap_or_default();
            let node = assemble(
                &row,
                profile.map(|row| &**row),
                twin.map(|row| &**row),
                grants.get(&key).map(|row| &**row),
                sample.and_then(|sample| sample.watts),
            );
            all.insert(key, UiNode { pods: running, performance, ..node });
        }
        self.whole = whole.filter(|_| !all.is_empty()).map(tenths);
        all
    }

    fn budgets(&self, nodes: &BTreeMap<String, UiNode>) -> BTreeMap<String, UiBudget> {
        let rows: BTreeMap<String, Arc<BudgetRow>> = self
            .budgets
            .with(|rows| rows.iter().map(|(key, held)| (key.name.clone(), held.row.clone())).collect());
        let parents: BTreeMap<&str, &str> =
            rows.iter().filter_map(|(name, row)| Some((name.as_str(), row.parent.as_deref()?))).collect();
        let mut unused: BTreeMap<&str, f64> = BTreeMap::new();
        let mut drawn: BTreeMap<&str, f64> = BTreeMap::new();
        for node in nodes.values() {
            let Some(budget) = &node.budget else { continue };
            for budget in budget_and_above(&parents, budget).collect::<BTreeSet<_>>() {
                for (sums, part) in [(&mut unused, node.unused), (&mut drawn, node.watts)] {
                    if let Some(part) = part {
                        *sums.entry(budget).or_default() += part;
                    }
                }
            }
        }
        let shown = |(name, row): (&String, &Arc<BudgetRow>)| {
            let BudgetRow { parent, enforced, paused, limit, counted, measured, short, nodes, kept, why } =
                &**row;
            let budget = UiBudget {
                parent: parent.clone().filter(|parent| rows.contains_key(parent)),
                enforced: *enforced,
                paused: *paused,
                limit: *limit,
                counted: *counted,
                measured: drawn.get(name.as_str()).copied().map(tenths).or(*measured),
                unused: unused.get(name.as_str()).copied().map(tenths),
                short: *short,
                nodes: *nodes,
                kept: *kept,
                why: why.clone(),
            };
            (name.clone(), budget)
        };
        rows.iter().map(shown).collect()
    }

    fn site(
        &mut self,
        nodes: &BTreeMap<String, UiNode>,
        budgets: &BTreeMap<String, UiBudget>,
        extra: Option<&UiExtra>,
        now: Mono,
    ) -> UiSite {
        let plan = self.plan.with(|rows| rows.values().next().map(|held| held.row.clone()));
        if let Some(sign) = plan.as_ref().and_then(|plan| plan.renewed.as_deref()) {
            self.plan_signs.hear(sign, now);
        }
        let measured: Vec<f64> = nodes.values().filter_map(|node| node.watts).collect();
        let allowed: Option<Vec<f64>> = nodes.values().map(|node| node.allowed).collect();
        let (limit, counted) = top(nodes, budgets);
        let silence = self.nodes.silence(now).filter(|silence| *silence > HEARD_WITHIN);
        UiSite {
            title: self.title.clone(),
            watts: (!measured.is_empty()).then(|| tenths(measured.iter().sum())),
            whole: self.whole,
            unmeasured: nodes.len() - measured.len(),
            limit,
            counted,
            allowed: allowed.filter(|all| !all.is_empty()).map(|all| tenths(all.iter().sum())),
            leader: plan.and_then(|plan| plan.holder.clone()),
            plan_age: self.plan_signs.age(now).map(|age| age.as_secs()),
            policy: self.profiles.with(|rows| rows.values().find_map(|held| held.row.policy.clone())),
            api_silent: silence.map(|silence| silence.as_secs()),
            running: self.counted.running,
            waiting: self.counted.waiting,
            waiting_performance: self.counted.waiting_performance,
            controls: extra.and_then(|extra| extra.controls.clone()),
        }
    }
}

fn by_node<R: Row>(rows: &Rows<R>, node: fn(&R) -> &String) -> BTreeMap<String, Arc<R>> {
    rows.with(|rows| rows.values().map(|held| (node(&held.row).clone(), held.row.clone())).collect())
}

/// A node, from the objects about it.
fn assemble(
    row: &NodeRow,
    profile: Option<&ProfileRow>,
    twin: Option<&TwinRow>,
    grant: Option<&GrantRow>,
    sample: Option<f64>,
) -> UiNode {
    // What the twin calls old is not shown as what is drawn now.
    let stale = twin.is_some_and(|twin| twin.fresh == Some(false));
    let fresh = twin.filter(|twin| twin.fresh == Some(true));
    let watts = sample.or_else(|| fresh?.measured).filter(|_| !stale);
    let granted = grant.and_then(|grant| grant.watts);
    let held = granted.map(|granted| grant.and_then(|grant| grant.holds).unwrap_or(granted));
    let class = match (twin.and_then(|twin| twin.class.as_deref()), row.profile.as_deref()) {
        (Some(class), _) => class,
        (None, Some("eco")) if row.draining => "draining",
        (None, Some(profile)) => profile,
        (None, None) => "unknown",
    };
    UiNode {
        kind: row.kind.clone(),
        rack: row.rack.clone(),
        zone: row.zone.clone(),
        budget: grant.and_then(|grant| grant.budget.clone()),
        class: class.to_owned(),
        reserved: row.reserved,
        by_hand: profile.is_some_and(|profile| profile.by_hand),
        not_ready: !row.ready,
        watts,
        // Where power follows demand the twin says what the node could be granted at most.
        allowed: twin.and_then(|twin| twin.allowed).map(|most| granted.map_or(most, |now| now.min(most))),
        most: twin.and_then(|twin| twin.most),
        granted,
        held: grant.and_then(|grant| grant.holds),
        unused: held.zip(watts).map(|(held, watts)| tenths((held - watts).max(0.0))),
        package_cap: profile.and_then(|profile| profile.package_cap),
        gpu_cap: profile.and_then(|profile| profile.gpu_cap),
        enforced: match profile.and_then(|profile| profile.enforced) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        },
        why: profile.and_then(|profile| profile.why.clone()),
        headroom: twin.and_then(|twin| twin.headroom),
        cooling: twin.and_then(|twin| twin.cooling),
        psu: twin.and_then(|twin| twin.psu),
        ..UiNode::default()
    }
}

/// The limit of all nodes together, and what is counted under it: the sum of the budgets at the top, if each of them is enforced and
/// every node is in one.
fn top(nodes: &BTreeMap<String, UiNode>, budgets: &BTreeMap<String, UiBudget>) -> (Option<f64>, Option<f64>) {
    let all_in = !nodes.is_empty() && nodes.values().all(|node| node.budget.is_some());
    let tops: Vec<&UiBudget> = budgets.values().filter(|budget| budget.parent.is_none()).collect();
    if !all_in || tops.is_empty() || tops.iter().any(|budget| !budget.enforced) {
        return (None, None);
    }
    let sum = |of: fn(&UiBudget) -> Option<f64>| {
        tops.iter().map(|budget| of(budget)).collect::<Option<Vec<f64>>>().map(|all| tenths(all.iter().sum()))
    };
    (sum(|budget| budget.limit), sum(|budget| budget.counted))
}

/// Placements with what is known of their nodes. The scores are in the explanation of the pod.
fn placements(placed: Placed, picture: &UiPicture) -> Vec<UiPlacement> {
    let why = |node: &str| {
        let Some(node) = picture.nodes.get(node) else { return "its node is not one of Joulie's".to_owned() };
        let headroom = node.headroom.map_or("unknown".to_owned(), |headroom| format!("{headroom:.0} %"));
        format!("the node is {}, with a headroom of {headroom}; open the pod for the scores", node.class)
    };
    let told = |(key, pod): (ObjectKey, Arc<PodRow>)| {
        let node = pod.node.clone()?;
        let why = why(&node);
        Some(UiPlacement { at: picture.at, pod: key.to_string(), performance: pod.performance, node, why })
    };
    placed.into_iter().filter_map(told).collect()
}

/// Begins watches.
struct PageWatcher<'w> {
    client: &'w Client,
    clock: &'w Arc<dyn HostClock>,
    reflections: Reflections,
    tasks: &'w mut Tasks,
    stop: &'w Stop,
}

impl PageWatcher<'_> {
    fn rows<R: Row>(&mut self, path: &str, fields: Option<String>) -> Rows<R> {
        let source = WatchSource { path: path.to_owned(), labels: None, fields };
        let (clock, stop) = (self.clock.clone(), self.stop.clone());
        let (rows, follow) = reflect(self.client, source, &self.reflections, clock, stop);
        self.tasks.spawn(R::KIND, follow);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twin(fresh: Option<bool>) -> TwinRow {
        TwinRow { measured: Some(300.0), fresh, ..TwinRow::default() }
    }

    #[test]
    fn what_is_drawn_is_known_only_while_somebody_says_that_it_is_fresh() {
        let row = NodeRow::default();
        let watts = |twin: Option<&TwinRow>, sample| assemble(&row, None, twin, None, sample).watts;
        assert_eq!(watts(Some(&twin(Some(true))), Some(310.0)), Some(310.0));
        assert_eq!(watts(Some(&twin(Some(true))), None), Some(300.0));
        assert_eq!(watts(Some(&twin(None)), None), None);
        assert_eq!(watts(Some(&twin(Some(false))), Some(310.0)), None);
        assert_eq!(watts(None, Some(310.0)), Some(310.0));
        assert_eq!(watts(None, None), None);
    }

    #[test]
    fn what_is_unused_is_what_is_held_and_not_drawn_and_unknown_without_a_meter() {
        let unused = |watts, holds, sample| {
            let grant = GrantRow { watts, holds, ..GrantRow::default() };
            assemble(&NodeRow::default(), None, None, Some(&grant), sample).unused
        };
        assert_eq!(unused(Some(500.0), Some(480.0), Some(300.0)), Some(180.0));
        assert_eq!(unused(Some(500.0), None, Some(300.0)), Some(200.0));
        assert_eq!(unused(Some(500.0), None, Some(600.0)), Some(0.0));
        assert_eq!(unused(Some(500.0), None, None), None);
        assert_eq!(unused(None, Some(480.0), Some(300.0)), None, "it is released");
    }

    #[test]
    fn caps_allow_what_is_granted_now_and_not_what_could_be() {
        let allowed = |granted, twin| {
            let grant = GrantRow { watts: granted, ..GrantRow::default() };
            let twin = TwinRow { allowed: twin, ..TwinRow::default() };
            assemble(&NodeRow::default(), None, Some(&twin), Some(&grant), None).allowed
        };
        assert_eq!(allowed(Some(400.0), Some(800.0)), Some(400.0));
        assert_eq!(allowed(Some(400.0), Some(300.0)), Some(300.0), "the policy lets it draw less");
        assert_eq!((allowed(None, Some(800.0)), allowed(Some(400.0), None)), (Some(800.0), None));
    }

    #[test]
    fn the_whole_has_a_limit_only_if_every_node_is_under_an_enforced_one() {
        let node = |budget: Option<&str>| UiNode { budget: budget.map(str::to_owned), ..UiNode::default() };
        let budget = |parent: Option<&str>, enforced| UiBudget {
            parent: parent.map(str::to_owned),
            enforced,
            limit: Some(4000.0),
            counted: Some(3500.0),
            ..UiBudget::default()
        };
        let nodes =
            |second| BTreeMap::from([("a".to_owned(), node(Some("r1"))), ("b".to_owned(), node(second))]);
        let budgets = |second| {
            BTreeMap::from([
                ("site".to_owned(), budget(None, true)),
                ("r1".to_owned(), budget(Some("site"), true)),
                ("other".to_owned(), budget(None, second)),
            ])
        };
        assert_eq!(top(&nodes(Some("other")), &budgets(true)), (Some(8000.0), Some(7000.0)));
        assert_eq!(top(&nodes(None), &budgets(true)), (None, None));
        assert_eq!(top(&nodes(Some("other")), &budgets(false)), (None, None));
        assert_eq!(top(&BTreeMap::new(), &budgets(true)), (None, None));
    }
}
