//! Asks the Kepler of this node for its page of metrics, again and again.

use super::ASK_EVERY;
use super::page::{KeplerError, KeplerPage};
use bytes::Bytes;
use host_kit::config::Url;
use host_kit::http_client::{ClientLimits, HttpClient, NoAnswer, Trust, TrustError};
use host_kit::metrics::MetricsRegistry;
use host_kit::shutdown::Stop;
use host_kit::{closed_label, label_set};
use http::Request;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::fmt;
use std::time::Duration;

/// How long Kepler has for an answer.
const TIMEOUT: Duration = Duration::from_secs(4);
/// A page about 250 pods and some thousand processes has some MiB.
const BYTES_MOST: usize = 32 << 20;

closed_label! {
    /// The outcome of asking Kepler.
    pub(crate) enum KeplerLook {
        /// It answered.
        Answered = "answered",
        /// It could not be reached.
        Unreachable = "unreachable",
        /// It did not answer in time.
        Late = "late",
        /// It refused.
        Refused = "refused",
        /// The answer is no page of Kepler, or is too large.
        Malformed = "malformed",
        /// The page is of another node.
        OtherNode = "other-node",
    }
}

label_set! {
    struct ByKeplerLook {
        outcome: KeplerLook,
    }
}

/// Counts what Kepler answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeplerLooks(Family<ByKeplerLook, Counter>);

impl KeplerLooks {
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let looks = Self::default();
        registry.register("joulie_energy_kepler_looks", "What asking Kepler gave", looks.0.clone());
        looks
    }

    fn count(&self, outcome: KeplerLook) {
        self.0.get_or_create(&ByKeplerLook { outcome }).inc();
    }
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NoPage {
    Answer(NoAnswer),
    Page(KeplerError),
    Request(String),
}

impl NoPage {
    const fn look(&self) -> KeplerLook {
        match self {
            Self::Answer(NoAnswer::Late(_)) => KeplerLook::Late,
            Self::Answer(NoAnswer::Refused(_)) => KeplerLook::Refused,
            Self::Answer(NoAnswer::Failed(_)) | Self::Request(_) => KeplerLook::Unreachable,
            Self::Page(KeplerError::OtherNode(_)) => KeplerLook::OtherNode,
            Self::Answer(NoAnswer::Unreadable(_)) | Self::Page(_) => KeplerLook::Malformed,
        }
    }
}

impl fmt::Display for NoPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(why) => why.fmt(f),
            Self::Page(why) => why.fmt(f),
            Self::Request(why) => f.write_str(why),
        }
    }
}

/// The Kepler of this node.
pub(crate) struct KeplerSource {
    client: HttpClient,
    url: Url,
    node: String,
    looks: KeplerLooks,
}

impl KeplerSource {
    pub(crate) fn new(url: Url, node: &str, looks: KeplerLooks) -> Result<Self, TrustError> {
        let limits = ClientLimits { timeout: TIMEOUT, bytes_max: BYTES_MOST, idle_max: 1 };
        let client = HttpClient::new("joulie-agent", limits, Trust::Nobody)?;
        Ok(Self { client, url, node: node.to_owned(), looks })
    }

    /// Hands each page on.
    pub(crate) async fn follow(self, hand: impl Fn(KeplerPage), stop: Stop) {
        let mut failing: Option<NoPage> = None;
        while !stop.requested_within(ASK_EVERY).await {
            let asked = tokio::select! {
                asked = self.ask() => asked,
                () = stop.requested() => return,
            };
            match asked {
                Ok(page) => {
                    self.looks.count(KeplerLook::Answered);
                    if failing.take().is_some() {
                        tracing::info!("Kepler answers again");
                    }
                    hand(page);
                }
                Err(none) => {
                    self.looks.count(none.look());
                    if failing.as_ref() != Some(&none) {
                        tracing::warn!("{}: Kepler does not say what pods use: {none}", self.url);
                    }
                    failing = Some(none);
                }
            }
        }
    }

    async fn ask(&self) -> Result<KeplerPage, NoPage> {
        let request = Request::get(self.url.as_str()).body(Bytes::new());
        let request = request.map_err(|error| NoPage::Request(error.to_string()))?;
        let body = self.client.ask(request).await.map_err(NoPage::Answer)?;
        let node = self.node.clone();
        // A large page takes a while to read.
        let read = tokio::task::spawn_blocking(move || KeplerPage::read(&body, &node)).await;
        read.map_err(|error| NoPage::Request(error.to_string()))?.map_err(NoPage::Page)
    }
}
