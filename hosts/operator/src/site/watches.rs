//! The watches, and whether their content is current enough for planning.

use crate::gpu_repair::GpuSeen;
use crate::rows::{
    BudgetSeen, EventSeen, GrantSeen, HardwareSeen, NodeSeen, PlanLeaseSeen, PodSeen, ProfileSeen, TwinSeen,
    WorkloadProfileSeen,
};
use host_kit::clock::Mono;
use host_kit::reflect::{Row, Rows};
use std::collections::BTreeMap;
use std::time::Duration;

/// The watches.
#[derive(Clone)]
pub(crate) struct Watches {
    /// Nodes.
    pub(crate) nodes: Rows<NodeSeen>,
    /// Pods.
    pub(crate) pods: Rows<PodSeen>,
    /// NodeHardwares.
    pub(crate) hardware: Rows<HardwareSeen>,
    /// NodePowerProfiles.
    pub(crate) profiles: Rows<ProfileSeen>,
    /// NodeTwins.
    pub(crate) twins: Rows<TwinSeen>,
    /// NodePowerGrants.
    pub(crate) grants: Rows<GrantSeen>,
    /// PowerBudgets.
    pub(crate) budgets: Rows<BudgetSeen>,
    /// PowerEvents. No pass waits for them: the agents obey them by themselves.
    pub(crate) events: Rows<EventSeen>,
    /// The plan's Lease. No pass waits for it.
    pub(crate) plan: Rows<PlanLeaseSeen>,
    /// WorkloadProfiles, where there is a classifier. No pass waits for them: without them nothing is known of any
    /// workload.
    pub(crate) workloads: Option<Rows<WorkloadProfileSeen>>,
    /// GPU objects, where they are repaired. No pass waits for them: without them a pod with GPUs is estimated.
    pub(crate) gpus: Option<Rows<GpuSeen>>,
}

/// How long a watch may be silent before its content is not used for planning. The server gives a sign of life each
/// minute, and a pass with old content would be worse than none.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(150);

impl Watches {
    /// Waits until any row has changed; returns false when a watch has ended.
    pub(crate) async fn changed(&mut self) -> bool {
        // The order does not matter: the caller then reads all of them.
        tokio::select! {
            biased;
            alive = self.nodes.changed() => alive,
            alive = self.pods.changed() => alive,
            alive = self.hardware.changed() => alive,
            alive = self.profiles.changed() => alive,
            alive = self.twins.changed() => alive,
            alive = self.grants.changed() => alive,
            alive = self.budgets.changed() => alive,
            alive = self.events.changed() => alive,
            alive = self.plan.changed() => alive,
            alive = changed(&mut self.workloads) => alive,
        }
    }

    /// Why no pass can be made with what is known at `now`; `None` if one can. Under a budget the grants must be known;
    /// `has_budget` says that the settings have one.
    pub(crate) fn blind(&self, now: Mono, has_budget: bool) -> Option<String> {
        let has_budget = has_budget || !self.budgets.with(BTreeMap::is_empty);
        let grants = (GRANTS, self.grants.is_synced(), self.grants.silence(now));
        let silence = [
            (NODES, self.nodes.is_synced(), self.nodes.silence(now)),
            (PROFILES, self.profiles.is_synced(), self.profiles.silence(now)),
            (TWINS, self.twins.is_synced(), self.twins.silence(now)),
            (BUDGETS, self.budgets.is_synced(), self.budgets.silence(now)),
        ];
        let silence = silence.into_iter().chain(has_budget.then_some(grants));
        let silent = |kind: &str, silence: Option<Duration>| match silence {
            Some(silence) if silence > SILENCE_MAX => {
                Some(format!("the API server has said nothing of {kind} for {}s", silence.as_secs()))
            }
            Some(_) | None => None,
        };
        let mut silence = silence;
        let needed = silence.find_map(|(kind, synced, silence)| match synced {
            true => silent(kind, silence),
            false => Some(format!("{kind} are not known yet")),
        });
        // Until pods have been listed, the planner knows that they are unknown; but an old list would look like a new
        // one.
        needed.or_else(|| silent(PODS, self.pods.silence(now).filter(|_| self.pods.is_synced())))
    }
}

/// Waits until a row has changed; forever where there are none.
async fn changed<R: Row>(rows: &mut Option<Rows<R>>) -> bool {
    match rows {
        Some(rows) => rows.changed().await,
        None => std::future::pending().await,
    }
}

const NODES: &str = "Nodes";
const PODS: &str = "Pods";
const PROFILES: &str = "NodePowerProfiles";
const TWINS: &str = "NodeTwins";
const GRANTS: &str = "NodePowerGrants";
const BUDGETS: &str = "PowerBudgets";
