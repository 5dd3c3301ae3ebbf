//! All data of every node, by number, from the rows of three kinds of objects.
//!
//! Usually some twins have changed and the nodes are the same: then only those twins are applied. Reading all rows
//! requires name look-ups, which at 5,000 nodes are most of the cost of a snapshot.

use crate::budgets::{BudgetRow, Budgets};
use crate::gpus::GpuRow;
use crate::index::Registry;
use crate::rows::{EcoLabel, HardwareRow, TwinRow};
use crate::snapshot::{Node, places};
use host_kit::reflect::{CachedRow, Row, Rows};
use joulie_api::node_hardware::DrawnSample;
use joulie_core::placement::assumed::NodeKey;
use joulie_core::placement::freshness::{Evidence, TelemetryFreshness};
use std::collections::BTreeSet;

/// The rows of the three kinds.
pub(crate) struct NodeStore {
    pub(crate) twins: Rows<TwinRow>,
    pub(crate) hardware: Rows<HardwareRow>,
    pub(crate) labels: Rows<EcoLabel>,
    /// The GPUs, where they are looked at.
    pub(crate) gpus: Option<Rows<GpuRow>>,
    /// The PowerBudgets, which are no part of any node. A cluster may have none.
    pub(crate) budgets: Option<Rows<BudgetRow>>,
    /// Whether, when all rows were last read, every numbered node had a row and at most one row of each kind.
    is_plain: bool,
}

impl NodeStore {
    pub(crate) fn new(twins: Rows<TwinRow>, hardware: Rows<HardwareRow>, labels: Rows<EcoLabel>) -> Self {
        Self { twins, hardware, labels, gpus: None, budgets: None, is_plain: false }
    }

    /// The same with GPUs.
    pub(crate) fn with_gpus(self, gpus: Option<Rows<GpuRow>>) -> Self {
        Self { gpus, ..self }
    }

    /// The same with PowerBudgets.
    pub(crate) fn with_budgets(self, budgets: Rows<BudgetRow>) -> Self {
        Self { budgets: Some(budgets), ..self }
    }

    /// What the PowerBudgets can grant. `plans`: somebody renews the plan's Lease.
    pub(crate) fn grantable(&mut self, plans: bool) -> Budgets {
        self.budgets
            .as_mut()
            .map_or_else(Budgets::default, |rows| rows.catch_up(|rows| Budgets::of(rows, plans)))
    }

    /// All rows are read the next time.
    pub(crate) fn forget(&mut self) {
        self.is_plain = false;
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.twins.is_synced() && self.hardware.is_synced() && self.gpus.as_ref().is_none_or(Rows::is_synced)
    }

    /// The previous nodes with the changes since. `None` if a node may have been added or removed, or may be named by
    /// two objects of a kind: then all rows must be read.
    pub(crate) fn amended(&mut self, registry: &Registry, nodes: &[Node]) -> Option<Box<[Node]>> {
        if !self.is_plain {
            return None;
        }
        let mut nodes: Box<[Node]> = nodes.into();
        let mut amend = |name: &str, change: &dyn Fn(&mut Node)| {
            registry.find(name).and_then(|number| place(&mut nodes, number)).map(change);
        };
        let twins =
            follow(&mut self.twins, |row| &row.node, |held| amend(&held.row.node, &|node| hear(node, held)));
        let hardware = follow(
            &mut self.hardware,
            |row| &row.node,
            |held| {
                amend(&held.row.node, &|node| {
                    (node.hardware, node.sample) = (held.row.hardware, sample(held))
                });
            },
        );
        // Labels are seldom added or removed; an object with the label may change in every other field.
        let labels = follow(&mut self.labels, |_| "", |_| ());
        (twins && hardware && labels).then_some(nodes)
    }

