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
    let gpu = said.gpu_intensity.map(|level| match level {
        GpuLevel::High => Intensity::High,
        GpuLevel::Medium => Intensity::Medium,
        GpuLevel::Low => Intensity::Low,
        GpuLevel::None => Intensity::None,
    });
    Intensities { cpu, gpu }
}
