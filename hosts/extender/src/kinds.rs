//! Kinds of hardware. A pod adds the same watts to all nodes of a kind, and thousands of nodes have only a few kinds.

use joulie_core::placement::estimate::{Coefficients, HardwareRecord, HardwareTerms};
use joulie_core::placement::score::PodTerms;
use power_units::Watts;
use std::collections::BTreeMap;

/// The kinds, and which kind each node has.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    /// The kind of each node, by node number.
    of: Box<[u32]>,
    all: Box<[HardwareTerms]>,
}

impl Kinds {
    /// The kinds of these nodes, by number. Unknown hardware is a kind too.
    pub(crate) fn of<'h>(
        nodes: impl Iterator<Item = Option<&'h HardwareRecord>>,
        coefficients: &Coefficients,
    ) -> Self {
        let mut all = Vec::new();
        let mut known = BTreeMap::new();
        let kind = |hardware| {
            let terms = HardwareTerms::of(hardware, coefficients);
            *known.entry(terms).or_insert_with(|| {
                all.push(terms);
                u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
            })
        };
        let of = nodes.map(kind).collect();
        Self { of, all: all.into() }
    }

    /// Computes what a pod adds to a node of each kind.
    pub(crate) fn weigh(&self, pod: &PodTerms) -> Weighed<'_> {
        let (mut few, mut many) = ([Watts::ZERO; FEW], Vec::new());
        let weighed = self.all.iter().map(|terms| pod.on(terms).total());
        if self.all.len() <= FEW {
            few.iter_mut().zip(weighed).for_each(|(slot, watts)| *slot = watts);
        } else {
            many.extend(weighed);
        }
        Weighed { of: &self.of, few, many }
    }

    /// What a pod adds to the node of this number; zero if there is none.
    pub(crate) fn added(&self, number: usize, pod: &PodTerms) -> Watts {
        let kind = self.of.get(number).and_then(|&kind| usize::try_from(kind).ok());
        kind.and_then(|kind| self.all.get(kind)).map_or(Watts::ZERO, |terms| pod.on(terms).total())
    }
}

/// More kinds than this need a heap allocation.
const FEW: usize = 32;

/// What a pod adds to the nodes.
#[derive(Debug)]
pub(crate) struct Weighed<'k> {
    of: &'k [u32],
    few: [Watts; FEW],
    many: Vec<Watts>,
}

impl Weighed<'_> {
    /// The watts that it adds to the node of this number; zero if there is none.
    #[inline]
    pub(crate) fn on(&self, number: usize) -> Watts {
        let kind = self.of.get(number).and_then(|&kind| usize::try_from(kind).ok());
        let watts = if self.many.is_empty() { &self.few[..] } else { &self.many[..] };
        kind.and_then(|kind| watts.get(kind)).copied().unwrap_or(Watts::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_core::placement::class::WorkloadClass;
    use joulie_core::placement::demand::{MilliCores, PodDemand};

    #[test]
    fn every_node_is_weighed_by_its_own_hardware_however_many_kinds_there_are() {
        let demand = PodDemand {
            class: WorkloadClass::Standard,
            cpu: MilliCores::new(1_000),
            memory_bytes: 0,
            gpus: None,
            gpu_quarters: 0,
        };
        let pod = PodTerms::of(&demand, &Coefficients::REFERENCE);
        for kinds in [1, 3, 32, 33, 200] {
            let hardware: Vec<Option<HardwareRecord>> = (0..400_u32)
                .map(|number| {
                    let cores = Some(1 + number % kinds);
                    (number % 7 != 0).then_some(HardwareRecord {
                        cpu_max: Some(Watts::from_int(720)),
                        cores,
                        gpus: None,
                    })
                })
                .collect();
            let all = Kinds::of(hardware.iter().map(Option::as_ref), &Coefficients::REFERENCE);
            let weighed = all.weigh(&pod);
            for (number, hardware) in hardware.iter().enumerate() {
                let terms = HardwareTerms::of(hardware.as_ref(), &Coefficients::REFERENCE);
                let watts = pod.on(&terms).total();
                assert_eq!((weighed.on(number), all.added(number, &pod)), (watts, watts), "{kinds} {number}");
            }
            assert_eq!((weighed.on(400), all.added(400, &pod)), (Watts::ZERO, Watts::ZERO));
        }
    }
}
