//! What trusted WorkloadProfiles say, by workload.

use crate::rows::WorkloadProfileSeen;
use host_kit::reflect::Rows;
use joulie_api::workload_profile::{CpuLevel, GpuLevel, TrustRule, TrustedProfile, TrustedProfiles};
use planner::classify::Intensity;
use planner::demand::Intensities;

/// Takes in changed profiles; returns whether any pod may count otherwise now. While the profiles are not known,
/// nothing is known of any workload.
pub(super) fn read(
    known: &mut TrustedProfiles,
    rows: Option<&mut Rows<WorkloadProfileSeen>>,
    rule: TrustRule,
) -> bool {
    let read = rows.and_then(|rows| {
        rows.news(|news| {
            TrustedProfiles::of(news.rows.iter().filter_map(|(key, held)| {
                let (kind, name) = held.row.workload.as_ref()?;
                Some(([key.namespace.as_str(), kind, name], rule.read(&held.row.status)))
            }))
        })
    });
    let Some(now) = read.filter(|now| now != known) else { return false };
    *known = now;
    true
}

/// How hard the workload works, in the planner's words.
pub(super) fn intensities(said: TrustedProfile) -> Intensities {
    let cpu = said.cpu_intensity.map(|level| match level {
        CpuLevel::High => Intensity::High,
        CpuLevel::Medium => Intensity::Medium,
        CpuLevel::Low => Intensity::Low,
    });
    let gpu = said.gpu_intensity.and_then(|level| match level {
        GpuLevel::High => Some(Intensity::High),
        GpuLevel::Medium => Some(Intensity::Medium),
        GpuLevel::Low => Some(Intensity::Low),
        // It may only be that nobody measures the GPUs.
        GpuLevel::None => None,
    });
    Intensities { cpu, gpu }
}
