//! The cluster as one pass sees it: rows put together node by node, kept from pass to pass, so that what has not changed
//! is not read again.

mod confirm;
mod member;
mod objects;
mod pods;
mod published;
mod texts;
mod unread;
mod watches;

pub(crate) use confirm::confirmation;
pub(crate) use member::{Brief, Member};
pub(crate) use unread::{Kind, Unread, Unreadable, Unreads};
pub(crate) use watches::{SILENCE_MAX, Watches};

use crate::rows::{self, GrantSeen, HardwareSeen, NodeSeen, ProfileSeen, TwinSeen};
use host_kit::reflect::News;
use joulie_api::labels;
use kube::core::{Selector, SelectorExt};
use objects::{Objects, Touched};
use planner::budget::Split;
use planner::catalog::Catalog;
use planner::hardware::Hardware;
use planner::inventory::{self, HardwareFacts, Implausible, LabelFacts, Peers};
use planner::places::Places;
use planner::plan::{NodeRow, Presence, PublishedRow, Sight};
use pods::Pods;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use texts::Texts;

/// Which kind carries the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesiredSource {
    /// NodePowerProfile.
    Profile,
    /// NodeTwin.
    Twin,
}

/// How nodes and pods are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Lens {
    /// Which nodes are ours.
    pub(crate) selector: Selector,
    /// The label that keeps a node out.
    pub(crate) reserved_key: String,
    /// The label of the profile.
    pub(crate) profile_key: String,
    /// The namespaces whose pods are outside managed scope: they are neither pressure nor a reason to wait.
    pub(crate) ignored_namespaces: BTreeSet<String>,
    /// The labels that may name a GPU product.
    pub(crate) gpu_product_keys: Vec<String>,
    /// Which kind carries the desired state.
    pub(crate) source: DesiredSource,
}

/// The cluster.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// Every node, in the order of names.
    pub(crate) members: Vec<Arc<Member>>,
    places: Places,
    /// The planner's rows of them, in the same order.
    pub(crate) nodes: Vec<NodeRow>,
    /// The pods.
    pub(crate) pods: Pods,
    /// The NodePowerProfiles.
    pub(crate) profiles: Objects<ProfileSeen>,
    /// The NodeTwins.
    pub(crate) twins: Objects<TwinSeen>,
    /// The NodePowerGrants.
    pub(crate) grants: Objects<GrantSeen>,
    hardware: Objects<HardwareSeen>,
    hardware_known: bool,
    /// What nodes of models that the catalogue does not know say of them together.
    peers: Peers,
    texts: Texts,
    /// What is published, in the order of the nodes' names; nothing where it is to be put together anew.
    published: Option<Vec<PublishedRow>>,
    /// Nodes have come or gone since somebody last asked.
    pub(crate) other_nodes: bool,
    /// What is there and cannot be read.
    pub(crate) unread: Unreads,
}

/// What a look at the rows found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Something that the plan depends on.
    pub(crate) plan: bool,
    /// The nodes that were put together anew: a meter has spoken, or something has changed that a plan or a twin
    /// depends on.
    pub(crate) members: Vec<Arc<Member>>,
}

impl Changes {
    /// Whether nothing was found.
    pub(crate) const fn is_empty(&self) -> bool {
        !self.plan && self.members.is_empty()
    }
}

impl Site {
    /// Takes in what has changed.
    pub(crate) fn refresh(&mut self, watches: &mut Watches, lens: &Lens, catalog: &Catalog) -> Changes {
        // Asked before the news, so that whoever is known is in them.
        let known = watches.hardware.is_synced();
        let mut changes = Changes { plan: self.pods.read(&mut watches.pods, lens), members: Vec::new() };
        let unread = self.unread.clone();
        let mut touched = Touched::NOTHING;
        let mut others_say = false;
        if let Some(news) = watches.hardware.news(|news| self.hardware.take(&news)) {
            others_say = self.hear(&news);
            touched = touched.and(news);
            self.unread.hardware = Unread::of(&watches.hardware, |row| &row.node);
        }
        let mut states = Touched::NOTHING;
        if let Some(news) = watches.profiles.news(|news| self.profiles.take(&news)) {
            states = states.and(news);
            self.unread.profiles = Unread::of(&watches.profiles, |row| &row.state.desired.node);
        }
        if let Some(news) = watches.twins.news(|news| self.twins.take(&news)) {
            states = states.and(news);
            self.unread.twins = Unread::of(&watches.twins, |row| &row.state.desired.node);
        }
        self.republish(&states, lens.source);
        touched = touched.and(states);
        if let Some(news) = watches.grants.news(|news| self.grants.take(&news)) {
            touched = touched.and(news);
            self.unread.grants = Unread::of(&watches.grants, |row| &row.node);
            changes.plan = true;
        }
        // What an agent confirms is something else once it is known which agents there are.
        let anew = known != self.hardware_known || others_say;
        self.hardware_known = known;
        if anew || unread != self.unread {
            touched = Touched::All;
        }
        // Without news no node has changed.
        let nodes = watches.nodes.news(|news| same_nodes(&news)).unwrap_or_else(|| Some(BTreeMap::new()));
        match (touched, nodes) {
            (Touched::Few(touched), Some(nodes)) => {
                self.read_members(&touched, &nodes, (lens, catalog), &mut changes);
            }
            (Touched::Few(_) | Touched::All, _) => {
                let nodes = watches.nodes.with(|rows| rows.values().map(|held| held.row.clone()).collect());
                self.read_nodes(nodes, anew, (lens, catalog), &mut changes);
            }
        }
        changes
    }

