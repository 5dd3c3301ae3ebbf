//! joulie-core, placement: the code that the extender runs for every request and every snapshot.

use joulie_core::placement::assumed::{
    AssumedRule, AssumedSlot, AssumedWatts, NodeKey, PodUid, Sighting, SightingOutcome, Swept,
};
use joulie_core::placement::class::{Classified, SchedulableClass, WorkloadClass};
use joulie_core::placement::cluster::ClusterAggregates;
use joulie_core::placement::demand::{Container, DemandSum, GpuVendor, PodDemand, ResourceRequest};
use joulie_core::placement::estimate::{Coefficients, HardwareRecord, HardwareTerms, PodEstimate};
use joulie_core::placement::filter::{FilterTerms, PowerFit, Rejection};
use joulie_core::placement::freshness::{Evidence, Freshness, FreshnessRule, Now, PlanLease, UnixTime};
use joulie_core::placement::score::{
    Breakdown, NodeCandidate, NodeFacts, NodeTerms, PodTerms, Points, ScoreSummary, Scoring, SettingError,
    TwinStatus, score_all,
};
use power_units::{Micros, Stamp, Watts};

roots! {
    fn class_read(pod: Option<&str>, node: &str, gpu: &str) -> (Classified, SchedulableClass, Option<GpuVendor>) {
        (WorkloadClass::read(pod), SchedulableClass::read(node), GpuVendor::read(gpu))
    }

    fn demand_sum(sum: &mut DemandSum, container: &Container, cpu: ResourceRequest, memory: ResourceRequest, class: WorkloadClass) -> PodDemand {
        sum.add(container);
        sum.pod_level(cpu, memory);
        sum.overhead(cpu.amount(), memory.amount());
        sum.total(class)
    }

    fn pod_terms(demand: &PodDemand, coefficients: &Coefficients) -> PodTerms {
        PodTerms::of(demand, coefficients)
    }

    fn node_terms(node: &NodeFacts<'_>, cluster: &ClusterAggregates, scoring: &Scoring) -> NodeTerms {
        NodeTerms::of(node, cluster, scoring)
    }

    fn cluster_sums(twins: &[(Freshness, &TwinStatus)]) -> ClusterAggregates {
        ClusterAggregates::of(twins.iter().copied())
    }

    fn hardware_terms(hardware: Option<&HardwareRecord>, coefficients: &Coefficients) -> HardwareTerms {
        HardwareTerms::of(hardware, coefficients)
    }

    fn estimate(hardware: &HardwareTerms, pod: &PodTerms) -> PodEstimate {
        pod.on(hardware)
    }

    fn score_request(scoring: &Scoring, class: WorkloadClass, candidates: &[NodeCandidate<'_>], out: &mut [Points]) -> ScoreSummary {
        score_all(scoring, class, candidates.iter().copied(), out)
    }

    fn score_explained(
        node: &NodeFacts<'_>,
        cluster: &ClusterAggregates,
        scoring: &Scoring,
        pod: &PodTerms,
        assumed: Watts,
    ) -> Breakdown {
        Breakdown::of(node, cluster, scoring, pod, assumed)
    }

    fn filter(node: &NodeFacts<'_>, eco: bool, class: WorkloadClass, added: Watts) -> Result<(), Rejection> {
        let terms = FilterTerms::of(node, eco);
        terms.admits(class)?;
        match terms.left(added, Some(added)) {
            Some(left) if left.watts < Watts::ZERO && left.by_limits => Err(Rejection::OverBudget { by: left.watts.abs() }),
            Some(left) if left.watts < Watts::ZERO => Err(Rejection::OverCap { by: left.watts.abs() }),
            Some(_) | None => Ok(()),
        }
    }

    fn settings(text: &str) -> Result<PowerFit, SettingError> {
        PowerFit::read(text)
    }

    fn freshness(rule: &FreshnessRule, evidence: Evidence, lease: &mut PlanLease, now: Now, at: Stamp) -> Freshness {
        lease.observe(now.wall, at);
        rule.judge(evidence, *lease, now)
    }

    fn assumed_seen(all: &mut AssumedWatts<&mut [AssumedSlot]>, seen: &Sighting, now: UnixTime, sampled: Option<UnixTime>) -> SightingOutcome {
        all.see(seen, now, sampled)
    }

    fn assumed_gone(all: &mut AssumedWatts<&mut [AssumedSlot]>, pod: PodUid, node: NodeKey, now: UnixTime) -> usize {
        all.gone(pod, now);
        all.unbound(pod, node);
        all.node_gone(node);
        all.len()
    }

    fn assumed_sums(all: &mut AssumedWatts<&mut [AssumedSlot]>, now: UnixTime, node: NodeKey, out: &mut [Watts]) -> (Swept, Watts) {
        let swept = all.sweep(now, |_| None);
        all.sum_into(out);
        (swept, all.of_node(node))
    }

    fn assumed_rule(settle: Micros, age_max: Micros) -> bool {
        AssumedRule::new(settle, age_max).is_ok()
    }
}
