//! The MIG instances of all nodes, and pods that ask for some by `nvidia.com/mig-PROFILE`.
//!
//! kube-scheduler counts the instances of a node by their profiles too. What it does not see is decided here: whether the driver
//! shows the card, whether the kubelet says who has which instance, and of which model the card is. Unknown takes no pod.

use joulie_api::extender::pod;
use joulie_api::gpu::{Gpu, InstanceRecord};
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::gpu::{GpuPhase, Model, ModelSet, Reject};
use std::collections::BTreeMap;

/// The most profiles that one pod may ask for; one with more fits nowhere.
const KINDS_MAX: usize = 4;
/// No profile has this number.
const NO_PROFILE: u32 = u32::MAX;

/// An instance as its GPU object tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceRow {
    uuid: Box<str>,
    profile: Box<str>,
    memory_mb: Option<i64>,
    phase: GpuPhase,
    pod: Option<PodUid>,
}

impl InstanceRow {
    /// Those of a card.
    pub(crate) fn all(gpu: &Gpu) -> Box<[Self]> {
        let row = |one: InstanceRecord<'_>| Self {
            uuid: one.uuid.into(),
            profile: one.profile.into(),
            memory_mb: one.memory_mb,
            phase: one.phase,
            pod: one.pod_uid.map(pod::uid),
        };
        gpu.instances().map(row).collect()
    }
}

/// How many instances of which profiles a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstancesAsk {
    wants: [Option<(u32, u32)>; KINDS_MAX],
    models: Option<ModelSet>,
    memory_mb: Option<i64>,
}

/// An instance on a node.
#[derive(Clone, Debug)]
struct NodeInstance {
    uuid: Box<str>,
    profile: u32,
    model: Option<Model>,
    memory_mb: Option<i64>,
    phase: GpuPhase,
    pod: Option<PodUid>,
}

/// The instances of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    profiles: Vec<Box<str>>,
    nodes: BTreeMap<usize, Vec<NodeInstance>>,
}

impl Instances {
    /// Adds those of a card. Where it is not certain who has which, none of them takes a pod.
    pub(crate) fn add(&mut self, node: usize, rows: &[InstanceRow], model: Option<Model>, is_certain: bool) {
        for row in rows {
            let profile = self.number(&row.profile).unwrap_or_else(|| {
                self.profiles.push(row.profile.clone());
                u32::try_from(self.profiles.len() - 1).unwrap_or(NO_PROFILE)
            });
            let all = self.nodes.entry(node).or_default();
            let is_twice = all.iter().any(|one| one.uuid == row.uuid);
            let phase = if is_certain && !is_twice { row.phase } else { GpuPhase::Unknown };
            // Two objects that have one instance are both wrong, or nobody knows which is right.
            all.iter_mut().filter(|one| one.uuid == row.uuid).for_each(|one| one.phase = GpuPhase::Unknown);
            let InstanceRow { uuid, memory_mb, pod, .. } = row.clone();
            all.push(NodeInstance { uuid, profile, model, memory_mb, phase, pod });
        }
    }

    fn number(&self, profile: &str) -> Option<u32> {
        let at = self.profiles.iter().position(|one| **one == *profile)?;
        u32::try_from(at).ok()
    }

    /// What a pod asks for, of cards of these models and with so much memory.
    pub(crate) fn ask(
        &self,
        asked: &BTreeMap<String, u32>,
        models: Option<ModelSet>,
        memory_mb: Option<i64>,
    ) -> InstancesAsk {
        let mut wants = [None; KINDS_MAX];
        for (want, (profile, &count)) in wants.iter_mut().zip(asked) {
            *want = Some((self.number(profile).unwrap_or(NO_PROFILE), count));
        }
        if asked.len() > KINDS_MAX {
            wants = [Some((NO_PROFILE, 1)); KINDS_MAX];
        }
        InstancesAsk { wants, models, memory_mb }
    }

