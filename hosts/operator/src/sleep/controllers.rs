//! The file that says how each node's power is switched (`SLEEP_BMC_FILE`, YAML): the address of its management controller and
//! who may use it. It is a file of the operator's and not an annotation of the Node, because a kubelet may write the
//! annotations of its own Node, and the operator would send its password to wherever one points.

use super::redfish::RedfishPower;
use super::wake_on_lan::{LanWake, MacAddress};
use super::webhook::Webhook;
use bytes::Bytes;
use host_kit::bearer::TokenFile;
use host_kit::config::Url;
use host_kit::config::parse::object_name;
use host_kit::http_client::{Carrier, ClientLimits, HttpClient, Trust};
use host_kit::login::{Login, user};
use http::{HeaderValue, Method, Request, header};
use planner::sleep::PowerState;
use serde::Deserialize;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Each request may take this long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(8);
/// A document of a system has some ten KiB.
const BYTES_MOST: usize = 1 << 20;
/// The largest file, and the most values in it: those of 100,000 nodes.
const FILE_MOST: u64 = 32 << 20;
const YAML_NODES_MOST: usize = 2_000_000;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    defaults: Access,
    nodes: BTreeMap<String, Entry>,
}

/// Who may use a controller.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Access {
    user: Option<String>,
    password_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    force_off: Option<bool>,
}

/// A node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    redfish: Option<String>,
    webhook: Option<String>,
    wake_on_lan: Option<Lan>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    force_off: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Lan {
    mac: String,
    broadcast: Option<String>,
}

/// How a node's power is read and switched.
#[derive(Clone, Debug)]
pub(super) enum PowerSwitch {
    /// By its Redfish service.
    Redfish(RedfishPower),
    /// By a server of the site.
    Webhook(Webhook),
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    switch: PowerSwitch,
    /// It is woken by a packet, and its switch only says whether it is on.
    lan: Option<LanWake>,
    access: Reach,
}

/// How a controller is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReachKey {
    authorities: Option<PathBuf>,
    /// The file of the token, as it is shown.
    token: Option<String>,
    has_tls: bool,
}

#[derive(Clone, Debug)]
struct Reach {
    key: ReachKey,
    login: Login,
}

/// All nodes of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controllers {
    nodes: BTreeMap<String, Controller>,
}

/// A client for each way of reaching controllers, which all nodes that are reached so share.
pub(crate) struct Clients(BTreeMap<ReachKey, HttpClient>);

/// A client with the login of one controller.
pub(super) struct Caller<'a> {
    client: &'a HttpClient,
    login: &'a Login,
}

impl Controllers {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or anything in it is refused; with the place.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let file = std::fs::File::open(path).map_err(|error| told(&error))?;
        let mut text = String::new();
        let read = file.take(FILE_MOST + 1).read_to_string(&mut text).map_err(|error| told(&error))?;
        if u64::try_from(read).unwrap_or(u64::MAX) > FILE_MOST {
            return Err(told(&"it is too large"));
        }
        Self::parse(&text).map_err(|why| told(&why))
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: YAML_NODES_MOST,
                max_depth: 8,
                // The file has no use for them, and a text that grows while it is read has.
                max_aliases: 0,
                max_anchors: 0,
                max_documents: 1,
            },
            duplicate_keys: DuplicateKeyPolicy::Error,
            merge_keys: MergeKeyPolicy::Error,
            with_snippet: false,
        };
        let document: Document =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
        let mut nodes = BTreeMap::new();
        for (name, entry) in document.nodes {
            object_name(&name).map_err(|why| format!("nodes.{name}: {}", why.0))?;
            let one = controller(&document.defaults, entry).map_err(|why| format!("nodes.{name}: {why}"))?;
            nodes.insert(name, one);
        }
        Ok(Self { nodes })
    }

    pub(crate) fn get(&self, node: &str) -> Option<&Controller> {
        self.nodes.get(node)
    }

    /// The clients for all of them. A test has a transport of its own.
    ///
    /// # Errors
    /// If a file of authorities or of a token cannot be used.
    pub(crate) fn clients(&self, carrier: Option<&Arc<dyn Carrier>>) -> Result<Clients, String> {
        let limits = ClientLimits { timeout: TIMEOUT, bytes_max: BYTES_MOST, idle_max: 1 };
        let mut clients = BTreeMap::new();
        for controller in self.nodes.values() {
            let key = &controller.access.key;
            if clients.contains_key(key) {
                continue;
            }
            let client = match carrier {
                Some(carrier) => HttpClient::carried("joulie-operator", limits, carrier.clone()),
                None => {
                    let trust = Trust::of(key.authorities.as_deref(), key.has_tls);
                    HttpClient::new("joulie-operator", limits, trust).map_err(|error| error.to_string())?
                }
            };
            let client = client.with_token(controller.access.login.token().cloned());
            clients.insert(key.clone(), client);
        }
        Ok(Clients(clients))
    }
}

