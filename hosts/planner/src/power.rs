//! The power of a node: which meter measured it, how old the value is, and what replaces it without a meter.
//!
//! Missing telemetry is never 0 W. The last good sample is *held* for a while. After that the power is *estimated*
//! from the workloads on the node or, without them, from the caps alone: then the node counts with all that its caps
//! allow. A node whose ratings are unknown has *unknown* power, and unknown is never the best value.
//!
//! The tiers are those of the scheduler page: "actual node power draw (from Kepler, utilization model, or static
//! estimate)". This module does not poll; the host passes one [`MeterResult`] for every attempt to read, failures
//! included.

pub mod estimate;
pub mod history;
mod trend;

use self::estimate::{Basis, DrawEstimate};
use power_units::{Micros, Stamp, Watts};

/// The source of a power measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PowerMeter {
    /// Kepler's energy counters, as a rate.
    Kepler,
    /// A query to Prometheus that yields watts.
    Prometheus,
    /// An HTTP endpoint of the node.
    Http,
    /// The node's own agent.
    Agent,
}

impl PowerMeter {
    /// The absence to report when this meter has no recent sample.
    #[must_use]
    pub const fn silent(self) -> NoMeasurement {
        match self {
            Self::Kepler => NoMeasurement::KeplerNoData,
            Self::Prometheus => NoMeasurement::PrometheusNoData,
            Self::Http => NoMeasurement::HttpError,
            Self::Agent => NoMeasurement::AgentNoData,
        }
    }
}

/// Why there is no measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoMeasurement {
    /// No meter is configured (`static`).
    NotConfigured,
    /// HTTP is configured without an endpoint.
    HttpNoEndpoint,
    /// The endpoint failed, or its answer contained no power.
    HttpError,
    /// Prometheus failed, or its answer contained no positive number.
    PrometheusNoData,
    /// Kepler has no energy for this node.
    KeplerNoData,
    /// The agent has not reported.
    AgentNoData,
}

impl NoMeasurement {
    /// Whether a meter is configured that says nothing.
    #[must_use]
    pub const fn is_silence(self) -> bool {
        match self {
            Self::NotConfigured => false,
            Self::HttpNoEndpoint
            | Self::HttpError
            | Self::PrometheusNoData
            | Self::KeplerNoData
            | Self::AgentNoData => true,
        }
    }
}

/// `status.powerMeasurement.source`: a closed set of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MeasurementSource {
    /// A meter.
    Meter(PowerMeter),
    /// The utilisation model.
    Utilization,
    /// The estimate from the caps alone.
    Static,
    /// A meter is configured but gives no value.
    Failing(NoMeasurement),
}

impl MeasurementSource {
    /// The text in the twin's status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Meter(PowerMeter::Kepler) => "kepler",
            Self::Meter(PowerMeter::Prometheus) => "prometheus",
            Self::Meter(PowerMeter::Http) => "http",
            Self::Meter(PowerMeter::Agent) => "agent",
            Self::Utilization => "utilization",
            Self::Static | Self::Failing(NoMeasurement::NotConfigured) => "static",
            Self::Failing(NoMeasurement::HttpNoEndpoint) => "http-no-endpoint",
            Self::Failing(NoMeasurement::HttpError) => "http-error",
            Self::Failing(NoMeasurement::PrometheusNoData) => "prometheus-no-data",
            Self::Failing(NoMeasurement::KeplerNoData) => "kepler-no-data",
            Self::Failing(NoMeasurement::AgentNoData) => "agent-no-data",
        }
    }
}

/// One good measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerSample {
    meter: PowerMeter,
    watts: Watts,
    at: Stamp,
    lag: Micros,
}

impl PowerSample {
    /// A measurement, if it is possible: no node draws negative power, Prometheus answers 0 for a query without matching
    /// data, and Kepler's counters stand still where it has stopped to measure.
    ///
    /// # Errors
    /// The absence that the number means.
    pub fn new(meter: PowerMeter, watts: Watts, at: Stamp) -> Result<Self, NoMeasurement> {
        let possible = match meter {
            PowerMeter::Prometheus | PowerMeter::Kepler => watts > Watts::ZERO,
            PowerMeter::Http | PowerMeter::Agent => watts >= Watts::ZERO,
        };
        if possible { Ok(Self { meter, watts, at, lag: Micros::ZERO }) } else { Err(meter.silent()) }
    }

