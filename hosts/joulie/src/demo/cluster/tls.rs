//! The certificate of the extender's port for kube-scheduler. The extender reads the file again within ten seconds, as one that an issuer
//! has renewed.

use embedded_api::LoopbackKey;
use host_kit::clock::HostClock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The names of the files.
pub(super) const CERTIFICATE: &str = "extender.crt";
pub(super) const KEY: &str = "extender.key";
const DAY: Duration = Duration::from_secs(86_400);
/// For how many days it is usually issued.
const USUAL_DAYS: u32 = 90;
/// How many days are left of one that was not renewed.
const LEFT_DAYS: u32 = 3;

/// A key, and the files of it.
pub(in crate::demo) struct DemoTls {
    key: LoopbackKey,
    clock: Arc<dyn HostClock>,
    pub(super) certificate: PathBuf,
    pub(super) key_file: PathBuf,
}

impl DemoTls {
    /// Writes a new key and its certificate to this folder.
    pub(super) fn create(folder: &Path, clock: Arc<dyn HostClock>) -> Result<Self, String> {
        let (certificate, key_file) = (folder.join(CERTIFICATE), folder.join(KEY));
        let tls = Self { key: LoopbackKey::new()?, clock, certificate, key_file };
        write(&tls.key_file, &tls.key.pem())?;
        tls.issue(false)?;
        Ok(tls)
    }

    /// Puts another certificate in the place of the present one.
    pub(super) fn issue(&self, ends_soon: bool) -> Result<(), String> {
        let days = if ends_soon { LEFT_DAYS } else { USUAL_DAYS };
        let now = Duration::from_secs(u64::try_from(self.clock.wall().as_second()).unwrap_or_default());
        write(&self.certificate, &self.key.certificate(now + DAY * days)?)
    }
}

/// Writes a file as a whole, so that nobody reads a part of it.
fn write(file: &Path, text: &str) -> Result<(), String> {
    let new = file.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
    written.map_err(|error| format!("{}: {error}", file.display()))
}
