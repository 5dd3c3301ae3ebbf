//! What a person can break at the page beside the controls that have a form of their own. Most of it has an alert that is made for it.

use std::fmt;

/// The machine whose controls break.
pub(crate) const MACHINE: &str = "sim-epyc-1";
/// The machine that answers too late. One with GPUs holds more than its least, so that it is told less where a limit is lowered.
pub(crate) const SLOW_MACHINE: &str = "sim-gpu-0";
/// The node that has no machine.
pub(crate) const GUEST: &str = "guest";
/// The node that was put to sleep.
pub(crate) const SLEEPER: &str = "sleeper";

/// Something that can be broken and mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DemoFault {
    /// The extender is killed.
    Extender,
    /// The machine says that it took a limit, and keeps the one before.
    Ignores,
    /// The machine says that it takes no limits.
    Refuses,
    /// The machine's controls answer with errors.
    Fails,
    /// The slow machine answers later than anybody waits.
    Slow,
    /// Another program sets the limits of the machine.
    Meddles,
    /// A node joins of which nobody knows what it draws.
    Guest,
    /// A node is to wake, and does not.
    Sleeper,
    /// Every query is answered with an error.
    Prometheus,
    /// The sensors of the building have no series any more.
    Sensors,
    /// The second meter of each node is none.
    Meters,
    /// Two rights are missing.
    Rights,
    /// The extender lacks a right from its start.
    Twins,
    /// The agents reach no API server.
    CutOff,
    /// The certificate of the extender was not renewed.
    Certificate,
    /// The operator's file of settings has a mistake.
    Settings,
    /// Pods keep nodes that are to become eco nodes.
    Stays,
    /// The operator is told to evict pods, and cannot.
    Evictions,
}

impl DemoFault {
    /// In the order in which they are offered.
    pub(crate) const ALL: [Self; 18] = [
        Self::Extender,
        Self::Ignores,
        Self::Refuses,
        Self::Fails,
        Self::Slow,
        Self::Meddles,
        Self::Guest,
        Self::Sleeper,
        Self::Prometheus,
        Self::Sensors,
        Self::Meters,
        Self::Rights,
        Self::Twins,
        Self::CutOff,
        Self::Certificate,
        Self::Settings,
        Self::Stays,
        Self::Evictions,
    ];

    /// The name in orders.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Extender => "extender",
            Self::Ignores => "limits-ignored",
            Self::Refuses => "limits-refused",
            Self::Fails => "limits-failing",
            Self::Slow => "slow-machine",
            Self::Meddles => "other-writer",
            Self::Guest => "unknown-node",
            Self::Sleeper => "sleeper",
            Self::Prometheus => "prometheus",
            Self::Sensors => "sensors",
            Self::Meters => "second-meter",
            Self::Rights => "rights",
            Self::Twins => "extender-rights",
            Self::CutOff => "agents-cut-off",
            Self::Certificate => "certificate",
            Self::Settings => "settings",
            Self::Stays => "pods-stay",
            Self::Evictions => "evictions",
        }
    }

    /// What is wrong then.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Extender => "the extender is killed",
            Self::Ignores => "sim-epyc-1 says that it took a limit, and keeps the one before",
            Self::Refuses => "sim-epyc-1 says that it takes no limits",
            Self::Fails => "the controls of sim-epyc-1 answer 500",
            Self::Slow => "sim-gpu-0 takes 20 seconds for each answer",
            Self::Meddles => "another program sets the limits of sim-epyc-1",
            Self::Guest => "a node joins that no agent reaches and whose hardware nobody knows",
            Self::Sleeper => "a node that was put to sleep does not wake",
            Self::Prometheus => "Prometheus answers 500",
            Self::Sensors => "the sensors of the building are silent",
            Self::Meters => {
                "the operator was started again with a second meter of each node, which is a thermometer"
            }
            Self::Rights => {
                "the operator may write no grants, and the extender may not watch WorkloadProfiles"
            }
            Self::Twins => "the extender was started again and may not read NodeTwins",
            Self::CutOff => "the agents do not reach the API server",
            Self::Certificate => "the certificate of the extender ends in three days",
            Self::Settings => "the operator's file of settings has a mistake",
            Self::Stays => "pods of a DaemonSet ask for performance, on every node",
            Self::Evictions => {
                "pods are to be evicted from hot nodes, and the operator finds no controller to tell"
            }
        }
    }
}

impl fmt::Display for DemoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.about())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_fault_has_a_name_of_its_own_and_names_the_machine_that_it_breaks() {
        let words: BTreeSet<&str> = DemoFault::ALL.into_iter().map(DemoFault::word).collect();
        assert_eq!(words.len(), DemoFault::ALL.len());
        for fault in [DemoFault::Ignores, DemoFault::Refuses, DemoFault::Fails, DemoFault::Meddles] {
            assert!(fault.to_string().contains(MACHINE), "{fault}");
        }
        assert!(DemoFault::Slow.to_string().contains(SLOW_MACHINE));
    }
}
