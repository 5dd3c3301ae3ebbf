//! Decides through what a node is read and controlled: the agent's own hardware, or endpoints over HTTP. A pure rule.
//!
//! ```text
//!  a TelemetryProfile for the node ──▶ it holds
//!  else one for the cluster ─────────▶ it holds
//!  else ─────────────────────────────▶ the settings of the agent
//!  the one that would hold is refused ▶ the last good route stays; if there was none yet, the node is left alone
//!  the profiles are not read yet ────▶ as before
//! ```
//!
//! If several profiles are for the same target, the first by name counts. What a profile leaves out is as in the settings, where these
//! reach the node by the same means. A node is the host's or over HTTP as a whole: half and half would be two machines under one
//! name. A route never changes because an endpoint fails. What Prometheus is asked for is beside the route ([`PowerQueries`]).

mod queries;

pub(crate) use queries::{NodeQuery, PowerQueries};

use crate::front::rows::RouteRow;
use crate::front::wanted::Subject;
use crate::settings::{ControlPreference, HttpTerms, NodeEndpoint, NodeRouting};
use host_kit::config::UrlTemplate;
use joulie_api::telemetry_profile::{
    Audience, ControlRoute, CpuMode, GpuMode, HttpEndpoint, Readings, TelemetryRouting,
};
use std::sync::Arc;
use std::time::Duration;

/// Through what a node is read and controlled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reached {
    /// The hardware of the agent's own node.
    Host {
        /// Whether the processors are controlled.
        cpu: bool,
        /// Whether the GPUs are controlled.
        gpu: bool,
    },
    /// Endpoints over HTTP.
    Http(NodeRouting),
}

impl Reached {
    /// Which parts of a node are controlled: the processors and the GPUs.
    pub(crate) const fn controls(&self) -> (bool, bool) {
        match self {
            Self::Host { cpu, gpu } => (*cpu, *gpu),
            Self::Http(routing) => (routing.cpu.is_some(), routing.gpu.is_some()),
        }
    }

    pub(crate) const fn is_host(&self) -> bool {
        matches!(self, Self::Host { .. })
    }

    /// For people. A URL is shown without its password.
    pub(crate) fn say(&self) -> String {
        let at = |endpoint: &Option<NodeEndpoint>| match endpoint {
            Some(endpoint) => endpoint.url.to_string(),
            None => "nothing".to_owned(),
        };
        let host = |controlled: bool| if controlled { "its own hardware" } else { "nothing" };
        match self {
            Self::Host { cpu, gpu } => format!(
                "read by its own hardware; processors controlled by {}, GPUs by {}",
                host(*cpu),
                host(*gpu)
            ),
            Self::Http(routing @ NodeRouting { source, gpu_source, cpu, gpu, .. }) => {
                let gpus = if routing.has_one_source() {
                    String::new()
                } else {
                    format!(", GPUs at {}", at(gpu_source))
                };
                format!(
                    "read over HTTP at {}{gpus}; processors controlled at {}, GPUs at {}",
                    at(source),
                    at(cpu),
                    at(gpu)
                )
            }
        }
    }
}

/// Where the agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On its only node.
    OnNode,
    /// Elsewhere: the host of the agent is none of its nodes.
    Elsewhere,
}

/// What the settings say.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) place: Place,
    pub(crate) reached: Reached,
    pub(crate) http: HttpTerms,
}

/// The route of a node, and what is to be said of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) reached: Arc<Reached>,
    /// What Prometheus is asked of it.
    pub(crate) queries: Arc<PowerQueries>,
    /// The profile by which it is so; `None`: the settings.
    pub(crate) by: Option<Subject>,
    /// The profile that would hold, and why it is refused.
    pub(crate) refused: Option<(Subject, String)>,
    /// Other profiles for the same target, which are not followed.
    pub(crate) rivals: Vec<String>,
    /// Whether a route was chosen with the profiles at hand.
    chosen: bool,
}

impl Standing {
    /// Whether it was chosen with the profiles at hand.
    pub(crate) const fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// Whether it is known of which machine anything is desired: a profile was followed or refused, or there is none.
    pub(crate) const fn is_decided(&self) -> bool {
        self.chosen || self.refused.is_some()
    }

    /// Whether the node is read or controlled in another way by that one.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        self.reached != other.reached || self.queries != other.queries
    }

    /// Through what it is read and controlled, for people.
    pub(crate) fn way(&self) -> String {
        format!("{}{}", self.reached.say(), self.queries.say())
    }

    pub(crate) fn say(&self) -> String {
        let by = match &self.by {
            Some(by) => format!("TelemetryProfile {}", by.name),
            None => "the settings of the agent".to_owned(),
        };
        let refused = match &self.refused {
            Some((profile, why)) => {
                format!("; TelemetryProfile {} is refused, so the route stays as it was: {why}", profile.name)
            }
            None => String::new(),
        };
        let rivals = match self.rivals.as_slice() {
            [] => String::new(),
            rivals => format!("; {} are for the same target and are not followed", rivals.join(", ")),
        };
        format!("by {by} the node is {}{refused}{rivals}", self.way())
    }
}

