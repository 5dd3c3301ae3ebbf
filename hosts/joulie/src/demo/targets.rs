//! The file by which a Prometheus finds the metrics of the demo (`file_sd_configs`). It is removed at the end of the demo.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The written file.
#[derive(Debug)]
pub(super) struct Targets {
    path: PathBuf,
}

impl Targets {
    /// Writes it, beside and with a rename, so that a Prometheus that follows it never reads half of it.
    pub(super) fn write(
        path: &Path,
        parts: impl Iterator<Item = (&'static str, SocketAddr)>,
    ) -> Result<Self, String> {
        let groups: Vec<Value> = parts.map(|(job, address)| group(job, address)).collect();
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let written = std::fs::write(&new, format!("{:#}\n", Value::from(groups)));
        written
            .and_then(|()| std::fs::rename(&new, path))
            .map_err(|error| format!("--targets {}: it cannot be written: {error}", path.display()))?;
        Ok(Self { path: path.to_owned() })
    }
}

fn group(job: &str, address: SocketAddr) -> Value {
    json!({"targets": [address.to_string()], "labels": {"job": job}})
}

impl Drop for Targets {
    fn drop(&mut self) {
        // If it cannot be removed, it names ports on which nobody listens.
        let _gone = std::fs::remove_file(&self.path);
    }
}
