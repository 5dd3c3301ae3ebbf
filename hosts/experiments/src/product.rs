//! What the extender and kube-scheduler say of a node of the fleet: their own functions, fed with what they would know.

use crate::fair::ScoreTerm;
use crate::fleet::{FleetNode, GPU_NODES, Kind, PowerModel};
use crate::workload::OfferedJob;
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::demand::{GpuDemand, GpuVendor, MilliCores, PodDemand};
use joulie_core::placement::estimate::{Coefficients, DemandTerms, HardwareRecord, HardwareTerms, NodeGpus};
use joulie_core::placement::kube_scheduler::{Amounts, ScheduledNode, ScheduledPod, SchedulerProfile};
use joulie_core::placement::score::{
    ConsolidateFacts, ConsolidatePod, ConsolidateTerms, GpuNodeUse, GpuSupply, NodeCards, WholeNodes,
};
use power_units::Watts;

/// The most that a GPU draws.
const GPU_MAX: Watts = Watts::from_int(700);

/// What the hardware record of a kind says.
fn record(kind: Kind, model: PowerModel) -> HardwareRecord {
    let gpus = (kind == Kind::Gpu).then_some(NodeGpus {
        count: Some(8),
        max: Some(GPU_MAX),
        vendor: Some(GpuVendor::Nvidia),
        adds: None,
    });
    HardwareRecord { cpu_max: Some(watts(model.most_w(kind))), cores: Some(kind.cores()), gpus }
}

fn watts(watts: f64) -> Watts {
    Watts::from_bits(crate::numbers::parts(watts))
}

/// What jobs with GPUs ask for: thousandths of a core, and GPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GpuAsks {
    milli: u64,
    gpus: u64,
}

impl GpuAsks {
    /// A job comes or goes.
    pub(crate) fn add(&mut self, job: &OfferedJob, comes: bool) {
        if job.gpus == 0 {
            return;
        }
        let (milli, gpus) = (u64::from(job.cores) * 1000, u64::from(job.gpus));
        if comes {
            self.milli += milli;
            self.gpus += gpus;
        } else {
            self.milli -= milli;
            self.gpus -= gpus;
        }
    }

    /// What a free GPU keeps of a node's cores, as the extender counts it: what jobs ask for with each, and at most its share.
    fn each(&self, kind: Kind) -> u32 {
        let share = (kind.cores() * 1000).checked_div(kind.gpus()).unwrap_or(0);
        if self.gpus == 0 {
            return share;
        }
        u32::try_from(self.milli.div_ceil(self.gpus)).unwrap_or(u32::MAX).min(share)
    }
}

/// What the extender knows of the fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView {
    /// GPU nodes without jobs.
    pub(crate) whole: u32,
    /// Free GPUs of all nodes.
    pub(crate) free: u32,
    /// What jobs with GPUs ask for.
    pub(crate) asks: GpuAsks,
    /// What an idle GPU draws.
    pub(crate) idle_gpu_w: f64,
    /// What processors draw.
    pub(crate) model: PowerModel,
}

/// The extender's terms of a node. There are no caps, so that what is left is what the node can draw.
pub(crate) fn consolidate_terms(
    kind: Kind,
    node: &FleetNode,
    view: &NodeView,
    without: Option<ScoreTerm>,
) -> ConsolidateTerms {
    let record = record(kind, view.model);
    let most = watts(view.model.most_w(kind)) + GPU_MAX.times(kind.gpus());
    let cards = NodeCards { all: kind.gpus(), free: kind.gpus() - node.gpus };
    let all = u32::try_from(GPU_NODES).unwrap_or(0);
    let mut nodes = WholeNodes::default();
    nodes.see(NodeCards { all: 8 * view.whole, free: 8 * view.whole }, GpuNodeUse::Whole);
    let others = NodeCards { all: 8 * (all - view.whole), free: view.free.saturating_sub(8 * view.whole) };
    nodes.see(others, GpuNodeUse::Open);
    let used = if node.jobs == 0 { GpuNodeUse::Whole } else { GpuNodeUse::Open };
    let measured = view.model.cores_w(kind, 0.0, false) + f64::from(kind.gpus()) * view.idle_gpu_w;
    let at_rest = match without {
        Some(ScoreTerm::Measured) => record.at_rest(),
        _ => Some(watts(measured)),
    };
    ConsolidateTerms::of(&ConsolidateFacts {
        cores_milli: Some(kind.cores() * 1000),
        requested_milli: node.cores * 1000,
        cards: Some(cards),
        milli_per_gpu: if without == Some(ScoreTerm::GpuCores) { 0 } else { view.asks.each(kind) },
        is_spare: without != Some(ScoreTerm::Spare) && nodes.spares(cards, used),
        supply: match (kind, without) {
            (Kind::Cpu, _) | (_, Some(ScoreTerm::Scarce)) => GpuSupply::Ample,
            (Kind::Gpu, _) => nodes.supply(),
        },
        is_used: node.jobs > 0,
        at_rest,
        room: Some(most),
        is_emptied: false,
    })
}

