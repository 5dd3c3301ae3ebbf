//! What a node's headroom is taken from: a measurement against a cap, or a prediction.
//!
//! "If power measurement data is unavailable (no powerMeasurement in NodeTwin status), the extender falls back to the
//! twin-computed predictedPowerHeadroomScore": that is the headroom *before* the pod. Where there is a powerMeasurement,
//! but one that lost its measurement or its cap, the pod counts all the same, or a node that nobody sees would score the
//! same for every pod and collect them all:
//!
//! - with a cap, the node is taken to draw `cap · (1 − predictedPowerHeadroomScore / 100)`;
//! - without a cap, a pod is weighed against all that the hardware draws at most, its CPUs and its GPUs;
//! - with neither, or without a powerMeasurement, the prediction stands as it is.

use super::TwinStatus;
use crate::placement::estimate::HardwareRecord;
use power_units::{Percent, Role, Watts};

/// A measurement and its cap, which is above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) measured: Watts,
    pub(crate) capped: Watts,
}

/// What a pod's watts are compared with on a node that is not measured against a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The cap, which is known where the measurement is not.
    Cap(Watts),
    /// The most that the hardware draws, as far as its record says.
    Hardware(Watts),
    /// Nothing: neither is known, or the twin has no powerMeasurement at all.
    Nothing,
}

impl Against {
    /// Without a measurement.
    pub(crate) fn of(twin: &TwinStatus, hardware: Option<&HardwareRecord>) -> Self {
        if twin.power.is_none() {
            return Self::Nothing;
        }
        match (twin.cap(), hardware.and_then(HardwareRecord::most)) {
            (Some(capped), _) => Self::Cap(capped),
            (None, Some(most)) => Self::Hardware(most),
            (None, None) => Self::Nothing,
        }
    }
}

impl TwinStatus {
    /// The cap, if there is one.
    fn cap(&self) -> Option<Watts> {
        self.power?.capped.filter(|&capped| capped > Watts::ZERO)
    }

    /// The power drawn and the cap that it is to be compared with, if both are known.
    pub(crate) fn against_cap(&self) -> Option<Drawn> {
        let capped = self.cap()?;
        // Less than nothing would hide the watts of the pod.
        Some(Drawn { measured: self.power?.measured?.or_zero(), capped })
    }

    /// What is left under the cap before the pod: measured, else predicted; nothing where it cannot be told.
    pub(crate) fn room(&self) -> Option<Watts> {
        match self.against_cap() {
            Some(drawn) => Some(drawn.capped - drawn.measured),
            None => {
                let left = self.headroom?.min(Percent::HUNDRED).to_ratio(Role::Limit);
                Some(self.cap()?.scale(left, Role::Limit))
            }
        }
    }
}
