//! A machine's power by Redfish: `PowerState` of its ComputerSystem, and the action `ComputerSystem.Reset` with the types that
//! the service allows. Off is always `GracefulShutdown`, unless the file says that a system may be cut off.

use super::controllers::Caller;
use host_kit::config::Url;
use http::Method;
use planner::sleep::PowerState;
use serde_json::{Value, json};

/// The collection of all systems.
const SYSTEMS: &str = "/redfish/v1/Systems";

/// A system of a service.
#[derive(Clone, Debug)]
pub(super) struct RedfishPower {
    /// The scheme and the server.
    server: String,
    /// The path of the system; `None` for the only one of the service.
    system: Option<String>,
    /// Whether it may be switched off without its system's help.
    force: bool,
}

impl RedfishPower {
    pub(super) fn new(url: &Url, force: bool) -> Self {
        let text = url.as_str();
        let after = text.find("://").map_or(0, |at| at + 3);
        let end = text[after..].find('/').map_or(text.len(), |at| after + at);
        let (server, path) = text.split_at(end);
        let is_service = matches!(path.trim_end_matches('/'), "" | "/redfish" | "/redfish/v1" | SYSTEMS);
        Self { server: server.to_owned(), system: (!is_service).then(|| path.to_owned()), force }
    }

    async fn get(&self, caller: &Caller<'_>, path: &str) -> Result<Value, String> {
        let body = caller.call(Method::GET, &format!("{}{path}", self.server), None).await?;
        serde_json::from_slice(&body).map_err(|error| format!("{path}: it is no JSON: {error}"))
    }

    async fn system(&self, caller: &Caller<'_>) -> Result<Value, String> {
        if let Some(path) = &self.system {
            return self.get(caller, path).await;
        }
        let members = self.get(caller, SYSTEMS).await?;
        match members["Members"].as_array().map(Vec::as_slice) {
            Some([one]) => self.get(caller, local(&one["@odata.id"])?).await,
            Some(all) => Err(format!("{SYSTEMS} has {} systems: name one of them", all.len())),
            None => Err(format!("{SYSTEMS} has no Members")),
        }
    }

    pub(super) async fn state(&self, caller: &Caller<'_>) -> Result<PowerState, String> {
        let system = self.system(caller).await?;
        match system["PowerState"].as_str() {
            Some("On") => Ok(PowerState::On),
            Some("Off") => Ok(PowerState::Off),
            Some("PoweringOn" | "PoweringOff" | "Paused") => Ok(PowerState::Changing),
            Some(other) => Err(format!("PowerState is {other:?}, which is not known")),
            None => Err("the system has no PowerState".to_owned()),
        }
    }

    pub(super) async fn switch(&self, caller: &Caller<'_>, on: bool) -> Result<(), String> {
        let system = self.system(caller).await?;
        let action = &system["Actions"]["#ComputerSystem.Reset"];
        let target = local(&action["target"]).map_err(|why| format!("ComputerSystem.Reset: {why}"))?;
        let allowed = self.allowed(caller, action).await?;
        let kind = reset_type(&allowed, on, self.force)?;
        let body = json!({"ResetType": kind}).to_string();
        caller.call(Method::POST, &format!("{}{target}", self.server), Some(body)).await.map(drop)
    }

    /// The types of a reset that the service says it allows; none where it does not say.
    async fn allowed(&self, caller: &Caller<'_>, action: &Value) -> Result<Vec<String>, String> {
        let values = &action["ResetType@Redfish.AllowableValues"];
        if let Some(values) = values.as_array() {
            return Ok(texts(values));
        }
        if action["@Redfish.ActionInfo"].is_null() {
            return Ok(Vec::new());
        }
        let info = self.get(caller, local(&action["@Redfish.ActionInfo"])?).await?;
        let mut parameters = info["Parameters"].as_array().into_iter().flatten();
        let found = parameters.find(|one| one["Name"] == "ResetType");
        Ok(found.and_then(|one| one["AllowableValues"].as_array()).map(|all| texts(all)).unwrap_or_default())
    }
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

/// A path on the same server: a login goes nowhere else.
fn local(value: &Value) -> Result<&str, String> {
    let path = value.as_str().ok_or("there is no link")?;
    let is_local = path.starts_with('/') && !path.starts_with("//") && !path.contains(char::is_whitespace);
    if is_local { Ok(path) } else { Err(format!("the link {path:?} is no path of this service")) }
}

/// The type of reset to ask for.
fn reset_type(allowed: &[String], on: bool, force: bool) -> Result<&'static str, String> {
    let wanted: &[&'static str] = match (on, force) {
        (true, _) => &["On", "ForceOn"],
        (false, false) => &["GracefulShutdown"],
        (false, true) => &["GracefulShutdown", "ForceOff"],
    };
    let is_allowed = |kind: &&&str| allowed.is_empty() || allowed.iter().any(|one| one == **kind);
    wanted.iter().find(is_allowed).copied().ok_or_else(|| {
        format!("ComputerSystem.Reset allows {}, and none of {}", allowed.join(", "), wanted.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_never_cut_off_unless_that_is_allowed() {
        let all = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let usual = all(&["On", "ForceOff", "GracefulShutdown", "ForceRestart"]);
        assert_eq!(reset_type(&usual, true, false), Ok("On"));
        assert_eq!(reset_type(&usual, false, false), Ok("GracefulShutdown"));
        let hard = all(&["ForceOn", "ForceOff"]);
        assert_eq!(reset_type(&hard, true, false), Ok("ForceOn"));
        assert!(reset_type(&hard, false, false).unwrap_err().contains("ForceOn, ForceOff"));
        assert_eq!(reset_type(&hard, false, true), Ok("ForceOff"));
        // A service that does not say what it allows is asked for the usual.
        assert_eq!(reset_type(&[], false, true), Ok("GracefulShutdown"));
    }

    #[test]
    fn a_link_to_another_server_is_not_followed() {
        assert_eq!(local(&json!("/redfish/v1/Systems/1")), Ok("/redfish/v1/Systems/1"));
        for bad in
            [json!("https://elsewhere/x"), json!("//elsewhere/x"), json!(3), json!(null), json!("/a b")]
        {
            assert!(local(&bad).is_err(), "{bad}");
        }
    }
}
