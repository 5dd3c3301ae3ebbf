//! What Prometheus is asked of a node, by its TelemetryProfile: what the processors and the GPUs draw, for the report.
//!
//! It is no part of through what a node is reached. A sample is as old as the interval of the scrapes, and of an expression over
//! several samples nobody says how old it is. So no cap is judged by it, no loop runs on it, and another query is no other machine.

use crate::settings::NodeEndpoint;
use joulie_api::telemetry_profile::{HttpEndpoint, Readings, TelemetryRouting};

/// A query for what a part of a node draws.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeQuery {
    pub(crate) server: NodeEndpoint,
    /// `{node}` stands for the name of the node.
    pub(crate) text: String,
}

/// The queries of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PowerQueries {
    pub(crate) cpu: Option<NodeQuery>,
    pub(crate) gpu: Option<NodeQuery>,
}

/// The longest query that is accepted. It is sent twice in one URL, and servers accept no URL of any length.
const QUERY_MAX: usize = 2048;

impl PowerQueries {
    /// Those of a profile, or why they are refused; `endpoint` reads a server, and is told its field.
    pub(super) fn of(
        routing: &TelemetryRouting,
        endpoint: impl Fn(&str, &HttpEndpoint) -> Result<NodeEndpoint, String>,
    ) -> Result<Self, String> {
        let one = |field: &str, source: &Option<Readings>| -> Result<Option<NodeQuery>, String> {
            let Some(Readings::Prometheus { server, query }) = source else { return Ok(None) };
            if server.url.contains(['?', '#']) {
                return Err(format!("{field}.endpoint: the address of a server has no query of its own"));
            }
            let at = endpoint(field, server)?;
            if query.len() > QUERY_MAX {
                return Err(format!(
                    "{field}.query: it has more than {QUERY_MAX} bytes; make it a recording rule"
                ));
            }
            if reads_its_own_answer(query) {
                return Err(format!(
                    "{field}.query: it reads a metric of Joulie's programs, which may be this very value: it would never grow \
                     old; ask for the series of the exporter"
                ));
            }
            Ok(Some(NodeQuery { server: at, text: query.clone() }))
        };
        Ok(Self {
            cpu: one("spec.sources.cpu.prometheus", &routing.cpu_source)?,
            gpu: one("spec.sources.gpu.prometheus", &routing.gpu_source)?,
        })
    }

    /// For people, as the end of a sentence. A URL is shown without its password.
    pub(super) fn say(&self) -> String {
        let one = |part: &str, query: &Option<NodeQuery>| {
            let url = &query.as_ref()?.server.url;
            Some(format!("; what the {part} draw is told by Prometheus at {url}, for the report alone"))
        };
        [one("processors", &self.cpu), one("GPUs", &self.gpu)].into_iter().flatten().collect()
    }
}

/// The operator shows again what an agent reports. The simulator's own metrics are of what it simulates.
fn reads_its_own_answer(query: &str) -> bool {
    query.split("joulie_").skip(1).any(|rest| !rest.starts_with("sim_"))
}
