//! A Redfish service for the power of systems, as a management controller has one: the documents, and the action
//! `ComputerSystem.Reset`. What is behind it is somebody else's ([`BmcSystems`]): the simulated machines, or a test that says what
//! it wants to be asked.
//!
//! | path | verb | what |
//! |---|---|---|
//! | `/redfish`, `/redfish/v1/` | GET | versions, and the root |
//! | `/redfish/v1/Systems` | GET | all systems |
//! | `/redfish/v1/Systems/{system}` | GET | `PowerState`, and where a reset is ordered |
//! | `/redfish/v1/Systems/{system}/ResetActionInfo` | GET | the types of reset, where the system itself does not list them |
//! | `/redfish/v1/Systems/{system}/Actions/ComputerSystem.Reset` | POST | 204, or 400 for a type that is not allowed |

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

const ROOT: &str = "/redfish/v1";
const SYSTEMS: &str = "/redfish/v1/Systems";

/// `PowerState` of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcPower {
    /// It is on.
    On,
    /// It is off.
    Off,
    /// It is being switched on.
    PoweringOn,
    /// It is being switched off.
    PoweringOff,
}

impl BmcPower {
    /// The word in the document.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::Off => "Off",
            Self::PoweringOn => "PoweringOn",
            Self::PoweringOff => "PoweringOff",
        }
    }
}

/// `ResetType` of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetType {
    /// To start.
    On,
    /// To start, whatever stands against it.
    ForceOn,
    /// To let the operating system end.
    GracefulShutdown,
    /// To cut off.
    ForceOff,
}

impl ResetType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::On, Self::ForceOn, Self::GracefulShutdown, Self::ForceOff];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOn => "ForceOn",
            Self::GracefulShutdown => "GracefulShutdown",
            Self::ForceOff => "ForceOff",
        }
    }

    /// Whether a system is on after it.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On | Self::ForceOn)
    }
}

/// The systems behind a service.
pub trait BmcSystems {
    /// Their names.
    fn names(&self) -> Vec<String>;
    /// The power of one; `None` if there is no such system.
    fn power(&self, system: &str) -> Option<BmcPower>;
    /// The types of reset that are allowed, and whether a document of its own lists them.
    fn allowed(&self) -> (&[ResetType], bool);
    /// Takes an order. It need not do what it says.
    fn reset(&mut self, system: &str, kind: ResetType);
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct RedfishAnswer {
    /// The status.
    pub status: StatusCode,
    /// The document; `None` for an answer without a body.
    pub document: Option<Value>,
    /// The verbs of the path, where another one was used.
    pub allow: Option<&'static str>,
}

impl RedfishAnswer {
    fn ok(document: Value) -> Self {
        Self { status: StatusCode::OK, document: Some(document), allow: None }
    }