fn controller(defaults: &Access, entry: Entry) -> Result<Controller, String> {
    let Entry { redfish, webhook, wake_on_lan, user: name, password_file, token_file, ca_file, force_off } =
        entry;
    // A login of the node takes the place of that of all.
    let has_own = name.is_some() || password_file.is_some() || token_file.is_some();
    let (name, password, token) = match has_own {
        true => (name, password_file, token_file),
        false => (defaults.user.clone(), defaults.password_file.clone(), defaults.token_file.clone()),
    };
    let login = match (name, password, token) {
        (None, None, None) => Login::None,
        (None, None, Some(token)) => Login::Token(TokenFile::new(&token)?),
        (Some(name), Some(password), None) => {
            let Some(name) = user(&name).map_err(|why| format!("user: {}", why.0))? else {
                return Err("user: it is empty".to_owned());
            };
            Login::Basic { user: name, password }
        }
        (Some(_), None, _) | (None, Some(_), _) => {
            return Err("user and passwordFile go together".to_owned());
        }
        (Some(_), Some(_), Some(_)) => return Err("either a password or a token, not both".to_owned()),
    };
    login.basic()?;
    let url = |text: &str, what: &str| text.parse::<Url>().map_err(|why| format!("{what}: {}", why.0));
    let force = force_off.or(defaults.force_off).unwrap_or(false);
    let (switch, url) = match (redfish, webhook) {
        (Some(text), None) => {
            let url = url(&text, "redfish")?;
            (PowerSwitch::Redfish(RedfishPower::new(&url, force)), url)
        }
        (None, Some(text)) => {
            let url = url(&text, "webhook")?;
            (PowerSwitch::Webhook(Webhook::new(&url)), url)
        }
        (None, None) => return Err("redfish or webhook: one of them says whether the node is on".to_owned()),
        (Some(_), Some(_)) => return Err("redfish or webhook, not both".to_owned()),
    };
    let lan = wake_on_lan.map(|Lan { mac, broadcast }| {
        let mac = MacAddress::parse(&mac).ok_or("wakeOnLan.mac: expected six bytes, as 0c:c4:7a:12:34:56")?;
        let to = broadcast.unwrap_or_else(|| "255.255.255.255:9".to_owned());
        let to: SocketAddr =
            to.parse().map_err(|_| "wakeOnLan.broadcast: expected ADDRESS:PORT, as 10.0.0.255:9")?;
        Ok::<_, String>(LanWake { mac, to })
    });
    let has_tls = url.as_str().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    if login != Login::None && !has_tls {
        return Err(format!("{url} has no TLS, and a login is not sent in the clear"));
    }
    let authorities = ca_file.or_else(|| defaults.ca_file.clone()).filter(|_| has_tls);
    let token = login.token().map(|token| format!("{token:?}"));
    let key = ReachKey { authorities, token, has_tls };
    Ok(Controller { switch, lan: lan.transpose()?, access: Reach { key, login } })
}

impl Controller {
    fn caller<'a>(&'a self, clients: &'a Clients) -> Result<Caller<'a>, String> {
        let client = clients.0.get(&self.access.key).ok_or("there is no client for it")?;
        Ok(Caller { client, login: &self.access.login })
    }

    /// Whether it is on.
    pub(crate) async fn state(&self, clients: &Clients) -> Result<PowerState, String> {
        let caller = self.caller(clients)?;
        match &self.switch {
            PowerSwitch::Redfish(redfish) => redfish.state(&caller).await,
            PowerSwitch::Webhook(webhook) => webhook.state(&caller).await,
        }
    }

