//! The suite on etcd and kube-apiserver.

use crate::report;
use crate::servers::{control_plane, real};
use conformance::{ServerKind, run};

#[tokio::test(flavor = "multi_thread")]
async fn every_case_holds_on_a_real_server() {
    let Some(control_plane) = control_plane().await else { return };
    report("real", &run(ServerKind::Real, async || real(control_plane).await).await);
}
