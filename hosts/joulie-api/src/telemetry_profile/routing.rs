//! Interprets a TelemetryProfile: its target, the sources of readings, and how devices are controlled.
//!
//! What the profile leaves out is left to the agent's own configuration; incomplete settings are an error.

use super::{
    ControlType, CpuMode, GpuMode, ProfileTarget, SourceType, TargetScope, TelemetryProfileSpec,
    TelemetrySource,
};
use crate::caps::node_name;
use crate::field::FieldError;
use crate::number::Whole;
use crate::word::{Vocabulary, Word};

/// A profile that was interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryRouting {
    /// Its target.
    pub audience: Audience,
    /// Where the readings of the processors come from.
    pub cpu_source: Option<Readings>,
    /// Where the readings of the GPUs come from.
    pub gpu_source: Option<Readings>,
    /// Where temperatures come from.
    pub thermal_source: Option<Readings>,
    /// Where readings of the node's surroundings come from.
    pub context_source: Option<Readings>,
    /// How the processors are controlled.
    pub cpu_control: Option<ControlRoute<CpuMode>>,
    /// How the GPUs are controlled.
    pub gpu_control: Option<ControlRoute<GpuMode>>,
}

/// The target of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// One node.
    Node(String),
    /// Every node that has no profile of its own.
    Cluster,
}

/// Where readings come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readings {
    /// Nowhere.
    None,
    /// The node's own hardware.
    Host,
    /// An HTTP endpoint.
    Http(HttpEndpoint),
    /// A Prometheus server.
    Prometheus {
        /// The server.
        server: HttpEndpoint,
        /// The query; `{node}` stands for the name of the node.
        query: String,
    },
}

/// How a device is controlled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRoute<Mode> {
    /// It is not controlled.
    None,
    /// By the node's own hardware.
    Host,
    /// By an HTTP endpoint.
    Http {
        /// The endpoint.
        endpoint: HttpEndpoint,
        /// The mode that is sent to it, if the profile sets one.
        mode: Option<Mode>,
    },
}

/// An HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpEndpoint {
    /// Its URL; `{node}` stands for the name of the node.
    pub url: String,
    /// How long an answer may take, if the profile sets it.
    pub timeout_seconds: Option<u16>,
}

impl TryFrom<&TelemetryProfileSpec> for TelemetryRouting {
    type Error = FieldError;

    fn try_from(spec: &TelemetryProfileSpec) -> Result<Self, FieldError> {
        let sources = spec.sources.clone().unwrap_or_default();
        let controls = spec.controls.clone().unwrap_or_default();
        let cpu = controls.cpu.unwrap_or_default();
        let cpu_http = cpu.http.unwrap_or_default();
        let gpu = controls.gpu.unwrap_or_default();
        let gpu_http = gpu.http.unwrap_or_default();
        Ok(Self {
            audience: audience(&spec.target)?,
            cpu_source: readings("spec.sources.cpu", sources.cpu.as_ref())?,
            gpu_source: readings("spec.sources.gpu", sources.gpu.as_ref())?,
            thermal_source: readings("spec.sources.thermal", sources.thermal.as_ref())?,
            context_source: readings("spec.sources.context", sources.context.as_ref())?,
            cpu_control: control(
                "spec.controls.cpu",
                cpu.type_.as_ref(),
                (cpu_http.endpoint, cpu_http.timeout_seconds, cpu_http.mode),
            )?,
            gpu_control: control(
                "spec.controls.gpu",
                gpu.type_.as_ref(),
                (gpu_http.endpoint, gpu_http.timeout_seconds, gpu_http.mode),
            )?,
        })
    }
}

fn audience(target: &ProfileTarget) -> Result<Audience, FieldError> {
    Ok(match target.scope.expect("spec.target.scope")? {
        TargetScope::Cluster => Audience::Cluster,
        TargetScope::Node => {
            let name = target.node_name.as_deref().unwrap_or_default();
            Audience::Node(node_name("spec.target.nodeName", name)?)
        }
    })
}

fn readings(field: &str, source: Option<&TelemetrySource>) -> Result<Option<Readings>, FieldError> {
    let Some((source, word)) = source.and_then(|source| source.type_.as_ref().map(|word| (source, word)))
    else {
        return Ok(None);
    };
    Ok(Some(match word.expect(&format!("{field}.type"))? {
        SourceType::None => Readings::None,
        SourceType::Host => Readings::Host,
        SourceType::Http => {
            let http = source.http.clone().unwrap_or_default();
            Readings::Http(endpoint(&format!("{field}.http"), http.endpoint, http.timeout_seconds)?)
        }
        SourceType::Prometheus => {
            let prometheus = source.prometheus.clone().unwrap_or_default();
            let field = format!("{field}.prometheus");
            Readings::Prometheus {
                server: endpoint(&field, prometheus.endpoint, prometheus.timeout_seconds)?,
                query: said(&format!("{field}.query"), prometheus.query, "a query")?,
            }
        }
    }))
}

type Http<Mode> = (Option<String>, Option<Whole>, Option<Word<Mode>>);

