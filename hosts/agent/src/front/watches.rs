//! Chooses which objects are watched: those of one node, or those of all.

use super::inputs::Watched;
use super::plan::{Plan, PlanAsk, PlanReader};
use super::rows::{EventRow, GrantRow, HardwareRow, LeaseRow, NodeRow, ProfileRow, RouteRow, TwinRow};
use crate::settings::{DesiredSource, LeaseSource, Settings};
use host_kit::clock::Mono;
use host_kit::health::CheckResult;
use host_kit::program::Context;
use host_kit::reflect::{HEARD_WITHIN, Reflections, Row, Rows, WatchSource, reflect_within};
use host_kit::shutdown::{Stop, Tasks};
use joulie_api::labels;
use joulie_core::placement::freshness::UnixTime;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use std::time::Duration;
use tokio::sync::watch;

/// Silence after which the program is not ready. Before that, the server ends a watch and so shows that it is alive.
const SILENCE_MOST: Duration = Duration::from_secs(600);

/// Everything that is watched.
pub(crate) struct Watches {
    pub(crate) watched: Watched,
    /// Who confirms the desired state.
    pub(crate) confirmed: Confirmed,
}

/// Who confirms the desired state.
#[derive(Clone)]
pub(crate) enum Confirmed {
    /// The watch of the profiles, while it is alive.
    Profiles(Rows<ProfileRow>),
    /// The watch of the twins, while it is alive.
    Twins(Rows<TwinRow>),
    /// The operator.
    Plan(Rows<LeaseRow>),
}

/// Starts the watches, for one node or for all. `ask` asks for the plan's Lease, where that is not watched.
pub(crate) fn begin(
    settings: &Settings,
    node: Option<&str>,
    context: &Context,
    ask: PlanAsk,
    reflections: &Reflections,
    tasks: &mut Tasks,
) -> Watches {
    let mut begin = Begin { context, reflections, tasks };
    let of = |field: &str| node.map(|node| format!("{field}={node}"));
    let joulie = |plural: &str| WatchSource {
        path: format!("/apis/{}/v1alpha1/{plural}", labels::GROUP),
        labels: None,
        fields: of("spec.nodeName"),
    };
    let nodes = WatchSource { path: "/api/v1/nodes".to_owned(), labels: None, fields: of("metadata.name") };
    let nodes = begin.rows::<NodeRow>("nodes", nodes);
    let twins = begin.rows::<TwinRow>("nodetwins", joulie("nodetwins"));
    let hardware = begin.rows::<HardwareRow>("nodehardwares", joulie("nodehardwares"));
    let grants = begin.rows::<GrantRow>("nodepowergrants", joulie("nodepowergrants"));
    let events = WatchSource { fields: None, ..joulie("powerevents") };
    let events = begin.rows::<EventRow>("powerevents", events);
    // A selector of fields knows no "or", so those of the node and those of the cluster are watched apart.
    let routes_by = |fields: Option<String>| WatchSource { fields, ..joulie("telemetryprofiles") };
    let own = node.map(|node| format!("spec.target.nodeName={node},spec.target.scope=node"));
    let routes = begin.rows::<RouteRow>("telemetryprofiles", routes_by(own));
    let others = node.map(|_| routes_by(Some("spec.target.scope!=node".to_owned())));
    let routes_of_all = others.map(|source| begin.rows::<RouteRow>("telemetryprofiles-of-all", source));
    let mut look_for = |task, plural, what| {
        let (absent, known) = watch::channel(false);
        let look = look_for_kind(context.client.clone(), (plural, what), absent, context.stop.clone());
        begin.tasks.spawn(task, look);
        known
    };
    let no_grants = look_for("grants", "nodepowergrants", "NodePowerGrant, so no grant is followed");
    let no_routes = look_for(
        "routes",
        "telemetryprofiles",
        "TelemetryProfile, so the settings say how nodes are reached",
    );
    let profiles = match settings.desired {
        DesiredSource::Profile => {
            Some(begin.rows::<ProfileRow>("nodepowerprofiles", joulie("nodepowerprofiles")))
        }
        DesiredSource::Twin => None,
    };
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", settings.namespace);
    let (plan, confirmed) = match (settings.lease.source, &profiles) {
        (LeaseSource::Watch, Some(profiles)) => {
            (begin.read_plan(leases, ask), Confirmed::Profiles(profiles.clone()))
        }
        (LeaseSource::Watch, None) => (begin.read_plan(leases, ask), Confirmed::Twins(twins.clone())),
        (LeaseSource::Plan, _) => {
            let fields = Some(format!("metadata.name={}", labels::PLAN_LEASE));
            let source = WatchSource { path: leases, labels: None, fields };
            let plan = begin.rows_within::<LeaseRow>("leases", source, settings.lease.term);
            (Plan::Watched(plan.clone()), Confirmed::Plan(plan))
        }
    };
    Watches {
        watched: Watched {
            nodes,
            profiles,
            twins,
            hardware,
            grants,
            no_grants,
            events,
            plan,
            routes,
            routes_of_all,
            no_routes,
        },
        confirmed,
    }
}

/// How long to wait between two checks for a kind.
const KIND_AGAIN: Duration = Duration::from_secs(10);

