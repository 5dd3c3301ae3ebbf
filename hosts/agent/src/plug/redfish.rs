//! The power of the node by Redfish: over HTTP to its management controller, reading only.
//!
//! Where the settings name only the service, its chassis are looked through once for the one with the power of this node;
//! after that one document is read. Each answer is bounded in time and size, and no redirect is followed.

use super::document::{self, CHASSIS_MOST, Chassis, RedfishError};
use super::{RedfishSettings, Trouble};
use bytes::Bytes;
use hal_plug::PlugReading;
use host_kit::config::Url;
use host_kit::http_client::{ClientLimits, HttpClient, NoAnswer, Trust, TrustError};
use host_kit::login::Login;
use http::{Request, StatusCode, header};
use power_hal::ErrorKind;
use power_units::{Role, Watts};
use std::time::Duration;

/// Each request may take this long.
const TIMEOUT: Duration = Duration::from_secs(8);
/// All requests of looking through the chassis together.
const SEARCH_WITHIN: Duration = Duration::from_secs(60);
/// A document with the sensors of a large machine has some hundred KiB.
const BYTES_MOST: usize = 1 << 20;
/// The collection of all chassis.
const CHASSIS: &str = "/redfish/v1/Chassis";

/// A client of one management controller.
pub(super) struct Redfish {
    client: HttpClient,
    login: Login,
    /// The scheme and the server.
    server: String,
    /// The document that the settings name.
    named: Option<String>,
    /// The document that was found.
    found: Option<String>,
}

impl Redfish {
    pub(super) fn new(url: &Url, settings: &RedfishSettings) -> Result<Self, TrustError> {
        let RedfishSettings { url: _, authorities, login } = settings;
        let (server, path) = split(url.as_str());
        let has_tls = server.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        if *login != Login::None && !has_tls {
            tracing::warn!("NODE_METER_REDFISH_URL: {url} has no TLS, so the login is sent in the clear");
        }
        let limits = ClientLimits { timeout: TIMEOUT, bytes_max: BYTES_MOST, idle_max: 1 };
        let trust = Trust::of(authorities.as_deref(), has_tls);
        let client = HttpClient::new("joulie-agent", limits, trust)?.with_token(login.token().cloned());
        let named = (!is_service(path)).then(|| path.to_owned());
        Ok(Self { client, login: login.clone(), server: server.to_owned(), named, found: None })
    }

    /// What the node draws now.
    pub(super) async fn read(&mut self) -> Result<PlugReading, Trouble> {
        let path = match self.named.clone().or_else(|| self.found.clone()) {
            Some(path) => path,
            None => {
                let search = tokio::time::timeout(SEARCH_WITHIN, self.search()).await;
                let late = || {
                    let text =
                        format!("its chassis were not looked through in {} s", SEARCH_WITHIN.as_secs());
                    Trouble::new(ErrorKind::Timeout, text)
                };
                let (path, watts) = search.map_err(|_| late())??;
                tracing::info!("the power of the node is in {}{path}", self.server);
                self.found = Some(path);
                return reading(watts);
            }
        };
        let read = self.power(&path).await;
        if read.as_ref().is_err_and(|trouble| matches!(trouble.kind, ErrorKind::Gone | ErrorKind::BadData)) {
            // An update of the firmware may have moved it.
            self.found = None;
        }
        reading(read?)
    }

    /// Looks for the document with the power of this node: that of the one chassis that has a power and is neither in
    /// another such one nor holds several machines.
    async fn search(&self) -> Result<(String, Watts), Trouble> {
        let members = document::members(&self.get(CHASSIS).await?).map_err(|why| bad(CHASSIS, &why))?;
        let mut with: Vec<(String, Chassis, String, Watts)> = Vec::new();
        let mut said = None;
        for member in members.into_iter().take(CHASSIS_MOST) {
            let chassis = document::chassis(&self.get(&member).await?).map_err(|why| bad(&member, &why))?;
            if chassis.is_shared {
                continue;
            }
            for path in &chassis.power {
                match self.power(path).await {
                    Ok(watts) => {
                        with.push((member.clone(), chassis.clone(), path.clone(), watts));
                        break;
                    }
                    Err(trouble) => said = Some(trouble),
                }
            }
        }
        let names: Vec<String> = with.iter().map(|(name, ..)| name.clone()).collect();
        with.retain(|(_, chassis, ..)| !chassis.inside.as_ref().is_some_and(|inside| names.contains(inside)));
        match with.as_slice() {
            [(_, _, path, watts)] => Ok((path.clone(), *watts)),
            [] => Err(said.unwrap_or_else(|| bad(CHASSIS, &RedfishError::NoPower))),
            several => Err(bad(CHASSIS, &RedfishError::Several(several.len()))),
        }
    }

    async fn power(&self, path: &str) -> Result<Watts, Trouble> {
        document::power(&self.get(path).await?).map_err(|why| bad(path, &why))
    }

    async fn get(&self, path: &str) -> Result<Bytes, Trouble> {
        let told = |kind, why: String| Trouble::new(kind, format!("{}{path}: {why}", self.server));
        let request =
            Request::get(format!("{}{path}", self.server)).header(header::ACCEPT, "application/json");
        let request = request.body(Bytes::new());
        let mut request = request.map_err(|error| told(ErrorKind::BadData, error.to_string()))?;
        if let Some(value) = self.login.basic().map_err(|why| told(ErrorKind::PermissionDenied, why))? {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        self.client.ask(request).await.map_err(|why| told(kind(&why), why.to_string()))
    }
}

fn reading(watts: Watts) -> Result<PlugReading, Trouble> {
    Ok(PlugReading::new(watts.to_micro_watts(Role::Demand), None)?)
}

fn bad(path: &str, why: &RedfishError) -> Trouble {
    Trouble::new(ErrorKind::BadData, format!("{path}: {why}"))
}

const fn kind(why: &NoAnswer) -> ErrorKind {
    match why {
        NoAnswer::Late(_) => ErrorKind::Timeout,
        NoAnswer::Refused(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => ErrorKind::PermissionDenied,
        NoAnswer::Refused(StatusCode::NOT_FOUND) => ErrorKind::Gone,
        NoAnswer::Refused(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => ErrorKind::Busy,
        NoAnswer::Refused(_) | NoAnswer::Failed(_) => ErrorKind::Io,
        NoAnswer::Unreadable(_) => ErrorKind::BadData,
    }
}

/// The scheme with the server, and the path.
fn split(url: &str) -> (&str, &str) {
    let after = url.find("://").map_or(0, |at| at + 3);
    let end = url[after..].find('/').map_or(url.len(), |at| after + at);
    url.split_at(end)
}

/// Whether a path names the service, and no document of it.
fn is_service(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/redfish" | "/redfish/v1" | "/redfish/v1/Chassis")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_service_or_a_document_of_it() {
        assert_eq!(split("https://bmc"), ("https://bmc", ""));
        assert_eq!(split("https://10.0.0.1:8443/redfish/v1/"), ("https://10.0.0.1:8443", "/redfish/v1/"));
        for service in ["", "/", "/redfish/v1/", "/redfish/v1/Chassis"] {
            assert!(is_service(service), "{service}");
        }
        assert!(!is_service("/redfish/v1/Chassis/1/Power"));
    }
}
