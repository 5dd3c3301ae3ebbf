//! The plan's Lease: it is renewed after a complete pass, so that readers of twins know that they are still maintained,
//! although nothing is written while nothing changes.

use crate::writes::{Trouble, apply, trouble};
use jiff::Timestamp;
use joulie_api::labels::PLAN_LEASE;
use joulie_api::labels::plan::{CLASSIFIER, OFF, ON};
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;

/// The annotation that carries the generation of the plan.
pub(crate) const GENERATION: &str = "joulie.io/plan-generation";
/// How long the Lease is valid after a renewal: three late renewals.
const SECONDS: u32 = 90;

/// What the Lease says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal<'a> {
    /// Where the Lease is.
    pub(crate) namespace: &'a str,
    /// The leader.
    pub(crate) holder: &'a str,
    /// The generation of the plan.
    pub(crate) generation: u64,
    /// Whether workloads are classified: without that nobody maintains their profiles.
    pub(crate) classifies: bool,
}

/// Renews the Lease.
pub(crate) async fn renew(
    client: &Client,
    Renewal { namespace, holder, generation, classifies }: Renewal<'_>,
    now: Timestamp,
    timeout: Duration,
) -> Result<(), Trouble> {
    let classifier = if classifies { ON } else { OFF };
    let document = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": PLAN_LEASE, "namespace": namespace,
            "annotations": {(GENERATION): generation.to_string(), (CLASSIFIER): classifier},
        },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        },
    });
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{PLAN_LEASE}");
    // Only the leader writes here, so it overrides any former leader.
    let request = apply(&path, &document, true).map_err(|error| Trouble::Refused(error.to_string()))?;
    match tokio::time::timeout(timeout, client.request::<Value>(request)).await {
        Err(_) => Err(Trouble::Away("no answer in time".to_owned(), None)),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(trouble(error)),
    }
}
