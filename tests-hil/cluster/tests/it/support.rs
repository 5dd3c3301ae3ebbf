//! One shared control plane for all tests that do not change it, and one at a time for the others.

use cluster::{ControlPlane, ControlPlaneOptions, start_or_skip};
use k8s_openapi::api::core::v1::Pod;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Generous, because the machine may be busy; no test depends on timing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// It is never dropped; the library guarantees that it ends with the test program.
pub(crate) async fn shared() -> Option<&'static ControlPlane> {
    static SHARED: OnceCell<Option<ControlPlane>> = OnceCell::const_new();
    let start = || async {
        let _alone = alone().await;
        start_or_skip(&ControlPlaneOptions::whole())
    };
    SHARED.get_or_init(start).await.as_ref()
}

/// Only one start at a time, because each of them keeps two processors busy.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// Waits for a condition.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "in vain: {what}");
}

/// A pod with one container and small requests.
pub(crate) fn pod(name: &str, spec: serde_json::Value) -> Pod {
    let mut pod = serde_json::json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}],
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

/// The processes that name the folder on their command line or run in it. Zombie processes do neither.
pub(crate) fn processes_of(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let folder = folder.to_str().unwrap();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = process.file_name().into_string().unwrap_or_default();
        if !name.bytes().all(|digit| digit.is_ascii_digit()) {
            continue;
        }
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ") + " ";
        let stands = std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let names = [format!("{folder}/"), format!("{folder} ")].iter().any(|name| line.contains(name));
        if stands || names {
            found.push(format!("{name} {line}"));
        }
    }
    found
}

pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}
