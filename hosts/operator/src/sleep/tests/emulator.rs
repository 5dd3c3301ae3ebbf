//! A Redfish service and a webhook on loopback, over real HTTP: systems whose power a test reads and sets. It does what it is
//! told at once, unless the test says that it loses orders. Its documents are those of the simulator.

use http::Method;
use serde_json::{Value, json};
use simulator::redfish::{self, BmcPower, BmcSystems, RedfishAnswer, ResetType};
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
    pub(crate) allowed: Option<Vec<ResetType>>,
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
        let usual = Some(vec![ResetType::On, ResetType::ForceOff, ResetType::GracefulShutdown]);
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
        if let Some(system) = path.strip_prefix("/hook/") {
            if method == "POST" {
                let body: Value = serde_json::from_str(body).unwrap_or_default();
                let to = body["power"].as_str().unwrap_or_default().to_owned();
                state.order(system, &to, if to == "on" { "On" } else { "Off" });
            }
            let Some(power) = state.power.get(system) else { return (404, "{}".to_owned()) };
            return (200, json!({"power": power.to_ascii_lowercase()}).to_string());
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer = redfish::answer(&mut *state, &method, path, body.as_bytes());
        let Some(RedfishAnswer { status, document, .. }) = answer else { return (404, "{}".to_owned()) };
        (status.as_u16(), document.map(|document| document.to_string()).unwrap_or_default())
    }
}

impl BmcSystems for Service {
    fn names(&self) -> Vec<String> {
        self.power.keys().cloned().collect()
    }

    fn power(&self, system: &str) -> Option<BmcPower> {
        let word = self.power.get(system)?;
        let all = [BmcPower::On, BmcPower::Off, BmcPower::PoweringOn, BmcPower::PoweringOff];
        all.into_iter().find(|power| power.word() == word)
    }

    fn allowed(&self) -> (&[ResetType], bool) {
        self.allowed
            .as_deref()
            .map_or((&[ResetType::ForceOn, ResetType::GracefulShutdown], true), |allowed| (allowed, false))
    }

    fn reset(&mut self, system: &str, kind: ResetType) {
        self.order(system, kind.word(), if kind.is_on() { "On" } else { "Off" });
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
