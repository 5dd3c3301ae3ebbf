//! Where readings come from, and how devices are controlled.
//!
//! The first implementation took everything but `http` with an endpoint for the host's own hardware, including typos
//! and `none`. Here a word means what it says, and incomplete settings are refused. A node with one part over HTTP and
//! the other on the host is refused too: that would be two machines under one name.

use host_kit::bearer::TokenFile;
use host_kit::config::{ConfigSetting, Refusals, UrlTemplate, Values, parse};
use std::path::PathBuf;
use std::time::Duration;

/// The value of a TELEMETRY_ setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    None,
    Host,
    Http,
}

/// Which control of the processors is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlPreference {
    /// The power limit, then the throttle.
    LimitFirst,
    /// The throttle alone.
    ThrottleOnly,
}

const WORDS: [(&str, Through); 3] =
    [("none", Through::None), ("host", Through::Host), ("http", Through::Http)];

fn through(text: &str) -> Result<Option<Through>, host_kit::config::Wrong> {
    parse::one_of(text, &WORDS).map(Some)
}

fn endpoint(text: &str) -> Result<Option<UrlTemplate>, host_kit::config::Wrong> {
    parse::url_template(text).map(Some)
}

const ACCEPTS: &str = "none, host or http";
const TEMPLATE: &str = "an http or https URL, with {node} where the name of the node goes";

pub(super) const CPU_SOURCE: ConfigSetting<Option<Through>> = ConfigSetting::optional(
    "TELEMETRY_CPU_SOURCE",
    through,
    ACCEPTS,
    "Where the power of the node comes from; without it the host. A node is the host's or over HTTP as a whole",
);
pub(super) const CPU_SOURCE_ENDPOINT: ConfigSetting<Option<UrlTemplate>> = ConfigSetting::optional(
    "TELEMETRY_CPU_HTTP_ENDPOINT",
    endpoint,
    TEMPLATE,
    "Where the telemetry of a node is read",
);
pub(super) const CPU_CONTROL: ConfigSetting<Option<Through>> = ConfigSetting::optional(
    "TELEMETRY_CPU_CONTROL",
    through,
    ACCEPTS,
    "Through what the processors are controlled; none leaves them alone",
);
pub(super) const CPU_CONTROL_ENDPOINT: ConfigSetting<Option<UrlTemplate>> = ConfigSetting::optional(
    "TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT",
    endpoint,
    TEMPLATE,
    "Where the controls of a node's processors are posted",
);
pub(super) const CPU_CONTROL_MODE: ConfigSetting<ControlPreference> = ConfigSetting::with_default(
    "TELEMETRY_CPU_CONTROL_MODE",
    "auto",
    |text| {
        let (limit, throttle) = (ControlPreference::LimitFirst, ControlPreference::ThrottleOnly);
        parse::one_of(text, &[("auto", limit), ("rapl", limit), ("dvfs", throttle)])
    },
    "auto, rapl or dvfs",
    "Whether the power limit is tried before the throttle, over HTTP",
);
pub(super) const GPU_CONTROL: ConfigSetting<Option<Through>> = ConfigSetting::optional(
    "TELEMETRY_GPU_CONTROL",
    through,
    ACCEPTS,
    "Through what the GPUs are controlled; none leaves them alone",
);
pub(super) const GPU_CONTROL_ENDPOINT: ConfigSetting<Option<UrlTemplate>> = ConfigSetting::optional(
    "TELEMETRY_GPU_CONTROL_HTTP_ENDPOINT",
    endpoint,
    TEMPLATE,
    "Where the controls of a node's GPUs are posted",
);
pub(super) const GPU_CONTROL_MODE: ConfigSetting<()> = ConfigSetting::with_default(
    "TELEMETRY_GPU_CONTROL_MODE",
    "powercap",
    |text| parse::one_of(text, &[("auto", ()), ("powercap", ())]),
    "auto or powercap",
    "GPUs are controlled by their power limit; there is no other way yet",
);
pub(super) const TIMEOUT_SECONDS: ConfigSetting<u32> = ConfigSetting::with_default(
    "TELEMETRY_HTTP_TIMEOUT_SECONDS",
    "2",
    |text| parse::whole(text, 1..=300),
    "a whole number from 1 to 300",
    "How many seconds an answer over HTTP may take",
);

pub(super) const AUTHORITIES: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "TELEMETRY_HTTP_CA_FILE",
    |text| parse::path(text).map(Some),
    "the path of a file of certificates (PEM)",
    "Who signs the certificates of https endpoints; without it the authorities that the system knows. A certificate and its name are always checked",
);

pub(super) const TOKEN: ConfigSetting<Option<TokenFile>> = ConfigSetting::optional(
    "TELEMETRY_HTTP_TOKEN_FILE",
    TokenFile::parse,
    "the path of a file with a token",
    "The bearer token that is shown to the endpoints; it is read for each request. Give it to https endpoints only: others send it in the clear",
);

/// A node's endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRouting {
    /// Where the telemetry of its processors is read, and that of the node as a whole.
    pub source: Option<NodeEndpoint>,
    /// Where the telemetry of its GPUs is read: mostly at the same endpoint.
    pub gpu_source: Option<NodeEndpoint>,
    /// Where its processors are controlled.
    pub cpu: Option<NodeEndpoint>,
    /// What is tried first there.
    pub preference: ControlPreference,
    /// Where its GPUs are controlled.
    pub gpu: Option<NodeEndpoint>,
}

impl NodeRouting {
    /// No endpoint: the node is neither read nor controlled.
    pub const NOWHERE: Self = Self {
        source: None,
        gpu_source: None,
        cpu: None,
        preference: ControlPreference::LimitFirst,
        gpu: None,
    };