    /// Reads all rows. A node without any row keeps its number while `is_assumed` says that pods count there. Also
    /// returns the numbers that are free again.
    pub(crate) fn read(
        &mut self,
        registry: &mut Registry,
        is_assumed: impl Fn(NodeKey) -> bool,
    ) -> (Box<[Node]>, Vec<NodeKey>) {
        let Self { twins, hardware, labels, gpus, budgets: _, is_plain } = self;
        // A node of which nothing but its GPUs is known has a number too.
        let with_gpus: BTreeSet<String> = gpus.as_ref().map_or_else(BTreeSet::new, |gpus| {
            gpus.with(|rows| rows.values().map(|held| held.row.node.clone()).collect())
        });
        twins.catch_up(|twins| {
            hardware.catch_up(|hardware| {
                labels.catch_up(|labels| {
                    let named = twins.values().map(|held| held.row.node.as_str());
                    let named = named.chain(hardware.values().map(|held| held.row.node.as_str()));
                    let named = named.chain(labels.keys().map(|key| key.name.as_str()));
                    let named = named.chain(with_gpus.iter().map(String::as_str));
                    let known: BTreeSet<&str> = named.collect();
                    let gone = registry.retain(|name, number| is_assumed(number) || known.contains(name));
                    for name in &known {
                        registry.number(name);
                    }
                    // Objects of a kind have unique names. So if each is named as its node, each node is named once.
                    *is_plain = registry.iter().count() == known.len()
                        && twins.iter().all(|(key, held)| key.name == held.row.node)
                        && hardware.iter().all(|(key, held)| key.name == held.row.node);
                    let mut nodes = places(registry);
                    for (name, number) in registry.iter() {
                        if let Some(node) = place(&mut nodes, number) {
                            node.name = name.into();
                        }
                    }
                    // If two objects name one node, the last one by name counts.
                    for held in twins.values().filter(|held| held.row.said.is_some()) {
                        if let Some(node) = place(&mut nodes, registry.number(&held.row.node)) {
                            hear(node, held);
                        }
                    }
                    for held in hardware.values() {
                        if let Some(node) = place(&mut nodes, registry.number(&held.row.node)) {
                            node.hardware = held.row.hardware.or(node.hardware);
                            node.sample = sample(held).or(node.sample);
                        }
                    }
                    for key in labels.keys() {
                        if let Some(node) = place(&mut nodes, registry.number(&key.name)) {
                            node.eco_label = true;
                        }
                    }
                    (nodes, gone)
                })
            })
        })
    }
}

/// Calls `change` for every row that has changed since the last call. Returns false if the changes may be incomplete,
/// or if an object was added, was removed, or names another node than before.
fn follow<R: Row>(
    rows: &mut Rows<R>,
    node: impl Fn(&R) -> &str,
    mut change: impl FnMut(&CachedRow<R>),
) -> bool {
    let is_followed = rows.news(|news| {
        let Some(changes) = news.changes else { return false };
        changes.iter().all(|told| {
            let (before, now) = match (told.before, told.now) {
                (Some(before), Some(now)) => (before, now),
                // An object that cannot be read and never could be.
                (None, None) => return true,
                (Some(_), None) | (None, Some(_)) => return false,
            };
            change(now);
            node(&before.row) == node(&now.row)
        })
    });
    is_followed.unwrap_or(true)
}

/// Applies a twin to its node.
fn hear(node: &mut Node, held: &CachedRow<TwinRow>) {
    let said = held.row.said;
    node.twin = said.map(|said| said.twin);
    // The current status cannot be read, and the Lease does not vouch for the previous one.
    let stale = held.stale_since.map(|_| Evidence::Leased(TelemetryFreshness::Stale));
    node.evidence = said.map_or(Evidence::NoTwin, |said| stale.unwrap_or(said.evidence));
    node.sampled = said.and_then(|said| said.sampled);
    node.of_agent = said.and_then(|said| said.of_agent);
    node.tdp = said.and_then(|said| said.tdp);
    node.budget.clone_from(&held.row.budget);
}

/// What its agent says last of a node; nothing while its object cannot be read.
fn sample(held: &CachedRow<HardwareRow>) -> Option<DrawnSample> {
    held.row.sample.filter(|_| held.stale_since.is_none())
}

