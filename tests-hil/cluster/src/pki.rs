//! The certificates of one control plane: two authorities (one for the API, one for etcd alone), a serving
//! certificate, one client certificate per component, and the key that signs the tokens of ServiceAccounts. They are
//! in the folder and are removed with it.

use crate::error::ClusterError;
use crate::folder::Folder;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::{Path, PathBuf};

/// The first address of the service range, which is the API server's address inside a cluster.
const API_SERVICE_IP: &str = "10.96.0.1";

/// A client of the API server: its certificate states its user and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The name of its files.
    pub(crate) file: &'static str,
    user: &'static str,
    group: Option<&'static str>,
}

/// A user with all rights.
pub(crate) const ADMIN: Identity = Identity { file: "admin", user: "admin", group: Some("system:masters") };
/// The user that RBAC knows as the scheduler.
pub(crate) const SCHEDULER: Identity =
    Identity { file: "scheduler", user: "system:kube-scheduler", group: None };
/// The user that RBAC knows as the controller manager.
pub(crate) const CONTROLLER_MANAGER: Identity =
    Identity { file: "controller-manager", user: "system:kube-controller-manager", group: None };

struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemPair {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// What a server and its clients on this machine show each other: an authority of their own, a certificate for the server,
/// and one for its client.
pub struct MutualTls {
    folder: PathBuf,
    authority: Authority,
    /// The authority of both.
    pub ca: PathBuf,
    /// The server's.
    pub server: PemPair,
    /// The client's.
    pub client: PemPair,
}

impl MutualTls {
    /// Writes all of it into this folder, which it creates.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn create(folder: &Path) -> Result<Self, ClusterError> {
        std::fs::create_dir_all(folder).map_err(ClusterError::file("making the folder", folder))?;
        let authority = Authority::new(folder, "ca")?;
        let pair = |name: &str| PemPair {
            certificate: folder.join(format!("{name}.crt")),
            key: folder.join(format!("{name}.key")),
        };
        let (ca, server, client) = (folder.join("ca.crt"), pair("server"), pair("client"));
        let tls = Self { folder: folder.to_owned(), authority, ca, server, client };
        tls.renew()?;
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        tls.authority.issue(folder, "client", ("client", None), &[], &usages)?;
        Ok(tls)
    }

    /// Replaces the server's certificate and its key.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn renew(&self) -> Result<(), ClusterError> {
        let usages = [ExtendedKeyUsagePurpose::ServerAuth];
        self.authority.issue(&self.folder, "server", ("server", None), &["127.0.0.1", "localhost"], &usages)
    }
}

/// Writes all keys and certificates into the folder.
pub(crate) fn write(into: &Folder) -> Result<(), ClusterError> {
    let folder = into.path();
    let api = Authority::new(folder, "ca")?;
    let names = ["127.0.0.1", "localhost", API_SERVICE_IP, "kubernetes", "kubernetes.default", SERVICE_NAME];
    let serving = [ExtendedKeyUsagePurpose::ServerAuth];
    api.issue(folder, "serving", ("serving", None), &names, &serving)?;
    for who in [ADMIN, SCHEDULER, CONTROLLER_MANAGER] {
        api.issue(folder, who.file, (who.user, who.group), &[], &[ExtendedKeyUsagePurpose::ClientAuth])?;
    }
    let etcd = Authority::new(folder, "etcd-ca")?;
    // etcd's JSON gateway is a client of etcd itself, with the same certificate.
    let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    etcd.issue(folder, "etcd", ("etcd", None), &["127.0.0.1", "localhost"], &both)?;
    etcd.issue(folder, "etcd-client", ("etcd-client", None), &[], &[ExtendedKeyUsagePurpose::ClientAuth])?;
    let tokens = KeyPair::generate()?;
    into.write("service-accounts.key", &tokens.serialize_pem())?;
    into.write("service-accounts.pub", &tokens.public_key_pem())?;
    Ok(())
}

const SERVICE_NAME: &str = "kubernetes.default.svc.cluster.local";

impl Authority {
    fn new(folder: &Path, name: &str) -> Result<Self, ClusterError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        put(folder, &format!("{name}.crt"), &params.self_signed(&key)?.pem())?;
        put(folder, &format!("{name}.key"), &key.serialize_pem())?;
        Ok(Self { issuer: Issuer::new(params, key) })
    }

    fn issue(
        &self,
        folder: &Path,
        file: &str,
        (name, group): (&str, Option<&str>),
        at: &[&str],
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<(), ClusterError> {
        let mut params = CertificateParams::new(at.iter().map(|&at| at.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate()?;
        put(folder, &format!("{file}.crt"), &params.signed_by(&key, &self.issuer)?.pem())?;
        put(folder, &format!("{file}.key"), &key.serialize_pem())?;
        Ok(())
    }
}

fn put(folder: &Path, name: &str, text: &str) -> Result<(), ClusterError> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(ClusterError::file("writing", &path))
}