/// The profiles that may hold for a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Profiles {
    /// Whether these are all.
    pub(crate) known: bool,
    /// Those for the node, for the cluster, or for a target that cannot be read, by name.
    pub(crate) all: Vec<(String, Arc<RouteRow>)>,
}

impl Base {
    /// The route until the profiles are known.
    pub(crate) fn start(&self) -> Standing {
        let (reached, queries) = (Arc::new(self.reached.clone()), Arc::default());
        Standing { reached, queries, by: None, refused: None, rivals: Vec::new(), chosen: false }
    }

    /// The route of a node by these profiles; `before` is the route until now.
    pub(crate) fn choose(&self, node: &str, profiles: &Profiles, before: &Standing) -> Standing {
        if !profiles.known {
            return before.clone();
        }
        let subject = |(name, row): &(String, Arc<RouteRow>)| Subject {
            name: name.clone(),
            uid: row.uid.clone(),
            generation: row.generation,
        };
        let refuse = |profile: Subject, why: String| {
            // Nothing good was known before: the node may be another machine than the settings say.
            let nowhere = || Arc::new(Reached::Http(NodeRouting::NOWHERE));
            let reached = if before.chosen { before.reached.clone() } else { nowhere() };
            // They are those of a route that was chosen, or none.
            let queries = before.queries.clone();
            let (by, refused, rivals) = (before.by.clone(), Some((profile, why)), Vec::new());
            Standing { reached, queries, by, refused, rivals, chosen: before.chosen }
        };
        // Whom a profile is for cannot be read any more, and it held.
        let held = |(_, row): &&(String, Arc<RouteRow>)| {
            row.audience.is_err() && before.by.as_ref().is_some_and(|by| by.uid == row.uid)
        };
        if let Some(one) = profiles.all.iter().find(held) {
            let why = one.1.audience.as_ref().err().cloned().unwrap_or_default();
            return refuse(subject(one), why);
        }
        let of = |wanted: &dyn Fn(&Audience) -> bool| -> Vec<&(String, Arc<RouteRow>)> {
            profiles.all.iter().filter(|(_, row)| row.audience.as_ref().is_ok_and(wanted)).collect()
        };
        let own = of(&|audience| matches!(audience, Audience::Node(name) if name == node));
        let matching = if own.is_empty() { of(&|audience| *audience == Audience::Cluster) } else { own };
        let Some((first, others)) = matching.split_first() else {
            return Standing { chosen: true, ..self.start() };
        };
        let asked = first.1.routing.clone().and_then(|routing| {
            let queries = PowerQueries::of(&routing, |field, http| self.endpoint(field, http))?;
            Ok((self.reach(&routing)?, queries))
        });
        let rivals = others.iter().map(|(name, _)| name.clone()).collect();
        match asked {
            Ok((reached, queries)) => Standing {
                reached: Arc::new(reached),
                queries: Arc::new(queries),
                by: Some(subject(first)),
                refused: None,
                rivals,
                chosen: true,
            },
            Err(why) => Standing { rivals, ..refuse(subject(first), why) },
        }
    }

    /// What a profile asks for, or why it is refused.
    fn reach(&self, routing: &TelemetryRouting) -> Result<Reached, String> {
        let host = hosts(routing);
        let http = https(routing);
        match (host.first(), http.first()) {
            (Some(host), Some(http)) => Err(format!(
                "{host} is host and {http} is http: a node is reached over HTTP or by its own hardware, not half and half"
            )),
            (Some(host), None) if self.place == Place::Elsewhere => Err(format!(
                "{host}: in mode pool the host of the agent is none of the nodes; use http, or none"
            )),
            (Some(_), None) => self.by_host(routing),
            (None, Some(_)) => self.over_http(routing),
            (None, None) if self.reached.is_host() => self.by_host(routing),
            (None, None) => self.over_http(routing),
        }
    }

    fn by_host(&self, routing: &TelemetryRouting) -> Result<Reached, String> {
        if routing.cpu_source == Some(Readings::None) {
            return Err("spec.sources.cpu.type: the host's own meters cannot be turned off, because a cap that nothing \
                        measures is not known to hold; use host"
                .to_owned());
        }
        let (cpu, gpu) = if self.reached.is_host() { self.reached.controls() } else { (true, true) };
        Ok(Reached::Host {
            cpu: routing.cpu_control.as_ref().map_or(cpu, |control| *control != ControlRoute::None),
            gpu: routing.gpu_control.as_ref().map_or(gpu, |control| *control != ControlRoute::None),
        })
    }