fn place(nodes: &mut [Node], NodeKey(number): NodeKey) -> Option<&mut Node> {
    usize::try_from(number).ok().and_then(|at| nodes.get_mut(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::{ByHand, by_hand};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    /// The objects of one kind, as the server stores them.
    struct Kind<R> {
        by_hand: ByHand<R>,
        objects: BTreeMap<String, Value>,
    }

    impl<R: Row> Kind<R> {
        fn new() -> (Self, Rows<R>) {
            let (mut by_hand, rows) = by_hand();
            by_hand.list([]);
            (Self { by_hand, objects: BTreeMap::new() }, rows)
        }

        fn apply(&mut self, name: &str, mut object: Value) {
            object["metadata"] = json!({"name": name, "uid": name});
            self.by_hand.apply(&object);
            self.objects.insert(name.to_owned(), object);
        }

        fn delete(&mut self, name: &str) {
            if let Some(object) = self.objects.remove(name) {
                self.by_hand.delete(&object);
            }
        }

        fn list(&mut self) {
            self.by_hand.list(self.objects.values());
        }
    }

    /// A cluster, and the store of its nodes.
    struct World {
        twins: Kind<TwinRow>,
        hardware: Kind<HardwareRow>,
        labels: Kind<EcoLabel>,
        store: NodeStore,
        registry: Registry,
        nodes: Box<[Node]>,
        /// A node on which pods are assumed.
        assumed: &'static str,
        amended: usize,
    }

    impl World {
        fn new() -> Self {
            let ((twins, seen_twins), (hardware, seen_hardware), (labels, seen_labels)) =
                (Kind::new(), Kind::new(), Kind::new());
            let store = NodeStore::new(seen_twins, seen_hardware, seen_labels);
            let registry = Registry::default();
            Self { twins, hardware, labels, store, registry, nodes: [].into(), assumed: "", amended: 0 }
        }

        /// One random change: `dice` are drawn below 2¹⁶.
        fn happens(&mut self, dice: [usize; 4]) {
            let [what, node, value, rare] = dice;
            let name = format!("n{}", node % 6);
            let is_rare = rare.is_multiple_of(8);
            // Occasionally an object names another node than its own name says.
            let told = if rare % 32 == 1 { format!("n{}", value % 6) } else { name.clone() };
            match what % 16 {
                0..8 => {
                    let profile = if value % 2 == 0 { "eco" } else { "performance" };
                    let second = format!("2026-01-01T00:00:{:02}Z", value % 60);
                    let source = if value % 3 == 0 { "http" } else { "agent" };
                    let power =
                        json!({"source": source, "measuredNodePowerW": value % 500, "sampledAt": second});
                    let status = match value % 5 {
                        0 if is_rare => json!(null),
                        1 if is_rare => json!({"powerMeasurement": "no object"}),
                        _ => json!({"schedulableClass": profile, "powerMeasurement": power,
                                    "lastUpdated": second}),
                    };
                    let mut twin = json!({"spec": {"nodeName": told, "profile": profile}});
                    if !status.is_null() {
                        twin["status"] = status;
                    }
                    self.twins.apply(&name, twin);
                }
                8..12 => {
                    let cpu = json!({"totalCores": 1 + value % 64, "sockets": 2});
                    let power = json!({"cpuWatts": value % 400, "sampledAt": "2026-01-01T00:00:30Z"});
                    let status = json!({"cpu": cpu, "power": power});
                    let status = if is_rare { json!({"cpu": "no object"}) } else { status };
                    let mut hardware = json!({"spec": {"nodeName": told}, "status": status});
                    if value % 5 == 0 {
                        hardware.as_object_mut().unwrap().remove("status");
                    }
                    self.hardware.apply(&name, hardware);
                }
                12 => self.labels.apply(&name, json!({})),
                13 if is_rare => self.twins.delete(&name),
                13 => self.labels.delete(&name),
                14 if is_rare => self.hardware.delete(&name),
                15 if is_rare => {
                    self.twins.list();
                    self.hardware.list();
                    self.labels.list();
                }
                15 => self.assumed = if value % 4 == 0 { "n1" } else { "" },
                _ => {}
            }
        }

        /// Takes the nodes as the program does. A change may happen just before all rows are read.
        fn look(&mut self, between: Option<[usize; 4]>) {
            if let Some(nodes) = self.store.amended(&self.registry, &self.nodes) {
                self.amended += 1;
                self.nodes = nodes;
                return;
            }
            between.into_iter().for_each(|dice| self.happens(dice));
            let assumed = self.registry.find(self.assumed);
            (self.nodes, _) = self.store.read(&mut self.registry, |number| Some(number) == assumed);
        }

        /// The current data of each node, read from scratch.
        fn truth(&self) -> BTreeMap<String, String> {
            let NodeStore { twins, hardware, labels, .. } = &self.store;
            let mut anew = NodeStore::new(twins.clone(), hardware.clone(), labels.clone());
            let mut registry = Registry::default();
            let assumed = self.registry.find(self.assumed).map(|_| registry.number(self.assumed));
            by_name(&anew.read(&mut registry, |number| Some(number) == assumed).0)
        }
    }

    fn by_name(nodes: &[Node]) -> BTreeMap<String, String> {
        let known = nodes.iter().filter(|node| !node.name.is_empty());
        known.map(|node| (node.name.to_string(), format!("{node:?}"))).collect()
    }

    #[test]
    fn what_is_amended_is_what_all_rows_say() {
        let mut amended = 0;
        for seed in 0..200_u64 {
            let (mut world, mut dice) = (World::new(), seed * 2 + 1);
            let mut draw = || {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                usize::try_from(dice >> 8 & 0xffff).unwrap()
            };
            for _ in 0..60 {
                for _ in 0..=draw() % 3 {
                    world.happens([draw(), draw(), draw(), draw()]);
                }
                let between = (draw() % 2 == 0).then(|| [draw(), draw(), draw(), draw()]);
                world.look(between);
                assert_eq!(by_name(&world.nodes), world.truth(), "{seed}");
            }
            amended += world.amended;
        }
        // The store exists to make this the usual case.
        assert!(amended > 2_000, "{amended}");
    }
}
