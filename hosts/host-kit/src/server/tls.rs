//! TLS: certificates from files, mandatory client certificates, and files that change while the server runs.
//!
//! [`Certificates::keep_fresh`] reads the files again every round. If a new certificate cannot be used, the old one
//! stays in place, and the failure is counted and logged. A new one is used from the next handshake on. Sessions are
//! not resumed, since a resumed session would not show its client's certificate again, which may have expired.

use super::certificate::{self, Validity};
use super::meter::{RejectReason, Reload};
use super::{CertificateError, Port, ServerMetrics};
use crate::clock::HostClock;
use crate::config::parse::show_duration;
use crate::health::CheckResult;
use crate::shutdown::{Stop, Tasks};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{AlertDescription, CertificateError as Bad, InvalidMessage, RootCertStore};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// When less than this is left before it expires, a warning about the certificate is logged once a day.
const WARN_BEFORE: Duration = Duration::from_secs(7 * 86_400);
const WARN_EVERY: Duration = Duration::from_secs(86_400);
/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// The files with the certificates, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and its chain up to a root.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates. With this, a client without a certificate is refused.
    pub client_ca: Option<PathBuf>,
}

/// The certificates of a server: those in use, and how they are renewed. Clones share them.
#[derive(Clone)]
pub struct Certificates {
    port: Port,
    files: TlsFiles,
    in_use: Arc<ArcSwap<Loaded>>,
    /// The files as they were last read, so that the same bad files are logged once.
    seen: Arc<Mutex<Seen>>,
    metrics: ServerMetrics,
    clock: Arc<dyn HostClock>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    validity: Validity,
}

/// Why certificates cannot be used.
#[derive(Debug)]
pub enum ServerTlsError {
    /// A file cannot be read.
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file does not contain what it should.
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The certificate cannot be read.
    Certificate {
        /// The file it is in.
        file: PathBuf,
        /// What is wrong.
        error: CertificateError,
    },
    /// The certificate has expired.
    Expired {
        /// The file it is in.
        file: PathBuf,
        /// When it expired.
        at: Timestamp,
    },
    /// The certificate is not valid yet, and the one in use still is.
    TooEarly {
        /// The file it is in.
        file: PathBuf,
        /// When it becomes valid.
        at: Timestamp,
    },
}

impl fmt::Display for ServerTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { file, error } => write!(f, "{} cannot be read: {error}", file.display()),
            Self::Content { file, why } => write!(f, "{} cannot be used: {why}", file.display()),
            Self::Certificate { file, error } => write!(f, "{} cannot be used: {error}", file.display()),
            Self::Expired { file, at } => write!(f, "the certificate in {} expired at {at}", file.display()),
            Self::TooEarly { file, at } => write!(
                f,
                "the certificate in {} is good from {at} on and is taken then, if the clock of this machine is right",
                file.display()
            ),
        }
    }
}

impl std::error::Error for ServerTlsError {}

/// A client that was refused.
pub(super) struct Refusal {
    pub(super) reason: RejectReason,
    pub(super) what: String,
}

/// The files as they were last read, and why they were refused.
struct Seen {
    texts: PemFiles,
    refused: Option<String>,
}

#[derive(PartialEq)]
struct PemFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl PemFiles {
    fn read(files: &TlsFiles) -> Result<Self, ServerTlsError> {
        let one = |file: &Path| {
            std::fs::read(file).map_err(|error| ServerTlsError::Read { file: file.to_owned(), error })
        };
        Ok(Self {
            certificate: one(&files.certificate)?,
            key: one(&files.key)?,
            client_ca: files.client_ca.as_deref().map(one).transpose()?,
        })
    }
}