fn control<Mode: Vocabulary>(
    field: &str,
    word: Option<&Word<ControlType>>,
    (url, timeout, mode): Http<Mode>,
) -> Result<Option<ControlRoute<Mode>>, FieldError> {
    let Some(word) = word else { return Ok(None) };
    Ok(Some(match word.expect(&format!("{field}.type"))? {
        ControlType::None => ControlRoute::None,
        ControlType::Host => ControlRoute::Host,
        ControlType::Http => ControlRoute::Http {
            endpoint: endpoint(&format!("{field}.http"), url, timeout)?,
            mode: mode.map(|mode| mode.expect(&format!("{field}.http.mode"))).transpose()?,
        },
    }))
}

fn endpoint(field: &str, url: Option<String>, timeout: Option<Whole>) -> Result<HttpEndpoint, FieldError> {
    let timeout_seconds = match timeout {
        None => None,
        Some(seconds) => {
            let fits = u16::try_from(seconds.get()).ok().filter(|seconds| (1..=300).contains(seconds));
            let found = Some(seconds.get().to_string());
            let error = || FieldError::new(&format!("{field}.timeoutSeconds"), found, "1 to 300 seconds");
            Some(fits.ok_or_else(error)?)
        }
    };
    Ok(HttpEndpoint { url: said(&format!("{field}.endpoint"), url, "a URL")?, timeout_seconds })
}

fn said(field: &str, text: Option<String>, expected: &str) -> Result<String, FieldError> {
    text.filter(|text| !text.trim().is_empty()).ok_or_else(|| FieldError::missing(field, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn routing(spec: Value) -> Result<TelemetryRouting, String> {
        let spec: TelemetryProfileSpec = serde_json::from_value(spec).unwrap();
        TelemetryRouting::try_from(&spec).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_profile_is_understood() {
        // Agent table, rows 6 and 10.
        let endpoint =
            |timeout_seconds| HttpEndpoint { url: "http://sim/{node}".to_owned(), timeout_seconds };
        let read = routing(json!({
            "target": {"scope": "node", "nodeName": "a"},
            "sources": {
                "cpu": {"type": "http", "http": {"endpoint": "http://sim/{node}", "timeoutSeconds": 5}},
                "gpu": {"type": "none"}, "thermal": {"type": "host"},
                "context": {"type": "prometheus", "prometheus": {"endpoint": "http://p", "query": "up", "timeoutSeconds": 7}},
            },
            "controls": {
                "cpu": {"type": "http", "http": {"endpoint": "http://sim/{node}", "mode": "dvfs"}},
                "gpu": {"type": "host"},
            },
        }));
        assert_eq!(
            read.unwrap(),
            TelemetryRouting {
                audience: Audience::Node("a".to_owned()),
                cpu_source: Some(Readings::Http(endpoint(Some(5)))),
                gpu_source: Some(Readings::None),
                thermal_source: Some(Readings::Host),
                context_source: Some(Readings::Prometheus {
                    server: HttpEndpoint { url: "http://p".to_owned(), timeout_seconds: Some(7) },
                    query: "up".to_owned()
                }),
                cpu_control: Some(ControlRoute::Http { endpoint: endpoint(None), mode: Some(CpuMode::Dvfs) }),
                gpu_control: Some(ControlRoute::Host),
            }
        );
    }

    #[test]
    fn what_a_profile_does_not_say_is_not_said() {
        let read = routing(json!({"target": {"scope": "cluster"}, "sources": {"cpu": {}}})).unwrap();
        assert_eq!(read.audience, Audience::Cluster);
        assert_eq!((read.cpu_source, read.cpu_control, read.gpu_control), (None, None, None));
    }

    #[test]
    fn what_is_said_in_half_names_its_field() {
        let with = |field: &str, value: Value| {
            let mut spec = json!({"target": {"scope": "cluster"}});
            spec[field] = value;
            routing(spec).unwrap_err()
        };
        for (field, value, message) in [
            (
                "target",
                json!({"scope": "node"}),
                "spec.target.nodeName: expected the name of a node, found nothing",
            ),
            ("target", json!({"scope": "rack"}), "spec.target.scope: expected node or cluster, found rack"),
            (
                "sources",
                json!({"cpu": {"type": "http"}}),
                "spec.sources.cpu.http.endpoint: expected a URL, found nothing",
            ),
            (
                "sources",
                json!({"context": {"type": "prometheus", "prometheus": {"endpoint": "http://p"}}}),
                "spec.sources.context.prometheus.query: expected a query, found nothing",
            ),
            (
                "sources",
                json!({"cpu": {"type": "prometheus", "prometheus": {"endpoint": "http://p", "query": "up", "timeoutSeconds": 0}}}),
                "spec.sources.cpu.prometheus.timeoutSeconds: expected 1 to 300 seconds, found 0",
            ),
            (
                "sources",
                json!({"gpu": {"type": "http", "http": {"endpoint": "http://s", "timeoutSeconds": 301}}}),
                "spec.sources.gpu.http.timeoutSeconds: expected 1 to 300 seconds, found 301",
            ),
            (
                "controls",
                json!({"gpu": {"type": "http", "http": {"endpoint": "http://s", "mode": "rapl"}}}),
                "spec.controls.gpu.http.mode: expected auto, powercap or clocks, found rapl",
            ),
            (
                "controls",
                json!({"cpu": {"type": "rapl"}}),
                "spec.controls.cpu.type: expected none, host or http, found rapl",
            ),
        ] {
            assert_eq!(with(field, value), message);
        }
    }
}
