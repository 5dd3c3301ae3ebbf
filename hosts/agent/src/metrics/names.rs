//! The names of the agent's metrics, with a description of each.

use super::Metrics;
use host_kit::metrics::MetricsRegistry;

impl Metrics {
    /// Registers the metrics of the first implementation.
    pub(super) fn register_kept(&self, r: &mut MetricsRegistry) {
        r.register("joulie_backend_mode", "What holds the CPU cap: one mode is 1", self.mode.clone());
        r.register("joulie_policy_cap_watts", "The cap that is asked of each package", self.cap.clone());
        r.register("joulie_rapl_energy_uj", "The energy counter of a package", self.energy.clone());
        r.register("joulie_rapl_estimated_power_watts", "What a package draws", self.zone_power.clone());
        r.register(
            "joulie_rapl_package_total_power_watts",
            "What all packages draw; absent where that is not known",
            self.total_power.clone(),
        );
        r.register("joulie_dvfs_observed_power_watts", "What the closed loop sees", self.observed.clone());
        r.register("joulie_dvfs_ema_power_watts", "What it compares with the cap", self.ema.clone());
        r.register("joulie_dvfs_throttle_pct", "How much is throttled", self.throttle.clone());
        r.register("joulie_dvfs_above_trip_count", "Steps in a row above the band", self.above.clone());
        r.register("joulie_dvfs_below_trip_count", "Steps in a row below the band", self.below.clone());
        r.register("joulie_dvfs_cpu_cur_freq_khz", "At what a policy runs", self.cur_freq.clone());
        r.register("joulie_dvfs_cpu_max_freq_khz", "The limit of a policy", self.max_freq.clone());
        r.register("joulie_dvfs_actions", "Steps of the closed loop that moved", self.actions.clone());
        r.register("joulie_reconcile_errors", "Failures of backends and endpoints", self.errors.clone());
    }

    pub(super) fn register_own(&self, r: &mut MetricsRegistry) {
        r.register("joulie_gpu_total_power_watts", "What all GPUs draw", self.gpu_power.clone());
        r.register(
            "joulie_cap_enforced",
            "The condition CapEnforced: 1 true, 0 false, -1 unknown",
            self.enforced.clone(),
        );
        r.register(
            "joulie_desired_state_unconfirmed",
            "1 where nobody confirms the desired state any more; LEASE_EXPIRY says what follows",
            self.unconfirmed.clone(),
        );
        r.register(
            "joulie_malformed_desired_state",
            "Desired states that cannot be read",
            self.malformed.clone(),
        );
        r.register("joulie_journal_originals", "Limits that are ours", self.originals.clone());
        r.register("joulie_limits_moved", "Times that somebody else moved a limit", self.moved.clone());
        r.register("joulie_blind_periods", "Periods without a known CPU power", self.blind.clone());
        r.register("joulie_late_periods", "Periods in which a backend was late", self.late.clone());
        r.register(
            "joulie_counts_refused",
            "Counts of sockets, GPUs or processors from outside that cannot be, and count as unknown",
            self.refused.clone(),
        );
        r.register("joulie_backend_ready", "Whether a backend answers", self.backend_ready.clone());
        r.register("joulie_backend_troubles", "How often a backend failed", self.troubles.clone());
        r.register("joulie_agent_writes", "Writes to the API", self.writes.clone());
        r.register(
            "joulie_statuses_put_back",
            "Statuses of ours that somebody else had overwritten, put back",
            self.put_back.clone(),
        );
        r.register(
            "joulie_route_refused",
            "1 where a TelemetryProfile is refused, so that the node is reached as before",
            self.route_refused.clone(),
        );
        r.register(
            "joulie_route_changes",
            "Times that a TelemetryProfile changed how a node is reached",
            self.route_changes.clone(),
        );
    }
}
