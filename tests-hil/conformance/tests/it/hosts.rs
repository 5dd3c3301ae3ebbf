//! The parts of `host-kit` on which the hosts rely, the leader election and the reflector, once on each server.

use crate::servers::{client, control_plane, embedded_api};
use conformance::{probe, probes};
use host_kit::clock::{HostClock, SystemClock};
use host_kit::leader::{Candidate, Elections, Leadership, LeaseName, Term, elect};
use host_kit::metrics::{BuildInfo, MetricsBuilder, Page};
use host_kit::reflect::{ObjectKey, Reflections, Row, Rows, WatchSource, reflect};
use host_kit::shutdown::{self, Trigger};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: &str = "conf-operator";

fn metrics() -> MetricsBuilder {
    MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" })
}

struct Replica {
    leadership: Leadership,
    clock: Arc<dyn HostClock>,
    trigger: Trigger,
}

impl Replica {
    fn start(client: &Client, name: &str) -> Self {
        let elections = Elections::register(metrics().registry());
        let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
        // The lease is long, so that it does not expire on a busy machine.
        let times = [30_000, 20_000, 200].map(Duration::from_millis);
        let candidate = Candidate::new(name, times[0], times[1], times[2]).unwrap();
        let lease = LeaseName { namespace: "default".to_owned(), name: LEASE.to_owned() };
        let (trigger, stop) = shutdown::pair();
        let (leadership, election) = elect(client, lease, candidate, elections, clock.clone(), stop);
        tokio::spawn(election);
        Self { leadership, clock, trigger }
    }

    fn term(&self) -> Option<Term> {
        self.leadership.term(self.clock.mono())
    }

    async fn leads(&mut self, leads: bool) {
        let waiting = async {
            while self.term().is_some() != leads {
                self.leadership.changed().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "leads: {leads}, in vain");
    }
}

async fn holder(leases: &Api<Lease>) -> Option<String> {
    leases.get(LEASE).await.unwrap().spec.unwrap().holder_identity
}

/// Of two candidates one leads. A leader that is asked to stop hands over, and a leader whose lease is taken notices
/// it.
async fn one_leads(client: &Client) {
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    drop(leases.delete(LEASE, &DeleteParams::default()).await);
    let mut first = Replica::start(client, "operator-a");
    first.leads(true).await;
    assert_eq!((first.term(), holder(&leases).await.as_deref()), (Some(Term(0)), Some("operator-a")));
    let mut second = Replica::start(client, "operator-b");
    first.trigger.request("the test");
    second.leads(true).await;
    assert_eq!((second.term(), first.term()), (Some(Term(1)), None), "never both");
    assert_eq!(holder(&leases).await.as_deref(), Some("operator-b"));
    let taken = json!({"spec": {"holderIdentity": "operator-z"}});
    leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(&taken)).await.unwrap();
    second.leads(false).await;
    assert_eq!(holder(&leases).await.as_deref(), Some("operator-z"), "it does not take it back");
}

#[derive(Debug)]
struct Limit(u64);

impl Row for Limit {
    const KIND: &'static str = "probes";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let limit = &object["spec"]["limit"];
        limit.as_u64().map(Self).ok_or_else(|| format!("spec.limit is {limit}"))
    }
}

/// Waits until the rows and the malformed objects are these.
async fn shows(rows: &mut Rows<Limit>, wanted: &[(&str, u64)], malformed: &[&str]) {
    let seen = |rows: &Rows<Limit>| -> Vec<(String, u64)> {
        rows.with(|rows| rows.iter().map(|(key, held)| (key.to_string(), held.row.0)).collect())
    };
    let named =
        |rows: &Rows<Limit>| -> Vec<String> { rows.malformed().keys().map(ObjectKey::to_string).collect() };
    let wanted: Vec<_> = wanted.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
    while !rows.is_synced() || seen(rows) != wanted || named(rows) != malformed {
        let changed = tokio::time::timeout(PATIENCE, rows.changed()).await;
        let (seen, named) = (seen(rows), named(rows));
        assert!(changed.is_ok_and(|alive| alive), "{seen:?} {named:?} and not {wanted:?} {malformed:?}");
    }
}

fn malformed(page: &Page) -> Option<f64> {
    let page = page.render().unwrap();
    let series = "joulie_reflector_malformed_total{kind=\"probes\"} ";
    page.lines().find_map(|line| line.strip_prefix(series))?.parse().ok()
}

/// The schema allows a number or text for a limit; this reader requires a number.
async fn malformed_is_named_and_skipped(client: &Client) {
    let api = probes(client);
    for name in ["limit-a", "limit-b"] {
        drop(api.delete(name, &DeleteParams::default()).await);
    }
    let labelled = |name: &str, limit: Value| {
        let mut object = probe(name, json!({"limit": limit}));
        object.metadata.labels = Some([("conf".to_owned(), "reflect".to_owned())].into());
        object
    };
    api.create(&PostParams::default(), &labelled("limit-a", json!(10))).await.unwrap();
    api.create(&PostParams::default(), &labelled("limit-b", json!("half"))).await.unwrap();
    let mut metrics = metrics();
    let reflections = Reflections::register(metrics.registry());
    let (_trigger, stop) = shutdown::pair();
    let source = WatchSource {
        path: "/apis/conformance.joulie.io/v1/probes".to_owned(),
        labels: Some("conf=reflect".to_owned()),
        fields: None,
    };
    let (mut rows, follow) =
        reflect::<Limit>(client, source, &reflections, Arc::new(SystemClock::new()), stop);
    tokio::spawn(follow);
    shows(&mut rows, &[("limit-a", 10)], &["limit-b"]).await;
    // A concurrent compaction by the suite may make it read the list twice.
    assert!(malformed(&metrics.page()).unwrap() >= 1.0);

    let change = async |name: &str, limit: Value| {
        let body = json!({"spec": {"limit": limit}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    };
    change("limit-b", json!(20)).await;
    shows(&mut rows, &[("limit-a", 10), ("limit-b", 20)], &[]).await;
    change("limit-a", json!("most")).await;
    shows(&mut rows, &[("limit-a", 10), ("limit-b", 20)], &["limit-a"]).await;
    assert!(
        rows.get(&ObjectKey::cluster("limit-a")).unwrap().stale_since.is_some(),
        "its last good row stays"
    );
    for name in ["limit-a", "limit-b"] {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    shows(&mut rows, &[], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_leads_on_the_embedded_server() {
    one_leads(&embedded_api().client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_leads_on_a_real_server() {
    let Some(control_plane) = control_plane().await else { return };
    one_leads(&client(control_plane.kubeconfig()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_object_is_named_and_skipped_on_the_embedded_server() {
    malformed_is_named_and_skipped(&embedded_api().client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_object_is_named_and_skipped_on_a_real_server() {
    let Some(control_plane) = control_plane().await else { return };
    malformed_is_named_and_skipped(&client(control_plane.kubeconfig()).await).await;
}
