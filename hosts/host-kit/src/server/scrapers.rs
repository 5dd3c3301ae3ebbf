//! Who may read the metrics: everybody, or whoever shows a token of this cluster with the right to `get` the path
//! `/metrics`, as with kube-rbac-proxy. The API server decides, by a TokenReview and a SubjectAccessReview.
//!
//! What it said is kept for a while, so that a scrape costs it nothing. While it does not answer, whom it allowed within
//! the hour is still allowed: that is when metrics are needed most.

use super::meter::{Port, RejectReason, ServerMetrics};
use crate::bearer;
use crate::clock::{HostClock, Mono};
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long what the API server said holds.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long it holds while the API server does not answer.
const ALLOWED_WITHOUT_API: Duration = Duration::from_secs(3600);
/// The most tokens that are remembered. Each of them is reviewed again at most every [`REFUSED_FOR`].
const TOKENS_MAX: usize = 64;
/// Unknown tokens are reviewed in so many places, each of which is kept for a while: somebody who tries tokens gets 20 a second
/// reviewed, and everybody who waits gets a turn.
const PLACES: usize = 2;
const PLACE_KEPT: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(5);
const PATH: &str = "/metrics";

/// The setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Everybody may read the metrics.
    Nobody,
    /// Whoever shows a token that has the right.
    Token,
}

/// Decides who may read the metrics.
#[derive(Clone, Default)]
pub struct Scrapers(Option<Arc<Reviewer>>);

struct Reviewer {
    client: Client,
    clock: Arc<dyn HostClock>,
    metrics: ServerMetrics,
    places: Semaphore,
    verdicts: Mutex<BTreeMap<String, Verdict>>,
}

#[derive(Clone, Copy)]
struct Verdict {
    is: Result<(), Why>,
    at: Mono,
}

/// Why somebody may not read the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    NoToken,
    UnknownToken,
    NoRight,
    NotReviewed,
}

impl Scrapers {
    /// Reviews tokens if the setting says so.
    pub fn new(
        auth: MetricsAuth,
        client: &Client,
        clock: &Arc<dyn HostClock>,
        metrics: &ServerMetrics,
    ) -> Self {
        match auth {
            MetricsAuth::Nobody => Self(None),
            MetricsAuth::Token => Self(Some(Arc::new(Reviewer {
                client: client.clone(),
                clock: clock.clone(),
                metrics: metrics.clone(),
                places: Semaphore::new(PLACES),
                verdicts: Mutex::default(),
            }))),
        }
    }

    /// Nothing if the request may read the metrics, and the answer otherwise.
    pub(crate) async fn refuse(
        &self,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Option<(StatusCode, &'static str)> {
        let reviewer = self.0.as_ref()?;
        let why = reviewer.admit(headers, peer).await.err()?;
        reviewer.metrics.of(Port::Metrics).refused(why.reason());
        Some(why.answer())
    }
}

impl Reviewer {
    async fn admit(&self, headers: &HeaderMap, peer: SocketAddr) -> Result<(), Why> {
        let token = bearer::shown(headers).ok_or(Why::NoToken)?;
        let known = self.verdicts().get(token).copied();
        let age = known.map(|known| self.clock.mono().since(known.at));
        match (known, age) {
            (Some(Verdict { is: Ok(()), .. }), Some(age)) if age < ALLOWED_FOR => return Ok(()),
            (Some(Verdict { is: Err(why), .. }), Some(age)) if age < REFUSED_FOR => return Err(why),
            _ => {}
        }
        let reviewed = async {
            if known.is_some() {
                return self.review(token).await;
            }
            // It is never closed.
            let _place = self.places.acquire().await;
            tokio::join!(self.review(token), tokio::time::sleep(PLACE_KEPT)).0
        };
        let said = match tokio::time::timeout(TIMEOUT, reviewed).await {
            Err(_) => Err(format!("no answer of the API server within {} s", TIMEOUT.as_secs())),
            Ok(said) => said.map_err(|error| error.to_string()),
        };
        match said {
            Ok(is) => {
                self.remember(token, is);
                if let Err(why) = is {
                    tracing::warn!(%peer, "the metrics were not shown: {why}");
                }
                is
            }
            Err(error) => match (known, age) {
                (Some(Verdict { is: Ok(()), .. }), Some(age)) if age < ALLOWED_WITHOUT_API => Ok(()),
                _ => {
                    tracing::warn!(
                        error,
                        %peer,
                        "a token could not be reviewed, so the metrics were not shown; the account of this \
                         program needs the right to create tokenreviews and subjectaccessreviews"
                    );
                    Err(Why::NotReviewed)
                }
            },
        }
    }

    async fn review(&self, token: &str) -> Result<Result<(), Why>, kube::Error> {
        let question = TokenReview {
            spec: TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let tokens: Api<TokenReview> = Api::all(self.client.clone());
        let status = tokens.create(&PostParams::default(), &question).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user.filter(|user| user.username.as_ref().is_some_and(|name| !name.is_empty()))
        else {
            return Ok(Err(Why::UnknownToken));
        };
        let question = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(PATH.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let rights: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let status = rights.create(&PostParams::default(), &question).await?.status;
        // A refusal wins over what allows, as with every authorizer.
        let allowed = status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed { Ok(()) } else { Err(Why::NoRight) })
    }

    fn remember(&self, token: &str, is: Result<(), Why>) {
        let mut verdicts = self.verdicts();
        if verdicts.len() >= TOKENS_MAX && !verdicts.contains_key(token) {
            // Refused tokens go first, so that nobody displaces Prometheus by trying some.
            let goes = verdicts.iter().min_by_key(|(_, verdict)| (verdict.is.is_ok(), verdict.at));
            if let Some(goes) = goes.map(|(token, _)| token.clone()) {
                verdicts.remove(&goes);
            }
        }
        verdicts.insert(token.to_owned(), Verdict { is, at: self.clock.mono() });
    }

    fn verdicts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Verdict>> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Why {
    const fn reason(self) -> RejectReason {
        match self {
            Self::NoToken => RejectReason::NoToken,
            Self::UnknownToken => RejectReason::UnknownToken,
            Self::NoRight => RejectReason::NoRight,
            Self::NotReviewed => RejectReason::NotReviewed,
        }
    }

    const fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::NoToken => (StatusCode::UNAUTHORIZED, "show a token: Authorization: Bearer TOKEN\n"),
            Self::UnknownToken => (StatusCode::UNAUTHORIZED, "the API server does not know this token\n"),
            Self::NoRight => (StatusCode::FORBIDDEN, "this account has no right to get the path /metrics\n"),
            Self::NotReviewed => {
                (StatusCode::SERVICE_UNAVAILABLE, "the token could not be reviewed; try again\n")
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoToken => "there was no token",
            Self::UnknownToken => "the API server does not know the token",
            Self::NoRight => "the account of the token has no right to get the path /metrics",
            Self::NotReviewed => "the token could not be reviewed",
        })
    }
}
