//! The settings for TLS on the ports of a program, and for who may read its metrics.
//!
//! A program with a port for its work lists [`TLS_CERT_FILE`], [`TLS_KEY_FILE`] and [`TLS_CLIENT_CA_FILE`]; every program with a port
//! for metrics lists [`METRICS_TLS_CERT_FILE`] and [`METRICS_TLS_KEY_FILE`]. The port for metrics asks for no client certificate,
//! because the kubelet, which probes it, has none.

use super::{MetricsAuth, TlsFiles};
use crate::config::{ConfigSetting, Refusals, Values, parse};
use std::path::PathBuf;

const fn file(name: &'static str, help: &'static str) -> ConfigSetting<Option<PathBuf>> {
    ConfigSetting::optional(name, |text| parse::path(text).map(Some), "the path of a file in PEM", help)
}

/// The certificate of the work port.
pub const TLS_CERT_FILE: ConfigSetting<Option<PathBuf>> = file(
    "TLS_CERT_FILE",
    "The certificate of the work port and its chain; with it the port speaks TLS alone. A changed file is used within 10s",
);
/// The key of that certificate.
pub const TLS_KEY_FILE: ConfigSetting<Option<PathBuf>> =
    file("TLS_KEY_FILE", "The key of the certificate in TLS_CERT_FILE");
/// The authorities of the clients of the work port.
pub const TLS_CLIENT_CA_FILE: ConfigSetting<Option<PathBuf>> = file(
    "TLS_CLIENT_CA_FILE",
    "The authorities that sign the certificates of clients; with it a client without such a certificate is refused",
);
/// The certificate of the port for metrics.
pub const METRICS_TLS_CERT_FILE: ConfigSetting<Option<PathBuf>> = file(
    "METRICS_TLS_CERT_FILE",
    "The certificate of the port for metrics and its chain; with it the port speaks TLS alone. A changed file is used within 10s",
);
/// The key of that certificate.
pub const METRICS_TLS_KEY_FILE: ConfigSetting<Option<PathBuf>> =
    file("METRICS_TLS_KEY_FILE", "The key of the certificate in METRICS_TLS_CERT_FILE");

/// Who may read the metrics.
pub const METRICS_AUTH: ConfigSetting<MetricsAuth> = ConfigSetting::with_default(
    "METRICS_AUTH",
    "none",
    |text| parse::one_of(text, &[("none", MetricsAuth::Nobody), ("token", MetricsAuth::Token)]),
    "none or token",
    "token: /metrics is shown to a bearer token whose account may get the path /metrics (TokenReview, SubjectAccessReview); needs METRICS_TLS_CERT_FILE",
);

/// The files of the work port; `None` without TLS.
pub fn work_tls(values: &Values) -> Result<Option<TlsFiles>, Refusals> {
    let client_ca = values.get(&TLS_CLIENT_CA_FILE)?;
    let files = pair(values, &TLS_CERT_FILE, &TLS_KEY_FILE)?;
    match (files, client_ca) {
        (Some(files), client_ca) => Ok(Some(TlsFiles { client_ca, ..files })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(values.conflict(
            &["TLS_CLIENT_CA_FILE", "TLS_CERT_FILE"],
            "a port that asks clients for a certificate needs one of its own",
        )),
    }
}

/// The port for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPort {
    /// `None` without TLS.
    pub tls: Option<TlsFiles>,
    /// Who may read them.
    pub auth: MetricsAuth,
}

/// The files of the port for metrics, and who may read them.
pub fn metrics_port(values: &Values) -> Result<MetricsPort, Refusals> {
    let tls = pair(values, &METRICS_TLS_CERT_FILE, &METRICS_TLS_KEY_FILE)?;
    let auth = values.get(&METRICS_AUTH)?;
    if auth == MetricsAuth::Token && tls.is_none() {
        return Err(values.conflict(
            &[METRICS_AUTH.name(), METRICS_TLS_CERT_FILE.name()],
            "a token crosses the network only with TLS: set METRICS_TLS_CERT_FILE and METRICS_TLS_KEY_FILE too",
        ));
    }
    Ok(MetricsPort { tls, auth })
}

fn pair(
    values: &Values,
    certificate: &ConfigSetting<Option<PathBuf>>,
    key: &ConfigSetting<Option<PathBuf>>,
) -> Result<Option<TlsFiles>, Refusals> {
    match (values.get(certificate)?, values.get(key)?) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key, client_ca: None })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(values.conflict(
            &[certificate.name(), key.name()],
            "a certificate and its key go together: set both or neither",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Invocation, SettingsTable, load};
    use std::ffi::OsString;

    static TABLE: SettingsTable = SettingsTable {
        program: "test",
        about: "has ports",
        settings: &[
            &TLS_CERT_FILE,
            &TLS_KEY_FILE,
            &TLS_CLIENT_CA_FILE,
            &METRICS_TLS_CERT_FILE,
            &METRICS_TLS_KEY_FILE,
            &METRICS_AUTH,
        ],
        retired: &[],
        families: &[],
    };

    fn values(said: &[(&str, &str)]) -> Values {
        let variables = said.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        match Invocation::read(std::iter::empty(), variables) {
            Invocation::Run(sources) => load(&TABLE, &sources).unwrap(),
            Invocation::Help | Invocation::Version => panic!("neither was asked for"),
        }
    }

    #[test]
    fn a_certificate_and_its_key_go_together_and_a_client_needs_a_server() {
        let both = values(&[("TLS_CERT_FILE", "/a"), ("TLS_KEY_FILE", "/b"), ("TLS_CLIENT_CA_FILE", "/c")]);
        let files = work_tls(&both).unwrap().unwrap();
        assert_eq!(
            files,
            TlsFiles { certificate: "/a".into(), key: "/b".into(), client_ca: Some("/c".into()) }
        );
        assert_eq!(metrics_port(&both).unwrap().tls, None);
        assert_eq!(work_tls(&values(&[])).unwrap(), None);
        for (said, named) in [
            (("TLS_CERT_FILE", "/a"), "TLS_KEY_FILE"),
            (("TLS_KEY_FILE", "/b"), "TLS_CERT_FILE"),
            (("TLS_CLIENT_CA_FILE", "/c"), "TLS_CERT_FILE"),
        ] {
            let why = work_tls(&values(&[said])).unwrap_err().to_string();
            assert!(why.contains(named) && why.contains(said.0), "{why}");
        }
        let half = values(&[("METRICS_TLS_KEY_FILE", "/b")]);
        assert!(metrics_port(&half).unwrap_err().to_string().contains("METRICS_TLS_CERT_FILE"));
    }

    #[test]
    fn a_token_is_asked_for_only_over_tls() {
        let open = values(&[("METRICS_AUTH", "token")]);
        assert!(metrics_port(&open).unwrap_err().to_string().contains("only with TLS"));
        let closed =
            [("METRICS_AUTH", "token"), ("METRICS_TLS_CERT_FILE", "/a"), ("METRICS_TLS_KEY_FILE", "/b")];
        assert_eq!(metrics_port(&values(&closed)).unwrap().auth, MetricsAuth::Token);
        assert_eq!(metrics_port(&values(&[])).unwrap().auth, MetricsAuth::Nobody);
    }
}
