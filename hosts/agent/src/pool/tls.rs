//! Whom the agent believes that an endpoint with TLS is a node's: the authorities in a file, else those of the system.
//!
//! A certificate is always checked, with its name; there is no setting that turns that off.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why there is nobody to believe.
#[derive(Debug)]
pub enum PoolTlsError {
    /// The file of the authorities.
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system has no authorities.
    System(String),
    /// The library refuses.
    Library(rustls::Error),
}

impl fmt::Display for PoolTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, why } => write!(f, "TELEMETRY_HTTP_CA_FILE={}: {why}", file.display()),
            Self::System(why) => write!(
                f,
                "an endpoint has TLS, and this system knows no certificate authorities ({why}); \
                 set TELEMETRY_HTTP_CA_FILE to a file with those of the endpoints"
            ),
            Self::Library(error) => write!(f, "TLS: {error}"),
        }
    }
}

impl std::error::Error for PoolTlsError {}

/// The client's part of TLS. The authorities of the system are not looked for where no endpoint has TLS.
pub(super) fn client(is_used: bool, authorities: Option<&Path>) -> Result<ClientConfig, PoolTlsError> {
    use hyper_rustls::ConfigBuilderExt;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(PoolTlsError::Library)?;
    let builder = match authorities {
        Some(file) => builder.with_root_certificates(read(file)?),
        None if is_used => {
            builder.with_native_roots().map_err(|error| PoolTlsError::System(error.to_string()))?
        }
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

fn read(file: &Path) -> Result<RootCertStore, PoolTlsError> {
    let wrong = |why: String| PoolTlsError::File { file: file.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_authorities_is_refused_with_its_name() {
        let folder = std::env::temp_dir().join(format!("agent-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ca.pem");
        assert!(client(true, Some(&file)).unwrap_err().to_string().contains("ca.pem"), "there is none");
        for text in
            ["", "not a certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(&file, text).unwrap();
            let why = client(true, Some(&file)).map(drop).unwrap_err().to_string();
            assert!(
                why.starts_with("TELEMETRY_HTTP_CA_FILE=") && why.contains("ca.pem: "),
                "{text:?}: {why}"
            );
        }
        assert!(client(false, None).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
