//! Whether the API server serves a version of a group at all, for kinds that not every cluster has.

use super::{Backoff, jittered};
use crate::clock::HostClock;
use crate::shutdown::Stop;
use kube::Client;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often it is asked again whether a version is served by now: a cluster is upgraded.
const ASK_AGAIN: Duration = Duration::from_secs(300);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a version of a group is served. Clones share it.
#[derive(Clone, Debug)]
pub struct Served(watch::Receiver<Option<bool>>);

impl Served {
    /// One that is known.
    #[must_use]
    pub fn known(is_served: bool) -> Self {
        Self(watch::channel(Some(is_served)).1)
    }

    /// Whether the server has said that it does not have the version. While nobody has asked yet, or the server is away,
    /// that is not known, and it is not absent.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        *self.0.borrow() == Some(false)
    }
}

/// Follows something as soon as the server says that it serves `version`, such as `/apis/resource.k8s.io/v1`.
pub fn once_served(
    client: &Client,
    version: &'static str,
    clock: Arc<dyn HostClock>,
    stop: Stop,
    follow: impl Future<Output = ()> + Send + 'static,
) -> (Served, impl Future<Output = ()> + Send + 'static) {
    let (tell, told) = watch::channel(None);
    let client = client.clone();
    let task = async move {
        let mut backoff = Backoff { failures: 0 };
        loop {
            let answer = tokio::select! {
                biased;
                () = stop.requested() => return,
                answer = is_served(&client, version) => answer,
            };
            let pause = match answer {
                Ok(true) => break,
                Ok(false) => {
                    if tell.send_replace(Some(false)) != Some(false) {
                        tracing::info!("the API server has no {version}: what is in it is not read");
                    }
                    backoff.reset();
                    ASK_AGAIN
                }
                Err(why) => {
                    tracing::warn!("it is not known whether the API server has {version}: {why}");
                    jittered(backoff.next(), &*clock)
                }
            };
            if stop.requested_within(pause).await {
                return;
            }
        }
        tell.send_replace(Some(true));
        follow.await;
    };
    (Served(told), task)
}

async fn is_served(client: &Client, version: &str) -> Result<bool, String> {
    let request = http::Request::get(version).body(Vec::new()).map_err(|error| error.to_string())?;
    match tokio::time::timeout(TIMEOUT, client.request::<Value>(request)).await {
        Ok(Ok(list)) if list["resources"].is_array() => Ok(true),
        Ok(Ok(_)) => Err("its answer is no list of kinds".to_owned()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(false),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it did not answer in 10s".to_owned()),
    }
}
