//! The metrics of a program's servers.

use crate::metrics::MetricsRegistry;
use crate::{closed_label, label_set};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

closed_label! {
    /// Which server of a program.
    pub enum Port {
        /// What the program is for.
        Work = "work",
        /// Metrics, health and debugging.
        Metrics = "metrics",
    }
}

closed_label! {
    /// Why a client was turned away.
    pub enum RejectReason {
        /// Its body is over the limit.
        BodyTooLarge = "body_too_large",
        /// Its body did not come in time.
        BodySlow = "body_slow",
        /// Its body broke off.
        BodyBroken = "body_broken",
        /// The head of its request did not come in time.
        HeadSlow = "head_slow",
        /// It did not take the answer in time.
        AnswerSlow = "answer_slow",
        /// It does not speak HTTP as it should.
        NotHttp = "not_http",
        /// There was no place for another connection.
        TooManyConnections = "too_many_connections",
        /// There was no place for another connection from its address.
        TooManyOfPeer = "too_many_of_peer",
        /// It waited for its client when another one needed its place.
        GaveWay = "gave_way",
        /// Nothing came from it.
        Silent = "silent",
        /// There was no room for its body beside those in flight.
        BodiesFull = "bodies_full",
        /// It did not finish the TLS handshake in time.
        HandshakeSlow = "handshake_slow",
        /// It gave up in the middle of the TLS handshake.
        HandshakeBroken = "handshake_broken",
        /// It does not speak TLS.
        NotTls = "not_tls",
        /// It has no certificate.
        NoClientCertificate = "no_client_certificate",
        /// Its certificate has expired.
        ClientCertificateExpired = "client_certificate_expired",
        /// Its certificate is signed by somebody whom we do not know.
        ClientCertificateUnknownIssuer = "client_certificate_unknown_issuer",
        /// Something else is wrong with its certificate.
        ClientCertificateBad = "client_certificate_bad",
        /// It refuses ours.
        OurCertificateRefused = "our_certificate_refused",
        /// It showed no token for the metrics.
        NoToken = "no_token",
        /// The API server does not know its token.
        UnknownToken = "unknown_token",
        /// Its account may not get the metrics.
        NoRight = "no_right",
        /// Its token could not be reviewed.
        NotReviewed = "not_reviewed",
    }
}

closed_label! {
    /// The first digit of an answer's status.
    enum Class {
        Informational = "1xx",
        Success = "2xx",
        Redirection = "3xx",
        ClientError = "4xx",
        ServerError = "5xx",
    }
}

closed_label! {
    /// The result of a changed certificate.
    pub(super) enum Reload {
        Applied = "applied",
        Refused = "refused",
    }
}

label_set! {
    struct ByPort {
        port: Port,
    }

    struct ByReason {
        port: Port,
        reason: RejectReason,
    }

    struct ByClass {
        port: Port,
        code: Class,
    }

    struct ByOutcome {
        port: Port,
        outcome: Reload,
    }
}

/// The metrics of all servers of a program; to be created once.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    answers: Family<ByClass, Counter>,
    refused: Family<ByReason, Counter>,
    panics: Family<ByPort, Counter>,
    connections: Family<ByPort, Gauge>,
    reloads: Family<ByOutcome, Counter>,
    not_after: Family<ByPort, Gauge>,
}

impl ServerMetrics {
    /// Registers them.
    pub fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self {
            answers: Family::default(),
            refused: Family::default(),
            panics: Family::default(),
            connections: Family::default(),
            reloads: Family::default(),
            not_after: Family::default(),
        };
        registry.register("joulie_http_requests", "Requests answered", all.answers.clone());
        registry.register("joulie_http_refused", "Clients turned away", all.refused.clone());
        registry.register("joulie_http_panics", "Handlers that panicked", all.panics.clone());
        registry.register("joulie_http_connections", "Open connections", all.connections.clone());
        registry.register("joulie_tls_reloads", "Changes of the certificate files", all.reloads.clone());
        registry.register(
            "joulie_tls_certificate_not_after_seconds",
            "When the certificate in use expires, Unix time",
            all.not_after.clone(),
        );
        all
    }

    pub(super) fn of(&self, port: Port) -> Meter {
        // All series exist from the start, so that an alert on their rate sees the first event.
        drop(self.panics.get_or_create(&ByPort { port }));
        for code in Class::ALL {
            drop(self.answers.get_or_create(&ByClass { port, code: *code }));
        }
        for reason in RejectReason::ALL {
            drop(self.refused.get_or_create(&ByReason { port, reason: *reason }));
        }
        Meter { port, all: self.clone() }
    }

    /// Shows that a port speaks TLS. Without TLS there are no such series.
    pub(super) fn has_certificate(&self, port: Port) {
        for outcome in Reload::ALL {
            drop(self.reloads.get_or_create(&ByOutcome { port, outcome: *outcome }));
        }
    }

    pub(super) fn reloaded(&self, port: Port, outcome: Reload) {
        self.reloads.get_or_create(&ByOutcome { port, outcome }).inc();
    }

    pub(super) fn certificate_ends(&self, port: Port, at: jiff::Timestamp) {
        self.not_after.get_or_create(&ByPort { port }).set(at.as_second());
    }
}

/// The metrics of one server.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    port: Port,
    all: ServerMetrics,
}

impl Meter {
    pub(super) fn port(&self) -> Port {
        self.port
    }

    pub(super) fn answered(&self, status: http::StatusCode) {
        let code = match status.as_u16() / 100 {
            1 => Class::Informational,
            2 => Class::Success,
            3 => Class::Redirection,
            4 => Class::ClientError,
            _ => Class::ServerError,
        };
        self.all.answers.get_or_create(&ByClass { port: self.port, code }).inc();
    }

    pub(super) fn refused(&self, reason: RejectReason) {
        self.all.refused.get_or_create(&ByReason { port: self.port, reason }).inc();
    }

    pub(super) fn panicked(&self) {
        self.all.panics.get_or_create(&ByPort { port: self.port }).inc();
    }

    pub(super) fn opened(&self) -> Open {
        let gauge = self.all.connections.get_or_create(&ByPort { port: self.port }).clone();
        gauge.inc();
        Open(gauge)
    }
}

/// Counts a connection as open while this value lives.
pub(super) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
