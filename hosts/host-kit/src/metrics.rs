//! Metrics with closed label sets.
//!
//! A label's values come from an enum made by [`closed_label!`](crate::closed_label), or from names whose number the
//! cluster bounds (nodes). A label must never contain text from an error, a request, or an object's annotation.

mod created;
mod exposition;
mod process;
mod registry;
mod scraped;

pub use registry::{
    DescribedMetric, LabelSet, LabelValue, LabelWord, MetricDescription, MetricKind, MetricLabel,
    MetricsRegistry,
};
pub use scraped::ScrapedSeries;

use created::Beginnings;
use exposition::TextFormat;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What every program reports about itself.
#[derive(Clone, Debug)]
pub struct BuildInfo {
    /// The program: agent, operator, extender.
    pub component: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The commit, or "unknown".
    pub revision: &'static str,
}

/// The commit that this is built from: that of the checkout (in a debug build with the suffix `-dev`, as the rest may
/// be newer), else the value of `JOULIE_REVISION` at compile time, else "unknown".
pub const REVISION: &str = match option_env!("HOST_KIT_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

impl BuildInfo {
    /// A program of this workspace, by its name and `env!("CARGO_PKG_VERSION")`.
    #[must_use]
    pub const fn of(component: &'static str, version: &'static str) -> Self {
        Self { component, version, revision: REVISION }
    }
}

const BUILD_LABELS: &[MetricLabel] = &[
    MetricLabel { name: "component", values: &[] },
    MetricLabel { name: "version", values: &[] },
    MetricLabel { name: "revision", values: &[] },
];
const BUILD_INFO: MetricDescription = MetricDescription {
    name: "joulie_build",
    kind: MetricKind::Info,
    labels: BUILD_LABELS,
    help: "What runs here; the revision is the commit",
};

/// The metrics of one program while they are being registered.
pub struct MetricsBuilder {
    registry: MetricsRegistry,
    ready: Gauge,
}

/// The metrics of one program, ready to be rendered.
#[derive(Clone)]
pub struct Page {
    registry: Arc<MetricsRegistry>,
    ready: Gauge,
    began: Arc<Mutex<Beginnings>>,
}

impl MetricsBuilder {
    /// Starts with `joulie_build_info`, `joulie_ready` and the metrics of the process.
    pub fn of(build: &BuildInfo) -> Self {
        let mut registry = MetricsRegistry::default();
        let values = [build.component, build.version, build.revision];
        let labels = BUILD_LABELS.iter().zip(values).map(|(label, value)| (label.name, value));
        let info = Info::new(labels.collect::<Vec<_>>());
        registry.describe(&[BUILD_INFO]);
        registry.inner().register(BUILD_INFO.name, BUILD_INFO.help, info);
        let ready = Gauge::default();
        registry.register("joulie_ready", "1 while /readyz answers with success", ready.clone());
        registry.register_collector(Box::new(process::Process::at(Path::new("/proc"))), &process::ALL);
        Self { registry, ready }
    }

    /// Where the parts register their metrics, by the full name.
    pub fn registry(&mut self) -> &mut MetricsRegistry {
        &mut self.registry
    }

    /// Describes all metrics of a program that registers its own in `register`, for the reference.
    pub fn descriptions(register: impl FnOnce(&mut MetricsRegistry)) -> Vec<MetricDescription> {
        let mut metrics = Self::of(&BuildInfo::of("", ""));
        register(metrics.registry());
        metrics.registry.descriptions().to_vec()
    }

    /// Ends the registration.
    pub fn page(self) -> Page {
        Page { registry: Arc::new(self.registry), ready: self.ready, began: Arc::default() }
    }
}

impl Page {
    /// The metrics as OpenMetrics.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        Ok(TextFormat::OpenMetrics.written(&self.registry.render()?))
    }

    /// Says whether the program is ready, for the next answer.
    pub fn shows_ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }

    /// The answer of `/metrics` to a request with these headers and this query; `now` is the time of day.
    pub fn answer(&self, headers: &HeaderMap, query: &str, now: Timestamp) -> Response<Full<Bytes>> {
        // Held while the page is made: an older page that came after a newer one would look as if counters had fallen.
        let mut beginnings =
            created::is_asked(query).then(|| self.began.lock().unwrap_or_else(PoisonError::into_inner));
        let Ok(text) = self.registry.render() else {
            let mut failed = Response::new(Full::from("the metrics cannot be written\n"));
            *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return failed;
        };
        let began = |page: String| match beginnings.as_mut() {
            Some(beginnings) => beginnings.shown(&page, now.as_duration().as_secs_f64()),
            None => page,
        };
        exposition::answer(headers, &text, began)
    }
}