    /// Why a pod cannot have instances of a node once these pods have left.
    pub(crate) fn rejects(&self, ask: &InstancesAsk, node: Option<usize>, gone: &[PodUid]) -> Option<Reject> {
        let of_node = node.and_then(|node| self.nodes.get(&node)).map(Vec::as_slice).unwrap_or_default();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let why = |&(profile, count): &(u32, u32)| {
            let suits = |one: &&NodeInstance| {
                one.profile == profile
                    && one.phase != GpuPhase::Unknown
                    && ask.models.is_none_or(|models| one.model.is_some_and(|model| models.has(model)))
                    && ask.memory_mb.is_none_or(|mb| one.memory_mb.is_some_and(|has| has >= mb))
            };
            let is_free = |one: &&NodeInstance| {
                one.phase == GpuPhase::Available || one.pod.is_some_and(|pod| gone.contains(&pod))
            };
            let have = number(of_node.iter().filter(suits).count());
            let free = number(of_node.iter().filter(suits).filter(is_free).count());
            match () {
                () if have < count => Some(Reject::NoInstance { have }),
                () if free < count => Some(Reject::Instance { have: free }),
                () => None,
            }
        };
        ask.wants.iter().flatten().find_map(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(uuid: &str, profile: &str, phase: GpuPhase, pod: Option<&str>) -> InstanceRow {
        let pod = pod.map(pod::uid);
        InstanceRow { uuid: uuid.into(), profile: profile.into(), memory_mb: Some(9_856), phase, pod }
    }

    fn asks(all: &Instances, asked: &[(&str, u32)]) -> InstancesAsk {
        let asked = asked.iter().map(|(profile, count)| ((*profile).to_owned(), *count));
        all.ask(&asked.collect(), None, None)
    }

    #[test]
    fn a_pod_fits_by_the_free_instances_of_its_profile() {
        let (free, had) = (GpuPhase::Available, GpuPhase::Allocated);
        let mut all = Instances::default();
        let rows = [
            row("a", "1g.10gb", free, None),
            row("b", "1g.10gb", had, Some("u")),
            row("c", "3g.40gb", free, None),
        ];
        all.add(3, &rows, Some(Model(1)), true);
        let why = |asked: &[(&str, u32)], node, gone: &[PodUid]| all.rejects(&asks(&all, asked), node, gone);
        assert_eq!(why(&[("1g.10gb", 1)], Some(3), &[]), None);
        assert_eq!(why(&[("1g.10gb", 2)], Some(3), &[]), Some(Reject::Instance { have: 1 }));
        assert_eq!(why(&[("1g.10gb", 2)], Some(3), &[pod::uid("u")]), None, "who leaves gives it back");
        assert_eq!(why(&[("1g.10gb", 3)], Some(3), &[pod::uid("u")]), Some(Reject::NoInstance { have: 2 }));
        assert_eq!(why(&[("1g.10gb", 1), ("3g.40gb", 1)], Some(3), &[]), None);
        for node in [Some(2), None] {
            assert_eq!(why(&[("1g.10gb", 1)], node, &[]), Some(Reject::NoInstance { have: 0 }));
        }
        assert_eq!(why(&[("7g.80gb", 1)], Some(3), &[]), Some(Reject::NoInstance { have: 0 }));
        let five: Vec<(&str, u32)> = ["1g.10gb", "b", "c", "d", "e"].map(|profile| (profile, 1)).to_vec();
        assert_eq!(why(&five, Some(3), &[]), Some(Reject::NoInstance { have: 0 }));
    }

    #[test]
    fn the_model_and_the_memory_count_and_unknown_takes_no_pod() {
        let mut all = Instances::default();
        let free = [row("a", "1g.10gb", GpuPhase::Available, None)];
        all.add(0, &free, Some(Model(1)), true);
        all.add(1, &free, None, true);
        all.add(2, &free, Some(Model(1)), false);
        // Two objects say that they have one instance.
        all.add(3, &free, Some(Model(1)), true);
        all.add(3, &free, Some(Model(1)), true);
        let asked = BTreeMap::from([("1g.10gb".to_owned(), 1)]);
        let fits = |models: Option<u32>, memory, node| {
            let models = models.map(|number| ModelSet::EMPTY.with(Model(number)));
            all.rejects(&all.ask(&asked, models, memory), Some(node), &[]).is_none()
        };
        assert!(fits(Some(1), Some(9_856), 0) && fits(None, None, 0));
        assert!(!fits(Some(2), None, 0) && !fits(None, Some(9_857), 0));
        assert!(fits(None, None, 1) && !fits(Some(1), None, 1), "the model is not known");
        assert!(!fits(None, None, 2) && !fits(None, None, 3));
    }
}
