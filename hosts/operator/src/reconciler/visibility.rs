//! How well a node is observed: whether its meter reports, and whether its objects can be read.
//!
//! A node without a configured meter is observed as well as possible. One whose meter is configured but silent is not:
//! the twin uses the last valid sample, but that is no reason to raise the node.

use super::Reconciler;
use crate::publish::API_VERSION;
use crate::reasons::OBJECT_UNREADABLE;
use crate::rows::{DemandFault, RefusedDemand};
use crate::settings::PowerSource;
use crate::site::{Kind, Observed, Unreadable};
use host_kit::events::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::node::{MachineFacts, Power, Visibility};
use planner::power::NodeReading;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The report of each node's demand that was refused last. The version of the grant would not do: a grant is written again
/// and again under a report that stands.
#[derive(Debug, Default)]
pub(super) struct RefusedReports(BTreeMap<String, RefusedDemand>);

impl RefusedReports {
    /// Why a node's report is refused, once for each report.
    fn news(&mut self, node: &str, refused: Option<RefusedDemand>) -> Option<DemandFault> {
        let Some(report) = refused else {
            self.0.remove(node);
            return None;
        };
        let before = self.0.insert(node.to_owned(), report);
        (before != Some(report)).then_some(report.fault)
    }

    /// Forgets every node that does not exist any more.
    pub(super) fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        self.0.retain(|node, _| nodes.contains(&**node));
    }
}

impl Reconciler {
    /// Counts the reports of demand that cannot be read.
    pub(super) fn count_refused(&mut self, nodes: &[Arc<Observed>]) {
        for observed in nodes {
            let Some(grant) = &observed.grant else { continue };
            let news = self.refused.news(&grant.node, grant.refused);
            if let Some(fault) = news {
                self.stats.refuses_demand(fault);
            }
        }
    }

    /// How well a node is observed, given this reading of its meter.
    pub(super) fn visibility(
        &self,
        observed: &Observed,
        machine: &MachineFacts,
        power: &Power,
    ) -> Visibility {
        if observed.is_state_unread(self.settings.selectors.source) {
            return Visibility::Unreadable;
        }
        let unread = observed.unreadable != Unreadable::default();
        let silent = self.is_metered(machine) && !matches!(power.reading, NodeReading::Measured { .. });
        if unread || silent { Visibility::Blind } else { Visibility::Clear }
    }

    /// Counts the objects that cannot be read, and reports each once.
    pub(super) fn say_unread(&mut self) {
        let mut known = std::mem::take(&mut self.unread);
        let mut there = BTreeMap::new();
        for (kind, unread) in self.site.unread.kinds() {
            self.stats.unread(kind, unread.objects().len());
            for (name, why) in unread.objects() {
                let object = (kind, name.clone());
                if known.remove(&object).as_ref() != Some(why) {
                    self.recorder.say(unread_note(kind, name, why));
                }
                there.insert(object, why.clone());
            }
        }
        self.unread = there;
        let nodes = &self.site.cluster.nodes;
        let implausible = nodes.iter().filter(|node| node.machine.implausible.is_some());
        self.stats.implausible(implausible.count());
    }

    /// Whether a report of the node's power is expected. A node without an agent has nobody to report it or to have
    /// capped it; an agent that finds no meter will never report.
    fn is_metered(&self, machine: &MachineFacts) -> bool {
        self.settings.power.sources.iter().any(|source| match source {
            PowerSource::Http(None) => false,
            PowerSource::Agent => machine.has_agent && !machine.has_no_meter,
            PowerSource::Http(Some(_)) | PowerSource::Prometheus(..) | PowerSource::Kepler(..) => true,
        })
    }
}

fn unread_note(kind: Kind, name: &str, why: &str) -> Note {
    Note {
        regarding: ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(kind.word().to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        },
        severity: OBJECT_UNREADABLE.severity,
        reason: OBJECT_UNREADABLE.word,
        action: "Read",
        text: format!("{why}; until it can be read {}", kind.meanwhile()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_is_refused_counts_once_however_often_its_grant_is_written() {
        let mut it = RefusedReports::default();
        let report = |print| Some(RefusedDemand { fault: DemandFault::Form, print });
        let form = Some(DemandFault::Form);
        assert_eq!(it.news("a", report(1)), form);
        assert_eq!(it.news("a", report(1)), None, "the grant was written anew, the report stands");
        assert_eq!(it.news("a", report(2)), form);
        assert_eq!(it.news("b", report(2)), form);
        assert_eq!(it.news("a", None), None);
        assert_eq!(it.0.len(), 1, "nothing is remembered of a report that can be read");
        assert_eq!(it.news("a", report(2)), form, "it is the same fault a second time");
        it.keep_only(&BTreeSet::from([]));
        assert!(it.0.is_empty(), "nor of a node that is gone");
    }
}
