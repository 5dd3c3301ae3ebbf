//! What a node's headroom is computed from: a measurement against a cap, or a prediction.
//!
//! "If power measurement data is unavailable (no powerMeasurement in NodeTwin status), the extender falls back to the
//! twin-computed predictedPowerHeadroomScore": that is the headroom *before* the pod. If there is a powerMeasurement,
//! but without the measured power or the cap, the pod counts all the same. Otherwise an unmeasured node would have
//! the same score for every pod and attract them all:
//!
//! - with a cap, the node is assumed to draw `cap · (1 − predictedPowerHeadroomScore / 100)`;
//! - without a cap, a pod is compared with the most that the hardware draws, its CPUs and its GPUs;
//! - with neither, or without a powerMeasurement, the prediction is used as it is.

use super::TwinStatus;
use crate::placement::estimate::HardwareRecord;
use power_units::{Percent, Role, Watts};

/// A measurement and its cap, which is above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) measured: Watts,
    pub(crate) capped: Watts,
}

/// The reference for a pod's watts on a node that is not measured against a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The cap, which is known where the measurement is not.
    Cap(Watts),
    /// The most that the hardware draws, according to its record.
    Hardware(Watts),
    /// Nothing: neither is known, or the twin has no powerMeasurement at all.
    Nothing,
}

impl Against {
    /// For a node without a measurement.
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
        // A negative measurement would hide the watts of the pod.
        Some(Drawn { measured: self.power?.measured?.or_zero(), capped })
    }

    /// What is left of the entitlement before the pod, where there is one.
    pub(crate) fn sure_room(&self) -> Option<Watts> {
        let drawn = self.cap()? - self.room()?;
        self.entitled.map(|entitled| entitled.or_zero() - drawn)
    }

    /// What is left under the cap before the pod: measured, else predicted; `None` where neither is known.
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