    /// Listens to what nodes say of their models. Whether any model is known by something else now, so that no node may
    /// be believed as it was before.
    fn hear(&mut self, news: &Touched) -> bool {
        let Self { peers, hardware, .. } = self;
        let hardware = hardware.by_node();
        let mut changed = false;
        let mut hear = |node: &str, seen: Option<&Arc<HardwareSeen>>| {
            changed |= peers.note(node, seen.map(|seen| &seen.reported));
        };
        match news {
            Touched::Few(nodes) => {
                nodes.iter().for_each(|node| hear(node, hardware.get(node)));
                changed
            }
            Touched::All => {
                hardware.iter().for_each(|(node, seen)| hear(node, Some(seen)));
                peers.keep_only(|node| hardware.contains_key(node)) || changed
            }
        }
    }

    /// Puts these nodes together anew; the others stay as they are.
    fn read_members(
        &mut self,
        touched: &BTreeSet<String>,
        nodes: &BTreeMap<Arc<str>, Arc<NodeSeen>>,
        by: (&Lens, &Catalog),
        changes: &mut Changes,
    ) {
        let names: BTreeSet<&str> =
            touched.iter().map(String::as_str).chain(nodes.keys().map(|name| &**name)).collect();
        for (at, name) in
            names.into_iter().filter_map(|name| Some((self.find(name)?, name))).collect::<Vec<_>>()
        {
            let Some(was) = self.members.get(at).cloned() else { continue };
            let member = self.gather(nodes.get(name).unwrap_or(&was.node).clone());
            if was.is_same(&member) {
                continue;
            }
            let (member, mut row) = self.put_together(member, Some(&was), by);
            row.place = at;
            let member = Arc::new(member);
            changes.members.push(member.clone());
            if let (Some(slot), Some(known)) = (self.members.get_mut(at), self.nodes.get_mut(at)) {
                changes.plan |= *known != row;
                (*slot, *known) = (member, row);
            }
        }
    }

    /// What is known of a node, its hardware not resolved.
    fn gather(&self, node: Arc<NodeSeen>) -> Member {
        Member {
            hardware: self.hardware.get(&node.name).cloned(),
            profile: self.profiles.get(&node.name).cloned(),
            twin: self.twins.get(&node.name).cloned(),
            grant: self.grants.get(&node.name).cloned(),
            resolved: Hardware::default(),
            unreadable: self.unread.of_node(&node.name),
            brief: Brief::default(),
            name: node.name.clone(),
            node,
        }
    }

    fn read_nodes(
        &mut self,
        nodes: Vec<Arc<NodeSeen>>,
        anew: bool,
        by: (&Lens, &Catalog),
        changes: &mut Changes,
    ) {
        let others = nodes.len() != self.members.len()
            || nodes.iter().zip(&self.members).any(|(node, member)| node.name != member.node.name);
        if others {
            self.places = Places::new(nodes.iter().map(|node| &*node.name));
        }
        self.other_nodes |= others;
        changes.plan |= others;
        let old_members = std::mem::take(&mut self.members);
        let old_rows = std::mem::take(&mut self.nodes);
        let mut old = old_members.into_iter().zip(old_rows).peekable();
        for node in nodes {
            while old.next_if(|(member, _)| member.node.name < node.name).is_some() {}
            let before = old.next_if(|(member, _)| member.node.name == node.name);
            let member = self.gather(node);
            let place = self.nodes.len();
            let (member, mut row): (Arc<Member>, NodeRow) = match before {
                Some((was, row)) if was.is_same(&member) && !anew => (was, row),
                before => {
                    let was = before.as_ref().map(|(was, _)| &**was);
                    let (member, row) = self.put_together(member, was, by);
                    let row = NodeRow { place, ..row };
                    let member = Arc::new(member);
                    changes.members.push(member.clone());
                    changes.plan |= before.is_none_or(|(_, was)| was != row);
                    (member, row)
                }
            };
            row.place = place;
            self.members.push(member);
            self.nodes.push(row);
        }
        self.texts.forget_unused();
    }

