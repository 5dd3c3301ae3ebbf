//! Kubeconfig files. They refer to certificates by path, so they are valid as long as the control plane exists.

use crate::error::ClusterError;
use crate::folder::Folder;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server that hangs must not hang a bring-up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How a client authenticates.
pub(crate) enum Login<'a> {
    /// By the certificate of this name.
    Certificate(&'a str),
    /// By a token.
    Token(&'a str),
}

/// Writes `NAME.kubeconfig`: `server`, trusted by the authority `ca`.
pub(crate) fn write(
    folder: &Folder,
    name: &str,
    port: u16,
    ca: &str,
    login: &Login<'_>,
) -> Result<PathBuf, ClusterError> {
    let user = match login {
        Login::Certificate(file) => json!({
            "client-certificate": folder.join(&format!("{file}.crt")),
            "client-key": folder.join(&format!("{file}.key")),
        }),
        Login::Token(token) => json!({"token": token}),
    };
    let cluster = json!({
        "server": format!("https://127.0.0.1:{port}"),
        "certificate-authority": folder.join(&format!("{ca}.crt")),
    });
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "joulie-cluster",
        "contexts": [{"name": "joulie-cluster", "context": {"cluster": "joulie-cluster", "user": name}}],
        "clusters": [{"name": "joulie-cluster", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    });
    folder.write(&format!("{name}.kubeconfig"), &format!("{file:#}\n"))
}

/// A client with such a file. It belongs to the runtime on which it is created.
pub(crate) async fn client(file: &Path) -> Result<Client, ClusterError> {
    connect(config(file).await?)
}

/// The same identity and authority at another port.
pub(crate) async fn client_at(file: &Path, port: u16) -> Result<Client, ClusterError> {
    let mut config = config(file).await?;
    config.cluster_url = http::Uri::builder()
        .scheme("https")
        .authority(format!("127.0.0.1:{port}"))
        .path_and_query("/")
        .build()
        .map_err(|error| ClusterError::Asked(error.to_string()))?;
    config.read_timeout = Some(CONNECT_TIMEOUT);
    connect(config)
}

async fn config(file: &Path) -> Result<Config, ClusterError> {
    let parsed = Kubeconfig::read_from(file).map_err(|error| ClusterError::Kubeconfig(Box::new(error)))?;
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .map_err(|error| ClusterError::Kubeconfig(Box::new(error)))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(config)
}

fn connect(config: Config) -> Result<Client, ClusterError> {
    Client::try_from(config).map_err(ClusterError::api("preparing a client"))
}
