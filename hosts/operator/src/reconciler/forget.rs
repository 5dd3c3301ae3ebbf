//! Forgets what is gone: nodes, namespaces of pods, and objects for which a job failed. A follower takes in the same as the leader, so
//! it forgets the same.

use super::Reconciler;
use super::armed::event_version;
use super::backoffs::versions;
use crate::rows::PodSeen;
use crate::site::Site;
use host_kit::clock::Mono;
use host_kit::reflect::{ObjectKey, Rows};
use std::collections::BTreeSet;

impl Reconciler {
    /// Forgets the state of nodes that do not exist any more.
    pub(super) fn forget_nodes(&mut self) {
        if !std::mem::take(&mut self.site.other_nodes) {
            return;
        }
        // The indices now belong to other nodes.
        self.unchanged.fill_with(|| None);
        let site = &self.site;
        let known: BTreeSet<&str> = site.cluster.nodes.iter().map(|node| &*node.name).collect();
        self.meters.keep_only(&known);
        self.stats.keep_only(&known);
        self.refused.keep_only(&known);
        self.advice_told.retain(|node, _| known.contains(&**node));
        self.pending_echoes.retain(|key, _| is_known(site, key));
    }

    /// Removes the series of namespaces without any pod.
    pub(super) fn forget_namespaces(&mut self, pods: &Rows<PodSeen>) {
        if !pods.is_synced() {
            return;
        }
        self.stats.reschedule.keep_namespaces(|namespace| {
            let first = ObjectKey { namespace: namespace.to_owned(), name: String::new() };
            pods.with(|pods| pods.range(first..).next().is_some_and(|(key, _)| key.namespace == namespace))
        });
    }

    /// Forgets jobs that show in the rows, and those that failed for what does not exist any more.
    pub(super) fn forget_jobs(&mut self, now: Mono) {
        let site = &self.site;
        self.pending_echoes.retain(|node, pending| match site.observed(node) {
            Some(observed) => !pending.is_over(versions(observed), now),
            None => {
                let shown = site.budgets.version_of(node).or_else(|| event_version(site, node));
                now < pending.until
                    && shown.is_none_or(|shown| !pending.is_over([Some(shown), None, None], now))
            }
        });
        self.backoffs.keep_only(|key| is_known(site, key), now);
        if self.unchanged.len() != self.site.observed.len() {
            self.unchanged.resize_with(self.site.observed.len(), || None);
        }
    }
}

/// Whether there is a node, a PowerBudget or a PowerEvent with this key of jobs.
fn is_known(site: &Site, key: &str) -> bool {
    site.find(key).is_some() || site.budgets.version_of(key).is_some() || event_version(site, key).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::armed::event_key;
    use super::*;
    use crate::meters::poller::Read;
    use crate::reconciler::stamp;
    use crate::site::tests::server;
    use crate::stats::Stats;
    use crate::writes::Trouble;
    use embedded_api::{ApiOptions, EmbeddedApi};
    use host_kit::clock::ManualClock;
    use host_kit::events::{Events, Posts, record};
    use host_kit::metrics::MetricsRegistry;
    use jiff::Timestamp;
    use joulie_api::node_twin::RescheduleCause;
    use planner::power::PowerMeter;
    use power_units::Watts;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    fn at(second: u64) -> Mono {
        Mono::at(Duration::from_secs(second))
    }

    /// One that has seen nothing yet, and its metrics.
    fn reconciler() -> (Reconciler, MetricsRegistry) {
        let mut registry = MetricsRegistry::default();
        let (stats, posts) = (Stats::register(&mut registry), Posts::register(&mut registry));
        let api = EmbeddedApi::new(&ApiOptions::with(Vec::new())).unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH));
        let (_trigger, stop) = host_kit::shutdown::pair();
        let (recorder, _posting) = record(&api.client(), Events::of("test", "test"), &posts, clock, stop);
        let settings = Arc::new(crate::settings::tests::read(&[]).unwrap());
        (Reconciler::new(settings, stats, recorder).unwrap(), registry)
    }

    fn node(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    fn pod(namespace: &str) -> Value {
        json!({"metadata": {"name": "p", "namespace": namespace}, "spec": {"nodeName": "stays"}})
    }

    #[tokio::test]
    async fn who_does_not_lead_forgets_nodes_that_are_gone_and_what_is_heard_of_them_later() {
        let ((mut server, mut watches), (mut it, registry)) = (server(), reconciler());
        let read = |node: &str| Read {
            node: node.into(),
            meter: PowerMeter::Agent,
            watts: Ok(Watts::from_int(300)),
            asked: (at(0), Duration::ZERO),
        };
        let shows = |node: &str| registry.render().unwrap().contains(&format!("node=\"{node}\""));
        server.nodes.list([&node("goes"), &node("stays")]);
        it.look(&mut watches, at(0), Timestamp::UNIX_EPOCH);
        it.heard(["goes", "stays"].map(read).into(), stamp(at(1)));
        assert!(shows("goes") && shows("stays"));
        server.nodes.delete(&node("goes"));
        it.look(&mut watches, at(2), Timestamp::UNIX_EPOCH);
        assert!(!shows("goes") && shows("stays"));
        it.heard(["goes", "stays"].map(read).into(), stamp(at(3)));
        assert!(!shows("goes") && shows("stays"), "it was asked for before");
    }

    #[tokio::test]
    async fn the_evictions_of_a_namespace_leave_with_its_last_pod() {
        let ((mut server, mut watches), (mut it, registry)) = (server(), reconciler());
        let shows = |space: &str| registry.render().unwrap().contains(&format!("namespace=\"{space}\""));
        server.nodes.list([&node("stays")]);
        for space in ["a", "b", "b-2"] {
            it.stats.reschedule.moved("stays", space, RescheduleCause::PsuStress);
        }
        let mut look = || it.look(&mut watches, at(0), Timestamp::UNIX_EPOCH);
        look();
        assert_eq!(["a", "b", "b-2"].map(shows), [true; 3], "the pods are not known yet");
        server.pods.list([&pod("a"), &pod("b-2")]);
        look();
        assert_eq!(["a", "b", "b-2"].map(shows), [true, false, true]);
        server.pods.delete(&pod("b-2"));
        look();
        assert_eq!(["a", "b", "b-2"].map(shows), [true, false, false]);
    }

    #[tokio::test]
    async fn a_job_that_failed_for_what_is_gone_is_forgotten_once_its_wait_is_over() {
        let ((mut server, mut watches), (mut it, _)) = (server(), reconciler());
        server.nodes.list([&node("stays")]);
        it.look(&mut watches, at(0), Timestamp::UNIX_EPOCH);
        let (event, refused) = (event_key("drill"), Trouble::Refused("no".to_owned()));
        for key in ["stays", &event] {
            // Half a second the first time.
            it.backoffs.trouble(key, &refused, at(0));
        }
        let waits = |it: &Reconciler| ["stays", &event].map(|key| it.backoffs.until(key).is_some());
        it.forget_jobs(at(0));
        assert_eq!(waits(&it), [true, true]);
        it.forget_jobs(at(1));
        assert_eq!(waits(&it), [true, false], "no node has changed since");
    }
}
