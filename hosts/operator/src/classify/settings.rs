//! What the classifier can be told.

use super::round::Law;
use crate::settings as table;
use host_kit::clock::micros;
use host_kit::config::{Refusals, Values};
use planner::classify::Confidence;
use planner::classify::memory::{BAND, MemoryLaw};
use power_units::Ratio;
use std::time::Duration;

/// The settings of the classifier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassifySettings {
    /// How often it looks.
    pub(super) look: Duration,
    every: Duration,
    memory: MemoryLaw,
    /// The window of rates.
    pub(super) window: Duration,
    /// The confidence below which no reader uses a profile.
    pub(crate) least: Confidence,
    /// Whether Kepler is asked for.
    pub(super) kepler: bool,
    simulated: bool,
}

impl ClassifySettings {
    /// Reads the settings; `None` if there is no classifier. `asks` tells whether there is a Prometheus server.
    pub(crate) fn read(values: &Values, asks: bool) -> Result<Option<Self>, Refusals> {
        if !values.get(&table::ENABLE_CLASSIFIER)?.unwrap_or(asks) {
            return Ok(None);
        }
        let every = values.get(&table::RECLASSIFY_INTERVAL)?;
        let memory = MemoryLaw::new(micros(every), BAND)
            .map_err(|why| values.conflict(&[table::RECLASSIFY_INTERVAL.name()], &why.to_string()))?;
        Ok(Some(Self {
            look: values.get(&table::CLASSIFY_INTERVAL)?,
            every,
            memory,
            window: values.get(&table::CLASSIFY_METRICS_WINDOW)?,
            least: at_least(values.get(&table::CLASSIFY_MIN_CONFIDENCE)?),
            kepler: values.get(&table::KEPLER_AVAILABLE)?,
            simulated: values.get(&table::CLASSIFY_SIM_ANNOTATION_FALLBACK)?,
        }))
    }

    /// The law of its rounds.
    pub(super) fn law(&self, asks: bool) -> Law {
        Law {
            memory: self.memory,
            every: micros(self.every),
            look: micros(self.look),
            least: self.least,
            simulated: self.simulated,
            asks,
        }
    }
}

/// The least confidence that is not below a fraction: a confidence is in tenths.
fn at_least(fraction: Ratio) -> Confidence {
    let all = (0..=10).map(Confidence::tenths);
    all.into_iter().find(|one| one.to_ratio() >= fraction).unwrap_or(Confidence::tenths(10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::read;
    use power_units::Role;

    #[test]
    fn there_is_a_classifier_where_there_is_a_prometheus_unless_somebody_says_otherwise() {
        let on = |pairs: &[(&str, &str)]| read(pairs).unwrap().classify.is_some();
        let address = ("PROMETHEUS_ADDRESS", "http://prometheus:9090");
        assert!(on(&[address]) && !on(&[]));
        assert!(on(&[("ENABLE_CLASSIFIER", "true")]) && !on(&[address, ("ENABLE_CLASSIFIER", "false")]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, value) in [
            ("CLASSIFY_INTERVAL", "0"),
            ("RECLASSIFY_INTERVAL", "500ms"),
            ("RECLASSIFY_INTERVAL", "25h"),
            ("CLASSIFY_METRICS_WINDOW", "1s"),
            ("CLASSIFY_MIN_CONFIDENCE", "1.5"),
            ("CLASSIFY_MIN_CONFIDENCE", "NaN"),
            ("ENABLE_CLASSIFIER", "maybe"),
            ("CLASSIFY_INTERVALL", "30s"),
        ] {
            let refused = read(&[("PROMETHEUS_ADDRESS", "http://p:9090"), (name, value)]).unwrap_err();
            assert!(refused.contains(name), "{name}={value}: {refused}");
        }
    }

    #[test]
    fn a_least_confidence_between_two_tenths_is_the_higher_one() {
        let read = |text: &str| at_least(Ratio::parse(text, Role::Nearest).unwrap());
        for (text, tenths) in [("0", 0), ("0.5", 5), ("0.51", 6), ("0.7", 7), ("1", 10)] {
            assert_eq!(read(text), Confidence::tenths(tenths), "{text}");
        }
    }
}
