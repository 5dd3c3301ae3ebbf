//! The client of the API server: from a kubeconfig that was named, or as a pod or a person has it.
//!
//! It never repeats a request by itself. Whoever writes knows whether a write may be repeated and how long it may take;
//! a client that sends a refused eviction fifteen more times does not.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why there is no client.
#[derive(Debug)]
pub enum ConnectError {
    /// The kubeconfig that was named cannot be used.
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Neither a pod's token nor a person's kubeconfig is there.
    Nowhere(String),
    /// What was found makes no client: a certificate, a name.
    Client(String),
}

/// A client from this kubeconfig, or without one from the pod's token or the person's kubeconfig. It sends nothing yet:
/// an API server that is away is no reason not to start.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let config = match kubeconfig {
        Some(path) => named(path).await?,
        None => Config::infer().await.map_err(|error| ConnectError::Nowhere(chain(&error)))?,
    };
    Client::try_from(as_we_ask(config)).map_err(|error| ConnectError::Client(chain(&error)))
}

fn as_we_ask(mut config: Config) -> Config {
    config.default_retry = false;
    // kube looks for the system's authorities also where the server has no TLS, and gives up where there are none.
    if config.cluster_url.scheme_str() == Some("http") && config.root_cert.is_none() {
        config.root_cert = Some(Vec::new());
    }
    config
}

async fn named(path: &Path) -> Result<Config, ConnectError> {
    let wrong = |why| ConnectError::Kubeconfig { path: path.to_owned(), why };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(chain(&error)))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| wrong(chain(&error)))
}

/// An error with what caused it: the outermost alone often says only what was attempted.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { path, why } => {
                write!(f, "KUBECONFIG={} cannot be used: {why}", path.display())
            }
            Self::Nowhere(why) => write!(
                f,
                "there is no API server to talk to: neither a pod's service account nor a kubeconfig was found; \
                 set KUBECONFIG ({why})"
            ),
            Self::Client(why) => write!(f, "what the kubeconfig says makes no client: {why}"),
        }
    }
}

impl Error for ConnectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_the_authorities_of_the_system_are_not_looked_for() {
        let roots = |url: &str, own: Option<Vec<Vec<u8>>>| {
            let mut config = Config::new(url.parse().unwrap());
            config.root_cert = own;
            let config = as_we_ask(config);
            assert!(!config.default_retry);
            config.root_cert
        };
        assert_eq!(roots("http://127.0.0.1:1", None), Some(Vec::new()));
        assert_eq!(roots("https://127.0.0.1:1", None), None, "the system says whom to trust");
        for url in ["http://127.0.0.1:1", "https://127.0.0.1:1"] {
            assert_eq!(roots(url, Some(vec![vec![1]])), Some(vec![vec![1]]), "{url}");
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_refused_with_its_path() {
        let error = connect(Some(Path::new("/no/such/kubeconfig"))).await.map(drop).unwrap_err();
        assert!(matches!(error, ConnectError::Kubeconfig { .. }));
        assert!(error.to_string().starts_with("KUBECONFIG=/no/such/kubeconfig cannot be used: "), "{error}");
    }
}