    /// The same, where what it says was so long ago at the most when it was heard.
    #[must_use]
    pub const fn late_by(self, lag: Micros) -> Self {
        Self { lag, ..self }
    }

    /// The power.
    #[must_use]
    pub const fn watts(self) -> Watts {
        self.watts
    }
}

/// The outcome of one attempt to read a node's power.
pub type MeterResult = Result<PowerSample, NoMeasurement>;

/// The present meter reading of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReading {
    /// A sample from the latest attempt.
    Measured {
        /// The meter.
        meter: PowerMeter,
        /// The power.
        watts: Watts,
        /// Its age.
        age: Micros,
    },
    /// The latest attempt failed; this is the last good sample, not yet too old.
    Held {
        /// The meter.
        meter: PowerMeter,
        /// The power.
        watts: Watts,
        /// Its age.
        age: Micros,
        /// Why reading fails now.
        failing: NoMeasurement,
    },
    /// There is no recent sample.
    Absent(NoMeasurement),
}

impl NodeReading {
    /// The power that the planner uses: the measurement, else the estimate, else unknown.
    #[must_use]
    pub fn or_estimate(self, estimate: Option<DrawEstimate>) -> NodeDraw {
        match (self, estimate) {
            (Self::Measured { meter, watts, age }, _) => NodeDraw::Measured { meter, watts, age },
            (Self::Held { meter, watts, age, failing }, _) => NodeDraw::Held { meter, watts, age, failing },
            (Self::Absent(failing), Some(DrawEstimate { basis, watts })) => {
                NodeDraw::Estimated { basis, watts, failing }
            }
            (Self::Absent(failing), None) => NodeDraw::Unknown { failing },
        }
    }
}

/// A node's power, as in its twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeDraw {
    /// Measured at the latest attempt.
    Measured {
        /// The meter.
        meter: PowerMeter,
        /// The power.
        watts: Watts,
        /// Its age.
        age: Micros,
    },
    /// Measured a while ago; attempts since have failed.
    Held {
        /// The meter.
        meter: PowerMeter,
        /// The power.
        watts: Watts,
        /// Its age.
        age: Micros,
        /// Why reading fails now.
        failing: NoMeasurement,
    },
    /// Estimated.
    Estimated {
        /// Its basis.
        basis: Basis,
        /// The power.
        watts: Watts,
        /// Why there is no measurement.
        failing: NoMeasurement,
    },
    /// Neither measured nor estimated.
    Unknown {
        /// Why there is no measurement.
        failing: NoMeasurement,
    },
}

impl NodeDraw {
    /// The power, if known.
    #[must_use]
    pub const fn watts(self) -> Option<Watts> {
        match self {
            Self::Measured { watts, .. } | Self::Held { watts, .. } | Self::Estimated { watts, .. } => {
                Some(watts)
            }
            Self::Unknown { .. } => None,
        }
    }

    /// The age of the measurement, if there is one.
    #[must_use]
    pub const fn age(self) -> Option<Micros> {
        match self {
            Self::Measured { age, .. } | Self::Held { age, .. } => Some(age),
            Self::Estimated { .. } | Self::Unknown { .. } => None,
        }
    }

    /// The source in the twin's status. A configured meter that fails is named as such even when an estimate replaces
    /// it, so that an alert on the text still matches; [`NodeDraw::basis`] names the estimate.
    #[must_use]
    pub const fn source(self) -> MeasurementSource {
        match self {
            Self::Measured { meter, .. } | Self::Held { meter, .. } => MeasurementSource::Meter(meter),
            Self::Estimated { basis, failing: NoMeasurement::NotConfigured, .. } => match basis {
                Basis::Utilization => MeasurementSource::Utilization,
                Basis::Static => MeasurementSource::Static,
            },
            Self::Unknown { failing: NoMeasurement::NotConfigured } => MeasurementSource::Static,
            Self::Estimated { failing, .. } | Self::Unknown { failing } => {
                MeasurementSource::Failing(failing)
            }
        }
    }

    /// The basis of an estimate.
    #[must_use]
    pub const fn basis(self) -> Option<Basis> {
        match self {
            Self::Estimated { basis, .. } => Some(basis),
            Self::Measured { .. } | Self::Held { .. } | Self::Unknown { .. } => None,
        }
    }