    /// Switches it on or off; off lets its system end by itself.
    pub(crate) async fn switch(&self, clients: &Clients, on: bool) -> Result<(), String> {
        if let Some(lan) = self.lan.as_ref().filter(|_| on) {
            return lan.wake().await;
        }
        let caller = self.caller(clients)?;
        match &self.switch {
            PowerSwitch::Redfish(redfish) => redfish.switch(&caller, on).await,
            PowerSwitch::Webhook(webhook) => webhook.switch(&caller, on).await,
        }
    }
}

impl Caller<'_> {
    /// Sends a request, and returns the body of the answer.
    pub(super) async fn call(
        &self,
        method: Method,
        url: &str,
        body: Option<String>,
    ) -> Result<Bytes, String> {
        let told = |why: &dyn std::fmt::Display| format!("{method} {}: {why}", shown(url));
        let mut request =
            Request::builder().method(&method).uri(url).header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let request = request.body(body.map(Bytes::from).unwrap_or_default());
        let mut request = request.map_err(|error| told(&error))?;
        if let Some(value) = self.login.basic()? {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        self.client.ask(request).await.map_err(|why| told(&why))
    }
}

/// A URL without what comes before its host.
fn shown(url: &str) -> String {
    url.parse::<Url>().map_or_else(|_| "a URL".to_owned(), |url| url.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Controllers::parse(text).map(drop).unwrap_err()
    }

    #[test]
    fn a_file_is_read_whole_or_refused_with_the_place() {
        let text = "nodes:
  n1: {redfish: 'http://10.0.0.1/redfish/v1/Systems/1'}
  n2: {webhook: 'https://power.example/n2', wakeOnLan: {mac: '0c:c4:7a:12:34:56', broadcast: '10.0.0.255:9'}}
";
        let read = Controllers::parse(text).unwrap();
        assert!(read.get("n1").is_some_and(|one| one.lan.is_none()));
        assert!(read.get("n2").is_some_and(|one| one.lan.is_some()) && read.get("n3").is_none());
        let bad = [
            ("nodes: {n1: {}}", "nodes.n1: redfish or webhook"),
            ("nodes: {n1: {redfish: 'http://a/x', webhook: 'http://b/y'}}", "not both"),
            ("nodes: {n1: {redfish: 'ftp://a'}}", "nodes.n1: redfish: "),
            ("nodes: {n1: {redfish: 'http://a/x', colour: red}}", "colour"),
            ("nodes: {'N 1': {redfish: 'http://a/x'}}", "nodes.N 1"),
            ("nodes: {n1: {redfish: 'http://a/x', user: joulie}}", "go together"),
            ("nodes: {n1: {redfish: 'http://a/x', wakeOnLan: {mac: '0c:c4'}}}", "wakeOnLan.mac"),
            (
                "nodes: {n1: {redfish: 'http://a/x', wakeOnLan: {mac: '0c:c4:7a:12:34:56', broadcast: here}}}",
                "wakeOnLan.broadcast",
            ),
            ("nodes: {n1: {redfish: 'http://a/x'}, n1: {redfish: 'http://b/x'}}", ""),
            ("{}", "nodes"),
            ("nodes: 7", ""),
        ];
        for (text, said) in bad {
            assert!(refusal(text).contains(said), "{text}: {}", refusal(text));
        }
    }

    #[test]
    fn a_password_is_not_sent_without_tls() {
        let folder = std::env::temp_dir().join(format!("joulie-bmc-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let password = folder.join("password");
        std::fs::write(&password, "secret\n").unwrap();
        let text = |scheme: &str| {
            format!(
                "defaults: {{user: joulie, passwordFile: {}}}\nnodes: {{n1: {{redfish: '{scheme}://bmc/redfish/v1/Systems/1'}}}}",
                password.display()
            )
        };
        assert!(Controllers::parse(&text("https")).is_ok());
        assert!(refusal(&text("http")).contains("in the clear"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refusal(&text("https")).contains("password"), "a file that is missing is told at the start");
    }
}