/// Reports whether the server does not know a kind, until it does. Such a cluster has no objects of it, so nothing waits
/// for them. A server that refuses, or is away, has given no answer.
async fn look_for_kind(
    client: Client,
    (plural, what): (&'static str, &'static str),
    absent: watch::Sender<bool>,
    stop: Stop,
) {
    let path = format!("/apis/{}/v1alpha1/{plural}", labels::GROUP);
    loop {
        let params = ListParams::default().limit(1);
        let Ok(request) = Request::new(&path).list(&params) else { break };
        match client.request::<serde_json::Value>(request).await {
            Ok(_) => {
                absent.send_replace(false);
                break;
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if !absent.send_replace(true) {
                    tracing::warn!("the API server does not know {what}; install the CRDs");
                }
            }
            Err(_) => {}
        }
        if stop.requested_within(KIND_AGAIN).await {
            return;
        }
    }
    // A task of this program must not end before the program.
    stop.requested().await;
}

struct Begin<'a> {
    context: &'a Context,
    reflections: &'a Reflections,
    tasks: &'a mut Tasks,
}

impl Begin<'_> {
    fn rows<R: Row>(&mut self, name: &'static str, source: WatchSource) -> Rows<R> {
        self.rows_within(name, source, HEARD_WITHIN)
    }

    /// Reads the plan's Lease, of these, when somebody asks.
    fn read_plan(&mut self, leases: String, ask: PlanAsk) -> Plan {
        let Context { client, clock, stop, .. } = self.context;
        let (client, clock, stop) = (client.clone(), clock.clone(), stop.clone());
        let (seen, plan) = watch::channel(None);
        self.tasks.spawn("plan", PlanReader { client, leases, ask, clock, stop }.run(seen));
        Plan::Read(plan)
    }

    /// As `rows`, with a limit on silence: a server that answers is heard within this time, before a lease of that term
    /// ends.
    fn rows_within<R: Row>(&mut self, name: &'static str, source: WatchSource, within: Duration) -> Rows<R> {
        let Context { client, clock, stop, .. } = self.context;
        let (rows, follow) =
            reflect_within(client, source, within, self.reflections, clock.clone(), stop.clone());
        self.tasks.spawn(name, follow);
        rows
    }
}

impl Confirmed {
    /// A mark that grows each time the desired state is confirmed. It is compared only with other marks.
    pub(crate) fn mark(&self, now: Mono) -> Option<UnixTime> {
        let heard = |silence: Option<Duration>| {
            let heard = Duration::from_millis(now.as_millis()).checked_sub(silence?)?;
            i64::try_from(heard.as_millis()).ok()?.checked_mul(1000).map(UnixTime::from_micros)
        };
        match self {
            Self::Profiles(rows) => heard(rows.silence(now).filter(|_| rows.is_synced())),
            Self::Twins(rows) => heard(rows.silence(now).filter(|_| rows.is_synced())),
            Self::Plan(rows) => renewed(rows),
        }
    }
}

/// When the operator last renewed the plan's Lease, by its own clock.
pub(super) fn renewed(plan: &Rows<LeaseRow>) -> Option<UnixTime> {
    let renewed = plan.with(|rows| rows.values().find_map(|held| held.row.renewed));
    renewed.map(|time| UnixTime::from_micros(time.as_microsecond()))
}

impl Watched {
    /// A check for `/readyz`.
    pub(crate) fn check(&self) -> impl Fn(Mono) -> CheckResult + Send + Sync + 'static {
        let nodes = self.nodes.check(SILENCE_MOST);
        let twins = self.twins.check(SILENCE_MOST);
        let profiles = self.profiles.as_ref().map(|profiles| profiles.check(SILENCE_MOST));
        let (routes, no_routes) = (self.routes.check(SILENCE_MOST), self.no_routes.clone());
        let of_all = self.routes_of_all.as_ref().map(|routes| routes.check(SILENCE_MOST));
        move |now| {
            let goals = profiles.as_ref().map_or_else(|| twins(now), |profiles| profiles(now));
            let of_all = || of_all.as_ref().map_or(CheckResult::Pass, |check| check(now));
            let (routes, of_all) = match *no_routes.borrow() {
                true => (CheckResult::Pass, CheckResult::Pass),
                false => (routes(now), of_all()),
            };
            let failed = |check: &CheckResult| matches!(check, CheckResult::Fail(_));
            [nodes(now), goals, routes, of_all].into_iter().find(failed).unwrap_or(CheckResult::Pass)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_api::{ApiOptions, EmbeddedApi};
    use host_kit::clock::{HostClock, ManualClock};
    use host_kit::metrics::MetricsBuilder;
    use host_kit::reflect::reflect;
    use jiff::Timestamp;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_list_that_is_empty_confirms_that_nothing_is_desired() {
        // Agent table, row 29: after ten minutes in which nobody read anything.
        let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).unwrap();
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        clock.advance(Duration::from_secs(600));
        let source = WatchSource {
            path: format!("/apis/{}/v1alpha1/nodepowerprofiles", labels::GROUP),
            labels: None,
            fields: None,
        };
        let mut page = MetricsBuilder::of(&crate::BUILD);
        let reflections = Reflections::register(page.registry());
        let (trigger, stop) = host_kit::shutdown::pair();
        let reader = Arc::new(clock.clone());
        let (mut rows, follow) = reflect::<ProfileRow>(&api.client(), source, &reflections, reader, stop);
        let confirmed = Confirmed::Profiles(rows.clone());
        assert_eq!(confirmed.mark(clock.mono()), None, "nobody has read anything");
        let follow = tokio::spawn(follow);
        while !rows.is_synced() {
            assert!(rows.changed().await);
        }
        assert_eq!(rows.all().len(), 0);
        assert_eq!(confirmed.mark(clock.mono()), Some(UnixTime::from_micros(600_000_000)));
        drop(trigger);
        follow.abort();
    }
}
