//! The answer to preempt: the candidates that remain, with the victims that kube-scheduler chose.
//!
//! kube-scheduler knows how many GPUs a node has, and not which. So it may evict a pod whose card is none that the
//! preemptor can use. Then other pods of the node are named ([`Evictables`](crate::evictable::Evictables)), and where these would
//! not help either the node is left out. Victims that help are not changed.

use super::{Asked, GpuNeeds, judge};
use crate::evictable::Preemptor;
use crate::scan::Malformed;
use crate::settings::PlacementSettings;
use crate::snapshot::Snapshot;
use joulie_api::extender::preempt::{PreemptArgs, Victims, write_preempt};
use joulie_api::extender::{Keys, pod};
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::gpu::{PhysicalGpu, fits};

pub(super) fn answer(
    snapshot: &Snapshot,
    placement: &PlacementSettings,
    body: &[u8],
) -> Result<Vec<u8>, Malformed> {
    let mut args = PreemptArgs::parse(body).map_err(|bad| Malformed::of(&bad))?;
    let (_, asked) = super::asked_by(snapshot, args.pod, placement)?;
    let preemptor = Preemptor::read(args.pod);
    args.nodes.retain_mut(|victims| helps(snapshot, &asked, preemptor, victims));
    let mut out = Vec::new();
    write_preempt(Keys::Capital, &args.nodes, &mut out);
    Ok(out)
}

/// Whether the pod may run on the node once the victims have left, which may be changed for that.
fn helps(snapshot: &Snapshot, asked: &Asked, preemptor: Preemptor, victims: &mut Victims<'_>) -> bool {
    let number = snapshot.fleet.index.find(victims.node.as_str().as_bytes());
    // The node's class does not depend on its pods, and a pod that has to wait evicts nobody.
    let needs = GpuNeeds { deferral: asked.deferral, ..GpuNeeds::default() };
    if judge(snapshot, (asked.class, needs), number, None, || None).rejection().is_some() {
        return false;
    }
    let gone: Vec<PodUid> = victims.uids.iter().map(|uid| pod::uid(uid.as_str())).collect();
    let instances = snapshot.fleet.gpus.instances();
    if asked.instances.is_some_and(|ask| instances.rejects(&ask, number, &gone).is_some()) {
        return false;
    }
    match asked.gpus {
        None => true,
        Some(Err(_)) => false,
        Some(Ok(request)) => {
            let held = snapshot.fleet.gpus.held(number);
            let left: Vec<PhysicalGpu> = held.iter().map(|held| held.without(&gone)).collect();
            fits(request, &left).is_ok() || snapshot.evictables.replace(victims, held, request, preemptor)
        }
    }
}
