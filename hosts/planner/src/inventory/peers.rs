//! The reports of all nodes of one model, for models that the catalogue does not know: their median, from three nodes
//! on, so that a single node cannot move it far.

use super::Reported;
use super::claims::model_of;
use crate::hardware::PowerRange;
use power_units::Watts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// With fewer reports there is no median: of two that differ it is unknown which is right.
const FEWEST: u32 = 3;

/// The reports of nodes about their models.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    said: BTreeMap<Arc<str>, [Option<Claim>; 2]>,
    packages: BTreeMap<Arc<str>, Voices>,
    gpus: BTreeMap<Arc<str>, Voices>,
}

/// The report of one node about one kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    model: Arc<str>,
    range: PowerRange,
}

/// The reported values of a model, and how many nodes report each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Voices {
    min: BTreeMap<Watts, u32>,
    max: BTreeMap<Watts, u32>,
}

impl Peers {
    /// Records a node's present report; `None` when the node was removed. Returns whether any model's median changes.
    pub fn note(&mut self, node: &str, reported: Option<&Reported>) -> bool {
        let claim = |names, min, max| {
            Some(Claim { model: model_of(names)?, range: PowerRange::discovered(min, max)? })
        };
        let now = reported.map_or([None, None], |said| {
            [
                claim([&said.cpu_raw_model, &said.cpu_model], said.cpu_min, said.cpu_max),
                claim([&said.gpu_raw_model, &said.gpu_model], said.gpu_min, said.gpu_max),
            ]
        });
        let nothing = now == [None, None];
        let was = match self.said.get_mut(node) {
            Some(was) if *was == now => return false,
            Some(was) if !nothing => std::mem::replace(was, now.clone()),
            Some(_) => self.said.remove(node).unwrap_or_default(),
            None if nothing => return false,
            None => {
                self.said.insert(node.into(), now.clone());
                [None, None]
            }
        };
        let ([cpu_was, gpu_was], [cpu, gpu]) = (was, now);
        let packages = replace(&mut self.packages, cpu_was, cpu);
        let gpus = replace(&mut self.gpus, gpu_was, gpu);
        packages || gpus
    }

    /// Removes the nodes that no longer exist. Returns whether any model's median changes.
    pub fn keep_only(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<Arc<str>> = self.said.keys().filter(|node| !is_there(node)).cloned().collect();
        let mut changed = false;
        for node in gone {
            changed |= self.note(&node, None);
        }
        changed
    }

    /// The range of this node's packages, by all nodes of their model.
    pub(super) fn packages(&self, of: &Reported) -> Option<PowerRange> {
        agreed(&self.packages, &model_of([&of.cpu_raw_model, &of.cpu_model])?)
    }

    /// The range of this node's GPUs, by all nodes of their model.
    pub(super) fn gpus(&self, of: &Reported) -> Option<PowerRange> {
        agreed(&self.gpus, &model_of([&of.gpu_raw_model, &of.gpu_model])?)
    }
}

fn agreed(models: &BTreeMap<Arc<str>, Voices>, model: &str) -> Option<PowerRange> {
    models.get(model).and_then(Voices::agreed)
}

/// Replaces a former report by the present one. Returns whether any model's median changes.
fn replace(models: &mut BTreeMap<Arc<str>, Voices>, was: Option<Claim>, now: Option<Claim>) -> bool {
    let names: Vec<Arc<str>> = was.iter().chain(&now).map(|claim| claim.model.clone()).collect();
    let before: Vec<_> = names.iter().map(|model| agreed(models, model)).collect();
    if let Some(Claim { model, range }) = was
        && let Some(voices) = models.get_mut(&model)
    {
        voices.take_back(range);
        if voices.max.is_empty() {
            models.remove(&model);
        }
    }
    if let Some(Claim { model, range }) = now {
        models.entry(model).or_default().take_in(range);
    }
    names.iter().map(|model| agreed(models, model)).ne(before)
}

impl Voices {
    fn take_in(&mut self, range: PowerRange) {
        *self.max.entry(range.max).or_default() += 1;
        range.min.into_iter().for_each(|min| *self.min.entry(min).or_default() += 1);
    }

    fn take_back(&mut self, range: PowerRange) {
        less(&mut self.max, range.max);
        range.min.into_iter().for_each(|min| less(&mut self.min, min));
    }

    fn agreed(&self) -> Option<PowerRange> {
        let max = middle(&self.max)?;
        Some(PowerRange { min: middle(&self.min).map(|min| min.min(max)), max })
    }
}

fn less(voices: &mut BTreeMap<Watts, u32>, of: Watts) {
    if let Some(count) = voices.get_mut(&of) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            voices.remove(&of);
        }
    }
}

/// The median; of an even number of values the lower of the middle two.
fn middle(voices: &BTreeMap<Watts, u32>) -> Option<Watts> {
    let all = voices.values().fold(0_u32, |sum, &count| sum.saturating_add(count));
    if all < FEWEST {
        return None;
    }
    let mut left = all.div_ceil(2);
    voices.iter().find_map(|(&watts, &count)| {
        left = left.saturating_sub(count);
        (left == 0).then_some(watts)
    })
}