/// A job as the extender and kube-scheduler see it.
pub(crate) struct JobTerms {
    pod: ConsolidatePod,
    added: [Watts; 2],
    scheduled: ScheduledPod,
}

impl JobTerms {
    /// Compiles a job.
    pub(crate) fn of(job: &OfferedJob, model: PowerModel) -> Self {
        let class = if job.performance { WorkloadClass::Performance } else { WorkloadClass::Standard };
        let gpus =
            (job.gpus > 0).then_some(GpuDemand { count: u32::from(job.gpus), vendor: GpuVendor::Nvidia });
        let cpu = MilliCores::new(u32::from(job.cores) * 1000);
        let demand = PodDemand { class, cpu, memory_bytes: 0, gpus, gpu_quarters: 0 };
        let coefficients = Coefficients::REFERENCE;
        let terms = DemandTerms::of(&demand, &coefficients);
        let on = |kind| HardwareTerms::of(Some(&record(kind, model)), &coefficients).estimate(&terms).total();
        Self {
            pod: ConsolidatePod::of(&demand),
            added: [on(Kind::Cpu), on(Kind::Gpu)],
            scheduled: ScheduledPod::EMPTY.with(
                Some(u64::from(job.cores) * 1000),
                Some(0),
                u64::from(job.gpus),
            ),
        }
    }

    /// The extender's points, 0 to 100, or those that are left without a part.
    pub(crate) fn consolidated(
        &self,
        kind: Kind,
        node: &FleetNode,
        view: &NodeView,
        without: Option<ScoreTerm>,
    ) -> u8 {
        let [cpu, gpu] = self.added;
        let added = if kind == Kind::Gpu { gpu } else { cpu };
        let why = consolidate_terms(kind, node, view, without).explain(&self.pod, added, Watts::ZERO);
        let part = match without {
            _ if why.held_back.is_some() => 0,
            Some(ScoreTerm::Watts) => why.watts,
            Some(ScoreTerm::Fill) => why.fill,
            Some(ScoreTerm::Whole) => why.whole,
            Some(ScoreTerm::Stranded) => return why.watts + why.fill + why.whole,
            Some(ScoreTerm::GpuCores | ScoreTerm::Spare | ScoreTerm::Scarce | ScoreTerm::Measured) | None => {
                0
            }
        };
        why.score.saturating_sub(part)
    }

    /// kube-scheduler's points of the default profile. Memory is not modelled, so that only cores count.
    pub(crate) fn scheduled(&self, kind: Kind, node: &FleetNode) -> u64 {
        let amounts = |cores: u32, gpus: u32| Amounts {
            cpu_milli: u64::from(cores) * 1000,
            memory_bytes: 0,
            gpus: u64::from(gpus),
        };
        let requested = amounts(node.cores, node.gpus);
        let seen = ScheduledNode {
            requested,
            counted: requested,
            ..ScheduledNode::empty(amounts(kind.cores(), kind.gpus()), u32::MAX)
        };
        SchedulerProfile::DEFAULT.resources(&seen, &self.scheduled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::JobClass;

    #[test]
    fn the_points_are_those_of_the_product() {
        let job = OfferedJob {
            arrives: 0,
            lasts: 1,
            cores: 48,
            gpus: 0,
            performance: false,
            class: JobClass::Large,
            busy_cores: 0,
            busy_gpus: 0,
        };
        let terms = JobTerms::of(&job, PowerModel::Linear);
        // Half of 96 cores is left, five eighths of 128: 50 and 62; balance without memory is 50 + 50 / 2 = 75.
        assert_eq!(terms.scheduled(Kind::Cpu, &FleetNode::default()), 50 + 75);
        assert_eq!(terms.scheduled(Kind::Gpu, &FleetNode::default()), 62 + 75);
        let view = |whole| NodeView {
            whole,
            free: 4_000,
            asks: GpuAsks::default(),
            idle_gpu_w: 10.0,
            model: PowerModel::Linear,
        };
        let points = |kind, node, whole| terms.consolidated(kind, node, &view(whole), None);
        // The free GPUs of an empty node need all of its cores, unless enough others are whole: 10 of 500 without this one.
        let empty = FleetNode::default();
        assert_eq!(points(Kind::Gpu, &empty, 10), 0);
        assert!(points(Kind::Gpu, &empty, 11) > 0);
        // A node that is used is better than one that is not.
        let mut node = FleetNode::default();
        node.add(&OfferedJob { cores: 8, ..job });
        assert!(points(Kind::Cpu, &node, 0) > points(Kind::Cpu, &empty, 0));
    }
}