    /// How far a decision may rely on it; `None` when the power is unknown.
    #[must_use]
    pub const fn grounds(self) -> Option<Grounds> {
        match self {
            Self::Measured { .. } | Self::Held { .. } => Some(Grounds::Measured),
            Self::Estimated { basis: Basis::Utilization, .. } => Some(Grounds::Modelled),
            Self::Estimated { basis: Basis::Static, .. } => Some(Grounds::WorstCase),
            Self::Unknown { .. } => None,
        }
    }
}

/// How far a decision may rely on a number. A worst case is good for keeping work away from a node, but no reason to
/// move work off it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grounds {
    /// A meter measured it.
    Measured,
    /// A model computed it from what is running.
    Modelled,
    /// It is the highest possible value.
    WorstCase,
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Stamp = Stamp::new(Micros::new(7));

    #[test]
    fn every_source_has_the_text_of_the_contract() {
        let meters = [PowerMeter::Kepler, PowerMeter::Prometheus, PowerMeter::Http, PowerMeter::Agent];
        let absences = [
            NoMeasurement::NotConfigured,
            NoMeasurement::HttpNoEndpoint,
            NoMeasurement::HttpError,
            NoMeasurement::PrometheusNoData,
            NoMeasurement::KeplerNoData,
            NoMeasurement::AgentNoData,
        ];
        let texts: Vec<_> = meters
            .map(MeasurementSource::Meter)
            .into_iter()
            .chain([MeasurementSource::Utilization, MeasurementSource::Static])
            .chain(absences.map(MeasurementSource::Failing))
            .map(MeasurementSource::as_str)
            .collect();
        let expected = [
            "kepler",
            "prometheus",
            "http",
            "agent",
            "utilization",
            "static",
            "static",
            "http-no-endpoint",
            "http-error",
            "prometheus-no-data",
            "kepler-no-data",
            "agent-no-data",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_number_that_no_node_can_draw_is_no_sample() {
        // Fix list operator B7, B26: table 10.3 gives "prometheus-no-data" for an answer of 0.
        for meter in [PowerMeter::Kepler, PowerMeter::Prometheus, PowerMeter::Http, PowerMeter::Agent] {
            for watts in [Watts::MIN, Watts::from_int(-1), Watts::from_bits(-1)] {
                assert_eq!(PowerSample::new(meter, watts, AT), Err(meter.silent()));
            }
        }
        assert_eq!(
            PowerSample::new(PowerMeter::Prometheus, Watts::ZERO, AT),
            Err(NoMeasurement::PrometheusNoData)
        );
        assert_eq!(PowerSample::new(PowerMeter::Kepler, Watts::ZERO, AT), Err(NoMeasurement::KeplerNoData));
        assert!(PowerSample::new(PowerMeter::Http, Watts::ZERO, AT).is_ok());
        assert!(PowerSample::new(PowerMeter::Agent, Watts::MAX, AT).is_ok());
    }

    #[test]
    fn without_a_measurement_the_estimate_stands_in_and_says_so() {
        let of_caps = DrawEstimate { basis: Basis::Static, watts: Watts::from_int(432) };
        let of_load = DrawEstimate { basis: Basis::Utilization, watts: Watts::from_int(200) };
        let source = |reading: NodeReading, estimate| {
            let draw = reading.or_estimate(estimate);
            (draw.source().as_str(), draw.watts(), draw.grounds())
        };
        let none = NodeReading::Absent(NoMeasurement::NotConfigured);
        let failed = NodeReading::Absent(NoMeasurement::HttpError);
        let (w432, w200) = (Some(Watts::from_int(432)), Some(Watts::from_int(200)));
        assert_eq!(source(none, Some(of_caps)), ("static", w432, Some(Grounds::WorstCase)));
        assert_eq!(source(none, Some(of_load)), ("utilization", w200, Some(Grounds::Modelled)));
        assert_eq!(source(none, None), ("static", None, None));
        assert_eq!(source(failed, Some(of_load)), ("http-error", w200, Some(Grounds::Modelled)));
        assert_eq!(source(failed, None), ("http-error", None, None));
        assert_eq!(failed.or_estimate(Some(of_load)).basis(), Some(Basis::Utilization));
        let measured =
            NodeReading::Measured { meter: PowerMeter::Agent, watts: Watts::ZERO, age: Micros::new(5) };
        assert_eq!(source(measured, Some(of_caps)), ("agent", Some(Watts::ZERO), Some(Grounds::Measured)));
        assert_eq!(measured.or_estimate(None).age(), Some(Micros::new(5)));
    }
}