    /// Whether one endpoint tells of the processors and of the GPUs.
    #[must_use]
    pub fn has_one_source(&self) -> bool {
        let url = |source: &Option<NodeEndpoint>| source.as_ref().map(|source| source.url.clone());
        url(&self.source) == url(&self.gpu_source)
    }

    /// The endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = &NodeEndpoint> {
        [&self.source, &self.gpu_source, &self.cpu, &self.gpu].into_iter().flatten()
    }
}

/// An endpoint of many nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEndpoint {
    /// Its URL.
    pub url: UrlTemplate,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Whether the token is shown to it.
    pub shows_token: bool,
}

/// What applies to all endpoints, also to those that a TelemetryProfile names.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpTerms {
    /// How long an answer may take where nothing else says it.
    pub timeout: Duration,
    /// The certificate authorities of endpoints with TLS; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// What is shown to the endpoints.
    pub token: Option<TokenFile>,
}

impl HttpTerms {
    /// For an agent that reaches no endpoint.
    pub(super) const NONE: Self = Self { timeout: Duration::ZERO, authorities: None, token: None };

    pub(super) fn read(values: &Values) -> Result<Self, Refusals> {
        Ok(Self {
            timeout: Duration::from_secs(u64::from(values.get(&TIMEOUT_SECONDS)?)),
            authorities: values.get(&AUTHORITIES)?,
            token: values.get(&TOKEN)?,
        })
    }
}

/// How the host of mode daemonset is reached.
pub(super) enum Host {
    /// By its own hardware, of which these parts are controlled.
    Own { cpu: bool, gpu: bool },
    /// Over HTTP.
    Remote(NodeRouting),
}

struct Part {
    word: (&'static str, Option<Through>),
    endpoint: (&'static str, Option<UrlTemplate>),
}

impl Part {
    fn of(
        values: &Values,
        word: &ConfigSetting<Option<Through>>,
        endpoint: &ConfigSetting<Option<UrlTemplate>>,
    ) -> Result<Self, Refusals> {
        let part = Self {
            word: (word.name(), values.get(word)?),
            endpoint: (endpoint.name(), values.get(endpoint)?),
        };
        match (part.word.1, &part.endpoint.1) {
            (Some(Through::Http), None) => Err(values.conflict(
                &[part.word.0, part.endpoint.0],
                &format!("{}=http needs {}", part.word.0, part.endpoint.0),
            )),
            // The first implementation ignored an endpoint that no setting uses, and charts always set it.
            _ => Ok(part),
        }
    }

    fn is(&self, through: Through) -> bool {
        self.word.1 == Some(through)
    }

    fn http(self) -> Option<UrlTemplate> {
        if self.is(Through::Http) { self.endpoint.1 } else { None }
    }
}

fn parts(values: &Values) -> Result<[Part; 3], Refusals> {
    Ok([
        Part::of(values, &CPU_SOURCE, &CPU_SOURCE_ENDPOINT)?,
        Part::of(values, &CPU_CONTROL, &CPU_CONTROL_ENDPOINT)?,
        Part::of(values, &GPU_CONTROL, &GPU_CONTROL_ENDPOINT)?,
    ])
}

fn routing(values: &Values, [source, cpu, gpu]: [Part; 3]) -> Result<NodeRouting, Refusals> {
    values.get(&GPU_CONTROL_MODE)?;
    let HttpTerms { timeout, token, .. } = HttpTerms::read(values)?;
    let endpoint =
        |part: Part| part.http().map(|url| NodeEndpoint { url, timeout, shows_token: token.is_some() });
    let source = endpoint(source);
    Ok(NodeRouting {
        gpu_source: source.clone(),
        source,
        cpu: endpoint(cpu),
        preference: values.get(&CPU_CONTROL_MODE)?,
        gpu: endpoint(gpu),
    })
}

/// The endpoints of the pool's nodes, which have no hardware on this host.
pub(super) fn remote(values: &Values) -> Result<NodeRouting, Refusals> {
    let parts = parts(values)?;
    for part in &parts {
        if part.is(Through::Host) {
            return Err(values.conflict(
                &[part.word.0],
                "in mode pool the host of the agent is none of the nodes; use http, or none",
            ));
        }
    }
    if parts.iter().all(|part| !part.is(Through::Http)) {
        let names: Vec<&str> = parts.iter().map(|part| part.word.0).collect();
        return Err(
            values.conflict(&names, "mode pool reaches its nodes over HTTP; set at least one to http")
        );
    }
    routing(values, parts)
}

/// How the host of mode daemonset is reached.
pub(super) fn host(values: &Values) -> Result<Host, Refusals> {
    let parts = parts(values)?;
    let http: Vec<&str> =
        parts.iter().filter(|part| part.is(Through::Http)).map(|part| part.word.0).collect();
    let own: Vec<&str> = parts.iter().filter(|part| part.is(Through::Host)).map(|part| part.word.0).collect();
    if !http.is_empty() && !own.is_empty() {
        let all: Vec<&str> = http.into_iter().chain(own).collect();
        return Err(
            values.conflict(&all, "a node is reached over HTTP or by its own hardware, not half and half")
        );
    }
    if !http.is_empty() {
        return routing(values, parts).map(Host::Remote);
    }
    let [source, cpu, gpu] = parts;
    if source.is(Through::None) {
        return Err(values.conflict(
            &[source.word.0],
            "the host's own meters cannot be turned off: a cap that nothing measures is not known to hold",
        ));
    }
    Ok(Host::Own { cpu: !cpu.is(Through::None), gpu: !gpu.is(Through::None) })
}
