//! Registers metrics, and lists what was registered with name, kind, labels and help. The reference is made from the
//! list.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{self, Metric};
use std::fmt;

/// A word of a closed list, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelWord {
    /// As it is written.
    pub word: &'static str,
    /// Its meaning; empty if the word needs none.
    pub meaning: &'static str,
}

/// A label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricLabel {
    /// Its name.
    pub name: &'static str,
    /// The values that it can have; none if they are names of the cluster.
    pub values: &'static [LabelWord],
}

/// A type that can be the value of a label.
pub trait LabelValue {
    /// Its values, if they are a closed list.
    const VALUES: &'static [LabelWord] = &[];
}

impl LabelValue for String {}
impl LabelValue for &'static str {}
impl LabelValue for u16 {}

/// The labels that a metric has; made by [`label_set!`](crate::label_set).
pub trait LabelSet {
    /// All of them.
    const LABELS: &'static [MetricLabel];
}

/// A metric whose labels are known before it has any series.
pub trait DescribedMetric: Metric {
    /// Its labels.
    const LABELS: &'static [MetricLabel] = &[];
}

impl<N, A> DescribedMetric for Counter<N, A> where Self: Metric {}
impl<S, N, A> DescribedMetric for CounterWithExemplar<S, N, A> where Self: Metric {}
impl<N, A> DescribedMetric for Gauge<N, A> where Self: Metric {}
impl DescribedMetric for Histogram {}
impl<S: LabelSet, M, C> DescribedMetric for Family<S, M, C>
where
    Self: Metric,
{
    const LABELS: &'static [MetricLabel] = S::LABELS;
}

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, from the start of the program.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations in buckets.
    Histogram,
    /// It is 1, and its labels carry the information.
    Info,
}

/// A metric, as the reference lists it and as it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// The name as it is registered, without the suffix of its kind.
    pub name: &'static str,
    /// What kind it is.
    pub kind: MetricKind,
    /// Its labels.
    pub labels: &'static [MetricLabel],
    /// The description, for people.
    pub help: &'static str,
}

impl MetricDescription {
    /// A gauge whose value is computed when it is read.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, labels: &[], help }
    }

    /// A counter that is counted elsewhere.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricKind::Counter, ..Self::gauge(name, help) }
    }

    /// The same metric with labels.
    #[must_use]
    pub const fn with(self, labels: &'static [MetricLabel]) -> Self {
        Self { labels, ..self }
    }

    /// The name of its series.
    #[must_use]
    pub fn series(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        format!("{}{suffix}", self.name)
    }

    /// Begins to encode it.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn begin<'e>(
        &'e self,
        encoder: &'e mut DescriptorEncoder<'_>,
    ) -> Result<MetricEncoder<'e>, fmt::Error> {
        let kind = match self.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
            MetricKind::Info => MetricType::Info,
        };
        encoder.encode_descriptor(self.name, self.help, None, kind)
    }
}

/// The metrics of a program.
#[derive(Debug, Default)]
pub struct MetricsRegistry {
    inner: registry::Registry,
    descriptions: Vec<MetricDescription>,
}

impl MetricsRegistry {
    /// Registers a metric by its full name, without the suffix of its kind.
    pub fn register<M: DescribedMetric>(&mut self, name: &'static str, help: &'static str, metric: M) {
        let kind = match EncodeMetric::metric_type(&metric) {
            MetricType::Counter => MetricKind::Counter,
            MetricType::Histogram => MetricKind::Histogram,
            MetricType::Info => MetricKind::Info,
            MetricType::Gauge | MetricType::Unknown => MetricKind::Gauge,
        };
        self.descriptions.push(MetricDescription { name, kind, labels: M::LABELS, help });
        self.inner.register(name, help, metric);
    }

    /// Registers a collector, which computes its metrics when they are read, with a description of all of them.
    pub fn register_collector(&mut self, collector: Box<dyn Collector>, all: &[MetricDescription]) {
        self.describe(all);
        self.inner.register_collector(collector);
    }

    /// Describes the metrics of a collector that is not registered here.
    pub fn describe(&mut self, all: &[MetricDescription]) {
        self.descriptions.extend_from_slice(all);
    }

    /// The underlying registry of the library.
    pub(super) fn inner(&mut self) -> &mut registry::Registry {
        &mut self.inner
    }

    /// All that was registered, in the order of registration.
    #[must_use]
    pub fn descriptions(&self) -> &[MetricDescription] {
        &self.descriptions
    }

    /// The text of all series.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.inner)?;
        Ok(text)
    }
}