impl Loaded {
    fn build(files: &TlsFiles, texts: &PemFiles, now: Timestamp) -> Result<Self, ServerTlsError> {
        let content = |file: &Path, why: &dyn fmt::Display| ServerTlsError::Content {
            file: file.to_owned(),
            why: why.to_string(),
        };
        let chain = certificates(&files.certificate, &texts.certificate)?;
        let validity = certificate::validity(&chain[0])
            .map_err(|error| ServerTlsError::Certificate { file: files.certificate.clone(), error })?;
        if validity.not_after <= now {
            return Err(ServerTlsError::Expired { file: files.certificate.clone(), at: validity.not_after });
        }
        let key = PrivateKeyDer::from_pem_slice(&texts.key).map_err(|error| content(&files.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| content(&files.certificate, &error))?;
        let builder = match (&files.client_ca, &texts.client_ca) {
            (Some(file), Some(text)) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(file, text)? {
                    roots.add(root).map_err(|error| content(file, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| content(file, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
            (None, _) | (_, None) => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| content(&files.key, &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), validity })
    }
}

/// Reads the certificates of a file; there must be at least one.
fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServerTlsError> {
    let wrong = |why: String| ServerTlsError::Content { file: file.to_owned(), why };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(wrong("it holds no certificate in PEM".to_owned())),
        Ok(chain) => Ok(chain),
        Err(error) => Err(wrong(error.to_string())),
    }
}

impl Certificates {
    /// Reads the files of a port, if it speaks TLS, and keeps the certificates fresh in a task.
    pub fn start(
        port: Port,
        files: Option<TlsFiles>,
        metrics: &ServerMetrics,
        clock: &Arc<dyn HostClock>,
        (tasks, stop): (&mut Tasks, &Stop),
    ) -> Result<Option<Self>, ServerTlsError> {
        let Some(files) = files else { return Ok(None) };
        let certificates = Self::load(port, files, metrics, clock.clone())?;
        tasks.spawn("certificates", certificates.clone().keep_fresh(LOOK, stop.clone()));
        Ok(Some(certificates))
    }

    /// Reads the files. A server does not start with certificates that cannot be used.
    pub fn load(
        port: Port,
        files: TlsFiles,
        metrics: &ServerMetrics,
        clock: Arc<dyn HostClock>,
    ) -> Result<Self, ServerTlsError> {
        let texts = PemFiles::read(&files)?;
        let loaded = Loaded::build(&files, &texts, clock.wall())?;
        metrics.has_certificate(port);
        metrics.certificate_ends(port, loaded.validity.not_after);
        tracing::info!(
            "TLS certificate {} is good until {}; clients {} present one",
            files.certificate.display(),
            loaded.validity.not_after,
            if files.client_ca.is_some() { "must" } else { "need not" }
        );
        Ok(Self {
            port,
            files,
            in_use: Arc::new(ArcSwap::from_pointee(loaded)),
            seen: Arc::new(Mutex::new(Seen { texts, refused: None })),
            metrics: metrics.clone(),
            clock,
        })
    }

    /// When the certificate in use expires.
    pub fn not_after(&self) -> Timestamp {
        self.in_use.load().validity.not_after
    }

    /// Fails if the certificate in use has expired: no client will connect to this server.
    pub fn check(&self) -> impl Fn(crate::clock::Mono) -> CheckResult + Send + Sync + 'static {
        let certificates = self.clone();
        move |_| {
            let at = certificates.not_after();
            if certificates.clock.wall() < at {
                return CheckResult::Pass;
            }
            CheckResult::Fail(format!(
                "the TLS certificate {} expired at {at}",
                certificates.files.certificate.display()
            ))
        }
    }

    /// Checks the files every `period`, until asked to stop.
    pub async fn keep_fresh(self, period: Duration, stop: Stop) {
        let mut warned = None;
        loop {
            self.look();
            let now = self.clock.mono();
            if warned.is_none_or(|at| now.since(at) >= WARN_EVERY) && self.warn() {
                warned = Some(now);
            }
            if stop.requested_within(period).await {
                return;
            }
        }
    }

    /// Reads the files again, and uses them if they are new and valid.
    pub fn look(&self) {
        let texts = match PemFiles::read(&self.files) {
            Ok(texts) => texts,
            // While a mounted Secret is being replaced, a file may be missing for a moment.
            Err(error) => return tracing::debug!("TLS files: {error}; the certificate in use stays"),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let same = seen.texts == texts;
        if same && seen.refused.is_none() {
            return;
        }
        // Refused files are checked again even if they are unchanged: whether a certificate is valid depends on the
        // clock, and the clock may have been wrong.
        let now = self.clock.wall();
        let built = Loaded::build(&self.files, &texts, now).and_then(|new| self.begun(new, now));
        let refused = built.as_ref().err().map(ServerTlsError::to_string);
        let said = same && seen.refused == refused;
        *seen = Seen { texts, refused };
        drop(seen);
        match built {
            Err(_) if said => {}
            Ok(loaded) => {
                let at = loaded.validity.not_after;
                self.metrics.certificate_ends(self.port, at);
                self.metrics.reloaded(self.port, Reload::Applied);
                self.in_use.store(Arc::new(loaded));
                tracing::info!(
                    "TLS certificate {} was renewed; it is good until {at}",
                    self.files.certificate.display()
                );
            }
            Err(error) => {
                self.metrics.reloaded(self.port, Reload::Refused);
                let until = self.not_after();
                tracing::error!(
                    "the new TLS files are refused: {error}; the certificate in use stays, good until {until}"
                );
            }
        }
    }

    /// Refuses a certificate that is not valid yet while the one in use still is: clients would refuse it.
    fn begun(&self, new: Loaded, now: Timestamp) -> Result<Loaded, ServerTlsError> {
        let at = new.validity.not_before;
        if at <= now || self.not_after() <= now {
            return Ok(new);
        }
        Err(ServerTlsError::TooEarly { file: self.files.certificate.clone(), at })
    }

    /// Warns if the certificate expires soon; returns whether it did.
    fn warn(&self) -> bool {
        let (at, now) = (self.not_after(), self.clock.wall());
        let file = self.files.certificate.display();
        let left = u64::try_from(at.as_second().saturating_sub(now.as_second())).unwrap_or(0);
        let left = Duration::from_secs(left);
        if left.is_zero() {
            tracing::error!(
                "the TLS certificate {file} expired at {at}: clients refuse this server; renew it"
            );
        } else if left < WARN_BEFORE {
            let left = show_duration(left);
            tracing::warn!(
                "the TLS certificate {file} expires in {left}, at {at}; does its renewal still work?"
            );
        }
        left < WARN_BEFORE
    }

    /// Performs the TLS handshake of a new connection.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        within: Duration,
    ) -> Result<TlsStream<TcpStream>, Refusal> {
        let peer = stream.peer_addr().map_or_else(|_| "a client".to_owned(), |peer| peer.ip().to_string());
        let acceptor = TlsAcceptor::from(self.in_use.load().config.clone());
        match tokio::time::timeout(within, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(self.explain(&peer, &error)),
            Err(_) => Err(Refusal {
                reason: RejectReason::HandshakeSlow,
                what: format!("{peer} did not finish the TLS handshake in {}", show_duration(within)),
            }),
        }
    }

    /// Explains a failed handshake, and which side has to fix it.
    fn explain(&self, peer: &str, error: &io::Error) -> Refusal {
        let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
            let what = format!("{peer} gave up in the middle of the TLS handshake: {error}");
            return Refusal { reason: RejectReason::HandshakeBroken, what };
        };
        let reason = reason(tls);
        let ca = self.files.client_ca.as_deref().unwrap_or(Path::new("")).display().to_string();
        let what = if reason == RejectReason::NoClientCertificate {
            format!("{peer} presented no certificate and was turned away; give it one that is signed by {ca}")
        } else if reason == RejectReason::ClientCertificateExpired {
            format!("the certificate of {peer} has expired and it was turned away; renew it ({tls})")
        } else if reason == RejectReason::ClientCertificateUnknownIssuer {
            format!("the certificate of {peer} is not signed by {ca} and it was turned away")
        } else if reason == RejectReason::ClientCertificateBad {
            format!("the certificate of {peer} is not good and it was turned away: {tls}")
        } else if reason == RejectReason::OurCertificateRefused {
            let (file, at) = (self.files.certificate.display(), self.not_after());
            format!(
                "{peer} refuses our certificate {file}, which is good until {at}: {tls}; does it trust our CA and the name?"
            )
        } else if reason == RejectReason::NotTls {
            format!("{peer} does not speak TLS: {tls}; does it use http:// for an https:// port?")
        } else {
            format!("the TLS handshake of {peer} failed: {tls}")
        };
        Refusal { reason, what }
    }
}

fn reason(error: &rustls::Error) -> RejectReason {
    if matches!(error, rustls::Error::NoCertificatesPresented) {
        return RejectReason::NoClientCertificate;
    }
    if let rustls::Error::InvalidCertificate(bad) = error {
        if matches!(bad, Bad::Expired | Bad::ExpiredContext { .. }) {
            return RejectReason::ClientCertificateExpired;
        }
        // An issuer with the right name but another key causes a bad signature.
        if matches!(bad, Bad::UnknownIssuer | Bad::BadSignature) {
            return RejectReason::ClientCertificateUnknownIssuer;
        }
        return RejectReason::ClientCertificateBad;
    }
    if let rustls::Error::AlertReceived(alert) = error {
        let of_a_certificate = [
            AlertDescription::BadCertificate,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateRevoked,
            AlertDescription::CertificateUnknown,
            AlertDescription::UnknownCA,
            AlertDescription::UnsupportedCertificate,
        ];
        return if of_a_certificate.contains(alert) {
            RejectReason::OurCertificateRefused
        } else {
            RejectReason::HandshakeBroken
        };
    }
    if matches!(error, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) {
        return RejectReason::NotTls;
    }
    RejectReason::HandshakeBroken
}