    fn put_together(
        &mut self,
        member: Member,
        was: Option<&Member>,
        (lens, catalog): (&Lens, &Catalog),
    ) -> (Member, NodeRow) {
        let Member { node, hardware, .. } = &member;
        let texts = &mut self.texts;
        let mut reported = hardware.as_ref().map(|hardware| hardware.reported.clone());
        if let Some(of) = &mut reported {
            texts.share_all([
                &mut of.cpu_raw_model,
                &mut of.cpu_model,
                &mut of.gpu_raw_model,
                &mut of.gpu_model,
            ]);
        }
        let mut labels = LabelFacts::read(|key| node.label(key), &lens.gpu_product_keys);
        texts.share_all([&mut labels.cpu_model, &mut labels.gpu_model]);
        let facts = HardwareFacts {
            reported,
            labels,
            capacity_cpus: node.capacity_cpus,
            allocatable_gpus: node.allocatable_gpus,
        };
        let (facts, implausible) = inventory::believed(facts, catalog, &self.peers);
        let state = member.state(lens.source);
        let caps = state.map(|state| rows::caps(&state.desired));
        let gpu_cap = caps.is_some_and(|caps| caps.gpu.is_some());
        let remembered = was.and_then(|was| was.resolved.gpu.as_ref());
        let resolved = inventory::resolve(&facts, remembered, gpu_cap, catalog).hardware;
        let name = was.map_or_else(|| node.name.clone(), |was| was.name.clone());
        let brief = Brief {
            rack: member.label(labels::node::RACK).map(|text| texts.share(text)),
            zone: member.label(labels::node::COOLING_ZONE).map(|text| texts.share(text)),
            caps,
            can_cap: hardware.as_ref().map_or((false, false), |hardware| {
                (hardware.cpu_control != Some(false), hardware.gpu_control != Some(false))
            }),
            implausible: said(&implausible),
            has_no_meter: hardware.as_ref().is_some_and(|hardware| hardware.metered == Some(false)),
            has_other_owners: state.is_some_and(|state| state.owners.foreign.any())
                || node.owner_of(&lens.profile_key).is_some(),
        };
        // What the budget leaves of what is asked; the agent can hold no more than that.
        let grant = member.grant.as_deref().filter(|grant| !grant.released);
        let most = grant.map(|grant| {
            Split::of(&resolved, brief.can_cap).under_grant(&caps.unwrap_or_default(), grant.grant.watts)
        });
        let row = NodeRow {
            name: name.clone(),
            selected: lens.selector.matches(&node.labels),
            reserved: labels::is_true(node.label(&lens.reserved_key)),
            unschedulable: node.unschedulable,
            presence: if node.ready { Presence::Ready } else { Presence::Lost },
            profile_label: node.label(&lens.profile_key).map(|text| texts.share(text)),
            draining_label: node.label(labels::node::DRAINING).map(|text| texts.share(text)),
            hardware: facts,
            confirmation: confirmation(
                state,
                hardware.as_deref(),
                (&resolved, most),
                self.hardware_known && member.unreadable.hardware.is_none(),
            ),
            sight: Sight::Clear,
            place: 0,
        };
        (Member { name, resolved, brief, ..member }, row)
    }

    /// Whose object of a kind has this name.
    pub(crate) fn holder(&self, kind: DesiredSource, name: &str) -> Option<&str> {
        match kind {
            DesiredSource::Profile => self.profiles.holder(name),
            DesiredSource::Twin => self.twins.holder(name),
        }
    }

    /// The name of a node's grant that does not exist yet.
    pub(crate) fn grant_name(&self, node: &str) -> String {
        joulie_api::names::name_for(node, |name| self.grants.holder(name))
    }

    /// The place of a node.
    pub(crate) fn find(&self, node: &str) -> Option<usize> {
        self.places.find(node, |at| self.members.get(at).map(|member| &*member.name))
    }

    /// A node.
    pub(crate) fn member(&self, node: &str) -> Option<&Arc<Member>> {
        self.find(node).and_then(|at| self.members.get(at))
    }
}

/// What a node says of itself and is not believed, in a sentence.
fn said(implausible: &[Implausible]) -> Option<Arc<str>> {
    let all: Vec<String> = implausible.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join("; ").into())
}

/// The nodes that have changed, where none has come or gone.
fn same_nodes(news: &News<'_, NodeSeen>) -> Option<BTreeMap<Arc<str>, Arc<NodeSeen>>> {
    let mut nodes = BTreeMap::new();
    for change in news.changes.as_ref()? {
        let now = change.now.filter(|_| change.before.is_some())?;
        nodes.insert(now.row.name.clone(), now.row.clone());
    }
    Some(nodes)
}

#[cfg(test)]
mod tests;