    fn over_http(&self, routing: &TelemetryRouting) -> Result<Reached, String> {
        let base = match &self.reached {
            Reached::Http(base) => base.clone(),
            Reached::Host { .. } => NodeRouting::NOWHERE,
        };
        let source = match &routing.cpu_source {
            None => base.source.clone(),
            Some(Readings::Http(http)) => Some(self.endpoint("spec.sources.cpu.http", http)?),
            Some(Readings::None | Readings::Host | Readings::Prometheus { .. }) => None,
        };
        let gpu_source = match &routing.gpu_source {
            Some(Readings::Http(http)) => Some(self.endpoint("spec.sources.gpu.http", http)?),
            // Whoever tells of the processors tells of the GPUs too.
            None | Some(Readings::None | Readings::Host | Readings::Prometheus { .. }) => source.clone(),
        };
        let (cpu, preference) = match &routing.cpu_control {
            None => (base.cpu.clone(), base.preference),
            Some(ControlRoute::Http { endpoint, mode }) => {
                let preference = match mode {
                    None => base.preference,
                    Some(CpuMode::Auto | CpuMode::Rapl) => ControlPreference::LimitFirst,
                    Some(CpuMode::Dvfs) => ControlPreference::ThrottleOnly,
                };
                (Some(self.endpoint("spec.controls.cpu.http", endpoint)?), preference)
            }
            Some(ControlRoute::None | ControlRoute::Host) => (None, base.preference),
        };
        let gpu = match &routing.gpu_control {
            None => base.gpu.clone(),
            Some(ControlRoute::Http { endpoint, mode }) => {
                if *mode == Some(GpuMode::Clocks) {
                    return Err("spec.controls.gpu.http.mode: GPUs are controlled by their power limit; use powercap or \
                                auto"
                        .to_owned());
                }
                Some(self.endpoint("spec.controls.gpu.http", endpoint)?)
            }
            Some(ControlRoute::None | ControlRoute::Host) => None,
        };
        Ok(Reached::Http(NodeRouting { source, gpu_source, cpu, preference, gpu }))
    }

    fn endpoint(&self, field: &str, http: &HttpEndpoint) -> Result<NodeEndpoint, String> {
        if http.url.len() > URL_MAX {
            return Err(format!("{field}.endpoint: it has more than {URL_MAX} bytes"));
        }
        let url: UrlTemplate = http.url.parse().map_err(|wrong| format!("{field}.endpoint: {wrong}"))?;
        let timeout = http.timeout_seconds.map_or(self.http.timeout, |s| Duration::from_secs(s.into()));
        let shows_token = self.http.token.is_some() && self.may_see_the_token(&url);
        Ok(NodeEndpoint { url, timeout, shows_token })
    }

    /// Whoever writes a profile names a server; the token is for the servers of the settings, and never sent in the clear to another
    /// one.
    fn may_see_the_token(&self, url: &UrlTemplate) -> bool {
        let of_settings = match &self.reached {
            Reached::Http(base) => base.endpoints().any(|known| known.url.server() == url.server()),
            Reached::Host { .. } => false,
        };
        of_settings || (url.has_tls() && self.http.authorities.is_some())
    }
}

/// The longest URL that is accepted: servers accept no longer ones.
const URL_MAX: usize = 2048;

/// The fields of a profile that say `host`.
fn hosts(routing: &TelemetryRouting) -> Vec<&'static str> {
    let TelemetryRouting { cpu_source, gpu_source, cpu_control, gpu_control, .. } = routing;
    let said = [
        ("spec.sources.cpu", *cpu_source == Some(Readings::Host)),
        ("spec.sources.gpu", *gpu_source == Some(Readings::Host)),
        ("spec.controls.cpu", *cpu_control == Some(ControlRoute::Host)),
        ("spec.controls.gpu", *gpu_control == Some(ControlRoute::Host)),
    ];
    said.into_iter().filter(|(_, is)| *is).map(|(field, _)| field).collect()
}

/// The fields of a profile that say `http`.
fn https(routing: &TelemetryRouting) -> Vec<&'static str> {
    let TelemetryRouting { cpu_source, gpu_source, cpu_control, gpu_control, .. } = routing;
    let said = [
        ("spec.sources.cpu", matches!(cpu_source, Some(Readings::Http(_)))),
        ("spec.sources.gpu", matches!(gpu_source, Some(Readings::Http(_)))),
        ("spec.controls.cpu", matches!(cpu_control, Some(ControlRoute::Http { .. }))),
        ("spec.controls.gpu", matches!(gpu_control, Some(ControlRoute::Http { .. }))),
    ];
    said.into_iter().filter(|(_, is)| *is).map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests;
