//! Certificates for this machine's loopback address that nobody else has signed.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::time::Duration;

/// A key of this process. A client that trusts one certificate of it trusts each later one.
pub struct LoopbackKey(KeyPair);

impl LoopbackKey {
    /// A new key.
    ///
    /// # Errors
    /// If the machine provides no random numbers for it.
    pub fn new() -> Result<Self, String> {
        KeyPair::generate().map(Self).map_err(|error| error.to_string())
    }

    /// The key, as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A certificate, as PEM, that ends so long after the beginning of 1970.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn certificate(&self, ends: Duration) -> Result<String, String> {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).map_err(|error| error.to_string())?;
        params.not_after = date_time_ymd(1970, 1, 1) + ends;
        let made = params.self_signed(&self.0).map_err(|error| error.to_string())?;
        Ok(made.pem())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{RootCertStore, client::WebPkiServerVerifier, client::danger::ServerCertVerifier};
    use std::sync::Arc;

    const DAY: u64 = 86_400;

    #[test]
    fn who_trusts_one_certificate_trusts_the_next_of_the_key_until_it_ends() {
        let key = LoopbackKey::new().unwrap();
        let made = |key: &LoopbackKey, days: u64| {
            let pem = key.certificate(Duration::from_secs(days * DAY)).unwrap();
            CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
        };
        let mut roots = RootCertStore::empty();
        roots.add(made(&key, 20_000)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusted = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let is_good = |certificate: &CertificateDer<'_>, day: u64| {
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(day * DAY));
            trusted.verify_server_cert(certificate, &[], &name, &[], now).is_ok()
        };
        let next = made(&key, 20_010);
        assert!(is_good(&next, 20_009) && !is_good(&next, 20_011));
        assert!(!is_good(&made(&LoopbackKey::new().unwrap(), 20_010), 20_009), "of another key");
    }
}
