//! The pages of the programs, through the API server's proxy of pods.
//!
//! The API server takes the header `Authorization` off what it passes on, so the token for `/debug` goes in a header of its
//! own. Without the token, or without the right to use the proxy, a page cannot be reached, and that is said.

use crate::api::{ApiError, path};
use crate::object::{items, label, name, text};
use crate::rights::ProgramSettings;
use crate::run::PluginSession;
use host_kit::bearer;
use host_kit::config::FILE_VARIABLE;
use host_kit::config::parse::object_name;
use serde_json::Value;
use std::path::Path;

/// The label by which a program's pods are found.
const COMPONENT: &str = "app.kubernetes.io/component";

/// A pod of one of the programs.
#[derive(Clone, Debug)]
pub(crate) struct ProgramPod {
    pub(crate) name: String,
    pub(crate) component: String,
    pub(crate) node: String,
    /// The service account that it runs as.
    pub(crate) account: String,
    /// `app.kubernetes.io/version`
    pub(crate) version: String,
    pub(crate) ready: bool,
    /// The port of its metrics and debugging pages.
    pub(crate) port: Option<i64>,
    /// Whether that port speaks TLS, as far as its probes say.
    pub(crate) tls: bool,
    /// What its variables set.
    pub(crate) settings: ProgramSettings,
    /// The ConfigMap and the key in it of the file of settings that it follows.
    pub(crate) file: Option<(String, String)>,
}

/// The pods of agents, operator and extenders.
pub(crate) async fn programs(asked: &PluginSession) -> Result<Vec<ProgramPod>, ApiError> {
    let selector = format!("{COMPONENT} in (agent,agent-pool,operator,scheduler-extender,scheduler-binder)");
    let of = path::pods_of(&asked.common.joulie_namespace);
    asked.api.list(&of, &[("labelSelector", &selector)], |pod| Some(program(&pod))).await
}

fn program(pod: &Value) -> ProgramPod {
    let container = items(pod, "/spec/containers").first().cloned().unwrap_or_default();
    let metrics = items(&container, "/ports").iter().find(|port| port["name"] == "metrics");
    let ready =
        items(pod, "/status/conditions").iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
    ProgramPod {
        name: name(pod).to_owned(),
        component: label(pod, COMPONENT).to_owned(),
        node: text(pod, "/spec/nodeName").to_owned(),
        account: Some(text(pod, "/spec/serviceAccountName"))
            .filter(|it| !it.is_empty())
            .unwrap_or("default")
            .to_owned(),
        version: label(pod, "app.kubernetes.io/version").to_owned(),
        ready,
        port: metrics.and_then(|port| port["containerPort"].as_i64()),
        tls: text(&container, "/readinessProbe/httpGet/scheme") == "HTTPS",
        settings: settings(&container),
        file: file(pod, &container),
    }
}

fn settings(container: &Value) -> ProgramSettings {
    let mut settings = ProgramSettings::default();
    for variable in items(container, "/env") {
        let name = text(variable, "/name").to_owned();
        if variable["valueFrom"].is_null() {
            settings.variables.insert(name, text(variable, "/value").to_owned());
        } else {
            settings.elsewhere.insert(name);
        }
    }
    settings
}

/// The file that `JOULIE_CONFIG` names, if a volume of a ConfigMap is mounted there.
fn file(pod: &Value, container: &Value) -> Option<(String, String)> {
    let variable = items(container, "/env").iter().find(|one| one["name"] == FILE_VARIABLE)?;
    let (folder, key) = text(variable, "/value").rsplit_once('/')?;
    let mount = items(container, "/volumeMounts").iter().find(|mount| mount["mountPath"] == folder)?;
    let volume = items(pod, "/spec/volumes").iter().find(|volume| volume["name"] == mount["name"])?;
    let map = text(volume, "/configMap/name");
    object_name(map).ok().map(|map| (map, key.to_owned()))
}

/// A page of a pod; `page` begins with a slash.
pub(crate) async fn page(asked: &PluginSession, pod: &ProgramPod, page: &str) -> Result<String, String> {
    let port = pod.port.ok_or_else(|| format!("pod {} names no port metrics", pod.name))?;
    let scheme = if pod.tls { "https:" } else { "" };
    let pods = path::pods_of(&asked.common.joulie_namespace);
    let path = format!("{pods}/{scheme}{}:{port}/proxy{page}", pod.name);
    let token = asked.debug_token.as_deref().map(|token| (bearer::DEBUG_TOKEN_HEADER, token));
    let answer = asked.api.proxied(&path, token.filter(|_| page.starts_with("/debug"))).await;
    answer.map_err(|error| format!("pod {}: {error}", pod.name))
}

/// A debugging page of the first pod of this component that answers, as a document; or why there is none.
pub(crate) async fn debug(asked: &PluginSession, component: &str, of: &str) -> Result<Value, String> {
    if asked.debug_token.is_none() {
        return Err("not asked: --debug-token-file is not given".to_owned());
    }
    let pods = programs(asked).await.map_err(|error| format!("its pods cannot be listed: {error}"))?;
    let mut why = format!("no pod of {component} is ready in {}", asked.common.joulie_namespace);
    for pod in pods.iter().filter(|pod| pod.component == component && pod.ready).take(4) {
        match page(asked, pod, of).await {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(document) => return Ok(document),
                Err(_) => why = format!("pod {}: its answer is no JSON", pod.name),
            },
            // A standby operator has no plan.
            Err(refused) => why = refused,
        }
    }
    Err(why)
}

/// The token in a file.
pub(crate) fn token(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{}: there is no token in it", file.display()));
    }
    Ok(token.to_owned())
}
