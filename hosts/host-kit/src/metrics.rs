//! OpenMetrics with closed label sets.
//!
//! A label's values come from an enum made by [`closed_label!`](crate::closed_label) or from names that the cluster
//! bounds (a node). What must never be in a label: text of an error, of a request, of an object's annotation.

mod process;

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::path::Path;
use std::sync::Arc;

/// What every program says about itself.
#[derive(Clone, Debug)]
pub struct Build {
    /// The program: agent, operator, extender.
    pub component: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The commit, or "unknown".
    pub revision: &'static str,
}

/// The metrics of one program while they are being registered.
pub struct Metrics {
    registry: Registry,
}

/// The metrics of one program, to be rendered.
#[derive(Clone)]
pub struct Page(Arc<Registry>);

impl Metrics {
    /// Has `joulie_build_info` and the process's own figures already.
    pub fn of(build: &Build) -> Self {
        let mut registry = Registry::default();
        let info = Info::new(vec![
            ("component", build.component),
            ("version", build.version),
            ("revision", build.revision),
        ]);
        registry.register("joulie_build", "What runs here", info);
        registry.register_collector(Box::new(process::Process::at(Path::new("/proc"))));
        Self { registry }
    }

    /// Where the parts register theirs, with the full name of the metric.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Ends the registration.
    pub fn page(self) -> Page {
        Page(Arc::new(self.registry))
    }
}

impl Page {
    /// The text of `/metrics`.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0)?;
        Ok(text)
    }

    /// The answer of `/metrics`.
    pub fn answer(&self) -> Response<Full<Bytes>> {
        let Ok(text) = self.render() else {
            let mut failed = Response::new(Full::from("the metrics cannot be written\n"));
            *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return failed;
        };
        let mut response = Response::new(Full::from(text));
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
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
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value there is.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As the label shows it.
            $vis const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
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

/// What [`closed_label!`](crate::closed_label) needs where it is used.
pub mod encoding {
    pub use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::EncodeLabelSet;
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

    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Labels {
        verb: Verb,
    }

    #[test]
    fn the_page_has_the_build_the_process_and_what_was_registered() {
        let mut metrics = Metrics::of(&Build { component: "agent", version: "1.2.3", revision: "abc" });
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
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
