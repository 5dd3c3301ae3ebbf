//! The simulator's metrics, with upstream's names where there are any (facts/simulator.md section 3.10).

use crate::control::{ControlAction, ControlEffect};
use crate::machine::{MachinePower, SimulatedMachine, TelemetryReading};
use crate::pods::Next;
use host_kit::metrics::MetricsRegistry;
use host_kit::{closed_label, label_set};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::atomic::AtomicU64;

type Real = Gauge<f64, AtomicU64>;

closed_label! {
    /// What happened to a pod.
    pub enum Step {
        /// Its containers started.
        Started = "started",
        /// Its containers ended with code 0.
        Succeeded = "succeeded",
        /// Its containers ended with another code.
        Failed = "failed",
        /// It was not admitted.
        Rejected = "rejected",
        /// Its object was deleted.
        Removed = "removed",
        /// Its progress was recorded.
        Noted = "noted",
    }
}

label_set! {
    struct ByAction {
        action: ControlAction,
        result: ControlEffect,
    }

    struct ByStep {
        step: Step,
    }

    struct ByNode {
        node: String,
    }
}

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct SimMetrics {
    controls: Family<ByAction, Counter>,
    pods: Family<ByStep, Counter>,
    write_failures: Counter,
    cap: Family<ByNode, Real>,
    throttle: Family<ByNode, Real>,
    power: Family<ByNode, Real>,
    busy: Family<ByNode, Real>,
    clock: Family<ByNode, Real>,
    running: Family<ByNode, Gauge>,
    on: Family<ByNode, Gauge>,
    lost: Family<ByNode, Gauge>,
}

impl SimMetrics {
    /// Registers them.
    pub fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self {
            controls: Family::default(),
            pods: Family::default(),
            write_failures: Counter::default(),
            cap: Family::default(),
            throttle: Family::default(),
            power: Family::default(),
            busy: Family::default(),
            clock: Family::default(),
            running: Family::default(),
            on: Family::default(),
            lost: Family::default(),
        };
        registry.register("joulie_sim_control_actions", "Controls that were asked for", all.controls.clone());
        registry.register("joulie_sim_pod_steps", "What became of pods", all.pods.clone());
        let failures = all.write_failures.clone();
        registry.register("joulie_sim_write_failures", "Writes about pods that failed", failures);
        registry.register("joulie_sim_node_cap_watts", "The limit on each package", all.cap.clone());
        registry.register(
            "joulie_sim_node_throttle_pct",
            "Taken off the highest clock",
            all.throttle.clone(),
        );
        registry.register("joulie_sim_node_power_watts", "Packages and GPUs together", all.power.clone());
        registry.register("joulie_sim_node_cpu_util", "How busy the processors are", all.busy.clone());
        registry.register("joulie_sim_node_freq_scale", "The clock of the processors", all.clock.clone());
        registry.register("joulie_sim_node_running_pods", "Pods that work", all.running.clone());
        registry.register(
            "joulie_sim_node_on",
            "1 while the machine is on, 0 while it is off or on its way there or back",
            all.on.clone(),
        );
        registry.register(
            "joulie_sim_node_lost_pods",
            "Pods that were on the machine when it went off, since the start",
            all.lost.clone(),
        );
        all
    }

    pub(crate) fn show_power(&self, node: &str, machine: &SimulatedMachine) {
        let node = ByNode { node: node.to_owned() };
        self.on.get_or_create(&node).set(i64::from(machine.power() == MachinePower::On));
        self.lost.get_or_create(&node).set(i64::try_from(machine.lost_pods()).unwrap_or(i64::MAX));
    }

    pub(crate) fn controlled(&self, action: ControlAction, result: ControlEffect) {
        self.controls.get_or_create(&ByAction { action, result }).inc();
    }

    pub(crate) fn wrote(&self, next: &Next) {
        let step = match next {
            Next::Wait => return,
            Next::Reject(..) => Step::Rejected,
            Next::Run => Step::Started,
            Next::Finish(0) => Step::Succeeded,
            Next::Finish(_) => Step::Failed,
            Next::Checkpoint(_) => Step::Noted,
            Next::Remove => Step::Removed,
        };
        self.pods.get_or_create(&ByStep { step }).inc();
    }

    pub(crate) fn write_failed(&self) {
        self.write_failures.inc();
    }

    pub(crate) fn show(&self, node: &str, cap: f64, throttle: u8, reading: &TelemetryReading) {
        let node = ByNode { node: node.to_owned() };
        self.cap.get_or_create(&node).set(cap);
        self.throttle.get_or_create(&node).set(f64::from(throttle));
        self.power.get_or_create(&node).set(reading.cpu_watts + reading.gpu_watts);
        self.busy.get_or_create(&node).set(reading.cpu_utilisation);
        self.clock.get_or_create(&node).set(reading.cpu_clock);
        self.running.get_or_create(&node).set(i64::try_from(reading.pods).unwrap_or(i64::MAX));
    }
}
