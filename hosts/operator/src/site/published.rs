//! What is published, as the planner sees it, kept from look to look: of thousands of desired states mostly one has
//! changed.

use super::objects::Touched;
use super::{DesiredSource, Site};
use crate::rows;
use planner::plan::PublishedRow;

impl Site {
    /// What is published, for the planner to keep for a pass.
    pub(crate) fn lend_published(&mut self, source: DesiredSource) -> Vec<PublishedRow> {
        self.published.take().unwrap_or_else(|| self.read_published(source))
    }

    /// Takes back what was lent.
    pub(crate) fn take_published(&mut self, rows: Vec<PublishedRow>) {
        self.published = Some(rows);
    }

    /// Takes in that the objects of these nodes have changed.
    pub(super) fn republish(&mut self, touched: &Touched, source: DesiredSource) {
        let Some(mut rows) = self.published.take() else { return };
        let Touched::Few(nodes) = touched else { return };
        for node in nodes {
            let place = rows.binary_search_by(|row| (*row.node).cmp(node)).ok();
            match (place.and_then(|at| rows.get_mut(at)), self.published_of(node, source)) {
                (Some(known), Some(row)) => *known = row,
                (None, None) => {}
                // It is put together anew when somebody asks for it.
                (Some(_), None) | (None, Some(_)) => return,
            }
        }
        self.published = Some(rows);
    }

    fn published_of(&mut self, node: &str, source: DesiredSource) -> Option<PublishedRow> {
        let twin = self.twins.get(node);
        let state = match source {
            DesiredSource::Profile => &self.profiles.get(node)?.state,
            DesiredSource::Twin => &twin?.state,
        };
        let name = self.member(node).map_or_else(|| node.into(), |member| member.name.clone());
        Some(PublishedRow {
            node: name,
            ours: !state.is_a_persons(),
            profile: Some(rows::profile(state.desired.profile)),
            caps: rows::caps(&state.desired),
            draining: twin.is_some_and(|twin| twin.state.desired.draining),
            policy: state.desired.policy.as_deref().map(|policy| self.texts.share(policy)),
        })
    }

    fn read_published(&mut self, source: DesiredSource) -> Vec<PublishedRow> {
        let nodes: Vec<String> = match source {
            DesiredSource::Profile => self.profiles.by_node().keys().cloned().collect(),
            DesiredSource::Twin => self.twins.by_node().keys().cloned().collect(),
        };
        nodes.iter().filter_map(|node| self.published_of(node, source)).collect()
    }
}