/// Makes an enum whose variants are all the values a label can have.
///
/// ```
/// host_kit::closed_label! {
///     /// What became of a request.
///     pub enum Outcome {
///         /// It was answered.
///         Answered = "answered",
///         /// It was turned away.
///         Refused = "refused",
///     }
/// }
/// assert_eq!(Outcome::Refused.word(), "refused");
/// assert_eq!(Outcome::ALL.len(), 2);
/// ```
#[macro_export]
macro_rules! closed_label {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[doc = $meaning:literal])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[doc = $meaning])* $variant),+ }

        impl $name {
            /// All values.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value as the label shows it.
            $vis const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl $crate::metrics::LabelValue for $name {
            const VALUES: &'static [$crate::metrics::LabelWord] =
                &[$($crate::metrics::LabelWord { word: $word, meaning: concat!($($meaning),*) }),+];
        }

        impl $crate::metrics::encoding::EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut $crate::metrics::encoding::LabelValueEncoder<'_>,
            ) -> Result<(), std::fmt::Error> {
                $crate::metrics::encoding::EncodeLabelValue::encode(&self.word(), encoder)
            }
        }
    };
}

/// Makes structs of labels. A series has all labels of its struct.
///
/// ```
/// host_kit::label_set! {
///     /// A node.
///     pub struct ByNode {
///         node: String,
///     }
/// }
/// assert_eq!(<ByNode as host_kit::metrics::LabelSet>::LABELS[0].name, "node");
/// ```
#[macro_export]
macro_rules! label_set {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident { $($field_vis:vis $field:ident: $type:ty),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, $crate::metrics::encoding::EncodeLabelSet)]
        $vis struct $name { $($field_vis $field: $type),+ }

        impl $crate::metrics::LabelSet for $name {
            const LABELS: &'static [$crate::metrics::MetricLabel] = &[$($crate::metrics::MetricLabel {
                name: stringify!($field),
                values: <$type as $crate::metrics::LabelValue>::VALUES,
            }),+];
        }
    )+};
}

/// What the code generated by [`closed_label!`](crate::closed_label) and [`label_set!`](crate::label_set) needs.
pub mod encoding {
    pub use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;

    crate::closed_label! {
        /// For the test.
        enum Verb {
            /// One.
            Filter = "filter",
            /// Two.
            Bind = "bind",
        }
    }

    /// Whether the sources are a git checkout; those unpacked from an archive are not.
    fn is_checkout() -> bool {
        let mut git = std::process::Command::new("git");
        let asked =
            git.current_dir(env!("CARGO_MANIFEST_DIR")).args(["ls-files", "--error-unmatch", "build.rs"]);
        asked.output().is_ok_and(|answer| answer.status.success())
    }

    #[test]
    fn a_program_names_the_commit_that_it_is_built_from() {
        if !is_checkout() {
            return assert_eq!(REVISION, option_env!("JOULIE_REVISION").unwrap_or("unknown"));
        }
        let commit = REVISION.trim_end_matches("-dev");
        assert_eq!(commit.len(), 12, "{REVISION}");
        assert!(commit.bytes().all(|digit| digit.is_ascii_hexdigit()), "{REVISION}");
        assert_eq!(REVISION.ends_with("-dev"), cfg!(debug_assertions), "{REVISION}");
    }

    crate::label_set! {
        /// For the test.
        struct Labels {
            verb: Verb,
        }
    }

    #[test]
    fn the_page_has_the_build_the_process_and_what_was_registered() {
        let mut metrics =
            MetricsBuilder::of(&BuildInfo { component: "agent", version: "1.2.3", revision: "abc" });
        let requests = Family::<Labels, Counter>::default();
        metrics.registry().register("joulie_requests", "Requests", requests.clone());
        for verb in Verb::ALL {
            requests.get_or_create(&Labels { verb: *verb }).inc();
        }
        let text = metrics.page().render().unwrap();
        for line in [
            "joulie_build_info{component=\"agent\",version=\"1.2.3\",revision=\"abc\"} 1",
            "joulie_requests_total{verb=\"filter\"} 1",
            "joulie_requests_total{verb=\"bind\"} 1",
            "# TYPE process_resident_memory_bytes gauge",
            "# UNIT process_resident_memory_bytes bytes",
            "joulie_ready 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn what_is_registered_is_described_before_it_has_a_series() {
        let mut metrics = MetricsBuilder::of(&BuildInfo::of("test", "0"));
        let before = metrics.registry().descriptions().len();
        metrics.registry().register("joulie_requests", "Requests", Family::<Labels, Counter>::default());
        let [described] = metrics.registry().descriptions()[before..] else { panic!("one was registered") };
        assert_eq!(
            (described.series().as_str(), described.kind),
            ("joulie_requests_total", MetricKind::Counter)
        );
        assert_eq!((described.help, described.labels.len()), ("Requests", 1));
        let verbs: Vec<_> = described.labels[0].values.iter().map(|word| (word.word, word.meaning)).collect();
        assert_eq!((described.labels[0].name, verbs), ("verb", vec![("filter", " One."), ("bind", " Two.")]));
        // A collector has no descriptions of its own: all that it encodes must have been described.
        let text = metrics.registry().render().unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap();
            assert!(metrics.registry().descriptions().iter().any(|one| one.name == name), "{name}");
        }
    }
}