    fn refused(status: StatusCode, why: &str) -> Self {
        let error = json!({"error": {"code": "Base.1.0.GeneralError", "message": why}});
        Self { status, document: Some(error), allow: None }
    }
}

/// Answers a request to the service; `None` if the path is not of Redfish.
pub fn answer(
    systems: &mut impl BmcSystems,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Option<RedfishAnswer> {
    let under = path.strip_prefix("/redfish")?;
    if !under.is_empty() && !under.starts_with('/') {
        return None;
    }
    let trimmed = path.trim_end_matches('/');
    if trimmed == "/redfish" {
        return Some(only_get(method, || json!({"v1": "/redfish/v1/"})));
    }
    if trimmed == ROOT {
        return Some(only_get(method, root));
    }
    if trimmed == SYSTEMS {
        return Some(only_get(method, || collection(&systems.names())));
    }
    let unknown = || RedfishAnswer::refused(StatusCode::NOT_FOUND, "there is no such resource");
    let Some(rest) = trimmed.strip_prefix(SYSTEMS).and_then(|rest| rest.strip_prefix('/')) else {
        return Some(unknown());
    };
    let (name, below) = rest.split_once('/').unwrap_or((rest, ""));
    let name = percent_decode_str(name).decode_utf8_lossy();
    let Some(power) = systems.power(&name) else { return Some(unknown()) };
    let (allowed, is_apart) = systems.allowed();
    Some(match below {
        "" => only_get(method, || system(&name, power, allowed, is_apart)),
        "ResetActionInfo" if is_apart => only_get(method, || action_info(allowed)),
        "Actions/ComputerSystem.Reset" => match *method {
            Method::POST => match reset_type(body, allowed) {
                Ok(kind) => {
                    systems.reset(&name, kind);
                    RedfishAnswer { status: StatusCode::NO_CONTENT, document: None, allow: None }
                }
                Err(why) => RedfishAnswer::refused(StatusCode::BAD_REQUEST, &why),
            },
            _ => other_verb("POST"),
        },
        _ => unknown(),
    })
}

fn only_get(method: &Method, document: impl FnOnce() -> Value) -> RedfishAnswer {
    if *method == Method::GET { RedfishAnswer::ok(document()) } else { other_verb("GET") }
}

fn other_verb(allow: &'static str) -> RedfishAnswer {
    let refused = RedfishAnswer::refused(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allow}"));
    RedfishAnswer { allow: Some(allow), ..refused }
}

fn root() -> Value {
    json!({
        "@odata.id": "/redfish/v1/",
        "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Simulated machines",
        "RedfishVersion": "1.6.0",
        "Systems": {"@odata.id": SYSTEMS},
    })
}

fn collection(names: &[String]) -> Value {
    let members: Vec<Value> =
        names.iter().map(|name| json!({"@odata.id": format!("{SYSTEMS}/{name}")})).collect();
    json!({
        "@odata.id": SYSTEMS,
        "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
        "Name": "Systems",
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

fn words(allowed: &[ResetType]) -> Vec<&'static str> {
    allowed.iter().map(|kind| kind.word()).collect()
}

/// The document of a system.
#[must_use]
pub fn system(name: &str, power: BmcPower, allowed: &[ResetType], is_apart: bool) -> Value {
    let mut reset = json!({"target": format!("{SYSTEMS}/{name}/Actions/ComputerSystem.Reset")});
    if is_apart {
        reset["@Redfish.ActionInfo"] = json!(format!("{SYSTEMS}/{name}/ResetActionInfo"));
    } else {
        reset["ResetType@Redfish.AllowableValues"] = json!(words(allowed));
    }
    json!({
        "@odata.id": format!("{SYSTEMS}/{name}"),
        "@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem",
        "Id": name,
        "Name": name,
        "PowerState": power.word(),
        "Actions": {"#ComputerSystem.Reset": reset},
    })
}

fn action_info(allowed: &[ResetType]) -> Value {
    let parameter = json!({"Name": "ResetType", "DataType": "String", "Required": true, "AllowableValues": words(allowed)});
    json!({
        "@odata.type": "#ActionInfo.v1_1_0.ActionInfo",
        "Id": "ResetActionInfo",
        "Name": "Reset Action Info",
        "Parameters": [parameter],
    })
}

fn reset_type(body: &[u8], allowed: &[ResetType]) -> Result<ResetType, String> {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
    let word = body["ResetType"].as_str().unwrap_or_default();
    let known = allowed.iter().copied().find(|kind| kind.word() == word);
    known.ok_or_else(|| format!("ResetType is {word:?}; allowed: {}", words(allowed).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One system, and what it was told.
    struct One(Vec<ResetType>, bool);

    impl BmcSystems for One {
        fn names(&self) -> Vec<String> {
            vec!["a".to_owned()]
        }
        fn power(&self, system: &str) -> Option<BmcPower> {
            (system == "a").then_some(BmcPower::PoweringOn)
        }
        fn allowed(&self) -> (&[ResetType], bool) {
            (&[ResetType::On, ResetType::GracefulShutdown], self.1)
        }
        fn reset(&mut self, _: &str, kind: ResetType) {
            self.0.push(kind);
        }
    }

    fn ask(one: &mut One, verb: &str, path: &str, body: &str) -> (u16, Value) {
        let method = Method::from_bytes(verb.as_bytes()).unwrap();
        let answer = answer(one, &method, path, body.as_bytes()).unwrap();
        (answer.status.as_u16(), answer.document.unwrap_or_default())
    }

    #[test]
    fn a_client_finds_the_way_from_the_root_to_the_reset() {
        let mut one = One(Vec::new(), false);
        assert_eq!(ask(&mut one, "GET", "/redfish", "").1["v1"], "/redfish/v1/");
        let root = ask(&mut one, "GET", "/redfish/v1/", "").1;
        let all = ask(&mut one, "GET", root["Systems"]["@odata.id"].as_str().unwrap(), "").1;
        let a = ask(&mut one, "GET", all["Members"][0]["@odata.id"].as_str().unwrap(), "").1;
        assert_eq!((&a["PowerState"], &a["Id"]), (&json!("PoweringOn"), &json!("a")));
        let reset = &a["Actions"]["#ComputerSystem.Reset"];
        assert_eq!(reset["ResetType@Redfish.AllowableValues"], json!(["On", "GracefulShutdown"]));
        let target = reset["target"].as_str().unwrap().to_owned();
        assert_eq!(ask(&mut one, "POST", &target, r#"{"ResetType": "On"}"#), (204, Value::Null));
        assert_eq!(one.0, [ResetType::On]);
        one.1 = true;
        let a = ask(&mut one, "GET", "/redfish/v1/Systems/a", "").1;
        let info = a["Actions"]["#ComputerSystem.Reset"]["@Redfish.ActionInfo"].as_str().unwrap().to_owned();
        let info = ask(&mut one, "GET", &info, "").1;
        assert_eq!(info["Parameters"][0]["AllowableValues"], json!(["On", "GracefulShutdown"]));
    }

    #[test]
    fn what_is_not_offered_is_refused_and_does_nothing() {
        let mut one = One(Vec::new(), false);
        let target = "/redfish/v1/Systems/a/Actions/ComputerSystem.Reset";
        for body in ["", "[]", "{}", r#"{"ResetType": "ForceOff"}"#, r#"{"ResetType": 1}"#, "\u{0}"] {
            assert_eq!(ask(&mut one, "POST", target, body).0, 400, "{body}");
        }
        assert_eq!(ask(&mut one, "GET", target, "").0, 405);
        assert_eq!(ask(&mut one, "DELETE", "/redfish/v1/Systems", "").0, 405);
        for path in
            ["/redfish/v2", "/redfish/v1/Systems/b", "/redfish/v1/Systems/a/Bios", "/redfish/v1/Systemsx"]
        {
            assert_eq!(ask(&mut one, "GET", path, "").0, 404, "{path}");
        }
        assert!(one.0.is_empty());
        assert_eq!(answer(&mut one, &Method::GET, "/redfisher", b""), None);
        assert_eq!(answer(&mut one, &Method::GET, "/state/a", b""), None);
    }
}
