//! A Redfish service and a webhook on loopback, over real HTTP: systems whose power a test reads and sets. It does what it is
//! told at once, unless the test says that it loses orders.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The service. Clones share its state.
#[derive(Clone)]
pub(crate) struct Emulator {
    address: std::net::SocketAddr,
    state: Arc<Mutex<Service>>,
}

/// What the service is and was asked.
#[derive(Default)]
pub(crate) struct Service {
    /// `PowerState` of each system.
    pub(crate) power: BTreeMap<String, String>,
    /// The types of reset that it says it allows; `None` where another document says so.
    pub(crate) allowed: Option<Vec<&'static str>>,
    /// Every order, as `SYSTEM TYPE`.
    pub(crate) orders: Vec<String>,
    /// Orders to this system are answered and do nothing.
    pub(crate) loses: Option<&'static str>,
    /// Every request is answered with this.
    pub(crate) answer: Option<(u16, String)>,
    /// The headers of the last request.
    pub(crate) head: String,
}

impl Emulator {
    /// A service with these systems, which are on.
    pub(crate) async fn start(systems: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let power = systems.iter().map(|system| ((*system).to_owned(), "On".to_owned())).collect();
        let usual = Some(vec!["On", "ForceOff", "GracefulShutdown", "GracefulRestart"]);
        let state = Arc::new(Mutex::new(Service { power, allowed: usual, ..Service::default() }));
        let emulator = Self { address, state };
        let serving = emulator.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        emulator
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Service> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The URL of a system.
    pub(crate) fn system(&self, name: &str) -> String {
        self.url(&format!("/redfish/v1/Systems/{name}"))
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        // A request at a time, each with its length.
        while let Ok(length @ 1..) = stream.read(&mut part).await {
            bytes.extend_from_slice(&part[..length]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let lower = head.to_ascii_lowercase();
            let wanted = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
            let wanted: usize = wanted.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            if body.len() < wanted {
                continue;
            }
            let mut words = head.split_whitespace();
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (status, answer) = self.answer(method, path, body, head);
            let text = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nLocation: /elsewhere\r\nContent-Length: {}\r\n\r\n{answer}",
                answer.len()
            );
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
            bytes.clear();
        }
    }

    fn answer(&self, method: &str, path: &str, body: &str, head: &str) -> (u16, String) {
        let mut state = self.state();
        state.head = head.to_owned();
        if let Some(answer) = &state.answer {
            return answer.clone();
        }
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        if let Some(system) = path.strip_prefix("/hook/") {
            if method == "POST" {
                let to = body["power"].as_str().unwrap_or_default().to_owned();
                state.order(system, &to, if to == "on" { "On" } else { "Off" });
            }
            let Some(power) = state.power.get(system) else { return (404, "{}".to_owned()) };
            return (200, json!({"power": power.to_ascii_lowercase()}).to_string());
        }
        let Some(rest) = path.strip_prefix("/redfish/v1/Systems") else { return (404, "{}".to_owned()) };
        let mut parts = rest.trim_matches('/').split('/');
        let system = parts.next().unwrap_or_default().to_owned();
        if system.is_empty() {
            let members: Vec<Value> = state
                .power
                .keys()
                .map(|name| json!({"@odata.id": format!("/redfish/v1/Systems/{name}")}))
                .collect();
            return (200, json!({"Members": members}).to_string());
        }
        let Some(power) = state.power.get(&system).cloned() else { return (404, "{}".to_owned()) };
        match (method, parts.next(), parts.next()) {
            ("GET", None, None) => {
                let target = format!("/redfish/v1/Systems/{system}/Actions/ComputerSystem.Reset");
                let mut reset = json!({"target": target});
                match &state.allowed {
                    Some(allowed) => reset["ResetType@Redfish.AllowableValues"] = json!(allowed),
                    None => {
                        reset["@Redfish.ActionInfo"] =
                            json!(format!("/redfish/v1/Systems/{system}/ResetActionInfo"));
                    }
                }
                let actions = json!({"#ComputerSystem.Reset": reset});
                (200, json!({"Id": system, "PowerState": power, "Actions": actions}).to_string())
            }
            ("GET", Some("ResetActionInfo"), None) => {
                let all = json!([{"Name": "ResetType", "AllowableValues": ["ForceOn", "GracefulShutdown"]}]);
                (200, json!({"Parameters": all}).to_string())
            }
            ("POST", Some("Actions"), Some("ComputerSystem.Reset")) => {
                let kind = body["ResetType"].as_str().unwrap_or_default().to_owned();
                let to = if kind.ends_with("On") { "On" } else { "Off" };
                state.order(&system, &kind, to);
                (204, String::new())
            }
            _ => (405, "{}".to_owned()),
        }
    }
}

impl Service {
    fn order(&mut self, system: &str, kind: &str, to: &str) {
        self.orders.push(format!("{system} {kind}"));
        if self.loses != Some(system) && self.power.contains_key(system) {
            self.power.insert(system.to_owned(), to.to_owned());
        }
    }
}
